//! The header of a file: byte order, offset size and first directory.

use crate::{
    error::TiffError,
    structure::bytes::{Bytes, ParseStop},
};

/// Byte order of the numbers in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ByteOrder {
    /// Least significant byte first ("II").
    Little,
    /// Most significant byte first ("MM").
    Big,
}

impl ByteOrder {
    /// Whether numbers in this order must be swapped on this machine.
    pub fn is_foreign(self) -> bool {
        (self == Self::Big) == cfg!(target_endian = "little")
    }

    /// The opposite order.
    pub fn other(self) -> Self {
        if self == Self::Little { Self::Big } else { Self::Little }
    }

    /// The first two bytes of `bytes` as a number; 0 where there are fewer.
    pub fn u16(self, bytes: &[u8]) -> u16 {
        let raw = bytes.first_chunk::<2>().copied().unwrap_or_default();
        if self == Self::Little { u16::from_le_bytes(raw) } else { u16::from_be_bytes(raw) }
    }

    /// The first four bytes of `bytes` as a number; 0 where there are fewer.
    pub fn u32(self, bytes: &[u8]) -> u32 {
        let raw = bytes.first_chunk::<4>().copied().unwrap_or_default();
        if self == Self::Little { u32::from_le_bytes(raw) } else { u32::from_be_bytes(raw) }
    }

    /// The first eight bytes of `bytes` as a number; 0 where there are fewer.
    pub fn u64(self, bytes: &[u8]) -> u64 {
        let raw = bytes.first_chunk::<8>().copied().unwrap_or_default();
        if self == Self::Little { u64::from_le_bytes(raw) } else { u64::from_be_bytes(raw) }
    }
}

/// The header of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Byte order of the whole file.
    pub order: ByteOrder,
    /// Whether offsets have 64 bits.
    pub big: bool,
    /// Offset of the first directory.
    pub first_ifd: u64,
}

impl Header {
    /// Bytes of the longest header.
    pub const LEN: u64 = 16;

    /// Reads the header.
    ///
    /// # Errors
    /// A fault when the file is not a TIFF file.
    pub fn parse(bytes: &Bytes) -> Result<Self, ParseStop> {
        let head = bytes.get(0, 8).map_err(|stop| match stop {
            ParseStop::Fault(_) => ParseStop::Fault(TiffError::malformed(format!(
                "not a TIFF file: {} bytes are too few for a header",
                bytes.size()
            ))),
            stop => stop,
        })?;
        let order = match head.get(0..2) {
            Some(b"II") => ByteOrder::Little,
            Some(b"MM") => ByteOrder::Big,
            other => {
                return Err(TiffError::malformed(format!(
                    "not a TIFF file: it begins with {} where II or MM should be",
                    other.unwrap_or_default().escape_ascii()
                ))
                .into());
            }
        };
        match order.u16(head.get(2..).unwrap_or_default()) {
            42 => Ok(Self { order, big: false, first_ifd: order.u32(head.get(4..).unwrap_or_default()).into() }),
            43 => {
                let head = bytes.get(0, 16)?;
                let width = order.u16(head.get(4..).unwrap_or_default());
                if width != 8 {
                    return Err(
                        TiffError::unsupported(format!("BigTIFF with offsets of {width} bytes instead of 8")).into()
                    );
                }
                if order.u16(head.get(6..).unwrap_or_default()) != 0 {
                    return Err(TiffError::malformed("the reserved field of the BigTIFF header is not 0").into());
                }
                Ok(Self { order, big: true, first_ifd: order.u64(head.get(8..).unwrap_or_default()) })
            }
            version => Err(TiffError::malformed(format!(
                "not a TIFF file: version {version} where 42 (TIFF) or 43 (BigTIFF) should be"
            ))
            .into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_both_orders_and_sizes() {
        let classic = Header::parse(&Bytes::whole(b"II\x2a\0\x08\0\0\0".to_vec())).unwrap();
        assert_eq!(classic, Header { order: ByteOrder::Little, big: false, first_ifd: 8 });
        let big = Header::parse(&Bytes::whole(b"MM\0\x2b\0\x08\0\0\0\0\0\0\0\0\0\x10".to_vec())).unwrap();
        assert_eq!(big, Header { order: ByteOrder::Big, big: true, first_ifd: 16 });
    }

    #[test]
    fn names_the_format_of_a_file_that_is_no_tiff() {
        let Err(ParseStop::Fault(error)) = Header::parse(&Bytes::whole(b"\x89PNG\r\n\x1a\n".to_vec())) else {
            panic!()
        };
        assert!(error.to_string().contains("\\x89P"), "{error}");
    }
}
