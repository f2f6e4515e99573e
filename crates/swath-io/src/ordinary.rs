//! Opens regular files only. Opening a pipe would block until its other end is opened, and devices can do anything.

use std::{
    fs::{self, File, FileType, OpenOptions},
    io::{self, Read},
    path::Path,
};

/// Opens the file at `path` for reading; links are followed.
///
/// # Errors
/// When it is not a regular file, or cannot be opened.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    check(fs::metadata(path)?.file_type())?;
    opened(OpenOptions::new().read(true), path, false)
}

/// Reads a whole file of at most `most` bytes; links are followed. It is opened once: a file that is checked by name and then opened
/// by name may be another one by then, such as a pipe.
///
/// # Errors
/// When it is longer, is not a regular file, or cannot be read.
pub fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let file = open(path)?;
    let len = file.metadata()?.len();
    let mut bytes = Vec::new();
    if len <= most {
        bytes.try_reserve_exact(usize::try_from(len).unwrap_or(usize::MAX))?;
        // It may be growing, and files of the system have no length.
        file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    }
    let len = len.max(bytes.len() as u64);
    if len > most {
        let why = format!("{len} bytes are too many: at most {most} are read");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
    }
    Ok(bytes)
}

/// Opens the file at `path` for reading, or for writing if `write` is set. Refuses links: in a shared folder, any user can create
/// one.
///
/// # Errors
/// When it is not a regular file, or cannot be opened.
pub(crate) fn open_own(path: &Path, write: bool) -> io::Result<File> {
    check(fs::symlink_metadata(path)?.file_type())?;
    opened(OpenOptions::new().read(!write).write(write), path, true)
}

/// Opens the file and checks it again, since another file may have taken the name after the first check.
fn opened(options: &mut OpenOptions, path: &Path, own: bool) -> io::Result<File> {
    let file = match flagged(options, own, true).open(path) {
        // Another process holds a lease on the file: wait for it. Pipes have no leases.
        Err(error) if error.kind() == io::ErrorKind::WouldBlock && !own => flagged(options, own, false).open(path)?,
        result => result?,
    };
    check(file.metadata()?.file_type())?;
    Ok(file)
}

#[cfg(all(unix, not(feature = "portable")))]
fn flagged(options: &mut OpenOptions, own: bool, nonblocking: bool) -> &mut OpenOptions {
    use rustix::fs::OFlags;
    use std::os::unix::fs::OpenOptionsExt;
    let mut flags = OFlags::empty();
    flags.set(OFlags::NOFOLLOW, own);
    flags.set(OFlags::NONBLOCK, nonblocking);
    options.custom_flags(flags.bits() as i32)
}

#[cfg(not(all(unix, not(feature = "portable"))))]
fn flagged(options: &mut OpenOptions, _: bool, _: bool) -> &mut OpenOptions {
    options
}

/// Refuses anything but a regular file, with a message that names what it is.
fn check(kind: FileType) -> io::Result<()> {
    if kind.is_file() {
        return Ok(());
    }
    if kind.is_dir() {
        return Err(io::Error::new(io::ErrorKind::IsADirectory, "this is a folder"));
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, refusal_of(kind)))
}

/// Returns the message that refuses something that is neither a file nor a folder.
#[cfg(all(unix, not(feature = "portable")))]
fn refusal_of(kind: FileType) -> &'static str {
    use std::os::unix::fs::FileTypeExt;
    if kind.is_fifo() {
        "this is a pipe, which can only be read from start to end: write its content to a file, and open that"
    } else if kind.is_socket() {
        "this is a socket, not a file"
    } else if kind.is_symlink() {
        "this is a link, not a file"
    } else {
        "this is a device, not a file"
    }
}

#[cfg(not(all(unix, not(feature = "portable"))))]
fn refusal_of(_: FileType) -> &'static str {
    "this is not an ordinary file"
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::os::unix::{fs::symlink, net::UnixListener};

    #[test]
    fn only_regular_files_are_opened_and_no_open_blocks() {
        let folder = std::env::temp_dir().join(format!("swath-io-ordinary-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        let [file, link, pipe, to_pipe, socket] =
            ["file", "link", "pipe", "to-pipe", "s"].map(|name| folder.join(name));
        fs::write(&file, b"x").unwrap();
        symlink(&file, &link).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        symlink(&pipe, &to_pipe).unwrap();
        let _listener = UnixListener::bind(&socket).unwrap();
        assert!(open(&file).is_ok() && open_own(&file, false).is_ok() && open_own(&file, true).is_ok());
        assert!(open(&link).is_ok() && open_own(&link, true).is_err());
        for (path, word) in [
            (&pipe, "a pipe"),
            (&to_pipe, "a pipe"),
            (&socket, "a socket"),
            (&folder, "a folder"),
            (&Path::new("/dev/zero").into(), "a device"),
        ] {
            let message = open(path).unwrap_err().to_string();
            // Other systems cannot tell what it is.
            let word = if cfg!(feature = "portable") && word != "a folder" { "not an ordinary file" } else { word };
            assert!(message.contains(word), "{}: {message}", path.display());
            assert!(open_own(path, true).is_err() && open_own(path, false).is_err());
        }
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn files_are_read_whole_or_not_at_all() {
        let folder = std::env::temp_dir().join(format!("swath-io-ordinary-read-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        let (file, pipe) = (folder.join("file"), folder.join("pipe"));
        fs::write(&file, b"four").unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        assert_eq!(read(&file, 4).unwrap(), b"four");
        assert_eq!(read(&file, 3).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        assert_eq!(read(&folder.join("none"), 3).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(read(&pipe, 4).is_err() && read(&folder, 4).is_err());
        // A file of the system states no length.
        if Path::new("/proc/self/status").exists() {
            assert!(!read(Path::new("/proc/self/status"), 1 << 20).unwrap().is_empty());
            assert_eq!(read(Path::new("/proc/self/status"), 9).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        }
        fs::remove_dir_all(folder).unwrap();
    }

    /// Like a folder of strangers: the name is a file at one moment and a pipe at the next.
    #[cfg(all(target_os = "linux", not(feature = "portable")))]
    #[test]
    fn a_file_that_becomes_a_pipe_blocks_no_reader() {
        use rustix::fs::{CWD, RenameFlags, renameat_with};
        use std::sync::{
            atomic::{AtomicBool, Ordering},
            mpsc,
        };
        let folder = std::env::temp_dir().join(format!("swath-io-ordinary-swap-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        let (file, pipe) = (folder.join("file"), folder.join("pipe"));
        fs::write(&file, b"four").unwrap();
        rustix::fs::mknodat(CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        let over = AtomicBool::new(false);
        let (done, ended) = mpsc::channel();
        let name = file.clone();
        // Not scoped: a reader that blocks would keep the test from failing.
        std::thread::spawn(move || {
            let found: Vec<_> = (0..20_000).map(|_| read(&name, 4)).collect();
            let _ = done.send(found.into_iter().flatten().all(|bytes| bytes == b"four"));
        });
        let whole = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    let _ = renameat_with(CWD, &file, CWD, &pipe, RenameFlags::EXCHANGE);
                }
            });
            let whole = ended.recv_timeout(std::time::Duration::from_secs(60));
            over.store(true, Ordering::Relaxed);
            whole
        });
        assert_eq!(whole, Ok(true), "a reader waits for a pipe, or read something else");
        fs::remove_dir_all(folder).unwrap();
    }
}
