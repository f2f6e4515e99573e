"""Makes a `Raster` of a Dataset, whose variables become bands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from . import _dataarray_grid, _dataarray_metadata, _file_mask, _metadata, _swath
from ._dataarray_metadata import same_number
from ._dataarray_raster import arranged, of_dataarray, samples_of
from ._errors import UsageError, warn
from ._metadata import Found
from ._raster import Raster
from ._stream import Block, Layout, to_host
from ._write_options import WriteOptions


def of_dataset(data: Any, options: WriteOptions) -> Raster:
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
        raster = of_dataarray(variable, options)
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
    parts = {name: of_dataarray(variable, options) for name, variable in variables.items()}
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
        parts = {name: of_dataarray(variable, options, replaced=differ) for name, variable in variables.items()}
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
    data, axes, _, _ = arranged(variable)
    samples = samples_of(data, leading=True) if axes == "yx" else samples_of(data)
    if axes == "yxb":
        samples = samples_of(data.transpose(data.dims[2], *data.dims[:2]))
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
