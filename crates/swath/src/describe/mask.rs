//! How bands mark nodata.

use swath_tiff::SampleType;

use crate::{
    error::Error,
    metadata::Band,
    open::{dataset::Dataset, image::Role},
};

/// How a band marks nodata, by GDAL's rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum MaskKind {
    /// Not at all: all pixels are data.
    AllValid,
    /// A mask in or beside the file.
    PerDataset,
    /// A band of opacity.
    Alpha,
    /// The band's nodata value.
    Nodata,
}

impl MaskKind {
    /// Returns the kind of every band of the first image. In GDAL's order, a mask counts before nodata, nodata before alpha.
    ///
    /// # Errors
    /// When bytes cannot be read.
    pub fn of_bands(dataset: &Dataset) -> Result<Vec<Self>, Error> {
        let metadata = dataset.metadata();
        let (width, height) = (dataset.width(), dataset.height());
        let internal = dataset.images()?.any(|(image, role)| {
            role == Role::Mask && image.layout().width == width && image.layout().height == height
        });
        let masked = internal || metadata.side_files.iter().any(|file| file.ends_with(".msk"));
        // GDAL takes alpha only as the last of two or four bands, and only where it has 8 or 16 bits.
        let alpha = matches!(dataset.bands(), 2 | 4)
            && metadata.bands.last().is_some_and(|band| band.color == "alpha")
            && matches!(dataset.sample(), SampleType::U8 | SampleType::U16);
        let kind = |(index, band): (usize, &Band)| {
            if masked {
                Self::PerDataset
            } else if band.nodata.as_ref().is_some_and(|nodata| nodata.for_dtype(dataset.sample()).is_some()) {
                Self::Nodata
            } else if alpha && index + 1 < metadata.bands.len() {
                Self::Alpha
            } else {
                Self::AllValid
            }
        };
        Ok(metadata.bands.iter().enumerate().map(kind).collect())
    }

    /// rasterio's words.
    pub fn flags(self) -> &'static [&'static str] {
        match self {
            Self::AllValid => &["all_valid"],
            Self::PerDataset => &["per_dataset"],
            Self::Alpha => &["per_dataset", "alpha"],
            Self::Nodata => &["nodata"],
        }
    }
}
