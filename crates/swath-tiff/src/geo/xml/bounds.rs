//! How much XML is accepted, and why a document is refused.

/// Limits on a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Longest document in bytes; longer ones are refused unread. The effective limit never exceeds 4 GiB - 1.
    pub bytes: usize,
    /// Deepest nesting of elements. GDAL's own limit is in the thousands; XMP and ISO 19115 stay below 40.
    pub depth: usize,
    /// Most elements, attributes, texts and comments together; each costs at most 48 bytes.
    pub nodes: usize,
}

impl Default for Bounds {
    /// 16 MiB, 256 levels, 2^20 nodes: at most about 50 MB for the tree, and enough for the largest histograms seen.
    fn default() -> Self {
        Self { bytes: 16 << 20, depth: 256, nodes: 1 << 20 }
    }
}

impl Bounds {
    /// Returns the limits with another size limit.
    #[must_use]
    pub fn with_bytes(self, bytes: usize) -> Self {
        Self { bytes, ..self }
    }
}

/// Why a document was not read. The raster itself stays readable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum XmlError {
    /// Longer than the limit.
    #[error("XML of {len} bytes is longer than the limit of {limit}")]
    TooLong {
        /// Its size.
        len: usize,
        /// The limit.
        limit: usize,
    },
    /// Nested deeper than the limit.
    #[error("XML byte {offset}: elements nested deeper than {limit}")]
    TooDeep {
        /// Its byte offset.
        offset: usize,
        /// The limit.
        limit: usize,
    },
    /// More nodes than the limit.
    #[error("XML byte {offset}: more than {limit} elements, attributes and texts")]
    TooMany {
        /// Its byte offset.
        offset: usize,
        /// The limit.
        limit: usize,
    },
    /// A document type (DTD). Entity bombs and external entities need one; GDAL and ArcGIS never write one.
    #[error("XML byte {offset}: document types (DTD) are refused")]
    DocumentType {
        /// Its byte offset.
        offset: usize,
    },
    /// Not well formed, or truncated.
    #[error("XML byte {offset}: {reason}")]
    Malformed {
        /// Its byte offset.
        offset: usize,
        /// What is wrong.
        reason: String,
    },
    /// Well formed, but another kind of document.
    #[error("XML root is <{found}>, not <{expected}>")]
    Root {
        /// Name of its root element, shortened.
        found: String,
        /// Name of the expected root element.
        expected: &'static str,
    },
}
