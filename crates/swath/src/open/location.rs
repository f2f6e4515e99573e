//! Resolves names: to local files, or to servers and object stores.

use std::{path::Path, sync::Arc};

use swath_io::{FileSource, RemoteOptions, RemoteSource, Sink, SinkError, Source, SourceError, remote, sink};

use crate::open::{camera, sidecar};

/// Returns the name as an address, if it is not a path.
pub(crate) fn address(path: &Path) -> Option<&str> {
    path.to_str().filter(|name| remote::is_remote(name))
}

/// A name as messages show it.
pub(crate) fn shown(path: &Path) -> Arc<str> {
    match address(path) {
        Some(address) => remote::shown(address).into(),
        None => path.display().to_string().into(),
    }
}

/// The bytes behind a name.
pub(crate) fn source(path: &Path, options: &RemoteOptions) -> Result<Arc<dyn Source>, SourceError> {
    Ok(match address(path) {
        Some(address) => Arc::new(RemoteSource::open(address, options)?),
        None => Arc::new(FileSource::open(path)?),
    })
}

/// A new file or object under a name.
pub(crate) fn sink(path: &Path, options: &RemoteOptions) -> Result<Box<dyn Sink>, SinkError> {
    match address(path) {
        Some(address) => remote::create_object(address, options),
        None => {
            sink::path::create(path, sidecar::placing(path).into_iter().chain(camera::of_this_only(path)).collect())
        }
    }
}
