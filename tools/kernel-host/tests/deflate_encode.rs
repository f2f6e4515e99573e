//! The Deflate encoder: the CPU's decoder reads its streams, whole tiles and single pieces, and they do not depend on
//! the number of lanes or blocks.
#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

use swath_codec::{
    Registry, Scratch,
    conformance::{self, Rng, test_data},
};
use swath_kernel_host::{
    Argument, Build, KernelHost,
    decode::{Status, Stream, decode},
    server::Buffer,
};
use swath_tiff::{Compression, SampleType};

/// Scratch memory for each block of the grid: DeflateEncode::SCRATCH.
const SCRATCH: usize = 20_480 * 8;
/// The size of a piece that did not fit.
const FAILED: u32 = u32::MAX;

/// Tiles and encoding parameters.
#[derive(Debug, Clone)]
struct EncodeCase {
    tiles: Vec<Vec<u8>>,
    piece_len: usize,
    effort: u32,
    row_len: u32,
    pixel_len: u32,
}

/// DeflateEncode::bound.
fn bound(len: usize) -> usize {
    len + 5 * len.div_ceil(65_535) + 5
}

/// Returns every piece of every tile that is not empty.
fn launch(
    host: &mut KernelHost,
    blocks: u32,
    lanes: u32,
    case: &EncodeCase,
    dst_stride: usize,
) -> Vec<Vec<Option<Vec<u8>>>> {
    let longest = case.tiles.iter().map(Vec::len).max().unwrap_or_default().max(1);
    let (stride, pieces) = (longest.next_multiple_of(16), longest.div_ceil(case.piece_len));
    let mut src = Vec::new();
    for (index, tile) in case.tiles.iter().enumerate() {
        src.resize(index * stride, 0xee);
        src.extend_from_slice(tile);
    }
    // Only the last word of the last tile may be read beyond its bytes.
    src.resize(src.len().next_multiple_of(4), 0xee);
    let lens: Vec<u8> = case.tiles.iter().flat_map(|tile| (tile.len() as u32).to_le_bytes()).collect();
    let all = case.tiles.len() * pieces;
    let scratch_len = 4 * stride * case.tiles.len() + SCRATCH * blocks as usize;
    let buffers = [
        Buffer::In(&src),
        Buffer::Out(all * dst_stride),
        Buffer::In(&lens),
        Buffer::Out(all * 4),
        Buffer::Out(scratch_len),
    ];
    let long = |number: usize| (number as u64).to_le_bytes();
    let numbers =
        [case.tiles.len() as u32, pieces as u32, case.piece_len as u32, case.effort, case.row_len, case.pixel_len];
    let numbers: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    let arguments = [
        Argument::Pointer(0, 0),
        Argument::Bytes(&long(src.len())),
        Argument::Bytes(&long(stride)),
        Argument::Pointer(1, 0),
        Argument::Bytes(&long(all * dst_stride)),
        Argument::Bytes(&long(dst_stride)),
        Argument::Pointer(2, 0),
        Argument::Pointer(3, 0),
        Argument::Pointer(4, 0),
        Argument::Bytes(&long(scratch_len)),
        Argument::Bytes(&numbers),
    ];
    let back = host.run("swath_deflate_links,swath_deflate_encode", blocks, lanes, &buffers, &arguments).unwrap();
    let (sizes, _) = back[1].as_chunks::<4>();
    let tile = |index: usize| {
        let used = case.tiles[index].len().div_ceil(case.piece_len);
        let piece = |nth: usize| {
            let at = index * pieces + nth;
            let size = u32::from_le_bytes(sizes[at]);
            assert!(nth < used || size == 0, "a piece beyond the end has {size} bytes");
            (size != FAILED).then(|| back[0][at * dst_stride..][..size as usize].to_vec())
        };
        (0..pieces).map(piece).take(used).collect()
    };
    (0..case.tiles.len()).map(tile).collect()
}

fn encode(host: &mut KernelHost, blocks: u32, lanes: u32, case: &EncodeCase) -> Vec<Vec<Vec<u8>>> {
    let made = launch(host, blocks, lanes, case, bound(case.piece_len).next_multiple_of(16));
    made.into_iter().map(|tile| tile.into_iter().map(Option::unwrap).collect()).collect()
}

fn adler(bytes: &[u8]) -> u32 {
    let (a, b) = bytes.iter().fold((1, 0), |(a, b), byte| {
        let a = (a + u32::from(*byte)) % 65_521;
        (a, (b + a) % 65_521)
    });
    b << 16 | a
}

/// Checks that blocks, without header and checksum, decode to `bytes`.
fn holds(blocks: &[u8], bytes: &[u8]) {
    let stream = [&[0x78, 0x9c], blocks, &adler(bytes).to_be_bytes()].concat();
    let spec = conformance::spec(Compression::Deflate, 8, SampleType::U8, 1, bytes.len() as u32);
    let mut back = vec![0xaa; bytes.len()];
    let registry = Registry::default();
    let decoder = registry.decoder(Compression::Deflate).unwrap();
    decoder.decode(&spec, 1, &stream, &mut back, &mut Scratch::default()).unwrap();
    assert!(back == bytes, "{} bytes come back otherwise", bytes.len());
}

fn round_trips(host: &mut KernelHost, blocks: u32, lanes: u32, case: &EncodeCase) -> Vec<Vec<Vec<u8>>> {
    let made = encode(host, blocks, lanes, case);
    for (tile, pieces) in case.tiles.iter().zip(&made) {
        if tile.is_empty() {
            continue;
        }
        holds(&pieces.concat(), tile);
        let mut bytes = tile.chunks(case.piece_len).peekable();
        for piece in pieces {
            let own = bytes.next().unwrap();
            assert!(piece.len() <= bound(own.len()), "{} bytes of {}", piece.len(), own.len());
            if bytes.peek().is_some() {
                assert!(piece.ends_with(&[0, 0, 0xff, 0xff]), "no flush");
                // An empty last block ends the stream.
                holds(&[piece.as_slice(), &[3, 0]].concat(), own);
            } else {
                holds(piece, own);
            }
        }
    }
    made
}

/// Smooth ground as predictor 3 leaves it: planes of bytes, the last ones noise.
fn terrain(len: usize, rng: &mut Rng) -> Vec<u8> {
    let mut plane = |at: usize| match at / 64 % 4 {
        0 => u8::from(rng.next().is_multiple_of(60)),
        1 => (rng.next() % 5) as u8,
        _ => rng.next() as u8,
    };
    (0..len).map(&mut plane).collect()
}

/// Classes in patches that rows share.
fn classes(len: usize, rng: &mut Rng) -> Vec<u8> {
    let mut bytes: Vec<u8> = Vec::with_capacity(len);
    for at in 0..len {
        let next = match rng.next() % 16 {
            0 => (rng.next() % 11) as u8,
            1..8 if at >= 64 => bytes[at - 64],
            _ => bytes.last().copied().unwrap_or_default(),
        };
        bytes.push(next);
    }
    bytes
}

fn text(len: usize, rng: &mut Rng) -> Vec<u8> {
    const WORDS: [&str; 8] = ["raster ", "tile ", "of the ", "band ", "row ", "a ", "piece, ", "overview\n"];
    let mut bytes = Vec::new();
    while bytes.len() < len {
        bytes.extend(WORDS[rng.next() as usize % 8].bytes());
    }
    bytes.truncate(len);
    bytes
}

/// Counts that double from symbol to symbol, for codes that would exceed the limit.
fn steep(len: usize) -> Vec<u8> {
    (1..=len as u32).map(|at| at.trailing_zeros() as u8 ^ (at.reverse_bits() >> 31) as u8).collect()
}

fn kinds(len: usize, rng: &mut Rng) -> Vec<Vec<u8>> {
    let mut all: Vec<Vec<u8>> = test_data(len, rng).into_iter().map(|(_, bytes)| bytes).collect();
    all.extend([terrain(len, rng), classes(len, rng), text(len, rng), steep(len)]);
    all.push((0..len).map(|_| (rng.next() % 2) as u8).collect());
    all
}

fn case(tiles: Vec<Vec<u8>>, piece_len: usize, effort: u32) -> EncodeCase {
    EncodeCase { tiles, piece_len, effort, row_len: 64, pixel_len: 3 }
}

#[test]
fn tiles_of_all_sizes_come_back() {
    let mut host = KernelHost::start(Build::Asan).unwrap();
    let mut rng = Rng(5);
    for len in (0..40).chain([255, 258, 259, 260, 1023, 1024, 1025, 2047, 2048, 2049, 4096, 10_007]) {
        for effort in 1..=4 {
            round_trips(&mut host, 2, 1, &case(kinds(len, &mut rng), 65_536, effort));
        }
    }
}

#[test]
fn whole_pieces_come_back() {
    let mut host = KernelHost::start(Build::Plain).unwrap();
    let mut rng = Rng(6);
    for len in [65_534, 65_535, 65_536, 65_537, 131_072, 200_001] {
        round_trips(&mut host, 3, 1, &case(kinds(len, &mut rng), 65_536, 2));
    }
    let mut host = KernelHost::start(Build::Asan).unwrap();
    round_trips(&mut host, 3, 1, &case(kinds(65_536, &mut rng), 65_536, 2));
}

#[test]
fn the_decoding_kernel_reads_them() {
    let mut host = KernelHost::start(Build::Plain).unwrap();
    let tiles = kinds(100_000, &mut Rng(12));
    let made = encode(&mut host, 1, 1, &case(tiles.clone(), 30_000, 2));
    for (tile, pieces) in tiles.iter().zip(made) {
        let stream = [&[0x78, 0x9c], pieces.concat().as_slice(), &adler(tile).to_be_bytes()].concat();
        let stream = Stream { bytes: &stream, len: tile.len() };
        let back = decode(&mut host, "swath_inflate", 1, 1, &[stream]).unwrap().remove(0);
        assert_eq!(back.0, Status::Ok);
        assert!(back.1 == *tile);
    }
}

#[test]
fn pieces_may_have_any_length() {
    let mut host = KernelHost::start(Build::Asan).unwrap();
    let mut rng = Rng(7);
    for piece_len in [1, 2, 3, 7, 100, 1000, 4095, 5001] {
        let len = (piece_len * 9 + 1).min(9000);
        let mut tiles = kinds(len, &mut rng);
        // A shorter tile, and an empty one.
        tiles[1].truncate(len / 2);
        tiles[3].clear();
        round_trips(&mut host, 2, 1, &case(tiles, piece_len, 2));
    }
}

#[test]
fn rows_and_pixels_of_any_length() {
    let mut host = KernelHost::start(Build::Asan).unwrap();
    let mut rng = Rng(8);
    for (row_len, pixel_len) in [(0, 0), (1, 1), (2, 5), (63, 4), (3000, 8), (70_000, 1), (u32::MAX, u32::MAX)] {
        for effort in [0, 1, 2, 3, 9] {
            let tiles = vec![classes(5000, &mut rng), terrain(5000, &mut rng)];
            round_trips(&mut host, 1, 1, &EncodeCase { tiles, piece_len: 4000, effort, row_len, pixel_len });
        }
    }
}

#[test]
fn lanes_and_blocks_make_no_difference() {
    let mut rng = Rng(9);
    let mut plain = KernelHost::start(Build::Plain).unwrap();
    let case = case(kinds(3001, &mut rng), 2500, 2);
    let want = round_trips(&mut plain, 1, 1, &case);
    assert!(encode(&mut plain, 5, 1, &case) == want, "5 blocks");
    // Terrain, classes and text: each lane of a team is a thread.
    let few = EncodeCase { tiles: case.tiles[7..10].to_vec(), ..case };
    for (blocks, lanes) in [(1, 8), (3, 32)] {
        assert!(encode(&mut plain, blocks, lanes, &few) == want[7..10], "{blocks} blocks of {lanes}");
    }
    let mut watched = KernelHost::start(Build::Tsan).unwrap();
    assert!(encode(&mut watched, 2, 8, &few) == want[7..10], "under the thread sanitizer");
}

#[test]
fn a_piece_that_does_not_fit_is_reported() {
    let mut host = KernelHost::start(Build::Asan).unwrap();
    let mut rng = Rng(10);
    let noise = test_data(4000, &mut rng).pop().unwrap().1;
    let case = case(vec![noise, vec![7; 4000]], 4000, 2);
    let made = launch(&mut host, 1, 1, &case, 4000);
    assert_eq!(made[0], [None]);
    holds(made[1][0].as_ref().unwrap(), &case.tiles[1]);
}

#[test]
fn sizes_are_those_of_a_good_encoder() {
    let mut host = KernelHost::start(Build::Plain).unwrap();
    let mut rng = Rng(11);
    let tiles = vec![terrain(131_072, &mut rng), classes(131_072, &mut rng), text(131_072, &mut rng), vec![9; 131_072]];
    let made = round_trips(&mut host, 2, 1, &case(tiles.clone(), 65_536, 2));
    for ((tile, pieces), most) in tiles.iter().zip(&made).zip([103, 115, 155, 400]) {
        let spec = conformance::spec(Compression::Deflate, 8, SampleType::U8, 1, tile.len() as u32);
        let encoder = Registry::default().encoder(&spec, &Default::default()).unwrap();
        let mut stream = Vec::new();
        encoder.encode(&spec, 1, tile, &mut stream, &mut Scratch::default()).unwrap();
        let ours: usize = pieces.iter().map(Vec::len).sum();
        assert!(ours * 100 <= stream.len() * most, "{ours} bytes where the CPU makes {}", stream.len());
    }
}
