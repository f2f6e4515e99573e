//! Deflate tiles that are decoded piece by piece: to the bytes of the whole stream, or refused, whatever the list of
//! pieces says.
#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

use swath_codec::{
    Registry, Scratch,
    conformance::{self, Rng, test_data},
};
use swath_kernel_host::{Argument, Build, KernelHost, server::Buffer};
use swath_tiff::{Compression, SampleType};

const KERNELS: [&str; 3] = ["swath_inflate_pieces", "swath_inflate_pieces_some", "swath_inflate_pieces_few"];
const OK: u32 = 0;

/// A stream, its decoded length, and the list of its pieces.
#[derive(Debug, Clone)]
struct Tile {
    stream: Vec<u8>,
    len: usize,
    piece_len: usize,
    /// Lengths of all pieces but the last.
    sizes: Vec<u32>,
}

fn adler(bytes: &[u8]) -> u32 {
    let (a, b) = bytes.iter().fold((1, 0), |(a, b), byte| {
        let a = (a + u32::from(*byte)) % 65_521;
        (a, (b + a) % 65_521)
    });
    b << 16 | a
}

fn stream_of(pieces: &[Vec<u8>], bytes: &[u8]) -> Vec<u8> {
    [&[0x78, 0x9c], &pieces.concat()[..], &adler(bytes).to_be_bytes()].concat()
}

/// Tiles of these bytes as our encoder cuts them into pieces.
fn encode(host: &mut KernelHost, tiles: &[Vec<u8>], piece_len: usize) -> Vec<Tile> {
    const SCRATCH: usize = 20_480 * 8;
    let longest = tiles.iter().map(Vec::len).max().unwrap();
    let (stride, pieces) = (longest.next_multiple_of(16), longest.div_ceil(piece_len));
    let mut src = vec![0; stride * tiles.len()];
    for (place, tile) in src.chunks_mut(stride).zip(tiles) {
        place[..tile.len()].copy_from_slice(tile);
    }
    let lens: Vec<u8> = tiles.iter().flat_map(|tile| (tile.len() as u32).to_le_bytes()).collect();
    let (all, dst_stride) = (tiles.len() * pieces, (piece_len + 16).next_multiple_of(16));
    let buffers = [
        Buffer::In(&src),
        Buffer::Out(all * dst_stride),
        Buffer::In(&lens),
        Buffer::Out(all * 4),
        Buffer::Out(SCRATCH),
    ];
    let long = |number: usize| (number as u64).to_le_bytes();
    let numbers = [tiles.len() as u32, pieces as u32, piece_len as u32, 1, 64, 1];
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
        Argument::Bytes(&long(SCRATCH)),
        Argument::Bytes(&numbers),
    ];
    let back = host.run("swath_deflate_encode", 1, 1, &buffers, &arguments).unwrap();
    let piece = |at: usize| {
        let size = u32::from_le_bytes(back[1].as_chunks().0[at]) as usize;
        back[0][at * dst_stride..][..size].to_vec()
    };
    let tile = |(number, bytes): (usize, &Vec<u8>)| {
        let used = bytes.len().div_ceil(piece_len);
        let made: Vec<Vec<u8>> = (0..used).map(|nth| piece(number * pieces + nth)).collect();
        let sizes = made[..used - 1].iter().map(|piece| piece.len() as u32).collect();
        Tile { stream: stream_of(&made, bytes), len: bytes.len(), piece_len, sizes }
    };
    tiles.iter().enumerate().map(tile).collect()
}

/// Decodes tiles by their pieces; returns statuses and bytes.
fn decode(host: &mut KernelHost, kernel: &str, blocks: u32, lanes: u32, tiles: &[Tile]) -> Vec<(u32, Vec<u8>)> {
    let (mut src, mut jobs, mut pieces, mut ranges) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let (mut dst_len, mut count) = (0, 0);
    for (number, tile) in tiles.iter().enumerate() {
        let long = |out: &mut Vec<u8>, number: u64| out.extend(number.to_le_bytes());
        for number in [src.len(), tile.stream.len(), dst_len, tile.len] {
            long(&mut jobs, number as u64);
        }
        ranges.extend([count as u32, tile.sizes.len() as u32 + 1].iter().flat_map(|number| number.to_le_bytes()));
        let (mut from, mut to) = (src.len() as u64 + 2, dst_len as u64);
        let (src_end, dst_end) = ((src.len() + tile.stream.len()) as u64, (dst_len + tile.len) as u64);
        for size in &tile.sizes {
            for number in [from, (*size).into(), to, tile.piece_len as u64, 0] {
                long(&mut pieces, number);
            }
            (from, to) = (from + u64::from(*size), to + tile.piece_len as u64);
        }
        for number in [from, src_end.wrapping_sub(from), to, dst_end.wrapping_sub(to), 1] {
            long(&mut pieces, number);
        }
        count += tile.sizes.len() + 1;
        src.extend_from_slice(&tile.stream);
        // Not zeros, which a faulty kernel might accept.
        src.resize(src.len() + 16, 0xee);
        // The last tile ends with the buffer, so that a sanitizer sees an access beyond it.
        dst_len += tile.len;
        if number + 1 < tiles.len() {
            src.resize(src.len().next_multiple_of(16), 0xee);
            dst_len = dst_len.next_multiple_of(16);
        }
    }
    let numbers = [src.len(), dst_len, count, tiles.len()].map(|number| (number as u64).to_le_bytes());
    let [src_bytes, dst_bytes, piece_count, tile_count] = numbers.each_ref().map(|number| Argument::Bytes(number));
    let undone = vec![0xff; count * 16];
    let back = host
        .run(
            kernel,
            blocks,
            lanes,
            &[Buffer::In(&src), Buffer::Out(dst_len), Buffer::In(&pieces), Buffer::InOut(&undone)],
            &[
                Argument::Pointer(0, 0),
                src_bytes,
                Argument::Pointer(1, 0),
                dst_bytes,
                Argument::Pointer(2, 0),
                Argument::Pointer(3, 0),
                piece_count,
            ],
        )
        .unwrap_or_else(|error| panic!("{error}; {tiles:02x?}"));
    let [dst, notes] = &back[..] else { panic!("buffers are missing") };
    let undone = vec![0xff; tiles.len() * 4];
    let buffers = [
        Buffer::In(&src),
        Buffer::In(&jobs),
        Buffer::In(&ranges),
        Buffer::In(&pieces),
        Buffer::In(notes),
        Buffer::InOut(&undone),
    ];
    let [src_bytes, _, piece_count, _] = numbers.each_ref().map(|number| Argument::Bytes(number));
    let arguments = [
        Argument::Pointer(0, 0),
        src_bytes,
        Argument::Pointer(1, 0),
        Argument::Pointer(2, 0),
        Argument::Pointer(3, 0),
        Argument::Pointer(4, 0),
        piece_count,
        Argument::Pointer(5, 0),
        tile_count,
    ];
    let statuses = host.run("swath_join_pieces", blocks, lanes, &buffers, &arguments).unwrap().remove(0);
    let mut at = 0;
    let mut done = Vec::new();
    for (tile, status) in tiles.iter().zip(statuses.as_chunks().0) {
        done.push((u32::from_le_bytes(*status), dst[at..at + tile.len].to_vec()));
        at = (at + tile.len).next_multiple_of(16);
    }
    done
}

fn one(host: &mut KernelHost, kernel: &str, lanes: u32, tile: &Tile) -> (u32, Vec<u8>) {
    decode(host, kernel, 1, lanes, std::slice::from_ref(tile)).remove(0)
}

/// Decodes the whole stream on the CPU.
fn whole(tile: &Tile) -> Option<Vec<u8>> {
    let spec = conformance::spec(Compression::Deflate, 8, SampleType::U8, 1, tile.len as u32);
    let mut bytes = vec![0; tile.len];
    let registry = Registry::default();
    let decoder = registry.decoder(Compression::Deflate).unwrap();
    decoder.decode(&spec, 1, &tile.stream, &mut bytes, &mut Scratch::default()).is_ok().then_some(bytes)
}

fn tiles(host: &mut KernelHost, longest: u64, rng: &mut Rng) -> Vec<(Tile, Vec<u8>)> {
    let mut made = Vec::new();
    for piece_len in [256, 1024, 4096] {
        let bytes: Vec<Vec<u8>> =
            (0..3).flat_map(|_| test_data(1 + (rng.next() % longest) as usize, rng)).map(|(_, bytes)| bytes).collect();
        made.extend(encode(host, &bytes, piece_len).into_iter().zip(bytes));
    }
    made
}

#[test]
fn pieces_give_what_the_whole_gives() {
    let mut rng = Rng(5);
    let made = tiles(&mut KernelHost::start(Build::Plain).unwrap(), 20_000, &mut rng);
    assert!(made.iter().any(|(tile, _)| tile.sizes.len() > 20));
    let all: Vec<Tile> = made.iter().map(|(tile, _)| tile.clone()).collect();
    let mut asan = KernelHost::start(Build::Asan).unwrap();
    for kernel in KERNELS {
        for blocks in [1, 3, 100] {
            for ((status, got), (_, bytes)) in decode(&mut asan, kernel, blocks, 1, &all).iter().zip(&made) {
                assert!(*status == OK && got == bytes, "{kernel}, {blocks} blocks: {status}");
            }
        }
    }
    // The same as one piece: streams without a list of pieces are decoded so.
    for (tile, bytes) in &made {
        let uncut = Tile { sizes: Vec::new(), ..tile.clone() };
        assert_eq!(one(&mut asan, KERNELS[0], 1, &uncut), (OK, bytes.clone()));
    }
    let mut tsan = KernelHost::start(Build::Tsan).unwrap();
    for (nth, (tile, bytes)) in made.iter().filter(|(tile, _)| tile.len < 6000).step_by(4).enumerate() {
        assert_eq!(one(&mut tsan, KERNELS[nth % 3], 8, tile), (OK, bytes.clone()));
    }
}

/// A stored block.
fn stored(bytes: &[u8], last: bool) -> Vec<u8> {
    let len = bytes.len() as u16;
    [&[u8::from(last)], &len.to_le_bytes()[..], &(!len).to_le_bytes(), bytes].concat()
}

#[test]
fn blocks_that_only_the_whole_has_are_refused_in_pieces() {
    let mut host = KernelHost::start(Build::Asan).unwrap();
    let first: Vec<u8> = (0..256_u32).map(|byte| byte as u8).collect();
    // Fixed codes: a match of three bytes one byte back, then the end.
    let far = vec![0b0000_0011, 0b0000_0010, 0];
    let bytes = [&first[..], &[255; 3]].concat();
    let cut = |pieces: &[Vec<u8>], bytes: &[u8]| Tile {
        stream: stream_of(pieces, bytes),
        len: bytes.len(),
        piece_len: 256,
        sizes: pieces[..pieces.len() - 1].iter().map(|piece| piece.len() as u32).collect(),
    };
    let tile = cut(&[stored(&first, false), far], &bytes);
    assert_eq!(whole(&tile).as_ref(), Some(&bytes), "the match is as it was meant");
    for kernel in KERNELS {
        assert_ne!(one(&mut host, kernel, 1, &tile).0, OK);
        assert_eq!(one(&mut host, kernel, 1, &Tile { sizes: Vec::new(), ..tile.clone() }), (OK, bytes.clone()));
        // The last block in a piece that is not the last, and none in the last.
        let tail = stored(&bytes[..7], true);
        let bytes = [&first[..], &bytes[..7]].concat();
        let sound = cut(&[stored(&first, false), tail.clone()], &bytes);
        assert_eq!(one(&mut host, kernel, 1, &sound), (OK, bytes.clone()));
        assert_ne!(one(&mut host, kernel, 1, &cut(&[stored(&first, true), tail], &bytes)).0, OK);
        assert_ne!(one(&mut host, kernel, 1, &cut(&[stored(&first, false), stored(&bytes[..7], false)], &bytes)).0, OK);
        // A wrong header, a wrong checksum, a checksum that is cut off, and bytes after it.
        for (at, bit) in [(0, 1), (1, 1), (1, 32), (sound.stream.len() - 1, 1), (sound.stream.len() - 4, 128)] {
            let mut bad = sound.clone();
            bad.stream[at] ^= bit;
            assert_ne!(one(&mut host, kernel, 1, &bad).0, OK, "byte {at}");
        }
        let mut other = sound.clone();
        other.stream.pop();
        assert_ne!(one(&mut host, kernel, 1, &other).0, OK);
        // A stream whose missing bytes would be zeros.
        let ends = (0..=255).map(|byte| [&first[..], &[byte]].concat()).find(|bytes| adler(bytes) & 255 == 0).unwrap();
        let mut zero = cut(&[stored(&first, false), stored(&ends[256..], true)], &ends);
        assert_eq!(one(&mut host, kernel, 1, &zero), (OK, ends));
        zero.stream.pop();
        assert_ne!(one(&mut host, kernel, 1, &zero).0, OK);
        other = sound.clone();
        other.stream.extend([1, 2, 3]);
        assert_eq!(one(&mut host, kernel, 1, &other), (OK, bytes));
        // A cut inside a block, with both sides as long as they should be.
        for shift in [-1, 1, 3] {
            let moved = Tile { sizes: vec![sound.sizes[0].wrapping_add_signed(shift)], ..sound.clone() };
            assert_ne!(one(&mut host, kernel, 1, &moved).0, OK, "{shift}");
        }
    }
}

fn damage(tile: &Tile, rng: &mut Rng) -> Tile {
    let mut tile = tile.clone();
    let any = |rng: &mut Rng, len: usize| rng.next() as usize % len.max(1);
    let (end, count) = (tile.stream.len(), tile.sizes.len());
    match rng.next() % 12 {
        0 => tile.stream.truncate(any(rng, end)),
        1 => {
            let at = any(rng, end);
            tile.stream[at..].fill_with(|| rng.next() as u8);
        }
        2 => {
            let (at, len) = (any(rng, end), any(rng, 40));
            tile.stream.splice(at..at, (0..len).map(|_| rng.next() as u8).collect::<Vec<_>>());
        }
        3 if count > 0 => tile.sizes[any(rng, count)] = rng.next() as u32,
        4 if count > 0 => tile.sizes[any(rng, count)] = any(rng, 2 * end) as u32,
        5 if count > 0 => {
            let at = any(rng, count);
            tile.sizes[at] = tile.sizes[at].wrapping_add_signed(any(rng, 9) as i32 - 4);
        }
        6 if count > 1 => tile.sizes.swap(0, count - 1),
        7 if count > 0 => {
            // Two pieces become one, and the length with them or not.
            let at = any(rng, count);
            let size = tile.sizes.remove(at);
            if let Some(next) = tile.sizes.get_mut(at) {
                *next += size;
            }
            tile.piece_len <<= rng.next() % 2;
        }
        8 => tile.piece_len = 16 << (rng.next() % 10),
        9 => tile.len += any(rng, 40),
        // At a seam.
        10 if count > 0 => {
            let seam: u32 = tile.sizes[..1 + any(rng, count)].iter().sum::<u32>() + 2;
            let at = (seam as usize + 5 - any(rng, 11)).min(end - 1);
            tile.stream[at] ^= 1 << (rng.next() % 8);
        }
        _ => {
            for _ in 0..=rng.next() % 3 {
                let at = any(rng, end);
                tile.stream[at] ^= 1 << (rng.next() % 8);
            }
        }
    }
    tile
}

/// A tile that the kernel decodes, the CPU decodes too, to the same bytes. No tile makes a sanitizer report or a kernel
/// hang.
fn damaged(build: Build, lanes: u32, count: usize, longest: u64, seed: u64) {
    let mut rng = Rng(seed);
    let mut plain = KernelHost::start(Build::Plain).unwrap();
    let mut host = KernelHost::start(build).unwrap();
    let mut made = tiles(&mut plain, longest, &mut rng);
    let mut taken = 0;
    for round in 0..count {
        if round % 1000 == 999 {
            made = tiles(&mut plain, longest, &mut rng);
        }
        let tile = damage(&made[rng.next() as usize % made.len()].0, &mut rng);
        let (status, bytes) = one(&mut host, KERNELS[round % 3], lanes, &tile);
        if status == OK {
            taken += 1;
            assert!(whole(&tile).is_some_and(|whole| whole == bytes), "{tile:02x?}");
        }
    }
    assert!(taken < count / 4, "{taken} of {count} were taken");
}

#[test]
fn damaged_pieces_are_refused_or_whole() {
    damaged(Build::Asan, 1, 6000, 5000, 41);
}

#[test]
fn damaged_pieces_with_teams() {
    damaged(Build::Asan, 8, 80, 2500, 42);
    damaged(Build::Tsan, 8, 40, 2500, 43);
    damaged(Build::Tsan, 32, 10, 2500, 44);
}
