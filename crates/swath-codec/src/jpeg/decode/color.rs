//! Finishes rows: upsamples, converts colours and interleaves into the destination.

use super::Color;
use super::error::{JpegError, grow};
use super::layout::Layout;
use super::sample::Sample;
use super::upsample;
use swath_raster::simd::HotLoop;

/// Row buffers, reused between tiles.
#[derive(Debug, Default)]
pub(super) struct RowBuffers<S> {
    full: [Vec<S>; 4],
    sums: Vec<u16>,
}

impl<S: Sample> RowBuffers<S> {
    /// Allocates the rows of a frame, so that writing them allocates nothing.
    pub fn make_room(&mut self, layout: &Layout) -> Result<(), JpegError> {
        for (plane, full) in layout.planes().iter().zip(&mut self.full) {
            grow(full, upsample::row_len(layout, plane))?;
            grow(&mut self.sums, upsample::sums_len(plane))?;
        }
        Ok(())
    }
}

/// Writes rows `from` to `to` of the image.
pub(super) struct Emit<'t, S> {
    pub layout: &'t Layout,
    pub planes: &'t [Vec<S>; 4],
    pub rows: &'t mut RowBuffers<S>,
    pub color: Color,
    pub from: usize,
    pub to: usize,
    pub dst: &'t mut [u8],
    pub stride: usize,
}

impl<S: Sample> HotLoop for Emit<'_, S> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self { layout, planes, rows, color, from, to, dst, stride } = self;
        let count = layout.planes().len();
        let len = layout.width * count * S::BYTES;
        for y in from..to {
            let mut lines: [&[S]; 4] = [&[]; 4];
            let sources = layout.planes().iter().zip(planes).zip(rows.full.iter_mut());
            for (line, ((plane, samples), buffer)) in lines.iter_mut().zip(sources) {
                let full = upsample::row(layout, plane, samples, y, buffer, &mut rows.sums);
                *line = full.get(..layout.width).unwrap_or_default();
            }
            let Some(out) = dst.get_mut(y * stride..).and_then(|d| d.get_mut(..len)) else { return };
            match (count, color) {
                (3, Color::YcbcrToRgb) => rgb(lines[0], lines[1], lines[2], out),
                (1, _) => interleave::<S, 1>([lines[0]], out),
                (2, _) => interleave::<S, 2>([lines[0], lines[1]], out),
                (3, _) => interleave::<S, 3>([lines[0], lines[1], lines[2]], out),
                _ => interleave::<S, 4>(lines, out),
            }
        }
    }
}

#[inline(always)]
fn interleave<S: Sample, const N: usize>(lines: [&[S]; N], out: &mut [u8]) {
    let width = lines[0].len();
    let Some(out) = out.get_mut(..width * N * S::BYTES) else { return };
    let lines = lines.map(|l| l.get(..width).unwrap_or_default());
    if lines.iter().any(|l| l.len() != width) {
        return;
    }
    for (x, pixel) in out.chunks_exact_mut(N * S::BYTES).enumerate() {
        for n in 0..N {
            lines[n][x].put(&mut pixel[n * S::BYTES..(n + 1) * S::BYTES]);
        }
    }
}

#[inline(always)]
fn rgb<S: Sample>(y: &[S], cb: &[S], cr: &[S], out: &mut [u8]) {
    for (((pixel, &y), &cb), &cr) in out.chunks_exact_mut(3 * S::BYTES).zip(y).zip(cb).zip(cr) {
        let [r, g, b] = S::rgb(y, cb, cr);
        r.put(&mut pixel[..S::BYTES]);
        g.put(&mut pixel[S::BYTES..2 * S::BYTES]);
        b.put(&mut pixel[2 * S::BYTES..]);
    }
}
