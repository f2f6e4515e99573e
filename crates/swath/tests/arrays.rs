//! Arrays of ndarray in and out.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::Arc;

use ndarray::{Array3, Axis, s};
use swath::{
    Compression, ErrorKind, Interleave, Metadata, OpenOptions, ReadOptions, Rows, Sample, Shape, WriteOptions, Writer,
    io::{MemorySink, MemorySource},
};

/// A file of `array`, whose axes lie as `interleave` says.
fn written<T: Sample>(array: &Array3<T>, interleave: Interleave) -> Vec<u8> {
    let (first, second, third) = array.dim();
    let (bands, height, width) = match interleave {
        Interleave::Band => (first, second, third),
        Interleave::Pixel => (third, first, second),
    };
    let shape = Shape { width: width as u32, height: height as u32, bands: bands as u16, sample: T::TYPE };
    let (sink, memory) = MemorySink::new("array.tif");
    let options = WriteOptions::default().with_compression(Compression::Deflate);
    let mut writer = Writer::to_sink(Box::new(sink), shape, &Metadata::default(), &options).unwrap();
    writer.push(&Rows::from_ndarray(array.view(), interleave).unwrap()).unwrap();
    writer.finish().unwrap();
    memory.take().unwrap()
}

fn read<T: Sample>(file: Vec<u8>, interleave: Interleave) -> Array3<T> {
    let dataset = OpenOptions::default().open_source(Arc::new(MemorySource::new("array.tif", file))).unwrap();
    dataset.read(&ReadOptions::default().with_interleave(interleave)).unwrap().to_ndarray().unwrap()
}

#[test]
fn arrays_come_back_in_either_order_of_axes() {
    let planes = Array3::from_shape_fn((3, 20, 30), |(band, y, x)| (band * 1000 + y * 30 + x) as f32 / 7.0);
    let file = written(&planes, Interleave::Band);
    assert_eq!(read::<f32>(file.clone(), Interleave::Band), planes);
    // The same samples with the bands last.
    let pixels = planes.view().permuted_axes([1, 2, 0]).as_standard_layout().into_owned();
    assert_eq!(read::<f32>(file.clone(), Interleave::Pixel), pixels);
    assert_eq!(written(&pixels, Interleave::Pixel), file);
}

#[test]
fn complex_samples_are_pairs() {
    let pairs = Array3::from_shape_fn((1, 5, 4), |(_, y, x)| [x as f32, -(y as f32)]);
    assert_eq!(read::<[f32; 2]>(written(&pairs, Interleave::Band), Interleave::Band), pairs);
}

#[test]
fn arrays_that_are_not_laid_out_as_rows_are_refused_with_advice() {
    let array = Array3::<u8>::zeros((2, 20, 30));
    let cut = Rows::from_ndarray(array.slice(s![.., .., ..10]), Interleave::Band).unwrap_err().to_string();
    assert!(cut.contains("as_standard_layout"), "{cut}");
    let turned = Rows::from_ndarray(array.view().reversed_axes(), Interleave::Pixel).unwrap_err();
    assert!(matches!(turned.kind(), ErrorKind::Usage(_)), "{turned}");
}

#[test]
fn arrays_of_another_width_type_or_number_of_bands_are_refused() {
    let shape = Shape { width: 30, height: 20, bands: 2, sample: u16::TYPE };
    let push = |rows: Rows<'_>| {
        let (sink, _memory) = MemorySink::new("array.tif");
        let mut writer =
            Writer::to_sink(Box::new(sink), shape, &Metadata::default(), &WriteOptions::default()).unwrap();
        let error = writer.push(&rows).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Usage(_)), "{error}");
        error.to_string()
    };
    let array = Array3::<u16>::zeros((2, 20, 30));
    // As many samples, but with the axes in another order than the caller says.
    let other = push(Rows::from_ndarray(array.view(), Interleave::Pixel).unwrap());
    assert!(other.contains("30 bands and 20 columns where 2 bands and 30 columns"), "{other}");
    let single = array.index_axis(Axis(0), 0);
    let single = push(Rows::from_ndarray(single.insert_axis(Axis(0)), Interleave::Band).unwrap());
    assert!(single.contains("1 bands"), "{single}");
    let floats = array.mapv(f32::from);
    let floats = push(Rows::from_ndarray(floats.view(), Interleave::Band).unwrap());
    assert!(floats.contains("float32 samples where the file has uint16"), "{floats}");
}
