//! The cells of a level that are done.

use crate::error::Error;

/// A set of cells: one bit for each.
#[derive(Debug)]
pub(super) struct CellSet {
    words: Vec<u64>,
    /// Cells of the level.
    len: usize,
    /// Cells in the set.
    pub(super) count: usize,
}

impl CellSet {
    pub(super) fn new(len: usize) -> Self {
        Self { words: vec![0; len.div_ceil(64)], len, count: 0 }
    }

    pub(super) fn get(&self, at: usize) -> bool {
        self.words.get(at / 64).is_some_and(|word| word >> (at % 64) & 1 == 1)
    }

    pub(super) fn set(&mut self, at: usize) -> Result<(), Error> {
        let word = self.words.get_mut(at / 64).filter(|_| at < self.len);
        let beyond = || Error::internal(format!("cell {at} of a level that has {}", self.len));
        let word = word.ok_or_else(beyond)?;
        self.count += usize::from(*word >> (at % 64) & 1 == 0);
        *word |= 1 << (at % 64);
        Ok(())
    }

    pub(super) fn first_unset(&self) -> usize {
        let word = self.words.iter().position(|word| *word != u64::MAX).unwrap_or(self.words.len());
        word * 64 + self.words.get(word).map_or(0, |word| word.trailing_ones() as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_count_each_cell_once() {
        let mut bits = CellSet::new(70);
        for at in [0, 1, 69, 1] {
            bits.set(at).unwrap();
        }
        assert_eq!((bits.count, bits.first_unset()), (3, 2));
        assert!(bits.get(69) && !bits.get(2) && !bits.get(500));
    }

    #[test]
    fn a_cell_that_the_level_does_not_have_is_an_error() {
        let mut bits = CellSet::new(70);
        for at in [70, 127, 128] {
            assert!(matches!(bits.set(at).unwrap_err().kind(), crate::ErrorKind::Internal(_)));
        }
        assert_eq!(bits.count, 0);
    }
}
