//! A read costs what is promised, and its report agrees with the driver's counters.

use std::sync::Arc;

use swath::{
    Blocks, Compression, Dataset, ErrorKind, Mode, ReadOptions, SampleType, Shape, WriteOptions,
    gpu::{Counters, DeviceError, Gpu, copy_speeds},
    tiff::structure::Planar,
};

use crate::{
    cases::{self, ON_DEVICE, Rng},
    driver::{self, Fake},
};

/// Output, statuses and the scratch of kernels.
const FIXED_BUFFERS: u64 = 3;
/// Compressed bytes, decoded bytes and tables.
const HALF_BUFFERS: u64 = 3;

/// Most buffers that a read takes, with this many batches on the device at once.
fn most_buffers(compression: Compression, halves: u64) -> u64 {
    match compression {
        // It has scratch for each tile, in each half.
        Compression::Zstd => FIXED_BUFFERS - 1 + (HALF_BUFFERS + 1) * halves,
        _ => FIXED_BUFFERS + HALF_BUFFERS * halves,
    }
}

fn file(compression: Compression, planar: Planar, side: u32) -> Arc<[u8]> {
    let shape = Shape { width: side, height: side - 20, bands: 2, sample: SampleType::U16 };
    let options =
        WriteOptions::default().with_compression(compression).with_planar(planar).with_blocks(Blocks::Tiles(32, 32));
    cases::write(shape, &cases::samples(shape, &mut Rng::new(3)), &cases::nodata_of(""), &options).unwrap()
}

/// The least memory that a read needs, as its error states it.
fn least(dataset: &Dataset, options: &ReadOptions) -> u64 {
    let error = dataset.read_device(&options.clone().with_max_device_memory(1)).unwrap_err();
    match error.kind() {
        ErrorKind::Device(DeviceError::Memory { required, .. }) => *required,
        _ => panic!("{error}"),
    }
}

/// Reads, and compares the report with the driver's counters.
fn counted(fake: &Fake, script: &str, file: &Arc<[u8]>, options: &ReadOptions, what: &str) -> (Counters, u32) {
    fake.script(script);
    let before = fake.count("live_bytes");
    let raster = cases::open(file).unwrap().read_device(options).unwrap();
    let report = raster.report();
    let counters = report.counters;
    for (name, counted) in [
        ("sync", counters.synchronisations),
        ("h2d", counters.uploads),
        ("h2d_bytes", counters.uploaded_bytes),
        ("d2h", counters.downloads),
        ("d2h_bytes", counters.downloaded_bytes),
        ("launch", counters.launches),
        ("alloc", counters.allocations),
        ("host_alloc", counters.pinned_allocations),
        ("d2d", 0),
        ("pageable", 0),
    ] {
        assert_eq!(fake.count(name), counted, "{what}: {name}");
    }
    assert_eq!(fake.count("live_bytes") - before, counters.allocated_bytes, "{what}");
    assert_eq!(counters.synchronisations, 1, "{what}");
    assert!(counters.downloads <= 1, "{what}: {} downloads", counters.downloads);
    assert_eq!(counters.uploads_before_first_wait, counters.uploads, "{what}");
    let halves = if report.batches > 1 { 2 } else { 1 };
    let most = most_buffers(cases::open(file).unwrap().main().layout().compression, halves);
    assert!(counters.buffers <= most, "{what}: {} buffers", counters.buffers);
    assert!(counters.allocations <= counters.buffers, "{what}");
    (counters, report.batches)
}

fn each(body: impl Fn(Compression, Planar, &str)) {
    for compression in ON_DEVICE {
        for planar in [Planar::Contig, Planar::Separate] {
            body(compression, planar, &format!("{compression}, {planar:?}"));
        }
    }
}

fn options(gpu: &Arc<Gpu>) -> ReadOptions {
    ReadOptions::default().with_device(Mode::Cuda).with_cpu_decode(true).with_gpu(gpu.clone()).with_threads(1)
}

#[test]
fn one_wait_and_no_allocation_the_second_time() {
    let Some(fake) = driver::fake() else { return };
    each(|compression, planar, what| {
        for script in ["", "async=1 seed=4"] {
            fake.with(script, |gpu| {
                let file = file(compression, planar, 200);
                let (first, batches) = counted(&fake, script, &file, &options(gpu), what);
                assert_eq!(batches, 1);
                assert_eq!(first.allocations, first.buffers, "{what}");
                assert!(first.peak_bytes >= first.allocated_bytes, "{what}");
                let (second, _) = counted(&fake, script, &file, &options(gpu), what);
                assert_eq!((second.allocations, second.pinned_allocations), (0, 0), "{what}");
                assert_eq!((fake.count("streams_made"), fake.count("modules_made")), (0, 0), "{what}");
                assert_eq!(second.buffers, first.buffers, "{what}");
            });
        }
    });
}

/// Few large tiles: many blocks of threads share each of them, with and without memory for that.
#[test]
fn few_large_tiles_are_shared() {
    let Some(fake) = driver::fake() else { return };
    for script in ["sms=8", "sms=8 async=1 seed=3"] {
        fake.with(script, |gpu| {
            let shape = Shape { width: 700, height: 500, bands: 1, sample: SampleType::U16 };
            // Rows that repeat with a few changes, and some noise.
            let data: Vec<u8> = (0..700_u32 * 500)
                .flat_map(|at| ((at % 700 / 7 + at / 20_011 * 3 + at.wrapping_mul(at) % 97 / 95) as u16).to_le_bytes())
                .collect();
            for (compression, launches) in [(Compression::Deflate, 1 + 10 + 4), (Compression::Zstd, 7)] {
                let written = WriteOptions::default().with_compression(compression).with_level(6);
                let file =
                    cases::write(shape, &data, &cases::nodata_of(""), &written.with_blocks(Blocks::Tiles(512, 512)));
                let dataset = cases::open(&file.unwrap()).unwrap();
                let raster = dataset.read_device(&options(gpu)).unwrap();
                let counters = raster.report().counters;
                assert!(counters.launches > launches, "{compression}: {counters:?}");
                assert_eq!(counters.synchronisations, 1, "{compression}");
                assert!(raster.to_host().unwrap().bytes() == data, "{compression}, {script}");
                let limited = options(gpu).with_max_device_memory(5 << 20);
                let raster = dataset.read_device(&limited).unwrap();
                assert!(raster.report().counters.launches <= launches, "{compression}");
                assert!(raster.to_host().unwrap().bytes() == data, "{compression}, {script}");
            }
        });
    }
}

#[test]
fn each_group_is_launched_as_often_as_its_codec_needs() {
    let Some(fake) = driver::fake() else { return };
    fake.with("", |gpu| {
        // All are placed; also, one kernel decodes each, and five for Zstd.
        for (compression, launches) in
            [(Compression::None, 1), (Compression::PackBits, 2), (Compression::Deflate, 2), (Compression::Zstd, 6)]
        {
            let file = file(compression, Planar::Contig, 200);
            let (counters, batches) = counted(&fake, "", &file, &options(gpu), &compression.to_string());
            assert_eq!((counters.launches, counters.synchronisations, batches), (launches, 1, 1), "{compression}");
        }
    });
}

#[test]
fn old_sizes_do_not_crowd_new_ones_out_of_the_pool() {
    let Some(fake) = driver::fake() else { return };
    // A quarter of the memory is kept: less than the first reads leave behind.
    const MEMORY: u64 = 32 << 20;
    fake.with(&format!("memory={MEMORY}"), |gpu| {
        let read = |compression, side| {
            let file = file(compression, Planar::Contig, side);
            cases::open(&file).unwrap().read_device(&options(gpu)).unwrap().report().counters
        };
        let mut taken = 0;
        for side in [900, 1100, 1300, 700, 1000] {
            taken += read(Compression::Lzw, side).allocated_bytes;
        }
        assert!(taken > MEMORY / 4, "{taken}");
        assert!(read(Compression::Deflate, 300).allocations > 0);
        assert_eq!(read(Compression::Deflate, 300).allocations, 0);
        let left = fake.count("live_bytes");
        assert!(left <= MEMORY / 4, "{left}");
    });
}

#[test]
fn more_threads_wait_no_more_often() {
    let Some(fake) = driver::fake() else { return };
    fake.with("async=1 seed=6", |gpu| {
        let file = file(Compression::Deflate, Planar::Contig, 1400);
        for threads in [1, 2, 5] {
            counted(&fake, "async=1 seed=6", &file, &options(gpu).with_threads(threads), &format!("{threads} threads"));
        }
    });
}

#[test]
fn batches_keep_to_the_budget_and_wait_once() {
    let Some(fake) = driver::fake() else { return };
    let (mut most_batches, mut two_at_once) = (0, false);
    for script in ["", "async=1 seed=1", "async=1 seed=5"] {
        for compression in ON_DEVICE {
            fake.with(script, |gpu| {
                let file = file(compression, Planar::Contig, 600);
                let expected = cases::open(&file).unwrap().read(&ReadOptions::default()).unwrap();
                let whole = counted(&fake, script, &file, &options(gpu), "whole").0.peak_bytes;
                let least = least(&cases::open(&file).unwrap(), &options(gpu));
                assert!(least < whole, "{compression}: {least} of {whole}");
                for share in [0, 1, 3, 6] {
                    gpu.trim();
                    let budget = least + (whole - least) / 8 * share;
                    let limited = options(gpu).with_max_device_memory(budget);
                    let what = format!("{compression} {script}, {budget} of {whole} bytes");
                    let (counters, batches) = counted(&fake, script, &file, &limited, &what);
                    assert!(batches > 1, "{what}");
                    assert!(counters.peak_bytes <= budget, "{what}: {} bytes held", counters.peak_bytes);
                    assert!(fake.count("peak_bytes") <= budget, "{what}: {} bytes", fake.count("peak_bytes"));
                    most_batches = most_batches.max(batches);
                    two_at_once |= counters.buffers > most_buffers(compression, 1);
                    let read = cases::open(&file).unwrap().read_device(&limited).unwrap().to_host().unwrap();
                    assert!(read.bytes() == expected.bytes(), "{what}: other samples");
                }
            });
        }
    }
    // Some reads had one batch at a time on the device, some had two.
    assert!(most_batches >= 4 && two_at_once, "{most_batches} {two_at_once}");
}

#[test]
fn kernels_are_timed_on_request() {
    let Some(fake) = driver::fake() else { return };
    for script in ["", "async=1 seed=2"] {
        fake.with(script, |gpu| {
            let file = file(Compression::Deflate, Planar::Contig, 300);
            let timed = options(gpu).with_kernel_times(true);
            let raster = cases::open(&file).unwrap().read_device(&timed).unwrap();
            let times = raster.report().kernels.unwrap();
            assert!(times.decode_ms >= 0.0 && times.place_ms >= 0.0, "{times:?}");
            assert_eq!(raster.report().counters.synchronisations, 1);
            cases::agree(&file, &ReadOptions::default(), &timed).unwrap();
            let plain = cases::open(&file).unwrap().read_device(&options(gpu)).unwrap();
            assert!(plain.report().kernels.is_none());
        });
    }
}

#[test]
fn speeds_of_copies_are_those_of_pinned_memory() {
    const COPIED: u64 = 6 * (64 << 20);
    let Some(fake) = driver::fake() else { return };
    fake.with("async=1 seed=4", |gpu| {
        let speeds = copy_speeds(gpu).unwrap();
        for speed in [speeds.to_device, speeds.from_device] {
            assert!(speed.is_finite() && speed > 0.0, "{speeds:?}");
        }
        assert_eq!((fake.count("h2d_bytes"), fake.count("d2h_bytes")), (COPIED, COPIED));
        assert_eq!(fake.count("pageable"), 0);
    });
    for failed in [3, 100] {
        fake.with(&format!("fail_copy={failed}"), |gpu| assert!(copy_speeds(gpu).is_err(), "copy {failed}"));
    }
}
