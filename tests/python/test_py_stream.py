"""`swath.to_geotiff` of dask arrays: the same bytes as the eager write, every task once, in bounded memory."""

from __future__ import annotations

import io
import signal
import subprocess
import sys
import threading
import warnings
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
import swath
import xarray as xr
from dask.delayed import Delayed
from hypothesis import given, settings
from hypothesis import strategies as st
from swath._stream import Layout, stream

MIB = 1 << 20
RAGGED = {
    "24 rows": (3, 24, 90),
    "irregular": ((1, 2), (7, 50, 3, 77), (40, 50)),
    "columns": (2, 137, 33),
    "one": (3, 137, 90),
    "rows": (1, 1, 90),
}


def raster(shape: tuple[int, ...] = (3, 137, 90), dtype: str = "float32", holes: bool = False) -> np.ndarray:
    values = (np.arange(np.prod(shape)).reshape(shape) % 251).astype(dtype)
    if holes:
        values[..., 20:60, 30:41] = np.nan
        values[..., 100:, :] = np.nan
    return values


class Counted:
    """Chunks that count how often each of them is computed."""

    def __init__(self, data: np.ndarray, chunks: Any) -> None:
        self.counts: Counter[tuple[int, ...]] = Counter()
        self._lock = threading.Lock()
        self.array = da.map_blocks(self._read, da.from_array(data, chunks=chunks), dtype=data.dtype)

    def _read(self, block: np.ndarray, block_info: Any = None) -> np.ndarray:
        if block_info:
            with self._lock:
                self.counts[tuple(block_info[0]["chunk-location"])] += 1
        return block.copy()

    def check_once(self) -> None:
        assert len(self.counts) == np.prod(self.array.numblocks)
        assert set(self.counts.values()) == {1}, self.counts


@pytest.fixture(autouse=True)
def quiet() -> Any:
    """Ignores the warning that chunks exceed the tiny buffers; any other warning is a fault."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".* more than the .* bytes of streaming_buffer_bytes", swath.SwathWarning)
        yield


# The same bytes -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cog", [False, True])
@pytest.mark.parametrize("buffer", [1, 20_000, None])
@pytest.mark.parametrize("chunks", RAGGED)
def test_bytes_of_the_eager_write(chunks: str, buffer: int | None, cog: bool) -> None:
    data = raster()
    words: dict[str, Any] = {"tile_size": 32, "cog": cog, "compression": "deflate"}
    expected = swath.to_geotiff(data, None, **words)
    counted = Counted(data, RAGGED[chunks])
    assert swath.to_geotiff(counted.array, None, streaming_buffer_bytes=buffer, **words) == expected
    counted.check_once()


@pytest.mark.parametrize("cog", [False, True])
@pytest.mark.parametrize("interleave", ["pixel", "band"])
@pytest.mark.parametrize("axes", ["byx", "yxb", "yx"])
def test_every_order_of_axes(axes: str, interleave: str, cog: bool) -> None:
    data = {"byx": raster(), "yxb": np.moveaxis(raster(), 0, 2), "yx": raster()[0]}[axes]
    chunks = {"byx": (2, 24, 50), "yxb": (24, 50, 2), "yx": (24, 50)}[axes]
    words: dict[str, Any] = {"tile_size": 32, "cog": cog, "interleave": interleave}
    if axes != "yx":
        words["band_axis"] = axes.index("b")
    expected = swath.to_geotiff(np.ascontiguousarray(data), None, **words)
    assert swath.to_geotiff(da.from_array(data, chunks=chunks), None, streaming_buffer_bytes=1, **words) == expected


@pytest.mark.parametrize("words", [{"nodata": -9999.0}, {"nodata": float("nan")}, {"nodata": -9999.0, "sparse": True}])
@pytest.mark.parametrize("cog", [False, True])
def test_holes(words: dict[str, Any], cog: bool) -> None:
    data = raster(holes=True)
    kept = data.copy()
    expected = swath.to_geotiff(data, None, tile_size=32, cog=cog, **words)
    chunked = da.from_array(data, chunks=(3, 24, 90))
    assert swath.to_geotiff(chunked, None, tile_size=32, cog=cog, streaming_buffer_bytes=1, **words) == expected
    np.testing.assert_array_equal(data, kept)


@pytest.mark.parametrize(
    ("compression", "dtype"),
    [
        ("none", "int16"),
        ("lzw", "uint8"),
        ("zstd", "float64"),
        ("lerc", "float32"),
        ("packbits", "uint8"),
        ("jpeg", "uint8"),
        ("deflate", "complex64"),
    ],
)
def test_codecs(compression: str, dtype: str) -> None:
    data = raster(dtype=dtype)
    words: dict[str, Any] = {"tile_size": 32, "compression": compression, "cog": dtype != "complex64"}
    expected = swath.to_geotiff(data, None, **words)
    assert swath.to_geotiff(da.from_array(data, chunks=(3, 24, 50)), None, **words) == expected


def test_strips() -> None:
    data = raster()
    expected = swath.to_geotiff(data, None, tiled=False, blockysize=10)
    assert swath.to_geotiff(da.from_array(data, chunks=(3, 24, 50)), None, tiled=False, blockysize=10) == expected


@settings(max_examples=30, deadline=None, database=None, derandomize=True)
@given(st.data())
def test_any_chunks(drawn: st.DataObject) -> None:
    shape = drawn.draw(st.tuples(st.integers(1, 3), st.integers(1, 90), st.integers(1, 70)))

    def parts(size: int) -> tuple[int, ...]:
        cuts = drawn.draw(st.sets(st.integers(1, size), max_size=5)) | {size}
        edges = [0, *sorted(cuts)]
        return tuple(after - before for before, after in zip(edges, edges[1:]))

    data = raster(shape)
    counted = Counted(data, tuple(map(parts, shape)))
    words: dict[str, Any] = {"tile_size": 16, "cog": drawn.draw(st.booleans()), "band_axis": 0}
    buffer = drawn.draw(st.sampled_from([1, 5_000, 50_000]))
    expected = swath.to_geotiff(data, None, **words)
    assert swath.to_geotiff(counted.array, None, streaming_buffer_bytes=buffer, **words) == expected
    counted.check_once()


def test_dataarrays_and_what_they_are_packed_from() -> None:
    data = raster(holes=True)
    whole = xr.DataArray(data, dims=("band", "y", "x"))
    whole.encoding = {"dtype": "int16", "scale_factor": 0.5, "add_offset": 3.0, "_FillValue": -1}
    expected = swath.to_geotiff(whole, None, crs=32633, tile_size=32)
    chunked = whole.chunk({"y": 24, "x": 50})
    chunked.encoding = whole.encoding
    assert swath.to_geotiff(chunked, None, crs=32633, tile_size=32) == expected
    assert swath.Dataset(expected).dtype == "int16"


# Every task once ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("buffer", [1, 30_000, None])
@pytest.mark.parametrize("chunks", ["24 rows", "irregular", "columns"])
def test_overlaps_compute_every_task_once(chunks: str, buffer: int | None) -> None:
    counted = Counted(raster(), RAGGED[chunks])
    steps: Counter[Any] = Counter()
    lock = threading.Lock()

    def smooth(block: np.ndarray, block_info: Any = None) -> np.ndarray:
        with lock:
            steps[tuple(block_info[0]["chunk-location"]) if block_info else None] += 1
        return (block + np.roll(block, 1, axis=1) + np.roll(block, 1, axis=2)).astype("float32")

    depth = {0: 0, 1: 2, 2: 3}
    overlapped = counted.array.map_overlap(smooth, depth=depth, boundary="reflect", dtype="float32", meta=np.empty(0))
    expected = swath.to_geotiff(overlapped.compute(scheduler="sync"), None, tile_size=32)
    counted.counts.clear()
    steps.clear()
    assert swath.to_geotiff(overlapped, None, tile_size=32, streaming_buffer_bytes=buffer) == expected
    counted.check_once()
    assert set(steps.values()) == {1}


@pytest.mark.parametrize("buffer", [1, 30_000])
@pytest.mark.parametrize("shape", [(3, 13, 90), (1, 100, 17), (3, 137, 1)])
def test_rechunked_sources_are_computed_once(shape: tuple[int, ...], buffer: int) -> None:
    data = raster()
    counted = Counted(data, (2, 24, 40))
    rechunked = counted.array.rechunk(shape)
    assert swath.to_geotiff(rechunked, None, streaming_buffer_bytes=buffer) == swath.to_geotiff(data, None)
    counted.check_once()


def test_a_mean_of_everything_is_computed_once() -> None:
    data = raster(dtype="float64")
    counted = Counted(data, (3, 24, 90))
    anomaly = counted.array - counted.array.mean()
    assert swath.to_geotiff(anomaly, None, streaming_buffer_bytes=1) == swath.to_geotiff(data - data.mean(), None)
    counted.check_once()


@pytest.mark.parametrize("scheduler", ["threads", "sync", "processes"])
def test_every_local_scheduler(scheduler: str) -> None:
    data = raster()
    expected = swath.to_geotiff(data, None)
    chunked = da.from_array(data, chunks=(3, 24, 90)) + 0
    with dask.config.set(scheduler=scheduler, num_workers=2):
        assert swath.to_geotiff(chunked, None, streaming_buffer_bytes=60_000) == expected
    assert swath.to_geotiff(chunked, None, streaming_buffer_bytes=60_000, scheduler="sync") == expected


def test_delayed_writes(folder: Path) -> None:
    data = raster()
    counted = Counted(data, (3, 24, 90))
    later = swath.to_geotiff(counted.array, folder / "a.tif", compute=False, streaming_buffer_bytes=60_000)
    assert isinstance(later, Delayed)
    assert not counted.counts
    assert list(folder.iterdir()) == []
    other = swath.to_geotiff(data, folder / "b.tif", compute=False)
    assert dask.compute(later, other) == (folder / "a.tif", folder / "b.tif")
    counted.check_once()
    assert (folder / "a.tif").read_bytes() == (folder / "b.tif").read_bytes() == swath.to_geotiff(data, None)


@pytest.mark.parametrize("cog", [False, True])
@pytest.mark.parametrize("target", ["path", "BytesIO", "None"])
def test_a_streamed_write_warns_of_nothing_and_gives_the_eager_bytes(folder: Path, target: str, cog: bool) -> None:
    data = raster((2, 1500, 1300), holes=True)
    expected = swath.to_geotiff(data, None, cog=cog, nodata=-1)
    # The array's name is dask's key, not the name of a band.
    chunked = xr.DataArray(da.from_array(data, chunks=(1, 400, 500)), dims=("band", "y", "x")) + 0
    memory, path = io.BytesIO(), folder / "a.tif"
    place = {"path": path, "BytesIO": memory, "None": None}[target]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        done = swath.to_geotiff(chunked, place, cog=cog, nodata=-1)
    assert {"path": lambda: path.read_bytes(), "BytesIO": memory.getvalue, "None": lambda: done}[target]() == expected


# Failures -----------------------------------------------------------------------------------------------------------


class BrokenError(RuntimeError):
    pass


@pytest.mark.parametrize("error", [BrokenError, KeyboardInterrupt])
def test_a_task_that_fails_leaves_the_old_file(folder: Path, error: type[BaseException]) -> None:
    def late(block: np.ndarray, block_info: Any = None) -> np.ndarray:
        if block_info and block_info[0]["chunk-location"][1] == 4:
            raise error("no")
        return block

    path = folder / "old.tif"
    path.write_bytes(b"old")
    failing = da.from_array(raster(), chunks=(3, 24, 90)).map_blocks(late, dtype="float32")
    threads = threading.active_count()
    with pytest.raises(error, match="no"):
        swath.to_geotiff(failing, path, streaming_buffer_bytes=1, tile_size=32, scheduler="sync")
    assert [(left.name, left.read_bytes()) for left in folder.iterdir()] == [("old.tif", b"old")]
    assert threading.active_count() <= threads + 1
    memory = io.BytesIO()
    with pytest.raises(error):
        swath.to_geotiff(failing, memory, streaming_buffer_bytes=1)
    assert memory.getvalue() == b""


def test_chunks_of_another_shape_or_kind_are_refused() -> None:
    chunked = da.from_array(raster(), chunks=(3, 24, 90))
    lying = chunked.map_blocks(lambda block: block[:, :-1], dtype="float32", meta=np.empty((0, 0, 0), "f4"))
    with pytest.raises(ValueError, match="chunk row 0, column 0 is float32 "):
        swath.to_geotiff(lying, None)
    lying = chunked.map_blocks(lambda block: block + 1j, dtype="float32", meta=np.empty((0, 0, 0), "f4"))
    with pytest.raises(ValueError, match="complex64"):
        swath.to_geotiff(lying, None)
    unknown = da.from_array(raster()[0], chunks=(24, 90))
    unknown = unknown[unknown[:, 0] > 3]
    with pytest.raises(ValueError, match="compute_chunk_sizes"):
        swath.to_geotiff(unknown, None)


def test_chunks_larger_than_the_buffer_cause_a_warning() -> None:
    chunked = da.from_array(raster((1, 64, 64)), chunks=(1, 32, 64))
    with pytest.warns(swath.SwathWarning, match=r"8192 bytes, more than the 4097 bytes") as warned:
        swath.to_geotiff(chunked, None, streaming_buffer_bytes=4097)
    assert warned[0].filename == __file__


INTERRUPTED = """
import signal, sys, time
import dask.array as da
import numpy as np
import swath

def slow(block):
    print(flush=True)
    time.sleep(0.05)
    return block

signal.signal(signal.SIGINT, signal.default_int_handler)
endless = da.zeros((100_000, 64), chunks=(64, 64)).map_blocks(slow, dtype="f8", meta=np.empty((0, 0)))
try:
    swath.to_geotiff(endless, sys.argv[1], tile_size=64, streaming_buffer_bytes=1 << 16)
except KeyboardInterrupt:
    sys.exit(7)
"""


def test_an_interrupt_leaves_the_old_file(folder: Path) -> None:
    path = folder / "old.tif"
    path.write_bytes(b"old")
    with subprocess.Popen([sys.executable, "-c", INTERRUPTED, path], stdout=subprocess.PIPE) as run:
        assert run.stdout is not None
        # Chunks are being computed.
        assert run.stdout.readline()
        run.send_signal(signal.SIGINT)
        assert run.wait(60) == 7
    assert [(left.name, left.read_bytes()) for left in folder.iterdir()] == [("old.tif", b"old")]


# On a device --------------------------------------------------------------------------------------------------------


class Elsewhere:
    """The methods of a CuPy array that are used here; NumPy cannot read its samples."""

    def __init__(self, held: np.ndarray) -> None:
        self.held = held
        self.shape, self.dtype, self.size = held.shape, held.dtype, held.size
        self.__cuda_array_interface__ = {"shape": held.shape}

    def __getitem__(self, region: Any) -> Elsewhere:
        return Elsewhere(self.held[region])

    def __setitem__(self, region: Any, part: Elsewhere) -> None:
        self.held[region] = part.held

    def reshape(self, shape: tuple[int, ...]) -> Elsewhere:
        return Elsewhere(self.held.reshape(shape))

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        raise TypeError("ask for a copy")


class Recorder:
    """A writer that keeps rows of a device."""

    def __init__(self) -> None:
        self.rows: list[np.ndarray] = []

    def push_device(self, rows: Elsewhere, axes: str) -> None:
        assert axes == "byx"
        self.rows.append(rows.held.copy())


@pytest.mark.parametrize("chunks", ["24 rows", "irregular", "columns"])
def test_chunks_on_a_device_stay_there(chunks: str, monkeypatch: pytest.MonkeyPatch) -> None:
    freed: list[int] = []
    pool = SimpleNamespace(free_all_blocks=lambda: freed.append(1))
    cupy = SimpleNamespace(
        empty=lambda size, dtype: Elsewhere(np.empty(size, dtype)), get_default_memory_pool=lambda: pool
    )
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    data = raster()
    array = da.from_array(data, chunks=RAGGED[chunks])
    array = array.map_blocks(Elsewhere, dtype="float32", meta=np.empty((0, 0, 0), "float32"))
    layout = Layout("byx", *data.shape, data.dtype)
    writer = Recorder()
    stream(array, layout, writer, dask.get, 60_000)
    np.testing.assert_array_equal(np.concatenate(writer.rows, axis=1), data)
    # CuPy's pool is emptied after each row of chunks, so that the engine can use the memory.
    assert len(freed) == array.numblocks[1]


# Memory -------------------------------------------------------------------------------------------------------------

LARGE = """
import sys
import dask.array as da
import numpy as np
import swath

path, cog, budget, rows, columns, width = sys.argv[1], sys.argv[2] == "cog", *map(int, sys.argv[3:])

def make(block_id):
    y, x = (np.arange(size, dtype="float32") for size in (rows, columns))
    return (y[:, None] + block_id[0]) * 0.25 + (x[None, :] + block_id[1])

height = 8 * budget // 4 // width
chunks = ((rows,) * (height // rows), (columns,) * (width // columns))
array = da.map_blocks(make, chunks=chunks, dtype="float32", meta=np.empty((0, 0), "float32"))
assert array.nbytes >= 8 * budget
swath.to_geotiff(array, path, cog=cog, max_memory=budget, tile_size=256, compression_level=1)
# getrusage would include the peak of the process that started this one.
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(int(peak.split()[1]) * 1024)
"""


@pytest.mark.parametrize("cog", ["cog", "plain"])
@pytest.mark.parametrize("chunk", [(512, 4096), (512, 512)])
def test_a_raster_eight_times_the_budget(folder: Path, cog: str, chunk: tuple[int, int]) -> None:
    budget = 64 * MIB
    argv = [sys.executable, "-c", LARGE, folder / "a.tif", cog, budget, *chunk, 4096]
    run = subprocess.run(list(map(str, argv)), capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert int(run.stdout) < budget + 200 * MIB
    assert swath.Dataset(folder / "a.tif").height == 8 * budget // 4 // 4096
