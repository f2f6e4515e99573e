//! Tiles that a GPU wrote in pieces are decoded in pieces; the file's list of pieces is not trusted.

use std::{num::NonZeroU32, sync::Arc};

use swath::{
    Blocks, Compression, ErrorKind, Mode, Overviews, ReadOptions, SampleType, Shape, Window, WriteOptions,
    gpu::{DeviceError, DeviceReport, Gpu},
    tiff::{
        structure::{ByteOrder, Planar},
        tag,
    },
};

use crate::{
    cases::{self, Rng},
    driver,
    written::{self, PushMethod},
};

/// Bytes of a piece.
const PIECE: u64 = 64 << 10;

fn file(gpu: &Arc<Gpu>, shape: Shape, options: WriteOptions) -> Arc<[u8]> {
    let case = written::large(shape, options.with_compression(Compression::Deflate), "");
    case.write(&case.on(gpu, Mode::Cuda), PushMethod::Whole, gpu).unwrap().0
}

/// Two by two tiles of four pieces each, in little-endian order.
fn four_tiles(gpu: &Arc<Gpu>) -> Arc<[u8]> {
    let shape = Shape { width: 512, height: 500, bands: 1, sample: SampleType::F32 };
    let options = WriteOptions::default().with_blocks(Blocks::Tiles(256, 256)).with_order(ByteOrder::Little);
    file(gpu, shape, options)
}

fn reading(gpu: &Arc<Gpu>, mode: Mode) -> ReadOptions {
    ReadOptions::default().with_device(mode).with_gpu(gpu.clone())
}

/// Reads with the CPU and with the GPU, which has to decode everything.
fn agree(file: &Arc<[u8]>, gpu: &Arc<Gpu>, adjust: impl Fn(ReadOptions) -> ReadOptions) -> DeviceReport {
    let found = cases::agree(file, &adjust(ReadOptions::default()), &adjust(reading(gpu, Mode::Cuda)));
    let report = found.unwrap_or_else(|fault| panic!("{fault}")).unwrap_or_else(|| panic!("neither reads it"));
    assert!(report.host_tiles == 0 && report.notices.is_empty(), "{report:?}");
    report
}

/// How often a read to the device waits.
fn waits(file: &Arc<[u8]>, options: &ReadOptions) -> u64 {
    let raster = cases::open(file).unwrap().read_device(options).unwrap();
    assert!(raster.report().pieces > 0, "{:?}", raster.report());
    raster.report().counters.synchronisations
}

#[test]
fn windows_bands_and_overviews_are_read_by_pieces() {
    let Some(fake) = driver::fake() else { return };
    for (script, order) in [("", ByteOrder::Little), ("async=1 seed=3", ByteOrder::Big)] {
        fake.with(script, |gpu| {
            let shape = Shape { width: 600, height: 530, bands: 2, sample: SampleType::F32 };
            for planar in [Planar::Contig, Planar::Separate] {
                let options =
                    WriteOptions::cog().with_blocks(Blocks::Tiles(256, 256)).with_overviews(Overviews::Levels(1));
                let file = file(gpu, shape, options.with_planar(planar).with_order(order));
                let tile = match planar {
                    Planar::Contig => 2 * 4 * 256 * 256 / PIECE,
                    Planar::Separate => 4 * 256 * 256 / PIECE,
                };
                let planes = if planar == Planar::Separate { 2 } else { 1 };
                let whole = agree(&file, gpu, |options| options);
                assert_eq!(whole.pieces, 9 * planes * tile, "{planar:?}: {whole:?}");
                assert_eq!(whole.device_tiles, 9 * planes, "{whole:?}");
                assert_eq!(waits(&file, &reading(gpu, Mode::Cuda)), 1);
                let overview = agree(&file, gpu, |options| options.with_overview(0));
                assert_eq!(overview.pieces, 4 * planes * tile, "{planar:?}: {overview:?}");
                for (window, tiles) in [
                    (Window::new(0, 0, 1, 1), 1),
                    (Window::new(255, 100, 2, 20), 2),
                    (Window::new(250, 250, 300, 10), 6),
                    (Window::new(599, 529, 1, 1), 1),
                ] {
                    let report = agree(&file, gpu, |options| options.with_window(window));
                    assert_eq!(report.pieces, tiles * planes * tile, "{planar:?} {window:?}: {report:?}");
                    let second = agree(&file, gpu, |options| options.with_window(window).with_bands([2]));
                    assert_eq!(second.pieces, tiles * tile, "{planar:?} {window:?}: {second:?}");
                }
                agree(&file, gpu, |options| options.with_bands([2, 1, 2]));
            }
        });
    }
}

#[test]
fn strips_whose_last_is_shorter_and_files_without_pieces() {
    let Some(fake) = driver::fake() else { return };
    fake.with("async=1 seed=9", |gpu| {
        let shape = Shape { width: 700, height: 333, bands: 1, sample: SampleType::U16 };
        // 280000 bytes a strip; the last has 46200, which are one piece.
        let strips = WriteOptions::default().with_blocks(Blocks::Strips(NonZeroU32::new(100)));
        let file_of_strips = file(gpu, shape, strips);
        let report = agree(&file_of_strips, gpu, |options| options);
        assert_eq!((report.pieces, report.device_tiles), (3 * 3, 4), "{report:?}");
        let small = file(gpu, shape, WriteOptions::default().with_blocks(Blocks::Tiles(64, 64)));
        assert_eq!(agree(&small, gpu, |options| options).pieces, 0);
        let cpu = WriteOptions::default().with_compression(Compression::Deflate).with_blocks(Blocks::Tiles(256, 256));
        let case = written::large(shape, cpu, "");
        let (by_cpu, _) = case.write(&case.options, PushMethod::Whole, gpu).unwrap();
        assert_eq!(agree(&by_cpu, gpu, |options| options).pieces, 0);
    });
}

#[test]
fn memory_for_pieces_is_counted() {
    let Some(fake) = driver::fake() else { return };
    fake.with("", |gpu| {
        let shape = Shape { width: 512, height: 900, bands: 1, sample: SampleType::F32 };
        let file = file(gpu, shape, WriteOptions::default().with_blocks(Blocks::Tiles(256, 256)));
        let dataset = cases::open(&file).unwrap();
        let error = dataset.read_device(&reading(gpu, Mode::Cuda).with_max_device_memory(1)).unwrap_err();
        let ErrorKind::Device(DeviceError::Memory { required, .. }) = error.kind() else { panic!("{error}") };
        for limit in [*required, required * 3 / 2, required * 2] {
            gpu.trim();
            let report = agree(&file, gpu, |options| options.with_max_device_memory(limit));
            assert!(report.counters.peak_bytes <= limit && report.pieces == 8 * 4, "{limit}: {report:?}");
            assert!(report.batches > 1 || limit > *required, "{limit}: {report:?}");
            assert_eq!(waits(&file, &reading(gpu, Mode::Cuda).with_max_device_memory(limit)), 1);
        }
    });
}

/// The position of the tag's numbers in a file of [`four_tiles`].
fn hint(file: &Arc<[u8]>) -> std::ops::Range<usize> {
    let dataset = cases::open(file).unwrap();
    let entry = dataset.main().ifd().entry(tag::SWATH_PIECES).unwrap();
    assert_eq!(entry.count, 1 + 4 * 3);
    entry.offset as usize..entry.offset as usize + entry.count as usize * 4
}

#[test]
fn a_wrong_hint_changes_nothing() {
    let Some(fake) = driver::fake() else { return };
    for script in ["", "async=1 seed=7"] {
        fake.with(script, |gpu| {
            let good = four_tiles(gpu);
            let place = hint(&good);
            let numbers: Vec<u32> =
                good[place.clone()].as_chunks().0.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect();
            let with = |numbers: &[u32]| -> Arc<[u8]> {
                let mut bad = good.to_vec();
                for (to, number) in bad[place.clone()].as_chunks_mut().0.iter_mut().zip(numbers) {
                    *to = number.to_le_bytes();
                }
                bad.into()
            };
            assert_eq!(agree(&good, gpu, |options| options).pieces, 16);
            let change = |change: &dyn Fn(&mut Vec<u32>)| {
                let mut changed = numbers.clone();
                change(&mut changed);
                with(&changed)
            };
            let mut rng = Rng::new(5);
            let mut hints = vec![
                change(&|list| list[1..].fill(0)),
                change(&|list| list[1..].fill(u32::MAX)),
                change(&|list| list.swap(1, 2)),
                change(&|list| list[1..].rotate_left(3)),
                change(&|list| list[1..].reverse()),
                change(&|list| list[5] += 1),
                change(&|list| list[5] -= 1),
                change(&|list| list[6] = 0),
            ];
            hints.extend(
                [0, 1, 16, 32 << 10, 65_535, 128 << 10, 2 << 20, u32::MAX].map(|len| change(&|list| list[0] = len)),
            );
            for _ in 0..12 {
                let mut changed = numbers.clone();
                let at = 1 + rng.below(12) as usize;
                changed[at] =
                    if rng.chance(2) { rng.next() as u32 } else { rng.below(u64::from(changed[at]) * 2) as u32 };
                hints.push(with(&changed));
            }
            for (number, bad) in hints.iter().enumerate() {
                let report = agree(bad, gpu, |options| options);
                // The hint is right for all tiles, or no tile is decoded in pieces.
                assert!(report.pieces % 4 == 0 && report.pieces < 16, "hint {number}: {report:?}");
                // A window without the tiles of the wrong numbers.
                let aside = agree(bad, gpu, |options| options.with_window(Window::new(300, 300, 20, 20)));
                assert!(matches!(aside.pieces, 0 | 4), "hint {number}: {aside:?}");
                let auto = cases::agree(bad, &ReadOptions::default(), &reading(gpu, Mode::Auto));
                assert!(matches!(auto, Ok(Some(_))), "hint {number}: {auto:?}");
            }
            // Tiles that were swapped, as by a tool that does not know the hint.
            let ranges = cases::tiles(&good).unwrap();
            let offsets = cases::open(&good).unwrap().main().ifd().entry(324).unwrap().offset as usize;
            let counts = cases::open(&good).unwrap().main().ifd().entry(325).unwrap().offset as usize;
            let mut moved = good.to_vec();
            for (at, tile) in [(0, &ranges[3]), (3, &ranges[0])] {
                moved[offsets + at * 4..][..4].copy_from_slice(&(tile.start as u32).to_le_bytes());
                moved[counts + at * 4..][..4].copy_from_slice(&(tile.len() as u32).to_le_bytes());
            }
            assert_eq!(agree(&moved.into(), gpu, |options| options).pieces, 0);
        });
    }
}

#[test]
fn damaged_pieces_give_the_cpus_error_or_pixels() {
    let Some(fake) = driver::fake() else { return };
    for script in ["", "async=1 seed=2"] {
        fake.with(script, |gpu| {
            let good = four_tiles(gpu);
            let (ranges, place) = (cases::tiles(&good).unwrap(), hint(&good));
            let mut rng = Rng::new(8);
            let (mut failed, mut read) = (0, 0);
            for round in 0..40 {
                let mut bad = good.to_vec();
                let number = rng.below(4) as usize;
                cases::spoil(&mut bad, &ranges[number], number, &mut rng);
                if rng.chance(3) {
                    bad[place.start + 4 + rng.below(48) as usize] ^= 1 << rng.below(8);
                }
                let bad: Arc<[u8]> = bad.into();
                let cpu = ReadOptions::default().with_threads(1);
                let auto = cases::agree(&bad, &cpu, &reading(gpu, Mode::Auto));
                match auto.unwrap_or_else(|fault| panic!("round {round}: {fault}")) {
                    Some(_) => read += 1,
                    None => failed += 1,
                }
                let dataset = cases::open(&bad).unwrap();
                if let Ok(raster) = dataset.read(&reading(gpu, Mode::Cuda)) {
                    assert!(dataset.read(&cpu).is_ok_and(|cpu| cpu.bytes() == raster.bytes()), "round {round}");
                }
            }
            assert!(failed > 10, "{failed} failed, {read} not");
            assert_eq!(agree(&good, gpu, |options| options).pieces, 16);
        });
    }
}
