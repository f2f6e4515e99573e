//! Files made in memory from a seed, and reads of them that a CPU and a GPU have to agree on. Shared with the tests
//! that run where there is a GPU.

use std::{num::NonZeroU32, ops::Range, sync::Arc};

use swath::{
    Band, Blocks, Compression, Dataset, Error, Interleave, Limits, Metadata, Mode, OpenOptions, Raster, ReadOptions,
    Rows, SampleType, Shape, Window, WriteOptions, Writer,
    geo::Nodata,
    gpu::{DeviceReport, Gpu},
    io::{MemorySink, MemorySource},
    tiff::structure::{ByteOrder, Planar, Predictor, value::Value},
    write::BigTiff,
};

/// Codecs that our own kernels decode.
pub const ON_DEVICE: [Compression; 5] =
    [Compression::None, Compression::PackBits, Compression::Lzw, Compression::Deflate, Compression::Zstd];

/// Numbers that look random and are the same on every run.
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        (self.next() >> 11) % end.max(1)
    }

    pub fn within(&mut self, range: Range<u32>) -> u32 {
        range.start + self.below(u64::from(range.end.saturating_sub(range.start))) as u32
    }

    pub fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len() as u64) as usize]
    }

    pub fn chance(&mut self, one_in: u64) -> bool {
        self.below(one_in) == 0
    }
}

/// Samples, band after band, of kinds that compress well with some codecs and badly with others.
pub fn samples(shape: Shape, rng: &mut Rng) -> Vec<u8> {
    let (word, size) = (shape.sample.word(), shape.sample.size());
    let row = shape.width as usize * size;
    let rows = shape.height as usize * usize::from(shape.bands);
    let mut out = Vec::with_capacity(row * rows);
    let (temperament, step) = (rng.below(6), rng.within(1..9) as usize);
    for y in 0..rows {
        for x in 0..row {
            let slope = (x / size * 3 + y * step) >> (8 * (x % word));
            out.push(match temperament {
                0 => rng.next() as u8,
                1 => (y / 40) as u8,
                2 => slope as u8,
                3 => (x / 64 * 7 + y / 16) as u8,
                4 => (slope as u8).wrapping_add((rng.next() >> 61) as u8),
                _ if (x / 50 + y / 30) % 3 == 0 => rng.next() as u8,
                _ => (x / 9) as u8,
            });
        }
    }
    out
}

/// Writes samples, band after band, to memory.
pub fn write(shape: Shape, samples: &[u8], metadata: &Metadata, options: &WriteOptions) -> Result<Arc<[u8]>, Error> {
    let (sink, memory) = MemorySink::new("memory");
    let mut writer = Writer::to_sink(Box::new(sink), shape, metadata, options)?;
    writer.push(&Rows::from_bytes(samples, Interleave::Band))?;
    writer.finish()?;
    Ok(memory.take().unwrap_or_default().into())
}

/// Opens a file in memory; its tiles are not cached, so every read decodes.
pub fn open(file: &Arc<[u8]>) -> Result<Dataset, Error> {
    OpenOptions::default()
        .with_limits(Limits::none())
        .with_tile_cache(0)
        .open_source(Arc::new(MemorySource::new("test.tif", file.clone())))
}

/// A file, and how it is read.
pub struct Case {
    /// Everything about it, for messages.
    pub what: String,
    pub file: Arc<[u8]>,
    /// Window, bands, interleave and threads.
    pub options: ReadOptions,
    /// Whether our own kernels decode it.
    pub on_device: bool,
    /// Whether it is read through the device to the host, instead of to the device.
    pub to_host: bool,
}

impl Case {
    /// Draws until the writer accepts it.
    pub fn draw(rng: &mut Rng) -> Self {
        loop {
            if let Some(case) = Self::try_draw(rng) {
                return case;
            }
        }
    }

    fn try_draw(rng: &mut Rng) -> Option<Self> {
        let others = [Compression::Lerc, Compression::WebP, Compression::Jpeg, Compression::Lz4, Compression::Lzma];
        let compression = if rng.chance(5) { rng.pick(&others) } else { rng.pick(&ON_DEVICE) };
        let pictures = matches!(compression, Compression::WebP | Compression::Jpeg);
        let sample = if pictures { SampleType::U8 } else { rng.pick(&SampleType::ALL) };
        let bands = if pictures { 3 } else { rng.within(1..6) as u16 };
        let side = |rng: &mut Rng| if rng.chance(5) { rng.within(1..4) } else { rng.within(1..150) };
        let shape = Shape { width: side(rng), height: side(rng), bands, sample };
        let mut data = samples(shape, rng);
        let (mut nodata, mut sparse) = ("", false);
        if rng.chance(3) {
            // Rows of nodata, so that whole tiles can be left out.
            let row = shape.width as usize * sample.size();
            let empty = row * rng.within(0..shape.height + 1) as usize;
            for band in data.chunks_exact_mut(row * shape.height as usize) {
                band[..empty].fill(0);
            }
            nodata = rng.pick(&["", "0", "7", "-9999", "nan"]);
            sparse = true;
        }
        let bits = match sample {
            SampleType::U8 if !pictures && rng.chance(3) => Some(rng.within(1..9) as u16),
            SampleType::U16 if rng.chance(4) => Some(rng.within(9..16) as u16),
            _ => None,
        };
        if let Some(bits) = bits {
            mask(&mut data, sample.size(), bits);
        }
        let blocks = match rng.chance(3) {
            true => Blocks::Strips(NonZeroU32::new(rng.within(0..40))),
            false => Blocks::Tiles(16 * rng.within(1..5), 16 * rng.within(1..5)),
        };
        let predictor =
            rng.pick(&[None, Some(Predictor::None), Some(Predictor::Horizontal), Some(Predictor::FloatingPoint)]);
        let planar = rng.pick(&[Planar::Contig, Planar::Separate]);
        let order = rng.pick(&[ByteOrder::Little, ByteOrder::Big]);
        let mut options = WriteOptions::default()
            .with_compression(compression)
            .with_blocks(blocks)
            .with_planar(planar)
            .with_order(order)
            .with_bigtiff(rng.pick(&[BigTiff::Auto, BigTiff::Always]))
            .with_sparse(sparse)
            .with_threads(1_usize);
        options = predictor.into_iter().fold(options, WriteOptions::with_predictor);
        options = bits.into_iter().fold(options, WriteOptions::with_bits);
        match compression {
            Compression::Deflate => options = options.with_level(rng.within(1..13)),
            Compression::Zstd => options = options.with_level(rng.within(1..20)),
            _ => {}
        }
        let file = write(shape, &data, &nodata_of(nodata), &options).ok()?;
        let mut read = ReadOptions::default().with_threads(rng.within(1..4) as usize);
        let mut selection = String::new();
        if !rng.chance(3) {
            let (x, y) = (rng.within(0..shape.width), rng.within(0..shape.height));
            let window = Window::new(x, y, rng.within(1..shape.width - x + 1), rng.within(1..shape.height - y + 1));
            selection = format!(", window {window}");
            read = read.with_window(window);
        }
        if rng.chance(2) {
            let list: Vec<u32> = (0..rng.within(1..6)).map(|_| rng.within(1..u32::from(bands) + 1)).collect();
            selection = format!("{selection}, bands {list:?}");
            read = read.with_bands(list);
        }
        let interleave = rng.pick(&[Interleave::Band, Interleave::Pixel]);
        let what = format!(
            "{shape:?} {compression} {bits:?} bits, {predictor:?}, {blocks:?}, {planar:?}, {order:?}, sparse {sparse} \
             nodata '{nodata}'{selection}, {interleave:?}"
        );
        let options = read.with_interleave(interleave);
        Some(Self { what, file, options, on_device: ON_DEVICE.contains(&compression), to_host: rng.chance(3) })
    }

    /// Reads with the CPU and with a GPU, to its memory or through it; returns where they differ.
    pub fn check(&self, gpu: &Arc<Gpu>, adjust: impl Fn(ReadOptions) -> ReadOptions) -> Result<DeviceReport, String> {
        let mode = if self.on_device { Mode::Cuda } else { Mode::Auto };
        let options = adjust(self.options.clone().with_device(mode).with_gpu(gpu.clone()));
        let read = || {
            let dataset = open(&self.file).map_err(|error| error.to_string())?;
            let report = match self.to_host {
                true => agree_on(&dataset, &self.options, &options, Dataset::read),
                false => agree_on(&dataset, &self.options, &options, by_device),
            };
            report?.ok_or_else(|| "neither reads it".into())
        };
        read().map_err(|fault: String| format!("{}: {fault}", self.what))
    }
}

/// Keeps the low bits of samples of one or two bytes.
fn mask(data: &mut [u8], size: usize, bits: u16) {
    let mask = ((1_u32 << bits) - 1) as u16;
    if size == 1 {
        data.iter_mut().for_each(|byte| *byte &= mask as u8);
    } else {
        for pair in data.as_chunks_mut::<2>().0 {
            *pair = (u16::from_ne_bytes(*pair) & mask).to_ne_bytes();
        }
    }
}

/// Metadata with this nodata for every band.
pub fn nodata_of(text: &str) -> Metadata {
    if text.is_empty() {
        return Metadata::default();
    }
    let band = Band { nodata: Nodata::parse(text.as_bytes()), ..Band::default() };
    Metadata { bands: vec![band], ..Metadata::default() }
}

/// Reads to the device, and copies the samples back.
pub fn by_device(dataset: &Dataset, options: &ReadOptions) -> Result<Raster, Error> {
    dataset.read_device(options)?.to_host()
}

/// Reads a file with the CPU and to a device: the same samples (returns the device's report), or the same error (`None`).
pub fn agree(file: &Arc<[u8]>, cpu: &ReadOptions, device: &ReadOptions) -> Result<Option<DeviceReport>, String> {
    match open(file) {
        Ok(dataset) => agree_on(&dataset, cpu, device, by_device),
        Err(_) => Ok(None),
    }
}

/// As [`agree`], with another function that reads the samples.
pub fn agree_on(
    dataset: &Dataset,
    cpu: &ReadOptions,
    device: &ReadOptions,
    read: impl Fn(&Dataset, &ReadOptions) -> Result<Raster, Error>,
) -> Result<Option<DeviceReport>, String> {
    match (dataset.read(cpu), read(dataset, device)) {
        (Ok(cpu), Ok(device)) if cpu.shape() != device.shape() || cpu.sample() != device.sample() => {
            Err(format!("shape {:?} and {:?}", cpu.shape(), device.shape()))
        }
        (Ok(cpu), Ok(device)) if cpu.bytes() == device.bytes() => {
            device.report().cloned().map(Some).ok_or_else(|| "no report".into())
        }
        (Ok(cpu), Ok(device)) if is_near(dataset, &cpu, &device) => Ok(device.report().cloned()),
        (Ok(cpu), Ok(device)) => {
            let first = cpu.bytes().iter().zip(device.bytes()).position(|(a, b)| a != b);
            Err(format!("other samples, first at byte {first:?} of {}", cpu.bytes().len()))
        }
        (Err(cpu), Err(device)) if cpu.to_string() == device.to_string() => Ok(None),
        (cpu, device) => {
            let text = |result: Result<Raster, Error>| result.map_or_else(|error| error.to_string(), |_| "fine".into());
            Err(format!("CPU: {}; device: {}", text(cpu), text(device)))
        }
    }
}

/// Whether JPEG that nvJPEG decoded is within the promised two levels.
fn is_near(dataset: &Dataset, cpu: &Raster, device: &Raster) -> bool {
    dataset.main().layout().compression == Compression::Jpeg
        && cpu.sample() == SampleType::U8
        && device.report().is_some_and(|report| report.device_tiles > 0)
        && cpu.bytes().iter().zip(device.bytes()).all(|(a, b)| a.abs_diff(*b) <= 2)
}

/// Where the bytes of each tile of the first image are; an empty range is a sparse tile.
pub fn tiles(file: &Arc<[u8]>) -> Result<Vec<Range<usize>>, Error> {
    let dataset = open(file)?;
    let numbers = |tags: [u16; 2]| -> Result<Vec<usize>, Error> {
        for tag in tags {
            if let Some(Value::Integers(list)) = dataset.tag(tag)? {
                return Ok(list.iter().map(|number| usize::try_from(*number).unwrap_or(0)).collect());
            }
        }
        Ok(Vec::new())
    };
    let (offsets, counts) = (numbers([324, 273])?, numbers([325, 279])?);
    Ok(offsets.into_iter().zip(counts).map(|(offset, count)| offset..offset + count).collect())
}

/// Makes the byte count of a tile smaller than its stream. Only for files in little-endian order.
pub fn shorten(file: &mut [u8], tile: usize, len: usize) {
    let Ok(dataset) = open(&Arc::from(&*file)) else { return };
    if let Some(entry) = [325, 279].into_iter().find_map(|tag| dataset.main().ifd().entry(tag)) {
        let size = entry.kind.size() as usize;
        let at = entry.offset as usize + tile * size;
        if let Some(place) = file.get_mut(at..at + size) {
            place.copy_from_slice(&(len as u64).to_le_bytes()[..size]);
        }
    }
}

/// Damages bytes of a tile in one of many ways; the file keeps its length.
pub fn spoil(file: &mut [u8], tile: &Range<usize>, number: usize, rng: &mut Rng) {
    let len = tile.len() as u64;
    let way = rng.below(8);
    if way == 0 && len > 0 {
        return shorten(file, number, rng.below(len) as usize + 1);
    }
    let Some(bytes) = file.get_mut(tile.clone()) else { return };
    let at = rng.below(len) as usize;
    match way {
        1 => bytes[at..].fill(0),
        2 => bytes[at..].fill(0xff),
        3 => bytes[at..].iter_mut().for_each(|byte| *byte = rng.next() as u8),
        4 => bytes.rotate_left(at),
        5 => bytes[at] = rng.next() as u8,
        // Mostly single bits: they change the least, so decoders get the furthest. Early ones change the tables.
        6 => bytes[at.min(40)] ^= 1 << rng.below(8),
        _ => {
            for _ in 0..rng.within(1..5) {
                bytes[rng.below(len) as usize] ^= 1 << rng.below(8);
            }
        }
    }
}

/// A BigTIFF of square `f32` tiles, none of which is stored; sparse tiles are -1.
pub fn sparse(side: u32, tile: u32) -> Arc<[u8]> {
    let tiles = u64::from(side / tile) * u64::from(side / tile);
    let entries: [(u16, u16, u64, u64); 10] = [
        (256, 4, 1, side.into()),
        (257, 4, 1, side.into()),
        (258, 3, 1, 32),
        (259, 3, 1, 8),
        (262, 3, 1, 1),
        (322, 4, 1, tile.into()),
        (323, 4, 1, tile.into()),
        (324, 16, tiles, 16 + 8 + 11 * 20 + 8),
        (325, 4, tiles, 16 + 8 + 11 * 20 + 8),
        (339, 3, 1, 3),
    ];
    let mut file = b"II\x2b\x00\x08\x00\x00\x00\x10\x00\x00\x00\x00\x00\x00\x00".to_vec();
    file.extend((entries.len() as u64 + 1).to_le_bytes());
    for (tag, kind, count, value) in entries {
        file.extend(tag.to_le_bytes());
        file.extend(kind.to_le_bytes());
        file.extend(count.to_le_bytes());
        file.extend(value.to_le_bytes());
    }
    // GDAL_NODATA.
    file.extend([0x81, 0xa4, 2, 0, 3, 0, 0, 0, 0, 0, 0, 0, b'-', b'1', 0, 0, 0, 0, 0, 0]);
    file.resize(file.len() + 8 + tiles as usize * 8, 0);
    file.into()
}
