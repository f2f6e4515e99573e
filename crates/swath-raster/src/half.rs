//! Converts half floats, which have no type in stable Rust, to doubles and back.

/// The bits of NaN.
pub const NAN: u16 = 0x7e00;

/// Returns the value of half-precision bits, exactly. Branch-free, so that it vectorises.
#[inline(always)]
pub fn widen(bits: u16) -> f64 {
    let bits = u32::from(bits);
    // Shifts exponent and fraction into the fields of a single and scales, which also normalises subnormal halves.
    let size = f32::from_bits((bits & 0x7fff) << 13) * f32::from_bits(0x7780_0000);
    let special = if bits & 0x7c00 == 0x7c00 { 0x7f80_0000 } else { 0 };
    f64::from(f32::from_bits(size.to_bits() | special | (bits & 0x8000) << 16))
}

/// Returns the half nearest to a double, ties to even, with a single rounding.
#[inline]
pub fn narrow(value: f64) -> u16 {
    let bits = value.to_bits();
    let sign = (bits >> 48 & 0x8000) as u16;
    let size = value.abs();
    if value.is_nan() {
        return sign | NAN;
    }
    // Halfway between the largest half and the value after it: from here on, rounding gives infinity.
    if size >= 65520.0 {
        return sign | 0x7c00;
    }
    let exponent = ((bits >> 52 & 0x7ff) as i32 - 1023).max(-14);
    // 2^(10 - exponent), built from its bits.
    let scale = f64::from_bits(((10 - exponent + 1023) as u64) << 52);
    let units = (size * scale).round_ties_even() as u32;
    let biased = if units < 1024 { 0 } else { (exponent + 14) as u32 };
    // A fraction that rounds up to 2048 carries into the exponent by itself.
    sign | ((biased << 10) + units) as u16
}

/// Returns the half next above a nodata value, or next below it where nodata is the largest half.
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
