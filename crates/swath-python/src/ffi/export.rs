//! Samples of the engine in host memory, lent to Python by the buffer protocol.

use std::{
    ffi::{CStr, c_int, c_void},
    ptr,
};

use pyo3::{exceptions::PyBufferError, ffi, prelude::*};
use swath::{Raster, SampleType, read::SampleBuffer};

/// The owner of the memory. It is only kept alive: all access goes through the address.
#[derive(Debug)]
enum Owner {
    Raster(#[allow(dead_code)] Raster),
    Buffer(#[allow(dead_code)] SampleBuffer),
}

/// Host memory that Python may read and write while any reference to it exists.
#[derive(Debug)]
pub struct HostMemory {
    _owner: Owner,
    address: *mut u8,
    len: usize,
}

// SAFETY: the owner is kept here and does not move its memory; threads share that memory as they share NumPy arrays.
unsafe impl Send for HostMemory {}
// SAFETY: as above.
unsafe impl Sync for HostMemory {}

impl HostMemory {
    /// Takes over the memory of a raster.
    pub fn new(mut raster: Raster) -> Self {
        let bytes = raster.bytes_mut();
        let (address, len) = (bytes.as_mut_ptr(), bytes.len());
        Self { _owner: Owner::Raster(raster), address, len }
    }

    /// Returns `len` bytes that `fill` overwrites; `None` where they cannot be allocated.
    pub fn filled<E>(len: usize, fill: impl FnOnce(&mut [u8]) -> Result<(), E>) -> Result<Option<Self>, E> {
        let Some(mut buffer) = SampleBuffer::new(len) else { return Ok(None) };
        let bytes = buffer.bytes_mut();
        fill(bytes)?;
        let address = bytes.as_mut_ptr();
        Ok(Some(Self { _owner: Owner::Buffer(buffer), address, len }))
    }

    /// Address of the first byte.
    pub fn address(&self) -> u64 {
        self.address as u64
    }

    /// Size in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns the bytes; only before Python gets the memory.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the owner keeps `len` bytes at this address.
        unsafe { std::slice::from_raw_parts(self.address, self.len) }
    }
}

/// Returns the format of a sample for Python's `struct` module.
pub fn format_of(sample: SampleType) -> &'static CStr {
    match sample {
        SampleType::U8 => c"B",
        SampleType::I8 => c"b",
        SampleType::U16 => c"H",
        SampleType::I16 => c"h",
        SampleType::U32 => c"I",
        SampleType::I32 => c"i",
        SampleType::U64 => c"Q",
        SampleType::I64 => c"q",
        SampleType::F16 => c"e",
        SampleType::F32 => c"f",
        SampleType::F64 => c"d",
        SampleType::CF32 => c"Zf",
        SampleType::CF64 => c"Zd",
        // Complex integers and half floats never get here: `complex_samples` converts them.
        _ => c"B",
    }
}

/// Whether elements of `size` bytes are contiguous along these axes. The fastest axis comes first.
fn is_contiguous<'a>(axes: impl Iterator<Item = (&'a isize, &'a isize)> + Clone, size: isize) -> bool {
    if axes.clone().any(|(len, _)| *len == 0) {
        return true;
    }
    let mut expected = size;
    axes.into_iter().all(|(len, step)| {
        let fits = *len == 1 || *step == expected;
        expected = expected.saturating_mul(*len);
        fits
    })
}

/// Fills a view of `memory` with this shape and these strides; `owner` keeps the memory alive.
///
/// # Safety
/// `view` is the one that Python passed to `__getbuffer__`; `owner` keeps `memory`, `shape` and `strides` and never changes
/// them.
///
/// # Errors
/// When `flags` ask for an order that the samples do not have.
pub unsafe fn fill_view(
    view: *mut ffi::Py_buffer,
    flags: c_int,
    owner: Bound<'_, PyAny>,
    memory: &HostMemory,
    sample: SampleType,
    shape: &[isize],
    strides: &[isize],
) -> PyResult<()> {
    if view.is_null() {
        return Err(PyBufferError::new_err("there is no view to fill"));
    }
    let requires = |flag: c_int| flags & flag == flag;
    // SAFETY: Python's own view, not null.
    let view = unsafe { &mut *view };
    // The buffer protocol asks for a null owner in a view that is refused.
    view.obj = ptr::null_mut();
    let size = sample.size() as isize;
    let in_c_order = || is_contiguous(shape.iter().zip(strides).rev(), size);
    let in_fortran_order = || is_contiguous(shape.iter().zip(strides), size);
    // A consumer that ignores strides assumes C order.
    let refused = if requires(ffi::PyBUF_C_CONTIGUOUS) || !requires(ffi::PyBUF_STRIDES) {
        (!in_c_order()).then_some("C order")
    } else if requires(ffi::PyBUF_F_CONTIGUOUS) {
        (!in_fortran_order()).then_some("Fortran order")
    } else if requires(ffi::PyBUF_ANY_CONTIGUOUS) {
        (!in_c_order() && !in_fortran_order()).then_some("contiguous memory")
    } else {
        None
    };
    if let Some(order) = refused {
        let detail = format!("the samples are not in {order}, which this consumer of the buffer needs: copy the array");
        return Err(PyBufferError::new_err(detail));
    }
    view.buf = memory.address.cast::<c_void>();
    view.len = memory.len as isize;
    view.readonly = 0;
    view.itemsize = size;
    view.format = if requires(ffi::PyBUF_FORMAT) { format_of(sample).as_ptr().cast_mut() } else { ptr::null_mut() };
    // A consumer that does not ask for the shape sees one axis of bytes.
    view.ndim = if requires(ffi::PyBUF_ND) { shape.len() as c_int } else { 1 };
    view.shape = if requires(ffi::PyBUF_ND) { shape.as_ptr().cast_mut() } else { ptr::null_mut() };
    view.strides = if requires(ffi::PyBUF_STRIDES) { strides.as_ptr().cast_mut() } else { ptr::null_mut() };
    view.suboffsets = ptr::null_mut();
    view.internal = ptr::null_mut();
    view.obj = owner.into_ptr();
    Ok(())
}
