//! A file on a local file system, read by position.

use std::{fs::File, io, path::Path};

use super::{ReadInto, Source, SourceError};
use crate::position::read_exact_at;

/// A local file. Reads are positioned, so any number of threads may share it.
#[derive(Debug)]
pub struct FileSource {
    file: File,
    name: String,
    size: u64,
}

impl FileSource {
    /// Opens a file.
    ///
    /// # Errors
    /// When it cannot be opened, or is not a file.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, SourceError> {
        let path = path.as_ref();
        let fail = |source: io::Error| SourceError::Io { action: "cannot open the file".into(), source };
        let file = File::open(path).map_err(fail)?;
        let metadata = file.metadata().map_err(fail)?;
        if metadata.is_dir() {
            return Err(fail(io::Error::new(io::ErrorKind::IsADirectory, "this is a folder")));
        }
        Ok(Self { file, name: path.display().to_string(), size: metadata.len() })
    }
}

impl Source for FileSource {
    fn name(&self) -> &str {
        &self.name
    }

    fn size(&self) -> Result<u64, SourceError> {
        Ok(self.size)
    }

    fn read_many(&self, reads: &mut [ReadInto<'_>]) -> Result<(), SourceError> {
        for read in reads {
            let len = read.buffer.len() as u64;
            read_exact_at(&self.file, read.buffer, read.offset).map_err(|source| match source.kind() {
                io::ErrorKind::UnexpectedEof => SourceError::BeyondEnd { offset: read.offset, len, size: self.size },
                _ => SourceError::Io { action: format!("cannot read {len} bytes at offset {}", read.offset), source },
            })?;
        }
        Ok(())
    }

    fn as_file(&self) -> Option<&File> {
        Some(&self.file)
    }
}
