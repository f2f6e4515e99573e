//! Blocks that a GPU encodes, from the host or from its own memory, become the file that it would write from rows.

use std::sync::Arc;

use swath::{
    Blocks, Compression, Error, Interleave, Metadata, Mode, ReadOptions, Rows, SampleType, Shape, Window, WriteOptions,
    Writer,
    gpu::{DeviceReport, DeviceSamples, Gpu},
    io::MemorySink,
};

use crate::{
    cases::{self, Rng},
    driver,
    failures::check_failing_writes,
    written::{self, PushMethod, WriteCase},
};

/// Pushes a part of the case from where it is: the host, or the device.
fn push(
    writer: &mut Writer,
    case: &WriteCase,
    gpu: &Arc<Gpu>,
    part: Window,
    on_device: Option<Interleave>,
) -> Result<(), Error> {
    let plain = WriteOptions::default().with_compression(Compression::None);
    let one = Shape { bands: 1, sample: SampleType::U8, ..case.shape };
    let open = |shape: Shape, samples: &[u8]| cases::open(&cases::write(shape, samples, &Metadata::default(), &plain)?);
    let options = ReadOptions::default().with_window(part);
    let Some(interleave) = on_device else {
        let raster = open(case.shape, &case.samples)?.read(&options.clone().with_interleave(Interleave::Band))?;
        let mask = case.mask.as_ref().map(|mask| open(one, mask)?.read(&options)).transpose()?;
        let rows = Rows::from_bytes(raster.bytes(), Interleave::Band);
        return match &mask {
            Some(mask) => writer.push_block(part, &rows.with_mask(mask.bytes())),
            None => writer.push_block(part, &rows),
        };
    };
    let options = options.with_interleave(interleave).with_device(Mode::Cuda).with_gpu(gpu.clone());
    let raster = open(case.shape, &case.samples)?.read_device(&options)?;
    let mask = case.mask.as_ref().map(|mask| open(one, mask)?.read_device(&options)).transpose()?;
    let samples = DeviceSamples::of_raster(&raster)?;
    let samples = match &mask {
        Some(mask) => samples.with_mask_raster(mask)?,
        None => samples,
    };
    writer.push_block_device(part, &samples)
}

/// The file from blocks that end at multiples of `step`, in reverse or forward order.
fn by_blocks(
    case: &WriteCase,
    gpu: &Arc<Gpu>,
    mode: Mode,
    step: (u32, u32),
    rng: &mut Rng,
) -> Result<(Arc<[u8]>, DeviceReport), Error> {
    let Shape { width, height, .. } = case.shape;
    let (sink, memory) = MemorySink::new("memory");
    let mut writer = Writer::to_sink_from_blocks(Box::new(sink), case.shape, &case.metadata, &case.on(gpu, mode))?;
    let mut parts = Vec::new();
    for y in (0..height).step_by(step.1 as usize) {
        for x in (0..width).step_by(step.0 as usize) {
            parts.push(Window::new(x, y, step.0.min(width - x), step.1.min(height - y)));
        }
    }
    if rng.chance(2) {
        parts.reverse();
    }
    for part in parts {
        let on_device = rng.pick(&[None, Some(Interleave::Band), Some(Interleave::Pixel)]);
        push(&mut writer, case, gpu, part, on_device)?;
    }
    let written = writer.finish()?;
    Ok((memory.take().unwrap_or_default().into(), written.device))
}

#[test]
fn blocks_become_the_file_of_rows() {
    let Some(fake) = driver::fake() else { return };
    for (seed, script) in [(4, ""), (5, "async=1 seed=2")] {
        fake.with(script, |gpu| {
            let mut rng = Rng::new(seed);
            for _ in 0..14 {
                let case = WriteCase::draw(&mut rng);
                let (rows, _) = case.write(&case.on(gpu, Mode::Cuda), PushMethod::Whole, gpu).unwrap();
                let step = if rng.chance(2) { (64, 64) } else { (rng.within(20..150), rng.within(20..150)) };
                let (file, report) = by_blocks(&case, gpu, Mode::Cuda, step, &mut rng).unwrap();
                assert!(file == rows, "{}: other bytes, blocks of {step:?}", case.what);
                assert!(report.notices.is_empty() && report.host_tiles == 0, "{}: {report:?}", case.what);
            }
        });
    }
}

#[test]
fn blocks_of_whole_tiles_stay_on_the_device() {
    let Some(fake) = driver::fake() else { return };
    fake.with("", |gpu| {
        let shape = Shape { width: 1024, height: 512, bands: 1, sample: SampleType::U16 };
        let options = WriteOptions::cog().with_blocks(Blocks::Tiles(64, 64)).with_compression(Compression::Deflate);
        let case = written::large(shape, options, "7");
        let (rows, _) = case.write(&case.on(gpu, Mode::Cuda), PushMethod::Whole, gpu).unwrap();
        let (sink, memory) = MemorySink::new("memory");
        let on_gpu = case.on(gpu, Mode::Cuda);
        let mut writer = Writer::to_sink_from_blocks(Box::new(sink), shape, &case.metadata, &on_gpu).unwrap();
        for x in (0..1024).step_by(256) {
            push(&mut writer, &case, gpu, Window::new(x, 0, 256, 512), Some(Interleave::Band)).unwrap();
        }
        let report = writer.finish().unwrap().device;
        let file = memory.take().unwrap();
        assert!(file[..] == rows[..]);
        // Tiles, facts about them and the first overview are copied to the host; the image is not.
        let image = 1024 * 512 * 2;
        let most = file.len() as u64 + image / 4 * 3;
        assert!(report.counters.downloaded_bytes < most, "{report:?} where {most} bytes may come");
    });
}

#[test]
fn the_cpu_encodes_blocks_after_a_device_failure() {
    check_failing_writes((1..60).step_by(2), |case, gpu, rng| by_blocks(case, gpu, Mode::Auto, (64, 64), rng));
}
