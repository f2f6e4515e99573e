//! nvJPEG2000 0.x as its header declares it (`nvjpeg2k.h`, 0.11): only what we call.

use std::ffi::{c_int, c_void};

use crate::driver::libraries::load::{RawStream, table};

/// `nvjpeg2kStatus_t`.
pub(crate) type Status = c_int;

/// Texts for `nvjpeg2kStatus_t`, since the library has none.
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

/// `nvjpeg2kBitstreamType_t`: the codestream without boxes around it.
pub(crate) const STREAM_J2K: c_int = 0;

/// `nvjpeg2kColorSpace_t`. A bare codestream does not contain it, but the library requires one.
pub(crate) const COLOR_SRGB: c_int = 1;
pub(crate) const COLOR_GRAY: c_int = 2;

/// `nvjpeg2kQualityType_t`.
pub(crate) const QUALITY_PSNR: c_int = 0;

/// `nvjpeg2kImageFormat_t`.
pub(crate) const FORMAT_PLANAR: c_int = 0;
pub(crate) const FORMAT_INTERLEAVED: c_int = 1;

const MAX_RESOLUTIONS: usize = 33;

/// `nvjpeg2kEncodeConfig_t`.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct EncodeConfig {
    pub(crate) stream_type: c_int,
    pub(crate) color_space: c_int,
    pub(crate) rsiz: u16,
    pub(crate) width: u32,
    pub(crate) height: u32,
    pub(crate) enable_tiling: u32,
    pub(crate) tile_width: u32,
    pub(crate) tile_height: u32,
    pub(crate) components: u32,
    pub(crate) component_info: *mut ComponentInfo,
    pub(crate) enable_sop: u32,
    pub(crate) enable_eph: u32,
    pub(crate) progression: c_int,
    pub(crate) layers: u32,
    pub(crate) color_transform: u32,
    pub(crate) resolutions: u32,
    pub(crate) block_width: u32,
    pub(crate) block_height: u32,
    pub(crate) encode_modes: u32,
    pub(crate) irreversible: u32,
    pub(crate) precincts: u32,
    pub(crate) precinct_width: [u32; MAX_RESOLUTIONS],
    pub(crate) precinct_height: [u32; MAX_RESOLUTIONS],
}

impl EncodeConfig {
    /// Returns a configuration with one quality layer, and without tiles, precincts or optional markers, in layer
    /// order; all else is zero.
    pub(crate) const fn plain() -> Self {
        Self {
            stream_type: STREAM_J2K,
            color_space: 0,
            rsiz: 0,
            width: 0,
            height: 0,
            enable_tiling: 0,
            tile_width: 0,
            tile_height: 0,
            components: 0,
            component_info: std::ptr::null_mut(),
            enable_sop: 0,
            enable_eph: 0,
            progression: 0,
            layers: 1,
            color_transform: 0,
            resolutions: 0,
            block_width: 0,
            block_height: 0,
            encode_modes: 0,
            irreversible: 0,
            precincts: 0,
            precinct_width: [0; MAX_RESOLUTIONS],
            precinct_height: [0; MAX_RESOLUTIONS],
        }
    }
}

#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<EncodeConfig>() == 360);

/// `nvjpeg2kHandle_t`, `nvjpeg2kDecodeState_t`, `nvjpeg2kStream_t`, `nvjpeg2kDecodeParams_t`, `nvjpeg2kEncoder_t`,
/// `nvjpeg2kEncodeState_t` and `nvjpeg2kEncodeParams_t` are all opaque pointers.
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

table! {
    /// The functions of nvJPEG2000 0.x from 0.11 on for encoding.
    EncodeTable {
        fn nvjpeg2kGetProperty(kind: c_int, value: *mut c_int) -> Status;
        fn nvjpeg2kEncoderCreateSimple(encoder: *mut Opaque) -> Status;
        fn nvjpeg2kEncoderDestroy(encoder: Opaque) -> Status;
        fn nvjpeg2kEncodeStateCreate(encoder: Opaque, state: *mut Opaque) -> Status;
        fn nvjpeg2kEncodeStateDestroy(state: Opaque) -> Status;
        fn nvjpeg2kEncodeParamsCreate(params: *mut Opaque) -> Status;
        fn nvjpeg2kEncodeParamsDestroy(params: Opaque) -> Status;
        fn nvjpeg2kEncodeParamsSetEncodeConfig(params: Opaque, config: *mut EncodeConfig) -> Status;
        fn nvjpeg2kEncodeParamsSpecifyQuality(params: Opaque, kind: c_int, value: f64) -> Status;
        fn nvjpeg2kEncodeParamsSetInputFormat(params: Opaque, format: c_int) -> Status;
        fn nvjpeg2kEncode(
            encoder: Opaque, state: Opaque, params: Opaque, input: *const Image, stream: RawStream
        ) -> Status;
        fn nvjpeg2kEncodeRetrieveBitstream(
            encoder: Opaque, state: Opaque, data: *mut u8, len: *mut usize, stream: RawStream
        ) -> Status;
    }
    optional {}
}
