//! WebP (compression 50001).
//!
//! One of the two bindings to C in this crate that are ours (JPEG 2000 is the other). Decoding is two calls into libwebp,
//! both reading a slice, one of them writing into a slice whose length it is told; encoding copies a slice into a picture
//! that libwebp owns, and takes its output piece by piece.
#![allow(unsafe_code)]

use std::{ffi::c_int, slice, sync::Arc};

use libwebp_sys::{
    VP8StatusCode, WEBP_DECODER_ABI_VERSION, WebPBitstreamFeatures, WebPConfig, WebPDecodeRGBAInto, WebPDecodeRGBInto,
    WebPEncode, WebPGetFeaturesInternal, WebPPicture, WebPPictureFree, WebPPictureImportRGB, WebPPictureImportRGBA,
};
use swath_tiff::SampleType;

use crate::{
    decode::{Decode, Fill, Form},
    encode::{Encode, Settings, within},
    error::CodecError,
    memory::is_there,
    scratch::Scratch,
    spec::TileSpec,
};

/// WebP, lossy and lossless.
#[derive(Debug, Clone, Copy)]
pub struct WebP;

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
            return Err(CodecError::unsupported("WebP", detail));
        }
        let features = features(src)?;
        let (width, height) = (features.width as u32, features.height as u32);
        if (width, height) != (spec.width, rows) {
            let detail = format!("the stream is {width} x {height}, the tile {} x {rows}", spec.width);
            return Err(CodecError::corrupt("WebP", detail));
        }
        // An encoder drops an alpha channel that is opaque throughout, so four samples are made of three; the other way
        // round a channel would be lost, and libtiff refuses it.
        if features.has_alpha != 0 && spec.samples == 3 {
            return Err(CodecError::corrupt("WebP", "the stream has alpha, the tile has three samples per pixel"));
        }
        let stride = spec.native_row_len();
        let needed = stride.checked_mul(rows as usize);
        let (Some(needed), Ok(stride)) = (needed, i32::try_from(stride)) else {
            return Err(CodecError::unsupported("WebP", format!("a row of {stride} bytes")));
        };
        if dst.len() != needed {
            return Err(CodecError::Short { codec: "WebP", got: dst.len() as u64, wanted: needed as u64 });
        }
        let into = if spec.samples == 4 { WebPDecodeRGBAInto } else { WebPDecodeRGBInto };
        // SAFETY: `src` and `dst` are slices, so their pointers are valid for their lengths and do not overlap. libwebp
        // reads at most `src.len()` bytes, and checks that rows of `stride` bytes fit in `dst.len()` before it writes.
        let end = unsafe { into(src.as_ptr(), src.len(), dst.as_mut_ptr(), dst.len(), stride) };
        if end.is_null() {
            // libwebp says no more. It works in words of four bytes, and in tables besides.
            if !is_there((needed as u64).saturating_mul(2).saturating_add(4 << 20)) {
                return Err(CodecError::LibraryMemory { codec: "WebP" });
            }
            return Err(CodecError::corrupt("WebP", "the stream is damaged or cut off"));
        }
        Ok(Fill::Exact)
    }
}

fn features(src: &[u8]) -> Result<WebPBitstreamFeatures, CodecError> {
    let mut features =
        WebPBitstreamFeatures { width: 0, height: 0, has_alpha: 0, has_animation: 0, format: 0, pad: [0; 5] };
    // SAFETY: `src` is a slice, read within its length; `features` is owned here and has the layout that the ABI version,
    // which libwebp checks, stands for.
    let status =
        unsafe { WebPGetFeaturesInternal(src.as_ptr(), src.len(), &raw mut features, WEBP_DECODER_ABI_VERSION as i32) };
    if status != VP8StatusCode::VP8_STATUS_OK {
        return Err(CodecError::corrupt("WebP", format!("the tile does not begin with a WebP header ({status:?})")));
    }
    Ok(features)
}

/// The longest side of a picture: the format has 14 bits for it.
const MAX_SIDE: u32 = 16383;

/// WebP of one quality.
#[derive(Debug, Clone, Copy)]
struct Encoder {
    quality: u32,
    lossless: bool,
}

/// An encoder at `settings.quality`, 1 to 100 and 75 unless set; for `settings.lossless` it is how hard libwebp tries.
///
/// # Errors
/// When the quality is another, or the samples are not three or four bytes.
pub fn encoder(spec: &TileSpec, settings: &Settings) -> Result<Arc<dyn Encode>, CodecError> {
    if spec.sample != SampleType::U8 || spec.bits != 8 || !matches!(spec.samples, 3 | 4) {
        let detail = format!("a tile of {} {} samples per pixel (it has 3 or 4 of uint8)", spec.samples, spec.sample);
        return Err(CodecError::unsupported("WebP", detail));
    }
    if spec.width > MAX_SIDE {
        let detail = format!("a tile of {} columns (the most is {MAX_SIDE})", spec.width);
        return Err(CodecError::unsupported("WebP", detail));
    }
    let quality = within("WebP", "quality", settings.quality, 75, 1..=100)?;
    Ok(Arc::new(Encoder { quality, lossless: settings.lossless }))
}

impl Encode for Encoder {
    fn form(&self) -> Form {
        Form::Native
    }

    /// The format has no stored form, and libwebp no bound. Noise comes out a few per cent longer than it is; what is
    /// longer than this is refused.
    fn max_encoded_len(&self, spec: &TileSpec, rows: u32) -> usize {
        spec.native_row_len() * rows as usize * 2 + 4096
    }

    fn encode(
        &self,
        spec: &TileSpec,
        rows: u32,
        src: &[u8],
        dst: &mut Vec<u8>,
        _scratch: &mut Scratch,
    ) -> Result<(), CodecError> {
        let failed = |what: &str| CodecError::encode("WebP", what);
        let stride = spec.native_row_len();
        if src.len() != stride * rows as usize {
            return Err(failed("the tile is of another size than it should be"));
        }
        if rows > MAX_SIDE || spec.width > MAX_SIDE || stride != spec.width as usize * usize::from(spec.samples) {
            return Err(failed("the tile is larger than the format allows"));
        }
        let mut config = WebPConfig::new().map_err(|()| failed("the library is of another version"))?;
        config.quality = self.quality as f32;
        config.lossless = self.lossless.into();
        // Without it the colours under transparent pixels are changed. GDAL sets it too.
        config.exact = 1;
        let picture = WebPPicture::new().map_err(|()| failed("the library is of another version"))?;
        let mut sink = Sink { start: dst.len(), limit: self.max_encoded_len(spec, rows), out: dst };
        let mut picture = Picture(picture);
        picture.0.use_argb = self.lossless.into();
        picture.0.width = spec.width as c_int;
        picture.0.height = rows as c_int;
        picture.0.writer = Some(write);
        picture.0.custom_ptr = (&raw mut sink).cast();
        let import = if spec.samples == 4 { WebPPictureImportRGBA } else { WebPPictureImportRGB };
        // SAFETY: `src` was checked to hold `rows` rows of `stride` bytes, each of them `width` pixels of three or four
        // bytes, which is all that is read. The picture was initialised, and owns what it is copied to.
        let imported = unsafe { import(&raw mut picture.0, src.as_ptr(), stride as c_int) };
        if imported == 0 {
            return Err(failed("there is not enough memory for the picture"));
        }
        // SAFETY: `config` and the picture were initialised by the library and are borrowed for the call. `custom_ptr`
        // points at `sink`, which nothing else uses until the call returns.
        let encoded = unsafe { WebPEncode(&raw const config, &raw mut picture.0) };
        if encoded == 0 {
            let reason = format!("{:?}", picture.0.error_code);
            sink.out.truncate(sink.start);
            return Err(failed(&reason));
        }
        Ok(())
    }
}

/// A picture with the memory that libwebp took for it.
struct Picture(WebPPicture);

impl Drop for Picture {
    fn drop(&mut self) {
        // SAFETY: the picture was initialised by the library, and is freed here alone.
        unsafe { WebPPictureFree(&raw mut self.0) }
    }
}

/// Where a stream goes.
struct Sink<'a> {
    out: &'a mut Vec<u8>,
    start: usize,
    limit: usize,
}

/// Takes a piece of the stream; 0 is a failure.
///
/// # Safety
/// `data` is valid for `len` bytes, and `picture` one whose `custom_ptr` is an exclusive pointer to a [`Sink`].
unsafe extern "C" fn write(data: *const u8, len: usize, picture: *const WebPPicture) -> c_int {
    if len == 0 {
        return 1;
    }
    // SAFETY: the caller, libwebp, passes the picture that it was given.
    let sink = unsafe { (*picture).custom_ptr };
    // SAFETY: `encode` set the pointer to its own sink, and does not touch that while the library runs.
    let sink = unsafe { &mut *sink.cast::<Sink<'_>>() };
    // SAFETY: the caller says how long `data` is.
    let piece = unsafe { slice::from_raw_parts(data, len) };
    if sink.out.len() - sink.start + len > sink.limit {
        return 0;
    }
    sink.out.extend_from_slice(piece);
    1
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
        // What libtiff allows too: an encoder leaves out alpha that is opaque everywhere.
        assert_eq!(run(4, 6, 5, RGB), Ok(want(4, true)));
    }

    #[test]
    fn refuses_alpha_without_a_sample_for_it() {
        assert!(matches!(run(3, 6, 5, RGBA), Err(CodecError::Corrupt { .. })));
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
