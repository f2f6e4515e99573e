//! A rectangle of pixels.

use std::fmt;

/// A rectangle of pixels: `x, y` is the column and row of its upper left corner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Window {
    /// First column.
    pub x: u32,
    /// First row.
    pub y: u32,
    /// Columns.
    pub width: u32,
    /// Rows.
    pub height: u32,
}

impl Window {
    /// The rectangle at `x, y` of `width` by `height` pixels.
    pub const fn new(x: u32, y: u32, width: u32, height: u32) -> Self {
        Self { x, y, width, height }
    }

    /// One past the last column.
    pub fn x_end(&self) -> u64 {
        u64::from(self.x) + u64::from(self.width)
    }

    /// One past the last row.
    pub fn y_end(&self) -> u64 {
        u64::from(self.y) + u64::from(self.height)
    }

    /// Whether the window has at least one pixel and lies inside a raster of `width` by `height`.
    pub fn fits(&self, width: u32, height: u32) -> bool {
        self.width > 0 && self.height > 0 && self.x_end() <= u64::from(width) && self.y_end() <= u64::from(height)
    }

    /// Number of pixels.
    pub fn pixels(&self) -> u64 {
        u64::from(self.width) * u64::from(self.height)
    }
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{} pixels at column {}, row {}", self.width, self.height, self.x, self.y)
    }
}
