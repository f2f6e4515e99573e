//! Stands for the mappings of files in memory where there are none.

use std::{fs::File, io};

/// There is none of these.
#[derive(Debug)]
pub(super) enum Mapped {}

impl Mapped {
    pub fn of(_: &File) -> Option<Self> {
        None
    }

    pub fn write(&self, _: &File, _: u64, _: &[u8]) -> io::Result<()> {
        match *self {}
    }

    pub fn shift(&self, _: &File, _: u64, _: u64, _: usize) -> usize {
        match *self {}
    }
}
