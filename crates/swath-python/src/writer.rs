//! A file in the making.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::{
    buffer::PyUntypedBuffer,
    prelude::*,
    types::{PyBytes, PyDict},
};
use swath::{
    Axes, Cancel, DeviceSamples, EncodedBand, Memory, Metadata, Progress, Rows, SampleType, Shape, Window,
    WriteOptions, fork::Owned, names,
};

use crate::{
    errors::{self, OrRaise},
    ffi::{buffer::Held, foreign::Foreign},
    interrupt, metadata, options, remote,
    sink::{Parts, Target},
};

/// A file in the making: rows are pushed from the top, and the file appears under its name when `finish` returns.
#[pyclass(frozen, module = "swath")]
pub struct Writer {
    state: Owned<Mutex<Option<swath::Writer>>>,
    memory: Option<Memory>,
    shape: Shape,
    /// Whether a store is asked, which may keep a caller waiting.
    remote: bool,
    cancel: Cancel,
    /// What the caller's progress function raised.
    raised: Arc<Mutex<Option<PyErr>>>,
}

/// Bands, rows and columns with a sample type, as the engine has them.
pub fn shape_of(py: Python<'_>, shape: (u32, u32, u32), dtype: &str) -> PyResult<Shape> {
    let (bands, height, width) = shape;
    let sample = names::sample_type(dtype).or_raise(py)?;
    let bands = u16::try_from(bands).map_err(|_| errors::usage(py, "a file has at most 65535 bands"))?;
    Ok(Shape { width, height, bands, sample })
}

/// Everything that a file is planned from.
pub fn plan_of(
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

/// Which axes of an array are what.
pub fn axes_of(py: Python<'_>, axes: &str) -> PyResult<Axes> {
    match axes {
        "yx" | "byx" => Ok(Axes::BandFirst),
        "yxb" => Ok(Axes::BandLast),
        _ => Err(errors::usage(py, &format!("axes: {axes:?} is not yx, byx or yxb"))),
    }
}

/// Host rows, checked against the width, bands and type of a file.
pub fn rows_of(rows: &Bound<'_, PyAny>, axes: Axes, shape: Shape) -> PyResult<Held> {
    let py = rows.py();
    let held = Held::of(PyUntypedBuffer::get(rows)?)?;
    let (width, bands) = (shape.width as usize, usize::from(shape.bands));
    let fits = match (held.shape(), axes) {
        (&[_, columns], _) => columns == width && bands == 1,
        (&[planes, _, columns], Axes::BandFirst) => planes == bands && columns == width,
        (&[_, columns, planes], Axes::BandLast) => planes == bands && columns == width,
        _ => false,
    };
    if !fits || held.item_size() != shape.sample.size() {
        let detail = format!(
            "an array of {:?} with samples of {} bytes where {bands} bands of {width} columns of {} belong",
            held.shape(),
            held.item_size(),
            shape.sample
        );
        return Err(errors::usage(py, &detail));
    }
    Ok(held)
}

/// Host rows as the engine takes them.
pub fn host_rows(held: &Held, axes: Axes) -> Rows<'_> {
    match axes {
        Axes::BandFirst => Rows::bands(held.bytes()),
        Axes::BandLast => Rows::pixels(held.bytes()),
    }
}

/// A mask: one byte for each pixel of the rows it goes with, which the engine checks.
fn mask_of(mask: &Bound<'_, PyAny>) -> PyResult<Held> {
    Held::of(PyUntypedBuffer::get(mask)?)
}

/// Host rows and their mask as the engine takes them.
fn masked_rows<'a>(held: &'a Held, axes: Axes, mask: Option<&'a Held>) -> Rows<'a> {
    let rows = host_rows(held, axes);
    mask.map_or(rows, |mask| rows.with_mask(mask.bytes()))
}

/// The part of an image that a block covers.
fn part_of(py: Python<'_>, row: u32, column: u32, height: usize, width: usize) -> PyResult<Window> {
    let too_large =
        |_| errors::usage(py, &format!("a block of {height} x {width} pixels is larger than a file can be"));
    let (height, width) = (u32::try_from(height).map_err(too_large)?, u32::try_from(width).map_err(too_large)?);
    Ok(Window::new(column, row, width, height))
}

/// Someone's rows on a GPU.
pub fn device_rows(foreign: &Foreign, sample: SampleType) -> Result<DeviceSamples<'static>, swath::Error> {
    if let Some(found) = foreign.sample
        && found != sample
    {
        return Err(swath::Error::new(swath::ErrorKind::Usage(format!(
            "samples are {found}, the file's are {sample}"
        ))));
    }
    DeviceSamples::of_array(foreign.array.clone(), sample)
}

impl Writer {
    /// The writer; `None` in a child that was forked after it was made.
    fn lock(&self) -> Option<MutexGuard<'_, Option<swath::Writer>>> {
        Some(self.state.get()?.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What `look` finds, or `none` where the writer is finished or another process's.
    fn look<T: Send>(&self, py: Python<'_>, none: T, look: impl Fn(&swath::Writer) -> T + Send) -> T {
        py.detach(|| self.lock().and_then(|writer| writer.as_ref().map(look)).unwrap_or(none))
    }

    /// Works on the writer without the interpreter's lock; an error or an interrupt ends the file.
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
    let detail = "the file belongs to the process that began it, and this one was forked from that: write it there, or \
                  begin a file of your own here";
    swath::Error::new(swath::ErrorKind::Usage(detail.to_owned()))
}

fn closed() -> swath::Error {
    swath::Error::new(swath::ErrorKind::Usage("the file is finished, or was given up".to_owned()))
}

#[pymethods]
impl Writer {
    #[new]
    /// `parts`: what the file is made of, `rows`, `bands` that a `BandEncoder` made, or `blocks`.
    #[pyo3(signature = (target, shape, dtype, metadata, options, *, progress=None, parts="rows", remote=None))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        py: Python<'_>,
        target: &Bound<'_, PyAny>,
        shape: (u32, u32, u32),
        dtype: &str,
        metadata: &Bound<'_, PyDict>,
        options: &Bound<'_, PyDict>,
        progress: Option<Py<PyAny>>,
        parts: &str,
        remote: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let (shape, metadata, options) = plan_of(py, shape, dtype, metadata, options)?;
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
        let parts = Parts::of(py, parts)?;
        let target = Target::of(target);
        let remote = target.is_remote();
        let begin = move || target.begin(shape, &metadata, &options, parts);
        let (writer, memory) = if remote { interrupt::leave(py, begin)? } else { py.detach(begin).or_raise(py)? };
        Ok(Self { state: Owned::new(Mutex::new(Some(writer))), memory, shape, remote, cancel, raised })
    }

    /// Whether a file made of rows gets by with the memory that the options allow.
    #[staticmethod]
    fn can_take_rows(
        py: Python<'_>,
        shape: (u32, u32, u32),
        dtype: &str,
        metadata: &Bound<'_, PyDict>,
        options: &Bound<'_, PyDict>,
    ) -> PyResult<bool> {
        let (shape, metadata, options) = plan_of(py, shape, dtype, metadata, options)?;
        py.detach(|| swath::Writer::can_take_rows(shape, &metadata, &options)).or_raise(py)
    }

    /// Bytes of memory that a file made of blocks takes at the least.
    #[staticmethod]
    fn least_memory(
        py: Python<'_>,
        shape: (u32, u32, u32),
        dtype: &str,
        metadata: &Bound<'_, PyDict>,
        options: &Bound<'_, PyDict>,
    ) -> PyResult<u64> {
        let (shape, metadata, options) = plan_of(py, shape, dtype, metadata, options)?;
        swath::Writer::least_memory_from_blocks(shape, &metadata, &options).or_raise(py)
    }

    /// Rows that were pushed.
    #[getter]
    fn rows(&self, py: Python<'_>) -> u32 {
        self.look(py, self.shape.height, swath::Writer::rows)
    }

    /// How many rows are best pushed at a time.
    #[getter]
    fn batch_rows(&self, py: Python<'_>) -> u32 {
        self.look(py, 1, swath::Writer::batch_rows)
    }

    /// Whether a GPU makes the tiles, as things stand.
    #[getter]
    fn on_device(&self, py: Python<'_>) -> bool {
        self.look(py, false, swath::Writer::is_on_device)
    }

    /// Adds host rows below those that were pushed before, with their mask where the file has one.
    #[pyo3(signature = (rows, axes, mask=None))]
    fn push(&self, rows: &Bound<'_, PyAny>, axes: &str, mask: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let py = rows.py();
        let axes = axes_of(py, axes)?;
        let held = rows_of(rows, axes, self.shape)?;
        let mask = mask.map(mask_of).transpose()?;
        let long = held.len() as u64 >= interrupt::LONG_WRITE;
        self.work(py, long, |writer| writer.push(&masked_rows(&held, axes, mask.as_ref())))
    }

    /// Adds rows on a GPU below those that were pushed before.
    fn push_device(&self, rows: &Bound<'_, PyAny>, axes: &str) -> PyResult<()> {
        let py = rows.py();
        let foreign = Foreign::of(rows, axes_of(py, axes)?)?;
        let samples = device_rows(&foreign, self.shape.sample).or_raise(py)?;
        self.work(py, true, |writer| writer.push_device(&samples))
    }

    /// Adds host pixels of a block whose first pixel is at this row and column.
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
        let held = Held::of(PyUntypedBuffer::get(samples)?)?;
        let (height, width) = match (held.shape(), axes) {
            (&[height, width] | &[_, height, width], Axes::BandFirst) | (&[height, width, _], _) => (height, width),
            (&[height, width], _) => (height, width),
            _ => (0, 0),
        };
        let part = part_of(py, row, column, height, width)?;
        let held = rows_of(samples, axes, Shape { width: part.width, height: part.height, ..self.shape })?;
        let long = held.len() as u64 >= interrupt::LONG_WRITE;
        let mask = mask.map(mask_of).transpose()?;
        self.work(py, long, |writer| writer.push_block(part, &masked_rows(&held, axes, mask.as_ref())))
    }

    /// Adds pixels on a GPU of a block whose first pixel is at this row and column.
    fn push_block_device(&self, samples: &Bound<'_, PyAny>, axes: &str, row: u32, column: u32) -> PyResult<()> {
        let py = samples.py();
        let foreign = Foreign::of(samples, axes_of(py, axes)?)?;
        let [height, width, _] = foreign.array.shape;
        let part = part_of(py, row, column, height, width)?;
        let samples = device_rows(&foreign, self.shape.sample).or_raise(py)?;
        self.work(py, true, |writer| writer.push_block_device(part, &samples))
    }

    /// Adds a band that a `BandEncoder` made.
    fn push_encoded(&self, band: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = band.py();
        let held = Held::of(PyUntypedBuffer::get(band)?)?;
        self.work(py, false, |writer| writer.push_encoded(&EncodedBand::from_bytes(held.bytes())?))
    }

    /// Completes the file and gives it its name.
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
        dict.set_item("notices", &written.device.notices)?;
        dict.set_item("device", metadata::report_to_dict(py, &written.device)?)?;
        if let Some(bytes) = self.memory.as_ref().and_then(Memory::take) {
            dict.set_item("bytes", PyBytes::new(py, &bytes))?;
        }
        Ok(dict)
    }

    /// Gives the file up: nothing of it stays.
    fn abort(&self, py: Python<'_>) {
        // Whoever pushes holds the lock and may call Python meanwhile.
        py.detach(|| drop(self.lock().and_then(|mut writer| writer.take())));
    }
}
