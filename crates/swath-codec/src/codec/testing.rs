//! Helpers of codec tests.
#![allow(dead_code)]

use swath_tiff::{Compression, Limits, SampleFormat, SampleType, structure::ByteOrder, structure::Predictor};

use crate::{Decode, Scratch, TileSpec};

/// Returns a spec for tiles of whole samples.
pub(crate) fn spec(sample: SampleType, samples: u16, width: u32) -> TileSpec {
    use SampleType as S;
    TileSpec {
        compression: Compression::None,
        compression_code: 1,
        predictor: Predictor::None,
        bits: sample.size() as u16 * 8,
        format: match sample {
            S::U8 | S::U16 | S::U32 | S::U64 => SampleFormat::Uint,
            S::I8 | S::I16 | S::I32 | S::I64 => SampleFormat::Int,
            _ => SampleFormat::Float,
        },
        sample,
        samples,
        width,
        height: 0,
        one_strip: false,
        tiled: true,
        order: ByteOrder::Little,
        bits_reversed: false,
        photometric: None,
        ycbcr: None,
        packed_subsampling: None,
        t4_options: 0,
        lerc: Vec::new(),
        extra_samples: Vec::new(),
        jpeg_tables: None,
        limits: Limits::default().with_tile_bytes(1 << 30),
    }
}

/// Returns bytes with some structure and some noise.
pub(crate) fn ramp(len: usize) -> Vec<u8> {
    let mut state = 1_u32;
    (0..len)
        .map(|at| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (at / 7) as u8 ^ (state >> 29) as u8
        })
        .collect()
}

/// Parses hexadecimal digits; other characters are ignored.
pub(crate) fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.chars().filter_map(|c| c.to_digit(16)).map(|digit| digit as u8).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

/// Decodes a stream truncated at every length and with changed bytes. Any result is fine, a panic is not.
pub(crate) fn damage(decoder: &dyn Decode, spec: &TileSpec, rows: u32, stream: &[u8]) {
    let mut dst = vec![0; spec.native_row_len() * rows as usize];
    let mut scratch = Scratch::default();
    for len in 0..stream.len() {
        let _ = decoder.decode(spec, rows, &stream[..len], &mut dst, &mut scratch);
    }
    let mut state = 7_u64;
    for _ in 0..2000 {
        let mut copy = stream.to_vec();
        for _ in 0..=state % 3 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let at = (state >> 33) as usize % copy.len();
            copy[at] ^= (state >> 24) as u8 | 1;
        }
        let _ = decoder.decode(spec, rows, &copy, &mut dst, &mut scratch);
    }
}
