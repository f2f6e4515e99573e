//! Round trips through the decoder, and tiles that must be the bytes GDAL writes.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test says so by panicking")]

use super::fdct::quantise;
use super::*;
use crate::jpeg as decoder;

const YCBCR_420: Settings = Settings {
    quality: 90,
    subsampling: (2, 2),
    color: Color::YCbCr,
    components: 3,
    precision: 8,
    huffman: Huffman::Standard,
};

fn wave(n: u32) -> u32 {
    (n % 512).abs_diff(256).min(255)
}

/// Waves that drift apart from component to component.
fn picture(width: u32, height: u32, components: u32, precision: u8) -> Vec<u16> {
    let sample = |n: u32| {
        let (c, x, y) = (n % components, n / components % width, n / components / width);
        let v = wave(x * 5 + y * 3 + c * 30) * 3 + wave(x * y / 16 + c * 11);
        (if precision == 8 { v / 4 } else { v * 4 }) as u16
    };
    (0..width * height * components).map(sample).collect()
}

fn encoded(encoder: &Encoder, width: u32, height: u32, samples: &[u16], scratch: &mut Scratch) -> Vec<u8> {
    let mut dst = Vec::new();
    if encoder.settings.precision == 8 {
        let bytes: Vec<u8> = samples.iter().map(|&s| s as u8).collect();
        encoder.encode(width, height, bytes.as_slice(), &mut dst, scratch).unwrap();
    } else {
        encoder.encode(width, height, samples, &mut dst, scratch).unwrap();
    }
    dst
}

fn decoded(encoder: &Encoder, tile: &[u8]) -> Vec<u16> {
    let tables = decoder::Tables::parse(&encoder.tables()).unwrap();
    let header = decoder::decode::read_header(tile).unwrap();
    assert_eq!(header.precision, encoder.settings.precision);
    let bytes = if header.precision > 8 { 2 } else { 1 };
    let stride = header.width as usize * header.components.len() * bytes;
    let mut dst = vec![0; stride * header.height as usize];
    let color = match encoder.settings.color {
        Color::YCbCr => decoder::Color::YcbcrToRgb,
        _ => decoder::Color::Raw,
    };
    let options = decoder::Options { color, max_pixels: 1 << 24 };
    let result = decoder::decode::decode(
        Some(&tables),
        tile,
        options,
        &mut dst,
        stride,
        &mut decoder::decode::Scratch::default(),
    );
    assert_eq!(result.unwrap().damage, None);
    dst.chunks_exact(bytes).map(|s| if let &[a, b] = s { u16::from_ne_bytes([a, b]) } else { s[0].into() }).collect()
}

fn psnr(a: &[u16], b: &[u16], precision: u8) -> f64 {
    assert_eq!(a.len(), b.len());
    let top = f64::from((1u32 << precision) - 1);
    let error: f64 = a.iter().zip(b).map(|(&a, &b)| (f64::from(a) - f64::from(b)).powi(2)).sum();
    10.0 * (top * top / (error / a.len() as f64).max(1e-9)).log10()
}

fn all_settings(quality: u8) -> Vec<Settings> {
    let mut all = Vec::new();
    for (precision, huffman) in [8, 12].into_iter().flat_map(|p| [(p, Huffman::Standard), (p, Huffman::PerTile)]) {
        for subsampling in [(1, 1), (2, 1), (2, 2)] {
            all.push(Settings { quality, subsampling, precision, huffman, ..YCBCR_420 });
        }
        let plain = Settings { quality, subsampling: (1, 1), color: Color::Rgb, precision, huffman, ..YCBCR_420 };
        all.push(plain);
        all.extend((1..=4).map(|components| Settings { color: Color::Gray, components, ..plain }));
    }
    all
}

#[test]
fn every_setting_survives_the_decoder() {
    let sides = [1, 2, 7, 8, 9, 15, 16, 17, 23, 31, 32, 33];
    for quality in [75, 90, 100] {
        for settings in all_settings(quality) {
            let encoder = Encoder::new(settings).unwrap();
            let mut scratch = Scratch::default();
            let tile_sizes = sides.iter().flat_map(|&w| sides.map(|h| (w, h))).chain([(65, 8), (130, 70), (512, 512)]);
            for (width, height) in tile_sizes {
                let samples = picture(width, height, settings.components.into(), settings.precision);
                let tile = encoded(&encoder, width, height, &samples, &mut scratch);
                // Nothing of one tile may show in the next.
                assert_eq!(tile, encoded(&encoder, width, height, &samples, &mut Scratch::default()));
                let got = psnr(&samples, &decoded(&encoder, &tile), settings.precision);
                let least = match (settings.subsampling, quality) {
                    ((1, 1), 75) => 32.0,
                    ((1, 1), 90) => 36.0,
                    ((1, 1), _) => 46.0,
                    _ => 24.0,
                };
                assert!(got > least, "{settings:?} {width} x {height}: {got:.1} dB");
            }
        }
    }
}

#[test]
fn extremes_survive_the_decoder() {
    for settings in all_settings(100) {
        let encoder = Encoder::new(settings).unwrap();
        let (mut state, top) = (1u32, (1u16 << settings.precision) - 1);
        let mut noise = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            if state >> 31 == 0 { 0 } else { top }
        };
        let count = 64 * 64 * u32::from(settings.components);
        let noisy: Vec<u16> = (0..count).map(|_| noise()).collect();
        // The pattern of the fourth cosine: the largest coefficients there are, and DC jumps from one end to the other.
        let tall = |n: u32| {
            let (x, y) = (n / u32::from(settings.components) % 64, n / u32::from(settings.components) / 64);
            let on = if y < 32 { x / 8 % 2 == 0 } else { matches!(x % 4, 0 | 3) == matches!(y % 4, 0 | 3) };
            if on { top } else { 0 }
        };
        for samples in [noisy, (0..count).map(tall).collect()] {
            let tile = encoded(&encoder, 64, 64, &samples, &mut Scratch::default());
            // The room that callers make: 16 bits of code and 15 of value for each coefficient, and a zero after each byte.
            assert!(tile.len() <= 1024 + samples.len() * 31 / 4);
            let got = psnr(&samples, &decoded(&encoder, &tile), settings.precision);
            // Subsampled noise in chrominance is lost; the test only requires that it decodes without damage.
            assert!(settings.subsampling != (1, 1) || got > 40.0, "{settings:?}: {got:.1} dB");
        }
    }
}

/// FNV-1a, to compare with bytes that are not worth keeping.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xCBF2_9CE4_8422_2325, |h, &b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01B3))
}

#[test]
fn tiles_are_those_of_gdal() {
    let rgb = Settings { subsampling: (1, 1), color: Color::Rgb, ..YCBCR_420 };
    let gray = Settings { color: Color::Gray, components: 1, ..rgb };
    // Hashes of JPEGTables and of the one strip in files that GDAL 3.12.2 wrote (COMPRESS=JPEG), with JPEGTABLESMODE=3 and by default.
    let cases = [
        (
            YCBCR_420,
            77,
            50,
            [0x2420_6A6F_396B_04C7, 0x18B0_C0FC_9304_C864],
            [0xB5B1_ED9D_7B5D_5273, 0x3E66_9D82_A52D_A4F3],
        ),
        (
            Settings { quality: 75, ..YCBCR_420 },
            64,
            64,
            [0x0233_54A3_A7E0_867D, 0x63E1_9019_895F_5893],
            [0x0FB9_112F_78D4_F259, 0x9567_37F1_B9A1_8CEC],
        ),
        (
            Settings { quality: 8, ..YCBCR_420 },
            33,
            37,
            [0xA04A_434F_4FDE_DFC9, 0xF2AC_4F9A_A0EA_73AF],
            [0xC8F4_FDC1_1CA4_791D, 0xE07E_2BF4_0BB3_C923],
        ),
        (rgb, 45, 23, [0xF347_ADF8_EB0C_5DFB, 0x964C_E7D9_DAD2_64E3], [0x37BE_58B0_9D54_ECF3, 0xA1EB_2581_C399_7901]),
        (gray, 90, 41, [0xF347_ADF8_EB0C_5DFB, 0xFB55_55F9_C68F_4E01], [0x37BE_58B0_9D54_ECF3, 0x14B4_F312_01A7_64A4]),
        (
            Settings { components: 2, quality: 100, ..gray },
            31,
            31,
            [0x1196_A2B4_5E2F_CBBB, 0xEA7E_6902_A38C_1ACA],
            [0xF0F4_8A9C_F329_EAB3, 0xFEC0_6B3F_32EF_AC00],
        ),
        (
            Settings { components: 4, quality: 75, ..gray },
            40,
            24,
            [0x3F64_69FE_31FB_82A5, 0xF2C5_6351_CC57_6E41],
            [0xB88A_931D_0B58_D2E5, 0x324D_8775_FC78_8FC8],
        ),
    ];
    for (settings, width, height, standard, per_tile) in cases {
        for (huffman, [tables, tile]) in [(Huffman::Standard, standard), (Huffman::PerTile, per_tile)] {
            let encoder = Encoder::new(Settings { huffman, ..settings }).unwrap();
            let samples = picture(width, height, settings.components.into(), 8);
            assert_eq!(hash(&encoder.tables()), tables, "tables of {settings:?}, {huffman:?}");
            let got = encoded(&encoder, width, height, &samples, &mut Scratch::default());
            assert_eq!(hash(&got), tile, "tile of {settings:?}, {huffman:?}");
        }
    }
}

/// Constant tiles have one symbol in each AC table and hardly more in DC ones.
#[test]
fn constant_tiles_survive_the_decoder() {
    for settings in all_settings(100) {
        let (encoder, mut scratch) = (Encoder::new(settings).unwrap(), Scratch::default());
        let middle = 1u16 << (settings.precision - 1);
        // Noise first: of its symbols nothing may be left.
        let noise: Vec<u16> = picture(40, 24, settings.components.into(), settings.precision);
        encoded(&encoder, 40, 24, &noise, &mut scratch);
        for (side, value) in
            [1, 8, 9, 40].into_iter().flat_map(|side| [0, 1, middle, 2 * middle - 1].map(|v| (side, v)))
        {
            let samples = vec![value; (side * side) as usize * usize::from(settings.components)];
            let tile = encoded(&encoder, side, side, &samples, &mut scratch);
            assert_eq!(decoded(&encoder, &tile), samples, "{settings:?}, {value}");
        }
    }
}

#[test]
fn tables_for_a_tile_make_it_smaller_than_fixed_ones() {
    for standard in all_settings(75).into_iter().filter(|s| s.huffman == Huffman::Standard) {
        let samples = picture(256, 256, standard.components.into(), standard.precision);
        let [fixed, best] = [Huffman::Standard, Huffman::PerTile].map(|huffman| {
            let encoder = Encoder::new(Settings { huffman, ..standard }).unwrap();
            let tile = encoded(&encoder, 256, 256, &samples, &mut Scratch::default());
            (decoded(&encoder, &tile), tile.len())
        });
        assert_eq!(fixed.0, best.0, "{standard:?}");
        assert!(best.1 < fixed.1, "{standard:?}: {} against {}", best.1, fixed.1);
    }
}

#[test]
fn optimal_codes_are_complete_but_for_the_reserved_one() {
    let bits = |counts: &[u64]| {
        let table = optimal::table(counts);
        let total: usize = table.counts.iter().map(|&n| usize::from(n)).sum();
        assert_eq!(total, table.symbols.len());
        assert_eq!(total, counts.iter().filter(|&&n| n > 0).count());
        let mut lengths = (1..=16).zip(table.counts).flat_map(|(length, n)| std::iter::repeat_n(length, n.into()));
        let mut room = 1i64 << 16;
        let mut bits = 0;
        for &symbol in &table.symbols {
            let length: u32 = lengths.next().unwrap();
            room -= 1 << (16 - length);
            bits += counts[usize::from(symbol)] * u64::from(length);
        }
        // Only one code is free, and it is one of the longest.
        let longest = table.counts.iter().rposition(|&n| n > 0).map_or(0, |n| n + 1);
        assert!(total == 0 || room == 1 << (16 - longest), "{room} left, longest {longest}");
        bits
    };
    assert_eq!(bits(&[0; 256]), 0);
    assert_eq!(bits(&[0, 5, 0]), 5);
    assert_eq!(bits(&[1, 1, 1]), 6);
    assert_eq!(bits(&[1; 256]), 255 * 8 + 9);
    assert_eq!(bits(&[8, 4, 2, 1]), 8 + 2 * 4 + 3 * 2 + 4);
    // Fibonacci numbers and powers make codes as long as there are symbols, which the limit must bring down to 16 bits: how is libjpeg's choice, here from
    // a tile GDAL wrote.
    let mut skewed = vec![65536, 1, 2];
    while skewed.len() < 22 {
        skewed.push(skewed.iter().rev().take(2).sum());
    }
    bits(&skewed);
    assert_eq!(optimal::table(&skewed).counts, [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 1, 2, 7]);
    bits(&std::array::from_fn::<u64, 45, _>(|n| 1 << n));
    let mut state = 1u32;
    for count in 1..=256 {
        let mut random = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            u64::from(state >> (state % 31))
        };
        bits(&(0..count).map(|_| random()).collect::<Vec<_>>());
    }
}

#[test]
fn quantisation_is_exact_division() {
    let check = |value: i32, divisor: i32| {
        let want = value.signum() * ((value.abs() + divisor * 4) / (divisor * 8));
        let got = quantise(value, 1.0 / (8.0 * divisor as f32));
        assert_eq!(i32::from(got), want, "{value} / 8 {divisor}");
    };
    for divisor in (1..=256).chain([605, 1210, 6050]) {
        for value in -9000..=9000 {
            check(value, divisor);
        }
        // The range of 12 bits, near the halves, where a rounding could go wrong.
        for half in (0..131_072 / (8 * divisor)).map(|n| (2 * n + 1) * 4 * divisor) {
            for value in [half - 1, half, half + 1] {
                check(value, divisor);
                check(-value, divisor);
            }
        }
    }
}

#[test]
fn every_symbol_has_a_code_and_none_is_all_ones() {
    for (precision, dc_sizes, ac_sizes) in [(8, 0..12, 1..11), (12, 0..16, 1..15)] {
        let codes = Codes::new(&[false, true].map(|chroma| Table::standard(precision, chroma)));
        for set in [0, CHROMA] {
            let check = |first: u32, symbols: Vec<usize>| {
                let mut room = 1u32 << 16;
                for symbol in 0..256 {
                    let entry = codes.entry(first + symbol as u32);
                    assert_eq!(entry != 0, symbols.contains(&symbol), "{symbol:#x}");
                    if entry != 0 {
                        room -= 1 << (16 - ((entry & 63) as usize - symbol % 16));
                    }
                }
                assert!(room >= 1, "the all-ones code must stay free");
            };
            check(set + DC, dc_sizes.clone().collect());
            let pairs = (0..16).flat_map(|run| ac_sizes.clone().map(move |size| run << 4 | size));
            check(set, pairs.chain([0x00, 0xF0]).collect());
        }
    }
}

#[test]
fn words_over_twelve_bits_count_as_the_largest() {
    let settings = Settings { color: Color::Gray, components: 1, subsampling: (1, 1), precision: 12, ..YCBCR_420 };
    let encoder = Encoder::new(settings).unwrap();
    let tile = |value: u16| encoded(&encoder, 9, 9, &[value; 81], &mut Scratch::default());
    assert_eq!(tile(4095), tile(65535));
}

#[test]
fn what_cannot_be_encoded_is_an_error() {
    for wrong in [
        Settings { quality: 0, ..YCBCR_420 },
        Settings { quality: 101, ..YCBCR_420 },
        Settings { precision: 16, ..YCBCR_420 },
        Settings { components: 4, ..YCBCR_420 },
        Settings { subsampling: (1, 2), ..YCBCR_420 },
        Settings { subsampling: (0, 0), ..YCBCR_420 },
        Settings { color: Color::Rgb, ..YCBCR_420 },
        Settings { color: Color::Gray, components: 5, subsampling: (1, 1), ..YCBCR_420 },
        Settings { color: Color::Gray, components: 0, subsampling: (1, 1), ..YCBCR_420 },
    ] {
        assert!(Encoder::new(wrong).is_err(), "{wrong:?}");
    }
    let encoder = Encoder::new(YCBCR_420).unwrap();
    let (mut dst, mut scratch) = (vec![7], Scratch::default());
    assert!(encoder.encode(0, 8, [].as_slice() as &[u8], &mut dst, &mut scratch).is_err());
    assert!(encoder.encode(65501, 1, vec![0u8; 65501 * 3].as_slice(), &mut dst, &mut scratch).is_err());
    assert!(encoder.encode(8, 8, [0u8; 191].as_slice(), &mut dst, &mut scratch).is_err());
    assert!(encoder.encode(8, 8, [0u16; 192].as_slice(), &mut dst, &mut scratch).is_err());
    assert_eq!(dst, [7]);
    encoder.encode(8, 8, [0u8; 192].as_slice(), &mut dst, &mut scratch).unwrap();
    assert_eq!(dst[..3], [7, 0xFF, 0xD8]);
}
