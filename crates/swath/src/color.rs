//! Inks as colours.

use swath_tiff::{SampleType, words::photometric::Photometric};

use crate::{
    buffer::Buffer,
    dataset::Dataset,
    error::Error,
    image::Image,
    raster::{Interleave, Raster},
    read::ReadOptions,
};

/// Which samples a read hands out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ColorView {
    /// Samples as they are stored: inks stay inks. (YCbCr is a way of storing RGB, and always comes as RGB.)
    #[default]
    Stored,
    /// CMYK of eight bits as red, green, blue and an opaque alpha, as GDAL shows it; everything else as stored.
    Rgba,
}

impl Image {
    /// Whether the samples are four inks of eight bits, perhaps with more samples after them.
    pub(crate) fn has_inks(&self) -> bool {
        self.layout.photometric == Some(Photometric::Separated)
            && self.layout.sample == SampleType::U8
            && self.layout.bits == 8
            && self.layout.samples >= 4
    }
}

impl Dataset {
    pub(crate) fn read_inks_as_rgba(&self, options: &ReadOptions) -> Result<Raster, Error> {
        let bands = options.bands.clone().unwrap_or_else(|| vec![1, 2, 3, 4]);
        if let Some(band) = bands.iter().find(|band| !(1..=4).contains(*band)) {
            return Err(
                Error::usage(format!("there is no band {band}; inks are shown as 4 bands")).in_source(&self.name)
            );
        }
        let stored = ReadOptions {
            bands: Some(vec![1, 2, 3, 4]),
            interleave: Interleave::Pixel,
            color: ColorView::Stored,
            ..options.clone()
        };
        let mut inks = self.read(&stored)?;
        for pixel in inks.bytes_mut().as_chunks_mut::<4>().0 {
            let [cyan, magenta, yellow, black] = pixel.map(u32::from);
            let light = |ink: u32| ((255 - black) * (255 - ink) / 255) as u8;
            *pixel = [light(cyan), light(magenta), light(yellow), 255];
        }
        let pixels = inks.width as usize * inks.height as usize;
        let mut buffer = Buffer::zeroed(pixels * bands.len())
            .ok_or_else(|| Error::usage("there is no memory for the result").in_source(&self.name))?;
        let out = buffer.bytes_mut();
        for (slot, band) in bands.iter().enumerate() {
            for (index, pixel) in inks.bytes().as_chunks::<4>().0.iter().enumerate() {
                let at = match options.interleave {
                    Interleave::Band => slot * pixels + index,
                    Interleave::Pixel => index * bands.len() + slot,
                };
                if let (Some(place), Some(value)) = (out.get_mut(at), pixel.get(*band as usize - 1)) {
                    *place = *value;
                }
            }
        }
        Ok(Raster { buffer, bands: bands.len() as u32, interleave: options.interleave, ..inks })
    }
}
