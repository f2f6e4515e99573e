//! The one error type of the crate.

use std::{fmt, io, sync::Arc};

use swath_codec::CodecError;
use swath_cuda::DeviceError;
use swath_io::{RemoteFault, SinkError, SourceError};
use swath_raster::memory::OutOfMemory;
use swath_tiff::{Place, TiffError};

/// What went wrong, and where: `scene.tif: IFD 2, tile (14, 3), byte 1048832: LZW: …`.
///
/// ```
/// use swath::{Dataset, ErrorKind};
///
/// let error = Dataset::open("no/such/file.tif").unwrap_err();
/// assert!(matches!(error.kind(), ErrorKind::Source(_)));
/// assert_eq!(error.place().source.as_deref(), Some("no/such/file.tif"));
/// assert_eq!(error.place().tile, None);
/// ```
#[derive(Debug)]
pub struct Error {
    kind: Box<ErrorKind>,
    place: Place,
    limit: Option<&'static str>,
}

/// What went wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The file contradicts its format.
    #[error("{0}")]
    Malformed(String),
    /// The file uses something that is not supported.
    #[error("not supported: {0}")]
    Unsupported(String),
    /// The file or the caller asks for more than the limits allow.
    #[error("{0}")]
    Limit(String),
    /// The system has no memory for the request.
    #[error("{0}")]
    Memory(String),
    /// The caller made a mistake: it asked for something the file does not have, or gave values that do not fit together.
    #[error("{0}")]
    Usage(String),
    /// The bytes could not be read.
    #[error("{0}")]
    Source(SourceError),
    /// The bytes could not be written.
    #[error("{0}")]
    Sink(SinkError),
    /// A tile could not be decoded or encoded.
    #[error("{0}")]
    Codec(CodecError),
    /// There is no GPU, it cannot do this, or it failed.
    #[error("{0}")]
    Device(DeviceError),
    /// The caller cancelled the read or the write.
    #[error("cancelled")]
    Cancelled,
    /// A broken invariant: a fault in swath itself. Please report it.
    #[error("internal error: {0}")]
    Internal(String),
}

impl Error {
    /// An error without a place.
    pub fn new(kind: ErrorKind) -> Self {
        Self { kind: Box::new(kind), place: Place::default(), limit: None }
    }

    pub(crate) fn usage(detail: impl Into<String>) -> Self {
        Self::new(ErrorKind::Usage(detail.into()))
    }

    /// A broken invariant of our own code. It must never turn into a hole in a file.
    pub(crate) fn internal(detail: impl Into<String>) -> Self {
        Self::new(ErrorKind::Internal(detail.into()))
    }

    /// Memory that the system did not give.
    pub(crate) fn memory(detail: impl Into<String>) -> Self {
        Self::new(ErrorKind::Memory(detail.into()))
    }

    /// `len` bytes of memory that the system did not give.
    pub(crate) fn no_memory(len: impl std::fmt::Display) -> Self {
        Self::memory(format!("there is no memory for {len} bytes"))
    }

    pub(crate) fn malformed(detail: impl Into<String>) -> Self {
        Self::new(ErrorKind::Malformed(detail.into()))
    }

    /// What went wrong.
    pub fn kind(&self) -> &ErrorKind {
        &self.kind
    }

    /// Where it went wrong.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// The field of [`Limits`](swath_tiff::Limits) that was exceeded, if one was; `max_memory` for the memory limit of a write.
    pub fn limit(&self) -> Option<&'static str> {
        self.limit
    }

    /// Returns the message for another interface, such as Python's: `advice` says how a caller of that interface raises the
    /// given [`limit`](Self::limit).
    pub fn message_with(&self, advice: impl FnOnce(&'static str) -> Option<String>) -> String {
        let advice = self.limit.and_then(advice).map(|advice| format!(" ({advice})")).unwrap_or_default();
        if self.place.is_empty() {
            format!("{}{advice}", self.kind)
        } else {
            format!("{}: {}{advice}", self.place, self.kind)
        }
    }

    /// An error about a limit that was exceeded; `limit` is its name, as [`Error::limit`] returns it.
    pub(crate) fn over(limit: &'static str, detail: impl Into<String>) -> Self {
        Self { limit: Some(limit), ..Self::new(ErrorKind::Limit(detail.into())) }
    }

    /// Whether a GPU caused the error, not the file.
    pub(crate) fn is_device(&self) -> bool {
        matches!(*self.kind, ErrorKind::Device(_))
    }

    /// Whether a GPU caused the error, or a memory limit that the CPU's write may not exceed.
    pub(crate) fn is_about_device(&self) -> bool {
        matches!(*self.kind, ErrorKind::Device(_) | ErrorKind::Limit(_))
    }

    /// Adds what an outer layer knows about the place.
    pub(crate) fn at(mut self, outer: &Place) -> Self {
        self.place = std::mem::take(&mut self.place).or(outer);
        self
    }

    pub(crate) fn in_source(self, source: &Arc<str>) -> Self {
        self.at(&Place { source: Some(source.clone()), ..Place::default() })
    }

    pub(crate) fn in_ifd(self, ifd: u32) -> Self {
        self.at(&Place { ifd: Some(ifd), ..Place::default() })
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message_with(|field| {
            Some(match field {
                "max_memory" => "or raise max_memory".to_owned(),
                field => format!("raise Limits::{field} to read it"),
            })
        }))
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &*self.kind {
            ErrorKind::Source(error) => Some(error),
            ErrorKind::Sink(error) => Some(error),
            ErrorKind::Codec(error) => Some(error),
            ErrorKind::Device(error) => Some(error),
            _ => None,
        }
    }
}

impl From<TiffError> for Error {
    fn from(error: TiffError) -> Self {
        let place = error.place().clone();
        let limit = if let TiffError::Limit { field, .. } = &error { Some(*field) } else { None };
        let kind = match &error {
            TiffError::Unsupported { detail, .. } => ErrorKind::Unsupported(detail.clone()),
            TiffError::Limit { .. } => ErrorKind::Limit(error.to_string()),
            _ => ErrorKind::Malformed(error.to_string()),
        };
        Self { kind: Box::new(kind), place, limit }
    }
}

impl From<SourceError> for Error {
    fn from(error: SourceError) -> Self {
        match error {
            SourceError::Remote { fault: RemoteFault::Cancelled, .. } => Self::new(ErrorKind::Cancelled),
            error if error.io_kind() == Some(io::ErrorKind::OutOfMemory) => Self::memory(error.to_string()),
            error => Self::new(ErrorKind::Source(error)),
        }
    }
}

impl From<SinkError> for Error {
    fn from(error: SinkError) -> Self {
        match error {
            SinkError::Remote { fault: RemoteFault::Cancelled, .. } => Self::new(ErrorKind::Cancelled),
            error if error.io_kind() == io::ErrorKind::OutOfMemory => Self::memory(error.to_string()),
            error => Self::new(ErrorKind::Sink(error)),
        }
    }
}

impl From<DeviceError> for Error {
    fn from(error: DeviceError) -> Self {
        // Otherwise the CPU would take over and hide the fault.
        if error.is_internal() {
            return Self::internal(error.to_string());
        }
        Self::new(ErrorKind::Device(error))
    }
}

impl From<OutOfMemory> for Error {
    fn from(error: OutOfMemory) -> Self {
        Self::no_memory(error.bytes)
    }
}

impl From<CodecError> for Error {
    fn from(error: CodecError) -> Self {
        match error {
            // A codec's own memory counts like the decoded bytes of its tile.
            CodecError::Limit { .. } | CodecError::OverLimit { .. } => Self::over("expansion", error.to_string()),
            CodecError::NoMemory(_) | CodecError::LibraryMemory { .. } => Self::memory(error.to_string()),
            error => Self::new(ErrorKind::Codec(error)),
        }
    }
}
