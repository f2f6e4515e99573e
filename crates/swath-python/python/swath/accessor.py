"""Gives xarray's objects a `.swath` with what swath does for them; importing this module is enough."""

from __future__ import annotations

from typing import Any

import xarray

from . import _grid, _labels
from ._metadata import Transform
from ._write import to_geotiff
from .rioxarray import to_raster


class _Accessor:
    def __init__(self, data: Any) -> None:
        self._data = data

    def to_geotiff(self, path: Any, **words: Any) -> Any:
        """Write as a GeoTIFF or COG; see `swath.to_geotiff`."""
        return to_geotiff(self._data, path, **words)

    def to_raster(self, raster_path: Any, **words: Any) -> Any:
        """Write as `rio.to_raster` does; see `swath.rioxarray.to_raster`."""
        return to_raster(self._data, raster_path, **words)

    @property
    def crs(self) -> str | None:
        """The reference system that a file would get, as WKT or a code."""
        return _grid.found_crs(self._data)


@xarray.register_dataarray_accessor("swath")
class DataArrayAccessor(_Accessor):
    """What swath does for a DataArray.

    Examples
    --------
    >>> import numpy as np, xarray as xr, swath.accessor
    >>> da = xr.DataArray(np.zeros((2, 3), "uint8"), dims=("y", "x"))
    >>> swath.Dataset(da.swath.to_geotiff(None)).shape
    (1, 2, 3)
    """

    @property
    def transform(self) -> Transform | None:
        """Six numbers in rasterio's order, from the coordinates."""
        return _grid.found_transform(self._data, *_grid.spatial_dims(self._data))

    @property
    def nodata(self) -> Any:
        """The value of missing pixels in a file."""
        return _labels.found_nodata(self._data)


@xarray.register_dataset_accessor("swath")
class DatasetAccessor(_Accessor):
    """What swath does for a Dataset; its variables are bands."""
