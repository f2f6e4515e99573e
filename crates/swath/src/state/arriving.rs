//! Tiles that a read is fetching now, so that other reads wait for them instead of fetching them again.

use std::{
    collections::HashSet,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use swath_io::fork::PerProcess;

/// Directory and number of a tile.
pub(crate) type Key = (u32, u64);

/// How often waiting reads check whether they were cancelled.
const PATIENCE: Duration = Duration::from_millis(50);

/// The tiles of one file that reads in this process are fetching now.
#[derive(Debug, Default)]
pub(crate) struct Arriving(PerProcess<Tiles>);

#[derive(Debug, Default)]
struct Tiles {
    keys: Mutex<HashSet<Key>>,
    landed: Condvar,
}

impl Tiles {
    fn lock(&self) -> MutexGuard<'_, HashSet<Key>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Arriving {
    /// Locks the list of tiles while a caller claims some of them.
    pub(crate) fn claims(&self) -> Claims<'_> {
        let claimed = ClaimedTiles { arriving: self, keys: Vec::new() };
        Claims { claimed, keys: self.0.get().lock() }
    }

    /// Waits until no read is fetching these tiles, or the caller cancels.
    pub(crate) fn wait(&self, keys: &[Key], given_up: &dyn Fn() -> bool) {
        let tiles = self.0.get();
        let mut coming = tiles.lock();
        while keys.iter().any(|key| coming.contains(key)) && !given_up() {
            coming = tiles.landed.wait_timeout(coming, PATIENCE).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// The locked list of tiles, and the tiles that the caller has claimed so far.
pub(crate) struct Claims<'o> {
    // Dropped first: giving claimed tiles back takes the lock.
    keys: MutexGuard<'o, HashSet<Key>>,
    claimed: ClaimedTiles<'o>,
}

impl<'o> Claims<'o> {
    /// Claims a tile. Returns `false` where another read is fetching it.
    pub(crate) fn claim(&mut self, key: Key) -> bool {
        let free = self.keys.insert(key);
        if free {
            self.claimed.keys.push(key);
        }
        free
    }

    /// Unlocks the list and returns the claimed tiles.
    pub(crate) fn into_claimed(self) -> ClaimedTiles<'o> {
        self.claimed
    }
}

/// The right to fetch some tiles. Reads that wait for them go on when it is dropped.
pub(crate) struct ClaimedTiles<'o> {
    arriving: &'o Arriving,
    keys: Vec<Key>,
}

impl Drop for ClaimedTiles<'_> {
    fn drop(&mut self) {
        let tiles = self.arriving.0.get();
        let mut keys = tiles.lock();
        self.keys.iter().for_each(|key| {
            keys.remove(key);
        });
        tiles.landed.notify_all();
    }
}
