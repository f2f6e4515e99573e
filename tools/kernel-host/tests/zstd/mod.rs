//! What the tests of the Zstd decoder stand on.

pub(crate) mod anatomy;
pub(crate) mod damage;
pub(crate) mod forms;
pub(crate) mod huffman;
pub(crate) mod library;
pub(crate) mod samples;
pub(crate) mod verdict;
