//! Encodes rows of packed pixels by T.4 and T.6.

use std::sync::Arc;

use swath_raster::memory::{OutOfMemory, zeroed};
use swath_tiff::Compression;

use super::{
    NAME,
    codes::{BLACK_MAKE_UP, BLACK_TERM, MAKE_UP, WHITE_MAKE_UP, WHITE_TERM},
};
use crate::{
    encode::{Encode, Settings, reserve},
    error::CodecError,
    scratch::Scratch,
    spec::TileSpec,
};

/// CCITT fax of one coding.
#[derive(Debug, Clone, Copy)]
struct Encoder {
    coding: Coding,
}

/// Creates an encoder for the spec's compression and T4Options; it has no settings.
///
/// # Errors
/// When a pixel is not one sample of one bit, or T4Options request uncompressed mode.
pub fn encoder(spec: &TileSpec, _settings: &Settings) -> Result<Arc<dyn Encode>, CodecError> {
    if spec.bits != 1 || spec.samples != 1 {
        let detail = format!("{} samples of {} bits (it takes one sample of one bit)", spec.samples, spec.bits);
        return Err(CodecError::unsupported(NAME, detail));
    }
    let coding = match spec.compression {
        Compression::CcittRle => Coding::Rle { align: 8 },
        Compression::CcittT4 if spec.t4_options & 2 != 0 => {
            return Err(CodecError::unsupported(NAME, "uncompressed mode"));
        }
        Compression::CcittT4 => Coding::Group3 {
            // T.4 requires at least every fourth row to be one-dimensional at the finer of its two resolutions.
            k: (spec.t4_options & 1 != 0).then_some(4),
            aligned: spec.t4_options & 4 != 0,
            first_eol: true,
            return_to_control: false,
        },
        Compression::CcittT6 => Coding::Group4 { end_of_block: true },
        other => return Err(CodecError::unsupported(NAME, format!("writing {other}"))),
    };
    Ok(Arc::new(Encoder { coding }))
}

impl Encode for Encoder {
    /// A pixel takes at most the seven bits of the longest vertical mode. A row also has an EOL and, where it begins black, an empty
    /// white run.
    fn max_encoded_len(&self, spec: &TileSpec, rows: u32) -> usize {
        rows as usize * (spec.width as usize + 8) + 64
    }

    fn encode(
        &self,
        spec: &TileSpec,
        rows: u32,
        src: &[u8],
        dst: &mut Vec<u8>,
        _scratch: &mut Scratch,
    ) -> Result<(), CodecError> {
        let start = dst.len();
        reserve(dst, self.max_encoded_len(spec, rows))?;
        encode(src, spec.width as usize, self.coding, dst)?;
        if spec.bits_reversed {
            dst.iter_mut().skip(start).for_each(|byte| *byte = byte.reverse_bits());
        }
        Ok(())
    }
}

/// The coding of an image.
#[derive(Clone, Copy, Debug)]
pub(super) enum Coding {
    Rle { align: usize },
    Group3 { k: Option<usize>, aligned: bool, first_eol: bool, return_to_control: bool },
    Group4 { end_of_block: bool },
}

/// Appends the encoded rows of `packed`, each of which begins on a byte. The caller has reserved room for them.
///
/// # Errors
/// When the system has no memory for a row.
pub(super) fn encode(packed: &[u8], width: usize, coding: Coding, dst: &mut Vec<u8>) -> Result<(), OutOfMemory> {
    let mut out = Writer::new(dst);
    let row_len = width.div_ceil(8).max(1);
    let white = zeroed(row_len)?;
    let mut above = Row { bytes: &white, width };
    for (y, bytes) in packed.chunks_exact(row_len).enumerate() {
        let row = Row { bytes, width };
        match coding {
            Coding::Rle { align } => {
                out.row_1d(row);
                out.align(align, 0);
            }
            Coding::Group3 { k, aligned, first_eol, .. } => {
                if y > 0 || first_eol {
                    if aligned {
                        out.align(8, 12);
                    }
                    out.put(EOL);
                }
                match k {
                    Some(k) if !y.is_multiple_of(k) => {
                        out.put(Code::new("0"));
                        out.row_2d(row, above);
                    }
                    Some(_) => {
                        out.put(Code::new("1"));
                        out.row_1d(row);
                    }
                    None => out.row_1d(row),
                }
            }
            Coding::Group4 { .. } => out.row_2d(row, above),
        }
        above = row;
    }
    match coding {
        Coding::Group3 { k, return_to_control: true, .. } => {
            for _ in 0..6 {
                out.put(EOL);
                if k.is_some() {
                    out.put(Code::new("1"));
                }
            }
        }
        Coding::Group4 { end_of_block: true } => {
            out.put(EOL);
            out.put(EOL);
        }
        // libtiff loads thirteen bits for a black code, and loses a last row that is shorter than that.
        Coding::Rle { .. } => out.zeros(16),
        _ => {}
    }
    out.finish();
    Ok(())
}

/// A code word.
#[derive(Clone, Copy)]
pub(super) struct Code {
    bits: u16,
    len: u8,
}

impl Code {
    pub(super) const fn new(text: &str) -> Self {
        let text = text.as_bytes();
        let (mut bits, mut at) = (0, 0);
        while at < text.len() {
            bits = bits << 1 | (text[at] - b'0') as u16;
            at += 1;
        }
        Self { bits, len: text.len() as u8 }
    }
}

const fn codes<const N: usize>(texts: &[&str; N]) -> [Code; N] {
    let mut codes = [Code { bits: 0, len: 0 }; N];
    let mut at = 0;
    while at < N {
        codes[at] = Code::new(texts[at]);
        at += 1;
    }
    codes
}

const EOL: Code = Code::new("000000000001");
const PASS: Code = Code::new("0001");
const HORIZONTAL: Code = Code::new("001");
/// a1 from three left of b1 to three right of it.
const VERTICAL: [Code; 7] = codes(&["0000010", "000010", "010", "1", "011", "000011", "0000011"]);

static WHITE: [Code; 64] = codes(&WHITE_TERM);
static BLACK: [Code; 64] = codes(&BLACK_TERM);
static WHITE_LONG: [Code; 27] = codes(&WHITE_MAKE_UP);
static BLACK_LONG: [Code; 27] = codes(&BLACK_MAKE_UP);
static LONGER: [Code; 13] = codes(&MAKE_UP);

/// A row of pixels, the highest bit of a byte first; ones are black.
#[derive(Clone, Copy)]
struct Row<'a> {
    bytes: &'a [u8],
    width: usize,
}

impl Row<'_> {
    fn is_black(self, x: usize) -> bool {
        self.bytes.get(x / 8).is_some_and(|byte| byte << (x % 8) & 0x80 != 0)
    }

    /// Returns the end of the (possibly empty) run of `black` pixels at `x`.
    fn run_end(self, mut x: usize, black: bool) -> usize {
        let same = if black { u64::MAX } else { 0 };
        while x < self.width {
            let rest = self.bytes.get(x / 8..).unwrap_or_default();
            let word = match rest.first_chunk() {
                Some(chunk) => u64::from_be_bytes(*chunk),
                None => {
                    rest.iter()
                        .fold((0, 56_u32), |(word, at), byte| (word | u64::from(*byte) << at, at.saturating_sub(8)))
                        .0
                }
            };
            let shift = x % 8;
            let run = ((word ^ same) << shift).leading_zeros() as usize;
            if run < 64 - shift {
                return (x + run).min(self.width);
            }
            x += 64 - shift;
        }
        self.width
    }
}

/// Writes bits to bytes.
pub(super) struct Writer<'a> {
    out: &'a mut Vec<u8>,
    start: usize,
    /// Pending bits, at the lower end.
    pending: u64,
    count: u32,
}

impl<'a> Writer<'a> {
    pub(super) fn new(out: &'a mut Vec<u8>) -> Self {
        Self { start: out.len(), out, pending: 0, count: 0 }
    }

    #[inline(always)]
    pub(super) fn put(&mut self, code: Code) {
        self.pending = self.pending << code.len | u64::from(code.bits);
        self.count += u32::from(code.len);
        // A code has at most thirteen bits, so it fits beside 48 pending ones.
        if self.count > 48 {
            self.flush();
        }
    }

    fn flush(&mut self) {
        while self.count >= 8 {
            self.count -= 8;
            self.out.push((self.pending >> self.count) as u8);
        }
    }

    fn zeros(&mut self, count: usize) {
        (0..count).for_each(|_| self.put(Code { bits: 0, len: 1 }));
    }

    /// Pads with zeros, so that the position is a multiple of `bits` once `ahead` more bits are written.
    fn align(&mut self, bits: usize, ahead: usize) {
        let at = (self.out.len() - self.start) * 8 + self.count as usize + ahead;
        self.zeros(at.next_multiple_of(bits) - at);
    }

    pub(super) fn finish(mut self) {
        self.flush();
        if self.count > 0 {
            self.out.push((self.pending << (8 - self.count)) as u8);
        }
    }

    fn run(&mut self, mut len: usize, black: bool) {
        while len >= 2560 + 64 {
            self.put(LONGER[12]);
            len -= 2560;
        }
        if let Some(at) = (len / 64).checked_sub(1) {
            let long = if black { &BLACK_LONG } else { &WHITE_LONG };
            let code = long.get(at).or_else(|| LONGER.get(at - long.len()));
            code.into_iter().for_each(|code| self.put(*code));
        }
        let short = if black { &BLACK } else { &WHITE };
        self.put(short[len % 64]);
    }

    fn row_1d(&mut self, row: Row<'_>) {
        let (mut at, mut black) = (0, false);
        while at < row.width {
            let end = row.run_end(at, black);
            self.run(end - at, black);
            (at, black) = (end, !black);
        }
    }

    /// Encodes a row by its differences from the row above (T.6). The names `a0` to `b2` are those of the standard.
    fn row_2d(&mut self, row: Row<'_>, above: Row<'_>) {
        let (mut a0, mut black) = (0, false);
        let mut start = true;
        while a0 < row.width {
            let a1 = row.run_end(a0, black);
            // b1 is the first change of the row above, right of a0, to the opposite colour. A row begins as if a white pixel preceded
            // it.
            let b1 = if start || above.is_black(a0) == black {
                above.run_end(a0, black)
            } else {
                above.run_end(above.run_end(a0, !black), black)
            };
            let b2 = above.run_end(b1, !black);
            if b2 < a1 {
                self.put(PASS);
                a0 = b2;
            } else if let Some(code) = (a1 + 3).checked_sub(b1).and_then(|shift| VERTICAL.get(shift)) {
                self.put(*code);
                (a0, black) = (a1, !black);
            } else {
                let a2 = row.run_end(a1, !black);
                self.put(HORIZONTAL);
                self.run(a1 - a0, black);
                self.run(a2 - a1, !black);
                a0 = a2;
            }
            start = false;
        }
    }
}
