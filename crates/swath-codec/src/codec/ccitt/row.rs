//! Decodes one row: from code words to run lengths, and from those to bits.
//!
//! A row is a list of runs, white first, as in libtiff, not of changing elements. The pixels of a damaged row depend on the order in
//! which runs are added, dropped and clipped, and on sums that may temporarily differ from the position.

use super::bits::Bits;
use super::codes::{BLACK, BLACK_BITS, Code, Kind, MODE_BITS, MODES, Mode, WHITE, WHITE_BITS};

/// The row has more runs than libtiff allocates for its width.
pub(super) struct Full;

/// Why decoding of a row stopped.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    /// The row is full, or more than full.
    Width,
    /// The beginning of an EOL.
    Eol,
    /// The beginning of an EOL without the four zeros that must follow there.
    BadEol,
    /// An invalid code, or a code that is not allowed here.
    BadCode,
    /// The escape to uncompressed mode.
    Uncompressed,
    /// No bits are left.
    DataEnd,
}

/// The row being decoded.
pub(super) struct Row<'a> {
    runs: &'a mut [u32],
    len: usize,
    /// The position reached; the sum of the runs and of `pending`.
    pub(super) a0: i32,
    /// Length that make-up codes and passes have added to the current run.
    pending: i32,
    width: i32,
}

impl<'a> Row<'a> {
    /// Starts a row. `runs` is as long as libtiff's array, or as long as the data can fill.
    pub(super) fn new(runs: &'a mut [u32], width: i32) -> Row<'a> {
        Row { runs, len: 0, a0: 0, pending: 0, width }
    }

    /// Ends the current run, `x` further on.
    #[inline(always)]
    fn push(&mut self, x: i32) -> Result<(), Full> {
        *self.runs.get_mut(self.len).ok_or(Full)? = self.pending.wrapping_add(x) as u32;
        self.len += 1;
        self.a0 = self.a0.wrapping_add(x);
        self.pending = 0;
        Ok(())
    }

    /// Extends the current run.
    #[inline(always)]
    fn extend(&mut self, x: i32) {
        self.a0 = self.a0.wrapping_add(x);
        self.pending = self.pending.wrapping_add(x);
    }

    /// Fills the rest of the row with white, whatever the list holds.
    fn push_rest(&mut self) -> Result<(), Full> {
        *self.runs.get_mut(self.len).ok_or(Full)? = self.width.wrapping_sub(self.a0) as u32;
        self.len += 1;
        Ok(())
    }

    /// Makes the runs end at the width: drops those beyond it and fills the rest with white. Returns whether the length was wrong.
    pub(super) fn trim(&mut self) -> Result<bool, Full> {
        if self.pending != 0 {
            self.push(0)?;
        }
        if self.a0 == self.width {
            return Ok(false);
        }
        while self.a0 > self.width && self.len > 0 {
            self.len -= 1;
            self.a0 = self.a0.wrapping_sub(self.runs[self.len] as i32);
        }
        if self.a0 < self.width {
            self.a0 = self.a0.max(0);
            if self.len & 1 == 1 {
                self.push(0)?;
            }
            self.push(self.width - self.a0)?;
        } else if self.a0 > self.width {
            self.push(self.width)?;
            self.push(0)?;
        }
        Ok(true)
    }

    /// Writes the row's bits, 1 for black, and clips the runs to the width, as the next row reads them.
    pub(super) fn paint(&mut self, dst: &mut [u8]) {
        dst.fill(0);
        let width = self.width as u32;
        let mut x = 0;
        for (i, run) in self.runs.iter_mut().take(self.len).enumerate() {
            if *run > width - x {
                *run = width - x;
            }
            if i & 1 == 1 {
                set_bits(dst, x as usize, *run as usize);
            }
            x += *run;
        }
    }

    /// Adds the change past the end of the row, to which codes of the next row may refer, and returns the number of runs.
    pub(super) fn close(mut self) -> Result<usize, Full> {
        self.push(0)?;
        Ok(self.len)
    }

    /// Reads one-dimensional codes.
    pub(super) fn expand_1d(&mut self, bits: &mut Bits<'_>) -> Result<Stop, Full> {
        // A local copy stays in registers.
        let mut local = *bits;
        let stop = self.expand_1d_from(&mut local);
        *bits = local;
        stop
    }

    #[inline(always)]
    fn expand_1d_from(&mut self, bits: &mut Bits<'_>) -> Result<Stop, Full> {
        loop {
            if let Some(stop) = self.run(bits, &WHITE, WHITE_BITS)? {
                return Ok(stop);
            }
            if self.a0 >= self.width {
                return Ok(Stop::Width);
            }
            if let Some(stop) = self.run(bits, &BLACK, BLACK_BITS)? {
                return Ok(stop);
            }
            if self.a0 >= self.width {
                return Ok(Stop::Width);
            }
            // libtiff drops an empty pair, so that a row of them cannot fill its array.
            if let Some(&[0, 0]) = self.runs.get(self.len - 2..self.len) {
                self.len -= 2;
            }
        }
    }

    /// Reads one run of the colour of the given table; returns why it stopped, if it did.
    #[inline(always)]
    fn run(&mut self, bits: &mut Bits<'_>, table: &[Code], width: u32) -> Result<Option<Stop>, Full> {
        loop {
            if !bits.need(width) {
                return Ok(Some(Stop::DataEnd));
            }
            let code = table[bits.peek(width)];
            bits.skip(code.width());
            if code.is_term() {
                self.push(code.term())?;
                return Ok(None);
            }
            match code.kind() {
                Kind::MakeUp => self.extend(code.make_up()),
                Kind::Eol => return Ok(Some(Stop::Eol)),
                Kind::Term | Kind::Bad => return Ok(Some(Stop::BadCode)),
            }
        }
    }

    /// Reads two-dimensional codes against the row above.
    pub(super) fn expand_2d(&mut self, bits: &mut Bits<'_>, above: &mut Above<'_>) -> Result<Stop, Full> {
        let mut local = *bits;
        let stop = self.expand_2d_from(&mut local, above);
        *bits = local;
        stop
    }

    #[inline(always)]
    fn expand_2d_from(&mut self, bits: &mut Bits<'_>, above: &mut Above<'_>) -> Result<Stop, Full> {
        while self.a0 < self.width {
            if self.len >= self.runs.len() {
                return Err(Full);
            }
            if !bits.need(MODE_BITS) {
                return Ok(Stop::DataEnd);
            }
            let code = MODES[bits.peek(MODE_BITS)];
            bits.skip(u32::from(code.width));
            match code.mode {
                Mode::Vertical(shift) => {
                    above.pass_a0(self)?;
                    let shift = i32::from(shift);
                    if shift < 0 && above.b1 < self.a0.wrapping_sub(shift) {
                        return Ok(Stop::BadCode);
                    }
                    self.push(above.b1.wrapping_sub(self.a0).wrapping_add(shift))?;
                    if shift < 0 { above.step_back() } else { above.step(self.a0 < self.width)? }
                }
                Mode::Horizontal => {
                    let black_first = self.len & 1 == 1;
                    for black in [black_first, !black_first] {
                        let stop = if black {
                            self.run(bits, &BLACK, BLACK_BITS)?
                        } else {
                            self.run(bits, &WHITE, WHITE_BITS)?
                        };
                        match stop {
                            None => {}
                            Some(Stop::DataEnd) => return Ok(Stop::DataEnd),
                            Some(_) => return Ok(Stop::BadCode),
                        }
                    }
                    above.pass_a0(self)?;
                }
                Mode::Pass => {
                    above.pass_a0(self)?;
                    above.has_pair()?;
                    above.step(true)?;
                    self.extend(above.b1.wrapping_sub(self.a0));
                    above.step(self.a0 < self.width)?;
                }
                Mode::Extension => {
                    self.push_rest()?;
                    return Ok(Stop::Uncompressed);
                }
                Mode::Eol => {
                    self.push_rest()?;
                    if !bits.need(4) {
                        return Ok(Stop::DataEnd);
                    }
                    let zeros = bits.peek(4) == 0;
                    bits.skip(4);
                    return Ok(if zeros { Stop::Eol } else { Stop::BadEol });
                }
            }
        }
        if self.pending != 0 {
            // A pass that reached the end of the row leaves its run open; a V0 may end it.
            if self.pending.wrapping_add(self.a0) < self.width {
                if !bits.need(1) {
                    return Ok(Stop::DataEnd);
                }
                if bits.peek(1) == 0 {
                    return Ok(Stop::BadCode);
                }
                bits.skip(1);
            }
            self.push(0)?;
        }
        Ok(Stop::Width)
    }
}

/// The changes of the row above.
pub(super) struct Above<'a> {
    runs: &'a [u32],
    /// The length of libtiff's array.
    limit: usize,
    /// The run that begins at b1.
    next: usize,
    /// The sum of the runs before `next`.
    b1: i32,
    /// Whether the row used runs that no row has written; see [`Above::new`].
    uses_missing_runs: bool,
}

impl<'a> Above<'a> {
    /// `runs` are the runs of the row above, followed by remains of earlier rows, which invalid codes may refer to. Invalid codes may
    /// also refer to later entries: there libtiff finds the runs of an earlier strip, or zeros for the first strip. We use zeros, and
    /// record it in `uses_missing_runs`.
    pub(super) fn new(runs: &'a [u32], limit: usize) -> Above<'a> {
        Above { runs, limit, next: 1, b1: runs.first().map_or(0, |&run| run as i32), uses_missing_runs: false }
    }

    pub(super) fn uses_missing_runs(&self) -> bool {
        self.uses_missing_runs
    }

    /// Moves b1 right of a0 by whole pairs, so that it remains a change to the same colour.
    #[inline(always)]
    fn pass_a0(&mut self, row: &Row<'_>) -> Result<(), Full> {
        if row.len != 0 {
            while self.b1 <= row.a0 && self.b1 < row.width {
                if let Some(&[this, other]) = self.runs.get(self.next..self.next + 2) {
                    self.b1 = self.b1.wrapping_add(this as i32).wrapping_add(other as i32);
                    self.next += 2;
                } else {
                    self.has_pair()?;
                    self.step(true)?;
                    self.step(true)?;
                }
            }
        }
        Ok(())
    }

    fn has_pair(&self) -> Result<(), Full> {
        if self.next + 1 < self.limit { Ok(()) } else { Err(Full) }
    }

    /// Moves b1 to the next change; `more` says whether the row continues there.
    #[inline(always)]
    fn step(&mut self, more: bool) -> Result<(), Full> {
        match self.runs.get(self.next) {
            Some(&run) => self.b1 = self.b1.wrapping_add(run as i32),
            None if self.next < self.limit => self.uses_missing_runs |= more,
            None => return Err(Full),
        }
        self.next += 1;
        Ok(())
    }

    #[inline(always)]
    fn step_back(&mut self) {
        // `next` is 0 only where b1 is 0, with no change to its left.
        if let Some(before) = self.next.checked_sub(1) {
            self.next = before;
            self.b1 = self.b1.wrapping_sub(self.runs.get(before).map_or(0, |&run| run as i32));
        }
    }
}

/// Sets `len` bits from bit `x`, counted from the top of the first byte.
#[inline]
fn set_bits(dst: &mut [u8], x: usize, len: usize) {
    if len == 0 {
        return;
    }
    let (first, last) = (x / 8, (x + len - 1) / 8);
    let (head, tail) = (0xff_u8 >> (x % 8), 0xff_u8 << (7 - (x + len - 1) % 8));
    let Some(bytes) = dst.get_mut(first..=last) else { return };
    match bytes {
        [only] => *only |= head & tail,
        [start, whole @ .., end] => {
            *start |= head;
            whole.fill(0xff);
            *end |= tail;
        }
        [] => {}
    }
}
