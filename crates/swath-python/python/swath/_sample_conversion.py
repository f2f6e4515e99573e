"""Converts samples to those of a file: its type, its scale and offset, its nodata value."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ._errors import UsageError
from ._stream import on_device, to_host

# Complex sample types that NumPy lacks, as pairs of their parts.
PAIRS = {
    "complex_int16": np.dtype([("real", "i2"), ("imag", "i2")]),
    "complex_int32": np.dtype([("real", "i4"), ("imag", "i4")]),
    "complex_float16": np.dtype([("real", "f2"), ("imag", "f2")]),
}
ALIASES = {"cint16": "complex_int16", "cint32": "complex_int32"}


def type_of(dtype: Any) -> np.dtype:
    """Returns a sample type, by NumPy's name or by rasterio's."""
    name = ALIASES.get(str(dtype).lower(), str(dtype).lower())
    if name in PAIRS:
        return PAIRS[name]
    try:
        if dtype is None:
            raise TypeError("None means float64 to NumPy")
        return np.dtype(dtype)
    except (TypeError, ValueError):
        raise UsageError(f'dtype={dtype!r} is not a sample type: give one such as "uint8" or "float32"') from None


def type_name(dtype: np.dtype) -> str:
    """Returns the engine's name of a sample type."""
    return next((name for name, pair in PAIRS.items() if pair == dtype), str(dtype.name))


@dataclass(frozen=True)
class Convert:
    """Converts samples: undoes scale and offset, casts to the type of the file, and sets missing samples to nodata."""

    dtype: np.dtype
    # Value of missing samples.
    fill: Any = None
    scale: float = 1.0
    offset: float = 0.0
    # Whether NaN means missing; for an integer type it always does.
    nan: bool = False
    # Another value that means missing: the nodata value of the source.
    old: Any = None
    # Whether fractions, which an integer type would lose, are an error; those of unscaled samples may be rounding.
    exact: bool = False

    def __call__(self, rows: Any) -> Any:
        if on_device(rows) and not hasattr(rows, "astype"):
            # A torch tensor lacks the methods of an array; CuPy works on the same memory.
            import cupy

            rows = cupy.from_dlpack(rows)
        missing = self._missing(rows)
        if isinstance(rows, np.ma.MaskedArray):
            rows = rows.data
        held = rows.dtype
        if self.exact and self.has_fractions(rows):
            packed = f", with scale {self.scale} and offset {self.offset}," if self._scaled else ""
            raise UsageError(
                f"samples have fractions, and their encoding says that they were {type_name(self.dtype)}{packed} in "
                f"their file: {keep_or_round(held, self.dtype)}"
            )
        if self._scaled:
            rows = self._unscaled(rows)
        if self.dtype.names:
            return self._pairs(rows, missing)
        # Always a copy: the caller's array must not change.
        rows = self._whole(rows, missing, self.dtype) if self.dtype.kind in "iu" else rows.astype(self.dtype)
        if missing is not None:
            rows[missing] = self.fill
        return rows

    @property
    def _scaled(self) -> bool:
        return self.scale != 1.0 or self.offset != 0.0

    def _unscaled(self, rows: Any) -> Any:
        return (rows.astype("c16" if rows.dtype.kind == "c" else "f8") - self.offset) / self.scale

    def has_fractions(self, rows: Any) -> bool:
        """Whether samples are not whole numbers in the file's units, even if reading and scaling rounded them."""
        if not self._scaled:
            return has_fractions(rows)
        if rows.dtype.kind == "c":
            return self.has_fractions(rows.real) or self.has_fractions(rows.imag)
        return any(self._is_fractional(part) for part in _parts(rows))

    def _is_fractional(self, rows: Any) -> bool:
        # Reading scaled in 32 bits where these hold the type of the file. It rounds the scale, the product, the offset
        # and the sum: at most 1.5 epsilons of what is added.
        stored = self.dtype["real"] if self.dtype.names else self.dtype
        epsilon = max(np.finfo(rows.dtype).eps, np.finfo(np.float32 if stored.itemsize <= 2 else np.float64).eps)
        slack = 4.0 * float(epsilon) * (abs(rows) + abs(self.offset)) / abs(self.scale)
        unscaled = self._unscaled(rows)
        # Comparisons with NaN are false.
        return bool((abs(unscaled - np.rint(unscaled)) > slack).any())

    def _pairs(self, rows: Any, missing: Any) -> np.ndarray:
        """Returns complex samples as pairs, a type that only NumPy has."""
        rows = to_host(rows)
        missing = None if missing is None else to_host(missing)
        pairs = np.empty(rows.shape, self.dtype)
        for name in ("real", "imag"):
            part, dtype = getattr(rows, name), self.dtype[name]
            pairs[name] = self._whole(part, missing, dtype) if dtype.kind == "i" else part.astype(dtype)
        if missing is not None:
            pairs["real"][missing], pairs["imag"][missing] = self.fill, 0
        return pairs

    @property
    def _integers(self) -> bool:
        return self.dtype.kind in "iu" or (self.dtype.names is not None and self.dtype["real"].kind == "i")

    def _missing(self, rows: Any) -> Any:
        """Returns which samples are missing, or None where none are."""
        found = []
        if isinstance(rows, np.ma.MaskedArray):
            found.append(np.ma.getmaskarray(rows))
            rows = rows.data
        if rows.dtype.kind in "fc" and (self.nan or self._integers):
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
                f"samples are missing (NaN or masked), and {type_name(self.dtype)} has no value for them: give "
                "nodata=, or dtype= a float type"
            )
        return missing

    def _whole(self, rows: Any, missing: Any, dtype: np.dtype) -> Any:
        """Returns samples rounded to integers; raises for samples outside the range of the type."""
        if np.can_cast(rows.dtype, dtype) or not rows.size:
            return rows.astype(dtype)
        if rows.dtype.kind == "f":
            rows = np.rint(rows)
        elif missing is not None:
            rows = rows.copy()
        if missing is not None:
            rows[missing] = 0
        low, high = rows.min().item(), rows.max().item()
        limits = np.iinfo(dtype)
        # A float may not hold the largest integer, but holds the one after it.
        if low < limits.min or high >= limits.max + 1:
            raise UsageError(
                f"samples from {low} to {high} do not fit {type_name(self.dtype)} ({limits.min} to {limits.max}): clip "
                "them, or give dtype= a type that holds them"
            )
        return rows.astype(dtype)


@dataclass(frozen=True)
class ConvertBands:
    """Converts bands that have different scales and offsets."""

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


# Number of samples examined together: few enough for a CPU cache.
EXAMINED_SAMPLES = 1 << 17


def has_fractions(samples: Any) -> bool:
    """Whether any sample in memory has a fraction; NaN does not count."""
    if samples.dtype.kind == "c":
        return has_fractions(samples.real) or has_fractions(samples.imag)
    return samples.dtype.kind == "f" and any(map(_is_fractional, _parts(samples)))


def _is_fractional(samples: Any) -> bool:
    whole = np.rint(samples) == samples
    return not bool(whole.all()) and bool((~whole & (samples == samples)).any())


def _parts(samples: Any) -> Iterator[Any]:
    """Yields samples some at a time."""
    if not samples.size:
        return
    if samples.ndim == 1 or samples.size <= EXAMINED_SAMPLES:
        yield samples
        return
    step = max(1, EXAMINED_SAMPLES * len(samples) // samples.size)
    for start in range(0, len(samples), step):
        part = samples[start : start + step]
        yield from _parts(part[0] if len(part) == 1 else part)


def keep_or_round(held: np.dtype, stored: np.dtype) -> str:
    """Returns advice for samples with fractions that were integers in their file."""
    return f'give dtype="{held.newbyteorder("=").name}" to keep them, or dtype="{type_name(stored)}" to round them'
