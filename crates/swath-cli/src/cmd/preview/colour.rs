//! Colour maps, each defined by a few evenly spaced colours.

use crate::args::Colormap;

type Rgb = [u8; 3];

// viridis, magma, inferno: van der Walt and Smith, CC0. turbo: Google, Apache-2.0. Nine or ten of their 256 colours,
// which straight lines join to within a few levels of the originals.
const VIRIDIS: [u32; 9] = [0x440154, 0x472d7b, 0x3b528b, 0x2c728e, 0x21918c, 0x28ae80, 0x5ec962, 0xaddc30, 0xfde725];
const MAGMA: [u32; 9] = [0x000004, 0x1d1147, 0x51127c, 0x822681, 0xb63679, 0xe65164, 0xfb8861, 0xfec287, 0xfcfdbf];
const INFERNO: [u32; 9] = [0x000004, 0x210c4a, 0x56106e, 0x89226a, 0xbb3754, 0xe35932, 0xf98c0a, 0xf9c932, 0xfcffa4];
const TURBO: [u32; 10] =
    [0x30123b, 0x4662d7, 0x36aaf9, 0x1ae4b6, 0x72fe5e, 0xc7ef34, 0xfaba39, 0xf66b19, 0xcb2a04, 0x7a0403];
/// From lowland green to rock to snow: for heights on land, without blue, which would suggest the sea.
const TERRAIN: [u32; 6] = [0x2e6b3e, 0x7fae5a, 0xe6dc98, 0xc29a5b, 0x8c6b52, 0xffffff];
const COOLWARM: [u32; 5] = [0x3b4cc0, 0x8db0fe, 0xdddcdc, 0xf4987a, 0xb40426];
const GRAY: [u32; 2] = [0x000000, 0xffffff];

/// Returns all 256 colours of a map.
pub fn table(map: Colormap) -> Vec<Rgb> {
    let anchors: &[u32] = match map {
        Colormap::Gray => &GRAY,
        Colormap::Viridis => &VIRIDIS,
        Colormap::Magma => &MAGMA,
        Colormap::Inferno => &INFERNO,
        Colormap::Turbo => &TURBO,
        Colormap::Terrain => &TERRAIN,
        Colormap::Coolwarm => &COOLWARM,
    };
    (0..=255).map(|level| between(anchors, f64::from(level) / 255.0)).collect()
}

fn between(anchors: &[u32], position: f64) -> Rgb {
    let scaled = position * (anchors.len().saturating_sub(1)) as f64;
    let index = scaled.floor() as usize;
    let channels = |index: usize| {
        let [_, r, g, b] = anchors.get(index).or(anchors.last()).copied().unwrap_or_default().to_be_bytes();
        [r, g, b].map(f64::from)
    };
    let (from, to, part) = (channels(index), channels(index + 1), scaled - scaled.floor());
    let mut mixed = [0; 3];
    for (mixed, (from, to)) in mixed.iter_mut().zip(from.into_iter().zip(to)) {
        *mixed = (from + (to - from) * part).round() as u8;
    }
    mixed
}

/// Converts inks to light without a colour profile: paper reflects what no ink absorbs.
pub fn cmyk([cyan, magenta, yellow, black]: [f32; 4]) -> [f32; 3] {
    [cyan, magenta, yellow].map(|ink| (1.0 - ink) * (1.0 - black))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_begin_and_end_with_their_colours() {
        let viridis = table(Colormap::Viridis);
        assert_eq!(viridis.len(), 256);
        assert_eq!((viridis[0], viridis[255]), ([0x44, 0x01, 0x54], [0xfd, 0xe7, 0x25]));
        assert_eq!(table(Colormap::Gray)[128], [128, 128, 128]);
    }

    #[test]
    fn black_ink_is_black() {
        assert_eq!(cmyk([0.0, 0.0, 0.0, 1.0]), [0.0; 3]);
        assert_eq!(cmyk([1.0, 0.0, 0.0, 0.0]), [0.0, 1.0, 1.0]);
    }
}
