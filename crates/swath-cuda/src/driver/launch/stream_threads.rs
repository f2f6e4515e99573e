//! Threads that call NVIDIA's image libraries: one for each stream, since the host does much of their work.

use crate::{
    driver::memory::{pool::DeviceBuffer, streams::Streams},
    error::DeviceError,
    threads::starting,
};

/// The planes of a tile on the device, one after the other.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TilePlanes {
    pub(crate) width: u32,
    pub(crate) height: u32,
    /// Offset of the first plane in the buffer.
    pub(crate) at: usize,
    /// Bytes from row to row.
    pub(crate) pitch: usize,
    /// Bytes from plane to plane.
    pub(crate) plane_len: usize,
}

impl TilePlanes {
    /// Returns the addresses of `count` planes, which must all lie in the buffer.
    pub(super) fn addresses(&self, decoded: &DeviceBuffer, count: usize) -> Result<Vec<u64>, DeviceError> {
        let each = |plane: usize| decoded.address_at(self.at + plane * self.plane_len, self.plane_len);
        (0..count).map(each).collect()
    }
}

/// Results of tiles, each with the tile's number.
pub(super) type NumberedResults<T> = Vec<(usize, T)>;

/// Distributes tiles over streams, each with a thread of its own, and collects their results.
pub(super) fn run_on_streams<T: Send, L: Send>(
    streams: &Streams,
    over: std::ops::Range<usize>,
    states: &mut [L],
    tiles: usize,
    serve: impl Fn(usize, usize, &mut L) -> Result<NumberedResults<T>, DeviceError> + Sync,
) -> Result<NumberedResults<T>, DeviceError> {
    let context = &streams.memory().context;
    let serve = |first: usize, stream: usize, state: &mut L| {
        let _current = context.enter()?;
        serve(first, stream, state)
    };
    let assigned = over.zip(states).enumerate().take(tiles);
    let outcomes: Vec<Result<NumberedResults<T>, DeviceError>> = std::thread::scope(|scope| {
        let serve = &serve;
        let threads: Vec<_> = assigned
            .map(|(first, (stream, state))| {
                starting(|| std::thread::Builder::new().spawn_scoped(scope, move || serve(first, stream, state)))
            })
            .collect();
        let failed = |why: &str| Err(DeviceError::Usage(format!("a thread for a library {why}")));
        threads
            .into_iter()
            .map(|thread| match thread {
                Ok(thread) => thread.join().unwrap_or_else(|_| failed("failed")),
                Err(error) => failed(&format!("could not be started: {error}")),
            })
            .collect()
    });
    let mut results = Vec::with_capacity(tiles);
    for outcome in outcomes {
        results.extend(outcome?);
    }
    Ok(results)
}

/// Waits until a stream has done all queued work, so that a library's state is free.
pub(super) fn wait_for_stream(streams: &Streams, stream: usize) -> Result<(), String> {
    streams.meter().library_wait();
    streams.record(stream).and_then(|event| event.poll()).map_err(|error| error.to_string())
}

/// Reason used when the library gave none.
pub(super) const NOT_REACHED: &str = "not reached";

/// Returns the results in the order of the tiles. A tile without a result gets [`NOT_REACHED`].
pub(super) fn in_tile_order<T: Clone>(
    numbered: NumberedResults<Result<T, String>>,
    tiles: usize,
) -> Vec<Result<T, String>> {
    let mut results = vec![Err(NOT_REACHED.to_owned()); tiles];
    for (number, result) in numbered {
        if let Some(slot) = results.get_mut(number) {
            *slot = result;
        }
    }
    results
}

/// The streams of tiles, in their order, or the reason why a tile has none.
pub(crate) type EncodedStreams = Vec<Result<Vec<u8>, String>>;
