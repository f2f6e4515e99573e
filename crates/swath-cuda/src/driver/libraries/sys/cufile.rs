//! cuFile 1.x as its header declares it (`cufile.h`): only what we call.

use std::ffi::{c_int, c_uint, c_void};

use crate::driver::libraries::load::table;

/// `CUfileError_t`: returned by value, in one register.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Error {
    /// `CUfileOpError`.
    pub(crate) code: c_int,
    /// `CUresult`, where the code says that the CUDA driver failed.
    pub(crate) cuda: c_int,
}

const _: () = assert!(size_of::<Error>() == 8);

pub(crate) const SUCCESS: c_int = 0;
/// Smaller codes are errors of the system.
pub(crate) const FIRST_ERROR: c_int = 5000;
pub(crate) const CUDA_DRIVER_ERROR: c_int = 5011;

/// Returns the meaning of a `CUfileOpError`. The header words them in an inline function, so the library has no texts.
pub(crate) const fn text(code: c_int) -> &'static str {
    match code {
        5001 => "the nvidia-fs driver is not loaded and compatibility mode is off",
        5002 => "invalid driver property",
        5003 => "driver property out of range",
        5004 => "nvidia-fs driver version mismatch",
        5005 => "nvidia-fs driver version cannot be read",
        5006 => "the driver is closing",
        5007 => "GPUDirect Storage is not supported on this platform",
        5008 => "GPUDirect Storage is not supported on this file",
        5009 => "GPUDirect Storage is not supported on this GPU",
        5010 => "nvidia-fs driver error",
        CUDA_DRIVER_ERROR => "CUDA driver error",
        5012 => "invalid device pointer",
        5013 => "invalid pointer memory type",
        5014 => "the pointer's range exceeds its allocation",
        5015 => "another CUDA context",
        5016 => "access beyond the largest pinned size",
        5017 => "access beyond the mapped size",
        5018 => "unsupported file type",
        5019 => "unsupported file open flags",
        5020 => "direct I/O is not set on the file",
        5022 => "invalid argument",
        5023 => "the device pointer is already registered",
        5024 => "the device pointer is not registered",
        5025 => "permission denied",
        5026 => "the driver is already open",
        5027 => "the file is not registered",
        5028 => "the file is already registered",
        5029 => "no GPU found",
        5030 => "internal error",
        5031 => "no new file descriptor",
        5033 => "nvidia-fs driver set-up error",
        5034 => "GPUDirect Storage is switched off for this file",
        5035 => "a batch could not be submitted",
        5036 => "GPU memory could not be pinned",
        5037 => "the queue of batches is full",
        5038 => "reads on streams are not supported",
        5039 => "a batch could not be set up",
        5040 => "a batch was not submitted",
        5041 => "the status of a batch is unknown",
        5043 => "out of memory",
        5044 => "I/O error",
        5045 => "buffer registration error",
        5047 => "invalid context",
        5048 => "nvidia-fs internal error",
        5049 => "compatibility mode is off",
        _ => "unknown cuFile error",
    }
}

/// Bits of `DriverProperties::control_flags`.
pub(crate) const CONTROL_ALLOW_COMPAT: c_uint = 1 << 1;
/// Bits of `DriverProperties::status_flags`: reads straight from NVMe without nvidia-fs.
pub(crate) const STATUS_NVME_P2P: c_uint = 1 << 11;

/// `CUfileDrvProps_t`, with spare room in case a later 1.x writes more.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct DriverProperties {
    pub(crate) nvfs_major: c_uint,
    pub(crate) nvfs_minor: c_uint,
    pub(crate) poll_threshold: usize,
    pub(crate) max_direct_io: usize,
    pub(crate) status_flags: c_uint,
    pub(crate) control_flags: c_uint,
    pub(crate) feature_flags: c_uint,
    pub(crate) max_device_cache: c_uint,
    pub(crate) per_buffer_cache: c_uint,
    pub(crate) max_pinned: c_uint,
    pub(crate) max_batch: c_uint,
    pub(crate) batch_timeout: c_uint,
    pub(crate) room: [u64; 32],
}

/// `CU_FILE_HANDLE_TYPE_OPAQUE_FD`.
pub(crate) const HANDLE_TYPE_FD: c_int = 1;

/// `CUfileDescr_t`; its union of a file descriptor and a pointer is as wide as the pointer.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Description {
    pub(crate) kind: c_int,
    pub(crate) handle: DescribedFile,
    pub(crate) file_system: *const c_void,
}

/// The descriptor's half of the union, padded to the pointer's width.
#[repr(C, align(8))]
#[derive(Debug)]
pub(crate) struct DescribedFile {
    pub(crate) descriptor: c_int,
    pub(crate) rest: c_int,
}

const _: () = assert!(size_of::<Description>() == 24);

/// `CUfileHandle_t` and `CUfileBatchHandle_t`.
pub(crate) type Opaque = *mut c_void;

/// `CUFILE_BATCH`, the only mode of a batch, and `CUFILE_READ`.
pub(crate) const MODE_BATCH: c_int = 1;
pub(crate) const OPCODE_READ: c_int = 0;

/// `CUfileIOParams_t`: one read of a batch. The header's union has this one member.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Parameters {
    pub(crate) mode: c_int,
    pub(crate) address: *mut c_void,
    pub(crate) file_offset: i64,
    pub(crate) address_offset: i64,
    pub(crate) len: usize,
    pub(crate) handle: Opaque,
    pub(crate) opcode: c_int,
    pub(crate) cookie: *mut c_void,
}

#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<Parameters>() == 64);

/// Bits of `CUfileStatus_t`: a read with any of these is done.
pub(crate) const STATUS_COMPLETE: c_int = 0x10;
/// Ill-formed, cancelled, timed out, failed.
pub(crate) const STATUS_OVER: c_int = 0x04 | 0x08 | STATUS_COMPLETE | 0x20 | 0x40;

/// `CUfileIOEvents_t`: the result of one read of a batch.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Event {
    pub(crate) cookie: *mut c_void,
    pub(crate) status: c_int,
    /// Bytes, or a negative error, although the header calls it unsigned.
    pub(crate) answer: isize,
}

#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<Event>() == 24);

/// `struct timespec` of 64-bit Linux.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timespec {
    pub(crate) seconds: i64,
    pub(crate) nanoseconds: i64,
}

/// Flags of `cuFileStreamRegister`: the offset in the buffer, the offset in the file and the length are final when a
/// read is submitted.
pub(crate) const STREAM_ALL_FIXED: c_uint = 1 | 2 | 4;

table! {
    /// The functions of cuFile 1.x.
    Table {
        fn cuFileDriverOpen() -> Error;
        fn cuFileDriverClose() -> Error;
        fn cuFileDriverGetProperties(properties: *mut DriverProperties) -> Error;
        fn cuFileHandleRegister(handle: *mut Opaque, description: *mut Description) -> Error;
        fn cuFileHandleDeregister(handle: Opaque);
        fn cuFileRead(
            handle: Opaque, address: *mut c_void, len: usize, file_offset: i64, address_offset: i64
        ) -> isize;
    }
    optional {
        fn cuFileDriverClose_v2() -> Error;
        fn cuFileGetVersion(version: *mut c_int) -> Error;
        fn cuFileBatchIOSetUp(batch: *mut Opaque, most: c_uint) -> Error;
        fn cuFileBatchIOSubmit(batch: Opaque, count: c_uint, reads: *mut Parameters, flags: c_uint) -> Error;
        fn cuFileBatchIOGetStatus(
            batch: Opaque, least: c_uint, count: *mut c_uint, events: *mut Event, timeout: *mut Timespec
        ) -> Error;
        fn cuFileBatchIODestroy(batch: Opaque);
        fn cuFileReadAsync(
            handle: Opaque,
            address: *mut c_void,
            len: *mut usize,
            file_offset: *mut i64,
            address_offset: *mut i64,
            read: *mut isize,
            stream: *mut c_void,
        ) -> Error;
        fn cuFileStreamRegister(stream: *mut c_void, flags: c_uint) -> Error;
        fn cuFileStreamDeregister(stream: *mut c_void) -> Error;
    }
}
