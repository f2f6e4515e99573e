//! Definitions of the Esri codes that users commonly type. The EPSG dataset does not have them.

use crate::{axes, epsg, unit::Unit, wkt::Node};

/// EPSG's codes and names of the parameters in `codes.txt`.
const NAMES: &[(u32, &str)] = &[
    (8801, "Latitude of natural origin"),
    (8802, "Longitude of natural origin"),
    (8805, "Scale factor at natural origin"),
    (8806, "False easting"),
    (8807, "False northing"),
    (8821, "Latitude of false origin"),
    (8822, "Longitude of false origin"),
    (8823, "Latitude of 1st standard parallel"),
    (8824, "Latitude of 2nd standard parallel"),
    (8826, "Easting at false origin"),
    (8827, "Northing at false origin"),
    (8834, "Latitude of topocentric origin"),
    (8835, "Longitude of topocentric origin"),
    (8840, "Viewpoint height"),
];

/// `PROJCRS[…]` of an Esri code; `None` for a code that `codes.txt` lacks.
#[must_use]
pub fn definition(code: u32) -> Option<Node> {
    let code = code.to_string();
    let line = include_str!("codes.txt").lines().find(|l| l.split('|').next() == Some(code.as_str()))?;
    let fields: Vec<&str> = line.split('|').collect();
    let [_, name, base, method, method_code, parameters] = *fields.as_slice() else { return None };
    let mut method = Node::named("METHOD", method);
    match method_code.parse().ok()? {
        0 => {}
        code => method = method.with_epsg(code),
    }
    let mut conversion = Node::named("CONVERSION", name).with(method);
    for parameter in parameters.split(';') {
        let (code, value) = parameter.split_once('=')?;
        let code: u32 = code.parse().ok()?;
        let unit = match code {
            8805 => Node::named("SCALEUNIT", "unity").word("1").with_epsg(9201),
            8806 | 8807 | 8826 | 8827 | 8840 => Unit::metre().wkt_length(),
            _ => Unit::degree().wkt_angle(),
        };
        let label = NAMES.iter().find(|n| n.0 == code)?.1;
        conversion = conversion.with(Node::named("PARAMETER", label).word(value).with(unit).with_epsg(code));
    }
    let directions = axes::axes_of(&conversion);
    let node = Node::named("PROJCRS", name).with(epsg::base_of(&epsg::definition(base.parse().ok()?)?));
    let node = node.with(conversion).with_all(axes::coordinate_system(directions, &Unit::metre()));
    Some(node.with(Node::named("ID", "ESRI").word(&code)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_makes_a_definition() {
        let codes: Vec<u32> =
            include_str!("codes.txt").lines().filter_map(|l| l.split('|').next()?.parse().ok()).collect();
        assert!(codes.len() > 80);
        for code in codes {
            assert!(definition(code).is_some(), "ESRI:{code}");
        }
        assert!(definition(1).is_none());
    }
}
