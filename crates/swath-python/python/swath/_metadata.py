"""Finds a raster's metadata: in arguments, and in what rioxarray and xrspatial leave on xarray's objects."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from . import _swath
from ._errors import UsageError

Transform = tuple[float, float, float, float, float, float]

Y_NAMES = ("y", "lat", "latitude", "row")
X_NAMES = ("x", "lon", "longitude", "col")
BAND_NAMES = ("band", "bands", "channel")

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
    if math.isfinite(value) and abs(value) > float(np.finfo(single).max):
        raise UsageError(f"nodata={nodata!r} is beyond what {dtype} holds")
    return value


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
    for y_name, x_name in zip(Y_NAMES, X_NAMES):
        if y_name in names and x_name in names:
            return y_name, x_name
    found: dict[str, str] = {}
    standard = {"latitude": "Y", "projection_y_coordinate": "Y", "longitude": "X", "projection_x_coordinate": "X"}
    for name in names:
        attrs = data.coords[name].attrs if name in data.coords else {}
        axis = str(attrs.get("axis", "")).upper() or standard.get(str(attrs.get("standard_name", "")).lower())
        if axis in ("X", "Y"):
            found[axis] = name
    if len(found) == 2:
        return found["Y"], found["X"]
    rest = [name for name in names if name.lower() not in BAND_NAMES]
    if len(rest) == 2:
        return rest[0], rest[1]
    raise UsageError(
        f"dimensions {tuple(names)}: which are rows and columns? Rename them to y and x, and a third one to band"
    )


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
    if stored is not None and (not recalc or stored[1] or stored[3]):
        return _unless_identity(stored)
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
    return None if (a, b, c, d, abs(e), f) == (1.0, 0.0, 0.0, 0.0, 1.0, 0.0) else transform


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


def of_dataarray(data: Any, y_name: str, x_name: str, count: int, words: Mapping[str, Any]) -> Found:
    """What a DataArray says of itself, in rioxarray's and xrspatial's ways; what the caller gives is not looked for."""
    attrs, mapping = data.attrs, grid_mapping(data)
    either = {**data.encoding, **attrs}
    names = attrs.get("long_name")
    if names is None or names == "":
        names = data.name
    band_tags = attrs.get("band_tags")
    point = {"point": "Point", "area": "Area"}.get(str(attrs.get("raster_type", "")).lower())
    colormap = attrs.get("colormap")
    gcps = control_points(mapping.get("gcps"))
    transform = None
    if words["transform"] is None and not gcps:
        transform = found_transform(data, y_name, x_name, recalc=words["recalc_transform"])
    return Found(
        crs=found_crs(data) if words["crs"] is None else None,
        transform=transform,
        nodata=found_nodata(data),
        area_or_point=attrs.get("AREA_OR_POINT") or point,
        gcps=gcps,
        rpcs=coefficients(mapping.get("rpcs")),
        tags=found_tags(attrs),
        descriptions=per_band("long_name", names if names is None else _texts(names), count),
        units=per_band("units", _texts(attrs["units"]) if attrs.get("units") else None, count),
        scales=_numbers("scales", either.get("scales", either.get("scale_factor")), count, 1.0),
        offsets=_numbers("offsets", either.get("offsets", either.get("add_offset")), count, 0.0),
        band_tags=_band_tags(band_tags, count),
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


def packing(
    data: Any, dtype: np.dtype | None, nodata: Any, *, pack: bool = True
) -> tuple[np.dtype, Callable[[Any], Any] | None]:
    """The type in which a DataArray is stored, and what its samples go through on the way there.

    As rioxarray: what was unpacked or masked when it was read (`encoding` says so) is packed again.
    """
    encoding = data.encoding if pack else {}
    stored = np.dtype(dtype if dtype is not None else encoding.get("dtype") or data.dtype)
    words = {name: encoding[name] for name in ("scale_factor", "add_offset") if encoding.get(name) is not None}
    if stored == data.dtype and not words:
        return stored, None
    if data.dtype.kind != "f":
        return stored, lambda block: block.astype(stored)
    if nodata is not None:
        words["_FillValue"] = nodata
    return stored, Pack({**words, "dtype": stored})


@dataclass(frozen=True)
class Pack:
    """Scales, rounds and fills samples as xarray does for files."""

    encoding: dict[str, Any]

    def __call__(self, block: Any) -> Any:
        import xarray
        from xarray.conventions import encode_cf_variable

        dims = [f"axis_{number}" for number in range(block.ndim)]
        packed = encode_cf_variable(xarray.Variable(dims, block, encoding=dict(self.encoding)))
        return packed.data.astype(self.encoding["dtype"])


def merged(found: Found, given: Found) -> Found:
    """What the caller gives goes before what was found; tags are put together."""
    values = {
        name: getattr(given, name) if getattr(given, name) is not None else value for name, value in vars(found).items()
    }
    tags = {domain: dict(items) for domain, items in found.tags.items()}
    for domain, items in given.tags.items():
        tags.setdefault(domain, {}).update(items)
    return Found(**{**values, "tags": tags})
