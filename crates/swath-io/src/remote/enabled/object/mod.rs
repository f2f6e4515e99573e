//! An object in a store, uploaded in parts while it is written.

#[cfg(test)]
mod fake;
mod gaps;
mod parts;
mod runs;
mod store;
#[cfg(test)]
mod tests;
mod upload;

use std::{borrow::Cow, fmt, ops::Range, sync::Arc};

use self::upload::{Upload, Uploading};
use super::failure::Failure;
use crate::{
    fault::RemoteFault,
    remote::{options::RemoteOptions, url::shown},
    sink::{Sink, SinkError, Stop, TrafficReader},
};

/// Writes of this length and more are copied before they take the lock.
const LONG: usize = 1 << 20;

/// An object that is being written. Memory holds the bytes that do not fill a part yet, about one part for every stretch that is
/// written to, and the few parts in flight; writers of more bytes wait.
struct ObjectSink<U: Upload> {
    name: String,
    uploading: Arc<Uploading<U>>,
}

/// Begins a new object at `address`.
///
/// # Errors
/// When the address is not that of a store, or the store's settings cannot be used. Nothing is sent yet.
pub fn create(address: &str, options: &RemoteOptions) -> Result<Box<dyn Sink>, SinkError> {
    let scheme = address.split_once("://").map_or("", |(scheme, _)| scheme);
    if scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https") {
        let detail =
            "files cannot be written to plain HTTP servers: write to s3://, gs:// or az://, or to a local file";
        return Err(SinkError::Remote { fault: RemoteFault::Setup, detail: detail.to_owned() });
    }
    Ok(Box::new(ObjectSink::new(shown(address), store::StoreUpload::open(address, options)?)?))
}

/// Aborts the unfinished uploads of this process. For a process that exits without dropping its sinks. Takes a few seconds at most.
pub fn abandon_uploads() {
    upload::abandon_all();
}

impl<U: Upload> ObjectSink<U> {
    fn new(name: String, store: U) -> Result<Self, Failure> {
        Ok(Self { name, uploading: Uploading::new(store)? })
    }
}

impl<U: Upload> fmt::Debug for ObjectSink<U> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unsent = self.uploading.unsent_len();
        f.debug_struct("ObjectSink").field("name", &self.name).field("unsent", &unsent).finish_non_exhaustive()
    }
}

impl<U: Upload> Sink for ObjectSink<U> {
    fn name(&self) -> &str {
        &self.name
    }

    fn expect(&self, size: u64) {
        // The first write reports the error.
        let _ = self.uploading.change(|parts| parts.expect(size));
    }

    fn traffic(&self) -> Option<TrafficReader> {
        let uploading = self.uploading.clone();
        Some(Arc::new(move || uploading.traffic()))
    }

    fn stop_when(&self, stop: Stop) {
        self.uploading.stop_when(stop);
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), SinkError> {
        let bytes = if bytes.len() < LONG { Cow::Borrowed(bytes) } else { Cow::Owned(bytes.to_vec()) };
        self.uploading.change(|parts| parts.write(offset, bytes))?;
        Ok(self.uploading.send_ready()?)
    }

    fn remove(&mut self, gaps: &[Range<u64>], _: u64) -> Result<(), SinkError> {
        Ok(self.uploading.change(|parts| parts.remove(gaps))?)
    }

    fn commit(self: Box<Self>, size: u64) -> Result<(), SinkError> {
        Ok(self.uploading.commit(size)?)
    }
}

impl<U: Upload> Drop for ObjectSink<U> {
    fn drop(&mut self) {
        self.uploading.close();
    }
}
