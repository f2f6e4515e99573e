//! JPEG XL in each tile (compression 50002 as GDAL first numbered it, 52546 as DNG 1.7 does).
//!
//! Colour channels first, extra channels after them in their order, in the colour space of the file: what lossless
//! coding stored comes out as it was.

use jxl_oxide::{AllocTracker, InitializeResult, JxlImage, JxlThreadPool, image::BitDepth};
use swath_tiff::SampleType;

use crate::{
    decode::{Decode, Fill, Form},
    error::CodecError,
    scratch::Scratch,
    spec::TileSpec,
};

/// JPEG XL, as a bare code stream or in its container.
#[derive(Debug, Clone, Copy)]
pub struct JpegXl;

impl Decode for JpegXl {
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
        if !matches!(spec.sample, SampleType::U8 | SampleType::U16 | SampleType::F32) {
            return Err(CodecError::unsupported("JPEG XL", format!("a tile of {} samples", spec.sample)));
        }
        // Planes of `f32`, several of them at a time (references, noise, upsampling), whatever the tile's own samples.
        let planes = u64::from(spec.width) * u64::from(rows) * u64::from(spec.samples) * 4;
        let allowed = planes.saturating_mul(16).saturating_add(64 << 20);
        let mut image = JxlImage::builder()
            // The engine runs tiles side by side; a tile is decoded by the thread that asked.
            .pool(JxlThreadPool::none())
            .alloc_tracker(AllocTracker::with_limit(usize::try_from(allowed).unwrap_or(usize::MAX)))
            .build_uninit();
        image.feed_bytes(src).map_err(corrupt)?;
        let mut image = match image.try_init().map_err(corrupt)? {
            InitializeResult::Initialized(image) => image,
            InitializeResult::NeedMoreData(_) => return Err(corrupt("the stream is cut off in its header")),
        };
        check(&image, spec, rows)?;
        // Spot colours are samples here, not ink to be mixed into the others.
        image.set_render_spot_color(false);
        if image.num_loaded_keyframes() == 0 {
            return Err(corrupt("the stream is cut off"));
        }
        let render = image.render_frame(0).map_err(corrupt)?;
        let planes = render.image_planar();
        if planes.len() != usize::from(spec.samples) {
            return Err(corrupt(format!("{} channels for {} samples per pixel", planes.len(), spec.samples)));
        }
        let pixels = spec.width as usize * rows as usize;
        for (nth, plane) in planes.iter().enumerate() {
            if (plane.width(), plane.height(), plane.buf().len()) != (spec.width as usize, rows as usize, pixels) {
                return Err(corrupt("a channel differs from the tile in size"));
            }
            match spec.sample {
                SampleType::U8 => put(dst, planes.len(), nth, plane.buf(), |value| [whole(value, spec.bits) as u8]),
                SampleType::U16 => {
                    put(dst, planes.len(), nth, plane.buf(), |value| (whole(value, spec.bits) as u16).to_ne_bytes());
                }
                _ => put(dst, planes.len(), nth, plane.buf(), f32::to_ne_bytes),
            }
        }
        Ok(Fill::Exact)
    }
}

fn corrupt(detail: impl ToString) -> CodecError {
    CodecError::corrupt("JPEG XL", detail.to_string())
}

/// The rules of libtiff's reader: size, bits and number of channels are those of the tile.
fn check(image: &JxlImage, spec: &TileSpec, rows: u32) -> Result<(), CodecError> {
    let (width, height) = (image.width(), image.height());
    if (width, height) != (spec.width, rows) {
        return Err(corrupt(format!("the stream is {width} x {height}, the tile {} x {rows}", spec.width)));
    }
    let metadata = &image.image_header().metadata;
    let (bits, float) = match metadata.bit_depth {
        BitDepth::IntegerSample { bits_per_sample } => (bits_per_sample, false),
        BitDepth::FloatSample { bits_per_sample, .. } => (bits_per_sample, true),
    };
    if bits != u32::from(spec.bits) || float != spec.sample.is_float() {
        let kind = if float { "float" } else { "integer" };
        return Err(corrupt(format!("{bits} {kind} bits for {} of {}", spec.bits, spec.sample)));
    }
    let colours = if image.pixel_format().is_grayscale() { 1 } else { 3 };
    let channels = colours + metadata.ec_info.len();
    if channels != usize::from(spec.samples) {
        return Err(corrupt(format!("{channels} channels for {} samples per pixel", spec.samples)));
    }
    Ok(())
}

/// jxl-oxide gives integers as fractions of their range. Up to 16 bits `f32` tells them all apart.
fn whole(value: f32, bits: u16) -> u32 {
    let range = ((1_u32 << bits) - 1) as f32;
    (value * range).round_ties_even().clamp(0.0, range) as u32
}

fn put<const N: usize>(dst: &mut [u8], count: usize, nth: usize, plane: &[f32], bytes: impl Fn(f32) -> [u8; N]) {
    for (sample, value) in dst.as_chunks_mut::<N>().0.iter_mut().skip(nth).step_by(count).zip(plane) {
        *sample = bytes(*value);
    }
}
