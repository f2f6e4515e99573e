//! Interprets the tags of a directory that describe its pixels.

use crate::{
    compression::Compression,
    error::TiffError,
    limits::Limits,
    photometric::Photometric,
    sample::{SampleFormat, SampleType},
    structure::{
        bytes::{Bytes, ParseStop},
        header::{ByteOrder, Header},
        ifd::{Entry, Ifd},
        table::Table,
        value::Value,
    },
    tag,
};

/// How the samples of a pixel are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Planar {
    /// Side by side, in one tile.
    Contig,
    /// Each sample plane in its own tiles.
    Separate,
}

/// The transformation of samples before compression.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Predictor {
    /// Nothing.
    None,
    /// Difference to the pixel on the left.
    Horizontal,
    /// Floats split into byte planes, then differences.
    FloatingPoint,
}

/// The YCbCr parameters of a directory.
#[derive(Debug, Clone, PartialEq)]
pub struct YCbCr {
    /// Luma samples per chroma sample, horizontally and vertically.
    pub subsampling: (u16, u16),
    /// Weights of red, green and blue in luma.
    pub coefficients: [f64; 3],
    /// Black and white values of each component.
    pub reference: [f64; 6],
}

/// The layout of an image: enough to find and decode every tile.
#[derive(Debug, Clone, PartialEq)]
pub struct Layout {
    /// Columns.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// Columns of a tile; for strips, those of the image.
    pub tile_width: u32,
    /// Rows of a tile or strip.
    pub tile_height: u32,
    /// Rows of a strip as the file states them, which can exceed the rows of the image.
    pub rows_per_strip: u32,
    /// Whether the directory has tiles rather than strips.
    pub tiled: bool,
    /// Bits of a stored sample.
    pub bits: u16,
    /// How those bits are interpreted.
    pub format: SampleFormat,
    /// Type of a decoded sample.
    pub sample: SampleType,
    /// Samples of a pixel.
    pub samples: u16,
    /// How the samples of a pixel are stored.
    pub planar: Planar,
    /// How tiles are compressed.
    pub compression: Compression,
    /// The number of the compression in the file.
    pub compression_code: u16,
    /// The predictor; `Predictor::None` where the compression takes none.
    pub predictor: Predictor,
    /// How samples represent colour, if the file says so.
    pub photometric: Option<Photometric>,
    /// The meaning of the samples beyond colour: 0 unspecified, 1 premultiplied alpha, 2 alpha.
    pub extra_samples: Vec<u16>,
    /// Whether the first bit of a stored byte is its lowest (FillOrder 2).
    pub bits_reversed: bool,
    /// Orientation, 1 (upright) to 8.
    pub orientation: u16,
    /// NewSubfileType, a sum of 1 (reduced), 2 (page) and 4 (mask).
    pub subfile_type: u32,
    /// YCbCr parameters; `Some` exactly when the photometric is YCbCr.
    pub ycbcr: Option<YCbCr>,
    /// T4Options.
    pub t4_options: u32,
    /// LercParameters: version and additional compression.
    pub lerc: Vec<u32>,
    /// JPEGTables.
    pub jpeg_tables: Option<Vec<u8>>,
    /// Byte order of stored samples.
    pub order: ByteOrder,
    /// The table of tile offsets.
    pub offsets: Option<Table>,
    /// The table of tile byte counts.
    pub byte_counts: Option<Table>,
    /// Faults that did not prevent interpreting the directory.
    pub problems: Vec<String>,
}

/// Reads single tags. A fault is an error, or, in the `lenient` methods, a problem in a list.
struct Tags<'a> {
    ifd: &'a Ifd,
    bytes: &'a Bytes,
    order: ByteOrder,
    limits: &'a Limits,
    problems: Vec<String>,
}

impl Tags<'_> {
    /// The first `most` whole numbers of a tag, which must be well formed if it is present. The rest is not read: in a file with a
    /// thousand directories that point to the same long list, that would take too long.
    fn integers(&self, tag: u16, most: u64) -> Result<Option<Vec<u64>>, ParseStop> {
        let Some(entry) = self.ifd.entry(tag) else { return Ok(None) };
        let fault = |detail: String| Err(ParseStop::Fault(TiffError::malformed(detail).at_tag(tag)));
        if !entry.kind.is_integer() {
            return fault(format!("type {} where a whole number belongs", entry.kind.name()));
        }
        let end = entry.len().and_then(|len| entry.offset.checked_add(len));
        if end.is_none_or(|end| end > self.bytes.size()) {
            return fault(format!("{} values at offset {} run beyond the end of the file", entry.count, entry.offset));
        }
        let entry = Entry { count: entry.count.min(most), ..entry.clone() };
        let Value::Integers(values) = entry.value(self.bytes, self.order, self.limits)? else {
            return fault(format!("{} bytes where a few numbers belong", entry.count));
        };
        let values: Result<Vec<u64>, _> = values.into_iter().map(u64::try_from).collect();
        values.map(Some).or_else(|_| fault("a negative number".to_owned()))
    }

    fn count(&self, tag: u16) -> u64 {
        self.ifd.entry(tag).map_or(0, |entry| entry.count)
    }

    /// A single number of at most `max`.
    fn integer(&self, tag: u16, max: u64) -> Result<Option<u64>, ParseStop> {
        let Some(values) = self.integers(tag, 1)? else { return Ok(None) };
        let (1, &[value]) = (self.count(tag), &values[..]) else {
            let detail = format!("{} values where one belongs", self.count(tag));
            return Err(TiffError::malformed(detail).at_tag(tag).into());
        };
        if value > max {
            return Err(TiffError::malformed(format!("value {value} is too large ({max} at most)")).at_tag(tag).into());
        }
        Ok(Some(value))
    }

    fn dimension(&self, tag: u16) -> Result<Option<u32>, ParseStop> {
        // GDAL, and every reader that indexes with 32-bit integers, has the same bound.
        Ok(self.integer(tag, i32::MAX as u64)?.map(|value| value as u32))
    }

    /// One number that applies to every sample. A list is accepted when its first `samples` entries agree.
    fn per_sample(&self, tag: u16, samples: u16) -> Result<Option<u16>, ParseStop> {
        let Some(used) = self.integers(tag, samples.into())? else { return Ok(None) };
        let fault = |detail: String| Err(ParseStop::Fault(TiffError::malformed(detail).at_tag(tag)));
        let count = self.count(tag);
        if count != 1 && count < samples.into() {
            return fault(format!("{count} values for {samples} samples"));
        }
        let Some(first) = used.first() else { return fault("no value".into()) };
        if used.iter().any(|value| value != first) {
            return Err(TiffError::unsupported(format!("samples of different kinds: {used:?}")).at_tag(tag).into());
        }
        u16::try_from(*first).map(Some).or_else(|_| fault(format!("value {first} is out of range")))
    }

    /// Checks that a tag, if present, has a number for each sample.
    fn number_per_sample(&self, tag: u16, samples: u16) -> Result<(), ParseStop> {
        let Some(entry) = self.ifd.entry(tag) else { return Ok(()) };
        let fault = |detail: String| Err(ParseStop::Fault(TiffError::malformed(detail).at_tag(tag)));
        if entry.count != u64::from(samples) {
            return fault(format!("{} values for {samples} samples", entry.count));
        }
        match entry.value(self.bytes, self.order, self.limits)?.to_floats() {
            Some(_) => Ok(()),
            None => fault(format!("type {} where numbers belong", entry.kind.name())),
        }
    }

    /// ExtraSamples, as strictly as libtiff reads it: a fault here shifts the meaning of every sample.
    fn extra_samples(&self, samples: u16) -> Result<Vec<u16>, ParseStop> {
        let fault = |detail: String| Err(ParseStop::Fault(TiffError::malformed(detail).at_tag(tag::EXTRA_SAMPLES)));
        let count = self.count(tag::EXTRA_SAMPLES);
        if count > samples.into() {
            return fault(format!("{count} extra samples of {samples} samples"));
        }
        let Some(values) = self.integers(tag::EXTRA_SAMPLES, samples.into())? else { return Ok(Vec::new()) };
        let mut extra = Vec::with_capacity(values.len());
        for value in values {
            match value {
                0..=2 => extra.push(value as u16),
                // Corel's number for alpha.
                999 => extra.push(2),
                other => return fault(format!("value {other} is not 0, 1 or 2")),
            }
        }
        Ok(extra)
    }

    /// Turns a fault in a tag that the pixels do not depend on into a problem, and ignores the tag, as libtiff does.
    fn lenient<T>(&mut self, result: Result<Option<T>, ParseStop>) -> Result<Option<T>, ParseStop> {
        match result {
            Err(ParseStop::Fault(error)) => {
                self.problems.push(match error.place().tag {
                    Some(number) => format!("tag {number} ({}): {error}", tag::name(number).unwrap_or("unnamed")),
                    None => error.to_string(),
                });
                Ok(None)
            }
            other => other,
        }
    }

    fn lenient_integer(&mut self, tag: u16, max: u64) -> Result<Option<u64>, ParseStop> {
        let result = self.integer(tag, max);
        self.lenient(result)
    }

    fn floats<const N: usize>(&mut self, tag: u16) -> Result<Option<[f64; N]>, ParseStop> {
        let Some(entry) = self.ifd.entry(tag).filter(|entry| entry.count >= N as u64) else { return Ok(None) };
        let entry = Entry { count: N as u64, ..entry.clone() };
        let value = entry.value(self.bytes, self.order, self.limits).map(Some);
        let value = self.lenient(value)?;
        Ok(value.and_then(|value| value.to_floats()).and_then(|list| list.first_chunk::<N>().copied()))
    }

    /// JPEGTables. Real ones have a few kilobytes.
    fn jpeg_tables(&self) -> Result<Option<Vec<u8>>, ParseStop> {
        let tag = tag::JPEG_TABLES;
        if self.ifd.entry(tag).is_some_and(|entry| entry.len().is_none_or(|len| len > 64 << 10)) {
            return Err(TiffError::malformed("more than 64 KiB of tables").at_tag(tag).into());
        }
        self.ifd.entry(tag).map(|entry| entry.raw(self.bytes, self.limits).map(<[u8]>::to_vec)).transpose()
    }

    fn table(&self, tag: u16) -> Result<Option<Table>, ParseStop> {
        let Some(entry) = self.ifd.entry(tag) else { return Ok(None) };
        match Table::new(entry, self.order) {
            Some(table) => Ok(Some(table)),
            None => {
                Err(TiffError::malformed(format!("type {} where offsets belong", entry.kind.name())).at_tag(tag).into())
            }
        }
    }

    /// Returns the size of tiles or strips.
    fn blocks(&self, width: u32, height: u32) -> Result<Blocks, ParseStop> {
        let rows_per_strip = self.integer(tag::ROWS_PER_STRIP, u32::MAX.into())?;
        if rows_per_strip == Some(0) {
            return Err(zero(tag::ROWS_PER_STRIP));
        }
        let tile_width = self.integer(tag::TILE_WIDTH, u32::MAX.into())?;
        let tile_height = self.integer(tag::TILE_LENGTH, u32::MAX.into())?;
        let tiled = tile_width.is_some() || tile_height.is_some();
        let (tile_width, tile_height) = if tiled {
            let tile_width = tile_width.ok_or_else(|| missing(tag::TILE_WIDTH))? as u32;
            let tile_height = tile_height.ok_or_else(|| missing(tag::TILE_LENGTH))? as u32;
            if tile_width == 0 || tile_height == 0 {
                return Err(zero(if tile_width == 0 { tag::TILE_WIDTH } else { tag::TILE_LENGTH }));
            }
            (tile_width, tile_height)
        } else {
            (width, rows_per_strip.unwrap_or(u64::from(height)).min(u64::from(height)) as u32)
        };
        let rows_per_strip = rows_per_strip.map_or(tile_height, |rows| rows as u32);
        Ok(Blocks { tiled, tile_width, tile_height, rows_per_strip })
    }

    /// Returns the tables of offsets and byte counts.
    fn tables(&self, tiled: bool) -> Result<(Option<Table>, Option<Table>), ParseStop> {
        // Old writers used the table tags of strips in tiled files, and the reverse. libtiff accepts both.
        let table = |first: u16, second: u16| Ok::<_, ParseStop>(self.table(first)?.or(self.table(second)?));
        Ok(if tiled {
            (table(tag::TILE_OFFSETS, tag::STRIP_OFFSETS)?, table(tag::TILE_BYTE_COUNTS, tag::STRIP_BYTE_COUNTS)?)
        } else {
            (table(tag::STRIP_OFFSETS, tag::TILE_OFFSETS)?, table(tag::STRIP_BYTE_COUNTS, tag::TILE_BYTE_COUNTS)?)
        })
    }

    /// Returns the predictor, where the codec takes one.
    fn predictor(&mut self, compression: Compression, bits: u16, format: SampleFormat) -> Result<Predictor, ParseStop> {
        let predictor = self.lenient_integer(tag::PREDICTOR, u16::MAX.into())?.unwrap_or(1);
        let predictor = match predictor {
            _ if !compression.takes_predictor() => Predictor::None,
            1 => Predictor::None,
            2 => Predictor::Horizontal,
            3 => Predictor::FloatingPoint,
            other => {
                return Err(TiffError::unsupported(format!("predictor {other}")).at_tag(tag::PREDICTOR).into());
            }
        };
        check_predictor(predictor, bits, format)?;
        Ok(predictor)
    }

    /// Checks that a palette has a colour for every value of so few bits.
    fn check_palette(&self, bits: u16) -> Result<(), ParseStop> {
        self.integers(tag::COLOR_MAP, 3 << bits)?;
        let colors = self.count(tag::COLOR_MAP);
        if colors != 3 << bits {
            let detail = format!("{colors} numbers where a palette of {bits} bits has {}", 3 << bits);
            return Err(TiffError::malformed(detail).at_tag(tag::COLOR_MAP).into());
        }
        Ok(())
    }
}

/// The size of the tiles or strips of an image.
struct Blocks {
    tiled: bool,
    tile_width: u32,
    tile_height: u32,
    rows_per_strip: u32,
}

fn missing(tag: u16) -> ParseStop {
    ParseStop::Fault(TiffError::malformed("this tag is required and missing").at_tag(tag))
}

fn zero(tag: u16) -> ParseStop {
    ParseStop::Fault(TiffError::malformed("0 is not a possible value").at_tag(tag))
}

/// Returns the format of samples, and the type that holds them in memory.
fn sample_type(format_code: u16, bits: u16) -> Result<(SampleFormat, SampleType), ParseStop> {
    let format = SampleFormat::from_code(format_code).ok_or_else(|| {
        ParseStop::Fault(TiffError::unsupported(format!("sample format {format_code}")).at_tag(tag::SAMPLE_FORMAT))
    })?;
    let sample = SampleType::holding(bits, format).ok_or_else(|| {
        ParseStop::Fault(
            TiffError::unsupported(format!("{format:?} samples of {bits} bits")).at_tag(tag::BITS_PER_SAMPLE),
        )
    })?;
    Ok((format, sample))
}

impl Layout {
    /// Interprets a directory.
    ///
    /// # Errors
    /// When the directory does not describe readable pixels, or bytes are not loaded.
    pub fn parse(ifd: &Ifd, bytes: &Bytes, header: &Header, limits: &Limits) -> Result<Self, ParseStop> {
        let mut tags = Tags { ifd, bytes, order: header.order, limits, problems: ifd.problems.clone() };
        let width = tags.dimension(tag::IMAGE_WIDTH)?.ok_or_else(|| missing(tag::IMAGE_WIDTH))?;
        let height = tags.dimension(tag::IMAGE_LENGTH)?.ok_or_else(|| missing(tag::IMAGE_LENGTH))?;
        if width == 0 {
            return Err(zero(tag::IMAGE_WIDTH));
        }
        if height == 0 {
            return Err(zero(tag::IMAGE_LENGTH));
        }
        let samples = samples_per_pixel(&tags)?;
        let bits = tags.per_sample(tag::BITS_PER_SAMPLE, samples)?.unwrap_or(1);
        let format_code = tags.per_sample(tag::SAMPLE_FORMAT, samples)?.unwrap_or(1);
        let compression_code = tags.per_sample(tag::COMPRESSION, samples)?.unwrap_or(1);
        let compression = Compression::from_code(compression_code);
        // libtiff reads no image whose sample ranges contradict its samples. The ranges themselves are not used.
        for range in [tag::MIN_SAMPLE_VALUE, tag::MAX_SAMPLE_VALUE, tag::DATA_TYPE] {
            tags.per_sample(range, samples)?;
        }
        for range in [tag::S_MIN_SAMPLE_VALUE, tag::S_MAX_SAMPLE_VALUE] {
            tags.number_per_sample(range, samples)?;
        }
        let (format, sample) = sample_type(format_code, bits)?;
        let planar = match tags.integer(tag::PLANAR_CONFIGURATION, u16::MAX.into())?.unwrap_or(1) {
            1 => Planar::Contig,
            2 => Planar::Separate,
            other => {
                return Err(TiffError::malformed(format!("value {other} is neither 1 (chunky) nor 2 (planar)"))
                    .at_tag(tag::PLANAR_CONFIGURATION)
                    .into());
            }
        };
        if tags.lenient_integer(tag::IMAGE_DEPTH, u32::MAX.into())?.is_some_and(|depth| depth > 1) {
            return Err(TiffError::unsupported("images with a depth of more than 1").at_tag(tag::IMAGE_DEPTH).into());
        }

        let Blocks { tiled, tile_width, tile_height, rows_per_strip } = tags.blocks(width, height)?;
        let (offsets, byte_counts) = tags.tables(tiled)?;
        let predictor = tags.predictor(compression, bits, format)?;
        let photometric =
            tags.lenient_integer(tag::PHOTOMETRIC, u16::MAX.into())?.map(|code| Photometric::from_code(code as u16));
        let extra_samples = tags.extra_samples(samples)?;
        if photometric == Some(Photometric::Palette) && bits < 8 {
            tags.check_palette(bits)?;
        }
        let bits_reversed = tags.lenient_integer(tag::FILL_ORDER, u16::MAX.into())? == Some(2);
        let orientation = match tags.lenient_integer(tag::ORIENTATION, u16::MAX.into())? {
            Some(value @ 1..=8) => value as u16,
            _ => 1,
        };
        let subfile_type = subfile_type(&mut tags)?;
        let ycbcr = if photometric == Some(Photometric::YCbCr) { Some(ycbcr(&mut tags)?) } else { None };
        let t4_options = tags.lenient_integer(tag::T4_OPTIONS, u32::MAX.into())?.unwrap_or(0) as u32;
        let lerc = if compression == Compression::Lerc {
            let list = tags.integers(tag::LERC_PARAMETERS, 2);
            tags.lenient(list)?.unwrap_or_default().into_iter().map(|value| value as u32).collect()
        } else {
            Vec::new()
        };
        let jpeg_tables = if compression == Compression::Jpeg { tags.jpeg_tables()? } else { None };

        let layout = Self {
            width,
            height,
            tile_width,
            tile_height,
            rows_per_strip,
            tiled,
            bits,
            format,
            sample,
            samples,
            planar,
            compression,
            compression_code,
            predictor,
            photometric,
            extra_samples,
            bits_reversed,
            orientation,
            subfile_type,
            ycbcr,
            t4_options,
            lerc,
            jpeg_tables,
            order: header.order,
            offsets,
            byte_counts,
            problems: tags.problems,
        };
        if layout.predictor != Predictor::None && layout.packed_subsampling().is_some_and(|packed| packed != (1, 1)) {
            return Err(TiffError::unsupported("a predictor on subsampled YCbCr").at_tag(tag::PREDICTOR).into());
        }
        Ok(layout)
    }

    /// Samples that are stored side by side in one tile.
    pub fn samples_per_tile(&self) -> u16 {
        if self.planar == Planar::Contig { self.samples } else { 1 }
    }

    /// Chroma subsampling of YCbCr that is stored in blocks of luma samples followed by a chroma pair (blocks of one luma sample if
    /// it is not subsampled). `None` for JPEG, which undoes its own subsampling, and for separate planes, which stay as they are.
    pub fn packed_subsampling(&self) -> Option<(u16, u16)> {
        let ycbcr = self.ycbcr.as_ref()?;
        let packed = self.planar == Planar::Contig
            && self.samples == 3
            && self.bits == 8
            && self.compression != Compression::Jpeg;
        packed.then_some(ycbcr.subsampling)
    }

    /// Bytes of one stored row of a tile before compression; `None` on overflow.
    pub fn row_len(&self) -> Option<u64> {
        let bits = u64::from(self.tile_width).checked_mul(u64::from(self.bits))?;
        Some(bits.checked_mul(u64::from(self.samples_per_tile()))?.div_ceil(8))
    }

    /// Bytes of `rows` stored rows of a tile before compression; `None` on overflow.
    pub fn stored_len(&self, rows: u32) -> Option<u64> {
        match self.packed_subsampling() {
            Some((across, down)) => {
                let blocks = u64::from(self.tile_width).div_ceil(across.into());
                let block = (u64::from(across) * u64::from(down) + 2).checked_mul(self.bits.into())?;
                blocks.checked_mul(block)?.div_ceil(8).checked_mul(u64::from(rows).div_ceil(down.into()))
            }
            None => self.row_len()?.checked_mul(rows.into()),
        }
    }

    /// Whether the directory is a reduced copy of another.
    pub fn is_reduced(&self) -> bool {
        self.subfile_type & 1 != 0
    }

    /// Whether the directory is a transparency mask.
    pub fn is_mask(&self) -> bool {
        self.subfile_type & 4 != 0 || self.photometric == Some(Photometric::Mask)
    }
}

fn samples_per_pixel(tags: &Tags<'_>) -> Result<u16, ParseStop> {
    match tags.integer(tag::SAMPLES_PER_PIXEL, u16::MAX.into())? {
        Some(0) => Err(TiffError::malformed("0 is not a possible value").at_tag(tag::SAMPLES_PER_PIXEL).into()),
        Some(samples) => Ok(samples as u16),
        None => Ok(1),
    }
}

/// Accepts the combinations that libtiff accepts.
fn check_predictor(predictor: Predictor, bits: u16, format: SampleFormat) -> Result<(), ParseStop> {
    let sound = match predictor {
        Predictor::None => true,
        Predictor::Horizontal => matches!(bits, 8 | 16 | 32 | 64),
        Predictor::FloatingPoint => matches!(bits, 16 | 24 | 32 | 64) && format == SampleFormat::Float,
    };
    if sound {
        return Ok(());
    }
    let detail = format!("predictor {predictor:?} on {format:?} samples of {bits} bits");
    Err(TiffError::unsupported(detail).at_tag(tag::PREDICTOR).into())
}

fn subfile_type(tags: &mut Tags<'_>) -> Result<u32, ParseStop> {
    if let Some(value) = tags.lenient_integer(tag::NEW_SUBFILE_TYPE, u32::MAX.into())? {
        return Ok(value as u32);
    }
    // The values of the old tag are 1 (full), 2 (reduced) and 3 (page).
    Ok(match tags.lenient_integer(tag::SUBFILE_TYPE, u16::MAX.into())? {
        Some(2) => 1,
        Some(3) => 2,
        _ => 0,
    })
}

fn ycbcr(tags: &mut Tags<'_>) -> Result<YCbCr, ParseStop> {
    let subsampling = tags.integers(tag::YCBCR_SUBSAMPLING, 2);
    let subsampling = match tags.lenient(subsampling)?.as_deref() {
        Some([across, down, ..]) => (*across, *down),
        _ => (2, 2),
    };
    let sound = |value: u64| matches!(value, 1 | 2 | 4);
    if !sound(subsampling.0) || !sound(subsampling.1) {
        let detail = format!("chroma subsampling {}x{}: 1, 2 and 4 are possible", subsampling.0, subsampling.1);
        return Err(TiffError::malformed(detail).at_tag(tag::YCBCR_SUBSAMPLING).into());
    }
    Ok(YCbCr {
        subsampling: (subsampling.0 as u16, subsampling.1 as u16),
        coefficients: tags.floats(tag::YCBCR_COEFFICIENTS)?.unwrap_or([0.299, 0.587, 0.114]),
        reference: tags.floats(tag::REFERENCE_BLACK_WHITE)?.unwrap_or([0.0, 255.0, 128.0, 255.0, 128.0, 255.0]),
    })
}
