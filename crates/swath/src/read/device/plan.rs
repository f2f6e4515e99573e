//! Which tiles a read needs, where their bytes are, and how they are grouped into batches that fit on the device.

use std::{collections::HashMap, ops::Range};

use swath_codec::host::Host;
use swath_cuda::{
    DeviceError,
    decode::{DecodePath, Footprint, Placement, PlaneLayout},
};
use swath_tiff::{Window, structure::Planar};

use super::piece_sizes::PieceSizes;
use crate::{error::Error, fetch::Fetch, open::image::Image};

/// Uncompressed rows are cut into units of about this size, so that a strip as large as the image does not need as much device memory.
const RAW_UNIT: u64 = 32 << 20;

/// One tile, or some rows of an uncompressed one.
#[derive(Debug, Clone)]
pub(super) struct Unit {
    /// Number of the tile in its directory.
    pub(super) index: u64,
    /// Where its bytes are in the file.
    pub(super) range: Range<u64>,
    /// Rows that the tile stores.
    pub(super) rows: u32,
    /// The rows that the read needs.
    pub(super) wanted: Range<u32>,
    /// Decoded bytes, on the device or, for tiles that the CPU decodes, on the host.
    pub(super) decoded_len: usize,
    /// Rows that are decoded before the first needed one.
    pub(super) lead: u32,
    /// Where its samples go, counted from the first needed row.
    pub(super) placements: Vec<Placement>,
    /// For a tile that is decoded in pieces: the decoded length of a piece, and the stored lengths of all but the last.
    pub(super) piece_sizes: Option<(usize, Vec<u32>)>,
}

impl Unit {
    pub(super) fn stream_len(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// Where its samples go, counted from the first decoded row.
    pub(super) fn decoded_placements(&self) -> impl Iterator<Item = Placement> {
        self.placements.iter().map(|place| Placement { from: (place.from.0, place.from.1 + self.lead), ..*place })
    }

    /// Number of pieces, for a tile that is decoded in pieces; else 0.
    pub(super) fn pieces(&self) -> usize {
        self.piece_sizes.as_ref().map_or(0, |(_, sizes)| sizes.len() + 1)
    }
}

/// The tiles that fill some rows of a window. A tile that several rows need is in the first of them, with all its placements.
#[derive(Debug, Clone, Default)]
pub(super) struct RowUnits {
    pub(super) units: Vec<Unit>,
    pub(super) sparse: Vec<Placement>,
    pub(super) footprint: Footprint,
}

/// The part of an image that a read needs.
pub(super) struct TileSelection<'a> {
    pub(super) image: &'a Image,
    pub(super) host: &'a Host,
    pub(super) fetch: &'a Fetch,
    /// Windows of one size, which go below each other in the output.
    pub(super) windows: &'a [Window],
    /// Samples, counted from 0.
    pub(super) bands: &'a [u16],
    pub(super) path: DecodePath,
    /// How tiles are cut, where they are decoded in pieces.
    pub(super) piece_sizes: Option<&'a PieceSizes>,
}

/// Returns the planes that hold the bands, each with the output band it fills.
fn planes(image: &Image, bands: &[u16]) -> Vec<(u32, u32)> {
    match image.layout.planar {
        Planar::Contig => vec![(0, 0)],
        Planar::Separate => (0..).zip(bands).map(|(to, band)| (to, u32::from(*band))).collect(),
    }
}

/// For each plane, the tiles from the first to the last of each window: in order, and each only once.
pub(super) fn runs(image: &Image, windows: &[Window], bands: &[u16]) -> Vec<Range<u64>> {
    let grid = &image.grid;
    let planes = planes(image, bands);
    let mut runs = Vec::with_capacity(planes.len() * windows.len());
    for (columns, rows) in windows.iter().map(|window| grid.span(window)) {
        if columns.is_empty() || rows.is_empty() {
            continue;
        }
        let (first, last) = ((columns.start, rows.start), (columns.end - 1, rows.end - 1));
        let run =
            |(_, plane): &(u32, u32)| grid.index(first.0, first.1, *plane)..grid.index(last.0, last.1, *plane) + 1;
        runs.extend(planes.iter().map(run));
    }
    runs.sort_by_key(|run| run.start);
    runs.dedup_by(|next, run| {
        let joined = next.start <= run.end;
        if joined {
            run.end = run.end.max(next.end);
        }
        joined
    });
    runs
}

/// One tile row of one window.
struct WindowTileRow {
    row: u32,
    columns: Range<u32>,
    window: Window,
    /// Where the window begins in the output.
    top: u32,
}

/// A tile, and its parts that the read needs.
struct Found {
    index: u64,
    range: Range<u64>,
    rows: u32,
    parts: Vec<Placement>,
}

/// The tiles that fill some rows of a window, before the needs of other windows are known.
#[derive(Default)]
struct Draft {
    tiles: Vec<Found>,
    sparse: Vec<Placement>,
}

impl TileSelection<'_> {
    /// For each output band that a tile fills, which sample of the tile it is.
    pub(super) fn samples(&self) -> Vec<u16> {
        match self.image.layout.planar {
            Planar::Contig => self.bands.to_vec(),
            Planar::Separate => vec![0],
        }
    }

    /// Stored bytes of the largest tile; a last strip may be shorter.
    pub(super) fn largest(&self) -> usize {
        // Uncompressed tiles have no limit.
        if self.path == DecodePath::Raw { 0 } else { self.host.spec().stored_len(self.image.grid.tile_height) }
    }

    /// All rows, in the order of their tiles.
    pub(super) fn rows(&self) -> Result<Vec<RowUnits>, Error> {
        let mut tile_rows = Vec::new();
        for (number, window) in (0..).zip(self.windows) {
            let (columns, rows) = self.image.grid.span(window);
            let top = window.height.saturating_mul(number);
            tile_rows.extend(rows.map(|row| WindowTileRow { row, columns: columns.clone(), window: *window, top }));
        }
        tile_rows.sort_by_key(|tile_row| (tile_row.row, tile_row.columns.start));
        let planes = planes(self.image, self.bands);
        let slice = |tile_row: &WindowTileRow, plane: u32| {
            let start = self.image.grid.index(tile_row.columns.start, tile_row.row, plane);
            start..start + tile_row.columns.len() as u64
        };
        let slices: Vec<Range<u64>> = tile_rows
            .iter()
            .flat_map(|tile_row| planes.iter().map(move |(_, plane)| slice(tile_row, *plane)))
            .collect();
        self.image.fetch_tables(&slices, self.fetch, None)?;
        let (mut drafts, mut known) = (Vec::new(), HashMap::new());
        for tile_row in &tile_rows {
            self.draft(tile_row, &planes, &mut drafts, &mut known)?;
        }
        // A row whose tiles are all in earlier rows is empty.
        let is_left = |draft: &Draft| !draft.tiles.is_empty() || !draft.sparse.is_empty();
        Ok(drafts.into_iter().filter(is_left).map(|draft| self.row_units(draft)).collect())
    }

    /// Adds the rows of a tile row. `known` maps tiles of earlier rows to their row and their place in it.
    fn draft(
        &self,
        tile_row: &WindowTileRow,
        planes: &[(u32, u32)],
        drafts: &mut Vec<Draft>,
        known: &mut HashMap<u64, (usize, usize)>,
    ) -> Result<(), Error> {
        let grid = &self.image.grid;
        let columns = tile_row.columns.clone();
        let cells: Vec<_> = columns.filter_map(|column| grid.cell(&tile_row.window, column, tile_row.row)).collect();
        let Some(first) = cells.first() else { return Ok(()) };
        let height = first.inside.height;
        let unit_height = self.unit_height(cells.len() * planes.len(), height);
        // Rows of uncompressed tiles cost next to nothing, so each window reads its own.
        let shares = self.windows.len() > 1 && self.path != DecodePath::Raw;
        let base = drafts.len();
        drafts.extend((0..height.div_ceil(unit_height)).map(|_| Draft::default()));
        for (to, plane) in planes {
            let start = grid.index(tile_row.columns.start, tile_row.row, *plane);
            let ranges = self.image.locate(start..start + cells.len() as u64, self.fetch)?;
            for ((index, range), cell) in (start..).zip(ranges).zip(&cells) {
                for (number, y) in (base..drafts.len()).zip((0..height).step_by(unit_height as usize)) {
                    let part = Placement {
                        from: (cell.inside.x, cell.inside.y + y),
                        size: (cell.inside.width, unit_height.min(height - y)),
                        to: (cell.x, tile_row.top.saturating_add(cell.y + y)),
                        band: *to,
                    };
                    let Some(range) = &range else {
                        if let Some(draft) = drafts.get_mut(number) {
                            draft.sparse.push(part);
                        }
                        continue;
                    };
                    let earlier = known.get(&index).filter(|_| shares).copied();
                    let shared = earlier.and_then(|(draft, at)| drafts.get_mut(draft)?.tiles.get_mut(at));
                    if let Some(tile) = shared {
                        tile.parts.push(part);
                    } else if let Some(draft) = drafts.get_mut(number) {
                        if shares {
                            known.insert(index, (number, draft.tiles.len()));
                        }
                        draft.tiles.push(Found { index, range: range.clone(), rows: cell.rows, parts: vec![part] });
                    }
                }
            }
        }
        Ok(())
    }

    fn row_units(&self, draft: Draft) -> RowUnits {
        let footprint = Footprint::of_sparse(draft.sparse.len() * self.placements());
        let mut row = RowUnits { sparse: draft.sparse, footprint, units: Vec::with_capacity(draft.tiles.len()) };
        for tile in draft.tiles {
            row.add(self.path, self.placements(), self.unit(tile));
            row.footprint = row.footprint.plus(Footprint::of_scratch(self.path, self.largest()));
        }
        row
    }

    /// Placements of a part of a tile: one, or one for each plane that a library returns.
    fn placements(&self) -> usize {
        if self.path.decodes_from_host() { self.samples().len() } else { 1 }
    }

    /// Rows of one unit: all rows of the tile, unless it is uncompressed and large.
    fn unit_height(&self, tiles: usize, height: u32) -> u32 {
        if self.path != DecodePath::Raw {
            return height.max(1);
        }
        let row_len = (self.host.spec().stored_row_len() as u64).saturating_mul(tiles as u64).max(1);
        (RAW_UNIT / row_len).clamp(1, u64::from(height.max(1))) as u32
    }

    fn unit(&self, tile: Found) -> Unit {
        let Found { index, range, rows, parts: mut placements } = tile;
        let spec = self.host.spec();
        let start = placements.iter().map(|part| part.from.1).min().unwrap_or(0);
        let end = placements.iter().map(|part| part.from.1 + part.size.1).max().unwrap_or(0);
        for part in &mut placements {
            part.from.1 -= start;
        }
        let wanted = start..end;
        let whole = Unit { index, range, rows, wanted, decoded_len: 0, lead: start, placements, piece_sizes: None };
        match self.path {
            DecodePath::Raw => {
                let row_len = spec.stored_row_len() as u64;
                let first = whole.range.start + u64::from(start) * row_len;
                let range = first..first + u64::from(end - start) * row_len;
                Unit { decoded_len: (range.end - range.start) as usize, range, lead: 0, ..whole }
            }
            // The CPU decodes the needed rows only.
            DecodePath::Host => Unit { decoded_len: spec.native_row_len() * whole.wanted.len(), lead: 0, ..whole },
            DecodePath::Jpeg | DecodePath::Jpeg2000 => {
                Unit { decoded_len: PlaneLayout::new(spec).tile_len(rows), ..whole }
            }
            _ => {
                let decoded_len = spec.stored_len(self.host.rows_to_decode(rows, end));
                let piece_sizes =
                    self.piece_sizes.and_then(|sizes| sizes.of(index, whole.stream_len(), decoded_len as u64));
                Unit { decoded_len, piece_sizes, ..whole }
            }
        }
    }
}

impl RowUnits {
    /// All its placements.
    pub(super) fn placements(&self) -> impl Iterator<Item = &Placement> {
        self.units.iter().flat_map(|unit| &unit.placements).chain(&self.sparse)
    }

    fn add(&mut self, path: DecodePath, placements: usize, unit: Unit) {
        let placements = placements * unit.placements.len();
        let need = Footprint::of_tile(path, unit.stream_len(), unit.decoded_len as u64, placements);
        self.footprint = self.footprint.plus(need);
        if path == DecodePath::DeflatePieces {
            self.footprint = self.footprint.plus(Footprint::of_pieces(unit.pieces().max(1)));
        }
        self.units.push(unit);
    }
}

/// Rows grouped into batches.
#[derive(Debug)]
pub(super) struct Batches {
    /// The rows of each batch.
    pub(super) ranges: Vec<Range<usize>>,
    /// Room that the largest batch needs.
    pub(super) room: Footprint,
    /// Batches that are on the device at once.
    pub(super) halves: usize,
}

/// Groups rows into batches: one batch where everything fits in `budget`, else batches so large that two of them fit, else one at
/// a time.
pub(super) fn batches(rows: &[RowUnits], budget: u64, fixed: u64) -> Result<Batches, DeviceError> {
    let all = rows.iter().fold(Footprint::default(), |sum, row| sum.plus(row.footprint));
    let working = budget.saturating_sub(fixed);
    if fixed <= budget && all.allocated_len() <= working {
        return Ok(Batches { ranges: std::iter::once(0..rows.len()).collect(), room: all, halves: 1 });
    }
    // However rows are grouped, the room holds the largest of each kind, which may come from different rows.
    let least = rows.iter().fold(Footprint::default(), |room, row| room.max(row.footprint)).allocated_len();
    let too_large = || DeviceError::Memory {
        what: "this read".into(),
        required: fixed.saturating_add(least),
        available: budget,
        hint: "; read a smaller window, or allow more (max_device_memory)",
    };
    if fixed > budget || least > working {
        return Err(too_large());
    }
    // The room may have to be larger than each batch: pack with less until it fits.
    for halves in [2, 1] {
        let mut most = working / halves as u64;
        loop {
            let ranges = pack(rows, most);
            let room = ranges.iter().fold(Footprint::default(), |room, range| {
                let members = rows.get(range.clone()).unwrap_or_default();
                room.max(members.iter().fold(Footprint::default(), |sum, row| sum.plus(row.footprint)))
            });
            if room.allocated_len() * halves as u64 <= working {
                return Ok(Batches { ranges, room, halves });
            }
            if ranges.len() == rows.len() {
                break;
            }
            most = most * 3 / 4;
        }
    }
    Err(too_large())
}

fn pack(rows: &[RowUnits], most: u64) -> Vec<Range<usize>> {
    let mut ranges = Vec::new();
    let (mut start, mut sum) = (0, 0);
    for (index, row) in rows.iter().enumerate() {
        let need = row.footprint.total();
        if index > start && sum + need > most {
            ranges.push(start..index);
            (start, sum) = (index, 0);
        }
        sum += need;
    }
    ranges.push(start..rows.len());
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn rows(sizes: &[u64]) -> Vec<RowUnits> {
        let row = |size: &u64| RowUnits {
            footprint: Footprint { compressed: size * MIB / 2, decoded: size * MIB / 2, ..Footprint::default() },
            ..RowUnits::default()
        };
        sizes.iter().map(row).collect()
    }

    #[test]
    fn one_batch_where_all_fits_else_two_at_once_else_one() {
        let ten = rows(&[16; 10]);
        let dealt = |budget: u64| batches(&ten, budget * MIB, 32 * MIB).unwrap_or_else(|error| panic!("{error}"));
        let one = dealt(32 + 161);
        assert_eq!((one.halves, one.ranges.len()), (1, 1));
        let two = dealt(32 + 66);
        assert_eq!((two.halves, two.ranges.len(), two.room.total()), (2, 5, 32 * MIB));
        let single = dealt(32 + 18);
        assert_eq!((single.halves, single.ranges.len()), (1, 10));
    }

    #[test]
    fn too_little_for_one_row_is_refused_with_both_numbers() {
        let error = batches(&rows(&[16, 64]), 45 * MIB, 20 * MIB).err();
        let Some(DeviceError::Memory { required, available, .. }) = error else { panic!("{error:?}") };
        assert!(available == 45 * MIB && required > 84 * MIB && required < 85 * MIB, "{required}");
    }

    #[test]
    fn unequal_rows_never_exceed_the_budget() {
        let mut seed = 7_u64;
        for _ in 0..300 {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let count = (seed >> 60) as usize + 1;
            let list: Vec<RowUnits> = (0..count)
                .map(|index| {
                    let a = ((seed >> (index * 3)) & 31) * MIB;
                    let b = ((seed >> (index * 2 + 5)) & 31) * MIB;
                    RowUnits {
                        footprint: Footprint { compressed: a, decoded: b, tables: 1, temporary: 0 },
                        ..RowUnits::default()
                    }
                })
                .collect();
            let budget = ((seed >> 20) & 255) * MIB;
            if let Ok(dealt) = batches(&list, budget, 10 * MIB) {
                assert!(dealt.room.allocated_len() * dealt.halves as u64 + 10 * MIB <= budget);
                assert_eq!(dealt.ranges.iter().map(std::iter::ExactSizeIterator::len).sum::<usize>(), count);
            }
        }
    }
}
