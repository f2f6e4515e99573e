//! Checks every block: its place according to the tables, and the bytes around it.

use std::{
    collections::{HashMap, HashSet},
    ops::Range,
};

use swath_io::{
    ReadInto,
    coalesce::{Merge, coalesce},
};

use super::{
    BlockSummary, Budget, Report, SLICE, extents,
    findings::{Fault, Findings},
};
use crate::{
    error::Error,
    open::{dataset::Dataset, image::Image},
};

/// Leaders and trailers this close are read together: a block's trailer and the next one's leader touch.
const MERGE: Merge = Merge { gap: 64, max_len: 64 << 10, waste: 100 };

/// A directory whose blocks are checked.
pub(super) struct CheckedDirectory<'a> {
    /// As GDAL's script names it.
    pub(super) name: String,
    pub(super) image: &'a Image,
    kind: Kind,
    /// The mask whose blocks should follow this directory's.
    mask: Option<&'a Image>,
}

/// The role of a directory in the pyramid. The ghost area describes the pyramid only.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Level,
    Mask,
    Other,
}

/// The statements of the ghost area about blocks.
#[derive(Clone, Copy)]
struct Claims {
    row_major: bool,
    leader: bool,
    trailer: bool,
    mask: bool,
}

/// Checks every block of every directory of the file.
pub(super) fn check<'a>(
    dataset: &'a Dataset,
    report: &Report,
    levels: &[(&'a Dataset, &'a Image)],
    masks: &HashMap<(u32, u32), &'a Image>,
    findings: &mut Findings,
) -> Result<BlockSummary, Error> {
    let claims = Claims {
        row_major: report.claims("BLOCK_ORDER", "ROW_MAJOR"),
        leader: report.claims("BLOCK_LEADER", "SIZE_AS_UINT4"),
        trailer: report.claims("BLOCK_TRAILER", "LAST_4_BYTES_REPEATED"),
        mask: report.claims("MASK_INTERLEAVED_WITH_IMAGERY", "YES"),
    };
    for problem in dataset.chain_problems()? {
        findings.error(Error::from(problem.clone()).to_string());
    }
    let mut directories = directories(dataset, levels, masks)?;
    if claims.mask {
        pair_masks(&mut directories, masks, findings);
    }
    let mut found = BlockSummary::default();
    let mut budget = Budget::of(dataset);
    let mut readable = Vec::new();
    for directory in directories {
        let count = directory.image.grid.count();
        if let Err(error) = directory.image.check_tables(count.saturating_sub(1), dataset.size()) {
            findings.error(format!("{}: {}", directory.name, error.kind()));
        } else if !budget.take(count) {
            findings.error(format!(
                "{}: its table of blocks overlaps another directory's; it was not checked",
                directory.name
            ));
        } else {
            walk(dataset, &directory, claims, &mut found, findings)?;
            readable.push(directory);
        }
    }
    extents::check(dataset, report, &readable, &mut found, findings)?;
    Ok(found)
}

/// The pyramid, each level followed by its mask, then all other directories.
fn directories<'a>(
    dataset: &'a Dataset,
    levels: &[(&'a Dataset, &'a Image)],
    masks: &HashMap<(u32, u32), &'a Image>,
) -> Result<Vec<CheckedDirectory<'a>>, Error> {
    let mut directories = Vec::new();
    let mut seen = HashSet::new();
    let mut add = |name: String, image: &'a Image, kind: Kind| {
        if seen.insert(image.index) {
            directories.push(CheckedDirectory { name, image, kind, mask: None });
        }
    };
    for (number, (source, image)) in levels.iter().enumerate() {
        if !std::ptr::eq(*source, dataset) {
            continue;
        }
        let (name, mask) = match number {
            0 => ("Main resolution image".to_owned(), "Mask band of main resolution image".to_owned()),
            _ => (format!("Overview {}", number - 1), format!("Mask band of overview {}", number - 1)),
        };
        add(name, image, Kind::Level);
        if let Some(image) = masks.get(&(image.layout.width, image.layout.height)) {
            add(mask, image, Kind::Mask);
        }
    }
    for (image, _) in dataset.images()? {
        add(format!("IFD {}", image.index), image, Kind::Other);
    }
    Ok(directories)
}

/// Finds the mask of each level, where the file says that masks lie between the blocks of their image.
fn pair_masks<'a>(
    directories: &mut [CheckedDirectory<'a>],
    masks: &HashMap<(u32, u32), &'a Image>,
    findings: &mut Findings,
) {
    for directory in directories.iter_mut().filter(|directory| directory.kind == Kind::Level) {
        let grid = &directory.image.grid;
        match masks.get(&(grid.width, grid.height)) {
            None => findings.error(format!(
                "{}: MASK_INTERLEAVED_WITH_IMAGERY=YES is declared in the file, but there is no mask",
                directory.name
            )),
            Some(mask) if (mask.grid.tile_width, mask.grid.tile_height) != (grid.tile_width, grid.tile_height) => {
                findings.error(format!("{}: mask block size is different from its imagery band", directory.name));
            }
            Some(mask) => directory.mask = Some(mask),
        }
    }
}

fn walk(
    dataset: &Dataset,
    directory: &CheckedDirectory<'_>,
    claims: Claims,
    found: &mut BlockSummary,
    findings: &mut Findings,
) -> Result<(), Error> {
    let image = directory.image;
    let plane_len = u64::from(image.grid.across) * u64::from(image.grid.down);
    let mask = directory.mask.filter(|mask| mask.check_tables(plane_len.saturating_sub(1), dataset.size()).is_ok());
    for plane in 0..u64::from(image.grid.planes) {
        let base = plane * plane_len;
        // Row by row holds for each plane: planes may follow each other, or take turns (INTERLEAVE=TILE).
        let mut last = 0;
        let mut at = 0;
        while at < plane_len {
            let end = plane_len.min(at + SLICE);
            let blocks = image.stated(base + at..base + end, &dataset.fetch)?;
            let first = base + at;
            check_stated(dataset, directory, first, &blocks, found, findings);
            if directory.kind != Kind::Other {
                check_order(directory, claims, first, &blocks, &mut last, findings);
                check_surroundings(dataset, directory, claims, first, &blocks, findings)?;
            }
            // The mask of a pixel is one for all planes: it follows the last.
            if let (Some(mask), true) = (mask, plane + 1 == u64::from(image.grid.planes)) {
                let masks = mask.stated(at..end, &dataset.fetch)?;
                interleaving(directory, claims, first, &blocks, &masks, findings);
            }
            at = end;
        }
    }
    Ok(())
}

type Stated = Option<(u64, u64)>;

/// `block (3, 2)`, with the plane where there are several.
pub(super) fn block_name(image: &Image, index: u64) -> String {
    let (column, row, plane) = image.grid.position(index);
    if image.grid.planes > 1 {
        format!("block ({column}, {row}) of plane {plane}")
    } else {
        format!("block ({column}, {row})")
    }
}

fn present(first: u64, blocks: &[Stated]) -> impl Iterator<Item = (u64, u64, u64)> {
    (first..).zip(blocks).filter_map(|(index, block)| block.map(|(offset, len)| (index, offset, len)))
}

/// Counts blocks, and checks that they lie inside the file.
fn check_stated(
    dataset: &Dataset,
    directory: &CheckedDirectory<'_>,
    first: u64,
    blocks: &[Stated],
    found: &mut BlockSummary,
    findings: &mut Findings,
) {
    found.count += blocks.len() as u64;
    found.sparse += blocks.iter().filter(|block| block.is_none()).count() as u64;
    let size = dataset.size();
    for (index, offset, len) in present(first, blocks) {
        found.first = Some(found.first.map_or(offset, |first| first.min(offset)));
        if offset.checked_add(len).is_none_or(|end| end > size) {
            findings.block(&directory.name, Fault::End, || {
                let block = block_name(directory.image, index);
                format!(
                    "{}: {block} has {len} bytes at byte {offset}, but the file ends at byte {size}",
                    directory.name
                )
            });
        }
    }
}

/// Checks that blocks come in the order of their numbers, where the file claims it.
fn check_order(
    directory: &CheckedDirectory<'_>,
    claims: Claims,
    first: u64,
    blocks: &[Stated],
    last: &mut u64,
    findings: &mut Findings,
) {
    if !claims.row_major {
        return;
    }
    for (index, offset, _) in present(first, blocks) {
        if offset < *last {
            findings.block(&directory.name, Fault::Order, || {
                format!(
                    "{}: offset of {} is smaller than previous block",
                    directory.name,
                    block_name(directory.image, index)
                )
            });
        }
        *last = offset;
    }
}

/// The bytes around a block to read.
struct Wanted {
    block: u64,
    len: u64,
    leader: bool,
}

/// Leader and trailer bytes: four bytes with the length before a block, its last four bytes once more after it.
fn check_surroundings(
    dataset: &Dataset,
    directory: &CheckedDirectory<'_>,
    claims: Claims,
    first: u64,
    blocks: &[Stated],
    findings: &mut Findings,
) -> Result<(), Error> {
    let size = dataset.size();
    let name = &directory.name;
    let bad_trailer =
        |index: u64| format!("{name}: for {}, trailer bytes are invalid", block_name(directory.image, index));
    let (mut ranges, mut wanted): (Vec<Range<u64>>, Vec<Wanted>) = (Vec::new(), Vec::new());
    for (block, offset, len) in present(first, blocks) {
        if let (true, Some(start)) = (claims.leader && offset <= size, offset.checked_sub(4)) {
            ranges.push(start..offset);
            wanted.push(Wanted { block, len, leader: true });
        }
        // Blocks that end beyond the file are reported elsewhere.
        let Some(end) = offset.checked_add(len).filter(|end| claims.trailer && len >= 4 && *end <= size) else {
            continue;
        };
        if size - end < 4 {
            findings.block(name, Fault::Trailer, || bad_trailer(block));
            continue;
        }
        ranges.push(end - 4..end + 4);
        wanted.push(Wanted { block, len, leader: false });
    }
    let merged = coalesce(&ranges, MERGE);
    let len = |range: &Range<u64>| usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
    let mut buffers: Vec<Vec<u8>> = merged.iter().map(|merged| vec![0; len(&merged.range)]).collect();
    let mut reads: Vec<ReadInto<'_>> = merged
        .iter()
        .zip(&mut buffers)
        .map(|(merged, buffer)| ReadInto { offset: merged.range.start, buffer: buffer.as_mut_slice() })
        .collect();
    dataset.fetch.source.read_many(&mut reads)?;
    for (merged, buffer) in merged.iter().zip(&buffers) {
        for member in &merged.members {
            let (Some(range), Some(wanted)) = (ranges.get(*member), wanted.get(*member)) else { continue };
            let skip = len(&(merged.range.start..range.start));
            let bytes = buffer.get(skip..skip + len(range)).unwrap_or_default();
            if wanted.leader {
                let stated = bytes.first_chunk::<4>().copied().map(u32::from_le_bytes).unwrap_or_default();
                if u64::from(stated) != wanted.len {
                    findings.block(name, Fault::Leader, || {
                        let block = block_name(directory.image, wanted.block);
                        format!("{name}: for {block}, size in leader bytes is {stated} instead of {}", wanted.len)
                    });
                }
            } else if bytes.get(..4) != bytes.get(4..) {
                findings.block(name, Fault::Trailer, || bad_trailer(wanted.block));
            }
        }
    }
    Ok(())
}

/// A block of the mask follows the block of the image that it belongs to.
fn interleaving(
    directory: &CheckedDirectory<'_>,
    claims: Claims,
    first: u64,
    blocks: &[Stated],
    masks: &[Stated],
    findings: &mut Findings,
) {
    let between = if claims.leader { 4 } else { 0 } + if claims.trailer { 4 } else { 0 };
    for (index, (block, mask)) in (first..).zip(blocks.iter().zip(masks)) {
        let (Some((offset, len)), Some((mask, _))) = (block, mask) else { continue };
        let expected = offset.saturating_add(*len).saturating_add(between);
        if *mask != expected {
            findings.block(&directory.name, Fault::Mask, || {
                let block = block_name(directory.image, index);
                format!("Mask of {}: for {block}, offset is {mask}, whereas {expected} was expected", directory.name)
            });
        }
    }
}
