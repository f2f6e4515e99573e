//! What goes wrong behind a network, as far as a caller can act on it.

/// Why a server or store did not give or take the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RemoteFault {
    /// There is no such object, bucket or host.
    Missing,
    /// The server wants other credentials, or none would do.
    Denied,
    /// The object, or the file of this machine, is not the one that was opened.
    Changed,
    /// The address may not be asked: a private one, a redirect that leads astray, a scheme that is not served.
    Forbidden,
    /// More bytes or requests than the caller allowed.
    Budget,
    /// The server's answer does not fit the request: other ranges, other lengths, an encoding.
    Protocol,
    /// The server could not be reached, or failed again and again.
    Unavailable,
    /// It took longer than the caller allowed.
    TimedOut,
    /// The caller stopped it.
    Cancelled,
    /// The address or the settings cannot be used.
    Setup,
}

impl RemoteFault {
    /// The kind of I/O error that is nearest.
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
