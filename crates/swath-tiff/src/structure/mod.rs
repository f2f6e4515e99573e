//! Parses bytes into directories, tags and the layout of an image, and emits them again.

pub mod bytes;
pub mod chain;
pub mod emit;
pub mod ghost;
pub mod header;
pub mod ifd;
pub mod layout;
pub mod table;
pub mod value;

pub use bytes::{Bytes, ParseStop};
pub use header::{ByteOrder, Header};
pub use ifd::{Entry, Ifd};
pub use layout::{Layout, Planar, Predictor};
pub use table::Table;
pub use value::{FieldType, Value};
