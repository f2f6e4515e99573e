//! Replaces `mapped.rs` on systems other than Linux, and with the feature `portable`: no file is mapped.

use std::{fs::File, io};

/// Never created.
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
