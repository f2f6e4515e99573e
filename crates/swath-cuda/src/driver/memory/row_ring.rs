//! A ring of image rows on the device.

use crate::{driver::memory::pool::DeviceBuffer, error::DeviceError};

/// Rows of one level. Each band is a plane, and each plane is a ring: row `y` lies at `y % capacity`. The caller knows
/// which rows are in the ring.
#[derive(Debug, Clone)]
pub(crate) struct RowRing {
    pub(crate) buffer: DeviceBuffer,
    pub(crate) bands: u16,
    pub(crate) width: u32,
    /// Rows that the ring holds.
    pub(crate) capacity: u32,
    /// Bytes of a sample.
    pub(crate) sample_len: usize,
}

impl RowRing {
    /// Returns the bytes of a ring, or `None` where they overflow.
    pub(crate) fn bytes(bands: u16, width: u32, capacity: u32, sample_len: usize) -> Option<usize> {
        // Planes begin at multiples of 256 bytes, so that vectors are aligned at the first sample.
        let band = band_step(width, capacity, sample_len)?;
        band.checked_mul(bands.into())
    }

    /// Makes a ring in `buffer`.
    ///
    /// # Errors
    /// When the buffer is too short.
    pub(crate) fn new(
        buffer: DeviceBuffer,
        bands: u16,
        width: u32,
        capacity: u32,
        sample_len: usize,
    ) -> Result<Self, DeviceError> {
        match Self::bytes(bands, width, capacity, sample_len) {
            Some(len) if len <= buffer.len() && capacity > 0 => Ok(Self { buffer, bands, width, capacity, sample_len }),
            _ => Err(DeviceError::Internal(format!("{capacity} rows do not fit into {} bytes", buffer.len()))),
        }
    }

    /// Returns the bytes from a row to the next.
    pub(crate) fn row_step(&self) -> u64 {
        u64::from(self.width) * self.sample_len as u64
    }

    /// Returns the bytes from a band to the next.
    pub(crate) fn band_step(&self) -> u64 {
        band_step(self.width, self.capacity, self.sample_len).unwrap_or(0) as u64
    }
}

fn band_step(width: u32, capacity: u32, sample_len: usize) -> Option<usize> {
    let rows = (width as usize).checked_mul(sample_len)?.checked_mul(capacity as usize)?;
    rows.checked_next_multiple_of(256)
}
