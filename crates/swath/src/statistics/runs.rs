//! Groups portions of an image into runs that a GPU reads at once.

use swath_tiff::Window;

use super::portions::Portion;

/// Neighbouring portions of the same bands that fill a rectangle, in their order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) portions: Vec<Portion>,
}

impl Run {
    /// The rectangle.
    pub(super) fn window(&self) -> Window {
        let ends = self.portions.first().zip(self.portions.last());
        ends.map_or(Window::new(0, 0, 0, 0), |(first, last)| {
            let (from, to) = (first.window, last.window);
            Window::new(from.x, from.y, to.x + to.width - from.x, to.y + to.height - from.y)
        })
    }

    /// All its pixels as one portion.
    pub(super) fn whole(&self) -> Option<Portion> {
        let first = self.portions.first()?;
        Some(Portion { first: first.first, bands: first.bands.clone(), window: self.window() })
    }

    /// Two runs of about the same size; `None` for a single portion.
    pub(super) fn halves(mut self) -> Option<[Self; 2]> {
        let (top, columns) = self.portions.first().map(|first| {
            let same_row = |portion: &&Portion| portion.window.y == first.window.y;
            (first.window.y, self.portions.iter().take_while(same_row).count())
        })?;
        let one_row = self.portions.last()?.window.y == top;
        // Between rows, so that both fill a rectangle.
        let step = if one_row { 1 } else { columns };
        let middle = (self.portions.len() / step).div_ceil(2) * step;
        let lower = self.portions.split_off(middle.min(self.portions.len()));
        (!lower.is_empty()).then_some([self, Self { portions: lower }])
    }
}

/// The runs of some portions, each of at most `most` bytes or a single portion.
pub(super) struct Runs<I: Iterator<Item = Portion>> {
    portions: std::iter::Peekable<I>,
    /// Portions side by side that are in no run yet.
    row: Vec<Portion>,
    sample_len: u64,
    most: u64,
}

impl<I: Iterator<Item = Portion>> Runs<I> {
    pub(super) fn new(portions: I, sample_len: usize, most: u64) -> Self {
        Self { portions: portions.peekable(), row: Vec::new(), sample_len: sample_len as u64, most }
    }

    /// The next portions side by side.
    fn next_row(&mut self) -> Vec<Portion> {
        let mut row: Vec<Portion> = self.portions.next().into_iter().collect();
        while let Some(last) = row.last()
            && let (first, y) = (last.first, last.window.y)
            && let Some(next) = self.portions.next_if(|next| next.first == first && next.window.y == y)
        {
            row.push(next);
        }
        row
    }

    fn len(&self, portions: &[Portion]) -> u64 {
        let len = |portion: &Portion| portion.window.pixels().saturating_mul(portion.bands.len() as u64);
        portions.iter().map(len).fold(0, u64::saturating_add).saturating_mul(self.sample_len)
    }
}

impl<I: Iterator<Item = Portion>> Iterator for Runs<I> {
    type Item = Run;

    fn next(&mut self) -> Option<Run> {
        let mut portions = std::mem::take(&mut self.row);
        if portions.is_empty() {
            portions = self.next_row();
        }
        if self.len(&portions) > self.most {
            let mut fit = portions.len();
            while fit > 1 && self.len(portions.get(..fit).unwrap_or_default()) > self.most {
                fit -= 1;
            }
            self.row = portions.split_off(fit);
            return Some(Run { portions });
        }
        loop {
            let row = self.next_row();
            let below = portions.first().zip(row.first());
            // Only whole rows are joined: what is left of a row begins further right.
            let joins = below.is_some_and(|(above, next)| above.first == next.first && above.window.x == next.window.x);
            if !joins || self.len(&portions).saturating_add(self.len(&row)) > self.most {
                self.row = row;
                return (!portions.is_empty()).then_some(Run { portions });
            }
            portions.extend(row);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A grid of portions of 10 × 10 pixels, in two groups of bands.
    fn grid(columns: u32, rows: u32) -> Vec<Portion> {
        let window = |x, y| Window::new(x * 10, y * 10, 10, 10);
        (0..2)
            .flat_map(|first| {
                (0..rows).flat_map(move |y| {
                    (0..columns).map(move |x| Portion { first, bands: vec![first as u32 + 1], window: window(x, y) })
                })
            })
            .collect()
    }

    #[test]
    fn runs_are_rectangles_of_one_group_and_keep_every_portion_in_order() {
        for (columns, rows) in [(1, 1), (1, 7), (5, 1), (4, 6)] {
            for most in [0, 100, 250, 400, 900, 1600, 100_000] {
                let portions = grid(columns, rows);
                let runs: Vec<Run> = Runs::new(portions.iter().cloned(), 1, most).collect();
                let mut joined = Vec::new();
                let mut open = runs.clone();
                open.reverse();
                while let Some(run) = open.pop() {
                    let pixels: u64 = run.portions.iter().map(|portion| portion.window.pixels()).sum();
                    assert_eq!(run.window().pixels(), pixels, "{columns} {rows} {most}");
                    assert!(pixels <= most || run.portions.len() == 1);
                    assert!(run.portions.iter().all(|portion| portion.first == run.portions[0].first));
                    // Halves are runs too.
                    match run.clone().halves() {
                        Some([upper, lower]) => open.extend([lower, upper]),
                        None => joined.extend(run.portions),
                    }
                }
                assert_eq!(joined, portions);
            }
        }
        assert_eq!(Runs::new(grid(4, 6).into_iter(), 1, 100_000).count(), 2);
        assert_eq!(Runs::new(grid(4, 6).into_iter(), 1, 800).count(), 6);
        assert_eq!(Runs::new(grid(4, 6).into_iter(), 1, 300).count(), 24);
    }
}
