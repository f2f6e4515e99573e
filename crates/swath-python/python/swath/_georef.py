"""Metadata of a file as xarray coordinates, grid mapping and attributes.

The names, types and values are those that rioxarray gives for the same file, so that scripts and its `.rio` accessor
keep working; xarray-spatial's `crs`, `transform`, `nodata` and `colormap` are added.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import lru_cache
from math import ceil, floor, isfinite
from typing import Any

import numpy as np

from ._errors import UsageError

# a, b, c, d, e, f: x = a * column + b * row + c, y = d * column + e * row + f.
Transform = tuple[float, float, float, float, float, float]
# x, y, width, height in pixels.
Window = tuple[int, int, int, int]

# The transform of a file without georeferencing.
IDENTITY: Transform = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0)
GRID_MAPPING = "spatial_ref"
# The identity as the grid mapping's GeoTransform, in GDAL's order.
NO_TRANSFORM = "0.0 1.0 0.0 0.0 0.0 1.0"

# A smaller rotation counts as a rounding error: the tolerance of the `affine` package, which rioxarray uses.
_NO_ROTATION = 1e-5
# Distance in pixels within which the edge of a box counts as lying on the edge of a pixel.
_ON_EDGE = 1e-6
# Tags that repeat, or contradict, fields of the file.
_REDUNDANT_TAGS = ("_FillValue", "missing_value", "fill_value", "nodata", "nodatavals", "is_tiled", "res")


def level_transform(transform: Transform | None, full: tuple[int, int], level: tuple[int, int]) -> Transform:
    """Returns the transform of an overview of size `level` (width, height) of an image of size `full`."""
    if transform is None:
        # Without georeferencing, coordinates count the pixels of the level.
        return IDENTITY
    if full == level:
        return transform
    a, b, c, d, e, f = transform
    across, down = full[0] / level[0], full[1] / level[1]
    return (a * across, b * down, c, d * across, e * down, f)


def window_transform(transform: Transform, x: int, y: int) -> Transform:
    """Returns the transform of a window whose first pixel is (x, y)."""
    a, b, c, d, e, f = transform
    if not x and not y:
        return transform
    return (a, b, c + a * x + b * y, d, e, f + d * x + e * y)


def window_of_box(
    transform: Transform | None, width: int, height: int, box: Sequence[float], *, boundless: bool = False
) -> Window:
    """Returns the pixels that a box `(west, south, east, north)` in the file's CRS touches, clipped or `boundless`."""
    try:
        west, south, east, north = (float(value) for value in box)
    except (TypeError, ValueError):
        raise UsageError(f"bbox is {box!r}: give four numbers (west, south, east, north)") from None
    if not (all(map(isfinite, (west, south, east, north))) and west < east and south < north):
        raise UsageError(f"bbox is {box!r}: give finite numbers with west < east and south < north")
    if transform is None:
        raise UsageError("bbox needs a georeferenced file, and this one has no transform: give window= in pixels")
    a, b, c, d, e, f = transform
    if abs(b) >= _NO_ROTATION or abs(d) >= _NO_ROTATION or not a or not e:
        raise UsageError("bbox needs a transform without rotation: give window= in pixels")
    left, right = sorted(((west - c) / a, (east - c) / a))
    top, bottom = sorted(((south - f) / e, (north - f) / e))
    x0, x1 = floor(left + _ON_EDGE), ceil(right - _ON_EDGE)
    y0, y1 = floor(top + _ON_EDGE), ceil(bottom - _ON_EDGE)
    if boundless:
        return (x0, y0, max(1, x1 - x0), max(1, y1 - y0))
    x0, x1, y0, y1 = max(0, x0), min(width, x1), max(0, y0), min(height, y1)
    if x0 >= x1 or y0 >= y1:
        corners = (c, f + e * height, c + a * width, f)
        raise UsageError(f"bbox {tuple(box)!r} does not touch the image, which covers {corners!r}")
    return (x0, y0, x1 - x0, y1 - y0)


def is_rectilinear(transform: Transform) -> bool:
    """Whether x depends only on the column and y only on the row, by rioxarray's criterion."""
    a, b, _, d, e, _ = transform
    turned = b == d != 0
    straight = (abs(a) < _NO_ROTATION and abs(e) < _NO_ROTATION) or (abs(b) < _NO_ROTATION and abs(d) < _NO_ROTATION)
    return straight and not turned


def coordinates(transform: Transform, window: Window) -> dict[str, np.ndarray]:
    """Returns pixel centres: `x` and `y`, or `xc` and `yc` over both dimensions where the grid is rotated.

    `transform` is that of the whole image: pixels of a window have, bit for bit, their coordinates in the image.
    """
    a, b, c, d, e, f = transform
    x, y, width, height = window
    # The order of operations is rioxarray's: the last bits depend on it.
    left, top = a * 0.5 + b * 0.5 + c, d * 0.5 + e * 0.5 + f
    columns, rows = np.arange(x, x + width), np.arange(y, y + height)
    if is_rectilinear(transform):
        return {"x": columns * a + left, "y": rows * e + top}
    across, down = np.meshgrid(columns, rows)
    return {"xc": across * a + down * b + left, "yc": across * d + down * e + top}


@lru_cache(maxsize=256)
def _crs_items(code: str | None, wkt: str | None) -> tuple[tuple[str, Any], ...]:
    """Returns the attributes of a CRS. PROJ takes longer than opening a file, so the result is cached."""
    text = wkt or code or ""
    plain = (("crs_wkt", text), ("spatial_ref", text))
    try:
        import pyproj
    except ImportError:
        return plain
    try:
        crs = pyproj.CRS.from_user_input(code or wkt)
    except pyproj.exceptions.CRSError:
        return plain
    try:
        # The dialect that rasterio, and so rioxarray, writes.
        text = crs.to_wkt("WKT1_GDAL", output_axis_rule=True)
        crs = pyproj.CRS.from_wkt(text)
    except pyproj.exceptions.CRSError:
        # The old dialect cannot express some systems, for example three-dimensional and dynamic ones.
        text = wkt or text
    try:
        attributes = crs.to_cf()
    except KeyError:
        attributes = {}
    attributes["crs_wkt"] = attributes["spatial_ref"] = text
    return tuple(attributes.items())


def crs_attributes(crs: dict[str, Any] | None) -> dict[str, Any]:
    """Returns CF attributes of a CRS; only its text where pyproj is not installed."""
    if not crs or not (crs["wkt"] or crs["code"]):
        return {}
    return dict(_crs_items(crs["code"], crs["wkt"]))


def _gcps_text(gcps: Iterable[dict[str, Any]], scale: tuple[float, float], x: int, y: int) -> str:
    """Returns control points as the GeoJSON text that rioxarray reads."""
    features = [
        {
            "type": "Feature",
            "properties": {
                "id": gcp["id"],
                "info": gcp.get("info", ""),
                "row": gcp["row"] * scale[1] - y,
                "col": gcp["col"] * scale[0] - x,
            },
            "geometry": {
                "type": "Point",
                "coordinates": [gcp["x"], gcp["y"]] if gcp["z"] is None else [gcp["x"], gcp["y"], gcp["z"]],
            },
        }
        for gcp in gcps
    ]
    return json.dumps({"type": "FeatureCollection", "features": features})


def grid_mapping(
    metadata: dict[str, Any], transform: Transform, scale: tuple[float, float], x: int, y: int
) -> dict[str, Any]:
    """Returns the attributes of the coordinate `spatial_ref`.

    `transform` is that of the window, `scale` the size of the overview relative to the image, and (x, y) the first
    pixel of the window.
    """
    attributes = crs_attributes(metadata["crs"])
    gcps, rpcs = metadata["gcps"], metadata["rpcs"]
    if gcps and metadata["gcp_crs"]:
        attributes = crs_attributes(metadata["gcp_crs"])
    if rpcs:
        attributes = dict(_crs_items("EPSG:4326", None))
    a, b, c, d, e, f = transform
    attributes["GeoTransform"] = f"{c} {a} {b} {f} {d} {e}"
    if gcps:
        attributes["gcps"] = _gcps_text(gcps, scale, x, y)
    if rpcs:
        attributes["rpcs"] = json.dumps(_placed_rpcs(rpcs, scale, x, y))
    return attributes


def _placed_rpcs(rpcs: dict[str, Any], scale: tuple[float, float], x: int, y: int) -> dict[str, Any]:
    """Returns the rational polynomials of a window of an overview: only offsets and scales in pixels change."""
    # In rasterio's order: callers compare the text.
    placed = {key: rpcs[key] for key in sorted(rpcs, key=lambda key: (key.startswith("err_"), key))}
    for name, ratio, start in (("samp", scale[0], x), ("line", scale[1], y)):
        # Offsets count from the centre of the first pixel.
        placed[f"{name}_off"] = (rpcs[f"{name}_off"] + 0.5) * ratio - 0.5 - start
        placed[f"{name}_scale"] = rpcs[f"{name}_scale"] * ratio
    return placed


def _tag_value(text: str) -> Any:
    """Returns a tag as a number, an array (`{1,2}`) or text."""
    if text.startswith("{") and text.endswith("}"):
        try:
            return np.array([float(part) for part in text.strip("{}").split(",")])
        except ValueError:
            return text
    number = number_of(text)
    return text if number is None else number


def number_of(text: str) -> int | float | None:
    """Returns the number in a text, as an int where it is one; None for other text."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return None


def tag_attributes(tags: dict[str, str]) -> dict[str, Any]:
    """Returns tags as attributes, numeric text as numbers."""
    attributes = {key.rpartition("NC_GLOBAL#")[2]: _tag_value(value) for key, value in tags.items()}
    for name in _REDUNDANT_TAGS:
        attributes.pop(name, None)
    return attributes


def kept_tags(metadata: dict[str, Any], bands: Sequence[int]) -> dict[str, Any]:
    """Returns the tags that attributes do not hold, or not word for word; `to_geotiff` writes them.

    These are the tags of bands and of other domains, and texts such as "01" and "1.50", which become numbers.
    """
    tags, of_bands = metadata["tags"], [metadata["bands"][band - 1]["tags"] for band in bands]
    changed = any(str(_tag_value(text)) != text for text in tags.get("", {}).values())
    return {"tags": tags, "band_tags": of_bands} if changed or any(of_bands) or set(tags) - {""} else {}


def kept_colors(metadata: dict[str, Any], bands: Sequence[int]) -> dict[str, Any]:
    """Returns the colour interpretation of bands; `to_geotiff` writes it."""
    return {"colorinterp": [metadata["bands"][band - 1]["color"] for band in bands]}


def band_attributes(bands: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Returns nodata, scales, offsets, descriptions and units; one value where all bands agree, as in rioxarray."""
    attributes: dict[str, Any] = {}
    if bands[0]["nodata"] is not None:
        attributes["_FillValue"] = bands[0]["nodata"]
    scales, offsets = band_scaling(bands)
    attributes.update({"scale_factor": scales[0]} if len(set(scales)) == 1 else {"scales": scales})
    attributes.update({"add_offset": offsets[0]} if len(set(offsets)) == 1 else {"offsets": offsets})
    descriptions = tuple(band["description"] for band in bands)
    if any(descriptions):
        attributes["long_name"] = descriptions[0] if len(set(descriptions)) == 1 else descriptions
    units = tuple(band["unit"] for band in bands)
    if any(units):
        attributes["units"] = units[0] if len(units) == 1 else units
    return attributes


def band_scaling(bands: Sequence[dict[str, Any]]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Returns the scales and the offsets of bands."""
    scales = tuple(1.0 if band["scale"] is None else float(band["scale"]) for band in bands)
    offsets = tuple(0.0 if band["offset"] is None else float(band["offset"]) for band in bands)
    return scales, offsets


def colormap(palette: Sequence[tuple[int, int, int]]) -> tuple[int, ...]:
    """Returns a palette as xarray-spatial and TIFF have it: all reds, then all greens, then all blues, of 16 bits."""
    return tuple(part for parts in zip(*palette) for part in parts)


def grid_attributes(metadata: dict[str, Any]) -> dict[str, Any]:
    """Returns xarray-spatial's attributes `crs` (EPSG number or WKT) and `raster_type`.

    Its `transform` is not among them: `isel` would not update it. The coordinates always say where the pixels are.
    """
    attributes: dict[str, Any] = {}
    crs = metadata["crs"]
    if crs and (crs["epsg"] or crs["wkt"]):
        attributes["crs"] = crs["epsg"] or crs["wkt"]
    if metadata["area_or_point"] == "Point":
        attributes["raster_type"] = "point"
    return attributes
