//! Parses numbers in arguments.

use anyhow::{Context, Result, bail};

/// Returns exactly `N` numbers that are separated by commas.
pub fn exactly<const N: usize>(text: &str, what: &str) -> Result<[u32; N]> {
    let list = list(text, what)?;
    <[u32; N]>::try_from(list)
        .map_err(|list: Vec<u32>| anyhow::anyhow!("{what} takes {N} numbers, not {}: {text}", list.len()))
}

/// Returns numbers that are separated by commas.
pub fn list(text: &str, what: &str) -> Result<Vec<u32>> {
    text.split(',')
        .map(|part| part.trim().parse().with_context(|| format!("{what}: {part:?} is not a whole number")))
        .collect()
}

/// Returns a number of bytes, as in 1000000, 256M or 2G.
pub fn bytes(text: &str, what: &str) -> Result<usize> {
    let wrong = || format!("{what}: {text:?} is not a number of bytes, as in 256M");
    let trimmed = text.trim().trim_end_matches(['b', 'B']).trim_end_matches(['i', 'I']);
    let (digits, shift) = match trimmed.char_indices().next_back().with_context(wrong)? {
        (at, 'k' | 'K') => (&trimmed[..at], 10),
        (at, 'm' | 'M') => (&trimmed[..at], 20),
        (at, 'g' | 'G') => (&trimmed[..at], 30),
        _ => (trimmed, 0),
    };
    let number: f64 = digits.trim().parse().with_context(wrong)?;
    let bytes = number * f64::from(1_u32 << shift);
    if !(bytes.is_finite() && bytes >= 0.0) {
        bail!(wrong());
    }
    Ok(bytes as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_their_units() {
        for (text, value) in [("256M", 256 << 20), ("2GiB", 2 << 30), ("1.5k", 1536), ("77", 77), ("1 MB", 1 << 20)] {
            assert_eq!(bytes(text, "--max-memory").ok(), Some(value), "{text}");
        }
        for wrong in ["", "M", "-1", "x", "nan"] {
            assert!(bytes(wrong, "--max-memory").is_err(), "{wrong}");
        }
    }
}
