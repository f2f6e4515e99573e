//! Work for the device on our buffers. Each function checks every length, then launches a kernel or calls a library.
//!
//! Entries of tables lie on the device, so the kernels check them against the lengths given here.

pub(crate) mod cut;
pub(crate) mod decode;
pub(crate) mod decode_batch;
mod decode_steps;
pub(crate) mod encode;
#[cfg(test)]
mod encoder_tests;
pub(crate) mod inflate_pieces;
pub(crate) mod inflate_shared;
pub(crate) mod moments;
pub(crate) mod nvcomp;
pub(crate) mod nvjpeg;
pub(crate) mod nvjpeg2k;
pub(crate) mod pack;
pub(crate) mod place;
mod rows;
pub(crate) mod shrink;
pub(crate) mod slice;
pub(crate) mod stream_threads;
pub(crate) mod streams_check;
pub(crate) mod summary;
pub(crate) mod take;
pub(crate) mod zstd;
