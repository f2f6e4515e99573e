use super::*;
use weezl::{BitOrder, decode::Decoder, encode::Encoder};

struct Noise(u64);

impl Noise {
    fn next(&mut self) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize
    }
}

fn samples(kind: usize, len: usize, noise: &mut Noise) -> Vec<u8> {
    let mut level = 0u8;
    (0..len)
        .map(|i| match kind {
            0 => 7,
            1 => noise.next() as u8,
            2 => {
                // Land cover: long runs of few classes.
                if noise.next().is_multiple_of(37) {
                    level = (noise.next() % 7) as u8;
                }
                level
            }
            3 => (noise.next() % 4 + noise.next() % 4) as u8,
            4 => (i * i / 1000) as u8,
            _ => [0, 0, noise.next() as u8 & 31, 1][i % 4],
        })
        .collect()
}

const SIZES: [usize; 18] = [1, 2, 3, 7, 8, 9, 31, 32, 33, 71, 72, 73, 255, 1000, 4093, 20_000, 100_000, 300_001];

/// A plain decoder of both orders, up to the end of the output.
fn plain(src: &[u8], want: usize) -> Result<Vec<u8>, LzwError> {
    let reversed = src.len() > 1 && src[0] == 0 && src[1] & 1 == 1;
    let bit = |i: usize| usize::from(if reversed { src[i / 8] >> (i % 8) & 1 } else { src[i / 8] >> (7 - i % 8) & 1 });
    let mut table: Vec<Vec<u8>> = Vec::new();
    let (mut at, mut out, mut prev, mut begun) = (0, Vec::new(), None::<Vec<u8>>, false);
    while out.len() < want {
        let width = (9..12).find(|w| table.len().max(FIRST) + usize::from(!reversed) < 1 << w).unwrap_or(12);
        let short = Err(LzwError::Short { got: out.len(), want });
        if at + width > src.len() * 8 {
            return short;
        }
        let code = (0..width).fold(0, |all, k| if reversed { all | bit(at + k) << k } else { all << 1 | bit(at + k) });
        if !begun && code != CLEAR && code != EOI {
            return Err(LzwError::NoClear { code: code as u16 });
        }
        begun = true;
        let string = match code {
            CLEAR => {
                table = (0..FIRST).map(|b| vec![b as u8]).collect();
                prev = None;
                at += width;
                continue;
            }
            EOI => return short,
            _ if code < table.len() => table[code].clone(),
            _ => match &prev {
                Some(prev) if code == table.len() => [&prev[..], &prev[..1]].concat(),
                _ => return Err(beyond(code, table.len(), at)),
            },
        };
        if let Some(prev) = prev.take()
            && table.len() < FULL
        {
            table.push([&prev[..], &string[..1]].concat());
        }
        out.extend_from_slice(&string);
        prev = Some(string);
        at += width;
    }
    out.truncate(want);
    Ok(out)
}

#[test]
fn reads_what_weezl_writes() {
    let (mut scratch, mut noise) = (LzwScratch::new(), Noise(1));
    for kind in 0..6 {
        for len in SIZES {
            let data = samples(kind, len, &mut noise);
            let packed = Encoder::with_tiff_size_switch(BitOrder::Msb, 8).encode(&data).unwrap();
            let mut out = vec![0; len];
            assert_eq!(decode(&packed, &mut out, &mut scratch), Ok(LzwEnd::Exact), "kind {kind}, {len} bytes");
            assert!(out == data, "kind {kind}, {len} bytes");
            let again = Decoder::with_tiff_size_switch(BitOrder::Msb, 8).decode(&packed).unwrap();
            assert!(again == data);
        }
    }
}

#[test]
fn reads_the_reversed_order_of_old_writers() {
    let (mut scratch, mut noise) = (LzwScratch::new(), Noise(2));
    for kind in 0..6 {
        for len in SIZES {
            let data = samples(kind, len, &mut noise);
            let packed = Encoder::new(BitOrder::Lsb, 8).encode(&data).unwrap();
            let mut out = vec![0; len];
            assert_eq!(decode(&packed, &mut out, &mut scratch), Ok(LzwEnd::Exact), "kind {kind}, {len} bytes");
            assert!(out == data, "kind {kind}, {len} bytes");
        }
    }
}

#[test]
fn cuts_surplus_and_counts_what_lacks() {
    let (mut scratch, mut noise) = (LzwScratch::new(), Noise(3));
    for kind in 0..6 {
        let data = samples(kind, 5000, &mut noise);
        let packed = Encoder::with_tiff_size_switch(BitOrder::Msb, 8).encode(&data).unwrap();
        for want in [0, 1, 2, 30, 72, 100, 4000, 4999] {
            let mut out = vec![0; want];
            assert_eq!(decode(&packed, &mut out, &mut scratch), Ok(LzwEnd::Surplus));
            assert_eq!(out, data[..want]);
        }
        let mut out = vec![0; 5001];
        assert_eq!(decode(&packed, &mut out, &mut scratch), Err(LzwError::Short { got: 5000, want: 5001 }));
        let mut out = vec![0; 5000];
        let cut = &packed[..packed.len() / 2];
        let Err(LzwError::Short { got, want: 5000 }) = decode(cut, &mut out, &mut scratch) else {
            panic!("kind {kind}")
        };
        assert_eq!(out[..got], data[..got]);
    }
    assert_eq!(decode(&[], &mut [], &mut scratch), Ok(LzwEnd::Exact));
    assert_eq!(decode(&[], &mut [0], &mut scratch), Err(LzwError::Short { got: 0, want: 1 }));
}

/// Packs codes of the widths that a decoder expects, most significant bit first.
fn pack(codes: &[usize]) -> Vec<u8> {
    let (mut bits, mut next, mut fresh) = (Vec::new(), FIRST, true);
    for &code in codes {
        let width = width_at::<Usual>(next);
        bits.extend((0..width).rev().map(|k| (code >> k & 1) as u8));
        if code == CLEAR {
            (next, fresh) = (FIRST, true);
        } else if !std::mem::take(&mut fresh) {
            next = (next + 1).min(FULL);
        }
    }
    bits.chunks(8).map(|byte| byte.iter().enumerate().fold(0, |all, (k, bit)| all | bit << (7 - k))).collect()
}

#[test]
fn tolerates_what_libtiff_tolerates() {
    let mut scratch = LzwScratch::new();
    let mut out = [0; 4];
    let many_clears = pack(&[CLEAR, CLEAR, CLEAR, 1, 2, CLEAR, CLEAR, 3, 4, CLEAR, EOI]);
    assert_eq!(decode(&many_clears, &mut out, &mut scratch), Ok(LzwEnd::Exact));
    assert_eq!(out, [1, 2, 3, 4]);
    assert_eq!(decode(&pack(&[CLEAR, 1, 258, 2]), &mut out, &mut scratch), Ok(LzwEnd::Exact));
    assert_eq!(out, [1, 1, 1, 2]);
    // An EOI of nine bits where ten are due: the last code has just made entry 510.
    let mut narrow = pack(&[&[CLEAR][..], &[7; 1], &(0..253).collect::<Vec<_>>()].concat());
    *narrow.last_mut().unwrap() |= 1;
    narrow.push(1);
    assert_eq!(decode(&narrow, &mut [0; 254], &mut scratch), Ok(LzwEnd::Exact));
    // A table full long before the Clear comes.
    let mut codes = vec![CLEAR];
    codes.extend((0..9000).map(|i| if i % 3 == 0 && i > 4000 { 4000 + i % 96 } else { i % 251 }));
    codes.extend([CLEAR, 9, EOI]);
    let packed = pack(&codes);
    let want = plain(&packed, 10_600).unwrap();
    let mut out = vec![0; want.len()];
    decode(&packed, &mut out, &mut scratch).unwrap();
    assert!(out == want);
}

#[test]
fn rejects_codes_without_meaning() {
    let mut scratch = LzwScratch::new();
    let mut out = [0; 100];
    assert_eq!(decode(&pack(&[65, 66]), &mut out, &mut scratch), Err(LzwError::NoClear { code: 65 }));
    let first_is_no_byte = decode(&pack(&[CLEAR, 258]), &mut out, &mut scratch);
    assert_eq!(first_is_no_byte, Err(LzwError::BeyondTable { code: 258, entries: 258, offset: 1 }));
    let packed = pack(&[CLEAR, 1, 2, 3, 4, 5, 6, 7, 400, 8, 9, 10, 11, 12, 13, 14]);
    let beyond = decode(&packed, &mut out, &mut scratch);
    assert_eq!(beyond, Err(LzwError::BeyondTable { code: 400, entries: 264, offset: 9 }));
    assert_eq!(beyond.unwrap_err().to_string(), "byte 9: LZW code 400 is beyond the table (264 entries)");
}

#[test]
fn agrees_with_the_plain_reading_on_damaged_streams() {
    let (mut scratch, mut noise) = (LzwScratch::new(), Noise(4));
    let mut packed = Vec::new();
    for kind in 0..6 {
        for len in [200, 3000, 9000] {
            let data = samples(kind, len, &mut noise);
            packed.push((len, Encoder::with_tiff_size_switch(BitOrder::Msb, 8).encode(&data).unwrap()));
            packed.push((len, Encoder::new(BitOrder::Lsb, 8).encode(&data).unwrap()));
        }
    }
    for round in 0..20_000 {
        let (len, stream) = &packed[noise.next() % packed.len()];
        let mut stream = stream.clone();
        for _ in 0..noise.next() % 4 {
            let at = noise.next() % stream.len();
            stream[at] = noise.next() as u8;
        }
        if round % 5 == 0 {
            stream.truncate(noise.next() % (stream.len() + 1));
        }
        let want = len + noise.next() % 3 - 1;
        let mut out = vec![0; want];
        let got = decode(&stream, &mut out, &mut scratch);
        match plain(&stream, want) {
            Ok(data) => {
                assert!(got.is_ok(), "round {round}: {got:?}");
                assert!(out == data, "round {round}");
            }
            Err(error) => assert_eq!(got, Err(error), "round {round}"),
        }
    }
}

#[test]
fn no_bytes_make_it_panic() {
    let (mut scratch, mut noise) = (LzwScratch::new(), Noise(5));
    for round in 0..200_000 {
        let mut src: Vec<u8> = (0..noise.next() % 120).map(|_| noise.next() as u8).collect();
        match round % 3 {
            0 if src.len() > 2 => src[..2].copy_from_slice(&[0x80, noise.0 as u8 & 0x3f]),
            1 if src.len() > 2 => src[..2].copy_from_slice(&[0, 1]),
            _ => {}
        }
        let mut out = vec![0; noise.next() % 400];
        let _ = decode(&src, &mut out, &mut scratch);
    }
}
