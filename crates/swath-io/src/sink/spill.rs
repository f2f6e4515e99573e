//! Disk space for bytes that wait to be written and do not fit into memory.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Mutex, MutexGuard, OnceLock, PoisonError},
};

use crate::{
    position::{read_exact_at, write_all_at},
    sink::{error::SinkError, temporary::Temporary},
};

/// A temporary file that holds bytes until they are read back. The first bytes create it. It disappears when it is dropped, and on
/// Unix also when its process is killed.
#[derive(Debug)]
pub struct Spill {
    folder: PathBuf,
    file: OnceLock<Temporary>,
    room: Mutex<Room>,
}

/// The position of the bytes of one [`Spill::put`].
#[derive(Debug, PartialEq, Eq)]
pub struct Extent {
    offset: u64,
    len: u64,
}

impl Extent {
    /// Number of bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// Free and used parts of the file.
#[derive(Debug, Default)]
struct Room {
    /// Length of each free part by its offset. No two of them touch.
    free: BTreeMap<u64, u64>,
    end: u64,
}

impl Room {
    /// Allocates the first free part that is long enough, or the end of the file.
    fn take(&mut self, len: u64) -> u64 {
        let found = self.free.iter().find(|(_, free)| **free >= len).map(|(offset, free)| (*offset, *free));
        let Some((offset, free)) = found else {
            let offset = self.end;
            self.end += len;
            return offset;
        };
        self.free.remove(&offset);
        if free > len {
            self.free.insert(offset + len, free - len);
        }
        offset
    }

    fn give_back(&mut self, mut offset: u64, mut len: u64) {
        if let Some(after) = self.free.remove(&(offset + len)) {
            len += after;
        }
        if let Some((&before, &free)) = self.free.range(..offset).next_back()
            && before + free == offset
        {
            self.free.remove(&before);
            (offset, len) = (before, free + len);
        }
        if offset + len == self.end {
            self.end = offset;
        } else {
            self.free.insert(offset, len);
        }
    }
}

impl Spill {
    /// Creates its file in this folder, when it is first needed.
    pub fn in_folder(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into(), file: OnceLock::new(), room: Mutex::default() }
    }

    fn file(&self) -> Result<&Temporary, SinkError> {
        if let Some(made) = self.file.get() {
            return Ok(made);
        }
        let made = Temporary::create_in(&self.folder)?;
        // If another thread was faster, its file is kept and this one is dropped.
        Ok(self.file.get_or_init(|| made))
    }

    fn lock(&self) -> MutexGuard<'_, Room> {
        self.room.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores bytes.
    ///
    /// # Errors
    /// When the file cannot be created, or the disk is full or fails.
    pub fn put(&self, bytes: &[u8]) -> Result<Extent, SinkError> {
        let file = self.file()?.file();
        let len = bytes.len() as u64;
        let offset = self.lock().take(len);
        let extent = Extent { offset, len };
        match file.check_size(offset + len).and_then(|()| write_all_at(file.file(), bytes, offset)) {
            Ok(()) => Ok(extent),
            Err(source) => {
                self.discard(extent);
                let action = "cannot store waiting tiles in a temporary file";
                Err(SinkError::io(action, source))
            }
        }
    }

    /// Reads bytes back into `bytes`, replacing its content, and frees their space.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn take(&self, extent: Extent, bytes: &mut Vec<u8>) -> Result<(), SinkError> {
        bytes.clear();
        let read = match bytes.try_reserve(extent.len as usize) {
            Err(error) => Err(error.into()),
            Ok(()) => {
                bytes.resize(extent.len as usize, 0);
                read_exact_at(self.file()?.file().file(), bytes, extent.offset)
            }
        };
        self.discard(extent);
        read.map_err(|source| SinkError::io("cannot read tiles back from a temporary file", source))
    }

    /// Frees the space of bytes that are not needed any more.
    pub fn discard(&self, extent: Extent) {
        if extent.len > 0 {
            self.lock().give_back(extent.offset, extent.len);
        }
    }

    /// Size of the file, including free parts between used ones.
    pub fn size(&self) -> u64 {
        self.lock().end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_and_room_is_used_again() {
        let spill = Spill::in_folder(std::env::temp_dir());
        let extents: Vec<Extent> = (0..4_u8).map(|byte| spill.put(&vec![byte; 1000]).unwrap()).collect();
        let mut bytes = Vec::new();
        let mut left = Vec::new();
        for (number, extent) in extents.into_iter().enumerate() {
            if number == 1 || number == 2 {
                spill.take(extent, &mut bytes).unwrap();
                assert_eq!(bytes, vec![number as u8; 1000]);
            } else {
                left.push(extent);
            }
        }
        // The two that were taken make room for one of their length together.
        let long = spill.put(&[9; 2000]).unwrap();
        assert_eq!((spill.size(), long.offset), (4000, 1000));
        left.push(long);
        left.into_iter().for_each(|extent| spill.discard(extent));
        assert_eq!(spill.size(), 0);
    }

    #[test]
    fn a_missing_folder_matters_only_for_the_first_bytes() {
        let spill = Spill::in_folder("/nowhere/at/all");
        assert_eq!(spill.size(), 0);
        assert!(spill.put(&[1]).unwrap_err().to_string().contains("/nowhere/at/all"));
        assert_eq!(spill.size(), 0);
    }

    #[test]
    #[cfg(all(unix, not(feature = "portable")))]
    fn it_has_no_name() {
        let folder = std::env::temp_dir().join(format!("swath-io-spill-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let spill = Spill::in_folder(&folder);
        spill.put(&[1; 10]).unwrap();
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
        std::fs::remove_dir(&folder).unwrap();
    }
}
