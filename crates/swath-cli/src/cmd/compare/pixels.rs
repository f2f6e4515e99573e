//! Compares the samples of two files, portion by portion.

use anyhow::Result;
use swath::{
    Dataset, ReadOptions, SampleType, Window,
    describe::{MaskKind, number::Exact},
    read::ColorView,
    statistics::{
        portions::{self, BUDGET, TileLayout},
        samples::{self, Number, ToFloats, Visit},
    },
    tiff::{Photometric, structure::Planar},
};

use crate::console::Progress;

/// Result of comparing the samples of a band.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Pixels {
    /// Number of compared samples; the two parts of a complex sample count separately.
    pub compared: u64,
    /// Number of samples that differ by more than the tolerance.
    pub differing: u64,
    /// Number of these where only one is NaN.
    pub nan: u64,
    /// Largest difference, including those within the tolerance.
    pub max: f64,
    sum: f64,
    /// The first sample that differs.
    pub first: Option<FirstDifference>,
}

/// A sample that differs.
#[derive(Debug, Clone, PartialEq)]
pub struct FirstDifference {
    /// Its band, from 1.
    pub band: u32,
    /// Its row.
    pub row: u32,
    /// Its column.
    pub column: u32,
    /// Its value in one file.
    pub a: String,
    /// Its value in the other.
    pub b: String,
}

impl FirstDifference {
    fn order(&self) -> (u32, u32, u32) {
        (self.band, self.row, self.column)
    }
}

impl Pixels {
    /// Returns the mean difference of all samples that are numbers in both files.
    pub fn mean(&self) -> f64 {
        self.sum / (self.compared - self.nan).max(1) as f64
    }

    fn merge(&mut self, other: &Self) {
        self.compared += other.compared;
        self.differing += other.differing;
        self.nan += other.nan;
        self.max = self.max.max(other.max);
        self.sum += other.sum;
        // Portions come tile by tile, but the first difference is the first in reading order.
        if let Some(first) = &other.first
            && self.first.as_ref().is_none_or(|known| first.order() < known.order())
        {
            self.first = Some(first.clone());
        }
    }

    /// Returns the sum over all bands.
    pub fn total(bands: &[Self]) -> Self {
        let mut total = Self::default();
        bands.iter().for_each(|band| total.merge(band));
        total
    }
}

/// Whether samples of this type can be compared here.
pub fn is_known(dataset: &Dataset) -> bool {
    samples::visit(parts_of(dataset.sample()).0, &[], ToFloats { nodata: None, out: &mut Vec::new() }).is_some()
}

/// Returns the type and the number of the parts of a sample: two parts for a complex one.
fn parts_of(sample: SampleType) -> (SampleType, usize) {
    match sample {
        SampleType::CI16 => (SampleType::I16, 2),
        SampleType::CI32 => (SampleType::I32, 2),
        SampleType::CF16 => (SampleType::F16, 2),
        SampleType::CF32 => (SampleType::F32, 2),
        SampleType::CF64 => (SampleType::F64, 2),
        other => (other, 1),
    }
}

/// Reads samples. YCbCr in separate planes is converted to RGB, as the engine does for interleaved YCbCr.
fn read(dataset: &Dataset, options: &ReadOptions, buffer: &mut Vec<u8>) -> Result<()> {
    let layout = dataset.main().layout();
    if layout.photometric == Some(Photometric::YCbCr) && layout.planar == Planar::Separate {
        let raster = dataset.read(&options.clone().with_color(ColorView::Shown))?;
        buffer.clear();
        buffer.extend_from_slice(raster.bytes());
    } else {
        buffer.resize(dataset.read_len(options)?, 0);
        dataset.read_into(options, buffer)?;
    }
    Ok(())
}

/// Compares the bands that both files have.
pub fn compare(a: &Dataset, b: &Dataset, tolerance: f64) -> Result<Vec<Pixels>> {
    portions::check_size(a)?;
    portions::check_size(b)?;
    let bands: Vec<u32> = (1..=a.bands().min(b.bands())).collect();
    let mut found = vec![Pixels::default(); bands.len()];
    let pixels = u64::from(a.width()) * u64::from(a.height());
    let mut progress = Progress::new("comparing", pixels.saturating_mul(bands.len() as u64));
    let (mut here, mut there) = (Vec::new(), Vec::new());
    // Two portions are in memory at a time, hence half the budget for each.
    for portion in TileLayout::of(a.main()).portions(&bands, a.sample(), BUDGET / 2) {
        let options = ReadOptions::default().with_window(portion.window).with_bands(portion.bands.iter().copied());
        for (dataset, buffer) in [(a, &mut here), (b, &mut there)] {
            read(dataset, &options, buffer)?;
        }
        let len = |dataset: &Dataset| (portion.window.pixels() as usize * dataset.sample().size()).max(1);
        let planes = here.chunks_exact(len(a)).zip(there.chunks_exact(len(b))).zip(&portion.bands);
        for (((a_plane, b_plane), band), total) in planes.zip(found.iter_mut().skip(portion.first)) {
            let context = PlaneContext { band: *band, window: portion.window, tolerance };
            total.merge(&plane(context, (a.sample(), a_plane), (b.sample(), b_plane)));
        }
        progress.add(portion.window.pixels().saturating_mul(portion.bands.len() as u64));
    }
    Ok(found)
}

/// What the comparison of a plane needs beside the samples.
#[derive(Clone, Copy)]
struct PlaneContext {
    band: u32,
    window: Window,
    tolerance: f64,
}

fn plane(context: PlaneContext, a: (SampleType, &[u8]), b: (SampleType, &[u8])) -> Pixels {
    let (kind, parts) = parts_of(a.0);
    if a.0 == b.0 {
        if a.1 == b.1 {
            return Pixels { compared: (a.1.len() / kind.size()) as u64, ..Pixels::default() };
        }
        return samples::visit(kind, a.1, Pair { context, other: b.1, parts }).unwrap_or_default();
    }
    // The types differ: both are converted to doubles. NaN stays NaN.
    let floats = |(sample, bytes): (SampleType, &[u8])| -> Vec<u8> {
        let mut out = Vec::new();
        samples::visit(parts_of(sample).0, bytes, ToFloats { nodata: None, out: &mut out });
        out.iter().flat_map(|value| value.to_ne_bytes()).collect()
    };
    let (a, b) = (floats(a), floats(b));
    samples::visit(SampleType::F64, &a, Pair { context, other: &b, parts }).unwrap_or_default()
}

/// Compares samples with others of the same type.
struct Pair<'a> {
    context: PlaneContext,
    other: &'a [u8],
    parts: usize,
}

impl Visit for Pair<'_> {
    type Out = Pixels;

    fn visit<const N: usize, T: Number>(
        self,
        samples: &[[u8; N]],
        read: impl Fn([u8; N]) -> T + Copy + Sync,
    ) -> Pixels {
        let PlaneContext { band, window, tolerance } = self.context;
        let mut found = Pixels { compared: samples.len() as u64, ..Pixels::default() };
        for (index, (raw_a, raw_b)) in samples.iter().zip(self.other.as_chunks::<N>().0).enumerate() {
            // Equal bytes are equal values, including NaN.
            if raw_a == raw_b {
                continue;
            }
            let (a, b) = (read(*raw_a), read(*raw_b));
            let distance = distance(a.exact(), b.exact());
            match distance {
                Distance::None => continue,
                Distance::OnlyOneIsNan => found.nan += 1,
                Distance::Of(size) => {
                    found.max = found.max.max(size);
                    found.sum += size;
                    if size <= tolerance {
                        continue;
                    }
                }
            }
            found.differing += 1;
            if found.first.is_none() {
                let pixel = (index / self.parts) as u32;
                let width = window.width.max(1);
                let note = match (self.parts, index % self.parts) {
                    (2, 0) => " (real part)",
                    (2, _) => " (imaginary part)",
                    _ => "",
                };
                found.first = Some(FirstDifference {
                    band,
                    row: window.y + pixel / width,
                    column: window.x + pixel % width,
                    a: format!("{}{note}", a.exact()),
                    b: format!("{}{note}", b.exact()),
                });
            }
        }
        found
    }
}

enum Distance {
    None,
    OnlyOneIsNan,
    Of(f64),
}

fn distance(a: Exact, b: Exact) -> Distance {
    match (a, b) {
        (Exact::Int(a), Exact::Int(b)) if a == b => Distance::None,
        // Integers are subtracted as integers: as doubles, 2⁶³ and 2⁶³ - 1 would be equal.
        (Exact::Int(a), Exact::Int(b)) => Distance::Of(a.abs_diff(b) as f64),
        (a, b) => {
            let (a, b) = (a.to_f64(), b.to_f64());
            match (a.is_nan(), b.is_nan()) {
                (true, true) => Distance::None,
                (false, false) if a == b => Distance::None,
                (false, false) => Distance::Of((a - b).abs()),
                _ => Distance::OnlyOneIsNan,
            }
        }
    }
}

/// Returns the number of pixels whose masks differ, where one of the files has a mask.
pub fn compare_masks(a: &Dataset, b: &Dataset) -> Result<u64> {
    let masked =
        |dataset: &Dataset| -> Result<bool> { Ok(MaskKind::of_bands(dataset)?.first() == Some(&MaskKind::PerDataset)) };
    if !masked(a)? && !masked(b)? {
        return Ok(0);
    }
    let mut differing = 0;
    for portion in TileLayout::of(a.main()).portions(&[1], SampleType::U8, BUDGET / 4) {
        let options = ReadOptions::default().with_window(portion.window);
        let (here, there) = (a.read_mask(&options)?, b.read_mask(&options)?);
        differing += here.bytes().iter().zip(there.bytes()).filter(|(a, b)| a != b).count() as u64;
    }
    Ok(differing)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn floats(a: &[f32], b: &[f32], tolerance: f64) -> Pixels {
        let bytes = |values: &[f32]| -> Vec<u8> { values.iter().flat_map(|value| value.to_ne_bytes()).collect() };
        let context = PlaneContext { band: 2, window: Window::new(10, 20, 2, 2), tolerance };
        plane(context, (SampleType::F32, &bytes(a)), (SampleType::F32, &bytes(b)))
    }

    #[test]
    fn nan_equals_nan_and_zero_equals_minus_zero() {
        let other_nan = f32::from_bits(f32::NAN.to_bits() | 1);
        let found = floats(&[f32::NAN, 0.0, 1.0, 2.0], &[other_nan, -0.0, 1.0, 2.0], 0.0);
        assert_eq!((found.differing, found.first), (0, None));
    }

    #[test]
    fn reports_where_and_by_how_much() {
        let found = floats(&[1.0, 2.0, 3.0, f32::NAN], &[1.0, 2.0, 5.0, 1.0], 0.0);
        assert_eq!((found.compared, found.differing, found.nan, found.max), (4, 2, 1, 2.0));
        assert_eq!(found.mean(), 2.0 / 3.0);
        let first = found.first.unwrap();
        assert_eq!((first.band, first.column, first.row, &*first.a, &*first.b), (2, 10, 21, "3", "5"));
    }

    #[test]
    fn tolerated_differences_are_equal_but_reported() {
        let found = floats(&[1.0, 2.0], &[1.25, 2.0], 0.25);
        assert_eq!((found.differing, found.max), (0, 0.25));
    }

    #[test]
    fn neighbours_among_64_bit_integers_differ() {
        let (a, b) = (u64::MAX.to_ne_bytes(), (u64::MAX - 1).to_ne_bytes());
        let context = PlaneContext { band: 1, window: Window::new(0, 0, 1, 1), tolerance: 0.0 };
        let found = plane(context, (SampleType::U64, &a), (SampleType::U64, &b));
        assert_eq!((found.differing, found.max), (1, 1.0));
    }

    #[test]
    fn first_difference_is_the_first_in_reading_order() {
        let first = |row, column| FirstDifference { band: 1, row, column, a: String::new(), b: String::new() };
        let mut total = Pixels { first: Some(first(5, 0)), ..Pixels::default() };
        total.merge(&Pixels { first: Some(first(3, 400)), ..Pixels::default() });
        assert_eq!(total.first, Some(first(3, 400)));
    }
}
