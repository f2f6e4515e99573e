//! What the forward and the inverse DCT share: eight blocks are transformed at once, one per vector lane.

/// Blocks in a group.
pub(super) const LANES: usize = 8;

/// Samples or coefficients of a group, those of a block [`LANES`] apart.
pub(super) type Group<T> = [T; 64 * LANES];

/// Fractional bits of the factors.
pub(super) const CONST_BITS: u32 = 13;
