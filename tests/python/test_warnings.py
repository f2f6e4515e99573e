"""Samples that were repaired, or that GDAL reads differently, cause one warning per read."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
import swath as sw
import tifffile
from harness import Swath


def write(path: Path, array: np.ndarray, **options: Any) -> Path:
    height, width = array.shape
    profile = {"driver": "GTiff", "dtype": "uint8", "count": 1, "height": height, "width": width}
    with rasterio.open(path, "w", **profile, **options) as out:
        out.write(array, 1)
    return path


def strips(path: Path) -> list[tuple[int, int]]:
    with tifffile.TiffFile(path) as file:
        return list(zip(file.pages[0].dataoffsets, file.pages[0].databytecounts))


def read(path: Path) -> tuple[np.ndarray, list[str]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = np.asarray(sw.read(path))
    assert all(issubclass(entry.category, sw.SwathWarning) for entry in caught)
    return found, [str(entry.message) for entry in caught]


def by_gdal(path: Path) -> np.ndarray:
    with rasterio.open(path) as file:
        return file.read()


@pytest.fixture
def fax(tmp_path: Path) -> Path:
    """Group 3 fax with damage in every strip that libtiff tolerates."""
    draw = np.random.default_rng(1)
    array = np.repeat(draw.integers(0, 2, (64, 40), "uint8"), 8, axis=1)
    path = write(tmp_path / "fax.tif", array, compress="ccittfax3", nbits=1, blockysize=16)
    assert read(path)[1] == []
    content = bytearray(path.read_bytes())
    for number, (offset, count) in enumerate(strips(path)):
        wanted = f"({number + 1} tiles or strips" if number else "CCITT"
        for at in range(offset + count // 3, offset + count - 20):
            changed = content.copy()
            changed[at] ^= 0x10
            path.write_bytes(changed)
            try:
                _, warned = read(path)
            except sw.Error:
                continue
            if warned and wanted in warned[0]:
                content = changed
                break
    path.write_bytes(content)
    return path


def test_repaired_fax_rows_warn_once_a_read(fax: Path) -> None:
    for _ in range(2):
        found, warned = read(fax)
        assert len(warned) == 1, warned
        assert "fax.tif: IFD 0, tile (0, 0)" in warned[0] and "CCITT" in warned[0] and "repaired" in warned[0]
        assert "(4 tiles or strips" in warned[0]
        np.testing.assert_array_equal(found, by_gdal(fax))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(sw.SwathWarning, match="repaired"):
            sw.read(fax)
    with pytest.warns(sw.SwathWarning, match="repaired"):
        sw.open_geotiff(fax).load()
    with pytest.warns(sw.SwathWarning, match="repaired"):
        sw.stats(fax)


def test_repaired_fax_rows_warn_on_the_command_line(swath: Swath, fax: Path, tmp_path: Path) -> None:
    for command in (
        ("dump", fax, "--out", tmp_path / "a.npy"),
        ("stats", fax),
        ("convert", fax, tmp_path / "a.tif", "--compress", "deflate"),
        ("preview", fax, tmp_path / "a.png"),
    ):
        run = swath.run(*command)
        assert run.ok, run.stderr
        warned = [line for line in run.stderr.splitlines() if line.startswith("warning: ")]
        assert len(warned) == 1 and "fax.tif" in warned[0] and "repaired" in warned[0], run.stderr


def test_packbits_across_rows_warn_where_gdal_reads_other_samples(tmp_path: Path) -> None:
    draw = np.random.default_rng(2)
    for rows in (2500, 500):
        array = np.repeat(draw.integers(0, 9, (rows, 10), "uint8"), 4, axis=1)
        path = write(tmp_path / f"{rows}.tif", array, compress="packbits", blockysize=rows)
        found, warned = read(path)
        assert warned == []
        np.testing.assert_array_equal(found[0], array)
        content = path.read_bytes()
        ((offset, count),) = strips(path)
        differ = 0
        for _ in range(60):
            at = offset + int(draw.integers(count))
            changed = bytearray(content)
            changed[at] ^= 1 << int(draw.integers(8))
            path.write_bytes(changed)
            try:
                found, warned = read(path)
                same = np.array_equal(found, by_gdal(path))
            except (sw.Error, rasterio.errors.RasterioIOError):
                continue
            assert same or (len(warned) == 1 and "PackBits" in warned[0]), at
            differ += not same
        assert (differ > 0) == (rows == 2500)
