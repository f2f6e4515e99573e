//! What a build with the network does.

mod body;
pub(crate) mod client;
mod connector;
mod credentials;
pub(crate) mod failure;
mod guard;
mod http;
mod layers;
mod names;
mod range;
mod retry;
pub(crate) mod runtime;
mod sending;
mod settings;
mod source;
pub(crate) mod store;
mod transport;
mod version;
mod watch;

pub use source::RemoteSource;

use super::{Origin, RemoteFault, RemoteOptions, Traffic, traffic, url};
use crate::{Sink, SinkError};

/// Begins a new object.
///
/// # Errors
/// When the address or the settings cannot be used.
pub fn create_object(address: &str, options: &RemoteOptions) -> Result<Box<dyn Sink>, SinkError> {
    crate::sink::object::create(address, options)
}
