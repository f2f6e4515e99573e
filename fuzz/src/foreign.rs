//! Arrays of other libraries, as CUDA's array interface and DLPack describe them.
#![allow(unsafe_code, reason = "descriptions of device memory are unsafe to make; no sample is touched here")]

use std::{ffi::c_void, ptr::null_mut};

use swath::gpu::{
    Axes, ForeignArray,
    dlpack::{ManagedTensor, VersionedTensor},
};

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
    tensors(&mut input);
}

/// `DLTensor`, as the specification of DLPack defines it: the producer's side.
#[derive(Clone, Copy)]
#[repr(C)]
struct Tensor {
    data: *mut c_void,
    device: [i32; 2],
    axes: i32,
    code: u8,
    bits: u8,
    lanes: u16,
    shape: *mut i64,
    strides: *mut i64,
    offset: u64,
}

/// `DLManagedTensor`.
#[repr(C)]
struct Old {
    tensor: Tensor,
    context: *mut c_void,
    deleter: *mut c_void,
}

/// `DLManagedTensorVersioned`.
#[repr(C)]
struct New {
    version: [u32; 2],
    context: *mut c_void,
    deleter: *mut c_void,
    flags: u64,
    tensor: Tensor,
}

const _: () =
    assert!(size_of::<Old>() == size_of::<ManagedTensor>() && size_of::<New>() == size_of::<VersionedTensor>());

/// Describes a tensor of any fields, in both forms. Its memory does not exist. Its lists are exactly as long as its number of
/// axes where that number is small; else they do not exist either, so a reader that trusts the number crashes.
fn tensors(input: &mut Input<'_>) {
    let axes = input.u8();
    let any = i32::from_le_bytes(input.bytes());
    let axes = [2, 3, 2, 3, 0, 1, 4, 6, -1, i32::MIN, i32::MAX, any][usize::from(axes) % 12];
    let mut lists = [0, 1].map(|_| (0..axes.clamp(0, 6)).map(|_| input.u64() as i64).collect::<Vec<_>>());
    let kinds = input.u8();
    // Lengths that fit into memory, half of the time.
    if kinds & 1 == 0 {
        lists[0].iter_mut().for_each(|len| *len &= 0xfff);
    }
    let absent = input.u8();
    let kind = i32::from_le_bytes(input.bytes());
    let [shape, strides] = [0, 1].map(|at| match (absent >> at & 1, axes) {
        (1, _) => null_mut(),
        (_, 0..=6) => lists[at].as_mut_ptr(),
        _ => std::ptr::without_provenance_mut(8),
    });
    let tensor = Tensor {
        data: std::ptr::without_provenance_mut(if absent & 4 == 0 { input.u64() as usize } else { 0 }),
        device: [input.pick(&[2, 13, 2, 1, 0, kind]), i32::from_le_bytes(input.bytes())],
        axes,
        code: input.u8(),
        bits: input.pick(&[8, 16, 32, 64, 0, 1, 12, 128, 255]),
        lanes: input.pick(&[1, 1, 1, 0, 2, u16::MAX]),
        shape,
        strides,
        offset: if kinds & 2 == 0 { input.u64() } else { 0 },
    };
    let flags = input.u64();
    let version = [input.pick(&[1, 1, 0, 2, u32::MAX]), input.u32()];
    let old = Old { tensor, context: null_mut(), deleter: null_mut() };
    let new = New { version, context: null_mut(), deleter: null_mut(), flags, tensor };
    for order in [Axes::BandFirst, Axes::BandLast] {
        // SAFETY: the structures of the specification; the lists are as long as their tensor says, or there are none, which is
        // allowed where the number of axes is neither two nor three.
        let arrays = unsafe {
            [
                (ForeignArray::of_dlpack(&*(&raw const old).cast::<ManagedTensor>(), order), true),
                (
                    ForeignArray::of_dlpack_versioned(&*(&raw const new).cast::<VersionedTensor>(), order),
                    version[0] == 1,
                ),
            ]
        };
        for (array, known) in arrays {
            let Ok(array) = array else { continue };
            assert!(known && matches!(tensor.device[0], 2 | 13) && tensor.lanes == 1);
            assert_eq!((array.sample_len * 8, array.ordinal), (usize::from(tensor.bits), Some(tensor.device[1])));
            let lengths = lists[0].iter().map(|len| usize::try_from(*len).expect("a negative length is refused"));
            let lengths: Vec<usize> = lengths.collect();
            let expected = match (&lengths[..], order) {
                (&[rows, columns], _) => [rows, columns, 1],
                (&[bands, rows, columns], Axes::BandFirst) => [rows, columns, bands],
                (&[rows, columns, bands], Axes::BandLast) => [rows, columns, bands],
                _ => panic!("{} axes are not an image", lengths.len()),
            };
            assert_eq!(array.shape, expected);
            assert!(absent & 4 == 0 && tensor.data as usize != 0 || lengths.contains(&0), "an image without memory");
        }
    }
}
