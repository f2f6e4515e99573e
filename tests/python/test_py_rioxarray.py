"""Every georeferenced file opens as rioxarray opens it: samples, coordinates, CRS, attributes and encoding.

The tables below list all differences with their reasons. A difference that is not listed fails; so does one that is
listed and no longer there.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
import rioxarray
import swath
import xarray as xr
from harness import UNDER_CI
from opening import georeferenced, golden_corpus, pixels, write
from rasterio.control import GroundControlPoint
from rasterio.rpc import RPC
from rasterio.transform import Affine

# rioxarray warns that scales differ, and that it has no coordinates for rotated grids.
pytestmark = pytest.mark.filterwarnings("ignore")

GOLDEN = golden_corpus()
FILES = (sorted(GOLDEN.glob("*.tif")) if GOLDEN else []) + georeferenced()
WAYS: dict[str, dict[str, bool]] = {
    "plain": {},
    "masked": {"masked": True},
    "mask_and_scale": {"mask_and_scale": True},
}

# Differences that every file may have, with the reason.
EVERYWHERE = {
    "attrs[crs]": "xrspatial's word: scripts written for it find the EPSG number here",
    "attrs[nodata]": "xrspatial's word: the file's nodata, where it is not masked",
    "attrs[colormap]": "xrspatial's word: the palette, so that classes that are written again keep their colours",
    "attrs[raster_type]": "xrspatial's word: only of files whose pixels are points",
    "encoding[tags]": "tags of other domains and of bands, for which rioxarray's attributes have no place",
    "encoding[band_tags]": "the same",
    "encoding[colorinterp]": "what bands mean as colour, for which rioxarray's attributes have no place",
    "encoding[file_mask]": "the mask of the file, which rioxarray does not write again",
    "encoding[as_read]": "what `to_geotiff` compares with, to find what was edited by hand",
    "encoding[preferred_chunks]": "bands that lie together in a block are decoded together, so they are one chunk",
}
GREENWICH = "a CRS of the file's own: GDAL leaves out the code of the prime meridian; the systems are equal"
COMPLEX = "rasterio reads pairs of 32-bit integers as pairs of 32-bit floats, which cannot hold them"
CODE_FIRST = "the ellipsoid beside the EPSG code is rounded: GDAL takes the numbers, we the code"
WKT = ("spatial_ref[crs_wkt]", "spatial_ref[spatial_ref]")
# Items of single files, with the reason.
FOR_ONE: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("crs_citation_only.tif", WKT, GREENWICH),
    ("cog_band_tags.tif", WKT, GREENWICH),
    ("image_with_offsets.tif", WKT, GREENWICH),
    ("cog_scale_stats.tif", WKT, GREENWICH),
    ("ca_nrc_NAD83v70VG.tif", WKT, "WKT 2 of the same CRS, with the codes of its parts"),
    ("geogtowgs_subset_USGS_13_s14w171.tif", (*WKT, "spatial_ref[inverse_flattening]"), CODE_FIRST),
    ("cint32.tif", ("dtype", "encoding[dtype]", "encoding[rasterio_dtype]"), COMPLEX),
    ("cint32_big_endian.tif", ("dtype", "encoding[dtype]", "encoding[rasterio_dtype]"), COMPLEX),
)
SINGLE = {(file, item): reason for file, items, reason in FOR_ONE for item in items}
# Files that rioxarray does not open, with the reason.
ONLY_OURS: dict[str, str] = {
    "gdal_metadata_namespaced_uint16.tif": "rioxarray takes a tag of the file for the name of another file",
}

seen: set[str] = set()


def test_corpora_are_here() -> None:
    if GOLDEN is not None and len(FILES) > 100:
        return
    assert not UNDER_CI, "the shared corpus or the golden corpus of xarray-spatial is missing, and under CI it must be"
    pytest.skip("the shared corpus or the golden corpus of xarray-spatial is not here; what there is was compared")


def equal(ours: Any, theirs: Any) -> bool:
    """The same value of the same type; NaN equals NaN."""
    if isinstance(ours, np.ndarray) or isinstance(theirs, np.ndarray):
        return type(ours) is type(theirs) and ours.dtype == theirs.dtype and np.array_equal(ours, theirs)
    return type(ours) is type(theirs) and (ours == theirs or (ours != ours and theirs != theirs))


def unlike(where: str, ours: dict[Any, Any], theirs: dict[Any, Any]) -> dict[str, str]:
    return {
        f"{where}[{key}]": f"{ours.get(key, 'nothing')!r} != {theirs.get(key, 'nothing')!r}"
        for key in {*ours, *theirs}
        if key not in ours or key not in theirs or not equal(ours[key], theirs[key])
    }


def differences(ours: xr.DataArray, theirs: xr.DataArray, rows: int | None = None) -> dict[str, str]:
    """Lists all differences, item by item; compares samples in the first rows only, where a number is given."""
    found = {}
    for item in ("dims", "shape", "dtype", "name"):
        if getattr(ours, item) != getattr(theirs, item):
            found[item] = f"{getattr(ours, item)} != {getattr(theirs, item)}"
    if ours.shape == theirs.shape:
        left, right = ours[..., :rows, :].values, theirs[..., :rows, :].values
        if not np.array_equal(left, right, equal_nan=left.dtype.kind in "fc"):
            where = np.argwhere((left != right) & ~((left != left) & (right != right)))
            found["values"] = f"{len(where)} samples differ, first at {where[0].tolist()}"
    if list(ours.coords) != list(theirs.coords) or list(ours.indexes) != list(theirs.indexes):
        found["coords"] = f"{list(ours.coords)} != {list(theirs.coords)}"
    for name in set(ours.coords) & set(theirs.coords):
        left, right = ours[name], theirs[name]
        if left.dims != right.dims or left.dtype != right.dtype or left.values.tobytes() != right.values.tobytes():
            found[f"coords[{name}]"] = f"{left.values} != {right.values}"
        found |= unlike(str(name), left.attrs, right.attrs)
    return found | unlike("attrs", ours.attrs, theirs.attrs) | unlike("encoding", ours.encoding, theirs.encoding)


@pytest.mark.parametrize("path", FILES, ids=[path.name for path in FILES])
def test_opens_as_rioxarray_opens_it(path: Path) -> None:
    if path.name in ONLY_OURS:
        with pytest.raises(rasterio.errors.RasterioError):
            rioxarray.open_rasterio(path)
        with rasterio.open(path) as file:
            np.testing.assert_array_equal(swath.open_geotiff(path).values, file.read())
        return
    found: dict[str, str] = {}
    for way, options in WAYS.items():
        ours, theirs = swath.open_geotiff(path, **options), rioxarray.open_rasterio(path, **options)
        # Large files are compared whole only once.
        rows = 500 if options and ours.size > 4_000_000 else None
        found |= {item: f"{way}: {what}" for item, what in differences(ours, theirs, rows).items()}
        check_accessor(ours, theirs)
        theirs.close()
    seen.update(item for item in EVERYWHERE if item in found)
    listed = {item for name, item in SINGLE if name == path.name}
    new = {item: what for item, what in found.items() if item not in EVERYWHERE and item not in listed}
    assert not new, "\n".join(f"{item}: {what}" for item, what in new.items())
    assert listed <= set(found), f"no longer different: {listed - set(found)}"


def check_accessor(ours: xr.DataArray, theirs: xr.DataArray) -> None:
    """The result of rioxarray's accessor for our array."""
    assert ours.rio.crs == theirs.rio.crs
    assert ours.rio.transform() == theirs.rio.transform()
    assert equal(ours.rio.nodata, theirs.rio.nodata)
    assert equal(ours.rio.encoded_nodata, theirs.rio.encoded_nodata)


def test_listed_differences_are_still_there() -> None:
    if len(FILES) < 100:
        assert not UNDER_CI, "the corpora are missing, and under CI they must be there"
        pytest.skip("the corpora are not here")
    assert seen == set(EVERYWHERE)
    assert {name for name, _ in SINGLE} | set(ONLY_OURS) <= {path.name for path in FILES}


RATIONAL = RPC(
    height_off=1.0,
    height_scale=2.0,
    lat_off=3.0,
    lat_scale=4.0,
    long_off=7.0,
    long_scale=8.0,
    line_off=5.0,
    line_scale=6.0,
    samp_off=9.0,
    samp_scale=10.0,
    line_den_coeff=[1.0] * 20,
    line_num_coeff=[2.0] * 20,
    samp_den_coeff=[3.0] * 20,
    samp_num_coeff=[4.0] * 20,
)
TAGS = {"A": "1", "B": "x", "C": "{1,2,3}", "D": "1e3", "E": "nan", "F": "{a,b}", "G": "", "H": "007", "nodata": "3"}
POINTS = [GroundControlPoint(row, col, col * 2.0, row * 3.0, 1.0) for row, col in ((0, 0), (9.5, 4), (3, 60))]


def described(path: Path) -> None:
    write(path, pixels(), nodata=7)
    with rasterio.open(path, "r+") as file:
        file.scales, file.offsets = (0.1, 0.2, 0.3), (1.0, 2.0, 3.0)
        file.descriptions, file.units = ("a", None, "c"), ("m", None, "kg")
        file.update_tags(**TAGS)
        file.update_tags(1, STATISTICS_MEAN="4.5", A="9")
        file.update_tags(ns="OTHER", K="v")


def hidden(path: Path) -> None:
    write(path, pixels(3, 141, 203))
    mask = np.full((141, 203), 255, "uint8")
    mask[10:50, 30:80] = 0
    with rasterio.Env(GDAL_TIFF_INTERNAL_MASK=True):
        with rasterio.open(path, "r+") as file:
            file.write_mask(mask)
        with rasterio.open(path, "r+") as file:
            file.build_overviews([2, 4], rasterio.enums.Resampling.nearest)


def by_points(path: Path) -> None:
    write(path, pixels(1), crs=None, transform=None)
    with rasterio.open(path, "r+") as file:
        file.gcps = (POINTS, rasterio.crs.CRS.from_epsg(32633))
        file.build_overviews([2], rasterio.enums.Resampling.nearest)


def as_points(path: Path) -> None:
    write(path, pixels())
    with rasterio.open(path, "r+") as file:
        file.update_tags(AREA_OR_POINT="Point")


def of(dtype: str, nodata: float) -> Callable[[Path], Any]:
    array = pixels(2, 40, 40, "float32").astype(dtype)
    if array.dtype.kind == "f":
        array[0, :3] = nodata
    return lambda path: write(path, array, nodata=nodata)


def on(*transform: float) -> Callable[[Path], Any]:
    return lambda path: write(path, pixels(), transform=Affine(*transform))


MADE: dict[str, Callable[[Path], Any]] = {
    "described": described,
    "hidden": hidden,
    "points": by_points,
    "rational": lambda path: write(path, pixels(1), (2,), crs=None, transform=None, rpcs=RATIONAL),
    "pixels-are-points": as_points,
    "no-georeferencing": lambda path: write(path, pixels(1), (2,), crs=None, transform=None),
    "odd-sizes": lambda path: write(path, pixels(1, 71, 93), (2, 4)),
    "complex": of("complex64", 5),
    "int8": of("int8", 5),
    "nan": of("float64", float("nan")),
    "infinite": of("float32", float("inf")),
    "lowest": of("float32", -3.4028234663852886e38),
    "tiny": of("float32", 1e-40),
    "zero": of("float32", 0),
    "turned": on(0, 2, 5, 3, 0, 7),
    "turned-equally": on(0, 2, 5, 2, 0, 7),
    "small-pixels": on(1e-6, 0, 5, 0, -1e-6, 7),
    "hardly-turned": on(1, 1e-6, 5, 1e-6, -1, 7),
    "mirrored": on(-3, 0, 5, 0, 4, 7),
    "sheared": on(1, 0.1, 5, 0, -1, 7),
    "strips": lambda path: write(path, pixels(), tiled=False, interleave="pixel"),
    "feet": lambda path: write(path, pixels(), crs="EPSG:2263"),
    "esri": lambda path: write(path, pixels(), crs="ESRI:54009"),
}


@pytest.mark.parametrize("name", MADE)
def test_made_files_open_as_rioxarray_opens_them(tmp_path: Path, name: str) -> None:
    path = tmp_path / "a.tif"
    MADE[name](path)
    with rasterio.open(path) as file:
        levels = [None, *range(len(file.overviews(1)))]
    for level, (way, options) in itertools.product(levels, WAYS.items()):
        words = options if level is None else {**options, "overview_level": level}
        ours, theirs = swath.open_geotiff(path, **words), rioxarray.open_rasterio(path, **words)
        found = {item: what for item, what in differences(ours, theirs).items() if item not in EVERYWHERE}
        if level is not None:
            # GDAL reports the tags of the overview's own directory, which say how it was made; we those of the image.
            assert found.pop("attrs[RESAMPLING]", None)
        assert not found, f"{way}, level {level}"


def test_reprojects_like_an_array_of_rioxarray(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tif", pixels(), nodata=7)
    ours = swath.open_geotiff(path).rio.reproject("EPSG:4326")
    theirs = rioxarray.open_rasterio(path).rio.reproject("EPSG:4326")
    xr.testing.assert_equal(ours, theirs)
    assert ours.rio.crs == theirs.rio.crs and ours.rio.nodata == 7
