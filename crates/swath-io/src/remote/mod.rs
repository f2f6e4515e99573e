//! Files behind a network: HTTP servers and object stores, read by ranges and written by parts.

mod fault;
mod options;
#[cfg_attr(not(feature = "remote"), path = "disabled.rs")]
#[cfg_attr(feature = "remote", path = "enabled/mod.rs")]
mod service;
mod traffic;
mod url;

pub use self::url::{is_remote, shown};
pub use fault::RemoteFault;
pub use options::{Origin, RemoteOptions};
pub use service::{RemoteSource, create_object};
#[cfg(feature = "remote")]
pub(crate) use service::{client, failure, runtime, store};
pub use traffic::Traffic;
