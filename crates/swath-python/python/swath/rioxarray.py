"""swath in rioxarray's conventions: `open_rasterio`, and `to_raster` as a function.

Replace ``rioxarray.open_rasterio`` by ``swath.rioxarray.open_rasterio``, and ``array.rio.to_raster(path)`` by
``array.swath.to_raster(path)``. Arrays are lazy, or dask's where there are chunks; they have rioxarray's attributes and
no others, and `.rio` works on them. Neither rioxarray nor rasterio has to be installed.

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
from ._errors import SwathWarning, warn
from ._grid import found_transform, grid_mapping, spatial_dims
from ._open import open_geotiff
from ._write import to_geotiff

# What `open_geotiff` says beside rioxarray's attributes.
_MORE = ("crs", "transform", "nodata", "raster_type", "colormap")


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
    """Open a GeoTIFF or COG as `rioxarray.open_rasterio` does; other formats are refused.

    The words are those of `swath.open_geotiff`, which takes further ones: `window`, `bbox`, `band`, `ifd`, `device`,
    `storage_options` and more. Of a file with several pages the first is opened, not all of them as subdatasets.

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
        for name in _MORE:
            array.attrs.pop(name, None)
        # It tells which of them were edited.
        array.encoding.pop("as_read", None)
    mapping = opened.coords[georef.GRID_MAPPING].attrs
    if mapping["GeoTransform"] == georef.NO_TRANSFORM and "gcps" not in mapping and "rpcs" not in mapping:
        _warn_of_no_place("the file has no transform, control points or RPCs: its coordinates count pixels")
    return opened


def to_raster(
    data: Any,
    raster_path: Any,
    *,
    tags: Mapping[str, Any] | None = None,
    windowed: bool = False,
    lock: Any = None,
    compute: bool = True,
    **words: Any,
) -> Any:
    """Write a DataArray or Dataset as its `rio.to_raster` does; the other words are those of `swath.to_geotiff`.

    rioxarray leaves the writing for later only where `compute` is False, the data are in chunks of dask and there is a
    `lock`; so does this. swath needs neither the lock nor `windowed`: it always writes block by block. The units of the
    bands become a tag of the file too, as in rioxarray.

    Returns
    -------
    None, a dask Delayed that writes, or the file as bytes where `raster_path` is None
    """
    del windowed
    arrays = list(data.data_vars.values()) if isinstance(data, xarray.Dataset) else [data]
    later = not compute and bool(lock) and any(array.chunks for array in arrays)
    if words.get("transform") is None and not any(map(_has_place, arrays)):
        _warn_of_no_place("the data have no transform, control points or RPCs: the file will not say where it lies")
    if isinstance(data, xarray.DataArray) and "units" in data.attrs:
        tags = {"units": data.attrs["units"], **(tags or {})}
    written = to_geotiff(data, raster_path, tags=tags, compute=not later, **words)
    return written if later or raster_path is None else None


def _has_place(array: xarray.DataArray) -> bool:
    if array.ndim < 2:
        return False
    mapping = grid_mapping(array)
    return "gcps" in mapping or "rpcs" in mapping or found_transform(array, *spatial_dims(array)) is not None


def _warn_of_no_place(message: str) -> None:
    """Warns in rasterio's class where a script uses rasterio: its filters are for that."""
    rasterio = sys.modules.get("rasterio.errors")
    category = SwathWarning if rasterio is None else rasterio.NotGeoreferencedWarning
    warn(message, category)


__all__ = ["open_rasterio", "to_raster"]
