//! Writes to a pipe or device, which takes bytes in order only: through a temporary file that is copied at the end.

use std::{io::Write, ops::Range};

use crate::sink::{Sink, SinkError, temporary::Temporary};

/// Writes a temporary file and copies it to a stream at the end.
pub struct StreamSink<W> {
    temporary: Temporary,
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
    /// When no temporary file can be created.
    pub fn new(name: impl Into<String>, stream: W) -> Result<Self, SinkError> {
        Ok(Self { temporary: Temporary::create_in(&std::env::temp_dir())?, name: name.into(), stream })
    }
}

impl<W: Write + Send + Sync> Sink for StreamSink<W> {
    fn name(&self) -> &str {
        &self.name
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), SinkError> {
        let written = self.temporary.file().put(offset, bytes);
        written
            .map_err(|source| SinkError::io(format!("cannot write {} bytes at offset {offset}", bytes.len()), source))
    }

    fn remove(&mut self, gaps: &[Range<u64>], size: u64) -> Result<(), SinkError> {
        self.temporary.file_mut().remove(gaps, size)
    }

    fn commit(mut self: Box<Self>, size: u64) -> Result<(), SinkError> {
        let copied = self.temporary.file_mut().copy_to(size, &mut self.stream);
        copied.map_err(|source| SinkError::io("cannot copy the file to the stream", source))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        io,
        sync::{Arc, Mutex},
    };

    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn stream_gets_the_file_in_order() {
        let out = Shared::default();
        let mut sink = Box::new(StreamSink::new("pipe", out.clone()).unwrap());
        sink.write_at(8192, b"end").unwrap();
        sink.write_at(0, b"start").unwrap();
        sink.remove(std::slice::from_ref(&(4096..8192)), 8195).unwrap();
        sink.commit(4099).unwrap();
        let found = out.0.lock().unwrap().clone();
        assert_eq!((found.len(), &found[..5], &found[4096..]), (4099, &b"start"[..], &b"end"[..]));
    }
}
