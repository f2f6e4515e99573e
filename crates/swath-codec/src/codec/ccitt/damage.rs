//! Faults of fax data: those that libtiff tolerates, and those that it rejects.

use std::fmt;

/// The number of faults of one kind after which libtiff rejects further calls.
pub(super) const FAULT_LIMIT: u32 = 8192;

/// How far decoding came, and the faults on the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct FaxEnd {
    /// The number of rows written. It is smaller than requested only where a [`Group4`](super::Scheme::Group4) strip, or a tile, ends
    /// early; the remaining rows are unchanged. GDAL does not write them either: it shows zeros there in the first strip or tile that
    /// it reads, and remains of the previous one in others, which is not worth matching.
    pub rows: u32,
    /// The first fault that GDAL would warn of.
    pub damage: Option<Damage>,
    /// Whether the [`Group3`](super::Scheme::Group3) data ended in the search for an EOL. The rows from there on were then decoded from
    /// the beginning of the data as if it had no EOLs. libtiff assumes the same for every later strip of the same handle, which is
    /// [`Group3WithoutEol`](super::Scheme::Group3WithoutEol) here.
    pub eol_missing: bool,
    /// Whether codes referred to runs that no row of this strip wrote. libtiff then uses the runs of the previous strip, or zeros, as
    /// we do, for the first strip; so the pixels match GDAL's only for the first strip. Valid data never do this.
    pub depends_on_earlier: bool,
}

/// A fault that libtiff tolerates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Damage {
    /// What is wrong.
    pub fault: Fault,
    /// The row of the fault.
    pub row: u32,
    /// The column reached.
    pub x: u32,
}

/// What is wrong with a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// An invalid code word; the rest of the row is white.
    BadCode,
    /// An EOL before the row was full; the rest of the row is white.
    ShortRow,
    /// Runs beyond the end of the row, dropped.
    LongRow,
    /// The data of a Group 4 strip, or of any tile, ends in this row.
    DataEnd,
    /// An EOL or EOFB ends a Group 4 strip in this row.
    BlockEnd,
    /// Group 3 data has no EOL from here on.
    NoEol,
    /// A row of a tile has more runs than libtiff allocates; neither it nor the rows after it are written.
    TooManyRuns,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.fault {
            Fault::BadCode => "bad code word",
            Fault::ShortRow => "premature EOL",
            Fault::LongRow => "runs beyond the end of the row",
            Fault::DataEnd => "premature end of the data",
            Fault::BlockEnd => "premature end of block",
            Fault::NoEol => "missing EOL, decoded as data without EOLs,",
            Fault::TooManyRuns => "more runs than the width allows",
        };
        write!(f, "CCITT: {what} in row {} at column {}", self.row, self.x)
    }
}

/// Data that GDAL rejects, or uncompressed mode, which no reader decodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FaxError {
    /// The data ends within a row, and is not Group 4 after at least one row.
    DataEnd {
        /// The row.
        row: u32,
        /// The column reached.
        x: u32,
    },
    /// The escape to uncompressed mode.
    Uncompressed {
        /// The row.
        row: u32,
        /// The column reached.
        x: u32,
    },
    /// A row has more runs than libtiff allocates.
    TooManyRuns {
        /// The row.
        row: u32,
    },
    /// 8192 faults of one kind, after which libtiff reads no further scanline.
    TooManyFaults {
        /// The row not read.
        row: u32,
    },
    /// The system has no memory for the runs of a row.
    NoMemory {
        /// Bytes needed.
        bytes: u64,
    },
    /// The width is zero or above `i32::MAX`, or `dst` is not `rows` rows of it.
    Size {
        /// The width.
        width: u32,
        /// The rows.
        rows: u32,
        /// The length of `dst`.
        len: usize,
    },
}

impl fmt::Display for FaxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            FaxError::DataEnd { row, x } => write!(f, "CCITT: data ends in row {row} at column {x}"),
            FaxError::Uncompressed { row, x } => {
                write!(f, "CCITT: uncompressed mode in row {row} at column {x} is not supported")
            }
            FaxError::TooManyRuns { row } => write!(f, "CCITT: row {row} has more runs than its width allows"),
            FaxError::TooManyFaults { row } => write!(f, "CCITT: {FAULT_LIMIT} faults of one kind before row {row}"),
            FaxError::NoMemory { bytes } => write!(f, "CCITT: there is no memory for {bytes} bytes of runs"),
            FaxError::Size { width, rows, len } => {
                write!(f, "CCITT: {rows} rows of {width} pixels do not make {len} bytes")
            }
        }
    }
}

impl std::error::Error for FaxError {}
