//! The head of a file: header, GDAL's notes, directories, values and tile tables, as bytes.
//!
//! Where things lie depends on how long they are, never on what they say. So a writer lays out the head with empty tables
//! to learn its length, streams tiles behind it, and lays it out again once it knows where they went.

use crate::structure::{
    header::ByteOrder,
    layout::{Layout, Planar, Predictor},
    tag,
    value::FieldType,
};

/// A tag and its value.
#[derive(Debug, Clone, PartialEq)]
pub struct Field {
    /// Number of the tag.
    pub tag: u16,
    /// Type of its values.
    pub kind: FieldType,
    /// The values, not yet in a byte order.
    pub values: Values,
    /// Bytes kept for it in the head, where its length may still change; at least as long as the values.
    pub reserve: u64,
}

/// The values of a [`Field`].
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum Values {
    Bytes(Vec<u8>),
    U16(Vec<u16>),
    U32(Vec<u32>),
    U64(Vec<u64>),
    F32(Vec<f32>),
    F64(Vec<f64>),
}

impl Field {
    fn new(tag: u16, kind: FieldType, values: Values) -> Self {
        Self { tag, kind, values, reserve: 0 }
    }

    /// SHORT values.
    pub fn short(tag: u16, values: impl Into<Vec<u16>>) -> Self {
        Self::new(tag, FieldType::Short, Values::U16(values.into()))
    }

    /// LONG values.
    pub fn long(tag: u16, values: impl Into<Vec<u32>>) -> Self {
        Self::new(tag, FieldType::Long, Values::U32(values.into()))
    }

    /// LONG8 values, in BigTIFF files only.
    pub fn long8(tag: u16, values: impl Into<Vec<u64>>) -> Self {
        Self::new(tag, FieldType::Long8, Values::U64(values.into()))
    }

    /// One number, SHORT where it fits.
    pub fn number(tag: u16, value: u32) -> Self {
        match u16::try_from(value) {
            Ok(small) => Self::short(tag, [small]),
            Err(_) => Self::long(tag, [value]),
        }
    }

    /// DOUBLE values.
    pub fn double(tag: u16, values: impl Into<Vec<f64>>) -> Self {
        Self::new(tag, FieldType::Double, Values::F64(values.into()))
    }

    /// Text, with the NUL that ends it.
    pub fn ascii(tag: u16, text: impl AsRef<[u8]>) -> Self {
        let mut bytes = text.as_ref().to_vec();
        bytes.push(0);
        Self::new(tag, FieldType::Ascii, Values::Bytes(bytes))
    }

    /// Opaque bytes.
    pub fn undefined(tag: u16, bytes: impl Into<Vec<u8>>) -> Self {
        Self::new(tag, FieldType::Undefined, Values::Bytes(bytes.into()))
    }

    /// Positive numbers as fractions, as exact as 32 bits allow.
    pub fn fractions(tag: u16, values: &[f64]) -> Self {
        let pair = |value: &f64| {
            // The largest power of ten that keeps the numerator in 32 bits.
            let scale = (0..=9).rev().map(|digits| 10_u32.pow(digits)).find(|scale| value * f64::from(*scale) < 4e9);
            let scale = scale.unwrap_or(1);
            let (mut above, mut below) = ((value * f64::from(scale)).round() as u32, scale);
            while above % 10 == 0 && below % 10 == 0 {
                (above, below) = (above / 10, below / 10);
            }
            [above, below]
        };
        Self::rational(tag, values.iter().flat_map(pair).collect::<Vec<_>>())
    }

    /// Numerators and denominators, in turn.
    pub fn rational(tag: u16, pairs: impl Into<Vec<u32>>) -> Self {
        Self::new(tag, FieldType::Rational, Values::U32(pairs.into()))
    }

    /// A value of any type whose bytes are already in `order`, as another file had them.
    pub fn raw(tag: u16, kind: FieldType, order: ByteOrder, bytes: &[u8]) -> Self {
        let values = match kind {
            FieldType::Short | FieldType::SShort => {
                Values::U16(bytes.chunks_exact(2).map(|raw| order.u16(raw)).collect())
            }
            FieldType::Long | FieldType::SLong | FieldType::Float | FieldType::Rational | FieldType::SRational => {
                Values::U32(bytes.chunks_exact(4).map(|raw| order.u32(raw)).collect())
            }
            FieldType::Double | FieldType::Long8 | FieldType::SLong8 => {
                Values::U64(bytes.chunks_exact(8).map(|raw| order.u64(raw)).collect())
            }
            _ => Values::Bytes(bytes.to_vec()),
        };
        Self::new(tag, kind, values)
    }

    /// The same field with room for `bytes` bytes.
    #[must_use]
    pub fn with_reserve(mut self, bytes: u64) -> Self {
        self.reserve = bytes;
        self
    }

    /// Bytes of the values.
    pub fn len(&self) -> u64 {
        match &self.values {
            Values::Bytes(values) => values.len() as u64,
            Values::U16(values) => values.len() as u64 * 2,
            Values::U32(values) => values.len() as u64 * 4,
            Values::F32(values) => values.len() as u64 * 4,
            Values::U64(values) => values.len() as u64 * 8,
            Values::F64(values) => values.len() as u64 * 8,
        }
    }

    /// Whether there is no value.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn count(&self) -> u64 {
        self.len() / self.kind.size().max(1)
    }

    fn put(&self, out: &mut Out) {
        match &self.values {
            Values::Bytes(values) => out.bytes.extend_from_slice(values),
            Values::U16(values) => values.iter().for_each(|value| out.u16(*value)),
            Values::U32(values) => values.iter().for_each(|value| out.u32(*value)),
            Values::U64(values) => values.iter().for_each(|value| out.u64(*value)),
            Values::F32(values) => values.iter().for_each(|value| out.u32(value.to_bits())),
            Values::F64(values) => values.iter().for_each(|value| out.u64(value.to_bits())),
        }
    }
}

/// How a file says what it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Style {
    /// Byte order of everything.
    pub order: ByteOrder,
    /// Whether offsets have 64 bits.
    pub big: bool,
}

/// One directory.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Directory {
    /// Its tags but for the tables, in any order.
    pub fields: Vec<Field>,
    /// Where tiles are and how long they are.
    pub tables: Vec<Field>,
}

/// Bytes in the making.
struct Out {
    order: ByteOrder,
    bytes: Vec<u8>,
}

impl Out {
    fn u16(&mut self, value: u16) {
        let raw = if self.order == ByteOrder::Little { value.to_le_bytes() } else { value.to_be_bytes() };
        self.bytes.extend_from_slice(&raw);
    }

    fn u32(&mut self, value: u32) {
        let raw = if self.order == ByteOrder::Little { value.to_le_bytes() } else { value.to_be_bytes() };
        self.bytes.extend_from_slice(&raw);
    }

    fn u64(&mut self, value: u64) {
        let raw = if self.order == ByteOrder::Little { value.to_le_bytes() } else { value.to_be_bytes() };
        self.bytes.extend_from_slice(&raw);
    }

    fn offset(&mut self, value: u64, big: bool) {
        // The caller has chosen BigTIFF where the head could be longer than 4 GiB.
        if big { self.u64(value) } else { self.u32(value as u32) }
    }
}

/// Values begin at even offsets, as TIFF asks; at multiples of 8 where they have 8 bytes each, for those who map files.
fn aligned(offset: u64, field: &Field) -> u64 {
    let unit = field.kind.size().max(2);
    offset.next_multiple_of(unit)
}

/// The head of a file: everything before its tiles. Directories follow each other, then come their values, then the
/// tables of the last directory first: who opens the file reads its beginning once, and small overviews are known before
/// the long tables of the full image.
pub fn head(style: Style, ghost: Option<&str>, directories: &[Directory]) -> Vec<u8> {
    let Style { order, big } = style;
    let (count_len, entry_len, inline) = if big { (8, 20, 8) } else { (2, 12, 4) };
    let mut out = Out { order, bytes: Vec::new() };
    out.bytes.extend_from_slice(if order == ByteOrder::Little { b"II" } else { b"MM" });
    let start = if big { 16 } else { 8 } + ghost.map_or(0, |text| text.len() as u64);
    let first = start.next_multiple_of(2);
    if big {
        out.u16(43);
        out.u16(8);
        out.u16(0);
    } else {
        out.u16(42);
    }
    out.offset(first, big);
    out.bytes.extend_from_slice(ghost.unwrap_or_default().as_bytes());

    let sorted: Vec<Vec<&Field>> = directories
        .iter()
        .map(|directory| {
            let mut all: Vec<&Field> = directory.fields.iter().chain(&directory.tables).collect();
            all.sort_by_key(|field| field.tag);
            all
        })
        .collect();
    let directory_len = |fields: &[&Field]| -> u64 {
        (count_len + fields.len() as u64 * entry_len + if big { 8 } else { 4 }).next_multiple_of(2)
    };
    let mut next = first + sorted.iter().map(|fields| directory_len(fields)).sum::<u64>();

    // Values in the order in which they will lie, with their offsets.
    let mut placed: Vec<(&Field, u64)> = Vec::new();
    let values = directories.iter().flat_map(|directory| &directory.fields);
    let tables = directories.iter().rev().flat_map(|directory| &directory.tables);
    for field in values.chain(tables) {
        let room = field.len().max(field.reserve);
        if room > inline {
            let offset = aligned(next, field);
            placed.push((field, offset));
            next = offset + room;
        }
    }
    let offset_of = |field: &Field| placed.iter().find(|(known, _)| std::ptr::eq(*known, field)).map(|(_, at)| *at);

    let mut position = first;
    for (index, fields) in sorted.iter().enumerate() {
        out.bytes.resize(position as usize, 0);
        if big {
            out.u64(fields.len() as u64)
        } else {
            out.u16(fields.len() as u16)
        }
        for field in fields {
            out.u16(field.tag);
            out.u16(field.kind.code());
            out.offset(field.count(), big);
            let before = out.bytes.len();
            match offset_of(field) {
                Some(offset) if field.len() > inline => out.offset(offset, big),
                _ => field.put(&mut out),
            }
            out.bytes.resize(before + inline as usize, 0);
        }
        position += directory_len(fields);
        out.offset(if index + 1 < sorted.len() { position } else { 0 }, big);
    }
    for (field, offset) in placed {
        out.bytes.resize(offset as usize, 0);
        if field.len() > inline {
            field.put(&mut out);
        }
    }
    out.bytes.resize(next.next_multiple_of(2) as usize, 0);
    out.bytes
}

/// GDAL's notes on the layout, with the line that tells their length.
pub fn ghost_text(lines: &str) -> String {
    format!("GDAL_STRUCTURAL_METADATA_SIZE={:06} bytes\n{lines}", lines.len())
}

/// The tags of a layout, its tile tables excepted.
pub fn layout_fields(layout: &Layout) -> Vec<Field> {
    let samples = usize::from(layout.samples);
    let mut fields = vec![
        Field::number(tag::IMAGE_WIDTH, layout.width),
        Field::number(tag::IMAGE_LENGTH, layout.height),
        Field::short(tag::BITS_PER_SAMPLE, vec![layout.bits; samples]),
        Field::short(tag::COMPRESSION, [layout.compression_code]),
        Field::short(tag::SAMPLES_PER_PIXEL, [layout.samples]),
        Field::short(tag::PLANAR_CONFIGURATION, [if layout.planar == Planar::Contig { 1 } else { 2 }]),
        Field::short(tag::SAMPLE_FORMAT, vec![layout.format.code(); samples]),
    ];
    if layout.subfile_type != 0 {
        fields.push(Field::long(tag::NEW_SUBFILE_TYPE, [layout.subfile_type]));
    }
    if let Some(photometric) = layout.photometric {
        fields.push(Field::short(tag::PHOTOMETRIC, [photometric.code()]));
    }
    if layout.tiled {
        fields.push(Field::number(tag::TILE_WIDTH, layout.tile_width));
        fields.push(Field::number(tag::TILE_LENGTH, layout.tile_height));
    } else {
        fields.push(Field::number(tag::ROWS_PER_STRIP, layout.rows_per_strip));
    }
    match layout.predictor {
        Predictor::None => {}
        Predictor::Horizontal => fields.push(Field::short(tag::PREDICTOR, [2])),
        Predictor::FloatingPoint => fields.push(Field::short(tag::PREDICTOR, [3])),
    }
    if !layout.extra_samples.is_empty() {
        fields.push(Field::short(tag::EXTRA_SAMPLES, layout.extra_samples.clone()));
    }
    if let Some(ycbcr) = &layout.ycbcr {
        let (across, down) = ycbcr.subsampling;
        fields.push(Field::short(tag::YCBCR_SUBSAMPLING, [across, down]));
        // Full range: black 0, white 255, colour differences around 128.
        let reference = ycbcr.reference.iter().flat_map(|value| [value.round() as u32, 1]);
        fields.push(Field::rational(tag::REFERENCE_BLACK_WHITE, reference.collect::<Vec<_>>()));
    }
    if !layout.lerc.is_empty() {
        fields.push(Field::long(tag::LERC_PARAMETERS, layout.lerc.clone()));
    }
    if let Some(tables) = &layout.jpeg_tables {
        fields.push(Field::undefined(tag::JPEG_TABLES, tables.clone()));
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Limits,
        structure::{Bytes, Header, chain::Chain, chain::Visited, ghost::Ghost, value::Value},
    };

    fn sample() -> Vec<Directory> {
        let table = |tag: u16, len: u32| Field::long(tag, (0..len).collect::<Vec<_>>());
        vec![
            Directory {
                fields: vec![
                    Field::ascii(tag::GDAL_NODATA, "-9999"),
                    Field::number(tag::IMAGE_WIDTH, 70_000),
                    Field::number(tag::IMAGE_LENGTH, 7),
                    Field::double(tag::MODEL_PIXEL_SCALE, [10.0, 10.0, 0.0]),
                    Field::ascii(tag::GDAL_METADATA, "<a/>").with_reserve(100),
                ],
                tables: vec![table(tag::TILE_OFFSETS, 9), table(tag::TILE_BYTE_COUNTS, 9)],
            },
            Directory { fields: vec![Field::number(tag::IMAGE_WIDTH, 3)], tables: vec![table(tag::TILE_OFFSETS, 1)] },
        ]
    }

    #[test]
    fn what_is_emitted_is_parsed_back() {
        for order in [ByteOrder::Little, ByteOrder::Big] {
            for big in [false, true] {
                let ghost = ghost_text("LAYOUT=IFDS_BEFORE_DATA\nKNOWN_INCOMPATIBLE_EDITION=NO\n ");
                let bytes = Bytes::whole(head(Style { order, big }, Some(&ghost), &sample()));
                let header = Header::parse(&bytes).unwrap();
                assert_eq!((header.order, header.big), (order, big));
                assert!(Ghost::parse(&bytes, &header).unwrap().unwrap().is_cog());
                let limits = Limits::default();
                let mut chain = Chain::starting_at(header.first_ifd);
                chain.walk(&mut Visited::default(), &bytes, &header, &limits).unwrap();
                let (ifds, problem) = chain.into_parts();
                assert!(problem.is_none() && ifds.len() == 2);
                let value = |ifd: usize, tag: u16| ifds[ifd].entry(tag).unwrap().value(&bytes, order, &limits).unwrap();
                assert_eq!(value(0, tag::IMAGE_WIDTH), Value::Integers(vec![70_000]));
                assert_eq!(value(0, tag::GDAL_NODATA), Value::Text("-9999".into()));
                assert_eq!(value(0, tag::GDAL_METADATA), Value::Text("<a/>".into()));
                assert_eq!(value(0, tag::MODEL_PIXEL_SCALE), Value::Floats(vec![10.0, 10.0, 0.0]));
                assert_eq!(value(0, tag::TILE_BYTE_COUNTS), Value::Integers((0..9).collect()));
                assert_eq!(value(1, tag::TILE_OFFSETS), Value::Integers(vec![0]));
            }
        }
    }

    #[test]
    fn room_that_is_kept_does_not_move_anything() {
        let style = Style { order: ByteOrder::Little, big: false };
        let mut longer = sample();
        longer[0].fields[4] = Field::ascii(tag::GDAL_METADATA, &"x".repeat(99)).with_reserve(100);
        assert_eq!(head(style, None, &sample()).len(), head(style, None, &longer).len());
    }
}
