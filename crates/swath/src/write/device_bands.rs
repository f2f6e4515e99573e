//! The overview rows of a band whose rows are on a device: made there, so that only they are brought to the host.

use std::{ops::Range, sync::Arc};

use swath_cuda::{
    Gpu,
    encode::{Encoder, Slots},
    press::Press,
};

use super::{
    bands::BandEncoder,
    device::budget,
    device_plan,
    device_rows::{DeviceSamples, FETCH},
    row_len, store_planes,
};
use crate::{
    device::{DeviceReport, Mode},
    error::{Error, ErrorKind},
};

impl BandEncoder {
    /// Makes overview rows of `samples`, whose first row is `first_row` of the image. `None` where the GPU cannot make
    /// them and the CPU may.
    pub(super) fn shrink_on_device(
        &self,
        gpu: &Arc<Gpu>,
        rows: Range<u32>,
        first_row: u32,
        samples: &DeviceSamples<'_>,
    ) -> Result<Option<Vec<u8>>, Error> {
        match self.try_on_device(gpu, rows, first_row, samples) {
            Ok(made) => Ok(Some(made)),
            Err(error) => match error.kind() {
                ErrorKind::Device(_) if self.options.device.mode == Some(Mode::Auto) => {
                    self.note(format!("overviews are made by the CPU: {error}"));
                    Ok(None)
                }
                _ => Err(error),
            },
        }
    }

    fn try_on_device(
        &self,
        gpu: &Arc<Gpu>,
        rows: Range<u32>,
        first_row: u32,
        samples: &DeviceSamples<'_>,
    ) -> Result<Vec<u8>, Error> {
        let Some(shrinks) = &self.shrinks else { return Ok(Vec::new()) };
        let needs = |rows: &Range<u32>| shrinks.needs(rows.start).start..shrinks.needs(rows.end - 1).end;
        let nodata = self.nodata.as_deref();
        let levels = [Some(shrinks.clone())];
        let mut plan = device_plan::encode_plan(&self.plan, self.shape, &self.options, &levels, nodata, Press::Host)?;
        plan.levels.truncate(2);
        plan.statistics = None;
        let slots = Slots { image: plan.planes.max(1), mask: 1 };
        // As many rows at a time as fit; half as many until they do.
        let row = row_len(&self.plan, 0).max(1);
        let wanted = (FETCH / row).clamp(1, u32::MAX.into()) as u32;
        let budget = budget(gpu, &self.options)?;
        let mut at_once = rows.end - rows.start;
        loop {
            let chunks = chunks(&rows, at_once);
            let capacity = chunks.map(|chunk| needs(&chunk).len() as u32).max().unwrap_or(1);
            for (level, capacity) in plan.levels.iter_mut().zip([capacity, at_once]) {
                level.capacity = capacity;
            }
            let fits = plan.device_bytes(gpu, slots, false)? <= budget;
            if at_once == 1 || (capacity <= wanted && fits) {
                break;
            }
            at_once = at_once.div_ceil(2);
        }
        let encoder = Encoder::new(gpu, plan, slots, false).map_err(|error| error.during("taking device memory"))?;
        let row_lens = store_planes(&self.plan, 1);
        let mut planes: Vec<Vec<u8>> =
            row_lens.iter().map(|row_len| Vec::with_capacity(row_len * rows.len())).collect();
        for chunk in chunks(&rows, at_once) {
            let needs = needs(&chunk);
            samples.take_into(&encoder, needs.start - first_row, &needs)?;
            encoder.shrink(0, chunk.clone()).map_err(|error| error.during("making overviews"))?;
            let made = encoder.rows(1, chunk).map_err(|error| error.during("bringing overviews to the host"))?;
            planes.iter_mut().zip(made).for_each(|(plane, made)| plane.extend(made));
        }
        self.add_report(&DeviceReport { counters: encoder.counters(), ..DeviceReport::default() });
        Ok(planes.concat())
    }
}

fn chunks(rows: &Range<u32>, at_once: u32) -> impl Iterator<Item = Range<u32>> {
    let end = rows.end;
    rows.clone().step_by(at_once.max(1) as usize).map(move |start| start..start.saturating_add(at_once).min(end))
}
