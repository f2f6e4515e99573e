//! Errors of the engine as the exceptions that `swath._errors` defines.

use pyo3::{exceptions::PyException, prelude::*, types::PyDict};
use swath::{Error, ErrorKind, RemoteFault, SinkError, SourceError};

use crate::source;

/// The word by which `swath._errors.make` knows the kind, and the operating system's own number where there is one.
fn kind(error: &Error) -> (&'static str, Option<i32>) {
    match error.kind() {
        ErrorKind::Source(SourceError::Remote { fault, .. }) => remote("source", *fault),
        ErrorKind::Sink(SinkError::Remote { fault, .. }) => remote("write", *fault),
        ErrorKind::Malformed(_) | ErrorKind::Codec(_) => ("format", None),
        ErrorKind::Unsupported(_) => ("unsupported", None),
        ErrorKind::Limit(_) => ("limit", None),
        ErrorKind::Source(source) => ("source", source.os_error().or_else(|| number(source.io_kind()?))),
        ErrorKind::Sink(sink) => ("write", sink.os_error().or_else(|| number(sink.io_kind()))),
        ErrorKind::Device(_) => ("device", None),
        ErrorKind::Cancelled => ("cancelled", None),
        _ => ("usage", None),
    }
}

/// The same for what a server or store did to a read ("source") or a write ("write").
fn remote(side: &'static str, fault: RemoteFault) -> (&'static str, Option<i32>) {
    match (fault, side) {
        (RemoteFault::Budget, _) => ("limit", None),
        (RemoteFault::Setup, _) => ("usage", None),
        (RemoteFault::Cancelled, _) => ("cancelled", None),
        (RemoteFault::Changed, "source") => ("changed", None),
        (RemoteFault::TimedOut, "source") => ("timeout", None),
        (RemoteFault::TimedOut, _) => ("write_timeout", None),
        (RemoteFault::Unavailable, "source") => ("unavailable", None),
        (RemoteFault::Unavailable, _) => ("write_unavailable", None),
        _ => (side, number(fault.io_kind())),
    }
}

/// The number by which Python chooses an exception, for errors that did not come from the system itself.
fn number(kind: std::io::ErrorKind) -> Option<i32> {
    use std::io::ErrorKind as Io;
    Some(match kind {
        Io::NotFound => 2,
        Io::PermissionDenied => 13,
        Io::IsADirectory => 21,
        _ => return None,
    })
}

fn make(py: Python<'_>, kind: &str, message: &str, reason: &str, fill: impl Fn(&Bound<'_, PyDict>)) -> PyErr {
    let build = || -> PyResult<PyErr> {
        let place = PyDict::new(py);
        fill(&place);
        let module = py.import("swath._errors")?;
        Ok(PyErr::from_value(module.call_method1("make", (kind, message, reason, place))?))
    };
    build().unwrap_or_else(|error| error)
}

/// The exception of Python's that a source or a stream of the caller's raised, where that is behind the error.
fn raised(error: &Error) -> Option<&PyErr> {
    let error = match error.kind() {
        ErrorKind::Source(source) => source.io_error()?,
        ErrorKind::Sink(sink) => sink.io_error()?,
        _ => return None,
    };
    source::carried(error)
}

/// The engine's error as an exception.
pub fn of(py: Python<'_>, error: &Error) -> PyErr {
    let cause = raised(error).map(|cause| cause.clone_ref(py));
    // An interrupt, or the end of the program, is no failure of a file.
    if let Some(cause) = cause.as_ref().filter(|cause| !cause.is_instance_of::<PyException>(py)) {
        return cause.clone_ref(py);
    }
    let made = told(py, error);
    if cause.is_some() {
        made.set_cause(py, cause);
    }
    made
}

/// What lifts one of the engine's limits in Python.
fn advice(field: &'static str) -> Option<String> {
    match field {
        "decoded_bytes" | "tile_bytes" | "expansion" => {
            Some("give max_pixels=, the most samples that you want to read, if you trust the file".to_owned())
        }
        "max_memory" => Some("or raise max_memory=".to_owned()),
        _ => None,
    }
}

fn told(py: Python<'_>, error: &Error) -> PyErr {
    let (kind, errno) = kind(error);
    make(py, kind, &error.told(advice), &error.kind().to_string(), |dict| {
        let place = error.place();
        // Setting an item of a new dictionary fails only for want of memory.
        let _ = dict.set_item("file", place.source.as_deref());
        let _ = dict.set_item("ifd", place.ifd);
        let _ = dict.set_item("tag", place.tag);
        let _ = dict.set_item("tile", place.tile);
        let _ = dict.set_item("offset", place.offset);
        let _ = dict.set_item("errno", errno);
    })
}

/// An error of the caller's making.
pub fn usage(py: Python<'_>, detail: &str) -> PyErr {
    make(py, "usage", detail, detail, |_| {})
}

/// What an engine call gave, with its error as an exception.
pub trait OrRaise<T> {
    fn or_raise(self, py: Python<'_>) -> PyResult<T>;
}

impl<T> OrRaise<T> for Result<T, Error> {
    fn or_raise(self, py: Python<'_>) -> PyResult<T> {
        self.map_err(|error| of(py, &error))
    }
}
