//! The error of sinks.

use std::io;

use crate::fault::RemoteFault;

/// Why a sink could not write the bytes.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SinkError {
    /// The operating system reported an error.
    #[error("{action}: {source}")]
    Io {
        /// The action that failed.
        action: String,
        /// The system's error.
        source: io::Error,
    },
    /// A store did not accept the bytes.
    #[error("{detail}")]
    Remote {
        /// The kind of failure.
        fault: RemoteFault,
        /// What happened, in a sentence for the user.
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

    /// The operating system's error number, if there is one.
    pub fn os_error(&self) -> Option<i32> {
        match self {
            Self::Io { source, .. } => source.raw_os_error(),
            Self::Remote { .. } => None,
        }
    }
}
