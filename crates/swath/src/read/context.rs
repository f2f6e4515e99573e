//! Everything about a read that does not change while it runs.

use swath_codec::host::Host;
use swath_io::coalesce::Merge;
use swath_tiff::{Compression, Window};

use crate::{
    cancel::Cancel,
    fetch::Fetch,
    open::image::Image,
    raster::Interleave,
    state::{
        arriving::Arriving,
        cache::TileCache,
        positions::Positions,
        scratch::{self, ScratchPool},
        tile_warnings::TileWarnings,
    },
};

/// Everything about a read that does not change while it runs.
pub(crate) struct ReadContext<'a> {
    pub(crate) fetch: &'a Fetch,
    pub(crate) image: &'a Image,
    pub(crate) host: &'a Host,
    pub(crate) window: Window,
    /// Samples to read, counted from 0.
    pub(crate) bands: &'a [u16],
    pub(crate) interleave: Interleave,
    /// One sample of a sparse tile.
    pub(crate) fill: &'a [u8],
    /// Whether the output is known to hold zeros.
    pub(crate) zeroed: bool,
    pub(crate) threads: usize,
    /// Requests that may be in flight at once, for a remote file.
    pub(crate) in_flight: usize,
    pub(crate) cancel: Option<&'a Cancel>,
    pub(crate) pool: &'a ScratchPool,
    /// Keeps tiles that the window covers in part.
    pub(crate) cache: &'a TileCache,
    /// Whether this is the only read of the file so far.
    pub(crate) lone: bool,
    /// Tiles that other reads of the file are fetching.
    pub(crate) arriving: &'a Arriving,
    /// Collects warnings about tiles.
    pub(crate) warnings: &'a TileWarnings,
    /// Decoders of strips that are not kept, where earlier windows ended.
    pub(crate) positions: &'a Positions,
}

impl ReadContext<'_> {
    /// When neighbouring tiles are read together.
    pub(crate) fn merge(&self) -> Merge {
        let mut merge = self.fetch.access.merge;
        if !self.fetch.access.is_remote() {
            // Enough jobs for every thread to draw several, so that they end together.
            merge.max_len = (self.fetch.size() / (self.threads as u64 * 8)).clamp(32 << 10, merge.max_len);
        } else if self.image.layout.compression == Compression::None {
            // Unneeded rows lie between those of neighbouring tiles: reading them along is cheaper than many requests.
            (merge.gap, merge.waste) = (1 << 20, 50);
        }
        merge
    }

    /// Whether decoded tiles of `rows` rows are kept for other windows.
    pub(crate) fn keeps(&self, rows: u32) -> bool {
        let len = self.host.native_len(rows);
        let image = &self.image.layout;
        let all = self.image.decoded_len(&Window::new(0, 0, image.width, image.height));
        if self.host.spec().compression == Compression::None || !self.cache.admits(len, all) {
            return false;
        }
        // The first window may be the only one, so tiles are kept from the second on. Tiles of a remote file are worth keeping from
        // the first, and so is a large strip that has to be decoded whole in any case, because its memory is not used again.
        !self.lone || self.fetch.access.is_remote() || self.is_large(rows)
    }

    /// Whether a window of a strip may be decoded step by step, from where an earlier one ended: the strip is large, and its decoder
    /// can stop anywhere.
    pub(crate) fn may_continue(&self, rows: u32, inside: &Window) -> bool {
        let part = inside.height < rows && !self.image.layout.tiled && !self.fetch.access.is_remote();
        part && self.is_large(rows) && self.host.stream().is_some()
    }

    /// Whether a tile is decoded whole into memory of its own, however small the window.
    pub(crate) fn is_large(&self, rows: u32) -> bool {
        self.host.native_len(rows) > scratch::KEEP && self.host.rows_to_decode(rows, 1) == rows
    }
}
