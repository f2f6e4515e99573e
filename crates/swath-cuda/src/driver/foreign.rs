//! Device arrays of other libraries, described by DLPack or the CUDA array interface, as rows to write.

use std::ffi::c_void;

use crate::{
    driver::{
        dlpack::{DataType, ManagedTensor, Tensor, VersionedTensor},
        launch::take::DeviceRows,
    },
    error::DeviceError,
};

/// The order of the axes of an array with three axes. An array with two has rows and columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Axes {
    /// Bands, rows, columns.
    BandFirst,
    /// Rows, columns, bands.
    BandLast,
}

/// A device array that another library owns.
#[derive(Debug, Clone)]
pub struct ForeignArray {
    /// Its samples.
    pub rows: DeviceRows,
    /// Rows, columns and bands.
    pub shape: [usize; 3],
    /// Bytes of a sample.
    pub sample_len: usize,
    /// The type of a sample, where it is known.
    pub dtype: Option<DataType>,
    /// The device's number, as CUDA counts, where it is known.
    pub ordinal: Option<i32>,
}

impl ForeignArray {
    /// Describes an array by its CUDA array interface: `data[0]`, `shape`, `strides` (in bytes; `None` for C order) and
    /// the bytes of a sample.
    ///
    /// # Errors
    /// When the array does not have two or three axes.
    ///
    /// # Safety
    /// As [`DeviceRows::new`].
    pub unsafe fn of_cuda_array(
        address: u64,
        shape: &[usize],
        strides: Option<&[i64]>,
        sample_len: usize,
        axes: Axes,
    ) -> Result<Self, DeviceError> {
        let dense = c_order(shape, sample_len as i64);
        let strides = strides.unwrap_or(&dense);
        let ([rows, columns, bands], [row_step, pixel_step, band_step]) = match (shape, strides, axes) {
            (&[rows, columns], &[down, across], _) => ([rows, columns, 1], [down, across, 0]),
            (&[bands, rows, columns], &[band, down, across], Axes::BandFirst) => {
                ([rows, columns, bands], [down, across, band])
            }
            (&[rows, columns, bands], &[down, across, band], Axes::BandLast) => {
                ([rows, columns, bands], [down, across, band])
            }
            _ => return Err(no_image(shape.len())),
        };
        // SAFETY: as the caller promises.
        let samples = unsafe { DeviceRows::new(address, row_step, pixel_step, band_step) };
        Ok(Self { rows: samples, shape: [rows, columns, bands], sample_len, dtype: None, ordinal: None })
    }

    /// Describes an array by a DLPack tensor (the capsule `dltensor`).
    ///
    /// # Errors
    /// When it is not on a CUDA device, does not have two or three axes, or contradicts itself: an axis of a negative length,
    /// samples without bits, elements without memory.
    ///
    /// # Safety
    /// The lists of lengths and strides of the tensor, where they are not null, have as many numbers as it has axes; those of
    /// a tensor that does not have two or three axes are not read. As [`DeviceRows::new`].
    pub unsafe fn of_dlpack(managed: &ManagedTensor, axes: Axes) -> Result<Self, DeviceError> {
        // SAFETY: as the caller promises.
        unsafe { Self::of_tensor(&managed.tensor, axes) }
    }

    /// Describes an array by a DLPack 1.0 tensor (the capsule `dltensor_versioned`).
    ///
    /// # Errors
    /// As [`ForeignArray::of_dlpack`], and for a major version other than 1.
    ///
    /// # Safety
    /// As [`ForeignArray::of_dlpack`].
    pub unsafe fn of_dlpack_versioned(managed: &VersionedTensor, axes: Axes) -> Result<Self, DeviceError> {
        let [major, minor] = managed.version;
        if major != 1 {
            return Err(DeviceError::Usage(format!("DLPack {major}.{minor} is not supported, only 1")));
        }
        // SAFETY: as the caller promises.
        unsafe { Self::of_tensor(&managed.tensor, axes) }
    }

    unsafe fn of_tensor(tensor: &Tensor, axes: Axes) -> Result<Self, DeviceError> {
        if !tensor.is_on_cuda() {
            return Err(DeviceError::Usage("the tensor is not on a CUDA device".into()));
        }
        let DataType { bits, lanes, .. } = tensor.dtype;
        if lanes != 1 || bits == 0 || bits % 8 != 0 {
            return Err(DeviceError::Usage(format!("samples of {bits} bits in vectors of {lanes} cannot be written")));
        }
        let sample_len = usize::from(bits / 8);
        // Before the lists are read: they are as long as this number claims.
        if !(2..=3).contains(&tensor.axes()) {
            return Err(no_image(tensor.axes()));
        }
        // SAFETY: as the caller promises.
        let (lengths, strides) = unsafe { tensor.lengths() };
        let strides: Option<Vec<i64>> =
            strides.map(|strides| strides.iter().map(|step| step.wrapping_mul(sample_len as i64)).collect());
        let shape: Vec<usize> = lengths.iter().filter_map(|len| usize::try_from(*len).ok()).collect();
        if lengths.is_empty() || shape.len() != lengths.len() {
            return Err(DeviceError::Usage(format!("the tensor has axes of the lengths {lengths:?}")));
        }
        // An array without elements needs no memory.
        let address = match tensor.address() {
            Some(address) => address,
            None if shape.contains(&0) => 0,
            None => return Err(DeviceError::Usage("the tensor has elements, and no memory".into())),
        };
        // SAFETY: as the caller promises.
        let array = unsafe { Self::of_cuda_array(address, &shape, strides.as_deref(), sample_len, axes) }?;
        Ok(Self { dtype: Some(tensor.dtype), ordinal: Some(tensor.ordinal()), ..array })
    }

    /// Makes the write wait for the work queued on this stream (`CUstream`; null is the default stream): the `stream`
    /// of the interface.
    ///
    /// # Safety
    /// As [`DeviceRows::after`].
    #[must_use]
    pub unsafe fn after(mut self, stream: *mut c_void) -> Self {
        // SAFETY: as the caller promises.
        self.rows = unsafe { self.rows.after(stream) };
        self
    }
}

fn no_image(axes: impl std::fmt::Display) -> DeviceError {
    DeviceError::Usage(format!("an array of {axes} axes is not an image: an image has two or three"))
}

/// Steps in bytes of an array without gaps.
fn c_order(shape: &[usize], sample_len: i64) -> Vec<i64> {
    let mut strides = Vec::with_capacity(shape.len());
    let mut step = sample_len;
    for len in shape.iter().rev() {
        strides.push(step);
        step = step.wrapping_mul(i64::try_from(*len).unwrap_or(0));
    }
    strides.reverse();
    strides
}
