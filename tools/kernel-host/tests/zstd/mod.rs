//! Support for the tests of the Zstd decoder, and tests with frames made by hand.

pub(crate) mod anatomy;
pub(crate) mod codec;
pub(crate) mod damage;
pub(crate) mod forms;
pub(crate) mod huffman;
pub(crate) mod library;
mod refusals;
pub(crate) mod samples;
pub(crate) mod verdict;
