"""Rasters whose rows do not fit into memory: written as blocks, in bounded memory, with the same bytes as from rows."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import swath
import xarray as xr
from swath import _write

MIB = 1 << 20


def terrain(shape: tuple[int, ...], dtype: str = "float32") -> np.ndarray:
    """Smooth samples with steps, and a hole."""
    y, x = np.mgrid[: shape[-2], : shape[-1]]
    plane = (np.sin(x / 50) * 100 + y / 3 + (x * y) % 7).astype(dtype)
    if np.dtype(dtype).kind == "f":
        plane[5:9, 3:40] = np.nan
    return np.stack([plane + band for band in range(shape[0])]) if len(shape) == 3 else plane


@pytest.fixture
def refuse_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes every write use blocks."""
    monkeypatch.setattr(_write.PreparedWrite, "_takes_rows", lambda *_: False)


WAYS = {
    "COG": {"cog": True, "tile_size": 64},
    "tiles": {"tile_size": (32, 64), "interleave": "band"},
    "strips": {"tiled": False, "blockysize": 16},
    "nodata": {"cog": True, "tile_size": 64, "nodata": -9999.0, "overview_resampling": "cubic"},
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("shape", [(256, 384), (3, 257, 391)])
@pytest.mark.usefixtures("refuse_rows")
def test_arrays_as_blocks_are_the_same_file(way: str, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    data = terrain(shape)
    blocks = swath.to_geotiff(data, None, **WAYS[way])
    lazy = swath.to_geotiff(da.from_array(data, chunks=(100,) * len(shape)), None, **WAYS[way])
    monkeypatch.undo()
    assert blocks == lazy == swath.to_geotiff(data, None, **WAYS[way])


@pytest.mark.usefixtures("refuse_rows")
def test_everything_that_is_written_is_written_as_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = terrain((3, 130, 150))
    swath.to_geotiff(data, tmp_path / "a.tif", tile_size=32)
    cases: dict[str, Any] = {
        "pixels": (np.moveaxis(data, 0, -1), {"dims": ("y", "x", "band")}),
        "bytes": (terrain((70, 90)), {"dtype": "int16", "nodata": -1}),
        "DataArray": (xr.DataArray(data, dims=("band", "y", "x")), {}),
        "Dataset": (xr.Dataset({name: (("y", "x"), data[band]) for band, name in enumerate("abc")}), {}),
        "unread": (xr.open_dataset(tmp_path / "a.tif", engine="swath"), {}),
        "bands apart": (da.from_array(data, chunks=(1, 50, 70)), {}),
        "masked": (np.ma.masked_invalid(data), {"nodata": 7.0}),
    }
    made = {
        name: swath.to_geotiff(case, None, cog=True, tile_size=64, **words) for name, (case, words) in cases.items()
    }
    monkeypatch.undo()
    for name, (case, words) in cases.items():
        assert made[name] == swath.to_geotiff(case, None, cog=True, tile_size=64, **words), name


def test_a_limit_too_small_for_rows_is_enough_for_blocks() -> None:
    data = terrain((600, 20_000))
    words: dict[str, Any] = {"cog": True, "compression": "lzw", "max_memory": 64 * MIB}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        eager = swath.to_geotiff(data, None, **words)
        lazy = swath.to_geotiff(da.from_array(data, chunks=(512, 3000)), None, **words)
    assert eager == lazy == swath.to_geotiff(data, None, cog=True, compression="lzw", max_memory=1 << 30)


def test_only_a_limit_that_the_caller_gives_refuses() -> None:
    data = terrain((300, 400))
    with pytest.raises(swath.LimitError, match=r"from blocks takes [0-9]+ bytes of memory, 1000000 are allowed"):
        swath.to_geotiff(data, None, max_memory=1_000_000)
    with pytest.raises(swath.LimitError, match=r"1000000 are allowed|875000 are allowed"):
        swath.to_geotiff(da.from_array(data, chunks=100), None, max_memory=1_000_000)


def test_exceeding_the_default_limit_causes_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    data = terrain((300, 400))
    expected = swath.to_geotiff(data, None)
    monkeypatch.setattr(_write, "MEMORY", MIB)
    with pytest.warns(swath.SwathWarning, match=r"at least [0-9]+ bytes of memory, more than the 1048576") as warned:
        assert swath.to_geotiff(data, None) == expected
    assert len(warned) == 1 and warned[0].filename == __file__


WIDE = """
import sys
import warnings
import dask.array as da
import numpy as np
import swath

warnings.simplefilter("error", swath.SwathWarning)
path, rows, columns, dtype, tile, chunk = sys.argv[1], *map(int, sys.argv[2:4]), sys.argv[4], *map(int, sys.argv[5:])

def make(block_id):
    height, width = min(512, rows - block_id[0] * 512), min(chunk, columns - block_id[1] * chunk)
    # Small numbers, so that the samples are most of what a task holds.
    y = ((np.arange(height) + block_id[0] * 512) * 3 % 251).astype("uint16")
    x = ((np.arange(width) + block_id[1] * chunk) // 7 % 251).astype("uint16")
    return ((x[None, :] + y[:, None]) % np.uint16(251)).astype(dtype)

def cut(size, step):
    return (step,) * (size // step) + ((size % step,) if size % step else ())

array = da.map_blocks(make, chunks=(cut(rows, 512), cut(columns, chunk)), dtype=dtype, meta=np.empty((0, 0), dtype))
swath.to_geotiff(array, path, cog=True, tile_size=tile, compression_level=1)
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(int(peak.split()[1]) * 1024)
"""


@pytest.mark.parametrize(
    ("rows", "columns", "dtype", "tile", "chunk"),
    [
        (600, 200_000, "float32", 512, 4096),
        (272, 4_000_000, "uint8", 256, 16_384),
        (130, 1_000_001, "uint16", 128, 30_000),
    ],
)
def test_very_wide_rasters_take_bounded_memory(
    tmp_path: Path, rows: int, columns: int, dtype: str, tile: int, chunk: int
) -> None:
    path = tmp_path / "wide.tif"
    argv = [sys.executable, "-c", WIDE, path, rows, columns, dtype, tile, chunk]
    run = subprocess.run(list(map(str, argv)), capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    # 256 MiB for the engine, 256 MiB for chunks, and the rest for the interpreter and its libraries.
    assert int(run.stdout) < (256 + 256 + 200) * MIB
    x = np.arange(columns - 300, columns)
    with swath.Dataset(path) as dataset:
        assert dataset.shape == (1, rows, columns)
        for row in (0, rows - 1):
            found = np.asarray(dataset.read(1, window=swath.Window(columns - 300, row, 300, 1)))
            np.testing.assert_array_equal(found.ravel(), ((x // 7 + row * 3) % 251).astype(dtype))
        assert len(dataset.overview_sizes) > 5
    left = list(tmp_path.iterdir())
    assert left == [path]
