//! Determines what a path refers to: a regular file, existing or not, or something that takes bytes in order only.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
};

/// A pipe, device or open file, which takes bytes in order only.
pub(super) type Stream = Box<dyn Write + Send + Sync>;

/// The names of a file: the path itself, every link on the way, and finally the file's own name.
pub(super) fn names(path: &Path) -> io::Result<Vec<PathBuf>> {
    // The working folder may have changed when the file is renamed.
    let mut names = vec![std::path::absolute(path)?];
    // Linux follows as many links.
    for _ in 0..40 {
        let last = names.last().map_or(path, PathBuf::as_path);
        let Ok(next) = fs::read_link(last) else { return Ok(names) };
        let next = last.parent().unwrap_or(Path::new("/")).join(next);
        names.push(next);
    }
    Err(io::Error::other("the links form a loop"))
}

/// Opens a pipe, a device, a socket or an already open file (`/dev/stdout`) for writing. `None` where a regular file is to be
/// created or replaced.
///
/// # Errors
/// When it cannot be opened, or is a disk.
pub(super) fn stream(path: &Path) -> io::Result<Option<Stream>> {
    if let Some(opened) = opened(path)? {
        return Ok(Some(Box::new(opened)));
    }
    let Ok(found) = fs::metadata(path) else { return Ok(None) };
    if found.is_file() || found.is_dir() {
        return Ok(None);
    }
    #[cfg(all(unix, not(feature = "portable")))]
    {
        use std::os::unix::{fs::FileTypeExt, net::UnixStream};
        if found.file_type().is_socket() {
            return Ok(Some(Box::new(UnixStream::connect(path)?)));
        }
        if found.file_type().is_block_device() {
            let why = "this is a disk, and writing would destroy its content: give the name of a file";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
    }
    Ok(Some(Box::new(OpenOptions::new().write(true).open(path)?)))
}

/// The open file that a path such as `/dev/stdout` or `/proc/self/fd/3` refers to.
#[cfg(all(unix, not(feature = "portable")))]
fn opened(path: &Path) -> io::Result<Option<File>> {
    use std::os::fd::AsFd;
    let is_open = |name: &PathBuf| {
        let folder = fs::canonicalize(name.parent()?).ok()?;
        let descriptors = folder.ends_with("fd") && (folder.starts_with("/proc") || folder.starts_with("/dev"));
        descriptors.then(|| (folder, name.clone()))
    };
    let Some((folder, name)) = names(path).unwrap_or_default().iter().find_map(is_open) else { return Ok(None) };
    let own = folder == Path::new("/dev/fd") || fs::canonicalize("/proc/self/fd").is_ok_and(|own| own == folder);
    // A duplicated descriptor keeps appending if it was opened so, and sockets cannot be opened by such a name.
    let duplicate = match name.file_name().and_then(|number| number.to_str()) {
        Some("1") if own => io::stdout().as_fd().try_clone_to_owned(),
        Some("2") if own => io::stderr().as_fd().try_clone_to_owned(),
        _ => {
            let ordinary = fs::metadata(&name)?.is_file();
            return OpenOptions::new().write(true).append(ordinary).open(&name).map(Some);
        }
    };
    duplicate.map(|duplicate| Some(File::from(duplicate)))
}

#[cfg(not(all(unix, not(feature = "portable"))))]
fn opened(_: &Path) -> io::Result<Option<File>> {
    Ok(None)
}
