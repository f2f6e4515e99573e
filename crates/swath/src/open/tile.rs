//! Single tiles, as they are stored or decoded.

use swath_codec::Scratch;
use swath_raster::memory;

use super::{dataset::Dataset, image::Image};
use crate::error::Error;

impl Dataset {
    /// The stored bytes of a tile; `None` for a sparse one.
    ///
    /// # Errors
    /// When the tile does not exist or cannot be read.
    pub fn tile_bytes(&self, image: &Image, column: u32, row: u32, plane: u32) -> Result<Option<Vec<u8>>, Error> {
        let index = self.tile_index(image, column, row, plane)?;
        let range = image.locate(index..index + 1, &self.fetch).map_err(|error| error.in_source(&self.name))?;
        let Some(Some(range)) = range.into_iter().next() else { return Ok(None) };
        let bytes = self.unchanged(self.fetch.bytes(range));
        bytes.map(Some).map_err(|error| error.at(&image.place_of(index)).in_source(&self.name))
    }

    /// A tile decoded to native samples, pixel by pixel, padding included; `None` for a sparse one.
    ///
    /// # Errors
    /// When the tile does not exist, cannot be read or is damaged.
    pub fn tile(&self, image: &Image, column: u32, row: u32, plane: u32) -> Result<Option<Vec<u8>>, Error> {
        let Some(bytes) = self.tile_bytes(image, column, row, plane)? else { return Ok(None) };
        let decode = || {
            let host = image.host(&self.registry, &self.limits)?;
            let rows = image.grid.stored_rows(row);
            let mut out: Vec<u8> = memory::zeroed(host.spec().native_row_len().saturating_mul(rows as usize))?;
            host.decode_native(rows, &bytes, &mut out, &mut Scratch::default())?;
            Ok(Some(out))
        };
        let place = image.place_of(image.grid.index(column, row, plane));
        decode().map_err(|error: Error| error.at(&place).in_source(&self.name))
    }

    fn tile_index(&self, image: &Image, column: u32, row: u32, plane: u32) -> Result<u64, Error> {
        let grid = &image.grid;
        if column >= grid.across || row >= grid.down || plane >= grid.planes {
            let detail = format!(
                "there is no tile ({column}, {row}) in plane {plane}; the grid is {}x{} with {} planes",
                grid.across, grid.down, grid.planes
            );
            return Err(Error::usage(detail).in_ifd(image.index).in_source(&self.name));
        }
        Ok(grid.index(column, row, plane))
    }
}
