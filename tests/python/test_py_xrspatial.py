"""`swath.xrspatial`: files opened and written in xarray-spatial's conventions, compared with rasterio."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import fsspec
import numpy as np
import pytest
import rasterio
import swath
import swath.xrspatial
import tifffile
import xarray as xr
from obstore.store import LocalStore, MemoryStore
from rasterio.transform import Affine
from swath.xrspatial import open_geotiff, to_geotiff

TRANSFORM = (10.0, 0.0, 500000.0, 0.0, -10.0, 4000000.0)


def dem(height: int = 5, width: int = 7, dtype: str = "int16", **attrs: object) -> xr.DataArray:
    a, _, c, _, e, f = TRANSFORM
    return xr.DataArray(
        np.arange(height * width, dtype=dtype).reshape(height, width),
        dims=("y", "x"),
        coords={"y": f + e * (np.arange(height) + 0.5), "x": c + a * (np.arange(width) + 0.5)},
        attrs={"crs": 32633, **attrs},
    )


@pytest.fixture
def plain(tmp_path: Path) -> str:
    """A file of three bands with overviews and nodata, written by rasterio."""
    path = tmp_path / "three bands.tif"
    samples = np.arange(3 * 64 * 64, dtype="uint16").reshape(3, 64, 64)
    with rasterio.open(
        path, "w", driver="GTiff", width=64, height=64, count=3, dtype="uint16", crs="EPSG:32633", nodata=5,
        transform=Affine(*TRANSFORM),
    ) as file:  # fmt: skip
        file.write(samples)
        file.build_overviews([2, 4])
    return str(path)


def test_bands_count_from_zero_and_come_last(plain: str) -> None:
    array = open_geotiff(plain)
    assert array.dims == ("y", "x", "band") and array.shape == (64, 64, 3)
    assert array.name == "three bands" and array.band.values.tolist() == [0, 1, 2]
    with rasterio.open(plain) as file:
        assert np.array_equal(array.values, np.moveaxis(file.read(), 0, -1))
        assert np.array_equal(open_geotiff(plain, band=2).values, file.read(3))
    with pytest.raises(IndexError, match="band=3"):
        open_geotiff(plain, band=3)


def test_level_zero_is_the_full_image(plain: str) -> None:
    assert open_geotiff(plain, overview_level=0).shape == (64, 64, 3)
    half = open_geotiff(plain, overview_level=1, band=0)
    assert half.shape == (32, 32) and half.attrs["transform"][0] == 20.0
    with rasterio.open(plain, overview_level=0) as file:
        assert np.array_equal(half.values, file.read(1))
    with pytest.raises(ValueError, match="overview_level=3"):
        open_geotiff(plain, overview_level=3)


def test_attributes_keep_the_contract(plain: str) -> None:
    attrs = open_geotiff(plain).attrs
    assert attrs["_xrspatial_geotiff_contract"] == 5 and attrs["georef_status"] == "full"
    assert attrs["crs"] == 32633 and attrs["crs_wkt"].startswith("PROJCRS")
    assert attrs["transform"] == TRANSFORM
    assert attrs["nodata"] == 5 and attrs["masked_nodata"] is False and attrs["nodata_pixels_present"] is True


def test_masking_makes_float64(plain: str) -> None:
    array = open_geotiff(plain, masked=True, band=0)
    assert array.dtype == "float64" and np.isnan(array.values).sum() == 1
    assert array.attrs["nodata"] == 5 and array.attrs["masked_nodata"] is True
    lazy = open_geotiff(plain, masked=True, band=0, chunks=16)
    assert lazy.chunks == ((16,) * 4, (16,) * 4) and "nodata_pixels_present" not in lazy.attrs
    assert np.array_equal(lazy.values, array.values, equal_nan=True)
    with pytest.warns(DeprecationWarning, match="masked"):
        assert open_geotiff(plain, mask_nodata=True, band=0).dtype == "float64"


def test_round_trip_of_points_and_tags(tmp_path: Path) -> None:
    path = str(tmp_path / "a.tif")
    attrs = {
        "nodata": -1,
        "raster_type": "point",
        "gdal_metadata": {"name": "x < y & z", ("SCALE", 0): "0.5"},
        "x_resolution": 96.0,
        "y_resolution": 72.5,
        "resolution_unit": "inch",
        "image_description": "hills",
        "extra_tags": [(65000, 2, 5, "mine")],
    }
    data = dem(transform=(10.0, 0.0, 500005.0, 0.0, -10.0, 3999995.0), **attrs)
    assert to_geotiff(data, path, compression="deflate") == path
    again = open_geotiff(path)
    assert np.array_equal(again.values, data.values)
    for name in ("crs", "transform", "raster_type", "x_resolution", "y_resolution", "resolution_unit", "nodata"):
        assert again.attrs[name] == data.attrs[name], name
    assert again.attrs["gdal_metadata"] == attrs["gdal_metadata"]
    assert again.attrs["image_description"] == "hills" and (65000, 2, 5, "mine") in again.attrs["extra_tags"]
    assert np.array_equal(again.x, data.x) and np.array_equal(again.y, data.y)
    with rasterio.open(path) as file:
        # GDAL reports the corner for areas and points alike.
        assert tuple(file.transform)[:6] == TRANSFORM and file.tags()["AREA_OR_POINT"] == "Point"
        assert file.scales == (0.5,) and file.tags()["name"] == "x < y & z" and file.nodata == -1


def test_unpacking_and_packing_are_inverse(tmp_path: Path) -> None:
    path, again = str(tmp_path / "a.tif"), str(tmp_path / "b.tif")
    to_geotiff(dem(nodata=3, gdal_metadata={("SCALE", 0): "0.1", ("OFFSET", 0): "2"}), path)
    array = open_geotiff(path, unpack=True)
    assert array.attrs["scale_factor"] == 0.1 and array.attrs["mask_and_scale_dtype"] == "int16"
    assert array.values[0, 0] == 2.0 and np.isnan(array.values[0, 3])
    to_geotiff(array, again, pack=True)
    with rasterio.open(path) as one, rasterio.open(again) as other:
        assert np.array_equal(one.read(), other.read()) and one.scales == other.scales and one.dtypes == other.dtypes


def test_a_grid_without_georeferencing_has_pixel_numbers(tmp_path: Path) -> None:
    path = str(tmp_path / "a.tif")
    tifffile.imwrite(path, np.arange(24, dtype="uint8").reshape(4, 6))
    array = open_geotiff(path, window=(1, 2, 3, 5))
    assert array.y.values.tolist() == [1, 2] and array.x.dtype == "int64" and array.x.values.tolist() == [2, 3, 4]
    assert array.attrs["georef_status"] == "none" and "transform" not in array.attrs
    to_geotiff(array, path)
    assert open_geotiff(path).attrs["georef_status"] == "none"


def test_rotated_grids_need_permission(tmp_path: Path) -> None:
    path = str(tmp_path / "a.tif")
    turned = (10.0, 2.0, 500000.0, 2.0, -10.0, 4000000.0)
    swath.to_geotiff(np.zeros((4, 4), "uint8"), path, transform=turned, crs=32633)
    with pytest.raises(swath.xrspatial.RotatedTransformError, match="allow_rotated") as caught:
        open_geotiff(path)
    assert isinstance(caught.value, swath.UsageError) and isinstance(caught.value, ValueError)
    array = open_geotiff(path, allow_rotated=True)
    assert array.attrs["rotated_affine"] == turned and array.attrs["georef_status"] == "rotated_dropped"
    with pytest.raises(swath.xrspatial.RotatedTransformError, match="drop_rotation"):
        to_geotiff(array, tmp_path / "b.tif")
    to_geotiff(array, tmp_path / "b.tif", drop_rotation=True)
    assert open_geotiff(tmp_path / "b.tif").attrs["georef_status"] == "none"


@pytest.mark.parametrize("orientation", range(1, 9))
def test_images_are_upright(tmp_path: Path, orientation: int) -> None:
    path, samples = tmp_path / "a.tif", np.arange(24, dtype="uint8").reshape(4, 6)
    tifffile.imwrite(path, samples, extratags=[(274, "H", 1, orientation, True)])
    turned = samples.T if orientation > 4 else samples
    flipped = turned[:: -1 if orientation in (3, 4, 7, 8) else 1, :: -1 if orientation in (2, 3, 6, 7) else 1]
    assert np.array_equal(open_geotiff(path).values, flipped)


def test_a_flipped_image_keeps_its_place(tmp_path: Path) -> None:
    path, samples = tmp_path / "a.tif", np.arange(24, dtype="uint8").reshape(4, 6)
    places = [(33550, "d", 3, (10.0, 10.0, 0.0), True), (33922, "d", 6, (0.0, 0.0, 0.0, 500.0, 900.0, 0.0), True)]
    tifffile.imwrite(path, samples, extratags=[(274, "H", 1, 2, True), *places])
    array = open_geotiff(path)
    assert array.x.values.tolist() == [555.0, 545.0, 535.0, 525.0, 515.0, 505.0]
    assert array.attrs["transform"] == (-10.0, 0.0, 560.0, 0.0, -10.0, 900.0)
    assert array.sel(x=505.0, y=895.0) == samples[0, 0]


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "float32"])
def test_white_is_zero_is_turned_around_and_back(tmp_path: Path, dtype: str) -> None:
    path = str(tmp_path / "a.tif")
    data = dem(dtype=dtype, nodata=3)
    to_geotiff(data, path, photometric="miniswhite")
    assert np.array_equal(open_geotiff(path).values, data.values)
    masked = open_geotiff(path, masked=True).values
    assert np.isnan(masked[0, 3]) and np.isnan(masked).sum() == 1
    with rasterio.open(path) as file:
        assert not np.array_equal(file.read(1), data.values)


def test_nodata_beyond_the_type_is_kept(tmp_path: Path) -> None:
    path = str(tmp_path / "a.tif")
    to_geotiff(dem(dtype="uint8", nodata=-9999), path)
    array = open_geotiff(path, masked=True)
    assert array.dtype == "uint8" and array.attrs["nodata"] == -9999 and array.attrs["masked_nodata"] is False


def test_integers_with_fractional_nodata_need_permission(tmp_path: Path) -> None:
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, np.zeros((4, 4), "uint8"), extratags=[(42113, "s", 4, "3.5", True)])
    with pytest.raises(swath.xrspatial.InvalidIntegerNodataError, match="fractional"):
        open_geotiff(path)
    assert open_geotiff(path, allow_invalid_nodata=True, masked=True).dtype == "uint8"


@pytest.mark.parametrize(
    ("attrs", "error"),
    [
        ({"crs_wkt": 'GEOGCS["x",DATUM["y",SPHEROID["z",6378137,298]],UNIT["degree",0.017]]'}, "ConflictingCRSError"),
        ({"nodata": 1, "nodatavals": (2,)}, "ConflictingNodataError"),
        ({"nodatavals": (1, 2)}, "ConflictingNodataError"),
        ({"crs": 999999}, "InvalidCRSCodeError"),
        ({"crs": "no reference system"}, "UnparseableCRSError"),
    ],
)
def test_contradictions_are_refused(attrs: dict[str, object], error: str) -> None:
    with pytest.raises(getattr(swath.xrspatial, error)) as caught:
        to_geotiff(dem(**attrs), io.BytesIO())
    assert isinstance(caught.value, swath.xrspatial.GeoTIFFAmbiguousMetadataError)


def test_uneven_coordinates_are_refused() -> None:
    data = dem()
    data["x"] = np.cumsum(np.arange(7.0))
    with pytest.raises(swath.xrspatial.NonUniformCoordsError):
        to_geotiff(data, io.BytesIO())


def test_limits(plain: str) -> None:
    with pytest.raises(swath.xrspatial.PixelSafetyLimitError):
        open_geotiff(plain, max_pixels=10)
    with pytest.raises(swath.xrspatial.RemoteStableSourcesOnlyError):
        open_geotiff("https://example.invalid/a.tif", stable_only=True)
    with pytest.raises(swath.xrspatial.UnsafeURLError, match="PRIVATE_HOSTS"):
        open_geotiff("http://127.0.0.1:9/a.tif")
    with pytest.raises(swath.xrspatial.VRTUnsupportedError):
        open_geotiff("a.vrt")


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ({"band": True}, TypeError),
        ({"band": -1}, IndexError),
        ({"overview_level": "1"}, TypeError),
        ({"chunks": 0}, ValueError),
        ({"chunks": (1, 2, 3)}, ValueError),
        ({"on_gpu_failure": "strict"}, ValueError),
        ({"band_nodata": "first"}, ValueError),
        ({"missing_sources": "warn"}, ValueError),
        ({"masked": True, "mask_nodata": True}, TypeError),
    ],
)
def test_invalid_keywords_are_refused(plain: str, words: dict[str, object], error: type[Exception]) -> None:
    with pytest.raises(error) as caught:
        open_geotiff(plain, **words)
    assert isinstance(caught.value, swath.Error)


def test_every_name_of_the_original_is_there() -> None:
    names = {
        *("CloudSizeLimitError", "ConflictingCRSError", "ConflictingNodataError", "DegeneratePixelSizeError"),
        *("DuplicateIFDTagError", "GeoTIFFAmbiguousMetadataError", "GeoTIFFFallbackWarning", "GEOREF_STATUS_CRS_ONLY"),
        *("GEOREF_STATUS_FULL", "GEOREF_STATUS_NONE", "GEOREF_STATUS_ROTATED_DROPPED", "GEOREF_STATUS_TRANSFORM_ONLY"),
        *("GEOREF_STATUS_VALUES", "InconsistentGeoKeysError", "InvalidCRSCodeError", "InvalidIntegerNodataError"),
        *("MalformedScaleOffsetError", "MixedBandMetadataError", "NonRepresentableEPSGCRSError"),
        *("NonUniformCoordsError", "PixelSafetyLimitError", "RemoteStableSourcesOnlyError", "RotatedTransformError"),
        *("UnknownCRSModelTypeError", "UnparseableCRSError", "UnsafeURLError", "UnsupportedGeoTIFFFeatureError"),
        *("VRTStableSourcesOnlyError", "VRTUnsupportedError", "open_geotiff", "to_geotiff"),
    }
    assert names <= set(swath.xrspatial.__all__)


# ------------------------------------------------------------------------------ the same keywords in swath's functions


def test_swath_takes_keywords_that_allow(plain: str) -> None:
    words = {
        "allow_rotated": True,
        "allow_unparseable_crs": True,
        "allow_invalid_nodata": True,
        "allow_experimental_codecs": True,
        "allow_internal_only_jpeg": True,
        "stable_only": True,
        "max_cloud_bytes": 10,
        "missing_sources": "raise",
        "band_nodata": None,
    }
    xr.testing.assert_identical(swath.open_geotiff(plain, **words), swath.open_geotiff(plain))
    masked = swath.open_geotiff(plain, mask_nodata=True)
    xr.testing.assert_identical(masked, swath.open_geotiff(plain, masked=True))


def test_swath_refuses_what_keywords_forbid(tmp_path: Path) -> None:
    path = tmp_path / "a.tif"
    swath.to_geotiff(np.zeros((4, 4), "uint8"), path, transform=(10.0, 2.0, 0.0, 2.0, -10.0, 0.0), crs=32633)
    with pytest.raises(swath.xrspatial.RotatedTransformError):
        swath.open_geotiff(path, allow_rotated=False)
    with pytest.raises(swath.xrspatial.RemoteStableSourcesOnlyError):
        swath.open_geotiff("s3://bucket/a.tif", stable_only=True)
    with pytest.raises(swath.UsageError, match="VRT"):
        swath.open_geotiff(path, missing_sources="warn")
    with pytest.raises(TypeError, match="allow_rotaded"):
        swath.open_geotiff(path, allow_rotaded=True)


@pytest.mark.parametrize(
    "source",
    [
        "/vsis3/bucket/a.tif",
        "/vsigs/bucket/a.tif",
        "/vsicurl/https://example.com/a.tif",
        "GTIFF_DIR:1:/vsis3/bucket/a.tif",
        "s3://bucket/a.tif",
        "https://example.com/a.tif",
        (MemoryStore(), "a.tif"),
        fsspec.filesystem("memory").open("/swath-stable.tif", "wb"),
    ],
    ids=lambda source: source if isinstance(source, str) else type(source).__name__,
)
@pytest.mark.parametrize("open_one", [swath.open_geotiff, open_geotiff], ids=["swath", "xrspatial"])
def test_stable_only_knows_every_spelling_of_a_remote_file(source: object, open_one: Callable[..., object]) -> None:
    with pytest.raises(swath.xrspatial.RemoteStableSourcesOnlyError, match="stable_only=True"):
        open_one(source, stable_only=True)


def test_stable_only_takes_local_files(plain: str) -> None:
    store, name = LocalStore(str(Path(plain).parent)), Path(plain).name
    with rasterio.open(plain) as file:
        for source in (plain, Path(plain), swath.Dataset(plain), (store, name), file, Path(plain).read_bytes()):
            assert swath.open_geotiff(source, stable_only=True).shape == (3, 64, 64)


def test_places_in_the_old_file_are_not_written(tmp_path: Path) -> None:
    """EXIF is a directory of its own: the tag that names its offset means nothing in another file."""
    path = tmp_path / "photo.tif"
    with tifffile.TiffWriter(path) as writer:
        writer.write(np.zeros((8, 8), "uint8"), extratags=[(34665, 4, 1, 8, True), (65000, 2, None, "mine", True)])
    array = open_geotiff(str(path))
    numbers = [tag[0] for tag in array.attrs["extra_tags"]]
    assert 65000 in numbers and 34665 not in numbers
    to_geotiff(array, str(tmp_path / "b.tif"))
    with tifffile.TiffFile(tmp_path / "b.tif") as file:
        assert 34665 not in file.pages[0].tags and file.pages[0].tags[65000].value == "mine"
    array.attrs["extra_tags"] = [(34665, 4, 1, 8)]
    with pytest.warns(swath.SwathWarning, match="tag 34665 is left out"):
        to_geotiff(array, str(tmp_path / "c.tif"))
    with pytest.raises(swath.UsageError, match="extra_tags"):
        swath.to_geotiff(np.zeros((8, 8), "uint8"), None, extra_tags=[(34853, 4, 8)])


@pytest.mark.parametrize("words", [{}, {"cog": True}])
@pytest.mark.parametrize("kept", ["both", "gdal_metadata", "gdal_metadata_xml"])
def test_statistics_of_the_old_samples_are_not_written(tmp_path: Path, words: dict[str, object], kept: str) -> None:
    path = tmp_path / "a.tif"
    profile = {"driver": "GTiff", "width": 7, "height": 5, "count": 1, "dtype": "int16"}
    with rasterio.open(path, "w", **profile) as file:
        file.write(np.arange(35, dtype="int16").reshape(1, 5, 7))
        file.update_tags(AUTHOR="me & you")
        file.update_tags(1, STATISTICS_MAXIMUM="34", STATISTICS_MEAN="17", UNIT="m")
    array = open_geotiff(str(path))
    if kept != "both":
        array.attrs.pop({"gdal_metadata": "gdal_metadata_xml"}.get(kept, "gdal_metadata"))
    with xr.set_options(keep_attrs=True):
        to_geotiff(array * 10, str(tmp_path / "b.tif"), **words)
    with rasterio.open(tmp_path / "b.tif") as file:
        assert file.tags()["AUTHOR"] == "me & you" and file.tags(1)["UNIT"] == "m"
        assert file.tags(1).get("STATISTICS_MAXIMUM") in ((None, "340") if words else (None,))


def test_swath_limits_objects_in_stores() -> None:
    fsspec = pytest.importorskip("fsspec")
    with fsspec.open("memory://swath-words/a.tif", "wb") as file:
        file.write(swath.to_geotiff(np.zeros((64, 64)), None, compression="none", tile_size=64))
    with pytest.raises(swath.xrspatial.CloudSizeLimitError, match="max_cloud_bytes allows 1000"):
        swath.open_geotiff("memory://swath-words/a.tif", max_cloud_bytes=1000)
    with pytest.raises(swath.xrspatial.CloudSizeLimitError):
        open_geotiff("memory://swath-words/a.tif", max_cloud_bytes=1000)
    assert swath.open_geotiff("memory://swath-words/a.tif", max_cloud_bytes=100_000).shape == (1, 64, 64)


def test_swath_writes_one_variable(tmp_path: Path) -> None:
    both = xr.Dataset({"low": dem(), "high": dem() + 100})
    swath.to_geotiff(both, tmp_path / "a.tif", var="high")
    with rasterio.open(tmp_path / "a.tif") as file:
        assert file.count == 1 and np.array_equal(file.read(1), both.high.values)
    with pytest.raises(swath.UsageError, match="low"):
        swath.to_geotiff(both, tmp_path / "a.tif", var="middle")
    with pytest.raises(swath.UsageError, match="Dataset"):
        swath.to_geotiff(both.low, tmp_path / "a.tif", var="low")


def test_swath_drops_a_rotation_on_request(tmp_path: Path) -> None:
    path, turned = tmp_path / "a.tif", (10.0, 2.0, 500000.0, 2.0, -10.0, 4000000.0)
    swath.to_geotiff(np.zeros((4, 4), "uint8"), path, transform=turned, crs=32633)
    array = swath.open_geotiff(path)
    swath.to_geotiff(array, tmp_path / "b.tif")
    swath.to_geotiff(array, tmp_path / "c.tif", drop_rotation=True)
    with rasterio.open(tmp_path / "b.tif") as kept, rasterio.open(tmp_path / "c.tif") as dropped:
        assert tuple(kept.transform)[:6] == turned and dropped.transform.is_identity
    plain = dem()
    swath.to_geotiff(plain, tmp_path / "d.tif", drop_rotation=True)
    with rasterio.open(tmp_path / "d.tif") as file:
        assert tuple(file.transform)[:6] == TRANSFORM


def test_arrays_open_the_part_of_a_file_that_they_cover(tmp_path: Path, plain: str) -> None:
    whole = open_geotiff(plain, band=0)
    part = whole.isel(y=slice(10, 20), x=slice(5, 15))
    opened = part.xrs.open_geotiff(plain, band=0)
    xr.testing.assert_equal(opened, part)
    assert part.chunk(5).xrs.open_geotiff(plain, band=0).chunks == ((5, 5), (5, 5))
    part.xrs.to_geotiff(tmp_path / "a.tif")
    xr.Dataset({"a": part}).xrs.to_geotiff(tmp_path / "b.tif", var="a")
    assert (tmp_path / "a.tif").read_bytes() == (tmp_path / "b.tif").read_bytes()
    with pytest.raises(ValueError, match="crs"):
        part.assign_attrs(crs=4326).xrs.open_geotiff(plain, band=0)


def test_metadata_of_gdal_goes_into_a_cog_as_well(tmp_path: Path) -> None:
    text = (
        '<GDALMetadata><Item name="kind">dem</Item><Item name="by" domain="MINE">me</Item>'
        '<Item name="SCALE" sample="0" role="scale">0.5</Item><Item name="UNITTYPE" sample="0" role="unittype">m</Item>'
        '<Item name="sensor" sample="0">A</Item><Item name="STATISTICS_MAXIMUM" sample="0">9</Item></GDALMetadata>'
    )
    to_geotiff(dem(64, 64, gdal_metadata_xml=text), tmp_path / "a.tif", cog=True, tile_size=16)
    with rasterio.open(tmp_path / "a.tif") as file:
        assert file.tags()["kind"] == "dem" and file.tags(ns="MINE") == {"by": "me"}
        assert file.scales == (0.5,) and file.units == ("m",) and file.tags(1)["sensor"] == "A"
        assert file.tags(1).get("STATISTICS_MAXIMUM") != "9" and file.overviews(1)
