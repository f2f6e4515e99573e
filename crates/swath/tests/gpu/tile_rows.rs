//! Tile rows that GPUs encode become the file that one GPU would write; the writer itself needs no GPU.

use std::sync::Arc;

use swath::{
    Blocks, Compression, Error, Interleave, Metadata, Mode, ReadOptions, Rows, SampleType, Shape, Window, WriteOptions,
    Writer,
    gpu::{DeviceReport, DeviceSamples, Gpu},
    io::MemorySink,
    tiff::{structure::Planar, tag},
    write::{EncodedTileRows, TileRowEncoder},
};

use crate::{
    cases::{self, Rng},
    driver,
    failures::check_failing_writes,
    written::{self, PushMethod, WriteCase, same_pixels},
};

/// Encodes rows of the case from where they are: on the host, or on the device.
fn encode(
    case: &WriteCase,
    encoder: &TileRowEncoder,
    gpu: &Arc<Gpu>,
    tile_rows: std::ops::Range<u32>,
    on_device: Option<Interleave>,
) -> Result<EncodedTileRows, Error> {
    let Shape { width, height, sample, .. } = case.shape;
    let rows = encoder.needed(tile_rows.clone());
    let Some(interleave) = on_device else {
        let row = width as usize * sample.size();
        let bands = case.samples.chunks_exact(row * height as usize);
        let bytes: Vec<u8> =
            bands.flat_map(|band| &band[rows.start as usize * row..rows.end as usize * row]).copied().collect();
        let given = Rows::from_bytes(&bytes, Interleave::Band);
        let pixels = (rows.start * width) as usize..(rows.end * width) as usize;
        let given = case.mask.as_ref().map_or(given, |mask| given.with_mask(&mask[pixels]));
        return encoder.encode(tile_rows, rows.start, &given);
    };
    let plain = WriteOptions::default().with_compression(Compression::None);
    let window = Window::new(0, rows.start, width, rows.end - rows.start);
    let options = ReadOptions::default().with_window(window).with_interleave(interleave);
    let options = options.with_device(Mode::Cuda).with_gpu(gpu.clone());
    let read = |shape: Shape, samples: &[u8]| {
        cases::open(&cases::write(shape, samples, &Metadata::default(), &plain)?)?.read_device(&options)
    };
    let raster = read(case.shape, &case.samples)?;
    let one = Shape { bands: 1, sample: SampleType::U8, ..case.shape };
    let mask = case.mask.as_ref().map(|mask| read(one, mask)).transpose()?;
    let samples = DeviceSamples::of_raster(&raster)?;
    let samples = match &mask {
        Some(mask) => samples.with_mask_raster(mask)?,
        None => samples,
    };
    encoder.encode_device(tile_rows, rows.start, &samples)
}

/// The file from groups of tile rows of random sizes, the last one encoded first.
fn by_tile_rows(
    case: &WriteCase,
    gpu: &Arc<Gpu>,
    mode: Mode,
    rng: &mut Rng,
) -> Result<(Arc<[u8]>, DeviceReport), Error> {
    let encoder = TileRowEncoder::new(case.shape, &case.metadata, &case.on(gpu, mode))?;
    let (mut groups, mut end) = (Vec::new(), encoder.tile_rows());
    while end > 0 {
        let start = end.saturating_sub(rng.within(1..5));
        let on_device = rng.pick(&[None, Some(Interleave::Band), Some(Interleave::Pixel)]);
        groups.push(encode(case, &encoder, gpu, start..end, on_device)?.to_bytes());
        end = start;
    }
    // With `Cuda` the writer does not look for a GPU, and there is none.
    let options = match mode {
        Mode::Cuda => case.options.clone().with_device(mode),
        mode => case.on(gpu, mode),
    };
    let (sink, memory) = MemorySink::new("memory");
    let mut writer = Writer::to_sink_from_tile_rows(Box::new(sink), case.shape, &case.metadata, &options)?;
    for group in groups.iter().rev() {
        writer.push_encoded(&EncodedTileRows::from_bytes(group)?)?;
    }
    writer.finish()?;
    Ok((memory.take().unwrap_or_default().into(), encoder.device_report()))
}

/// Fails unless the image's tiles are the same bytes, and all pixels are the same.
fn same_tiles(what: &str, ours: &Arc<[u8]>, theirs: &Arc<[u8]>) -> Result<(), String> {
    let text = |error: Error| format!("{what}: {error}");
    same_pixels(what, theirs, ours)?;
    let (a, b) = (cases::open(ours).map_err(text)?, cases::open(theirs).map_err(text)?);
    if a.overviews().map_err(text)?.is_empty() && ours != theirs {
        return Err(format!("{what}: other bytes"));
    }
    let [first, second] = [&a, &b].map(|dataset| dataset.tag(tag::SWATH_PIECES));
    if first.map_err(text)? != second.map_err(text)? {
        return Err(format!("{what}: other pieces"));
    }
    let grid = a.main().grid();
    for number in 0..grid.count() {
        let (column, row, plane) = grid.position(number);
        let [ours, theirs] = [&a, &b].map(|file| file.tile_bytes(file.main(), column, row, plane));
        if ours.map_err(text)? != theirs.map_err(text)? {
            return Err(format!("{what}: tile ({column}, {row}) of plane {plane} differs"));
        }
    }
    Ok(())
}

#[test]
fn tile_rows_become_the_file_of_one_gpu() {
    let Some(fake) = driver::fake() else { return };
    for (seed, script) in [(4, ""), (5, "async=1 seed=2")] {
        fake.with(script, |gpu| {
            let mut rng = Rng::new(seed);
            for _ in 0..12 {
                let case = WriteCase::draw(&mut rng).with_chosen_predictor().unwrap();
                let (eager, _) = case.write(&case.on(gpu, Mode::Cuda), PushMethod::Whole, gpu).unwrap();
                let (file, report) = by_tile_rows(&case, gpu, Mode::Cuda, &mut rng).unwrap();
                same_tiles(&case.what, &file, &eager).unwrap();
                assert!(report.notices.is_empty() && report.host_tiles == 0, "{}: {report:?}", case.what);
                assert!(report.device_tiles > 0 && !report.device.is_empty(), "{}: {report:?}", case.what);
            }
        });
    }
}

#[test]
fn pieces_of_tiles_travel_with_them() {
    let Some(fake) = driver::fake() else { return };
    fake.with("async=1 seed=5", |gpu| {
        let mut rng = Rng::new(6);
        for planar in [Planar::Contig, Planar::Separate] {
            let shape = Shape { width: 400, height: 700, bands: 2, sample: SampleType::F32 };
            let options = WriteOptions::cog().with_blocks(Blocks::Tiles(256, 256)).with_planar(planar);
            let case = written::large(shape, options.with_compression(Compression::Deflate), "");
            let (eager, _) = case.write(&case.on(gpu, Mode::Cuda), PushMethod::Whole, gpu).unwrap();
            let (file, _) = by_tile_rows(&case, gpu, Mode::Cuda, &mut rng).unwrap();
            same_tiles(&case.what, &file, &eager).unwrap();
            let read = ReadOptions::default().with_device(Mode::Cuda).with_gpu(gpu.clone());
            let raster = cases::open(&file).unwrap().read_device(&read).unwrap();
            assert!(raster.report().pieces > 0, "{:?}", raster.report());
        }
    });
}

#[test]
fn rows_on_the_device_stay_there() {
    let Some(fake) = driver::fake() else { return };
    fake.with("", |gpu| {
        let shape = Shape { width: 600, height: 900, bands: 1, sample: SampleType::U16 };
        let options = WriteOptions::cog().with_blocks(Blocks::Tiles(64, 64)).with_compression(Compression::Deflate);
        let case = written::large(shape, options, "7");
        let encoder = TileRowEncoder::new(shape, &case.metadata, &case.on(gpu, Mode::Cuda)).unwrap();
        let mut left = 0;
        for start in (0..encoder.tile_rows()).step_by(5) {
            let tile_rows = start..(start + 5).min(encoder.tile_rows());
            let group = encode(&case, &encoder, gpu, tile_rows, Some(Interleave::Band)).unwrap();
            left += group.byte_len() as u64 + (64 << 10);
        }
        // Tiles, overview rows and facts about them leave the device; the rows do not.
        let report = encoder.device_report();
        assert!(report.counters.downloaded_bytes < left, "{report:?} where {left} bytes were to come");
        assert!(report.notices.is_empty(), "{report:?}");
    });
}

#[test]
fn the_cpu_encodes_tile_rows_after_a_device_failure() {
    check_failing_writes(1..40, |case, gpu, rng| by_tile_rows(case, gpu, Mode::Auto, rng));
}

#[test]
fn tile_rows_of_a_cpu_and_of_a_gpu_do_not_mix() {
    let Some(fake) = driver::fake() else { return };
    fake.with("", |gpu| {
        let shape = Shape { width: 64, height: 64, bands: 1, sample: SampleType::U8 };
        let case = written::large(shape, WriteOptions::default().with_blocks(Blocks::Tiles(32, 32)), "");
        let encoder = TileRowEncoder::new(shape, &case.metadata, &case.options).unwrap();
        let group = encode(&case, &encoder, gpu, 0..1, None).unwrap();
        let (sink, _) = MemorySink::new("memory");
        let options = case.on(gpu, Mode::Cuda);
        let mut writer = Writer::to_sink_from_tile_rows(Box::new(sink), shape, &case.metadata, &options).unwrap();
        let error = writer.push_encoded(&group).unwrap_err();
        assert!(error.to_string().contains("give `cuda` or `cpu`"), "{error}");
        let (sink, _) = MemorySink::new("memory");
        let mut writer = Writer::to_sink(Box::new(sink), shape, &case.metadata, &options).unwrap();
        let error = writer.push_encoded(&group).unwrap_err();
        assert!(error.to_string().contains("create_from_tile_rows"), "{error}");
    });
}
