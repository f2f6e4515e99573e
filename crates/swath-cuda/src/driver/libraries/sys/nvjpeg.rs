//! nvJPEG 12 and 13 as their headers declare them (`nvjpeg.h`, 12.3 and 13.0, which agree in all of this): only what we
//! call.

use std::ffi::{c_int, c_uint, c_void};

use crate::driver::libraries::load::{RawStream, table};

/// `nvjpegStatus_t`.
pub(crate) type Status = c_int;

pub(crate) const SUCCESS: Status = 0;

/// Texts for `nvjpegStatus_t`, since the library has none.
pub(crate) const STATUS_NAMES: [&str; 11] = [
    "success",
    "not initialized",
    "invalid parameter",
    "bad JPEG",
    "JPEG not supported",
    "allocator failure",
    "execution failed",
    "architecture mismatch",
    "internal error",
    "implementation not supported",
    "incomplete bitstream",
];

/// `nvjpegBackend_t`.
pub(crate) const BACKEND_DEFAULT: c_int = 0;
pub(crate) const BACKEND_HYBRID: c_int = 1;
pub(crate) const BACKEND_HARDWARE: c_int = 3;

/// `nvjpegOutputFormat_t`.
pub(crate) const OUTPUT_UNCHANGED: c_int = 0;
pub(crate) const OUTPUT_Y: c_int = 2;
pub(crate) const OUTPUT_RGB: c_int = 3;

/// `nvjpegChromaSubsampling_t`.
pub(crate) const CSS_444: c_int = 0;
pub(crate) const CSS_422: c_int = 1;
pub(crate) const CSS_420: c_int = 2;
pub(crate) const CSS_GRAY: c_int = 6;

pub(crate) const INPUT_RGB_INTERLEAVED: c_int = 5;

/// `nvjpegJpegEncoding_t`.
pub(crate) const ENCODING_BASELINE: c_int = 0xC0;

pub(crate) const FLAG_INTERPOLATE_CHROMA: c_uint = 1 << 5;

pub(crate) const MAX_COMPONENT: usize = 4;

/// `nvjpegImage_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Image {
    pub(crate) channel: [*mut u8; MAX_COMPONENT],
    pub(crate) pitch: [usize; MAX_COMPONENT],
}

/// `nvjpegHandle_t`, `nvjpegJpegState_t`, `nvjpegJpegStream_t`, `nvjpegEncoderState_t` and `nvjpegEncoderParams_t` are
/// all opaque pointers.
pub(crate) type Opaque = *mut c_void;

table! {
    /// The functions of nvJPEG 12 and 13.
    Table {
        fn nvjpegGetProperty(kind: c_int, value: *mut c_int) -> Status;
        fn nvjpegCreateEx(
            backend: c_int, device: *const c_void, pinned: *const c_void, flags: c_uint, handle: *mut Opaque
        ) -> Status;
        fn nvjpegDestroy(handle: Opaque) -> Status;
        fn nvjpegJpegStateCreate(handle: Opaque, state: *mut Opaque) -> Status;
        fn nvjpegJpegStateDestroy(state: Opaque) -> Status;
        fn nvjpegJpegStreamCreate(handle: Opaque, jpeg: *mut Opaque) -> Status;
        fn nvjpegJpegStreamDestroy(jpeg: Opaque) -> Status;
        fn nvjpegJpegStreamParseHeader(handle: Opaque, data: *const u8, len: usize, jpeg: Opaque) -> Status;
        fn nvjpegDecodeBatchedSupported(handle: Opaque, jpeg: Opaque, unsupported: *mut c_int) -> Status;
        fn nvjpegGetImageInfo(
            handle: Opaque, data: *const u8, len: usize, components: *mut c_int, subsampling: *mut c_int,
            widths: *mut c_int, heights: *mut c_int,
        ) -> Status;
        fn nvjpegDecode(
            handle: Opaque, state: Opaque, data: *const u8, len: usize, format: c_int, output: *mut Image,
            stream: RawStream,
        ) -> Status;
        fn nvjpegDecodeBatchedInitialize(
            handle: Opaque, state: Opaque, batch: c_int, cpu_threads: c_int, format: c_int
        ) -> Status;
        fn nvjpegDecodeBatched(
            handle: Opaque, state: Opaque, data: *const *const u8, lens: *const usize, outputs: *mut Image,
            stream: RawStream,
        ) -> Status;
    }
    optional {}
}

table! {
    /// The functions of nvJPEG 12 and 13 for encoding.
    EncodeTable {
        fn nvjpegGetProperty(kind: c_int, value: *mut c_int) -> Status;
        fn nvjpegCreateEx(
            backend: c_int, device: *const c_void, pinned: *const c_void, flags: c_uint, handle: *mut Opaque
        ) -> Status;
        fn nvjpegDestroy(handle: Opaque) -> Status;
        fn nvjpegEncoderStateCreate(handle: Opaque, state: *mut Opaque, stream: RawStream) -> Status;
        fn nvjpegEncoderStateDestroy(state: Opaque) -> Status;
        fn nvjpegEncoderParamsCreate(handle: Opaque, params: *mut Opaque, stream: RawStream) -> Status;
        fn nvjpegEncoderParamsDestroy(params: Opaque) -> Status;
        fn nvjpegEncoderParamsSetQuality(params: Opaque, quality: c_int, stream: RawStream) -> Status;
        fn nvjpegEncoderParamsSetEncoding(params: Opaque, encoding: c_int, stream: RawStream) -> Status;
        fn nvjpegEncoderParamsSetOptimizedHuffman(params: Opaque, optimized: c_int, stream: RawStream) -> Status;
        fn nvjpegEncoderParamsSetSamplingFactors(params: Opaque, subsampling: c_int, stream: RawStream) -> Status;
        fn nvjpegEncodeYUV(
            handle: Opaque, state: Opaque, params: Opaque, source: *const Image, subsampling: c_int, width: c_int,
            height: c_int, stream: RawStream,
        ) -> Status;
        fn nvjpegEncodeImage(
            handle: Opaque, state: Opaque, params: Opaque, source: *const Image, format: c_int, width: c_int,
            height: c_int, stream: RawStream,
        ) -> Status;
        fn nvjpegEncodeRetrieveBitstream(
            handle: Opaque, state: Opaque, data: *mut u8, len: *mut usize, stream: RawStream
        ) -> Status;
    }
    optional {}
}
