//! Warnings about tiles that decoded without an error, reported once.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
};

use swath_io::fork::PerProcess;
use swath_tiff::Place;

/// The warnings about the tiles of one file since the caller last took them.
#[derive(Debug, Default)]
pub(crate) struct TileWarnings(PerProcess<Mutex<Option<TileWarning>>>);

#[derive(Debug)]
struct TileWarning {
    place: Place,
    detail: String,
    /// Directories and numbers of all tiles with a warning; `place` and `detail` are the first one's.
    tiles: BTreeSet<(u32, u64)>,
}

impl TileWarnings {
    pub(crate) fn add(&self, ifd: u32, tile: u64, place: Place, detail: String) {
        let mut found = self.0.get().lock().unwrap_or_else(PoisonError::into_inner);
        let found = found.get_or_insert_with(|| TileWarning {
            place: Place::default(),
            detail: String::new(),
            tiles: BTreeSet::new(),
        });
        let key = (ifd, tile);
        if found.tiles.first().is_none_or(|first| key < *first) {
            (found.place, found.detail) = (place, detail);
        }
        found.tiles.insert(key);
    }

    /// One sentence for all tiles, with the first one's place.
    pub(crate) fn take(&self, name: &Arc<str>) -> Option<String> {
        let TileWarning { place, detail, tiles } =
            self.0.get().lock().unwrap_or_else(PoisonError::into_inner).take()?;
        let place = Place { source: Some(name.clone()), ..place };
        Some(match tiles.len() {
            1 => format!("{place}: {detail}"),
            count => format!("{place}: {detail} ({count} tiles or strips are affected)"),
        })
    }
}
