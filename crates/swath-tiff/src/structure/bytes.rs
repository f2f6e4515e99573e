//! The parts of a file that are loaded.

use std::ops::Range;

use crate::error::TiffError;

/// Why a parser stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ParseStop {
    /// This byte range is not loaded: fetch it, [`Bytes::insert`] it and call the parser again.
    NotLoaded(Range<u64>),
    /// The file is faulty.
    Fault(TiffError),
}

impl From<TiffError> for ParseStop {
    fn from(error: TiffError) -> Self {
        Self::Fault(error)
    }
}

impl ParseStop {
    /// Adds the tag to the place of a fault.
    pub fn at_tag(self, tag: u16) -> Self {
        match self {
            Self::Fault(error) => Self::Fault(error.at_tag(tag)),
            stop => stop,
        }
    }
}

/// The parts of a file that are loaded, and the file's size.
#[derive(Debug, Clone, Default)]
pub struct Bytes {
    size: u64,
    parts: Vec<(u64, Vec<u8>)>,
}

impl Bytes {
    /// A file of `size` bytes of which nothing is loaded.
    pub fn new(size: u64) -> Self {
        Self { size, parts: Vec::new() }
    }

    /// A file that is loaded completely.
    pub fn whole(bytes: Vec<u8>) -> Self {
        Self { size: bytes.len() as u64, parts: vec![(0, bytes)] }
    }

    /// Size of the file.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Adds a loaded part. Parts may overlap; the earlier one takes precedence.
    pub fn insert(&mut self, offset: u64, bytes: Vec<u8>) {
        self.parts.push((offset, bytes));
    }

    /// The bytes at `offset`.
    ///
    /// # Errors
    /// A fault when the range leaves the file; the range when it is not loaded.
    pub fn get(&self, offset: u64, len: u64) -> Result<&[u8], ParseStop> {
        let end = offset.checked_add(len).filter(|end| *end <= self.size);
        let Some(end) = end else {
            return Err(TiffError::malformed(format!(
                "{len} bytes at offset {offset} lie beyond the end of the file ({} bytes)",
                self.size
            ))
            .at_offset(offset)
            .into());
        };
        for (start, bytes) in &self.parts {
            if let Some(skip) = offset.checked_sub(*start)
                && let (Ok(skip), Ok(len)) = (usize::try_from(skip), usize::try_from(len))
                && let Some(found) = skip.checked_add(len).and_then(|stop| bytes.get(skip..stop))
            {
                return Ok(found);
            }
        }
        Err(ParseStop::NotLoaded(offset..end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn range_at_the_end_of_the_address_space_is_a_fault_not_an_overflow() {
        let bytes = Bytes::whole(vec![0; 16]);
        assert!(matches!(bytes.get(u64::MAX, 2), Err(ParseStop::Fault(_))));
        assert!(matches!(bytes.get(15, 2), Err(ParseStop::Fault(_))));
        assert_eq!(bytes.get(15, 1), Ok(&[0][..]));
    }

    #[test]
    fn missing_range_is_named() {
        let mut bytes = Bytes::new(100);
        assert_eq!(bytes.get(10, 5), Err(ParseStop::NotLoaded(10..15)));
        bytes.insert(8, vec![1; 10]);
        assert_eq!(bytes.get(10, 5), Ok(&[1; 5][..]));
    }
}
