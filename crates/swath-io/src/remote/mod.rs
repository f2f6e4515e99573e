//! Remote files: HTTP servers and object stores, read by ranges and written in parts.

mod options;
#[cfg_attr(not(feature = "remote"), path = "disabled.rs")]
#[cfg_attr(feature = "remote", path = "enabled/mod.rs")]
mod service;
mod url;

pub use self::url::{is_remote, shown};
pub use options::{Origin, RemoteOptions};
pub use service::{RemoteSource, abandon_uploads, create_object};
