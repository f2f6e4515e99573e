"""The xarray engine: lazy, picklable, and equal to rioxarray's engine."""

from __future__ import annotations

import asyncio
import importlib.util
import io
import pickle
import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
import swath
import xarray as xr
from opening import pixels, write
from swath._lazy import Reader
from swath.xarray_backend import SwathBackendEntrypoint

ARRAY = pixels()
ENGINE: dict[str, Any] = {"engine": "swath"}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = write(tmp_path_factory.mktemp("engine") / "a.tif", ARRAY, overviews=(2,), nodata=11, interleave="band")
    with rasterio.open(path, "r+") as file:
        file.update_tags(title="rivers", level="3")
        file.update_tags(2, quality="good")
        file.descriptions = ("red", "green", "blue")
        file.scales, file.offsets = (0.5, 2.0, 1.0), (0.0, 10.0, 0.0)
    return path


def test_is_registered() -> None:
    assert isinstance(xr.backends.list_engines()["swath"], SwathBackendEntrypoint)


@pytest.mark.parametrize("words", [{}, {"mask_and_scale": False}, {"mask_and_scale": False, "masked": True}])
def test_equals_the_engine_of_rioxarray(path: Path, words: dict[str, Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = xr.open_dataset(path, engine="rasterio", **words)
    ours = xr.open_dataset(path, **ENGINE, **words)
    assert list(ours) == ["band_data"]
    xr.testing.assert_equal(ours, theirs)
    assert ours.band_data.dtype == theirs.band_data.dtype
    assert {key: ours.band_data.attrs[key] for key in theirs.band_data.attrs} == theirs.band_data.attrs
    for key in set(theirs.band_data.encoding) - {"source"}:
        assert ours.band_data.encoding[key] == theirs.band_data.encoding[key], key


def test_bands_as_variables(path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = xr.open_dataset(path, engine="rasterio", band_as_variable=True)
    ours = xr.open_dataset(path, **ENGINE, band_as_variable=True)
    assert list(ours) == ["band_1", "band_2", "band_3"]
    xr.testing.assert_equal(ours, theirs)
    assert ours.attrs == theirs.attrs and ours.attrs["level"] == 3
    for name in ours:
        assert {key: ours[name].attrs[key] for key in theirs[name].attrs} == theirs[name].attrs


def test_undecoded_values_decode_by_the_rules_of_cf(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tif", ARRAY, nodata=11)
    with rasterio.open(path, "r+") as file:
        file.scales, file.offsets = (2.0,) * 3, (10.0,) * 3
    raw = xr.open_dataset(path, **ENGINE, mask_and_scale=False)
    assert raw.band_data.dtype == "uint16"
    np.testing.assert_array_equal(xr.decode_cf(raw).band_data, xr.open_dataset(path, **ENGINE).band_data)


def test_nothing_is_read_before_it_is_used(path: Path, reads: list[Any]) -> None:
    array = xr.open_dataarray(path, **ENGINE, mask_and_scale=False)
    small = array.isel(band=1, y=slice(20, 30), x=slice(40, 45))
    assert reads == []
    np.testing.assert_array_equal(small.values, ARRAY[1, 20:30, 40:45])
    assert reads == [([2], (40, 20, 5, 10))]


INDICES: list[dict[str, Any]] = [
    {"band": 0, "y": 3, "x": 5},
    {"band": [2, 0], "y": slice(10, 2, -3), "x": slice(None, None, 7)},
    {"y": [5, 1, 60, -1], "x": slice(80, None)},
    {"y": [5, 1, 60], "x": [0, 89, 3]},
    {"band": slice(1, 1)},
    {"y": slice(7, 7), "x": 3},
    {"y": xr.DataArray([1, 5, 9], dims="point"), "x": xr.DataArray([2, 80, 4], dims="point")},
    {"band": xr.DataArray([[0, 1], [2, 2]], dims=("a", "b"))},
    {"x": -1},
]


@pytest.mark.parametrize("index", INDICES, ids=[str(i) for i in range(len(INDICES))])
def test_any_index_gives_what_numpy_gives(path: Path, index: dict[str, Any]) -> None:
    lazy = xr.open_dataarray(path, **ENGINE, mask_and_scale=False, cache=False)
    loaded = lazy.load()
    xr.testing.assert_identical(lazy.isel(index), loaded.isel(index))
    again = xr.open_dataarray(path, **ENGINE, mask_and_scale=False, cache=False)
    xr.testing.assert_identical(again.isel(index).load(), loaded.isel(index))


def test_indices_in_a_row(path: Path) -> None:
    lazy = xr.open_dataarray(path, **ENGINE, mask_and_scale=False, cache=False)
    part = lazy.isel(y=slice(10, 60, 2)).isel(x=slice(70, 10, -3), band=[2, 1]).isel(y=[0, -1], x=slice(2, None))
    np.testing.assert_array_equal(part.values, ARRAY[[2, 1], 10:60:2, 70:10:-3][:, [0, -1], 2:])


def test_pickles_without_what_was_read(path: Path) -> None:
    dataset = xr.open_dataset(path, **ENGINE)
    copied = pickle.loads(pickle.dumps(dataset))
    assert len(pickle.dumps(dataset)) < 50_000
    xr.testing.assert_identical(copied, dataset)


def test_chunks_of_xarray_are_the_blocks_of_the_file(path: Path) -> None:
    assert xr.open_dataarray(path, **ENGINE, chunks={}).chunksizes == {
        "band": (1, 1, 1),
        "y": (16, 16, 16, 16, 6),
        "x": (32, 32, 26),
    }
    both = [xr.open_dataarray(path, **ENGINE, chunks={"x": 64}) for _ in range(2)]
    assert both[0].data.name == both[1].data.name
    np.testing.assert_array_equal(both[0].values, xr.open_dataarray(path, **ENGINE).values)


def test_many_files_at_once(tmp_path: Path) -> None:
    paths = [write(tmp_path / f"{i}.tif", ARRAY + np.uint16(i)) for i in range(3)]
    for parallel in (False, True):
        stack = xr.open_mfdataset(paths, **ENGINE, combine="nested", concat_dim="time", parallel=parallel)
        assert stack.band_data.shape == (3, *ARRAY.shape)
        np.testing.assert_array_equal(stack.band_data[2].values, (ARRAY + np.uint16(2)).astype("float32"))


def test_loads_in_flight_together(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Each read waits for the other to begin: one after the other they would never end.
    together = threading.Barrier(2, timeout=30)
    original = Reader._samples

    def both(self: Reader, *arguments: Any) -> Any:
        together.wait()
        return original(self, *arguments)

    monkeypatch.setattr(Reader, "_samples", both)

    async def load() -> list[xr.Dataset]:
        datasets = [xr.open_dataset(path, **ENGINE, mask_and_scale=False).isel(band=i) for i in range(2)]
        return await asyncio.gather(*(dataset.load_async() for dataset in datasets))

    for i, dataset in enumerate(asyncio.run(load())):
        np.testing.assert_array_equal(dataset.band_data.values, ARRAY[i])


def test_guesses_what_it_can_open(path: Path) -> None:
    guess = SwathBackendEntrypoint().guess_can_open
    content = path.read_bytes()
    assert all(
        map(guess, [path, str(path), "a.TIFF", "b.btf", "http://host/c.tif?key=1", content, memoryview(content)])
    )
    file = io.BytesIO(content)
    file.seek(9)
    assert guess(file) and file.tell() == 9
    assert not any(map(guess, ["a.nc", "tif", b"no image", io.BytesIO(b"PK"), 3, None]))


def test_keywords_of_open_geotiff(path: Path) -> None:
    level = xr.open_dataarray(path, **ENGINE, overview_level=0, band=[2], mask_and_scale=False)
    xr.testing.assert_equal(level, swath.open_geotiff(path, overview_level=0, band=[2]))
    assert xr.open_dataarray(path, **ENGINE, window=(0, 0, 5, 6)).shape == (3, 5, 6)
    assert list(xr.open_dataset(path, **ENGINE, drop_variables="spatial_ref").coords) == ["band", "x", "y"]
    assert xr.open_dataarray(path, **ENGINE, decode_coords="all", default_name="dem").name == "dem"
    with pytest.raises(FileNotFoundError):
        xr.open_dataset(path.with_name("none.tif"), **ENGINE)


def test_devices_are_those_of_open_geotiff(path: Path) -> None:
    assert isinstance(xr.open_dataarray(path, **ENGINE, device="CPU").data, np.ndarray)
    with pytest.raises(swath.UsageError, match="tpu"):
        xr.open_dataset(path, **ENGINE, device="tpu")
    if importlib.util.find_spec("cupy"):
        pytest.skip("CuPy is installed")
    for device in ("cuda", "gpu", "cuda:0"):
        with pytest.raises(swath.DeviceError, match="CuPy"):
            xr.open_dataset(path, **ENGINE, device=device)


def test_closes(path: Path) -> None:
    with xr.open_dataset(path, **ENGINE) as dataset:
        assert dataset.band_data.shape == ARRAY.shape


def test_encoding_names_the_source(path: Path) -> None:
    dataset = xr.open_dataset(path, **ENGINE)
    assert dataset.encoding["source"] == dataset.band_data.encoding["source"] == str(path)
    assert dataset.band_data.encoding["original_shape"] == ARRAY.shape
