#![allow(clippy::unwrap_used)]

use lerc::{Precision, bitmask::BitMask, encode_borrowed};

use super::*;
use crate::codec::testing::{self, hex, spec};

/// Written by Esri's library: 10 x 9 floats, version 4, tolerance 0.25, pixels with (x + y) % 5 == 0 masked out.
const FLOATS: &str = "\
    4c657263322004000000fc8c0d75090000000a000000010000004800000008000000ad00000006000000000000000000 \
    d03f000000000000f03f0000000000605340100000000c007bfdeef77bbddeff7bbddeff00800000803f00009b420081 \
    01873401c2410199000686c44352312418920a66039964381f91877452b566335b8e272c1a93cc6715bb058fcdecb7bc \
    0e850c870c80816021a98046b21ab20c814085066024f624854c82020c \
    ";
/// Written by Esri's library: 40 x 36 bytes, version 4, Huffman codes of differences.
const BYTES: &str = "\
    4c6572633220040000003503da60240000002800000001000000a005000008000000d301000001000000000000000000 \
    e03f0000000000000000000000000000364000000000001600010400000000010000ec00000012010000832686611446 \
    5114001082288aa2300a032a103108c838bb5440700053c9c7eff6cfd3cdd1f1bbfdd7747374f26efff5f31c9d7cfc7f \
    fd3cdd271fbfdb3f4f3747f8dd7e5fba393af9b7fffa798e4e3e7ebf7e9e6e938fdfed9fa79ba3e377fbafe9e6e8e4db \
    efebe747271fbf07574f37e4e377fbeae9e6e8fc6effe0dd1c9d7ced1f5c3da3938fdf83aba79b3e7eb7df4f372f2777 \
    fb0757f372e2e37f70f574273e7eb7574f372fe377fb0774f372e2f67b70f5e5c4c7efba3af0e23e7eb7ff81172f27bb \
    fdd7d57839f1f1bfae0ebc898fdfed75e0c5cbdfedf775c5cbc987ff7575e04e3efc6eab032f5ee177fbaf78f172f2db \
    7f5d1d97930fbfebeac08b0fbfdbefc08b9793ddfeebeabc9c7cf85f57075ee4c3eff63af0e2e57eb7ffba172f271fdf \
    d7d581938f0bb79fa79ba3b870fbafba393af9b7fffa79a3938f0baf9fa79bf9b870fb79ba393abb5df8fa7374f2f1ff \
    f5f3749d7cfc6efd3cdd1c1fbfdb7f4f374727eff65f3fcdd1c9c7c0d7cfd300000000 \
    ";
/// Written by Esri's library: 10 x 9 values 100 x - 300 y, versions 3 and 2.
const SHORTS: [&str; 2] = [
    "\
    4c6572633220030000003496aff1090000000a0000005a00000008000000d900000002000000000000000000e03f0000 \
    000000c0a2c00000000000208c40000000000001ccf78c40348889fc0896c489a28c0aaf08c776d0478398c88f60499c \
    dc0564a486706c077d348889b0445178c55d40466a08c77684833e4c044b148557dc056458c22b204338e8c344b04451 \
    2c0119f48125bc023284833e004006c8c01290411f58c22b05ecfa8c1034888908c776dc0564b0445184833e58c22b2c \
    011900400601a0f68a080090810c4b90d18725af04c0f924fa \
    ",
    "\
    4c657263322002000000090000000a0000005a00000008000000d500000002000000000000000000e03f0000000000c0 \
    a2c00000000000208c40000000000001ccf78c408f9848834a9c60c9f0caa8287d6c877088893408c40996fc6a40c65d \
    c7760847984883d05714054b0664dc856c8770a444e843384551b0c440c65d7832bc8225843e840314054b4c1f90c112 \
    c32b5842e84338200c64000001192c81bc8225f405ecfa8c1070984883c65d6c8714054b4025e84338c112bc82640000 \
    9001a0f68a0821430600491f642cbc6204c0f924fa \
    ",
];

fn run(spec: &TileSpec, rows: u32, blob: &[u8]) -> Result<Vec<u8>, CodecError> {
    let mut dst = vec![0xaa; spec.native_row_len() * rows as usize];
    assert_eq!(Lerc.decode(spec, rows, blob, &mut dst, &mut Scratch::default())?, Fill::Exact);
    Ok(dst)
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|value| f32::from_ne_bytes(*value)).collect()
}

#[test]
fn masked_floats_are_nan() {
    let values = floats(&run(&spec(SampleType::F32, 1, 10), 9, &hex(FLOATS)).unwrap());
    for (at, value) in values.iter().enumerate() {
        let (x, y) = (at % 10, at / 10);
        if (x + y) % 5 == 0 {
            assert_eq!(value.to_bits(), 0x7fc0_0000);
        } else {
            assert!((value - (x as f32 * 1.5 + (y * y) as f32)).abs() <= 0.25, "{x} {y} {value}");
        }
    }
}

#[test]
fn huffman_codes_of_bytes() {
    let values = run(&spec(SampleType::U8, 1, 40), 36, &hex(BYTES)).unwrap();
    for (at, value) in values.iter().enumerate() {
        let (x, y) = (at % 40 / 4, at / 40 / 4);
        assert_eq!(usize::from(*value), (x * x + 3 * y) % 23);
    }
}

#[test]
fn old_versions() {
    for blob in SHORTS {
        let values = run(&spec(SampleType::I16, 1, 10), 9, &hex(blob)).unwrap();
        for (at, value) in values.as_chunks().0.iter().enumerate() {
            let (x, y) = (at as i16 % 10, at as i16 / 10);
            assert_eq!(i16::from_ne_bytes(*value), 100 * x - 300 * y);
        }
    }
}

/// A field with smooth, noisy, constant and zero blocks.
fn field(count: usize, width: usize) -> Vec<f64> {
    let noise = testing::ramp(count);
    (0..count)
        .map(|at| match (at % width / 16, at / width / 16) {
            (0, 0) => 0.0,
            (1, 0) => 17.0,
            (0, _) => (noise[at] & 3) as f64 * 9.0,
            (x, y) => (x * 3 + y) as f64 + f64::from(noise[at]) / 3.0,
        })
        .collect()
}

/// What lerc-rs encodes is decoded to the bytes that it decodes itself, with and without a mask.
fn same_as_library<T: Sample, const N: usize>(sample: SampleType, bytes: fn(T) -> [u8; N]) {
    for (width, rows, depth) in [(1, 1, 1), (8, 8, 1), (9, 7, 1), (40, 33, 1), (64, 64, 1), (33, 20, 3)] {
        let values: Vec<T> = field(width * rows * depth, width).into_iter().map(T::from_f64).collect();
        let mut holes = BitMask::all_valid(width * rows);
        (0..width * rows).filter(|at| at % 7 == 3 || at / width % 16 < 2).for_each(|at| holes.set_invalid(at));
        for mask in [BitMask::all_valid(width * rows), holes] {
            for tolerance in [Precision::Lossless, Precision::Tolerance(T::from_f64(2.0))] {
                let (w, h, d) = (width as u32, rows as u32, depth as u32);
                let blob = encode_borrowed(w, h, d, 1, &values, std::slice::from_ref(&mask), None, tolerance).unwrap();
                let mut want = vec![T::default(); values.len()];
                lerc::decode_into(&blob, &mut want).unwrap();
                let mut want: Vec<u8> = want.into_iter().flat_map(bytes).collect();
                if sample.is_float() {
                    let bits = (0..width * rows).map(|at| mask.is_valid(at));
                    for (pixel, valid) in want.chunks_exact_mut(N * depth).zip(bits) {
                        let nan = f64::from(NAN).to_ne_bytes();
                        let nan = if N == 4 { &NAN.to_ne_bytes()[..] } else { &nan[..] };
                        pixel.chunks_exact_mut(N).filter(|_| !valid).for_each(|value| value.copy_from_slice(nan));
                    }
                }
                let spec = spec(sample, depth as u16, w);
                assert_eq!(run(&spec, h, &blob).unwrap(), want, "{sample} {width} x {rows} x {depth} {tolerance:?}");
            }
        }
    }
}

#[test]
fn every_type_agrees_with_the_library() {
    same_as_library(SampleType::I8, i8::to_ne_bytes);
    same_as_library(SampleType::U8, u8::to_ne_bytes);
    same_as_library(SampleType::I16, i16::to_ne_bytes);
    same_as_library(SampleType::U16, u16::to_ne_bytes);
    same_as_library(SampleType::I32, i32::to_ne_bytes);
    same_as_library(SampleType::U32, u32::to_ne_bytes);
    same_as_library(SampleType::F32, f32::to_ne_bytes);
    same_as_library(SampleType::F64, f64::to_ne_bytes);
}

#[test]
fn mask_becomes_the_alpha_that_the_blob_lacks() {
    let colours: Vec<u8> = testing::ramp(6 * 4 * 3);
    let mut mask = BitMask::all_valid(24);
    mask.set_invalid(5);
    let blob = encode_borrowed(6, 4, 3, 1, &colours, &[mask], None, Precision::Lossless).unwrap();
    let mut spec = spec(SampleType::U8, 4, 6);
    spec.extra_samples = vec![UNASSOCIATED];
    let pixels = run(&spec, 4, &blob).unwrap();
    for (at, (pixel, colour)) in pixels.chunks(4).zip(colours.chunks(3)).enumerate() {
        if at == 5 {
            assert_eq!(pixel, [0, 0, 0, 0]);
        } else {
            assert_eq!(pixel, [colour, &[255]].concat());
        }
    }
    // Without an alpha sample to fill, a value is missing.
    spec.extra_samples = vec![0];
    assert!(matches!(run(&spec, 4, &blob), Err(CodecError::Corrupt { .. })));
}

#[test]
fn a_mask_for_each_float_sample() {
    let values: Vec<f32> = (0..48).map(|at| at as f32).collect();
    let mut masks = [BitMask::all_valid(24), BitMask::all_valid(24)];
    masks[0].set_invalid(3);
    masks[1].set_invalid(7);
    let blob = encode_borrowed(6, 4, 1, 2, &values, &masks, None, Precision::Tolerance(0.1)).unwrap();
    let mut dst = vec![0; 6 * 4 * 2 * 4];
    Lerc.decode(&spec(SampleType::F32, 2, 6), 4, &blob, &mut dst, &mut Scratch::default()).unwrap();
    for (at, pair) in floats(&dst).chunks(2).enumerate() {
        assert_eq!(pair[0].is_nan(), at == 3);
        assert_eq!(pair[1].is_nan(), at == 7);
        assert!(at == 7 || (pair[1] - (24 + at) as f32).abs() <= 0.1);
    }
}

#[test]
fn deflate_and_zstd_around_the_blob() {
    let blob = hex(FLOATS);
    let plain = run(&spec(SampleType::F32, 1, 10), 9, &blob).unwrap();
    let mut deflated = vec![0; 1000];
    let len = libdeflater::Compressor::new(libdeflater::CompressionLvl::default()).zlib_compress(&blob, &mut deflated);
    deflated.truncate(len.unwrap());
    let mut zstd = vec![0; 1000];
    let len = zstd_safe::compress(&mut zstd[..], &blob, 3).unwrap();
    zstd.truncate(len);
    for (nth, packed) in [(1, deflated), (2, zstd)] {
        let mut spec = spec(SampleType::F32, 1, 10);
        spec.lerc = vec![4, nth];
        assert_eq!(run(&spec, 9, &packed).unwrap(), plain);
        assert!(matches!(run(&spec, 9, &blob), Err(CodecError::Corrupt { .. })));
        spec.lerc = vec![4, 3];
        assert!(matches!(run(&spec, 9, &packed), Err(CodecError::Corrupt { .. })));
    }
}

#[test]
fn refuses_blobs_of_another_shape_or_type() {
    let blob = hex(FLOATS);
    for (sample, samples, width, rows) in [
        (SampleType::F32, 1, 9, 10),
        (SampleType::F32, 2, 10, 9),
        (SampleType::F64, 1, 10, 9),
        (SampleType::I32, 1, 10, 9),
        (SampleType::F16, 1, 10, 9),
    ] {
        assert!(run(&spec(sample, samples, width), rows, &blob).is_err(), "{sample} {samples} {width} {rows}");
    }
    let two = [&blob[..], &blob].concat();
    assert!(run(&spec(SampleType::F32, 1, 10), 9, &two).is_err());
}

#[test]
fn notices_a_changed_bit_anywhere_behind_the_checksum() {
    let blob = hex(FLOATS);
    for at in 14..blob.len() {
        let mut damaged = blob.clone();
        damaged[at] ^= 4;
        assert!(run(&spec(SampleType::F32, 1, 10), 9, &damaged).is_err(), "byte {at}");
    }
}

#[test]
fn survives_damage_with_the_checksum_put_right() {
    struct Repaired;
    impl Decode for Repaired {
        fn decode(
            &self,
            spec: &TileSpec,
            rows: u32,
            src: &[u8],
            dst: &mut [u8],
            scratch: &mut Scratch,
        ) -> Result<Fill, CodecError> {
            let mut blob = src.to_vec();
            if let (Ok(header), true) = (Header::parse(src), src.len() > 14) {
                let end = header.blob_len.clamp(14, src.len());
                let sum = lerc::checksum::fletcher32(&src[14..end]);
                blob[10..14].copy_from_slice(&sum.to_le_bytes());
            }
            Lerc.decode(spec, rows, &blob, dst, scratch)
        }
    }
    testing::damage(&Repaired, &spec(SampleType::F32, 1, 10), 9, &hex(FLOATS));
    testing::damage(&Repaired, &spec(SampleType::U8, 1, 40), 36, &hex(BYTES));
    testing::damage(&Repaired, &spec(SampleType::I16, 1, 10), 9, &hex(SHORTS[0]));
    testing::damage(&Lerc, &spec(SampleType::I16, 1, 10), 9, &hex(SHORTS[1]));
}
