//! Reads WebP by calls into libwebp: for the header, for the settings, and for the pixels.
#![allow(unsafe_code)]

use libwebp_sys::{
    VP8StatusCode, WEBP_CSP_MODE, WEBP_DECODER_ABI_VERSION, WebPBitstreamFeatures, WebPDecode, WebPDecoderConfig,
    WebPGetFeaturesInternal, WebPRGBABuffer,
};
use swath_raster::memory;
use swath_tiff::SampleType;

use super::{NAME, WebP};
use crate::{
    decode::{Decode, Fill, Form},
    error::CodecError,
    scratch::Scratch,
    spec::TileSpec,
    working::Working,
};

impl Decode for WebP {
    fn form(&self, _spec: &TileSpec) -> Form {
        Form::Native
    }

    fn decode(
        &self,
        spec: &TileSpec,
        rows: u32,
        src: &[u8],
        dst: &mut [u8],
        _scratch: &mut Scratch,
    ) -> Result<Fill, CodecError> {
        if spec.sample != SampleType::U8 || !matches!(spec.samples, 3 | 4) {
            let detail = format!("a tile of {} {} samples per pixel", spec.samples, spec.sample);
            return Err(CodecError::unsupported(NAME, detail));
        }
        let features = features(src)?;
        let (width, height) = (features.width as u32, features.height as u32);
        if (width, height) != (spec.width, rows) {
            let detail = format!("the stream is {width} x {height}, the tile {} x {rows}", spec.width);
            return Err(CodecError::corrupt(NAME, detail));
        }
        // Encoders drop an alpha channel that is opaque everywhere, so three channels decode to four samples. The reverse would
        // lose a channel, and libtiff rejects it too.
        if features.has_alpha != 0 && spec.samples == 3 {
            return Err(CodecError::corrupt(NAME, "the stream has alpha, the tile has three samples per pixel"));
        }
        let stride = spec.native_row_len();
        let needed = stride.checked_mul(rows as usize);
        let (Some(needed), Ok(stride)) = (needed, i32::try_from(stride)) else {
            return Err(CodecError::unsupported(NAME, format!("a row of {stride} bytes")));
        };
        if dst.len() != needed {
            return Err(CodecError::Short { codec: NAME, got: dst.len() as u64, expected: needed as u64 });
        }
        let need = Need::of(&features, src);
        let allowed = spec.limits.plausible(src.len() as u64).min(spec.limits.tile_bytes);
        if need.most > allowed {
            return Err(CodecError::Limit { codec: NAME, asked: need.most, allowed });
        }
        let _working = Working::reserve(NAME, need.least..=need.least, spec, src.len())?;
        pixels(src, spec.samples, stride, dst)?;
        Ok(Fill::Exact)
    }
}

/// Decodes all pixels of a stream to rows of `stride` bytes, each pixel three or four bytes.
///
/// # Errors
/// When the stream is corrupt, its picture does not fit in `dst`, or libwebp has no memory.
pub(super) fn pixels(src: &[u8], samples: u16, stride: i32, dst: &mut [u8]) -> Result<(), CodecError> {
    if lacks_padding(src) {
        let mut padded = Vec::new();
        memory::append(&mut padded, src)?;
        memory::append(&mut padded, &[0])?;
        return picture(&padded, samples, stride, dst);
    }
    picture(src, samples, stride, dst)
}

fn picture(src: &[u8], samples: u16, stride: i32, dst: &mut [u8]) -> Result<(), CodecError> {
    let corrupt = |detail: &str| CodecError::corrupt(NAME, detail);
    match call(src, samples, stride, dst)? {
        VP8StatusCode::VP8_STATUS_OK => Ok(()),
        VP8StatusCode::VP8_STATUS_OUT_OF_MEMORY if has_corrupt_alpha(src)? => {
            Err(corrupt("the alpha channel is corrupt"))
        }
        VP8StatusCode::VP8_STATUS_OUT_OF_MEMORY => Err(CodecError::LibraryMemory { codec: NAME }),
        _ => Err(corrupt("the stream is corrupt or truncated")),
    }
}

fn call(src: &[u8], samples: u16, stride: i32, dst: &mut [u8]) -> Result<VP8StatusCode, CodecError> {
    let unusable = || CodecError::unsupported(NAME, "this version of libwebp");
    let mut config = WebPDecoderConfig::new().map_err(|()| unusable())?;
    config.output.colorspace = if samples == 4 { WEBP_CSP_MODE::MODE_RGBA } else { WEBP_CSP_MODE::MODE_RGB };
    config.output.is_external_memory = 1;
    config.output.u.RGBA = WebPRGBABuffer { rgba: dst.as_mut_ptr(), stride, size: dst.len() };
    // SAFETY: `src` and `dst` are slices, so their pointers are valid for their lengths and do not overlap. libwebp
    // reads at most `src.len()` bytes, and checks that rows of `stride` bytes fit in `dst.len()` before it writes. The
    // configuration was initialised by the library, which frees nothing of memory that is external.
    Ok(unsafe { WebPDecode(src.as_ptr(), src.len(), &raw mut config) })
}

/// The chunks of a RIFF container: name, stated length and content, which is shorter where the stream is cut off.
fn chunks(src: &[u8]) -> impl Iterator<Item = ([u8; 4], usize, &[u8])> {
    let mut rest = src.get(12..).filter(|_| src.starts_with(b"RIFF")).unwrap_or_default();
    std::iter::from_fn(move || {
        let (&[a, b, c, d, len @ ..], after) = rest.split_first_chunk::<8>()?;
        let len = u32::from_le_bytes(len) as usize;
        let content = after.get(..len).unwrap_or(after);
        // A chunk of odd length is followed by a byte of padding.
        rest = after.get(len.saturating_add(len % 2)..).unwrap_or_default();
        Some(([a, b, c, d], len, content))
    })
}

/// Whether nothing is missing but the padding after the last chunk. libwebp rejects such a stream as truncated; libtiff reads it.
fn lacks_padding(src: &[u8]) -> bool {
    let stated = src.get(4..8).and_then(<[u8]>::first_chunk).map_or(0, |len| u64::from(u32::from_le_bytes(*len)));
    stated + 8 == src.len() as u64 + 1
        && chunks(src).last().is_some_and(|(_, len, content)| len % 2 == 1 && len == content.len())
}

/// Whether the alpha channel beside a lossy picture is corrupt. libwebp reports that as a lack of memory where it finds out before
/// the first row (`VP8DecompressAlphaRows`).
///
/// # Errors
/// When there is no memory to find out.
fn has_corrupt_alpha(src: &[u8]) -> Result<bool, CodecError> {
    const LOSSY: i32 = 1;
    let features = features(src)?;
    let alpha = chunks(src).find_map(|(name, _, content)| (&name == b"ALPH").then_some(content));
    let (LOSSY, Some(alpha)) = (features.format, alpha) else { return Ok(false) };
    let Some((&head, data)) = alpha.split_first().filter(|(_, data)| !data.is_empty()) else { return Ok(true) };
    let (width, height) = (features.width as usize, features.height as usize);
    match head & 3 {
        // Preprocessing is 0 or 1, and the two bits above it are 0.
        _ if head >> 4 > 1 => Ok(true),
        0 => Ok(data.len() < width * height),
        1 => {
            // The data of a lossless picture without its header: a signature, width and height less one, and the flag for alpha.
            let sizes = (features.width as u32 - 1) | (features.height as u32 - 1) << 14 | 1 << 28;
            let mut stream = vec![0x2f];
            stream.extend(sizes.to_le_bytes());
            memory::append(&mut stream, data)?;
            let mut pixels: Vec<u8> = memory::zeroed(width * height * 4)?;
            let status = call(&stream, 4, features.width * 4, &mut pixels)?;
            Ok(!matches!(status, VP8StatusCode::VP8_STATUS_OK | VP8StatusCode::VP8_STATUS_OUT_OF_MEMORY))
        }
        _ => Ok(true),
    }
}

/// The memory that libwebp takes. It reports a lack of memory, so only the certain part is reserved.
struct Need {
    /// Planes and rows, whatever the stream.
    least: u64,
    /// With as many Huffman tables as a lossless stream of this length can define.
    most: u64,
}

impl Need {
    fn of(features: &WebPBitstreamFeatures, src: &[u8]) -> Self {
        /// Tables and rows of blocks.
        const BASE: u64 = 256 << 10;
        /// Bytes per column: rows of blocks above the current one, filtered rows, and sixteen rows of output.
        const PER_COLUMN: u64 = 256;
        /// The tables of one group of codes with the largest colour cache.
        const PER_GROUP: u64 = 21 << 10;
        /// Bits of the shortest group: five codes of one symbol.
        const GROUP_BITS: u64 = 20;
        let (width, height) = (features.width as u64, features.height as u64);
        let pixels = width.saturating_mul(height);
        // Lossless: a word per pixel, and for transforms and groups a word for every block of four by four at most. Lossy: a
        // plane of alpha, which is lossless inside.
        let planes = pixels.saturating_mul(if features.has_alpha == 0 { 5 } else { 6 });
        let least = BASE.saturating_add(width.saturating_mul(PER_COLUMN)).saturating_add(planes);
        let blocks = width.div_ceil(4).saturating_mul(height.div_ceil(4));
        let groups = (src.len() as u64).saturating_mul(8).div_ceil(GROUP_BITS).min(blocks).min(1 << 16);
        Self { least, most: least.saturating_add(groups.saturating_mul(PER_GROUP)) }
    }
}

pub(super) fn features(src: &[u8]) -> Result<WebPBitstreamFeatures, CodecError> {
    let mut features =
        WebPBitstreamFeatures { width: 0, height: 0, has_alpha: 0, has_animation: 0, format: 0, pad: [0; 5] };
    // SAFETY: `src` is a slice, read within its length; `features` is owned here and has the layout that the ABI version,
    // which libwebp checks, stands for.
    let status =
        unsafe { WebPGetFeaturesInternal(src.as_ptr(), src.len(), &raw mut features, WEBP_DECODER_ABI_VERSION as i32) };
    if status != VP8StatusCode::VP8_STATUS_OK {
        return Err(CodecError::corrupt(NAME, format!("the tile does not begin with a WebP header ({status:?})")));
    }
    Ok(features)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::testing::{self, hex, spec};

    /// Lossless, 6 x 5: red 40 x, green 50 y, blue 10 x y; then with alpha 255 - 20 x.
    const RGB: &str = "5249464630000000574542505650384c240000002f05000100b93244f43f7651fce87f4041db364c30953fbbb741\
        1894518809007681fe01";
    const RGBA: &str = "5249464632000000574542505650384c250000002f05000110b93244f43f7651fce87f4041db364c30953fbbb741\
        18945118f60900dc05e41f00";

    fn run(samples: u16, width: u32, rows: u32, stream: &str) -> Result<Vec<u8>, CodecError> {
        let spec = spec(SampleType::U8, samples, width);
        let mut dst = vec![0; spec.native_row_len() * rows as usize];
        WebP.decode(&spec, rows, &hex(stream), &mut dst, &mut Scratch::default()).map(|_| dst)
    }

    fn want(samples: u16, opaque: bool) -> Vec<u8> {
        let pixel =
            |at: u8| [at % 6 * 40, at / 6 * 50, at % 6 * (at / 6) * 10, if opaque { 255 } else { 255 - at % 6 * 20 }];
        (0..30).flat_map(|at| pixel(at).into_iter().take(samples.into())).collect()
    }

    #[test]
    fn colours_with_and_without_alpha() {
        assert_eq!(run(3, 6, 5, RGB), Ok(want(3, true)));
        assert_eq!(run(4, 6, 5, RGBA), Ok(want(4, false)));
        // As in libtiff: an encoder leaves out alpha that is opaque everywhere.
        assert_eq!(run(4, 6, 5, RGB), Ok(want(4, true)));
    }

    #[test]
    fn refuses_alpha_without_a_sample_for_it() {
        assert!(matches!(run(3, 6, 5, RGBA), Err(CodecError::Corrupt { .. })));
    }

    #[test]
    fn reads_a_stream_without_its_last_byte_where_that_is_padding() {
        let cut = |stream: &str, bytes: usize| stream[..stream.len() - 2 * bytes].to_owned();
        assert_eq!(run(4, 6, 5, &cut(RGBA, 1)), Ok(want(4, false)));
        assert!(matches!(run(4, 6, 5, &cut(RGBA, 2)), Err(CodecError::Corrupt { .. })));
        // The last byte of this one is data.
        assert!(matches!(run(3, 6, 5, &cut(RGB, 1)), Err(CodecError::Corrupt { .. })));
    }

    #[test]
    fn corrupt_alpha_of_a_lossy_picture_is_no_lack_of_memory() {
        let spec = spec(SampleType::U8, 4, 16);
        let tile: Vec<u8> = (0..16 * 16 * 4).map(|at: u32| (at * at / 7) as u8).collect();
        let mut sound = Vec::new();
        let settings = crate::encode::Settings { lossless: false, ..Default::default() };
        let encoder = super::super::encode::encoder(&spec, &settings).unwrap();
        encoder.encode(&spec, 16, &tile, &mut sound, &mut Scratch::default()).unwrap();
        let at = sound.windows(4).position(|name| name == b"ALPH").unwrap() + 8;
        let decode = |stream: &[u8]| {
            let mut dst = vec![0; 16 * 16 * 4];
            WebP.decode(&spec, 16, stream, &mut dst, &mut Scratch::default())
        };
        assert_eq!(decode(&sound), Ok(Fill::Exact));
        assert_eq!(has_corrupt_alpha(&sound), Ok(false));
        // Not compressed, but too short for that; an unknown method; a reserved bit; a lossless stream of ones.
        for (place, value) in [(0, 0), (0, 2), (0, 0x41), (1, 0xff)] {
            let mut stream = sound.clone();
            stream[at + place] = value;
            if place == 1 {
                stream[at + 1..at + 40].fill(value);
            }
            let error = decode(&stream).unwrap_err();
            assert!(matches!(error, CodecError::Corrupt { .. }), "{place}: {error}");
        }
    }

    #[test]
    fn refuses_another_size_or_sample() {
        assert!(matches!(run(3, 5, 6, RGB), Err(CodecError::Corrupt { .. })));
        assert!(matches!(run(3, 6, 4, RGB), Err(CodecError::Corrupt { .. })));
        assert!(matches!(run(1, 6, 5, RGB), Err(CodecError::Unsupported { .. })));
        let spec = spec(SampleType::U8, 3, 6);
        let short = WebP.decode(&spec, 5, &hex(RGB), &mut [0; 10], &mut Scratch::default());
        assert!(matches!(short, Err(CodecError::Short { .. })), "{short:?}");
    }

    #[test]
    fn survives_damage() {
        testing::damage(&WebP, &spec(SampleType::U8, 3, 6), 5, &hex(RGB));
        testing::damage(&WebP, &spec(SampleType::U8, 4, 6), 5, &hex(RGBA));
    }
}
