//! Memory of Python objects, borrowed by the buffer protocol.

use pyo3::{buffer::PyUntypedBuffer, exceptions::PyBufferError, prelude::*};

/// Contiguous memory of a Python object, borrowed until this is dropped.
pub struct BorrowedBuffer {
    buffer: PyUntypedBuffer,
    address: *mut u8,
    len: usize,
}

// SAFETY: the address stays valid while `buffer` is held: the buffer protocol forbids its owner to resize it until then.
unsafe impl Send for BorrowedBuffer {}
// SAFETY: as above; shared use only copies out of it.
unsafe impl Sync for BorrowedBuffer {}

impl std::fmt::Debug for BorrowedBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BorrowedBuffer").field("len", &self.len).finish_non_exhaustive()
    }
}

impl BorrowedBuffer {
    /// Borrows a whole buffer, which must be contiguous in C order.
    pub fn of(buffer: PyUntypedBuffer) -> PyResult<Self> {
        if !buffer.is_c_contiguous() {
            return Err(PyBufferError::new_err("the array is not contiguous; numpy.ascontiguousarray makes it so"));
        }
        let (address, len) = (buffer.buf_ptr().cast(), buffer.len_bytes());
        Ok(Self { buffer, address, len })
    }

    /// Borrows a whole buffer for writing.
    pub fn writable(buffer: PyUntypedBuffer) -> PyResult<Self> {
        if buffer.readonly() {
            return Err(PyBufferError::new_err("the array is read-only"));
        }
        Self::of(buffer)
    }

    /// Size in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Lengths of the axes.
    pub fn shape(&self) -> &[usize] {
        self.buffer.shape()
    }

    /// Size of an element in bytes.
    pub fn item_size(&self) -> usize {
        self.buffer.item_size()
    }

    /// Type of an element, as a format of Python's `struct` module.
    pub fn format(&self) -> String {
        self.buffer.format().to_string_lossy().into_owned()
    }

    /// Fills `target` with the bytes from `offset` on. Returns `false` where the memory has fewer.
    pub fn copy_to(&self, offset: u64, target: &mut [u8]) -> bool {
        let end = offset.checked_add(target.len() as u64);
        if end.is_none_or(|end| end > self.len as u64) || target.is_empty() {
            return target.is_empty();
        }
        // SAFETY: the range was checked, the object keeps the memory while `buffer` is held, and `target` is ours.
        unsafe { std::ptr::copy_nonoverlapping(self.address.add(offset as usize), target.as_mut_ptr(), target.len()) };
        true
    }

    /// Returns the memory for reading. If another thread writes to it meanwhile, samples are mixed, as with NumPy's functions.
    pub fn bytes(&self) -> &[u8] {
        if self.len == 0 {
            return &[];
        }
        // SAFETY: valid for `len` bytes while `buffer` is held.
        unsafe { std::slice::from_raw_parts(self.address, self.len) }
    }

    /// Returns the memory for writing.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        if self.len == 0 || self.buffer.readonly() {
            return &mut [];
        }
        // SAFETY: as above, and the buffer is not read-only.
        unsafe { std::slice::from_raw_parts_mut(self.address, self.len) }
    }
}
