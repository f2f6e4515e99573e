//! Machine code of the kernels for the chips in use, so that the driver need not compile the PTX.
//!
//! `cargo xtask ptx` assembles the PTX into one archive for each chip (`kernels/cubin/`). Chips without an archive, and
//! drivers that refuse the machine code, get the PTX.

use std::{fmt, sync::OnceLock};

/// The form in which a device gets the kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum KernelCode {
    /// Machine code for this chip, such as `sm_90`, or for an older chip of its generation.
    Machine(&'static str),
    /// PTX, which the driver compiles when a kernel is first used.
    Ptx,
}

impl fmt::Display for KernelCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Machine(chip) => write!(f, "machine code for {chip}"),
            Self::Ptx => f.write_str("PTX, compiled by the driver"),
        }
    }
}

impl KernelCode {
    /// Returns the form for a device of this compute capability.
    pub(crate) fn choose(capability: (i32, i32), ptx_wanted: bool) -> Self {
        let archive = if ptx_wanted { None } else { Archive::for_chip(capability) };
        archive.map_or(Self::Ptx, |archive| Self::Machine(archive.chip))
    }

    /// Returns the archive with the machine code.
    pub(crate) fn archive(self) -> Option<&'static Archive> {
        match self {
            Self::Machine(chip) => ARCHIVES.iter().find(|archive| archive.chip == chip),
            Self::Ptx => None,
        }
    }
}

/// Machine code of all modules for one chip.
pub(crate) struct Archive {
    chip: &'static str,
    /// Compute capability of the chip.
    capability: (i32, i32),
    packed: &'static [u8],
    /// The unpacked archive, in 64-bit words because the driver needs aligned images.
    unpacked: OnceLock<Result<Vec<u64>, String>>,
}

macro_rules! archive {
    ($chip:literal, $capability:expr) => {
        Archive {
            chip: $chip,
            capability: $capability,
            packed: include_bytes!(concat!("../kernels/cubin/", $chip, ".zst")),
            unpacked: OnceLock::new(),
        }
    };
}

/// Chips that `cargo xtask ptx` makes code for. 8.9 runs the code of 8.6: ptxas makes nearly the same for both.
static ARCHIVES: [Archive; 6] = [
    archive!("sm_75", (7, 5)),
    archive!("sm_80", (8, 0)),
    archive!("sm_86", (8, 6)),
    archive!("sm_90", (9, 0)),
    archive!("sm_100", (10, 0)),
    archive!("sm_120", (12, 0)),
];

/// Systems on a chip (Orin, Thor) that share a generation's number with cards. NVIDIA promises that code runs on newer
/// chips of its generation only for cards.
const ON_BOARD: [(i32, i32); 3] = [(8, 7), (8, 8), (10, 1)];

/// Most bytes that an archive may unpack to. An archive has about 3 MB; a length far off means a damaged build.
const MOST_UNPACKED: usize = 64 << 20;

impl Archive {
    /// Returns the archive whose code runs on a chip: of the same generation, and not newer.
    fn for_chip(capability: (i32, i32)) -> Option<&'static Self> {
        if ON_BOARD.contains(&capability) {
            return None;
        }
        let (major, minor) = capability;
        let runs = |archive: &&Self| archive.capability.0 == major && archive.capability.1 <= minor;
        ARCHIVES.iter().filter(runs).max_by_key(|archive| archive.capability)
    }

    /// Returns the image of a module. The first call unpacks the archive, which takes some milliseconds.
    pub(crate) fn module(&self, name: &str) -> Result<&[u8], String> {
        let unpacked = self.unpacked.get_or_init(|| unpack(self.packed));
        let bytes = bytemuck::cast_slice(unpacked.as_ref().map_err(Clone::clone)?);
        find(bytes, name).ok_or_else(|| format!("{} has no code of {name}", self.chip))
    }
}

fn unpack(packed: &[u8]) -> Result<Vec<u64>, String> {
    let len = zstd_safe::get_frame_content_size(packed).ok().flatten().and_then(|len| usize::try_from(len).ok());
    let len = len.filter(|len| *len <= MOST_UNPACKED).ok_or("the archive of machine code has no length")?;
    let mut words = vec![0_u64; len.div_ceil(8)];
    let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut words);
    zstd_safe::decompress(bytes, packed).map_err(|code| zstd_safe::get_error_name(code).to_owned())?;
    Ok(words)
}

/// Finds a module in an unpacked archive: lines of names and lengths, an empty line, then the modules in that order. Each
/// begins at a multiple of eight bytes.
fn find<'a>(archive: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let index_len = archive.windows(2).position(|pair| pair == b"\n\n")? + 2;
    let index = std::str::from_utf8(archive.get(..index_len)?).ok()?;
    let mut start = index_len.next_multiple_of(8);
    for line in index.lines().filter(|line| !line.is_empty()) {
        let (module, len) = line.split_once(' ')?;
        let end = start.checked_add(len.parse().ok()?)?;
        if module == name {
            return archive.get(start..end);
        }
        start = end.checked_next_multiple_of(8)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chips_get_code_of_their_generation_that_is_not_newer() {
        let code = |major, minor| KernelCode::choose((major, minor), false);
        for (capability, chip) in [
            ((7, 5), "sm_75"),
            ((8, 0), "sm_80"),
            ((8, 6), "sm_86"),
            ((8, 9), "sm_86"),
            ((9, 0), "sm_90"),
            ((10, 0), "sm_100"),
            ((10, 3), "sm_100"),
            ((12, 0), "sm_120"),
            ((12, 1), "sm_120"),
        ] {
            assert_eq!(code(capability.0, capability.1), KernelCode::Machine(chip), "{capability:?}");
        }
        for (major, minor) in [(7, 0), (7, 2), (8, 7), (8, 8), (10, 1), (11, 0), (13, 0), (0, 0)] {
            assert_eq!(code(major, minor), KernelCode::Ptx, "{major}.{minor}");
        }
        assert_eq!(KernelCode::choose((9, 0), true), KernelCode::Ptx);
    }

    #[test]
    fn modules_are_found_and_damaged_archives_have_none() {
        let archive = b"a 3\nbc 9\n\n\0\0\0\0\0\0abc\0\0\0\0\0defghijkl";
        assert_eq!(find(archive, "a"), Some(&b"abc"[..]));
        assert_eq!(find(archive, "bc"), Some(&b"defghijkl"[..]));
        assert_eq!(find(archive, "b"), None);
        for cut in 0..archive.len() {
            assert_eq!(find(&archive[..cut], "bc"), None, "{cut} bytes");
        }
        assert_eq!(find(b"a 18446744073709551615\n\n", "a"), None);
        assert_eq!(find(b"a -1\n\n\0\0", "a"), None);
    }

    #[test]
    fn every_archive_that_is_made_is_used() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels/cubin");
        let names = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut made: Vec<String> = names.filter_map(|name| Some(name.strip_suffix(".zst")?.to_owned())).collect();
        let mut used = ARCHIVES.each_ref().map(|archive| archive.chip);
        made.sort();
        used.sort_unstable();
        assert_eq!(made, used);
    }

    #[test]
    fn every_archive_has_every_kernel_of_the_ptx() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels/ptx");
        let mut modules = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|extension| extension != "ptx") {
                continue;
            }
            modules += 1;
            let name = path.file_stem().unwrap().to_str().unwrap();
            let ptx = std::fs::read_to_string(&path).unwrap();
            for archive in &ARCHIVES {
                let image = archive.module(name).unwrap();
                assert!(image.starts_with(b"\x7fELF") && image.as_ptr().addr() % 8 == 0, "{name}, {}", archive.chip);
                for kernel in ptx.split(".entry ").skip(1).map(|rest| rest.split('(').next().unwrap().trim()) {
                    let section = format!("\0.text.{kernel}\0");
                    let found = image.windows(section.len()).any(|bytes| bytes == section.as_bytes());
                    assert!(found, "{kernel} of {name}, {}", archive.chip);
                }
            }
        }
        assert!(modules > 20, "{modules}");
    }
}
