//! Memory of Python's objects, by the buffer protocol.

use pyo3::{buffer::PyUntypedBuffer, exceptions::PyBufferError, prelude::*};

/// Contiguous memory that an object lends for as long as this is there.
pub struct Held {
    buffer: PyUntypedBuffer,
    address: *mut u8,
    len: usize,
}

// SAFETY: the address stays valid while `buffer` is held, and the object that lends it does not resize it meanwhile.
unsafe impl Send for Held {}
// SAFETY: as above; shared use only copies out of it.
unsafe impl Sync for Held {}

impl std::fmt::Debug for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Held").field("len", &self.len).finish_non_exhaustive()
    }
}

impl Held {
    /// The whole of a buffer, which has to be without gaps in C order.
    pub fn of(buffer: PyUntypedBuffer) -> PyResult<Self> {
        if !buffer.is_c_contiguous() {
            return Err(PyBufferError::new_err("the array is not contiguous; numpy.ascontiguousarray makes it so"));
        }
        let (address, len) = (buffer.buf_ptr().cast(), buffer.len_bytes());
        Ok(Self { buffer, address, len })
    }

    /// The same for memory that is to be filled.
    pub fn writable(buffer: PyUntypedBuffer) -> PyResult<Self> {
        if buffer.readonly() {
            return Err(PyBufferError::new_err("the array is read-only"));
        }
        Self::of(buffer)
    }

    /// Bytes of it.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Lengths of its axes.
    pub fn shape(&self) -> &[usize] {
        self.buffer.shape()
    }

    /// Bytes of an element.
    pub fn item_size(&self) -> usize {
        self.buffer.item_size()
    }

    /// What an element is, in the words of Python's `struct`.
    pub fn format(&self) -> String {
        self.buffer.format().to_string_lossy().into_owned()
    }

    /// Copies bytes from `offset` on; `false` where they are not all there.
    pub fn copy_to(&self, offset: u64, target: &mut [u8]) -> bool {
        let end = offset.checked_add(target.len() as u64);
        if end.is_none_or(|end| end > self.len as u64) || target.is_empty() {
            return target.is_empty();
        }
        // SAFETY: the range was checked, the object keeps the memory while `buffer` is held, and `target` is ours.
        unsafe { std::ptr::copy_nonoverlapping(self.address.add(offset as usize), target.as_mut_ptr(), target.len()) };
        true
    }

    /// The memory as bytes to read. Whoever else writes to it meanwhile gets mixed samples, as NumPy's own functions give.
    pub fn bytes(&self) -> &[u8] {
        if self.len == 0 {
            return &[];
        }
        // SAFETY: valid for `len` bytes while `buffer` is held.
        unsafe { std::slice::from_raw_parts(self.address, self.len) }
    }

    /// The memory as bytes to fill.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        if self.len == 0 || self.buffer.readonly() {
            return &mut [];
        }
        // SAFETY: as above, and the object said that it may be written to.
        unsafe { std::slice::from_raw_parts_mut(self.address, self.len) }
    }
}
