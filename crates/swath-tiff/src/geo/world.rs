//! World files, and the names of a raster's side files.
//!
//! A world file has six lines: x scale, y rotation, x rotation, y scale, and x, y of the centre of the first pixel. GDAL's
//! transform starts at the corner of the pixel instead.

use crate::geo::{
    number::{self, Decimal, is_space},
    problems::shorten,
};

/// Longest world file that is read. Real ones have some hundred bytes.
pub const MAX_LEN: usize = 64 << 10;

/// Why a text is not a world file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WorldError {
    /// Too long for a world file.
    #[error("{len} bytes are too many for a world file")]
    TooLong {
        /// Its size.
        len: usize,
    },
    /// Fewer than six lines that are not blank.
    #[error("a world file has 6 numbers on 6 lines, not {found}")]
    Short {
        /// How many lines it has.
        found: usize,
    },
    /// A line that is not a number. GDAL reads such a line as 0, or `1 000` as 1, and places the image wrongly.
    #[error("line {line} of the world file is not a number: {text}")]
    NotANumber {
        /// Number of the line, from 1, not counting blank lines.
        line: usize,
        /// The line, shortened.
        text: String,
    },
    /// Pixels without width or height. GDAL refuses them too.
    #[error("the world file gives pixels no width or no height")]
    Flat,
}

/// Parses a world file into GDAL's order: x of the corner, x per column, x per row, y of the corner, y per column, y per row.
///
/// Any line end, blank lines between, a decimal comma, a word after a number (`10 m`) and more lines than six are accepted.
///
/// # Errors
///
/// See [`WorldError`].
pub fn parse(bytes: &[u8]) -> Result<[f64; 6], WorldError> {
    if bytes.len() > MAX_LEN {
        return Err(WorldError::TooLong { len: bytes.len() });
    }
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let text = String::from_utf8_lossy(bytes);
    let mut numbers = [0.0; 6];
    let mut found = 0;
    let lines = text.split(['\n', '\r']).map(|line| line.trim_matches(is_space)).filter(|line| !line.is_empty());
    for (slot, line) in numbers.iter_mut().zip(lines) {
        found += 1;
        let not_a_number = || WorldError::NotANumber { line: found, text: shorten(line) };
        let (number, rest) = number::split(line, Decimal::PointOrComma).ok_or_else(not_a_number)?;
        let word = rest.trim_start_matches(is_space);
        // `1 000`, `1.234,5` and `2;0;0` continue with a number, so that the meaning is unclear
        let more_digits = word.starts_with(|c: char| c.is_ascii_digit() || ".,;+-".contains(c));
        if !number.is_finite() || more_digits || (!rest.is_empty() && !rest.starts_with(is_space)) {
            return Err(not_a_number());
        }
        *slot = number;
    }
    if found < 6 {
        return Err(WorldError::Short { found });
    }
    let [x_per_column, y_per_column, x_per_row, y_per_row, x_center, y_center] = numbers;
    if (x_per_column == 0.0 && x_per_row == 0.0) || (y_per_row == 0.0 && y_per_column == 0.0) {
        return Err(WorldError::Flat);
    }
    Ok([
        x_center - 0.5 * x_per_column - 0.5 * x_per_row,
        x_per_column,
        x_per_row,
        y_center - 0.5 * y_per_column - 0.5 * y_per_row,
        y_per_column,
        y_per_row,
    ])
}

/// The names that a raster's side files may have, each list in the order to try.
///
/// Where a folder can be listed, [`pick`] also finds names in another case. Where it cannot (HTTP), each attempt is a request; try
/// `world` only if no other source gives a transform.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SideNames {
    /// `scene.tfw`, `scene.tifw`, `scene.wld` and upper case: the extension is replaced. GDAL prefers them in this order.
    pub world: Vec<String>,
    /// `scene.tif.aux.xml`: appended, as are the rest.
    pub aux: Vec<String>,
    /// `scene.tif.ovr`: overviews.
    pub overviews: Vec<String>,
    /// `scene.tif.msk`: the mask.
    pub mask: Vec<String>,
    /// `scene.tif.msk.ovr`: the mask's overviews.
    pub mask_overviews: Vec<String>,
}

/// The side names of a path. For a URL, pass its path without the query.
#[must_use]
pub fn side_names(path: &str) -> SideNames {
    let name_at = path.rfind(['/', '\\']).map_or(0, |slash| slash + 1);
    let dot = path.get(name_at..).and_then(|name| name.rfind('.')).map(|dot| name_at + dot);
    // a name such as `.tif` has no extension
    let (stem, extension) = match dot {
        Some(dot) if dot > name_at => (path.get(..dot).unwrap_or(path), path.get(dot + 1..).unwrap_or_default()),
        _ => (path, ""),
    };

    let mut world = Vec::new();
    let upper_first = extension.chars().any(char::is_uppercase);
    let mut endings = Vec::new();
    let mut letters = extension.chars();
    if let Some((first, last)) = letters.next().zip(letters.next_back()) {
        endings.push(format!("{first}{last}w"));
    }
    if !extension.is_empty() {
        endings.push(format!("{extension}w"));
    }
    endings.push("wld".to_owned());
    for ending in endings {
        let (lower, upper) = (ending.to_lowercase(), ending.to_uppercase());
        let pair = if upper_first { [upper, lower] } else { [lower, upper] };
        for name in pair.map(|ending| format!("{stem}.{ending}")) {
            if !world.contains(&name) {
                world.push(name);
            }
        }
    }

    let appended = |ending: &str| vec![format!("{path}.{ending}"), format!("{path}.{}", ending.to_uppercase())];
    SideNames {
        world,
        aux: appended("aux.xml"),
        overviews: appended("ovr"),
        mask: appended("msk"),
        mask_overviews: appended("msk.ovr"),
    }
}

/// The first candidate in a folder's listing: by exact spelling, else in any case.
#[must_use]
pub fn pick<'a>(candidates: &[String], listing: &[&'a str]) -> Option<&'a str> {
    let find = |same: &dyn Fn(&str, &str) -> bool| {
        candidates.iter().find_map(|candidate| listing.iter().copied().find(|name| same(candidate, name)))
    };
    find(&|candidate, name| candidate == name).or_else(|| find(&|candidate, name| candidate.eq_ignore_ascii_case(name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const WANT: [f64; 6] = [100.0, 2.0, 0.0, 200.0, 0.0, -2.0];

    #[test]
    fn reads_what_gdal_reads_with_any_line_end_blank_lines_and_more_lines() {
        for text in [
            "2\n0\n0\n-2\n101\n199\n",
            "2\r\n0\r\n0\r\n-2\r\n101\r\n199\r\n",
            "2\r0\r0\r-2\r101\r199",
            "2\n\n0\n \n0\n-2\n101\n199\n\n",
            "2\n0\n0\n-2\n101\n199\n7\nEPSG:4326\n",
            "  2 \n 0,0 \n0\n-2,\n1.01e2\n199 m\n",
            "\u{feff}2\n0\n0\n-2\n101\n199",
        ] {
            assert_eq!(parse(text.as_bytes()), Ok(WANT), "{text:?}");
        }
    }

    #[test]
    fn rotation_lines_are_in_reverse_order_of_the_transform() {
        assert_eq!(parse(b"0\n2\n-2\n0\n101\n199"), Ok([102.0, 0.0, -2.0, 198.0, 2.0, 0.0]));
        assert_eq!(parse(b"1\n0.25\n0.5\n-1\n0\n0"), Ok([-0.75, 1.0, 0.5, 0.375, 0.25, -1.0]));
    }

    #[test]
    fn decimal_comma_is_a_decimal() {
        assert_eq!(parse(b"2,5\n0\n0\n-2,5\n101,5\n199\n"), Ok([100.25, 2.5, 0.0, 200.25, 0.0, -2.5]));
    }

    #[test]
    fn line_that_gdal_would_misread_is_refused_by_its_number() {
        for (text, line) in [
            ("abc\n0\n0\n-2\n101\n199", 1),
            ("2\nabc\n0\n-2\n101\n199", 2),
            ("2\n0\n0\n-2\n1 000\n199", 5),
            ("2\n0\n0\n-2\n1.234.567,5\n199", 5),
            ("2\n0\n0\n-2\nnan\n199", 5),
            ("2\n0\n0\n-2\n101\n-inf", 6),
            ("2 0 0 -2 101 199", 1),
            ("2;0;0;-2;1;1", 1),
            ("2d0\n0\n0\n-2\n101\n199", 1),
            ("2\0\n0\n0\n-2\n101\n199", 1),
        ] {
            assert!(
                matches!(parse(text.as_bytes()), Err(WorldError::NotANumber { line: at, .. }) if at == line),
                "{text:?}"
            );
        }
    }

    #[test]
    fn short_flat_and_huge_files_are_refused() {
        assert_eq!(parse(b""), Err(WorldError::Short { found: 0 }));
        assert_eq!(parse(b"2\n0\n0\n-2\n101"), Err(WorldError::Short { found: 5 }));
        for text in ["0\n0\n0\n-2\n101\n199", "2\n0\n0\n0\n101\n199", "0\n2\n0\n-2\n101\n199"] {
            assert_eq!(parse(text.as_bytes()), Err(WorldError::Flat), "{text:?}");
        }
        assert!(matches!(parse(&vec![b'1'; MAX_LEN + 1]), Err(WorldError::TooLong { .. })));
        assert!(parse(&[0xff; 100]).is_err());
    }

    #[test]
    fn world_names_replace_the_extension_and_others_are_appended() {
        let names = side_names("a.b/scene.tif");
        assert_eq!(
            names.world,
            ["tfw", "TFW", "tifw", "TIFW", "wld", "WLD"].map(|ending| format!("a.b/scene.{ending}"))
        );
        assert_eq!(names.aux[0], "a.b/scene.tif.aux.xml");
        assert_eq!(names.overviews[0], "a.b/scene.tif.ovr");
        assert_eq!(names.mask[0], "a.b/scene.tif.msk");
        assert_eq!(names.mask_overviews[0], "a.b/scene.tif.msk.ovr");
        assert_eq!(side_names("S.TIFF").world[..4], ["S.TFW", "S.tfw", "S.TIFFW", "S.tiffw"]);
    }

    #[test]
    fn dots_in_folders_hidden_names_and_no_extension_are_not_extensions() {
        assert_eq!(side_names("a.b/scene").world, ["a.b/scene.wld", "a.b/scene.WLD"]);
        assert_eq!(side_names("d\\.tif").world, ["d\\.tif.wld", "d\\.tif.WLD"]);
        assert_eq!(side_names("").world, [".wld", ".WLD"]);
        assert_eq!(side_names("a.t").world[..2], ["a.tw", "a.TW"]);
        assert_eq!(side_names("é.日本").world[0], "é.日本w");
        assert_eq!(side_names("x.").world, ["x.wld", "x.WLD"]);
    }

    #[test]
    fn exact_name_is_preferred_and_any_case_is_found() {
        let names = side_names("s.tif");
        assert_eq!(pick(&names.world, &["s.WLD", "s.Tfw"]), Some("s.WLD"));
        assert_eq!(pick(&names.world, &["S.Tfw", "other.tfw"]), Some("S.Tfw"));
        assert_eq!(pick(&names.aux, &["s.aux.xml"]), None);
    }
}
