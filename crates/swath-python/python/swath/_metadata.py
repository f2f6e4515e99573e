"""Finds a raster's metadata: in arguments, and in what rioxarray and xrspatial leave on xarray's objects."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from . import _swath
from ._errors import SwathWarning, UsageError, warn_once

Transform = tuple[float, float, float, float, float, float]

# Names of dimensions in small letters, those that tell most first.
Y_NAMES = ("y", "lat", "latitude", "northing", "row", "rows", "line", "lines")
X_NAMES = ("x", "lon", "long", "longitude", "easting", "col", "cols", "column", "columns", "sample", "samples")
BAND_NAMES = ("band", "bands", "channel")
# Dimensions that are neither rows nor columns, whatever stands beside them.
OTHER_NAMES = frozenset(
    {
        *("time", "t", "date", "datetime", "day", "month", "year", "step", "wavelength", "variable"),
        *("z", "level", "lev", "height", "altitude", "depth", "pressure", "ensemble", "member", "realization"),
    }
)

# What dask calls its arrays: a word and a digest.
DASK_NAME = re.compile(r".*-[0-9a-f]{32}")

# Where the value of missing pixels stands, in the order in which rioxarray looks, then xrspatial's.
FILL_NAMES = ("_FillValue", "missing_value", "fill_value", "nodata")

# Attributes that have a place of their own in the file, or describe the array rather than the raster.
NOT_TAGS = frozenset(
    {
        *FILL_NAMES,
        *("nodatavals", "is_tiled", "res", "crs", "crs_wkt", "transform", "grid_mapping", "coordinates"),
        *("scales", "offsets", "scale_factor", "add_offset", "units", "band_tags", "AREA_OR_POINT", "_Unsigned"),
        *("masked_nodata", "nodata_pixels_present", "nodata_dtype_cast", "mask_and_scale_dtype", "rotated_affine"),
        *("raster_type", "georef_status", "extra_tags", "gdal_metadata", "gdal_metadata_xml", "extra_samples"),
        *("x_resolution", "y_resolution", "resolution_unit", "image_description", "colormap", "vrt_holes"),
        *("category_names", "category_colors", "_xrspatial_geotiff_contract", "_xrspatial_no_georef"),
    }
)
# Statistics of the pixels that were read need not hold for those that are written.
STALE = ("STATISTICS_",)


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
    band_tags: list[dict[str, str]] | None = None
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
                "tags": {"": tags} if (tags := _of_band(self.band_tags, band)) else {},
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


def split_tags(tags: Mapping[str, Any] | None) -> dict[str, dict[str, str]]:
    """Tags by domain; plain keys are of the default domain."""
    split: dict[str, dict[str, str]] = {}
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
    if isinstance(gcps, str):
        gcps = json.loads(gcps)
    if isinstance(gcps, Mapping):
        gcps = [
            {**feature["properties"], **dict(zip("xyz", feature["geometry"]["coordinates"]))}
            for feature in gcps["features"]
        ]
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
            red, green, blue = (int(part) * 257 for part in tuple(colour)[:3])
            colours[int(value)] = (red, green, blue)
        return colours
    triples = np.asarray(colormap)
    if triples.ndim == 1 and triples.size % 3 == 0:
        # As the file stores it: all reds, then all greens, then all blues.
        triples = triples.reshape(3, -1).T
    if triples.ndim != 2 or triples.shape[1] < 3:
        raise UsageError("colormap: give {value: (r, g, b)} of bytes, or rows of 16-bit (r, g, b)")
    return [(int(red), int(green), int(blue)) for red, green, blue in triples[:, :3]]


def spatial_dims(data: Any) -> tuple[str, str]:
    """Names of the dimensions that are rows and columns."""
    names = [str(name) for name in data.dims]
    y_name, x_name = _named(names, Y_NAMES), _named(names, X_NAMES)
    standard = {"latitude": "Y", "projection_y_coordinate": "Y", "longitude": "X", "projection_x_coordinate": "X"}
    for name in names:
        attrs = data.coords[name].attrs if name in data.coords else {}
        axis = str(attrs.get("axis", "")).upper() or standard.get(str(attrs.get("standard_name", "")).lower())
        if axis == "Y" and name != x_name:
            y_name = y_name or name
        elif axis == "X" and name != y_name:
            x_name = x_name or name
    if y_name and x_name:
        return y_name, x_name
    rest = [name for name in names if name.lower() not in BAND_NAMES]
    # Where one of them is known, the other would be a guess that turns the raster around when it is wrong.
    if not y_name and not x_name and len(rest) == 2 and not any(_is_other(data, name) for name in rest):
        return rest[0], rest[1]
    raise UsageError(
        f"dimensions {tuple(names)}: which are rows and columns? Rename them to y and x, and a third one to band"
    )


def _named(names: Sequence[str], known: Sequence[str]) -> str | None:
    """The name that is known best, in whatever letters it is written."""
    found = {name.lower(): name for name in reversed(names)}
    return next((found[word] for word in known if word in found), None)


def _is_other(data: Any, name: str) -> bool:
    dated = name in data.coords and data.coords[name].dtype.kind in "mM"
    return dated or name.lower() in OTHER_NAMES


def grid_mapping(data: Any) -> Mapping[str, Any]:
    """Attributes of the coordinate that holds the reference system."""
    named = data.encoding.get("grid_mapping") or data.attrs.get("grid_mapping") or "spatial_ref"
    if named in data.coords:
        return data.coords[named].attrs
    for coordinate in data.coords.values():
        if coordinate.ndim == 0 and {"crs_wkt", "spatial_ref"} & set(coordinate.attrs):
            return coordinate.attrs
    return {}


def found_crs(data: Any) -> str | None:
    """The reference system of an xarray object."""
    mapping = grid_mapping(data)
    for attrs in (mapping, data.attrs):
        for name in ("spatial_ref", "crs_wkt", "crs"):
            if attrs.get(name) is not None and not isinstance(attrs[name], bool):
                return crs_text(attrs[name])
    if "grid_mapping_name" in mapping:
        try:
            import pyproj
        except ImportError:
            raise UsageError(
                "the reference system is given by CF attributes alone, which needs pyproj: install it, or give crs="
            ) from None
        return pyproj.CRS.from_cf(dict(mapping)).to_wkt()
    return None


def found_transform(data: Any, y_name: str, x_name: str, *, recalc: bool = True) -> Transform | None:
    """The transform of an xarray object: that of its coordinates, word for word as it was read where they agree."""
    stored = _stored_transform(data)
    if stored is not None and not recalc:
        return _unless_identity(stored)
    if stored is not None and (stored[1] or stored[3]):
        return _rotated(data, y_name, x_name, stored)
    if data.attrs.get("_xrspatial_no_georef"):
        return None
    y, x = (_axis(data, name) for name in (y_name, x_name))
    if y is None or x is None:
        return None if stored is None else _unless_identity(stored)
    if stored is not None:
        a, _, c, _, e, f = stored
        if _agree(x, a, c) and _agree(y, e, f):
            return _unless_identity(stored)
    a, c = _spacing(x, x_name, None if stored is None else stored[0])
    e, f = _spacing(y, y_name, None if stored is None else stored[4])
    return _unless_identity((a, 0.0, c, 0.0, e, f))


def _stored_transform(data: Any) -> Transform | None:
    text = grid_mapping(data).get("GeoTransform")
    if text is not None:
        numbers = str(text).replace(",", " ").split()
        if len(numbers) == 6:
            c, a, b, f, d, e = map(float, numbers)
            return affine((a, b, c, d, e, f))
    for name in ("transform", "rotated_affine"):
        if data.attrs.get(name) is not None:
            return affine(data.attrs[name])
    return None


def _unless_identity(transform: Transform) -> Transform | None:
    """Pixels counted from a corner are no georeference, and GDAL keeps none."""
    a, b, c, d, e, f = transform
    return None if (a, b, c, d, e, f) == (1.0, 0.0, 0.0, 0.0, 1.0, 0.0) else transform


def _rotated(data: Any, y_name: str, x_name: str, stored: Transform) -> Transform:
    """The transform of a rotated raster: that of its two-dimensional coordinates, where it has them."""
    if not all(name in data.coords and set(data.coords[name].dims) == {y_name, x_name} for name in ("xc", "yc")):
        return stored
    xc, yc = (data.coords[name].transpose(y_name, x_name).values for name in ("xc", "yc"))
    a, b, c = _plane(xc, "xc", stored[:3])
    d, e, f = _plane(yc, "yc", stored[3:])
    return a, b, c, d, e, f


def _plane(values: np.ndarray, name: str, stored: tuple[float, float, float]) -> tuple[float, float, float]:
    """Steps along columns and rows, and the value at the outer corner, of coordinates of centres."""
    height, width = values.shape
    rows, columns = (np.unique([0, size // 2, size - 1]) for size in values.shape)

    def agree(plane: tuple[float, float, float]) -> bool:
        # Rows and columns are selected as wholes: where these lie in their places, all do.
        along, down, corner = plane
        slack = max(_slack(values[rows], along), _slack(values[rows], down))
        expected = corner + (np.arange(width) + 0.5) * along + (rows[:, np.newaxis] + 0.5) * down
        if not np.all(np.abs(values[rows] - expected) <= slack):
            return False
        expected = corner + (columns + 0.5) * along + (np.arange(height)[:, np.newaxis] + 0.5) * down
        return bool(np.all(np.abs(values[:, columns] - expected) <= slack))

    if agree(stored):
        return stored
    first = float(values[0, 0])
    along = (float(values[0, -1]) - first) / (width - 1) if width > 1 else stored[0]
    down = (float(values[-1, 0]) - first) / (height - 1) if height > 1 else stored[1]
    plane = along, down, first - along / 2 - down / 2
    if not agree(plane):
        raise UsageError(
            f"coordinate {name!r} is not evenly spaced, so no transform describes it: resample the raster to a regular "
            "grid, or give transform="
        )
    return plane


def _axis(data: Any, name: str) -> np.ndarray | None:
    if name not in data.coords:
        return None
    values = np.asarray(data.coords[name].values)
    return values if values.ndim == 1 and values.dtype.kind in "iuf" else None


def _slack(values: np.ndarray, step: float) -> float:
    """How far a coordinate may be beside its place: rounding of its own type, and a thousandth of a pixel."""
    rounding = np.finfo(values.dtype).eps if values.dtype.kind == "f" else 0.0
    return max(abs(step) * 1e-3, 4.0 * float(rounding) * float(np.max(np.abs(values), initial=0.0)))


def _agree(values: np.ndarray, step: float, origin: float) -> bool:
    expected = origin + (np.arange(values.size) + 0.5) * step
    return bool(np.all(np.abs(values - expected) <= _slack(values, step)))


def _spacing(values: np.ndarray, name: str, stored: float | None) -> tuple[float, float]:
    """Size of a pixel and outer edge of the first one, of coordinates of centres."""
    if not np.all(np.isfinite(values)):
        raise UsageError(f"coordinate {name!r} has values that are no numbers: give transform=, or drop the coordinate")
    first = float(values[0])
    if values.size == 1:
        if stored is None:
            raise UsageError(
                f"coordinate {name!r} has one value, which does not tell the size of a pixel: give transform="
            )
        return stored, first - stored / 2
    step = (float(values[-1]) - first) / (values.size - 1)
    if step == 0.0 or not _agree(values, step, first - step / 2):
        raise UsageError(
            f"coordinate {name!r} is not evenly spaced, so no transform describes it: resample the raster to a regular "
            "grid, or give transform="
        )
    return step, first - step / 2


def found_nodata(data: Any) -> Any:
    """The value of missing pixels that an xarray object declares."""
    if data.encoding.get("_FillValue") is not None:
        return data.encoding["_FillValue"]
    for name in FILL_NAMES:
        if data.attrs.get(name) is not None:
            return data.attrs[name]
    values = data.attrs.get("nodatavals")
    return values[0] if isinstance(values, (tuple, list)) and values else None


def found_tags(attrs: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Attributes that become tags of the file, and those of GDAL's metadata that xrspatial keeps."""
    own = {
        str(key): str(value)
        for key, value in attrs.items()
        if key not in NOT_TAGS
        and not str(key).startswith(STALE)
        and not (key == "long_name" and not isinstance(value, str))
    }
    kept = attrs.get("gdal_metadata")
    if isinstance(kept, Mapping):
        plain = {key: value for key, value in kept.items() if isinstance(key, str) and not key.startswith(STALE)}
        own = {**{key: str(value) for key, value in plain.items()}, **own}
    return {"": own} if own else {}


def per_band(name: str, value: Any, count: int) -> list[Any] | None:
    """One value for each band, of a list of them or of one for all."""
    if value is None:
        return None
    values = list(value) if isinstance(value, (tuple, list, np.ndarray)) else [value] * count
    if len(values) != count:
        raise UsageError(f"{name}: {len(values)} values for {count} bands")
    return values


def _chosen(data: Any, value: Any, count: int) -> Any:
    """Of a list with an entry for each band of a file, those of the bands that are left; None if nobody can tell."""
    if not isinstance(value, (tuple, list, np.ndarray)):
        return value
    values = list(value)
    # Whoever read some bands only, or in another order, says so; otherwise lists are of all bands, in order.
    known = [int(band) for band in data.encoding.get("bands", range(1, len(values) + 1))]
    bands = _band_numbers(data, count)
    if bands is not None and len(known) == len(values) and set(bands) <= set(known):
        return [values[known.index(band)] for band in bands]
    return values if len(values) == count else None


def _listed(data: Any, name: str, count: int) -> Any:
    """An attribute with one value, or one for each band."""
    value = data.attrs.get(name)
    chosen = _chosen(data, value, count)
    if value is not None and chosen is None:
        warn_once(
            f"{name} has {len(value)} values and the raster {count} bands, and no coordinate 'band' tells which bands "
            f"these are: {name} is left away",
            SwathWarning,
            stacklevel=7,
        )
    return chosen


def _band_numbers(data: Any, count: int) -> list[int] | None:
    """Which bands of a file the bands of an array are, counted from 1, where a coordinate tells."""
    if "band" not in data.coords:
        return None
    numbers = np.atleast_1d(data.coords["band"].values)
    return numbers.tolist() if numbers.dtype.kind in "iu" and numbers.shape == (count,) else None


def of_dataarray(data: Any, y_name: str, x_name: str, count: int, words: Mapping[str, Any]) -> Found:
    """What a DataArray says of itself, in rioxarray's and xrspatial's ways; what the caller gives is not looked for.

    Scales and offsets are those of its attributes: samples that are not unpacked yet.
    """
    attrs, mapping = data.attrs, grid_mapping(data)
    names = _listed(data, "long_name", count)
    if names is None or names == "":
        # xarray names a DataArray after the dask array inside it; dask's generated names describe no band.
        names = None if DASK_NAME.fullmatch(str(data.name)) else data.name
    point = {"point": "Point", "area": "Area"}.get(str(attrs.get("raster_type", "")).lower())
    colormap = attrs.get("colormap")
    gcps = control_points(mapping.get("gcps"))
    transform = None
    if words["transform"] is None and not gcps:
        transform = found_transform(data, y_name, x_name, recalc=words["recalc_transform"])
    units = _listed(data, "units", count)
    scales = _listed(data, "scales" if "scales" in attrs else "scale_factor", count)
    offsets = _listed(data, "offsets" if "offsets" in attrs else "add_offset", count)
    return Found(
        crs=found_crs(data) if words["crs"] is None else None,
        transform=transform,
        nodata=found_nodata(data),
        area_or_point=attrs.get("AREA_OR_POINT") or point,
        gcps=gcps,
        rpcs=coefficients(mapping.get("rpcs")),
        tags=found_tags(attrs),
        descriptions=per_band("long_name", names if names is None else _texts(names), count),
        units=per_band("units", _texts(units) if units else None, count),
        scales=_numbers("scales", scales, count, 1.0),
        offsets=_numbers("offsets", offsets, count, 0.0),
        band_tags=_band_tags(_listed(data, "band_tags", count), count),
        palette=palette_of(colormap) if colormap is not None and count == 1 else None,
    )


def _texts(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return [None if item is None or item == "" else str(item) for item in value]
    return str(value)


def _numbers(name: str, value: Any, count: int, neutral: float) -> list[float] | None:
    values = per_band(name, value, count)
    if values is None or all(float(item) == neutral for item in values):
        return None
    return [float(item) for item in values]


def _band_tags(given: Any, count: int) -> list[dict[str, str]] | None:
    if not isinstance(given, (list, tuple)):
        return None
    tags = [found_tags(item).get("", {}) for item in given]
    # A name and a description of a band stand in its description.
    tags = [{key: value for key, value in item.items() if key != "long_name"} for item in tags]
    return tags if len(tags) == count and any(tags) else None


@dataclass(frozen=True)
class Packing:
    """How samples that were unpacked when they were read are stored."""

    dtype: np.dtype
    # One for each band; None where there is nothing to undo.
    scales: list[float] | None = None
    offsets: list[float] | None = None

    @property
    def scaled(self) -> bool:
        return self.scales is not None or self.offsets is not None


def packing(data: Any, dtype: np.dtype | None, count: int, *, pack: bool) -> Packing:
    """How a DataArray is stored: as rioxarray, what `encoding` says was done on reading is undone."""
    if not pack:
        return Packing(dtype or data.dtype)
    encoding = data.encoding
    found: dict[str, list[float] | None] = {}
    for many, one, neutral in (("scales", "scale_factor", 1.0), ("offsets", "add_offset", 0.0)):
        value = encoding.get(many) if encoding.get(many) is not None else encoding.get(one)
        chosen = _chosen(data, value, count)
        if value is not None and chosen is None:
            raise UsageError(
                f"encoding[{many!r}] has {len(value)} values and the raster {count} bands: keep the coordinate 'band' "
                "that tells which bands these are, or give pack=False"
            )
        found[many] = _numbers(many, chosen, count, neutral)
    return Packing(np.dtype(dtype or encoding.get("dtype") or data.dtype), **found)


def merged(found: Found, given: Found) -> Found:
    """What the caller gives goes before what was found; tags are put together."""
    values = {
        name: getattr(given, name) if getattr(given, name) is not None else value for name, value in vars(found).items()
    }
    tags = {domain: dict(items) for domain, items in found.tags.items()}
    for domain, items in given.tags.items():
        tags.setdefault(domain, {}).update(items)
    return Found(**{**values, "tags": tags})
