"""Windows of files of one strip: the strip is kept if it fits, else decoding continues where the last window ended."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
import swath as sw
import tifffile

SHAPE = (2900, 3100)


def pixels(bands: int) -> np.ndarray:
    y, x = np.mgrid[: SHAPE[0], : SHAPE[1]]
    noise = np.random.default_rng(3).integers(0, 9, (bands, *SHAPE))
    return (1000 + x // 7 + y // 3 + noise).astype("uint16")


def write(path: Path, array: np.ndarray, **options: Any) -> Path:
    profile = {"driver": "GTiff", "dtype": array.dtype, "count": len(array), "height": SHAPE[0], "width": SHAPE[1]}
    with rasterio.open(path, "w", blockysize=SHAPE[0], predictor=2, **profile, **options) as out:
        out.write(array)
    return path


def boxes(count: int) -> list[tuple[int, int]]:
    draw = random.Random(count)
    return [(draw.randrange(SHAPE[0] - 200), draw.randrange(SHAPE[1] - 200)) for _ in range(count)]


@pytest.mark.parametrize("tile_cache", [None, 0], ids=["kept", "in steps"])
@pytest.mark.parametrize("interleave", ["band", "pixel"])
@pytest.mark.parametrize("codec", ["deflate", "zstd", "lzw"])
def test_windows_in_any_order(tmp_path: Path, codec: str, interleave: str, tile_cache: int | None) -> None:
    array = pixels(2)
    path = write(tmp_path / "a.tif", array, compress=codec, interleave=interleave)
    dataset = sw.Dataset(path, tile_cache=tile_cache)

    def check(place: tuple[int, int]) -> None:
        row, column = place
        part = (slice(None), slice(row, row + 200), slice(column, column + 200))
        found = np.asarray(dataset.read(window=(row, column, row + 200, column + 200)))
        np.testing.assert_array_equal(found, array[part])

    places = boxes(8)
    for order in (sorted(places), places, sorted(places, reverse=True)):
        for place in order:
            check(place)
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(check, boxes(24)))
    # The last rows, and the whole.
    check((SHAPE[0] - 200, 0))
    np.testing.assert_array_equal(np.asarray(dataset.read()), array)


@pytest.mark.parametrize("codec", ["deflate", "zstd"])
@pytest.mark.parametrize("tile_cache", [None, 0], ids=["kept", "in steps"])
def test_many_windows_cost_little_more_than_one_pass(tmp_path: Path, codec: str, tile_cache: int | None) -> None:
    path = write(tmp_path / "a.tif", pixels(1), compress=codec)

    def seconds(rows: list[int]) -> float:
        dataset = sw.Dataset(path, tile_cache=tile_cache)
        started = time.process_time()
        for row in rows:
            dataset.read(window=(row, 0, row + 20, 100))
        return time.process_time() - started

    rows = list(range(0, SHAPE[0] - 20, 20))
    one = min(seconds([rows[-1]]) for _ in range(3))
    many = min(seconds(rows) for _ in range(3))
    assert many < 20 * one, f"{len(rows)} windows take {many:.2f} s, one takes {one:.3f} s"


@pytest.mark.parametrize("codec", ["deflate", "zstd"])
def test_damage_behind_a_window_fails_only_windows_that_reach_it(tmp_path: Path, codec: str) -> None:
    path = write(tmp_path / "a.tif", pixels(1), compress=codec)
    with tifffile.TiffFile(path) as file:
        (offset,), (count,) = file.pages[0].dataoffsets, file.pages[0].databytecounts
    content = bytearray(path.read_bytes())
    content[offset + count * 3 // 4] ^= 0x55
    path.write_bytes(content)
    dataset = sw.Dataset(path, tile_cache=0)
    top = (0, 0, 100, 100)
    np.testing.assert_array_equal(np.asarray(dataset.read(window=top))[0], pixels(1)[0, :100, :100])
    for _ in range(2):
        with pytest.raises(sw.FormatError, match=r"a\.tif: IFD 0, tile \(0, 0\)"):
            dataset.read(window=(SHAPE[0] - 100, 0, SHAPE[0], 100))
    np.testing.assert_array_equal(np.asarray(dataset.read(window=top))[0], pixels(1)[0, :100, :100])


def test_a_stream_that_is_cut_off_or_too_long_is_an_error(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tif", pixels(1), compress="deflate")
    with tifffile.TiffFile(path, mode="r+b") as file:
        tag = file.pages[0].tags["StripByteCounts"]
        tag.overwrite(tag.value[0] - 1000)
    dataset = sw.Dataset(path, tile_cache=0)
    with pytest.raises(sw.FormatError, match=r"ends after|cut off"):
        dataset.read(window=(SHAPE[0] - 100, 0, SHAPE[0], 100))


PEAK = """
import resource, sys, swath
dataset = swath.Dataset(sys.argv[1], tile_cache=0)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for row in range(0, 9000, 500):
    dataset.read(window=(row, 0, row + 100, 100))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_memory_is_that_of_the_window(tmp_path: Path) -> None:
    """A strip of 180 MB, read in steps of 2 MB."""
    path = tmp_path / "a.tif"
    rows = np.arange(10_000, dtype="uint16")[None, :] + np.arange(9000, dtype="uint16")[:, None]
    profile = {"driver": "GTiff", "dtype": "uint16", "count": 1, "height": 9000, "width": 10_000}
    with rasterio.open(path, "w", blockysize=9000, compress="zstd", predictor=2, **profile) as out:
        out.write(rows, 1)
    done = subprocess.run([sys.executable, "-c", PEAK, path], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 60_000, f"{done.stdout} KiB"
