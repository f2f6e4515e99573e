//! WebP (compression 50001).
//!
//! The one binding to C in this crate that is ours, and with `simd.rs` its only `unsafe`: two calls into libwebp, both
//! reading a slice, one of them writing into a slice whose length it is told.
#![allow(unsafe_code)]

use libwebp_sys::{
    VP8StatusCode, WEBP_DECODER_ABI_VERSION, WebPBitstreamFeatures, WebPDecodeRGBAInto, WebPDecodeRGBInto,
    WebPGetFeaturesInternal,
};
use swath_tiff::SampleType;

use crate::{
    decode::{Decode, Fill, Form},
    error::CodecError,
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
    let status = unsafe {
        WebPGetFeaturesInternal(src.as_ptr(), src.len(), &raw mut features, WEBP_DECODER_ABI_VERSION as i32)
    };
    if status != VP8StatusCode::VP8_STATUS_OK {
        return Err(CodecError::corrupt("WebP", format!("the tile does not begin with a WebP header ({status:?})")));
    }
    Ok(features)
}
