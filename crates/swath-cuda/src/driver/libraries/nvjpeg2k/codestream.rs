//! Reads the main header of a JPEG 2000 codestream: whether it is lossy, and whether the stream is complete.

/// Facts from the headers of a codestream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CodestreamOutline {
    /// The stream has loss: decoders may differ in the last bit.
    pub has_loss: bool,
    /// The stream is complete: after its tile parts comes the end marker.
    pub is_whole: bool,
}

impl CodestreamOutline {
    /// Walks along the markers of a codestream, bare or in a JP2 file. Every step moves forward, so the stream's length
    /// bounds the work.
    pub fn of(bytes: &[u8]) -> Self {
        const START: [u8; 4] = [0xFF, 0x4F, 0xFF, 0x51];
        let none = Self { has_loss: false, is_whole: false };
        let Some(start) = bytes.windows(START.len()).position(|window| window == START) else { return none };
        let stream = bytes.get(start..).unwrap_or_default();
        let word = |at: usize| stream.get(at..at + 2).map_or(0, |pair| u16::from_be_bytes([pair[0], pair[1]]));
        let (mut at, mut has_loss) = (2_usize, false);
        let long = |at: usize| u64::from(word(at)) << 16 | u64::from(word(at + 2));
        // SIZ: far corner of the image at 8, tile size at 24, origin of the tile grid at 32.
        let across = |axis: usize| long(8 + axis).saturating_sub(long(32 + axis)).div_ceil(long(24 + axis).max(1));
        let tiles = across(0).saturating_mul(across(4));
        loop {
            let len = usize::from(word(at + 2)).max(2);
            match word(at) {
                // SOT: bytes of the tile-part from its first byte on; 0 for the rest of the stream.
                0xFF90 => {
                    let part = long(at + 6) as usize;
                    match part {
                        _ if u64::from(word(at + 4)) >= tiles => return Self { has_loss, is_whole: false },
                        0 => return Self { has_loss, is_whole: stream.ends_with(&[0xFF, 0xD9]) },
                        1..14 => return Self { has_loss, is_whole: false },
                        _ => at = at.saturating_add(part),
                    }
                    continue;
                }
                0xFFD9 => return Self { has_loss, is_whole: true },
                // COD and COC end in the shape and style of code blocks, the transform, and precinct sizes if any.
                0xFF52 => has_loss |= stream.get(at + 13) == Some(&0),
                0xFF53 => has_loss = true,
                0xFF4F..=0xFF6F => {}
                _ => return Self { has_loss, is_whole: false },
            }
            at = at.saturating_add(2 + len);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outline_shows_loss_and_truncation() {
        let mut stream = vec![0xFF, 0x4F, 0xFF, 0x51, 0, 41, 0, 0];
        for number in [64_u32, 32, 0, 0, 64, 32, 0, 0] {
            stream.extend(number.to_be_bytes());
        }
        stream.extend([0, 1, 7, 1, 1]);
        stream.extend([0xFF, 0x52, 0, 12, 0, 0, 0, 1, 0, 5, 4, 4, 0, 1]);
        let transform = stream.len() - 1;
        stream.extend([0xFF, 0x90, 0, 10, 0, 0, 0, 0, 0, 16, 0, 1, 0xFF, 0x93, 7, 7, 0xFF, 0xD9]);
        assert_eq!(CodestreamOutline::of(&stream), CodestreamOutline { has_loss: false, is_whole: true });
        assert_eq!(CodestreamOutline::of(&[&b"boxes around it"[..], &stream].concat()), CodestreamOutline::of(&stream));
        for len in 0..stream.len() {
            assert!(!CodestreamOutline::of(&stream[..len]).is_whole, "{len}");
        }
        let mut elsewhere = stream.clone();
        elsewhere[transform + 6] = 1;
        assert!(!CodestreamOutline::of(&elsewhere).is_whole, "a part of a tile that there is not");
        stream[transform] = 0;
        assert!(CodestreamOutline::of(&stream).has_loss);
    }
}
