//! Files that a GPU writes, compared with those that the CPU writes from the same rows. Shared with the tests that run
//! where there is a GPU.

use std::{num::NonZeroU32, sync::Arc};

use swath::{
    Blocks, Compression, Error, Interleave, Metadata, Mode, Overviews, ReadOptions, Resampling, Rows, SampleType,
    Shape, Window, WriteOptions, Writer, Written,
    gpu::{DeviceReport, DeviceSamples, Gpu},
    io::MemorySink,
    tiff::structure::{ByteOrder, Planar, Predictor},
    write::{PredictorChoice, PredictorRule},
};

use super::cases::{self, Rng};

/// Codecs that our own kernels encode.
pub const ENCODED_ON_GPU: [Compression; 5] =
    [Compression::None, Compression::PackBits, Compression::Lzw, Compression::Deflate, Compression::Zstd];

/// Every way to make overviews that a GPU has.
pub const RESAMPLINGS: [Resampling; 7] = [
    Resampling::Average,
    Resampling::Nearest,
    Resampling::Bilinear,
    Resampling::Min,
    Resampling::Max,
    Resampling::Mode,
    Resampling::Rms,
];

/// How rows are pushed.
#[derive(Debug, Clone, Copy)]
pub enum PushMethod {
    /// All at once, from the host.
    Whole,
    /// Some at a time, from the host.
    Rows(u32),
    /// Some at a time, from the device, band by band or pixel by pixel.
    Device(u32, swath::Interleave),
}

/// Rows, and the expected file.
pub struct WriteCase {
    /// Everything about it, for messages.
    pub what: String,
    pub shape: Shape,
    pub samples: Vec<u8>,
    pub mask: Option<Vec<u8>>,
    pub metadata: Metadata,
    pub options: WriteOptions,
}

impl WriteCase {
    /// Draws until the CPU's writer accepts it.
    pub fn draw(rng: &mut Rng) -> Self {
        loop {
            let case = Self::try_draw(rng);
            let (sink, _) = MemorySink::new("memory");
            if Writer::to_sink(Box::new(sink), case.shape, &case.metadata, &case.options).is_ok() {
                return case;
            }
        }
    }

    fn try_draw(rng: &mut Rng) -> Self {
        let compression = rng.pick(&ENCODED_ON_GPU);
        let sample = rng.pick(&SampleType::ALL);
        let side = |rng: &mut Rng| if rng.chance(6) { rng.within(1..4) } else { rng.within(1..220) };
        let shape = Shape { width: side(rng), height: side(rng), bands: rng.within(1..5) as u16, sample };
        let mut samples = cases::samples(shape, rng);
        let nodata = rng.pick(&["", "", "0", "7", "-9999", "nan"]);
        let sparse = rng.chance(3);
        if sparse || rng.chance(3) {
            let row = shape.width as usize * sample.size();
            let empty = row * rng.within(0..shape.height + 1) as usize;
            for band in samples.chunks_exact_mut(row * shape.height as usize) {
                band[..empty].fill(0);
            }
        }
        let mask = rng.chance(4).then(|| {
            let pixels = shape.width as usize * shape.height as usize;
            let holes = rng.within(1..9) as u64;
            (0..pixels).map(|_| if rng.chance(holes) { 0 } else { 255 }).collect()
        });
        let blocks = match rng.chance(4) {
            true => Blocks::Strips(NonZeroU32::new(rng.within(0..40))),
            false => Blocks::Tiles(16 * rng.within(1..6), 16 * rng.within(1..6)),
        };
        // The CPU packs strips of several widths.
        let compression = match (blocks, compression) {
            (Blocks::Strips(_), Compression::PackBits) => Compression::Lzw,
            (_, compression) => compression,
        };
        let cog = matches!(blocks, Blocks::Tiles(..)) && rng.chance(2);
        let overviews = match rng.below(4) {
            0 => Overviews::None,
            1 => Overviews::Levels(rng.within(1..4)),
            _ => Overviews::Auto,
        };
        let predictor =
            rng.pick(&[None, None, Some(Predictor::None), Some(Predictor::Horizontal), Some(Predictor::FloatingPoint)]);
        let mut options = WriteOptions::default()
            .with_compression(compression)
            .with_blocks(blocks)
            .with_planar(rng.pick(&[Planar::Contig, Planar::Separate]))
            .with_order(rng.pick(&[ByteOrder::Little, ByteOrder::Little, ByteOrder::Big]))
            .with_sparse(sparse)
            .with_mask(mask.is_some())
            .with_cog(cog)
            .with_overviews(overviews)
            .with_resampling(rng.pick(&RESAMPLINGS))
            .with_nan_to_nodata(rng.chance(3))
            .with_threads(rng.within(1..4) as usize);
        options = match predictor {
            Some(predictor) => options.with_predictor(predictor),
            None if rng.chance(2) => options.with_predictor_rule(PredictorRule::BySampleType),
            None => options,
        };
        let bits = match sample {
            SampleType::U8 if rng.chance(4) => Some(rng.within(1..9) as u16),
            SampleType::U16 if rng.chance(5) => Some(rng.within(9..16) as u16),
            _ => None,
        };
        options = bits.into_iter().fold(options, WriteOptions::with_bits);
        if matches!(compression, Compression::Deflate | Compression::Zstd) {
            options = options.with_level(rng.within(1..10));
        }
        let what = format!(
            "{shape:?} {options:?} predictor {predictor:?} bits {bits:?} nodata {nodata:?} mask {} sparse {sparse}",
            mask.is_some()
        );
        Self { what, shape, samples, mask, metadata: cases::nodata_of(nodata), options }
    }

    /// With the predictor that a writer of rows chooses, for files that are not written from rows.
    pub fn with_chosen_predictor(mut self) -> Result<Self, Error> {
        let mut choice = PredictorChoice::new(self.shape, &self.metadata, &self.options)?;
        let rows = Rows::from_bytes(&self.samples, Interleave::Band);
        let rows = self.mask.as_ref().map_or(rows, |mask| rows.with_mask(mask));
        if let Some(chosen) = choice.push(&rows)? {
            self.options = self.options.with_predictor(chosen);
        }
        Ok(self)
    }

    /// Writes it with these options.
    pub fn write(
        &self,
        options: &WriteOptions,
        method: PushMethod,
        gpu: &Arc<Gpu>,
    ) -> Result<(Arc<[u8]>, Written), Error> {
        let (sink, memory) = MemorySink::new("memory");
        let mut writer = Writer::to_sink(Box::new(sink), self.shape, &self.metadata, options)?;
        self.push(&mut writer, method, gpu)?;
        let written = writer.finish()?;
        Ok((memory.take().unwrap_or_default().into(), written))
    }

    fn push(&self, writer: &mut Writer, method: PushMethod, gpu: &Arc<Gpu>) -> Result<(), Error> {
        let Shape { width, height, bands, sample } = self.shape;
        let row = width as usize * sample.size();
        let each = match method {
            PushMethod::Whole => height,
            PushMethod::Rows(rows) | PushMethod::Device(rows, _) => rows,
        };
        // Rows that are on the device were read there.
        let plain = WriteOptions::default().with_compression(Compression::None);
        let source = match method {
            PushMethod::Device(..) => {
                Some(cases::open(&cases::write(self.shape, &self.samples, &Metadata::default(), &plain)?)?)
            }
            _ => None,
        };
        let one = Shape { bands: 1, sample: SampleType::U8, ..self.shape };
        let masks = match (&self.mask, method) {
            (Some(mask), PushMethod::Device(..)) => {
                Some(cases::open(&cases::write(one, mask, &Metadata::default(), &plain)?)?)
            }
            _ => None,
        };
        let mut y = 0;
        while y < height {
            let count = each.min(height - y);
            let read = |dataset: &swath::Dataset, interleave| {
                let options = ReadOptions::default()
                    .with_window(Window::new(0, y, width, count))
                    .with_interleave(interleave)
                    .with_device(Mode::Cuda)
                    .with_gpu(gpu.clone());
                dataset.read_device(&options)
            };
            if let (Some(source), PushMethod::Device(_, interleave)) = (&source, method) {
                let raster = read(source, interleave)?;
                let mask = masks.as_ref().map(|masks| read(masks, interleave)).transpose()?;
                let samples = DeviceSamples::of_raster(&raster)?;
                let samples = match &mask {
                    Some(mask) => samples.with_mask_raster(mask)?,
                    None => samples,
                };
                writer.push_device(&samples)?;
            } else {
                let bytes: Vec<u8> = self
                    .samples
                    .chunks_exact(row * height as usize)
                    .take(bands.into())
                    .flat_map(|band| &band[y as usize * row..(y + count) as usize * row])
                    .copied()
                    .collect();
                let rows = Rows::from_bytes(&bytes, Interleave::Band);
                match &self.mask {
                    Some(mask) => {
                        let mask = &mask[(y * width) as usize..((y + count) * width) as usize];
                        writer.push(&rows.with_mask(mask))?;
                    }
                    None => writer.push(&rows)?,
                }
            }
            y += count;
        }
        Ok(())
    }

    /// The same options, by a GPU.
    pub fn on(&self, gpu: &Arc<Gpu>, mode: Mode) -> WriteOptions {
        self.options.clone().with_device(mode).with_gpu(gpu.clone())
    }
}

/// Fails where two files do not hold the same pixels, on every level, with their masks and statistics.
pub fn same_pixels(what: &str, cpu: &Arc<[u8]>, gpu: &Arc<[u8]>) -> Result<(), String> {
    let text = |error: Error| format!("{what}: {error}");
    let (a, b) = (cases::open(cpu).map_err(text)?, cases::open(gpu).map_err(text)?);
    let [ours, theirs] = [&a, &b].map(|dataset| format!("{:?}", dataset.metadata()));
    if ours != theirs {
        return Err(format!("{what}: other metadata:\n{ours}\n{theirs}"));
    }
    let levels = a.overviews().map_err(text)?.len();
    if levels != b.overviews().map_err(text)?.len() {
        return Err(format!("{what}: other overviews"));
    }
    for level in 0..=levels {
        let options = match level {
            0 => ReadOptions::default(),
            level => ReadOptions::default().with_overview(level - 1),
        };
        let (from, to) = (a.read(&options).map_err(text)?, b.read(&options).map_err(text)?);
        if from.bytes() != to.bytes() {
            let at = from.bytes().iter().zip(to.bytes()).position(|(a, b)| a != b);
            return Err(format!("{what}: level {level} differs from byte {at:?} on, of {}", from.bytes().len()));
        }
        let (from, to) = (a.read_mask(&options).map_err(text)?, b.read_mask(&options).map_err(text)?);
        if from.bytes() != to.bytes() {
            return Err(format!("{what}: the mask of level {level} differs"));
        }
    }
    Ok(())
}

/// One case: the pixels are the CPU's, and the bytes are the same for any pushes and any number of tiles in a batch.
pub fn check(case: &WriteCase, gpu: &Arc<Gpu>, rng: &mut Rng) -> Result<(), String> {
    let what = &case.what;
    let text = |error: Error| format!("{what}: {error}");
    let (cpu, _) = case.write(&case.options, PushMethod::Whole, gpu).map_err(text)?;
    let cuda = case.on(gpu, Mode::Cuda);
    let (first, written) = case.write(&cuda, PushMethod::Whole, gpu).map_err(text)?;
    expect_no_notices(what, &written.device)?;
    same_pixels(what, &cpu, &first)?;
    let interleave = rng.pick(&[swath::Interleave::Band, swath::Interleave::Pixel]);
    let rows = rng.within(1..90);
    for (method, batch) in [
        (PushMethod::Rows(rows), rng.within(1..4)),
        (PushMethod::Device(rows, interleave), rng.within(1..4)),
        (PushMethod::Device(u32::MAX, interleave), 1000),
    ] {
        let options = cuda.clone().with_batch(batch);
        let (again, _) = case.write(&options, method, gpu).map_err(text)?;
        if again != first {
            let at = again.iter().zip(&*first).position(|(a, b)| a != b);
            return Err(format!("{what}: {method:?} in batches of {batch} gives other bytes from {at:?} on"));
        }
    }
    Ok(())
}

fn expect_no_notices(what: &str, report: &DeviceReport) -> Result<(), String> {
    match report.notices.is_empty() && report.host_tiles == 0 && !report.device.is_empty() {
        true => Ok(()),
        false => Err(format!("{what}: {report:?}")),
    }
}

/// Runs random cases, and hands the result of each to `report`.
pub fn matrix(gpu: &Arc<Gpu>, seed: u64, count: u64, mut report: impl FnMut(Result<(), String>)) {
    let mut rng = Rng::new(seed);
    for _ in 0..count {
        let case = WriteCase::draw(&mut rng);
        report(check(&case, gpu, &mut rng));
    }
}

/// A larger image of one kind, for effects that small ones do not have: tiles of several pieces, batches, memory.
pub fn large(shape: Shape, options: WriteOptions, nodata: &str) -> WriteCase {
    let samples = terrain(shape);
    let what = format!("{shape:?} {options:?}");
    WriteCase { what, shape, samples, mask: None, metadata: cases::nodata_of(nodata), options }
}

/// Hills with noise, in any type.
fn terrain(shape: Shape) -> Vec<u8> {
    let mut rng = Rng::new(11);
    let (width, height) = (shape.width as usize, shape.height as usize);
    let mut out = Vec::with_capacity(width * height * usize::from(shape.bands) * shape.sample.size());
    for band in 0..usize::from(shape.bands) {
        for y in 0..height {
            for x in 0..width {
                let hill = ((x as f64 / 37.0).sin() + (y as f64 / 53.0).cos() + band as f64) * 40.0 + 120.0;
                let value = hill + (rng.next() >> 58) as f64 / 8.0;
                match shape.sample {
                    SampleType::U8 => out.push((hill / 24.0) as u8),
                    SampleType::U16 => out.extend_from_slice(&((value * 20.0) as u16).to_ne_bytes()),
                    SampleType::F32 => out.extend_from_slice(&(value as f32).to_ne_bytes()),
                    _ => out.extend_from_slice(&value.to_ne_bytes()[..shape.sample.size()]),
                }
            }
        }
    }
    out
}
