//! What a build with the network does.

pub use super::source::RemoteSource;
use super::{RemoteFault, RemoteOptions};
use crate::{Sink, SinkError};

/// Begins a new object.
///
/// # Errors
/// When the address or the settings cannot be used.
pub fn create_object(_: &str, _: &RemoteOptions) -> Result<Box<dyn Sink>, SinkError> {
    Err(SinkError::Remote { fault: RemoteFault::Setup, detail: "objects cannot be written yet".to_owned() })
}
