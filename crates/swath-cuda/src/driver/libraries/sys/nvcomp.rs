//! nvCOMP 6 as its headers declare it (`nvcomp.h`, `nvcomp/{deflate,zstd,lz4}.h`, 6.0.0): only what we call.

use std::ffi::{c_char, c_int, c_void};

use crate::driver::libraries::load::{RawStream, table};

/// `nvcompStatus_t`; device status arrays hold it too.
pub(crate) type Status = c_int;

pub(crate) const SUCCESS: Status = 0;
pub(crate) const CHUNK_TOO_LARGE: Status = 18;

/// `nvcompDecompressBackend_t`: the CUDA implementation. The hardware engine reports every chunk as good, whatever it
/// wrote.
pub(crate) const BACKEND_CUDA: c_int = 2;

/// `nvcompProperties_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Properties {
    /// major * 1000 + minor * 100 + patch.
    pub(crate) version: u32,
    pub(crate) cudart_version: u32,
}

/// `nvcompAlignmentRequirements_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Alignments {
    pub(crate) input: usize,
    pub(crate) output: usize,
    pub(crate) temp: usize,
}

/// `nvcompBatchedLZ4DecompressOpts_t`; its reserved part must be zero.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct DecompressOptions {
    pub(crate) backend: c_int,
    pub(crate) sort_before_hardware: c_int,
    /// `NVCOMP_TYPE_CHAR`, only read where bits were shuffled.
    pub(crate) data_type: c_int,
    /// `NVCOMP_BITSHUFFLE_NONE`.
    pub(crate) bitshuffle: c_int,
    pub(crate) reserved: [u8; 48],
}

const _: () = assert!(size_of::<DecompressOptions>() == 64 && align_of::<DecompressOptions>() == 4);

/// `nvcompBatchedDeflateCompressOpts_t`. The struct for Zstd has the same length and is all reserved, so it is zero
/// where the algorithm is 0. Structs of this length are passed in memory, so their alignment does not affect a call.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct CompressOptions {
    pub(crate) algorithm: c_int,
    pub(crate) reserved: [u8; 60],
}

const _: () = assert!(size_of::<CompressOptions>() == 64);

pub(crate) type GetProperties = unsafe extern "C" fn(*mut Properties) -> Status;
pub(crate) type GetCompressAlignments = unsafe extern "C" fn(CompressOptions, *mut Alignments) -> Status;
pub(crate) type GetCompressTempSize =
    unsafe extern "C" fn(usize, usize, CompressOptions, *mut usize, usize, RawStream) -> Status;
pub(crate) type GetMaxOutput = unsafe extern "C" fn(usize, CompressOptions, *mut usize) -> Status;
pub(crate) type CompressAsync = unsafe extern "C" fn(
    *const *const c_void,
    *const usize,
    usize,
    usize,
    *mut c_void,
    usize,
    *const *mut c_void,
    *mut usize,
    CompressOptions,
    *mut Status,
    RawStream,
) -> Status;

table! {
    /// The functions of nvCOMP 6.
    Table {
        fn nvcompGetStatusString(status: Status) -> *const c_char;
        fn nvcompBatchedLZ4DecompressGetRequiredAlignments(o: DecompressOptions, a: *mut Alignments) -> Status;
        fn nvcompBatchedLZ4DecompressGetTempSize(
            chunks: usize, max_chunk: usize, o: DecompressOptions, temp: *mut usize, total: usize, stream: RawStream
        ) -> Status;
        fn nvcompBatchedLZ4DecompressAsync(
            inputs: *const *const c_void, input_lens: *const usize, capacities: *const usize, lens: *mut usize,
            chunks: usize, temp: *mut c_void, temp_len: usize, outputs: *const *mut c_void, o: DecompressOptions,
            statuses: *mut Status, stream: RawStream,
        ) -> Status;
        fn nvcompBatchedDeflateCompressGetRequiredAlignments(o: CompressOptions, a: *mut Alignments) -> Status;
        fn nvcompBatchedDeflateCompressGetTempSize(
            chunks: usize, max_chunk: usize, o: CompressOptions, temp: *mut usize, total: usize, stream: RawStream
        ) -> Status;
        fn nvcompBatchedDeflateCompressGetMaxOutputChunkSize(
            max_chunk: usize, o: CompressOptions, max_output: *mut usize
        ) -> Status;
        fn nvcompBatchedDeflateCompressAsync(
            inputs: *const *const c_void, input_lens: *const usize, max_chunk: usize, chunks: usize,
            temp: *mut c_void, temp_len: usize, outputs: *const *mut c_void, lens: *mut usize, o: CompressOptions,
            statuses: *mut Status, stream: RawStream,
        ) -> Status;
        fn nvcompBatchedZstdCompressGetRequiredAlignments(o: CompressOptions, a: *mut Alignments) -> Status;
        fn nvcompBatchedZstdCompressGetTempSize(
            chunks: usize, max_chunk: usize, o: CompressOptions, temp: *mut usize, total: usize, stream: RawStream
        ) -> Status;
        fn nvcompBatchedZstdCompressGetMaxOutputChunkSize(
            max_chunk: usize, o: CompressOptions, max_output: *mut usize
        ) -> Status;
        fn nvcompBatchedZstdCompressAsync(
            inputs: *const *const c_void, input_lens: *const usize, max_chunk: usize, chunks: usize,
            temp: *mut c_void, temp_len: usize, outputs: *const *mut c_void, lens: *mut usize, o: CompressOptions,
            statuses: *mut Status, stream: RawStream,
        ) -> Status;
    }
    optional {}
}
