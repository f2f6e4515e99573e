//! No codec ends the process where the system has no memory: while any one request fails, and while all later ones fail too, decoding and
//! encoding return an error about memory, lose no memory, and work again afterwards.
//!
//! Three decoders are Rust libraries that cannot report a lack of memory: hayro (JPEG 2000), jxl-oxide (JPEG XL) and lerc-rs (rare LERC).
//! Their memory is reserved before they run; the second test measures that they take no more than the limit. The same holds for
//! lerc-rs as an encoder of bytes, and for the table of lz4_flex, 16 KiB per thread.

#![cfg(all(target_os = "linux", target_env = "gnu"))]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a failure here is a failed test")]

mod failing_malloc;

use std::sync::Arc;

use failing_malloc::{Case, Failure};
use swath_codec::{
    CodecError, Registry, Scratch, TileSpec,
    encode::{LercWrap, Settings},
    host::{Host, HostEncoder},
    jpeg,
};
use swath_tiff::{
    Compression, Limits, Photometric, SampleFormat, SampleType,
    structure::{ByteOrder, Predictor},
};

const WIDTH: u32 = 192;
const ROWS: u32 = 160;

fn spec(compression: Compression, code: u16, sample: SampleType, samples: u16) -> TileSpec {
    let format = match sample {
        SampleType::U8 | SampleType::U16 => SampleFormat::Uint,
        _ => SampleFormat::Float,
    };
    TileSpec {
        compression,
        compression_code: code,
        predictor: Predictor::None,
        bits: sample.size() as u16 * 8,
        format,
        sample,
        samples,
        width: WIDTH,
        height: ROWS,
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
        limits: Limits::default(),
    }
}

/// Samples with structure and some bits of noise, in the middle of the type's range.
fn samples(spec: &TileSpec, noise_bits: u32) -> Vec<u8> {
    let mut state = 1_u32;
    let count = spec.width * spec.height * u32::from(spec.samples);
    let values = (0..count).map(|at| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (at / 50 % 180 + (state >> (32 - noise_bits))) as u8
    });
    match spec.sample {
        // A byte per pixel, which is packed on the way.
        _ if spec.bits == 1 => values.map(|value| u8::from(value > 60)).collect(),
        SampleType::U8 => values.collect(),
        SampleType::U16 => values.flat_map(|value| (u16::from(value) * 16).to_ne_bytes()).collect(),
        _ => values.flat_map(|value| (f32::from(value) * 0.5).to_ne_bytes()).collect(),
    }
}

/// A codec as it is used, with what it takes and whether its library allows each direction here.
struct Use {
    name: &'static str,
    spec: TileSpec,
    settings: Settings,
    decodes: bool,
    encodes: bool,
    /// Whether a table of the library has to be there before.
    warm: bool,
}

fn with(change: impl FnOnce(&mut Settings)) -> Settings {
    let mut settings = Settings::default();
    change(&mut settings);
    settings
}

fn uses() -> Vec<Use> {
    use Compression as C;
    use SampleType as S;
    let settings = Settings::default;
    let level = |level| with(|settings| settings.level = Some(level));
    let wrap = |wrap| with(|settings| settings.lerc_wrap = wrap);
    let lossy = || with(|settings| settings.lossless = false);
    let of = |name, spec, settings| Use { name, spec, settings, decodes: true, encodes: true, warm: false };
    let fax = |compression, code| TileSpec { bits: 1, ..spec(compression, code, S::U8, 1) };
    let lerc = |sample, samples, wrap: LercWrap| TileSpec {
        lerc: vec![4, wrap as u32],
        ..spec(C::Lerc, 34_887, sample, samples)
    };
    let predicted = |predictor, sample| TileSpec { predictor, ..spec(C::Deflate, 8, sample, 1) };
    vec![
        of("none", spec(C::None, 1, S::U16, 3), settings()),
        of("packbits", spec(C::PackBits, 32_773, S::U8, 3), settings()),
        of("lzw", spec(C::Lzw, 5, S::U16, 3), settings()),
        of("deflate", spec(C::Deflate, 8, S::U8, 3), settings()),
        of("deflate 1", spec(C::Deflate, 8, S::U8, 3), level(1)),
        of("deflate 8", spec(C::Deflate, 8, S::U8, 1), level(8)),
        of("deflate 12", spec(C::Deflate, 8, S::U8, 1), level(12)),
        of("deflate, predictor 2", predicted(Predictor::Horizontal, S::U16), settings()),
        of("deflate, predictor 3", predicted(Predictor::FloatingPoint, S::F32), settings()),
        of("zstd", spec(C::Zstd, 50_000, S::U8, 3), settings()),
        of("zstd 19", spec(C::Zstd, 50_000, S::U8, 3), level(19)),
        of("lzma", spec(C::Lzma, 34_925, S::U8, 3), settings()),
        Use { warm: true, ..of("lz4", spec(C::Lz4, 50_004, S::U8, 3), settings()) },
        of("ccitt rle", fax(C::CcittRle, 2), settings()),
        of("ccitt t4", fax(C::CcittT4, 3), settings()),
        of("ccitt t6", fax(C::CcittT6, 4), settings()),
        of("jpeg", TileSpec { photometric: Some(Photometric::Rgb), ..spec(C::Jpeg, 7, S::U8, 3) }, settings()),
        of("jpeg 12", TileSpec { bits: 12, ..spec(C::Jpeg, 7, S::U16, 1) }, settings()),
        of("webp", spec(C::WebP, 50_001, S::U8, 3), settings()),
        of("webp, lossy", spec(C::WebP, 50_001, S::U8, 3), lossy()),
        of("webp with alpha", spec(C::WebP, 50_001, S::U8, 4), settings()),
        of("webp, lossy with alpha", spec(C::WebP, 50_001, S::U8, 4), lossy()),
        of("lerc", lerc(S::U16, 1, LercWrap::None), settings()),
        of("lerc, floats in deflate", lerc(S::F32, 2, LercWrap::Deflate), wrap(LercWrap::Deflate)),
        of("lerc in zstd", lerc(S::U16, 3, LercWrap::Zstd), wrap(LercWrap::Zstd)),
        // Huffman codes, which lerc-rs writes.
        Use { encodes: false, ..of("lerc, bytes", lerc(S::U8, 3, LercWrap::None), settings()) },
        Use { decodes: false, ..of("jpeg 2000", spec(C::Jpeg2000, 34_712, S::U8, 3), settings()) },
        Use { decodes: false, ..of("jpeg 2000, lossy", spec(C::Jpeg2000, 34_712, S::U16, 1), lossy()) },
    ]
}

fn failure(error: &CodecError) -> Failure {
    (matches!(error, CodecError::NoMemory(_) | CodecError::LibraryMemory { .. }), error.to_string())
}

/// The spec with the tables that the encoder shares between tiles.
fn with_tables(spec: &TileSpec, encoder: &HostEncoder) -> TileSpec {
    let tables = encoder.jpeg_tables().map(|tables| Arc::new(jpeg::Tables::parse(&tables).unwrap()));
    TileSpec { jpeg_tables: tables, ..spec.clone() }
}

fn encode(encoder: &HostEncoder, tile: &[u8], scratch: &mut Scratch) -> Result<Vec<u8>, CodecError> {
    // The caller's own memory, which fails like any other.
    let mut tile = swath_raster::memory::collect(tile.iter().copied())?;
    let mut out = Vec::new();
    encoder.encode(ROWS, &mut tile, &mut out, scratch)?;
    Ok(out)
}

fn decode(host: &Host, stream: &[u8], scratch: &mut Scratch) -> Result<Vec<u8>, CodecError> {
    let mut tile = swath_raster::memory::zeroed(host.native_len(ROWS))?;
    host.decode_native(ROWS, stream, &mut tile, scratch)?;
    Ok(tile)
}

#[test]
fn no_failed_request_ends_the_process() {
    let _alone = failing_malloc::alone();
    let mut cases = Vec::new();
    for Use { name, spec, settings, mut decodes, mut encodes, warm } in uses() {
        encodes &= !failing_malloc::runs_another_than(&format!("{name}, encoding"));
        decodes &= !failing_malloc::runs_another_than(&format!("{name}, decoding"));
        if !encodes && !decodes {
            continue;
        }
        let registry = Registry::default();
        let encoder = HostEncoder::new(Arc::new(spec.clone()), &settings, &registry).unwrap();
        let tile = samples(&spec, 4);
        let stream = encode(&encoder, &tile, &mut Scratch::default()).unwrap();
        let host = Host::new(Arc::new(with_tables(&spec, &encoder)), &registry).unwrap();
        if encodes {
            let start = move || -> failing_malloc::Run {
                let (encoder, tile) = (encoder.clone(), tile.clone());
                let mut scratch = Scratch::default();
                if warm {
                    encode(&encoder, &tile, &mut scratch).unwrap();
                }
                Box::new(move || encode(&encoder, &tile, &mut scratch).map_err(|error| failure(&error)))
            };
            let same: Box<failing_malloc::Same> = Box::new(|made, want| made == want);
            cases.push(Case { name: format!("{name}, encoding"), start: Box::new(start), same });
        }
        if decodes {
            let start = move || -> failing_malloc::Run {
                let (host, stream) = (host.clone(), stream.clone());
                let mut scratch = Scratch::default();
                Box::new(move || decode(&host, &stream, &mut scratch).map_err(|error| failure(&error)))
            };
            let same = Box::new(|made: &[u8], want: &[u8]| made == want);
            cases.push(Case { name: format!("{name}, decoding"), start: Box::new(start), same });
        }
    }
    failing_malloc::run("no_failed_request_ends_the_process", &cases, &[], |_, _| {});
}

/// Written by libjxl, lossless, 6 x 5.
const JPEG_XL: &str = "\
    ff0a2020b0120800100090024b12c5820552b8e302e201e492b13440cd34c04b6477e1cf6461009feff008a8210020ee \
    f43162f403f88b9dfd37a27d7ff16325cfe6ad1399fd6683929ff95fb234f04be35de627abd987ccb1e01a89045c0ea2 \
    2f8d430275afe75194e69c1b30ce680770559eb9724d1d1fb18db0b0b24ff9d24ca42db1f68e3216f655134f96fa1029 \
    cac91201c393d8dc4496d317123301c8d948815b525f15cbd4c49724c1910001";

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.chars().filter_map(|c| c.to_digit(16)).map(|digit| digit as u8).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

/// Raises the limit until decoding succeeds. Below the need, the decoder must refuse before it allocates.
fn takes_no_more_than_allowed(name: &str, spec: &TileSpec, rows: u32, stream: &[u8]) {
    let mut refused = 0;
    let mut limit = 64 << 10;
    loop {
        let mut limits = Limits::default().with_expansion(1);
        limits.decoded_floor = limit;
        let host = Host::new(Arc::new(TileSpec { limits, ..spec.clone() }), &Registry::default()).unwrap();
        let mut tile = vec![0; host.native_len(rows)];
        let mut scratch = Scratch::default();
        let (result, taken) = failing_malloc::peak(|| host.decode_native(rows, stream, &mut tile, &mut scratch));
        match result {
            Err(CodecError::Limit { .. } | CodecError::OverLimit { .. }) => refused += 1,
            Err(error) => panic!("{name}: {error}"),
            Ok(()) => {
                assert!(taken <= limit, "{name} took {taken} bytes, {limit} were allowed");
                println!("{name}: {taken} bytes taken where {limit} were allowed");
                break;
            }
        }
        // A refused decode allocates headers only.
        assert!(taken < (2 << 20), "{name}: {taken} bytes were taken before the limit of {limit} was found");
        limit += limit / 16;
    }
    assert!(refused > 0, "{name} was never refused");
}

#[test]
fn working_memory_stays_within_the_limits() {
    let _alone = failing_malloc::alone();
    use Compression as C;
    use SampleType as S;
    let registry = Registry::default();
    let wide = |compression, code, sample, samples| TileSpec {
        width: 700,
        height: 600,
        ..spec(compression, code, sample, samples)
    };
    let encoded = |spec: &TileSpec, settings: &Settings, tile: &[u8]| {
        let encoder = HostEncoder::new(Arc::new(spec.clone()), settings, &registry).unwrap();
        let mut out = Vec::new();
        encoder.encode(600, &mut tile.to_vec(), &mut out, &mut Scratch::default()).unwrap();
        out
    };
    let noise = |len: usize| -> Vec<u8> {
        let mut state = 1_u32;
        let next = move |_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        (0..len).map(next).collect()
    };
    let lossy = with(|settings| settings.lossless = false);
    for samples in [3, 4] {
        let spec = wide(C::WebP, 50_001, S::U8, samples);
        let len = 700 * 600 * usize::from(samples);
        let smooth: Vec<u8> = (0..len).map(|at| (at / 700 % 200) as u8).collect();
        for (content, tile) in [("noise", noise(len)), ("smooth", smooth)] {
            for (mode, settings) in [("lossless", &Settings::default()), ("lossy", &lossy)] {
                let stream = encoded(&spec, settings, &tile);
                takes_no_more_than_allowed(&format!("WebP, {mode} {content} x {samples}"), &spec, 600, &stream);
            }
        }
    }
    for (sample, samples) in [(S::U8, 3), (S::U16, 1)] {
        let spec = wide(C::Jpeg2000, 34_712, sample, samples);
        let tile = noise(700 * 600 * usize::from(samples) * sample.size());
        for settings in [&Settings::default(), &lossy] {
            takes_no_more_than_allowed("JPEG 2000", &spec, 600, &encoded(&spec, settings, &tile));
        }
    }
    // Version 6 of LERC compresses lossless floats in a way that only lerc-rs reads.
    let spec = TileSpec { lerc: vec![6, 0], ..wide(C::Lerc, 34_887, S::F32, 1) };
    let rough: Vec<u8> = noise(700 * 600).iter().flat_map(|byte| (f32::from(*byte) * 0.37).to_ne_bytes()).collect();
    let smooth: Vec<u8> = (0..700 * 600).flat_map(|at| ((at as f32 / 900.0).sin() * 50.0).to_ne_bytes()).collect();
    for tile in [rough, smooth] {
        takes_no_more_than_allowed("LERC 6", &spec, 600, &encoded(&spec, &Settings::default(), &tile));
    }
    let spec = TileSpec { width: 6, height: 5, ..wide(C::JpegXl, 50_002, S::U8, 4) };
    takes_no_more_than_allowed("JPEG XL", &spec, 5, &hex(JPEG_XL));
}

/// Tiles of several sizes, because working memory grows with the tile.
#[test]
fn encoders_take_no_more_than_they_declare() {
    let _alone = failing_malloc::alone();
    let mut uses = uses();
    let levels = |name, compression, code, levels: &[u32]| -> Vec<Use> {
        let of = |level: &u32| Use {
            name,
            spec: spec(compression, code, SampleType::U16, 1),
            settings: with(|settings| settings.level = Some(*level)),
            decodes: false,
            encodes: true,
            warm: false,
        };
        levels.iter().map(of).collect()
    };
    uses.extend(levels("deflate", Compression::Deflate, 8, &[1, 3, 6, 9, 10, 12]));
    uses.extend(levels("zstd", Compression::Zstd, 50_000, &[1, 3, 5, 9, 12, 13, 15, 17, 19, 22]));
    uses.extend(levels("lzma", Compression::Lzma, 34_925, &[0, 1, 3, 4, 6, 9]));
    for Use { name, spec, settings, .. } in uses {
        for (width, rows) in [(64, 48), (512, 512), (900, 700)] {
            let spec = TileSpec { width, height: rows, ..spec.clone() };
            let encoder = HostEncoder::new(Arc::new(spec.clone()), &settings, &Registry::default()).unwrap();
            for noise_bits in [1, 4, 8] {
                let mut tile = samples(&spec, noise_bits);
                let (mut out, mut scratch) = (Vec::new(), Scratch::default());
                let (result, taken) = failing_malloc::peak(|| encoder.encode(rows, &mut tile, &mut out, &mut scratch));
                result.unwrap();
                let lens = [encoder.scratch_len(rows), encoder.working_len(rows), encoder.max_encoded_len(rows)];
                let declared = lens.iter().sum::<usize>() as u64;
                assert!(
                    taken <= declared,
                    "{name}, level {:?}, {width} x {rows}, {noise_bits} bits of noise: {taken} bytes taken, {declared} declared",
                    settings.level
                );
            }
        }
    }
}
