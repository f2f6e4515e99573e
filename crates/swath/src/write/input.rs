//! Rows as the caller passes them.

use std::ops::Range;

use swath_codec::pre::Arrangement;

use super::options::Shape;
use crate::{error::Error, raster::Interleave};

/// Rows of a raster in memory: samples in native byte order, without gaps.
#[derive(Debug, Clone, Copy)]
pub struct Rows<'a> {
    pub(super) samples: &'a [u8],
    pub(super) interleave: Interleave,
    pub(super) mask: Option<&'a [u8]>,
}

impl<'a> Rows<'a> {
    /// Whole rows with all bands of a pixel together.
    pub fn pixels(samples: &'a [u8]) -> Self {
        Self { samples, interleave: Interleave::Pixel, mask: None }
    }

    /// Whole rows band after band: all rows of the first band, then of the next.
    pub fn bands(samples: &'a [u8]) -> Self {
        Self { samples, interleave: Interleave::Band, mask: None }
    }

    /// Adds the mask of these rows: a byte for each pixel, 0 where there is no data.
    #[must_use]
    pub fn with_mask(mut self, mask: &'a [u8]) -> Self {
        self.mask = Some(mask);
        self
    }
}

/// Rows that the writer checked.
#[derive(Debug)]
pub(super) struct Pushed<'a> {
    /// Samples, a plane for each band or one for all, and then the mask.
    pub planes: Vec<&'a [u8]>,
    pub arrangement: Arrangement,
    pub rows: u32,
}

impl<'a> Pushed<'a> {
    /// Checks that these are whole rows of a raster of this shape.
    pub(super) fn new(rows: &Rows<'a>, shape: Shape, masked: bool) -> Result<Self, Error> {
        let Shape { width, bands, sample, .. } = shape;
        let row_len = width as usize * usize::from(bands) * sample.size();
        let count = rows.samples.len() / row_len;
        if !rows.samples.len().is_multiple_of(row_len) {
            let detail = format!("{} bytes are no whole rows of {row_len} bytes", rows.samples.len());
            return Err(Error::usage(detail));
        }
        match rows.mask {
            None if masked => return Err(Error::usage("the file has a mask, but the rows come without")),
            Some(_) if !masked => return Err(Error::usage("rows come with a mask that the file does not have")),
            Some(mask) if mask.len() != count * width as usize => {
                return Err(Error::usage(format!("a mask of {} bytes for {count} rows of {width}", mask.len())));
            }
            _ => {}
        }
        let too_many = |_| Error::usage(format!("{count} rows are more than a file can have"));
        let rows_there = u32::try_from(count).map_err(too_many)?;
        // A single band is the same either way, and the simpler one is cheaper.
        let planar = rows.interleave == Interleave::Band || bands == 1;
        let plane = if planar { count * width as usize * sample.size() } else { rows.samples.len() };
        let mut planes: Vec<&[u8]> = rows.samples.chunks_exact(plane.max(1)).collect();
        planes.extend(rows.mask);
        let arrangement = if planar { Arrangement::Planes } else { Arrangement::Pixels };
        Ok(Self { planes, arrangement, rows: rows_there })
    }

    /// Bytes of a row of each plane.
    pub(super) fn row_lens(&self, shape: Shape) -> Vec<usize> {
        let band = shape.sample.size() * shape.width as usize;
        let bands = usize::from(shape.bands);
        let mut lens = match self.arrangement {
            Arrangement::Planes => vec![band; bands],
            Arrangement::Pixels => vec![band * bands],
        };
        lens.resize(self.planes.len().max(lens.len()), shape.width as usize);
        lens
    }

    /// Some of the rows.
    pub(super) fn part(&self, rows: Range<u32>, shape: Shape) -> Result<Self, Error> {
        let cut = |(plane, len): (&&'a [u8], usize)| {
            let found = plane.get(rows.start as usize * len..rows.end as usize * len);
            found.ok_or_else(|| Error::internal(format!("rows {rows:?} are not among those that were pushed")))
        };
        let planes = self.planes.iter().zip(self.row_lens(shape)).map(cut).collect::<Result<_, _>>()?;
        Ok(Self { planes, arrangement: self.arrangement, rows: rows.end.saturating_sub(rows.start) })
    }
}
