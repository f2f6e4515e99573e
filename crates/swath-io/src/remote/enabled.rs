//! What a build with the network does.

use super::RemoteOptions;
pub use super::source::RemoteSource;
use crate::{Sink, SinkError};

/// Begins a new object.
///
/// # Errors
/// When the address or the settings cannot be used.
pub fn create_object(address: &str, options: &RemoteOptions) -> Result<Box<dyn Sink>, SinkError> {
    crate::sink::object::create(address, options)
}
