//! Compressed tiles through the engine's GPU decoder, without a file around them.

use std::sync::Arc;

use swath::gpu::{DeviceError, Gpu, TileStatus};
use swath_codec::TileSpec;
use swath_cuda::{
    CHUNK_LEN,
    decode::{DecodeBatch, DecodePath, DecodePlan, Decoder, Footprint, Output, Placement},
    transfer::to_host,
};

use crate::stock::Codec;

/// Copies that keep the device busy while kernels are queued behind them, so the device's clock does not count the
/// host's calls. They also evict the kernels' input from the cache.
const BUSY_COPIES: usize = 32;

/// The result of a batch.
pub struct Decoded {
    /// One for each stream.
    pub statuses: Vec<TileStatus>,
    /// The tiles one after the other; refused tiles hold arbitrary bytes.
    pub bytes: Vec<u8>,
    /// Scratch memory of the kernels, in bytes.
    pub temporary: u64,
    /// Most device memory that was held.
    pub peak: u64,
}

/// Decodes streams of tiles of `len` bytes, as one batch.
///
/// # Errors
/// When the device fails. A tile that it refuses is not an error.
pub fn decode(gpu: &Arc<Gpu>, codec: Codec, streams: &[&[u8]], len: usize) -> Result<Decoded, DeviceError> {
    let (decoder, statuses, temporary) = run(gpu, codec, streams, len, false)?;
    let peak = decoder.counters().peak_bytes;
    let (buffer, ..) = decoder.into_output()?;
    let mut bytes = vec![0; buffer.len()];
    to_host(gpu, &buffer, &mut bytes)?;
    Ok(Decoded { statuses, bytes, temporary, peak })
}

/// Milliseconds that the decoding kernels take for such a batch.
///
/// # Errors
/// As [`decode`].
pub fn time(gpu: &Arc<Gpu>, codec: Codec, streams: &[&[u8]], len: usize) -> Result<f32, DeviceError> {
    Ok(run(gpu, codec, streams, len, true)?.0.times()?.decode_ms)
}

/// The decoder after a batch, the statuses of the tiles, and its scratch memory.
fn run(
    gpu: &Arc<Gpu>,
    codec: Codec,
    streams: &[&[u8]],
    len: usize,
    timed: bool,
) -> Result<(Decoder, Vec<TileStatus>, u64), DeviceError> {
    let too_large = |_| DeviceError::Usage("such a batch is larger than a raster can be".into());
    let width = u32::try_from(len).map_err(too_large)?;
    let height = u32::try_from(streams.len()).map_err(too_large)?;
    let spec: TileSpec = codec.spec(width);
    let plan = DecodePlan {
        path: DecodePath::for_spec(&spec)?,
        spec: Arc::new(spec),
        output: Output { width, height, bands: 1, sample_len: 1, pixel_interleaved: false },
        samples: vec![0],
        fill: vec![0],
        largest: len,
        timed,
    };
    let mut batch = DecodeBatch::new(&plan, 0);
    let mut room = Footprint::default();
    let mut places = Vec::with_capacity(streams.len());
    for (row, stream) in (0..).zip(streams) {
        places.push(batch.tile(stream.len(), len));
        batch.place(&Placement { from: (0, 0), size: (width, 1), to: (0, row), band: 0 });
        room = room.plus(Footprint::of_tile(plan.path, stream.len() as u64, len as u64, 1));
        room = room.plus(Footprint::of_scratch(plan.path, len));
    }
    let group = batch.end_group();
    let end = room.compressed as usize;
    if timed {
        room.compressed += (BUSY_COPIES * CHUNK_LEN) as u64;
    }
    let decoder = Decoder::new(gpu, plan, streams.len(), room, 1)?;
    decoder.begin(0, &batch)?;
    upload(&decoder, &places, streams)?;
    if timed {
        let uploader = decoder.uploader();
        for number in 0..BUSY_COPIES {
            uploader.upload(0, uploader.chunk()?, CHUNK_LEN, end + number * CHUNK_LEN)?;
        }
    }
    if let Some(group) = group {
        decoder.launch(0, &batch, group)?;
    }
    decoder.end(0)?;
    let statuses = decoder.finish()?;
    Ok((decoder, statuses, room.temporary))
}

/// Copies the streams to their places, as many at once as a pinned chunk holds.
fn upload(decoder: &Decoder, places: &[usize], streams: &[&[u8]]) -> Result<(), DeviceError> {
    let uploader = decoder.uploader();
    let (mut chunk, mut start, mut end) = (uploader.chunk()?, 0, 0);
    for (place, stream) in places.iter().zip(streams) {
        for (number, part) in stream.chunks(CHUNK_LEN).enumerate() {
            let at = place + number * CHUNK_LEN;
            if at + part.len() > start + CHUNK_LEN {
                uploader.upload(0, chunk, end - start, start)?;
                (chunk, start) = (uploader.chunk()?, at);
            }
            end = at + part.len();
            if let Some(room) = chunk.bytes_mut().get_mut(at - start..end - start) {
                room.copy_from_slice(part);
            }
        }
    }
    uploader.upload(0, chunk, end - start, start)
}
