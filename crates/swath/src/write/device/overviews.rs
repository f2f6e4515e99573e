//! Makes overview rows on a GPU from rows that are there, so that only the overview rows are brought to the host.

use std::{ops::Range, sync::Arc};

use swath_cuda::{
    Counters, Gpu,
    encode::{EncodePath, Encoder, Slots},
};

use super::{
    plan as device_plan,
    samples::{DeviceSamples, FETCH},
};
use crate::{
    error::Error,
    write::{
        levels::Levels,
        options::{Shape, WriteOptions},
        plan::Plan,
        shrinks::Shrinks,
    },
};

/// The rows that a GPU makes overview rows of.
pub(in crate::write) struct OverviewSource<'a> {
    pub plan: &'a Plan,
    pub shape: Shape,
    pub options: &'a WriteOptions,
    pub nodata: Option<&'a [u8]>,
    pub shrinks: &'a Shrinks,
    pub samples: &'a DeviceSamples<'a>,
    /// Row of the image that is the first of `samples`.
    pub first_row: u32,
}

/// Makes rows of the first overview. Returns them plane after plane, and what the GPU did.
pub(in crate::write) fn make_rows(
    gpu: &Arc<Gpu>,
    source: &OverviewSource<'_>,
    rows: Range<u32>,
) -> Result<(Vec<u8>, Counters), Error> {
    let OverviewSource { plan, shape, options, nodata, shrinks, samples, first_row } = *source;
    let main = &plan.levels.main;
    let row_lens = plan.levels.at(1)?.plane_row_lens();
    let needs = |rows: &Range<u32>| shrinks.needs(rows.start).start..shrinks.needs(rows.end - 1).end;
    let levels = Levels { main: Some(shrinks.clone()), overviews: Vec::new() };
    let mut plan = device_plan::encode_plan(plan, shape, options, &levels, nodata, EncodePath::Host)?;
    plan.levels.truncate(2);
    plan.statistics = None;
    let slots = Slots { image: plan.planes.max(1), mask: 1 };
    // As many rows at a time as fit; half as many until they do.
    let row = (main.row_len() as u64).max(1);
    let wanted = (FETCH / row).clamp(1, u32::MAX.into()) as u32;
    let budget = options.device.memory_budget(gpu)?;
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
    let mut planes: Vec<Vec<u8>> = row_lens.iter().map(|row_len| Vec::with_capacity(row_len * rows.len())).collect();
    for chunk in chunks(&rows, at_once) {
        let needs = needs(&chunk);
        samples.take_into(&encoder, needs.start - first_row, &needs)?;
        encoder.shrink(0, chunk.clone()).map_err(|error| error.during("making overviews"))?;
        let made = encoder.rows(1, chunk.clone()).map_err(|error| error.during("bringing overviews to the host"))?;
        let lens = row_lens.iter().map(|row_len| row_len * chunk.len());
        if !lens.eq(made.iter().map(Vec::len)) {
            return Err(Error::internal("the GPU returned other rows of an overview than were requested"));
        }
        planes.iter_mut().zip(made).for_each(|(plane, made)| plane.extend(made));
    }
    Ok((planes.concat(), encoder.counters()))
}

fn chunks(rows: &Range<u32>, at_once: u32) -> impl Iterator<Item = Range<u32>> {
    let end = rows.end;
    rows.clone().step_by(at_once.max(1) as usize).map(move |start| start..start.saturating_add(at_once).min(end))
}
