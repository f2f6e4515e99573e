//! Writes the tiles of one level in order, each as soon as all earlier ones are there.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use swath_io::{Extent, Sink, Spill};
use swath_raster::{memory, moments::Moments};

use crate::error::Error;

/// Number of buffers that a thread keeps for the next tiles.
const SPARE: usize = 2;

/// A tile on its way to the file.
#[derive(Debug, Default)]
pub(super) struct Encoded {
    /// Its bytes, with leader and trailer where the file has them; empty for a tile that is left out.
    pub bytes: Vec<u8>,
    /// Statistics of its samples, for each band it holds.
    pub moments: Vec<(u16, Moments)>,
}

/// Room for tiles that come long before their turn, shared by all levels: memory up to a limit, then disk.
#[derive(Debug)]
pub(super) struct Waiting {
    spill: Arc<Spill>,
    limit: u64,
    in_memory: AtomicU64,
}

impl Waiting {
    pub(super) fn new(spill: Arc<Spill>, limit: u64) -> Self {
        Self { spill, limit, in_memory: AtomicU64::new(0) }
    }
}

/// A tile that waits for its turn.
#[derive(Debug)]
enum WaitingTile {
    Memory(Encoded),
    Disk(Extent, Vec<(u16, Moments)>),
}

/// Writes the tiles of one level in order.
#[derive(Debug)]
pub(super) struct LevelWriter {
    /// Bytes before and after each tile that its count leaves out.
    frame: u64,
    /// Whether the bytes stay in memory until the end, rather than being written at once.
    buffered: bool,
    start: u64,
    /// Most bytes of the level. Those after it belong to another level, and to offsets that the file may not have.
    room: u64,
    state: Mutex<State>,
    /// Where tiles wait that come long before their turn; in memory where this is `None`.
    waiting: Option<Arc<Waiting>>,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    waiting: BTreeMap<u64, WaitingTile>,
    len: u64,
    /// Start of each tile within the level's own bytes, frame included; `None` for one that was left out.
    tiles: Vec<Option<(u64, u32)>>,
    moments: Vec<Moments>,
    /// Statistics of each tile, where the tiles are taken elsewhere.
    each: Option<Vec<Moments>>,
    buffer: Vec<u8>,
}

impl State {
    /// Takes the statistics of one band of a tile: adds them to the band's, or keeps them where tiles are taken elsewhere.
    fn sum(&mut self, band: usize, moments: &Moments) -> Result<(), Error> {
        match (&mut self.each, self.moments.get_mut(band)) {
            (Some(each), _) => each.push(*moments),
            (None, Some(sum)) => sum.add(moments),
            (None, None) => return Err(Error::internal(format!("a level has no statistics of band {}", band + 1))),
        }
        Ok(())
    }
}

/// Tiles that another process writes to the file.
#[derive(Debug, Default)]
pub(super) struct BufferedTiles {
    /// Bytes of each tile, frame included; 0 for one that was left out.
    pub lens: Vec<u32>,
    pub bytes: Vec<u8>,
    /// Statistics of each position, band by band.
    pub moments: Vec<Moments>,
}

impl LevelWriter {
    /// A writer without a file: all bytes stay in memory for [`LevelWriter::into_tiles`].
    pub(super) fn without_file(frame: u64) -> Self {
        let state = State { each: Some(Vec::new()), ..State::default() };
        Self { frame, buffered: true, start: 0, room: u64::MAX, state: Mutex::new(state), waiting: None }
    }

    /// A writer of a level that begins at `start` and has `room` bytes.
    pub(super) fn new(start: u64, frame: u64, buffered: bool, bands: u16, room: u64) -> Self {
        let moments = vec![Moments::default(); bands.into()];
        Self { frame, buffered, start, room, state: Mutex::new(State { moments, ..State::default() }), waiting: None }
    }

    /// Gives the next tile, of `len` bytes with its frame, its place in the level. Returns the offset.
    fn reserve(&self, state: &mut State, len: u64) -> Result<u64, Error> {
        let offset = state.len;
        if len == 0 {
            state.tiles.push(None);
            return Ok(offset);
        }
        // Readers take a tile of length 0 for one that is left out.
        let own = len.checked_sub(self.frame).filter(|own| *own > 0);
        let own = own.ok_or_else(|| Error::internal(format!("a tile of {len} bytes has none but its frame's")))?;
        let own = u32::try_from(own).map_err(|_| Error::internal(format!("a tile has {own} bytes")))?;
        let end = offset.checked_add(len).filter(|end| *end <= self.room);
        state.len = end.ok_or_else(|| Error::internal("a level is longer than its room"))?;
        state.tiles.push(Some((offset, own)));
        Ok(offset)
    }

    /// Lets tiles wait on disk where memory has no room for them. A buffered level stays in memory.
    pub(super) fn wait_in(&mut self, waiting: &Arc<Waiting>) {
        self.waiting = (!self.buffered).then(|| waiting.clone());
    }

    /// Decides where a tile waits: in memory, or on disk where memory is full.
    fn set_aside(&self, number: u64, tile: Encoded, spare: &mut Vec<Vec<u8>>) -> Result<WaitingTile, Error> {
        let Some(waiting) = &self.waiting else { return Ok(WaitingTile::Memory(tile)) };
        let len = tile.bytes.len() as u64;
        if number == self.lock().next || len == 0 {
            return Ok(WaitingTile::Memory(tile));
        }
        let Encoded { bytes, moments } = tile;
        let tile = if waiting.in_memory.load(Ordering::Relaxed) + len > waiting.limit {
            WaitingTile::Disk(waiting.spill.put(&bytes)?, moments)
        } else {
            // The encoder's buffer has room for the largest tile, far more than most tiles need.
            WaitingTile::Memory(Encoded { bytes: memory::copied(&bytes)?, moments })
        };
        spare.push(bytes);
        Ok(tile)
    }

    /// Updates the bytes of tiles that wait in memory.
    fn count(&self, more: u64, less: u64) {
        if let Some(waiting) = &self.waiting {
            waiting.in_memory.fetch_add(more, Ordering::Relaxed);
            waiting.in_memory.fetch_sub(less, Ordering::Relaxed);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes tile number `number`. The caller whose tile other tiles wait for writes those too, and keeps their buffers.
    pub(super) fn put(
        &self,
        number: u64,
        tile: Encoded,
        sink: &dyn Sink,
        spare: &mut Vec<Vec<u8>>,
    ) -> Result<(), Error> {
        let tile = self.set_aside(number, tile, spare)?;
        let mut ready = Vec::new();
        let (mut more, mut less) = (0, 0);
        {
            let mut state = self.lock();
            if let WaitingTile::Memory(tile) = &tile {
                more += tile.bytes.len() as u64;
            }
            state.waiting.insert(number, tile);
            loop {
                let next = state.next;
                let Some(tile) = state.waiting.remove(&next) else { break };
                state.next += 1;
                let (len, moments) = match &tile {
                    WaitingTile::Memory(tile) => (tile.bytes.len() as u64, &tile.moments),
                    WaitingTile::Disk(extent, moments) => (extent.len(), moments),
                };
                for (band, moments) in moments {
                    state.sum(usize::from(*band), moments)?;
                }
                let offset = self.reserve(&mut state, len)?;
                if len == 0 {
                    continue;
                }
                if let WaitingTile::Memory(tile) = &tile {
                    less += len;
                    if self.buffered {
                        memory::append(&mut state.buffer, &tile.bytes)?;
                    }
                }
                ready.push((self.start + offset, tile));
            }
        }
        self.count(more, less);
        for (offset, tile) in ready {
            let bytes = match (tile, &self.waiting) {
                (WaitingTile::Memory(tile), _) => tile.bytes,
                (WaitingTile::Disk(extent, _), Some(waiting)) => {
                    let mut bytes = spare.pop().unwrap_or_default();
                    waiting.spill.take(extent, &mut bytes)?;
                    bytes
                }
                (WaitingTile::Disk(..), None) => {
                    return Err(Error::internal("a tile waits on disk, but there is no spill file"));
                }
            };
            if !self.buffered {
                sink.write_at(offset, &bytes)?;
            }
            spare.push(bytes);
        }
        spare.truncate(SPARE);
        Ok(())
    }

    /// Registers the next tile, whose `len` bytes (frame included; 0 if it is left out) the caller writes to the file, or passes to
    /// [`LevelWriter::buffer`]. Returns their offset within the level.
    ///
    /// # Errors
    /// When the tile cannot be one of this level, which is a fault of the writer.
    pub(super) fn register(&self, len: u64, moments: &[Moments]) -> Result<u64, Error> {
        let mut state = self.lock();
        state.next += 1;
        for (band, moments) in moments.iter().enumerate() {
            state.sum(band, moments)?;
        }
        self.reserve(&mut state, len)
    }

    /// Stores bytes of a buffered level.
    ///
    /// # Errors
    /// When the system has no memory for them.
    pub(super) fn buffer(&self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        let mut state = self.lock();
        let (start, end) = (offset as usize, offset as usize + bytes.len());
        if state.buffer.len() < end {
            let missing = end - state.buffer.len();
            state.buffer.try_reserve(missing).map_err(|_| Error::no_memory(end))?;
            state.buffer.resize(end, 0);
        }
        let place = state.buffer.get_mut(start..end);
        place.ok_or_else(|| Error::internal("a buffered level is shorter than planned"))?.copy_from_slice(bytes);
        Ok(())
    }

    /// Bytes of the level so far.
    pub(super) fn len(&self) -> u64 {
        self.lock().len
    }

    /// Whether its bytes stay in memory until the end.
    pub(super) fn is_buffered(&self) -> bool {
        self.buffered
    }

    /// Offset of the level's bytes while the file is written.
    pub(super) fn start(&self) -> u64 {
        self.start
    }

    /// Takes the bytes of a buffered level.
    pub(super) fn take_buffer(&self) -> Vec<u8> {
        std::mem::take(&mut self.lock().buffer)
    }

    /// Returns all tiles.
    ///
    /// # Errors
    /// When the level has a file.
    pub(super) fn into_tiles(self) -> Result<BufferedTiles, Error> {
        let state = self.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        let len = |tile: &Option<(u64, u32)>| tile.map_or(0, |(_, len)| len + self.frame as u32);
        let lens = state.tiles.iter().map(len).collect();
        let moments = state.each.ok_or_else(|| Error::internal("the tiles of a level are in its file"))?;
        Ok(BufferedTiles { lens, bytes: state.buffer, moments })
    }

    /// Statistics of each band.
    pub(super) fn moments(&self) -> Vec<Moments> {
        self.lock().moments.clone()
    }

    /// Offset and length of each tile in the order they were numbered, once the level begins at `start`.
    pub(super) fn tiles(&self, start: u64) -> Vec<(u64, u32)> {
        let leader = self.frame / 2;
        let place = |tile: &Option<(u64, u32)>| match tile {
            Some((offset, len)) => (start + offset + leader, *len),
            None => (0, 0),
        };
        self.lock().tiles.iter().map(place).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use swath_io::MemorySink;

    fn tile(byte: u8, len: usize) -> Encoded {
        Encoded { bytes: vec![byte; len], moments: Vec::new() }
    }

    #[test]
    fn tiles_are_written_in_order_however_they_arrive() {
        let (sink, memory) = MemorySink::new("memory");
        let level = LevelWriter::new(10, 0, false, 0, 6);
        for (number, encoded) in [(2, tile(3, 1)), (1, tile(0, 0)), (0, tile(1, 2)), (3, tile(4, 3))] {
            level.put(number, encoded, &sink, &mut Vec::new()).unwrap();
        }
        assert_eq!(level.tiles(100), [(100, 2), (0, 0), (102, 1), (103, 3)]);
        Box::new(sink).commit(16).unwrap();
        assert_eq!(memory.take().unwrap()[10..], [1, 1, 3, 4, 4, 4]);
    }

    #[test]
    fn leader_and_trailer_do_not_count() {
        let (sink, _) = MemorySink::new("memory");
        let level = LevelWriter::new(0, 8, true, 0, 20);
        level.put(0, tile(1, 20), &sink, &mut Vec::new()).unwrap();
        assert_eq!((level.tiles(0), level.take_buffer().len()), (vec![(4, 12)], 20));
    }

    fn assert_internal<T: std::fmt::Debug>(result: Result<T, Error>) {
        let error = result.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Internal(_)), "{error}");
    }

    #[test]
    fn a_level_does_not_outgrow_its_room() {
        let (sink, _) = MemorySink::new("memory");
        let level = LevelWriter::new(0, 0, false, 0, 5);
        level.put(0, tile(1, 3), &sink, &mut Vec::new()).unwrap();
        assert_internal(level.put(1, tile(1, 3), &sink, &mut Vec::new()));
        let level = LevelWriter::new(0, 0, false, 0, 5);
        assert_eq!(level.register(5, &[]).unwrap(), 0);
        assert_eq!(level.register(0, &[]).unwrap(), 5);
        assert_internal(level.register(1, &[]));
    }

    #[test]
    fn a_tile_that_is_only_a_frame_is_not_left_out() {
        let (sink, _) = MemorySink::new("memory");
        let level = || LevelWriter::new(0, 8, true, 0, 100);
        for len in [1, 7, 8] {
            assert_internal(level().register(len, &[]));
            assert_internal(level().put(0, tile(1, len as usize), &sink, &mut Vec::new()));
        }
    }

    #[test]
    fn statistics_of_a_band_that_the_level_lacks_are_not_lost() {
        let moments = [Moments::default(); 3];
        assert_internal(LevelWriter::new(0, 0, true, 2, 100).register(1, &moments));
        let level = LevelWriter::without_file(0);
        level.register(1, &moments).unwrap();
        assert_eq!(level.into_tiles().unwrap().moments.len(), 3);
        assert_internal(LevelWriter::new(0, 0, true, 2, 100).into_tiles());
    }
}
