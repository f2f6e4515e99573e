"""Values of `window=` and `bbox=`: fractions, NumPy's numbers, boxes of other libraries and reference systems."""

from __future__ import annotations

import math
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
import swath as sw
import swath.xrspatial
import xarray
from harness import scratch
from rasterio.windows import Window as RioWindow
from rasterio.windows import from_bounds

TRANSFORM = (10.0, 0.0, 4e5, 0.0, -10.0, 5e6)


@pytest.fixture(scope="module")
def path() -> Iterator[Path]:
    """A grid of 50 columns and 40 rows whose samples encode their position, with overviews."""
    samples = np.arange(40 * 50, dtype="int32").reshape(40, 50)
    with scratch() as name:
        path = Path(name) / "grid.tif"
        sw.to_geotiff(samples, path, crs=32633, transform=TRANSFORM, cog=True, tile_size=16)
        yield path


def truth(path: Path, **options: Any) -> np.ndarray:
    with rasterio.open(path) as source:
        return source.read(**options)


@pytest.mark.parametrize(
    "window",
    [
        (np.int64(3), np.uint8(4), np.int32(10), np.float32(20)),
        np.array([3, 4, 10, 20]),
        np.array([[3, 10], [4, 20]]),
        [[3, 10], [4, 20]],
        [slice(3, 10), slice(np.int64(4), np.int64(20))],
        sw.Window(np.int64(4), np.int64(3), np.int64(16), np.int64(7)),
        RioWindow(np.float64(4), 3, 16, 7),
    ],
    ids=["numbers", "array", "array of ranges", "lists", "slices", "Window", "rasterio"],
)
def test_numbers_and_arrays_of_numpy_make_windows(path: Path, window: Any) -> None:
    assert np.array_equal(sw.read(path, 1, window), truth(path)[0, 3:10, 4:20])
    assert np.array_equal(sw.open_geotiff(path, band=1, window=window), truth(path)[0, 3:10, 4:20])


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32", "uint64", "int8"])
def test_small_integers_of_numpy_do_not_wrap_around(path: Path, dtype: str) -> None:
    kind = np.dtype(dtype).type
    windows: list[Any] = [
        (kind(3), kind(4), kind(10), kind(20)),
        ((kind(3), kind(10)), (kind(4), kind(20))),
        (slice(kind(3), kind(10)), slice(kind(4), kind(20))),
        np.array([3, 4, 10, 20], dtype),
        sw.Window(kind(4), kind(3), kind(16), kind(7)),
    ]
    for window in windows:
        assert np.array_equal(sw.read(path, 1, window), truth(path)[0, 3:10, 4:20])
        assert np.array_equal(sw.read(path, 1, window, boundless=True), truth(path)[0, 3:10, 4:20])
    # Empty and reversed windows are errors: their sizes are not huge numbers.
    for window in ((kind(10), kind(4), kind(3), kind(20)), (kind(3), kind(4), kind(3), kind(20))):
        with pytest.raises(sw.UsageError, match="hold no whole pixel"):
            sw.read(path, 1, window)
    array = swath.xrspatial.open_geotiff(str(path), window=windows[0])
    assert np.array_equal(array.values, truth(path)[0, 3:10, 4:20])
    batches = [len(found) for _, found in sw.Dataset(path).chips(kind(10), kind(10), kind(16))]
    assert batches == [16, 4]


def test_small_integers_count_pixels_of_a_file_without_a_place(folder: Path) -> None:
    sw.to_geotiff(np.zeros((300, 300), "uint8"), folder / "a.tif")
    window = tuple(np.array([200, 210, 240, 250], "uint8"))
    array = swath.xrspatial.open_geotiff(str(folder / "a.tif"), window=window)
    assert array.y.values[[0, -1]].tolist() == [200, 239] and array.x.values[[0, -1]].tolist() == [210, 249]


def test_fractions_have_the_shape_and_the_first_pixel_that_rasterio_gives_them(path: Path) -> None:
    rng = np.random.default_rng(1)
    dataset = sw.Dataset(path)
    equal = 0
    for _ in range(500):
        x, y = rng.uniform(0, 40, 1)[0], rng.uniform(0, 30, 1)[0]
        width, height = rng.uniform(0.5, 50 - x), rng.uniform(0.5, 40 - y)
        window = RioWindow(x, y, width, height)
        found, expected = dataset.read(1, window), truth(path, indexes=1, window=window)
        assert found.shape == expected.shape and found[0, 0] == expected[0, 0], window
        # Each pixel once: rasterio repeats one or leaves one out where the length is not a whole number.
        assert np.array_equal(
            found, truth(path)[0][tuple(slice(n, n + m) for n, m in zip(divmod(found[0, 0], 50), found.shape))]
        )
        equal += np.array_equal(found, expected)
    assert equal > 20


def test_bounds_that_are_off_by_rounding_select_the_same_pixels(path: Path) -> None:
    with rasterio.open(path) as source:
        for box in (source.bounds, (400100.0, 4999700.0, 400300.0, 4999900.0)):
            window = from_bounds(*box, transform=source.transform)
            assert np.array_equal(sw.read(path, window=window), source.read(window=window))
            nudged = RioWindow(window.col_off - 1e-9, window.row_off + 1e-9, window.width + 1e-9, window.height)
            assert sw.read(path, window=nudged).shape == sw.read(path, window=window).shape


@pytest.mark.parametrize(
    ("window", "words"),
    [
        (RioWindow(3, 3, 0.4, 5), "no whole pixel"),
        (RioWindow(-0.7, 0, 10, 10), "columns -1 to 9 .* not inside"),
        ((0, 0, math.nan, 5), "finite"),
        ((0, 0, math.inf, 5), "finite"),
        ("abcd", "is not a window"),
        ((None, 0, 1, 1), "is not a window"),
        (sw.Window(0, 0, 0, 5), "no whole pixel"),
    ],
)
def test_windows_without_a_pixel_are_refused(path: Path, window: Any, words: str) -> None:
    with pytest.raises(sw.UsageError, match=words):
        sw.read(path, window=window)


class Shape:
    """The common interface of shapely's geometries, datasets and geopandas' tables."""

    def __init__(self, bounds: Any, crs: Any = None) -> None:
        self.bounds = bounds
        if crs is not None:
            self.crs = crs


class Table:
    """A GeoDataFrame: `bounds` are those of each row."""

    def __init__(self, bounds: Any, crs: Any) -> None:
        self.total_bounds, self.bounds, self.crs = np.array(bounds), "a table", crs


BOX = (400100.0, 4999700.0, 400300.0, 4999900.0)


def test_boxes_come_as_numbers_shapes_tables_and_datasets(path: Path) -> None:
    expected = truth(path)[:, 10:30, 10:30]
    whole = sw.Dataset(path)
    with rasterio.open(path) as source:
        for box in (BOX, list(BOX), np.array(BOX), Shape(BOX), Shape(BOX, "EPSG:32633"), Table(BOX, source.crs)):
            assert np.array_equal(whole.read(bbox=box), expected), box
            assert np.array_equal(sw.read(path, bbox=box), expected), box
            assert np.array_equal(sw.open_geotiff(path, bbox=box), expected), box
        assert np.array_equal(whole.read(bbox=source), truth(path))
        assert np.array_equal(whole.read(bbox=source.bounds), truth(path))
    assert np.array_equal(whole.read(bbox=whole), truth(path))
    level = whole.read(1, bbox=BOX, overview_level=0)
    assert np.array_equal(level, whole.read(1, overview_level=0)[5:15, 5:15])
    assert sw.open_geotiff(path, bbox=Shape(BOX)).swath.transform[2::3] == (400100.0, 4999900.0)


def test_boxes_of_other_reference_systems_are_followed_along_their_edges(path: Path) -> None:
    pyproj = pytest.importorskip("pyproj")
    there = pyproj.Transformer.from_crs(32633, 4326, always_xy=True)
    west, south, east, north = there.transform_bounds(*BOX, densify_pts=21)
    dataset = sw.Dataset(path)
    for crs in (4326, "EPSG:4326", pyproj.CRS(4326), rasterio.crs.CRS.from_epsg(4326), "+proj=longlat +datum=WGS84"):
        found = dataset.read(1, bbox=(west, south, east, north), bbox_crs=crs)
        # The bounding box of a rotated box is larger.
        inside = {*truth(path)[0, 10:30, 10:30].ravel().tolist()}
        assert inside <= {*found.ravel().tolist()} and found.size <= 23 * 23
        lazy = sw.open_geotiff(path, band=1, bbox=(west, south, east, north), bbox_crs=crs, chunks=8)
        assert np.array_equal(lazy, found)
        opened = xarray.open_dataset(path, engine="swath", bbox=(west, south, east, north), bbox_crs=crs)
        assert np.array_equal(opened.band_data[0], found)
    # Its own system needs no PROJ, and changes no digit.
    for crs in (32633, "EPSG:32633", pyproj.CRS(32633)):
        assert np.array_equal(dataset.read(bbox=BOX, bbox_crs=crs), truth(path)[:, 10:30, 10:30])
    assert np.array_equal(dataset.read(bbox=Shape((west, south, east, north), "EPSG:4326"))[0], found)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"bbox": (1, 2, 3)}, "four numbers"),
        ({"bbox": "here"}, "four numbers"),
        ({"bbox": (2.0, 1.0, 1.0, 2.0)}, "west < east"),
        ({"bbox": (0.0, 0.0, 1.0, 1.0)}, "does not touch"),
        ({"bbox": BOX, "window": (0, 0, 1, 1)}, "both say what to read"),
        ({"bbox_crs": 4326}, "there is no bbox"),
        ({"bbox": BOX, "bbox_crs": "EPSG:999999"}, "EPSG:999999"),
        ({"bbox": BOX, "bbox_crs": ""}, "not a reference system"),
        ({"bbox": (0, 0, 1e30, 1e30), "bbox_crs": 4326}, "cannot be transformed to the file's system|finite"),
        ({"window": Shape(BOX)}, "give it as bbox="),
    ],
)
def test_invalid_boxes_are_refused_with_what_to_give(path: Path, words: dict[str, Any], message: str) -> None:
    with pytest.raises(sw.UsageError, match=message):
        sw.Dataset(path).read(**words)


def test_without_pyproj_another_system_is_an_error_that_says_so(path: Path) -> None:
    code = f"""
    import sys
    sys.modules["pyproj"] = None
    import swath
    assert swath.read(sys.argv[1], bbox={BOX}, bbox_crs="EPSG:32633").shape == (1, 20, 20)
    try:
        swath.read(sys.argv[1], bbox={BOX}, bbox_crs=4326)
    except swath.UsageError as error:
        print(error)
    """
    command = [sys.executable, "-c", textwrap.dedent(code), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "pip install pyproj" in done.stdout and "EPSG:32633" in done.stdout, done.stderr


def test_a_box_may_reach_beyond_the_image_where_that_is_allowed(path: Path) -> None:
    box = (399980.0, 4999950.0, 400030.0, 5000010.0)
    found = sw.Dataset(path).read(1, bbox=box, boundless=True, fill_value=-5)
    assert found.shape == (6, 5) and (found[0] == -5).all() and (found[:, :2] == -5).all()
    assert np.array_equal(found[1:, 2:], truth(path)[0, :5, :3])
    assert sw.Dataset(path).read(1, bbox=box).shape == (5, 3)
