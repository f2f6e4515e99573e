"""Reads windows of pixels and boxes of coordinates in every form that callers give them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from . import _swath
from ._errors import UsageError
from ._metadata import crs_text


class Window(NamedTuple):
    """A rectangle of pixels: first column `x`, first row `y`, `width` columns and `height` rows.

    Examples
    --------
    >>> import swath
    >>> swath.Window(512, 0, 256, 128)
    Window(x=512, y=0, width=256, height=128)
    """

    x: int
    y: int
    width: int
    height: int


Pixels = tuple[int, int, int, int]
Box = tuple[float, float, float, float]

_FORMS = (
    "give swath.Window(x, y, width, height), (row_start, col_start, row_stop, col_stop) or "
    "((row_start, row_stop), (col_start, col_stop))"
)


def _whole(start: Any, length: Any, what: str) -> tuple[int, int]:
    """Returns first pixel and number of pixels of a range that may begin or end inside pixels, as rasterio reads it.

    The length is rounded to the nearest whole number. The first pixel is the one that holds the centre of the first
    sample.
    """
    if type(start) is int and type(length) is int and length > 0:
        return start, length
    if isinstance(start, (str, bytes, bool)) or isinstance(length, (str, bytes, bool)):
        raise TypeError("not a number")
    start, length = float(start), float(length)
    if not (math.isfinite(start) and math.isfinite(length)):
        raise UsageError(f"window: {what} from {start} to {start + length} are not pixels: give finite numbers")
    pixels = math.floor(length + 0.5)
    if pixels < 1:
        raise UsageError(f"window: {what} from {start} to {start + length} hold no whole pixel")
    return math.floor(start + 0.5 * length / pixels), pixels


def _range(part: Any, length: int, boundless: bool) -> tuple[Any, Any]:
    if not isinstance(part, slice):
        start, stop = part
        return start, stop
    if part.step not in (None, 1):
        raise UsageError(f"window: a step of {part.step} cannot be read")
    if boundless:
        # Negative numbers are pixels before the image, not pixels counted from its end.
        return 0 if part.start is None else part.start, length if part.stop is None else part.stop
    start, stop, _ = part.indices(length)
    return start, stop


def _edges(window: Any, width: int, height: int, boundless: bool) -> tuple[Any, ...]:
    """Returns first column, first row, columns and rows as given; raises ValueError for anything but a window."""
    if isinstance(window, Window):
        return window
    if hasattr(window, "col_off"):
        return window.col_off, window.row_off, window.width, window.height
    parts = window.tolist() if isinstance(window, np.ndarray) else window
    if len(parts) == 2:
        (top, bottom), (left, right) = _range(parts[0], height, boundless), _range(parts[1], width, boundless)
    else:
        top, left, bottom, right = parts
    # Differences of NumPy's integers wrap around.
    edges = (each.item() if isinstance(each, np.generic) else each for each in (top, left, bottom, right))
    top, left, bottom, right = edges
    return left, top, right - left, bottom - top


def to_pixels(window: Any, width: int, height: int, *, boundless: bool = False) -> Pixels:
    """Returns first column, first row, columns and rows of a window, which must be inside the image unless `boundless`.

    Takes a `Window`, a tuple or array ``(row_start, col_start, row_stop, col_stop)`` as in xarray-spatial, rasterio's
    windows, pairs of ranges ``((row_start, row_stop), (col_start, col_stop))`` and pairs of slices. Numbers may be
    NumPy's, and fractions: see :func:`_whole`.
    """
    try:
        left, top, across, down = _edges(window, width, height, boundless)
        (x, columns), (y, rows) = _whole(left, across, "columns"), _whole(top, down, "rows")
    except UsageError:
        raise
    except (AttributeError, OverflowError, TypeError, ValueError):
        advice = "give it as bbox=" if hasattr(window, "bounds") else _FORMS
        raise UsageError(f"window: {window!r} is not a window; {advice}") from None
    if not boundless and (x < 0 or y < 0 or x + columns > width or y + rows > height):
        raise UsageError(
            f"window: columns {x} to {x + columns} and rows {y} to {y + rows} are not inside the image of "
            f"{width} columns and {height} rows"
        )
    return x, y, columns, rows


def listed_windows(windows: Any) -> list[Any]:
    """Returns several windows as a list; raises for a single window, or for anything else."""
    try:
        listed = None if isinstance(windows, (str, bytes, Window, Mapping)) else list(windows)
    except TypeError:
        listed = None
    if listed is None or not all(hasattr(each, "col_off") or _is_nested(each) for each in listed):
        raise UsageError(f"windows={windows!r}: give a list of windows; {_FORMS}")
    return listed


def _is_nested(window: Any) -> bool:
    """Whether a window has four numbers, or two ranges."""
    size = len(window) if hasattr(window, "__len__") and not isinstance(window, (str, bytes)) else 0
    return size == 4 or (size == 2 and all(isinstance(each, slice) or hasattr(each, "__len__") for each in window))


def to_box(bbox: Any, bbox_crs: Any, crs: dict[str, Any] | None) -> Any:
    """Returns ``(west, south, east, north)`` in the file's reference system, `crs` as in `metadata()`.

    Takes four numbers, and objects with `bounds` (shapely's geometries, datasets) or `total_bounds` (geopandas'
    tables), whose `crs` applies where `bbox_crs` is not given. A box in another reference system becomes the box around
    its edges, each of which is transformed at 21 points. None stays None.
    """
    if bbox is None:
        if bbox_crs is not None:
            raise UsageError("bbox_crs is the reference system of bbox=, and there is no bbox: give it")
        return None
    if isinstance(bbox, Sequence | np.ndarray):
        box = bbox
    else:
        box = getattr(bbox, "total_bounds", getattr(bbox, "bounds", bbox))
        bbox_crs = getattr(bbox, "crs", None) if bbox_crs is None else bbox_crs
    if bbox_crs is None:
        return box
    if not crs or not (crs["code"] or crs["wkt"]):
        raise UsageError("bbox_crs needs a file with a reference system, and this one has none: leave out bbox_crs")
    text = crs_text(bbox_crs)
    if text is None:
        raise UsageError(f"bbox_crs={bbox_crs!r} is not a reference system: give an EPSG code, WKT or a pyproj CRS")
    given = _swath.crs_of(text)
    if given == crs or (given["code"] and given["code"] == crs["code"]):
        return box
    try:
        from pyproj import Transformer
        from pyproj.exceptions import ProjError
    except ImportError:
        raise UsageError(
            "bbox_crs differs from the file's reference system, so pyproj is needed: `pip install pyproj`, or give "
            f"bbox in the file's ({crs['code'] or crs['name']})"
        ) from None
    try:
        west, south, east, north = (float(value) for value in box)
        convert = Transformer.from_crs(text, crs["code"] or crs["wkt"], always_xy=True)
        found = convert.transform_bounds(west, south, east, north, densify_pts=21, errcheck=True)
    except (TypeError, ValueError):
        raise UsageError(f"bbox is {bbox!r}: give four numbers (west, south, east, north)") from None
    except ProjError as error:
        raise UsageError(
            f"bbox {tuple(box)!r} of bbox_crs={bbox_crs!r} cannot be transformed to the file's system: {error}"
        ) from None
    if found[0] > found[2]:
        raise UsageError(
            f"bbox {tuple(box)!r} of bbox_crs={bbox_crs!r} crosses the antimeridian in the file's system: read the "
            "parts on either side"
        )
    return found
