//! An open file.

use std::sync::{Arc, Mutex, PoisonError};

use pyo3::{buffer::PyUntypedBuffer, prelude::*, types::PyDict};
use swath::{Cancel, Check, Mode, ReadOptions, SampleType, StatisticsOptions, Window};

use crate::{
    array::Array,
    convert,
    errors::{self, OrRaise},
    ffi::{buffer::Held, export::HostMemory},
    interrupt, metadata,
    options::{self, Opening, Reading},
    source::{self, Opened},
};

/// An open file: cheap to make, read from by any number of threads.
#[pyclass(subclass, frozen, module = "swath")]
pub struct Dataset {
    dataset: swath::Dataset,
    max_pixels: Option<u64>,
}

/// Where samples are to be.
enum Place {
    Host,
    Gpu,
    /// On a GPU where there is one.
    GpuOrHost,
}

impl Place {
    /// A result is on the GPU where the caller named one; memory that is to be filled is where it is.
    fn of(mode: Option<Mode>, filled: bool) -> Self {
        match mode {
            _ if filled => Self::Host,
            Some(Mode::Cuda) => Self::Gpu,
            Some(Mode::Auto) => Self::GpuOrHost,
            _ => Self::Host,
        }
    }
}

impl Dataset {
    /// Bytes and type of what a read gives, if it is not too much. Looking may take reading, and a source of Python's then needs
    /// the interpreter: whoever waits for it must not hold that.
    fn measure(&self, py: Python<'_>, options: &ReadOptions, windows: u64) -> PyResult<(u64, SampleType)> {
        let measured = py.detach(|| {
            let len = self.dataset.read_len(options)? as u64;
            let sample = self.dataset.read_sample(options)?;
            let samples = (len / sample.size() as u64).saturating_mul(windows);
            options::check_pixels(self.max_pixels, samples, self.dataset.name())?;
            Ok((len, sample))
        });
        measured.or_raise(py)
    }

    /// The caller's memory, if it has the size and type of the result.
    fn held(&self, out: &Bound<'_, PyAny>, len: u64, sample: SampleType) -> PyResult<Held> {
        let py = out.py();
        let held = Held::writable(PyUntypedBuffer::get(out)?)?;
        let size = sample.size();
        if held.len() as u64 != len || held.item_size() != size {
            let detail = format!(
                "out has {} bytes in samples of {}, the result has {len} in samples of {size} ({sample})",
                held.len(),
                held.item_size()
            );
            return Err(errors::usage(py, &detail));
        }
        if convert::seen(sample) != sample {
            let detail = format!("samples are {sample}, which NumPy has no type for: read without out");
            return Err(errors::usage(py, &detail));
        }
        if !is_format(&held.format(), sample) {
            let detail = format!("out has samples of type {:?}, the file has {sample}", held.format());
            return Err(errors::usage(py, &detail));
        }
        Ok(held)
    }
}

fn has_gpu(py: Python<'_>) -> bool {
    py.detach(|| swath::default_gpu().is_ok())
}

/// Whether a format of Python's `struct` means this type, in the machine's byte order.
fn is_format(format: &str, sample: SampleType) -> bool {
    let native = if cfg!(target_endian = "little") { '<' } else { '>' };
    let plain = format.trim_start_matches(['@', '=', native]);
    let own = crate::ffi::export::format_of(sample).to_string_lossy();
    // C's long has eight bytes on some machines and four on others; the size was compared already.
    let same = |a: &str, b: &str| a == b || (matches!(a, "l" | "q" | "i") && matches!(b, "i" | "q"));
    let unsigned = |a: &str, b: &str| matches!(a, "L" | "Q" | "I") && matches!(b, "I" | "Q");
    same(plain, &own) || unsigned(plain, &own) || (plain == "?" && sample == SampleType::U8)
}

#[pymethods]
impl Dataset {
    #[new]
    #[pyo3(signature = (source, *, threads=None, tile_cache=None, max_pixels=None, device=None, max_device_memory=None,
        trust_input=false))]
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
    ) -> PyResult<Self> {
        let mode = device.map(|word| options::mode(py, word)).transpose()?;
        let opening = Opening { threads, tile_cache, max_pixels, max_device_memory, trust_input };
        let options = opening.options(mode);
        let opened = source::open(source)?;
        let dataset = py.detach(|| match opened {
            Opened::Path(path) => options.open(path),
            Opened::Source(source) => options.open_source(source),
        });
        Ok(Self { dataset: dataset.or_raise(py)?, max_pixels })
    }

    /// Name for messages.
    #[getter]
    fn name(&self) -> &str {
        self.dataset.name()
    }

    /// Bytes of the file.
    #[getter]
    fn file_size(&self) -> u64 {
        self.dataset.size()
    }

    /// Columns of the image.
    #[getter]
    fn width(&self) -> u32 {
        self.dataset.width()
    }

    /// Rows of the image.
    #[getter]
    fn height(&self) -> u32 {
        self.dataset.height()
    }

    /// Bands of the image.
    #[getter]
    fn count(&self) -> u32 {
        self.dataset.bands()
    }

    /// Bands, rows and columns.
    #[getter]
    fn shape(&self) -> (u32, u32, u32) {
        (self.count(), self.height(), self.width())
    }

    /// NumPy's name of the sample type.
    #[getter]
    fn dtype(&self) -> &'static str {
        convert::seen(self.dataset.sample()).name()
    }

    /// Rows and columns of a tile or strip.
    #[getter]
    fn block_shape(&self) -> (u32, u32) {
        let main = self.dataset.main();
        (swath::facts::block_height(main), main.layout().tile_width)
    }

    /// Whether blocks are tiles rather than strips.
    #[getter]
    fn tiled(&self) -> bool {
        self.dataset.main().layout().tiled
    }

    /// Width and height of each overview, the largest first.
    #[getter]
    fn overviews(&self, py: Python<'_>) -> PyResult<Vec<(u32, u32)>> {
        let found = py.detach(|| self.dataset.overviews()).or_raise(py)?;
        Ok(found.iter().map(|overview| (overview.width, overview.height)).collect())
    }

    /// Rows and columns of a tile or strip of an overview.
    fn block_shape_of(&self, py: Python<'_>, overview: usize) -> PyResult<(u32, u32)> {
        py.detach(|| self.dataset.overview_block(overview)).or_raise(py)
    }

    /// Everything the file says about its pixels.
    fn metadata<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        metadata::to_dict(py, &self.dataset)
    }

    /// The pixels (x, y, width, height) that a rectangle of coordinates touches.
    fn window_of(
        &self,
        py: Python<'_>,
        west: f64,
        south: f64,
        east: f64,
        north: f64,
    ) -> PyResult<(u32, u32, u32, u32)> {
        let window = py.detach(|| self.dataset.window_of(west, south, east, north)).or_raise(py)?;
        Ok((window.x, window.y, window.width, window.height))
    }

    /// Reads a window (x, y, width, height): (bands, rows, columns).
    #[pyo3(signature = (window=None, bands=None, overview=None, *, ifd=None, interleave="band", threads=None, device=None,
        max_device_memory=None, trust_input=None, cpu_decode=None, out=None))]
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
    ) -> PyResult<Option<Array>> {
        let mode = device.map(|word| options::mode(py, word)).transpose()?;
        let reading = Reading { window, bands, overview, ifd, threads, max_device_memory, trust_input, cpu_decode };
        let cancel = Cancel::new();
        let options = reading.options(options::interleave(py, interleave)?, mode).with_cancel(cancel.clone());
        let (len, sample) = self.measure(py, &options, 1)?;
        let long = len >= interrupt::LONG;
        if let Some(out) = out {
            let mut held = self.held(&out, len, sample)?;
            interrupt::run(py, long, &cancel, || self.dataset.read_into(&options, held.bytes_mut()))?;
            return Ok(None);
        }
        let host = |options: &ReadOptions| -> PyResult<Option<Array>> {
            let raster = interrupt::run(py, long, &cancel, || self.dataset.read(options))?;
            Array::of_host(py, raster).map(Some)
        };
        match Place::of(mode, false) {
            Place::Host => host(&options),
            Place::GpuOrHost if !has_gpu(py) => host(&options),
            Place::Gpu | Place::GpuOrHost => {
                let raster = interrupt::run(py, long, &cancel, || self.dataset.read_device(&options))?;
                Array::of_device(py, raster).map(Some)
            }
        }
    }

    /// 255 where there is data, 0 where there is none.
    #[pyo3(signature = (window=None, overview=None, *, threads=None))]
    fn read_mask(
        &self,
        py: Python<'_>,
        window: Option<(u32, u32, u32, u32)>,
        overview: Option<usize>,
        threads: Option<usize>,
    ) -> PyResult<Array> {
        let reading = Reading { window, overview, threads, ..Reading::default() };
        let options = reading.options(swath::Interleave::Band, None);
        self.measure(py, &options, 1)?;
        let mask = py.detach(|| self.dataset.read_mask(&options)).or_raise(py)?;
        let (height, width) = (mask.height() as usize, mask.width() as usize);
        Ok(Array::of_memory(HostMemory::new(mask), SampleType::U8, &[height, width]))
    }

    /// Reads windows (x, y, width, height) of one size: (windows, bands, rows, columns).
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
        let long = all >= interrupt::LONG;
        let pixels = u64::from(first.width) * u64::from(first.height);
        let count = (len / sample.size() as u64).checked_div(pixels).unwrap_or(0) as usize;
        let (width, height) = (first.width as usize, first.height as usize);
        let shape = match interleave {
            swath::Interleave::Band => [windows.len(), count, height, width],
            swath::Interleave::Pixel => [windows.len(), height, width, count],
        };
        if let Some(out) = out {
            let mut held = self.held(&out, all, sample)?;
            let read = || self.dataset.read_windows_into(&options, &windows, held.bytes_mut());
            interrupt::run(py, long, &cancel, read)?;
            return Ok(None);
        }
        let place = Place::of(mode, false);
        if matches!(place, Place::Gpu) || (matches!(place, Place::GpuOrHost) && has_gpu(py)) {
            let read = || self.dataset.read_windows_device(&options, &windows);
            let raster = interrupt::run(py, long, &cancel, read)?;
            return Array::of_windows(py, raster, first.height).map(Some);
        }
        let no_memory = || errors::usage(py, &format!("there is no memory for {all} bytes"));
        let len = usize::try_from(all).map_err(|_| no_memory())?;
        let read = || HostMemory::filled(len, |out| self.dataset.read_windows_into(&options, &windows, out));
        let memory = interrupt::run(py, long, &cancel, read)?.ok_or_else(no_memory)?;
        let seen = convert::seen(sample);
        if seen == sample {
            return Ok(Some(Array::of_memory(memory, sample, &shape)));
        }
        let wider = memory.len() / sample.size() * seen.size();
        let converted = HostMemory::filled(wider, |out| {
            convert::widen(sample, memory.bytes(), out);
            Ok::<(), PyErr>(())
        })?;
        Ok(Some(Array::of_memory(converted.ok_or_else(no_memory)?, seen, &shape)))
    }

    /// What the file is, as JSON.
    #[pyo3(signature = (tags=false))]
    fn describe(&self, py: Python<'_>, tags: bool) -> PyResult<String> {
        py.detach(|| swath::describe(&self.dataset, tags)).or_raise(py).map(|document| document.to_string())
    }

    /// Smallest and largest value, mean and standard deviation of bands, as JSON.
    #[pyo3(signature = (bands=None, *, threads=None, progress=None))]
    fn statistics(
        &self,
        py: Python<'_>,
        bands: Option<Vec<u32>>,
        threads: Option<usize>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<String> {
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
        let found = interrupt::run(py, true, &cancel, || swath::statistics(&self.dataset, &options));
        match raised.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(error) => Err(error),
            None => found.map(|found| found.document().to_string()),
        }
    }

    /// Whether the file is a sound COG, as JSON.
    #[pyo3(signature = (full=false, strict=false))]
    fn validate(&self, py: Python<'_>, full: bool, strict: bool) -> PyResult<String> {
        let check = if full { Check::Full } else { Check::Structure };
        let report = py.detach(|| swath::validate(&self.dataset, check)).or_raise(py)?;
        Ok(report.document(self.dataset.name(), strict).to_string())
    }

    /// What GPUs did for all reads of this handle so far.
    fn device_report(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        metadata::report_to_dict(py, &self.dataset.device_report())
    }
}
