//! Findings of the validator for sound, odd and damaged layouts.

use std::{sync::Arc, time::Instant};

use swath::{
    Limits, OpenOptions,
    io::MemorySource,
    validate::{Check, Report},
};

use crate::build::{Directory, File, Tag, open};

fn full(bytes: Vec<u8>) -> Report {
    open(bytes).unwrap().validate(Check::Full).unwrap()
}

fn overview(width: u32, height: u32) -> Directory {
    Directory::tiled(width, height, 16, |x, y| (x + 3 * y) as u8).with(254, Tag::Long(vec![1]))
}

/// An image of 64² with overviews of 32² and 16²: blocks of the largest come first, unlike in a COG.
fn pyramid() -> File {
    let main = Directory::tiled(64, 64, 16, |x, y| (x * y) as u8);
    File { directories: vec![main, overview(32, 32), overview(16, 16)], ..File::default() }
}

/// The offset of a LONG value of a directory's tag in a little-endian classic file.
fn entry_at(bytes: &[u8], ifd: usize, tag: u16) -> usize {
    let count = u16::from_le_bytes([bytes[ifd], bytes[ifd + 1]]) as usize;
    (0..count)
        .map(|index| ifd + 2 + index * 12)
        .find(|at| u16::from_le_bytes([bytes[*at], bytes[*at + 1]]) == tag)
        .unwrap()
        + 8
}

fn long(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn put(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

/// Where the entry of a tile is in the table of the first directory.
fn table_entry(bytes: &[u8], tag: u16, tile: usize) -> usize {
    long(bytes, entry_at(bytes, 8, tag)) as usize + 4 * tile
}

#[test]
fn single_small_image_is_a_cog_at_any_depth() {
    for (big, big_endian) in [(false, false), (true, false), (false, true), (true, true)] {
        let file = File { big, big_endian, directories: vec![Directory::tiled(40, 40, 16, |x, _| x as u8)] };
        let report = full(file.bytes());
        assert!(report.is_valid_strictly(), "{report:?}");
        assert_eq!(report.blocks.unwrap().count, 9);
        assert_eq!(report.ifd_offsets().collect::<Vec<_>>(), [if big { 16 } else { 8 }]);
    }
}

#[test]
fn blocks_of_large_levels_first_are_reported_level_by_level() {
    let dataset = pyramid().open().unwrap();
    let report = dataset.validate(Check::Structure).unwrap();
    assert_eq!(
        report.errors,
        [
            "The offset of the first block of overview of index 0 should be after the one of the overview of index 1",
            "The offset of the first block of the main resolution image should be after the one of the overview of index 1",
        ]
    );
    assert_eq!(report.levels.iter().map(|level| level.decimation).collect::<Vec<_>>(), [1, 2, 4]);
}

#[test]
fn strips_wider_than_512_need_tiles_and_overviews() {
    let strips = Directory {
        tags: vec![
            (256, Tag::Long(vec![600])),
            (257, Tag::Long(vec![4])),
            (258, Tag::Short(vec![8])),
            (259, Tag::Short(vec![1])),
            (262, Tag::Short(vec![1])),
            (278, Tag::Long(vec![4])),
        ],
        tiles: vec![vec![0; 2400]],
    };
    let report = full(File::of(strips).bytes());
    assert_eq!(report.errors, ["The file is greater than 512xH or 512xW, but is not tiled"]);
    assert_eq!(
        report.warnings,
        ["The file is greater than 512xH or 512xW, it is recommended to include internal overviews"]
    );
    assert!(!report.is_valid() && !report.is_valid_strictly());
}

#[test]
fn unsorted_and_disproportionate_overviews_are_reported() {
    let main = Directory::tiled(64, 64, 16, |_, _| 1);
    let file = File { directories: vec![main, overview(16, 16), overview(32, 60)], ..File::default() };
    let report = full(file.bytes());
    assert!(report.errors.iter().any(|error| error == "Overviews should be sorted"));
    let larger = "Overview of index 1 has larger dimension than overview of index 0";
    assert!(report.errors.iter().any(|error| error == larger));
    assert!(report.warnings.iter().any(|warning| warning.starts_with("Overview of index 1 has 32 x 60 pixels")));
}

#[test]
fn overview_as_large_as_the_image_is_an_invalid_decimation() {
    let file = File { directories: vec![Directory::tiled(32, 32, 16, |_, _| 1), overview(32, 32)], ..File::default() };
    let report = full(file.bytes());
    assert!(report.errors.iter().any(|error| error == "Invalid Decimation 1 for overview level 0"), "{report:?}");
}

#[test]
fn blocks_beyond_the_end_and_overlapping_blocks_are_reported() {
    let sound = File::of(Directory::tiled(64, 64, 16, |x, y| (x ^ y) as u8)).bytes();
    let second = table_entry(&sound, 324, 1);
    let report_with_offset = |offset: u32| {
        let mut bytes = sound.clone();
        put(&mut bytes, second, offset);
        full(bytes)
    };
    let size = sound.len() as u32;
    let beyond = report_with_offset(size - 10);
    assert!(beyond.errors[0].contains("block (1, 0) has 256 bytes"), "{beyond:?}");
    assert!(beyond.errors[0].contains(&format!("the file ends at byte {size}")));
    let third = long(&sound, second + 4);
    let twice = report_with_offset(third + 1);
    assert!(twice.errors.iter().any(|error| error.contains("overlaps Main resolution image: block")), "{twice:?}");
    let on_head = report_with_offset(12);
    assert!(on_head.errors.iter().any(|error| error.contains("overlaps the directory of IFD 0")), "{on_head:?}");
    // Equal tiles may be stored once.
    let shared = report_with_offset(third);
    assert!(shared.errors.is_empty(), "{shared:?}");
    assert_eq!(shared.blocks.unwrap().shared, 1);
}

#[test]
fn table_beyond_the_file_is_reported_and_the_rest_still_checked() {
    let mut bytes = pyramid().bytes();
    let pointer = entry_at(&bytes, 8, 324);
    let size = bytes.len() as u32;
    put(&mut bytes, pointer, size - 8);
    let report = full(bytes);
    assert!(
        report.errors.iter().any(|error| error.starts_with("Main resolution image: the table of tiles runs beyond"))
    );
    assert_eq!(report.blocks.unwrap().count, 5);
}

/// A file with a ghost area whose claims are all true.
fn with_ghost(edit: impl Fn(&str) -> String) -> Vec<u8> {
    let claims = "LAYOUT=IFDS_BEFORE_DATA\nBLOCK_ORDER=ROW_MAJOR\nBLOCK_LEADER=SIZE_AS_UINT4\n\
                  BLOCK_TRAILER=LAST_4_BYTES_REPEATED\nKNOWN_INCOMPATIBLE_EDITION=NO\n ";
    let claims = edit(claims);
    let ghost = format!("GDAL_STRUCTURAL_METADATA_SIZE={:06} bytes\n{claims}", claims.len());
    let tiles: Vec<Vec<u8>> = (0..4u8).map(|tile| (0..=255).map(|index| tile ^ index).collect()).collect();
    let mut bytes = File::of(Directory { tiles, ..Directory::tiled(32, 32, 16, |_, _| 0) }).bytes();
    let data = long(&bytes, table_entry(&bytes, 324, 0)) as usize;
    let pixels = bytes.split_off(data);
    let mut directory = bytes.split_off(8);
    bytes.extend(ghost.bytes());
    if bytes.len() % 2 == 1 {
        bytes.push(0);
    }
    let moved = bytes.len() as u32 - 8;
    put(&mut bytes, 4, 8 + moved);
    // Tables are outside the directory; both move with it, and the blocks make room for leaders and trailers.
    let mut whole = vec![0; 8];
    whole.append(&mut directory);
    for tag in [324, 325] {
        let at = entry_at(&whole, 8, tag);
        let table = long(&whole, at);
        if tag == 324 {
            for tile in 0..4 {
                let offset = data as u32 + moved + 4 + tile * 264;
                put(&mut whole, table as usize + 4 * tile as usize, offset);
            }
        }
        put(&mut whole, at, table + moved);
    }
    bytes.extend(&whole[8..]);
    for tile in pixels.chunks(256) {
        bytes.extend(256u32.to_le_bytes());
        bytes.extend(tile);
        bytes.extend(&tile[252..]);
    }
    bytes
}

#[test]
fn true_claims_of_the_ghost_are_accepted() {
    let report = full(with_ghost(str::to_owned));
    assert!(report.is_valid_strictly(), "{report:?}");
    assert!(report.claims("BLOCK_LEADER", "SIZE_AS_UINT4"));
}

#[test]
fn false_claims_of_the_ghost_are_reported_with_gdals_messages() {
    let sound = with_ghost(str::to_owned);
    let leader = sound.len() - 264;
    let mut bytes = sound.clone();
    bytes[leader] = 7;
    assert_eq!(
        full(bytes).errors,
        ["Main resolution image: for block (1, 1), size in leader bytes is 263 instead of 256"]
    );
    let mut bytes = sound.clone();
    *bytes.last_mut().unwrap() ^= 1;
    assert_eq!(full(bytes).errors, ["Main resolution image: for block (1, 1), trailer bytes are invalid"]);
    // The last trailer is cut off.
    assert_eq!(
        full(sound[..sound.len() - 2].to_vec()).errors,
        ["Main resolution image: for block (1, 1), trailer bytes are invalid"]
    );
    let ifd = long(&sound, 4) as usize;
    let table = long(&sound, entry_at(&sound, ifd, 324)) as usize;
    let (first, second) = (long(&sound, table), long(&sound, table + 4));
    let mut bytes = sound.clone();
    put(&mut bytes, table, second);
    put(&mut bytes, table + 4, first);
    assert_eq!(full(bytes).errors, ["Main resolution image: offset of block (1, 0) is smaller than previous block"]);
    let masked = with_ghost(|claims| format!("{claims}MASK_INTERLEAVED_WITH_IMAGERY=YES\n"));
    assert!(full(masked).errors[0].contains("there is no mask"));
}

#[test]
fn later_edits_are_reported_by_every_check() {
    let bytes = with_ghost(|claims| claims.replace("EDITION=NO\n ", "EDITION=YES\n"));
    let report = open(bytes).unwrap().validate(Check::Structure).unwrap();
    assert_eq!(
        report.errors,
        ["This file used to have optimizations in its layout, but those have been, at least partly, invalidated by \
             later changes"]
    );
}

#[test]
fn many_faults_of_a_kind_are_counted() {
    let mut bytes = File::of(Directory::tiled(160, 160, 16, |_, _| 0)).bytes();
    for tile in 0..100 {
        let at = table_entry(&bytes, 324, tile);
        put(&mut bytes, at, u32::MAX - tile as u32);
    }
    let report = full(bytes);
    let last = "Main resolution image: 90 more blocks lie beyond the end of the file";
    assert_eq!(report.errors.last().map(String::as_str), Some(last));
    assert!(report.errors.len() < 20);
}

#[test]
fn directories_that_share_one_long_table_are_not_searched_for_ever() {
    // 2000 directories of 250 000 sparse blocks, all in one table: half a billion entries in a file of two megabytes.
    let tiles = 500 * 500;
    let main = Directory::tiled(8000, 8000, 16, |_, _| 0)
        .with(324, Tag::Long(vec![0; tiles]))
        .with(325, Tag::Long(vec![0; tiles]));
    let main = Directory { tiles: Vec::new(), ..main };
    let mut bytes = File::of(main).bytes();
    let count = u16::from_le_bytes([bytes[8], bytes[9]]) as usize;
    let directory = bytes[8..8 + 2 + 12 * count + 4].to_vec();
    let mut link = 8 + 2 + 12 * count;
    for _ in 0..2000 {
        let at = bytes.len();
        put(&mut bytes, link, at as u32);
        bytes.extend(&directory);
        link = at + 2 + 12 * count;
    }
    put(&mut bytes, link, 0);
    let started = Instant::now();
    let report = full(bytes);
    assert!(started.elapsed().as_secs() < 10, "{:?}", started.elapsed());
    assert!(report.errors.iter().any(|error| error.contains("overlaps another directory's")), "{:?}", report.errors);
}

#[test]
fn every_byte_may_be_wrong() {
    let limits = Limits::default().with_ifds(64);
    let mask = Directory::tiled(32, 32, 16, |_, _| 1).with(254, Tag::Long(vec![4]));
    let masked = File { directories: vec![Directory::tiled(32, 32, 16, |_, _| 1), mask], ..File::default() };
    let mut slowest = std::time::Duration::ZERO;
    for seed in [with_ghost(str::to_owned), pyramid().bytes(), masked.bytes()] {
        for position in 0..seed.len() {
            for value in [0, 255, seed[position] ^ 1, seed[position] ^ 0x80] {
                let mut bytes = seed.clone();
                bytes[position] = value;
                let source = Arc::new(MemorySource::new("damaged.tif", bytes));
                let Ok(dataset) = OpenOptions::default().with_limits(limits.clone()).open_source(source) else {
                    continue;
                };
                let started = Instant::now();
                dataset.validate(Check::Full).unwrap();
                slowest = slowest.max(started.elapsed());
            }
        }
    }
    assert!(slowest.as_secs() < 5, "one try took {slowest:?}");
}
