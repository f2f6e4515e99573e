"""The readers that are counted and timed against each other on the network: swath, GDAL's /vsicurl, async-geotiff."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import rasterio
import rasterio.windows
import swath
from harness import difference

# Column, row, width, height.
Box = tuple[int, int, int, int]

# No listing of folders, which no server here has.
PLAIN = {"GDAL_DISABLE_READDIR_ON_OPEN": "EMPTY_DIR"}
# As guides to cloud-optimized files recommend it.
TUNED = {
    **PLAIN,
    "CPL_VSIL_CURL_USE_HEAD": "NO",
    "GDAL_INGESTED_BYTES_AT_OPEN": "32768",
    "GDAL_HTTP_MERGE_CONSECUTIVE_RANGES": "YES",
    "GDAL_HTTP_MULTIPLEX": "YES",
    "GDAL_HTTP_VERSION": "2",
    "GDAL_NUM_THREADS": "ALL_CPUS",
    "VSI_CACHE": "TRUE",
}


def equal_pixels(got: np.ndarray, want: np.ndarray) -> None:
    """Compares bit for bit; fails with the place of the first difference."""
    result = difference(np.ascontiguousarray(got), np.ascontiguousarray(want))
    assert result == "equal", result


def open_swath(url: str) -> Any:
    dataset = swath.Dataset(url)
    return dataset.shape, dataset.metadata(), dataset.overview_sizes


def read_swath(url: str, box: Box | None) -> np.ndarray:
    return np.asarray(swath.Dataset(url).read(window=swath.Window(*box) if box else None))


def open_rasterio(url: str, **settings: str) -> Any:
    with rasterio.Env(**settings), rasterio.open(url) as dataset:
        return dataset.shape, dataset.crs, dataset.nodata, dataset.overviews(1)


def read_rasterio(url: str, box: Box | None, **settings: str) -> np.ndarray:
    threads = {"NUM_THREADS": settings["GDAL_NUM_THREADS"]} if "GDAL_NUM_THREADS" in settings else {}
    with rasterio.Env(**settings), rasterio.open(url, **threads) as dataset:
        return dataset.read(window=rasterio.windows.Window(*box) if box else None)


async def _geotiff(url: str) -> Any:
    from async_geotiff import GeoTIFF
    from obstore.store import HTTPStore

    host, _, path = url.removeprefix("http://").partition("/")
    store = HTTPStore.from_url(f"http://{host}", client_options={"allow_http": True})
    return await GeoTIFF.open(path, store=store)


def open_async_geotiff(url: str) -> Any:
    async def work() -> Any:
        geotiff = await _geotiff(url)
        return geotiff.shape, geotiff.crs, geotiff.nodata, geotiff.overviews

    return asyncio.run(work())


def read_async_geotiff(url: str, box: Box | None) -> np.ndarray:
    from async_geotiff import Window

    async def work() -> np.ndarray:
        geotiff = await _geotiff(url)
        if box is None:
            return (await geotiff.read()).data
        x, y, width, height = box
        return (await geotiff.read(window=Window(col_off=x, row_off=y, width=width, height=height))).data

    return asyncio.run(work())


@dataclass(frozen=True)
class Reader:
    """Opens with metadata, and reads a window (or everything) of a file opened for it."""

    open: Callable[[str], Any]
    read: Callable[[str, Box | None], np.ndarray]


RIVALS = {
    "GDAL": Reader(lambda url: open_rasterio(url, **PLAIN), lambda url, box: read_rasterio(url, box, **PLAIN)),
    "GDAL tuned": Reader(lambda url: open_rasterio(url, **TUNED), lambda url, box: read_rasterio(url, box, **TUNED)),
    "async-geotiff": Reader(open_async_geotiff, read_async_geotiff),
}
READERS = {"swath": Reader(open_swath, read_swath), **RIVALS}
