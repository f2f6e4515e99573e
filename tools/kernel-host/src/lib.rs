//! Runs the GPU kernels on the host, in a program of their own: a sanitizer can watch them, and a fault in a kernel
//! ends that program and not the tests.

pub mod decode;
pub mod place;
pub mod server;

pub use decode::KernelDecoder;
pub use server::{Argument, Build, KernelHost};
