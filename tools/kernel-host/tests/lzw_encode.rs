//! The LZW encoder: the CPU's decoder reads its streams, and they do not depend on the number of lanes or blocks.
#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

mod encoding;

use encoding::{EncodeCase, classes, encode, src_stride, terrain};
use swath_codec::{
    codec::lzw::{
        decode::{self as lzw, LzwEnd, LzwScratch},
        encode::{self as lzw_encode, LzwEncoder},
    },
    conformance::{Rng, test_data},
};
use swath_kernel_host::{Build, KernelHost};

const KERNELS: &str = "swath_lzw_encode,swath_lzw_join";
/// The longest segment: bytes that are encoded without a Clear between them.
const SEGMENT: usize = 24 << 10;

fn case(tiles: &[Vec<u8>]) -> EncodeCase<'_> {
    let stride = src_stride(tiles);
    let segments = stride.div_ceil(SEGMENT);
    let scratch = (2 * (stride + 16 * segments) + 4 * segments).next_multiple_of(16);
    let dst_stride = (stride + stride / 2 + 16).next_multiple_of(16);
    EncodeCase { kernels: KERNELS, tiles, row_len: 0, dst_stride, scratch }
}

fn check(tile: &[u8], stream: &[u8]) {
    assert!(stream.len() <= tile.len() + tile.len() / 2 + 16, "{} bytes of {}", stream.len(), tile.len());
    if tile.is_empty() {
        return assert!(stream.is_empty());
    }
    let mut out = vec![0; tile.len()];
    assert_eq!(lzw::decode(stream, &mut out, &mut LzwScratch::new()), Ok(LzwEnd::Exact));
    assert!(out == tile, "{} bytes", tile.len());
    well_formed(stream);
}

/// Checks that a stream begins with Clear, has no two of them side by side, and ends with EOI and padding bits.
fn well_formed(stream: &[u8]) {
    let (mut bit, mut since, mut last) = (0, 0, None);
    while last != Some(257) {
        let width = match since {
            0..254 => 9,
            254..766 => 10,
            766..1790 => 11,
            _ => 12,
        };
        let code = (bit..bit + width).fold(0_u32, |code, at| code << 1 | u32::from(stream[at / 8] >> (7 - at % 8) & 1));
        match last {
            None => assert_eq!(code, 256),
            Some(256) => assert_ne!(code, 256, "two Clears at bit {bit}"),
            Some(_) => assert!(since <= 3836, "no Clear at bit {bit}"),
        }
        bit += width;
        since = if code == 256 { 0 } else { since + 1 };
        last = Some(code);
    }
    assert_eq!(bit.div_ceil(8), stream.len());
    let rest = if bit % 8 == 0 { 0 } else { stream[bit / 8] << (bit % 8) };
    assert_eq!(rest, 0);
}

fn kinds(len: usize, rng: &mut Rng) -> Vec<Vec<u8>> {
    let mut all: Vec<Vec<u8>> = test_data(len, rng).into_iter().map(|(_, bytes)| bytes).collect();
    all.extend([terrain(len, rng), classes(len, rng)]);
    all
}

fn round_trips(host: &mut KernelHost, blocks: u32, lanes: u32, tiles: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let streams: Vec<Vec<u8>> = encode(host, blocks, lanes, case(tiles)).into_iter().map(Option::unwrap).collect();
    for (tile, stream) in tiles.iter().zip(&streams) {
        check(tile, stream);
    }
    streams
}

#[test]
fn tiles_of_any_length() {
    let (mut host, mut rng) = (KernelHost::start(Build::Asan).unwrap(), Rng(5));
    let short: Vec<Vec<u8>> = (0..100).map(|len| terrain(len, &mut rng)).collect();
    round_trips(&mut host, 3, 1, &short);
    let around = [3836, 3837, 3838, 4096, SEGMENT - 1, SEGMENT, SEGMENT + 1, 2 * SEGMENT + 5, 3 * SEGMENT + 1];
    for len in around {
        round_trips(&mut host, 2, 1, &kinds(len, &mut rng));
    }
}

#[test]
fn a_table_may_be_full_at_the_end_of_a_segment() {
    let (mut host, mut rng) = (KernelHost::start(Build::Plain).unwrap(), Rng(6));
    // Noise has a code for nearly every byte, so that for one of these lengths the last code fills the table.
    let tiles: Vec<Vec<u8>> = (3836..4000).map(|len| (0..len).map(|_| rng.next() as u8).collect()).collect();
    round_trips(&mut host, 7, 1, &tiles);
}

#[test]
fn large_tiles() {
    let (mut host, mut rng) = (KernelHost::start(Build::Plain).unwrap(), Rng(7));
    for tile in kinds(1 << 20, &mut rng).into_iter().chain([terrain(3_000_001, &mut rng)]) {
        round_trips(&mut host, 5, 1, &[tile]);
    }
}

#[test]
fn lanes_and_blocks_make_no_difference() {
    let mut rng = Rng(8);
    let mut tiles = kinds(60_007, &mut rng);
    tiles.extend([Vec::new(), vec![7], terrain(70_000, &mut rng)]);
    let want = round_trips(&mut KernelHost::start(Build::Plain).unwrap(), 1, 1, &tiles);
    let mut team = KernelHost::start(Build::Tsan).unwrap();
    for (blocks, lanes) in [(1, 8), (9, 32), (40, 2)] {
        assert!(round_trips(&mut team, blocks, lanes, &tiles) == want, "{blocks} blocks of {lanes} lanes");
    }
}

#[test]
fn about_as_small_as_the_cpu() {
    let (mut host, mut rng) = (KernelHost::start(Build::Plain).unwrap(), Rng(9));
    for tile in [terrain(1 << 19, &mut rng), (0..1 << 19).map(|_| (rng.next() % 12) as u8).collect()] {
        let mut cpu = Vec::new();
        lzw_encode::encode(&tile, &mut cpu, &mut LzwEncoder::default()).unwrap();
        let ours = round_trips(&mut host, 4, 1, &[tile]).remove(0);
        assert!(ours.len() * 100 <= cpu.len() * 103, "{} and {} bytes", ours.len(), cpu.len());
    }
}

#[test]
fn what_does_not_fit_is_not_written() {
    let (mut host, mut rng) = (KernelHost::start(Build::Asan).unwrap(), Rng(10));
    let tiles = [vec![0; 50_000], (0..50_000).map(|_| rng.next() as u8).collect()];
    let small = EncodeCase { dst_stride: 4096, ..case(&tiles) };
    let made = encode(&mut host, 2, 1, small);
    check(&tiles[0], made[0].as_ref().unwrap());
    assert_eq!(made[1], None);
    let little_scratch = EncodeCase { scratch: 4096, ..case(&tiles) };
    assert_eq!(encode(&mut host, 2, 1, little_scratch), [None, None]);
    // The codes of no launch.
    let joined = EncodeCase { kernels: "swath_lzw_join", ..case(&tiles) };
    assert_eq!(encode(&mut host, 2, 1, joined), [None, None]);
}
