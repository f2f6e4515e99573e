//! Calls of nvJPEG2000 on our buffers, both ways.

use std::{collections::VecDeque, ops::Range};

use crate::{
    driver::{
        launch::stream_threads::{
            EncodedStreams, NOT_REACHED, TilePlanes, in_tile_order, run_on_streams, wait_for_stream,
        },
        libraries::nvjpeg2k::{
            codestream::CodestreamOutline,
            decode::{Jpeg2000Components, Jpeg2000Tile},
            encode::{Jpeg2000Image, Jpeg2000Quality, Jpeg2000SourceTile},
        },
        memory::{
            pool::DeviceBuffer,
            streams::{Event, HostTiles, Streams},
        },
    },
    error::DeviceError,
};

/// The nvJPEG2000 decode sessions of one read, for each stream. A session decodes one tile at a time.
#[derive(Debug, Default)]
pub(crate) struct DecodeSessions(Vec<StreamSessions>);

/// The sessions of one stream: the busy ones with the event after their work, oldest first, and the free ones.
#[derive(Debug, Default)]
struct StreamSessions {
    busy: VecDeque<(usize, Event)>,
    free: Vec<usize>,
}

impl StreamSessions {
    /// Returns a free session; at most `most` are used. Where all are busy, one wait frees all of them: a stream passes
    /// events in order, and the other streams keep the device busy meanwhile.
    fn take(&mut self, most: usize, streams: &Streams) -> Result<usize, DeviceError> {
        if let Some(session) = self.free.pop() {
            return Ok(session);
        }
        if self.busy.len() < most.max(1) {
            return Ok(self.busy.len());
        }
        if let Some((_, newest)) = self.busy.back() {
            streams.meter().library_wait();
            newest.poll()?;
        }
        self.free.extend(self.busy.drain(..).map(|(session, _)| session));
        self.free.pop().ok_or_else(|| DeviceError::Internal("no session of nvJPEG2000 is free".into()))
    }
}

/// Decodes tiles with nvJPEG2000 on several streams, with `sessions_each` tiles in flight on each. Returns one result
/// for each tile, and whether any was stored with loss. The bytes are held until the streams have done the work.
#[allow(clippy::too_many_arguments)]
pub(crate) fn jpeg2000_decode(
    streams: &Streams,
    over: Range<usize>,
    sessions: &mut DecodeSessions,
    sessions_each: usize,
    expected: Jpeg2000Components,
    decoded: &DeviceBuffer,
    tiles: &[TilePlanes],
    bytes: &HostTiles,
) -> Result<(Vec<Result<(), String>>, bool), DeviceError> {
    let library = streams.memory().libraries.jpeg2000(&streams.memory().context)?;
    let count = over.len().max(1);
    // Never fewer than before: a session that is dropped from the list while it has work would be taken for a new one.
    sessions.0.resize_with(count.max(sessions.0.len()), StreamSessions::default);
    streams.hold(bytes);
    streams.keep(decoded);
    let serve = |first: usize, stream: usize, sessions: &mut StreamSessions| {
        let mut results_by_tile = Vec::new();
        for (number, (tile, bytes)) in tiles.iter().zip(&**bytes).enumerate().skip(first).step_by(count) {
            let bytes = match bytes {
                Ok(bytes) => bytes,
                Err(reason) => {
                    results_by_tile.push((number, (Err(reason.clone()), false)));
                    continue;
                }
            };
            let outline = CodestreamOutline::of(bytes);
            if !outline.is_whole {
                results_by_tile.push((number, (Err("the codestream is cut off".to_owned()), false)));
                continue;
            }
            let session = sessions.take(sessions_each, streams)?;
            let planes: Vec<(u64, usize)> = tile
                .addresses(decoded, expected.components as usize)?
                .into_iter()
                .map(|address| (address, tile.pitch))
                .collect();
            let TilePlanes { width, height, plane_len, .. } = *tile;
            let tile = Jpeg2000Tile { bytes, width, height, planes: &planes, plane_len };
            // SAFETY: the context is current and its own; the bytes are held and the buffer is kept until the streams
            // were waited for, and the planes lie in it; the session is new to this read or was waited for, and a stream
            // that comes from the pool has passed all that earlier reads gave it. Streams are forgotten before they are
            // destroyed.
            let result = unsafe { library.decode(&tile, expected, streams.raw(stream), session) };
            // Even a failed call may have queued work first.
            sessions.busy.push_back((session, streams.record(stream)?));
            results_by_tile.push((number, (result.map_err(|refused| refused.to_string()), outline.has_loss)));
        }
        Ok(results_by_tile)
    };
    let results_by_tile = run_on_streams(streams, over, &mut sessions.0, tiles.len(), serve)?;
    let mut results = vec![Err(NOT_REACHED.to_owned()); tiles.len()];
    let mut has_loss = false;
    for (number, (result, loss)) in results_by_tile {
        has_loss |= loss;
        if let Some(place) = results.get_mut(number) {
            *place = result;
        }
    }
    Ok((results, has_loss))
}

/// Encodes tiles with nvJPEG2000 on the streams, after all work queued on them, and waits for the streams. There is one
/// quality for each tile.
pub(crate) fn jpeg2000_encode(
    streams: &Streams,
    over: Range<usize>,
    image: Jpeg2000Image,
    source: &DeviceBuffer,
    tiles: &[TilePlanes],
    qualities: &[Jpeg2000Quality],
) -> Result<EncodedStreams, DeviceError> {
    if qualities.len() != tiles.len() {
        return Err(DeviceError::Internal("the number of qualities differs from the number of tiles".into()));
    }
    let encoder = streams.memory().libraries.jpeg2000_encoder(&streams.memory().context)?;
    let stride = over.len().max(1);
    let count = if image.interleaved { 1 } else { image.components as usize };
    streams.keep(source);
    let serve = |first: usize, stream: usize, _: &mut ()| {
        let mut results_by_tile = Vec::with_capacity(tiles.len().div_ceil(stride));
        let wait = || wait_for_stream(streams, stream);
        for (number, (tile, quality)) in tiles.iter().zip(qualities).enumerate().skip(first).step_by(stride) {
            let addresses = tile.addresses(source, count)?;
            let planes: Vec<(u64, usize)> = addresses.into_iter().map(|address| (address, tile.pitch)).collect();
            let TilePlanes { width, height, plane_len, .. } = *tile;
            let tile = Jpeg2000SourceTile { width, height, planes: &planes, plane_len, quality: *quality };
            // SAFETY: the context is current and its own; the buffer is kept until the streams were waited for, and the
            // planes lie in it; `wait` waits for all the stream was given. Streams are forgotten before they are
            // destroyed.
            let result = unsafe { encoder.encode(image, &tile, streams.raw(stream), &wait) }?;
            results_by_tile.push((number, result.map_err(|refused| refused.to_string())));
        }
        Ok(results_by_tile)
    };
    let results_by_tile = run_on_streams(streams, over, &mut vec![(); stride], tiles.len(), serve)?;
    Ok(in_tile_order(results_by_tile, tiles.len()))
}
