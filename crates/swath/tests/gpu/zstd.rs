//! Zstd of other encoders: checksums, several frames, and streams that the CPU decodes.

use std::sync::Arc;

use swath::{
    Blocks, Compression, ErrorKind, Mode, ReadOptions, SampleType, Shape, Window, WriteOptions,
    gpu::{DeviceError, Gpu},
};
use zstd_safe::{CCtx, CParameter};

use crate::{
    build::{Directory, File, Tag},
    cases::{self, Rng},
    driver,
};

/// Columns and rows of a strip, one byte each.
const STRIP: (u32, u32) = (96, 40);

/// The bytes of strip `number`: runs, repeats and noise.
fn strip(number: usize, rows: u32) -> Vec<u8> {
    let shape = Shape { width: STRIP.0, height: rows, bands: 1, sample: SampleType::U8 };
    cases::samples(shape, &mut Rng::new(number as u64))
}

/// One frame, with a checksum or without.
fn frame(bytes: &[u8], checksum: bool) -> Vec<u8> {
    let mut context = CCtx::create();
    context.set_parameter(CParameter::ChecksumFlag(checksum)).unwrap();
    let mut out = vec![0; zstd_safe::compress_bound(bytes.len())];
    let len = context.compress2(&mut out[..], bytes).unwrap();
    out.truncate(len);
    out
}

/// A frame that decoders pass over.
fn skippable(len: u8) -> Vec<u8> {
    [&0x184d_2a53_u32.to_le_bytes()[..], &[len, 0, 0, 0], &vec![0x28; len.into()]].concat()
}

/// A file whose strips are these streams, the last one `last` rows high.
fn directory(tiles: Vec<Vec<u8>>, last: u32) -> Directory {
    let rows = (tiles.len() as u32 - 1) * STRIP.1 + last;
    let tags = vec![
        (256, Tag::Long(vec![STRIP.0])),
        (257, Tag::Long(vec![rows])),
        (258, Tag::Short(vec![8])),
        (259, Tag::Short(vec![50000])),
        (262, Tag::Short(vec![1])),
        (277, Tag::Short(vec![1])),
        (278, Tag::Long(vec![STRIP.1])),
    ];
    Directory { tags, tiles }
}

fn file(tiles: Vec<Vec<u8>>) -> Arc<[u8]> {
    File::of(directory(tiles, STRIP.1)).bytes().into()
}

/// Whole strips, each one frame.
fn frames(count: usize, checksum: bool) -> Vec<Vec<u8>> {
    (0..count).map(|number| frame(&strip(number, STRIP.1), checksum)).collect()
}

fn options(gpu: &Arc<Gpu>, mode: Mode) -> ReadOptions {
    ReadOptions::default().with_device(mode).with_gpu(gpu.clone())
}

/// Fails unless the device alone decodes all tiles, and as the CPU does.
fn expect_on_device(gpu: &Arc<Gpu>, file: &Arc<[u8]>, what: &str) {
    for trusted in [false, true] {
        let options = options(gpu, Mode::Cuda).with_trust_input(trusted);
        let report = cases::agree(file, &ReadOptions::default(), &options);
        let report = report.unwrap_or_else(|fault| panic!("{what}: {fault}")).unwrap_or_else(|| panic!("{what}"));
        assert!(report.host_tiles == 0 && report.device_tiles > 0 && report.notices.is_empty(), "{what}: {report:?}");
    }
}

#[test]
fn several_frames_and_short_strips_are_decoded_on_the_device() {
    let Some(fake) = driver::fake() else { return };
    for script in ["", "async=1 seed=3", "sms=60"] {
        fake.with(script, |gpu| {
            let whole = strip(1, STRIP.1);
            for at in [1, 96, 2000, 3839] {
                let (first, second) = whole.split_at(at);
                let two = [frame(first, at % 2 == 0), frame(second, true)].concat();
                let three = [frame(&[], true), frame(&whole, false), frame(&[], false)].concat();
                expect_on_device(gpu, &file(vec![two, frame(&whole, true), three]), &format!("{script}, {at}"));
            }
            for last in [1, 7, 39] {
                let mut tiles = frames(3, false);
                tiles.push(frame(&strip(3, last), true));
                let short = directory(tiles.clone(), last);
                expect_on_device(gpu, &File::of(short.clone()).bytes().into(), &format!("{script}, {last} rows"));
                let turned: Vec<Vec<u8>> =
                    tiles.iter().map(|tile| tile.iter().map(|byte| byte.reverse_bits()).collect()).collect();
                let turned = Directory { tiles: turned, ..short }.with(266, Tag::Short(vec![2]));
                expect_on_device(gpu, &File::of(turned).bytes().into(), &format!("{script}, {last} rows, turned"));
                // The last strip alone: it still has the scratch of a whole one.
                let file: Arc<[u8]> = File::of(directory(tiles, last)).bytes().into();
                let window = Window::new(3, 3 * STRIP.1, 50, last);
                let device = options(gpu, Mode::Cuda).with_window(window);
                let report = cases::agree(&file, &ReadOptions::default().with_window(window), &device).unwrap();
                assert_eq!(report.map(|report| report.device_tiles), Some(1));
            }
        });
    }
}

#[test]
fn checksums_are_verified() {
    let Some(fake) = driver::fake() else { return };
    fake.with("", |gpu| {
        let good = frames(4, true);
        expect_on_device(gpu, &file(good.clone()), "sound");
        for place in 1..=4 {
            let mut bad = good.clone();
            let len = bad[2].len();
            bad[2][len - place] ^= 0x10;
            let dataset = cases::open(&file(bad)).unwrap();
            let cpu = dataset.read(&ReadOptions::default()).unwrap_err();
            for mode in [Mode::Cuda, Mode::Auto] {
                let error = dataset.read_device(&options(gpu, mode)).unwrap_err();
                assert_eq!(error.to_string(), cpu.to_string(), "{mode:?}");
                assert_eq!(error.place().tile, Some((0, 2)), "{error}");
            }
        }
    });
}

#[test]
fn the_cpu_decodes_unusual_streams_where_allowed() {
    let Some(fake) = driver::fake() else { return };
    let whole = strip(1, STRIP.1);
    let surplus = [&whole[..], &[1, 2, 3]].concat();
    let cases: [(&str, Vec<u8>, &str); 4] = [
        ("before", [skippable(9), frame(&whole, true)].concat(), "only the CPU decodes such a stream"),
        ("behind", [frame(&whole, false), skippable(0)].concat(), "only the CPU decodes such a stream"),
        (
            "between",
            [frame(&whole[..99], false), skippable(255), frame(&whole[99..], true)].concat(),
            "only the CPU decodes such a stream",
        ),
        ("longer", frame(&surplus, false), "holds more than the tile"),
    ];
    for script in ["", "async=1 seed=1"] {
        fake.with(script, |gpu| {
            for (what, stream, reason) in &cases {
                let mut tiles = frames(4, false);
                tiles[1] = stream.clone();
                let file = file(tiles);
                let error = cases::open(&file).unwrap().read_device(&options(gpu, Mode::Cuda)).unwrap_err();
                let text = error.to_string();
                assert!(matches!(error.kind(), ErrorKind::Device(DeviceError::Declined(_))), "{what}: {text}");
                assert!(text.contains(reason) && text.contains("device auto"), "{what}: {text}");
                assert_eq!(error.place().tile, Some((0, 1)), "{what}: {text}");
                for allowed in [options(gpu, Mode::Auto), options(gpu, Mode::Cuda).with_cpu_decode(true)] {
                    let report = cases::agree(&file, &ReadOptions::default(), &allowed).unwrap().unwrap();
                    assert_eq!((report.device_tiles, report.host_tiles), (3, 1), "{what}: {report:?}");
                    assert!(report.notices.len() == 1 && report.notices[0].contains(reason), "{what}: {report:?}");
                }
            }
        });
    }
}

#[test]
fn many_unusual_tiles_are_decoded_by_all_threads() {
    let Some(fake) = driver::fake() else { return };
    fake.with("", |gpu| {
        let tiles = frames(12, false).into_iter().map(|frame| [skippable(1), frame].concat()).collect();
        let report = cases::agree(&file(tiles), &ReadOptions::default(), &options(gpu, Mode::Auto)).unwrap().unwrap();
        assert_eq!((report.device_tiles, report.host_tiles), (0, 12), "{report:?}");
        assert!(report.notices.len() == 1 && report.notices[0].contains("refused many"), "{report:?}");
    });
}

#[test]
fn a_missing_dictionary_gives_the_cpus_error() {
    let Some(fake) = driver::fake() else { return };
    fake.with("", |gpu| {
        let mut tiles = frames(3, false);
        // The field follows the descriptor where the frame is a single segment.
        assert_eq!(tiles[1][4] & 0x23, 0x20);
        tiles[1][4] |= 1;
        tiles[1].insert(5, 7);
        let dataset = cases::open(&file(tiles)).unwrap();
        let cpu = dataset.read(&ReadOptions::default()).unwrap_err();
        assert!(cpu.to_string().contains("ictionary"), "{cpu}");
        for mode in [Mode::Cuda, Mode::Auto] {
            assert_eq!(dataset.read_device(&options(gpu, mode)).unwrap_err().to_string(), cpu.to_string());
        }
    });
}

#[test]
fn groups_of_one_batch_have_scratch_of_their_own() {
    let Some(fake) = driver::fake() else { return };
    for script in ["", "async=1 seed=0", "async=1 seed=5"] {
        fake.with(script, |gpu| {
            let shape = Shape { width: 3000, height: 3000, bands: 1, sample: SampleType::F32 };
            // Rows that repeat with a few changes: quick to encode, and not all alike.
            let data: Vec<u8> =
                (0..3000_u32 * 3000).flat_map(|at| (at % 3000 / 7 + (at / 40_009) * 3).to_le_bytes()).collect();
            let written = WriteOptions::default().with_compression(Compression::Zstd).with_level(1);
            let written = written.with_blocks(Blocks::Tiles(512, 512));
            let file = cases::write(shape, &data, &cases::nodata_of(""), &written).unwrap();
            let raster = cases::open(&file).unwrap().read_device(&options(gpu, Mode::Cuda)).unwrap();
            let counters = raster.report().counters;
            // Five kernels and one that places, twice.
            assert_eq!((counters.launches, counters.synchronisations), (12, 1), "{counters:?}");
            assert!(raster.to_host().unwrap().bytes() == data, "{script}");
        });
    }
}

/// libzstd does not check where streams of literals end, on processors where it uses its fast loop.
#[test]
fn damage_that_libzstd_does_not_detect_is_reported() {
    let Some(fake) = driver::fake() else { return };
    let mut rng = Rng::new(5);
    // Nothing but literals, in four streams.
    let noise: Vec<u8> = (0..STRIP.0 * STRIP.1).map(|_| (rng.within(0..12) * rng.within(0..12)) as u8).collect();
    let sound = frame(&noise, false);
    let spoiled = |bit: usize| {
        let mut tile = sound.clone();
        tile[bit / 8] ^= 1 << (bit % 8);
        file(vec![sound.clone(), tile])
    };
    let unnoticed = |bit: &usize| cases::open(&spoiled(*bit)).unwrap().read(&ReadOptions::default()).is_ok();
    let bits: Vec<usize> = (sound.len() * 4..sound.len() * 8).step_by(97).filter(unnoticed).collect();
    if bits.is_empty() {
        eprintln!("libzstd notices all damage on this processor");
        return;
    }
    fake.with("", |gpu| {
        let mut refused = 0;
        for bit in bits {
            let file = spoiled(bit);
            // A code that became another of the same length cannot be detected.
            let Err(error) = cases::open(&file).unwrap().read_device(&options(gpu, Mode::Cuda)) else { continue };
            let text = error.to_string();
            assert!(text.contains("damaged") && text.contains("does not notice"), "{text}");
            let report = cases::agree(&file, &ReadOptions::default(), &options(gpu, Mode::Auto)).unwrap().unwrap();
            assert_eq!((report.device_tiles, report.host_tiles, report.notices.len()), (1, 1, 1), "{report:?}");
            assert!(report.notices[0].starts_with("1 tiles are damaged"), "{report:?}");
            refused += 1;
        }
        assert!(refused > 10, "{refused}");
    });
}

/// Bytes after the last frame may be padding: the CPU reads such tiles.
#[test]
fn padding_behind_frames_is_no_damage() {
    let Some(fake) = driver::fake() else { return };
    fake.with("", |gpu| {
        for padding in [1, 4, 5, 20] {
            let tile = [frames(1, false).remove(0), vec![0; padding]].concat();
            let file = file(vec![tile]);
            let text = cases::open(&file).unwrap().read_device(&options(gpu, Mode::Cuda)).unwrap_err().to_string();
            assert!(text.contains("holds more than the tile"), "{text}");
            let report = cases::agree(&file, &ReadOptions::default(), &options(gpu, Mode::Auto)).unwrap().unwrap();
            assert_eq!((report.device_tiles, report.host_tiles), (0, 1), "{report:?}");
        }
    });
}

#[test]
fn tiles_beyond_what_the_kernels_count_are_refused_before_anything_is_read() {
    let Some(fake) = driver::fake() else { return };
    fake.with("", |gpu| {
        // A row more than the largest.
        let rows = (1 << 14) + 1;
        let tags = vec![
            (256, Tag::Long(vec![1 << 16])),
            (257, Tag::Long(vec![rows])),
            (258, Tag::Short(vec![8])),
            (259, Tag::Short(vec![50000])),
            (262, Tag::Short(vec![1])),
            (277, Tag::Short(vec![1])),
            (278, Tag::Long(vec![rows])),
        ];
        let file: Arc<[u8]> = File::of(Directory { tags, tiles: vec![vec![1; 40]] }).bytes().into();
        let options = options(gpu, Mode::Cuda).with_window(Window::new(0, 0, 8, 8));
        let text = cases::open(&file).unwrap().read_device(&options).unwrap_err().to_string();
        assert!(text.contains("more than 1 GiB"), "{text}");
        assert_eq!(fake.count("alloc"), 0);
    });
}
