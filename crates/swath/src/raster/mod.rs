//! Decoded samples.

pub(crate) mod device;
mod upright;

use swath_raster::memory::Buffer;
use swath_tiff::SampleType;

use crate::{device::DeviceReport, error::Error};

/// The order of a raster's bands in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Interleave {
    /// Bands × rows × columns.
    #[default]
    Band,
    /// Rows × columns × bands.
    Pixel,
}

/// Decoded samples in native byte order.
#[derive(Debug)]
pub struct Raster {
    pub(crate) buffer: Buffer,
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
        let [bands, height, width] = [self.bands, self.height, self.width].map(|len| len as usize);
        match self.interleave {
            Interleave::Band => [bands, height, width],
            Interleave::Pixel => [height, width, bands],
        }
    }

    /// All samples as bytes.
    pub fn bytes(&self) -> &[u8] {
        self.buffer.bytes()
    }

    /// All samples as bytes.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.buffer.bytes_mut()
    }

    /// All samples as numbers of a type of the same size, for instance `raster.samples::<f32>()`. Pairs may be read as
    /// twice as many numbers of half the size.
    ///
    /// # Errors
    /// When `T` has not the size of a sample, or of half a complex one.
    pub fn samples<T: bytemuck::AnyBitPattern>(&self) -> Result<&[T], Error> {
        let size = size_of::<T>();
        if size != self.sample.size() && size != self.sample.word() {
            return Err(Error::usage(format!("samples are {}, which are not numbers of {size} bytes", self.sample)));
        }
        bytemuck::try_cast_slice(self.bytes())
            .map_err(|error| Error::usage(format!("samples cannot be viewed: {error}")))
    }
}
