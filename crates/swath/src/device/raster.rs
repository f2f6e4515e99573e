//! Decoded samples on a GPU.

use std::sync::Arc;

use swath_codec::memory::Buffer;
use swath_cuda::{Counters, DeviceBuffer, Gpu, Mark, decode::KernelTimes, dlpack};
use swath_tiff::{SampleFormat, SampleType};

use crate::{
    error::Error,
    raster::{Interleave, Raster},
};

/// What a read or a write by way of a GPU did and what it cost.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct DeviceReport {
    /// The GPU; empty where none was used.
    pub device: String,
    /// What was counted.
    pub counters: Counters,
    /// Tiles that were decoded or compressed by the GPU.
    pub device_tiles: u64,
    /// Tiles that were decoded or compressed by the CPU.
    pub host_tiles: u64,
    /// Pieces of tiles that were decoded by the GPU side by side, of tiles that have several.
    pub pieces: u64,
    /// Bands of tiles that a read was cut into to fit in memory, and batches that a write was.
    pub bands: u32,
    /// How bytes of the file got to the device: `pinned copies`, `cuFile, GPUDirect`, `cuFile, compatibility mode`, or
    /// `host memory` where a library of NVIDIA reads them there itself.
    pub storage: &'static str,
    /// What was done otherwise than asked, and why: one line each.
    pub notices: Vec<String>,
    /// What the kernels took, where that was asked for.
    pub kernels: Option<KernelTimes>,
}

impl DeviceReport {
    /// Adds what another read did.
    pub fn add(&mut self, other: &Self) {
        let (sum, more) = (&mut self.counters, &other.counters);
        sum.buffers += more.buffers;
        sum.allocations += more.allocations;
        sum.allocated_bytes += more.allocated_bytes;
        sum.pinned_allocations += more.pinned_allocations;
        sum.uploads += more.uploads;
        sum.uploaded_bytes += more.uploaded_bytes;
        sum.downloads += more.downloads;
        sum.downloaded_bytes += more.downloaded_bytes;
        sum.launches += more.launches;
        sum.synchronisations += more.synchronisations;
        sum.library_waits += more.library_waits;
        sum.uploads_before_first_wait += more.uploads_before_first_wait;
        sum.peak_bytes = sum.peak_bytes.max(more.peak_bytes);
        sum.storage_reads += more.storage_reads;
        sum.storage_waits += more.storage_waits;
        sum.storage_bytes += more.storage_bytes;
        if let Some(more) = &other.kernels {
            let times = self.kernels.get_or_insert_default();
            times.decode_ms += more.decode_ms;
            times.place_ms += more.place_ms;
        }
        if self.device.is_empty() {
            self.device.clone_from(&other.device);
        }
        if self.storage.is_empty() {
            self.storage = other.storage;
        }
        self.device_tiles += other.device_tiles;
        self.host_tiles += other.host_tiles;
        self.pieces += other.pieces;
        self.bands += other.bands;
        for notice in &other.notices {
            if !self.notices.contains(notice) {
                self.notices.push(notice.clone());
            }
        }
    }
}

/// Decoded samples on a GPU, in native byte order and without gaps. The read that made them is done.
#[derive(Debug)]
pub struct DeviceRaster {
    pub(super) gpu: Arc<Gpu>,
    pub(super) buffer: DeviceBuffer,
    pub(super) ready: Mark,
    pub(super) sample: SampleType,
    pub(super) width: u32,
    pub(super) height: u32,
    pub(super) bands: u32,
    pub(super) interleave: Interleave,
    pub(super) report: DeviceReport,
}

/// The CUDA array interface, version 3: what `__cuda_array_interface__` says.
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

    /// How bands lie in memory.
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

    /// Bytes from element to element along each axis.
    pub fn strides(&self) -> [usize; 3] {
        let [_, second, third] = self.shape();
        let size = self.sample.size();
        [second * third * size, third * size, size]
    }

    /// Bytes of it.
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

    /// A `CUevent` after the read, alive as long as the raster. The read is done when the raster is there, so nobody has to wait
    /// for it; it is for those who want to be handed one.
    pub fn event(&self) -> *mut std::ffi::c_void {
        self.ready.raw()
    }

    /// What the read did and what it cost.
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
        let mut buffer = Buffer::zeroed(self.len())
            .ok_or_else(|| Error::usage(format!("there is no memory for {} bytes", self.len())))?;
        let copied = swath_cuda::decode::to_host(&self.gpu, &self.buffer, buffer.bytes_mut())?;
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
