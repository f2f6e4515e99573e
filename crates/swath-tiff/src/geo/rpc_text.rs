//! Reads camera models from text: the `.rpb` files of DigitalGlobe, the `_rpc.txt` files of GeoEye and others, and the items of
//! GDAL's `RPC` metadata domain.

use std::collections::BTreeMap;

use crate::geo::rpc::Rpc;

/// Longest text that is read. Real ones have 3 kB.
pub const MAX_LEN: usize = 64 << 10;

/// The tag's value for an unknown error.
const UNKNOWN: f64 = -1.0;

/// Names in a `.rpb` file, and GDAL's names for the same values.
const RPB_NAMES: [(&str, &str); 16] = [
    ("errBias", "ERR_BIAS"),
    ("errRand", "ERR_RAND"),
    ("lineOffset", "LINE_OFF"),
    ("sampOffset", "SAMP_OFF"),
    ("latOffset", "LAT_OFF"),
    ("longOffset", "LONG_OFF"),
    ("heightOffset", "HEIGHT_OFF"),
    ("lineScale", "LINE_SCALE"),
    ("sampScale", "SAMP_SCALE"),
    ("latScale", "LAT_SCALE"),
    ("longScale", "LONG_SCALE"),
    ("heightScale", "HEIGHT_SCALE"),
    ("lineNumCoef", "LINE_NUM_COEFF"),
    ("lineDenCoef", "LINE_DEN_COEFF"),
    ("sampNumCoef", "SAMP_NUM_COEFF"),
    ("sampDenCoef", "SAMP_DEN_COEFF"),
];

impl Rpc {
    /// Reads the model by GDAL's names. A set of coefficients is twenty numbers separated by white space.
    ///
    /// # Errors
    /// When a value is missing or not a number. Only the two errors may be missing.
    pub fn from_items<'a>(item: impl Fn(&str) -> Option<&'a str>) -> Result<Self, String> {
        let number = |name: &str, text: &str| -> Result<f64, String> {
            // A unit may follow: `+002295.00 pixels`.
            let word = text.split_whitespace().next().unwrap_or_default();
            let value = word.parse::<f64>().ok().filter(|value| value.is_finite());
            value.ok_or_else(|| format!("{name} is not a number"))
        };
        let one = |name: &str| -> Result<f64, String> {
            number(name, item(name).ok_or_else(|| format!("there is no {name}"))?)
        };
        let error = |name: &str| item(name).map_or(Ok(UNKNOWN), |text| number(name, text));
        let set = |name: &str| -> Result<[f64; 20], String> {
            let text = item(name).ok_or_else(|| format!("there is no {name}"))?;
            let values = text.split_whitespace().map(|word| number(name, word)).collect::<Result<Vec<_>, _>>()?;
            values.try_into().map_err(|values: Vec<_>| format!("{name} has {} terms where 20 belong", values.len()))
        };
        Ok(Self {
            err_bias: error("ERR_BIAS")?,
            err_rand: error("ERR_RAND")?,
            line_off: one("LINE_OFF")?,
            samp_off: one("SAMP_OFF")?,
            lat_off: one("LAT_OFF")?,
            long_off: one("LONG_OFF")?,
            height_off: one("HEIGHT_OFF")?,
            line_scale: one("LINE_SCALE")?,
            samp_scale: one("SAMP_SCALE")?,
            lat_scale: one("LAT_SCALE")?,
            long_scale: one("LONG_SCALE")?,
            height_scale: one("HEIGHT_SCALE")?,
            line_num_coeff: set("LINE_NUM_COEFF")?,
            line_den_coeff: set("LINE_DEN_COEFF")?,
            samp_num_coeff: set("SAMP_NUM_COEFF")?,
            samp_den_coeff: set("SAMP_DEN_COEFF")?,
        })
    }

    /// Reads a `.rpb` file: `name = value;` or `name = (value, …);` in the group `IMAGE`.
    ///
    /// # Errors
    /// As [`Rpc::from_items`].
    pub fn from_rpb(bytes: &[u8]) -> Result<Self, String> {
        let text = text(bytes)?;
        let group = |word: &str| text.find(&format!("{word}_GROUP = IMAGE")).ok_or("there is no group IMAGE");
        let (start, end) = (group("BEGIN")?, group("END")?);
        let inside = text.get(start..end).unwrap_or_default();
        // The opening line of the group ends with a line break, every statement after it with a semicolon.
        let inside = inside.split_once('\n').map_or("", |(_, statements)| statements);
        let mut items = BTreeMap::new();
        for statement in inside.split(';') {
            let Some((name, value)) = statement.split_once('=') else { continue };
            let known = RPB_NAMES.iter().find(|(own, _)| *own == name.trim());
            if let Some((_, name)) = known {
                items.insert(*name, value.replace(['(', ')', ','], " "));
            }
        }
        Self::from_items(|name| items.get(name).map(String::as_str))
    }

    /// Reads a `_rpc.txt` file: `NAME: value` on each line, coefficients numbered from 1.
    ///
    /// # Errors
    /// As [`Rpc::from_items`].
    pub fn from_lines(bytes: &[u8]) -> Result<Self, String> {
        let text = text(bytes)?;
        let lines: BTreeMap<&str, &str> = text
            .lines()
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.trim(), value.trim()))
            .collect();
        let sets: BTreeMap<String, String> = ["LINE_NUM_COEFF", "LINE_DEN_COEFF", "SAMP_NUM_COEFF", "SAMP_DEN_COEFF"]
            .into_iter()
            .map(|name| {
                let terms = (1..=20).filter_map(|number| lines.get(format!("{name}_{number}").as_str()).copied());
                (name.to_owned(), terms.collect::<Vec<_>>().join(" "))
            })
            .collect();
        Self::from_items(|name| sets.get(name).map(String::as_str).or_else(|| lines.get(name).copied()))
    }
}

fn text(bytes: &[u8]) -> Result<std::borrow::Cow<'_, str>, String> {
    match bytes.len() {
        len if len > MAX_LEN => Err(format!("{len} bytes are too many for a camera model")),
        _ => Ok(String::from_utf8_lossy(bytes)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model() -> Rpc {
        let values: Vec<f64> = (0..92).map(|n| f64::from(n) * 0.25 - 3.0).collect();
        Rpc::parse(&values).unwrap()
    }

    fn rpb(line_end: &str) -> String {
        let mut text = format!("satId = \"X\";{line_end}BEGIN_GROUP = IMAGE{line_end}");
        for (own, name) in RPB_NAMES {
            let value = model().to_metadata().into_iter().find(|(known, _)| *known == name).unwrap().1;
            let value = if value.contains(' ') { format!("({line_end}{})", value.replace(' ', ",")) } else { value };
            text += &format!("\t{own} = {value};{line_end}");
        }
        text + "END_GROUP = IMAGE" + line_end + "END;" + line_end
    }

    fn lines() -> String {
        let mut text = String::new();
        for (name, value) in model().to_metadata() {
            match value.contains(' ') {
                false => text += &format!("{name}: {value} pixels\r\n"),
                true => value.split(' ').zip(1..).for_each(|(v, n)| text += &format!("{name}_{n}: {v}\n")),
            }
        }
        text
    }

    #[test]
    fn every_form_gives_the_same_model() {
        assert_eq!(Rpc::from_rpb(rpb("\n").as_bytes()), Ok(model()));
        assert_eq!(Rpc::from_rpb(rpb("\r\n").as_bytes()), Ok(model()));
        assert_eq!(Rpc::from_lines(lines().as_bytes()), Ok(model()));
    }

    #[test]
    fn errors_may_be_missing_and_nothing_else() {
        let without = |name: &str| rpb("\n").lines().filter(|l| !l.contains(name)).collect::<Vec<_>>().join("\n");
        assert_eq!(Rpc::from_rpb(without("errBias").as_bytes()).unwrap().err_bias, -1.0);
        assert_eq!(Rpc::from_rpb(without("lineOffset").as_bytes()), Err("there is no LINE_OFF".to_owned()));
        assert_eq!(Rpc::from_rpb(b"junk"), Err("there is no group IMAGE".to_owned()));
        let short = lines().replace("SAMP_DEN_COEFF_7:", "X:");
        assert_eq!(Rpc::from_lines(short.as_bytes()), Err("SAMP_DEN_COEFF has 19 terms where 20 belong".to_owned()));
        assert!(Rpc::from_lines(lines().replace("LAT_OFF: ", "LAT_OFF: nan").as_bytes()).is_err());
        assert!(Rpc::from_rpb(&vec![b' '; MAX_LEN + 1]).is_err());
    }

    #[test]
    fn every_truncation_is_read_without_panic() {
        let (rpb, lines) = (rpb("\n"), lines());
        (0..rpb.len()).for_each(|len| assert!(Rpc::from_rpb(&rpb.as_bytes()[..len.min(rpb.len() - 30)]).is_err()));
        (0..lines.len()).for_each(|len| drop(Rpc::from_lines(&lines.as_bytes()[..len])));
    }
}
