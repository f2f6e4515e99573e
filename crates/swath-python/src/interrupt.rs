//! Long work that Ctrl-C ends.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{self, Receiver, RecvTimeoutError},
    },
    thread,
    time::Duration,
};

use pyo3::prelude::*;
use swath::{Cancel, Error, fork::starting};

use crate::errors::{self, OrRaise};

/// A read of less than so many bytes is done before a person could want to stop it.
pub const LONG: u64 = 64 << 20;
/// The same for a write: codecs such as LZMA take a second for two megabytes.
pub const LONG_WRITE: u64 = 1 << 20;
/// How often Python is asked whether somebody pressed Ctrl-C.
const LOOK: Duration = Duration::from_millis(50);

/// Why there is no result.
enum Ended {
    /// Somebody pressed Ctrl-C.
    Signal(PyErr),
    /// There is no thread that works.
    Unable(String),
}

impl Ended {
    fn into_exception(self, py: Python<'_>) -> PyErr {
        match self {
            Self::Signal(signal) => signal,
            Self::Unable(detail) => errors::usage(py, &detail),
        }
    }
}

/// Runs `work` without the interpreter's lock. Where it is `long` it runs beside this thread, which meanwhile looks for
/// signals: only the main thread sees any.
pub fn run<T: Send>(
    py: Python<'_>,
    long: bool,
    cancel: &Cancel,
    work: impl FnOnce() -> Result<T, Error> + Send,
) -> PyResult<T> {
    if !long || !is_main_thread(py) {
        return py.detach(work).or_raise(py);
    }
    let found = py.detach(|| {
        let (send, receive) = mpsc::channel();
        let left = &Left::new(work);
        // The other end notices when the thread ends without a result: the sender goes with it.
        let beside = move || left.run().map(|found| send.send(found));
        // The scope ends when the thread does, which a cancelled one does soon.
        thread::scope(|scope| {
            if starting(|| thread::Builder::new().spawn_scoped(scope, beside)).is_err() {
                return left.run().ok_or_else(lost);
            }
            let found = wait(&receive);
            if found.is_err() {
                cancel.cancel();
            }
            found
        })
    });
    found.map_err(|ended| ended.into_exception(py))?.or_raise(py)
}

/// Runs `work` that nothing can stop but its own deadline, such as a server's answer. Ctrl-C does not wait for it: it is left
/// to itself, and what it finds is dropped.
pub fn leave<T: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> PyResult<T> {
    if !is_main_thread(py) {
        return py.detach(work).or_raise(py);
    }
    let found = py.detach(|| {
        let (send, receive) = mpsc::channel();
        let left = Arc::new(Left::new(work));
        let beside = left.clone();
        let work = move || beside.run().map(|found| send.send(found));
        if starting(|| thread::Builder::new().spawn(work)).is_err() {
            return left.run().ok_or_else(lost);
        }
        wait(&receive)
    });
    found.map_err(|ended| ended.into_exception(py))?.or_raise(py)
}

/// What the thread sends, or the first signal.
fn wait<T>(receive: &Receiver<T>) -> Result<T, Ended> {
    loop {
        match receive.recv_timeout(LOOK) {
            Ok(found) => return Ok(found),
            Err(RecvTimeoutError::Timeout) => Python::attach(|py| py.check_signals()).map_err(Ended::Signal)?,
            Err(RecvTimeoutError::Disconnected) => return Err(lost()),
        }
    }
}

fn lost() -> Ended {
    Ended::Unable("the thread that worked has ended without a result".to_owned())
}

/// Work that is left to a thread. A system that gives no more threads gives work that Ctrl-C does not end, not work that
/// fails: then it is done where it was asked for.
struct Left<F>(Mutex<Option<F>>);

impl<T, F: FnOnce() -> T> Left<F> {
    fn new(work: F) -> Self {
        Self(Mutex::new(Some(work)))
    }

    /// What comes of it, the first time.
    fn run(&self) -> Option<T> {
        let work = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        work.map(|work| work())
    }
}

fn is_main_thread(py: Python<'_>) -> bool {
    let ask = || -> PyResult<bool> {
        let threading = py.import("threading")?;
        let (current, main) = (threading.call_method0("current_thread")?, threading.call_method0("main_thread")?);
        Ok(current.is(&main))
    };
    ask().unwrap_or(false)
}
