//! What can go wrong on the way to a device and on it.

use thiserror::Error;

/// Why there is no GPU, or why it did not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// There is no usable GPU.
    #[error("no CUDA device: {0}")]
    Absent(String),
    /// The device does not take tiles of this kind.
    #[error("{0}")]
    Declined(String),
    /// The work does not fit in the memory it may use.
    #[error("{what} needs {required} bytes of device memory and {available} may be used{hint}")]
    Memory {
        /// What needs it.
        what: String,
        /// Bytes it needs at least.
        required: u64,
        /// Bytes it may use.
        available: u64,
        /// What to do.
        hint: &'static str,
    },
    /// A call of the driver or of a library failed.
    #[error("{call}: {text}")]
    Call {
        /// The call, with what it was asked.
        call: String,
        /// The driver's number for the failure.
        code: i32,
        /// The driver's words for it.
        text: String,
    },
    /// A caller of this crate asked for what cannot be.
    #[error("{0}")]
    Usage(String),
    /// Any of these, at some stage of the work.
    #[error("{stage}: {error}")]
    During {
        /// What was being done.
        stage: &'static str,
        /// What went wrong.
        error: Box<DeviceError>,
    },
}

/// `CUDA_ERROR_OUT_OF_MEMORY`.
const OUT_OF_MEMORY: i32 = 2;

impl DeviceError {
    /// Whether less work at once might succeed.
    pub fn is_out_of_memory(&self) -> bool {
        match self {
            Self::During { error, .. } => error.is_out_of_memory(),
            _ => matches!(self, Self::Memory { .. } | Self::Call { code: OUT_OF_MEMORY, .. }),
        }
    }

    /// The same, with the stage of the work that it came at. The innermost stage stays.
    pub fn during(self, stage: &'static str) -> Self {
        match self {
            Self::During { .. } => self,
            error => Self::During { stage, error: Box::new(error) },
        }
    }

    /// What a process meets that was forked after the GPU was opened.
    pub fn forked() -> Self {
        Self::Absent(
            "the process was forked after the GPU was opened, and a CUDA context does not survive that; start workers with \
             `spawn`, or open the GPU in the child only"
                .into(),
        )
    }
}
