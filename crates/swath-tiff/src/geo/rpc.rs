//! RPCCoefficientTag (50844): the rational polynomials of a satellite camera, 92 doubles.

use crate::geo::printf::g15;

/// Number of doubles: two errors, five offsets, five scales, four sets of twenty coefficients.
pub const LEN: usize = 92;

/// A rational polynomial camera model.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub struct Rpc {
    pub err_bias: f64,
    pub err_rand: f64,
    pub line_off: f64,
    pub samp_off: f64,
    pub lat_off: f64,
    pub long_off: f64,
    pub height_off: f64,
    pub line_scale: f64,
    pub samp_scale: f64,
    pub lat_scale: f64,
    pub long_scale: f64,
    pub height_scale: f64,
    pub line_num_coeff: [f64; 20],
    pub line_den_coeff: [f64; 20],
    pub samp_num_coeff: [f64; 20],
    pub samp_den_coeff: [f64; 20],
}

impl Rpc {
    /// Reads the tag; `None` where it does not have 92 values, which is GDAL's condition too.
    #[must_use]
    pub fn parse(values: &[f64]) -> Option<Self> {
        let values: &[f64; LEN] = values.try_into().ok()?;
        let (head, tail) = values.split_at(12);
        let [
            err_bias,
            err_rand,
            line_off,
            samp_off,
            lat_off,
            long_off,
            height_off,
            line_scale,
            samp_scale,
            lat_scale,
            long_scale,
            height_scale,
        ] = *<&[f64; 12]>::try_from(head).ok()?;
        let set = |n: usize| <[f64; 20]>::try_from(tail.get(20 * n..20 * (n + 1))?).ok();
        Some(Self {
            err_bias,
            err_rand,
            line_off,
            samp_off,
            lat_off,
            long_off,
            height_off,
            line_scale,
            samp_scale,
            lat_scale,
            long_scale,
            height_scale,
            line_num_coeff: set(0)?,
            line_den_coeff: set(1)?,
            samp_num_coeff: set(2)?,
            samp_den_coeff: set(3)?,
        })
    }

    /// The 92 doubles of the tag.
    #[must_use]
    pub fn to_values(&self) -> Vec<f64> {
        let head = self.scalars().map(|(_, v)| v);
        let sets = self.polynomials().map(|(_, v)| v);
        head.into_iter().chain(sets.into_iter().flatten().copied()).collect()
    }

    /// Names and values of GDAL's `RPC` metadata domain, in GDAL's order and number format.
    #[must_use]
    pub fn to_metadata(&self) -> Vec<(&'static str, String)> {
        let head = self.scalars().map(|(name, v)| (name, g15(v)));
        let sets =
            self.polynomials().map(|(name, set)| (name, set.iter().map(|&v| g15(v)).collect::<Vec<_>>().join(" ")));
        head.into_iter().chain(sets).collect()
    }

    /// Errors, offsets and scales by their names in GDAL, in the order of the tag.
    #[must_use]
    pub fn scalars(&self) -> [(&'static str, f64); 12] {
        [
            ("ERR_BIAS", self.err_bias),
            ("ERR_RAND", self.err_rand),
            ("LINE_OFF", self.line_off),
            ("SAMP_OFF", self.samp_off),
            ("LAT_OFF", self.lat_off),
            ("LONG_OFF", self.long_off),
            ("HEIGHT_OFF", self.height_off),
            ("LINE_SCALE", self.line_scale),
            ("SAMP_SCALE", self.samp_scale),
            ("LAT_SCALE", self.lat_scale),
            ("LONG_SCALE", self.long_scale),
            ("HEIGHT_SCALE", self.height_scale),
        ]
    }

    /// Coefficients of the four polynomials by their names in GDAL, in the order of the tag.
    #[must_use]
    pub fn polynomials(&self) -> [(&'static str, &[f64; 20]); 4] {
        [
            ("LINE_NUM_COEFF", &self.line_num_coeff),
            ("LINE_DEN_COEFF", &self.line_den_coeff),
            ("SAMP_NUM_COEFF", &self.samp_num_coeff),
            ("SAMP_DEN_COEFF", &self.samp_den_coeff),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_a_tag_of_the_wrong_length() {
        assert!(Rpc::parse(&[]).is_none() && Rpc::parse(&[0.0; 91]).is_none() && Rpc::parse(&[0.0; 93]).is_none());
    }

    #[test]
    fn keeps_the_order_of_the_tag() {
        let values: Vec<f64> = (0..92).map(f64::from).collect();
        let rpc = Rpc::parse(&values).unwrap();
        assert_eq!(
            (rpc.line_off, rpc.height_scale, rpc.line_den_coeff[0], rpc.samp_den_coeff[19]),
            (2.0, 11.0, 32.0, 91.0)
        );
        assert_eq!(rpc.to_values(), values);
        assert_eq!(rpc.to_metadata()[3], ("SAMP_OFF", "3".to_owned()));
    }
}
