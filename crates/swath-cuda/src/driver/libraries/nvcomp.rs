//! nvCOMP 6: decompresses batches of LZ4 chunks and compresses batches of any bytes with Deflate or Zstd, all in device
//! memory.
//!
//! Decompression is only for trusted data: on damaged input nvCOMP 6.0 was seen to hang (Zstd, one flipped bit) and to
//! access memory out of bounds (Deflate), which destroys the context of the whole process. Compression accepts any
//! bytes.
//!
//! What nvCOMP 6.0 writes, as observed: a Deflate chunk is one block with codes of its own, the last-block bit is the
//! lowest bit of its first byte, and zero bits pad its last byte. A Zstd chunk is one frame without checksum, in blocks
//! of 64 KiB that refer back to each other. The bytes do not depend on the batch, except for algorithm 4 of Deflate.

use std::ffi::CStr;
use std::fmt;
use std::path::Path;

use crate::driver::libraries::load::{Absent, CallError, Library, Names, RawStream, Search};
use crate::driver::libraries::sys::nvcomp as sys;

const NAMES: Names = Names {
    label: "nvCOMP",
    files: &["libnvcomp.so.6"],
    wheels: &["nvidia/libnvcomp/lib64"],
    landmark: c"nvcompGetProperties",
};

/// The longest LZ4 chunk, compressed or not, that nvCOMP accepts.
const MOST_TO_DECOMPRESS: usize = u32::MAX as usize;

/// A format that nvCOMP compresses to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NvcompFormat {
    /// Deflate without a zlib frame.
    Deflate {
        /// 0, which only encodes bytes by their frequency, to 5, the smallest and slowest.
        algorithm: u8,
    },
    /// Zstandard frames.
    Zstd,
}

impl NvcompFormat {
    /// Returns the longest chunk that nvCOMP accepts.
    #[must_use]
    pub const fn max_chunk_len(self) -> usize {
        match self {
            Self::Deflate { .. } => 1 << 31,
            Self::Zstd => (1 << 31) - 1,
        }
    }

    fn options(self) -> sys::CompressOptions {
        let algorithm = match self {
            Self::Deflate { algorithm } => algorithm.into(),
            Self::Zstd => 0,
        };
        sys::CompressOptions { algorithm, reserved: [0; 60] }
    }
}

/// What the compression of a batch needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompressPlan {
    /// Bytes of temporary device memory.
    pub temp_len: usize,
    /// Bytes that nvCOMP may write for one chunk: its call passes no capacity.
    pub max_output_len: usize,
    /// How the buffers must be aligned.
    pub alignments: Alignments,
}

/// Device addresses of the arrays that describe a batch to compress, one element for each chunk.
#[derive(Debug, Clone, Copy)]
pub struct CompressPointers {
    /// Addresses (`u64`) of the chunks.
    pub inputs: u64,
    /// Their lengths (`u64`).
    pub input_lens: u64,
    /// Addresses (`u64`) of the output buffers, each of [`CompressPlan::max_output_len`] bytes.
    pub outputs: u64,
    /// Written by nvCOMP: the bytes (`u64`) of each compressed chunk.
    pub output_lens: u64,
    /// Written by nvCOMP: each chunk's status (`i32`).
    pub statuses: u64,
}

/// The least alignment, in bytes, of the buffers of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Alignments {
    /// Alignment of each input chunk.
    pub input: usize,
    /// Alignment of each output buffer.
    pub output: usize,
    /// Alignment of the temporary memory.
    pub temp: usize,
}

/// Device addresses of the arrays that describe a batch, one element for each chunk.
#[derive(Debug, Clone, Copy)]
pub struct BatchPointers {
    /// Addresses (`u64`) of the compressed chunks.
    pub inputs: u64,
    /// Their lengths (`u64`).
    pub input_lens: u64,
    /// Addresses (`u64`) of the output buffers.
    pub outputs: u64,
    /// Their lengths (`u64`).
    pub capacities: u64,
    /// Written by nvCOMP: the bytes (`u64`) of each decompressed chunk.
    pub output_lens: u64,
    /// Written by nvCOMP: each chunk's status (`i32`).
    pub statuses: u64,
}

/// The loaded nvCOMP library. Its functions keep no state, so it may be shared and copied.
#[derive(Debug, Clone, Copy)]
pub struct Nvcomp {
    library: Library,
    table: sys::Table,
    version: Version,
}

/// major * 1000 + minor * 100 + patch, as nvCOMP counts.
#[derive(Debug, Clone, Copy)]
struct Version(u32);

impl Version {
    /// Calls the one function that all majors have with the same parameter.
    fn load(library: &Library) -> Result<Self, Absent> {
        const CALL: &str = "nvcompGetProperties";
        // SAFETY: the type is that of the header, and has been since the function came in nvCOMP 2.
        let get = unsafe { library.symbol::<sys::GetProperties>(c"nvcompGetProperties")? };
        let mut properties = sys::Properties::default();
        // SAFETY: `properties` is a valid, writable nvcompProperties_t for the length of the call.
        let status = unsafe { get(&raw mut properties) };
        if status != sys::SUCCESS {
            let error = CallError { call: CALL, status: status.into(), text: "no version given".to_owned() };
            return Err(Absent::Silent { label: NAMES.label, error });
        }
        let version = Self(properties.version);
        if version.major() == 6 { Ok(version) } else { Err(library.wrong_version(version.to_string(), "6")) }
    }

    const fn major(self) -> u32 {
        self.0 / 1000
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major(), self.0 % 1000 / 100, self.0 % 100)
    }
}

impl Nvcomp {
    /// Loads nvCOMP and reads its version. Needs no GPU.
    ///
    /// # Errors
    /// The places that were searched, or the unsupported version that was found.
    pub fn load(search: &Search) -> Result<Self, Absent> {
        let library = Library::open(&NAMES, search)?;
        // The version first: another major also lacks functions, but the version is the real reason.
        let version = Version::load(&library)?;
        let table = sys::Table::load(&library)?;
        Ok(Self { library, table, version })
    }

    /// Returns `major.minor.patch`.
    #[must_use]
    pub fn version(&self) -> String {
        self.version.to_string()
    }

    /// Returns the file that was loaded.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.library.path()
    }

    /// Returns how the buffers of a batch must be aligned.
    ///
    /// # Errors
    /// nvCOMP's error.
    pub fn alignments(&self) -> Result<Alignments, CallError> {
        let mut found = sys::Alignments::default();
        // SAFETY: `found` is a valid, writable nvcompAlignmentRequirements_t for the length of the call.
        let status = unsafe { (self.table.nvcompBatchedLZ4DecompressGetRequiredAlignments)(OPTIONS, &raw mut found) };
        self.check("nvcompBatchedLZ4DecompressGetRequiredAlignments", status)?;
        Ok(Alignments { input: found.input, output: found.output, temp: found.temp })
    }

    /// Returns the bytes of temporary device memory that [`Self::decompress`] needs for `count` chunks, none longer
    /// than `max_chunk` and together not longer than `total` when decompressed. Queues nothing.
    ///
    /// # Errors
    /// A chunk that is too long for nvCOMP, or nvCOMP's error.
    ///
    /// # Safety
    /// The CUDA context is current and `stream` is one of its streams, or null.
    pub unsafe fn temp_len(
        &self,
        count: usize,
        max_chunk: usize,
        total: usize,
        stream: RawStream,
    ) -> Result<usize, CallError> {
        const CALL: &str = "nvcompBatchedLZ4DecompressGetTempSize";
        if max_chunk > MOST_TO_DECOMPRESS {
            return Err(self.error(CALL, sys::CHUNK_TOO_LARGE));
        }
        let get = self.table.nvcompBatchedLZ4DecompressGetTempSize;
        let mut temp_len = 0;
        // SAFETY: `temp_len` is writable for the length of the call, and the caller guarantees the stream.
        let status = unsafe { get(count, max_chunk, OPTIONS, &raw mut temp_len, total, stream) };
        self.check(CALL, status)?;
        Ok(temp_len)
    }

    /// Queues the decompression of a batch on `stream` and returns at once.
    ///
    /// # Errors
    /// When the work could not be queued. A chunk that cannot be decompressed only shows in its status.
    ///
    /// # Safety
    /// The CUDA context is current. Until the stream has passed this work, the arrays in `batch` are `count` elements
    /// of device memory as [`BatchPointers`] describes them; the buffers they point at have the lengths given there and
    /// the alignments of [`Self::alignments`], overlap nothing, and `temp` is `temp_len` bytes, at least what
    /// [`Self::temp_len`] gave for a batch no smaller. The data is trusted (see the module's head).
    pub unsafe fn decompress(
        &self,
        batch: &BatchPointers,
        count: usize,
        temp: u64,
        temp_len: usize,
        stream: RawStream,
    ) -> Result<(), CallError> {
        let decompress = self.table.nvcompBatchedLZ4DecompressAsync;
        // SAFETY: the caller keeps this function's contract, which is nvCOMP's: the addresses are only used on the
        // device.
        let status = unsafe {
            decompress(
                batch.inputs as *const _,
                batch.input_lens as *const _,
                batch.capacities as *const _,
                batch.output_lens as *mut _,
                count,
                temp as *mut _,
                temp_len,
                batch.outputs as *const _,
                OPTIONS,
                batch.statuses as *mut _,
                stream,
            )
        };
        self.check("nvcompBatchedLZ4DecompressAsync", status)
    }

    /// Returns what [`Self::compress`] needs for `count` chunks, none longer than `max_chunk` and together not longer
    /// than `total`. Queues nothing.
    ///
    /// # Errors
    /// A chunk longer than [`NvcompFormat::max_chunk_len`], or nvCOMP's error.
    ///
    /// # Safety
    /// The CUDA context is current and `stream` is one of its streams, or null.
    pub unsafe fn compress_plan(
        &self,
        codec: NvcompFormat,
        count: usize,
        max_chunk: usize,
        total: usize,
        stream: RawStream,
    ) -> Result<CompressPlan, CallError> {
        let CompressFunctions { names, align, temp_size, max_output, .. } = self.compress_functions(codec);
        let options = codec.options();
        if max_chunk > codec.max_chunk_len() {
            return Err(self.error(names[1], sys::CHUNK_TOO_LARGE));
        }
        let mut found = sys::Alignments::default();
        // SAFETY: `found` is a valid, writable nvcompAlignmentRequirements_t for the length of the call.
        let status = unsafe { align(options, &raw mut found) };
        self.check(names[0], status)?;
        let mut temp_len = 0;
        // SAFETY: `temp_len` is writable for the length of the call, and the caller guarantees the stream.
        let status = unsafe { temp_size(count, max_chunk, options, &raw mut temp_len, total, stream) };
        self.check(names[1], status)?;
        let mut max_output_len = 0;
        // SAFETY: `max_output_len` is writable for the length of the call.
        let status = unsafe { max_output(max_chunk, options, &raw mut max_output_len) };
        self.check(names[2], status)?;
        let alignments = Alignments { input: found.input, output: found.output, temp: found.temp };
        Ok(CompressPlan { temp_len, max_output_len, alignments })
    }

    /// Queues the compression of a batch on `stream` and returns at once.
    ///
    /// # Errors
    /// When the work could not be queued. A chunk that cannot be compressed only shows in its status.
    ///
    /// # Safety
    /// The CUDA context is current. Until the stream has passed this work, the arrays in `batch` are `count` elements
    /// of device memory as [`CompressPointers`] describes them; no chunk is longer than `max_chunk`, the buffers have
    /// the lengths and alignments that [`Self::compress_plan`] gave for a batch no smaller, and overlap nothing; `temp`
    /// is `temp_len` bytes, at least what it gave.
    #[allow(clippy::too_many_arguments)]
    pub unsafe fn compress(
        &self,
        codec: NvcompFormat,
        batch: &CompressPointers,
        count: usize,
        max_chunk: usize,
        temp: u64,
        temp_len: usize,
        stream: RawStream,
    ) -> Result<(), CallError> {
        let CompressFunctions { names, compress, .. } = self.compress_functions(codec);
        // SAFETY: the caller keeps this function's contract, which is nvCOMP's: the addresses are only used on the
        // device.
        let status = unsafe {
            compress(
                batch.inputs as *const _,
                batch.input_lens as *const _,
                max_chunk,
                count,
                temp as *mut _,
                temp_len,
                batch.outputs as *const _,
                batch.output_lens as *mut _,
                codec.options(),
                batch.statuses as *mut _,
                stream,
            )
        };
        self.check(names[3], status)
    }

    fn compress_functions(&self, codec: NvcompFormat) -> CompressFunctions {
        let table = &self.table;
        match codec {
            NvcompFormat::Deflate { .. } => CompressFunctions {
                names: [
                    "nvcompBatchedDeflateCompressGetRequiredAlignments",
                    "nvcompBatchedDeflateCompressGetTempSize",
                    "nvcompBatchedDeflateCompressGetMaxOutputChunkSize",
                    "nvcompBatchedDeflateCompressAsync",
                ],
                align: table.nvcompBatchedDeflateCompressGetRequiredAlignments,
                temp_size: table.nvcompBatchedDeflateCompressGetTempSize,
                max_output: table.nvcompBatchedDeflateCompressGetMaxOutputChunkSize,
                compress: table.nvcompBatchedDeflateCompressAsync,
            },
            NvcompFormat::Zstd => CompressFunctions {
                names: [
                    "nvcompBatchedZstdCompressGetRequiredAlignments",
                    "nvcompBatchedZstdCompressGetTempSize",
                    "nvcompBatchedZstdCompressGetMaxOutputChunkSize",
                    "nvcompBatchedZstdCompressAsync",
                ],
                align: table.nvcompBatchedZstdCompressGetRequiredAlignments,
                temp_size: table.nvcompBatchedZstdCompressGetTempSize,
                max_output: table.nvcompBatchedZstdCompressGetMaxOutputChunkSize,
                compress: table.nvcompBatchedZstdCompressAsync,
            },
        }
    }

    /// Returns nvCOMP's text for a status.
    #[must_use]
    pub fn status_text(&self, status: i32) -> String {
        // SAFETY: the function accepts any number, and returns null or a string that lives as long as the library.
        let text = unsafe { (self.table.nvcompGetStatusString)(status) };
        if text.is_null() {
            return "unknown status".to_owned();
        }
        // SAFETY: not null, and nvCOMP's strings end in a zero and are never freed.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }

    fn check(&self, call: &'static str, status: sys::Status) -> Result<(), CallError> {
        if status == sys::SUCCESS { Ok(()) } else { Err(self.error(call, status)) }
    }

    fn error(&self, call: &'static str, status: sys::Status) -> CallError {
        CallError { call, status: status.into(), text: self.status_text(status) }
    }
}

/// The functions of one format. `names` has their names in the order of the fields.
struct CompressFunctions {
    names: [&'static str; 4],
    align: sys::GetCompressAlignments,
    temp_size: sys::GetCompressTempSize,
    max_output: sys::GetMaxOutput,
    compress: sys::CompressAsync,
}

const OPTIONS: sys::DecompressOptions = sys::DecompressOptions {
    backend: sys::BACKEND_CUDA,
    sort_before_hardware: 0,
    data_type: 0,
    bitshuffle: 0,
    reserved: [0; 48],
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_worded_as_nvcomp_counts_them() {
        assert_eq!(Version(6000).to_string(), "6.0.0");
        assert_eq!(Version(5212).to_string(), "5.2.12");
        assert_eq!(Version(5212).major(), 5);
    }

    #[test]
    fn options_are_zero_but_for_the_algorithm() {
        assert_eq!(NvcompFormat::Deflate { algorithm: 2 }.options().algorithm, 2);
        assert_eq!(NvcompFormat::Zstd.options().algorithm, 0);
        assert_eq!(NvcompFormat::Zstd.options().reserved, [0; 60]);
    }
}
