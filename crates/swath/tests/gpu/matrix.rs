//! For every file and every read, a GPU gives the same samples as the CPU.

use std::sync::Arc;

use swath::{
    Blocks, Compression, ErrorKind, Mode, Overviews, ReadOptions, SampleType, Shape, WriteOptions,
    gpu::{DeviceError, DeviceReport, Gpu},
    read::ColorView,
    write::Alpha,
};

use crate::{
    build::{Directory, File, Tag},
    cases::{self, Case, Rng},
    driver,
};

/// Cases of each script.
const CASES: usize = 80;

/// Fails unless a case that the device decodes has no notice, and any other has one.
fn expect_quiet(case: &Case, report: &DeviceReport) -> Result<(), String> {
    let expected =
        if case.on_device { report.host_tiles == 0 && report.notices.is_empty() } else { report.notices.len() == 1 };
    if expected { Ok(()) } else { Err(format!("{}: {:?}", case.what, report.notices)) }
}

#[test]
fn samples_are_those_of_the_cpu() {
    let Some(fake) = driver::fake() else { return };
    // In the last script blocks have many lanes, which is slow.
    let scripts = [
        ("", CASES),
        ("async=1 seed=0", CASES),
        ("sms=1", CASES),
        ("async=1 seed=1", CASES),
        ("async=1 seed=2", CASES),
        ("sms=60", CASES),
        ("async=1 seed=7", CASES),
        ("async=1 seed=9", CASES),
        ("async=1 seed=3 lanes=32", CASES / 5),
    ];
    let mut faults = Vec::new();
    let (mut on_device, mut batched) = (0, 0);
    for (seed, (script, cases)) in (0..).zip(scripts) {
        fake.with(script, |gpu| {
            let mut rng = Rng::new(seed);
            for number in 0..cases {
                let case = Case::draw(&mut rng);
                on_device += u32::from(case.on_device);
                let found = case.check(gpu, |options| options).and_then(|report| expect_quiet(&case, &report));
                faults.extend(found.err().map(|fault| format!("{script}: {fault}")));
                if number % 3 != 0 || case.to_host {
                    continue;
                }
                // Once more with the least memory that is enough, and with a little more.
                let least = least(&case, gpu);
                for budget in [least, least * 5 / 4] {
                    gpu.trim();
                    let found = case.check(gpu, |options| options.with_max_device_memory(budget));
                    let found = found.and_then(|report| {
                        batched += u32::from(report.batches > 1);
                        let held = report.counters.peak_bytes;
                        if held <= budget {
                            expect_quiet(&case, &report)
                        } else {
                            Err(format!("{}: {held} bytes held, {report:?}", case.what))
                        }
                    });
                    faults.extend(found.err().map(|fault| format!("{script}, {budget} bytes: {fault}")));
                }
            }
        });
    }
    assert!(on_device > 450 && batched >= 10, "{on_device} on the device, {batched} in batches");
    assert!(faults.is_empty(), "{} faults, among them {:#?}", faults.len(), &faults[..faults.len().min(5)]);
}

/// The least memory that a read needs, as its error states it.
fn least(case: &Case, gpu: &Arc<Gpu>) -> u64 {
    let options = case.options.clone().with_gpu(gpu.clone()).with_device(Mode::Auto).with_max_device_memory(1);
    let error = cases::open(&case.file).unwrap().read_device(&options).unwrap_err();
    match error.kind() {
        ErrorKind::Device(DeviceError::Memory { required, .. }) => *required,
        _ => panic!("{}: {error}", case.what),
    }
}

/// Reverses the bits of each byte, as FillOrder 2 stores them.
fn reversed(tiles: &[Vec<u8>]) -> Vec<Vec<u8>> {
    tiles.iter().map(|tile| tile.iter().map(|byte| byte.reverse_bits()).collect()).collect()
}

#[test]
fn reversed_bits_are_decoded() {
    let Some(fake) = driver::fake() else { return };
    for script in ["", "async=1 seed=5"] {
        fake.with(script, |gpu| {
            let cuda = ReadOptions::default().with_device(Mode::Cuda).with_gpu(gpu.clone());
            let plain = Directory::tiled(70, 50, 16, |x, y| (x * 7 + y * 13) as u8);
            for directory in [plain.clone(), plain.deflated()] {
                let expected = File::of(directory.clone()).open().unwrap().read(&ReadOptions::default()).unwrap();
                let turned = Directory { tiles: reversed(&directory.tiles), ..directory };
                let file: Arc<[u8]> = File::of(turned.with(266, Tag::Short(vec![2]))).bytes().into();
                let read = cases::open(&file).unwrap().read_device(&cuda).unwrap().to_host().unwrap();
                assert!(read.bytes() == expected.bytes());
                // A damaged tile gives the error of the CPU, which reverses the bits itself.
                let ranges = cases::tiles(&file).unwrap();
                let mut bad = file.to_vec();
                cases::shorten(&mut bad, 7, ranges[7].len() / 2);
                cases::agree(&bad.into(), &ReadOptions::default(), &cuda).unwrap();
            }
        });
    }
}

#[test]
fn overviews_masks_and_colours_equal_the_cpus() {
    let Some(fake) = driver::fake() else { return };
    fake.with("async=1 seed=8", |gpu| {
        let shape = Shape { width: 200, height: 150, bands: 4, sample: SampleType::U8 };
        let data = cases::samples(shape, &mut Rng::new(3));
        let written = WriteOptions::cog().with_blocks(Blocks::Tiles(32, 32)).with_compression(Compression::Lzw);
        let written = written.with_overviews(Overviews::Levels(2)).with_alpha(Alpha::Unassociated);
        let file = cases::write(shape, &data, &cases::nodata_of(""), &written).unwrap();
        let dataset = cases::open(&file).unwrap();
        let device = |plain: &ReadOptions| plain.clone().with_device(Mode::Cuda).with_gpu(gpu.clone());
        for plain in [ReadOptions::default().with_overview(0), ReadOptions::default().with_overview(1)] {
            let report = cases::agree_on(&dataset, &plain, &device(&plain), cases::by_device).unwrap();
            assert!(report.is_some_and(|report| report.host_tiles == 0 && report.device_tiles > 1));
        }
        let plain = ReadOptions::default();
        let masks = [dataset.read_mask(&plain).unwrap(), dataset.read_mask(&device(&plain)).unwrap()];
        assert!(masks[0].bytes() == masks[1].bytes());
        let on_device = dataset.read_mask_device(&device(&plain)).unwrap();
        assert!(masks[0].bytes() == on_device.to_host().unwrap().bytes());
        let shown = plain.with_color(ColorView::Shown).with_upright(true);
        let shown = [dataset.read(&shown).unwrap(), dataset.read(&device(&shown)).unwrap()];
        assert!(shown[0].bytes() == shown[1].bytes() && shown[0].shape() == shown[1].shape());
        let mut into = vec![1; dataset.read_len(&ReadOptions::default()).unwrap()];
        dataset.read_into(&device(&ReadOptions::default()), &mut into).unwrap();
        assert!(into == data);
    });
}
