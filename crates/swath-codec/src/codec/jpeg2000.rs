//! JPEG 2000 in each tile (compressions 34712, and 33003 and 33005 of Aperio).
//!
//! What comes out are the component values of the code stream, after its own component transform and nothing else:
//! palettes and colour profiles of a JP2 file around it are not applied, for the TIFF around that says what samples mean.
//!
//! hayro-jpeg2000 computes in `f32`, in which the reversible transform is exact as long as its intermediate values stay
//! below 2^24. That is the case for components of up to 20 bits with some room to spare.

use hayro_jpeg2000::{DecodeSettings, DecoderContext, Image};
use swath_tiff::SampleType;

use crate::{
    decode::{Decode, Fill, Form},
    error::CodecError,
    scratch::Scratch,
    spec::TileSpec,
};

/// The most bits of a component whose lossless decoding is known to be exact.
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
        check_appetite(stream, &siz)?;
        // Left to itself, hayro takes subsampled chroma without a JP2 around it for sYCC and makes RGB of it.
        let wrapped = siz.is_subsampled().then(|| wrap(stream));
        // Strict, as OpenJPEG is for GDAL: a cut off stream is an error, not a blurred tile.
        let settings = DecodeSettings { resolve_palette_indices: false, strict: true, target_resolution: None };
        let image = Image::new(wrapped.as_deref().unwrap_or(stream), &settings).map_err(|error| corrupt(&error))?;
        if (u64::from(image.width()), u64::from(image.height())) != siz.size() {
            return Err(corrupt("two sizes for one code stream"));
        }
        let mut context = DecoderContext::default();
        let decoded = image.decode(&mut context).map_err(|error| corrupt(&error))?;
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
        Ok(if siz.size().1 > u64::from(rows) { Fill::Surplus } else { Fill::Exact })
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
    /// hayro adds half the range to every component; a signed one has it taken off again. The bounds are those of the
    /// component's bits, which lossy coding overshoots. Ties go to even as in OpenJPEG.
    fn value(&self, at: usize) -> i32 {
        let bits = u32::from(self.component.bits);
        let value = self.samples.get(at).map_or(0, |value| value.round_ties_even() as i32);
        value.clamp(0, (1 << bits) - 1) - if self.component.signed { 1 << (bits - 1) } else { 0 }
    }
}

fn interleave<const N: usize>(planes: &[Plane<'_>], dst: &mut [u8], bytes: fn(i32) -> [u8; N]) -> Result<(), CodecError> {
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

/// Aperio's 33003 holds YCbCr outside of the code stream's own component transform. Full range, as in JFIF.
fn to_rgb(planes: &[Plane<'_>], dst: &mut [u8]) -> Result<(), CodecError> {
    let count = planes.len();
    let [luma, blue, red, ..] = planes else { return Err(corrupt("components are missing")) };
    if planes.iter().any(|plane| plane.samples.len() < dst.len() / count) {
        return Err(corrupt("a component is smaller than the tile"));
    }
    for (at, pixel) in dst.chunks_exact_mut(count).enumerate() {
        let (y, cb, cr) = (luma.value(at), blue.value(at) - 128, red.value(at) - 128);
        // 16 bits behind the point, rounded: 1.402, 0.344136, 0.714136, 1.772.
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

/// The code stream of a JP2 file, or the bytes themselves where they are one.
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

/// A code stream in the smallest JP2 file that says its components are not to be transformed.
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

/// What the SIZ segment says of a component.
#[derive(Debug, PartialEq, Eq)]
struct Component {
    bits: u8,
    signed: bool,
    steps: (u8, u8),
}

/// What the SIZ segment says of the image: read before anything is allocated, and for what hayro does not tell.
#[derive(Debug)]
struct Siz {
    /// Far corner and near corner of the image on the reference grid.
    corners: [u32; 4],
    /// Size of the code stream's own tiles, and where their grid begins.
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
        Some(Self { corners: [word(0), word(1), word(2), word(3)], tiles: [word(4), word(5), word(6), word(7)], components })
    }

    /// Steps that all components share, which only scale the reference grid.
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
        // A last strip may hold more rows than the image has left.
        if width != u64::from(spec.width) || height < u64::from(rows) {
            return Err(corrupt(format!("the stream is {width} x {height}, the tile {} x {rows}", spec.width)));
        }
        let asked = width
            .saturating_mul(height)
            .saturating_mul(u64::from(spec.samples))
            .saturating_mul(spec.sample.size() as u64);
        if asked > spec.max_tile_bytes {
            return Err(CodecError::Limit { codec: "JPEG 2000", asked, allowed: spec.max_tile_bytes });
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
        for Component { bits, signed: minus, steps } in &self.components {
            if *bits > room || *minus != signed || steps.0 == 0 || steps.1 == 0 {
                let kind = if *minus { "signed" } else { "unsigned" };
                let detail = format!("a component of {bits} {kind} bits in steps of {steps:?} for {}", spec.sample);
                return Err(CodecError::unsupported("JPEG 2000", detail));
            }
        }
        Ok(())
    }
}

/// Adds up the book-keeping a code stream asks for besides its samples, and refuses to pay for absurd amounts of it: a
/// few bytes of header can ask for a million code blocks with 65535 quality layers each, all of them allocated ahead.
fn check_appetite(stream: &[u8], siz: &Siz) -> Result<(), CodecError> {
    const PER_TILE_COMPONENT: u64 = 512;
    const PER_LAYER: u64 = 24;
    const PER_BLOCK: u64 = 256;
    let [x1, y1, ..] = siz.corners;
    let [tile_x, tile_y, grid_x, grid_y] = siz.tiles;
    if tile_x == 0 || tile_y == 0 {
        return Err(corrupt("tiles without size"));
    }
    let tiles = u64::from(x1.saturating_sub(grid_x).div_ceil(tile_x))
        .saturating_mul(u64::from(y1.saturating_sub(grid_y).div_ceil(tile_y)));
    if tiles > 65_535 {
        return Err(corrupt(format!("{tiles} tiles, where a code stream can number 65535")));
    }
    let count = siz.components.len() as u64;
    let (width, height) = siz.size();
    let tile_area = width.min(tile_x.into()).saturating_mul(height.min(tile_y.into())).saturating_mul(count);
    let allowed = width.saturating_mul(height).saturating_mul(count).saturating_mul(64).max(256 << 20);
    let mut asked = tiles.saturating_mul(count).saturating_mul(PER_TILE_COMPONENT);
    let mut worst = 0;
    let mut layers = 1;
    for (marker, body) in headers(stream) {
        // COD: style, progression, layers (2), transform, then as COC. COC: component (1 or 2), style, then levels,
        // width, height, style and transform of blocks, and a byte per resolution where precincts are given.
        let (style, coding) = match marker {
            0x52 => {
                layers = u64::from(be16(body, 1));
                (body.first(), body.get(5..))
            }
            0x53 => {
                let skip = if count < 257 { 1 } else { 2 };
                (body.get(skip), body.get(skip + 1..))
            }
            _ => continue,
        };
        let (Some(style), Some([levels, across, down, _, _, precincts @ ..])) = (style, coding) else { continue };
        let mut side = [u32::from(across & 15) + 2, u32::from(down & 15) + 2];
        if style & 1 != 0 {
            for precinct in precincts {
                // Blocks do not reach over precincts, which above the lowest resolution count half in a sub-band.
                side[0] = side[0].min(u32::from(precinct & 15).saturating_sub(1));
                side[1] = side[1].min(u32::from(precinct >> 4).saturating_sub(1));
            }
        }
        // Every sub-band may begin and end with a part of a block.
        let whole = tile_area >> (side[0] + side[1]).min(63);
        let edges = (width.min(tile_x.into()) >> side[0].min(31)) + (height.min(tile_y.into()) >> side[1].min(31)) + 4;
        let blocks = whole.saturating_add(edges.saturating_mul(2 * count)).saturating_add(u64::from(*levels) * 16 * count);
        worst = worst.max(blocks.saturating_mul(PER_BLOCK + layers.saturating_mul(PER_LAYER)));
    }
    asked = asked.saturating_add(worst);
    if asked > allowed {
        return Err(CodecError::Limit { codec: "JPEG 2000", asked, allowed });
    }
    Ok(())
}

/// The marker segments of the main header and of the headers of tile-parts.
fn headers(stream: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    let mut at = 2;
    let mut part = None;
    std::iter::from_fn(move || {
        loop {
            let (&[0xff, marker], rest) = stream.get(at..)?.split_first_chunk::<2>()? else { return None };
            match marker {
                // SOD: on to the next tile-part, which SOT said where to find.
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
