//! Converts stored samples to colours.

use swath_codec::post::ycbcr;
use swath_tiff::{Photometric, SampleType, structure::Planar};

use crate::{
    error::Error,
    open::{dataset::Dataset, image::Image},
    raster::{Interleave, Raster},
    read::options::{ColorView, ReadOptions},
    state::spare::SampleBuffer,
};

/// How stored samples become colours.
enum Paint {
    Inks,
    YCbCr,
}

impl Image {
    fn paint(&self) -> Option<Paint> {
        let layout = &self.layout;
        if layout.sample != SampleType::U8 || layout.bits != 8 {
            return None;
        }
        match layout.photometric {
            Some(Photometric::Separated) if layout.samples >= 4 => Some(Paint::Inks),
            Some(Photometric::YCbCr) if layout.samples == 3 && layout.planar == Planar::Separate => {
                layout.ycbcr.as_ref().filter(|ycbcr| ycbcr.subsampling == (1, 1)).map(|_| Paint::YCbCr)
            }
            _ => None,
        }
    }

    /// Whether [`ColorView::Shown`] differs from the stored samples.
    pub(crate) fn is_painted(&self) -> bool {
        self.paint().is_some()
    }
}

impl Dataset {
    pub(crate) fn read_painted(&self, image: &Image, options: &ReadOptions) -> Result<Raster, Error> {
        let samples: usize = if matches!(image.paint(), Some(Paint::Inks)) { 4 } else { 3 };
        let bands = options.bands.clone().unwrap_or_else(|| (1..=samples as u32).collect());
        if let Some(band) = bands.iter().find(|band| !(1..=samples as u32).contains(*band)) {
            let detail = format!("there is no band {band}; the colours are shown as {samples} bands");
            return Err(Error::usage(detail).in_source(&self.name));
        }
        let stored = ReadOptions {
            bands: Some((1..=samples as u32).collect()),
            interleave: Interleave::Pixel,
            color: ColorView::Stored,
            ..options.clone()
        };
        let mut painted = self.read(&stored)?;
        match (image.paint(), &image.layout.ycbcr) {
            (Some(Paint::Inks), _) => {
                for pixel in painted.bytes_mut().as_chunks_mut::<4>().0 {
                    let [cyan, magenta, yellow, black] = pixel.map(u32::from);
                    let light = |ink: u32| ((255 - black) * (255 - ink) / 255) as u8;
                    *pixel = [light(cyan), light(magenta), light(yellow), 255];
                }
            }
            (Some(Paint::YCbCr), Some(ycbcr)) => ycbcr::pixels_to_rgb(ycbcr, painted.bytes_mut()),
            _ => {}
        }
        let pixels = painted.width as usize * painted.height as usize;
        let mut buffer = SampleBuffer::new(pixels * bands.len())
            .ok_or_else(|| Error::memory("there is no memory for the result").in_source(&self.name))?;
        let out = buffer.bytes_mut();
        for (nth, band) in bands.iter().enumerate() {
            for (index, pixel) in painted.bytes().chunks_exact(samples).enumerate() {
                let at = match options.interleave {
                    Interleave::Band => nth * pixels + index,
                    Interleave::Pixel => index * bands.len() + nth,
                };
                if let (Some(place), Some(value)) = (out.get_mut(at), pixel.get(*band as usize - 1)) {
                    *place = *value;
                }
            }
        }
        Ok(Raster { buffer, bands: bands.len() as u32, interleave: options.interleave, ..painted })
    }
}
