//! What the format says where libzstd is lenient, as the tests of the kernels on the host have it.

#[allow(dead_code, clippy::unwrap_used)]
#[path = "../../../tools/kernel-host/tests/zstd/anatomy.rs"]
pub mod anatomy;
#[path = "../../../tools/kernel-host/tests/zstd/huffman.rs"]
pub mod huffman;
