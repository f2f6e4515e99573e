"""`swath.open_geotiff`: what its words mean, from every kind of source, and how it refuses."""

from __future__ import annotations

import doctest
import importlib
import io
import json
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
from opening import GRID, pixels, served, write
from rasterio.transform import Affine
from rasterio.windows import Window
from swath import _errors
from swath._lazy import Reader

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
    assert part.attrs["transform"] == tuple(GRID @ Affine.translation(10, 5))[:6]


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
        # GDAL takes near values for nodata too.
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


def test_names_and_coordinates_can_be_chosen(path: Path) -> None:
    assert swath.open_geotiff(path).name is None
    assert swath.open_geotiff(path, default_name="dem").name == swath.open_geotiff(path, name="dem").name == "dem"
    assert "x" in swath.open_geotiff(path, parse_coordinates=None).coords
    bare = swath.open_geotiff(path, parse_coordinates=False)
    assert list(bare.coords) == ["band", "spatial_ref"]
    assert bare.rio.transform() == GRID


def test_words_of_xrspatial_are_there(path: Path) -> None:
    attrs = swath.open_geotiff(path, masked=True).attrs
    assert attrs["crs"] == 32633 and attrs["nodata"] == 11
    assert attrs["transform"] == (10.0, 0.0, 500_000.0, 0.0, -10.0, 4_500_000.0)


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
        with pytest.raises(swath.UsageError, match="count from 1 to 3"):
            swath.open_geotiff(path, band=band)
    with pytest.raises(swath.UsageError, match="levels count from 0 to 1"):
        swath.open_geotiff(path, overview_level=2)
    with pytest.raises(swath.UsageError, match="give one of them"):
        swath.open_geotiff(path, window=(0, 0, 1, 1), bbox=(0, 0, 1, 1))
    with pytest.raises(swath.UsageError, match="does not touch"):
        swath.open_geotiff(path, bbox=(0, 0, 1, 1))
    with pytest.raises(swath.UsageError, match="device"):
        swath.open_geotiff(path, device="tpu")
    with pytest.raises(swath.UsageError, match="on_gpu_failure"):
        swath.open_geotiff(path, on_gpu_failure="ignore")
    with pytest.raises(swath.Error):
        swath.open_geotiff(path, window=(0, 0, 71, 10))


def test_size_is_limited_before_memory_is_taken(path: Path) -> None:
    with pytest.raises(swath.LimitError):
        swath.open_geotiff(path, max_pixels=1000)
    assert swath.open_geotiff(path, max_pixels=1_000_000).shape == ARRAY.shape


def test_without_cupy_the_gpu_is_refused_or_left(path: Path) -> None:
    if importlib.util.find_spec("cupy"):
        pytest.skip("CuPy is installed")
    for words in ({"device": "cuda"}, {"gpu": True}, {"gpu": True, "chunks": {}}):
        with pytest.raises(swath.DeviceError, match=r"swath\[cuda12\]"):
            swath.open_geotiff(path, **words)
    with pytest.warns(swath.DeviceWarning, match="CuPy"):
        array = swath.open_geotiff(path, gpu=True, on_gpu_failure="auto")
    np.testing.assert_array_equal(array.values, ARRAY)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert isinstance(swath.open_geotiff(path, device="auto").data, np.ndarray)


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
def test_a_gpu_that_fails_is_reported_or_left(path: Path, monkeypatch: pytest.MonkeyPatch, chunks: int | None) -> None:
    # NumPy stands in for CuPy: what is tested is who is asked, and what happens when the answer is no.
    runtime = types.SimpleNamespace(getDeviceCount=lambda: 1)
    cuda = types.SimpleNamespace(runtime=runtime)
    stand_in = types.SimpleNamespace(asarray=np.asarray, empty=np.empty, cuda=cuda)
    monkeypatch.setitem(sys.modules, "cupy", stand_in)
    monkeypatch.setattr(Reader, "opened", lambda reader: WithoutGpu(reader.handle))
    with pytest.raises(swath.DeviceError, match="out of memory"):
        swath.open_geotiff(path, gpu=True, chunks=chunks).compute()
    _errors._told.clear()
    with pytest.warns(swath.DeviceWarning, match="out of memory") as said:
        array = swath.open_geotiff(path, gpu=True, chunks=chunks, on_gpu_failure="auto", masked=True).compute()
    assert len(said) == 1
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
def test_what_is_not_installed_is_named(
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


@pytest.mark.parametrize("name", ["_open", "xarray_backend"])
def test_examples_run(name: str) -> None:
    results = doctest.testmod(importlib.import_module(f"swath.{name}"))
    assert results.attempted and not results.failed
