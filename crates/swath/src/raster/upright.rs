//! Turns pictures upright, as the Orientation tag says.

use swath_tiff::SampleType;

use super::{Interleave, Raster};
use crate::{error::Error, state::spare::SampleBuffer};

/// Returns the column and row in the stored picture of the pixel that column `x` and row `y` of the upright picture show. `width` and
/// `height` are those of the stored picture. An `orientation` outside 1 to 8 counts as 1, which is upright.
#[must_use]
pub fn stored_position(orientation: u16, x: usize, y: usize, width: usize, height: usize) -> (usize, usize) {
    let from_right = |column: usize| width.saturating_sub(column + 1);
    let from_bottom = |row: usize| height.saturating_sub(row + 1);
    match orientation {
        2 => (from_right(x), y),
        3 => (from_right(x), from_bottom(y)),
        4 => (x, from_bottom(y)),
        5 => (y, x),
        6 => (y, from_bottom(x)),
        7 => (from_right(y), from_bottom(x)),
        8 => (from_right(y), x),
        _ => (x, y),
    }
}

impl Raster {
    /// Turned as the Orientation tag says the picture was stored.
    pub(crate) fn upright(self, orientation: u16) -> Result<Raster, Error> {
        if orientation == 1 {
            return Ok(self);
        }
        let (width, height) = (self.width as usize, self.height as usize);
        let transposed = orientation >= 5;
        let (new_width, new_height) = if transposed { (height, width) } else { (width, height) };
        let size = self.sample.size();
        let (planes, pixel) = match self.interleave {
            Interleave::Band => (self.bands as usize, size),
            Interleave::Pixel => (1, size * self.bands as usize),
        };
        let mut buffer = SampleBuffer::new(self.bytes().len())
            .ok_or_else(|| Error::memory("there is no memory to turn the image upright"))?;
        let plane_len = width * height * pixel;
        let planes_out = buffer.bytes_mut().chunks_exact_mut(plane_len.max(1));
        for (source, target) in self.bytes().chunks_exact(plane_len.max(1)).zip(planes_out).take(planes) {
            for (index, place) in target.chunks_exact_mut(pixel).enumerate() {
                let (x, y) = (index % new_width, index / new_width);
                let (from_x, from_y) = stored_position(orientation, x, y, width, height);
                let at = (from_y * width + from_x) * pixel;
                if let Some(found) = source.get(at..at + pixel) {
                    place.copy_from_slice(found);
                }
            }
        }
        Ok(Raster { buffer, width: new_width as u32, height: new_height as u32, ..self })
    }

    /// A raster of one band from bytes that are already there.
    pub(crate) fn from_u8(width: u32, height: u32, bytes: &[u8]) -> Option<Raster> {
        let mut buffer = SampleBuffer::new(bytes.len())?;
        buffer.bytes_mut().copy_from_slice(bytes);
        let (sample, interleave) = (SampleType::U8, Interleave::Band);
        Some(Raster { buffer, sample, width, height, bands: 1, interleave, report: None })
    }
}
