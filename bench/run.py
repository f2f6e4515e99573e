#!/usr/bin/env python3
"""Times swath against rasterio, tifffile and async-tiff, side by side in one run, outputs checked equal.

Every engine gets the same file in the same round, in turn, so that other load on the machine affects all alike; files
are in the page cache. A read includes opening the file. Each engine keeps its natural layout: bands first for
swath and rasterio, bands last for tifffile and async-tiff where pixels are interleaved (which spares them a transpose).

    python bench/run.py [--quick] [--full] [--rounds N] [--only TEXT]

writes a table to standard output and bench/out/results.{md,json}. Goals are reported, never asserted.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import json
import math
import mmap
import os
import platform
import random
import statistics
import subprocess
import sys
import time
import warnings
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
import rasterio
import tifffile
from rasterio.enums import Resampling
from rasterio.transform import Affine
from rasterio.windows import Window as RioWindow

try:
    import async_tiff
    from obstore.store import LocalStore
except ImportError:
    async_tiff = None

warnings.filterwarnings("ignore")

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
DATA, OUT = HERE / "data", HERE / "out"
THREADS = os.cpu_count() or 1

Box = tuple[int, int, int, int]

# ---------------------------------------------------------------------------------------------------------------- data


def fractal(size: int, seed: int, power: float) -> np.ndarray:
    """A field with a 1/f^power spectrum, zero mean and unit deviation, like terrain and reflectance."""
    rng = np.random.default_rng(seed)
    fy = np.fft.fftfreq(size)[:, None].astype("float32")
    fx = np.fft.rfftfreq(size)[None, :].astype("float32")
    radius = np.sqrt(fx * fx + fy * fy)
    radius[0, 0] = 1
    phase = rng.uniform(0, 2 * np.pi, radius.shape).astype("float32")
    spectrum = radius ** np.float32(-power / 2 - 0.5) * np.exp(1j * phase)
    spectrum[0, 0] = 0
    out = np.fft.irfft2(spectrum, s=(size, size)).astype("float32")
    return (out - out.mean()) / out.std()


def dem(size: int) -> np.ndarray:
    ground = np.round((fractal(size, 1, 2.6) * 400 + 1200) * 100) / 100
    ground[fractal(size, 2, 3.0) < -2.0] = -9999
    return ground.astype("float32")[None]


def s2(size: int) -> np.ndarray:
    rng = np.random.default_rng(3)
    common = fractal(size, 4, 2.0) * 500 + 1800
    bands = [
        common * (0.7 + 0.2 * b) + fractal(size, 5 + b, 2.0) * 150 + rng.normal(0, 25, common.shape) for b in range(4)
    ]
    return np.clip(np.stack(bands), 0, 10_000).astype("uint16")


def lc(size: int) -> np.ndarray:
    field_ = fractal(size, 11, 2.8)
    return np.digitize(field_, np.quantile(field_[::16, ::16], np.linspace(0.08, 0.95, 11))).astype("uint8")[None]


def rgb(size: int) -> np.ndarray:
    rng = np.random.default_rng(12)
    common = fractal(size, 13, 2.2) * 35 + 120
    bands = [common + fractal(size, 14 + b, 2.2) * 12 + rng.normal(0, 2, common.shape) for b in range(3)]
    return np.clip(np.stack(bands), 0, 255).astype("uint8")


KINDS: dict[str, Callable[[int], np.ndarray]] = {"dem": dem, "s2": s2, "lc": lc, "rgb": rgb}
SIZES = {
    "quick": {"dem": 1024, "s2": 1024, "lc": 2048, "rgb": 1024, "cog": 2048},
    "default": {"dem": 4096, "s2": 3072, "lc": 8192, "rgb": 4096, "cog": 5490},
    "full": {"dem": 8192, "s2": 5490, "lc": 16384, "rgb": 8192, "cog": 10980},
}
CODECS: dict[str, dict[str, dict[str, Any]]] = {
    "dem": {
        "none": {},
        "deflate": {"compress": "deflate", "predictor": 3},
        "lzw": {"compress": "lzw", "predictor": 3},
        "zstd": {"compress": "zstd", "predictor": 3},
        "lerc": {"compress": "lerc", "MAX_Z_ERROR": 0.005},
    },
    "s2": {
        "none": {},
        "deflate": {"compress": "deflate", "predictor": 2},
        "lzw": {"compress": "lzw", "predictor": 2},
        "zstd": {"compress": "zstd", "predictor": 2},
        "lerc": {"compress": "lerc", "MAX_Z_ERROR": 0},
    },
    "lc": {
        "none": {},
        "deflate": {"compress": "deflate"},
        "lzw": {"compress": "lzw"},
        "zstd": {"compress": "zstd"},
    },
    "rgb": {
        "none": {},
        "deflate": {"compress": "deflate", "predictor": 2},
        "lzw": {"compress": "lzw", "predictor": 2},
        "zstd": {"compress": "zstd", "predictor": 2},
        "jpeg": {"compress": "jpeg", "photometric": "ycbcr", "JPEG_QUALITY": 85},
        "webp": {"compress": "webp", "WEBP_LEVEL": 80},
    },
}
# Decoders of these may round differently, so equality is reported as the largest difference.
LOSSY = ("jpeg", "webp")


@dataclass
class File:
    """One file of the benchmark."""

    name: str
    kind: str
    codec: str
    tile: int
    path: Path
    shape: tuple[int, int, int]
    itemsize: int

    @property
    def size(self) -> int:
        return math.prod(self.shape) * self.itemsize


def make_files(preset: str, only: str) -> tuple[list[File], File]:
    """All files, written once and kept; and the COG for the many small windows."""
    DATA.mkdir(parents=True, exist_ok=True)
    files = []
    arrays: dict[str, np.ndarray] = {}

    def array(kind: str) -> np.ndarray:
        if kind not in arrays:
            arrays.clear()
            print(f"making {kind}", file=sys.stderr)
            arrays[kind] = KINDS[kind](SIZES[preset][kind])
        return arrays[kind]

    def profile(values: np.ndarray) -> dict[str, Any]:
        return {
            "driver": "GTiff", "dtype": str(values.dtype), "count": len(values), "height": values.shape[1],
            "width": values.shape[2], "crs": "EPSG:32633", "transform": Affine(10, 0, 4e5, 0, -10, 52e5),
            "NUM_THREADS": "ALL_CPUS", **({"nodata": -9999} if values.dtype == "float32" else {}),
        }  # fmt: skip

    for kind, codecs in CODECS.items():
        size = SIZES[preset][kind]
        bands, itemsize = {"dem": (1, 4), "s2": (4, 2), "lc": (1, 1), "rgb": (3, 1)}[kind]
        for codec, options in codecs.items():
            for tile in (256, 512):
                name = f"{kind}-{codec}-{tile}"
                if only not in name:
                    continue
                path = DATA / f"{preset}-{name}.tif"
                if not path.exists():
                    values = array(kind)
                    partial = path.with_suffix(".part")
                    layout = {"tiled": True, "blockxsize": tile, "blockysize": tile, "interleave": "pixel"}
                    with rasterio.open(partial, "w", **{**profile(values), **layout, **options}) as out:
                        out.write(values)
                    partial.rename(path)
                files.append(File(name, kind, codec, tile, path, (bands, size, size), itemsize))
    # As large as a real scene: on a small one every tile would soon be in GDAL's block cache.
    size = SIZES[preset]["cog"]
    cog = File("s2-cog-deflate-512", "s2", "deflate", 512, DATA / f"{preset}-cog.tif", (4, size, size), 2)
    if not cog.path.exists():
        values = s2(size)
        partial = cog.path.with_suffix(".part")
        options = {"driver": "COG", "compress": "deflate", "predictor": 2, "BLOCKSIZE": 512}
        with rasterio.open(partial, "w", **{**profile(values), **options}) as out:
            out.write(values)
            out.build_overviews([2, 4, 8], Resampling.average)
        partial.rename(cog.path)
    return files, cog


# ------------------------------------------------------------------------------------------------------------- engines


class Declined(Exception):  # noqa: N818 - not a fault: an engine that does not read this kind of file
    """The engine does not read this."""


@dataclass
class Timing:
    """One timed call: milliseconds, and its result."""

    ms: float
    result: Any = None
    # Checksum of the pixels bands first, where the engine computes it itself.
    crc: int | None = None


class Worker:
    """swath, in a process of its own that lives for the whole run."""

    name = "swath"

    def __init__(self) -> None:
        target = ROOT / os.environ.get("CARGO_TARGET_DIR", "target")
        binary = Path(os.environ.get("SWATH_BENCH_WORKER", target / "release" / "swath-bench-worker"))
        if not binary.exists():
            raise SystemExit(f"{binary} is missing: cargo build --release -p swath-bench-worker")
        # The rivals run in this long-lived process, whose C heap keeps freed memory by now (arrays up to 32 MiB are
        # reused warm). The worker's heap starts with the same thresholds.
        heap = {"MALLOC_MMAP_THRESHOLD_": str(32 << 20), "MALLOC_TRIM_THRESHOLD_": str(256 << 20)}
        self.process = subprocess.Popen(
            [str(binary)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **heap}
        )

    def ask(self, **request: Any) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(request, default=str) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        if "error" in answer:
            raise RuntimeError(f"swath: {answer['error']}")
        return answer

    def read(self, file: File, window: Box | None) -> Timing:
        answer = self.ask(op="read", path=file.path, window=window)
        return Timing(answer["ms"], crc=answer["crc"])

    def windows(self, file: File, windows: list[Box]) -> Timing:
        answer = self.ask(op="windows", path=file.path, windows=windows)
        return Timing(answer["ms"], crc=answer["crc"])

    def open(self, file: File, times: int) -> Timing:
        return Timing(self.ask(op="open", path=file.path, n=times)["ms"] / times)

    def pixels(self, file: File) -> np.ndarray:
        save = DATA / "pixels.bin"
        answer = self.ask(op="read", path=file.path, window=None, save=save)
        kind = {"dem": "float32", "s2": "uint16"}.get(file.kind, "uint8")
        out = np.fromfile(save, kind).reshape(answer["shape"])
        save.unlink()
        return out


def timed(work: Callable[[], Any]) -> Timing:
    started = time.perf_counter()
    result = work()
    return Timing((time.perf_counter() - started) * 1e3, result)


class Rasterio:
    """GDAL, with all cores or with one; each read opens the file anew, so its block cache starts empty."""

    def __init__(self, threads: str) -> None:
        self.threads = threads
        self.name = f"rasterio {'all' if threads == 'ALL_CPUS' else threads}"

    def open_file(self, file: File) -> Any:
        return rasterio.open(file.path, NUM_THREADS=self.threads)

    def read(self, file: File, window: Box | None) -> Timing:
        def work() -> np.ndarray:
            with self.open_file(file) as dataset:
                return dataset.read(window=RioWindow(*window) if window else None)

        return timed(work)

    def windows(self, file: File, windows: list[Box]) -> Timing:
        def work() -> list[np.ndarray]:
            with self.open_file(file) as dataset:
                return [dataset.read(window=RioWindow(*window)) for window in windows]

        return timed(work)

    def open(self, file: File, times: int) -> Timing:
        def work() -> None:
            for _ in range(times):
                with rasterio.open(file.path) as dataset:
                    _ = (dataset.profile, dataset.crs, dataset.transform, dataset.nodata, dataset.tags())

        timing = timed(work)
        return Timing(timing.ms / times)


class Tifffile:
    """tifffile with imagecodecs; windows are assembled from the tiles they touch."""

    name = "tifffile"

    def __init__(self) -> None:
        self.pool = ThreadPoolExecutor(THREADS)

    def read(self, file: File, window: Box | None) -> Timing:
        if window is None:
            return timed(lambda: tifffile.imread(file.path, maxworkers=THREADS))

        def work() -> np.ndarray:
            with tifffile.TiffFile(file.path) as tiff:
                return self.window(tiff, window)

        return timed(work)

    def window(self, tiff: tifffile.TiffFile, window: Box) -> np.ndarray:
        page: Any = tiff.pages[0]
        x, y, w, h = window
        tile = page.tilewidth
        across = -(-page.imagewidth // tile)
        out = np.empty((h, w, page.samplesperpixel), page.dtype)
        tiff.filehandle.seek(0)
        places = [
            (row * across + column, column, row)
            for row in range(y // tile, (y + h - 1) // tile + 1)
            for column in range(x // tile, (x + w - 1) // tile + 1)
        ]
        segments = []
        for index, column, row in places:
            tiff.filehandle.seek(page.dataoffsets[index])
            segments.append((tiff.filehandle.read(page.databytecounts[index]), index, column, row))

        def one(segment: tuple[bytes, int, int, int]) -> None:
            data, index, column, row = segment
            decoded, _, shape = page.decode(data, index, jpegtables=page.jpegtables, jpegheader=page.jpegheader)
            block = decoded[0, : shape[1], : shape[2]]
            left, top = column * tile, row * tile
            x0, y0 = max(x, left), max(y, top)
            x1, y1 = min(x + w, left + block.shape[1]), min(y + h, top + block.shape[0])
            out[y0 - y : y1 - y, x0 - x : x1 - x] = block[y0 - top : y1 - top, x0 - left : x1 - left]

        list(self.pool.map(one, segments))
        return out

    def windows(self, file: File, windows: list[Box]) -> Timing:
        def work() -> list[np.ndarray]:
            with tifffile.TiffFile(file.path) as tiff:
                return [self.window(tiff, window) for window in windows]

        return timed(work)

    def open(self, file: File, times: int) -> Timing:
        def work() -> None:
            for _ in range(times):
                with tifffile.TiffFile(file.path) as tiff:
                    page: Any = tiff.pages[0]
                    _ = (page.shape, page.dtype, page.geotiff_tags, page.nodata)

        timing = timed(work)
        return Timing(timing.ms / times)


class AsyncTiff:
    """async-tiff: tiles fetched together, decoded on its own pool, placed by numpy."""

    name = "async-tiff"

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.pool = async_tiff.ThreadPool(THREADS)
        self.store = LocalStore(str(DATA))

    def read(self, file: File, window: Box | None) -> Timing:
        return timed(lambda: self.loop.run_until_complete(self.fetch(file, [window])))

    def windows(self, file: File, windows: list[Box]) -> Timing:
        return timed(lambda: self.loop.run_until_complete(self.fetch(file, list(windows))))

    def open(self, file: File, times: int) -> Timing:
        async def work() -> None:
            for _ in range(times):
                tiff = await async_tiff.TIFF.open(file.path.name, store=self.store)
                ifd = tiff.ifds[0]
                _ = (ifd.image_width, ifd.image_height, ifd.geo_key_directory)

        timing = timed(lambda: self.loop.run_until_complete(work()))
        return Timing(timing.ms / times)

    async def fetch(self, file: File, windows: list[Box | None]) -> Any:
        tiff = await async_tiff.TIFF.open(file.path.name, store=self.store)
        bands, rows, columns = file.shape
        tile = file.tile
        outs = []
        for window in windows:
            x, y, w, h = window or (0, 0, columns, rows)
            out = np.empty((h, w, bands), {"dem": "float32", "s2": "uint16"}.get(file.kind, "uint8"))
            places = [
                (column, row)
                for row in range(y // tile, (y + h - 1) // tile + 1)
                for column in range(x // tile, (x + w - 1) // tile + 1)
            ]
            tiles = await tiff.fetch_tiles(places, 0)
            arrays = await asyncio.gather(*(one.decode(pool=self.pool) for one in tiles))
            for (column, row), array in zip(places, arrays):
                block = np.asarray(array)
                block = block.reshape(tile, tile, bands)
                left, top = column * tile, row * tile
                x0, y0 = max(x, left), max(y, top)
                x1, y1 = min(x + w, left + tile), min(y + h, top + tile)
                out[y0 - y : y1 - y, x0 - x : x1 - x] = block[y0 - top : y1 - top, x0 - left : x1 - left]
            outs.append(out)
        return outs[0] if len(windows) == 1 and windows[0] is None else outs


class CodecAlone:
    """The bound for deflate and zstd: tiles in memory, decompressed on all cores into reused buffers; no predictor."""

    name = "codec alone"

    def read(self, file: File, window: Box | None) -> Timing:
        if window is not None or file.codec not in ("deflate", "zstd"):
            raise Declined
        content = file.path.read_bytes()
        with tifffile.TiffFile(file.path) as tiff:
            page: Any = tiff.pages[0]
            spans = list(zip(page.dataoffsets, page.databytecounts))
        length = file.tile * file.tile * file.shape[0] * file.itemsize
        # The faster of imagecodecs' two inflaters: libdeflate, without the zlib wrapper.
        tiles = [content[o + 2 : o + c - 4] if file.codec == "deflate" else content[o : o + c] for o, c in spans]
        decode = imagecodecs.deflate_decode if file.codec == "deflate" else imagecodecs.zstd_decode
        share = -(-len(tiles) // THREADS)

        def part(number: int) -> None:
            out = bytearray(length)
            options = {"raw": True} if file.codec == "deflate" else {}
            for one in tiles[number * share : (number + 1) * share]:
                decode(one, out=out, **options)

        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(part, range(THREADS)))
            return timed(lambda: list(pool.map(part, range(THREADS))) and None)


class MapAndCopy:
    """The bound for uncompressed files: map, copy into a fresh array on all cores."""

    name = "mmap + copy"

    def read(self, file: File, window: Box | None) -> Timing:
        if window is not None or file.codec != "none":
            raise Declined

        def part(source: memoryview, out: np.ndarray, first: int, end: int) -> None:
            np.copyto(out[first:end], np.frombuffer(source[first:end], "u1"))

        def work() -> None:
            with (
                file.path.open("rb") as handle,
                mmap.mmap(handle.fileno(), 0, prot=mmap.PROT_READ) as mapped,
                memoryview(mapped) as source,
                ThreadPoolExecutor(THREADS) as pool,
            ):
                size = len(source)
                out = np.empty(size, "u1")
                share = -(-size // THREADS)
                list(pool.map(lambda at: part(source, out, at, min(at + share, size)), range(0, size, share)))

        timing = timed(work)
        return Timing(timing.ms)


# -------------------------------------------------------------------------------------------------------------- rounds


@dataclass
class Row:
    """One line of the report: an engine's best and median milliseconds, and whether the pixels were equal."""

    name: str
    what: str
    file: File
    best: dict[str, float] = field(default_factory=dict)
    median: dict[str, float] = field(default_factory=dict)
    checks: dict[str, str] = field(default_factory=dict)

    @property
    def fastest(self) -> tuple[str, float]:
        rivals = {name: ms for name, ms in self.best.items() if name in RIVAL_NAMES}
        name = min(rivals, key=rivals.__getitem__)
        return name, rivals[name]

    @property
    def ratio(self) -> float:
        """How many times faster than the fastest rival."""
        return self.fastest[1] / self.best["swath"]


RIVAL_NAMES = ("rasterio all", "rasterio 1", "tifffile", "async-tiff")


def bands_first(result: Any, file: File) -> np.ndarray:
    array = np.asarray(result)
    if array.ndim == 2:
        return array[None]
    if array.shape[0] != file.shape[0]:
        return np.ascontiguousarray(np.moveaxis(array, -1, 0))
    return array


def checksum(result: Any, file: File) -> int:
    if isinstance(result, list):
        crc = 0
        for one in result:
            crc = zlib.crc32(bands_first(one, file).tobytes(), crc)
        return crc
    return zlib.crc32(np.ascontiguousarray(bands_first(result, file)).tobytes())


def measure(row: Row, calls: dict[str, Callable[[], Timing]], rounds: int, lossy: Callable[[Any], str] | None) -> None:
    """Rounds of every engine in turn. The first is a warm-up, whose outputs are compared with swath's."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    wanted: int | None = None
    gone = set()
    for turn in range(rounds + 1):
        for name, call in calls.items():
            if name in gone:
                continue
            try:
                timing = call()
            except Declined:
                gone.add(name)
                continue
            except Exception as fault:
                if name == "swath":
                    raise
                gone.add(name)
                row.checks[name] = f"refuses: {str(fault).splitlines()[0][:60] if str(fault) else type(fault).__name__}"
                continue
            if turn:
                times[name].append(timing.ms)
                continue
            if name == "swath":
                wanted = timing.crc
            elif timing.result is not None:
                same = checksum(timing.result, row.file) == wanted
                row.checks[name] = "equal" if same else lossy(timing.result) if lossy else "DIFFERENT"
                if row.checks[name] == "DIFFERENT":
                    # An engine with a wrong result is dropped.
                    gone.add(name)
    for name, found in times.items():
        if found and name not in gone:
            row.best[name] = min(found)
            row.median[name] = statistics.median(found)


def geometric(values: list[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, values))) if values else math.nan


def goals(rows: list[Row], opening: Row | None, many: Row | None) -> list[tuple[str, str, bool]]:
    """The goals: what, measured, met."""
    full = [row for row in rows if row.what == "full"]
    windows = [row for row in rows if row.what == "window"]
    found: list[tuple[str, str, bool]] = []

    def at_least(text: str, chosen: list[Row], goal: float) -> None:
        if chosen:
            mean = geometric([row.ratio for row in chosen])
            found.append(
                (f"{text}: at least {goal} x the fastest rival", f"{mean:.2f} x, {len(chosen)} rows", mean >= goal)
            )

    at_least("full reads, geometric mean", full, 1.6)
    at_least("1024² windows, geometric mean", windows, 1.6)
    at_least("LZW, full reads and windows", [row for row in rows if row.file.codec == "lzw"], 2.0)
    for codec in ("deflate", "zstd"):
        chosen = [row for row in full if row.file.codec == codec and "codec alone" in row.best]
        if chosen:
            mean = geometric([row.best["swath"] / row.best["codec alone"] for row in chosen])
            found.append((f"{codec}: within 1.25 x of the codec alone", f"{mean:.2f} x", mean <= 1.25))
    chosen = [row for row in full if "mmap + copy" in row.best]
    if chosen:
        mean = geometric([row.best["mmap + copy"] / row.best["swath"] for row in chosen])
        found.append(("uncompressed: at least 80 % of mmap + copy", f"{mean * 100:.0f} %", mean >= 0.8))
    if opening:
        micro = opening.best["swath"] * 1e3
        found.append(("open + metadata: under 100 µs warm", f"{micro:.0f} µs", micro < 100))
    if many:
        found.append(("200 windows of 256²: 2 x the fastest rival", f"{many.ratio:.2f} x", many.ratio >= 2))
    slower = sorted((r for r in [*rows, *filter(None, (opening, many))] if r.ratio < 1), key=lambda r: r.ratio)
    named = ", ".join(row.name for row in slower[:6]) + (" …" if len(slower) > 6 else "")
    found.append(("no row slower than a rival", f"{len(slower)}: {named}" if slower else "none is", not slower))
    return found


# -------------------------------------------------------------------------------------------------------------- report


def cpu() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "gdal": rasterio.__gdal_version__}
    for package in ("rasterio", "tifffile", "imagecodecs", "async-tiff", "numpy"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "absent"
    return found


def report(
    rows: list[Row], opening: Row | None, many: Row | None, verdicts: list[tuple[str, str, bool]], args: Any
) -> str:
    engines = ["swath", *RIVAL_NAMES, "codec alone", "mmap + copy"]
    lines = [
        "# Benchmark",
        "",
        f"{datetime.date.today()}, {cpu()}, {THREADS} threads, files in the page cache, preset `{args.preset}`, "
        f"best of {args.rounds} rounds, milliseconds.",
        "",
        ", ".join(f"{name} {number}" for name, number in versions().items()),
        "",
        "A read includes opening. tifffile and async-tiff give pixel-interleaved arrays bands last, by nature; "
        "the others give bands first. `codec alone` and `mmap + copy` are bounds, not rivals.",
        "",
        "| row | MB | " + " | ".join(engines) + " | × fastest | checked |",
        "| --- | ---: | " + " | ".join("---:" for _ in engines) + " | ---: | --- |",
    ]
    for row in [*rows, *filter(None, (many, opening))]:
        digits = 4 if row.what == "open" else 1
        cells = [f"{row.best[name]:.{digits}f}" if name in row.best else "-" for name in engines]
        odd = "; ".join(f"{name} {text}" for name, text in row.checks.items() if text != "equal")
        size = f"{row.file.size / 1e6:.0f}" if row.what == "full" else ""
        checked = odd or ("equal" if row.checks else "")
        lines.append(f"| {row.name} | {size} | " + " | ".join(cells) + f" | {row.ratio:.2f} | {checked} |")
    lines += ["", "| goal | measured | |", "| --- | --- | --- |"]
    lines += [f"| {text} | {measured} | {'PASS' if met else 'FAIL'} |" for text, measured, met in verdicts]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", dest="preset", action="store_const", const="quick", default="default")
    parser.add_argument("--full", dest="preset", action="store_const", const="full", help="the sizes of the anchors")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", help="only files whose name (kind-codec-tile) contains this text")
    parser.add_argument("--rivals", default="", help="only rivals whose name contains this text")
    args = parser.parse_args()

    files, cog = make_files(args.preset, args.only)
    swath = Worker()
    rivals: list[Any] = [Rasterio("ALL_CPUS"), Rasterio("1"), Tifffile(), *([AsyncTiff()] if async_tiff else [])]
    rivals = [rival for rival in rivals if args.rivals in rival.name]
    bounds: list[Any] = [CodecAlone(), MapAndCopy()]
    rng = random.Random(7)
    rows: list[Row] = []

    for file in files:
        file.path.read_bytes()
        lossy = None
        if file.codec in LOSSY:
            ours = swath.pixels(file)

            def gap(result: Any, file: File = file, ours: np.ndarray = ours) -> str:
                theirs = bands_first(result, file)
                if theirs.shape != ours.shape:
                    return "window"
                apart = np.abs(theirs.astype("i2") - ours)
                return f"max {apart.max()}, mean {apart.mean():.3f} apart"

            lossy = gap
        row = Row(f"full {file.name}", "full", file)
        measure(
            row, {e.name: lambda e=e, f=file: e.read(f, None) for e in [swath, *rivals, *bounds]}, args.rounds, lossy
        )
        rows.append(row)
        print(f"{row.name}: {row.ratio:.2f} x", file=sys.stderr)

        _, height, width = file.shape
        side = min(1024, height // 2)
        box = (rng.randrange(width - side), rng.randrange(height - side), side, side)
        row = Row(f"window {file.name}", "window", file)

        def part(engine: Any, file: File = file, box: Box = box) -> Timing:
            timing = engine.read(file, box)
            # async-tiff takes a list of windows.
            if isinstance(timing.result, list):
                timing.result = timing.result[0]
            return timing

        measure(row, {e.name: lambda e=e, p=part: p(e) for e in [swath, *rivals]}, args.rounds * 2, lossy)
        rows.append(row)

    many = opening = None
    if not args.only or args.only in cog.name:
        _, height, width = cog.shape
        boxes = [(rng.randrange(width - 256), rng.randrange(height - 256), 256, 256) for _ in range(200)]
        many = Row("200 windows of 256²", "windows", cog)
        measure(many, {e.name: lambda e=e: e.windows(cog, boxes) for e in [swath, *rivals]}, args.rounds, None)
        opening = Row("open + metadata", "open", cog)
        times = 20 if args.preset == "quick" else 100
        measure(opening, {e.name: lambda e=e: e.open(cog, times) for e in [swath, *rivals]}, args.rounds, None)

    verdicts = goals(rows, opening, many)
    text = report(rows, opening, many, verdicts, args)
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "results.md").write_text(text)
    document = {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "cpu": cpu(),
        "threads": THREADS,
        "preset": args.preset,
        "rounds": args.rounds,
        "versions": versions(),
        "rows": [
            {"name": row.name, "what": row.what, "codec": row.file.codec, "kind": row.file.kind, "tile": row.file.tile,
             "bytes": row.file.size, "best_ms": row.best, "median_ms": row.median, "checks": row.checks,
             "times_fastest_rival": row.ratio}
            for row in [*rows, *filter(None, (many, opening))]
        ],
        "goals": [{"goal": text, "measured": measured, "met": met} for text, measured, met in verdicts],
    }  # fmt: skip
    (OUT / "results.json").write_text(json.dumps(document, indent=1) + "\n")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
