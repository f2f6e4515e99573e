"""Makes samples those of a file: of its type, packed, and with its value where they are missing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ._errors import UsageError
from ._stream import on_device, to_host

# Types of TIFF that NumPy has no name for: the two parts of complex samples that are no usual floats.
PAIRS = {
    "complex_int16": np.dtype([("real", "i2"), ("imag", "i2")]),
    "complex_int32": np.dtype([("real", "i4"), ("imag", "i4")]),
    "complex_float16": np.dtype([("real", "f2"), ("imag", "f2")]),
}
ALIASES = {"cint16": "complex_int16", "cint32": "complex_int32"}


def type_of(dtype: Any) -> np.dtype:
    """A type of samples, in NumPy's words or in rasterio's."""
    word = ALIASES.get(str(dtype).lower(), str(dtype).lower())
    if word in PAIRS:
        return PAIRS[word]
    try:
        return np.dtype(dtype)
    except TypeError:
        raise UsageError(f'dtype={dtype!r} is no type of samples: give one such as "uint8" or "float32"') from None


def type_name(dtype: np.dtype) -> str:
    """What the engine calls a type."""
    return next((name for name, pair in PAIRS.items() if pair == dtype), str(dtype.name))


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
    # Whether fractions, which integers would lose, are an error.
    exact: bool = False

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
        if self.exact and has_fractions(rows):
            raise UsageError(
                f"samples have fractions, and their encoding says that they were {type_name(self.dtype)} in the file "
                f"they come from: {keep_or_round(rows.dtype, self.dtype)}"
            )
        if self.dtype.names:
            return self._pairs(rows, missing)
        # Always a copy: the input is not ours to fill.
        rows = self._whole(rows, missing, self.dtype) if self.dtype.kind in "iu" else rows.astype(self.dtype)
        if missing is not None:
            rows[missing] = self.fill
        return rows

    def _pairs(self, rows: Any, missing: Any) -> np.ndarray:
        """Complex samples as pairs, for which only NumPy has a type."""
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
        """Which samples are missing, or None where none are."""
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
                "nodata=, or dtype= a type of floats"
            )
        return missing

    def _whole(self, rows: Any, missing: Any, dtype: np.dtype) -> Any:
        """Samples as integers: those next to them, and none that would come out as another."""
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
        # The largest integer may not be a float, the one after it is.
        if low < limits.min or high >= limits.max + 1:
            raise UsageError(
                f"samples from {low} to {high} do not fit {type_name(self.dtype)} ({limits.min} to {limits.max}): clip "
                "them, or give dtype= a type that holds them"
            )
        return rows.astype(dtype)


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


# Samples that are looked at together: few enough for a processor's cache.
LOOK = 1 << 17


def has_fractions(samples: Any) -> bool:
    """Whether samples in memory are no integers; missing ones (NaN) do not count."""
    if samples.dtype.kind == "c":
        return has_fractions(samples.real) or has_fractions(samples.imag)
    if samples.dtype.kind != "f" or not samples.size:
        return False
    if samples.ndim > 1 and samples.size > LOOK:
        step = max(1, LOOK * len(samples) // samples.size)
        parts = (samples[start : start + step] for start in range(0, len(samples), step))
        return any(has_fractions(part[0] if len(part) == 1 else part) for part in parts)
    whole = np.rint(samples) == samples
    return not bool(whole.all()) and bool((~whole & (samples == samples)).any())


def keep_or_round(held: np.dtype, stored: np.dtype) -> str:
    """What to type for samples with fractions that were integers in their file."""
    return f'give dtype="{held.newbyteorder("=").name}" to keep them, or dtype="{type_name(stored)}" to round them'
