//! Makes small TIFF files in memory, sound and otherwise.

use std::sync::Arc;

use swath::{Dataset, Error, OpenOptions, io::MemorySource};

/// A tag's value.
#[derive(Clone)]
pub enum Tag {
    Short(Vec<u16>),
    Long(Vec<u32>),
    Long8(Vec<u64>),
    Double(Vec<f64>),
    Ascii(&'static str),
}

impl Tag {
    fn code(&self) -> u16 {
        match self {
            Self::Ascii(_) => 2,
            Self::Short(_) => 3,
            Self::Long(_) => 4,
            Self::Double(_) => 12,
            Self::Long8(_) => 16,
        }
    }

    fn count(&self) -> u64 {
        match self {
            Self::Ascii(text) => text.len() as u64 + 1,
            Self::Short(values) => values.len() as u64,
            Self::Long(values) => values.len() as u64,
            Self::Double(values) => values.len() as u64,
            Self::Long8(values) => values.len() as u64,
        }
    }

    fn bytes(&self, big_endian: bool) -> Vec<u8> {
        fn join<const N: usize>(words: impl Iterator<Item = [u8; N]>, big_endian: bool) -> Vec<u8> {
            words
                .flat_map(|mut word| {
                    if big_endian {
                        word.reverse();
                    }
                    word
                })
                .collect()
        }
        match self {
            Self::Ascii(text) => text.bytes().chain([0]).collect(),
            Self::Short(values) => join(values.iter().map(|value| value.to_le_bytes()), big_endian),
            Self::Long(values) => join(values.iter().map(|value| value.to_le_bytes()), big_endian),
            Self::Double(values) => join(values.iter().map(|value| value.to_le_bytes()), big_endian),
            Self::Long8(values) => join(values.iter().map(|value| value.to_le_bytes()), big_endian),
        }
    }
}

/// One directory: tags, and the tiles that its offsets and byte counts will name.
#[derive(Clone, Default)]
pub struct Directory {
    pub tags: Vec<(u16, Tag)>,
    pub tiles: Vec<Vec<u8>>,
}

/// A whole file.
#[derive(Clone, Default)]
pub struct File {
    pub big: bool,
    pub big_endian: bool,
    pub directories: Vec<Directory>,
}

impl Directory {
    /// Tags of an image of `u8`, tiled, uncompressed; tiles are cut from `pixel`.
    pub fn tiled(width: u32, height: u32, tile: u32, pixel: impl Fn(u32, u32) -> u8) -> Self {
        let mut tiles = Vec::new();
        for row in 0..height.div_ceil(tile) {
            for column in 0..width.div_ceil(tile) {
                let at = |index: u32| pixel(column * tile + index % tile, row * tile + index / tile);
                tiles.push((0..tile * tile).map(at).collect());
            }
        }
        let tags = vec![
            (256, Tag::Long(vec![width])),
            (257, Tag::Long(vec![height])),
            (258, Tag::Short(vec![8])),
            (259, Tag::Short(vec![1])),
            (262, Tag::Short(vec![1])),
            (277, Tag::Short(vec![1])),
            (322, Tag::Long(vec![tile])),
            (323, Tag::Long(vec![tile])),
        ];
        Self { tags, tiles }
    }

    pub fn with(mut self, number: u16, tag: Tag) -> Self {
        self.tags.retain(|(known, _)| *known != number);
        self.tags.push((number, tag));
        self
    }

    /// Compresses every tile with Deflate.
    pub fn deflated(mut self) -> Self {
        for tile in &mut self.tiles {
            *tile = zlib(tile);
        }
        self.with(259, Tag::Short(vec![8]))
    }
}

/// A zlib stream of `bytes`.
pub fn zlib(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = libdeflater::Compressor::new(libdeflater::CompressionLvl::default());
    let mut out = vec![0; encoder.zlib_compress_bound(bytes.len())];
    let len = encoder.zlib_compress(bytes, &mut out).unwrap();
    out.truncate(len);
    out
}

impl File {
    pub fn of(directory: Directory) -> Self {
        Self { directories: vec![directory], ..Self::default() }
    }

    /// Header, directories with their values, then tiles: the order of a COG.
    pub fn bytes(&self) -> Vec<u8> {
        // Offsets depend on lengths only, so a first pass with zeros finds them.
        let mut offsets = self.directories.iter().map(|dir| vec![0u64; dir.tiles.len()]).collect::<Vec<_>>();
        let head = self.head(&offsets).len() as u64;
        let mut at = head;
        for (list, dir) in offsets.iter_mut().zip(&self.directories) {
            for (offset, tile) in list.iter_mut().zip(&dir.tiles) {
                // An empty tile is a sparse one.
                *offset = if tile.is_empty() { 0 } else { at };
                at += tile.len() as u64;
            }
        }
        let mut file = self.head(&offsets);
        file.extend(self.directories.iter().flat_map(|dir| dir.tiles.iter().flatten()));
        file
    }

    fn word(&self, value: u64, len: usize) -> Vec<u8> {
        let mut word = value.to_le_bytes()[..len].to_vec();
        if self.big_endian {
            word.reverse();
        }
        word
    }

    fn head(&self, offsets: &[Vec<u64>]) -> Vec<u8> {
        let (pointer, entry, count_len) = if self.big { (8, 20, 8) } else { (4, 12, 2) };
        let mut out = if self.big_endian { b"MM".to_vec() } else { b"II".to_vec() };
        if self.big {
            out.extend(self.word(43, 2));
            out.extend(self.word(8, 2));
            out.extend(self.word(0, 2));
        } else {
            out.extend(self.word(42, 2));
        }
        out.extend(self.word(out.len() as u64 + pointer as u64, pointer));
        for (position, (dir, offsets)) in self.directories.iter().zip(offsets).enumerate() {
            let mut tags = dir.tags.clone();
            let strips = !tags.iter().any(|(number, _)| *number == 322);
            let (offset_tag, count_tag) = if strips { (273, 279) } else { (324, 325) };
            let known = |tags: &[(u16, Tag)], number: u16| tags.iter().any(|(known, _)| *known == number);
            if !known(&tags, offset_tag) {
                let value = if self.big {
                    Tag::Long8(offsets.clone())
                } else {
                    Tag::Long(offsets.iter().map(|offset| *offset as u32).collect())
                };
                tags.push((offset_tag, value));
            }
            if !known(&tags, count_tag) {
                tags.push((count_tag, Tag::Long(dir.tiles.iter().map(|tile| tile.len() as u32).collect())));
            }
            tags.sort_by_key(|(number, _)| *number);
            let mut values_at = out.len() + count_len + tags.len() * entry + pointer;
            let mut values = Vec::new();
            out.extend(self.word(tags.len() as u64, count_len));
            for (number, tag) in &tags {
                out.extend(self.word((*number).into(), 2));
                out.extend(self.word(tag.code().into(), 2));
                out.extend(self.word(tag.count(), pointer));
                let mut raw = tag.bytes(self.big_endian);
                if raw.len() <= pointer {
                    raw.resize(pointer, 0);
                    out.extend(raw);
                } else {
                    out.extend(self.word(values_at as u64, pointer));
                    if raw.len() % 2 == 1 {
                        raw.push(0);
                    }
                    values_at += raw.len();
                    values.extend(raw);
                }
            }
            let last = position + 1 == self.directories.len();
            out.extend(self.word(if last { 0 } else { values_at as u64 }, pointer));
            out.extend(values);
        }
        out
    }

    pub fn open(&self) -> Result<Dataset, Error> {
        open(self.bytes())
    }
}

pub fn open(bytes: Vec<u8>) -> Result<Dataset, Error> {
    OpenOptions::default().open_source(Arc::new(MemorySource::new("test.tif", bytes)))
}
