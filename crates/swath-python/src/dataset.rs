//! An open file, as Python sees it.

use std::sync::{Arc, Mutex, PoisonError, RwLock};

use pyo3::{prelude::*, types::PyDict};
use swath::{
    Cancel, Mode, ReadOptions, SampleType, Window, gpu::DeviceReport, statistics::StatisticsOptions, validate::Check,
};

use crate::{
    array::Array,
    complex_samples,
    errors::{self, OrRaise},
    ffi::export::HostMemory,
    interrupt, metadata,
    options::{self, Opening, Reading},
    out_buffer, remote,
    source::{self, Opened},
};

/// An open file, from which any number of threads may read.
#[pyclass(subclass, frozen, module = "swath")]
pub struct Dataset {
    /// `None` once it is closed. Only threads that hold the GIL lock it, and `fork` needs the GIL too: a child process never
    /// finds it locked.
    dataset: RwLock<Option<Arc<swath::Dataset>>>,
    facts: Facts,
    max_pixels: Option<u64>,
    /// Whether the file is on a server or in a store, whose answers may take long.
    remote: bool,
}

/// The properties that a dataset keeps after it is closed.
struct Facts {
    name: String,
    file_size: u64,
    width: u32,
    height: u32,
    bands: u32,
    sample: SampleType,
    block: (u32, u32),
    tiled: bool,
}

impl Facts {
    fn of(dataset: &swath::Dataset) -> Self {
        let main = dataset.main();
        Self {
            name: dataset.name().to_owned(),
            file_size: dataset.size(),
            width: dataset.width(),
            height: dataset.height(),
            bands: dataset.bands(),
            sample: dataset.sample(),
            block: (swath::describe::facts::block_height(main), main.layout().tile_width),
            tiled: main.layout().tiled,
        }
    }
}

/// Stops a read that runs in another thread.
#[pyclass(name = "Cancel", frozen, module = "swath._swath")]
pub struct CancelHandle {
    cancel: Cancel,
}

#[pymethods]
impl CancelHandle {
    #[new]
    fn new() -> Self {
        Self { cancel: Cancel::new() }
    }

    /// Makes the read raise `CancelledError` soon.
    fn cancel(&self) {
        self.cancel.cancel();
    }
}

/// Which memory receives the samples of a read.
enum Destination {
    Host,
    Gpu,
    /// GPU memory where there is a GPU.
    GpuOrHost,
}

impl Destination {
    /// Returns GPU memory only where the caller names a device for this read.
    fn of(mode: Option<Mode>) -> Self {
        match mode {
            Some(Mode::Cuda) => Self::Gpu,
            Some(Mode::Auto) => Self::GpuOrHost,
            _ => Self::Host,
        }
    }
}

impl Dataset {
    /// Returns the open file. A read that has it continues when another thread closes the dataset.
    fn opened(&self, py: Python<'_>) -> PyResult<Arc<swath::Dataset>> {
        let dataset = self.dataset.read().unwrap_or_else(PoisonError::into_inner).clone();
        dataset.ok_or_else(|| errors::usage(py, &format!("{}: the dataset is closed: open it again", self.facts.name)))
    }

    /// Runs `query` on the file without the GIL, which a source written in Python needs.
    fn query<T: Send + 'static>(
        &self,
        py: Python<'_>,
        query: impl FnOnce(&swath::Dataset) -> Result<T, swath::Error> + Send + 'static,
    ) -> PyResult<T> {
        let dataset = self.opened(py)?;
        if !self.remote {
            return py.detach(|| query(&dataset)).or_raise(py);
        }
        interrupt::run_detached(py, move || query(&dataset))
    }

    /// Returns bytes and sample type of a read, or an error where the read exceeds `max_pixels`.
    fn measure(&self, py: Python<'_>, options: &ReadOptions, windows: u64) -> PyResult<(u64, SampleType)> {
        let (options, max_pixels) = (options.clone(), self.max_pixels);
        self.query(py, move |dataset| {
            let len = dataset.read_len(&options)? as u64;
            let sample = dataset.read_sample(&options)?;
            let samples = (len / sample.size() as u64).saturating_mul(windows);
            options::check_pixels(max_pixels, samples, dataset.name())?;
            Ok((len, sample))
        })
    }

    /// Whether a read of this many bytes may take so long that a user wants to stop it.
    fn is_long(&self, len: u64) -> bool {
        self.remote || len >= interrupt::LONG
    }
}

/// Issues warnings at the line that called the package.
fn warn(py: Python<'_>, warnings: &[String]) -> PyResult<()> {
    for warning in warnings {
        py.import("swath._errors")?.call_method1("warn", (warning,))?;
    }
    Ok(())
}

/// Issues the notices of a read as warnings, where the caller left the choice of the device to swath.
fn warn_of_device(py: Python<'_>, mode: Option<Mode>, report: Option<&DeviceReport>) -> PyResult<()> {
    if mode != Some(Mode::Auto) {
        return Ok(());
    }
    for notice in report.into_iter().flat_map(|report| &report.notices) {
        let module = py.import("swath._errors")?;
        module.call_method1("warn", (notice, module.getattr("DeviceWarning")?))?;
    }
    Ok(())
}

/// Returns a JSON document as a Python dictionary.
fn of_json<'py>(py: Python<'py>, document: &str) -> PyResult<Bound<'py, PyAny>> {
    py.import("json")?.call_method1("loads", (document,))
}

fn has_gpu(py: Python<'_>) -> bool {
    py.detach(|| swath::gpu::default_gpu().is_ok())
}

#[pymethods]
impl Dataset {
    #[new]
    #[pyo3(signature = (source, *, threads=None, tile_cache=None, max_pixels=None, device=None, max_device_memory=None,
        trust_input=false, ifd=None, remote=None))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        py: Python<'_>,
        source: &Bound<'_, PyAny>,
        threads: Option<usize>,
        tile_cache: Option<usize>,
        max_pixels: Option<u64>,
        device: Option<&str>,
        max_device_memory: Option<u64>,
        trust_input: bool,
        ifd: Option<usize>,
        remote: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let mode = device.map(|word| options::mode(py, word)).transpose()?;
        let opening = Opening { threads, tile_cache, max_pixels, max_device_memory, trust_input, ifd };
        let mut options = opening.options(mode);
        if let Some(remote) = remote {
            options = options.with_remote(remote::options(remote)?);
        }
        let dataset = match source::open(source)? {
            Opened::Address(address) => interrupt::run_detached(py, move || options.open(address))?,
            Opened::Path(path) => py.detach(|| options.open(path)).or_raise(py)?,
            Opened::Source(source) => py.detach(|| options.open_source(source)).or_raise(py)?,
        };
        let remote = dataset.traffic().is_some();
        let lost = dataset.lost_tags().into_iter();
        let unusable = py.detach(|| dataset.unusable_side_files());
        let lost = lost.chain(unusable).map(|lost| format!("{}: {lost}", dataset.name()));
        warn(py, &lost.collect::<Vec<_>>())?;
        let facts = Facts::of(&dataset);
        Ok(Self { dataset: RwLock::new(Some(Arc::new(dataset))), facts, max_pixels, remote })
    }

    /// Closes the file: reads that run already finish, later ones raise.
    fn close(&self, py: Python<'_>) {
        let dataset = self.dataset.write().unwrap_or_else(PoisonError::into_inner).take();
        // Dropping a source written in Python may run Python code, which needs the GIL.
        py.detach(|| drop(dataset));
    }

    /// Whether the dataset is closed.
    #[getter]
    fn closed(&self) -> bool {
        self.dataset.read().unwrap_or_else(PoisonError::into_inner).is_none()
    }

    /// Name of the file in messages.
    #[getter]
    fn name(&self) -> &str {
        &self.facts.name
    }

    /// Size of the file in bytes.
    #[getter]
    fn file_size(&self) -> u64 {
        self.facts.file_size
    }

    /// Identifies this version of the file among others of the same name: by its time of change, or by its server's ETag.
    #[getter]
    fn version(&self, py: Python<'_>) -> PyResult<Option<String>> {
        Ok(self.opened(py)?.version())
    }

    /// Raises `ChangedError` where the path now names another file, or the file was written to.
    fn check_current(&self, py: Python<'_>) -> PyResult<()> {
        if self.remote {
            // The client compares the version in every answer of the server.
            return Ok(());
        }
        self.query(py, swath::Dataset::check_current)
    }

    /// Columns of the image.
    #[getter]
    fn width(&self) -> u32 {
        self.facts.width
    }

    /// Rows of the image.
    #[getter]
    fn height(&self) -> u32 {
        self.facts.height
    }

    /// Bands of the image.
    #[getter]
    fn count(&self) -> u32 {
        self.facts.bands
    }

    /// Bands, rows and columns.
    #[getter]
    fn shape(&self) -> (u32, u32, u32) {
        (self.count(), self.height(), self.width())
    }

    /// NumPy's type of the samples that a read returns.
    #[getter]
    fn dtype<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        py.import("numpy")?.getattr("dtype")?.call1((complex_samples::numpy_type(self.facts.sample).name(),))
    }

    /// Name of the sample type in the file: for example `complex_int16` where `dtype` is `complex64`.
    #[getter]
    fn stored_dtype(&self) -> &'static str {
        self.facts.sample.name()
    }

    /// Rows and columns of a tile or strip.
    #[getter]
    fn block_shape(&self) -> (u32, u32) {
        self.facts.block
    }

    /// Whether blocks are tiles rather than strips.
    #[getter]
    fn tiled(&self) -> bool {
        self.facts.tiled
    }

    /// Width and height of each overview, the largest first.
    #[getter]
    fn overview_sizes(&self, py: Python<'_>) -> PyResult<Vec<(u32, u32)>> {
        let found = self.query(py, swath::Dataset::overviews)?;
        Ok(found.iter().map(|overview| (overview.width, overview.height)).collect())
    }

    /// Returns rows and columns of a tile or strip of an overview; `overview` counts from 0 for the largest.
    fn block_shape_of(&self, py: Python<'_>, overview: usize) -> PyResult<(u32, u32)> {
        self.query(py, move |dataset| dataset.overview_block(overview))
    }

    /// Returns all metadata of the file.
    fn metadata<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let masks = self.query(py, metadata::fetch)?;
        metadata::to_dict(py, &*self.opened(py)?, &masks)
    }

    /// Returns the window (x, y, width, height) of the pixels that a box of coordinates touches: its edges `west`, `south`, `east` and
    /// `north` are in the file's reference system.
    fn window_of(
        &self,
        py: Python<'_>,
        west: f64,
        south: f64,
        east: f64,
        north: f64,
    ) -> PyResult<(u32, u32, u32, u32)> {
        let window = self.query(py, move |dataset| dataset.window_of(west, south, east, north))?;
        Ok((window.x, window.y, window.width, window.height))
    }

    /// Reads samples for `read`, which checks what callers give: (bands, rows, columns).
    ///
    /// `window` is (x, y, width, height), `bands` count from 1, `overview` and `ifd` from 0. `interleave` is "band" or "pixel". `device`
    /// is "cpu", "cuda" or "auto"; `cpu_decode`, `trust_input`, `max_device_memory` and `threads` are as for `read`. `out` is memory to
    /// fill, and `cancel` stops the read from another thread.
    #[pyo3(signature = (window=None, bands=None, overview=None, *, ifd=None, interleave="band", threads=None, device=None,
        max_device_memory=None, trust_input=None, cpu_decode=None, out=None, cancel=None))]
    #[allow(clippy::too_many_arguments)]
    fn read_window(
        &self,
        py: Python<'_>,
        window: Option<(u32, u32, u32, u32)>,
        bands: Option<Vec<u32>>,
        overview: Option<usize>,
        ifd: Option<usize>,
        interleave: &str,
        threads: Option<usize>,
        device: Option<&str>,
        max_device_memory: Option<u64>,
        trust_input: Option<bool>,
        cpu_decode: Option<bool>,
        out: Option<Bound<'_, PyAny>>,
        cancel: Option<Bound<'_, CancelHandle>>,
    ) -> PyResult<Option<Array>> {
        let dataset = self.opened(py)?;
        let mode = device.map(|word| options::mode(py, word)).transpose()?;
        let reading = Reading { window, bands, overview, ifd, threads, max_device_memory, trust_input, cpu_decode };
        let cancel = cancel.map_or_else(Cancel::new, |handle| handle.get().cancel.clone());
        let options = reading.options(options::interleave(py, interleave)?, mode).with_cancel(cancel.clone());
        let (len, sample) = self.measure(py, &options, 1)?;
        let long = self.is_long(len);
        if let Some(out) = out {
            let mut buffer = out_buffer::borrow(&out, len, sample)?;
            let report = interrupt::run(py, long, &cancel, || dataset.read_into(&options, buffer.bytes_mut()))?;
            warn(py, &dataset.take_warnings())?;
            warn_of_device(py, mode, report.as_ref())?;
            return Ok(None);
        }
        let host = |options: &ReadOptions| -> PyResult<Option<Array>> {
            let raster = interrupt::run(py, long, &cancel, || dataset.read(options))?;
            warn(py, &dataset.take_warnings())?;
            Array::of_host(py, raster).map(Some)
        };
        match Destination::of(mode) {
            Destination::Host => host(&options),
            Destination::GpuOrHost if !has_gpu(py) => host(&options),
            Destination::Gpu | Destination::GpuOrHost => {
                let raster = interrupt::run(py, long, &cancel, || dataset.read_device(&options))?;
                warn(py, &dataset.take_warnings())?;
                Array::of_device(py, raster).map(Some)
            }
        }
    }

    /// Reads the mask: 255 for valid pixels, 0 for hidden ones, and values between them from an 8-bit mask or alpha band.
    ///
    /// `window` is (x, y, width, height), `overview` counts from 0; `threads` is as for `read`.
    #[pyo3(signature = (window=None, overview=None, *, threads=None))]
    fn read_mask(
        &self,
        py: Python<'_>,
        window: Option<(u32, u32, u32, u32)>,
        overview: Option<usize>,
        threads: Option<usize>,
    ) -> PyResult<Array> {
        let reading = Reading { window, overview, threads, ..Reading::default() };
        let cancel = Cancel::new();
        let options = reading.options(swath::Interleave::Band, None).with_cancel(cancel.clone());
        self.measure(py, &options, 1)?;
        let dataset = self.opened(py)?;
        let mask = interrupt::run(py, self.remote, &cancel, || dataset.read_mask(&options))?;
        warn(py, &dataset.take_warnings())?;
        let (height, width) = (mask.height() as usize, mask.width() as usize);
        Ok(Array::of_memory(HostMemory::new(mask), SampleType::U8, &[height, width]))
    }

    /// Reads for `read_windows`, which checks what callers give: (windows, bands, rows, columns).
    ///
    /// `windows` are (x, y, width, height) of one size. `bands`, `overview`, `interleave`, `threads`, `device`, `max_device_memory`,
    /// `trust_input`, `cpu_decode` and `out` are as for `read_window`.
    #[pyo3(signature = (windows, bands=None, overview=None, *, interleave="band", threads=None, device=None,
        max_device_memory=None, trust_input=None, cpu_decode=None, out=None))]
    #[allow(clippy::too_many_arguments)]
    fn read_batch(
        &self,
        py: Python<'_>,
        windows: Vec<(u32, u32, u32, u32)>,
        bands: Option<Vec<u32>>,
        overview: Option<usize>,
        interleave: &str,
        threads: Option<usize>,
        device: Option<&str>,
        max_device_memory: Option<u64>,
        trust_input: Option<bool>,
        cpu_decode: Option<bool>,
        out: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Option<Array>> {
        let dataset = self.opened(py)?;
        let mode = device.map(|word| options::mode(py, word)).transpose()?;
        let interleave = options::interleave(py, interleave)?;
        let reading =
            Reading { bands, overview, threads, max_device_memory, trust_input, cpu_decode, ..Reading::default() };
        let cancel = Cancel::new();
        let options = reading.options(interleave, mode).with_cancel(cancel.clone());
        let windows: Vec<Window> = windows.into_iter().map(|(x, y, w, h)| Window::new(x, y, w, h)).collect();
        let Some(first) = windows.first().copied() else {
            return Err(errors::usage(py, "there are no windows to read"));
        };
        let single = options.clone().with_window(first);
        let (len, sample) = self.measure(py, &single, windows.len() as u64)?;
        let all = len.saturating_mul(windows.len() as u64);
        let long = self.is_long(all);
        let pixels = u64::from(first.width) * u64::from(first.height);
        let count = (len / sample.size() as u64).checked_div(pixels).unwrap_or(0) as usize;
        let (width, height) = (first.width as usize, first.height as usize);
        let shape = match interleave {
            swath::Interleave::Band => [windows.len(), count, height, width],
            swath::Interleave::Pixel => [windows.len(), height, width, count],
        };
        if let Some(out) = out {
            let mut buffer = out_buffer::borrow(&out, all, sample)?;
            let read = || dataset.read_windows_into(&options, &windows, buffer.bytes_mut());
            let report = interrupt::run(py, long, &cancel, read)?;
            warn(py, &dataset.take_warnings())?;
            warn_of_device(py, mode, report.as_ref())?;
            return Ok(None);
        }
        let destination = Destination::of(mode);
        if matches!(destination, Destination::Gpu) || (matches!(destination, Destination::GpuOrHost) && has_gpu(py)) {
            let read = || dataset.read_windows_device(&options, &windows);
            let raster = interrupt::run(py, long, &cancel, read)?;
            warn(py, &dataset.take_warnings())?;
            return Array::of_windows(py, raster, first.height).map(Some);
        }
        let no_memory = || errors::allocation(py, all);
        let len = usize::try_from(all).map_err(|_| no_memory())?;
        let read = || {
            let mut report = None;
            let memory = HostMemory::filled(len, |out| {
                report = dataset.read_windows_into(&options, &windows, out)?;
                Ok::<(), swath::Error>(())
            })?;
            Ok((memory, report))
        };
        let (memory, report) = interrupt::run(py, long, &cancel, read)?;
        let memory = memory.ok_or_else(no_memory)?;
        warn(py, &dataset.take_warnings())?;
        warn_of_device(py, mode, report.as_ref())?;
        let seen = complex_samples::numpy_type(sample);
        if seen == sample {
            return Ok(Some(Array::of_memory(memory, sample, &shape)));
        }
        let wider = memory.len() / sample.size() * seen.size();
        let converted = HostMemory::filled(wider, |out| {
            complex_samples::widen(sample, memory.bytes(), out);
            Ok::<(), PyErr>(())
        })?;
        Ok(Some(Array::of_memory(converted.ok_or_else(no_memory)?, seen, &shape)))
    }

    /// Describes the file; `tags` says whether to list every TIFF tag too.
    #[pyo3(signature = (tags=false))]
    fn describe<'py>(&self, py: Python<'py>, tags: bool) -> PyResult<Bound<'py, PyAny>> {
        let document = self.query(py, move |dataset| swath::describe::file(dataset, tags))?;
        of_json(py, &document.to_string())
    }

    /// Computes smallest and largest value, mean and standard deviation of `bands`, with so many `threads`; `progress` is called with
    /// (samples done, samples).
    #[pyo3(signature = (bands=None, *, threads=None, progress=None))]
    fn statistics<'py>(
        &self,
        py: Python<'py>,
        bands: Option<Vec<u32>>,
        threads: Option<usize>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let dataset = self.opened(py)?;
        let cancel = Cancel::new();
        let mut options = StatisticsOptions::default().with_cancel(cancel.clone());
        if let Some(bands) = bands {
            options = options.with_bands(bands);
        }
        if let Some(threads) = threads {
            options = options.with_threads(threads);
        }
        let raised: Arc<Mutex<Option<PyErr>>> = Arc::default();
        if let Some(progress) = progress {
            let (raised, cancel) = (raised.clone(), cancel.clone());
            options = options.with_progress(Arc::new(move |done, all| {
                Python::attach(|py| {
                    if let Err(error) = progress.call1(py, (done, all)) {
                        raised.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                        cancel.cancel();
                    }
                });
            }));
        }
        let found = interrupt::run(py, true, &cancel, || dataset.statistics(&options));
        match raised.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(error) => Err(error),
            None => {
                let found = found?;
                warn(py, &dataset.take_warnings())?;
                of_json(py, &found.document().to_string())
            }
        }
    }

    /// Checks whether the file is a valid COG: with `full` every block, and with `strict` warnings make it invalid.
    #[pyo3(signature = (full=false, strict=false))]
    fn validate<'py>(&self, py: Python<'py>, full: bool, strict: bool) -> PyResult<Bound<'py, PyAny>> {
        let check = if full { Check::Full } else { Check::Structure };
        let report = self.query(py, move |dataset| dataset.validate(check))?;
        of_json(py, &report.document(&self.facts.name, strict).to_string())
    }

    /// Requests and bytes that this handle has cost so far; None for local files and for sources that Python reads.
    #[getter]
    fn remote_stats<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let dataset = self.opened(py)?;
        let Some(traffic) = dataset.traffic() else { return Ok(None) };
        let dict = PyDict::new(py);
        dict.set_item("requests", traffic.requests)?;
        dict.set_item("retries", traffic.retries)?;
        dict.set_item("received", traffic.received)?;
        dict.set_item("sent", traffic.sent)?;
        dict.set_item("cache_hits", dataset.cache_hits())?;
        Ok(Some(dict))
    }

    /// Reports what GPUs did for all reads of this handle so far.
    fn device_report(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        metadata::report_to_dict(py, &self.opened(py)?.device_report())
    }
}
