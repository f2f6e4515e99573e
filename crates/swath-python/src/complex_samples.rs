//! Converts complex integers and half floats, which NumPy has no type for, to complex floats, as rasterio does.

use pyo3::prelude::*;
use swath::{Raster, SampleType};

use crate::{errors, ffi::export::HostMemory};

/// Returns the type of the samples that Python gets for a type in the file.
pub fn numpy_type(sample: SampleType) -> SampleType {
    match sample {
        SampleType::CI16 | SampleType::CF16 => SampleType::CF32,
        SampleType::CI32 => SampleType::CF64,
        other => other,
    }
}

/// Returns the raster's memory, converted where NumPy has no type for its samples.
pub fn host(py: Python<'_>, raster: Raster) -> PyResult<(HostMemory, SampleType)> {
    let (from, to) = (raster.sample(), numpy_type(raster.sample()));
    if from == to {
        return Ok((HostMemory::new(raster), to));
    }
    let len = raster.bytes().len() / from.size() * to.size();
    let memory = py.detach(|| {
        HostMemory::filled(len, |out| {
            widen(from, raster.bytes(), out);
            Ok::<(), PyErr>(())
        })
    })?;
    let memory = memory.ok_or_else(|| errors::allocation(py, len as u64))?;
    Ok((memory, to))
}

/// Converts the real and imaginary parts, one after the other.
pub fn widen(from: SampleType, bytes: &[u8], out: &mut [u8]) {
    match from {
        SampleType::CI16 => each::<2, 4>(bytes, out, |raw| f32::from(i16::from_ne_bytes(raw)).to_ne_bytes()),
        SampleType::CI32 => each::<4, 8>(bytes, out, |raw| f64::from(i32::from_ne_bytes(raw)).to_ne_bytes()),
        _ => each::<2, 4>(bytes, out, |raw| {
            swath::statistics::samples::half_to_float(u16::from_ne_bytes(raw)).to_ne_bytes()
        }),
    }
}

fn each<const FROM: usize, const TO: usize>(bytes: &[u8], out: &mut [u8], value: impl Fn([u8; FROM]) -> [u8; TO]) {
    for (raw, place) in bytes.as_chunks::<FROM>().0.iter().zip(out.as_chunks_mut::<TO>().0) {
        *place = value(*raw);
    }
}
