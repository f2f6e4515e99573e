//! The system's settings for direct reads: NVIDIA's kernel module and cuFile's configuration; and how to open files
//! for them.

use std::{
    fs::File,
    path::{Path, PathBuf},
};

/// Whether the system has what direct reads need. Does not load the library.
pub(crate) fn may_be_direct() -> bool {
    has_kernel_module() || configured("use_pci_p2pdma") == Some(true)
}

#[cfg(not(unix))]
pub use portable::for_reading;

#[cfg(not(unix))]
pub(super) use portable::descriptor;

/// Returns the same file for cuFile to own. For direct reads it is opened again without the page cache, where the file
/// system supports that.
#[cfg(unix)]
pub fn for_reading(file: &File, direct: bool) -> Result<File, String> {
    use std::os::{fd::AsRawFd, unix::fs::OpenOptionsExt};
    /// `O_DIRECT`.
    const UNCACHED: i32 = if cfg!(any(target_arch = "aarch64", target_arch = "arm")) { 0x10000 } else { 0x4000 };
    if direct {
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        if let Ok(uncached) = std::fs::OpenOptions::new().read(true).custom_flags(UNCACHED).open(path) {
            return Ok(uncached);
        }
    }
    file.try_clone().map_err(|error| error.to_string())
}

/// The number by which cuFile knows a file.
#[cfg(unix)]
pub(super) fn descriptor(file: &File) -> i32 {
    std::os::fd::AsRawFd::as_raw_fd(file)
}

/// The same for other systems, which the tests run on every system. cuFile exists on Linux only, so no other system finds a
/// library to read with.
#[cfg(any(not(unix), test))]
mod portable {
    use std::fs::File;

    pub fn for_reading(file: &File, _: bool) -> Result<File, String> {
        file.try_clone().map_err(|error| error.to_string())
    }

    pub fn descriptor(_: &File) -> i32 {
        -1
    }
}

pub(super) fn has_kernel_module() -> bool {
    Path::new("/proc/driver/nvidia-fs").exists()
}

/// Returns a setting of cuFile's configuration, if it is there.
pub(super) fn configured(key: &str) -> Option<bool> {
    let path = std::env::var_os("CUFILE_ENV_PATH_JSON");
    let path = path.map_or_else(|| PathBuf::from("/etc/cufile.json"), PathBuf::from);
    setting(&std::fs::read_to_string(path).ok()?, key)
}

/// Returns a boolean setting. The file is JSON with `//` comments that often contain the same words. Reading line by
/// line is enough, since no decision rests on this alone.
fn setting(config: &str, key: &str) -> Option<bool> {
    let lines = config.lines().map(|line| line.split("//").next().unwrap_or_default());
    let key = format!("\"{key}\"");
    let value = lines.filter_map(|line| line.split_once(&key)).map(|(_, value)| value).next()?;
    let value = value.trim_start_matches([' ', '\t', ':']);
    [("true", true), ("false", false)].into_iter().find(|(word, _)| value.starts_with(word)).map(|(_, is_on)| is_on)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_for_cufile_has_the_same_bytes_on_every_system() {
        let path = std::env::temp_dir().join(format!("swath-cufile-{}", std::process::id()));
        std::fs::write(&path, b"bytes").unwrap();
        let file = File::open(&path).unwrap();
        // Direct reads need aligned buffers, so none are tried here; elsewhere the choice changes nothing.
        let files =
            [for_reading(&file, false), portable::for_reading(&file, true), portable::for_reading(&file, false)];
        std::fs::remove_file(&path).unwrap();
        for file in files {
            let mut file = file.unwrap();
            std::io::Seek::rewind(&mut file).unwrap();
            assert_eq!(std::io::read_to_string(file).unwrap(), "bytes");
        }
        assert_eq!(portable::descriptor(&file), -1);
    }

    #[test]
    fn the_configuration_is_read_past_its_comments() {
        let config =
            "{\n // \"allow_compat_mode\": true,\n \"properties\": {\n  \"allow_compat_mode\" : false, // why\n }\n}";
        assert_eq!(setting(config, "allow_compat_mode"), Some(false));
        assert_eq!(setting("{\"allow_compat_mode\": true}", "allow_compat_mode"), Some(true));
        assert_eq!(setting("{}", "allow_compat_mode"), None);
        assert_eq!(setting(config, "use_pci_p2pdma"), None);
    }
}
