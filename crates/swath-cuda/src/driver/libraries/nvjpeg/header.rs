//! The markers of a JPEG stream before its first scan, and whether nvJPEG decodes such a stream as the host does.

use std::ffi::c_int;

use crate::driver::libraries::{load::CallError, sys::nvjpeg as sys};

/// The samples to write for a tile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JpegOutput {
    /// One component as it is stored.
    Grey,
    /// Three components stored as YCbCr, converted to RGB in three planes.
    RgbPlanar,
    /// Three components of equal size as they are stored, in three planes. Never converted, whatever the markers say.
    StoredPlanar,
}

impl JpegOutput {
    pub(super) const fn components(self) -> usize {
        match self {
            Self::Grey => 1,
            Self::RgbPlanar | Self::StoredPlanar => 3,
        }
    }

    pub(super) const fn format(self) -> c_int {
        match self {
            Self::Grey => sys::OUTPUT_Y,
            Self::RgbPlanar => sys::OUTPUT_RGB,
            Self::StoredPlanar => sys::OUTPUT_UNCHANGED,
        }
    }
}

/// One tile to decode.
#[derive(Debug, Clone, Copy)]
pub struct JpegTile<'a> {
    /// A complete JPEG stream, including tables.
    pub bytes: &'a [u8],
    /// The tile's columns in the file.
    pub width: u32,
    /// The tile's rows in the file.
    pub height: u32,
    /// Device addresses of as many planes as the output has.
    pub planes: [u64; 3],
    /// Bytes from row to row of a plane.
    pub pitch: usize,
    /// Bytes that may be written from each plane's address on.
    pub plane_len: usize,
}

/// Why a tile was not decoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JpegRefusal {
    /// The tile does not begin with a JPEG header.
    #[error("not a JPEG stream: {0}")]
    Header(&'static str),
    /// A JPEG of a kind that only the host decodes.
    #[error("not decoded on the device: {0}")]
    Kind(&'static str),
    /// The stream's image differs from the file's tile.
    #[error("the stream holds {found}, the file promises {wanted}")]
    Mismatch {
        /// Width x height x components in the stream.
        found: String,
        /// Width x height x components in the file.
        wanted: String,
    },
    /// The planes are too short for the tile.
    #[error("an output plane of {len} bytes is too short for {height} rows {pitch} bytes apart")]
    Room {
        /// Bytes of a plane.
        len: usize,
        /// Bytes from row to row.
        pitch: usize,
        /// Rows.
        height: u32,
    },
    /// The stream could not be waited for.
    #[error("waiting for the stream failed: {0}")]
    Wait(String),
    /// The library refused it.
    #[error(transparent)]
    Call(#[from] CallError),
}

/// What the markers of a stream say up to its first scan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Frame {
    /// The start-of-frame marker: the kind of JPEG.
    process: u8,
    precision: u8,
    width: u16,
    height: u16,
    /// Identifier and sampling factors (4 bits each way) of each component.
    components: Vec<(u8, u8)>,
    has_jfif: bool,
    /// The colour transform of an Adobe marker.
    adobe_transform: Option<u8>,
}

impl Frame {
    /// Walks along the markers. Every step moves forward, so the stream's length bounds the work.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, JpegRefusal> {
        let mut rest = bytes.strip_prefix(&[0xFF, 0xD8]).ok_or(JpegRefusal::Header("no start of image"))?;
        let (mut has_jfif, mut adobe_transform) = (false, None);
        let mut frame: Option<Self> = None;
        loop {
            let [0xFF, marker, after @ ..] = rest else { return Err(JpegRefusal::Header("a marker is missing")) };
            // Any number of fill bytes may precede a marker.
            if *marker == 0xFF {
                rest = rest.get(1..).unwrap_or_default();
                continue;
            }
            let &[high, low, ..] = after else { return Err(JpegRefusal::Header("it ends in a marker")) };
            let len = usize::from(u16::from_be_bytes([high, low]));
            let body = after.get(2..len).ok_or(JpegRefusal::Header("a marker segment is longer than the stream"))?;
            match (*marker, body) {
                (0xDA, _) => {
                    let mut frame = frame.ok_or(JpegRefusal::Header("a scan without a frame"))?;
                    frame.has_jfif = has_jfif;
                    frame.adobe_transform = adobe_transform;
                    return Ok(frame);
                }
                (0xE0, [b'J', b'F', b'I', b'F', 0, ..]) => has_jfif = true,
                (0xEE, [b'A', b'd', b'o', b'b', b'e', _, _, _, _, _, _, transform, ..]) => {
                    adobe_transform = Some(*transform);
                }
                // C4, C8 and CC lie in the range of frame markers but are none.
                (0xC0..=0xC3 | 0xC5..=0xC7 | 0xC9..=0xCB | 0xCD..=0xCF, body) => {
                    if frame.is_some() {
                        return Err(JpegRefusal::Header("two frames"));
                    }
                    frame = Some(Self::parse_frame(*marker, body)?);
                }
                _ => {}
            }
            rest = after.get(len..).unwrap_or_default();
        }
    }

    fn parse_frame(process: u8, body: &[u8]) -> Result<Self, JpegRefusal> {
        let &[precision, h1, h0, w1, w0, count, ref listed @ ..] = body else {
            return Err(JpegRefusal::Header("the frame is cut short"));
        };
        let components: Vec<(u8, u8)> =
            listed.chunks_exact(3).take(usize::from(count)).map(|entry| (entry[0], entry[1])).collect();
        if components.len() != usize::from(count) {
            return Err(JpegRefusal::Header("the frame is cut short"));
        }
        let (width, height) = (u16::from_be_bytes([w1, w0]), u16::from_be_bytes([h1, h0]));
        Ok(Self { process, precision, width, height, components, has_jfif: false, adobe_transform: None })
    }

    pub(super) const fn is_baseline(&self) -> bool {
        self.process == 0xC0
    }

    /// Whether a decoder that follows the markers would take the components for RGB and not convert them.
    fn looks_like_rgb(&self) -> bool {
        if self.has_jfif {
            return false;
        }
        match self.adobe_transform {
            Some(transform) => transform == 0,
            None => self.components.iter().map(|&(id, _)| id).eq(*b"RGB"),
        }
    }

    pub(super) fn check(&self, tile: &JpegTile<'_>, output: JpegOutput) -> Result<(), JpegRefusal> {
        // For progressive streams the library has another transform, whose samples differ more from the host decoder's.
        if !matches!(self.process, 0xC0 | 0xC1) {
            return Err(JpegRefusal::Kind("neither baseline nor extended sequential"));
        }
        if self.precision != 8 {
            return Err(JpegRefusal::Kind("samples of other than 8 bits"));
        }
        let found = (self.width.into(), self.height.into(), self.components.len() as i64);
        let wanted = (tile.width.into(), tile.height.into(), output.components() as i64);
        if found != wanted {
            return Err(mismatch(found, wanted));
        }
        let samplings = || self.components.iter().map(|&(_, sampling)| sampling);
        if samplings().any(|sampling| !(1..=4).contains(&(sampling >> 4)) || !(1..=4).contains(&(sampling & 15))) {
            return Err(JpegRefusal::Header("a sampling factor out of range"));
        }
        match output {
            // A TIFF's photometric interpretation overrides the markers, but nvJPEG follows the markers.
            JpegOutput::RgbPlanar if self.looks_like_rgb() => {
                Err(JpegRefusal::Kind("the file says YCbCr, the stream's markers say RGB"))
            }
            JpegOutput::StoredPlanar if samplings().any(|sampling| sampling != self.components[0].1) => {
                Err(JpegRefusal::Kind("stored components of different sizes"))
            }
            // The host decoder repeats coarser chroma, and nvJPEG does not.
            JpegOutput::RgbPlanar if !self.has_common_subsampling() => {
                Err(JpegRefusal::Kind("chroma subsampled in an unusual way"))
            }
            // The host decoder words the error of a truncated stream; nvJPEG would fill the rest with grey.
            _ if !ends_in_marker(tile.bytes) => Err(JpegRefusal::Kind("no end of image")),
            _ => Ok(()),
        }
    }

    /// Whether luma is full size, and both chroma components are full or half size in each direction.
    fn has_common_subsampling(&self) -> bool {
        let [(_, luma), (_, blue), (_, red)] = *self.components.as_slice() else { return false };
        let halves = |full: u8, part: u8| full == part || full == part * 2;
        blue == red && halves(luma >> 4, blue >> 4) && halves(luma & 15, blue & 15)
    }
}

/// Whether a stream ends in an end-of-image marker, apart from zero padding.
fn ends_in_marker(bytes: &[u8]) -> bool {
    let len = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    bytes.get(..len).is_some_and(|bytes| bytes.ends_with(&[0xFF, 0xD9]))
}

pub(super) fn mismatch(found: (i64, i64, i64), wanted: (i64, i64, i64)) -> JpegRefusal {
    let words = |(width, height, components)| format!("{width} x {height} x {components}");
    JpegRefusal::Mismatch { found: words(found), wanted: words(wanted) }
}

pub(super) fn check_room(tile: &JpegTile<'_>) -> Result<(), JpegRefusal> {
    let needed = tile.pitch.checked_mul(tile.height as usize);
    let fits = tile.width as usize <= tile.pitch && needed.is_some_and(|needed| needed <= tile.plane_len);
    if fits {
        return Ok(());
    }
    Err(JpegRefusal::Room { len: tile.plane_len, pitch: tile.pitch, height: tile.height })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stream's markers up to the scan: `middle` goes between start of image and frame.
    fn stream(middle: &[u8], process: u8, precision: u8, size: (u16, u16), components: &[(u8, u8)]) -> Vec<u8> {
        let mut bytes = vec![0xFF, 0xD8];
        bytes.extend(middle);
        bytes.extend([0xFF, process, 0, 8 + 3 * components.len() as u8, precision]);
        bytes.extend(size.1.to_be_bytes());
        bytes.extend(size.0.to_be_bytes());
        bytes.push(components.len() as u8);
        for &(id, sampling) in components {
            bytes.extend([id, sampling, 0]);
        }
        bytes.extend([0xFF, 0xDA, 0, 2, 0xFF, 0xD9]);
        bytes
    }

    fn tile(bytes: &[u8]) -> JpegTile<'_> {
        JpegTile { bytes, width: 64, height: 32, planes: [0; 3], pitch: 192, plane_len: 192 * 32 }
    }

    const YCC: [(u8, u8); 3] = [(1, 0x22), (2, 0x11), (3, 0x11)];
    const FULL: [(u8, u8); 3] = [(0, 0x11), (1, 0x11), (2, 0x11)];

    fn verdict(bytes: &[u8], output: JpegOutput) -> Result<(), JpegRefusal> {
        Frame::parse(bytes)?.check(&tile(bytes), output)
    }

    #[test]
    fn accepts_streams_that_match_the_file() {
        assert_eq!(verdict(&stream(&[], 0xC0, 8, (64, 32), &YCC), JpegOutput::RgbPlanar), Ok(()));
        assert_eq!(verdict(&stream(&[], 0xC1, 8, (64, 32), &[(1, 0x11)]), JpegOutput::Grey), Ok(()));
        assert_eq!(verdict(&stream(&[0xFF, 0xFF], 0xC0, 8, (64, 32), &FULL), JpegOutput::StoredPlanar), Ok(()));
    }

    #[test]
    fn declines_a_stream_of_another_size_or_component_count() {
        for (size, components) in [((65, 32), &YCC[..]), ((64, 33), &YCC), ((64, 32), &YCC[..1])] {
            let bytes = stream(&[], 0xC0, 8, size, components);
            assert!(matches!(verdict(&bytes, JpegOutput::RgbPlanar), Err(JpegRefusal::Mismatch { .. })));
        }
    }

    #[test]
    fn declines_streams_that_are_cut_off_and_chroma_that_is_coarser_than_half() {
        let whole = stream(&[], 0xC0, 8, (64, 32), &YCC);
        assert!(matches!(verdict(&whole[..whole.len() - 1], JpegOutput::RgbPlanar), Err(JpegRefusal::Kind(_))));
        assert_eq!(verdict(&[&whole[..], &[0, 0]].concat(), JpegOutput::RgbPlanar), Ok(()));
        for luma in [0x41, 0x44, 0x12, 0x22, 0x21, 0x11] {
            let bytes = stream(&[], 0xC0, 8, (64, 32), &[(1, luma), (2, 0x11), (3, 0x11)]);
            assert_eq!(verdict(&bytes, JpegOutput::RgbPlanar).is_ok(), luma >> 4 <= 2 && luma & 15 <= 2, "{luma:x}");
        }
    }

    #[test]
    fn declines_twelve_bits_progressive_lossless_and_arithmetic_coding() {
        for (process, precision) in [(0xC1, 12), (0xC2, 8), (0xC3, 8), (0xC9, 8)] {
            let bytes = stream(&[], process, precision, (64, 32), &YCC);
            assert!(matches!(verdict(&bytes, JpegOutput::RgbPlanar), Err(JpegRefusal::Kind(_))));
        }
    }

    #[test]
    fn declines_conversion_where_the_markers_would_prevent_it() {
        let adobe = [0xFF, 0xEE, 0, 14, b'A', b'd', b'o', b'b', b'e', 0, 100, 0, 0, 0, 0, 0];
        let bytes = stream(&adobe, 0xC0, 8, (64, 32), &YCC);
        assert!(matches!(verdict(&bytes, JpegOutput::RgbPlanar), Err(JpegRefusal::Kind(_))));
        let named = [(b'R', 0x11), (b'G', 0x11), (b'B', 0x11)];
        let bytes = stream(&[], 0xC0, 8, (64, 32), &named);
        assert!(matches!(verdict(&bytes, JpegOutput::RgbPlanar), Err(JpegRefusal::Kind(_))));
        assert_eq!(verdict(&bytes, JpegOutput::StoredPlanar), Ok(()));
    }

    #[test]
    fn declines_stored_components_of_different_sizes() {
        let bytes = stream(&[], 0xC0, 8, (64, 32), &YCC);
        assert!(matches!(verdict(&bytes, JpegOutput::StoredPlanar), Err(JpegRefusal::Kind(_))));
    }

    #[test]
    fn every_cut_of_a_header_is_an_error_and_never_a_panic() {
        let bytes = stream(&[0xFF, 0xE0, 0, 7, b'J', b'F', b'I', b'F', 0], 0xC0, 8, (64, 32), &YCC);
        for len in 0..bytes.len() - 2 {
            assert!(Frame::parse(&bytes[..len]).is_err(), "{len}");
        }
        assert!(Frame::parse(&[0xFF, 0xD8, 0xFF, 0xC0, 0, 0, 0, 0]).is_err());
        assert!(Frame::parse(&[0xFF, 0xD8, 0xFF, 0xC0, 0, 1, 0, 0]).is_err());
    }

    #[test]
    fn a_plane_too_short_by_one_byte_or_a_pitch_below_the_row_is_refused() {
        let room = |pitch, plane_len| check_room(&JpegTile { pitch, plane_len, ..tile(&[]) });
        assert_eq!(room(64, 64 * 32), Ok(()));
        assert!(room(64, 64 * 32 - 1).is_err());
        assert!(room(63, 64 * 32).is_err());
        assert!(room(usize::MAX, usize::MAX).is_err());
    }
}
