//! Bytes that are on the host already, taken to the device as they are.

use std::sync::Arc;

use crate::{
    counters::{Counters, Meter},
    error::DeviceError,
    ffi::{
        memory::DeviceBuffer,
        streams::{Mark, Streams},
    },
    gpu::Gpu,
};

/// Copies bytes to a new device buffer, by way of pinned memory, and waits for that. The event comes after it.
///
/// # Errors
/// When the device has not that much memory, or a copy fails.
pub fn to_device(gpu: &Arc<Gpu>, bytes: &[u8]) -> Result<(DeviceBuffer, Mark, Counters), DeviceError> {
    let meter = Arc::new(Meter::default());
    let streams = Streams::new(gpu.memory.clone(), meter.clone(), 1)?;
    let buffer = gpu.memory.buffer(bytes.len(), &meter)?;
    streams.upload_bytes(0, bytes, &buffer, 0)?;
    streams.synchronize()?;
    Ok((buffer, streams.mark(0)?, meter.counters()))
}
