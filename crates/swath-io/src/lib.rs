//! Where bytes come from: the [`Source`] seam, and the sources that stand behind it.
#![forbid(unsafe_code)]

pub mod conformance;
pub mod source;
pub mod wrap;

pub use source::{ReadInto, Source, SourceError, file::FileSource, memory::MemorySource};
