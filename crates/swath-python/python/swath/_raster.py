"""`Raster`: the common form of everything that can be written, arrays of any library and xarray objects."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from . import _dataarray_grid, _dataarray_metadata, _file_mask, _metadata, _swath
from ._dataarray_metadata import Packing, same_number
from ._engine_options import number
from ._errors import UsageError, warn
from ._metadata import Found, checked_nodata
from ._sample_conversion import Convert, ConvertBands, keep_or_round, type_name, type_of
from ._stream import PIECE, Block, Layout, on_device, starts, to_host
from ._write_options import WriteOptions

# The last of three axes holds the bands where it has at most FEW_BANDS entries and the others at least MANY_PIXELS.
FEW_BANDS = 4
MANY_PIXELS = 16


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


def of(data: Any, options: WriteOptions) -> Raster:
    """Returns the raster of the data that the caller of `to_geotiff` gives."""
    xarray = sys.modules.get("xarray")
    if xarray is not None and isinstance(data, xarray.Dataset):
        raster = _of_dataset(data, options)
    elif xarray is not None and isinstance(data, xarray.DataArray):
        raster = _of_dataarray(data, options)
    else:
        raster = _of_array(data, options)
    return _checked(raster, options)


def is_dask(data: Any) -> bool:
    """Whether an array is a dask array."""
    module = sys.modules.get("dask.array")
    return module is not None and isinstance(data, module.Array)


def _checked(raster: Raster, options: WriteOptions) -> Raster:
    layout = raster.layout
    if any(size != size for size in (layout.count, layout.height, layout.width)):
        raise UsageError("the chunk sizes are unknown: call compute_chunk_sizes() on the dask array first")
    if not layout.count or not layout.height or not layout.width:
        raise UsageError(f"a raster of {layout.count} bands, {layout.height} rows and {layout.width} columns is empty")
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


def _stored_type(dtype: np.dtype, held: np.dtype) -> np.dtype:
    """Returns the type that stores samples of `dtype`: bytes for booleans, native byte order for all."""
    if dtype.names and held.kind == "c":
        return dtype
    if dtype.kind == "b":
        return np.dtype(np.uint8)
    if dtype.kind not in "iufc" or dtype.itemsize > (16 if dtype.kind == "c" else 8):
        raise UsageError(
            f"{type_name(dtype)} cannot hold samples of {held} in a TIFF: give another dtype=, or cast them"
        )
    if held.kind == "c" and dtype.kind != "c":
        raise UsageError(f"{held} would lose its imaginary part as {dtype}: write .real, .imag or abs() of it")
    return dtype.newbyteorder("=")


def _type_of(samples: Any) -> np.dtype:
    if isinstance(samples.dtype, np.dtype):
        return samples.dtype
    try:
        # Other libraries use NumPy's names with a prefix, such as "torch.float32".
        return np.dtype(str(samples.dtype).rpartition(".")[2])
    except TypeError:
        raise UsageError(f"a TIFF cannot hold samples of type {samples.dtype}: cast them") from None


def _layout(shape: Sequence[int], axes: str, dtype: np.dtype) -> Layout:
    sizes = {"b": 1, **dict(zip(axes, shape))}
    return Layout(axes, sizes["b"], sizes["y"], sizes["x"], dtype)


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


def _of_array(data: Any, options: WriteOptions) -> Raster:
    data = _writable(data)
    axes = axes_of(data.shape, options)
    found = Found()
    nodata = options.nodata
    held = _type_of(data)
    stored = _stored_type(held if options.dtype is None else type_of(options.dtype), held)
    masked = _is_masked(data)
    if masked and nodata is None:
        nodata = found.nodata = _fill_value(data, stored)
    converts = _converts(held, Packing(stored), nodata, options, masked=masked)
    return _finished(data, axes, stored, converts, found)


def _writable(data: Any) -> Any:
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


def _converts(
    held: np.dtype,
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
    if stored == held.newbyteorder("=") and not (packing.scaled or fills_complex or masked or old is not None):
        return ()
    return _scaled_converts(
        Convert(stored, checked_nodata(nodata, stored), nan=fills_complex, old=old, exact=exact), packing
    )


def _scaled_converts(convert: Convert, packing: Packing) -> tuple[Convert, ...]:
    """Returns the conversion with the scales and offsets of the bands: one where they are the same, or one for each."""
    if not packing.scaled:
        return (convert,)
    count = len(packing.scales or packing.offsets or ())
    scales, offsets = packing.scales or [1.0] * count, packing.offsets or [0.0] * count
    each = tuple(replace(convert, scale=scale, offset=offset) for scale, offset in zip(scales, offsets))
    return each if len(set(zip(scales, offsets))) > 1 else each[:1]


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


def _finished(data: Any, axes: str, dtype: np.dtype, converts: Sequence[Convert], found: Found) -> Raster:
    layout = _layout(data.shape, axes, dtype)
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


def _arranged(data: Any) -> tuple[Any, str, str, str]:
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


def _samples(data: Any, *, leading: bool = False) -> Any:
    """Returns the array behind a DataArray; samples that are still in a file stay there, as `Unread`."""
    if data.chunks is None and data.size:
        # Slices of an array in memory share its memory. A variable that is still in a file reads each slice anew.
        corner = (slice(0, 1),) * data.ndim
        one, other = data.variable[corner].data, data.variable[corner].data
        if (isinstance(one, np.ndarray) or on_device(one)) and _address(one) != _address(other):
            return Unread(data.variable, leading, on_device(one))
    samples = _writable(data.data)
    return samples[np.newaxis] if leading else samples


def _address(samples: Any) -> int:
    """Returns the address of an array's first sample, on the host or on a GPU."""
    if isinstance(samples, np.ndarray):
        return int(samples.__array_interface__["data"][0])
    return int(samples.__cuda_array_interface__["data"][0])


def _of_dataarray(data: Any, options: WriteOptions, *, replaced: bool = False) -> Raster:
    """Returns the raster of a DataArray; `replaced` turns its own nodata value into the caller's."""
    origin = data
    data, axes, y_name, x_name = _arranged(data)
    count = data.shape[axes.index("b")] if "b" in axes else 1
    found = _dataarray_metadata.of_dataarray(data, origin, y_name, x_name, count, options)
    asked = None if options.dtype is None else type_of(options.dtype)
    nodata = found.nodata if options.nodata is None else options.nodata
    if options.pack:
        data = _with_packing(data, nodata)
    packing = _dataarray_metadata.packing(data, asked, count, pack=options.pack is not False)
    samples = _samples(data)
    held = np.dtype(data.dtype)
    guessed = asked is None and held.kind in "fc" and packing.dtype.kind not in "fc"
    # Scales that the caller asks to undo, or put into the encoding, may round samples of any kind. Samples that are
    # still in their file are whole numbers in its units, unless the caller put other scales into the encoding.
    asked_to_pack = options.pack or isinstance(samples, Unread)
    exact = guessed and not (packing.scaled and (asked_to_pack or not _dataarray_metadata.is_as_read(data, packing)))
    mask = None
    if options.mask is None and _file_mask.ENCODING in data.encoding:
        mask = _file_mask.kept(data, samples, axes, _place(data, found, y_name, x_name), computed=is_dask(samples))
    # A sample that the mask hides may have any value.
    fill = 0 if nodata is None and mask is not None and data.encoding[_file_mask.ENCODING].applied else nodata
    # Masked indices of a palette, or those that the caller casts, are still indices.
    indices = bool(found.palette) and str(data.encoding.get("rasterio_dtype")) in ("uint8", "uint16")
    if guessed and (why := _unlike_the_file(samples, packing, fill, axes, exact=exact)):
        if options.pack:
            raise UsageError(f"pack=True: {why}")
        warn(f"samples are written as {held}: {why}")
        indices = indices and not _have_fractions(samples, packing, axes)
        packing, exact = Packing(held), False
        if found.nodata is not None and options.nodata is None:
            # Computed floats may be equal to the integer that stood for nodata.
            found.nodata = nodata = fill = np.nan
    packing = replace(packing, dtype=_stored_type(packing.dtype, held))
    if packing.scaled:
        found.scales, found.offsets = packing.scales, packing.offsets
    # A nodata value in stored units cannot be compared with unpacked samples.
    old = found.nodata if replaced and not packing.scaled else None
    converts = _converts(held, packing, fill, options, old=old, exact=exact and not _in_memory(samples))
    raster = _finished(samples, axes, packing.dtype, converts, found)
    raster.indices, raster.mask = indices, mask
    if raster.lazy is None and isinstance(raster.blocks[0].samples, Unread):
        raster.step = _rows_together(data, y_name, raster.layout.row_len)
    return raster


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
        held = np.dtype(str(samples.dtype))
        packed = ", and scale and offset are undone" if packing.scaled else ""
        return f"they have fractions, and were {name} in their file{packed}; {keep_or_round(held, packing.dtype)}"
    # min() is NaN where any sample is NaN.
    if nodata is None and (smallest := samples.min()) != smallest:
        return f"some are missing, and they were {name} in their file, which has no nodata; give nodata= to have {name}"
    return None


def _have_fractions(samples: Any, packing: Packing, axes: str) -> bool:
    """Whether samples are not whole numbers in the units of the file they were read from."""
    converts = _scaled_converts(Convert(packing.dtype), packing)
    if len(converts) < 2:
        return converts[0].has_fractions(samples)
    axis = axes.index("b")
    before = (slice(None),) * axis
    return any(convert.has_fractions(samples[(*before, band)]) for band, convert in enumerate(converts))


def _rows_together(data: Any, y_name: str, row_len: int) -> int | None:
    """Returns the number of rows in a tile row of the file, where these are few enough to hold."""
    rows = data.encoding.get("preferred_chunks", {}).get(y_name)
    return int(rows) if isinstance(rows, (int, np.integer)) and PIECE < rows * row_len < 16 * PIECE else None


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


def _of_dataset(data: Any, options: WriteOptions) -> Raster:
    raster = _of_rasters(data, options)
    kept = _dataarray_grid.kept_by_rio(data, "_crs")
    if kept and (raster.found.crs is None or not _dataarray_grid.same_crs(raster.found.crs, kept.to_wkt())):
        raster.found.crs = kept.to_wkt()
    if options.crs is None and data.attrs.get("crs") is not None:
        raster.found.crs = _stated_crs(data.attrs["crs"], raster.found.crs)
    return raster


def _stated_crs(stated: Any, found: str | None) -> str | None:
    """Returns the reference system of the variables of a Dataset; where they have none, that in its attributes."""
    text = _metadata.crs_text(stated)
    if found is not None and text is not None and not _dataarray_grid.same_crs(text, found):
        warn(
            f"attrs['crs'] of the dataset is {_dataarray_grid.crs_name(text)}, and its variables have "
            f"{_dataarray_grid.crs_name(found)}, which is written: give crs=, or delete the attribute"
        )
    return text if found is None else found


def _of_rasters(data: Any, options: WriteOptions) -> Raster:
    # Without decode_coords="all", xarray leaves the grid mapping among the data variables.
    mappings = [name for name, variable in data.data_vars.items() if not variable.ndim]
    data = data.set_coords(mappings)
    rasters = {str(name): variable for name, variable in data.data_vars.items() if variable.ndim > 1}
    if not rasters:
        raise UsageError(f"the dataset has no variable with rows and columns, only {list(map(str, data.data_vars))}")
    if len(rasters) == 1:
        (variable,) = rasters.values()
        raster = _of_dataarray(variable, options)
        tags = _tags_of_dataset(data)
        raster.found.tags = {
            domain: {**tags.get(domain, {}), **raster.found.tags.get(domain, {})}
            for domain in {**tags, **raster.found.tags}
        }
        raster.found.area_or_point = raster.found.area_or_point or data.attrs.get("AREA_OR_POINT")
        return raster
    return _of_variables(data, rasters, options)


def _of_variables(data: Any, variables: Mapping[str, Any], options: WriteOptions) -> Raster:
    """Returns the raster with one band for each variable, as rioxarray's band_as_variable reads them."""
    options = replace(options, count=None)
    parts = {name: _of_dataarray(variable, options) for name, variable in variables.items()}
    if options.crs is None:
        _check_crs({name: part.found.crs for name, part in parts.items()})
    values = [part.found.nodata for part in parts.values()]
    differ = any(not same_number(value, values[0]) for value in values)
    dtype = _common_type({name: part.layout.dtype for name, part in parts.items()})
    if options.nodata is None and differ:
        # Floats need no nodata value: NaN stands for missing samples.
        declared = [value for value, part in zip(values, parts.values()) if not _is_nan_enough(value, part)]
        if dtype.kind != "f" or any(not same_number(value, declared[0]) for value in declared):
            raise UsageError(f"the variables have different nodata values {values}, and a file has one: give nodata=")
        options = replace(options, nodata=np.nan)
    if differ or any(part.layout.dtype != dtype for part in parts.values()):
        # The common nodata value may not fit a variable's own type.
        options = replace(options, dtype=dtype)
        parts = {name: _of_dataarray(variable, options, replaced=differ) for name, variable in variables.items()}
    raster = _stacked(data, variables, parts, dtype)
    if options.nodata is not None:
        raster.found.nodata = options.nodata
    return raster


def _is_nan_enough(nodata: Any, part: Raster) -> bool:
    return part.layout.dtype.kind == "f" and (nodata is None or nodata != nodata)


def _check_crs(systems: Mapping[str, str | None]) -> None:
    """Raises where variables have different reference systems. A variable without a system agrees with any other."""
    known = {name: text for name, text in systems.items() if text is not None}
    for name, text in known.items():
        first, other = next(iter(known.items()))
        if not _dataarray_grid.same_crs(text, other):
            names = f"{first!r} ({_swath.crs_of(other)['name']}) and {name!r} ({_swath.crs_of(text)['name']})"
            raise UsageError(
                f"variables {names} have different reference systems, and a file has one: write them one by one, or "
                "give crs="
            )


def _common_type(types: Mapping[str, np.dtype]) -> np.dtype:
    """Returns the type that holds the samples of all variables without loss."""
    common = np.result_type(*types.values())
    for name, dtype in types.items():
        if dtype.kind in "iu" and common.kind in "fc" and 8 * dtype.itemsize > np.finfo(common).nmant + 1:
            raise UsageError(
                f"variable {name!r} has samples of {dtype}, the others need {common}, and a file has one type: {dtype} "
                f"would lose digits as {common}; give dtype= or cast, or write them one by one"
            )
    return common


def _stacked(data: Any, variables: Mapping[str, Any], by_name: Mapping[str, Raster], dtype: np.dtype) -> Raster:
    """Returns one raster whose bands are the variables."""
    parts = list(by_name.values())
    first = parts[0]
    size = (first.layout.height, first.layout.width)
    for name, part in by_name.items():
        if part.layout.count != 1:
            raise UsageError(f"variable {name!r} has {part.layout.count} bands: write it alone, or give ds[{name!r}]")
        if (part.layout.height, part.layout.width) != size:
            raise UsageError(f"variable {name!r} has another size than the others: write them one by one")
    found = replace(
        first.found,
        tags={**_shared_domains([part.found.tags for part in parts]), **_tags_of_dataset(data)},
        area_or_point=data.attrs.get("AREA_OR_POINT") or first.found.area_or_point,
        descriptions=[_only(part.found.descriptions) or name for name, part in zip(variables, parts)],
        units=_each(part.found.units for part in parts),
        scales=_each((part.found.scales for part in parts), 1.0),
        offsets=_each((part.found.offsets for part in parts), 0.0),
        band_tags=[_tags_of_band(part.found) for part in parts],
        colors=_each(part.found.colors for part in parts),
        palette=None,
    )
    layout = Layout("byx", len(parts), *size, dtype)
    mask = _file_mask.common([part.mask for part in parts])
    if any(part.lazy is not None for part in parts):
        import dask.array

        bands = [_as_dask(part) for part in parts]
        on_gpu = [part.on_device for part in parts]
        if any(on_gpu) and not all(on_gpu):
            # The writer takes all bands of a pixel from the same memory.
            meta = np.empty((0, 0), dtype)
            bands = [
                band.map_blocks(to_host, dtype=dtype, meta=meta) if there else band
                for band, there in zip(bands, on_gpu)
            ]
        return Raster(layout, found, lazy=dask.array.stack(bands), on_device=all(on_gpu), mask=mask)
    blocks = [_leading(part, band, variable) for band, (part, variable) in enumerate(zip(parts, variables.values()))]
    on_device = all(part.on_device for part in parts)
    return Raster(layout, found, blocks=blocks, on_device=on_device, step=first.step, mask=mask)


def _tags_of_dataset(data: Any) -> dict[str, dict[str, str]]:
    """Returns the tags of a Dataset by domain: its attributes, and the other domains of the file it was read from."""
    read = data.encoding.get("tags")
    others = {domain: dict(items) for domain, items in read.items() if domain} if isinstance(read, Mapping) else {}
    return {**others, **_dataarray_metadata.found_tags(data.attrs)}


def _shared_domains(tags: Sequence[Mapping[str, dict[str, str]]]) -> dict[str, dict[str, str]]:
    """Returns the domains, other than the default one, that have the same items for all variables."""
    first, *others = tags
    return {
        domain: dict(items)
        for domain, items in first.items()
        if domain and all(other.get(domain) == items for other in others)
    }


def _leading(part: Raster, band: int, variable: Any) -> Block:
    block = part.blocks[0]
    data, axes, _, _ = _arranged(variable)
    samples = _samples(data, leading=True) if axes == "yx" else _samples(data)
    if axes == "yxb":
        samples = _samples(data.transpose(data.dims[2], *data.dims[:2]))
    return Block(band, 0, samples, block.convert)


def _as_dask(part: Raster) -> Any:
    import dask.array

    array = part.lazy
    if array is None:
        block = part.blocks[0]
        # asarray=False keeps CuPy arrays, and reads a file chunk by chunk.
        array = dask.array.from_array(block.samples, chunks="auto", asarray=False)
        if block.convert is not None:
            array = array.map_blocks(block.convert, dtype=part.layout.dtype)
    if "b" in part.layout.axes:
        array = array[0] if part.layout.axes == "byx" else array[..., 0]
    return array


def _only(values: Sequence[Any] | None) -> Any:
    return values[0] if values else None


def _each(values: Any, neutral: Any = None) -> list[Any] | None:
    listed = [neutral if _only(value) is None else _only(value) for value in values]
    return None if all(value == neutral for value in listed) else listed


def _tags_of_band(found: Found) -> dict[str, dict[str, str]]:
    """Returns the tags of a band that is a variable: the variable's attributes and the tags of its only band."""
    own = dict(_only(found.band_tags) or {})
    return {**own, "": {**_dataarray_metadata.without_name(found.tags.get("", {})), **own.get("", {})}}
