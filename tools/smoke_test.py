#!/usr/bin/env python3
"""Uses an installed wheel the way a new user does, with NumPy alone: write, read, COG, validate, errors."""

from __future__ import annotations

import os
import sys
import tempfile
from importlib.metadata import requires
from pathlib import Path

import numpy as np
import swath

# What the wheel must bring itself: the codecs of every optional feature.
CODECS = ("deflate", "zstd", "lzw", "lerc", "lz4", "lzma", "jpeg", "webp", "jpeg2000")
LOSSY = ("jpeg",)


def write_and_read(folder: Path) -> None:
    """Every codec gives back what was written, by whole reads and by windows."""
    pixels = (np.arange(600 * 700).reshape(600, 700) // 600 % 251).astype("uint8")
    for codec in CODECS:
        path = folder / f"{codec}.tif"
        lossless = {"lossless": True} if codec in ("webp", "jpeg2000") else {}
        samples = np.stack([pixels] * 3) if codec == "webp" else pixels
        swath.to_geotiff(samples, path, crs=32633, compression=codec, **lossless)
        found = np.squeeze(swath.read(path))
        assert found.dtype == "uint8" and found.shape == samples.shape, (codec, found.shape)
        worst = np.abs(found.astype(int) - samples).max()
        assert worst <= (40 if codec in LOSSY else 0), (codec, worst)
        corner = np.squeeze(swath.read(path, window=(50, 100, 82, 164)))
        assert np.array_equal(corner, found[..., 50:82, 100:164]), codec


def write_a_cog(folder: Path) -> None:
    """A COG with overviews is valid, and its metadata comes back."""
    path = folder / "cog.tif"
    heights = np.linspace(0, 3000, 1500 * 1500, dtype="float32").reshape(1500, 1500)
    heights[:100] = -9999
    swath.to_geotiff(
        heights, path, cog=True, crs="EPSG:32633", transform=(10, 0, 500_000, 0, -10, 5_000_000), nodata=-9999
    )
    verdict = swath.validate(path)
    assert verdict["valid"], verdict
    with swath.Dataset(path) as dataset:
        assert dataset.nodata == -9999 and dataset.overviews(), dataset
        assert np.array_equal(np.squeeze(dataset.read()), heights)


def refuse_damage(folder: Path) -> None:
    """A damaged file is an error with a class of its own, and a missing one is Python's."""
    path = folder / "damaged.tif"
    path.write_bytes((folder / "deflate.tif").read_bytes()[:1000])
    try:
        swath.read(path)
    except swath.Error as error:
        assert "damaged.tif" in str(error), error
    else:
        raise AssertionError("a damaged file was read")
    try:
        swath.read(folder / "missing.tif")
    except FileNotFoundError:
        pass
    else:
        raise AssertionError("a missing file was read")


def main() -> None:
    """Runs every check in a folder of its own."""
    needed = [line for line in requires("swath") or [] if "extra ==" not in line]
    assert len(needed) == 1 and needed[0].startswith("numpy"), needed
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        write_and_read(Path(folder))
        write_a_cog(Path(folder))
        refuse_damage(Path(folder))
        os.chdir(Path(__file__).parent)
    python = ".".join(map(str, sys.version_info[:3]))
    print(f"swath {swath.__version__} works with Python {python} and NumPy {np.__version__}")


if __name__ == "__main__":
    main()
