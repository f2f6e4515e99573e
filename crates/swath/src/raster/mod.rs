//! Decoded samples.

pub(crate) mod device;
pub(crate) mod upright;

use swath_tiff::SampleType;

use crate::{
    device::DeviceReport,
    error::Error,
    sample::{self, Sample},
    state::spare::SampleBuffer,
};

/// The order of a raster's bands in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Interleave {
    /// Bands × rows × columns.
    #[default]
    Band,
    /// Rows × columns × bands.
    Pixel,
}

impl Interleave {
    /// Lengths of the axes in memory order.
    fn shape(self, bands: u32, height: u32, width: u32) -> [usize; 3] {
        let [bands, height, width] = [bands, height, width].map(|len| len as usize);
        match self {
            Self::Band => [bands, height, width],
            Self::Pixel => [height, width, bands],
        }
    }
}

/// Decoded samples in native byte order.
#[derive(Debug)]
pub struct Raster {
    pub(crate) buffer: SampleBuffer,
    pub(crate) sample: SampleType,
    pub(crate) width: u32,
    pub(crate) height: u32,
    pub(crate) bands: u32,
    pub(crate) interleave: Interleave,
    pub(crate) report: Option<Box<DeviceReport>>,
}

impl Raster {
    /// The GPU's report of the read; `None` if only the CPU was used.
    pub fn report(&self) -> Option<&DeviceReport> {
        self.report.as_deref()
    }

    /// Columns.
    pub fn width(&self) -> u32 {
        self.width
    }

    /// Rows.
    pub fn height(&self) -> u32 {
        self.height
    }

    /// Bands.
    pub fn bands(&self) -> u32 {
        self.bands
    }

    /// Type of a sample.
    pub fn sample(&self) -> SampleType {
        self.sample
    }

    /// The order of bands in memory.
    pub fn interleave(&self) -> Interleave {
        self.interleave
    }

    /// Lengths of the axes in memory order.
    pub fn shape(&self) -> [usize; 3] {
        self.interleave.shape(self.bands, self.height, self.width)
    }

    /// All samples as bytes.
    pub fn bytes(&self) -> &[u8] {
        self.buffer.bytes()
    }

    /// All samples as bytes.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.buffer.bytes_mut()
    }

    /// All samples as numbers, without a copy: `raster.samples::<f32>()`.
    ///
    /// # Errors
    /// When the samples are of another type than `T`; the message names theirs. Nothing is converted:
    /// [`ConvertOptions::with_sample`](crate::ConvertOptions::with_sample) does that, or the program itself.
    pub fn samples<T: Sample>(&self) -> Result<&[T], Error> {
        sample::view(self.bytes(), self.sample)
    }

    /// A copy of all samples, in the order of [`shape`](Self::shape).
    ///
    /// ```
    /// # use swath::{Dataset, Error, ReadOptions};
    /// # fn mean(dataset: &Dataset) -> Result<f32, Error> {
    /// let heights: Vec<f32> = dataset.read(&ReadOptions::default())?.to_vec()?;
    /// Ok(heights.iter().sum::<f32>() / heights.len() as f32)
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`samples`](Self::samples), and when there is no memory.
    pub fn to_vec<T: Sample>(&self) -> Result<Vec<T>, Error> {
        let samples = self.samples()?;
        let mut copy = Vec::new();
        copy.try_reserve_exact(samples.len()).map_err(|_| Error::no_memory(self.bytes().len()))?;
        copy.extend_from_slice(samples);
        Ok(copy)
    }

    /// A copy of all samples as an array: (bands, rows, columns), or (rows, columns, bands) where the read asked for
    /// [`Interleave::Pixel`].
    ///
    /// # Errors
    /// As [`to_vec`](Self::to_vec).
    #[cfg(feature = "ndarray")]
    pub fn to_ndarray<T: Sample>(&self) -> Result<ndarray::Array3<T>, Error> {
        ndarray::Array3::from_shape_vec(self.shape(), self.to_vec()?)
            .map_err(|error| Error::internal(format!("samples of {:?} do not form an array: {error}", self.shape())))
    }
}
