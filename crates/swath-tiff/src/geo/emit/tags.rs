//! The GeoTIFF tags of an image.

use crate::geo::keys::KeyTags;

/// The values of the GeoTIFF tags. A tag whose value is empty or `None` is not written.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct GeoTags {
    /// Tags 34735 to 34737.
    pub keys: KeyTags,
    /// Tag 33550.
    pub pixel_scale: Option<[f64; 3]>,
    /// Tag 33922.
    pub tiepoints: Vec<f64>,
    /// Tag 34264.
    pub transformation: Option<[f64; 16]>,
    /// Tag 50844.
    pub rpc: Option<Vec<f64>>,
    /// What could not be written, in sentences for the user.
    pub problems: Vec<String>,
}
