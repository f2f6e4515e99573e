//! Where the tiles of one level go: in order, each as soon as those before it are there.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use swath_codec::pre::moments::Moments;
use swath_io::Sink;

use crate::error::Error;

/// Buffers a thread keeps for the next tiles.
const SPARE: usize = 2;

/// A tile on its way to the file.
#[derive(Debug, Default)]
pub(super) struct Encoded {
    /// Its bytes, with leader and trailer where the file has them; empty for a tile that is left out.
    pub bytes: Vec<u8>,
    /// What its samples are like, for each band it holds.
    pub moments: Vec<(u16, Moments)>,
}

/// Where the tiles of one level go.
#[derive(Debug)]
pub(super) struct Lane {
    /// Bytes before and after each tile that its count leaves out.
    frame: u64,
    /// Kept in memory until the end rather than written at once.
    held: bool,
    start: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    waiting: BTreeMap<u64, Encoded>,
    len: u64,
    /// Start of each tile within the level's own bytes, frame included; `None` for one that was left out.
    tiles: Vec<Option<(u64, u32)>>,
    moments: Vec<Moments>,
    /// What the samples of each tile are like, where tiles are to be taken elsewhere.
    each: Option<Vec<Moments>>,
    kept: Vec<u8>,
}

impl State {
    fn sum(&mut self, band: usize, moments: &Moments) {
        if let Some(sum) = self.moments.get_mut(band) {
            sum.add(moments);
        }
        if let Some(each) = &mut self.each {
            each.push(*moments);
        }
    }
}

/// Tiles that were kept to be taken elsewhere.
#[derive(Debug, Default)]
pub(super) struct Kept {
    /// Bytes of each tile, frame included; 0 for one that was left out.
    pub lens: Vec<u32>,
    pub bytes: Vec<u8>,
    /// What the samples of each position are like, band by band.
    pub moments: Vec<Moments>,
}

impl Lane {
    /// A lane that leads to no file: everything is kept for [`Lane::into_kept`].
    pub(super) fn kept(frame: u64) -> Self {
        let state = State { each: Some(Vec::new()), ..State::default() };
        Self { frame, held: true, start: 0, state: Mutex::new(state) }
    }

    pub(super) fn new(start: u64, frame: u64, held: bool, bands: u16) -> Self {
        let moments = vec![Moments::default(); bands.into()];
        Self { frame, held, start, state: Mutex::new(State { moments, ..State::default() }) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes tile number `number`. Whoever brings the tile that others wait for writes those too, and keeps their buffers.
    pub(super) fn put(
        &self,
        number: u64,
        tile: Encoded,
        sink: &dyn Sink,
        spare: &mut Vec<Vec<u8>>,
    ) -> Result<(), Error> {
        let mut ready = Vec::new();
        {
            let mut state = self.lock();
            state.waiting.insert(number, tile);
            loop {
                let next = state.next;
                let Some(tile) = state.waiting.remove(&next) else { break };
                state.next += 1;
                for (band, moments) in &tile.moments {
                    state.sum(usize::from(*band), moments);
                }
                if tile.bytes.is_empty() {
                    state.tiles.push(None);
                    continue;
                }
                let (offset, len) = (state.len, tile.bytes.len() as u64);
                state.len += len;
                state.tiles.push(Some((offset, (len - self.frame) as u32)));
                if self.held {
                    state.kept.extend_from_slice(&tile.bytes);
                    spare.push(tile.bytes);
                } else {
                    ready.push((self.start + offset, tile.bytes));
                }
            }
        }
        for (offset, bytes) in ready {
            sink.write_at(offset, &bytes)?;
            spare.push(bytes);
        }
        spare.truncate(SPARE);
        Ok(())
    }

    /// Takes note of the next tile, whose `len` bytes (frame included; 0 if it is left out) the caller brings to the file, or
    /// with [`Lane::keep`] here. Returns where they go within the level's own bytes.
    pub(super) fn admit(&self, len: u64, moments: &[Moments]) -> u64 {
        let mut state = self.lock();
        state.next += 1;
        for (band, moments) in moments.iter().enumerate() {
            state.sum(band, moments);
        }
        let offset = state.len;
        let place = (len > 0).then(|| (offset, len.saturating_sub(self.frame) as u32));
        state.tiles.push(place);
        state.len += len;
        offset
    }

    /// Keeps bytes of a level that is held.
    pub(super) fn keep(&self, offset: u64, bytes: &[u8]) {
        let mut state = self.lock();
        let (start, end) = (offset as usize, offset as usize + bytes.len());
        if state.kept.len() < end {
            state.kept.resize(end, 0);
        }
        if let Some(place) = state.kept.get_mut(start..end) {
            place.copy_from_slice(bytes);
        }
    }

    /// Bytes of the level so far.
    pub(super) fn len(&self) -> u64 {
        self.lock().len
    }

    /// Whether its bytes are in memory until the end.
    pub(super) fn is_held(&self) -> bool {
        self.held
    }

    /// Where its bytes were written to.
    pub(super) fn start(&self) -> u64 {
        self.start
    }

    /// The bytes of a level that was held.
    pub(super) fn take_kept(&self) -> Vec<u8> {
        std::mem::take(&mut self.lock().kept)
    }

    /// Everything that was kept.
    pub(super) fn into_kept(self) -> Kept {
        let state = self.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        let len = |tile: &Option<(u64, u32)>| tile.map_or(0, |(_, len)| len + self.frame as u32);
        let lens = state.tiles.iter().map(len).collect();
        Kept { lens, bytes: state.kept, moments: state.each.unwrap_or_default() }
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
    use swath_io::MemorySink;

    fn tile(byte: u8, len: usize) -> Encoded {
        Encoded { bytes: vec![byte; len], moments: Vec::new() }
    }

    #[test]
    fn tiles_lie_in_order_however_they_come() {
        let (sink, memory) = MemorySink::new("memory");
        let lane = Lane::new(10, 0, false, 0);
        for (number, encoded) in [(2, tile(3, 1)), (1, tile(0, 0)), (0, tile(1, 2)), (3, tile(4, 3))] {
            lane.put(number, encoded, &sink, &mut Vec::new()).unwrap();
        }
        assert_eq!(lane.tiles(100), [(100, 2), (0, 0), (102, 1), (103, 3)]);
        Box::new(sink).commit(16).unwrap();
        assert_eq!(memory.take().unwrap()[10..], [1, 1, 3, 4, 4, 4]);
    }

    #[test]
    fn leader_and_trailer_do_not_count() {
        let (sink, _) = MemorySink::new("memory");
        let lane = Lane::new(0, 8, true, 0);
        lane.put(0, tile(1, 20), &sink, &mut Vec::new()).unwrap();
        assert_eq!((lane.tiles(0), lane.take_kept().len()), (vec![(4, 12)], 20));
    }
}
