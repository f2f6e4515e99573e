//! The PackBits encoder: the CPU's decoder reads its streams, and they do not depend on the number of lanes or blocks.
#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

mod encoding;

use encoding::{EncodeCase, classes, encode, src_stride, terrain};
use swath_codec::{
    codec::packbits::{
        decode::{self as packbits, PackBitsEnd},
        encode as packbits_encode,
    },
    conformance::{Rng, test_data},
};
use swath_kernel_host::{Build, KernelHost};

const KERNELS: &str = "swath_packbits_measure,swath_packbits_encode";
const UNIT: usize = 1024;

fn case(tiles: &[Vec<u8>], row_len: usize) -> EncodeCase<'_> {
    let stride = src_stride(tiles);
    let dst_stride = packbits_encode::max_encoded_len(stride, row_len).next_multiple_of(16);
    EncodeCase { kernels: KERNELS, tiles, row_len, dst_stride, scratch: 8 * (stride.div_ceil(UNIT) + 1) }
}

/// Checks that rows come back, that every row ends with a packet, and that the stream is within its bound.
fn check(tile: &[u8], row_len: usize, stream: &[u8]) {
    assert!(stream.len() <= packbits_encode::max_encoded_len(tile.len(), row_len), "{} by {row_len}", tile.len());
    let mut out = vec![0; tile.len()];
    assert_eq!(packbits::decode(stream, &mut out), Ok(PackBitsEnd::Exact));
    assert!(out == tile, "{} bytes by {row_len}", tile.len());
    let (mut at, mut made) = (0, 0);
    while at < stream.len() {
        assert_ne!(stream[at], 128);
        let header = usize::from(stream[at]);
        let (n, read) = if header < 128 { (header + 1, header + 2) } else { (257 - header, 2) };
        assert!(row_len == 0 || made / row_len == (made + n - 1) / row_len, "a packet crosses the end of a row");
        made += n;
        at += read;
    }
    assert_eq!((at, made), (stream.len(), tile.len()));
}

fn round_trips(host: &mut KernelHost, blocks: u32, lanes: u32, tiles: &[Vec<u8>], row_len: usize) -> Vec<Vec<u8>> {
    let made = encode(host, blocks, lanes, case(tiles, row_len));
    let streams: Vec<Vec<u8>> = made.into_iter().map(Option::unwrap).collect();
    for (tile, stream) in tiles.iter().zip(&streams) {
        check(tile, row_len, stream);
    }
    streams
}

fn kinds(len: usize, rng: &mut Rng) -> Vec<Vec<u8>> {
    let mut all: Vec<Vec<u8>> = test_data(len, rng).into_iter().map(|(_, bytes)| bytes).collect();
    all.extend([terrain(len, rng), classes(len, rng)]);
    all.push((0..len).map(|at| (at / 2 % 3) as u8).collect());
    all.push((0..len).map(|_| (rng.next() % 2) as u8).collect());
    all
}

#[test]
fn rows_and_tiles_of_any_length() {
    let (mut host, mut rng) = (KernelHost::start(Build::Asan).unwrap(), Rng(5));
    for row_len in [0, 1, 2, 3, 7, 16, 100, 127, 128, 129, 255, 256, 257, 511, 513, 1000, 1024, 1025, 3001] {
        let short: Vec<Vec<u8>> = (0..40).map(|len| classes(len, &mut rng)).collect();
        round_trips(&mut host, 3, 1, &short, row_len);
        for len in [600, 5003] {
            round_trips(&mut host, 2, 1, &kinds(len, &mut rng), row_len);
        }
    }
}

#[test]
fn large_tiles() {
    let (mut host, mut rng) = (KernelHost::start(Build::Plain).unwrap(), Rng(7));
    for row_len in [0, 2048, 3333] {
        round_trips(&mut host, 5, 1, &kinds(1 << 20, &mut rng), row_len);
    }
    round_trips(&mut host, 5, 1, &[classes(3_000_001, &mut rng)], 1 << 16);
}

#[test]
fn lanes_and_blocks_make_no_difference() {
    let mut rng = Rng(8);
    let mut tiles = kinds(60_007, &mut rng);
    tiles.extend([Vec::new(), vec![7], classes(70_000, &mut rng)]);
    let want = round_trips(&mut KernelHost::start(Build::Plain).unwrap(), 1, 1, &tiles, 777);
    let mut team = KernelHost::start(Build::Tsan).unwrap();
    for (blocks, lanes) in [(1, 8), (9, 32), (40, 2)] {
        assert!(round_trips(&mut team, blocks, lanes, &tiles, 777) == want, "{blocks} blocks of {lanes} lanes");
    }
}

#[test]
fn about_as_small_as_the_cpu() {
    let (mut host, mut rng) = (KernelHost::start(Build::Plain).unwrap(), Rng(9));
    for row_len in [512, 4096] {
        for tile in kinds(1 << 18, &mut rng) {
            let mut cpu = Vec::new();
            packbits_encode::encode(&tile, row_len, &mut cpu).unwrap();
            let ours = round_trips(&mut host, 4, 1, &[tile], row_len).remove(0);
            assert!(ours.len() * 100 <= cpu.len() * 102, "{} and {} bytes", ours.len(), cpu.len());
        }
    }
}

#[test]
fn what_does_not_fit_is_not_written() {
    let (mut host, mut rng) = (KernelHost::start(Build::Asan).unwrap(), Rng(10));
    let tiles = [vec![0; 50_000], (0..50_000).map(|_| rng.next() as u8).collect()];
    let small = EncodeCase { dst_stride: 4096, ..case(&tiles, 1000) };
    let made = encode(&mut host, 2, 1, small);
    check(&tiles[0], 1000, made[0].as_ref().unwrap());
    assert_eq!(made[1], None);
    let little_scratch = EncodeCase { scratch: 64, ..case(&tiles, 1000) };
    assert_eq!(encode(&mut host, 2, 1, little_scratch), [None, None]);
    // The lengths of no launch.
    let written = EncodeCase { kernels: "swath_packbits_encode", ..case(&tiles, 1000) };
    assert_eq!(encode(&mut host, 2, 1, written), [None, None]);
}
