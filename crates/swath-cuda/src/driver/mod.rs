//! The only place of this crate with unsafe code: the driver, NVIDIA's libraries, and memory that both sides see.
#![allow(unsafe_code, reason = "calls into the driver and its libraries")]

pub(crate) mod context;
pub(crate) mod cuda;
pub mod dlpack;
pub(crate) mod foreign;
pub(crate) mod launch;
pub(crate) mod libraries;
pub(crate) mod memory;
pub(crate) mod storage;
