"""Pages of a file, and the names that GDAL and rasterio give to files."""

from __future__ import annotations

import io
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
import swath
import tifffile
import xarray as xr
from opening import pixels, served, write
from rasterio.io import MemoryFile
from rasterio.vrt import WarpedVRT

ARRAY = pixels()
FIRST, SECOND, THIRD = np.full((40, 50), 7, "uint8"), pixels(1, 60, 70, "int16")[0], pixels(2, 30, 20, "float32")


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("names") / "a b.tif", ARRAY, overviews=(2,))


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three images of different sizes and types; the second has an overview of its own."""
    path = tmp_path_factory.mktemp("pages") / "pages.tif"
    with tifffile.TiffWriter(path) as file:
        file.write(FIRST, photometric="minisblack")
        scale, tie = (10.0, 10.0, 0.0), (0.0, 0.0, 0.0, 500_000.0, 4_500_000.0, 0.0)
        tags = [(33550, "d", 3, scale, True), (33922, "d", 6, tie, True), (42113, "s", 0, "-5", True)]
        file.write(SECOND, photometric="minisblack", subifds=1, extratags=tags)
        file.write(SECOND[::2, ::2].copy(), photometric="minisblack", subfiletype=1)
        file.write(THIRD, photometric="minisblack", planarconfig="separate")
    path.with_name("pages.tif.aux.xml").write_text(
        '<PAMDataset><PAMRasterBand band="1"><Description>of the first</Description></PAMRasterBand></PAMDataset>'
    )
    return path


def test_every_page_opens(pages: Path) -> None:
    for ifd, expected in enumerate((FIRST, SECOND, THIRD)):
        array = swath.open_geotiff(pages, ifd=ifd)
        np.testing.assert_array_equal(array, expected if expected.ndim == 3 else expected[None])
        assert array.dtype == expected.dtype
        dataset = swath.Dataset(pages, ifd=ifd)
        assert dataset.shape == array.shape
        np.testing.assert_array_equal(np.asarray(dataset.read()), array)
    assert swath.open_geotiff(pages).shape == (1, 40, 50)


def test_a_page_is_described_by_its_own_directory(pages: Path) -> None:
    first, second = swath.open_geotiff(pages), swath.open_geotiff(pages, ifd=1)
    assert first.attrs["long_name"] == "of the first" and "long_name" not in second.attrs
    assert second.attrs["_FillValue"] == -5 and "_FillValue" not in first.attrs
    assert second.x[0] == 500_005 and first.x[0] == 0.5
    with rasterio.open(f"GTIFF_DIR:2:{pages}") as theirs:
        assert second.swath.transform == tuple(theirs.transform)[:6] and theirs.nodata == -5


def test_a_page_has_the_overviews_below_it(pages: Path) -> None:
    assert [swath.Dataset(pages, ifd=ifd).overview_sizes for ifd in range(3)] == [[], [(35, 30)], []]
    np.testing.assert_array_equal(swath.open_geotiff(pages, ifd=1, overview_level=0)[0], SECOND[::2, ::2])


@pytest.mark.parametrize("words", [{"lazy": True}, {"chunks": 16}], ids=str)
def test_a_page_is_read_later_and_elsewhere(pages: Path, words: dict[str, Any]) -> None:
    for source in (pages, swath.Dataset(pages, ifd=1), f"GTIFF_DIR:2:{pages}"):
        ifd = {"ifd": 1} if source is pages else {}
        array = pickle.loads(pickle.dumps(swath.open_geotiff(source, **ifd, **words)))
        np.testing.assert_array_equal(array.isel(y=slice(3, 50))[0], SECOND[3:50])
    copied = pickle.loads(pickle.dumps(swath.Dataset(pages, ifd=1)))
    np.testing.assert_array_equal(np.asarray(copied.read(1)), SECOND)
    assert xr.open_dataset(pages, engine="swath", ifd=1).band_data.shape == (1, 60, 70)


def test_names_of_pages(pages: Path) -> None:
    assert swath.Dataset(f"GTIFF_DIR:3:{pages}").shape == (2, 30, 20)
    # Each name is one image, even with handles that are kept open.
    for page, expected in ((2, SECOND), (1, FIRST), (2, SECOND)):
        np.testing.assert_array_equal(np.asarray(swath.read(f"GTIFF_DIR:{page}:{pages}", 1)), expected)
    assert swath.info(f"GTIFF_DIR:2:{pages}")["width"] == 70


@pytest.mark.parametrize("ifd", [-1, 9, "1", True, 1.5])
def test_missing_pages_are_refused(pages: Path, ifd: Any) -> None:
    for opened in (swath.open_geotiff, swath.Dataset):
        with pytest.raises(swath.UsageError, match="directory"):
            opened(pages, ifd=ifd)


def test_two_page_numbers_at_once_are_refused(pages: Path) -> None:
    assert swath.Dataset(f"GTIFF_DIR:2:{pages}", ifd=1).width == 70
    with pytest.raises(swath.UsageError, match="give one"):
        swath.Dataset(f"GTIFF_DIR:2:{pages}", ifd=2)
    with pytest.raises(swath.UsageError, match="ifd="):
        swath.Dataset(f"GTIFF_DIR:off:8:{pages}")


def test_urls_of_files(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path.parent)
    quoted = str(path).replace(" ", "%20")
    for url in (path.as_uri(), f"file://{quoted}", f"file:{quoted}", f"file://localhost{quoted}", "file:a%20b.tif"):
        np.testing.assert_array_equal(swath.open_geotiff(url), ARRAY)
        assert swath.open_geotiff(url, lazy=True).encoding["source"].endswith("a b.tif")
    with pytest.raises(swath.UsageError, match="not this machine"):
        swath.open_geotiff("file://elsewhere/a.tif")


def test_datasets_of_rasterio(path: Path, pages: Path) -> None:
    with rasterio.open(path) as theirs:
        array = swath.open_geotiff(theirs, chunks=32)
        xr.testing.assert_identical(swath.open_geotiff(theirs), swath.open_geotiff(path))
    np.testing.assert_array_equal(array, ARRAY)
    with rasterio.open(f"GTIFF_DIR:2:{pages}") as theirs:
        np.testing.assert_array_equal(swath.open_geotiff(theirs)[0], SECOND)
    with MemoryFile(path.read_bytes()) as file:
        np.testing.assert_array_equal(swath.open_geotiff(file), ARRAY)


def test_datasets_of_rasterio_that_are_more_than_a_file(path: Path, tmp_path: Path) -> None:
    picture = tmp_path / "a.png"
    with rasterio.open(picture, "w", driver="PNG", width=4, height=4, count=1, dtype="uint8") as file:
        file.write(np.ones((1, 4, 4), "uint8"))
    with rasterio.open(path) as plain, WarpedVRT(plain) as warped, rasterio.open(picture) as png:
        with pytest.raises(swath.UsageError, match="src_dataset"):
            swath.open_geotiff(warped)
        with pytest.raises(swath.UsageError, match="driver PNG"):
            swath.open_geotiff(png)
    with rasterio.open(path, overview_level=0) as small, pytest.raises(swath.UsageError, match="overview_level=0"):
        swath.open_geotiff(small)
    with MemoryFile(path.read_bytes()) as memory, memory.open() as held:
        with pytest.raises(swath.UsageError, match=r"MemoryFile\.read"):
            swath.open_geotiff(held)
        np.testing.assert_array_equal(swath.open_geotiff(memory.read()), ARRAY)


def test_file_systems_of_gdal(path: Path) -> None:
    with served({"/a.tif": path.read_bytes()}) as server:
        url = f"{server}/a.tif"
        expected = swath.open_geotiff(url)
        for name in (f"/vsicurl/{url}", f"/vsicurl_streaming/{url}", f"/vsicurl?url={url}"):
            xr.testing.assert_identical(swath.open_geotiff(name), expected)


@pytest.mark.parametrize(("name", "address"), [("vsis3", "s3"), ("vsigs", "gs"), ("vsiaz", "az")])
def test_stores_of_gdal(name: str, address: str) -> None:
    options = {"endpoint": "http://127.0.0.1:9", "retries": 0, "anonymous": True, "region": "x"}
    if address == "az":
        options["azure_storage_account_name"] = "account"
    with pytest.raises(swath.Error, match=f"{address}://bucket/folder/a.tif"):
        swath.open_geotiff(f"/{name}/bucket/folder/a.tif", storage_options=options)


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("/vsizip/a.zip/a.tif", "zip://"),
        ("/vsitar/a.tar/a.tif", "tar://"),
        ("/vsigzip/a.tif.gz", "gzip"),
        ("/vsimem/a.tif", "bytes"),
        ("/vsistdin/", "stdin"),
        ("/vsihdfs/a.tif", "/vsihdfs/"),
        ("/vsicurl?max_retry=3&url=https%3A%2F%2Fa", "storage_options"),
    ],
)
def test_file_systems_of_gdal_that_are_not_read(name: str, instead: str) -> None:
    with pytest.raises(swath.UsageError, match=instead):
        swath.open_geotiff(name)


def test_the_name_that_an_error_suggests_works(path: Path, tmp_path: Path) -> None:
    archive = tmp_path / "a.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.write(path, "folder/a.tif")
    np.testing.assert_array_equal(swath.open_geotiff(f"zip://folder/a.tif::{archive}"), ARRAY)
    np.testing.assert_array_equal(swath.open_geotiff(io.BytesIO(path.read_bytes())), ARRAY)


def test_names_of_targets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = [f"file://{tmp_path}/a%20b.tif", f"file:{tmp_path}/a%20b.tif", "file:a%20b.tif"]
    for name in names:
        assert swath.to_geotiff(ARRAY, name) == name
        assert [each.name for each in tmp_path.iterdir()] == ["a b.tif"]
        (tmp_path / "a b.tif").unlink()
    options = {"endpoint": "http://127.0.0.1:9", "retries": 0, "anonymous": True, "region": "x"}
    with pytest.raises(swath.Error, match=r"s3://bucket/a\.tif"):
        swath.to_geotiff(ARRAY, "/vsis3/bucket/a.tif", storage_options=options)
    with pytest.raises(swath.UsageError, match="plain HTTP"):
        swath.to_geotiff(ARRAY, "/vsicurl/https://localhost/a.tif")
    with pytest.raises(swath.UsageError, match="BytesIO"):
        swath.to_geotiff(ARRAY, "/vsimem/a.tif")
    with pytest.raises(swath.UsageError, match="page"):
        swath.to_geotiff(ARRAY, "GTIFF_DIR:1:a.tif")
