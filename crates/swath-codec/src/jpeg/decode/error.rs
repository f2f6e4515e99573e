//! What can be wrong with a stream: errors that stop the decoder, and damage it can carry on from.

use std::fmt;

use swath_raster::memory;

/// Why a stream cannot be decoded; offsets count from the start of the stream it was found in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum JpegError {
    /// The stream does not begin with SOI.
    NoStart,
    /// The stream ends where `what` was expected.
    Truncated {
        /// What was being read.
        what: &'static str,
        /// Where the bytes ran out.
        offset: u64,
    },
    /// A marker segment contradicts itself or the standard.
    Malformed {
        /// What is wrong.
        what: &'static str,
        /// Start of the segment.
        offset: u64,
    },
    /// A valid process or feature that this decoder does not have.
    Unsupported {
        /// Which.
        what: &'static str,
        /// Start of the segment that asks for it.
        offset: u64,
    },
    /// A scan names a table that neither it nor the shared tables define.
    MissingTable {
        /// `quantisation`, `DC Huffman` or `AC Huffman`.
        kind: &'static str,
        /// Table slot, 0 to 3.
        slot: u8,
        /// Start of the scan header.
        offset: u64,
    },
    /// The frame is larger than the caller allows.
    TooLarge {
        /// Frame width.
        width: u32,
        /// Frame height.
        height: u32,
        /// The caller's limit.
        max_pixels: u64,
    },
    /// More scans than [`super::MAX_SCANS`].
    TooManyScans {
        /// Start of the scan header over the limit.
        offset: u64,
    },
    /// The destination does not fit the frame.
    Destination {
        /// Bytes the frame needs at the given stride.
        need: u64,
        /// Bytes given.
        have: u64,
    },
    /// The system has no memory for the frame.
    NoMemory {
        /// Bytes that the stream needs.
        bytes: u64,
    },
    /// Colour conversion was requested for a frame that does not have three components.
    Components {
        /// Components in the frame.
        have: u8,
    },
}

impl fmt::Display for JpegError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NoStart => write!(f, "JPEG stream does not begin with SOI"),
            Self::Truncated { what, offset } => write!(f, "JPEG byte {offset}: stream ends in {what}"),
            Self::Malformed { what, offset } => write!(f, "JPEG byte {offset}: {what}"),
            Self::Unsupported { what, offset } => write!(f, "JPEG byte {offset}: {what} is not supported"),
            Self::MissingTable { kind, slot, offset } => {
                write!(f, "JPEG byte {offset}: scan uses {kind} table {slot}, which is not defined")
            }
            Self::TooLarge { width, height, max_pixels } => {
                write!(f, "JPEG frame of {width} x {height} is over the limit of {max_pixels} pixels")
            }
            Self::TooManyScans { offset } => {
                write!(f, "JPEG byte {offset}: more than {} scans", super::MAX_SCANS)
            }
            Self::Destination { need, have } => {
                write!(f, "JPEG frame needs {need} bytes of destination, {have} given")
            }
            Self::NoMemory { bytes } => write!(f, "there is no memory for {bytes} bytes of a JPEG frame"),
            Self::Components { have } => {
                write!(f, "JPEG frame has {have} components; YCbCr conversion needs 3")
            }
        }
    }
}

impl std::error::Error for JpegError {}

/// Appends zeros until `values` has `len` values, if the system has memory for them.
pub(super) fn grow<T: Clone + Default>(values: &mut Vec<T>, len: usize) -> Result<(), JpegError> {
    memory::grow(values, len).map_err(|_| JpegError::NoMemory { bytes: len as u64 * size_of::<T>() as u64 })
}

/// Moves a value to the heap, if the system has memory for it.
pub(super) fn boxed<T>(value: T) -> Result<Box<[T; 1]>, JpegError> {
    memory::boxed(value).map_err(|error| JpegError::NoMemory { bytes: error.bytes })
}

/// A fault in the entropy-coded data that libjpeg warns of and carries on from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Damage {
    /// What was found.
    pub fault: Fault,
    /// Approximate offset in the stream: the end of the restart segment or scan with the fault.
    pub offset: u64,
}

/// Kinds of [`Damage`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The data ended, or a marker came, before the scan was complete; the rest of the segment is grey.
    Truncated,
    /// Bits that are not a code of the Huffman table (decoded as symbol 0), or a run of zeros that ends past its block, for which
    /// libjpeg has no warning.
    BadCode,
    /// The expected restart marker is missing or out of turn.
    MissingRestart,
    /// A component of the frame has no scan; it is grey.
    MissingScan,
    /// The data after an intact scan cannot be read; the image shows the scans before it.
    BadTrailer,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.fault {
            Fault::Truncated => "entropy-coded data ends early",
            Fault::BadCode => "invalid Huffman code or run of zeros",
            Fault::MissingRestart => "restart marker missing or out of turn",
            Fault::MissingScan => "a component has no scan",
            Fault::BadTrailer => "unreadable data after a scan",
        };
        write!(f, "JPEG byte {}: {what}", self.offset)
    }
}
