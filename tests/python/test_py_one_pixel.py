"""Rasters of one row, one column or one pixel: coordinates define no pixel size, so the transform beside them does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import rasterio
import rioxarray
import swath
import xarray as xr
from rasterio.transform import Affine

# rioxarray uses an operator that `affine` is about to drop.
pytestmark = pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")

GRID = Affine(10, 0, 4e5, 0, -20, 52e5)
SHAPES = [(1, 1), (1, 5), (5, 1)]


def stored(path: Path, shape: tuple[int, int]) -> Path:
    rows, columns = shape
    with rasterio.open(path, "w", driver="GTiff", dtype="float32", count=1, height=rows, width=columns,
                       crs="EPSG:32633", transform=GRID) as out:  # fmt: skip
        out.write(np.arange(rows * columns, dtype="f4").reshape(1, rows, columns))
    return path


def transform(path: Path) -> Affine:
    with rasterio.open(path) as dataset:
        return dataset.transform


def bare(shape: tuple[int, int]) -> xr.DataArray:
    """Coordinates of centres and nothing else."""
    rows, columns = shape
    places = {"y": GRID.f - 10 - 20 * np.arange(rows), "x": GRID.c + 5 + 10 * np.arange(columns)}
    return xr.DataArray(np.zeros(shape, "f4"), dims=("y", "x"), coords=places)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_an_opened_raster_keeps_its_transform(tmp_path: Path, shape: tuple[int, int]) -> None:
    path, copy = stored(tmp_path / "a.tif", shape), tmp_path / "b.tif"
    want = rioxarray.open_rasterio(path)
    assert isinstance(want, xr.DataArray)
    for words in ({}, {"masked": True}, {"chunks": 1}):
        found = swath.open_geotiff(path, **words)
        assert np.array_equal(found.x, want.x) and np.array_equal(found.y, want.y)
        swath.to_geotiff(found, copy)
        assert transform(copy) == GRID
    swath.to_geotiff(want, copy)
    assert transform(copy) == GRID


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_given_transform_is_written(tmp_path: Path, shape: tuple[int, int]) -> None:
    path = tmp_path / "a.tif"
    swath.to_geotiff(np.zeros(shape, "f4"), path, transform=GRID)
    assert transform(path) == GRID
    data = bare(shape)
    swath.to_geotiff(data, path, transform=GRID)
    assert transform(path) == GRID
    for placed in (
        data.assign_attrs(transform=tuple(GRID)[:6]),
        data.rio.write_transform(GRID),
        data.expand_dims("band").rio.write_transform(GRID),
    ):
        swath.to_geotiff(placed, path)
        assert transform(path) == GRID
    with pytest.raises(swath.UsageError, match=r"one value.*transform="):
        swath.to_geotiff(data, path)


@pytest.mark.parametrize(
    ("rows", "columns"),
    [(slice(2, 3), slice(3, 4)), (slice(2, 3), slice(None)), (slice(None), slice(3, 4)), ([2], [3])],
)
def test_a_selected_pixel_keeps_its_position(tmp_path: Path, rows: slice, columns: slice) -> None:
    """The position comes from the coordinates, and only the pixel size from the transform."""
    path, copy = stored(tmp_path / "a.tif", (5, 6)), tmp_path / "b.tif"
    x = 0 if columns == slice(None) else 3
    y = 0 if rows == slice(None) else 2
    for found in (swath.open_geotiff(path), rioxarray.open_rasterio(path)):
        assert isinstance(found, xr.DataArray)
        swath.to_geotiff(found.isel(y=rows, x=columns), copy)
        assert transform(copy) == GRID * Affine.translation(x, y)
