//! The EPSG codes of a described system and of its parts, each verified against EPSG's definition.

use crate::{
    description::{self, Geographic, PrimeMeridian, Projected, System, Vertical},
    epsg,
    method::plain,
    unit::Unit,
    wkt::Node,
};

/// Datum names, in plain form, that differ between WKT1, Esri and EPSG. All other datums are found by EPSG's name.
const ALIASES: &[(&str, u16)] = &[
    ("wgs1984", 6326),
    ("worldgeodeticsystem1984", 6326),
    ("northamerican1983", 6269),
    ("northamerican1927", 6267),
    ("etrs1989", 6258),
    ("europeanterrestrialreferencesystem1989", 6258),
];

/// The code, if EPSG's definition of it passes `same`: a text that states a wrong code must not become that code. All of
/// EPSG's codes fit 16 bits.
#[must_use]
pub fn verified_code(code: Option<u32>, same: impl Fn(&System) -> bool) -> Option<u16> {
    let short = u16::try_from(code?).ok().filter(|&c| c != 0)?;
    let known = description::read(&epsg::definition(u32::from(short))?)?;
    same(&known).then_some(short)
}

fn same_ellipsoid(a: &Geographic, b: &Geographic) -> bool {
    let (x, y) = (&a.ellipsoid, &b.ellipsoid);
    (x.a - y.a).abs() < 1e-3 && (x.inverse_flattening - y.inverse_flattening).abs() < 1e-5
}

fn meridian_degrees(g: &Geographic) -> f64 {
    g.meridian.as_ref().map_or(0.0, |m| (m.longitude * m.unit.factor).to_degrees())
}

fn same_datum(a: &Geographic, b: &Geographic) -> bool {
    let codes_differ = matches!((a.datum_epsg, b.datum_epsg), (Some(x), Some(y)) if x != y);
    !codes_differ && same_ellipsoid(a, b) && (meridian_degrees(a) - meridian_degrees(b)).abs() < 1e-7
}

/// Whether two geographic systems have the same datum, unit and number of axes, whatever their names.
#[must_use]
pub fn same_geographic(a: &Geographic, b: &Geographic) -> bool {
    same_datum(a, b) && a.angle.same_size(&b.angle) && a.has_height == b.has_height
}

/// Whether two projected systems have the same base, method, parameters, unit and number of axes, whatever their names.
#[must_use]
pub fn same_projected(a: &Projected, b: &Projected) -> bool {
    // The parameters are in these units, so the units must agree before the parameters can be compared.
    let units = a.unit.same_size(&b.unit) && a.base.angle.same_size(&b.base.angle);
    units && a.has_height == b.has_height && same_datum(&a.base, &b.base) && a.projection.same(&b.projection)
}

/// Gives parts of a compound system that state no code the ones that EPSG's compound system `code` has, where they equal
/// EPSG's parts. PROJ writes only the code of the whole into WKT2. EPSG exchanges parts in new editions, as ETRS89 for a
/// national realisation of it, so the base or the name must be equal too.
pub fn take_codes_of_compound(code: u32, horizontal: &mut System, height: &mut Vertical) {
    let known = epsg::definition(code).as_ref().and_then(description::read);
    let Some(System::Compound(_, known_horizontal, known_height)) = known else { return };
    match (horizontal, *known_horizontal) {
        (System::Projected(own), System::Projected(known))
            if own.base.epsg.is_some() && own.base.epsg == known.base.epsg && same_projected(own, &known) =>
        {
            own.epsg = own.epsg.or(known.epsg);
        }
        (System::Geographic(own), System::Geographic(known))
            if plain(&own.name) == plain(&known.name) && same_geographic(own, &known) =>
        {
            own.epsg = own.epsg.or(known.epsg);
        }
        _ => {}
    }
    if plain(&height.name) == plain(&known_height.name) {
        height.epsg = height.epsg.or(known_height.epsg);
    }
}

/// The datum's code: the stated one if the ellipsoid is that datum's, else the code of the datum with this name and
/// ellipsoid.
#[must_use]
pub fn datum_code(g: &Geographic) -> Option<u16> {
    let fits = |code: u16| {
        let known = epsg::datum(code).and_then(|n| description::geographic(&Node::new("GEOGCRS").with(n)));
        known.filter(|k| same_ellipsoid(k, g)).map(|_| code)
    };
    if let Some(code) = g.datum_epsg {
        return fits(u16::try_from(code).ok()?);
    }
    let name = plain(&g.datum);
    let name = if g.datum.starts_with("D_") { name.get(1..).unwrap_or_default() } else { &name };
    if let Some((_, code)) = ALIASES.iter().find(|a| a.0 == name) {
        return fits(*code);
    }
    epsg::datum_named(|known| plain(known) == name || plain(known).strip_suffix("ensemble") == Some(name))
        .and_then(fits)
}

/// The code of a vertical datum: the stated one if EPSG has it, else the one with this name.
#[must_use]
pub fn vertical_datum_code(vertical: &Vertical) -> Option<u16> {
    if let Some(code) = vertical.datum_epsg {
        let code = u16::try_from(code).ok()?;
        return epsg::vertical_datum(code).map(|_| code);
    }
    let name = plain(&vertical.datum);
    epsg::vertical_datum_named(|known| plain(known) == name)
}

/// The stated code of the ellipsoid, if it has EPSG's axes.
#[must_use]
pub fn ellipsoid_code(g: &Geographic) -> Option<u16> {
    let code = u16::try_from(g.ellipsoid.epsg?).ok()?;
    let known = epsg::ellipsoid(code)?;
    let (a, f) = (known.nth_number(0)?, known.nth_number(1)?);
    ((a - g.ellipsoid.a).abs() < 1e-3 && (f - g.ellipsoid.inverse_flattening).abs() < 1e-5).then_some(code)
}

/// The code of a prime meridian: the stated one, or the one with this name, if its longitude is EPSG's.
#[must_use]
pub fn meridian_code(m: &PrimeMeridian) -> Option<u16> {
    let longitude = m.longitude * m.unit.factor;
    let fits = |code: &u16| {
        let known = epsg::prime_meridian(u32::from(*code));
        let value =
            known.as_ref().and_then(|n| Some(n.nth_number(0)? * Unit::from_wkt(n.child(&["ANGLEUNIT"])?)?.factor));
        let named = m.epsg.is_some() || known.as_ref().and_then(Node::name).map(plain) == Some(plain(&m.name));
        named && value.is_some_and(|v| (v - longitude).abs() < 1e-9)
    };
    match m.epsg {
        Some(code) => u16::try_from(code).ok().filter(fits),
        None => (8901..=8914).find(fits),
    }
}

/// The code of the two-dimensional system on the same datum.
#[must_use]
pub fn code_in_2d(g: &Geographic) -> Option<u32> {
    let code = epsg::system_on_datum(datum_code(g)?)?;
    let flat = Geographic { has_height: false, ..g.clone() };
    verified_code(Some(code), |s| matches!(s, System::Geographic(k) if same_geographic(k, &flat))).map(u32::from)
}

/// The code of the projected system with the same base and name.
#[must_use]
pub fn projected_code_by_name(p: &Projected) -> Option<u32> {
    let mut systems = epsg::projected_on(p.base.epsg?).map(|(_, system)| system);
    systems.find(|&system| epsg::name(system).is_some_and(|name| name == p.name))
}

/// The code of a system that states no known code but equals EPSG's system on its datum. Three datums are accepted under
/// any name of the system, as in GDAL; the others only where the name is EPSG's too.
#[must_use]
pub fn geographic_code_by_datum(g: &Geographic) -> Option<u16> {
    if g.has_height || !g.to_wgs84.is_empty() || g.epsg.is_some_and(|c| epsg::definition(c).is_some()) {
        return None;
    }
    let datum = datum_code(g)?;
    let code = code_in_2d(g)?;
    let name = epsg::name(code)?;
    (matches!(datum, 6326 | 6269 | 6267) || plain(&name) == plain(&g.name)).then(|| u16::try_from(code).ok())?
}

/// EPSG:3857 for a definition of Web Mercator that does not state it.
#[must_use]
pub fn web_mercator_code(p: &Projected) -> Option<u16> {
    let method = p.projection.epsg == Some(1024)
        || matches!(p.projection.key.as_str(), "popularvisualisationpseudomercator" | "mercatorauxiliarysphere");
    let equal = method && p.projection.parameters.all_default() && p.unit.factor == 1.0 && !p.has_height;
    (equal && datum_code(&p.base) == Some(6326) && p.base.meridian.is_none()).then_some(3857)
}
