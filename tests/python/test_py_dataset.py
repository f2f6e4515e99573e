"""`swath.Dataset` and `swath.read`: windows, memory shared with other libraries, threads, pickles, errors, chips."""

from __future__ import annotations

import ctypes
import gc
import hashlib
import io
import json
import os
import pickle
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import rasterio
import swath as sw
from harness import Swath, scratch
from rasterio.windows import Window as RioWindow


@pytest.fixture(scope="module")
def files() -> Iterator[dict[str, Path]]:
    """A raster of three bands with overviews, one of floats with nodata, one of complex integers."""
    rng = np.random.default_rng(5)
    with scratch() as name:
        folder = Path(name)
        rgb = rng.integers(0, 4000, (3, 300, 420), dtype="uint16")
        sw.to_geotiff(rgb, folder / "rgb.tif", cog=True, tile_size=64, crs=32633, transform=(10, 0, 4e5, 0, -10, 5e6))
        dem = rng.normal(size=(200, 180)).astype("float32")
        dem[20:40, 30:60] = np.nan
        sw.to_geotiff(dem, folder / "dem.tif", nodata=-9999.0, tile_size=32, compression="deflate")
        pairs = rng.integers(-300, 300, (2, 40, 50, 2), dtype="int16")
        profile = {"driver": "GTiff", "width": 50, "height": 40, "count": 2, "dtype": "complex_int16"}
        with rasterio.open(folder / "pairs.tif", "w", **profile) as target:
            target.write((pairs[..., 0] + 1j * pairs[..., 1]).astype("complex64"))
        yield {path.stem: path for path in folder.glob("*.tif")}


def truth(path: Path, **options: object) -> np.ndarray:
    with rasterio.open(path) as source:
        return source.read(**options)


def test_reads_what_rasterio_reads(files: dict[str, Path]) -> None:
    for path in files.values():
        dataset = sw.Dataset(path)
        expected = truth(path)
        found = np.asarray(dataset.read())
        assert dataset.shape == expected.shape and dataset.dtype == expected.dtype.name
        assert found.dtype == expected.dtype and np.array_equal(found, expected, equal_nan=True)


@pytest.mark.parametrize(
    "window",
    [
        sw.Window(33, 70, 200, 31),
        (70, 33, 101, 233),
        ((70, 101), (33, 233)),
        (slice(70, 101), slice(33, 233)),
        RioWindow(33, 70, 200, 31),
    ],
    ids=["Window", "corners", "ranges", "slices", "rasterio"],
)
def test_windows_are_accepted_in_every_form(files: dict[str, Path], window: object) -> None:
    expected = truth(files["rgb"])[:, 70:101, 33:233]
    assert np.array_equal(sw.read(files["rgb"], window=window), expected)
    assert np.array_equal(sw.Dataset(files["rgb"]).read([3, 1], window), expected[[2, 0]])


@pytest.mark.parametrize("window", [(0, 0, 301, 10), (5, 5, 5, 9), sw.Window(-1, 0, 2, 2), (1, 2, 3), "all", 7])
def test_windows_outside_are_refused_by_number(files: dict[str, Path], window: object) -> None:
    with pytest.raises(sw.UsageError, match="window"):
        sw.read(files["rgb"], window=window)


def test_a_single_band_has_two_axes(files: dict[str, Path]) -> None:
    dataset = sw.Dataset(files["rgb"])
    expected = truth(files["rgb"])
    assert np.array_equal(dataset.read(2), expected[1])
    assert np.asarray(dataset.read([2])).shape == (1, 300, 420)
    assert np.array_equal(dataset.read(interleave="pixel"), np.moveaxis(expected, 0, -1))
    assert np.array_equal(dataset.read(2, interleave="pixel"), expected[1])
    with pytest.raises(sw.UsageError, match=r"no band 4.*1 to 3"):
        dataset.read(4)


def test_overviews_count_from_the_largest(files: dict[str, Path]) -> None:
    dataset = sw.Dataset(files["rgb"])
    with rasterio.open(files["rgb"]) as source:
        assert len(dataset.overview_sizes) == len(source.overviews(1)) > 1
    for level, size in enumerate(dataset.overview_sizes):
        with rasterio.open(files["rgb"], overview_level=level) as source:
            assert np.array_equal(dataset.read(overview_level=level), source.read())
            width, height = source.width, source.height
        assert size == (width, height)
        if width > 8 and height > 8:
            part = dataset.read(overview_level=level, window=sw.Window(1, 2, 5, 4))
            assert np.array_equal(part, np.asarray(dataset.read(overview_level=level))[:, 2:6, 1:6])
    with pytest.raises(sw.UsageError, match="no overview 9"):
        dataset.read(overview_level=9)
    with pytest.raises(sw.UsageError, match="no overview 9"):
        dataset.read(overview_level=9, window=(0, 0, 1, 1))


def test_memory_is_lent_and_not_copied(files: dict[str, Path]) -> None:
    array = sw.read(files["rgb"])
    first, second = np.asarray(array), np.asarray(array)
    assert first.ctypes.data == second.ctypes.data and first.flags.writeable
    third = np.from_dlpack(array)
    assert third.ctypes.data == first.ctypes.data and np.array_equal(third, first)
    view = memoryview(array)
    assert (view.shape, view.format, view.itemsize, view.readonly) == ((3, 300, 420), "H", 2, False)
    assert (array.nbytes, array.size, array.ndim, len(array), array.device) == (3 * 300 * 420 * 2, 378000, 3, 3, "cpu")
    first[0, 0, 0] = 4242
    del array, first, view
    gc.collect()
    # A view keeps the memory alive.
    assert second[0, 0, 0] == 4242 and third[0, 0, 0] == 4242
    assert not hasattr(sw.read(files["rgb"]), "__cuda_array_interface__")


def test_numpy_can_request_types_and_copies(files: dict[str, Path]) -> None:
    array = sw.read(files["rgb"])
    assert np.array(array, dtype="float64").dtype == np.float64
    assert np.array(array, copy=True).ctypes.data != np.asarray(array).ctypes.data
    assert np.asarray(array, dtype="uint16").ctypes.data == np.asarray(array).ctypes.data
    assert array.reshape((3, 300 * 420)).shape == (3, 126000)
    with pytest.raises(ValueError, match="reshape"):
        array.reshape((7, 7))


def test_dlpack_in_both_forms_is_freed_once(files: dict[str, Path]) -> None:
    array = sw.read(files["dem"])
    assert array.__dlpack_device__() == (1, 0)
    for version in (None, (1, 0), (1, 1)):
        capsule = array.__dlpack__(max_version=version)
        name = "dltensor_versioned" if version else "dltensor"
        assert name in repr(capsule)
        # Not consumed: the capsule frees the tensor, and the array still has its samples.
        del capsule
    gc.collect()
    assert np.isfinite(np.asarray(array)).any()
    with pytest.raises(BufferError):
        array.__dlpack__(dl_device=(2, 0))


def test_complex_integers_are_read_as_rasterio_reads_them(files: dict[str, Path]) -> None:
    dataset = sw.Dataset(files["pairs"])
    found = np.asarray(dataset.read(window=(3, 4, 20, 30)))
    assert found.dtype == np.complex64 and np.array_equal(found, truth(files["pairs"])[:, 3:20, 4:30])
    batch = np.asarray(dataset.read_windows([(0, 0, 8, 8), (9, 9, 17, 17)]))
    assert np.array_equal(batch[1], truth(files["pairs"])[:, 9:17, 9:17])


def test_out_is_filled_and_returned(files: dict[str, Path]) -> None:
    dataset, expected = sw.Dataset(files["rgb"]), truth(files["rgb"])
    whole = np.zeros((3, 300, 420), "uint16")
    assert dataset.read(out=whole) is whole and np.array_equal(whole, expected)
    # Views with gaps and wider types are filled too, through a copy.
    big = np.zeros((3, 600, 420), "uint16")
    dataset.read(out=big[:, ::2])
    assert np.array_equal(big[:, ::2], expected) and not big[:, 1::2].any()
    wide = np.zeros((300, 420), "float64")
    dataset.read(2, out=wide)
    assert np.array_equal(wide, expected[1])
    plane = np.zeros((31, 200), "uint16")
    dataset.read(1, (70, 33, 101, 233), out=plane)
    assert np.array_equal(plane, expected[0, 70:101, 33:233])
    windows = [sw.Window(x, 2 * x, 16, 16) for x in range(5)]
    batch = np.zeros((5, 3, 16, 16), "uint16")
    dataset.read_windows(windows, out=batch)
    assert np.array_equal(batch[4], expected[:, 8:24, 4:20])
    with pytest.raises(sw.UsageError, match="shape"):
        dataset.read(out=np.zeros((2, 300, 420), "uint16"))
    with pytest.raises(sw.UsageError, match="cannot hold"):
        dataset.read(out=np.zeros((3, 300, 420), "uint8"))
    fixed = np.zeros((5, 3, 16, 16), "uint16")
    fixed.flags.writeable = False
    with pytest.raises(BufferError, match="read-only"):
        dataset.read_windows(windows, out=fixed)
    with pytest.raises(sw.UsageError, match="cannot hold"):
        dataset.read_windows(windows, out=np.zeros((5, 3, 16, 16), "int16"))


def test_sources_of_every_kind_give_the_same(files: dict[str, Path]) -> None:
    import fsspec
    import obstore

    data = files["rgb"].read_bytes()
    expected = truth(files["rgb"])
    memory = fsspec.filesystem("memory")
    memory.pipe("/swath-test/rgb.tif", data)
    store = obstore.store.MemoryStore()
    obstore.put(store, "folder/rgb.tif", data)

    class Reader(io.RawIOBase):
        """A file-like object that returns less than requested."""

        def __init__(self) -> None:
            self.inner = io.BytesIO(data)

        def seek(self, offset: int, whence: int = 0) -> int:
            return self.inner.seek(offset, whence)

        def read(self, size: int = -1) -> bytes:
            return self.inner.read(min(size, 1000) if size > 0 else size)

    with files["rgb"].open("rb") as opened:
        sources = {
            "str": str(files["rgb"]),
            "path": files["rgb"],
            "file url": files["rgb"].as_uri(),
            "bytes": data,
            "bytearray": bytearray(data),
            "memoryview": memoryview(data),
            "BytesIO": io.BytesIO(data),
            "file": opened,
            "raw": Reader(),
            "fsspec url": "memory://swath-test/rgb.tif",
            "fsspec OpenFile": fsspec.open("memory://swath-test/rgb.tif"),
            "fsspec file": memory.open("/swath-test/rgb.tif"),
            "fsspec local": fsspec.open(str(files["rgb"])),
            "obstore": (store, "folder/rgb.tif"),
        }
        for name, source in sources.items():
            assert np.array_equal(sw.read(source), expected), name
            assert np.array_equal(sw.Dataset(source).read(2, (9, 9, 99, 99)), expected[1, 9:99, 9:99]), name
    with pytest.raises(sw.UsageError, match="a source is"):
        sw.Dataset(object())
    with pytest.raises(sw.UsageError, match="fsspec"):
        sw.Dataset("nonsense-protocol://a/b.tif")


def test_a_source_that_fails_says_why(files: dict[str, Path]) -> None:
    data = files["rgb"].read_bytes()

    class Broken:
        name = "broken.tif"
        # Opening reads only the head of the file.
        remote = False

        def __init__(self, answer: object) -> None:
            self.answer = answer

        def size(self) -> int:
            return len(data)

        def read_ranges(self, ranges: list[tuple[int, int]]) -> list[bytes]:
            if ranges[0][0] < 20000:
                return [data[offset : offset + length] for offset, length in ranges]
            if isinstance(self.answer, Exception):
                raise self.answer
            return [self.answer for _ in ranges]

    for answer, words in ((OSError("the line is dead"), "the line is dead"), (b"short", "returned 5 bytes")):
        with pytest.raises(sw.SourceError, match=words) as caught:
            sw.Dataset(Broken(answer)).read()
        assert caught.value.file == "broken.tif" and isinstance(caught.value, OSError)


def test_many_threads_read_from_one_handle(files: dict[str, Path]) -> None:
    dataset, expected = sw.Dataset(files["rgb"], threads=1), truth(files["rgb"])
    rng = np.random.default_rng(1)
    corners = [(int(y), int(x)) for y, x in zip(rng.integers(0, 200, 400), rng.integers(0, 300, 400))]

    def check(corner: tuple[int, int]) -> bool:
        y, x = corner
        return np.array_equal(dataset.read(window=(y, x, y + 90, x + 80)), expected[:, y : y + 90, x : x + 80])

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(check, corners))


def test_the_interpreter_runs_on_while_a_file_is_read(files: dict[str, Path]) -> None:
    """A Python source can only answer if the reading thread does not hold the interpreter's lock."""
    data = files["rgb"].read_bytes()
    entered, goes_on = threading.Event(), threading.Event()

    class Slow:
        name = "slow.tif"

        def size(self) -> int:
            return len(data)

        def read_ranges(self, ranges: list[tuple[int, int]]) -> list[bytes]:
            entered.set()
            assert goes_on.wait(30)
            return [data[offset : offset + length] for offset, length in ranges]

    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(lambda: np.asarray(sw.Dataset(Slow()).read()))
        assert entered.wait(30)
        assert not future.done()
        goes_on.set()
        assert np.array_equal(future.result(), truth(files["rgb"]))


def test_threads_and_python_sources_do_not_wait_for_each_other(files: dict[str, Path]) -> None:
    """A thread that waits for bytes from Python holds a lock of the engine; a thread that waits for that lock must
    release the interpreter."""
    code = """
    import sys, time, threading, numpy as np, swath
    data = open(sys.argv[1], "rb").read()

    class Slow:
        name = "slow.tif"

        def size(self):
            return len(data)

        def read_ranges(self, ranges):
            time.sleep(0.02)
            return [data[offset : offset + length] for offset, length in ranges]

    for _ in range(3):
        dataset = swath.Dataset(Slow())
        calls = [dataset.metadata, dataset.read, dataset.read_mask, lambda: dataset.overview_sizes]
        calls += [lambda: dataset.read(overview_level=0), lambda: dataset.read_windows([(0, 0, 8, 8)] * 4)]
        threads = [threading.Thread(target=call) for call in calls * 2]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    writer = swath._swath.Writer(None, (1, 4096, 64), "uint8", {}, {}, progress=lambda done, rows: time.sleep(0.01))
    pushing = threading.Thread(target=lambda: writer.push(np.zeros((4096, 64), "uint8"), "yx"))
    pushing.start()
    writer.rows, writer.abort()
    pushing.join()
    print("done")
    """
    command = [sys.executable, "-c", textwrap.dedent(code), str(files["rgb"])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.strip() == "done", done.stderr


def test_memory_of_others_is_not_kept(files: dict[str, Path]) -> None:
    data = files["rgb"].read_bytes()
    expected = truth(files["rgb"])
    altered = bytearray(data)
    assert np.array_equal(sw.read(altered), expected)
    altered[2000:] = bytes(len(altered) - 2000)
    assert np.array_equal(sw.read(data), expected), "another buffer's handle was used"
    file = io.BytesIO(data)
    sw.info(file)
    gc.collect()
    file.write(b"it may be written to again")
    file.close()
    assert np.array_equal(sw.read(io.BytesIO(data)), expected)


def test_memory_of_another_shape_is_refused(files: dict[str, Path]) -> None:
    dataset = sw.Dataset(files["rgb"])
    for shape in ((420, 300, 3), (3, 420, 300), (3 * 300, 420), (1, 3, 300, 420)):
        with pytest.raises(sw.UsageError, match="shape"):
            dataset.read(out=np.zeros(shape, "uint16"))
    with pytest.raises(sw.UsageError, match="shape"):
        dataset.read(1, out=np.zeros((420, 300), "uint16"))
    windows = [sw.Window(0, 0, 16, 16)] * 4
    with pytest.raises(sw.UsageError, match="shape"):
        dataset.read_windows(windows, [1], out=np.zeros((1, 32, 32), "uint16"))
    flat, gapped = np.zeros((4, 16, 16), "uint16"), np.zeros((4, 16, 32), "uint32")
    dataset.read_windows(windows, [1], out=flat)
    dataset.read_windows(windows, [1], out=gapped[..., ::2])
    assert np.array_equal(flat, gapped[..., ::2]) and np.array_equal(flat[0], truth(files["rgb"])[0, :16, :16])
    level = np.zeros((3, *dataset.overview_sizes[0][::-1]), "uint16")
    assert np.array_equal(dataset.read(overview_level=0, out=level), dataset.read(overview_level=0))


def test_names_that_are_no_valid_text_work(folder: Path) -> None:
    path = os.fsencode(folder) + b"/\xff.tif"
    sw.to_geotiff(np.full((4, 4), 7, "uint8"), os.fsdecode(path))
    assert os.listdir(os.fsencode(folder)) == [b"\xff.tif"]  # noqa: PTH208
    assert np.asarray(sw.Dataset(os.fsdecode(path)).read()).max() == 7


def test_an_interrupt_in_a_source_is_raised(files: dict[str, Path]) -> None:
    data = files["rgb"].read_bytes()

    class Source:
        name = "interrupted.tif"
        raised: type[BaseException] = KeyboardInterrupt

        def size(self) -> int:
            return len(data)

        def read_ranges(self, ranges: list[tuple[int, int]]) -> list[bytes]:  # noqa: ARG002
            raise self.raised("now")

    with pytest.raises(KeyboardInterrupt):
        sw.Dataset(Source())
    Source.raised = TimeoutError
    with pytest.raises(sw.SourceError, match="now") as caught:
        sw.Dataset(Source())
    assert isinstance(caught.value.__cause__, TimeoutError)


def test_a_stream_that_overstates_its_writes_or_fails_is_an_error() -> None:
    rows = np.random.default_rng(0).integers(0, 65535, (900, 900), "uint16")

    class Boasting:
        def write(self, piece: bytes) -> int:
            return 2 * len(piece)

    class Failing:
        calls = 0

        def write(self, piece: bytes) -> int:  # noqa: ARG002
            self.calls += 1
            raise OSError(28, "no room")

    with pytest.raises(sw.WriteError, match=r"reports \d+ bytes written"):
        sw.to_geotiff(rows, Boasting())
    failing = Failing()
    with pytest.raises(sw.WriteError, match="no room"):
        sw.to_geotiff(rows, failing)
    assert failing.calls == 1


def test_a_forked_process_leaves_the_file_of_its_parent(folder: Path) -> None:
    code = """
    import os, sys, numpy as np, swath
    writer = swath._swath.Writer(sys.argv[1], (1, 64, 64), "uint8", {}, {})
    child = os.fork()
    if child == 0:
        del writer
        swath._swath.abandon_unfinished()
        os._exit(0)
    os.waitpid(child, 0)
    writer.push(np.full((64, 64), 3, "uint8"), "yx")
    writer.finish()
    """
    path = folder / "forked.tif"
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), str(path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert np.asarray(sw.read(path)).min() == 3


def test_bytes_of_an_array_are_hashed_as_numpy_hashes_them(files: dict[str, Path]) -> None:
    array = sw.read(files["rgb"])
    assert hashlib.sha256(array).digest() == hashlib.sha256(np.asarray(array)).digest()
    with pytest.raises(sw.UsageError, match="no band -1"):
        sw.read(files["rgb"], -1)
    changed = sw.Dataset(files["rgb"]).metadata()
    changed["crs"] = None
    assert sw.Dataset(files["rgb"]).metadata()["crs"]["epsg"] == 32633

    def stop(done: int, of: int) -> None:
        raise ZeroDivisionError(f"{done} of {of}")

    with pytest.raises(ZeroDivisionError):
        sw.stats(files["rgb"], progress=stop)


def test_handles_are_pickled_by_their_source(files: dict[str, Path]) -> None:
    import fsspec
    import obstore

    data = files["rgb"].read_bytes()
    fsspec.filesystem("memory").pipe("/swath-test/pickled.tif", data)
    expected = truth(files["rgb"])
    for source in (files["rgb"], data, io.BytesIO(data), fsspec.open("memory://swath-test/pickled.tif")):
        copy = pickle.loads(pickle.dumps(sw.Dataset(source, threads=1)))
        assert np.array_equal(copy.read(), expected) and copy._options["threads"] == 1
    local = obstore.store.LocalStore(str(files["rgb"].parent))
    copy = pickle.loads(pickle.dumps(sw.Dataset((local, "rgb.tif"))))
    assert np.array_equal(copy.read(), expected)


def test_a_file_that_changed_is_opened_again(folder: Path) -> None:
    path = folder / "changing.tif"
    for value in (1, 2):
        sw.to_geotiff(np.full((40, 40), value, "uint8"), path)
        os.utime(path, ns=(value * 10**9, value * 10**9))
        assert np.asarray(sw.read(path)).max() == value


def test_errors_say_what_and_where(files: dict[str, Path], folder: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"missing\.tif") as missing:
        sw.Dataset(folder / "missing.tif")
    assert isinstance(missing.value, sw.Error) and isinstance(missing.value, sw.SourceError)
    assert missing.value.file == str(folder / "missing.tif") and missing.value.errno == 2
    assert pickle.loads(pickle.dumps(missing.value)).filename == missing.value.filename == missing.value.file
    with pytest.raises(IsADirectoryError):
        sw.Dataset(folder)
    with pytest.raises(sw.FormatError, match="not a TIFF") as wrong:
        sw.Dataset(b"certainly no raster")
    assert isinstance(wrong.value, ValueError) and wrong.value.file == "<bytes>"
    data = bytearray(files["dem"].read_bytes())
    with rasterio.open(files["dem"]) as source:
        offset = int(source.tags(ns="TIFF", bidx=1).get("BLOCK_OFFSET_2_3", 0) or 0)
    if not offset:
        import tifffile

        with tifffile.TiffFile(files["dem"]) as opened:
            offset = opened.pages[0].dataoffsets[3 * 6 + 2]
    data[offset + 2 : offset + 40] = b"\xff" * 38
    with pytest.raises(sw.FormatError) as damaged:
        sw.Dataset(bytes(data)).read()
    assert damaged.value.tile == (2, 3) and damaged.value.ifd == 0 and damaged.value.reason
    again = pickle.loads(pickle.dumps(damaged.value))
    assert str(again) == str(damaged.value) and again.tile == (2, 3) and type(again) is type(damaged.value)
    with pytest.raises(sw.LimitError, match="max_pixels"):
        sw.Dataset(files["rgb"], max_pixels=1000).read()
    assert np.asarray(sw.Dataset(files["rgb"], max_pixels=1000).read(1, (0, 0, 10, 100))).size == 1000
    with pytest.raises(sw.LimitError, match="max_pixels"):
        sw.Dataset(files["rgb"], max_pixels=1000).read_windows([(0, 0, 16, 16)] * 3)


def test_gpu_never_becomes_cpu_in_silence(files: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWATH_CUDA_DRIVER", "/nowhere/libcuda.so")
    code = """
    import sys, warnings, numpy as np, swath
    dataset = swath.Dataset(sys.argv[1])
    for device in ("cuda", "gpu"):
        try:
            dataset.read(device=device)
        except swath.DeviceError as error:
            assert "nowhere" in str(error), error
        else:
            raise SystemExit("no error")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            assert dataset.read(device="auto").device == "cpu"
            assert np.asarray(dataset.read_windows([(0, 0, 8, 8)], device="auto")).shape == (1, 3, 8, 8)
    assert [warning.category for warning in caught] == [swath.DeviceWarning] * 6, caught
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), str(files["rgb"])], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_values_of_device(files: dict[str, Path]) -> None:
    with pytest.raises(sw.UsageError, match="device"):
        sw.read(files["rgb"], device="tpu")
    with pytest.raises(sw.UsageError, match="CUDA_VISIBLE_DEVICES"):
        sw.read(files["rgb"], device="cuda:3")


def test_chips_cover_every_pixel_once_or_more(files: dict[str, Path]) -> None:
    dataset, expected = sw.Dataset(files["rgb"]), truth(files["rgb"])
    seen = np.zeros((300, 420), int)
    chips = dataset.chips(64, batch=7)
    assert len(chips) == -(-35 // 7)
    for _ in range(2):
        count = 0
        for batch, windows in chips:
            assert batch.shape == (len(windows), 3, 64, 64)
            for chip, window in zip(np.asarray(batch), windows):
                x, y, w, h = window
                assert np.array_equal(chip, expected[:, y : y + h, x : x + w])
                seen[y : y + h, x : x + w] += 1
                count += 1
        assert count == 35
    assert seen.min() == 2
    dropped = dataset.chips(64, edge="drop", batch=4, drop_last=True)
    assert len(dropped.windows) == 24 and len(dropped) == 6 and len(list(dropped)) == 6


def test_chips_shuffle_by_seed_and_take_windows(files: dict[str, Path]) -> None:
    dataset = sw.Dataset(files["rgb"])

    def order(seed: int) -> list[sw.Window]:
        return [
            window for _, windows in dataset.chips((32, 48), (40, 50), shuffle=True, seed=seed) for window in windows
        ]

    assert order(3) == order(3) and order(3) != order(4)
    assert sorted(order(3)) == sorted(dataset.chips((32, 48), (40, 50)).windows)
    given = [sw.Window(5, 6, 20, 10), sw.Window(100, 200, 20, 10)]
    [(batch, windows)] = dataset.chips((10, 20), windows=given, bands=[2], prefetch=0, interleave="pixel")
    assert windows == given and np.array_equal(
        batch, np.stack([truth(files["rgb"])[1:2, y : y + h, x : x + w].transpose(1, 2, 0) for x, y, w, h in given])
    )
    for wrong in (
        {"size": 0},
        {"size": 500},
        {"size": 8, "batch": 0},
        {"size": 8, "windows": given},
        {"size": 8, "edge": "wrap"},
    ):
        with pytest.raises(sw.UsageError):
            dataset.chips(**wrong)


def test_abandoned_chips_stop_reading(files: dict[str, Path]) -> None:
    before = threading.active_count()
    for batch, _ in sw.Dataset(files["rgb"]).chips(16, batch=2, prefetch=3):
        assert batch.shape[0] == 2
        break
    gc.collect()
    assert threading.active_count() <= before


def test_windows_of_overviews_and_empty_lists(files: dict[str, Path]) -> None:
    dataset = sw.Dataset(files["rgb"])
    level = np.asarray(dataset.read(overview_level=0))
    batch = np.asarray(dataset.read_windows([(0, 0, 9, 8), sw.Window(30, 20, 8, 9)], [2], overview_level=0))
    assert np.array_equal(batch[1], level[1:2, 20:29, 30:38])
    with pytest.raises(sw.UsageError, match="no windows"):
        dataset.read_windows([])
    with pytest.raises(sw.UsageError):
        dataset.read_windows([(0, 0, 8, 8), (0, 0, 8, 9)])


def test_a_mask_is_as_rasterio_has_it(files: dict[str, Path]) -> None:
    with rasterio.open(files["dem"]) as source:
        expected = source.dataset_mask()
    assert np.array_equal(sw.Dataset(files["dem"]).read_mask(), expected)


def test_alpha_of_sixteen_bits_masks_as_in_gdal(folder: Path) -> None:
    """Pixels that are nearly transparent are still data."""
    path = folder / "alpha.tif"
    profile = {"driver": "GTiff", "width": 6, "height": 1, "count": 2, "dtype": "uint16", "alpha": "yes"}
    with rasterio.open(path, "w", **profile) as target:
        target.write(np.array([[[1, 2, 3, 4, 5, 6]], [[0, 1, 128, 257, 40000, 65535]]], "uint16"))
        target.colorinterp = [rasterio.enums.ColorInterp.gray, rasterio.enums.ColorInterp.alpha]
    with rasterio.open(path) as source:
        expected = source.dataset_mask()
    assert expected[0, 0] == 0 and expected[0, 1] != 0
    assert np.array_equal(sw.Dataset(path).read_mask(), expected)


@pytest.mark.skipif(not hasattr(os, "kill"), reason="signals")
def test_an_interrupt_ends_a_long_read(folder: Path) -> None:
    """A read of many tiles by one slow thread is interrupted; Python gets its KeyboardInterrupt soon after."""
    path = folder / "long.tif"
    sw.to_geotiff(np.zeros((6000, 6000), "float64"), path, compression="lzma", tile_size=512, sparse=False)
    code = """
    import os, signal, sys, threading, time, swath
    # A process that was started in the background may have been told to ignore it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    dataset = swath.Dataset(sys.argv[1], threads=1)
    try:
        threading.Timer(0.05, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        for _ in range(20):
            dataset.read()
    except KeyboardInterrupt:
        print("interrupted")
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), str(path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout.strip() == "interrupted", done.stderr


def test_python_and_the_command_give_the_same_reports(swath: Swath, files: dict[str, Path]) -> None:
    """The command's JSON and Python's dictionaries are the same document."""
    for path in files.values():
        for arguments, found in (
            (["info", str(path), "--json"], sw.info(path)),
            (["info", str(path), "--json", "--tags"], sw.info(path, tags=True)),
            (["validate", str(path), "--json"], sw.validate(path)),
            (["validate", str(path), "--json", "--full", "--strict"], sw.validate(path, full=True, strict=True)),
            (["stats", str(path), "--json"], sw.stats(path)),
        ):
            run = swath.run(*arguments)
            assert json.loads(run.stdout) == json.loads(json.dumps(found)), arguments
    printed, found = json.loads(swath.run("devices", "--json").stdout), sw.devices()
    assert (printed["driver"], printed["devices"]) == (found["driver"], found["devices"])
    # Python also searches NVIDIA's wheels, so reasons may differ.
    assert [library["name"] for library in printed["libraries"]] == [library["name"] for library in found["libraries"]]


def test_stats_report_progress(files: dict[str, Path]) -> None:
    reports: list[tuple[int, int]] = []
    found = sw.stats(files["rgb"], [2], progress=lambda done, all_: reports.append((done, all_)))
    assert [band["band"] for band in found["bands"]] == [2]
    assert reports and reports[-1][0] == reports[-1][1] == 300 * 420


def test_buffers_that_python_frees_stay_readable() -> None:
    data = io.BytesIO()
    sw.to_geotiff(np.arange(10000, dtype="uint32").reshape(100, 100), data)
    dataset = sw.Dataset(bytearray(data.getvalue()))
    del data
    gc.collect()
    ctypes.memset(ctypes.create_string_buffer(1 << 20), 255, 1 << 20)
    assert np.asarray(dataset.read()).sum() == 10000 * 9999 // 2
