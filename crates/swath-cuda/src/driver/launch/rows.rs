//! The rows of a ring, as kernels address them.

use bytemuck::{Pod, Zeroable};

use crate::{driver::memory::row_ring::RowRing, error::DeviceError};

/// `Rows` of `kernels/core/rows.cuh`.
#[derive(Debug, Clone, Copy, Default, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct RawRows {
    data: u64,
    len: u64,
    band_step: u64,
    row_step: u64,
    ring: u32,
    width: u32,
}

impl RawRows {
    /// Describes the rows of a ring from band `band` on.
    pub(crate) fn new(ring: &RowRing, band: u16) -> Result<Self, DeviceError> {
        let (step, bands) = (ring.band_step(), u64::from(ring.bands));
        let start = step * u64::from(band).min(bands);
        let len = step * bands - start;
        Ok(Self {
            data: ring.buffer.address_at(start as usize, len as usize)?,
            len,
            band_step: step,
            row_step: ring.row_step(),
            ring: ring.capacity,
            width: ring.width,
        })
    }
}
