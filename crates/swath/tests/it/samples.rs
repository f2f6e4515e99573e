//! Samples as numbers of Rust, in and out.

use std::sync::Arc;

use swath::{
    ConvertOptions, Dataset, Error, ErrorKind, Interleave, Metadata, OpenOptions, ReadOptions, Rows, Sample,
    SampleType, Shape, WriteOptions, Writer,
    convert::Scale,
    io::{Memory, MemorySink, MemorySource, Sink},
    tiff::Photometric,
    write::Alpha,
};

fn writer(shape: Shape) -> (Writer, Memory) {
    let (sink, memory) = MemorySink::new("typed.tif");
    (Writer::to_sink(Box::new(sink), shape, &Metadata::default(), &WriteOptions::default()).unwrap(), memory)
}

fn open(memory: &Memory) -> Dataset {
    OpenOptions::default().open_source(Arc::new(MemorySource::new("typed.tif", memory.take().unwrap()))).unwrap()
}

fn usage(result: Result<(), Error>) -> String {
    let error = result.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Usage(_)), "{error}");
    error.to_string()
}

/// Writes samples row by row and by bands, and reads them back as numbers.
fn round_trip<T: Sample + PartialEq + std::fmt::Debug>(value: impl Fn(usize) -> T) {
    let shape = Shape { width: 5, height: 4, bands: 2, sample: T::TYPE };
    let samples: Vec<T> = (0..40).map(value).collect();

    let (mut rows, memory) = writer(shape);
    for row in samples.chunks(10) {
        rows.push(&Rows::pixels(row)).unwrap();
    }
    rows.finish().unwrap();
    let raster = open(&memory).read(&ReadOptions::default().with_interleave(Interleave::Pixel)).unwrap();
    assert_eq!(raster.samples::<T>().unwrap(), samples, "{}", T::TYPE);

    let (mut planes, memory) = writer(shape);
    planes.push(&Rows::bands(&samples)).unwrap();
    planes.finish().unwrap();
    assert_eq!(open(&memory).read(&ReadOptions::default()).unwrap().to_vec::<T>().unwrap(), samples, "{}", T::TYPE);
}

#[test]
fn every_type_comes_back_as_it_went_in() {
    round_trip(|at| at as u8);
    round_trip(|at| at as i8 - 20);
    round_trip(|at| at as u16 * 1600);
    round_trip(|at| at as i16 * 800 - 16_000);
    round_trip(|at| at as u32 * 100_000_000);
    round_trip(|at| at as i32 - 20);
    round_trip(|at| u64::MAX - at as u64);
    round_trip(|at| i64::MIN + at as i64);
    round_trip(|at| at as f32 / 3.0);
    round_trip(|at| at as f64 / 3.0);
    round_trip(|at| [at as i16, -(at as i16)]);
    round_trip(|at| [at as i32, -(at as i32)]);
    round_trip(|at| [at as f32 / 3.0, -1.0]);
    round_trip(|at| [at as f64 / 3.0, -1.0]);
}

#[test]
fn rows_of_another_type_are_refused_though_their_bytes_would_fit() {
    let shape = Shape { width: 4, height: 2, bands: 1, sample: SampleType::F32 };
    let (mut writer, memory) = writer(shape);
    let message = usage(writer.push(&Rows::pixels(&[0_u32; 4])));
    assert!(message.contains("uint32 samples where the file has float32"), "{message}");
    let message = usage(writer.push(&Rows::bands(&[0_u8; 16])));
    assert!(message.contains("Rows::from_bytes"), "{message}");
    assert!(usage(writer.push_tile(&[0_i32; 8])).contains("push_tile_bytes"));
    // A refusal leaves the writer as it was.
    writer.push(&Rows::from_bytes(&[0; 16], Interleave::Band)).unwrap();
    writer.push(&Rows::pixels(&[1_f32; 4])).unwrap();
    writer.finish().unwrap();
    let raster = open(&memory).read(&ReadOptions::default()).unwrap();
    assert_eq!(raster.to_vec::<f32>().unwrap(), [0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0]);
}

#[test]
fn rows_that_are_not_whole_are_counted_in_samples() {
    let (mut writer, _memory) = writer(Shape { width: 4, height: 2, bands: 3, sample: SampleType::U16 });
    let message = usage(writer.push(&Rows::pixels(&[0_u16; 13])));
    assert!(message.contains("13 samples") && message.contains("4 columns of 3 bands"), "{message}");
}

#[test]
fn samples_of_another_type_are_not_viewed() {
    let (mut writer, memory) = writer(Shape { width: 4, height: 1, bands: 1, sample: SampleType::U16 });
    writer.push(&Rows::pixels(&[1_u16, 2, 3, 4])).unwrap();
    writer.finish().unwrap();
    let raster = open(&memory).read(&ReadOptions::default()).unwrap();
    for error in [raster.samples::<i16>().unwrap_err(), raster.to_vec::<f32>().unwrap_err()] {
        assert!(matches!(error.kind(), ErrorKind::Usage(_)), "{error}");
        assert!(error.to_string().contains("the samples are uint16, not"), "{error}");
        assert!(error.to_string().contains("ask for u16"), "{error}");
    }
}

#[test]
fn premultiplied_alpha_stays_premultiplied_in_another_type() {
    let (sink, memory) = MemorySink::new("typed.tif");
    let shape = Shape { width: 2, height: 1, bands: 4, sample: SampleType::U8 };
    let options = WriteOptions::default().with_photometric(Photometric::Rgb).with_alpha(Alpha::Premultiplied);
    let mut writer = Writer::to_sink(Box::new(sink), shape, &Metadata::default(), &options).unwrap();
    writer.push(&Rows::pixels(&[10_u8, 20, 30, 40, 50, 60, 70, 80])).unwrap();
    writer.finish().unwrap();
    let source = open(&memory);

    let converted = |convert: &ConvertOptions| {
        let (sink, memory) = MemorySink::new("typed.tif");
        source.convert_to(|| Ok(Box::new(sink) as Box<dyn Sink>), convert, &WriteOptions::default()).unwrap();
        open(&memory).main().layout().extra_samples.clone()
    };
    assert_eq!(converted(&ConvertOptions::default()), [1]);
    assert_eq!(converted(&ConvertOptions::default().with_sample(SampleType::U16)), [1]);
    // Colours that move along a line are no product any more.
    let scale = Scale { from: (0.0, 255.0), to: (1.0, 1000.0) };
    assert_eq!(converted(&ConvertOptions::default().with_sample(SampleType::U16).with_scale(scale)), [2]);
}
