"""A raster's metadata, and the arguments that give it."""

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
    """What is known of a raster beside its samples."""

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
        """As the engine takes it."""
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
            # A file has either a transform or ground control points; the reference system goes with them.
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
    """The value of missing pixels as a plain number that samples can have."""
    if nodata is None:
        return None
    if isinstance(nodata, (bool, np.bool_)) or not np.isscalar(nodata) or isinstance(nodata, (str, bytes)):
        raise UsageError(f"nodata={nodata!r} is no number")
    if isinstance(nodata, (complex, np.complexfloating)):
        if nodata.imag:
            raise UsageError(f"nodata={nodata!r}: a file can only say a real number")
        nodata = nodata.real
    if dtype.names:
        # Pairs of parts: a file says the value of their real part.
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
    # The largest number is often given by its first digits, which may round up.
    with np.errstate(over="ignore"):
        rounded = float(single.type(value))
    if not math.isfinite(rounded):
        raise UsageError(f"nodata={nodata!r} is beyond what {dtype} holds")
    return rounded


def crs_text(crs: Any) -> str | None:
    """A reference system as text that the engine understands.

    Takes EPSG codes (int, "EPSG:32633"), WKT, and objects with to_wkt() such as pyproj's and rasterio's. What only
    PROJ understands ("+proj=...", dictionaries) goes through pyproj.
    """
    if crs is None:
        return None
    if isinstance(crs, (bool, np.bool_)):
        raise UsageError(f"crs={crs!r} is no reference system: give an EPSG code, WKT, or an object with to_wkt()")
    if isinstance(crs, (int, np.integer)):
        crs = f"EPSG:{int(crs)}"
    elif hasattr(crs, "to_wkt"):
        crs = crs.to_wkt()
    if isinstance(crs, str) and not crs.strip():
        return None
    if isinstance(crs, str):
        try:
            _swath.crs_of(crs)
        except UsageError as refused:
            return _through_pyproj(crs, refused)
        return crs
    return _through_pyproj(crs, None)


def _through_pyproj(crs: Any, refused: UsageError | None) -> str:
    advice = f"crs={crs!r} is not understood: give an EPSG code, WKT, or an object with to_wkt()"
    try:
        import pyproj
    except ImportError:
        raise refused or UsageError(f"{advice}; PROJ texts need pyproj") from None
    try:
        return pyproj.CRS.from_user_input(crs).to_wkt()
    except pyproj.exceptions.CRSError as error:
        raise UsageError(f"{advice} ({error})") from error


def affine(transform: Any) -> Transform | None:
    """Six numbers in the order of rasterio: x = a col + b row + c, y = d col + e row + f."""
    if transform is None:
        return None
    try:
        numbers = [float(number) for number in tuple(transform)]
    except (TypeError, ValueError):
        numbers = []
    if len(numbers) == 9 and numbers[6:] == [0.0, 0.0, 1.0]:
        numbers = numbers[:6]
    if len(numbers) != 6 or not all(map(math.isfinite, numbers)):
        raise UsageError(f"transform={transform!r}: give an Affine or six numbers (a, b, c, d, e, f)")
    a, b, c, d, e, f = numbers
    if a * e == b * d:
        raise UsageError(f"transform={transform!r} maps all pixels onto a line")
    return a, b, c, d, e, f


def given_transform(transform: Any) -> Transform | None:
    """The transform that a caller gives, unless its numbers are in another order than ours."""
    if isinstance(transform, (tuple, list, np.ndarray)) and len(transform) == 6 and not hasattr(transform, "to_gdal"):
        numbers = [number if isinstance(number, (int, float)) else float(number) for number in transform]
        if _in_gdal_order(numbers):
            c, a, b, f, d, e = numbers
            raise UsageError(
                f"transform={tuple(numbers)} is in GDAL's order (c, a, b, f, d, e), as far as one can tell: give "
                f"{(a, b, c, d, e, f)}, or an Affine"
            )
    return affine(transform)


def _in_gdal_order(numbers: Sequence[float]) -> bool:
    """Whether six numbers make a usual grid in GDAL's order, and none in that of Affine."""
    n = numbers
    if not n[2] and not n[4] and n[1] and n[5]:
        # Straight in GDAL's order; in Affine's, turned by 90 degrees.
        return True
    corner, along, down = (math.hypot(*pair) for pair in ((n[0], n[3]), (n[1], n[4]), (n[2], n[5])))
    return corner > 1000 * max(along, down) and down / 100 < along < down * 100


def split_tags(tags: Mapping[str, Any] | None) -> dict[str, dict[str, str]]:
    """Tags by domain; plain keys are of the default domain."""
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
    """Ground control points of rasterio, of a GeoJSON as rioxarray keeps it, or dictionaries."""
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
        raise UsageError(
            "gcps: give points of rasterio, dictionaries with row, col, x and y, or their GeoJSON"
        ) from None
    points = []
    for number, point in enumerate(gcps):
        read = point.get if isinstance(point, Mapping) else lambda name, point=point: getattr(point, name, None)
        place: dict[str, Any] = {name: read(name) for name in ("col", "row", "x", "y")}
        if any(value is None for value in place.values()):
            raise UsageError(f"gcps[{number}]={point!r} lacks one of col, row, x and y")
        name = read("id")
        points.append(
            {
                "id": str(number + 1 if name is None else name),
                **{key: float(value) for key, value in place.items()},
                "z": float(read("z") or 0.0),
            }
        )
    return points


def coefficients(rpcs: Any) -> dict[str, Any] | None:
    """Rational polynomial coefficients: rasterio's RPC, its JSON as rioxarray keeps it, or GDAL's names and texts."""
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
        raise UsageError("rpcs: give an RPC of rasterio, its dictionary, or GDAL's names and texts") from None


def _floats(value: Any) -> list[float]:
    return [float(item) for item in (value.split() if isinstance(value, str) else value)]


def palette_of(colormap: Any) -> list[tuple[int, int, int]] | None:
    """A palette of 16-bit colours from rasterio's {value: (r, g, b, a)} of bytes, or from 16-bit triples."""
    if colormap is None:
        return None
    if isinstance(colormap, Mapping):
        size = 1 << 8 if max(colormap, default=0) < 1 << 8 else 1 << 16
        colours = [(0, 0, 0)] * size
        for value, colour in colormap.items():
            try:
                red, green, blue = (int(part) for part in tuple(colour)[:3])
            except (TypeError, ValueError):
                red = green = blue = -1
            if not 0 <= value < size or not all(0 <= part < 256 for part in (red, green, blue)):
                raise UsageError(f"colormap: {value!r}: {colour!r} is no value with a colour (r, g, b) of 0 to 255")
            colours[int(value)] = (257 * red, 257 * green, 257 * blue)
        return colours
    triples = np.asarray(colormap)
    if triples.ndim == 1 and triples.size % 3 == 0:
        # As the file stores it: all reds, then all greens, then all blues.
        triples = triples.reshape(3, -1).T
    if triples.ndim != 2 or triples.shape[1] < 3:
        raise UsageError("colormap: give {value: (r, g, b)} of bytes, or rows of 16-bit (r, g, b)")
    return [(int(red), int(green), int(blue)) for red, green, blue in triples[:, :3]]


# What a band may be, in GDAL's words.
COLORS = frozenset(
    {
        *("undefined", "gray", "palette", "red", "green", "blue", "alpha", "hue", "saturation", "lightness", "cyan"),
        *("magenta", "yellow", "black", "y", "cb", "cr", "pan", "coastal", "rededge", "nir", "swir", "mwir", "lwir"),
        *("tir", "otherir", "sar_ka", "sar_k", "sar_ku", "sar_x", "sar_c", "sar_s", "sar_l", "sar_p"),
    }
)


def color_names(colorinterp: Any, count: int) -> list[str | None] | None:
    """What each band is, from texts or members of rasterio's enumeration."""
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
    """One value for each band, of a list of them or of one for all."""
    if value is None:
        return None
    values = list(value) if isinstance(value, (tuple, list, np.ndarray)) else [value] * count
    if len(values) != count:
        raise UsageError(f"{name}: {len(values)} values for {count} bands")
    return values


def numbers(name: str, value: Any, count: int) -> list[float] | None:
    """A number for each band."""
    values = per_band(name, value, count)
    try:
        return None if values is None else [float(item) for item in values]
    except (TypeError, ValueError):
        raise UsageError(f"{name}={value!r}: give a number for each band") from None


def merged(found: Found, given: Found) -> Found:
    """What the caller gives goes before what was found; tags are put together."""
    values = {
        name: getattr(given, name) if getattr(given, name) is not None else value for name, value in vars(found).items()
    }
    tags = {domain: dict(items) for domain, items in found.tags.items()}
    for domain, items in given.tags.items():
        tags.setdefault(domain, {}).update(items)
    return Found(**{**values, "tags": tags})
