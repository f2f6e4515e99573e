//! Launches the kernel that copies a caller's rows into a ring.

use std::ffi::c_void;

use bytemuck::{Pod, Zeroable};

use crate::{
    driver::{
        launch::{rows::RawRows, slice::ptx},
        memory::{kernels::Function, pool::DeviceBuffer, row_ring::RowRing, streams::Streams},
    },
    error::DeviceError,
};

/// `TakeArgs` of `kernels/write/take.cuh`.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct TakeArgs {
    rows: RawRows,
    src: u64,
    row_step: i64,
    pixel_step: i64,
    band_step: i64,
    first: u32,
    count: u32,
    bands: u32,
    first_band: u32,
    sample_len: u32,
    replace: u32,
    nodata: [u8; 16],
}

/// Rows on the device: the address of the first sample, and the bytes from sample to sample along each axis.
#[derive(Debug, Clone)]
pub struct DeviceRows {
    address: u64,
    row_step: i64,
    pixel_step: i64,
    band_step: i64,
    keeps: Option<DeviceBuffer>,
    /// Number of rows, columns and bands, and bytes of a sample, where they are known.
    bounds: Option<([u32; 3], usize)>,
    /// A stream of other code with pending work on the samples.
    after: Option<Foreign>,
}

/// A stream that other code owns.
#[derive(Debug, Clone, Copy)]
struct Foreign(*mut c_void);

// SAFETY: streams may be used from any thread; the driver locks.
unsafe impl Send for Foreign {}
// SAFETY: as above.
unsafe impl Sync for Foreign {}

impl DeviceRows {
    /// Describes rows at an address, with the bytes from row to row, from pixel to pixel and from band to band.
    ///
    /// # Safety
    /// Until the call that takes the rows returns, every sample of the rows lies in live device memory of the context
    /// that takes them.
    pub unsafe fn new(address: u64, row_step: i64, pixel_step: i64, band_step: i64) -> Self {
        Self { address, row_step, pixel_step, band_step, keeps: None, bounds: None, after: None }
    }

    /// Describes rows in one of our buffers: the bytes from row to row, from pixel to pixel and from band to band, and
    /// the number of each.
    ///
    /// # Errors
    /// When they do not all lie in the buffer.
    pub fn of_buffer(
        buffer: &DeviceBuffer,
        steps: [usize; 3],
        counts: [u32; 3],
        sample_len: usize,
    ) -> Result<Self, DeviceError> {
        let reach = steps.iter().zip(counts).try_fold(sample_len, |sum, (step, count)| {
            sum.checked_add(step.checked_mul(count.saturating_sub(1) as usize)?)
        });
        let address = buffer.address_at(0, reach.unwrap_or(usize::MAX))?;
        let [row_step, pixel_step, band_step] = steps.map(|step| step as i64);
        let (keeps, bounds) = (Some(buffer.clone()), Some((counts, sample_len)));
        Ok(Self { address, row_step, pixel_step, band_step, keeps, bounds, after: None })
    }

    /// Makes the write wait for the work queued on this stream (`CUstream`; null is the default stream) until the rows
    /// are taken. Without it the samples must be ready.
    ///
    /// # Safety
    /// Until the call that takes the rows returns, the stream is alive. It belongs to the context that takes the rows.
    #[must_use]
    pub unsafe fn after(mut self, stream: *mut c_void) -> Self {
        self.after = Some(Foreign(stream));
        self
    }

    /// Returns the rows from row `row` on.
    pub fn at_row(&self, row: u32) -> Self {
        let offset = self.row_step.wrapping_mul(row.into());
        let less = |([rows, columns, bands], len): ([u32; 3], usize)| ([rows.saturating_sub(row), columns, bands], len);
        let (address, bounds) = (self.address.wrapping_add_signed(offset), self.bounds.map(less));
        Self { address, bounds, ..self.clone() }
    }
}

/// The rows to copy, and where they go.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TakeRows<'a> {
    pub(crate) ring: &'a RowRing,
    /// First row of the level, number of rows and bands, and first band of the ring.
    pub(crate) first: u32,
    pub(crate) count: u32,
    pub(crate) bands: u16,
    pub(crate) first_band: u16,
    /// Bytes of a float whose NaNs become `nodata`; 0 to copy all samples unchanged.
    pub(crate) replace: u32,
    pub(crate) nodata: [u8; 16],
}

/// Copies rows of a caller into a ring.
pub(crate) fn launch_take(
    streams: &Streams,
    stream: usize,
    source: &DeviceRows,
    take: &TakeRows<'_>,
) -> Result<(), DeviceError> {
    let ring = take.ring;
    if take.count == 0 || take.bands == 0 {
        return Ok(());
    }
    let bands = u32::from(take.first_band) + u32::from(take.bands);
    if take.count > ring.capacity || bands > u32::from(ring.bands) {
        return Err(DeviceError::Internal("more rows or bands than the ring holds".into()));
    }
    let wanted = [take.count, ring.width, take.bands.into()];
    if let Some((counts, sample_len)) = source.bounds
        && (sample_len != ring.sample_len || counts.iter().zip(wanted).any(|(there, wanted)| *there < wanted))
    {
        return Err(DeviceError::Usage(format!("an array of shape {counts:?} has no rows of shape {wanted:?}")));
    }
    if let Some(Foreign(other)) = source.after {
        // SAFETY: alive, as who made the rows promised.
        unsafe { streams.wait_foreign(stream, other) }?;
    }
    let function = streams.memory().function("take", ptx!("take"), "swath_take")?;
    let args = TakeArgs {
        rows: RawRows::new(ring, 0)?,
        src: source.address,
        row_step: source.row_step,
        pixel_step: source.pixel_step,
        band_step: source.band_step,
        first: take.first,
        count: take.count,
        bands: take.bands.into(),
        first_band: take.first_band.into(),
        sample_len: ring.sample_len as u32,
        replace: take.replace,
        nodata: take.nodata,
    };
    let mut buffers = vec![&ring.buffer];
    buffers.extend(&source.keeps);
    let bytes = u64::from(take.count) * ring.row_step() * u64::from(take.bands);
    let blocks = blocks_for(bytes, function);
    // SAFETY: the ring was checked; the source was, or is the promise of who made it.
    unsafe { streams.launch(stream, function, blocks, &args, &buffers) }
}

/// Returns enough blocks that each thread has about 64 bytes, but no more than fill the device four times.
fn blocks_for(bytes: u64, function: Function) -> u32 {
    let wanted = bytes.div_ceil(u64::from(function.threads) * 64);
    wanted.clamp(1, u64::from(function.resident) * 4) as u32
}
