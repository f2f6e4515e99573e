//! Kernels are loaded as machine code where there is some for the chip, else as PTX, when they are first needed.

use std::sync::Arc;

use swath::{
    Blocks, Compression, ErrorKind, Interleave, Metadata, Mode, ReadOptions, Rows, SampleType, Shape, WriteOptions,
    Writer,
    gpu::{Gpu, GpuOptions, KernelCode},
    io::MemorySink,
};

use crate::{
    cases::{self, Rng},
    driver::{self, Fake},
};

const SHAPE: Shape = Shape { width: 100, height: 90, bands: 1, sample: SampleType::U16 };

fn samples() -> Vec<u8> {
    cases::samples(SHAPE, &mut Rng::new(8))
}

fn file(compression: Compression) -> Arc<[u8]> {
    let options = WriteOptions::default().with_compression(compression).with_blocks(Blocks::Tiles(32, 32));
    cases::write(SHAPE, &samples(), &cases::nodata_of(""), &options).unwrap()
}

/// Reads with the GPU alone, compares the samples, and returns the notices of the report.
fn read(gpu: &Arc<Gpu>, compression: Compression) -> Vec<String> {
    let options = ReadOptions::default().with_device(Mode::Cuda).with_gpu(gpu.clone()).with_threads(1);
    let raster = cases::open(&file(compression)).unwrap().read(&options).unwrap();
    assert!(raster.bytes() == samples(), "{compression}: other samples");
    raster.report().unwrap().notices.clone()
}

/// Writes with the GPU alone and returns the notices of the report.
fn write(gpu: &Arc<Gpu>, compression: Compression) -> Vec<String> {
    let options = WriteOptions::cog()
        .with_compression(compression)
        .with_blocks(Blocks::Tiles(32, 32))
        .with_device(Mode::Cuda)
        .with_gpu(gpu.clone());
    let (sink, bytes) = MemorySink::new("memory");
    let mut writer = Writer::to_sink(Box::new(sink), SHAPE, &Metadata::default(), &options).unwrap();
    writer.push(&Rows::from_bytes(&samples(), Interleave::Band)).unwrap();
    let written = writer.finish().unwrap();
    let file: Arc<[u8]> = bytes.take().unwrap().into();
    let raster = cases::open(&file).unwrap().read(&ReadOptions::default()).unwrap();
    assert!(raster.bytes() == samples(), "{compression}: other samples");
    written.device.notices
}

/// Modules that were loaded since the last script: all, and those of machine code.
fn loaded(fake: &Fake) -> (u64, u64) {
    (fake.count("modules_made"), fake.count("cubins_made"))
}

#[test]
fn chips_with_machine_code_get_it() {
    let Some(fake) = driver::fake() else { return };
    for (capability, chip) in [
        (75, "sm_75"),
        (80, "sm_80"),
        (86, "sm_86"),
        (89, "sm_86"),
        (90, "sm_90"),
        (100, "sm_100"),
        (103, "sm_100"),
        (120, "sm_120"),
        (121, "sm_120"),
    ] {
        fake.with(&format!("capability={capability}"), |gpu| {
            assert_eq!(gpu.kernel_code(), KernelCode::Machine(chip), "{capability}");
            assert!(read(gpu, Compression::Deflate).is_empty(), "{capability}");
            assert_eq!(loaded(&fake), (2, 2), "{capability}");
        });
    }
}

#[test]
fn chips_without_machine_code_get_ptx() {
    let Some(fake) = driver::fake() else { return };
    for capability in [70, 72, 87, 101, 110, 130] {
        fake.with(&format!("capability={capability}"), |gpu| {
            assert_eq!(gpu.kernel_code(), KernelCode::Ptx, "{capability}");
            assert!(read(gpu, Compression::Deflate).is_empty(), "{capability}");
            assert_eq!(loaded(&fake), (2, 0), "{capability}");
        });
    }
}

#[test]
fn ptx_is_used_on_request() {
    let Some(fake) = driver::fake() else { return };
    let gpu = Gpu::open(&GpuOptions::default().with_driver(driver::path("")).with_ptx(true)).unwrap();
    assert_eq!(gpu.kernel_code(), KernelCode::Ptx);
    assert!(read(&gpu, Compression::Deflate).is_empty());
    assert_eq!(loaded(&fake), (2, 0));
    drop(gpu);
    fake.expect_nothing_left("PTX asked for");
}

#[test]
fn refused_machine_code_becomes_ptx_with_one_notice() {
    let Some(fake) = driver::fake() else { return };
    for (code, name) in [(200, "CUDA_ERROR_INVALID_IMAGE"), (209, "CUDA_ERROR_NO_BINARY_FOR_GPU")] {
        for writes in [false, true] {
            fake.with(&format!("refuse_cubin={code}"), |gpu| {
                let work = if writes { write } else { read };
                let notices = work(gpu, Compression::Deflate);
                assert_eq!(notices.len(), 1, "{notices:?}");
                let start = "the driver compiles the kernels: it refused machine code for sm_90 (cuModuleLoadData(";
                assert!(notices[0].starts_with(start) && notices[0].contains(name), "{notices:?}");
                assert_eq!(gpu.kernel_code(), KernelCode::Ptx);
                assert!(work(gpu, Compression::Lzw).is_empty(), "reported twice");
                let (modules, cubins) = loaded(&fake);
                assert!(modules > 2 && cubins == 0, "{modules} {cubins}");
                // The engine does not try again with a driver that refused once.
                fake.script("");
                assert!(work(gpu, Compression::Zstd).is_empty());
                assert_eq!(fake.count("cubins_made"), 0);
            });
        }
    }
}

#[test]
fn too_little_memory_for_machine_code_is_no_reason_to_compile() {
    let Some(fake) = driver::fake() else { return };
    fake.with("refuse_cubin=2", |gpu| {
        let options = ReadOptions::default().with_device(Mode::Cuda).with_gpu(gpu.clone());
        let error = cases::open(&file(Compression::Deflate)).unwrap().read(&options).map(|_| ()).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Device(error) if error.is_out_of_memory()), "{error}");
        assert_eq!((gpu.kernel_code(), loaded(&fake)), (KernelCode::Machine("sm_90"), (0, 0)));
        fake.script("");
        assert!(read(gpu, Compression::Deflate).is_empty());
        assert_eq!(loaded(&fake), (2, 2));
    });
}

#[test]
fn modules_are_loaded_when_first_needed() {
    let Some(fake) = driver::fake() else { return };
    fake.with("", |gpu| {
        assert_eq!(loaded(&fake), (0, 0));
        // The decoder and the placing kernel; then one more decoder for each codec.
        for (compression, all) in [
            (Compression::Deflate, 2),
            (Compression::Deflate, 2),
            (Compression::Lzw, 3),
            (Compression::None, 3),
            (Compression::Zstd, 4),
            (Compression::PackBits, 5),
        ] {
            read(gpu, compression);
            assert_eq!(loaded(&fake), (all, all), "{compression}");
        }
        // Kernels that take rows in, make overviews, cut tiles, compute statistics, compress and pack.
        write(gpu, Compression::None);
        let (before, _) = loaded(&fake);
        assert!((5..=10).contains(&before), "{before}");
        write(gpu, Compression::Lzw);
        assert_eq!(loaded(&fake), (before + 1, before + 1));
        write(gpu, Compression::Zstd);
        assert_eq!(loaded(&fake), (before + 2, before + 2));
    });
}
