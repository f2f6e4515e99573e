//! The writer of a file.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::{
    buffer::PyUntypedBuffer,
    prelude::*,
    types::{PyBytes, PyDict},
};
use swath::{
    Cancel, Interleave, Metadata, Rows, SampleType, Shape, Window, WriteOptions,
    gpu::{Axes, DeviceSamples},
    io::{Memory, fork::Owned},
    names,
    write::{EncodedTileRows, Progress},
};

use crate::{
    errors::{self, OrRaise},
    ffi::{buffer::BorrowedBuffer, foreign::Foreign},
    interrupt, metadata, options, remote,
    target::{Pushes, Target},
};

/// Writes a file: the caller pushes its pixels, and the file appears under its name when `finish` returns.
#[pyclass(frozen, module = "swath")]
pub struct Writer {
    state: Owned<Mutex<Option<swath::Writer>>>,
    memory: Option<Memory>,
    shape: Shape,
    /// Whether the file goes to a store, whose answers may take long.
    remote: bool,
    cancel: Cancel,
    /// The exception that the caller's progress function raised.
    raised: Arc<Mutex<Option<PyErr>>>,
}

/// Returns the engine's shape for bands, rows, columns and a sample type.
pub fn shape_of(py: Python<'_>, shape: (u32, u32, u32), dtype: &str) -> PyResult<Shape> {
    let (bands, height, width) = shape;
    let sample = names::sample_type(dtype).or_raise(py)?;
    let bands = u16::try_from(bands).map_err(|_| errors::usage(py, "a file has at most 65535 bands"))?;
    Ok(Shape { width, height, bands, sample })
}

/// Reads everything that determines a file but its pixels.
pub fn file_of(
    py: Python<'_>,
    shape: (u32, u32, u32),
    dtype: &str,
    metadata: &Bound<'_, PyDict>,
    options: &Bound<'_, PyDict>,
) -> PyResult<(Shape, Metadata, WriteOptions)> {
    let shape = shape_of(py, shape, dtype)?;
    let metadata = metadata::of_dict(metadata, shape.bands, shape.sample)?;
    Ok((shape, metadata, options::write_options(options)?))
}

/// Returns the order of the axes that a word names.
pub fn axes_of(py: Python<'_>, axes: &str) -> PyResult<Axes> {
    match axes {
        "yx" | "byx" => Ok(Axes::BandFirst),
        "yxb" => Ok(Axes::BandLast),
        _ => Err(errors::usage(py, &format!("axes: {axes:?} is not yx, byx or yxb"))),
    }
}

/// Returns host rows, checked against the width, bands and type of a file.
pub fn rows_of(rows: &Bound<'_, PyAny>, axes: Axes, shape: Shape) -> PyResult<BorrowedBuffer> {
    let py = rows.py();
    let buffer = BorrowedBuffer::of(PyUntypedBuffer::get(rows)?)?;
    let (width, bands) = (shape.width as usize, usize::from(shape.bands));
    let fits = match (buffer.shape(), axes) {
        (&[_, columns], _) => columns == width && bands == 1,
        (&[planes, _, columns], Axes::BandFirst) => planes == bands && columns == width,
        (&[_, columns, planes], Axes::BandLast) => planes == bands && columns == width,
        _ => false,
    };
    if !fits || buffer.item_size() != shape.sample.size() {
        let detail = format!(
            "an array of shape {:?} with samples of {} bytes; the file has {bands} bands of {width} columns of {}",
            buffer.shape(),
            buffer.item_size(),
            shape.sample
        );
        return Err(errors::usage(py, &detail));
    }
    Ok(buffer)
}

/// Returns host rows as the engine takes them.
pub fn host_rows(buffer: &BorrowedBuffer, axes: Axes) -> Rows<'_> {
    match axes {
        Axes::BandFirst => Rows::from_bytes(buffer.bytes(), Interleave::Band),
        Axes::BandLast => Rows::from_bytes(buffer.bytes(), Interleave::Pixel),
    }
}

/// Returns a mask, which has one byte for each pixel of its rows; the engine checks its size.
pub fn mask_of(mask: &Bound<'_, PyAny>) -> PyResult<BorrowedBuffer> {
    BorrowedBuffer::of(PyUntypedBuffer::get(mask)?)
}

/// Returns host rows and their mask as the engine takes them.
pub fn masked_rows<'a>(buffer: &'a BorrowedBuffer, axes: Axes, mask: Option<&'a BorrowedBuffer>) -> Rows<'a> {
    let rows = host_rows(buffer, axes);
    mask.map_or(rows, |mask| rows.with_mask(mask.bytes()))
}

/// Returns the window of the image that a block covers.
fn window_of(py: Python<'_>, row: u32, column: u32, height: usize, width: usize) -> PyResult<Window> {
    let too_large =
        |_| errors::usage(py, &format!("a block of {height} x {width} pixels is larger than a file can be"));
    let (height, width) = (u32::try_from(height).map_err(too_large)?, u32::try_from(width).map_err(too_large)?);
    Ok(Window::new(column, row, width, height))
}

/// Returns rows on a GPU, checked against the sample type of the file.
pub fn device_rows(foreign: &Foreign, sample: SampleType) -> Result<DeviceSamples<'static>, swath::Error> {
    if let Some(found) = foreign.sample
        && found != sample
    {
        return Err(swath::Error::new(swath::ErrorKind::Usage(format!(
            "the samples are {found}, those of the file are {sample}"
        ))));
    }
    DeviceSamples::of_array(foreign.array.clone(), sample)
}

impl Writer {
    /// Locks the writer; `None` in a process that was forked after the writer was created.
    fn lock(&self) -> Option<MutexGuard<'_, Option<swath::Writer>>> {
        Some(self.state.get()?.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the result of `query`, or `otherwise` where the writer is finished or belongs to another process.
    fn query<T: Send>(&self, py: Python<'_>, otherwise: T, query: impl Fn(&swath::Writer) -> T + Send) -> T {
        py.detach(|| self.lock().and_then(|writer| writer.as_ref().map(query)).unwrap_or(otherwise))
    }

    /// Runs `work` on the writer without the GIL; an exception of the progress function or an interrupt aborts the file.
    fn work(
        &self,
        py: Python<'_>,
        long: bool,
        work: impl FnOnce(&mut swath::Writer) -> Result<(), swath::Error> + Send,
    ) -> PyResult<()> {
        let done =
            interrupt::run(py, long || self.remote, &self.cancel, || match self.lock().ok_or_else(forked)?.as_mut() {
                Some(writer) => work(writer),
                None => Err(closed()),
            });
        if let Some(raised) = self.raised.lock().unwrap_or_else(PoisonError::into_inner).take() {
            self.abort(py);
            return Err(raised);
        }
        if self.cancel.is_cancelled() {
            self.abort(py);
        }
        done
    }
}

fn forked() -> swath::Error {
    let detail = "this process was forked after the file was begun, and only the process that began it can write it: \
                  write it there, or begin another file here";
    swath::Error::new(swath::ErrorKind::Usage(detail.to_owned()))
}

fn closed() -> swath::Error {
    swath::Error::new(swath::ErrorKind::Usage("the file is already finished or aborted".to_owned()))
}

#[pymethods]
impl Writer {
    #[new]
    /// `pushes` says what the caller pushes: `rows`, `tile_rows` that a `TileRowEncoder` encoded, or `blocks`.
    #[pyo3(signature = (target, shape, dtype, metadata, options, *, progress=None, pushes="rows", remote=None))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        py: Python<'_>,
        target: &Bound<'_, PyAny>,
        shape: (u32, u32, u32),
        dtype: &str,
        metadata: &Bound<'_, PyDict>,
        options: &Bound<'_, PyDict>,
        progress: Option<Py<PyAny>>,
        pushes: &str,
        remote: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let (shape, metadata, options) = file_of(py, shape, dtype, metadata, options)?;
        let cancel = Cancel::new();
        let raised: Arc<Mutex<Option<PyErr>>> = Arc::default();
        let mut options = options.with_cancel(cancel.clone());
        if let Some(progress) = progress {
            let (raised, cancel) = (raised.clone(), cancel.clone());
            options = options.with_progress(Arc::new(move |Progress { rows, of, .. }| {
                Python::attach(|py| {
                    if let Err(error) = progress.call1(py, (rows, of)) {
                        raised.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                        cancel.cancel();
                    }
                });
            }));
        }
        if let Some(remote) = remote {
            options = options.with_remote(remote::options(remote)?);
        }
        let pushes = Pushes::of(py, pushes)?;
        let target = Target::of(target);
        let remote = target.is_remote();
        let begin = move || target.begin(shape, &metadata, &options, pushes);
        let (writer, memory) =
            if remote { interrupt::run_detached(py, begin)? } else { py.detach(begin).or_raise(py)? };
        Ok(Self { state: Owned::new(Mutex::new(Some(writer))), memory, shape, remote, cancel, raised })
    }

    /// Whether a writer of rows works within the memory that the options allow.
    #[staticmethod]
    fn can_take_rows(
        py: Python<'_>,
        shape: (u32, u32, u32),
        dtype: &str,
        metadata: &Bound<'_, PyDict>,
        options: &Bound<'_, PyDict>,
    ) -> PyResult<bool> {
        let (shape, metadata, options) = file_of(py, shape, dtype, metadata, options)?;
        py.detach(|| swath::Writer::can_take_rows(shape, &metadata, &options)).or_raise(py)
    }

    /// Returns the least number of bytes that a writer of blocks holds.
    #[staticmethod]
    fn least_memory(
        py: Python<'_>,
        shape: (u32, u32, u32),
        dtype: &str,
        metadata: &Bound<'_, PyDict>,
        options: &Bound<'_, PyDict>,
    ) -> PyResult<u64> {
        let (shape, metadata, options) = file_of(py, shape, dtype, metadata, options)?;
        swath::Writer::least_memory_from_blocks(shape, &metadata, &options).or_raise(py)
    }

    /// Number of rows pushed so far.
    #[getter]
    fn rows(&self, py: Python<'_>) -> u32 {
        self.query(py, self.shape.height, swath::Writer::rows)
    }

    /// Number of rows that are best pushed at a time.
    #[getter]
    fn batch_rows(&self, py: Python<'_>) -> u32 {
        self.query(py, 1, swath::Writer::batch_rows)
    }

    /// Whether a GPU encodes the tiles at present.
    #[getter]
    fn on_device(&self, py: Python<'_>) -> bool {
        self.query(py, false, swath::Writer::is_on_device)
    }

    /// Pushes the next host rows, with their mask where the file has one.
    #[pyo3(signature = (rows, axes, mask=None))]
    fn push(&self, rows: &Bound<'_, PyAny>, axes: &str, mask: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let py = rows.py();
        let axes = axes_of(py, axes)?;
        let buffer = rows_of(rows, axes, self.shape)?;
        let mask = mask.map(mask_of).transpose()?;
        let long = buffer.len() as u64 >= interrupt::LONG_WRITE;
        self.work(py, long, |writer| writer.push(&masked_rows(&buffer, axes, mask.as_ref())))
    }

    /// Pushes the next rows from GPU memory.
    fn push_device(&self, rows: &Bound<'_, PyAny>, axes: &str) -> PyResult<()> {
        let py = rows.py();
        let foreign = Foreign::of(rows, axes_of(py, axes)?)?;
        let samples = device_rows(&foreign, self.shape.sample).or_raise(py)?;
        self.work(py, true, |writer| writer.push_device(&samples))
    }

    /// Pushes a block of host pixels whose first pixel is at this row and column.
    #[pyo3(signature = (samples, axes, row, column, mask=None))]
    fn push_block(
        &self,
        samples: &Bound<'_, PyAny>,
        axes: &str,
        row: u32,
        column: u32,
        mask: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let py = samples.py();
        let axes = axes_of(py, axes)?;
        let buffer = BorrowedBuffer::of(PyUntypedBuffer::get(samples)?)?;
        let (height, width) = match (buffer.shape(), axes) {
            (&[height, width] | &[_, height, width], Axes::BandFirst) | (&[height, width, _], _) => (height, width),
            (&[height, width], _) => (height, width),
            _ => (0, 0),
        };
        let window = window_of(py, row, column, height, width)?;
        let buffer = rows_of(samples, axes, Shape { width: window.width, height: window.height, ..self.shape })?;
        let long = buffer.len() as u64 >= interrupt::LONG_WRITE;
        let mask = mask.map(mask_of).transpose()?;
        self.work(py, long, |writer| writer.push_block(window, &masked_rows(&buffer, axes, mask.as_ref())))
    }

    /// Pushes a block from GPU memory whose first pixel is at this row and column.
    fn push_block_device(&self, samples: &Bound<'_, PyAny>, axes: &str, row: u32, column: u32) -> PyResult<()> {
        let py = samples.py();
        let foreign = Foreign::of(samples, axes_of(py, axes)?)?;
        let [height, width, _] = foreign.array.shape;
        let window = window_of(py, row, column, height, width)?;
        let samples = device_rows(&foreign, self.shape.sample).or_raise(py)?;
        self.work(py, true, |writer| writer.push_block_device(window, &samples))
    }

    /// Pushes the next tile rows, which a `TileRowEncoder` encoded.
    fn push_encoded(&self, tile_rows: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = tile_rows.py();
        let buffer = BorrowedBuffer::of(PyUntypedBuffer::get(tile_rows)?)?;
        self.work(py, false, |writer| writer.push_encoded(&EncodedTileRows::from_bytes(buffer.bytes())?))
    }

    /// Completes the file, which then appears under its name; returns facts about it.
    fn finish<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let finished = interrupt::run(py, true, &self.cancel, || {
            let writer = self.lock().ok_or_else(forked)?.take().ok_or_else(closed)?;
            writer.finish()
        });
        if let Some(raised) = self.raised.lock().unwrap_or_else(PoisonError::into_inner).take() {
            return Err(raised);
        }
        let written = finished?;
        let dict = PyDict::new(py);
        dict.set_item("size", written.size)?;
        dict.set_item("padding", written.padding)?;
        dict.set_item("bigtiff", written.big)?;
        dict.set_item("overviews", written.overviews)?;
        dict.set_item("predictor", swath::describe::facts::predictor_number(written.predictor))?;
        dict.set_item("notices", &written.device.notices)?;
        dict.set_item("device", metadata::report_to_dict(py, &written.device)?)?;
        if let Some(bytes) = self.memory.as_ref().and_then(Memory::take) {
            dict.set_item("bytes", PyBytes::new(py, &bytes))?;
        }
        Ok(dict)
    }

    /// Aborts the file and removes what was written of it.
    fn abort(&self, py: Python<'_>) {
        // A thread that pushes holds the lock and may need the GIL: release the GIL before waiting for the lock.
        py.detach(|| drop(self.lock().and_then(|mut writer| writer.take())));
    }
}
