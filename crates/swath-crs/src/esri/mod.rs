//! Esri's own codes and its dialect of WKT1.

pub mod codes;
pub mod wkt;
