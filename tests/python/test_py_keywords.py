"""Every keyword of every function, given values of every kind: it takes them, or says which keyword is wrong."""

from __future__ import annotations

import asyncio
import inspect
import io
import re
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import swath
import swath.rioxarray
import swath.xrspatial
import xarray as xr

VALUES = {
    "None": None,
    "-1": -1,
    "0": 0,
    "text": "x",
    "fraction": 1.5,
    "True": True,
    "object": object(),
    "list": [],
    "dict": {},
    "np.int64": np.int64(3),
    "np.uint8": np.uint8(2),
    "huge": 10**30,
    "nan": float("nan"),
    "bytes": b"x",
    "array": np.zeros((2, 2)),
    "texts": ["x", "y"],
}
DATA = np.arange(2 * 40 * 48, dtype="uint16").reshape(2, 40, 48)
GEOREFERENCE = {"crs": 32633, "transform": (10, 0, 500_000, 0, -10, 5_000_000), "nodata": 7}


@cache
def file() -> bytes:
    return swath.to_geotiff(DATA, None, overview_levels=1, **GEOREFERENCE)


@cache
def raster() -> xr.DataArray:
    return swath.open_geotiff(file())


def dataset() -> swath.Dataset:
    return swath.Dataset(file())


def chips(**words: Any) -> None:
    for _ in dataset().chips(**{"size": 16, **words}):
        pass


def aread(**words: Any) -> None:
    asyncio.run(dataset().aread(**words))


# Each function with the call that the keyword is added to, and the function whose signature lists its keywords.
CALLS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "open_geotiff": (swath.open_geotiff, lambda **words: swath.open_geotiff(file(), **words)),
    "to_geotiff": (swath.to_geotiff, lambda **words: swath.to_geotiff(DATA, None, **words)),
    "to_geotiff of a DataArray": (swath.to_geotiff, lambda **words: swath.to_geotiff(raster(), None, **words)),
    "read": (swath.read, lambda **words: swath.read(file(), **words)),
    "info": (swath.info, lambda **words: swath.info(file(), **words)),
    "validate": (swath.validate, lambda **words: swath.validate(file(), **words)),
    "stats": (swath.stats, lambda **words: swath.stats(file(), **words)),
    "Dataset": (swath.Dataset.__new__, lambda **words: swath.Dataset(file(), **words)),
    "Dataset.read": (swath.Dataset.read, lambda **words: dataset().read(**words)),
    "Dataset.read masked": (swath.Dataset.read, lambda **words: dataset().read(**{"masked": True, **words})),
    "Dataset.aread": (swath.Dataset.read, aread),
    "Dataset.read_windows": (
        swath.Dataset.read_windows,
        lambda **words: dataset().read_windows(**{"windows": [(0, 0, 4, 4), (2, 2, 6, 6)], **words}),
    ),
    "Dataset.chips": (swath.Dataset.chips, chips),
    "Dataset.dataset_mask": (swath.Dataset.dataset_mask, lambda **words: dataset().dataset_mask(**words)),
    "Dataset.sample": (
        swath.Dataset.sample,
        lambda **words: list(dataset().sample(**{"xy": [(500_005, 4_999_995)], **words})),
    ),
    "Dataset.statistics": (swath.Dataset.statistics, lambda **words: dataset().statistics(**words)),
    "Dataset.describe": (swath.Dataset.describe, lambda **words: dataset().describe(**words)),
    "Dataset.validate": (swath.Dataset.validate, lambda **words: dataset().validate(**words)),
    "Dataset.tags": (swath.Dataset.tags, lambda **words: dataset().tags(**words)),
    "Dataset.tag_namespaces": (swath.Dataset.tag_namespaces, lambda **words: dataset().tag_namespaces(**words)),
    "Dataset.overviews": (swath.Dataset.overviews, lambda **words: dataset().overviews(**words)),
    "Dataset.colormap": (swath.Dataset.colormap, lambda **words: dataset().colormap(**words)),
    "Dataset.index": (swath.Dataset.index, lambda **words: dataset().index(**{"x": 5e5, "y": 5e6, **words})),
    "Dataset.xy": (swath.Dataset.xy, lambda **words: dataset().xy(**{"row": 1, "col": 2, **words})),
    "rioxarray.open_rasterio": (
        swath.rioxarray.open_rasterio,
        lambda **words: swath.rioxarray.open_rasterio(file(), **words).load(),
    ),
    "xrspatial.open_geotiff": (
        swath.xrspatial.open_geotiff,
        lambda **words: swath.xrspatial.open_geotiff(file(), **words),
    ),
    "xrspatial.to_geotiff": (
        swath.xrspatial.to_geotiff,
        lambda **words: swath.xrspatial.to_geotiff(DATA.transpose(1, 2, 0), io.BytesIO(), **words),
    ),
}
# What the call itself fixes.
FIXED = {"self", "cls", "source", "data", "path", "filename", "_cancel", "options", "open_kwargs", "profile"}
# Options of GDAL, rasterio and xarray-spatial that have no keyword in the signature.
FURTHER = {
    "open_geotiff": (
        *("allow_rotated", "allow_unparseable_crs", "allow_invalid_nodata", "stable_only", "max_cloud_bytes"),
        *("mask_nodata", "missing_sources", "band_nodata", "driver", "OVERVIEW_LEVEL", "NUM_THREADS"),
    ),
    "to_geotiff": (
        *("driver", "blockxsize", "blockysize", "count", "width", "height", "endianness", "subsampling", "nvcomp"),
        *("compress", "zlevel", "num_threads", "var", "drop_rotation"),
    ),
    "read": ("masked", "boundless", "fill_value", "bbox", "bbox_crs", "ifd", "threads", "cpu_decode", "trust_input"),
}
# Words by which a message may name a keyword: another spelling of it, or what its meaning needs here.
SPELT = {
    "gpu": ("device", "CuPy", "GPU"),
    "device": ("CuPy", "GPU"),
    "OVERVIEW_LEVEL": ("overview_level",),
    "NUM_THREADS": ("threads",),
    "num_threads": ("threads",),
    "zlevel": ("compression_level",),
    "compress": ("compression",),
    "mask_nodata": ("masked",),
    "band": ("bands",),
    "bidx": ("band",),
    "indexes": ("bands", "band"),
    "bands": ("band",),
    "overview_level": ("overview",),
    "color_ramp_range": ("color_ramp",),
    "ifd": ("directory",),
    "nbits": ("bits",),
}


def keywords() -> list[tuple[str, str]]:
    found = []
    for name, (function, _) in CALLS.items():
        listed = [word for word in inspect.signature(function).parameters if word not in FIXED]
        found += [(name, word) for word in (*listed, *FURTHER.get(name, ()))]
    return found


@pytest.mark.parametrize(("name", "keyword"), keywords(), ids=lambda each: each)
def test_a_keyword_takes_a_value_or_says_that_it_is_wrong(name: str, keyword: str) -> None:
    call = CALLS[name][1]
    wrong = []
    for kind, value in VALUES.items():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                call(**{keyword: value})
        except swath.Error as error:
            words = (keyword, *SPELT.get(keyword, ()))
            if isinstance(error, swath.InternalError) or not any(
                re.search(rf"\b{word}\b", str(error)) for word in words
            ):
                wrong.append(f"{kind}: {type(error).__name__} does not name {keyword}: {error}")
        except Exception as error:
            wrong.append(f"{kind}: {type(error).__name__}: {error}")
    assert not wrong, "\n".join(wrong)


def test_no_keyword_is_left_out() -> None:
    """A function that the package exports is in the table above, or takes no keywords."""
    tested = {function for function, _ in CALLS.values()}
    for name in swath.__all__:
        value = getattr(swath, name)
        if inspect.isfunction(value) and inspect.signature(value).parameters:
            assert value in tested, name
    for name, value in inspect.getmembers(swath.Dataset, inspect.isfunction):
        if not name.startswith("_") and len(inspect.signature(value).parameters) > 1 and name != "aread":
            assert value in tested, name


def test_a_wrong_keyword_writes_nothing(folder: Path) -> None:
    target = folder / "a.tif"
    for words in ({"threads": -1}, {"band_units": 5}, {"tile_size": "x"}, {"max_memory": "x"}):
        with pytest.raises(swath.UsageError, match=next(iter(words))):
            swath.to_geotiff(DATA, target, **words)
    assert not list(folder.iterdir())
