"""Nodata of 64-bit integers, which no float holds, and nodata that no sample can have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
import swath as sw
import tifffile
import xarray as xr
from harness import Swath
from writing import convert

pytestmark = pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")

WIDE = [
    ("int64", 2**63 - 1), ("int64", -(2**63)), ("int64", -(2**53) - 1), ("uint64", 2**64 - 1), ("uint64", 2**53 + 1),
    ("uint64", 0),
]  # fmt: skip


def written(path: Path) -> str:
    """The text of the tag."""
    with rasterio.open(path) as dataset:
        assert dataset.count
    raw = path.read_bytes()
    with tifffile.TiffFile(path) as tiff:
        tag = tiff.pages[0].tags[42113]
        return raw[tag.valueoffset : tag.valueoffset + tag.count].rstrip(b"\0").decode()


def holed(dtype: str, nodata: int) -> np.ndarray:
    array = np.arange(20, dtype=dtype).reshape(4, 5) + 3
    array[1:3, 1:4] = nodata
    return array


@pytest.mark.parametrize("chunks", [None, 2], ids=["memory", "dask"])
@pytest.mark.parametrize(("dtype", "nodata"), WIDE)
def test_wide_integers(tmp_path: Path, dtype: str, nodata: int, chunks: int | None) -> None:
    array, path, copy = holed(dtype, nodata), tmp_path / "a.tif", tmp_path / "b.tif"
    sw.to_geotiff(array, path, nodata=nodata)
    assert written(path) == str(nodata)
    plain = sw.open_geotiff(path, chunks=chunks)
    assert plain.attrs["_FillValue"] == nodata and plain.attrs["_FillValue"].dtype == dtype
    assert plain.attrs["nodata"] == nodata and isinstance(plain.attrs["nodata"], int)
    masked = sw.open_geotiff(path, chunks=chunks, masked=True)
    assert masked.encoding["_FillValue"] == nodata and masked.encoding["_FillValue"].dtype == dtype
    assert np.array_equal(np.isnan(masked.values[0]), array == np.array(nodata, dtype))
    for opened in (plain, masked, xr.open_dataset(path, engine="swath")["band_data"]):
        sw.to_geotiff(opened, copy)
        assert written(copy) == str(nodata)
        with rasterio.open(copy) as dataset:
            assert dataset.dtypes[0] == dtype
            assert np.array_equal(dataset.read(1), array)


@pytest.mark.parametrize(("dtype", "nodata"), WIDE)
def test_wide_integers_masked_by_numpy(tmp_path: Path, dtype: str, nodata: int) -> None:
    array, path = holed(dtype, nodata), tmp_path / "a.tif"
    sw.to_geotiff(np.ma.masked_equal(array, nodata), path, nodata=np.dtype(dtype).type(nodata))
    assert written(path) == str(nodata)
    with rasterio.open(path) as dataset:
        assert np.array_equal(dataset.read(1), array)


def declared(path: Path, dtype: str, text: str) -> Path:
    tags: list[tuple[Any, ...]] = [(42113, "s", len(text) + 1, text, False)]
    array = np.arange(12, dtype=dtype).reshape(3, 4)
    tifffile.imwrite(path, array, metadata=None, photometric="minisblack", extratags=tags)
    return path


def test_whole_numbers_are_integers(tmp_path: Path) -> None:
    """However the file spells them."""
    for text in ("-9999", "-9999.0", "-9.999e3"):
        nodata = sw.open_geotiff(declared(tmp_path / "a.tif", "int16", text)).attrs["nodata"]
        assert nodata == -9999 and isinstance(nodata, int)


@pytest.mark.parametrize(
    ("dtype", "text"), [("uint8", "-9999"), ("uint8", "256"), ("uint16", "-1"), ("int16", "nan"), ("uint32", "1e30")]
)
def test_nodata_that_no_sample_has(swath: Swath, tmp_path: Path, dtype: str, text: str) -> None:
    """As in GDAL every pixel is valid, and a copy declares the same nodata."""
    path, copy = declared(tmp_path / "a.tif", dtype, text), tmp_path / "b.tif"
    with rasterio.open(path) as dataset:
        assert dataset.nodata is None and dataset.read_masks().all()
    opened = sw.open_geotiff(path, masked=True)
    assert not np.isnan(opened.values).any() and "_FillValue" not in opened.encoding
    assert f"{text} (no sample can have it)" in swath.run("info", path).stdout
    convert(swath, path, copy)
    assert written(copy) == text
    # Floats have no such limits, and beyond single precision there is only infinity.
    path = declared(path, "float32", "1e39")
    with rasterio.open(path) as dataset:
        assert sw.open_geotiff(path).attrs["nodata"] == dataset.nodata == np.inf


def test_integers_that_floats_round_cause_a_warning() -> None:
    data = np.array([[1, 2**53 - 1], [1 - 2**53, 7]])
    file = sw.to_geotiff(data, None, nodata=7)
    np.testing.assert_array_equal(sw.open_geotiff(file, masked=True).values[0], np.where(data == 7, np.nan, data))
    for beyond in (2**53 + 1, -(2**60) - 1):
        data[0, 0] = beyond
        file = sw.to_geotiff(data, None, nodata=7)
        with pytest.warns(sw.SwathWarning, match="may round integers beyond"):
            sw.open_geotiff(file, masked=True)
        # Nodata itself becomes NaN, whatever its size.
        data[0, 0] = 1
        sw.open_geotiff(sw.to_geotiff(np.where(data == 7, beyond, data), None, nodata=beyond), masked=True)
