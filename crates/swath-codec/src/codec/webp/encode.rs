//! Writes WebP: copies a tile into a picture that libwebp owns, takes the output piece by piece, and checks what can be checked of it.
#![allow(unsafe_code)]

use std::{ffi::c_int, slice, sync::Arc};

use libwebp_sys::{
    WebPConfig, WebPEncode, WebPEncodingError, WebPPicture, WebPPictureFree, WebPPictureImportRGB,
    WebPPictureImportRGBA,
};
use swath_tiff::SampleType;

use super::{NAME, decode};
use crate::{
    decode::Form,
    encode::{Encode, Settings, TABLES, within},
    error::CodecError,
    scratch::{Scratch, take},
    spec::TileSpec,
};

/// The longest side of a picture, a limit of the format (14 bits).
const MAX_SIDE: u32 = 16383;

/// WebP of one quality.
#[derive(Debug, Clone, Copy)]
struct Encoder {
    quality: u32,
    lossless: bool,
}

/// Creates an encoder at `settings.quality`, 1 to 100; the default is 75. In lossless mode the quality is libwebp's effort.
///
/// # Errors
/// When the quality is out of range, or the samples are not three or four bytes.
pub fn encoder(spec: &TileSpec, settings: &Settings) -> Result<Arc<dyn Encode>, CodecError> {
    if spec.sample != SampleType::U8 || spec.bits != 8 || !matches!(spec.samples, 3 | 4) {
        let detail = format!("a tile of {} {} samples per pixel (it has 3 or 4 of uint8)", spec.samples, spec.sample);
        return Err(CodecError::unsupported(NAME, detail));
    }
    if spec.width > MAX_SIDE {
        let detail = format!("a tile of {} columns (the most is {MAX_SIDE})", spec.width);
        return Err(CodecError::unsupported(NAME, detail));
    }
    let quality = within(NAME, "quality", settings.quality, 75, 1..=100)?;
    Ok(Arc::new(Encoder { quality, lossless: settings.lossless }))
}

impl Encode for Encoder {
    fn form(&self) -> Form {
        Form::Native
    }

    /// WebP has no stored form, and libwebp no bound. Noise grows by a few per cent; a stream longer than this bound is an error.
    fn max_encoded_len(&self, spec: &TileSpec, rows: u32) -> usize {
        spec.native_row_len() * rows as usize * 2 + 4096
    }

    /// Planes, chains of matches and, of a lossless stream, histograms; the factors are measured.
    fn working_len(&self, spec: &TileSpec, rows: u32) -> usize {
        let pixels = spec.width as usize * rows as usize;
        match Check::of(self.lossless, spec.samples) {
            Check::Nothing => pixels.saturating_mul(20).saturating_add(2 * TABLES),
            Check::All | Check::Alpha => pixels.saturating_mul(84).saturating_add(5 * TABLES),
        }
    }

    fn encode(
        &self,
        spec: &TileSpec,
        rows: u32,
        src: &[u8],
        dst: &mut Vec<u8>,
        scratch: &mut Scratch,
    ) -> Result<(), CodecError> {
        let failed = |what: &str| CodecError::encode(NAME, what);
        let stride = spec.native_row_len();
        if src.len() != stride * rows as usize {
            return Err(failed("internal error: the tile has the wrong length"));
        }
        if rows > MAX_SIDE || spec.width > MAX_SIDE || stride != spec.width as usize * usize::from(spec.samples) {
            return Err(failed("the tile is larger than the format allows"));
        }
        let mut config = WebPConfig::new().map_err(|()| failed("libwebp has an incompatible version"))?;
        config.quality = self.quality as f32;
        config.lossless = self.lossless.into();
        // Keeps the colours under transparent pixels. GDAL sets it too.
        config.exact = 1;
        let picture = WebPPicture::new().map_err(|()| failed("libwebp has an incompatible version"))?;
        let mut sink =
            Sink { start: dst.len(), limit: self.max_encoded_len(spec, rows), out: dst, lacks_memory: false };
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
            return Err(CodecError::LibraryMemory { codec: NAME });
        }
        // SAFETY: `config` and the picture were initialised by the library and are borrowed for the call. `custom_ptr`
        // points at `sink`, which nothing else uses until the call returns.
        let encoded = unsafe { WebPEncode(&raw const config, &raw mut picture.0) };
        if encoded == 0 {
            use WebPEncodingError as E;
            let code = picture.0.error_code;
            sink.out.truncate(sink.start);
            let library = matches!(code, E::VP8_ENC_ERROR_OUT_OF_MEMORY | E::VP8_ENC_ERROR_BITSTREAM_OUT_OF_MEMORY);
            if library || sink.lacks_memory {
                return Err(CodecError::LibraryMemory { codec: NAME });
            }
            return Err(failed(&format!("{code:?}")));
        }
        let start = sink.start;
        let check = Check::of(self.lossless, spec.samples);
        let checked = check.run(spec, rows, src, dst.get(start..).unwrap_or_default(), scratch);
        if checked.is_err() {
            dst.truncate(start);
        }
        checked
    }
}

/// The samples of a stream that have to be those of the tile.
///
/// libwebp's lossless encoder may run out of memory and still report success, with a stream that is cut short (libwebp 1.6; the
/// errors of its bit writers get lost where it tries several encodings). Decoding takes a small part of the time of encoding, so
/// every such stream is decoded again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Check {
    /// The stream is lossless.
    All,
    /// Only the alpha channel is lossless.
    Alpha,
    /// The lossy encoder reports each lack of memory.
    Nothing,
}

impl Check {
    fn of(lossless: bool, samples: u16) -> Self {
        match (lossless, samples) {
            (true, _) => Self::All,
            (false, 4) => Self::Alpha,
            (false, _) => Self::Nothing,
        }
    }

    /// Decodes `stream` and compares it with the tile `src`.
    ///
    /// # Errors
    /// A lack of memory, the only known cause of a difference, when the samples differ or the stream cannot be decoded.
    fn run(
        self,
        spec: &TileSpec,
        rows: u32,
        src: &[u8],
        stream: &[u8],
        scratch: &mut Scratch,
    ) -> Result<(), CodecError> {
        if self == Self::Nothing {
            return Ok(());
        }
        let mut tile = take(&mut scratch.between, src.len())?;
        let decoded = decode::features(stream)
            .is_ok_and(|features| (features.width as u32, features.height as u32) == (spec.width, rows))
            && decode::pixels(stream, spec.samples, spec.native_row_len() as c_int, &mut tile).is_ok();
        let same = match self {
            Self::Alpha => tile.iter().skip(3).step_by(4).eq(src.iter().skip(3).step_by(4)),
            _ => tile == src,
        };
        scratch.between = tile;
        if decoded && same { Ok(()) } else { Err(CodecError::LibraryMemory { codec: NAME }) }
    }
}

/// A picture and the memory that libwebp allocated for it.
struct Picture(WebPPicture);

impl Drop for Picture {
    fn drop(&mut self) {
        // SAFETY: the picture was initialised by the library, and is freed here alone.
        unsafe { WebPPictureFree(&raw mut self.0) }
    }
}

/// The output of the encoder.
struct Sink<'a> {
    out: &'a mut Vec<u8>,
    start: usize,
    limit: usize,
    /// Whether the system had no memory for a piece.
    lacks_memory: bool,
}

/// Receives a piece of the stream; 0 means failure.
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
    if sink.out.try_reserve(len).is_err() {
        sink.lacks_memory = true;
        return 0;
    }
    sink.out.extend_from_slice(piece);
    1
}
