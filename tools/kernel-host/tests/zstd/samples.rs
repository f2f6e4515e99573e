//! Sample data like that of rasters and others, and frames of it with many settings.

use swath_codec::conformance::Rng;

use super::library::{
    BLOCK_SPLITTER, Encoder, FIND_REPEATS, LITERAL_MODE, MAX_BLOCK_SIZE, Sequence, Settings, ZSTD_c_checksumFlag,
    ZSTD_c_compressionLevel, ZSTD_c_contentSizeFlag, ZSTD_c_minMatch, ZSTD_c_strategy, ZSTD_c_targetCBlockSize,
    ZSTD_c_targetLength, ZSTD_c_windowLog,
};

pub(crate) fn below(rng: &mut Rng, end: usize) -> usize {
    (rng.next() >> 11) as usize % end.max(1)
}

pub(crate) fn one_of<T: Copy>(rng: &mut Rng, all: &[T]) -> T {
    all[below(rng, all.len())]
}

pub(crate) fn noise(len: usize, rng: &mut Rng) -> Vec<u8> {
    (0..len).map(|_| (rng.next() >> 32) as u8).collect()
}

pub(crate) fn text(len: usize) -> Vec<u8> {
    let line = |n: usize| format!("{n}: {} of the {} and {} are not\n", n * n % 101, n % 17, n * 31 % 7);
    (0..).flat_map(|n| line(n).into_bytes()).take(len).collect()
}

/// Heights as predictor 3 leaves them: four planes a row, differences along each.
pub(crate) fn terrain(len: usize, rng: &mut Rng) -> Vec<u8> {
    let (mut out, mut height) = (Vec::new(), 900.0_f32);
    while out.len() < len {
        let row: Vec<[u8; 4]> = (0..256)
            .map(|_| {
                height += (below(rng, 101) as f32 - 50.0) / 32.0;
                height.to_be_bytes()
            })
            .collect();
        let planes: Vec<u8> = (0..4).flat_map(|plane| row.iter().map(move |bytes| bytes[plane])).collect();
        out.extend(std::iter::once(planes[0]).chain(planes.windows(2).map(|pair| pair[1].wrapping_sub(pair[0]))));
    }
    out.truncate(len);
    out
}

/// Sixteen-bit samples as predictor 2 leaves them.
pub(crate) fn reflectance(len: usize, rng: &mut Rng) -> Vec<u8> {
    let mut step = || (0..4).map(|_| below(rng, 60) as i16).sum::<i16>() - 118;
    let mut out: Vec<u8> = (0..len.div_ceil(2)).flat_map(|_| step().to_le_bytes()).collect();
    out.truncate(len);
    out
}

/// Patches of classes: runs that the row above has too.
pub(crate) fn classes(len: usize, rng: &mut Rng) -> Vec<u8> {
    let mut out: Vec<u8> = Vec::new();
    while out.len() < len {
        let (run, class) = (1 + below(rng, 40), below(rng, 9) as u8);
        if out.len() >= 256 && below(rng, 4) > 0 {
            let from = out.len() - 256;
            out.extend_from_within(from..from + run);
        } else {
            out.extend(std::iter::repeat_n(class, run));
        }
    }
    out.truncate(len);
    out
}

/// Pieces of a short noise, one after the other.
fn pieces(len: usize, rng: &mut Rng) -> Vec<u8> {
    let mut out = noise(1024, rng);
    while out.len() < len {
        let (from, count) = (below(rng, 1000), 4 + below(rng, 6));
        out.extend_from_within(from..from + count);
    }
    out.truncate(len);
    out
}

pub(crate) fn period(len: usize, period: usize, rng: &mut Rng) -> Vec<u8> {
    noise(period, rng).into_iter().cycle().take(len).collect()
}

/// Repeats what came a long while before.
pub(crate) fn far(len: usize, rng: &mut Rng) -> Vec<u8> {
    let mut out = noise(len * 2 / 5, rng);
    while out.len() < len {
        if below(rng, 3) == 0 {
            let count = below(rng, 3000);
            out.extend(noise(count, rng));
        }
        let (count, reach) = (64 + below(rng, 20_000), out.len());
        let from = below(rng, reach.saturating_sub(count));
        out.extend_from_within(from..(from + count).min(reach));
    }
    out.truncate(len);
    out
}

/// One of each kind.
pub(crate) fn kinds(len: usize, rng: &mut Rng) -> Vec<Vec<u8>> {
    let sparse = |rng: &mut Rng| if below(rng, 50) == 0 { below(rng, 256) as u8 } else { 0 };
    let reach = 1 + below(rng, 300);
    vec![
        noise(len, rng),
        vec![0xc3; len],
        text(len),
        (0..len).map(|_| sparse(rng)).collect(),
        terrain(len, rng),
        reflectance(len, rng),
        classes(len, rng),
        pieces(len, rng),
        period(len, reach, rng),
        far(len, rng),
        // Few values; and each half as often as the one before: short trees, long codes.
        (0..len).map(|_| below(rng, 3) as u8 + 65).collect(),
        (0..len).map(|_| rng.next().trailing_zeros().min(23) as u8 * 11).collect(),
        (0..len).map(|at| (at / 3) as u8).collect(),
    ]
}

/// Bytes made of chosen literals and matches, from which the library makes a frame with exactly these.
#[derive(Debug, Default)]
pub(crate) struct Woven {
    pub(crate) bytes: Vec<u8>,
    pub(crate) sequences: Vec<Sequence>,
}

impl Woven {
    pub(crate) fn literals(&mut self, literals: &[u8], offset: usize, matched: usize) {
        self.bytes.extend_from_slice(literals);
        let from = self.bytes.len() - offset;
        for at in from..from + matched {
            self.bytes.push(self.bytes[at]);
        }
        let [offset, literals, matched] = [offset, literals.len(), matched].map(|number| number as u32);
        self.sequences.push(Sequence { offset, literals, matched, repeat: 0 });
    }

    pub(crate) fn end_block(&mut self, literals: &[u8]) {
        self.bytes.extend_from_slice(literals);
        self.sequences.push(Sequence { literals: literals.len() as u32, ..Sequence::default() });
    }
}

/// Matches that no search would find: of any distance, overlapping, in a row, near the last ones.
pub(crate) fn woven(len: usize, rng: &mut Rng) -> Woven {
    let (mut made, mut block) = (Woven::default(), 0);
    let values = one_of(rng, &[1, 2, 30, 256]);
    let mut recent = [1, 4, 8];
    while made.bytes.len() < len {
        let count = one_of(rng, &[0, 0, 0, 1, 2, 15, 16, 40]) + usize::from(made.bytes.is_empty());
        let literals: Vec<u8> = (0..count).map(|_| below(rng, values) as u8).collect();
        let reach = made.bytes.len() + count;
        let any = 1 + below(rng, reach);
        let offset = one_of(rng, &[any, reach, 1, 2, recent[0], recent[1], recent[2], recent[0] - 1]).clamp(1, reach);
        recent = [offset, recent[0], recent[1]];
        let matched = one_of(rng, &[3, 3, 4, 5, 18, 34, 35, 66, 67, 130, 400]);
        made.literals(&literals, offset, matched);
        block += count + matched;
        if below(rng, 60) == 0 || block > 2000 {
            let rest = below(rng, 3);
            made.end_block(&noise(rest, rng));
            block = 0;
        }
    }
    made.end_block(&[]);
    made
}

pub(crate) fn settings(rng: &mut Rng) -> Settings {
    let mut all = vec![(ZSTD_c_compressionLevel, below(rng, 29) as i32 - 6)];
    let sometimes = [
        (ZSTD_c_checksumFlag, one_of(rng, &[1, 0, 0])),
        (ZSTD_c_contentSizeFlag, 0),
        (ZSTD_c_strategy, 1 + below(rng, 9) as i32),
        (ZSTD_c_minMatch, 3 + below(rng, 5) as i32),
        (ZSTD_c_targetLength, below(rng, 200) as i32),
        (ZSTD_c_windowLog, 10 + below(rng, 9) as i32),
        (ZSTD_c_targetCBlockSize, 1340 + below(rng, 3000) as i32),
        (LITERAL_MODE, 1 + below(rng, 2) as i32),
        (BLOCK_SPLITTER, 1 + below(rng, 2) as i32),
        (MAX_BLOCK_SIZE, 1024 + below(rng, 3000) as i32),
    ];
    all.extend(sometimes.iter().filter(|_| below(rng, 4) == 0));
    all
}

/// A frame of some kind, or several, and its decoded bytes.
pub(crate) fn any_stream(encoder: &mut Encoder, largest: usize, rng: &mut Rng) -> (Vec<u8>, Vec<u8>) {
    let end = one_of(rng, &[20, 300, largest, largest]).min(largest);
    let len = below(rng, end + 1);
    let settings = settings(rng);
    match below(rng, 10) {
        0..2 => {
            let made = woven(len, rng);
            let more = [(FIND_REPEATS, 1 + below(rng, 2) as i32), (ZSTD_c_windowLog, 20)];
            (encoder.woven(&more, &made.sequences, &made.bytes), made.bytes)
        }
        2 => {
            let (mut stream, mut bytes) = any_stream(encoder, largest / 2, rng);
            let (more, after) = any_stream(encoder, largest / 2, rng);
            stream.extend(more);
            bytes.extend(after);
            (stream, bytes)
        }
        way => {
            let mut all = kinds(len, rng);
            let bytes = all.swap_remove(below(rng, all.len()));
            let stream = if way < 6 {
                let size = 1 + below(rng, len);
                let pieces: Vec<&[u8]> = bytes.chunks(size.max(len / 30 + 1)).collect();
                let length_known = below(rng, 2) == 0;
                encoder.flushed(&settings, &pieces, length_known)
            } else {
                encoder.frame(&settings, &bytes)
            };
            (stream, bytes)
        }
    }
}
