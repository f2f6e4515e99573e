//! Long work that Ctrl-C ends.

use std::{sync::mpsc, time::Duration};

use pyo3::prelude::*;
use swath::{Cancel, Error};

use crate::errors::{self, OrRaise};

/// Work below so many bytes is done before a person could want to stop it.
pub const LONG: u64 = 64 << 20;
/// How often Python is asked whether somebody pressed Ctrl-C.
const LOOK: Duration = Duration::from_millis(50);

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
    let interrupted = py.detach(|| {
        let (send, receive) = mpsc::channel();
        std::thread::scope(|scope| {
            let started = std::thread::Builder::new().spawn_scoped(scope, move || {
                // The receiver is there until the scope ends.
                let _ = send.send(work());
            });
            if let Err(error) = started {
                return Err(errors_without_thread(&error));
            }
            let mut signal = None;
            loop {
                match receive.recv_timeout(LOOK) {
                    Ok(result) => return Ok((result, signal)),
                    Err(mpsc::RecvTimeoutError::Timeout) if signal.is_none() => {
                        signal = Python::attach(|py| py.check_signals().err());
                        if signal.is_some() {
                            cancel.cancel();
                        }
                    }
                    Err(mpsc::RecvTimeoutError::Timeout) => {}
                    Err(mpsc::RecvTimeoutError::Disconnected) => {
                        return Err("the thread that worked has ended without a result".to_owned());
                    }
                }
            }
        })
    });
    match interrupted {
        Ok((_, Some(signal))) => Err(signal),
        Ok((result, None)) => result.or_raise(py),
        Err(detail) => Err(errors::usage(py, &detail)),
    }
}

fn errors_without_thread(error: &std::io::Error) -> String {
    format!("there is no thread to work in: {error}")
}

fn is_main_thread(py: Python<'_>) -> bool {
    let ask = || -> PyResult<bool> {
        let threading = py.import("threading")?;
        let (current, main) = (threading.call_method0("current_thread")?, threading.call_method0("main_thread")?);
        Ok(current.is(&main))
    };
    ask().unwrap_or(false)
}
