//! Arrays of CuPy, PyTorch and other libraries in GPU memory, as rows to write.

use std::ffi::c_void;

use pyo3::{prelude::*, types::PyDict};
use swath::{
    SampleType,
    gpu::{Axes, ForeignArray},
};

use super::capsule::Taken;
use crate::errors;

/// CUDA's legacy default stream: its handle, and its number in DLPack and in the CUDA array interface.
const LEGACY: usize = 1;

/// An array of another library, with the objects that keep it alive.
pub struct Foreign {
    pub array: ForeignArray,
    pub sample: Option<SampleType>,
    _tensor: Option<Taken>,
    _object: Py<PyAny>,
}

impl Foreign {
    /// Takes the array by the CUDA array interface where that names a stream to wait for, otherwise by DLPack.
    pub fn of(object: &Bound<'_, PyAny>, axes: Axes) -> PyResult<Self> {
        let py = object.py();
        if let Ok(interface) = object.getattr("__cuda_array_interface__") {
            let interface = interface.cast_into::<PyDict>()?;
            if interface.contains("stream")? || !object.hasattr("__dlpack__")? {
                return Self::of_interface(object, &interface, axes);
            }
        }
        if !object.hasattr("__dlpack__")? {
            return Err(errors::usage(py, "the array has neither __cuda_array_interface__ nor __dlpack__"));
        }
        let options = PyDict::new(py);
        // The producer makes the default stream wait for its work, and the engine waits for the default stream.
        options.set_item("stream", LEGACY)?;
        let tensor = Taken::of(py, &object.call_method("__dlpack__", (), Some(&options))?)?;
        let array = tensor.array(axes).map_err(|error| errors::of(py, &error.into()))?;
        // SAFETY: the legacy default stream always exists.
        let array = unsafe { array.after(LEGACY as *mut c_void) };
        Ok(Self { array, sample: None, _tensor: Some(tensor), _object: object.clone().unbind() })
    }

    fn of_interface(object: &Bound<'_, PyAny>, interface: &Bound<'_, PyDict>, axes: Axes) -> PyResult<Self> {
        let py = object.py();
        let item = |name: &str| -> PyResult<Bound<'_, PyAny>> {
            let found = interface.get_item(name)?;
            found.ok_or_else(|| errors::usage(py, &format!("__cuda_array_interface__ has no {name:?}")))
        };
        let optional = |name: &str| -> PyResult<Option<Bound<'_, PyAny>>> {
            Ok(interface.get_item(name)?.filter(|value| !value.is_none()))
        };
        if optional("mask")?.is_some() {
            return Err(errors::usage(
                py,
                "arrays with a mask of their own cannot be written; fill the masked samples first",
            ));
        }
        let (address, _): (u64, bool) = item("data")?.extract()?;
        let shape: Vec<usize> = item("shape")?.extract()?;
        let strides: Option<Vec<i64>> = optional("strides")?.map(|strides| strides.extract()).transpose()?;
        let typestr: String = item("typestr")?.extract()?;
        let sample = sample_of(&typestr)
            .ok_or_else(|| errors::usage(py, &format!("samples of type {typestr:?} cannot be written")))?;
        let stream = optional("stream")?.map(|stream| stream.extract::<usize>()).transpose()?;
        // SAFETY: the object is held here, so its memory stays valid, with the address and the size that it states.
        let array = unsafe { ForeignArray::of_cuda_array(address, &shape, strides.as_deref(), sample.size(), axes) };
        let mut array = array.map_err(|error| errors::of(py, &error.into()))?;
        if let Some(stream) = stream {
            // SAFETY: a stream of the object's library; 1 and 2 are CUDA's own handles of the default streams.
            array = unsafe { array.after(stream as *mut c_void) };
        }
        Ok(Self { array, sample: Some(sample), _tensor: None, _object: object.clone().unbind() })
    }
}

/// Returns the sample type for NumPy's short name, if that has native byte order.
pub fn sample_of(typestr: &str) -> Option<SampleType> {
    let (order, name) = typestr.split_at_checked(1)?;
    let native = if cfg!(target_endian = "little") { "<" } else { ">" };
    if !(order == native || order == "|" || order == "=") {
        return None;
    }
    Some(match name {
        "u1" | "b1" => SampleType::U8,
        "i1" => SampleType::I8,
        "u2" => SampleType::U16,
        "i2" => SampleType::I16,
        "u4" => SampleType::U32,
        "i4" => SampleType::I32,
        "u8" => SampleType::U64,
        "i8" => SampleType::I64,
        "f2" => SampleType::F16,
        "f4" => SampleType::F32,
        "f8" => SampleType::F64,
        "c8" => SampleType::CF32,
        "c16" => SampleType::CF64,
        _ => return None,
    })
}
