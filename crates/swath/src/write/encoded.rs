//! Encoded tile rows as they travel between processes: tiles that are ready, and the overview rows that belong to them.

use std::ops::Range;

use swath_raster::moments::Moments;

use crate::error::Error;

/// The first bytes.
const MAGIC: [u8; 8] = *b"swathbnd";
/// Another version is another format.
const VERSION: u32 = 1;
/// Magic, version, plan, rows, and the lengths of the five parts.
const HEAD: usize = 8 + 4 + 8 + 4 * 4 + 5 * 8;
/// The sum over everything before it.
const TAIL: usize = 8;
/// Two counts and four floats.
const MOMENTS: usize = 6 * 8;

/// Tile rows of a file that a [`TileRowEncoder`](crate::write::TileRowEncoder) made, for
/// [`Writer::push_encoded`](crate::Writer::push_encoded).
#[derive(Debug, Clone, PartialEq)]
pub struct EncodedTileRows {
    /// Digest of everything about the file that the tile rows depend on.
    pub(super) plan: u64,
    pub(super) tile_rows: Range<u32>,
    /// Rows of the first overview that are here.
    pub(super) overview_rows: Range<u32>,
    /// Bytes of each tile as it shall be in the file, frame included, in order; 0 for one that is left out.
    pub(super) lens: Vec<u32>,
    /// Sizes of the pieces of each tile, where the file lists them.
    pub(super) pieces: Vec<u32>,
    /// Statistics of each position, band by band, where the file has statistics.
    pub(super) moments: Vec<Moments>,
    /// The overview's rows: each band by itself, then the mask; native samples.
    pub(super) overview: Vec<u8>,
    /// The tiles, one after the other.
    pub(super) bytes: Vec<u8>,
}

impl EncodedTileRows {
    /// The tile rows that these are.
    pub fn tile_rows(&self) -> Range<u32> {
        self.tile_rows.clone()
    }

    /// Length of [`EncodedTileRows::to_bytes`], which is also what the tile rows take in memory.
    pub fn byte_len(&self) -> usize {
        let small = (self.lens.len() + self.pieces.len()) * 4 + self.moments.len() * MOMENTS;
        HEAD + small + self.overview.len() + self.bytes.len() + TAIL
    }

    /// The tile rows as bytes that can travel between processes: little-endian but for the overview's samples, which are as
    /// the machine has them.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.byte_len());
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&self.plan.to_le_bytes());
        let rows = [&self.tile_rows, &self.overview_rows];
        out.extend(rows.iter().flat_map(|rows| [rows.start, rows.end]).flat_map(u32::to_le_bytes));
        let Self { lens, pieces, moments, overview, bytes, .. } = self;
        let counts = [lens.len(), pieces.len(), moments.len(), overview.len(), bytes.len()];
        out.extend(counts.iter().flat_map(|count| (*count as u64).to_le_bytes()));
        out.extend(lens.iter().chain(pieces).flat_map(|number| number.to_le_bytes()));
        for Moments { count, all, min, max, mean, squares } in moments {
            out.extend([count, all].iter().flat_map(|number| number.to_le_bytes()));
            out.extend([min, max, mean, squares].iter().flat_map(|number| number.to_le_bytes()));
        }
        out.extend_from_slice(overview);
        out.extend_from_slice(bytes);
        let sum = sum(&out);
        out.extend_from_slice(&sum.to_le_bytes());
        out
    }

    /// Reads what [`EncodedTileRows::to_bytes`] wrote.
    ///
    /// # Errors
    /// When the bytes are not encoded tile rows, come from another version of swath, or were changed.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        let broken =
            |why: &str| Error::malformed(format!("these {} bytes are not encoded tile rows: {why}", bytes.len()));
        let short = || broken("they end too soon");
        let mut head = ByteReader(bytes);
        if head.take(MAGIC.len()) != Some(&MAGIC[..]) {
            return Err(broken("they begin otherwise"));
        }
        let version = head.u32().ok_or_else(short)?;
        if version != VERSION {
            return Err(broken(&format!("they are of version {version}, this is version {VERSION}")));
        }
        let plan = head.u64().ok_or_else(short)?;
        let mut range = || Some(head.u32()?..head.u32()?);
        let (tile_rows, overview_rows) = range().zip(range()).ok_or_else(short)?;
        let mut counts = [0; 5];
        for count in &mut counts {
            let found = head.u64().ok_or_else(short)?;
            *count = usize::try_from(found).map_err(|_| broken("a part is larger than memory"))?;
        }
        let ByteReader(rest) = head;
        // Nothing is allocated before the lengths are known to be those of bytes that are there.
        let [tiles, pieces, moments, overview, data] = counts;
        let sizes = [(tiles, 4), (pieces, 4), (moments, MOMENTS), (overview, 1), (data, 1), (TAIL, 1)];
        let total = sizes.iter().try_fold(0_usize, |sum, (count, size)| sum.checked_add(count.checked_mul(*size)?));
        if total != Some(rest.len()) {
            return Err(broken("their length differs from the stated one"));
        }
        let (body, tail) = bytes.split_last_chunk::<TAIL>().ok_or_else(short)?;
        if sum(body) != u64::from_le_bytes(*tail) {
            return Err(broken("they were changed in transit"));
        }
        let mut parts = ByteReader(rest);
        let mut numbers = |count: usize| Some(words::<4>(parts.take(count * 4)?).map(u32::from_le_bytes).collect());
        let (lens, pieces): (Vec<u32>, Vec<u32>) = numbers(tiles).zip(numbers(pieces)).ok_or_else(short)?;
        let moments = parts.take(moments * MOMENTS).ok_or_else(short)?.chunks_exact(MOMENTS).map(read_moments);
        let moments = moments.collect::<Option<_>>().ok_or_else(short)?;
        let overview = parts.take(overview).ok_or_else(short)?.to_vec();
        let bytes = parts.take(data).ok_or_else(short)?.to_vec();
        if lens.iter().map(|len| u64::from(*len)).sum::<u64>() != bytes.len() as u64 {
            return Err(broken("their tiles are of another length"));
        }
        Ok(Self { plan, tile_rows, overview_rows, lens, pieces, moments, overview, bytes })
    }
}

/// Bytes that are read from the front.
struct ByteReader<'a>(&'a [u8]);

impl<'a> ByteReader<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (part, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(part)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take(4)?.first_chunk().map(|raw| u32::from_le_bytes(*raw))
    }

    fn u64(&mut self) -> Option<u64> {
        self.take(8)?.first_chunk().map(|raw| u64::from_le_bytes(*raw))
    }
}

fn words<const N: usize>(bytes: &[u8]) -> impl Iterator<Item = [u8; N]> + '_ {
    bytes.as_chunks::<N>().0.iter().copied()
}

fn read_moments(raw: &[u8]) -> Option<Moments> {
    let mut parts = ByteReader(raw);
    let (count, all) = (parts.u64()?, parts.u64()?);
    let mut float = || parts.u64().map(f64::from_bits);
    Some(Moments { count, all, min: float()?, max: float()?, mean: float()?, squares: float()? })
}

/// A checksum that any change of a single word changes, because each step is invertible.
pub(super) fn sum(bytes: &[u8]) -> u64 {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let (whole, rest) = bytes.as_chunks::<8>();
    let mut last = [0; 8];
    last.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
    let start = (bytes.len() as u64).wrapping_mul(FACTOR);
    whole.iter().chain([&last]).fold(start, |sum, word| {
        let mixed = (sum ^ u64::from_le_bytes(*word)).wrapping_mul(FACTOR);
        mixed ^ (mixed >> 32)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tile_rows() -> EncodedTileRows {
        let moments = Moments { count: 3, all: 4, min: -1.5, max: 2.0, mean: 0.25, squares: 7.0 };
        EncodedTileRows {
            plan: 77,
            tile_rows: 2..3,
            overview_rows: 5..6,
            lens: vec![3, 0, 2],
            pieces: vec![9],
            moments: vec![moments, Moments::default()],
            overview: vec![1; 11],
            bytes: vec![1, 2, 3, 4, 5],
        }
    }

    #[test]
    fn tile_rows_survive_serialisation() {
        let bytes = tile_rows().to_bytes();
        assert_eq!(bytes.len(), tile_rows().byte_len());
        assert_eq!(EncodedTileRows::from_bytes(&bytes).unwrap(), tile_rows());
    }

    #[test]
    fn cut_or_changed_bytes_are_refused() {
        let bytes = tile_rows().to_bytes();
        for len in 0..bytes.len() {
            EncodedTileRows::from_bytes(&bytes[..len]).unwrap_err();
        }
        EncodedTileRows::from_bytes(&[&bytes[..], &[0]].concat()).unwrap_err();
        for at in 0..bytes.len() {
            for flip in [1, 0x80, 0xff] {
                let mut other = bytes.clone();
                other[at] ^= flip;
                EncodedTileRows::from_bytes(&other).unwrap_err();
            }
        }
    }

    #[test]
    fn lengths_are_checked_even_where_the_sum_is_right() {
        let bytes = tile_rows().to_bytes();
        let mut refused = 0;
        // Each count in turn, and the lengths of tiles.
        for at in (HEAD - 40..HEAD).step_by(8).chain([HEAD]) {
            for number in [u64::MAX, 1 << 62, 1 << 40, 0, 77] {
                let mut other = bytes.clone();
                other[at..at + 8].copy_from_slice(&number.to_le_bytes());
                let end = other.len() - TAIL;
                let right = sum(&other[..end]).to_le_bytes();
                other[end..].copy_from_slice(&right);
                EncodedTileRows::from_bytes(&other).unwrap_err();
                refused += 1;
            }
        }
        assert_eq!(refused, 30);
    }
}
