"""Reading through dask: chunks, names, what a block reads, and other processes."""

from __future__ import annotations

import io
import multiprocessing
import os
import pickle
import sys
from pathlib import Path
from typing import Any

import dask
import fsspec
import numpy as np
import obstore
import pytest
import swath
import xarray as xr
from opening import pixels, served, write
from swath._lazy import Reader

ARRAY = pixels()
BLOCKS = {"y": (16, 16, 16, 16, 6), "x": (32, 32, 26)}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("dask") / "a.tif", ARRAY, nodata=11, interleave="band", overviews=(2,))


@pytest.mark.parametrize(
    ("chunks", "expected"),
    [
        ({}, {"band": (1, 1, 1), **BLOCKS}),
        (-1, {"band": (3,), "y": (70,), "x": (90,)}),
        (40, {"band": (3,), "y": (40, 30), "x": (40, 40, 10)}),
        ((1, 40, 50), {"band": (1, 1, 1), "y": (40, 30), "x": (50, 40)}),
        ((40, 50), {"band": (1, 1, 1), "y": (40, 30), "x": (50, 40)}),
        ({"x": 60}, {"band": (3,), "y": (70,), "x": (60, 30)}),
        ({"band": 2, "y": (30, 40), "x": -1}, {"band": (2, 1), "y": (30, 40), "x": (90,)}),
        ("auto", {"band": (1, 1, 1), "y": (70,), "x": (90,)}),
        (True, {"band": (1, 1, 1), "y": (70,), "x": (90,)}),
    ],
    ids=str,
)
def test_chunks(path: Path, chunks: Any, expected: dict[str, tuple[int, ...]]) -> None:
    array = swath.open_geotiff(path, chunks=chunks)
    assert array.chunksizes == expected
    np.testing.assert_array_equal(array.values, ARRAY)


def test_chunks_of_dask_hold_whole_blocks(path: Path) -> None:
    with dask.config.set({"array.chunk-size": "4 KiB"}):
        array = swath.open_geotiff(path, chunks="auto")
        assert all(edge % 16 == 0 for edge in np.cumsum(array.chunksizes["y"])[:-1])
        assert all(edge % 32 == 0 for edge in np.cumsum(array.chunksizes["x"])[:-1])
        assert len(array.chunksizes["y"]) > 1
        part = swath.open_geotiff(path, chunks="auto", window=(5, 10, 70, 90))
        assert all((edge + 5) % 16 == 0 for edge in np.cumsum(part.chunksizes["y"])[:-1])
    whole_blocks = swath.open_geotiff(path, chunks={}, window=(5, 10, 70, 90))
    assert whole_blocks.chunksizes == {"band": (1, 1, 1), "y": (11, 16, 16, 16, 6), "x": (22, 32, 26)}
    np.testing.assert_array_equal(whole_blocks.values, ARRAY[:, 5:, 10:])


def test_blocks_that_hold_all_bands_stay_whole(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tif", ARRAY, interleave="pixel")
    assert swath.open_geotiff(path, chunks={}).chunksizes == {"band": (3,), **BLOCKS}
    assert swath.open_geotiff(path, chunks="auto").chunksizes["band"] == (3,)


@pytest.mark.parametrize("chunks", [{"time": 1}, (1, 2, 3, 4), "big", (10,) * 5])
def test_chunks_that_do_not_fit_are_refused(path: Path, chunks: Any) -> None:
    with pytest.raises(swath.UsageError, match="chunks"):
        swath.open_geotiff(path, chunks=chunks)


def test_names_follow_the_state_of_the_file(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tif", ARRAY)
    first, again = (swath.open_geotiff(path, chunks={}).data.name for _ in range(2))
    assert first == again
    assert swath.open_geotiff(path, chunks=16).data.name != first
    assert swath.open_geotiff(path, chunks={}, masked=True).data.name != first
    stat = path.stat()
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns + 1_000_000_000))
    assert swath.open_geotiff(path, chunks={}).data.name != first


def test_graph_is_one_reader_and_one_task_a_block(path: Path) -> None:
    array = swath.open_geotiff(path, chunks={})
    graph = array.data.__dask_graph__()
    readers = [key for key in graph if not isinstance(key, tuple)]
    assert len(readers) == 1 and len(graph) == 3 * 5 * 3 + 1
    assert len(pickle.dumps(graph)) < 20_000


def test_a_dask_with_other_insides_gives_the_same(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = swath.open_geotiff(path, chunks={})
    monkeypatch.setitem(sys.modules, "dask._task_spec", None)
    elsewhere = swath.open_geotiff(path, chunks={})
    monkeypatch.undo()
    assert here.data.name == elsewhere.data.name and here.chunks == elsewhere.chunks
    np.testing.assert_array_equal(elsewhere.values, ARRAY)


def test_a_block_reads_its_window_only(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    original = Reader._samples

    def spy(self: Reader, bands: list[int], place: tuple[int, int, int, int]) -> Any:
        seen.append((bands, place))
        return original(self, bands, place)

    monkeypatch.setattr(Reader, "_samples", spy)
    array = swath.open_geotiff(path, chunks={})
    assert seen == []
    np.testing.assert_array_equal(array[1, 16:32, 32:64].values, ARRAY[1, 16:32, 32:64])
    assert seen == [([2], (32, 16, 32, 16))]
    seen.clear()
    assert array.compute().shape == ARRAY.shape
    assert sorted(seen) == sorted(
        ([band], (x, y, min(32, 90 - x), min(16, 70 - y)))
        for band in (1, 2, 3)
        for y in range(0, 70, 16)
        for x in range(0, 90, 32)
    )


@pytest.mark.parametrize(
    "words", [{"masked": True}, {"band": 2}, {"overview_level": 0}, {"mask_and_scale": True}], ids=str
)
def test_lazy_equals_eager(path: Path, words: dict[str, Any]) -> None:
    lazy, eager = swath.open_geotiff(path, chunks=24, **words), swath.open_geotiff(path, **words)
    assert lazy.dtype == eager.dtype and lazy.attrs.keys() == eager.attrs.keys()
    xr.testing.assert_equal(lazy, eager)


@pytest.mark.parametrize(
    ("words", "changed"),
    [
        ({}, ARRAY.astype("float32")),
        ({}, ARRAY[:2]),
        ({}, ARRAY[:, :60]),
        ({"overview_level": 0}, ARRAY),
    ],
    ids=["dtype", "bands", "size", "overview"],
)
def test_a_file_that_changed_is_noticed(tmp_path: Path, words: dict[str, Any], changed: np.ndarray) -> None:
    path = write(tmp_path / "a.tif", ARRAY, overviews=(2,))
    lazy = swath.open_geotiff(path, chunks=32, **words)
    unread = xr.open_dataarray(path, engine="swath", mask_and_scale=False, **words)
    travelling = pickle.dumps((lazy, unread))
    write(path, changed)
    for array in pickle.loads(travelling):
        with pytest.raises(swath.SourceError, match="changed since") as refused:
            array.compute()
        assert refused.value.file == str(path)


def total(array: xr.DataArray) -> int:
    return int(array.sum())


@pytest.mark.parametrize("kind", ["path", "bytes", "bytesio", "fsspec", "url"])
def test_another_process_reads_what_was_opened_here(path: Path, kind: str) -> None:
    with served({"/a.tif": path.read_bytes()}) as address:
        source = {
            "path": path,
            "bytes": path.read_bytes(),
            "bytesio": io.BytesIO(path.read_bytes()),
            "fsspec": fsspec.open(f"file://{path}"),
            "url": f"{address}/a.tif",
        }[kind]
        lazy = swath.open_geotiff(source, chunks={})
        unread = xr.open_dataarray(source, engine="swath", mask_and_scale=False)
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            assert pool.map(total, [lazy, unread]) == [int(ARRAY.sum())] * 2


def test_a_store_of_obstore_is_read_in_threads(path: Path) -> None:
    store = obstore.store.MemoryStore()
    obstore.put(store, "a.tif", path.read_bytes())
    array = swath.open_geotiff((store, "a.tif"), chunks={})
    with dask.config.set(scheduler="threads", num_workers=4):
        np.testing.assert_array_equal(array.values, ARRAY)


def test_workers_of_a_cluster_read(path: Path) -> None:
    from distributed import Client, LocalCluster

    array = swath.open_geotiff(path, chunks={}, masked=True)
    with (
        dask.config.set({"distributed.worker.daemon": False}),
        LocalCluster(n_workers=2, threads_per_worker=2, processes=True, dashboard_address=None) as cluster,
        Client(cluster),
    ):
        np.testing.assert_array_equal(array.compute().values, swath.open_geotiff(path, masked=True).values)
        assert int(array.astype("int64").where(array.notnull(), 0).sum()) == int(ARRAY[ARRAY != 11].sum())


def test_one_handle_a_process_for_all_blocks(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copies = [pickle.loads(pickle.dumps(swath.open_geotiff(path, chunks={}).data)) for _ in range(2)]
    used = []
    original = Reader.opened

    def spy(self: Reader) -> Any:
        used.append(original(self))
        return used[-1]

    monkeypatch.setattr(Reader, "opened", spy)
    with dask.config.set(scheduler="threads", num_workers=4):
        for copied in copies:
            np.testing.assert_array_equal(copied.compute(), ARRAY)
    assert len(used) == 2 * 45 and len(set(map(id, used))) == 1
