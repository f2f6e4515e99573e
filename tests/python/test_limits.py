"""Limits on files: small files of large constant images are read, absurd ones are refused with a message that names the
option of the interface, and missing memory is an error."""

from __future__ import annotations

import resource
import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest
import rasterio
import swath as sw
from harness import MIB, Swath


@pytest.fixture(scope="module")
def constant(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """248 MB of nodata in less than 15 KB."""
    path = tmp_path_factory.mktemp("limits") / "constant.tif"
    profile = {"driver": "GTiff", "dtype": "float32", "count": 1, "width": 8000, "height": 7750, "nodata": 0}
    with rasterio.open(path, "w", tiled=True, blockxsize=2048, blockysize=2048, compress="zstd", **profile) as out:
        out.write(np.zeros((1, 7750, 8000), "float32"))
    assert path.stat().st_size < 15_000
    return path


@pytest.fixture(scope="module")
def absurd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A few hundred bytes that declare 1.6 GB."""
    path = tmp_path_factory.mktemp("limits") / "absurd.tif"
    profile = {"driver": "GTiff", "dtype": "uint8", "count": 1, "width": 40_000, "height": 40_000, "compress": "zstd"}
    with rasterio.open(path, "w", tiled=True, blockxsize=8192, blockysize=8192, SPARSE_OK=True, **profile):
        pass
    assert path.stat().st_size < 2000
    return path


def test_a_small_file_of_a_large_constant_image_is_read(swath: Swath, folder: Path, constant: Path) -> None:
    assert not np.asarray(sw.read(constant)).any()
    assert np.isnan(sw.open_geotiff(constant, masked=True).values).all()
    assert sw.stats(constant)["bands"][0]["valid"] == 0
    for command in (
        ("dump", constant, "--out", folder / "a.npy"),
        ("stats", constant),
        ("preview", constant, folder / "a.png"),
        ("convert", constant, folder / "a.tif"),
        ("compare", constant, folder / "a.tif"),
    ):
        run = swath.run(*command, timeout=120)
        assert run.ok, run.stderr
    (folder / "a.npy").unlink()


def test_absurd_sizes_are_refused_with_the_option_of_the_command(swath: Swath, folder: Path, absurd: Path) -> None:
    for command in (
        ("dump", absurd, "--out", folder / "b.npy"),
        ("stats", absurd),
        ("convert", absurd, folder / "b.tif"),
        ("compare", absurd, absurd),
    ):
        run = swath.run(*command)
        message = run.check_refusal(absurd)
        assert "--unlimited" in message and "Limits" not in message, message
        assert run.peak < 128 * MIB
    window = ("--window", "0,0,100,100")
    assert swath.run("dump", absurd, "--out", folder / "b.npy", *window, "--unlimited").ok
    assert swath.run("stats", absurd, "--unlimited", timeout=120).ok
    # A small window needs no permission.
    assert swath.run("dump", absurd, "--out", folder / "b.npy", *window).ok


def test_absurd_sizes_are_refused_with_the_keyword_of_python(absurd: Path) -> None:
    for attempt in (lambda: sw.read(absurd), lambda: sw.open_geotiff(absurd), lambda: sw.stats(absurd)):
        with pytest.raises(sw.LimitError, match="max_pixels=") as refused:
            attempt()
        assert "Limits" not in str(refused.value)
    assert sw.Dataset(absurd, max_pixels=40_000**2).read().shape == (1, 40_000, 40_000)
    window = (0, 0, 100, 100)
    assert sw.read(absurd, 1, window, max_pixels=40_000**2).shape == (100, 100)
    with pytest.raises(sw.LimitError, match="max_pixels allows 1000"):
        sw.read(absurd, 1, window, max_pixels=1000)
    assert sw.stats(absurd, max_pixels=40_000**2)["bands"][0]["valid"] == 40_000**2
    assert sw.info(absurd, max_pixels=1000)["width"] == 40_000
    assert sw.validate(absurd, full=True, max_pixels=40_000**2)["errors"] is not None
    with pytest.raises(sw.UsageError, match="open already: give max_pixels where"):
        sw.stats(sw.Dataset(absurd), max_pixels=1000)
    with pytest.raises(sw.LimitError, match="max_pixels allows 1000"):
        sw.Dataset(absurd, max_pixels=1000).read()


def test_missing_memory_is_an_error(swath: Swath, folder: Path) -> None:
    """One pixel of a tile of 900 MB, in a process that may have 600 MB."""
    path = folder / "tile.tif"
    side = 30_000
    stream = b"\xfd7zXZ\0" + bytes(1000)
    tags = [(256, side), (257, side), (258, 8), (259, 34925), (262, 1), (277, 1), (322, side), (323, side)]
    entries = [(tag, 4, 1, value) for tag, value in tags]
    end = 8 + 2 + 12 * (len(tags) + 2) + 4
    entries += [(324, 4, 1, end), (325, 4, 1, len(stream))]
    directory = b"".join(struct.pack("<HHII", *entry) for entry in entries)
    path.write_bytes(b"II*\0" + struct.pack("<IH", 8, len(entries)) + directory + bytes(4) + stream)

    def small() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (600 * MIB, 600 * MIB))

    command = [swath.binary, "dump", path, "--out", folder / "c.npy", "--window", "0,0,1,1", "--device", "cpu"]
    done = subprocess.run(command, preexec_fn=small, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert "no memory for 900000000 bytes" in done.stderr, done.stderr
