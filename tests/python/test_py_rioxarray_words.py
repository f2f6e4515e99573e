"""`swath.rioxarray`: rioxarray's own conventions, for users who move from it."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
import rioxarray
import swath
import xarray as xr
from dask.delayed import Delayed
from opening import pixels, write
from rasterio.errors import NotGeoreferencedWarning
from swath.rioxarray import open_rasterio, to_raster

ARRAY = pixels()


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = write(tmp_path_factory.mktemp("rio") / "a.tif", ARRAY, overviews=(2,), nodata=11)
    with rasterio.open(path, "r+") as file:
        file.update_tags(title="rivers")
        file.descriptions = ("red", "green", "blue")
    return path


@pytest.fixture(scope="module")
def placeless(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rio") / "placeless.tif"
    swath.to_geotiff(ARRAY, path)
    return path


@pytest.mark.parametrize(
    "words",
    [{}, {"masked": True}, {"mask_and_scale": True}, {"chunks": 32}, {"cache": False}, {"band_as_variable": True}],
    ids=str,
)
def test_opens_with_the_attributes_of_rioxarray(path: Path, words: dict[str, Any]) -> None:
    with rioxarray.open_rasterio(path, **words) as theirs, open_rasterio(path, **words) as ours:
        xr.testing.assert_identical(ours, theirs)


def test_the_engine_has_the_attributes_of_rioxarrays(path: Path) -> None:
    ours, theirs = (xr.open_dataset(path, engine=engine) for engine in ("swath", "rasterio"))
    with ours, theirs:
        xr.testing.assert_identical(ours, theirs)


def test_is_lazy_unless_in_chunks(path: Path) -> None:
    array = open_rasterio(path)
    assert not array.variable._in_memory and array.chunks is None
    assert open_rasterio(path, chunks=True).chunks
    assert open_rasterio(path, overview_level=0).shape == (3, 35, 45)


def test_warns_of_a_file_without_georeferencing(path: Path, placeless: Path) -> None:
    with pytest.warns(NotGeoreferencedWarning, match="count pixels") as caught:
        array = open_rasterio(placeless)
    assert caught[0].filename == __file__
    with pytest.warns(NotGeoreferencedWarning, match="gets no georeference") as caught:
        to_raster(array, None)
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error", NotGeoreferencedWarning)
        to_raster(open_rasterio(path), None)
        # swath's own function shows that in the coordinates only.
        swath.open_geotiff(placeless)


def test_writes_as_rio_to_raster(path: Path, tmp_path: Path) -> None:
    array = rioxarray.open_rasterio(path)
    array.attrs["units"] = "m"
    ours, theirs = tmp_path / "ours.tif", tmp_path / "theirs.tif"
    words: dict[str, Any] = {"tags": {"made": "here"}, "compress": "deflate", "windowed": True, "driver": "GTiff"}
    assert array.swath.to_raster(ours, **words) is None
    array.rio.to_raster(theirs, **words)
    with rasterio.open(ours) as one, rasterio.open(theirs) as other:
        np.testing.assert_array_equal(one.read(), other.read())
        assert one.tags() == other.tags() and one.tags()["units"] == "m"
        for name in ("crs", "transform", "nodata", "descriptions", "dtypes", "scales"):
            assert getattr(one, name) == getattr(other, name), name


def test_writes_are_delayed_only_where_rioxarray_delays_them(path: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.tif"
    now, chunked = open_rasterio(path), open_rasterio(path, chunks=32)
    for array, lock in ((now, None), (now, True), (chunked, None), (chunked, False)):
        assert array.swath.to_raster(out, compute=False, lock=lock) is None
        np.testing.assert_array_equal(swath.open_geotiff(out), ARRAY)
        out.unlink()
    later = chunked.swath.to_raster(out, compute=False, lock=True)
    assert isinstance(later, Delayed) and not out.exists()
    later.compute()
    np.testing.assert_array_equal(swath.open_geotiff(out), ARRAY)


def test_a_dataset_is_written(path: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.tif"
    assert open_rasterio(path, band_as_variable=True).swath.to_raster(out) is None
    with open_rasterio(out) as array:
        np.testing.assert_array_equal(array, ARRAY)
        assert array.attrs["long_name"] == ("red", "green", "blue")


def test_needs_neither_rioxarray_nor_rasterio(placeless: Path) -> None:
    code = (
        "import sys; sys.modules['rasterio'] = sys.modules['rioxarray'] = None\n"
        "import warnings, swath; from swath.rioxarray import open_rasterio\n"
        "with warnings.catch_warnings(record=True) as caught:\n"
        f"    array = open_rasterio({str(placeless)!r})\n"
        "assert [warning.category for warning in caught] == [swath.SwathWarning]\n"
        "array.load()\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
