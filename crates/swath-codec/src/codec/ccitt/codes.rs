//! The code words of T.4 tables 2, 3a, 3b and 4, as lookup tables that the decoder indexes with the next bits of the stream.
//!
//! Entries follow libtiff where T.4 is open: eleven zero bits start an EOL and consume only those eleven (`row` handles the fill and
//! the final 1), and invalid bits consume nothing.

/// Bits that index [`WHITE`]: the longest white code.
pub(super) const WHITE_BITS: u32 = 12;
/// Bits that index [`BLACK`]: the longest black code.
pub(super) const BLACK_BITS: u32 = 13;
/// Bits that index [`MODES`]: the longest mode code.
pub(super) const MODE_BITS: u32 = 7;

pub(super) static WHITE: [Code; 1 << WHITE_BITS] = run_table(WHITE_BITS, &WHITE_TERM, &WHITE_MAKE_UP);
pub(super) static BLACK: [Code; 1 << BLACK_BITS] = run_table(BLACK_BITS, &BLACK_TERM, &BLACK_MAKE_UP);
pub(super) static MODES: [ModeCode; 1 << MODE_BITS] = mode_table();

/// What a run-length code word is.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub(super) enum Kind {
    /// Ends a run.
    Term = 0,
    /// Adds a multiple of 64 to a run.
    MakeUp = 1,
    /// Eleven zero bits.
    Eol = 2,
    /// No code of the standard.
    Bad = 3,
}

/// A run-length code: kind in bits 0 and 1, width in bits 2 to 5, run from bit 6 in ones or, for make-up codes, in 64s. Sixteen bits so that both tables take
/// 24 KiB and leave room in a first-level cache.
#[derive(Clone, Copy)]
pub(super) struct Code(u16);

impl Code {
    const fn new(kind: Kind, width: usize, run: usize) -> Code {
        let scaled = if matches!(kind, Kind::MakeUp) { run / 64 } else { run };
        Code(kind as u16 | (width as u16) << 2 | (scaled as u16) << 6)
    }

    #[inline(always)]
    pub(super) fn is_term(self) -> bool {
        self.0 & 3 == Kind::Term as u16
    }

    #[inline(always)]
    pub(super) fn kind(self) -> Kind {
        match self.0 & 3 {
            0 => Kind::Term,
            1 => Kind::MakeUp,
            2 => Kind::Eol,
            _ => Kind::Bad,
        }
    }

    #[inline(always)]
    pub(super) fn width(self) -> u32 {
        u32::from(self.0 >> 2 & 15)
    }

    /// The run of a terminating code.
    #[inline(always)]
    pub(super) fn term(self) -> i32 {
        i32::from(self.0 >> 6)
    }

    /// The run of a make-up code.
    #[inline(always)]
    pub(super) fn make_up(self) -> i32 {
        i32::from(self.0 & !63)
    }
}

/// A mode of two-dimensional coding.
#[derive(Clone, Copy)]
pub(super) enum Mode {
    Pass,
    Horizontal,
    /// a1 is this far right of b1; negative is left.
    Vertical(i8),
    /// The extension escape; its only use in T.4 and T.6 is uncompressed mode.
    Extension,
    /// Seven zero bits, which only an EOL (or EOFB) begins with.
    Eol,
}

#[derive(Clone, Copy)]
pub(super) struct ModeCode {
    pub(super) mode: Mode,
    pub(super) width: u8,
}

/// The range of `bits`-wide indices that begin with `code`.
const fn prefixed(code: &str, bits: u32) -> (usize, usize) {
    let text = code.as_bytes();
    let (mut value, mut i) = (0, 0);
    while i < text.len() {
        value = value << 1 | (text[i] - b'0') as usize;
        i += 1;
    }
    let free = bits as usize - text.len();
    (value << free, (value + 1) << free)
}

const fn set<const N: usize>(
    mut table: [Code; N],
    bits: u32,
    codes: &[&str],
    kind: Kind,
    first: usize,
    step: usize,
) -> [Code; N] {
    let mut i = 0;
    while i < codes.len() {
        let (mut at, end) = prefixed(codes[i], bits);
        while at < end {
            table[at] = Code::new(kind, codes[i].len(), first + i * step);
            at += 1;
        }
        i += 1;
    }
    table
}

const fn run_table<const N: usize>(bits: u32, term: &[&str], make_up: &[&str]) -> [Code; N] {
    let table = [Code::new(Kind::Bad, 0, 0); N];
    let table = set(table, bits, term, Kind::Term, 0, 1);
    let table = set(table, bits, make_up, Kind::MakeUp, 64, 64);
    let table = set(table, bits, &MAKE_UP, Kind::MakeUp, 1792, 64);
    set(table, bits, &["00000000000"], Kind::Eol, 0, 0)
}

const fn mode_table() -> [ModeCode; 1 << MODE_BITS] {
    let mut table = [ModeCode { mode: Mode::Eol, width: 7 }; 1 << MODE_BITS];
    let mut i = 0;
    while i < MODE_CODES.len() {
        let (code, mode) = MODE_CODES[i];
        let (mut at, end) = prefixed(code, MODE_BITS);
        while at < end {
            table[at] = ModeCode { mode, width: code.len() as u8 };
            at += 1;
        }
        i += 1;
    }
    table
}

/// T.4 table 4.
pub(super) const MODE_CODES: [(&str, Mode); 10] = [
    ("0001", Mode::Pass),
    ("001", Mode::Horizontal),
    ("1", Mode::Vertical(0)),
    ("011", Mode::Vertical(1)),
    ("000011", Mode::Vertical(2)),
    ("0000011", Mode::Vertical(3)),
    ("010", Mode::Vertical(-1)),
    ("000010", Mode::Vertical(-2)),
    ("0000010", Mode::Vertical(-3)),
    ("0000001", Mode::Extension),
];

/// T.4 table 2, runs of 0 to 63.
pub(super) const WHITE_TERM: [&str; 64] = [
    "00110101", "000111", "0111", "1000", "1011", "1100", "1110", "1111", "10011", "10100", "00111", "01000", "001000",
    "000011", "110100", "110101", "101010", "101011", "0100111", "0001100", "0001000", "0010111", "0000011", "0000100",
    "0101000", "0101011", "0010011", "0100100", "0011000", "00000010", "00000011", "00011010", "00011011", "00010010",
    "00010011", "00010100", "00010101", "00010110", "00010111", "00101000", "00101001", "00101010", "00101011",
    "00101100", "00101101", "00000100", "00000101", "00001010", "00001011", "01010010", "01010011", "01010100",
    "01010101", "00100100", "00100101", "01011000", "01011001", "01011010", "01011011", "01001010", "01001011",
    "00110010", "00110011", "00110100",
];

/// T.4 table 2, runs of 0 to 63.
pub(super) const BLACK_TERM: [&str; 64] = [
    "0000110111",
    "010",
    "11",
    "10",
    "011",
    "0011",
    "0010",
    "00011",
    "000101",
    "000100",
    "0000100",
    "0000101",
    "0000111",
    "00000100",
    "00000111",
    "000011000",
    "0000010111",
    "0000011000",
    "0000001000",
    "00001100111",
    "00001101000",
    "00001101100",
    "00000110111",
    "00000101000",
    "00000010111",
    "00000011000",
    "000011001010",
    "000011001011",
    "000011001100",
    "000011001101",
    "000001101000",
    "000001101001",
    "000001101010",
    "000001101011",
    "000011010010",
    "000011010011",
    "000011010100",
    "000011010101",
    "000011010110",
    "000011010111",
    "000001101100",
    "000001101101",
    "000011011010",
    "000011011011",
    "000001010100",
    "000001010101",
    "000001010110",
    "000001010111",
    "000001100100",
    "000001100101",
    "000001010010",
    "000001010011",
    "000000100100",
    "000000110111",
    "000000111000",
    "000000100111",
    "000000101000",
    "000001011000",
    "000001011001",
    "000000101011",
    "000000101100",
    "000001011010",
    "000001100110",
    "000001100111",
];

/// T.4 table 3a, runs of 64 to 1728.
pub(super) const WHITE_MAKE_UP: [&str; 27] = [
    "11011",
    "10010",
    "010111",
    "0110111",
    "00110110",
    "00110111",
    "01100100",
    "01100101",
    "01101000",
    "01100111",
    "011001100",
    "011001101",
    "011010010",
    "011010011",
    "011010100",
    "011010101",
    "011010110",
    "011010111",
    "011011000",
    "011011001",
    "011011010",
    "011011011",
    "010011000",
    "010011001",
    "010011010",
    "011000",
    "010011011",
];

/// T.4 table 3a, runs of 64 to 1728.
pub(super) const BLACK_MAKE_UP: [&str; 27] = [
    "0000001111",
    "000011001000",
    "000011001001",
    "000001011011",
    "000000110011",
    "000000110100",
    "000000110101",
    "0000001101100",
    "0000001101101",
    "0000001001010",
    "0000001001011",
    "0000001001100",
    "0000001001101",
    "0000001110010",
    "0000001110011",
    "0000001110100",
    "0000001110101",
    "0000001110110",
    "0000001110111",
    "0000001010010",
    "0000001010011",
    "0000001010100",
    "0000001010101",
    "0000001011010",
    "0000001011011",
    "0000001100100",
    "0000001100101",
];

/// T.4 table 3b, runs of 1792 to 2560 of either colour.
pub(super) const MAKE_UP: [&str; 13] = [
    "00000001000",
    "00000001100",
    "00000001101",
    "000000010010",
    "000000010011",
    "000000010100",
    "000000010101",
    "000000010110",
    "000000010111",
    "000000011100",
    "000000011101",
    "000000011110",
    "000000011111",
];
