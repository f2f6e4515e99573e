//! A temporary folder for the files that are written, which goes away with the command.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, bail};

/// A folder of this process's own. Dropping it removes it with everything in it.
#[derive(Debug)]
pub struct Scratch {
    folder: PathBuf,
}

impl Scratch {
    /// Makes a folder inside another one, which must exist.
    pub fn new(parent: &Path) -> Result<Self> {
        if !parent.is_dir() {
            bail!("{}: this is not a folder; --temp-dir takes one that exists", parent.display());
        }
        for number in 0..1000 {
            let folder = parent.join(format!("swath-bench-{}-{number}", std::process::id()));
            match make(&folder, PRIVATE) {
                Ok(()) => return Ok(Self { folder }),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => {
                    let advice = "give a folder that you can write to with --temp-dir";
                    return Err(error).with_context(|| format!("{}: {advice}", parent.display()));
                }
            }
        }
        bail!("{}: it is full of folders named swath-bench-…: remove them", parent.display())
    }

    /// Returns the path of a file in the folder.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Removes the folder. An interrupt calls this while another thread may still add a file, hence the attempts.
    pub fn remove(&self) {
        for _ in 0..20 {
            match fs::remove_dir_all(&self.folder) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => std::thread::sleep(Duration::from_millis(5)),
                _ => return,
            }
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Whether folders have modes here. Elsewhere a folder is as open as the one that it is in.
const PRIVATE: bool = cfg!(unix);

/// Makes a folder, and where it is private one that only this user may enter: others could put links into it.
fn make(folder: &Path, private: bool) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    if private {
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    }
    #[cfg(not(unix))]
    let _ = private;
    builder.create(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_goes_away_with_its_files() {
        let scratch = Scratch::new(&std::env::temp_dir()).unwrap();
        let other = Scratch::new(&std::env::temp_dir()).unwrap();
        assert_ne!(scratch.folder, other.folder);
        fs::write(scratch.file("a.tif"), b"a").unwrap();
        let folder = scratch.folder.clone();
        assert!(folder.is_dir());
        drop(scratch);
        assert!(!folder.exists() && other.folder.is_dir());
    }

    #[test]
    fn a_folder_without_a_mode_is_made_once_too() {
        let folder = std::env::temp_dir().join(format!("swath-bench-plain-{}", std::process::id()));
        make(&folder, false).unwrap();
        assert_eq!(make(&folder, false).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        drop(Scratch { folder: folder.clone() });
        assert!(!folder.exists());
    }

    #[test]
    #[cfg(unix)]
    fn only_this_user_may_enter_the_folder() {
        let scratch = Scratch::new(&std::env::temp_dir()).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&scratch.folder).unwrap().permissions());
        assert_eq!(mode & 0o777, 0o700);
    }

    #[test]
    fn a_missing_folder_is_not_made() {
        let parent = std::env::temp_dir().join(format!("swath-absent-{}", std::process::id()));
        let refused = Scratch::new(&parent).unwrap_err().to_string();
        assert!(refused.contains("--temp-dir") && !parent.exists(), "{refused}");
    }
}
