//! The seam between bytes and everything that reads them.

use std::{fmt, io};

use crate::remote::{RemoteFault, Traffic};

pub mod file;
pub mod memory;

/// Why a source could not give the bytes.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// The operating system said no.
    #[error("{action}: {source}")]
    Io {
        /// What was tried.
        action: String,
        /// What it said.
        source: io::Error,
    },
    /// The source ended before the range did: it is shorter than it was when it was opened, or the caller asked beyond.
    #[error("{len} bytes at offset {offset} are beyond the end ({size} bytes)")]
    BeyondEnd {
        /// First byte wanted.
        offset: u64,
        /// Bytes wanted.
        len: u64,
        /// Size of the source.
        size: u64,
    },
    /// A server or store did not give the bytes.
    #[error("{detail}")]
    Remote {
        /// What is the matter.
        fault: RemoteFault,
        /// What happened, in words.
        detail: String,
    },
}

impl SourceError {
    /// The kind of the I/O error behind this one.
    pub fn io_kind(&self) -> Option<io::ErrorKind> {
        match self {
            Self::Io { source, .. } => Some(source.kind()),
            Self::Remote { fault, .. } => Some(fault.io_kind()),
            Self::BeyondEnd { .. } => None,
        }
    }

    /// The I/O error behind this one.
    pub fn io_error(&self) -> Option<&io::Error> {
        match self {
            Self::Io { source, .. } => Some(source),
            Self::BeyondEnd { .. } | Self::Remote { .. } => None,
        }
    }

    /// The operating system's number for it, where it has one.
    pub fn os_error(&self) -> Option<i32> {
        match self {
            Self::Io { source, .. } => source.raw_os_error(),
            Self::BeyondEnd { .. } | Self::Remote { .. } => None,
        }
    }
}

/// One range to read, and where to put it.
#[derive(Debug)]
pub struct ReadInto<'a> {
    /// First byte.
    pub offset: u64,
    /// Filled wholly, or the read fails.
    pub buffer: &'a mut [u8],
}

/// How a source is best asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    /// Bytes between two ranges that are worth reading along.
    pub gap: u64,
    /// Ranges are not merged beyond this length.
    pub max_len: u64,
    /// Reads that are worth having on their way at once; 1 where each is as quick as memory.
    pub in_flight: usize,
    /// Bytes that are worth reading around anything small that is wanted.
    pub prefetch: u64,
}

impl Access {
    /// A file of this machine: the next read costs little.
    pub const LOCAL: Self = Self { gap: 16 << 10, max_len: 512 << 10, in_flight: 1, prefetch: 16 << 10 };
    /// Anything behind a network: every request waits for its answer.
    pub const REMOTE: Self = Self { gap: 32 << 10, max_len: 4 << 20, in_flight: 16, prefetch: 32 << 10 };

    /// Whether waiting is what reads cost most.
    pub fn is_remote(&self) -> bool {
        self.in_flight > 1
    }
}

/// A thing with a size that can be read at any offset by many threads at once.
pub trait Source: fmt::Debug + Send + Sync {
    /// Name for messages.
    fn name(&self) -> &str;

    /// Size in bytes.
    ///
    /// # Errors
    /// When it cannot be had.
    fn size(&self) -> Result<u64, SourceError>;

    /// Fills every buffer or fails. The caller has merged neighbouring ranges (see [`crate::wrap::coalesce`]).
    ///
    /// # Errors
    /// When any range cannot be read wholly.
    fn read_many(&self, reads: &mut [ReadInto<'_>]) -> Result<(), SourceError>;

    /// Fills one buffer or fails.
    ///
    /// # Errors
    /// When the range cannot be read wholly.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), SourceError> {
        self.read_many(&mut [ReadInto { offset, buffer }])
    }

    /// As [`Source::read_many`], given up soon after `stop` says so.
    ///
    /// # Errors
    /// As [`Source::read_many`], and when it was stopped.
    fn read_many_unless(
        &self,
        reads: &mut [ReadInto<'_>],
        _stop: &(dyn Fn() -> bool + Sync),
    ) -> Result<(), SourceError> {
        self.read_many(reads)
    }

    /// How it is best asked.
    fn access(&self) -> Access {
        Access::LOCAL
    }

    /// What was asked of the network so far, where there is one.
    fn traffic(&self) -> Option<Traffic> {
        None
    }

    /// Lets a device read the file itself; `None` is always correct.
    fn as_file(&self) -> Option<&std::fs::File> {
        None
    }
}
