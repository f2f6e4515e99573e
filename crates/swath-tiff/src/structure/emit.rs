//! Emits the head of a file: header, GDAL's ghost area, directories, values and tile tables.
//!
//! The position of each part depends only on the lengths of the parts, never on their values. So a writer emits the head with
//! empty tables to learn its length, writes the tiles after it, and emits it again once it knows where the tiles are.

use crate::{
    structure::{
        header::ByteOrder,
        layout::{Layout, Planar, Predictor},
        value::FieldType,
    },
    tag,
};

/// A tag and its value.
#[derive(Debug, Clone, PartialEq)]
pub struct Field {
    /// Number of the tag.
    pub tag: u16,
    /// Type of its values.
    pub kind: FieldType,
    /// The values, before a byte order is applied.
    pub values: Values,
    /// Bytes reserved in the head for a value whose length may still change; 0 reserves the length of the values.
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
    /// The tags of a nested directory, which the tag points to.
    Directory(Vec<Field>),
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

    /// LONG8 values, for BigTIFF files only.
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

    /// Text; the terminating NUL is added.
    pub fn ascii(tag: u16, text: &str) -> Self {
        let mut bytes = text.as_bytes().to_vec();
        bytes.push(0);
        Self::new(tag, FieldType::Ascii, Values::Bytes(bytes))
    }

    /// Opaque bytes.
    pub fn undefined(tag: u16, bytes: impl Into<Vec<u8>>) -> Self {
        Self::new(tag, FieldType::Undefined, Values::Bytes(bytes.into()))
    }

    /// Positive numbers as RATIONAL, as exactly as 32 bits allow.
    pub fn fractions(tag: u16, values: &[f64]) -> Self {
        let pair = |value: &f64| {
            // The largest power of ten that keeps the numerator in 32 bits.
            let scale = (0..=9).rev().map(|digits| 10_u32.pow(digits)).find(|scale| value * f64::from(*scale) < 4e9);
            let scale = scale.unwrap_or(1);
            let (mut numerator, mut denominator) = ((value * f64::from(scale)).round() as u32, scale);
            while numerator % 10 == 0 && denominator % 10 == 0 {
                (numerator, denominator) = (numerator / 10, denominator / 10);
            }
            [numerator, denominator]
        };
        Self::rational(tag, values.iter().flat_map(pair).collect::<Vec<_>>())
    }

    /// RATIONAL values: numerators and denominators alternate.
    pub fn rational(tag: u16, pairs: impl Into<Vec<u32>>) -> Self {
        Self::new(tag, FieldType::Rational, Values::U32(pairs.into()))
    }

    /// A nested directory, such as EXIF's.
    pub fn directory(tag: u16, fields: Vec<Field>) -> Self {
        Self::new(tag, FieldType::Long, Values::Directory(fields))
    }

    /// A value of any type whose bytes are in `order`, copied from another file.
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

    /// Returns the field with `bytes` bytes reserved for its value.
    #[must_use]
    pub fn with_reserve(mut self, bytes: u64) -> Self {
        self.reserve = bytes;
        self
    }

    /// Length of the values in bytes.
    pub fn len(&self) -> u64 {
        match &self.values {
            Values::Bytes(values) => values.len() as u64,
            Values::U16(values) => values.len() as u64 * 2,
            Values::U32(values) => values.len() as u64 * 4,
            Values::F32(values) => values.len() as u64 * 4,
            Values::U64(values) => values.len() as u64 * 8,
            Values::F64(values) => values.len() as u64 * 8,
            // Its offset, which has 64 bits in BigTIFF.
            Values::Directory(_) => 4,
        }
    }

    /// Whether there is no value.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn count(&self) -> u64 {
        self.len() / self.kind.size().max(1)
    }

    /// Writes the values. `at` is their offset in the file, which only a nested directory depends on.
    fn put(&self, out: &mut Out, at: u64) {
        match &self.values {
            Values::Directory(fields) => out.bytes.extend(nested(out.style, fields, at)),
            Values::Bytes(values) => out.bytes.extend_from_slice(values),
            Values::U16(values) => values.iter().for_each(|value| out.u16(*value)),
            Values::U32(values) => values.iter().for_each(|value| out.u32(*value)),
            Values::U64(values) => values.iter().for_each(|value| out.u64(*value)),
            Values::F32(values) => values.iter().for_each(|value| out.u32(value.to_bits())),
            Values::F64(values) => values.iter().for_each(|value| out.u64(value.to_bits())),
        }
    }
}

/// Byte order and offset size of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Style {
    /// Byte order of everything.
    pub order: ByteOrder,
    /// Whether offsets have 64 bits.
    pub big: bool,
}

/// One directory to emit.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Directory {
    /// Its tags except the tile tables, in any order.
    pub fields: Vec<Field>,
    /// The tables of tile offsets and byte counts.
    pub tables: Vec<Field>,
}

/// The bytes emitted so far.
struct Out {
    style: Style,
    bytes: Vec<u8>,
}

impl Out {
    fn u16(&mut self, value: u16) {
        let raw = if self.style.order == ByteOrder::Little { value.to_le_bytes() } else { value.to_be_bytes() };
        self.bytes.extend_from_slice(&raw);
    }

    fn u32(&mut self, value: u32) {
        let raw = if self.style.order == ByteOrder::Little { value.to_le_bytes() } else { value.to_be_bytes() };
        self.bytes.extend_from_slice(&raw);
    }

    fn u64(&mut self, value: u64) {
        let raw = if self.style.order == ByteOrder::Little { value.to_le_bytes() } else { value.to_be_bytes() };
        self.bytes.extend_from_slice(&raw);
    }

    fn offset(&mut self, value: u64) {
        // The caller chooses BigTIFF where the head could exceed 4 GiB.
        if self.style.big { self.u64(value) } else { self.u32(value as u32) }
    }
}

impl Style {
    /// Longest value, in bytes, that is stored inside its directory entry.
    fn inline(self) -> u64 {
        if self.big { 8 } else { 4 }
    }

    fn directory_len(self, tags: usize) -> u64 {
        let (count, entry) = if self.big { (8, 20) } else { (2, 12) };
        (count + tags as u64 * entry + self.inline()).next_multiple_of(2)
    }

    /// Bytes that a field occupies outside its directory.
    fn outside_len(self, field: &Field) -> u64 {
        match &field.values {
            Values::Directory(fields) => nested(self, fields, 0).len() as u64,
            _ => Some(field.len().max(field.reserve)).filter(|len| *len > self.inline()).unwrap_or(0),
        }
    }
}

/// Aligns a value: TIFF requires even offsets, and 8-byte values start at multiples of 8 for readers that map the file.
fn aligned(offset: u64, field: &Field) -> u64 {
    let unit = match field.values {
        // The length of a nested directory must not depend on its offset.
        Values::Directory(_) => 8,
        _ => field.kind.size().max(2),
    };
    offset.next_multiple_of(unit)
}

/// Values that are stored outside their directories, with their offsets, in file order.
struct Placed<'a> {
    values: Vec<(&'a Field, u64)>,
    end: u64,
}

impl<'a> Placed<'a> {
    fn new(style: Style, fields: impl Iterator<Item = &'a Field>, start: u64) -> Self {
        let mut placed = Self { values: Vec::new(), end: start };
        for field in fields {
            let len = style.outside_len(field);
            if len > 0 {
                let offset = aligned(placed.end, field);
                placed.values.push((field, offset));
                placed.end = offset + len;
            }
        }
        placed
    }

    /// Writes the directory that these values belong to.
    fn put_directory(&self, out: &mut Out, fields: &[&Field], next: u64) {
        let style = out.style;
        if style.big {
            out.u64(fields.len() as u64)
        } else {
            out.u16(fields.len() as u16)
        }
        let offset_of =
            |field: &Field| self.values.iter().find(|(known, _)| std::ptr::eq(*known, field)).map(|(_, at)| *at);
        for field in fields {
            out.u16(field.tag);
            let nested = matches!(field.values, Values::Directory(_));
            let kind = if nested && style.big { FieldType::Long8 } else { field.kind };
            out.u16(kind.code());
            out.offset(field.count());
            let before = out.bytes.len();
            match offset_of(field) {
                Some(offset) if nested || field.len() > style.inline() => out.offset(offset),
                _ => field.put(out, 0),
            }
            out.bytes.resize(before + style.inline() as usize, 0);
        }
        out.offset(next);
    }

    /// Writes the values. The first byte of `out` is at offset `base` of the file.
    fn put_values(&self, out: &mut Out, base: u64) {
        for (field, offset) in &self.values {
            out.bytes.resize((offset - base) as usize, 0);
            if matches!(field.values, Values::Directory(_)) || field.len() > out.style.inline() {
                field.put(out, *offset);
            }
        }
        out.bytes.resize((self.end.next_multiple_of(2) - base) as usize, 0);
    }
}

fn sorted<'a>(fields: impl Iterator<Item = &'a Field>) -> Vec<&'a Field> {
    let mut all: Vec<&Field> = fields.collect();
    all.sort_by_key(|field| field.tag);
    all
}

/// A directory outside the chain, with its values, for offset `at` of the file.
fn nested(style: Style, fields: &[Field], at: u64) -> Vec<u8> {
    let fields = sorted(fields.iter());
    let placed = Placed::new(style, fields.iter().copied(), at + style.directory_len(fields.len()));
    let mut out = Out { style, bytes: Vec::new() };
    placed.put_directory(&mut out, &fields, 0);
    placed.put_values(&mut out, at);
    out.bytes
}

/// Emits the head of a file: everything before its tiles. All directories come first, then their values, then the tile tables,
/// those of the last directory first. So a reader gets all directories with one read of the beginning, and the short tables of
/// the overviews precede the long tables of the full image.
pub fn head(style: Style, ghost: Option<&str>, directories: &[Directory]) -> Vec<u8> {
    let Style { order, big } = style;
    let mut out = Out { style, bytes: Vec::new() };
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
    out.offset(first);
    out.bytes.extend_from_slice(ghost.unwrap_or_default().as_bytes());

    let all: Vec<Vec<&Field>> =
        directories.iter().map(|directory| sorted(directory.fields.iter().chain(&directory.tables))).collect();
    let directories_len = all.iter().map(|fields| style.directory_len(fields.len())).sum::<u64>();
    let values = directories.iter().flat_map(|directory| &directory.fields);
    let tables = directories.iter().rev().flat_map(|directory| &directory.tables);
    let placed = Placed::new(style, values.chain(tables), first + directories_len);
    let mut position = first;
    for (index, fields) in all.iter().enumerate() {
        out.bytes.resize(position as usize, 0);
        position += style.directory_len(fields.len());
        placed.put_directory(&mut out, fields, if index + 1 < all.len() { position } else { 0 });
    }
    placed.put_values(&mut out, 0);
    out.bytes
}

/// The text of GDAL's ghost area: a line with the length of `lines`, then `lines`.
pub fn ghost_text(lines: &str) -> String {
    format!("GDAL_STRUCTURAL_METADATA_SIZE={:06} bytes\n{lines}", lines.len())
}

/// The tags of a layout, except its tile tables.
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
        structure::{Bytes, Header, Ifd, chain::Chain, chain::Visited, ghost::Ghost, value::Value},
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
    fn emitted_heads_are_parsed_back() {
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
    fn sub_directories_are_linked_from_a_tag() {
        for order in [ByteOrder::Little, ByteOrder::Big] {
            for big in [false, true] {
                let inner = Field::directory(40965, vec![Field::ascii(1, "R98")]);
                let exif = vec![Field::ascii(36867, "2026:11:16 20:00:00"), inner, Field::rational(33434, [1, 250])];
                let fields = vec![Field::directory(34665, exif), Field::ascii(tag::GDAL_NODATA, "-9999")];
                let directories = [Directory { fields, tables: Vec::new() }];
                let bytes = Bytes::whole(head(Style { order, big }, None, &directories));
                let header = Header::parse(&bytes).unwrap();
                let limits = Limits::default();
                let value = |ifd: &Ifd, tag: u16| ifd.entry(tag).unwrap().value(&bytes, order, &limits).unwrap();
                let below = |ifd: &Ifd, tag: u16| match &value(ifd, tag) {
                    Value::Integers(at) => Ifd::parse(&bytes, &header, at[0] as u64).unwrap(),
                    other => panic!("{other:?}"),
                };
                let main = Ifd::parse(&bytes, &header, header.first_ifd).unwrap();
                let exif = below(&main, 34665);
                assert_eq!(value(&main, tag::GDAL_NODATA), Value::Text("-9999".into()));
                assert_eq!(value(&exif, 36867), Value::Text("2026:11:16 20:00:00".into()));
                assert_eq!(value(&exif, 33434).to_floats(), Some(vec![1.0 / 250.0]));
                assert_eq!(value(&below(&exif, 40965), 1), Value::Text("R98".into()));
                assert_eq!((exif.next, exif.entries.len()), (0, 3));
            }
        }
    }

    #[test]
    fn reserved_room_moves_nothing() {
        let style = Style { order: ByteOrder::Little, big: false };
        let mut longer = sample();
        longer[0].fields[4] = Field::ascii(tag::GDAL_METADATA, &"x".repeat(99)).with_reserve(100);
        assert_eq!(head(style, None, &sample()).len(), head(style, None, &longer).len());
    }
}
