//! Arrays of CuPy, PyTorch and others on a GPU, as rows to be written.

use std::ffi::c_void;

use pyo3::{prelude::*, types::PyDict};
use swath::{Axes, ForeignArray, SampleType};

use super::capsule::Taken;
use crate::errors;

/// CUDA's legacy default stream, as handle and as the number that DLPack and the CUDA array interface have for it.
const LEGACY: usize = 1;

/// Someone's array, with what keeps it alive.
pub struct Foreign {
    pub array: ForeignArray,
    pub sample: Option<SampleType>,
    _tensor: Option<Taken>,
    _object: Py<PyAny>,
}

impl Foreign {
    /// By the CUDA array interface where that says what to wait for, else by DLPack.
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
        // The producer makes the default stream wait for its own work; we wait for the default stream.
        options.set_item("stream", LEGACY)?;
        let tensor = Taken::of(py, &object.call_method("__dlpack__", (), Some(&options))?)?;
        let array = tensor.array(axes).map_err(|error| errors::of(py, &error.into()))?;
        // SAFETY: the legacy default stream is always there.
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
            return Err(errors::usage(py, "arrays with a mask of their own are not written; fill the holes first"));
        }
        let (address, _): (u64, bool) = item("data")?.extract()?;
        let shape: Vec<usize> = item("shape")?.extract()?;
        let strides: Option<Vec<i64>> = optional("strides")?.map(|strides| strides.extract()).transpose()?;
        let typestr: String = item("typestr")?.extract()?;
        let sample = sample_of(&typestr)
            .ok_or_else(|| errors::usage(py, &format!("samples of type {typestr:?} cannot be written")))?;
        let stream = optional("stream")?.map(|stream| stream.extract::<usize>()).transpose()?;
        // SAFETY: the object keeps its memory while it is held here, and says where and how large it is.
        let array = unsafe { ForeignArray::of_cuda_array(address, &shape, strides.as_deref(), sample.size(), axes) };
        let mut array = array.map_err(|error| errors::of(py, &error.into()))?;
        if let Some(stream) = stream {
            // SAFETY: a stream of the object's library: 1 and 2 are CUDA's own handles of the default streams.
            array = unsafe { array.after(stream as *mut c_void) };
        }
        Ok(Self { array, sample: Some(sample), _tensor: None, _object: object.clone().unbind() })
    }
}

/// NumPy's short name of a type in the machine's byte order.
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
