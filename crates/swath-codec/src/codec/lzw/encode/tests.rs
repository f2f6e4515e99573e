use super::*;
use crate::codec::lzw::decode as lzw;
use weezl::{BitOrder, decode::Decoder};

struct Noise(u64);

impl Noise {
    fn next(&mut self) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize
    }

    fn bytes(&mut self, len: usize, of: usize) -> Vec<u8> {
        (0..len).map(|_| (self.next() % of) as u8).collect()
    }
}

/// Bytes in which no pair of neighbours occurs twice, so every code stands for one byte.
fn no_pair_twice(len: usize) -> Vec<u8> {
    let (mut seen, mut out) = (vec![false; 1 << 16], vec![0u8]);
    while out.len() < len {
        let last = out[out.len() - 1];
        let next = (0..=255u8)
            .map(|k| k.wrapping_mul(37).wrapping_add(last))
            .find(|&b| !std::mem::replace(&mut seen[usize::from(last) << 8 | usize::from(b)], true));
        out.push(next.unwrap());
    }
    out
}

fn check(data: &[u8], scratch: &mut LzwEncoder) -> usize {
    let mut packed = b"kept".to_vec();
    encode(data, &mut packed, scratch).unwrap();
    let packed = packed.strip_prefix(b"kept").unwrap();
    assert!(packed.len() <= max_encoded_len(data.len()), "{} bytes to {}", data.len(), packed.len());
    let mut out = vec![0; data.len()];
    assert_eq!(lzw::decode(packed, &mut out, &mut lzw::LzwScratch::new()), Ok(lzw::LzwEnd::Exact));
    assert!(out == data, "{} bytes", data.len());
    let other = Decoder::with_tiff_size_switch(BitOrder::Msb, 8).decode(packed).unwrap();
    assert!(other == data, "{} bytes", data.len());
    packed.len()
}

#[test]
fn round_trips_every_short_length() {
    let (mut scratch, mut noise) = (LzwEncoder::default(), Noise(1));
    for len in 0..600 {
        check(&noise.bytes(len, 256), &mut scratch);
        check(&noise.bytes(len, 2), &mut scratch);
        check(&vec![7; len], &mut scratch);
        check(&no_pair_twice(len), &mut scratch);
    }
}

#[test]
fn the_smallest_streams_are_those_of_the_specification() {
    let mut scratch = LzwEncoder::default();
    let mut packed = Vec::new();
    encode(&[], &mut packed, &mut scratch).unwrap();
    assert_eq!(packed, [0x80, 0x40, 0x40]);
    packed.clear();
    encode(&[7, 7, 7, 8, 8, 7, 7, 6, 6], &mut packed, &mut scratch).unwrap();
    // Clear 7 258 8 8 258 6 6 EOI, nine bits each.
    assert_eq!(packed, [0x80, 0x01, 0xe0, 0x40, 0x80, 0x44, 0x08, 0x0c, 0x06, 0x80, 0x80]);
}

#[test]
fn widths_change_and_tables_end_where_the_reader_expects() {
    let mut scratch = LzwEncoder::default();
    let data = no_pair_twice(9000);
    for turn in [254, 766, 1790, CODES as usize, CODES as usize + 254, 2 * CODES as usize] {
        for len in turn - 5..turn + 6 {
            check(&data[..len], &mut scratch);
        }
    }
    // The same through the other loop: one section, then its last codes.
    for turn in [254, 766, 1790, (CODES - SPARE) as usize, 2 * (CODES - SPARE) as usize] {
        for len in turn - 5..turn + 6 {
            let section = &mut scratch.0.as_mut().unwrap().sections[0];
            section.bits = Bits::new(Vec::new());
            section.bits.put(CLEAR, 9);
            section.begin(data[0]);
            side_by_side([&data[1..len]], std::array::from_mut(section));
            section.push_code();
            section.write(EOI);
            let packed = std::mem::take(&mut section.bits).finish();
            let mut out = vec![0; len];
            assert_eq!(lzw::decode(&packed, &mut out, &mut lzw::LzwScratch::new()), Ok(lzw::LzwEnd::Exact));
            assert!(out == data[..len]);
            assert!(Decoder::with_tiff_size_switch(BitOrder::Msb, 8).decode(&packed).unwrap() == out);
        }
    }
}

#[test]
fn equal_bytes_pack_to_little() {
    let mut scratch = LzwEncoder::default();
    for len in [1000, 30_000, 33_333, 262_144, 1 << 20] {
        assert!(check(&vec![0; len], &mut scratch) < 200 + len / 100);
    }
}

#[test]
fn round_trips_long_data_of_all_kinds() {
    let (mut scratch, mut noise) = (LzwEncoder::default(), Noise(2));
    let words: Vec<Vec<u8>> = (0..300)
        .map(|_| {
            let n = 1 + noise.next() % 9;
            noise.bytes(n, 26)
        })
        .collect();
    for round in 0..120 {
        let want = noise.next() % if round % 10 == 0 { 900_000 } else { 90_000 };
        let mut data = Vec::new();
        while data.len() < want {
            let n = 1 + noise.next() % 40_000;
            let kind = if round % 2 == 0 { round / 2 % 6 } else { noise.next() % 6 };
            match kind {
                0 => data.extend(noise.bytes(n, 256)),
                1 => data.extend(noise.bytes(n, 20)),
                2 => data.extend(noise.bytes(n, 2)),
                3 => (0..n / 5).for_each(|_| data.extend(&words[noise.next() % words.len()])),
                4 => (0..n / 20).for_each(|_| {
                    let (byte, times) = (noise.next() % 9, noise.next() % 50);
                    data.extend(std::iter::repeat_n(byte as u8, times));
                }),
                _ => data.extend(std::iter::repeat_n(0, n)),
            }
        }
        check(&data, &mut scratch);
    }
}

#[test]
fn parts_of_any_length_are_joined() {
    let (mut scratch, mut noise) = (LzwEncoder::default(), Noise(3));
    for extra in 0..24 {
        check(&noise.bytes(60_000 + extra, 256), &mut scratch);
    }
    check(&noise.bytes(3 * SECTION_MOST + 70_000, 200), &mut scratch);
    check(&noise.bytes(9 * SECTION_MOST, 256), &mut scratch);
}

#[test]
fn old_entries_are_not_found_when_stamps_come_round() {
    let (mut scratch, mut noise) = (LzwEncoder::default(), Noise(4));
    for start in [STAMPS - 6, STAMPS - 2, STAMPS - 1] {
        check(&noise.bytes(200_000, 100), &mut scratch);
        let tables = scratch.0.as_mut().unwrap();
        tables.sections.iter_mut().for_each(|section| section.stamp = start);
        check(&noise.bytes(200_000, 100), &mut scratch);
    }
}

#[test]
fn streams_are_about_as_small_as_those_of_others() {
    let (mut scratch, mut noise) = (LzwEncoder::default(), Noise(5));
    for of in [2, 5, 30, 256] {
        let data = noise.bytes(300_000, of);
        let other = weezl::encode::Encoder::with_tiff_size_switch(BitOrder::Msb, 8).encode(&data).unwrap().len();
        let ours = check(&data, &mut scratch);
        assert!(ours * 100 < other * 102, "{of} values: {ours} and {other} bytes");
    }
}

#[test]
fn the_bound_takes_any_length() {
    assert_eq!(max_encoded_len(usize::MAX), usize::MAX);
    assert!(max_encoded_len(0) >= 3);
}
