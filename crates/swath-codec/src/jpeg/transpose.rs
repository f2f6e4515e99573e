//! Transposes blocks of 8 x 8 bytes in 64-bit words, to and from the order that the transforms use.

/// Transposes the bytes of eight words: byte `j` of word `i` becomes byte `i` of word `j`.
#[inline(always)]
pub(super) fn transpose(words: &mut [u64; 8]) {
    swap::<4>(words, 0x0000_0000_FFFF_FFFF);
    swap::<2>(words, 0x0000_FFFF_0000_FFFF);
    swap::<1>(words, 0x00FF_00FF_00FF_00FF);
}

/// Exchanges the high bytes of word `i` with the low bytes of word `i + D`.
#[inline(always)]
fn swap<const D: usize>(words: &mut [u64; 8], mask: u64) {
    for i in 0..8 {
        if i & D == 0 {
            let (low, high) = (words[i], words[i + D]);
            let cross = ((low >> (8 * D)) ^ high) & mask;
            words[i + D] = high ^ cross;
            words[i] = low ^ (cross << (8 * D));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::transpose;

    #[test]
    fn rows_become_columns() {
        let mut words: [u64; 8] =
            std::array::from_fn(|i| u64::from_le_bytes(std::array::from_fn(|j| (8 * i + j) as u8)));
        transpose(&mut words);
        for (i, word) in words.iter().enumerate() {
            assert_eq!(word.to_le_bytes(), std::array::from_fn(|j| (8 * j + i) as u8));
        }
    }
}
