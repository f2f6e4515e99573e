//! Decodes JPEG XL with jxl-oxide, within a memory limit.

use jxl_oxide::{AllocTracker, InitializeResult, JxlImage, JxlThreadPool, image::BitDepth};
use swath_raster::memory::is_available;
use swath_tiff::SampleType;

use crate::{
    decode::{Decode, Fill, Form},
    error::CodecError,
    scratch::Scratch,
    spec::TileSpec,
    working::Working,
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
        let tracker = AllocTracker::with_limit(HEADER);
        let (mut image, fed) = header(src, &tracker)?;
        check(&image, spec, rows)?;
        let need = MemoryNeed::of(&image, spec, rows, src);
        let working = Working::reserve("JPEG XL", need.least..=need.most, spec, src.len())?;
        tracker
            .expand_limit(usize::try_from(working.bytes().saturating_sub(need.untracked)).unwrap_or(usize::MAX >> 1));
        let failed = |error: Box<dyn std::error::Error + Send + Sync>| failed(error.as_ref(), &working);
        image.feed_bytes(src.get(fed..).unwrap_or_default()).map_err(failed)?;
        // Spot colours are samples here, not ink to mix into the others.
        image.set_render_spot_color(false);
        if image.num_loaded_keyframes() == 0 {
            return Err(corrupt("the stream is truncated"));
        }
        let render = image.render_frame(0).map_err(failed)?;
        // The library copies its planes without a check, and the heap may be fragmented by now.
        if !is_available(need.untracked) {
            return Err(CodecError::LibraryMemory { codec: "JPEG XL" });
        }
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

/// Memory limit for reading the header.
const HEADER: usize = 1 << 20;

/// The memory that a stream needs.
struct MemoryNeed {
    /// The minimum for any stream of this size, as measured: half a plane of `f32` besides the copy of each, and one and a half for
    /// lossy coding.
    least: u64,
    /// The maximum: streams that refer to earlier frames, upsample or add noise.
    most: u64,
    /// Memory that jxl-oxide does not track: its copy of the stream, copies of output planes, and tables.
    untracked: u64,
}

impl MemoryNeed {
    fn of(image: &JxlImage, spec: &TileSpec, rows: u32, src: &[u8]) -> Self {
        let metadata = &image.image_header().metadata;
        // Lossy coding has three colour channels, even for grey.
        let (colours, halves) = if metadata.xyb_encoded { (3, 3) } else { (1, 1) };
        let pixels = u64::from(spec.width).saturating_mul(rows.into());
        let channels = u64::from(spec.samples).max(colours);
        // Planes of `f32`, whatever the tile's own samples.
        let plane = pixels.saturating_mul(4);
        let tables = (2 << 20) + (src.len() as u64).saturating_mul(2);
        let planes = plane.saturating_mul(channels);
        let untracked = plane.saturating_mul(spec.samples.into()).saturating_add(tables);
        Self {
            least: untracked.saturating_add((planes / 2).saturating_mul(halves)),
            most: planes.saturating_mul(16).saturating_add(64 << 20).saturating_add(untracked),
            untracked,
        }
    }
}

/// Converts an error of jxl-oxide. The type of its memory errors is not public, so their text is matched.
fn failed(error: &dyn std::error::Error, working: &Working) -> CodecError {
    let detail = error.to_string();
    if detail.contains("failed to allocate") || detail.contains("out of memory") {
        return match working.is_short() {
            true => CodecError::LibraryMemory { codec: "JPEG XL" },
            false => CodecError::OverLimit { codec: "JPEG XL", allowed: working.bytes() },
        };
    }
    corrupt(detail)
}

fn corrupt(detail: impl ToString) -> CodecError {
    CodecError::corrupt("JPEG XL", detail.to_string())
}

/// Reads the header, so that its size can be checked before frames are allocated; returns the bytes fed as well.
fn header(src: &[u8], tracker: &AllocTracker) -> Result<(JxlImage, usize), CodecError> {
    // The engine decodes tiles in parallel, so the decoder of a tile uses no threads.
    let mut image = JxlImage::builder().pool(JxlThreadPool::none()).alloc_tracker(tracker.clone()).build_uninit();
    let mut fed = 0;
    loop {
        // Feeds twice as much each time, because the header is parsed from its beginning again.
        let next = src.get(fed..src.len().min((2 * fed).max(128))).filter(|next| !next.is_empty());
        let Some(next) = next else { return Err(corrupt("the stream is truncated in its header")) };
        image.feed_bytes(next).map_err(corrupt)?;
        fed += next.len();
        match image.try_init().map_err(corrupt)? {
            InitializeResult::Initialized(image) => return Ok((image, fed)),
            InitializeResult::NeedMoreData(more) => image = more,
        }
    }
}

/// Checks the rules of libtiff's reader: size, bits and number of channels must be those of the tile.
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

/// Converts a fraction of the range, as jxl-oxide returns it, to an integer. `f32` distinguishes all values of up to 16 bits.
fn whole(value: f32, bits: u16) -> u32 {
    let range = ((1_u32 << bits) - 1) as f32;
    (value * range).round_ties_even().clamp(0.0, range) as u32
}

/// Writes a plane to every `count`th sample from `nth` on.
fn put<const N: usize>(dst: &mut [u8], count: usize, nth: usize, plane: &[f32], bytes: impl Fn(f32) -> [u8; N]) {
    for (sample, value) in dst.as_chunks_mut::<N>().0.iter_mut().skip(nth).step_by(count).zip(plane) {
        *sample = bytes(*value);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::codec::testing::{self, hex, spec};

    /// Written by libjxl, lossless, 6 x 5: red 40 x, green 50 y, blue 10 x y, alpha 255 - 20 x.
    const RGBA: &str = "\
        ff0a2020b0120800100090024b12c5820552b8e302e201e492b13440cd34c04b6477e1cf6461009feff008a8210020ee \
        f43162f403f88b9dfd37a27d7ff16325cfe6ad1399fd6683929ff95fb234f04be35de627abd987ccb1e01a89045c0ea2 \
        2f8d430275afe75194e69c1b30ce680770559eb9724d1d1fb18db0b0b24ff9d24ca42db1f68e3216f655134f96fa1029 \
        cac91201c393d8dc4496d317123301c8d948815b525f15cbd4c49724c1910001 \
        ";
    /// In a container: 1000 x + 7000 y, and that divided by 65535.
    const WORDS: &str = "\
        0000000c4a584c200d0a870a00000014667479706a786c20000000006a786c20000000096a786c6c0a000000506a786c \
        63ff0a2020fc00458b08000100e8004b12c58285249625b0db4ad1353b3f479909d0a0418306fda976093e59b713a4e2 \
        d3e01e031da017b0c10dfa50020d3a251bdcd32e99013a1501 \
        ";
    const FLOATS: &str = "\
        0000000c4a584c200d0a870a00000014667479706a786c20000000006a786c20000000096a786c6c0a000000846a786c \
        63ff0a20207240d12208000100b8014b12c5828524daae6e33055b3309e7ec16a73f62104317277dfa007a3c9a6fee20 \
        fc17ce07d024faa3078ecaebdd07d0db48ec95970b9357c568bfbb4bf82fdc727e8b9b1289597c06164e00576c487e4a \
        123275939cabe2a0aa4907e8e13abc805bfb551921d91914b6512cb100 \
        ";

    fn run(spec: &TileSpec, rows: u32, stream: &[u8]) -> Result<Vec<u8>, CodecError> {
        let mut dst = vec![0; spec.native_row_len() * rows as usize];
        JpegXl.decode(spec, rows, stream, &mut dst, &mut Scratch::default()).map(|_| dst)
    }

    #[test]
    fn bytes_with_an_extra_channel() {
        let want: Vec<u8> =
            (0..30).flat_map(|at| [at % 6 * 40, at / 6 * 50, at % 6 * (at / 6) * 10, 255 - at % 6 * 20]).collect();
        assert_eq!(run(&spec(SampleType::U8, 4, 6), 5, &hex(RGBA)), Ok(want));
    }

    #[test]
    fn words_and_floats_exactly() {
        let words = run(&spec(SampleType::U16, 1, 6), 5, &hex(WORDS)).unwrap();
        let floats = run(&spec(SampleType::F32, 1, 6), 5, &hex(FLOATS)).unwrap();
        let pairs = words.as_chunks().0.iter().zip(floats.as_chunks().0);
        for (at, (word, float)) in pairs.enumerate() {
            let want = (at % 6 * 1000 + at / 6 * 7000) as u16;
            assert_eq!(u16::from_ne_bytes(*word), want);
            assert_eq!(f32::from_ne_bytes(*float), (f64::from(want) / 65_535.0) as f32);
        }
    }

    #[test]
    fn refuses_another_shape() {
        for (sample, samples, width, rows) in [
            (SampleType::U8, 4, 5, 6),
            (SampleType::U8, 4, 6, 4),
            (SampleType::U8, 3, 6, 5),
            (SampleType::U16, 4, 6, 5),
            (SampleType::I8, 4, 6, 5),
        ] {
            assert!(run(&spec(sample, samples, width), rows, &hex(RGBA)).is_err(), "{sample} {samples} {width} {rows}");
        }
        assert!(run(&spec(SampleType::U16, 1, 6), 5, &hex(FLOATS)).is_err());
    }

    #[test]
    fn refuses_a_stream_that_is_cut_off() {
        let stream = hex(RGBA);
        for len in 0..stream.len() - 8 {
            assert!(run(&spec(SampleType::U8, 4, 6), 5, &stream[..len]).is_err(), "{len}");
        }
    }

    #[test]
    fn survives_damage() {
        testing::damage(&JpegXl, &spec(SampleType::U8, 4, 6), 5, &hex(RGBA));
        testing::damage(&JpegXl, &spec(SampleType::U16, 1, 6), 5, &hex(WORDS));
    }
}
