//! Windows, bands and layouts select the right samples.

use swath::{Cancel, ErrorKind, Interleave, ReadOptions, Window};

use crate::build::{Directory, File, Tag};

fn value(x: u32, y: u32) -> u8 {
    (x * 7 + y * 13) as u8
}

#[test]
fn any_window_equals_the_same_part_of_the_whole() {
    for (width, height, tile) in [(1, 1, 16), (33, 31, 16), (64, 16, 32), (50, 70, 16)] {
        for (big, big_endian, deflate) in [(false, false, false), (true, true, true), (false, true, true)] {
            let mut directory = Directory::tiled(width, height, tile, value);
            if deflate {
                directory = directory.deflated();
            }
            let dataset = File { big, big_endian, directories: vec![directory] }.open().unwrap();
            let whole = dataset.read(&ReadOptions::default()).unwrap();
            assert_eq!(whole.shape(), [1, height as usize, width as usize]);
            for y in [0, height / 2, height - 1] {
                for x in [0, width / 3, width - 1] {
                    let window = Window::new(x, y, width - x, height - y);
                    let part = dataset.read(&ReadOptions::default().with_window(window)).unwrap();
                    for (index, byte) in part.bytes().iter().enumerate() {
                        let (column, row) = (index as u32 % window.width + x, index as u32 / window.width + y);
                        assert_eq!(*byte, value(column, row), "{window} at {column}, {row}");
                        assert_eq!(*byte, whole.bytes()[(row * width + column) as usize]);
                    }
                }
            }
        }
    }
}

#[test]
fn window_outside_is_refused_with_both_sizes() {
    let dataset = File::of(Directory::tiled(40, 30, 16, value)).open().unwrap();
    for window in
        [Window::new(0, 0, 41, 1), Window::new(40, 0, 1, 1), Window::new(0, 0, 0, 1), Window::new(u32::MAX, 0, 2, 2)]
    {
        let error = dataset.read(&ReadOptions::default().with_window(window)).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Usage(_)), "{error}");
        assert!(error.to_string().contains("40x30"), "{error}");
    }
}

/// Three samples, chunky or in planes, in every combination of layouts and bands.
#[test]
fn bands_and_interleaving_agree_for_chunky_and_planar_files() {
    let (width, height, tile) = (37u32, 21u32, 16u32);
    let sample = |x: u32, y: u32, band: u32| (x * 3 + y * 5 + band * 85) as u8;
    let cut = |bands: std::ops::Range<u32>| {
        let mut tiles = Vec::new();
        for row in 0..height.div_ceil(tile) {
            for column in 0..width.div_ceil(tile) {
                let pixel = |index: u32| {
                    let (x, y) = (column * tile + index % tile, row * tile + index / tile);
                    bands.clone().map(move |band| sample(x, y, band))
                };
                tiles.push((0..tile * tile).flat_map(pixel).collect::<Vec<u8>>());
            }
        }
        tiles
    };
    let base = Directory::tiled(width, height, tile, |_, _| 0)
        .with(258, Tag::Short(vec![8, 8, 8]))
        .with(262, Tag::Short(vec![2]))
        .with(277, Tag::Short(vec![3]));
    let chunky = Directory { tiles: cut(0..3), ..base.clone() };
    let planes = (0..3).flat_map(|band| cut(band..band + 1)).collect();
    let planar = Directory { tiles: planes, ..base.with(284, Tag::Short(vec![2])) };
    for directory in [chunky.clone(), chunky.deflated(), planar.clone(), planar.deflated()] {
        let dataset = File::of(directory).open().unwrap();
        for bands in [vec![1, 2, 3], vec![3, 1], vec![2], vec![2, 2]] {
            for interleave in [Interleave::Band, Interleave::Pixel] {
                for window in [Window::new(0, 0, width, height), Window::new(9, 4, 20, 15)] {
                    let options = ReadOptions::default()
                        .with_bands(bands.clone())
                        .with_interleave(interleave)
                        .with_window(window);
                    let raster = dataset.read(&options).unwrap();
                    let mut into = vec![1; dataset.read_len(&options).unwrap()];
                    dataset.read_into(&options, &mut into).unwrap();
                    assert_eq!(raster.bytes(), into);
                    for (slot, band) in bands.iter().enumerate() {
                        for y in 0..window.height {
                            for x in 0..window.width {
                                let pixel = (y * window.width + x) as usize;
                                let at = match interleave {
                                    Interleave::Band => slot * window.pixels() as usize + pixel,
                                    Interleave::Pixel => pixel * bands.len() + slot,
                                };
                                assert_eq!(into[at], sample(x + window.x, y + window.y, band - 1));
                            }
                        }
                    }
                }
            }
        }
        assert!(dataset.read(&ReadOptions::default().with_bands([0])).is_err());
        assert!(dataset.read(&ReadOptions::default().with_bands([4])).is_err());
        assert!(dataset.read(&ReadOptions::default().with_bands([])).is_err());
    }
}

#[test]
fn sparse_tiles_are_nodata_or_zero() {
    for (nodata, expected) in
        [(None, 0), (Some("200"), 200), (Some("300"), 255), (Some("-4"), 0), (Some("3.7"), 4), (Some("nan"), 0)]
    {
        let mut directory = Directory::tiled(32, 32, 16, |_, _| 9);
        directory.tiles[1].clear();
        if let Some(text) = nodata {
            directory = directory.with(42113, Tag::Ascii(text));
        }
        let dataset = File::of(directory).open().unwrap();
        let options = ReadOptions::default().with_window(Window::new(15, 0, 2, 1));
        assert_eq!(dataset.read(&options).unwrap().bytes(), [9, expected]);
        let mut used = [77; 2];
        dataset.read_into(&options, &mut used).unwrap();
        assert_eq!(used, [9, expected], "a used buffer must not shine through");
    }
}

#[test]
fn many_threads_share_one_handle() {
    let dataset = File::of(Directory::tiled(200, 200, 16, value).deflated()).open().unwrap();
    std::thread::scope(|scope| {
        for seed in 0..8u32 {
            let dataset = &dataset;
            scope.spawn(move || {
                for step in 0..50 {
                    let (x, y) = ((seed * 31 + step * 17) % 150, (seed * 13 + step * 29) % 150);
                    let window = Window::new(x, y, 50, 50);
                    let raster = dataset.read(&ReadOptions::default().with_window(window)).unwrap();
                    assert_eq!(raster.bytes()[0], value(x, y));
                    assert_eq!(raster.bytes()[2499], value(x + 49, y + 49));
                }
            });
        }
    });
}

#[test]
fn cancelled_read_is_an_error() {
    let dataset = File::of(Directory::tiled(64, 64, 16, value)).open().unwrap();
    let cancel = Cancel::new();
    cancel.cancel();
    let error = dataset.read(&ReadOptions::default().with_cancel(cancel)).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Cancelled));
}

#[test]
fn orientation_is_applied_on_request_only() {
    // Stored as two rows: 1 2 3 / 4 5 6.
    let stored = |orientation: u16| {
        let mut directory = Directory {
            tags: vec![(256, Tag::Long(vec![3])), (257, Tag::Long(vec![2])), (258, Tag::Short(vec![8]))],
            tiles: vec![vec![1, 2, 3, 4, 5, 6]],
        };
        directory = directory.with(274, Tag::Short(vec![orientation]));
        File::of(directory).open().unwrap()
    };
    let upright = [
        (1, [1, 2, 3, 4, 5, 6]),
        (2, [3, 2, 1, 6, 5, 4]),
        (3, [6, 5, 4, 3, 2, 1]),
        (4, [4, 5, 6, 1, 2, 3]),
        (5, [1, 4, 2, 5, 3, 6]),
        (6, [4, 1, 5, 2, 6, 3]),
        (7, [6, 3, 5, 2, 4, 1]),
        (8, [3, 6, 2, 5, 1, 4]),
    ];
    for (orientation, expected) in upright {
        let dataset = stored(orientation);
        assert_eq!(dataset.read(&ReadOptions::default()).unwrap().bytes(), [1, 2, 3, 4, 5, 6]);
        let raster = dataset.read(&ReadOptions::default().with_upright(true)).unwrap();
        assert_eq!(raster.bytes(), expected, "orientation {orientation}");
        assert_eq!(raster.width(), if orientation < 5 { 3 } else { 2 });
    }
}

#[test]
fn single_tiles_can_be_read_raw_and_decoded() {
    let dataset = File::of(Directory::tiled(20, 20, 16, value).deflated()).open().unwrap();
    let tile = dataset.tile(dataset.main(), 1, 1, 0).unwrap().unwrap();
    assert_eq!((tile.len(), tile[0], tile[17]), (256, value(16, 16), value(17, 17)));
    assert_ne!(dataset.tile_bytes(dataset.main(), 1, 1, 0).unwrap().unwrap(), tile, "these are the stored bytes");
    assert!(dataset.tile(dataset.main(), 2, 0, 0).is_err());
}

/// One uncompressed strip as large as the image: only the requested rows are read.
#[test]
fn huge_uncompressed_strip_is_read_in_rows_with_any_bands() {
    let (width, height) = (700u32, 900u32);
    let sample = |x: u32, y: u32, band: u32| (x * 5 + y * 3 + band * 70) as u8;
    let pixel = |index: u32| (0..3).map(move |band| sample(index % width, index / width, band));
    let chunky = Directory {
        tags: vec![
            (256, Tag::Long(vec![width])),
            (257, Tag::Long(vec![height])),
            (258, Tag::Short(vec![8, 8, 8])),
            (262, Tag::Short(vec![2])),
            (277, Tag::Short(vec![3])),
        ],
        tiles: vec![(0..width * height).flat_map(pixel).collect()],
    };
    let plane = |band: u32| (0..width * height).map(|index| sample(index % width, index / width, band)).collect();
    let planar = Directory { tiles: (0..3).map(plane).collect(), ..chunky.clone().with(284, Tag::Short(vec![2])) };
    for directory in [chunky, planar] {
        let dataset = File::of(directory).open().unwrap();
        for interleave in [Interleave::Band, Interleave::Pixel] {
            for window in [Window::new(0, 0, width, height), Window::new(100, 450, 300, 444)] {
                let options = ReadOptions::default().with_window(window).with_interleave(interleave);
                let raster = dataset.read(&options).unwrap();
                for (x, y, band) in [(0, 0, 0), (299, 443, 2), (17, 200, 1), (250, 90, 2)] {
                    let pixel = (y * window.width + x) as usize;
                    let at = match interleave {
                        Interleave::Band => band as usize * window.pixels() as usize + pixel,
                        Interleave::Pixel => pixel * 3 + band as usize,
                    };
                    assert_eq!(raster.bytes()[at], sample(x + window.x, y + window.y, band));
                }
            }
        }
    }
}

#[test]
fn stored_bytes_are_those_of_the_touched_tiles_each_once() {
    let mut directory = Directory::tiled(40, 30, 16, value);
    let plain = File::of(directory.clone()).open().unwrap();
    let stored = |window| plain.stored_len(&ReadOptions::default().with_window(window)).unwrap();
    assert_eq!(plain.stored_len(&ReadOptions::default()).unwrap(), 6 * 256);
    assert_eq!(stored(Window::new(0, 0, 1, 1)), 256);
    assert_eq!(stored(Window::new(15, 15, 2, 2)), 4 * 256);
    directory = directory.deflated();
    let sizes: Vec<u64> = directory.tiles.iter().map(|tile| tile.len() as u64).collect();
    let packed = File::of(directory).open().unwrap();
    assert_eq!(packed.stored_len(&ReadOptions::default()).unwrap(), sizes.iter().sum::<u64>());
    let middle = ReadOptions::default().with_window(Window::new(16, 0, 16, 16));
    assert_eq!(packed.stored_len(&middle).unwrap(), sizes[1]);
    assert!(packed.stored_len(&middle.with_window(Window::new(40, 0, 1, 1))).is_err());
}
