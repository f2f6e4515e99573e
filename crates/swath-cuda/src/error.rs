//! The errors of this crate: no GPU, tiles it declines, too little memory, and calls that failed.

use thiserror::Error;

/// Why there is no GPU, or why it did not do its work.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// There is no usable GPU.
    #[error("no CUDA device: {0}")]
    Absent(String),
    /// The GPU does not decode or encode such tiles.
    #[error("{0}")]
    Declined(String),
    /// The work does not fit in the memory that it may use.
    #[error("{what} needs {required} bytes of device memory and {available} may be used{hint}")]
    Memory {
        /// The work that needs the memory.
        what: String,
        /// The least bytes it needs.
        required: u64,
        /// The bytes it may use.
        available: u64,
        /// What the user can do, appended to the message.
        hint: &'static str,
    },
    /// A call of the driver or of a library failed.
    #[error("{call}: {text}")]
    Call {
        /// The call and its arguments.
        call: String,
        /// The driver's error code, or -1 where a library failed.
        code: i32,
        /// The error as the driver or the library words it.
        text: String,
    },
    /// A caller of this crate broke its contract.
    #[error("{0}")]
    Usage(String),
    /// A broken invariant of this crate: a fault in swath itself.
    #[error("{0}")]
    Internal(String),
    /// Another error, and the stage of the work that it ended.
    #[error("{stage}: {error}")]
    During {
        /// The stage.
        stage: &'static str,
        /// The error.
        error: Box<DeviceError>,
    },
}

/// `CUDA_ERROR_OUT_OF_MEMORY`.
pub(crate) const OUT_OF_MEMORY: i32 = 2;

impl DeviceError {
    /// Whether the work might succeed with less at once.
    pub fn is_out_of_memory(&self) -> bool {
        match self {
            Self::During { error, .. } => error.is_out_of_memory(),
            _ => matches!(self, Self::Memory { .. } | Self::Call { code: OUT_OF_MEMORY, .. }),
        }
    }

    /// Whether the error is a fault in swath itself, which no other way of doing the work may hide.
    pub fn is_internal(&self) -> bool {
        match self {
            Self::During { error, .. } => error.is_internal(),
            _ => matches!(self, Self::Internal(_)),
        }
    }

    /// Adds the stage of the work that the error ended. An error that names a stage keeps it.
    pub fn during(self, stage: &'static str) -> Self {
        match self {
            Self::During { .. } => self,
            error => Self::During { stage, error: Box::new(error) },
        }
    }

    /// Returns the error of a process that was forked after the GPU was opened.
    pub fn forked() -> Self {
        Self::Absent(
            "the process was forked after the GPU was opened, and a CUDA context does not survive that; start workers with \
             `spawn`, or open the GPU in the child only"
                .into(),
        )
    }
}
