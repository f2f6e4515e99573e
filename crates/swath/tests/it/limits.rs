//! No file exceeds the limits.

use std::{sync::Arc, time::Instant};

use swath::{
    ErrorKind, Limits, OpenOptions, ReadOptions, Window,
    io::{Access, MemorySource, ReadInto, Source, SourceError},
};

use crate::build::{Directory, File, Tag};

fn open_with(bytes: Vec<u8>, limits: Limits) -> Result<swath::Dataset, swath::Error> {
    OpenOptions::default().with_limits(limits).open_source(Arc::new(MemorySource::new("limits.tif", bytes)))
}

/// 200 bytes that declare four billion pixels.
fn declared(width: u32, height: u32) -> Vec<u8> {
    let directory = Directory {
        tags: vec![(256, Tag::Long(vec![width])), (257, Tag::Long(vec![height])), (258, Tag::Short(vec![8]))],
        tiles: vec![vec![0; 20]],
    };
    File::of(directory).bytes()
}

#[test]
fn tiny_file_that_declares_billions_of_pixels_fails_at_once() {
    let bytes = declared(65_536, 65_536);
    assert!(bytes.len() <= 200);
    let started = Instant::now();
    let dataset = open_with(bytes, Limits::default()).unwrap();
    let error = dataset.read(&ReadOptions::default()).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Limit(_)), "{error}");
    assert_eq!(error.limit(), Some("expansion"));
    assert!(error.to_string().contains("raise Limits::expansion"), "the error must say what to raise: {error}");
    let message = error.message_with(|field| Some(format!("give --{field}")));
    assert!(message.ends_with("(give --expansion)") && !message.contains("Limits"), "{message}");
    assert!(started.elapsed().as_secs() < 5);
    // With lifted limits the next error appears: the bytes are missing.
    let dataset = open_with(declared(65_536, 65_536), Limits::none()).unwrap();
    let error = dataset.read(&ReadOptions::default().with_window(Window::new(0, 0, 65_536, 1))).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Malformed(_)), "{error}");
}

#[test]
fn each_limit_holds_at_the_limit_and_one_beyond() {
    let file = File::of(Directory::tiled(32, 32, 16, |_, _| 1).deflated()).bytes();
    let read = |limits: Limits| open_with(file.clone(), limits)?.read(&ReadOptions::default()).map(|_| ());
    assert!(read(Limits::default().with_decoded_bytes(1024)).is_ok());
    assert!(read(Limits::default().with_decoded_bytes(1023)).is_err());
    assert!(read(Limits::default().with_tile_bytes(256)).is_ok());
    assert!(read(Limits::default().with_tile_bytes(255)).is_err());

    let mut pages = File::of(Directory::tiled(16, 16, 16, |_, _| 1));
    pages.directories = vec![pages.directories[0].clone(); 3];
    let count = |limit: u32| {
        let dataset = open_with(pages.bytes(), Limits::default().with_ifds(limit)).unwrap();
        (dataset.images().unwrap().count(), dataset.chain_problems().unwrap().len())
    };
    assert_eq!(count(3), (3, 0));
    assert_eq!(count(2), (2, 1));

    let text: &'static str = "0123456789012345678901234567890123456789";
    let tagged = File::of(Directory::tiled(16, 16, 16, |_, _| 1).with(270, Tag::Ascii(text))).bytes();
    let tag = |limit: u64| open_with(tagged.clone(), Limits::default().with_tag_bytes(limit)).unwrap().tag(270).is_ok();
    assert!(tag(41));
    assert!(!tag(40));
}

#[test]
fn dimensions_at_the_edges_of_integers_are_errors_not_overflows() {
    let edges = [0, 1, u32::from(u16::MAX), 1 << 16, (1 << 31) - 1, 1 << 31, u32::MAX];
    for width in edges {
        for height in edges {
            for tile in edges {
                for bits in [1, 8, 64] {
                    let directory = Directory {
                        tags: vec![
                            (256, Tag::Long(vec![width])),
                            (257, Tag::Long(vec![height])),
                            (258, Tag::Short(vec![bits])),
                            (277, Tag::Short(vec![1])),
                            (322, Tag::Long(vec![tile])),
                            (323, Tag::Long(vec![tile])),
                        ],
                        tiles: vec![vec![0; 64]],
                    };
                    if let Ok(dataset) = File::of(directory).open() {
                        let options = ReadOptions::default().with_window(Window::new(0, 0, 1, 1));
                        let _ = dataset.read(&options);
                        let _ = dataset.read(&ReadOptions::default());
                    }
                }
            }
        }
    }
}

#[test]
fn no_list_of_tiles_is_made_for_a_missing_table() {
    // Two hundred million tiles of one pixel, and a table of one.
    let directory = Directory {
        tags: vec![
            (256, Tag::Long(vec![150_000_000])),
            (257, Tag::Long(vec![1])),
            (258, Tag::Short(vec![8])),
            (322, Tag::Long(vec![1])),
            (323, Tag::Long(vec![1])),
        ],
        tiles: vec![vec![7]],
    };
    let error = File::of(directory).open().unwrap().read(&ReadOptions::default()).unwrap_err();
    assert!(error.to_string().contains("table"), "{error}");
}

#[test]
fn oversized_tile_is_refused_even_for_a_small_window() {
    let directory = Directory::tiled(16, 16, 16, |_, _| 0)
        .with(322, Tag::Long(vec![1 << 16]))
        .with(323, Tag::Long(vec![1 << 16]))
        .deflated();
    let dataset = File::of(directory).open().unwrap();
    let error = dataset.read(&ReadOptions::default().with_window(Window::new(0, 0, 1, 1))).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Limit(_)), "{error}");
}

/// A file whose server claims another size for it.
#[derive(Debug)]
struct Claimed(MemorySource, u64);

impl Source for Claimed {
    fn name(&self) -> &str {
        "claimed.tif"
    }

    fn size(&self) -> Result<u64, SourceError> {
        Ok(self.1)
    }

    fn read_many(&self, reads: &mut [ReadInto<'_>]) -> Result<(), SourceError> {
        for read in reads {
            // Beyond its end the source returns zeros.
            let (offset, len) = (read.offset, self.0.size()?);
            let have = len.saturating_sub(offset).min(read.buffer.len() as u64) as usize;
            read.buffer.fill(0);
            self.0.read_at(offset.min(len), &mut read.buffer[..have])?;
        }
        Ok(())
    }

    fn access(&self) -> Access {
        Access::REMOTE
    }
}

#[test]
fn a_servers_claim_of_a_size_allows_no_more_than_the_tiles_do() {
    let open = |bytes: Vec<u8>, size: Option<u64>, expansion: u64| {
        let mut limits = Limits::default().with_expansion(expansion);
        limits.decoded_floor = 1 << 16;
        let size = size.unwrap_or(bytes.len() as u64);
        let source = Claimed(MemorySource::new("claimed.tif", bytes), size);
        OpenOptions::default().with_limits(limits).open_source(Arc::new(source)).unwrap()
    };
    let read = |dataset: &swath::Dataset, window: Window| dataset.read(&ReadOptions::default().with_window(window));
    let all = Window::new(0, 0, 1024, 1024);
    // A mebibyte of one value, about 800 decoded bytes for each that is stored.
    let bomb = File::of(Directory::tiled(1024, 1024, 256, |_, _| 0).deflated()).bytes();
    for size in [None, Some(1 << 40), Some(i64::MAX as u64)] {
        let dataset = open(bomb.clone(), size, 100);
        assert_eq!(read(&dataset, all).unwrap_err().limit(), Some("expansion"), "{size:?}");
        assert!(read(&dataset, Window::new(0, 0, 256, 256)).is_ok(), "the floor is always allowed");
        let error = swath::statistics::portions::check_size(&dataset).unwrap_err();
        assert_eq!(error.limit(), Some("expansion"), "{error}");
        assert!(read(&open(bomb.clone(), size, 2000), all).is_ok());
    }
    // Uncompressed: stored and decoded bytes are equal, so a claimed size does not matter.
    let noise = |x: u32, y: u32| ((x * 31 + y * 17) ^ (x * y) >> 3) as u8;
    let sound = File::of(Directory::tiled(1024, 1024, 256, noise).deflated()).bytes();
    for size in [None, Some(i64::MAX as u64)] {
        let dataset = open(sound.clone(), size, 16);
        assert!(read(&dataset, all).is_ok() && read(&dataset, Window::new(100, 300, 900, 700)).is_ok());
        assert!(swath::statistics::portions::check_size(&dataset).is_ok());
    }
}
