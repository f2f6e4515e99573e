//! A file on a local file system, which appears under its name only when it is complete.

use std::{
    fs, io,
    ops::Range,
    path::{Path, PathBuf},
};

use crate::sink::{
    Sink, SinkError,
    local::LocalFile,
    side_files::SideFiles,
    spill::Spill,
    target,
    unfinished::{self, Placing, alive},
};

/// A file that is being written. It is a sibling of the final file, locked while its writer lives, and renamed when complete.
#[derive(Debug)]
pub struct FileSink {
    file: LocalFile,
    name: String,
    /// The last is the file's own name; the others are links to it.
    names: Vec<PathBuf>,
    /// Files by other names that describe the replaced file.
    also: Vec<PathBuf>,
    /// The sibling; `None` once it has been renamed.
    part: Option<PathBuf>,
    /// The process that created it: a forked child has a copy of this value and must not remove the file.
    process: u32,
}

impl FileSink {
    /// Begins a file that will be called `path`, and removes what killed writers of the same file left behind.
    ///
    /// # Errors
    /// When `path` is a folder, or no file can be created beside it.
    pub fn create(path: impl AsRef<Path>) -> Result<Self, SinkError> {
        let path = path.as_ref();
        let name = path.display().to_string();
        // A link stays a link: the file that it names is replaced or created.
        let names = target::names(path).map_err(|source| SinkError::io("cannot follow the link", source))?;
        let target = names.last().map_or(path, PathBuf::as_path);
        let existing = fs::metadata(target).ok();
        let refuse = |action: &str, kind, why: &str| Err(SinkError::io(action, io::Error::new(kind, why)));
        match &existing {
            Some(found) if found.is_dir() => {
                return refuse("cannot write the file", io::ErrorKind::IsADirectory, "this is a folder");
            }
            Some(found) if !found.is_file() => {
                return refuse("cannot replace this", io::ErrorKind::InvalidInput, "it is not an ordinary file");
            }
            Some(found) if found.permissions().readonly() => {
                let why = "the file there is read-only";
                return refuse("cannot replace the file", io::ErrorKind::PermissionDenied, why);
            }
            _ => {}
        }
        let folder = folder_of(target);
        let mark = unfinished::mark(target);
        unfinished::remove_leftovers(folder, &mark, existing.as_ref());
        let (file, part) = unfinished::create(folder, &mark, existing.is_some())
            .map_err(|source| SinkError::io(format!("cannot make a file in {}", folder.display()), source))?;
        let process = std::process::id();
        alive().push(part.clone());
        let file = LocalFile::new(file);
        let sink = Self { file, name, names, also: Vec::new(), part: Some(part), process };
        if let Some(metadata) = existing {
            sink.copy_owner_and_mode(&metadata);
        }
        Ok(sink)
    }

    /// Copies owner and mode of the replaced file. A user who may not give files away stays the owner, and a file system without
    /// modes may refuse.
    fn copy_owner_and_mode(&self, old: &fs::Metadata) {
        #[cfg(all(unix, not(feature = "portable")))]
        {
            use std::os::unix::fs::{MetadataExt, fchown};
            if fchown(self.file.file(), Some(old.uid()), Some(old.gid())).is_err() {
                let _ = fchown(self.file.file(), None, Some(old.gid()));
            }
        }
        let _ = self.file.file().set_permissions(old.permissions());
    }

    /// Names more files that describe the replaced file. They have names that do not follow from its name, and are removed with it.
    pub(super) fn set_also(&mut self, also: Vec<PathBuf>) {
        self.also = also;
    }

    /// Writes at a position, as [`Sink::write_at`] does, with the plain error.
    pub(super) fn put(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.put(offset, bytes)
    }

    /// The file's own name.
    fn target(&self) -> &Path {
        self.names.last().map_or(Path::new(""), PathBuf::as_path)
    }
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Makes a new name durable by syncing its folder. Some file systems do not support that, and not every user may open folders.
#[cfg(all(unix, not(feature = "portable")))]
fn sync_folder(folder: &Path) -> io::Result<()> {
    use io::ErrorKind::{InvalidInput, PermissionDenied, Unsupported};
    let Ok(folder) = fs::File::open(folder) else { return Ok(()) };
    match folder.sync_all() {
        Err(error) if matches!(error.kind(), InvalidInput | Unsupported | PermissionDenied) => Ok(()),
        result => result,
    }
}

#[cfg(not(all(unix, not(feature = "portable"))))]
fn sync_folder(_: &Path) -> io::Result<()> {
    Ok(())
}

impl Sink for FileSink {
    fn name(&self) -> &str {
        &self.name
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), SinkError> {
        self.file
            .put(offset, bytes)
            .map_err(|source| SinkError::io(format!("cannot write {} bytes at offset {offset}", bytes.len()), source))
    }

    fn spill(&self) -> Spill {
        // Beside the file, where the disk must have space for it anyway.
        Spill::in_folder(folder_of(self.target()))
    }

    fn remove(&mut self, gaps: &[Range<u64>], size: u64) -> Result<(), SinkError> {
        self.file.remove(gaps, size)
    }

    fn commit(mut self: Box<Self>, size: u64) -> Result<(), SinkError> {
        let fail = |action: &str| {
            let action = action.to_owned();
            move |source| SinkError::io(action, source)
        };
        let sized = self.file.check_size(size).and_then(|()| self.file.file().set_len(size));
        sized.map_err(fail("cannot set the size of the file"))?;
        self.file.file().sync_all().map_err(fail("cannot write the file to the disk"))?;
        let Some(part) = self.part.take() else { return Ok(()) };
        let placing = Placing::begin(&part);
        let renamed = self.rename(&part);
        drop(placing);
        let synced = sync_folder(folder_of(self.target()));
        renamed.and(synced.map_err(fail("the file is written, but after a power cut it may be missing under its name")))
    }
}

impl FileSink {
    /// Renames the sibling, in place of the old file and its side files.
    fn rename(&self, part: &Path) -> Result<(), SinkError> {
        let abandoned = |error| {
            let _ = fs::remove_file(part);
            error
        };
        if fs::symlink_metadata(self.target()).is_ok_and(|found| !found.is_file()) {
            let why =
                io::Error::new(io::ErrorKind::InvalidInput, "something other than an ordinary file has taken its name");
            return Err(abandoned(SinkError::io("cannot rename the temporary file to the name of the file", why)));
        }
        let side_files = SideFiles::note(&self.names, &self.also).map_err(abandoned)?;
        if let Err(source) = fs::rename(part, self.target()) {
            side_files.keep();
            return Err(abandoned(SinkError::io("cannot rename the temporary file to the name of the file", source)));
        }
        side_files.remove()
    }
}

impl Drop for FileSink {
    fn drop(&mut self) {
        if let Some(part) = &self.part
            && self.process == std::process::id()
        {
            let _ = fs::remove_file(part);
            alive().retain(|known| known != part);
        }
    }
}

#[cfg(test)]
mod tests;
