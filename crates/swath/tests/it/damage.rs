//! Damaged files give errors or samples, never panics.

use std::{sync::Arc, time::Instant};

use swath::{Dataset, ErrorKind, Interleave, Limits, OpenOptions, ReadOptions, io::MemorySource};

use crate::build::{Directory, File, Tag, open};

/// Small files of different kinds.
fn seeds() -> Vec<Vec<u8>> {
    let geo = Directory::tiled(20, 20, 16, |x, y| (x * y) as u8)
        .with(33550, Tag::Double(vec![1.0, 1.0, 0.0]))
        .with(33922, Tag::Double(vec![0.0; 6]))
        .with(34735, Tag::Short(vec![1, 1, 0, 1, 3072, 0, 1, 32633]))
        .with(42112, Tag::Ascii("<GDALMetadata><Item name=\"a\" sample=\"0\" role=\"scale\">2</Item></GDALMetadata>"))
        .with(42113, Tag::Ascii("7"));
    let overview = Directory::tiled(10, 10, 16, |_, _| 3).with(254, Tag::Long(vec![1]));
    let predicted = Directory::tiled(32, 16, 16, |x, _| x as u8).with(317, Tag::Short(vec![2])).deflated();
    let bits = Directory::tiled(32, 16, 16, |_, _| 1).with(258, Tag::Short(vec![4])).with(266, Tag::Short(vec![2]));
    vec![
        File { directories: vec![geo.deflated(), overview], ..File::default() }.bytes(),
        File { big: true, big_endian: true, directories: vec![predicted] }.bytes(),
        File::of(bits).bytes(),
    ]
}

/// Every operation on a file, with limits that keep each try short.
fn exercise(bytes: Vec<u8>) -> Option<Vec<u8>> {
    let limits = Limits::default().with_decoded_bytes(1 << 20).with_tile_bytes(1 << 20).with_ifds(64);
    let dataset: Dataset = OpenOptions::default()
        .with_limits(limits)
        .open_source(Arc::new(MemorySource::new("damaged.tif", bytes)))
        .ok()?;
    let _ = dataset.metadata();
    let _ = dataset.ghost();
    let _ = dataset.overviews();
    let _ = dataset.read_mask(&ReadOptions::default());
    for entry in &dataset.main().ifd().entries {
        let _ = dataset.value(entry).map(|value| value.to_string());
    }
    match dataset.read(&ReadOptions::default()) {
        Ok(raster) => Some(raster.bytes().to_vec()),
        Err(error) => {
            assert!(error.to_string().starts_with("damaged.tif"), "an error must name the file: {error}");
            None
        }
    }
}

#[test]
fn every_byte_may_be_wrong() {
    let mut tries = 0;
    let mut slowest = std::time::Duration::ZERO;
    for seed in seeds() {
        for position in 0..seed.len() {
            for value in [0, 255, !seed[position], seed[position] ^ 1, seed[position] ^ 0x80] {
                let mut bytes = seed.clone();
                bytes[position] = value;
                let started = Instant::now();
                let _ = exercise(bytes);
                slowest = slowest.max(started.elapsed());
                tries += 1;
            }
        }
    }
    assert!(tries > 5_000, "{tries}");
    assert!(slowest.as_secs() < 5, "one try took {slowest:?}");
}

#[test]
fn cut_file_gives_no_samples_unless_every_needed_byte_is_there() {
    for seed in seeds() {
        let whole = exercise(seed.clone()).unwrap();
        for len in 0..seed.len() {
            if let Some(samples) = exercise(seed[..len].to_vec()) {
                assert_eq!(samples, whole, "cut after {len} bytes");
            }
        }
    }
}

#[test]
fn flipped_bit_in_a_deflate_tile_is_never_silent() {
    let file = File::of(Directory::tiled(16, 16, 16, |x, y| (x * 31 + y * 17) as u8).deflated());
    let tile = file.directories[0].tiles[0].clone();
    let whole = file.open().unwrap().read(&ReadOptions::default()).unwrap().bytes().to_vec();
    for bit in 0..tile.len() * 8 {
        let mut damaged = file.clone();
        damaged.directories[0].tiles[0][bit / 8] ^= 1 << (bit % 8);
        if let Ok(raster) = damaged.open().unwrap().read(&ReadOptions::default()) {
            assert_eq!(raster.bytes(), whole, "bit {bit}");
        }
    }
}

#[test]
fn error_names_file_directory_tile_and_offset() {
    let mut file = File::of(Directory::tiled(32, 32, 16, |x, _| x as u8).deflated());
    file.directories[0].tiles[3][0] = 0xff;
    let dataset = file.open().unwrap();
    let error = dataset.read(&ReadOptions::default()).unwrap_err();
    let place = error.place();
    assert_eq!((place.ifd, place.tile), (Some(0), Some((1, 1))));
    assert!(place.offset.is_some());
    let text = error.to_string();
    assert!(text.starts_with("test.tif: IFD 0, tile (1, 1), byte ") && text.contains("Deflate"), "{text}");
}

#[test]
fn unsupported_schemes_are_named() {
    for (code, name) in [(6, "old-style JPEG"), (34661, "JBIG"), (32809, "ThunderScan"), (777, "777")] {
        let file = File::of(Directory::tiled(16, 16, 16, |_, _| 0).with(259, Tag::Short(vec![code])));
        let error = file.open().unwrap().read(&ReadOptions::default()).unwrap_err();
        assert!(error.to_string().contains(name), "{error}");
    }
}

#[test]
fn false_tile_table_is_refused() {
    let base = Directory::tiled(160, 160, 16, |x, _| x as u8).deflated();
    for counts in [vec![u32::MAX; 100], vec![1; 100], vec![1000; 50], vec![]] {
        let file = File::of(base.clone().with(325, Tag::Long(counts)));
        assert!(file.open().unwrap().read(&ReadOptions::default()).is_err());
    }
    let file = File::of(base.with(324, Tag::Long(vec![u32::MAX - 3; 100])));
    assert!(file.open().unwrap().read(&ReadOptions::default()).is_err());
}

#[test]
fn compressed_tile_at_offset_0_of_unknown_length_is_refused() {
    let of = |directory: Directory| {
        let mut bytes = File::of(directory.with(324, Tag::Long(vec![0]))).bytes();
        let lengths = bytes.windows(8).position(|entry| entry == [0x45, 1, 4, 0, 1, 0, 0, 0]).unwrap();
        bytes[lengths] += 1;
        open(bytes).unwrap().read(&ReadOptions::default())
    };
    let tile = || Directory::tiled(16, 16, 16, |x, _| x as u8);
    let error = of(tile().deflated()).unwrap_err().to_string();
    assert!(error.contains("tile (0, 0)") && error.contains("at offset 0, where the header is"), "{error}");
    // As in `minimum_tiff_tags_with_warning.tif` of GDAL, which has no lengths either.
    assert!(of(tile()).unwrap().bytes().iter().all(|sample| *sample == 0));
}

#[test]
fn files_that_are_no_tiff_get_distinct_errors() {
    for bytes in [&b""[..], b"II", b"II*\0", b"\x89PNG\r\n\x1a\n0000", b"II*\0\0\0\0\0", b"MM\0*\xff\xff\xff\xff"] {
        let error = open(bytes.to_vec()).unwrap_err();
        assert!(error.to_string().starts_with("test.tif"), "{error}");
    }
}

/// Where no table states lengths, a tile reaches to the end of the file; this one begins there.
#[test]
fn a_tile_of_no_bytes_is_damage_and_no_internal_error() {
    for planes in [1, 2] {
        let directory = Directory::tiled(16, 16, 16, |x, _| x as u8).deflated();
        let directory = match planes {
            1 => directory,
            _ => {
                let tiles = [directory.tiles.clone(), directory.tiles.clone()].concat();
                Directory { tiles, ..directory }
                    .with(258, Tag::Short(vec![8, 8]))
                    .with(277, Tag::Short(vec![2]))
                    .with(284, Tag::Short(vec![2]))
            }
        };
        let end = File::of(directory.clone().with(324, Tag::Long(vec![0; planes]))).bytes().len() as u32;
        let mut bytes = File::of(directory.with(324, Tag::Long(vec![end; planes]))).bytes();
        let lengths = bytes.windows(2).position(|tag| tag == 325_u16.to_le_bytes()).unwrap();
        bytes[lengths..lengths + 2].copy_from_slice(&65_000_u16.to_le_bytes());
        for interleave in [Interleave::Band, Interleave::Pixel] {
            let dataset = open(bytes.clone()).unwrap();
            let error = dataset.read(&ReadOptions::default().with_interleave(interleave)).unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Codec(_) | ErrorKind::Malformed(_)), "{error}");
        }
    }
}
