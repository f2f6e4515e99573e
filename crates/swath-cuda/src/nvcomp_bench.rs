//! Tiles compressed by nvCOMP: each as one chunk, with the tables that it wants.

use std::sync::Arc;

use crate::{
    counters::Meter,
    error::DeviceError,
    ffi::{
        encoding,
        kernels::Part,
        libraries::{self, NvcompCompressBatch},
        memory::DeviceBuffer,
        nvcomp::Compressing,
        streams::Streams,
    },
    gpu::Gpu,
    press::{Press, pressed_stride},
};

/// What nvCOMP needs for a batch of tiles.
#[derive(Debug)]
pub(crate) struct NvcompBench {
    gpu: Arc<Gpu>,
    codec: Compressing,
    slots: usize,
    longest: usize,
    temp_len: usize,
    /// Bytes that a stream may have: what room in the file is kept for.
    most: usize,
    stride: usize,
    pressed: DeviceBuffer,
    tables: DeviceBuffer,
    temp: DeviceBuffer,
}

/// Bytes of the tables for each tile: addresses, lengths, addresses, lengths, a status.
const ENTRY: usize = 4 * 8 + 4;

fn codec_of(press: Press) -> Result<Compressing, DeviceError> {
    match press {
        Press::NvcompDeflate(algorithm) => Ok(Compressing::Deflate { algorithm: algorithm as u8 }),
        Press::NvcompZstd => Ok(Compressing::Zstd),
        _ => Err(DeviceError::Usage("nvCOMP compresses Deflate and Zstd".into())),
    }
}

impl NvcompBench {
    /// Lengths of its buffers: streams, tables, temporary memory; and the bytes from stream to stream.
    fn lens(gpu: &Arc<Gpu>, press: Press, slots: usize, longest: usize) -> Result<([usize; 3], usize), DeviceError> {
        let streams = Streams::new(gpu.memory.clone(), Arc::new(Meter::default()), 1)?;
        let total = slots.saturating_mul(longest);
        let codec = codec_of(press)?;
        let plan = libraries::nvcomp_compress_plan(gpu.nvcomp()?, &streams, 0, codec, slots, longest, total)?;
        let stride = plan.max_output_len.next_multiple_of(libraries::ALIGN);
        Ok(([slots.saturating_mul(stride), slots * ENTRY, plan.temp_len.max(1)], stride))
    }

    pub(crate) fn buffers(
        gpu: &Arc<Gpu>,
        press: Press,
        slots: usize,
        longest: usize,
    ) -> Result<[usize; 3], DeviceError> {
        Ok(Self::lens(gpu, press, slots, longest)?.0)
    }

    /// Takes the memory, and notes where the tiles of `tiles`, `tile_stride` bytes apart, and their streams are.
    pub(crate) fn new(
        gpu: &Arc<Gpu>,
        streams: &Streams,
        press: Press,
        slots: usize,
        longest: usize,
        tiles: (&DeviceBuffer, usize),
    ) -> Result<Self, DeviceError> {
        let ([pressed, tables, temp_len], stride) = Self::lens(gpu, press, slots, longest)?;
        let meter = streams.meter();
        let buffer = |len: usize| gpu.memory.buffer(len, meter);
        let (pressed, tables, temp) = (buffer(pressed)?, buffer(tables)?, buffer(temp_len)?);
        let addresses = |buffer: &DeviceBuffer, stride: usize| -> Vec<u64> {
            (0..slots).map(|slot| buffer.address() + (slot * stride) as u64).collect()
        };
        let inputs = addresses(tiles.0, tiles.1);
        let outputs = addresses(&pressed, stride);
        streams.upload_bytes(0, bytemuck::cast_slice(&inputs), &tables, 0)?;
        streams.upload_bytes(0, bytemuck::cast_slice(&outputs), &tables, slots * 16)?;
        let codec = codec_of(press)?;
        let most = pressed_stride(press, longest, 0);
        Ok(Self { gpu: gpu.clone(), codec, slots, longest, temp_len, most, stride, pressed, tables, temp })
    }

    pub(crate) fn pressed(&self) -> &DeviceBuffer {
        &self.pressed
    }

    pub(crate) fn stride(&self) -> usize {
        self.stride
    }

    /// Compresses the first `count` tiles; `lens` are theirs, `sizes` become those of their streams.
    pub(crate) fn run(
        &self,
        streams: &Streams,
        stream: usize,
        tiles: &DeviceBuffer,
        lens: Part<'_>,
        sizes: Part<'_>,
        count: u32,
    ) -> Result<(), DeviceError> {
        let array = |number: usize, size: usize| Part {
            buffer: &self.tables,
            offset: number * 8 * self.slots,
            len: size * self.slots,
        };
        let (input_lens, output_lens, statuses) = (array(1, 8), array(3, 8), array(4, 4));
        encoding::words(streams, stream, lens, input_lens, None, count)?;
        let batch = NvcompCompressBatch {
            inputs: array(0, 8),
            input_lens,
            outputs: array(2, 8),
            output_lens,
            statuses,
            source: tiles,
            compressed: &self.pressed,
            temp: &self.temp,
            temp_len: self.temp_len,
        };
        let nvcomp = self.gpu.nvcomp()?;
        libraries::nvcomp_compress(nvcomp, streams, stream, self.codec, count as usize, self.longest, &batch)?;
        encoding::words(streams, stream, sizes, output_lens, Some((statuses, self.most)), count)
    }
}
