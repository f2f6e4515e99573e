//! The seam between bytes and everything that reads them.

use std::{fmt, io};

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
}

impl SourceError {
    /// The kind of the I/O error behind this one.
    pub fn io_kind(&self) -> Option<io::ErrorKind> {
        match self {
            Self::Io { source, .. } => Some(source.kind()),
            Self::BeyondEnd { .. } => None,
        }
    }

    /// The I/O error behind this one.
    pub fn io_error(&self) -> Option<&io::Error> {
        match self {
            Self::Io { source, .. } => Some(source),
            Self::BeyondEnd { .. } => None,
        }
    }

    /// The operating system's number for it, where it has one.
    pub fn os_error(&self) -> Option<i32> {
        match self {
            Self::Io { source, .. } => source.raw_os_error(),
            Self::BeyondEnd { .. } => None,
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

    /// Lets a device read the file itself; `None` is always correct.
    fn as_file(&self) -> Option<&std::fs::File> {
        None
    }
}
