//! Files behind a network: HTTP servers and object stores, read by ranges and written by parts.

mod fault;
mod options;
#[cfg_attr(not(feature = "remote"), path = "disabled.rs")]
#[cfg_attr(feature = "remote", path = "enabled.rs")]
mod service;
mod traffic;
mod url;

pub use fault::RemoteFault;
pub use options::{Origin, RemoteOptions};
pub use service::{RemoteSource, create_object};
pub use traffic::Traffic;
pub use url::{is_remote, shown};
