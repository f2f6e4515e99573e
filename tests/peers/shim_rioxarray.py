"""Runs rioxarray's suite on swath, for TIFF files: `open_rasterio`, xarray's engine and `rio.to_raster`."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import rasterio
import rioxarray
import swath.rioxarray
import xarray
from rioxarray.raster_array import RasterArray
from rioxarray.raster_dataset import RasterDataset

MAGIC = (b"II\x2a\x00", b"MM\x00\x2a", b"II\x2b\x00", b"MM\x00\x2b")


def is_tiff(source: Any) -> bool:
    """Whether swath opens a file; the suite opens NetCDF, pictures and warped views as well."""
    if isinstance(source, rasterio.io.DatasetReader):
        source = source.name
    if isinstance(source, str | os.PathLike):
        name = os.fspath(source)
        if name.startswith(("http", "s3:")):
            return True
        path = Path(name.removeprefix("file://").removeprefix("file:"))
        return path.is_file() and path.read_bytes()[:4] in MAGIC
    if hasattr(source, "read") and hasattr(source, "seek"):
        start = source.read(4)
        source.seek(0)
        return start in MAGIC
    return False


def install(reached: Callable[[str], None]) -> None:
    their_open, their_open_dataset = rioxarray.open_rasterio, xarray.open_dataset

    def open_rasterio(filename: Any, **words: Any) -> Any:
        if not is_tiff(filename):
            return their_open(filename, **words)
        reached("open_rasterio")
        return swath.rioxarray.open_rasterio(filename, **words)

    def open_dataset(filename: Any, *arguments: Any, **words: Any) -> Any:
        if words.get("engine") not in ("rasterio", None) or not is_tiff(filename):
            return their_open_dataset(filename, *arguments, **words)
        reached("open_dataset")
        return their_open_dataset(filename, *arguments, **{**words, "engine": "swath"})

    def writing(theirs: Callable[..., Any]) -> Callable[..., Any]:
        def to_raster(self: Any, raster_path: Any, **words: Any) -> Any:
            driver = words.get("driver")
            ending = Path(str(raster_path)).suffix.lower()
            if str(driver).lower() not in ("gtiff", "cog") and (driver or ending not in (".tif", ".tiff")):
                return theirs(self, raster_path, **words)
            reached("to_raster")
            return self._obj.swath.to_raster(raster_path, **words)

        return to_raster

    rioxarray.open_rasterio = open_rasterio
    xarray.open_dataset = open_dataset
    for kind in (RasterArray, RasterDataset):
        kind.to_raster = writing(kind.to_raster)  # type: ignore[method-assign]
