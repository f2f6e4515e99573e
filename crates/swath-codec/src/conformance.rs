//! The conformance suite of encoders and decoders, GPU ones included: what an encoder writes, every decoder must read back.

#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

#[cfg(test)]
mod tests;

use swath_tiff::{Compression, SampleType};

use crate::{Fill, Registry, Scratch, TileSpec, codec::testing, encode::Settings};

/// The sample types that every lossless codec supports.
pub const ALL: [SampleType; 10] = [
    SampleType::U8,
    SampleType::I8,
    SampleType::U16,
    SampleType::I16,
    SampleType::U32,
    SampleType::I32,
    SampleType::U64,
    SampleType::I64,
    SampleType::F32,
    SampleType::F64,
];

/// A small random generator with a seed, so that failures repeat.
#[derive(Debug, Clone)]
pub struct Rng(pub u64);

impl Rng {
    /// Returns 48 random bits.
    #[expect(clippy::should_implement_trait, reason = "it never ends, and returns no Option")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 16
    }
}

/// Returns test data of several kinds by name: data that compresses well, data that does not, and data that changes midway.
pub fn test_data(len: usize, rng: &mut Rng) -> Vec<(&'static str, Vec<u8>)> {
    let noise: Vec<u8> = (0..len).map(|_| rng.next() as u8).collect();
    // Noise alternates with runs, so that no single block type or table suits all of it.
    let mixed = noise.iter().enumerate().map(|(at, byte)| if at / 3000 % 2 == 0 { *byte } else { (at / 900) as u8 });
    // Each byte is far from the one before, but each pair has occurred before.
    let saw = (0..len).map(|at| if at % 2 == 0 { (at / 2) as u8 } else { !(at / 2) as u8 });
    // Few values of very different frequency give long codes.
    let skewed = noise.iter().map(|byte| byte.trailing_zeros() as u8 * 31);
    vec![
        ("zeros", vec![0; len]),
        ("ones", vec![0xff; len]),
        ("ramp", testing::ramp(len)),
        ("mixed", mixed.collect()),
        ("saw", saw.collect()),
        ("skewed", skewed.collect()),
        ("noise", noise),
    ]
}

/// Returns a spec for tiles of whole samples.
pub fn spec(compression: Compression, code: u16, sample: SampleType, samples: u16, width: u32) -> TileSpec {
    TileSpec { compression, compression_code: code, ..testing::spec(sample, samples, width) }
}

/// Encodes a tile and decodes it with the decoder of `registry`. Checks the length bound, and that the encoder keeps the bytes
/// before its output.
///
/// # Panics
/// When a check or the codec fails.
pub fn round_trip(
    registry: &Registry,
    spec: &TileSpec,
    settings: &Settings,
    rows: u32,
    src: &[u8],
    scratch: &mut Scratch,
) -> Vec<u8> {
    let encoder = Registry::default().encoder(spec, settings).unwrap();
    let mut out = b"before".to_vec();
    encoder.encode(spec, rows, src, &mut out, scratch).unwrap();
    let stream = out.strip_prefix(b"before").unwrap();
    let bound = encoder.max_encoded_len(spec, rows);
    assert!(stream.len() <= bound, "{} bytes where {bound} are the most: {spec:?}", stream.len());
    let decoder = registry.decoder(spec.compression).unwrap();
    assert_eq!(encoder.form(), decoder.form(spec));
    let mut back = vec![0xaa; src.len()];
    let fill = decoder.decode(spec, rows, stream, &mut back, scratch);
    assert_eq!(fill, Ok(Fill::Exact), "{spec:?} {rows}");
    back
}

/// Checks that every sample survives a round trip, for all types, shapes and kinds of test data.
///
/// # Panics
/// When one does not.
pub fn exact(
    registry: &Registry,
    compression: Compression,
    code: u16,
    settings: &Settings,
    types: &[SampleType],
    samples: &[u16],
) {
    let mut scratch = Scratch::default();
    let mut rng = Rng(7);
    for &sample in types {
        for &samples in samples {
            for (width, rows) in [(1, 1), (31, 33), (33, 7), (512, 3)] {
                let mut spec = spec(compression, code, sample, samples, width);
                spec.height = 33;
                let len = spec.native_row_len() * rows as usize;
                for (name, src) in test_data(len, &mut rng) {
                    if sample.is_float() && code == 34887 {
                        continue;
                    }
                    let back = round_trip(registry, &spec, settings, rows, &src, &mut scratch);
                    assert!(back == src, "{compression} {sample} x {samples}, {width} x {rows}, {name}, {settings:?}");
                }
            }
        }
    }
    let spec = spec(compression, code, types[0], samples[0], 512);
    for (name, src) in test_data(spec.native_row_len() * 512, &mut rng) {
        let back = round_trip(registry, &spec, settings, 512, &src, &mut scratch);
        assert!(back == src, "{compression} 512 x 512, {name}, {settings:?}");
    }
}
