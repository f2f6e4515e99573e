//! The file that is measured: which portions of it are read, by which processor, and what its samples were the first time.

use std::{
    collections::HashMap,
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Result, bail};
use swath::{
    Cancel, Compression, Dataset, Mode, ReadOptions, Window,
    gpu::{CopySpeeds, Gpu},
    statistics::portions::{Portion, TileLayout},
};

use super::{
    bound::{Speed, with_threads},
    figure::{Bound, ProcessorKind},
    measure,
};

/// Most portions that a large raster is read in.
const MOST_PORTIONS: usize = 4096;

/// Options of all measurements.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Memory to use at most.
    pub max_memory: u64,
    /// Most runs.
    pub runs: u32,
    /// Ends the command.
    pub cancel: Cancel,
    /// Device memory to use at most.
    pub max_device_memory: Option<u64>,
    /// Whether the files are trusted.
    pub trust_input: bool,
}

/// A CPU or a GPU that is measured.
#[derive(Debug, Clone)]
pub struct Processor {
    /// Which one it is, for tables.
    pub kind: ProcessorKind,
    /// Threads that work, also for a GPU.
    pub threads: usize,
    /// The GPU, and how fast the machine copies to it.
    pub gpu: Option<(Arc<Gpu>, CopySpeeds)>,
}

/// Why something is not measured.
#[derive(Debug)]
pub struct Skipped(pub String);

impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Skipped {}

/// Returns the error of a measurement that is not made.
pub fn skipped(reason: impl Into<String>) -> anyhow::Error {
    Skipped(reason.into()).into()
}

/// How many bytes each measurement of a remote file may receive. Together they leave a quarter for the tables of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allowance {
    /// Bytes to read from the source without decoding them.
    pub raw: u64,
    /// Bytes of all reads of one processor.
    pub read: u64,
    /// Bytes of all windows of one size and one processor.
    pub windows: u64,
    /// Bytes of the samples that are written.
    pub write: u64,
}

impl Allowance {
    /// Divides the bytes that the file may cost.
    pub fn of(total: u64, processors: usize, sizes: usize) -> Self {
        let processors = processors.max(1) as u64;
        let eighth = total / 8;
        Self {
            raw: eighth,
            read: 2 * eighth / processors,
            windows: 2 * eighth / processors / (sizes.max(1) as u64),
            write: eighth,
        }
    }
}

/// A file that is measured.
pub struct Subject<'a> {
    /// The file.
    pub dataset: &'a Dataset,
    /// Options of all measurements.
    pub settings: &'a Settings,
    /// Bytes that measurements may receive, for a remote file.
    pub allowance: Option<Allowance>,
    /// How fast bytes of the file arrive.
    pub file_read: Vec<Speed>,
    /// How fast memory is copied.
    pub memory_copy: &'a [Speed],
    /// Checksums of portions that were read.
    seen: HashMap<(Window, u32), u64>,
}

impl<'a> Subject<'a> {
    /// Prepares a file.
    pub fn new(
        dataset: &'a Dataset,
        settings: &'a Settings,
        allowance: Option<Allowance>,
        memory_copy: &'a [Speed],
    ) -> Self {
        Self { dataset, settings, allowance, file_read: Vec::new(), memory_copy, seen: HashMap::new() }
    }

    /// Returns the bytes of all samples.
    pub fn sample_bytes(&self) -> u64 {
        let pixels = u64::from(self.dataset.width()).saturating_mul(self.dataset.height().into());
        pixels.saturating_mul(self.pixel_bytes())
    }

    fn pixel_bytes(&self) -> u64 {
        u64::from(self.dataset.bands()) * self.dataset.sample().size() as u64
    }

    fn all_bands(&self) -> Vec<u32> {
        (1..=self.dataset.bands()).collect()
    }

    /// Returns the most bytes of samples that are in memory at a time.
    pub fn most_samples(&self) -> u64 {
        self.settings.max_memory / 2
    }

    /// Returns the portions that a whole read consists of: one where its samples fit in memory, and for a remote file only as
    /// much as it may cost.
    pub fn portions(&self) -> Result<Vec<Portion>> {
        if let Some(allowance) = self.allowance {
            // Two runs.
            let window = self.first_window(self.most_samples(), Some(allowance.read / 2))?;
            return Ok(vec![Portion { first: 0, bands: self.all_bands(), window }]);
        }
        if self.sample_bytes() <= self.most_samples() {
            let window = Window::new(0, 0, self.dataset.width(), self.dataset.height());
            return Ok(vec![Portion { first: 0, bands: self.all_bands(), window }]);
        }
        let bands = self.all_bands();
        let portions = TileLayout::of(self.dataset.main()).portions(&bands, self.dataset.sample(), self.most_samples());
        let portions: Vec<Portion> = portions.take(MOST_PORTIONS).collect();
        let pixel = |portion: &Portion| portion.bands.len() * self.dataset.sample().size();
        let len = |portion: &Portion| portion.window.pixels() * pixel(portion) as u64;
        match portions.iter().map(len).max() {
            Some(largest) if largest > self.settings.max_memory => Err(self.too_large(largest)),
            _ => Ok(portions),
        }
    }

    fn too_large(&self, bytes: u64) -> anyhow::Error {
        let allowed = self.settings.max_memory;
        skipped(format!("one tile takes {bytes} bytes of memory and {allowed} may be used: raise --max-memory"))
    }

    /// Returns whole tiles from the upper left corner on, with at most so many bytes of samples and stored bytes.
    pub fn first_window(&self, most_samples: u64, most_stored: Option<u64>) -> Result<Window> {
        let (width, height) = (self.dataset.width(), self.dataset.height());
        let image = self.dataset.main();
        let grid = image.grid();
        let (tile_width, mut tile_height) = (grid.tile_width.min(width).max(1), grid.tile_height.min(height).max(1));
        let row = u64::from(width).saturating_mul(self.pixel_bytes());
        if image.layout().compression == Compression::None && row.saturating_mul(tile_height.into()) > most_samples {
            // Rows of tiles that are not compressed can be read one by one.
            tile_height = 1;
        }
        let tile_row = row.saturating_mul(tile_height.into()).max(1);
        let tile = u64::from(tile_width) * u64::from(tile_height) * self.pixel_bytes();
        let most = |bytes: u64, count: u32| u32::try_from(most_samples / bytes.max(1)).unwrap_or(u32::MAX).min(count);
        let mut down = most(tile_row, height.div_ceil(tile_height)).max(1);
        let mut across = width.div_ceil(tile_width);
        if tile_row > most_samples {
            across = most(tile, across).max(1);
        }
        let sized = |across: u32, down: u32| {
            let (columns, rows) = (across.saturating_mul(tile_width), down.saturating_mul(tile_height));
            Window::new(0, 0, columns.min(width), rows.min(height))
        };
        let smallest = sized(1, 1).pixels() * self.pixel_bytes();
        if sized(across, down).pixels() * self.pixel_bytes() > most_samples {
            return Err(self.too_large(smallest));
        }
        let Some(most_stored) = most_stored else { return Ok(sized(across, down)) };
        loop {
            let window = sized(across, down);
            // Tables of tiles that are far too many would cost requests too.
            let part = window.pixels() as f64 / (f64::from(width) * f64::from(height)).max(1.0);
            let guess = (self.dataset.size() as f64 * part / 4.0) as u64;
            let options = ReadOptions::default().with_window(window);
            if guess <= most_stored && self.dataset.stored_len(&options)? <= most_stored {
                return Ok(window);
            }
            match (down, across) {
                (1, 1) => {
                    return Err(skipped(format!(
                        "one tile takes more than {most_stored} bytes: raise --max-remote-bytes"
                    )));
                }
                (1, _) => across /= 2,
                _ => down /= 2,
            }
        }
    }

    /// Returns the read options of a processor.
    pub fn options(&self, processor: &Processor) -> ReadOptions {
        let options = ReadOptions::default().with_threads(processor.threads).with_cancel(self.settings.cancel.clone());
        let Some((gpu, _)) = &processor.gpu else { return options };
        let options = options.with_device(Mode::Cuda).with_gpu(gpu.clone()).with_trust_input(self.settings.trust_input);
        match self.settings.max_device_memory {
            Some(bytes) => options.with_max_device_memory(bytes),
            None => options,
        }
    }

    /// Reads once: to `buffer`, or to the memory of the GPU. Returns the time and the checksum of the samples.
    pub fn read_once(
        &self,
        processor: &Processor,
        options: &ReadOptions,
        buffer: &mut Vec<u8>,
    ) -> Result<(Duration, u64)> {
        if processor.gpu.is_some() {
            let began = Instant::now();
            let raster = self.dataset.read_device(options)?;
            let time = began.elapsed();
            return Ok((time, measure::checksum(raster.to_host()?.bytes())));
        }
        let out = room(buffer, self.dataset.read_len(options)?)?;
        let began = Instant::now();
        self.dataset.read_into(options, out)?;
        let time = began.elapsed();
        Ok((time, measure::checksum(out)))
    }

    /// Compares samples with those that other processors read there. Returns a note where a GPU may round differently.
    pub fn check_against_others(
        &mut self,
        processor: &Processor,
        window: Window,
        first_band: u32,
        sum: u64,
    ) -> Result<Option<String>> {
        let known = *self.seen.entry((window, first_band)).or_insert(sum);
        if known == sum {
            return Ok(None);
        }
        let rounds = matches!(self.dataset.main().layout().compression, Compression::Jpeg | Compression::Jpeg2000);
        if processor.gpu.is_some() && rounds {
            return Ok(Some(
                "samples differ slightly from those of the CPU: NVIDIA's decoder rounds differently".into(),
            ));
        }
        bail!(
            "{}: the {window}: {} read other samples than those before it. Please report this",
            self.dataset.name(),
            processor.kind.name()
        )
    }

    /// Fails unless a repeated read gave the samples of the first one.
    pub fn check_repeated(&self, processor: &Processor, window: Window, first: u64, again: u64) -> Result<()> {
        if first == again {
            return Ok(());
        }
        bail!(
            "{}: the {window}: {} read other samples the second time. Please report this",
            self.dataset.name(),
            processor.kind.name()
        )
    }

    /// Returns what bounds a read of `bytes` of samples from `stored` bytes of the file.
    pub fn read_bounds(&self, processor: &Processor, bytes: u64, stored: u64) -> Vec<Bound> {
        let ratio = bytes as f64 / (stored as f64).max(1.0);
        let mut bounds = Vec::new();
        match &processor.gpu {
            Some((_, copies)) => {
                bounds.push(Bound { what: "copy to the GPU × compression ratio", rate: copies.to_device * ratio });
            }
            None => {
                let copy = with_threads(self.memory_copy, processor.threads);
                bounds.extend(copy.map(|rate| Bound { what: "memory copy", rate }));
            }
        }
        let file = with_threads(&self.file_read, processor.threads);
        bounds.extend(file.map(|rate| Bound { what: "file × compression ratio", rate: rate * ratio }));
        bounds
    }
}

/// Returns `len` bytes of a buffer, which grows where it has to.
pub fn room(buffer: &mut Vec<u8>, len: usize) -> Result<&mut [u8]> {
    if buffer.len() < len {
        let lacking = len - buffer.len();
        if buffer.try_reserve_exact(lacking).is_err() {
            bail!("there is no memory for {len} bytes of samples: lower --max-memory");
        }
        buffer.resize(len, 0);
    }
    Ok(buffer.get_mut(..len).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc as Shared;

    use swath::{
        Blocks, Metadata, OpenOptions, Rows, SampleType, Shape, WriteOptions, Writer,
        io::{MemorySink, MemorySource},
    };

    use super::*;

    /// A raster of bytes in tiles of 64 × 64.
    fn dataset(compression: Compression) -> Dataset {
        let shape = Shape { width: 300, height: 200, bands: 2, sample: SampleType::U8 };
        let samples: Vec<u8> = (0..300 * 200 * 2).map(|index: u32| (index % 251) as u8).collect();
        let (sink, memory) = MemorySink::new("a.tif");
        let options = WriteOptions::default().with_compression(compression).with_blocks(Blocks::Tiles(64, 64));
        let mut writer = Writer::to_sink(Box::new(sink), shape, &Metadata::default(), &options).unwrap();
        writer.push(&Rows::pixels(&samples)).unwrap();
        writer.finish().unwrap();
        let bytes = memory.take().unwrap();
        OpenOptions::default().open_source(Shared::new(MemorySource::new("a.tif", bytes))).unwrap()
    }

    fn settings(max_memory: u64) -> Settings {
        Settings { max_memory, runs: 2, cancel: Cancel::new(), max_device_memory: None, trust_input: false }
    }

    #[test]
    fn a_whole_read_keeps_the_memory() {
        let dataset = dataset(Compression::Deflate);
        for (memory, portions) in [(1 << 20, 1), (2 * 300 * 64 * 2, 4), (2 * 2 * 64 * 64, 20)] {
            let settings = settings(memory);
            let subject = Subject::new(&dataset, &settings, None, &[]);
            let found = subject.portions().unwrap();
            assert_eq!(found.len(), portions, "{memory}");
            assert!(found.iter().all(|portion| portion.window.pixels() * 2 <= memory / 2), "{memory}");
        }
        let settings = settings(1000);
        let refused = Subject::new(&dataset, &settings, None, &[]).portions().unwrap_err();
        assert!(refused.downcast_ref::<Skipped>().is_some_and(|skipped| skipped.0.contains("--max-memory")));
    }

    #[test]
    fn the_first_window_is_as_large_as_memory_and_stored_bytes_allow() {
        let dataset = dataset(Compression::None);
        let settings = settings(1 << 30);
        let subject = Subject::new(&dataset, &settings, None, &[]);
        let size = |samples, stored| {
            subject.first_window(samples, stored).map(|window| (window.width, window.height)).unwrap_or_default()
        };
        assert_eq!(size(u64::MAX, None), (300, 200));
        assert_eq!(size(300 * 128 * 2, None), (300, 128));
        // Rows of tiles that are not compressed need not be read together.
        assert_eq!(size(300 * 10 * 2, None), (300, 10));
        assert_eq!(size(100, None), (0, 0));
        let tile = 64 * 64 * 2;
        assert_eq!(size(u64::MAX, Some(20 * tile)), (300, 200));
        assert_eq!(size(u64::MAX, Some(10 * tile)), (300, 128));
        assert_eq!(size(u64::MAX, Some(2 * tile)), (128, 64));
        assert_eq!(size(u64::MAX, Some(tile - 1)), (0, 0));
    }

    #[test]
    fn what_a_remote_file_costs_stays_below_the_limit() {
        for (processors, sizes) in [(1, 3), (1, 0), (3, 3), (9, 2)] {
            let allowance = Allowance::of(64 << 20, processors, sizes);
            let (processors, sizes) = (processors as u64, sizes as u64);
            let sum = allowance.raw + processors * (allowance.read + sizes * allowance.windows) + allowance.write;
            assert!(sum <= (64 << 20) / 4 * 3, "{processors} processors, {sizes} sizes: {sum}");
        }
    }

    #[test]
    fn other_samples_are_an_error() {
        let dataset = dataset(Compression::Deflate);
        let settings = settings(1 << 20);
        let mut subject = Subject::new(&dataset, &settings, None, &[]);
        let processor = Processor { kind: ProcessorKind::Cpu(1), threads: 1, gpu: None };
        let window = Window::new(0, 0, 10, 10);
        assert!(subject.check_against_others(&processor, window, 1, 5).unwrap().is_none());
        assert!(subject.check_against_others(&processor, window, 2, 6).is_ok());
        assert!(subject.check_against_others(&processor, window, 1, 6).is_err());
        assert!(subject.check_repeated(&processor, window, 5, 5).is_ok());
        assert!(subject.check_repeated(&processor, window, 5, 6).is_err());
    }
}
