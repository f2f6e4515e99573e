//! Opens regular files only. Opening a pipe would block until its other end is opened, and devices can do anything.

use std::{
    fs::{self, File, FileType, OpenOptions},
    io,
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
    Err(io::Error::new(io::ErrorKind::InvalidInput, what(kind)))
}

#[cfg(all(unix, not(feature = "portable")))]
fn what(kind: FileType) -> &'static str {
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
fn what(_: FileType) -> &'static str {
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
}
