//! Complex samples. GDAL shrinks real and imaginary parts separately, in single precision, over whole pixels, and ignores
//! nodata and masks.

use super::footprint::Footprint;
use super::kind::Kind;
use super::mode::{Tally, alike};
use super::view::View;
use std::ops::Range;

/// Computes a target row of means, or of root mean squares, of each part.
pub fn row<K: Kind>(
    view: &View<'_, K::Raw>,
    columns: &[(u32, u32)],
    rows: Range<u32>,
    squares: bool,
    out: &mut [K::Raw],
) {
    for (&(start, end), out) in columns.iter().zip(out.chunks_exact_mut(2)) {
        let (mut real, mut imaginary, mut count) = (0.0, 0.0, 0.0);
        for row in rows.clone() {
            let words = view.row(row).get(start as usize * 2..end as usize * 2).unwrap_or_default();
            for pair in words.chunks_exact(2) {
                let part = |word: K::Raw| {
                    let value = f64::from(K::wide(word) as f32);
                    if squares { value * value } else { value }
                };
                real += part(pair[0]);
                imaginary += part(pair[1]);
                count += 1.0;
            }
        }
        let finish = |sum: f64| {
            let mean = sum / count;
            K::store(f64::from(if squares { mean.sqrt() } else { mean } as f32))
        };
        out[0] = finish(real);
        out[1] = finish(imaginary);
    }
}

/// Computes a target row of the most frequent values; a pair of parts is one value.
pub fn mode<K: Kind>(view: &View<'_, K::Raw>, footprint: &Footprint<'_>, row: u32, fill: K::Raw, out: &mut [K::Raw]) {
    let span = footprint.y.span(row);
    let mut tally = Tally::new();
    for (at, out) in out.chunks_exact_mut(2).enumerate() {
        tally.clear();
        let columns = footprint.column(at);
        for row in span.start..span.end {
            let pairs = view.row(row).get(columns.start * 2..columns.end * 2).unwrap_or_default();
            let valid = view.mask_row(row).map(|mask| mask.get(columns.clone()).unwrap_or_default());
            for (nth, pair) in pairs.chunks_exact(2).enumerate() {
                if valid.is_none_or(|valid| valid.get(nth) != Some(&0)) {
                    tally.add([pair[0], pair[1]], |a, b| alike::<K>(a[0], b[0]) && alike::<K>(a[1], b[1]));
                }
            }
        }
        out.copy_from_slice(&tally.most().unwrap_or([fill; 2]));
    }
}
