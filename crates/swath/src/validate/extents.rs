//! Finds blocks that overlap each other or the directories, or lie before them.

use swath_tiff::tag;

use super::{
    BlockSummary, Report, SLICE,
    blocks::{CheckedDirectory, block_name},
    findings::{Fault, Findings},
};
use crate::{error::Error, open::dataset::Dataset};

/// Blocks that are sorted together: memory holds twice as many, 32 bytes each.
const BATCH: usize = 1 << 19;
/// Most table entries that are read again where there are more blocks than a batch. Each batch walks over all tables, so sixteen
/// million blocks are within this limit; beyond it only the first blocks of the file are compared.
const WORK: u64 = 1 << 29;

/// A block and the bytes it takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Span {
    start: u64,
    end: u64,
    directory: u32,
    index: u64,
}

/// Bytes of the head of the file: header, ghost area, directories, values of tags.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct HeadPart {
    start: u64,
    end: u64,
    /// Directory and tag, where it is theirs.
    ifd: Option<u32>,
    tag: Option<u16>,
}

impl HeadPart {
    fn name(&self) -> String {
        match (self.ifd, self.tag) {
            (None, _) => "the header of the file".to_owned(),
            (Some(ifd), None) => format!("the directory of IFD {ifd}"),
            (Some(ifd), Some(number)) => match tag::name(number) {
                Some(name) => format!("tag {number} ({name}) of IFD {ifd}"),
                None => format!("tag {number} of IFD {ifd}"),
            },
        }
    }
}

/// Compares the blocks with each other and with everything else in the file.
pub(super) fn check(
    dataset: &Dataset,
    report: &Report,
    directories: &[CheckedDirectory<'_>],
    found: &mut BlockSummary,
    findings: &mut Findings,
) -> Result<(), Error> {
    let parts = parts(dataset, report, findings)?;
    if let Some(first) = found.first
        && let Some(late) = parts.iter().find(|part| part.end > first)
    {
        let what = format!("{} at byte {} comes after the first block, at byte {first}", late.name(), late.start);
        if report.claims("LAYOUT", "IFDS_BEFORE_DATA") {
            findings.error(format!("LAYOUT=IFDS_BEFORE_DATA is declared in the file, but {what}"));
        } else {
            findings.warning(format!("Not all directories come before the blocks: {what}"));
        }
    }
    overlaps(dataset, directories, &merged(parts), found, findings)
}

/// Everything but blocks, by offset.
fn parts(dataset: &Dataset, report: &Report, findings: &mut Findings) -> Result<Vec<HeadPart>, Error> {
    let (header, count_len, entry_len, inline_len) = if dataset.header.big { (16, 8, 20, 8) } else { (8, 2, 12, 4) };
    let ghost = report.ghost.as_ref().map_or(0, |ghost| ghost.len);
    let mut parts = vec![HeadPart { start: 0, end: header + ghost, ifd: None, tag: None }];
    for (image, _) in dataset.images()? {
        let (start, ifd) = (image.ifd.offset, Some(image.index));
        let len = count_len + entry_len * image.ifd.entries.len() as u64 + inline_len;
        parts.push(HeadPart { start, end: start.saturating_add(len), ifd, tag: None });
        for entry in &image.ifd.entries {
            let len = entry.len().unwrap_or(u64::MAX);
            if len <= inline_len {
                continue;
            }
            let part =
                HeadPart { start: entry.offset, end: entry.offset.saturating_add(len), ifd, tag: Some(entry.tag) };
            if part.end > dataset.size() {
                // Readers ignore such a tag; tables of blocks are checked elsewhere.
                findings.warning(format!("{} runs beyond the end of the file", part.name()));
            } else {
                parts.push(part);
            }
        }
    }
    parts.sort_unstable();
    Ok(parts)
}

/// Joins parts that overlap, so that bisection finds those that a block overlaps.
fn merged(parts: Vec<HeadPart>) -> Vec<HeadPart> {
    let mut merged: Vec<HeadPart> = Vec::with_capacity(parts.len());
    for part in parts {
        match merged.last_mut() {
            Some(last) if part.start < last.end => last.end = last.end.max(part.end),
            _ => merged.push(part),
        }
    }
    merged
}

/// State of the sweep over the sorted blocks.
#[derive(Default)]
struct Sweep {
    /// The block that reaches furthest.
    furthest: Option<Span>,
    last: Option<Span>,
}

fn overlaps(
    dataset: &Dataset,
    directories: &[CheckedDirectory<'_>],
    parts: &[HeadPart],
    found: &mut BlockSummary,
    findings: &mut Findings,
) -> Result<(), Error> {
    let total = found.count.max(1);
    let walks = (WORK / total).max(1);
    let mut sweep = Sweep::default();
    let mut from = None;
    for _ in 0..walks {
        let (batch, next) = batch(dataset, directories, from)?;
        for span in batch {
            compare(directories, parts, span, &mut sweep, found, findings);
        }
        if next.is_none() {
            return Ok(());
        }
        from = next;
    }
    findings.warning(format!("There are too many blocks to compare all {total} with each other for overlaps"));
    Ok(())
}

/// The first blocks by offset, from `from` on, in order; and where the next batch begins, if there is one.
fn batch(
    dataset: &Dataset,
    directories: &[CheckedDirectory<'_>],
    from: Option<Span>,
) -> Result<(Vec<Span>, Option<Span>), Error> {
    let mut kept: Vec<Span> = Vec::new();
    let mut bound: Option<Span> = None;
    for (directory, number) in directories.iter().zip(0u32..) {
        let count = directory.image.grid.count();
        let mut at = 0;
        while at < count {
            let end = count.min(at + SLICE);
            let blocks = directory.image.stated(at..end, &dataset.fetch)?;
            for (index, block) in (at..end).zip(blocks) {
                // Blocks beyond the file are reported elsewhere.
                let Some((start, len)) = block else { continue };
                let Some(end) = start.checked_add(len).filter(|end| *end <= dataset.size()) else { continue };
                let span = Span { start, end, directory: number, index };
                if from.is_some_and(|from| span < from) || bound.is_some_and(|bound| span >= bound) {
                    continue;
                }
                kept.push(span);
                if kept.len() == 2 * BATCH {
                    let (_, middle, _) = kept.select_nth_unstable(BATCH);
                    bound = Some(*middle);
                    kept.truncate(BATCH);
                }
            }
            at = end;
        }
    }
    kept.sort_unstable();
    Ok((kept, bound))
}

fn compare(
    directories: &[CheckedDirectory<'_>],
    parts: &[HeadPart],
    span: Span,
    sweep: &mut Sweep,
    found: &mut BlockSummary,
    findings: &mut Findings,
) {
    let Some(directory) = directories.get(span.directory as usize) else { return };
    let whole = |span: &Span| match directories.get(span.directory as usize) {
        Some(directory) => {
            format!("{}: {} at byte {}", directory.name, block_name(directory.image, span.index), span.start)
        }
        None => String::new(),
    };
    let same = sweep.last.is_some_and(|last| (last.start, last.end) == (span.start, span.end));
    if same {
        // Equal tiles that are stored once.
        found.shared += 1;
    } else if let Some(other) = sweep.furthest.filter(|other| span.start < other.end) {
        findings.block(&directory.name, Fault::Overlap, || format!("{} overlaps {}", whole(&span), whole(&other)));
    }
    let part = parts.get(parts.partition_point(|part| part.end <= span.start));
    if let Some(part) = part.filter(|part| part.start < span.end) {
        findings.block(&directory.name, Fault::Overlap, || format!("{} overlaps {}", whole(&span), part.name()));
    }
    sweep.last = Some(span);
    if sweep.furthest.is_none_or(|other| span.end > other.end) {
        sweep.furthest = Some(span);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_inside_a_longer_one_do_not_hide_it() {
        let part = |start, end| HeadPart { start, end, ifd: None, tag: None };
        let merged = merged(vec![part(0, 100), part(10, 20), part(30, 40), part(100, 120), part(150, 160)]);
        assert_eq!(merged, [part(0, 100), part(100, 120), part(150, 160)]);
        assert_eq!(merged.get(merged.partition_point(|known| known.end <= 50)), Some(&part(0, 100)));
    }
}
