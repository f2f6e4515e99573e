//! Reads the tag by which our files say that their Deflate tiles are cut into pieces that can be decoded in parallel.
//!
//! The tag is a hint: the device checks it, and a tag that cannot be right is ignored.

use std::ops::Range;

use swath_cuda::decode::are_possible_pieces;
use swath_tiff::{
    Compression,
    structure::{Table, value::FieldType},
    tag,
};

use crate::{fetch::Fetch, open::image::Image};

/// Decoded bytes that a piece may have.
const PIECE_LENS: Range<u64> = 16 << 10..(1 << 20) + 1;
/// Bytes of the hint that are read for a read of the image. Where more would be needed, there are tiles enough to keep
/// a device busy.
const MOST_BYTES: u64 = 16 << 20;

/// The sizes of the pieces of the tiles of a read.
#[derive(Debug)]
pub(super) struct PieceSizes {
    piece_len: usize,
    /// Sizes for each tile.
    each: usize,
    /// Runs of tiles: the number of the first, and the sizes of all. Sorted.
    runs: Vec<(u64, Vec<u64>)>,
}

impl PieceSizes {
    /// The file's list of pieces for these runs of tiles, if it has one that can be right.
    pub(super) fn find(image: &Image, tiles: Vec<Range<u64>>, fetch: &Fetch) -> Option<Self> {
        let layout = &image.layout;
        let entry = image.ifd.entry(tag::SWATH_PIECES)?;
        if layout.compression != Compression::Deflate || entry.kind != FieldType::Long {
            return None;
        }
        let table = Table::new(entry, layout.order)?;
        if table.byte_range(0..table.len()).end > fetch.size() {
            return None;
        }
        let read = |entries: Range<u64>| {
            let wanted = entries.end - entries.start;
            let found = table.decode(&fetch.bytes(table.byte_range(entries)).ok()?);
            (found.len() as u64 == wanted).then_some(found)
        };
        let piece_len = read(0..1)?.first().copied()?;
        if !PIECE_LENS.contains(&piece_len) || !piece_len.is_power_of_two() {
            return None;
        }
        let whole = layout.stored_len(image.grid.stored_rows(0))?;
        let each = whole.div_ceil(piece_len).saturating_sub(1);
        if each == 0 || each.checked_mul(image.grid.count())?.checked_add(1)? != table.len() {
            return None;
        }
        let mut runs = Vec::new();
        let mut room = MOST_BYTES / 4;
        for run in tiles {
            room = room.checked_sub((run.end - run.start).checked_mul(each)?)?;
            runs.push((run.start, read(1 + run.start * each..1 + run.end * each)?));
        }
        runs.sort_by_key(|(first, _)| *first);
        let has_pieces = runs.iter().any(|(_, sizes)| sizes.iter().any(|size| *size > 0));
        has_pieces.then_some(Self { piece_len: piece_len as usize, each: each as usize, runs })
    }

    /// Returns the decoded length of the pieces of a tile, and the stored lengths of all but the last.
    pub(super) fn of(&self, tile: u64, stream_len: u64, decoded_len: u64) -> Option<(usize, Vec<u32>)> {
        let after = self.runs.partition_point(|(first, _)| *first <= tile);
        let (first, sizes) = self.runs.get(after.checked_sub(1)?)?;
        let at = usize::try_from(tile - first).ok()?.checked_mul(self.each)?;
        // A strip at the end has fewer pieces than the others.
        let count = usize::try_from(decoded_len.div_ceil(self.piece_len as u64)).ok()?.checked_sub(1)?.min(self.each);
        let sizes: Vec<u32> = sizes.get(at..at + count)?.iter().map(|size| *size as u32).collect();
        let possible = count > 0 && are_possible_pieces(stream_len, decoded_len, self.piece_len, &sizes);
        possible.then_some((self.piece_len, sizes))
    }
}
