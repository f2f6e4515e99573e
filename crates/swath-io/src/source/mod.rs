//! The trait of everything that bytes are read from.

use std::{fmt, io};

use crate::{coalesce::Merge, fault::RemoteFault, traffic::Traffic};

pub mod file;
pub mod memory;

/// Why a source could not deliver the bytes.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// The operating system reported an error.
    #[error("{action}: {source}")]
    Io {
        /// The action that failed.
        action: String,
        /// The system's error.
        source: io::Error,
    },
    /// The range ends beyond the source: the source has become shorter since it was opened, or the caller's range is wrong.
    #[error("{len} bytes at offset {offset} are beyond the end ({size} bytes)")]
    BeyondEnd {
        /// First byte of the range.
        offset: u64,
        /// Length of the range.
        len: u64,
        /// Size of the source.
        size: u64,
    },
    /// A server or store did not deliver the bytes, or a local file is not the one that was opened.
    #[error("{detail}")]
    Remote {
        /// The kind of failure.
        fault: RemoteFault,
        /// What happened, in a sentence for the user.
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

    /// The operating system's error number, if there is one.
    pub fn os_error(&self) -> Option<i32> {
        match self {
            Self::Io { source, .. } => source.raw_os_error(),
            Self::BeyondEnd { .. } | Self::Remote { .. } => None,
        }
    }
}

/// One range to read, and the buffer for it.
#[derive(Debug)]
pub struct ReadInto<'a> {
    /// First byte.
    pub offset: u64,
    /// Filled completely, or the read fails.
    pub buffer: &'a mut [u8],
}

/// How a source is best read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    /// Which ranges to merge into one read.
    pub merge: Merge,
    /// How many reads to have in flight; 1 where a read is as fast as memory.
    pub in_flight: usize,
    /// Least number of bytes to read where a parser needs few.
    pub prefetch: u64,
}

impl Access {
    /// A local file, where another read costs little.
    pub const LOCAL: Self =
        Self { merge: Merge { gap: 16 << 10, max_len: 512 << 10, waste: 100 }, in_flight: 1, prefetch: 16 << 10 };
    /// A remote file, where every request waits for its response.
    pub const REMOTE: Self =
        Self { merge: Merge { gap: 64 << 10, max_len: 8 << 20, waste: 10 }, in_flight: 16, prefetch: 32 << 10 };

    /// Whether reads mostly wait.
    pub fn is_remote(&self) -> bool {
        self.in_flight > 1
    }
}

/// Something of known size that many threads can read at once, at any offset.
pub trait Source: fmt::Debug + Send + Sync {
    /// Name for messages.
    fn name(&self) -> &str;

    /// Size in bytes.
    ///
    /// # Errors
    /// When it cannot be determined.
    fn size(&self) -> Result<u64, SourceError>;

    /// Fills every buffer or fails. The caller has merged neighbouring ranges (see [`crate::coalesce`]).
    ///
    /// # Errors
    /// When a range cannot be read completely.
    fn read_many(&self, reads: &mut [ReadInto<'_>]) -> Result<(), SourceError>;

    /// Fills one buffer or fails.
    ///
    /// # Errors
    /// When the range cannot be read completely.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), SourceError> {
        self.read_many(&mut [ReadInto { offset, buffer }])
    }

    /// As [`Source::read_many`], but stops soon after `stop` returns true.
    ///
    /// # Errors
    /// As [`Source::read_many`], and when it is stopped.
    fn read_many_unless(
        &self,
        reads: &mut [ReadInto<'_>],
        _stop: &(dyn Fn() -> bool + Sync),
    ) -> Result<(), SourceError> {
        self.read_many(reads)
    }

    /// Fills one buffer. Calls `arrived` with the filled part as bytes arrive, so that work on the first bytes need not wait for the
    /// last.
    ///
    /// # Errors
    /// As [`Source::read_many_unless`]; the caller must then discard the bytes that `arrived` got.
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

    /// Checks that the content is still the one that was opened, as far as possible without reading it. Must be cheap, since every
    /// read of pixels calls it. Remote sources check every response instead.
    ///
    /// # Errors
    /// When the content has changed.
    fn check(&self) -> Result<(), SourceError> {
        Ok(())
    }

    /// Checks that the name still refers to the content that was opened. A replaced file stays readable while it is open, but a
    /// caller that opens the name again reads another file.
    ///
    /// # Errors
    /// When the name refers to another file. A name that no longer exists is not an error.
    fn check_name(&self) -> Result<(), SourceError> {
        self.check()
    }

    /// A mark that distinguishes this content from others under the same name, if there is one.
    fn version(&self) -> Option<String> {
        None
    }

    /// How the source is best read.
    fn access(&self) -> Access {
        Access::LOCAL
    }

    /// The network traffic so far; `None` for local sources.
    fn traffic(&self) -> Option<Traffic> {
        None
    }

    /// Lets a device read the file itself; `None` is always correct.
    fn as_file(&self) -> Option<&std::fs::File> {
        None
    }
}
