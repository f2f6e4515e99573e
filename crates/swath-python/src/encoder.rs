//! Encodes tile rows apart from the writer, so that other processes can do it.

use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::{
    prelude::*,
    types::{PyBytes, PyDict},
};
use swath::{Shape, describe::facts::predictor_number};

use crate::{
    errors::OrRaise,
    ffi::foreign::Foreign,
    writer::{axes_of, device_rows, file_of, host_rows, mask_of, masked_rows, rows_of},
};

/// Chooses the predictor of a file from its first rows.
#[pyclass(frozen, module = "swath")]
pub struct PredictorChoice {
    choice: Mutex<swath::write::PredictorChoice>,
    shape: Shape,
}

#[pymethods]
impl PredictorChoice {
    #[new]
    fn new(
        py: Python<'_>,
        shape: (u32, u32, u32),
        dtype: &str,
        metadata: &Bound<'_, PyDict>,
        options: &Bound<'_, PyDict>,
    ) -> PyResult<Self> {
        let (shape, metadata, options) = file_of(py, shape, dtype, metadata, options)?;
        let choice = swath::write::PredictorChoice::new(shape, &metadata, &options).or_raise(py)?;
        Ok(Self { choice: Mutex::new(choice), shape })
    }

    /// The predictor's number, once it is chosen.
    #[getter]
    fn chosen(&self) -> Option<u8> {
        self.lock().chosen().map(predictor_number)
    }

    /// How many rows are best pushed at a time.
    #[getter]
    fn rows_at_once(&self) -> u32 {
        self.lock().rows_at_once()
    }

    /// Looks at further rows, from the top of the image.
    #[pyo3(signature = (rows, axes, *, mask=None))]
    fn push(&self, rows: &Bound<'_, PyAny>, axes: &str, mask: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let py = rows.py();
        let axes = axes_of(py, axes)?;
        let buffer = rows_of(rows, axes, self.shape)?;
        let mask = mask.map(mask_of).transpose()?;
        py.detach(|| self.lock().push(&masked_rows(&buffer, axes, mask.as_ref()))).or_raise(py)?;
        Ok(())
    }
}

impl PredictorChoice {
    fn lock(&self) -> MutexGuard<'_, swath::write::PredictorChoice> {
        self.choice.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Encodes the tile rows of a file, in any process.
#[pyclass(frozen, module = "swath")]
pub struct TileRowEncoder {
    encoder: swath::write::TileRowEncoder,
    shape: Shape,
}

#[pymethods]
impl TileRowEncoder {
    #[new]
    fn new(
        py: Python<'_>,
        shape: (u32, u32, u32),
        dtype: &str,
        metadata: &Bound<'_, PyDict>,
        options: &Bound<'_, PyDict>,
    ) -> PyResult<Self> {
        let (shape, metadata, options) = file_of(py, shape, dtype, metadata, options)?;
        let encoder = py.detach(|| swath::write::TileRowEncoder::new(shape, &metadata, &options)).or_raise(py)?;
        Ok(Self { encoder, shape })
    }

    /// Number of tile rows in the image.
    #[getter]
    fn tile_rows(&self) -> u32 {
        self.encoder.tile_rows()
    }

    /// Returns the image rows, first and one past the last, in tile rows `first` up to but not including `last`.
    fn rows_of(&self, first: u32, last: u32) -> (u32, u32) {
        let rows = self.encoder.rows_of(first..last);
        (rows.start, rows.end)
    }

    /// Returns the image rows that `encode` needs for these tile rows.
    fn needed(&self, first: u32, last: u32) -> (u32, u32) {
        let rows = self.encoder.needed(first..last);
        (rows.start, rows.end)
    }

    /// Encodes tile rows from host rows that start at image row `first_row`.
    fn encode<'py>(
        &self,
        py: Python<'py>,
        first: u32,
        last: u32,
        first_row: u32,
        rows: &Bound<'py, PyAny>,
        axes: &str,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let axes = axes_of(py, axes)?;
        let buffer = rows_of(rows, axes, self.shape)?;
        let encoded = py.detach(|| {
            self.encoder.encode(first..last, first_row, &host_rows(&buffer, axes)).map(|encoded| encoded.to_bytes())
        });
        Ok(PyBytes::new(py, &encoded.or_raise(py)?))
    }

    /// Encodes tile rows from rows in GPU memory.
    fn encode_device<'py>(
        &self,
        py: Python<'py>,
        first: u32,
        last: u32,
        first_row: u32,
        rows: &Bound<'py, PyAny>,
        axes: &str,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let foreign = Foreign::of(rows, axes_of(py, axes)?)?;
        let samples = device_rows(&foreign, self.shape.sample).or_raise(py)?;
        let encoded = py
            .detach(|| self.encoder.encode_device(first..last, first_row, &samples).map(|encoded| encoded.to_bytes()));
        Ok(PyBytes::new(py, &encoded.or_raise(py)?))
    }
}
