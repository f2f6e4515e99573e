//! Decodes JPEG: baseline, extended sequential and progressive Huffman frames of 8 or 12 bits, and lossless frames.
//!
//! Samples are bit for bit those of libjpeg-turbo's defaults (accurate integer IDCT, fancy upsampling). Like libjpeg, the decoder continues
//! after faults in the coded data; it reports the first as [`Damage`].

mod baseline;
mod bits;
mod check;
mod color;
mod error;
mod huffman;
mod idct;
mod layout;
mod lossless;
mod lossy;
mod markers;
mod progressive;
mod sample;
mod upsample;

pub use error::{Damage, Fault, JpegError};
pub use markers::{Component, Header, Process, Tables};

use markers::{Markers, Scan, StreamTables};

/// Most scans of a frame: libtiff's limit against small streams that take minutes.
pub const MAX_SCANS: usize = 100;

/// The colour conversion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Color {
    /// None: components as stored.
    Raw,
    /// Three components from YCbCr to RGB.
    YcbcrToRgb,
}

/// Options for decoding.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Colour conversion.
    pub color: Color,
    /// Frames with more pixels are rejected before memory is allocated.
    pub max_pixels: u64,
}

/// A decoded frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decoded {
    /// The headers.
    pub header: Header,
    /// The first fault in the coded data.
    pub damage: Option<Damage>,
}

/// The result of [`check`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checked {
    /// [`decode`] decodes the frame without damage. The last scan ends at this offset; decoders ignore what follows.
    Sound(usize),
    /// [`decode`] reports damage too.
    Damaged(Damage),
    /// The frame is progressive or lossless, which only decoding can check.
    Unchecked,
}

/// Working memory, which grows to the largest tile and is then reused.
#[derive(Debug, Default)]
pub struct Scratch {
    stream_tables: StreamTables,
    work: lossy::Work,
    bytes: lossy::Buffers<u8>,
    words: lossy::Buffers<u16>,
    lossless: lossless::PredictorRows,
}

/// Reads headers up to the first scan.
pub fn read_header(src: &[u8]) -> Result<Header, JpegError> {
    let mut stream = Stream::new(src)?;
    let scan = stream.advance(None);
    match (stream.header, scan) {
        (Some(header), _) => Ok(header),
        (None, Err(error)) => Err(error),
        (None, Ok(_)) => Err(JpegError::Truncated { what: "headers: no frame", offset: src.len() as u64 }),
    }
}

/// Returns the bytes that [`decode`] allocates for a frame beside its destination: samples of all components, and coefficients where the
/// frame is progressive.
pub fn frame_memory(header: &Header) -> u64 {
    lossy::frame_memory(header)
}

/// Decodes a frame into rows of interleaved samples `row_stride` bytes apart: bytes, or native-endian `u16` where the precision is over 8.
///
/// `dst` must hold all rows at that stride; the last may end after its samples.
pub fn decode(
    tables: Option<&Tables>,
    src: &[u8],
    options: Options,
    dst: &mut [u8],
    row_stride: usize,
    scratch: &mut Scratch,
) -> Result<Decoded, JpegError> {
    let Scratch { stream_tables, work, bytes, words, lossless } = scratch;
    let (mut stream, scan, mut header) = begin(src, stream_tables)?;
    check_frame(&header, options)?;
    check_destination(&header, dst.len(), row_stride)?;
    let target = lossy::Target { color: options.color, dst, stride: row_stride };
    let damage = match (header.process, header.precision) {
        (Process::Lossless, _) => {
            lossless::decode(&stream, tables, stream_tables, &header, &scan, target, work, lossless)?
        }
        (_, 8) => lossy::decode(&mut stream, tables, stream_tables, &header, scan, target, bytes, work)?,
        _ => lossy::decode(&mut stream, tables, stream_tables, &header, scan, target, words, work)?,
    };
    header.adobe_transform = stream.header.and_then(|h| h.adobe_transform);
    Ok(Decoded { header, damage })
}

/// Returns the damage that [`decode`] would report for a sequential frame, in a fraction of the time: it parses the coded data but
/// computes no samples.
pub fn check(
    tables: Option<&Tables>,
    src: &[u8],
    options: Options,
    scratch: &mut Scratch,
) -> Result<Checked, JpegError> {
    let Scratch { stream_tables, work, .. } = scratch;
    let (mut stream, scan, header) = begin(src, stream_tables)?;
    check_frame(&header, options)?;
    if matches!(header.process, Process::Progressive | Process::Lossless) {
        return Ok(Checked::Unchecked);
    }
    let mut check = check::Check { frame_state: lossy::FrameState::new(&header, tables) };
    let visited = lossy::visit(&mut check, &mut stream, stream_tables, scan, work)?;
    Ok(check.frame_state.damage.map_or(Checked::Sound(visited.end), Checked::Damaged))
}

/// Reads up to the first scan.
fn begin<'a>(src: &'a [u8], stream_tables: &mut StreamTables) -> Result<(Stream<'a>, Scan, Header), JpegError> {
    stream_tables.clear();
    let mut stream = Stream::new(src)?;
    let scan = stream.next_scan(stream_tables)?;
    match (scan, stream.header.clone()) {
        (Some(scan), Some(header)) => Ok((stream, scan, header)),
        _ => Err(JpegError::Truncated { what: "headers: no scan", offset: src.len() as u64 }),
    }
}

fn check_frame(header: &Header, options: Options) -> Result<(), JpegError> {
    let (width, height) = (header.width, header.height);
    if u64::from(width) * u64::from(height) > options.max_pixels {
        return Err(JpegError::TooLarge { width, height, max_pixels: options.max_pixels });
    }
    let count = header.components.len();
    if options.color == Color::YcbcrToRgb && count != 3 {
        return Err(JpegError::Components { have: count as u8 });
    }
    Ok(())
}

fn check_destination(header: &Header, have: usize, stride: usize) -> Result<(), JpegError> {
    let sample = if header.precision > 8 { 2 } else { 1 };
    let row = u64::from(header.width) * header.components.len() as u64 * sample;
    let height = u64::from(header.height);
    let need = (height - 1).checked_mul(stride as u64).and_then(|n| n.checked_add(row)).unwrap_or(u64::MAX);
    let have = have as u64;
    let full = height.checked_mul(stride as u64);
    if (stride as u64) < row || (have != need && Some(have) != full) {
        return Err(JpegError::Destination { need, have });
    }
    Ok(())
}

/// A stream, positioned between scans.
struct Stream<'a> {
    src: &'a [u8],
    markers: Markers<'a>,
    header: Option<Header>,
    adobe: Option<u8>,
    interval: u32,
    /// Whether EOI has been read.
    ended: bool,
}

impl<'a> Stream<'a> {
    fn new(src: &'a [u8]) -> Result<Self, JpegError> {
        Ok(Self { src, markers: Markers::new(src)?, header: None, adobe: None, interval: 0, ended: false })
    }

    /// Reads the tables up to the next scan header and returns the header; `None` at the end.
    fn next_scan(&mut self, stream_tables: &mut StreamTables) -> Result<Option<Scan>, JpegError> {
        self.advance(Some(stream_tables))
    }

    fn advance(&mut self, mut stream_tables: Option<&mut StreamTables>) -> Result<Option<Scan>, JpegError> {
        while let Some((marker, offset)) = self.markers.next() {
            match marker {
                0xD9 => {
                    self.ended = true;
                    return Ok(None);
                }
                0x01 | 0xD0..=0xD8 => {}
                0xC4 | 0xDB => {
                    let segment = self.markers.segment(offset)?;
                    if let Some(stream_tables) = stream_tables.as_deref_mut() {
                        stream_tables.define(marker, segment, offset)?;
                    }
                }
                0xDD => {
                    let segment = self.markers.segment(offset)?;
                    let &[high, low] = segment else {
                        return Err(JpegError::Malformed { what: "DRI length is not 4", offset });
                    };
                    self.interval = u32::from(u16::from_be_bytes([high, low]));
                }
                0xEE => {
                    self.adobe = markers::adobe(self.markers.segment(offset)?).or(self.adobe);
                    if let Some(header) = &mut self.header {
                        header.adobe_transform = self.adobe;
                    }
                }
                0xC8 | 0xCC => {
                    self.markers.segment(offset)?;
                }
                0xC0..=0xCF => {
                    let mut header = markers::frame(marker, self.markers.segment(offset)?, offset)?;
                    if self.header.is_some() {
                        return Err(JpegError::Malformed { what: "second frame header", offset });
                    }
                    header.adobe_transform = self.adobe;
                    self.header = Some(header);
                }
                0xDA => {
                    let segment = self.markers.segment(offset)?;
                    let Some(header) = &self.header else {
                        return Err(JpegError::Malformed { what: "scan before a frame header", offset });
                    };
                    return markers::scan(segment, header, self.markers.position(), offset).map(Some);
                }
                _ => {
                    self.markers.segment(offset)?;
                }
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod check_tests;
#[cfg(test)]
mod tests;
