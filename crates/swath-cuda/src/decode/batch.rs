//! A batch of tiles: where their bytes go on the device, and where their samples go.

use std::ops::Range;

use crate::{
    decode::{placing::PlaneLayout, plan::DecodePlan},
    driver::launch::{
        decode_batch::TileJob,
        inflate_pieces::{PieceJob, PieceRange},
        place::PlaceTile,
        slice::ALIGN,
    },
};

/// A rectangle of a tile, and its place in the output.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Placement {
    /// First column and row of the rectangle in the tile.
    pub from: (u32, u32),
    /// Its columns and rows.
    pub size: (u32, u32),
    /// Its first column and row in the output.
    pub to: (u32, u32),
    /// The output band that the first sample goes to.
    pub band: u32,
}

impl Placement {
    pub(crate) fn entry(&self) -> PlaceTile {
        PlaceTile {
            x: self.from.0,
            y: self.from.1,
            width: self.size.0,
            height: self.size.1,
            to_x: self.to.0,
            to_y: self.to.1,
            slot: self.band,
            ..PlaceTile::default()
        }
    }
}

/// Tiles of a batch that are launched together.
#[derive(Debug, Clone, Default)]
pub(crate) struct Group {
    pub(crate) tiles: Range<usize>,
    pub(crate) placements: Range<usize>,
    pub(crate) pieces: Range<usize>,
    pub(crate) rows: u32,
    /// The group's bytes of the compressed buffer.
    pub(crate) compressed: Range<usize>,
}

/// A batch of tiles with their placements.
#[derive(Debug, Clone, Default)]
pub struct DecodeBatch {
    pub(crate) tiles: Vec<TileJob>,
    pub(crate) placements: Vec<PlaceTile>,
    /// Where tiles are decoded in pieces: the pieces of each tile, then all pieces.
    pub(crate) ranges: Vec<PieceRange>,
    pub(crate) pieces: Vec<PieceJob>,
    pub(crate) groups: Vec<Group>,
    open: Group,
    pub(crate) first_status: usize,
    pub(crate) compressed: usize,
    pub(crate) decoded: usize,
    apart: bool,
    streams: bool,
    in_pieces: bool,
    pub(crate) chunks: bool,
    /// Where tiles are planes: their layout, and the samples that are placed.
    planes: Option<(PlaneLayout, Vec<u16>)>,
}

impl DecodeBatch {
    /// Returns an empty batch whose first tile is tile `first_status` of the read.
    pub fn new(plan: &DecodePlan, first_status: usize) -> Self {
        let path = plan.path;
        Self {
            first_status,
            planes: path.decodes_from_host().then(|| (PlaneLayout::new(&plan.spec), plan.samples.clone())),
            apart: path.decodes_apart(),
            streams: path.uploads_streams(),
            in_pieces: path.has_pieces(),
            chunks: path.has_chunks(),
            ..Self::default()
        }
    }

    /// Adds a tile. Returns where its bytes go: in the compressed buffer, or in the decoded buffer where the CPU
    /// decodes.
    pub fn tile(&mut self, stream_len: usize, decoded_len: usize) -> usize {
        let job = TileJob {
            src: self.compressed as u64,
            src_len: stream_len as u64,
            dst: self.decoded as u64,
            dst_len: decoded_len as u64,
        };
        if self.streams {
            self.compressed += stream_len.next_multiple_of(ALIGN) + ALIGN;
        }
        if self.apart {
            self.decoded += decoded_len.next_multiple_of(ALIGN) + ALIGN;
        }
        self.tiles.push(job);
        if self.in_pieces {
            self.ranges.push(PieceRange { first: self.pieces.len() as u32, count: 0 });
            self.set_pieces(decoded_len, &[]);
        }
        if self.streams { job.src as usize } else { job.dst as usize }
    }

    /// Sets the pieces of the last tile: the decoded length of each, and the stored lengths of all but the last.
    /// Kernels verify it. Sizes that cannot be true leave the tile in one piece.
    pub fn set_pieces(&mut self, piece_len: usize, sizes: &[u32]) {
        let (Some(tile), Some(range)) = (self.tiles.last(), self.ranges.last_mut()) else { return };
        self.pieces.truncate(range.first as usize);
        let (src_end, dst_end) = (tile.src + tile.src_len, tile.dst + tile.dst_len);
        let mut piece = PieceJob { src: tile.src + ZLIB_HEAD.min(tile.src_len), dst: tile.dst, ..PieceJob::default() };
        if are_possible_pieces(tile.src_len, tile.dst_len, piece_len, sizes) {
            for size in sizes {
                (piece.src_len, piece.dst_len) = ((*size).into(), piece_len as u64);
                self.pieces.push(piece);
                (piece.src, piece.dst) = (piece.src + piece.src_len, piece.dst + piece.dst_len);
            }
        }
        self.pieces.push(PieceJob { src_len: src_end - piece.src, dst_len: dst_end - piece.dst, last: 1, ..piece });
        range.count = (self.pieces.len() - range.first as usize) as u32;
    }

    /// Adds a placement of the last tile.
    pub fn place(&mut self, placement: &Placement) {
        let Some(tile) = self.tiles.last() else { return };
        let (src, src_len) = if self.apart { (tile.dst, tile.dst_len) } else { (tile.src, tile.src_len) };
        let status = (self.first_status + self.tiles.len() - 1) as u32;
        self.push(PlaceTile { src, src_len, status, ..placement.entry() });
    }

    /// Adds a placement that no tile fills.
    pub fn place_sparse(&mut self, placement: &Placement) {
        self.push(PlaceTile { sparse: 1, ..placement.entry() });
    }

    /// Adds a placement, or one for each placed sample where tiles are planes.
    fn push(&mut self, entry: PlaceTile) {
        self.open.rows = self.open.rows.max(entry.height);
        let Some((layout, samples)) = &self.planes else {
            self.placements.push(entry);
            return;
        };
        let plane_len = layout.plane_len(entry.src_len as usize) as u64;
        self.placements.extend((entry.slot..).zip(samples).map(|(slot, sample)| PlaceTile {
            src: entry.src + u64::from(*sample) * plane_len,
            src_len: plane_len,
            slot,
            ..entry
        }));
    }

    /// Ends a group and returns its number. Returns `None` where the group has neither tiles nor placements.
    pub fn end_group(&mut self) -> Option<usize> {
        let last = self.groups.last();
        let tiles = last.map_or(0, |group| group.tiles.end)..self.tiles.len();
        let placements = last.map_or(0, |group| group.placements.end)..self.placements.len();
        if tiles.is_empty() && placements.is_empty() {
            return None;
        }
        let pieces = last.map_or(0, |group| group.pieces.end)..self.pieces.len();
        let compressed = last.map_or(0, |group| group.compressed.end)..self.compressed;
        let rows = std::mem::take(&mut self.open).rows;
        self.groups.push(Group { tiles, placements, pieces, rows, compressed });
        Some(self.groups.len() - 1)
    }

    /// Returns the bytes of the longest stream of a group.
    pub(crate) fn longest(&self, group: &Group) -> usize {
        let jobs = self.tiles.get(group.tiles.clone()).unwrap_or_default();
        jobs.iter().map(|job| job.src_len).max().unwrap_or(0) as usize
    }

    /// Returns the number of groups so far.
    pub fn groups(&self) -> usize {
        self.groups.len()
    }

    /// Returns the number of tiles so far.
    pub fn tiles(&self) -> usize {
        self.tiles.len()
    }

    /// Returns the numbers of a group's tiles in the read.
    pub fn numbers(&self, group: usize) -> Range<usize> {
        let tiles = self.groups.get(group).map_or(0..0, |group| group.tiles.clone());
        self.first_status + tiles.start..self.first_status + tiles.end
    }

    /// Returns where a tile's stream lies in the compressed buffer.
    pub fn stream_of(&self, tile: usize) -> Option<Range<usize>> {
        let job = self.tiles.get(tile)?;
        Some(job.src as usize..(job.src + job.src_len) as usize)
    }
}

/// Bytes before the first block of a zlib stream.
const ZLIB_HEAD: u64 = 2;

/// Whether a tile can have these pieces: `piece_len` is the decoded length of each, `sizes` are the stored lengths of all but the last.
pub fn are_possible_pieces(stream_len: u64, decoded_len: u64, piece_len: usize, sizes: &[u32]) -> bool {
    let stored = sizes.iter().map(|size| u64::from(*size)).sum::<u64>() + ZLIB_HEAD;
    let aligned = piece_len > 0 && piece_len.is_multiple_of(ALIGN);
    let whole = aligned && decoded_len.div_ceil(piece_len as u64) == sizes.len() as u64 + 1;
    whole && stored < stream_len && !sizes.contains(&0)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use swath_tiff::{Compression, SampleType};

    use super::*;
    use crate::decode::{
        footprint::Footprint, path::DecodePath, placing::Output, tables::piece_tables, test_spec::spec,
    };
    use crate::driver::launch::inflate_shared::shared_scratch_len;

    #[test]
    fn tiles_are_cut_where_their_pieces_fill_them_and_else_are_one() {
        let output = Output { width: 80, height: 24, bands: 1, sample_len: 1, pixel_interleaved: false };
        let plan = DecodePlan {
            spec: Arc::new(spec(Compression::Deflate, SampleType::U8, 1)),
            path: DecodePath::DeflatePieces,
            output,
            samples: vec![0],
            fill: vec![0],
            largest: 960,
            timed: false,
        };
        let mut batch = DecodeBatch::new(&plan, 0);
        let mut found = Vec::new();
        for sizes in [&[100, 200][..], &[100], &[], &[100, 200, 300], &[100, 900], &[u32::MAX; 2], &[100, 897]] {
            let at = batch.tile(1000, 2500) as u64;
            batch.set_pieces(1024, sizes);
            let (range, tile) = (batch.ranges.last().copied().unwrap_or_default(), batch.tiles.last().copied());
            let pieces = batch.pieces.get(range.first as usize..).unwrap_or_default();
            assert_eq!(pieces.len(), range.count as usize);
            let (mut src, mut dst) = (at + 2, tile.map_or(0, |tile| tile.dst));
            for (number, piece) in pieces.iter().enumerate() {
                assert_eq!((piece.src, piece.dst, piece.last == 1), (src, dst, number + 1 == pieces.len()));
                (src, dst) = (src + piece.src_len, dst + piece.dst_len);
            }
            assert_eq!((src, dst), (at + 1000, tile.map_or(0, |tile| tile.dst + tile.dst_len)));
            found.push(pieces.len());
        }
        assert_eq!(found, [3, 1, 1, 1, 1, 1, 3]);
        batch.tile(1, 10);
        assert_eq!(batch.pieces.last().map(|piece| piece.src_len), Some(0));
        assert_eq!(batch.end_group(), Some(0));
        assert_eq!(batch.groups.first().map(|group| group.pieces.clone()), Some(0..12));
        let tables = found.iter().chain(&[1]).fold(0, |sum, pieces| sum + Footprint::of_pieces(*pieces).tables);
        assert_eq!(piece_tables(&batch).len() as u64, tables);
    }

    #[test]
    fn tiles_of_zstd_have_scratch_for_the_largest_and_others_none() {
        let of = |path, largest| Footprint::of_scratch(path, largest);
        assert_eq!(of(DecodePath::Zstd, 1 << 20), Footprint { temporary: 512 << 10, ..Footprint::default() });
        assert_eq!(of(DecodePath::Zstd, 0).temporary, 2 << 10);
        assert_eq!(of(DecodePath::DeflateShared, 1 << 20).temporary, shared_scratch_len(1 << 20) as u64);
        for path in [
            DecodePath::Raw,
            DecodePath::Lzw,
            DecodePath::Deflate,
            DecodePath::DeflatePieces,
            DecodePath::Lz4,
            DecodePath::Jpeg,
            DecodePath::Host,
        ] {
            assert_eq!(of(path, 1 << 20), Footprint::default(), "{path:?}");
        }
    }

    #[test]
    fn a_tile_of_planes_has_a_placement_for_each_requested_band() {
        let spec = spec(Compression::Jpeg, SampleType::U8, 3);
        let output = Output { width: 80, height: 24, bands: 4, sample_len: 1, pixel_interleaved: false };
        let plan = DecodePlan {
            spec: Arc::new(spec.clone()),
            path: DecodePath::Jpeg,
            output,
            samples: vec![2, 0],
            fill: vec![0],
            largest: 960,
            timed: false,
        };
        let mut batch = DecodeBatch::new(&plan, 7);
        let placement = Placement { from: (1, 2), size: (3, 4), to: (5, 6), band: 1 };
        batch.place_sparse(&placement);
        let len = PlaneLayout::new(&spec).tile_len(24);
        for _ in 0..2 {
            batch.tile(1000, len);
            batch.place(&placement);
        }
        assert_eq!(batch.end_group(), Some(0));
        assert_eq!((batch.numbers(0), batch.compressed), (7..9, 0));
        let second = (len.next_multiple_of(ALIGN) + ALIGN) as u64;
        let plane = 48 * 24;
        let found: Vec<_> = batch
            .placements
            .iter()
            .map(|entry| (entry.sparse, entry.status, entry.slot, entry.src, entry.src_len))
            .collect();
        assert_eq!(
            found,
            [
                (1, 0, 1, 0, 0),
                (1, 0, 2, 0, 0),
                (0, 7, 1, 2 * plane, plane),
                (0, 7, 2, 0, plane),
                (0, 8, 1, second + 2 * plane, plane),
                (0, 8, 2, second, plane),
            ]
        );
        let need = Footprint::of_tile(DecodePath::Jpeg, 1000, len as u64, 2);
        assert_eq!((need.compressed, need.decoded), (0, second));
    }
}
