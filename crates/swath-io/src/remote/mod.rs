//! Files behind a network: HTTP servers and object stores, read by ranges and written by parts.

mod fault;
mod options;
#[cfg_attr(not(feature = "remote"), path = "disabled.rs")]
#[cfg_attr(feature = "remote", path = "enabled.rs")]
mod service;
mod traffic;
mod url;

#[cfg(feature = "remote")]
mod body;
#[cfg(feature = "remote")]
pub(crate) mod client;
#[cfg(feature = "remote")]
mod connector;
#[cfg(feature = "remote")]
mod credentials;
#[cfg(feature = "remote")]
pub(crate) mod failure;
#[cfg(feature = "remote")]
mod guard;
#[cfg(feature = "remote")]
mod http;
#[cfg(feature = "remote")]
mod layers;
#[cfg(feature = "remote")]
mod range;
#[cfg(feature = "remote")]
mod retry;
#[cfg(feature = "remote")]
pub(crate) mod runtime;
#[cfg(feature = "remote")]
mod settings;
#[cfg(feature = "remote")]
mod source;
#[cfg(feature = "remote")]
pub(crate) mod store;
#[cfg(feature = "remote")]
mod transport;
#[cfg(feature = "remote")]
mod version;
#[cfg(feature = "remote")]
mod watch;

pub use self::url::{is_remote, shown};
pub use fault::RemoteFault;
pub use options::{Origin, RemoteOptions};
pub use service::{RemoteSource, create_object};
pub use traffic::Traffic;
