//! Where bytes come from and where they go: the [`Source`] and [`Sink`] seams, and what stands behind them.

pub mod conformance;
pub mod fork;
mod ordinary;
mod position;
pub mod remote;
pub mod sink;
pub mod source;
pub mod wrap;

pub use remote::{Origin, RemoteFault, RemoteOptions, RemoteSource, Traffic};
pub use sink::{
    Sink, SinkError,
    file::FileSink,
    memory::{Memory, MemorySink},
    spill::{Extent, Spill},
    stream::StreamSink,
};
pub use source::{Access, ReadInto, Source, SourceError, file::FileSource, memory::MemorySource};
