//! The check and the decoder report the same about a stream.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test says so by panicking")]

use super::super::encode::{self, Encoder, Huffman, Samples, Settings};
use super::*;

const OPTIONS: Options = Options { color: Color::Raw, max_pixels: 1 << 16 };

/// A linear congruential generator: the same streams in every run.
struct Rng(u64);

impl Rng {
    fn next(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % below.max(1)
    }
}

/// A stream as the encoder of ours makes it, abbreviated, with its tables apart.
fn encoded(side: u32, quality: u8, color: encode::Color, huffman: Huffman) -> (Tables, Vec<u8>) {
    let components = if color == encode::Color::Gray { 1 } else { 3 };
    let subsampling = if color == encode::Color::YCbCr { (2, 2) } else { (1, 1) };
    let settings = Settings { quality, subsampling, color, components, precision: 8, huffman };
    let encoder = Encoder::new(settings).unwrap();
    let mut rng = Rng(7);
    let len = (side * side) as usize * usize::from(components);
    // Smooth with some noise, so that blocks are short, long, and full to the last coefficient.
    let samples: Vec<u8> =
        (0..len).map(|at| (at / 5 % 90 + rng.next(if at / 600 % 3 == 0 { 160 } else { 6 })) as u8).collect();
    let mut stream = Vec::new();
    encoder.encode(side, side, Samples::Bytes(&samples), &mut stream, &mut encode::Scratch::default()).unwrap();
    (Tables::parse(&encoder.tables()).unwrap(), stream)
}

/// Marker segments of a stream up to the first scan, the scan header's included: (marker, start, end).
fn segments(src: &[u8]) -> Vec<(u8, usize, usize)> {
    let (mut at, mut found) = (2, Vec::new());
    loop {
        let marker = src[at + 1];
        let end = at + 2 + usize::from(u16::from_be_bytes([src[at + 2], src[at + 3]]));
        found.push((marker, at, end));
        if marker == 0xDA {
            return found;
        }
        at = end;
    }
}

fn data_start(src: &[u8]) -> usize {
    segments(src).last().unwrap().2
}

/// A grey stream as a frame of three components with a scan for each.
fn in_three_scans(grey: &[u8]) -> Vec<u8> {
    let list = segments(grey);
    let (_, sof, sof_end) = *list.iter().find(|(marker, ..)| *marker == 0xC0).unwrap();
    let (_, sos, data) = *list.last().unwrap();
    let mut out = grey[..sof].to_vec();
    out.extend([0xFF, 0xC0, 0, 17]);
    out.extend(&grey[sof + 4..sof + 9]);
    out.push(3);
    (1..=3).for_each(|id| out.extend([id, 0x11, 0]));
    out.extend(&grey[sof_end..sos]);
    for id in 1..=3 {
        out.extend([0xFF, 0xDA, 0, 8, 1, id, 0, 0, 63, 0]);
        out.extend(&grey[data..grey.len() - 2]);
    }
    out.extend([0xFF, 0xD9]);
    out
}

/// Streams of every kind, with the tables they need.
fn streams() -> Vec<(&'static str, Option<Tables>, Vec<u8>)> {
    macro_rules! data {
        ($($name:literal)*) => { vec![$(($name, None, include_bytes!(concat!("testdata/", $name, ".jpg")).to_vec())),*] };
    }
    let mut list = data!("rgb_444" "rgb_422" "rgb_420" "rgb_440" "rgb_411" "rgb12_420" "restarts" "grey" "cmyk");
    list.extend(data!("progressive" "progressive_restarts" "lossless1" "lossless4"));
    list.push(("three scans", None, in_three_scans(include_bytes!("testdata/grey.jpg"))));
    let tables = Tables::parse(include_bytes!("testdata/tables.jpg")).unwrap();
    list.push(("abbreviated", Some(tables), include_bytes!("testdata/abbreviated.jpg").to_vec()));
    for (name, quality, color, huffman) in [
        ("standard codes", 85, encode::Color::YCbCr, Huffman::Standard),
        ("own codes", 75, encode::Color::YCbCr, Huffman::PerTile),
        ("long blocks", 100, encode::Color::Rgb, Huffman::PerTile),
        ("grey tile", 97, encode::Color::Gray, Huffman::Standard),
    ] {
        let (tables, stream) = encoded(72, quality, color, huffman);
        list.push((name, Some(tables), stream));
    }
    list
}

/// The decoder's result: its error, its damage, or nothing.
fn decoded(tables: Option<&Tables>, src: &[u8], scratch: &mut Scratch) -> Result<Option<Damage>, JpegError> {
    let (mut stride, mut len) = (0, 0);
    if let Ok(header) = read_header(src) {
        stride = header.width as usize * header.components.len() * if header.precision > 8 { 2 } else { 1 };
        if u64::from(header.width) * u64::from(header.height) <= OPTIONS.max_pixels {
            len = stride * header.height as usize;
        }
    }
    decode(tables, src, OPTIONS, &mut vec![0; len], stride, scratch).map(|decoded| decoded.damage)
}

/// Compares the two; returns whether the stream is sound, if that is known without decoding it.
fn compare(what: &str, tables: Option<&Tables>, src: &[u8], scratch: &mut Scratch) -> Option<bool> {
    let want = decoded(tables, src, scratch);
    match (check(tables, src, OPTIONS, scratch), want) {
        (Ok(Checked::Unchecked), _) => None,
        (Ok(Checked::Sound(end)), Ok(None)) => {
            // Nothing behind the last scan counts.
            let cut = [&src[..end], &[0xFF, 0xD9]].concat();
            assert_eq!(decoded(tables, &cut, scratch), Ok(None), "{what}, cut at {end}");
            Some(true)
        }
        (Ok(Checked::Damaged(found)), Ok(Some(damage))) => {
            assert_eq!(found, damage, "{what}");
            Some(false)
        }
        (Err(found), Err(error)) => {
            assert_eq!(found, error, "{what}");
            Some(false)
        }
        (found, want) => panic!("{what}: the check says {found:?}, the decoder {want:?}"),
    }
}

#[test]
fn sound_streams_are_sound() {
    let mut scratch = Scratch::default();
    for (name, tables, src) in streams() {
        let sequential = !(name.starts_with("progressive") || name.starts_with("lossless"));
        assert_eq!(compare(name, tables.as_ref(), &src, &mut scratch), sequential.then_some(true), "{name}");
    }
}

#[test]
fn flipped_bits_are_reported_as_by_the_decoder() {
    let mut scratch = Scratch::default();
    let (mut sound, mut refused) = (0, 0);
    for (name, tables, src) in streams() {
        let mut rng = Rng(src.len() as u64);
        let data = data_start(&src);
        for round in 0..1500 {
            let mut bad = src.clone();
            // Mostly in the coded data: there are more ways to be wrong in it.
            for _ in 0..=rng.next(3) {
                let at = if round % 4 == 0 { rng.next(bad.len()) } else { data + rng.next(bad.len() - data) };
                bad[at] ^= 1 << rng.next(8);
            }
            match compare(&format!("{name}, round {round}"), tables.as_ref(), &bad, &mut scratch) {
                Some(true) => sound += 1,
                Some(false) => refused += 1,
                None => {}
            }
        }
    }
    assert!(sound > 2000 && refused > 5000, "{sound} sound, {refused} not");
}

#[test]
fn truncated_streams_are_reported_as_by_the_decoder() {
    let mut scratch = Scratch::default();
    for (name, tables, src) in streams() {
        let step = (src.len() / 1500).max(1);
        for end in (0..src.len()).step_by(step) {
            compare(&format!("{name}, cut at {end}"), tables.as_ref(), &src[..end], &mut scratch);
        }
        // Padding, and what lies behind the end.
        for tail in [&[0, 0, 0][..], &[0xFF; 9], b"not a JPEG at all", &src] {
            let long = [&src[..], tail].concat();
            let found = compare(&format!("{name}, {} bytes more", tail.len()), tables.as_ref(), &long, &mut scratch);
            assert_ne!(found, Some(false), "{name}");
        }
    }
}

#[test]
fn lost_doubled_or_overwritten_bytes_are_reported_as_by_the_decoder() {
    let mut scratch = Scratch::default();
    for (name, tables, src) in streams() {
        let mut rng = Rng(src.len() as u64 + 1);
        for round in 0..600 {
            let mut bad = src.clone();
            let at = rng.next(bad.len());
            let end = (at + 1 + rng.next(6)).min(bad.len());
            match round % 4 {
                0 => drop(bad.drain(at..end)),
                1 => drop(bad.splice(at..at, src[at..end].to_vec())),
                2 => bad[at..end].fill([0, 0xFF, 0xD0, 0x3F][rng.next(4)]),
                _ => {
                    let from = rng.next(src.len() - (end - at) + 1);
                    bad[at..end].copy_from_slice(&src[from..from + end - at]);
                }
            }
            compare(&format!("{name}, round {round}"), tables.as_ref(), &bad, &mut scratch);
        }
    }
}

#[test]
fn restarts_out_of_turn_are_damage() {
    let mut scratch = Scratch::default();
    let src = include_bytes!("testdata/restarts.jpg");
    let marks: Vec<usize> = (data_start(src)..src.len() - 1)
        .filter(|at| src[*at] == 0xFF && (0xD0..=0xD7).contains(&src[at + 1]))
        .collect();
    assert!(marks.len() > 1, "{marks:?}");
    for (number, at) in marks.iter().enumerate() {
        for marker in (0xD0..=0xD7).chain([0x01, 0xC0, 0xD9, 0]) {
            let mut bad = src.to_vec();
            bad[at + 1] = marker;
            let sound = compare(&format!("restart {number} is {marker:x}"), None, &bad, &mut scratch);
            assert_eq!(sound, Some(marker == src[at + 1]), "restart {number} is {marker:x}");
        }
        let mut bad = src.to_vec();
        bad.drain(*at..at + 2);
        assert_eq!(compare("a restart is missing", None, &bad, &mut scratch), Some(false));
    }
    // Two segments in each other's place: markers are right, and the codes are, too.
    let [first, second, third] = [marks[0], marks[1], src.len() - 2];
    let swapped = [&src[..first + 2], &src[second + 2..third], &src[second..second + 2], &src[first + 2..second]];
    let swapped = [&swapped.concat(), &src[third..]].concat();
    compare("segments are swapped", None, &swapped, &mut scratch);
    let mut exchanged = src.to_vec();
    exchanged.swap(first + 1, second + 1);
    assert_eq!(compare("markers are swapped", None, &exchanged, &mut scratch), Some(false));
}

#[test]
fn damaged_tables_are_reported_as_by_the_decoder() {
    let mut scratch = Scratch::default();
    for (name, tables, src) in streams() {
        for (marker, start, end) in segments(&src) {
            for at in start..end {
                for value in [0, 1, 0x7F, 0xFF, src[at] ^ 0x10, src[at].wrapping_add(1)] {
                    let mut bad = src.clone();
                    bad[at] = value;
                    compare(
                        &format!("{name}, byte {at} of {marker:x} is {value}"),
                        tables.as_ref(),
                        &bad,
                        &mut scratch,
                    );
                }
            }
            // A segment that is missing, and one that comes twice.
            let without = [&src[..start], &src[end..]].concat();
            compare(&format!("{name} without {marker:x}"), tables.as_ref(), &without, &mut scratch);
            let twice = [&src[..end], &src[start..]].concat();
            compare(&format!("{name}, {marker:x} twice"), tables.as_ref(), &twice, &mut scratch);
        }
    }
}

/// A grey frame of 8 x 8 whose only block has these coded bits. DC: code 0 is size 0. AC, by `symbols`: all codes have two bits.
fn one_block(symbols: [u8; 3], bits: &str) -> Vec<u8> {
    let mut src = vec![0xFF, 0xD8, 0xFF, 0xDB, 0, 67, 0];
    src.extend([1; 64]);
    src.extend([0xFF, 0xC0, 0, 11, 8, 0, 8, 0, 8, 1, 1, 0x11, 0]);
    let dc = [0x00, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    src.extend([0xFF, 0xC4, 0, 2 + dc.len() as u8]);
    src.extend(dc);
    src.extend([0xFF, 0xC4, 0, 2 + 17 + 3, 0x10, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    src.extend(symbols);
    src.extend([0xFF, 0xDA, 0, 8, 1, 1, 0, 0, 63, 0]);
    let padded = format!("{bits:1<width$}", width = bits.len().next_multiple_of(8));
    for byte in padded.as_bytes().chunks(8) {
        src.push(byte.iter().fold(0, |value, bit| value << 1 | (bit - b'0')));
        if src.ends_with(&[0xFF]) {
            src.push(0);
        }
    }
    src.extend([0xFF, 0xD9]);
    src
}

#[test]
fn runs_may_end_with_the_block_and_not_past_it() {
    // End of block, fifteen zeros and a one, sixteen zeros.
    const SYMBOLS: [u8; 3] = [0x00, 0xF1, 0xF0];
    let (end, far, zeros) = ("00", "011", "10");
    let mut scratch = Scratch::default();
    let mut verdict = |symbols, codes: &[&str]| {
        let src = one_block(symbols, &format!("0{}", codes.concat()));
        compare(&format!("{codes:?}"), None, &src, &mut scratch).unwrap()
    };
    assert!(verdict(SYMBOLS, &[end]));
    assert!(verdict(SYMBOLS, &[far, far, far, end]), "coefficient 48 is the last");
    assert!(!verdict(SYMBOLS, &[far, far, far, far]), "coefficient 64 does not exist");
    assert!(!verdict(SYMBOLS, &[zeros, zeros, zeros, far]), "nor does it after zeros alone");
    assert!(verdict(SYMBOLS, &[zeros, zeros, zeros, end]));
    assert!(verdict(SYMBOLS, &[zeros, zeros, zeros, zeros]), "runs of zeros may pass the end of a block");
    // Runs of fourteen, so that a coefficient falls on the very last place.
    let near = [0x00, 0xE1, 0x21];
    assert!(verdict(near, &["011", "011", "011", "011", "101"]), "coefficients 15, 30, 45, 60 and 63");
    assert!(!verdict(near, &["011", "011", "011", "011", "011"]), "coefficient 75");
    // Bits that are not a code.
    assert!(!verdict(SYMBOLS, &["11", "11111111", "11111111"]));
    // Too few bits: the block would go on.
    assert!(!verdict(SYMBOLS, &[zeros]));
}

#[test]
fn work_is_bounded_by_the_stream_not_by_its_header() {
    let mut src = include_bytes!("testdata/rgb_420.jpg").to_vec();
    let (_, sof, _) = *segments(&src).iter().find(|(marker, ..)| *marker == 0xC0).unwrap();
    src[sof + 5..sof + 9].fill(0xFF);
    let options = Options { color: Color::Raw, max_pixels: u64::MAX };
    let found = check(None, &src, options, &mut Scratch::default());
    assert!(
        matches!(found, Ok(Checked::Damaged(Damage { fault: Fault::Truncated | Fault::BadCode, .. }))),
        "{found:?}"
    );
}
