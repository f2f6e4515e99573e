//! Checks the memory that a caller passes as `out`, which a read fills.

use pyo3::{buffer::PyUntypedBuffer, prelude::*};
use swath::SampleType;

use crate::{complex_samples, errors, ffi::buffer::BorrowedBuffer};

/// Returns the caller's memory if it has the size and type of the result.
pub fn borrow(out: &Bound<'_, PyAny>, len: u64, sample: SampleType) -> PyResult<BorrowedBuffer> {
    let py = out.py();
    let buffer = BorrowedBuffer::writable(PyUntypedBuffer::get(out)?)?;
    let size = sample.size();
    if buffer.len() as u64 != len || buffer.item_size() != size {
        let detail = format!(
            "out has {} bytes in samples of {}, the result has {len} in samples of {size} ({sample})",
            buffer.len(),
            buffer.item_size()
        );
        return Err(errors::usage(py, &detail));
    }
    if complex_samples::numpy_type(sample) != sample {
        let detail = format!("NumPy has no type for samples of {sample}: read without out=");
        return Err(errors::usage(py, &detail));
    }
    if !is_format(&buffer.format(), sample) {
        let detail = format!("out has samples of type {:?}, the file has {sample}", buffer.format());
        return Err(errors::usage(py, &detail));
    }
    Ok(buffer)
}

/// Whether a format of Python's `struct` module is this sample type in native byte order.
fn is_format(format: &str, sample: SampleType) -> bool {
    let native = if cfg!(target_endian = "little") { '<' } else { '>' };
    let plain = format.trim_start_matches(['@', '=', native]);
    let own = crate::ffi::export::format_of(sample).to_string_lossy();
    // C's long has eight bytes on some machines and four on others; the caller has compared the sizes.
    let same = |a: &str, b: &str| a == b || (matches!(a, "l" | "q" | "i") && matches!(b, "i" | "q"));
    let unsigned = |a: &str, b: &str| matches!(a, "L" | "Q" | "I") && matches!(b, "I" | "Q");
    same(plain, &own) || unsigned(plain, &own) || (plain == "?" && sample == SampleType::U8)
}
