//! Remote files, for builds with the feature `remote`.

mod body;
mod client;
mod connector;
mod credentials;
mod failure;
mod guard;
mod http;
mod layers;
mod names;
mod object;
mod range;
mod retry;
mod runtime;
mod sending;
mod settings;
mod source;
mod store;
mod transport;
mod version;
mod watch;

pub use object::{abandon_uploads, create as create_object};
pub use source::RemoteSource;
