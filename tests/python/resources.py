"""Opens, reads, writes and fails again and again, and prints what the process holds before and after.

The process prints a line of JSON after a warm-up and one at the end: open files, threads and resident bytes.
"""

from __future__ import annotations

import ctypes
import gc
import json
import sys
from pathlib import Path

import numpy as np
import swath


def held() -> dict[str, int]:
    """Open files, threads and resident memory of this process, with free memory given back first."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return {
        "files": len(list(Path("/proc/self/fd").iterdir())),
        "threads": int(status["Threads"]),
        "bytes": int(status["VmRSS"].split()[0]) << 10,
    }


def round_of(folder: Path, number: int) -> None:
    """One open, one read, one write and four errors."""
    values = np.full((1, 200, 300), number % 200, "uint8")
    path = folder / f"{number % 3}.tif"
    swath.to_geotiff(values, path, compress="deflate", tile_size=64, cog=number % 2 == 0)
    with swath.Dataset(path) as dataset:
        assert int(dataset.read(window=(number % 100, 5, number % 100 + 90, 85)).max()) == number % 200
    assert swath.open_geotiff(path).shape == (1, 200, 300)
    swath.open_geotiff(path, chunks=64).compute(scheduler="synchronous")
    for fault in (
        lambda: swath.read(folder / "missing.tif"),
        lambda: swath.read(folder / "damaged.tif"),
        lambda: swath.read(path, bands=[7]),
        lambda: swath.to_geotiff(values, folder / "no" / "folder.tif"),
    ):
        try:
            fault()
        except (swath.Error, OSError):
            continue
        raise AssertionError("no error was raised")


def main() -> None:
    folder, rounds = Path(sys.argv[1]), int(sys.argv[2])
    whole = folder / "whole.tif"
    swath.to_geotiff(np.arange(40_000, dtype="uint16").reshape(1, 200, 200), whole, compress="zstd", tile_size=64)
    content = bytearray(whole.read_bytes())
    content[len(content) // 2 : len(content) // 2 + 64] = bytes(64)
    (folder / "damaged.tif").write_bytes(content)
    # The first rounds fill pools and caches.
    for number in range(40):
        round_of(folder, number)
    print(json.dumps(held()), flush=True)
    for number in range(rounds):
        round_of(folder, number)
    print(json.dumps(held()), flush=True)


if __name__ == "__main__":
    main()
