//! Marker segments (T.81 annex B): tables, frame and scan headers.

use super::error::{JpegError, boxed};
use super::huffman::{Class, Table};
use crate::jpeg::zigzag;

/// [`ZIGZAG`](zigzag::ZIGZAG), followed by 64 entries that catch runs overshooting the block. libjpeg puts those there too.
pub(super) const ZIGZAG: [u8; 128] = {
    let mut table = [63u8; 128];
    let mut i = 0;
    while i < 64 {
        table[i] = zigzag::ZIGZAG[i];
        i += 1;
    }
    table
};

/// How the samples are coded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Process {
    /// SOF0.
    Baseline,
    /// SOF1: extended sequential, Huffman coded.
    Extended,
    /// SOF2: progressive, Huffman coded.
    Progressive,
    /// SOF3: lossless, Huffman coded.
    Lossless,
}

/// A component of the frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Component {
    /// Identifier scans use.
    pub id: u8,
    /// Horizontal sampling factor.
    pub h: u8,
    /// Vertical sampling factor.
    pub v: u8,
    pub(super) quant: u8,
}

/// What the frame header (and an Adobe APP14 segment) say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// Columns.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// Bits in a sample.
    pub precision: u8,
    /// One to four components.
    pub components: Vec<Component>,
    /// Coding process.
    pub process: Process,
    /// Transform flag of an Adobe APP14 segment: 0 none, 1 YCbCr, 2 YCCK.
    pub adobe_transform: Option<u8>,
}

/// One component's part in a scan: its index in the frame and its table slots.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ScanComponent {
    pub index: usize,
    pub dc: u8,
    pub ac: u8,
}

/// A scan header.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scan {
    components: [ScanComponent; 4],
    count: usize,
    /// Spectral selection; the predictor, in lossless scans.
    pub start: u8,
    pub end: u8,
    /// Successive approximation; the point transform is `low` in lossless scans.
    pub high: u8,
    pub low: u8,
    /// Where the header is.
    pub offset: u64,
    /// Where the entropy-coded data begins.
    pub data: usize,
}

impl Scan {
    pub fn components(&self) -> &[ScanComponent] {
        self.components.get(..self.count).unwrap_or_default()
    }
}

/// Tables of an abbreviated stream (the TIFF `JPEGTables` field), ready for decoding; parsed once and shared by every tile.
#[derive(Debug, Clone, Default)]
pub struct Tables {
    quant: [Option<[u16; 64]>; 4],
    dc: [Option<Box<[Table; 1]>>; 4],
    ac: [Option<Box<[Table; 1]>>; 4],
}

impl Tables {
    /// Reads a table-specification stream: SOI, tables, EOI.
    ///
    /// A restart interval in it has no effect: libjpeg forgets the interval at the SOI of the tile.
    pub fn parse(src: &[u8]) -> Result<Self, JpegError> {
        let mut tables = StreamTables::default();
        let mut markers = Markers::new(src)?;
        // Without EOI the tables seen so far hold, as libtiff has it.
        while let Some((marker, offset)) = markers.next() {
            match marker {
                0xD9 => break,
                0xC4 | 0xDB => tables.define(marker, markers.segment(offset)?, offset)?,
                0x01 | 0xD0..=0xD8 => {}
                0xC0..=0xCF | 0xDA => {
                    return Err(JpegError::Malformed { what: "image data in a table stream", offset });
                }
                _ => {
                    markers.segment(offset)?;
                }
            }
        }
        Ok(tables.tables)
    }
}

/// Tables a stream defines itself. Those of the last stream stay in memory, to be used again when a definition repeats.
#[derive(Debug, Default)]
pub(super) struct StreamTables {
    tables: Tables,
    quant: [bool; 4],
    dc: [bool; 4],
    ac: [bool; 4],
}

impl StreamTables {
    /// Clears the definitions, but keeps the built tables for reuse.
    pub fn clear(&mut self) {
        (self.quant, self.dc, self.ac) = ([false; 4], [false; 4], [false; 4]);
    }

    /// Takes a DQT (0xDB) or DHT (0xC4) segment.
    pub fn define(&mut self, marker: u8, segment: &[u8], offset: u64) -> Result<(), JpegError> {
        if marker == 0xC4 { self.define_huffman(segment, offset) } else { self.define_quant(segment, offset) }
    }

    fn define_quant(&mut self, mut segment: &[u8], offset: u64) -> Result<(), JpegError> {
        let short = JpegError::Malformed { what: "DQT is too short for its tables", offset };
        while let Some((&kind, rest)) = segment.split_first() {
            let slot = usize::from(kind & 15);
            let width = match kind >> 4 {
                0 => 1,
                1 => 2,
                _ => return Err(JpegError::Malformed { what: "DQT precision is neither 8 nor 16 bits", offset }),
            };
            let (Some(quant), Some(defined)) = (self.tables.quant.get_mut(slot), self.quant.get_mut(slot)) else {
                return Err(JpegError::Malformed { what: "DQT table number is over 3", offset });
            };
            let (values, rest) = rest.split_at_checked(64 * width).ok_or(short)?;
            let mut natural = [0u16; 64];
            for (value, &at) in values.chunks_exact(width).zip(&ZIGZAG) {
                natural[usize::from(at)] = value.iter().fold(0, |sum, &b| sum << 8 | u16::from(b));
            }
            *quant = Some(natural);
            *defined = true;
            segment = rest;
        }
        Ok(())
    }

    fn define_huffman(&mut self, mut segment: &[u8], offset: u64) -> Result<(), JpegError> {
        let short = JpegError::Malformed { what: "DHT is too short for its tables", offset };
        while let Some((&kind, rest)) = segment.split_first() {
            let (counts, rest) = rest.split_first_chunk::<16>().ok_or(short)?;
            let total = counts.iter().map(|&c| usize::from(c)).sum();
            let (symbols, rest) = rest.split_at_checked(total).ok_or(short)?;
            let slot = usize::from(kind & 15);
            let (class, slots, defined) = match kind >> 4 {
                0 => (Class::Dc, &mut self.tables.dc, &mut self.dc),
                1 => (Class::Ac, &mut self.tables.ac, &mut self.ac),
                _ => return Err(JpegError::Malformed { what: "DHT class is neither DC nor AC", offset }),
            };
            let (Some(table), Some(defined)) = (slots.get_mut(slot), defined.get_mut(slot)) else {
                return Err(JpegError::Malformed { what: "DHT table number is over 3", offset });
            };
            if !table.as_ref().is_some_and(|t| t[0].is(counts, symbols)) {
                let bad = JpegError::Malformed { what: "DHT is not a prefix code", offset };
                let built = Table::new(class, counts, symbols).ok_or(bad)?;
                match table {
                    Some(table) => **table = [built],
                    None => *table = Some(boxed(built)?),
                }
            }
            *defined = true;
            segment = rest;
        }
        Ok(())
    }

    /// The quantisation table in a slot: the stream's own, else the shared one.
    pub fn quant<'a>(&'a self, shared: Option<&'a Tables>, slot: u8, offset: u64) -> Result<&'a [u16; 64], JpegError> {
        find(&self.tables.quant, &self.quant, shared.map(|t| &t.quant), slot).ok_or(JpegError::MissingTable {
            kind: "quantisation",
            slot,
            offset,
        })
    }

    /// The Huffman table in a slot, likewise.
    pub fn huffman<'a>(
        &'a self,
        shared: Option<&'a Tables>,
        class: Class,
        slot: u8,
        offset: u64,
    ) -> Result<&'a Table, JpegError> {
        let (stream_tables, defined, shared, kind) = match class {
            Class::Dc => (&self.tables.dc, &self.dc, shared.map(|t| &t.dc), "DC Huffman"),
            Class::Ac => (&self.tables.ac, &self.ac, shared.map(|t| &t.ac), "AC Huffman"),
        };
        let table = find(stream_tables, defined, shared, slot);
        table.map(|t| &t[0]).ok_or(JpegError::MissingTable { kind, slot, offset })
    }
}

fn find<'a, T>(
    stream_tables: &'a [Option<T>; 4],
    defined: &[bool; 4],
    shared: Option<&'a [Option<T>; 4]>,
    slot: u8,
) -> Option<&'a T> {
    let slot = usize::from(slot);
    let from = if *defined.get(slot)? { Some(stream_tables) } else { shared };
    from?.get(slot)?.as_ref()
}

/// Iterates over the marker segments of a stream.
pub(super) struct Markers<'a> {
    src: &'a [u8],
    at: usize,
}

impl<'a> Markers<'a> {
    pub fn new(src: &'a [u8]) -> Result<Self, JpegError> {
        if !src.starts_with(&[0xFF, 0xD8]) {
            return Err(JpegError::NoStart);
        }
        Ok(Self { src, at: 2 })
    }

    pub fn seek(&mut self, at: usize) {
        self.at = at;
    }

    pub fn position(&self) -> usize {
        self.at
    }

    /// Skips to the next marker and returns it with its offset.
    pub fn next(&mut self) -> Option<(u8, u64)> {
        loop {
            let rest = self.src.get(self.at..)?;
            self.at += rest.iter().position(|&b| b == 0xFF)?;
            let rest = self.src.get(self.at..)?;
            let fill = rest.iter().position(|&b| b != 0xFF)?;
            let (code, offset) = (*rest.get(fill)?, self.at + fill - 1);
            self.at += fill + 1;
            if code != 0 {
                return Some((code, offset as u64));
            }
        }
    }

    /// The payload of the segment whose marker was just read.
    pub fn segment(&mut self, offset: u64) -> Result<&'a [u8], JpegError> {
        let truncated = JpegError::Truncated { what: "a marker segment", offset };
        let rest = self.src.get(self.at..).unwrap_or_default();
        let (len, rest) = rest.split_first_chunk::<2>().ok_or(truncated)?;
        let len = usize::from(u16::from_be_bytes(*len));
        let Some(len) = len.checked_sub(2) else {
            return Err(JpegError::Malformed { what: "marker segment length is under 2", offset });
        };
        let payload = rest.get(..len).ok_or(truncated)?;
        self.at += 2 + len;
        Ok(payload)
    }
}

/// Reads a frame header.
pub(super) fn frame(marker: u8, segment: &[u8], offset: u64) -> Result<Header, JpegError> {
    let malformed = |what| JpegError::Malformed { what, offset };
    let process = match marker {
        0xC0 => Process::Baseline,
        0xC1 => Process::Extended,
        0xC2 => Process::Progressive,
        0xC3 => Process::Lossless,
        0xC5..=0xC7 | 0xCD..=0xCF => return Err(JpegError::Unsupported { what: "hierarchical JPEG", offset }),
        _ => return Err(JpegError::Unsupported { what: "arithmetic coding", offset }),
    };
    let (&[precision, h1, h0, w1, w0, count], rest) =
        segment.split_first_chunk::<6>().ok_or(malformed("frame header is too short"))?;
    let (width, height) = (u32::from(u16::from_be_bytes([w1, w0])), u32::from(u16::from_be_bytes([h1, h0])));
    if height == 0 {
        return Err(JpegError::Unsupported { what: "a frame height given later (DNL)", offset });
    }
    if width == 0 {
        return Err(malformed("frame width is 0"));
    }
    match (process, precision) {
        (Process::Lossless, 2..=16) | (_, 8 | 12) => {}
        _ => return Err(JpegError::Unsupported { what: "this sample precision", offset }),
    }
    if !(1..=4).contains(&count) {
        return Err(JpegError::Unsupported { what: "a frame of other than 1 to 4 components", offset });
    }
    if rest.len() != usize::from(count) * 3 {
        return Err(malformed("frame header length does not fit its components"));
    }
    let mut components = Vec::with_capacity(4);
    for part in rest.chunks_exact(3) {
        if let &[id, hv, quant] = part {
            let (h, v) = (hv >> 4, hv & 15);
            if !(1..=4).contains(&h) || !(1..=4).contains(&v) {
                return Err(malformed("sampling factor is not 1 to 4"));
            }
            components.push(Component { id, h, v, quant });
        }
    }
    Ok(Header { width, height, precision, components, process, adobe_transform: None })
}

/// Reads a scan header; `data` is where its entropy-coded data begins.
pub(super) fn scan(segment: &[u8], frame: &Header, data: usize, offset: u64) -> Result<Scan, JpegError> {
    let malformed = |what| JpegError::Malformed { what, offset };
    let (&count, rest) = segment.split_first().ok_or(malformed("scan header is too short"))?;
    let count = usize::from(count);
    if !(1..=4).contains(&count) || rest.len() != count * 2 + 3 {
        return Err(malformed("scan header length does not fit its components"));
    }
    let (parts, tail) = rest.split_at(count * 2);
    let &[start, end, approximation] = tail else { return Err(malformed("scan header is too short")) };
    let mut components = [ScanComponent::default(); 4];
    let mut used = [false; 4];
    for (part, to) in parts.chunks_exact(2).zip(&mut components) {
        let &[id, tables] = part else { continue };
        let found = frame.components.iter().zip(&mut used).position(|(c, used)| {
            let hit = c.id == id && !*used;
            *used |= hit;
            hit
        });
        let index = found.ok_or(malformed("scan names a component the frame does not have"))?;
        *to = ScanComponent { index, dc: tables >> 4, ac: tables & 15 };
    }
    let (high, low) = (approximation >> 4, approximation & 15);
    Ok(Scan { components, count, start, end, high, low, offset, data })
}

/// The transform flag of an APP14 segment, where it is Adobe's.
pub(super) fn adobe(segment: &[u8]) -> Option<u8> {
    if segment.starts_with(b"Adobe") { segment.get(11).copied() } else { None }
}
