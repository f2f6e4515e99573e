"""Finds the grid of an xarray object: its spatial dimensions, its reference system and its transform."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from . import _swath
from ._errors import UsageError, warn
from ._georef import crs_attributes
from ._metadata import Transform, affine, crs_text, given_transform

# Lower-case names of dimensions, the most specific first.
Y_NAMES = ("y", "lat", "latitude", "northing", "row", "rows", "line", "lines")
X_NAMES = ("x", "lon", "long", "longitude", "easting", "col", "cols", "column", "columns", "sample", "samples")
BAND_NAMES = ("band", "bands", "channel")
# Dimensions that are never rows or columns.
OTHER_NAMES = frozenset(
    {
        *("time", "t", "date", "datetime", "day", "month", "year", "step", "wavelength", "variable"),
        *("z", "level", "lev", "height", "altitude", "depth", "pressure", "ensemble", "member", "realization"),
    }
)

# How messages name the attribute that holds a transform.
_ATTRIBUTE = "attrs['transform']"


def spatial_dims(data: Any) -> tuple[str, str]:
    """Returns the names of the dimensions that are rows and columns."""
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
    # Where only one of them is known, guessing the other could transpose the raster.
    if not y_name and not x_name and len(rest) == 2 and not any(_is_other(data, name) for name in rest):
        return rest[0], rest[1]
    raise UsageError(
        f"dimensions {tuple(names)}: which are rows and columns? Rename them to y and x, and a third one to band"
    )


def _named(names: Sequence[str], known: Sequence[str]) -> str | None:
    """Returns the first of the known names that a dimension has, ignoring case."""
    found = {name.lower(): name for name in reversed(names)}
    return next((found[word] for word in known if word in found), None)


def _is_other(data: Any, name: str) -> bool:
    dated = name in data.coords and data.coords[name].dtype.kind in "mM"
    return dated or name.lower() in OTHER_NAMES


def grid_mapping(data: Any) -> Mapping[str, Any]:
    """Returns the attributes of the coordinate that holds the reference system."""
    named = data.encoding.get("grid_mapping") or data.attrs.get("grid_mapping") or "spatial_ref"
    if named in data.coords:
        return data.coords[named].attrs
    for coordinate in data.coords.values():
        if coordinate.ndim == 0 and {"crs_wkt", "spatial_ref"} & set(coordinate.attrs):
            return coordinate.attrs
    return {}


def is_edited(data: Any, name: str) -> bool:
    """Whether an attribute that swath set on reading has another value now."""
    read = data.encoding.get("as_read")
    if not isinstance(read, Mapping) or name not in data.attrs:
        return False
    if name not in read:
        return True
    now, then = data.attrs[name], read[name]
    try:
        return not (now is then or now == then or (now != now and then != then))
    except ValueError:
        # An array, which reading never sets.
        return True


def is_cropped(data: Any, y_name: str, x_name: str) -> bool:
    """Whether an array that swath read has another number of rows or columns now."""
    read = data.encoding.get("as_read")
    size = read.get("size") if isinstance(read, Mapping) else None
    return size is not None and tuple(size) != (data.sizes[y_name], data.sizes[x_name])


def kept_by_rio(data: Any, name: str) -> Any:
    """Returns what `rio.set_crs` and `rio.set_nodata` set, which rioxarray keeps in its accessor."""
    accessor = (getattr(data, "_cache", None) or {}).get("rio")
    return getattr(accessor, name, None)


def same_crs(one: str, other: str) -> bool:
    """Whether two texts name the same reference system, as far as that can be known."""
    if one == other:
        return True
    first, second = _swath.crs_of(one), _swath.crs_of(other)
    if first["epsg"] and second["epsg"]:
        return bool(first["epsg"] == second["epsg"])
    # Reading turns the text of a file into another dialect of WKT, which may be less exact.
    texts = [crs_attributes(found).get("crs_wkt") for found in (first, second)]
    if texts[0] == texts[1] or texts[0] == other or texts[1] == one:
        return True
    try:
        import pyproj
    except ImportError:
        return bool(first["wkt"] == second["wkt"])
    try:
        # In a GeoTIFF x comes first, whatever the order of the axes.
        systems = pyproj.CRS.from_user_input(one), pyproj.CRS.from_user_input(other)
        return bool(systems[0].equals(systems[1], ignore_axis_order=True))
    except pyproj.exceptions.CRSError:
        return bool(first["wkt"] == second["wkt"])


def found_crs(data: Any) -> str | None:
    """Returns the reference system of an xarray object: the one that was set last, as far as that can be known."""
    if is_edited(data, "crs"):
        return crs_text(data.attrs["crs"])
    found = _stored_crs(data)
    kept = kept_by_rio(data, "_crs")
    text = crs_text(kept) if kept else None
    return found if text is None or (found is not None and same_crs(found, text)) else text


def _stored_crs(data: Any) -> str | None:
    mapping = grid_mapping(data)
    for attrs in (mapping, data.attrs):
        for name in ("spatial_ref", "crs_wkt", "crs"):
            if attrs.get(name) is not None and not isinstance(attrs[name], bool):
                found = crs_text(attrs[name])
                if attrs is mapping and found is not None:
                    _compare_crs_with_attribute(data, found)
                return found
    if "grid_mapping_name" in mapping:
        try:
            import pyproj
        except ImportError:
            raise UsageError(
                "only CF attributes give the reference system, and reading them needs pyproj: install it, or give crs="
            ) from None
        return pyproj.CRS.from_cf(dict(mapping)).to_wkt()
    return None


def _compare_crs_with_attribute(data: Any, found: str) -> None:
    """Warns of an `attrs["crs"]` that contradicts the coordinate: it was edited, and is not used."""
    stated = None if "as_read" in data.encoding else crs_text(data.attrs.get("crs"))
    if stated is not None and not same_crs(stated, found) and not same_crs(stated, _horizontal_part(found)):
        warn(
            f"attrs['crs'] is {crs_name(stated)}, and the coordinate that holds the reference system says "
            f"{_swath.crs_of(found)['name']}, which is written: give crs=, or delete the attribute"
        )


def _horizontal_part(text: str) -> str:
    """Returns a reference system without its heights: `attrs["crs"]` has the code of the horizontal part alone."""
    try:
        import pyproj
    except ImportError:
        return text
    try:
        system = pyproj.CRS.from_user_input(text)
    except pyproj.exceptions.CRSError:
        return text
    return system.sub_crs_list[0].to_wkt() if system.is_compound else text


def crs_name(text: str) -> str:
    """Returns the code of a reference system, or its name where it has no code."""
    found = _swath.crs_of(text)
    return found["code"] or found["name"] or text


def found_transform(data: Any, y_name: str, x_name: str, *, recalc: bool = True) -> Transform | None:
    """Returns the transform of an xarray object: the stored one where the coordinates agree with it, otherwise theirs.

    An attribute that was edited by hand takes precedence over both.
    """
    if is_edited(data, "transform"):
        return _edited_transform(data, y_name, x_name)
    stored = _stored_transform(data)
    if stored is not None and not recalc:
        return _unless_identity(stored)
    if stored is not None and (stored[1] or stored[3]):
        return _rotated(data, y_name, x_name, stored)
    if data.attrs.get("_xrspatial_no_georef"):
        return None
    y, x = (_axis(data, name) for name in (y_name, x_name))
    if y is None or x is None:
        return None if stored is None else _unless_identity(_of_all_pixels(data, y_name, x_name, stored))
    if stored is not None:
        a, _, c, _, e, f = stored
        if _agree(x, a, c) and _agree(y, e, f):
            _compare_with_attribute(data, stored, x, y)
            return _unless_identity(stored)
    a, c = _spacing(x, x_name, None if stored is None else stored[0])
    e, f = _spacing(y, y_name, None if stored is None else stored[4])
    return _unless_identity((a, 0.0, c, 0.0, e, f))


def _edited_transform(data: Any, y_name: str, x_name: str) -> Transform | None:
    """Returns the transform that was put into the attributes by hand."""
    edited = given_transform(data.attrs["transform"], _ATTRIBUTE)
    if edited is None:
        return None
    y, x = (_axis(data, name) for name in (y_name, x_name))
    a, _, c, _, e, f = edited
    if is_cropped(data, y_name, x_name) and not (x is None or y is None or (_agree(x, a, c) and _agree(y, e, f))):
        warn(
            f"attrs['transform'] is {edited}, which is written, and the coordinates of the pixels that were selected "
            "after reading say otherwise: delete the attribute to write what they say"
        )
    return _unless_identity(edited)


def _of_all_pixels(data: Any, y_name: str, x_name: str, stored: Transform) -> Transform:
    """Returns the transform of an array without coordinates; raises where it has lost pixels since it was read."""
    if not is_cropped(data, y_name, x_name):
        return stored
    rows, columns = data.encoding["as_read"]["size"]
    raise UsageError(
        f"the array has no coordinates, and {data.sizes[y_name]} x {data.sizes[x_name]} pixels of the "
        f"{rows} x {columns} that were read, so their place is unknown: give transform=, keep the coordinates, or read "
        "the part with window="
    )


def _compare_with_attribute(data: Any, stored: Transform, x: np.ndarray, y: np.ndarray) -> None:
    """Warns of an `attrs["transform"]` that contradicts unchanged coordinates: it was edited, and is not used."""
    if "as_read" in data.encoding or data.attrs.get("transform") is None:
        return
    a, _, c, _, e, f = stated = given_transform(data.attrs["transform"], _ATTRIBUTE) or stored
    if not (_agree(x, a, c) and _agree(y, e, f)):
        warn(
            f"attrs['transform'] is {stated}, and the coordinates say {stored}, which is written: give transform=, or "
            "delete the attribute"
        )


def _stored_transform(data: Any) -> Transform | None:
    text = grid_mapping(data).get("GeoTransform")
    if text is not None:
        numbers = str(text).replace(",", " ").split()
        if len(numbers) == 6:
            c, a, b, f, d, e = map(float, numbers)
            return affine((a, b, c, d, e, f))
    if data.attrs.get("transform") is not None:
        return given_transform(data.attrs["transform"], _ATTRIBUTE)
    return affine(data.attrs.get("rotated_affine"))


def _unless_identity(transform: Transform) -> Transform | None:
    """Returns None for the identity, which is not a georeference, and which GDAL does not store."""
    a, b, c, d, e, f = transform
    return None if (a, b, c, d, e, f) == (1.0, 0.0, 0.0, 0.0, 1.0, 0.0) else transform


def _rotated(data: Any, y_name: str, x_name: str, stored: Transform) -> Transform:
    """Returns the transform of a rotated raster, from its two-dimensional coordinates where it has them."""
    if not all(name in data.coords and set(data.coords[name].dims) == {y_name, x_name} for name in ("xc", "yc")):
        return _of_all_pixels(data, y_name, x_name, stored)
    xc, yc = (data.coords[name].transpose(y_name, x_name).values for name in ("xc", "yc"))
    a, b, c = _plane(xc, "xc", stored[:3])
    d, e, f = _plane(yc, "yc", stored[3:])
    return a, b, c, d, e, f


def _plane(values: np.ndarray, name: str, stored: tuple[float, float, float]) -> tuple[float, float, float]:
    """Returns steps along columns and rows, and the value at the outer corner, from coordinates of pixel centres."""
    height, width = values.shape
    rows, columns = (np.unique([0, size // 2, size - 1]) for size in values.shape)

    def agree(plane: tuple[float, float, float]) -> bool:
        # Selections keep complete rows and columns: if a few of them agree, all do.
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
    """Returns the tolerance of a coordinate: the rounding of its type, or a thousandth of a pixel."""
    rounding = np.finfo(values.dtype).eps if values.dtype.kind == "f" else 0.0
    return max(abs(step) * 1e-3, 4.0 * float(rounding) * float(np.max(np.abs(values), initial=0.0)))


def _agree(values: np.ndarray, step: float, origin: float) -> bool:
    expected = origin + (np.arange(values.size) + 0.5) * step
    return bool(np.all(np.abs(values - expected) <= _slack(values, step)))


def _spacing(values: np.ndarray, name: str, stored: float | None) -> tuple[float, float]:
    """Returns the size of a pixel and the outer edge of the first one, from coordinates of pixel centres."""
    if not np.all(np.isfinite(values)):
        raise UsageError(f"coordinate {name!r} has values that are not finite: give transform=, or drop the coordinate")
    first = float(values[0])
    if values.size == 1:
        if stored is None:
            raise UsageError(
                f"coordinate {name!r} has one value, which does not define the size of a pixel: give transform="
            )
        return stored, first - stored / 2
    step = (float(values[-1]) - first) / (values.size - 1)
    if step == 0.0 or not _agree(values, step, first - step / 2):
        raise UsageError(
            f"coordinate {name!r} is not evenly spaced, so no transform describes it: resample the raster to a regular "
            "grid, or give transform="
        )
    return step, first - step / 2
