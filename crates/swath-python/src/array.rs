//! Samples in host or GPU memory that other libraries use without a copy.

use std::{ffi::c_int, sync::Arc};

use pyo3::{
    exceptions::{PyAttributeError, PyBufferError, PyTypeError},
    ffi,
    prelude::*,
    types::{PyDict, PyTuple},
};
use swath::{
    Raster, SampleType,
    gpu::{DeviceRaster, dlpack},
    tiff::SampleFormat,
};

use crate::{
    complex_samples, errors,
    errors::OrRaise,
    ffi::{
        capsule::{self, Tensor},
        export::{self, HostMemory},
    },
    metadata,
};

/// `kDLCPU` and `kDLCUDA`.
const ON_CPU: i32 = 1;
const ON_CUDA: i32 = 2;

#[derive(Debug, Clone)]
enum Samples {
    Host(Arc<HostMemory>),
    Device(Arc<DeviceRaster>),
}

/// Samples in host or GPU memory. NumPy, CuPy, torch and others use them without a copy.
#[pyclass(frozen, module = "swath")]
pub struct Array {
    samples: Samples,
    sample: SampleType,
    shape: Vec<isize>,
    /// Bytes from element to element along each axis.
    strides: Vec<isize>,
    report: Option<Py<PyAny>>,
}

/// Returns the strides in bytes of an array in C order.
fn c_order(shape: &[isize], size: usize) -> Vec<isize> {
    let mut step = size as isize;
    let mut strides: Vec<isize> = shape
        .iter()
        .rev()
        .map(|len| {
            let this = step;
            step = step.saturating_mul((*len).max(1));
            this
        })
        .collect();
    strides.reverse();
    strides
}

impl Array {
    fn new(samples: Samples, sample: SampleType, shape: Vec<isize>, report: Option<Py<PyAny>>) -> Self {
        let strides = c_order(&shape, sample.size());
        Self { samples, sample, shape, strides, report }
    }

    /// Returns an array over a raster in host memory.
    pub fn of_host(py: Python<'_>, raster: Raster) -> PyResult<Self> {
        let shape = raster.shape().map(|len| len as isize).to_vec();
        let report = raster.report().map(|report| metadata::report_to_dict(py, report)).transpose()?;
        let (memory, sample) = complex_samples::host(py, raster)?;
        Ok(Self::new(Samples::Host(Arc::new(memory)), sample, shape, report))
    }

    /// Returns an array of this shape over host memory.
    pub fn of_memory(memory: HostMemory, sample: SampleType, shape: &[usize]) -> Self {
        let shape = shape.iter().map(|len| *len as isize).collect();
        Self::new(Samples::Host(Arc::new(memory)), sample, shape, None)
    }

    /// Returns an array over a raster in GPU memory.
    pub fn of_device(py: Python<'_>, raster: DeviceRaster) -> PyResult<Self> {
        let report = Some(metadata::report_to_dict(py, raster.report())?);
        let shape = raster.shape().map(|len| len as isize).to_vec();
        let sample = raster.sample();
        Ok(Self::new(Samples::Device(Arc::new(raster)), sample, shape, report))
    }

    /// Returns an array with an axis of windows over a raster in GPU memory, which holds windows of `height` rows below each
    /// other.
    pub fn of_windows(py: Python<'_>, raster: DeviceRaster, height: u32) -> PyResult<Self> {
        let mut array = Self::of_device(py, raster)?;
        let height = (height as isize).max(1);
        let (&[a, b, c], &[first, second, third]) = (&array.shape[..], &array.strides[..]) else { return Ok(array) };
        let banded = match &array.samples {
            Samples::Device(raster) => raster.interleave() == swath::Interleave::Band,
            Samples::Host(_) => true,
        };
        (array.shape, array.strides) = if banded {
            (vec![b / height, a, height, c], vec![second * height, first, second, third])
        } else {
            (vec![a / height, height, b, c], vec![first * height, first, second, third])
        };
        Ok(array)
    }

    fn dtype(&self) -> PyResult<dlpack::DataType> {
        let code = match self.sample.format() {
            SampleFormat::Int => 0,
            SampleFormat::Float => 2,
            SampleFormat::ComplexFloat => 5,
            SampleFormat::ComplexInt => {
                return Err(PyBufferError::new_err(format!(
                    "no array library has a type for {}: read the samples without device=",
                    self.sample
                )));
            }
            _ => 1,
        };
        Ok(dlpack::DataType { code, bits: (self.sample.size() * 8) as u8, lanes: 1 })
    }

    fn is_c_order(&self) -> bool {
        self.strides == c_order(&self.shape, self.sample.size())
    }

    fn tensor(&self, versioned: bool) -> PyResult<Tensor> {
        let dtype = self.dtype()?;
        let shape: Vec<i64> = self.shape.iter().map(|len| *len as i64).collect();
        let size = self.sample.size() as i64;
        let strides: Vec<i64> = self.strides.iter().map(|step| *step as i64 / size).collect();
        Ok(match &self.samples {
            Samples::Host(memory) => {
                let (owner, address) = (Box::new(memory.clone()), memory.address());
                if versioned {
                    Tensor::New(dlpack::export_host_versioned(owner, address, &shape, &strides, dtype))
                } else {
                    Tensor::Old(dlpack::export_host(owner, address, &shape, &strides, dtype))
                }
            }
            Samples::Device(raster) => {
                let ordinal = raster.gpu().facts().ordinal;
                let buffer = raster.buffer();
                if versioned {
                    Tensor::New(dlpack::export_strided_versioned(buffer, &shape, &strides, dtype, ordinal))
                } else {
                    Tensor::Old(dlpack::export_strided(buffer, &shape, &strides, dtype, ordinal))
                }
            }
        })
    }
}

#[pymethods]
impl Array {
    /// Lengths of the axes.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.shape)
    }

    /// Bytes from element to element along each axis.
    #[getter]
    fn strides<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.strides)
    }

    /// NumPy's name of the sample type.
    #[getter(dtype)]
    fn dtype_name(&self) -> &'static str {
        self.sample.name()
    }

    #[getter]
    fn ndim(&self) -> usize {
        self.shape.len()
    }

    /// Number of samples.
    #[getter]
    fn size(&self) -> isize {
        self.shape.iter().product()
    }

    #[getter]
    fn nbytes(&self) -> isize {
        self.size() * self.sample.size() as isize
    }

    /// `cpu` or `cuda:0`.
    #[getter]
    fn device(&self) -> String {
        match &self.samples {
            Samples::Host(_) => "cpu".to_owned(),
            Samples::Device(raster) => format!("cuda:{}", raster.gpu().facts().ordinal),
        }
    }

    /// Reports what a GPU did for the read; `None` where the caller asked for no GPU.
    #[getter]
    fn report(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.report.as_ref().map(|report| report.clone_ref(py))
    }

    /// Returns a copy in host memory, or the array itself if it is there already.
    fn to_host(slf: Bound<'_, Self>) -> PyResult<Py<Self>> {
        let py = slf.py();
        let array = slf.get();
        let Samples::Device(raster) = &array.samples else { return Ok(slf.unbind()) };
        let host = py.detach(|| raster.to_host()).or_raise(py)?;
        let mut copy = Self::of_host(py, host)?;
        // Windows in GPU memory are ordered by band first; the copy keeps that order, and so these strides.
        copy.shape.clone_from(&array.shape);
        copy.strides.clone_from(&array.strides);
        if copy.sample != array.sample {
            let factor = (copy.sample.size() / array.sample.size()) as isize;
            copy.strides.iter_mut().for_each(|step| *step *= factor);
        }
        Py::new(py, copy)
    }

    /// Returns the same samples with another shape.
    fn reshape(&self, py: Python<'_>, shape: Vec<isize>) -> PyResult<Self> {
        let fits = shape.iter().try_fold(1_isize, |size, len| size.checked_mul(*len)) == Some(self.size());
        if !fits || shape.iter().any(|len| *len < 0) || !self.is_c_order() {
            let detail = format!("an array of shape {:?} cannot take the shape {shape:?}", self.shape);
            return Err(errors::usage(py, &detail));
        }
        let report = self.report.as_ref().map(|report| report.clone_ref(py));
        Ok(Self::new(self.samples.clone(), self.sample, shape, report))
    }

    fn __len__(&self) -> PyResult<usize> {
        let first = self.shape.first().ok_or_else(|| PyTypeError::new_err("an array without axes has no length"))?;
        Ok(*first as usize)
    }

    fn __repr__(&self) -> String {
        let shape: Vec<String> = self.shape.iter().map(ToString::to_string).collect();
        format!("<swath.Array {} ({}) on {}>", self.sample, shape.join(", "), self.device())
    }

    #[allow(unsafe_code)]
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let array = slf.clone();
        let array = array.get();
        let Samples::Host(memory) = &array.samples else {
            return Err(PyBufferError::new_err(
                "the array is on a GPU: use __dlpack__ or __cuda_array_interface__, or call to_host()",
            ));
        };
        // SAFETY: Python's view; the array keeps memory, shape and strides and never changes them.
        unsafe { export::fill_view(view, flags, slf.into_any(), memory, array.sample, &array.shape, &array.strides) }
    }

    #[pyo3(signature = (dtype=None, copy=None))]
    fn __array__<'py>(
        slf: Bound<'py, Self>,
        dtype: Option<Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        if matches!(slf.get().samples, Samples::Device(_)) {
            let detail = "the array is on a GPU and is not converted to NumPy implicitly: call to_host()";
            return Err(PyTypeError::new_err(detail));
        }
        let options = PyDict::new(py);
        options.set_item("dtype", dtype)?;
        options.set_item("copy", copy)?;
        let view = py.import("builtins")?.getattr("memoryview")?.call1((slf,))?;
        py.import("numpy")?.call_method("array", (view,), Some(&options))
    }

    #[getter]
    fn __cuda_array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let Samples::Device(raster) = &self.samples else {
            return Err(PyAttributeError::new_err("the array is in host memory"));
        };
        let found = raster.cuda_array().or_raise(py)?;
        let interface = PyDict::new(py);
        interface.set_item("shape", PyTuple::new(py, &self.shape)?)?;
        interface.set_item("typestr", found.typestr)?;
        interface.set_item("data", (found.address, false))?;
        let strides = if self.is_c_order() { None } else { Some(PyTuple::new(py, &self.strides)?) };
        interface.set_item("strides", strides)?;
        // The read is complete: there is nothing to wait for.
        interface.set_item("stream", py.None())?;
        interface.set_item("version", 3)?;
        Ok(interface)
    }

    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        slf: Bound<'py, Self>,
        stream: Option<Bound<'py, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        // The read is complete, so the receiver's stream need not wait.
        drop(stream);
        let py = slf.py();
        let array = slf.get();
        if copy == Some(true) {
            return Err(PyBufferError::new_err("__dlpack__ makes no copies here: copy the result"));
        }
        let (kind, ordinal) = array.__dlpack_device__();
        let requested = dl_device.unwrap_or((kind, ordinal));
        let array = if requested == (kind, ordinal) {
            slf.unbind()
        } else if requested.0 == ON_CPU && copy != Some(false) {
            Self::to_host(slf)?
        } else {
            return Err(PyBufferError::new_err(format!(
                "the array is on {} and cannot be exported to another device",
                array.device()
            )));
        };
        let versioned = max_version.is_some_and(|(major, _)| major >= 1);
        capsule::of(py, array.get().tensor(versioned)?)
    }

    fn __dlpack_device__(&self) -> (i32, i32) {
        match &self.samples {
            Samples::Host(_) => (ON_CPU, 0),
            Samples::Device(raster) => (ON_CUDA, raster.gpu().facts().ordinal),
        }
    }
}
