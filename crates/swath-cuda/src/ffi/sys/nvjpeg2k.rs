//! nvJPEG2000 0.x as its header declares it (`nvjpeg2k.h`, 0.11): what we call, nothing else.

use std::ffi::{c_int, c_void};

use crate::ffi::library::{RawStream, table};

/// `nvjpeg2kStatus_t`.
pub(crate) type Status = c_int;

pub(crate) const SUCCESS: Status = 0;

/// The names of `nvjpeg2kStatus_t`, since the library words none of them itself.
pub(crate) const STATUS_NAMES: [&str; 10] = [
    "success",
    "not initialized",
    "invalid parameter",
    "bad JPEG 2000 stream",
    "JPEG 2000 stream not supported",
    "allocator failure",
    "execution failed",
    "architecture mismatch",
    "internal error",
    "implementation not supported",
];

/// `nvjpeg2kImageType_t`.
pub(crate) const UINT8: c_int = 0;
pub(crate) const UINT16: c_int = 1;
pub(crate) const INT16: c_int = 2;

/// `nvjpeg2kImageComponentInfo_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ComponentInfo {
    pub(crate) width: u32,
    pub(crate) height: u32,
    pub(crate) precision: u8,
    pub(crate) signed: u8,
}

/// `nvjpeg2kImageInfo_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ImageInfo {
    pub(crate) width: u32,
    pub(crate) height: u32,
    pub(crate) tile_width: u32,
    pub(crate) tile_height: u32,
    pub(crate) tiles_across: u32,
    pub(crate) tiles_down: u32,
    pub(crate) components: u32,
}

/// `nvjpeg2kImage_t`.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Image {
    pub(crate) pixel_data: *mut *mut c_void,
    pub(crate) pitch_in_bytes: *mut usize,
    pub(crate) pixel_type: c_int,
    pub(crate) components: u32,
}

/// `nvjpeg2kHandle_t`, `nvjpeg2kDecodeState_t`, `nvjpeg2kStream_t` and `nvjpeg2kDecodeParams_t` are all opaque
/// pointers.
pub(crate) type Opaque = *mut c_void;

table! {
    /// The functions of nvJPEG2000 0.x from 0.11 on.
    Table {
        fn nvjpeg2kGetProperty(kind: c_int, value: *mut c_int) -> Status;
        fn nvjpeg2kCreateSimple(handle: *mut Opaque) -> Status;
        fn nvjpeg2kDestroy(handle: Opaque) -> Status;
        fn nvjpeg2kDecodeStateCreate(handle: Opaque, state: *mut Opaque) -> Status;
        fn nvjpeg2kDecodeStateDestroy(state: Opaque) -> Status;
        fn nvjpeg2kStreamCreate(codestream: *mut Opaque) -> Status;
        fn nvjpeg2kStreamDestroy(codestream: Opaque) -> Status;
        fn nvjpeg2kStreamParse(
            handle: Opaque, data: *const u8, len: usize, save_metadata: c_int, save_stream: c_int, codestream: Opaque
        ) -> Status;
        fn nvjpeg2kStreamGetImageInfo(codestream: Opaque, info: *mut ImageInfo) -> Status;
        fn nvjpeg2kStreamGetImageComponentInfo(
            codestream: Opaque, info: *mut ComponentInfo, component: u32
        ) -> Status;
        fn nvjpeg2kDecodeImage(
            handle: Opaque, state: Opaque, codestream: Opaque, params: Opaque, output: *mut Image, stream: RawStream
        ) -> Status;
    }
    optional {}
}
