"""Makes one kind of raster of everything that can be written: arrays of any library, xarray's and dask's."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from . import _metadata
from ._errors import UsageError
from ._metadata import Found
from ._stream import PIECE, Block, Layout, on_device


@dataclass
class Raster:
    """Samples to be written, in memory (`blocks`) or yet to be computed (`lazy`, a dask array), with what they mean."""

    layout: Layout
    found: Found
    blocks: list[Block] = field(default_factory=list)
    lazy: Any = None
    on_device: bool = False
    # Rows that are best taken at a time, where taking them costs.
    step: int | None = None


@dataclass(frozen=True)
class Unread:
    """Samples of a file that xarray has not read yet; only the rows that are asked for are."""

    variable: Any
    leading: bool

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(self.variable.dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        return (1, *self.variable.shape) if self.leading else tuple(self.variable.shape)

    def __getitem__(self, region: tuple[slice, ...]) -> np.ndarray:
        rows = np.asarray(self.variable[region[1:] if self.leading else region])
        return rows[np.newaxis] if self.leading else rows


@dataclass(frozen=True)
class Cast:
    """Makes samples the type of the file's."""

    dtype: np.dtype

    def __call__(self, rows: Any) -> Any:
        return rows.astype(self.dtype)


@dataclass(frozen=True)
class Fill:
    """Gives masked samples a value."""

    value: Any
    dtype: np.dtype

    def __call__(self, rows: Any) -> Any:
        return np.ma.filled(rows, self.value).astype(self.dtype, copy=False)


@dataclass(frozen=True)
class FillComplex:
    """Gives complex samples that are no numbers a value, which the engine does for real ones only."""

    value: Any
    first: Callable[[Any], Any] | None

    def __call__(self, rows: Any) -> Any:
        rows = rows.copy() if self.first is None else self.first(rows)
        rows[rows != rows] = self.value
        return rows


def of(data: Any, words: Mapping[str, Any]) -> Raster:
    """The raster that `to_geotiff` was given."""
    xarray = sys.modules.get("xarray")
    if xarray is not None and isinstance(data, xarray.Dataset):
        raster = _of_dataset(data, words)
    elif xarray is not None and isinstance(data, xarray.DataArray):
        raster = _of_dataarray(data, words)
    else:
        raster = _of_array(data, words)
    return _checked(raster, words)


def is_dask(data: Any) -> bool:
    """Whether an array is one of dask's."""
    module = sys.modules.get("dask.array")
    return module is not None and isinstance(data, module.Array)


def _checked(raster: Raster, words: Mapping[str, Any]) -> Raster:
    layout = raster.layout
    if any(size != size for size in (layout.count, layout.height, layout.width)):
        raise UsageError("sizes of chunks are unknown: call compute_chunk_sizes() on the dask array first")
    if not layout.count or not layout.height or not layout.width:
        raise UsageError(f"a raster of {layout.count} bands, {layout.height} rows and {layout.width} columns is empty")
    for name in ("count", "height", "width"):
        if words.get(name) is not None and int(words[name]) != getattr(layout, name):
            raise UsageError(f"{name}={words[name]!r}, but the data have {getattr(layout, name)}")
    if layout.dtype.kind not in "iufc" or layout.dtype.itemsize > (16 if layout.dtype.kind == "c" else 8):
        raise UsageError(f"samples of type {layout.dtype} have no place in a TIFF: give dtype=, or cast them")
    return raster


def _stored_type(dtype: np.dtype) -> np.dtype:
    """How samples of a type are stored: truth as bytes, everything in the machine's own byte order."""
    return np.dtype(np.uint8) if dtype.kind == "b" else dtype.newbyteorder("=")


def _type_of(samples: Any) -> np.dtype:
    # Other libraries name their types as NumPy does, behind their own name.
    return samples.dtype if isinstance(samples.dtype, np.dtype) else np.dtype(str(samples.dtype).rpartition(".")[2])


def _layout(shape: Sequence[int], axes: str, dtype: np.dtype) -> Layout:
    sizes = {"b": 1, **dict(zip(axes, shape))}
    return Layout(axes, sizes["b"], sizes["y"], sizes["x"], dtype)


def axes_of(shape: Sequence[int], words: Mapping[str, Any]) -> str:
    """Which axes of a plain array are rows, columns and bands."""
    dims, band_axis = words["dims"], words["band_axis"]
    if dims is not None:
        names = [str(name).lower() for name in dims]
        kinds = {**dict.fromkeys(_metadata.Y_NAMES, "y"), **dict.fromkeys(_metadata.X_NAMES, "x")}
        kinds.update(dict.fromkeys((*_metadata.BAND_NAMES, "b"), "b"))
        axes = "".join(kinds.get(name, "?") for name in names)
        if len(axes) != len(shape) or axes not in ("yx", "byx", "yxb"):
            raise UsageError(f"dims={tuple(dims)!r}: give (y, x), (band, y, x) or (y, x, band), one for each axis")
        return axes
    if len(shape) == 2:
        return "yx"
    if len(shape) != 3:
        raise UsageError(f"an array of shape {tuple(shape)}: a raster has two axes, or three with its bands")
    if band_axis is not None:
        if band_axis not in (0, 2, -1, -3):
            raise UsageError(f"band_axis={band_axis!r}: give 0 or 2 (-1)")
        return "byx" if band_axis in (0, -3) else "yxb"
    return "yxb" if shape[2] <= 4 < shape[0] else "byx"


def _of_array(data: Any, words: Mapping[str, Any]) -> Raster:
    device = not is_dask(data) and on_device(data)
    if not is_dask(data) and not device and not isinstance(data, np.ndarray):
        # Only lists are made arrays of; what has samples shares them.
        data = np.from_dlpack(data) if not hasattr(data, "__array__") and hasattr(data, "__dlpack__") else data
        data = np.asarray(data)
    axes = axes_of(data.shape, words)
    found = Found()
    nodata = words["nodata"]
    asked = None if words["dtype"] is None else np.dtype(words["dtype"])
    held = _type_of(data)
    stored = _stored_type(asked or held)
    if _is_masked(data):
        fill, found.nodata = _fill_value(data, nodata, stored)
        return _finished(data, axes, stored, Fill(fill, stored), found)
    convert: Callable[[Any], Any] | None = Cast(stored) if stored != held.newbyteorder("=") else None
    return _finished(data, axes, stored, _with_fill(convert, nodata, stored, words), found)


def _with_fill(
    convert: Callable[[Any], Any] | None, nodata: Any, dtype: np.dtype, words: Mapping[str, Any]
) -> Callable[[Any], Any] | None:
    if dtype.kind != "c" or nodata is None or nodata != nodata or not words["nan_to_nodata"]:
        return convert
    return FillComplex(nodata, convert)


def _is_masked(data: Any) -> bool:
    return isinstance(data, np.ma.MaskedArray) or isinstance(getattr(data, "_meta", None), np.ma.MaskedArray)


def _fill_value(data: Any, nodata: Any, dtype: np.dtype) -> tuple[Any, Any]:
    """What masked samples become, and the nodata value that tells it."""
    if nodata is not None:
        return nodata, nodata
    if dtype.kind == "f":
        return np.nan, np.nan
    if not is_dask(data) and not np.ma.is_masked(data):
        return 0, None
    raise UsageError(f"masked samples of {dtype} need a value of their own: give nodata=")


def _finished(data: Any, axes: str, dtype: np.dtype, convert: Callable[[Any], Any] | None, found: Found) -> Raster:
    layout = _layout(data.shape, axes, dtype)
    if is_dask(data):
        device = on_device(data._meta)
        if convert is not None:
            data = data.map_blocks(convert, dtype=dtype, meta=data._meta.astype(dtype))
        return Raster(layout, found, lazy=data, on_device=device)
    return Raster(layout, found, blocks=[Block(0, 0, data, convert)], on_device=on_device(data))


def _arranged(data: Any) -> tuple[Any, str, str, str]:
    """A DataArray with its axes in an order that can be written, that order, and the names of rows and columns."""
    y_name, x_name = _metadata.spatial_dims(data)
    rest = [str(name) for name in data.dims if name not in (y_name, x_name)]
    if len(rest) > 1:
        single = [name for name in rest if data.sizes[name] == 1 and name.lower() not in _metadata.BAND_NAMES]
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
    """The array behind a DataArray, without reading what is still in a file."""
    if data.chunks is None and not getattr(data.variable, "_in_memory", True):
        return Unread(data.variable, leading)
    samples = data.data
    return samples[np.newaxis] if leading else samples


def _of_dataarray(data: Any, words: Mapping[str, Any]) -> Raster:
    data, axes, y_name, x_name = _arranged(data)
    count = data.shape[axes.index("b")] if "b" in axes else 1
    found = _metadata.of_dataarray(data, y_name, x_name, count, words)
    asked = None if words["dtype"] is None else np.dtype(words["dtype"])
    nodata = found.nodata if words["nodata"] is None else words["nodata"]
    if words["pack"]:
        data = _with_packing(data, nodata)
    dtype, convert = _metadata.packing(data, asked, nodata, pack=words["pack"] is not False)
    stored = _stored_type(dtype)
    if stored != dtype.newbyteorder("=") and convert is None:
        convert = Cast(stored)
    raster = _finished(_samples(data), axes, stored, _with_fill(convert, nodata, stored, words), found)
    if raster.lazy is None and isinstance(raster.blocks[0].samples, Unread):
        raster.step = _rows_together(data, y_name, raster.layout.row_len)
    return raster


def _rows_together(data: Any, y_name: str, row_len: int) -> int | None:
    """Rows of a file that lie in the same tiles, where they are few enough to be held."""
    rows = data.encoding.get("preferred_chunks", {}).get(y_name)
    return int(rows) if isinstance(rows, (int, np.integer)) and PIECE < rows * row_len < 16 * PIECE else None


def _with_packing(data: Any, nodata: Any) -> Any:
    """A DataArray whose attributes say how it was unpacked, as xrspatial leaves them, in rioxarray's way."""
    if "dtype" in data.encoding:
        return data
    kind = data.attrs.get("mask_and_scale_dtype")
    if kind is None and isinstance(nodata, (int, np.integer)):
        kind = np.asarray(nodata).dtype if isinstance(nodata, np.integer) else None
    if kind is None:
        raise UsageError("pack=True: nothing says the type the samples had in the file; give dtype=")
    data = data.copy(deep=False)
    data.encoding = {**data.encoding, "dtype": np.dtype(kind)}
    for name in ("scale_factor", "add_offset"):
        if data.attrs.get(name) is not None:
            data.encoding[name] = data.attrs[name]
    return data


def _of_dataset(data: Any, words: Mapping[str, Any]) -> Raster:
    # Without decode_coords="all", xarray leaves the grid mapping among the variables.
    mappings = [name for name, variable in data.data_vars.items() if not variable.ndim]
    data = data.set_coords(mappings)
    rasters = {str(name): variable for name, variable in data.data_vars.items() if variable.ndim > 1}
    if not rasters:
        raise UsageError(f"the dataset has no variable with rows and columns, only {list(map(str, data.data_vars))}")
    if len(rasters) == 1:
        (variable,) = rasters.values()
        raster = _of_dataarray(variable, words)
        tags = _metadata.found_tags(data.attrs).get("", {})
        raster.found.tags = {"": {**tags, **raster.found.tags.get("", {})}}
        raster.found.area_or_point = raster.found.area_or_point or data.attrs.get("AREA_OR_POINT")
        return raster
    return _of_variables(data, rasters, words)


def _of_variables(data: Any, variables: Mapping[str, Any], words: Mapping[str, Any]) -> Raster:
    """One band for each variable, as rioxarray's band_as_variable has them."""
    parts = []
    for name, variable in variables.items():
        part = _of_dataarray(variable, {**words, "count": None})
        if part.layout.count != 1:
            raise UsageError(f"variable {name!r} has {part.layout.count} bands: write it alone, or give ds[{name!r}]")
        parts.append(part)
    first = parts[0]
    size = (first.layout.height, first.layout.width)
    for name, part in zip(variables, parts):
        if (part.layout.height, part.layout.width) != size:
            raise UsageError(f"variable {name!r} is not of the size of the others: write them one by one")
    nodata = [part.found.nodata for part in parts]
    if words["nodata"] is None and any(not _equal(value, nodata[0]) for value in nodata):
        raise UsageError(f"variables have different nodata values {nodata}, a file has one: give nodata=")
    dtype = np.result_type(*(part.layout.dtype for part in parts))
    found = replace(
        first.found,
        tags=_metadata.found_tags(data.attrs),
        area_or_point=data.attrs.get("AREA_OR_POINT") or first.found.area_or_point,
        descriptions=[_only(part.found.descriptions) or name for name, part in zip(variables, parts)],
        units=_each(part.found.units for part in parts),
        scales=_each((part.found.scales for part in parts), 1.0),
        offsets=_each((part.found.offsets for part in parts), 0.0),
        band_tags=[_without_name(part.found.tags.get("", {})) for part in parts],
        palette=None,
    )
    layout = Layout("byx", len(parts), *size, dtype)
    if any(part.lazy is not None for part in parts):
        import dask.array

        bands = [_as_dask(part, dtype) for part in parts]
        return Raster(layout, found, lazy=dask.array.stack(bands), on_device=all(part.on_device for part in parts))
    blocks = [_leading(part, band, variable) for band, (part, variable) in enumerate(zip(parts, variables.values()))]
    return Raster(layout, found, blocks=blocks, on_device=all(part.on_device for part in parts), step=first.step)


def _leading(part: Raster, band: int, variable: Any) -> Block:
    block = part.blocks[0]
    data, axes, _, _ = _arranged(variable)
    samples = _samples(data, leading=True) if axes == "yx" else _samples(data)
    if axes == "yxb":
        samples = _samples(data.transpose(data.dims[2], *data.dims[:2]))
    return Block(band, 0, samples, block.convert)


def _as_dask(part: Raster, dtype: np.dtype) -> Any:
    import dask.array

    array = part.lazy
    if array is None:
        block = part.blocks[0]
        rows = np.asarray(block.samples[tuple(slice(None) for _ in block.samples.shape)])
        array = dask.array.from_array(rows if block.convert is None else block.convert(rows))
    if "b" in part.layout.axes:
        array = array[0] if part.layout.axes == "byx" else array[..., 0]
    return array.astype(dtype)


def _only(values: Sequence[Any] | None) -> Any:
    return values[0] if values else None


def _each(values: Any, neutral: Any = None) -> list[Any] | None:
    listed = [neutral if _only(value) is None else _only(value) for value in values]
    return None if all(value == neutral for value in listed) else listed


def _without_name(tags: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in tags.items() if key != "long_name"}


def _equal(one: Any, other: Any) -> bool:
    return one == other or (one is not None and other is not None and one != one and other != other)
