//! Writes through a GPU: the CPU's pixels, the same file for any batches, at the promised cost, and no partial file.

use std::sync::Arc;

use swath::{
    Blocks, Compression, ErrorKind, Interleave, Limits, Mode, OpenOptions, Resampling, SampleType, Shape, WriteOptions,
    gpu::Gpu,
};

use crate::{
    cases,
    driver::{self, Fake},
    written::{self, ENCODED_ON_GPU, PushMethod, WriteCase, same_pixels},
};

fn shape(width: u32, height: u32, bands: u16, sample: SampleType) -> Shape {
    Shape { width, height, bands, sample }
}

#[test]
fn random_files_equal_the_cpus_for_any_batches() {
    let Some(fake) = driver::fake() else { return };
    for (seed, script) in [(1, ""), (2, "async=1 seed=3"), (3, "async=1 seed=8")] {
        fake.with(script, |gpu| {
            let mut faults = Vec::new();
            written::matrix(gpu, seed, 40, |found| faults.extend(found.err()));
            assert!(faults.is_empty(), "{} faults, the first: {}", faults.len(), faults[0]);
        });
    }
}

#[test]
fn tiles_of_several_pieces_are_written_and_read_by_all() {
    let Some(fake) = driver::fake() else { return };
    fake.with("async=1 seed=5", |gpu| {
        for compression in ENCODED_ON_GPU {
            for sample in [SampleType::U8, SampleType::U16, SampleType::F32] {
                let options = WriteOptions::cog().with_compression(compression).with_blocks(Blocks::Tiles(256, 256));
                let case = written::large(shape(600, 530, 1, sample), options, "");
                let (cpu, _) = case.write(&case.options, PushMethod::Whole, gpu).unwrap();
                let (file, _) = case.write(&case.on(gpu, Mode::Cuda), PushMethod::Whole, gpu).unwrap();
                same_pixels(&case.what, &cpu, &file).unwrap();
                // And by the GPU, which may decode pieces side by side.
                let dataset = cases::open(&file).unwrap();
                let options = swath::ReadOptions::default().with_device(Mode::Cuda).with_gpu(gpu.clone());
                let read = dataset.read_device(&options).unwrap().to_host().unwrap();
                assert!(read.bytes() == case.samples, "{}", case.what);
            }
        }
    });
}

fn costs(case: &WriteCase, gpu: &Arc<Gpu>, batch: u32) -> (swath::gpu::DeviceReport, usize) {
    let options = case.on(gpu, Mode::Cuda).with_batch(batch);
    let (file, written) = case.write(&options, PushMethod::Device(u32::MAX, Interleave::Band), gpu).unwrap();
    (written.device, file.len())
}

#[test]
fn each_batch_is_two_copies_and_one_wait() {
    let Some(fake) = driver::fake() else { return };
    fake.with("", |gpu| {
        let options = WriteOptions::cog().with_compression(Compression::Deflate).with_blocks(Blocks::Tiles(64, 64));
        let case = written::large(shape(640, 640, 1, SampleType::U16), options, "");
        for batch in [1, 3, 100] {
            let _ = costs(&case, gpu, batch);
            // Again, with all memory in the pools.
            let (report, len) = costs(&case, gpu, batch);
            let counters = report.counters;
            let batches = u64::from(report.batches);
            assert!(batches > 0 && (batch > 3 || batches > 1), "{report:?}");
            assert_eq!(counters.downloads, 2 * batches, "lengths and bytes: {report:?}");
            assert_eq!(counters.synchronisations, batches, "one wait for each: {report:?}");
            assert_eq!(counters.allocations, 0, "{report:?}");
            assert!(counters.downloaded_bytes < len as u64 * 2 + batches * 65536, "{report:?}");
            assert_eq!(counters.uploads, 0, "rows were on the device: {report:?}");
        }
    });
}

#[test]
fn device_memory_stays_within_its_limit() {
    let Some(fake) = driver::fake() else { return };
    fake.with("", |gpu| {
        let mut sizes = Vec::new();
        for (compression, cog) in [(Compression::Deflate, true), (Compression::Zstd, false), (Compression::Lzw, true)] {
            let options =
                WriteOptions::default().with_cog(cog).with_compression(compression).with_blocks(Blocks::Tiles(64, 64));
            let case = written::large(shape(1000, 900, 1, SampleType::F32), options, "");
            let free = case.write(&case.on(gpu, Mode::Cuda), PushMethod::Whole, gpu).unwrap();
            let most = free.1.device.counters.peak_bytes;
            for share in [2, 4] {
                let limit = most / share;
                gpu.trim();
                let options = case.on(gpu, Mode::Cuda).with_max_device_memory(limit);
                match case.write(&options, PushMethod::Rows(77), gpu) {
                    Ok((file, written)) => {
                        assert!(written.device.counters.peak_bytes <= limit, "{limit}: {:?}", written.device);
                        assert!(file == free.0, "{compression} under {limit}: other bytes");
                        sizes.push(limit);
                    }
                    Err(error) => assert!(error.to_string().contains("max_device_memory"), "{error}"),
                }
            }
            // Far too little memory is an error that states how much is needed.
            let error = case.write(&case.on(gpu, Mode::Cuda).with_max_device_memory(1 << 16), PushMethod::Whole, gpu);
            assert!(error.unwrap_err().to_string().contains("bytes of device memory"));
        }
        assert!(!sizes.is_empty(), "no limit was tried");
    });
}

/// Writes with a failing call: `Cuda` names the stage, `Auto` writes the right pixels or says why it cannot.
fn both(
    fake: &Fake,
    gpu: &Arc<Gpu>,
    case: &WriteCase,
    cpu: &Arc<[u8]>,
    method: PushMethod,
    script: &str,
) -> (bool, bool) {
    gpu.trim();
    fake.script(script);
    let cuda = match case.write(&case.on(gpu, Mode::Cuda), method, gpu) {
        Ok((file, _)) => {
            same_pixels(script, cpu, &file).unwrap();
            true
        }
        Err(error) => {
            assert!(matches!(error.kind(), ErrorKind::Device(_)), "{script}: {error}");
            false
        }
    };
    fake.script("");
    gpu.trim();
    fake.script(script);
    let stepped_down = match case.write(&case.on(gpu, Mode::Auto), method, gpu) {
        Ok((file, written)) => {
            same_pixels(&format!("{script}, by Auto"), cpu, &file).unwrap();
            let down = written.device.notices.iter().any(|notice| notice.contains("the CPU writes"));
            // A call of another kind may be the nth of this write, for which modules are loaded already.
            let silent = !cuda && !down && written.device.notices.is_empty();
            assert!(!silent || script.contains("fail_call"), "{script}: silent: {:?}", written.device);
            down
        }
        Err(error) => {
            assert!(matches!(error.kind(), ErrorKind::Device(_)), "{script}: {error}");
            false
        }
    };
    fake.script("");
    (cuda, stepped_down)
}

#[test]
fn a_push_after_a_push_keeps_nothing_of_the_first() {
    let Some(fake) = driver::fake() else { return };
    fake.with("", |gpu| {
        let options = WriteOptions::default().with_compression(Compression::Lzw).with_blocks(Blocks::Tiles(64, 64));
        let case = written::large(shape(512, 4096, 1, SampleType::F32), options, "");
        let peaks: Vec<u64> = [4096, 128]
            .map(|rows| {
                gpu.trim();
                fake.script("");
                case.write(&case.on(gpu, Mode::Cuda), PushMethod::Device(rows, Interleave::Band), gpu).unwrap();
                fake.count("peak_bytes")
            })
            .to_vec();
        assert!(peaks[1] + (4 << 20) < peaks[0], "eight megabytes of rows at once, then a quarter of one: {peaks:?}");
    });
}

fn every(key: &str, counts: &[&str], extra: &str, at_least: u32) {
    let Some(fake) = driver::fake() else { return };
    let options = WriteOptions::cog().with_compression(Compression::Deflate).with_blocks(Blocks::Tiles(32, 32));
    let mut case = written::large(shape(150, 140, 2, SampleType::F32), options.with_threads(2_usize), "-9999");
    case.options = case.options.with_batch(2_u32).with_resampling(Resampling::Average);
    let (mut failed, mut stepped_down) = (0, 0);
    for n in 1..2000 {
        let reached = fake.with("", |gpu| {
            let (cpu, _) = case.write(&case.options, PushMethod::Whole, gpu).unwrap();
            let method = if n % 2 == 0 { PushMethod::Rows(50) } else { PushMethod::Whole };
            let (cuda, down) = both(&fake, gpu, &case, &cpu, method, &format!("{key}={n} {extra}"));
            failed += u32::from(!cuda);
            stepped_down += u32::from(down);
            gpu.trim();
            fake.script("");
            let _ = case.write(&case.on(gpu, Mode::Cuda), method, gpu).unwrap();
            counts.iter().map(|count| fake.count(count)).sum::<u64>() >= n
        });
        if !reached {
            break;
        }
    }
    assert!(failed >= at_least, "{failed} of {key} failed a write, at least {at_least} should");
    assert!(stepped_down > 0 || at_least == 0, "no failure of {key} let the CPU go on");
}

#[test]
fn allocations_that_fail_leave_no_torn_file() {
    // A failed allocation is retried with empty pools.
    every("fail_alloc", &["alloc"], "", 0);
    every("fail_alloc_from", &["alloc"], "async=1 seed=4", 5);
}

#[test]
fn copies_that_fail_leave_no_torn_file() {
    every("fail_copy", &["h2d", "d2h"], "async=1 seed=5", 3);
}

#[test]
fn any_call_that_fails_leaves_no_torn_file() {
    every("fail_call", &["fallible"], "async=1 seed=9", 5);
}

#[test]
fn launches_that_fail_leave_no_torn_file() {
    let Some(fake) = driver::fake() else { return };
    // The context is lost then, with the rows that were on the device, so the CPU cannot continue.
    let options = WriteOptions::cog().with_compression(Compression::Deflate).with_blocks(Blocks::Tiles(32, 32));
    let case = written::large(shape(150, 140, 1, SampleType::U16), options, "");
    let folder = std::env::temp_dir().join(format!("swath-gpu-write-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let target = folder.join("out.tif");
    std::fs::write(&target, b"before").unwrap();
    let mut stages = std::collections::BTreeSet::new();
    for key in ["fail_launch", "fault_launch", "fail_sync"] {
        for n in 1..60 {
            fake.with(&format!("{key}={n} async=1 seed=2"), |gpu| {
                let mut writer =
                    match swath::Writer::create(&target, case.shape, &case.metadata, &case.on(gpu, Mode::Cuda)) {
                        Ok(writer) => writer,
                        Err(error) => {
                            stages.insert(error.to_string());
                            return;
                        }
                    };
                let pushed = writer.push(&swath::Rows::from_bytes(&case.samples, swath::Interleave::Band));
                match pushed.and_then(|()| writer.finish()) {
                    Ok(_) => std::fs::write(&target, b"before").unwrap(),
                    Err(error) => _ = stages.insert(error.to_string()),
                }
            });
            assert_eq!(std::fs::read(&target).unwrap(), b"before", "{key}={n}");
            assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1, "{key}={n} left something behind");
        }
    }
    for stage in ["taking rows to the device", "making overviews", "cutting tiles", "compressing tiles"] {
        assert!(stages.iter().any(|error| error.contains(stage)), "nothing failed while {stage}: {stages:?}");
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn the_cpu_compresses_codecs_without_a_gpu_encoder_with_a_notice() {
    let Some(fake) = driver::fake() else { return };
    fake.with("async=1 seed=6", |gpu| {
        for compression in [Compression::Lzma, Compression::Lz4, Compression::Lerc] {
            let options = WriteOptions::cog().with_compression(compression).with_blocks(Blocks::Tiles(64, 64));
            let case = written::large(shape(300, 200, 2, SampleType::F32), options, "-9999");
            let (cpu, _) = case.write(&case.options, PushMethod::Whole, gpu).unwrap();
            let (file, written) = case.write(&case.on(gpu, Mode::Cuda), PushMethod::Rows(90), gpu).unwrap();
            same_pixels(&case.what, &cpu, &file).unwrap();
            let report = written.device;
            assert!(report.host_tiles > 0 && report.notices.len() == 1, "{report:?}");
            assert!(report.notices[0].starts_with("tiles are compressed by the CPU: "), "{report:?}");
        }
    });
}

#[test]
fn without_a_gpu_auto_writes_exactly_the_file_of_the_cpu() {
    let Some(fake) = driver::fake() else { return };
    fake.with("", |gpu| {
        let options = WriteOptions::cog().with_compression(Compression::Deflate).with_blocks(Blocks::Tiles(64, 64));
        let case = written::large(shape(300, 200, 1, SampleType::U16), options, "");
        let (cpu, _) = case.write(&case.options, PushMethod::Whole, gpu).unwrap();
        fake.script("fail_alloc_from=1");
        gpu.trim();
        let (file, written) = case.write(&case.on(gpu, Mode::Auto), PushMethod::Whole, gpu).unwrap();
        fake.script("");
        assert!(file == cpu, "other bytes");
        assert_eq!(written.device.notices.len(), 1, "{:?}", written.device);
        assert!(written.device.notices[0].contains("the CPU writes: "), "{:?}", written.device);
    });
}

#[test]
fn conversions_stay_on_the_device() {
    let Some(fake) = driver::fake() else { return };
    fake.with("async=1 seed=7", |gpu| {
        let options = WriteOptions::default().with_compression(Compression::Deflate).with_blocks(Blocks::Tiles(64, 64));
        let case = written::large(shape(400, 300, 1, SampleType::U16), options, "0");
        let (source, _) = case.write(&case.options, PushMethod::Whole, gpu).unwrap();
        let open = || {
            OpenOptions::default()
                .with_limits(Limits::none())
                .open_source(Arc::new(swath::io::MemorySource::new("in.tif", source.clone())))
                .unwrap()
        };
        let convert = |options: &WriteOptions| {
            let (sink, memory) = swath::io::MemorySink::new("out.tif");
            let made = open().convert_to(|| Ok(Box::new(sink)), &swath::ConvertOptions::default(), options).unwrap();
            (Arc::<[u8]>::from(memory.take().unwrap()), made.written.device)
        };
        let write = WriteOptions::cog().with_compression(Compression::Zstd).with_blocks(Blocks::Tiles(32, 32));
        let (cpu, _) = convert(&write);
        let (file, report) = convert(&write.clone().with_device(Mode::Cuda).with_gpu(gpu.clone()));
        same_pixels("convert", &cpu, &file).unwrap();
        assert!(report.notices.is_empty() && report.host_tiles == 0, "{report:?}");
        // Only the file and facts about it leave the device, not the pixels.
        assert!(report.counters.downloaded_bytes < file.len() as u64 * 2 + (1 << 18), "{report:?}");
        // Written rows do not stay on the device: a tall file takes no more memory than one half as tall.
        let plain = WriteOptions::default().with_compression(Compression::None);
        let narrow = plain.clone().with_device(Mode::Cuda).with_gpu(gpu.clone()).with_max_device_memory(40 << 20);
        let peaks = [25_000, 50_000].map(|height| {
            let tall = written::large(shape(500, height, 1, SampleType::U16), plain.clone(), "0");
            let dataset = cases::open(&tall.write(&tall.options, PushMethod::Whole, gpu).unwrap().0).unwrap();
            gpu.trim();
            fake.script("async=1 seed=7");
            let (sink, _memory) = swath::io::MemorySink::new("out.tif");
            let made = dataset.convert_to(|| Ok(Box::new(sink)), &swath::ConvertOptions::default(), &narrow).unwrap();
            assert!(made.written.device.notices.is_empty(), "{:?}", made.written.device);
            fake.count("peak_bytes")
        });
        assert!(peaks[1] <= peaks[0] + (1 << 20), "{peaks:?} bytes were on the device");
        // Only the source file is copied to the device.
        assert!(report.counters.uploaded_bytes < source.len() as u64 * 2 + (1 << 18), "{report:?}");
    });
}
