//! What every encoder and every decoder of what it writes have to pass, the GPU's included.

#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

#[cfg(test)]
mod tests;

use swath_tiff::{Compression, SampleType};

use crate::{Fill, Registry, Scratch, TileSpec, codec::testing, encode::Settings};

/// The types of samples that any lossless codec takes.
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

/// A small generator, so that failures repeat.
#[derive(Debug, Clone)]
pub struct Rng(pub u64);

impl Rng {
    /// Forty-eight bits.
    #[expect(clippy::should_implement_trait, reason = "it has no end and no option")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 16
    }
}

/// Bytes of several temperaments: what a compressor likes, what it hates, and what makes it change its mind.
pub fn temperaments(len: usize, rng: &mut Rng) -> Vec<(&'static str, Vec<u8>)> {
    let noise: Vec<u8> = (0..len).map(|_| rng.next() as u8).collect();
    // Blocks of noise between blocks of runs: no one choice of block or table is right.
    let mixed = noise.iter().enumerate().map(|(at, byte)| if at / 3000 % 2 == 0 { *byte } else { (at / 900) as u8 });
    // Each byte far from the last, and each pair seen before.
    let saw = (0..len).map(|at| if at % 2 == 0 { (at / 2) as u8 } else { !(at / 2) as u8 });
    // Few values, of very different frequency: long codes.
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

/// A plain spec for tiles of whole samples.
pub fn spec(compression: Compression, code: u16, sample: SampleType, samples: u16, width: u32) -> TileSpec {
    TileSpec { compression, compression_code: code, ..testing::spec(sample, samples, width) }
}

/// Encodes, and decodes with the decoder of `registry`; checks the bound and that earlier bytes stay as they are.
///
/// # Panics
/// When the codec fails.
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

/// Every sample comes back for all types, shapes and temperaments.
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
                for (name, src) in temperaments(len, &mut rng) {
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
    for (name, src) in temperaments(spec.native_row_len() * 512, &mut rng) {
        let back = round_trip(registry, &spec, settings, 512, &src, &mut scratch);
        assert!(back == src, "{compression} 512 x 512, {name}, {settings:?}");
    }
}
