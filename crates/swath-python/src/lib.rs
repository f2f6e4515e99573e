//! swath for Python: thin classes over the engine. Sources, xarray and dask are handled by the Python part of the package.

mod array;
mod complex_samples;
mod dataset;
mod encoder;
mod errors;
mod ffi;
mod interrupt;
mod metadata;
mod options;
mod out_buffer;
mod remote;
mod source;
mod target;
mod writer;

use pyo3::{prelude::*, types::PyDict};
use swath::names;

use crate::errors::OrRaise;

/// Returns the reference system that a text names, in the form of `Dataset.metadata()["crs"]`.
#[pyfunction]
fn crs_of<'py>(py: Python<'py>, text: &str) -> PyResult<Bound<'py, PyAny>> {
    let crs = py.detach(|| swath::geo::parse_user(text)).map_err(|detail| errors::usage(py, &detail))?;
    metadata::crs_to_dict(py, &crs).map(Bound::into_any)
}

/// Returns the codecs by name; for each of them the levels (smallest, largest) or `None`, and whether it has a quality, a
/// choice to be lossless, and a largest error.
#[pyfunction]
fn codecs(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let all = PyDict::new(py);
    for name in names::COMPRESSIONS {
        let (codec, wrap) = names::compression(name).or_raise(py)?;
        let options = names::codec_options(codec, wrap);
        let levels = options.levels.map(|levels| (*levels.start(), *levels.end()));
        all.set_item(name, (levels, options.quality, options.lossless, options.max_z_error))?;
    }
    Ok(all)
}

/// Returns the ending of a file name that belongs to another format than TIFF, such as `png`.
#[pyfunction]
fn other_format(name: &str) -> Option<String> {
    names::other_format(name)
}

/// Returns the GPUs, the driver and the libraries that were found, as JSON.
#[pyfunction]
fn describe_devices(py: Python<'_>) -> String {
    py.detach(|| swath::describe::devices(&swath::gpu::survey(&swath::gpu::GpuOptions::default())).to_string())
}

/// Returns the bytes of memory of the GPU that is used by default; `None` if there is none.
#[pyfunction]
fn device_memory(py: Python<'_>) -> Option<u64> {
    py.detach(|| swath::gpu::default_gpu().ok().map(|gpu| gpu.facts().memory))
}

/// Adds folders to search for NVIDIA's optional libraries.
#[pyfunction]
fn add_library_folders(folders: Vec<std::path::PathBuf>) {
    swath::gpu::offer_libraries(folders);
}

/// Removes unfinished files and uploads; for a process that is about to end.
#[pyfunction]
fn abandon_unfinished(py: Python<'_>) {
    py.detach(|| {
        swath::io::abandon_unfinished();
        swath::io::abandon_uploads();
    });
}

// Free-threaded interpreters must not run the module without the GIL: it has not been tested so.
#[pymodule(gil_used = true)]
fn _swath(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("_debug_build", cfg!(debug_assertions))?;
    module.add_class::<array::Array>()?;
    module.add_class::<dataset::Dataset>()?;
    module.add_class::<dataset::CancelHandle>()?;
    module.add_class::<writer::Writer>()?;
    module.add_class::<encoder::TileRowEncoder>()?;
    module.add_class::<encoder::PredictorChoice>()?;
    module.add_function(wrap_pyfunction!(crs_of, module)?)?;
    module.add_function(wrap_pyfunction!(codecs, module)?)?;
    module.add_function(wrap_pyfunction!(other_format, module)?)?;
    module.add_function(wrap_pyfunction!(describe_devices, module)?)?;
    module.add_function(wrap_pyfunction!(device_memory, module)?)?;
    module.add_function(wrap_pyfunction!(add_library_folders, module)?)?;
    module.add_function(wrap_pyfunction!(abandon_unfinished, module)?)?;
    module.add_function(wrap_pyfunction!(remote::is_remote, module)?)?;
    module.add_function(wrap_pyfunction!(remote::shown, module)?)?;
    Ok(())
}
