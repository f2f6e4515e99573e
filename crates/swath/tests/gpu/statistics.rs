//! Statistics on a GPU are those of the CPU to the last bit, and no pixel comes back for them.

use swath::{
    Compression, ErrorKind, Mode, ReadOptions, SampleType, Shape, WriteOptions, statistics::StatisticsOptions,
};

use crate::{
    cases::{self, Case, Rng},
    driver,
    summed::{self, agree, open_for},
};

#[test]
fn statistics_are_those_of_the_cpu_for_every_type_and_layout() {
    let Some(fake) = driver::fake() else { return };
    let scripts =
        [("", 96), ("async=1 seed=1", 96), ("sms=1", 48), ("async=1 seed=8", 48), ("async=1 seed=3 lanes=32", 16)];
    let (mut faults, mut checked, mut on_device) = (Vec::new(), 0, 0);
    for (seed, (script, count)) in (0..).zip(scripts) {
        fake.with(script, |gpu| {
            let mut rng = Rng::new(100 + seed);
            for case in (0..count).filter_map(|number| summed::draw(number, &mut rng)) {
                checked += 1;
                match case.check(gpu, None) {
                    Ok(report) => on_device += u32::from(report.host_tiles == 0 && report.notices.is_empty()),
                    Err(fault) => faults.push(format!("{script}: {fault}")),
                }
            }
        });
    }
    assert!(faults.is_empty(), "{} faults: {:#?}", faults.len(), &faults[..faults.len().min(5)]);
    assert!(checked > 200 && on_device > checked * 3 / 4, "{on_device} of {checked} on the device");
}

/// The files that reads are tested with.
#[test]
fn statistics_are_those_of_the_cpu_for_files_of_every_codec() {
    let Some(fake) = driver::fake() else { return };
    fake.with("async=1 seed=2", |gpu| {
        let mut rng = Rng::new(55);
        for _ in 0..60 {
            let case = Case::draw(&mut rng);
            // nvJPEG's samples may differ.
            if case.what.contains("jpeg") {
                continue;
            }
            let mode = if case.on_device { Mode::Cuda } else { Mode::Auto };
            let found = agree(&case.file, &StatisticsOptions::default(), gpu, mode, None);
            let report = found.unwrap_or_else(|fault| panic!("{}: {fault}", case.what)).unwrap();
            assert!(case.on_device == report.notices.is_empty(), "{}: {:?}", case.what, report.notices);
        }
    });
}

#[test]
fn bands_may_be_chosen_repeated_and_turned_round() {
    let Some(fake) = driver::fake() else { return };
    fake.with("", |gpu| {
        let mut rng = Rng::new(12);
        for number in 0..40 {
            let Some(case) = summed::draw(number, &mut rng).filter(|case| case.on_device) else { continue };
            let bands = cases::open(&case.file).unwrap().bands();
            let list: Vec<u32> = (0..rng.within(1..5)).map(|_| rng.within(1..bands + 1)).collect();
            let options = StatisticsOptions::default().with_bands(list.clone());
            let found = agree(&case.file, &options, gpu, Mode::Cuda, None);
            found.unwrap_or_else(|fault| panic!("{} {list:?}: {fault}", case.what)).unwrap();
            let none = StatisticsOptions::default().with_bands([bands + 1]);
            assert!(agree(&case.file, &none, gpu, Mode::Cuda, None).unwrap().is_none());
        }
    });
}

#[test]
fn two_waits_and_only_sums_come_back() {
    let Some(fake) = driver::fake() else { return };
    let shape = Shape { width: 700, height: 600, bands: 3, sample: SampleType::F32 };
    let options = WriteOptions::default().with_compression(Compression::Deflate);
    let file = cases::write(shape, &cases::samples(shape, &mut Rng::new(3)), &cases::nodata_of(""), &options).unwrap();
    for script in ["", "async=1 seed=4"] {
        fake.with(script, |gpu| {
            let mut allocated = Vec::new();
            for _ in 0..2 {
                fake.script(script);
                let dataset = open_for(&file, gpu, Mode::Cuda, None).unwrap();
                dataset.statistics(&StatisticsOptions::default()).unwrap();
                let report = dataset.device_report();
                let counters = report.counters;
                for (name, counted) in [
                    ("sync", counters.synchronisations),
                    ("h2d", counters.uploads),
                    ("h2d_bytes", counters.uploaded_bytes),
                    ("d2h", counters.downloads),
                    ("d2h_bytes", counters.downloaded_bytes),
                    ("launch", counters.launches),
                    ("alloc", counters.allocations),
                    ("d2d", 0),
                    ("pageable", 0),
                ] {
                    assert_eq!(fake.count(name), counted, "{script}: {name}");
                }
                // One for the statuses of the tiles, one for the sums.
                assert_eq!((counters.synchronisations, counters.downloads), (2, 2), "{script}");
                assert_eq!(counters.downloaded_bytes, 4 * report.device_tiles + 3 * 56, "{script}");
                // Decoding, placing, chunks, areas.
                assert_eq!(counters.launches, 4, "{script}");
                assert!(counters.peak_bytes >= 700 * 600 * 12 && report.notices.is_empty(), "{script}: {report:?}");
                allocated.push(counters.allocations);
            }
            assert!(allocated[0] > 0 && allocated[1] == 0, "{script}: {allocated:?}");
        });
    }
}

#[test]
fn runs_keep_to_the_memory_that_they_may_use() {
    let Some(fake) = driver::fake() else { return };
    const MIB: u64 = 1 << 20;
    for compression in [Compression::None, Compression::PackBits] {
        let file = summed::large(compression).unwrap();
        for (limit, through_host) in
            [(None, false), (Some(200 * MIB), false), (Some(110 * MIB), false), (Some(16 * MIB), true)]
        {
            fake.with("async=1 seed=3", |gpu| {
                let what = format!("{compression}, {limit:?}");
                let found = agree(&file, &StatisticsOptions::default(), gpu, Mode::Cuda, limit);
                let report = found.unwrap_or_else(|fault| panic!("{what}: {fault}")).unwrap();
                let notices = report.notices.iter().filter(|notice| notice.contains("summed up by the CPU")).count();
                assert_eq!(notices > 0, through_host, "{what}: {:?}", report.notices);
                if let Some(limit) = limit {
                    assert!(report.counters.peak_bytes <= limit, "{what}: {} bytes", report.counters.peak_bytes);
                    // Reads through the device to the host leave blocks of several sizes in the pool.
                    let taken = fake.count("peak_bytes");
                    assert!(taken <= limit || through_host, "{what}: {taken} bytes");
                }
                let back = report.counters.downloaded_bytes;
                assert_eq!(back < 10_000, !through_host, "{what}: {back} bytes came back");
            });
        }
    }
}

#[test]
fn a_codec_that_the_gpu_lacks_is_decoded_by_the_cpu_or_refused() {
    let Some(fake) = driver::fake() else { return };
    let shape = Shape { width: 90, height: 70, bands: 2, sample: SampleType::I16 };
    let options = WriteOptions::default().with_compression(Compression::Lzma);
    let file = cases::write(shape, &cases::samples(shape, &mut Rng::new(3)), &cases::nodata_of(""), &options).unwrap();
    fake.with("", |gpu| {
        let report = agree(&file, &StatisticsOptions::default(), gpu, Mode::Auto, None).unwrap().unwrap();
        assert!(report.host_tiles > 0 && report.notices.len() == 1, "{report:?}");
        let error = open_for(&file, gpu, Mode::Cuda, None).unwrap().statistics(&StatisticsOptions::default());
        assert!(matches!(error.unwrap_err().kind(), ErrorKind::Device(_)));
    });
}

#[test]
fn damaged_tiles_cause_the_cpus_errors() {
    let Some(fake) = driver::fake() else { return };
    fake.with("", |gpu| {
        for compression in [Compression::Lzw, Compression::Deflate, Compression::Zstd] {
            let shape = Shape { width: 90, height: 70, bands: 2, sample: SampleType::I16 };
            let options =
                WriteOptions::default().with_compression(compression).with_blocks(swath::Blocks::Tiles(32, 32));
            let samples = cases::samples(shape, &mut Rng::new(9));
            let good = cases::write(shape, &samples, &cases::nodata_of(""), &options).unwrap();
            let mut file = good.to_vec();
            cases::shorten(&mut file, 3, 5);
            let found = agree(&file.into(), &StatisticsOptions::default(), gpu, Mode::Cuda, None);
            assert!(found.unwrap_or_else(|fault| panic!("{compression}: {fault}")).is_none());
        }
    });
}

/// Every call of a kind fails in turn: `Cuda` names it, `Auto` gives the CPU's statistics and says why.
#[test]
fn any_call_may_fail() {
    let Some(fake) = driver::fake() else { return };
    let shape = Shape { width: 100, height: 90, bands: 2, sample: SampleType::U16 };
    let options = WriteOptions::default().with_compression(Compression::Deflate);
    let file = cases::write(shape, &cases::samples(shape, &mut Rng::new(5)), &cases::nodata_of(""), &options).unwrap();
    let wanted = format!("{:?}", cases::open(&file).unwrap().statistics(&StatisticsOptions::default()).unwrap());
    for (key, counts) in [
        ("fail_alloc", &["alloc"][..]),
        ("fail_alloc_from", &["alloc"]),
        ("fail_copy", &["h2d", "d2h"]),
        ("fail_launch", &["launch"]),
        ("fault_launch", &["launch"]),
        ("fail_sync", &["sync"]),
        ("fail_call", &["fallible"]),
    ] {
        let (mut failed, mut stepped_down) = (0, 0);
        for n in 1.. {
            let reached = fake.with("", |gpu| {
                let script = format!("{key}={n}");
                for mode in [Mode::Cuda, Mode::Auto] {
                    fake.script("");
                    gpu.trim();
                    fake.script(&script);
                    let dataset = open_for(&file, gpu, mode, None).unwrap();
                    match dataset.statistics(&StatisticsOptions::default()) {
                        Ok(found) => {
                            assert_eq!(format!("{found:?}"), wanted, "{script}");
                            let by_cpu = |notice: &String| notice.contains("by the CPU: ");
                            stepped_down += u32::from(dataset.device_report().notices.iter().any(by_cpu));
                        }
                        Err(error) => {
                            assert!(mode == Mode::Cuda, "{script}: {error}");
                            assert!(matches!(error.kind(), ErrorKind::Device(_)), "{script}: {error}");
                            failed += 1;
                        }
                    }
                }
                // Whether statistics reach the nth call, with nothing pooled as here; and the same GPU works again.
                fake.script("");
                gpu.trim();
                fake.script("");
                let dataset = open_for(&file, gpu, Mode::Cuda, None).unwrap();
                let found = dataset.statistics(&StatisticsOptions::default()).unwrap();
                assert_eq!(format!("{found:?}"), wanted, "after {script}");
                counts.iter().map(|count| fake.count(count)).sum::<u64>() >= n
            });
            if !reached {
                break;
            }
            assert!(n < 5000, "{key}: no end");
        }
        // A single failed allocation is retried.
        assert_eq!(failed == 0 && stepped_down == 0, key == "fail_alloc", "{key}: {failed} failed, {stepped_down}");
    }
}

#[test]
fn cancelled_statistics_end() {
    let Some(fake) = driver::fake() else { return };
    fake.with("", |gpu| {
        let cancel = swath::Cancel::new();
        cancel.cancel();
        let mut rng = Rng::new(1);
        let case = Case::draw(&mut rng);
        let dataset = open_for(&case.file, gpu, Mode::Auto, None).unwrap();
        let error = dataset.statistics(&StatisticsOptions::default().with_cancel(cancel)).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Cancelled), "{error}");
        dataset.read(&ReadOptions::default()).unwrap();
    });
}
