//! Rows on a device on their way into a file, and what becomes of them where the device fails.

use std::{ops::Range, sync::Arc};

use swath_cuda::{DeviceError, DeviceRows, ForeignArray, Gpu, encode::Encoder};
use swath_tiff::SampleType;

use super::{
    Rows, Writer,
    device::{DeviceSide, Incoming},
    options::Shape,
    plan::LevelPlan,
    pushed::Pushed,
    rows::RowStore,
};
use crate::{
    device::{DeviceOptions, DeviceRaster, Mode, dlpack_type},
    error::{Error, ErrorKind},
    raster::Interleave,
};

/// Bytes of rows that are brought to the host at a time, where the CPU writes what is on a device.
pub(super) const FETCH: u64 = 32 << 20;

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

    /// `count` of the rows, from `first` on.
    pub(super) fn rows_from(&self, first: u32, count: u32) -> Self {
        let mask = self.mask.as_ref().map(|mask| mask.at_row(first));
        Self { rows: self.rows.at_row(first), count, mask, ..self.clone() }
    }

    /// Rows that are there.
    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// Whether they are rows of a raster like this, on the GPU that writes if one does.
    pub(super) fn check(&self, shape: Shape, masked: bool, gpu: Option<&Arc<Gpu>>) -> Result<(), Error> {
        let Shape { width, bands, sample, .. } = shape;
        if (self.width, self.bands, self.sample) != (width, bands, sample) {
            return Err(Error::usage(format!(
                "an array of {} bands, {} columns and {} samples where {bands} bands, {width} columns and {sample} belong",
                self.bands, self.width, self.sample
            )));
        }
        let elsewhere = gpu.is_some_and(|gpu| {
            self.gpu.is_some_and(|other| !Arc::ptr_eq(gpu, other))
                || self.ordinal.is_some_and(|ordinal| ordinal != gpu.facts().ordinal)
        });
        if elsewhere {
            return Err(Error::usage("the samples are on another GPU than the one that writes"));
        }
        match self.mask.is_some() {
            false if masked => Err(Error::usage("the file has a mask, but the rows come without")),
            true if !masked => Err(Error::usage("rows come with a mask that the file does not have")),
            _ => Ok(()),
        }
    }

    /// Hands rows from `from` on to a device's encoder, as these rows of the image.
    pub(super) fn take_into(&self, encoder: &Encoder, from: u32, rows: &Range<u32>) -> Result<(), DeviceError> {
        let take = || {
            encoder.take(&self.rows, from, rows.start, rows.len() as u32)?;
            self.mask.as_ref().map_or(Ok(()), |mask| encoder.take_mask(mask, from, rows.start, rows.len() as u32))
        };
        take().map_err(|error| error.during("taking rows to the device"))
    }

    /// Brings rows to the host.
    pub(super) fn fetch(&self, device: &DeviceOptions, rows: Range<u32>) -> Result<Fetched, Error> {
        let gpu = self.gpu.cloned().map_or_else(|| device.open(), Ok)?;
        let count = rows.end.saturating_sub(rows.start);
        let fetch = |from: &DeviceRows, bands: u16, size: usize| {
            swath_cuda::encode::fetch(&gpu, from, rows.start, count, (self.width, bands, size))
                .map_err(|error| error.during("bringing rows to the host"))
        };
        Ok(Fetched {
            samples: fetch(&self.rows, self.bands, self.sample.size())?,
            mask: self.mask.as_ref().map(|mask| fetch(mask, 1, 1)).transpose()?,
        })
    }
}

/// Rows that were brought to the host: band after band.
pub(super) struct Fetched {
    samples: Vec<u8>,
    mask: Option<Vec<u8>>,
}

impl Fetched {
    pub(super) fn rows(&self) -> Rows<'_> {
        let rows = Rows::bands(&self.samples);
        self.mask.as_ref().map_or(rows, |mask| rows.with_mask(mask))
    }
}

impl Writer {
    /// Whether rows on a device are rows that are missing.
    pub(super) fn check_device(&self, samples: &DeviceSamples<'_>) -> Result<(), Error> {
        self.may_push()?;
        let masked = self.plan.levels.first().is_some_and(|level| level.mask.is_some());
        samples.check(self.shape, masked, self.device.as_ref().map(|device| device.encoder.gpu()))?;
        let (height, left) = (self.shape.height, self.shape.height - self.rows());
        if samples.count > left {
            let count = samples.count;
            return Err(Error::usage(format!("{count} rows were pushed where {left} of {height} are missing")));
        }
        Ok(())
    }

    /// Takes some of the rows that are on a device.
    pub(super) fn take_device(&mut self, samples: &DeviceSamples<'_>, rows: Range<u32>) -> Result<(), Error> {
        let mut taken = rows.start;
        if let Some(mut device) = self.device.take() {
            let incoming = Incoming::Device(&samples.rows, samples.mask.as_ref());
            let result = device.push(incoming, rows.end, &mut taken);
            self.settle_device(device, result)?;
        }
        // What the device did not take, the CPU does, some at a time.
        let row = (self.plan.levels.first().map_or(1, LevelPlan::row_len) as u64).max(1);
        let at_once = (FETCH / row).clamp(1, u32::MAX.into()) as u32;
        let masked = samples.mask.is_some();
        while taken < rows.end {
            let until = taken + at_once.min(rows.end - taken);
            let fetched = samples.fetch(&self.options.device, taken..until)?;
            let pushed = Pushed::new(&fetched.rows(), self.shape, masked)?;
            self.copy_in(&pushed)?;
            taken = until;
        }
        Ok(())
    }

    /// Takes rows of the host to the device.
    pub(super) fn push_by_device(&mut self, pushed: &Pushed<'_>) -> Result<(), Error> {
        let Some(mut device) = self.device.take() else { return Ok(()) };
        let row_lens = pushed.row_lens(self.shape);
        let mut taken = 0;
        let result = device.push(Incoming::Host(&pushed.planes, &row_lens), pushed.rows, &mut taken);
        self.settle_device(device, result)?;
        if taken < pushed.rows {
            return self.copy_in(&pushed.part(taken..pushed.rows, self.shape));
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
