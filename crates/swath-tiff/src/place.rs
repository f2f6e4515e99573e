//! The place in a file that an error refers to.

use std::{fmt, sync::Arc};

/// The place in a file that an error refers to. Every layer fills in the fields it knows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Place {
    /// File, URL or other name of the source.
    pub source: Option<Arc<str>>,
    /// Index of the directory, from 0, in the order of the file's chain.
    pub ifd: Option<u32>,
    /// Tag number.
    pub tag: Option<u16>,
    /// Column and row of the tile (or strip) in the grid.
    pub tile: Option<(u32, u32)>,
    /// Sample plane, in files that store each plane separately.
    pub plane: Option<u32>,
    /// Byte offset in the file.
    pub offset: Option<u64>,
}

impl Place {
    /// Fills the unknown fields from `outer`.
    pub fn or(mut self, outer: &Place) -> Place {
        self.source = self.source.or_else(|| outer.source.clone());
        self.ifd = self.ifd.or(outer.ifd);
        self.tag = self.tag.or(outer.tag);
        self.tile = self.tile.or(outer.tile);
        self.plane = self.plane.or(outer.plane);
        self.offset = self.offset.or(outer.offset);
        self
    }

    /// Whether no field is known.
    pub fn is_empty(&self) -> bool {
        *self == Place::default()
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts: Vec<String> = Vec::new();
        if let Some(ifd) = self.ifd {
            parts.push(format!("IFD {ifd}"));
        }
        if let Some(tag) = self.tag {
            parts.push(match crate::tag::name(tag) {
                Some(name) => format!("tag {tag} ({name})"),
                None => format!("tag {tag}"),
            });
        }
        if let Some((x, y)) = self.tile {
            parts.push(format!("tile ({x}, {y})"));
        }
        if let Some(plane) = self.plane {
            parts.push(format!("plane {plane}"));
        }
        if let Some(offset) = self.offset {
            parts.push(format!("byte {offset}"));
        }
        match (&self.source, parts.is_empty()) {
            (Some(source), true) => write!(f, "{source}"),
            (Some(source), false) => write!(f, "{source}: {}", parts.join(", ")),
            (None, _) => write!(f, "{}", parts.join(", ")),
        }
    }
}
