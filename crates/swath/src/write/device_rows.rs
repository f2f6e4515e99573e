//! Rows on a device on their way into a file, and what becomes of them where the device fails.

use std::sync::Arc;

use swath_codec::pre::Arrangement;
use swath_cuda::{DeviceRows, ForeignArray, Gpu};
use swath_tiff::SampleType;

use super::{
    Rows, Writer,
    device::{DeviceSide, Incoming},
    options::Shape,
    plan::LevelPlan,
    rows::RowStore,
    step::Pushed,
};
use crate::{
    device::{DeviceRaster, Mode, dlpack_type},
    error::{Error, ErrorKind},
    raster::Interleave,
};

/// Bytes of rows that are brought to the host at a time, where the CPU writes what is on a device.
const FETCH: u64 = 32 << 20;

/// Rows of a raster in the memory of a GPU: samples in native byte order, and where they lie.
#[derive(Debug, Clone)]
pub struct DeviceSamples<'a> {
    rows: DeviceRows,
    count: u32,
    width: u32,
    bands: u16,
    sample: SampleType,
    mask: Option<DeviceRows>,
    gpu: Option<&'a Arc<Gpu>>,
    ordinal: Option<i32>,
}

impl<'a> DeviceSamples<'a> {
    /// The rows of a raster that was read to a GPU.
    ///
    /// # Errors
    /// When it has no samples.
    pub fn of_raster(raster: &'a DeviceRaster) -> Result<Self, Error> {
        let size = raster.sample().size();
        let (width, bands) = (raster.width() as usize, raster.bands() as usize);
        let steps = match raster.interleave() {
            Interleave::Band => [width * size, size, width * size * raster.height() as usize],
            Interleave::Pixel => [width * size * bands, size * bands, size],
        };
        let counts = [raster.height(), raster.width(), raster.bands()];
        Ok(Self {
            rows: DeviceRows::of_buffer(raster.buffer(), steps, counts, size)?,
            count: raster.height(),
            width: raster.width(),
            bands: u16::try_from(bands).map_err(|_| Error::usage("there are more bands than a file can have"))?,
            sample: raster.sample(),
            mask: None,
            gpu: Some(raster.gpu()),
            ordinal: None,
        })
    }

    /// Rows of someone else's array, one of CuPy or PyTorch say, handed in by DLPack or the CUDA array interface.
    ///
    /// # Errors
    /// When there are more rows, columns or bands than a file can have, or its samples are of another type.
    pub fn of_array(array: ForeignArray, sample: SampleType) -> Result<Self, Error> {
        let ForeignArray { rows, shape, sample_len, dtype, ordinal, .. } = array;
        if sample_len != sample.size() {
            return Err(Error::usage(format!("samples of {sample_len} bytes are no {sample}")));
        }
        if let Some(dtype) = dtype
            && dlpack_type(sample).ok() != Some(dtype)
        {
            return Err(Error::usage(format!("the tensor's samples ({dtype:?}) are no {sample}")));
        }
        let too_large = || Error::usage(format!("an array of {shape:?} is larger than a file can be"));
        let [count, columns, bands] = shape;
        Ok(Self {
            rows,
            count: u32::try_from(count).map_err(|_| too_large())?,
            width: u32::try_from(columns).map_err(|_| too_large())?,
            bands: u16::try_from(bands).map_err(|_| too_large())?,
            sample,
            mask: None,
            gpu: None,
            ordinal,
        })
    }

    /// With the mask of these rows, one byte a pixel, 0 where there is no data.
    #[must_use]
    pub fn with_mask(mut self, rows: DeviceRows) -> Self {
        self.mask = Some(rows);
        self
    }

    /// With the mask of these rows in a raster of one band of bytes.
    ///
    /// # Errors
    /// When it is of another kind or size.
    pub fn with_mask_raster(mut self, mask: &'a DeviceRaster) -> Result<Self, Error> {
        let found = (mask.width(), mask.height(), mask.bands(), mask.sample());
        if found != (self.width, self.count, 1, SampleType::U8) {
            return Err(Error::usage("a mask has one byte for each pixel"));
        }
        self.mask = Some(Self::of_raster(mask)?.rows);
        Ok(self)
    }
}

impl Writer {
    /// Whether rows on a device are rows that are missing.
    pub(super) fn check_device(&self, samples: &DeviceSamples<'_>) -> Result<(), Error> {
        if self.failed {
            return Err(Error::usage("nothing can be pushed after an error"));
        }
        let Shape { width, height, bands, sample } = self.shape;
        if (samples.width, samples.bands, samples.sample) != (width, bands, sample) {
            return Err(Error::usage(format!(
                "an array of {} bands, {} columns and {} samples where {bands} bands, {width} columns and {sample} belong",
                samples.bands, samples.width, samples.sample
            )));
        }
        if let Some(device) = &self.device {
            let gpu = device.encoder.gpu();
            let other = samples.gpu.is_some_and(|other| !Arc::ptr_eq(gpu, other))
                || samples.ordinal.is_some_and(|ordinal| ordinal != gpu.facts().ordinal);
            if other {
                return Err(Error::usage("the samples are on another GPU than the one that writes"));
            }
        }
        let left = height - self.rows();
        if samples.count > left {
            let count = samples.count;
            return Err(Error::usage(format!("{count} rows were pushed where {left} of {height} are missing")));
        }
        let masked = self.plan.levels.first().is_some_and(|level| level.mask.is_some());
        if masked != samples.mask.is_some() {
            let detail = if masked {
                "the file has a mask, but the rows come without"
            } else {
                "rows come with a mask that the file does not have"
            };
            return Err(Error::usage(detail));
        }
        Ok(())
    }

    /// Takes rows that are on a device.
    pub(super) fn take_device(&mut self, samples: &DeviceSamples<'_>) -> Result<(), Error> {
        let mut taken = 0;
        if let Some(mut device) = self.device.take() {
            let incoming = Incoming::Device(&samples.rows, samples.mask.as_ref());
            let result = device.push(incoming, samples.count, &mut taken);
            self.settle_device(device, result)?;
        }
        // What the device did not take, the CPU does, some at a time.
        let gpu = samples.gpu.cloned().map_or_else(|| self.options.device.open(), Ok)?;
        let row = (self.plan.levels.first().map_or(1, LevelPlan::row_len) as u64).max(1);
        let at_once = (FETCH / row).clamp(1, u32::MAX.into()) as u32;
        while taken < samples.count {
            let count = at_once.min(samples.count - taken);
            let fetch = |rows: &DeviceRows, bands: u16, size: usize| {
                swath_cuda::encode::fetch(&gpu, rows, taken, count, (self.shape.width, bands, size))
                    .map_err(|error| error.during("bringing rows to the host"))
            };
            let bytes = fetch(&samples.rows, samples.bands, samples.sample.size())?;
            let mask = samples.mask.as_ref().map(|mask| fetch(mask, 1, 1)).transpose()?;
            let rows = Rows::bands(&bytes);
            let rows = mask.as_ref().map_or(rows, |mask| rows.with_mask(mask));
            let pushed = self.check(&rows)?;
            self.copy_in(&pushed)?;
            taken += count;
        }
        Ok(())
    }

    /// Takes rows of the host to the device.
    pub(super) fn push_by_device(&mut self, pushed: &Pushed<'_>) -> Result<(), Error> {
        let Some(mut device) = self.device.take() else { return Ok(()) };
        let size = self.shape.sample.size() * self.shape.width as usize;
        let bands = usize::from(self.shape.bands);
        let mut row_lens = match pushed.arrangement {
            Arrangement::Planes => vec![size; bands],
            Arrangement::Pixels => vec![size * bands],
        };
        row_lens.resize(pushed.planes.len().max(row_lens.len()), self.shape.width as usize);
        let mut taken = 0;
        let result = device.push(Incoming::Host(&pushed.planes, &row_lens), pushed.rows, &mut taken);
        self.settle_device(device, result)?;
        if taken < pushed.rows {
            let planes = pushed.planes.iter().zip(&row_lens);
            let rest = Pushed {
                planes: planes.map(|(plane, len)| plane.get(taken as usize * len..).unwrap_or_default()).collect(),
                arrangement: pushed.arrangement,
                rows: pushed.rows - taken,
            };
            return self.copy_in(&rest);
        }
        Ok(())
    }

    /// Does the rest of what the device does.
    pub(super) fn finish_device(&mut self) -> Result<(), Error> {
        let Some(mut device) = self.device.take() else { return Ok(()) };
        let result = device.finish();
        self.settle_device(device, result)?;
        // Its threads share the sink, which is about to be ours alone.
        if let Some(mut device) = self.device.take() {
            self.report.add(&device.report());
            self.pieces = device.pieces();
            for (level, plan) in self.levels.iter_mut().zip(&self.plan.levels) {
                level.tile_rows = plan.grid.down;
            }
        }
        Ok(())
    }

    /// Goes on with the device, or without it where it failed and that is allowed.
    fn settle_device(&mut self, mut device: Box<DeviceSide>, result: Result<(), Error>) -> Result<(), Error> {
        let Err(failure) = result else {
            self.device = Some(device);
            return Ok(());
        };
        if self.options.device.mode != Some(Mode::Auto) || !matches!(failure.kind(), ErrorKind::Device(_)) {
            return Err(failure);
        }
        let row = device.rows();
        let notice = format!("from row {row} on the CPU writes: {failure}");
        let left = device.step_down(failure)?;
        // As much of the CPU's work at a time as memory allows; at the least, what the rows that are there ask for.
        if let Ok(memory) = super::Memory::fit(&self.plan, &self.options) {
            (self.threads, self.batch) = (memory.threads, memory.batch);
        } else {
            self.threads = 1;
        }
        for (index, (level, left)) in self.levels.iter_mut().zip(left).enumerate() {
            let planes = super::store_planes(&self.plan, index);
            let capacity = super::capacity(&self.plan, index, self.batch);
            let count = left.rows.end - left.rows.start;
            level.store = RowStore::with_rows(planes, capacity, left.rows.start, count, &left.planes)?;
            (level.tile_rows, level.position, level.shrunk) = (left.tile_row, left.position, left.shrunk);
        }
        self.report.add(&device.report());
        self.report.notices.push(notice);
        self.pieces = device.pieces();
        Ok(())
    }
}
