//! A pipe or device that takes bytes in order only: the file is made aside, then copied.

use std::{
    fs::{self, OpenOptions},
    io::{self, Read, Seek, Write},
    ops::Range,
    sync::atomic::{AtomicU32, Ordering},
};

use super::{Sink, SinkError, file::FileSink};

/// Makes the file in the folder for temporary files and copies it to a stream at the end.
pub struct StreamSink<W> {
    spool: Option<FileSink>,
    path: std::path::PathBuf,
    name: String,
    stream: W,
}

impl<W> std::fmt::Debug for StreamSink<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StreamSink").field("name", &self.name).finish_non_exhaustive()
    }
}

impl<W: Write + Send + Sync> StreamSink<W> {
    /// A sink that copies the finished file to `stream`, which is called `name` in messages.
    ///
    /// # Errors
    /// When no temporary file can be made.
    pub fn new(name: impl Into<String>, stream: W) -> Result<Self, SinkError> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("swath-spool-{}-{number}", std::process::id()));
        Ok(Self { spool: Some(FileSink::create(&path)?), path, name: name.into(), stream })
    }

    fn spool(&self) -> Result<&FileSink, SinkError> {
        self.spool.as_ref().ok_or_else(|| SinkError::io("cannot write", io::ErrorKind::NotConnected.into()))
    }
}

impl<W: Write + Send + Sync> Sink for StreamSink<W> {
    fn name(&self) -> &str {
        &self.name
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), SinkError> {
        self.spool()?.write_at(offset, bytes)
    }

    fn remove(&mut self, gaps: &[Range<u64>], size: u64) -> Result<(), SinkError> {
        self.spool.as_mut().map_or(Ok(()), |spool| spool.remove(gaps, size))
    }

    fn commit(mut self: Box<Self>, size: u64) -> Result<(), SinkError> {
        let Some(spool) = self.spool.take() else { return Ok(()) };
        Box::new(spool).commit(size)?;
        let copy = (|| {
            let mut file = OpenOptions::new().read(true).open(&self.path)?;
            file.rewind()?;
            let copied = io::copy(&mut file.take(size), &mut self.stream)?;
            self.stream.flush()?;
            if copied == size { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
        })();
        let _ = fs::remove_file(&self.path);
        copy.map_err(|source| SinkError::io("cannot copy the file to the stream", source))
    }
}
