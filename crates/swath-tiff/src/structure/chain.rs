//! Walks the chain of directories, and the SubIFDs that it points to.

use std::collections::HashSet;

use crate::{
    error::TiffError,
    limits::Limits,
    place::Place,
    structure::{
        bytes::{Bytes, ParseStop},
        header::Header,
        ifd::Ifd,
        value::Value,
    },
    tag,
};

/// A walk along a file's directories. It stops where bytes are not loaded and can be resumed.
#[derive(Debug, Clone)]
pub struct Chain {
    next: u64,
    ifds: Vec<Ifd>,
    problem: Option<TiffError>,
}

/// The directories that all walks through one file have visited, so that chains that run into each other are walked once.
#[derive(Debug, Clone, Default)]
pub struct Visited {
    offsets: HashSet<u64>,
    entries: usize,
}

/// Most tags in all directories of a file together. Directories can overlap, so a small file can describe more of them than fit
/// into memory; a million tags take 32 MiB.
const MAX_ENTRIES: usize = 1 << 20;

impl Visited {
    /// Whether the directory at this offset was visited.
    pub fn contains(&self, offset: u64) -> bool {
        self.offsets.contains(&offset)
    }
}

impl Chain {
    /// A walk that starts at the directory `first`.
    pub fn starting_at(first: u64) -> Self {
        Self { next: first, ifds: Vec::new(), problem: None }
    }

    /// Walks until the chain ends, is broken, or needs bytes that are not loaded. A broken chain is not an error: the directories
    /// before the break stay usable, as in GDAL, and [`Chain::problem`] says what is wrong.
    ///
    /// # Errors
    /// Only the range that is not loaded.
    pub fn walk(
        &mut self,
        visited: &mut Visited,
        bytes: &Bytes,
        header: &Header,
        limits: &Limits,
    ) -> Result<(), std::ops::Range<u64>> {
        while self.next != 0 {
            let place = Place { ifd: u32::try_from(self.ifds.len()).ok(), ..Place::default() };
            let fault = if visited.offsets.contains(&self.next) {
                TiffError::malformed(format!("the chain of directories returns to offset {} in a loop", self.next))
            } else if visited.offsets.len() as u64 >= u64::from(limits.ifds) {
                TiffError::Limit {
                    what: "number of directories",
                    asked: visited.offsets.len() as u64 + 1,
                    allowed: limits.ifds.into(),
                    field: "ifds",
                    place: Place::default(),
                }
            } else {
                match Ifd::parse(bytes, header, self.next) {
                    Ok(ifd) if visited.entries + ifd.entries.len() > MAX_ENTRIES => {
                        TiffError::malformed(format!("the directories have more than {MAX_ENTRIES} tags together"))
                    }
                    Ok(ifd) => {
                        visited.entries += ifd.entries.len();
                        visited.offsets.insert(self.next);
                        self.next = ifd.next;
                        self.ifds.push(ifd);
                        continue;
                    }
                    Err(ParseStop::NotLoaded(range)) => return Err(range),
                    Err(ParseStop::Fault(error)) => error,
                }
            };
            self.problem = Some(fault.at(&place));
            self.next = 0;
        }
        Ok(())
    }

    /// The directories so far.
    pub fn ifds(&self) -> &[Ifd] {
        &self.ifds
    }

    /// What is wrong with a broken chain.
    pub fn problem(&self) -> Option<&TiffError> {
        self.problem.as_ref()
    }

    /// Takes the chain apart.
    pub fn into_parts(self) -> (Vec<Ifd>, Option<TiffError>) {
        (self.ifds, self.problem)
    }
}

/// Offsets of the directories that `ifd` names in SubIFDs.
///
/// # Errors
/// When the tag's value cannot be read or is not loaded.
pub fn sub_ifds(ifd: &Ifd, bytes: &Bytes, header: &Header, limits: &Limits) -> Result<Vec<u64>, ParseStop> {
    let Some(entry) = ifd.entry(tag::SUB_IFDS) else { return Ok(Vec::new()) };
    if entry.count > u64::from(limits.ifds) {
        return Err(TiffError::Limit {
            what: "number of sub-directories",
            asked: entry.count,
            allowed: limits.ifds.into(),
            field: "ifds",
            place: Place::default(),
        }
        .at_tag(tag::SUB_IFDS)
        .into());
    }
    match entry.value(bytes, header.order, limits)? {
        Value::Integers(offsets) => Ok(offsets
            .into_iter()
            .filter_map(|offset| u64::try_from(offset).ok())
            .filter(|offset| *offset != 0)
            .collect()),
        _ => Err(TiffError::malformed("SubIFDs that are not offsets").at_tag(tag::SUB_IFDS).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::structure::header::ByteOrder;

    fn ifd_pointing_at(next: u32) -> Vec<u8> {
        let mut raw = vec![1, 0, 0, 1, 3, 0, 1, 0, 0, 0, 1, 0, 0, 0];
        raw.extend(next.to_le_bytes());
        raw
    }

    #[test]
    fn rejects_ifd_pointing_at_itself() {
        let mut file = vec![0; 8];
        file.extend(ifd_pointing_at(8));
        let header = Header { order: ByteOrder::Little, big: false, first_ifd: 8 };
        let mut chain = Chain::starting_at(8);
        chain.walk(&mut Visited::default(), &Bytes::whole(file), &header, &Limits::default()).unwrap();
        assert_eq!(chain.ifds().len(), 1);
        assert!(chain.problem().unwrap().to_string().contains("in a loop"));
    }

    #[test]
    fn long_chain_stops_at_the_limit() {
        let mut file = vec![0; 8];
        for index in 1..=100u32 {
            file.extend(ifd_pointing_at(8 + index * 18));
        }
        file.extend(ifd_pointing_at(0));
        let header = Header { order: ByteOrder::Little, big: false, first_ifd: 8 };
        let bytes = Bytes::whole(file);
        let mut chain = Chain::starting_at(8);
        chain.walk(&mut Visited::default(), &bytes, &header, &Limits::default().with_ifds(10)).unwrap();
        assert_eq!(chain.ifds().len(), 10);
        assert!(matches!(chain.problem(), Some(TiffError::Limit { .. })));
        let mut chain = Chain::starting_at(8);
        chain.walk(&mut Visited::default(), &bytes, &header, &Limits::default()).unwrap();
        assert_eq!((chain.ifds().len(), chain.problem()), (101, None));
    }
}
