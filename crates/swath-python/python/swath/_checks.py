"""Checks values that callers give to `open_geotiff` and `to_geotiff`; each error says what to give instead."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

import numpy as np

from ._errors import UsageError

# Levels of the codecs that have any.
LEVELS = {
    "deflate": range(1, 13),
    "lerc_deflate": range(1, 13),
    "zstd": range(1, 23),
    "lerc_zstd": range(1, 23),
    "lzma": range(10),
}
WITH_QUALITY = ("jpeg", "webp", "jpeg2000")
WITH_LOSSLESS = ("webp", "jpeg2000", "jpeg")
WITH_MAX_ERROR = ("lerc", "lerc_deflate", "lerc_zstd")

# Extensions of other formats: a caller who gives one wants that format, or mistyped the name.
OTHER_FORMATS = frozenset(
    {
        *("png", "jpg", "jpeg", "jp2", "j2k", "webp", "gif", "bmp", "svg", "pdf", "vrt", "img", "hdr", "asc", "xml"),
        *("nc", "nc4", "h5", "hdf", "hdf5", "he5", "zarr", "grib", "grb", "grib2", "grb2", "npy", "npz", "parquet"),
        *("csv", "json", "geojson", "gpkg", "mbtiles", "shp", "kml", "kmz", "dem", "dt0", "dt1", "dt2", "ntf", "ecw"),
    }
)


def whole(name: str, value: Any, least: int = 0) -> int | None:
    """Returns a whole number that is not below `least`; None stays None."""
    if value is None:
        return None
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)) or value < least:
        raise UsageError(f"{name}={value!r}: give a whole number from {least} on")
    return int(value)


def check_band(band: Any, count: int) -> None:
    """Raises unless `band` is a number or a collection of numbers."""
    numbers = band if isinstance(band, (list, tuple, range, set, np.ndarray)) else (band,)
    if band is None or all(isinstance(one, (int, np.integer)) and not isinstance(one, bool) for one in numbers):
        return
    known = "the only band is 1" if count == 1 else f"bands are 1 to {count}"
    if isinstance(band, slice):
        raise UsageError(f"band={band!r}: give a list of numbers such as band=[1, 2]; {known}")
    raise UsageError(f"band={band!r}: give the number of a band or a list of numbers; {known}")


def check_chunks(chunks: Any) -> None:
    """Raises unless all chunk sizes are at least 1, or -1 for the whole axis."""
    values = list(chunks.values()) if isinstance(chunks, Mapping) else chunks
    values = values if isinstance(values, (list, tuple)) else [values]
    for value in values:
        for size in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(size, (int, np.integer)) and size is not True and (size == 0 or size < -1):
                raise UsageError(
                    f'chunks={chunks!r}: give sizes of 1 or more, -1 for the whole of an axis, or "auto"; without '
                    "chunks= the samples are read at once"
                )


def check_decode_coords(value: Any) -> None:
    """Raises for `decode_coords=False`, which swath cannot honour."""
    if value is False:
        raise UsageError(
            "decode_coords=False: swath always returns the coordinates; parse_coordinates=False leaves out x and y"
        )


def check_codec(compression: str, *, level: Any, quality: Any, lossless: Any, max_z_error: Any) -> None:
    """Raises for options that the codec does not have, and for values outside their range."""
    level, quality = whole("compression_level", level), whole("quality", quality, 1)
    if level is not None:
        levels = LEVELS.get(compression)
        if levels is None:
            raise UsageError(f"compression_level={level}: {compression} has no levels; leave compression_level out")
        if level not in levels:
            raise UsageError(
                f"compression_level={level}: {compression} has levels from {levels.start} to {levels.stop - 1}"
            )
    if quality is not None and compression not in WITH_QUALITY:
        raise UsageError(
            f"quality={quality}: {compression} has no quality; leave it out, or give compression= one of "
            f"{', '.join(WITH_QUALITY)}"
        )
    if quality is not None and quality > 100:
        raise UsageError(f"quality={quality}: give a number from 1 to 100")
    if lossless is False and compression not in WITH_LOSSLESS:
        raise UsageError(f"lossless=False: {compression} has no such choice; leave lossless out")
    if lossless and compression == "jpeg":
        raise UsageError(
            "lossless=True: jpeg always loses detail; leave lossless out, or give compression= one that keeps every "
            "sample, such as webp, jpeg2000 or zstd"
        )
    if lossless and max_z_error:
        raise UsageError(f"lossless=True and max_z_error={max_z_error!r} contradict each other: give one")
    if max_z_error and compression not in WITH_MAX_ERROR:
        raise UsageError(
            f"max_z_error={max_z_error!r}: {compression} keeps every sample as it is; leave it out, or give "
            f"compression= one of {', '.join(WITH_MAX_ERROR)}"
        )


def check_target(path: Any, driver: Any) -> None:
    """Raises for a file name with the extension of another format, unless the caller names a driver."""
    if isinstance(path, tuple) and len(path) == 2:
        # A store of obstore, and a path in it.
        path = path[1]
    elif hasattr(path, "fs") and hasattr(path, "path") and not hasattr(path, "write"):
        # An OpenFile of fsspec.
        path = path.path
    name = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(name, str) or driver is not None:
        return
    # An address may have a query after its path.
    plain = name.partition("?")[0] if re.match(r"[A-Za-z][A-Za-z0-9+.-]+://", name) else name
    ending = PurePosixPath(plain).suffix[1:].lower()
    if ending in OTHER_FORMATS:
        raise UsageError(
            f"{name}: to_geotiff writes GeoTIFF and COG, not .{ending}: give a name that ends in .tif, or "
            'driver="GTiff" to keep this name'
        )


def check_data(data: Any, path: Any) -> None:
    """Raises for data that are not a raster, with the call that the caller most likely wants."""
    if data is None:
        raise UsageError("data is None: give an array, a DataArray or a Dataset")
    if isinstance(data, (str, bytes, os.PathLike)):
        shown = data if isinstance(data, (str, os.PathLike)) else "bytes"
        if hasattr(path, "shape") or hasattr(path, "data_vars"):
            raise UsageError(f"the arguments are swapped: to_geotiff(data, path) takes {str(shown)!r} second")
        raise UsageError(f"data={str(shown)!r} is not an array: open it first, to_geotiff(open_geotiff(...), path)")
    if hasattr(data, "block_shape") or hasattr(data, "block_shapes"):
        raise UsageError(
            f"data={data!r} is an opened file: use to_geotiff(open_geotiff(...), path), which keeps its metadata"
        )
