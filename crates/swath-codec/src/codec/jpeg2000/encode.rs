//! Encodes JPEG 2000 with OpenJPEG: one bare code stream with one tile.
//!
//! The binding is our own, and follows the same rule as the one to libwebp: a Rust type owns and frees everything that the library
//! allocates, and every buffer that the library writes to is checked first.
#![allow(unsafe_code)]

use std::{
    ffi::{c_char, c_void},
    mem::MaybeUninit,
    ptr::{self, NonNull},
    slice,
    sync::Arc,
};

use openjpeg_sys as opj;
use swath_raster::memory::collect;
use swath_tiff::{Photometric, SampleType};

use crate::{
    decode::Form,
    encode::{Encode, Settings, TABLES, within},
    error::CodecError,
    scratch::Scratch,
    spec::TileSpec,
};

/// More components than any raster has interleaved bands; the format allows 16384.
const MAX_SAMPLES: u16 = 4096;

/// JPEG 2000 of one quality.
#[derive(Debug, Clone, Copy)]
struct Encoder {
    /// `None` is lossless.
    quality: Option<u32>,
}

/// Creates an encoder: lossless with the 5/3 transform for `settings.lossless`, else with the 9/7 transform at `settings.quality`, 1 to
/// 100; the default is 75.
///
/// # Errors
/// When the quality is out of range, or the samples do not have 8 or 16 bits.
pub fn encoder(spec: &TileSpec, settings: &Settings) -> Result<Arc<dyn Encode>, CodecError> {
    use SampleType as S;
    if !matches!(spec.sample, S::U8 | S::I8 | S::U16 | S::I16) || usize::from(spec.bits) != spec.sample.size() * 8 {
        let detail =
            format!("a tile of {} bits in {} (it takes uint8, int8, uint16 and int16)", spec.bits, spec.sample);
        return Err(CodecError::unsupported("JPEG 2000", detail));
    }
    if !(1..=MAX_SAMPLES).contains(&spec.samples) {
        let detail = format!("a tile of {} samples per pixel (it takes 1 to {MAX_SAMPLES})", spec.samples);
        return Err(CodecError::unsupported("JPEG 2000", detail));
    }
    let quality = within("JPEG 2000", "quality", settings.quality, 75, 1..=100)?;
    Ok(Arc::new(Encoder { quality: (!settings.lossless).then_some(quality) }))
}

/// The marker that every code stream begins with.
const START_OF_STREAM: [u8; 2] = [0xFF, 0x4F];

const NO_MEMORY: CodecError = CodecError::LibraryMemory { codec: "JPEG 2000" };

fn failed(what: &str) -> CodecError {
    CodecError::encode("JPEG 2000", what)
}

impl Encode for Encoder {
    fn form(&self) -> Form {
        Form::Native
    }

    /// OpenJPEG has no bound. Noise grows by a few per cent; a stream longer than this bound is an error.
    fn max_encoded_len(&self, spec: &TileSpec, rows: u32) -> usize {
        spec.native_row_len() * rows as usize * 2 + usize::from(spec.samples) * 64 + 4096
    }

    /// Two planes of 32 bits per sample, and code blocks; the factor is measured.
    fn working_len(&self, spec: &TileSpec, rows: u32) -> usize {
        let samples = spec.width as usize * rows as usize * usize::from(spec.samples);
        samples.saturating_mul(12).saturating_add(2 * TABLES)
    }

    fn encode(
        &self,
        spec: &TileSpec,
        rows: u32,
        src: &[u8],
        dst: &mut Vec<u8>,
        _scratch: &mut Scratch,
    ) -> Result<(), CodecError> {
        if src.is_empty() || src.len() != spec.native_row_len() * rows as usize {
            return Err(failed("internal error: the tile has the wrong length"));
        }
        let mut image = Image::new(spec, rows)?;
        let range = image.fill(spec, src)?;
        let mut parameters = defaults();
        // OpenJPEG rejects more resolution levels than the shorter side allows.
        parameters.numresolution = (spec.width.min(rows).ilog2() + 1).min(6) as i32;
        parameters.tcp_numlayers = 1;
        let colours = spec.photometric == Some(Photometric::Rgb) && spec.samples >= 3;
        parameters.tcp_mct = c_char::from(colours);
        match self.quality {
            Some(quality) => {
                parameters.irreversible = 1;
                parameters.cp_fixed_quality = 1;
                parameters.tcp_distoratio[0] = decibels(quality, spec.bits, range);
            }
            None => parameters.cp_disto_alloc = 1,
        }
        let start = dst.len();
        let limit = start + self.max_encoded_len(spec, rows);
        let mut sink = Sink { start, at: start, limit, out: dst, is_full: false };
        let done = Codec::new().and_then(|codec| codec.setup(&mut parameters, &mut image)?.run(&mut image, &mut sink));
        let is_full = sink.is_full;
        let is_stream = dst.get(start..).is_some_and(|stream| stream.starts_with(&START_OF_STREAM));
        if done.is_some() && is_stream {
            return Ok(());
        }
        dst.truncate(start);
        if done.is_some() {
            return Err(failed(
                "OpenJPEG was built for little-endian processors: build it with CFLAGS=-DOPJ_BIG_ENDIAN",
            ));
        }
        // The library gives no reason. Size, samples and parameters were checked, so it lacks memory, or the sink did.
        Err(if is_full { failed("the stream is longer than any that was expected") } else { NO_MEMORY })
    }
}

/// Returns the signal-to-noise ratio of a quality: 75 is 45 dB, at which an 8-bit photograph looks unchanged.
///
/// OpenJPEG takes the largest value of the component's type as the signal. 16-bit rasters seldom reach it, so the ratio depends on the
/// value range of the tile: reflectances up to 3000 need 27 dB more for the same quality.
fn decibels(quality: u32, bits: u16, range: u32) -> f32 {
    let nominal = ((1_u32 << bits) - 1) as f32;
    let usual = 22.5 + 0.3 * quality as f32;
    if bits <= 8 { usual } else { usual + 20.0 * (nominal / range.clamp(255, 65_535) as f32).log10() }
}

fn defaults() -> opj::opj_cparameters_t {
    let mut parameters = MaybeUninit::<opj::opj_cparameters_t>::zeroed();
    // SAFETY: the call writes to parameters of its own type, for which there is room.
    unsafe { opj::opj_set_default_encoder_parameters(parameters.as_mut_ptr()) };
    // SAFETY: all zeros, then the defaults, are parameters: the struct is of numbers, null pointers, and enums that have a 0.
    unsafe { parameters.assume_init() }
}

/// An image that OpenJPEG owns: a plane of 32 bits per sample.
struct Image(NonNull<opj::opj_image_t>);

impl Drop for Image {
    fn drop(&mut self) {
        // SAFETY: the image came from `opj_image_create`, and is freed here alone.
        unsafe { opj::opj_image_destroy(self.0.as_ptr()) }
    }
}

impl Image {
    fn new(spec: &TileSpec, rows: u32) -> Result<Self, CodecError> {
        let component = opj::opj_image_cmptparm_t {
            dx: 1,
            dy: 1,
            w: spec.width,
            h: rows,
            x0: 0,
            y0: 0,
            prec: spec.bits.into(),
            bpp: spec.bits.into(),
            sgnd: matches!(spec.sample, SampleType::I8 | SampleType::I16).into(),
        };
        let mut components = collect((0..spec.samples).map(|_| component))?;
        let space = opj::OPJ_COLOR_SPACE::OPJ_CLRSPC_UNSPECIFIED;
        // SAFETY: the pointer is to as many component parameters as it says, which are only read.
        let image = unsafe { opj::opj_image_create(spec.samples.into(), components.as_mut_ptr(), space) };
        let mut image = Self(NonNull::new(image).ok_or(NO_MEMORY)?);
        // SAFETY: the image was just made, and only this function knows of it.
        let head = unsafe { image.0.as_mut() };
        (head.x1, head.y1) = (spec.width, rows);
        Ok(image)
    }

    /// Copies each sample of a pixel to its plane, and returns the difference between the smallest and the largest value.
    fn fill(&mut self, spec: &TileSpec, src: &[u8]) -> Result<u32, CodecError> {
        // SAFETY: the image lives as long as `self`, which is borrowed.
        let head = unsafe { self.0.as_ref() };
        if head.numcomps != u32::from(spec.samples) || head.comps.is_null() {
            return Err(failed("there are components missing from the image"));
        }
        // SAFETY: OpenJPEG allocated `numcomps` components.
        let components = unsafe { slice::from_raw_parts(head.comps, head.numcomps as usize) };
        let (mut least, mut most) = (i32::MAX, i32::MIN);
        for (nth, component) in components.iter().enumerate() {
            let len = component.w as usize * component.h as usize;
            if component.data.is_null() || len * components.len() * spec.sample.size() != src.len() {
                return Err(failed("a component of the image is of another size than the tile"));
            }
            // SAFETY: OpenJPEG allocated `w` times `h` values for each component, and `self` is borrowed exclusively.
            let plane = unsafe { slice::from_raw_parts_mut(component.data, len) };
            match spec.sample {
                SampleType::U8 => spread(src, nth, components.len(), plane, |[byte]| i32::from(byte)),
                SampleType::I8 => spread(src, nth, components.len(), plane, |byte| i8::from_ne_bytes(byte).into()),
                SampleType::U16 => spread(src, nth, components.len(), plane, |pair| u16::from_ne_bytes(pair).into()),
                _ => spread(src, nth, components.len(), plane, |pair| i16::from_ne_bytes(pair).into()),
            }
            least = plane.iter().fold(least, |least, value| least.min(*value));
            most = plane.iter().fold(most, |most, value| most.max(*value));
        }
        Ok(most.abs_diff(least))
    }
}

fn spread<const N: usize>(src: &[u8], nth: usize, step: usize, plane: &mut [i32], value: fn([u8; N]) -> i32) {
    for (out, sample) in plane.iter_mut().zip(src.as_chunks::<N>().0.iter().skip(nth).step_by(step)) {
        *out = value(*sample);
    }
}

/// An encoder of OpenJPEG. Its functions return `None` where the library fails.
struct Codec(NonNull<opj::opj_codec_t>);

impl Drop for Codec {
    fn drop(&mut self) {
        // SAFETY: the codec came from `opj_create_compress`, and is freed here alone.
        unsafe { opj::opj_destroy_codec(self.0.as_ptr()) }
    }
}

impl Codec {
    fn new() -> Option<Self> {
        // SAFETY: the call takes a number and returns a codec or null.
        let codec = unsafe { opj::opj_create_compress(opj::CODEC_FORMAT::OPJ_CODEC_J2K) };
        NonNull::new(codec).map(Self)
    }

    fn setup(&self, parameters: &mut opj::opj_cparameters_t, image: &mut Image) -> Option<&Self> {
        // SAFETY: codec and image are alive, and the parameters are copied.
        let done = unsafe { opj::opj_setup_encoder(self.0.as_ptr(), parameters, image.0.as_ptr()) };
        (done != 0).then_some(self)
    }

    fn run(&self, image: &mut Image, sink: &mut Sink<'_>) -> Option<()> {
        let stream = Stream::new(sink)?;
        // SAFETY: codec, image and stream are alive until the end of this function.
        let started = unsafe { opj::opj_start_compress(self.0.as_ptr(), image.0.as_ptr(), stream.0.as_ptr()) } != 0;
        // SAFETY: as above.
        let encoded = started && unsafe { opj::opj_encode(self.0.as_ptr(), stream.0.as_ptr()) } != 0;
        // SAFETY: as above.
        (encoded && unsafe { opj::opj_end_compress(self.0.as_ptr(), stream.0.as_ptr()) } != 0).then_some(())
    }
}

/// The output of the encoder.
struct Sink<'a> {
    out: &'a mut Vec<u8>,
    start: usize,
    /// Position of the next byte; OpenJPEG seeks back to fill in lengths.
    at: usize,
    limit: usize,
    /// Whether the library wrote more than the limit.
    is_full: bool,
}

impl Sink<'_> {
    fn put(&mut self, bytes: &[u8]) -> Option<()> {
        let end = self.at.checked_add(bytes.len()).filter(|end| *end <= self.limit);
        self.is_full |= end.is_none();
        let end = end?;
        let missing = end.saturating_sub(self.out.len());
        self.out.try_reserve(missing).ok()?;
        if missing > 0 {
            self.out.resize(end, 0);
        }
        self.out.get_mut(self.at..end)?.copy_from_slice(bytes);
        self.at = end;
        Some(())
    }

    fn go(&mut self, to: Option<usize>) -> Option<()> {
        self.at = to.filter(|to| (self.start..=self.limit).contains(to))?;
        Some(())
    }
}

/// An OpenJPEG stream that writes to a [`Sink`].
struct Stream<'a>(NonNull<opj::opj_stream_t>, std::marker::PhantomData<&'a mut ()>);

impl Drop for Stream<'_> {
    fn drop(&mut self) {
        // SAFETY: the stream came from `opj_stream_default_create`, and is freed here alone.
        unsafe { opj::opj_stream_destroy(self.0.as_ptr()) }
    }
}

impl<'a> Stream<'a> {
    fn new(sink: &'a mut Sink<'_>) -> Option<Self> {
        // SAFETY: the call takes a number and returns a stream or null.
        let stream = unsafe { opj::opj_stream_default_create(0) };
        let stream = Self(NonNull::new(stream)?, std::marker::PhantomData);
        let raw = stream.0.as_ptr();
        // SAFETY: the stream is alive; the sink outlives it, by its lifetime, and the stream never frees the sink.
        unsafe { opj::opj_stream_set_user_data(raw, ptr::from_mut(sink).cast(), None) };
        // SAFETY: the stream is alive, and the function is of the type that it calls.
        unsafe { opj::opj_stream_set_write_function(raw, Some(write)) };
        // SAFETY: as above.
        unsafe { opj::opj_stream_set_skip_function(raw, Some(skip)) };
        // SAFETY: as above.
        unsafe { opj::opj_stream_set_seek_function(raw, Some(seek)) };
        Some(stream)
    }
}

/// # Safety
/// `data` is valid for `len` bytes, and `user` an exclusive pointer to a [`Sink`].
unsafe extern "C" fn write(data: *mut c_void, len: usize, user: *mut c_void) -> usize {
    // SAFETY: OpenJPEG passes what `Stream::new` gave it.
    let sink = unsafe { &mut *user.cast::<Sink<'_>>() };
    if len == 0 {
        return 0;
    }
    // SAFETY: OpenJPEG says how long `data` is.
    let bytes = unsafe { slice::from_raw_parts(data.cast::<u8>(), len) };
    // All ones signals a failure.
    sink.put(bytes).map_or(usize::MAX, |()| len)
}

/// # Safety
/// `user` is an exclusive pointer to a [`Sink`].
unsafe extern "C" fn skip(by: i64, user: *mut c_void) -> i64 {
    // SAFETY: OpenJPEG passes what `Stream::new` gave it.
    let sink = unsafe { &mut *user.cast::<Sink<'_>>() };
    let to = isize::try_from(by).ok().and_then(|by| sink.at.checked_add_signed(by));
    sink.go(to).map_or(-1, |()| by)
}

/// # Safety
/// `user` is an exclusive pointer to a [`Sink`].
unsafe extern "C" fn seek(to: i64, user: *mut c_void) -> opj::OPJ_BOOL {
    // SAFETY: OpenJPEG passes what `Stream::new` gave it.
    let sink = unsafe { &mut *user.cast::<Sink<'_>>() };
    let to = usize::try_from(to).ok().and_then(|to| sink.start.checked_add(to));
    sink.go(to).is_some().into()
}
