//! Cuts a tile out of rows of an image, and fills its part beyond the edge of the image.

use std::ops::Range;

use swath_tiff::Window;

use swath_raster::simd::{HotLoop, widest};

/// The layout of an image's samples in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrangement {
    /// Each band in its own plane.
    Planes,
    /// The samples of a pixel interleaved.
    Pixels,
}

/// Rows of an image in memory: native samples, rows without gaps.
#[derive(Debug, Clone, Copy)]
pub struct ImageRows<'a> {
    /// The samples: one slice per band, or one for all bands.
    pub planes: &'a [&'a [u8]],
    /// The layout of the samples.
    pub arrangement: Arrangement,
    /// Bands of the image.
    pub bands: u16,
    /// Bytes per sample.
    pub size: usize,
    /// Columns of the image.
    pub width: u32,
    /// Image row of the first row.
    pub first: u32,
}

impl<'a> ImageRows<'a> {
    /// Whether the planes hold all rows of a part of the image, in these bands.
    fn holds(&self, part: Window, bands: &Range<u16>) -> bool {
        let inside = part.y >= self.first && part.x_end() <= self.width.into();
        if !inside || bands.is_empty() || bands.end > self.bands {
            return false;
        }
        let (planes, pixel) = match self.arrangement {
            Arrangement::Planes => (self.planes.get(usize::from(bands.start)..usize::from(bands.end)), self.size),
            Arrangement::Pixels => (self.planes.get(..1), self.size * usize::from(self.bands)),
        };
        let row_len = self.width as usize * pixel;
        let len = ((part.y - self.first) as usize).checked_add(part.height as usize);
        let len = len.and_then(|rows| rows.checked_mul(row_len));
        planes.zip(len).is_some_and(|(planes, len)| planes.iter().all(|plane| plane.len() >= len))
    }

    /// Returns part of a row, of one band or of all interleaved bands; `None` outside the rows.
    fn row(&self, y: u32, x: u32, width: u32, band: u16) -> Option<&'a [u8]> {
        let (plane, pixel) = match self.arrangement {
            Arrangement::Planes => (self.planes.get(usize::from(band)), self.size),
            Arrangement::Pixels => (self.planes.first(), self.size * usize::from(self.bands)),
        };
        let start = (y.checked_sub(self.first)? as usize * self.width as usize + x as usize) * pixel;
        plane?.get(start..start + width as usize * pixel)
    }
}

/// How to fill the part of a tile beyond the edge of the image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Edge {
    /// Repeats the last column and row, which keeps transform codecs from ringing.
    Repeat,
    /// Repeats the last column, so that a predictor gives zeros, and fills the rows below with zeros.
    RepeatColumns,
    /// Zeros, which compress to almost nothing.
    Zero,
}

/// Cuts the bands `bands` of the part `visible` of the image into `out`: a tile of `tile_width` columns, interleaved by pixel, with
/// as many rows as fit into `out`.
///
/// Returns false, and `out` is then incomplete, where the rows lack part of `visible` or `out` is too short.
#[must_use]
pub fn cut(
    rows: &ImageRows<'_>,
    visible: Window,
    bands: Range<u16>,
    tile_width: u32,
    beyond: Edge,
    out: &mut [u8],
) -> bool {
    let count = bands.len();
    let pixel = rows.size * count;
    let row_len = tile_width as usize * pixel;
    let used = visible.width as usize * pixel;
    let filled = visible.height as usize * row_len;
    if !rows.holds(visible, &bands) || visible.width > tile_width || filled > out.len() {
        return false;
    }
    let mut lines = out.chunks_exact_mut(row_len.max(1));
    for (y, line) in (visible.y..visible.y + visible.height).zip(&mut lines) {
        let Some((body, edge)) = line.split_at_mut_checked(used) else { return false };
        let first = if rows.arrangement == Arrangement::Planes { bands.start } else { 0 };
        let Some(source) = rows.row(y, visible.x, visible.width, first) else { return false };
        let is_whole = match rows.arrangement {
            Arrangement::Pixels if count == usize::from(rows.bands) => copy(body, source),
            Arrangement::Pixels => {
                take_apart(source, body, rows.size, usize::from(rows.bands), usize::from(bands.start), count);
                true
            }
            Arrangement::Planes if count == 1 => copy(body, source),
            Arrangement::Planes => {
                let planes = bands.clone().map(|band| rows.row(y, visible.x, visible.width, band));
                interleave(planes, body, rows.size).is_some()
            }
        };
        if !is_whole {
            return false;
        }
        if beyond == Edge::Zero {
            edge.fill(0);
        } else if let Some(last) = body.len().checked_sub(pixel).and_then(|start| body.get(start..)) {
            for target in edge.chunks_exact_mut(pixel.max(1)) {
                target.copy_from_slice(last);
            }
        }
    }
    if beyond != Edge::Repeat {
        out.get_mut(filled..).unwrap_or_default().fill(0);
    } else if let Some((done, below)) = out.split_at_mut_checked(filled)
        && let Some(last) = done.len().checked_sub(row_len).and_then(|start| done.get(start..))
    {
        for line in below.chunks_exact_mut(row_len.max(1)) {
            line.copy_from_slice(last);
        }
    }
    true
}

/// Copies bytes. Returns false where the lengths differ.
fn copy(target: &mut [u8], source: &[u8]) -> bool {
    if target.len() != source.len() {
        return false;
    }
    target.copy_from_slice(source);
    true
}

/// Copies `count` samples from index `first` on of each pixel of `bands` samples.
fn take_apart(source: &[u8], target: &mut [u8], size: usize, bands: usize, first: usize, count: usize) {
    match (count, size) {
        (1, 1) => take_one::<1>(source, target, bands, first),
        (1, 2) => take_one::<2>(source, target, bands, first),
        (1, 4) => take_one::<4>(source, target, bands, first),
        (1, 8) => take_one::<8>(source, target, bands, first),
        _ => {
            let (pixel, part) = (bands * size, first * size..(first + count) * size);
            for (from, to) in source.chunks_exact(pixel.max(1)).zip(target.chunks_exact_mut((count * size).max(1))) {
                if let Some(from) = from.get(part.clone()) {
                    to.copy_from_slice(from);
                }
            }
        }
    }
}

fn take_one<const SIZE: usize>(source: &[u8], target: &mut [u8], bands: usize, first: usize) {
    let samples = source.as_chunks::<SIZE>().0.get(first..).unwrap_or_default();
    for (to, from) in target.as_chunks_mut::<SIZE>().0.iter_mut().zip(samples.iter().step_by(bands.max(1))) {
        *to = *from;
    }
}

/// Interleaves the samples of several rows. Returns `None` where a row is missing or has another number of samples than the target,
/// and for samples of a size that no type has.
fn interleave<'a>(
    planes: impl ExactSizeIterator<Item = Option<&'a [u8]>>,
    target: &mut [u8],
    size: usize,
) -> Option<()> {
    match size {
        1 => interleave_sized::<1>(planes, target),
        2 => interleave_sized::<2>(planes, target),
        4 => interleave_sized::<4>(planes, target),
        8 => interleave_sized::<8>(planes, target),
        16 => interleave_sized::<16>(planes, target),
        _ => None,
    }
}

fn interleave_sized<'a, const SIZE: usize>(
    mut planes: impl ExactSizeIterator<Item = Option<&'a [u8]>>,
    target: &mut [u8],
) -> Option<()> {
    let count = planes.len();
    let target = target.as_chunks_mut::<SIZE>().0;
    let pixels = target.len() / count.max(1);
    let mut next = || planes.next()?.map(|plane| plane.as_chunks::<SIZE>().0).filter(|plane| plane.len() == pixels);
    match count {
        2 => widest(Few { planes: [next()?, next()?], target }),
        3 => widest(Few { planes: [next()?, next()?, next()?], target }),
        4 => widest(Few { planes: [next()?, next()?, next()?, next()?], target }),
        _ => {
            for band in 0..count {
                for (place, sample) in target.iter_mut().skip(band).step_by(count).zip(next()?) {
                    *place = *sample;
                }
            }
        }
    }
    Some(())
}

/// Interleaves a number of planes known at compile time.
struct Few<'a, const SIZE: usize, const BANDS: usize> {
    planes: [&'a [[u8; SIZE]]; BANDS],
    target: &'a mut [[u8; SIZE]],
}

impl<const SIZE: usize, const BANDS: usize> HotLoop for Few<'_, SIZE, BANDS> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let pixels = self.target.as_chunks_mut::<BANDS>().0;
        let len = self.planes.iter().fold(pixels.len(), |len, plane| len.min(plane.len()));
        let planes = self.planes.map(|plane| plane.get(..len).unwrap_or_default());
        for (index, pixel) in pixels.iter_mut().take(len).enumerate() {
            for (sample, plane) in pixel.iter_mut().zip(&planes) {
                *sample = plane.get(index).copied().unwrap_or([0; SIZE]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Band b of pixel (x, y) is 100 b + 10 y + x.
    fn image(arrangement: Arrangement, bands: u16, width: u32, height: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        let value = |x: u32, y: u32, band: u16| (100 * u32::from(band) + 10 * y + x) as u8;
        match arrangement {
            Arrangement::Pixels => (0..height).for_each(|y| {
                (0..width).for_each(|x| (0..bands).for_each(|band| bytes.push(value(x, y, band))));
            }),
            Arrangement::Planes => (0..bands).for_each(|band| {
                (0..height).for_each(|y| (0..width).for_each(|x| bytes.push(value(x, y, band))));
            }),
        }
        bytes
    }

    #[test]
    fn every_arrangement_gives_the_same_tile_and_edges_repeat() {
        for bands in 1..=6_u16 {
            for arrangement in [Arrangement::Pixels, Arrangement::Planes] {
                let bytes = image(arrangement, bands, 5, 4);
                let planes: Vec<&[u8]> = match arrangement {
                    Arrangement::Pixels => vec![&bytes],
                    Arrangement::Planes => bytes.chunks_exact(20).collect(),
                };
                let rows = ImageRows { planes: &planes, arrangement, bands, size: 1, width: 5, first: 0 };
                for take in [0..bands, 0..1, bands - 1..bands] {
                    let mut out = vec![0; 4 * 4 * take.len()];
                    assert!(cut(&rows, Window::new(3, 2, 2, 2), take.clone(), 4, Edge::Repeat, &mut out));
                    for (index, pixel) in out.chunks_exact(take.len()).enumerate() {
                        let (x, y) = ((index % 4).min(1) + 3, (index / 4).min(1) + 2);
                        for (band, sample) in take.clone().zip(pixel) {
                            assert_eq!(
                                *sample as usize,
                                (100 * usize::from(band) + 10 * y + x) % 256,
                                "{bands} {take:?}"
                            );
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn rows_may_begin_anywhere_in_the_image() {
        let bytes = image(Arrangement::Pixels, 1, 5, 4);
        let rows = ImageRows {
            planes: &[&bytes[10..]],
            arrangement: Arrangement::Pixels,
            bands: 1,
            size: 1,
            width: 5,
            first: 2,
        };
        let mut out = [0; 4];
        assert!(cut(&rows, Window::new(0, 2, 2, 2), 0..1, 2, Edge::Repeat, &mut out));
        assert_eq!(out, [20, 21, 30, 31]);
    }

    #[test]
    fn edges_are_filled_as_requested() {
        let planes: [&[u8]; 1] = [&[1, 2, 3, 4]];
        let arrangement = Arrangement::Planes;
        let rows = ImageRows { planes: &planes, arrangement, bands: 1, size: 1, width: 2, first: 0 };
        for (edge, expected) in [
            (Edge::Repeat, [1, 2, 2, 3, 4, 4, 3, 4, 4]),
            (Edge::RepeatColumns, [1, 2, 2, 3, 4, 4, 0, 0, 0]),
            (Edge::Zero, [1, 2, 0, 3, 4, 0, 0, 0, 0]),
        ] {
            // Old contents of the tile must not remain.
            let mut out = [9; 9];
            assert!(cut(&rows, Window::new(0, 0, 2, 2), 0..1, 3, edge, &mut out));
            assert_eq!(out, expected);
        }
    }

    #[test]
    fn samples_that_are_missing_are_no_default() {
        let mut target = [9; 12];
        assert!(!copy(&mut target, &[1; 11]));
        let (whole, short) = (Some(&[1_u8; 6][..]), Some(&[1_u8; 5][..]));
        for planes in [[whole, short], [short, whole], [whole, None], [None, whole]] {
            assert_eq!(interleave(planes.into_iter(), &mut target, 1), None, "{planes:?}");
        }
        assert_eq!(target, [9; 12]);
        for count in [3, 4, 6] {
            let planes = (0..count).map(|band| if band + 1 == count { None } else { Some(&[1_u8; 12][..12 / count]) });
            assert_eq!(interleave(planes.collect::<Vec<_>>().into_iter(), &mut target, 1), None);
        }
        // No type has samples of 3 bytes.
        assert_eq!(interleave([whole, whole].into_iter(), &mut target, 3), None);
        assert_eq!(interleave([whole, Some(&[2; 6])].into_iter(), &mut target, 1), Some(()));
        assert_eq!(target, [1, 2].repeat(6)[..]);
    }

    #[test]
    fn a_tile_that_the_rows_do_not_hold_is_refused() {
        let bytes = [7; 24];
        // Rows 2 and 3 of an image of 3 columns and 2 bands.
        for (arrangement, len) in [(Arrangement::Pixels, 12), (Arrangement::Planes, 6)] {
            let fits = |planes: &[&[u8]], visible: Window, bands: Range<u16>, out: usize| {
                let rows = ImageRows { planes, arrangement, bands: 2, size: 1, width: 3, first: 2 };
                cut(&rows, visible, bands, 4, Edge::Zero, &mut vec![9; out])
            };
            let (whole, short) = ([&bytes[..len], &bytes[..len]], [&bytes[..len], &bytes[..len - 1]]);
            let planes = if arrangement == Arrangement::Pixels { 1 } else { 2 };
            let (whole, short) = (&whole[..planes], &short[2 - planes..]);
            let visible = Window::new(1, 2, 2, 2);
            assert!(fits(whole, visible, 0..2, 16));
            assert!(!fits(short, visible, 0..2, 16));
            assert!(!fits(&[], visible, 0..2, 16));
            // A row above, a row below, a column beside, a band too many and none, and a tile without room.
            assert!(!fits(whole, Window::new(1, 1, 2, 2), 0..2, 16));
            assert!(!fits(whole, Window::new(1, 3, 2, 2), 0..2, 16));
            assert!(!fits(whole, Window::new(2, 2, 2, 2), 0..2, 16));
            assert!(!fits(whole, visible, 1..3, 16));
            assert!(!fits(whole, visible, 1..1, 16));
            assert!(!fits(whole, visible, 0..2, 15));
            // A tile that is narrower than its visible part.
            assert!(!fits(whole, Window::new(0, 2, 5, 2), 0..2, 80));
        }
    }
}
