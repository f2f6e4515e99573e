//! Bands of a file, encoded apart from the writer that puts them together.

use pyo3::{
    prelude::*,
    types::{PyBytes, PyDict},
};
use swath::Shape;

use crate::{
    errors::OrRaise,
    ffi::foreign::Foreign,
    writer::{axes_of, device_rows, host_rows, plan_of, rows_of},
};

/// Makes the tiles of some rows of a file, in any process.
#[pyclass(frozen, module = "swath")]
pub struct BandEncoder {
    encoder: swath::BandEncoder,
    shape: Shape,
}

#[pymethods]
impl BandEncoder {
    #[new]
    fn new(
        py: Python<'_>,
        shape: (u32, u32, u32),
        dtype: &str,
        metadata: &Bound<'_, PyDict>,
        options: &Bound<'_, PyDict>,
    ) -> PyResult<Self> {
        let (shape, metadata, options) = plan_of(py, shape, dtype, metadata, options)?;
        let encoder = py.detach(|| swath::BandEncoder::new(shape, &metadata, &options)).or_raise(py)?;
        Ok(Self { encoder, shape })
    }

    /// Rows of tiles that the image has.
    #[getter]
    fn tile_rows(&self) -> u32 {
        self.encoder.tile_rows()
    }

    /// The image's rows that tile rows `first` to `last` (which is not one of them) hold.
    fn rows_of(&self, first: u32, last: u32) -> (u32, u32) {
        let rows = self.encoder.rows_of(first..last);
        (rows.start, rows.end)
    }

    /// The rows that `encode` has to be given for these tile rows.
    fn needed(&self, first: u32, last: u32) -> (u32, u32) {
        let rows = self.encoder.needed(first..last);
        (rows.start, rows.end)
    }

    /// Encodes tile rows from host rows, the first of which is the image's `first_row`.
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
        let held = rows_of(rows, axes, self.shape)?;
        let encoded = py.detach(|| {
            self.encoder.encode(first..last, first_row, &host_rows(&held, axes)).map(|band| band.to_bytes())
        });
        Ok(PyBytes::new(py, &encoded.or_raise(py)?))
    }

    /// The same from rows on a GPU.
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
        let encoded =
            py.detach(|| self.encoder.encode_device(first..last, first_row, &samples).map(|band| band.to_bytes()));
        Ok(PyBytes::new(py, &encoded.or_raise(py)?))
    }
}
