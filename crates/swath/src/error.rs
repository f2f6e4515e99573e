//! The one error users meet.

use std::{fmt, sync::Arc};

use swath_codec::CodecError;
use swath_cuda::DeviceError;
use swath_io::{RemoteFault, SinkError, SourceError};
use swath_tiff::{Place, TiffError};

/// What went wrong, and where: `scene.tif: IFD 2, tile (14, 3), byte 1048832: LZW: …`.
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
    /// The caller asked for something the file does not have.
    #[error("{0}")]
    Usage(String),
    /// The bytes could not be had.
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
    /// The caller cancelled the read.
    #[error("cancelled")]
    Cancelled,
}

impl Error {
    /// An error without a place.
    pub fn new(kind: ErrorKind) -> Self {
        Self { kind: Box::new(kind), place: Place::default(), limit: None }
    }

    pub(crate) fn usage(detail: impl Into<String>) -> Self {
        Self::new(ErrorKind::Usage(detail.into()))
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

    /// The field of [`Limits`](swath_tiff::Limits) that stands in the way, where one does; `max_memory` for that of a write.
    pub fn limit(&self) -> Option<&'static str> {
        self.limit
    }

    /// The message of an interface of its own: `advice` says, for what [`limit`](Self::limit) gives, what a caller of that
    /// interface gives to lift it.
    pub fn told(&self, advice: impl FnOnce(&'static str) -> Option<String>) -> String {
        let advice = self.limit.and_then(advice).map(|advice| format!(" ({advice})")).unwrap_or_default();
        if self.place.is_empty() {
            format!("{}{advice}", self.kind)
        } else {
            format!("{}: {}{advice}", self.place, self.kind)
        }
    }

    pub(crate) fn over(limit: &'static str, detail: impl Into<String>) -> Self {
        Self { limit: Some(limit), ..Self::new(ErrorKind::Limit(detail.into())) }
    }

    /// Whether a GPU is at fault, not the file.
    pub(crate) fn is_device(&self) -> bool {
        matches!(*self.kind, ErrorKind::Device(_))
    }

    /// Whether it is a GPU, or memory that only a GPU asks for, that stands in the way.
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
        f.write_str(&self.told(|field| {
            Some(match field {
                "max_memory" => "or raise max_memory".to_owned(),
                field => format!("raise Limits::{field} to read it"),
            })
        }))
    }
}

// The message already says everything the inner error says, so there is no `source` to repeat it.
impl std::error::Error for Error {}

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
            error => Self::new(ErrorKind::Source(error)),
        }
    }
}

impl From<SinkError> for Error {
    fn from(error: SinkError) -> Self {
        match error {
            SinkError::Remote { fault: RemoteFault::Cancelled, .. } => Self::new(ErrorKind::Cancelled),
            error => Self::new(ErrorKind::Sink(error)),
        }
    }
}

impl From<DeviceError> for Error {
    fn from(error: DeviceError) -> Self {
        Self::new(ErrorKind::Device(error))
    }
}

impl From<CodecError> for Error {
    fn from(error: CodecError) -> Self {
        match error {
            // What a codec takes for itself counts as what its tile becomes.
            CodecError::Limit { .. } | CodecError::OverLimit { .. } => Self::over("expansion", error.to_string()),
            error => Self::new(ErrorKind::Codec(error)),
        }
    }
}
