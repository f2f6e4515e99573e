//! Sound compressed tiles of each codec that our kernels decode, and damaged copies of them.

use std::{fmt, ops::Range};

use swath::{Compression, SampleType};
use swath_codec::{Registry, Scratch, TileSpec, conformance, encode::Settings};
use zstd_safe::{CCtx, CParameter, InBuffer, OutBuffer, zstd_sys::ZSTD_EndDirective as End};

use crate::{strict::anatomy, test::cases::Rng};

/// A codec that our own kernels decode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Codec {
    Deflate,
    Lzw,
    PackBits,
    Zstd,
}

impl Codec {
    pub const ALL: [Self; 4] = [Self::Deflate, Self::Lzw, Self::PackBits, Self::Zstd];

    /// The codec of this name, as [`fmt::Display`] prints it.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|codec| codec.to_string() == name)
    }

    /// The compression and its number in a file.
    fn compression(self) -> (Compression, u16) {
        match self {
            Self::Deflate => (Compression::Deflate, 8),
            Self::Lzw => (Compression::Lzw, 5),
            Self::PackBits => (Compression::PackBits, 32773),
            Self::Zstd => (Compression::Zstd, 50000),
        }
    }

    /// Describes a tile that is one row of bytes, so that it may have any length and no predictor changes it.
    pub fn spec(self, width: u32) -> TileSpec {
        let (compression, code) = self.compression();
        TileSpec { height: 1, ..conformance::spec(compression, code, SampleType::U8, 1, width) }
    }
}

impl fmt::Display for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Deflate => "deflate",
            Self::Lzw => "lzw",
            Self::PackBits => "packbits",
            Self::Zstd => "zstd",
        })
    }
}

/// A stream, its decoded bytes, and the positions of its blocks.
pub struct Sound {
    pub stream: Vec<u8>,
    pub content: Vec<u8>,
    /// Zstd's blocks with their headers; for other codecs, quarters of the stream.
    blocks: Vec<Range<usize>>,
}

/// Streams of tiles of one length.
pub struct Stock {
    pub len: usize,
    pub sound: Vec<Sound>,
    /// Sound streams of tiles that are longer, or shorter.
    others: Vec<Vec<u8>>,
}

impl Stock {
    /// Makes `count` streams, the same ones each time for the same codec and length.
    ///
    /// # Errors
    /// When an encoder fails.
    pub fn make(codec: Codec, len: usize, count: u64) -> Result<Self, String> {
        let mut rng = Rng::new(len as u64);
        let sound = (0..count).map(|_| Sound::make(codec, len, &mut rng)).collect::<Result<_, _>>()?;
        // Only Zstd has a stream for an empty tile.
        let shortest = usize::from(codec != Codec::Zstd);
        let lens = [len - 1, len + 1, len / 2, len + 4096, shortest];
        let others: Result<_, String> = lens.iter().map(|len| Ok(Sound::make(codec, *len, &mut rng)?.stream)).collect();
        Ok(Self { len, sound, others: others? })
    }

    /// Writes one of the streams, damaged, to `to`.
    pub fn damaged(&self, rng: &mut Rng, to: &mut Vec<u8>) {
        to.clear();
        let (Some(sound), Some(other)) = (self.any(rng), self.any(rng)) else { return };
        to.extend_from_slice(&sound.stream);
        let len = to.len() as u64;
        match rng.below(16) {
            0..=3 => flip(to, 0..len, rng),
            4 => (0..rng.within(2..6)).for_each(|_| flip(to, 0..len, rng)),
            // Headers and tables: they change how the rest is read.
            5 | 6 => flip(to, 0..len.min(40), rng),
            7 | 8 => {
                if let Some(block) = pick(&sound.blocks, rng) {
                    let head = block.start as u64;
                    flip(to, head..(head + 12).min(len), rng);
                }
            }
            9 => set(to, rng.below(len) as usize, rng.next() as u8),
            10 => to.truncate(rng.below(len) as usize),
            11 => to.extend((0..rng.within(1..20)).map(|_| rng.next() as u8)),
            12 => {
                let (at, from) = (rng.below(len) as usize, rng.below(other.stream.len() as u64) as usize);
                to.truncate(at);
                to.extend(other.stream.iter().skip(from));
            }
            13 => {
                let (at, run) = (rng.below(len) as usize, rng.within(1..64) as usize);
                let byte = rng.pick(&[0, 0xff, 0x55]);
                to.iter_mut().skip(at).take(run).for_each(|place| *place = byte);
            }
            // Blocks of others: sound by themselves, but their tables, offsets and lengths belong elsewhere.
            14 => {
                if let (Some(block), Some(foreign)) = (pick(&sound.blocks, rng), pick(&other.blocks, rng)) {
                    let rest = to.split_off(block.end);
                    to.truncate(block.start);
                    to.extend_from_slice(other.stream.get(foreign).unwrap_or_default());
                    to.extend_from_slice(&rest);
                }
            }
            _ => {
                if let Some(stream) = pick(&self.others, rng) {
                    to.clear();
                    to.extend_from_slice(&stream);
                }
            }
        }
    }

    fn any(&self, rng: &mut Rng) -> Option<&Sound> {
        self.sound.get(rng.below(self.sound.len() as u64) as usize)
    }
}

fn pick<T: Clone>(list: &[T], rng: &mut Rng) -> Option<T> {
    list.get(rng.below(list.len() as u64) as usize).cloned()
}

fn flip(bytes: &mut [u8], range: Range<u64>, rng: &mut Rng) {
    let at = range.start + rng.below(range.end - range.start);
    if let Some(byte) = bytes.get_mut(at as usize) {
        *byte ^= 1 << rng.below(8);
    }
}

fn set(bytes: &mut [u8], at: usize, value: u8) {
    if let Some(byte) = bytes.get_mut(at) {
        *byte = value;
    }
}

impl Sound {
    fn make(codec: Codec, len: usize, rng: &mut Rng) -> Result<Self, String> {
        let content = content(len, rng);
        match codec {
            Codec::Zstd => Self::make_zstd(content, rng),
            _ => Self::encode(codec, content, rng),
        }
    }

    /// Encodes as the CPU encodes tiles of a file, with a level drawn for it.
    fn encode(codec: Codec, content: Vec<u8>, rng: &mut Rng) -> Result<Self, String> {
        let mut settings = Settings::default();
        if codec == Codec::Deflate {
            settings.level = Some(rng.within(1..13));
        }
        let spec = codec.spec(content.len() as u32);
        let encoder = Registry::default().encoder(&spec, &settings).map_err(|error| error.to_string())?;
        let mut stream = Vec::new();
        let encoded = encoder.encode(&spec, 1, &content, &mut stream, &mut Scratch::default());
        encoded.map_err(|error| error.to_string())?;
        let quarter = stream.len().div_ceil(4).max(1);
        let blocks = (0..stream.len()).step_by(quarter).map(|at| at..(at + quarter).min(stream.len())).collect();
        Ok(Self { stream, content, blocks })
    }

    fn make_zstd(content: Vec<u8>, rng: &mut Rng) -> Result<Self, String> {
        let len = content.len();
        let mut stream = Vec::new();
        // Several frames are one stream.
        let frames = if rng.chance(12) { 2 } else { 1 };
        for part in content.chunks(len.div_ceil(frames).max(1)) {
            stream.extend(frame(part, rng)?);
        }
        if content.is_empty() {
            stream = frame(&[], rng)?;
        }
        let frames = anatomy::frames(&stream).into_iter().flat_map(|frame| frame.blocks);
        let blocks = frames.map(|block| block.at..block.body.end).collect();
        Ok(Self { stream, content, blocks })
    }
}

/// Bytes of several kinds: residuals of predictors, and data that produces every kind of block.
fn content(len: usize, rng: &mut Rng) -> Vec<u8> {
    let (temperament, period, reach) = (rng.below(9), rng.within(1..300) as usize, rng.within(1..40));
    let mut out: Vec<u8> = Vec::with_capacity(len);
    let mut value = 0_u8;
    for at in 0..len {
        let noise = rng.next();
        // Small numbers most of the time, of either sign.
        let residual = ((noise >> 40).trailing_zeros() as u8).wrapping_mul(if noise & 1 == 0 { 1 } else { 0xff });
        let back = out.len().checked_sub(period).and_then(|from| out.get(from)).copied();
        out.push(match temperament {
            0 => (noise >> 33) as u8,
            1 => 7,
            2 => residual,
            3 => {
                value = value.wrapping_add(residual);
                value
            }
            4 => back.unwrap_or((noise >> 33) as u8),
            // Repeats with faults in them.
            5 => back.filter(|_| !(noise >> 20).is_multiple_of(50)).unwrap_or((noise >> 33) as u8),
            // Classes.
            6 => {
                if (noise >> 20).is_multiple_of(reach.into()) {
                    value = (noise >> 50) as u8 % 12;
                }
                value
            }
            // Words of few letters.
            7 => b"etaoin shrdlu"[(noise >> 33) as usize % 13],
            _ if at / 3000 % 2 == 0 => residual,
            _ => (noise >> 33) as u8,
        });
    }
    out
}

/// One frame, with parameters drawn for it.
fn frame(content: &[u8], rng: &mut Rng) -> Result<Vec<u8>, String> {
    let words = |code: usize| zstd_safe::get_error_name(code).to_owned();
    let mut context = CCtx::create();
    let levels: &[i32] = if content.len() > 1 << 16 { &[-7, 1, 3, 6, 9] } else { &[-7, 1, 3, 6, 9, 15, 19, 22] };
    let mut parameters = vec![
        CParameter::CompressionLevel(rng.pick(levels)),
        CParameter::ChecksumFlag(rng.chance(4)),
        CParameter::ContentSizeFlag(!rng.chance(4)),
    ];
    if rng.chance(6) {
        parameters.push(CParameter::TargetCBlockSize(rng.within(1340..6000)));
    }
    for parameter in parameters {
        context.set_parameter(parameter).map_err(words)?;
    }
    // Each of many short blocks has a header.
    let mut made = vec![0; zstd_safe::compress_bound(content.len()) + content.len() / 64 + 1024];
    if !rng.chance(6) {
        let len = context.compress2(made.as_mut_slice(), content).map_err(words)?;
        made.truncate(len);
        return Ok(made);
    }
    // Flushed again and again: short blocks, and at the end an empty one, as libtiff's streams have.
    let mut output = OutBuffer::around(made.as_mut_slice());
    for part in content.chunks(rng.within(700..5000) as usize) {
        let mut input = InBuffer::around(part);
        while context.compress_stream2(&mut output, &mut input, End::ZSTD_e_flush).map_err(words)? > 0 {}
    }
    while context.compress_stream2(&mut output, &mut InBuffer::around(&[]), End::ZSTD_e_end).map_err(words)? > 0 {}
    let len = output.pos();
    made.truncate(len);
    Ok(made)
}
