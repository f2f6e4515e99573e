//! The GPU kernels on the host: a program of their own, so that a sanitizer can watch them and a fault in one is that
//! program's end and not the tests'.

pub mod decode;
pub mod place;
pub mod server;

pub use decode::KernelDecoder;
pub use server::{Argument, Build, KernelHost};
