//! Runs long work so that Ctrl-C can stop it.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{self, Receiver, RecvTimeoutError},
    },
    thread,
    time::Duration,
};

use pyo3::prelude::*;
use swath::{Cancel, Error, io::fork::starting};

use crate::errors::{self, OrRaise};

/// Bytes above which a read counts as long: shorter reads end before a person could want to stop them.
pub const LONG: u64 = 64 << 20;
/// Bytes above which a write counts as long: codecs such as LZMA take a second for two megabytes.
pub const LONG_WRITE: u64 = 1 << 20;
/// How often the waiting thread asks Python for signals.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(50);

/// Why work ended without a result.
enum Ended {
    /// A signal such as Ctrl-C arrived.
    Signal(PyErr),
    /// The thread that worked ended without a result.
    Lost(String),
}

impl Ended {
    fn into_exception(self, py: Python<'_>) -> PyErr {
        match self {
            Self::Signal(signal) => signal,
            Self::Lost(detail) => errors::internal(py, &detail),
        }
    }
}

/// Runs `work` without the GIL. `long` work called from the main thread runs in a second thread, while the main thread, the only
/// one that sees signals, checks for them; a signal cancels the work.
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
        let once = &RunOnce::new(work);
        // The thread owns the sender, so the receiver notices when the thread ends without a result.
        let in_thread = move || once.run().map(|found| send.send(found));
        // The scope waits for the thread, which ends soon after it is cancelled.
        thread::scope(|scope| {
            if starting(|| thread::Builder::new().spawn_scoped(scope, in_thread)).is_err() {
                return once.run().ok_or_else(lost);
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

/// Runs `work` that cannot be cancelled, such as waiting for a server's answer. After Ctrl-C its thread runs on in the
/// background, and its result is dropped.
pub fn run_detached<T: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> PyResult<T> {
    if !is_main_thread(py) {
        return py.detach(work).or_raise(py);
    }
    let found = py.detach(|| {
        let (send, receive) = mpsc::channel();
        let once = Arc::new(RunOnce::new(work));
        let shared = once.clone();
        let work = move || shared.run().map(|found| send.send(found));
        if starting(|| thread::Builder::new().spawn(work)).is_err() {
            return once.run().ok_or_else(lost);
        }
        wait(&receive)
    });
    found.map_err(|ended| ended.into_exception(py))?.or_raise(py)
}

/// Returns what the thread sends, or the first signal.
fn wait<T>(receive: &Receiver<T>) -> Result<T, Ended> {
    loop {
        match receive.recv_timeout(SIGNAL_INTERVAL) {
            Ok(found) => return Ok(found),
            Err(RecvTimeoutError::Timeout) => Python::attach(|py| py.check_signals()).map_err(Ended::Signal)?,
            Err(RecvTimeoutError::Disconnected) => return Err(lost()),
        }
    }
}

fn lost() -> Ended {
    Ended::Lost("the thread that did the work ended without a result".to_owned())
}

/// Work that runs once, in a second thread or, where the system starts no more threads, in the calling one. There Ctrl-C
/// cannot stop it, which is better than failing.
struct RunOnce<F>(Mutex<Option<F>>);

impl<T, F: FnOnce() -> T> RunOnce<F> {
    fn new(work: F) -> Self {
        Self(Mutex::new(Some(work)))
    }

    /// Runs the work and returns its result; `None` if it ran before.
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
