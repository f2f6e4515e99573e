//! Calls of nvJPEG on our buffers, both ways.

use std::ops::Range;

use crate::{
    driver::{
        launch::stream_threads::{EncodedStreams, TilePlanes, in_tile_order, run_on_streams, wait_for_stream},
        libraries::nvjpeg::{
            decode::Engine,
            encode::{JpegSettings, JpegSourceTile},
            header::{JpegOutput, JpegTile},
        },
        memory::{
            pool::DeviceBuffer,
            streams::{HostTiles, Streams},
        },
    },
    error::DeviceError,
};

/// Whether the GPU has a JPEG engine, which decodes whole batches. Otherwise the host does a part of each tile.
pub(crate) fn has_jpeg_engine(streams: &Streams) -> Result<bool, DeviceError> {
    let context = &streams.memory().context;
    let jpeg = streams.memory().libraries.jpeg(context)?;
    let _current = context.enter()?;
    Ok(jpeg.probe(Engine::Hardware).is_ok())
}

/// Decodes tiles with nvJPEG on the streams. Returns one result for each tile, with the reason where nvJPEG refused it.
/// The bytes are held until the streams have done the work.
pub(crate) fn jpeg_decode(
    streams: &Streams,
    over: Range<usize>,
    output: JpegOutput,
    decoded: &DeviceBuffer,
    tiles: &[TilePlanes],
    bytes: &HostTiles,
) -> Result<Vec<Result<(), String>>, DeviceError> {
    let jpeg = streams.memory().libraries.jpeg(&streams.memory().context)?;
    let engine = if has_jpeg_engine(streams)? { Engine::Hardware } else { Engine::Host };
    let count = if output == JpegOutput::Grey { 1 } else { 3 };
    let stride = over.len().max(1);
    streams.hold(bytes);
    streams.keep(decoded);
    let serve = |first: usize, stream: usize, _: &mut ()| {
        let (mut results_by_tile, mut list, mut numbers) = (Vec::new(), Vec::new(), Vec::new());
        for (number, (tile, bytes)) in tiles.iter().zip(&**bytes).enumerate().skip(first).step_by(stride) {
            let bytes = match bytes {
                Ok(bytes) => bytes,
                Err(reason) => {
                    results_by_tile.push((number, Err(reason.clone())));
                    continue;
                }
            };
            let mut planes = [0; 3];
            for (plane, address) in planes.iter_mut().zip(tile.addresses(decoded, count)?) {
                *plane = address;
            }
            let TilePlanes { width, height, pitch, plane_len, .. } = *tile;
            list.push(JpegTile { bytes, width, height, planes, pitch, plane_len });
            numbers.push(number);
        }
        let wait = || wait_for_stream(streams, stream);
        // SAFETY: the context is current and its own; the bytes are held and the buffer is kept until the streams were
        // waited for, and the planes lie in it; `wait` waits for all the stream was given. Streams are forgotten before
        // they are destroyed.
        let results = unsafe { jpeg.decode(engine, &list, output, streams.raw(stream), &wait) };
        let results = results.into_iter().map(|result| result.map_err(|refused| refused.to_string()));
        results_by_tile.extend(numbers.into_iter().zip(results));
        Ok(results_by_tile)
    };
    let results_by_tile = run_on_streams(streams, over, &mut vec![(); stride], tiles.len(), serve)?;
    Ok(in_tile_order(results_by_tile, tiles.len()))
}

/// Encodes tiles with nvJPEG on the streams, after all work queued on them, and waits for the streams. Samples of a
/// pixel lie side by side in one plane.
pub(crate) fn jpeg_encode(
    streams: &Streams,
    over: Range<usize>,
    settings: JpegSettings,
    source: &DeviceBuffer,
    tiles: &[TilePlanes],
) -> Result<EncodedStreams, DeviceError> {
    let encoder = streams.memory().libraries.jpeg_encoder(&streams.memory().context)?;
    let stride = over.len().max(1);
    streams.keep(source);
    let serve = |first: usize, stream: usize, _: &mut ()| {
        let mut list = Vec::with_capacity(tiles.len().div_ceil(stride));
        for tile in tiles.iter().skip(first).step_by(stride) {
            let TilePlanes { width, height, pitch, plane_len, .. } = *tile;
            let samples = source.address_at(tile.at, plane_len)?;
            list.push(JpegSourceTile { width, height, samples, pitch, plane_len });
        }
        let wait = || wait_for_stream(streams, stream);
        // SAFETY: the context is current and its own; the buffer is kept until the streams were waited for, and the
        // planes lie in it; `wait` waits for all the stream was given. Streams are forgotten before they are destroyed.
        let results = unsafe { encoder.encode(&list, settings, streams.raw(stream), &wait) }?;
        let results = results.into_iter().map(|result| result.map_err(|refused| refused.to_string()));
        Ok((first..).step_by(stride).zip(results).collect())
    };
    let results_by_tile = run_on_streams(streams, over, &mut vec![(); stride], tiles.len(), serve)?;
    Ok(in_tile_order(results_by_tile, tiles.len()))
}
