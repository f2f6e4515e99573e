//! The image of a file and its overviews.

use crate::error::Error;

/// One value for the image and one for each overview, from the largest. There is always an image.
#[derive(Debug, Clone, Default)]
pub(super) struct Levels<T> {
    pub main: T,
    pub overviews: Vec<T>,
}

impl<T> Levels<T> {
    /// Number of levels, the image included.
    pub(super) fn len(&self) -> usize {
        1 + self.overviews.len()
    }

    pub(super) fn has_overviews(&self) -> bool {
        !self.overviews.is_empty()
    }

    /// Level `index`, where 0 is the image; `None` behind the last overview.
    pub(super) fn get(&self, index: usize) -> Option<&T> {
        match index.checked_sub(1) {
            None => Some(&self.main),
            Some(overview) => self.overviews.get(overview),
        }
    }

    pub(super) fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        match index.checked_sub(1) {
            None => Some(&mut self.main),
            Some(overview) => self.overviews.get_mut(overview),
        }
    }

    /// Level `index`, which the caller knows to exist.
    pub(super) fn at(&self, index: usize) -> Result<&T, Error> {
        self.get(index).ok_or_else(|| no_level(index))
    }

    pub(super) fn at_mut(&mut self, index: usize) -> Result<&mut T, Error> {
        self.get_mut(index).ok_or_else(|| no_level(index))
    }

    /// All levels, the image first.
    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = &T> + Clone {
        std::iter::once(&self.main).chain(&self.overviews)
    }

    pub(super) fn iter_mut(&mut self) -> impl DoubleEndedIterator<Item = &mut T> {
        std::iter::once(&mut self.main).chain(&mut self.overviews)
    }

    pub(super) fn map<U>(&self, mut make: impl FnMut(&T) -> U) -> Levels<U> {
        Levels { main: make(&self.main), overviews: self.overviews.iter().map(make).collect() }
    }

    /// Makes a value for each level, from its number.
    pub(super) fn try_map<U>(&self, mut make: impl FnMut(usize, &T) -> Result<U, Error>) -> Result<Levels<U>, Error> {
        let main = make(0, &self.main)?;
        let overviews =
            (1..).zip(&self.overviews).map(|(index, level)| make(index, level)).collect::<Result<_, _>>()?;
        Ok(Levels { main, overviews })
    }
}

fn no_level(index: usize) -> Error {
    Error::internal(format!("the file has no level {index}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_numbered_from_the_image() {
        let mut levels = Levels { main: 10, overviews: vec![5, 2] };
        assert_eq!((levels.len(), levels.get(0), levels.get(2), levels.get(3)), (3, Some(&10), Some(&2), None));
        *levels.at_mut(1).unwrap() = 6;
        assert_eq!(levels.iter().rev().copied().collect::<Vec<_>>(), [2, 6, 10]);
        let numbered = levels.try_map(|index, level| Ok((index, *level))).unwrap();
        assert_eq!((numbered.main, numbered.overviews), ((0, 10), vec![(1, 6), (2, 2)]));
    }

    #[test]
    fn a_level_that_does_not_exist_is_an_internal_error() {
        let error = Levels { main: (), overviews: Vec::new() }.at(1).unwrap_err();
        assert!(matches!(error.kind(), crate::error::ErrorKind::Internal(_)), "{error}");
    }
}
