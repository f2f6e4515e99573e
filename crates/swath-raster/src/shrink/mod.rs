//! Shrinks rasters by one level while rows stream in. The overviews match GDAL's pixel for pixel.
//!
//! A [`Shrink`] makes a level of one band from the level above. It holds no pixels: a caller buffers the rows that
//! [`Shrink::needs`] names and requests target rows, in any order, in blocks of any size, on any number of threads. The order
//! and the blocks change no pixel.

mod average;
mod axis;
mod columns;
mod complex;
mod convolve;
mod error;
mod footprint;
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
use kind::{Avoid, Kind, with_kind};
use std::ops::Range;
use swath_tiff::SampleType;
use view::View;

/// Makes a level of one band from the level above.
#[derive(Debug, Clone)]
pub struct Shrink {
    x: Axis,
    y: Axis,
    sample: SampleType,
    method: Resampling,
    /// One native word; for complex samples the real part.
    nodata: Option<Vec<u8>>,
    columns: ColumnMap,
    quirks: bool,
    /// Position of the first column in the whole target.
    first_column: u32,
    /// Columns of the whole target. GDAL sums the last columns of an image in a different order.
    whole_width: u32,
}

/// Which source columns each target column is computed from.
#[derive(Debug, Clone)]
enum ColumnMap {
    /// The two by two pixels below, each with weight one.
    Halves,
    /// Weighted spans. `pairs` is set where every span is two neighbouring columns, with weights close to one.
    Spans { columns: Vec<Span>, pairs: bool },
    /// One column each.
    Picks(Vec<u32>),
    /// Ranges of whole columns.
    Whole(Vec<(u32, u32)>),
    /// A filter kernel.
    Taps(Taps),
}

/// The source rows of a call.
#[derive(Clone, Copy)]
struct Input<'a> {
    source: &'a [u8],
    mask: Option<&'a [u8]>,
    first_row: u32,
}

/// The target rows of a call.
struct Output<'a> {
    bytes: &'a mut [u8],
    stride: usize,
    rows: Range<u32>,
    columns: Range<u32>,
}

impl Shrink {
    /// Creates a shrink from `source` to `target` pixels (width, height). `nodata` is one native sample, or for complex types
    /// its real part.
    ///
    /// # Errors
    /// When a side grows or is empty, or the method is not defined for the sample type.
    pub fn new(
        source: (u32, u32),
        target: (u32, u32),
        sample: SampleType,
        resampling: Resampling,
        nodata: Option<&[u8]>,
    ) -> Result<Self, ShrinkError> {
        let shrink = ColumnShrink::new(source, target, sample, resampling, nodata)?.with_quirks();
        shrink.columns(0..target.0, &(0..source.0))
    }

    /// Turns off the places where GDAL 3.12 breaks its own nodata rules. By default they are on, to match GDAL pixel for pixel:
    /// - mode writes zero instead of nodata where no pixel is valid, if nodata is NaN, or negative in signed integers of 16 bits
    ///   and more;
    /// - NaN nodata spreads to every pixel that a kernel reaches it from;
    /// - a half-float result that equals nodata stays nodata.
    ///
    /// With quirks off, nodata stays nodata, data stays data, and kernels weigh valid pixels only.
    pub fn without_quirks(mut self) -> Self {
        self.quirks = false;
        self
    }

    /// Returns width and height of the target.
    pub fn target(&self) -> (u32, u32) {
        (self.x.target, self.y.target)
    }

    /// Returns the source rows that target rows `rows` are computed from. A streaming caller can [`run`](Self::run) once it has
    /// them, and may drop rows before the start of the range that the next target rows need.
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

    /// Computes target rows `rows`, columns `columns` of one band into `out`, rows `out_stride` bytes apart.
    ///
    /// `source` holds whole source rows of native samples from row `first_row` on. `mask` holds one byte per pixel of the same
    /// rows, zero where a pixel has no data. Averages treat any other byte as data. Kernels use it as a weight, like alpha: GDAL
    /// passes them 255 for a mask, but 1 from the second level on, a difference in the last bit of doubles only.
    ///
    /// With a mask, nodata values do not make pixels invalid. GDAL's precedence is: a mask directory beats nodata, and nodata
    /// beats alpha; callers must not pass an alpha band that nodata beats. Nearest ignores mask and nodata; mode of bytes
    /// ignores the mask. Where no pixel is valid the result is nodata, or zero without nodata. Results of valid pixels never
    /// equal nodata.
    ///
    /// An alpha band is its own mask: see [`shrink_mask`](Self::shrink_mask).
    ///
    /// # Errors
    /// When a buffer is too short, or `source` lacks rows that the target rows need.
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
            sample => with_kind!(
                sample,
                K => self.typed::<K>(input, output, scratch),
                complex K => self.paired::<K>(input, output, scratch),
                _ => Err(ShrinkError::Undefined(self.method, self.sample))
            ),
        }
    }

    /// Computes rows of the overview of a mask, or of an alpha band of bytes. Each byte is its own validity, so that averages
    /// leave transparent pixels out. The shrink must be for [`SampleType::U8`] without nodata.
    ///
    /// # Errors
    /// As [`run`](Self::run), and when the shrink is for other samples.
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

    /// Checks that every access of the row functions stays inside its slice.
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
        let source_rows = needs.end.checked_sub(input.first_row).ok_or(ShrinkError::Buffer)? as usize;
        let row = columns.len() * size;
        let space = (rows.len() - 1).checked_mul(output.stride).and_then(|bytes| bytes.checked_add(row));
        let pixels = source_rows.checked_mul(width).ok_or(ShrinkError::Buffer)?;
        let fits = input.first_row <= needs.start
            && pixels.checked_mul(size).is_some_and(|bytes| input.source.len() >= bytes)
            && input.mask.is_none_or(|mask| mask.len() >= pixels)
            && (rows.len() == 1 || output.stride >= row)
            && space.is_some_and(|space| output.bytes.len() >= space);
        if fits { Ok(()) } else { Err(ShrinkError::Buffer) }
    }

    /// Nearest neighbour, for which only the size of a sample matters.
    fn pick(&self, input: Input<'_>, output: Output<'_>, scratch: &mut ShrinkScratch) -> Result<(), ShrinkError> {
        match self.sample.size() {
            1 => self.pick_words::<u8>(input, output, scratch),
            2 => self.pick_words::<u16>(input, output, scratch),
            4 => self.pick_words::<u32>(input, output, scratch),
            8 => self.pick_words::<u64>(input, output, scratch),
            _ => self.pick_words::<[u64; 2]>(input, output, scratch),
        }
    }

    fn pick_words<T: Pod>(
        &self,
        input: Input<'_>,
        output: Output<'_>,
        scratch: &mut ShrinkScratch,
    ) -> Result<(), ShrinkError> {
        let columns = to_usize(&output.columns);
        let picks = if let ColumnMap::Picks(picks) = &self.columns { picks.get(columns.clone()) } else { None };
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

    fn typed<K: Kind>(
        &self,
        input: Input<'_>,
        output: Output<'_>,
        scratch: &mut ShrinkScratch,
    ) -> Result<(), ShrinkError> {
        let (nodata, avoid, fill) = self.nodata_rules::<K>();
        let columns = to_usize(&output.columns);
        let context = RowContext::<K> {
            shrink: self,
            nodata: nodata.filter(|_| input.mask.is_none()),
            declared: nodata,
            avoid,
            fill,
            columns,
        };
        self.each_row(input, output, scratch, 1, |view: &View<'_, K::Raw>, row, out, scratch| {
            match (self.method, &self.columns) {
                (_, ColumnMap::Taps(taps)) => convolve::row(&context, view, taps, row, out, scratch),
                (Resampling::Average, _) => average::row(&context, view, row, out, scratch),
                (Resampling::Rms, _) => rms::row(&context, view, row, out, scratch),
                (Resampling::Mode, _) => mode::row(&context, view, row, out, scratch),
                (method, _) => rank::row(&context, method, view, row, out, scratch),
            }
        })
    }

    /// Returns the declared nodata, the value that results avoid because of it, and the fill where no pixel is valid.
    fn nodata_rules<K: Kind>(&self) -> (Option<K::Raw>, Avoid, K::Raw) {
        let nodata = self.word::<K::Raw>();
        let avoid = match nodata {
            Some(word) if !K::wide(word).is_nan() => {
                // GDAL has no replacement for halves: a result that equals nodata becomes nodata.
                let becomes_nodata = self.quirks && self.sample == SampleType::F16;
                let value = K::wide(word);
                Avoid { value, instead: if becomes_nodata { value } else { K::beside(value) } }
            }
            _ => Avoid::NONE,
        };
        (nodata, avoid, nodata.unwrap_or(bytemuck::Zeroable::zeroed()))
    }

    /// Complex samples, which are pairs of words.
    fn paired<K: Kind>(
        &self,
        input: Input<'_>,
        output: Output<'_>,
        scratch: &mut ShrinkScratch,
    ) -> Result<(), ShrinkError> {
        let columns = to_usize(&output.columns);
        let fill = kind::hole::<K>();
        self.each_row(input, output, scratch, 2, |view: &View<'_, K::Raw>, row, out, _| match &self.columns {
            ColumnMap::Whole(spans) => {
                let (start, end) = self.y.whole_span(row);
                let squares = self.method == Resampling::Rms;
                complex::row::<K>(view, spans.get(columns.clone()).unwrap_or_default(), start..end, squares, out);
            }
            column_map => {
                let spans = footprint::Footprint { column_map, y: self.y, columns: columns.clone() };
                complex::mode::<K>(view, &spans, row, fill, out);
            }
        })
    }

    /// Calls `row` for each target row, with bytes cast to words, or copied where they are not aligned.
    fn each_row<T: Pod>(
        &self,
        input: Input<'_>,
        output: Output<'_>,
        scratch: &mut ShrinkScratch,
        words: usize,
        mut row: impl FnMut(&View<'_, T>, u32, &mut [T], &mut ShrinkScratch),
    ) -> Result<(), ShrinkError> {
        scratch.begin();
        let mut copy = Vec::new();
        let source = match bytemuck::try_cast_slice::<u8, T>(input.source) {
            Ok(source) => source,
            // Rare, and far cheaper than the arithmetic that follows.
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

/// Returns the source samples along an axis that target sample `at` is computed from.
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

/// The parameters that the row functions of all methods share.
struct RowContext<'a, K: Kind> {
    shrink: &'a Shrink,
    /// The nodata value that pixels are compared with; `None` where a mask says which pixels are valid.
    nodata: Option<K::Raw>,
    /// The declared nodata value, with or without a mask: results avoid it, and it fills pixels without data.
    declared: Option<K::Raw>,
    avoid: Avoid,
    fill: K::Raw,
    columns: Range<usize>,
}

impl<K: Kind> RowContext<'_, K> {
    /// Returns the columns of the whole target.
    fn width(&self) -> usize {
        self.shrink.whole_width as usize
    }

    /// Returns the position of the first requested column in the whole target.
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
