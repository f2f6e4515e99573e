//! One directory of a file: an image, an overview, a mask or a page.

use std::{ops::Range, sync::Arc};

use swath_codec::{Registry, TileSpec, host::Host};
use swath_io::fork::Once;
use swath_tiff::{
    Compression, Grid, Limits, Place, TiffError, Window,
    structure::{Ifd, Layout, Planar},
    tag,
};

use crate::{
    cancel::Cancel,
    error::{Error, ErrorKind},
    fetch::Fetch,
    open::tables::CachedTable,
};

/// The role of a directory in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Role {
    /// The first image.
    Main,
    /// A smaller copy of the first image.
    Overview,
    /// The first image's mask, or an overview's.
    Mask,
    /// Another image.
    Page,
}

/// One directory: its layout, and how to find and decode its tiles.
#[derive(Debug)]
pub struct Image {
    pub(crate) index: u32,
    pub(crate) ifd: Ifd,
    pub(crate) layout: Layout,
    pub(crate) grid: Grid,
    offsets: CachedTable,
    byte_counts: Option<CachedTable>,
    host: Once<Host>,
}

impl Image {
    pub(crate) fn new(index: u32, ifd: Ifd, layout: Layout, limits: &Limits) -> Result<Self, TiffError> {
        let place = Place { ifd: Some(index), ..Place::default() };
        let build = || {
            let grid = Grid::new(&layout)?;
            let stored = layout.stored_len(grid.stored_rows(0)).unwrap_or(u64::MAX);
            let pixels = u64::from(grid.tile_width).saturating_mul(grid.stored_rows(0).into());
            let pixel = u64::from(layout.samples_per_tile()) * layout.sample.size() as u64;
            let tile_bytes = stored.max(pixels.saturating_mul(pixel));
            // Uncompressed tiles are read row by row and may be of any size.
            if tile_bytes > limits.tile_bytes && layout.compression != Compression::None {
                return Err(TiffError::Limit {
                    what: "decoded bytes of a tile",
                    asked: tile_bytes,
                    allowed: limits.tile_bytes,
                    field: "tile_bytes",
                    place: Place::default(),
                });
            }
            if tile_bytes > isize::MAX as u64 {
                return Err(TiffError::malformed("a tile is larger than the address space"));
            }
            let missing = |tag: u16| TiffError::malformed("this tag is required and missing").at_tag(tag);
            let offsets = layout
                .offsets
                .clone()
                .ok_or_else(|| missing(if layout.tiled { tag::TILE_OFFSETS } else { tag::STRIP_OFFSETS }))?;
            // libtiff computes a missing length only where it can: for one strip per plane.
            let planes = if layout.planar == Planar::Separate { u64::from(layout.samples) } else { 1 };
            if layout.byte_counts.is_none() && grid.count() > planes {
                return Err(missing(if layout.tiled { tag::TILE_BYTE_COUNTS } else { tag::STRIP_BYTE_COUNTS }));
            }
            Ok((grid, offsets))
        };
        let (grid, offsets) = build().map_err(|error| error.at(&place))?;
        let byte_counts = layout.byte_counts.clone().map(|table| CachedTable::new(table, grid.count()));
        let offsets = CachedTable::new(offsets, grid.count());
        Ok(Self { index, ifd, layout, grid, offsets, byte_counts, host: Once::new() })
    }

    /// Number of the directory in the file's chain.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Its tags.
    pub fn ifd(&self) -> &Ifd {
        &self.ifd
    }

    /// How its pixels are stored.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Its grid of tiles.
    pub fn grid(&self) -> &Grid {
        &self.grid
    }

    /// Type of the samples that a read returns.
    pub fn sample(&self) -> swath_tiff::SampleType {
        self.layout.sample
    }

    pub(crate) fn host(&self, registry: &Registry, limits: &Limits) -> Result<&Host, Error> {
        if let Some(host) = self.host.get() {
            return Ok(host);
        }
        let spec = TileSpec::new(&self.layout, limits.clone())?;
        let host = Host::new(Arc::new(spec), registry)?;
        Ok(self.host.get_or_init(|| host))
    }

    /// Decoded bytes of all tiles that a window touches.
    pub(crate) fn decoded_len(&self, window: &Window) -> u64 {
        let (columns, rows) = self.grid.span(window);
        let tiles = columns.len() as u64 * rows.len() as u64 * u64::from(self.grid.planes);
        tiles.saturating_mul(self.tile_len())
    }

    /// Decoded bytes of one tile.
    pub(crate) fn tile_len(&self) -> u64 {
        let pixels = u64::from(self.grid.tile_width).saturating_mul(self.grid.stored_rows(0).into());
        pixels.saturating_mul(u64::from(self.layout.samples_per_tile()) * self.layout.sample.size() as u64)
    }

    /// Checks that the tables have entries for all tiles up to `last`, before a list of those tiles is made.
    pub(crate) fn check_tables(&self, last: u64, size: u64) -> Result<(), Error> {
        for table in std::iter::once(&self.offsets).chain(&self.byte_counts) {
            table.check(last, size).map_err(|detail| Error::malformed(detail).at(&self.place_of(last)))?;
        }
        Ok(())
    }

    pub(crate) fn place_of(&self, index: u64) -> Place {
        let (column, row, plane) = self.grid.position(index);
        Place {
            ifd: Some(self.index),
            tile: Some((column, row)),
            plane: (self.grid.planes > 1).then_some(plane),
            ..Place::default()
        }
    }

    /// Fetches the table entries of these tiles at once, where the file is remote and every request costs.
    pub(crate) fn fetch_tables(
        &self,
        tiles: &[Range<u64>],
        fetch: &Fetch,
        cancel: Option<&Cancel>,
    ) -> Result<(), Error> {
        if !fetch.access.is_remote() {
            return Ok(());
        }
        let tables: Vec<&CachedTable> = std::iter::once(&self.offsets).chain(&self.byte_counts).collect();
        let runs: Vec<(&CachedTable, Range<u64>)> =
            tables.iter().flat_map(|table| table.missing(tiles).into_iter().map(move |run| (*table, run))).collect();
        let places: Vec<Range<u64>> = runs.iter().map(|(table, run)| table.place_of(run)).collect();
        // Looking an entry up reports that it lies beyond the file.
        if places.is_empty() || places.iter().any(|place| place.end > fetch.size()) {
            return Ok(());
        }
        for ((table, run), bytes) in
            runs.iter().zip(fetch.bytes_of(&places, cancel).map_err(|error| error.in_ifd(self.index))?)
        {
            table.keep(run, &bytes);
        }
        Ok(())
    }

    /// Returns the byte range of each tile; `None` for a sparse one.
    pub(crate) fn locate(&self, tiles: Range<u64>, fetch: &Fetch) -> Result<Vec<Option<Range<u64>>>, Error> {
        let offsets = self.entries(&self.offsets, tiles.clone(), fetch)?;
        let counts = match &self.byte_counts {
            Some(counts) => Some(self.entries(counts, tiles.clone(), fetch)?),
            None => None,
        };
        let mut found = Vec::with_capacity(offsets.len());
        for (position, offset) in offsets.iter().enumerate() {
            let count = counts.as_ref().map(|counts| counts.get(position).copied().unwrap_or(0));
            let index = tiles.start + position as u64;
            found.push(
                self.extent(index, *offset, count, fetch.size()).map_err(|error| error.at(&self.place_of(index)))?,
            );
        }
        Ok(found)
    }

    /// Returns offset and length of these tiles as the tables state them, valid or not; `None` for a sparse one. It computes a length
    /// that no table gives, and keeps nothing of the tables.
    pub(crate) fn stated(&self, tiles: Range<u64>, fetch: &Fetch) -> Result<Vec<Option<(u64, u64)>>, Error> {
        self.check_tables(tiles.end.saturating_sub(1), fetch.size())?;
        let offsets = self.offsets.read_once(tiles.clone(), fetch)?;
        let counts = match &self.byte_counts {
            Some(counts) => counts.read_once(tiles.clone(), fetch)?.into_iter().map(Some).collect(),
            None => vec![None; offsets.len()],
        };
        let stated = |(index, (offset, count)): (u64, (u64, Option<u64>))| {
            let (_, row, _) = self.grid.position(index);
            let len = count.unwrap_or_else(|| match self.layout.compression {
                Compression::None => self.layout.stored_len(self.grid.stored_rows(row)).unwrap_or(u64::MAX),
                _ => fetch.size().saturating_sub(offset),
            });
            (offset > 0 && len > 0).then_some((offset, len))
        };
        Ok((tiles.start..).zip(offsets.into_iter().zip(counts)).map(stated).collect())
    }

    fn entries(&self, table: &CachedTable, tiles: Range<u64>, fetch: &Fetch) -> Result<Vec<u64>, Error> {
        let last = tiles.end.saturating_sub(1);
        table.check(last, fetch.size()).map_err(|detail| Error::malformed(detail).at(&self.place_of(last)))?;
        let mut entries = Vec::new();
        table.extend(tiles, fetch, &mut entries).map_err(|error| error.in_ifd(self.index))?;
        Ok(entries)
    }

    fn extent(&self, index: u64, offset: u64, count: Option<u64>, size: u64) -> Result<Option<Range<u64>>, Error> {
        let (_, row, _) = self.grid.position(index);
        let stored = self.layout.stored_len(self.grid.stored_rows(row)).unwrap_or(u64::MAX);
        let single_strip = !self.layout.tiled && self.grid.count() == 1;
        let rest = size.saturating_sub(offset);
        if count == Some(0) && (offset == 0 || !single_strip) {
            return Ok(None);
        }
        if offset == 0 {
            // Some writers state the length of every tile, but the offset of those only that they wrote. Any other length is a
            // contradiction: the header is at 0.
            return match count {
                // The smallest possible TIFF, in GDAL's tests, has one pixel, no lengths, and offset 0.
                None if self.layout.compression == Compression::None => Ok(None),
                None => Err(Error::malformed("a tile of unknown length at offset 0, where the header is")),
                Some(count) if count == stored && self.grid.count() > 1 => Ok(None),
                Some(count) => {
                    Err(Error::malformed(format!("a tile of {count} bytes at offset 0, where the header is")))
                }
            };
        }
        if count.is_none_or(|count| count == 0) && self.ifd.entries.iter().any(|entry| entry.kind.size() == 0) {
            return Err(Error::malformed(
                "the length of the tile is missing, and cannot be computed because a tag has an unknown type",
            ));
        }
        let most = stored.saturating_mul(10).saturating_add(4096);
        let len = match (self.layout.compression, count) {
            // Like libtiff, which reads as many bytes as the rows have, whatever the table says.
            (Compression::None, _) => stored,
            // libtiff's guard: no codec needs ten times the size of the pixels.
            (_, None | Some(0)) => rest.min(most.max(1 << 20)),
            (_, Some(count)) if count > 1 << 20 => count.min(most),
            (_, Some(count)) => count,
        };
        if offset > size || len > rest {
            return Err(Error::new(ErrorKind::Malformed(format!(
                "{len} bytes are needed, but the file ends after {size} bytes; it may be cut off"
            )))
            .at(&Place { offset: Some(offset), ..Place::default() }));
        }
        Ok(Some(offset..offset + len))
    }
}
