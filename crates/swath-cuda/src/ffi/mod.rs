//! The only place of this crate with unsafe code: the driver, NVIDIA's libraries, and memory that both sides see.
#![allow(unsafe_code, reason = "calls into the driver and its libraries")]

pub(crate) mod cufile;
pub mod dlpack;
pub(crate) mod driver;
#[cfg(test)]
mod encoders_tests;
pub(crate) mod encoding;
pub(crate) mod foreign;
pub(crate) mod kernels;
pub(crate) mod landing;
pub(crate) mod libraries;
pub(crate) mod library;
pub(crate) mod memory;
pub(crate) mod nvcomp;
pub(crate) mod nvjpeg;
pub(crate) mod nvjpeg2k;
pub(crate) mod nvjpeg2k_encode;
pub(crate) mod nvjpeg_encode;
pub(crate) mod shrink;
pub(crate) mod storage;
pub(crate) mod streams;
mod sys;
pub(crate) mod zstd;
