//! Makes damaged streams: some damaged anywhere, some in headers and tables, some assembled from parts of others.

use swath_codec::conformance::Rng;

use super::{
    anatomy::{self, Block, COMPRESSED, MAGIC},
    library::{Decoder, Encoder},
    samples::{any_stream, below, noise, one_of},
};

/// The longest decoded stream that is compared.
const ROOM: usize = 300_000;

/// A stream and the length of its tile.
pub(crate) type Case = (Vec<u8>, usize);

/// The streams that damaged ones are made from.
#[derive(Debug)]
pub(crate) struct Sources {
    streams: Vec<Case>,
    /// The blocks of all streams.
    blocks: Vec<(usize, Block)>,
}

impl Sources {
    pub(crate) fn new(count: usize, largest: usize, rng: &mut Rng) -> Self {
        let mut encoder = Encoder::new();
        let (mut streams, mut blocks) = (Vec::new(), Vec::new());
        for number in 0..count {
            let (stream, bytes) = any_stream(&mut encoder, largest, rng);
            let frames = anatomy::frames(&stream);
            blocks.extend(frames.into_iter().flat_map(|frame| frame.blocks).map(|block| (number, block)));
            streams.push((stream, bytes.len()));
        }
        Self { streams, blocks }
    }

    /// Returns a damaged stream, and the length that it or its source decodes to.
    pub(crate) fn case(&self, decoder: &mut Decoder, rng: &mut Rng) -> Case {
        let (stream, usual) = &self.streams[below(rng, self.streams.len())];
        let mut len_of = |stream: &[u8]| decoder.decode(stream, ROOM).map(|bytes| bytes.len());
        let (stream, anew) = match below(rng, 10) {
            0..3 => (hurt(stream, rng), below(rng, 2) == 0),
            3..6 => (hurt_headers(stream, rng), below(rng, 4) > 0),
            6 => (stretch(stream, rng), below(rng, 4) == 0),
            _ => {
                let (mut stream, lax) = self.put_together(rng);
                if below(rng, 3) == 0 {
                    stream = hurt_headers(&stream, rng);
                }
                let len = len_of(&stream).or_else(|| len_of(&lax));
                return (stream, len.unwrap_or(*usual));
            }
        };
        let len = if anew { len_of(&stream) } else { None };
        (stream, len.unwrap_or(*usual))
    }

    /// Assembles frames from blocks of several streams: repeated tables and offsets then refer to those of others, or
    /// to none. Also returns the same blocks in one frame.
    fn put_together(&self, rng: &mut Rng) -> (Vec<u8>, Vec<u8>) {
        // Neither single segment nor content size; a window of 256 KiB, or of 1 KiB, which makes blocks too long.
        let header = [&MAGIC[..], &[0, one_of(rng, &[0x40, 0x40, 0x40, 0])]].concat();
        let (mut out, mut one) = (header.clone(), header.clone());
        let count = 1 + below(rng, 6);
        for nth in 0..count {
            let last = nth + 1 == count;
            let frame_ends = last || below(rng, 8) == 0;
            let (number, block) = &self.blocks[below(rng, self.blocks.len())];
            let mut body = self.streams[*number].0[block.body.clone()].to_vec();
            let mut size = block.size;
            if block.kind == COMPRESSED && below(rng, 3) == 0 {
                let (other, second) = &self.blocks[below(rng, self.blocks.len())];
                if second.kind == COMPRESSED
                    && let Some(first) = anatomy::literals(&self.streams[*number].0, block)
                    && let Some(second_part) = anatomy::sequences(&self.streams[*other].0, second)
                {
                    body.truncate(first.body.end - block.body.start);
                    body.extend_from_slice(&self.streams[*other].0[second_part.at..second.body.end]);
                    size = body.len();
                }
            }
            for (out, last) in [(&mut out, frame_ends), (&mut one, last)] {
                let head = (size as u32) << 3 | block.kind << 1 | u32::from(last);
                out.extend_from_slice(&head.to_le_bytes()[..3]);
                out.extend_from_slice(&body);
            }
            if frame_ends && !last {
                out.extend_from_slice(&header);
            }
        }
        (out, one)
    }
}

/// Damages any bytes, without regard to the format.
fn hurt(stream: &[u8], rng: &mut Rng) -> Vec<u8> {
    let mut stream = stream.to_vec();
    let len = stream.len();
    match below(rng, 8) {
        0 => stream.truncate(below(rng, len)),
        1 => {
            let keep = below(rng, len);
            stream[keep..].copy_from_slice(&noise(len - keep, rng));
        }
        2 => {
            let (at, count) = (below(rng, len), below(rng, 20));
            stream.splice(at..at, noise(count, rng));
        }
        3 => {
            let (from, to) = (below(rng, len), below(rng, len));
            stream.drain(from.min(to)..from.max(to));
        }
        _ => {
            for _ in 0..=below(rng, 3) {
                let at = below(rng, len);
                stream[at] ^= 1 << below(rng, 8);
            }
        }
    }
    stream
}

/// Makes a block longer or shorter, by bytes at the end of one of its parts.
fn stretch(stream: &[u8], rng: &mut Rng) -> Vec<u8> {
    let frames = anatomy::frames(stream);
    let mut out = stream.to_vec();
    let Some(frame) = frames.get(below(rng, frames.len())) else { return out };
    let block = &frame.blocks[below(rng, frame.blocks.len())];
    let literals = anatomy::literals(stream, block).filter(|_| block.kind == COMPRESSED);
    let end =
        literals.map_or(block.body.end, |literals| one_of(rng, &[block.body.end, block.body.end, literals.body.end]));
    let count = 1 + below(rng, 3).min(block.body.len());
    let size = if below(rng, 2) == 0 || block.body.len() < count {
        out.splice(end..end, noise(count, rng));
        block.size + count
    } else {
        out.drain(end - count.min(end - block.body.start)..end);
        block.size.saturating_sub(count)
    };
    let header = (size as u32) << 3 | u32::from(out[block.at] & 7);
    out[block.at..block.at + 3].copy_from_slice(&header.to_le_bytes()[..3]);
    out
}

/// Changes bits of headers and tables, and sometimes of the contents.
fn hurt_headers(stream: &[u8], rng: &mut Rng) -> Vec<u8> {
    let frames = anatomy::frames(stream);
    let mut hurt = stream.to_vec();
    let Some(frame) = frames.get(below(rng, frames.len())) else { return hurt };
    let block = &frame.blocks[below(rng, frame.blocks.len())];
    let literals = anatomy::literals(stream, block).filter(|_| block.kind == COMPRESSED);
    let sequences = anatomy::sequences(stream, block).filter(|_| block.kind == COMPRESSED);
    let (place, bytes) = match (below(rng, 9), literals, sequences) {
        (0, _, _) => (frame.header.start, frame.header.len()),
        (1 | 2, Some(literals), _) => (block.body.start, literals.body.start - block.body.start),
        // The tree, or the jump table.
        (3, Some(literals), _) => (literals.body.start, 24),
        (4, _, Some(sequences)) => (sequences.at, sequences.count_len),
        (5, _, Some(sequences)) => (sequences.at + sequences.count_len, 1),
        (6, _, Some(sequences)) => (sequences.at + sequences.count_len + 1, 12),
        // A backward stream starts at its end.
        (7, _, _) => (block.body.end.saturating_sub(6), 6),
        _ => (block.at, 3),
    };
    for _ in 0..one_of(rng, &[1, 1, 1, 2]) {
        let at = (place + below(rng, bytes)).min(hurt.len() - 1);
        if below(rng, 4) == 0 {
            hurt[at] = below(rng, 256) as u8;
        } else {
            hurt[at] ^= 1 << below(rng, 8);
        }
    }
    hurt
}
