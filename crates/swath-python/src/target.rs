//! The target of a write: a path or address, memory, or a Python object with `write`.

use std::{
    io::{self, Write},
    path::PathBuf,
};

use pyo3::{
    prelude::*,
    types::{PyBytes, PyString},
};
use swath::{
    Error, Metadata, Shape, WriteOptions, Writer,
    io::{Memory, MemorySink, Sink, StreamSink},
};

use crate::errors::{self, io_error};

/// What the caller pushes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pushes {
    /// Rows of pixels, from the top.
    Rows,
    /// Tile rows that a `TileRowEncoder` encoded; this process then needs no GPU.
    TileRows,
    /// Blocks of pixels, in any order.
    Blocks,
}

impl Pushes {
    /// Returns the kind that a word names.
    pub fn of(py: Python<'_>, word: &str) -> PyResult<Self> {
        match word {
            "rows" => Ok(Self::Rows),
            "tile_rows" => Ok(Self::TileRows),
            "blocks" => Ok(Self::Blocks),
            _ => Err(errors::usage(py, &format!("pushes: {word:?} is not rows, tile_rows or blocks"))),
        }
    }
}

/// The target of a write.
pub enum Target {
    /// A local file, or an address in a store.
    Path(PathBuf),
    /// Memory, whose bytes `finish` returns.
    Memory,
    /// An object with `write`.
    Stream(Py<PyAny>),
}

impl Target {
    /// Returns the target that the caller gives: `None`, a path or address as text, or an object with `write`.
    pub fn of(target: &Bound<'_, PyAny>) -> Self {
        if target.is_none() {
            return Self::Memory;
        }
        match target.extract() {
            Ok(path) if target.is_instance_of::<PyString>() => Self::Path(path),
            _ => Self::Stream(target.clone().unbind()),
        }
    }

    /// Whether the target is an address in a store.
    pub fn is_remote(&self) -> bool {
        matches!(self, Self::Path(path) if path.to_str().is_some_and(swath::io::remote::is_remote))
    }

    /// Creates the writer; for memory, also returns the handle that holds the bytes in the end.
    pub fn begin(
        self,
        shape: Shape,
        metadata: &Metadata,
        options: &WriteOptions,
        pushes: Pushes,
    ) -> Result<(Writer, Option<Memory>), Error> {
        let (sink, memory): (Box<dyn Sink>, _) = match self {
            Self::Path(path) => {
                let writer = match pushes {
                    Pushes::Rows => Writer::create(path, shape, metadata, options),
                    Pushes::TileRows => Writer::create_from_tile_rows(path, shape, metadata, options),
                    Pushes::Blocks => Writer::create_from_blocks(path, shape, metadata, options),
                };
                return Ok((writer?, None));
            }
            Self::Memory => {
                let (sink, memory) = MemorySink::new("<memory>");
                (Box::new(sink), Some(memory))
            }
            Self::Stream(object) => (Box::new(StreamSink::new("<stream>", Stream::new(object))?), None),
        };
        let begin = match pushes {
            Pushes::Rows => Writer::to_sink,
            Pushes::TileRows => Writer::to_sink_from_tile_rows,
            Pushes::Blocks => Writer::to_sink_from_blocks,
        };
        Ok((begin(sink, shape, metadata, options)?, memory))
    }
}

/// A Python object that takes bytes in order.
struct Stream {
    object: Py<PyAny>,
    /// Whether to empty it first. A `BytesIO` is read from its first byte; other objects may be positioned anywhere in something
    /// longer, such as a pipe or an archive.
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
            // A raw file may write fewer bytes and returns how many; other objects may return nothing.
            Ok(if written.is_none() { bytes.len() } else { written.extract()? })
        });
        match written.map_err(io_error)? {
            count if count > bytes.len() => {
                let detail = format!("write() reports {count} bytes written, but it got {}", bytes.len());
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
