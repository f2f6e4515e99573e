//! Writes a transform or control points as model tags, from which a reader gets the same ones back.

use crate::geo::{
    emit::tags::GeoTags,
    transform::{Gcp, GeoTransform},
};

/// Fills the model tags. A transform takes precedence over control points: readers look at the pixel scale first, and the tie
/// point tag cannot hold both.
pub(super) fn fill(tags: &mut GeoTags, transform: Option<&GeoTransform>, gcps: &[Gcp], pixel_is_point: bool) {
    match transform {
        Some(map) if !map.is_finite() => {
            tags.problems.push("the transform has NaN or infinite terms and is not written".to_owned());
        }
        Some(map) => {
            if !gcps.is_empty() {
                tags.problems
                    .push("a transform and control points cannot both be written; the points are left out".into());
            }
            affine(tags, map, pixel_is_point);
            return;
        }
        None => {}
    }
    // GDAL adds half a pixel to tie points when it reads a file whose pixels are points. (Its own writer adds another half, so
    // that points move by a pixel with each copy.) Subtract that half here, so that the reader's sum is right.
    let half = if pixel_is_point { 0.5 } else { 0.0 };
    for gcp in gcps {
        let tie = [gcp.pixel - half, gcp.line - half, 0.0, gcp.x, gcp.y, gcp.z];
        if tie.iter().all(|v| v.is_finite()) {
            tags.tiepoints.extend_from_slice(&tie);
        } else {
            tags.problems.push(format!("control point {} has NaN or infinite terms and is left out", gcp.id));
        }
    }
}

fn affine(tags: &mut GeoTags, map: &GeoTransform, pixel_is_point: bool) {
    let [c, a, b, f, d, e] = map.0;
    // The same sums as in GDAL, so that its reader and ours undo them to the last bit.
    let (x, y) = if pixel_is_point { (c + (a * 0.5 + b * 0.5), f + (d * 0.5 + e * 0.5)) } else { (c, f) };
    // By the standard ScaleY is positive, and readers take its absolute value: a south-up image needs the matrix.
    if b == 0.0 && d == 0.0 && e < 0.0 && a != 0.0 {
        tags.pixel_scale = Some([a, e.abs(), 0.0]);
        tags.tiepoints = vec![0.0, 0.0, 0.0, x, y, 0.0];
    } else {
        let mut matrix = [0.0; 16];
        matrix[..4].copy_from_slice(&[a, b, 0.0, x]);
        matrix[4..8].copy_from_slice(&[d, e, 0.0, y]);
        matrix[15] = 1.0;
        tags.transformation = Some(matrix);
    }
}
