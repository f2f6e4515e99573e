//! Arrays of other libraries, as CUDA's array interface and DLPack describe them.
#![allow(unsafe_code, reason = "descriptions of device memory are unsafe to make; no sample is touched here")]

use swath::gpu::{Axes, ForeignArray};

use crate::Input;

/// Describes an array of any shape, strides and sample length. It must become an image or an error.
pub fn foreign(data: &[u8]) {
    let mut input = Input(data);
    let axes = if input.u8() & 1 == 0 { Axes::BandFirst } else { Axes::BandLast };
    let count = usize::from(input.u8() % 6);
    let sample_len = usize::from(input.u8());
    let shape: Vec<usize> = (0..count).map(|_| input.u64() as usize).collect();
    let strides: Vec<i64> = (0..count).map(|_| input.u64() as i64).collect();
    for strides in [None, Some(&strides[..])] {
        // SAFETY: the samples are described, and never read.
        let array = unsafe { ForeignArray::of_cuda_array(input.u64(), &shape, strides, sample_len, axes) };
        assert!(array.is_err() || (2..=3).contains(&count));
    }
}
