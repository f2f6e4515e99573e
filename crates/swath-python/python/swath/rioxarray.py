"""swath in rioxarray's conventions: `open_rasterio`, and `to_raster` as a function.

Replace ``rioxarray.open_rasterio`` by ``swath.rioxarray.open_rasterio``, and ``array.rio.to_raster(path)`` by
``array.swath.to_raster(path)``. Arrays are lazy, or dask arrays where there are chunks; they have the attributes of
rioxarray and no others, and `.rio` works on them. Neither rioxarray nor rasterio needs to be installed.

>>> import numpy as np, swath
>>> from swath.rioxarray import open_rasterio
>>> path = swath.to_geotiff(np.ones((3, 4)), "/tmp/swath-doc-rio.tif", crs=32633, transform=(10, 0, 5, 0, -10, 9))
>>> open_rasterio(path, masked=True).sel(x=20, y=-6, method="nearest").item()
1.0
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import xarray

from . import _georef as georef
from ._dataarray_grid import found_transform, grid_mapping, spatial_dims
from ._errors import SwathWarning, warn
from ._open import open_geotiff
from ._write import to_geotiff

# Attributes of `open_geotiff` that rioxarray lacks.
_FURTHER_ATTRIBUTES = ("crs", "nodata", "raster_type", "colormap")


def open_rasterio(
    filename: Any,
    *,
    parse_coordinates: bool | None = None,
    chunks: Any = None,
    cache: bool | None = None,
    lock: Any = None,
    masked: bool = False,
    mask_and_scale: bool = False,
    variable: Any = None,
    group: Any = None,
    default_name: str | None = None,
    decode_times: bool = True,
    decode_timedelta: bool | None = None,
    band_as_variable: bool = False,
    **open_kwargs: Any,
) -> Any:
    """Open a GeoTIFF or COG as `rioxarray.open_rasterio` does; other formats raise an error.

    In a file with several pages the first is opened, not all of them as subdatasets.

    Parameters
    ----------
    filename
        As `source` of `swath.open_geotiff`.
    parse_coordinates, chunks, masked, mask_and_scale, default_name, band_as_variable
        As for `swath.open_geotiff`.
    cache
        Whether a lazy array keeps samples once they are read; True by default.
    lock, decode_times, decode_timedelta
        Without effect: reads need no lock, and a raster has no times to decode.
    variable, group
        For other formats: a GeoTIFF has neither.
    **open_kwargs
        Further keywords of `swath.open_geotiff` (`window`, `bbox`, `band`, `ifd`, `device`, `storage_options`, ...),
        and those of `rasterio.open`.

    Returns
    -------
    xarray.DataArray, or with `band_as_variable` xarray.Dataset
    """
    if cache is None and chunks is None:
        cache = True
    opened = open_geotiff(
        filename,
        parse_coordinates=parse_coordinates,
        chunks=chunks,
        cache=cache,
        lock=lock,
        masked=masked,
        mask_and_scale=mask_and_scale,
        variable=variable,
        group=group,
        default_name=default_name,
        decode_times=decode_times,
        decode_timedelta=decode_timedelta,
        band_as_variable=band_as_variable,
        **open_kwargs,
    )
    for array in opened.data_vars.values() if band_as_variable else (opened,):
        for name in _FURTHER_ATTRIBUTES:
            array.attrs.pop(name, None)
        # `as_read` describes the attributes that are removed here.
        array.encoding.pop("as_read", None)
    mapping = opened.coords[georef.GRID_MAPPING].attrs
    if mapping["GeoTransform"] == georef.NO_TRANSFORM and "gcps" not in mapping and "rpcs" not in mapping:
        _warn_of_no_georeference("the file has no transform, control points or RPCs: its coordinates count pixels")
    return opened


def to_raster(
    data: Any,
    raster_path: Any,
    *,
    tags: Mapping[str, Any] | None = None,
    windowed: bool = False,
    lock: Any = None,
    compute: bool = True,
    **options: Any,
) -> Any:
    """Write a DataArray or Dataset (`data`) to `raster_path` as its `rio.to_raster` does.

    `tags` and the further `options` are those of `swath.to_geotiff`.

    As in rioxarray, the write is delayed only where `compute` is False, the data are dask arrays and there is a `lock`.
    swath needs neither the lock nor `windowed`: it always writes block by block. As in rioxarray, the units of the
    bands also become a tag of the file.

    Returns
    -------
    None, a dask Delayed that writes, or the file as bytes where `raster_path` is None
    """
    del windowed
    arrays = list(data.data_vars.values()) if isinstance(data, xarray.Dataset) else [data]
    delayed = not compute and bool(lock) and any(array.chunks for array in arrays)
    if options.get("transform") is None and not any(map(_is_georeferenced, arrays)):
        _warn_of_no_georeference("the data have no transform, control points or RPCs: the file gets no georeference")
    if isinstance(data, xarray.DataArray) and "units" in data.attrs:
        tags = {"units": data.attrs["units"], **(tags or {})}
    written = to_geotiff(data, raster_path, tags=tags, compute=not delayed, **options)
    return written if delayed or raster_path is None else None


def _is_georeferenced(array: xarray.DataArray) -> bool:
    if array.ndim < 2:
        return False
    mapping = grid_mapping(array)
    return "gcps" in mapping or "rpcs" in mapping or found_transform(array, *spatial_dims(array)) is not None


def _warn_of_no_georeference(message: str) -> None:
    """Warns with rasterio's class where a script uses rasterio, so that its filters apply."""
    rasterio = sys.modules.get("rasterio.errors")
    category = SwathWarning if rasterio is None else rasterio.NotGeoreferencedWarning
    warn(message, category)


__all__ = ["open_rasterio", "to_raster"]
