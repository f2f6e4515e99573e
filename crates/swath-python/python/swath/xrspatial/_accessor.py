"""The accessor `.xrs` with `open_geotiff` and `to_geotiff`, where xarray-spatial, with its own, is not installed."""

from __future__ import annotations

import importlib.util
from typing import Any

import xarray

from .._dataarray_grid import found_transform, spatial_dims
from .._errors import UsageError
from ._read import open_geotiff
from ._write import to_geotiff


class _Accessor:
    """Opens and writes files in xarray-spatial's conventions, where that package is not installed."""

    def __init__(self, data: Any) -> None:
        self._data = data

    def _raster(self, var: Any = None) -> Any:
        """Returns the array itself, or the variable of a Dataset that is a raster."""
        if isinstance(self._data, xarray.DataArray):
            return self._data
        if var is not None:
            return self._data[var]
        for array in self._data.data_vars.values():
            if {"y", "x"} <= set(array.dims):
                return array
        raise UsageError(f"no variable has dimensions y and x: there are {list(map(str, self._data.data_vars))}")

    def open_geotiff(self, source: Any, *, var: Any = None, **keywords: Any) -> Any:
        """Open the part of a file that this array covers, in chunks where this array has chunks.

        `source` and `keywords` are those of `swath.xrspatial.open_geotiff`; `var` names the variable of a Dataset whose
        place counts. The file must have the same CRS.
        """
        wrong = [name for name in ("auto_reproject", "coregister", "resampling") if keywords.pop(name, False)]
        if wrong:
            raise UsageError(
                f"{wrong[0]}: swath does not reproject: use xarray-spatial or rioxarray on the opened array"
            )
        array = self._raster(var)
        y_name, x_name = spatial_dims(array)
        transform = found_transform(array, y_name, x_name)
        if transform is None:
            raise UsageError("the array has no georeferenced coordinates: open the file with window= or bbox=")
        a, _, c, _, e, f = transform
        across, down = sorted((c, c + a * array.sizes[x_name])), sorted((f, f + e * array.sizes[y_name]))
        if array.chunks is not None:
            rows, columns = (array.chunksizes[name][0] for name in (y_name, x_name))
            keywords.setdefault("chunks", (rows, columns))
        opened = open_geotiff(source, bbox=(across[0], down[0], across[1], down[1]), **keywords)
        for name in ("crs", "crs_wkt"):
            one, other = array.attrs.get(name), opened.attrs.get(name)
            if one is not None and other is not None:
                if one != other:
                    raise UsageError(f"{name} of the array is {one!r}, of the file {other!r}: reproject one of them")
                break
        return opened

    def to_geotiff(self, path: Any, *, var: Any = None, **keywords: Any) -> Any:
        """Write as `swath.xrspatial.to_geotiff` does; for a Dataset the variable `var`, or its first raster.

        `path` and `keywords` are those of `swath.xrspatial.to_geotiff`.
        """
        return to_geotiff(self._raster(var), path, **keywords)


def register() -> None:
    """Registers the accessor `.xrs`, unless xarray-spatial is installed."""
    if importlib.util.find_spec("xrspatial") is None and not hasattr(xarray.DataArray, "xrs"):
        xarray.register_dataarray_accessor("xrs")(_Accessor)
        xarray.register_dataset_accessor("xrs")(_Accessor)
