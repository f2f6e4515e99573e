//! Coordinate reference systems: what EPSG, Esri and WKT say about them, and which of them are equal.
//!
//! Pure functions over text and tables: no I/O, no network, no PROJ. [`Crs`] is the value that the other crates pass on.
//! Its definition is WKT; [`wkt`] parses it into a tree, and [`description`] reads that tree into one form for all dialects.
#![forbid(unsafe_code)]

pub mod axes;
pub mod codes;
mod crs;
pub mod description;
pub mod epsg;
pub mod esri;
mod identify;
pub mod method;
pub mod unit;
mod user_text;
pub mod wkt;

pub use crs::{Authority, Crs, CrsKind, short_name};
pub use identify::same_conversion;
pub use unit::Unit;
pub use user_text::parse_user;
