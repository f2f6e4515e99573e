//! Decoded tiles that windows keep coming back to.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use swath_codec::memory::Buffer;

/// Directory and number of a tile.
type Key = (u32, u64);

/// Decoded tiles, up to a budget. Neighbouring and overlapping windows find the tiles they share here; a read that covers
/// tiles wholly neither fills nor asks it.
#[derive(Debug)]
pub(crate) struct TileCache {
    budget: usize,
    tiles: Mutex<Tiles>,
}

#[derive(Debug, Default)]
struct Tiles {
    map: HashMap<Key, Kept>,
    bytes: usize,
    clock: u64,
}

#[derive(Debug)]
struct Kept {
    tile: Arc<Buffer>,
    used: u64,
}

impl TileCache {
    pub(crate) fn new(budget: usize) -> Self {
        Self { budget, tiles: Mutex::default() }
    }

    pub(crate) fn budget(&self) -> usize {
        self.budget
    }

    /// Whether a tile of this size may be kept at all.
    pub(crate) fn admits(&self, len: usize) -> bool {
        len <= self.budget / 8
    }

    pub(crate) fn get(&self, key: Key) -> Option<Arc<Buffer>> {
        let mut tiles = self.tiles.lock().unwrap_or_else(PoisonError::into_inner);
        tiles.clock += 1;
        let clock = tiles.clock;
        let kept = tiles.map.get_mut(&key)?;
        kept.used = clock;
        Some(kept.tile.clone())
    }

    pub(crate) fn insert(&self, key: Key, tile: Arc<Buffer>) {
        let mut tiles = self.tiles.lock().unwrap_or_else(PoisonError::into_inner);
        tiles.clock += 1;
        let used = tiles.clock;
        tiles.bytes += tile.len();
        if let Some(old) = tiles.map.insert(key, Kept { tile, used }) {
            tiles.bytes -= old.tile.len();
        }
        if tiles.bytes > self.budget {
            tiles.drop_oldest(self.budget - self.budget / 8);
        }
    }
}

impl Tiles {
    /// Drops the tiles that were used longest ago, an eighth of the budget at a time so that it is seldom done.
    fn drop_oldest(&mut self, down_to: usize) {
        let mut by_age: Vec<(u64, Key)> = self.map.iter().map(|(key, kept)| (kept.used, *key)).collect();
        by_age.sort_unstable();
        for (_, key) in by_age {
            if self.bytes <= down_to {
                break;
            }
            if let Some(old) = self.map.remove(&key) {
                self.bytes -= old.tile.len();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stays_under_its_budget_and_keeps_what_is_used() {
        let cache = TileCache::new(1000);
        assert!(cache.admits(125) && !cache.admits(126));
        for index in 0..100 {
            cache.insert((0, index), Arc::new(Buffer::zeroed(100).unwrap()));
            assert!(cache.get((0, 0)).is_some(), "a tile in use must stay");
            assert!(cache.tiles.lock().unwrap().bytes <= 1000);
        }
        assert!(cache.get((0, 1)).is_none());
    }

    #[test]
    fn same_tile_twice_counts_once() {
        let cache = TileCache::new(1000);
        for _ in 0..100 {
            cache.insert((0, 7), Arc::new(Buffer::zeroed(100).unwrap()));
        }
        assert_eq!(cache.tiles.lock().unwrap().bytes, 100);
    }
}
