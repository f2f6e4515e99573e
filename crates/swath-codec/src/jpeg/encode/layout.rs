//! The layout of blocks and samples, computed once per image.

use crate::jpeg::dct::LANES;

/// Most components of a scan.
pub(super) const MAX_COMPONENTS: usize = 4;

/// A component of the image.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Component {
    /// Sampling factors: its blocks in an MCU, across and down.
    pub across: usize,
    pub down: usize,
    /// Blocks with samples of the image in them, in a row and in a column.
    pub blocks: usize,
    pub block_rows: usize,
    /// Samples from row to row of its plane: whole groups of blocks.
    pub stride: usize,
    /// Whether it uses the tables of chrominance.
    pub chroma: bool,
}

impl Component {
    /// Samples of its plane in an MCU row.
    pub fn mcu_row_len(&self) -> usize {
        self.stride * 8 * self.down
    }

    /// Groups in a row of blocks.
    pub fn groups(&self) -> usize {
        self.stride / (8 * LANES)
    }
}

/// An image cut into MCUs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Layout {
    pub width: usize,
    pub height: usize,
    /// MCUs in a row and in a column.
    pub mcus: usize,
    pub mcu_rows: usize,
    /// Luma samples per chroma sample, across and down; 1 and 1 where nothing is subsampled.
    pub across: usize,
    pub down: usize,
    components: [Component; MAX_COMPONENTS],
    count: usize,
}

impl Layout {
    /// With `chroma`, all components but the first use the tables of chrominance and have one block where the first has `subsampling` blocks.
    pub fn new(width: usize, height: usize, count: usize, subsampling: (u8, u8), chroma: bool) -> Self {
        let (across, down) = (usize::from(subsampling.0.max(1)), usize::from(subsampling.1.max(1)));
        let component = |n: usize| {
            let chroma = chroma && n > 0;
            let (h, v) = if chroma { (1, 1) } else { (across, down) };
            let blocks = (width * h).div_ceil(8 * across);
            let block_rows = (height * v).div_ceil(8 * down);
            Component { across: h, down: v, blocks, block_rows, stride: blocks.next_multiple_of(LANES) * 8, chroma }
        };
        Self {
            width,
            height,
            mcus: width.div_ceil(8 * across),
            mcu_rows: height.div_ceil(8 * down),
            across,
            down,
            components: std::array::from_fn(component),
            count: count.min(MAX_COMPONENTS),
        }
    }

    pub fn components(&self) -> &[Component] {
        self.components.get(..self.count).unwrap_or_default()
    }
}
