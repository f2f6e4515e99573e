//! Writes to a path: to a file that appears when it is complete, or to a pipe or device.

use std::{
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
};

use crate::sink::{Sink, SinkError, file::FileSink, local::STEP, stream::StreamSink, target};

/// Size of the write buffer where memory is short.
const SHORT_BUFFER: usize = 8 << 10;

/// Creates the sink for a path. A regular file is written beside the target and renamed; a pipe, a device or an already open file
/// gets the bytes in order at the end. The files in `also` describe the replaced file, and are removed with it.
///
/// # Errors
/// As [`FileSink::create`].
pub fn create(path: impl AsRef<Path>, also: Vec<PathBuf>) -> Result<Box<dyn Sink>, SinkError> {
    let path = path.as_ref();
    match target::stream(path).map_err(|source| SinkError::io("cannot open the output", source))? {
        Some(stream) => Ok(Box::new(StreamSink::new(path.display().to_string(), stream)?)),
        None => {
            let mut sink = FileSink::create(path)?;
            sink.set_also(also);
            Ok(Box::new(sink))
        }
    }
}

/// Creates a file from what `fill` writes, completely or not at all. A pipe, a device or an already open file gets the bytes as
/// they are written.
///
/// # Errors
/// As [`FileSink::create`], and when `fill` fails or the bytes cannot be written.
pub fn write(path: impl AsRef<Path>, fill: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), SinkError> {
    let path = path.as_ref();
    let failed = |source| SinkError::io("cannot write the file", source);
    let filled = |out: &mut dyn Write| {
        // A long buffer is faster, but not worth failing for.
        let long = Vec::<u8>::new().try_reserve_exact(STEP).is_ok();
        let mut out = BufWriter::with_capacity(if long { STEP } else { SHORT_BUFFER }, out);
        fill(&mut out).and_then(|()| out.flush()).map_err(failed)
    };
    if let Some(mut stream) = target::stream(path).map_err(|source| SinkError::io("cannot open the output", source))? {
        return filled(&mut stream);
    }
    let sink = Box::new(FileSink::create(path)?);
    let mut writer = Sequential { sink: &sink, end: 0 };
    filled(&mut writer)?;
    let size = writer.end;
    sink.commit(size)
}

/// Writes a file sequentially.
struct Sequential<'a> {
    sink: &'a FileSink,
    end: u64,
}

impl Write for Sequential<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.sink.put(self.end, bytes)?;
        self.end += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
