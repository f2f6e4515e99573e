//! DLPack: samples on a device or in host memory, shared with other libraries.

use std::{any::Any, ffi::c_void};

use crate::driver::memory::pool::DeviceBuffer;

/// `kDLCPU`.
const CPU: i32 = 1;
/// `kDLCUDA`.
const CUDA: i32 = 2;
/// `kDLCUDAManaged`.
const CUDA_MANAGED: i32 = 13;

/// The type of a sample, as DLPack encodes it.
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
    pub(in crate::driver) dtype: DataType,
    shape: *mut i64,
    strides: *mut i64,
    offset: u64,
}

impl Tensor {
    /// Whether its memory belongs to a CUDA device or is managed by CUDA.
    pub(in crate::driver) fn is_on_cuda(&self) -> bool {
        matches!(self.device.kind, CUDA | CUDA_MANAGED)
    }

    /// Returns the number of its device.
    pub(in crate::driver) fn ordinal(&self) -> i32 {
        self.device.ordinal
    }

    /// Returns the address of its first sample; `None` where it has no memory, or none at that offset.
    pub(in crate::driver) fn address(&self) -> Option<u64> {
        (self.data as u64).checked_add(self.offset).filter(|_| !self.data.is_null())
    }

    /// Returns the number of its axes.
    pub(in crate::driver) fn axes(&self) -> i32 {
        self.axes
    }

    /// Returns the lengths of its axes, and its strides in samples where it has any. The lengths of a tensor without a
    /// list of them are empty.
    ///
    /// # Safety
    /// The lists that are not null have as many numbers as the tensor has axes.
    pub(in crate::driver) unsafe fn lengths(&self) -> (&[i64], Option<&[i64]>) {
        let axes = usize::try_from(self.axes).unwrap_or(0);
        let list = |first: *const i64| match first.is_null() || axes == 0 {
            true => None,
            // SAFETY: as the caller promises.
            false => Some(unsafe { std::slice::from_raw_parts(first, axes) }),
        };
        (list(self.shape).unwrap_or_default(), list(self.strides))
    }
}

/// `DLManagedTensor`: the capsule `dltensor`.
#[derive(Debug)]
#[repr(C)]
pub struct ManagedTensor {
    pub(in crate::driver) tensor: Tensor,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut ManagedTensor)>,
}

/// `DLManagedTensorVersioned` of DLPack 1.0: the capsule `dltensor_versioned`.
#[derive(Debug)]
#[repr(C)]
pub struct VersionedTensor {
    pub(in crate::driver) version: [u32; 2],
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut VersionedTensor)>,
    flags: u64,
    pub(in crate::driver) tensor: Tensor,
}

/// What an exported tensor keeps alive.
struct TensorOwner {
    _owner: Box<dyn Any + Send>,
    shape: Vec<i64>,
    strides: Vec<i64>,
}

/// The memory that a tensor describes.
#[derive(Debug, Clone, Copy)]
struct Lent<'a> {
    data: u64,
    device: Device,
    dtype: DataType,
    shape: &'a [i64],
    /// Samples from element to element along each axis; C order where `None`.
    strides: Option<&'a [i64]>,
}

impl TensorOwner {
    fn tensor(&mut self, lent: Lent<'_>) -> Tensor {
        let Lent { data, device, dtype, .. } = lent;
        Tensor {
            data: data as *mut c_void,
            device,
            axes: self.shape.len() as i32,
            dtype,
            shape: self.shape.as_mut_ptr(),
            strides: self.strides.as_mut_ptr(),
            offset: 0,
        }
    }
}

fn tensor_owner(owner: Box<dyn Any + Send>, lent: Lent<'_>) -> Box<TensorOwner> {
    let shape = lent.shape.to_vec();
    let mut strides = vec![1; shape.len()];
    for axis in (0..shape.len().saturating_sub(1)).rev() {
        strides[axis] = strides[axis + 1] * shape[axis + 1].max(1);
    }
    if let Some(given) = lent.strides.filter(|given| given.len() == shape.len()) {
        strides.copy_from_slice(given);
    }
    Box::new(TensorOwner { _owner: owner, shape, strides })
}

fn managed(owner: Box<dyn Any + Send>, lent: Lent<'_>) -> *mut ManagedTensor {
    let mut context = tensor_owner(owner, lent);
    let tensor = context.tensor(lent);
    let context = Box::into_raw(context).cast();
    Box::into_raw(Box::new(ManagedTensor { tensor, context, deleter: Some(delete) }))
}

fn versioned(owner: Box<dyn Any + Send>, lent: Lent<'_>) -> *mut VersionedTensor {
    let mut context = tensor_owner(owner, lent);
    let tensor = context.tensor(lent);
    let context = Box::into_raw(context).cast();
    let managed = VersionedTensor { version: [1, 0], context, deleter: Some(delete_versioned), flags: 0, tensor };
    Box::into_raw(Box::new(managed))
}

fn on_cuda<'a>(buffer: &DeviceBuffer, shape: &'a [i64], dtype: DataType, ordinal: i32) -> Lent<'a> {
    Lent { data: buffer.export(), device: Device { kind: CUDA, ordinal }, dtype, shape, strides: None }
}

/// Exports the buffer as a tensor in C order. The receiver must call the deleter once: otherwise the memory is never
/// freed.
pub fn export(buffer: &DeviceBuffer, shape: &[i64], dtype: DataType, ordinal: i32) -> *mut ManagedTensor {
    managed(Box::new(buffer.clone()), on_cuda(buffer, shape, dtype, ordinal))
}

/// As [`export`], for receivers that use DLPack 1.0.
pub fn export_versioned(buffer: &DeviceBuffer, shape: &[i64], dtype: DataType, ordinal: i32) -> *mut VersionedTensor {
    versioned(Box::new(buffer.clone()), on_cuda(buffer, shape, dtype, ordinal))
}

/// As [`export`], with strides in samples.
pub fn export_strided(
    buffer: &DeviceBuffer,
    shape: &[i64],
    strides: &[i64],
    dtype: DataType,
    ordinal: i32,
) -> *mut ManagedTensor {
    let lent = on_cuda(buffer, shape, dtype, ordinal);
    managed(Box::new(buffer.clone()), Lent { strides: Some(strides), ..lent })
}

/// As [`export_strided`], for receivers that use DLPack 1.0.
pub fn export_strided_versioned(
    buffer: &DeviceBuffer,
    shape: &[i64],
    strides: &[i64],
    dtype: DataType,
    ordinal: i32,
) -> *mut VersionedTensor {
    let lent = on_cuda(buffer, shape, dtype, ordinal);
    versioned(Box::new(buffer.clone()), Lent { strides: Some(strides), ..lent })
}

/// Exports samples in host memory at `address`, with strides in samples, as a tensor that keeps `owner` alive.
pub fn export_host(
    owner: Box<dyn Any + Send>,
    address: u64,
    shape: &[i64],
    strides: &[i64],
    dtype: DataType,
) -> *mut ManagedTensor {
    managed(owner, on_host(address, shape, strides, dtype))
}

/// As [`export_host`], for receivers that use DLPack 1.0.
pub fn export_host_versioned(
    owner: Box<dyn Any + Send>,
    address: u64,
    shape: &[i64],
    strides: &[i64],
    dtype: DataType,
) -> *mut VersionedTensor {
    versioned(owner, on_host(address, shape, strides, dtype))
}

fn on_host<'a>(data: u64, shape: &'a [i64], strides: &'a [i64], dtype: DataType) -> Lent<'a> {
    Lent { data, device: Device { kind: CPU, ordinal: 0 }, dtype, shape, strides: Some(strides) }
}

unsafe extern "C" fn delete(managed: *mut ManagedTensor) {
    if managed.is_null() {
        return;
    }
    // SAFETY: made by `export`, and the receiver calls this once.
    let managed = unsafe { Box::from_raw(managed) };
    // SAFETY: as above.
    drop(unsafe { Box::from_raw(managed.context.cast::<TensorOwner>()) });
}

unsafe extern "C" fn delete_versioned(managed: *mut VersionedTensor) {
    if managed.is_null() {
        return;
    }
    // SAFETY: made by `export_versioned`, and the receiver calls this once.
    let managed = unsafe { Box::from_raw(managed) };
    // SAFETY: as above.
    drop(unsafe { Box::from_raw(managed.context.cast::<TensorOwner>()) });
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

/// Calls the deleter of a tensor that came from another library.
///
/// # Safety
/// `managed` is valid and was not given back before.
pub unsafe fn give_back(managed: *mut ManagedTensor) {
    // SAFETY: as the caller promises.
    if let Some(deleter) = unsafe { managed.as_ref() }.and_then(|tensor| tensor.deleter) {
        // SAFETY: as the caller promises.
        unsafe { deleter(managed) };
    }
}

/// As [`give_back`].
///
/// # Safety
/// As [`give_back`].
pub unsafe fn give_back_versioned(managed: *mut VersionedTensor) {
    // SAFETY: as the caller promises.
    if let Some(deleter) = unsafe { managed.as_ref() }.and_then(|tensor| tensor.deleter) {
        // SAFETY: as the caller promises.
        unsafe { deleter(managed) };
    }
}
