"""Makes samples those of a file: of its type, packed, and with its value where they are missing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ._errors import UsageError
from ._stream import on_device


@dataclass(frozen=True)
class Convert:
    """Makes samples those of the file: packed, of its type, and with its value where they are missing."""

    dtype: np.dtype
    # What missing samples become.
    fill: Any = None
    scale: float = 1.0
    offset: float = 0.0
    # Whether samples that are no numbers are missing; as integers they always are.
    nan: bool = False
    # A value that says that a sample is missing, other than the file's.
    old: Any = None

    def __call__(self, rows: Any) -> Any:
        if on_device(rows) and not hasattr(rows, "astype"):
            # A tensor of torch has other methods than an array; CuPy works on the same memory.
            import cupy

            rows = cupy.from_dlpack(rows)
        missing = self._missing(rows)
        if isinstance(rows, np.ma.MaskedArray):
            rows = rows.data
        if self.scale != 1.0 or self.offset != 0.0:
            rows = (rows.astype("c16" if rows.dtype.kind == "c" else "f8") - self.offset) / self.scale
        # Always a copy: the input is not ours to fill.
        rows = self._whole(rows, missing) if self.dtype.kind in "iu" else rows.astype(self.dtype)
        if missing is not None:
            rows[missing] = self.fill
        return rows

    def _missing(self, rows: Any) -> Any:
        """Which samples are missing, or None where none are."""
        found = []
        if isinstance(rows, np.ma.MaskedArray):
            found.append(np.ma.getmaskarray(rows))
            rows = rows.data
        if rows.dtype.kind in "fc" and (self.nan or self.dtype.kind in "iu"):
            found.append(rows != rows)
        if self.old is not None:
            found.append(rows == self.old)
        if not found:
            return None
        missing = found[0]
        for more in found[1:]:
            missing = missing | more
        if not missing.any():
            return None
        if self.fill is None:
            raise UsageError(
                f"samples are missing (NaN or masked), and {self.dtype} has no value for them: give nodata=, or dtype= "
                "a type of floats"
            )
        return missing

    def _whole(self, rows: Any, missing: Any) -> Any:
        """Samples as integers: those next to them, and none that would come out as another."""
        if np.can_cast(rows.dtype, self.dtype) or not rows.size:
            return rows.astype(self.dtype)
        if rows.dtype.kind == "f":
            rows = np.rint(rows)
        elif missing is not None:
            rows = rows.copy()
        if missing is not None:
            rows[missing] = 0
        low, high = rows.min().item(), rows.max().item()
        limits = np.iinfo(self.dtype)
        # The largest integer may not be a float, the one after it is.
        if low < limits.min or high >= limits.max + 1:
            raise UsageError(
                f"samples from {low} to {high} do not fit {self.dtype} ({limits.min} to {limits.max}): clip them, or "
                "give dtype= a type that holds them"
            )
        return rows.astype(self.dtype)


@dataclass(frozen=True)
class ConvertBands:
    """Converts bands that are packed each in a way of its own."""

    bands: tuple[Convert, ...]
    axis: int
    # The first band of each chunk along the axis.
    firsts: tuple[int, ...]

    def __call__(self, rows: Any, block_id: tuple[int, ...] | None = None) -> Any:
        first = self.firsts[block_id[self.axis]] if block_id else 0
        before = (slice(None),) * self.axis
        parts = [
            self.bands[first + band](rows[(*before, slice(band, band + 1))]) for band in range(rows.shape[self.axis])
        ]
        return np.concatenate(parts, axis=self.axis)
