//! Some tiles of a read: where their bytes go on the device, where their samples go, and what that takes.

use std::ops::Range;

use crate::{
    decode::Plan,
    ffi::{
        kernels::{PieceJob, PieceNote, PieceRange, PlaceTile, TileJob},
        libraries::ALIGN as ALIGNMENT,
        memory::rounded,
    },
    rule::{PlaneLayout, Way},
};

/// Streams begin at multiples of this, and this many bytes after each belong to the buffer: kernels load whole words.
pub(crate) const ALIGN: usize = ALIGNMENT;

/// Room at the head of the tables: which samples are taken (65535 at most), and what aligns the rest.
pub(crate) const TABLE_HEAD: u64 = 2 * 65535 + ALIGN as u64;

/// Temporary memory set aside for each tile whatever its size.
const LEAST_TEMPORARY: u64 = 4 << 10;

/// What a buffer takes of the device.
pub(crate) fn held(len: u64) -> u64 {
    if len == 0 { 0 } else { usize::try_from(len).map_or(len, |len| rounded(len) as u64) }
}

/// One rectangle of a tile on its way to the output.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Placement {
    /// First column and row of the tile that are wanted.
    pub from: (u32, u32),
    /// Columns and rows.
    pub size: (u32, u32),
    /// Where they go.
    pub to: (u32, u32),
    /// The output band that the first sample goes to.
    pub slot: u32,
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
            slot: self.slot,
            ..PlaceTile::default()
        }
    }
}

/// Device memory that tiles need while they are worked on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Footprint {
    /// Bytes of compressed streams.
    pub compressed: u64,
    /// Bytes of decoded tiles.
    pub decoded: u64,
    /// Bytes of tables.
    pub tables: u64,
    /// Bytes that kernels or libraries take for themselves.
    pub temporary: u64,
}

impl Footprint {
    /// All of it.
    pub fn total(&self) -> u64 {
        self.compressed + self.decoded + self.tables + self.temporary
    }

    /// What buffers for it take.
    pub fn held(&self) -> u64 {
        [self.compressed.max(1), self.decoded.max(1), self.tables + TABLE_HEAD, self.temporary].map(held).iter().sum()
    }

    /// Both together.
    pub fn plus(self, other: Self) -> Self {
        Self {
            compressed: self.compressed + other.compressed,
            decoded: self.decoded + other.decoded,
            tables: self.tables + other.tables,
            temporary: self.temporary + other.temporary,
        }
    }

    /// Room for either.
    pub fn max(self, other: Self) -> Self {
        Self {
            compressed: self.compressed.max(other.compressed),
            decoded: self.decoded.max(other.decoded),
            tables: self.tables.max(other.tables),
            temporary: self.temporary.max(other.temporary),
        }
    }

    /// What one tile with its placements needs.
    pub fn of_tile(way: Way, stream_len: u64, decoded_len: u64, placements: usize) -> Self {
        let room = |len: u64| len.next_multiple_of(ALIGN as u64) + ALIGN as u64;
        let chunk = if way.has_chunks() { size_of::<ChunkEntry>() } else { 0 };
        Self {
            compressed: if way.uploads_streams() { room(stream_len) } else { 0 },
            decoded: if way.decodes_apart() { room(decoded_len) } else { 0 },
            tables: (size_of::<TileJob>() + chunk + placements * size_of::<PlaceTile>()) as u64,
            temporary: decoded_len / 8 * way.temporary_eighths() + u64::from(way.has_chunks()) * LEAST_TEMPORARY,
        }
    }

    /// What a tile needs besides where kernels have scratch for each, as much as for the largest of `largest` decoded
    /// bytes.
    pub fn of_scratch(way: Way, largest: usize) -> Self {
        Self { temporary: way.tile_scratch(largest) as u64, ..Self::default() }
    }

    /// What a tile needs besides where it is decoded in so many pieces.
    pub fn of_pieces(pieces: usize) -> Self {
        let tables = size_of::<PieceRange>() + pieces * (size_of::<PieceJob>() + size_of::<PieceNote>());
        Self { tables: tables as u64, ..Self::default() }
    }

    /// What placements without a tile need.
    pub fn of_sparse(placements: usize) -> Self {
        Self { tables: (placements * size_of::<PlaceTile>()) as u64, ..Self::default() }
    }
}

/// Tiles of a band that are launched together.
#[derive(Debug, Clone, Default)]
pub(crate) struct Group {
    pub(crate) tiles: Range<usize>,
    pub(crate) placements: Range<usize>,
    pub(crate) pieces: Range<usize>,
    pub(crate) rows: u32,
    /// Bytes of the compressed buffer that are its own.
    pub(crate) compressed: Range<usize>,
}

/// Some tiles, where their bytes go on the device, and where their samples go.
#[derive(Debug, Clone, Default)]
pub struct Band {
    pub(crate) tiles: Vec<TileJob>,
    pub(crate) placements: Vec<PlaceTile>,
    /// Where tiles are decoded in pieces: which ones are whose, and all of them.
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
    /// Where tiles are planes: how they lie, and which ones are wanted.
    planes: Option<(PlaneLayout, Vec<u16>)>,
}

impl Band {
    /// An empty band whose first tile is tile `first_status` of the read.
    pub fn new(plan: &Plan, first_status: usize) -> Self {
        let way = plan.way;
        Self {
            first_status,
            planes: way.decodes_from_host().then(|| (PlaneLayout::new(&plan.spec), plan.samples.clone())),
            apart: way.decodes_apart(),
            streams: way.uploads_streams(),
            in_pieces: way.has_pieces(),
            chunks: way.has_chunks(),
            ..Self::default()
        }
    }

    /// Adds a tile; tells where its bytes go: in the compressed buffer, or, where the CPU decodes, in the decoded one.
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
            self.cut(decoded_len, &[]);
        }
        if self.streams { job.src as usize } else { job.dst as usize }
    }

    /// Says how the last tile is cut: decoded bytes of its pieces, and the stored ones of all but the last. Kernels
    /// check whether that is so. What cannot be leaves the tile in one piece.
    pub fn cut(&mut self, piece_len: usize, sizes: &[u32]) {
        let (Some(tile), Some(range)) = (self.tiles.last(), self.ranges.last_mut()) else { return };
        self.pieces.truncate(range.first as usize);
        let (src_end, dst_end) = (tile.src + tile.src_len, tile.dst + tile.dst_len);
        let mut piece = PieceJob { src: tile.src + ZLIB_HEAD.min(tile.src_len), dst: tile.dst, ..PieceJob::default() };
        if can_be_cut(tile.src_len, tile.dst_len, piece_len, sizes) {
            for size in sizes {
                (piece.src_len, piece.dst_len) = ((*size).into(), piece_len as u64);
                self.pieces.push(piece);
                (piece.src, piece.dst) = (piece.src + piece.src_len, piece.dst + piece.dst_len);
            }
        }
        self.pieces.push(PieceJob { src_len: src_end - piece.src, dst_len: dst_end - piece.dst, last: 1, ..piece });
        range.count = (self.pieces.len() - range.first as usize) as u32;
    }

    /// Says where a part of the last tile goes.
    pub fn place(&mut self, placement: &Placement) {
        let Some(tile) = self.tiles.last() else { return };
        let (src, src_len) = if self.apart { (tile.dst, tile.dst_len) } else { (tile.src, tile.src_len) };
        let status = (self.first_status + self.tiles.len() - 1) as u32;
        self.push(PlaceTile { src, src_len, status, ..placement.entry() });
    }

    /// Says that a part of the output has no tile.
    pub fn place_sparse(&mut self, placement: &Placement) {
        self.push(PlaceTile { sparse: 1, ..placement.entry() });
    }

    /// Adds a placement; where tiles are planes, one for each that is wanted.
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

    /// Ends a group; tells its number. Without tiles and placements since the last one there is none.
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

    /// Bytes of the longest stream of a group.
    pub(crate) fn longest(&self, group: &Group) -> usize {
        let jobs = self.tiles.get(group.tiles.clone()).unwrap_or_default();
        jobs.iter().map(|job| job.src_len).max().unwrap_or(0) as usize
    }

    /// Groups so far.
    pub fn groups(&self) -> usize {
        self.groups.len()
    }

    /// Tiles so far.
    pub fn tiles(&self) -> usize {
        self.tiles.len()
    }

    /// The numbers, in the read, of a group's tiles.
    pub fn numbers(&self, group: usize) -> Range<usize> {
        let tiles = self.groups.get(group).map_or(0..0, |group| group.tiles.clone());
        self.first_status + tiles.start..self.first_status + tiles.end
    }

    /// Where the stream of a tile lies in the compressed buffer.
    pub fn stream_of(&self, tile: usize) -> Option<Range<usize>> {
        let job = self.tiles.get(tile)?;
        Some(job.src as usize..(job.src + job.src_len) as usize)
    }
}

/// Bytes before the first block of a zlib stream.
const ZLIB_HEAD: u64 = 2;

/// Whether a tile may be cut so: decoded bytes of its pieces, and the stored ones of all but the last.
pub fn can_be_cut(stream_len: u64, decoded_len: u64, piece_len: usize, sizes: &[u32]) -> bool {
    let stored = sizes.iter().map(|size| u64::from(*size)).sum::<u64>() + ZLIB_HEAD;
    let aligned = piece_len > 0 && piece_len.is_multiple_of(ALIGN);
    let whole = aligned && decoded_len.div_ceil(piece_len as u64) == sizes.len() as u64 + 1;
    whole && stored < stream_len && !sizes.contains(&0)
}

/// Which samples of a tile are taken, padded so that the table after it is aligned.
pub(crate) fn sample_table(samples: &[u16]) -> Vec<u8> {
    let mut bytes: Vec<u8> = bytemuck::cast_slice(samples).to_vec();
    bytes.resize(bytes.len().next_multiple_of(ALIGN), 0);
    bytes
}

/// What nvCOMP wants to know of a tile, spread over five arrays.
type ChunkEntry = [u64; 5];

/// Where the arrays for nvCOMP, or those of pieces, lie in the tables of a band.
pub(crate) fn chunks_at(samples: &[u16], band: &Band) -> usize {
    sample_table(samples).len()
        + band.tiles.len() * size_of::<TileJob>()
        + band.placements.len() * size_of::<PlaceTile>()
}

/// Pieces, which of them are whose, and room for what becomes of each. It says that nothing has yet.
pub(crate) fn piece_tables(band: &Band) -> Vec<u8> {
    let mut bytes: Vec<u8> = bytemuck::cast_slice(&band.pieces).to_vec();
    bytes.extend_from_slice(bytemuck::cast_slice(&band.ranges));
    bytes.resize(bytes.len() + band.pieces.len() * size_of::<PieceNote>(), 0xff);
    bytes
}

/// Addresses and lengths of streams, addresses and lengths of tiles, and room for what each stream gave.
pub(crate) fn chunk_tables(band: &Band, compressed: u64, decoded: u64) -> Vec<u8> {
    let jobs = || band.tiles.iter();
    let words: Vec<u64> = jobs()
        .map(|job| compressed + job.src)
        .chain(jobs().map(|job| job.src_len))
        .chain(jobs().map(|job| decoded + job.dst))
        .chain(jobs().map(|job| job.dst_len))
        .chain(jobs().map(|_| 0))
        .collect();
    bytemuck::cast_slice(&words).to_vec()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use swath_tiff::{Compression, SampleType};

    use super::*;
    use crate::rule::{Output, tests::spec};

    #[test]
    fn tiles_are_cut_where_their_pieces_fill_them_and_else_are_one() {
        let output = Output { width: 80, height: 24, bands: 1, sample_len: 1, pixel_interleaved: false };
        let plan = Plan {
            spec: Arc::new(spec(Compression::Deflate, SampleType::U8, 1)),
            way: Way::DeflatePieces,
            output,
            samples: vec![0],
            fill: vec![0],
            largest: 960,
            timed: false,
        };
        let mut band = Band::new(&plan, 0);
        let mut found = Vec::new();
        for sizes in [&[100, 200][..], &[100], &[], &[100, 200, 300], &[100, 900], &[u32::MAX; 2], &[100, 897]] {
            let at = band.tile(1000, 2500) as u64;
            band.cut(1024, sizes);
            let (range, tile) = (band.ranges.last().copied().unwrap_or_default(), band.tiles.last().copied());
            let pieces = band.pieces.get(range.first as usize..).unwrap_or_default();
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
        band.tile(1, 10);
        assert_eq!(band.pieces.last().map(|piece| piece.src_len), Some(0));
        assert_eq!(band.end_group(), Some(0));
        assert_eq!(band.groups.first().map(|group| group.pieces.clone()), Some(0..12));
        let tables = found.iter().chain(&[1]).fold(0, |sum, pieces| sum + Footprint::of_pieces(*pieces).tables);
        assert_eq!(piece_tables(&band).len() as u64, tables);
    }

    #[test]
    fn tiles_of_zstd_have_scratch_for_the_largest_and_others_none() {
        let of = |way, largest| Footprint::of_scratch(way, largest);
        assert_eq!(of(Way::Zstd, 1 << 20), Footprint { temporary: 512 << 10, ..Footprint::default() });
        assert_eq!(of(Way::Zstd, 0).temporary, 2 << 10);
        for way in [Way::Raw, Way::Lzw, Way::Deflate, Way::DeflatePieces, Way::Lz4, Way::Jpeg, Way::Host] {
            assert_eq!(of(way, 1 << 20), Footprint::default(), "{way:?}");
        }
    }

    #[test]
    fn a_tile_of_planes_has_a_placement_for_each_band_that_is_wanted() {
        let spec = spec(Compression::Jpeg, SampleType::U8, 3);
        let output = Output { width: 80, height: 24, bands: 4, sample_len: 1, pixel_interleaved: false };
        let plan = Plan {
            spec: Arc::new(spec.clone()),
            way: Way::Jpeg,
            output,
            samples: vec![2, 0],
            fill: vec![0],
            largest: 960,
            timed: false,
        };
        let mut band = Band::new(&plan, 7);
        let placement = Placement { from: (1, 2), size: (3, 4), to: (5, 6), slot: 1 };
        band.place_sparse(&placement);
        let len = PlaneLayout::new(&spec).tile_len(24);
        for _ in 0..2 {
            band.tile(1000, len);
            band.place(&placement);
        }
        assert_eq!(band.end_group(), Some(0));
        assert_eq!((band.numbers(0), band.compressed), (7..9, 0));
        let second = (len.next_multiple_of(ALIGN) + ALIGN) as u64;
        let plane = 48 * 24;
        let found: Vec<_> = band
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
        let need = Footprint::of_tile(Way::Jpeg, 1000, len as u64, 2);
        assert_eq!((need.compressed, need.decoded), (0, second));
    }
}
