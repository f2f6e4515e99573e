//! Device memory, pinned host memory, and the streams that work on them.

pub(crate) mod kernels;
pub(crate) mod pinned;
pub(crate) mod pool;
pub(crate) mod readback;
pub(crate) mod row_ring;
pub(crate) mod streams;
