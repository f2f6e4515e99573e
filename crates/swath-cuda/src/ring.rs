//! Rows of one level of an image on the device.

use crate::{error::DeviceError, ffi::memory::DeviceBuffer};

/// Rows of one level: every band in a plane of its own, rows in a ring. Row `y` stands at `y % capacity`; which rows are
/// there is for the caller to know.
#[derive(Debug, Clone)]
pub(crate) struct Ring {
    pub(crate) buffer: DeviceBuffer,
    pub(crate) bands: u16,
    pub(crate) width: u32,
    /// Rows that there is room for.
    pub(crate) capacity: u32,
    /// Bytes of a sample.
    pub(crate) sample_len: usize,
}

impl Ring {
    /// Bytes that a ring takes; `None` where that is more than memory can have.
    pub(crate) fn bytes(bands: u16, width: u32, capacity: u32, sample_len: usize) -> Option<usize> {
        // Rows of a band at multiples of 16, so that vectors of the first sample are in line.
        let band = band_step(width, capacity, sample_len)?;
        band.checked_mul(bands.into())
    }

    /// Rows in `buffer`.
    ///
    /// # Errors
    /// When it is too short for them.
    pub(crate) fn new(
        buffer: DeviceBuffer,
        bands: u16,
        width: u32,
        capacity: u32,
        sample_len: usize,
    ) -> Result<Self, DeviceError> {
        match Self::bytes(bands, width, capacity, sample_len) {
            Some(len) if len <= buffer.len() && capacity > 0 => Ok(Self { buffer, bands, width, capacity, sample_len }),
            _ => Err(DeviceError::Usage(format!("{capacity} rows do not fit into {} bytes", buffer.len()))),
        }
    }

    /// Bytes from a row to the next.
    pub(crate) fn row_step(&self) -> u64 {
        u64::from(self.width) * self.sample_len as u64
    }

    /// Bytes from a band to the next.
    pub(crate) fn band_step(&self) -> u64 {
        band_step(self.width, self.capacity, self.sample_len).unwrap_or(0) as u64
    }
}

fn band_step(width: u32, capacity: u32, sample_len: usize) -> Option<usize> {
    let rows = (width as usize).checked_mul(sample_len)?.checked_mul(capacity as usize)?;
    rows.checked_next_multiple_of(256)
}
