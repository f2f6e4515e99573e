//! GDAL's own metadata inside a TIFF: tag 42112, `GDAL_METADATA`.
//!
//! ```xml
//! <GDALMetadata>
//!   <Item name="AUTHOR">me</Item>
//!   <Item name="STATISTICS_MEAN" sample="0">3.5</Item>
//!   <Item name="SCALE" sample="0" role="scale">0.1</Item>
//! </GDALMetadata>
//! ```
//!
//! `sample` counts from 0; bands count from 1 here, as in GDAL. A value is unescaped twice: once as XML, and once more because GDAL
//! escapes it before it writes the XML. GDAL reads files of writers that escape once in the same way. Compared with GDAL 3.12.2 on
//! generated and real files.

mod model;
mod parse;
mod write;

pub use crate::geo::domain::{Domain, XmlDomain};
pub use model::{BandMetadata, GdalMetadata};
pub use parse::parse;
pub use write::write;
