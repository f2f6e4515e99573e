//! Shrinks rasters by one level, so that overviews come out while rows stream by, pixel for pixel as GDAL's.
//!
//! A [`Shrink`] is one level step of one band. It holds no pixels: a caller keeps the rows that [`Shrink::needs`] names
//! and asks for target rows, in any order and any cut, on any number of threads; the cut changes no pixel. Which rules
//! GDAL follows, and how they were found, is in NOTES.md.

mod average;
mod axis;
mod columns;
mod complex;
mod convolve;
mod error;
mod footprint;
pub mod half;
mod halve;
mod kernel;
mod kind;
mod levels;
mod mode;
mod nearest;
mod rank;
mod resampling;
mod rms;
mod scratch;
mod tables;
#[cfg(test)]
mod tests;
mod view;

pub use columns::ColumnShrink;
pub use error::ShrinkError;
pub use levels::{levels, levels_by_factors};
pub use resampling::{Resampling, UnknownResampling};
pub use scratch::ShrinkScratch;
pub use tables::{TablePlan, Tables};

use axis::{Axis, Span};
use bytemuck::Pod;
use kernel::Taps;
use kind::{Avoid, Kind};
use std::ops::Range;
use swath_tiff::SampleType;
use view::View;

/// One level step of one band.
#[derive(Debug, Clone)]
pub struct Shrink {
    x: Axis,
    y: Axis,
    sample: SampleType,
    method: Resampling,
    /// One word; complex samples go by their real part.
    nodata: Option<Vec<u8>>,
    plan: Plan,
    quirks: bool,
    /// Where the columns of this step begin in the whole target, and how many that has: GDAL adds up the last columns of an
    /// image in another order than those before.
    first_column: u32,
    whole_width: u32,
}

/// What each target column needs, worked out once.
#[derive(Debug, Clone)]
enum Plan {
    /// Two by two, all weights one.
    Halves,
    /// Weighted footprints. `pairs`: every column is two neighbours, though of weights near one.
    Spans { columns: Vec<Span>, pairs: bool },
    /// Single columns.
    Picks(Vec<u32>),
    /// Ranges of whole columns.
    Whole(Vec<(u32, u32)>),
    /// A kernel.
    Taps(Taps),
}

/// Source rows on their way into a call.
#[derive(Clone, Copy)]
struct Input<'a> {
    source: &'a [u8],
    mask: Option<&'a [u8]>,
    first_row: u32,
}

/// Target rows on their way out.
struct Output<'a> {
    bytes: &'a mut [u8],
    stride: usize,
    rows: Range<u32>,
    columns: Range<u32>,
}

impl Shrink {
    /// A step from `source` to `target` pixels (width, height). `nodata` is one native sample, or for complex types its
    /// real part.
    pub fn new(
        source: (u32, u32),
        target: (u32, u32),
        sample: SampleType,
        resampling: Resampling,
        nodata: Option<&[u8]>,
    ) -> Result<Self, ShrinkError> {
        let step = ColumnShrink::new(source, target, sample, resampling, nodata)?.with_quirks();
        step.columns(0..target.0, &(0..source.0))
    }

    /// Leaves out what GDAL 3.12 does to nodata against its own rules. With quirks, as by default and pixel for pixel as
    /// GDAL: mode writes zero rather than nodata where nothing is valid if nodata is NaN or, in signed integers of 16 bits
    /// and more, negative; NaN nodata spreads to all that a kernel reaches; and half floats that come out as nodata stay
    /// so. Without, nodata stays nodata, data stays data, and kernels weigh only what is valid.
    pub fn without_quirks(mut self) -> Self {
        self.quirks = false;
        self
    }

    /// Width and height of the target.
    pub fn target(&self) -> (u32, u32) {
        (self.x.target, self.y.target)
    }

    /// The source rows that target rows `rows` are made of. A streaming caller can [`run`](Self::run) once it has them,
    /// and may forget those before the start of what the next rows need.
    pub fn needs(&self, rows: Range<u32>) -> Range<u32> {
        let last = rows.end.min(self.y.target);
        if rows.start >= last {
            return 0..0;
        }
        let (from, to) = (self.reach(rows.start), self.reach(last - 1));
        from.start..to.end
    }

    fn reach(&self, row: u32) -> Range<u32> {
        reach(self.y, self.method, self.sample, row)
    }

    /// Computes target rows `rows`, columns `columns` of one band.
    ///
    /// `source` holds whole source rows of native samples from row `first_row` on, `mask` one byte per pixel of the same
    /// rows, zero where there is no data. Averages take any other byte as data; kernels weigh by it, as alpha does (of a
    /// mask GDAL gives them 255, but 1 from the second level on: it shows in the last bit of doubles only). Where there is
    /// a mask, nodata does not make pixels invalid; as GDAL: a mask directory beats nodata, nodata beats alpha, which is
    /// then not to be passed. Nearest looks at neither, mode of bytes only at nodata. Where nothing is valid, nodata or
    /// zero comes out, and results keep off nodata. Target rows go to `out`, `out_stride` bytes apart.
    ///
    /// The alpha band itself is its own mask: see [`shrink_mask`](Self::shrink_mask).
    #[allow(clippy::too_many_arguments)]
    pub fn run(
        &self,
        source: &[u8],
        mask: Option<&[u8]>,
        first_row: u32,
        rows: Range<u32>,
        columns: Range<u32>,
        out: &mut [u8],
        out_stride: usize,
        scratch: &mut ShrinkScratch,
    ) -> Result<(), ShrinkError> {
        let input = Input { source, mask, first_row };
        let output = Output { bytes: out, stride: out_stride, rows, columns };
        self.check(&input, &output)?;
        if output.rows.is_empty() || output.columns.is_empty() {
            return Ok(());
        }
        match self.sample {
            _ if self.method == Resampling::Nearest => self.pick(input, output, scratch),
            SampleType::U8 => self.typed::<kind::U8>(input, output, scratch),
            SampleType::I8 => self.typed::<kind::I8>(input, output, scratch),
            SampleType::U16 => self.typed::<kind::U16>(input, output, scratch),
            SampleType::I16 => self.typed::<kind::I16>(input, output, scratch),
            SampleType::U32 => self.typed::<kind::U32>(input, output, scratch),
            SampleType::I32 => self.typed::<kind::I32>(input, output, scratch),
            SampleType::U64 => self.typed::<kind::U64>(input, output, scratch),
            SampleType::I64 => self.typed::<kind::I64>(input, output, scratch),
            SampleType::F16 => self.typed::<kind::F16>(input, output, scratch),
            SampleType::F32 => self.typed::<kind::F32>(input, output, scratch),
            SampleType::F64 => self.typed::<kind::F64>(input, output, scratch),
            SampleType::CI16 => self.paired::<kind::I16>(input, output, scratch),
            SampleType::CI32 => self.paired::<kind::I32>(input, output, scratch),
            SampleType::CF16 => self.paired::<kind::F16>(input, output, scratch),
            SampleType::CF32 => self.paired::<kind::F32>(input, output, scratch),
            SampleType::CF64 => self.paired::<kind::F64>(input, output, scratch),
            _ => Err(ShrinkError::Undefined(self.method, self.sample)),
        }
    }

    /// The overview of a mask, or of an alpha band of bytes: by the same method, each byte being its own validity, so
    /// that averages are over what is not transparent. The step must be one of [`SampleType::U8`] without nodata.
    #[allow(clippy::too_many_arguments)]
    pub fn shrink_mask(
        &self,
        mask: &[u8],
        first_row: u32,
        rows: Range<u32>,
        columns: Range<u32>,
        out: &mut [u8],
        out_stride: usize,
        scratch: &mut ShrinkScratch,
    ) -> Result<(), ShrinkError> {
        if self.sample != SampleType::U8 || self.nodata.is_some() {
            return Err(ShrinkError::Undefined(self.method, self.sample));
        }
        self.run(mask, Some(mask), first_row, rows, columns, out, out_stride, scratch)
    }

    /// So that nothing below can run off a slice.
    fn check(&self, input: &Input<'_>, output: &Output<'_>) -> Result<(), ShrinkError> {
        let (rows, columns) = (&output.rows, &output.columns);
        if rows.end > self.y.target
            || columns.end > self.x.target
            || rows.start > rows.end
            || columns.start > columns.end
        {
            return Err(ShrinkError::Buffer);
        }
        if rows.is_empty() || columns.is_empty() {
            return Ok(());
        }
        let (width, size) = (self.x.source as usize, self.sample.size());
        let needs = self.needs(rows.clone());
        let at_hand = needs.end.checked_sub(input.first_row).ok_or(ShrinkError::Buffer)? as usize;
        let row = columns.len() * size;
        let space = (rows.len() - 1).checked_mul(output.stride).and_then(|bytes| bytes.checked_add(row));
        let pixels = at_hand.checked_mul(width).ok_or(ShrinkError::Buffer)?;
        let fits = input.first_row <= needs.start
            && pixels.checked_mul(size).is_some_and(|bytes| input.source.len() >= bytes)
            && input.mask.is_none_or(|mask| mask.len() >= pixels)
            && (rows.len() == 1 || output.stride >= row)
            && space.is_some_and(|space| output.bytes.len() >= space);
        if fits { Ok(()) } else { Err(ShrinkError::Buffer) }
    }

    /// Nearest: only the size of a sample matters.
    fn pick(&self, input: Input<'_>, output: Output<'_>, scratch: &mut ShrinkScratch) -> Result<(), ShrinkError> {
        match self.sample.size() {
            1 => self.pick_words::<u8>(input, output, scratch),
            2 => self.pick_words::<u16>(input, output, scratch),
            4 => self.pick_words::<u32>(input, output, scratch),
            8 => self.pick_words::<u64>(input, output, scratch),
            _ => self.pick_words::<[u64; 2]>(input, output, scratch),
        }
    }

    fn pick_words<T: Pod>(&self, input: Input<'_>, output: Output<'_>, scratch: &mut ShrinkScratch) -> Done {
        let columns = to_usize(&output.columns);
        let picks = if let Plan::Picks(picks) = &self.plan { picks.get(columns.clone()) } else { None };
        self.each_row(input, output, scratch, 1, |view: &View<'_, T>, row, out, _| {
            let from = view.row(self.y.nearest(row));
            nearest::row(
                from.get(columns.start * (1 + usize::from(picks.is_none()))..).unwrap_or_default(),
                from,
                picks,
                out,
            );
        })
    }

    fn typed<K: Kind>(&self, input: Input<'_>, output: Output<'_>, scratch: &mut ShrinkScratch) -> Done {
        let (nodata, avoid, fill) = self.holes::<K>();
        let columns = to_usize(&output.columns);
        let step = Step::<K> {
            shrink: self,
            nodata: nodata.filter(|_| input.mask.is_none()),
            declared: nodata,
            avoid,
            fill,
            columns,
        };
        self.each_row(input, output, scratch, 1, |view: &View<'_, K::Raw>, row, out, scratch| {
            match (self.method, &self.plan) {
                (_, Plan::Taps(taps)) => convolve::row(&step, view, taps, row, out, scratch),
                (Resampling::Average, _) => average::row(&step, view, row, out, scratch),
                (Resampling::Rms, _) => rms::row(&step, view, row, out, scratch),
                (Resampling::Mode, _) => mode::row(&step, view, row, out, scratch),
                (method, _) => rank::row(&step, method, view, row, out, scratch),
            }
        })
    }

    /// Declared nodata, what results avoid for its sake, and what is written where nothing is valid.
    fn holes<K: Kind>(&self) -> (Option<K::Raw>, Avoid, K::Raw) {
        let nodata = self.word::<K::Raw>();
        let avoid = match nodata {
            Some(word) if !K::wide(word).is_nan() => {
                // GDAL has no stand-in for halves: a result that equals nodata is lost.
                let lost = self.quirks && self.sample == SampleType::F16;
                let value = K::wide(word);
                Avoid { value, instead: if lost { value } else { K::beside(value) } }
            }
            _ => Avoid::NONE,
        };
        (nodata, avoid, nodata.unwrap_or(bytemuck::Zeroable::zeroed()))
    }

    /// Complex samples: pairs of words.
    fn paired<K: Kind>(&self, input: Input<'_>, output: Output<'_>, scratch: &mut ShrinkScratch) -> Done {
        let columns = to_usize(&output.columns);
        let fill = kind::hole::<K>();
        self.each_row(input, output, scratch, 2, |view: &View<'_, K::Raw>, row, out, _| match &self.plan {
            Plan::Whole(spans) => {
                let (start, end) = self.y.whole_span(row);
                let squares = self.method == Resampling::Rms;
                complex::row::<K>(view, spans.get(columns.clone()).unwrap_or_default(), start..end, squares, out);
            }
            plan => {
                let spans = footprint::Footprint { plan, y: self.y, columns: columns.clone() };
                complex::mode::<K>(view, &spans, row, fill, out);
            }
        })
    }

    /// Casts bytes to words, or copies where they are not aligned, and calls for each target row.
    fn each_row<T: Pod>(
        &self,
        input: Input<'_>,
        output: Output<'_>,
        scratch: &mut ShrinkScratch,
        words: usize,
        mut row: impl FnMut(&View<'_, T>, u32, &mut [T], &mut ShrinkScratch),
    ) -> Done {
        scratch.begin();
        let mut copy = Vec::new();
        let source = match bytemuck::try_cast_slice::<u8, T>(input.source) {
            Ok(source) => source,
            // Rare, and a copy is far cheaper than what follows.
            Err(_) => {
                copy.extend(input.source.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned::<T>));
                &copy
            }
        };
        let width = self.x.source as usize;
        let view =
            View { words: source, mask: input.mask, width: width * words, pixels: width, first: input.first_row };
        let bytes = output.columns.len() * words * size_of::<T>();
        let mut spare = Vec::new();
        for (at, target) in output.rows.enumerate() {
            let from = at * output.stride;
            let line = output.bytes.get_mut(from..from + bytes).ok_or(ShrinkError::Buffer)?;
            match bytemuck::try_cast_slice_mut::<u8, T>(line) {
                Ok(words) => row(&view, target, words, scratch),
                Err(_) => {
                    spare.resize(bytes / size_of::<T>(), T::zeroed());
                    row(&view, target, &mut spare, scratch);
                    line.copy_from_slice(bytemuck::cast_slice(&spare));
                }
            }
        }
        Ok(())
    }

    fn word<T: Pod>(&self) -> Option<T> {
        self.nodata.as_deref().and_then(|bytes| bytemuck::try_pod_read_unaligned(bytes).ok())
    }
}

/// The source samples along an axis that target sample `at` is made of.
fn reach(axis: Axis, method: Resampling, sample: SampleType, at: u32) -> Range<u32> {
    match method {
        Resampling::Nearest => {
            let at = axis.nearest(at);
            at..at + 1
        }
        Resampling::Bilinear | Resampling::Cubic | Resampling::Lanczos => kernel::window(axis, method, at),
        Resampling::Average | Resampling::Rms if sample.is_complex() => {
            let (start, end) = axis.whole_span(at);
            start..end
        }
        _ => {
            let span = axis.span(at);
            span.start..span.end
        }
    }
}

type Done = Result<(), ShrinkError>;

/// What the row functions of all methods share.
struct Step<'a, K: Kind> {
    shrink: &'a Shrink,
    /// What pixels are tested for: nothing if a mask says what is valid.
    nodata: Option<K::Raw>,
    /// What nodata is, all the same: for results to keep off, and to fill with.
    declared: Option<K::Raw>,
    avoid: Avoid,
    fill: K::Raw,
    columns: Range<usize>,
}

impl<K: Kind> Step<'_, K> {
    /// Columns of the whole target.
    fn width(&self) -> usize {
        self.shrink.whole_width as usize
    }

    /// The first column that is asked for, counted in the whole target.
    fn first_column(&self) -> usize {
        self.columns.start + self.shrink.first_column as usize
    }

    fn span(&self, row: u32) -> Span {
        self.shrink.y.span(row)
    }
}

fn to_usize(range: &Range<u32>) -> Range<usize> {
    range.start as usize..range.end as usize
}
