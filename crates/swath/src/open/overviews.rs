//! The overviews of a file: which there are, and which suits a size.

use super::{
    dataset::Dataset,
    image::{Image, Role},
};
use crate::error::Error;

/// Place and size of an overview.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Overview {
    /// Columns.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// Directory of the overview.
    pub ifd: u32,
    /// Whether it is in the `.ovr` file beside this one.
    pub external: bool,
}

impl Dataset {
    /// Overviews of the first image, largest first: those in the file, else those in an `.ovr` file beside it.
    ///
    /// # Errors
    /// When bytes cannot be read.
    pub fn overviews(&self) -> Result<Vec<Overview>, Error> {
        let list = |dataset: &Dataset, external: bool| -> Result<Vec<Overview>, Error> {
            let mut found: Vec<Overview> = dataset
                .images()?
                .filter(|(_, role)| *role == Role::Overview || (external && *role == Role::Main))
                .map(|(image, _)| Overview {
                    width: image.layout.width,
                    height: image.layout.height,
                    ifd: image.index,
                    external,
                })
                .collect();
            found.sort_by_key(|overview| std::cmp::Reverse((overview.width, overview.height)));
            Ok(found)
        };
        let internal = list(self, false)?;
        if !internal.is_empty() {
            return Ok(internal);
        }
        match self.found_sidecars()?.overviews() {
            Some(beside) => list(beside, true),
            None => Ok(internal),
        }
    }

    /// Overview `level`, counted from 0 for the largest.
    ///
    /// # Errors
    /// When there is no such overview, or bytes cannot be read.
    pub fn overview(&self, level: usize) -> Result<Overview, Error> {
        let overviews = self.overviews()?;
        overviews.get(level).copied().ok_or_else(|| {
            Error::usage(format!("there is no overview {level}; the file has {}", overviews.len()))
                .in_source(&self.name)
        })
    }

    pub(crate) fn overview_image(&self, overview: &Overview) -> Result<(&Dataset, &Image), Error> {
        let dataset = match self.sidecars().overviews() {
            Some(beside) if overview.external => beside,
            _ => self,
        };
        dataset.image(overview.ifd as usize).map(|image| (dataset, image))
    }

    /// The smallest overview that still has at least `width` by `height` pixels; `None` when only the full image does.
    ///
    /// # Errors
    /// When bytes cannot be read.
    pub fn best_overview(&self, width: u32, height: u32) -> Result<Option<usize>, Error> {
        let overviews = self.overviews()?;
        Ok(overviews.iter().rposition(|overview| overview.width >= width && overview.height >= height))
    }

    /// Rows and columns of the tiles or strips of an overview, counted from 0 for the largest.
    ///
    /// # Errors
    /// When there is no such overview, or bytes cannot be read.
    pub fn overview_block(&self, level: usize) -> Result<(u32, u32), Error> {
        let (_, image) = self.overview_image(&self.overview(level)?)?;
        Ok((image.grid.tile_height.min(image.layout.height), image.layout.tile_width))
    }
}
