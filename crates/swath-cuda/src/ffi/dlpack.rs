//! DLPack: a device buffer as other libraries take it.

use std::ffi::c_void;

use crate::ffi::memory::DeviceBuffer;

/// `kDLCUDA`.
const CUDA: i32 = 2;
/// `kDLCUDAManaged`.
const CUDA_MANAGED: i32 = 13;

/// What a sample is, as DLPack says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct DataType {
    /// 0 signed, 1 unsigned, 2 floating point, 5 complex.
    pub code: u8,
    /// Bits of a sample.
    pub bits: u8,
    /// Samples in a vector: 1.
    pub lanes: u16,
}

#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct Device {
    kind: i32,
    ordinal: i32,
}

/// `DLTensor`.
#[derive(Debug)]
#[repr(C)]
pub struct Tensor {
    data: *mut c_void,
    device: Device,
    axes: i32,
    pub(super) dtype: DataType,
    shape: *mut i64,
    strides: *mut i64,
    offset: u64,
}

impl Tensor {
    /// Whether its memory is a CUDA device's, or managed by CUDA.
    pub(super) fn is_on_cuda(&self) -> bool {
        matches!(self.device.kind, CUDA | CUDA_MANAGED)
    }

    /// The device it is on.
    pub(super) fn ordinal(&self) -> i32 {
        self.device.ordinal
    }

    /// Where its first sample is.
    pub(super) fn address(&self) -> u64 {
        (self.data as u64).wrapping_add(self.offset)
    }

    /// The lengths of its axes, and the samples from element to element along each where it says so.
    ///
    /// # Safety
    /// The tensor is a valid one.
    pub(super) unsafe fn lengths(&self) -> (&[i64], Option<&[i64]>) {
        let axes = usize::try_from(self.axes).unwrap_or(0);
        let list = |first: *const i64| match first.is_null() || axes == 0 {
            true => None,
            // SAFETY: a valid tensor has as many as it has axes.
            false => Some(unsafe { std::slice::from_raw_parts(first, axes) }),
        };
        (list(self.shape).unwrap_or_default(), list(self.strides))
    }
}

/// `DLManagedTensor`: the capsule `dltensor`.
#[derive(Debug)]
#[repr(C)]
pub struct ManagedTensor {
    pub(super) tensor: Tensor,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut ManagedTensor)>,
}

/// `DLManagedTensorVersioned` of DLPack 1.0: the capsule `dltensor_versioned`.
#[derive(Debug)]
#[repr(C)]
pub struct VersionedTensor {
    pub(super) version: [u32; 2],
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut VersionedTensor)>,
    flags: u64,
    pub(super) tensor: Tensor,
}

/// What an exported tensor keeps alive.
struct Kept {
    _buffer: DeviceBuffer,
    shape: Vec<i64>,
    strides: Vec<i64>,
}

impl Kept {
    fn tensor(&mut self, data: u64, dtype: DataType, ordinal: i32) -> Tensor {
        Tensor {
            data: data as *mut c_void,
            device: Device { kind: CUDA, ordinal },
            axes: self.shape.len() as i32,
            dtype,
            shape: self.shape.as_mut_ptr(),
            strides: self.strides.as_mut_ptr(),
            offset: 0,
        }
    }
}

fn kept(buffer: &DeviceBuffer, shape: &[i64]) -> Box<Kept> {
    let mut strides = vec![1; shape.len()];
    for axis in (0..shape.len().saturating_sub(1)).rev() {
        strides[axis] = strides[axis + 1] * shape[axis + 1].max(1);
    }
    Box::new(Kept { _buffer: buffer.clone(), shape: shape.to_vec(), strides })
}

/// The buffer as a tensor in C order. The receiver calls its deleter once, or nobody does and the memory is never freed.
pub fn export(buffer: &DeviceBuffer, shape: &[i64], dtype: DataType, ordinal: i32) -> *mut ManagedTensor {
    let mut kept = kept(buffer, shape);
    let tensor = kept.tensor(buffer.export(), dtype, ordinal);
    let context = Box::into_raw(kept).cast();
    Box::into_raw(Box::new(ManagedTensor { tensor, context, deleter: Some(delete) }))
}

/// As [`export`], for receivers that speak DLPack 1.0.
pub fn export_versioned(buffer: &DeviceBuffer, shape: &[i64], dtype: DataType, ordinal: i32) -> *mut VersionedTensor {
    let mut kept = kept(buffer, shape);
    let tensor = kept.tensor(buffer.export(), dtype, ordinal);
    let context = Box::into_raw(kept).cast();
    let managed = VersionedTensor { version: [1, 0], context, deleter: Some(delete_versioned), flags: 0, tensor };
    Box::into_raw(Box::new(managed))
}

unsafe extern "C" fn delete(managed: *mut ManagedTensor) {
    if managed.is_null() {
        return;
    }
    // SAFETY: made by `export`, and the receiver calls this once.
    let managed = unsafe { Box::from_raw(managed) };
    // SAFETY: as above.
    drop(unsafe { Box::from_raw(managed.context.cast::<Kept>()) });
}

unsafe extern "C" fn delete_versioned(managed: *mut VersionedTensor) {
    if managed.is_null() {
        return;
    }
    // SAFETY: made by `export_versioned`, and the receiver calls this once.
    let managed = unsafe { Box::from_raw(managed) };
    // SAFETY: as above.
    drop(unsafe { Box::from_raw(managed.context.cast::<Kept>()) });
}

/// Calls the deleter of an exported tensor, as a receiver would.
///
/// # Safety
/// `managed` came from [`export`] and was not deleted.
pub unsafe fn release(managed: *mut ManagedTensor) {
    // SAFETY: as the caller promises.
    unsafe { delete(managed) };
}

/// As [`release`].
///
/// # Safety
/// `managed` came from [`export_versioned`] and was not deleted.
pub unsafe fn release_versioned(managed: *mut VersionedTensor) {
    // SAFETY: as the caller promises.
    unsafe { delete_versioned(managed) };
}
