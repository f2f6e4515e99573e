"""`Raster`: the common form of everything that can be written."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ._dataarray_metadata import Packing
from ._errors import UsageError
from ._metadata import Found, checked_nodata
from ._sample_conversion import Convert, ConvertBands, type_name
from ._stream import Block, Layout, on_device, starts
from ._write_options import WriteOptions


@dataclass
class Raster:
    """Samples to write, in memory (`blocks`) or a dask array (`lazy`), with their metadata."""

    layout: Layout
    found: Found
    blocks: list[Block] = field(default_factory=list)
    lazy: Any = None
    on_device: bool = False
    # Whether samples of another type than a palette takes are still its indices, whose mean has no meaning.
    indices: bool = False
    # The mask of the file that the samples were read from: a `FileMask`, or bytes.
    mask: Any = None
    # Number of rows to read at a time, where reading a part of a tile row decodes all of it.
    step: int | None = None


@dataclass(frozen=True)
class Unread:
    """Samples that xarray has not yet read from their file. Indexing reads only the rows of the index."""

    variable: Any
    # Whether to add an axis of one band in front.
    leading: bool
    # Whether the rows arrive in the memory of a GPU.
    on_device: bool

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(self.variable.dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        return (1, *self.variable.shape) if self.leading else tuple(self.variable.shape)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __getitem__(self, region: tuple[slice, ...]) -> Any:
        rows = self.variable[region[1:] if self.leading else region].data
        return rows[np.newaxis] if self.leading else rows


def is_dask(data: Any) -> bool:
    """Whether an array is a dask array."""
    module = sys.modules.get("dask.array")
    return module is not None and isinstance(data, module.Array)


def stored_type(dtype: np.dtype, current: np.dtype) -> np.dtype:
    """Returns the type that stores samples of `dtype`: bytes for booleans, native byte order for all."""
    if dtype.names and current.kind == "c":
        return dtype
    if dtype.kind == "b":
        return np.dtype(np.uint8)
    if dtype.kind not in "iufc" or dtype.itemsize > (16 if dtype.kind == "c" else 8):
        raise UsageError(
            f"{type_name(dtype)} cannot hold samples of {current} in a TIFF: give another dtype=, or cast them"
        )
    if current.kind == "c" and dtype.kind != "c":
        raise UsageError(f"{current} would lose its imaginary part as {dtype}: write .real, .imag or abs() of it")
    return dtype.newbyteorder("=")


def layout_of(shape: Sequence[int], axes: str, dtype: np.dtype) -> Layout:
    sizes = {"b": 1, **dict(zip(axes, shape))}
    return Layout(axes, sizes["b"], sizes["y"], sizes["x"], dtype)


def writable(data: Any) -> Any:
    """Returns the array itself where it can be written without a copy, otherwise as a NumPy array."""
    if hasattr(getattr(data, "_meta", data), "todense"):
        raise UsageError(f"{type(data).__module__}.{type(data).__name__} is sparse: call todense() on it first")
    if isinstance(data, np.ndarray) or is_dask(data) or on_device(data):
        return data
    try:
        if not hasattr(data, "__array__") and hasattr(data, "__dlpack__"):
            return np.from_dlpack(data)
        return np.asarray(data)
    except Exception as error:
        raise UsageError(
            f"{type(data).__module__}.{type(data).__name__} does not give its samples ({error}): convert it to a "
            "NumPy or CuPy array"
        ) from error


def conversions(
    current: np.dtype,
    packing: Packing,
    nodata: Any,
    options: WriteOptions,
    *,
    masked: bool = False,
    old: Any = None,
    exact: bool = False,
) -> tuple[Convert, ...]:
    """Returns the conversions of samples: none, one for all bands, or one for each band."""
    stored = packing.dtype
    fills_complex = stored.kind == "c" and nodata is not None and nodata == nodata and bool(options.nan_to_nodata)
    if stored == current.newbyteorder("=") and not (packing.scaled or fills_complex or masked or old is not None):
        return ()
    return scaled_conversions(
        Convert(stored, checked_nodata(nodata, stored), nan=fills_complex, old=old, exact=exact), packing
    )


def scaled_conversions(convert: Convert, packing: Packing) -> tuple[Convert, ...]:
    """Returns the conversion with the scales and offsets of the bands: one where they are the same, or one for each."""
    if not packing.scaled:
        return (convert,)
    count = len(packing.scales or packing.offsets or ())
    scales, offsets = packing.scales or [1.0] * count, packing.offsets or [0.0] * count
    each = tuple(replace(convert, scale=scale, offset=offset) for scale, offset in zip(scales, offsets))
    return each if len(set(zip(scales, offsets))) > 1 else each[:1]


def make_raster(data: Any, axes: str, dtype: np.dtype, converts: Sequence[Convert], found: Found) -> Raster:
    layout = layout_of(data.shape, axes, dtype)
    convert: Callable[[Any], Any] | None = converts[0] if converts else None
    if len(converts) > 1:
        axis = axes.index("b")
        firsts = starts(data.chunks[axis]) if is_dask(data) else [0]
        convert = ConvertBands(tuple(converts), axis, tuple(firsts))
    if is_dask(data):
        device = on_device(data._meta) and not dtype.names
        if convert is not None:
            meta = np.empty((0,) * data.ndim, dtype) if dtype.names else _plain_meta(data._meta).astype(dtype)
            data = data.map_blocks(convert, dtype=dtype, meta=meta)
        return Raster(layout, found, lazy=data, on_device=device)
    device = (data.on_device if isinstance(data, Unread) else on_device(data)) and not dtype.names
    return Raster(layout, found, blocks=[Block(0, 0, data, convert)], on_device=device)


def _plain_meta(meta: Any) -> Any:
    return meta.data if isinstance(meta, np.ma.MaskedArray) else meta
