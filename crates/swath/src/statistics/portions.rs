//! Cuts an image into portions that fit in memory and split no tile, for work on all of its pixels.

use swath_tiff::{Compression, SampleType, Window, structure::Planar};

use crate::{
    error::Error,
    open::{dataset::Dataset, image::Image},
};

/// Samples of a portion, in bytes. Large enough that all cores have tiles to decode; with codec scratch and
/// read-ahead the whole command stays near 64 MiB.
pub const BUDGET: u64 = 24 << 20;

/// A portion: some bands of a window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Portion {
    /// Index of its first band among the requested bands.
    pub first: usize,
    /// Bands, counted from 1.
    pub bands: Vec<u32>,
    /// Which pixels.
    pub window: Window,
}

/// How an image is cut.
#[derive(Debug, Clone, Copy)]
pub struct TileLayout {
    width: u32,
    height: u32,
    tile_width: u32,
    tile_height: u32,
    /// Whether reading a part of a tile costs only its share.
    divisible: bool,
    separate: bool,
}

impl TileLayout {
    /// Portions along the tiles of an image.
    pub fn of(image: &Image) -> Self {
        let layout = image.layout();
        Self {
            width: layout.width,
            height: layout.height,
            tile_width: layout.tile_width.max(1),
            tile_height: layout.tile_height.max(1),
            divisible: layout.compression == Compression::None,
            separate: layout.planar == Planar::Separate,
        }
    }

    /// For an image whose tiles are not known, such as an overview in a side file: GDAL's are 128 or 256 wide.
    pub fn plain(width: u32, height: u32) -> Self {
        Self { width, height, tile_width: 256, tile_height: 256, divisible: false, separate: false }
    }

    /// The portions, row by row. Planes that are stored apart are cut apart, so that each is decoded once.
    pub fn portions(self, bands: &[u32], sample: SampleType, budget: u64) -> impl Iterator<Item = Portion> {
        let groups: Vec<Vec<u32>> =
            if self.separate { bands.iter().map(|band| vec![*band]).collect() } else { vec![bands.to_vec()] };
        let group_len = groups.first().map_or(1, Vec::len).max(1) as u64;
        let (across, down) = self.size(group_len * sample.size() as u64, budget);
        groups.into_iter().enumerate().flat_map(move |(first, bands)| {
            steps(self.height, down).flat_map(move |(y, height)| {
                let bands = bands.clone();
                steps(self.width, across).map(move |(x, width)| Portion {
                    first,
                    bands: bands.clone(),
                    window: Window::new(x, y, width, height),
                })
            })
        })
    }

    /// Columns and rows of a portion.
    fn size(&self, pixel: u64, budget: u64) -> (u32, u32) {
        let (width, height) = (u64::from(self.width.max(1)), u64::from(self.height.max(1)));
        let (mut tile_width, mut tile_height) =
            (u64::from(self.tile_width).min(width), u64::from(self.tile_height).min(height));
        // A compressed tile is decoded whole whatever part of it is wanted: cutting it would only repeat the work.
        if self.divisible && tile_width * tile_height * pixel > budget {
            tile_width = tile_width.min((budget / pixel).max(1));
            tile_height = (budget / (tile_width * pixel)).max(1);
        }
        let tile_row = width.saturating_mul(tile_height).saturating_mul(pixel);
        let (across, down) = if tile_row <= budget {
            (width, (budget / tile_row * tile_height).min(height))
        } else {
            let tile = tile_width.saturating_mul(tile_height).saturating_mul(pixel);
            (((budget / tile).max(1) * tile_width).min(width), tile_height)
        };
        (across as u32, down as u32)
    }
}

/// Starts and lengths of steps of `step` up to `end`.
fn steps(end: u32, step: u32) -> impl Iterator<Item = (u32, u32)> {
    let step = step.max(1);
    (0..end.div_ceil(step)).map(move |index| {
        let start = index * step;
        (start, step.min(end - start))
    })
}

/// Refuses an image that is far larger than its file can hold, by the limits that the file was opened with. Reading in
/// portions never meets the limit on a whole read, and a few hundred bytes could otherwise keep us busy for hours.
///
/// # Errors
/// When it is.
pub fn check_size(dataset: &Dataset) -> Result<(), Error> {
    let limits = &dataset.limits;
    let pixels = u128::from(dataset.width()) * u128::from(dataset.height());
    let bytes = pixels * u128::from(dataset.bands()) * dataset.sample().size() as u128;
    let asked = u64::try_from(bytes).unwrap_or(u64::MAX);
    let image = dataset.main();
    let (window, planes) = (Window::new(0, 0, dataset.width(), dataset.height()), 0..image.grid().planes);
    let plausible = dataset
        .plausible(image, &window, &planes.collect::<Vec<_>>(), asked)
        .map_err(|error| error.in_ifd(image.index()).in_source(&dataset.name))?;
    // Without limits nothing is refused.
    if asked <= plausible {
        return Ok(());
    }
    let held = plausible / limits.expansion.max(1);
    let detail = format!("{bytes} bytes of samples are declared, more than {held} bytes of file can hold");
    Err(Error::over("expansion", detail).in_source(&dataset.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(width: u32, height: u32, tile: (u32, u32), divisible: bool) -> TileLayout {
        TileLayout { width, height, tile_width: tile.0, tile_height: tile.1, divisible, separate: false }
    }

    fn covered(cut: TileLayout, budget: u64) -> (u64, u64) {
        let portions: Vec<Portion> = cut.portions(&[1], SampleType::U8, budget).collect();
        (
            portions.iter().map(|portion| portion.window.pixels()).sum(),
            portions.iter().map(|portion| portion.window.pixels()).max().unwrap_or(0),
        )
    }

    #[test]
    fn every_pixel_is_in_one_portion_and_portions_keep_the_budget() {
        for tile in [(1000, 7), (64, 64), (1000, 1), (1000, 777)] {
            let (sum, largest) = covered(cut(1000, 777, tile, true), 10_000);
            assert_eq!(sum, 777_000);
            assert!(largest <= 10_000, "{tile:?}");
        }
    }

    #[test]
    fn compressed_tiles_are_never_split() {
        for portion in cut(1000, 777, (256, 128), false).portions(&[1, 2], SampleType::F32, 1 << 20) {
            assert!(portion.window.x % 256 == 0 && portion.window.y % 128 == 0);
        }
        assert_eq!(cut(1000, 777, (1000, 777), false).portions(&[1], SampleType::F64, 1000).count(), 1);
    }

    #[test]
    fn separate_planes_are_cut_apart() {
        let cut = TileLayout { separate: true, ..cut(10, 10, (10, 10), false) };
        let bands: Vec<Vec<u32>> =
            cut.portions(&[3, 1], SampleType::U8, 1 << 20).map(|portion| portion.bands).collect();
        assert_eq!(bands, [[3], [1]]);
    }
}
