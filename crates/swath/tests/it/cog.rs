//! Files so large that levels are streamed to reserved places, and unused room is removed.

use std::path::Path;

use swath::{
    Compression, Dataset, Interleave, Metadata, ReadOptions, Rows, SampleType, Shape, WriteOptions, Writer, Written,
    io::{FileSink, MemorySink},
    validate::Check,
};

use crate::{
    scene::{Rng, open, shape},
    write::folder,
};

/// A plain average of two by two, independent of the library's. Sides are even.
fn halves<T: Copy>(from: &[T], width: usize, mean: impl Fn([T; 4]) -> T) -> Vec<T> {
    let rows = from.chunks_exact(2 * width);
    rows.flat_map(|pair| {
        let (upper, lower) = pair.split_at(width);
        upper.chunks_exact(2).zip(lower.chunks_exact(2)).map(|(a, b)| mean([a[0], a[1], b[0], b[1]]))
    })
    .collect()
}

fn overview(dataset: &Dataset, level: usize) -> Vec<u8> {
    dataset.read(&ReadOptions::default().with_overview(level)).unwrap().bytes().to_vec()
}

fn write(shape: Shape, samples: &[u8], options: &WriteOptions) -> (Vec<u8>, Written) {
    let (sink, memory) = MemorySink::new("memory");
    let mut writer = Writer::to_sink(Box::new(sink), shape, &Metadata::default(), options).unwrap();
    writer.push(&Rows::from_bytes(samples, Interleave::Band)).unwrap();
    let written = writer.finish().unwrap();
    (memory.take().unwrap(), written)
}

fn valid(dataset: &Dataset, what: &str) {
    let report = dataset.validate(Check::Full).unwrap();
    assert!(report.is_valid_strictly(), "{what}: {:?} {:?}", report.errors, report.warnings);
}

/// Bytes of one band: the file, every overview against the plain average, the same through files.
fn check_bytes(samples: Vec<u8>, side: u32, options: &WriteOptions, what: &str) -> Written {
    let shape = shape(side, side, 1, SampleType::U8);
    let (bytes, written) = write(shape, &samples, options);
    assert_eq!(bytes.len() as u64, written.size, "{what}");
    for parent in [std::env::temp_dir().as_path(), Path::new("/dev/shm")] {
        if !parent.is_dir() {
            continue;
        }
        let folder = folder(parent, what);
        let path = folder.join("a.tif");
        let sink = FileSink::create(&path).unwrap();
        let mut writer = Writer::to_sink(Box::new(sink), shape, &Metadata::default(), options).unwrap();
        // A few rows at a time, in odd numbers.
        for rows in samples.chunks(side as usize * 777) {
            writer.push(&Rows::from_bytes(rows, Interleave::Band)).unwrap();
        }
        assert_eq!(writer.finish().unwrap(), written, "{what}");
        assert!(std::fs::read(&path).unwrap() == bytes, "{what}: {}", parent.display());
        std::fs::remove_dir_all(folder).unwrap();
    }
    let dataset = open(bytes);
    valid(&dataset, what);
    assert!(dataset.read(&ReadOptions::default()).unwrap().bytes() == samples, "{what}: other samples");
    let (mut level, mut width) = (samples, side as usize);
    for (number, found) in dataset.overviews().unwrap().iter().enumerate() {
        level = halves(&level, width, |four| ((four.iter().map(|part| u32::from(*part)).sum::<u32>() + 2) / 4) as u8);
        width /= 2;
        assert_eq!((found.width as usize, found.height as usize), (width, width), "{what}");
        assert!(overview(&dataset, number) == level, "{what}: overview {number}");
    }
    written
}

fn check_doubles(samples: &[f64], side: u32, options: &WriteOptions, what: &str) -> Written {
    let bytes: Vec<u8> = samples.iter().flat_map(|sample| sample.to_ne_bytes()).collect();
    let (file, written) = write(shape(side, side, 1, SampleType::F64), &bytes, options);
    let dataset = open(file);
    valid(&dataset, what);
    assert!(dataset.read(&ReadOptions::default()).unwrap().bytes() == bytes, "{what}: other samples");
    let (mut level, mut width) = (samples.to_vec(), side as usize);
    for number in 0..dataset.overviews().unwrap().len() {
        // Whole numbers: the order of the additions does not matter.
        level = halves(&level, width, |four| four.iter().sum::<f64>() / 4.0);
        width /= 2;
        let found = overview(&dataset, number);
        let same = found.as_chunks::<8>().0.iter().zip(&level).all(|(raw, value)| f64::from_ne_bytes(*raw) == *value);
        assert!(same && found.len() == level.len() * 8, "{what}: overview {number}");
    }
    written
}

fn fast() -> WriteOptions {
    WriteOptions::cog().with_compression(Compression::Zstd).with_level(1)
}

#[test]
fn large_bytes_of_noise_are_in_their_places() {
    let mut rng = Rng::new(1);
    let samples: Vec<u8> = (0..6000 * 6000 / 8).flat_map(|_| rng.next().to_le_bytes()).collect();
    let written = check_bytes(samples, 6000, &fast(), "noise");
    assert_eq!(written.overviews, 4);
    // At most a block of padding before each level.
    assert!(written.padding < 5 * 4096, "{written:?}");
}

#[test]
fn large_constant_bytes_leave_no_room_behind() {
    let written = check_bytes(vec![7; 6000 * 6000], 6000, &fast(), "constant");
    assert!(written.size < 200_000 && written.padding < 5 * 4096, "{written:?}");
}

#[test]
fn tiles_that_are_all_left_out_leave_a_file_without_data() {
    let written = check_bytes(vec![0; 6000 * 6000], 6000, &fast().with_sparse(true), "nothing");
    assert!(written.size < 100_000, "{written:?}");
    // A little data in one corner: the first tile of the image follows a gap, and nothing else does.
    let mut samples = vec![0; 6000 * 6000];
    samples[5999 * 6000 + 5999] = 200;
    check_bytes(samples, 6000, &fast().with_sparse(true), "a pixel");
}

#[test]
fn large_doubles_of_noise_and_of_one_value_are_in_their_places() {
    let mut rng = Rng::new(2);
    let noise: Vec<f64> = (0..3000 * 3000).map(|_| rng.below(1 << 40) as f64).collect();
    let written = check_doubles(&noise, 3000, &fast(), "noise");
    assert!(written.padding < 4 * 4096, "{written:?}");
    let written = check_doubles(&vec![-5.0; 3000 * 3000], 3000, &fast(), "constant");
    assert!(written.size < 200_000, "{written:?}");
    // Uncompressed, and with tables of BigTIFF.
    let options = WriteOptions::cog().with_compression(Compression::None).with_bigtiff(swath::write::BigTiff::Always);
    check_doubles(&noise, 3000, &options, "uncompressed");
}

#[test]
fn levels_that_are_streamed_with_masks_and_bands_apart_are_valid() {
    let shape = shape(3000, 3000, 3, SampleType::U16);
    let mut rng = Rng::new(3);
    let samples: Vec<u8> = (0..3000 * 3000 * 6 / 8).flat_map(|_| (rng.next() & 0x0f0f_0fff).to_le_bytes()).collect();
    let mask: Vec<u8> = (0..3000 * 3000_u32).map(|at| if (at / 40) % 3 == 0 { 0 } else { 255 }).collect();
    for planar in [swath::tiff::structure::Planar::Contig, swath::tiff::structure::Planar::Separate] {
        let options = fast().with_mask(true).with_planar(planar);
        let (sink, memory) = MemorySink::new("memory");
        let mut writer = Writer::to_sink(Box::new(sink), shape, &Metadata::default(), &options).unwrap();
        writer.push(&Rows::from_bytes(&samples, Interleave::Band).with_mask(&mask)).unwrap();
        writer.finish().unwrap();
        let dataset = open(memory.take().unwrap());
        valid(&dataset, &format!("{planar:?}"));
        assert!(dataset.read(&ReadOptions::default()).unwrap().bytes() == samples);
        assert!(dataset.read_mask(&ReadOptions::default()).unwrap().bytes() == mask);
    }
}
