//! The seam between a writer and the place its bytes go to.

use std::{fmt, io, ops::Range, sync::Arc};

use crate::remote::{RemoteFault, Traffic};

pub mod beside;
pub mod fault;
pub mod file;
#[cfg_attr(not(target_os = "linux"), path = "unmapped.rs")]
mod mapped;
pub mod memory;
#[cfg_attr(not(feature = "remote"), path = "object/disabled.rs")]
pub mod object;
pub mod part;
pub mod spill;
pub mod stream;
mod target;

use spill::Spill;

/// Why a sink could not take the bytes.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SinkError {
    /// The operating system said no.
    #[error("{action}: {source}")]
    Io {
        /// What was tried.
        action: String,
        /// What it said.
        source: io::Error,
    },
    /// A store did not take the bytes.
    #[error("{detail}")]
    Remote {
        /// What is the matter.
        fault: RemoteFault,
        /// What happened, in words.
        detail: String,
    },
}

impl SinkError {
    pub(crate) fn io(action: impl Into<String>, source: io::Error) -> Self {
        Self::Io { action: action.into(), source }
    }

    /// The kind of the I/O error behind this one.
    pub fn io_kind(&self) -> io::ErrorKind {
        match self {
            Self::Io { source, .. } => source.kind(),
            Self::Remote { fault, .. } => fault.io_kind(),
        }
    }

    /// The I/O error behind this one.
    pub fn io_error(&self) -> Option<&io::Error> {
        match self {
            Self::Io { source, .. } => Some(source),
            Self::Remote { .. } => None,
        }
    }

    /// The operating system's number for it, where it has one.
    pub fn os_error(&self) -> Option<i32> {
        match self {
            Self::Io { source, .. } => source.raw_os_error(),
            Self::Remote { .. } => None,
        }
    }
}

/// Ranges that begin and end at multiples of this can be taken out without copying, by file systems that have such blocks.
pub const BLOCK: u64 = 4096;

/// What [`Sink::write_chunk`] says unless a sink knows better.
const CHUNK: usize = 4 << 20;

/// Says whether the caller wants no more.
pub type Stop = Arc<dyn Fn() -> bool + Send + Sync>;

/// Tells what was asked of the network so far.
pub type TrafficReader = Arc<dyn Fn() -> Traffic + Send + Sync>;

/// A new file in the making. Nothing of it can be seen under its name until [`Sink::commit`]; dropped before, it leaves
/// nothing behind.
pub trait Sink: fmt::Debug + Send + Sync {
    /// Name for messages.
    fn name(&self) -> &str;

    /// Says that nothing will be written at `size` or beyond it, before anything is written.
    fn expect(&self, _size: u64) {}

    /// Tells what was asked of the network, also after the sink is gone; `None` where there is no network.
    fn traffic(&self) -> Option<TrafficReader> {
        None
    }

    /// Has waits give up soon after `stop` says so; files wait for nothing.
    fn stop_when(&self, _stop: Stop) {}

    /// Writes `bytes` at `offset`. Any number of threads may write at once, to any place; what nobody writes is zero, and
    /// costs nothing before [`Sink::remove`] was called.
    ///
    /// # Errors
    /// When the bytes cannot be taken; the file can then only be dropped.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), SinkError>;

    /// Bytes in which a caller with several threads best cuts a long write, at multiples of this in the file.
    fn write_chunk(&self) -> usize {
        CHUNK
    }

    /// Room on disk for what waits for its turn: beside the file, or in the folder for temporary files.
    fn spill(&self) -> Spill {
        Spill::in_folder(std::env::temp_dir())
    }

    /// Takes `gaps` out of a file of `size` bytes, so that what follows moves down. Gaps rise, do not touch each other, and
    /// end before `size`; those that begin and end at multiples of [`BLOCK`] may cost nothing.
    ///
    /// # Errors
    /// When bytes cannot be moved; the file can then only be dropped.
    fn remove(&mut self, gaps: &[Range<u64>], size: u64) -> Result<(), SinkError>;

    /// Makes the file of `size` bytes appear under its name, whole, in place of any that is there. Files beside it that
    /// describe the old one go with that.
    ///
    /// # Errors
    /// When that cannot be done; what was there before is then still there. Only where a file beside it cannot be removed,
    /// the new file is in place, and the error says so.
    fn commit(self: Box<Self>, size: u64) -> Result<(), SinkError>;
}

/// Bytes in all gaps.
pub(crate) fn gap_len(gaps: &[Range<u64>]) -> u64 {
    gaps.iter().map(|gap| gap.end - gap.start).sum()
}

/// What is left of a file of `size` bytes between and after the gaps: where each piece is, and where it goes.
pub(crate) fn pieces(gaps: &[Range<u64>], size: u64) -> impl Iterator<Item = (Range<u64>, u64)> + '_ {
    let mut removed = 0;
    gaps.iter().enumerate().map(move |(index, gap)| {
        removed += gap.end - gap.start;
        let end = gaps.get(index + 1).map_or(size, |next| next.start);
        (gap.end..end, gap.end - removed)
    })
}
