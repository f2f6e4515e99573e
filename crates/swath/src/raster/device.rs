//! Decoded samples on a GPU.

use std::sync::Arc;

use swath_cuda::{DeviceBuffer, Event, Gpu, dlpack};
use swath_tiff::{SampleFormat, SampleType};

use crate::{
    device::DeviceReport,
    error::Error,
    raster::{Interleave, Raster},
    state::spare::SampleBuffer,
};

/// Decoded samples on a GPU, in native byte order and without gaps. The read that made them is done.
#[derive(Debug)]
pub struct DeviceRaster {
    pub(crate) gpu: Arc<Gpu>,
    pub(crate) buffer: DeviceBuffer,
    pub(crate) ready: Event,
    pub(crate) sample: SampleType,
    pub(crate) width: u32,
    pub(crate) height: u32,
    pub(crate) bands: u32,
    pub(crate) interleave: Interleave,
    pub(crate) report: DeviceReport,
}

/// The CUDA array interface, version 3: the values of `__cuda_array_interface__`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CudaArray {
    /// Lengths of the axes.
    pub shape: [usize; 3],
    /// Bytes from element to element along each.
    pub strides: [usize; 3],
    /// NumPy's name of the sample type, as in `<f4`.
    pub typestr: String,
    /// Address on the device.
    pub address: u64,
}

impl DeviceRaster {
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

    /// Bytes from element to element along each axis.
    pub fn strides(&self) -> [usize; 3] {
        let [_, second, third] = self.shape();
        let size = self.sample.size();
        [second * third * size, third * size, size]
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.buffer.len()
    }

    /// Whether it has no samples.
    pub fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// The GPU it is on.
    pub fn gpu(&self) -> &Arc<Gpu> {
        &self.gpu
    }

    /// The samples on the device.
    pub fn buffer(&self) -> &DeviceBuffer {
        &self.buffer
    }

    /// A `CUevent` after the read, alive as long as the raster, for interfaces that take an event. The read is complete when
    /// the raster exists, so no caller has to wait for it.
    pub fn event(&self) -> *mut std::ffi::c_void {
        self.ready.raw()
    }

    /// The report of the read.
    pub fn report(&self) -> &DeviceReport {
        &self.report
    }

    /// The samples as the CUDA array interface describes them. The raster has to outlive their use. No stream has to be waited
    /// for: the read is done.
    ///
    /// # Errors
    /// When samples are pairs of integers or of half floats, which the interface has no name for.
    pub fn cuda_array(&self) -> Result<CudaArray, Error> {
        if self.sample == SampleType::CF16 {
            return Err(Error::usage("no array library has a type for complex_float16: read the samples to the host"));
        }
        let kind = match dlpack_type(self.sample)?.code {
            0 => 'i',
            1 => 'u',
            2 => 'f',
            _ => 'c',
        };
        let size = self.sample.size();
        let order = if size == 1 { '|' } else { '<' };
        Ok(CudaArray {
            shape: self.shape(),
            strides: self.strides(),
            typestr: format!("{order}{kind}{size}"),
            address: self.buffer.export(),
        })
    }

    /// The samples as a DLPack tensor (capsule `dltensor`), which keeps them alive until its deleter is called.
    ///
    /// # Errors
    /// When samples are pairs of integers, which DLPack does not know.
    pub fn dlpack(&self) -> Result<*mut dlpack::ManagedTensor, Error> {
        let shape = self.shape().map(|len| len as i64);
        Ok(dlpack::export(&self.buffer, &shape, dlpack_type(self.sample)?, self.gpu.facts().ordinal))
    }

    /// The samples as a tensor of DLPack 1.0 (capsule `dltensor_versioned`).
    ///
    /// # Errors
    /// As [`DeviceRaster::dlpack`].
    pub fn dlpack_versioned(&self) -> Result<*mut dlpack::VersionedTensor, Error> {
        let shape = self.shape().map(|len| len as i64);
        Ok(dlpack::export_versioned(&self.buffer, &shape, dlpack_type(self.sample)?, self.gpu.facts().ordinal))
    }

    /// A copy in host memory, made by one transfer.
    ///
    /// # Errors
    /// When there is no memory, or the copy fails.
    pub fn to_host(&self) -> Result<Raster, Error> {
        let mut buffer = SampleBuffer::new(self.len()).ok_or_else(|| Error::no_memory(self.len()))?;
        let copied = swath_cuda::transfer::to_host(&self.gpu, &self.buffer, buffer.bytes_mut())?;
        let mut report = self.report.clone();
        report.add(&DeviceReport { counters: copied, ..DeviceReport::default() });
        Ok(Raster {
            buffer,
            sample: self.sample,
            width: self.width,
            height: self.height,
            bands: self.bands,
            interleave: self.interleave,
            report: Some(Box::new(report)),
        })
    }
}

pub(crate) fn dlpack_type(sample: SampleType) -> Result<dlpack::DataType, Error> {
    let code = match sample.format() {
        SampleFormat::Int => 0,
        SampleFormat::Float => 2,
        SampleFormat::ComplexFloat => 5,
        SampleFormat::ComplexInt => {
            return Err(Error::usage(format!(
                "no array library has a type for {sample}: read the samples to the host"
            )));
        }
        _ => 1,
    };
    Ok(dlpack::DataType { code, bits: (sample.size() * 8) as u8, lanes: 1 })
}
