//! Runs decoding kernels, also as a decoder with the codecs' interface.

use std::{
    io,
    sync::{Mutex, PoisonError},
};

use swath_codec::{CodecError, Decode, Fill, Scratch, TileSpec};

use crate::server::{Argument, Buffer, Build, KernelHost};

/// Bytes after each stream that belong to the compressed buffer.
const SLACK: usize = 16;

/// The result of decoding a tile: the numbers of kernels/core/status.cuh.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// The tile is decoded.
    Ok,
    /// The stream ends before the tile is full.
    Short,
    /// The stream holds more than the tile.
    Long,
    /// The stream is damaged.
    Corrupt,
    /// The checksum does not match.
    Checksum,
    /// The kernel does not support such a stream; a CPU may.
    Unusual,
}

impl Status {
    fn of(number: u32) -> io::Result<Self> {
        match number {
            0 => Ok(Self::Ok),
            1 => Ok(Self::Short),
            2 => Ok(Self::Long),
            3 => Ok(Self::Corrupt),
            4 => Ok(Self::Checksum),
            5 => Ok(Self::Unusual),
            other => Err(io::Error::other(format!("a tile has the unknown status {other}"))),
        }
    }
}

/// A stream and the decoded length of its tile.
#[derive(Debug, Clone, Copy)]
pub struct Stream<'a> {
    /// The compressed bytes.
    pub bytes: &'a [u8],
    /// Decoded length.
    pub len: usize,
}

/// LZW with several blocks for each tile.
pub const LZW_PARTS: &str = "swath_lzw_find,swath_lzw_measure,swath_lzw_write";

/// Deflate with several blocks for each tile.
pub const DEFLATE_SHARED: &str = "swath_inflate_start,swath_inflate_span,swath_inflate_span,swath_inflate_span,\
     swath_inflate_finish,swath_inflate_cells,swath_inflate_join,swath_inflate_rest";

/// The scratch memory that the engine gives the kernels of [`DEFLATE_SHARED`] for each tile, where the longest tile has
/// `longest` bytes, but for fewer parts.
pub fn deflate_shared_scratch(longest: usize) -> usize {
    let blocks = 32 + (longest >> 14);
    let cells = longest.next_multiple_of(16) * 2;
    64 + (blocks + 2) * 8 + blocks * 9008 + cells + (longest / 20 + 3000) * 16
}

/// Zstd: the five kernels, one after the other.
pub const ZSTD: &str = "swath_zstd_walk,swath_zstd_sequences,swath_zstd_layout,swath_zstd_literals,swath_zstd_execute";

/// Zstd for a medium number of tiles.
pub const ZSTD_SOME: &str =
    "swath_zstd_walk,swath_zstd_sequences,swath_zstd_layout,swath_zstd_literals,swath_zstd_execute_some";

/// Zstd for few tiles.
pub const ZSTD_FEW: &str = "swath_zstd_walk,swath_zstd_sequences_few,swath_zstd_layout,swath_zstd_literals_few,swath_zstd_cells,swath_zstd_join,\
     swath_zstd_execute_rest";

/// The scratch memory that the engine gives the Zstd kernels for each tile, where the longest tile has `longest` bytes.
pub fn zstd_scratch(longest: usize) -> usize {
    (longest / 2).max(2 << 10).next_multiple_of(256)
}

/// The scratch memory of a tile and the `flags` of Zstd kernels that verify checksums, where `scratch` is for blocks, tables and
/// marks.
pub fn zstd_needs(kernel: &str, scratch: usize) -> (usize, u32) {
    // Many blocks of threads share a tile: a ninth of the scratch is for those.
    if kernel == ZSTD_FEW { (9 * scratch, 3) } else { (scratch, 1) }
}

/// The status of a tile before any kernel has run.
const UNDONE: u32 = u32::MAX;

/// The scratch memory of a tile, and the `flags`.
fn needs(kernel: &str, tiles: &[Stream<'_>]) -> (usize, u32) {
    match kernel {
        LZW_PARTS => {
            let longest = tiles.iter().map(|tile| tile.bytes.len()).max().unwrap_or_default();
            (16 * (9 + longest / 4096), 3)
        }
        DEFLATE_SHARED => {
            let longest = tiles.iter().map(|tile| tile.len).max().unwrap_or_default();
            (deflate_shared_scratch(longest).next_multiple_of(256), 3)
        }
        ZSTD | ZSTD_SOME | ZSTD_FEW => {
            let longest = tiles.iter().map(|tile| tile.len).max().unwrap_or_default();
            // Checksums are verified, as in the engine.
            zstd_needs(kernel, zstd_scratch(longest))
        }
        _ => (0, 0),
    }
}

/// Decodes tiles with one launch of `kernel`, or of several kernels separated by commas.
///
/// # Errors
/// When a kernel fails or leaves a tile undone.
pub fn decode(
    host: &mut KernelHost,
    kernel: &str,
    blocks: u32,
    lanes: u32,
    tiles: &[Stream<'_>],
) -> io::Result<Vec<(Status, Vec<u8>)>> {
    decode_with(host, kernel, blocks, lanes, needs(kernel, tiles), tiles)
}

/// The same with chosen scratch memory for each tile, and chosen `flags`.
///
/// # Errors
/// When a kernel fails or leaves a tile undone.
pub fn decode_with(
    host: &mut KernelHost,
    kernel: &str,
    blocks: u32,
    lanes: u32,
    (scratch, flags): (usize, u32),
    tiles: &[Stream<'_>],
) -> io::Result<Vec<(Status, Vec<u8>)>> {
    let (mut src, mut jobs, mut dst_len) = (Vec::new(), Vec::new(), 0_usize);
    for tile in tiles {
        for number in [src.len(), tile.bytes.len(), dst_len, tile.len] {
            jobs.extend((number as u64).to_le_bytes());
        }
        src.extend_from_slice(tile.bytes);
        // Not zeros, which a faulty kernel might accept.
        src.resize(src.len() + SLACK, 0xee);
        // The last tile ends with the buffer, so that a sanitizer sees an access beyond it.
        dst_len += tile.len;
        if !std::ptr::eq(tile, &raw const tiles[tiles.len() - 1]) {
            src.resize(src.len().next_multiple_of(16), 0xee);
            dst_len = dst_len.next_multiple_of(16);
        }
    }
    let undone: Vec<u8> = tiles.iter().flat_map(|_| UNDONE.to_le_bytes()).collect();
    let room = Buffer::Out(scratch * tiles.len());
    let buffers = [Buffer::In(&src), Buffer::Out(dst_len), Buffer::In(&jobs), Buffer::InOut(&undone), room];
    let arguments = [
        Argument::Pointer(0, 0),
        Argument::Bytes(&(src.len() as u64).to_le_bytes()),
        Argument::Pointer(1, 0),
        Argument::Bytes(&(dst_len as u64).to_le_bytes()),
        Argument::Pointer(2, 0),
        Argument::Pointer(3, 0),
        Argument::Pointer(4, 0),
        Argument::Bytes(&(scratch as u64).to_le_bytes()),
        Argument::Bytes(&(tiles.len() as u32).to_le_bytes()),
        Argument::Bytes(&flags.to_le_bytes()),
    ];
    let back = host.run(kernel, blocks, lanes, &buffers, &arguments)?;
    let [dst, statuses, _] = &back[..] else { return Err(io::Error::other("buffers are missing")) };
    let (mut done, mut at) = (Vec::new(), 0);
    for (tile, status) in tiles.iter().zip(statuses.as_chunks().0) {
        done.push((Status::of(u32::from_le_bytes(*status))?, dst[at..at + tile.len].to_vec()));
        at = (at + tile.len).next_multiple_of(16);
    }
    Ok(done)
}

/// A kernel as a decoder.
#[derive(Debug)]
pub struct KernelDecoder {
    kernel: &'static str,
    lanes: u32,
    host: Mutex<KernelHost>,
}

impl KernelDecoder {
    /// `kernel` with `lanes` lanes.
    ///
    /// # Errors
    /// When the kernel host cannot be built or started.
    pub fn new(build: Build, kernel: &'static str, lanes: u32) -> io::Result<Self> {
        Ok(Self { kernel, lanes, host: Mutex::new(KernelHost::start(build)?) })
    }
}

impl Decode for KernelDecoder {
    fn decode(
        &self,
        _spec: &TileSpec,
        _rows: u32,
        src: &[u8],
        dst: &mut [u8],
        _scratch: &mut Scratch,
    ) -> Result<Fill, CodecError> {
        let tiles = [Stream { bytes: src, len: dst.len() }];
        let mut host = self.host.lock().unwrap_or_else(PoisonError::into_inner);
        let done = decode(&mut host, self.kernel, 1, self.lanes, &tiles);
        match done.map_err(|error| CodecError::corrupt(self.kernel, error.to_string()))?.pop() {
            Some((Status::Ok, bytes)) => {
                dst.copy_from_slice(&bytes);
                Ok(Fill::Exact)
            }
            other => Err(CodecError::corrupt(self.kernel, format!("{:?}", other.map(|(status, _)| status)))),
        }
    }
}
