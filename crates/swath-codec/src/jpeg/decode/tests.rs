#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test says so by panicking")]

use super::sample::Sample;
use super::*;

macro_rules! data {
    ($name:literal) => {
        (
            $name,
            include_bytes!(concat!("testdata/", $name, ".jpg")).as_slice(),
            include_bytes!(concat!("testdata/", $name, ".raw")).as_slice(),
        )
    };
}

const BASELINE: (&str, &[u8], &[u8]) = data!("rgb_420");

/// Streams, and their samples as libjpeg-turbo 3.2 decodes them; `lossless*` and `rgb12*` are little-endian `u16`.
const RGB: [(&str, &[u8], &[u8]); 9] = [
    data!("rgb_444"),
    data!("rgb_422"),
    data!("rgb_420"),
    data!("rgb_440"),
    data!("rgb_411"),
    data!("rgb12_420"),
    data!("progressive"),
    data!("restarts"),
    data!("progressive_restarts"),
];
const RAW: [(&str, &[u8], &[u8]); 9] = [
    data!("grey"),
    data!("cmyk"),
    data!("lossless1"),
    data!("lossless2"),
    data!("lossless3"),
    data!("lossless4"),
    data!("lossless5"),
    data!("lossless6"),
    data!("lossless7"),
];

fn stride(header: &Header) -> usize {
    header.width as usize * header.components.len() * if header.precision > 8 { 2 } else { 1 }
}

fn run(
    tables: Option<&Tables>,
    src: &[u8],
    color: Color,
    scratch: &mut Scratch,
) -> Result<(Vec<u8>, Decoded), JpegError> {
    let header = read_header(src)?;
    let stride = stride(&header);
    let mut dst = vec![0; stride * header.height as usize];
    let decoded = decode(tables, src, Options { color, max_pixels: 1 << 20 }, &mut dst, stride, scratch)?;
    if header.precision > 8 && cfg!(target_endian = "big") {
        dst.chunks_exact_mut(2).for_each(|s| s.swap(0, 1));
    }
    Ok((dst, decoded))
}

#[test]
fn samples_are_those_of_libjpeg_turbo() {
    let mut scratch = Scratch::default();
    // Twice through one scratch: nothing of a tile may show in the next.
    for _ in 0..2 {
        let rgb = RGB.iter().map(|case| (case, Color::YcbcrToRgb));
        for (&(name, src, raw), color) in rgb.chain(RAW.iter().map(|case| (case, Color::Raw))) {
            let (samples, decoded) = run(None, src, color, &mut scratch).unwrap();
            assert_eq!(decoded.damage, None, "{name}");
            assert!(samples == raw, "{name}");
        }
    }
}

#[test]
fn shared_tables_serve_an_abbreviated_stream() {
    let tables = Tables::parse(include_bytes!("testdata/tables.jpg")).unwrap();
    let (_, src, raw) = data!("abbreviated");
    let mut scratch = Scratch::default();
    let (samples, _) = run(Some(&tables), src, Color::YcbcrToRgb, &mut scratch).unwrap();
    assert!(samples == raw);
    let missing = run(None, src, Color::YcbcrToRgb, &mut scratch);
    assert!(matches!(missing, Err(JpegError::MissingTable { .. })), "{missing:?}");
}

#[test]
fn tables_of_one_tile_do_not_reach_the_next() {
    let (_, src, _) = data!("abbreviated");
    let mut scratch = Scratch::default();
    run(None, BASELINE.1, Color::Raw, &mut scratch).unwrap();
    assert!(matches!(run(None, src, Color::Raw, &mut scratch), Err(JpegError::MissingTable { .. })));
}

#[test]
fn rows_go_where_the_stride_says() {
    let (_, src, raw) = BASELINE;
    let header = read_header(src).unwrap();
    let (row, wide) = (stride(&header), stride(&header) + 5);
    let mut dst = vec![7; wide * header.height as usize];
    let options = Options { color: Color::YcbcrToRgb, max_pixels: 1 << 20 };
    decode(None, src, options, &mut dst, wide, &mut Scratch::default()).unwrap();
    for (got, want) in dst.chunks_exact(wide).zip(raw.chunks_exact(row)) {
        assert_eq!(&got[..row], want);
        assert_eq!(&got[row..], &[7; 5]);
    }
}

#[test]
fn rejects_a_destination_of_another_size() {
    let (_, src, raw) = BASELINE;
    let stride = stride(&read_header(src).unwrap());
    let options = Options { color: Color::Raw, max_pixels: 1 << 20 };
    for (len, stride) in [(raw.len() - 1, stride), (raw.len() + 1, stride), (raw.len(), stride - 1), (0, 0)] {
        let result = decode(None, src, options, &mut vec![0; len], stride, &mut Scratch::default());
        assert!(matches!(result, Err(JpegError::Destination { .. })), "{len} {stride}");
    }
}

#[test]
fn rejects_a_frame_over_the_limit_before_its_memory_is_taken() {
    let mut src = BASELINE.1.to_vec();
    let sof = src.windows(2).position(|w| w == [0xFF, 0xC0]).unwrap();
    src[sof + 5..sof + 9].fill(0xFF);
    let mut scratch = Scratch::default();
    let options = Options { color: Color::Raw, max_pixels: 1 << 20 };
    let result = decode(None, &src, options, &mut [], 0, &mut scratch);
    assert!(matches!(result, Err(JpegError::TooLarge { .. })), "{result:?}");
}

#[test]
fn rejects_arithmetic_coding_by_name() {
    let mut src = BASELINE.1.to_vec();
    let sof = src.windows(2).position(|w| w == [0xFF, 0xC0]).unwrap();
    src[sof + 1] = 0xC9;
    assert!(read_header(&src).unwrap_err().to_string().contains("arithmetic coding"));
}

#[test]
fn rejects_endless_scans() {
    let (_, src, _) = data!("progressive");
    let scan = src.windows(2).position(|w| w == [0xFF, 0xDA]).unwrap();
    let next = src[scan + 2..].windows(2).position(|w| w[0] == 0xFF && matches!(w[1], 0xC4 | 0xDA)).unwrap() + scan + 2;
    let mut long = src[..scan].to_vec();
    (0..=MAX_SCANS).for_each(|_| long.extend(&src[scan..next]));
    let result = run(None, &long, Color::Raw, &mut Scratch::default());
    assert!(matches!(result, Err(JpegError::TooManyScans { .. })), "{result:?}");
}

#[test]
fn truncation_anywhere_is_an_error_or_damage() {
    let mut scratch = Scratch::default();
    for &(name, src, raw) in RGB.iter().chain(&RAW) {
        // EOI itself says nothing of a frame that is complete.
        for end in (0..src.len() - 8).step_by(9) {
            if let Ok((samples, decoded)) = run(None, &src[..end], Color::Raw, &mut scratch) {
                assert!(decoded.damage.is_some(), "{name} {end}");
                assert_eq!(samples.len(), raw.len());
            }
        }
    }
}

#[test]
fn changed_bytes_do_not_panic() {
    let mut scratch = Scratch::default();
    for &(_, src, _) in RGB.iter().chain(&RAW) {
        for at in (2..src.len()).step_by(5) {
            for value in [0, 0xFF, src[at] ^ 1, src[at] ^ 0x80] {
                let mut bad = src.to_vec();
                bad[at] = value;
                if read_header(&bad).is_ok_and(|h| u64::from(h.width) * u64::from(h.height) < 1 << 14) {
                    let _ = run(None, &bad, Color::Raw, &mut scratch);
                }
            }
        }
    }
}

#[test]
fn sixteen_bit_colour_conversion_rounds_like_the_tables() {
    for cb in 0..=255u8 {
        for cr in 0..=255u8 {
            for y in [0u8, 1, 127, 128, 254, 255] {
                let (yy, b, r) = (i32::from(y), i32::from(cb) - 128, i32::from(cr) - 128);
                let want = [
                    yy + ((91881 * r + 32768) >> 16),
                    yy + ((-22554 * b - 46802 * r + 32768) >> 16),
                    yy + ((116130 * b + 32768) >> 16),
                ];
                assert_eq!(u8::rgb(y, cb, cr), want.map(|v| v.clamp(0, 255) as u8));
            }
        }
    }
}
