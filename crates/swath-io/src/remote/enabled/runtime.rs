//! The threads that wait for the network: few, made on first use, and made anew in a forked child.

use std::{future::Future, io, sync::OnceLock, sync::mpsc, time::Duration};

use tokio::runtime::{Builder, Handle, Runtime};

use super::{RemoteFault, failure::Failure};

/// Forks of forks of forks that are provided for.
const GENERATIONS: usize = 16;

/// Threads that carry bytes; decoding is done elsewhere.
const THREADS: usize = 2;

/// How often a caller that may stop is asked.
const POLL: Duration = Duration::from_millis(50);

/// A value that every process has its own of, although a fork copies memory. What the parent made stays where it is and
/// is never dropped: its threads do not exist in the child, and its sockets are the parent's. There is no lock that
/// another thread could hold at the moment of the fork.
pub(crate) struct PerProcess<T>([OnceLock<(u32, T)>; GENERATIONS]);

impl<T> PerProcess<T> {
    pub(crate) const fn new() -> Self {
        Self([const { OnceLock::new() }; GENERATIONS])
    }

    /// This process's own, made if there is none yet.
    pub(crate) fn get(&self, mut make: impl FnMut() -> io::Result<T>) -> io::Result<&T> {
        let process = std::process::id();
        for slot in &self.0 {
            if slot.get().is_none() {
                // Where another thread was quicker, its value is taken and this one dropped.
                let _ = slot.set((process, make()?));
            }
            if let Some((owner, value)) = slot.get()
                && *owner == process
            {
                return Ok(value);
            }
        }
        Err(io::Error::other(format!("this process is a fork of more than {GENERATIONS} forks")))
    }
}

/// A runtime that can be dropped anywhere, also where blocking is not allowed.
struct Threads(Option<Runtime>);

impl Drop for Threads {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

static RUNTIME: PerProcess<(Handle, Threads)> = PerProcess::new();

/// The runtime of this process.
pub(crate) fn runtime() -> io::Result<Handle> {
    let make = || {
        let runtime =
            Builder::new_multi_thread().worker_threads(THREADS).thread_name("swath-remote").enable_all().build()?;
        Ok((runtime.handle().clone(), Threads(Some(runtime))))
    };
    Ok(RUNTIME.get(make)?.0.clone())
}

/// As [`runtime`], with a failure that says what was wanted.
pub(crate) fn handle() -> Result<Handle, Failure> {
    runtime()
        .map_err(|error| Failure::new(RemoteFault::Setup, format!("cannot start threads for the network: {error}")))
}

/// Work on the runtime that ends with whoever waits for it.
pub(crate) struct Tasks(Vec<tokio::task::AbortHandle>);

impl Drop for Tasks {
    fn drop(&mut self) {
        for task in &self.0 {
            task.abort();
        }
    }
}

/// Runs every future on the runtime, all at once, and hands on what each gives, as it comes, with its number. The
/// calling thread only waits on a channel, so that it may belong to any runtime or none.
pub(crate) fn each<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
    futures: impl Iterator<Item = F>,
    stop: Option<&(dyn Fn() -> bool + Sync)>,
    mut take: impl FnMut(usize, T) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let runtime = handle()?;
    let (sender, receiver) = mpsc::channel();
    let tasks: Vec<_> = futures
        .enumerate()
        .map(|(number, future)| {
            let sender = sender.clone();
            let task = runtime.spawn(async move {
                // Nobody listens any more when another one has failed.
                let _ = sender.send((number, future.await));
            });
            task.abort_handle()
        })
        .collect();
    drop(sender);
    let tasks = Tasks(tasks);
    for _ in 0..tasks.0.len() {
        let (number, value) = next(&receiver, stop)?;
        take(number, value)?;
    }
    Ok(())
}

/// Runs one future on the runtime and hands on what is seen of its work, until it ends.
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
    // What is shown comes to an end when the future does, and drops the other end.
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
    fn a_value_is_made_once() {
        let slots = PerProcess::new();
        assert_eq!(slots.get(|| Ok(1)).unwrap(), &1);
        assert_eq!(slots.get(|| Ok(2)).unwrap(), &1);
    }

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
