"""`swath.to_geotiff` with data in memory: the files as other readers see them, and the meaning of keywords."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
import rioxarray
import swath
import xarray as xr
from affine import Affine
from hypothesis import given, settings
from hypothesis import strategies as st
from rasterio.control import GroundControlPoint
from rasterio.rpc import RPC

UTM = Affine(10.0, 0.0, 500000.0, 0.0, -10.0, 5000000.0)


def pixels(shape: tuple[int, ...], dtype: str = "float32") -> np.ndarray:
    """Smooth samples that differ everywhere."""
    values = np.arange(np.prod(shape)).reshape(shape) % 241
    if np.dtype(dtype).kind == "c":
        return (values + 1j * values[..., ::-1]).astype(dtype)
    return values.astype(dtype)


@contextmanager
def written(data: Any, **words: Any) -> Iterator[rasterio.DatasetReader]:
    """A file of the data, opened by rasterio."""
    with rasterio.MemoryFile(swath.to_geotiff(data, None, **words)) as file, file.open() as opened:
        yield opened


def georeferenced(dtype: str = "int16", bands: int = 2, **attrs: Any) -> xr.DataArray:
    """A DataArray as rioxarray opens files."""
    data = pixels((bands, 40, 30), dtype)
    coords = {"band": range(1, bands + 1), "y": 5000000 - 10 * (np.arange(40) + 0.5)}
    coords["x"] = 500000 + 10 * (np.arange(30) + 0.5)
    return xr.DataArray(data, coords, ("band", "y", "x"), attrs=attrs).rio.write_crs(32633).rio.write_transform()


# Samples ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "dtype",
    ["uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float32", "float64", "complex64"],
)
@pytest.mark.parametrize("compression", ["zstd", "deflate", "lzw", "none"])
def test_samples_come_back(dtype: str, compression: str) -> None:
    data = pixels((3, 70, 50), dtype)
    with written(data, compression=compression, tile_size=32) as file:
        assert file.dtypes == (dtype,) * 3
        assert file.block_shapes[0] == (32, 32)
        np.testing.assert_array_equal(file.read(), data)


def test_samples_come_back_to_swath(folder: Path) -> None:
    data = pixels((3, 70, 50), "uint16")
    path = folder / "a.tif"
    assert swath.to_geotiff(data, path, crs=32633, transform=UTM) is path
    read = np.asarray(swath.Dataset(path).read_window())
    np.testing.assert_array_equal(read, data)


def test_half_floats_come_back_to_swath() -> None:
    data = pixels((20, 30), "float16")
    np.testing.assert_array_equal(np.asarray(swath.Dataset(swath.to_geotiff(data, None)).read_window())[0], data)


def test_booleans_are_written_as_bytes() -> None:
    data = pixels((20, 30)) > 100
    with written(data) as file:
        assert file.dtypes == ("uint8",)
        np.testing.assert_array_equal(file.read(1), data)


ARRANGED = {
    "plain": lambda data: data,
    "fortran": np.asfortranarray,
    "upside down": lambda data: data[:, ::-1],
    "every second": lambda data: np.repeat(data, 2, axis=2)[:, :, ::2],
    "byte-swapped": lambda data: data.astype(data.dtype.newbyteorder(">")),
    "list": lambda data: data[0].astype("float64").tolist(),
    "memoryview": lambda data: memoryview(data),
    "masked": lambda data: np.ma.masked_equal(data, -1.0),
}


@pytest.mark.parametrize("arranged", ARRANGED)
def test_any_memory_order(arranged: str) -> None:
    data = ARRANGED[arranged](pixels((3, 33, 21)))
    with written(data) as file:
        np.testing.assert_array_equal(file.read(), np.atleast_3d(np.asarray(data)).reshape(file.count, *file.shape))


def test_read_only_and_dlpack() -> None:
    class Elsewhere:
        """Samples that are only available by DLPack."""

        def __init__(self, data: np.ndarray) -> None:
            self._data = data
            self.shape, self.dtype = data.shape, data.dtype

        def __dlpack__(self, **words: Any) -> Any:
            return self._data.__dlpack__(**words)

        def __dlpack_device__(self) -> tuple[int, int]:
            return self._data.__dlpack_device__()

    data = pixels((20, 30))
    expected = swath.to_geotiff(data, None)
    assert swath.to_geotiff(Elsewhere(data), None) == expected
    data.flags.writeable = False
    assert swath.to_geotiff(data, None) == expected


@pytest.mark.parametrize(
    ("shape", "words", "expected"),
    [
        ((20, 30), {}, (1, 20, 30)),
        ((3, 20, 30), {}, (3, 20, 30)),
        ((20, 30, 3), {}, (3, 20, 30)),
        ((20, 30, 4), {"band_axis": 0}, (20, 30, 4)),
        ((3, 20, 4), {}, (3, 20, 4)),
        ((20, 30, 7), {"band_axis": -1}, (7, 20, 30)),
        ((20, 30, 7), {"dims": ("y", "x", "band")}, (7, 20, 30)),
    ],
)
def test_axes_of_plain_arrays(shape: tuple[int, ...], words: dict[str, Any], expected: tuple[int, ...]) -> None:
    with written(pixels(shape, "uint8"), photometric="minisblack", **words) as file:
        assert (file.count, file.height, file.width) == expected


def test_axes_of_dataarrays_are_found_by_name() -> None:
    data = pixels((3, 20, 30))
    expected = swath.to_geotiff(data, None)
    for dims in (("band", "y", "x"), ("time", "latitude", "longitude"), ("band", "lat", "lon"), ("b", "row", "col")):
        array = xr.DataArray(data, dims=dims)
        assert swath.to_geotiff(array, None) == expected, dims
        turned = array.transpose(dims[1], dims[0], dims[2])
        assert swath.to_geotiff(turned, None) == expected, turned.dims
    last = xr.DataArray(np.moveaxis(data, 0, 2), dims=("y", "x", "band"))
    assert swath.to_geotiff(last, None) == expected


@pytest.mark.parametrize(
    "dims", [("lat", "longitude"), ("Y", "X"), ("northing", "easting"), ("Line", "Column"), ("dim_0", "dim_1")]
)
def test_axes_are_never_confused(dims: tuple[str, str]) -> None:
    data = xr.DataArray(pixels((20, 30)), dims=dims)
    expected = swath.to_geotiff(data.values, None)
    assert swath.to_geotiff(data, None) == expected
    if dims[0] != "dim_0":
        assert swath.to_geotiff(data.transpose(), None) == expected


@pytest.mark.parametrize("dims", [("time", "x"), ("y", "when"), ("level", "station"), ("dates", "other")])
def test_axes_that_are_no_rows_or_columns_are_refused(dims: tuple[str, str]) -> None:
    data = xr.DataArray(pixels((20, 30)), dims=dims)
    if dims[0] == "dates":
        data = data.assign_coords(dates=np.arange(20).astype("datetime64[D]"))
    with pytest.raises(ValueError, match="which are rows and columns"):
        swath.to_geotiff(data, None)


@pytest.mark.parametrize(
    ("data", "words", "message"),
    [
        (np.zeros((0, 5)), {}, "empty"),
        (np.array([[np.nan, 1.0]]), {"dtype": "u1"}, "nodata="),
        (np.array([[0.0, 256.0]]), {"dtype": "u1"}, "256.0"),
        (np.array([[0.0, np.inf]]), {"dtype": "i4"}, "inf"),
        (np.array([[0.0, 2.0**63]]), {"dtype": "i8"}, "9.223372036854776e+18"),
        (np.array([[-1, 5]], "i2"), {"dtype": "u1"}, "-1 to 5"),
        (xr.DataArray([[-1, 300]], dims=("y", "x")), {"dtype": "u1"}, "-1 to 300"),
        (np.zeros((2, 2), "c8"), {"dtype": "f4"}, "imaginary"),
        (np.zeros((2, 3, 4, 5)), {}, "two axes"),
        (np.zeros(5), {}, "two axes"),
        (np.array([["a", "b"]]), {}, "dtype="),
        (np.zeros((2, 2), "datetime64[s]"), {}, "dtype="),
        (np.zeros((2, 2), "i2"), {"nodata": np.nan}, "nodata"),
        (np.zeros((2, 2), "u1"), {"nodata": 256}, "0 to 255"),
        (np.zeros((2, 2), "u1"), {"nodata": 1.5}, "nodata"),
        (np.zeros((2, 2), "f4"), {"nodata": 1e300}, "outside the range"),
        (np.zeros((2, 2)), {"nodata": True}, "not a number"),
        (np.ma.masked_equal(np.zeros((2, 2), "u1"), 0), {}, "nodata="),
        (np.zeros((2, 2)), {"count": 3}, "count"),
        (np.zeros((2, 2)), {"crs": "nonsense"}, "crs"),
        (np.zeros((2, 2)), {"transform": (1, 2, 3)}, "six numbers"),
        (np.zeros((2, 2)), {"overview_levels": [1, 2, 3]}, "[2, 4, 8]"),
        (np.zeros((2, 2)), {"overview_levels": [4, 2]}, "[2, 4, 8]"),
        (np.zeros((2, 2)), {"overview_resampling": "wild"}, "resampling"),
        (np.zeros((2, 2)), {"compression": "wild"}, "compression"),
        (np.zeros((2, 2)), {"cog": True, "tiled": False}, "a COG is tiled"),
        (np.zeros((2, 2)), {"driver": "PNG"}, "GTiff and COG"),
        (np.zeros((2, 2)), {"compres": "lzw"}, "compress"),
        (np.zeros((2, 2)), {"compress": "lzw", "compression": "deflate"}, "contradict"),
        (np.zeros((2, 2)), {"compress": "lzw", "COMPRESS": "deflate"}, "contradict"),
        (np.zeros((2, 2)), {"gpu": True, "device": "cpu"}, "contradict"),
        (np.zeros((2, 2)), {"progress": 7}, "progress"),
        (np.zeros((2, 2)), {"tile_size": 100}, "16"),
    ],
)
def test_unsupported_data_is_refused_with_a_reason(data: Any, words: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=r".") as refused:
        swath.to_geotiff(data, None, **words)
    assert isinstance(refused.value, swath.Error)
    assert message in str(refused.value)


def test_nan_becomes_nodata_and_the_input_stays() -> None:
    data = pixels((2, 40, 30))
    data[0, 3:9, 4] = np.nan
    data[1, 20:, :] = np.nan
    kept = data.copy()
    with written(data, nodata=-9999) as file:
        read = file.read()
        assert file.nodata == -9999
    np.testing.assert_array_equal(data, kept)
    np.testing.assert_array_equal(read, np.where(np.isnan(data), -9999, data))
    with written(data, nodata=-9999, nan_to_nodata=False) as file:
        np.testing.assert_array_equal(file.read(), data)


def test_complex_nan_becomes_nodata() -> None:
    data = pixels((20, 30), "complex64")
    data[3, 4] = complex(np.nan, 1)
    kept = data.copy()
    with written(data, nodata=-1) as file:
        assert file.read(1)[3, 4] == -1
        assert file.read(1)[3, 5] == data[3, 5]
    np.testing.assert_array_equal(data, kept)


def test_masked_samples_become_nodata() -> None:
    data = np.ma.masked_inside(pixels((20, 30)), 50, 60)
    with written(data) as file:
        assert np.isnan(file.nodata)
        np.testing.assert_array_equal(file.read(1), data.filled(np.nan))
    with written(data.astype("int16"), nodata=-5) as file:
        np.testing.assert_array_equal(file.read(1), data.astype("int16").filled(-5))


@pytest.mark.parametrize(
    ("data", "words", "expected"),
    [
        (np.ma.masked_equal(np.array([[1, 2]], "i2"), 2), {"dtype": "i4", "nodata": -99999}, [[1, -99999]]),
        (np.ma.masked_equal(np.array([[True, False]]), False), {"nodata": 9}, [[1, 9]]),
        (np.ma.masked_equal(np.array([[1.6, 1e9]]), 1e9), {"dtype": "u1", "nodata": 0}, [[2, 0]]),
    ],
)
@pytest.mark.parametrize("chunked", [False, True])
def test_masked_samples_are_filled_as_the_type_of_the_file(
    data: Any, words: dict[str, Any], expected: list[list[int]], chunked: bool
) -> None:
    import dask.array

    with written(dask.array.from_array(data) if chunked else data, **words) as file:
        np.testing.assert_array_equal(file.read(1), expected)


@pytest.mark.parametrize("kind", ["array", "dask", "DataArray", "lazy DataArray"])
def test_floats_become_the_integers_next_to_them(kind: str) -> None:
    data: Any = np.array([[0.6, np.nan, 2.4], [-1.7, 254.0, 7.0]])
    kept = data.copy()
    given: Any = xr.DataArray(data, dims=("y", "x")) if "DataArray" in kind else data
    if kind == "dask":
        given = xr.DataArray(data).chunk(1).data
    elif kind == "lazy DataArray":
        given = given.chunk({"y": 1})
    with written(given, dtype="int16", nodata=-9) as file:
        np.testing.assert_array_equal(file.read(1), [[1, -9, 2], [-2, 254, 7]])
    np.testing.assert_array_equal(data, kept)
    with pytest.raises(ValueError, match="nodata="):
        swath.to_geotiff(given, None, dtype="int16")
    with pytest.raises(ValueError, match=r"-2\.0.* do not fit uint8"):
        swath.to_geotiff(given, None, dtype="uint8", nodata=255)


def test_the_largest_float_may_be_given_by_its_first_digits() -> None:
    with written(np.array([[1.0, np.nan]], "f4"), nodata=-3.4028235e38) as file:
        assert file.nodata == np.finfo("f4").min
        np.testing.assert_array_equal(file.read(1), [[1.0, np.finfo("f4").min]])


def test_dtype_casts() -> None:
    with written(pixels((20, 30), "float64"), dtype="uint8") as file:
        assert file.dtypes == ("uint8",)
        np.testing.assert_array_equal(file.read(1), pixels((20, 30), "uint8"))


@settings(max_examples=25, deadline=None, database=None, derandomize=True)
@given(
    st.tuples(st.integers(1, 4), st.integers(1, 80), st.integers(1, 80)),
    st.sampled_from(["uint8", "int32", "float32"]),
    st.sampled_from(["pixel", "band"]),
    st.booleans(),
)
def test_every_shape(shape: tuple[int, int, int], dtype: str, interleave: str, cog: bool) -> None:
    data = pixels(shape, dtype)
    with written(data, interleave=interleave, cog=cog, tile_size=16, photometric="minisblack", band_axis=0) as file:
        np.testing.assert_array_equal(file.read(), data)


# Metadata -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def source(folder: Path) -> Path:
    """A file with all kinds of metadata."""
    path = folder / "source.tif"
    profile = {"driver": "GTiff", "width": 30, "height": 40, "count": 2, "dtype": "int16", "nodata": -99}
    with rasterio.open(path, "w", **profile, crs=32633, transform=UTM) as file:
        data = pixels((2, 40, 30), "int16")
        data[:, 5:8, 6] = -99
        file.write(data)
        file.scales, file.offsets = (0.5, 0.5), (5.0, 5.0)
        file.units, file.descriptions = ("m", "m"), ("height", "depth")
        file.update_tags(TITLE="a title", AREA_OR_POINT="Point")
    return path


@pytest.mark.parametrize(
    "words", [{}, {"masked": True}, {"mask_and_scale": True}, {"chunks": {"y": 16}}, {"masked": True, "chunks": True}]
)
def test_the_same_as_rioxarray_writes(source: Path, folder: Path, words: dict[str, Any]) -> None:
    opened = rioxarray.open_rasterio(source, **words)
    ours, theirs = folder / "ours.tif", folder / "theirs.tif"
    swath.to_geotiff(opened, ours)
    opened.rio.to_raster(theirs)
    with rasterio.open(ours) as mine, rasterio.open(theirs) as other:
        np.testing.assert_array_equal(mine.read(), other.read())
        for fact in ("crs", "transform", "nodata", "dtypes", "scales", "offsets", "descriptions"):
            assert getattr(mine, fact) == getattr(other, fact), fact
        # rioxarray writes units as a tag, where no reader looks for them.
        assert mine.units == ("m", "m")
        expected = {key: value for key, value in other.tags().items() if key != "units"}
        assert mine.tags() == expected
    for again in ({}, {"mask_and_scale": True}):
        mine, other = (rioxarray.open_rasterio(path, **again) for path in (ours, theirs))
        xr.testing.assert_identical(mine.drop_attrs(), other.drop_attrs())
        assert {**mine.attrs, "units": 0} == {**other.attrs, "units": 0}
        assert mine.spatial_ref.attrs == other.spatial_ref.attrs


def test_variables_are_bands(source: Path, folder: Path) -> None:
    opened = rioxarray.open_rasterio(source, band_as_variable=True, mask_and_scale=True)
    swath.to_geotiff(opened, folder / "ours.tif")
    with rasterio.open(folder / "ours.tif") as mine, rasterio.open(source) as other:
        np.testing.assert_array_equal(mine.read(), other.read())
        for fact in ("crs", "transform", "nodata", "dtypes", "scales", "offsets", "descriptions", "units"):
            assert getattr(mine, fact) == getattr(other, fact), fact
        assert mine.tags()["TITLE"] == "a title"


def test_variables_in_chunks_are_the_same_bands(source: Path) -> None:
    whole = rioxarray.open_rasterio(source, band_as_variable=True, mask_and_scale=True)
    assert swath.to_geotiff(whole.chunk({"y": 13}), None) == swath.to_geotiff(whole, None)


def test_a_grid_mapping_among_the_variables_is_found() -> None:
    data = georeferenced().rename("height")
    expected = swath.to_geotiff(data, None)
    assert swath.to_geotiff(data.to_dataset().reset_coords("spatial_ref"), None) == expected


def test_variables_with_other_nodata_are_refused() -> None:
    both = xr.Dataset({name: (("y", "x"), np.zeros((3, 4))) for name in ("a", "b")})
    both["a"].attrs["_FillValue"], both["b"].attrs["_FillValue"] = 5.0, 6.0
    with pytest.raises(ValueError, match="different nodata"):
        swath.to_geotiff(both, None)


@pytest.mark.parametrize("chunked", [False, True])
def test_missing_samples_of_variables_become_the_value_that_is_given(chunked: bool) -> None:
    both = xr.Dataset(
        {
            "a": (("y", "x"), np.array([[255, 1]], "u1"), {"_FillValue": 255}),
            "b": (("y", "x"), np.array([[-1, 255]], "i2"), {"_FillValue": -1}),
        }
    )
    with written(both.chunk({"x": 1}) if chunked else both, nodata=-9999) as file:
        assert file.nodata == -9999
        np.testing.assert_array_equal(file.read(), [[[-9999, 1]], [[-9999, 255]]])


def test_variables_that_one_type_does_not_hold_are_refused() -> None:
    def both(one: str, other: str) -> xr.Dataset:
        variables = {"a": np.array([[2**7 - 1]], one), "b": np.array([[3]], other)}
        return xr.Dataset({name: (("y", "x"), data) for name, data in variables.items()})

    for types in (("int64", "uint64"), ("int64", "float32")):
        with pytest.raises(ValueError, match=r"'a' has samples of int64.*dtype="):
            swath.to_geotiff(both(*types), None)
    with written(both("int64", "uint64"), dtype="int64") as file:
        assert file.dtypes == ("int64", "int64")
    with written(both("int32", "float32")) as file:
        assert file.dtypes == ("float64", "float64")


@pytest.fixture
def banded(folder: Path) -> Path:
    """A file whose bands differ in every property."""
    path = folder / "banded.tif"
    profile = {"driver": "GTiff", "width": 30, "height": 40, "count": 3, "dtype": "int16", "nodata": -99}
    with rasterio.open(path, "w", **profile, crs=32633, transform=UTM) as file:
        data = pixels((3, 40, 30), "int16")
        data[:, 5:8, 6] = -99
        file.write(data)
        file.scales, file.offsets = (0.5, 0.25, 2.0), (5.0, 0.0, -3.0)
        file.units, file.descriptions = ("m", "K", "s"), ("one", "two", "three")
    return path


FACTS = ("scales", "offsets", "units", "descriptions")


@pytest.mark.parametrize("chunks", [None, {"band": 2, "y": 13}])
@pytest.mark.parametrize("opener", [swath.open_geotiff, rioxarray.open_rasterio])
def test_each_band_is_packed_with_its_own_scale(banded: Path, opener: Any, chunks: Any) -> None:
    opened = opener(banded, mask_and_scale=True, chunks=chunks)
    for data in (opened, opened.transpose("y", "x", "band")):
        with written(data) as mine, rasterio.open(banded) as other:
            np.testing.assert_array_equal(mine.read(), other.read())
            for fact in ("dtypes", "nodata", *FACTS):
                assert getattr(mine, fact) == getattr(other, fact), fact
    with written(opened, pack=False, nodata=np.nan) as mine:
        assert mine.scales == (1.0, 1.0, 1.0)
        np.testing.assert_array_equal(mine.read(), opened.values)


@pytest.mark.parametrize("words", [{}, {"mask_and_scale": True}])
@pytest.mark.parametrize("bands", [0, 2, [2, 0], [1, 0, 2]])
def test_selected_bands_keep_their_metadata(banded: Path, words: dict[str, Any], bands: Any) -> None:
    opened = swath.open_geotiff(banded, **words)
    order = np.atleast_1d(bands)
    with written(opened[bands]) as mine, rasterio.open(banded) as other:
        np.testing.assert_array_equal(mine.read(), other.read()[order])
        for fact in FACTS:
            assert getattr(mine, fact) == tuple(getattr(other, fact)[band] for band in order), fact


def test_lists_may_be_of_bands_in_another_order() -> None:
    data = georeferenced(long_name=("two", "one")).isel(band=[1, 0])
    data.encoding["bands"] = (2, 1)
    with written(data) as file:
        assert file.descriptions == ("two", "one")
    with written(data[::-1]) as file:
        assert file.descriptions == ("one", "two")


def test_lists_of_unknown_bands_are_dropped(banded: Path) -> None:
    opened = swath.open_geotiff(banded)[1:].drop_vars("band")
    with pytest.warns(swath.SwathWarning, match="has 3 values and the raster 2 bands"):
        made = swath.to_geotiff(opened, None)
    with rasterio.MemoryFile(made) as memory, memory.open() as file:
        assert (file.descriptions, file.scales) == ((None, None), (1.0, 1.0))
    unpacked = swath.open_geotiff(banded, mask_and_scale=True)[1:].drop_vars("band")
    with pytest.warns(swath.SwathWarning, match="has 3 values"), pytest.raises(ValueError, match="pack=False"):
        swath.to_geotiff(unpacked, None)


@pytest.mark.parametrize("words", [{"dtype": "uint8"}, {"dtype": "uint8", "scale_factor": 2.0}])
def test_missing_samples_do_not_become_integers_without_nodata(words: dict[str, Any]) -> None:
    data = xr.DataArray(pixels((20, 30)), dims=("y", "x"))
    data.encoding = words
    with written(data) as file:
        assert file.dtypes == ("uint8",)
    data[3, 4] = np.nan
    with pytest.warns(swath.SwathWarning, match="written as float32"):
        made = swath.to_geotiff(data, None)
    with rasterio.MemoryFile(made) as memory, memory.open() as file:
        assert (file.dtypes, file.scales) == (("float32",), (1.0,))
        np.testing.assert_array_equal(file.read(1), data)
    lazy = data.chunk({"y": 7})
    lazy.encoding = words
    with pytest.raises(ValueError, match="nodata="):
        swath.to_geotiff(lazy, None)


def test_masked_pixels_stay_missing(folder: Path) -> None:
    data = pixels((1, 40, 30), "uint8")
    hidden = np.zeros((40, 30), bool)
    hidden[3:9, 4:20] = True
    profile = {"driver": "GTiff", "width": 30, "height": 40, "count": 1, "dtype": "uint8"}
    with (
        rasterio.Env(GDAL_TIFF_INTERNAL_MASK=True),
        rasterio.open(folder / "a.tif", "w", **profile, crs=32633, transform=UTM) as file,
    ):
        file.write(data)
        file.write_mask(~hidden)
    opened = swath.open_geotiff(folder / "a.tif", masked=True)
    assert np.isnan(opened.values[0][hidden]).all()
    again = swath.to_geotiff(opened, None)
    assert swath.Dataset(again).dtype == "uint8"
    np.testing.assert_array_equal(swath.open_geotiff(again, masked=True), opened)
    with written(opened, nodata=255) as file:
        assert file.dtypes == ("uint8",)
        np.testing.assert_array_equal(file.read(1), np.where(hidden, 255, data[0]))


def test_scales_that_are_edited_before_the_samples_are_read_are_used(folder: Path) -> None:
    data = pixels((1, 40, 30), "uint8")
    path = swath.to_geotiff(data, folder / "a.tif", scales=[0.1], offsets=[20.0], nodata=255)
    opened = swath.open_geotiff(path, mask_and_scale=True, lazy=True)
    opened.encoding |= {"scale_factor": 0.2, "add_offset": 10.0}
    with written(opened) as file:
        assert (file.dtypes, file.scales, file.offsets) == (("uint8",), (0.2,), (10.0,))
        unpacked = file.read(1) * 0.2 + 10
    np.testing.assert_allclose(unpacked, data[0] * 0.1 + 20, atol=0.1 + 1e-6)


def test_files_that_are_not_read_yet_are_read_in_parts(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = rioxarray.open_rasterio(source)
    expected = swath.to_geotiff(opened.load(), None)
    opened = rioxarray.open_rasterio(source)
    taken: list[tuple[int, ...]] = []
    push = swath._stream.Pusher._give
    monkeypatch.setattr("swath._stream.Pusher._give", lambda self, rows: (taken.append(rows.shape), push(self, rows)))
    monkeypatch.setattr("swath._stream.Pusher.__init__.__defaults__", (30 * 2 * 2 * 7, None))
    assert swath.to_geotiff(opened, None) == expected
    assert taken == [(2, 7, 30)] * 5 + [(2, 5, 30)]
    assert not opened.variable._in_memory


def test_own_files_round_trip(folder: Path) -> None:
    data = georeferenced(long_name=("a", "b"), units=("m", "K"), TITLE="x")
    data.attrs["_FillValue"] = -7
    swath.to_geotiff(data, folder / "a.tif", cog=True)
    opened = swath.open_geotiff(folder / "a.tif")
    swath.to_geotiff(opened, folder / "b.tif", cog=True)
    assert (folder / "a.tif").read_bytes() == (folder / "b.tif").read_bytes()


def test_transform_from_coordinates() -> None:
    plain = georeferenced().drop_vars("spatial_ref")
    plain.encoding.clear()
    with written(plain) as file:
        assert file.transform == UTM
    with written(plain.isel(y=slice(None, None, -1))) as file:
        assert file.transform == Affine(10.0, 0.0, 500000.0, 0.0, 10.0, 5000000.0 - 400)
    with written(plain.isel(y=slice(10, 20), x=slice(5, 9))) as file:
        assert file.transform == UTM @ Affine.translation(5, 10)


def test_a_slice_of_a_raster_moves_its_transform() -> None:
    with written(georeferenced().isel(y=slice(10, 20), x=slice(5, 9))) as file:
        assert file.transform == UTM @ Affine.translation(5, 10)
        assert file.crs == 32633


def test_a_grid_at_the_origin_is_one() -> None:
    coords = {"y": -0.5 - np.arange(20), "x": 0.5 + np.arange(30)}
    data = xr.DataArray(pixels((20, 30)), coords, ("y", "x"))
    with written(data, crs=4326) as file:
        assert file.transform == Affine(1, 0, 0, 0, -1, 0)
        np.testing.assert_array_equal(file.read(1), data)
    again = swath.open_geotiff(swath.to_geotiff(data, None, crs=4326))
    np.testing.assert_array_equal(again.y, data.y)


@pytest.mark.parametrize(
    "part", [(slice(None), slice(None)), (slice(10, 30), slice(5, 9)), (slice(1, None, 3), slice(None, None, -2))]
)
@pytest.mark.parametrize("opener", [swath.open_geotiff, rioxarray.open_rasterio])
def test_a_slice_of_a_rotated_raster_moves_its_transform(folder: Path, opener: Any, part: Any) -> None:
    rotated = UTM @ Affine.rotation(30)
    swath.to_geotiff(pixels((40, 30)), folder / "a.tif", crs=32633, transform=rotated)
    rows, columns = part
    first_row, first_column = (range(size)[cut][0] for size, cut in zip((40, 30), part))
    scale = Affine.scale(columns.step or 1, rows.step or 1)
    centre = Affine.translation(first_column + 0.5, first_row + 0.5)
    expected = rotated @ centre @ scale @ Affine.translation(-0.5, -0.5)
    data = opener(folder / "a.tif").isel(y=rows, x=columns)
    with written(data) as file:
        assert file.transform.almost_equals(expected, 1e-6)
    if rows.step is None:
        # One row does not define the distance to the next; the transform that was read does.
        with written(data.isel(y=slice(2, 3))) as file:
            assert file.transform.almost_equals(expected @ Affine.translation(0, 2), 1e-6)


def test_uneven_slices_of_rotated_rasters_are_refused(folder: Path) -> None:
    swath.to_geotiff(pixels((40, 30)), folder / "a.tif", crs=32633, transform=UTM @ Affine.rotation(30))
    data = swath.open_geotiff(folder / "a.tif").isel(y=[0, 1, 3, 4])
    with pytest.raises(ValueError, match="not evenly spaced"):
        swath.to_geotiff(data, None)


def test_keywords_of_xrspatial() -> None:
    attrs = {"crs": 32633, "transform": tuple(UTM)[:6], "nodata": -1.0, "raster_type": "point"}
    with written(xr.DataArray(pixels((20, 30)), dims=("y", "x"), attrs=attrs)) as file:
        assert file.crs == 32633
        assert file.transform == UTM
        assert file.nodata == -1
        assert file.tags() == {"AREA_OR_POINT": "Point"}


@pytest.mark.parametrize("axis", ["y", "x"])
def test_uneven_coordinates_are_refused(axis: str) -> None:
    data = georeferenced().drop_vars("spatial_ref")
    values = data[axis].values.copy()
    values[5] += 3.0
    with pytest.raises(ValueError, match=f"'{axis}' is not evenly spaced"):
        swath.to_geotiff(data.assign_coords({axis: values}), None)
    with written(data.assign_coords({axis: values}), transform=UTM) as file:
        assert file.transform == UTM


def test_one_coordinate_does_not_define_a_pixel_size() -> None:
    data = georeferenced().drop_vars("spatial_ref").isel(y=slice(0, 1))
    with pytest.raises(ValueError, match="transform="):
        swath.to_geotiff(data, None)
    with written(georeferenced().isel(y=slice(3, 4))) as file:
        assert file.transform == UTM @ Affine.translation(0, 3)


@pytest.mark.parametrize("crs", [32633, "EPSG:32633", "wkt", "rasterio", "pyproj", "+proj=utm +zone=33 +datum=WGS84"])
def test_every_form_of_a_reference_system(crs: Any) -> None:
    import pyproj

    made = rasterio.CRS.from_epsg(32633)
    crs = {"wkt": made.to_wkt(), "rasterio": made, "pyproj": pyproj.CRS(32633)}.get(crs, crs)
    with written(pixels((3, 4)), crs=crs, transform=UTM) as file:
        assert file.crs == made or file.crs.to_dict() == made.to_dict()


def test_control_points_and_coefficients() -> None:
    points = [GroundControlPoint(row, col, 10 + col, 20 - row, 0) for row in (0, 20) for col in (0, 30)]
    terms = [number / 32 for number in range(20)]
    numbers = ("height_off", "height_scale", "lat_off", "lat_scale", "line_off", "line_scale", "long_off", "long_scale")
    rpc = RPC(
        **{
            name: number + 1.0
            for number, name in enumerate((*numbers, "samp_off", "samp_scale", "err_bias", "err_rand"))
        },
        **{f"{name}_coeff": terms for name in ("line_den", "line_num", "samp_den", "samp_num")},
    )
    with written(pixels((20, 30)), gcps=points, crs=4326, rpcs=rpc) as file:
        found, crs = file.gcps
        assert [(p.row, p.col, p.x, p.y) for p in found] == [(p.row, p.col, p.x, p.y) for p in points]
        assert crs == 4326
        assert file.rpcs.to_dict() == rpc.to_dict()
    bare = xr.DataArray(pixels((20, 30)), dims=("y", "x"))
    with written(bare.rio.write_gcps(points, 4326)) as file:
        assert len(file.gcps[0]) == 4 and file.gcps[1] == 4326


def test_metadata_by_keywords(folder: Path) -> None:
    path = folder / "a.tif"
    swath.to_geotiff(
        pixels((2, 20, 30), "uint8"),
        path,
        tags={"A": 1, "OWN": {"B": "2"}},
        band_descriptions=["first", None],
        band_units=["m", None],
        scales=[0.5, 1.0],
        offsets=[0.0, 3.0],
        area_or_point="point",
        extra_tags=[(65000, "ascii", "extra")],
    )
    with rasterio.open(path) as file:
        assert file.tags() == {"A": "1", "AREA_OR_POINT": "Point"}
        assert file.tags(ns="OWN") == {"B": "2"}
        assert file.descriptions == ("first", None)
        assert (file.units[0], file.scales, file.offsets) == ("m", (0.5, 1.0), (0.0, 3.0))
    assert b"extra\0" in path.read_bytes()


def test_palettes() -> None:
    colours = {0: (255, 0, 0, 255), 1: (0, 255, 0, 255), 7: (1, 2, 3, 255)}
    with written(pixels((300, 300), "uint8") % 8, colormap=colours, cog=True, tile_size=128) as file:
        assert {key: file.colormap(1)[key] for key in colours} == colours
        assert file.tags(ns="IMAGE_STRUCTURE")["OVERVIEW_RESAMPLING"] == "NEAREST"


def test_palettes_go_from_file_to_file() -> None:
    colours = {0: (255, 0, 0, 255), 1: (0, 255, 0, 255), 7: (1, 2, 3, 255)}
    made = swath.to_geotiff(pixels((300, 300), "uint8") % 8, None, colormap=colours, tile_size=128)
    opened = swath.open_geotiff(made)
    with written(opened, cog=True, tile_size=128) as file:
        assert {key: file.colormap(1)[key] for key in colours} == colours
        assert file.tags(ns="IMAGE_STRUCTURE")["OVERVIEW_RESAMPLING"] == "NEAREST"
    with xr.set_options(keep_attrs=True), written(opened * np.float32(0.5)) as file:
        assert (file.dtypes, file.colorinterp[0].name) == (("float32",), "gray")


# Words --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ({"compress": "LZW", "TILED": "YES", "BLOCKXSIZE": 32, "blockysize": "64"}, {"block": (64, 32)}),
        ({"compress": "deflate", "zlevel": 9, "predictor": "2"}, {"compress": "deflate"}),
        ({"tiled": False, "blockysize": 8}, {"block": (8, 100)}),
        ({"driver": "COG", "blocksize": 32, "overviews": "NONE"}, {"overviews": [], "layout": "COG"}),
        ({"driver": "COG", "blocksize": 32}, {"overviews": [2, 4], "layout": "COG"}),
        ({"cog": True, "tile_size": 16, "overview_levels": 2}, {"overviews": [2, 4]}),
        ({"tile_size": 16, "overview_levels": [2, 8], "overview_resampling": "mean"}, {"overviews": [2, 8]}),
        ({"interleave": "BAND"}, {"interleave": "band"}),
        ({"BIGTIFF": "YES"}, {"version": 43}),
        ({"bigtiff": "IF_SAFER"}, {"version": 42}),
        ({"dtype": "uint8", "nbits": 4, "photometric": "minisblack"}, {"nbits": "4"}),
        ({"photometric": "rgb", "compress": "JPEG", "jpeg_quality": 90, "dtype": "uint8"}, {"photometric": "RGB"}),
        ({"photometric": "rgba", "dtype": "uint8"}, {"alpha": True}),
        ({"endianness": "BIG"}, {"order": b"MM"}),
        ({"compress": None}, {"compress": None}),
        ({"statistics": True}, {"statistics": True}),
        ({"num_threads": "ALL_CPUS", "sparse_ok": "TRUE", "lock": None, "windowed": True}, {}),
    ],
)
def test_options_of_gdal(words: dict[str, Any], expected: dict[str, Any]) -> None:
    bands = 4 if words.get("photometric") == "rgba" else 3
    data = pixels((bands, 100, 100), "uint16") % 16
    file = swath.to_geotiff(data, None, **words)
    if "version" in expected:
        assert int.from_bytes(file[2:4], "little") == expected["version"]
    assert file[:2] == expected.get("order", b"II")
    with rasterio.MemoryFile(file) as memory, memory.open() as read:
        structure = read.tags(ns="IMAGE_STRUCTURE")
        if words.get("compress") != "JPEG":
            np.testing.assert_array_equal(read.read(), data)
        assert read.block_shapes[0] == expected.get("block", read.block_shapes[0])
        assert read.overviews(1) == expected.get("overviews", [])
        assert structure.get("LAYOUT") == expected.get("layout", structure.get("LAYOUT"))
        assert structure["INTERLEAVE"].lower() == expected.get("interleave", "pixel")
        assert read.tags(1, ns="IMAGE_STRUCTURE").get("NBITS") == expected.get("nbits")
        if "compress" in expected:
            assert structure.get("COMPRESSION", "none").lower() == (expected["compress"] or "none")
        if "alpha" in expected:
            assert read.colorinterp[3].name == "alpha"
        assert ("STATISTICS_MEAN" in read.tags(1)) == bool(
            expected.get("statistics") or "layout" in expected or words.get("cog")
        )


def test_a_profile_of_rasterio_is_accepted_unchanged(source: Path) -> None:
    with rasterio.open(source) as file, written(file.read(), **file.profile) as again:
        for fact in ("crs", "transform", "nodata", "dtypes", "shape", "count"):
            assert getattr(file, fact) == getattr(again, fact)
        assert again.block_shapes == file.block_shapes


# Destinations -------------------------------------------------------------------------------------------------------


def test_destinations(folder: Path) -> None:
    import fsspec
    import obstore

    data = pixels((3, 60, 50))
    expected = swath.to_geotiff(data, None, cog=True)
    assert isinstance(expected, bytes)

    swath.to_geotiff(data, str(folder / "a.tif"), cog=True)
    assert (folder / "a.tif").read_bytes() == expected
    memory = io.BytesIO()
    assert swath.to_geotiff(data, memory, cog=True) is memory
    assert memory.getvalue() == expected
    with (folder / "b.tif").open("wb") as file:
        swath.to_geotiff(data, file, cog=True)
    assert (folder / "b.tif").read_bytes() == expected
    swath.to_geotiff(data, f"file://{folder}/c.tif", cog=True)
    assert (folder / "c.tif").read_bytes() == expected
    swath.to_geotiff(data, "memory://swath/d.tif", cog=True)
    opened = fsspec.open("memory://swath/e.tif", "wb")
    swath.to_geotiff(data, opened, cog=True)
    system = fsspec.filesystem("memory")
    for name in ("d.tif", "e.tif"):
        assert system.cat_file(f"/swath/{name}") == expected
        system.rm(f"/swath/{name}")
    store = obstore.store.MemoryStore()
    swath.to_geotiff(data, (store, "f/g.tif"), cog=True)
    assert bytes(obstore.get(store, "f/g.tif").bytes()) == expected
    with pytest.raises(ValueError, match="path="):
        swath.to_geotiff(data, 17)


class BrokenError(RuntimeError):
    pass


def fail(*_: Any) -> None:
    raise BrokenError


def test_a_failed_write_leaves_nothing(folder: Path) -> None:
    import fsspec
    import obstore

    data = pixels((1, 400, 300))
    words: dict[str, Any] = {"progress": fail, "tile_size": 32}
    old = folder / "old.tif"
    old.write_bytes(b"old")
    with pytest.raises(BrokenError):
        swath.to_geotiff(data, old, **words)
    assert [(path.name, path.read_bytes()) for path in folder.iterdir()] == [("old.tif", b"old")]
    memory = io.BytesIO()
    with pytest.raises(BrokenError):
        swath.to_geotiff(data, memory, **words)
    assert memory.getvalue() == b""
    with pytest.raises(BrokenError):
        swath.to_geotiff(data, "memory://swath/failed.tif", **words)
    assert not fsspec.filesystem("memory").exists("/swath/failed.tif")
    store = obstore.store.MemoryStore()
    with pytest.raises(BrokenError):
        swath.to_geotiff(data, (store, "g.tif"), **words)
    assert obstore.list(store).collect() == []


def test_a_missing_folder_is_refused(folder: Path) -> None:
    with pytest.raises(FileNotFoundError) as missing:
        swath.to_geotiff(pixels((3, 4)), folder / "none" / "a.tif")
    assert isinstance(missing.value, swath.Error)


FULL_DISK = """
import resource, signal, sys
import numpy as np
import swath

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
data = np.random.default_rng(1).random((1000, 1000))
try:
    swath.to_geotiff(data, sys.argv[1])
except OSError as error:
    assert isinstance(error, swath.WriteError), error
    sys.exit(7)
"""


def test_a_full_disk_leaves_the_old_file(folder: Path) -> None:
    old = folder / "old.tif"
    old.write_bytes(b"old")
    run = subprocess.run([sys.executable, "-c", FULL_DISK, old], capture_output=True, text=True)
    assert run.returncode == 7, run.stderr
    assert [(path.name, path.read_bytes()) for path in folder.iterdir()] == [("old.tif", b"old")]


# Progress, accessor, imports ----------------------------------------------------------------------------------------


def test_progress() -> None:
    class Shown:
        rows = 0

        def update(self, rows: int) -> None:
            self.rows += rows

    data = pixels((1000, 64))
    reports: list[tuple[int, int]] = []
    swath.to_geotiff(data, None, tile_size=64, progress=lambda done, rows: reports.append((done, rows)))
    assert reports[-1] == (1000, 1000)
    assert [done for done, _ in reports] == sorted(done for done, _ in reports)
    shown = Shown()
    swath.to_geotiff(data, None, tile_size=64, progress=shown)
    assert shown.rows == 1000


def test_a_bar_is_for_terminals(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    data = pixels((100, 64))
    swath.to_geotiff(data, None, progress=True)
    assert capfd.readouterr().err == ""
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    swath.to_geotiff(data, None, progress=True)
    assert "100%" in capfd.readouterr().err


def test_accessor() -> None:
    import swath.accessor

    data = georeferenced()
    data.attrs["_FillValue"] = -3
    expected = swath.to_geotiff(data, None, compression="lzw")
    assert data.swath.to_geotiff(None, compression="lzw") == expected
    assert data.swath.to_raster(None, compress="lzw") == expected
    assert data.to_dataset(name="a").swath.to_raster(None, compress="lzw")
    assert data.swath.transform == tuple(UTM)[:6]
    assert data.swath.nodata == -3
    assert "UTM zone 33N" in data.swath.crs


def test_writing_arrays_needs_numpy_alone() -> None:
    code = "import sys, numpy, swath; swath.to_geotiff(numpy.zeros((3, 4)), None, crs=4326)\n"
    code += "sys.exit(str({'xarray', 'dask', 'pyproj', 'rasterio', 'fsspec', 'obstore'} & set(sys.modules) or ''))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.stderr.strip() == ""
