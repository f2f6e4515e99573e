//! A file on a local file system, read by position.

use std::{
    fs::{self, File, Metadata},
    io,
    path::{Path, PathBuf},
};

use crate::{
    fault::RemoteFault,
    ordinary,
    position::read_exact_at,
    source::{ReadInto, Source, SourceError},
};

/// A local file. Reads are positioned, so any number of threads may share it.
#[derive(Debug)]
pub struct FileSource {
    file: File,
    name: String,
    /// Absolute path, since the working folder may change.
    path: PathBuf,
    size: u64,
    /// State when it was opened.
    state: State,
}

/// Properties that change when the file is written to or replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct State {
    len: u64,
    /// Nanoseconds since 1970.
    time: u128,
    /// Device and inode number, where the system has them.
    number: Option<(u64, u64)>,
}

impl State {
    fn of(metadata: &Metadata) -> Self {
        let time = metadata.modified().ok().and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok());
        Self { len: metadata.len(), time: time.unwrap_or_default().as_nanos(), number: number(metadata) }
    }
}

#[cfg(all(unix, not(feature = "portable")))]
fn number(metadata: &Metadata) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    Some((metadata.dev(), metadata.ino()))
}

#[cfg(not(all(unix, not(feature = "portable"))))]
fn number(_: &Metadata) -> Option<(u64, u64)> {
    None
}

impl FileSource {
    /// Opens a regular file. Pipes, sockets and devices have no size and no positions.
    ///
    /// # Errors
    /// When it cannot be opened, or is not a regular file.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, SourceError> {
        let path = path.as_ref();
        let fail = |source: io::Error| SourceError::Io { action: "cannot open the file".into(), source };
        let file = ordinary::open(path).map_err(fail)?;
        let metadata = file.metadata().map_err(fail)?;
        let name = path.display().to_string();
        let path = std::path::absolute(path).map_err(fail)?;
        Ok(Self { file, name, path, size: metadata.len(), state: State::of(&metadata) })
    }

    fn compare(&self, found: io::Result<Metadata>) -> Result<(), SourceError> {
        let Ok(found) = found else { return Ok(()) };
        if found.is_file() && State::of(&found) == self.state {
            return Ok(());
        }
        let detail = "the file has changed since it was opened: open it again".to_owned();
        Err(SourceError::Remote { fault: RemoteFault::Changed, detail })
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

    fn check(&self) -> Result<(), SourceError> {
        self.compare(self.file.metadata())
    }

    fn check_name(&self) -> Result<(), SourceError> {
        self.compare(fs::metadata(&self.path))
    }

    fn version(&self) -> Option<String> {
        // Device and inode numbers differ between machines, so they are left out.
        Some(self.state.time.to_string())
    }

    fn as_file(&self) -> Option<&File> {
        Some(&self.file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_and_replaced_files_are_reported() {
        let folder = std::env::temp_dir().join(format!("swath-io-source-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (path, other) = (folder.join("a"), folder.join("b"));
        let write = |path: &Path, bytes: &[u8], time: u64| {
            fs::write(path, bytes).unwrap();
            let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(time);
            File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
        };
        let changed = |result| matches!(result, Err(SourceError::Remote { fault: RemoteFault::Changed, .. }));
        write(&path, b"old", 1);
        let source = FileSource::open(&path).unwrap();
        assert!(source.check().is_ok() && source.check_name().is_ok());
        // Another file of the same size and time; the open file is unchanged.
        write(&other, b"new", 1);
        fs::rename(&other, &path).unwrap();
        assert!(source.check().is_ok() && (source.state.number.is_none() || changed(source.check_name())));
        let source = FileSource::open(&path).unwrap();
        fs::remove_file(&path).unwrap();
        assert!(source.check().is_ok() && source.check_name().is_ok());
        for (bytes, time) in [(&b"new"[..], 2), (b"longer", 1)] {
            write(&path, b"old", 1);
            let source = FileSource::open(&path).unwrap();
            write(&path, bytes, time);
            assert!(changed(source.check()) && changed(source.check_name()));
        }
        fs::remove_dir_all(folder).unwrap();
    }
}
