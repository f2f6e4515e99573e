//! Counts what is read.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::{
    remote::Traffic,
    source::{Access, ReadInto, Source, SourceError},
};

/// A source that counts reads and bytes.
#[derive(Debug)]
pub struct Count<S> {
    inner: S,
    reads: AtomicU64,
    bytes: AtomicU64,
}

impl<S: Source> Count<S> {
    /// Counts what is read from `inner`.
    pub fn new(inner: S) -> Self {
        Self { inner, reads: AtomicU64::new(0), bytes: AtomicU64::new(0) }
    }

    fn count(&self, reads: &[ReadInto<'_>]) {
        self.reads.fetch_add(reads.len() as u64, Ordering::Relaxed);
        self.bytes.fetch_add(reads.iter().map(|read| read.buffer.len() as u64).sum(), Ordering::Relaxed);
    }

    /// Ranges read so far.
    pub fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    /// Bytes read so far.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

impl<S: Source> Source for Count<S> {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn size(&self) -> Result<u64, SourceError> {
        self.inner.size()
    }

    fn read_many(&self, reads: &mut [ReadInto<'_>]) -> Result<(), SourceError> {
        self.count(reads);
        self.inner.read_many(reads)
    }

    fn read_many_unless(
        &self,
        reads: &mut [ReadInto<'_>],
        stop: &(dyn Fn() -> bool + Sync),
    ) -> Result<(), SourceError> {
        self.count(reads);
        self.inner.read_many_unless(reads, stop)
    }

    fn access(&self) -> Access {
        self.inner.access()
    }

    fn traffic(&self) -> Option<Traffic> {
        self.inner.traffic()
    }

    fn version(&self) -> Option<String> {
        self.inner.version()
    }

    fn as_file(&self) -> Option<&std::fs::File> {
        self.inner.as_file()
    }
}
