//! Decoded tiles that several windows share.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use swath_io::fork::{Once, PerProcess};

use super::spare::SampleBuffer;

/// Directory and number of a tile.
type Key = (u32, u64);

/// Least memory that all files share by default.
const LEAST: u64 = 256 << 20;
/// All files share the machine's memory divided by this number, as GDAL's block cache does.
const SHARE: u64 = 20;

/// Decoded tiles, up to a budget, as one file sees them. Neighbouring and overlapping windows find the tiles they share here. A
/// read of a local file does not use the cache for tiles that it covers wholly. Files without a budget of their own share one, so
/// that many open files take no more memory than one. Closing a file frees its tiles.
#[derive(Debug)]
pub(crate) struct TileCache {
    /// The tiles of this file alone; `None` where it uses the common store.
    own: Option<TileStore>,
    owner: u64,
    hits: AtomicU64,
}

/// Tiles of one or all files, up to a budget.
#[derive(Debug)]
struct TileStore {
    budget: usize,
    tiles: PerProcess<Mutex<Tiles>>,
}

#[derive(Debug, Default)]
struct Tiles {
    map: HashMap<(u64, Key), CacheEntry>,
    bytes: usize,
    clock: u64,
}

#[derive(Debug)]
struct CacheEntry {
    tile: Arc<SampleBuffer>,
    used: u64,
}

impl TileCache {
    /// A cache with a budget of its own, or a share of the common one.
    pub(crate) fn new(own: Option<usize>) -> Self {
        static OWNERS: AtomicU64 = AtomicU64::new(0);
        Self { own: own.map(TileStore::new), owner: OWNERS.fetch_add(1, Ordering::Relaxed), hits: AtomicU64::new(0) }
    }

    fn store(&self) -> &TileStore {
        self.own.as_ref().unwrap_or_else(|| common_store())
    }

    /// The budget of this file; `None` where it shares the common one.
    pub(crate) fn own_budget(&self) -> Option<usize> {
        self.own.as_ref().map(|store| store.budget)
    }

    /// Whether a tile of `len` bytes may be kept. `all` is the size of its image in bytes. An image that takes no more than half of the budget may
    /// be kept whole, even if it is a single strip.
    pub(crate) fn admits(&self, len: usize, all: u64) -> bool {
        self.takes_easily(len) || all <= self.store().budget as u64 / 2
    }

    /// Whether a tile of this size leaves room for others.
    pub(crate) fn takes_easily(&self, len: usize) -> bool {
        len <= self.store().budget / 8
    }

    /// Whether all tiles of a window of this size may be kept. More would push out tiles that other windows need again.
    pub(crate) fn admits_window(&self, len: u64) -> bool {
        len <= self.store().budget as u64 / 4
    }

    /// Number of tiles found in the cache so far.
    pub(crate) fn hits(&self) -> u64 {
        self.hits.load(Ordering::Relaxed)
    }

    pub(crate) fn get(&self, key: Key) -> Option<Arc<SampleBuffer>> {
        let mut tiles = self.store().tiles();
        tiles.clock += 1;
        let clock = tiles.clock;
        let entry = tiles.map.get_mut(&(self.owner, key))?;
        entry.used = clock;
        self.hits.fetch_add(1, Ordering::Relaxed);
        Some(entry.tile.clone())
    }

    pub(crate) fn insert(&self, key: Key, tile: Arc<SampleBuffer>) {
        let budget = self.store().budget;
        let mut tiles = self.store().tiles();
        tiles.clock += 1;
        let used = tiles.clock;
        tiles.bytes += tile.len();
        if let Some(old) = tiles.map.insert((self.owner, key), CacheEntry { tile, used }) {
            tiles.bytes -= old.tile.len();
        }
        if tiles.bytes > budget {
            tiles.drop_oldest(budget - budget / 8);
        }
    }
}

impl Drop for TileCache {
    fn drop(&mut self) {
        if self.own.is_some() {
            return;
        }
        let mut tiles = self.store().tiles();
        if tiles.bytes == 0 {
            return;
        }
        let mut freed = 0;
        tiles.map.retain(|(owner, _), entry| {
            let stays = *owner != self.owner;
            freed += if stays { 0 } else { entry.tile.len() };
            stays
        });
        tiles.bytes -= freed;
    }
}

impl TileStore {
    fn new(budget: usize) -> Self {
        Self { budget, tiles: PerProcess::new() }
    }

    fn tiles(&self) -> MutexGuard<'_, Tiles> {
        self.tiles.get().lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tiles {
    /// Drops the tiles that were used longest ago, an eighth of the budget at a time so that it is seldom done.
    fn drop_oldest(&mut self, down_to: usize) {
        let mut by_age: Vec<(u64, (u64, Key))> = self.map.iter().map(|(key, entry)| (entry.used, *key)).collect();
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

/// The store of all files without a budget of their own.
fn common_store() -> &'static TileStore {
    static COMMON: Once<TileStore> = Once::new();
    COMMON.get_or_init(|| TileStore::new(common_budget()))
}

/// The budget that files share.
pub(crate) fn shared_budget() -> usize {
    common_store().budget
}

fn common_budget() -> usize {
    let share = machine_memory().unwrap_or(0) / SHARE;
    usize::try_from(share.max(LEAST)).unwrap_or(usize::MAX)
}

/// Memory that this process may use: the machine's, or less if its control group limits it; `None` where the system has no file that
/// says so.
fn machine_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let total = total.trim().trim_end_matches("kB").trim().parse::<u64>().ok()?.checked_mul(1024)?;
    let group = std::fs::read_to_string("/sys/fs/cgroup/memory.max").ok().and_then(|text| text.trim().parse().ok());
    Some(group.map_or(total, |limit: u64| limit.min(total)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stays_under_its_budget_and_keeps_what_is_used() {
        let cache = TileCache::new(Some(1000));
        assert!(cache.admits(125, 10_000) && !cache.admits(126, 10_000));
        assert!(cache.admits(500, 500) && !cache.admits(501, 501));
        for index in 0..100 {
            cache.insert((0, index), Arc::new(SampleBuffer::new(100).unwrap()));
            assert!(cache.get((0, 0)).is_some(), "a tile in use must stay");
            assert!(cache.store().tiles().bytes <= 1000);
        }
        assert!(cache.get((0, 1)).is_none());
    }

    #[test]
    fn same_tile_twice_counts_once() {
        let cache = TileCache::new(Some(1000));
        for _ in 0..100 {
            cache.insert((0, 7), Arc::new(SampleBuffer::new(100).unwrap()));
        }
        assert_eq!(cache.store().tiles().bytes, 100);
    }

    #[test]
    fn files_share_a_store_and_closing_one_frees_its_tiles() {
        let (first, second) = (TileCache::new(None), TileCache::new(None));
        let tile = || Arc::new(SampleBuffer::new(1 << 20).unwrap());
        first.insert((0, 1), tile());
        second.insert((0, 1), tile());
        second.insert((0, 2), tile());
        assert!(first.get((0, 2)).is_none() && second.get((0, 2)).is_some());
        let bytes = || first.store().tiles().map.keys().filter(|(owner, _)| *owner == second.owner).count();
        assert_eq!(bytes(), 2);
        let owner = second.owner;
        drop(second);
        let tiles = first.store().tiles();
        assert!(tiles.map.keys().all(|(other, _)| *other != owner));
        drop(tiles);
        assert!(first.get((0, 1)).is_some());
    }

    #[test]
    fn the_common_budget_follows_the_machine() {
        assert!(common_budget() as u64 >= LEAST);
    }
}
