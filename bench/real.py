#!/usr/bin/env python3
"""Times swath against rasterio (GDAL) and tifffile on real rasters, side by side in one run, outputs checked equal.

    python bench/real.py [--rounds N] [--side N]

reads the rasters of `../shared/real` (or `SHARED_RASTERS`) and mirrors each to a large square, which neither helps nor
hurts codecs that work tile by tile. It times three tasks with Deflate and Zstd in tiles of 512: reading a file that
GDAL wrote, reading 200 windows of 256² of it one after the other, and writing a COG with overviews. Every engine is
called from Python with all cores, in turn in each round, and files are in the page cache. Rasterio also reads the
windows with one thread, which suits small windows better. The table goes to standard output and to
bench/out/real.{md,json}.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import random
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import rasterio
import swath
import tifffile
from rasterio.windows import Window
from run import OUT, ROOT, THREADS, cpu, geometric, versions

RASTERS = ROOT / os.environ.get("SHARED_RASTERS", "../shared/real")
# GDAL's default levels, which are swath's as well.
LEVELS = {"deflate": {"zlevel": 6}, "zstd": {"zstd_level": 9}}
# Windows of the loop: as many, and as large, as a loader of training chips would read from one scene.
WINDOWS, WINDOW_SIDE = 200, 256


def mirrored(array: np.ndarray, side: int) -> np.ndarray:
    """The raster, mirrored at its edges until it has the wanted size."""
    for axis in (1, 2):
        length = array.shape[axis]
        order = np.concatenate([np.arange(length), np.arange(length)[::-1]])
        array = np.take(array, np.resize(order, side), axis=axis)
    return np.ascontiguousarray(array)


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    started = time.perf_counter()
    found = call()
    return (time.perf_counter() - started) * 1e3, found


class Case:
    """One raster with one codec."""

    def __init__(self, path: Path, codec: str, side: int) -> None:
        self.name, self.codec = path.stem, codec
        with rasterio.open(path) as source:
            self.array = mirrored(source.read(), side)
            self.nodata = source.nodata
        kind = self.array.dtype.kind
        self.predictor = 3 if kind == "f" else 1 if kind == "c" or self.array.itemsize == 1 else 2

    def profile(self) -> dict[str, Any]:
        bands, height, width = self.array.shape
        size = {"width": width, "height": height, "count": bands, "dtype": self.array.dtype, "nodata": self.nodata}
        return {**size, "compress": self.codec, "predictor": self.predictor, **LEVELS[self.codec]}

    def write_by_gdal(self, path: Path, driver: str) -> None:
        blocks = {"blocksize": 512} if driver == "COG" else {"tiled": True, "blockxsize": 512, "blockysize": 512}
        profile = self.profile()
        if driver == "COG":
            profile["level"] = profile.pop(next(iter(LEVELS[self.codec])))
            profile["predictor"] = {1: "no", 2: "standard", 3: "floating_point"}[self.predictor]
            # swath's default; GDAL's own would be the costlier cubic.
            profile["overview_resampling"] = "average"
        with rasterio.open(path, "w", driver=driver, num_threads="all_cpus", **blocks, **profile) as out:
            out.write(self.array)

    def write_by_swath(self, path: Path) -> None:
        swath.to_geotiff(
            self.array, str(path), cog=True, compression=self.codec, predictor=self.predictor, nodata=self.nodata,
            compression_level=next(iter(LEVELS[self.codec].values())), band_axis=0,
        )  # fmt: skip

    def readers(self, path: Path) -> dict[str, Callable[[], Any]]:
        def by_rasterio() -> np.ndarray:
            with rasterio.open(path, num_threads="all_cpus") as source:
                return source.read()

        found: dict[str, Callable[[], Any]] = {"swath": lambda: swath.read(str(path)), "rasterio": by_rasterio}
        if self.array.dtype.kind != "c":
            found["tifffile"] = lambda: tifffile.imread(path, maxworkers=THREADS)
        return found

    def loops(self, path: Path) -> dict[str, Callable[[], Any]]:
        """Loops over windows at random places, each an array of its own that is dropped before the next."""
        height, width = self.array.shape[1:]
        rng = random.Random(7)
        corners = [(rng.randrange(width - WINDOW_SIDE), rng.randrange(height - WINDOW_SIDE)) for _ in range(WINDOWS)]

        def by_swath() -> bool:
            with swath.Dataset(str(path)) as source:
                return all(
                    self.holds(x, y, source.read(window=swath.Window(x, y, WINDOW_SIDE, WINDOW_SIDE)))
                    for x, y in corners
                )

        def by_rasterio(threads: str) -> Callable[[], bool]:
            def loop() -> bool:
                with rasterio.open(path, num_threads=threads) as source:
                    return all(
                        self.holds(x, y, source.read(window=Window(x, y, WINDOW_SIDE, WINDOW_SIDE))) for x, y in corners
                    )

            return loop

        return {"swath": by_swath, "rasterio": by_rasterio("all_cpus"), "rasterio, 1 thread": by_rasterio("1")}

    def holds(self, x: int, y: int, window: np.ndarray) -> bool:
        """Whether the middle pixel of a window is right: a look at all pixels would take longer than the read."""
        middle = WINDOW_SIDE // 2
        found, wanted = window[..., middle, middle], self.array[:, y + middle, x + middle]
        return bool(np.array_equal(found, wanted, equal_nan=wanted.dtype.kind in "fc"))


def same(array: np.ndarray, wanted: np.ndarray) -> bool:
    """Whether the pixels are equal; tifffile gives bands last."""
    array = np.asarray(array)
    if array.ndim == 2:
        array = array[None]
    if array.shape != wanted.shape:
        array = np.moveaxis(array, -1, 0)
    return np.array_equal(array, wanted, equal_nan=wanted.dtype.kind in "fc")


def rounds_of(calls: dict[str, Callable[[], Any]], rounds: int, check: Callable[[str, Any], None]) -> dict[str, float]:
    """Best milliseconds of each engine; the first round is a warm-up, whose outputs are checked."""
    best: dict[str, float] = {}
    for turn in range(rounds + 1):
        for name, call in calls.items():
            ms, found = timed(call)
            if turn == 0:
                check(name, found)
            else:
                best[name] = min(best.get(name, ms), ms)
    return best


def measure(case: Case, rounds: int) -> dict[str, Any]:
    source = OUT / "real-source.tif"
    case.write_by_gdal(source, "GTiff")

    def check_read(name: str, found: Any) -> None:
        if not same(found, case.array):
            raise SystemExit(f"{case.name}, {case.codec}: {name} returns other pixels")

    read = rounds_of(case.readers(source), rounds, check_read)

    def check_windows(name: str, found: Any) -> None:
        if not found:
            raise SystemExit(f"{case.name}, {case.codec}: {name} returns other pixels in a window")

    windows = rounds_of(case.loops(source), rounds, check_windows)
    ours, theirs = OUT / "real-swath.tif", OUT / "real-gdal.tif"

    def check_written(name: str, _: Any) -> None:
        with rasterio.open(ours if name == "swath" else theirs) as written:
            if not same(written.read(), case.array):
                raise SystemExit(f"{case.name}, {case.codec}: the COG of {name} has other pixels")

    writers = {"swath": lambda: case.write_by_swath(ours), "GDAL": lambda: case.write_by_gdal(theirs, "COG")}
    write = rounds_of(writers, max(1, rounds // 2), check_written)
    size = {"swath": ours.stat().st_size, "GDAL": theirs.stat().st_size}
    for path in (source, ours, theirs):
        path.unlink()
    about = {"name": case.name, "codec": case.codec, "dtype": str(case.array.dtype), "shape": case.array.shape}
    times = {"read_ms": read, "windows_ms": windows, "cog_ms": write}
    return {**about, "bytes": case.array.nbytes, **times, "cog_size": size}


def report(found: dict[str, Any]) -> str:
    rows = found["rows"]
    side = found["side"]
    lines = [
        "# Benchmark of real rasters", "",
        f"{found['date'][:10]}, {found['cpu']}, {found['threads']} threads, files in the page cache, best of "
        f"{found['rounds']} rounds (COGs: {max(1, found['rounds'] // 2)}), milliseconds, called from Python. The "
        "engines took turns; other work may have run on the machine. "
        f"Real rasters, mirrored to {side} × {side} pixels, in tiles of 512. Every array was checked equal.", "",
        ", ".join(f"{name} {number}" for name, number in found["versions"].items()), "",
        "| raster | codec | MB | read: swath | rasterio | tifffile | 200 windows: swath | rasterio | 1 thread | "
        "COG: swath | GDAL | size, swath / GDAL |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]  # fmt: skip
    for row in rows:
        read, windows, cog, size = row["read_ms"], row["windows_ms"], row["cog_ms"], row["cog_size"]
        tiff = f"{read['tifffile']:.1f}" if "tifffile" in read else "-"
        lines.append(
            f"| {row['name']} | {row['codec']} | {row['bytes'] / 1e6:.0f} | {read['swath']:.1f} | "
            f"{read['rasterio']:.1f} | {tiff} | {windows['swath']:.1f} | {windows['rasterio']:.1f} | "
            f"{windows['rasterio, 1 thread']:.1f} | {cog['swath']:.0f} | {cog['GDAL']:.0f} | "
            f"{size['swath'] / size['GDAL']:.3f} |"
        )
    lines += ["", "Geometric means, rival / swath:", ""]
    tasks = {"read_ms": "read", "windows_ms": "200 windows", "cog_ms": "COG"}
    for task, title in tasks.items():
        for rival in [name for name in rows[0][task] if name != "swath"]:
            times = [row[task][rival] / row[task]["swath"] for row in rows if rival in row[task]]
            span = f"{min(times):.2f} to {max(times):.2f}"
            lines.append(f"- {title}, {rival}: {geometric(times):.2f} ({span}; {len(times)} rows)")
    sizes = [row["cog_size"]["swath"] / row["cog_size"]["GDAL"] for row in rows]
    lines.append(f"- size of the COG, swath / GDAL: {geometric(sizes):.3f}")
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--side", type=int, default=4096)
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    paths = sorted(RASTERS.glob("*.tif"))
    if not paths:
        raise SystemExit(f"no rasters in {RASTERS}")
    OUT.mkdir(exist_ok=True)
    found: dict[str, Any] = {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"), "cpu": cpu(), "threads": THREADS,
        "rounds": args.rounds, "side": args.side, "versions": {**versions(), "swath": swath.__version__}, "rows": [],
    }  # fmt: skip
    for path in paths:
        for codec in LEVELS:
            found["rows"].append(measure(Case(path, codec, args.side), args.rounds))
    (OUT / "real.json").write_text(json.dumps(found, indent=1) + "\n")
    (OUT / "real.md").write_text(report(found))
    print(report(found))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
