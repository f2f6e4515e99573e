//! Chooses the bands that a picture shows, and their colours.

use anyhow::{Result, bail};
use swath::{Dataset, describe::MaskKind, tiff::Photometric};

use crate::{args::Colormap, job};

/// How bands are painted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Paint {
    /// Indices into the file's palette.
    Palette,
    /// Brightness, or positions on a colour map.
    Single(Colormap),
    /// Red, green, blue.
    Rgb,
    /// Cyan, magenta, yellow, black ink.
    Cmyk,
}

/// Where opacity comes from, besides nodata.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Alpha {
    None,
    /// The file's mask.
    Mask,
    /// This band.
    Band(u32),
}

/// The bands that a picture shows, and how they are painted.
#[derive(Debug)]
pub struct ShownBands {
    pub bands: Vec<u32>,
    pub paint: Paint,
    pub alpha: Alpha,
    /// Whether small values are white.
    pub inverted: bool,
}

impl ShownBands {
    /// Chooses the bands by the user's request and by the colours of the file's bands.
    pub fn choose(dataset: &Dataset, requested: Option<&str>, colormap: Option<Colormap>) -> Result<Self> {
        let photometric = dataset.main().layout().photometric;
        let colours: Vec<&str> = dataset.metadata().bands.iter().map(|band| band.color.as_str()).collect();
        let requested = requested.map(|text| job::bands(Some(text), dataset.bands())).transpose()?;
        let has_palette = !dataset.metadata().palette.is_empty();
        let (bands, paint) = choose(&colours, photometric, has_palette, requested, colormap)?;
        let alpha = match position(&colours, "alpha") {
            _ if MaskKind::of_bands(dataset)?.contains(&MaskKind::PerDataset) => Alpha::Mask,
            Some(band) if !bands.contains(&band) => Alpha::Band(band),
            _ => Alpha::None,
        };
        let inverted = photometric == Some(Photometric::MinIsWhite) && matches!(paint, Paint::Single(Colormap::Gray));
        Ok(Self { bands, paint, alpha, inverted })
    }

    /// Whether samples are indices, which must not be averaged.
    pub fn is_palette(&self) -> bool {
        self.paint == Paint::Palette
    }

    /// Returns the alpha band.
    pub fn alpha_band(&self) -> Option<u32> {
        match self.alpha {
            Alpha::Band(band) => Some(band),
            _ => None,
        }
    }

    /// Returns the bytes of a band's nodata value. An alpha band has none: its 0 is an opacity.
    pub fn nodata(&self, dataset: &Dataset, band: u32) -> Option<Vec<u8>> {
        if self.alpha_band() == Some(band) {
            return None;
        }
        let index = (band as usize).checked_sub(1)?;
        dataset.metadata().bands.get(index)?.nodata_sample(dataset.sample())
    }
}

fn position(colours: &[&str], colour: &str) -> Option<u32> {
    colours.iter().position(|known| *known == colour).map(|index| index as u32 + 1)
}

fn choose(
    colours: &[&str],
    photometric: Option<Photometric>,
    has_palette: bool,
    requested: Option<Vec<u32>>,
    colormap: Option<Colormap>,
) -> Result<(Vec<u32>, Paint)> {
    let single = Paint::Single(colormap.unwrap_or(Colormap::Gray));
    if let Some(bands) = requested {
        return match (bands.len(), colormap) {
            (1, None) if has_palette && bands == [1] => Ok((bands, Paint::Palette)),
            (1, _) => Ok((bands, single)),
            (3, None) => Ok((bands, Paint::Rgb)),
            (3, Some(_)) => bail!("--colormap needs one band, and --bands names three"),
            (count, _) => bail!("--bands takes one band or three, not {count}"),
        };
    }
    let first = colours.iter().position(|colour| *colour != "alpha").map_or(1, |index| index as u32 + 1);
    if colormap.is_some() {
        return Ok((vec![first], single));
    }
    if has_palette {
        return Ok((vec![1], Paint::Palette));
    }
    let all = |names: &[&str]| names.iter().map(|name| position(colours, name)).collect::<Option<Vec<u32>>>();
    if let Some(bands) = all(&["red", "green", "blue"]) {
        return Ok((bands, Paint::Rgb));
    }
    if let Some(bands) = all(&["cyan", "magenta", "yellow", "black"]) {
        return Ok((bands, Paint::Cmyk));
    }
    let lab = matches!(photometric, Some(Photometric::CieLab | Photometric::IccLab | Photometric::ItuLab));
    let plain: Vec<u32> = (1..).zip(colours).filter(|(_, colour)| **colour != "alpha").map(|(band, _)| band).collect();
    // Bands without a meaning are shown as desktop GIS show them: the first three as colour.
    match plain.get(..3) {
        Some(three) if !lab => Ok((three.to_vec(), Paint::Rgb)),
        _ => Ok((vec![first], single)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRAY: Paint = Paint::Single(Colormap::Gray);

    fn chosen(colours: &[&str], requested: Option<Vec<u32>>, colormap: Option<Colormap>) -> Option<(Vec<u32>, Paint)> {
        choose(colours, None, colours.first() == Some(&"palette"), requested, colormap).ok()
    }

    #[test]
    fn bands_are_found_by_their_colour_not_their_place() {
        assert_eq!(chosen(&["blue", "green", "red", "nir"], None, None), Some((vec![3, 2, 1], Paint::Rgb)));
        assert_eq!(chosen(&["alpha", "gray"], None, None), Some((vec![2], GRAY)));
    }

    #[test]
    fn bands_without_meaning_are_shown_as_colour() {
        assert_eq!(
            chosen(&["gray", "undefined", "undefined", "undefined"], None, None),
            Some((vec![1, 2, 3], Paint::Rgb))
        );
        assert_eq!(chosen(&["gray", "undefined"], None, None), Some((vec![1], GRAY)));
    }

    #[test]
    fn a_palette_gives_way_to_a_colour_map_only() {
        assert_eq!(chosen(&["palette"], None, None), Some((vec![1], Paint::Palette)));
        let viridis = Colormap::Viridis;
        assert_eq!(chosen(&["palette"], None, Some(viridis)), Some((vec![1], Paint::Single(viridis))));
    }

    #[test]
    fn two_bands_are_no_picture() {
        assert_eq!(chosen(&["red", "green", "blue"], Some(vec![1, 2]), None), None);
        assert_eq!(chosen(&["red", "green", "blue"], Some(vec![1, 2, 3]), Some(Colormap::Magma)), None);
    }
}
