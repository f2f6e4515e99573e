//! Samples of ours in host memory, lent to Python by the buffer protocol.

use std::{
    ffi::{CStr, c_int, c_void},
    ptr,
};

use pyo3::{exceptions::PyBufferError, ffi, prelude::*};
use swath::{Buffer, Raster, SampleType};

/// Who the memory belongs to. Never looked at again: everybody uses the address.
#[derive(Debug)]
enum Owner {
    Raster(#[allow(dead_code)] Raster),
    Buffer(#[allow(dead_code)] Buffer),
}

/// Host memory that Python may read and write for as long as somebody keeps it.
#[derive(Debug)]
pub struct HostMemory {
    _owner: Owner,
    address: *mut u8,
    len: usize,
}

// SAFETY: the memory is the owner's, which is kept here and does not move; whoever gets the address shares it as NumPy
// arrays are shared between threads.
unsafe impl Send for HostMemory {}
// SAFETY: as above.
unsafe impl Sync for HostMemory {}

impl HostMemory {
    /// Takes a raster's memory.
    pub fn new(mut raster: Raster) -> Self {
        let bytes = raster.bytes_mut();
        let (address, len) = (bytes.as_mut_ptr(), bytes.len());
        Self { _owner: Owner::Raster(raster), address, len }
    }

    /// `len` bytes that `fill` fills; `None` where there is no memory.
    pub fn filled<E>(len: usize, fill: impl FnOnce(&mut [u8]) -> Result<(), E>) -> Result<Option<Self>, E> {
        let Some(mut buffer) = Buffer::zeroed(len) else { return Ok(None) };
        let bytes = buffer.bytes_mut();
        fill(bytes)?;
        let address = bytes.as_mut_ptr();
        Ok(Some(Self { _owner: Owner::Buffer(buffer), address, len }))
    }

    /// Where it is.
    pub fn address(&self) -> u64 {
        self.address as u64
    }

    /// Bytes of it.
    pub fn len(&self) -> usize {
        self.len
    }

    /// The bytes, before anybody was lent them.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the memory is kept here, so many bytes long.
        unsafe { std::slice::from_raw_parts(self.address, self.len) }
    }
}

/// What an element is, in the words of Python's `struct`.
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
        // Complex integers and halves never get here: `convert` makes floats of them.
        _ => c"B",
    }
}

/// Whether elements of `size` bytes follow each other without gaps, along these axes from the fastest on.
fn follows<'a>(axes: impl Iterator<Item = (&'a isize, &'a isize)> + Clone, size: isize) -> bool {
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

/// Fills a view of `memory` with axes of these lengths and steps, which `owner` keeps alive.
///
/// # Safety
/// `view` is the one that Python handed to `__getbuffer__`; `memory`, `shape` and `strides` are kept by `owner` and do not
/// change.
///
/// # Errors
/// When `flags` ask for an order that the samples do not lie in.
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
    let wants = |flag: c_int| flags & flag == flag;
    // SAFETY: Python's own view, not null.
    let view = unsafe { &mut *view };
    // What a view that was refused has to hold.
    view.obj = ptr::null_mut();
    let size = sample.size() as isize;
    let in_c_order = || follows(shape.iter().zip(strides).rev(), size);
    let in_fortran_order = || follows(shape.iter().zip(strides), size);
    // Whoever takes no strides takes rows of rows without gaps.
    let refused = if wants(ffi::PyBUF_C_CONTIGUOUS) || !wants(ffi::PyBUF_STRIDES) {
        (!in_c_order()).then_some("C order")
    } else if wants(ffi::PyBUF_F_CONTIGUOUS) {
        (!in_fortran_order()).then_some("Fortran order")
    } else if wants(ffi::PyBUF_ANY_CONTIGUOUS) {
        (!in_c_order() && !in_fortran_order()).then_some("one piece")
    } else {
        None
    };
    if let Some(order) = refused {
        let detail = format!("the samples do not lie in {order}, which this reader of buffers wants: copy the array");
        return Err(PyBufferError::new_err(detail));
    }
    view.buf = memory.address.cast::<c_void>();
    view.len = memory.len as isize;
    view.readonly = 0;
    view.itemsize = size;
    view.format = if wants(ffi::PyBUF_FORMAT) { format_of(sample).as_ptr().cast_mut() } else { ptr::null_mut() };
    // Whoever does not ask for axes sees bytes after bytes.
    view.ndim = if wants(ffi::PyBUF_ND) { shape.len() as c_int } else { 1 };
    view.shape = if wants(ffi::PyBUF_ND) { shape.as_ptr().cast_mut() } else { ptr::null_mut() };
    view.strides = if wants(ffi::PyBUF_STRIDES) { strides.as_ptr().cast_mut() } else { ptr::null_mut() };
    view.suboffsets = ptr::null_mut();
    view.internal = ptr::null_mut();
    view.obj = owner.into_ptr();
    Ok(())
}
