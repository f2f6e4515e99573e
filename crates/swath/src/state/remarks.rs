//! Remarks about tiles that decoded without an error, reported once.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
};

use swath_io::fork::PerProcess;
use swath_tiff::Place;

/// The remarks about the tiles of one file since the caller last took them.
#[derive(Debug, Default)]
pub(crate) struct Remarks(PerProcess<Mutex<Option<Remark>>>);

#[derive(Debug)]
struct Remark {
    place: Place,
    detail: String,
    /// Directories and numbers of all tiles with a remark; `place` and `detail` are the first one's.
    tiles: BTreeSet<(u32, u64)>,
}

impl Remarks {
    pub(crate) fn add(&self, ifd: u32, tile: u64, place: Place, detail: String) {
        let mut met = self.0.get().lock().unwrap_or_else(PoisonError::into_inner);
        let met = met.get_or_insert_with(|| Remark {
            place: Place::default(),
            detail: String::new(),
            tiles: BTreeSet::new(),
        });
        let key = (ifd, tile);
        if met.tiles.first().is_none_or(|first| key < *first) {
            (met.place, met.detail) = (place, detail);
        }
        met.tiles.insert(key);
    }

    /// One sentence for all tiles, with the first one's place.
    pub(crate) fn take(&self, name: &Arc<str>) -> Option<String> {
        let Remark { place, detail, tiles } = self.0.get().lock().unwrap_or_else(PoisonError::into_inner).take()?;
        let place = Place { source: Some(name.clone()), ..place };
        Some(match tiles.len() {
            1 => format!("{place}: {detail}"),
            count => format!("{place}: {detail} ({count} tiles or strips are like that)"),
        })
    }
}
