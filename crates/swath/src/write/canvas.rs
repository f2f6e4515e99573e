//! Holds the pixels of one level that are still needed, in cells of one tile each.
//!
//! Pixels come in rectangles, in any order. A cell is complete when all its pixels are there. It is dropped once its tile is encoded
//! and all pixels of the next level that need it are made. Cells wait on disk where memory has no room for them.

use std::{
    collections::{HashMap, hash_map::Entry},
    ops::Range,
};

use swath_io::{Extent, Spill};
use swath_raster::memory;
use swath_tiff::{Grid, Window};

use super::{
    cell_set::CellSet,
    plan::LevelPlan,
    rectangles::{area, bounds, columns_of, overlap, rows_of, union},
    shrinks::LevelShrink,
};
use crate::error::Error;

/// Column and row of a cell in the grid of its level.
pub(super) type CellPosition = (u32, u32);

/// The pixels of one level that are still needed.
#[derive(Debug)]
pub(super) struct Canvas {
    grid: Grid,
    /// Bytes of a sample of each plane: the bands, then the mask.
    planes: Vec<usize>,
    cells: HashMap<CellPosition, Cell>,
    /// Cells whose tile is encoded.
    encoded: CellSet,
    /// How the next level is computed from this one.
    level_shrink: Option<LevelShrink>,
    /// Cells whose patch of the next level is made.
    shrunk: CellSet,
    /// Bytes of cells that are in memory.
    memory_len: u64,
}

impl LevelShrink {
    /// The source pixels that target pixels are made of.
    fn needed(&self, target: Window) -> Window {
        let (across, down) =
            (self.needed_along(Axis::X, &columns_of(target)), self.needed_along(Axis::Y, &rows_of(target)));
        Window::new(across.start, down.start, across.end - across.start, down.end - down.start)
    }

    fn needed_along(&self, axis: Axis, targets: &Range<u32>) -> Range<u32> {
        match axis {
            Axis::X => union(self.samples.needed_columns(targets), self.mask.needed_columns(targets)),
            Axis::Y => union(self.samples.needed_rows(targets), self.mask.needed_rows(targets)),
        }
    }
}

/// Columns, or rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Axis {
    X,
    Y,
}

/// One tile's worth of pixels.
#[derive(Debug)]
struct Cell {
    /// The part of the level that it holds: all its pixels, later only those that are still needed.
    part: Window,
    /// Where pixels were put, until it is complete.
    filled: Vec<Window>,
    missing: u64,
    pixels: Pixels,
    /// When it was last used.
    used: u64,
}

/// Plane after plane, rows without gaps.
#[derive(Debug)]
enum Pixels {
    Memory(Vec<u8>),
    Disk(Extent),
    /// All pixels have one value: a sample of each plane.
    Constant(Vec<u8>),
}

/// A patch of the next level that can be made: the pixels of it that belong to a cell.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patch {
    /// The cell that it belongs to.
    pub home: CellPosition,
    /// Where it lies in the next level.
    pub target: Window,
    /// The pixels of this level that the patch is computed from.
    pub source: Window,
}

/// Pixels of a level in memory: plane after plane.
#[derive(Debug)]
pub(super) struct PlanarPixels<'a> {
    pub part: Window,
    pub planes: Vec<&'a [u8]>,
}

impl Canvas {
    pub(super) fn new(level: &LevelPlan, level_shrink: Option<LevelShrink>) -> Self {
        let layout = &level.layout;
        let mut planes = vec![layout.sample.size(); layout.samples.into()];
        if level.mask.is_some() {
            planes.push(1);
        }
        let grid = level.grid.clone();
        let count = grid.across as usize * grid.down as usize;
        Self {
            grid,
            planes,
            cells: HashMap::new(),
            encoded: CellSet::new(count),
            shrunk: CellSet::new(if level_shrink.is_some() { count } else { 0 }),
            level_shrink,
            memory_len: 0,
        }
    }

    /// Bytes that a level with so many cells takes whatever its pixels are.
    pub(super) fn fixed_len(level: &LevelPlan) -> u64 {
        u64::from(level.grid.across) * u64::from(level.grid.down) / 4 + 16
    }

    /// Bytes of the pixels of a cell.
    pub(super) fn cell_len(level: &LevelPlan) -> u64 {
        let layout = &level.layout;
        let pixel = layout.sample.size() * usize::from(layout.samples) + usize::from(level.mask.is_some());
        u64::from(layout.tile_width.min(layout.width)) * u64::from(layout.tile_height.min(layout.height)) * pixel as u64
    }

    pub(super) fn level_shrink(&self) -> Option<&LevelShrink> {
        self.level_shrink.as_ref()
    }

    /// Bytes of a sample of each plane.
    pub(super) fn planes(&self) -> &[usize] {
        &self.planes
    }

    /// Bytes of cells that are in memory.
    pub(super) fn memory_len(&self) -> u64 {
        self.memory_len
    }

    /// Whether all tiles are encoded.
    pub(super) fn is_done(&self) -> bool {
        self.encoded.count == self.grid.across as usize * self.grid.down as usize
    }

    /// The first pixel of the first cell that is not complete.
    pub(super) fn first_missing(&self) -> CellPosition {
        let first = self.encoded.first_unset() as u64;
        let count = u64::from(self.grid.across) * u64::from(self.grid.down);
        let cell = |number| {
            let (column, row, _) = self.grid.position(number);
            (column, row)
        };
        let (column, row) = (first..count).map(cell).find(|at| !self.is_complete(*at)).unwrap_or_else(|| cell(first));
        (column * self.grid.tile_width, row * self.grid.tile_height)
    }

    /// Whether all pixels of a cell came.
    fn is_complete(&self, at: CellPosition) -> bool {
        self.encoded.get(self.number(at)) || self.cells.get(&at).is_some_and(|cell| cell.missing == 0)
    }

    /// Whether all pixels of these rows of the level came.
    pub(super) fn has_rows(&self, rows: &Range<u32>) -> bool {
        self.touched(self.full_rows(rows)).all(|at| self.is_complete(at))
    }

    /// The cells that hold some rows of the level.
    pub(super) fn cells_of_rows(&self, rows: &Range<u32>) -> Vec<CellPosition> {
        self.touched(self.full_rows(rows)).collect()
    }

    fn full_rows(&self, rows: &Range<u32>) -> Window {
        Window::new(0, rows.start, self.grid.width, rows.end - rows.start)
    }

    /// Copies what a cell in memory holds of some rows of the level to `target`: plane after plane, rows as wide as the level.
    pub(super) fn copy_cell_rows(&self, at: CellPosition, rows: &Range<u32>, target: &mut [u8]) -> Result<(), Error> {
        let (pixels, whole) = (self.cell_pixels(at)?, self.full_rows(rows));
        let shared = overlap(pixels.part, whole).ok_or_else(not_in_memory)?;
        copy_planes(&pixels, target, whole, shared, &self.planes)
    }

    fn number(&self, (column, row): CellPosition) -> usize {
        self.grid.index(column, row, 0) as usize
    }

    /// The part of the level that a cell covers.
    pub(super) fn cell_part(&self, (column, row): CellPosition) -> Window {
        let (width, height) = self.grid.visible(column, row);
        Window::new(column * self.grid.tile_width, row * self.grid.tile_height, width, height)
    }

    /// The cells that a part of the level touches.
    fn touched(&self, part: Window) -> impl Iterator<Item = CellPosition> + use<> {
        let (columns, rows) = self.grid.span(&part);
        rows.flat_map(move |row| columns.clone().map(move |column| (column, row)))
    }

    /// Whether a part of the level lies inside and none of its pixels came before.
    pub(super) fn check(&self, part: Window) -> Result<(), Error> {
        let (width, height) = (self.grid.width, self.grid.height);
        if !part.fits(width, height) {
            return Err(Error::usage(format!(
                "a block of {} x {} pixels at column {}, row {} is not inside the image of {width} x {height}",
                part.width, part.height, part.x, part.y
            )));
        }
        let again = self.touched(part).any(|at| match self.cells.get(&at) {
            Some(cell) if cell.missing > 0 => cell.filled.iter().any(|filled| overlap(*filled, part).is_some()),
            Some(_) => true,
            None => self.encoded.get(self.number(at)),
        });
        if again {
            return Err(Error::usage(format!(
                "a block of {} x {} pixels at column {}, row {} overlaps one that was pushed before",
                part.width, part.height, part.x, part.y
            )));
        }
        Ok(())
    }

    /// Copies pixels into their cells. Returns those that are complete now.
    pub(super) fn put(
        &mut self,
        pixels: &PlanarPixels<'_>,
        spill: &Spill,
        now: u64,
    ) -> Result<Vec<CellPosition>, Error> {
        let mut complete = Vec::new();
        for at in self.touched(pixels.part) {
            let part = self.cell_part(at);
            let beside = || Error::internal("a cell does not overlap the pixels for it");
            let shared = overlap(part, pixels.part).ok_or_else(beside)?;
            self.load(at, spill)?;
            let pixel: usize = self.planes.iter().sum();
            let (memory_len, planes) = (&mut self.memory_len, &self.planes);
            let cell = match self.cells.entry(at) {
                Entry::Occupied(cell) => cell.into_mut(),
                Entry::Vacant(place) => {
                    let len = area(part) as usize * pixel;
                    let pixels = Pixels::Memory(memory::zeroed(len)?);
                    *memory_len += len as u64;
                    place.insert(Cell { part, filled: Vec::new(), missing: area(part), pixels, used: now })
                }
            };
            cell.used = now;
            let Pixels::Memory(memory) = &mut cell.pixels else { return Err(not_in_memory()) };
            copy_planes(pixels, memory, part, shared, planes)?;
            cell.filled.push(shared);
            let missing = cell.missing.checked_sub(area(shared));
            cell.missing = missing.ok_or_else(|| Error::internal("pixels came to a cell twice"))?;
            if cell.missing == 0 {
                cell.filled = Vec::new();
                complete.push(at);
            }
        }
        Ok(complete)
    }

    /// The target columns, or rows, that belong to a place of the grid: those that begin at its source pixels.
    fn targets(&self, axis: Axis, place: u32) -> Range<u32> {
        let Some(level_shrink) = &self.level_shrink else { return 0..0 };
        let (tile, source, target) = match axis {
            Axis::X => (self.grid.tile_width, self.grid.width, level_shrink.samples.target().0),
            Axis::Y => (self.grid.tile_height, self.grid.height, level_shrink.samples.target().1),
        };
        let start = u64::from(place) * u64::from(tile);
        let first = |at: u64| (at.min(source.into()) * u64::from(target)).div_ceil(source.into()) as u32;
        first(start)..first(start + u64::from(tile))
    }

    /// The patch of the next level that belongs to a cell; `None` where it has no pixels or there is no next level.
    fn patch(&self, home: CellPosition) -> Option<Patch> {
        let (columns, rows) = (self.targets(Axis::X, home.0), self.targets(Axis::Y, home.1));
        if columns.is_empty() || rows.is_empty() {
            return None;
        }
        let target = Window::new(columns.start, rows.start, columns.end - columns.start, rows.end - rows.start);
        Some(Patch { home, target, source: self.level_shrink.as_ref()?.needed(target) })
    }

    /// The patches that need pixels of a cell and are not made yet.
    fn waiting_patches(&self, at: CellPosition) -> Vec<Patch> {
        let Some(level_shrink) = &self.level_shrink else { return Vec::new() };
        let part = self.cell_part(at);
        // Sources have the order of their home cells along both axes, so the homes that need this cell form a rectangle.
        let across = cells_that_need(level_shrink, Axis::X, at.0, self.grid.across, &columns_of(part), |place| {
            self.targets(Axis::X, place)
        });
        let down = cells_that_need(level_shrink, Axis::Y, at.1, self.grid.down, &rows_of(part), |place| {
            self.targets(Axis::Y, place)
        });
        let all = down.flat_map(|row| across.clone().map(move |column| (column, row)));
        let waiting = all.filter(|home| !self.shrunk.get(self.number(*home)));
        waiting.filter_map(|home| self.patch(home)).filter(|patch| overlap(patch.source, part).is_some()).collect()
    }

    /// The patches that can be made now that a cell is complete.
    pub(super) fn ready_patches(&self, at: CellPosition) -> Vec<Patch> {
        let mut patches = self.waiting_patches(at);
        patches.retain(|patch| {
            self.touched(patch.source).all(|at| self.cells.get(&at).is_some_and(|cell| cell.missing == 0))
        });
        patches
    }

    /// Whether no pixel of the cells that a part of the level touches came before.
    pub(super) fn is_free(&self, part: Window) -> bool {
        self.touched(part).all(|at| !self.cells.contains_key(&at))
    }

    /// Records that the tile of a cell is encoded and its patch made, elsewhere.
    pub(super) fn set_done(&mut self, at: CellPosition) -> Result<(), Error> {
        let number = self.number(at);
        if self.level_shrink.is_some() {
            self.shrunk.set(number)?;
        }
        self.encoded.set(number)
    }

    /// Records that the tile of a cell is encoded.
    pub(super) fn set_encoded(&mut self, at: CellPosition, spill: &Spill) -> Result<(), Error> {
        self.encoded.set(self.number(at))?;
        self.drop_unneeded(at, spill)
    }

    /// Records that a patch is made.
    pub(super) fn set_shrunk(&mut self, patch: &Patch, spill: &Spill) -> Result<(), Error> {
        self.shrunk.set(self.number(patch.home))?;
        for at in self.touched(patch.source) {
            self.drop_unneeded(at, spill)?;
        }
        Ok(())
    }

    /// Drops a cell whose tile is encoded, or those of its pixels that no patch needs any more.
    fn drop_unneeded(&mut self, at: CellPosition, spill: &Spill) -> Result<(), Error> {
        if !self.encoded.get(self.number(at)) {
            return Ok(());
        }
        let Some(part) = self.cells.get(&at).map(|cell| cell.part) else { return Ok(()) };
        let needed = self.waiting_patches(at).iter().filter_map(|patch| overlap(patch.source, part)).reduce(bounds);
        match needed {
            None => {
                if let Some(cell) = self.cells.remove(&at) {
                    match cell.pixels {
                        Pixels::Memory(memory) => self.memory_len -= memory.len() as u64,
                        Pixels::Disk(extent) => spill.discard(extent),
                        Pixels::Constant(_) => {}
                    }
                }
            }
            // Copying pays off where most of the cell is dropped.
            Some(needed) if area(needed) * 2 <= area(part) => self.crop(at, needed, spill)?,
            Some(_) => {}
        }
        Ok(())
    }

    fn crop(&mut self, at: CellPosition, needed: Window, spill: &Spill) -> Result<(), Error> {
        self.load(at, spill)?;
        let pixels = self.cell_pixels(at)?;
        let pixel: usize = self.planes.iter().sum();
        let mut cropped: Vec<u8> = memory::zeroed(area(needed) as usize * pixel)?;
        copy_planes(&pixels, &mut cropped, needed, needed, &self.planes)?;
        self.memory_len -= (area(pixels.part) - area(needed)) * pixel as u64;
        if let Some(cell) = self.cells.get_mut(&at) {
            (cell.part, cell.pixels) = (needed, Pixels::Memory(cropped));
        }
        Ok(())
    }

    /// Brings a cell back to memory.
    pub(super) fn load(&mut self, at: CellPosition, spill: &Spill) -> Result<(), Error> {
        let Some(cell) = self.cells.get_mut(&at) else { return Ok(()) };
        let mut memory = Vec::new();
        match std::mem::replace(&mut cell.pixels, Pixels::Memory(Vec::new())) {
            Pixels::Memory(there) => {
                cell.pixels = Pixels::Memory(there);
                return Ok(());
            }
            Pixels::Disk(extent) => spill.take(extent, &mut memory)?,
            Pixels::Constant(pixel) => fill(&pixel, &self.planes, area(cell.part) as usize, &mut memory)?,
        }
        self.memory_len += memory.len() as u64;
        cell.pixels = Pixels::Memory(memory);
        Ok(())
    }

    /// Brings the cells of a patch back to memory.
    pub(super) fn load_source(&mut self, patch: &Patch, spill: &Spill) -> Result<(), Error> {
        self.touched(patch.source).try_for_each(|at| self.load(at, spill))
    }

    /// When each cell in memory was last used, and its bytes.
    pub(super) fn in_memory(&self) -> impl Iterator<Item = (u64, u64, CellPosition)> + '_ {
        self.cells.iter().filter_map(|(at, cell)| match &cell.pixels {
            Pixels::Memory(memory) => Some((cell.used, memory.len() as u64, *at)),
            Pixels::Disk(_) | Pixels::Constant(_) => None,
        })
    }

    /// Moves a cell to the disk, unless its pixels all have one value.
    pub(super) fn unload(&mut self, at: CellPosition, spill: &Spill) -> Result<(), Error> {
        let Some(cell) = self.cells.get_mut(&at) else { return Ok(()) };
        let Pixels::Memory(memory) = &cell.pixels else { return Ok(()) };
        let len = memory.len() as u64;
        cell.pixels = match constant_pixel(memory, &self.planes, area(cell.part) as usize) {
            Some(pixel) => Pixels::Constant(pixel),
            None => Pixels::Disk(spill.put(memory)?),
        };
        self.memory_len -= len;
        Ok(())
    }

    /// The pixels of a cell that is in memory.
    pub(super) fn cell_pixels(&self, at: CellPosition) -> Result<PlanarPixels<'_>, Error> {
        let Some(Cell { part, pixels: Pixels::Memory(memory), .. }) = self.cells.get(&at) else {
            return Err(not_in_memory());
        };
        Ok(PlanarPixels { part: *part, planes: split(memory, &self.planes, area(*part))? })
    }

    /// Returns the pixels that a patch is computed from: borrowed where they lie, or put together in `room`.
    pub(super) fn source<'a>(&'a self, patch: &Patch, room: &'a mut Vec<u8>) -> Result<PlanarPixels<'a>, Error> {
        let mut cells = self.touched(patch.source);
        if let (Some(only), None) = (cells.next(), cells.next()) {
            let pixels = self.cell_pixels(only)?;
            if pixels.part == patch.source {
                return Ok(pixels);
            }
        }
        let pixel: usize = self.planes.iter().sum();
        room.clear();
        memory::resize(room, area(patch.source) as usize * pixel)?;
        for at in self.touched(patch.source) {
            let pixels = self.cell_pixels(at)?;
            let shared = overlap(pixels.part, patch.source).ok_or_else(not_in_memory)?;
            copy_planes(&pixels, room, patch.source, shared, &self.planes)?;
        }
        Ok(PlanarPixels { part: patch.source, planes: split(room, &self.planes, area(patch.source))? })
    }
}

/// Returns the cells along an axis whose target pixels need pixels in `wanted`. `at` is one of them; a cell between two of them may
/// have no target pixel of its own, where levels are far apart.
fn cells_that_need(
    level_shrink: &LevelShrink,
    axis: Axis,
    at: u32,
    count: u32,
    wanted: &Range<u32>,
    targets: impl Fn(u32) -> Range<u32>,
) -> Range<u32> {
    let reaches = |place: u32| {
        let targets = targets(place);
        let needed = level_shrink.needed_along(axis, &targets);
        (!targets.is_empty()).then_some(needed.start < wanted.end && wanted.start < needed.end)
    };
    let farthest = |places: &mut dyn Iterator<Item = u32>| {
        let near = places.take_while(|place| reaches(*place) != Some(false));
        near.filter(|place| reaches(*place) == Some(true)).last().unwrap_or(at)
    };
    farthest(&mut (0..at).rev())..farthest(&mut (at + 1..count)) + 1
}

/// Cuts plane after plane.
pub(super) fn split<'a>(bytes: &'a [u8], planes: &[usize], pixels: u64) -> Result<Vec<&'a [u8]>, Error> {
    let mut rest = bytes;
    let mut found = Vec::with_capacity(planes.len());
    for size in planes {
        let (own, later) = rest.split_at_checked(pixels as usize * size).ok_or_else(too_short)?;
        found.push(own);
        rest = later;
    }
    Ok(found)
}

/// Copies the pixels `shared` of all planes to memory that covers `target`, plane after plane; `sizes` are the bytes of a sample of
/// each.
fn copy_planes(
    from: &PlanarPixels<'_>,
    to: &mut [u8],
    target: Window,
    shared: Window,
    sizes: &[usize],
) -> Result<(), Error> {
    if sizes.len() != from.planes.len() {
        return Err(too_short());
    }
    let mut rest = to;
    for (size, plane) in sizes.iter().zip(&from.planes) {
        let (own, later) = rest.split_at_mut_checked(area(target) as usize * size).ok_or_else(too_short)?;
        copy_part(plane, from.part, own, target, shared, *size)?;
        rest = later;
    }
    Ok(())
}

fn too_short() -> Error {
    Error::internal("the pixels of a cell are shorter than planned")
}

fn not_in_memory() -> Error {
    Error::internal("a cell is not in memory")
}

/// Copies the pixels `shared` from a plane that covers `source` to one that covers `target`.
fn copy_part(
    from: &[u8],
    source: Window,
    to: &mut [u8],
    target: Window,
    shared: Window,
    size: usize,
) -> Result<(), Error> {
    let start =
        |part: Window, row: u32| ((row - part.y) as usize * part.width as usize + (shared.x - part.x) as usize) * size;
    let len = shared.width as usize * size;
    for row in shared.y..shared.y + shared.height {
        let (read, write) = (start(source, row), start(target, row));
        let (from, to) = from.get(read..read + len).zip(to.get_mut(write..write + len)).ok_or_else(too_short)?;
        to.copy_from_slice(from);
    }
    Ok(())
}

/// Returns a sample of each plane if all pixels are equal.
fn constant_pixel(memory: &[u8], planes: &[usize], pixels: usize) -> Option<Vec<u8>> {
    let mut rest = memory;
    let mut pixel = Vec::new();
    for size in planes {
        let (plane, later) = rest.split_at_checked(pixels * size)?;
        rest = later;
        if plane.get(*size..)? != plane.get(..plane.len().checked_sub(*size)?)? {
            return None;
        }
        pixel.extend_from_slice(plane.get(..*size)?);
    }
    Some(pixel)
}

/// Fills memory with pixels of one value.
fn fill(pixel: &[u8], planes: &[usize], pixels: usize, memory: &mut Vec<u8>) -> Result<(), Error> {
    memory::resize(memory, pixel.len() * pixels)?;
    let (mut rest, mut samples) = (&mut memory[..], pixel);
    for size in planes {
        let (sample, later) = samples.split_at_checked(*size).ok_or_else(not_in_memory)?;
        let (plane, after) = rest.split_at_mut_checked(size * pixels).ok_or_else(not_in_memory)?;
        plane.chunks_exact_mut((*size).max(1)).for_each(|target| target.copy_from_slice(sample));
        (rest, samples) = (after, later);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constant_cells_need_no_disk() {
        let planes = [2, 1];
        let mut memory = Vec::new();
        fill(&[7, 8, 9], &planes, 3, &mut memory).unwrap();
        assert_eq!(memory, [7, 8, 7, 8, 7, 8, 9, 9, 9]);
        assert_eq!(constant_pixel(&memory, &planes, 3), Some(vec![7, 8, 9]));
        memory[4] = 1;
        assert_eq!(constant_pixel(&memory, &planes, 3), None);
    }
}
