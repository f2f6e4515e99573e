//! Stands in for `enabled/` in builds without the feature `remote`: every call fails.

use crate::{
    fault::RemoteFault,
    remote::options::RemoteOptions,
    sink::{Sink, SinkError},
    source::{ReadInto, Source, SourceError},
};

/// A remote file. This build has none.
#[derive(Debug)]
pub struct RemoteSource(std::convert::Infallible);

const DETAIL: &str = "this build has no network: it was built without feature `remote`";

impl RemoteSource {
    /// Always fails.
    ///
    /// # Errors
    /// Always.
    pub fn open(_: &str, _: &RemoteOptions) -> Result<Self, SourceError> {
        Err(SourceError::Remote { fault: RemoteFault::Setup, detail: DETAIL.to_owned() })
    }
}

impl Source for RemoteSource {
    fn name(&self) -> &str {
        match self.0 {}
    }

    fn size(&self) -> Result<u64, SourceError> {
        match self.0 {}
    }

    fn read_many(&self, _: &mut [ReadInto<'_>]) -> Result<(), SourceError> {
        match self.0 {}
    }
}

/// Always fails.
///
/// # Errors
/// Always.
pub fn create_object(_: &str, _: &RemoteOptions) -> Result<Box<dyn Sink>, SinkError> {
    Err(SinkError::Remote { fault: RemoteFault::Setup, detail: DETAIL.to_owned() })
}

/// Abandons nothing: there are no uploads.
pub fn abandon_uploads() {}
