//! Units of measure by EPSG code, with the factor to metres or radians.

use crate::wkt::Node;

/// A unit of length or angle.
#[derive(Debug, Clone, PartialEq)]
pub struct Unit {
    /// EPSG's name, for example `US survey foot`.
    pub name: String,
    /// Size in metres or radians.
    pub factor: f64,
    /// Its EPSG code, if it has one.
    pub epsg: Option<u32>,
}

/// Radians in a degree, with the digits EPSG and PROJ write.
pub const DEGREE: f64 = 0.017_453_292_519_943_3;

/// Units of length. Where EPSG gives a ratio, the factor is that ratio divided out.
const LENGTHS: &[(u16, &str, f64)] = &[
    (1024, "bin", 1.0),
    (1025, "millimetre", 0.001),
    (1033, "centimetre", 0.01),
    (9001, "metre", 1.0),
    (9002, "foot", 0.3048),
    (9003, "US survey foot", 12.0 / 39.37),
    (9004, "Modified American foot", 12.000_458_4 / 39.37),
    (9005, "Clarke's foot", 0.304_797_265_4),
    (9006, "Indian foot", 12.0 / 39.370_142),
    (9007, "link", 0.201_168),
    (9008, "Benoit link", 7.92 / 39.370_113),
    (9009, "Sears link", 7.92 / 39.370_147),
    (9010, "Benoit chain", 792.0 / 39.370_113),
    (9011, "Sears chain", 792.0 / 39.370_147),
    (9012, "Sears yard", 36.0 / 39.370_147),
    (9013, "Indian yard", 36.0 / 39.370_142),
    (9014, "fathom", 1.8288),
    (9015, "nautical mile", 1852.0),
    (9030, "nautical mile", 1852.0),
    (9031, "German legal metre", 1.000_013_596_5),
    (9033, "US survey chain", 792.0 / 39.37),
    (9034, "US survey link", 7.92 / 39.37),
    (9035, "US survey mile", 63_360.0 / 39.37),
    (9036, "kilometre", 1000.0),
    (9037, "Clarke's yard", 3.0 * 0.304_797_265_4),
    (9038, "Clarke's chain", 66.0 * 0.304_797_265_4),
    (9039, "Clarke's link", 0.66 * 0.304_797_265_4),
    (9040, "British yard (Sears 1922)", 36.0 / 39.370_147),
    (9041, "British foot (Sears 1922)", 12.0 / 39.370_147),
    (9042, "British chain (Sears 1922)", 792.0 / 39.370_147),
    (9043, "British link (Sears 1922)", 7.92 / 39.370_147),
    (9050, "British yard (Benoit 1895 A)", 0.914_399_2),
    (9051, "British foot (Benoit 1895 A)", 0.914_399_2 / 3.0),
    (9052, "British chain (Benoit 1895 A)", 20.116_782_4),
    (9053, "British link (Benoit 1895 A)", 0.201_167_824),
    (9060, "British yard (Benoit 1895 B)", 36.0 / 39.370_113),
    (9061, "British foot (Benoit 1895 B)", 12.0 / 39.370_113),
    (9062, "British chain (Benoit 1895 B)", 792.0 / 39.370_113),
    (9063, "British link (Benoit 1895 B)", 7.92 / 39.370_113),
    (9070, "British foot (1865)", 0.914_401_8 / 3.0),
    (9080, "Indian foot", 12.0 / 39.370_142),
    (9081, "Indian foot (1937)", 0.304_798_41),
    (9082, "Indian foot (1962)", 0.304_799_6),
    (9083, "Indian foot (1975)", 0.304_799_5),
    (9084, "Indian yard", 36.0 / 39.370_142),
    (9085, "Indian yard (1937)", 0.914_395_23),
    (9086, "Indian yard (1962)", 0.914_398_8),
    (9087, "Indian yard (1975)", 0.914_398_5),
    (9093, "Statute mile", 1609.344),
    (9094, "Gold Coast foot", 6_378_300.0 / 20_926_201.0),
    (9095, "British foot (1936)", 0.304_800_749_1),
    (9096, "yard", 0.9144),
    (9097, "chain", 20.1168),
    (9098, "link", 0.201_168),
    (9099, "British yard (Sears 1922 truncated)", 0.914_398),
    (9300, "British foot (Sears 1922 truncated)", 0.914_398 / 3.0),
    (9301, "British chain (Sears 1922 truncated)", 20.116_756),
    (9302, "British link (Sears 1922 truncated)", 0.201_167_56),
];

/// Units of angle. 9107, 9108, 9110 and 9111 are formats of degrees, not units. Like GDAL we read them as degrees, since no
/// GeoTIFF writer packs sexagesimal digits into a GeoKey.
const ANGLES: &[(u16, &str, f64)] = &[
    (9101, "radian", 1.0),
    (9102, "degree", DEGREE),
    (9103, "arc-minute", std::f64::consts::PI / 10_800.0),
    (9104, "arc-second", std::f64::consts::PI / 648_000.0),
    (9105, "grad", 0.015_707_963_267_949),
    (9106, "gon", 0.015_707_963_267_949),
    (9107, "degree", DEGREE),
    (9108, "degree", DEGREE),
    (9109, "microradian", 1e-6),
    (9110, "degree", DEGREE),
    (9111, "degree", DEGREE),
    (9112, "centesimal minute", std::f64::consts::PI / 20_000.0),
    (9113, "centesimal second", std::f64::consts::PI / 2_000_000.0),
    (9114, "mil_6400", std::f64::consts::PI / 3200.0),
    (9122, "degree (supplier to define representation)", DEGREE),
];

fn find(table: &[(u16, &str, f64)], code: u16) -> Option<Unit> {
    let (code, name, factor) = *table.get(table.binary_search_by_key(&code, |u| u.0).ok()?)?;
    Some(Unit { name: name.to_owned(), factor, epsg: Some(u32::from(code)) })
}

/// The unit of length with this EPSG code.
#[must_use]
pub fn length(code: u16) -> Option<Unit> {
    find(LENGTHS, code)
}

/// The unit of angle with this EPSG code.
#[must_use]
pub fn angle(code: u16) -> Option<Unit> {
    find(ANGLES, code)
}

/// The code to write for a unit of length: its own code if the sizes agree, else that of a unit with the same size and name,
/// else that of a unit with the same size. Old and new codes of one size differ only in name; the new ones are last in the
/// table.
#[must_use]
pub fn length_code(unit: &Unit) -> Option<u16> {
    code(LENGTHS, unit)
}

/// The code to write for a unit of angle. In a GeoKey, EPSG's formats of degrees are all written as degrees.
#[must_use]
pub fn angle_code(unit: &Unit) -> Option<u16> {
    if unit.same_size(&Unit::degree()) { Some(9102) } else { code(ANGLES, unit) }
}

/// Codes that are never written: those of the GeoTIFF standard that EPSG has retired, so that GDAL does not know them, and the
/// bin of seismic surveys.
const NEVER_WRITTEN: &[u16] = &[1024, 9006, 9007, 9008, 9009, 9010, 9011, 9012, 9013, 9015];

fn code(table: &[(u16, &str, f64)], unit: &Unit) -> Option<u16> {
    // Tighter than `same_size`: WKT gives fifteen digits, and a unit that is only nearly as long would move the image.
    let same = |u: &&(u16, &str, f64)| ((u.2 - unit.factor) / u.2).abs() < 1e-10 && !NEVER_WRITTEN.contains(&u.0);
    let own = table.iter().filter(same).find(|u| unit.epsg == Some(u32::from(u.0)));
    let named = || table.iter().filter(same).find(|u| u.1.eq_ignore_ascii_case(&unit.name));
    // The common units come first, since others share their size.
    let plain = || table.iter().filter(same).find(|u| matches!(u.0, 9001..=9003 | 9101 | 9105));
    own.or_else(named).or_else(plain).or_else(|| table.iter().rfind(same)).map(|u| u.0)
}

impl Unit {
    /// The metre.
    #[must_use]
    pub fn metre() -> Self {
        Self { name: "metre".to_owned(), factor: 1.0, epsg: Some(9001) }
    }

    /// The degree.
    #[must_use]
    pub fn degree() -> Self {
        Self { name: "degree".to_owned(), factor: DEGREE, epsg: Some(9102) }
    }

    /// Reads `LENGTHUNIT[…]`, `ANGLEUNIT[…]` or WKT1's `UNIT[…]`.
    #[must_use]
    pub fn from_wkt(node: &Node) -> Option<Self> {
        Some(Self { name: node.name()?.to_owned(), factor: node.nth_number(0)?, epsg: node.epsg() })
    }

    fn wkt(&self, keyword: &str) -> Node {
        let node = Node::named(keyword, &self.name).number(self.factor);
        match self.epsg {
            Some(code) => node.with_epsg(code),
            None => node,
        }
    }

    /// `LENGTHUNIT[…]`.
    #[must_use]
    pub fn wkt_length(&self) -> Node {
        self.wkt("LENGTHUNIT")
    }

    /// `ANGLEUNIT[…]`.
    #[must_use]
    pub fn wkt_angle(&self) -> Node {
        self.wkt("ANGLEUNIT")
    }

    /// Whether both have the same size, whatever their names. The tolerance separates the two American feet (2 parts in a million).
    #[must_use]
    pub fn same_size(&self, other: &Self) -> bool {
        ((self.factor - other.factor) / other.factor).abs() < 1e-8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_sorted_or_binary_search_would_miss() {
        for table in [LENGTHS, ANGLES] {
            assert!(table.windows(2).all(|w| w[0].0 < w[1].0));
        }
    }

    #[test]
    fn distinguishes_the_two_american_feet() {
        let (a, b) = (length(9002).unwrap(), length(9003).unwrap());
        assert!(!a.same_size(&b));
        assert!(length(9006).unwrap().same_size(&length(9080).unwrap()));
    }
}
