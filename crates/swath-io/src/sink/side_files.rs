//! Side files, which describe the pixels of a file (`a.tif.ovr`, `a.tif.msk`, `a.tif.aux.xml`), and their removal with it.
//!
//! A rename replaces one file, so a file and its side files cannot be replaced in one step. A writer therefore writes a note that
//! says which side files belong to which file, renames, removes the side files, and removes the note. A reader that finds side
//! files looks for the note: if the note lists them for another file, they are stale. So a writer that is killed at any point
//! leaves either the old file with its side files or the new file without.

use std::{
    fs::{self, File, Metadata},
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

use crate::{
    ordinary,
    sink::{error::SinkError, unfinished},
};

/// Endings that follow the whole name of a file: overviews, mask, metadata and statistics, attribute table, and
/// overviews in Erdas' format.
const ENDINGS: [&str; 5] = ["ovr", "msk", "aux.xml", "vat.dbf", "aux"];
/// Suffix of a note.
const NOTE: &str = "beside";
/// Longest note that is read. Each side file takes about fifty bytes.
const MAX_NOTE: u64 = 64 << 10;

/// Properties that distinguish a file from another of the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Identity {
    number: u64,
    len: u64,
    time: u128,
}

impl Identity {
    fn of(metadata: &Metadata) -> Self {
        let time = metadata.modified().ok().and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok());
        Self { number: number(metadata), len: metadata.len(), time: time.unwrap_or_default().as_nanos() }
    }

    /// Whether it is the same file, perhaps modified in place.
    fn is_file(&self, other: &Self) -> bool {
        if cfg!(all(unix, not(feature = "portable"))) { self.number == other.number } else { self == other }
    }

    fn line(&self) -> String {
        format!("{} {} {}\n", self.number, self.len, self.time)
    }

    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let (number, len, time) = (words.next()?, words.next()?, words.next()?);
        Some(Self { number: number.parse().ok()?, len: len.parse().ok()?, time: time.parse().ok()? })
    }
}

#[cfg(all(unix, not(feature = "portable")))]
fn number(metadata: &Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::ino(metadata)
}

#[cfg(not(all(unix, not(feature = "portable"))))]
fn number(_: &Metadata) -> u64 {
    0
}

/// Whether a note is of someone who may have written the file `name`: this user, the owner of the file or of its folder, or root. Where
/// all users may create files, a note of another one could hide a mask.
#[cfg(all(unix, not(feature = "portable")))]
fn is_of_writer(note: &Metadata, name: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let owner = |path: &Path| fs::metadata(path).ok().map(|found| found.uid());
    let folder = name.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let writers = [Some(0), Some(rustix::process::geteuid().as_raw()), owner(name), owner(folder)];
    writers.contains(&Some(note.uid()))
}

#[cfg(not(all(unix, not(feature = "portable"))))]
fn is_of_writer(_: &Metadata, _: &Path) -> bool {
    true
}

/// The owner of the side files of a name, as noted by the last writer.
#[derive(Debug)]
struct Note {
    /// The file that they describe; `None` if it did not exist.
    owner: Option<Identity>,
    sides: Vec<Identity>,
}

impl Note {
    fn path(name: &Path) -> PathBuf {
        name.with_file_name(format!("{}{NOTE}", unfinished::mark(name)))
    }

    fn read(name: &Path) -> Option<Self> {
        let mut file = ordinary::open_own(&Self::path(name), false).ok()?;
        file.metadata().ok().filter(|found| found.len() <= MAX_NOTE && is_of_writer(found, name))?;
        let mut text = String::new();
        file.read_to_string(&mut text).ok()?;
        let mut lines = text.lines();
        Some(Self { owner: Identity::parse(lines.next()?), sides: lines.filter_map(Identity::parse).collect() })
    }

    /// Writes the note atomically, and to the disk before the file that it concerns.
    fn write(&self, name: &Path) -> io::Result<()> {
        let folder = name.parent().unwrap_or(Path::new("."));
        let (mut file, draft) = unfinished::create(folder, &unfinished::mark(name), false)?;
        let owner = self.owner.map_or("none\n".to_owned(), |owner| owner.line());
        let text: String = std::iter::once(owner).chain(self.sides.iter().map(Identity::line)).collect();
        let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
        let named = written.and_then(|()| fs::rename(&draft, Self::path(name)));
        if named.is_err() {
            let _ = fs::remove_file(&draft);
        }
        named
    }

    /// Whether a side file describes another file than `owner`.
    fn is_stale(&self, side: &Metadata, owner: Option<&Identity>) -> bool {
        let same = match (&self.owner, owner) {
            (Some(noted), Some(owner)) => noted.is_file(owner),
            (None, None) => true,
            _ => false,
        };
        !same && self.sides.contains(&Identity::of(side))
    }
}

/// Decides which side files of a name describe a file that has been replaced.
#[derive(Debug)]
pub struct Stale {
    note: Option<Note>,
    owner: Option<Identity>,
}

impl Stale {
    /// For the file that was opened as `name`. Call this after side files were found and before they are opened: a writer removes
    /// them before its note.
    pub fn beside(name: &Path, file: Option<&File>) -> Self {
        let owner = file.and_then(|file| file.metadata().ok()).map(|found| Identity::of(&found));
        Self { note: Note::read(name), owner }
    }

    /// Whether this side file is stale.
    pub fn has(&self, side: &Path) -> bool {
        let Some(note) = &self.note else { return false };
        fs::symlink_metadata(side).is_ok_and(|found| note.is_stale(&found, self.owner.as_ref()))
    }
}

/// The side files of a file that is being replaced.
#[derive(Debug)]
pub(super) struct SideFiles {
    /// The names of the file (its own, and links to it), each with its side files; side files of side files come first.
    found: Vec<(PathBuf, Vec<PathBuf>)>,
}

impl SideFiles {
    /// Writes notes about the side files of all `names` of a file, the last of which is its own, and about `also`, other files that
    /// only describe it.
    ///
    /// # Errors
    /// When a note is needed and cannot be written. Nothing has changed then.
    pub fn note(names: &[PathBuf], also: &[PathBuf]) -> Result<Self, SinkError> {
        let owner = names.last().and_then(|own| fs::metadata(own).ok()).map(|found| Identity::of(&found));
        let mut found = Vec::new();
        for (index, name) in names.iter().enumerate() {
            let mut sides = sides_of(name);
            if index + 1 == names.len() {
                sides.extend(also.iter().filter(|path| is_side(path)).cloned());
            }
            if let Some(earlier) = Note::read(name) {
                // Side files that a killed writer did not remove do not belong to the present file either.
                let stale = |side: &PathBuf| {
                    fs::symlink_metadata(side).is_ok_and(|found| earlier.is_stale(&found, owner.as_ref()))
                };
                sides.retain(|side| !(stale(side) && fs::remove_file(side).is_ok()));
            } else if sides.is_empty() {
                continue;
            }
            let identities = sides.iter().filter_map(|side| fs::symlink_metadata(side).ok());
            let note = Note { owner, sides: identities.map(|found| Identity::of(&found)).collect() };
            note.write(name).map_err(|source| {
                let which = sides.first().unwrap_or(name).display().to_string();
                SinkError::io(format!("cannot write the note that {which} describes the old pixels"), source)
            })?;
            found.push((name.clone(), sides));
        }
        Ok(Self { found })
    }

    /// Removes the notes, where the file was not replaced after all.
    pub fn keep(self) {
        for (name, _) in self.found {
            let _ = fs::remove_file(Note::path(&name));
        }
    }

    /// Removes the side files once the file is replaced, and then the notes.
    ///
    /// # Errors
    /// When a side file cannot be removed; its note stays too.
    pub fn remove(self) -> Result<(), SinkError> {
        let mut failed = None;
        for (name, sides) in self.found {
            let mut gone = true;
            for side in sides {
                match fs::remove_file(&side) {
                    Err(source) if source.kind() != io::ErrorKind::NotFound => {
                        gone = false;
                        let side = side.display();
                        let action =
                            format!("the file is written, but {side} describes the old one and cannot be removed");
                        failed.get_or_insert(SinkError::io(action, source));
                    }
                    _ => {}
                }
            }
            if gone {
                let _ = fs::remove_file(Note::path(&name));
            }
        }
        failed.map_or(Ok(()), Err)
    }
}

/// Returns the existing side files of a file. Side files of side files come first.
fn sides_of(name: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for ending in ENDINGS {
        for ending in [ending.to_owned(), ending.to_uppercase()] {
            let mut side = name.as_os_str().to_owned();
            side.push(".");
            side.push(&ending);
            let side = PathBuf::from(side);
            if !is_side(&side) {
                continue;
            }
            // Overviews and masks are rasters, and have side files of their own.
            found.extend(sides_of(&side));
            found.push(side);
        }
    }
    found
}

/// Whether writing `name` would remove `file` as one of its side files.
pub fn is_side_file_of(file: &Path, name: &Path) -> bool {
    let Ok(file) = fs::canonicalize(file) else { return false };
    sides_of(name).iter().any(|side| fs::canonicalize(side).is_ok_and(|side| side == file))
}

/// Whether this can be a side file. A folder cannot. A link is removed itself, not its target.
fn is_side(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.is_file() || found.is_symlink())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("swath-io-beside-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn stale(path: &Path, side: &str) -> bool {
        let side = path.with_file_name(side);
        assert!(side.exists());
        Stale::beside(path, Some(&File::open(path).unwrap())).has(&side)
    }

    /// Where files have no numbers, only size and time tell two files apart.
    fn make_unlike_others(file: &Path) {
        if cfg!(not(all(unix, not(feature = "portable")))) {
            fs::write(file, "a size of its own").unwrap();
        }
    }

    #[test]
    fn side_files_belong_to_the_old_file_and_to_none_after_the_rename() {
        let folder = folder("rename");
        let (path, fresh) = (folder.join("a.tif"), folder.join("fresh"));
        let others = ["a.aux.xml", "a.tfw", "a.tif.txt", "b.tif.ovr", "A.tif.ovr"];
        for name in ["a.tif", "a.tif.ovr", "a.tif.msk", "a.tif.MSK.ovr", "a.tif.AUX.XML", "fresh"].iter().chain(&others)
        {
            fs::write(folder.join(name), name).unwrap();
        }
        fs::write(folder.join("a.tif.msk.ovr"), "x").unwrap();
        make_unlike_others(&fresh);
        fs::create_dir(folder.join("a.tif.OVR")).unwrap();
        let beside = SideFiles::note(std::slice::from_ref(&path), &[]).unwrap();
        assert!(!stale(&path, "a.tif.ovr") && !stale(&path, "a.tif.msk"));
        fs::rename(&fresh, &path).unwrap();
        // Killed here, a reader knows what is not the file's, and what was made for it since.
        assert!(stale(&path, "a.tif.ovr") && stale(&path, "a.tif.msk") && stale(&path, "a.tif.msk.ovr"));
        fs::write(folder.join("a.tif.ovr"), "made anew").unwrap();
        assert!(!stale(&path, "a.tif.ovr"));
        fs::write(folder.join("a.tif.ovr"), "a.tif.ovr").unwrap();
        beside.remove().unwrap();
        let mut left = others.map(str::to_owned).to_vec();
        // Without `a.tif.MSK` there is nothing for `a.tif.MSK.ovr` to describe.
        left.extend(["a.tif", "a.tif.OVR", "a.tif.MSK.ovr"].map(str::to_owned));
        left.sort();
        assert_eq!(names(&folder), left);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn next_writer_removes_side_files_that_a_killed_one_left() {
        let folder = folder("killed");
        let (path, fresh) = (folder.join("a.tif"), folder.join("fresh"));
        for name in ["a.tif", "a.tif.msk", "fresh"] {
            fs::write(folder.join(name), name).unwrap();
        }
        make_unlike_others(&fresh);
        drop(SideFiles::note(std::slice::from_ref(&path), &[]).unwrap());
        fs::rename(&fresh, &path).unwrap();
        fs::write(folder.join("a.tif.ovr"), "made since").unwrap();
        let beside = SideFiles::note(std::slice::from_ref(&path), &[]).unwrap();
        assert!(!folder.join("a.tif.msk").exists() && !stale(&path, "a.tif.ovr"));
        beside.keep();
        assert_eq!(names(&folder), ["a.tif", "a.tif.ovr"]);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn side_files_without_their_file_are_not_the_next_ones() {
        let folder = folder("orphans");
        let path = folder.join("a.tif");
        fs::write(folder.join("a.tif.aux.xml"), "x").unwrap();
        let beside = SideFiles::note(std::slice::from_ref(&path), &[]).unwrap();
        fs::write(&path, "new").unwrap();
        assert!(stale(&path, "a.tif.aux.xml"));
        beside.remove().unwrap();
        assert_eq!(names(&folder), ["a.tif"]);
        fs::remove_dir_all(folder).unwrap();
    }

    #[cfg(all(unix, not(feature = "portable")))]
    #[test]
    fn a_note_of_another_user_hides_no_side_file() {
        use std::os::unix::fs::chown;
        let folder = folder("foreign");
        let (path, fresh) = (folder.join("a.tif"), folder.join("fresh"));
        for name in ["a.tif", "a.tif.msk", "fresh"] {
            fs::write(folder.join(name), name).unwrap();
        }
        let beside = SideFiles::note(std::slice::from_ref(&path), &[]).unwrap();
        fs::rename(&fresh, &path).unwrap();
        assert!(stale(&path, "a.tif.msk"));
        // Only root may give files away.
        if chown(Note::path(&path), Some(12_345), None).is_ok() {
            assert!(!stale(&path, "a.tif.msk"));
            // The owner of the file may have replaced it.
            chown(&path, Some(12_345), None).unwrap();
            assert!(stale(&path, "a.tif.msk"));
        }
        beside.remove().unwrap();
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn invalid_notes_are_ignored() {
        let folder = folder("noise");
        let path = folder.join("a.tif");
        fs::write(&path, "x").unwrap();
        fs::write(folder.join("a.tif.ovr"), "x").unwrap();
        for text in ["", "none\n", "1 2\n3 4 x\n\n", "\u{fffd} 1 1\n"] {
            fs::write(Note::path(&path), text).unwrap();
            assert!(!stale(&path, "a.tif.ovr"), "{text:?}");
        }
        fs::remove_dir_all(folder).unwrap();
    }
}
