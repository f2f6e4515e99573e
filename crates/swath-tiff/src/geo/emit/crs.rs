//! A reference system as GeoKeys.

use super::esri;
use super::keys::KeySet;
use super::method::plain;
use super::model::{self, Geographic, Projected, System, Upright};
use crate::geo::crs::Crs;
use crate::geo::epsg;
use crate::geo::keys::USER_DEFINED;
use crate::geo::units::{self, Unit};
use crate::geo::wkt::Node;

/// Names of datums that differ between WKT1, Esri and EPSG, in plain form. All others are found by EPSG's name.
const ALIASES: &[(&str, u16)] = &[
    ("wgs1984", 6326),
    ("worldgeodeticsystem1984", 6326),
    ("northamerican1983", 6269),
    ("northamerican1927", 6267),
    ("etrs1989", 6258),
    ("europeanterrestrialreferencesystem1989", 6258),
];

/// Puts the keys of `crs` into `set`; returns the minor key revision (1 for the vertical keys of GeoTIFF 1.1).
pub(super) fn fill(set: &mut KeySet, crs: &Crs, problems: &mut Vec<String>) -> u16 {
    let Some(text) = crs.wkt2.as_deref() else {
        problems.push(format!("the reference system {:?} has no definition and is not written", crs.name));
        return 0;
    };
    let mut node = match Node::parse(text) {
        Ok(node) => node,
        Err(why) => {
            problems.push(format!("the reference system is not WKT and is not written: {why}"));
            return 0;
        }
    };
    if node.is("COORDINATEMETADATA") {
        let epoch = node.child(&["EPOCH", "COORDEPOCH"]).and_then(|e| e.nth_number(0)).filter(|e| e.is_finite());
        if let Some(epoch) = epoch {
            set.double(5120, epoch);
        }
        let inner = node.nodes().next().cloned();
        node = inner.unwrap_or(node);
    }
    let mut writer = Writer { set, problems };
    let mut system = model::read(&node);
    // WKT1 side files may have the code beside the text.
    if crs.horizontal.is_none()
        && let (Some(system), Some(code)) = (&mut system, crs.epsg)
    {
        match system {
            System::Projected(p) if p.epsg.is_none() => p.epsg = Some(code),
            System::Geographic(g) | System::Geocentric(g, _) if g.epsg.is_none() => g.epsg = Some(code),
            _ => {}
        }
    }
    let done = match &system {
        Some(System::Geographic(g)) => writer.geographic(g),
        Some(System::Projected(p)) => writer.projected(p, None),
        Some(System::Geocentric(g, unit)) => writer.geocentric(g, unit),
        Some(System::Compound(name, floor, height)) => writer.compound(name, floor, height),
        Some(System::Local(name, unit)) => {
            // Like GDAL, without a model type: none of the three is true.
            writer.set.ascii(1026, name);
            writer.length(unit);
            Some(0)
        }
        Some(System::Vertical(_) | System::Other) | None => None,
    };
    done.unwrap_or_else(|| writer.as_text(&node, system.as_ref()))
}

struct Writer<'a> {
    set: &'a mut KeySet,
    problems: &'a mut Vec<String>,
}

impl Writer<'_> {
    /// The definition as text, for what keys cannot say.
    fn as_text(&mut self, node: &Node, system: Option<&System>) -> u16 {
        self.set.short(1024, USER_DEFINED);
        let name = node.child(&["SOURCECRS"]).and_then(|s| s.nodes().next()).unwrap_or(node).name();
        self.set.ascii(1026, name.unwrap_or("unnamed"));
        let mut datum = None;
        match system {
            Some(System::Projected(p)) => {
                datum = datum_code(&p.base);
                self.user_geographic(&p.base);
                self.length(&p.unit);
            }
            Some(System::Geographic(g)) => self.user_geographic(g),
            _ => self.set.short(3076, 9001),
        }
        let text = esri::citation(node, system, datum);
        self.set.ascii(3073, &text);
        self.problems.push(
            "GeoKeys cannot express the reference system; its definition is written as text, which GDAL reads and other \
             software may not"
                .to_owned(),
        );
        // GDAL drops the vertical half of a compound system from a file of revision 1.0.
        u16::from(matches!(system, Some(System::Compound(..) | System::Other) | None))
    }

    fn geographic(&mut self, g: &Geographic) -> Option<u16> {
        if g.solid {
            let flat = Geographic { solid: false, epsg: flat_code(g), ..g.clone() };
            let upright = coded(g.epsg, |s| matches!(s, System::Geographic(k) if same_geographic(k, g)));
            // 5030 is GeoTIFF 1.0's number for heights above WGS 84's ellipsoid, the one such height that needs no code.
            let upright = upright.or_else(|| (datum_code(g) == Some(6326)).then_some(5030))?;
            if flat.epsg.is_none() && upright != 5030 {
                // Its own code as the geographic system: readers of 1.0 may not know it, but no other key says it.
                self.set.short(1024, 2);
                self.set.short(2048, upright);
                self.set.ascii(2049, &g.name);
                self.angle(&g.angle);
                return Some(1);
            }
            self.geographic(&flat)?;
            self.set.short(4096, upright);
            return Some(1);
        }
        self.set.short(1024, 2);
        self.base(g);
        Some(0)
    }

    /// Keys 2048 to 2062.
    fn base(&mut self, g: &Geographic) {
        let code = coded(g.epsg, |s| matches!(s, System::Geographic(k) if same_geographic(k, g)));
        match code.or_else(|| by_datum(g)) {
            Some(code) => {
                self.set.short(2048, code);
                self.set.ascii(2049, &g.name);
                self.angle(&g.angle);
                self.axes(g);
            }
            None => self.user_geographic(g),
        }
    }

    fn axes(&mut self, g: &Geographic) {
        self.set.double(2057, g.ellipsoid.a);
        if g.ellipsoid.inverse_flattening == 0.0 {
            self.set.double(2058, g.ellipsoid.a);
        } else {
            self.set.double(2059, g.ellipsoid.inverse_flattening);
        }
    }

    fn user_geographic(&mut self, g: &Geographic) {
        let set = &mut *self.set;
        set.short(2048, USER_DEFINED);
        let datum = datum_code(g);
        set.short(2050, datum.unwrap_or(USER_DEFINED));
        let mut citation = format!("GCS Name = {}|", field(&g.name));
        if datum.is_none() {
            citation.push_str(&format!("Datum = {}|", field(&g.datum)));
            set.short(2056, ellipsoid_code(g).unwrap_or(USER_DEFINED));
        }
        citation.push_str(&format!("Ellipsoid = {}|", field(&g.ellipsoid.name)));
        let meridian = g.meridian.as_ref().map_or("Greenwich", |m| m.name.as_str());
        citation.push_str(&format!("Primem = {}|", field(meridian)));
        match &g.meridian {
            None => set.short(2051, 8901),
            Some(m) => match meridian_code(m) {
                Some(code) => set.short(2051, code),
                None => {
                    set.short(2051, USER_DEFINED);
                    set.double(
                        2061,
                        if m.unit.same_size(&g.angle) { m.value } else { m.value * m.unit.factor / g.angle.factor },
                    );
                }
            },
        }
        if !g.angle.same_size(&Unit::degree()) {
            citation.push_str(&format!("AUnits = {}|", field(&g.angle.name)));
        }
        set.ascii(2049, &citation);
        if !g.to_wgs84.is_empty() {
            set.doubles(2062, &g.to_wgs84);
        }
        self.angle(&g.angle);
        self.axes(g);
    }

    fn angle(&mut self, unit: &Unit) {
        match units::angle_code(unit) {
            Some(code) => self.set.short(2054, code),
            None => {
                self.set.short(2054, USER_DEFINED);
                self.set.double(2055, unit.factor);
            }
        }
    }

    fn length(&mut self, unit: &Unit) {
        match units::length_code(unit) {
            Some(code) => self.set.short(3076, code),
            None => {
                self.set.short(3076, USER_DEFINED);
                self.set.double(3077, unit.factor);
            }
        }
    }

    /// `title` is the name of the compound system around it.
    fn projected(&mut self, p: &Projected, title: Option<&str>) -> Option<u16> {
        if p.solid {
            return self.solid_projected(p);
        }
        let code =
            coded(p.epsg, |s| matches!(s, System::Projected(k) if same_projected(k, p))).or_else(|| web_mercator(p));
        if let Some(code) = code {
            self.set.short(1024, 1);
            self.set.ascii(1026, title.unwrap_or(&p.name));
            self.set.short(3072, code);
            self.set.ascii(2049, &p.base.name);
            self.angle(&p.base.angle);
            self.length(&p.unit);
            return Some(0);
        }
        let keys = p.projection.keys()?;
        self.set.short(1024, 1);
        self.set.ascii(1026, title.unwrap_or(&p.name));
        self.base(&p.base);
        for id in [3072, 3074] {
            self.set.short(id, USER_DEFINED);
        }
        self.set.short(3075, keys.method);
        for (id, value) in keys.values {
            self.set.double(id, value);
        }
        self.length(&p.unit);
        if p.unit.factor != 1.0 {
            // GDAL's own key: the false easting is in the unit of the axes. Without it GDAL may take it for metres.
            self.set.short(3059, 1);
            if units::length_code(&p.unit).is_none() {
                self.set.ascii(
                    3073,
                    &format!("PCS Name = {}|LUnits = {}|", field(title.unwrap_or(&p.name)), field(&p.unit.name)),
                );
            }
        }
        Some(0)
    }

    /// Heights above the ellipsoid are said by the geographic system in three dimensions as vertical system. GDAL reads
    /// that only beside the code of a projected system.
    fn solid_projected(&mut self, p: &Projected) -> Option<u16> {
        let solid = Geographic { solid: true, ..p.base.clone() };
        let height = coded(p.base.epsg, |s| matches!(s, System::Geographic(k) if same_geographic(k, &solid)))?;
        let base = Geographic { solid: false, epsg: flat_code(&solid), ..p.base.clone() };
        let flat = Projected { solid: false, base, ..p.clone() };
        let epsg = flat.epsg.or_else(|| named_projected(&flat));
        coded(epsg, |s| matches!(s, System::Projected(k) if same_projected(k, &flat)))?;
        self.projected(&Projected { epsg, ..flat }, None)?;
        self.set.short(4096, height);
        Some(1)
    }

    fn geocentric(&mut self, g: &Geographic, unit: &Unit) -> Option<u16> {
        let same = |s: &System| matches!(s, System::Geocentric(k, u) if same_geographic(k, g) && u.same_size(unit));
        self.set.short(1024, 3);
        self.user_geographic(g);
        self.set.ascii(1026, &g.name);
        if let Some(code) = coded(g.epsg, same) {
            self.set.short(2048, code);
        }
        match units::length_code(unit) {
            Some(code) => self.set.short(2052, code),
            None => {
                self.set.short(2052, USER_DEFINED);
                self.set.double(2053, unit.factor);
            }
        }
        Some(0)
    }

    fn compound(&mut self, name: &str, floor: &System, height: &Upright) -> Option<u16> {
        let code = coded(
            height.epsg,
            |s| matches!(s, System::Vertical(k) if k.up == height.up && k.unit.same_size(&height.unit)),
        );
        let unit = units::length_code(&height.unit);
        // A depth without a code, or one in cubits: no key holds these.
        if code.is_none() && (unit.is_none() || !height.up) {
            return None;
        }
        match floor {
            System::Projected(p) if !p.solid => self.projected(p, Some(name))?,
            System::Geographic(g) if !g.solid => self.geographic(g)?,
            _ => return None,
        };
        self.set.ascii(1026, name);
        if let Some(code) = code {
            self.set.short(4096, code);
            return Some(1);
        }
        self.set.short(4096, USER_DEFINED);
        self.set.ascii(4097, &height.name);
        self.set.short(4098, vertical_datum_code(height).unwrap_or(USER_DEFINED));
        self.set.short(4099, unit?);
        Some(1)
    }
}

/// A name as one field of a citation, whose fields end in `|` and are cut at `=`.
fn field(name: &str) -> String {
    name.replace(['|', '\n'], " ")
}

/// A code that fits a key and whose definition says what this one says: text with a wrong code must not become that code.
fn coded(code: Option<u32>, same: impl Fn(&System) -> bool) -> Option<u16> {
    let short = u16::try_from(code?).ok().filter(|&c| c != 0 && c != USER_DEFINED)?;
    let known = model::read(&epsg::definition(u32::from(short))?)?;
    same(&known).then_some(short)
}

fn same_ellipsoid(a: &Geographic, b: &Geographic) -> bool {
    let (x, y) = (&a.ellipsoid, &b.ellipsoid);
    (x.a - y.a).abs() < 1e-3 && (x.inverse_flattening - y.inverse_flattening).abs() < 1e-5
}

fn degrees(g: &Geographic) -> f64 {
    g.meridian.as_ref().map_or(0.0, |m| (m.value * m.unit.factor).to_degrees())
}

fn same_datum(a: &Geographic, b: &Geographic) -> bool {
    let codes = matches!((a.datum_epsg, b.datum_epsg), (Some(x), Some(y)) if x != y);
    !codes && same_ellipsoid(a, b) && (degrees(a) - degrees(b)).abs() < 1e-7
}

fn same_geographic(a: &Geographic, b: &Geographic) -> bool {
    same_datum(a, b) && a.angle.same_size(&b.angle) && a.solid == b.solid
}

fn same_projected(a: &Projected, b: &Projected) -> bool {
    // Parameters are compared in the units of the axes, which must agree first.
    let units = a.unit.same_size(&b.unit) && a.base.angle.same_size(&b.base.angle);
    units && a.solid == b.solid && same_datum(&a.base, &b.base) && a.projection.same(&b.projection)
}

/// The datum's code: the stated one if the ellipsoid is that datum's, else the one whose name and ellipsoid are these.
fn datum_code(g: &Geographic) -> Option<u16> {
    let fits = |code: u16| {
        let known = epsg::datum(code).and_then(|n| model::geographic(&Node::new("GEOGCRS").with(n)));
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

fn vertical_datum_code(height: &Upright) -> Option<u16> {
    if let Some(code) = height.datum_epsg {
        let code = u16::try_from(code).ok()?;
        return epsg::vertical_datum(code).map(|_| code);
    }
    let name = plain(&height.datum);
    epsg::vertical_datum_named(|known| plain(known) == name)
}

fn ellipsoid_code(g: &Geographic) -> Option<u16> {
    let code = u16::try_from(g.ellipsoid.epsg?).ok()?;
    let known = epsg::ellipsoid(code)?;
    let (a, f) = (known.nth_number(0)?, known.nth_number(1)?);
    ((a - g.ellipsoid.a).abs() < 1e-3 && (f - g.ellipsoid.inverse_flattening).abs() < 1e-5).then_some(code)
}

fn meridian_code(m: &model::Meridian) -> Option<u16> {
    let longitude = m.value * m.unit.factor;
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

/// The system in two dimensions on the same datum.
fn flat_code(g: &Geographic) -> Option<u32> {
    let code = epsg::system_on_datum(datum_code(g)?)?;
    let flat = Geographic { solid: false, ..g.clone() };
    coded(Some(code), |s| matches!(s, System::Geographic(k) if same_geographic(k, &flat))).map(u32::from)
}

/// The code of the projected system that has this one's base and name.
fn named_projected(p: &Projected) -> Option<u32> {
    let mut systems = epsg::projected_on(p.base.epsg?).map(|(_, system)| system);
    systems.find(|&system| epsg::name(system).is_some_and(|name| name == p.name))
}

/// The code of a system that states none but is its datum's own. The three that GDAL takes so under any name, others only
/// where the name is EPSG's too.
fn by_datum(g: &Geographic) -> Option<u16> {
    if g.solid || !g.to_wgs84.is_empty() || g.epsg.is_some_and(|c| epsg::definition(c).is_some()) {
        return None;
    }
    let datum = datum_code(g)?;
    let code = flat_code(g)?;
    let name = epsg::name(code)?;
    (matches!(datum, 6326 | 6269 | 6267) || plain(&name) == plain(&g.name)).then(|| u16::try_from(code).ok())?
}

/// Web Mercator without its code. GeoTIFF has no number for its method, and everybody knows this one by its code.
fn web_mercator(p: &Projected) -> Option<u16> {
    let method = p.projection.epsg == Some(1024)
        || matches!(p.projection.key.as_str(), "popularvisualisationpseudomercator" | "mercatorauxiliarysphere");
    let ours = method && p.projection.parameters.all_zero() && p.unit.factor == 1.0 && !p.solid;
    (ours && datum_code(&p.base) == Some(6326) && p.base.meridian.is_none()).then_some(3857)
}
