//! Where bytes come from and where they go: files, memory, servers and object stores.
//!
//! [`OpenOptions::open`](crate::OpenOptions::open) and [`Writer::create`](crate::Writer::create) take paths and addresses
//! (`https://`, `s3://`, `gs://`, `az://`). Anything else is a [`Source`] to read from
//! ([`OpenOptions::open_source`](crate::OpenOptions::open_source)) or a [`Sink`] to write to
//! ([`Writer::to_sink`](crate::Writer::to_sink)):
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::sync::Arc;
//! use swath::{
//!     Metadata, OpenOptions, Rows, SampleType, Shape, WriteOptions, Writer,
//!     io::{MemorySink, MemorySource},
//! };
//!
//! let shape = Shape { width: 2, height: 2, bands: 1, sample: SampleType::U8 };
//! let (sink, memory) = MemorySink::new("tiny.tif");
//! let mut writer = Writer::to_sink(Box::new(sink), shape, &Metadata::default(), &WriteOptions::default())?;
//! writer.push(&Rows::pixels(&[1_u8, 2, 3, 4]))?;
//! writer.finish()?;
//!
//! let bytes = memory.take().ok_or("the file is not complete")?;
//! let dataset = OpenOptions::default().open_source(Arc::new(MemorySource::new("tiny.tif", bytes)))?;
//! assert_eq!((dataset.width(), dataset.height()), (2, 2));
//! # Ok(()) }
//! ```

pub use swath_io::{
    Access, FileSink, FileSource, Memory, MemorySink, MemorySource, Origin, ReadInto, RemoteFault, RemoteOptions,
    RemoteSource, Sink, SinkError, Source, SourceError, StreamSink, Traffic, fork, remote,
    remote::abandon_uploads,
    sink::{path::write as write_file, unfinished::abandon_unfinished},
};
