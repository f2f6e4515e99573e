//! The rules of the format where libzstd is lenient, shared with the tests of the kernels on the host.

#[allow(dead_code, clippy::unwrap_used)]
#[path = "../../../tools/kernel-host/tests/zstd/anatomy.rs"]
pub mod anatomy;
#[path = "../../../tools/kernel-host/tests/zstd/huffman.rs"]
pub mod huffman;
