//! From a window to tiles, byte ranges and rectangles.

pub mod grid;

pub use grid::{Cell, Grid};
