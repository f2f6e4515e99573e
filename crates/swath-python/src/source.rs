//! Bytes that Python has or reads: buffers, and objects that are asked for ranges.

use std::{io, path::PathBuf, sync::Arc};

use pyo3::{
    buffer::PyUntypedBuffer,
    prelude::*,
    types::{PyList, PyString},
};
use swath::{Access, ReadInto, Source, SourceError, remote};

use crate::{ffi::buffer::Held, options::text};

/// Where a dataset's bytes are.
pub enum Opened {
    /// A file of this machine.
    Path(PathBuf),
    /// A server or store.
    Address(String),
    /// Anything else.
    Source(Arc<dyn Source>),
}

/// What `_source.py` hands over: a path or an address, something with the buffer protocol, or an object with `read_ranges`.
pub fn open(source: &Bound<'_, PyAny>) -> PyResult<Opened> {
    if source.is_instance_of::<PyString>() {
        return Ok(match source.extract::<String>() {
            Ok(address) if remote::is_remote(&address) => Opened::Address(address),
            // Paths may hold what is no Unicode.
            _ => Opened::Path(source.extract()?),
        });
    }
    if source.hasattr("read_ranges")? {
        return Ok(Opened::Source(Arc::new(Ranged::new(source)?)));
    }
    let held = Held::of(PyUntypedBuffer::get(source)?)?;
    Ok(Opened::Source(Arc::new(Bytes { held })))
}

/// Bytes in memory that Python owns.
#[derive(Debug)]
struct Bytes {
    held: Held,
}

impl Source for Bytes {
    fn name(&self) -> &str {
        "<bytes>"
    }

    fn size(&self) -> Result<u64, SourceError> {
        Ok(self.held.len() as u64)
    }

    fn read_many(&self, reads: &mut [ReadInto<'_>]) -> Result<(), SourceError> {
        for read in reads {
            if !self.held.copy_to(read.offset, read.buffer) {
                let (offset, len, size) = (read.offset, read.buffer.len() as u64, self.held.len() as u64);
                return Err(SourceError::BeyondEnd { offset, len, size });
            }
        }
        Ok(())
    }
}

/// A Python object that reads ranges: a file-like object, fsspec, obstore.
#[derive(Debug)]
struct Ranged {
    object: Py<PyAny>,
    name: String,
    size: u64,
    access: Access,
}

impl Ranged {
    fn new(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let name = text(&object.getattr("name")?)?;
        let size = object.call_method0("size")?.extract()?;
        // Who says nothing has a store behind it, which is best asked for many ranges at once.
        let remote = !object.hasattr("remote")? || object.getattr("remote")?.is_truthy()?;
        let access = if remote { Access::REMOTE } else { Access::LOCAL };
        Ok(Self { object: object.clone().unbind(), name, size, access })
    }

    fn read(&self, reads: &mut [ReadInto<'_>]) -> PyResult<()> {
        Python::attach(|py| {
            let ranges: Vec<(u64, usize)> = reads.iter().map(|read| (read.offset, read.buffer.len())).collect();
            let found = self.object.bind(py).call_method1("read_ranges", (PyList::new(py, ranges)?,))?;
            let mut found = found.try_iter()?;
            for read in reads.iter_mut() {
                let piece = found.next().transpose()?;
                let piece = piece.ok_or_else(|| short(read.buffer.len(), 0))?;
                let held = Held::of(PyUntypedBuffer::get(&piece)?)?;
                if held.len() != read.buffer.len() || !held.copy_to(0, read.buffer) {
                    return Err(short(read.buffer.len(), held.len()));
                }
            }
            Ok(())
        })
    }
}

fn short(wanted: usize, found: usize) -> PyErr {
    pyo3::exceptions::PyEOFError::new_err(format!("{found} bytes came where {wanted} were asked for"))
}

impl Source for Ranged {
    fn name(&self) -> &str {
        &self.name
    }

    fn size(&self) -> Result<u64, SourceError> {
        Ok(self.size)
    }

    fn access(&self) -> Access {
        self.access
    }

    fn read_many(&self, reads: &mut [ReadInto<'_>]) -> Result<(), SourceError> {
        for read in reads.iter() {
            let (offset, len) = (read.offset, read.buffer.len() as u64);
            if offset.checked_add(len).is_none_or(|end| end > self.size) {
                return Err(SourceError::BeyondEnd { offset, len, size: self.size });
            }
        }
        let Some(first) = reads.first().map(|read| read.offset) else { return Ok(()) };
        self.read(reads)
            .map_err(|error| SourceError::Io { action: format!("reading at offset {first}"), source: io_error(error) })
    }
}

/// An exception as an error of input and output, which carries it along.
pub fn io_error(error: PyErr) -> io::Error {
    let errno = Python::attach(|py| error.value(py).getattr("errno").ok()?.extract::<i32>().ok());
    let kind = errno.map_or(io::ErrorKind::Other, |number| io::Error::from_raw_os_error(number).kind());
    io::Error::new(kind, error)
}

/// The exception that an error of input and output carries.
pub fn carried(error: &io::Error) -> Option<&PyErr> {
    error.get_ref()?.downcast_ref::<PyErr>()
}
