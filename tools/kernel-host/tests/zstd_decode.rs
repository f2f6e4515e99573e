//! The Zstd decoder against the library: frames of every form, and the same verdict on damaged ones.
#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

mod zstd;

use std::io;

use swath_codec::conformance::Rng;
use swath_kernel_host::{
    Build, KernelHost,
    decode::{Status, Stream, ZSTD, ZSTD_FEW, ZSTD_SOME, decode, decode_with, zstd_needs},
};
use zstd::{
    anatomy::Met,
    codec::Verdict,
    damage::{Case, Sources},
    forms::forms,
    huffman,
    library::{
        Decoder, Encoder, Tile, ZSTD_c_contentSizeFlag, ZSTD_c_enableLongDistanceMatching, ZSTD_c_windowLog, level,
    },
    samples::{self, any_stream, kinds, noise},
    verdict::{BATCH, DecodeSetup},
};

fn start(build: Build) -> KernelHost {
    KernelHost::start(build).unwrap()
}

/// Checks that all tiles are decoded.
fn decodes(host: &mut KernelHost, kernel: &str, blocks: u32, lanes: u32, tiles: &[Tile]) {
    for tiles in tiles.chunks(BATCH) {
        all_whole(tiles, |streams| decode(host, kernel, blocks, lanes, streams));
    }
}

/// The same with scratch memory for many more blocks than tiles usually have.
fn decodes_roomily(host: &mut KernelHost, kernel: &str, blocks: u32, lanes: u32, tiles: &[Tile]) {
    for tiles in tiles.chunks(8) {
        all_whole(tiles, |streams| decode_with(host, kernel, blocks, lanes, zstd_needs(kernel, 2 << 20), streams));
    }
}

fn all_whole(tiles: &[Tile], run: impl FnOnce(&[Stream<'_>]) -> io::Result<Vec<(Status, Vec<u8>)>>) {
    let streams: Vec<_> = tiles.iter().map(|(stream, bytes)| Stream { bytes: stream, len: bytes.len() }).collect();
    for ((status, got), (stream, bytes)) in run(&streams).unwrap().iter().zip(tiles) {
        let what =
            || format!("{} bytes of {} bytes {:02x?}", bytes.len(), stream.len(), &stream[..stream.len().min(200)]);
        assert_eq!(*status, Status::Ok, "{}", what());
        let differs = got.iter().zip(bytes).position(|(got, byte)| got != byte);
        assert_eq!(differs, None, "{}", what());
    }
}

// -------------------------------------------------------------------------------------------------------------- frames

#[test]
fn short_tiles_of_every_level() {
    let (mut rng, mut encoder, mut tiles, mut nth) = (Rng(1), Encoder::new(), Vec::new(), 0);
    for len in (0..40).chain([63, 64, 65, 127, 128, 255, 256, 257, 1000, 1023, 1024, 1025, 4095, 4096, 16_400]) {
        for bytes in kinds(len, &mut rng) {
            nth += 1;
            tiles.push((encoder.frame(&level(nth % 30 - 7), &bytes), bytes));
        }
    }
    let mut host = start(Build::Asan);
    decodes(&mut host, ZSTD, 1, 1, &tiles);
    decodes(&mut host, ZSTD_FEW, 3, 1, &tiles);
}

#[test]
fn middle_tiles_of_every_kind() {
    let (mut rng, mut encoder, mut tiles) = (Rng(2), Encoder::new(), Vec::new());
    for (len, levels) in [(65_536, [1, 9]), (131_073, [3, 16]), (300_000, [-3, 12])] {
        for (nth, bytes) in kinds(len, &mut rng).into_iter().enumerate() {
            tiles.push((encoder.frame(&level(levels[nth % 2]), &bytes), bytes));
        }
    }
    decodes(&mut start(Build::Asan), ZSTD, 2, 1, &tiles);
    decodes(&mut start(Build::Plain), ZSTD_FEW, 2, 1, &tiles);
}

/// Even the highest levels, which make many small blocks of many sequences, fit the scratch memory.
#[test]
fn usual_tiles_are_not_unusual() {
    let (mut rng, mut encoder, mut host) = (Rng(22), Encoder::new(), start(Build::Plain));
    for len in [1024, 8192, 32_768, 65_536, 131_072, 262_144] {
        for value in [3, 9, 16, 22] {
            let frame = |bytes: Vec<u8>| (encoder.frame(&level(value), &bytes), bytes);
            // The highest levels take seconds for each large tile.
            let kinds = kinds(len, &mut rng).into_iter().step_by(if len > 100_000 && value > 9 { 3 } else { 1 });
            let tiles: Vec<Tile> = kinds.map(frame).collect();
            let streams: Vec<_> = tiles.iter().map(|(stream, _)| Stream { bytes: stream, len }).collect();
            for ((status, got), (_, bytes)) in decode(&mut host, ZSTD, 1, 1, &streams).unwrap().iter().zip(&tiles) {
                assert!(*status == Status::Ok && got == bytes, "{status:?}: {len} bytes, level {value}");
            }
        }
    }
}

#[test]
fn large_tiles_of_every_level() {
    let (mut rng, mut encoder, mut host) = (Rng(3), Encoder::new(), start(Build::Plain));
    let mut tiles = Vec::new();
    for (nth, value) in (1..=22).chain([-1, -20, -1000]).enumerate() {
        let mut all = kinds(400_000 + nth * 12_345, &mut rng);
        let bytes = all.swap_remove(nth * 5 % all.len());
        tiles.push((encoder.frame(&level(value), &bytes), bytes));
    }
    decodes(&mut host, ZSTD, 4, 1, &tiles);
    for (bytes, value) in [
        (samples::terrain(16 << 20, &mut rng), 1),
        (samples::classes(4 << 20, &mut rng), 6),
        (samples::reflectance((4 << 20) - 1, &mut rng), 3),
        (vec![0; 16 << 20], 3),
        (noise(4 << 20, &mut rng), 1),
    ] {
        decodes(&mut host, ZSTD_FEW, 1, 1, &[(encoder.frame(&level(value), &bytes), bytes)]);
    }
}

#[test]
fn matches_reach_far_back() {
    let (mut rng, mut encoder, mut tiles) = (Rng(4), Encoder::new(), Vec::new());
    let bytes = samples::far(6 << 20, &mut rng);
    for window in [24, 27] {
        let long = [(ZSTD_c_windowLog, window), (ZSTD_c_enableLongDistanceMatching, 1), (ZSTD_c_contentSizeFlag, 0)];
        tiles.push((encoder.frame(&long, &bytes), bytes.clone()));
        // Without a length in its header, a frame has the window that was set.
        tiles.push((encoder.flushed(&long, &[&bytes[..3 << 20], &bytes[3 << 20..]], false), bytes.clone()));
    }
    assert!(tiles.iter().all(|(stream, bytes)| stream.len() < bytes.len() * 7 / 10));
    decodes(&mut start(Build::Plain), ZSTD, 1, 1, &tiles);
}

#[test]
fn frames_of_every_form() {
    let tiles = forms(&mut Rng(5));
    let mut met = Met::default();
    tiles.iter().for_each(|(stream, _)| met.stream(stream));
    let missed: Vec<_> = Met::all().difference(&met.0).cloned().collect();
    assert!(missed.is_empty(), "the frames here have none with {missed:?}");
    // Undamaged frames need no exception from the library's verdict.
    assert!(tiles.iter().all(|(stream, _)| huffman::leaves_bits(stream) == Some(false)));
    decodes_roomily(&mut start(Build::Asan), ZSTD, 3, 1, &tiles);
    decodes_roomily(&mut start(Build::Plain), ZSTD_FEW, 3, 1, &tiles);
}

#[test]
fn periods_and_their_matches() {
    let (mut rng, mut encoder, mut tiles) = (Rng(6), Encoder::new(), Vec::new());
    for period in 1..300 {
        let bytes = samples::period(3000, period, &mut rng);
        tiles.push((encoder.frame(&level(1 + period as i32 % 19), &bytes), bytes));
    }
    decodes(&mut start(Build::Asan), ZSTD, 5, 1, &tiles);
}

// ----------------------------------------------------------------------------------------------------- damaged streams

// With the scratch memory that the engine gives small tiles, and with enough for the tables of all blocks.
const ONE_LANE: DecodeSetup =
    DecodeSetup { build: Build::Plain, kernel: ZSTD, lanes: 1, largest: 3000, scratch: 2 << 10 };
const ROOMY: DecodeSetup = DecodeSetup { scratch: 48 << 10, ..ONE_LANE };
const FEW: DecodeSetup = DecodeSetup { kernel: ZSTD_FEW, largest: 40_000, scratch: 240 << 10, ..ONE_LANE };

#[test]
fn damaged_frames_get_the_librarys_verdict() {
    ONE_LANE.damaged(30_000, 11);
    ROOMY.damaged(15_000, 12);
    FEW.damaged(1500, 13);
}

#[test]
fn damaged_frames_under_sanitizers() {
    for (setup, count, seed) in [(ONE_LANE, 8000, 14), (ROOMY, 5000, 15), (FEW, 800, 16)] {
        DecodeSetup { build: Build::Asan, ..setup }.damaged(count, seed);
    }
}

#[test]
fn damaged_frames_with_teams() {
    DecodeSetup { lanes: 8, ..FEW }.damaged(150, 17);
    for (setup, build, lanes, count, seed) in [
        (ROOMY, Build::Asan, 8, 150, 18),
        (ROOMY, Build::Tsan, 8, 70, 19),
        (ONE_LANE, Build::Tsan, 8, 70, 20),
        (ONE_LANE, Build::Tsan, 32, 40, 21),
    ] {
        DecodeSetup { build, lanes, largest: 2000, ..setup }.damaged(count, seed);
    }
}

/// Streams that the CPU's codec decodes and the kernel refuses belong to the classes of [`Verdict`], which DESIGN.md lists.
/// Each stream is judged; any other difference is a failure.
#[test]
fn damaged_frames_get_the_codecs_verdict_or_a_known_one() {
    let tally = ONE_LANE.beside_the_codec(20_000, 22);
    for verdict in [Verdict::BothDecode, Verdict::BothRefuse, Verdict::Surplus, Verdict::DamageBehindTile] {
        assert!(tally.keys().any(|(met, _)| *met == verdict), "no stream here is {verdict:?}");
    }
}

/// Compares SWATH_FUZZ damaged streams with the CPU's codec:
/// `SWATH_FUZZ=1000000 cargo test --release -p swath-kernel-host --test zstd_decode -- --ignored --nocapture codec`
#[test]
#[ignore = "takes as long as SWATH_FUZZ says"]
fn damaged_frames_beside_the_codec_in_numbers() {
    let count: usize = std::env::var("SWATH_FUZZ").map_or(100_000, |count| count.parse().unwrap());
    for (setup, tenths, seed) in [(ONE_LANE, 7, 111), (ROOMY, 2, 112), (FEW, 1, 113)] {
        setup.beside_the_codec(count * tenths / 10, seed);
    }
}

/// Compares SWATH_FUZZ damaged streams with the library:
/// `SWATH_FUZZ=1000000 cargo test --release -p swath-kernel-host --test zstd_decode -- --ignored --nocapture`
#[test]
#[ignore = "takes as long as SWATH_FUZZ says"]
fn damaged_frames_in_numbers() {
    let count: usize = std::env::var("SWATH_FUZZ").map_or(100_000, |count| count.parse().unwrap());
    for (setup, build, tenths, seed) in [
        (ONE_LANE, Build::Plain, 5, 101),
        (ROOMY, Build::Plain, 3, 102),
        (FEW, Build::Plain, 1, 103),
        (ONE_LANE, Build::Asan, 1, 104),
    ] {
        DecodeSetup { build, ..setup }.damaged(count * tenths / 10, seed);
    }
}

// ---------------------------------------------------------------------------------------------------- lanes and blocks

#[test]
fn teams_decode_frames_of_every_form() {
    let tiles: Vec<Tile> = forms(&mut Rng(8)).into_iter().filter(|(_, bytes)| bytes.len() < 8000).collect();
    let mut host = start(Build::Tsan);
    decodes_roomily(&mut host, ZSTD, 2, 8, &tiles);
    decodes_roomily(&mut host, ZSTD_FEW, 1, 32, &tiles.into_iter().step_by(9).collect::<Vec<_>>());
}

/// Long streams of literals, which lanes share.
#[test]
fn teams_decode_middle_tiles() {
    let (mut rng, mut encoder, mut tiles) = (Rng(18), Encoder::new(), Vec::new());
    for bytes in kinds(140_000, &mut rng).into_iter().step_by(2) {
        tiles.push((encoder.frame(&level(3), &bytes), bytes));
    }
    decodes(&mut start(Build::Plain), ZSTD_FEW, 1, 32, &tiles);
    decodes(&mut start(Build::Tsan), ZSTD, 2, 8, &tiles[1..4]);
}

#[test]
fn lanes_and_blocks_change_nothing() {
    let (mut rng, mut encoder, mut decoder) = (Rng(9), Encoder::new(), Decoder::new());
    let sources = Sources::new(60, 3000, &mut rng);
    let mut cases: Vec<Case> = (0..60).map(|_| sources.case(&mut decoder, &mut rng)).collect();
    for _ in 0..20 {
        let (stream, bytes) = any_stream(&mut encoder, 20_000, &mut rng);
        cases.push((stream, bytes.len()));
    }
    let tiles: Vec<_> = cases.iter().map(|(stream, len)| Stream { bytes: stream, len: *len }).collect();
    let run = |build: Build, kernel: &str, blocks: u32, lanes: u32| {
        let done = decode(&mut start(build), kernel, blocks, lanes, &tiles).unwrap();
        // The bytes of a refused tile are undefined.
        let bytes =
            |(status, bytes): (Status, Vec<u8>)| (status, if status == Status::Ok { bytes } else { Vec::new() });
        done.into_iter().map(bytes).collect::<Vec<_>>()
    };
    let want = run(Build::Plain, ZSTD, 1, 1);
    for (build, blocks, lanes) in
        [(Build::Asan, 3, 1), (Build::Plain, 100, 1), (Build::Plain, 1, 2), (Build::Plain, 3, 8), (Build::Plain, 1, 32)]
    {
        for kernel in [ZSTD, ZSTD_SOME, ZSTD_FEW] {
            assert!(run(build, kernel, blocks, lanes) == want, "{build:?}, {kernel}, {blocks} blocks, {lanes} lanes");
        }
    }
}
