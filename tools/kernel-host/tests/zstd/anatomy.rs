//! Frames by their headers: where blocks and their parts lie, and which forms of each there are.

use std::{collections::BTreeSet, ops::Range};

pub(crate) const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
pub(crate) const RAW: u32 = 0;
pub(crate) const RLE: u32 = 1;
pub(crate) const COMPRESSED: u32 = 2;
pub(crate) const TREELESS: u32 = 3;

/// A frame of a stream; ranges are of the stream's bytes.
#[derive(Debug, Clone)]
pub(crate) struct Frame {
    pub(crate) header: Range<usize>,
    pub(crate) blocks: Vec<Block>,
    pub(crate) content_len: Option<u64>,
    pub(crate) single_segment: bool,
    pub(crate) checksum: bool,
    pub(crate) end: usize,
}

#[derive(Debug, Clone)]
pub(crate) struct Block {
    /// Three bytes before its contents.
    pub(crate) at: usize,
    pub(crate) kind: u32,
    /// Stored bytes, or the bytes that an RLE block stands for.
    pub(crate) size: usize,
    pub(crate) body: Range<usize>,
}

/// What stands in a compressed block before its sequences.
#[derive(Debug, Clone)]
pub(crate) struct Literals {
    pub(crate) kind: u32,
    pub(crate) format: u32,
    pub(crate) streams: usize,
    /// Decoded bytes.
    pub(crate) len: usize,
    /// Stored bytes after the header: tree and streams, or the literals themselves.
    pub(crate) body: Range<usize>,
}

#[derive(Debug, Clone)]
pub(crate) struct Sequences {
    pub(crate) at: usize,
    pub(crate) count: usize,
    /// Bytes of the count.
    pub(crate) count_len: usize,
    /// Of literal lengths, offsets and match lengths.
    pub(crate) modes: [u32; 3],
}

fn little(stream: &[u8], at: usize, len: usize) -> Option<u64> {
    let bytes = stream.get(at..at.checked_add(len)?)?;
    Some(bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

/// The frames of a stream, as far as their headers go on.
pub(crate) fn frames(stream: &[u8]) -> Vec<Frame> {
    let (mut all, mut at) = (Vec::new(), 0);
    while let Some(frame) = frame(stream, at) {
        at = frame.end;
        all.push(frame);
    }
    all
}

fn frame(stream: &[u8], at: usize) -> Option<Frame> {
    if stream.get(at..at + 4)? != MAGIC {
        return None;
    }
    let descriptor = little(stream, at + 4, 1)? as usize;
    let (single_segment, checksum) = (descriptor & 0x20 != 0, descriptor & 4 != 0);
    let content = at + 5 + usize::from(!single_segment) + [0, 1, 2, 4][descriptor & 3];
    let size = [usize::from(single_segment), 2, 4, 8][descriptor >> 6];
    let content_len = match size {
        0 => None,
        2 => Some(little(stream, content, 2)? + 256),
        _ => Some(little(stream, content, size)?),
    };
    let header = at..content + size;
    let (mut blocks, mut at) = (Vec::new(), header.end);
    loop {
        let number = little(stream, at, 3)?;
        let (kind, size) = ((number >> 1 & 3) as u32, (number >> 3) as usize);
        let body = at + 3..at + 3 + if kind == RLE { 1 } else { size };
        stream.get(body.clone())?;
        let block = Block { at, kind, size, body };
        at = block.body.end;
        blocks.push(block);
        if number & 1 != 0 {
            break;
        }
    }
    let end = at + if checksum { 4 } else { 0 };
    stream.get(at..end)?;
    Some(Frame { header, blocks, content_len, single_segment, checksum, end })
}

pub(crate) fn literals(stream: &[u8], block: &Block) -> Option<Literals> {
    let (at, inside) = (block.body.start, &stream[..block.body.end]);
    let first = little(inside, at, 1)?;
    let (kind, format) = ((first & 3) as u32, (first >> 2 & 3) as u32);
    if kind == RAW || kind == RLE {
        let (header, shift) = [(1, 3), (2, 4), (1, 3), (3, 4)][format as usize];
        let len = (little(inside, at, header)? >> shift) as usize;
        let body = at + header..at + header + if kind == RLE { 1 } else { len };
        inside.get(body.clone())?;
        return Some(Literals { kind, format, streams: 0, len, body });
    }
    let (header, bits) = [(3, 10), (3, 10), (4, 14), (5, 18)][format as usize];
    let number = little(inside, at, header)?;
    let (len, stored) = ((number >> 4) as usize & ((1 << bits) - 1), (number >> (4 + bits)) as usize);
    let body = at + header..at + header + stored;
    inside.get(body.clone())?;
    Some(Literals { kind, format, streams: if format == 0 { 1 } else { 4 }, len, body })
}

pub(crate) fn sequences(stream: &[u8], block: &Block) -> Option<Sequences> {
    let (at, inside) = (literals(stream, block)?.body.end, &stream[..block.body.end]);
    let first = little(inside, at, 1)? as usize;
    let (count, count_len) = match first {
        0..128 => (first, 1),
        128..255 => (((first - 128) << 8) + little(inside, at + 1, 1)? as usize, 2),
        _ => (little(inside, at + 1, 2)? as usize + 0x7f00, 3),
    };
    let modes = if count == 0 { 0 } else { little(inside, at + count_len, 1)? };
    Some(Sequences { at, count, count_len, modes: [6, 4, 2].map(|shift| (modes >> shift & 3) as u32) })
}

/// The forms that were met, by name.
#[derive(Debug, Default)]
pub(crate) struct Met(pub(crate) BTreeSet<String>);

impl Met {
    fn note(&mut self, name: impl Into<String>) {
        self.0.insert(name.into());
    }

    pub(crate) fn stream(&mut self, stream: &[u8]) {
        let all = frames(stream);
        assert_eq!(all.last().map_or(0, |frame| frame.end), stream.len(), "the headers do not lead to the end");
        if all.len() > 1 {
            self.note("several frames");
        }
        for frame in all {
            self.note(format!("content size {}", frame.content_len.is_some()));
            self.note(format!("single segment {}", frame.single_segment));
            self.note(format!("checksum {}", frame.checksum));
            let count = frame.blocks.len();
            self.note(format!(
                "blocks {}",
                if count > 100 {
                    "> 100"
                } else if count > 1 {
                    "> 1"
                } else {
                    "1"
                }
            ));
            for block in frame.blocks {
                let empty = if block.size == 0 { ", empty" } else { "" };
                self.note(format!("block {}{empty}", ["raw", "RLE", "compressed"][block.kind as usize]));
                if block.kind == COMPRESSED {
                    self.compressed(stream, &block);
                }
            }
        }
    }

    fn compressed(&mut self, stream: &[u8], block: &Block) {
        let literals = literals(stream, block).unwrap();
        let kind = ["raw", "RLE", "Huffman", "treeless"][literals.kind as usize];
        self.note(format!(
            "literals {kind}, format {}",
            if literals.kind < 2 && literals.format == 2 { 0 } else { literals.format }
        ));
        if literals.len == 0 {
            self.note("literals none");
        }
        if literals.kind == COMPRESSED {
            let direct = stream[literals.body.start] >= 128;
            self.note(format!("weights {}", if direct { "direct" } else { "FSE" }));
        }
        let sequences = sequences(stream, block).unwrap();
        if sequences.count == 0 {
            self.note("sequences none");
            return;
        }
        self.note(format!("sequences counted in {}", sequences.count_len));
        for (field, mode) in ["lengths of literals", "offsets", "lengths of matches"].iter().zip(sequences.modes) {
            self.note(format!("{field} {}", ["predefined", "RLE", "FSE", "repeat"][mode as usize]));
        }
    }

    /// Every name there is.
    pub(crate) fn all() -> BTreeSet<String> {
        let mut names: Vec<String> = Vec::new();
        for name in ["content size", "single segment", "checksum"] {
            names.extend([format!("{name} true"), format!("{name} false")]);
        }
        names.extend(["1", "> 1", "> 100"].map(|count| format!("blocks {count}")));
        names.extend(["raw", "raw, empty", "RLE", "compressed"].map(|kind| format!("block {kind}")));
        names.extend([0, 1, 3].map(|format| format!("literals raw, format {format}")));
        names.extend([0, 1, 3].map(|format| format!("literals RLE, format {format}")));
        names.extend([0, 1, 2, 3].map(|format| format!("literals Huffman, format {format}")));
        names.extend([0, 1, 2, 3].map(|format| format!("literals treeless, format {format}")));
        names.extend(
            ["several frames", "literals none", "weights direct", "weights FSE", "sequences none"].map(String::from),
        );
        names.extend([1, 2, 3].map(|len| format!("sequences counted in {len}")));
        for field in ["lengths of literals", "offsets", "lengths of matches"] {
            names.extend(["predefined", "RLE", "FSE", "repeat"].map(|mode| format!("{field} {mode}")));
        }
        names.into_iter().collect()
    }
}
