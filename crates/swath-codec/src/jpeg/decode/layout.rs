//! The layout of each component's blocks and samples (T.81 A.1 and A.2).

use super::markers::Header;

/// One component's geometry.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Plane {
    pub h: usize,
    pub v: usize,
    /// Samples that belong to the image.
    pub width: usize,
    pub height: usize,
    /// Blocks that hold them: what a scan of this component alone codes.
    pub blocks_w: usize,
    pub blocks_h: usize,
    /// Samples in a row of the buffer: whole MCUs, then whole groups of blocks.
    pub stride: usize,
    pub rows: usize,
}

/// The frame's geometry.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Layout {
    planes: [Plane; 4],
    count: usize,
    pub width: usize,
    pub height: usize,
    pub h_max: usize,
    pub v_max: usize,
    pub mcus_w: usize,
    pub mcus_h: usize,
}

impl Layout {
    pub fn new(header: &Header) -> Self {
        let (width, height) = (header.width as usize, header.height as usize);
        let h_max = header.components.iter().map(|c| usize::from(c.h)).max().unwrap_or(1);
        let v_max = header.components.iter().map(|c| usize::from(c.v)).max().unwrap_or(1);
        let (mcus_w, mcus_h) = (width.div_ceil(8 * h_max), height.div_ceil(8 * v_max));
        let mut planes = [Plane::default(); 4];
        for (plane, component) in planes.iter_mut().zip(&header.components) {
            let (h, v) = (usize::from(component.h), usize::from(component.v));
            let (own_width, own_height) = ((width * h).div_ceil(h_max), (height * v).div_ceil(v_max));
            *plane = Plane {
                h,
                v,
                width: own_width,
                height: own_height,
                blocks_w: own_width.div_ceil(8),
                blocks_h: own_height.div_ceil(8),
                stride: (mcus_w * h * 8).next_multiple_of(64),
                rows: mcus_h * v * 8,
            };
        }
        Self { planes, count: header.components.len().min(4), width, height, h_max, v_max, mcus_w, mcus_h }
    }

    pub fn planes(&self) -> &[Plane] {
        self.planes.get(..self.count).unwrap_or_default()
    }

    pub fn plane(&self, index: usize) -> Plane {
        self.planes.get(index).copied().unwrap_or_default()
    }
}

/// How a scan walks over blocks: MCU counts, and blocks of each component in an MCU.
#[derive(Debug, Clone, Copy)]
pub(super) struct Walk {
    pub mcus_w: usize,
    pub mcus_h: usize,
    /// More than one component: MCUs hold `h` by `v` blocks of each. Alone, a component comes block by block.
    pub interleaved: bool,
}

impl Walk {
    pub fn new(layout: &Layout, components: &[super::markers::ScanComponent]) -> Self {
        match components {
            [only] => {
                let plane = layout.plane(only.index);
                Self { mcus_w: plane.blocks_w, mcus_h: plane.blocks_h, interleaved: false }
            }
            _ => Self { mcus_w: layout.mcus_w, mcus_h: layout.mcus_h, interleaved: true },
        }
    }

    /// Blocks of a component across and down one MCU.
    pub fn blocks(&self, plane: &Plane) -> (usize, usize) {
        if self.interleaved { (plane.h, plane.v) } else { (1, 1) }
    }
}
