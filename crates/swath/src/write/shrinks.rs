//! How each level becomes the next.

use std::ops::Range;

use swath_raster::shrink::{ColumnShrink, Shrink, ShrinkError};
use swath_tiff::SampleType;

use super::{levels::Levels, plan::Plan};
use crate::error::Error;

/// How rows of one level become rows of the next.
#[derive(Debug, Clone)]
pub(super) struct Shrinks {
    pub samples: Shrink,
    /// For the mask, and for alpha.
    pub mask: Shrink,
}

impl Shrinks {
    /// The rows that a row of the next level is computed from. Where the size of a level is no multiple of the next one, complex
    /// samples use other rows than their mask.
    pub(super) fn needs(&self, row: u32) -> Range<u32> {
        let samples = self.samples.needs(row..row + 1);
        let mask = self.mask.needs(row..row + 1);
        samples.start.min(mask.start)..samples.end.max(mask.end)
    }
}

/// How some columns of one level become columns of the next: samples, and the mask or the alpha band.
#[derive(Debug, Clone)]
pub(super) struct LevelShrink {
    pub samples: ColumnShrink,
    pub mask: ColumnShrink,
}

impl LevelShrink {
    /// How some target columns are made, of rows that hold the source columns `source` alone.
    pub(super) fn columns(&self, columns: Range<u32>, source: &Range<u32>) -> Result<Shrinks, ShrinkError> {
        let samples = self.samples.columns(columns.clone(), source)?;
        Ok(Shrinks { samples, mask: self.mask.columns(columns, source)? })
    }
}

/// Returns how each level becomes the next; `None` for the last level.
pub(super) fn level_shrinks(
    plan: &Plan,
    sample: SampleType,
    nodata: Option<&[u8]>,
) -> Result<Levels<Option<LevelShrink>>, Error> {
    plan.levels.try_map(|index, level| {
        let Some(next) = plan.levels.get(index + 1) else { return Ok(None) };
        let from = (level.layout.width, level.layout.height);
        let to = (next.layout.width, next.layout.height);
        // As in GDAL, a mask counts before nodata.
        let nodata = nodata.filter(|_| level.mask.is_none());
        let shrink = |sample, nodata| {
            // Where GDAL puts zeros into holes, or lets them grow, we do not (DESIGN.md): no quirks.
            let shrink = ColumnShrink::new(from, to, sample, plan.resampling, nodata);
            shrink.map_err(|error| Error::usage(error.to_string()))
        };
        Ok(Some(LevelShrink { samples: shrink(sample, nodata)?, mask: shrink(SampleType::U8, None)? }))
    })
}

/// Returns how whole rows of each level become rows of the next; `None` for the last level.
pub(super) fn shrinks(
    plan: &Plan,
    sample: SampleType,
    nodata: Option<&[u8]>,
) -> Result<Levels<Option<Shrinks>>, Error> {
    let level_shrinks = level_shrinks(plan, sample, nodata)?;
    plan.levels.try_map(|index, level| {
        let whole = |shrink: &LevelShrink| {
            let (width, _) = shrink.samples.target();
            shrink.columns(0..width, &(0..level.layout.width)).map_err(|error| Error::internal(error.to_string()))
        };
        level_shrinks.at(index)?.as_ref().map(whole).transpose()
    })
}
