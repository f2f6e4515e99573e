"""Colour tables through Python: of one band, and of one with alpha or other samples beside it."""

from __future__ import annotations

import warnings
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
    """After opening and writing, indices keep their colours, and overviews have only indices of the image."""
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
    """The colours belong to the indices, not to the other sample."""
    opened = swath.open_geotiff(source)
    for number in (1, 2):
        for part in (opened.sel(band=number), opened.sel(band=[number]), swath.open_geotiff(source, band=number)):
            swath.to_geotiff(part, tmp_path / "t.tif")
            with rasterio.open(tmp_path / "t.tif") as got:
                assert (got.colorinterp[0] == ColorInterp.palette) == (number == 1)


@pytest.fixture
def transparent(tmp_path: Path) -> Path:
    """Indices 10 and 200, and an alpha that hides the first rows."""
    indices = np.where(np.random.default_rng(5).random((300, 400)) < 0.5, 10, 200).astype("uint8")
    alpha = np.full_like(indices, 255)
    alpha[:20] = 0
    swath.to_geotiff(np.stack([indices, alpha]), tmp_path / "s.tif", colormap=COLOURS, alpha=True)
    return tmp_path / "s.tif"


def test_alpha(transparent: Path, tmp_path: Path) -> None:
    """After opening and writing, indices keep their colours and their alpha."""
    opened = swath.open_geotiff(transparent)
    swath.to_geotiff(opened, tmp_path / "t.tif", cog=True, tile_size=128)
    with rasterio.open(tmp_path / "t.tif") as got:
        assert got.colorinterp == (ColorInterp.palette, ColorInterp.alpha)
        assert got.colormap(1) == COLOURS
        assert np.array_equal(got.read(), opened.values)
    with rasterio.open(tmp_path / "t.tif", overview_level=0) as got:
        assert set(np.unique(got.read(1))) == {10, 200}


@pytest.mark.parametrize("words", [{}, {"dtype": "float32"}])
def test_masked_indices(transparent: Path, tmp_path: Path, words: dict[str, str]) -> None:
    """Floats have no colours, which causes a warning, and their overviews have only indices of the image."""
    masked = swath.open_geotiff(transparent, masked=True)
    assert np.isnan(masked.values).any()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        swath.to_geotiff(masked, tmp_path / "t.tif", cog=True, tile_size=128, **words)
    assert any("the colour table is left out" in str(warning.message) for warning in caught)
    with rasterio.open(tmp_path / "t.tif", overview_level=0) as got:
        assert got.dtypes[0] == "float32"
        found = got.read(1)
        assert set(np.unique(found[~np.isnan(found)])) == {10, 200}
