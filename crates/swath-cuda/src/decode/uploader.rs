//! The handle with which threads upload the bytes of tiles while the decoder's owner launches groups.

use std::{ops::Range, sync::PoisonError};

use crate::{
    decode::decoder::Decoder,
    driver::{
        libraries::cufile::FileRead,
        memory::pool::PinnedChunk,
        storage::{Submission, read_blocking, submit_reads},
    },
    error::DeviceError,
    gpu::DirectFile,
};

/// Uploads tiles from any thread.
#[derive(Debug, Clone, Copy)]
pub struct Uploader<'a>(&'a Decoder);

impl Decoder {
    /// Returns the handle for threads that upload.
    pub fn uploader(&self) -> Uploader<'_> {
        Uploader(self)
    }
}

impl Uploader<'_> {
    /// Returns a pinned chunk of [`CHUNK_LEN`](crate::CHUNK_LEN) bytes to fill. Waits while all chunks are in flight.
    ///
    /// # Errors
    /// When the first chunk cannot be allocated.
    pub fn chunk(&self) -> Result<PinnedChunk, DeviceError> {
        self.0.gpu.memory.chunk(&self.0.meter)
    }

    /// Copies the first `len` bytes of the chunk to the place that [`DecodeBatch::tile`](crate::decode::DecodeBatch::tile) returned.
    ///
    /// # Errors
    /// When the place is outside the buffer, or the copy fails.
    pub fn upload(&self, half: usize, chunk: PinnedChunk, len: usize, at: usize) -> Result<(), DeviceError> {
        let working = self.0.half(half)?;
        let buffer = match &working.decoded {
            Some(decoded) if !self.0.plan.path.uploads_streams() => decoded,
            _ => &working.compressed,
        };
        self.0.streams.upload(half, chunk, len, buffer, at)
    }

    /// Submits reads of a file to cuFile, each to the place that [`DecodeBatch::tile`](crate::decode::DecodeBatch::tile) returned. Waits only for the
    /// batch that used this half before. `groups` lists the reads that are waited for together.
    ///
    /// # Errors
    /// When a read leaves the buffer, or the driver fails. A refusal by cuFile is not an error.
    pub fn submit(
        &self,
        half: usize,
        file: &DirectFile,
        parts: Vec<FileRead>,
        groups: Vec<Range<usize>>,
    ) -> Result<Submission, DeviceError> {
        let working = self.0.half(half)?;
        // cuFile does not wait for kernels, so the host waits for them.
        let kernels_done = working.kernels_done.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(kernels_done) = kernels_done {
            kernels_done.poll()?;
        }
        let (memory, meter) = (&self.0.gpu.memory, &self.0.meter);
        submit_reads(&file.file, file.method, memory, meter, &working.compressed, parts, groups)
    }

    /// Reads one part of a file with cuFile to the place that [`DecodeBatch::tile`](crate::decode::DecodeBatch::tile) returned, and waits for it. The
    /// caller has called [`Uploader::submit`] for the batch, which waits until the half is free.
    ///
    /// # Errors
    /// When the read leaves the buffer, or returns too few bytes.
    pub fn read(&self, half: usize, file: &DirectFile, part: &FileRead) -> Result<(), DeviceError> {
        let buffer = &self.0.half(half)?.compressed;
        read_blocking(&file.file, &self.0.gpu.memory, &self.0.meter, buffer, part)
    }
}
