//! Calls of nvCOMP on our buffers.

use crate::{
    driver::{
        launch::slice::{ALIGN, BufferSlice},
        libraries::nvcomp::{BatchPointers, CompressPlan, CompressPointers, Nvcomp, NvcompFormat},
        memory::{pool::DeviceBuffer, streams::Streams},
    },
    error::DeviceError,
};

/// What nvCOMP decompresses: arrays in device memory, one element for each tile, and the buffers that their addresses
/// lie in.
pub(crate) struct DecompressLaunch<'a> {
    pub(crate) inputs: BufferSlice<'a>,
    pub(crate) input_lens: BufferSlice<'a>,
    pub(crate) outputs: BufferSlice<'a>,
    pub(crate) capacities: BufferSlice<'a>,
    pub(crate) output_lens: BufferSlice<'a>,
    pub(crate) statuses: BufferSlice<'a>,
    pub(crate) compressed: &'a DeviceBuffer,
    pub(crate) decoded: &'a DeviceBuffer,
    pub(crate) temp: &'a DeviceBuffer,
    pub(crate) temp_len: usize,
}

/// Returns the bytes of temporary memory that nvCOMP needs for a batch.
pub(crate) fn nvcomp_temp_len(
    nvcomp: &Nvcomp,
    streams: &Streams,
    stream: usize,
    count: usize,
    longest: usize,
    total: usize,
) -> Result<usize, DeviceError> {
    let _current = streams.memory().context.enter()?;
    // SAFETY: the context is current and the stream is one of its own.
    Ok(unsafe { nvcomp.temp_len(count, longest, total, streams.raw(stream)) }?)
}

/// Checks that nvCOMP's arrays have an element for each tile, and keeps their buffers until the streams were waited for.
fn keep_arrays(
    streams: &Streams,
    count: usize,
    words: &[BufferSlice<'_>],
    statuses: BufferSlice<'_>,
) -> Result<(), DeviceError> {
    let words = words.iter().map(|array| (array, size_of::<u64>()));
    for (array, size) in words.chain([(&statuses, size_of::<u32>())]) {
        if count.checked_mul(size).is_none_or(|len| array.len < len) {
            return Err(DeviceError::Internal("an array for nvCOMP is too short".into()));
        }
        streams.keep(array.buffer);
    }
    Ok(())
}

/// Queues the decompression of a batch.
pub(crate) fn nvcomp_decompress(
    nvcomp: &Nvcomp,
    streams: &Streams,
    stream: usize,
    count: usize,
    batch: &DecompressLaunch<'_>,
) -> Result<(), DeviceError> {
    let words = [batch.inputs, batch.input_lens, batch.outputs, batch.capacities, batch.output_lens];
    keep_arrays(streams, count, &words, batch.statuses)?;
    let pointers = BatchPointers {
        inputs: batch.inputs.address()?,
        input_lens: batch.input_lens.address()?,
        outputs: batch.outputs.address()?,
        capacities: batch.capacities.address()?,
        output_lens: batch.output_lens.address()?,
        statuses: batch.statuses.address()?,
    };
    for buffer in [batch.compressed, batch.decoded, batch.temp] {
        streams.keep(buffer);
    }
    let temp = batch.temp.address_at(0, batch.temp_len)?;
    let _current = streams.memory().context.enter()?;
    let wanted = nvcomp.alignments()?;
    if wanted.input.max(wanted.output) > ALIGN {
        return Err(DeviceError::Declined(format!("nvCOMP needs streams aligned to {} bytes", wanted.input)));
    }
    // SAFETY: the arrays are as long as the batch and lie in buffers that are kept until the streams were waited for; so do the
    // addresses in them, which `decode/tables.rs` made from the same layout as the buffers. The caller has declared the input trusted.
    unsafe { nvcomp.decompress(&pointers, count, temp, batch.temp_len, streams.raw(stream)) }?;
    Ok(())
}

/// What nvCOMP compresses: arrays in device memory, one element for each chunk, and the buffers that their addresses
/// lie in.
pub(crate) struct CompressLaunch<'a> {
    /// Addresses of the chunks, 8 bytes each. So are the next three arrays.
    pub(crate) inputs: BufferSlice<'a>,
    pub(crate) input_lens: BufferSlice<'a>,
    /// Addresses of room for [`CompressPlan::max_output_len`] bytes each.
    pub(crate) outputs: BufferSlice<'a>,
    pub(crate) output_lens: BufferSlice<'a>,
    /// 4 bytes each.
    pub(crate) statuses: BufferSlice<'a>,
    pub(crate) source: &'a DeviceBuffer,
    pub(crate) compressed: &'a DeviceBuffer,
    pub(crate) temp: &'a DeviceBuffer,
    pub(crate) temp_len: usize,
}

/// Returns what nvCOMP needs to compress `count` chunks, none longer than `longest` and `total` bytes together.
pub(crate) fn nvcomp_compress_plan(
    nvcomp: &Nvcomp,
    streams: &Streams,
    stream: usize,
    codec: NvcompFormat,
    count: usize,
    longest: usize,
    total: usize,
) -> Result<CompressPlan, DeviceError> {
    let _current = streams.memory().context.enter()?;
    // SAFETY: the context is current and the stream is one of its own.
    let plan = unsafe { nvcomp.compress_plan(codec, count, longest, total, streams.raw(stream)) }?;
    let wanted = plan.alignments.input.max(plan.alignments.output);
    if wanted > ALIGN {
        return Err(DeviceError::Declined(format!("nvCOMP needs chunks aligned to {wanted} bytes")));
    }
    Ok(plan)
}

/// Queues the compression of a batch of chunks, none longer than `longest`. The chunks and the room for their streams
/// begin at multiples of [`ALIGN`].
#[allow(clippy::too_many_arguments)]
pub(crate) fn nvcomp_compress(
    nvcomp: &Nvcomp,
    streams: &Streams,
    stream: usize,
    codec: NvcompFormat,
    count: usize,
    longest: usize,
    batch: &CompressLaunch<'_>,
) -> Result<(), DeviceError> {
    if count == 0 {
        return Ok(());
    }
    let words = [batch.inputs, batch.input_lens, batch.outputs, batch.output_lens];
    keep_arrays(streams, count, &words, batch.statuses)?;
    let pointers = CompressPointers {
        inputs: batch.inputs.address()?,
        input_lens: batch.input_lens.address()?,
        outputs: batch.outputs.address()?,
        output_lens: batch.output_lens.address()?,
        statuses: batch.statuses.address()?,
    };
    for buffer in [batch.source, batch.compressed, batch.temp] {
        streams.keep(buffer);
    }
    let temp = batch.temp.address_at(0, batch.temp_len)?;
    let _current = streams.memory().context.enter()?;
    // SAFETY: the arrays are as long as the batch and lie in buffers that are kept until the streams were waited for;
    // so do the addresses in them, which the caller made from the lengths of the plan.
    unsafe { nvcomp.compress(codec, &pointers, count, longest, temp, batch.temp_len, streams.raw(stream)) }?;
    Ok(())
}
