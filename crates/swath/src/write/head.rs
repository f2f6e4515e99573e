//! Builds the head of a file: its directories, with the tables of tiles.

use swath_raster::{memory, moments::Moments};
use swath_tiff::{
    structure::{
        Layout,
        emit::{self, Directory, Field},
    },
    tag,
};

use super::{levels::Levels, plan::Plan, tags};
use crate::error::Error;

impl Plan {
    /// Length of the head.
    pub fn head_len(&self) -> u64 {
        self.head_of(None, None, &[]).len() as u64
    }

    /// Sizes of the pieces of each level's tiles, where no tile has pieces.
    pub fn no_pieces(&self) -> Result<Vec<Vec<u32>>, Error> {
        self.levels.iter().map(|level| Ok(memory::zeroed(level.piece_sizes(level.grid.down))?)).collect()
    }

    /// The head, with the tiles of each level, and the sizes of their pieces, in the order they were numbered; `None` where no
    /// tile has pieces.
    ///
    /// # Errors
    /// When a level lacks tiles or sizes of pieces, which is a fault of the writer.
    pub fn head(
        &self,
        tiles: &Levels<Vec<(u64, u32)>>,
        pieces: Option<&[Vec<u32>]>,
        moments: &[Moments],
    ) -> Result<Vec<u8>, Error> {
        for (index, level) in self.levels.iter().enumerate().filter(|(_, level)| level.listed_pieces() > 0) {
            let expected = level.piece_sizes(level.grid.down);
            let found = pieces.map(|pieces| pieces.get(index).map_or(0, Vec::len));
            if let Some(found) = found.filter(|found| *found != expected) {
                let detail = format!("level {index} has {found} sizes of pieces where its tiles have {expected}");
                return Err(Error::internal(detail));
            }
        }
        for (index, (level, tiles)) in self.levels.iter().zip(tiles.iter()).enumerate() {
            let expected =
                u64::from(level.grid.across) * u64::from(level.grid.down) * u64::from(level.tiles_per_position());
            if tiles.len() as u64 != expected {
                let detail = format!("{} of {expected} tiles of level {index} were written", tiles.len());
                return Err(Error::internal(detail));
            }
        }
        Ok(self.head_of(Some(tiles), pieces, moments))
    }

    /// The head; without tiles, one of the same length. Zeros stand for what is not given: [`Plan::head`] checks that nothing is
    /// missing from what is.
    fn head_of(
        &self,
        tiles: Option<&Levels<Vec<(u64, u32)>>>,
        pieces: Option<&[Vec<u32>]>,
        moments: &[Moments],
    ) -> Vec<u8> {
        let mut images = Vec::new();
        let mut masks = Vec::new();
        for (index, level) in self.levels.iter().enumerate() {
            let tiles = tiles.and_then(|tiles| tiles.get(index)).map_or(&[][..], Vec::as_slice);
            let per_position = level.tiles_per_position() as usize;
            let planes = level.grid.planes as usize;
            let positions = level.grid.across as usize * level.grid.down as usize;
            let at =
                |position: usize, plane: usize| tiles.get(position * per_position + plane).copied().unwrap_or_default();
            let mut fields = emit::layout_fields(&level.layout);
            if index == 0 {
                fields.extend(self.fields.iter().cloned().map(|field| match field.tag {
                    tag::GDAL_METADATA => self.with_statistics(field, moments),
                    _ => field,
                }));
            } else {
                // A reader that opens an overview alone has to know the value of its holes.
                fields.extend(self.nodata.clone());
                fields.extend(self.fields.iter().find(|field| field.tag == tag::COLOR_MAP).cloned());
            }
            let order = (0..planes).flat_map(|plane| (0..positions).map(move |position| (position, plane)));
            let found: Vec<(u64, u32)> = order.map(|(position, plane)| at(position, plane)).collect();
            let mut tables = self.tables(&level.layout, &found);
            if level.listed_pieces() > 0 {
                let sizes = pieces.and_then(|pieces| pieces.get(index)).map_or(&[][..], Vec::as_slice);
                let order = (0..planes).flat_map(|plane| (0..positions).map(move |at| at * planes + plane));
                tables.push(pieces_field(level.listed_pieces(), sizes, order));
            }
            images.push(Directory { fields, tables });
            if let Some((layout, _)) = &level.mask {
                let found: Vec<(u64, u32)> = (0..positions).map(|position| at(position, planes)).collect();
                masks.push(Directory { fields: emit::layout_fields(layout), tables: self.tables(layout, &found) });
            }
        }
        // As GDAL has them: the image, its mask, overviews, their masks.
        let mut directories = Vec::new();
        let (mut images, mut masks) = (images.into_iter(), masks.into_iter());
        directories.extend(images.next());
        directories.extend(masks.next());
        directories.extend(images);
        directories.extend(masks);
        emit::head(self.style, self.ghost.as_deref(), &directories)
    }

    fn with_statistics(&self, field: Field, moments: &[Moments]) -> Field {
        let room = field.len() + self.metadata_reserve;
        if moments.is_empty() {
            return field.with_reserve(room);
        }
        tags::add_statistics(field, moments).with_reserve(room)
    }

    fn tables(&self, layout: &Layout, tiles: &[(u64, u32)]) -> Vec<Field> {
        let (offsets, counts) = if layout.tiled {
            (tag::TILE_OFFSETS, tag::TILE_BYTE_COUNTS)
        } else {
            (tag::STRIP_OFFSETS, tag::STRIP_BYTE_COUNTS)
        };
        let places: Vec<u64> = tiles.iter().map(|(offset, _)| *offset).collect();
        let lengths: Vec<u32> = tiles.iter().map(|(_, len)| *len).collect();
        let places = if self.style.big {
            Field::long8(offsets, places)
        } else {
            Field::long(offsets, places.into_iter().map(|offset| offset as u32).collect::<Vec<_>>())
        };
        vec![places, Field::long(counts, lengths)]
    }
}

/// The tag that says how the tiles of a level are cut into independent pieces: the length of a piece before compression, then for each
/// tile the compressed lengths of all pieces but the last, or zeros where it has none.
fn pieces_field(each: usize, sizes: &[u32], order: impl Iterator<Item = usize>) -> Field {
    let mut values = vec![swath_cuda::encode::PIECE_LEN as u32];
    for tile in order {
        let found = sizes.get(tile * each..(tile + 1) * each).unwrap_or_default();
        values.extend((0..each - 1).map(|piece| found.get(piece).copied().unwrap_or(0)));
    }
    Field::long(tag::SWATH_PIECES, values)
}

#[cfg(test)]
mod tests {
    use swath_tiff::{Compression, SampleType};

    use super::*;
    use crate::{
        error::ErrorKind,
        metadata::Metadata,
        write::{
            options::{Shape, WriteOptions},
            plan::LevelPlan,
        },
    };

    #[test]
    fn a_list_of_pieces_that_is_too_short_gives_no_head() {
        let shape = Shape { width: 1024, height: 1024, bands: 1, sample: SampleType::U16 };
        let options = WriteOptions::cog().with_compression(Compression::Deflate).with_statistics(false);
        let plan = Plan::new(shape, &Metadata::default(), &options, true).unwrap();
        assert!(plan.levels.main.listed_pieces() > 1 && plan.levels.has_overviews());
        let tiles = |level: &LevelPlan| vec![(1 << 20, 9); level.grid.count() as usize];
        let tiles = plan.levels.map(tiles);
        let mut pieces = plan.no_pieces().unwrap();
        let none = plan.head(&tiles, None, &[]).unwrap();
        assert_eq!(plan.head(&tiles, Some(&pieces), &[]).unwrap(), none);
        pieces[1].pop();
        for wrong in [&pieces[..], &pieces[..1], &[]] {
            let error = plan.head(&tiles, Some(wrong), &[]).unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Internal(_)), "{error}");
        }
    }
}
