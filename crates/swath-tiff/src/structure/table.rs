//! The tables of tile offsets and byte counts, read in slices.

use std::ops::Range;

use crate::structure::{
    header::ByteOrder,
    ifd::Entry,
    value::{FieldType, Value},
};

/// A table of tile offsets or byte counts. It stays in the file; callers read the slices that they need.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    kind: FieldType,
    count: u64,
    offset: u64,
    order: ByteOrder,
}

impl Table {
    /// The table that `entry` points to; `None` when its values are not whole numbers.
    pub fn new(entry: &Entry, order: ByteOrder) -> Option<Self> {
        entry.kind.is_integer().then_some(Self { kind: entry.kind, count: entry.count, offset: entry.offset, order })
    }

    /// Number of entries.
    pub fn len(&self) -> u64 {
        self.count
    }

    /// Whether it has no entries.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The byte range of these entries, clipped to the end of the table.
    pub fn byte_range(&self, entries: Range<u64>) -> Range<u64> {
        let size = self.kind.size();
        let at = |index: u64| self.offset.saturating_add(index.min(self.count).saturating_mul(size));
        at(entries.start)..at(entries.end)
    }

    /// Decodes the entries in `bytes`, which the caller has read from a [`Table::byte_range`]. Negative numbers cannot be offsets
    /// or lengths; they become `u64::MAX`, which no file reaches.
    pub fn decode(&self, bytes: &[u8]) -> Vec<u64> {
        match Value::decode(self.kind, self.order, bytes) {
            Value::Integers(values) => {
                values.into_iter().map(|value| u64::try_from(value).unwrap_or(u64::MAX)).collect()
            }
            _ => Vec::new(),
        }
    }
}
