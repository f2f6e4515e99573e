//! Encodes LERC by the rules of libtiff's writer.
//!
//! A tile is one blob whose values per pixel are the samples. Where only some samples of a pixel are NaN, a mask of pixels cannot
//! express that, and the tile becomes one blob per sample.
//!
//! [`blocks`] encodes integers of more than a byte and lossless floats, in version 4 like GDAL, or in version 5, which has
//! differences between samples. lerc-rs encodes bytes, which may use Huffman codes, floats with a tolerance, and lossless floats
//! where LercParameters say version 6, which readers older than 2022 do not support. Values that do not compress are stored.

use std::sync::Arc;

use bytemuck::Pod;
use lerc::{Image, Precision, Sample, bitmask::BitMask, checksum::fletcher32};
use swath_raster::memory::{OutOfMemory, collect, is_available, zeroed};
use swath_tiff::SampleType;

use super::{
    NAME,
    blocks::{self, Blocks},
    data_type,
    header::MAGIC,
};
use crate::{
    codec::{deflate, zstd},
    decode::Form,
    encode::{Encode, LercWrap, Settings, TABLES, reserve},
    error::CodecError,
    scratch::Scratch,
    spec::TileSpec,
};

/// The version that compresses lossless floats.
const EXACT_FLOATS: u32 = 6;

/// Bytes that lerc-rs takes for each byte of values, at most: copies of the values, the parts of floats, and the blob.
const WORKING: u64 = 12;

/// LERC with one tolerance.
#[derive(Debug, Clone, Copy)]
struct Encoder {
    /// Whether lossless floats may use version 6.
    newest: bool,
    max_z_error: f64,
    wrap: LercWrap,
    /// Level of the compression around the blob.
    level: u32,
}

/// Creates an encoder with the tolerance `settings.max_z_error`, wrapped in `settings.lerc_wrap` at `settings.level`.
///
/// # Errors
/// When LERC does not support the samples, the tolerance is negative, the level is out of range, or LercParameters name another
/// compression around the blob.
pub fn encoder(spec: &TileSpec, settings: &Settings) -> Result<Arc<dyn Encode>, CodecError> {
    data_type(spec)?;
    if !(settings.max_z_error.is_finite() && settings.max_z_error >= 0.0) {
        let detail = format!("an error of {} (it is 0 or more)", settings.max_z_error);
        return Err(CodecError::encode(NAME, detail));
    }
    let (number, level) = match settings.lerc_wrap {
        LercWrap::None => (0, 0),
        LercWrap::Deflate => (1, deflate::level(settings)?),
        LercWrap::Zstd => (2, zstd::level(settings)?),
    };
    if let Some(other) = spec.lerc.get(1).filter(|other| **other != number) {
        let detail = format!("LercParameters state compression {other} around the blob, but it is {number}");
        return Err(CodecError::encode(NAME, detail));
    }
    let newest = spec.lerc.first().is_some_and(|version| *version >= EXACT_FLOATS);
    Ok(Arc::new(Encoder { newest, max_z_error: settings.max_z_error, wrap: settings.lerc_wrap, level }))
}

impl Encode for Encoder {
    fn form(&self) -> Form {
        Form::Native
    }

    /// The worst case is a stored blob: a header, a mask, the ranges of the samples, and the samples; once per sample where samples
    /// have separate masks.
    fn max_encoded_len(&self, spec: &TileSpec, rows: u32) -> usize {
        let pixels = spec.width as usize * rows as usize;
        let mask = pixels / 8 + pixels / 8 / 0x4000 + 16;
        let blob = spec.native_row_len() * rows as usize
            + usize::from(spec.samples) * (HEADER_LEN + 8 + mask + 2 * spec.sample.size());
        match self.wrap {
            LercWrap::None => blob,
            LercWrap::Deflate => deflate::bound(blob),
            LercWrap::Zstd => zstd::bound(blob),
        }
    }

    /// The blob before it is compressed again, and the planes of lerc-rs.
    fn working_len(&self, spec: &TileSpec, rows: u32) -> usize {
        let len = spec.native_row_len() * rows as usize;
        let wrap = match self.wrap {
            LercWrap::None => 0,
            LercWrap::Deflate => deflate::working_len(self.level),
            LercWrap::Zstd => zstd::working_len(self.level, len),
        };
        len.saturating_mul(2).saturating_add(wrap).saturating_add(TABLES)
    }

    fn encode(
        &self,
        spec: &TileSpec,
        rows: u32,
        src: &[u8],
        dst: &mut Vec<u8>,
        scratch: &mut Scratch,
    ) -> Result<(), CodecError> {
        if src.is_empty() || src.len() != spec.native_row_len() * rows as usize {
            return Err(CodecError::encode(NAME, "internal error: the tile has the wrong length"));
        }
        let blob = match spec.sample {
            SampleType::I8 => self.blob(spec, rows, samples::<i8>(src)?, |_| false),
            SampleType::U8 => self.blob(spec, rows, samples::<u8>(src)?, |_| false),
            SampleType::I16 => self.blob(spec, rows, samples::<i16>(src)?, |_| false),
            SampleType::U16 => self.blob(spec, rows, samples::<u16>(src)?, |_| false),
            SampleType::I32 => self.blob(spec, rows, samples::<i32>(src)?, |_| false),
            SampleType::U32 => self.blob(spec, rows, samples::<u32>(src)?, |_| false),
            SampleType::F32 => self.blob(spec, rows, samples::<f32>(src)?, f32::is_nan),
            SampleType::F64 => self.blob(spec, rows, samples::<f64>(src)?, f64::is_nan),
            _ => return Err(CodecError::unsupported(NAME, format!("a tile of {}", spec.sample))),
        }?;
        match self.wrap {
            LercWrap::None => {
                reserve(dst, blob.len())?;
                dst.extend_from_slice(&blob);
                Ok(())
            }
            LercWrap::Deflate => deflate::compress(self.level, &blob, dst, scratch),
            // Stored floats compress like any other tile. Steps of few bits repeat at long distances or not at all, which a sample
            // is too short to show: choosing by sample lost up to 15 % against the level.
            LercWrap::Zstd if spec.sample.is_float() && self.max_z_error == 0.0 => {
                zstd::compress(self.level, &blob, dst, scratch)
            }
            LercWrap::Zstd => zstd::compress_at(self.level, &blob, dst, scratch),
        }
    }
}

fn samples<T: Pod + Default>(src: &[u8]) -> Result<Vec<T>, OutOfMemory> {
    let mut values = zeroed(src.len() / size_of::<T>())?;
    if let Some(src) = src.get(..values.len() * size_of::<T>()) {
        bytemuck::cast_slice_mut::<T, u8>(&mut values).copy_from_slice(src);
    }
    Ok(values)
}

/// Which pixels of a tile have values.
enum Masks {
    /// All of them.
    None,
    /// These pixels, with all of their samples.
    One(Vec<u8>),
    /// Some pixels have values for some samples only.
    PerSample,
}

impl Encoder {
    fn blob<T: Sample + Pod>(
        &self,
        spec: &TileSpec,
        rows: u32,
        values: Vec<T>,
        lacks: fn(T) -> bool,
    ) -> Result<Vec<u8>, CodecError> {
        let depth = usize::from(spec.samples);
        let size = (spec.width, rows);
        match masks(&values, depth, lacks)? {
            Masks::None => self.band(size, depth, values, None),
            Masks::One(mask) => self.band(size, depth, values, Some(&mask)),
            Masks::PerSample => {
                let mut blobs = Vec::new();
                for nth in 0..depth {
                    let plane = collect(values.iter().skip(nth).step_by(depth).copied())?;
                    let mask = collect(plane.chunks(8).map(|pixels| bits(pixels.iter().map(|value| !lacks(*value)))))?;
                    // One by one, because lerc-rs derives the precision of all bands from the first.
                    let blob = self.band(size, 1, plane, Some(&mask))?;
                    reserve(&mut blobs, blob.len())?;
                    blobs.extend_from_slice(&blob);
                }
                Ok(blobs)
            }
        }
    }

    /// Encodes a band of `depth` values per pixel.
    fn band<T: Sample + Pod>(
        &self,
        (width, rows): (u32, u32),
        depth: usize,
        values: Vec<T>,
        mask: Option<&[u8]>,
    ) -> Result<Vec<u8>, CodecError> {
        let stored = Stored::new((width, rows), depth, &values, mask)?;
        let exact_floats = !T::is_integer() && self.max_z_error == 0.0;
        // The library's steps between whole numbers have no place for an infinity.
        if stored.is_infinite || exact_floats && !self.newest {
            return stored.blob(&values, 0.0);
        }
        let mut tolerance = self.max_z_error;
        if T::is_integer() {
            tolerance = tolerance.floor().max(0.5);
            // lerc-rs treats the tolerance 777 as a special request.
            if tolerance == 777.0 {
                tolerance = 777.5;
            }
            // Only lossless bytes can use Huffman codes, which lerc-rs has and this encoder has not.
            if T::BYTES > 1 || tolerance > 0.5 {
                return stored.blob(&values, tolerance);
            }
        }
        let pixels = width as usize * rows as usize;
        // The library ends the process where it gets no memory, so this asks first.
        let need = (size_of_val(&values[..]) as u64).saturating_mul(WORKING).saturating_add(1 << 20);
        if !is_available(need) {
            return Err(CodecError::NoMemory(need));
        }
        let mask = match mask {
            Some(mask) => BitMask::from_bytes(collect(mask.iter().copied())?, pixels),
            None => BitMask::all_valid(pixels),
        };
        let image = Image {
            width,
            height: rows,
            depth: depth as u32,
            bands: 1,
            data_type: T::DATA_TYPE,
            valid_masks: vec![mask],
            data: T::into_lerc_data(values),
            no_data_value: None,
        };
        let blob = lerc::encode(&image, Precision::Tolerance(tolerance))
            .map_err(|error| CodecError::encode(NAME, error.to_string()))?;
        let Some(values) = image.as_typed::<T>() else { return Ok(blob) };
        // Our blocks beat lerc-rs on bytes that are noisy in places. For floats they are tried only where the blob of lerc-rs is
        // longer than stored values.
        if T::is_integer() || blob.len() > stored.len(values) {
            let own = stored.blob(values, tolerance)?;
            if own.len() < blob.len() {
                return Ok(own);
            }
        }
        Ok(blob)
    }
}

fn masks<T: Copy>(values: &[T], depth: usize, lacks: fn(T) -> bool) -> Result<Masks, CodecError> {
    if !values.iter().any(|value| lacks(*value)) {
        return Ok(Masks::None);
    }
    let mut mask = Vec::new();
    reserve(&mut mask, values.len() / depth / 8 + 1)?;
    for pixels in values.chunks(8 * depth) {
        let mut mixed = false;
        let byte = bits(pixels.chunks(depth).map(|pixel| {
            let missing = pixel.iter().filter(|value| lacks(**value)).count();
            mixed |= missing != 0 && missing != depth;
            missing == 0
        }));
        if mixed {
            return Ok(Masks::PerSample);
        }
        mask.push(byte);
    }
    Ok(Masks::One(mask))
}

/// Packs up to eight bits, the highest first.
fn bits(set: impl Iterator<Item = bool>) -> u8 {
    set.zip((0..8).rev()).fold(0, |byte, (set, at)| byte | u8::from(set) << at)
}

/// Length of a header of version 4.
const HEADER_LEN: usize = 66;
/// Offset of the block side in the header.
const SIDE_AT: usize = 30;

/// Writes a blob in blocks, or with stored values where that is shorter.
struct Stored<'a> {
    size: (u32, u32),
    depth: usize,
    /// `None` where all pixels have values.
    mask: Option<&'a [u8]>,
    valid: usize,
    /// Smallest and largest value of each sample.
    ranges: Vec<(f64, f64)>,
    is_infinite: bool,
}

impl Stored<'_> {
    fn new<'a, T: Sample>(
        size: (u32, u32),
        depth: usize,
        values: &[T],
        mask: Option<&'a [u8]>,
    ) -> Result<Stored<'a>, CodecError> {
        let pixels = size.0 as usize * size.1 as usize;
        let valid = mask.map_or(pixels, |mask| mask.iter().map(|byte| byte.count_ones() as usize).sum());
        let mut ranges = collect((0..depth).map(|_| (f64::INFINITY, f64::NEG_INFINITY)))?;
        for pixel in values.chunks_exact(depth) {
            for (value, (least, most)) in pixel.iter().zip(&mut ranges) {
                // Both comparisons are false for NaN.
                let value = value.to_f64();
                if value < *least {
                    *least = value;
                }
                if value > *most {
                    *most = value;
                }
            }
        }
        let is_infinite = valid > 0 && ranges.iter().any(|(least, most)| least.is_infinite() || most.is_infinite());
        if valid == 0 {
            ranges.fill((0.0, 0.0));
        } else if ranges.iter().all(|range| *range == (0.0, 0.0)) && has_both_zeros(values) {
            // Readers treat a range of zero as one value everywhere, which would lose the signs of zeros. So the range is enlarged
            // by the smallest number.
            ranges.fill((-0.0, T::from_bits_u64(1).to_f64()));
        }
        Ok(Stored { size, depth, mask: mask.filter(|_| valid < pixels), valid, ranges, is_infinite })
    }

    /// Returns the length of the blob with stored values, or a few bytes more.
    fn len<T: Sample>(&self, values: &[T]) -> usize {
        let mask = self.mask.map_or(0, |mask| mask.len() + mask.len() / 0x4000 + 8);
        HEADER_LEN + 4 + mask + 2 * self.depth * T::BYTES + 1 + values.len() * T::BYTES
    }

    fn blob<T: Sample + Pod>(&self, values: &[T], max_error: f64) -> Result<Vec<u8>, CodecError> {
        let mut blob = Vec::new();
        reserve(&mut blob, self.len(values))?;
        let range = self.ranges.iter().copied().reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))).unwrap_or_default();
        let (width, rows) = self.size;
        let differences = self.depth > 1 && T::is_integer() && max_error == 0.5;
        blob.extend_from_slice(MAGIC);
        // Checksum and length are filled in at the end.
        let side = blocks::SIDES[0] as u32;
        for word in [4, 0, rows, width, self.depth as u32, self.valid as u32, side, 0, T::DATA_TYPE as u32] {
            blob.extend_from_slice(&word.to_le_bytes());
        }
        for number in [max_error, range.0, range.1] {
            blob.extend_from_slice(&number.to_le_bytes());
        }
        let mask = match self.mask {
            Some(mask) if self.valid > 0 => run_lengths(mask)?,
            _ => Vec::new(),
        };
        blob.extend_from_slice(&(mask.len() as u32).to_le_bytes());
        blob.extend_from_slice(&mask);
        if self.valid > 0 && range.0 != range.1 {
            for (least, _) in &self.ranges {
                T::from_f64(*least).extend_le_bytes(&mut blob);
            }
            for (_, most) in &self.ranges {
                T::from_f64(*most).extend_le_bytes(&mut blob);
            }
            if self.ranges.iter().any(|(least, most)| least != most) {
                let blocks = Blocks {
                    cols: width as usize,
                    rows: rows as usize,
                    depth: self.depth,
                    values,
                    mask: self.mask,
                    max_error,
                    differences,
                };
                self.body(&blocks, &mut blob)?;
            }
        }
        let len = blob.len() as u32;
        put(&mut blob, 34, len);
        let sum = fletcher32(blob.get(14..).unwrap_or_default());
        put(&mut blob, 10, sum);
        Ok(blob)
    }

    /// Writes the values after a byte for their encoding.
    fn body<T: Sample + Pod>(&self, blocks: &Blocks<'_, T>, blob: &mut Vec<u8>) -> Result<(), CodecError> {
        let flag = blob.len();
        blob.push(0);
        // Where bytes could use Huffman codes, a second byte says that they do not.
        if T::BYTES == 1 && blocks.max_error == 0.5 {
            blob.push(0);
        }
        let limit = self.valid * self.depth * T::BYTES - (blob.len() - flag - 1);
        match blocks.write(limit, blob)? {
            Some(side) => {
                put(blob, SIDE_AT, side as u32);
                if blocks.differences {
                    put(blob, MAGIC.len(), 5);
                }
            }
            None => {
                blob.truncate(flag);
                blob.push(1);
                self.values(blocks.values, blob);
            }
        }
        Ok(())
    }

    /// Writes the values of the valid pixels.
    fn values<T: Sample + Pod>(&self, values: &[T], blob: &mut Vec<u8>) {
        let mut all = |values: &[T]| blocks::extend(values, blob);
        let Some(mask) = self.mask else { return all(values) };
        for (pixels, byte) in values.chunks(8 * self.depth).zip(mask) {
            if *byte == 0xff {
                all(pixels);
                continue;
            }
            for (nth, pixel) in pixels.chunks_exact(self.depth).enumerate() {
                if byte << nth & 0x80 != 0 {
                    all(pixel);
                }
            }
        }
    }
}

fn has_both_zeros<T: Sample>(values: &[T]) -> bool {
    let mut zeros = values.iter().map(|value| value.to_f64()).filter(|value| *value == 0.0);
    zeros.next().is_some_and(|first| zeros.any(|zero| zero.is_sign_negative() != first.is_sign_negative()))
}

fn put(blob: &mut [u8], at: usize, word: u32) {
    if let Some(place) = blob.get_mut(at..at + 4) {
        place.copy_from_slice(&word.to_le_bytes());
    }
}

/// Run-length encodes a mask: a count and that many bytes, or a negated count and one byte to repeat; -32768 ends it.
fn run_lengths(mask: &[u8]) -> Result<Vec<u8>, CodecError> {
    /// A run costs three bytes, and up to two more where it splits literals.
    const WORTH: usize = 5;
    const LONGEST: usize = 0x7fff;
    let mut out = Vec::new();
    // At worst literals, with counts and the end.
    reserve(&mut out, mask.len() + 2 * (mask.len() / LONGEST + 1) + 2 + 2 * (mask.len() / WORTH))?;
    let literals = |bytes: &[u8], out: &mut Vec<u8>| {
        for bytes in bytes.chunks(LONGEST) {
            out.extend_from_slice(&(bytes.len() as i16).to_le_bytes());
            out.extend_from_slice(bytes);
        }
    };
    let (mut from, mut at) = (0, 0);
    while let Some(rest) = mask.get(at..).filter(|rest| !rest.is_empty()) {
        let run = rest.iter().take_while(|byte| Some(*byte) == rest.first()).count();
        if run >= WORTH {
            literals(mask.get(from..at).unwrap_or_default(), &mut out);
            let run = run.min(LONGEST);
            out.extend_from_slice(&(-(run as i16)).to_le_bytes());
            out.extend(rest.first());
            from = at + run;
        }
        at += run.clamp(1, LONGEST);
    }
    literals(mask.get(from..).unwrap_or_default(), &mut out);
    out.extend_from_slice(&i16::MIN.to_le_bytes());
    Ok(out)
}
