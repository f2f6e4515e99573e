"""`Found`: the metadata of a raster to write; and functions that read it from the arguments of `to_geotiff`."""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from . import _swath
from ._errors import UsageError

Transform = tuple[float, float, float, float, float, float]


@dataclass
class Found:
    """Metadata of a raster, from an xarray object or from the caller; None where there is none."""

    crs: str | None = None
    transform: Transform | None = None
    nodata: Any = None
    area_or_point: str | None = None
    gcps: list[dict[str, Any]] | None = None
    rpcs: dict[str, Any] | None = None
    tags: dict[str, dict[str, str]] = field(default_factory=dict)
    descriptions: list[str | None] | None = None
    units: list[str | None] | None = None
    scales: list[float] | None = None
    offsets: list[float] | None = None
    # By domain, as `tags`.
    band_tags: list[dict[str, dict[str, str]]] | None = None
    colors: list[str | None] | None = None
    palette: list[tuple[int, int, int]] | None = None
    extra_tags: list[tuple[int, Any, Any]] | None = None

    def native(self, count: int, dtype: np.dtype) -> dict[str, Any]:
        """Returns the metadata as the engine takes them."""
        bands = [
            {
                "description": _of_band(self.descriptions, band),
                "unit": _of_band(self.units, band),
                "scale": _of_band(self.scales, band),
                "offset": _of_band(self.offsets, band),
                "tags": _of_band(self.band_tags, band) or {},
                "color": _of_band(self.colors, band),
            }
            for band in range(count)
        ]
        control = bool(self.gcps)
        return {
            # A file has either a transform or ground control points, and the reference system belongs to that one.
            "crs": None if control else self.crs,
            "transform": None if control else self.transform,
            "gcps": self.gcps or [],
            "gcp_crs": self.crs if control else None,
            "rpcs": self.rpcs,
            "area_or_point": self.area_or_point,
            "tags": {domain: dict(tags) for domain, tags in self.tags.items() if tags},
            "bands": [{name: value for name, value in band.items() if value not in (None, {})} for band in bands],
            "nodata": checked_nodata(self.nodata, dtype),
            "palette": self.palette or [],
        }


def _of_band(values: Sequence[Any] | None, band: int) -> Any:
    return values[band] if values is not None else None


def checked_nodata(nodata: Any, dtype: np.dtype) -> int | float | None:
    """Returns a nodata value as a plain number; raises where samples of this type cannot have it."""
    if nodata is None:
        return None
    if isinstance(nodata, (bool, np.bool_)) or not np.isscalar(nodata) or isinstance(nodata, (str, bytes)):
        raise UsageError(f"nodata={nodata!r} is not a number")
    if isinstance(nodata, (complex, np.complexfloating)):
        if nodata.imag:
            raise UsageError(f"nodata={nodata!r}: a file can only store a real number")
        nodata = nodata.real
    if dtype.names:
        # Complex integers: the nodata value of a file applies to the real part.
        dtype = dtype["real"]
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        whole = float(nodata).is_integer() if math.isfinite(nodata) else False
        if not whole or not limits.min <= int(nodata) <= limits.max:
            raise UsageError(
                f"nodata={nodata!r} cannot be a sample of {dtype} ({limits.min} to {limits.max}): give nodata= a value "
                "that can, or dtype= a type that holds it"
            )
        return int(nodata)
    value = float(nodata)
    single = dtype if dtype.kind == "f" else np.dtype(f"f{dtype.itemsize // 2}")
    if not math.isfinite(value) or abs(value) <= float(np.finfo(single).max):
        return value
    # Callers often write the largest float with a few digits, which may round up beyond it.
    with np.errstate(over="ignore"):
        rounded = float(single.type(value))
    if not math.isfinite(rounded):
        raise UsageError(f"nodata={nodata!r} is outside the range of {dtype}")
    return rounded


def crs_text(crs: Any) -> str | None:
    """Returns a reference system as text that the engine understands.

    Takes EPSG codes (int, "EPSG:32633"), WKT, and objects with to_wkt() such as pyproj's and rasterio's. pyproj
    converts what only PROJ understands ("+proj=...", dictionaries).
    """
    if crs is None:
        return None
    if isinstance(crs, (bool, np.bool_, np.ndarray, list, bytes)):
        raise UsageError(f"crs={crs!r} is not a reference system: give an EPSG code, WKT, or an object with to_wkt()")
    if isinstance(crs, (int, np.integer)):
        crs = f"EPSG:{int(crs)}"
    elif hasattr(crs, "to_wkt"):
        crs = crs.to_wkt()
    if isinstance(crs, str) and not crs.strip():
        return None
    if isinstance(crs, str):
        try:
            _swath.crs_of(crs)
        except UsageError as error:
            return _through_pyproj(crs, error)
        return crs
    return _through_pyproj(crs, None)


def _through_pyproj(crs: Any, error_of_engine: UsageError | None) -> str:
    advice = f"crs={crs!r} is not understood: give an EPSG code, WKT, or an object with to_wkt()"
    try:
        import pyproj
    except ImportError:
        raise error_of_engine or UsageError(f"{advice}; PROJ texts need pyproj") from None
    try:
        return pyproj.CRS.from_user_input(crs).to_wkt()
    except pyproj.exceptions.CRSError as error:
        raise UsageError(f"{advice} ({error})") from error


def affine(transform: Any) -> Transform | None:
    """Returns six numbers in Affine's order: x = a col + b row + c, y = d col + e row + f."""
    if transform is None:
        return None
    try:
        numbers = [float(number) for number in tuple(transform)]
    except (OverflowError, TypeError, ValueError):
        numbers = []
    if len(numbers) == 9 and numbers[6:] == [0.0, 0.0, 1.0]:
        numbers = numbers[:6]
    if len(numbers) != 6 or not all(map(math.isfinite, numbers)):
        raise UsageError(f"transform={transform!r}: give an Affine or six numbers (a, b, c, d, e, f)")
    a, b, c, d, e, f = numbers
    if a * e == b * d:
        raise UsageError(f"transform={transform!r} maps all pixels onto a line")
    return a, b, c, d, e, f


def given_transform(transform: Any, name: str = "transform") -> Transform | None:
    """Returns the transform that a caller gives as `name`; raises where its numbers look like GDAL's order."""
    if isinstance(transform, (tuple, list, np.ndarray)) and len(transform) == 6 and not hasattr(transform, "to_gdal"):
        try:
            numbers = [number if isinstance(number, (int, float)) else float(number) for number in transform]
        except (OverflowError, TypeError, ValueError):
            return affine(transform)
        if _in_gdal_order(numbers):
            c, a, b, f, d, e = numbers
            raise UsageError(
                f"{name}={tuple(numbers)} seems to be in GDAL's order (c, a, b, f, d, e): give "
                f"{(a, b, c, d, e, f)}, or an Affine"
            )
    return affine(transform)


def _in_gdal_order(numbers: Sequence[float]) -> bool:
    """Whether six numbers make a plausible grid in GDAL's order, and not in Affine's."""
    n = numbers
    if not n[2] and not n[4] and n[1] and n[5]:
        # In GDAL's order no rotation; in Affine's order a rotation by 90 degrees.
        return True
    corner, along, down = (math.hypot(*pair) for pair in ((n[0], n[3]), (n[1], n[4]), (n[2], n[5])))
    return corner > 1000 * max(along, down) and down / 100 < along < down * 100


def split_tags(tags: Mapping[str, Any] | None) -> dict[str, dict[str, str]]:
    """Returns tags by domain; plain keys belong to the default domain."""
    split: dict[str, dict[str, str]] = {}
    if tags is not None and not isinstance(tags, Mapping):
        raise UsageError(f"tags={tags!r}: give a dictionary of texts, or of such dictionaries by domain")
    for key, value in (tags or {}).items():
        if isinstance(value, Mapping):
            split.setdefault(str(key), {}).update((str(name), str(item)) for name, item in value.items())
        else:
            split.setdefault("", {})[str(key)] = str(value)
    return split


def control_points(gcps: Any) -> list[dict[str, Any]] | None:
    """Returns ground control points from rasterio's objects, from rioxarray's GeoJSON, or from dictionaries."""
    if gcps is None:
        return None
    try:
        if isinstance(gcps, str):
            gcps = json.loads(gcps)
        if isinstance(gcps, Mapping):
            gcps = [
                {**feature["properties"], **dict(zip("xyz", feature["geometry"]["coordinates"]))}
                for feature in gcps["features"]
            ]
        gcps = list(gcps)
    except (KeyError, TypeError, ValueError):
        raise UsageError("gcps: give rasterio's points, dictionaries with row, col, x and y, or GeoJSON") from None
    points = []
    for number, point in enumerate(gcps):
        read = point.get if isinstance(point, Mapping) else lambda name, point=point: getattr(point, name, None)
        place: dict[str, Any] = {name: read(name) for name in ("col", "row", "x", "y")}
        if any(value is None for value in place.values()):
            raise UsageError(f"gcps[{number}]={point!r} lacks one of col, row, x and y")
        name = read("id")
        try:
            place = {key: float(value) for key, value in {**place, "z": read("z") or 0.0}.items()}
        except (OverflowError, TypeError, ValueError):
            raise UsageError(f"gcps[{number}]={point!r}: col, row, x, y and z are numbers") from None
        points.append({"id": str(number + 1 if name is None else name), **place})
    return points


def coefficients(rpcs: Any) -> dict[str, Any] | None:
    """Returns rational polynomial coefficients from rasterio's RPC, from rioxarray's JSON, or from GDAL's items."""
    if rpcs is None:
        return None
    try:
        if isinstance(rpcs, str):
            rpcs = json.loads(rpcs)
        if hasattr(rpcs, "to_dict"):
            rpcs = rpcs.to_dict()
        named = {str(key).lower(): value for key, value in dict(rpcs).items() if value is not None}
        return {
            key: _floats(value) if key.endswith("_coeff") else float(value)
            for key, value in named.items()
            if key.endswith(("_coeff", "_off", "_scale", "_bias", "_rand"))
        }
    except (TypeError, ValueError):
        raise UsageError("rpcs: give rasterio's RPC, its dictionary, or GDAL's items") from None


def _floats(value: Any) -> list[float]:
    return [float(item) for item in (value.split() if isinstance(value, str) else value)]


def palette_of(colormap: Any) -> list[tuple[int, int, int]] | None:
    """Returns a palette of 16-bit colours from rasterio's {value: (r, g, b, a)} of bytes, or from 16-bit triples."""
    if colormap is None:
        return None
    if isinstance(colormap, Mapping):
        if not colormap:
            return None
        if not all(isinstance(value, (int, np.integer)) for value in colormap):
            raise UsageError(
                f"colormap: {next(iter(colormap))!r} is not a value of a sample: give {{value: (r, g, b)}}"
            )
        size = 1 << 8 if max(colormap, default=0) < 1 << 8 else 1 << 16
        colours = [(0, 0, 0)] * size
        for value, colour in colormap.items():
            try:
                red, green, blue = (int(part) for part in tuple(colour)[:3])
            except (TypeError, ValueError):
                red = green = blue = -1
            if not 0 <= value < size or not all(0 <= part < 256 for part in (red, green, blue)):
                raise UsageError(f"colormap: {value!r}: {colour!r} is not a value with a colour (r, g, b) of 0 to 255")
            colours[int(value)] = (257 * red, 257 * green, 257 * blue)
        return colours
    try:
        triples = np.asarray(colormap)
    except ValueError:
        triples = np.empty(0)
    if triples.ndim == 1 and triples.size % 3 == 0:
        # The order of a TIFF: all reds, then all greens, then all blues.
        triples = triples.reshape(3, -1).T
    if triples.ndim != 2 or triples.shape[1] < 3 or triples.dtype.kind not in "iuf":
        raise UsageError("colormap: give {value: (r, g, b)} of bytes, or rows of 16-bit (r, g, b)")
    return [(int(red), int(green), int(blue)) for red, green, blue in triples[:, :3]]


# GDAL's names of colour interpretations.
COLORS = frozenset(
    {
        *("undefined", "gray", "palette", "red", "green", "blue", "alpha", "hue", "saturation", "lightness", "cyan"),
        *("magenta", "yellow", "black", "y", "cb", "cr", "pan", "coastal", "rededge", "nir", "swir", "mwir", "lwir"),
        *("tir", "otherir", "sar_ka", "sar_k", "sar_ku", "sar_x", "sar_c", "sar_s", "sar_l", "sar_p"),
    }
)


def color_names(colorinterp: Any, count: int) -> list[str | None] | None:
    """Returns the colour interpretation of each band, from names or members of rasterio's enumeration."""
    values = per_band("colorinterp", colorinterp, count)
    if values is None:
        return None
    names = [str(getattr(value, "name", value)).lower() for value in values]
    names = ["gray" if name == "grey" else name for name in names]
    for name in names:
        if name not in COLORS:
            near = difflib.get_close_matches(name, COLORS, n=3)
            hint = f"; did you mean {' or '.join(near)}?" if near else f": give one of {', '.join(sorted(COLORS))}"
            raise UsageError(f"colorinterp: there is no {name!r}{hint}")
    return list(names)


def per_band(name: str, value: Any, count: int) -> list[Any] | None:
    """Returns one value for each band, from a list or from one value for all."""
    if value is None:
        return None
    values = list(value) if isinstance(value, (tuple, list, np.ndarray)) else [value] * count
    if len(values) != count:
        raise UsageError(f"{name}: {len(values)} values for {count} bands: give one for each")
    return values


def texts(name: str, value: Any, count: int) -> list[str | None] | None:
    """Returns text, or None, for each band."""
    values = per_band(name, value, count)
    if values is not None and not all(item is None or isinstance(item, str) for item in values):
        raise UsageError(f"{name}={value!r}: give text, or None, for each band")
    return values


def numbers(name: str, value: Any, count: int) -> list[float] | None:
    """Returns a number for each band."""
    values = per_band(name, value, count)
    try:
        found = None if values is None else [float(item) for item in values]
        if found is None or all(map(math.isfinite, found)):
            return found
        raise ValueError("not finite")
    except (OverflowError, TypeError, ValueError):
        raise UsageError(f"{name}={value!r}: give a number for each band") from None


def merged(found: Found, given: Found) -> Found:
    """Returns metadata in which the caller's values replace those that were found; tags are merged."""
    values = {
        name: getattr(given, name) if getattr(given, name) is not None else value for name, value in vars(found).items()
    }
    tags = {domain: dict(items) for domain, items in found.tags.items()}
    for domain, items in given.tags.items():
        tags.setdefault(domain, {}).update(items)
    return Found(**{**values, "tags": tags})
