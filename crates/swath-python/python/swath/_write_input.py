"""Turns what the caller of `to_geotiff` gives into a `Raster` and its mask."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from . import _dataarray_grid
from ._dataarray_metadata import Packing
from ._dataarray_raster import of_dataarray
from ._dataset_raster import of_dataset
from ._engine_options import number
from ._errors import UsageError, warn
from ._metadata import Found
from ._raster import Raster, conversions, is_dask, make_raster, stored_type, writable
from ._sample_conversion import type_of
from ._stream import Layout, to_host
from ._write_options import WriteOptions

# The last of three axes holds the bands where it has at most FEW_BANDS entries and the others at least MANY_PIXELS.
FEW_BANDS = 4
MANY_PIXELS = 16


def of(data: Any, options: WriteOptions) -> Raster:
    """Returns the raster of the data that the caller of `to_geotiff` gives."""
    xarray = sys.modules.get("xarray")
    if xarray is not None and isinstance(data, xarray.Dataset):
        raster = of_dataset(data, options)
    elif xarray is not None and isinstance(data, xarray.DataArray):
        raster = of_dataarray(data, options)
    else:
        raster = _of_array(data, options)
    return _checked(raster, options)


# What a TIFF has at most, and the engine takes.
MAX_BANDS = 65_535
MAX_SIDE = 2**31 - 1


def _checked(raster: Raster, options: WriteOptions) -> Raster:
    layout = raster.layout
    if any(size != size for size in (layout.count, layout.height, layout.width)):
        raise UsageError("the chunk sizes are unknown: call compute_chunk_sizes() on the dask array first")
    if not layout.count or not layout.height or not layout.width:
        raise UsageError(f"a raster of {layout.count} bands, {layout.height} rows and {layout.width} columns is empty")
    # Before anything is made for each band.
    if layout.count > MAX_BANDS:
        raise UsageError(f"a raster of {layout.count} bands cannot be written: a TIFF has at most {MAX_BANDS}")
    if max(layout.height, layout.width) > MAX_SIDE:
        raise UsageError(
            f"an image of {layout.width} x {layout.height} pixels has more than {MAX_SIDE} pixels on a side"
        )
    for name in ("count", "height", "width"):
        given = getattr(options, name)
        if given is not None and number(name, given) != getattr(layout, name):
            raise UsageError(f"{name}={given!r}, but the data have {getattr(layout, name)}")
    if raster.found.palette and layout.dtype not in (np.uint8, np.uint16):
        # Other types hold values computed from palette indices, which are not indices themselves, or masked indices.
        raster.found.palette = None
        if raster.indices:
            warn(f"the colour table is left out: a file has one for samples of uint8 or uint16, not of {layout.dtype}")
    return raster


def _of_array(data: Any, options: WriteOptions) -> Raster:
    data = writable(data)
    axes = axes_of(data.shape, options)
    found = Found()
    nodata = options.nodata
    current = _type_of(data)
    stored = stored_type(current if options.dtype is None else type_of(options.dtype), current)
    masked = _is_masked(data)
    if masked and nodata is None:
        nodata = found.nodata = _fill_value(data, stored)
    converts = conversions(current, Packing(stored), nodata, options, masked=masked)
    return make_raster(data, axes, stored, converts, found)


def axes_of(shape: Sequence[int], options: WriteOptions) -> str:
    """Returns which axes of a plain array are rows, columns and bands: "yx", "byx" or "yxb"."""
    dims, band_axis = options.dims, options.band_axis
    if dims is not None:
        names = [str(name).lower() for name in dims] if isinstance(dims, (str, Sequence)) else []
        kinds = {**dict.fromkeys(_dataarray_grid.Y_NAMES, "y"), **dict.fromkeys(_dataarray_grid.X_NAMES, "x")}
        kinds.update(dict.fromkeys((*_dataarray_grid.BAND_NAMES, "b"), "b"))
        axes = "".join(kinds.get(name, "?") for name in names)
        if len(axes) != len(shape) or axes not in ("yx", "byx", "yxb"):
            raise UsageError(f"dims={dims!r}: give (y, x), (band, y, x) or (y, x, band), one for each axis")
        return axes
    if len(shape) == 2:
        return "yx"
    if len(shape) != 3:
        raise UsageError(f"an array of shape {tuple(shape)}: a raster has two axes, or three with bands")
    if band_axis is not None:
        if not isinstance(band_axis, (int, np.integer)) or band_axis is True or band_axis not in (0, 2, -1, -3):
            raise UsageError(f"band_axis={band_axis!r}: give 0 or 2 (-1)")
        return "byx" if band_axis in (0, -3) else "yxb"
    first, second, last = shape
    if last >= first:
        return "byx"
    if last <= FEW_BANDS and min(first, second) >= MANY_PIXELS:
        return "yxb"
    raise UsageError(
        f"an array of shape {tuple(shape)} may be {first} bands of {second} x {last} pixels, or {first} x {second} "
        f"pixels of {last} bands: give band_axis=0 or band_axis=-1"
    )


def _type_of(samples: Any) -> np.dtype:
    if isinstance(samples.dtype, np.dtype):
        return samples.dtype
    try:
        # Other libraries use NumPy's names with a prefix, such as "torch.float32".
        return np.dtype(str(samples.dtype).rpartition(".")[2])
    except TypeError:
        raise UsageError(f"a TIFF cannot hold samples of type {samples.dtype}: cast them") from None


def _is_masked(data: Any) -> bool:
    return isinstance(data, np.ma.MaskedArray) or isinstance(getattr(data, "_meta", None), np.ma.MaskedArray)


def _fill_value(data: Any, dtype: np.dtype) -> Any:
    """Returns the value of masked samples where the caller gives none."""
    if dtype.kind == "f":
        return np.nan
    if not is_dask(data) and not np.ma.is_masked(data):
        return None
    raise UsageError(f"masked samples of {dtype} need a value in the file: give nodata=")


def mask_of(mask: Any, layout: Layout) -> np.ndarray | None:
    """Returns a mask as bytes: 0 for hidden pixels, 255 for others; None and False stand for no mask."""
    if mask is None or mask is False:
        return None
    try:
        values = np.asarray(to_host(getattr(mask, "data", mask) if hasattr(mask, "dims") else mask))
    except (TypeError, ValueError) as error:
        raise UsageError(f"mask={mask!r}: give an array of bool or bytes ({error})") from None
    if values.ndim == 3 and 1 in (values.shape[0], values.shape[2]):
        values = values.reshape(values.shape[1:] if values.shape[0] == 1 else values.shape[:2])
    if values.shape != (layout.height, layout.width) or values.dtype.kind not in "biu":
        raise UsageError(
            f"mask: {values.dtype} of shape {values.shape}; give an array of bool or bytes of {layout.height} rows and "
            f"{layout.width} columns"
        )
    return np.where(values != 0, np.uint8(255), np.uint8(0))
