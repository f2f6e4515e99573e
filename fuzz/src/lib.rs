//! The targets of the fuzzer. Each takes any bytes; a panic, a failed assertion, a hang or too much memory is a finding.
//!
//! `fuzz/run.py` runs the targets under libFuzzer. Its findings become files in `fuzz/regressions/<target>/`, which
//! `cargo test` replays.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a panic here is a finding")]

pub mod files;
pub mod foreign;
pub mod kernels;
pub mod options;
pub mod remote;
pub mod structure;
pub mod tiles;

use swath::Limits;

/// A target.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Its name, and that of the folders of its files.
    pub name: &'static str,
    /// Takes one input.
    pub run: fn(&[u8]),
    /// The kind of its first inputs.
    pub seeds: Seeds,
}

/// The kinds of first inputs of targets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seeds {
    /// Whole files behind this many bytes that choose options.
    Files(usize),
    /// Texts that files hold: GDAL's metadata, side files, reference systems.
    Texts,
    /// Compressed tiles behind a [`tiles::Head`].
    Tiles,
    /// Samples of tiles behind a [`tiles::Head`].
    Samples,
    /// Nothing but numbers.
    Numbers,
    /// Command lines, one argument a line.
    CommandLines,
}

/// All targets.
pub const TARGETS: &[Target] = &[
    Target { name: "structure", run: structure::structure, seeds: Seeds::Files(0) },
    Target { name: "plan", run: structure::plan, seeds: Seeds::Files(16) },
    Target { name: "text", run: structure::text, seeds: Seeds::Texts },
    Target { name: "geokeys", run: structure::geokeys, seeds: Seeds::Numbers },
    Target { name: "metadata", run: files::metadata, seeds: Seeds::Files(0) },
    Target { name: "decode", run: tiles::decode, seeds: Seeds::Tiles },
    Target { name: "encode", run: tiles::encode, seeds: Seeds::Samples },
    Target { name: "read", run: files::read, seeds: Seeds::Files(8) },
    Target { name: "convert", run: files::convert, seeds: Seeds::Files(8) },
    Target { name: "options", run: options::options, seeds: Seeds::CommandLines },
    Target { name: "remote", run: remote::remote, seeds: Seeds::Files(8) },
    Target { name: "kernels", run: kernels::kernels, seeds: Seeds::Tiles },
    Target { name: "foreign", run: foreign::foreign, seeds: Seeds::Numbers },
];

/// The target of this name.
pub fn target(name: &str) -> Option<Target> {
    TARGETS.iter().find(|target| target.name == name).copied()
}

/// Limits that keep one input below a few milliseconds and megabytes.
pub fn limits() -> Limits {
    Limits::default().with_decoded_bytes(4 << 20).with_tile_bytes(1 << 20).with_tag_bytes(1 << 20).with_ifds(64)
}

/// Numbers from the front of an input; zeros where it has ended.
#[derive(Debug)]
pub struct Input<'a>(pub &'a [u8]);

impl<'a> Input<'a> {
    /// The next bytes.
    pub fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let mut taken = [0; N];
        let (now, later) = self.0.split_at(self.0.len().min(N));
        taken[..now.len()].copy_from_slice(now);
        self.0 = later;
        taken
    }

    /// The next byte.
    pub fn u8(&mut self) -> u8 {
        u8::from_le_bytes(self.bytes())
    }

    /// The next two bytes.
    pub fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.bytes())
    }

    /// The next four bytes.
    pub fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.bytes())
    }

    /// The next eight bytes.
    pub fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.bytes())
    }

    /// One of these.
    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[usize::from(self.u8()) % of.len()]
    }

    /// The next `len` bytes, or as many as there are.
    pub fn part(&mut self, len: usize) -> &'a [u8] {
        let (now, later) = self.0.split_at(self.0.len().min(len));
        self.0 = later;
        now
    }
}
