//! What reads met that is no error, told once.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
};

use swath_io::fork::PerProcess;
use swath_tiff::Place;

use crate::image::Image;

/// What was remarkable about the tiles of one file since it was last asked for.
#[derive(Debug, Default)]
pub(crate) struct Remarks(PerProcess<Mutex<Option<Met>>>);

#[derive(Debug)]
struct Met {
    place: Place,
    detail: String,
    /// Directories and numbers of all tiles it was met in: `place` and `detail` are the first one's.
    tiles: BTreeSet<(u32, u64)>,
}

impl Remarks {
    pub(crate) fn add(&self, image: &Image, tile: u64, detail: String) {
        let mut met = self.0.get().lock().unwrap_or_else(PoisonError::into_inner);
        let met =
            met.get_or_insert_with(|| Met { place: Place::default(), detail: String::new(), tiles: BTreeSet::new() });
        let key = (image.index, tile);
        if met.tiles.first().is_none_or(|first| key < *first) {
            (met.place, met.detail) = (image.place_of(tile), detail);
        }
        met.tiles.insert(key);
    }

    /// One sentence for all tiles, with the first one's place.
    pub(crate) fn take(&self, name: &Arc<str>) -> Option<String> {
        let Met { place, detail, tiles } = self.0.get().lock().unwrap_or_else(PoisonError::into_inner).take()?;
        let place = Place { source: Some(name.clone()), ..place };
        Some(match tiles.len() {
            1 => format!("{place}: {detail}"),
            count => format!("{place}: {detail} ({count} tiles or strips are like that)"),
        })
    }
}
