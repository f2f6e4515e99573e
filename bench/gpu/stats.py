#!/usr/bin/env python3
"""Times `swath stats` on the GPU against the CPU, and compares what they print.

    python3 stats.py --swath BIN --out R.json [--dir DIR] [--size N] [--huge] [--repeat N] [--keep]

Each call is a process of its own: the time includes the start of the program and of the CUDA context. Rasters are Zstd
COGs of f32 terrain, in memory (--dir, default /dev/shm/swath-bench-stats): one of N x N (default 16384) and, with
--huge, one of 65536 x 131072 (32 GiB of samples). The Python package, from PYTHONPATH, writes them. Exit status 1 if
the results differ, or if more than statuses and sums came back from the device.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
from data import NODATA, make

# Columns and rows of the large raster, and the seconds that the GPU may take for it.
HUGE = (65536, 131072)
GOAL_S = 2.0
# Terrain is made in squares of this side, and repeated with another offset.
SQUARE = 8192
# Bytes that may come back: statuses of tiles, and sums of some MiB of samples each.
MOST_BACK = 8 << 20


def write(path: Path, width: int, height: int) -> None:
    """A COG of terrain, streamed."""
    import dask.array
    import swath

    square = min(SQUARE, width, height)
    ground = make(np, "dem", square)

    def block(block_info: Any = None) -> np.ndarray:
        (top, bottom), (left, right) = block_info[None]["array-location"]
        part = ground[: bottom - top, : right - left]
        return np.where(part == np.float32(NODATA), part, part + np.float32((top + left) // square * 0.25))

    sides = [[min(square, whole - start) for start in range(0, whole, square)] for whole in (height, width)]
    chunks = tuple(tuple(side) for side in sides)
    lazy = dask.array.map_blocks(
        block, chunks=chunks, dtype="float32", name=f"terrain-{path.stem}", meta=np.empty((0, 0), "float32")
    )
    swath.to_geotiff(lazy, str(path), cog=True, compression="zstd", tile_size=512, predictor=3, nodata=NODATA)


def call(binary: Path, path: Path, device: str, *words: str) -> tuple[float, dict[str, Any], str]:
    """Seconds of one process, what it printed, and its messages."""
    started = time.perf_counter()
    command = [str(binary), "stats", str(path), "--json", "--device", device, *words]
    done = subprocess.run(command, capture_output=True, text=True)
    seconds = time.perf_counter() - started
    if done.returncode != 0:
        raise RuntimeError(f"--device {device}: {done.stderr.strip()}")
    return seconds, json.loads(done.stdout), done.stderr


def came_back(figures: str) -> int:
    """Bytes that came back from the device, from the text of `--stats`."""
    found = re.search(r"^from device +\d+ copies, (?:[\d.]+ \w+ \()?(\d+) bytes", figures, re.MULTILINE)
    if found is None:
        raise RuntimeError(f"no figures: {figures}")
    return int(found[1])


def measure(args: argparse.Namespace, width: int, height: int) -> dict[str, Any]:
    path = args.dir / f"terrain-{width}x{height}.tif"
    if not path.exists():
        write(path, width, height)
    row: dict[str, Any] = {"width": width, "height": height, "pixels_bytes": width * height * 4}
    row |= {"file_bytes": path.stat().st_size, "seconds": {}, "faults": []}
    results = {}
    try:
        for device in ("cpu", "cuda"):
            calls = [call(args.swath, path, device) for _ in range(args.repeat)]
            row["seconds"][device] = [seconds for seconds, _, _ in calls]
            results[device] = [result for _, result, _ in calls]
        _, _, row["figures"] = call(args.swath, path, "cuda", "--stats")
        row["bytes_back"] = came_back(row["figures"])
    except RuntimeError as error:
        row["faults"].append(str(error))
        return row
    if any(result != results["cpu"][0] for result in results["cpu"] + results["cuda"]):
        row["faults"].append("the results differ")
    if row["bytes_back"] > MOST_BACK:
        row["faults"].append(f"{row['bytes_back']} bytes came back")
    row["times_cpu"] = min(row["seconds"]["cpu"]) / min(row["seconds"]["cuda"])
    if (width, height) == HUGE:
        row["goal_s"] = GOAL_S
    if not args.keep:
        path.unlink()
    return row


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--swath", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--dir", type=Path, default=Path("/dev/shm/swath-bench-stats"))
    parser.add_argument("--size", type=int, default=16384)
    parser.add_argument("--huge", action="store_true")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--keep", action="store_true")
    args = parser.parse_args()
    made = not args.dir.exists()
    args.dir.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("CUDA_CACHE_DISABLE", "1")
    try:
        sizes = [(args.size, args.size), *([HUGE] if args.huge else [])]
        rows = [measure(args, *size) for size in sizes]
    finally:
        if made and not args.keep:
            shutil.rmtree(args.dir, ignore_errors=True)
    args.out.write_text(json.dumps({"rows": rows}, indent=1) + "\n")
    for row in rows:
        best = {device: f"{min(seconds):.2f} s" for device, seconds in row["seconds"].items()}
        print(f"{row['width']} x {row['height']}: {best}, {row['faults'] or 'equal'}")
        print(row.get("figures", ""))
    return 1 if any(row["faults"] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
