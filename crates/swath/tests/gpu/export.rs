//! Samples for other libraries: the CUDA array interface and DLPack.
#![allow(unsafe_code)]

use std::{ffi::c_void, sync::Arc};

use swath::{
    Compression, Interleave, Mode, ReadOptions, SampleType, Shape, WriteOptions,
    gpu::{DeviceRaster, Gpu, GpuOptions, dlpack},
};

use crate::{
    cases::{self, Rng},
    driver,
};

/// `DLTensor` as in dlpack.h, declared independently of the engine.
#[derive(Clone, Copy)]
#[repr(C)]
struct Tensor {
    data: *mut c_void,
    device: [i32; 2],
    axes: i32,
    dtype: (u8, u8, u16),
    shape: *const i64,
    strides: *const i64,
    offset: u64,
}

/// `DLManagedTensorVersioned`, as above.
#[derive(Clone, Copy)]
#[repr(C)]
struct Versioned {
    version: [u32; 2],
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut c_void)>,
    flags: u64,
    tensor: Tensor,
}

/// The fields of a tensor that can be compared.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    address: u64,
    device: [i32; 2],
    dtype: (u8, u8, u16),
    shape: Vec<i64>,
    strides: Vec<i64>,
    offset: u64,
}

impl Tensor {
    fn seen(&self) -> Seen {
        let list = |axes: *const i64| {
            // SAFETY: a live tensor has as many lengths and strides as axes.
            unsafe { std::slice::from_raw_parts(axes, self.axes as usize) }.to_vec()
        };
        Seen {
            address: self.data as u64,
            device: self.device,
            dtype: self.dtype,
            shape: list(self.shape),
            strides: list(self.strides),
            offset: self.offset,
        }
    }
}

fn raster(gpu: &Arc<Gpu>, sample: SampleType, interleave: Interleave) -> DeviceRaster {
    let shape = Shape { width: 40, height: 30, bands: 3, sample };
    let options = WriteOptions::default().with_compression(Compression::Deflate);
    let data = cases::samples(shape, &mut Rng::new(2));
    let file = cases::write(shape, &data, &cases::nodata_of(""), &options).unwrap();
    let options = ReadOptions::default()
        .with_device(Mode::Cuda)
        .with_gpu(gpu.clone())
        .with_interleave(interleave)
        .with_threads(1);
    cases::open(&file).unwrap().read_device(&options).unwrap()
}

fn numpy_name(sample: SampleType) -> Option<&'static str> {
    Some(match sample {
        SampleType::U8 => "|u1",
        SampleType::I8 => "|i1",
        SampleType::U16 => "<u2",
        SampleType::I16 => "<i2",
        SampleType::U32 => "<u4",
        SampleType::I32 => "<i4",
        SampleType::U64 => "<u8",
        SampleType::I64 => "<i8",
        SampleType::F16 => "<f2",
        SampleType::F32 => "<f4",
        SampleType::F64 => "<f8",
        SampleType::CF32 => "<c8",
        SampleType::CF64 => "<c16",
        // NumPy has neither pairs of integers nor pairs of half floats.
        _ => return None,
    })
}

#[test]
fn arrays_are_described_as_others_expect() {
    let Some(fake) = driver::fake() else { return };
    fake.with("", |gpu| {
        for sample in SampleType::ALL {
            for interleave in [Interleave::Band, Interleave::Pixel] {
                let raster = raster(gpu, sample, interleave);
                let size = sample.size();
                let (shape, strides) = match interleave {
                    Interleave::Band => ([3, 30, 40], [30 * 40 * size, 40 * size, size]),
                    Interleave::Pixel => ([30, 40, 3], [40 * 3 * size, 3 * size, size]),
                };
                assert_eq!((raster.shape(), raster.strides()), (shape, strides), "{sample}");
                let Some(name) = numpy_name(sample) else {
                    assert!(raster.cuda_array().is_err() && sample.is_complex(), "{sample}");
                    continue;
                };
                let array = raster.cuda_array().unwrap();
                assert_eq!((array.shape, array.strides), (shape, strides), "{sample}");
                assert_eq!(array.typestr, name, "{sample}");
                assert_ne!(array.address, 0);
                let (code, bits) = (name.as_bytes()[1], (size * 8) as u8);
                let code = [b'i', b'u', b'f', 0, 0, b'c'].iter().position(|known| *known == code).unwrap() as u8;
                let tensor = raster.dlpack().unwrap();
                // SAFETY: a managed tensor begins with its tensor, and it is alive.
                let seen = unsafe { *tensor.cast::<Tensor>() }.seen();
                let expected = Seen {
                    address: array.address,
                    device: [2, 0],
                    dtype: (code, bits, 1),
                    shape: shape.map(|len| len as i64).to_vec(),
                    strides: strides.map(|stride| (stride / size) as i64).to_vec(),
                    offset: 0,
                };
                assert_eq!(seen, expected, "{sample}");
                let versioned = raster.dlpack_versioned().unwrap();
                // SAFETY: it is alive.
                let copy = unsafe { *versioned.cast::<Versioned>() };
                assert_eq!((copy.version[0], copy.flags), (1, 0));
                assert_eq!(copy.tensor.seen(), expected, "{sample}");
                // SAFETY: each came from its export and is released once; the second by the deleter it carries.
                unsafe {
                    dlpack::release(tensor);
                    (copy.deleter.unwrap())(versioned.cast());
                }
            }
        }
    });
}

#[test]
fn an_exported_buffer_returns_to_the_pool_when_released() {
    let Some(fake) = driver::fake() else { return };
    fake.with("async=1 seed=1", |gpu| {
        let read = || raster(gpu, SampleType::F32, Interleave::Band);
        let expected = read().to_host().unwrap();
        let first = read();
        let tensor = first.dlpack().unwrap();
        drop(first);
        // The pool has everything except that buffer.
        let second = read();
        assert_eq!(second.report().counters.allocations, 1);
        drop(second);
        // SAFETY: it came from `dlpack` and is released once.
        unsafe { dlpack::release(tensor) };
        let (third, fourth) = (read(), read());
        assert!(third.to_host().unwrap().bytes() == expected.bytes());
        assert!(fourth.to_host().unwrap().bytes() == expected.bytes());
        let counters = [third.report().counters, fourth.report().counters];
        // The other library may have left work on the buffer, so the engine waits for it.
        assert_eq!(counters.iter().map(|counters| counters.synchronisations).sum::<u64>(), 3, "{counters:?}");
        // Both hold a result at once, so one more set of buffers may be needed, but not the exported one.
        assert!(third.report().counters.allocations == 0, "{counters:?}");
    });
}

#[test]
fn a_foreign_context_is_used_and_not_destroyed() {
    let Some(fake) = driver::fake() else { return };
    fake.with("async=1 seed=3", |gpu| {
        let expected = raster(gpu, SampleType::I16, Interleave::Pixel).to_host().unwrap();
        for _ in 0..2 {
            let options = GpuOptions::default().with_driver(driver::path(""));
            // SAFETY: `gpu` keeps the context alive.
            let borrowed = unsafe { Gpu::from_context(gpu.context(), &options) }.unwrap();
            assert_eq!(borrowed.facts(), gpu.facts());
            let read = raster(&borrowed, SampleType::I16, Interleave::Pixel).to_host().unwrap();
            assert!(read.bytes() == expected.bytes());
        }
        let read = raster(gpu, SampleType::I16, Interleave::Pixel).to_host().unwrap();
        assert!(read.bytes() == expected.bytes());
    });
}

#[test]
fn exports_name_the_second_device() {
    let Some(fake) = driver::fake() else { return };
    fake.script("devices=2");
    let gpu = Gpu::open(&GpuOptions::default().with_driver(driver::path("")).with_ordinal(1)).unwrap();
    let raster = raster(&gpu, SampleType::U8, Interleave::Band);
    let tensor = raster.dlpack().unwrap();
    // SAFETY: a managed tensor begins with its tensor, and it is alive.
    assert_eq!(unsafe { *tensor.cast::<Tensor>() }.device, [2, 1]);
    // SAFETY: it came from `dlpack` and is released once.
    unsafe { dlpack::release(tensor) };
    drop((raster, gpu));
    fake.expect_nothing_left("the second device");
}

#[test]
fn rejects_tensors_that_contradict_themselves() {
    use swath::gpu::{Axes, ForeignArray, dlpack::ManagedTensor};
    /// `DLManagedTensor`.
    #[repr(C)]
    struct Managed {
        tensor: Tensor,
        context: [*mut c_void; 2],
    }
    let (lengths, negative, empty) = ([2_i64, 3, 4], [2_i64, -3, 4], [2_i64, 0, 4]);
    let good = Tensor {
        data: std::ptr::without_provenance_mut(0x1000),
        device: [2, 0],
        axes: 3,
        dtype: (1, 8, 1),
        shape: lengths.as_ptr(),
        strides: std::ptr::null(),
        offset: 0,
    };
    let describe = |tensor: Tensor| {
        let managed = Managed { tensor, context: [std::ptr::null_mut(); 2] };
        // SAFETY: the structure of the specification; the lists are as long as the number of axes wherever it is 2 or 3.
        let array = unsafe { ForeignArray::of_dlpack(&*(&raw const managed).cast::<ManagedTensor>(), Axes::BandFirst) };
        array.map(|array| array.shape).map_err(|error| error.to_string())
    };
    let nowhere = std::ptr::null_mut();
    assert_eq!(describe(good), Ok([3, 4, 2]));
    assert_eq!(describe(Tensor { data: nowhere, shape: empty.as_ptr(), ..good }), Ok([0, 4, 2]));
    // No list is this long, and none may be read.
    for (tensor, message) in [
        (Tensor { axes: i32::MAX, shape: std::ptr::without_provenance(8), ..good }, "an array of 2147483647 axes"),
        (Tensor { axes: -1, ..good }, "an array of -1 axes"),
        (Tensor { shape: std::ptr::null(), ..good }, "axes of the lengths []"),
        (Tensor { shape: negative.as_ptr(), ..good }, "axes of the lengths [2, -3, 4]"),
        (Tensor { data: nowhere, ..good }, "no memory"),
        (Tensor { offset: u64::MAX, ..good }, "no memory"),
        (Tensor { dtype: (1, 0, 1), ..good }, "samples of 0 bits"),
        (Tensor { dtype: (1, 8, 2), ..good }, "in vectors of 2"),
        (Tensor { device: [1, 0], ..good }, "not on a CUDA device"),
    ] {
        let error = describe(tensor).unwrap_err();
        assert!(error.contains(message), "{error}");
    }
}

#[test]
fn foreign_arrays_are_written_in_any_memory_order() {
    use swath::{
        Metadata, Writer,
        gpu::{Axes, DeviceSamples, ForeignArray},
    };
    let Some(fake) = driver::fake() else { return };
    fake.with("async=1 seed=9", |gpu| {
        let shape = Shape { width: 90, height: 70, bands: 3, sample: SampleType::I16 };
        let samples = cases::samples(shape, &mut Rng::new(3));
        let plain = WriteOptions::default().with_compression(Compression::None);
        let file = cases::open(&cases::write(shape, &samples, &Metadata::default(), &plain).unwrap()).unwrap();
        let write = |samples: &DeviceSamples<'_>, shape: Shape| {
            let (sink, memory) = swath::io::MemorySink::new("memory");
            let options = WriteOptions::default().with_device(Mode::Cuda).with_gpu(gpu.clone());
            let mut writer = Writer::to_sink(Box::new(sink), shape, &Metadata::default(), &options).unwrap();
            writer.push_device(samples).unwrap();
            writer.finish().unwrap();
            cases::open(&memory.take().unwrap().into()).unwrap().read(&ReadOptions::default()).unwrap()
        };
        for (interleave, axes) in [(Interleave::Band, Axes::BandFirst), (Interleave::Pixel, Axes::BandLast)] {
            let options = ReadOptions::default().with_device(Mode::Cuda).with_gpu(gpu.clone());
            let raster = file.read_device(&options.with_interleave(interleave)).unwrap();
            // SAFETY: the tensor is ours, and deleted below, after it was written.
            let tensor = unsafe { &mut *raster.dlpack().unwrap() };
            // SAFETY: as above.
            let array = unsafe { ForeignArray::of_dlpack(tensor, axes) }.unwrap();
            let read = write(&DeviceSamples::of_array(array.clone(), SampleType::I16).unwrap(), shape);
            assert!(read.bytes() == samples, "{interleave:?}");
            assert!(DeviceSamples::of_array(array, SampleType::U16).is_err(), "another type");
            // SAFETY: released once.
            unsafe { dlpack::release(tensor) };
            // SAFETY: the same in the new form.
            let tensor = unsafe { &mut *raster.dlpack_versioned().unwrap() };
            // SAFETY: as above.
            let array = unsafe { ForeignArray::of_dlpack_versioned(tensor, axes) }.unwrap();
            let read = write(&DeviceSamples::of_array(array, SampleType::I16).unwrap(), shape);
            assert!(read.bytes() == samples, "{interleave:?}");
            // SAFETY: a tensor of that form.
            let deleter = unsafe { std::ptr::from_mut(tensor).cast::<Versioned>().read() }.deleter.unwrap();
            // SAFETY: called once.
            unsafe { deleter(std::ptr::from_mut(tensor).cast()) };
            // Every second row from the bottom up, by the CUDA array interface, after the default stream.
            let array = raster.cuda_array().unwrap();
            let strides = array.strides.map(|stride| stride as i64);
            let (rows, down) = match axes {
                Axes::BandFirst => (1, strides[1]),
                Axes::BandLast => (0, strides[0]),
            };
            let mut turned = (array.shape, strides);
            turned.0[rows] = 35;
            turned.1[rows] = -2 * down;
            let last = array.address + 69 * down as u64;
            // SAFETY: these rows are all in the raster, which outlives the write; null is the default stream.
            let some = unsafe {
                ForeignArray::of_cuda_array(last, &turned.0, Some(&turned.1), 2, axes)
                    .unwrap()
                    .after(std::ptr::null_mut())
            };
            let read = write(&DeviceSamples::of_array(some, SampleType::I16).unwrap(), Shape { height: 35, ..shape });
            let row = 90 * 2;
            for (number, found) in read.bytes().chunks_exact(row).enumerate() {
                let (band, y) = (number / 35, 69 - 2 * (number % 35));
                assert!(found == &samples[(band * 70 + y) * row..(band * 70 + y + 1) * row], "band {band} row {y}");
            }
        }
    });
}
