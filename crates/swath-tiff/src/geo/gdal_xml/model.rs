//! The content of the tag.

use std::collections::BTreeMap;

use crate::geo::{
    domain::{Domain, XmlDomain},
    nodata::SideNodata,
};

/// The metadata of one band.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BandMetadata {
    /// Domains of keys and values. Statistics are ordinary items of the default domain.
    pub domains: Vec<Domain>,
    /// Domains that hold documents.
    pub xml_domains: Vec<XmlDomain>,
    /// Physical value = stored value * scale + offset. GDAL reads a missing half of the pair as 0 or 1.
    pub offset: Option<f64>,
    /// See `offset`.
    pub scale: Option<f64>,
    /// Unit of the physical value.
    pub unit: Option<String>,
    /// The band's name.
    pub description: Option<String>,
    /// GDAL's name of a colour interpretation, as written (`Red`, `NIR`). It overrides what the TIFF's tags imply.
    pub color_interp: Option<String>,
    /// Never in this tag (nodata is tag 42113). [`merge`](crate::geo::merge::merge) sets it from a side file, which overrides the TIFF.
    pub nodata: Option<SideNodata>,
}

/// The content of the tag.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GdalMetadata {
    /// Domains of the dataset.
    pub domains: Vec<Domain>,
    /// Bands by number from 1. The tag may name bands that the file does not have; GDAL ignores those.
    pub bands: BTreeMap<u32, BandMetadata>,
    /// Domains of the dataset that hold documents.
    pub xml_domains: Vec<XmlDomain>,
    /// Items of `IMAGE_STRUCTURE`: how the writer encoded the pixels (`MAX_Z_ERROR`, `WEBP_LEVEL`). Not a domain, because users get
    /// the domain of that name from the TIFF's tags; GDAL hides these items too.
    pub image_structure: Vec<(String, String)>,
    /// What was left out or cut, in sentences for the user.
    pub problems: Vec<String>,
}

impl GdalMetadata {
    /// The dataset's domain of this name, which matches in any case.
    #[must_use]
    pub fn domain(&self, name: &str) -> Option<&Domain> {
        self.domains.iter().find(|domain| domain.name.eq_ignore_ascii_case(name))
    }
}
