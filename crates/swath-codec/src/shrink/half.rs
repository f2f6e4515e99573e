//! Half floats, which have no type in stable Rust: to doubles and back, without branches on the way in.

/// The bits of NaN.
pub const NAN: u16 = 0x7e00;

/// The value of half-precision bits; exact.
#[inline(always)]
pub fn widen(bits: u16) -> f64 {
    let bits = u32::from(bits);
    // Moved to the exponent field of a single and scaled, which normalises small numbers too.
    let size = f32::from_bits((bits & 0x7fff) << 13) * f32::from_bits(0x7780_0000);
    let special = if bits & 0x7c00 == 0x7c00 { 0x7f80_0000 } else { 0 };
    f64::from(f32::from_bits(size.to_bits() | special | (bits & 0x8000) << 16))
}

/// The half nearest to a double, ties to even, in one rounding.
#[inline]
pub fn narrow(value: f64) -> u16 {
    let bits = value.to_bits();
    let sign = (bits >> 48 & 0x8000) as u16;
    let size = value.abs();
    if value.is_nan() {
        return sign | NAN;
    }
    // Halfway from the largest half to the next step.
    if size >= 65520.0 {
        return sign | 0x7c00;
    }
    let exponent = ((bits >> 52 & 0x7ff) as i32 - 1023).max(-14);
    // 2^(10 - exponent), by its bits.
    let scale = f64::from_bits(((10 - exponent + 1023) as u64) << 52);
    let units = (size * scale).round_ties_even() as u32;
    let biased = if units < 1024 { 0 } else { (exponent + 14) as u32 };
    // A fraction that rounds up to 2048 carries into the exponent by itself.
    sign | ((biased << 10) + units) as u16
}

/// The half after a nodata value, or before the largest.
pub fn beside(nodata: f64) -> f64 {
    let bits = narrow(nodata);
    widen(match bits {
        0x7bff => 0x7bfe,
        0x8000 => 1,
        0x8001..=0xfc00 => bits - 1,
        0x7c00.. => bits,
        _ => bits + 1,
    })
}
