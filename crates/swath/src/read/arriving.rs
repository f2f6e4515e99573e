//! Decides which of a read's tiles it fetches itself, and which another read is fetching already.

use super::{
    context::ReadContext,
    task::{Task, TileBytes},
};
use crate::state::arriving::{ClaimedTiles, Key};

/// Which tasks wait for which tiles.
pub(crate) struct Claim<'o, 't> {
    /// Tasks whose tiles are in the cache.
    pub(crate) at_hand: Vec<Task<'t>>,
    /// Tasks whose tiles this read fetches, and no other.
    pub(crate) mine: Vec<Task<'t>>,
    /// Tasks whose tiles another read is fetching.
    pub(crate) late: Vec<Task<'t>>,
    pub(crate) claimed: ClaimedTiles<'o>,
}

/// Returns the tile of a task of one part, if the cache should keep it.
fn key(context: &ReadContext<'_>, task: &Task<'_>) -> Option<Key> {
    let part = task.parts.first()?;
    matches!(part.bytes, TileBytes::At { keep: true, .. }).then_some((context.image.index, part.index))
}

/// Sorts tasks by the read that fetches their tiles. Every read fetches for itself the tiles that the cache does not keep. A read that
/// has `waited` also fetches tiles that the other read failed to bring: otherwise one read after the other would wait for a server
/// that does not answer.
pub(crate) fn claim<'o, 't>(context: &ReadContext<'o>, tasks: Vec<Task<'t>>, waited: bool) -> Claim<'o, 't> {
    let mut claims = context.arriving.claims();
    let (mut at_hand, mut mine, mut late) = (Vec::new(), Vec::new(), Vec::new());
    for mut task in tasks {
        let Some(key) = key(context, &task) else {
            mine.push(task);
            continue;
        };
        let cached = context.cache.get(key);
        if let (Some(cached), Some(part)) = (cached, task.parts.first_mut()) {
            part.bytes = TileBytes::Cached(cached);
            at_hand.push(task);
        } else if waited || claims.claim(key) {
            mine.push(task);
        } else {
            late.push(task);
        }
    }
    Claim { at_hand, mine, late, claimed: claims.into_claimed() }
}

/// Waits until no read is fetching the tiles of these tasks, or the caller cancels.
pub(crate) fn wait(context: &ReadContext<'_>, tasks: &[Task<'_>], given_up: &dyn Fn() -> bool) {
    let keys: Vec<Key> = tasks.iter().filter_map(|task| key(context, task)).collect();
    context.arriving.wait(&keys, given_up);
}
