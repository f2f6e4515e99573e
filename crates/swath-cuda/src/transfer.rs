//! Copies between host and device that are not part of a read or a write in batches.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    counters::{Counters, Meter},
    driver::{
        launch::take::{DeviceRows, TakeRows, launch_take},
        memory::{
            pool::{CHUNK_LEN, DeviceBuffer},
            readback::PinnedBuffer,
            row_ring::RowRing,
            streams::{Event, Streams},
        },
    },
    error::DeviceError,
    gpu::Gpu,
};

/// Copies bytes to a new device buffer through pinned memory, and waits for the copies. Returns the buffer and an event
/// after the last copy.
///
/// # Errors
/// When the device has too little memory, or a copy fails.
pub fn to_device(gpu: &Arc<Gpu>, bytes: &[u8]) -> Result<(DeviceBuffer, Event, Counters), DeviceError> {
    let meter = Arc::new(Meter::default());
    let streams = Streams::new(gpu.memory.clone(), meter.clone(), 1)?;
    let buffer = gpu.memory.buffer(bytes.len(), &meter)?;
    streams.upload_bytes(0, bytes, &buffer, 0)?;
    streams.synchronize()?;
    Ok((buffer, streams.record(0)?, meter.counters()))
}

/// Copies the samples of a finished read to the host, in one transfer.
///
/// # Errors
/// When the lengths differ or the copy fails.
pub fn to_host(gpu: &Arc<Gpu>, from: &DeviceBuffer, to: &mut [u8]) -> Result<Counters, DeviceError> {
    let meter = Arc::new(Meter::default());
    if from.len() != to.len() {
        return Err(DeviceError::Usage(format!(
            "the buffer has {} bytes on the device and {} on the host",
            from.len(),
            to.len()
        )));
    }
    let streams = Streams::new(gpu.memory.clone(), meter.clone(), 1)?;
    if from.is_foreign() {
        // Other code has the address; its pending work on the buffer comes first.
        meter.synchronisation();
        gpu.memory.context.synchronize()?;
    }
    streams.finish(from, 0, to)?;
    Ok(meter.counters())
}

/// Copies rows with any strides from the device to the host: `count` rows from row `from` on, one band after the other.
///
/// # Errors
/// When the device has too little memory, or a call fails.
pub fn rows_to_host(
    gpu: &Arc<Gpu>,
    rows: &DeviceRows,
    from: u32,
    count: u32,
    (width, bands, sample_len): (u32, u16, usize),
) -> Result<Vec<u8>, DeviceError> {
    let meter = Arc::new(Meter::default());
    let streams = Streams::new(gpu.memory.clone(), meter.clone(), 1)?;
    let len = RowRing::bytes(bands, width, count, sample_len)
        .ok_or_else(|| DeviceError::Usage("the rows are larger than memory".into()))?;
    let ring = RowRing::new(gpu.memory.buffer(len, &meter)?, bands, width, count, sample_len)?;
    let take = TakeRows { ring: &ring, first: 0, count, bands, first_band: 0, replace: 0, nodata: [0; 16] };
    launch_take(&streams, 0, &rows.at_row(from), &take)?;
    let band = ring.row_step() as usize * count as usize;
    let mut bytes = vec![0; band * usize::from(bands)];
    for (number, plane) in bytes.chunks_mut(band.max(1)).enumerate() {
        streams.fetch(&ring.buffer, ring.band_step() as usize * number, plane)?;
    }
    Ok(bytes)
}

/// Speeds of copies between pinned host memory and a device, in bytes per second.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[non_exhaustive]
pub struct CopySpeeds {
    /// From the host to the device.
    pub to_device: f64,
    /// From the device to the host.
    pub from_device: f64,
}

/// Pinned chunks that are copied to measure a speed: 64 MiB take about a millisecond on the fastest buses, which is long
/// compared with the time to start the copies.
const MEASURED_CHUNKS: usize = 16;
/// The fastest of this many copies counts, after one that does not count.
const MEASURED_COPIES: u32 = 5;

/// Measures how fast this machine copies to a device and back. Reads and writes on the device copy in the same way, and
/// cannot be faster than that.
///
/// # Errors
/// When the device has too little memory, or a copy fails.
pub fn copy_speeds(gpu: &Arc<Gpu>) -> Result<CopySpeeds, DeviceError> {
    let meter = Arc::new(Meter::default());
    let streams = Streams::new(gpu.memory.clone(), meter.clone(), 1)?;
    let len = MEASURED_CHUNKS * CHUNK_LEN;
    let buffer = gpu.memory.buffer(len, &meter)?;
    let to_device = fastest(|| {
        let chunks: Vec<_> = (0..MEASURED_CHUNKS).map(|_| gpu.memory.chunk(&meter)).collect::<Result<_, _>>()?;
        let began = Instant::now();
        for (number, chunk) in chunks.into_iter().enumerate() {
            streams.upload(0, chunk, CHUNK_LEN, &buffer, number * CHUNK_LEN)?;
        }
        streams.synchronize()?;
        Ok(began.elapsed())
    })?;
    let from_device = fastest(|| {
        let pinned = PinnedBuffer::new(&gpu.memory, len, &meter)?;
        let began = Instant::now();
        let copy = streams.read_back(0, &buffer, len, pinned)?;
        streams.synchronize()?;
        let elapsed = began.elapsed();
        copy.wait()?;
        Ok(elapsed)
    })?;
    let speed = |time: Duration| len as f64 / time.as_secs_f64().max(1e-9);
    Ok(CopySpeeds { to_device: speed(to_device), from_device: speed(from_device) })
}

/// Returns the shortest time of some copies.
fn fastest(mut copy: impl FnMut() -> Result<Duration, DeviceError>) -> Result<Duration, DeviceError> {
    copy()?;
    let mut shortest = Duration::MAX;
    for _ in 0..MEASURED_COPIES {
        shortest = shortest.min(copy()?);
    }
    Ok(shortest)
}
