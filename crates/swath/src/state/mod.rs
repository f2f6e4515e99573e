//! What an open file keeps between reads.

pub(crate) mod arriving;
pub(crate) mod cache;
pub(crate) mod positions;
pub(crate) mod scratch;
pub(crate) mod spare;
pub(crate) mod tile_warnings;
