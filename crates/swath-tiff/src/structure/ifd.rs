//! One directory of tags (image file directory).

use std::collections::HashSet;

use crate::{
    error::TiffError,
    limits::Limits,
    structure::{
        bytes::{Bytes, ParseStop},
        header::{ByteOrder, Header},
        value::{FieldType, Value},
    },
};

/// Most problems that a directory lists.
const MAX_PROBLEMS: usize = 16;

/// One tag of a directory. Its value may be elsewhere in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Tag number.
    pub tag: u16,
    /// Type of the values.
    pub kind: FieldType,
    /// Number of values.
    pub count: u64,
    /// Offset of the values, which lie inside the directory if they are short.
    pub offset: u64,
}

impl Entry {
    /// Bytes of all values together; `None` when that overflows.
    pub fn len(&self) -> Option<u64> {
        self.count.checked_mul(self.kind.size())
    }

    /// Whether there are no values.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The value's bytes.
    ///
    /// # Errors
    /// When they leave the file, exceed the limit or are not loaded.
    pub fn raw<'a>(&self, bytes: &'a Bytes, limits: &Limits) -> Result<&'a [u8], ParseStop> {
        let len = self.len().unwrap_or(u64::MAX);
        if len > limits.tag_bytes && len <= bytes.size() {
            return Err(TiffError::Limit {
                what: "bytes of a tag's value",
                asked: len,
                allowed: limits.tag_bytes,
                field: "tag_bytes",
                place: Default::default(),
            }
            .at_tag(self.tag)
            .into());
        }
        bytes.get(self.offset, len).map_err(|stop| stop.at_tag(self.tag))
    }

    /// The decoded value.
    ///
    /// # Errors
    /// As [`Entry::raw`].
    pub fn value(&self, bytes: &Bytes, order: ByteOrder, limits: &Limits) -> Result<Value, ParseStop> {
        Ok(Value::decode(self.kind, order, self.raw(bytes, limits)?))
    }
}

/// One directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ifd {
    /// Offset of the directory.
    pub offset: u64,
    /// Offset of the next directory; 0 for none.
    pub next: u64,
    /// Tags in file order; only the first entry of a repeated tag.
    pub entries: Vec<Entry>,
    /// Faults that did not prevent reading the directory.
    pub problems: Vec<String>,
}

impl Ifd {
    /// Reads the directory at `offset`.
    ///
    /// # Errors
    /// When it leaves the file, is empty, has too many tags, or is not loaded.
    pub fn parse(bytes: &Bytes, header: &Header, offset: u64) -> Result<Self, ParseStop> {
        let order = header.order;
        let fault = |detail: String| ParseStop::Fault(TiffError::malformed(detail).at_offset(offset));
        let (count_len, entry_len, inline_len): (u64, usize, u64) = if header.big { (8, 20, 8) } else { (2, 12, 4) };
        let count = bytes.get(offset, count_len)?;
        let count = if header.big { order.u64(count) } else { order.u16(count).into() };
        if count == 0 {
            return Err(fault("directory without tags".into()));
        }
        // libtiff has the same bound: a larger count means a wrong offset.
        if count > 4096 {
            return Err(fault(format!("{count} tags are too many for a directory; the offset is probably wrong")));
        }
        let body_at = offset.saturating_add(count_len);
        let body_len = count * entry_len as u64;
        // A file that ends right after the last entry is still readable: the missing pointer to the next directory reads as 0.
        let body = bytes.get(body_at, body_len)?;
        let next_at = body_at.saturating_add(body_len);
        let mut problems = Vec::new();
        let next = match bytes.get(next_at, inline_len) {
            Ok(raw) if header.big => order.u64(raw),
            Ok(raw) => order.u32(raw).into(),
            Err(ParseStop::Fault(_)) => {
                problems.push("the pointer to the next directory is cut off".to_owned());
                0
            }
            Err(stop) => return Err(stop),
        };
        let mut entries: Vec<Entry> = Vec::with_capacity(count as usize);
        let mut seen = HashSet::with_capacity(count as usize);
        for (index, raw) in body.chunks_exact(entry_len).enumerate() {
            let tag = order.u16(raw);
            let kind = FieldType::from_code(order.u16(raw.get(2..).unwrap_or_default()));
            let rest = raw.get(4..).unwrap_or_default();
            let (count, pointer) = if header.big {
                (order.u64(rest), order.u64(rest.get(8..).unwrap_or_default()))
            } else {
                (order.u32(rest).into(), order.u32(rest.get(4..).unwrap_or_default()).into())
            };
            let inline_at = body_at + (index * entry_len) as u64 + entry_len as u64 - inline_len;
            let inline = count.checked_mul(kind.size()).is_some_and(|len| len <= inline_len);
            if !seen.insert(tag) {
                // libtiff uses the first one too.
                if problems.len() < MAX_PROBLEMS {
                    problems.push(format!("tag {tag} occurs more than once; the first is used"));
                }
                continue;
            }
            entries.push(Entry { tag, kind, count, offset: if inline { inline_at } else { pointer } });
        }
        Ok(Self { offset, next, entries, problems })
    }

    /// The tag with this number.
    pub fn entry(&self, tag: u16) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.tag == tag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Header {
        Header { order: ByteOrder::Little, big: false, first_ifd: 8 }
    }

    #[test]
    fn first_of_a_repeated_tag_is_used_and_the_second_is_reported() {
        let mut file = vec![0; 8];
        file.extend([2, 0]);
        for value in [7u8, 9] {
            file.extend([0, 1, 3, 0, 1, 0, 0, 0, value, 0, 0, 0]);
        }
        file.extend([0; 4]);
        let bytes = Bytes::whole(file);
        let ifd = Ifd::parse(&bytes, &header(), 8).unwrap();
        assert_eq!(ifd.entries.len(), 1);
        assert_eq!(ifd.problems.len(), 1);
        let value = ifd.entries[0].value(&bytes, ByteOrder::Little, &Limits::default()).unwrap();
        assert_eq!(value, Value::Integers(vec![7]));
    }

    #[test]
    fn rejects_directory_beyond_the_file() {
        assert!(matches!(Ifd::parse(&Bytes::whole(vec![0; 8]), &header(), 1 << 40), Err(ParseStop::Fault(_))));
    }
}
