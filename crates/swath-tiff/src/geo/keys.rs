//! The GeoKey directory: a small table of keys packed into three TIFF tags (OGC GeoTIFF 1.1, clause 7.1).
//!
//! Tag 34735 holds the directory, four `u16` per key. A value that is not a single short is in 34736 (doubles) or 34737 (text).
//! Every number is untrusted: a key that points outside these tags is skipped, with a sentence in `problems`.

use crate::geo::key_names::{self, USER_DEFINED};

const DIRECTORY: u16 = 34735;
const DOUBLES: u16 = 34736;
const ASCII: u16 = 34737;

/// Most problems that are listed; more are only counted. A directory of 16 000 bad keys must not become 16 000 sentences.
const MAX_PROBLEMS: usize = 32;

/// The value of one key.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum GeoValue {
    /// One short, stored in the directory entry itself.
    Short(u16),
    /// Several shorts, stored after the directory (rare, but the standard allows it).
    Shorts(Vec<u16>),
    /// One or more doubles of GeoDoubleParams.
    Doubles(Vec<f64>),
    /// Text of GeoAsciiParams, without the final `|` and NULs.
    Ascii(String),
}

/// One key of the directory.
#[derive(Debug, Clone, PartialEq)]
pub struct GeoKey {
    /// The key's number, for example 3072.
    pub id: u16,
    /// Its value.
    pub value: GeoValue,
}

impl GeoKey {
    /// The key's name as `listgeo` prints it, or `None` for a number outside the standard.
    #[must_use]
    pub fn name(&self) -> Option<&'static str> {
        key_names::key(self.id)
    }

    /// The name of the value, where it is a code: `RasterPixelIsArea`, `CT_TransverseMercator`, `Linear_Meter`.
    #[must_use]
    pub fn value_name(&self) -> Option<&'static str> {
        match self.value {
            GeoValue::Short(v) => key_names::value(self.id, v),
            _ => None,
        }
    }
}

/// The three tags that hold the keys.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct KeyTags {
    /// Tag 34735.
    pub directory: Vec<u16>,
    /// Tag 34736; empty where the image lacks it.
    pub doubles: Vec<f64>,
    /// Tag 34737, with or without its final NUL; empty where the image lacks it.
    pub ascii: Vec<u8>,
}

/// The keys of one image.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct GeoKeys {
    /// Directory version, key revision, minor revision: `[1, 1, 0]` for GeoTIFF 1.0, `[1, 1, 1]` for 1.1.
    pub version: [u16; 3],
    /// The keys in file order. A repeated key is listed twice; look-ups take the first, as in libgeotiff.
    pub entries: Vec<GeoKey>,
    /// What could not be read, in sentences for the user.
    pub problems: Vec<String>,
    /// The tags that the keys were read from. A copy of the image keeps them unchanged.
    pub tags: KeyTags,
}

impl GeoKeys {
    /// Reads the directory. `doubles` and `ascii` are empty where the image lacks the tag.
    ///
    /// Never fails: an unreadable directory gives no entries and a problem.
    #[must_use]
    pub fn parse(directory: &[u16], doubles: &[f64], ascii: &[u8]) -> Self {
        let tags = KeyTags { directory: directory.to_vec(), doubles: doubles.to_vec(), ascii: ascii.to_vec() };
        let mut keys = Self { tags, ..Self::default() };
        let mut problems = Problems::default();
        let [version, revision, minor, count] = match directory {
            [a, b, c, d, ..] => [*a, *b, *c, *d],
            _ => {
                problems.add(|| format!("GeoKeyDirectory has {} values, fewer than its header", directory.len()));
                keys.problems = problems.finish();
                return keys;
            }
        };
        keys.version = [version, revision, minor];
        if version != 1 {
            problems.add(|| format!("GeoKeyDirectory version {version} is not 1; read as version 1"));
        }
        let table = directory.get(4..).unwrap_or_default();
        let present = table.len() / 4;
        if usize::from(count) > present {
            problems.add(|| format!("GeoKeyDirectory declares {count} keys but has room for {present}"));
        }
        for entry in table.chunks_exact(4).take(usize::from(count)) {
            if let &[id, location, len, value] = entry {
                match read_value(directory, doubles, ascii, location, usize::from(len), value) {
                    Ok(value) => keys.entries.push(GeoKey { id, value }),
                    Err(why) => problems.add(|| format!("{}: {why}; key ignored", key_names::key_or_number(id))),
                }
            }
        }
        keys.problems = problems.finish();
        keys
    }

    /// The first value of key `id`.
    #[must_use]
    pub fn get(&self, id: u16) -> Option<&GeoValue> {
        self.entries.iter().find(|k| k.id == id).map(|k| &k.value)
    }

    /// The value of a code key. A double that is a whole number in range is accepted, since some writers store codes as doubles.
    #[must_use]
    pub fn short(&self, id: u16) -> Option<u16> {
        match self.get(id)? {
            GeoValue::Short(v) => Some(*v),
            GeoValue::Shorts(v) => v.first().copied(),
            GeoValue::Doubles(v) => {
                let v = *v.first()?;
                // Exact for every u16; NaN and fractions fail the comparison.
                let code = v as u16;
                (f64::from(code) == v).then_some(code)
            }
            GeoValue::Ascii(_) => None,
        }
    }

    /// The code that a code key states; `None` where the key is absent, 0 (undefined) or 32767 (user-defined).
    #[must_use]
    pub fn code(&self, id: u16) -> Option<u16> {
        self.short(id).filter(|&v| v != 0 && v != USER_DEFINED)
    }

    /// The first number of a key that holds doubles. A short is converted, as in libgeotiff.
    #[must_use]
    pub fn double(&self, id: u16) -> Option<f64> {
        match self.get(id)? {
            GeoValue::Doubles(v) => v.first().copied(),
            GeoValue::Short(v) => Some(f64::from(*v)),
            GeoValue::Shorts(v) => v.first().map(|&v| f64::from(v)),
            GeoValue::Ascii(_) => None,
        }
    }

    /// All numbers of a key that holds doubles; empty where the key is absent or of another type.
    #[must_use]
    pub fn doubles(&self, id: u16) -> &[f64] {
        match self.get(id) {
            Some(GeoValue::Doubles(v)) => v,
            _ => &[],
        }
    }

    /// The text of a citation key; `None` where it is blank.
    #[must_use]
    pub fn ascii(&self, id: u16) -> Option<&str> {
        match self.get(id)? {
            GeoValue::Ascii(text) if !text.trim().is_empty() => Some(text),
            _ => None,
        }
    }

    /// Whether GTRasterTypeGeoKey says that a pixel's coordinates are those of its centre.
    #[must_use]
    pub fn pixel_is_point(&self) -> bool {
        self.short(key_names::GT_RASTER_TYPE) == Some(2)
    }
}

fn read_value(
    directory: &[u16],
    doubles: &[f64],
    ascii: &[u8],
    location: u16,
    len: usize,
    value: u16,
) -> Result<GeoValue, String> {
    let start = usize::from(value);
    let past_end = |tag: &str, have: usize| match have {
        0 => format!("points into {tag}, which the image lacks"),
        _ => format!("values {start}..{} are past the end of {tag} ({have})", start.saturating_add(len)),
    };
    match location {
        // Like libgeotiff, accept any count here and read one short.
        0 => Ok(GeoValue::Short(value)),
        _ if len == 0 => Err("has no values".to_owned()),
        DIRECTORY => directory
            .get(start..start.saturating_add(len))
            .map(|v| GeoValue::Shorts(v.to_vec()))
            .ok_or_else(|| past_end("GeoKeyDirectory", directory.len())),
        DOUBLES => doubles
            .get(start..start.saturating_add(len))
            .map(|v| GeoValue::Doubles(v.to_vec()))
            .ok_or_else(|| past_end("GeoDoubleParams", doubles.len())),
        ASCII => {
            // A count that includes a NUL which the writer did not store ends one past the tag. libgeotiff accepts that too.
            let end = match start.saturating_add(len) {
                end if end == ascii.len().saturating_add(1) => ascii.len(),
                end => end,
            };
            ascii
                .get(start..end)
                .map(|v| GeoValue::Ascii(text(v)))
                .ok_or_else(|| past_end("GeoAsciiParams", ascii.len()))
        }
        other => Err(format!("value is in tag {other}, which cannot hold GeoKey values")),
    }
}

/// Decodes key text: UTF-8 if it is valid, else Latin-1, which writers of the 1990s used. Removes only one final `|`: Esri
/// citations contain more of them.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
    let bytes = bytes.get(..end).unwrap_or_default();
    let bytes = bytes.strip_suffix(b"|").unwrap_or(bytes);
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => bytes.iter().map(|&b| char::from(b)).collect(),
    }
}

/// A list of problems of bounded length.
#[derive(Default)]
struct Problems {
    listed: Vec<String>,
    unlisted: usize,
}

impl Problems {
    fn add(&mut self, text: impl FnOnce() -> String) {
        if self.listed.len() < MAX_PROBLEMS {
            self.listed.push(text());
        } else {
            self.unlisted += 1;
        }
    }

    fn finish(mut self) -> Vec<String> {
        if self.unlisted > 0 {
            self.listed.push(format!("and {} more problems in the GeoKeyDirectory", self.unlisted));
        }
        self.listed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_all_four_kinds_of_value() {
        let dir = [1, 1, 0, 4, 1024, 0, 1, 1, 2057, 34736, 1, 1, 3073, 34737, 4, 2, 4999, 34735, 2, 16, 7, 8];
        let keys = GeoKeys::parse(&dir, &[1.0, 6_378_137.0], b"ab|cd|");
        assert_eq!(keys.version, [1, 1, 0]);
        assert_eq!(keys.short(1024), Some(1));
        assert_eq!(keys.double(2057), Some(6_378_137.0));
        assert_eq!(keys.get(3073), Some(&GeoValue::Ascii("|cd".into())));
        assert_eq!(keys.get(4999), Some(&GeoValue::Shorts(vec![4999, 34735])));
        assert!(keys.problems.is_empty(), "{:?}", keys.problems);
    }

    #[test]
    fn skips_keys_that_point_past_the_end() {
        let dir = [1, 1, 0, 3, 2057, 34736, 2, 65535, 3073, 34737, 65535, 65535, 1024, 0, 1, 2];
        let keys = GeoKeys::parse(&dir, &[1.0], b"x");
        assert_eq!(keys.entries.len(), 1);
        assert_eq!(keys.problems.len(), 2);
    }

    #[test]
    fn skips_keys_in_a_missing_or_foreign_tag() {
        let dir = [1, 1, 0, 2, 2057, 34736, 1, 0, 2049, 256, 1, 0];
        let keys = GeoKeys::parse(&dir, &[], &[]);
        assert!(keys.entries.is_empty());
        assert!(keys.problems[0].contains("GeoDoubleParams, which the image lacks"), "{:?}", keys.problems);
        assert!(keys.problems[1].contains("tag 256"));
    }

    #[test]
    fn survives_a_count_larger_than_the_directory() {
        let keys = GeoKeys::parse(&[1, 1, 0, 65535, 1024, 0, 1, 2, 9], &[], &[]);
        assert_eq!(keys.entries.len(), 1);
        assert_eq!(keys.problems.len(), 1);
    }

    #[test]
    fn survives_a_directory_without_a_header() {
        for len in 0..4 {
            let keys = GeoKeys::parse(&vec![1; len], &[], &[]);
            assert!(keys.entries.is_empty() && keys.problems.len() == 1);
        }
    }

    #[test]
    fn caps_the_problem_list_of_a_hostile_directory() {
        let mut dir = vec![1, 1, 0, 16000];
        (0..16000).for_each(|i| dir.extend([i, 34736, 1, 0]));
        let keys = GeoKeys::parse(&dir, &[], &[]);
        assert_eq!(keys.problems.len(), MAX_PROBLEMS + 1);
    }

    #[test]
    fn every_truncation_of_a_directory_is_read_without_panic() {
        let dir = [1, 1, 0, 3, 1024, 0, 1, 1, 2057, 34736, 1, 0, 3073, 34737, 3, 0];
        for len in 0..dir.len() {
            let _ = GeoKeys::parse(&dir[..len], &[1.0], b"ab|");
        }
    }
}
