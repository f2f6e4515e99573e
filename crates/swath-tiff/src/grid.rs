//! The grid of tiles of an image. A strip is a tile as wide as the image.

use crate::{
    error::TiffError,
    structure::layout::{Layout, Planar},
    window::Window,
};

/// The grid of tiles of one directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grid {
    /// Columns of the image.
    pub width: u32,
    /// Rows of the image.
    pub height: u32,
    /// Columns of a tile.
    pub tile_width: u32,
    /// Rows of a tile.
    pub tile_height: u32,
    /// Tiles in a tile row.
    pub across: u32,
    /// Tile rows.
    pub down: u32,
    /// Planes that are stored in tiles of their own.
    pub planes: u32,
    /// Whether the last tile row is stored shorter (strips) rather than padded (tiles).
    pub short_last: bool,
}

/// The intersection of one tile and a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cell {
    /// Column of the grid.
    pub column: u32,
    /// Row of the grid.
    pub row: u32,
    /// Rows that the tile stores.
    pub rows: u32,
    /// The intersection, relative to the tile's upper left corner.
    pub inside: Window,
    /// Column of the intersection's upper left corner, relative to the window.
    pub x: u32,
    /// Row of the intersection's upper left corner, relative to the window.
    pub y: u32,
}

impl Grid {
    /// The grid of a directory.
    ///
    /// # Errors
    /// When it has more tiles than can be numbered.
    pub fn new(layout: &Layout) -> Result<Self, TiffError> {
        let across = layout.width.div_ceil(layout.tile_width);
        let down = layout.height.div_ceil(layout.tile_height);
        let planes = if layout.planar == Planar::Separate { u32::from(layout.samples) } else { 1 };
        let count = u64::from(across) * u64::from(down);
        // GDAL has the same bound. It keeps every tile number of a plane in 31 bits.
        if count > i32::MAX as u64 {
            return Err(TiffError::malformed(format!(
                "{count} tiles of {}x{} pixels are more than a file can have",
                layout.tile_width, layout.tile_height
            )));
        }
        Ok(Self {
            width: layout.width,
            height: layout.height,
            tile_width: layout.tile_width,
            tile_height: layout.tile_height,
            across,
            down,
            planes,
            short_last: !layout.tiled,
        })
    }

    /// Number of tiles in all planes.
    pub fn count(&self) -> u64 {
        u64::from(self.across) * u64::from(self.down) * u64::from(self.planes)
    }

    /// Number of a tile in the file's tables.
    pub fn index(&self, column: u32, row: u32, plane: u32) -> u64 {
        (u64::from(plane) * u64::from(self.down) + u64::from(row)) * u64::from(self.across) + u64::from(column)
    }

    /// Column, row and plane of the tile with this number.
    pub fn position(&self, index: u64) -> (u32, u32, u32) {
        let across = u64::from(self.across.max(1));
        let down = u64::from(self.down.max(1));
        ((index % across) as u32, (index / across % down) as u32, (index / across / down) as u32)
    }

    /// Rows that a tile of this tile row stores: fewer than `tile_height` only in the last strip.
    pub fn stored_rows(&self, row: u32) -> u32 {
        if !self.short_last {
            return self.tile_height;
        }
        let above = u64::from(row) * u64::from(self.tile_height);
        u64::from(self.height).saturating_sub(above).min(self.tile_height.into()) as u32
    }

    /// Columns and rows of a tile that lie inside the image. Tiles at the right and lower edge store more.
    pub fn visible(&self, column: u32, row: u32) -> (u32, u32) {
        let visible = |whole: u32, size: u32, index: u32| whole.saturating_sub(index.saturating_mul(size)).min(size);
        (visible(self.width, self.tile_width, column), visible(self.height, self.tile_height, row))
    }

    /// The grid columns and rows that a window touches.
    pub fn span(&self, window: &Window) -> (std::ops::Range<u32>, std::ops::Range<u32>) {
        let cut = |start: u32, end: u64, size: u32| start / size..(end.div_ceil(size.into())) as u32;
        (cut(window.x, window.x_end(), self.tile_width), cut(window.y, window.y_end(), self.tile_height))
    }

    /// The intersection of tile `column, row` and `window`; `None` where they do not meet.
    pub fn cell(&self, window: &Window, column: u32, row: u32) -> Option<Cell> {
        let left = u64::from(column) * u64::from(self.tile_width);
        let top = u64::from(row) * u64::from(self.tile_height);
        let x0 = left.max(window.x.into());
        let x1 = (left + u64::from(self.tile_width)).min(window.x_end());
        let y0 = top.max(window.y.into());
        let y1 = (top + u64::from(self.tile_height)).min(window.y_end());
        if x0 >= x1 || y0 >= y1 {
            return None;
        }
        Some(Cell {
            column,
            row,
            rows: self.stored_rows(row),
            inside: Window::new((x0 - left) as u32, (y0 - top) as u32, (x1 - x0) as u32, (y1 - y0) as u32),
            x: (x0 - u64::from(window.x)) as u32,
            y: (y0 - u64::from(window.y)) as u32,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid(width: u32, height: u32, tile_width: u32, tile_height: u32, short_last: bool) -> Grid {
        Grid {
            width,
            height,
            tile_width,
            tile_height,
            across: width.div_ceil(tile_width),
            down: height.div_ceil(tile_height),
            planes: 1,
            short_last,
        }
    }

    #[test]
    fn every_pixel_of_a_window_is_covered_exactly_once() {
        for (width, height, tile_width, tile_height) in
            [(1, 1, 16, 16), (33, 31, 16, 16), (100, 7, 100, 3), (5, 64, 2, 64)]
        {
            let grid = grid(width, height, tile_width, tile_height, false);
            for window in [Window::new(0, 0, width, height), Window::new(width / 2, height / 3, width - width / 2, 1)] {
                let mut hits = vec![0u8; window.pixels() as usize];
                let (columns, rows) = grid.span(&window);
                for row in rows {
                    for column in columns.clone() {
                        let cell = grid.cell(&window, column, row).unwrap();
                        assert!(cell.inside.fits(tile_width, tile_height));
                        for y in cell.y..cell.y + cell.inside.height {
                            for x in cell.x..cell.x + cell.inside.width {
                                hits[(y * window.width + x) as usize] += 1;
                            }
                        }
                    }
                }
                assert!(hits.iter().all(|hit| *hit == 1));
            }
        }
    }

    #[test]
    fn last_strip_is_short_and_last_tile_is_not() {
        assert_eq!(grid(10, 25, 10, 10, true).stored_rows(2), 5);
        assert_eq!(grid(10, 25, 10, 10, false).stored_rows(2), 10);
    }

    #[test]
    fn index_and_position_are_inverse() {
        let mut grid = grid(100, 100, 16, 16, false);
        grid.planes = 3;
        for index in 0..grid.count() {
            let (column, row, plane) = grid.position(index);
            assert_eq!(grid.index(column, row, plane), index);
        }
    }
}
