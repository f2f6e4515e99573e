//! The filter kernels: which source samples they reach, and their weights, computed in GDAL's order.

use super::Resampling;
use super::axis::Axis;
use std::f64::consts::PI;
use std::ops::Range;

/// Returns half the width of a kernel, in target samples.
fn radius(method: Resampling) -> f64 {
    match method {
        Resampling::Cubic => 2.0,
        Resampling::Lanczos => 3.0,
        _ => 1.0,
    }
}

/// Whether a kernel has negative weights.
pub fn has_negative(method: Resampling) -> bool {
    matches!(method, Resampling::Cubic | Resampling::Lanczos)
}

fn weight(method: Resampling, at: f64) -> f64 {
    let size = at.abs();
    match method {
        Resampling::Cubic if size <= 1.0 => at * at * (1.5 * size - 2.5) + 1.0,
        Resampling::Cubic if size <= 2.0 => at * at * (-0.5 * size + 2.5) - 4.0 * size + 2.0,
        Resampling::Lanczos if at == 0.0 => 1.0,
        Resampling::Lanczos => {
            let turn = PI * at;
            let third = turn / 3.0;
            // sin 3a = 3 sin a - 4 sin³ a, so one sine serves both factors.
            let square = third.sin() * third.sin();
            (3.0 - 4.0 * square) * square / (turn * third)
        }
        Resampling::Bilinear if size <= 1.0 => 1.0 - size,
        _ => 0.0,
    }
}

fn center(axis: Axis, at: u32) -> f64 {
    (f64::from(at) + 0.5) * axis.ratio()
}

/// Returns half the width of the kernel in source samples, and the size of a source sample in kernel units.
fn stretch(axis: Axis, method: Resampling) -> (f64, f64) {
    let scale = (1.0 / axis.ratio()).min(1.0);
    (radius(method) / scale, scale)
}

/// Returns the source samples that the kernel over target sample `at` reaches, clipped to the image.
pub fn window(axis: Axis, method: Resampling, at: u32) -> Range<u32> {
    let (reach, _) = stretch(axis, method);
    let center = center(axis, at);
    let start = ((center - reach + 0.5).floor().max(0.0) as u32).min(axis.source - 1);
    let stop = (center + reach + 0.5) as u32;
    start..stop.clamp(start + 1, axis.source)
}

/// Computes the weights of a window, not normalised, and returns their sum. Like GDAL, it accumulates offsets `along` rows but
/// multiplies them out in groups of four along columns; the last bits differ.
pub fn weights(axis: Axis, method: Resampling, at: u32, along: bool, out: &mut Vec<f64>) -> f64 {
    let window = window(axis, method, at);
    let (_, scale) = stretch(axis, method);
    let count = window.len();
    let mut offset = scale * (f64::from(window.start) - center(axis, at) + 0.5);
    out.clear();
    let mut sum = 0.0;
    for _ in 0..count / 4 {
        let mut fours = [0.0; 4];
        for (nth, four) in fours.iter_mut().enumerate() {
            *four = weight(method, if along { offset } else { offset + nth as f64 * scale });
            if along {
                offset += scale;
            }
        }
        if !along {
            offset += 4.0 * scale;
        }
        sum += fours[0] + fours[1] + fours[2] + fours[3];
        out.extend_from_slice(&fours);
    }
    for _ in 0..count % 4 {
        let one = weight(method, offset);
        sum += one;
        out.push(one);
        offset += scale;
    }
    sum
}

fn normalise(weights: &mut [f64], sum: f64) {
    if sum != 0.0 {
        let factor = 1.0 / sum;
        weights.iter_mut().for_each(|weight| *weight *= factor);
    }
}

/// Computes the vertical weights of target row `at`, summing to one if `normal`.
pub fn down(axis: Axis, method: Resampling, at: u32, normal: bool, out: &mut Vec<f64>) {
    let sum = weights(axis, method, at, false, out);
    if normal {
        normalise(out, sum);
    }
}

/// The kernels of all target columns.
#[derive(Debug, Clone)]
pub struct Taps {
    /// The kernel of each column.
    pub columns: Vec<Tap>,
    /// Weights that are not normalised, for masked pixels.
    pub raw: Vec<f64>,
    /// Weights that sum to one.
    pub normal: Vec<f64>,
    /// Whether the kernel reaches less than four samples to either side, which decides the order of additions.
    pub narrow: bool,
}

/// The kernel of one target column.
#[derive(Debug, Clone, Copy)]
pub struct Tap {
    /// First source sample.
    pub start: u32,
    /// Number of source samples.
    pub count: u32,
    /// Index of the first weight.
    pub weights: usize,
}

impl Taps {
    /// Computes the kernels of target columns `columns`.
    pub fn across(axis: Axis, method: Resampling, columns: Range<u32>) -> Self {
        Self::new(axis, method, columns, |at, out| weights(axis, method, at, true, out))
    }

    /// Computes the kernels of `targets`; `weigh` writes the weights of one and returns their sum.
    pub fn new(axis: Axis, method: Resampling, targets: Range<u32>, weigh: impl Fn(u32, &mut Vec<f64>) -> f64) -> Self {
        let mut taps = Self {
            columns: Vec::with_capacity(targets.len()),
            raw: Vec::new(),
            normal: Vec::new(),
            narrow: stretch(axis, method).0 < 4.0,
        };
        let mut here = Vec::new();
        for at in targets {
            let window = window(axis, method, at);
            let sum = weigh(at, &mut here);
            let count = window.end - window.start;
            // At a ratio of exactly two all inner columns share one set of weights.
            let last = taps.columns.last().copied();
            let shared = last.filter(|tap| tap.count == count && taps.raw.get(tap.weights..) == Some(here.as_slice()));
            let weights = shared.map_or(taps.raw.len(), |tap| tap.weights);
            if shared.is_none() {
                taps.raw.extend_from_slice(&here);
                normalise(&mut here, sum);
                taps.normal.extend_from_slice(&here);
            }
            taps.columns.push(Tap { start: window.start, count, weights });
        }
        taps
    }

    /// Returns the source columns that a range of target columns reaches.
    pub fn reach(&self, columns: &Range<usize>) -> Range<usize> {
        let start = self.column(columns.start, false).0;
        let (last, weights) = self.column(columns.end.saturating_sub(1), false);
        start..(last + weights.len()).max(start)
    }

    /// Returns the first source sample of a column's kernel, and its weights.
    #[inline(always)]
    pub fn column(&self, at: usize, normal: bool) -> (usize, &[f64]) {
        let Some(tap) = self.columns.get(at) else { return (0, &[]) };
        let all = if normal { &self.normal } else { &self.raw };
        (tap.start as usize, all.get(tap.weights..tap.weights + tap.count as usize).unwrap_or_default())
    }
}
