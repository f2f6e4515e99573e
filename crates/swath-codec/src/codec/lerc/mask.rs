//! Which pixels of a blob have values.

use swath_raster::memory::{OutOfMemory, collect, zeroed};

use super::{
    Trouble,
    header::{Bytes, Header},
};

/// Which pixels have values.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Mask {
    /// Every pixel.
    All,
    /// The pixels whose bit is set, the highest bit of a byte first.
    Some(Vec<u8>),
}

impl Mask {
    /// Copies a mask.
    ///
    /// # Errors
    /// When the system has no memory for it.
    fn copy(&self) -> Result<Self, OutOfMemory> {
        Ok(match self {
            Self::All => Self::All,
            Self::Some(bits) => Self::Some(collect(bits.iter().copied())?),
        })
    }

    #[inline(always)]
    pub(super) fn has(&self, at: usize) -> bool {
        match self {
            Self::All => true,
            Self::Some(bits) => bits.get(at >> 3).is_some_and(|byte| byte >> (7 - (at & 7)) & 1 != 0),
        }
    }
}

/// Reads the mask of a blob; `before` is the mask of the previous blob, which a blob may share.
///
/// # Errors
/// When the mask is missing, truncated or does not fit the tile, or the system has no memory for it.
pub(super) fn read(bytes: &mut Bytes<'_>, header: &Header, before: Option<&Mask>) -> Result<Mask, Trouble> {
    let len = bytes.u32().ok_or("the blob is cut off before its mask")? as usize;
    let all = header.valid == header.pixels();
    if all || header.valid == 0 {
        if len != 0 {
            return Err("the blob has a mask although all pixels are valid or none is".into());
        }
        return Ok(if all { Mask::All } else { Mask::Some(zeroed(header.pixels().div_ceil(8))?) });
    }
    if len == 0 {
        return Ok(before.ok_or("the mask is missing")?.copy()?);
    }
    let mut runs = Bytes(bytes.take(len).ok_or("the mask is cut off")?);
    let expected = header.pixels().div_ceil(8);
    let mut bits = Vec::new();
    bits.try_reserve_exact(expected).map_err(|_| OutOfMemory { bytes: expected as u64 })?;
    loop {
        // A positive count precedes that many bytes, a negative one a byte to repeat; `i16::MIN` ends the mask.
        let count = runs.take(2).and_then(|pair| pair.first_chunk()).map(|pair| i16::from_le_bytes(*pair));
        let copied = match count {
            None => None,
            Some(i16::MIN) if bits.len() == expected => return Ok(Mask::Some(bits)),
            Some(i16::MIN) => None,
            Some(count) if bits.len() + usize::from(count.unsigned_abs()) > expected => None,
            Some(count) if count > 0 => runs.take(count as usize).map(|run| bits.extend_from_slice(run)),
            Some(count) => runs.u8().map(|byte| bits.resize(bits.len() + usize::from(count.unsigned_abs()), byte)),
        };
        copied.ok_or("the runs of the mask do not fit the tile")?;
    }
}
