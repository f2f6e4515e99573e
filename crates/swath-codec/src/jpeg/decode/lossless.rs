//! Lossless scans (T.81 H): differences from one of seven predictors, as in DNG and some scientific TIFFs.

use super::bits::{Reader, Restarts, unstuff};
use super::error::{Damage, Fault, JpegError, grow};
use super::huffman::{Class, Table};
use super::lossy::{Target, Work};
use super::markers::{Header, Scan, StreamTables, Tables};
use super::{Color, Stream};
use swath_raster::simd::{HotLoop, widest};

/// The rows that predictions use, reused between tiles: for each component the row above and the current one.
#[derive(Debug, Default)]
pub(super) struct PredictorRows {
    pub above: [Vec<u16>; 4],
    pub current: [Vec<u16>; 4],
}

/// Checks that this decoder supports a lossless scan; restarts must fall between rows (H.1.1).
fn check(header: &Header, scan: &Scan, interval: u32) -> Result<(), JpegError> {
    let offset = scan.offset;
    let unsupported = |what| Err(JpegError::Unsupported { what, offset });
    if scan.components().len() != header.components.len() {
        return unsupported("lossless JPEG in several scans");
    }
    if header.components.len() > 1 && header.components.iter().any(|c| (c.h, c.v) != (1, 1)) {
        return unsupported("subsampled lossless JPEG");
    }
    if !(1..=7).contains(&scan.start) {
        return Err(JpegError::Malformed { what: "lossless predictor is not 1 to 7", offset });
    }
    if scan.low >= header.precision {
        return Err(JpegError::Malformed { what: "point transform leaves no bits", offset });
    }
    if !interval.is_multiple_of(header.width) {
        return Err(JpegError::Malformed { what: "lossless restart interval is not whole rows", offset });
    }
    Ok(())
}

/// Decodes a lossless frame, whose scan header has been read.
#[expect(clippy::too_many_arguments, reason = "parts of one `decode` call, borrowed separately")]
pub(super) fn decode(
    stream: &Stream<'_>,
    shared: Option<&Tables>,
    stream_tables: &StreamTables,
    header: &Header,
    scan: &Scan,
    target: Target<'_>,
    work: &mut Work,
    rows: &mut PredictorRows,
) -> Result<Option<Damage>, JpegError> {
    match header.components.len() {
        1 => scan_of::<1>(stream, shared, stream_tables, header, scan, target, work, rows),
        2 => scan_of::<2>(stream, shared, stream_tables, header, scan, target, work, rows),
        3 => scan_of::<3>(stream, shared, stream_tables, header, scan, target, work, rows),
        _ => scan_of::<4>(stream, shared, stream_tables, header, scan, target, work, rows),
    }
}

#[expect(clippy::too_many_arguments, reason = "parts of one `decode` call, borrowed separately")]
fn scan_of<const N: usize>(
    stream: &Stream<'_>,
    shared: Option<&Tables>,
    stream_tables: &StreamTables,
    header: &Header,
    scan: &Scan,
    target: Target<'_>,
    work: &mut Work,
    rows: &mut PredictorRows,
) -> Result<Option<Damage>, JpegError> {
    if target.color != Color::Raw {
        return Err(JpegError::Unsupported { what: "colour conversion of lossless JPEG", offset: scan.offset });
    }
    check(header, scan, stream.interval)?;
    let first = scan.components().first().copied().unwrap_or_default();
    let mut tables = [stream_tables.huffman(shared, Class::Dc, first.dc, scan.offset)?; N];
    let mut order = [0; N];
    for ((table, order), part) in tables.iter_mut().zip(&mut order).zip(scan.components()) {
        *table = stream_tables.huffman(shared, Class::Dc, part.dc, scan.offset)?;
        *order = part.index;
    }
    let (width, height) = (header.width as usize, header.height as usize);
    let most = if stream.interval == 0 { 1 } else { height + 16 };
    unstuff(stream.src, scan.data, most, &mut work.entropy, &mut work.segments)?;
    let mut restarts = Restarts::new(&work.entropy, &work.segments, stream.interval);
    for row in rows.above.iter_mut().chain(&mut rows.current) {
        grow(row, width)?;
    }
    let reader = restarts.reader();
    widest(Frame {
        tables,
        order,
        restarts: &mut restarts,
        reader,
        rows,
        width,
        height,
        precision: u32::from(header.precision),
        predictor: scan.start,
        shift: u32::from(scan.low),
        dst: target.dst,
        stride: target.stride,
    });
    Ok(restarts.damage)
}

/// A whole lossless scan of `N` components.
pub(super) struct Frame<'t, 'a, const N: usize> {
    pub tables: [&'a Table; N],
    /// Position in the frame of each of the scan's components.
    pub order: [usize; N],
    pub restarts: &'t mut Restarts<'a>,
    pub reader: Reader<'a>,
    pub rows: &'t mut PredictorRows,
    pub width: usize,
    pub height: usize,
    pub precision: u32,
    pub predictor: u8,
    pub shift: u32,
    pub dst: &'t mut [u8],
    pub stride: usize,
}

impl<const N: usize> HotLoop for Frame<'_, '_, N> {
    type Output = ();

    #[inline(always)]
    fn run(mut self) {
        let bytes = if self.precision > 8 { 2 } else { 1 };
        let start = 1u16 << (self.precision - self.shift - 1);
        for row in self.rows.above.iter_mut().chain(&mut self.rows.current) {
            row.clear();
            row.resize(self.width, start);
        }
        let mut first = true;
        for y in 0..self.height {
            if self.restarts.due(self.width as u32) {
                self.reader = self.restarts.restart();
                first = true;
            }
            if self.restarts.exhausted {
                // Rows without data are mid grey, as in the other processes.
                first = true;
            }
            // The first sample of a row is predicted from above, the first of the image from mid grey (H.1.2.1).
            let predictor = if first { 1 } else { self.predictor };
            let left: [u16; N] = std::array::from_fn(|n| if first { start } else { self.rows.above[n & 3][0] });
            if self.restarts.exhausted {
                for current in self.rows.current.iter_mut().take(N) {
                    current.fill(start);
                }
            } else {
                match predictor {
                    1 => self.row(left, |a, _, _| a),
                    2 => self.row(left, |_, b, _| b),
                    3 => self.row(left, |_, _, c| c),
                    4 => self.row(left, |a, b, c| a.wrapping_add(b).wrapping_sub(c)),
                    5 => self.row(left, |a, b, c| a.wrapping_add(half(b, c))),
                    6 => self.row(left, |a, b, c| b.wrapping_add(half(a, c))),
                    _ => self.row(left, |a, b, _| ((u32::from(a) + u32::from(b)) >> 1) as u16),
                }
                if self.reader.overrun() {
                    self.restarts.exhausted = true;
                    self.restarts.fault(Fault::Truncated);
                }
            }
            first = false;
            let len = self.width * N * bytes;
            let Some(out) = self.dst.get_mut(y * self.stride..).and_then(|d| d.get_mut(..len)) else { return };
            for (n, row) in self.rows.current.iter().take(N).enumerate() {
                for (pixel, &sample) in out.chunks_exact_mut(N * bytes).zip(row) {
                    let sample = sample << self.shift;
                    if bytes == 1 {
                        pixel[n] = sample as u8;
                    } else {
                        pixel[2 * n..2 * n + 2].copy_from_slice(&sample.to_ne_bytes());
                    }
                }
            }
            std::mem::swap(&mut self.rows.above, &mut self.rows.current);
        }
    }
}

/// Half the difference, rounded down (table H.1 divides by an arithmetic shift).
#[inline(always)]
fn half(b: u16, c: u16) -> u16 {
    ((i32::from(b) - i32::from(c)) >> 1) as u16
}

impl<const N: usize> Frame<'_, '_, N> {
    /// Decodes one row; `predict` is given the samples to the left, above, and above left.
    #[inline(always)]
    fn row(&mut self, left: [u16; N], predict: impl Fn(u16, u16, u16) -> u16) {
        let mut reader = self.reader;
        let mut bad = false;
        let (mut a, mut c) = (left, [0u16; N]);
        let mut above: [&[u16]; N] = [&[]; N];
        let mut current: [&mut [u16]; N] = std::array::from_fn(|_| &mut [] as &mut [u16]);
        for (to, row) in current.iter_mut().zip(self.rows.current.iter_mut()) {
            *to = row.as_mut_slice();
        }
        for (n, &order) in self.order.iter().enumerate() {
            above[n] = self.rows.above.get(order).map_or(&[], |r| r.as_slice());
        }
        for x in 0..self.width {
            for n in 0..N {
                reader.refill();
                let difference = self.tables[n].difference(&mut reader, &mut bad) as u16;
                let order = self.order[n] % N;
                let b = above[n].get(x).copied().unwrap_or_default();
                // The first sample of a row has no left neighbour; its substitute is the whole prediction.
                let prediction = if x == 0 { a[n] } else { predict(a[n], b, c[n]) };
                let sample = prediction.wrapping_add(difference);
                if let Some(to) = current[order].get_mut(x) {
                    *to = sample;
                }
                (a[n], c[n]) = (sample, b);
            }
        }
        self.reader = reader;
        if bad {
            self.restarts.fault(Fault::BadCode);
        }
    }
}
