//! Units of length and angle from their keys.

use swath_crs::Unit;

use crate::geo::{
    key_names::{self, USER_DEFINED},
    keys::GeoKeys,
};

/// The unit that a unit key (`code_key`) and its size key state; `None` where neither states a usable one.
pub(super) fn from_keys(
    keys: &GeoKeys,
    code_key: u16,
    size_key: Option<u16>,
    find: fn(u16) -> Option<Unit>,
    problems: &mut Vec<String>,
) -> Option<Unit> {
    let code = keys.short(code_key)?;
    if code != USER_DEFINED {
        let unit = find(code);
        if unit.is_none() && code != 0 {
            problems.push(format!("{}: unit {code} is unknown", key_names::key_or_number(code_key)));
        }
        return unit;
    }
    let size = size_key.and_then(|k| keys.double(k))?;
    if size.is_finite() && size > 0.0 {
        return Some(Unit { name: "unknown".to_owned(), factor: size, epsg: None });
    }
    problems.push(format!("{}: unit size {size} is not a size", key_names::key_or_number(code_key)));
    None
}
