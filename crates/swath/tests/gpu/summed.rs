//! Statistics that a CPU and a GPU have to agree on to the last bit. Shared with the tests that run where there is a GPU.

use std::sync::Arc;

use swath::{
    Band, Blocks, Compression, Dataset, Error, Interleave, Limits, Metadata, Mode, OpenOptions, Rows, SampleType,
    Shape, WriteOptions, Writer,
    gpu::{DeviceReport, Gpu},
    io::{MemorySink, MemorySource},
    statistics::StatisticsOptions,
    tiff::structure::Planar,
};

use super::cases::{self, ON_DEVICE, Rng};

/// A file, and whether our own kernels decode it.
pub struct Summed {
    pub what: String,
    pub file: Arc<[u8]>,
    pub on_device: bool,
}

/// Opens a file in memory for a device; its tiles are not cached.
pub fn open_for(file: &Arc<[u8]>, gpu: &Arc<Gpu>, mode: Mode, memory: Option<u64>) -> Result<Dataset, Error> {
    let options = OpenOptions::default().with_limits(Limits::none()).with_tile_cache(0);
    let options = options.with_device(mode).with_gpu(gpu.clone());
    let options = memory.into_iter().fold(options, OpenOptions::with_max_device_memory);
    options.open_source(Arc::new(MemorySource::new("test.tif", file.clone())))
}

/// Computes statistics on the CPU and on a GPU: the same to the last bit (returns the device's report), or the same error
/// (`None`).
pub fn agree(
    file: &Arc<[u8]>,
    options: &StatisticsOptions,
    gpu: &Arc<Gpu>,
    mode: Mode,
    memory: Option<u64>,
) -> Result<Option<DeviceReport>, String> {
    let words = |error: Error| error.to_string();
    let cpu = cases::open(file).map_err(words)?.statistics(options);
    let dataset = open_for(file, gpu, mode, memory).map_err(words)?;
    match (cpu, dataset.statistics(options)) {
        // The debug form shows every bit but that of a NaN's sign.
        (Ok(cpu), Ok(device)) if format!("{cpu:?}") == format!("{device:?}") => Ok(Some(dataset.device_report())),
        (Err(cpu), Err(device)) if cpu.to_string() == device.to_string() => Ok(None),
        (cpu, device) => Err(format!("{cpu:?} by the CPU, {device:?} by the GPU")),
    }
}

impl Summed {
    pub fn check(&self, gpu: &Arc<Gpu>, memory: Option<u64>) -> Result<DeviceReport, String> {
        let mode = if self.on_device { Mode::Cuda } else { Mode::Auto };
        let found = agree(&self.file, &StatisticsOptions::default(), gpu, mode, memory);
        let report = found.and_then(|report| report.ok_or_else(|| "neither sums it up".into()));
        let report = report.map_err(|fault| format!("{}: {fault}", self.what))?;
        // Statuses, and the sums of each band: pixels stay on the device.
        let counters = &report.counters;
        let most = 4 * (report.device_tiles + report.host_tiles) + 56 * 2 * 6;
        if counters.downloaded_bytes > most {
            return Err(format!("{}: {} bytes came back", self.what, counters.downloaded_bytes));
        }
        Ok(report)
    }
}

/// Samples of which many are special: zeros of either sign, NaN, infinities, the ends of the range, nodata.
fn special(shape: Shape, rng: &mut Rng) -> Vec<u8> {
    let mut samples = cases::samples(shape, rng);
    let word = shape.sample.word();
    let bits: [u64; 6] = match (shape.sample.is_float(), word) {
        (true, 2) => [0, 0x8000, 0x7e00, 0x7c00, 0xfc00, 0x4700],
        (true, 4) => [0, 0x8000_0000, 0x7fc0_0000, 0x7f80_0000, 1, 0x40e0_0000],
        (true, _) => [0, 1 << 63, 0x7ff8 << 48, 0x7ff0 << 48, 1, 0x401c << 48],
        _ => [0, u64::MAX, 1 << (8 * word - 1), u64::MAX >> (65 - 8 * word), 1, 7],
    };
    for at in samples.chunks_exact_mut(word) {
        if rng.chance(3) {
            let end = rng.pick(&[3, 6]);
            let value = bits[rng.below(end) as usize];
            at.copy_from_slice(&value.to_le_bytes()[..word]);
        }
    }
    samples
}

/// One of the cases: types, codecs, layouts, nodata, masks and alpha change with the number.
pub fn draw(number: usize, rng: &mut Rng) -> Option<Summed> {
    let sample = SampleType::ALL[number % SampleType::ALL.len()];
    let compression = if rng.chance(9) { Compression::Lzma } else { rng.pick(&ON_DEVICE) };
    let planar = rng.pick(&[Planar::Contig, Planar::Separate]);
    let shape = Shape { width: rng.within(1..200), height: rng.within(1..130), bands: rng.within(1..6) as u16, sample };
    let nodata = rng.pick(&["", "", "0", "7", "-9999", "nan"]);
    let blocks = match rng.chance(3) {
        true => Blocks::Strips(None),
        false => Blocks::Tiles(16 * rng.within(1..5), 16 * rng.within(1..5)),
    };
    let (masked, soft) = (nodata.is_empty() && rng.chance(3), rng.chance(2));
    let options = WriteOptions::default().with_compression(compression).with_planar(planar).with_blocks(blocks);
    let options = options.with_sparse(rng.chance(2)).with_threads(1_usize);
    let options = if masked { options.with_mask(true).with_soft_mask(soft) } else { options };
    let mut metadata = cases::nodata_of(nodata);
    let alpha = !masked && nodata.is_empty() && matches!(shape.bands, 2 | 4);
    if alpha {
        let band = |color: &str| Band { color: color.into(), ..Band::default() };
        metadata.bands = (1..shape.bands).map(|_| band("undefined")).chain([band("alpha")]).collect();
    }
    let mut samples = special(shape, rng);
    if rng.chance(4) {
        // Rows of nothing: sparse tiles.
        let empty = samples.len() / usize::from(shape.bands) / 2;
        samples[..empty].fill(0);
    }
    let pixels = shape.width as usize * shape.height as usize;
    let mask: Vec<u8> = (0..pixels).map(|_| rng.pick(&[0, 1, 200, 255])).collect();
    let file = write(shape, &samples, masked.then_some(&mask[..]), &metadata, &options).ok()?;
    let what = format!(
        "{shape:?} {compression}, {planar:?}, {blocks:?}, nodata '{nodata}', mask {masked}, soft {soft}, alpha {alpha}"
    );
    Some(Summed { what, file, on_device: compression != Compression::Lzma })
}

fn write(
    shape: Shape,
    samples: &[u8],
    mask: Option<&[u8]>,
    metadata: &Metadata,
    options: &WriteOptions,
) -> Result<Arc<[u8]>, Error> {
    let (sink, memory) = MemorySink::new("memory");
    let mut writer = Writer::to_sink(Box::new(sink), shape, metadata, options)?;
    let rows = Rows::from_bytes(samples, Interleave::Band);
    writer.push(&mask.into_iter().fold(rows, Rows::with_mask))?;
    writer.finish()?;
    Ok(memory.take().unwrap_or_default().into())
}

/// A raster of several portions: the CPU sums up about 24 MiB at a time.
pub fn large(compression: Compression) -> Result<Arc<[u8]>, Error> {
    let shape = Shape { width: 5000, height: 5300, bands: 1, sample: SampleType::U8 };
    let row = |y: u32| (0..shape.width).map(move |x| (x / 9 + y / 31 + x * y / 70_000) as u8);
    let samples: Vec<u8> = (0..shape.height).flat_map(row).collect();
    let options = WriteOptions::default().with_compression(compression).with_blocks(Blocks::Tiles(512, 512));
    cases::write(shape, &samples, &cases::nodata_of("7"), &options)
}
