//! Codecs without a kernel, sparse tiles, and several readers at once.

use std::sync::Arc;

use swath::{
    Blocks, Compression, ErrorKind, Mode, ReadOptions, SampleType, Shape, WriteOptions,
    gpu::{DeviceError, Gpu},
    read::ColorView,
    tiff::structure::Planar,
};

use crate::{
    cases::{self, Case, Rng},
    driver,
};

fn file(compression: Compression) -> Arc<[u8]> {
    let shape = Shape { width: 90, height: 70, bands: 3, sample: SampleType::U8 };
    let options = WriteOptions::default().with_compression(compression).with_blocks(Blocks::Tiles(32, 32));
    cases::write(shape, &cases::samples(shape, &mut Rng::new(4)), &cases::nodata_of(""), &options).unwrap()
}

fn options(gpu: &Arc<Gpu>, mode: Mode) -> ReadOptions {
    ReadOptions::default().with_device(mode).with_gpu(gpu.clone())
}

#[test]
fn a_codec_without_a_kernel_is_refused_or_decoded_by_the_cpu() {
    let Some(fake) = driver::fake() else { return };
    fake.with("async=1 seed=3", |gpu| {
        for compression in
            [Compression::Lz4, Compression::Lzma, Compression::Lerc, Compression::WebP, Compression::Jpeg]
        {
            let file = file(compression);
            let dataset = cases::open(&file).unwrap();
            let error = dataset.read_device(&options(gpu, Mode::Cuda)).unwrap_err();
            let text = error.to_string();
            assert!(matches!(error.kind(), ErrorKind::Device(DeviceError::Declined(_))), "{text}");
            assert!(text.contains("is not decoded on the GPU") && text.contains("device auto"), "{text}");
            // NVIDIA's decoder for this is used for trusted input only.
            let trusted = compression == Compression::Lz4;
            assert_eq!(text.contains("trust_input"), trusted, "{text}");
            for options in [options(gpu, Mode::Auto), options(gpu, Mode::Cuda).with_cpu_decode(true)] {
                let report = cases::agree(&file, &ReadOptions::default(), &options).unwrap().unwrap();
                assert_eq!((report.device_tiles, report.host_tiles), (0, 9), "{compression}");
                assert_eq!(report.notices.len(), 1, "{compression}: {report:?}");
                let notice = &report.notices[0];
                assert!(notice.starts_with("tiles are decoded by the CPU into pinned memory: "), "{notice}");
                assert_eq!(notice.contains("trust_input"), trusted, "{notice}");
            }
            // The caller asked for that, so there is no notice.
            let report = cases::agree(&file, &ReadOptions::default(), &options(gpu, Mode::Cpu)).unwrap().unwrap();
            assert!(report.notices.is_empty() && report.host_tiles == 9, "{report:?}");
        }
    });
}

#[test]
fn upright_and_colours_are_refused_on_the_device() {
    let Some(fake) = driver::fake() else { return };
    fake.with("", |gpu| {
        let dataset = cases::open(&file(Compression::Deflate)).unwrap();
        for options in
            [options(gpu, Mode::Cuda).with_upright(true), options(gpu, Mode::Cuda).with_color(ColorView::Shown)]
        {
            let error = dataset.read_device(&options).unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Usage(_)), "{error}");
        }
        assert_eq!(fake.count("alloc"), 0);
    });
}

#[test]
fn sparse_tiles_hold_nodata() {
    let Some(fake) = driver::fake() else { return };
    fake.with("async=1 seed=2", |gpu| {
        for (sample, nodata) in [
            (SampleType::U8, "7"),
            (SampleType::I16, "-9999"),
            (SampleType::F32, "nan"),
            (SampleType::F64, "-1.5"),
            (SampleType::CF64, ""),
            (SampleType::U16, ""),
        ] {
            for (planar, compression) in [(Planar::Contig, Compression::Lzw), (Planar::Separate, Compression::None)] {
                for full in [false, true] {
                    let shape = Shape { width: 75, height: 66, bands: 3, sample };
                    // Zeros without nodata, only nodata otherwise: for the first band, then for all.
                    let fill = fill_of(sample, nodata);
                    let mut data = fill.repeat(75 * 66 * 3);
                    if full {
                        data[75 * 66 * 2 * sample.size()..].iter_mut().for_each(|byte| *byte = 3);
                    }
                    let options = WriteOptions::default()
                        .with_compression(compression)
                        .with_planar(planar)
                        .with_blocks(Blocks::Tiles(16, 16))
                        .with_sparse(true);
                    let file = cases::write(shape, &data, &cases::nodata_of(nodata), &options).unwrap();
                    let what = format!("{sample} {nodata} {planar:?} {full}");
                    let stored = cases::tiles(&file).unwrap().iter().filter(|tile| !tile.is_empty()).count();
                    assert_eq!(stored > 0, full, "{what}");
                    let raster = cases::open(&file).unwrap().read_device(&options_of(gpu)).unwrap();
                    assert_eq!(raster.report().device_tiles, stored as u64, "{what}");
                    assert!(raster.to_host().unwrap().bytes() == data, "{what}");
                    cases::agree(&file, &ReadOptions::default(), &options_of(gpu)).unwrap();
                }
            }
        }
    });
}

fn options_of(gpu: &Arc<Gpu>) -> ReadOptions {
    options(gpu, Mode::Cuda)
}

fn fill_of(sample: SampleType, nodata: &str) -> Vec<u8> {
    match (sample, nodata) {
        (SampleType::U8, _) => vec![7],
        (SampleType::I16, _) => (-9999_i16).to_ne_bytes().to_vec(),
        (SampleType::F32, _) => f32::NAN.to_ne_bytes().to_vec(),
        (SampleType::F64, _) => (-1.5_f64).to_ne_bytes().to_vec(),
        _ => vec![0; sample.size()],
    }
}

#[test]
fn several_readers_share_a_gpu() {
    let Some(fake) = driver::fake() else { return };
    for script in ["", "async=1 seed=4", "async=1 seed=1"] {
        fake.with(script, |gpu| {
            std::thread::scope(|scope| {
                for seed in 0..4 {
                    scope.spawn(move || {
                        let mut rng = Rng::new(seed + 50);
                        for number in 0..20 {
                            let case = Case::draw(&mut rng);
                            let small = number % 3 == 0;
                            let adjust = |options: ReadOptions| {
                                if small { options.with_max_device_memory(64 << 20) } else { options }
                            };
                            case.check(gpu, adjust).unwrap_or_else(|fault| panic!("{script}: {fault}"));
                        }
                    });
                }
            });
        });
    }
}

#[test]
fn a_raster_outlives_the_handle_it_was_read_with() {
    let Some(fake) = driver::fake() else { return };
    fake.script("");
    let file = file(Compression::Deflate);
    let gpu = fake.open().unwrap();
    let raster = cases::open(&file).unwrap().read_device(&options(&gpu, Mode::Cuda)).unwrap();
    drop(gpu);
    let expected = cases::open(&file).unwrap().read(&ReadOptions::default()).unwrap();
    assert!(raster.to_host().unwrap().bytes() == expected.bytes());
    drop(raster);
    fake.expect_nothing_left("a raster that was last");
}
