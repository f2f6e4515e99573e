//! The ghost area: `KEY=VALUE` lines that GDAL writes between the header and the first directory of a COG.

use crate::structure::{
    bytes::{Bytes, ParseStop},
    header::Header,
};

/// The ghost area of a file, in which GDAL describes the file's layout.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ghost {
    /// Keys and values in file order.
    pub items: Vec<(String, String)>,
    /// Bytes of the whole area, including its first line.
    pub len: u64,
}

impl Ghost {
    /// Longest area that is read. GDAL's own has about 250 bytes.
    const MAX: u64 = 4096;

    /// Reads the area; `None` where the file has none.
    ///
    /// # Errors
    /// Only when bytes are not loaded.
    pub fn parse(bytes: &Bytes, header: &Header) -> Result<Option<Self>, ParseStop> {
        const MARK: &[u8] = b"GDAL_STRUCTURAL_METADATA_SIZE=";
        let start = if header.big { 16 } else { 8 };
        let head_len = MARK.len() as u64 + 13; // six digits and " bytes\n"
        let head = match bytes.get(start, head_len) {
            Ok(head) => head,
            Err(ParseStop::Fault(_)) => return Ok(None),
            Err(stop) => return Err(stop),
        };
        let Some(rest) = head.strip_prefix(MARK) else { return Ok(None) };
        let size = rest.get(..6).and_then(|raw| std::str::from_utf8(raw).ok()).and_then(|raw| raw.parse::<u64>().ok());
        let Some(size) = size.filter(|size| *size <= Self::MAX) else { return Ok(None) };
        let body = match bytes.get(start + head_len, size) {
            Ok(body) => body,
            Err(ParseStop::Fault(_)) => return Ok(None),
            Err(stop) => return Err(stop),
        };
        let items = String::from_utf8_lossy(body)
            .lines()
            .filter_map(|line| line.split_once('='))
            .map(|(key, value)| (key.trim().to_owned(), value.trim().to_owned()))
            .collect();
        Ok(Some(Self { items, len: head_len + size }))
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.items.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    /// Whether every directory comes before the pixels, and no later edit has changed that.
    pub fn is_cog(&self) -> bool {
        self.get("LAYOUT") == Some("IFDS_BEFORE_DATA") && self.get("KNOWN_INCOMPATIBLE_EDITION") != Some("YES")
    }
}
