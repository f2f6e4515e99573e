//! Parses the header of a LERC blob.

/// The bytes that every LERC2 blob begins with.
pub(super) const MAGIC: &[u8] = b"Lerc2 ";

/// The header of a blob. `parse` has checked that its sizes multiply without overflow.
#[derive(Debug, Clone)]
pub(super) struct Header {
    pub(super) version: u32,
    pub(super) checksum: u32,
    pub(super) rows: usize,
    pub(super) cols: usize,
    /// Values per pixel.
    pub(super) depth: usize,
    /// Number of pixels that have values.
    pub(super) valid: usize,
    /// Side of a block in pixels.
    pub(super) side: usize,
    pub(super) blob_len: usize,
    pub(super) kind: u32,
    /// Number of blobs that follow, where the version has that field.
    pub(super) more: usize,
    pub(super) has_no_data: bool,
    pub(super) max_error: f64,
    pub(super) z_min: f64,
    pub(super) z_max: f64,
    /// Bytes of the header.
    pub(super) len: usize,
}

impl Header {
    pub(super) fn parse(blob: &[u8]) -> Result<Self, String> {
        let mut bytes = Bytes(blob);
        if bytes.take(6) != Some(MAGIC) {
            return Err("the tile does not begin with a LERC2 blob".into());
        }
        Self::fields(&mut bytes, blob.len()).ok_or_else(|| "the header of the blob is truncated or invalid".to_owned())
    }

    /// Parses the fields after the magic bytes. Returns `None` where they are truncated or contradict each other.
    fn fields(bytes: &mut Bytes<'_>, blob_len: usize) -> Option<Self> {
        let version = bytes.u32()?;
        if !(2..=6).contains(&version) {
            return None;
        }
        let checksum = if version >= 3 { bytes.u32()? } else { 0 };
        let (rows, cols) = (bytes.count()?, bytes.count()?);
        let depth = if version >= 4 { bytes.count()? } else { 1 };
        let (valid, side, len, kind) = (bytes.count()?, bytes.count()?, bytes.count()?, bytes.u32()?);
        let more = if version >= 6 { bytes.count()? } else { 0 };
        let has_no_data = if version >= 6 { bytes.take(4)?.first() != Some(&0) } else { false };
        let (max_error, z_min, z_max) = (bytes.f64()?, bytes.f64()?, bytes.f64()?);
        if version >= 6 {
            bytes.take(16)?;
        }
        let pixels = rows.checked_mul(cols).filter(|pixels| *pixels <= i32::MAX as usize)?;
        pixels.checked_mul(depth)?.checked_mul(8)?;
        let head = blob_len - bytes.0.len();
        if rows == 0 || cols == 0 || depth == 0 || side == 0 || valid > pixels || len < head {
            return None;
        }
        Some(Self {
            version,
            checksum,
            rows,
            cols,
            depth,
            valid,
            side,
            blob_len: len,
            kind,
            more,
            has_no_data,
            max_error,
            z_min,
            z_max,
            len: head,
        })
    }

    pub(super) fn pixels(&self) -> usize {
        self.rows * self.cols
    }

    /// Whether the blob reuses the mask of the previous one.
    pub(super) fn shares_mask(&self, blob: &[u8]) -> bool {
        self.valid != 0
            && self.valid != self.pixels()
            && blob.get(self.len..).and_then(|rest| rest.first_chunk()).is_none_or(|len| i32::from_le_bytes(*len) <= 0)
    }
}

/// A reader that consumes bytes from the front.
pub(super) struct Bytes<'a>(pub(super) &'a [u8]);

impl<'a> Bytes<'a> {
    #[inline(always)]
    pub(super) fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    #[inline(always)]
    pub(super) fn u8(&mut self) -> Option<u8> {
        let (byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*byte)
    }

    #[inline(always)]
    pub(super) fn u32(&mut self) -> Option<u32> {
        self.take(4)?.first_chunk().map(|word| u32::from_le_bytes(*word))
    }

    /// Reads a number that is signed in the format but never negative in a valid blob.
    pub(super) fn count(&mut self) -> Option<usize> {
        self.u32().filter(|count| *count <= i32::MAX as u32).map(|count| count as usize)
    }

    fn f64(&mut self) -> Option<f64> {
        self.take(8)?.first_chunk().map(|word| f64::from_le_bytes(*word))
    }
}
