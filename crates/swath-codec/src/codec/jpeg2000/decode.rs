//! Decodes JPEG 2000.
//!
//! The samples are the component values of the code stream after its own component transform. Palettes and colour profiles of a JP2
//! file around it are ignored, because the TIFF tags define the meaning of samples.
//!
//! hayro-jpeg2000 computes in `f32`, in which the reversible transform is exact while intermediate values stay below 2^24. That
//! holds for components of up to 20 bits, with some margin.

use hayro_jpeg2000::{DecodeSettings, DecoderContext, Image};
use swath_tiff::SampleType;

use crate::{
    decode::{Decode, Fill, Form},
    error::CodecError,
    scratch::Scratch,
    spec::TileSpec,
    working::Working,
};

/// The most bits of a component for which lossless decoding is exact.
const MAX_BITS: u8 = 20;

/// JPEG 2000, as a bare code stream or as a JP2 file.
#[derive(Debug, Clone, Copy)]
pub struct Jpeg2000;

impl Decode for Jpeg2000 {
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
        let stream = code_stream(src)?;
        let siz = Siz::parse(stream).ok_or_else(|| corrupt("the code stream does not begin with SOC and SIZ"))?;
        siz.check(spec, rows)?;
        let needed = decoder_memory(stream, &siz)?;
        let _working = Working::reserve("JPEG 2000", needed..=needed, spec, src.len())?;
        // By default hayro takes subsampled chroma without a JP2 file for sYCC and converts it to RGB.
        let wrapped = siz.is_subsampled().then(|| wrap(stream));
        // Strict, like OpenJPEG in GDAL: a truncated stream is an error, not a blurred tile.
        let settings = DecodeSettings { resolve_palette_indices: false, strict: true, target_resolution: None };
        let image = Image::new(wrapped.as_deref().unwrap_or(stream), &settings).map_err(corrupt)?;
        if (u64::from(image.width()), u64::from(image.height())) != siz.size() {
            return Err(corrupt("the JP2 file and its code stream differ in size"));
        }
        let mut context = DecoderContext::default();
        let decoded = image.decode(&mut context).map_err(corrupt)?;
        let planes: Vec<Plane<'_>> = decoded
            .components()
            .iter()
            .zip(&siz.components)
            .map(|(data, component)| Plane { samples: data.samples(), component })
            .collect();
        if planes.len() != usize::from(spec.samples) {
            return Err(corrupt("components are missing"));
        }
        if spec.compression_code == 33003 && spec.sample == SampleType::U8 && planes.len() >= 3 {
            to_rgb(&planes, dst)?;
        } else {
            match spec.sample {
                SampleType::U8 | SampleType::I8 => interleave(&planes, dst, |value| (value as u8).to_ne_bytes())?,
                SampleType::U16 | SampleType::I16 => interleave(&planes, dst, |value| (value as u16).to_ne_bytes())?,
                _ => interleave(&planes, dst, |value| (value as u32).to_ne_bytes())?,
            }
        }
        Ok(Fill::Exact)
    }
}

fn corrupt(detail: impl ToString) -> CodecError {
    CodecError::corrupt("JPEG 2000", detail.to_string())
}

/// A decoded component.
struct Plane<'a> {
    samples: &'a [f32],
    component: &'a Component,
}

impl Plane<'_> {
    /// Converts values to integers. hayro adds half the range to every component; this subtracts it from signed ones. Values are
    /// clamped to the component's bits, which lossy coding overshoots, and ties round to even, as in OpenJPEG.
    fn value(&self, at: usize) -> i32 {
        let bits = u32::from(self.component.bits);
        let value = self.samples.get(at).map_or(0, |value| value.round_ties_even() as i32);
        value.clamp(0, (1 << bits) - 1) - if self.component.signed { 1 << (bits - 1) } else { 0 }
    }
}

fn interleave<const N: usize>(
    planes: &[Plane<'_>],
    dst: &mut [u8],
    bytes: fn(i32) -> [u8; N],
) -> Result<(), CodecError> {
    let count = planes.len();
    for (nth, plane) in planes.iter().enumerate() {
        let samples = dst.as_chunks_mut::<N>().0.iter_mut().skip(nth).step_by(count);
        if plane.samples.len() < samples.len() {
            return Err(corrupt("a component is smaller than the tile"));
        }
        for (at, sample) in samples.enumerate() {
            *sample = bytes(plane.value(at));
        }
    }
    Ok(())
}

/// Converts YCbCr to RGB. Aperio's compression 33003 has full-range YCbCr, as in JFIF, without a component transform in the stream.
fn to_rgb(planes: &[Plane<'_>], dst: &mut [u8]) -> Result<(), CodecError> {
    let count = planes.len();
    let [luma, blue, red, ..] = planes else { return Err(corrupt("components are missing")) };
    if planes.iter().any(|plane| plane.samples.len() < dst.len() / count) {
        return Err(corrupt("a component is smaller than the tile"));
    }
    for (at, pixel) in dst.chunks_exact_mut(count).enumerate() {
        let (y, cb, cr) = (luma.value(at), blue.value(at) - 128, red.value(at) - 128);
        // Fixed point with 16 fractional bits, rounded: 1.402, 0.344136, 0.714136, 1.772.
        let r = y + ((91_881 * cr + 32_768) >> 16);
        let g = y - ((22_553 * cb + 46_802 * cr + 32_767) >> 16);
        let b = y + ((116_130 * cb + 32_768) >> 16);
        for (sample, value) in pixel.iter_mut().zip([r, g, b]) {
            *sample = value.clamp(0, 255) as u8;
        }
        for (sample, plane) in pixel.iter_mut().zip(planes).skip(3) {
            *sample = plane.value(at) as u8;
        }
    }
    Ok(())
}

/// Returns the code stream of a JP2 file, or the bytes themselves if they are a code stream.
fn code_stream(src: &[u8]) -> Result<&[u8], CodecError> {
    if src.starts_with(&[0xff, 0x4f]) {
        return Ok(src);
    }
    let mut rest = src;
    if !rest.get(4..).is_some_and(|rest| rest.starts_with(b"jP  ")) {
        return Err(corrupt("the tile begins neither with a code stream nor with a JP2 signature"));
    }
    while let Some((head, body)) = rest.split_first_chunk::<8>() {
        let (len, kind) = (u64::from(be32(head, 0)), &head[4..]);
        let (body, len) = match len {
            0 => (body, body.len() as u64),
            1 => match body.split_first_chunk::<8>() {
                Some((long, body)) => (body, u64::from_be_bytes(*long).saturating_sub(16)),
                None => break,
            },
            len => (body, len.saturating_sub(8)),
        };
        let len = usize::try_from(len).unwrap_or(usize::MAX).min(body.len());
        let (content, after) = body.split_at(len);
        if kind == b"jp2c" {
            return Ok(content);
        }
        rest = after;
    }
    Err(corrupt("the JP2 file holds no code stream"))
}

/// Wraps a code stream in the smallest JP2 file that declares sRGB: the decoder does not convert its components.
fn wrap(stream: &[u8]) -> Vec<u8> {
    let mut file = Vec::with_capacity(stream.len() + 77);
    file.extend_from_slice(b"\x00\x00\x00\x0cjP  \x0d\x0a\x87\x0a");
    file.extend_from_slice(b"\x00\x00\x00\x14ftypjp2 \x00\x00\x00\x00jp2 ");
    file.extend_from_slice(b"\x00\x00\x00\x17jp2h\x00\x00\x00\x0fcolr\x01\x00\x00\x00\x00\x00\x10");
    file.extend_from_slice(b"\x00\x00\x00\x00jp2c");
    file.extend_from_slice(stream);
    file
}

fn be32(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |word| u32::from_be_bytes(*word))
}

fn be16(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |word| u16::from_be_bytes(*word))
}

/// A component in the SIZ segment.
#[derive(Debug, PartialEq, Eq)]
struct Component {
    bits: u8,
    signed: bool,
    steps: (u8, u8),
}

/// The SIZ segment of the image, read before anything is allocated and for facts that hayro does not expose.
#[derive(Debug)]
struct Siz {
    /// Bottom right and top left corner of the image on the reference grid.
    corners: [u32; 4],
    /// Size of the code stream's own tiles, and the origin of their grid.
    tiles: [u32; 4],
    components: Vec<Component>,
}

impl Siz {
    fn parse(stream: &[u8]) -> Option<Self> {
        let body = stream.strip_prefix(&[0xff, 0x4f, 0xff, 0x51])?;
        let len = usize::from(be16(body, 0));
        let body = body.get(2..len)?;
        let word = |nth: usize| be32(body, 2 + nth * 4);
        let components: Vec<_> = body
            .get(36..)?
            .as_chunks::<3>()
            .0
            .iter()
            .map(|[depth, x, y]| Component { bits: (depth & 0x7f) + 1, signed: depth & 0x80 != 0, steps: (*x, *y) })
            .collect();
        if components.is_empty() || components.len() != usize::from(be16(body, 34)) {
            return None;
        }
        Some(Self {
            corners: [word(0), word(1), word(2), word(3)],
            tiles: [word(4), word(5), word(6), word(7)],
            components,
        })
    }

    /// Returns the steps that all components share, which only scale the reference grid.
    fn common_steps(&self) -> (u32, u32) {
        match self.components.first() {
            Some(first) if !self.is_subsampled() => (first.steps.0.max(1).into(), first.steps.1.max(1).into()),
            _ => (1, 1),
        }
    }

    fn is_subsampled(&self) -> bool {
        self.components.windows(2).any(|pair| pair[0].steps != pair[1].steps)
    }

    fn size(&self) -> (u64, u64) {
        let [x1, y1, x0, y0] = self.corners;
        let (x, y) = self.common_steps();
        let span = |far: u32, near: u32, step: u32| u64::from(far.div_ceil(step).saturating_sub(near.div_ceil(step)));
        (span(x1, x0, x), span(y1, y0, y))
    }

    fn check(&self, spec: &TileSpec, rows: u32) -> Result<(), CodecError> {
        let (width, height) = self.size();
        if (width, height) != (u64::from(spec.width), u64::from(rows)) {
            return Err(corrupt(format!("the stream is {width} x {height}, the tile {} x {rows}", spec.width)));
        }
        if self.components.len() != usize::from(spec.samples) {
            let detail = format!("{} components for {} samples per pixel", self.components.len(), spec.samples);
            return Err(corrupt(detail));
        }
        let (room, signed) = match spec.sample {
            SampleType::U8 => (8, false),
            SampleType::I8 => (8, true),
            SampleType::U16 => (16, false),
            SampleType::I16 => (16, true),
            SampleType::U32 => (MAX_BITS, false),
            SampleType::I32 => (MAX_BITS, true),
            other => return Err(CodecError::unsupported("JPEG 2000", format!("a tile of {other} samples"))),
        };
        for Component { bits, signed: is_signed, steps } in &self.components {
            if *bits > room || *is_signed != signed || steps.0 == 0 || steps.1 == 0 {
                let kind = if *is_signed { "signed" } else { "unsigned" };
                let detail = format!("a component of {bits} {kind} bits in steps of {steps:?} for {}", spec.sample);
                return Err(CodecError::unsupported("JPEG 2000", detail));
            }
        }
        Ok(())
    }
}

/// Estimates the memory that hayro allocates for a code stream: values and bookkeeping. A header of a few bytes can declare a million
/// code blocks with 65535 quality layers each, all of them allocated in advance.
///
/// # Errors
/// When a header is malformed.
fn decoder_memory(stream: &[u8], siz: &Siz) -> Result<u64, CodecError> {
    /// Bytes per value of a component. hayro keeps the values, and for the current tile also its coefficients, and a copy at half the
    /// resolution with a margin.
    const PER_VALUE: u64 = 4;
    const PER_TILE_VALUE: u64 = 10;
    /// Fixed overhead.
    const BASE: u64 = 1 << 20;
    const PER_TILE_COMPONENT: u64 = 512;
    const PER_LAYER: u64 = 24;
    const PER_BLOCK: u64 = 256;
    let [x1, y1, ..] = siz.corners;
    let [tile_x, tile_y, grid_x, grid_y] = siz.tiles;
    if tile_x == 0 || tile_y == 0 {
        return Err(corrupt("the code stream has tiles of size zero"));
    }
    let tiles = u64::from(x1.saturating_sub(grid_x).div_ceil(tile_x))
        .saturating_mul(u64::from(y1.saturating_sub(grid_y).div_ceil(tile_y)));
    if tiles > 65_535 {
        return Err(corrupt(format!("{tiles} tiles, where a code stream can number 65535")));
    }
    let count = siz.components.len() as u64;
    let (width, height) = siz.size();
    let values = width.saturating_mul(height).saturating_mul(count).saturating_mul(PER_VALUE);
    let seamed = |side: u64, tile: u32| side.min(tile.into()).saturating_add(8);
    let tile_values = seamed(width, tile_x).saturating_mul(seamed(height, tile_y)).saturating_mul(PER_TILE_VALUE);
    let mut worst = 0_u64;
    let mut layers = 1;
    for (marker, body) in headers(stream) {
        // COD: style, progression, layers (2), transform, then as COC. COC: component (1 or 2), style, then levels,
        // width, height, style and transform of blocks, and a byte per resolution where precincts are given.
        let (style, coding) = match marker {
            0x52 => {
                layers = u64::from(be16(body, 2));
                (body.first(), body.get(5..))
            }
            0x53 => {
                let skip = if count < 257 { 1 } else { 2 };
                (body.get(skip), body.get(skip + 1..))
            }
            _ => continue,
        };
        // With an inconsistent length hayro would continue at another position than we do.
        let (Some(style), Some([levels, across, down, _, _, precincts @ ..])) = (style, coding) else {
            return Err(corrupt("COD or COC is too short"));
        };
        if *levels > 32 || precincts.len() != if style & 1 == 0 { 0 } else { usize::from(*levels) + 1 } {
            return Err(corrupt("COD or COC is of another length than its content"));
        }
        let mut blocks = 0_u64;
        for resolution in 0..=*levels {
            let shrunk = |side: u64| (side >> (levels - resolution)) + 1;
            let precinct = precincts.get(usize::from(resolution)).copied().unwrap_or(0xff);
            // Blocks do not cross precincts, which are half as large in the sub-bands above the lowest resolution.
            let half = u32::from(resolution > 0);
            let log_width = (u32::from(across & 15) + 2).min(u32::from(precinct & 15).saturating_sub(half));
            let log_height = (u32::from(down & 15) + 2).min(u32::from(precinct >> 4).saturating_sub(half));
            // Each of three sub-bands may begin and end with a partial block.
            let wide = (shrunk(width.min(tile_x.into())) >> log_width) + 6;
            let high = (shrunk(height.min(tile_y.into())) >> log_height) + 6;
            blocks = blocks.saturating_add(wide.saturating_mul(high).saturating_mul(count));
        }
        worst = worst.max(blocks.saturating_mul(PER_BLOCK + layers.saturating_mul(PER_LAYER)));
    }
    let parts = tiles.saturating_mul(count).saturating_mul(PER_TILE_COMPONENT);
    let kept = [values, tile_values, parts, worst, stream.len() as u64];
    Ok(kept.iter().fold(BASE, |sum, part| sum.saturating_add(*part)))
}

/// The marker segments of the main header and of the headers of tile-parts.
fn headers(stream: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    let mut at = 2;
    let mut part = None;
    std::iter::from_fn(move || {
        loop {
            let (&[0xff, marker], rest) = stream.get(at..)?.split_first_chunk::<2>()? else { return None };
            match marker {
                // SOD: continue at the next tile-part, whose position SOT gave.
                0x93 => at = part.take().filter(|next| *next > at)?,
                0xd9 => return None,
                _ => {
                    let len = usize::from(be16(rest, 0));
                    let body = rest.get(2..len)?;
                    if marker == 0x90 {
                        let whole = be32(body, 2) as usize;
                        part = (whole != 0).then_some(at.saturating_add(whole));
                    }
                    at = at.saturating_add(2 + len);
                    return Some((marker, body));
                }
            }
        }
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::codec::testing::{self, hex, spec};

    /// Written by OpenJPEG, lossless, 6 x 5: 1000 x + 7000 y, and that less 20000 as signed values.
    const UNSIGNED: &str = "\
        ff4fff5100290000000000060000000500000000000000000000000600000005000000000000000000010f0101ff5200 \
        0c00000001000004040001ff5c00044080ff640025000143726561746564206279204f70656e4a504547207665727369 \
        6f6e20322e352e34ff90000a0000000000430001ff93dff89188121cfd64b7ff06aaaa733e865e12dd753f435757642f \
        3857349325ac1ddc85a05e358d7475adb9252c35f141d057533081ffd9 \
        ";
    const SIGNED: &str = "\
        ff4fff5100290000000000060000000500000000000000000000000600000005000000000000000000018f0101ff5200 \
        0c00000001000004040001ff5c00044080ff640025000143726561746564206279204f70656e4a504547207665727369 \
        6f6e20322e352e34ff90000a0000000000410001ff93cffc30bc1282afbf039b77a551b01a304e0928020e4d11b5a4bd \
        c6056ddb3f0f1eda87fbcb99491dfbd399cbac6cd554cc207fffd9 \
        ";
    /// The same size as a JP2 file: red 40 x, green 50 y, blue 10 x y.
    const COLOURS: &str = "\
        0000000c6a5020200d0a870a00000014667479706a703220000000006a7032200000002d6a7032680000001669686472 \
        00000005000000060003070700000000000f636f6c7201000000000010000000dd6a703263ff4fff51002f0000000000 \
        06000000050000000000000000000000060000000500000000000000000003070101070101070101ff52000c00000001 \
        010004040001ff5c00044040ff640025000143726561746564206279204f70656e4a5045472076657273696f6e20322e \
        352e34ff90000a0000000000650001ff93df80e8121cf568c7615da105532fbd498dd9efbdeca95cfa8fb2836c15fa15 \
        a9df80a801430be19e02a2877e98bfce0e7233868dbaba347fdf80e0011585354777c282775d7af09adc78dfd59568dc \
        ff6985f18258055fffd9 \
        ";

    fn run(spec: &TileSpec, rows: u32, stream: &[u8]) -> Result<Vec<u8>, CodecError> {
        let mut dst = vec![0; spec.native_row_len() * rows as usize];
        Jpeg2000.decode(spec, rows, stream, &mut dst, &mut Scratch::default()).map(|_| dst)
    }

    #[test]
    fn sixteen_bits_exactly() {
        let bytes = run(&spec(SampleType::U16, 1, 6), 5, &hex(UNSIGNED)).unwrap();
        let values: Vec<u16> = bytes.as_chunks().0.iter().map(|value| u16::from_ne_bytes(*value)).collect();
        assert_eq!(values, (0..30).map(|at| at % 6 * 1000 + at / 6 * 7000).collect::<Vec<u16>>());
        let bytes = run(&spec(SampleType::I16, 1, 6), 5, &hex(SIGNED)).unwrap();
        let values: Vec<i16> = bytes.as_chunks().0.iter().map(|value| i16::from_ne_bytes(*value)).collect();
        assert_eq!(values, (0..30).map(|at| (at % 6 * 1000 + at / 6 * 7000 - 20_000) as i16).collect::<Vec<i16>>());
    }

    #[test]
    fn components_of_a_jp2_file() {
        let pixels = run(&spec(SampleType::U8, 3, 6), 5, &hex(COLOURS)).unwrap();
        let want: Vec<u8> = (0..30).flat_map(|at| [at % 6 * 40, at / 6 * 50, at % 6 * (at / 6) * 10]).collect();
        assert_eq!(pixels, want);
    }

    /// Three components without any coefficients, the chroma at half the columns: all are in the middle of their range.
    fn subsampled() -> Vec<u8> {
        let mut stream =
            hex("ff4f ff51 002f 0000 00000008 00000008 00000000 00000000 00000008 00000008 00000000 00000000");
        stream.extend(hex("0003 070101 070201 070201 ff52 000c 00 00 0001 00 00 04 04 00 01 ff5c 0004 40 40"));
        stream.extend(hex("ff90 000a 0000 00000011 00 01 ff93 00 00 00 ffd9"));
        stream
    }

    #[test]
    fn subsampled_chroma_is_spread_and_not_taken_for_colour() {
        let mut spec = spec(SampleType::U8, 3, 8);
        assert_eq!(run(&spec, 8, &subsampled()), Ok(vec![128; 192]));
        spec.compression_code = 33003;
        assert_eq!(run(&spec, 8, &subsampled()), Ok(vec![128; 192]));
    }

    #[test]
    fn aperio_ycbcr_becomes_rgb() {
        let component = Component { bits: 8, signed: false, steps: (1, 1) };
        let plane = |samples| Plane { samples, component: &component };
        let mut dst = [0; 9];
        to_rgb(&[plane(&[76.0, 150.0, 29.0]), plane(&[85.0, 44.0, 255.0]), plane(&[255.0, 21.0, 107.0])], &mut dst)
            .unwrap();
        assert_eq!(dst, [254, 0, 0, 0, 255, 1, 0, 0, 254]);
    }

    #[test]
    fn refuses_another_shape() {
        for (sample, samples, width, rows) in [
            (SampleType::U16, 1, 5, 6),
            (SampleType::U16, 1, 6, 4),
            (SampleType::U16, 2, 6, 5),
            (SampleType::I16, 1, 6, 5),
            (SampleType::U8, 1, 6, 5),
            (SampleType::F32, 1, 6, 5),
        ] {
            assert!(
                run(&spec(sample, samples, width), rows, &hex(UNSIGNED)).is_err(),
                "{sample} {samples} {width} {rows}"
            );
        }
    }

    #[test]
    fn refuses_a_stream_that_is_cut_off() {
        let stream = hex(UNSIGNED);
        for len in 0..stream.len() - 2 {
            assert!(run(&spec(SampleType::U16, 1, 6), 5, &stream[..len]).is_err(), "{len}");
        }
    }

    #[test]
    fn refuses_layers_without_end_before_allocating_them() {
        let mut stream = hex(UNSIGNED);
        // Far corner and tile of 4096 x 4096, blocks of 4 x 4, 65535 layers: some 1.6 TB of book-keeping.
        for at in [8, 12, 24, 28] {
            stream[at..at + 4].copy_from_slice(&4096_u32.to_be_bytes());
        }
        let cod = stream.windows(2).position(|pair| pair == [0xff, 0x52]).unwrap();
        stream[cod + 6..cod + 8].copy_from_slice(&[0xff, 0xff]);
        stream[cod + 10..cod + 12].copy_from_slice(&[0, 0]);
        let error = run(&spec(SampleType::U16, 1, 4096), 4096, &stream);
        assert!(matches!(error, Err(CodecError::Limit { .. })), "{:?}", error.map(|_| ()));
    }

    #[test]
    fn survives_damage() {
        testing::damage(&Jpeg2000, &spec(SampleType::U16, 1, 6), 5, &hex(UNSIGNED));
        testing::damage(&Jpeg2000, &spec(SampleType::U8, 3, 6), 5, &hex(COLOURS));
        testing::damage(&Jpeg2000, &spec(SampleType::U8, 3, 8), 8, &subsampled());
    }
}
