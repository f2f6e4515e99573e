//! Packs GeoKeys into the three tags that hold them.

use std::collections::BTreeMap;

use crate::geo::{
    key_names,
    keys::{GeoValue, KeyTags},
};

/// Keys to write. A map, because the standard requires a directory sorted by key, with each key once.
#[derive(Debug, Default)]
pub(super) struct KeySet {
    keys: BTreeMap<u16, GeoValue>,
}

impl KeySet {
    pub fn short(&mut self, id: u16, value: u16) {
        self.keys.insert(id, GeoValue::Short(value));
    }

    pub fn double(&mut self, id: u16, value: f64) {
        self.keys.insert(id, GeoValue::Doubles(vec![value]));
    }

    pub fn doubles(&mut self, id: u16, values: &[f64]) {
        self.keys.insert(id, GeoValue::Doubles(values.to_vec()));
    }

    /// Sets the text of a citation. Control characters become spaces, since a NUL would end the tag for every reader in C.
    pub fn ascii(&mut self, id: u16, text: &str) {
        let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        if !text.trim().is_empty() {
            self.keys.insert(id, GeoValue::Ascii(text));
        }
    }

    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Packs the tags. A value whose position or length does not fit 16 bits is left out, with a problem; only citations can be so
    /// long.
    pub fn pack(&self, minor: u16, problems: &mut Vec<String>) -> KeyTags {
        let mut packed = KeyTags::default();
        if self.keys.is_empty() {
            return packed;
        }
        let mut entries: Vec<[u16; 4]> = Vec::new();
        for (&id, value) in &self.keys {
            let entry = match value {
                GeoValue::Short(value) => Some([id, 0, 1, *value]),
                GeoValue::Doubles(values) => {
                    position_and_len(packed.doubles.len(), values.len()).map(|(start, len)| {
                        packed.doubles.extend_from_slice(values);
                        [id, 34736, len, start]
                    })
                }
                GeoValue::Ascii(text) => {
                    position_and_len(packed.ascii.len(), text.len().saturating_add(1)).map(|(start, len)| {
                        packed.ascii.extend_from_slice(text.as_bytes());
                        packed.ascii.push(b'|');
                        [id, 34737, len, start]
                    })
                }
                GeoValue::Shorts(_) => None,
            };
            match entry {
                Some(entry) => entries.push(entry),
                None => {
                    let name = key_names::key_or_number(id);
                    problems.push(format!("{name} is too long for the GeoKey directory and is left out"));
                }
            }
        }
        let count = u16::try_from(entries.len()).unwrap_or(u16::MAX);
        packed.directory = [1, 1, minor, count].into_iter().chain(entries.into_iter().flatten()).collect();
        packed
    }
}

fn position_and_len(start: usize, len: usize) -> Option<(u16, u16)> {
    Some((u16::try_from(start).ok()?, u16::try_from(len).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geo::keys::GeoKeys;

    #[test]
    fn directory_is_sorted_and_reads_back() {
        let mut set = KeySet::default();
        set.double(2057, 6_378_137.0);
        set.ascii(2049, "a|b");
        set.short(1024, 2);
        set.ascii(1026, "x\0y");
        set.doubles(2062, &[1.0, 2.0, 3.0]);
        let packed = set.pack(1, &mut Vec::new());
        let keys = GeoKeys::parse(&packed.directory, &packed.doubles, &packed.ascii);
        assert_eq!(keys.version, [1, 1, 1]);
        assert!(keys.entries.windows(2).all(|w| w[0].id < w[1].id));
        assert_eq!((keys.ascii(2049), keys.ascii(1026)), (Some("a|b"), Some("x y")));
        assert_eq!((keys.double(2057), keys.doubles(2062)), (Some(6_378_137.0), &[1.0, 2.0, 3.0][..]));
        assert!(keys.problems.is_empty());
    }

    #[test]
    fn citation_past_64_kib_is_left_out_with_a_warning() {
        let mut set = KeySet::default();
        set.ascii(1026, &"x".repeat(70_000));
        set.short(1024, 1);
        let mut problems = Vec::new();
        let packed = set.pack(0, &mut problems);
        assert_eq!((packed.directory.len(), packed.ascii.len(), problems.len()), (8, 0, 1));
    }
}
