//! Rows of a raster in the memory of a GPU.

use std::{ops::Range, sync::Arc};

use swath_cuda::{DeviceError, DeviceRows, ForeignArray, Gpu, encode::Encoder};
use swath_tiff::SampleType;

use crate::{
    device::DeviceOptions,
    error::Error,
    raster::{
        Interleave,
        device::{DeviceRaster, dlpack_type},
    },
    write::{input::Rows, options::Shape},
};

/// Bytes of rows that are brought to the host at a time, where the CPU writes what is on a device.
pub(in crate::write) const FETCH: u64 = 32 << 20;

/// Rows of a raster in the memory of a GPU: samples in native byte order, and their addresses.
#[derive(Debug, Clone)]
pub struct DeviceSamples<'a> {
    pub(in crate::write) rows: DeviceRows,
    count: u32,
    width: u32,
    bands: u16,
    sample: SampleType,
    pub(in crate::write) mask: Option<DeviceRows>,
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

    /// Rows of another library's array, such as CuPy's or PyTorch's, passed by DLPack or the CUDA array interface.
    ///
    /// # Errors
    /// When there are more rows, columns or bands than a file can have, or its samples are of another type.
    pub fn of_array(array: ForeignArray, sample: SampleType) -> Result<Self, Error> {
        let ForeignArray { rows, shape, sample_len, dtype, ordinal, .. } = array;
        if sample_len != sample.size() {
            return Err(Error::usage(format!("samples of {sample_len} bytes are not {sample}")));
        }
        if let Some(dtype) = dtype
            && dlpack_type(sample).ok() != Some(dtype)
        {
            return Err(Error::usage(format!("the tensor's samples ({dtype:?}) are not {sample}")));
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
    pub(in crate::write) fn rows_from(&self, first: u32, count: u32) -> Self {
        let mask = self.mask.as_ref().map(|mask| mask.at_row(first));
        Self { rows: self.rows.at_row(first), count, mask, ..self.clone() }
    }

    /// Rows that are there.
    pub(in crate::write) fn count(&self) -> u32 {
        self.count
    }

    /// Whether they are rows of a raster like this, on the GPU that writes if one does.
    pub(in crate::write) fn check(&self, shape: Shape, masked: bool, gpu: Option<&Arc<Gpu>>) -> Result<(), Error> {
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
            false if masked => Err(Error::usage("the file has a mask, but these rows have none")),
            true if !masked => Err(Error::usage("these rows have a mask, but the file has none")),
            _ => Ok(()),
        }
    }

    /// Hands rows from `from` on to a device's encoder, as these rows of the image.
    pub(in crate::write) fn take_into(
        &self,
        encoder: &Encoder,
        from: u32,
        rows: &Range<u32>,
    ) -> Result<(), DeviceError> {
        let take = || {
            encoder.take(&self.rows, from, rows.start, rows.len() as u32)?;
            self.mask.as_ref().map_or(Ok(()), |mask| encoder.take_mask(mask, from, rows.start, rows.len() as u32))
        };
        take().map_err(|error| error.during("taking rows to the device"))
    }

    /// Brings rows to the host.
    pub(in crate::write) fn fetch(&self, device: &DeviceOptions, rows: Range<u32>) -> Result<Fetched, Error> {
        let gpu = self.gpu.cloned().map_or_else(|| device.open(), Ok)?;
        let count = rows.end.saturating_sub(rows.start);
        let fetch = |from: &DeviceRows, bands: u16, size: usize| {
            swath_cuda::transfer::rows_to_host(&gpu, from, rows.start, count, (self.width, bands, size))
                .map_err(|error| error.during("bringing rows to the host"))
        };
        Ok(Fetched {
            samples: fetch(&self.rows, self.bands, self.sample.size())?,
            mask: self.mask.as_ref().map(|mask| fetch(mask, 1, 1)).transpose()?,
        })
    }
}

/// Rows that were brought to the host: band after band.
pub(in crate::write) struct Fetched {
    samples: Vec<u8>,
    mask: Option<Vec<u8>>,
}

impl Fetched {
    pub(in crate::write) fn rows(&self) -> Rows<'_> {
        let rows = Rows::from_bytes(&self.samples, Interleave::Band);
        self.mask.as_ref().map_or(rows, |mask| rows.with_mask(mask))
    }
}
