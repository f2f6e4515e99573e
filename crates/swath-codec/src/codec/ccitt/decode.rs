//! Decodes strips and tiles of fax rows as libtiff does, damaged ones included.

use std::mem;

use swath_raster::memory::grow;

use super::{
    Damage, Fault, FaxEnd, FaxError, Scheme,
    bits::{Bits, Load, Order},
    damage::FAULT_LIMIT,
    row::{Above, Full, Row, Stop},
};

/// Working memory, reusable for any strip.
#[derive(Debug, Default)]
pub struct FaxScratch {
    pub(super) this: Runs,
    above: Runs,
}

/// The runs of a row, followed by remains of longer rows.
#[derive(Debug, Default)]
pub(super) struct Runs {
    pub(super) runs: Vec<u32>,
    /// Number of runs written since the start of the strip.
    written: usize,
}

/// Decodes a strip into `dst`: `rows` rows of `width` bits, each padded with zeros to a byte, with the first pixel in the top bit
/// and 1 for black. `lsb_first` is FillOrder 2.
///
/// # Errors
///
/// See [`FaxError`]; the content of `dst` is then unspecified.
pub fn decode(
    src: &[u8],
    scheme: Scheme,
    lsb_first: bool,
    width: u32,
    rows: u32,
    dst: &mut [u8],
    scratch: &mut FaxScratch,
) -> Result<FaxEnd, FaxError> {
    Segment::new(src, scheme, lsb_first, width, rows, LibtiffCall::Strip)?.decode(dst, scratch)
}

/// Decodes a tile. libtiff treats a failure to decode a tile as success, so missing data and too many runs, which [`decode`] rejects,
/// are `Ok` here, with the rows up to there.
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
    Segment::new(src, scheme, lsb_first, width, rows, LibtiffCall::Tile)?.decode(dst, scratch)
}

/// Decodes a strip row by row, as GDAL does where the only strip of an image has more than 2000 rows. Valid data decode to the same
/// pixels. More damage is rejected: a Group 4 strip that stops early, and 8192 faults of one kind. Where EOLs are missing, rows are
/// decoded from the beginning of the row, not of the strip.
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
    Segment::new(src, scheme, lsb_first, width, rows, LibtiffCall::Scanlines)?.decode(dst, scratch)
}
/// The libtiff call to imitate.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LibtiffCall {
    Strip,
    Tile,
    Scanlines,
}

/// The state of decoding a strip or tile.
struct Segment<'a> {
    call: LibtiffCall,
    scheme: Scheme,
    bits: Bits<'a>,
    src_len: usize,
    /// The previous row consumed the beginning of an EOL.
    in_eol: bool,
    eol_missing: bool,
    width: u32,
    rows: u32,
    row: u32,
    damage: Option<Damage>,
    bad_codes: u32,
    bad_lengths: u32,
    uses_missing_runs: bool,
}

/// The result of the search for an EOL.
enum Sync {
    /// A row may follow.
    Ready,
    /// The data has no EOL.
    NoEol,
    /// No data is left.
    NoData,
}

/// How a row ended.
enum RowEnd {
    Done,
    /// A Group 4 strip ends in this row.
    Last,
    /// The data ends in this row.
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
        call: LibtiffCall,
    ) -> Result<Segment<'a>, FaxError> {
        if width == 0 || i32::try_from(width).is_err() {
            return Err(FaxError::Size { width, rows, len: 0 });
        }
        let order = if lsb_first { Order::LsbFirst } else { Order::MsbFirst };
        let load = if scheme == Scheme::RleWordAligned { Load::Bytes } else { Load::Words };
        Ok(Segment {
            call,
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
            uses_missing_runs: false,
        })
    }

    /// Returns the number of runs that libtiff allocates for a row.
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
        // A run takes at least a bit, so little data needs little room even for wide rows; 64 more are for runs invented at the end
        // of a row.
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
            Err(FaxError::DataEnd { x, .. }) if self.call == LibtiffCall::Tile => self.record(Fault::DataEnd, x),
            Err(FaxError::TooManyRuns { .. }) if self.call == LibtiffCall::Tile => self.record(Fault::TooManyRuns, 0),
            Err(error) => return Err(error),
        }
        Ok(FaxEnd {
            rows: self.row,
            damage: self.damage,
            eol_missing: self.eol_missing && !starts_without_eol,
            depends_on_earlier: self.uses_missing_runs,
        })
    }

    fn decode_rows<'d>(
        &mut self,
        rows: impl Iterator<Item = &'d mut [u8]>,
        scratch: &mut FaxScratch,
    ) -> Result<(), FaxError> {
        // The row and the state at the start of the libtiff call, to which it would return.
        let (mut call_row, mut call_bits, mut call_in_eol) = (0, self.bits, false);
        for out in rows {
            if self.call == LibtiffCall::Scanlines && self.row > 0 {
                (call_row, call_bits, call_in_eol) = (self.row, self.bits, self.in_eol);
                if self.bad_codes >= FAULT_LIMIT || self.bad_lengths >= FAULT_LIMIT {
                    return Err(FaxError::TooManyFaults { row: self.row });
                }
            }
            let row = self.row;
            let end = match self.find_eol() {
                Sync::Ready => self.decode_row(out, scratch)?,
                Sync::NoEol => {
                    self.record(Fault::NoEol, 0);
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
                // libtiff lets a Group 4 strip end early if the call has decoded a row.
                RowEnd::Last if row > call_row => break,
                RowEnd::Last => return Err(FaxError::DataEnd { row, x: 0 }),
                RowEnd::Cut { x } => return Err(FaxError::DataEnd { row, x }),
            }
        }
        Ok(())
    }

    /// Skips to the end of the next EOL, where rows begin with one.
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
                // No EOL can begin at or before the last 1 of the eleven bits. That 1 is skipped separately, so that padding zeros
                // appear at the end of the data as they do for libtiff, which goes bit by bit.
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
            self.uses_missing_runs |= above.uses_missing_runs();
            stop
        } else {
            row.expand_1d(&mut self.bits)
        };
        let stop = stop.map_err(full)?;
        let x = row.a0.max(0) as u32;
        let group4 = self.scheme == Scheme::Group4;
        match stop {
            Stop::Uncompressed => return Err(FaxError::Uncompressed { row: at, x }),
            Stop::DataEnd => self.record(Fault::DataEnd, x),
            Stop::BadCode | Stop::BadEol => {
                self.bad_codes += 1;
                self.record(Fault::BadCode, x);
            }
            Stop::Eol if group4 => self.record(Fault::BlockEnd, x),
            Stop::Eol | Stop::Width => {}
        }
        if row.trim().map_err(full)? {
            self.bad_lengths += 1;
            self.record(if x < self.width { Fault::ShortRow } else { Fault::LongRow }, x);
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
                    // In Group 3 libtiff accepts a full array.
                    Err(Full) if !group4 => scratch.this.runs.len(),
                    written => written.map_err(full)?,
                };
                scratch.this.written = scratch.this.written.max(written);
            }
        }
        Ok(RowEnd::Done)
    }

    fn record(&mut self, fault: Fault, x: u32) {
        self.damage.get_or_insert(Damage { fault, row: self.row, x });
    }
}
