"""The mask of a file stays with the pixels that it describes, from `open_geotiff` to `to_geotiff`."""

from __future__ import annotations

import copy
import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
import swath
import swath.xrspatial
import xarray as xr
from rasterio.enums import MaskFlags
from rasterio.transform import from_origin

DATA = np.arange(2 * 40 * 50, dtype="uint16").reshape(2, 40, 50)
SHOWN = np.arange(40 * 50).reshape(40, 50) % 7 != 0


def made(path: Path, data: np.ndarray = DATA, *, inside: bool = True, **words: Any) -> Path:
    """A file that rasterio writes, with a mask in it or beside it."""
    words = {"crs": "EPSG:32633", "transform": from_origin(5e5, 5e6, 10, 10), **words}
    with (
        rasterio.Env(GDAL_TIFF_INTERNAL_MASK=inside),
        rasterio.open(
            path, "w", driver="GTiff", width=50, height=40, count=len(data), dtype=data.dtype, **words
        ) as file,
    ):
        file.write(data)
        file.write_mask(SHOWN)
    return path


def masks(written: Any) -> tuple[Any, np.ndarray]:
    """Flags and mask of what was written, as rasterio reads them."""
    with rasterio.MemoryFile(written) as memory, memory.open() as file:
        return file.mask_flag_enums[0], file.read_masks(1) != 0


@pytest.fixture
def path(folder: Path) -> Path:
    return made(folder / "masked.tif")


@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize(
    "words", [{}, {"chunks": 16}, {"lazy": True}, {"masked": True}, {"masked": True, "lazy": True}]
)
def test_the_mask_survives(folder: Path, inside: bool, words: dict[str, Any]) -> None:
    path = made(folder / "masked.tif", inside=inside)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        written = swath.to_geotiff(swath.open_geotiff(path, **words), None)
    flags, mask = masks(written)
    assert flags == [MaskFlags.per_dataset]
    np.testing.assert_array_equal(mask, SHOWN)
    found = swath.read(written)
    assert found.dtype == DATA.dtype
    np.testing.assert_array_equal(found[:, SHOWN], DATA[:, SHOWN])


def test_the_mask_survives_into_its_own_file(path: Path) -> None:
    swath.to_geotiff(swath.open_geotiff(path), path, cog=True)
    with rasterio.open(path) as file:
        np.testing.assert_array_equal(file.read_masks(1) != 0, SHOWN)


def test_the_mask_follows_a_selection(path: Path) -> None:
    array = swath.open_geotiff(path)
    for part, shown in (
        (array.isel(y=slice(3, 20), x=slice(10, 45)), SHOWN[3:20, 10:45]),
        (array.isel(band=1), SHOWN),
        (array.sel(x=slice(500_100, 500_300)), SHOWN[:, 10:30]),
        (swath.open_geotiff(path, window=(5, 6, 30, 40)), SHOWN[5:30, 6:40]),
        (swath.open_geotiff(path, window=(5, 6, 30, 40)).isel(x=slice(2, 9)), SHOWN[5:30, 8:15]),
        (copy.deepcopy(array), SHOWN),
        (pickle.loads(pickle.dumps(array)), SHOWN),
        (array.copy(data=array.values + 1), SHOWN),
    ):
        np.testing.assert_array_equal(masks(swath.to_geotiff(part, None))[1], shown)


@pytest.mark.parametrize(
    "change", [lambda a: a.isel(x=slice(None, None, -1)), lambda a: a.isel(y=slice(None, None, 2))]
)
def test_other_pixels_have_no_mask_and_that_is_said(path: Path, change: Any) -> None:
    with pytest.warns(swath.SwathWarning, match=r"the mask of the file is left out.*mask="):
        written = swath.to_geotiff(change(swath.open_geotiff(path)), None)
    assert masks(written)[0] == [MaskFlags.all_valid]


def test_several_files_have_no_common_mask(path: Path) -> None:
    array = swath.open_geotiff(path, band=1).drop_vars("band")
    with pytest.warns(swath.SwathWarning, match="the mask of the file is left out"):
        written = swath.to_geotiff(xr.concat([array, array], "band"), None)
    assert masks(written)[0] == [MaskFlags.all_valid]


def test_the_caller_decides(path: Path) -> None:
    array = swath.open_geotiff(path)
    assert masks(swath.to_geotiff(array, None, mask=False))[0] == [MaskFlags.all_valid]
    np.testing.assert_array_equal(masks(swath.to_geotiff(array, None, mask=~SHOWN))[1], ~SHOWN)


def test_samples_that_were_filled_are_no_longer_hidden(path: Path) -> None:
    array = swath.open_geotiff(path, masked=True)
    values = array.values.copy()
    values[:, :20] = np.nan_to_num(values[:, :20], nan=5)
    flags, mask = masks(swath.to_geotiff(array.copy(data=values), None))
    assert flags == [MaskFlags.per_dataset]
    np.testing.assert_array_equal(mask, np.where(np.arange(40)[:, None] < 20, True, SHOWN))


def test_samples_that_miss_in_one_band_are_floats(path: Path) -> None:
    array = swath.open_geotiff(path, masked=True)
    values = array.values.copy()
    values[0, 0, 1] = np.nan
    with pytest.warns(swath.SwathWarning, match="samples are written as float32"):
        written = swath.to_geotiff(array.copy(data=values), None)
    np.testing.assert_array_equal(swath.read(written), values)


def test_masked_dask_arrays_say_what_becomes_of_the_mask(path: Path) -> None:
    array = swath.open_geotiff(path, masked=True, chunks=16)
    with pytest.warns(swath.SwathWarning, match=r"give mask= or nodata="):
        written = swath.to_geotiff(array, None, nodata=65535)
    np.testing.assert_array_equal(masks(written)[1], SHOWN)


def test_a_file_that_is_gone_leaves_a_warning(folder: Path) -> None:
    path = made(folder / "masked.tif")
    array = swath.open_geotiff(path)
    made(folder / "other.tif", DATA + 1).replace(path)
    with pytest.warns(swath.SwathWarning, match="cannot be read any more"):
        written = swath.to_geotiff(array, None)
    np.testing.assert_array_equal(swath.read(written), DATA)


def test_variables_share_the_mask(path: Path) -> None:
    written = swath.to_geotiff(swath.open_geotiff(path, band_as_variable=True), None)
    np.testing.assert_array_equal(masks(written)[1], SHOWN)
    dataset = xr.open_dataset(path, engine="swath", mask_and_scale=False)
    np.testing.assert_array_equal(masks(swath.to_geotiff(dataset, None))[1], SHOWN)
    masked = swath.open_geotiff(path, band_as_variable=True, masked=True)
    np.testing.assert_array_equal(masks(swath.to_geotiff(masked, None))[1], SHOWN)


def test_a_mask_of_opacity_keeps_its_values(folder: Path) -> None:
    opacity = np.arange(40 * 50, dtype="uint8").reshape(40, 50)
    path = made(folder / "a.tif", inside=False)
    with rasterio.open(f"{path}.msk", "r+") as file:
        assert file.dtypes[0] == "uint8"
    profile = {"driver": "GTiff", "width": 50, "height": 40, "count": 1, "dtype": "uint8"}
    with rasterio.open(f"{path}.msk", "w", **profile) as file:
        file.write(opacity, 1)
        file.update_tags(INTERNAL_MASK_FLAGS_1="2", INTERNAL_MASK_FLAGS_2="2")
    found = swath.Dataset(path).dataset_mask()
    written = swath.Dataset(swath.to_geotiff(swath.open_geotiff(path), None)).dataset_mask()
    np.testing.assert_array_equal(written, found)
    assert len(np.unique(written)) > 2


def test_overviews_have_their_own_mask(folder: Path) -> None:
    path = swath.to_geotiff(DATA, folder / "a.tif", mask=SHOWN, overview_levels=[2], tile_size=16)
    array = swath.open_geotiff(path, overview_level=0)
    expected = np.asarray(swath.Dataset(path).dataset_mask(overview_level=0)) != 0
    np.testing.assert_array_equal(masks(swath.to_geotiff(array, None))[1], expected)


def test_arrays_of_xarray_spatial_keep_the_mask(path: Path, folder: Path) -> None:
    swath.xrspatial.to_geotiff(swath.xrspatial.open_geotiff(path), str(folder / "b.tif"))
    with rasterio.open(folder / "b.tif") as file:
        np.testing.assert_array_equal(file.read_masks(1) != 0, SHOWN)
