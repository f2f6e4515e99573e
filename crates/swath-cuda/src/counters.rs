//! The cost of a read or a write: each call counts itself.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counts of one read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Device buffers the read took, new or from the pool.
    pub buffers: u64,
    /// Buffers among these that the driver had to allocate.
    pub allocations: u64,
    /// Bytes the driver had to allocate for them.
    pub allocated_bytes: u64,
    /// Pinned host buffers the driver had to allocate.
    pub pinned_allocations: u64,
    /// Copies to the device.
    pub uploads: u64,
    /// Bytes of these copies.
    pub uploaded_bytes: u64,
    /// Copies from the device.
    pub downloads: u64,
    /// Bytes of these copies.
    pub downloaded_bytes: u64,
    /// Kernels launched, without those of libraries.
    pub launches: u64,
    /// Times the host waited for the device.
    pub synchronisations: u64,
    /// Times that a thread waited until a library's state was free for the next tiles. The device kept working
    /// meanwhile.
    pub library_waits: u64,
    /// Copies that were started before the host waited for the first time.
    pub uploads_before_first_wait: u64,
    /// Most device memory that the read held at once, including its result.
    pub peak_bytes: u64,
    /// Reads that the engine submitted to cuFile.
    pub storage_reads: u64,
    /// Times a thread waited for cuFile's reads.
    pub storage_waits: u64,
    /// Bytes that cuFile read.
    pub storage_bytes: u64,
}

/// Counters that the threads of one read share and add to.
#[derive(Debug, Default)]
pub struct Meter {
    buffers: AtomicU64,
    allocations: AtomicU64,
    allocated_bytes: AtomicU64,
    pinned_allocations: AtomicU64,
    uploads: AtomicU64,
    uploaded_bytes: AtomicU64,
    downloads: AtomicU64,
    downloaded_bytes: AtomicU64,
    launches: AtomicU64,
    synchronisations: AtomicU64,
    library_waits: AtomicU64,
    first_wait: AtomicU64,
    held: AtomicU64,
    peak: AtomicU64,
    storage_reads: AtomicU64,
    storage_waits: AtomicU64,
    storage_bytes: AtomicU64,
}

impl Meter {
    /// Counts a buffer that is taken from the pool.
    pub(crate) fn hold(&self, bytes: u64) {
        self.buffers.fetch_add(1, Relaxed);
        let held = self.held.fetch_add(bytes, Relaxed) + bytes;
        self.peak.fetch_max(held, Relaxed);
    }

    /// Counts a buffer that returns to the pool.
    pub(crate) fn release(&self, bytes: u64) {
        self.held.fetch_sub(bytes, Relaxed);
    }

    /// Counts memory that the driver allocated.
    pub(crate) fn allocation(&self, bytes: u64) {
        self.allocations.fetch_add(1, Relaxed);
        self.allocated_bytes.fetch_add(bytes, Relaxed);
    }

    pub(crate) fn pinned_allocation(&self) {
        self.pinned_allocations.fetch_add(1, Relaxed);
    }

    pub(crate) fn upload(&self, bytes: u64) {
        self.uploads.fetch_add(1, Relaxed);
        self.uploaded_bytes.fetch_add(bytes, Relaxed);
    }

    pub(crate) fn download(&self, bytes: u64) {
        self.downloads.fetch_add(1, Relaxed);
        self.downloaded_bytes.fetch_add(bytes, Relaxed);
    }

    pub(crate) fn launch(&self) {
        self.launches.fetch_add(1, Relaxed);
    }

    pub(crate) fn synchronisation(&self) {
        if self.synchronisations.fetch_add(1, Relaxed) == 0 {
            self.first_wait.store(self.uploads.load(Relaxed), Relaxed);
        }
    }

    pub(crate) fn storage_reads(&self, reads: u64) {
        self.storage_reads.fetch_add(reads, Relaxed);
    }

    pub(crate) fn storage_wait(&self) {
        self.storage_waits.fetch_add(1, Relaxed);
    }

    pub(crate) fn storage_bytes(&self, bytes: u64) {
        self.storage_bytes.fetch_add(bytes, Relaxed);
    }

    pub(crate) fn library_wait(&self) {
        self.library_waits.fetch_add(1, Relaxed);
    }

    /// Returns the counts so far.
    pub fn counters(&self) -> Counters {
        let get = |count: &AtomicU64| count.load(Relaxed);
        let uploads = get(&self.uploads);
        let waited = get(&self.synchronisations) > 0;
        Counters {
            buffers: get(&self.buffers),
            allocations: get(&self.allocations),
            allocated_bytes: get(&self.allocated_bytes),
            pinned_allocations: get(&self.pinned_allocations),
            uploads,
            uploaded_bytes: get(&self.uploaded_bytes),
            downloads: get(&self.downloads),
            downloaded_bytes: get(&self.downloaded_bytes),
            launches: get(&self.launches),
            synchronisations: get(&self.synchronisations),
            library_waits: get(&self.library_waits),
            uploads_before_first_wait: if waited { get(&self.first_wait) } else { uploads },
            peak_bytes: get(&self.peak),
            storage_reads: get(&self.storage_reads),
            storage_waits: get(&self.storage_waits),
            storage_bytes: get(&self.storage_bytes),
        }
    }
}
