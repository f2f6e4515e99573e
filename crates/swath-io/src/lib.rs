//! Where bytes come from and where they go: the traits [`Source`] and [`Sink`], and their implementations.

pub mod coalesce;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
mod fault;
pub mod fork;
pub mod ordinary;
mod position;
pub mod remote;
pub mod sink;
pub mod source;
mod traffic;

pub use fault::RemoteFault;
pub use remote::{Origin, RemoteOptions, RemoteSource};
pub use sink::{
    Sink, SinkError,
    file::FileSink,
    memory::{Memory, MemorySink},
    spill::{Extent, Spill},
    stream::StreamSink,
};
pub use source::{Access, ReadInto, Source, SourceError, file::FileSource, memory::MemorySource};
pub use traffic::Traffic;
