#!/usr/bin/env python3
"""Times swath's Python package against rioxarray, rasterio, xarray-spatial, async-geotiff and odc-geo, side by side.

Every engine gets the same file or array in the same round, in turn, so that other load on the machine affects all
alike; files are in the page cache. The first round warms up and is not timed: its results are compared, and an engine
that gives other pixels is dropped. Engines are configured as their users can configure them: GDAL has all cores where a
name has `all`, and one where it has `1`. Chips come from a handle that is reopened in each round, with the default
block cache of each engine.

Lazy rasters are written in processes of their own, whose largest memory is theirs alone; imports and a small write
before are not timed.

    python bench/python.py [--quick] [--rounds N] [--only TEXT] [--rivals TEXT]

writes tables to standard output and bench/out/python.{md,json}. Goals are reported, never asserted.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import json
import os
import random
import statistics
import subprocess
import sys
import time
import warnings
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache, lru_cache, partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

# Rivals, and run.py with them, are imported where they are used: one that is not installed is left out, and a process
# that measures the memory of one engine holds no other.

HERE = Path(__file__).resolve().parent
DATA, OUT = HERE / "data", HERE / "out"
THREADS = os.cpu_count() or 1
CRS = 32633
TRANSFORM = (10.0, 0.0, 4e5, 0.0, -10.0, 52e5)
SIZES = {
    "quick": {"cog": 2048, "array": 1024, "lazy": 8192, "opens": 10, "chips": 200},
    "default": {"cog": 8192, "array": 4096, "lazy": 16384, "opens": 50, "chips": 1000},
}
# GDAL's defaults; given to all engines, so that all do the same work.
LEVELS = {"zstd": 9, "deflate": 6}
PREDICTOR = {"s2": 2, "dem": 3}
CHIP, BATCH = 256, 32
# Many more than the grids whose coordinates an engine may cache.
GRIDS = 64
# An engine that takes longer for a round is timed once.
SLOW_MS = 8e3
LAZY_CHUNKS = (1024, 4096)
LAZY_BUDGET = 128 << 20

Box = tuple[int, int, int, int]


class Declined(Exception):  # noqa: N818 - not a fault: an engine that does not do this
    """The engine does not do this."""


@dataclass
class Timing:
    """One timed call: milliseconds, and the digest of its result if requested."""

    ms: float
    digest: Any = None


# A call that is timed; True requests the digest of its result.
Call = Callable[[bool], Timing]


@dataclass
class Row:
    """One line of the report: an engine's best and median milliseconds, and whether its results were equal."""

    section: str
    name: str
    best: dict[str, float] = field(default_factory=dict)
    median: dict[str, float] = field(default_factory=dict)
    checks: dict[str, str] = field(default_factory=dict)
    # Bytes of the files written, and the most memory held, where that is measured.
    size: dict[str, int] = field(default_factory=dict)
    peak: dict[str, int] = field(default_factory=dict)


def measure(row: Row, calls: dict[str, Call], rounds: int, wanted: Any = None) -> Row:
    """Rounds of every engine in turn. The first is a warm-up, whose results are compared with the expected ones, or
    with those of the first engine."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(rounds + 1):
        for name, call in calls.items():
            if row.checks.get(name, "equal") != "equal" or max(times[name], default=0) > SLOW_MS:
                continue
            try:
                timing = call(turn == 0)
            except Declined:
                row.checks[name] = "-"
                continue
            except ImportError as fault:
                if name.startswith("swath"):
                    raise
                row.checks[name] = f"absent: {fault.name}"
                continue
            except Exception as fault:
                if name.startswith("swath"):
                    raise
                row.checks[name] = f"refuses: {(str(fault) or type(fault).__name__).splitlines()[0][:60]}"
                continue
            if turn:
                times[name].append(timing.ms)
                continue
            wanted = timing.digest if wanted is None else wanted
            # An engine with a wrong result is dropped.
            row.checks[name] = "equal" if timing.digest == wanted else "DIFFERENT"
    for name, found in times.items():
        if found and row.checks[name] == "equal":
            row.best[name] = min(found)
            row.median[name] = statistics.median(found)
    print(f"{row.section}, {row.name}: " + ", ".join(f"{n} {ms:.4g}" for n, ms in row.best.items()), file=sys.stderr)
    return row


def timed(work: Callable[[], Any], digest: Callable[[Any], Any], check: bool) -> Timing:
    started = time.perf_counter()
    result = work()
    ms = (time.perf_counter() - started) * 1e3
    return Timing(ms, digest(result) if check else None)


def checksum(pixels: Any, crc: int = 0) -> int:
    return zlib.crc32(np.ascontiguousarray(pixels), crc)


# ---------------------------------------------------------------------------------------------------------------- data


def profile(values: np.ndarray) -> dict[str, Any]:
    from rasterio.transform import Affine

    bands, height, width = values.shape
    return {
        "dtype": str(values.dtype), "count": bands, "height": height, "width": width, "crs": CRS,
        "transform": Affine(*TRANSFORM), "NUM_THREADS": "ALL_CPUS",
        **({"nodata": -9999} if values.dtype == "float32" else {}),
    }  # fmt: skip


@lru_cache(maxsize=1)
def pixels(kind: str, size: int) -> np.ndarray:
    from run import KINDS

    print(f"making {kind}", file=sys.stderr)
    return KINDS[kind](size)


@cache
def make_cog(kind: str, codec: str, size: int) -> Path:
    """A COG by GDAL, written once and kept: reflectance of four bands or terrain of one; tiles of 512."""
    import rasterio

    DATA.mkdir(parents=True, exist_ok=True)
    path = DATA / f"python-{kind}-{codec}-{size}.tif"
    if not path.exists():
        values = pixels(kind, size)
        unfinished = path.with_suffix(".part")
        options = {"driver": "COG", "compress": codec, "predictor": "YES", "blocksize": 512}
        with rasterio.open(unfinished, "w", **profile(values), **options) as out:
            out.write(values)
        unfinished.rename(path)
    path.read_bytes()
    return path


def make_grids() -> list[Path]:
    """Small COGs, each on a grid of its own."""
    import rasterio
    from rasterio.transform import Affine

    folder = DATA / "python-grids"
    files = [folder / f"{number}.tif" for number in range(GRIDS)]
    if not files[-1].exists():
        folder.mkdir(parents=True, exist_ok=True)
        values = pixels("s2", 512)
        for number, path in enumerate(files):
            options = {**profile(values), "transform": Affine(10, 0, 4e5 + 37 * number, 0, -10, 52e5 - 41 * number)}
            with rasterio.open(path, "w", driver="COG", compress="deflate", predictor="YES", **options) as out:
                out.write(values)
    return files


def as_data_array(kind: str, size: int) -> Any:
    import xarray

    return labelled(pixels(kind, size), ("band", "y", "x"), -9999.0 if kind == "dem" else None, xarray)


def labelled(values: Any, dims: tuple[str, ...], nodata: float | None, xarray: Any) -> Any:
    """A DataArray with georeferencing that every engine understands."""
    height, width = values.shape[-2:]
    a, _, c, _, e, f = TRANSFORM
    coordinates: dict[str, Any] = {"y": f + e * (np.arange(height) + 0.5), "x": c + a * (np.arange(width) + 0.5)}
    if "band" in dims:
        coordinates["band"] = np.arange(1, len(values) + 1)
    array = xarray.DataArray(values, coordinates, dims, attrs={"crs": CRS})
    if nodata is not None:
        array.attrs["nodata"] = array.attrs["_FillValue"] = nodata
    return array


# ---------------------------------------------------------------------------------------------------------------- open


def of_array(array: Any) -> Any:
    """The properties that users read first; reading them is part of opening, since engines may delay them."""
    found = array.coords.variables
    _ = array.attrs.get("_FillValue", array.attrs.get("nodata"))
    _ = found["spatial_ref"].attrs["crs_wkt"] if "spatial_ref" in found else array.attrs["crs_wkt"]
    x, y = found["x"].values, found["y"].values
    return (len(y), len(x)), str(array.dtype), float(x[0]), float(y[-1])


def of_transform(shape: tuple[int, int], dtype: str, transform: Any) -> Any:
    a, _, c, _, e, f = tuple(transform)[:6]
    height, width = shape
    return (height, width), dtype, c + a / 2, f + e * (height - 0.5)


def open_swath_dataset(path: Path) -> Any:
    import swath

    dataset = swath.Dataset(path)
    found = dataset.metadata()
    _ = (found["crs"]["wkt"], found["bands"][0]["nodata"], found["tags"])
    return of_transform(dataset.shape[1:], dataset.dtype, found["transform"])


def open_swath_engine(path: Path) -> Any:
    import xarray
    from swath.xarray_backend import SwathBackendEntrypoint

    # The class that `engine="swath"` stands for: here it need not be installed.
    with xarray.open_dataarray(path, engine=SwathBackendEntrypoint, mask_and_scale=False) as array:
        return of_array(array)


def open_swath_dask(path: Path) -> Any:
    import swath

    return of_array(swath.open_geotiff(path, chunks={}))


def open_rasterio(path: Path) -> Any:
    import rasterio

    with rasterio.open(path) as dataset:
        _ = (dataset.crs.wkt, dataset.nodata, dataset.tags())
        return of_transform(dataset.shape, dataset.dtypes[0], dataset.transform)


def open_rioxarray(path: Path, **options: Any) -> Any:
    import rioxarray

    with rioxarray.open_rasterio(path, **options) as array:
        return of_array(array)


def open_rioxarray_engine(path: Path) -> Any:
    import xarray

    with xarray.open_dataarray(path, engine="rasterio", mask_and_scale=False) as array:
        return of_array(array)


def open_xrspatial(path: Path) -> Any:
    from xrspatial.geotiff import open_geotiff

    return of_array(open_geotiff(str(path), chunks=512))


OPENERS: dict[str, Callable[[Path], Any]] = {
    "swath Dataset": open_swath_dataset,
    "swath engine": open_swath_engine,
    "swath dask": open_swath_dask,
    "rasterio": open_rasterio,
    "rioxarray": open_rioxarray,
    "rioxarray dask": partial(open_rioxarray, chunks={}),
    "rioxarray engine": open_rioxarray_engine,
    "xrspatial dask": open_xrspatial,
}


def opening(name: str, paths: list[Path], args: Any) -> Row:
    def call(opener: Callable[[Path], Any], check: bool) -> Timing:
        timing = timed(lambda: [opener(path) for path in paths], lambda found: found, check)
        return Timing(timing.ms / len(paths), timing.digest)

    return measure(Row("open", name), {n: partial(call, o) for n, o in chosen(OPENERS, args).items()}, args.rounds)


# --------------------------------------------------------------------------------------------------------------- chips


def chips_swath(path: Path, boxes: list[Box], threads: int | None = None) -> Iterator[np.ndarray]:
    import swath

    dataset = swath.Dataset(path, threads=threads)
    for box in boxes:
        yield np.asarray(dataset.read(window=swath.Window(*box)))


def chips_swath_batches(path: Path, boxes: list[Box]) -> Iterator[np.ndarray]:
    import swath

    windows = [swath.Window(*box) for box in boxes]
    for batch, _ in swath.Dataset(path).chips(CHIP, batch=BATCH, windows=windows):
        yield from np.asarray(batch)


def chips_swath_engine(path: Path, boxes: list[Box]) -> Iterator[np.ndarray]:
    import xarray
    from swath.xarray_backend import SwathBackendEntrypoint

    with xarray.open_dataarray(path, engine=SwathBackendEntrypoint, mask_and_scale=False) as array:
        for x, y, w, h in boxes:
            yield array.isel(y=slice(y, y + h), x=slice(x, x + w)).load().values


def chips_rasterio(path: Path, boxes: list[Box], **options: Any) -> Iterator[np.ndarray]:
    import rasterio
    from rasterio.windows import Window

    with rasterio.open(path, **options) as dataset:
        for box in boxes:
            yield dataset.read(window=Window(*box))


def chips_rioxarray(path: Path, boxes: list[Box], **options: Any) -> Iterator[np.ndarray]:
    import rioxarray

    with rioxarray.open_rasterio(path, **options) as array:
        for x, y, w, h in boxes:
            yield array.isel(y=slice(y, y + h), x=slice(x, x + w)).load().values


def chips_xrspatial(path: Path, boxes: list[Box]) -> Iterator[np.ndarray]:
    from xrspatial.geotiff import open_geotiff

    for x, y, w, h in boxes:
        yield bands_first(open_geotiff(str(path), window=(y, x, y + h, x + w)))


def chips_async_geotiff(path: Path, boxes: list[Box]) -> Iterator[np.ndarray]:
    from async_geotiff import GeoTIFF, Window
    from obstore.store import LocalStore

    async def batch(geotiff: Any, part: list[Box]) -> list[Any]:
        windows = [Window(col_off=x, row_off=y, width=w, height=h) for x, y, w, h in part]
        return await asyncio.gather(*(geotiff.read(window=window) for window in windows))

    with asyncio.Runner() as runner:
        geotiff = runner.run(GeoTIFF.open(path.name, store=LocalStore(str(path.parent))))
        for start in range(0, len(boxes), BATCH):
            yield from (found.data for found in runner.run(batch(geotiff, boxes[start : start + BATCH])))


ALL: dict[str, Any] = {"NUM_THREADS": "ALL_CPUS"}
CHIPPERS: dict[str, Callable[[Path, list[Box]], Iterator[np.ndarray]]] = {
    "swath read": chips_swath,
    "swath chips": chips_swath_batches,
    "swath engine": chips_swath_engine,
    "swath read 1": partial(chips_swath, threads=1),
    "rasterio all": partial(chips_rasterio, **ALL),
    "rasterio 1": chips_rasterio,
    "rioxarray all": partial(chips_rioxarray, **ALL),
    "rioxarray 1": chips_rioxarray,
    "xrspatial": chips_xrspatial,
    "async-geotiff": chips_async_geotiff,
}


def bands_first(array: Any) -> np.ndarray:
    """xrspatial has bands last, and no band axis for one band."""
    pixels = array.values
    return pixels[None] if pixels.ndim == 2 else np.moveaxis(pixels, -1, 0)


def chipping(name: str, path: Path, args: Any) -> Row:
    rng = random.Random(7)
    size = SIZES[args.preset]["cog"] - CHIP
    boxes = [(rng.randrange(size), rng.randrange(size), CHIP, CHIP) for _ in range(SIZES[args.preset]["chips"])]

    def call(chipper: Callable[[Path, list[Box]], Iterator[np.ndarray]], check: bool) -> Timing:
        # Each chip is dropped when the next arrives, as in training.
        crc = 0
        started = time.perf_counter()
        for chip in chipper(path, boxes):
            crc = checksum(chip, crc) if check else 0
        return Timing((time.perf_counter() - started) * 1e3, crc)

    return measure(Row("chips", name), {n: partial(call, c) for n, c in chosen(CHIPPERS, args).items()}, args.rounds)


# --------------------------------------------------------------------------------------------------------- whole reads


def whole_swath(path: Path, masked: bool) -> np.ndarray:
    import swath

    return swath.open_geotiff(path, masked=masked).values


def whole_rioxarray(path: Path, masked: bool, **options: Any) -> np.ndarray:
    import rioxarray

    with rioxarray.open_rasterio(path, masked=masked, **options) as array:
        return array.load().values


def whole_xrspatial(path: Path, masked: bool) -> np.ndarray:
    from xrspatial.geotiff import open_geotiff

    return bands_first(open_geotiff(str(path), masked=masked))


def whole_async_geotiff(path: Path, masked: bool) -> np.ndarray:
    from async_geotiff import GeoTIFF
    from obstore.store import LocalStore

    if masked:
        raise Declined

    async def work() -> np.ndarray:
        geotiff = await GeoTIFF.open(path.name, store=LocalStore(str(path.parent)))
        return (await geotiff.read()).data

    return asyncio.run(work())


WHOLE: dict[str, Callable[[Path, bool], np.ndarray]] = {
    "swath": whole_swath,
    "rioxarray all": partial(whole_rioxarray, **ALL),
    "rioxarray 1": whole_rioxarray,
    "xrspatial": whole_xrspatial,
    "async-geotiff": whole_async_geotiff,
}


def reading(name: str, path: Path, masked: bool, args: Any) -> Row:
    def call(reader: Callable[[Path, bool], np.ndarray], check: bool) -> Timing:
        return timed(lambda: reader(path, masked), lambda pixels: (str(pixels.dtype), checksum(pixels)), check)

    return measure(Row("whole", name), {n: partial(call, r) for n, r in chosen(WHOLE, args).items()}, args.rounds)


# ----------------------------------------------------------------------------------------------------------- dask read


def mean_swath(path: Path) -> float:
    import swath

    return float(swath.open_geotiff(path, chunks=2048).mean().compute())


def mean_rioxarray(path: Path, **options: Any) -> float:
    import rioxarray

    with rioxarray.open_rasterio(path, chunks={"band": -1, "y": 2048, "x": 2048}, **options) as array:
        return float(array.mean().compute())


def mean_xrspatial(path: Path) -> float:
    from xrspatial.geotiff import open_geotiff

    return float(open_geotiff(str(path), chunks=2048).mean().compute())


MEANS: dict[str, Callable[[Path], float]] = {
    "swath": mean_swath,
    "rioxarray": mean_rioxarray,
    "rioxarray no lock": partial(mean_rioxarray, lock=False),
    "rioxarray no lock all": partial(mean_rioxarray, lock=False, **ALL),
    "xrspatial": mean_xrspatial,
}


def averaging(name: str, path: Path, args: Any) -> Row:
    def call(reader: Callable[[Path], float], check: bool) -> Timing:
        # Sums in another order round differently.
        return timed(lambda: reader(path), lambda mean: f"{mean:.5g}", check)

    return measure(Row("dask mean", name), {n: partial(call, m) for n, m in chosen(MEANS, args).items()}, args.rounds)


# -------------------------------------------------------------------------------------------------------- eager writes


@dataclass
class Job:
    """An array to write, and its options."""

    kind: str
    codec: str
    cog: bool

    @property
    def name(self) -> str:
        return f"{self.kind}-{self.codec}-{'cog' if self.cog else 'tiled'}"


def write_swath(array: Any, path: Path, job: Job, **options: Any) -> None:
    import swath

    swath.to_geotiff(
        array, path, compression=job.codec, compression_level=LEVELS[job.codec], predictor=PREDICTOR[job.kind],
        tile_size=512, cog=job.cog, overview_resampling="average", **options,
    )  # fmt: skip


def gdal_options(job: Job) -> dict[str, Any]:
    level = {"zstd": "ZSTD_LEVEL", "deflate": "ZLEVEL"}[job.codec]
    if job.cog:
        return {
            "driver": "COG", "compress": job.codec, "predictor": "YES", "LEVEL": LEVELS[job.codec], "blocksize": 512,
            "overview_resampling": "average", **ALL,
        }  # fmt: skip
    return {
        "driver": "GTiff", "compress": job.codec, "predictor": PREDICTOR[job.kind], level: LEVELS[job.codec],
        "tiled": True, "blockxsize": 512, "blockysize": 512, "interleave": "pixel", **ALL,
    }  # fmt: skip


def write_rioxarray(array: Any, path: Path, job: Job, **options: Any) -> None:
    import rioxarray  # noqa: F401 - registers the accessor

    array.rio.write_crs(CRS).rio.to_raster(path, **gdal_options(job), **options)


def write_xrspatial(array: Any, path: Path, job: Job) -> None:
    from xrspatial.geotiff import to_geotiff

    to_geotiff(
        array, str(path), compression=job.codec, compression_level=LEVELS[job.codec], predictor=PREDICTOR[job.kind],
        tile_size=512, cog=job.cog, overview_resampling="mean",
    )  # fmt: skip


WRITERS: dict[str, Callable[[Any, Path, Job], None]] = {
    "swath": write_swath,
    "rioxarray": write_rioxarray,
    "xrspatial": write_xrspatial,
}


def writing(job: Job, args: Any) -> Row:
    import rasterio

    array = as_data_array(job.kind, SIZES[args.preset]["array"])
    wanted = checksum(array.values)
    row = Row("write", job.name)

    def call(name: str, writer: Callable[[Any, Path, Job], None], check: bool) -> Timing:
        path = OUT / f"python-{name}.tif"
        path.unlink(missing_ok=True)

        def digest(_: None) -> int:
            row.size[name] = path.stat().st_size
            with rasterio.open(path) as found:
                return checksum(found.read())

        timing = timed(lambda: writer(array, path, job), digest, check)
        path.unlink()
        return timing

    return measure(row, {n: partial(call, n, w) for n, w in chosen(WRITERS, args).items()}, args.rounds, wanted)


# --------------------------------------------------------------------------------------------------------- lazy writes


def lazy_rows(first: int, rows: int, width: int, texture: np.ndarray, column: int = 0) -> np.ndarray:
    """Pixels that are cheap to make and compress as badly as reflectance: a texture, shifted and raised by position."""
    out = np.empty((rows, width), "uint16")
    tall, wide = texture.shape
    for y in range(0, rows, tall):
        for x in range(0, width, wide):
            lift = np.uint16((first + y) // tall * 31 + (column + x) // wide * 17)
            part = out[y : y + tall, x : x + wide]
            np.add(texture[: part.shape[0], : part.shape[1]], lift, out=part)
    return out


def lazy_array(side: int, texture: np.ndarray) -> Any:
    """A raster of one band that dask makes chunk by chunk."""
    import dask.array

    def block(block_info: Any = None) -> np.ndarray:
        (first, last), (left, right) = block_info[None]["array-location"]
        return lazy_rows(first, last - first, right - left, texture, left)

    rows, columns = (min(size, side) for size in LAZY_CHUNKS)
    sizes = tuple((step,) * (side // step) for step in (rows, columns))
    return dask.array.map_blocks(block, chunks=sizes, dtype="uint16")


def lazy_swath(array: Any, path: Path, job: Job) -> None:
    write_swath(array, path, job, max_memory=LAZY_BUDGET)


def lazy_odc(array: Any, path: Path, job: Job) -> None:
    import odc.geo.xr
    from odc.geo.cog import save_cog_with_dask
    from odc.geo.geobox import GeoBox
    from rasterio.transform import Affine

    image = odc.geo.xr.wrap_xr(array.data, GeoBox(array.shape, Affine(*TRANSFORM), f"EPSG:{CRS}"))
    save_cog_with_dask(
        image, path, compression=job.codec, level=LEVELS[job.codec], predictor=PREDICTOR[job.kind], blocksize=512,
        overview_resampling="average",
    ).compute()  # fmt: skip


def lazy_rioxarray_gtiff(array: Any, path: Path, job: Job) -> None:
    import threading

    write_rioxarray(array, path, Job(job.kind, job.codec, cog=False), lock=threading.Lock())


LAZY: dict[str, Callable[[Any, Path, Job], None]] = {
    "swath": lazy_swath,
    "odc-geo": lazy_odc,
    "rioxarray COG": write_rioxarray,
    "rioxarray GTiff": lazy_rioxarray_gtiff,
    "xrspatial": write_xrspatial,
}
# No overviews: shown, but not comparable with the others.
NOT_COG = ("rioxarray GTiff",)


def most_memory() -> int:
    """The peak memory of this process; getrusage would count the parent process too."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) << 10
    raise SystemExit("/proc/self/status has no VmHWM: memory is measured on Linux")


def run_task(task: dict[str, Any]) -> None:
    """One lazy write by one engine, in a process of its own."""
    warnings.filterwarnings("ignore")
    import xarray

    job = Job("s2", task["codec"], cog=True)
    path = Path(task["path"])
    texture = np.load(task["texture"])
    write = LAZY[task["engine"]]
    small = labelled(lazy_array(2048, texture), ("y", "x"), None, xarray)
    write(small, path, job)
    path.unlink()
    started = time.perf_counter()
    write(labelled(lazy_array(task["side"], texture), ("y", "x"), None, xarray), path, job)
    ms = (time.perf_counter() - started) * 1e3
    print(json.dumps({"ms": ms, "peak": most_memory()}))


def lazy_writing(codec: str, args: Any) -> Row:
    import rasterio
    from rasterio.windows import Window

    side = SIZES[args.preset]["lazy"]
    texture = pixels("s2", 1024)[0]
    saved = OUT / "python-texture.npy"
    np.save(saved, texture)
    row = Row("dask to COG", f"{side}² u16 {codec}")

    def digest(path: Path) -> bool:
        with rasterio.open(path) as found:
            same = found.shape == (side, side)
            for first in range(0, side, 1024):
                same = same and np.array_equal(
                    found.read(1, window=Window(0, first, side, 1024)), lazy_rows(first, 1024, side, texture)
                )
            return same

    def call(engine: str, check: bool) -> Timing:
        path = OUT / f"python-lazy-{engine.replace(' ', '-')}.tif"
        path.unlink(missing_ok=True)
        task = {"engine": engine, "codec": codec, "side": side, "path": str(path), "texture": str(saved)}
        done = subprocess.run(
            [sys.executable, __file__, "--task", json.dumps(task)], check=False, capture_output=True, text=True
        )
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise ImportError(last, name=last) if "ModuleNotFoundError" in last else RuntimeError(last)
        answer = json.loads(done.stdout.splitlines()[-1])
        same = digest(path) if check else None
        row.size[engine] = path.stat().st_size
        row.peak[engine] = max(row.peak.get(engine, 0), answer["peak"])
        path.unlink()
        return Timing(answer["ms"], same)

    measure(row, {n: partial(call, n) for n in chosen(LAZY, args)}, min(args.rounds, 3), wanted=True)
    saved.unlink()
    return row


# -------------------------------------------------------------------------------------------------------------- report


def chosen(engines: dict[str, Any], args: Any) -> dict[str, Any]:
    return {name: engine for name, engine in engines.items() if name.startswith("swath") or args.rivals in name}


def goals(rows: list[Row]) -> list[tuple[str, str, bool]]:
    """The goals: what, measured, met."""
    from run import geometric

    found: list[tuple[str, str, bool]] = []

    def at_least(section: str, ours: str, theirs: tuple[str, ...], goal: float) -> None:
        """swath's time against the best rival, over all rows of a section."""
        ratios = {}
        for row in rows:
            rivals = [row.best[name] for name in theirs if name in row.best]
            if row.section == section and ours in row.best and rivals:
                ratios[row.name] = min(rivals) / row.best[ours]
        if ratios:
            mean = geometric(list(ratios.values()))
            least = min(ratios, key=ratios.__getitem__)
            text = f"{section}: `{ours}` at least {goal:g} x {' or '.join(f'`{name}`' for name in theirs)}"
            found.append((text, f"{mean:.2f} x, least {ratios[least]:.2f} x ({least})", mean >= goal))

    # Like with like: a handle, xarray's engine, dask.
    for ours, theirs in (("Dataset", "rioxarray"), ("engine", "rioxarray engine"), ("dask", "rioxarray dask")):
        at_least("open", f"swath {ours}", (theirs,), 10)
    for ours in ("swath chips", "swath read"):
        at_least("chips", ours, ("rioxarray all", "rioxarray 1"), 5)
        at_least("chips", ours, ("rasterio all", "rasterio 1"), 1.5)
    at_least("chips", "swath engine", ("rioxarray all", "rioxarray 1"), 1)
    at_least("chips", "swath read 1", ("rioxarray 1",), 5)
    at_least("chips", "swath read 1", ("rasterio 1",), 1.5)
    for section, engines in (("whole", WHOLE), ("dask mean", MEANS), ("write", WRITERS)):
        at_least(section, "swath", tuple(name for name in engines if name != "swath"), 1)
    cogs = tuple(name for name in LAZY if name != "swath" and name not in NOT_COG)
    at_least("dask to COG", "swath", cogs, 2)
    for row in rows:
        if row.peak:
            rivals = {name: row.peak[name] for name in cogs if name in row.best}
            least = min(rivals, key=rivals.__getitem__, default=None)
            if least is not None:
                ours = row.peak["swath"]
                text = f"{ours >> 20} MiB, `{least}` {rivals[least] >> 20} MiB"
                found.append((f"{row.section}, {row.name}: in less memory than any", text, ours < rivals[least]))
    return found


def versions() -> dict[str, str]:
    import run

    found = run.versions()
    packages = ("swath", "xarray", "dask", "rioxarray", "xarray-spatial", "numba", "async-geotiff", "odc-geo")
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "absent"
    if found["swath"] == "absent":
        # The package may run from its build folder.
        import swath

        found["swath"] = swath.__version__
    return found


NOTES = {
    "open": "Milliseconds for one file: opened, its CRS, nodata and coordinates looked at, closed. `grids` are "
    f"{GRIDS} files, each on a grid of its own; `again` is one file opened again and again.",
    "chips": f"Milliseconds for all chips of {CHIP}², at random places, from a handle opened in that time. "
    "`swath read`, `rasterio` and `rioxarray` take one window after the other, `swath chips` and `async-geotiff` "
    f"{BATCH} at a time; xrspatial opens the file for each.",
    "whole": "Milliseconds from the name of a file to a DataArray in memory (async-geotiff: to an array).",
    "dask mean": "Milliseconds to open a file in chunks of 2048² and to compute the mean, on dask's threads.",
    "write": "Milliseconds to write a DataArray in memory. Sizes in MB in brackets.",
    "dask to COG": f"Milliseconds to make and write a raster in chunks of {LAZY_CHUNKS[0]} x {LAZY_CHUNKS[1]}, and in "
    f"brackets the most memory that the process held and the size of the file. swath has {LAZY_BUDGET >> 20} MiB; the "
    "others have no such setting. rioxarray's GTiff has no overviews and does not count.",
}


def cell(row: Row, name: str) -> str:
    if name not in row.best:
        return "-"
    ms = row.best[name]
    text = f"{ms:.3f}" if ms < 100 else f"{ms:.0f}"
    extra = [f"{row.peak[name] >> 20} MiB"] if name in row.peak else []
    extra += [f"{row.size[name] / 1e6:.1f} MB"] if name in row.size else []
    return f"{text} ({', '.join(extra)})" if extra else text


def report(rows: list[Row], verdicts: list[tuple[str, str, bool]], args: Any) -> str:
    from run import cpu

    lines = [
        "# Benchmark of the Python package", "",
        f"{datetime.date.today()}, {cpu()}, {THREADS} threads, files in the page cache, preset `{args.preset}`, "
        f"best of {args.rounds} rounds (of at most 3 where dask writes, of 1 where a round takes over "
        f"{SLOW_MS / 1e3:.0f} s).", "",
        ", ".join(f"{name} {number}" for name, number in versions().items()),
    ]  # fmt: skip
    for section, note in NOTES.items():
        part = [row for row in rows if row.section == section]
        if not part:
            continue
        names = list(dict.fromkeys(name for row in part for name in row.checks))
        lines += ["", f"## {section}", "", note, "", "| row | " + " | ".join(names) + " | checked |"]
        lines.append("| --- | " + " | ".join("---:" for _ in names) + " | --- |")
        for row in part:
            odd = "; ".join(f"{name} {text}" for name, text in row.checks.items() if text not in ("equal", "-"))
            cells = " | ".join(cell(row, name) for name in names)
            lines.append(f"| {row.name} | {cells} | {odd or 'equal'} |")
    lines += ["", "| goal | measured | |", "| --- | --- | --- |"]
    lines += [f"| {text} | {measured} | {'PASS' if met else 'FAIL'} |" for text, measured, met in verdicts]
    return "\n".join(lines) + "\n"


def plan(args: Any) -> dict[str, Callable[[], Row]]:
    """Every row by its section and name, and the function that measures it."""
    sizes = SIZES[args.preset]
    rows: dict[str, Callable[[], Row]] = {}
    cogs = {f"{kind}-{codec}": partial(make_cog, kind, codec, sizes["cog"]) for kind in PREDICTOR for codec in LEVELS}
    rows["open again"] = lambda: opening("again", [cogs["s2-deflate"]()] * sizes["opens"], args)
    rows["open grids"] = lambda: opening("grids", make_grids(), args)
    for name, cog in cogs.items():
        rows[f"chips {name}"] = lambda name=name, cog=cog: chipping(name, cog(), args)
    for name, cog in cogs.items():
        for masked in (False, True):
            text = f"{name}{' masked' if masked else ''}"
            rows[f"whole {text}"] = lambda text=text, cog=cog, masked=masked: reading(text, cog(), masked, args)
    for name, cog in cogs.items():
        rows[f"dask mean {name}"] = lambda name=name, cog=cog: averaging(name, cog(), args)
    for kind in PREDICTOR:
        for codec in LEVELS:
            for cog in (False, True):
                job = Job(kind, codec, cog)
                rows[f"write {job.name}"] = lambda job=job: writing(job, args)
    for codec in LEVELS if args.preset == "default" else ("zstd",):
        rows[f"dask to COG {codec}"] = lambda codec=codec: lazy_writing(codec, args)
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", dest="preset", action="store_const", const="quick", default="default")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", help="only rows whose section and name contain this text: chips s2-zstd")
    parser.add_argument("--rivals", default="", help="only rivals whose name contains this text")
    parser.add_argument("--task", type=json.loads, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.task:
        run_task(args.task)
        return 0

    warnings.filterwarnings("ignore")
    OUT.mkdir(parents=True, exist_ok=True)
    rows = [measured() for name, measured in plan(args).items() if args.only in name]
    from run import cpu

    verdicts = goals(rows)
    text = report(rows, verdicts, args)
    (OUT / "python.md").write_text(text)
    document = {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "cpu": cpu(),
        "threads": THREADS,
        "preset": args.preset,
        "rounds": args.rounds,
        "versions": versions(),
        "rows": [
            {"section": row.section, "name": row.name, "best_ms": row.best, "median_ms": row.median,
             "checks": row.checks, "size": row.size, "peak": row.peak}
            for row in rows
        ],
        "goals": [{"goal": text, "measured": measured, "met": met} for text, measured, met in verdicts],
    }  # fmt: skip
    (OUT / "python.json").write_text(json.dumps(document, indent=1) + "\n")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
