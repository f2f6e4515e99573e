//! Upsamples components to full resolution, bit for bit like libjpeg-turbo's "fancy" (triangle) filter.

use super::layout::{Layout, Plane};
use super::sample::Sample;

/// The upsampling of a component.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Method {
    Full,
    H2V1,
    H1V2,
    H2V2,
    /// Repeats each sample; also for fractional ratios, which libjpeg rejects.
    Repeat,
}

impl Method {
    pub fn of(layout: &Layout, plane: &Plane) -> Self {
        let wide = plane.h * 2 == layout.h_max;
        let tall = plane.v * 2 == layout.v_max;
        // libjpeg's horizontal filters need three columns to have a middle.
        let filtered = plane.width > 2;
        match (plane.h == layout.h_max, plane.v == layout.v_max) {
            (true, true) => Self::Full,
            (false, true) if wide && filtered => Self::H2V1,
            (true, false) if tall => Self::H1V2,
            (false, false) if wide && tall && filtered => Self::H2V2,
            _ => Self::Repeat,
        }
    }
}

/// Returns the length of the sample buffer that [`row`] needs.
pub(super) fn row_len(layout: &Layout, plane: &Plane) -> usize {
    plane.width * 4 + layout.h_max
}

/// Returns the length of the buffer of sums that [`row`] needs.
pub(super) fn sums_len(plane: &Plane) -> usize {
    plane.width + 2
}

/// Returns row `y` of the image from a plane, computed into `buffer` unless the plane has full resolution.
#[inline(always)]
pub(super) fn row<'a, S: Sample>(
    layout: &Layout,
    plane: &Plane,
    samples: &'a [S],
    y: usize,
    buffer: &'a mut Vec<S>,
    sums: &mut Vec<u16>,
) -> &'a [S] {
    let line = |y: usize| {
        let start = y.min(plane.height.saturating_sub(1)) * plane.stride;
        samples.get(start..start + plane.width).unwrap_or_default()
    };
    let method = Method::of(layout, plane);
    if method == Method::Full {
        return line(y);
    }
    // Rows above and below the image repeat its first and last.
    let (centre, near) = if y.is_multiple_of(2) {
        (line(y / 2), line((y / 2).saturating_sub(1)))
    } else {
        (line(y / 2), line(y / 2 + 1))
    };
    let need = row_len(layout, plane);
    if buffer.len() < need {
        buffer.resize(need, S::default());
    }
    if sums.len() < sums_len(plane) {
        sums.resize(sums_len(plane), 0);
    }
    match method {
        Method::H2V2 => {
            fill(sums, centre.iter().zip(near).map(|(&c, &n)| triple(c.wide(), n.wide())), centre.len());
            widen::<S, 8, 7, 4>(sums, centre.len(), buffer);
        }
        Method::H2V1 => {
            let centre = line(y * plane.v / layout.v_max);
            fill(sums, centre.iter().map(|&c| c.wide()), centre.len());
            widen::<S, 1, 2, 2>(sums, centre.len(), buffer);
        }
        Method::H1V2 => {
            let bias = if y.is_multiple_of(2) { 1 } else { 2 };
            for (to, (&c, &n)) in buffer.iter_mut().zip(centre.iter().zip(near)) {
                *to = S::narrow(triple(c.wide(), n.wide()).wrapping_add(bias) >> 2);
            }
        }
        Method::Repeat | Method::Full => {
            let centre = line(y * plane.v / layout.v_max);
            if layout.h_max.is_multiple_of(plane.h.max(1)) {
                let times = layout.h_max / plane.h.max(1);
                for (to, &from) in buffer.chunks_exact_mut(times).zip(centre) {
                    to.fill(from);
                }
            } else {
                for (x, to) in buffer.iter_mut().take(layout.width).enumerate() {
                    *to = centre.get(x * plane.h / layout.h_max).copied().unwrap_or_default();
                }
            }
        }
    }
    buffer
}

/// Three parts `centre` to one part `near`. Sixteen bits hold even the twice-weighted sums of 12-bit samples (16 x 4095).
#[inline(always)]
fn triple(centre: u16, near: u16) -> u16 {
    centre.wrapping_mul(3).wrapping_add(near)
}

/// Writes `count` values to `sums`, with the first and last repeated at the ends.
#[inline(always)]
fn fill(sums: &mut [u16], values: impl Iterator<Item = u16>, count: usize) {
    let Some(inner) = sums.get_mut(1..=count) else { return };
    for (to, value) in inner.iter_mut().zip(values) {
        *to = value;
    }
    if let (Some(&first), Some(&last)) = (inner.first(), inner.last()) {
        if let Some(to) = sums.first_mut() {
            *to = first;
        }
        if let Some(to) = sums.get_mut(count + 1) {
            *to = last;
        }
    }
}

/// Two samples from each column sum: nearer to its left neighbour, then to its right. The uneven biases are libjpeg's dither.
#[inline(always)]
fn widen<S: Sample, const LEFT: u16, const RIGHT: u16, const SHIFT: u32>(sums: &[u16], count: usize, out: &mut [S]) {
    let (Some(before), Some(here), Some(after)) = (sums.get(..count), sums.get(1..=count), sums.get(2..count + 2))
    else {
        return;
    };
    let (pairs, _) = out.as_chunks_mut::<2>();
    for (((pair, &b), &h), &a) in pairs.iter_mut().zip(before).zip(here).zip(after) {
        pair[0] = S::narrow(triple(h, b).wrapping_add(LEFT) >> SHIFT);
        pair[1] = S::narrow(triple(h, a).wrapping_add(RIGHT) >> SHIFT);
    }
}
