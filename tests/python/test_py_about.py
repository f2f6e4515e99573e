"""A `Dataset` has rasterio's attributes; it closes, has a repr, and reads with masks and beyond its edges."""

from __future__ import annotations

import base64
import gc
import html
import math
import os
import pickle
import re
import struct
import subprocess
import sys
import textwrap
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
import swath as sw
from harness import SHARED_CORPUS, SHARED_RASTERS, scratch, shared
from rasterio.crs import CRS
from rasterio.windows import Window as RioWindow

# Damaged files of the corpus cause warnings that are not tested here.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*lies beyond the end of the file:swath.SwathWarning"),
    pytest.mark.filterwarnings("ignore:.*as libtiff repairs them:swath.SwathWarning"),
    pytest.mark.filterwarnings("ignore:.*PackBits:swath.SwathWarning"),
]

FOLDERS = (SHARED_CORPUS, SHARED_RASTERS)
FILES = sorted(
    path for folder in FOLDERS for path in folder.rglob("*") if path.suffix.lower() in (".tif", ".tiff", ".gtiff")
)

# Attributes that differ on purpose, by the end of the file's path.
APART = {
    # GDAL's are the sub-directories of the first level in the order of the file; ours are sorted, deeper ones included.
    "overviews": ("color64-lzw-mac.tif", "tiff_with_subifd_chain.tif"),
    # NumPy has no complex integers; our type loses no digit.
    "dtypes": ("cint32.tif", "cint32_big_endian.tif"),
}
# Domains that are not metadata here.
FOREIGN = ("EXIF", "xml:XMP", "COLOR_PROFILE", "SUBDATASETS", "DERIVED_SUBDATASETS")


def near(one: Any, other: Any) -> bool:
    """Whether values are equal; floats up to rounding, and NaN equals NaN."""
    if isinstance(one, (tuple, list)) and isinstance(other, (tuple, list)):
        return len(one) == len(other) and all(map(near, one, other))
    if isinstance(one, float) or isinstance(other, float):
        if one is None or other is None:
            return one is other
        return one == other or (one != one and other != other) or math.isclose(one, other, rel_tol=1e-12)
    return one == other


def colormap(dataset: Any) -> Any:
    try:
        return dataset.colormap(1)
    except ValueError:
        return None


def pairs() -> Iterator[tuple[Path, Any, sw.Dataset]]:
    """Files that both libraries open with the same samples."""
    shared(SHARED_CORPUS)
    for path in FILES:
        try:
            theirs = rasterio.open(path)
        except rasterio.errors.RasterioIOError:
            continue
        with theirs:
            try:
                ours = sw.Dataset(path)
            except sw.Error:
                continue
            if theirs.driver == "GTiff" and (theirs.count, *theirs.shape) == ours.shape:
                yield path, theirs, ours


ATTRIBUTES = {
    **{
        name: (lambda dataset, name=name: getattr(dataset, name))
        for name in (
            *("width", "height", "count", "bounds", "res", "nodata", "nodatavals", "dtypes", "indexes"),
            *("units", "scales", "offsets"),
        )
    },
    "descriptions": lambda dataset: dataset.descriptions,
    "transform": lambda dataset: tuple(dataset.transform),
    "tags": lambda dataset: dataset.tags(),
    "tags of bands": lambda dataset: [dataset.tags(band) for band in dataset.indexes],
    "overviews": lambda dataset: [dataset.overviews(band) for band in dataset.indexes],
    "colormap": colormap,
    "xy": lambda dataset: [tuple(map(float, dataset.xy(3, 4, offset=at))) for at in ("center", "ul", "ur", "ll", "lr")],
    "index": lambda dataset: dataset.index(*dataset.xy(3, 4)),
}


@pytest.fixture(scope="module")
def facts() -> list[tuple[Path, dict[str, Any], dict[str, Any]]]:
    """Every attribute of every file from both libraries; opened once for all tests."""
    found = []
    for path, theirs, ours in pairs():
        both = [{name: read(dataset) for name, read in ATTRIBUTES.items()} for dataset in (theirs, ours)]
        domains = set(theirs.tag_namespaces()) - {*FOREIGN, "IMAGE_STRUCTURE"}
        for dataset, facts in zip((theirs, ours), both):
            facts["domains"] = {domain: dataset.tags(ns=domain) for domain in domains}
            facts["structure"], facts["profile"] = dataset.tags(ns="IMAGE_STRUCTURE"), dict(dataset.profile)
            facts["crs"] = dataset.crs
        found.append((path, *both))
    return found


@pytest.mark.parametrize("name", [*ATTRIBUTES, "domains"])
def test_attributes_are_those_of_rasterio(facts: list[tuple[Path, dict[str, Any], dict[str, Any]]], name: str) -> None:
    assert len(facts) > 200
    wrong = [
        (path.name, ours[name], theirs[name])
        for path, theirs, ours in facts
        if not near(ours[name], theirs[name]) and not path.name.endswith(APART.get(name, ("//",)))
    ]
    assert not wrong, wrong[:5]


def test_reference_systems_are_those_of_rasterio(facts: list[tuple[Path, dict[str, Any], dict[str, Any]]]) -> None:
    known = 0
    for path, theirs, ours in facts:
        crs, expected = ours["crs"], theirs["crs"]
        assert (crs is None) == (not expected), path
        if crs is not None:
            known += 1
            assert CRS.from_user_input(crs) == expected and CRS.from_wkt(crs.to_wkt()) == expected, path
            assert expected.to_epsg() is None or crs.to_epsg() == expected.to_epsg(), path
            assert (crs.is_projected, crs.is_geographic) == (expected.is_projected, expected.is_geographic), path
    assert known > 60


def test_profiles_and_structure_are_those_of_rasterio(facts: list[tuple[Path, dict[str, Any], dict[str, Any]]]) -> None:
    for path, theirs, ours in facts:
        profile, expected = ours["profile"], theirs["profile"]
        for word in ("driver", "width", "height", "count", "nodata", "compress", "interleave", "blockxsize"):
            assert near(profile.get(word), expected.get(word)), (path, word)
        # GDAL reads large strips in parts.
        assert profile["blockysize"] >= expected["blockysize"], path
        # rasterio treats tiles as wide as the image as strips.
        assert profile["tiled"] == expected["tiled"] or profile["blockxsize"] == profile["width"], path
        for key in ("COMPRESSION", "INTERLEAVE", "MINISWHITE"):
            assert ours["structure"].get(key) == theirs["structure"].get(key), (path, key)
        # GDAL leaves the predictor of some strips out.
        assert theirs["structure"].get("PREDICTOR") in (None, ours["structure"].get("PREDICTOR")), path


def test_profiles_write_a_file_of_the_same_kind_with_rasterio_and_with_swath() -> None:
    written = 0
    for path, theirs, ours in pairs():
        if math.prod(ours.shape) > 300_000 or "complex_int16" in ours.dtypes:
            continue
        try:
            samples = np.asarray(ours)
            with rasterio.MemoryFile() as memory, memory.open(**theirs.profile) as target:
                target.write(samples)
        except (sw.Error, rasterio.errors.RasterioError, rasterio.errors.RasterioIOError, ValueError, TypeError):
            # A damaged file, or a profile that rasterio itself cannot write.
            continue
        profile = ours.profile
        with rasterio.MemoryFile() as memory:
            with memory.open(**profile) as target:
                target.write(samples)
            with memory.open() as source:
                assert (source.count, *source.shape) == ours.shape and source.dtypes == ours.dtypes, path
        again = sw.Dataset(sw.to_geotiff(samples, None, **profile))
        assert near([again.nodata, tuple(again.transform)], [ours.nodata, tuple(ours.transform)]), path
        kept = ("dtype", "width", "height", "count", "blockxsize", "blockysize", "tiled", "interleave")
        assert {word: again.profile[word] for word in kept} == {word: profile[word] for word in kept}, path
        assert "compress" not in profile or again.profile["compress"] == profile["compress"], path
        written += 1
    assert written > 100


def test_masked_and_boundless_reads_are_those_of_rasterio() -> None:
    compared = 0
    for path, theirs, ours in pairs():
        if math.prod(ours.shape) > 2_000_000 or "cint32" in path.name:
            continue
        window = RioWindow(-3, -2, ours.width + 5, 9)
        try:
            whole, beyond = theirs.read(masked=True), theirs.read(window=window, boundless=True)
            plain = ours.read()
        except (sw.Error, rasterio.errors.RasterioError, rasterio.errors.RasterioIOError):
            continue
        if not np.array_equal(plain, whole.data, equal_nan=whole.dtype.kind in "fc"):
            # Colours that GDAL converts and the engine does not.
            continue
        found = ours.read(masked=True)
        assert np.array_equal(np.ma.getmaskarray(found), np.ma.getmaskarray(whole)), path
        assert np.array_equal(found.data, plain, equal_nan=plain.dtype.kind in "fc"), path
        if ours.nodata == ours.nodata:
            assert found.fill_value == whole.fill_value, path
        ahead = ours.read(window=window, boundless=True)
        assert np.array_equal(ahead, beyond, equal_nan=plain.dtype.kind in "fc"), path
        hidden = np.ma.getmaskarray(ours.read(window=window, boundless=True, masked=True))
        assert hidden[:, :2].all() and hidden[:, :, :3].all() and hidden[:, :, -2:].all(), path
        inside = min(7, ours.height)
        assert np.array_equal(hidden[:, 2 : 2 + inside, 3:-2], np.ma.getmaskarray(whole)[:, :inside]), path
        compared += 1
    assert compared > 180


@pytest.fixture(scope="module")
def files() -> Iterator[dict[str, Path]]:
    """A raster of three bands with overviews, floats with nodata, a palette, a mask, and a picture of bytes."""
    rng = np.random.default_rng(5)
    with scratch() as name:
        folder = Path(name)
        grid: dict[str, Any] = {"crs": 32633, "transform": (10, 0, 4e5, 0, -10, 5e6)}
        bands = rng.integers(0, 4000, (3, 300, 420), dtype="uint16")
        sw.to_geotiff(
            bands, folder / "bands.tif", cog=True, tile_size=64, band_descriptions=["red", "nir", "swir"], **grid
        )
        dem = rng.normal(size=(200, 180)).astype("float32")
        dem[20:40, 30:60] = np.nan
        sw.to_geotiff(dem, folder / "dem.tif", nodata=-9999.0, tile_size=32, **grid)
        colors = {value: (value, 255 - value, 7, 255) for value in range(256)}
        classes = rng.integers(0, 9, (50, 60), dtype="uint8")
        sw.to_geotiff(classes, folder / "classes.tif", colormap=colors, nodata=3)
        with (
            rasterio.open(
                folder / "mask.tif", "w", driver="GTiff", width=60, height=50, count=2, dtype="uint8"
            ) as target,
            rasterio.Env(GDAL_TIFF_INTERNAL_MASK=True),
        ):
            target.write(np.stack([classes, classes]))
            target.write_mask(classes > 4)
        sw.to_geotiff(rng.integers(0, 255, (3, 50, 60), dtype="uint8"), folder / "picture.tif", photometric="rgb")
        yield {path.stem: path for path in folder.glob("*.tif")}


def test_describe_statistics_and_validate_are_dictionaries(files: dict[str, Path]) -> None:
    dataset = sw.Dataset(files["bands"])
    assert dataset.describe() == sw.info(files["bands"]) and dataset.describe(tags=True)["ifds"]
    assert dataset.validate(full=True) == sw.validate(files["bands"], full=True)
    assert dataset.statistics([2]) == dataset.statistics(2) == sw.stats(files["bands"], [2])
    reports: list[int] = []
    dataset.statistics(progress=lambda done, _all: reports.append(done))
    assert reports


def test_a_dataset_is_an_array_of_all_its_samples(files: dict[str, Path]) -> None:
    dataset = sw.Dataset(files["bands"])
    assert isinstance(dataset.dtype, np.dtype) and dataset.dtype == "uint16" and dataset.dtype.itemsize == 2
    assert np.array_equal(np.asarray(dataset), dataset.read())
    assert np.asarray(dataset, dtype="float32").dtype == np.float32
    assert np.mean(dataset) == dataset.read().mean()
    with pytest.raises(ValueError, match="copy"):
        np.asarray(dataset, copy=False)


def test_a_closed_dataset_has_metadata_but_no_samples(files: dict[str, Path]) -> None:
    with sw.Dataset(files["bands"]) as dataset:
        lazy = sw.open_geotiff(dataset, chunks=64)
        assert not dataset.closed
    assert dataset.closed
    for read in (dataset.read, dataset.dataset_mask, dataset.statistics, dataset.describe, lambda: np.asarray(dataset)):
        with pytest.raises(sw.UsageError, match=r"bands\.tif: .*closed"):
            read()
    with rasterio.open(files["bands"]) as source:
        assert dataset.bounds == source.bounds and dataset.crs == source.crs and dataset.transform == source.transform
        assert dataset.shape == (3, 300, 420) and dataset.dtype == "uint16" and dataset.tags() == source.tags()
        assert dataset.profile["width"] == 420
    assert "(closed)" in repr(dataset) and "thumbnail" not in dataset._repr_html_()
    dataset.close()
    # Lazy arrays and unpickled handles open the file again.
    assert np.array_equal(lazy, sw.read(files["bands"]))
    assert np.array_equal(pickle.loads(pickle.dumps(dataset)).read(1), sw.read(files["bands"], 1))
    # The handle that the process keeps is a different one.
    assert sw.read(dataset.name).shape == (3, 300, 420)


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="a system that does not list open files")
def test_closing_releases_the_file(files: dict[str, Path]) -> None:
    def held() -> int:
        names = []
        for entry in os.listdir("/proc/self/fd"):  # noqa: PTH208
            try:
                names.append(os.readlink(f"/proc/self/fd/{entry}"))  # noqa: PTH115
            except OSError:
                continue
        return names.count(str(files["dem"]))

    gc.collect()
    before = held()
    datasets = [sw.Dataset(files["dem"]) for _ in range(5)]
    for dataset in datasets:
        dataset.read(1, (0, 0, 5, 5))
    assert held() > before
    for dataset in datasets:
        dataset.close()
    assert held() == before


def test_points_have_the_samples_that_rasterio_finds(files: dict[str, Path]) -> None:
    rng = np.random.default_rng(2)
    for name in ("bands", "dem", "mask", "classes"):
        dataset = sw.Dataset(files[name])
        with rasterio.open(files[name]) as source:
            left, bottom, right, top = source.bounds
            edge = 0.1 * (right - left)
            xs, ys = rng.uniform(left - edge, right + edge, 3000), rng.uniform(min(bottom, top), max(bottom, top), 3000)
            points = list(zip(xs, ys))
            assert np.array_equal(list(dataset.sample(points)), list(source.sample(points)), equal_nan=True)
            assert np.array_equal(list(dataset.sample(iter(points[:5]), 1)), list(source.sample(points[:5], 1)))
            for found, expected in zip(
                dataset.sample(points[:200], masked=True), source.sample(points[:200], masked=True)
            ):
                assert np.array_equal(np.ma.getmaskarray(found), np.ma.getmaskarray(expected))
            rows, columns = dataset.index(xs, ys)
            assert [*zip(rows, columns)] == [source.index(x, y) for x, y in points]
            there = dataset.xy(rows, columns)
            assert np.allclose(there, source.xy(rows, columns), rtol=1e-14)
    assert sw.Dataset(files["bands"]).index(4e5 + 15, 5e6 - 15) == (1, 1)
    assert sw.Dataset(files["bands"]).index(4e5 + 15, 5e6 - 15, op=math.ceil) == (2, 2)
    assert list(sw.Dataset(files["bands"]).sample([])) == []
    with pytest.raises(sw.UsageError, match="no band 4"):
        list(sw.Dataset(files["bands"]).sample([(4e5, 5e6)], [4]))
    with pytest.raises(sw.UsageError, match="center, ul"):
        sw.Dataset(files["bands"]).xy(0, 0, offset="middle")


def test_masked_reads_hide_nodata_and_what_the_mask_hides(files: dict[str, Path]) -> None:
    for name in ("dem", "mask", "classes", "bands"):
        dataset = sw.Dataset(files[name])
        with rasterio.open(files[name]) as source:
            for words in ({}, {"window": RioWindow(5, 6, 20, 10)}):
                expected, found = source.read(masked=True, **words), dataset.read(masked=True, **words)
                assert isinstance(found, np.ma.MaskedArray)
                assert np.array_equal(np.ma.getmaskarray(found), np.ma.getmaskarray(expected)), name
                assert found.fill_value == expected.fill_value
                one, flat = source.read(1, masked=True, **words), dataset.read(1, masked=True, **words)
                assert flat.shape == one.shape and np.array_equal(np.ma.getmaskarray(flat), np.ma.getmaskarray(one))
                turned = dataset.read(masked=True, interleave="pixel", **words)
                assert np.array_equal(np.moveaxis(np.ma.getmaskarray(turned), 2, 0), np.ma.getmaskarray(expected))
    dataset = sw.Dataset(files["dem"])
    assert (dataset.read(1, masked=True, fill_value=-1).filled()[20:40, 30:60] == -1).all()
    for words, message in (
        ({"masked": True, "out": np.zeros((1, 200, 180), "f4")}, "leave out out="),
        ({"fill_value": 3}, "masked=True or boundless=True"),
        ({"ifd": 0, "masked": True}, "another ifd"),
    ):
        with pytest.raises(sw.UsageError, match=message):
            dataset.read(**words)


def test_reads_beyond_the_image_are_filled(files: dict[str, Path]) -> None:
    dataset = sw.Dataset(files["classes"], max_pixels=10_000)
    image = dataset.read(1)
    window = RioWindow(-5, 40, 12, 20)
    for fill, words in ((3, {}), (9, {"fill_value": 9})):
        found = dataset.read(1, window, boundless=True, **words)
        assert isinstance(found, sw.Array) and found.shape == (20, 12) and found.dtype == np.uint8
        assert (
            np.array_equal(found[:10, 5:], image[40:, :7])
            and (found[10:] == fill).all()
            and (found[:, :5] == fill).all()
        )
    assert (dataset.read(1, (slice(-4, 3), slice(-2, 2)), boundless=True)[4:, 2:] == image[:3, :2]).all()
    assert (dataset.read(1, RioWindow(100, 100, 4, 4), boundless=True) == 3).all()
    assert dataset.read(1, RioWindow(100, 100, 4, 4), boundless=True, masked=True).mask.all()
    assert np.array_equal(dataset.read(boundless=True), dataset.read())
    out = np.zeros((20, 12), "uint16")
    assert dataset.read(1, window, boundless=True, out=out) is out and out[0, 0] == 3
    turned = dataset.read(window=window, boundless=True, interleave="pixel")
    assert turned.shape == (20, 12, 1) and np.array_equal(turned[..., 0], dataset.read(1, window, boundless=True))
    level = sw.Dataset(files["bands"])
    width = level.overview_sizes[0][0]
    part = level.read(2, RioWindow(width - 3, 0, 6, 4), boundless=True, overview_level=0)
    assert np.array_equal(part[:, :3], level.read(2, overview_level=0)[:4, -3:]) and not part[:, 3:].any()
    for words, message in (
        ({"window": RioWindow(-5, 0, 9, 9)}, "not inside the image"),
        ({"window": window, "boundless": True, "fill_value": 300}, "fill_value=300 is not a value of uint8"),
        ({"window": window, "boundless": True, "fill_value": 0.5}, "not a value of uint8"),
        ({"window": window, "boundless": True, "fill_value": "none"}, "not a value of uint8"),
    ):
        with pytest.raises(sw.UsageError, match=message):
            dataset.read(1, **words)
    with pytest.raises(sw.LimitError, match="max_pixels"):
        dataset.read(1, RioWindow(0, 0, 10**6, 10**6), boundless=True)


def test_colour_tables_and_tags(files: dict[str, Path]) -> None:
    dataset = sw.Dataset(files["classes"])
    assert dataset.colormap(1)[5] == (5, 250, 7, 255) and dataset.colormap(1)[3][3] == 0
    with pytest.raises(sw.UsageError, match="band 1 has no colour table"):
        sw.Dataset(files["dem"]).colormap(1)
    with pytest.raises(sw.UsageError, match="no band 9"):
        sw.Dataset(files["dem"]).tags(9)
    assert "IMAGE_STRUCTURE" in dataset.tag_namespaces()
    changed = dataset.tags()
    changed["more"] = "1"
    assert "more" not in dataset.tags()


def pixels_of(page: str) -> np.ndarray | None:
    """The decoded picture of an HTML table."""
    found = re.search(r'src="data:image/png;base64,([^"]+)"', page)
    if found is None:
        return None
    data = base64.b64decode(found[1])
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", data[16:24])
    start = data.index(b"IDAT")
    length = struct.unpack(">I", data[start - 4 : start])[0]
    lines = np.frombuffer(zlib.decompress(data[start + 4 : start + 4 + length]), np.uint8).reshape(height, -1)
    assert not lines[:, 0].any()
    return lines[:, 1:].reshape(height, width, 4)


def test_a_dataset_shows_size_reference_system_bands_layout_and_a_picture(files: dict[str, Path]) -> None:
    dataset = sw.Dataset(files["bands"])
    shown, page = repr(dataset), dataset._repr_html_()
    for words in (
        *("bands.tif", "420 x 300 pixels, 3 bands of uint16", "EPSG:32633 (WGS 84 / UTM zone 33N)"),
        *("400000, 4997000, 404200, 5000000", "pixels of 10 x 10", "red, nir, swir"),
        *("tiles of 64 x 64", "interleaved by pixel", f"{len(dataset.overview_sizes)} overviews"),
    ):
        assert words in shown and html.escape(words) in page, words
    picture = pixels_of(page)
    assert picture is not None and max(picture.shape[:2]) <= 256 and (picture[..., 3] == 255).all()
    # A map of gray, stretched.
    assert (picture[..., 0] == picture[..., 1]).all() and picture[..., 0].std() > 30
    dem = pixels_of(sw.Dataset(files["dem"])._repr_html_())
    assert dem is not None and dem.shape == (200, 180, 4) and not dem[25:35, 35:55, 3].any()
    classes, values = pixels_of(sw.Dataset(files["classes"])._repr_html_()), sw.read(files["classes"], 1)
    assert classes is not None and np.array_equal(classes[..., 0], values)
    assert np.array_equal(classes[..., 3] == 0, values == 3)
    picture = pixels_of(sw.Dataset(files["picture"])._repr_html_())
    assert picture is not None and np.array_equal(np.moveaxis(picture[..., :3], -1, 0), sw.read(files["picture"]))


def test_a_picture_costs_little(folder: Path) -> None:
    """The picture of a large file is made from an overview; without overviews there is none."""
    for name, words in (("with", {"cog": True}), ("without", {"cog": False})):
        path = folder / f"<{name}>.tif"
        sw.to_geotiff(np.zeros((9000, 9000), "uint16"), path, sparse=True, **words)
        dataset = sw.Dataset(path, max_pixels=1_000_000)
        page = dataset._repr_html_()
        assert (pixels_of(page) is not None) == (name == "with") and f"<{name}>" not in page
    damaged = bytearray(Path(sw.to_geotiff(np.ones((64, 64), "uint16"), folder / "d.tif")).read_bytes())
    damaged[-40:] = b"\xff" * 40
    assert pixels_of(sw.Dataset(bytes(damaged))._repr_html_()) is None


def test_without_affine_a_transform_has_the_same_six_numbers(files: dict[str, Path]) -> None:
    code = """
    import sys
    sys.modules["affine"] = None
    import swath
    dataset = swath.Dataset(sys.argv[1])
    assert tuple(dataset.transform) == (10, 0, 4e5, 0, -10, 5e6) and dataset.transform.e == -10
    again = swath.Dataset(swath.to_geotiff(dataset.read(), None, **dataset.profile))
    assert again.transform == dataset.transform and again.crs == dataset.crs
    print("done")
    """
    command = [sys.executable, "-c", textwrap.dedent(code), str(files["bands"])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "done", done.stderr


def test_a_reference_system_is_text_that_knows_more(files: dict[str, Path]) -> None:
    crs = sw.Dataset(files["bands"]).crs
    assert crs is not None and crs == "EPSG:32633" and isinstance(crs, str)
    assert (crs.to_epsg(), crs.to_authority(), crs.name) == (32633, ("EPSG", "32633"), "WGS 84 / UTM zone 33N")
    assert crs.to_wkt().startswith("PROJCRS[") and crs.to_string() == crs and crs.is_projected and not crs.is_geographic
    copied = pickle.loads(pickle.dumps(crs))
    assert copied == crs and copied.to_epsg() == 32633
    assert sw.Dataset(sw.to_geotiff(np.zeros((4, 4), "u1"), None, crs=crs)).crs == crs
    assert sw.Dataset(files["classes"]).crs is None


@pytest.mark.parametrize("bands", ["1", "red", True, [True], 1.0, [1.5], [], slice(0, 2), [None], {}])
def test_errors_about_bands_say_what_to_give(files: dict[str, Path], bands: Any) -> None:
    dataset = sw.Dataset(files["bands"])
    for use in (
        *(dataset.read, dataset.statistics, lambda bands: dataset.read_windows([(0, 0, 8, 8)], bands)),
        *(lambda bands: dataset.chips(8, bands=bands), lambda bands: next(dataset.sample([(0, 0)], bands))),
    ):
        with pytest.raises(sw.UsageError, match=r"bands=.* 1 to 3"):
            use(bands)


def test_errors_about_numbers_say_what_to_give(files: dict[str, Path]) -> None:
    dataset = sw.Dataset(files["bands"])
    for level in ("0", 0.0, True):
        with pytest.raises(sw.UsageError, match="overview_level="):
            dataset.read(overview_level=level)
    for x, y in (("a", 3), (math.nan, 3), ([0, math.inf], [1, 2])):
        with pytest.raises(sw.UsageError, match="give finite numbers"):
            dataset.index(x, y)
    for points in ((1, 2), ["ab"], [(1, 2, 3)], [(None, 1)]):
        with pytest.raises(sw.UsageError, match=r"pairs|finite"):
            list(dataset.sample(points))
