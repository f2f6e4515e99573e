//! Chooses the sizes of the overviews as GDAL does.

/// Returns the levels that GDAL's COG driver makes: sides halved and rounded down, until a level fits into one tile.
pub fn levels(width: u32, height: u32, tile: u32) -> Vec<(u32, u32)> {
    let tile = tile.max(1);
    let mut found = Vec::new();
    let (mut w, mut h) = (width.max(1), height.max(1));
    while w > tile || h > tile {
        (w, h) = ((w / 2).max(1), (h / 2).max(1));
        found.push((w, h));
    }
    found
}

/// Returns the levels for the factors of `gdaladdo`: the full size divided by each factor, rounded up.
pub fn levels_by_factors(width: u32, height: u32, factors: &[u32]) -> Vec<(u32, u32)> {
    let size = |side: u32, factor: u32| side.max(1).div_ceil(factor.max(1));
    factors.iter().map(|&factor| (size(width, factor), size(height, factor))).collect()
}
