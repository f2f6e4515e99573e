"""`info`, `validate`, `stats` and `devices`: the reports of the command line, as dictionaries."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from . import _swath
from ._handles import opened


def info(
    source: Any,
    *,
    tags: bool = False,
    max_pixels: int | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Describes a file: the keys of ``rio info`` and many more.

    https://swath-raster.github.io/swath/cli-json.html lists them.

    Parameters
    ----------
    source
        As for :class:`Dataset`, or a dataset.
    tags : bool
        Whether to list every TIFF tag too.
    max_pixels : int, optional
        Largest number of samples of a read, as for :class:`Dataset`.
    storage_options : mapping, optional
        Settings for the server or store of an address, as for :class:`Dataset`.

    Examples
    --------
    >>> import numpy as np, swath
    >>> path = swath.to_geotiff(np.zeros((2, 64, 64), "int16"), "/tmp/swath-doc-info.tif", crs=32633)
    >>> found = swath.info(path)
    >>> found["count"], found["dtype"], found["crs"], found["compress"]
    (2, 'int16', 'EPSG:32633', 'zstd')
    """
    return opened(source, storage_options, anew=True, max_pixels=max_pixels).describe(tags)


def validate(
    source: Any,
    *,
    full: bool = False,
    strict: bool = False,
    max_pixels: int | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Checks whether a file is a valid COG, with rio-cogeo's errors and warnings.

    Parameters
    ----------
    full : bool
        Whether to check every block and the bytes around it, as GDAL's validator does with ``--full-check=yes``.
    strict : bool
        Whether warnings make a file invalid.
    source, max_pixels, storage_options
        As for :func:`info`.

    Examples
    --------
    >>> import numpy as np, swath
    >>> path = swath.to_geotiff(np.zeros((600, 600), "uint8"), "/tmp/swath-doc-validate.tif", cog=True)
    >>> swath.validate(path, full=True)["valid"]
    True
    """
    return opened(source, storage_options, anew=True, max_pixels=max_pixels).validate(full, strict)


def stats(
    source: Any,
    bands: Sequence[int] | None = None,
    *,
    progress: Any = None,
    max_pixels: int | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Computes minimum, maximum, mean, standard deviation and counts of each band, some rows at a time.

    Parameters
    ----------
    source, max_pixels, storage_options
        As for :func:`info`.
    bands : sequence of int, optional
        Bands, counted from 1; all by default.
    progress : bool, callable or object with update(), optional
        True shows a progress bar on a terminal; a function is called with (samples done, samples).

    Examples
    --------
    >>> import numpy as np, swath
    >>> path = swath.to_geotiff(np.array([[1, 2], [3, -1]], "int16"), "/tmp/swath-doc-stats.tif", nodata=-1)
    >>> band = swath.stats(path)["bands"][0]
    >>> band["min"], band["max"], band["mean"], band["valid"]
    (1, 3, 2.0, 3)
    """
    return opened(source, storage_options, anew=True, max_pixels=max_pixels).statistics(bands, progress=progress)


def devices() -> dict[str, Any]:
    """Lists GPUs, the driver and NVIDIA's libraries: which were found, which were not, and why.

    Examples
    --------
    >>> import swath
    >>> sorted(swath.devices())
    ['devices', 'driver', 'libraries']
    """
    return json.loads(_swath.describe_devices())
