"""Random rasters, written by rasterio and tifffile, read back by swath and by GDAL: every bit must agree (R13).

The examples are derandomised, so a run is the same everywhere; SWATH_EXAMPLES multiplies their number.
"""

from __future__ import annotations

import math
import os
import random
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
import tifffile
from harness import Swath, difference, numbers_equal, same, scratch, transform_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rasterio.crs import CRS
from rasterio.transform import Affine
from rasterio.windows import Window

warnings.filterwarnings("ignore", category=rasterio.errors.NotGeoreferencedWarning)

FACTOR = float(os.environ.get("SWATH_EXAMPLES", "1"))


def examples(count: int) -> Any:
    return settings(
        max_examples=max(1, int(count * FACTOR)),
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


INTEGERS = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64")
FLOATS = ("float32", "float64")
COMPLEX = ("complex64", "complex128")
# Edges that have broken readers before, then anything.
SIZES = st.one_of(st.sampled_from((1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100)), st.integers(1, 150))


def pixels(shape: tuple[int, int, int], dtype: str, seed: int, kind: str) -> np.ndarray:
    """Noise in every bit, smooth values, one value, or blocks of zeros (for sparse files)."""
    rng = np.random.default_rng(seed)
    wanted = np.dtype(dtype)
    if kind == "flat":
        return np.full(shape, seed % 100, wanted)
    if kind == "noise" and wanted.kind in "iu":
        return rng.integers(0, 256, (*shape, wanted.itemsize), "u1").view(wanted)[..., 0]
    if kind == "noise":
        values = rng.normal(0, 10.0 ** rng.integers(-3, 6), shape)
        return (values + 1j * values[::-1]).astype(wanted) if wanted.kind == "c" else values.astype(wanted)
    bands, rows, columns = shape
    y, x = np.mgrid[0:rows, 0:columns]
    waves = np.stack([np.sin(x / (5 + b)) + np.cos(y / (7 + b)) + 2 for b in range(bands)])
    scale = float(np.iinfo(wanted).max) / 8 if wanted.kind in "iu" else 1000.0
    out = (waves * min(scale, 1e9)).astype(wanted)
    if kind == "holes":
        out[:, rows // 3 : rows // 3 + 70, columns // 4 : columns // 4 + 70] = 0
    return out


@st.composite
def gdal_files(draw: st.DrawFn) -> tuple[np.ndarray, dict[str, Any]]:
    """An array, and a profile to write it with that GDAL accepts."""
    dtype = draw(st.sampled_from((*INTEGERS, *FLOATS, *COMPLEX)))
    kind = np.dtype(dtype).kind
    codecs: list[str | None] = [None, "deflate", "lzw", "zstd", "packbits", "lzma"]
    if kind in "iuf" and dtype not in ("uint64", "int64"):
        codecs += ["lerc", "lerc_deflate", "lerc_zstd"]
    codec = draw(st.sampled_from(codecs))
    bands = draw(st.integers(1, 5))
    array = pixels(
        (bands, draw(SIZES), draw(SIZES)),
        dtype,
        draw(st.integers(0, 1 << 30)),
        draw(st.sampled_from(("noise", "smooth", "flat", "holes"))),
    )
    profile: dict[str, Any] = {
        "driver": "GTiff",
        "dtype": dtype,
        "count": bands,
        "height": array.shape[1],
        "width": array.shape[2],
        "interleave": draw(st.sampled_from(("pixel", "band"))),
        "ENDIANNESS": draw(st.sampled_from(("LITTLE", "BIG"))),
        "BIGTIFF": draw(st.sampled_from(("YES", "NO"))),
    }
    if codec:
        profile["compress"] = codec
    if codec and codec.startswith("lerc"):
        profile["MAX_Z_ERROR"] = 0
    if draw(st.booleans()):
        profile.update(
            tiled=True,
            blockxsize=draw(st.sampled_from((16, 32, 48, 64, 128))),
            blockysize=draw(st.sampled_from((16, 32, 48, 64, 128))),
        )
    else:
        profile["blockysize"] = draw(st.integers(1, array.shape[1] + 1))
    if codec in ("deflate", "lzw", "zstd"):
        profile["predictor"] = draw(st.sampled_from((1, 2, 3) if kind == "f" else (1, 2) if kind in "iu" else (1,)))
    if draw(st.booleans()) and not (codec or "").startswith("lerc"):
        profile["SPARSE_OK"] = "TRUE"
    if (
        kind == "u"
        and dtype != "uint64"
        and codec in (None, "deflate", "lzw", "packbits")
        and draw(st.integers(0, 3)) == 0
    ):
        bits = draw(st.integers(*{"uint8": (1, 7), "uint16": (9, 15), "uint32": (17, 31)}[dtype]))
        profile["NBITS"] = bits
        profile.pop("predictor", None)
        array = array & np.array((1 << bits) - 1, array.dtype)
    profile["nodata"] = (
        draw(st.sampled_from((None, 0, 7))) if kind in "iu" else draw(st.sampled_from((None, 0, math.nan)))
    )
    if kind == "c":
        profile.pop("nodata")
    return array, profile


def random_window(rng: random.Random, rows: int, columns: int) -> tuple[int, int, int, int]:
    x, y = rng.randrange(columns), rng.randrange(rows)
    return x, y, rng.randint(1, columns - x), rng.randint(1, rows - y)


@given(case=gdal_files(), seed=st.integers(0, 1 << 30))
@examples(600)
def test_rasterio_files(swath: Swath, case: tuple[np.ndarray, dict[str, Any]], seed: int) -> None:
    array, profile = case
    rng = random.Random(seed)
    with scratch() as name:
        path = Path(name) / "r.tif"
        try:
            with rasterio.open(path, "w", **profile) as out:
                out.write(array)
        except Exception:
            # A combination that this GDAL does not write (such as a predictor with some widths) cannot be tested.
            return
        with rasterio.open(path) as dataset:
            want = dataset.read()
            got = swath.dump(path)
            assert same(got, want), f"whole: {difference(got, want)}"
            for _ in range(2):
                window = random_window(rng, *array.shape[1:])
                part = dataset.read(window=Window(*window))
                got = swath.dump(path, window=window)
                assert same(got, part), f"window {window}: {difference(got, part)}"
            bands = [rng.randint(1, len(want)) for _ in range(rng.randint(1, len(want)))]
            got = swath.dump(path, bands=bands)
            chosen = np.ascontiguousarray(want[[b - 1 for b in bands]])
            assert same(got, chosen), f"bands {bands}: {difference(got, chosen)}"
            if "nodata" in profile:
                mask = swath.dump(path, mask=True)
                # GDAL's masks follow nodata before alpha; rasterio's dataset_mask() takes alpha first.
                masks = dataset.read_masks()
                expected = masks if len(mask) == dataset.count else np.bitwise_or.reduce(masks, axis=0)[None]
                assert np.array_equal(mask, expected), f"mask: {difference(mask, expected)}"


@st.composite
def tifffile_files(draw: st.DrawFn) -> tuple[np.ndarray, dict[str, Any]]:
    """As above, in forms that only tifffile writes: float16, big-endian predictors, codecs that GDAL's wheel lacks."""
    dtype = draw(st.sampled_from((*INTEGERS, "float16", *FLOATS)))
    kind = np.dtype(dtype).kind
    bands = draw(st.sampled_from((1, 1, 2, 3, 4)))
    codecs: list[Any] = [None, "zlib", "lzw", "zstd", "packbits", "lzma", 32946]
    if dtype in ("uint8", "uint16"):
        codecs += ["jpeg2000", "jpegxl"]
    if dtype == "uint8" and bands in (3, 4):
        codecs.append("webp")
    codec = draw(st.sampled_from(codecs))
    array = pixels(
        (bands, draw(SIZES), draw(SIZES)),
        dtype,
        draw(st.integers(0, 1 << 30)),
        draw(st.sampled_from(("noise", "smooth", "flat"))),
    )
    options: dict[str, Any] = {
        "byteorder": draw(st.sampled_from("<>")),
        "bigtiff": draw(st.booleans()),
        "photometric": "minisblack",
    }
    if bands > 1:
        options["planarconfig"] = draw(st.sampled_from(("contig", "separate")))
    if codec:
        options["compression"] = codec
    if codec in ("zlib", "lzw", "zstd", 32946):
        options["predictor"] = draw(st.booleans()) and dtype not in ("uint64", "int64")
    if codec == "webp":
        options.update(compressionargs={"lossless": True}, planarconfig="contig", photometric="rgb")
    if codec == "jpeg2000":
        options["compressionargs"] = {"level": 0, "reversible": True}
    if codec == "jpegxl":
        # In a file of the other byte order libtiff swaps these samples too, and so does swath; tifffile does not.
        options.update(compressionargs={"lossless": True}, byteorder="<")
    if codec in ("jpeg2000", "jpegxl") and bands in (3, 4) and kind == "u" and options["planarconfig"] == "contig":
        options["photometric"] = "rgb"
    if draw(st.booleans()):
        options["tile"] = (draw(st.sampled_from((16, 32, 64))), draw(st.sampled_from((16, 48, 64))))
    else:
        options["rowsperstrip"] = draw(st.integers(1, array.shape[1]))
    return array, options


@given(case=tifffile_files(), seed=st.integers(0, 1 << 30))
@examples(400)
def test_tifffile_files(swath: Swath, case: tuple[np.ndarray, dict[str, Any]], seed: int) -> None:
    array, options = case
    rng = random.Random(seed)
    shaped = array[0] if len(array) == 1 else array
    if options.get("planarconfig") == "contig":
        shaped = np.ascontiguousarray(np.moveaxis(array, 0, -1))
    with scratch() as name:
        path = Path(name) / "t.tif"
        try:
            tifffile.imwrite(path, shaped, metadata=None, **options)
            # tifffile writes some layouts that it cannot read back; a file without any other reader cannot be tested.
            readable = np.array_equal(tifffile.imread(path).reshape(shaped.shape), shaped)
        except Exception:
            return
        if not readable:
            return
        got = swath.dump(path)
        assert same(got, array), f"whole: {difference(got, array)}"
        x, y, w, h = window = random_window(rng, *array.shape[1:])
        got = swath.dump(path, window=window)
        part = np.ascontiguousarray(array[:, y : y + h, x : x + w])
        assert same(got, part), f"window {window}: {difference(got, part)}"


@pytest.mark.parametrize("photometric", ["ycbcr", "rgb", "minisblack"])
@pytest.mark.parametrize("quality", [50, 75, 95])
def test_jpeg_is_close(swath: Swath, folder: Path, photometric: str, quality: int) -> None:
    """JPEG decoders may round differently; a difference of more than a few grey levels is a fault."""
    bands = 1 if photometric == "minisblack" else 3
    path = folder / "j.tif"
    array = pixels((bands, 123, 145), "uint8", quality, "smooth")
    with rasterio.open(
        path, "w", driver="GTiff", dtype="uint8", count=bands, height=123, width=145, compress="jpeg",
        JPEG_QUALITY=quality, photometric=photometric, interleave="pixel", tiled=True, blockxsize=64, blockysize=64,
    ) as out:  # fmt: skip
        out.write(array)
    with rasterio.open(path) as dataset:
        want = dataset.read().astype(int)
    gap = np.abs(swath.dump(path).astype(int) - want)
    assert gap.max() <= 4
    assert gap.mean() <= 0.5


# ------------------------------------------------------------------------------------------------------ georeferencing


def write_geo(path: Path, crs: CRS | None = None, transform: Affine | None = None, **more: Any) -> None:
    array = np.zeros((1, 4, 5), "uint8")
    with rasterio.open(
        path, "w", driver="GTiff", dtype=more.pop("dtype", "uint8"), count=1, height=4, width=5, crs=crs,
        transform=transform, **more,
    ) as out:  # fmt: skip
        out.write(array.astype(out.dtypes[0]))


def epsg_codes(count: int) -> list[int]:
    """The most common codes, then a fixed draw from the whole registry."""
    rng = random.Random(2026)
    codes = [4326, 3857, 4269, 4258, 25832, 27700, 2154, 3035, 32633, 32733, 5514, 2193, 3413, 3031, 4979, 4978]
    pool = list(range(2000, 32767))
    rng.shuffle(pool)
    for code in pool:
        if len(codes) >= count:
            break
        try:
            CRS.from_epsg(code)
        except Exception:
            continue
        codes.append(code)
    return codes


def test_epsg_codes(swath: Swath, folder: Path) -> None:
    """200 codes: ours is the code that GDAL finds in the file; where it finds none, the same system in WKT."""
    faults, seen = [], 0
    for code in epsg_codes(200):
        path = folder / f"{code}.tif"
        try:
            write_geo(path, CRS.from_epsg(code), Affine(10, 0, 1000, 0, -10, 2000))
        except Exception:
            continue
        with rasterio.open(path) as dataset:
            crs = dataset.crs
        if not crs:
            continue
        seen += 1
        got = swath.info(path).get("crs")
        want = crs.to_epsg(confidence_threshold=100)
        if want is not None:
            # A compound may be named by its own code or by those of its parts.
            parts = got is not None and "+" in got and CRS.from_user_input(got) == crs
            if got != f"EPSG:{want}" and not parts:
                faults.append(f"{code}: got {got!r}, want EPSG:{want}")
        elif not got or not alike(CRS.from_user_input(got), crs):
            faults.append(f"{code}: got {got!r}, want {crs.to_wkt()!r}")
    assert seen > 150
    assert not faults, f"{len(faults)} of {seen}:\n" + "\n".join(faults)


def alike(a: CRS, b: CRS) -> bool:
    """The same projection, parameters and figure of the Earth, names aside."""
    left, right = a.to_dict(projjson=False), b.to_dict(projjson=False)
    if a == b or (left and left == right):
        return True
    keys = (set(left) | set(right)) - {"no_defs", "wktext", "type"}
    for key in keys:
        x, y = left.get(key), right.get(key)
        if isinstance(x, int | float) and isinstance(y, int | float):
            if abs(x - y) > 1e-9 * max(abs(x), abs(y), 1e-3):
                return False
        elif x != y and not (key in ("lat_0", "lon_0", "x_0", "y_0") and {x, y} <= {None, 0}):
            return False
    return bool(keys)


USER_DEFINED = {
    "lcc": "+proj=lcc +lat_1=30.5 +lat_2=60.25 +lat_0=45 +lon_0=10 +x_0=1000 +y_0=2000 +ellps=GRS80 +units=m",
    "laea": "+proj=laea +lat_0=30 +lon_0=-20 +R=6371007.181 +units=m",
    "sinu": "+proj=sinu +lon_0=0 +R=6371007.181 +units=m",
    "tmerc": "+proj=tmerc +lat_0=10 +lon_0=20 +k=0.9996 +x_0=500000 +ellps=WGS84 +units=us-ft",
    "stere": "+proj=stere +lat_0=90 +lat_ts=70 +lon_0=-45 +ellps=WGS84",
    "merc": "+proj=merc +lon_0=15 +ellps=WGS84",
    "aea": "+proj=aea +lat_1=29.5 +lat_2=45.5 +lat_0=23 +lon_0=-96 +datum=NAD83",
    "bessel": "+proj=longlat +ellps=bessel",
    "eqc": "+proj=eqc +lat_ts=45 +lon_0=5 +ellps=WGS84",
    "omerc": "+proj=omerc +lat_0=4 +lonc=115 +alpha=53 +k=0.99984 +gamma=53 +ellps=evrstSS",
    "poly": "+proj=poly +lat_0=0 +lon_0=-54 +x_0=5000000 +y_0=10000000 +ellps=aust_SA",
    "utm-ed50": "+proj=utm +zone=33 +ellps=intl",
}


@pytest.mark.parametrize("name", USER_DEFINED)
def test_user_defined_crs(swath: Swath, folder: Path, name: str) -> None:
    path = folder / "u.tif"
    write_geo(path, CRS.from_proj4(USER_DEFINED[name]), Affine(10, 0, 1000, 0, -10, 2000))
    with rasterio.open(path) as dataset:
        want = dataset.crs
    got = swath.info(path).get("crs")
    assert got
    assert alike(CRS.from_user_input(got), want), f"got {got}\nwant {want.to_wkt()}"


FINITE = st.floats(-1e7, 1e7, allow_nan=False).filter(lambda v: v == 0 or abs(v) > 1e-9)
STEP = st.floats(1e-6, 1e5).flatmap(lambda v: st.sampled_from((v, -v)))


@given(a=STEP, b=st.one_of(st.just(0.0), FINITE), c=FINITE, d=st.one_of(st.just(0.0), FINITE), e=STEP, f=FINITE,
       point=st.booleans())  # fmt: skip
@examples(150)
def test_transform(swath: Swath, a: float, b: float, c: float, d: float, e: float, f: float, point: bool) -> None:
    """Bit for bit what GDAL reads, rotated and sheared ones too, pixels that are areas or points."""
    with scratch() as name:
        path = Path(name) / "g.tif"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            array = np.zeros((1, 4, 5), "uint8")
            with rasterio.open(
                path, "w", driver="GTiff", dtype="uint8", count=1, height=4, width=5, crs=CRS.from_epsg(32633),
                transform=Affine(a, b, c, d, e, f),
            ) as out:  # fmt: skip
                if point:
                    out.update_tags(AREA_OR_POINT="Point")
                out.write(array)
            with rasterio.open(path) as dataset:
                want = tuple(dataset.transform)[:6]
        got = transform_of(swath.info(path))
        assert got == want, f"got {got}, want {want}"


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("uint8", 0), ("uint8", 255), ("int8", -128), ("int16", -9999), ("int16", -32768), ("uint16", 65535),
        ("int32", -2147483648), ("uint32", 4294967295), ("int64", -9007199254740993), ("uint64", 9007199254740992),
        ("float32", math.nan), ("float32", -9999), ("float32", -3.4028234663852886e38), ("float32", 0.1),
        ("float32", math.inf), ("float64", -1.7976931348623157e308), ("float64", 0.1), ("float64", 5e-324),
    ],
)  # fmt: skip
def test_nodata(swath: Swath, folder: Path, dtype: str, value: float) -> None:
    path = folder / "n.tif"
    write_geo(path, nodata=value, dtype=dtype)
    with rasterio.open(path) as dataset:
        want = dataset.nodata
    assert numbers_equal(swath.info(path).get("nodata"), want)
