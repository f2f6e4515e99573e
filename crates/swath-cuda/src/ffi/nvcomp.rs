//! nvCOMP 6: batches of Zstd and LZ4 chunks that already lie in device memory.
//!
//! Only for data the user trusts: on damaged input nvCOMP 6.0 was seen to hang (Zstd, one flipped bit) and to access
//! memory out of bounds (Deflate), which costs the whole process its context.

use std::ffi::CStr;
use std::fmt;
use std::path::Path;

use super::library::{Absent, CallError, Library, Names, RawStream, Search};
use super::sys::nvcomp as sys;

const NAMES: Names = Names {
    label: "nvCOMP",
    files: &["libnvcomp.so.6"],
    wheels: &["nvidia/libnvcomp/lib64"],
    landmark: c"nvcompGetProperties",
};

/// A format whose chunks nvCOMP decompresses for us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Codec {
    /// Zstandard frames.
    Zstd,
    /// LZ4 blocks, not frames.
    Lz4,
}

impl Codec {
    /// The longest chunk, compressed or not, that nvCOMP takes.
    #[must_use]
    pub const fn max_chunk_len(self) -> usize {
        match self {
            Self::Zstd => (1 << 31) - 1,
            Self::Lz4 => (1 << 32) - 1,
        }
    }
}

/// The least alignment, in bytes, of the buffers of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Alignments {
    /// Of each compressed chunk.
    pub input: usize,
    /// Of each output buffer.
    pub output: usize,
    /// Of the temporary memory.
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
    /// Written: how many bytes (`u64`) each chunk gave.
    pub output_lens: u64,
    /// Written: each chunk's status (`i32`); [`Nvcomp::status_text`] words it.
    pub statuses: u64,
}

/// nvCOMP, loaded. Its functions keep no state of their own, so it may be shared and copied.
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
    /// Asks the one function that all majors have with the same parameter.
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
    /// Finds nvCOMP and its version. Needs no GPU.
    ///
    /// # Errors
    /// Where it was looked for in vain, or that the one found is another major.
    pub fn load(search: &Search) -> Result<Self, Absent> {
        let library = Library::open(&NAMES, search)?;
        // The version first: another major lacks some functions too, which is the lesser part of the reason.
        let version = Version::load(&library)?;
        let table = sys::Table::load(&library)?;
        Ok(Self { library, table, version })
    }

    /// `major.minor.patch`.
    #[must_use]
    pub fn version(&self) -> String {
        self.version.to_string()
    }

    /// The file that was loaded.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.library.path()
    }

    /// How the buffers of a batch must be aligned.
    ///
    /// # Errors
    /// What nvCOMP said.
    pub fn alignments(&self, codec: Codec) -> Result<Alignments, CallError> {
        let (call, get) = match codec {
            Codec::Zstd => (
                "nvcompBatchedZstdDecompressGetRequiredAlignments",
                self.table.nvcompBatchedZstdDecompressGetRequiredAlignments as sys::GetAlignments,
            ),
            Codec::Lz4 => (
                "nvcompBatchedLZ4DecompressGetRequiredAlignments",
                self.table.nvcompBatchedLZ4DecompressGetRequiredAlignments as sys::GetAlignments,
            ),
        };
        let mut found = sys::Alignments::default();
        // SAFETY: `found` is a valid, writable nvcompAlignmentRequirements_t for the length of the call.
        let status = unsafe { get(OPTIONS, &raw mut found) };
        self.check(call, status)?;
        Ok(Alignments { input: found.input, output: found.output, temp: found.temp })
    }

    /// Bytes of temporary device memory that [`Self::decompress`] needs for `count` chunks, none longer than
    /// `max_chunk` and together not longer than `total` when decompressed. Queues nothing.
    ///
    /// # Errors
    /// A chunk above [`Codec::max_chunk_len`], or what nvCOMP said.
    ///
    /// # Safety
    /// The CUDA context is current and `stream` is one of its streams, or null.
    pub unsafe fn temp_len(
        &self,
        codec: Codec,
        count: usize,
        max_chunk: usize,
        total: usize,
        stream: RawStream,
    ) -> Result<usize, CallError> {
        let (call, get) = match codec {
            Codec::Zstd => (
                "nvcompBatchedZstdDecompressGetTempSize",
                self.table.nvcompBatchedZstdDecompressGetTempSize as sys::GetTempSize,
            ),
            Codec::Lz4 => (
                "nvcompBatchedLZ4DecompressGetTempSize",
                self.table.nvcompBatchedLZ4DecompressGetTempSize as sys::GetTempSize,
            ),
        };
        if max_chunk > codec.max_chunk_len() {
            return Err(self.error(call, sys::CHUNK_TOO_LARGE));
        }
        let mut temp_len = 0;
        // SAFETY: `temp_len` is writable for the length of the call, and the caller vouches for the stream.
        let status = unsafe { get(count, max_chunk, OPTIONS, &raw mut temp_len, total, stream) };
        self.check(call, status)?;
        Ok(temp_len)
    }

    /// Queues the decompression of a batch on `stream` and returns at once.
    ///
    /// # Errors
    /// That it could not be queued. A chunk that cannot be decompressed only shows in the statuses array.
    ///
    /// # Safety
    /// The CUDA context is current. Until the stream has passed this work, the arrays in `batch` are `count` elements
    /// of device memory as [`BatchPointers`] describes them; the buffers they point at have the lengths given there and
    /// the alignments of [`Self::alignments`], overlap nothing, and `temp` is `temp_len` bytes, at least what
    /// [`Self::temp_len`] gave for a batch no smaller. The data is trusted (see the module's head).
    pub unsafe fn decompress(
        &self,
        codec: Codec,
        batch: &BatchPointers,
        count: usize,
        temp: u64,
        temp_len: usize,
        stream: RawStream,
    ) -> Result<(), CallError> {
        let (call, decompress) = match codec {
            Codec::Zstd => (
                "nvcompBatchedZstdDecompressAsync",
                self.table.nvcompBatchedZstdDecompressAsync as sys::DecompressAsync,
            ),
            Codec::Lz4 => {
                ("nvcompBatchedLZ4DecompressAsync", self.table.nvcompBatchedLZ4DecompressAsync as sys::DecompressAsync)
            }
        };
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
        self.check(call, status)
    }

    /// nvCOMP's words for a status of a chunk.
    #[must_use]
    pub fn status_text(&self, status: i32) -> String {
        // SAFETY: takes any number, and gives a string that lives as long as the library, or null.
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
}
