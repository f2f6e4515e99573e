//! A sink that fails on demand, so that tests can try every failure.

use std::{
    io,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use crate::sink::{Sink, SinkError};

/// Forwards calls to another sink. A chosen call, and all calls after it, fail.
#[derive(Debug)]
pub struct Faulty {
    inner: Box<dyn Sink>,
    calls: Arc<AtomicU64>,
    fails_at: u64,
    kind: io::ErrorKind,
}

impl Faulty {
    /// Fails the call with number `fails_at` (counted from 0) and those after it; `calls` counts them.
    pub fn new(inner: Box<dyn Sink>, fails_at: u64, kind: io::ErrorKind, calls: Arc<AtomicU64>) -> Self {
        Self { inner, calls, fails_at, kind }
    }

    fn call(&self) -> Result<(), SinkError> {
        if self.calls.fetch_add(1, Ordering::SeqCst) < self.fails_at {
            return Ok(());
        }
        Err(SinkError::io("injected fault", self.kind.into()))
    }
}

impl Sink for Faulty {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), SinkError> {
        self.call()?;
        self.inner.write_at(offset, bytes)
    }

    fn write_chunk(&self) -> usize {
        self.inner.write_chunk()
    }

    fn remove(&mut self, gaps: &[Range<u64>], size: u64) -> Result<(), SinkError> {
        self.call()?;
        self.inner.remove(gaps, size)
    }

    fn commit(self: Box<Self>, size: u64) -> Result<(), SinkError> {
        self.call()?;
        self.inner.commit(size)
    }
}
