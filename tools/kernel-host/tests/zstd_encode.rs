//! The Zstd encoder: the library reads its frames, and they do not depend on the number of lanes or blocks.
#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

use std::collections::BTreeSet;

use swath_codec::{Fill, Registry, Scratch, TileSpec, conformance, conformance::Rng};
use swath_kernel_host::{
    Build, KernelHost,
    decode::{Status, Stream, ZSTD, decode},
    server::{Argument, Buffer},
};
use swath_tiff::{Compression, SampleType};

/// The size of a piece that the kernel refuses, and what the tests return for it.
const NO_ROOM: usize = u32::MAX as usize;
const REFUSED: &[u8] = b"refused";
const KERNELS: &str = "swath_zstd_links,swath_zstd_encode";
/// Scratch memory for each block of the grid.
const SCRATCH: usize = 16_384 * 10 + 65_536;
const PIECE: usize = 65536;

/// Tiles and encoding parameters.
#[derive(Debug, Clone, Copy)]
struct EncodeCase<'a> {
    tiles: &'a [Vec<u8>],
    /// Length of the longest tile.
    tile_len: usize,
    piece_len: usize,
    effort: u32,
    row_len: u32,
    pixel_len: u32,
}

impl<'a> EncodeCase<'a> {
    fn new(tiles: &'a [Vec<u8>], piece_len: usize) -> Self {
        let tile_len = tiles.iter().map(Vec::len).max().unwrap();
        Self { tiles, tile_len, piece_len, effort: 3, row_len: 512, pixel_len: 1 }
    }
}

/// Returns the blocks of each tile.
fn encode(host: &mut KernelHost, blocks: u32, lanes: u32, case: &EncodeCase<'_>) -> Vec<Vec<Vec<u8>>> {
    let lens: Vec<u32> = case.tiles.iter().map(|tile| tile.len() as u32).collect();
    encode_with_lens(host, blocks, lanes, case, &lens)
}

/// The same with other lengths of tiles in the arguments.
fn encode_with_lens(
    host: &mut KernelHost,
    blocks: u32,
    lanes: u32,
    case: &EncodeCase<'_>,
    lens: &[u32],
) -> Vec<Vec<Vec<u8>>> {
    let pieces = case.tile_len.div_ceil(case.piece_len).max(1);
    let (src_stride, dst_stride) = (case.tile_len.next_multiple_of(16), (case.piece_len + 3).next_multiple_of(16));
    let mut src = Vec::new();
    for (index, tile) in case.tiles.iter().enumerate() {
        src.extend_from_slice(tile);
        src.resize((index + 1) * src_stride, 0xee);
    }
    let lens: Vec<u8> = lens.iter().flat_map(|len| len.to_le_bytes()).collect();
    let dst_len = dst_stride * pieces * case.tiles.len();
    let scratch_len = 4 * src.len() + SCRATCH * blocks as usize;
    let buffers = [
        Buffer::In(&src),
        Buffer::Out(dst_len),
        Buffer::In(&lens),
        Buffer::Out(4 * pieces * case.tiles.len()),
        Buffer::Out(scratch_len),
    ];
    let long = |number: usize| (number as u64).to_le_bytes();
    let numbers =
        [case.tiles.len() as u32, pieces as u32, case.piece_len as u32, case.effort, case.row_len, case.pixel_len];
    let numbers: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    let arguments = [
        Argument::Pointer(0, 0),
        Argument::Bytes(&long(src.len())),
        Argument::Bytes(&long(src_stride)),
        Argument::Pointer(1, 0),
        Argument::Bytes(&long(dst_len)),
        Argument::Bytes(&long(dst_stride)),
        Argument::Pointer(2, 0),
        Argument::Pointer(3, 0),
        Argument::Pointer(4, 0),
        Argument::Bytes(&long(scratch_len)),
        Argument::Bytes(&numbers),
    ];
    let back = host.run(KERNELS, blocks, lanes, &buffers, &arguments).unwrap();
    let sizes: Vec<usize> = back[1].as_chunks().0.iter().map(|size| u32::from_le_bytes(*size) as usize).collect();
    let piece = |index: usize| match sizes[index] {
        NO_ROOM => REFUSED.to_vec(),
        size => back[0][index * dst_stride..][..size].to_vec(),
    };
    (0..case.tiles.len()).map(|tile| (0..pieces).map(|p| piece(tile * pieces + p)).collect()).collect()
}

/// Makes a frame of blocks: magic number, descriptor (single segment, four bytes of length), length.
fn frame(len: usize, blocks: &[Vec<u8>]) -> Vec<u8> {
    let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0xa0];
    frame.extend((len as u32).to_le_bytes());
    frame.extend(blocks.concat());
    frame
}

struct Library {
    registry: Registry,
    spec: TileSpec,
    scratch: Scratch,
}

impl Library {
    fn new() -> Self {
        let spec = conformance::spec(Compression::Zstd, 50_000, SampleType::U8, 1, 64);
        Self { registry: Registry::default(), spec, scratch: Scratch::default() }
    }

    fn decode(&mut self, frame: &[u8], len: usize) -> Vec<u8> {
        let mut out = vec![0; len];
        let decoder = self.registry.decoder(Compression::Zstd).unwrap();
        let fill = decoder.decode(&self.spec, 1, frame, &mut out, &mut self.scratch).unwrap();
        assert_eq!(fill, Fill::Exact);
        out
    }
}

/// Encodes, checks every tile and the length of every piece, and returns the blocks.
fn round_trip(host: &mut KernelHost, blocks: u32, lanes: u32, case: &EncodeCase<'_>) -> Vec<Vec<Vec<u8>>> {
    let mut library = Library::new();
    let made = encode(host, blocks, lanes, case);
    for (tile, made) in case.tiles.iter().zip(&made) {
        if tile.is_empty() {
            assert!(made.iter().all(Vec::is_empty));
            continue;
        }
        assert!(library.decode(&frame(tile.len(), made), tile.len()) == *tile, "{} bytes", tile.len());
        for (piece, block) in tile.chunks(case.piece_len).zip(made) {
            assert!(block.len() <= piece.len() + 3);
        }
    }
    made
}

fn below(rng: &mut Rng, end: u64) -> u64 {
    rng.next() % end.max(1)
}

/// Smooth terrain as predictor 3 leaves it: rows of four planes of bytes, differences of neighbours.
fn terrain(len: usize, rng: &mut Rng) -> Vec<u8> {
    let mut out = Vec::new();
    let (mut level, row) = (1200.0_f32, 512);
    while out.len() < len {
        let heights: Vec<[u8; 4]> = (0..row)
            .map(|_| {
                level += (below(rng, 201) as f32 - 100.0) / 100.0;
                ((level * 100.0).round() / 100.0).to_be_bytes()
            })
            .collect();
        let mut last = 0_u8;
        for plane in 0..4 {
            for height in &heights {
                out.push(height[plane].wrapping_sub(last));
                last = height[plane];
            }
        }
    }
    out.truncate(len);
    out
}

/// Classes in patches: runs that the row before has too.
fn classes(len: usize, rng: &mut Rng) -> Vec<u8> {
    let mut out: Vec<u8> = Vec::new();
    while out.len() < len {
        let at = out.len();
        let above = at >= 512 && below(rng, 3) > 0;
        let class = below(rng, 11) as u8;
        for k in 0..=below(rng, 30) as usize {
            out.push(if above { out[at + k - 512] } else { class });
        }
    }
    out.truncate(len);
    out
}

fn text(len: usize) -> Vec<u8> {
    (0..)
        .flat_map(|n: u32| format!("line {n}: the {} and the {} again\n", n * n % 97, n % 13).into_bytes())
        .take(len)
        .collect()
}

/// Matches that follow each other without literals: pieces of a short noise.
fn sequences(len: usize, rng: &mut Rng) -> Vec<u8> {
    let mut out: Vec<u8> = (0..2048).map(|_| rng.next() as u8).collect();
    while out.len() < len {
        let (from, count) = (below(rng, 2000) as usize, 5 + below(rng, 4) as usize);
        out.extend_from_within(from..from + count);
    }
    out.truncate(len);
    out
}

fn kinds(len: usize, rng: &mut Rng) -> Vec<Vec<u8>> {
    let mut all: Vec<Vec<u8>> = conformance::test_data(len, rng).into_iter().map(|(_, bytes)| bytes).collect();
    all.extend([terrain(len, rng), classes(len, rng), text(len), sequences(len, rng)]);
    // Bell-shaped: 256 symbols with codes of many lengths.
    all.push((0..len).map(|_| (0..6).map(|_| below(rng, 43) as u8).sum()).collect());
    // Each value half as often as the one before: codes would exceed the limit.
    all.push((0..len).map(|_| rng.next().trailing_zeros() as u8 * 9).collect());
    // One literal at either end of one match.
    let mut odd = vec![7; len];
    odd[0] = 1;
    all.push(odd.clone());
    odd.reverse();
    all.push(odd);
    // A period: no literals after the first one.
    let period: Vec<u8> = (0..300).map(|_| rng.next() as u8).collect();
    all.push(period.into_iter().cycle().take(len).collect());
    all
}

#[test]
fn whole_pieces_come_back() {
    let mut rng = Rng(1);
    let mut host = KernelHost::start(Build::Asan).unwrap();
    let tiles = kinds(PIECE, &mut rng);
    for effort in 1..=4 {
        round_trip(&mut host, 1, 1, &EncodeCase { effort, ..EncodeCase::new(&tiles, PIECE) });
    }
}

#[test]
fn what_compresses_gets_smaller() {
    let mut rng = Rng(2);
    let mut host = KernelHost::start(Build::Plain).unwrap();
    for (tile, at_most) in [
        (vec![9; PIECE], 4),
        (terrain(PIECE, &mut rng), 45_000),
        (classes(PIECE, &mut rng), 14_000),
        (text(PIECE), 20_000),
    ] {
        let tiles = [tile];
        let made = round_trip(&mut host, 1, 1, &EncodeCase::new(&tiles, PIECE));
        assert!(made[0][0].len() <= at_most, "{} bytes, not {at_most}", made[0][0].len());
    }
}

#[test]
fn every_short_length_comes_back() {
    let mut rng = Rng(3);
    let mut host = KernelHost::start(Build::Asan).unwrap();
    for len in (1..40).chain([127, 128, 129, 255, 256, 257, 1000, 1023, 1024, 1025, 1030, 4095, 4096, 4097, 16_400]) {
        let tiles = kinds(len, &mut rng);
        round_trip(&mut host, 2, 1, &EncodeCase::new(&tiles, len));
    }
}

#[test]
fn tiles_of_several_pieces_come_back() {
    let mut rng = Rng(4);
    let mut host = KernelHost::start(Build::Asan).unwrap();
    for piece_len in [1, 7, 100, 4099, PIECE] {
        let most = piece_len * 3;
        let mut tiles: Vec<Vec<u8>> = Vec::new();
        for len in [most, most - 1, 0, most / 2 + 1, 1, piece_len, piece_len + 1] {
            let mut some = kinds(len.max(1), &mut rng);
            let mut tile = some.swap_remove(below(&mut rng, some.len() as u64) as usize);
            tile.truncate(len);
            tiles.push(tile);
        }
        round_trip(&mut host, 3, 1, &EncodeCase::new(&tiles, piece_len));
    }
}

/// Rows that repeat those far above: matches reach over several pieces, and the decoding kernels follow them.
#[test]
fn matches_reach_into_earlier_pieces() {
    let mut rng = Rng(8);
    let mut host = KernelHost::start(Build::Asan).unwrap();
    let noise: Vec<u8> = (0..3 * PIECE / 2).map(|_| rng.next() as u8).collect();
    let repeated = [&noise[..], &noise, &noise[..1000]].concat();
    let mut tiles = vec![repeated.clone()];
    tiles.extend(kinds(repeated.len(), &mut rng));
    let made = round_trip(&mut host, 2, 1, &EncodeCase::new(&tiles, PIECE));
    let size: usize = made[0].iter().map(Vec::len).sum();
    assert!(size < noise.len() + 2000, "{size} bytes: the second half should take none");
    for (tile, blocks) in tiles.iter().zip(&made) {
        let frame = frame(tile.len(), blocks);
        let (status, back) =
            decode(&mut host, ZSTD, 1, 1, &[Stream { bytes: &frame, len: tile.len() }]).unwrap().remove(0);
        assert_eq!(status, Status::Ok);
        assert!(back == *tile);
    }
}

/// The form of a block: its type, and for compressed blocks the type of the literals and the number of their streams. Literals that
/// are one repeated byte do not occur: the first occurrence of every value is a literal, and a block of one value is a repeated byte.
fn form(block: &[u8]) -> &'static str {
    match (block[0] >> 1 & 3, block.get(3).map(|literals| (literals & 3, literals >> 2 & 3))) {
        (0, _) => "raw block",
        (1, _) => "repeated byte",
        (2, Some((0, _))) => "raw literals",
        (2, Some((2, 0))) => "one Huffman stream",
        (2, Some((2, _))) => "four Huffman streams",
        _ => panic!("the kernel makes no such block: {:02x?}", &block[..4]),
    }
}

/// Few and short tiles, since a launch with a thread per lane under the thread sanitizer is some thousand times slower than
/// a plain one. Their blocks have every form.
fn tiles_of_every_form(rng: &mut Rng) -> Vec<Vec<u8>> {
    let noise: Vec<u8> = (0..2500).map(|_| rng.next() as u8).collect();
    // A few literals, then matches: not worth a Huffman code.
    let few_literals: Vec<u8> = noise[..20].iter().copied().cycle().take(700).collect();
    vec![noise, vec![9; 2500], terrain(2500, rng), classes(2500, rng), sequences(2500, rng), text(700), few_literals]
}

#[test]
fn lanes_and_blocks_change_nothing() {
    let mut rng = Rng(5);
    let mut plain = KernelHost::start(Build::Plain).unwrap();
    let tiles = kinds(20_000, &mut rng);
    let case = EncodeCase::new(&tiles, 9_999);
    let want = round_trip(&mut plain, 1, 1, &case);
    for (build, blocks, lanes) in [(Build::Asan, 7, 1), (Build::Asan, 1, 2)] {
        let mut host = KernelHost::start(build).unwrap();
        assert!(encode(&mut host, blocks, lanes, &case) == want, "{build:?}, {blocks} blocks, {lanes} lanes");
    }

    let tiles = tiles_of_every_form(&mut rng);
    let mut forms = BTreeSet::new();
    for (effort, cases) in [
        (1, &[(Build::Tsan, 2, 4), (Build::Tsan, 1, 8)][..]),
        (2, &[(Build::Asan, 3, 8), (Build::Tsan, 2, 8)]),
        (3, &[(Build::Asan, 3, 8), (Build::Tsan, 3, 8), (Build::Tsan, 1, 32)]),
        (4, &[(Build::Tsan, 1, 4), (Build::Tsan, 2, 8)]),
    ] {
        let case = EncodeCase { effort, ..EncodeCase::new(&tiles, 2000) };
        let want = round_trip(&mut plain, 1, 1, &case);
        forms.extend(want.iter().flatten().filter(|block| !block.is_empty()).map(|block| form(block)));
        for (build, blocks, lanes) in cases {
            let mut host = KernelHost::start(*build).unwrap();
            let made = encode(&mut host, *blocks, *lanes, &case);
            assert!(made == want, "effort {effort}, {build:?}, {blocks} blocks, {lanes} lanes");
        }
    }
    assert_eq!(forms.len(), 5, "the tiles lack a form: {forms:?}");
}

/// A piece of the largest size, which a team of threads encodes: places in it need all 16 bits.
#[test]
fn whole_pieces_with_teams() {
    let mut rng = Rng(6);
    let tiles = [classes(PIECE, &mut rng)];
    let case = EncodeCase::new(&tiles, PIECE);
    let want = round_trip(&mut KernelHost::start(Build::Plain).unwrap(), 1, 1, &case);
    let mut host = KernelHost::start(Build::Tsan).unwrap();
    assert!(encode(&mut host, 1, 8, &case) == want);
}

#[test]
fn impossible_lengths_are_refused() {
    let mut rng = Rng(7);
    let mut host = KernelHost::start(Build::Asan).unwrap();
    let tiles = [text(1000), terrain(1000, &mut rng), classes(1000, &mut rng)];
    let made = encode_with_lens(&mut host, 2, 1, &EncodeCase::new(&tiles, 400), &[1000, 1201, u32::MAX]);
    assert!(made[0].iter().all(|block| !block.is_empty()));
    assert!(made[1..].iter().flatten().all(|block| block == REFUSED));
}
