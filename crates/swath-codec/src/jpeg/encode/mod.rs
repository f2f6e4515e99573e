//! Encodes JPEG tiles with exactly the bytes that GDAL and libtiff write: baseline frames of 8 bits and extended sequential ones of 12
//! bits, as abbreviated streams that share the tables of the tag `JPEGTables`.
//!
//! Transform, rounding, subsampling, edges and the choice of codes match libjpeg bit for bit.

#![forbid(unsafe_code)]

mod entropy;
mod fdct;
mod layout;
mod optimal;
mod planes;
mod sample;
mod standard;
mod tables;

use entropy::{Blocks, Counts, Emit, State, Tokens, Walk, Writer};
use fdct::Transform;
use layout::{Layout, MAX_COMPONENTS};
use planes::{Fill, McuRow};
use sample::Sample;
use swath_raster::{memory::OutOfMemory, simd::widest};
use tables::{CHROMA, Codes, DC, Quant, Table};

/// Bytes of all headers, rounded up: frame and scan of four components, and four Huffman tables of up to 256 symbols.
const HEADERS: usize = 2048;

/// Why a tile was not encoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The samples or the size of the tile do not fit the settings.
    #[error("{0}")]
    Input(String),
    /// The system has no memory.
    #[error(transparent)]
    Memory(#[from] OutOfMemory),
}

/// Most columns or rows: libjpeg's limit, a little under what the frame header can say.
pub const MAX_SIDE: u32 = 65500;

/// The meaning of the components.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Color {
    /// One to four independent components, not converted.
    Gray,
    /// Red, green and blue, not converted (`PhotometricInterpretation` 2).
    Rgb,
    /// Red, green and blue, written as full-range BT.601 YCbCr (`PhotometricInterpretation` 6).
    YCbCr,
}

/// Which Huffman tables to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Huffman {
    /// Fixed tables, stored in `JPEGTables` (`JPEGTABLESMODE=3` of GDAL). Faster.
    Standard,
    /// Optimal tables for each tile, stored in the tile (GDAL's default). Smaller.
    PerTile,
}

/// How to encode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// 1 to 100, on the scale of IJG's library.
    pub quality: u8,
    /// Luma samples per chroma sample, across and down: (1, 1), (2, 1) or (2, 2), and for colours other than YCbCr (1, 1). The same as in
    /// `YCbCrSubSampling`.
    pub subsampling: (u8, u8),
    /// Colour model of the components.
    pub color: Color,
    /// Interleaved samples of a pixel.
    pub components: u8,
    /// Bits in a sample: 8 or 12.
    pub precision: u8,
    /// Which Huffman tables to use.
    pub huffman: Huffman,
}

/// Interleaved samples, row after row: bytes for 8-bit frames, words for 12-bit ones (where values over 4095 count as 4095).
#[derive(Debug, Clone, Copy)]
pub enum Samples<'t> {
    /// For a precision of 8.
    Bytes(&'t [u8]),
    /// For a precision of 12.
    Words(&'t [u16]),
}

impl<'t> From<&'t [u8]> for Samples<'t> {
    fn from(samples: &'t [u8]) -> Self {
        Self::Bytes(samples)
    }
}

impl<'t> From<&'t [u16]> for Samples<'t> {
    fn from(samples: &'t [u16]) -> Self {
        Self::Words(samples)
    }
}

/// Working memory, which grows to an MCU row of the widest tile and is then reused. With [`Huffman::PerTile`] it also holds the non-zero
/// coefficients of the largest tile, four bytes each.
#[derive(Debug, Default)]
pub struct Scratch {
    bytes: McuRow<u8>,
    words: McuRow<u16>,
    work: Work,
}

/// Working memory that does not depend on the sample width.
#[derive(Debug, Default)]
struct Work {
    blocks: Blocks,
    tokens: Tokens,
    /// Output buffer of the entropy coder.
    buffer: Vec<u8>,
}

/// An encoder for the tiles of one image.
#[derive(Debug, Clone)]
pub struct Encoder {
    settings: Settings,
    /// For luminance and chrominance.
    quants: [Quant; 2],
    /// Fixed codes, if those are asked for.
    codes: Option<Box<Codes>>,
}

impl Encoder {
    /// Checks the settings and computes the tables.
    pub fn new(settings: Settings) -> Result<Self, String> {
        let Settings { quality, subsampling, color, components, precision, huffman } = settings;
        if !(1..=100).contains(&quality) {
            return Err(format!("JPEG quality is {quality}, not 1 to 100"));
        }
        if !matches!(precision, 8 | 12) {
            return Err(format!("JPEG samples have 8 or 12 bits, not {precision}"));
        }
        match color {
            Color::Gray if !(1..=MAX_COMPONENTS as u8).contains(&components) => {
                return Err(format!("a JPEG scan has 1 to {MAX_COMPONENTS} components, not {components}"));
            }
            Color::Rgb | Color::YCbCr if components != 3 => {
                return Err(format!("colour JPEG has 3 components, not {components}"));
            }
            Color::YCbCr if !matches!(subsampling, (1, 1) | (2, 1) | (2, 2)) => {
                return Err(format!("subsampling {subsampling:?} is not (1, 1), (2, 1) or (2, 2)"));
            }
            Color::Gray | Color::Rgb if subsampling != (1, 1) => {
                return Err(format!("subsampling {subsampling:?} needs YCbCr"));
            }
            _ => {}
        }
        Ok(Self {
            settings,
            quants: [false, true].map(|chroma| Quant::new(chroma, quality)),
            codes: (huffman == Huffman::Standard)
                .then(|| Box::new(Codes::new(&[false, true].map(|chroma| Table::standard(precision, chroma))))),
        })
    }

    /// The stream of the `JPEGTables` field: quantisation tables, and Huffman tables where all tiles have the same, in libtiff's order.
    pub fn tables(&self) -> Vec<u8> {
        let mut dst = vec![0xFF, 0xD8];
        for (slot, quant) in (0..).zip(self.used_quants()) {
            quant.write(slot, &mut dst);
        }
        if self.settings.huffman == Huffman::Standard {
            for &chroma in self.used_sets() {
                tables::write_huffman(&Table::standard(self.settings.precision, chroma), chroma, &mut dst);
            }
        }
        dst.extend([0xFF, 0xD9]);
        dst
    }

    /// Appends the abbreviated stream of a tile or strip to `dst`; `src` is exactly its samples. On an error nothing has been appended.
    pub fn encode<'t>(
        &self,
        width: u32,
        height: u32,
        src: impl Into<Samples<'t>>,
        dst: &mut Vec<u8>,
        scratch: &mut Scratch,
    ) -> Result<(), Refusal> {
        let Settings { subsampling, color, components, precision, .. } = self.settings;
        if !(1..=MAX_SIDE).contains(&width) || !(1..=MAX_SIDE).contains(&height) {
            let detail = format!("a JPEG frame has 1 to {MAX_SIDE} columns and rows, not {width} x {height}");
            return Err(Refusal::Input(detail));
        }
        let src = src.into();
        let (have, fits) = match src {
            Samples::Bytes(samples) => (samples.len(), precision == 8),
            Samples::Words(samples) => (samples.len(), precision != 8),
        };
        if !fits {
            return Err(Refusal::Input(format!("the samples are not those of a {precision}-bit frame")));
        }
        let need = u64::from(width) * u64::from(height) * u64::from(components);
        if have as u64 != need {
            return Err(Refusal::Input(format!("{have} samples where a tile of {width} x {height} has {need}")));
        }
        let count = usize::from(components);
        let layout = Layout::new(width as usize, height as usize, count, subsampling, color == Color::YCbCr);
        let start = dst.len();
        let made = match src {
            Samples::Bytes(samples) => self.stream(&layout, samples, &mut scratch.bytes, &mut scratch.work, dst),
            Samples::Words(samples) => self.stream(&layout, samples, &mut scratch.words, &mut scratch.work, dst),
        };
        if made.is_err() {
            dst.truncate(start);
        }
        Ok(made?)
    }

    /// Whether the tables that components use are those of chrominance.
    fn used_sets(&self) -> &'static [bool] {
        if self.settings.color == Color::YCbCr { &[false, true] } else { &[false] }
    }

    /// Quantisation tables that a component uses.
    fn used_quants(&self) -> &[Quant] {
        self.quants.get(..self.used_sets().len()).unwrap_or_default()
    }

    /// Returns the component identifiers that libjpeg uses; nothing in a TIFF file depends on them.
    fn ids(&self) -> [u8; MAX_COMPONENTS] {
        match (self.settings.color, self.settings.components) {
            (Color::YCbCr, _) | (Color::Gray, 1) => [1, 2, 3, 4],
            (Color::Rgb, _) => *b"RGB\0",
            (Color::Gray, _) => [0, 1, 2, 3],
        }
    }

    /// Appends SOI and the frame header.
    fn frame_header(&self, layout: &Layout, dst: &mut Vec<u8>) {
        let Settings { components, precision, .. } = self.settings;
        let baseline = precision == 8 && !self.used_quants().iter().any(Quant::is_wide);
        dst.extend([0xFF, 0xD8, 0xFF, if baseline { 0xC0 } else { 0xC1 }, 0, 8 + 3 * components, precision]);
        dst.extend((layout.height as u16).to_be_bytes());
        dst.extend((layout.width as u16).to_be_bytes());
        dst.push(components);
        for (id, component) in self.ids().into_iter().zip(layout.components()) {
            dst.extend([id, (component.across as u8) << 4 | component.down as u8, u8::from(component.chroma)]);
        }
    }

    /// Appends the scan header.
    fn scan_header(&self, layout: &Layout, dst: &mut Vec<u8>) {
        let components = self.settings.components;
        dst.extend([0xFF, 0xDA, 0, 6 + 2 * components, components]);
        for (id, component) in self.ids().into_iter().zip(layout.components()) {
            dst.extend([id, u8::from(component.chroma) * 0x11]);
        }
        dst.extend([0, 63, 0]);
    }

    /// Appends the whole stream.
    fn stream<S: Sample>(
        &self,
        layout: &Layout,
        src: &[S],
        mcu_row_planes: &mut McuRow<S>,
        work: &mut Work,
        dst: &mut Vec<u8>,
    ) -> Result<(), OutOfMemory> {
        let Work { blocks, tokens, buffer } = work;
        let mut state = State::new();
        let mut previous_dc = [0; MAX_COMPONENTS];
        reserve(dst, HEADERS)?;
        self.frame_header(layout, dst);
        if let Some(codes) = &self.codes {
            self.scan_header(layout, dst);
            self.rows(layout, src, mcu_row_planes, blocks, |mcu_row, blocks| {
                let to = Writer::new(state, codes, buffer, dst)?;
                state = widest(Walk { layout, mcu_row, blocks, previous_dc: &mut previous_dc, to }).pause()?;
                Ok(())
            })?;
        } else {
            let mut counts: Counts = [0; Codes::COUNT];
            tokens.clear();
            self.rows(layout, src, mcu_row_planes, blocks, |mcu_row, blocks| {
                let to = tokens.row(layout, &mut counts)?;
                let count = widest(Walk { layout, mcu_row, blocks, previous_dc: &mut previous_dc, to }).at;
                tokens.keep(count);
                Ok(())
            })?;
            let codes = self.best_codes(&counts, dst);
            self.scan_header(layout, dst);
            let to = Writer::new(state, &codes, buffer, dst)?;
            state = widest(Emit { tokens: tokens.used(), to }).pause()?;
        }
        reserve(dst, State::MOST + 2)?;
        state.finish(dst);
        dst.extend([0xFF, 0xD9]);
        Ok(())
    }

    /// Computes the optimal codes for a tile with these symbols, and appends their tables.
    fn best_codes(&self, counts: &Counts, dst: &mut Vec<u8>) -> Codes {
        let sets = counts.chunks_exact(CHROMA as usize).zip(self.used_sets());
        let tables: Vec<[Table; 2]> = sets
            .map(|(counts, &chroma)| {
                let (ac, dc) = counts.split_at(DC as usize);
                let tables = [dc, ac].map(optimal::table);
                tables::write_huffman(&tables, chroma, dst);
                tables
            })
            .collect();
        Codes::new(&tables)
    }

    /// Quantises one MCU row at a time and passes it on, so that its planes and coefficients stay in the cache.
    fn rows<S: Sample>(
        &self,
        layout: &Layout,
        src: &[S],
        mcu_row_planes: &mut McuRow<S>,
        blocks: &mut Blocks,
        mut each: impl FnMut(usize, &Blocks) -> Result<(), OutOfMemory>,
    ) -> Result<(), OutOfMemory> {
        mcu_row_planes.fit(layout)?;
        blocks.fit(layout)?;
        let [luma, chroma] = &self.quants;
        let rows = layout.width * layout.components().len() * layout.down * 8;
        for (mcu_row, src) in src.chunks(rows.max(1)).enumerate().take(layout.mcu_rows) {
            widest(Fill { layout, convert: self.settings.color == Color::YCbCr, src, mcu_row_planes });
            let outputs = blocks.coefs.iter_mut().zip(&mut blocks.masks);
            for ((component, plane), (coefs, masks)) in
                layout.components().iter().zip(&mcu_row_planes.planes).zip(outputs)
            {
                let quant = if component.chroma { chroma } else { luma };
                widest(Transform { plane, stride: component.stride, quant, coefs, masks });
            }
            each(mcu_row, blocks)?;
        }
        Ok(())
    }
}

/// Makes room for `len` more bytes.
fn reserve(dst: &mut Vec<u8>, len: usize) -> Result<(), OutOfMemory> {
    dst.try_reserve(len).map_err(|_| OutOfMemory { bytes: (dst.len() + len) as u64 })
}

#[cfg(test)]
mod tests;
