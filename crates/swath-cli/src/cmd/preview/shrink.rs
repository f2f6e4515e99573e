//! Shrinks an image that arrives portion by portion.

use std::collections::VecDeque;

use swath::Window;

/// How several pixels become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// Their mean, by area; pixels without data do not count.
    Average,
    /// The one in the middle: for palette indices, which have no mean.
    Nearest,
}

/// Shrinks one band of an image. Portions arrive row by row; only unfinished rows are kept, as sums.
#[derive(Debug)]
pub struct Shrink {
    source: (u64, u64),
    target: (u64, u64),
    method: Method,
    unfinished: VecDeque<Row>,
    /// Index of the first unfinished row.
    first_unfinished: u64,
    out: Vec<f32>,
}

#[derive(Debug)]
struct Row {
    sums: Vec<f64>,
    weights: Vec<f64>,
}

/// The share of a source pixel that falls on target pixel `at`, and on the next one.
#[derive(Clone, Copy)]
struct Share {
    at: u64,
    here: f64,
    next: f64,
}

/// Returns the exact share: on a line where target pixels are `source` long, source pixel `index` covers
/// `index·target .. (index + 1)·target`.
fn share(index: u64, source: u64, target: u64) -> Share {
    let start = index * target;
    let at = start / source;
    let here = target.min((at + 1) * source - start);
    Share { at, here: here as f64 / target as f64, next: (target - here) as f64 / target as f64 }
}

impl Shrink {
    /// Starts shrinking from a size to another that is not larger.
    pub fn new(source: (u32, u32), target: (u32, u32), method: Method) -> Self {
        let out = vec![f32::NAN; target.0 as usize * target.1 as usize];
        let wide = |size: (u32, u32)| (u64::from(size.0.max(1)), u64::from(size.1.max(1)));
        let (source, target) = (wide(source), wide(target));
        let target = (target.0.min(source.0), target.1.min(source.1));
        Self { source, target, method, unfinished: VecDeque::new(), first_unfinished: 0, out }
    }

    /// Announces portions that begin at row `y`: none that begins above follows.
    pub fn start(&mut self, y: u32) {
        while self.method == Method::Average
            && (self.first_unfinished + 1) * self.source.1 <= u64::from(y) * self.target.1
        {
            self.finish_first();
        }
    }

    /// Adds a portion. NaN means no data.
    pub fn add(&mut self, window: &Window, values: &[f64]) {
        match self.method {
            Method::Average => self.average(window, values),
            Method::Nearest => self.nearest(window, values),
        }
    }

    fn average(&mut self, window: &Window, values: &[f64]) {
        let columns: Vec<Share> =
            (window.x..).take(window.width as usize).map(|x| share(x.into(), self.source.0, self.target.0)).collect();
        let Some(left) = columns.first().map(|share| share.at) else { return };
        // The last column may touch one more target pixel, with a share of 0.
        let span = columns.last().map_or(0, |share| share.at + 2 - left) as usize;
        let (mut sums, mut weights) = (vec![0f64; span], vec![0f64; span]);
        for (y, line) in (u64::from(window.y)..).zip(values.chunks_exact((window.width as usize).max(1))) {
            sums.fill(0.0);
            weights.fill(0.0);
            for (value, column) in line.iter().zip(&columns) {
                if value.is_nan() {
                    continue;
                }
                let at = (column.at - left) as usize;
                if let (Some([sum, next_sum]), Some([weight, next_weight])) =
                    (sums.get_mut(at..at + 2), weights.get_mut(at..at + 2))
                {
                    *sum += value * column.here;
                    *weight += column.here;
                    // Not multiplied where the share is 0: an infinite value would leave NaN there.
                    if column.next > 0.0 {
                        *next_sum += value * column.next;
                        *next_weight += column.next;
                    }
                }
            }
            let row = share(y, self.source.1, self.target.1);
            for (number, part) in [(row.at, row.here), (row.at + 1, row.next)] {
                if part > 0.0 {
                    self.row(number).add(left as usize, &sums, &weights, part);
                }
            }
        }
    }

    fn row(&mut self, number: u64) -> &mut Row {
        let width = self.target.0 as usize;
        let index = number.saturating_sub(self.first_unfinished) as usize;
        while self.unfinished.len() <= index {
            self.unfinished.push_back(Row { sums: vec![0.0; width], weights: vec![0.0; width] });
        }
        // The loop has just created it.
        &mut self.unfinished[index]
    }

    fn finish_first(&mut self) {
        let start = self.first_unfinished as usize * self.target.0 as usize;
        if let (Some(row), Some(out)) =
            (self.unfinished.pop_front(), self.out.get_mut(start..start + self.target.0 as usize))
        {
            for ((out, sum), weight) in out.iter_mut().zip(row.sums).zip(row.weights) {
                *out = if weight > 0.0 { (sum / weight) as f32 } else { f32::NAN };
            }
        }
        self.first_unfinished += 1;
    }

    fn nearest(&mut self, window: &Window, values: &[f64]) {
        let middle = |index: u64, source: u64, target: u64| (2 * index + 1) * source / (2 * target);
        // Target pixels whose middle may be in the portion.
        let touched = |start: u32, len: u32, source: u64, target: u64| {
            let end = (u64::from(start) + u64::from(len)) * target / source + 1;
            u64::from(start) * target / source..end.min(target)
        };
        for row in touched(window.y, window.height, self.source.1, self.target.1) {
            let Some(y) = middle(row, self.source.1, self.target.1).checked_sub(window.y.into()) else { continue };
            for column in touched(window.x, window.width, self.source.0, self.target.0) {
                let Some(x) = middle(column, self.source.0, self.target.0).checked_sub(window.x.into()) else {
                    continue;
                };
                if x >= window.width.into() || y >= window.height.into() {
                    continue;
                }
                let from = values.get((y * u64::from(window.width) + x) as usize);
                let to = self.out.get_mut((row * self.target.0 + column) as usize);
                if let (Some(from), Some(to)) = (from, to) {
                    *to = *from as f32;
                }
            }
        }
    }

    /// Returns the smaller image; NaN where there is no data.
    pub fn finish(mut self) -> Vec<f32> {
        while !self.unfinished.is_empty() {
            self.finish_first();
        }
        self.out
    }
}

impl Row {
    fn add(&mut self, left: usize, sums: &[f64], weights: &[f64], part: f64) {
        let targets = self.sums.iter_mut().zip(&mut self.weights).skip(left);
        for ((sum, weight), (more, more_weight)) in targets.zip(sums.iter().zip(weights)) {
            *sum += more * part;
            *weight += more_weight * part;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pixel_counts_by_its_area() {
        let mut shrink = Shrink::new((3, 1), (2, 1), Method::Average);
        shrink.add(&Window::new(0, 0, 3, 1), &[0.0, 3.0, 6.0]);
        // Two thirds of the first and one third of the second pixel make the first target.
        assert_eq!(shrink.finish(), [1.0, 5.0]);
    }

    #[test]
    fn no_data_does_not_darken_its_neighbours() {
        let mut shrink = Shrink::new((4, 2), (2, 1), Method::Average);
        shrink.add(&Window::new(0, 0, 4, 2), &[f64::NAN, 8.0, f64::NAN, f64::NAN, 8.0, 8.0, f64::NAN, f64::NAN]);
        let found = shrink.finish();
        assert_eq!(found[0], 8.0);
        assert!(found[1].is_nan());
    }

    #[test]
    fn parts_give_the_same_as_the_whole() {
        for method in [Method::Average, Method::Nearest] {
            let (width, height) = (37u32, 23u32);
            let value = |x: u32, y: u32| f64::from(x * x + 3 * y);
            let portion = |window: Window| -> Vec<f64> {
                (0..window.height)
                    .flat_map(|y| (0..window.width).map(move |x| value(window.x + x, window.y + y)))
                    .collect()
            };
            let mut whole = Shrink::new((width, height), (10, 6), method);
            let all = Window::new(0, 0, width, height);
            whole.add(&all, &portion(all));
            let mut cut = Shrink::new((width, height), (10, 6), method);
            for y in (0..height).step_by(5) {
                for x in (0..width).step_by(8) {
                    let window = Window::new(x, y, 8.min(width - x), 5.min(height - y));
                    cut.start(window.y);
                    cut.add(&window, &portion(window));
                }
            }
            for (a, b) in whole.finish().iter().zip(cut.finish()) {
                assert!((a - b).abs() < 1e-3, "{method:?}: {a} {b}");
            }
        }
    }

    #[test]
    fn nearest_invents_no_value() {
        let mut shrink = Shrink::new((4, 4), (2, 2), Method::Nearest);
        let values: Vec<f64> = (0..16).map(f64::from).collect();
        shrink.add(&Window::new(0, 0, 4, 4), &values);
        assert_eq!(shrink.finish(), [5.0, 7.0, 13.0, 15.0]);
    }
}
