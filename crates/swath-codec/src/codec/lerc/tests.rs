#![allow(clippy::unwrap_used)]

use lerc::{Precision, Sample, bitmask::BitMask, encode_borrowed};

use super::{
    decode::{NAN, UNASSOCIATED},
    header::Header,
    *,
};
use crate::{
    Scratch,
    codec::testing::{self, hex, spec},
    decode::{Decode, Fill},
    encode::Settings,
};

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

/// Written by Esri's library, version 4: [`blocky`] as `f32`,
const BLOCKS_F32: &str = "\
    4c65726332200400000034a1defc12000000140000000100000068010000080000006601000006000000000000000000 \
    00000000000000c072c0000000000017f14000000000000096c300b88847000287074bd4fe43d4fe0400002041000024 \
    410000284100002c4100003041000034410000384100003c4100003041000034410000384100003c4100004041000044 \
    410000484100004c4100004041000044410000484100004c4100005041000054410000584100005c4100005041000054 \
    410000584100005c4100006041000064410000684100006c4100006041000064410000684100006c4100007041000074 \
    410000784100007c4100007041000074410000784100007c410000804100008241000084410000864100008041000082 \
    4100008441000086410000884100008a4100008c4100008e410000884100008a4100008c4100008e4100009041000092 \
    4100009441000096410b00b888470300b88847068b07 \
    ";
/// as `f64`,
const BLOCKS_F64: &str = "\
    4c657263322004000000be7a02c112000000140000000100000068010000080000007002000007000000000000000000 \
    00000000000000c072c0000000000017f140000000000000000000c072c0000000000017f1400002c70700cbd4fec3d4 \
    fe0400000000000024400000000000802440000000000000254000000000008025400000000000002640000000000080 \
    264000000000000027400000000000802740000000000000264000000000008026400000000000002740000000000080 \
    274000000000000028400000000000802840000000000000294000000000008029400000000000002840000000000080 \
    2840000000000000294000000000008029400000000000002a400000000000802a400000000000002b40000000000080 \
    2b400000000000002a400000000000802a400000000000002b400000000000802b400000000000002c40000000000080 \
    2c400000000000002d400000000000802d400000000000002c400000000000802c400000000000002d40000000000080 \
    2d400000000000002e400000000000802e400000000000002f400000000000802f400000000000002e40000000000080 \
    2e400000000000002f400000000000802f400000000000003040000000000040304000000000008030400000000000c0 \
    30400000000000003040000000000040304000000000008030400000000000c030400000000000003140000000000040 \
    314000000000008031400000000000c031400000000000003140000000000040314000000000008031400000000000c0 \
    31400000000000003240000000000040324000000000008032400000000000c032408b70110100837011010006cb0700 \
    ";
/// and as `f32` without the pixels of [`masked_out`].
const BLOCKS_MASKED: &str = "\
    4c6572633220040000009c393133120000001400000001000000ee000000080000006501000006000000000000000000 \
    00000000000000c072c0000000000017f140310000002d007bdeff7bdeef7bddef7bbdef77bdeff7bdeef7bd00f7b00e \
    f700def00bde007bd00f7b00ef700deff7bdeef7bd0080000096c300b88847000287074bd4fe02040000204100002441 \
    0000284100002c41000034410000384100003c4100003041000034410000384100004041000044410000484100004c41 \
    000040410000444100004c41000050410000544100005841000050410000584100005c41000060410000644100006c41 \
    000064410000684100006c41000070410000784100007c4100007041000074410000784100007c410000824100008441 \
    000086410000804100008241000084410000884100008a4100008c4100008e410000884100008a4100008e4100009041 \
    00009241000094410b00b888470300b88847068b07 \
    ";

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

/// A blob of lerc-rs is decoded to the bytes that lerc-rs decodes itself, with and without a mask.
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

fn encode(spec: &TileSpec, rows: u32, src: &[u8], max_z_error: f64) -> Vec<u8> {
    let encoder = encoder(spec, &Settings { max_z_error, ..Settings::default() }).unwrap();
    let mut blob = Vec::new();
    encoder.encode(spec, rows, src, &mut blob, &mut Scratch::default()).unwrap();
    assert!(blob.len() <= encoder.max_encoded_len(spec, rows));
    blob
}

fn bytes_of<T: bytemuck::Pod>(values: &[T]) -> Vec<u8> {
    bytemuck::cast_slice(values).to_vec()
}

/// 20 x 18 values in blocks: zero, one value of every type that offsets may have, and one block of steps.
fn blocky() -> Vec<f64> {
    (0..20 * 18)
        .map(|at| match (at % 20, at / 20) {
            (x @ 8..16, y @ 8..16) => x as f64 * 0.25 + y as f64,
            (x, y) => [0.0, 7.0, -300.0, 0.5, 70_000.0][(x / 8 + y / 8 * 2) % 5],
        })
        .collect()
}

fn masked_out(at: usize) -> bool {
    let (x, y) = (at % 20, at / 20);
    (x + y) % 5 == 0 || x < 8 && (8..16).contains(&y)
}

#[test]
fn exact_floats_are_written_as_by_esri() {
    let doubles = blocky();
    let mut floats: Vec<f32> = doubles.iter().map(|value| *value as f32).collect();
    assert_eq!(encode(&spec(SampleType::F32, 1, 20), 18, &bytes_of(&floats), 0.0), hex(BLOCKS_F32));
    assert_eq!(encode(&spec(SampleType::F64, 1, 20), 18, &bytes_of(&doubles), 0.0), hex(BLOCKS_F64));
    for (at, value) in floats.iter_mut().enumerate() {
        if masked_out(at) {
            *value = NAN;
        }
    }
    assert_eq!(encode(&spec(SampleType::F32, 1, 20), 18, &bytes_of(&floats), 0.0), hex(BLOCKS_MASKED));
}

#[test]
fn padding_costs_a_byte_for_each_block() {
    for (samples, depth) in [(1, 1), (3, 3)] {
        let noise = testing::ramp(64 * 64 * depth);
        let values: Vec<f32> = noise
            .iter()
            .enumerate()
            .map(|(at, byte)| if at / depth % 64 < 24 { f32::from(*byte) + 0.1 + at as f32 } else { 0.0 })
            .collect();
        let spec = spec(SampleType::F32, samples, 64);
        let blob = encode(&spec, 64, &bytes_of(&values), 0.0);
        assert_eq!(blob.len(), 66 + 4 + 8 * depth + 1 + depth * (24 * (1 + 64 * 4) + 40));
        assert_eq!(run(&spec, 64, &blob).unwrap(), bytes_of(&values));
    }
}

#[test]
fn the_sign_of_a_zero_survives() {
    for samples in [1, 2] {
        for (first, second) in [(0.0, -0.0), (-0.0, 0.0), (-0.0, -0.0), (-0.0, 3.0)] {
            let values: Vec<f32> =
                (0..1024 * usize::from(samples)).map(|at| if at < 700 { first } else { second }).collect();
            let spec = spec(SampleType::F32, samples, 32);
            let blob = encode(&spec, 32, &bytes_of(&values), 0.0);
            assert_eq!(run(&spec, 32, &blob).unwrap(), bytes_of(&values), "{first} {second}");
            let doubles: Vec<f64> = values.iter().map(|value| f64::from(*value)).collect();
            let spec = TileSpec { sample: SampleType::F64, bits: 64, ..spec };
            let blob = encode(&spec, 32, &bytes_of(&doubles), 0.0);
            assert_eq!(run(&spec, 32, &blob).unwrap(), bytes_of(&doubles), "{first} {second}");
        }
    }
}

/// Our blocks of integers come back from ourselves and from lerc-rs, and are no longer than its own.
fn integers<T: Sample + bytemuck::Pod>(sample: SampleType, values: &[T], samples: usize, width: usize, tolerance: f64) {
    let rows = values.len() / samples / width;
    let spec = spec(sample, samples as u16, width as u32);
    let blob = encode(&spec, rows as u32, &bytes_of(values), tolerance);
    let mut theirs = vec![T::default(); values.len()];
    lerc::decode_into(&blob, &mut theirs).unwrap();
    let ours = run(&spec, rows as u32, &blob).unwrap();
    assert!(ours == bytes_of(&theirs), "{sample} {samples} {width} {tolerance}");
    for (value, back) in values.iter().zip(&theirs) {
        assert!((value.to_f64() - back.to_f64()).abs() <= tolerance, "{sample} {value:?} {back:?}");
    }
    if tolerance == 0.0 {
        let (w, h, d) = (width as u32, rows as u32, samples as u32);
        let all = [BitMask::all_valid(width * rows)];
        let library = encode_borrowed(w, h, d, 1, values, &all, None, Precision::Lossless).unwrap();
        // Version 3, which it takes for one sample, has no ranges.
        assert!(blob.len() <= library.len() + 4 + 2 * T::BYTES, "{sample} {samples} {width}");
    }
}

#[test]
fn blocks_of_integers() {
    for (width, rows) in [(1, 1), (8, 8), (40, 33), (64, 65)] {
        for samples in [1, 3] {
            let count = width * rows * samples;
            let field = field(count, width * samples);
            let noise: Vec<u64> = (1..=count as u64).map(|at| at.wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect();
            for tolerance in [0.0, 1.0, 40.0, 777.0] {
                for shift in [2, 20, 33, 34, 44, 50, 58, 62] {
                    // Noise of so many bits, some of it with few values, and some of it flat.
                    let value = |at: usize| match at / 200 % 4 {
                        0 => noise[at] as i64 >> shift,
                        1 => noise[at / 9] as i64 >> shift,
                        2 => (noise[at % 5] as i64 >> shift) + 3,
                        _ => field[at] as i64,
                    };
                    let run = 0..count;
                    integers(
                        SampleType::I32,
                        &run.clone().map(|at| value(at) as i32).collect::<Vec<_>>(),
                        samples,
                        width,
                        tolerance,
                    );
                    integers(
                        SampleType::U32,
                        &run.clone().map(|at| value(at) as u32).collect::<Vec<_>>(),
                        samples,
                        width,
                        tolerance,
                    );
                    integers(
                        SampleType::I16,
                        &run.clone().map(|at| value(at) as i16).collect::<Vec<_>>(),
                        samples,
                        width,
                        tolerance,
                    );
                    integers(
                        SampleType::U16,
                        &run.clone().map(|at| value(at) as u16).collect::<Vec<_>>(),
                        samples,
                        width,
                        tolerance,
                    );
                    integers(
                        SampleType::U8,
                        &run.clone().map(|at| value(at) as u8).collect::<Vec<_>>(),
                        samples,
                        width,
                        tolerance,
                    );
                    integers(
                        SampleType::I8,
                        &run.map(|at| value(at) as i8).collect::<Vec<_>>(),
                        samples,
                        width,
                        tolerance,
                    );
                }
            }
        }
    }
}
