"""`swath.to_geotiff` refuses to guess, and keeps samples that were changed."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
import rioxarray
import swath
import swath.rioxarray
import swath.xrspatial
import xarray as xr
from affine import Affine

UTM = (10.0, 0.0, 500000.0, 0.0, -10.0, 5000000.0)


def opened_by_rasterio(file: bytes) -> tuple[str, Any, np.ndarray]:
    """Type, nodata and samples of the first band."""
    with rasterio.MemoryFile(file) as memory, memory.open() as dataset:
        return dataset.dtypes[0], dataset.nodata, dataset.read(1)


@pytest.fixture
def heights(folder: Path) -> Path:
    """A raster of integers, one of them missing."""
    data = (np.arange(12, dtype="int16") * 100).reshape(3, 4)
    data[0, 0] = -9999
    swath.to_geotiff(data, folder / "heights.tif", nodata=-9999, crs=32633, transform=UTM)
    return folder / "heights.tif"


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        ((10**9, 20, 30), "1000000000 bands"),
        ((65_536, 20, 30), "65536 bands"),
        ((1, 2**33), "pixels on a side"),
        ((2**31, 1), "pixels on a side"),
    ],
)
def test_shapes_beyond_a_tiff_are_refused_at_once(shape: tuple[int, ...], words: str) -> None:
    """An array that repeats one sample has any shape and takes no memory; a list of its bands would."""
    data = xr.DataArray(np.broadcast_to(np.uint8(0), shape), dims=("band", "y", "x")[-len(shape) :])
    began = time.monotonic()
    with pytest.raises(swath.UsageError, match=words):
        swath.to_geotiff(data, None)
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("opener", [swath.open_geotiff, rioxarray.open_rasterio])
def test_fractions_of_a_masked_raster_are_kept(heights: Path, opener: Any) -> None:
    masked = opener(heights, masked=True)
    changed = masked.copy(data=masked.data / 1000)
    with pytest.warns(swath.SwathWarning, match='dtype="float32" to keep them') as warned:
        file = swath.to_geotiff(changed, None)
    assert warned[0].filename == __file__
    dtype, nodata, samples = opened_by_rasterio(file)
    assert dtype == "float32"
    assert np.isnan(nodata)
    np.testing.assert_array_equal(samples, changed.values[0])
    # Whole numbers keep the type of the file, and dtype= still gives integers.
    assert opened_by_rasterio(swath.to_geotiff(masked.copy(data=masked.data * 2), None))[:2] == ("int16", -9999)
    dtype, nodata, samples = opened_by_rasterio(swath.to_geotiff(changed, None, dtype="int16"))
    assert (dtype, nodata, samples[0].tolist()) == ("int16", -9999, [-9999, 0, 0, 0])
    with pytest.raises(swath.UsageError, match="pack=True"):
        swath.to_geotiff(changed, None, pack=True)


def test_fractions_of_lazy_arrays_raise(heights: Path, folder: Path) -> None:
    masked = swath.open_geotiff(heights, masked=True, chunks=2)
    assert opened_by_rasterio(swath.to_geotiff(masked, None))[:2] == ("int16", -9999)
    changed = masked.copy(data=masked.data / 1000)
    with pytest.raises(swath.UsageError, match='dtype="float32" to keep them, or dtype="int16" to round'):
        swath.to_geotiff(changed, folder / "changed.tif")
    assert not (folder / "changed.tif").exists()
    dtype, _, samples = opened_by_rasterio(swath.to_geotiff(changed, None, dtype="float32"))
    assert dtype == "float32"
    np.testing.assert_array_equal(samples[1], changed.values[0, 1])


def test_samples_that_were_unpacked_may_have_fractions(heights: Path) -> None:
    scaled = swath.to_geotiff(swath.open_geotiff(heights), None, scales=[0.1])
    unpacked = swath.open_geotiff(scaled, mask_and_scale=True)
    assert opened_by_rasterio(swath.to_geotiff(unpacked, None))[0] == "int16"


@pytest.fixture
def packed(folder: Path) -> Path:
    """Every integer of 16 bits, with scales and offsets."""
    data = np.arange(-32768, 32768).astype("int16").reshape(1, 256, 256)
    data = np.concatenate([data, data])
    return swath.to_geotiff(
        data, folder / "packed.tif", scales=[0.1, 0.0003], offsets=[5, -273.15], nodata=-32768, crs=32633, transform=UTM
    )


@pytest.mark.parametrize("opener", [swath.open_geotiff, rioxarray.open_rasterio])
@pytest.mark.parametrize("chunks", [None, 100])
@pytest.mark.filterwarnings("error::swath.SwathWarning")
def test_samples_that_were_unpacked_are_packed_again(packed: Path, opener: Any, chunks: int | None) -> None:
    unpacked = opener(packed, mask_and_scale=True, chunks=chunks)
    again = swath.Dataset(swath.to_geotiff(unpacked, None))
    assert again.dtype == "int16" and again.scales == (0.1, 0.0003)
    np.testing.assert_array_equal(again.read(), swath.Dataset(packed).read())


@pytest.mark.parametrize("band", [None, 1])
def test_unpacked_samples_that_were_changed_are_kept(packed: Path, folder: Path, band: int | None) -> None:
    unpacked = swath.open_geotiff(packed, mask_and_scale=True, band=band)
    changed = unpacked.copy(data=unpacked.data / 1000)
    with pytest.warns(swath.SwathWarning, match='scale and offset .*dtype="float32"'):
        file = swath.to_geotiff(changed, None)
    dtype, nodata, samples = opened_by_rasterio(file)
    assert dtype == "float32" and np.isnan(nodata)
    np.testing.assert_array_equal(samples, changed.values.reshape(-1, 256, 256)[0])
    assert swath.Dataset(file).scales[0] == 1.0
    chunked = changed.chunk(100)
    with pytest.raises(swath.UsageError, match=r'offset .* in their file: give dtype="float32" to keep them'):
        swath.to_geotiff(chunked, folder / "b.tif")
    assert not (folder / "b.tif").exists()
    # dtype= gives integers where they fit; the second band has an offset with which they do not.
    if band is None:
        return
    for words in ({"dtype": "int16"}, {"pack": True}):
        for data in (changed, chunked):
            assert opened_by_rasterio(swath.to_geotiff(data, None, **words))[0] == "int16"


def test_packing_that_a_caller_chooses_rounds() -> None:
    data = xr.DataArray(np.linspace(0, 1, 12).reshape(3, 4), dims=("y", "x"))
    data.encoding.update(dtype="int16", scale_factor=0.01)
    file = swath.to_geotiff(data, None)
    assert swath.Dataset(file).scales == (0.01,)
    np.testing.assert_array_equal(opened_by_rasterio(file)[2], np.rint(data.values * 100))


@pytest.mark.parametrize("dtype", ["complex_int16", "complex_int32"])
@pytest.mark.parametrize("chunks", [None, 2])
def test_complex_integers_round_trip(folder: Path, dtype: str, chunks: int | None) -> None:
    data = (np.arange(12).reshape(3, 4) * (1 - 2j)).astype("complex64")
    swath.to_geotiff(data, folder / "a.tif", dtype=dtype, overview_levels=1)
    opened = swath.open_geotiff(folder / "a.tif", chunks=chunks)
    swath.to_geotiff(opened, folder / "b.tif")
    again = swath.Dataset(folder / "b.tif")
    assert again.stored_dtype == dtype
    np.testing.assert_array_equal(np.asarray(again.read())[0], data)
    with pytest.raises(swath.UsageError, match="do not fit"):
        swath.to_geotiff(data * 1e12, None, dtype=dtype)
    with pytest.raises(swath.UsageError, match=dtype):
        swath.to_geotiff(data.real, None, dtype=dtype)


@pytest.mark.parametrize(
    "opened",
    [
        lambda path: swath.open_geotiff(path, masked=True),
        lambda path: swath.open_geotiff(path, mask_and_scale=True, chunks=2),
        lambda path: xr.open_dataset(path, engine="swath"),
        lambda path: swath.rioxarray.open_rasterio(path, masked=True),
    ],
    ids=["masked", "scaled", "engine", "rioxarray"],
)
@pytest.mark.parametrize("nodata", [None, -1])
@pytest.mark.filterwarnings("error::swath.SwathWarning")
def test_complex_integers_that_were_masked_round_trip(folder: Path, opened: Any, nodata: int | None) -> None:
    data = (np.arange(12).reshape(3, 4) * (1 - 2j)).astype("complex64")
    data[1, 1] = -1
    swath.to_geotiff(data, folder / "a.tif", dtype="complex_int16", nodata=nodata, crs=32633, transform=UTM)
    swath.to_geotiff(opened(folder / "a.tif"), folder / "b.tif")
    again = swath.Dataset(folder / "b.tif")
    assert (again.stored_dtype, again.nodata) == ("complex_int16", nodata)
    np.testing.assert_array_equal(np.asarray(again.read())[0], data)


def test_complex_integers_round_trip_as_xarray_spatial_has_them(folder: Path) -> None:
    data = (np.arange(12).reshape(3, 4) * (1 - 2j)).astype("complex64")
    swath.to_geotiff(data, folder / "a.tif", dtype="complex_int16", crs=32633, transform=UTM)
    swath.xrspatial.to_geotiff(swath.xrspatial.open_geotiff(folder / "a.tif"), folder / "b.tif")
    assert swath.Dataset(folder / "b.tif").stored_dtype == "complex_int16"


def test_complex_integers_with_fractions_become_floats(folder: Path) -> None:
    data = np.ones((3, 4), "complex64")
    opened = swath.open_geotiff(swath.to_geotiff(data, folder / "a.tif", dtype="complex_int16"))
    with pytest.warns(swath.SwathWarning, match="fractions"):
        file = swath.to_geotiff(opened.copy(data=opened.data / 3), None)
    assert swath.Dataset(file).stored_dtype == "complex64"


@pytest.mark.parametrize("shape", [(100, 120, 5), (10, 100, 4), (36, 100, 9), (100, 3, 4), (4, 5, 3)])
def test_axes_that_could_be_either_are_not_guessed(shape: tuple[int, ...]) -> None:
    data = np.zeros(shape, "uint8")
    with pytest.raises(swath.UsageError, match=r"band_axis=0 or band_axis=-1"):
        swath.to_geotiff(data, None)
    assert swath.Dataset(swath.to_geotiff(data, None, band_axis=0)).shape == shape
    assert swath.Dataset(swath.to_geotiff(data, None, band_axis=-1)).shape == (shape[2], *shape[:2])


@pytest.mark.parametrize(
    "numbers",
    [
        (500000, 10, 0, 5000000, 0, -10),
        (0.0, 0.1, 0.0, 0.0, 0.0, -0.1),
        (-180, 0.5, 0, 90, 0, -0.5),
        (500000.0, 8.0, 6.0, 5000000.0, 6.0, -8.0),
    ],
)
def test_a_transform_in_the_order_of_gdal_is_refused(numbers: tuple[float, ...]) -> None:
    data = np.zeros((3, 4))
    right = Affine.from_gdal(*numbers)
    with pytest.raises(swath.UsageError, match="GDAL's order") as refused:
        swath.to_geotiff(data, None, transform=numbers)
    c, a, b, f, d, e = numbers
    assert f"give {(a, b, c, d, e, f)}" in str(refused.value)
    for transform in (right, tuple(right)[:6], np.array(tuple(right)[:6]), tuple(right)):
        metadata = swath.Dataset(swath.to_geotiff(data, None, transform=transform)).metadata()
        assert metadata["transform"] == pytest.approx(tuple(right)[:6])


def test_a_raster_turned_by_90_degrees_is_an_affine() -> None:
    turned = Affine(0, 10, 0, 10, 0, 7)
    metadata = swath.Dataset(swath.to_geotiff(np.zeros((3, 4)), None, transform=turned)).metadata()
    assert metadata["transform"] == tuple(turned)[:6]


def test_variables_in_two_reference_systems_are_refused(heights: Path) -> None:
    one = swath.open_geotiff(heights, band=1)
    other = one.rio.write_crs(4326, grid_mapping_name="elsewhere")
    dataset = xr.Dataset({"one": one, "other": other})
    with pytest.raises(swath.UsageError, match=r"'one' \(WGS 84 / UTM zone 33N\) and 'other' \(WGS 84\)"):
        swath.to_geotiff(dataset, None)
    assert swath.Dataset(swath.to_geotiff(dataset, None, crs=32633)).count == 2
    same = one.rio.write_crs(32633, grid_mapping_name="elsewhere")
    assert swath.Dataset(swath.to_geotiff(xr.Dataset({"one": one, "same": same}), None)).count == 2


@pytest.mark.parametrize("chunks", [None, 2])
def test_variables_of_floats_agree_on_what_is_missing(heights: Path, chunks: int | None) -> None:
    masked = swath.open_geotiff(heights, masked=True, band=1, chunks=chunks)
    file = swath.to_geotiff(xr.Dataset({"one": masked, "two": masked * 2}), None)
    with rasterio.MemoryFile(file) as memory, memory.open() as dataset:
        assert dataset.dtypes == ("float32", "float32")
        assert np.isnan(dataset.nodata)
        np.testing.assert_array_equal(dataset.read(), [masked, masked * 2])
    plain = swath.open_geotiff(heights, band=1, chunks=chunks)
    file = swath.to_geotiff(xr.Dataset({"one": plain, "two": masked * 2}), None)
    with rasterio.MemoryFile(file) as memory, memory.open() as dataset:
        np.testing.assert_array_equal(dataset.read(), [masked, masked * 2])
