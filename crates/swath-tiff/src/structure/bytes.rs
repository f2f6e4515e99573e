//! The pieces of a file that are at hand.

use std::ops::Range;

use crate::error::TiffError;

/// Why a parser could not go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lack {
    /// It needs this byte range: fetch it, [`Bytes::insert`] it and call again.
    Range(Range<u64>),
    /// The file is at fault.
    Fault(TiffError),
}

impl From<TiffError> for Lack {
    fn from(error: TiffError) -> Self {
        Self::Fault(error)
    }
}

impl Lack {
    /// Adds the tag to a fault.
    pub fn at_tag(self, tag: u16) -> Self {
        match self {
            Self::Fault(error) => Self::Fault(error.at_tag(tag)),
            lack => lack,
        }
    }
}

/// The pieces of a file that are at hand, and the file's size.
#[derive(Debug, Clone, Default)]
pub struct Bytes {
    size: u64,
    pieces: Vec<(u64, Vec<u8>)>,
}

impl Bytes {
    /// Nothing at hand yet of a file of `size` bytes.
    pub fn new(size: u64) -> Self {
        Self { size, pieces: Vec::new() }
    }

    /// A file that is wholly at hand.
    pub fn whole(bytes: Vec<u8>) -> Self {
        Self { size: bytes.len() as u64, pieces: vec![(0, bytes)] }
    }

    /// Size of the file.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Adds a piece. Pieces may overlap; the earlier one is preferred.
    pub fn insert(&mut self, offset: u64, bytes: Vec<u8>) {
        self.pieces.push((offset, bytes));
    }

    /// The bytes at `offset`.
    ///
    /// # Errors
    /// A fault when the range leaves the file, a range when the bytes are not at hand.
    pub fn get(&self, offset: u64, len: u64) -> Result<&[u8], Lack> {
        let end = offset.checked_add(len).filter(|end| *end <= self.size);
        let Some(end) = end else {
            return Err(TiffError::malformed(format!(
                "{len} bytes at offset {offset} lie beyond the end of the file ({} bytes)",
                self.size
            ))
            .at_offset(offset)
            .into());
        };
        for (start, bytes) in &self.pieces {
            if let Some(skip) = offset.checked_sub(*start)
                && let (Ok(skip), Ok(len)) = (usize::try_from(skip), usize::try_from(len))
                && let Some(found) = skip.checked_add(len).and_then(|stop| bytes.get(skip..stop))
            {
                return Ok(found);
            }
        }
        Err(Lack::Range(offset..end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn range_at_the_end_of_the_address_space_is_a_fault_not_an_overflow() {
        let bytes = Bytes::whole(vec![0; 16]);
        assert!(matches!(bytes.get(u64::MAX, 2), Err(Lack::Fault(_))));
        assert!(matches!(bytes.get(15, 2), Err(Lack::Fault(_))));
        assert_eq!(bytes.get(15, 1), Ok(&[0][..]));
    }

    #[test]
    fn missing_range_is_named() {
        let mut bytes = Bytes::new(100);
        assert_eq!(bytes.get(10, 5), Err(Lack::Range(10..15)));
        bytes.insert(8, vec![1; 10]);
        assert_eq!(bytes.get(10, 5), Ok(&[1; 5][..]));
    }
}
