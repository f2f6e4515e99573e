//! swath for Python: thin classes over the engine. What makes them pleasant (sources, xarray, dask) is Python's part of the
//! package.

mod array;
mod convert;
mod dataset;
mod encoder;
mod errors;
mod ffi;
mod fill;
mod interrupt;
mod metadata;
mod options;
mod remote;
mod sink;
mod source;
mod writer;

use pyo3::prelude::*;

/// The reference system that a text names, as `Dataset.metadata()["crs"]` has it.
#[pyfunction]
fn crs_of<'py>(py: Python<'py>, text: &str) -> PyResult<Bound<'py, PyAny>> {
    let crs = py.detach(|| swath::geo::parse_user(text)).map_err(|detail| errors::usage(py, &detail))?;
    metadata::crs_to_dict(py, &crs).map(Bound::into_any)
}

/// What there is of GPUs, drivers and libraries, as JSON.
#[pyfunction]
fn describe_devices(py: Python<'_>) -> String {
    py.detach(|| swath::describe_devices(&swath::survey(&swath::GpuOptions::default())).to_string())
}

/// Folders in which NVIDIA's optional libraries are looked for.
#[pyfunction]
fn add_library_folders(folders: Vec<std::path::PathBuf>) {
    swath::offer_libraries(folders);
}

/// Takes unfinished files away; for a process that is about to end.
#[pyfunction]
fn abandon_unfinished(py: Python<'_>) {
    py.detach(|| {
        swath::abandon_unfinished();
        swath::abandon_uploads();
    });
}

#[pymodule]
fn _swath(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("_debug_build", cfg!(debug_assertions))?;
    module.add_class::<array::Array>()?;
    module.add_class::<dataset::Dataset>()?;
    module.add_class::<dataset::CancelHandle>()?;
    module.add_class::<writer::Writer>()?;
    module.add_class::<encoder::BandEncoder>()?;
    module.add_function(wrap_pyfunction!(crs_of, module)?)?;
    module.add_function(wrap_pyfunction!(describe_devices, module)?)?;
    module.add_function(wrap_pyfunction!(add_library_folders, module)?)?;
    module.add_function(wrap_pyfunction!(abandon_unfinished, module)?)?;
    module.add_function(wrap_pyfunction!(remote::is_remote, module)?)?;
    module.add_function(wrap_pyfunction!(remote::shown, module)?)?;
    Ok(())
}
