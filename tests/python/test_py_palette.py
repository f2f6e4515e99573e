"""Colour tables through Python: of one band, and of one with alpha or other samples beside it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import rasterio
import swath
from rasterio.enums import ColorInterp

COLOURS = {value: (value, 255 - value, 4, 255) for value in range(256)}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Indices 10 and 200, and a second sample."""
    indices = np.where(np.random.default_rng(5).random((300, 400)) < 0.5, 10, 200).astype("uint8")
    other = np.full_like(indices, 7)
    swath.to_geotiff(np.stack([indices, other]), tmp_path / "s.tif", colormap=COLOURS)
    return tmp_path / "s.tif"


def test_second_sample(source: Path, tmp_path: Path) -> None:
    """Opened and written, indices keep their colours, and overviews are made of indices that the image has."""
    opened = swath.open_geotiff(source)
    assert opened.shape == (2, 300, 400) and len(opened.attrs["colormap"]) == 768
    swath.to_geotiff(opened, tmp_path / "t.tif", cog=True, tile_size=128)
    for path in (source, tmp_path / "t.tif"):
        with rasterio.open(path) as got:
            assert got.colorinterp == (ColorInterp.palette, ColorInterp.undefined)
            assert got.colormap(1) == COLOURS
            assert np.array_equal(got.read(), opened.values)
    with rasterio.open(tmp_path / "t.tif", overview_level=0) as got:
        assert set(np.unique(got.read(1))) == {10, 200}


def test_one_band_of_two(source: Path, tmp_path: Path) -> None:
    """The colours go with the indices, not with the other sample."""
    opened = swath.open_geotiff(source)
    for number in (1, 2):
        for part in (opened.sel(band=number), opened.sel(band=[number]), swath.open_geotiff(source, band=number)):
            swath.to_geotiff(part, tmp_path / "t.tif")
            with rasterio.open(tmp_path / "t.tif") as got:
                assert (got.colorinterp[0] == ColorInterp.palette) == (number == 1)
