//! What the threads of a read on a GPU share.

use swath_codec::host::Host;

use super::{direct::Direct, plan::Unit};
use crate::{cancel::Cancel, fetch::Fetch, open::image::Image, state::tile_warnings::TileWarnings};

/// Everything about a read that does not change while it runs.
pub(super) struct DeviceReadContext<'a> {
    pub(super) fetch: &'a Fetch,
    pub(super) image: &'a Image,
    pub(super) host: &'a Host,
    pub(super) threads: usize,
    pub(super) cancel: Option<&'a Cancel>,
    pub(super) warnings: &'a TileWarnings,
    /// The file, where cuFile reads it.
    pub(super) direct: Option<&'a Direct>,
    /// Segments to insert behind the first marker of each tile, for libraries that need whole JPEG streams.
    pub(super) jpeg_tables: Vec<u8>,
}

/// Tiles that the device refused, and the bytes it had of them.
pub(super) struct Refused<'a> {
    pub(super) unit: &'a Unit,
    pub(super) stream: Option<Vec<u8>>,
    /// The reason.
    pub(super) reason: String,
    /// Whether the stream is certainly corrupt, even if the CPU's decoder does not notice.
    pub(super) damaged: bool,
}
