//! The content of a side file.

use std::collections::BTreeMap;

use crate::geo::{
    domain::{Domain, XmlDomain},
    nodata::SideNodata,
};

/// A coordinate reference system in a side file.
#[derive(Clone, Debug, PartialEq)]
pub struct SideSrs {
    /// Usually WKT. GDAL accepts whatever its `SetFromUserInput` accepts, such as `EPSG:4326`.
    pub text: String,
    /// `dataAxisToSRSAxisMapping`: for each axis of the data, the axis of the system, from 1, negative if reversed. `None` means x (or
    /// longitude) first, whatever the system's own order.
    pub axis_mapping: Option<Vec<i32>>,
    /// Decimal year of a dynamic system's coordinates.
    pub coordinate_epoch: Option<f64>,
}

/// A ground control point.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SideGcp {
    /// Its name.
    pub id: String,
    /// A comment on it.
    pub info: String,
    /// Column; 0 is the left edge of the first pixel.
    pub pixel: f64,
    /// Row; 0 is the upper edge of the first pixel.
    pub line: f64,
    /// Ground coordinate.
    pub x: f64,
    /// Ground coordinate.
    pub y: f64,
    /// Height.
    pub z: f64,
}

/// A histogram.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Histogram {
    /// Lower edge of the first bucket.
    pub min: f64,
    /// Upper edge of the last bucket.
    pub max: f64,
    /// Whether the outer buckets include the samples beyond the edges.
    pub include_out_of_range: bool,
    /// Whether it was computed from an overview or a part of the image.
    pub approximate: bool,
    /// Samples in each bucket.
    pub counts: Vec<u64>,
}

/// The metadata of one band in a side file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SideBand {
    /// The band's name.
    pub description: Option<String>,
    /// The no-data value.
    pub nodata: Option<SideNodata>,
    /// Offset and scale form a pair: if one is given, the other is 0 or 1.
    pub offset: Option<f64>,
    /// See `offset`.
    pub scale: Option<f64>,
    /// Unit of the physical value.
    pub unit: Option<String>,
    /// GDAL's name of a colour interpretation, as written.
    pub color_interp: Option<String>,
    /// Red, green, blue, alpha by sample value.
    pub color_table: Vec<[i16; 4]>,
    /// Names by sample value; an empty name is a gap.
    pub category_names: Vec<String>,
    /// Least and greatest sample, from separate elements in old files. Newer files store them as items of a domain.
    pub min_max: Option<(f64, f64)>,
    /// Mean and standard deviation, from separate elements in old files.
    pub mean_stddev: Option<(f64, f64)>,
    /// Histograms.
    pub histograms: Vec<Histogram>,
    /// Domains of keys and values.
    pub domains: Vec<Domain>,
    /// Domains that hold documents.
    pub xml_domains: Vec<XmlDomain>,
}

/// ArcGIS's transformation, as written. Its rows count upwards, so that the y of a source point is negative.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GeodataXform {
    /// `xsi:type`, such as `typens:PolynomialXform`.
    pub kind: String,
    /// The spatial reference in Esri's WKT.
    pub wkt: Option<String>,
    /// Order of the polynomial.
    pub order: Option<i64>,
    /// Coefficients of x: constant, column, row.
    pub coeff_x: Vec<f64>,
    /// Coefficients of y.
    pub coeff_y: Vec<f64>,
    /// x and y alternate, in pixels.
    pub source_gcps: Vec<f64>,
    /// x and y alternate, on the ground.
    pub target_gcps: Vec<f64>,
}

/// The content of a side file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SideMetadata {
    /// The reference system. ArcGIS's takes precedence over PAM's own.
    pub srs: Option<SideSrs>,
    /// The transform in GDAL's order, from the corner of the first pixel.
    pub geo_transform: Option<[f64; 6]>,
    /// Control points, from `<GCPList>` or ArcGIS's.
    pub gcps: Vec<SideGcp>,
    /// The control points' reference system.
    pub gcp_srs: Option<SideSrs>,
    /// Domains of the dataset.
    pub domains: Vec<Domain>,
    /// Domains of the dataset that hold documents.
    pub xml_domains: Vec<XmlDomain>,
    /// Bands by number from 1. The file may name bands that the raster does not have.
    pub bands: BTreeMap<u32, SideBand>,
    /// ArcGIS's transformation as written. `srs`, `geo_transform` and `gcps` are already derived from it.
    pub esri: Option<GeodataXform>,
    /// Paths of the elements that are not read, such as `PAMDataset/Array`.
    pub unrecognised: Vec<String>,
    /// What was left out, in sentences for the user.
    pub problems: Vec<String>,
}
