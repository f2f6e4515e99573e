//! A step as plain memory, for a device that computes it elsewhere: what each target column and row needs, worked out
//! by the very functions that the CPU uses.

use super::axis::{Axis, Span};
use super::kernel::{self, Tap, Taps};
use super::kind::{self, Avoid, Kind};
use super::{Plan, Resampling, Shrink, mode};
use swath_tiff::SampleType;

/// How source pixels lie under target pixels, and what an entry of the tables is (little endian).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum TablePlan {
    /// Two by two; no tables.
    Halves = 0,
    /// Weighted footprints: `u32` start, `u32` end, `f64` weight of the first, of the last, of all.
    Spans = 1,
    /// Single pixels: `u32`.
    Picks = 2,
    /// Whole pixels: `u32` start, `u32` end.
    Whole = 3,
    /// A kernel: `u32` start, `u32` count, `u32` first weight, `u32` zero.
    Taps = 4,
}

/// One level step, spelled out.
#[derive(Debug, Clone)]
pub struct Tables {
    /// Width and height before.
    pub source: (u32, u32),
    /// Width and height after.
    pub target: (u32, u32),
    /// Type of the samples.
    pub sample: SampleType,
    /// The method.
    pub method: Resampling,
    /// What the entries are.
    pub plan: TablePlan,
    /// The tables, each at a multiple of 8.
    pub bytes: Vec<u8>,
    /// Where the entries of the columns begin.
    pub columns: usize,
    /// Where those of the rows begin.
    pub rows: usize,
    /// Where the weights begin that masked pixels are weighed with.
    pub raw: usize,
    /// Where those begin that sum to one.
    pub normal: usize,
    /// How many weights there are of either.
    pub weights: usize,
    /// Most source pixels under one target pixel.
    pub footprint: u64,
    /// Whether every column is two neighbours, of weights near one.
    pub pairs: bool,
    /// Whether the kernel is narrow.
    pub narrow: bool,
    /// Whether the kernel dips below zero.
    pub negative: bool,
    /// Whether NaN spreads though it is not valid.
    pub spread: bool,
    /// One word of declared nodata, in the low bytes.
    pub nodata: Option<u64>,
    /// The word for what has nothing valid, likewise.
    pub fill: u64,
    /// The value that results must not take; NaN where there is none.
    pub avoid: f64,
    /// What they take instead.
    pub instead: f64,
}

impl Shrink {
    /// The step as tables.
    pub fn tables(&self) -> Tables {
        let (nodata, fill, avoid) = self.words();
        let mut tables = Tables {
            source: (self.x.source, self.y.source),
            target: (self.x.target, self.y.target),
            sample: self.sample,
            method: self.method,
            plan: TablePlan::Halves,
            bytes: Vec::new(),
            columns: 0,
            rows: 0,
            raw: 0,
            normal: 0,
            weights: 0,
            footprint: 4,
            pairs: false,
            narrow: false,
            negative: kernel::has_negative(self.method),
            spread: self.quirks,
            nodata,
            fill,
            avoid: avoid.value,
            instead: avoid.instead,
        };
        let rows = 0..self.y.target;
        match &self.plan {
            Plan::Halves => {}
            Plan::Spans { columns, pairs } => {
                tables.plan = TablePlan::Spans;
                tables.pairs = *pairs;
                let down: Vec<Span> = rows.map(|at| self.y.span(at)).collect();
                tables.footprint = longest(columns, |span| span.end - span.start) * longest(&down, |s| s.end - s.start);
                tables.put(columns, &down, |span, to| {
                    to.extend(span.start.to_le_bytes());
                    to.extend(span.end.to_le_bytes());
                    to.extend([span.left, span.right, span.total].into_iter().flat_map(f64::to_le_bytes));
                });
            }
            Plan::Picks(columns) => {
                tables.plan = TablePlan::Picks;
                tables.footprint = 1;
                let down: Vec<u32> = rows.map(|at| self.y.nearest(at)).collect();
                tables.put(columns, &down, |at, to| to.extend(at.to_le_bytes()));
            }
            Plan::Whole(columns) => {
                tables.plan = TablePlan::Whole;
                let down: Vec<(u32, u32)> = rows.map(|at| self.y.whole_span(at)).collect();
                tables.footprint = longest(columns, |(start, end)| end - start) * longest(&down, |(a, b)| b - a);
                tables.put(columns, &down, |(start, end), to| {
                    to.extend(start.to_le_bytes());
                    to.extend(end.to_le_bytes());
                });
            }
            Plan::Taps(across) => {
                tables.plan = TablePlan::Taps;
                tables.narrow = across.narrow;
                tables.put_taps(across, &down_taps(self.y, self.method));
            }
        }
        tables
    }

    /// Nodata and fill as words, and what results avoid.
    fn words(&self) -> (Option<u64>, u64, Avoid) {
        match self.sample {
            SampleType::U8 => self.words_of::<kind::U8>(),
            SampleType::I8 => self.words_of::<kind::I8>(),
            SampleType::U16 => self.words_of::<kind::U16>(),
            SampleType::I16 => self.words_of::<kind::I16>(),
            SampleType::U32 => self.words_of::<kind::U32>(),
            SampleType::I32 => self.words_of::<kind::I32>(),
            SampleType::U64 => self.words_of::<kind::U64>(),
            SampleType::I64 => self.words_of::<kind::I64>(),
            SampleType::F16 => self.words_of::<kind::F16>(),
            SampleType::F32 => self.words_of::<kind::F32>(),
            SampleType::F64 => self.words_of::<kind::F64>(),
            SampleType::CF16 => (None, word(kind::hole::<kind::F16>()), Avoid::NONE),
            SampleType::CF32 => (None, word(kind::hole::<kind::F32>()), Avoid::NONE),
            SampleType::CF64 => (None, word(kind::hole::<kind::F64>()), Avoid::NONE),
            // Zeros of any length.
            _ => (None, 0, Avoid::NONE),
        }
    }

    fn words_of<K: Kind>(&self) -> (Option<u64>, u64, Avoid) {
        let (nodata, avoid, fill) = self.holes::<K>();
        let fill = if self.method == Resampling::Mode { mode::fill::<K>(self, nodata, fill) } else { fill };
        (nodata.map(word), word(fill), avoid)
    }
}

impl Tables {
    fn put<T: Copy>(&mut self, columns: &[T], rows: &[T], write: impl Fn(T, &mut Vec<u8>)) {
        self.columns = self.bytes.len();
        columns.iter().for_each(|&entry| write(entry, &mut self.bytes));
        self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
        self.rows = self.bytes.len();
        rows.iter().for_each(|&entry| write(entry, &mut self.bytes));
        self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
    }

    fn put_taps(&mut self, across: &Taps, down: &Taps) {
        let shift = across.raw.len();
        let down_columns: Vec<Tap> =
            down.columns.iter().map(|tap| Tap { weights: tap.weights + shift, ..*tap }).collect();
        self.footprint = longest(&across.columns, |tap| tap.count) * longest(&down.columns, |tap| tap.count);
        self.put(&across.columns, &down_columns, |tap, to| {
            // Beyond 32 bits whoever reads the tables sees that there are too many.
            to.extend([tap.start, tap.count, tap.weights as u32, 0].into_iter().flat_map(u32::to_le_bytes));
        });
        self.weights = shift + down.raw.len();
        let mut put = |one: &[f64], two: &[f64]| {
            let at = self.bytes.len();
            self.bytes.extend(one.iter().chain(two).flat_map(|weight| weight.to_le_bytes()));
            at
        };
        self.raw = put(&across.raw, &down.raw);
        self.normal = put(&across.normal, &down.normal);
    }
}

/// The kernels of all target rows.
fn down_taps(axis: Axis, method: Resampling) -> Taps {
    Taps::new(axis, method, 0..axis.target, |at, out| kernel::weights(axis, method, at, false, out))
}

fn longest<T: Copy>(all: &[T], len: impl Fn(T) -> u32) -> u64 {
    all.iter().map(|&one| u64::from(len(one))).max().unwrap_or(0)
}

fn word<T: bytemuck::Pod>(raw: T) -> u64 {
    let mut all = [0; 8];
    for (to, &from) in all.iter_mut().zip(bytemuck::bytes_of(&raw)) {
        *to = from;
    }
    u64::from_le_bytes(all)
}
