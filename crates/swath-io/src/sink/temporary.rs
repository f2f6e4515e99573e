//! A temporary file without a name.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::sink::{
    error::SinkError,
    local::LocalFile,
    unfinished::{self, TEMPORARY},
};

/// A file that never appears under a name. On Unix its name is removed as soon as it is open: not even a killed process leaves it
/// behind, and no other user can put a link in its place.
#[derive(Debug)]
pub(super) struct Temporary {
    file: LocalFile,
    /// The name that it had when it was created.
    path: PathBuf,
    /// Whether that name still exists.
    named: bool,
    /// The process that created it: a forked child has a copy of this value and must not remove the file.
    process: u32,
}

impl Temporary {
    /// Creates a file in `folder`, and removes the files that killed processes left there.
    ///
    /// # Errors
    /// When no file can be created there.
    pub(super) fn create_in(folder: &Path) -> Result<Self, SinkError> {
        unfinished::remove_leftovers(folder, TEMPORARY, None);
        let (file, path) = unfinished::create(folder, TEMPORARY, true)
            .map_err(|source| SinkError::io(format!("cannot make a file in {}", folder.display()), source))?;
        let named = !(cfg!(all(unix, not(feature = "portable"))) && fs::remove_file(&path).is_ok());
        Ok(Self { file: LocalFile::new(file), path, named, process: std::process::id() })
    }

    /// The file itself.
    pub(super) fn file(&self) -> &LocalFile {
        &self.file
    }

    /// The file itself, to change its size.
    pub(super) fn file_mut(&mut self) -> &mut LocalFile {
        &mut self.file
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if self.named && self.process == std::process::id() {
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(all(test, unix, not(feature = "portable")))]
mod tests {
    use super::*;

    /// If the name could be guessed, another user could put a link to one of our files under it.
    #[test]
    fn temporary_file_has_no_name_that_others_could_take_or_find() {
        let temporary = Temporary::create_in(&std::env::temp_dir()).unwrap();
        assert!(!temporary.path.exists());
    }

    /// The name exists for a moment, in which others could open the file.
    #[test]
    fn temporary_file_can_be_opened_by_its_user_only() {
        use std::os::unix::fs::PermissionsExt;
        let temporary = Temporary::create_in(&std::env::temp_dir()).unwrap();
        let mode = temporary.file().file().metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}
