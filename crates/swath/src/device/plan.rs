//! Which tiles a read wants, where their bytes are, and how they are dealt out in bands that fit on the device.

use std::ops::Range;

use swath_codec::host::Host;
use swath_cuda::{
    DeviceError,
    band::{Footprint, Placement},
    rule::{PlaneLayout, Way},
};
use swath_tiff::{Window, structure::Planar};

use super::cuts::Cuts;
use crate::{error::Error, image::Image, open::Fetch};

/// Uncompressed rows are cut into pieces of about this size, so that a strip as large as the image needs no room as large.
const RAW_PIECE: u64 = 32 << 20;

/// One tile, or some rows of an uncompressed one.
#[derive(Debug, Clone)]
pub(super) struct Unit {
    /// Number of the tile in its directory.
    pub(super) index: u64,
    /// Where its bytes are in the file.
    pub(super) range: Range<u64>,
    /// Rows that the tile stores.
    pub(super) rows: u32,
    /// The rows of it that are wanted.
    pub(super) wanted: Range<u32>,
    /// Bytes that the device (or, for tiles that the CPU decodes, the host) makes of it.
    pub(super) decoded_len: usize,
    /// Where its samples go, counted from the first row that is decoded.
    pub(super) placement: Placement,
    /// Where it is decoded in pieces: decoded bytes of these, and the stored ones of all but the last.
    pub(super) cut: Option<(usize, Vec<u32>)>,
}

impl Unit {
    pub(super) fn stream_len(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// Pieces that it is decoded in, where those are several.
    pub(super) fn pieces(&self) -> usize {
        self.cut.as_ref().map_or(0, |(_, sizes)| sizes.len() + 1)
    }
}

/// What fills some rows of the output.
#[derive(Debug, Clone, Default)]
pub(super) struct Row {
    pub(super) units: Vec<Unit>,
    pub(super) sparse: Vec<Placement>,
    pub(super) footprint: Footprint,
}

/// What is wanted of an image.
pub(super) struct Wanted<'a> {
    pub(super) image: &'a Image,
    pub(super) host: &'a Host,
    pub(super) fetch: &'a Fetch,
    pub(super) window: Window,
    /// Samples, counted from 0.
    pub(super) bands: &'a [u16],
    pub(super) way: Way,
    /// How tiles are cut, where they are decoded in pieces.
    pub(super) cuts: Option<&'a Cuts>,
}

/// The planes of tiles that bands are in, each with the output band that it fills.
fn planes(image: &Image, bands: &[u16]) -> Vec<(u32, u32)> {
    match image.layout.planar {
        Planar::Contig => vec![(0, 0)],
        Planar::Separate => (0..).zip(bands).map(|(slot, band)| (slot, u32::from(*band))).collect(),
    }
}

/// For each plane, the tiles from the first to the last of a window.
pub(super) fn runs(image: &Image, window: &Window, bands: &[u16]) -> Vec<Range<u64>> {
    let grid = &image.grid;
    let (columns, rows) = grid.span(window);
    if columns.is_empty() || rows.is_empty() {
        return Vec::new();
    }
    let (first, last) = ((columns.start, rows.start), (columns.end - 1, rows.end - 1));
    let run = |(_, plane)| grid.index(first.0, first.1, plane)..grid.index(last.0, last.1, plane) + 1;
    planes(image, bands).into_iter().map(run).collect()
}

impl Wanted<'_> {
    /// For each output band that a tile fills, which sample of the tile it is.
    pub(super) fn samples(&self) -> Vec<u16> {
        match self.image.layout.planar {
            Planar::Contig => self.bands.to_vec(),
            Planar::Separate => vec![0],
        }
    }

    /// All rows, top to bottom.
    pub(super) fn rows(&self) -> Result<Vec<Row>, Error> {
        let grid = &self.image.grid;
        let (columns, rows) = grid.span(&self.window);
        let planes = planes(self.image, self.bands);
        let mut found = Vec::new();
        for row in rows {
            let cells: Vec<_> = columns.clone().filter_map(|column| grid.cell(&self.window, column, row)).collect();
            let Some(first) = cells.first() else { continue };
            let height = first.inside.height;
            let piece = self.piece_height(cells.len() * planes.len(), height);
            let mut pieces: Vec<Row> = (0..height.div_ceil(piece)).map(|_| Row::default()).collect();
            for (slot, plane) in &planes {
                let start = grid.index(columns.start, row, *plane);
                let ranges = self.image.locate(start..start + cells.len() as u64, self.fetch)?;
                for ((index, range), cell) in (start..).zip(ranges).zip(&cells) {
                    for (number, target) in (0..).zip(&mut pieces) {
                        let y = number * piece;
                        let part =
                            Window::new(cell.inside.x, cell.inside.y + y, cell.inside.width, piece.min(height - y));
                        let placement = Placement {
                            from: (part.x, part.y),
                            size: (part.width, part.height),
                            to: (cell.x, cell.y + y),
                            slot: *slot,
                        };
                        match &range {
                            None => {
                                target.footprint = target.footprint.plus(Footprint::of_sparse(self.placements()));
                                target.sparse.push(placement);
                            }
                            Some(range) => {
                                let unit = self.unit(index, range, cell.rows, part, placement);
                                target.add(self.way, self.placements(), unit);
                            }
                        }
                    }
                }
            }
            found.append(&mut pieces);
        }
        Ok(found)
    }

    /// Placements of a tile: one, or one for each plane that a library leaves.
    fn placements(&self) -> usize {
        if self.way.decodes_from_host() { self.samples().len() } else { 1 }
    }

    /// Rows that are handled together: all of a tile's, unless it is uncompressed and large.
    fn piece_height(&self, tiles: usize, height: u32) -> u32 {
        if self.way != Way::Raw {
            return height.max(1);
        }
        let row_len = (self.host.spec().stored_row_len() as u64).saturating_mul(tiles as u64).max(1);
        (RAW_PIECE / row_len).clamp(1, u64::from(height.max(1))) as u32
    }

    fn unit(&self, index: u64, range: &Range<u64>, rows: u32, part: Window, placement: Placement) -> Unit {
        let spec = self.host.spec();
        let wanted = part.y..part.y + part.height;
        let from_top = |placement: Placement| Placement { from: (placement.from.0, 0), ..placement };
        match self.way {
            Way::Raw => {
                let row_len = spec.stored_row_len() as u64;
                let start = range.start + u64::from(part.y) * row_len;
                let range = start..start + u64::from(part.height) * row_len;
                let decoded_len = (range.end - range.start) as usize;
                Unit { index, range, rows, wanted, decoded_len, placement: from_top(placement), cut: None }
            }
            // The CPU makes the wanted rows only.
            Way::Host => {
                let decoded_len = spec.native_row_len() * part.height as usize;
                let placement = from_top(placement);
                Unit { index, range: range.clone(), rows, wanted, decoded_len, placement, cut: None }
            }
            Way::Jpeg | Way::Jpeg2000 => {
                let decoded_len = PlaneLayout::new(spec).tile_len(rows);
                Unit { index, range: range.clone(), rows, wanted, decoded_len, placement, cut: None }
            }
            _ => {
                let decoded_len = spec.stored_len(self.host.rows_to_decode(rows, wanted.end));
                let cut = self.cuts.and_then(|cuts| cuts.of(index, range.end - range.start, decoded_len as u64));
                Unit { index, range: range.clone(), rows, wanted, decoded_len, placement, cut }
            }
        }
    }
}

impl Row {
    /// All its placements.
    pub(super) fn placements(&self) -> impl Iterator<Item = &Placement> {
        self.units.iter().map(|unit| &unit.placement).chain(&self.sparse)
    }

    fn add(&mut self, way: Way, placements: usize, unit: Unit) {
        let need = Footprint::of_tile(way, unit.stream_len(), unit.decoded_len as u64, placements);
        self.footprint = self.footprint.plus(need);
        if way == Way::DeflatePieces {
            self.footprint = self.footprint.plus(Footprint::of_pieces(unit.pieces().max(1)));
        }
        self.units.push(unit);
    }
}

/// Rows dealt out in bands.
#[derive(Debug)]
pub(super) struct Bands {
    pub(super) bands: Vec<Range<usize>>,
    /// Room that the largest band wants.
    pub(super) room: Footprint,
    /// Bands that are on the device at once.
    pub(super) halves: usize,
}

/// Deals rows out in bands: one where everything fits in `budget`, else as large as two of them fit in it, else one at a time.
pub(super) fn deal(rows: &[Row], budget: u64, fixed: u64) -> Result<Bands, DeviceError> {
    let all = rows.iter().fold(Footprint::default(), |sum, row| sum.plus(row.footprint));
    let working = budget.saturating_sub(fixed);
    if fixed <= budget && all.held() <= working {
        return Ok(Bands { bands: std::iter::once(0..rows.len()).collect(), room: all, halves: 1 });
    }
    let largest = rows.iter().map(|row| row.footprint.held()).max().unwrap_or(0);
    let too_large = |row: u64| DeviceError::Memory {
        what: "this read".into(),
        required: fixed.saturating_add(row),
        available: budget,
        hint: "; read a smaller window, or allow more (max_device_memory)",
    };
    if fixed > budget || largest > working {
        return Err(too_large(largest));
    }
    // A room has to hold the largest of each kind, which may come from different bands: pack with less until it fits.
    for halves in [2, 1] {
        let mut most = working / halves as u64;
        loop {
            let bands = pack(rows, most);
            let room = bands.iter().fold(Footprint::default(), |room, band| {
                let members = rows.get(band.clone()).unwrap_or_default();
                room.max(members.iter().fold(Footprint::default(), |sum, row| sum.plus(row.footprint)))
            });
            if room.held() * halves as u64 <= working {
                return Ok(Bands { bands, room, halves });
            }
            if bands.len() == rows.len() {
                break;
            }
            most = most * 3 / 4;
        }
    }
    // Rows that fit one by one may want rooms of different shapes.
    let room = rows.iter().fold(Footprint::default(), |room, row| room.max(row.footprint));
    Err(too_large(room.held()))
}

fn pack(rows: &[Row], most: u64) -> Vec<Range<usize>> {
    let mut bands = Vec::new();
    let (mut start, mut sum) = (0, 0);
    for (index, row) in rows.iter().enumerate() {
        let need = row.footprint.total();
        if index > start && sum + need > most {
            bands.push(start..index);
            (start, sum) = (index, 0);
        }
        sum += need;
    }
    bands.push(start..rows.len());
    bands
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn rows(sizes: &[u64]) -> Vec<Row> {
        let row = |size: &u64| Row {
            footprint: Footprint { compressed: size * MIB / 2, decoded: size * MIB / 2, ..Footprint::default() },
            ..Row::default()
        };
        sizes.iter().map(row).collect()
    }

    #[test]
    fn one_band_where_all_fits_else_two_at_once_else_one() {
        let ten = rows(&[16; 10]);
        let dealt = |budget: u64| deal(&ten, budget * MIB, 32 * MIB).unwrap_or_else(|error| panic!("{error}"));
        let one = dealt(32 + 161);
        assert_eq!((one.halves, one.bands.len()), (1, 1));
        let two = dealt(32 + 66);
        assert_eq!((two.halves, two.bands.len(), two.room.total()), (2, 5, 32 * MIB));
        let single = dealt(32 + 18);
        assert_eq!((single.halves, single.bands.len()), (1, 10));
    }

    #[test]
    fn too_little_for_one_row_is_refused_with_both_numbers() {
        let error = deal(&rows(&[16, 64]), 45 * MIB, 20 * MIB).err();
        let Some(DeviceError::Memory { required, available, .. }) = error else { panic!("{error:?}") };
        assert!(available == 45 * MIB && required > 84 * MIB && required < 85 * MIB, "{required}");
    }

    #[test]
    fn unequal_rows_never_exceed_the_budget() {
        let mut seed = 7_u64;
        for _ in 0..300 {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let count = (seed >> 60) as usize + 1;
            let list: Vec<Row> = (0..count)
                .map(|index| {
                    let a = ((seed >> (index * 3)) & 31) * MIB;
                    let b = ((seed >> (index * 2 + 5)) & 31) * MIB;
                    Row {
                        footprint: Footprint { compressed: a, decoded: b, tables: 1, temporary: 0 },
                        ..Row::default()
                    }
                })
                .collect();
            let budget = ((seed >> 20) & 255) * MIB;
            if let Ok(dealt) = deal(&list, budget, 10 * MIB) {
                assert!(dealt.room.held() * dealt.halves as u64 + 10 * MIB <= budget);
                assert_eq!(dealt.bands.iter().map(std::iter::ExactSizeIterator::len).sum::<usize>(), count);
            }
        }
    }
}
