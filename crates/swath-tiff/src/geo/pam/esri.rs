//! ArcGIS's transformation, `<GeodataXform>`, and what GDAL derives from it.

use crate::geo::{
    number::{self, Decimal},
    pam::model::{GeodataXform, SideGcp, SideMetadata, SideSrs},
    problems::Problems,
    xml::Element,
};

/// Whether the element is `<GeodataXform>`. ArcGIS writes it with and without a namespace prefix; GDAL reads only the latter.
pub(super) fn is_xform(element: Element<'_, '_>) -> bool {
    let name = element.name();
    name.rsplit(':').next().unwrap_or(name).eq_ignore_ascii_case("GeodataXform")
}

/// Reads the element.
pub(super) fn xform(element: Element<'_, '_>, problems: &mut Problems) -> GeodataXform {
    let mut numbers = |name: &str| -> Vec<f64> {
        let Some(list) = element.child(name) else { return Vec::new() };
        let doubles = list.children().filter(|child| child.is("Double"));
        let numbers: Option<Vec<f64>> = doubles
            .map(|child| {
                child.value().and_then(|text| number::prefix(&text.unescaped, Decimal::Point)).filter(|n| n.is_finite())
            })
            .collect();
        numbers.unwrap_or_else(|| {
            problems.add(|| format!("GeodataXform/{name} holds something other than numbers"));
            Vec::new()
        })
    };
    GeodataXform {
        coeff_x: numbers("CoeffX"),
        coeff_y: numbers("CoeffY"),
        source_gcps: numbers("SourceGCPs"),
        target_gcps: numbers("TargetGCPs"),
        kind: element.attribute("xsi:type").unwrap_or_default().into_owned(),
        wkt: element.child("SpatialReference").and_then(|srs| srs.child_value("WKT")).map(|wkt| wkt.into_owned()),
        order: element.child_value("PolynomialOrder").and_then(|text| number::integer_prefix(&text)),
    }
}

/// Derives the reference system, transform and control points from ArcGIS's transformation, as GDAL does. Its reference system
/// takes precedence over PAM's; its transform and points count only where PAM gives no transform.
pub(super) fn derive_georeference(side: &mut SideMetadata) {
    let Some(esri) = &side.esri else { return };
    if let Some(wkt) = &esri.wkt {
        side.srs = Some(SideSrs { text: wkt.clone(), axis_mapping: None, coordinate_epoch: None });
    }
    if side.geo_transform.is_some() {
        return;
    }
    if !esri.source_gcps.is_empty() && esri.source_gcps.len() == esri.target_gcps.len() {
        // rows usually count upwards; in files that count downwards, some y is positive
        let upwards = esri.source_gcps.iter().skip(1).step_by(2).all(|y| *y <= 0.0);
        let pairs = esri.source_gcps.chunks_exact(2).zip(esri.target_gcps.chunks_exact(2));
        let points = pairs.filter_map(|(source, target)| match (source, target) {
            (&[pixel, line], &[x, y]) => {
                let line = if upwards { -line } else { line };
                Some(SideGcp { pixel, line, x, y, ..SideGcp::default() })
            }
            _ => None,
        });
        if esri.source_gcps.len() % 2 == 0 {
            side.gcps = points.collect();
            side.gcp_srs = side.srs.take();
        }
    } else if let (Some(1), &[x, x_column, x_row], &[y, y_column, y_row]) = (esri.order, &*esri.coeff_x, &*esri.coeff_y)
    {
        // Rows count upwards here too, from the pixel's centre.
        side.geo_transform = Some([
            x - 0.5 * x_column + 0.5 * x_row,
            x_column,
            -x_row,
            y - 0.5 * y_column + 0.5 * y_row,
            y_column,
            -y_row,
        ]);
    }
}
