//! An encoder for the tests: plain T.4 and T.6, one bit at a time.

use super::codes::{BLACK_MAKE_UP, BLACK_TERM, MAKE_UP, MODE_CODES, Mode, WHITE_MAKE_UP, WHITE_TERM};

pub(super) const EOL: &str = "000000000001";

/// The bits written so far.
#[derive(Default)]
pub(super) struct Writer {
    bytes: Vec<u8>,
    free: u32,
}

impl Writer {
    pub(super) fn put(&mut self, code: &str) {
        for bit in code.bytes() {
            if self.free == 0 {
                self.bytes.push(0);
                self.free = 8;
            }
            self.free -= 1;
            if bit == b'1'
                && let Some(last) = self.bytes.last_mut()
            {
                *last |= 1 << self.free;
            }
        }
    }

    /// Zeros up to a place `ahead` bits before a multiple of `bits` bits.
    pub(super) fn align(&mut self, bits: usize, ahead: usize) {
        while !(self.bytes.len() * 8 - self.free as usize + ahead).is_multiple_of(bits) {
            self.put("0");
        }
    }

    pub(super) fn finish(self) -> Vec<u8> {
        self.bytes
    }

    pub(super) fn run(&mut self, mut len: usize, black: bool) {
        while len >= 2560 {
            self.put(MAKE_UP[12]);
            len -= 2560;
        }
        if len >= 1792 {
            self.put(MAKE_UP[(len - 1792) / 64]);
            len %= 64;
        } else if len >= 64 {
            self.put(if black { BLACK_MAKE_UP } else { WHITE_MAKE_UP }[len / 64 - 1]);
            len %= 64;
        }
        self.put(if black { BLACK_TERM } else { WHITE_TERM }[len]);
    }

    pub(super) fn row_1d(&mut self, row: &[bool]) {
        let (mut at, mut black) = (0, false);
        while at < row.len() {
            let end = run_end(row, at, black);
            self.run(end - at, black);
            (at, black) = (end, !black);
        }
    }

    pub(super) fn row_2d(&mut self, row: &[bool], above: &[bool]) {
        let (mut a0, mut black, mut start) = (0, false, true);
        while a0 < row.len() {
            let a1 = run_end(row, a0, black);
            let b1 = change(above, a0, black, start);
            let b2 = run_end(above, b1, !black);
            let shift = a1 as i64 - b1 as i64;
            if b2 < a1 {
                self.mode(|mode| matches!(mode, Mode::Pass));
                a0 = b2;
            } else if shift.abs() <= 3 {
                self.mode(|mode| matches!(mode, Mode::Vertical(by) if i64::from(by) == shift));
                (a0, black) = (a1, !black);
            } else {
                let a2 = run_end(row, a1, !black);
                self.mode(|mode| matches!(mode, Mode::Horizontal));
                self.run(a1 - a0, black);
                self.run(a2 - a1, !black);
                a0 = a2;
            }
            start = false;
        }
    }

    fn mode(&mut self, wanted: impl Fn(Mode) -> bool) {
        let code = MODE_CODES.iter().find(|(_, mode)| wanted(*mode)).map_or("", |(code, _)| *code);
        self.put(code);
    }
}

/// The end of the run of `black` pixels, maybe none, at `at`.
fn run_end(row: &[bool], at: usize, black: bool) -> usize {
    (at..row.len()).find(|&x| row[x] != black).unwrap_or(row.len())
}

/// The first change of `above` to the colour other than `black` that lies right of `a0`, or at it if the row starts there.
fn change(above: &[bool], a0: usize, black: bool, start: bool) -> usize {
    let first = if start { a0 } else { a0 + 1 };
    (first..above.len())
        .find(|&x| {
            let before = x > 0 && above[x - 1];
            above[x] != black && before == black
        })
        .unwrap_or(above.len())
}

/// How to code an image.
#[derive(Clone, Copy, Debug)]
pub(super) enum Coding {
    Rle { align: usize },
    Group3 { k: Option<usize>, aligned: bool, first_eol: bool, return_to_control: bool },
    Group4 { end_of_block: bool },
}

pub(super) fn encode(image: &[Vec<bool>], coding: Coding) -> Vec<u8> {
    let mut out = Writer::default();
    let white = vec![false; image.first().map_or(0, Vec::len)];
    for (y, row) in image.iter().enumerate() {
        let above = if y == 0 { &white } else { &image[y - 1] };
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
                    Some(k) if y % k != 0 => {
                        out.put("0");
                        out.row_2d(row, above);
                    }
                    Some(_) => {
                        out.put("1");
                        out.row_1d(row);
                    }
                    None => out.row_1d(row),
                }
            }
            Coding::Group4 { .. } => out.row_2d(row, above),
        }
    }
    match coding {
        Coding::Group3 { k, return_to_control: true, .. } => {
            for _ in 0..6 {
                out.put(EOL);
                if k.is_some() {
                    out.put("1");
                }
            }
        }
        Coding::Group4 { end_of_block: true } => {
            out.put(EOL);
            out.put(EOL);
        }
        _ => {}
    }
    out.finish()
}
