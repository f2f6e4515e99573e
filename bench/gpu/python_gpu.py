#!/usr/bin/env python3
"""Tests the Python package on a GPU: no copies to CuPy and torch, streams in order, dask within limits, and its speed.

    python3 python_gpu.py check --out R.json [--dir DIR] [--only read,write,...] [--small] [--fake] [--rivals DIR]
                                [--lib DIR] [--size N] [--deadline UNIX_TIME]

prints a line for each check and writes R.json. Exit status 1 if a check failed. Checks without time or without a
package are reported as left out. --small is a short subset for compute-sanitizer. --fake is for a machine without a
GPU, on the fake driver (tools/fake-driver): there is no CuPy then, and only checks that need none run.

    python3 python_gpu.py measure NAME --dir DIR [--rivals DIR]

is one write in a process of its own, for its peak of device memory, and prints a line of JSON.

The package comes from PYTHONPATH; --lib has NVIDIA's libraries, --rivals rasterio and xrspatial where they are there.
"""

from __future__ import annotations

import argparse
import functools
import gc
import hashlib
import itertools
import json
import os
import statistics
import subprocess
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np

# In the bundle everything is beside this file; in a checkout the matrix is among the tests.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "tests" / "python"))
sys.path.insert(0, str(Path(__file__).resolve().parent))
import documented
import matrix
from data import make

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parent.parent

TYPES = (
    "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float16", "float32", "float64",
    "complex64", "complex128",
)  # fmt: skip
CODECS = ("none", "packbits", "lzw", "deflate", "zstd", "lz4", "lzma", "lerc")
# Codecs that our own kernels decode: the host must not decode any of their tiles.
DEVICE_CODECS = ("none", "packbits", "lzw", "deflate", "zstd")
# Codecs that nvCOMP decodes where the caller trusts the file; the CPU decodes all others.
TRUSTED_CODECS = ("lz4",)
# Device memory that a raster of 256 MB in chunks of 512 rows may take: with the limits below, and by default, which is
# 256 MiB of chunks and 256 MiB for the engine.
LIMITS = {"streaming_buffer_bytes": 64 << 20, "max_device_memory": 256 << 20}
PEAK_GOALS = {"streamed": 300e6, "streamed-cog": 300e6}
# By default the engine may take one part in this many of the memory, and so may the chunks.
DEFAULT_PARTS = 16
MEMORY_SIZE, MEMORY_ROWS = 8192, 512
MEASURED = ("streamed", "streamed-cog", "default", "default-cog", "eager", "eager-cog")
# A kernel that keeps a stream busy long enough to expose work that runs out of order.
BUSY_CYCLES = 300_000_000
SPIN = 'extern "C" __global__ void spin(long long cycles) { long long t = clock64(); while (clock64() - t < cycles); }'
TERRAIN = """
    int y = first + i / width, x = i % width;
    unsigned h = (unsigned)(x * 73856093) ^ (unsigned)(y * 19349663);
    h = (h ^ (h >> 13)) * 1274126177u;
    out = rintf((1200.0f + 500.0f * sinf(x * 0.003f) * cosf(y * 0.002f) + (h >> 24) * 0.004f) * 100.0f) / 100.0f;
"""


class LeftOutError(Exception):
    """Why a check was not run."""


class WrongError(Exception):
    """The result of a check."""


def module(name: str) -> Any:
    try:
        return __import__(name)
    except ImportError:
        return None


def sample(dtype: str, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """Smooth samples with noise, different for each seed."""
    random = np.random.default_rng(seed)
    y, x = np.indices(shape[-2:])
    values = (x * 3 + y * 5 + seed * 17) % 97 + random.integers(0, 7, shape)
    if dtype.startswith("complex"):
        return (values + 1j * values[..., ::-1]).astype(dtype)
    return values.astype(dtype)


def decoding(codec: str) -> dict[str, Any]:
    """Keywords that a read to the device needs for files of a codec."""
    if codec in DEVICE_CODECS:
        return {}
    return {"trust_input": True} if codec in TRUSTED_CODECS else {"cpu_decode": True}


class Run:
    """The environment of the checks."""

    def __init__(self, args: argparse.Namespace) -> None:
        import swath

        self.args, self.swath = args, swath
        self.small: bool = args.small
        self.folder: Path = args.dir
        self.cupy: Any = None if args.fake else module("cupy")
        self.torch: Any = None if args.fake else module("torch")
        self.cases = 0
        # Results of each group of the matrix.
        self.matrix: dict[str, dict[str, Any]] = {}
        # Measurements of a check, kept even if it fails.
        self.figures: dict[str, Any] = {}
        self._spin: Any = None

    def need(self, *names: str) -> None:
        for name in names:
            if self.args.fake and name in ("cupy", "torch"):
                raise LeftOutError("the fake driver has no CuPy and no torch")
            if module(name) is None:
                raise LeftOutError(f"no {name} here")

    def file(self, name: str, array: np.ndarray, **options: Any) -> str:
        """A file that the CPU wrote."""
        path = self.folder / f"{name}.tif"
        if not path.exists():
            options = {"compression": "deflate", "tile_size": 128, "device": "cpu", **options}
            self.swath.to_geotiff(array, str(path), band_axis=0 if array.ndim == 3 else None, **options)
        return str(path)

    def host(self, array: Any) -> np.ndarray:
        """An array of any library in host memory."""
        if isinstance(array, np.ndarray):
            return array
        if isinstance(array, self.swath.Array):
            return np.asarray(array.to_host())
        if self.torch is not None and isinstance(array, self.torch.Tensor):
            return array.cpu().numpy()
        return self.cupy.asnumpy(array)

    def same(self, found: Any, wanted: np.ndarray, what: str) -> None:
        """Compares shape, type and every sample; NaN equals NaN, whose bits differ between GPUs and CPUs."""
        self.cases += 1
        found = self.host(found)
        if found.shape != wanted.shape or found.dtype != wanted.dtype:
            raise WrongError(f"{what}: {found.dtype} {found.shape} where {wanted.dtype} {wanted.shape} belongs")
        wrong = np.argwhere((found != wanted) & ((found == found) | (wanted == wanted)))
        if len(wrong):
            raise WrongError(f"{what}: {len(wrong)} of {wanted.size} samples differ, the first at {wrong[:1].tolist()}")

    def true(self, condition: bool, what: str) -> None:
        self.cases += 1
        if not condition:
            raise WrongError(what)

    def holds(self, array: Any, wanted: np.ndarray, what: str) -> None:
        """Checks that an array of swath on the GPU has these samples, and that other libraries see the same memory."""
        address = array.__cuda_array_interface__["data"][0]
        self.same(array, wanted, what)
        if self.cupy is not None:
            for how, take in (("asarray", self.cupy.asarray), ("from_dlpack", self.cupy.from_dlpack)):
                taken = take(array)
                self.true(taken.data.ptr == address, f"{what}: CuPy's {how} has other memory")
                self.same(taken, wanted, f"{what}, CuPy's {how}")
        if self.torch is not None:
            taken = self.torch.from_dlpack(array)
            self.true(taken.data_ptr() == address, f"{what}: torch has other memory")
            self.same(taken, wanted, f"{what}, torch")

    def spin(self, cycles: int = BUSY_CYCLES) -> None:
        """Keeps CuPy's current stream busy."""
        if self._spin is None:
            self._spin = self.cupy.RawKernel(SPIN, "spin")
            self._spin((1,), (1,), (np.int64(1),))
        self._spin((1,), (1,), (np.int64(cycles // 20 if self.small else cycles),))

    def free(self) -> int:
        """Free device memory, after CuPy's pool was emptied."""
        gc.collect()
        self.cupy.cuda.Device().synchronize()
        self.cupy.get_default_memory_pool().free_all_blocks()
        return int(self.cupy.cuda.runtime.memGetInfo()[0])


Check = Callable[[Run], None]
CHECKS: list[tuple[str, str, bool, Check]] = []


def check(group: str, small: bool = False) -> Callable[[Check], Check]:
    def add(function: Check) -> Check:
        CHECKS.append((group, (function.__doc__ or "").strip().rstrip("."), small, function))
        return function

    return add


# ------------------------------------------------------------------------------------------------------------- reading


@check("read", small=True)
def counters(run: Run) -> None:
    """A read waits for the device once, and the host decodes no tile."""
    for codec in DEVICE_CODECS:
        wanted = sample("uint16", (1700, 1900), 1)
        path = run.file(f"counters-{codec}", wanted, compression=codec)
        array = run.swath.Dataset(path).read(1, device="cuda")
        report = array.report
        run.same(array, wanted, codec)
        run.true(report["synchronisations"] == 1, f"{codec}: {report['synchronisations']} synchronisations")
        run.true(report["host_tiles"] == 0, f"{codec}: {report['host_tiles']} tiles on the host")
        run.true(report["device_tiles"] == 14 * 15, f"{codec}: {report['device_tiles']} tiles on the device")
        run.figures[codec] = {key: report[key] for key in ("launches", "uploads", "peak_bytes")}
        # No other library has the block, so the next read of this size waits once as well.
        del array


@check("read", small=True)
def types(run: Run) -> None:
    """Every type of sample, with the same memory in CuPy and torch."""
    for dtype, bands in itertools.product(TYPES[::4] if run.small else TYPES, (1, 3)):
        wanted = sample(dtype, (bands, 301, 333))
        path = run.file(f"types-{dtype}-{bands}", wanted)
        run.holds(run.swath.read(path, device="cuda"), wanted, f"{dtype}, {bands} bands")


@check("read")
def codecs(run: Run) -> None:
    """Every codec, bands together and apart, both orders of axes."""
    for codec, stored, order in itertools.product(CODECS, ("pixel", "band"), ("band", "pixel")):
        wanted = sample("uint16", (3, 260, 390), 2)
        path = run.file(f"codecs-{codec}-{stored}", wanted, compression=codec, interleave=stored)
        array = run.swath.read(path, device="cuda", interleave=order, **decoding(codec))
        turned = wanted if order == "band" else np.ascontiguousarray(np.moveaxis(wanted, 0, -1))
        run.holds(array, turned, f"{codec}, stored by {stored}, read by {order}")


@check("read")
def windows(run: Run) -> None:
    """Windows, single bands, other orders of bands, and overviews."""
    wanted = sample("float32", (4, 700, 900), 3)
    path = run.file("windows", wanted, cog=True)
    dataset = run.swath.Dataset(path)
    for x, y, width, height in (
        (0, 0, 1, 1),
        (127, 127, 2, 2),
        (100, 30, 513, 401),
        (899, 699, 1, 1),
        (640, 0, 260, 700),
    ):
        window = run.swath.Window(x, y, width, height)
        part = np.ascontiguousarray(wanted[:, y : y + height, x : x + width])
        run.holds(dataset.read(window=window, device="cuda"), part, f"{window}")
        run.holds(dataset.read(2, window, device="cuda"), part[1], f"{window}, one band")
        run.holds(dataset.read([4, 1], window, device="cuda"), part[[3, 0]], f"{window}, bands 4 and 1")
    for level in range(len(dataset.overview_sizes)):
        host = np.asarray(dataset.read(overview_level=level))
        run.holds(dataset.read(overview_level=level, device="cuda"), host, f"overview {level}")


@check("read")
def sources(run: Run) -> None:
    """Bytes and file objects as sources."""
    wanted = sample("int16", (2, 300, 400), 4)
    path = run.file("sources", wanted)
    run.holds(run.swath.read(Path(path).read_bytes(), device="cuda"), wanted, "bytes")
    with Path(path).open("rb") as file:
        run.holds(run.swath.read(file, device="cuda"), wanted, "a file object")


class Ranges(BaseHTTPRequestHandler):
    """Answers requests for ranges of the files in a folder, over connections that stay open."""

    protocol_version = "HTTP/1.1"
    folder = Path()

    def do_GET(self) -> None:
        start, end = map(int, self.headers["Range"].removeprefix("bytes=").split("-"))
        with (self.folder / self.path.lstrip("/")).open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(start)
            body = file.read(min(end + 1, size) - start)
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {start}-{start + len(body) - 1}/{size}")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", '"one"')
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Logs nothing."""


@check("read")
def served(run: Run) -> None:
    """A file on an HTTP server: windows and the whole, eager and by dask, in few requests, all decoded on the GPU."""
    Ranges.folder = run.folder
    server = ThreadingHTTPServer(("127.0.0.1", 0), Ranges)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    for codec in DEVICE_CODECS:
        wanted = sample("uint16", (2000, 2300), 5)
        path = Path(run.file(f"served-{codec}", wanted, compression=codec, tile_size=256, cog=True))
        url = f"http://127.0.0.1:{server.server_port}/{path.name}"
        dataset = run.swath.Dataset(url)
        run.true(dataset.remote_stats["requests"] == 1, f"{codec}: opening took {dataset.remote_stats}")
        run.holds(dataset.read(1, device="cuda"), wanted, f"{codec} over HTTP")
        window = run.swath.Window(300, 200, 1024, 900)
        array = run.swath.Dataset(url).read(1, window, device="cuda")
        run.holds(array, np.ascontiguousarray(wanted[200:1100, 300:1324]), f"{codec} over HTTP, a window")
        run.true(array.report["host_tiles"] == 0, f"{codec}: {array.report['host_tiles']} tiles on the host")
        run.figures[codec] = dataset.remote_stats
        if module("dask") is not None and run.cupy is not None:
            lazy = run.swath.open_geotiff(url, device="cuda", chunks=700)
            run.same(computed(lazy.data).reshape(wanted.shape), wanted, f"{codec} over HTTP, by dask")
    server.shutdown()


@check("read")
def threads(run: Run) -> None:
    """Many threads with one handle."""
    wanted = sample("uint16", (1024, 1024), 5)
    dataset = run.swath.Dataset(run.file("threads", wanted))
    places = [(x, y) for y in range(0, 1024, 128) for x in range(0, 1024, 128)]

    def part(place: tuple[int, int]) -> np.ndarray:
        x, y = place
        return run.host(dataset.read(1, run.swath.Window(x, y, 128, 128), device="cuda"))

    with ThreadPoolExecutor(8) as pool:
        for (x, y), found in zip(places, pool.map(part, places)):
            run.same(found, wanted[y : y + 128, x : x + 128], f"the window at {x}, {y}")


# ----------------------------------------------------------------------------------------------------------- lifetimes


@check("lifetimes", small=True)
def views(run: Run) -> None:
    """Memory is not reused while CuPy or torch refer to it, nor before their work is done."""
    run.need("cupy")
    rasters = [sample("uint16", (512, 640), seed) for seed in range(6)]
    paths = [run.file(f"views-{seed}", raster) for seed, raster in enumerate(rasters)]
    kept = [run.cupy.asarray(run.swath.read(path, 1, device="cuda")) for path in paths]
    if run.torch is not None:
        tensors = [run.torch.from_dlpack(run.swath.read(path, 1, device="cuda")) for path in paths]
    for number in range(5 if run.small else 60):
        run.swath.read(paths[number % 6], 1, device="cuda")
    for seed, raster in enumerate(rasters):
        run.same(kept[seed], raster, f"view {seed} after other reads")
        if run.torch is not None:
            run.same(tensors[seed], raster, f"tensor {seed} after other reads")
    # Work is queued on a view, and the view is dropped; the next read must not write into memory that this work reads.
    stream = run.cupy.cuda.Stream(non_blocking=True)
    with stream:
        # Kernels are compiled when they are first called, which outlasts any queue.
        run.spin()
        kept[0].copy()
        stream.synchronize()
    for seed, raster in enumerate(rasters):
        with stream:
            view = run.cupy.asarray(run.swath.read(paths[seed], 1, device="cuda"))
            run.spin()
            copy = view.copy()
            run.true(not stream.done, "the stream is idle already, so nothing would be shown")
            del view
        for other in range(3):
            run.swath.read(paths[(seed + 1 + other) % 6], 1, device="cuda")
        stream.synchronize()
        run.same(copy, raster, f"a copy queued before view {seed} was given up")


@check("lifetimes")
def steady(run: Run) -> None:
    """Device memory is the same after 200 reads as after 20."""
    run.need("cupy")
    wanted = sample("float32", (3, 800, 900), 6)
    dataset = run.swath.Dataset(run.file("steady", wanted))
    free = []
    for number in range(200):
        array = dataset.read(device="cuda")
        view = run.cupy.asarray(array)
        del array
        total = view.sum()
        del view, total
        if number % 20 == 19:
            free.append(run.free())
    allocations = dataset.device_report()["allocations"]
    run.figures |= {"free_bytes": [min(free), max(free)], "allocations": allocations, "reads": 200}
    run.true(max(free) - min(free) <= 4 << 20, f"free device memory moves: {free}")


# ------------------------------------------------------------------------------------------------------------- filling


@check("out")
def filled(run: Run) -> None:
    """out= fills arrays of CuPy and torch: dense, with gaps, of one band, on busy streams."""
    run.need("cupy")
    cupy, wanted = run.cupy, sample("uint16", (2, 400, 500), 7)
    dataset = run.swath.Dataset(run.file("out", wanted))
    dense = cupy.zeros(wanted.shape, "uint16")
    run.true(dataset.read(out=dense) is dense, "out is not what is returned")
    run.same(dense, wanted, "a dense CuPy array")
    wide = cupy.zeros((2, 400, 1000), "uint16")
    dataset.read(out=wide[..., ::2])
    run.same(wide[..., ::2], wanted, "a CuPy array with gaps")
    run.true(not bool(wide[..., 1::2].any()), "the gaps were written to")
    flat = cupy.zeros((400, 500), "uint16")
    dataset.read(2, out=flat)
    run.same(flat, wanted[1], "one band")
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        late = cupy.empty(wanted.shape, "uint16")
        run.spin()
        late.fill(7)
        dataset.read(out=late)
        after = late + np.uint16(1)
    stream.synchronize()
    run.same(after, wanted + np.uint16(1), "a CuPy array with work before and after in its stream")
    try:
        dataset.read(out=cupy.zeros((2, 10, 10), "uint16"))
    except (ValueError, run.swath.Error):
        run.cases += 1
    else:
        raise WrongError("an array of another shape was filled")


@check("out")
def filled_torch(run: Run) -> None:
    """out= fills tensors of torch on the GPU and on the host."""
    run.need("torch")
    torch, wanted = run.torch, sample("int16", (2, 400, 500), 8)
    dataset = run.swath.Dataset(run.file("out-torch", wanted))
    for place in ("cuda", "cpu"):
        tensor = torch.zeros(wanted.shape, dtype=torch.int16, device=place)
        run.true(dataset.read(out=tensor) is tensor, "out is not what is returned")
        run.same(tensor, wanted, f"a tensor on {place}")
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        late = torch.empty(wanted.shape, dtype=torch.int16, device="cuda")
        torch.cuda._sleep(BUSY_CYCLES)
        late.fill_(7)
        dataset.read(out=late)
        after = late + 1
    stream.synchronize()
    run.same(after, wanted + np.int16(1), "a tensor with work before and after in its stream")


# --------------------------------------------------------------------------------------------------------------- chips


@check("chips", small=True)
def batches(run: Run) -> None:
    """Batches of windows equal those that the CPU reads, with any read-ahead."""
    for codec, bands in (("deflate", 3), ("zstd", 1), ("lzw", 1), ("lerc", 2)):
        allowed = decoding(codec)
        wanted = sample("uint16", (bands, 700, 810), 9)
        dataset = run.swath.Dataset(run.file(f"chips-{codec}-{bands}", wanted, compression=codec, cog=True))
        random = np.random.default_rng(1)
        corners = [(int(random.integers(0, 711)), int(random.integers(0, 601))) for _ in range(70)]
        # One window twice, and one at each end.
        corners += [corners[0], (0, 0), (710, 600)]
        places = [run.swath.Window(x, y, 100, 100) for x, y in corners]
        for order in ("band", "pixel"):
            host = np.asarray(dataset.read_windows(places, interleave=order))
            found = dataset.read_windows(places, interleave=order, device="cuda", **allowed)
            run.same(found, host, f"{codec}, by {order}")
        low = [run.swath.Window(x // 4, y // 4, 60, 60) for x, y in corners]
        host = np.asarray(dataset.read_windows(low, [bands], overview_level=0))
        found = dataset.read_windows(low, [bands], overview_level=0, device="cuda", **allowed)
        run.same(found, host, f"{codec}, an overview")
        for ahead, edge, shuffle in ((0, "shift", False), (2, "drop", True), (4, "shift", True)):
            options: dict[str, Any] = {"batch": 16, "prefetch": ahead, "edge": edge, "shuffle": shuffle, "seed": 3}
            device = dataset.chips(96, 80, device="cuda", **options, **allowed)
            for (found, where), (host, there) in zip(device, dataset.chips(96, 80, **options), strict=True):
                run.true(where == there, f"{codec}: other windows")
                run.same(found, np.asarray(host), f"{codec}, {ahead} ahead")


@check("chips", small=True)
def consumed(run: Run) -> None:
    """Batches that another stream still uses are not overwritten."""
    run.need("cupy")
    cupy, wanted = run.cupy, sample("uint16", (1024, 1024), 10)
    dataset = run.swath.Dataset(run.file("consumed", wanted))
    stream, copies = cupy.cuda.Stream(non_blocking=True), []
    for chips, where in dataset.chips(128, batch=8, device="cuda", prefetch=3):
        with stream:
            run.spin(BUSY_CYCLES // 4)
            copies.append((cupy.asarray(chips).copy(), where))
    stream.synchronize()
    for found, where in copies:
        host = np.stack([wanted[None, w.y : w.y + w.height, w.x : w.x + w.width] for w in where])
        run.same(found, host, f"the batch from {where[0]} on")


# ------------------------------------------------------------------------------------------------------------- writing


def layouts(run: Run, base: np.ndarray) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """Arrays on the device in many memory orders, and the keywords that go with them."""
    on = run.cupy.asarray(base)
    yield "bands first", on, {"band_axis": 0}
    yield "bands last", run.cupy.ascontiguousarray(run.cupy.moveaxis(on, 0, -1)), {"band_axis": 2}
    yield "bands last by strides", run.cupy.moveaxis(on, 0, -1), {"band_axis": 2}
    yield "transposed", on.transpose(0, 2, 1), {"band_axis": 0}
    yield "Fortran's order", run.cupy.asfortranarray(on), {"band_axis": 0}
    yield "every second row and column", on[:, ::2, 1::2], {"band_axis": 0}
    yield "upside down", on[:, ::-1], {"band_axis": 0}
    yield "mirrored", on[..., ::-1], {"band_axis": 0}
    yield "one band", on[1], {}
    yield "one row for all", run.cupy.broadcast_to(on[:, :1], on.shape), {"band_axis": 0}


def write_options(codec: str, cog: bool) -> dict[str, Any]:
    return {"compression": codec, "tile_size": 128, "cog": cog, "statistics": False}


@check("write", small=True)
def orders(run: Run) -> None:
    """Arrays of any strides give the same file as contiguous samples."""
    run.need("cupy")
    base = sample("float32", (3, 300, 420), 11)
    codecs = ("zstd",) if run.small else ("deflate", "zstd", "lzw", "none")
    for codec, cog in itertools.product(codecs, (False, True)):
        for name, array, words in layouts(run, base):
            what, options = f"{name}, {codec}{', COG' * cog}", {**write_options(codec, cog), **words}
            file = run.swath.to_geotiff(array, None, **options)
            dense = run.swath.to_geotiff(run.cupy.ascontiguousarray(array), None, **options)
            run.true(file == dense, f"{what}: the bytes depend on the strides")
            wanted = run.host(array)
            wanted = (
                np.moveaxis(wanted, -1, 0) if words.get("band_axis") == 2 else wanted.reshape(-1, *wanted.shape[-2:])
            )
            run.same(np.asarray(run.swath.read(file)), np.ascontiguousarray(wanted), what)


@check("write")
def written_types(run: Run) -> None:
    """Every type of sample from CuPy and torch, with and without a cap."""
    run.need("cupy")
    for dtype in TYPES:
        wanted = sample(dtype, (2, 300, 333), 12)
        array = run.cupy.asarray(wanted)
        options = {**write_options("deflate", False), "band_axis": 0}
        file = run.swath.to_geotiff(array, None, **options)
        run.same(np.asarray(run.swath.read(file)), wanted, dtype)
        capped = run.swath.to_geotiff(array, None, max_device_memory=48 << 20, **options)
        run.true(capped == file, f"{dtype}: the bytes depend on the cap")
        if run.torch is not None:
            tensor = run.torch.from_dlpack(array)
            run.true(run.swath.to_geotiff(tensor, None, **options) == file, f"{dtype}: torch's file is another")


@check("write", small=True)
def passed_on(run: Run) -> None:
    """A raster that swath read to the GPU can be written from there."""
    for codec in ("deflate", "zstd"):
        wanted = sample("uint16", (2, 300, 420), 13)
        path = run.file(f"passed-{codec}", wanted, compression=codec)
        array = run.swath.read(path, device="cuda", **decoding(codec))
        file = run.swath.to_geotiff(array, None, band_axis=0, **write_options(codec, True))
        run.same(np.asarray(run.swath.read(file)), wanted, codec)


@check("streams", small=True)
def queued(run: Run) -> None:
    """Work that is still queued in a stream of CuPy's is in the file."""
    run.need("cupy")
    cupy, base = run.cupy, sample("float32", (512, 640), 14)
    for codec, non_blocking in itertools.product(("deflate", "zstd"), (True, False)):
        stream = cupy.cuda.Stream(non_blocking=non_blocking)
        on = cupy.asarray(base)
        run.spin()
        cupy.multiply(on, 3, out=cupy.zeros_like(on))
        cupy.cuda.Device().synchronize()
        with stream:
            made = cupy.zeros_like(on)
            run.spin()
            cupy.multiply(on, 3, out=made)
            run.true(not stream.done, "the stream is idle already, so nothing would be shown")
            file = run.swath.to_geotiff(made, None, **write_options(codec, True))
        run.same(np.asarray(run.swath.read(file, 1)), base * 3, f"{codec}, non-blocking {non_blocking}")


@check("streams")
def queued_torch(run: Run) -> None:
    """Work that is still queued in a stream of torch's is in the file."""
    run.need("torch")
    torch, base = run.torch, sample("float32", (512, 640), 15)
    on = torch.from_numpy(base).cuda()
    torch.mul(on, 3, out=torch.zeros_like(on))
    torch.cuda._sleep(BUSY_CYCLES)
    torch.cuda.synchronize()
    for codec in ("deflate", "zstd"):
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            made = torch.zeros_like(on)
            torch.cuda._sleep(BUSY_CYCLES)
            torch.mul(on, 3, out=made)
            run.true(not stream.query(), "the stream is idle already, so nothing would be shown")
            file = run.swath.to_geotiff(made, None, **write_options(codec, True))
        run.same(np.asarray(run.swath.read(file, 1)), base * 3, codec)


@check("streams", small=True)
def reused(run: Run) -> None:
    """An array may be overwritten as soon as it was pushed."""
    run.need("cupy")
    from swath import _swath

    cupy, base = run.cupy, sample("float32", (1024, 768), 16)
    for codec in ("deflate", "zstd"):
        options = {"compression": codec, "tile_size": (128, 128), "device": "cuda"}
        writer = _swath.Writer(None, (1, 1024, 768), "float32", {}, options)
        stream = cupy.cuda.Stream(non_blocking=True)
        with stream:
            memory = cupy.empty((100, 768), "float32")
            for row in range(0, 1024, 100):
                rows = min(100, 1024 - row)
                run.spin(BUSY_CYCLES // 30)
                memory[:rows] = cupy.asarray(base[row : row + rows])
                writer.push_device(memory[:rows], "yx")
                memory.fill(-1)
        file = writer.finish()["bytes"]
        run.same(np.asarray(run.swath.read(file, 1)), base, codec)


# --------------------------------------------------------------------------------------------------------- xarray, dask


def computed(data: Any) -> Any:
    return data.compute(scheduler="threads") if hasattr(data, "compute") else data


@check("xarray")
def opened(run: Run) -> None:
    """open_geotiff gives CuPy arrays, eager and in dask's chunks, masked and scaled, as the CPU does."""
    run.need("cupy", "xarray", "dask")
    wanted = sample("int16", (2, 500, 640), 17)
    wanted[:, 10:40, 50:90] = -1
    path = run.file(
        "opened", wanted, nodata=-1, scales=(0.5, 2.0), offsets=(10.0, 0.0), crs=32633, cog=True,
        transform=(10, 0, 500000, 0, -10, 5000000),
    )  # fmt: skip
    ways: list[dict[str, Any]] = [
        {}, {"masked": True}, {"mask_and_scale": True}, {"band": 2}, {"window": (5, 6, 205, 306)},
        {"overview_level": 0}, {"dtype": "float64", "masked": True}, {"bbox": (500100, 4996000, 502000, 4999000)},
    ]  # fmt: skip
    for words in ways:
        host = run.swath.open_geotiff(path, **words)
        for chunks in (None, 128, "auto", {"band": 1, "y": 100, "x": 333}):
            if isinstance(chunks, dict) and "band" in words:
                continue
            what = f"{words}, chunks {chunks}"
            found = run.swath.open_geotiff(path, device="cuda", chunks=chunks, **words)
            data = computed(found.data)
            run.true(isinstance(data, run.cupy.ndarray), f"{what}: {type(data)} is not CuPy's")
            run.same(data, host.values, what)
            run.true(found.attrs == host.attrs or str(found.attrs) == str(host.attrs), f"{what}: other attributes")


@check("xarray")
def untrusted(run: Run) -> None:
    """Tiles that the GPU may not decode are an error; with "auto" the CPU decodes them to CuPy, with one warning."""
    run.need("cupy", "xarray", "dask")
    wanted = sample("uint16", (1, 300, 333), 21)
    path = run.file("untrusted", wanted, compression="lz4")
    for chunks in (None, 128):
        try:
            computed(run.swath.open_geotiff(path, device="cuda", chunks=chunks).data)
        except run.swath.DeviceError:
            run.cases += 1
        else:
            raise WrongError("LZ4 that is not trusted was decoded")
        with warnings.catch_warnings(record=True) as noted:
            warnings.simplefilter("always")
            found = computed(run.swath.open_geotiff(path, device="cuda", chunks=chunks, on_gpu_failure="auto").data)
        run.true(isinstance(found, run.cupy.ndarray), f"{type(found)} is not CuPy's")
        run.same(found, wanted, f"decoded by the CPU, chunks {chunks}")
        warned = [each for each in noted if issubclass(each.category, run.swath.DeviceWarning)]
        run.true(bool(warned), f"no warning, chunks {chunks}")
        trusted = run.swath.open_geotiff(path, device="cuda", chunks=chunks, trust_input=True).data
        run.same(computed(trusted), wanted, "trusted")


@check("xarray")
def refused(run: Run) -> None:
    """Without a GPU "raise" raises, and "auto" continues on the CPU and warns each time."""
    path = run.file("refused", sample("uint8", (300, 300), 18))
    code = f"""
import json, warnings
import numpy as np, swath
outcome = {{}}
with warnings.catch_warnings(record=True) as noted:
    warnings.simplefilter("always")
    try:
        swath.read({path!r}, device="cuda")
    except swath.DeviceError as error:
        outcome["read"] = str(error)
    outcome["auto"] = swath.read({path!r}, 1, device="auto").device
    try:
        swath.to_geotiff(np.ones((64, 64), "uint8"), None, device="cuda")
    except swath.DeviceError as error:
        outcome["write"] = str(error)
    try:
        import xarray
    except ImportError:
        pass
    else:
        try:
            swath.open_geotiff({path!r}, device="cuda")
        except swath.DeviceError as error:
            outcome["open"] = str(error)
        noted.clear()
        for _ in range(2):
            data = swath.open_geotiff({path!r}, device="cuda", on_gpu_failure="auto").data
        outcome["fallback"] = type(data).__module__
        outcome["warned"] = [str(each.message) for each in noted if issubclass(each.category, swath.DeviceWarning)]
print(json.dumps(outcome))
"""
    outcome = outside(code, {"CUDA_VISIBLE_DEVICES": "", "SWATH_FAKE_DRIVER": "devices=0"})
    for key in ("read", "write"):
        run.true(bool(outcome.get(key)), f"{key} did not raise DeviceError: {outcome}")
    run.true(outcome["auto"] == "cpu", f"auto gave {outcome['auto']}")
    if module("xarray") is not None:
        run.true(bool(outcome.get("open")), f"open_geotiff did not raise DeviceError: {outcome}")
        run.true(outcome["fallback"] == "numpy", f"the fallback gave {outcome['fallback']}")
        run.true(len(outcome["warned"]) == 2, f"{len(outcome['warned'])} warnings: {outcome['warned']}")


def outside(code: str, environment: dict[str, str]) -> Any:
    """Runs Python code in a process of its own; returns the JSON that it prints."""
    found = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **environment}, capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip
    if found.returncode:
        raise WrongError(f"a process ended with {found.returncode}: {found.stderr.strip()[-400:]}")
    return json.loads(found.stdout.strip().splitlines()[-1])


@check("dask")
def lazily(run: Run) -> None:
    """dask's CuPy chunks give the bytes of the eager CuPy write: ragged, bands first and last, holes, COGs."""
    run.need("cupy", "dask")
    import dask.array

    base = sample("float32", (3, 331, 420), 19)
    base[:, 50:80, 100:300] = np.nan
    on = run.cupy.asarray(base)
    cases: list[tuple[str, Any, tuple[Any, ...], dict[str, Any]]] = [
        ("one band, 24 rows", on[0], (24, -1), {}),
        ("one band, ragged", on[0], ((31, 100, 200), (100, 320)), {}),
        ("bands first", on, (1, 24, 111), {"band_axis": 0}),
        ("bands last", run.cupy.ascontiguousarray(run.cupy.moveaxis(on, 0, -1)), (24, 200, -1), {"band_axis": 2}),
    ]
    for (name, array, chunks, words), cog, codec in itertools.product(cases, (False, True), ("deflate", "zstd")):
        options = {**words, "compression": codec, "tile_size": 32, "cog": cog, "nodata": -9999.0}
        eager = run.swath.to_geotiff(array, None, **options)
        lazy = dask.array.from_array(array, chunks=chunks, asarray=False)
        for buffer in (None, 100_000):
            with warnings.catch_warnings():
                # A row of chunks exceeds the small buffer, which causes a warning.
                warnings.simplefilter("ignore", run.swath.SwathWarning)
                file = run.swath.to_geotiff(lazy, None, streaming_buffer_bytes=buffer, **options)
            run.true(file == eager, f"{name}, {codec}, cog={cog}, buffer {buffer}: not the eager file")
    run.true(bool(run.cupy.isnan(on[0, 60, 150])), "the input was changed")


@check("dask")
def through(run: Run) -> None:
    """From file to file on the device, chunk by chunk."""
    run.need("cupy", "xarray", "dask")
    wanted = sample("uint16", (1200, 1300), 20)
    path = run.file("through", wanted, crs=32633, transform=(10, 0, 500000, 0, -10, 5000000))
    lazy = run.swath.open_geotiff(path, device="cuda", chunks=(1, 300, 500))
    out = self_removing(run.folder / "through-out.tif")
    run.swath.to_geotiff(lazy, str(out), cog=True, tile_size=256)
    run.same(np.asarray(run.swath.read(str(out), 1)), wanted, "the COG")
    run.true(run.swath.validate(str(out), full=True)["valid"], "the COG is not valid")


@check("dask")
def on_cluster(run: Run) -> None:
    """Another process of a cluster encodes CuPy chunks on the GPU; the file is the eager one, except for overviews."""
    run.need("cupy", "dask", "distributed")
    import dask.array
    from distributed import Client, LocalCluster

    wanted = sample("float32", (2, 700, 640), 22)
    lazy = dask.array.from_array(wanted, chunks=(1, 100, 320)).map_blocks(run.cupy.asarray, dtype="float32")
    lazy = dask.array.Array(lazy.dask, lazy.name, lazy.chunks, meta=run.cupy.empty((0, 0, 0), "float32"))
    # One worker: CuPy's chunks move between workers only with numba.
    with (
        LocalCluster(n_workers=1, threads_per_worker=4, processes=True, dashboard_address=None) as cluster,
        Client(cluster),
    ):
        for codec, cog in itertools.product(("deflate", "zstd"), (False, True)):
            options = {**write_options(codec, cog), "band_axis": 0}
            eager = run.swath.to_geotiff(run.cupy.asarray(wanted), None, **options)
            file = run.swath.to_geotiff(lazy, None, **options)
            if cog:
                # The writing process compresses the overviews on its CPU.
                run.same(np.asarray(run.swath.read(file)), wanted, f"{codec}, the COG")
                run.true(run.swath.validate(file, full=True)["valid"], f"{codec}: the COG is not valid")
                level = np.asarray(run.swath.read(file, overview_level=0))
                run.same(level, np.asarray(run.swath.read(eager, overview_level=0)), f"{codec}, its overview")
            else:
                run.true(file == eager, f"{codec}: not the eager file")


def self_removing(path: Path) -> Path:
    path.unlink(missing_ok=True)
    return path


# ------------------------------------------------------------------------------------------------- every way in and out


def matrix_check(name: str) -> Check:
    """A check that runs the cases of one group and names each case that fails."""

    def one(run: Run) -> None:
        run.need("cupy", "xarray")
        done = matrix.run_group(
            name, run.folder / "matrix" / name.replace(" ", "-"), lambda line: print(line, flush=True)
        )
        run.matrix[name] = done
        run.cases += done["cases"]
        run.figures |= {key: done[key] for key in ("failed", "left_out") if done[key]}
        if done["failed"]:
            first = "; ".join(f"{each['name']}: {each['error'][:150]}" for each in done["failed"][:3])
            raise WrongError(f"{len(done['failed'])} of {done['cases']} cases failed: {first}")

    one.__doc__ = f"{name}: {matrix.GROUPS[name].__doc__}"
    return one


for _name in matrix.GROUPS:
    if _name != matrix.INSIDE:
        check("matrix")(matrix_check(_name))


@check("matrix")
def same_files(run: Run) -> None:
    """Files do not depend on the library and the container that hold the samples."""
    run.need("cupy", "xarray")
    run.cases += len({key for done in run.matrix.values() for key in done["files"]})
    differing = matrix.differences(run.matrix)
    for each in differing:
        print(f"FAILED {each}", flush=True)
    run.true(not differing, f"{len(differing)} files differ: {'; '.join(differing[:3])}")


@check("documents")
def shown(run: Run) -> None:
    """Every Python example of README and docs for the GPU runs unchanged."""
    run.need("cupy", "torch", "xarray", "dask")
    root = HERE / "documents" if (HERE / "documents").is_dir() else CHECKOUT
    folder = run.folder / "documents"
    folder.mkdir(exist_ok=True)
    documents = [root / "README.md", *sorted((root / "docs").glob("*.md"))]
    done = documented.run(documents, folder.resolve(), lambda line: print(line, flush=True))
    run.cases += done["cases"]
    run.figures |= {key: done[key] for key in ("failed", "left_out") if done[key]}
    run.true(done["cases"] > 0, "no line was found")
    if done["failed"]:
        raise WrongError("; ".join(f"{each['name']}: {each['error']}" for each in done["failed"]))


# -------------------------------------------------------------------------------------------------------------- memory


class Watch:
    """The least free device memory while code runs, sampled every millisecond."""

    def __init__(self, cupy: Any) -> None:
        self.look = cupy.cuda.runtime.memGetInfo
        self.least, self.looks = int(self.look()[0]), 0
        self.done = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)

    def run(self) -> None:
        while not self.done.wait(0.001):
            self.least = min(self.least, int(self.look()[0]))
            self.looks += 1

    def __enter__(self) -> Watch:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.done.set()
        self.thread.join()


@functools.cache
def terrain_kernel() -> Any:
    import cupy

    return cupy.ElementwiseKernel("int32 first, int32 width", "float32 out", TERRAIN, "terrain")


def terrain(first: int, count: int) -> Any:
    """Rows of terrain, made on the device without memory for anything else."""
    import cupy

    out = cupy.empty((count, MEMORY_SIZE), "float32")
    return terrain_kernel()(np.int32(first), np.int32(MEMORY_SIZE), out)


def terrain_block(block_info: Any = None) -> Any:
    (first, last), _ = block_info[None]["array-location"]
    return terrain(first, last - first)


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """One write of terrain made on the device: whose writer, streamed or eager, GeoTIFF or COG."""
    import cupy

    who, how, *rest = args.name.split("-")
    cog, size = "cog" in rest, MEMORY_SIZE

    def array(height: int) -> Any:
        if how == "eager":
            return terrain(0, height)
        import dask.array

        chunks = ((MEMORY_ROWS,) * (height // MEMORY_ROWS), (size,))
        # With a given name dask need not pickle the function to make one.
        words = {"name": f"terrain-{height}", "dtype": "float32", "meta": cupy.empty((0, 0), "float32")}
        return dask.array.map_blocks(terrain_block, chunks=chunks, **words)

    out = args.dir / f"{args.name}.tif"
    options: dict[str, Any] = {"compression": "zstd", "tile_size": 512, "predictor": 3, "cog": cog}
    report: dict[str, Any] = {}
    if who == "swath":
        import swath

        if how == "streamed":
            options |= LIMITS

        def write(data: Any) -> None:
            with matrix.Recorder.listening():
                swath.to_geotiff(data, str(out), **options)
            report.update(matrix.Recorder.report)
    else:
        xarray, to_geotiff = xrspatial()

        def write(data: Any) -> None:
            to_geotiff(xarray.DataArray(data, dims=("y", "x")), str(out), gpu=True, **options)

    device, pool = cupy.cuda.Device(), cupy.get_default_memory_pool()
    terrain(0, 1)
    device.synchronize()
    cold = int(cupy.cuda.runtime.memGetInfo()[0])
    answer: dict[str, Any] = {"name": args.name, "pixels_bytes": size * size * 4}
    with Watch(cupy) as first:
        # A small write compiles and loads the kernels; the second figure leaves it out.
        write(array(2 * MEMORY_ROWS))
        device.synchronize()
        gc.collect()
        pool.free_all_blocks()
        warm = int(cupy.cuda.runtime.memGetInfo()[0])
        data = array(size)
        with Watch(cupy) as second:
            started = time.perf_counter()
            write(data)
            device.synchronize()
            answer["seconds"] = time.perf_counter() - started
    answer |= {"peak_bytes": warm - second.least, "peak_from_cold": cold - first.least, "looks": second.looks}
    if how == "eager":
        # The caller's own array was there before the watch began.
        answer["array_bytes"] = data.nbytes
    answer |= {"pool_bytes": pool.total_bytes(), "file_bytes": out.stat().st_size}
    answer["report_peak_bytes"] = report.get("peak_bytes")
    answer["sha256"] = hashlib.sha256(out.read_bytes()).hexdigest()
    out.unlink()
    return answer


def xrspatial() -> tuple[Any, Any]:
    """xarray, and xrspatial's writer without its other tools, which import packages that are missing here."""
    import importlib.machinery
    import types

    # numpy 2.5 has it no longer.
    if not hasattr(np, "row_stack"):
        np.row_stack = np.vstack  # type: ignore[attr-defined]
    folder = next((Path(each) / "xrspatial" for each in sys.path if (Path(each) / "xrspatial").is_dir()), None)
    if folder is None:
        raise LeftOutError("no xrspatial here")
    package = types.ModuleType("xrspatial")
    package.__path__ = [str(folder)]
    package.__spec__ = importlib.machinery.ModuleSpec("xrspatial", None, is_package=True)
    sys.modules["xrspatial"] = package
    import xarray
    from xrspatial.geotiff import to_geotiff

    return xarray, to_geotiff


def measured(run: Run, name: str) -> dict[str, Any]:
    """Returns the result of `measure`, which runs in a process of its own."""
    command = [sys.executable, str(Path(__file__).resolve()), "measure", name, "--dir", str(run.folder)]
    command += ["--rivals", str(run.args.rivals)] if run.args.rivals else []
    environment = dict(os.environ)
    if name.startswith("xrspatial") and run.args.rivals:
        # xarray-spatial opens nvCOMP under a name that the wheel does not have.
        library = next(iter(sorted(run.args.rivals.rglob("libnvcomp.so.5*"))), None)
        if library is not None:
            links = run.folder / "links"
            links.mkdir(exist_ok=True)
            link = links / "libnvcomp.so"
            if not link.exists():
                link.symlink_to(library)
            paths = [str(links), str(library.parent), environment.get("LD_LIBRARY_PATH", "")]
            environment["LD_LIBRARY_PATH"] = ":".join(filter(None, paths))
    try:
        found = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=45, check=False)
    except subprocess.TimeoutExpired:
        return {"name": name, "error": "took more than 45 seconds"}
    if found.returncode:
        print(found.stderr[-3000:], file=sys.stderr)
        return {"name": name, "error": (found.stderr.strip().splitlines() or ["no reason given"])[-1][-300:]}
    return json.loads(found.stdout.strip().splitlines()[-1])


@check("memory")
def capped(run: Run) -> None:
    """A streamed raster takes no more device memory than its limits allow, and gives the eager bytes."""
    run.need("cupy", "dask")
    found = run.figures
    for name in MEASURED:
        found[name] = measured(run, f"swath-{name}")
    for name, answer in found.items():
        run.true("error" not in answer, f"{name}: {answer.get('error')}")
    default = 2 * run.cupy.cuda.runtime.memGetInfo()[1] / DEFAULT_PARTS
    for name, goal in (PEAK_GOALS | {"default": default, "default-cog": default}).items():
        streamed, eager = found[name], found["eager-cog" if name.endswith("cog") else "eager"]
        run.true(streamed["sha256"] == eager["sha256"], f"{name}: not the eager file")
        run.true(streamed["peak_bytes"] < goal, f"{name}: {streamed['peak_bytes'] / 1e6:.0f} MB")


@check("wide")
def wide(run: Run) -> None:
    """Rasters of very many columns in chunks on the GPU are written by default, and give the eager bytes."""
    run.need("cupy", "dask")
    import dask.array

    cupy = run.cupy
    for rows, columns, dtype, chunk in ((1024, 131_072, "float32", 8192), (512, 4_000_000, "uint8", 65_536)):
        y, x = cupy.arange(rows, dtype="float32")[:, None], cupy.arange(columns, dtype="float32")[None, :]
        data = (cupy.sin(x / 97) * 60 + y / 9 + 70).astype(dtype)
        del y, x
        lazy = dask.array.from_array(data, chunks=(512, chunk), asarray=False)
        files = [run.folder / f"wide-{name}.tif" for name in ("lazy", "eager")]
        for array, path in zip((lazy, data), files):
            with matrix.Recorder.listening(), warnings.catch_warnings():
                warnings.simplefilter("error", run.swath.SwathWarning)
                started = time.perf_counter()
                run.swath.to_geotiff(array, str(path), cog=True, compression="deflate")
                seconds = time.perf_counter() - started
            report = matrix.Recorder.report
            run.true(report["device_tiles"] and not report["host_tiles"], f"{path.name}: {report}")
            run.figures[f"{columns} {path.stem}"] = {"seconds": round(seconds, 2), "peak_bytes": report["peak_bytes"]}
        del lazy, data
        cupy.get_default_memory_pool().free_all_blocks()
        run.true(files[0].read_bytes() == files[1].read_bytes(), f"{columns} columns: not the eager file")
        for path in files:
            path.unlink()


@check("memory")
def rival_memory(run: Run) -> None:
    """Device memory that xrspatial takes for the same write."""
    run.need("cupy", "dask")
    if run.args.rivals is None or not (run.args.rivals / "xrspatial").is_dir():
        raise LeftOutError("no xrspatial here")
    for name in ("streamed", "streamed-cog", "eager", "eager-cog"):
        run.figures[name] = measured(run, f"xrspatial-{name}")


# ----------------------------------------------------------------------------------------------------------- libraries


@check("libraries", small=True)
def devices(run: Run) -> None:
    """`describe_devices` names the device and its driver and calls the device usable."""
    found = run.swath.devices()
    run.true(found["driver"]["found"] and found["devices"] and found["devices"][0]["usable"], str(found)[:300])
    run.figures |= {"device": found["devices"][0]["name"]}
    run.figures |= {"libraries": {each["name"]: each["found"] for each in found["libraries"]}}


@check("libraries")
def wheels(run: Run) -> None:
    """NVIDIA's libraries are found where pip puts its wheels, beside the package and without LD_LIBRARY_PATH."""
    if run.args.lib is None:
        raise LeftOutError("no --lib")
    # Where each of NVIDIA's wheels has its library.
    places = {
        "libnvcomp.so.6": "libnvcomp/lib64", "libnvjpeg2k.so.0": "nvjpeg2k/lib", "libnvjpeg.so.13": "cu13/lib",
        "libcufile.so.0": "cu13/lib",
    }  # fmt: skip
    site = run.folder / "site"
    (site / "nvidia").mkdir(parents=True, exist_ok=True)
    # The layout of some wheels; it also hides the packages of the machine's own Python.
    (site / "nvidia" / "__init__.py").touch()
    there = {name: place for name, place in places.items() if (run.args.lib / name).exists()}
    for name, place in there.items():
        folder = site / "nvidia" / place
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / name).exists():
            (folder / name).symlink_to(run.args.lib / name)
    path = os.pathsep.join([str(site), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
    code = "import json, swath; print(json.dumps(swath.devices()['libraries']))"
    found = outside(code, {"PYTHONPATH": path, "LD_LIBRARY_PATH": ""})
    listed = run.figures
    listed |= {each["name"]: each.get("path") or each.get("reason") for each in found}
    missing = [name for name in there if not any(str(listed_path).endswith(name) for listed_path in listed.values())]
    run.true(bool(there) and not missing, f"not found: {missing}: {listed}")


# -------------------------------------------------------------------------------------------------------------- figures


def best(times: int, work: Callable[[], Any], before: Callable[[], Any] | None = None) -> dict[str, float]:
    """Seconds of the best and the median call after one that is not counted."""
    work()
    seconds = []
    for _ in range(times):
        if before is not None:
            before()
        started = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - started)
    return {"best": min(seconds), "median": statistics.median(seconds)}


@check("bench")
def speed(run: Run) -> None:
    """Chips a second to the device, and whole rasters, against the CPU with a copy and against rasterio."""
    run.need("cupy")
    array = make(run.cupy, "s2", run.args.size)
    for codec in ("deflate", "zstd"):
        path = str(run.folder / f"bench-{codec}.tif")
        run.swath.to_geotiff(array, path, compression=codec, cog=True, device="cpu")
        run.cupy.get_default_memory_pool().free_all_blocks()
        sizes = {"file_bytes": Path(path).stat().st_size, "pixels_bytes": array.nbytes}
        run.figures[codec] = sizes | chips_a_second(run, path, array) | whole_rasters(run, path, array, codec)
        Path(path).unlink()


def chips_a_second(run: Run, path: str, array: np.ndarray) -> dict[str, Any]:
    """Chips of 256 x 256 in batches of 256, on a grid and anywhere, by the GPU, and by others with a copy after it."""
    side, batch, found = 256, 256, {}
    cupy, dataset, rasterio = run.cupy, run.swath.Dataset(path), module("rasterio")
    corners = np.random.default_rng(0).integers(0, run.args.size - side + 1, (4096, 2)).tolist()
    anywhere = [run.swath.Window(x, y, side, side) for x, y in corners]
    for order, chosen in (("grid", dataset.chips(side).windows), ("random", anywhere)):

        def consume(place: str, chosen: list[Any] = chosen) -> None:
            for chips, _ in dataset.chips(side, batch=batch, windows=chosen, device=place):
                cupy.asarray(chips if place == "cuda" else np.asarray(chips))
            cupy.cuda.Device().synchronize()

        wanted = np.stack([array[None, w.y : w.y + side, w.x : w.x + side] for w in chosen[:batch]])
        run.same(dataset.read_windows(chosen[:batch], device="cuda"), wanted, order)
        ways: dict[str, tuple[int, Callable[[], Any]]] = {
            "cuda": (len(chosen), functools.partial(consume, "cuda")),
            "cpu and copy": (len(chosen), functools.partial(consume, "cpu")),
        }
        if rasterio is not None:
            ways["rasterio and copy"] = (1024, functools.partial(rasterio_chips, cupy, path, chosen[:1024], batch))
        for name, (count, work) in ways.items():
            seconds = best(3 if "rasterio" not in name else 1, work)
            found[f"chips, {order}, {name}"] = {key: count / value for key, value in seconds.items()}
    return found


def whole_rasters(run: Run, path: str, array: np.ndarray, codec: str) -> dict[str, Any]:
    """GB/s of pixels, from file to device and back."""
    cupy, found = run.cupy, {}
    ways: dict[str, Callable[[], Any]] = {
        "read": lambda: run.swath.read(path, device="cuda"),
        "read, cpu and copy": lambda: cupy.asarray(np.asarray(run.swath.read(path))),
    }
    if module("xarray") is not None:
        ways["open_geotiff"] = lambda: run.swath.open_geotiff(path, device="cuda")
    run.same(run.swath.read(path, 1, device="cuda"), array, "the whole raster")
    on, out = cupy.asarray(array), run.folder / "bench-out.tif"

    for name, cog in (("write", False), ("write COG", True)):
        ways[name] = functools.partial(run.swath.to_geotiff, on, str(out), compression=codec, cog=cog)
    for name, work in ways.items():

        def waited(work: Callable[[], Any] = work) -> None:
            work()
            cupy.cuda.Device().synchronize()

        # The kernel takes a while to remove the previous file, which is not part of writing.
        seconds = best(5 if name.startswith("read") else 3, waited, lambda: out.unlink(missing_ok=True))
        found[name] = {key: array.nbytes / value / 1e9 for key, value in seconds.items()}
    out.unlink()
    return found


def rasterio_chips(cupy: Any, path: str, places: list[Any], batch: int) -> None:
    """Windows by rasterio, a dataset for each thread, stacked and copied to the device."""
    import rasterio
    from rasterio.windows import Window

    own = threading.local()

    def read(place: Any) -> np.ndarray:
        if not hasattr(own, "dataset"):
            own.dataset = rasterio.open(path)
        return own.dataset.read(window=Window(*place))

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for first in range(0, len(places), batch):
            cupy.asarray(np.stack(list(pool.map(read, places[first : first + batch]))))
    cupy.cuda.Device().synchronize()


# ----------------------------------------------------------------------------------------------------------------- main


def check_all(args: argparse.Namespace) -> int:
    run = Run(args)
    groups = args.only.split(",") if args.only else None
    facts = {"swath": run.swath.__version__, "python": sys.version.split()[0]}
    facts |= {name: getattr(module(name), "__version__", None) for name in ("numpy", "cupy", "torch", "xarray", "dask")}
    results: list[dict[str, Any]] = []
    document = {"ok": True, "facts": facts, "size": args.size, "checks": results}
    for group, name, small, function in CHECKS:
        if (groups and group not in groups) or (args.small and not small):
            continue
        entry: dict[str, Any] = {"group": group, "name": name, "ok": True}
        run.cases, run.figures, started, outcome = 0, {}, time.time(), "ok"
        try:
            if args.deadline and started > args.deadline:
                raise LeftOutError("no time left")
            function(run)
        except LeftOutError as reason:
            entry["left_out"], outcome = str(reason), f"left out: {reason}"
        except Exception as error:
            if not isinstance(error, WrongError):
                traceback.print_exc()
            entry |= {"ok": False, "error": f"{type(error).__name__}: {error}"[:600]}
            document["ok"], outcome = False, f"FAILED {entry['error']}"
        entry |= {"cases": run.cases, "seconds": round(time.time() - started, 2), "figures": run.figures}
        results.append(entry)
        print(f"{group}: {name} ({entry['cases']} cases, {entry['seconds']} s): {outcome}", flush=True)
        # Written after each check, so that a check that hangs does not lose earlier results.
        args.out.write_text(json.dumps(document, indent=1) + "\n")
    print(f"{len(results)} checks, {sum(not entry['ok'] for entry in results)} failed")
    return 0 if document["ok"] else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("do", choices=("check", "measure"))
    parser.add_argument("name", nargs="?")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--dir", type=Path, default=Path("/dev/shm/swath-python"))
    parser.add_argument("--only")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--fake", action="store_true")
    parser.add_argument("--rivals", type=Path)
    parser.add_argument("--lib", type=Path)
    parser.add_argument("--size", type=int, default=16384)
    parser.add_argument("--deadline", type=float)
    args = parser.parse_args()
    if args.rivals is not None:
        sys.path.append(str(args.rivals))
    args.dir.mkdir(parents=True, exist_ok=True)
    if args.do == "measure":
        print(json.dumps(measure(args)))
        return 0
    return check_all(args)


if __name__ == "__main__":
    sys.exit(main())
