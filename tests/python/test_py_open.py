"""`swath.open_geotiff`: its keywords, every kind of source, and its refusals."""

from __future__ import annotations

import base64
import doctest
import importlib
import io
import json
import os
import subprocess
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import obstore
import pytest
import rasterio
import rioxarray
import swath
import xarray as xr
from opening import GRID, Traffic, pixels, served, write
from rasterio.transform import Affine
from rasterio.windows import Window
from swath._lazy import Reader
from swath._source import resolve

# rioxarray uses an operator that `affine` is about to drop.
pytestmark = pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")

ARRAY = pixels()


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("open") / "a.tif", ARRAY, overviews=(2, 4), nodata=11, interleave="band")


@pytest.fixture(scope="module")
def address(path: Path) -> Iterator[str]:
    with served({"/a.tif": path.read_bytes()}) as address:
        yield f"{address}/a.tif"


def in_memory_store(path: Path) -> tuple[Any, str]:
    store = obstore.store.MemoryStore()
    obstore.put(store, "a.tif", path.read_bytes())
    return (store, "a.tif")


def in_memory_file(path: Path) -> Any:
    fsspec.filesystem("memory").pipe("/opening/a.tif", path.read_bytes())
    return fsspec.open("memory://opening/a.tif")


SOURCES: dict[str, Callable[[Path], Any]] = {
    "str": str,
    "path": lambda path: path,
    "bytes": Path.read_bytes,
    "bytesio": lambda path: io.BytesIO(path.read_bytes()),
    "file": lambda path: path.open("rb"),
    "fsspec-local": lambda path: fsspec.open(f"file://{path}"),
    "fsspec-memory": in_memory_file,
    "fsspec-file": lambda path: in_memory_file(path).open(),
    "obstore": in_memory_store,
}


@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.parametrize("way", ["eager", "dask", "engine"])
def test_every_source_opens_every_way(path: Path, kind: str, way: str) -> None:
    check_source(SOURCES[kind](path), way)


@pytest.mark.parametrize("way", ["eager", "dask", "engine"])
def test_a_url_opens_every_way(address: str, way: str) -> None:
    check_source(address, way)


def check_source(source: Any, way: str) -> None:
    if way == "engine":
        array = xr.open_dataarray(source, engine="swath", mask_and_scale=False)
    else:
        array = swath.open_geotiff(source, chunks={} if way == "dask" else None)
    assert (array.chunks is not None) == (way == "dask")
    np.testing.assert_array_equal(array.values, ARRAY)
    assert array.rio.crs.to_epsg() == 32633


def test_one_band_and_some_bands(path: Path) -> None:
    whole = swath.open_geotiff(path)
    one = swath.open_geotiff(path, band=2)
    assert one.dims == ("y", "x") and int(one.band) == 2
    xr.testing.assert_identical(one, whole.sel(band=2))
    some = swath.open_geotiff(path, band=[3, 1])
    xr.testing.assert_identical(some, whole.sel(band=[3, 1]))


def test_attributes_follow_the_chosen_bands(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tif", ARRAY)
    with rasterio.open(path, "r+") as file:
        file.descriptions, file.units = ("red", "green", "blue"), ("m", "s", "kg")
        file.scales, file.offsets = (1.0, 2.0, 3.0), (0.0, 10.0, 20.0)
    one = swath.open_geotiff(path, band=2)
    assert (one.long_name, one.units, one.scale_factor, one.add_offset) == ("green", "s", 2.0, 10.0)
    unpacked = swath.open_geotiff(path, band=2, unpack=True)
    assert "scale_factor" not in unpacked.attrs and unpacked.encoding["scale_factor"] == 2.0
    np.testing.assert_array_equal(unpacked.values, ARRAY[1].astype("float32") * np.float32(2) + np.float32(10))
    both = swath.open_geotiff(path, band=[3, 2], mask_and_scale=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = rioxarray.open_rasterio(path, mask_and_scale=True).sel(band=[3, 2])
    xr.testing.assert_equal(both, theirs)
    assert both.encoding["scales"] == (3.0, 2.0) and both.encoding["offsets"] == (20.0, 10.0)


@pytest.mark.parametrize(
    "window",
    [
        Window(10, 5, 30, 20),
        swath.Window(10, 5, 30, 20),
        ((5, 25), (10, 40)),
        (slice(5, 25), slice(10, 40)),
        (5, 10, 25, 40),
    ],
    ids=["rasterio", "swath", "ranges", "slices", "xrspatial"],
)
@pytest.mark.parametrize("chunks", [None, {}, 16])
def test_a_window_is_a_part_of_the_whole(path: Path, window: Any, chunks: Any) -> None:
    part = swath.open_geotiff(path, window=window, chunks=chunks)
    whole = swath.open_geotiff(path).isel(y=slice(5, 25), x=slice(10, 40))
    xr.testing.assert_equal(part, whole)
    for axis in ("x", "y"):
        assert part[axis].values.tobytes() == whole[axis].values.tobytes()
    assert part.rio.transform() == GRID @ Affine.translation(10, 5)
    assert part.swath.transform == tuple(GRID @ Affine.translation(10, 5))[:6]


def test_a_box_takes_the_pixels_it_touches(path: Path) -> None:
    whole = swath.open_geotiff(path)
    # On the edges of pixels, then a little beyond them, then over the edge of the image.
    exact = swath.open_geotiff(path, bbox=(500_100, 4_499_750, 500_400, 4_499_950))
    xr.testing.assert_equal(exact, whole.isel(y=slice(5, 25), x=slice(10, 40)))
    more = swath.open_geotiff(path, bbox=(500_099, 4_499_749, 500_401, 4_499_951))
    xr.testing.assert_equal(more, whole.isel(y=slice(4, 26), x=slice(9, 41)))
    clipped = swath.open_geotiff(path, bbox=(0, 4_499_900, 500_100, 9_000_000))
    xr.testing.assert_equal(clipped, whole.isel(y=slice(0, 10), x=slice(0, 10)))
    level = swath.open_geotiff(path, bbox=(500_100, 4_499_760, 500_400, 4_499_960), overview_level=0)
    xr.testing.assert_equal(level, swath.open_geotiff(path, overview_level=0).isel(y=slice(2, 12), x=slice(5, 20)))


def test_a_box_of_fractions_has_no_extra_row() -> None:
    from swath._georef import window_of_box

    degrees = (0.1, 0.0, 10.0, 0.0, -0.1, 50.0)
    for first in range(50):
        box = (10.0 + 0.1 * first, 50.0 - 0.1 * (first + 7), 10.0 + 0.1 * (first + 7), 50.0 - 0.1 * first)
        assert window_of_box(degrees, 100, 100, box) == (first, first, 7, 7)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "int16", "uint32", "int32", "float32", "float64"])
def test_masked_types_and_values_are_those_of_rioxarray(tmp_path: Path, dtype: str) -> None:
    array = pixels(2, 20, 20, dtype)
    if array.dtype.kind == "f":
        # GDAL also treats close values as nodata.
        array[0, 0, :4] = 5, np.nextafter(5, 6, dtype=dtype), 5 * (1 + 4e-7), 5 * (1 + 6e-7)
    path = write(tmp_path / "a.tif", array, nodata=5)
    ours, theirs = swath.open_geotiff(path, masked=True), rioxarray.open_rasterio(path, masked=True)
    assert ours.dtype == theirs.dtype
    xr.testing.assert_equal(ours, theirs)
    assert np.isnan(ours.values).any()
    np.testing.assert_array_equal(swath.open_geotiff(path, masked=True, chunks=7).values, theirs.values)


def test_masked_hides_what_the_mask_hides(tmp_path: Path) -> None:
    path = write(tmp_path / "mask.tif", ARRAY)
    mask = np.full(ARRAY.shape[1:], 255, "uint8")
    mask[10:20, 30:50] = 0
    with rasterio.Env(GDAL_TIFF_INTERNAL_MASK=True), rasterio.open(path, "r+") as file:
        file.write_mask(mask)
    bands = np.concatenate([ARRAY, mask[None] * np.uint16(257)])
    alpha = write(tmp_path / "alpha.tif", bands, photometric="rgb", alpha="yes")
    for each in (path, alpha):
        ours, theirs = swath.open_geotiff(each, masked=True), rioxarray.open_rasterio(each, masked=True)
        xr.testing.assert_equal(ours, theirs)
        assert np.isnan(ours.values).sum() == 3 * 200
        part = swath.open_geotiff(each, masked=True, window=(15, 25, 30, 60), chunks=10)
        np.testing.assert_array_equal(part.values, theirs.values[:, 15:30, 25:60])


def test_type_of_the_result(path: Path) -> None:
    assert swath.open_geotiff(path, dtype="float64").dtype == "float64"
    assert swath.open_geotiff(path, dtype="float64", chunks=32).dtype == "float64"
    masked = swath.open_geotiff(path, dtype="float64", masked=True)
    assert masked.dtype == "float64" and np.isnan(masked.values).sum() == (ARRAY == 11).sum()
    with pytest.raises(swath.UsageError, match="fractions"):
        swath.open_geotiff(path, dtype="int32", masked=True)
    with pytest.raises(swath.UsageError, match="numeric type"):
        swath.open_geotiff(path, dtype="U5")


def test_integers_do_not_wrap_around(tmp_path: Path) -> None:
    array = np.arange(64 * 64, dtype="uint32").reshape(1, 64, 64)
    array[0, 0, 0] = 70_000
    path = write(tmp_path / "a.tif", array)
    with pytest.raises(swath.UsageError, match=r"a\.tif: .*from 1 to 70000 .*0 to 65535"):
        swath.open_geotiff(path, dtype="uint16")
    with pytest.raises(swath.UsageError, match="-128 to 127"):
        swath.open_geotiff(path, dtype="int8")
    narrow = swath.open_geotiff(path, dtype="int32")
    np.testing.assert_array_equal(narrow.values, array.astype("int32"))
    # For a lazy array, when its blocks are read.
    lazy = swath.open_geotiff(path, dtype="uint16", chunks=32)
    np.testing.assert_array_equal(lazy[:, 32:].values, array[:, 32:].astype("uint16"))
    with pytest.raises(swath.UsageError, match="70000"):
        lazy.compute()


def test_a_type_must_hold_nodata(tmp_path: Path) -> None:
    array = pixels(1, 20, 20, "uint8").astype("int16")
    path = write(tmp_path / "a.tif", array, nodata=-9999)
    with pytest.raises(swath.UsageError, match="nodata is -9999"):
        swath.open_geotiff(path, dtype="uint8")
    assert swath.open_geotiff(path, dtype="int32").attrs["_FillValue"] == -9999


def test_complex_samples_keep_their_imaginary_parts(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tif", pixels(1, 20, 20, "float32").astype("complex64"))
    with pytest.raises(swath.UsageError, match="imaginary"):
        swath.open_geotiff(path, dtype="float32")
    assert swath.open_geotiff(path, dtype="complex128").dtype == "complex128"


def test_names_and_coordinates_can_be_chosen(path: Path) -> None:
    assert swath.open_geotiff(path).name is None
    assert swath.open_geotiff(path, default_name="dem").name == swath.open_geotiff(path, name="dem").name == "dem"
    assert "x" in swath.open_geotiff(path, parse_coordinates=None).coords
    bare = swath.open_geotiff(path, parse_coordinates=False)
    assert list(bare.coords) == ["band", "spatial_ref"]
    assert bare.rio.transform() == GRID


def test_keywords_of_xrspatial_are_accepted(path: Path) -> None:
    attrs = swath.open_geotiff(path).attrs
    assert attrs["crs"] == 32633 and attrs["nodata"] == 11
    assert "transform" not in attrs, "isel would not update it"


def test_results_computed_from_masked_samples_have_no_nodata(tmp_path: Path) -> None:
    array = pixels(1, 20, 20, "uint8").astype("int16")
    path = write(tmp_path / "a.tif", array, nodata=0)
    for masked in (
        swath.open_geotiff(path, masked=True),
        xr.open_dataarray(path, engine="swath"),
        xr.open_dataset(path, engine="swath", band_as_variable=True).band_1,
    ):
        assert "nodata" not in masked.attrs and masked.encoding["_FillValue"] == 0
        # A one becomes a valid zero, and stays valid.
        swath.to_geotiff(masked - 1, tmp_path / "b.tif")
        again = swath.open_geotiff(tmp_path / "b.tif", masked=True).values.squeeze()
        np.testing.assert_array_equal(again, np.where(array[0] == 0, np.nan, array[0] - 1.0))


def test_palettes_are_kept(tmp_path: Path) -> None:
    classes = (np.arange(300 * 300) // 7 % 5 * 60).reshape(1, 300, 300).astype("uint8")
    path = write(tmp_path / "a.tif", classes)
    colours = {value: (value, 255 - value, value // 2, 255) for value in range(256)}
    with rasterio.open(path, "r+") as file:
        file.write_colormap(1, colours)
    array = swath.open_geotiff(path)
    assert len(array.attrs["colormap"]) == 3 * 256 and array.attrs["colormap"][60 + 256] == 195 * 257
    for each in (array, swath.open_geotiff(path, chunks=64), swath.open_geotiff(path, masked=True)):
        swath.to_geotiff(each, tmp_path / "b.tif", cog=True, tile_size=64)
        with rasterio.open(tmp_path / "b.tif") as file:
            assert file.colormap(1) == colours
        for level in range(2):
            smaller = swath.open_geotiff(tmp_path / "b.tif", overview_level=level)
            assert set(np.unique(smaller)) <= set(np.unique(classes))


def test_rotated_grids_have_coordinates_over_both_dimensions(tmp_path: Path) -> None:
    turned = Affine.translation(100, 200) @ Affine.rotation(30) @ Affine.scale(2, -2)
    path = write(tmp_path / "a.tif", ARRAY, transform=turned)
    ours, theirs = swath.open_geotiff(path), rioxarray.open_rasterio(path)
    assert list(ours.coords) == list(theirs.coords)
    for axis in ("xc", "yc"):
        assert ours[axis].values.tobytes() == theirs[axis].values.tobytes()
    with pytest.raises(swath.UsageError, match="rotation"):
        swath.open_geotiff(path, bbox=(0, 0, 1, 1))
    part = swath.open_geotiff(path, window=(5, 10, 25, 40))
    xr.testing.assert_equal(part, ours.isel(y=slice(5, 25), x=slice(10, 40)))


def test_control_points_move_with_the_window(tmp_path: Path) -> None:
    points = [
        rasterio.control.GroundControlPoint(row, col, col * 2.0, row * -3.0, 1.0) for row, col in ((0, 0), (9, 4))
    ]
    path = tmp_path / "a.tif"
    with rasterio.open(path, "w", driver="GTiff", count=1, height=20, width=20, dtype="uint8") as file:
        file.write(pixels(1, 20, 20, "uint8"))
        file.gcps = (points, rasterio.crs.CRS.from_epsg(4326))
    ours, theirs = swath.open_geotiff(path), rioxarray.open_rasterio(path)
    assert "x" not in ours.coords
    assert ours.spatial_ref.attrs == theirs.spatial_ref.attrs
    part = json.loads(swath.open_geotiff(path, window=(3, 2, 10, 10)).spatial_ref.attrs["gcps"])
    assert [feature["properties"]["row"] for feature in part["features"]] == [-3.0, 6.0]


def test_a_file_without_georeferencing_counts_pixels(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tif", ARRAY, crs=None, transform=None)
    array = swath.open_geotiff(path)
    assert array.x.values[:2].tolist() == [0.5, 1.5] and "crs" not in array.attrs
    with pytest.raises(swath.UsageError, match="georeferenced"):
        swath.open_geotiff(path, bbox=(0, 0, 1, 1))


def test_refusals_say_what_and_where(path: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as missing:
        swath.open_geotiff(tmp_path / "missing.tif")
    assert isinstance(missing.value, swath.Error) and "missing.tif" in str(missing.value)
    other = tmp_path / "text.tif"
    other.write_text("this is no image at all")
    with pytest.raises(swath.FormatError, match=r"text\.tif"):
        swath.open_geotiff(other)
    for band in (0, 4, [1, 9], []):
        with pytest.raises(swath.UsageError, match="1 to 3"):
            swath.open_geotiff(path, band=band)
    with pytest.raises(swath.UsageError, match="levels count from 0 to 1"):
        swath.open_geotiff(path, overview_level=2)
    with pytest.raises(swath.UsageError, match="give one of them"):
        swath.open_geotiff(path, window=(0, 0, 1, 1), bbox=(0, 0, 1, 1))
    with pytest.raises(swath.UsageError, match="does not touch"):
        swath.open_geotiff(path, bbox=(0, 0, 1, 1))
    with pytest.raises(swath.UsageError, match="device"):
        swath.open_geotiff(path, device="tpu")
    with pytest.raises(swath.UsageError, match="give one of them"):
        swath.open_geotiff(path, device="cpu", gpu=True)
    with pytest.raises(swath.UsageError, match="on_gpu_failure"):
        swath.open_geotiff(path, on_gpu_failure="ignore")
    with pytest.raises(swath.Error):
        swath.open_geotiff(path, window=(0, 0, 71, 10))


def test_size_is_limited_before_memory_is_taken(path: Path) -> None:
    with pytest.raises(swath.LimitError):
        swath.open_geotiff(path, max_pixels=1000)
    assert swath.open_geotiff(path, max_pixels=1_000_000).shape == ARRAY.shape


def test_without_cupy_the_gpu_is_refused_or_not_used(path: Path) -> None:
    if importlib.util.find_spec("cupy"):
        pytest.skip("CuPy is installed")
    for words in ({"device": "cuda"}, {"device": "gpu"}, {"gpu": True}, {"gpu": True, "chunks": {}}):
        with pytest.raises(swath.DeviceError, match=r"swath\[cuda12\]"):
            swath.open_geotiff(path, **words)
    with pytest.warns(swath.DeviceWarning, match="CuPy"):
        array = swath.open_geotiff(path, gpu=True, on_gpu_failure="auto")
    np.testing.assert_array_equal(array.values, ARRAY)
    with pytest.warns(swath.DeviceWarning, match=r"CPU.*CuPy"):
        array = swath.open_geotiff(path, device="auto")
    assert isinstance(array.data, np.ndarray)


class WithoutGpu:
    """A handle whose GPU fails, whatever the machine has."""

    def __init__(self, handle: Any) -> None:
        self.handle = handle

    def __getattr__(self, name: str) -> Any:
        return getattr(self.handle, name)

    def read_window(self, *arguments: Any, device: str | None = None, **options: Any) -> Any:
        if device == "cuda":
            raise swath.DeviceError("the GPU is out of memory")
        return self.handle.read_window(*arguments, **options)


@pytest.mark.parametrize("chunks", [None, 32])
def test_a_gpu_that_fails_is_reported_or_not_used(
    path: Path, monkeypatch: pytest.MonkeyPatch, chunks: int | None
) -> None:
    # NumPy stands in for CuPy: the test is about which device is tried, and what happens when it fails.
    runtime = types.SimpleNamespace(getDeviceCount=lambda: 1)
    cuda = types.SimpleNamespace(runtime=runtime)
    stand_in = types.SimpleNamespace(asarray=np.asarray, empty=np.empty, cuda=cuda)
    monkeypatch.setitem(sys.modules, "cupy", stand_in)
    monkeypatch.setattr(Reader, "opened", lambda reader: WithoutGpu(reader.handle))
    with pytest.raises(swath.DeviceError, match="out of memory"):
        swath.open_geotiff(path, gpu=True, chunks=chunks).compute()
    with pytest.warns(swath.DeviceWarning, match="out of memory") as warned:
        array = swath.open_geotiff(path, gpu=True, chunks=chunks, on_gpu_failure="auto", masked=True).compute()
    assert len({str(warning.message) for warning in warned}) == 1
    np.testing.assert_array_equal(array.values, swath.open_geotiff(path, masked=True).values)


def test_works_without_pyproj(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from swath import _georef

    monkeypatch.setitem(sys.modules, "pyproj", None)
    _georef._crs_items.cache_clear()
    try:
        attrs = swath.open_geotiff(path).spatial_ref.attrs
        assert attrs["crs_wkt"] == attrs["spatial_ref"] and "UTM zone 33N" in attrs["crs_wkt"]
        assert attrs["GeoTransform"] == "500000.0 10.0 0.0 4500000.0 0.0 -10.0"
        assert swath.open_geotiff(path).rio.crs.to_epsg() == 32633
    finally:
        _georef._crs_items.cache_clear()


def test_an_open_handle_is_a_source(path: Path) -> None:
    handle = swath.Dataset(path)
    for words in ({}, {"chunks": {}}, {"max_pixels": 100_000}):
        np.testing.assert_array_equal(swath.open_geotiff(handle, **words).values, ARRAY)


@pytest.mark.parametrize(("missing", "words"), [("xarray", {}), ("dask.array", {"chunks": {}})])
def test_missing_packages_are_named(
    path: Path, monkeypatch: pytest.MonkeyPatch, missing: str, words: dict[str, Any]
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    if missing == "dask.array":
        monkeypatch.setitem(sys.modules, "dask.array.core", None)
    with pytest.raises(ImportError, match=rf"pip install swath\[{missing.split('.')[0]}\]"):
        swath.open_geotiff(path, **words)


def test_results_do_not_share_their_attributes(path: Path) -> None:
    first = swath.open_geotiff(path)
    first.attrs["note"] = first.x.attrs["note"] = first.spatial_ref.attrs["note"] = "mine"
    first.values[:] = 0
    second = swath.open_geotiff(path)
    assert "note" not in {**second.attrs, **second.x.attrs, **second.spatial_ref.attrs}
    np.testing.assert_array_equal(second.values, ARRAY)


def test_results_do_not_share_their_indexes(path: Path) -> None:
    for axis in ("band", "y", "x"):
        index = swath.open_geotiff(path).indexes[axis]
        index.name = "other"
        with pytest.raises(ValueError, match="read-only"):
            index.values[0] = 0
    row = swath.open_geotiff(path)[0, 0].to_pandas()
    row.index.name = "easting"
    second = swath.open_geotiff(path)
    assert [second.indexes[axis].name for axis in second.dims] == ["band", "y", "x"]
    assert second.sel(band=2, x=500_005.0, y=4_499_995.0) == ARRAY[1, 0, 0]
    assert second.to_dataframe("v").index.names == ["band", "y", "x"]


@pytest.mark.parametrize("order", [[2, 1], [3, 1], [1, 3]])
def test_names_stay_with_their_bands(tmp_path: Path, order: list[int]) -> None:
    path = write(tmp_path / "a.tif", ARRAY)
    with rasterio.open(path, "r+") as file:
        file.descriptions = ("1", "2", "3")
    some = swath.open_geotiff(path, band=order)
    for each in (some, some.isel(band=[1, 0])):
        swath.to_geotiff(each, tmp_path / "b.tif")
        with rasterio.open(tmp_path / "b.tif") as file:
            assert file.descriptions == tuple(str(band) for band in each.band.values)


def test_mutable_memory_is_read_in_place_and_copied_when_pickled(path: Path) -> None:
    content = path.read_bytes()
    fixed, own, file = (resolve(kind(content)) for kind in (bytes, bytearray, io.BytesIO))
    assert [each.mutable for each in (fixed, own, file)] == [False, True, True]
    assert not resolve(memoryview(content)).mutable and not resolve(path).mutable
    assert resolve(memoryview(bytearray(content)).toreadonly()).mutable
    assert fixed.pickled is content
    travelling = own.pickled, file.pickled
    own.native[:4] = file.native[:4] = b"none"
    assert travelling == (content, content)


def test_requests_share_connections(tmp_path: Path) -> None:
    array = pixels(1, 400, 400)
    content = write(tmp_path / "a.tif", array, compress=None).read_bytes()
    traffic = Traffic()
    with served({"/a.tif": content}, traffic) as address:
        handle = swath.Dataset(f"{address}/a.tif", tile_cache=0, storage_options={"in_flight": 4})
        for y in range(0, 400, 16):
            np.testing.assert_array_equal(np.asarray(handle.read(1, (y, 0, y + 16, 400))), array[0, y : y + 16])
    assert len(traffic.requests) > 20
    assert traffic.connections <= 5


def test_redirects_are_followed_once_and_again_where_they_end(tmp_path: Path) -> None:
    array = pixels(1, 400, 400)
    content = write(tmp_path / "a.tif", array, compress=None).read_bytes()
    traffic = Traffic()
    files: dict[str, Any] = {"/old.tif": "/here/new.tif", "/here/new.tif": content, "/round.tif": "/round.tif"}
    with served(files, traffic) as address:
        handle = swath.Dataset(f"{address}/old.tif", threads=1, tile_cache=0)
        for y in range(0, 400, 100):
            np.testing.assert_array_equal(np.asarray(handle.read(1, (y, 0, y + 100, 400))), array[0, y : y + 100])
        assert traffic.paths().count("/old.tif") == 1 and len(traffic.requests) > 4
        del files["/here/new.tif"]
        files |= {"/old.tif": f"{address}/newer.tif", "/newer.tif": content}
        np.testing.assert_array_equal(np.asarray(handle.read(1)), array[0])
        assert traffic.paths()[-1] == "/newer.tif"
        with pytest.raises(swath.SourceError, match="redirects"):
            swath.open_geotiff(f"{address}/round.tif")


def test_addresses_with_users_spaces_and_letters(path: Path) -> None:
    content = path.read_bytes()
    traffic = Traffic()
    with served({"/a%20%C3%A9%25.tif?k=a%20b": content}, traffic) as address:
        host = address.removeprefix("http://")
        array = swath.open_geotiff(f"http://me:p%40ss@{host}/a \u00e9%25.tif?k=a b")
        np.testing.assert_array_equal(array.values, ARRAY)
        assert array.encoding["source"] == f"{address}/a \u00e9%25.tif"
        asked = {headers.get("Authorization") for _, headers in traffic.requests}
        assert asked == {"Basic " + base64.b64encode(b"me:p@ss").decode()}


def test_passwords_stay_with_their_server(path: Path) -> None:
    here, there = Traffic(), Traffic()
    with served({"/a.tif": path.read_bytes()}, there) as other, served({"/a.tif": f"{other}/a.tif"}, here) as address:
        swath.open_geotiff(address.replace("//", "//me:secret@") + "/a.tif")
    assert "Authorization" in here.requests[0][1]
    assert there.requests and not any("Authorization" in headers for _, headers in there.requests)


def test_proxies_are_used(path: Path) -> None:
    traffic = Traffic()
    content = path.read_bytes()
    # A process looks up its proxies once, so a new process is used.
    code = """
import sys, swath
assert swath.Dataset("http://elsewhere.invalid:81/a.tif").count == 3
try:
    swath.Dataset("https://elsewhere.invalid/a.tif", storage_options={"retries": 0})
except swath.SourceError as error:
    assert "secret" not in str(error)
swath.Dataset(sys.argv[1])
"""
    with served({"http://elsewhere.invalid:81/a.tif": content, "/a.tif": content}, traffic) as address:
        proxy = address.replace("//", "//me:secret@")
        # No proxy is used for hosts in no_proxy.
        proxies = {"http_proxy": proxy, "https_proxy": proxy, "no_proxy": "127.0.0.1"}
        argv = [sys.executable, "-W", "ignore", "-c", code, f"{address}/a.tif"]
        subprocess.run(argv, env={**os.environ, **proxies}, check=True, timeout=60)
    assert traffic.paths() == ["http://elsewhere.invalid:81/a.tif", "elsewhere.invalid:443", "/a.tif"]
    assert "Proxy-Authorization" in traffic.requests[0][1]


def test_sources_that_cannot_be_opened_raise_errors_of_the_package(tmp_path: Path) -> None:
    closed = (tmp_path / "closed").open("w+b", buffering=0)
    store = obstore.store.MemoryStore()
    with served({}) as address:
        for source, name in (
            (f"{address}/none.tif?key=1", f"{address}/none.tif"),
            ("memory://opening/none.tif", "memory:///opening/none.tif"),
            ((store, "none.tif"), "none.tif"),
        ):
            with pytest.raises(FileNotFoundError, match=r"none\.tif") as missing:
                swath.open_geotiff(source)
            assert isinstance(missing.value, swath.SourceError) and missing.value.file == name
    for source in (
        f"{address}/a.tif",
        "http://swath.invalid/a.tif",
        "http://me:secret@/a.tif",
        "http://me:secret@host:port/a.tif",
    ):
        with pytest.raises(swath.Error, match=r"a\.tif") as refused:
            swath.open_geotiff(source)
        assert "secret" not in str(refused.value)
    closed.close()
    with pytest.raises(swath.Error, match="closed"):
        swath.open_geotiff(closed)


def test_a_file_object_that_returns_more_than_requested_is_refused(path: Path) -> None:
    class Longer(io.RawIOBase):
        """Without an end."""

        asked = 0

        def seek(self, offset: int, whence: int = 0) -> int:
            return 10_000 if whence == 2 else offset

        def read(self, size: int = -1) -> bytes:
            self.asked += 1
            assert self.asked < 100, "it is asked again and again"
            return path.read_bytes()[:4] + bytes(max(size, 0) + 5)

    with pytest.raises(swath.Error, match="bytes for a range of"):
        swath.Dataset(Longer())


@pytest.mark.parametrize("name", ["_open", "xarray_backend"])
def test_examples_run(name: str) -> None:
    results = doctest.testmod(importlib.import_module(f"swath.{name}"))
    assert results.attempted and not results.failed
