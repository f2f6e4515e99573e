//! The kinds of remote failure that a caller can act on.

/// Why a server or store did not deliver or accept the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RemoteFault {
    /// There is no such object, bucket or host.
    Missing,
    /// The credentials are missing, wrong or not sufficient.
    Denied,
    /// The object, or local file, is not the one that was opened.
    Changed,
    /// The address is not allowed: it is private, or reached by a forbidden redirect, or has an unsupported scheme.
    Forbidden,
    /// More bytes or requests are needed than the caller allows.
    Budget,
    /// The server's response does not fit the request: another range, another length, an encoding.
    Protocol,
    /// The server could not be reached, or failed repeatedly.
    Unavailable,
    /// The request took longer than the caller allowed.
    TimedOut,
    /// The caller stopped it.
    Cancelled,
    /// The address or the settings cannot be used.
    Setup,
}

impl RemoteFault {
    /// The most similar kind of I/O error.
    pub fn io_kind(self) -> std::io::ErrorKind {
        use std::io::ErrorKind as Io;
        match self {
            Self::Missing => Io::NotFound,
            Self::Denied | Self::Forbidden => Io::PermissionDenied,
            Self::Changed | Self::Protocol => Io::InvalidData,
            Self::Budget => Io::QuotaExceeded,
            Self::Unavailable => Io::ConnectionAborted,
            Self::TimedOut => Io::TimedOut,
            Self::Cancelled => Io::Interrupted,
            Self::Setup => Io::InvalidInput,
        }
    }
}
