//! Cuts the output into the slices that tiles are decoded into.
//!
//! Every slice is safe and exclusive. Cutting 8192² pixels of 256² tiles takes a quarter of a million splits, well
//! under a millisecond, so there is no need for shared pointers.

use swath_codec::host::Target;

/// The rows of the output that no task has yet. They are in a plane for each band, or all in one plane where pixels are interleaved.
#[derive(Debug)]
pub(crate) struct OutputRows<'a> {
    planes: Vec<&'a mut [u8]>,
    row_len: usize,
}

impl<'a> OutputRows<'a> {
    /// Cuts `out` into `planes` equal parts with rows of `row_len` bytes.
    pub(crate) fn new(out: &'a mut [u8], planes: usize, row_len: usize) -> Self {
        let len = (out.len() / planes.max(1)).max(1);
        Self { planes: out.chunks_exact_mut(len).collect(), row_len }
    }

    pub(crate) fn planes(&self) -> usize {
        self.planes.len()
    }

    /// Takes the next `rows` rows of every plane.
    pub(crate) fn take_rows(&mut self, rows: usize) -> Vec<&'a mut [u8]> {
        let len = rows * self.row_len;
        self.planes
            .iter_mut()
            .map(|plane| {
                let (head, tail) = std::mem::take(plane).split_at_mut_checked(len).unwrap_or_default();
                *plane = tail;
                head
            })
            .collect()
    }

    /// Cuts each row of `bands` (as [`OutputRows::take_rows`] gave them) into cells of these widths in bytes. A cell's slices
    /// are all rows of the first band, then of the next.
    pub(crate) fn cut(&self, bands: Vec<&'a mut [u8]>, widths: &[usize]) -> Vec<Vec<&'a mut [u8]>> {
        let rows = bands.first().map_or(0, |band| band.len() / self.row_len.max(1));
        let mut cells: Vec<Vec<&'a mut [u8]>> = widths.iter().map(|_| Vec::with_capacity(rows * bands.len())).collect();
        for band in bands {
            for mut row in band.chunks_exact_mut(self.row_len.max(1)) {
                for (cell, width) in cells.iter_mut().zip(widths) {
                    let (head, tail) = row.split_at_mut_checked(*width).unwrap_or_default();
                    cell.push(head);
                    row = tail;
                }
            }
        }
        cells
    }
}

/// Writes the fill value to a target: `size` bytes at `at` in every `step` bytes.
pub(crate) fn fill(target: &mut Target<'_>, sample: &[u8], at: usize, step: usize) {
    let fill_row = |row: &mut [u8]| {
        if sample.len() == 1 && step == 1 {
            row.fill(sample.first().copied().unwrap_or(0));
            return;
        }
        for pixel in row.chunks_exact_mut(step.max(1)) {
            if let Some(place) = pixel.get_mut(at..at + sample.len()) {
                place.copy_from_slice(sample);
            }
        }
    };
    match target {
        Target::Whole(row) => fill_row(row),
        Target::Rows(rows) => rows.iter_mut().for_each(|row| fill_row(row)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_handed_out_exactly_once() {
        let mut out = vec![0u8; 2 * 5 * 7];
        let mut output = OutputRows::new(&mut out, 2, 7);
        for rows in [2, 3] {
            let bands = output.take_rows(rows);
            for cell in output.cut(bands, &[4, 3]) {
                assert_eq!(cell.len(), rows * 2);
                for row in cell {
                    row.iter_mut().for_each(|byte| *byte += 1);
                }
            }
        }
        assert!(out.iter().all(|byte| *byte == 1));
    }

    #[test]
    fn asking_for_too_many_rows_gives_nothing_instead_of_a_panic() {
        let mut out = vec![0u8; 4];
        let mut output = OutputRows::new(&mut out, 1, 2);
        assert_eq!(output.take_rows(3)[0].len(), 0);
    }
}
