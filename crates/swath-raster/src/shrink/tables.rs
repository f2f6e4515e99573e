//! A shrink as plain tables for a GPU, computed by the functions that the CPU uses.

use super::axis::{Axis, Span};
use super::kernel::{self, Tap, Taps};
use super::kind::{self, Avoid, Kind, with_kind};
use super::{ColumnMap, Resampling, Shrink, mode};
use swath_tiff::SampleType;

/// How target pixels are computed from source pixels, and so what a table entry holds (little endian).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum TablePlan {
    /// Two by two pixels; no tables.
    Halves = 0,
    /// Weighted spans: `u32` start, `u32` end, `f64` weight of the first, of the last, sum of all.
    Spans = 1,
    /// Single pixels: `u32`.
    Picks = 2,
    /// Whole pixels: `u32` start, `u32` end.
    Whole = 3,
    /// A filter kernel: `u32` start, `u32` count, `u32` first weight, `u32` zero.
    Taps = 4,
}

/// A shrink as tables.
#[derive(Debug, Clone)]
pub struct Tables {
    /// Width and height of the source.
    pub source: (u32, u32),
    /// Width and height of the target.
    pub target: (u32, u32),
    /// Type of the samples.
    pub sample: SampleType,
    /// The method.
    pub method: Resampling,
    /// What the entries hold.
    pub plan: TablePlan,
    /// The tables, each aligned to 8 bytes.
    pub bytes: Vec<u8>,
    /// Offset of the entries of the columns.
    pub columns: usize,
    /// Offset of the entries of the rows.
    pub rows: usize,
    /// Offset of the weights for masked pixels, which are not normalised.
    pub raw: usize,
    /// Offset of the weights that sum to one.
    pub normal: usize,
    /// Number of weights of each of the two kinds.
    pub weights: usize,
    /// The largest number of source pixels under one target pixel.
    pub footprint: u64,
    /// Whether every column covers two neighbours, with weights close to one.
    pub pairs: bool,
    /// Whether the kernel reaches less than four samples to either side.
    pub narrow: bool,
    /// Whether the kernel has negative weights.
    pub negative: bool,
    /// Whether invalid NaN pixels spread.
    pub spread: bool,
    /// One word of declared nodata, in the low bytes.
    pub nodata: Option<u64>,
    /// The word for pixels without valid samples, in the low bytes.
    pub fill: u64,
    /// The value that results avoid; NaN without nodata.
    pub avoid: f64,
    /// Its replacement.
    pub instead: f64,
}

impl Shrink {
    /// Returns the tables of this shrink.
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
        match &self.columns {
            ColumnMap::Halves => {}
            ColumnMap::Spans { columns, pairs } => {
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
            ColumnMap::Picks(columns) => {
                tables.plan = TablePlan::Picks;
                tables.footprint = 1;
                let down: Vec<u32> = rows.map(|at| self.y.nearest(at)).collect();
                tables.put(columns, &down, |at, to| to.extend(at.to_le_bytes()));
            }
            ColumnMap::Whole(columns) => {
                tables.plan = TablePlan::Whole;
                let down: Vec<(u32, u32)> = rows.map(|at| self.y.whole_span(at)).collect();
                tables.footprint = longest(columns, |(start, end)| end - start) * longest(&down, |(a, b)| b - a);
                tables.put(columns, &down, |(start, end), to| {
                    to.extend(start.to_le_bytes());
                    to.extend(end.to_le_bytes());
                });
            }
            ColumnMap::Taps(across) => {
                tables.plan = TablePlan::Taps;
                tables.narrow = across.narrow;
                tables.put_taps(across, &down_taps(self.y, self.method));
            }
        }
        tables
    }

    /// Returns nodata and fill as words, and the value that results avoid.
    fn words(&self) -> (Option<u64>, u64, Avoid) {
        with_kind!(
            self.sample,
            K => self.words_of::<K>(),
            complex K => (None, word(kind::hole::<K>()), Avoid::NONE),
            _ => (None, 0, Avoid::NONE)
        )
    }

    fn words_of<K: Kind>(&self) -> (Option<u64>, u64, Avoid) {
        let (nodata, avoid, fill) = self.nodata_rules::<K>();
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
            // The index may not fit; readers of the tables compare `Tables::weights` with 32 bits.
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

/// Computes the kernels of all target rows.
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
