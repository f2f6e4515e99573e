//! Where a file that is written goes: a path or address, memory, or an object of Python's with `write`.

use std::{
    io::{self, Write},
    path::PathBuf,
};

use pyo3::{
    prelude::*,
    types::{PyBytes, PyString},
};
use swath::{Error, Memory, MemorySink, Metadata, Shape, Sink, StreamSink, WriteOptions, Writer};

use crate::{errors, source::io_error};

/// What a file is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parts {
    /// Rows, from the top.
    Rows,
    /// Bands that a `BandEncoder` made, which takes no GPU here.
    Bands,
    /// Blocks in any order.
    Blocks,
}

impl Parts {
    /// From the caller's word.
    pub fn of(py: Python<'_>, word: &str) -> PyResult<Self> {
        match word {
            "rows" => Ok(Self::Rows),
            "bands" => Ok(Self::Bands),
            "blocks" => Ok(Self::Blocks),
            _ => Err(errors::usage(py, &format!("parts: {word:?} is not rows, bands or blocks"))),
        }
    }
}

/// The target of a write.
pub enum Target {
    /// A file of this machine, or an address in a store.
    Path(PathBuf),
    /// Bytes that are handed back.
    Memory,
    /// An object with `write`.
    Stream(Py<PyAny>),
}

impl Target {
    /// From what the caller gave.
    pub fn of(target: &Bound<'_, PyAny>) -> Self {
        if target.is_none() {
            return Self::Memory;
        }
        match target.extract() {
            Ok(path) if target.is_instance_of::<PyString>() => Self::Path(path),
            _ => Self::Stream(target.clone().unbind()),
        }
    }

    /// Whether it is a store.
    pub fn is_remote(&self) -> bool {
        matches!(self, Self::Path(path) if path.to_str().is_some_and(swath::remote::is_remote))
    }

    /// Begins the file; for memory, also says where its bytes appear.
    pub fn begin(
        self,
        shape: Shape,
        metadata: &Metadata,
        options: &WriteOptions,
        parts: Parts,
    ) -> Result<(Writer, Option<Memory>), Error> {
        let (sink, memory): (Box<dyn Sink>, _) = match self {
            Self::Path(path) => {
                let writer = match parts {
                    Parts::Rows => Writer::create(path, shape, metadata, options),
                    Parts::Bands => Writer::create_from_bands(path, shape, metadata, options),
                    Parts::Blocks => Writer::create_from_blocks(path, shape, metadata, options),
                };
                return Ok((writer?, None));
            }
            Self::Memory => {
                let (sink, memory) = MemorySink::new("<memory>");
                (Box::new(sink), Some(memory))
            }
            Self::Stream(object) => (Box::new(StreamSink::new("<stream>", Stream::new(object))?), None),
        };
        let begin = match parts {
            Parts::Rows => Writer::to_sink,
            Parts::Bands => Writer::to_sink_from_bands,
            Parts::Blocks => Writer::to_sink_from_blocks,
        };
        Ok((begin(sink, shape, metadata, options)?, memory))
    }
}

/// A Python object that takes bytes in order.
struct Stream {
    object: Py<PyAny>,
    /// Whether what it holds has to go first. A file in memory is read from its first byte; others may be at any place
    /// of something longer, a pipe or an archive.
    replace: bool,
}

impl Stream {
    fn new(object: Py<PyAny>) -> Self {
        let replace = Python::attach(|py| -> PyResult<bool> {
            let kind = PyModule::import(py, "io")?.getattr("BytesIO")?;
            object.bind(py).is_instance(&kind)
        });
        let replace = replace.unwrap_or(false);
        Self { object, replace }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = Python::attach(|py| -> PyResult<usize> {
            if self.replace {
                self.object.bind(py).call_method1("seek", (0,))?;
                self.object.bind(py).call_method1("truncate", (0,))?;
                self.replace = false;
            }
            let given = PyBytes::new(py, bytes);
            let written = self.object.bind(py).call_method1("write", (given,))?;
            // Raw files may take less than they are given; others say nothing.
            Ok(if written.is_none() { bytes.len() } else { written.extract()? })
        });
        match written.map_err(io_error)? {
            count if count > bytes.len() => {
                let detail = format!("write() says that it took {count} bytes where it was given {}", bytes.len());
                Err(io::Error::other(detail))
            }
            count => Ok(count),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        let flushed = Python::attach(|py| -> PyResult<()> {
            let object = self.object.bind(py);
            if object.hasattr("flush")? {
                object.call_method0("flush")?;
            }
            Ok(())
        });
        flushed.map_err(io_error)
    }
}
