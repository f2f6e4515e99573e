//! The JPEG encoder for TIFF compression 7, written so that tiles come out as GDAL and libtiff would have written them: baseline frames of 8 bits,
//! extended sequential ones of 12, as abbreviated streams that share the tables of the `JPEGTables` field.
//!
//! Transform, rounding, subsampling and edges are libjpeg's to the bit, so a tile decodes to the same samples whichever of the two wrote it.

#![forbid(unsafe_code)]

mod entropy;
mod fdct;
mod layout;
mod planes;
mod sample;
mod standard;
mod tables;

use crate::simd::widest;
use entropy::{Blocks, State, Write};
use fdct::Transform;
use layout::{Layout, MAX_COMPONENTS};
use planes::{Band, Fill};
use sample::Sample;
use tables::{Codes, Quant};

/// Most columns or rows: libjpeg's limit, a little under what the frame header can say.
pub const MAX_SIDE: u32 = 65500;

/// What the components are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Color {
    /// One to four independent components, written as they are.
    Gray,
    /// Red, green and blue, written as they are (`PhotometricInterpretation` 2).
    Rgb,
    /// Red, green and blue, written as full-range BT.601 YCbCr (`PhotometricInterpretation` 6).
    YCbCr,
}

/// How to encode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// 1 to 100, on the scale of IJG's library.
    pub quality: u8,
    /// Luma samples per chroma sample, across and down: (1, 1), (2, 1) or (2, 2), and for colours other than YCbCr (1, 1). The same as in
    /// `YCbCrSubSampling`.
    pub subsampling: (u8, u8),
    /// What the components are.
    pub color: Color,
    /// Interleaved samples of a pixel.
    pub components: u8,
    /// Bits in a sample: 8 or 12.
    pub precision: u8,
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

/// Working memory that grows to an MCU row of the widest tile and is then used again.
#[derive(Debug, Default)]
pub struct Scratch {
    bytes: Band<u8>,
    words: Band<u16>,
    blocks: Blocks,
}

/// An encoder for the tiles of one image.
#[derive(Debug, Clone)]
pub struct Encoder {
    settings: Settings,
    /// For luminance and chrominance.
    quants: [Quant; 2],
    codes: Box<[Codes; 2]>,
}

impl Encoder {
    /// Checks the settings and makes the tables.
    pub fn new(settings: Settings) -> Result<Self, String> {
        let Settings { quality, subsampling, color, components, precision } = settings;
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
            codes: Box::new([false, true].map(|chroma| Codes::new(precision, chroma))),
        })
    }

    /// The stream of the `JPEGTables` field: quantisation and Huffman tables, in libtiff's order.
    pub fn tables(&self) -> Vec<u8> {
        let mut dst = vec![0xFF, 0xD8];
        for (slot, quant) in (0..).zip(self.used_quants()) {
            quant.write(slot, &mut dst);
        }
        for (chroma, _) in [false, true].into_iter().zip(self.used_quants()) {
            tables::write_huffman(self.settings.precision, chroma, &mut dst);
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
    ) -> Result<(), String> {
        let Settings { subsampling, color, components, precision, .. } = self.settings;
        if !(1..=MAX_SIDE).contains(&width) || !(1..=MAX_SIDE).contains(&height) {
            return Err(format!("a JPEG frame has 1 to {MAX_SIDE} columns and rows, not {width} x {height}"));
        }
        let src = src.into();
        let (have, fits) = match src {
            Samples::Bytes(samples) => (samples.len(), precision == 8),
            Samples::Words(samples) => (samples.len(), precision != 8),
        };
        if !fits {
            return Err(format!("the samples are not those of a {precision}-bit frame"));
        }
        let need = u64::from(width) * u64::from(height) * u64::from(components);
        if have as u64 != need {
            return Err(format!("{have} samples where a tile of {width} x {height} has {need}"));
        }
        let count = usize::from(components);
        let layout = Layout::new(width as usize, height as usize, count, subsampling, color == Color::YCbCr);
        self.headers(&layout, dst);
        match src {
            Samples::Bytes(samples) => self.scan(&layout, samples, &mut scratch.bytes, &mut scratch.blocks, dst),
            Samples::Words(samples) => self.scan(&layout, samples, &mut scratch.words, &mut scratch.blocks, dst),
        }
        dst.extend([0xFF, 0xD9]);
        Ok(())
    }

    /// Quantisation tables that a component uses.
    fn used_quants(&self) -> &[Quant] {
        let [luma, _] = &self.quants;
        if self.settings.color == Color::YCbCr { &self.quants } else { std::slice::from_ref(luma) }
    }

    /// The identifiers libjpeg gives the components, which nothing in a TIFF file depends on.
    fn ids(&self) -> [u8; MAX_COMPONENTS] {
        match (self.settings.color, self.settings.components) {
            (Color::YCbCr, _) | (Color::Gray, 1) => [1, 2, 3, 4],
            (Color::Rgb, _) => *b"RGB\0",
            (Color::Gray, _) => [0, 1, 2, 3],
        }
    }

    /// Appends SOI, the frame header and the scan header.
    fn headers(&self, layout: &Layout, dst: &mut Vec<u8>) {
        let Settings { components, precision, .. } = self.settings;
        let baseline = precision == 8 && !self.used_quants().iter().any(Quant::is_wide);
        dst.extend([0xFF, 0xD8, 0xFF, if baseline { 0xC0 } else { 0xC1 }, 0, 8 + 3 * components, precision]);
        dst.extend((layout.height as u16).to_be_bytes());
        dst.extend((layout.width as u16).to_be_bytes());
        dst.push(components);
        for (id, part) in self.ids().into_iter().zip(layout.parts()) {
            dst.extend([id, (part.across as u8) << 4 | part.down as u8, u8::from(part.chroma)]);
        }
        dst.extend([0xFF, 0xDA, 0, 6 + 2 * components, components]);
        for (id, part) in self.ids().into_iter().zip(layout.parts()) {
            dst.extend([id, u8::from(part.chroma) * 0x11]);
        }
        dst.extend([0, 63, 0]);
    }

    /// Appends the coded data. An MCU row at a time, so that its planes and coefficients stay in the cache.
    fn scan<S: Sample>(&self, layout: &Layout, src: &[S], band: &mut Band<S>, blocks: &mut Blocks, dst: &mut Vec<u8>) {
        band.fit(layout);
        blocks.fit(layout);
        let [luma, chroma] = &self.quants;
        let [luma_codes, chroma_codes] = &*self.codes;
        let mut state = State::new();
        let rows = layout.width * layout.parts().len() * layout.down * 8;
        for (mcu_row, src) in src.chunks(rows.max(1)).enumerate().take(layout.mcu_rows) {
            widest(Fill { layout, convert: self.settings.color == Color::YCbCr, src, band });
            let outputs = blocks.coefs.iter_mut().zip(&mut blocks.masks);
            for ((part, plane), (coefs, masks)) in layout.parts().iter().zip(&band.planes).zip(outputs) {
                let quant = if part.chroma { chroma } else { luma };
                widest(Transform { plane, stride: part.stride, quant, coefs, masks });
            }
            let codes = [luma_codes, chroma_codes];
            widest(Write { layout, mcu_row, blocks, codes, state: &mut state, dst });
        }
        state.finish(dst);
    }
}

#[cfg(test)]
mod tests;
