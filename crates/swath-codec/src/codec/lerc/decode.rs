//! Decodes LERC by the rules of libtiff's reader.
//!
//! A tile is one blob whose values per pixel are the samples. Float tiles with a mask per sample are one blob per sample. A
//! pixel that the mask excludes is NaN in a float tile. In a tile of bytes whose blob lacks only the alpha sample, the mask is
//! that sample.
//!
//! [`fast`] and [`huffman`](super::huffman) decode what GDAL writes. Rarer blobs go to lerc-rs, which is also the oracle in tests.

use lerc::Sample;
use swath_raster::memory::{collect, zeroed};
use swath_tiff::SampleType;

use super::{
    Lerc, NAME, data_type, fast,
    header::{Header, MAGIC},
    mask::Mask,
};
use crate::{
    codec::{deflate, zstd},
    decode::{Decode, Fill, Form},
    error::CodecError,
    scratch::{Scratch, take},
    spec::TileSpec,
    working::Working,
};

/// ExtraSamples: alpha that is not premultiplied.
pub(super) const UNASSOCIATED: u16 = 2;

impl Decode for Lerc {
    fn form(&self, _spec: &TileSpec) -> Form {
        Form::Native
    }

    fn decode(
        &self,
        spec: &TileSpec,
        rows: u32,
        src: &[u8],
        dst: &mut [u8],
        scratch: &mut Scratch,
    ) -> Result<Fill, CodecError> {
        let additional = spec.lerc.get(1).copied().unwrap_or(0);
        if additional == 0 {
            return decode(spec, rows, src, dst);
        }
        // The margin that libtiff allows a blob over the bare samples, and some bytes for tiny tiles.
        let mut between = take(&mut scratch.between, dst.len() + dst.len() / 3 + 1024)?;
        let unpacked = match additional {
            1 => deflate::inflater(scratch)?
                .zlib_decompress(src, &mut between)
                .map_err(|error| corrupt(format!("in the compression around the blob: {error}"))),
            2 => {
                zstd::context(scratch)?.decompress(&mut between[..], src).map_err(|code| match zstd::is_memory(code) {
                    true => CodecError::LibraryMemory { codec: NAME },
                    false => {
                        corrupt(format!("in the compression around the blob: {}", zstd_safe::get_error_name(code)))
                    }
                })
            }
            other => Err(corrupt(format!("additional compression {other} around the blob is unknown"))),
        };
        let result = unpacked.and_then(|len| decode(spec, rows, between.get(..len).unwrap_or_default(), dst));
        scratch.between = between;
        result
    }
}

fn corrupt(detail: impl Into<String>) -> CodecError {
    CodecError::corrupt(NAME, detail)
}

fn decode(spec: &TileSpec, rows: u32, src: &[u8], dst: &mut [u8]) -> Result<Fill, CodecError> {
    let data_type = data_type(spec)?;
    if src.starts_with(b"CntZImage ") {
        return first_generation(spec, rows, src, dst);
    }
    let header = Header::parse(src).map_err(corrupt)?;
    if header.kind != data_type as u32 {
        return Err(corrupt(format!("the blob is of data type {}, the tile {}", header.kind, spec.sample)));
    }
    if (header.cols, header.rows) != (spec.width as usize, rows as usize) {
        let detail = format!("the blob is {} x {}, the tile {} x {rows}", header.cols, header.rows, spec.width);
        return Err(corrupt(detail));
    }
    let samples = usize::from(spec.samples);
    let pixels = header.cols * header.rows;
    let shape = (header.depth, header.more + 1);
    if shape == (samples, 1) || samples == 1 {
        // Before version 6 a header does not hold the number of blobs.
        let (masks, used) = bands(spec, src, &header, header.depth, 1, dst)?;
        if header.depth != samples || src.get(used..).unwrap_or_default().starts_with(MAGIC) {
            return Err(corrupt(format!(
                "{} values per pixel, or several bands, for a tile of one sample",
                header.depth
            )));
        }
        if spec.sample.is_float() {
            for mask in &masks {
                put_nan(spec.sample, mask, samples, dst);
            }
        }
        return Ok(fill(used, src));
    }
    if spec.sample.is_float() && header.depth == 1 {
        let mut planes = zeroed(dst.len())?;
        let (masks, used) = bands(spec, src, &header, 1, samples, &mut planes)?;
        let size = spec.sample.size();
        for ((nth, plane), mask) in planes.chunks_exact_mut(pixels * size).enumerate().zip(&masks) {
            put_nan(spec.sample, mask, 1, plane);
            let values = plane.chunks_exact(size);
            for (sample, value) in dst.chunks_exact_mut(size).skip(nth).step_by(samples).zip(values) {
                sample.copy_from_slice(value);
            }
        }
        return Ok(fill(used, src));
    }
    if spec.sample == SampleType::U8 && shape == (samples - 1, 1) && spec.extra_samples.last() == Some(&UNASSOCIATED) {
        let mut colours = zeroed(pixels * header.depth)?;
        let (masks, used) = bands(spec, src, &header, header.depth, 1, &mut colours)?;
        let mask = masks.first().unwrap_or(&Mask::All);
        for (at, (pixel, colour)) in dst.chunks_exact_mut(samples).zip(colours.chunks_exact(header.depth)).enumerate() {
            if let Some((alpha, colours)) = pixel.split_last_mut() {
                colours.copy_from_slice(colour);
                *alpha = if mask.has(at) { 255 } else { 0 };
            }
        }
        return Ok(fill(used, src));
    }
    Err(corrupt(format!("{} values in {} bands for {samples} samples per pixel", shape.0, shape.1)))
}

fn fill(used: usize, src: &[u8]) -> Fill {
    if used < src.len() { Fill::Surplus } else { Fill::Exact }
}

/// Decodes `count` consecutive blobs, one per band, and returns their masks and total length.
fn bands(
    spec: &TileSpec,
    src: &[u8],
    header: &Header,
    depth: usize,
    count: usize,
    out: &mut [u8],
) -> Result<(Vec<Mask>, usize), CodecError> {
    let pixels = header.cols * header.rows;
    let band = pixels
        .checked_mul(depth)
        .and_then(|values| values.checked_mul(spec.sample.size()))
        .filter(|band| band.checked_mul(count) == Some(out.len()))
        .ok_or_else(|| corrupt(format!("{depth} values per pixel for {} samples", spec.samples)))?;
    let mut masks = Vec::new();
    masks.try_reserve_exact(count).map_err(|_| CodecError::NoMemory((count * size_of::<Mask>()) as u64))?;
    let mut used = 0;
    for out in out.chunks_exact_mut(band.max(1)) {
        let rest = src.get(used..).unwrap_or_default();
        let next = Header::parse(rest).map_err(corrupt)?;
        if (next.cols, next.rows, next.depth, next.kind) != (header.cols, header.rows, depth, header.kind) {
            return Err(corrupt("one band differs from the first in its shape"));
        }
        let blob = rest.get(..next.blob_len).ok_or_else(|| corrupt(format!("the blob is cut off at {}", src.len())))?;
        used += next.blob_len;
        match fast::decode(blob, &next, masks.last(), out)? {
            Some(mask) => masks.push(mask),
            None => masks.push(by_library(spec, blob, &next, out)?),
        }
    }
    Ok((masks, used))
}

/// Reserves the memory that lerc-rs takes for a blob of `len` bytes with `decoded` bytes of values: the values twice, the bytes of
/// floats, a mask and tables. The library ends the process where it gets none.
fn library_memory(spec: &TileSpec, len: usize, decoded: usize) -> Result<Working, CodecError> {
    let need = (decoded as u64).saturating_mul(4).saturating_add(256 << 10);
    Working::reserve(NAME, need..=need, spec, len)
}

/// Decodes with lerc-rs what [`fast`] does not support: lossless floats of version 6, differences between samples, version 2.
fn by_library(spec: &TileSpec, blob: &[u8], header: &Header, out: &mut [u8]) -> Result<Mask, CodecError> {
    // lerc-rs reuses the mask of the previous band only when it decodes both.
    if header.shares_mask(blob) {
        return Err(CodecError::unsupported(
            NAME,
            "a band that shares the mask of the band before it, in this encoding",
        ));
    }
    match spec.sample {
        SampleType::I8 => library::<i8, 1>(spec, blob, out, i8::to_ne_bytes),
        SampleType::U8 => library::<u8, 1>(spec, blob, out, u8::to_ne_bytes),
        SampleType::I16 => library::<i16, 2>(spec, blob, out, i16::to_ne_bytes),
        SampleType::U16 => library::<u16, 2>(spec, blob, out, u16::to_ne_bytes),
        SampleType::I32 => library::<i32, 4>(spec, blob, out, i32::to_ne_bytes),
        SampleType::U32 => library::<u32, 4>(spec, blob, out, u32::to_ne_bytes),
        SampleType::F32 => library::<f32, 4>(spec, blob, out, f32::to_ne_bytes),
        _ => library::<f64, 8>(spec, blob, out, f64::to_ne_bytes),
    }
}

fn library<T: Sample, const N: usize>(
    spec: &TileSpec,
    blob: &[u8],
    out: &mut [u8],
    bytes: fn(T) -> [u8; N],
) -> Result<Mask, CodecError> {
    let _working = library_memory(spec, blob.len(), out.len())?;
    let mut values = zeroed::<T>(out.len() / N)?;
    let decoded = lerc::decode_into(blob, &mut values).map_err(|error| corrupt(error.to_string()))?;
    for (out, value) in out.as_chunks_mut::<N>().0.iter_mut().zip(values) {
        *out = bytes(value);
    }
    Ok(match decoded.valid_masks.first() {
        Some(mask) if !mask.is_all_valid() => match mask.as_bytes() {
            Some(bits) => Mask::Some(collect(bits.iter().copied())?),
            None => Mask::All,
        },
        _ => Mask::All,
    })
}

/// Decodes LERC1, which has only `f32` with one value per pixel.
fn first_generation(spec: &TileSpec, rows: u32, src: &[u8], dst: &mut [u8]) -> Result<Fill, CodecError> {
    let info = lerc::decode_info(src).map_err(|error| corrupt(error.to_string()))?;
    if (info.width, info.height, info.depth, info.bands) != (spec.width, rows, 1, 1)
        || spec.sample != SampleType::F32
        || spec.samples != 1
    {
        let detail = format!("a LERC1 blob of {} x {} floats does not fit the tile", info.width, info.height);
        return Err(corrupt(detail));
    }
    let _working = library_memory(spec, src.len(), dst.len())?;
    let image = lerc::decode(src).map_err(|error| corrupt(error.to_string()))?;
    let values = image.as_typed::<f32>().unwrap_or_default();
    if values.len() * 4 != dst.len() {
        return Err(corrupt("a LERC1 blob of another size than its header says"));
    }
    for (at, (out, value)) in dst.as_chunks_mut::<4>().0.iter_mut().zip(values).enumerate() {
        let valid = image.valid_masks.first().is_none_or(|mask| mask.is_valid(at));
        *out = if valid { *value } else { NAN }.to_ne_bytes();
    }
    Ok(Fill::Exact)
}

/// The NaN that libtiff writes for masked pixels.
pub(super) const NAN: f32 = f32::from_bits(0x7fc0_0000);

/// Writes NaN to the masked pixels.
fn put_nan(sample: SampleType, mask: &Mask, samples: usize, dst: &mut [u8]) {
    let Mask::Some(bits) = mask else { return };
    let nan = if sample == SampleType::F32 { &NAN.to_ne_bytes()[..] } else { &f64::from(NAN).to_ne_bytes()[..] };
    let pixel_len = nan.len() * samples;
    for (pixels, byte) in dst.chunks_mut(8 * pixel_len).zip(bits) {
        if *byte == 0xff {
            continue;
        }
        for (nth, pixel) in pixels.chunks_exact_mut(pixel_len).enumerate() {
            if byte << nth & 0x80 == 0 {
                for value in pixel.chunks_exact_mut(nan.len()) {
                    value.copy_from_slice(nan);
                }
            }
        }
    }
}
