//! Slots for tiles that nvCOMP encodes: each tile is one chunk, described by nvCOMP's arrays.

use std::sync::Arc;

use crate::{
    counters::Meter,
    driver::{
        launch::{
            nvcomp::{CompressLaunch, nvcomp_compress, nvcomp_compress_plan},
            pack::launch_words,
            slice::ALIGN,
            slice::BufferSlice,
        },
        libraries::nvcomp::NvcompFormat,
        memory::{pool::DeviceBuffer, streams::Streams},
    },
    encode::{path::EncodePath, tile_format::encoded_stride},
    error::DeviceError,
    gpu::Gpu,
};

/// The memory that nvCOMP needs for a batch of tiles.
#[derive(Debug)]
pub(crate) struct NvcompSlots {
    gpu: Arc<Gpu>,
    codec: NvcompFormat,
    slots: usize,
    longest: usize,
    temp_len: usize,
    /// Longest stream that fits into the room reserved in the file.
    most: usize,
    stride: usize,
    encoded: DeviceBuffer,
    tables: DeviceBuffer,
    temp: DeviceBuffer,
}

/// Bytes of the arrays for each tile: address, length, address, length, status.
const ENTRY: usize = 4 * 8 + 4;

fn codec_of(path: EncodePath) -> Result<NvcompFormat, DeviceError> {
    match path {
        EncodePath::NvcompDeflate(algorithm) => Ok(NvcompFormat::Deflate { algorithm: algorithm as u8 }),
        EncodePath::NvcompZstd => Ok(NvcompFormat::Zstd),
        _ => Err(DeviceError::Internal("nvCOMP compresses Deflate and Zstd".into())),
    }
}

impl NvcompSlots {
    /// Returns the lengths of its buffers (streams, arrays, temporary memory) and the bytes from stream to stream.
    fn lens(
        gpu: &Arc<Gpu>,
        path: EncodePath,
        slots: usize,
        longest: usize,
    ) -> Result<([usize; 3], usize), DeviceError> {
        let streams = Streams::new(gpu.memory.clone(), Arc::new(Meter::default()), 1)?;
        let total = slots.saturating_mul(longest);
        let codec = codec_of(path)?;
        let plan = nvcomp_compress_plan(gpu.nvcomp()?, &streams, 0, codec, slots, longest, total)?;
        let stride = plan.max_output_len.next_multiple_of(ALIGN);
        Ok(([slots.saturating_mul(stride), slots * ENTRY, plan.temp_len.max(1)], stride))
    }

    pub(crate) fn buffers(
        gpu: &Arc<Gpu>,
        path: EncodePath,
        slots: usize,
        longest: usize,
    ) -> Result<[usize; 3], DeviceError> {
        Ok(Self::lens(gpu, path, slots, longest)?.0)
    }

    /// Allocates the memory, and fills in the addresses of the streams and of the tiles in `tiles`, which lie
    /// `tile_stride` bytes apart.
    pub(crate) fn new(
        gpu: &Arc<Gpu>,
        streams: &Streams,
        path: EncodePath,
        slots: usize,
        longest: usize,
        tiles: (&DeviceBuffer, usize),
    ) -> Result<Self, DeviceError> {
        let ([encoded, tables, temp_len], stride) = Self::lens(gpu, path, slots, longest)?;
        let meter = streams.meter();
        let buffer = |len: usize| gpu.memory.buffer(len, meter);
        let (encoded, tables, temp) = (buffer(encoded)?, buffer(tables)?, buffer(temp_len)?);
        let addresses = |buffer: &DeviceBuffer, stride: usize| -> Vec<u64> {
            (0..slots).map(|slot| buffer.address() + (slot * stride) as u64).collect()
        };
        let inputs = addresses(tiles.0, tiles.1);
        let outputs = addresses(&encoded, stride);
        streams.upload_bytes(0, bytemuck::cast_slice(&inputs), &tables, 0)?;
        streams.upload_bytes(0, bytemuck::cast_slice(&outputs), &tables, slots * 16)?;
        let codec = codec_of(path)?;
        let most = encoded_stride(path, longest, 0);
        Ok(Self { gpu: gpu.clone(), codec, slots, longest, temp_len, most, stride, encoded, tables, temp })
    }

    pub(crate) fn encoded(&self) -> &DeviceBuffer {
        &self.encoded
    }

    pub(crate) fn stride(&self) -> usize {
        self.stride
    }

    /// Encodes the first `count` tiles. `lens` has their lengths; the lengths of their streams go to `sizes`.
    pub(crate) fn run(
        &self,
        streams: &Streams,
        stream: usize,
        tiles: &DeviceBuffer,
        lens: BufferSlice<'_>,
        sizes: BufferSlice<'_>,
        count: u32,
    ) -> Result<(), DeviceError> {
        let array = |number: usize, size: usize| BufferSlice {
            buffer: &self.tables,
            offset: number * 8 * self.slots,
            len: size * self.slots,
        };
        let (input_lens, output_lens, statuses) = (array(1, 8), array(3, 8), array(4, 4));
        launch_words(streams, stream, lens, input_lens, None, count)?;
        let batch = CompressLaunch {
            inputs: array(0, 8),
            input_lens,
            outputs: array(2, 8),
            output_lens,
            statuses,
            source: tiles,
            compressed: &self.encoded,
            temp: &self.temp,
            temp_len: self.temp_len,
        };
        let nvcomp = self.gpu.nvcomp()?;
        nvcomp_compress(nvcomp, streams, stream, self.codec, count as usize, self.longest, &batch)?;
        launch_words(streams, stream, sizes, output_lens, Some((statuses, self.most)), count)
    }
}
