//! The axes of a projected system, which follow from its conversion.

use crate::{unit::Unit, wkt::Node};

/// Directions of the two axes of a projected system.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Axes {
    /// Easting, northing.
    EastNorth,
    /// Westing, southing.
    WestSouth,
    /// Around the north pole; the longitude in degrees points down the page.
    NorthPole(f64),
    /// Around the south pole; the longitude in degrees points up the page.
    SouthPole(f64),
}

/// The axes that a `CONVERSION[…]` implies.
#[must_use]
pub fn axes_of(conversion: &Node) -> Axes {
    let parameter = |code: u32| {
        let node = conversion.nodes().find(|n| n.is("PARAMETER") && n.epsg() == Some(code))?;
        let unit = node.child(&["ANGLEUNIT"]).and_then(Unit::from_wkt)?;
        Some((node.nth_number(0)? * unit.factor).to_degrees())
    };
    match conversion.child(&["METHOD"]).and_then(Node::epsg) {
        Some(9808) => Axes::WestSouth,
        Some(9810 | 9829) => {
            let longitude = parameter(8802).or_else(|| parameter(8833)).unwrap_or(0.0);
            match parameter(8801).or_else(|| parameter(8832)) {
                Some(lat) if lat > 0.0 => Axes::NorthPole(longitude),
                _ => Axes::SouthPole(longitude),
            }
        }
        _ => Axes::EastNorth,
    }
}

/// `CS[Cartesian,2]`, its axes and their unit.
#[must_use]
pub fn coordinate_system(axes: Axes, length: &Unit) -> Vec<Node> {
    // Longitudes are rounded to nanodegrees: sums such as -45 + 180 are exact, but those of user-defined units are not.
    let meridian = |degrees: f64| {
        let turned = (degrees + 180.0).rem_euclid(360.0) - 180.0;
        let turned = if turned == -180.0 { 180.0 } else { (turned * 1e9).round() / 1e9 };
        Node::new("MERIDIAN").number(turned).with(Unit::degree().wkt_angle())
    };
    let axis = |name: &str, direction: &str| Node::named("AXIS", name).word(direction);
    let (first, second) = match axes {
        Axes::EastNorth => (axis("Easting (E)", "east"), axis("Northing (N)", "north")),
        Axes::WestSouth => (axis("Westing (Y)", "west"), axis("Southing (X)", "south")),
        Axes::NorthPole(l) => (
            axis("Easting (E)", "south").with(meridian(l + 90.0)),
            axis("Northing (N)", "south").with(meridian(l + 180.0)),
        ),
        Axes::SouthPole(l) => {
            (axis("Easting (E)", "north").with(meridian(l + 90.0)), axis("Northing (N)", "north").with(meridian(l)))
        }
    };
    vec![Node::new("CS").word("Cartesian").word("2"), first, second, length.wkt_length()]
}
