//! Chains, overviews and pages.

use swath::{ReadOptions, tiff::Role};

use crate::build::{Directory, File, Tag, open};

fn pyramid() -> File {
    let level = |size: u32, kind: u32, value: u8| {
        Directory::tiled(size, size, 16, move |_, _| value).with(254, Tag::Long(vec![kind]))
    };
    let mask = level(64, 4, 1).with(262, Tag::Short(vec![4]));
    File { directories: vec![level(64, 0, 1), level(32, 1, 2), level(16, 1, 3), mask], ..File::default() }
}

#[test]
fn overviews_are_found_and_read() {
    let dataset = pyramid().open().unwrap();
    let overviews = dataset.overviews().unwrap();
    assert_eq!(overviews.iter().map(|overview| overview.width).collect::<Vec<_>>(), [32, 16]);
    let raster = dataset.read(&ReadOptions::default().with_overview(1)).unwrap();
    assert_eq!((raster.width(), raster.bytes()[0]), (16, 3));
    assert!(dataset.read(&ReadOptions::default().with_overview(2)).is_err());
    let best = |size| dataset.best_overview(size, size).unwrap();
    assert_eq!(
        [best(64), best(33), best(32), best(17), best(16), best(1)],
        [None, None, Some(0), Some(0), Some(1), Some(1)]
    );
    let roles: Vec<Role> = dataset.images().unwrap().map(|(_, role)| role).collect();
    assert_eq!(roles, [Role::Main, Role::Overview, Role::Overview, Role::Mask]);
}

#[test]
fn damaged_second_page_leaves_the_first_readable() {
    let mut file = pyramid();
    file.directories[1] = file.directories[1].clone().with(256, Tag::Long(vec![0]));
    let dataset = file.open().unwrap();
    assert_eq!(dataset.read(&ReadOptions::default()).unwrap().bytes()[0], 1);
    assert_eq!(dataset.overviews().unwrap().len(), 1);
    let problems = dataset.chain_problems().unwrap();
    assert_eq!(problems.len(), 1);
    assert_eq!(problems[0].place().ifd, Some(1));
}

#[test]
fn loop_of_directories_ends() {
    let mut bytes = pyramid().bytes();
    // The first directory's pointer to the next follows its entries; point it at itself.
    let count = u16::from_le_bytes([bytes[8], bytes[9]]) as usize;
    let next = 10 + count * 12;
    bytes[next..next + 4].copy_from_slice(&8u32.to_le_bytes());
    let dataset = open(bytes).unwrap();
    assert!(dataset.overviews().unwrap().is_empty());
    assert!(dataset.chain_problems().unwrap()[0].to_string().contains("loop"));
}

#[test]
fn sub_directories_that_share_a_chain_are_visited_once() {
    // A chain of 200 directories, each of which names the same two hundred as its own.
    let mut file = File::default();
    for _ in 0..200 {
        file.directories.push(Directory::tiled(16, 16, 16, |_, _| 1).with(330, Tag::Long(vec![0; 200])));
    }
    let mut bytes = file.bytes();
    let mut offsets = vec![8u32];
    loop {
        let at = offsets[offsets.len() - 1] as usize;
        let count = u16::from_le_bytes([bytes[at], bytes[at + 1]]) as usize;
        let end = at + 2 + count * 12;
        let next = u32::from_le_bytes(bytes[end..end + 4].try_into().unwrap());
        if next == 0 {
            break;
        }
        offsets.push(next);
    }
    for at in &offsets {
        let count = u16::from_le_bytes([bytes[*at as usize], bytes[*at as usize + 1]]) as usize;
        for entry in 0..count {
            let entry = *at as usize + 2 + entry * 12;
            if bytes[entry..entry + 2] == 330u16.to_le_bytes() {
                let value = u32::from_le_bytes(bytes[entry + 8..entry + 12].try_into().unwrap()) as usize;
                for (index, offset) in offsets.iter().enumerate() {
                    bytes[value + index * 4..value + index * 4 + 4].copy_from_slice(&offset.to_le_bytes());
                }
            }
        }
    }
    let dataset = open(bytes).unwrap();
    assert_eq!(dataset.images().unwrap().count(), 200);
}

/// Two pages, each with a smaller copy of its own in SubIFDs.
#[test]
fn overviews_of_another_page_are_not_the_first_ones() {
    let page = |value: u8| Directory::tiled(64, 64, 16, move |_, _| value).with(330, Tag::Long(vec![0]));
    let small = |value: u8| Directory::tiled(32, 32, 16, move |_, _| value).with(254, Tag::Long(vec![1]));
    let file = File { directories: vec![page(1), page(2), small(11), small(12)], ..File::default() };
    let mut bytes = file.bytes();
    // The four directories as a chain; the first two then name the last two as their own, and the chain ends after two.
    let word = |bytes: &[u8], at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let end = |bytes: &[u8], at: usize| at + 2 + u16::from_le_bytes([bytes[at], bytes[at + 1]]) as usize * 12;
    let mut offsets = vec![8usize];
    while offsets.len() < 4 {
        let last = offsets[offsets.len() - 1];
        offsets.push(word(&bytes, end(&bytes, last)) as usize);
    }
    for (parent, child) in [(0, 2), (1, 3)] {
        let at = offsets[parent];
        let entry =
            (at + 2..end(&bytes, at)).step_by(12).find(|entry| bytes[*entry..*entry + 2] == 330u16.to_le_bytes());
        let value = entry.unwrap() + 8;
        bytes[value..value + 4].copy_from_slice(&(offsets[child] as u32).to_le_bytes());
    }
    for index in [1, 2] {
        let next = end(&bytes, offsets[index]);
        bytes[next..next + 4].fill(0);
    }
    let dataset = open(bytes).unwrap();
    assert_eq!(dataset.overviews().unwrap().len(), 1);
    assert_eq!(dataset.read(&ReadOptions::default().with_overview(0)).unwrap().bytes()[0], 11);
    assert_eq!(dataset.read(&ReadOptions::default().with_ifd(1)).unwrap().bytes()[0], 2);
}
