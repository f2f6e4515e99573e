//! Sources of bytes that Python owns or reads: buffers, and objects with `read_ranges`.

use std::{path::PathBuf, sync::Arc};

use pyo3::{
    buffer::PyUntypedBuffer,
    prelude::*,
    types::{PyList, PyString},
};
use swath::io::{Access, ReadInto, Source, SourceError, remote};

use crate::{errors::io_error, ffi::buffer::BorrowedBuffer, options::text};

/// Where the bytes of a dataset are.
pub enum Opened {
    /// A local file.
    Path(PathBuf),
    /// The address of a file on a server or in a store.
    Address(String),
    /// Bytes that Python owns or reads.
    Source(Arc<dyn Source>),
}

/// Returns the source that `_source.py` passes: a path or address, an object with a buffer, or one with `read_ranges`.
pub fn open(source: &Bound<'_, PyAny>) -> PyResult<Opened> {
    if source.is_instance_of::<PyString>() {
        return Ok(match source.extract::<String>() {
            Ok(address) if remote::is_remote(&address) => Opened::Address(address),
            // A path may hold bytes that are not Unicode.
            _ => Opened::Path(source.extract()?),
        });
    }
    if source.hasattr("read_ranges")? {
        return Ok(Opened::Source(Arc::new(Ranged::new(source)?)));
    }
    let buffer = BorrowedBuffer::of(PyUntypedBuffer::get(source)?)?;
    Ok(Opened::Source(Arc::new(Bytes { buffer })))
}

/// Memory that a Python object owns.
#[derive(Debug)]
struct Bytes {
    buffer: BorrowedBuffer,
}

impl Source for Bytes {
    fn name(&self) -> &str {
        "<bytes>"
    }

    fn size(&self) -> Result<u64, SourceError> {
        Ok(self.buffer.len() as u64)
    }

    fn read_many(&self, reads: &mut [ReadInto<'_>]) -> Result<(), SourceError> {
        for read in reads {
            if !self.buffer.copy_to(read.offset, read.buffer) {
                let (offset, len, size) = (read.offset, read.buffer.len() as u64, self.buffer.len() as u64);
                return Err(SourceError::BeyondEnd { offset, len, size });
            }
        }
        Ok(())
    }
}

/// A Python object that reads ranges of bytes: of a file-like object, fsspec or obstore.
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
        // An object without the attribute `remote` stands for a store, which serves many ranges at once best.
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
                let bytes = found.next().transpose()?;
                let bytes = bytes.ok_or_else(|| short(read.buffer.len(), 0))?;
                let buffer = BorrowedBuffer::of(PyUntypedBuffer::get(&bytes)?)?;
                if buffer.len() != read.buffer.len() || !buffer.copy_to(0, read.buffer) {
                    return Err(short(read.buffer.len(), buffer.len()));
                }
            }
            Ok(())
        })
    }
}

fn short(expected: usize, found: usize) -> PyErr {
    pyo3::exceptions::PyEOFError::new_err(format!("read_ranges returned {found} bytes for a range of {expected}"))
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
