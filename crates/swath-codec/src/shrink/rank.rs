//! The smallest, largest or middle one of the pixels that an average would cover. GDAL has no such overviews, so the rules
//! are ours: pixels count whole, invalid ones and NaN not at all.

use super::footprint::{Footprint, Rows};
use super::kind::{Avoid, Kind};
use super::scratch::ShrinkScratch;
use super::view::View;
use super::{Resampling, Step};
use crate::simd::{Task, widest};

/// A target row.
pub fn row<K: Kind>(
    step: &Step<'_, K>,
    method: Resampling,
    view: &View<'_, K::Raw>,
    row: u32,
    out: &mut [K::Raw],
    scratch: &mut ShrinkScratch,
) {
    let footprint = Footprint::of(step);
    let ShrinkScratch { valid, line, .. } = scratch;
    let rows = Rows::<K>::new(view, step.nodata, &footprint, row, valid, line);
    match method {
        Resampling::Min => widest(Extreme { rows, footprint, out, fill: step.fill, better: less::<K> }),
        Resampling::Max => widest(Extreme { rows, footprint, out, fill: step.fill, better: |a, b| less::<K>(b, a) }),
        _ => {
            let mut found = Vec::with_capacity(16);
            for (at, out) in out.iter_mut().enumerate() {
                found.clear();
                let mut nan = None;
                rows.each(footprint.column(at), |s| if is_nan::<K>(s) { nan = Some(s) } else { found.push(s) });
                *out = middle::<K>(&mut found, step.avoid).or(nan).unwrap_or(step.fill);
            }
        }
    }
}

#[inline(always)]
fn is_nan<K: Kind>(sample: K::Raw) -> bool {
    !K::WHOLE && K::wide(sample).is_nan()
}

#[inline(always)]
fn less<K: Kind>(a: K::Raw, b: K::Raw) -> bool {
    if K::WHOLE { a < b } else { K::wide(a) < K::wide(b) }
}

/// The middle of a few; of an even count the lower for integers, so that it is a value of the data, and for floats the
/// mean of both, kept off nodata.
fn middle<K: Kind>(found: &mut [K::Raw], avoid: Avoid) -> Option<K::Raw> {
    let order = |a: &K::Raw, b: &K::Raw| {
        let before = less::<K>(*a, *b);
        if before {
            std::cmp::Ordering::Less
        } else {
            if less::<K>(*b, *a) { std::cmp::Ordering::Greater } else { std::cmp::Ordering::Equal }
        }
    };
    found.sort_unstable_by(order);
    let low = *found.get(found.len().checked_sub(1)? / 2)?;
    let high = *found.get(found.len() / 2)?;
    if K::WHOLE || found.len() % 2 == 1 {
        return Some(low);
    }
    // Halved first: the sum could overflow.
    Some(K::settle(K::wide(low) * 0.5 + K::wide(high) * 0.5, avoid))
}

struct Extreme<'a, K: Kind, F> {
    rows: Rows<'a, K>,
    footprint: Footprint<'a>,
    out: &'a mut [K::Raw],
    fill: K::Raw,
    better: F,
}

impl<K: Kind, F: Fn(K::Raw, K::Raw) -> bool> Task for Extreme<'_, K, F> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for (at, out) in self.out.iter_mut().enumerate() {
            let mut best: Option<K::Raw> = None;
            let mut nan = None;
            self.rows.each(self.footprint.column(at), |sample| {
                if is_nan::<K>(sample) {
                    nan = Some(sample);
                } else if best.is_none_or(|best| (self.better)(sample, best)) {
                    best = Some(sample);
                }
            });
            *out = best.or(nan).unwrap_or(self.fill);
        }
    }
}
