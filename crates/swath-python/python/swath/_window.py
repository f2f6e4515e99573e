"""Windows of pixels, in every form that users write them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ._errors import UsageError


class Window(NamedTuple):
    """A rectangle of pixels: first column, first row, columns, rows.

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


def _whole(value: Any, what: str) -> int:
    number = round(float(value))
    if abs(number - float(value)) > 1e-6:
        raise UsageError(f"window: {what} is {value}, which is no whole pixel")
    return number


def _range(part: Any, length: int) -> tuple[int, int]:
    if isinstance(part, slice):
        if part.step not in (None, 1):
            raise UsageError(f"window: a step of {part.step} cannot be read")
        start, stop, _ = part.indices(length)
        return start, stop
    start, stop = part
    return int(start), int(stop)


def to_pixels(window: Any, width: int, height: int) -> Pixels:
    """First column, first row, columns and rows of a window that has to lie in an image of this size.

    A plain tuple of four is ``(row_start, col_start, row_stop, col_stop)``, as xarray-spatial has it; rasterio's
    windows, pairs of ranges ``((row_start, row_stop), (col_start, col_stop))`` and pairs of slices are taken too.
    """
    if isinstance(window, Window):
        x, y, columns, rows = (int(value) for value in window)
    elif hasattr(window, "col_off"):
        x, y = _whole(window.col_off, "col_off"), _whole(window.row_off, "row_off")
        columns, rows = _whole(window.width, "width"), _whole(window.height, "height")
    elif isinstance(window, Sequence) and len(window) == 4:
        top, left, bottom, right = (int(value) for value in window)
        x, y, columns, rows = left, top, right - left, bottom - top
    elif isinstance(window, Sequence) and len(window) == 2:
        (top, bottom), (left, right) = _range(window[0], height), _range(window[1], width)
        x, y, columns, rows = left, top, right - left, bottom - top
    else:
        raise UsageError(
            f"window: {window!r} is no window; give swath.Window(x, y, width, height), "
            "(row_start, col_start, row_stop, col_stop) or ((row_start, row_stop), (col_start, col_stop))"
        )
    if x < 0 or y < 0 or columns < 1 or rows < 1 or x + columns > width or y + rows > height:
        raise UsageError(
            f"window: columns {x} to {x + columns} and rows {y} to {y + rows} are not inside the image of "
            f"{width} columns and {height} rows"
        )
    return x, y, columns, rows
