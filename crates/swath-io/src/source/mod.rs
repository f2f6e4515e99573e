//! The seam between bytes and everything that reads them.

use std::{fmt, io};

use crate::{
    remote::{RemoteFault, Traffic},
    wrap::coalesce::Merge,
};

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
    /// A server or store did not give the bytes, or a file of this machine is not the one that was opened.
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
    /// When ranges are read together.
    pub merge: Merge,
    /// Reads that are worth having on their way at once; 1 where each is as quick as memory.
    pub in_flight: usize,
    /// Bytes that are worth reading around anything small that is wanted.
    pub prefetch: u64,
}

impl Access {
    /// A file of this machine: the next read costs little.
    pub const LOCAL: Self =
        Self { merge: Merge { gap: 16 << 10, max_len: 512 << 10, waste: 100 }, in_flight: 1, prefetch: 16 << 10 };
    /// Anything behind a network: every request waits for its answer.
    pub const REMOTE: Self =
        Self { merge: Merge { gap: 64 << 10, max_len: 8 << 20, waste: 10 }, in_flight: 16, prefetch: 32 << 10 };

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

    /// Fills one buffer and, as bytes come in, shows `arrived` the part of it that is filled: work on the first bytes need not
    /// wait for the last.
    ///
    /// # Errors
    /// As [`Source::read_many_unless`]; what was shown before is then not to be used.
    fn read_streamed(
        &self,
        offset: u64,
        buffer: &mut [u8],
        stop: &(dyn Fn() -> bool + Sync),
        arrived: &mut dyn FnMut(&[u8]),
    ) -> Result<(), SourceError> {
        self.read_many_unless(&mut [ReadInto { offset, buffer: &mut *buffer }], stop)?;
        arrived(buffer);
        Ok(())
    }

    /// Whether the content is still the one that was opened, as far as that can be told without reading it. Cheap: every
    /// read of pixels asks. Behind a network every answer tells, and there is nothing to ask.
    ///
    /// # Errors
    /// When it is not.
    fn check(&self) -> Result<(), SourceError> {
        Ok(())
    }

    /// Whether the name still leads to the content that was opened. A file that was replaced stays readable as long as it
    /// is open, but a caller that opens the name again reads another.
    ///
    /// # Errors
    /// When it leads to another; a name that leads nowhere is no error.
    fn check_name(&self) -> Result<(), SourceError> {
        self.check()
    }

    /// What tells this content from another under the same name, where there is such a mark.
    fn version(&self) -> Option<String> {
        None
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
