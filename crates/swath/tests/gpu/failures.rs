//! Any call may fail at any time: `Cuda` names the failed call, `Auto` gives the right samples and the reason.

use std::{process::Command, sync::Arc};

use swath::{
    Blocks, Compression, Error, ErrorKind, Mode, ReadOptions, SampleType, Shape, WriteOptions,
    gpu::{DeviceError, DeviceReport, Gpu, GpuOptions},
};

use crate::{
    cases::{self, ON_DEVICE, Rng},
    driver::{self, Fake},
    written::{self, PushMethod, WriteCase, same_pixels},
};

/// Writes a COG while each call of the device fails in turn: the CPU continues with its own pixels, or the error is the
/// device's.
pub fn check_failing_writes(
    failing: impl Iterator<Item = u64>,
    write: impl Fn(&WriteCase, &Arc<Gpu>, &mut Rng) -> Result<(Arc<[u8]>, DeviceReport), Error>,
) {
    let Some(fake) = driver::fake() else { return };
    let options = WriteOptions::cog().with_compression(Compression::Deflate).with_blocks(Blocks::Tiles(32, 32));
    let shape = Shape { width: 150, height: 140, bands: 2, sample: SampleType::F32 };
    let case = written::large(shape, options, "-9999");
    let (mut stepped_down, mut failed) = (0, 0);
    for failing in failing {
        for key in ["fail_alloc_from", "fail_launch", "fail_copy", "fail_call"] {
            fake.with("", |gpu| {
                let (cpu, _) = case.write(&case.options, PushMethod::Whole, gpu).unwrap();
                gpu.trim();
                let script = format!("{key}={failing}");
                fake.script(&script);
                match write(&case, gpu, &mut Rng::new(failing)) {
                    Ok((file, report)) => {
                        same_pixels(&script, &cpu, &file).unwrap();
                        stepped_down += u32::from(report.notices.iter().any(|notice| notice.contains("the CPU")));
                    }
                    Err(error) => {
                        assert!(matches!(error.kind(), ErrorKind::Device(_)), "{script}: {error}");
                        failed += 1;
                    }
                }
            });
        }
    }
    assert!(stepped_down > 0, "no failure let the CPU go on, {failed} failed");
}

fn file(compression: Compression) -> Arc<[u8]> {
    let shape = Shape { width: 100, height: 90, bands: 2, sample: SampleType::U16 };
    let options = WriteOptions::default().with_compression(compression).with_blocks(Blocks::Tiles(32, 32));
    cases::write(shape, &cases::samples(shape, &mut Rng::new(5)), &cases::nodata_of(""), &options).unwrap()
}

fn options(gpu: &Arc<Gpu>, mode: Mode) -> ReadOptions {
    ReadOptions::default().with_device(mode).with_gpu(gpu.clone()).with_threads(2)
}

/// Fails unless the error is the driver's and names the call that failed.
fn expect_call(error: &Error, what: &str) {
    match error.kind() {
        ErrorKind::Device(DeviceError::Call { call, code, .. }) => {
            assert!(call.starts_with("cu") && *code != 0, "{what}: {error}");
        }
        other => panic!("{what}: {other:?}"),
    }
}

/// One read by the GPU alone and one that may step down; both with a script that fails somewhere, and no pooled memory.
fn both(fake: &Fake, gpu: &Arc<Gpu>, file: &Arc<[u8]>, expected: &[u8], script: &str) -> (bool, bool) {
    let dataset = cases::open(file).unwrap();
    gpu.trim();
    fake.script(script);
    let cuda = match dataset.read_device(&options(gpu, Mode::Cuda)).and_then(|raster| raster.to_host()) {
        Ok(read) => {
            assert!(read.bytes() == expected, "{script}: other samples by Cuda");
            true
        }
        Err(error) => {
            expect_call(&error, script);
            false
        }
    };
    fake.script("");
    gpu.trim();
    fake.script(script);
    let read = dataset.read(&options(gpu, Mode::Auto)).unwrap_or_else(|error| panic!("{script}: {error}"));
    assert!(read.bytes() == expected, "{script}: other samples by Auto");
    let report = read.report().unwrap();
    let stepped_down = report.device.is_empty();
    if stepped_down {
        assert_eq!(report.notices.len(), 1, "{script}: {report:?}");
        assert!(report.notices[0].starts_with("decoded by the CPU: cu"), "{script}: {report:?}");
    } else {
        // A call on the way to machine code that fails leaves the way over PTX.
        let detour = |notice: &String| script.contains("fail_call") && notice.starts_with("the driver compiles");
        assert!(report.notices.iter().all(detour), "{script}: {report:?}");
    }
    // After a repair the same GPU works.
    fake.script("");
    let good = dataset.read(&options(gpu, Mode::Cuda)).unwrap_or_else(|error| panic!("after {script}: {error}"));
    assert!(good.bytes() == expected, "after {script}: other samples");
    (cuda, stepped_down)
}

/// Fails the nth call of a kind, for every n.
fn every(key: &str, counts: &[&str], extra: &str) {
    let Some(fake) = driver::fake() else { return };
    for compression in ON_DEVICE {
        let file = file(compression);
        let expected = cases::open(&file).unwrap().read(&ReadOptions::default()).unwrap();
        let (mut failed, mut stepped_down) = (0, 0);
        for n in 1.. {
            let reached = fake.with("", |gpu| {
                let script = format!("{key}={n} {extra}");
                let (cuda, down) = both(&fake, gpu, &file, expected.bytes(), &script);
                failed += u32::from(!cuda);
                stepped_down += u32::from(down);
                // Whether a read reaches the nth call, with nothing pooled as here.
                gpu.trim();
                fake.script("");
                let _ = cases::open(&file).unwrap().read(&options(gpu, Mode::Cuda)).unwrap();
                counts.iter().map(|count| fake.count(count)).sum::<u64>() >= n
            });
            if !reached {
                break;
            }
            assert!(n < 5000, "{key}: no end");
        }
        // A single failed allocation is retried.
        let once = key == "fail_alloc";
        assert_eq!(failed == 0 && stepped_down == 0, once, "{compression}, {key}: {failed} failed, {stepped_down}");
    }
}

#[test]
fn every_allocation_may_fail() {
    every("fail_alloc", &["alloc"], "");
    every("fail_alloc", &["alloc"], "async=1 seed=3");
}

#[test]
fn memory_may_run_out_for_good() {
    every("fail_alloc_from", &["alloc"], "async=1 seed=4");
}

#[test]
fn every_copy_may_fail() {
    every("fail_copy", &["h2d", "d2h"], "");
    every("fail_copy", &["h2d", "d2h"], "async=1 seed=5");
}

#[test]
fn every_launch_may_fail() {
    every("fail_launch", &["launch"], "");
    every("fail_launch", &["launch"], "async=1 seed=2");
}

#[test]
fn every_launch_may_fault_later() {
    every("fault_launch", &["launch"], "");
    every("fault_launch", &["launch"], "async=1 seed=1");
}

#[test]
fn every_wait_may_fail() {
    every("fail_sync", &["sync"], "");
    every("fail_sync", &["sync"], "async=1 seed=0");
}

/// Attributes, events, streams, memsets, queries and all others: the whole table of the driver.
#[test]
fn every_call_may_fail() {
    every("fail_call", &["fallible"], "");
    every("fail_call", &["fallible"], "async=1 seed=7");
}

#[test]
fn every_call_of_opening_the_device_may_fail() {
    let Some(fake) = driver::fake() else { return };
    let file = file(Compression::Deflate);
    let dataset = cases::open(&file).unwrap();
    let expected = dataset.read(&ReadOptions::default()).unwrap();
    let calls = fake.with("", |_| fake.count("fallible"));
    let mut failed = 0;
    for n in 1..=calls {
        let script = format!("fail_call={n}");
        fake.script(&script);
        match fake.open() {
            Err(error) => {
                assert!(error.to_string().contains("cu"), "{script}: {error}");
                failed += 1;
            }
            // What is nice to know, and not needed.
            Ok(gpu) => {
                let read = dataset.read(&options(&gpu, Mode::Cuda)).unwrap_or_else(|error| panic!("{script}: {error}"));
                assert!(read.bytes() == expected.bytes(), "{script}");
            }
        }
        fake.expect_nothing_left(&script);
    }
    assert!(failed > 5, "{failed} of {calls}");
}

#[test]
fn the_device_may_be_lost_at_any_call() {
    let Some(fake) = driver::fake() else { return };
    for (compression, script) in
        [(Compression::Deflate, ""), (Compression::Lzw, "async=1 seed=6"), (Compression::Zstd, "")]
    {
        let file = file(compression);
        let expected = cases::open(&file).unwrap().read(&ReadOptions::default()).unwrap();
        let calls = fake.with(script, |gpu| {
            cases::open(&file).unwrap().read(&options(gpu, Mode::Cuda)).unwrap();
            fake.count("calls")
        });
        let (mut failed, mut at_open, mut good) = (0, 0, 0);
        for n in 0..calls + 4 {
            let script = format!("lose_after={n} {script}");
            fake.script(&script);
            match fake.open() {
                Err(error) => {
                    assert!(error.to_string().contains("cu"), "{script}: {error}");
                    at_open += 1;
                }
                Ok(gpu) => {
                    match both(&fake, &gpu, &file, expected.bytes(), &script) {
                        (true, _) => good += 1,
                        (false, _) => failed += 1,
                    }
                    drop(gpu);
                }
            }
            fake.expect_nothing_left(&script);
        }
        assert!(failed > 20 && at_open > 2 && good > 0, "{compression}: {failed} {at_open} {good} of {calls}");
    }
}

#[test]
fn pinned_memory_may_be_refused() {
    let Some(fake) = driver::fake() else { return };
    let file = file(Compression::Deflate);
    let dataset = cases::open(&file).unwrap();
    let expected = dataset.read(&ReadOptions::default()).unwrap();
    for n in 1..6 {
        for mode in [Mode::Cuda, Mode::Auto] {
            // Chunks are pooled, so each read has a GPU of its own. A refused chunk is requested again, or the read does without it.
            fake.with(&format!("fail_host_alloc={n} async=1 seed={n}"), |gpu| {
                let read = dataset.read(&options(gpu, mode)).unwrap_or_else(|error| panic!("{n}: {error}"));
                assert!(read.bytes() == expected.bytes(), "{n}");
                let report = read.report().unwrap();
                assert_eq!(report.notices.len(), usize::from(report.device.is_empty()), "{report:?}");
                assert!(n > 1 || fake.count("host_alloc") > 1);
            });
        }
    }
}

#[test]
fn a_failed_copy_does_not_leak_pinned_memory() {
    let Some(fake) = driver::fake() else { return };
    fake.with("", |gpu| {
        let file = file(Compression::Deflate);
        let dataset = cases::open(&file).unwrap();
        let options = options(gpu, Mode::Cuda).with_threads(1);
        let expected = dataset.read(&options).unwrap();
        fake.script("");
        dataset.read_device(&options).unwrap();
        let copies = fake.count("h2d") + fake.count("d2h");
        // More often than there are chunks.
        for _ in 0..70 {
            fake.script(&format!("fail_copy={copies}"));
            expect_call(&dataset.read_device(&options).unwrap_err(), "the last copy");
        }
        fake.script("");
        assert!(dataset.read(&options).unwrap().bytes() == expected.bytes());
        assert!(fake.count("live_host_bytes") < 16 << 20, "{}", fake.count("live_host_bytes"));
    });
}

/// Reads one file in a process of its own, with the driver that the environment names; the tests below start it.
#[test]
#[ignore = "started by other tests"]
fn child() {
    let file = file(Compression::Deflate);
    let dataset = cases::open(&file).unwrap();
    let expected = dataset.read(&ReadOptions::default()).unwrap();
    for _ in 0..2 {
        let read = dataset.read(&ReadOptions::default().with_device(Mode::Auto)).unwrap();
        assert!(read.bytes() == expected.bytes());
        println!("notices {:?}", read.report().unwrap().notices);
    }
    let error = dataset.read(&ReadOptions::default().with_device(Mode::Cuda)).map(|_| ()).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Device(_)), "{error}");
    println!("error {error}");
    assert!(dataset.read_device(&ReadOptions::default().with_device(Mode::Auto)).is_err());
}

#[test]
fn without_a_usable_gpu_the_cpu_reads_and_reports_why() {
    let Some(_fake) = driver::fake() else { return };
    let library = |form: &str| driver::path(form).display().to_string();
    let cases: [(&str, String, &str, &str); 9] = [
        ("no such file", "/nowhere/libcuda.so.1".into(), "", "no CUDA device: the NVIDIA driver, /nowhere/"),
        ("old", library("old"), "", "no CUDA device: the driver has no cuMemGetInfo_v2; it is too old"),
        ("empty", library("empty"), "", "no CUDA device: the driver has no cuDriverGetVersion; it is too old"),
        ("init", library(""), "init=999", "no CUDA device: cuInit: CUDA_ERROR_UNKNOWN"),
        ("no device", library(""), "devices=0", "no CUDA device: cuInit: CUDA_ERROR_NO_DEVICE"),
        ("old version", library(""), "version=11040", "no CUDA device: the driver supports CUDA 11.4; CUDA 12.0"),
        ("old chip", library(""), "capability=61", "has compute capability 6.1; 7.0 (Volta) or newer is needed"),
        ("module", library(""), "fail_module=1", "cuModuleLoadData("),
        ("lost", library(""), "lose_after=30", "cu"),
    ];
    for (what, path, script, reason) in cases {
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "failures::child", "--ignored", "--nocapture"])
            .env("SWATH_CUDA_DRIVER", path)
            .env("SWATH_FAKE_DRIVER", script)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{what}: {text}");
        let notices: Vec<&str> = text.lines().filter(|line| line.contains("notices [")).collect();
        assert_eq!(notices.len(), 2, "{what}: {text}");
        for notice in notices {
            assert!(notice.contains("notices [\"decoded by the CPU: ") && notice.contains(reason), "{what}: {notice}");
            assert!(!notice.contains("\", \""), "{what}: more than one: {notice}");
        }
        let error = text.lines().find(|line| line.starts_with("error ")).unwrap_or_default();
        assert!(error.contains(reason) && error.contains("test.tif"), "{what}: {error}");
    }
}

#[test]
fn a_missing_device_is_named() {
    let Some(fake) = driver::fake() else { return };
    fake.script("devices=2");
    let error = Gpu::open(&GpuOptions::default().with_driver(driver::path("")).with_ordinal(2)).unwrap_err();
    assert!(matches!(error, DeviceError::Absent(_)) && error.to_string().contains("device 2"), "{error}");
    fake.expect_nothing_left("no such device");
}
