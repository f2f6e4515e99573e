//! Rasters to be written, and the ways to push them to a writer.

use std::{ops::Range, sync::Arc};

use swath::{
    Dataset, Error, Interleave, Metadata, OpenOptions, ReadOptions, Rows, SampleType, Shape, WriteOptions, Writer,
    Written,
    io::{MemorySink, Sink},
    write::PredictorChoice,
};

/// Numbers that look random and are the same on every run.
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
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
        range.start + self.below(u64::from(range.end - range.start)) as u32
    }

    pub fn pick<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.below(list.len() as u64) as usize]
    }

    pub fn chance(&mut self, one_in: u64) -> bool {
        self.below(one_in) == 0
    }
}

/// A raster to be written: band after band, and a mask where the options ask for one.
pub struct Scene {
    pub shape: Shape,
    pub samples: Vec<u8>,
    pub mask: Option<Vec<u8>>,
    pub metadata: Metadata,
}

/// How the rows of a scene are pushed.
#[derive(Debug, Clone, Copy)]
pub enum Feed {
    WholeBands,
    WholePixels,
    /// One row at a time, in this arrangement.
    Rows(Interleave),
    /// Chunks of random height; each is arranged anew at random.
    Chunks(u64),
    Tiles(u32, u32),
}

pub fn shape(width: u32, height: u32, bands: u16, sample: SampleType) -> Shape {
    Shape { width, height, bands, sample }
}

impl Scene {
    /// Smooth areas with noise, so that predictors, codecs and resamplings all have something to do. Floats stay
    /// finite and small.
    pub fn new(shape: Shape, seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let mut samples = Vec::with_capacity(plane_len(shape) * usize::from(shape.bands));
        for band in 0..u32::from(shape.bands) {
            for y in 0..shape.height {
                for x in 0..shape.width {
                    let value = (x * 3 + y * 2 + band * 40) / 4 + (rng.next() >> 61) as u32;
                    put(&mut samples, shape.sample, value);
                }
            }
        }
        Self { shape, samples, mask: None, metadata: Metadata::default() }
    }

    /// With a mask of blobs and single pixels.
    pub fn masked(mut self, seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let pixel = |index: u32| {
            let (x, y) = (index % self.shape.width, index / self.shape.width);
            if (x / 9 + y / 7) % 4 == 0 || rng.chance(11) { 0 } else { 255 }
        };
        self.mask = Some((0..self.shape.width * self.shape.height).map(pixel).collect());
        self
    }

    /// Rows of all bands, in this arrangement.
    pub fn rows(&self, rows: Range<u32>, interleave: Interleave) -> Vec<u8> {
        let (size, width) = (self.shape.sample.size(), self.shape.width as usize);
        let plane = plane_len(self.shape);
        let range = rows.start as usize * width * size..rows.end as usize * width * size;
        let bands: Vec<&[u8]> = self.samples.chunks_exact(plane).map(|band| &band[range.clone()]).collect();
        match interleave {
            Interleave::Band => bands.concat(),
            Interleave::Pixel => (0..range.len() / size)
                .flat_map(|pixel| bands.iter().flat_map(move |band| &band[pixel * size..(pixel + 1) * size]))
                .copied()
                .collect(),
        }
    }

    fn push(&self, writer: &mut Writer, rows: Range<u32>, interleave: Interleave) -> Result<(), Error> {
        let samples = self.rows(rows.clone(), interleave);
        let pushed = if interleave == Interleave::Band {
            Rows::from_bytes(&samples, Interleave::Band)
        } else {
            Rows::from_bytes(&samples, Interleave::Pixel)
        };
        let width = self.shape.width as usize;
        match &self.mask {
            Some(mask) => writer.push(&pushed.with_mask(&mask[rows.start as usize * width..rows.end as usize * width])),
            None => writer.push(&pushed),
        }
    }

    /// Pushes everything and completes the file.
    pub fn feed(&self, mut writer: Writer, feed: Feed) -> Result<Written, Error> {
        let height = self.shape.height;
        match feed {
            Feed::WholeBands => self.push(&mut writer, 0..height, Interleave::Band)?,
            Feed::WholePixels => self.push(&mut writer, 0..height, Interleave::Pixel)?,
            Feed::Rows(interleave) => {
                for row in 0..height {
                    self.push(&mut writer, row..row + 1, interleave)?;
                }
            }
            Feed::Chunks(seed) => {
                let mut rng = Rng::new(seed);
                let mut row = 0;
                while row < height {
                    let most = if rng.chance(3) { 200 } else { 20 };
                    // A push of no rows is allowed.
                    let end = (row + rng.within(0..most)).min(height);
                    let interleave = *rng.pick(&[Interleave::Band, Interleave::Pixel]);
                    self.push(&mut writer, row..end, interleave)?;
                    row = end;
                }
            }
            Feed::Tiles(across, down) => {
                let pixels = self.rows(0..height, Interleave::Pixel);
                let pixel = self.shape.sample.size() * usize::from(self.shape.bands);
                let row_len = self.shape.width as usize * pixel;
                for y in (0..height).step_by(down as usize) {
                    for x in (0..self.shape.width).step_by(across as usize) {
                        let columns = x as usize * pixel..((x + across).min(self.shape.width)) as usize * pixel;
                        let lines = pixels.chunks_exact(row_len).skip(y as usize).take(down as usize);
                        let tile: Vec<u8> = lines.flat_map(|line| &line[columns.clone()]).copied().collect();
                        writer.push_tile_bytes(&tile)?;
                    }
                }
            }
        }
        writer.finish()
    }

    /// The options with the predictor that a writer of rows chooses, for files that are not written from rows.
    pub fn with_chosen_predictor(&self, options: &WriteOptions) -> WriteOptions {
        let mut choice = PredictorChoice::new(self.shape, &self.metadata, options).unwrap();
        let samples = self.rows(0..self.shape.height, Interleave::Band);
        let rows = Rows::from_bytes(&samples, Interleave::Band);
        let chosen = match &self.mask {
            Some(mask) => choice.push(&rows.with_mask(mask)),
            None => choice.push(&rows),
        };
        options.clone().with_predictor(chosen.unwrap().expect("all rows were seen"))
    }

    /// The bytes of the file.
    pub fn write(&self, options: &WriteOptions, feed: Feed) -> Result<Vec<u8>, Error> {
        let (sink, memory) = MemorySink::new("memory");
        self.write_to(Box::new(sink), options, feed)?;
        Ok(memory.take().expect("a file that is complete"))
    }

    pub fn write_to(&self, sink: Box<dyn Sink>, options: &WriteOptions, feed: Feed) -> Result<Written, Error> {
        self.feed(Writer::to_sink(sink, self.shape, &self.metadata, options)?, feed)
    }

    /// Fails unless a file holds these samples and this mask.
    pub fn check(&self, bytes: Vec<u8>, what: &str) -> Dataset {
        let dataset = open(bytes);
        let read = dataset.read(&ReadOptions::default()).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!((read.width(), read.height()), (self.shape.width, self.shape.height), "{what}");
        assert_eq!((read.bands(), read.sample()), (self.shape.bands.into(), self.shape.sample), "{what}");
        assert!(read.bytes() == self.samples, "{what}: other samples");
        if let Some(mask) = &self.mask {
            let read = dataset.read_mask(&ReadOptions::default()).unwrap();
            assert!(read.bytes() == mask, "{what}: another mask");
        }
        dataset
    }
}

pub fn open(bytes: Vec<u8>) -> Dataset {
    OpenOptions::default()
        .open_source(Arc::new(swath::io::MemorySource::new("written", bytes)))
        .expect("a file that opens")
}

fn plane_len(shape: Shape) -> usize {
    shape.width as usize * shape.height as usize * shape.sample.size()
}

/// A whole number as a sample of any type; it stays inside all of them.
pub fn put(out: &mut Vec<u8>, sample: SampleType, value: u32) {
    match sample {
        SampleType::U8 | SampleType::I8 => out.push((value % 128) as u8),
        SampleType::U16 | SampleType::I16 => out.extend(((value % 32768) as u16).to_ne_bytes()),
        SampleType::U32 | SampleType::I32 => out.extend(value.to_ne_bytes()),
        SampleType::U64 | SampleType::I64 => out.extend(u64::from(value).to_ne_bytes()),
        SampleType::F32 => out.extend((value as f32 / 4.0).to_ne_bytes()),
        SampleType::F64 => out.extend((f64::from(value) / 4.0).to_ne_bytes()),
        SampleType::CF32 => out.extend([value as f32, -1.5].iter().flat_map(|part| part.to_ne_bytes())),
        SampleType::CI16 => out.extend([(value % 32768) as u16, 7].iter().flat_map(|part| part.to_ne_bytes())),
        other => panic!("no samples of {other} are made here"),
    }
}
