//! An XML tree that is bounded before it is built.
//!
//! The tokens come from quick-xml, which expands no entity and opens no file. The tree holds slices of the input, so its memory is
//! the number of nodes times a constant. Text is read as by GDAL's reader (`CPLParseXMLString`), observed with GDAL 3.12: white
//! space before a text is dropped and after it kept, line ends stay unchanged, names match in any case, and a text is cut at an
//! escape that cannot be read.

mod bounds;
mod text;
mod tree;

pub use bounds::{Bounds, XmlError};
pub(crate) use text::{decode, unescape};
pub(crate) use tree::{Element, Tree};
