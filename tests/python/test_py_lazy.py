"""Lazy arrays without dask."""

from __future__ import annotations

import asyncio
import pickle
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
import rioxarray
import swath
import xarray as xr
from opening import pixels, write
from swath._lazy import Reader

ARRAY = pixels()


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = write(tmp_path_factory.mktemp("lazy") / "a.tif", ARRAY, overviews=(2,), nodata=11)
    with rasterio.open(path, "r+") as file:
        file.scales, file.offsets = (0.5, 2.0, 1.0), (0.0, 10.0, 0.0)
    return path


@pytest.mark.parametrize("words", [{"lazy": True}, {"cache": True}, {"cache": False}, {"lazy": True, "cache": False}])
def test_reads_only_used_parts(path: Path, reads: list[Any], words: dict[str, Any]) -> None:
    array = swath.open_geotiff(path, **words)
    assert array.chunks is None and not array.variable._in_memory
    part = array.isel(band=1, y=slice(20, 30)).isel(x=slice(40, 45))
    assert reads == []
    np.testing.assert_array_equal(part.values, ARRAY[1, 20:30, 40:45])
    assert reads == [([2], (40, 20, 5, 10))]


@pytest.mark.parametrize(("cache", "times"), [(None, 1), (True, 1), (False, 2)])
def test_cache_decides_whether_samples_are_read_twice(
    path: Path, reads: list[Any], cache: bool | None, times: int
) -> None:
    array = swath.open_geotiff(path, lazy=True, cache=cache)
    for _ in range(2):
        np.testing.assert_array_equal(array.values, ARRAY)
    assert len(reads) == times


def test_reads_at_once_unless_lazy_is_requested(path: Path) -> None:
    for words in ({}, {"lazy": False}):
        assert swath.open_geotiff(path, **words).variable._in_memory


@pytest.mark.parametrize(
    "words",
    [
        {"masked": True},
        {"mask_and_scale": True},
        {"band": 2},
        {"band": [3, 1], "window": (4, 5, 40, 50)},
        {"overview_level": 0},
        {"overview_level": 0, "window": (1, 2, 9, 8), "masked": True},
        {"dtype": "float64"},
        {"parse_coordinates": False, "default_name": "height"},
        {"band_as_variable": True, "mask_and_scale": True},
    ],
    ids=str,
)
def test_lazy_arrays_equal_eager_ones(path: Path, words: dict[str, Any]) -> None:
    lazy, now = swath.open_geotiff(path, lazy=True, **words), swath.open_geotiff(path, **words)
    xr.testing.assert_identical(lazy, now)
    copied = pickle.loads(pickle.dumps(swath.open_geotiff(path, lazy=True, **words)))
    xr.testing.assert_identical(copied, now)


def test_pickles_without_samples(path: Path) -> None:
    array = swath.open_geotiff(path, lazy=True)
    text = pickle.dumps(array)
    assert len(text) < ARRAY.nbytes / 4
    copied = pickle.loads(text)
    assert not copied.variable._in_memory
    np.testing.assert_array_equal(copied.isel(band=2), ARRAY[2])


def test_assigning_leaves_the_file_alone(path: Path) -> None:
    array = swath.open_geotiff(path, cache=False)
    array[0, 0, 0] = 77
    assert array[0, 0, 0] == 77
    assert swath.open_geotiff(path)[0, 0, 0] == ARRAY[0, 0, 0] != 77


def test_loads_without_blocking_the_loop(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Each read waits for the other to begin, and both for the loop: in one thread they would never end.
    together = threading.Barrier(2, timeout=30)
    turned = threading.Event()
    original = Reader._samples

    def both(self: Reader, *arguments: Any) -> Any:
        together.wait()
        assert turned.wait(30)
        return original(self, *arguments)

    monkeypatch.setattr(Reader, "_samples", both)

    async def load() -> list[xr.DataArray]:
        arrays = [swath.open_geotiff(path, lazy=True).isel(band=i) for i in range(2)]
        tasks = [asyncio.ensure_future(array.load_async()) for array in arrays]
        while not together.n_waiting and not turned.is_set():
            await asyncio.sleep(0.01)
            turned.set()
        return await asyncio.gather(*tasks)

    for i, array in enumerate(asyncio.run(load())):
        np.testing.assert_array_equal(array.values, ARRAY[i])


def test_is_written_without_being_held(path: Path, tmp_path: Path, reads: list[Any]) -> None:
    array = swath.open_geotiff(path, lazy=True)
    out = swath.to_geotiff(array, tmp_path / "out.tif")
    assert not array.variable._in_memory and reads
    np.testing.assert_array_equal(swath.open_geotiff(out), ARRAY)


def test_contradictions_are_errors(path: Path) -> None:
    pytest.importorskip("dask")
    with pytest.raises(swath.UsageError, match="lazy=False"):
        swath.open_geotiff(path, lazy=False, cache=False)
    with pytest.raises(swath.UsageError, match="lazy=False"):
        swath.open_geotiff(path, lazy=False, chunks=32)
    # Users of rioxarray give these together with chunks, where they change nothing.
    for cache in (True, False, None):
        assert swath.open_geotiff(path, chunks=32, cache=cache).chunks


def test_keywords_of_rioxarray(path: Path) -> None:
    words: dict[str, Any] = {"lock": False, "decode_times": True, "decode_timedelta": None, "sharing": False}
    for driver in ("GTiff", "COG", ["PNG", "GTiff"], None):
        assert swath.open_geotiff(path, **words, driver=driver).shape == ARRAY.shape
    assert swath.open_geotiff(path, OVERVIEW_LEVEL=0, NUM_THREADS="ALL_CPUS").shape == (3, 35, 45)
    assert xr.open_dataset(path, engine="swath", open_kwargs={"overview_level": 0}).band_data.shape == (3, 35, 45)
    with pytest.raises(swath.UsageError, match="GeoTIFF"):
        swath.open_geotiff(path, driver="netCDF")
    with pytest.raises(swath.UsageError, match="give one"):
        swath.open_geotiff(path, overview_level=0, OVERVIEW_LEVEL=1)
    with pytest.raises(TypeError, match="did you mean chunks"):
        swath.open_geotiff(path, chunk=32)
    for word in ("variable", "group"):
        with pytest.raises(swath.UsageError, match="ifd="):
            swath.open_geotiff(path, **{word: "green"})


@pytest.mark.parametrize("words", [{}, {"masked": True}, {"mask_and_scale": True}, {"chunks": 32}], ids=str)
def test_bands_as_variables_are_those_of_rioxarray(path: Path, words: dict[str, Any]) -> None:
    theirs = rioxarray.open_rasterio(path, band_as_variable=True, **words)
    ours = swath.open_geotiff(path, band_as_variable=True, **words)
    xr.testing.assert_equal(ours, theirs)
    assert isinstance(ours, xr.Dataset) and ours.attrs == theirs.attrs
    assert all(bool(variable.chunks) == ("chunks" in words) for variable in ours.data_vars.values())
    with pytest.raises(swath.UsageError, match="band_as_variable"):
        swath.open_geotiff(path, band_as_variable=True, band=1)
