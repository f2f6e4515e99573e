"""Makes a `Raster` of a DataArray."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from . import _dataarray_grid, _dataarray_metadata, _file_mask
from ._dataarray_metadata import Packing
from ._errors import UsageError, warn
from ._metadata import Found
from ._raster import Raster, Unread, conversions, is_dask, make_raster, scaled_conversions, stored_type, writable
from ._sample_conversion import Convert, keep_or_round, type_name, type_of
from ._stream import PUSH_LEN, on_device
from ._write_options import WriteOptions


def of_dataarray(data: Any, options: WriteOptions, *, replaced: bool = False) -> Raster:
    """Returns the raster of a DataArray; `replaced` turns its own nodata value into the caller's."""
    origin = data
    data, axes, y_name, x_name = arranged(data)
    count = data.shape[axes.index("b")] if "b" in axes else 1
    found = _dataarray_metadata.of_dataarray(data, origin, y_name, x_name, count, options)
    asked = None if options.dtype is None else type_of(options.dtype)
    nodata = found.nodata if options.nodata is None else options.nodata
    if options.pack:
        data = _with_packing(data, nodata)
    packing = _dataarray_metadata.packing(data, asked, count, pack=options.pack is not False)
    samples = samples_of(data)
    current = np.dtype(data.dtype)
    guessed = asked is None and current.kind in "fc" and packing.dtype.kind not in "fc"
    # Scales that the caller asks to undo, or put into the encoding, may round samples of any kind. Samples that are
    # still in their file are whole numbers in its units, unless the caller put other scales into the encoding.
    asked_to_pack = options.pack or isinstance(samples, Unread)
    exact = guessed and not (packing.scaled and (asked_to_pack or not _dataarray_metadata.is_as_read(data, packing)))
    mask = None
    if options.mask is None and _file_mask.ENCODING in data.encoding:
        mask = _file_mask.mask_to_write(
            data, samples, axes, _place(data, found, y_name, x_name), computed=is_dask(samples)
        )
    # A sample that the mask hides may have any value.
    fill = 0 if nodata is None and mask is not None and data.encoding[_file_mask.ENCODING].applied else nodata
    # Masked indices of a palette, or those that the caller casts, are still indices.
    indices = bool(found.palette) and str(data.encoding.get("rasterio_dtype")) in ("uint8", "uint16")
    if guessed and (why := _unlike_the_file(samples, packing, fill, axes, exact=exact)):
        if options.pack:
            raise UsageError(f"pack=True: {why}")
        warn(f"samples are written as {current}: {why}")
        indices = indices and not _have_fractions(samples, packing, axes)
        packing, exact = Packing(current), False
        if found.nodata is not None and options.nodata is None:
            # Computed floats may be equal to the integer that stood for nodata.
            found.nodata = nodata = fill = np.nan
    packing = replace(packing, dtype=stored_type(packing.dtype, current))
    if packing.scaled:
        found.scales, found.offsets = packing.scales, packing.offsets
    # A nodata value in stored units cannot be compared with unpacked samples.
    old = found.nodata if replaced and not packing.scaled else None
    converts = conversions(current, packing, fill, options, old=old, exact=exact and not _in_memory(samples))
    raster = make_raster(samples, axes, packing.dtype, converts, found)
    raster.indices, raster.mask = indices, mask
    if raster.lazy is None and isinstance(raster.blocks[0].samples, Unread):
        raster.step = _rows_together(data, y_name, raster.layout.row_len)
    return raster


def arranged(data: Any) -> tuple[Any, str, str, str]:
    """Returns a DataArray with axes in an order that can be written, that order, and the names of rows and columns."""
    y_name, x_name = _dataarray_grid.spatial_dims(data)
    rest = [str(name) for name in data.dims if name not in (y_name, x_name)]
    if len(rest) > 1:
        single = [name for name in rest if data.sizes[name] == 1 and name.lower() not in _dataarray_grid.BAND_NAMES]
        data = data.isel(dict.fromkeys(single[: len(rest) - 1], 0), drop=True)
        rest = [str(name) for name in data.dims if name not in (y_name, x_name)]
    if len(rest) > 1:
        raise UsageError(f"dimensions {tuple(data.dims)}: a raster has rows, columns and bands; select one of {rest}")
    orders = {("y", "x"): "yx", ("b", "y", "x"): "byx", ("y", "x", "b"): "yxb"}
    kinds = tuple({y_name: "y", x_name: "x"}.get(str(name), "b") for name in data.dims)
    if kinds not in orders:
        data = data.transpose(*rest, y_name, x_name)
        kinds = ("b", "y", "x") if rest else ("y", "x")
    return data, orders[kinds], y_name, x_name


def samples_of(data: Any, *, leading: bool = False) -> Any:
    """Returns the array behind a DataArray; samples that are still in a file stay there, as `Unread`."""
    if data.chunks is None and data.size:
        # Slices of an array in memory share its memory. A variable that is still in a file reads each slice anew.
        corner = (slice(0, 1),) * data.ndim
        one, other = data.variable[corner].data, data.variable[corner].data
        if (isinstance(one, np.ndarray) or on_device(one)) and _address(one) != _address(other):
            return Unread(data.variable, leading, on_device(one))
    samples = writable(data.data)
    return samples[np.newaxis] if leading else samples


def _address(samples: Any) -> int:
    """Returns the address of an array's first sample, on the host or on a GPU."""
    if isinstance(samples, np.ndarray):
        return int(samples.__array_interface__["data"][0])
    return int(samples.__cuda_array_interface__["data"][0])


def _place(data: Any, found: Found, y_name: str, x_name: str) -> Any:
    """Returns the transform of the pixels that an array has now, whatever transform the caller gives them."""
    if found.transform is not None or found.gcps:
        return found.transform
    try:
        return _dataarray_grid.found_transform(data, y_name, x_name)
    except UsageError:
        return None


def _in_memory(samples: Any) -> bool:
    """Whether samples are in memory before the write; others are computed or read only during it."""
    return not is_dask(samples) and not isinstance(samples, Unread)


def _unlike_the_file(samples: Any, packing: Packing, nodata: Any, axes: str, *, exact: bool) -> str | None:
    """Returns why samples in memory cannot be stored with the type of the file they were read from, or None.

    `exact` says that fractions are a reason; for scaled samples, fractions in the file's units.
    """
    if not _in_memory(samples) or not samples.size:
        return None
    name = type_name(packing.dtype)
    if exact and _have_fractions(samples, packing, axes):
        current = np.dtype(str(samples.dtype))
        packed = ", and scale and offset are undone" if packing.scaled else ""
        return f"they have fractions, and were {name} in their file{packed}; {keep_or_round(current, packing.dtype)}"
    # min() is NaN where any sample is NaN.
    if nodata is None and (smallest := samples.min()) != smallest:
        return f"some are missing, and they were {name} in their file, which has no nodata; give nodata= to have {name}"
    return None


def _have_fractions(samples: Any, packing: Packing, axes: str) -> bool:
    """Whether samples are not whole numbers in the units of the file they were read from."""
    converts = scaled_conversions(Convert(packing.dtype), packing)
    if len(converts) < 2:
        return converts[0].has_fractions(samples)
    axis = axes.index("b")
    before = (slice(None),) * axis
    return any(convert.has_fractions(samples[(*before, band)]) for band, convert in enumerate(converts))


def _rows_together(data: Any, y_name: str, row_len: int) -> int | None:
    """Returns the number of rows in a tile row of the file, where these are few enough to hold."""
    rows = data.encoding.get("preferred_chunks", {}).get(y_name)
    return int(rows) if isinstance(rows, (int, np.integer)) and PUSH_LEN < rows * row_len < 16 * PUSH_LEN else None


def _with_packing(data: Any, nodata: Any) -> Any:
    """Returns a DataArray whose `encoding` says how to pack it, from the attributes that xarray-spatial leaves."""
    if "dtype" in data.encoding:
        return data
    kind = data.attrs.get("mask_and_scale_dtype")
    if kind is None and isinstance(nodata, (int, np.integer)):
        kind = np.asarray(nodata).dtype if isinstance(nodata, np.integer) else None
    if kind is None:
        raise UsageError("pack=True: the type of the samples in their file is unknown; give dtype=")
    data = data.copy(deep=False)
    data.encoding = {**data.encoding, "dtype": np.dtype(kind)}
    for name in ("scale_factor", "scales", "add_offset", "offsets"):
        if data.attrs.get(name) is not None:
            data.encoding[name] = data.attrs[name]
    return data
