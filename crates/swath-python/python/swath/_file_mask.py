"""`FileMask`: the mask of the file that an array was read from, which `to_geotiff` writes with the same pixels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ._errors import warn
from ._georef import Transform, window_transform
from ._stream import to_host

if TYPE_CHECKING:
    from ._lazy import Reader

# Masks of up to so many bytes are read before the write begins, so that it may replace the file that holds them.
SMALL_MASK = 64 << 20
# Distance in pixels within which a grid counts as aligned with the file's, and relative difference of pixel sizes.
_ALIGNED = 1e-3
_SAME_SIZE = 1e-6
# Where a DataArray keeps the mask.
ENCODING = "file_mask"


@dataclass(frozen=True, eq=False)
class FileMask:
    """The mask of a window of a file. Indexing with slices of rows and columns reads bytes, 0 for hidden pixels."""

    reader: Reader
    # Transform of the window's first pixel; the identity where the file has none.
    transform: Transform
    # Whether pixels that the mask hides became NaN when the samples were read.
    applied: bool
    # Whether the mask says how opaque a pixel is.
    soft: bool

    def __repr__(self) -> str:
        rows, columns = self.shape
        return f"<mask of {rows} rows and {columns} columns>"

    def __deepcopy__(self, _memo: Any) -> FileMask:
        # Immutable, and the handle in it cannot be copied.
        return self

    @property
    def shape(self) -> tuple[int, int]:
        return self.reader.window[3], self.reader.window[2]

    def part(self, transform: Transform | None, height: int, width: int) -> FileMask | None:
        """Returns the mask of the pixels that a raster has; None where they are not pixels of the file.

        `transform` is that of the raster, None where it has none.
        """
        if (height, width) == self.shape and (transform is None or _same(transform, self.transform)):
            return self
        if transform is None:
            return None
        a, b, c, d, e, f = self.transform
        size = a * e - b * d
        if not size:
            return None
        across, down = transform[2] - c, transform[5] - f
        column, row = round((e * across - b * down) / size), round((a * down - d * across) / size)
        if not _same(transform, window_transform(self.transform, column, row)):
            return None
        if column < 0 or row < 0 or column + width > self.shape[1] or row + height > self.shape[0]:
            return None
        x, y, _, _ = self.reader.window
        reader = replace(self.reader, window=(x + column, y + row, width, height))
        return replace(self, reader=reader, transform=transform)

    def __getitem__(self, key: Any) -> np.ndarray:
        rows, columns = key if isinstance(key, tuple) else (key, slice(None))
        height, width = self.shape
        top, bottom, _ = rows.indices(height)
        left, right, _ = columns.indices(width)
        x, y, _, _ = self.reader.window
        place = (x + left, y + top, right - left, bottom - top)
        handle = self.reader.opened()
        return np.asarray(handle.read_mask(place, self.reader.overview, threads=self.reader.threads))

    def read(self) -> np.ndarray | FileMask:
        """Returns the bytes of a small mask; a large one is read while it is written."""
        height, width = self.shape
        return self[:] if height * width <= SMALL_MASK else self


def _same(one: Transform, other: Transform) -> bool:
    """Whether two transforms place pixels alike, as far as rounded coordinates can tell."""
    a, b, _, d, e, _ = other
    across, down = abs(a) + abs(b), abs(d) + abs(e)
    sizes = (across, across, _ALIGNED * across / _SAME_SIZE, down, down, _ALIGNED * down / _SAME_SIZE)
    return all(abs(left - right) <= _SAME_SIZE * size for left, right, size in zip(one, other, sizes))


def mask_to_write(data: Any, samples: Any, axes: str, transform: Transform | None, *, computed: bool) -> Any:
    """Returns the mask to write with an array: a `FileMask`, bytes, or None.

    Parameters
    ----------
    data, samples, axes
        The DataArray, its samples, and which of their axes are rows, columns and bands.
    transform
        Where its first pixel lies; None where that is unknown.
    computed
        Whether the samples are a dask array, which can be looked at only during the write.
    """
    found = data.encoding.get(ENCODING)
    if not isinstance(found, FileMask):
        return None
    sizes = {"b": 1, **dict(zip(axes, samples.shape))}
    part = found.part(transform, sizes["y"], sizes["x"])
    if part is None or sizes["b"] > len(found.reader.bands):
        warn(
            "the mask of the file is left out: the array has other pixels than were read from it; give mask= an array "
            "of rows and columns, or mask=False"
        )
        return None
    if not found.applied:
        return part
    if computed:
        warn(
            "the mask of the file is left out: reading made NaN of the pixels that it hides, and a dask array may have "
            "others by now; give mask= or nodata=, or read with masked=False"
        )
        return None
    return _hidden(samples, axes, part)


def _hidden(samples: Any, axes: str, part: FileMask) -> Any:
    """Returns the mask of samples that are NaN where the file's mask hid them; they may have got values since."""
    if not hasattr(samples, "all") and not isinstance(samples, np.ndarray):
        # Samples that are still in the file have not changed.
        return part
    missing = samples != samples
    hidden = missing.all(axes.index("b")) if "b" in axes else missing
    some = missing.any(axes.index("b")) if "b" in axes else missing
    if not bool(hidden.any()) or bool((hidden != some).any()):
        # Nothing is hidden, or a part of the bands, which a mask of the whole pixel cannot express.
        return None
    hidden = to_host(hidden)
    return part if part.soft and np.array_equal(part[:] == 0, hidden) else np.where(hidden, np.uint8(0), np.uint8(255))


def common(masks: Sequence[Any]) -> Any:
    """Returns the mask that all bands share; None where they do not."""
    first = masks[0]
    if all(mask is None for mask in masks):
        return None
    if all(_equal(first, mask) for mask in masks):
        return first
    warn("the masks of the files are left out: the variables do not share one; give mask=, or mask=False")
    return None


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, FileMask) and isinstance(other, FileMask):
        left, right = one.reader, other.reader
        return (left.key, left.window, left.overview) == (right.key, right.window, right.overview)
    return isinstance(one, np.ndarray) and isinstance(other, np.ndarray) and np.array_equal(one, other)
