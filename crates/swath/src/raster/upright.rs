//! Turns pictures upright, as the Orientation tag says.

use swath_raster::memory::Buffer;
use swath_tiff::SampleType;

use super::{Interleave, Raster};
use crate::error::Error;

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
        let mut buffer = Buffer::zeroed(self.bytes().len())
            .ok_or_else(|| Error::memory("there is no memory to turn the image upright"))?;
        let plane_len = width * height * pixel;
        let planes_out = buffer.bytes_mut().chunks_exact_mut(plane_len.max(1));
        for (source, target) in self.bytes().chunks_exact(plane_len.max(1)).zip(planes_out).take(planes) {
            for (index, place) in target.chunks_exact_mut(pixel).enumerate() {
                let (x, y) = (index % new_width, index / new_width);
                // The position of the upright pixel in the stored picture.
                let (from_x, from_y) = match orientation {
                    2 => (width - 1 - x, y),
                    3 => (width - 1 - x, height - 1 - y),
                    4 => (x, height - 1 - y),
                    5 => (y, x),
                    6 => (y, height - 1 - x),
                    7 => (width - 1 - y, height - 1 - x),
                    _ => (width - 1 - y, x),
                };
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
        let mut buffer = Buffer::zeroed(bytes.len())?;
        buffer.bytes_mut().copy_from_slice(bytes);
        let (sample, interleave) = (SampleType::U8, Interleave::Band);
        Some(Raster { buffer, sample, width, height, bands: 1, interleave, report: None })
    }
}
