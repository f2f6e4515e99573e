//! CCITT fax: TIFF compressions 2, 3, 4 and 32771 (T.4, T.6), decoded to what libtiff 4.7 gives for the same bytes, damaged ones too.
//!
//! libtiff, and so GDAL, reads on through most damage: a bad code whitens the rest of its row, a row of the wrong length is trimmed or filled, a Group 4 strip
//! may stop early. Such a strip is `Ok` here with the same pixels, and [`FaxEnd::damage`] tells of the first fault. What GDAL refuses is an error. One thing is
//! an error here only: uncompressed mode, which libtiff does not read either but goes past as if it were damage.

mod bits;
mod codes;
mod encode;
mod row;
#[cfg(test)]
mod tests;

use std::{fmt, mem};

use bits::{Bits, Load, Order};
pub use encode::encoder;
use row::{Above, Full, Row, Stop};

use crate::memory::grow;

/// How the rows are coded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Scheme {
    /// Compression 2: one-dimensional rows that begin on bytes, without EOLs.
    Rle,
    /// Compression 32771: as [`Rle`](Scheme::Rle), rows begin on 16-bit words.
    RleWordAligned,
    /// Compression 3, with T4Options.
    Group3 {
        /// Bit 0: each row says whether it is coded against the one above.
        two_dimensional: bool,
        /// Bit 2: EOLs end on bytes. Nothing depends on it: zeros before an EOL are passed over in any case.
        byte_aligned_eol: bool,
    },
    /// Compression 3 without EOLs, which no tag tells: it is found out, see [`FaxEnd::eol_missing`].
    Group3WithoutEol {
        /// As in [`Group3`](Scheme::Group3).
        two_dimensional: bool,
    },
    /// Compression 4.
    Group4,
}

/// How far decoding came, and what was wrong on the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct FaxEnd {
    /// The rows written. Fewer than asked for only where a [`Group4`](Scheme::Group4) strip, or a tile, ends early; the rest is left as it
    /// was. GDAL does the same, and so shows zeros there in the first strip or tile it reads, but in others what the one read before left behind: nothing worth
    /// matching.
    pub rows: u32,
    /// The first fault, if GDAL would have warned of one.
    pub damage: Option<Damage>,
    /// The [`Group3`](Scheme::Group3) data ran out while looking for an EOL, so that the rows from there on were decoded from the beginning of the data as if
    /// it had none. libtiff then holds the same of every strip it decodes after this one with the same handle, which is
    /// [`Group3WithoutEol`](Scheme::Group3WithoutEol) here.
    pub eol_missing: bool,
    /// Codes led to runs above that no row of this strip wrote. libtiff then uses those of the strip decoded before, and zeros, as we do, if there was none; so
    /// the pixels are GDAL's only for the first strip that is read. No sound data do this.
    pub depends_on_earlier: bool,
}

/// A fault that libtiff reads past.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Damage {
    /// What is wrong.
    pub fault: Fault,
    /// The row it is in.
    pub row: u32,
    /// The column reached.
    pub x: u32,
}

/// What is wrong with a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// Bits that are no code word; the rest of the row is white.
    BadCode,
    /// An EOL before the row was full; the rest of the row is white.
    ShortRow,
    /// Runs beyond the end of the row, dropped.
    LongRow,
    /// The data of a Group 4 strip, or of any tile, ends in this row.
    DataEnd,
    /// An EOL or EOFB ends a Group 4 strip in this row.
    BlockEnd,
    /// Group 3 data without an EOL from here on.
    NoEol,
    /// A row of a tile with more runs than libtiff has room for; neither it nor those after it are written.
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
            Fault::NoEol => "no EOL, decoded as if there were none,",
            Fault::TooManyRuns => "more runs than the width allows",
        };
        write!(f, "CCITT: {what} in row {} at column {}", self.row, self.x)
    }
}

/// Data that GDAL does not read, or (uncompressed mode) that nobody does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FaxError {
    /// The data ends in a row, and is not Group 4 with a row done.
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
    /// A row of more runs than libtiff has room for.
    TooManyRuns {
        /// The row.
        row: u32,
    },
    /// 8192 faults of a kind, after which libtiff reads no further scanline.
    TooManyFaults {
        /// The row not read.
        row: u32,
    },
    /// The system has no memory for the runs of a row.
    NoMemory {
        /// Bytes asked for.
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
            FaxError::TooManyFaults { row } => write!(f, "CCITT: {FAULT_LIMIT} faults of a kind before row {row}"),
            FaxError::NoMemory { bytes } => write!(f, "CCITT: there is no memory for {bytes} bytes of runs"),
            FaxError::Size { width, rows, len } => {
                write!(f, "CCITT: {rows} rows of {width} pixels do not make {len} bytes")
            }
        }
    }
}

impl std::error::Error for FaxError {}

/// Memory kept from strip to strip. Any scratch fits any strip.
#[derive(Debug, Default)]
pub struct FaxScratch {
    this: Runs,
    above: Runs,
}

/// The runs of a row, and after them those that longer rows left.
#[derive(Debug, Default)]
struct Runs {
    runs: Vec<u32>,
    /// How many have been written since the strip began.
    written: usize,
}

/// Decodes a strip or tile into `dst`, `rows` rows of `width` bits each padded to a byte, first pixel in the top bit, 1 for black. Padding is 0. `lsb_first` is
/// FillOrder 2.
///
/// # Errors
///
/// As [`FaxError`] says; what `dst` then holds is of no use.
pub fn decode(
    src: &[u8],
    scheme: Scheme,
    lsb_first: bool,
    width: u32,
    rows: u32,
    dst: &mut [u8],
    scratch: &mut FaxScratch,
) -> Result<FaxEnd, FaxError> {
    Segment::new(src, scheme, lsb_first, width, rows, Ask::Strip)?.decode(dst, scratch)
}

/// As [`decode`], for a tile. libtiff takes a failure to decode a tile for success, and so what [`decode`] refuses for want of data or too many runs is
/// `Ok` here, with the rows up to there.
///
/// # Errors
///
/// [`FaxError::Uncompressed`] and [`FaxError::Size`].
pub fn decode_tile(
    src: &[u8],
    scheme: Scheme,
    lsb_first: bool,
    width: u32,
    rows: u32,
    dst: &mut [u8],
    scratch: &mut FaxScratch,
) -> Result<FaxEnd, FaxError> {
    Segment::new(src, scheme, lsb_first, width, rows, Ask::Tile)?.decode(dst, scratch)
}

/// As [`decode`], but with the rows asked for one by one, as GDAL does where the one strip of an image has more than 2000 rows. Sound data come out the same.
/// Of damaged data more is refused: a Group 4 strip that stops early, and 8192 faults of a kind. And where EOLs are missing the rows are decoded from the
/// beginning of the row, not of the strip.
///
/// # Errors
///
/// As for [`decode`].
pub fn decode_by_scanline(
    src: &[u8],
    scheme: Scheme,
    lsb_first: bool,
    width: u32,
    rows: u32,
    dst: &mut [u8],
    scratch: &mut FaxScratch,
) -> Result<FaxEnd, FaxError> {
    Segment::new(src, scheme, lsb_first, width, rows, Ask::Scanlines)?.decode(dst, scratch)
}

/// The number of faults of one kind at which libtiff refuses a further call.
const FAULT_LIMIT: u32 = 8192;

/// What libtiff is asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ask {
    Strip,
    Tile,
    Scanlines,
}

/// What the rows of a strip or tile share.
struct Segment<'a> {
    ask: Ask,
    scheme: Scheme,
    bits: Bits<'a>,
    src_len: usize,
    /// An EOL was begun by the row before and not yet ended.
    in_eol: bool,
    eol_missing: bool,
    width: u32,
    rows: u32,
    row: u32,
    damage: Option<Damage>,
    bad_codes: u32,
    bad_lengths: u32,
    blind: bool,
}

/// What came of the search for an EOL.
enum Sync {
    /// A row may follow.
    Ready,
    /// There was none.
    NoEol,
    /// There was nothing to search.
    NoData,
}

/// What a row was to the strip.
enum RowEnd {
    Done,
    /// The row a Group 4 strip ends in.
    Last,
    /// The row the data ends in.
    Cut {
        x: u32,
    },
}

impl<'a> Segment<'a> {
    fn new(
        src: &'a [u8],
        scheme: Scheme,
        lsb_first: bool,
        width: u32,
        rows: u32,
        ask: Ask,
    ) -> Result<Segment<'a>, FaxError> {
        if width == 0 || i32::try_from(width).is_err() {
            return Err(FaxError::Size { width, rows, len: 0 });
        }
        let order = if lsb_first { Order::LsbFirst } else { Order::MsbFirst };
        let load = if scheme == Scheme::RleWordAligned { Load::Bytes } else { Load::Words };
        Ok(Segment {
            ask,
            scheme,
            bits: Bits::new(src, order, load),
            src_len: src.len(),
            in_eol: false,
            eol_missing: matches!(scheme, Scheme::Group3WithoutEol { .. }),
            width,
            rows,
            row: 0,
            damage: None,
            bad_codes: 0,
            bad_lengths: 0,
            blind: false,
        })
    }

    /// The number of runs libtiff has room for in a row.
    fn run_limit(&self) -> usize {
        let one_row = (self.width as usize + 1).next_multiple_of(32);
        match self.scheme {
            Scheme::Group4
            | Scheme::Group3 { two_dimensional: true, .. }
            | Scheme::Group3WithoutEol { two_dimensional: true } => 2 * one_row,
            _ => one_row,
        }
    }

    fn decode(mut self, dst: &mut [u8], scratch: &mut FaxScratch) -> Result<FaxEnd, FaxError> {
        let row_len = self.width.div_ceil(8) as usize;
        if Some(dst.len()) != row_len.checked_mul(self.rows as usize) {
            return Err(FaxError::Size { width: self.width, rows: self.rows, len: dst.len() });
        }
        // No run takes less than a bit, so that a wide row of little data needs no room for the runs it cannot have; 64 is for those made up at the end of a
        // row.
        let room = self.run_limit().min(self.src_len.saturating_mul(8).saturating_add(64));
        for runs in [&mut scratch.this, &mut scratch.above] {
            runs.runs.truncate(room);
            let bytes = (room * size_of::<u32>()) as u64;
            grow(&mut runs.runs, room).map_err(|_| FaxError::NoMemory { bytes })?;
            runs.written = 0;
        }
        // The row above the first is white.
        if let [first, close, ..] = scratch.above.runs.as_mut_slice() {
            (*first, *close) = (self.width, 0);
            scratch.above.written = 2;
        }
        let starts_without_eol = self.eol_missing;
        let outcome = self.decode_rows(dst.chunks_exact_mut(row_len), scratch);
        match outcome {
            Ok(()) => {}
            Err(FaxError::DataEnd { x, .. }) if self.ask == Ask::Tile => self.note(Fault::DataEnd, x),
            Err(FaxError::TooManyRuns { .. }) if self.ask == Ask::Tile => self.note(Fault::TooManyRuns, 0),
            Err(error) => return Err(error),
        }
        Ok(FaxEnd {
            rows: self.row,
            damage: self.damage,
            eol_missing: self.eol_missing && !starts_without_eol,
            depends_on_earlier: self.blind,
        })
    }

    fn decode_rows<'d>(
        &mut self,
        rows: impl Iterator<Item = &'d mut [u8]>,
        scratch: &mut FaxScratch,
    ) -> Result<(), FaxError> {
        // Where the call to libtiff began: the row, and what it would go back to.
        let (mut call, mut call_bits, mut call_in_eol) = (0, self.bits, false);
        for out in rows {
            if self.ask == Ask::Scanlines && self.row > 0 {
                (call, call_bits, call_in_eol) = (self.row, self.bits, self.in_eol);
                if self.bad_codes >= FAULT_LIMIT || self.bad_lengths >= FAULT_LIMIT {
                    return Err(FaxError::TooManyFaults { row: self.row });
                }
            }
            let row = self.row;
            let end = match self.find_eol() {
                Sync::Ready => self.decode_row(out, scratch)?,
                Sync::NoEol => {
                    self.note(Fault::NoEol, 0);
                    self.eol_missing = true;
                    (self.bits, self.in_eol) = (call_bits, call_in_eol);
                    self.decode_row(out, scratch)?
                }
                Sync::NoData => {
                    out.fill(0);
                    RowEnd::Cut { x: 0 }
                }
            };
            self.row += 1;
            match end {
                RowEnd::Done => mem::swap(&mut scratch.this, &mut scratch.above),
                // libtiff lets a Group 4 strip end early if the call has got a row out of it.
                RowEnd::Last if row > call => break,
                RowEnd::Last => return Err(FaxError::DataEnd { row, x: 0 }),
                RowEnd::Cut { x } => return Err(FaxError::DataEnd { row, x }),
            }
        }
        Ok(())
    }

    /// Passes over the data up to the end of the next EOL, where rows begin with one.
    fn find_eol(&mut self) -> Sync {
        if self.eol_missing || !matches!(self.scheme, Scheme::Group3 { .. }) {
            return Sync::Ready;
        }
        let bits = &mut self.bits;
        if !self.in_eol {
            loop {
                if !bits.need(11) {
                    return Sync::NoData;
                }
                let zeros = (bits.peek(11) as u16).trailing_zeros();
                if zeros >= 11 {
                    break;
                }
                // The last 1 of the eleven bits and all before it can begin no EOL. That 1 goes by itself, so that at the end of the data zeros are made up
                // before none are left, as they are for libtiff, which goes bit by bit.
                bits.skip(10 - zeros);
                bits.need(11);
                bits.skip(1);
            }
        }
        loop {
            if !bits.need(8) {
                return Sync::NoEol;
            }
            let next = bits.peek(8) as u8;
            if next != 0 {
                bits.skip(next.leading_zeros() + 1);
                break;
            }
            bits.skip(8);
        }
        self.in_eol = false;
        Sync::Ready
    }

    fn decode_row(&mut self, out: &mut [u8], scratch: &mut FaxScratch) -> Result<RowEnd, FaxError> {
        let at = self.row;
        let full = |Full| FaxError::TooManyRuns { row: at };
        let two_dimensional = match self.scheme {
            Scheme::Rle | Scheme::RleWordAligned => false,
            Scheme::Group4 => true,
            Scheme::Group3 { two_dimensional, .. } | Scheme::Group3WithoutEol { two_dimensional } => {
                two_dimensional && {
                    if !self.bits.need(1) {
                        out.fill(0);
                        return Ok(RowEnd::Cut { x: 0 });
                    }
                    let tag = self.bits.peek(1);
                    self.bits.skip(1);
                    tag == 0
                }
            }
        };
        let mut row = Row::new(&mut scratch.this.runs, self.width as i32);
        let stop = if two_dimensional {
            let mut above =
                Above::new(scratch.above.runs.get(..scratch.above.written).unwrap_or_default(), self.run_limit());
            let stop = row.expand_2d(&mut self.bits, &mut above);
            self.blind |= above.blind();
            stop
        } else {
            row.expand_1d(&mut self.bits)
        };
        let stop = stop.map_err(full)?;
        let x = row.a0.max(0) as u32;
        let group4 = self.scheme == Scheme::Group4;
        match stop {
            Stop::Uncompressed => return Err(FaxError::Uncompressed { row: at, x }),
            Stop::DataEnd => self.note(Fault::DataEnd, x),
            Stop::BadCode | Stop::BadEol => {
                self.bad_codes += 1;
                self.note(Fault::BadCode, x);
            }
            Stop::Eol if group4 => self.note(Fault::BlockEnd, x),
            Stop::Eol | Stop::Width => {}
        }
        if row.trim().map_err(full)? {
            self.bad_lengths += 1;
            self.note(if x < self.width { Fault::ShortRow } else { Fault::LongRow }, x);
        }
        row.paint(out);
        let eol = matches!(stop, Stop::Eol | Stop::BadEol);
        if group4 && (eol || stop == Stop::DataEnd) {
            return Ok(RowEnd::Last);
        }
        if stop == Stop::DataEnd {
            return Ok(RowEnd::Cut { x });
        }
        self.in_eol |= eol;
        match self.scheme {
            Scheme::Rle => self.bits.align_to_byte(),
            Scheme::RleWordAligned => self.bits.align_to_word(),
            Scheme::Group3 { .. } | Scheme::Group3WithoutEol { .. } | Scheme::Group4 => {
                let written = match row.close() {
                    // In Group 3 libtiff lets a full array be.
                    Err(Full) if !group4 => scratch.this.runs.len(),
                    written => written.map_err(full)?,
                };
                scratch.this.written = scratch.this.written.max(written);
            }
        }
        Ok(RowEnd::Done)
    }

    fn note(&mut self, fault: Fault, x: u32) {
        self.damage.get_or_insert(Damage { fault, row: self.row, x });
    }
}
