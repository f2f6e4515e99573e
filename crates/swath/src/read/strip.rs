//! Decodes windows of a large strip step by step: the decoder stays where a window ended, and the next window continues there, with
//! memory for its own rows only. Where windows jump about, the strip is decoded whole and kept if possible, else decoded from its
//! start.

use std::ops::Range;

use swath_codec::{CodecError, Scratch, decode::StreamProgress, host::Target};
use swath_raster::memory::{self, Buffer};
use swath_tiff::{Compression, Window};

use super::{context::ReadContext, task::TilePart};
use crate::{
    cancel::cancelled,
    error::Error,
    state::{
        positions::{Key, Position},
        scratch::KEEP,
    },
};

/// Bytes of the file that are read at a time.
const INPUT: usize = 256 << 10;
/// Skipped rows are decoded about this many bytes at a time.
const SKIP: usize = 256 << 10;

/// Decodes the rows of a window from the strip at `range`, which has `rows` rows, and places them in `target`.
pub(crate) fn decode(
    context: &ReadContext<'_>,
    part: &TilePart,
    range: &Range<u64>,
    rows: u32,
    inside: Window,
    target: &mut Target<'_>,
    scratch: &mut Scratch,
) -> Result<(), Error> {
    let key = (context.image.index, part.index);
    let mut position = match context.positions.take(key, inside.y) {
        Some(position) => position,
        None => Position::at_start(key, context, range)?,
    };
    let row_len = context.host.spec().stored_row_len();
    position.skip_to(context, inside.y, row_len)?;
    let len = inside.height as usize * row_len;
    let mut buffer = Buffer::default();
    let wanted = buffer.room(len).ok_or(CodecError::NoMemory(len as u64))?;
    position.take_rows(context, inside.y, wanted, row_len)?;
    if position.row == rows {
        position.finish(context)?;
    }
    context.positions.give_back(position);
    if let Target::Rows(out) = target {
        let inside = Window::new(inside.x, 0, inside.width, inside.height);
        context.host.place_stored(wanted, inside, &part.take, out, scratch)?;
    }
    Ok(())
}

impl Position {
    fn at_start(key: Key, context: &ReadContext<'_>, range: &Range<u64>) -> Result<Self, Error> {
        let stream =
            context.host.stream().ok_or_else(|| Error::internal("this strip cannot be decoded step by step"))?;
        let (tail, input) = (Vec::new(), Vec::new());
        Ok(Self { key, row: 0, tail, from: 0, stream, rest: range.clone(), input, used: 0, ended: false })
    }

    /// Decodes and drops the rows before `row`; does nothing where `row` is still in memory.
    fn skip_to(&mut self, context: &ReadContext<'_>, row: u32, row_len: usize) -> Result<(), Error> {
        let step = (SKIP / row_len.max(1)).max(1) as u32;
        let mut buffer = Buffer::default();
        while self.row < row {
            if let Some(error) = cancelled(context.cancel) {
                return Err(error);
            }
            let count = step.min(row - self.row);
            let len = count as usize * row_len;
            self.fill(context, buffer.room(len).ok_or(CodecError::NoMemory(len as u64))?)?;
            self.row += count;
            (self.tail, self.from) = (Vec::new(), self.row);
        }
        Ok(())
    }

    /// Fills `wanted` with the rows from `first` on: those still in memory, then the next of the stream.
    fn take_rows(
        &mut self,
        context: &ReadContext<'_>,
        first: u32,
        wanted: &mut [u8],
        row_len: usize,
    ) -> Result<(), Error> {
        let there = self.tail.get(first.saturating_sub(self.from) as usize * row_len..).unwrap_or_default();
        let (known, new) = wanted.split_at_mut(there.len().min(wanted.len()));
        known.copy_from_slice(there.get(..known.len()).unwrap_or_default());
        if new.is_empty() {
            return Ok(());
        }
        self.fill(context, new)?;
        self.row += (new.len() / row_len.max(1)) as u32;
        (self.tail, self.from) =
            if wanted.len() > KEEP { (Vec::new(), self.row) } else { (memory::copied(wanted)?, first) };
        Ok(())
    }

    /// Decodes the next bytes of the strip.
    fn fill(&mut self, context: &ReadContext<'_>, out: &mut [u8]) -> Result<(), Error> {
        let mut done = 0;
        while done < out.len() {
            let progress = self.advance(context, out.get_mut(done..).unwrap_or_default())?;
            done += progress.made;
            if done < out.len() && progress.made == 0 && progress.read == 0 {
                let row_len = context.host.spec().stored_row_len() as u64;
                let got = u64::from(self.row) * row_len + done as u64;
                let wanted = u64::from(context.image.grid.stored_rows(0)) * row_len;
                return Err(Error::malformed(format!("the strip ends after {got} of {wanted} bytes")));
            }
        }
        Ok(())
    }

    /// Reads the stream to its end, where its checksum is, once all rows are decoded. Surplus bytes are allowed as for a strip that is
    /// decoded whole: in a last strip the rows that the image lacks, in a Zstd frame anything.
    fn finish(&mut self, context: &ReadContext<'_>) -> Result<(), Error> {
        let spec = context.host.spec();
        let lacking = if spec.one_strip { 0 } else { spec.height.saturating_sub(self.row) };
        let lacking = u64::from(lacking) * spec.stored_row_len() as u64;
        let mut surplus = 0;
        while !self.ended {
            let progress = self.advance(context, &mut [0; 4096])?;
            surplus += progress.made as u64;
            let cut_off = !self.ended && progress.read == 0 && progress.made == 0;
            match (surplus > lacking, cut_off) {
                (true, _) | (_, true) if spec.compression == Compression::Zstd => return Ok(()),
                (true, _) => return Err(Error::malformed("the stream holds more bytes than the strip")),
                (_, true) => return Err(Error::malformed("the stream is cut off behind its last sample")),
                _ => {}
            }
        }
        Ok(())
    }

    fn advance(&mut self, context: &ReadContext<'_>, out: &mut [u8]) -> Result<StreamProgress, Error> {
        if self.used == self.input.len() && self.rest.start < self.rest.end {
            let len = (self.rest.end - self.rest.start).min(INPUT as u64);
            memory::resize(&mut self.input, len as usize)?;
            context.fetch.source.read_at(self.rest.start, &mut self.input)?;
            (self.rest.start, self.used) = (self.rest.start + len, 0);
        }
        let progress = self.stream.advance(self.input.get(self.used..).unwrap_or_default(), out)?;
        self.used += progress.read;
        self.ended = progress.ended;
        Ok(progress)
    }
}
