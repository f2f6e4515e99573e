"""Metadata that a conversion keeps: written by rasterio, converted, read by rasterio again."""

from __future__ import annotations

import math
import random
import string
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
import rasterio.rpc
import tifffile
from harness import Swath, numbers_equal
from rasterio.control import GroundControlPoint
from rasterio.crs import CRS
from rasterio.enums import ColorInterp
from rasterio.transform import Affine
from rasterio.windows import Window
from rasterio.windows import transform as window_transform
from writing import by_gdal, convert, equal, pixels, refused, write

NORTH_UP = Affine(10, 0, 4e5, 0, -10, 52e5)
KINDS = [pytest.param((), id="tiff"), pytest.param(("--cog",), id="cog")]


def small(path: Path, bands: int = 1, dtype: str = "uint8", **profile: Any) -> Path:
    return write(path, pixels((bands, 12, 15), dtype, 1), **profile)


# ---------------------------------------------------------------------------------------------------- reference systems

SYSTEMS: dict[str, str] = {
    "utm": "EPSG:32633", "geographic": "EPSG:4326", "web": "EPSG:3857", "laea": "EPSG:3035", "bng": "EPSG:27700",
    "krovak": "EPSG:5514", "us-feet": "EPSG:2263", "nztm": "EPSG:2193", "polar": "EPSG:3413", "south": "EPSG:3031",
    "lambert": "EPSG:2154", "geocentric": "EPSG:4978", "3d": "EPSG:4979", "nad27": "EPSG:4267", "swiss": "EPSG:2056",
    "compound": "EPSG:25832+5773", "compound-code": "EPSG:7405", "compound-geographic": "EPSG:4326+5773",
    "rd-nap": "EPSG:7415", "antimeridian": "EPSG:3832", "gauss": "EPSG:31467", "mollweide": "ESRI:54009",
}  # fmt: skip

PROJ4 = {
    "lcc": "+proj=lcc +lat_1=30.5 +lat_2=60.25 +lat_0=45 +lon_0=10 +x_0=1000 +y_0=2000 +ellps=GRS80 +units=m",
    "sinusoidal": "+proj=sinu +lon_0=0 +R=6371007.181 +units=m",
    "tm-feet": "+proj=tmerc +lat_0=10 +lon_0=20 +k=0.9996 +x_0=500000 +ellps=WGS84 +units=us-ft",
    "stere": "+proj=stere +lat_0=90 +lat_ts=70 +lon_0=-45 +ellps=WGS84",
    "aea": "+proj=aea +lat_1=29.5 +lat_2=45.5 +lat_0=23 +lon_0=-96 +datum=NAD83",
    "bessel": "+proj=longlat +ellps=bessel",
    "omerc": "+proj=omerc +lat_0=4 +lonc=115 +alpha=53 +k=0.99984 +gamma=53 +ellps=evrstSS",
    "geos": "+proj=geos +h=35785831 +lon_0=0 +ellps=GRS80 +units=m +sweep=y",
    "rotated-pole": "+proj=ob_tran +o_proj=longlat +o_lon_p=0 +o_lat_p=39.25 +lon_0=18 +ellps=WGS84",
    "robinson": "+proj=robin +lon_0=0 +ellps=WGS84",
    "towgs84": "+proj=utm +zone=33 +ellps=intl +towgs84=-87,-98,-121,0,0,0,0",
}


@pytest.mark.parametrize("options", KINDS)
@pytest.mark.parametrize("name", [*SYSTEMS, *PROJ4])
def test_crs(swath: Swath, folder: Path, name: str, options: tuple[str, ...]) -> None:
    crs = CRS.from_user_input(SYSTEMS[name]) if name in SYSTEMS else CRS.from_proj4(PROJ4[name])
    source, target = folder / "s.tif", folder / "t.tif"
    small(source, crs=crs, transform=NORTH_UP)
    convert(swath, source, target, *options)
    with rasterio.open(source) as want, rasterio.open(target) as got:
        assert want.crs, "GDAL does not write this"
        assert got.crs == want.crs, f"got {got.crs.to_wkt()}\nwant {want.crs.to_wkt()}"
        assert got.crs.to_epsg() == want.crs.to_epsg()
        assert got.crs.linear_units == want.crs.linear_units
        assert got.transform == want.transform


@pytest.mark.parametrize("code", ["EPSG:32633", "EPSG:4326", "EPSG:3857", "EPSG:25832+5773", "EPSG:27700", "EPSG:2263"])
def test_crs_given(swath: Swath, folder: Path, code: str) -> None:
    """By code, by WKT, and by a file of WKT; pixels stay where they are."""
    source, target = small(folder / "s.tif", crs="EPSG:3035", transform=NORTH_UP), folder / "t.tif"
    crs = CRS.from_user_input(code)
    wkt = folder / "crs.wkt"
    wkt.write_text(crs.to_wkt(version="WKT2_2019") + "\n")
    for given in (code, crs.to_wkt(version="WKT2_2019"), crs.to_wkt(), str(wkt)):
        convert(swath, source, target, "--crs", given)
        with rasterio.open(target) as got:
            assert got.crs == crs, f"{given}: {got.crs}"
            assert got.transform == NORTH_UP
    assert "crs" in refused(swath, source, target.with_name("n.tif"), "--crs", "EPSG:notanumber").lower()
    assert "crs" in refused(swath, source, target.with_name("n.tif"), "--crs", "").lower()


@pytest.mark.parametrize("options", KINDS)
@pytest.mark.parametrize(
    "transform",
    [
        NORTH_UP, Affine(10, 0, 4e5, 0, 10, 52e5), Affine(0.1, 0, -180, 0, -0.1, 90), Affine(-3, 0, 5, 0, -7, 9),
        Affine(8, 3, 4e5, 2, -9, 52e5), Affine(0, 5, 4e5, 5, 0, 52e5), Affine(1 / 3, 0, 1e-7, 0, -1 / 7, 1e9),
        Affine(1e-9, 0, 0.1, 0, -1e-9, 0.1),
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("point", [False, True], ids=["area", "point"])
def test_transform(swath: Swath, folder: Path, transform: Affine, point: bool, options: tuple[str, ...]) -> None:
    source, target = small(folder / "s.tif", crs="EPSG:32633", transform=transform), folder / "t.tif"
    if point:
        with rasterio.open(source, "w", driver="GTiff", dtype="uint8", count=1, height=12, width=15, crs="EPSG:32633",
                           transform=transform) as out:  # fmt: skip
            out.update_tags(AREA_OR_POINT="Point")
            out.write(pixels((1, 12, 15), "uint8"))
    convert(swath, source, target, *options)
    with rasterio.open(source) as want, rasterio.open(target) as got:
        assert got.tags()["AREA_OR_POINT"] == want.tags()["AREA_OR_POINT"] == ("Point" if point else "Area")
        a, b = list(got.transform)[:6], list(want.transform)[:6]
        # A centre made of a corner and back again may lose a last bit.
        assert a == b or (point and np.allclose(a, b, rtol=1e-15, atol=0)), f"{a} {b}"


def test_no_georeferencing(swath: Swath, folder: Path) -> None:
    source, target = small(folder / "s.tif"), folder / "t.tif"
    for options in ((), ("--cog",)):
        convert(swath, source, target, *options)
        with rasterio.open(target) as got:
            assert got.crs is None
            assert got.transform == Affine.identity()
        with tifffile.TiffFile(target) as tiff:
            assert not {33550, 33922, 34264, 34735} & {tag.code for tag in tiff.pages[0].tags}


@pytest.mark.parametrize("options", KINDS)
def test_gcps(swath: Swath, folder: Path, options: tuple[str, ...]) -> None:
    points = [
        GroundControlPoint(row=r, col=c, x=10 + c * 0.1, y=50 - r * 0.1, z=z, id=str(i), info="")
        for i, (r, c, z) in enumerate([(0, 0, 0), (0, 14.5, 3.25), (11.5, 0, 100), (11, 14, -7.5)])
    ]
    source, target = folder / "s.tif", folder / "t.tif"
    with rasterio.open(source, "w", driver="GTiff", dtype="uint8", count=1, height=12, width=15) as out:
        out.write(pixels((1, 12, 15), "uint8"))
        out.gcps = (points, CRS.from_epsg(4326))
    convert(swath, source, target, *options)

    def control_points(path: Path) -> tuple[list[tuple[float, ...]], CRS]:
        with rasterio.open(path) as dataset:
            found, crs = dataset.gcps
            return [(p.row, p.col, p.x, p.y, p.z) for p in found], crs

    assert control_points(target) == control_points(source)
    convert(swath, source, target, "--window", "3,2,10,8")
    moved = [(r - 2, c - 3, *rest) for r, c, *rest in control_points(source)[0]]
    assert np.allclose(control_points(target)[0], moved, rtol=0, atol=1e-12)


def rpc() -> rasterio.rpc.RPC:
    rng = np.random.default_rng(3)
    return rasterio.rpc.RPC(
        height_off=300.5, height_scale=500.25, lat_off=45.1, lat_scale=0.05, line_den_coeff=list(rng.normal(size=20)),
        line_num_coeff=list(rng.normal(size=20)), line_off=6.25, line_scale=7, long_off=10.5, long_scale=0.07,
        samp_den_coeff=list(rng.normal(size=20)), samp_num_coeff=list(rng.normal(size=20)), samp_off=7.75,
        samp_scale=8.5, err_bias=1.5, err_rand=0.5,
    )  # fmt: skip


@pytest.mark.parametrize("options", KINDS)
def test_rpc(swath: Swath, folder: Path, options: tuple[str, ...]) -> None:
    source, target = folder / "s.tif", folder / "t.tif"
    with rasterio.open(source, "w", driver="GTiff", dtype="uint8", count=1, height=12, width=15) as out:
        out.write(pixels((1, 12, 15), "uint8"))
        out.rpcs = rpc()
    convert(swath, source, target, *options)
    with rasterio.open(source) as want, rasterio.open(target) as got:
        assert want.rpcs and got.rpcs
        assert got.rpcs.to_dict() == want.rpcs.to_dict()
        base = want.rpcs
    convert(swath, source, target, "--window", "3,2,10,8")
    with rasterio.open(target) as got:
        assert (got.rpcs.samp_off, got.rpcs.line_off) == (base.samp_off - 3, base.line_off - 2)
        assert got.rpcs.line_num_coeff == base.line_num_coeff


# --------------------------------------------------------------------------------------------------------------- nodata

NODATA = [
    ("uint8", 0), ("uint8", 255), ("int8", -128), ("int16", -9999), ("uint16", 65535), ("int32", -2147483648),
    ("uint32", 4294967295), ("int64", -9223372036854775808), ("int64", -9007199254740993),
    ("uint64", 9007199254740993), ("float32", math.nan), ("float32", -9999.0), ("float32", 1e20), ("float32", 0.1),
    ("float32", -3.4028234663852886e38), ("float32", math.inf), ("float64", -1.7976931348623157e308), ("float64", 0.1),
    ("float64", 5e-324), ("float16", -9999.0),
]  # fmt: skip


@pytest.mark.parametrize("options", KINDS)
@pytest.mark.parametrize(("dtype", "value"), NODATA)
def test_nodata(swath: Swath, folder: Path, dtype: str, value: float, options: tuple[str, ...]) -> None:
    source, target = folder / "s.tif", folder / "t.tif"
    array = pixels((2, 12, 15), dtype, 1)
    array[:, 3:6, 2:9] = value
    write(source, array, nodata=value)
    convert(swath, source, target, *options)
    with rasterio.open(source) as want, rasterio.open(target) as got:
        assert numbers_equal(got.nodata, want.nodata)
        assert np.array_equal(got.read_masks(), want.read_masks())
        equal(got.read(), array, "GDAL")
    # Set, and removed.
    bare = write(folder / "b.tif", array)
    convert(swath, bare, target, f"--nodata={value}", *options)
    with rasterio.open(source) as want, rasterio.open(target) as got:
        # GDAL writes the smallest int64 with an exponent, and takes that for -9.
        wanted = float(value) if dtype.endswith("int64") else want.nodata
        assert numbers_equal(got.nodata, wanted), f"{got.nodata!r}"
        equal(got.read(), array, "pixels stay")
    convert(swath, source, target, "--nodata", "none", *options)
    with rasterio.open(target) as got:
        assert got.nodata is None


def test_nodata_beyond_the_type_is_refused(swath: Swath, folder: Path) -> None:
    """Refused: never a file with another nodata value, or without one."""
    source = small(folder / "s.tif")
    for value in ("-1", "256", "1.5", "nan"):
        assert "nodata" in refused(swath, source, folder / "n.tif", f"--nodata={value}")
    assert "nodata" in refused(swath, source, folder / "n.tif", "--nodata", "many").lower()


# -------------------------------------------------------------------------------------------------------- band metadata

HOSTILE = [
    "a < b & c > \"d\" 'e'", "température °C — 日本語 😀", "]]>", "<!-- x -->", "&amp; &#10;", "tab\tand\nnewline",
    "trailing space ", " leading", "back\\slash", "a=b", "%s %d", "x" * 5000, "\u00a0\u2028",
]  # fmt: skip


@pytest.mark.parametrize("options", KINDS)
def test_band_metadata(swath: Swath, folder: Path, options: tuple[str, ...]) -> None:
    source, target = folder / "s.tif", folder / "t.tif"
    with rasterio.open(source, "w", driver="GTiff", dtype="int16", count=3, height=12, width=15) as out:
        out.write(pixels((3, 12, 15), "int16"))
        out.scales = (0.0001, 1 / 3, 1.0)
        out.offsets = (-0.1, 273.15, 0.0)
        out.descriptions = ("B04 <red> & more", "température", None)
        out.units = ("reflectance", "K", "")
        out.update_tags(1, WAVELENGTH="665 nm", lower="x")
        out.update_tags(2, ns="CUSTOM", A="1", B="<2>")
        out.colorinterp = [ColorInterp.blue, ColorInterp.undefined, ColorInterp.gray]
    convert(swath, source, target, *options)
    with rasterio.open(source) as want, rasterio.open(target) as got:
        assert got.scales == want.scales
        assert got.offsets == want.offsets
        assert got.descriptions == want.descriptions
        assert got.units == want.units
        assert got.colorinterp == want.colorinterp
        for band in (1, 2, 3):
            kept = {k: v for k, v in got.tags(band).items() if not k.startswith("STATISTICS_")}
            assert kept == want.tags(band)
            assert got.tags(band, ns="CUSTOM") == want.tags(band, ns="CUSTOM")


@pytest.mark.parametrize("options", KINDS)
def test_hostile_items(swath: Swath, folder: Path, options: tuple[str, ...]) -> None:
    source, target = small(folder / "s.tif", bands=2), folder / "t.tif"
    with rasterio.open(source, "r+") as out:
        out.update_tags(**{f"KEY{i}": text for i, text in enumerate(HOSTILE)})
        out.update_tags(ns="MY <DOMAIN> & 'SO'", **{"A key with spaces": "v", "ключ": "значение"})
        out.update_tags(1, **{f"B{i}": text for i, text in enumerate(HOSTILE)})
        out.descriptions = (HOSTILE[0], HOSTILE[1])
    convert(swath, source, target, *options)
    with rasterio.open(source) as want, rasterio.open(target) as got:
        domains = {*want.tag_namespaces(), ""} - {"IMAGE_STRUCTURE", "DERIVED_SUBDATASETS"}
        for domain in domains:
            assert got.tags(ns=domain) == want.tags(ns=domain), domain
        assert {k: v for k, v in got.tags(1).items() if not k.startswith("STAT")} == want.tags(1)
        assert got.descriptions == want.descriptions


def test_random_items(swath: Swath, folder: Path) -> None:
    """Printable characters in any order, thirty items at a time."""
    rng = random.Random(11)
    letters = string.printable.replace("\x0b", "").replace("\x0c", "").replace("\r", "") + "äöü€𝄞"
    source, target = folder / "s.tif", folder / "t.tif"
    for _ in range(6):
        small(source)
        items = {f"K{i}": "".join(rng.choices(letters, k=rng.randint(1, 60))) for i in range(30)}
        with rasterio.open(source, "r+") as out:
            out.update_tags(**items)
        convert(swath, source, target)
        with rasterio.open(source) as want, rasterio.open(target) as got:
            assert got.tags() == want.tags()


def test_tiff_tags(swath: Swath, folder: Path) -> None:
    source, target = small(folder / "s.tif"), folder / "t.tif"
    items = {
        "TIFFTAG_DOCUMENTNAME": "doc", "TIFFTAG_IMAGEDESCRIPTION": "a picture\nof it", "TIFFTAG_SOFTWARE": "soft",
        "TIFFTAG_DATETIME": "2026:11:15 12:00:00", "TIFFTAG_ARTIST": "Ärtist", "TIFFTAG_HOSTCOMPUTER": "host",
        "TIFFTAG_COPYRIGHT": "© nobody", "TIFFTAG_XRESOLUTION": "300", "TIFFTAG_YRESOLUTION": "72.5",
        "TIFFTAG_RESOLUTIONUNIT": "2 (pixels/inch)", "TIFFTAG_MINSAMPLEVALUE": "3", "TIFFTAG_MAXSAMPLEVALUE": "200",
    }  # fmt: skip
    with rasterio.open(source, "r+") as out:
        out.update_tags(**items)
    for options in ((), ("--cog",), ("--big-endian", "--bigtiff", "yes")):
        convert(swath, source, target, *options)
        with rasterio.open(source) as want, rasterio.open(target) as got:
            assert got.tags() == want.tags()


def test_xml_and_raw_tags(swath: Swath, folder: Path) -> None:
    """Colour profile, XMP and IPTC are kept byte for byte."""
    source, target = folder / "s.tif", folder / "t.tif"
    blob = bytes(range(256)) * 5
    extra = [
        (34675, 7, len(blob), blob, True),
        (700, 1, 11, b"<x:xmpmeta>", True),
        (33723, 7, 12, b"IPTC of ours", True),
    ]
    tifffile.imwrite(source, pixels((1, 12, 15), "uint8")[0], metadata=None, extratags=extra)
    for options in ((), ("--cog",), ("--big-endian",)):
        convert(swath, source, target, *options)
        with tifffile.TiffFile(target) as tiff:
            tags = tiff.pages[0].tags
            assert bytes(tags[34675].value) == blob
            assert bytes(tags[700].value) == b"<x:xmpmeta>"
            assert bytes(tags[33723].value) == b"IPTC of ours"


@pytest.mark.parametrize(
    "photometric",
    [
        "palette",
        "minisblack",
    ],
)
def test_colour_table(swath: Swath, folder: Path, photometric: str) -> None:
    """GDAL leaves a photometric of MinIsBlack where the colours come after the first pixels."""
    source, target = folder / "s.tif", folder / "t.tif"
    colors = {0: (0, 0, 0, 255), 1: (255, 0, 0, 255), 2: (1, 2, 3, 255), 255: (255, 255, 254, 255)}
    with rasterio.open(source, "w", driver="GTiff", dtype="uint8", count=1, height=12, width=15, nodata=0,
                       photometric=photometric) as out:  # fmt: skip
        out.write(pixels((1, 12, 15), "uint8") % 3)
        out.write_colormap(1, colors)
    convert(swath, source, target)
    with rasterio.open(source) as want, rasterio.open(target) as got:
        assert got.colormap(1) == want.colormap(1)
        assert got.colorinterp == want.colorinterp
    # In other types the numbers are not palette indices.
    convert(swath, source, target, "--dtype", "float32")
    with rasterio.open(target) as got, pytest.raises(ValueError):
        got.colormap(1)


COLORS = [
    ("gray",), ("red", "green", "blue"), ("red", "green", "blue", "alpha"), ("gray", "alpha"), ("blue", "green", "red"),
    ("undefined", "undefined"), ("gray", "gray", "gray"), ("red", "green", "blue", "undefined", "alpha"),
    ("cyan", "magenta", "yellow", "black"), ("alpha", "red"), ("red",), ("hue", "saturation", "lightness"),
]  # fmt: skip


@pytest.mark.parametrize("colors", COLORS, ids="-".join)
@pytest.mark.parametrize("dtype", ["uint8", "uint16", "float32"])
@pytest.mark.parametrize("interleave", ["pixel", "band"])
def test_colour_interpretation(
    swath: Swath, folder: Path, colors: tuple[str, ...], dtype: str, interleave: str
) -> None:
    source, target = folder / "s.tif", folder / "t.tif"
    with rasterio.open(source, "w", driver="GTiff", dtype=dtype, count=len(colors), height=12, width=15) as out:
        out.write(pixels((len(colors), 12, 15), dtype))
        out.colorinterp = [ColorInterp[name] for name in colors]
    convert(swath, source, target, "--interleave", interleave)
    with rasterio.open(source) as want, rasterio.open(target) as got:
        assert got.colorinterp == want.colorinterp
        assert got.mask_flag_enums == want.mask_flag_enums
        equal(got.read(), want.read(), "GDAL")


# -------------------------------------------------------------------------------------------------------------- windows

WINDOWS = [(0, 0, 5, 4), (7, 3, 100, 90), (33, 65, 1, 1), (199, 149, 1, 1), (0, 0, 200, 150), (16, 16, 64, 64)]


@pytest.mark.parametrize("window", WINDOWS, ids=str)
@pytest.mark.parametrize("transform", [NORTH_UP, Affine(8, 3, 4e5, 2, -9, 52e5)], ids=["up", "rotated"])
@pytest.mark.parametrize("options", KINDS)
def test_window(
    swath: Swath, folder: Path, window: tuple[int, int, int, int], transform: Affine, options: tuple[str, ...]
) -> None:
    array = pixels((2, 150, 200), "int16", 4)
    source = write(folder / "s.tif", array, crs="EPSG:32633", transform=transform, nodata=-1)
    target = folder / "t.tif"
    convert(swath, source, target, "--window", ",".join(map(str, window)), *options)
    with rasterio.open(source) as want, rasterio.open(target) as got:
        equal(got.read(), want.read(window=Window(*window)), "GDAL")
        assert np.allclose(list(got.transform), list(window_transform(Window(*window), transform)), rtol=1e-15, atol=0)
        assert got.crs == want.crs
        assert got.nodata == -1


@pytest.mark.parametrize("window", ["0,0,0,1", "0,0,201,1", "200,0,1,1", "0,150,1,1", "-1,0,5,5", "1,2,3", "a,b,c,d",
                                    "0,0,4294967295,4294967295"])  # fmt: skip
def test_window_outside(swath: Swath, folder: Path, window: str) -> None:
    source = write(folder / "s.tif", pixels((1, 150, 200), "uint8"))
    assert "window" in refused(swath, source, folder / "t.tif", f"--window={window}").lower()


@pytest.mark.parametrize(
    ("bbox", "window"),
    [
        ((400000, 5199900, 400100, 5200000), (0, 0, 10, 10)),
        ((400005, 5199905, 400095, 5199995), (0, 0, 10, 10)),
        ((400010, 5199890, 400030, 5199990), (1, 1, 2, 10)),
        ((0, 0, 1e9, 1e9), (0, 0, 200, 150)),
        ((401990, 5198500, 402500, 5198510), (199, 149, 1, 1)),
        ((400500.1, 5199000.1, 400500.2, 5199000.2), (50, 99, 1, 1)),
    ],
)
def test_bbox(swath: Swath, folder: Path, bbox: tuple[float, ...], window: tuple[int, int, int, int]) -> None:
    array = pixels((1, 150, 200), "int16", 4)
    source, target = write(folder / "s.tif", array, crs="EPSG:32633", transform=NORTH_UP), folder / "t.tif"
    convert(swath, source, target, "--bbox", ",".join(map(str, bbox)))
    with rasterio.open(source) as want, rasterio.open(target) as got:
        equal(got.read(), want.read(window=Window(*window)), "GDAL")
        assert got.transform == window_transform(Window(*window), NORTH_UP)


def test_bbox_refused(swath: Swath, folder: Path) -> None:
    source = write(folder / "s.tif", pixels((1, 150, 200), "uint8"), crs="EPSG:32633", transform=NORTH_UP)
    bare = write(folder / "b.tif", pixels((1, 150, 200), "uint8"))
    target = folder / "t.tif"
    for bbox in ("0,0,1,1", "1,2,3", "a,b,c,d", "nan,nan,nan,nan", "400100,5199900,400000,5200000x"):
        assert "bbox" in refused(swath, source, target, f"--bbox={bbox}").lower()
    refused(swath, bare, target, "--bbox=0,0,1,1")
    refused(swath, source, target, "--bbox=400000,5199900,400100,5200000", "--window=0,0,1,1")


# -------------------------------------------------------------------------------------------------- bands and overviews


@pytest.mark.parametrize("bands", [[1], [3], [3, 2, 1], [2, 2], [4, 1], [1, 2, 3, 4, 4, 3, 2, 1]])
@pytest.mark.parametrize("options", KINDS)
def test_bands(swath: Swath, folder: Path, bands: list[int], options: tuple[str, ...]) -> None:
    array = pixels((4, 60, 70), "uint16", 4, "noise")
    source, target = folder / "s.tif", folder / "t.tif"
    with rasterio.open(source, "w", driver="GTiff", dtype="uint16", count=4, height=60, width=70, nodata=3) as out:
        out.write(array)
        out.descriptions = ("one", "two", "three", "four")
        out.scales = (1, 2, 3, 4)
        out.units = ("a", "b", "c", "d")
        for band in range(1, 5):
            out.update_tags(band, NAME=f"band {band}")
        out.colorinterp = [ColorInterp.red, ColorInterp.green, ColorInterp.blue, ColorInterp.alpha]
    convert(swath, source, target, "--bands", ",".join(map(str, bands)), *options)
    with rasterio.open(source) as want, rasterio.open(target) as got:
        equal(got.read(), array[[b - 1 for b in bands]], "GDAL")
        assert got.descriptions == tuple(want.descriptions[b - 1] for b in bands)
        assert got.scales == tuple(want.scales[b - 1] for b in bands)
        assert got.units == tuple(want.units[b - 1] for b in bands)
        assert [got.tags(i + 1)["NAME"] for i in range(len(bands))] == [f"band {b}" for b in bands]
        assert got.colorinterp == tuple(want.colorinterp[b - 1] for b in bands)


@pytest.mark.parametrize("bands", ["0", "5", "1,9", "", "a", "-1"])
def test_missing_bands_are_refused(swath: Swath, folder: Path, bands: str) -> None:
    source = write(folder / "s.tif", pixels((4, 6, 7), "uint8"))
    assert "band" in refused(swath, source, folder / "t.tif", f"--bands={bands}").lower()


@pytest.mark.parametrize("level", [0, 1])
@pytest.mark.parametrize("window", [None, (3, 5, 40, 30)])
def test_overview_as_source(swath: Swath, folder: Path, level: int, window: tuple[int, int, int, int] | None) -> None:
    array = pixels((2, 301, 403), "uint16", 4)
    source, target = folder / "s.tif", folder / "t.tif"
    write(source, array, crs="EPSG:32633", transform=NORTH_UP)
    with rasterio.open(source, "r+") as out:
        out.build_overviews([2, 4], rasterio.enums.Resampling.average)
    options = ["--window", ",".join(map(str, window))] if window else []
    convert(swath, source, target, "--overview", level, *options)
    with rasterio.open(source, overview_level=level) as want, rasterio.open(target) as got:
        part = Window(*window) if window else Window(0, 0, want.width, want.height)
        equal(got.read(), want.read(window=part), "GDAL")
        assert np.allclose(list(got.transform), list(want.window_transform(part)), rtol=1e-14)
    assert "overview" in refused(swath, source, folder / "n.tif", "--overview", 2).lower()


def test_metadata_of_a_mask_and_a_window(swath: Swath, folder: Path) -> None:
    array = pixels((3, 150, 200), "uint8", 4)
    mask = np.where(array[0] > 99, 255, 0).astype("u1")
    source, target = write(folder / "s.tif", array, mask), folder / "t.tif"
    convert(swath, source, target, "--window", "30,20,101,77", "--bands", "3,1")
    with rasterio.open(target) as got:
        assert np.array_equal(got.dataset_mask(), mask[20:97, 30:131])
        equal(got.read(), array[[2, 0], 20:97, 30:131], "GDAL")


@pytest.mark.parametrize("options", KINDS)
def test_compare_agrees(swath: Swath, folder: Path, options: tuple[str, ...]) -> None:
    """`swath compare` of source and copy finds no difference, and would find one."""
    source, target = folder / "s.tif", folder / "t.tif"
    array = pixels((2, 60, 70), "float32", 4)
    write(source, array, crs="EPSG:25832", transform=NORTH_UP, nodata=-9999)
    convert(swath, source, target, "--compress", "lzw", *options)
    run = swath.run("compare", source, target)
    assert run.code == 0, run.stdout
    convert(swath, source, target, "--nodata", "none")
    assert swath.run("compare", source, target).code == 1
    assert np.array_equal(by_gdal(target), array)
