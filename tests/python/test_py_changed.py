"""Files that are written to or replaced while arrays and handles use them: never pixels of two files."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import swath
import xarray as xr

SHAPE = (600, 700)
OLD, NEW = (np.full(SHAPE, value, "uint16") for value in (10, 77))


def in_place(path: Path) -> None:
    """The bytes of another file of the same size, as `cp` writes them."""
    other = path.with_name("other.tif")
    swath.to_geotiff(NEW, other, compression="none")
    new = other.read_bytes()
    assert len(new) == path.stat().st_size and new != path.read_bytes()
    with path.open("r+b") as file:
        file.write(new)
    later(path)


def cut(path: Path) -> None:
    os.truncate(path, 4096)
    later(path)


def by_rename(path: Path) -> None:
    """Replaces the file as swath does: size and time may stay the same."""
    before = path.stat()
    swath.to_geotiff(NEW, path, compression="none")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size


def later(path: Path) -> None:
    """Waits for a tick of the file system's clock, which takes some milliseconds."""
    found = path.stat()
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns + 10**9))


WAYS: dict[str, Callable[[Path], None]] = {"in place": in_place, "cut": cut, "renamed": by_rename}

LAZY: dict[str, Callable[[Path], xr.DataArray]] = {
    "dask": lambda path: swath.open_geotiff(path, chunks=256),
    "dask masked": lambda path: swath.open_geotiff(path, chunks=256, masked=True),
    "lazy": lambda path: swath.open_geotiff(path, lazy=True),
    "not cached": lambda path: swath.open_geotiff(path, cache=False),
    "xarray": lambda path: xr.open_dataset(path, engine="swath")["band_data"],
    "xarray chunks": lambda path: xr.open_dataset(path, engine="swath", chunks={})["band_data"],
}


@pytest.fixture
def path(folder: Path) -> Path:
    path = folder / "a.tif"
    swath.to_geotiff(OLD, path, compression="none")
    return path


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", LAZY)
def test_lazy_arrays_refuse_another_file(path: Path, kind: str, way: str) -> None:
    array = LAZY[kind](path)
    travelled = pickle.dumps(LAZY[kind](path))
    assert np.asarray(array.isel(x=slice(0, 10), y=slice(0, 10))).max() == 10
    WAYS[way](path)
    with pytest.raises(swath.ChangedError, match=r"a\.tif: .*changed.*open it again"):
        np.asarray(array)
    if way == "renamed":
        later(path)
    # The receiving process opens the name again, and finds another file.
    with pytest.raises(swath.ChangedError, match="the file has changed since"):
        np.asarray(pickle.loads(travelled))
    if way != "cut":
        assert np.asarray(LAZY[kind](path)).max() == 77


def test_lazy_arrays_outlive_the_name(path: Path) -> None:
    """No other file has the name, so no pixels can be mixed."""
    array = swath.open_geotiff(path, chunks=256)
    path.unlink()
    assert (np.asarray(array)[0] == 10).all()


def test_lazy_array_over_the_file_it_is_written_to(path: Path) -> None:
    array = swath.open_geotiff(path, chunks=256)
    swath.to_geotiff(array + 1, path)
    assert (np.asarray(swath.open_geotiff(path)) == 11).all()
    with pytest.raises(swath.ChangedError):
        array.compute()


READS: dict[str, Callable[[swath.Dataset], Any]] = {
    "read": lambda dataset: dataset.read(),
    "window": lambda dataset: dataset.read(1, window=swath.Window(5, 5, 20, 20)),
    "windows": lambda dataset: dataset.read_windows([swath.Window(5, 5, 20, 20)] * 3),
    "out": lambda dataset: dataset.read(1, out=np.empty(SHAPE, "uint16")),
}


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("way", WAYS)
def test_handles_show_one_file(path: Path, way: str, read: str) -> None:
    """A file that was replaced stays open, unchanged; one that was written to is a ChangedError."""
    dataset = swath.Dataset(path)
    before = np.asarray(READS[read](dataset))
    # From the second read on, tiles come from the cache.
    READS[read](dataset)
    WAYS[way](path)
    if way == "renamed":
        assert (np.asarray(READS[read](dataset)) == before).all()
        return
    with pytest.raises(swath.ChangedError, match=r"a\.tif: .*changed.*open it again"):
        READS[read](dataset)
    # The handles that the process keeps are opened again.
    if way == "in place":
        assert np.asarray(swath.read(path)).max() == 77


def test_side_files_of_the_next_file_are_not_used(path: Path) -> None:
    dataset, used = swath.Dataset(path), swath.Dataset(path)
    assert used.overview_sizes == []
    by_rename(path)
    swath.to_geotiff(NEW[::2, ::2], f"{path}.ovr")
    # A handle looks for side files when it is opened.
    assert dataset.overview_sizes == [] and used.overview_sizes == []
    assert np.asarray(swath.Dataset(path).read(1, overview_level=0)).max() == 77
