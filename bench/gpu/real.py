#!/usr/bin/env python3
"""Times swath on the GPU, beside GDAL and swath on the CPU, with real rasters; every array is checked.

    python3 real.py --dir /dev/shm/swath-real --rasters DIR --out R.json [--size 16384] [--rivals DIR]
                    [--only read,windows,chips,write,cog,stream] [--kinds NAME,NAME] [--deadline UNIX_TIME]

Each raster of --rasters is mirrored to a square of --size, which neither helps nor hurts codecs that work tile by tile.
There is one more, `classes`: the Landsat band, smoothed and cut into ten classes, in place of a land cover map. GDAL
writes the files where rasterio is found, else swath's CPU writes them. Times are in seconds, of calls after one that is
not counted; a call opens the file.

    read      the whole raster: to the device, to the host by swath and by GDAL with all cores
    windows   windows of 1024² at random places, one at a time
    chips     2048 random chips of 256² in batches of 64, ready on the device
    write     from the device to a tiled GeoTIFF, in a tmpfs of huge pages where one may be mounted; GDAL from the host
    cog       the same to a COG with overviews, in both kinds of tmpfs; the speed of filling new pages beside it
    stream    a raster eight times as large, as a dask array of CuPy, to a COG
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
from writes import huge_pages

THREADS = os.cpu_count() or 1
TILE = 512
# GDAL's default levels, which are swath's as well.
LEVELS = {"deflate": {"zlevel": 6}, "zstd": {"zstd_level": 9}, "none": {}}
TASKS = ("read", "windows", "chips", "write", "cog", "stream")
WINDOW, CHIP, BATCH, CHIPS = 1024, 256, 64, 2048
# The raster that classes are made of.
LANDSAT = "landsat8-b3-u16.tif"
DRAWN = random.Random(7)


def mirrored(array: np.ndarray, side: int) -> np.ndarray:
    """The raster, mirrored at its edges until it has the wanted size."""
    for axis in (1, 2):
        length = array.shape[axis]
        order = np.concatenate([np.arange(length), np.arange(length)[::-1]])
        array = np.take(array, np.resize(order, side), axis=axis)
    return np.ascontiguousarray(array)


def classes(band: np.ndarray) -> np.ndarray:
    """Ten classes of about equal area, from the means of 5 x 5 pixels."""
    sums = np.pad(band.astype(np.float64), ((3, 2), (3, 2)), mode="edge").cumsum(0).cumsum(1)
    means = sums[5:, 5:] - sums[:-5, 5:] - sums[5:, :-5] + sums[:-5, :-5]
    return np.digitize(means, np.quantile(means, np.arange(0.1, 1, 0.1))).astype(np.uint8)


def times(count: int, call: Callable[[], Any], before: Callable[[], Any] | None = None) -> list[float]:
    """Seconds of each call after one that is not counted; fewer calls where they are slow."""
    seconds = []
    for turn in range(count + 1):
        if before is not None:
            before()
        started = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - started)
        if turn > 0 and sum(seconds) > 12:
            break
    return seconds[1:]


class Bench:
    """All tasks with one raster and one codec."""

    def __init__(
        self, args: argparse.Namespace, name: str, array: np.ndarray, nodata: float | None, codec: str
    ) -> None:
        import cupy
        import swath

        self.cupy, self.swath, self.args = cupy, swath, args
        try:
            import rasterio

            self.rasterio: Any = rasterio
        except ImportError:
            self.rasterio = None
        self.name, self.array, self.nodata, self.codec = name, array, nodata, codec
        kind = array.dtype.kind
        self.predictor = 1 if codec == "none" or kind == "c" or name == "classes" else 3 if kind == "f" else 2
        self.path = str(args.dir / f"{name}-{codec}.tif")
        self.row: dict[str, Any] = {
            "name": name, "codec": codec, "dtype": str(array.dtype), "bands": len(array), "side": array.shape[1],
            "pixels_bytes": array.nbytes, "predictor": self.predictor, "times": {}, "wrong": [],
        }  # fmt: skip

    def gdal_profile(self) -> dict[str, Any]:
        bands, height, width = self.array.shape
        size = {"width": width, "height": height, "count": bands, "dtype": self.array.dtype, "nodata": self.nodata}
        if self.codec == "none":
            return size
        return {**size, "compress": self.codec, "predictor": self.predictor, **LEVELS[self.codec]}

    def write_by_gdal(self, path: str) -> None:
        blocks = {"tiled": True, "blockxsize": TILE, "blockysize": TILE, "interleave": "pixel"}
        with self.rasterio.open(path, "w", num_threads="all_cpus", **blocks, **self.gdal_profile()) as out:
            out.write(self.array)

    def write_by_swath(self, source: Any, path: str, **options: Any) -> None:
        level = next(iter(LEVELS[self.codec].values()), None)
        self.swath.to_geotiff(
            source, path, compression=self.codec, predictor=self.predictor, nodata=self.nodata, tile_size=TILE,
            compression_level=level, band_axis=0, interleave="pixel", **options,
        )  # fmt: skip

    def same(self, found: Any, what: str) -> None:
        """Notes a wrong array; arrays of the device are compared there."""
        if isinstance(found, np.ndarray):
            right = np.array_equal(found.reshape(self.array.shape).view(np.uint8), self.array.view(np.uint8))
        else:
            array = self.cupy.from_dlpack(found).reshape(self.array.shape)
            right = bool((array.view(self.cupy.uint8) == self.on_device().view(self.cupy.uint8)).all())
        if not right:
            self.row["wrong"].append(what)

    def on_device(self) -> Any:
        if not hasattr(self, "_on_device"):
            self._on_device = self.cupy.asarray(self.array)
        return self._on_device

    def wait(self) -> None:
        self.cupy.cuda.Device().synchronize()

    def note(self, what: str, seconds: list[float]) -> None:
        self.row["times"][what] = seconds

    def open_by_gdal(self) -> Any:
        return self.rasterio.open(self.path, num_threads="all_cpus")

    def run(self, tasks: list[str]) -> dict[str, Any]:
        Path(self.path).unlink(missing_ok=True)
        started = time.perf_counter()
        if self.rasterio is not None:
            self.write_by_gdal(self.path)
            self.row["times"]["write, GDAL"] = [time.perf_counter() - started]
        else:
            self.write_by_swath(self.array, self.path)
        self.row["file_bytes"] = Path(self.path).stat().st_size
        self.row["written_by"] = "swath" if self.rasterio is None else "GDAL"
        for task in tasks:
            getattr(self, task)()
        Path(self.path).unlink()
        return self.row

    # ----------------------------------------------------------------------------------------------------------- tasks

    def read(self) -> None:
        def on_device() -> None:
            self.swath.read(self.path, device="cuda")
            self.wait()

        self.same(self.swath.read(self.path, device="cuda"), "read, swath cuda")
        self.note("read, swath cuda", times(5, on_device))
        self.same(np.asarray(self.swath.read(self.path)), "read, swath cpu")
        self.note("read, swath cpu", times(3, lambda: self.swath.read(self.path)))
        if self.rasterio is not None:

            def by_gdal() -> None:
                with self.open_by_gdal() as source:
                    source.read()

            self.note("read, GDAL", times(3, by_gdal))

    def windows(self) -> None:
        side = self.array.shape[1]
        corners = [(DRAWN.randrange(side - WINDOW), DRAWN.randrange(side - WINDOW)) for _ in range(12)]
        places = [self.swath.Window(x, y, WINDOW, WINDOW) for x, y in corners]

        def each(call: Callable[[Any], Any]) -> list[float]:
            call(places[0])
            seconds = []
            for place in places[1:]:
                started = time.perf_counter()
                call(place)
                seconds.append(time.perf_counter() - started)
            return seconds

        for device in ("cuda", "cpu"):
            # One handle, as a viewer or a loader has it; a cache would give the second window for nothing.
            dataset = self.swath.Dataset(self.path, tile_cache=0)

            def window(place: Any, device: str = device, dataset: Any = dataset) -> Any:
                found = dataset.read(window=place, device=device)
                if device == "cuda":
                    self.wait()
                return found

            (x, y), found = corners[1], window(places[1])
            found = self.cupy.asnumpy(self.cupy.from_dlpack(found)) if device == "cuda" else np.asarray(found)
            wanted = self.array[:, y : y + WINDOW, x : x + WINDOW]
            if found.reshape(wanted.shape).tobytes() != wanted.tobytes():
                self.row["wrong"].append(f"window, swath {device}")
            self.note(f"window, swath {device}", each(window))
        if self.rasterio is not None:
            from rasterio.windows import Window

            with self.open_by_gdal() as source:
                self.note("window, GDAL", each(lambda place: source.read(window=Window(*place))))

    def chips(self) -> None:
        side = self.array.shape[1]
        corners = [(DRAWN.randrange(side - CHIP), DRAWN.randrange(side - CHIP)) for _ in range(CHIPS)]
        anywhere = [self.swath.Window(x, y, CHIP, CHIP) for x, y in corners]
        grid = [self.swath.Window(k % 64 * CHIP, k // 64 * CHIP, CHIP, CHIP) for k in range(CHIPS)]
        for order, places in (("random", anywhere), ("grid", grid)):
            for device in ("cuda", "cpu"):

                def consume(places: list[Any] = places, device: str = device) -> None:
                    for chips, _ in self.swath.Dataset(self.path).chips(
                        CHIP, batch=BATCH, windows=places, device=device
                    ):
                        self.cupy.asarray(chips if device == "cuda" else np.asarray(chips))
                    self.wait()

                self.note(f"chips {order}, swath {device}", times(3, consume))
            self.row[f"chips {order}"] = len(places)

    def written(self, what: str, folder: Path, **options: Any) -> None:
        path = str(folder / "written.tif")

        def write() -> None:
            self.write_by_swath(self.on_device(), path, **options)

        self.on_device()
        self.wait()
        self.note(what, times(3, write, lambda: Path(path).unlink(missing_ok=True)))
        self.row[f"{what}, bytes"] = Path(path).stat().st_size
        self.same(self.swath.read(path, device="cuda"), what)
        Path(path).unlink()

    def write(self) -> None:
        self.written("write, swath cuda", self.args.huge)

    def cog(self) -> None:
        self.written("cog, swath cuda", self.args.huge, cog=True)
        if self.args.huge != self.args.dir:
            size = self.row["cog, swath cuda, bytes"]
            path = self.args.dir / "pages"
            self.note("fill pages", times(2, lambda: fill(path, size), lambda: path.unlink(missing_ok=True)))
            path.unlink()
            self.written("cog to /dev/shm, swath cuda", self.args.dir, cog=True)

    def stream(self) -> None:
        """A raster four times as wide, as a dask array of CuPy, to a COG; with one codec and samples of 4 bytes."""
        if self.codec != "zstd" or self.array.itemsize != 4 or len(self.array) > 1:
            return
        import dask.array

        side = self.array.shape[1]
        height, width, chunk = 2 * side, 4 * side, min(side, 4096)
        on_device = self.on_device()[0]

        def block(block_info: Any = None) -> Any:
            top, left = (first % side for first, _ in block_info[None]["array-location"])
            return on_device[top : top + chunk, left : left + chunk].copy()

        lazy = dask.array.map_blocks(
            block, chunks=((chunk,) * (height // chunk), (chunk,) * (width // chunk)), dtype=self.array.dtype,
            meta=self.cupy.empty((0, 0), self.array.dtype), name=f"stream-{self.name}",
        )  # fmt: skip
        path = self.args.huge / "stream.tif"

        def write() -> None:
            self.swath.to_geotiff(lazy, str(path), compression="zstd", cog=True, nodata=self.nodata)

        self.note("stream, swath cuda", times(1, write, lambda: path.unlink(missing_ok=True)))
        self.row["stream bytes"] = height * width * self.array.itemsize
        with self.swath.Dataset(str(path)) as dataset:
            for _ in range(32):
                x, y = DRAWN.randrange(width - CHIP), DRAWN.randrange(height - CHIP)
                found = np.asarray(dataset.read(1, window=self.swath.Window(x, y, CHIP, CHIP)))
                rows, columns = np.arange(y, y + CHIP) % side, np.arange(x, x + CHIP) % side
                if found.tobytes() != self.array[0][np.ix_(rows, columns)].tobytes():
                    self.row["wrong"].append(f"stream at {x}, {y}")
        path.unlink()


def fill(path: Path, size: int) -> None:
    """Writes `size` bytes to a new file with all threads: as fast as the kernel finds pages for it."""
    from concurrent.futures import ThreadPoolExecutor

    piece = np.ones(1 << 20, np.uint8)
    with path.open("wb") as out, ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(lambda at: os.pwrite(out.fileno(), piece[: size - at], at), range(0, size, len(piece))))


def arrays(args: argparse.Namespace) -> Any:
    """The name, array and nodata of each raster, mirrored."""
    import swath

    wanted = set(args.kinds.split(",")) if args.kinds else None

    def read(path: Path) -> np.ndarray:
        array = np.asarray(swath.read(str(path)))
        return array[None] if array.ndim == 2 else array

    for path in sorted(args.rasters.glob("*.tif")):
        if wanted is None or path.stem in wanted:
            yield path.stem, mirrored(read(path), args.size), swath.Dataset(str(path)).nodata
    landsat = args.rasters / LANDSAT
    if landsat.is_file() and (wanted is None or "classes" in wanted):
        yield "classes", mirrored(classes(read(landsat)[0])[None], args.size), None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dir", type=Path, required=True)
    parser.add_argument("--rasters", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--size", type=int, default=16384)
    parser.add_argument("--rivals", type=Path)
    parser.add_argument("--only", default=",".join(TASKS))
    parser.add_argument("--kinds")
    parser.add_argument("--codecs", default="deflate,zstd")
    parser.add_argument("--deadline", type=float, default=float("inf"))
    parser.add_argument("--no-mount", action="store_true")
    args = parser.parse_args()
    if args.rivals is not None:
        sys.path.append(str(args.rivals))
    args.dir.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    with huge_pages(args) as huge:
        args.huge = huge or args.dir
        for name, array, nodata in arrays(args):
            codecs = args.codecs.split(",") + ["none"] * (array.dtype == np.uint8)
            for codec in codecs:
                if time.time() > args.deadline:
                    print(f"{name} {codec}: no time left", file=sys.stderr)
                    continue
                tasks = [task for task in args.only.split(",") if codec != "none" or task in ("read", "windows")]
                row = Bench(args, name, array, nodata, codec).run(tasks)
                rows.append(row)
                print(shown(row), flush=True)
                args.out.write_text(json.dumps({"size": args.size, "rows": rows}, indent=1))
    return 1 if any(row["wrong"] for row in rows) else 0


def shown(row: dict[str, Any]) -> str:
    """A line of a row: GB/s of pixels for whole rasters, milliseconds for windows, chips a second."""
    words = [f"{row['name']} {row['codec']} p{row['predictor']}:"]
    for what, seconds in row["times"].items():
        best = min(seconds)
        if what.startswith("window"):
            words.append(f"{what} {sorted(seconds)[len(seconds) // 2] * 1e3:.2f} ms;")
        elif what.startswith("chips"):
            words.append(f"{what} {row[what.split(',')[0]] / best:.0f}/s;")
        else:
            sizes = {"fill pages": "cog, swath cuda, bytes", "stream, swath cuda": "stream bytes"}
            size = row[sizes.get(what, "pixels_bytes")]
            words.append(f"{what} {size / best / 1e9:.2f};")
    for what in ("write", "cog"):
        if size := row.get(f"{what}, swath cuda, bytes"):
            words.append(f"{what} size / file {size / row['file_bytes']:.3f};")
    return " ".join(words) + (f" WRONG {row['wrong']}" if row["wrong"] else "")


if __name__ == "__main__":
    sys.exit(main())
