//! What the tests of the LZW and PackBits encoders share.

use swath_codec::conformance::Rng;
use swath_kernel_host::{
    KernelHost,
    server::{Argument, Buffer},
};

/// The size of a tile that could not be encoded.
pub(crate) const FAILED: u32 = u32::MAX;

/// Tiles, and the memory of a launch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EncodeCase<'a> {
    /// Kernels separated by commas, launched one after the other.
    pub(crate) kernels: &'a str,
    pub(crate) tiles: &'a [Vec<u8>],
    pub(crate) row_len: usize,
    pub(crate) dst_stride: usize,
    /// Bytes of scratch memory for each tile.
    pub(crate) scratch: usize,
}

/// Bytes from tile to tile in the source.
pub(crate) fn src_stride(tiles: &[Vec<u8>]) -> usize {
    tiles.iter().map(Vec::len).max().unwrap_or_default().max(1).next_multiple_of(16)
}

/// The stream of each tile; `None` if it could not be encoded.
pub(crate) fn encode(host: &mut KernelHost, blocks: u32, lanes: u32, case: EncodeCase<'_>) -> Vec<Option<Vec<u8>>> {
    let (stride, count) = (src_stride(case.tiles), case.tiles.len());
    let mut src = Vec::new();
    for (index, tile) in case.tiles.iter().enumerate() {
        // The last tile ends with the buffer, so that a sanitizer sees an access beyond it.
        src.resize(index * stride, 0xee);
        src.extend_from_slice(tile);
    }
    let lens: Vec<u8> = case.tiles.iter().flat_map(|tile| (tile.len() as u32).to_le_bytes()).collect();
    let (dst_len, scratch_len) = (case.dst_stride * count, case.scratch * count);
    let buffers =
        [Buffer::In(&src), Buffer::Out(dst_len), Buffer::In(&lens), Buffer::Out(4 * count), Buffer::Out(scratch_len)];
    let long = |number: usize| (number as u64).to_le_bytes();
    let numbers = [count as u32, 1, stride as u32, 0, case.row_len as u32, 1];
    let numbers: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    let arguments = [
        Argument::Pointer(0, 0),
        Argument::Bytes(&long(src.len())),
        Argument::Bytes(&long(stride)),
        Argument::Pointer(1, 0),
        Argument::Bytes(&long(dst_len)),
        Argument::Bytes(&long(case.dst_stride)),
        Argument::Pointer(2, 0),
        Argument::Pointer(3, 0),
        Argument::Pointer(4, 0),
        Argument::Bytes(&long(scratch_len)),
        Argument::Bytes(&numbers),
    ];
    let back = host.run(case.kernels, blocks, lanes, &buffers, &arguments).unwrap();
    let stream = |(index, size): (usize, &[u8; 4])| match u32::from_le_bytes(*size) {
        FAILED => None,
        size => Some(back[0][index * case.dst_stride..][..size as usize].to_vec()),
    };
    back[1].as_chunks().0.iter().enumerate().map(stream).collect()
}

/// Heights as predictor 2 leaves them: small differences, now and then a large one.
pub(crate) fn terrain(len: usize, rng: &mut Rng) -> Vec<u8> {
    let mut step = || match rng.next() % 40 {
        0 => rng.next() as u16,
        n => (rng.next() % (1 + n) * 3).wrapping_sub(50) as u16,
    };
    let mut bytes: Vec<u8> = (0..len.div_ceil(2)).flat_map(|_| step().to_le_bytes()).collect();
    bytes.truncate(len);
    bytes
}

/// Classes in runs, some of a pair and some longer than a packet.
pub(crate) fn classes(len: usize, rng: &mut Rng) -> Vec<u8> {
    let mut bytes = Vec::new();
    while bytes.len() < len {
        let lens = [1, 1, 1, 2, 2, 3, 4, 7, 127, 128, 129, 130, 131, 400];
        let (class, run) = (rng.next() % 11, lens[rng.next() as usize % lens.len()]);
        bytes.extend(std::iter::repeat_n(class as u8, run));
    }
    bytes.truncate(len);
    bytes
}
