//! NVIDIA's libraries at work on our buffers: lengths are checked here, and what a library uses is kept until it is done.

use crate::{
    error::DeviceError,
    ffi::{
        kernels::Part,
        library::CallError,
        memory::{DeviceBuffer, Streams},
        nvcomp::{BatchPointers, Codec, Nvcomp},
    },
};

impl From<CallError> for DeviceError {
    fn from(error: CallError) -> Self {
        Self::Call { call: error.call.to_owned(), code: LIBRARY, text: format!("{} (status {})", error.text, error.status) }
    }
}

/// The code of a failure that a library told, not the driver.
const LIBRARY: i32 = -1;

/// What nvCOMP works on: arrays in device memory, one element for each tile, and the buffers that their addresses lie in.
pub(crate) struct NvcompBatch<'a> {
    pub(crate) inputs: Part<'a>,
    pub(crate) input_lens: Part<'a>,
    pub(crate) outputs: Part<'a>,
    pub(crate) capacities: Part<'a>,
    pub(crate) output_lens: Part<'a>,
    pub(crate) statuses: Part<'a>,
    pub(crate) compressed: &'a DeviceBuffer,
    pub(crate) decoded: &'a DeviceBuffer,
    pub(crate) temp: &'a DeviceBuffer,
    pub(crate) temp_len: usize,
}

/// Temporary memory that nvCOMP wants for a batch.
pub(crate) fn nvcomp_temp_len(
    nvcomp: &Nvcomp,
    streams: &Streams,
    stream: usize,
    codec: Codec,
    count: usize,
    longest: usize,
    total: usize,
) -> Result<usize, DeviceError> {
    let _current = streams.memory().context.enter()?;
    // SAFETY: the context is current and the stream is one of its own.
    Ok(unsafe { nvcomp.temp_len(codec, count, longest, total, streams.raw(stream)) }?)
}

/// Queues a batch.
pub(crate) fn nvcomp_decompress(
    nvcomp: &Nvcomp,
    streams: &Streams,
    stream: usize,
    codec: Codec,
    count: usize,
    batch: &NvcompBatch<'_>,
) -> Result<(), DeviceError> {
    let word = size_of::<u64>();
    for (part, size) in [
        (&batch.inputs, word),
        (&batch.input_lens, word),
        (&batch.outputs, word),
        (&batch.capacities, word),
        (&batch.output_lens, word),
        (&batch.statuses, size_of::<u32>()),
    ] {
        if part.len < count * size {
            return Err(DeviceError::Usage("an array for nvCOMP is too short".into()));
        }
        streams.keep(part.buffer);
    }
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
    let temp = batch.temp.part(0, batch.temp_len)?;
    let _current = streams.memory().context.enter()?;
    // SAFETY: the arrays are as long as the batch and lie in buffers that are kept until the streams were waited for; so do the
    // addresses in them, which `decode.rs` made from the same layout as the buffers. The caller has called the input trusted.
    unsafe { nvcomp.decompress(codec, &pointers, count, temp, batch.temp_len, streams.raw(stream)) }?;
    Ok(())
}
