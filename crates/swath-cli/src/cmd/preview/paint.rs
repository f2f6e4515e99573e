//! Turns bands at the size of the picture into colours.

use swath::{Dataset, SampleType};

use super::{
    Channels,
    bands::{Paint, ShownBands},
    colour,
    picture::Picture,
    stretch::{self, brightness},
};
use crate::{args::Colormap, job::Stretch};

/// Paints the picture.
pub fn paint(
    dataset: &Dataset,
    shown: &ShownBands,
    channels: &Channels,
    size: (u32, u32),
    requested: Option<Stretch>,
) -> Picture {
    let stretch = requested.unwrap_or_else(|| default_stretch(dataset, shown));
    // Transparent pixels often hold filler, which must not influence the stretch.
    let visible = |values: &[f32]| -> Vec<f32> {
        let opacity = channels.opacity.as_deref().unwrap_or_default().iter().copied().chain(std::iter::repeat(1.0));
        values.iter().zip(opacity).filter(|(_, opacity)| *opacity > 0.0).map(|(value, _)| *value).collect()
    };
    let limits: Vec<(f32, f32)> =
        channels.colour.iter().map(|values| stretch::limits(&visible(values), stretch, dataset.main())).collect();
    let level = |channel: usize, pixel: usize| {
        let value = channels.colour.get(channel).and_then(|values| values.get(pixel)).copied().unwrap_or(f32::NAN);
        brightness(value, limits.get(channel).copied().unwrap_or((0.0, 1.0)))
    };
    // A pixel is valid if any of its bands is, as in rasterio's dataset mask.
    let valid =
        |pixel: usize| channels.colour.iter().any(|values| values.get(pixel).is_some_and(|value| !value.is_nan()));
    // NaN, of a band without data beside bands with data, saturates to 0.
    let byte = |level: f32| (level * 255.0).round() as u8;
    let table = match shown.paint {
        Paint::Single(map) => colour::table(map),
        _ => Vec::new(),
    };
    let palette = palette(&dataset.metadata().palette);
    let colour_of = |pixel: usize| -> Option<[u8; 3]> {
        match shown.paint {
            Paint::Palette => {
                let index = channels.colour.first()?.get(pixel)?;
                palette.get(*index as usize).copied()
            }
            Paint::Single(_) => {
                let level = byte(level(0, pixel));
                table.get(usize::from(if shown.inverted { 255 - level } else { level })).copied()
            }
            Paint::Rgb => Some([level(0, pixel), level(1, pixel), level(2, pixel)].map(byte)),
            Paint::Cmyk => {
                Some(colour::cmyk([level(0, pixel), level(1, pixel), level(2, pixel), level(3, pixel)]).map(byte))
            }
        }
    };
    let gray = shown.paint == Paint::Single(Colormap::Gray);
    let mut picture = Picture::new(size.0, size.1, gray);
    for (pixel, target) in picture.pixels_mut().iter_mut().enumerate() {
        let opacity = channels.opacity.as_ref().map_or(1.0, |opacity| opacity.get(pixel).copied().unwrap_or(1.0));
        let colour = if valid(pixel) { colour_of(pixel) } else { None };
        // Pixels without data are transparent white: viewers without transparency show white, not black.
        *target = match colour {
            Some([red, green, blue]) => [red, green, blue, byte(opacity)],
            None => [255, 255, 255, 0],
        };
    }
    picture
}

/// Returns no stretch for photos and for images of a few bits, and percentiles for measurements.
fn default_stretch(dataset: &Dataset, shown: &ShownBands) -> Stretch {
    let photo = dataset.sample() == SampleType::U8 && matches!(shown.paint, Paint::Rgb | Paint::Cmyk);
    let few_bits = dataset.main().layout().bits < 8;
    if photo || few_bits { Stretch::None } else { Stretch::Percentiles(2.0, 98.0) }
}

/// Returns 8-bit colours of a 16-bit palette. Some writers fill only the lower 8 bits, which libtiff detects in the same way.
fn palette(colours: &[[u16; 3]]) -> Vec<[u8; 3]> {
    let small = colours.iter().flatten().all(|value| *value < 256);
    let shift = if small { 0 } else { 8 };
    colours.iter().map(|colour| colour.map(|value| (value >> shift) as u8)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn palettes_of_eight_bits_are_not_black() {
        assert_eq!(palette(&[[255, 128, 0]]), [[255, 128, 0]]);
        assert_eq!(palette(&[[65535, 32896, 0]]), [[255, 128, 0]]);
    }
}
