"""The accessor `.swath` of xarray objects; importing this module registers it."""

from __future__ import annotations

from typing import Any

import xarray

from . import _dataarray_grid, _dataarray_metadata
from ._metadata import Transform
from ._write import to_geotiff
from .rioxarray import to_raster


class _Accessor:
    def __init__(self, data: Any) -> None:
        self._data = data

    def to_geotiff(self, path: Any, **options: Any) -> Any:
        """Write as a GeoTIFF or COG; `path` and `options` are those of `swath.to_geotiff`."""
        return to_geotiff(self._data, path, **options)

    def to_raster(self, raster_path: Any, **options: Any) -> Any:
        """Write as `rio.to_raster` does; `raster_path` and `options` are those of `swath.rioxarray.to_raster`."""
        return to_raster(self._data, raster_path, **options)

    @property
    def crs(self) -> str | None:
        """Reference system that a written file would have, as WKT or a code."""
        return _dataarray_grid.found_crs(self._data)


@xarray.register_dataarray_accessor("swath")
class DataArrayAccessor(_Accessor):
    """Writes a DataArray, and shows its georeference.

    Examples
    --------
    >>> import numpy as np, xarray as xr, swath.accessor
    >>> da = xr.DataArray(np.zeros((2, 3), "uint8"), dims=("y", "x"))
    >>> swath.Dataset(da.swath.to_geotiff(None)).shape
    (1, 2, 3)
    """

    @property
    def transform(self) -> Transform | None:
        """Six numbers of the transform in Affine's order, from the coordinates."""
        return _dataarray_grid.found_transform(self._data, *_dataarray_grid.spatial_dims(self._data))

    @property
    def nodata(self) -> Any:
        """Nodata value that a written file would have."""
        return _dataarray_metadata.found_nodata(self._data)


@xarray.register_dataset_accessor("swath")
class DatasetAccessor(_Accessor):
    """Writes a Dataset, whose variables become bands."""
