//! Tasks of a read: tiles, where their bytes are, and where their samples go.

use std::{ops::Range, sync::Arc};

use swath_codec::host::{Take, Target};
use swath_tiff::Window;

use crate::state::spare::SampleBuffer;

/// One tile of one plane.
pub(crate) struct TilePart {
    pub(crate) index: u64,
    pub(crate) bytes: TileBytes,
    pub(crate) take: Arc<Take>,
}

/// Where a tile's samples come from.
#[derive(Clone)]
pub(crate) enum TileBytes {
    /// The tile is sparse.
    Sparse,
    /// A range of the file; with `keep`, the decoded tile goes into the cache.
    At { range: Range<u64>, keep: bool },
    /// A range of the file that is decoded from where an earlier window ended, and only as far as this window.
    Continued(Range<u64>),
    /// The cache.
    Cached(Arc<SampleBuffer>),
}

impl TilePart {
    pub(crate) fn range(&self) -> Option<&Range<u64>> {
        match &self.bytes {
            TileBytes::At { range, .. } => Some(range),
            _ => None,
        }
    }
}

/// One rectangle of the output and the tiles that fill it.
pub(crate) struct Task<'a> {
    pub(crate) parts: Vec<TilePart>,
    pub(crate) rows: u32,
    pub(crate) inside: Window,
    pub(crate) target: Target<'a>,
}

impl Task<'_> {
    /// The bytes in the file of the tiles that are decoded.
    pub(crate) fn ranges_to_decode(&self) -> impl Iterator<Item = &Range<u64>> {
        self.parts.iter().filter_map(|part| match &part.bytes {
            TileBytes::At { range, .. } | TileBytes::Continued(range) => Some(range),
            TileBytes::Sparse | TileBytes::Cached(_) => None,
        })
    }
}

/// Reads of the file, and the tasks that use their bytes. Tasks of one part share one read; a task of several parts has a read for each.
pub(crate) struct ReadJob<'a> {
    pub(crate) reads: Vec<Range<u64>>,
    pub(crate) tasks: Vec<Task<'a>>,
}
