//! Packs samples of odd bit depths.

use swath_tiff::SampleType;

/// Packs a row of native samples into `bits` bits each, most significant first. Larger values are clamped, as in GDAL. Zero bits
/// pad the row to a whole byte.
pub fn pack_row(row: &[u8], sample: SampleType, bits: u16, out: &mut [u8]) {
    let top = (1_u64 << bits.min(63)) - 1;
    match sample {
        SampleType::U8 => pack(row.iter().map(|value| u64::from(*value).min(top)), bits, out),
        SampleType::U16 => {
            let values = row.as_chunks::<2>().0.iter().map(|raw| u64::from(u16::from_ne_bytes(*raw)).min(top));
            pack(values, bits, out);
        }
        SampleType::U32 => {
            let values = row.as_chunks::<4>().0.iter().map(|raw| u64::from(u32::from_ne_bytes(*raw)).min(top));
            pack(values, bits, out);
        }
        _ => {}
    }
}

fn pack(values: impl Iterator<Item = u64>, bits: u16, out: &mut [u8]) {
    let mut out = out.iter_mut();
    let (mut held, mut count) = (0_u64, 0);
    for value in values {
        held = held << bits | value;
        count += bits;
        while count >= 8 {
            count -= 8;
            if let Some(byte) = out.next() {
                *byte = (held >> count) as u8;
            }
        }
    }
    if count > 0
        && let Some(byte) = out.next()
    {
        *byte = (held << (8 - count)) as u8;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::post::unpack;

    #[test]
    fn packed_rows_are_unpacked_to_the_same_samples() {
        let row: Vec<u8> = (0..37_u32).map(|value| (value * 91 % 251) as u8).collect();
        for bits in 1..=7_u16 {
            let kept: Vec<u8> = row.iter().map(|value| (*value).min((1 << bits) - 1)).collect();
            let mut packed = vec![0; (row.len() * usize::from(bits)).div_ceil(8)];
            pack_row(&row, SampleType::U8, bits, &mut packed);
            let mut back = vec![0; row.len()];
            unpack::unpack_u8(&packed, &mut back, bits.into());
            assert_eq!(back, kept, "{bits}");
        }
        let wide: Vec<u16> = (0..37_u32).map(|value| (value * 9_973 % 65_521) as u16).collect();
        let row: Vec<u8> = wide.iter().flat_map(|value| value.to_ne_bytes()).collect();
        for bits in 9..=15_u16 {
            let kept: Vec<u16> = wide.iter().map(|value| (*value).min((1 << bits) - 1)).collect();
            let mut packed = vec![0; (wide.len() * usize::from(bits)).div_ceil(8)];
            pack_row(&row, SampleType::U16, bits, &mut packed);
            let mut back = vec![0; wide.len()];
            unpack::unpack_u16(&packed, &mut back, bits.into());
            assert_eq!(back, kept, "{bits}");
        }
    }
}
