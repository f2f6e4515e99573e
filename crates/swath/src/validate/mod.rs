//! Whether a file is laid out as a cloud optimized GeoTIFF.
//!
//! [`Check::Structure`] runs the checks of `rio cogeo validate`, with the same messages in the same order, because scripts look for
//! them. [`Check::Full`] adds the checks of GDAL's `validate_cloud_optimized_geotiff.py --full-check=yes`, and finds blocks that lie
//! beyond the file or overlap each other or the directories.

mod blocks;
mod extents;
mod findings;

use std::collections::HashMap;

use swath_tiff::structure::ghost::Ghost;

use crate::{
    error::Error,
    open::{
        dataset::Dataset,
        image::{Image, Role},
    },
};
use findings::Findings;

/// How much to check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Check {
    /// Directories and the first block of each: a few reads.
    #[default]
    Structure,
    /// Every table and every block's surroundings too; the time grows with the number of blocks. No block is decoded.
    Full,
}

/// The result of [`Dataset::validate`].
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Report {
    /// The check that was run.
    pub check: Check,
    /// Why the file is not a COG.
    pub errors: Vec<String>,
    /// Things that a COG may have but should avoid.
    pub warnings: Vec<String>,
    /// GDAL's description of the layout.
    pub ghost: Option<Ghost>,
    /// The first image, then its overviews in the order of their directories.
    pub levels: Vec<Level>,
    /// Directories that describe pixels: images, overviews, masks and pages.
    pub ifds: usize,
    /// The blocks that [`Check::Full`] checked.
    pub blocks: Option<BlockSummary>,
}

/// The first image or an overview.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Level {
    /// Directory, in the `.ovr` file for an external one.
    pub ifd: u32,
    /// Whether it is in the `.ovr` file beside this one.
    pub external: bool,
    /// Columns.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// Columns of a block.
    pub tile_width: u32,
    /// Rows of a block.
    pub tile_height: u32,
    /// Whether blocks are tiles rather than strips.
    pub tiled: bool,
    /// Columns of the first image for one of this level, rounded; 1 for the first image.
    pub decimation: u32,
    /// Where its directory is.
    pub ifd_offset: u64,
    /// Where its first block is; `None` when all are sparse or the tables cannot be read.
    pub data_offset: Option<u64>,
    /// Directory of its mask in this file.
    pub mask: Option<u32>,
}

/// The blocks that a full check checked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BlockSummary {
    /// Blocks of all directories.
    pub count: u64,
    /// Blocks without bytes.
    pub sparse: u64,
    /// Blocks that share their bytes with another block. This is valid: equal tiles need to be stored only once.
    pub shared: u64,
    /// Offset of the first block.
    pub first: Option<u64>,
}

impl Report {
    /// Whether there are no errors.
    pub fn is_valid(&self) -> bool {
        self.errors.is_empty()
    }

    /// Whether there are neither errors nor warnings.
    pub fn is_valid_strictly(&self) -> bool {
        self.is_valid() && self.warnings.is_empty()
    }

    /// Where the directories of all levels are.
    pub fn ifd_offsets(&self) -> impl Iterator<Item = u64> {
        self.levels.iter().map(|level| level.ifd_offset)
    }

    /// Where the first blocks of all levels are.
    pub fn data_offsets(&self) -> impl Iterator<Item = Option<u64>> {
        self.levels.iter().map(|level| level.data_offset)
    }

    /// Whether the file claims this in its ghost area.
    pub fn claims(&self, key: &str, value: &str) -> bool {
        self.ghost.as_ref().is_some_and(|ghost| ghost.get(key) == Some(value))
    }
}

impl Dataset {
    /// Checks whether the file is laid out as a cloud optimized GeoTIFF.
    ///
    /// This function returns no error for a file that is not a COG; [`Report::errors`] says why it is not one.
    /// Memory is bounded for any file: tables are read in slices, messages of one kind are only counted beyond some number, and
    /// the search for overlaps of [`Check::Full`] sorts half a million blocks at a time.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), swath::Error> {
    /// use swath::{Dataset, validate::Check};
    ///
    /// let report = Dataset::open("cog.tif")?.validate(Check::Full)?;
    /// for error in &report.errors {
    ///     eprintln!("{error}");
    /// }
    /// println!("valid: {}", report.is_valid());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// When bytes cannot be read.
    pub fn validate(&self, check: Check) -> Result<Report, Error> {
        validate(self, check)
    }
}

fn validate(dataset: &Dataset, check: Check) -> Result<Report, Error> {
    let run = || {
        let levels = levels(dataset)?;
        let mut budget = Budget::of(dataset);
        let mut report = Report {
            check,
            ghost: dataset.ghost()?,
            ifds: dataset.images()?.count(),
            levels: levels
                .iter()
                .map(|(source, image)| level(dataset, source, image, &mut budget))
                .collect::<Result<_, Error>>()?,
            ..Report::default()
        };
        let masks = masks(dataset)?;
        for level in report.levels.iter_mut().filter(|level| !level.external) {
            level.mask = masks.get(&(level.width, level.height)).map(|mask| mask.index);
        }
        let mut findings = Findings::default();
        structure(dataset, &report, &mut findings);
        if check == Check::Full {
            proportions(dataset, &report, &mut findings);
            report.blocks = Some(blocks::check(dataset, &report, &levels, &masks, &mut findings)?);
        }
        (report.errors, report.warnings) = findings.into_lists();
        Ok(report)
    };
    run().map_err(|error: Error| error.in_source(&dataset.name))
}

/// Limit on the table entries that are checked. Tables that do not overlap have at least four bytes a block, so only a hostile file,
/// whose directories share tables, reaches it.
#[derive(Debug)]
struct Budget(u64);

impl Budget {
    fn of(dataset: &Dataset) -> Self {
        // One-block directories keep both entries inside themselves, and a length may be missing.
        Self((dataset.size() / 4).saturating_add(1 << 17))
    }

    /// Takes `entries` from the rest; returns whether there were enough.
    fn take(&mut self, entries: u64) -> bool {
        let left = self.0.checked_sub(entries);
        self.0 = left.unwrap_or(0);
        left.is_some()
    }
}

/// Entries of a table that are looked at together.
const SLICE: u64 = 4096;

/// The first image and its overviews in the order of the chain, as GDAL counts them; those beside the file where it has
/// none itself.
fn levels(dataset: &Dataset) -> Result<Vec<(&Dataset, &Image)>, Error> {
    let main = dataset.main();
    let mut found = vec![(dataset, main)];
    for (image, role) in dataset.images()? {
        // Readers take one of the same size for a page; here it counts as a broken overview.
        let same_size = (image.layout.width, image.layout.height) == (main.layout.width, main.layout.height);
        let misfit = role == Role::Page && image.layout.is_reduced() && same_size;
        if role == Role::Overview || (misfit && image.layout.samples == main.layout.samples) {
            found.push((dataset, image));
        }
    }
    if let (1, Some(beside)) = (found.len(), dataset.sidecars().overviews()) {
        for (image, role) in beside.images()? {
            if matches!(role, Role::Main | Role::Overview) {
                found.push((beside, image));
            }
        }
    }
    Ok(found)
}

/// Masks by their size: a level's mask is the first that is as large.
fn masks(dataset: &Dataset) -> Result<HashMap<(u32, u32), &Image>, Error> {
    let mut masks = HashMap::new();
    for (image, role) in dataset.images()? {
        if role == Role::Mask {
            masks.entry((image.layout.width, image.layout.height)).or_insert(image);
        }
    }
    Ok(masks)
}

fn level(dataset: &Dataset, source: &Dataset, image: &Image, budget: &mut Budget) -> Result<Level, Error> {
    let ratio = f64::from(dataset.width()) / f64::from(image.layout.width.max(1));
    Ok(Level {
        ifd: image.index,
        external: !std::ptr::eq(dataset, source),
        width: image.layout.width,
        height: image.layout.height,
        tile_width: image.layout.tile_width,
        tile_height: image.layout.tile_height,
        tiled: image.layout.tiled,
        // Half to even, as Python rounds for rasterio.
        decimation: ratio.round_ties_even() as u32,
        ifd_offset: image.ifd.offset,
        data_offset: first_block(source, image, budget)?,
        mask: None,
    })
}

/// Returns where the first block of the first plane is; `None` where the tables cannot be read, which the full check reports.
fn first_block(dataset: &Dataset, image: &Image, budget: &mut Budget) -> Result<Option<u64>, Error> {
    let count = u64::from(image.grid.across) * u64::from(image.grid.down);
    let mut at = 0;
    // Few blocks are sparse: the first slice is short.
    let mut step = 16;
    while at < count {
        let end = count.min(at + step);
        if image.check_tables(end - 1, dataset.size()).is_err() || !budget.take(end - at) {
            return Ok(None);
        }
        if let Some((offset, _)) = image.stated(at..end, &dataset.fetch)?.into_iter().flatten().next() {
            return Ok(Some(offset));
        }
        at = end;
        step = SLICE;
    }
    Ok(None)
}

/// The checks of rio-cogeo, in its order and with its messages.
fn structure(dataset: &Dataset, report: &Report, findings: &mut Findings) {
    let Some((main, overviews)) = report.levels.split_first() else { return };
    let itself =
        std::path::Path::new(dataset.name()).extension().is_some_and(|known| known.eq_ignore_ascii_case("ovr"));
    if itself || dataset.sidecars().overviews().is_some() {
        findings.error("Overviews found in external .ovr file. They should be internal");
    }
    let large = |level: &Level| level.width > 512 || level.height > 512;
    // A tile as wide as the image is a strip to a reader of windows.
    let striped = |level: &Level| large(level) && level.tile_width == level.width;
    if striped(main) {
        findings.error("The file is greater than 512xH or 512xW, but is not tiled");
    }
    if large(main) && overviews.is_empty() {
        findings.warning("The file is greater than 512xH or 512xW, it is recommended to include internal overviews");
    }
    if main.ifd_offset > 300 {
        findings.error(format!("The offset of the main IFD should be < 300. It is {} instead", main.ifd_offset));
    }
    if report.claims("KNOWN_INCOMPATIBLE_EDITION", "YES") {
        findings.error(
            "This file used to have optimizations in its layout, but those have been, at least partly, invalidated by \
             later changes",
        );
    }
    if !overviews.is_sorted_by_key(|level| level.decimation) {
        findings.error("Overviews should be sorted");
    }
    let mut above = main;
    for (index, level) in overviews.iter().enumerate() {
        if level.decimation <= 1 {
            findings.error(format!("Invalid Decimation {} for overview level {index}", level.decimation));
        }
        if level.ifd_offset < above.ifd_offset {
            let whose = match index {
                0 => "the main image".to_owned(),
                index => format!("index {}", index - 1),
            };
            findings.error(format!(
                "The offset of the IFD for overview of index {index} is {}, whereas it should be greater than the one \
                 of {whose}, which is at byte {}",
                level.ifd_offset, above.ifd_offset
            ));
        }
        above = level;
    }
    data_order(main, overviews, findings);
    for (index, level) in overviews.iter().enumerate() {
        if striped(level) {
            findings.error(format!("Overview of index {index} is not tiled"));
        }
    }
}

/// Blocks come after the directories, the smallest overview's first.
fn data_order(main: &Level, overviews: &[Level], findings: &mut Findings) {
    // Levels without a block are left out.
    let found: Vec<(usize, u64)> = std::iter::once(main)
        .chain(overviews)
        .enumerate()
        .filter_map(|(index, level)| Some((index, level.data_offset?)))
        .collect();
    let last_ifd = overviews.last().unwrap_or(main).ifd_offset;
    if found.last().is_some_and(|(_, offset)| *offset < last_ifd) {
        let whose = if overviews.is_empty() { "image" } else { "smallest overview" };
        findings.error(format!("The offset of the first block of the {whose} should be after its IFD"));
    }
    // Numbers in the sentences count overviews, those in `found` levels.
    for pair in found.windows(2).rev() {
        let &[(larger, offset), (smaller, next)] = pair else { continue };
        if offset >= next {
            continue;
        }
        findings.error(match larger {
            // The one overview that the sentence names is the smallest, whichever it was compared with.
            0 => format!(
                "The offset of the first block of the main resolution image should be after the one of the overview of \
                 index {}",
                overviews.len().saturating_sub(1)
            ),
            _ => format!(
                "The offset of the first block of overview of index {} should be after the one of the overview of \
                 index {}",
                larger - 1,
                smaller - 1
            ),
        });
    }
}

/// Where the first directory should be, and whether overviews are smaller and smaller copies.
fn proportions(dataset: &Dataset, report: &Report, findings: &mut Findings) {
    let Some((main, overviews)) = report.levels.split_first() else { return };
    let header = if dataset.header.big { 16 } else { 8 };
    // Directories begin at even offsets.
    let expected = (header + report.ghost.as_ref().map_or(0, |ghost| ghost.len)).next_multiple_of(2);
    // A directory right after the header is well placed, whatever the ghost area claims.
    if main.ifd_offset != expected && main.ifd_offset != header {
        findings.error(format!("The offset of the main IFD should be {expected}. It is {} instead", main.ifd_offset));
    }
    let mut above = main;
    for (index, level) in overviews.iter().enumerate() {
        if level.width > above.width || level.height > above.height {
            findings.error(match index {
                0 => "First overview has larger dimension than main band".to_owned(),
                _ => format!("Overview of index {index} has larger dimension than overview of index {}", index - 1),
            });
        } else if (level.width, level.height) == (above.width, above.height) && index > 0 {
            findings.warning(format!("Overview of index {index} is as large as overview of index {}", index - 1));
        }
        if !proportional((main.width, main.height), (level.width, level.height)) {
            findings.warning(format!(
                "Overview of index {index} has {} x {} pixels, but an image of {} x {} pixels that is reduced by one \
                 factor in both directions never has this size",
                level.width, level.height, main.width, main.height
            ));
        }
        above = level;
    }
}

/// Whether one factor leads from one size to the other, when each side may have been rounded up or down.
fn proportional(whole: (u32, u32), part: (u32, u32)) -> bool {
    let factors = |whole: u32, part: u32| {
        let (whole, part) = (f64::from(whole), f64::from(part));
        // A side of one pixel is as small as a side gets.
        let most = if part > 1.0 { whole / (part - 1.0) } else { f64::INFINITY };
        (whole / (part + 1.0), most)
    };
    let (across, down) = (factors(whole.0, part.0), factors(whole.1, part.1));
    across.0 <= down.1 && down.0 <= across.1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_of_either_side_is_no_disproportion() {
        for part in [(651, 750), (650, 750), (325, 375), (326, 376), (1, 1), (5, 6)] {
            assert!(proportional((1301, 1500), part), "{part:?}");
        }
        for part in [(650, 375), (100, 750), (1, 750)] {
            assert!(!proportional((1301, 1500), part), "{part:?}");
        }
    }
}
