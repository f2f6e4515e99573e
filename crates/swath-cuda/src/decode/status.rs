//! The result of decoding a tile on the device. The numbers are those of `kernels/core/status.cuh`. nvCOMP writes its statuses to
//! the same array: 0 for success, 10 or more otherwise.

/// The result of decoding a tile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TileStatus {
    /// The tile is decoded.
    Ok,
    /// The stream ends before the tile is full.
    Short,
    /// The stream holds more than the tile.
    Long,
    /// The stream is damaged, or of a kind that the kernel does not read.
    Corrupt,
    /// The stream is complete, but its checksum does not match.
    Checksum,
    /// The stream is of a kind that the kernel does not read, but perhaps the CPU does.
    Unusual,
    /// A library refused the tile, with this status.
    Refused(u32),
    /// No kernel reached it.
    Undone,
}

impl TileStatus {
    pub(crate) fn from_device(status: u32) -> Self {
        match status {
            0 => Self::Ok,
            1 => Self::Short,
            2 => Self::Long,
            3 => Self::Corrupt,
            4 => Self::Checksum,
            5 => Self::Unusual,
            u32::MAX => Self::Undone,
            other => Self::Refused(other),
        }
    }
}

impl std::fmt::Display for TileStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Ok => f.write_str("decoded"),
            Self::Short => f.write_str("the stream ends before the tile is full"),
            Self::Long => f.write_str("the stream holds more than the tile"),
            Self::Corrupt => f.write_str("the stream is damaged or of an unusual kind"),
            Self::Checksum => f.write_str("the checksum does not match"),
            Self::Unusual => f.write_str(
                "only the CPU decodes such a stream: with a dictionary, a skippable frame, many \
                 tiny blocks, longer blocks or codes than the format has, or more than 256 MiB",
            ),
            Self::Refused(code) => write!(f, "refused by the library (status {code})"),
            Self::Undone => f.write_str("not reached"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_kernels() {
        let header = include_str!("../../kernels/core/status.cuh");
        for (name, status) in [
            ("STATUS_OK = 0,", TileStatus::Ok),
            ("STATUS_SHORT = 1,", TileStatus::Short),
            ("STATUS_LONG = 2,", TileStatus::Long),
            ("STATUS_CORRUPT = 3,", TileStatus::Corrupt),
            ("STATUS_CHECKSUM = 4,", TileStatus::Checksum),
            ("STATUS_UNUSUAL = 5,", TileStatus::Unusual),
        ] {
            assert!(header.contains(name), "{name}");
            let number = name.trim_end_matches(',').rsplit(' ').next().and_then(|number| number.parse().ok());
            assert_eq!(number.map(TileStatus::from_device), Some(status));
        }
        assert!(header.contains("STATUS_UNDONE = 0xffffffffu"));
    }
}
