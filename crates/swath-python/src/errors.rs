//! Turns errors of the engine into the exceptions of `swath._errors`.

use std::io;

use pyo3::{exceptions::PyException, prelude::*, types::PyDict};
use swath::{
    Error, ErrorKind,
    io::{RemoteFault, SinkError, SourceError},
};

/// Returns the kind of an error as `swath._errors.make` names it, and the operating system's errno where there is one.
fn kind(error: &Error) -> (&'static str, Option<i32>) {
    match error.kind() {
        ErrorKind::Source(SourceError::Remote { fault, .. }) => remote("source", *fault),
        ErrorKind::Sink(SinkError::Remote { fault, .. }) => remote("write", *fault),
        ErrorKind::Malformed(_) | ErrorKind::Codec(_) => ("format", None),
        ErrorKind::Unsupported(_) => ("unsupported", None),
        ErrorKind::Limit(_) => ("limit", None),
        ErrorKind::Source(source) => ("source", source.os_error().or_else(|| errno_of(source.io_kind()?))),
        ErrorKind::Sink(sink) => ("write", sink.os_error().or_else(|| errno_of(sink.io_kind()))),
        ErrorKind::Device(_) => ("device", None),
        ErrorKind::Cancelled => ("cancelled", None),
        ErrorKind::Memory(_) => ("memory", None),
        ErrorKind::Internal(_) => ("internal", None),
        _ => ("usage", None),
    }
}

/// Returns the same for a fault of a server or store, in a read (`side` is "source") or a write ("write").
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
        _ => (side, errno_of(fault.io_kind())),
    }
}

/// Returns the errno by which Python chooses an exception, for errors that did not come from the operating system.
fn errno_of(kind: io::ErrorKind) -> Option<i32> {
    use io::ErrorKind as Io;
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

/// Returns the exception that the caller's own source or stream raised, where that caused the error.
fn raised(error: &Error) -> Option<&PyErr> {
    let error = match error.kind() {
        ErrorKind::Source(source) => source.io_error()?,
        ErrorKind::Sink(sink) => sink.io_error()?,
        _ => return None,
    };
    carried(error)
}

/// Returns the exception for an error of the engine.
pub fn of(py: Python<'_>, error: &Error) -> PyErr {
    let cause = raised(error).map(|cause| cause.clone_ref(py));
    // An interrupt, or an exit of the program, is passed on as it is.
    if let Some(cause) = cause.as_ref().filter(|cause| !cause.is_instance_of::<PyException>(py)) {
        return cause.clone_ref(py);
    }
    let exception = exception_of(py, error);
    if cause.is_some() {
        exception.set_cause(py, cause);
    }
    exception
}

/// Returns how a Python caller lifts one of the engine's limits.
fn advice(field: &'static str) -> Option<String> {
    match field {
        "decoded_bytes" | "tile_bytes" | "expansion" => {
            Some("give max_pixels=, the most samples that you want to read, if you trust the file".to_owned())
        }
        "max_memory" => Some("or raise max_memory=".to_owned()),
        _ => None,
    }
}

fn exception_of(py: Python<'_>, error: &Error) -> PyErr {
    let (kind, errno) = kind(error);
    make(py, kind, &error.message_with(advice), &error.kind().to_string(), |dict| {
        let place = error.place();
        // Setting an item of a new dictionary fails only when memory runs out.
        let _ = dict.set_item("file", place.source.as_deref());
        let _ = dict.set_item("ifd", place.ifd);
        let _ = dict.set_item("tag", place.tag);
        let _ = dict.set_item("tile", place.tile);
        let _ = dict.set_item("offset", place.offset);
        let _ = dict.set_item("errno", errno);
    })
}

/// Wraps an exception in an I/O error, which carries it along.
pub fn io_error(error: PyErr) -> io::Error {
    let errno = Python::attach(|py| error.value(py).getattr("errno").ok()?.extract::<i32>().ok());
    let kind = errno.map_or(io::ErrorKind::Other, |number| io::Error::from_raw_os_error(number).kind());
    io::Error::new(kind, error)
}

/// Returns the exception that an I/O error carries.
fn carried(error: &io::Error) -> Option<&PyErr> {
    error.get_ref()?.downcast_ref::<PyErr>()
}

/// Returns a `UsageError`: the caller did something wrong.
pub fn usage(py: Python<'_>, detail: &str) -> PyErr {
    make(py, "usage", detail, detail, |_| {})
}

/// Returns an `AllocationError`: `len` bytes could not be allocated.
pub fn allocation(py: Python<'_>, len: u64) -> PyErr {
    let detail = format!("cannot allocate {len} bytes");
    make(py, "memory", &detail, &detail, |_| {})
}

/// Returns an `InternalError`: swath itself did something wrong.
pub fn internal(py: Python<'_>, detail: &str) -> PyErr {
    let detail = format!("internal error: {detail}");
    make(py, "internal", &detail, &detail, |_| {})
}

/// Turns the error of an engine call into an exception.
pub trait OrRaise<T> {
    fn or_raise(self, py: Python<'_>) -> PyResult<T>;
}

impl<T> OrRaise<T> for Result<T, Error> {
    fn or_raise(self, py: Python<'_>) -> PyResult<T> {
        self.map_err(|error| of(py, &error))
    }
}
