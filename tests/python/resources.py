"""Opens, reads, writes and fails again and again, and prints what the process holds before and after.

    resources.py local|remote|device FOLDER-OR-ADDRESS ROUNDS

The process prints a line of JSON after a warm-up and one at the end: open files, threads, resident bytes, and for the
fake driver (`SWATH_CUDA_DRIVER`) the device and pinned memory, streams, events and modules that are live.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import swath

LIVE = ("live_bytes", "live_host_bytes", "streams", "events", "modules")
# A failing server costs one request.
OPTIONS: dict[str, Any] = {"retries": 0}


def driver() -> Any:
    """The fake driver's own functions."""
    library = ctypes.CDLL(os.environ["SWATH_CUDA_DRIVER"])
    library.swath_fake_count.restype = ctypes.c_uint64
    return library


def held(way: str) -> dict[str, int]:
    """Open files, threads and resident memory of this process, with free memory given back first; and the driver's."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    found = {
        "files": len(list(Path("/proc/self/fd").iterdir())),
        "threads": int(status["Threads"]),
        "bytes": int(status["VmRSS"].split()[0]) << 10,
    }
    if way == "device":
        library = driver()
        found |= {name: library.swath_fake_count(name.encode()) for name in LIVE}
        assert library.swath_fake_count(b"errors") == 0
    return found


def fails(*calls: Callable[[], object]) -> None:
    """Makes calls, each of which has to raise."""
    for fault in calls:
        try:
            fault()
        except (swath.Error, OSError):
            continue
        raise AssertionError("no error was raised")


def local(folder: Path, number: int) -> None:
    """Four opens, three reads, one write and four errors."""
    values = np.full((1, 200, 300), number % 200, "uint8")
    path = folder / f"{number % 3}.tif"
    swath.to_geotiff(values, path, compress="deflate", tile_size=64, cog=number % 2 == 0)
    with swath.Dataset(path) as dataset:
        assert int(dataset.read(window=(number % 100, 5, number % 100 + 90, 85)).max()) == number % 200
    assert swath.open_geotiff(path).shape == (1, 200, 300)
    swath.open_geotiff(path, chunks=64).compute(scheduler="synchronous")
    fails(
        lambda: swath.read(folder / "missing.tif"),
        lambda: swath.read(folder / "damaged.tif"),
        lambda: swath.read(path, bands=[7]),
        lambda: swath.to_geotiff(values, folder / "no" / "folder.tif"),
    )


def remote(address: str, number: int) -> None:
    """Three opens and three reads over HTTP, and three errors: nothing there, damage, a server that fails or stops."""
    url = f"{address}/whole.tif"
    with swath.Dataset(url, storage_options=OPTIONS) as dataset:
        assert dataset.read(window=(number % 100, 5, number % 100 + 90, 85)).shape == (1, 90, 80)
    assert swath.open_geotiff(url, storage_options=OPTIONS).shape == (1, 200, 200)
    swath.open_geotiff(url, chunks=64, storage_options=OPTIONS).compute(scheduler="synchronous")
    fails(*(
        lambda name=name: swath.read(f"{address}/{name}.tif", storage_options=OPTIONS)
        for name in ("missing", "damaged", ("failing", "ending")[number % 2])
    ))  # fmt: skip


def device(folder: Path, number: int) -> None:
    """Two reads and a write by the GPU, and five errors: damage, a band that is not there, and calls that fail."""
    # Small: the kernels run on the host.
    values = np.full((1, 48, 64), number % 200, "uint8")
    path = folder / f"{number % 3}.tif"
    compression = ("deflate", "zstd", "lzw")[number % 3]
    swath.to_geotiff(values, path, compress=compression, tile_size=32, cog=number % 2 == 0, device="cuda")
    assert np.array_equal(swath.read(path, device="cuda").to_host(), values)
    with swath.Dataset(path) as dataset:
        part = dataset.read(window=(number % 10, 5, number % 10 + 30, 55), device="cuda")
        assert np.array_equal(part.to_host(), values[:, number % 10 : number % 10 + 30, 5:55])
    library = driver()

    def failing(script: str, call: Callable[[], object]) -> Callable[[], object]:
        def run() -> object:
            library.swath_fake_script(script.encode())
            try:
                return call()
            finally:
                library.swath_fake_script(b"")

        return run

    fails(
        lambda: swath.read(folder / "damaged.tif", device="cuda"),
        lambda: swath.read(path, bands=[7], device="cuda"),
        failing("fail_copy=1", lambda: swath.read(path, device="cuda")),
        failing("fail_launch=1", lambda: swath.read(path, device="cuda")),
        failing("fail_copy=2", lambda: swath.to_geotiff(values, folder / "not.tif", device="cuda")),
    )


def main() -> None:
    way, place, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
    round_of: Callable[[Any, int], None] = {"local": local, "remote": remote, "device": device}[way]
    where: Any = place if way == "remote" else Path(place)
    # The first rounds fill pools and caches.
    for number in range(40):
        round_of(where, number)
    before = held(way)
    print(json.dumps(before), flush=True)
    for number in range(rounds):
        round_of(where, number)
    # A connection whose last use was an error is closed by a thread of its own, a moment later.
    end = time.monotonic() + 5
    while (after := held(way))["files"] > before["files"] and time.monotonic() < end:
        time.sleep(0.1)
    print(json.dumps(after), flush=True)


if __name__ == "__main__":
    main()
