"""What a file says about itself, in the words of xarray: coordinates, the grid mapping and attributes.

The names, types and values are those that rioxarray gives for the same file, so that scripts and its `.rio` accessor
keep working; xrspatial's `crs`, `transform`, `nodata` and `colormap` stand beside them.
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

# What a file without georeferencing gets.
IDENTITY: Transform = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0)
GRID_MAPPING = "spatial_ref"
# The same as text of the grid mapping, in GDAL's order.
NO_TRANSFORM = "0.0 1.0 0.0 0.0 0.0 1.0"

# Below it a rotation counts as rounding; the `affine` package, whose judgement rioxarray follows, has the same.
_NO_ROTATION = 1e-5
# The edge of a box that lies this near to the edge of a pixel (in pixels) is meant to lie on it.
_ON_EDGE = 1e-6
# Tags that repeat, or contradict, what the file says in its own fields.
_UNWANTED_TAGS = ("_FillValue", "missing_value", "fill_value", "nodata", "nodatavals", "is_tiled", "res")


def level_transform(transform: Transform | None, full: tuple[int, int], level: tuple[int, int]) -> Transform:
    """The transform of an overview (`level`: width, height) of an image of `full` size."""
    if transform is None:
        # Without georeferencing, coordinates count the pixels of what is read.
        return IDENTITY
    if full == level:
        return transform
    a, b, c, d, e, f = transform
    across, down = full[0] / level[0], full[1] / level[1]
    return (a * across, b * down, c, d * across, e * down, f)


def window_transform(transform: Transform, x: int, y: int) -> Transform:
    """The transform of a window whose first pixel is (x, y)."""
    a, b, c, d, e, f = transform
    if not x and not y:
        return transform
    return (a, b, c + a * x + b * y, d, e, f + d * x + e * y)


def window_of_box(
    transform: Transform | None, width: int, height: int, box: Sequence[float], *, boundless: bool = False
) -> Window:
    """The pixels that a box `(west, south, east, north)` in the file's CRS touches, cut to the image or `boundless`."""
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
        raise UsageError(f"bbox {tuple(box)!r} does not touch the image, which reaches over {corners!r}")
    return (x0, y0, x1 - x0, y1 - y0)


def is_rectilinear(transform: Transform) -> bool:
    """Whether x depends on the column alone and y on the row alone, in rioxarray's judgement."""
    a, b, _, d, e, _ = transform
    turned = b == d != 0
    straight = (abs(a) < _NO_ROTATION and abs(e) < _NO_ROTATION) or (abs(b) < _NO_ROTATION and abs(d) < _NO_ROTATION)
    return straight and not turned


def coordinates(transform: Transform, window: Window) -> dict[str, np.ndarray]:
    """Pixel centres: `x` and `y`, or `xc` and `yc` over both dimensions where the grid is rotated.

    The transform is that of the whole image: a window has bit for bit the coordinates that the same pixels have there.
    """
    a, b, c, d, e, f = transform
    x, y, width, height = window
    # In this order of operations: it is rioxarray's, and the last bits depend on it.
    left, top = a * 0.5 + b * 0.5 + c, d * 0.5 + e * 0.5 + f
    columns, rows = np.arange(x, x + width), np.arange(y, y + height)
    if is_rectilinear(transform):
        return {"x": columns * a + left, "y": rows * e + top}
    across, down = np.meshgrid(columns, rows)
    return {"xc": across * a + down * b + left, "yc": across * d + down * e + top}


@lru_cache(maxsize=256)
def _crs_items(code: str | None, wkt: str | None) -> tuple[tuple[str, Any], ...]:
    """The attributes of a CRS. Asking PROJ takes longer than opening a file, so the answer is kept."""
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
        # The old dialect has no words for it, for example three-dimensional and dynamic systems.
        text = wkt or text
    try:
        attributes = crs.to_cf()
    except KeyError:
        attributes = {}
    attributes["crs_wkt"] = attributes["spatial_ref"] = text
    return tuple(attributes.items())


def crs_attributes(crs: dict[str, Any] | None) -> dict[str, Any]:
    """CF attributes of a CRS; the text alone where pyproj is not installed."""
    if not crs or not (crs["wkt"] or crs["code"]):
        return {}
    return dict(_crs_items(crs["code"], crs["wkt"]))


def _gcps_text(gcps: Iterable[dict[str, Any]], scale: tuple[float, float], x: int, y: int) -> str:
    """Control points as the GeoJSON text that rioxarray reads back."""
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
    """Attributes of the `spatial_ref` coordinate: `transform` is the window's, `scale` the overview's size in the
    image's, (x, y) the window's first pixel."""
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
    """Rational polynomials of a window of an overview: only what counts pixels changes."""
    # In rasterio's order, since the text is compared.
    placed = {key: rpcs[key] for key in sorted(rpcs, key=lambda key: (key.startswith("err_"), key))}
    for name, ratio, start in (("samp", scale[0], x), ("line", scale[1], y)):
        # Offsets name the centres of pixels.
        placed[f"{name}_off"] = (rpcs[f"{name}_off"] + 0.5) * ratio - 0.5 - start
        placed[f"{name}_scale"] = rpcs[f"{name}_scale"] * ratio
    return placed


def _tag_value(text: str) -> Any:
    """A tag as a number, an array (`{1,2}`) or text."""
    if text.startswith("{") and text.endswith("}"):
        try:
            return np.array([float(part) for part in text.strip("{}").split(",")])
        except ValueError:
            return text
    number = number_of(text)
    return text if number is None else number


def number_of(text: str) -> int | float | None:
    """The number of a text, an int where it is one; None where it is none."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return None


def tag_attributes(tags: dict[str, str]) -> dict[str, Any]:
    """Tags as attributes, with numbers where they are numbers."""
    attributes = {key.rpartition("NC_GLOBAL#")[2]: _tag_value(value) for key, value in tags.items()}
    for name in _UNWANTED_TAGS:
        attributes.pop(name, None)
    return attributes


def kept_tags(metadata: dict[str, Any], bands: Sequence[int]) -> dict[str, Any]:
    """Tags that attributes have no place for, those of single bands and of other domains; `to_geotiff` writes them."""
    tags, of_bands = metadata["tags"], [metadata["bands"][band - 1]["tags"] for band in bands]
    return {"tags": tags, "band_tags": of_bands} if any(of_bands) or set(tags) - {""} else {}


def kept_colors(metadata: dict[str, Any], bands: Sequence[int]) -> dict[str, Any]:
    """What bands mean as colour; `to_geotiff` writes it."""
    return {"colorinterp": [metadata["bands"][band - 1]["color"] for band in bands]}


def band_attributes(bands: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Nodata, scales, offsets, descriptions and units; one value where all bands agree, as rioxarray does it."""
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
    """Scale and offset of each band."""
    scales = tuple(1.0 if band["scale"] is None else float(band["scale"]) for band in bands)
    offsets = tuple(0.0 if band["offset"] is None else float(band["offset"]) for band in bands)
    return scales, offsets


def colormap(palette: Sequence[tuple[int, int, int]]) -> tuple[int, ...]:
    """xrspatial's word for a palette: as TIFF stores it, all reds, then all greens, then all blues, of 16 bits."""
    return tuple(part for parts in zip(*palette) for part in parts)


def grid_attributes(metadata: dict[str, Any], transform: Transform) -> dict[str, Any]:
    """xrspatial's words for the same facts: `crs` (EPSG number or WKT), `transform`, `raster_type`."""
    attributes: dict[str, Any] = {}
    crs = metadata["crs"]
    if crs and (crs["epsg"] or crs["wkt"]):
        attributes["crs"] = crs["epsg"] or crs["wkt"]
    if metadata["transform"] is not None:
        attributes["transform"] = transform
    if metadata["area_or_point"] == "Point":
        attributes["raster_type"] = "point"
    return attributes
