//! The threads that wait for the network: few, started on first use, and started anew in a forked child.

use std::{
    future::Future,
    io,
    sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use tokio::{
    runtime::{Builder, Handle},
    sync::oneshot,
};

use super::failure::Failure;
use crate::fault::RemoteFault;
use crate::fork::{PerProcess, starting};

/// Number of threads. They only transfer bytes; decoding happens elsewhere.
const THREADS: usize = 2;

/// How often a waiting caller checks whether it is cancelled.
pub(super) const POLL: Duration = Duration::from_millis(50);

/// The threads of a process. Each has its own runtime: a runtime with several threads would panic if the system gave no thread, and
/// wait for ever if it gave too few.
struct Threads {
    handles: Vec<Handle>,
    next: AtomicUsize,
    /// A thread ends when its sender is dropped.
    _running: Vec<oneshot::Sender<()>>,
}

impl Threads {
    /// Starts up to `THREADS` threads; fails only if none starts.
    fn start() -> io::Result<Self> {
        let (mut handles, mut running) = (Vec::new(), Vec::new());
        for _ in 0..THREADS {
            match start_thread() {
                Ok((handle, end)) => {
                    handles.push(handle);
                    running.push(end);
                }
                Err(error) if handles.is_empty() => return Err(error),
                // The threads that were started do the work.
                Err(_) => break,
            }
        }
        Ok(Self { handles, next: AtomicUsize::new(0), _running: running })
    }

    /// The runtime of the next thread, in turn.
    fn handle(&self) -> io::Result<Handle> {
        let turn = self.next.fetch_add(1, Ordering::Relaxed) % self.handles.len().max(1);
        self.handles.get(turn).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

fn start_thread() -> io::Result<(Handle, oneshot::Sender<()>)> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let handle = runtime.handle().clone();
    let (running, end) = oneshot::channel::<()>();
    let work = move || {
        // Nothing is ever sent: this waits until the sender is dropped.
        let _ = runtime.block_on(end);
    };
    starting(|| thread::Builder::new().name("swath-remote".into()).spawn(work))?;
    Ok((handle, running))
}

/// The runtime of one of this process's threads.
fn runtime() -> io::Result<Handle> {
    static THREADS_OF_PROCESS: PerProcess<Threads> = PerProcess::new();
    THREADS_OF_PROCESS.get_or_try(Threads::start)?.handle()
}

/// As [`runtime`], with an error message for the user.
pub(crate) fn handle() -> Result<Handle, Failure> {
    runtime().map_err(|error| {
        let detail = format!(
            "cannot start a thread for the network: {error}; end other programs of this user, or allow more threads \
             (`ulimit -u`, or the pids limit of the container)"
        );
        Failure::new(RemoteFault::Setup, detail)
    })
}

/// Tasks on the runtime, which are aborted when this is dropped.
pub(crate) struct Tasks(Vec<tokio::task::AbortHandle>);

impl Drop for Tasks {
    fn drop(&mut self) {
        for task in &self.0 {
            task.abort();
        }
    }
}

/// Runs all futures on the runtime at once, and passes each result with its index to `take` as it arrives. The calling thread only
/// waits on a channel, so it may belong to any runtime or none.
pub(crate) fn each<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
    futures: impl Iterator<Item = F>,
    stop: Option<&(dyn Fn() -> bool + Sync)>,
    mut take: impl FnMut(usize, T) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let (sender, receiver) = mpsc::channel();
    let mut tasks = Tasks(Vec::new());
    for (number, future) in futures.enumerate() {
        let sender = sender.clone();
        let task = handle()?.spawn(async move {
            // Sending fails if another future has failed.
            let _ = sender.send((number, future.await));
        });
        tasks.0.push(task.abort_handle());
    }
    drop(sender);
    for _ in 0..tasks.0.len() {
        let (number, value) = next(&receiver, stop)?;
        take(number, value)?;
    }
    Ok(())
}

/// Runs one future on the runtime, and passes its events to `take` until it ends.
pub(crate) fn watched<T: Send + 'static, E>(
    future: impl Future<Output = T> + Send + 'static,
    seen: &mpsc::Receiver<E>,
    stop: &(dyn Fn() -> bool + Sync),
    mut take: impl FnMut(E),
) -> Result<T, Failure> {
    let (sender, ended) = mpsc::channel();
    let task = handle()?.spawn(async move {
        let _ = sender.send(future.await);
    });
    let _tasks = Tasks(vec![task.abort_handle()]);
    // The events end when the future does and drops the sender.
    loop {
        match seen.recv_timeout(POLL) {
            Ok(found) => take(found),
            Err(mpsc::RecvTimeoutError::Disconnected) => return next(&ended, Some(stop)),
            Err(mpsc::RecvTimeoutError::Timeout) => {}
        }
        if stop() {
            return Err(Failure::new(RemoteFault::Cancelled, "the read was stopped"));
        }
    }
}

/// Runs one future on the runtime and waits for it.
pub(crate) fn wait<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> Result<T, Failure> {
    let mut found = None;
    each(std::iter::once(future), None, |_, value| {
        found = Some(value);
        Ok(())
    })?;
    found.ok_or_else(lost)
}

fn next<T>(receiver: &mpsc::Receiver<T>, stop: Option<&(dyn Fn() -> bool + Sync)>) -> Result<T, Failure> {
    let Some(stop) = stop else { return receiver.recv().map_err(|_| lost()) };
    loop {
        match receiver.recv_timeout(POLL) {
            Ok(value) => return Ok(value),
            Err(mpsc::RecvTimeoutError::Disconnected) => return Err(lost()),
            Err(mpsc::RecvTimeoutError::Timeout) if stop() => {
                return Err(Failure::new(RemoteFault::Cancelled, "the read was stopped"));
            }
            Err(mpsc::RecvTimeoutError::Timeout) => {}
        }
    }
}

fn lost() -> Failure {
    Failure::new(RemoteFault::Unavailable, "a thread of the network ended before its work was done")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_is_allowed_inside_another_runtime() {
        let other = tokio::runtime::Builder::new_current_thread().build().unwrap();
        assert_eq!(other.block_on(async { wait(async { 7 }).unwrap() }), 7);
    }

    #[test]
    fn work_is_dropped_when_it_is_stopped() {
        let forever = std::iter::once(std::future::pending::<()>());
        let failure = each(forever, Some(&|| true), |_, ()| Ok(())).unwrap_err();
        assert_eq!(failure.fault, RemoteFault::Cancelled);
    }
}
