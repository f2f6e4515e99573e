//! Reads the model tags: an affine transform from pixel to ground, or control points.

use crate::geo::keys::GeoKeys;

/// An affine map from pixel (column, row) to ground (x, y), in GDAL's order:
/// `x = t[0] + col·t[1] + row·t[2]`, `y = t[3] + col·t[4] + row·t[5]`. Pixel (0, 0) is the outer corner of the first pixel.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GeoTransform(pub [f64; 6]);

/// A ground control point: the position of one pixel.
#[derive(Debug, Clone, PartialEq)]
pub struct Gcp {
    /// Name of the point; by default its number, from 1, as in GDAL.
    pub id: String,
    /// Column, in pixels from the outer corner of the first pixel.
    pub pixel: f64,
    /// Row.
    pub line: f64,
    /// Ground coordinate.
    pub x: f64,
    /// Ground coordinate.
    pub y: f64,
    /// Height.
    pub z: f64,
}

/// The three model tags, empty where the image lacks one.
#[derive(Debug, Clone, Copy, Default)]
pub struct ModelTags<'a> {
    /// Tag 33550.
    pub pixel_scale: &'a [f64],
    /// Tag 33922.
    pub tiepoints: &'a [f64],
    /// Tag 34264.
    pub transformation: &'a [f64],
}

/// The georeferencing that the model tags describe.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Georef {
    /// The affine map, if there is one.
    pub transform: Option<GeoTransform>,
    /// The control points; empty where there is an affine map.
    pub gcps: Vec<Gcp>,
    /// What could not be used, in sentences for the user.
    pub problems: Vec<String>,
}

impl GeoTransform {
    /// The identity, which GDAL reports for an image without a transform.
    pub const IDENTITY: Self = Self([0.0, 1.0, 0.0, 0.0, 0.0, 1.0]);

    /// `(c, a, b, f, d, e)`, as GDAL orders the terms.
    #[must_use]
    pub fn to_gdal(self) -> [f64; 6] {
        self.0
    }

    /// `(a, b, c, d, e, f)`, as rasterio and the `affine` package order them.
    #[must_use]
    pub fn to_affine(self) -> [f64; 6] {
        let [c, a, b, f, d, e] = self.0;
        [a, b, c, d, e, f]
    }

    /// From rasterio's order.
    #[must_use]
    pub fn from_affine([a, b, c, d, e, f]: [f64; 6]) -> Self {
        Self([c, a, b, f, d, e])
    }

    /// Ground position of a pixel position; (0.5, 0.5) is the centre of the first pixel.
    #[must_use]
    pub fn apply(&self, col: f64, row: f64) -> (f64, f64) {
        let [c, a, b, f, d, e] = self.0;
        (c + col * a + row * b, f + col * d + row * e)
    }

    /// The map from ground to pixel; `None` where the map is singular or a term is not finite.
    #[must_use]
    pub fn inverse(&self) -> Option<Self> {
        let [c, a, b, f, d, e] = self.0;
        let determinant = a * e - b * d;
        // The tolerance is relative to the terms, so that it suits both degrees (1e-10 per term) and kilometres.
        let size = (a * e).abs().max((b * d).abs());
        if !determinant.is_finite() || determinant.abs() <= 1e-14 * size || determinant == 0.0 {
            return None;
        }
        let (ia, ib, id, ie) = (e / determinant, -b / determinant, -d / determinant, a / determinant);
        let inverse = Self([-(c * ia + f * ib), ia, ib, -(c * id + f * ie), id, ie]);
        inverse.is_finite().then_some(inverse)
    }

    /// The bounding rectangle of an image on the ground: `(min x, min y, max x, max y)`.
    #[must_use]
    pub fn bounds(&self, width: u32, height: u32) -> (f64, f64, f64, f64) {
        let (w, h) = (f64::from(width), f64::from(height));
        let corners = [(0.0, 0.0), (w, 0.0), (w, h), (0.0, h)].map(|(col, row)| self.apply(col, row));
        let start = (f64::INFINITY, f64::INFINITY, f64::NEG_INFINITY, f64::NEG_INFINITY);
        corners.iter().fold(start, |b, &(x, y)| (b.0.min(x), b.1.min(y), b.2.max(x), b.3.max(y)))
    }

    /// Whether no term is NaN or infinite.
    #[must_use]
    pub fn is_finite(&self) -> bool {
        self.0.iter().all(|v| v.is_finite())
    }

    /// Whether rows run east-west and columns north-south.
    #[must_use]
    pub fn is_axis_aligned(&self) -> bool {
        let [_, _, b, _, d, _] = self.0;
        b == 0.0 && d == 0.0
    }

    /// Ground size of a pixel along its own edges, always positive.
    #[must_use]
    pub fn pixel_size(&self) -> (f64, f64) {
        let [_, a, b, _, d, e] = self.0;
        (a.hypot(d), b.hypot(e))
    }

    /// Converts a map of pixel centres to a map of outer corners.
    #[must_use]
    fn centre_to_corner(self) -> Self {
        let [c, a, b, f, d, e] = self.0;
        // In this order, the sums undo to the last bit those that GDAL made when it wrote the file.
        Self([c - (a * 0.5 + b * 0.5), a, b, f - (d * 0.5 + e * 0.5), d, e])
    }
}

/// Reads the model tags. `keys` says whether a pixel is an area or a point.
///
/// The order of preference is GDAL's, observed with 3.12: a pixel scale with two non-zero terms, else a matrix of 16 terms, else
/// tie points as control points. A pixel scale without a tie point starts at (0, 0); of several tie points the first is used; the
/// sign of ScaleY is ignored, since north is up in every real file with a negative one.
#[must_use]
pub fn read(tags: &ModelTags<'_>, keys: &GeoKeys) -> Georef {
    let mut georef = Georef::default();
    let point = keys.pixel_is_point();
    let mut found = None;
    match *tags.pixel_scale {
        [x, y, ..] if x != 0.0 && y != 0.0 => found = Some(scaled(x, y, tags.tiepoints, &mut georef.problems)),
        [_, _, ..] => georef.problems.push("ModelPixelScale has a zero term and is not used".to_owned()),
        [_] => georef.problems.push("ModelPixelScale has one value, not three, and is not used".to_owned()),
        [] => {}
    }
    if found.is_none() {
        match *tags.transformation {
            [a, b, _, c, d, e, _, f, _, _, _, _, _, _, _, _] => found = Some(GeoTransform([c, a, b, f, d, e])),
            [] => {}
            ref other => {
                georef.problems.push(format!("ModelTransformation has {} values, not 16, and is not used", other.len()))
            }
        }
    }
    if let Some(map) = found {
        let map = if point { map.centre_to_corner() } else { map };
        if !map.is_finite() {
            georef.problems.push("the model tags give a transform with NaN or infinite terms; not used".to_owned());
        } else if [map.0[1], map.0[2], map.0[4], map.0[5]] == [0.0; 4] {
            georef
                .problems
                .push("the model tags give a transform that maps all pixels to one point; not used".to_owned());
        } else {
            // GDAL returns such a map too; the problem explains why it cannot be inverted.
            if map.inverse().is_none() {
                georef.problems.push("the model tags give a transform that maps all pixels to one line".to_owned());
            }
            georef.transform = Some(map);
        }
        return georef;
    }
    // Where a pixel is a point, GDAL moves control points by half a pixel, like the transform.
    let half = if point { 0.5 } else { 0.0 };
    let ties = tags.tiepoints.chunks_exact(6);
    if !ties.remainder().is_empty() {
        georef.problems.push(format!("ModelTiepoint has {} values, not a multiple of 6", tags.tiepoints.len()));
    }
    for tie in ties {
        if let &[pixel, line, _, x, y, z] = tie {
            if [pixel, line, x, y, z].iter().all(|v| v.is_finite()) {
                let id = (georef.gcps.len() + 1).to_string();
                georef.gcps.push(Gcp { id, pixel: pixel + half, line: line + half, x, y, z });
            } else if georef.problems.len() < 8 {
                georef.problems.push("a tie point has NaN or infinite terms and is not used".to_owned());
            }
        }
    }
    georef
}

fn scaled(scale_x: f64, scale_y: f64, ties: &[f64], problems: &mut Vec<String>) -> GeoTransform {
    if scale_y < 0.0 {
        problems.push("ModelPixelScale has a negative ScaleY; read as positive, as GDAL does".to_owned());
    }
    let (a, e) = (scale_x, -scale_y.abs());
    match *ties {
        [pixel, line, _, x, y, _, ..] => GeoTransform([x - pixel * a, a, 0.0, y - line * e, 0.0, e]),
        _ => {
            problems.push(
                "ModelPixelScale comes without a tie point; the image is placed at (0, 0), as GDAL does".to_owned(),
            );
            GeoTransform([0.0, a, 0.0, 0.0, 0.0, e])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(raster_type: u16) -> GeoKeys {
        GeoKeys::parse(&[1, 1, 0, 1, 1025, 0, 1, raster_type], &[], &[])
    }

    fn with(scale: &[f64], ties: &[f64], matrix: &[f64], raster_type: u16) -> Georef {
        read(&ModelTags { pixel_scale: scale, tiepoints: ties, transformation: matrix }, &keys(raster_type))
    }

    const TIE: [f64; 6] = [0.0, 0.0, 0.0, 10.0, 20.0, 0.0];
    const MATRIX: [f64; 16] = [2.0, 0.5, 0.0, 10.0, 0.25, -3.0, 0.0, 20.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0];

    #[test]
    fn pixel_is_point_moves_scale_and_matrix_by_half_a_pixel() {
        assert_eq!(
            with(&[2.0, 3.0, 0.0], &TIE, &[], 1).transform,
            Some(GeoTransform([10.0, 2.0, 0.0, 20.0, 0.0, -3.0]))
        );
        assert_eq!(
            with(&[2.0, 3.0, 0.0], &TIE, &[], 2).transform,
            Some(GeoTransform([9.0, 2.0, 0.0, 21.5, 0.0, -3.0]))
        );
        assert_eq!(with(&[], &[], &MATRIX, 2).transform, Some(GeoTransform([8.75, 2.0, 0.5, 21.375, 0.25, -3.0])));
    }

    #[test]
    fn zero_scale_gives_no_transform_with_a_warning() {
        for scale in [[0.0, 3.0, 0.0], [2.0, 0.0, 0.0], [0.0; 3]] {
            let georef = with(&scale, &TIE, &[], 1);
            assert!(georef.transform.is_none() && georef.problems.len() == 1);
            assert_eq!(georef.gcps.len(), 1, "GDAL keeps the tie point as a control point");
        }
    }

    #[test]
    fn nan_and_infinite_terms_give_no_transform() {
        for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            let mut tie = TIE;
            tie[3] = bad;
            assert!(with(&[bad, 3.0, 0.0], &TIE, &[], 1).transform.is_none());
            assert!(with(&[2.0, bad, 0.0], &TIE, &[], 2).transform.is_none());
            assert!(with(&[2.0, 3.0, 0.0], &tie, &[], 1).transform.is_none());
            assert!(with(&[], &[], &[bad; 16], 1).transform.is_none());
            assert!(with(&[], &tie, &[], 1).gcps.is_empty());
        }
    }

    #[test]
    fn singular_matrix_is_reported() {
        let mut flat = MATRIX;
        (flat[0], flat[1], flat[4], flat[5]) = (1.0, 2.0, 2.0, 4.0);
        for matrix in [flat, [0.0; 16]] {
            let georef = with(&[], &[], &matrix, 1);
            assert!(!georef.problems.is_empty());
        }
    }

    #[test]
    fn matrix_of_the_wrong_length_is_not_used() {
        for len in [15, 17] {
            let georef = with(&[], &[], &vec![1.0; len], 1);
            assert!(georef.transform.is_none() && georef.problems.len() == 1);
        }
    }

    #[test]
    fn several_tie_points_are_control_points_moved_for_pixel_is_point() {
        let ties = [TIE, [4.0, 3.0, 0.0, 18.0, 11.0, 5.0]].concat();
        let georef = with(&[], &ties, &[], 2);
        assert_eq!(georef.gcps[1], Gcp { id: "2".into(), pixel: 4.5, line: 3.5, x: 18.0, y: 11.0, z: 5.0 });
        assert_eq!(with(&[2.0, 3.0], &ties, &[], 1).transform.unwrap().0[0], 10.0);
    }

    #[test]
    fn negative_scale_y_reads_as_north_up() {
        assert_eq!(with(&[2.0, -3.0, 0.0], &TIE, &[], 1).transform.unwrap().0[5], -3.0);
    }

    #[test]
    fn inverse_undoes_a_rotated_map_and_refuses_a_flat_one() {
        let map = GeoTransform([8.75, 2.0, 0.5, 21.375, 0.25, -3.0]);
        let (x, y) = map.apply(7.0, 11.0);
        let (col, row) = map.inverse().unwrap().apply(x, y);
        assert!((col - 7.0).abs() < 1e-12 && (row - 11.0).abs() < 1e-12);
        assert!(GeoTransform([0.0, 1.0, 2.0, 0.0, 2.0, 4.0]).inverse().is_none());
    }

    #[test]
    fn bounds_of_a_rotated_image_hold_all_corners() {
        let map = GeoTransform::from_affine([0.0, 1.0, 10.0, 1.0, 0.0, 20.0]);
        assert_eq!(map.bounds(3, 5), (10.0, 20.0, 15.0, 23.0));
        assert_eq!(map.to_affine(), [0.0, 1.0, 10.0, 1.0, 0.0, 20.0]);
    }
}
