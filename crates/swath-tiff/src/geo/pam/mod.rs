//! Side files named `.aux.xml`: metadata that GDAL (`<PAMDataset>`) or ArcGIS (`<GeodataXform>`) stored beside the TIFF.
//!
//! [`merge`](crate::geo::merge) combines these values with the TIFF's own. Compared with GDAL 3.12.2 on generated files; unlike
//! GDAL, this reports text that is not a number as a problem instead of reading it as 0.

mod esri;
mod model;
mod parse;

pub use model::{GeodataXform, Histogram, SideBand, SideGcp, SideMetadata, SideSrs};
pub use parse::parse;
