//! The trait of everything that a file is written to.

use std::{fmt, ops::Range, sync::Arc};

use crate::traffic::Traffic;

mod error;
pub mod file;
mod gaps;
mod local;
#[cfg_attr(not(all(target_os = "linux", not(feature = "portable"))), path = "unmapped.rs")]
mod mapped;
pub mod memory;
pub mod path;
pub mod side_files;
pub mod spill;
pub mod stream;
mod target;
mod temporary;
pub mod unfinished;

pub use error::SinkError;
pub use gaps::BLOCK;
use local::CHUNK;
use spill::Spill;

/// Returns whether the caller has cancelled.
pub type Stop = Arc<dyn Fn() -> bool + Send + Sync>;

/// Returns the network traffic so far.
pub type TrafficReader = Arc<dyn Fn() -> Traffic + Send + Sync>;

/// A new file that is being written. Nothing appears under its name before [`Sink::commit`]; dropped before that, it leaves
/// nothing behind.
pub trait Sink: fmt::Debug + Send + Sync {
    /// Name for messages.
    fn name(&self) -> &str;

    /// Announces, before the first write, that all writes will end at or before `size`.
    fn expect(&self, _size: u64) {}

    /// Reads the network traffic, also after the sink is dropped; `None` for local sinks.
    fn traffic(&self) -> Option<TrafficReader> {
        None
    }

    /// Makes waits end soon after `stop` returns true. Local files do not wait.
    fn stop_when(&self, _stop: Stop) {}

    /// Writes `bytes` at `offset`. Any number of threads may write at once, to any position. Bytes that are never written are zero,
    /// and cost nothing before [`Sink::remove`] is called.
    ///
    /// # Errors
    /// When the bytes cannot be written; the sink can then only be dropped.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), SinkError>;

    /// Length of the chunks, aligned in the file, into which several threads should divide a long write.
    fn write_chunk(&self) -> usize {
        CHUNK
    }

    /// Disk space for bytes that wait to be written: beside the file, or in the folder for temporary files.
    fn spill(&self) -> Spill {
        Spill::in_folder(std::env::temp_dir())
    }

    /// Removes `gaps` from a file of `size` bytes, so that the bytes after each gap move down. Gaps are sorted, do not touch each
    /// other, and end before `size`. Gaps that begin and end at multiples of [`BLOCK`] may cost nothing.
    ///
    /// # Errors
    /// When bytes cannot be moved; the sink can then only be dropped.
    fn remove(&mut self, gaps: &[Range<u64>], size: u64) -> Result<(), SinkError>;

    /// Makes the complete file of `size` bytes appear under its name, in place of an existing one. Side files that describe the
    /// replaced file are removed.
    ///
    /// # Errors
    /// When that fails; the old file is then still in place. Only if a side file cannot be removed, the new file is in place, and
    /// the error says so.
    fn commit(self: Box<Self>, size: u64) -> Result<(), SinkError>;
}
