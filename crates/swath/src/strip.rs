//! Windows of a large strip, decoded step by step: the decoder stays where a window ended, and the next one goes on there, with
//! memory for its own rows only. Where windows jump about, the strip is decoded whole and kept, if it may be; else from its start.

use std::{
    collections::BTreeSet,
    ops::Range,
    sync::{Mutex, PoisonError},
};

use swath_codec::{
    CodecError, Scratch,
    decode::{Step, Stream},
    host::Target,
    memory::Buffer,
};
use swath_io::fork::PerProcess;
use swath_tiff::{Compression, Window};

use crate::{
    error::Error,
    job::{self, Part},
    schedule::{Order, cancelled},
};

/// Bytes of the file that are read at a time.
const INPUT: usize = 256 << 10;
/// Rows that no window wants are decoded in pieces of about this size.
const SKIP: usize = 256 << 10;
/// The part of a strip that is its top.
const NEAR: u32 = 8;
/// Positions that a file keeps: threads that read it side by side go on from their own. A decoder has some megabytes of history.
const POSITIONS: usize = 4;

/// How far the windows of a file have come in its strips.
#[derive(Default)]
pub(crate) struct Positions(PerProcess<Mutex<Known>>);

#[derive(Default)]
struct Known {
    kept: Vec<Position>,
    /// Strips that were begun.
    begun: BTreeSet<Key>,
}

/// Directory and number of a strip.
type Key = (u32, u64);

impl std::fmt::Debug for Positions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Positions").finish_non_exhaustive()
    }
}

/// A decoder in the middle of a strip.
struct Position {
    key: Key,
    /// The next row.
    row: u32,
    /// The rows before it that are still there, as they are stored: neighbouring windows share rows.
    tail: Vec<u8>,
    /// The first of them.
    from: u32,
    stream: Box<dyn Stream>,
    /// What is left of the strip in the file.
    rest: Range<u64>,
    /// Bytes that were read from the file, and those of them that are done with.
    input: Vec<u8>,
    used: usize,
    ended: bool,
}

impl Positions {
    /// Whether a window from this row on is worth decoding step by step, of a strip of `rows` rows that could be kept as well: it is
    /// the first and near the top, or another has ended before it. Where windows jump about, or others are at work on the
    /// strip, it is not.
    pub(crate) fn lead_to(&self, key: Key, row: u32, rows: u32) -> bool {
        let mut known = self.0.get().lock().unwrap_or_else(PoisonError::into_inner);
        (known.begun.insert(key) && row <= rows / NEAR)
            || known.kept.iter().any(|position| position.key == key && position.from <= row)
    }

    /// The position that is nearest to a row; it is the caller's until it is given back.
    fn take(&self, key: Key, row: u32) -> Option<Position> {
        let mut known = self.0.get().lock().unwrap_or_else(PoisonError::into_inner);
        let fit = known.kept.iter().enumerate().filter(|(_, found)| found.key == key && found.from <= row);
        let near = |found: &Position| if found.row > row { u32::MAX } else { found.row };
        let nearest = fit.max_by_key(|(_, found)| near(found)).map(|(index, _)| index);
        nearest.map(|index| known.kept.remove(index))
    }

    fn give_back(&self, position: Position) {
        let mut known = self.0.get().lock().unwrap_or_else(PoisonError::into_inner);
        if known.kept.len() == POSITIONS {
            known.kept.remove(0);
        }
        known.kept.push(position);
    }
}

/// Decodes the rows of a window from the strip at `range` of `rows` rows, and puts them where they belong.
pub(crate) fn decode(
    order: &Order<'_>,
    part: &Part,
    range: &Range<u64>,
    rows: u32,
    inside: Window,
    target: &mut Target<'_>,
    scratch: &mut Scratch,
) -> Result<(), Error> {
    let key = (order.image.index, part.index);
    let mut position = match order.positions.take(key, inside.y) {
        Some(position) => position,
        None => Position::at_start(key, order, range)?,
    };
    let row_len = order.host.spec().stored_row_len();
    position.skip_to(order, inside.y, row_len)?;
    let len = inside.height as usize * row_len;
    let mut buffer = Buffer::default();
    let wanted = buffer.room(len).ok_or(CodecError::NoMemory(len as u64))?;
    position.take_rows(order, inside.y, wanted, row_len)?;
    if position.row == rows {
        position.finish(order)?;
    }
    order.positions.give_back(position);
    if let Target::Rows(out) = target {
        let inside = Window::new(inside.x, 0, inside.width, inside.height);
        order.host.place_stored(wanted, inside, &part.take, out, scratch)?;
    }
    Ok(())
}

impl Position {
    fn at_start(key: Key, order: &Order<'_>, range: &Range<u64>) -> Result<Self, Error> {
        let stream = order.host.stream().ok_or_else(|| Error::usage("this strip cannot be decoded step by step"))?;
        let (tail, input) = (Vec::new(), Vec::new());
        Ok(Self { key, row: 0, tail, from: 0, stream, rest: range.clone(), input, used: 0, ended: false })
    }

    /// Decodes the rows up to one that is wanted; there is nothing to do where that row is still there.
    fn skip_to(&mut self, order: &Order<'_>, row: u32, row_len: usize) -> Result<(), Error> {
        let step = (SKIP / row_len.max(1)).max(1) as u32;
        let mut buffer = Buffer::default();
        while self.row < row {
            if let Some(error) = cancelled(order.cancel) {
                return Err(error);
            }
            let count = step.min(row - self.row);
            let len = count as usize * row_len;
            self.fill(order, buffer.room(len).ok_or(CodecError::NoMemory(len as u64))?)?;
            self.row += count;
            (self.tail, self.from) = (Vec::new(), self.row);
        }
        Ok(())
    }

    /// The rows from `first` on: those that are still there, then those that follow.
    fn take_rows(&mut self, order: &Order<'_>, first: u32, wanted: &mut [u8], row_len: usize) -> Result<(), Error> {
        let there = self.tail.get(first.saturating_sub(self.from) as usize * row_len..).unwrap_or_default();
        let (known, new) = wanted.split_at_mut(there.len().min(wanted.len()));
        known.copy_from_slice(there.get(..known.len()).unwrap_or_default());
        if new.is_empty() {
            return Ok(());
        }
        self.fill(order, new)?;
        self.row += (new.len() / row_len.max(1)) as u32;
        (self.tail, self.from) =
            if wanted.len() > job::KEEP { (Vec::new(), self.row) } else { (wanted.to_vec(), first) };
        Ok(())
    }

    /// The next bytes of the strip.
    fn fill(&mut self, order: &Order<'_>, out: &mut [u8]) -> Result<(), Error> {
        let mut done = 0;
        while done < out.len() {
            let step = self.step(order, out.get_mut(done..).unwrap_or_default())?;
            done += step.made;
            if done < out.len() && step.made == 0 && step.read == 0 {
                let row_len = order.host.spec().stored_row_len() as u64;
                let got = u64::from(self.row) * row_len + done as u64;
                let wanted = u64::from(order.image.grid.stored_rows(0)) * row_len;
                return Err(Error::malformed(format!("the strip ends after {got} of {wanted} bytes")));
            }
        }
        Ok(())
    }

    /// Reads the stream to its end, where its checksum is, once all rows are there. It may hold more as far as a strip that is decoded
    /// whole may: a last one those rows that the image lacks, a Zstd frame anything.
    fn finish(&mut self, order: &Order<'_>) -> Result<(), Error> {
        let spec = order.host.spec();
        let lacking = if spec.one_strip { 0 } else { spec.height.saturating_sub(self.row) };
        let lacking = u64::from(lacking) * spec.stored_row_len() as u64;
        let mut surplus = 0;
        while !self.ended {
            let step = self.step(order, &mut [0; 4096])?;
            surplus += step.made as u64;
            let cut_off = !self.ended && step.read == 0 && step.made == 0;
            match (surplus > lacking, cut_off) {
                (true, _) | (_, true) if spec.compression == Compression::Zstd => return Ok(()),
                (true, _) => return Err(Error::malformed("the stream holds more bytes than the strip")),
                (_, true) => return Err(Error::malformed("the stream is cut off behind its last sample")),
                _ => {}
            }
        }
        Ok(())
    }

    fn step(&mut self, order: &Order<'_>, out: &mut [u8]) -> Result<Step, Error> {
        if self.used == self.input.len() && self.rest.start < self.rest.end {
            let len = (self.rest.end - self.rest.start).min(INPUT as u64);
            self.input.resize(len as usize, 0);
            order.fetch.source.read_at(self.rest.start, &mut self.input)?;
            (self.rest.start, self.used) = (self.rest.start + len, 0);
        }
        let step = self.stream.step(self.input.get(self.used..).unwrap_or_default(), out)?;
        self.used += step.read;
        self.ended = step.ended;
        Ok(step)
    }
}
