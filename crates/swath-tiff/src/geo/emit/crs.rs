//! Writes a reference system as GeoKeys.

use swath_crs::{
    Crs, Unit,
    codes::{
        code_in_2d, datum_code, ellipsoid_code, geographic_code_by_datum, meridian_code, projected_code_by_name,
        same_geographic, same_projected, take_codes_of_compound, verified_code, vertical_datum_code, web_mercator_code,
    },
    description::{self, Geographic, Projected, System, Vertical},
    esri,
    unit::{angle_code, length_code},
    wkt::Node,
};

use crate::geo::{
    crs::ESRI_MARK,
    emit::{key_set::KeySet, method::method_keys},
    key_names::USER_DEFINED,
};

/// Adds the keys of `crs` to `set` and returns the minor key revision, which is 1 for the vertical keys of GeoTIFF 1.1.
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
    let mut system = description::read(&node);
    // The code may be known although the text lacks it, as with WKT1 side files.
    if crs.horizontal.is_none()
        && let (Some(system), Some(code)) = (&mut system, crs.epsg)
    {
        match system {
            System::Projected(p) if p.epsg.is_none() => p.epsg = Some(code),
            System::Geographic(g) | System::Geocentric(g, _) if g.epsg.is_none() => g.epsg = Some(code),
            _ => {}
        }
    }
    if let (Some(System::Compound(_, horizontal, height)), Some(code)) = (&mut system, node.epsg_in_any_wkt()) {
        take_codes_of_compound(code, horizontal, height);
    }
    let revision = match &system {
        Some(System::Geographic(g)) => writer.geographic(g),
        Some(System::Projected(p)) => writer.projected(p, None),
        Some(System::Geocentric(g, unit)) => writer.geocentric(g, unit),
        Some(System::Compound(name, horizontal, height)) => writer.compound(name, horizontal, height),
        Some(System::Local(name, unit)) => {
            // Like GDAL, write no model type: none of the three applies.
            writer.set.ascii(1026, name);
            writer.length(unit);
            Some(0)
        }
        Some(System::Vertical(_) | System::Other) | None => None,
    };
    revision.unwrap_or_else(|| writer.as_text(&node, system.as_ref()))
}

struct Writer<'a> {
    set: &'a mut KeySet,
    problems: &'a mut Vec<String>,
}

impl Writer<'_> {
    /// Writes the definition as text, for systems that keys cannot express.
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
        let text = esri::wkt::definition(node, system, datum);
        self.set.ascii(3073, &format!("{ESRI_MARK}{text}"));
        self.problems.push(
            "GeoKeys cannot express the reference system; its definition is written as text, which GDAL reads and other \
             software may not"
                .to_owned(),
        );
        // In a file of revision 1.0, GDAL drops the vertical part of a compound system.
        u16::from(matches!(system, Some(System::Compound(..) | System::Other) | None))
    }

    fn geographic(&mut self, g: &Geographic) -> Option<u16> {
        if g.has_height {
            let flat = Geographic { has_height: false, epsg: code_in_2d(g), ..g.clone() };
            let height_code = verified_code(g.epsg, |s| matches!(s, System::Geographic(k) if same_geographic(k, g)));
            // 5030 is GeoTIFF 1.0's code for heights above WGS 84's ellipsoid, so WGS 84 needs no three-dimensional code.
            let height_code = height_code.or_else(|| (datum_code(g) == Some(6326)).then_some(5030))?;
            if flat.epsg.is_none() && height_code != 5030 {
                // Write its own code as the geographic system. Readers of GeoTIFF 1.0 may not know it, but no other key can hold it.
                self.set.short(1024, 2);
                self.set.short(2048, height_code);
                self.set.ascii(2049, &g.name);
                self.angle(&g.angle);
                return Some(1);
            }
            self.geographic(&flat)?;
            self.set.short(4096, height_code);
            return Some(1);
        }
        self.set.short(1024, 2);
        self.base(g);
        Some(0)
    }

    /// Writes keys 2048 to 2062.
    fn base(&mut self, g: &Geographic) {
        let code = verified_code(g.epsg, |s| matches!(s, System::Geographic(k) if same_geographic(k, g)));
        match code.or_else(|| geographic_code_by_datum(g)) {
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
                        if m.unit.same_size(&g.angle) {
                            m.longitude
                        } else {
                            m.longitude * m.unit.factor / g.angle.factor
                        },
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
        match angle_code(unit) {
            Some(code) => self.set.short(2054, code),
            None => {
                self.set.short(2054, USER_DEFINED);
                self.set.double(2055, unit.factor);
            }
        }
    }

    fn length(&mut self, unit: &Unit) {
        match length_code(unit) {
            Some(code) => self.set.short(3076, code),
            None => {
                self.set.short(3076, USER_DEFINED);
                self.set.double(3077, unit.factor);
            }
        }
    }

    /// `title` is the name of the enclosing compound system.
    fn projected(&mut self, p: &Projected, title: Option<&str>) -> Option<u16> {
        if p.has_height {
            return self.projected_with_height(p);
        }
        let code = verified_code(p.epsg, |s| matches!(s, System::Projected(k) if same_projected(k, p)))
            .or_else(|| web_mercator_code(p));
        if let Some(code) = code {
            self.set.short(1024, 1);
            self.set.ascii(1026, title.unwrap_or(&p.name));
            self.set.short(3072, code);
            self.set.ascii(2049, &p.base.name);
            self.angle(&p.base.angle);
            self.length(&p.unit);
            return Some(0);
        }
        let keys = method_keys(&p.projection)?;
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
            // A key of GDAL's own, which says that the false easting is in the unit of the axes. Without it GDAL may assume metres.
            self.set.short(3059, 1);
            if length_code(&p.unit).is_none() {
                self.set.ascii(
                    3073,
                    &format!("PCS Name = {}|LUnits = {}|", field(title.unwrap_or(&p.name)), field(&p.unit.name)),
                );
            }
        }
        Some(0)
    }

    /// Writes a projected system with heights above the ellipsoid: the vertical key holds the code of the three-dimensional
    /// geographic system. GDAL reads that only beside the code of a projected system.
    fn projected_with_height(&mut self, p: &Projected) -> Option<u16> {
        let with_height = Geographic { has_height: true, ..p.base.clone() };
        let height =
            verified_code(p.base.epsg, |s| matches!(s, System::Geographic(k) if same_geographic(k, &with_height)))?;
        let base = Geographic { has_height: false, epsg: code_in_2d(&with_height), ..p.base.clone() };
        let flat = Projected { has_height: false, base, ..p.clone() };
        let epsg = flat.epsg.or_else(|| projected_code_by_name(&flat));
        verified_code(epsg, |s| matches!(s, System::Projected(k) if same_projected(k, &flat)))?;
        self.projected(&Projected { epsg, ..flat }, None)?;
        self.set.short(4096, height);
        Some(1)
    }

    fn geocentric(&mut self, g: &Geographic, unit: &Unit) -> Option<u16> {
        let same = |s: &System| matches!(s, System::Geocentric(k, u) if same_geographic(k, g) && u.same_size(unit));
        self.set.short(1024, 3);
        self.user_geographic(g);
        self.set.ascii(1026, &g.name);
        if let Some(code) = verified_code(g.epsg, same) {
            self.set.short(2048, code);
        }
        match length_code(unit) {
            Some(code) => self.set.short(2052, code),
            None => {
                self.set.short(2052, USER_DEFINED);
                self.set.double(2053, unit.factor);
            }
        }
        Some(0)
    }

    fn compound(&mut self, name: &str, horizontal: &System, height: &Vertical) -> Option<u16> {
        let code = verified_code(
            height.epsg,
            |s| matches!(s, System::Vertical(k) if k.points_up == height.points_up && k.unit.same_size(&height.unit)),
        );
        let unit = length_code(&height.unit);
        // No key can hold a depth without a code, or heights in a unit without a code.
        if code.is_none() && (unit.is_none() || !height.points_up) {
            return None;
        }
        match horizontal {
            System::Projected(p) if !p.has_height => self.projected(p, Some(name))?,
            System::Geographic(g) if !g.has_height => self.geographic(g)?,
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

/// A name as one field of a citation. Fields end in `|` or a new line.
fn field(name: &str) -> String {
    name.replace(['|', '\n'], " ")
}
