//! Tiles that are on their way: whoever else wants one waits for it instead of fetching it again.

use std::{
    collections::HashSet,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use swath_io::fork::PerProcess;

use crate::{
    job::{Task, TileBytes},
    schedule::Order,
};

/// Directory and number of a tile.
type Key = (u32, u64);

/// How often those who wait look whether they still should.
const PATIENCE: Duration = Duration::from_millis(50);

/// The tiles of one file that reads of it, in this process, are fetching now.
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

/// Who fetches what.
pub(crate) struct Claim<'o, 't> {
    /// Tasks whose tiles are in the cache.
    pub(crate) at_hand: Vec<Task<'t>>,
    /// Tasks whose tiles the caller fetches, and nobody else.
    pub(crate) mine: Vec<Task<'t>>,
    /// Tasks whose tiles others are fetching.
    pub(crate) late: Vec<Task<'t>>,
    pub(crate) held: Held<'o>,
}

/// The right to fetch some tiles; others go on when it is dropped.
pub(crate) struct Held<'o> {
    arriving: &'o Arriving,
    keys: Vec<Key>,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let tiles = self.arriving.0.get();
        let mut keys = tiles.lock();
        self.keys.iter().for_each(|key| {
            keys.remove(key);
        });
        tiles.landed.notify_all();
    }
}

/// The tile that a task of one part wants kept.
fn key(order: &Order<'_>, task: &Task<'_>) -> Option<Key> {
    let part = task.parts.first()?;
    matches!(part.bytes, TileBytes::At { keep: true, .. }).then_some((order.image.index, part.index))
}

impl Arriving {
    /// Deals tasks out. What is not to be kept is fetched by everyone who wants it; so is, for those who have `waited`, what
    /// others did not bring: one after the other they would all wait for a server that does not answer.
    pub(crate) fn claim<'o, 't>(&'o self, order: &Order<'_>, tasks: Vec<Task<'t>>, waited: bool) -> Claim<'o, 't> {
        let held = Held { arriving: self, keys: Vec::new() };
        let mut claim = Claim { at_hand: Vec::new(), mine: Vec::new(), late: Vec::new(), held };
        let mut keys = self.0.get().lock();
        for mut task in tasks {
            let Some(key) = key(order, &task) else {
                claim.mine.push(task);
                continue;
            };
            let kept = order.cache.get(key);
            if let (Some(kept), Some(part)) = (kept, task.parts.first_mut()) {
                part.bytes = TileBytes::Cached(kept);
                claim.at_hand.push(task);
            } else if waited {
                claim.mine.push(task);
            } else if keys.insert(key) {
                claim.held.keys.push(key);
                claim.mine.push(task);
            } else {
                claim.late.push(task);
            }
        }
        claim
    }

    /// Waits until nobody is fetching the tiles of these tasks, or the caller gives up.
    pub(crate) fn wait(&self, order: &Order<'_>, tasks: &[Task<'_>], given_up: &dyn Fn() -> bool) {
        let keys: Vec<Key> = tasks.iter().filter_map(|task| key(order, task)).collect();
        let tiles = self.0.get();
        let mut coming = tiles.lock();
        while keys.iter().any(|key| coming.contains(key)) && !given_up() {
            coming = tiles.landed.wait_timeout(coming, PATIENCE).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
