//! The codecs of this crate.

use swath_tiff::Photometric;

use super::*;
use crate::{CodecError, Form, encode::LercWrap};

fn round_trip(spec: &TileSpec, settings: &Settings, rows: u32, src: &[u8], scratch: &mut Scratch) -> Vec<u8> {
    super::round_trip(&Registry::default(), spec, settings, rows, src, scratch)
}

fn exact(compression: Compression, code: u16, settings: &Settings, types: &[SampleType], samples: &[u16]) {
    super::exact(&Registry::default(), compression, code, settings, types, samples);
}

fn level(level: u32) -> Settings {
    Settings { level: Some(level), ..Settings::default() }
}

fn quality(quality: u32) -> Settings {
    Settings { quality: Some(quality), lossless: false, ..Settings::default() }
}

#[test]
fn stored() {
    exact(Compression::None, 1, &Settings::default(), &ALL, &[1, 2, 3, 4]);
}

#[test]
fn deflate() {
    exact(Compression::Deflate, 8, &Settings::default(), &ALL, &[1, 2, 3, 4]);
    for nth in 1..=12 {
        exact(Compression::Deflate, 8, &level(nth), &[SampleType::U16], &[1]);
    }
}

#[test]
fn zstd() {
    exact(Compression::Zstd, 50_000, &Settings::default(), &ALL, &[1, 2, 3, 4]);
    for nth in 1..=22 {
        exact(Compression::Zstd, 50_000, &level(nth), &[SampleType::U16], &[1]);
    }
}

#[test]
fn zstd_is_one_frame_with_its_length_and_no_checksum() {
    let spec = spec(Compression::Zstd, 50_000, SampleType::U8, 1, 300);
    for (_, src) in test_data(300 * 1000, &mut Rng(3)) {
        for nth in 1..=22 {
            let mut out = Vec::new();
            let encoder = Registry::default().encoder(&spec, &level(nth)).unwrap();
            encoder.encode(&spec, 1000, &src, &mut out, &mut Scratch::default()).unwrap();
            assert_eq!(zstd_safe::get_frame_content_size(&out).unwrap(), Some(300_000));
            assert_eq!(zstd_safe::find_frame_compressed_size(&out), Ok(out.len()));
            assert_eq!(out[4] & 4, 0, "no checksum");
        }
    }
}

#[cfg(feature = "lzma")]
#[test]
fn lzma() {
    exact(Compression::Lzma, 34_925, &Settings::default(), &ALL, &[1, 3]);
    for nth in 0..=9 {
        exact(Compression::Lzma, 34_925, &level(nth), &[SampleType::U16], &[1]);
    }
}

#[cfg(feature = "lz4")]
#[test]
fn lz4() {
    exact(Compression::Lz4, 50_004, &Settings::default(), &ALL, &[1, 2, 3, 4]);
}

#[cfg(feature = "webp")]
#[test]
fn webp() {
    exact(Compression::WebP, 50_001, &Settings::default(), &[SampleType::U8], &[3, 4]);
    for nth in [1, 50, 75, 100] {
        for samples in [3, 4] {
            let spec = spec(Compression::WebP, 50_001, SampleType::U8, samples, 64);
            for (_, src) in test_data(spec.native_row_len() * 64, &mut Rng(5)) {
                round_trip(&spec, &quality(nth), 64, &src, &mut Scratch::default());
            }
        }
    }
}

#[cfg(feature = "webp")]
#[test]
fn webp_keeps_colours_under_transparent_pixels() {
    let spec = spec(Compression::WebP, 50_001, SampleType::U8, 4, 8);
    let src: Vec<u8> = (0..64_u8).flat_map(|at| [at, 3 * at, 255 - at, if at % 3 == 0 { 0 } else { 200 }]).collect();
    assert_eq!(round_trip(&spec, &Settings::default(), 8, &src, &mut Scratch::default()), src);
}

#[cfg(all(feature = "jpeg2000", feature = "jpeg2000-write"))]
#[test]
fn jpeg2000() {
    let types = [SampleType::U8, SampleType::I8, SampleType::U16, SampleType::I16];
    exact(Compression::Jpeg2000, 34_712, &Settings::default(), &types, &[1, 2, 3, 4]);
    let mut colours = spec(Compression::Jpeg2000, 34_712, SampleType::U16, 4, 65);
    colours.photometric = Some(Photometric::Rgb);
    for (_, src) in test_data(colours.native_row_len() * 33, &mut Rng(5)) {
        assert!(round_trip(&colours, &Settings::default(), 33, &src, &mut Scratch::default()) == src);
    }
}

#[cfg(all(feature = "jpeg2000", feature = "jpeg2000-write"))]
#[test]
fn jpeg2000_errs_less_at_higher_quality() {
    for (sample, scale) in [(SampleType::U8, 1), (SampleType::U16, 12), (SampleType::I16, 12)] {
        let mut spec = spec(Compression::Jpeg2000, 34_712, sample, 3, 64);
        spec.photometric = Some(Photometric::Rgb);
        let values = testing::ramp(64 * 64 * 3);
        let src: Vec<u8> = match sample {
            SampleType::U8 => values.clone(),
            _ => values.iter().flat_map(|value| (u16::from(*value) * scale).to_ne_bytes()).collect(),
        };
        let error = |quality_is| {
            let back = round_trip(&spec, &quality(quality_is), 64, &src, &mut Scratch::default());
            let difference = |(a, b): (f64, f64)| (a - b) * (a - b);
            let number = |bytes: &[u8]| match bytes {
                [byte] => f64::from(*byte),
                bytes => f64::from(i16::from_ne_bytes([bytes[0], bytes[1]])) / f64::from(scale),
            };
            let size = sample.size();
            let pairs = src.chunks(size).zip(back.chunks(size)).map(|(a, b)| (number(a), number(b)));
            (pairs.map(difference).sum::<f64>() / values.len() as f64).sqrt()
        };
        let (low, middle, high) = (error(10), error(75), error(100));
        assert!(low > middle && middle > high && high < 1.0, "{sample}: {low} {middle} {high}");
    }
}

#[cfg(feature = "lerc")]
mod lerc {
    use super::*;

    const TYPES: [SampleType; 6] =
        [SampleType::U8, SampleType::I8, SampleType::U16, SampleType::I16, SampleType::U32, SampleType::I32];

    fn wraps() -> [Settings; 3] {
        [LercWrap::None, LercWrap::Deflate, LercWrap::Zstd]
            .map(|lerc_wrap| Settings { lerc_wrap, ..Settings::default() })
    }

    fn floats_spec(sample: SampleType, samples: u16, width: u32, settings: &Settings, version: u32) -> TileSpec {
        let mut spec = spec(Compression::Lerc, 34_887, sample, samples, width);
        spec.lerc = vec![version, settings.lerc_wrap as u32];
        spec
    }

    fn floats(count: usize, kind: &str) -> Vec<f64> {
        let mut rng = Rng(11);
        (0..count)
            .map(|at| match kind {
                "smooth" => (at as f64 / 50.0).sin() * 100.0 + (rng.next() % 100) as f64 / 100.0,
                "noise" => f64::from_bits(0x3ff0_0000_0000_0000 | rng.next() << 4) * 1e6,
                "constant" => 17.25,
                "infinite" if at % 11 == 3 => f64::INFINITY,
                "infinite" if at % 11 == 5 => f64::NEG_INFINITY,
                _ => at as f64 * 0.5,
            })
            .collect()
    }

    #[test]
    fn integers() {
        exact(Compression::Lerc, 34_887, &Settings::default(), &TYPES, &[1, 2, 3, 4]);
    }

    #[test]
    fn integers_inside_something() {
        for settings in wraps() {
            let spec = floats_spec(SampleType::U16, 3, 31, &settings, 4);
            for (_, src) in test_data(spec.native_row_len() * 33, &mut Rng(5)) {
                assert!(round_trip(&spec, &settings, 33, &src, &mut Scratch::default()) == src);
            }
        }
    }

    /// Exact and within a tolerance, with masks of three kinds, in both versions.
    #[test]
    fn floats_and_their_holes() {
        for settings in wraps() {
            for (version, tolerance) in [(4, 0.0), (6, 0.0), (4, 0.01), (4, 25.0)] {
                for samples in [1, 2, 3, 4] {
                    for (width, rows) in [(1, 1), (31, 33), (64, 5)] {
                        for kind in ["smooth", "noise", "constant", "infinite", "steps"] {
                            for holes in ["no", "pixels", "samples", "all"] {
                                let settings = Settings { max_z_error: tolerance, ..settings.clone() };
                                let count = (width * rows) as usize * usize::from(samples);
                                let mut values = floats(count, kind);
                                for (at, value) in values.iter_mut().enumerate() {
                                    let hole = match holes {
                                        "no" => false,
                                        "pixels" => at / usize::from(samples) % 7 == 2,
                                        "samples" => at % 5 == 2,
                                        _ => true,
                                    };
                                    if hole {
                                        *value = f64::NAN;
                                    }
                                }
                                check(&values, samples, width, rows, &settings, version, kind, holes);
                            }
                        }
                    }
                }
            }
        }
    }

    #[allow(clippy::too_many_arguments)]
    fn check(
        values: &[f64],
        samples: u16,
        width: u32,
        rows: u32,
        settings: &Settings,
        version: u32,
        kind: &str,
        holes: &str,
    ) {
        let scratch = &mut Scratch::default();
        let tolerance = settings.max_z_error;
        let near = |want: f64, got: f64, room: f64| {
            want.is_nan() && got.is_nan() || want == got || (want - got).abs() <= tolerance + room
        };
        let about = format!("{kind}, {holes} holes, {samples} samples, {width} x {rows}, {settings:?}, {version}");
        let spec = floats_spec(SampleType::F64, samples, width, settings, version);
        let src: Vec<u8> = values.iter().flat_map(|value| value.to_ne_bytes()).collect();
        let back = round_trip(&spec, settings, rows, &src, scratch);
        for (want, got) in values.iter().zip(back.as_chunks().0) {
            let got = f64::from_ne_bytes(*got);
            assert!(near(*want, got, 1e-9), "{want} {got} {about}");
        }
        let spec = floats_spec(SampleType::F32, samples, width, settings, version);
        let src: Vec<u8> = values.iter().flat_map(|value| (*value as f32).to_ne_bytes()).collect();
        let back = round_trip(&spec, settings, rows, &src, scratch);
        for (want, got) in values.iter().zip(back.as_chunks().0) {
            let (want, got) = (f64::from(*want as f32), f64::from(f32::from_ne_bytes(*got)));
            // A step that is in range can round to a float that is not quite.
            let room = if tolerance == 0.0 { 0.0 } else { want.abs() * f64::from(f32::EPSILON) };
            assert!(near(want, got, room), "{want} {got} {about}");
        }
    }

    #[test]
    fn an_error_for_integers() {
        for max_z_error in [1.0, 3.9, 777.0, 1e9] {
            let settings = Settings { max_z_error, ..Settings::default() };
            let spec = spec(Compression::Lerc, 34_887, SampleType::U16, 2, 31);
            for (name, src) in test_data(spec.native_row_len() * 33, &mut Rng(5)) {
                let back = round_trip(&spec, &settings, 33, &src, &mut Scratch::default());
                for (want, got) in src.as_chunks().0.iter().zip(back.as_chunks().0) {
                    let (want, got) = (u16::from_ne_bytes(*want), u16::from_ne_bytes(*got));
                    assert!(f64::from(want.abs_diff(got)) <= max_z_error, "{name} {max_z_error} {want} {got}");
                }
            }
        }
    }
}

#[test]
fn ccitt() {
    let mut rng = Rng(3);
    let all = [(Compression::CcittRle, 2, 0), (Compression::CcittT4, 3, 0), (Compression::CcittT4, 3, 1)];
    for (compression, code, options) in
        all.into_iter().chain([(Compression::CcittT4, 3, 5), (Compression::CcittT6, 4, 0)])
    {
        for tiled in [true, false] {
            for bits_reversed in [false, true] {
                for (width, rows) in [(1, 1), (31, 33), (64, 64), (512, 512), (6000, 3)] {
                    let mut spec = spec(compression, code, SampleType::U8, 1, width);
                    (spec.bits, spec.t4_options, spec.tiled, spec.bits_reversed) = (1, options, tiled, bits_reversed);
                    for (name, mut src) in test_data(spec.stored_len(rows), &mut rng) {
                        // Bits behind the last pixel are undefined.
                        let used = width % 8;
                        for row in src.chunks_mut(spec.stored_row_len()).filter(|_| used != 0) {
                            *row.last_mut().unwrap() &= 0xff << (8 - used);
                        }
                        let back = round_trip(&spec, &Settings::default(), rows, &src, &mut Scratch::default());
                        assert!(back == src, "{compression} {options} {width} x {rows} {name}");
                    }
                }
            }
        }
    }
}

#[test]
fn one_scratch_serves_levels_in_turn() {
    let mut scratch = Scratch::default();
    let src = testing::ramp(31 * 33);
    for nth in [1, 9, 1, 12, 6, 1, 9, 9] {
        for (compression, code) in [(Compression::Deflate, 8), (Compression::Zstd, 50_000)] {
            let spec = spec(compression, code, SampleType::U8, 1, 31);
            let encoder = Registry::default().encoder(&spec, &level(nth)).unwrap();
            let (mut used, mut fresh) = (Vec::new(), Vec::new());
            encoder.encode(&spec, 33, &src, &mut used, &mut scratch).unwrap();
            encoder.encode(&spec, 33, &src, &mut fresh, &mut Scratch::default()).unwrap();
            assert_eq!(used, fresh, "{compression} {nth}");
        }
    }
}

#[test]
fn settings_out_of_range_are_refused_with_the_range() {
    let refuse = |compression, code, sample, samples, settings: Settings, hint: &str| {
        let spec = spec(compression, code, sample, samples, 16);
        let error = Registry::default().encoder(&spec, &settings).map(|_| ()).unwrap_err();
        assert!(matches!(error, CodecError::Encode { .. } | CodecError::Unsupported { .. }), "{error:?}");
        assert!(error.to_string().contains(hint), "{error}");
    };
    let u8s = SampleType::U8;
    refuse(Compression::Deflate, 8, u8s, 1, level(0), "1 to 12");
    refuse(Compression::Deflate, 8, u8s, 1, level(13), "1 to 12");
    refuse(Compression::Zstd, 50_000, u8s, 1, level(0), "1 to 22");
    refuse(Compression::Zstd, 50_000, u8s, 1, level(23), "1 to 22");
    refuse(Compression::CcittT6, 4, u8s, 1, level(1), "one bit");
    #[cfg(feature = "lzma")]
    refuse(Compression::Lzma, 34_925, u8s, 1, level(10), "0 to 9");
    #[cfg(feature = "webp")]
    {
        refuse(Compression::WebP, 50_001, u8s, 3, quality(0), "1 to 100");
        refuse(Compression::WebP, 50_001, u8s, 3, quality(101), "1 to 100");
        refuse(Compression::WebP, 50_001, u8s, 1, quality(75), "3 or 4");
        refuse(Compression::WebP, 50_001, SampleType::U16, 3, quality(75), "uint8");
    }
    #[cfg(feature = "jpeg2000-write")]
    {
        refuse(Compression::Jpeg2000, 34_712, u8s, 3, quality(0), "1 to 100");
        refuse(Compression::Jpeg2000, 34_712, SampleType::F32, 3, quality(1), "int16");
        refuse(Compression::Jpeg2000, 34_712, SampleType::U32, 3, quality(1), "int16");
    }
    #[cfg(feature = "lerc")]
    {
        let wrapped = |lerc_wrap, level| Settings { lerc_wrap, level: Some(level), ..Settings::default() };
        refuse(Compression::Lerc, 34_887, u8s, 1, wrapped(LercWrap::Deflate, 13), "1 to 12");
        refuse(Compression::Lerc, 34_887, u8s, 1, wrapped(LercWrap::Zstd, 23), "1 to 22");
        for max_z_error in [-1.0, f64::NAN, f64::INFINITY] {
            let settings = Settings { max_z_error, ..Settings::default() };
            refuse(Compression::Lerc, 34_887, u8s, 1, settings, "0 or more");
        }
        for sample in [SampleType::U64, SampleType::I64, SampleType::F16, SampleType::CF32] {
            refuse(Compression::Lerc, 34_887, sample, 1, Settings::default(), "not supported");
        }
        let mut tagged = spec(Compression::Lerc, 34_887, u8s, 1, 16);
        tagged.lerc = vec![4, 2];
        assert!(Registry::default().encoder(&tagged, &Settings::default()).is_err());
    }
}

#[test]
fn forms() {
    let registry = Registry::default();
    let form = |compression, code, samples| {
        registry
            .encoder(&spec(compression, code, SampleType::U8, samples, 16), &Settings::default())
            .map(|it| it.form())
    };
    assert_eq!(form(Compression::Deflate, 8, 1), Ok(Form::Stored));
    #[cfg(feature = "lerc")]
    assert_eq!(form(Compression::Lerc, 34_887, 1), Ok(Form::Native));
}
