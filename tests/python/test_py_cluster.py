"""`swath.to_geotiff` on a cluster of processes: workers encode, and the file equals that of an eager write."""

from __future__ import annotations

import importlib.util
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import swath
import swath._cluster
from distributed import Client, LocalCluster

ROWS, COLUMNS = 600, 200
WORDS: dict[str, Any] = {"tile_size": 32, "nodata": -9999.0, "crs": 32633, "transform": (10, 0, 5e5, 0, -10, 5e6)}


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """Two processes, as a user starts them."""
    words = {"n_workers": 2, "threads_per_worker": 1, "memory_limit": "1GB", "dashboard_address": ":0"}
    with LocalCluster(**words) as cluster, Client(cluster) as client:
        yield client


def samples() -> np.ndarray:
    values = (np.arange(2 * ROWS * COLUMNS).reshape(2, ROWS, COLUMNS) % 1009).astype("float32")
    values[:, 100:300, 20:90] = np.nan
    return values


def read(block: np.ndarray, log: str, pause: float, fatal: str = "", block_info: Any = None) -> np.ndarray:
    """Computes a chunk, notes that in a file, and once kills its worker."""
    if block_info:
        row = block_info[0]["chunk-location"][-2]
        with Path(log).open("a") as file:
            file.write(f"{block_info[0]['chunk-location']}\n")
        if fatal and row == 5 and not Path(fatal).exists():
            Path(fatal).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(pause)
    return block.copy()


def source(folder: Path, chunks: Any = (2, 48, 200), pause: float = 0.0, fatal: str = "") -> da.Array:
    data = da.from_array(samples(), chunks=chunks)
    return data.map_blocks(read, str(folder / "log"), pause, fatal, dtype="float32", meta=np.empty((0, 0, 0), "f4"))


def computed(folder: Path) -> Counter[str]:
    return Counter((folder / "log").read_text().splitlines())


@pytest.mark.parametrize("cog", [False, True])
@pytest.mark.parametrize("chunks", [(2, 48, 200), (1, (7, 250, 3, 340), (90, 110))])
@pytest.mark.parametrize("buffer", [1, None])
def test_bytes_of_the_eager_write(client: Client, folder: Path, chunks: Any, buffer: int | None, cog: bool) -> None:
    array = source(folder, chunks)
    path = folder / "a.tif"
    swath.to_geotiff(array, path, cog=cog, streaming_buffer_bytes=buffer, **WORDS)
    assert path.read_bytes() == swath.to_geotiff(samples(), None, cog=cog, **WORDS)
    counts = computed(folder)
    assert len(counts) == np.prod(array.numblocks)
    assert set(counts.values()) == {1}
    assert client.nthreads()


def test_overlaps_and_the_last_axis(client: Client, folder: Path) -> None:
    array = source(folder).map_overlap(
        lambda block: block + np.roll(block, 1, axis=1), depth={1: 3}, boundary="nearest", dtype="float32"
    )
    expected = swath.to_geotiff(array.compute(scheduler="sync"), None, cog=True, **WORDS)
    (folder / "log").unlink()
    assert swath.to_geotiff(array, None, cog=True, scheduler=client, **WORDS) == expected
    assert set(computed(folder).values()) == {1}
    last = da.moveaxis(source(folder), 0, 2)
    expected = swath.to_geotiff(samples(), None, cog=True, **WORDS)
    assert swath.to_geotiff(last, None, cog=True, band_axis=2, **WORDS) == expected


def test_arrays_that_the_cluster_holds(client: Client, folder: Path) -> None:
    held = source(folder).persist(scheduler=client)
    expected = swath.to_geotiff(samples() + 1, None, **WORDS)
    assert swath.to_geotiff(held + 1, None, **WORDS) == expected
    assert set(computed(folder).values()) == {1}
    with pytest.raises(ValueError, match="scheduler="):
        swath.to_geotiff(held + 1, None, scheduler="threads", **WORDS)


def test_a_worker_that_dies_is_survived(client: Client, folder: Path) -> None:
    fatal = folder / "died"
    array = source(folder, pause=0.01, fatal=str(fatal))
    made = swath.to_geotiff(array, None, cog=True, streaming_buffer_bytes=600_000, scheduler=client, **WORDS)
    assert fatal.exists()
    assert made == swath.to_geotiff(samples(), None, cog=True, **WORDS)
    client.wait_for_workers(2, timeout=20)


def test_bytes_in_flight_are_bounded(client: Client, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flying: list[int] = []
    placed = 0
    submit, result = swath._cluster._submit, swath._cluster._result

    def counted(client: Client, step: Any) -> Any:
        # The other steps compute the first chunks, from which the predictor is chosen.
        if step.outputs[0][0].startswith("swath-encode"):
            flying.append(len(flying) + 1 - placed)
        return submit(client, step)

    def place(future: Any) -> bytes:
        nonlocal placed
        made = result(future)
        placed += 1
        return made

    monkeypatch.setattr(swath._cluster, "_submit", counted)
    monkeypatch.setattr(swath._cluster, "_result", place)
    band = 2 * COLUMNS * 4 * 32
    array = source(folder, chunks=(2, 32, 200))
    # A group is in flight with its chunks, one or two more rows of chunks that it needs, and its encoded bytes.
    made = swath.to_geotiff(array, None, streaming_buffer_bytes=9 * band, scheduler=client, **WORDS)
    assert made == swath.to_geotiff(samples(), None, **WORDS)
    assert len(flying) == -(-ROWS // 32)
    assert 2 <= max(flying) <= 5
    flying.clear()
    placed = 0
    swath.to_geotiff(array, None, streaming_buffer_bytes=1, scheduler=client, **WORDS)
    assert max(flying) == 1


def test_a_task_that_fails_leaves_the_old_file(client: Client, folder: Path) -> None:
    def late(block: np.ndarray, block_info: Any = None) -> np.ndarray:
        if block_info and block_info[0]["chunk-location"][1] == 7:
            raise ZeroDivisionError("no")
        return block

    path = folder / "old.tif"
    path.write_bytes(b"old")
    failing = da.from_array(samples(), chunks=(2, 48, 200)).map_blocks(late, dtype="float32")
    with pytest.raises(ZeroDivisionError, match="no"):
        swath.to_geotiff(failing, path, scheduler=client, **WORDS)
    assert [(left.name, left.read_bytes()) for left in folder.iterdir()] == [("old.tif", b"old")]


def test_a_write_that_fails_leaves_others_alone(client: Client, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    array = source(folder, pause=0.02)
    held = array.persist(scheduler=client)
    calls = 0
    result = swath._cluster._result

    def place(future: Any) -> bytes:
        nonlocal calls
        calls += 1
        if calls == 1:
            # The same array, with the same keywords, while groups of the first write are in flight.
            with pytest.raises(ZeroDivisionError):
                swath.to_geotiff(array, None, scheduler=client, **WORDS)
        elif calls == 2:
            raise ZeroDivisionError
        return result(future)

    monkeypatch.setattr(swath._cluster, "_result", place)
    made = swath.to_geotiff(array, None, scheduler=client, **WORDS)
    assert calls > 3
    assert made == swath.to_geotiff(samples(), None, **WORDS)
    # Futures that the caller holds are still there.
    np.testing.assert_array_equal(held.compute(scheduler=client), samples())
    assert set(computed(folder).values()) == {1}


def test_device_chunks_need_a_transport_between_workers(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    class OnDevice(np.ndarray):
        """Stands for an array on a GPU."""

    there = {"numba": False}
    find = importlib.util.find_spec

    def found(name: str, *rest: Any) -> Any:
        return object() if there.get(name) else None if name in ("numba", "rmm") else find(name, *rest)

    monkeypatch.setattr(importlib.util, "find_spec", found)
    monkeypatch.setattr(swath._stream, "on_device", lambda samples: isinstance(samples, OnDevice))
    monkeypatch.setattr(swath._cluster, "on_device", lambda samples: isinstance(samples, OnDevice))
    array = da.from_array(samples(), chunks=(2, 48, 200))
    array = da.Array(array.dask, array.name, array.chunks, meta=np.empty((0, 0, 0), "float32").view(OnDevice))
    with pytest.raises(ValueError, match="numba or rmm"):
        swath._cluster._check_transport(client, array)
    with pytest.raises(ValueError, match="numba or rmm"):
        swath.to_geotiff(array, None, scheduler=client, device="cpu", **WORDS)
    there["numba"] = True
    swath._cluster._check_transport(client, array)


def test_workers_that_die_again_and_again_are_reported(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(block: np.ndarray, block_info: Any = None) -> np.ndarray:
        if block_info:
            os.kill(os.getpid(), signal.SIGKILL)
        return block

    monkeypatch.setattr(client.cluster.scheduler, "allowed_failures", 0)
    crashing = da.from_array(samples(), chunks=(2, 600, 200))
    crashing = crashing.map_blocks(crash, dtype="float32", meta=np.empty((0, 0, 0), "float32"))
    with pytest.raises(swath.Error, match="workers died"):
        swath.to_geotiff(crashing, None, scheduler=client, **WORDS)
    client.wait_for_workers(2, timeout=20)


def test_a_delayed_write_runs_on_a_worker(client: Client, folder: Path) -> None:
    later = swath.to_geotiff(source(folder), folder / "a.tif", cog=True, compute=False, **WORDS)
    assert later.compute(scheduler=client) == folder / "a.tif"
    assert (folder / "a.tif").read_bytes() == swath.to_geotiff(samples(), None, cog=True, **WORDS)
