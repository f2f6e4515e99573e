//! What is not read, and the edges of what is, in frames made by hand.

use swath_codec::conformance::Rng;
use swath_kernel_host::{
    Build, KernelHost,
    decode::{Status, Stream, ZSTD, decode, decode_with, zstd_scratch},
};

use super::{
    anatomy::MAGIC,
    damage::Case,
    library::{Decoder, Encoder, Tile, ZSTD_c_checksumFlag, level},
    samples::{self, any_stream, below, kinds},
    verdict::VERIFY,
};

/// Status and, beside it, whether the library takes the same.
fn verdicts(cases: &[Case]) -> Vec<(Status, bool)> {
    let (mut host, mut decoder) = (KernelHost::start(Build::Asan).unwrap(), Decoder::new());
    let tiles: Vec<_> = cases.iter().map(|(stream, len)| Stream { bytes: stream, len: *len }).collect();
    let done = decode(&mut host, ZSTD, 2, 1, &tiles).unwrap();
    let library = cases.iter().map(|(stream, len)| decoder.tile(stream, *len));
    done.into_iter().zip(library).map(|((status, _), bytes)| (status, bytes.is_some())).collect()
}

/// A frame of raw blocks after this descriptor and what follows it.
fn raw_frame(header: &[u8], bytes: &[u8]) -> Vec<u8> {
    let size = (bytes.len() as u32) << 3 | 1;
    [&MAGIC[..], header, &size.to_le_bytes()[..3], bytes].concat()
}

#[test]
fn what_is_not_read_is_unusual() {
    let bytes = samples::text(300);
    let frame = Encoder::new().frame(&level(3), &bytes);
    let skippable = [&[0x53, 0x2a, 0x4d, 0x18, 3, 0, 0, 0][..], b"abc"].concat();
    let streams = [
        [&skippable[..], &frame[..]].concat(),
        [&frame[..], &skippable[..]].concat(),
        [&frame[..20], &frame[20..], &skippable[..]].concat(),
        // A dictionary has an id of one, two or four bytes.
        raw_frame(&[1, 0x40, 9], &bytes),
        raw_frame(&[2, 0x40, 9, 1], &bytes),
        raw_frame(&[3, 0x40, 9, 1, 0, 7], &bytes),
    ];
    let cases: Vec<Case> = streams.into_iter().map(|stream| (stream, 300)).collect();
    for (nth, (status, library)) in verdicts(&cases).into_iter().enumerate() {
        assert_eq!(status, Status::Unusual, "case {nth}");
        assert_eq!(library, nth < 3, "case {nth}");
    }
    // None is meant by the id 0, however long it is.
    let none = [raw_frame(&[1, 0x40, 0], &bytes), raw_frame(&[3, 0x40, 0, 0, 0, 0], &bytes)];
    let cases: Vec<Case> = none.into_iter().map(|stream| (stream, 300)).collect();
    assert_eq!(verdicts(&cases), [(Status::Ok, true); 2]);
}

/// A frame of one compressed block after this descriptor and what follows it.
fn compressed_frame(header: &[u8], block: &[u8]) -> Vec<u8> {
    let size = (block.len() as u32) << 3 | 5;
    [&MAGIC[..], header, &size.to_le_bytes()[..3], block].concat()
}

/// A block of so many literals whose tree has codes of up to so many bits, and weights of so many symbols. All literals
/// are of the first symbol, whose code is one bit, in one stream or four.
fn deep_tree(bits: u8, symbols: usize, streams: u32, literals: u32) -> Vec<u8> {
    let mut weights: Vec<u8> = (1..=bits).rev().collect();
    weights.resize(symbols.next_multiple_of(2), 0);
    let mut body = vec![127 + symbols as u8];
    body.extend(weights.chunks(2).map(|pair| pair[0] << 4 | pair[1]));
    // A bit each, and one above them.
    let each = literals / streams;
    let (stream, len) = (((2 << each) - 1_u32).to_le_bytes(), each as u8 / 8 + 1);
    if streams == 4 {
        body.extend([len, 0, len, 0, len, 0]);
    }
    (0..streams).for_each(|_| body.extend_from_slice(&stream[..len.into()]));
    let header = 2 | u32::from(streams == 4) << 2 | literals << 4 | (body.len() as u32) << 14;
    [&header.to_le_bytes()[..3], &body, &[0]].concat()
}

#[test]
fn codes_of_eleven_bits_are_read() {
    let cases = [11, 12, 13].map(|bits| (compressed_frame(&[0, 0x40], &deep_tree(bits, bits.into(), 1, 15)), 15));
    assert_eq!(verdicts(&cases), [(Status::Ok, true), (Status::Unusual, true), (Status::Corrupt, false)]);
}

/// A block is stored in no more bytes than its frame or window has.
#[test]
fn blocks_are_not_longer_than_their_frames() {
    let cases = [(&[0, 0x40], 100), (&[0x20, 15], 100), (&[0x20, 15], 11)]
        .map(|(header, symbols)| (compressed_frame(header, &deep_tree(11, symbols, 1, 15)), 15));
    assert_eq!(verdicts(&cases), [(Status::Ok, true), (Status::Corrupt, false), (Status::Ok, true)]);
    // Literals that are one byte so many times, in windows of 256 KiB and of 1.
    let cases = [(0x40, 1500_u16), (0, 1024), (0, 1025)].map(|(window, len)| {
        let [low, high] = (5 | len << 4).to_le_bytes();
        (compressed_frame(&[0, window], &[low, high, b'a', 0]), len.into())
    });
    assert_eq!(verdicts(&cases), [(Status::Ok, true), (Status::Ok, true), (Status::Corrupt, false)]);
}

#[test]
fn four_streams_have_six_literals_or_more() {
    let cases = [4, 8, 60].map(|len| (compressed_frame(&[0, 0x40], &deep_tree(11, 11, 4, len)), len as usize));
    assert_eq!(verdicts(&cases), [(Status::Corrupt, false), (Status::Ok, true), (Status::Ok, true)]);
}

/// A literal and a match of three more of it. The codes of their lengths and offset are all of one symbol, but one of
/// them is told by a table of so many bits in which a second symbol has the last cell.
fn one_table(modes: u8, log: u32, at: usize) -> Vec<u8> {
    let table = ((log - 5) | ((2 << log) - 2) << 4).to_le_bytes();
    let mut codes = [&[1][..], &[0], &[0]];
    codes[at] = &table[..2];
    // The first cell, and a bit above its number.
    let state = (1_u32 << log).to_le_bytes();
    compressed_frame(&[0, 0x40], &[&[8, b'a', 1, modes][..], &codes.concat(), &state[..2]].concat())
}

#[test]
fn tables_have_as_many_bits_as_they_may() {
    let [offsets, lengths] = [(0x64, 1), (0x58, 2)];
    let cases = [(offsets, 8), (lengths, 9), (offsets, 9), (lengths, 10)]
        .map(|((modes, at), log)| (one_table(modes, log, at), 4));
    let (whole, refused) = ((Status::Ok, true), (Status::Corrupt, false));
    assert_eq!(verdicts(&cases), [whole, whole, refused, refused]);
}

#[test]
fn blocks_that_are_too_long_are_not_read() {
    // One literal and a match of it, by three codes that have no bits of their own.
    let block = |len: u32| {
        let rest = (len - 65_540) | 1 << 16;
        (
            compressed_frame(&[0, 0x40], &[&[8, b'a', 1, 0x54, 1, 0, 52][..], &rest.to_le_bytes()[..3]].concat()),
            len as usize,
        )
    };
    let [fits, too_long] = verdicts(&[block(131_072), block(131_073)])[..] else { panic!() };
    assert_eq!(fits, (Status::Ok, true));
    assert_eq!(too_long.0, Status::Unusual);
}

/// Scratch memory that is too short is a reason to refuse a tile, and nothing else.
#[test]
fn short_scratch_makes_tiles_unusual() {
    let (mut rng, mut encoder, mut host) = (Rng(10), Encoder::new(), KernelHost::start(Build::Asan).unwrap());
    let tiles: Vec<Tile> = (0..60).map(|_| any_stream(&mut encoder, 5000, &mut rng)).collect();
    let streams: Vec<_> = tiles.iter().map(|(stream, bytes)| Stream { bytes: stream, len: bytes.len() }).collect();
    const ENOUGH: usize = 1 << 20;
    for scratch in [0, 256, 2048, 4096, 8192, 16_384, 32_512, 32_768, 65_536, ENOUGH] {
        let done = decode_with(&mut host, ZSTD, 2, 1, (scratch, VERIFY), &streams).unwrap();
        let whole = done.iter().zip(&tiles).filter(|((status, got), (_, bytes))| match status {
            Status::Ok => {
                assert!(got == bytes, "other bytes with {scratch} bytes of scratch");
                true
            }
            Status::Unusual => false,
            status => panic!("{status:?} with {scratch} bytes"),
        });
        let whole = whole.count();
        match scratch {
            0 => assert_eq!(whole, 0),
            ENOUGH => assert_eq!(whole, tiles.len()),
            _ => assert_ne!(whole, 0, "with {scratch} bytes"),
        }
    }
}

#[test]
fn what_is_wrong_is_refused() {
    let bytes = samples::text(300);
    let frame = Encoder::new().frame(&[(ZSTD_c_checksumFlag, 1)], &bytes);
    let mut reserved_bit = frame.clone();
    reserved_bit[4] |= 8;
    let mut cases: Vec<Case> = vec![
        (reserved_bit, 300),
        (frame.clone(), 299),
        (frame.clone(), 301),
        (frame.clone(), 0),
        (frame[..frame.len() - 1].to_vec(), 300),
        (frame[..frame.len() - 4].to_vec(), 300),
        ([&frame[..], &[0]].concat(), 300),
        ([&frame[..], &MAGIC[..]].concat(), 300),
        (Vec::new(), 300),
        (MAGIC.to_vec(), 0),
        (frame[..5].to_vec(), 0),
        // Windows of 2^32 bytes and more.
        (raw_frame(&[0, 31 << 3], &bytes), 300),
        (raw_frame(&[0, 22 << 3], &bytes), 300),
        // A content size of another length.
        (raw_frame(&[0x20, 44], &bytes), 300),
        (raw_frame(&[0x60, 45, 0], &bytes), 300),
        (raw_frame(&[0xe0, 0, 0, 0, 0, 0, 0, 0, 1], &bytes), 300),
    ];
    // Block type 3, and magic numbers of others: older formats, formats without a magic number.
    let mut kind = raw_frame(&[0, 0x40], &bytes);
    kind[6] |= 6;
    cases.push((kind, 300));
    for magic in [[0x27, 0xb5, 0x2f, 0xfd], [0x22, 0xb5, 0x2f, 0xfd], [0x28, 0xb5, 0x2f, 0xfe], [0, 0, 0, 0]] {
        cases.push(([&magic[..], &frame[4..]].concat(), 300));
    }
    cases.push((frame[4..].to_vec(), 300));
    for (nth, (status, library)) in verdicts(&cases).into_iter().enumerate() {
        assert!(!matches!(status, Status::Ok | Status::Checksum), "case {nth}: {status:?}");
        assert!(!library, "case {nth}");
    }
    // At the other side of the same edges.
    let whole = [
        (raw_frame(&[0, 21 << 3], &bytes), 300),
        (raw_frame(&[0, 21 << 3 | 7], &bytes), 300),
        (raw_frame(&[0x60, 44, 0], &bytes), 300),
        (raw_frame(&[0xe0, 44, 1, 0, 0, 0, 0, 0, 0], &bytes), 300),
        (Vec::new(), 0),
    ];
    assert_eq!(verdicts(&whole), [(Status::Ok, true); 5]);
}

#[test]
fn checksums_are_verified_on_request() {
    let (mut rng, mut encoder, mut host) = (Rng(7), Encoder::new(), KernelHost::start(Build::Asan).unwrap());
    for len in [0, 1, 3, 4, 7, 8, 31, 32, 33, 63, 64, 100, 5000, 140_001] {
        for bytes in kinds(len, &mut rng).into_iter().step_by(3) {
            let right = encoder.frame(&[(ZSTD_c_checksumFlag, 1)], &bytes);
            let mut wrong = right.clone();
            let at = wrong.len() - 1 - below(&mut rng, 4);
            wrong[at] ^= 1 << below(&mut rng, 8);
            let tiles = [&right, &wrong].map(|stream| Stream { bytes: stream, len });
            let scratch = zstd_scratch(len);
            for (flags, want) in [(VERIFY, Status::Checksum), (0, Status::Ok)] {
                let done = decode_with(&mut host, ZSTD, 1, 1, (scratch, flags), &tiles).unwrap();
                let statuses: Vec<Status> = done.iter().map(|(status, _)| *status).collect();
                assert_eq!(statuses, [Status::Ok, want], "{len} bytes");
                assert!(done[0].1 == bytes);
            }
        }
    }
}
