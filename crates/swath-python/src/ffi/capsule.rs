//! DLPack capsules, which pass tensors from one library to another.

use std::ffi::{CStr, c_void};

use pyo3::{ffi, prelude::*, types::PyCapsule};
use swath::gpu::{
    Axes, ForeignArray,
    dlpack::{self, ManagedTensor, VersionedTensor},
};

use crate::errors;

const OLD: &CStr = c"dltensor";
const NEW: &CStr = c"dltensor_versioned";
const OLD_USED: &CStr = c"used_dltensor";
const NEW_USED: &CStr = c"used_dltensor_versioned";

/// A tensor in one of DLPack's two forms: without and with a version.
pub enum Tensor {
    Old(*mut ManagedTensor),
    New(*mut VersionedTensor),
}

/// Returns a capsule that frees the tensor unless a receiver takes it.
pub fn of(py: Python<'_>, tensor: Tensor) -> PyResult<Bound<'_, PyAny>> {
    let (address, name, destructor): (*mut c_void, &CStr, ffi::PyCapsule_Destructor) = match tensor {
        Tensor::Old(tensor) => (tensor.cast(), OLD, drop_old),
        Tensor::New(tensor) => (tensor.cast(), NEW, drop_new),
    };
    // SAFETY: the address is not null, the name lives for ever, and the destructor knows this kind of tensor.
    let capsule = unsafe { ffi::PyCapsule_New(address, name.as_ptr(), Some(destructor)) };
    if capsule.is_null() {
        match tensor {
            // SAFETY: no capsule took the tensor, so this is its only owner.
            Tensor::Old(tensor) => unsafe { dlpack::release(tensor) },
            // SAFETY: as above.
            Tensor::New(tensor) => unsafe { dlpack::release_versioned(tensor) },
        }
    }
    // SAFETY: a new reference, or null with an exception set.
    unsafe { Bound::from_owned_ptr_or_err(py, capsule) }
}

unsafe extern "C" fn drop_old(capsule: *mut ffi::PyObject) {
    // SAFETY: Python calls this with the capsule; the name says whether a receiver took the tensor.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, OLD.as_ptr()) == 1 {
            dlpack::release(ffi::PyCapsule_GetPointer(capsule, OLD.as_ptr()).cast());
        }
    }
}

unsafe extern "C" fn drop_new(capsule: *mut ffi::PyObject) {
    // SAFETY: as above.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, NEW.as_ptr()) == 1 {
            dlpack::release_versioned(ffi::PyCapsule_GetPointer(capsule, NEW.as_ptr()).cast());
        }
    }
}

/// A tensor taken over from another library; dropping it calls that library's deleter.
pub struct Taken {
    tensor: Tensor,
}

impl Taken {
    /// Takes the tensor out of a capsule, once.
    pub fn of(py: Python<'_>, capsule: &Bound<'_, PyAny>) -> PyResult<Self> {
        let capsule = capsule.cast::<PyCapsule>().map_err(|_| errors::usage(py, "__dlpack__ returned no capsule"))?;
        let object = capsule.as_ptr();
        // SAFETY: a capsule whose name and pointer are read as DLPack specifies; renaming it keeps others from taking the
        // tensor again.
        let tensor = unsafe {
            if ffi::PyCapsule_IsValid(object, NEW.as_ptr()) == 1 {
                let tensor = ffi::PyCapsule_GetPointer(object, NEW.as_ptr()).cast();
                ffi::PyCapsule_SetName(object, NEW_USED.as_ptr());
                Tensor::New(tensor)
            } else if ffi::PyCapsule_IsValid(object, OLD.as_ptr()) == 1 {
                let tensor = ffi::PyCapsule_GetPointer(object, OLD.as_ptr()).cast();
                ffi::PyCapsule_SetName(object, OLD_USED.as_ptr());
                Tensor::Old(tensor)
            } else {
                return Err(errors::usage(py, "the DLPack capsule was used already, or is not a DLPack capsule"));
            }
        };
        Ok(Self { tensor })
    }

    /// Returns the array that the tensor describes, valid until this is dropped.
    pub fn array(&self, axes: Axes) -> Result<ForeignArray, swath::gpu::DeviceError> {
        match self.tensor {
            // SAFETY: a valid tensor that is not released before `self` is dropped; the producer orders its work before the
            // stream that the engine waits for.
            Tensor::Old(tensor) => unsafe { ForeignArray::of_dlpack(&*tensor, axes) },
            // SAFETY: as above.
            Tensor::New(tensor) => unsafe { ForeignArray::of_dlpack_versioned(&*tensor, axes) },
        }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        match self.tensor {
            // SAFETY: taken once, released once.
            Tensor::Old(tensor) => unsafe { dlpack::give_back(tensor) },
            // SAFETY: as above.
            Tensor::New(tensor) => unsafe { dlpack::give_back_versioned(tensor) },
        }
    }
}
