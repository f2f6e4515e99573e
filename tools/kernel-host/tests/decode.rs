//! The decoding kernels: the codecs' conformance suite, whole tiles from stream to samples, damaged streams.
#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

use std::{iter, sync::Arc};

use swath_codec::{
    Decode, Registry, Scratch, TileSpec,
    conformance::{self, Rng, test_data},
    encode::Settings,
    host::{Host, encode::HostEncoder},
};
use swath_kernel_host::{
    Argument, Build, KernelDecoder, KernelHost,
    decode::{self, Status, Stream, decode},
    place::{Batch, Launch, Output, PlaceTile, place},
    server::Buffer,
};
use swath_tiff::{
    Compression, SampleFormat as F, SampleType as S,
    structure::{ByteOrder, Predictor},
};

/// A codec, its number in files, and its kernel.
#[derive(Debug, Clone, Copy)]
struct Codec(Compression, u16, &'static str);

const DEFLATE: Codec = Codec(Compression::Deflate, 8, "swath_inflate");
const DEFLATE_FEW: Codec = Codec(Compression::Deflate, 8, "swath_inflate_few");
const DEFLATE_SHARED: Codec = Codec(Compression::Deflate, 8, decode::DEFLATE_SHARED);
const LZW_PARTS: Codec = Codec(Compression::Lzw, 5, decode::LZW_PARTS);
const LZW: Codec = Codec(Compression::Lzw, 5, "swath_lzw");
const PACKBITS: Codec = Codec(Compression::PackBits, 32_773, "swath_packbits");

const ZSTD: Codec = Codec(Compression::Zstd, 50_000, decode::ZSTD);
const ZSTD_FEW: Codec = Codec(Compression::Zstd, 50_000, decode::ZSTD_FEW);

const ALL: [Codec; 8] = [DEFLATE, DEFLATE_FEW, DEFLATE_SHARED, LZW, LZW_PARTS, PACKBITS, ZSTD, ZSTD_FEW];

fn level(level: u64) -> Settings {
    let mut settings = Settings::default();
    settings.level = Some(level as u32);
    settings
}

// ------------------------------------------------------------------------------------------------ the suite of the CPU

fn conforms(codec: Codec, build: Build, lanes: u32, types: &[S], samples: &[u16]) {
    let Codec(compression, code, kernel) = codec;
    let mut registry = Registry::default();
    registry.insert(compression, Arc::new(KernelDecoder::new(build, kernel, lanes).unwrap()));
    conformance::exact(&registry, compression, code, &Settings::default(), types, samples);
}

#[test]
fn deflate_conforms() {
    conforms(DEFLATE, Build::Asan, 1, &conformance::ALL, &[1, 3]);
}

#[test]
fn lzw_conforms() {
    conforms(LZW, Build::Asan, 1, &conformance::ALL, &[1, 3]);
}

#[test]
fn zstd_conforms() {
    conforms(ZSTD, Build::Asan, 1, &conformance::ALL, &[1, 3]);
}

#[test]
fn kernels_for_few_tiles_conform() {
    conforms(DEFLATE_FEW, Build::Asan, 1, &[S::U8, S::F32], &[1, 3]);
    conforms(DEFLATE_SHARED, Build::Asan, 1, &[S::U8, S::F32], &[1, 3]);
    conforms(LZW_PARTS, Build::Asan, 1, &[S::U8, S::F32], &[1, 3]);
    conforms(ZSTD_FEW, Build::Asan, 1, &[S::U8, S::F32], &[1, 3]);
}

#[test]
fn packbits_conforms() {
    conforms(PACKBITS, Build::Asan, 1, &conformance::ALL, &[1, 3]);
}

// ---------------------------------------------------------------------------------------------- from stream to samples

/// Kinds of samples: their type, how their bits are read, and how many bits are stored.
const KINDS: [(S, F, u16); 16] = [
    (S::U8, F::Uint, 8),
    (S::I8, F::Int, 8),
    (S::U16, F::Uint, 16),
    (S::I32, F::Int, 32),
    (S::U64, F::Uint, 64),
    (S::F16, F::Float, 16),
    (S::F32, F::Float, 32),
    (S::F64, F::Float, 64),
    (S::CI16, F::ComplexInt, 32),
    (S::CF32, F::ComplexFloat, 64),
    (S::CF64, F::ComplexFloat, 128),
    (S::U8, F::Uint, 1),
    (S::U8, F::Uint, 4),
    (S::U16, F::Uint, 12),
    (S::U32, F::Uint, 20),
    (S::U32, F::Uint, 24),
];

fn predictors(format: F, bits: u16) -> Vec<Predictor> {
    let mut all = vec![Predictor::None];
    if matches!(bits, 8 | 16 | 32 | 64) {
        all.push(Predictor::Horizontal);
    }
    if format == F::Float {
        all.push(Predictor::FloatingPoint);
    }
    all
}

/// Encodes on the CPU, decodes and places with kernels, and compares with the samples that the CPU decodes from the
/// same stream.
fn whole_tile(host: &mut KernelHost, lanes: u32, codec: Option<Codec>, spec: TileSpec, rng: &mut Rng) {
    let spec = Arc::new(spec);
    let registry = Registry::default();
    let encoder = HostEncoder::new(spec.clone(), &Settings::default(), &registry).unwrap();
    let cpu = Host::new(spec.clone(), &registry).unwrap();
    let mut scratch = Scratch::default();
    let (_, native) = test_data(cpu.native_len(spec.height), rng).swap_remove(3);
    let mut stream = Vec::new();
    encoder.encode(spec.height, &mut native.clone(), &mut stream, &mut scratch).unwrap();
    let mut want = vec![0; native.len()];
    cpu.decode_native(spec.height, &stream, &mut want, &mut scratch).unwrap();

    let (status, stored) = match codec {
        Some(Codec(_, _, kernel)) => {
            let tile = Stream { bytes: &stream, len: cpu.decoded_len(spec.height) };
            decode(host, kernel, 1, lanes, &[tile]).unwrap().remove(0)
        }
        None => (Status::Ok, stream),
    };
    assert_eq!(status, Status::Ok, "{spec:?}");
    let (size, samples) = (spec.sample.size() as u64, u64::from(spec.samples));
    let output = Output {
        row_step: spec.native_row_len() as u64,
        pixel_step: samples * size,
        band_step: size,
        samples: (0..spec.samples).collect(),
        fill: [0; 16],
    };
    let tile =
        PlaceTile { src_len: stored.len() as u64, width: spec.width, height: spec.height, ..PlaceTile::default() };
    let launch = Launch { lanes, parts: 1, shift: 0 };
    let batch = Batch { src: &stored, tiles: &[tile], statuses: &[0] };
    let got = place(host, &spec, launch, batch, &output, &vec![0; want.len()]).unwrap();
    assert!(got == want, "{spec:?}");
}

fn whole_tiles(build: Build, lanes: u32, every: usize) {
    let mut host = KernelHost::start(build).unwrap();
    let mut rng = Rng(17);
    let mut nth = 0;
    for codec in iter::once(None).chain(ALL.map(Some)) {
        for (sample, format, bits) in KINDS {
            for predictor in predictors(format, bits) {
                for order in [ByteOrder::Little, ByteOrder::Big] {
                    for samples in [1, 3] {
                        for (width, height) in [(33, 7), (64, 20), (300, 2)] {
                            nth += 1;
                            if nth % every != 0 {
                                continue;
                            }
                            let (compression, code) = codec.map_or((Compression::None, 1), |codec| (codec.0, codec.1));
                            let mut spec = conformance::spec(compression, code, sample, samples, width);
                            (spec.format, spec.bits, spec.height) = (format, bits, height);
                            (spec.predictor, spec.order) = (predictor, order);
                            whole_tile(&mut host, lanes, codec, spec, &mut rng);
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn whole_tiles_with_one_lane() {
    whole_tiles(Build::Asan, 1, 1);
}

#[test]
fn whole_tiles_with_teams() {
    whole_tiles(Build::Tsan, 8, 37);
    whole_tiles(Build::Tsan, 32, 149);
}

// ----------------------------------------------------------------------------------------------------- damaged streams

/// Streams of several sizes and kinds, as our encoders write them.
fn streams(codec: Codec, largest: u64, rng: &mut Rng) -> Vec<(Vec<u8>, TileSpec)> {
    let Codec(compression, code, _) = codec;
    let mut all = Vec::new();
    for nth in 0..8 {
        let width = 1 + rng.next() % 64;
        let mut spec = conformance::spec(compression, code, S::U8, 1, width as u32);
        spec.height = (1 + rng.next() % largest.div_ceil(width)) as u32;
        for (_, bytes) in test_data(spec.stored_len(spec.height), rng) {
            let settings = match compression {
                Compression::Deflate | Compression::Zstd => level(1 + nth % 12),
                _ => Settings::default(),
            };
            let encoder = Registry::default().encoder(&spec, &settings).unwrap();
            let mut stream = Vec::new();
            encoder.encode(&spec, spec.height, &bytes, &mut stream, &mut Scratch::default()).unwrap();
            all.push((stream, spec.clone()));
        }
    }
    all
}

fn damage(stream: &[u8], rng: &mut Rng) -> Vec<u8> {
    let mut stream = stream.to_vec();
    let any = |rng: &mut Rng, len: usize| rng.next() as usize % len.max(1);
    match rng.next() % 8 {
        0 => stream.truncate(any(rng, stream.len())),
        1 => {
            // Only the beginning of the stream is left.
            let keep = any(rng, stream.len().min(12));
            stream[keep..].fill_with(|| rng.next() as u8);
        }
        2 => {
            let (at, len) = (any(rng, stream.len()), any(rng, 40));
            stream.splice(at..at, (0..len).map(|_| rng.next() as u8).collect::<Vec<_>>());
        }
        3 => {
            let (from, to) = (any(rng, stream.len()), any(rng, stream.len()));
            stream.drain(from.min(to)..from.max(to));
        }
        // Most of the meaning is in the first bytes: headers, tables.
        4 => {
            let at = any(rng, stream.len().min(60));
            stream[at] ^= 1 << (rng.next() % 8);
        }
        _ => {
            for _ in 0..=rng.next() % 3 {
                let at = any(rng, stream.len());
                stream[at] ^= 1 << (rng.next() % 8);
            }
        }
    }
    stream
}

/// A stream that the kernel decodes, the CPU decodes too, to the same bytes. No stream makes a sanitizer report or a
/// kernel hang.
fn damaged(codec: Codec, build: Build, lanes: u32, count: u32, largest: u64, seed: u64) {
    let Codec(compression, _, kernel) = codec;
    let mut host = KernelHost::start(build).unwrap();
    let mut rng = Rng(seed);
    let registry = Registry::default();
    let cpu: Arc<dyn Decode> = registry.decoder(compression).unwrap().clone();
    let mut scratch = Scratch::default();
    let mut sources = streams(codec, largest, &mut rng);
    for round in 0..count {
        if round % 2000 == 1999 {
            sources = streams(codec, largest, &mut rng);
        }
        let (stream, spec) = &sources[rng.next() as usize % sources.len()];
        let stream = damage(stream, &mut rng);
        let len = spec.stored_len(spec.height);
        let (status, bytes) = decode(&mut host, kernel, 1, lanes, &[Stream { bytes: &stream, len }])
            .unwrap_or_else(|error| panic!("{error}; {len} bytes of {stream:02x?}"))
            .remove(0);
        if status == Status::Ok {
            let mut want = vec![0; len];
            let verdict = cpu.decode(spec, spec.height, &stream, &mut want, &mut scratch);
            assert!(verdict.is_ok() && bytes == want, "{kernel}: {verdict:?}; {len} bytes of {stream:02x?}");
        }
    }
}

#[test]
fn damaged_deflate_with_one_lane() {
    damaged(DEFLATE, Build::Asan, 1, 20_000, 3000, 21);
}

#[test]
fn damaged_lzw_with_one_lane() {
    damaged(LZW, Build::Asan, 1, 20_000, 3000, 22);
}

#[test]
fn damaged_few_with_one_lane() {
    damaged(DEFLATE_FEW, Build::Asan, 1, 5000, 3000, 28);
    damaged(DEFLATE_SHARED, Build::Asan, 1, 5000, 3000, 32);
    damaged(ZSTD_FEW, Build::Asan, 1, 5000, 3000, 33);
    damaged(LZW_PARTS, Build::Asan, 1, 5000, 3000, 29);
}

#[test]
fn damaged_packbits_with_one_lane() {
    damaged(PACKBITS, Build::Asan, 1, 20_000, 3000, 23);
}

#[test]
fn damaged_zstd_with_one_lane() {
    damaged(ZSTD, Build::Asan, 1, 10_000, 3000, 30);
}

/// Long enough for several tables of LZW and several blocks of Deflate.
#[test]
fn damaged_long_streams() {
    for codec in ALL {
        damaged(codec, Build::Asan, 1, 500, 60_000, 27);
    }
}

#[test]
fn damaged_streams_with_teams() {
    for codec in ALL {
        damaged(codec, Build::Asan, 8, 60, 2000, 24);
        damaged(codec, Build::Tsan, 8, 30, 2000, 25);
        damaged(codec, Build::Tsan, 32, 8, 1000, 26);
    }
}

/// Many tiles, few blocks: each block decodes several, with whatever the one before left in shared memory.
#[test]
fn blocks_take_tiles_in_turn() {
    let mut host = KernelHost::start(Build::Asan).unwrap();
    let mut rng = Rng(31);
    for codec in ALL {
        let sources = streams(codec, 20_000, &mut rng);
        let tiles: Vec<_> =
            sources.iter().map(|(stream, spec)| Stream { bytes: stream, len: spec.stored_len(spec.height) }).collect();
        let decoder = Registry::default().decoder(codec.0).unwrap().clone();
        for blocks in [1, 3, 100] {
            let done = decode(&mut host, codec.2, blocks, 1, &tiles).unwrap();
            for ((status, bytes), (stream, spec)) in done.iter().zip(&sources) {
                let mut want = vec![0; bytes.len()];
                decoder.decode(spec, spec.height, stream, &mut want, &mut Scratch::default()).unwrap();
                assert!(*status == Status::Ok && *bytes == want, "{codec:?}, {blocks} blocks");
            }
        }
    }
}

#[test]
fn bits_are_reversed() {
    for (build, lanes) in [(Build::Asan, 1), (Build::Tsan, 8)] {
        let mut host = KernelHost::start(build).unwrap();
        for len in [0, 1, 15, 16, 17, 1000, 4096] {
            let bytes: Vec<u8> = (0..len).map(|at: usize| (at * 37 + at / 7) as u8).collect();
            let arguments = [Argument::Pointer(0, 0), Argument::Bytes(&(len as u64).to_le_bytes())];
            let got = host.run("swath_reverse", 3, lanes, &[Buffer::InOut(&bytes)], &arguments).unwrap();
            assert!(got[0].iter().copied().eq(bytes.iter().map(|byte| byte.reverse_bits())), "{len}");
        }
    }
}

#[test]
fn lengths_that_differ_make_a_tile_short() {
    for (build, lanes) in [(Build::Asan, 1), (Build::Tsan, 8)] {
        let mut host = KernelHost::start(build).unwrap();
        let (wanted, got) = ([100_u64, 100, 0, 7, 7], [100_u64, 99, 0, 8, 3]);
        // A tile that was refused keeps its status.
        let status = [0_u32, 0, 0, 0, 14];
        let buffers = [got, wanted].map(|lens| lens.iter().flat_map(|len| len.to_le_bytes()).collect::<Vec<u8>>());
        let before: Vec<u8> = status.iter().flat_map(|status| status.to_le_bytes()).collect();
        let arguments = [
            Argument::Pointer(0, 0),
            Argument::Pointer(1, 0),
            Argument::Pointer(2, 0),
            Argument::Bytes(&5_u64.to_le_bytes()),
        ];
        let buffers = [Buffer::In(&buffers[0]), Buffer::In(&buffers[1]), Buffer::InOut(&before)];
        let after = host.run("swath_check", 2, lanes, &buffers, &arguments).unwrap();
        let statuses: Vec<u32> = after[0].as_chunks::<4>().0.iter().map(|status| u32::from_le_bytes(*status)).collect();
        assert_eq!(statuses, [0, 1, 0, 1, 14]);
    }
}
