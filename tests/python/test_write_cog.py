"""COGs of `swath convert --cog`: valid to rio-cogeo, GDAL's validator and swath, and no larger than GDAL's."""

from __future__ import annotations

import json
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
import tifffile
from harness import Swath, same
from rasterio.shutil import copy
from rio_cogeo.cogeo import cog_validate
from writing import by_gdal, convert, deck, equal, pixels, refused, write, write_plain

GDAL_PYTHON = "/usr/bin/python3"
VALIDATOR = "/usr/lib/python3/dist-packages/osgeo_utils/samples/validate_cloud_optimized_geotiff.py"
TRANSFORM = rasterio.Affine(10, 0, 4e5, 0, -10, 52e5)


@cache
def gdal_validator() -> str | None:
    """Why GDAL's validator cannot be run here, or `None`."""
    try:
        done = subprocess.run([GDAL_PYTHON, "-c", "import osgeo.gdal"], capture_output=True)
    except OSError:
        return f"there is no {GDAL_PYTHON}"
    if done.returncode:
        return f"{GDAL_PYTHON} has no osgeo"
    return None if Path(VALIDATOR).is_file() else f"{VALIDATOR} is missing"


def quirks(path: Path) -> list[str]:
    """A finding that rio-cogeo also has for GDAL's own COGs: to rasterio, tiles as wide as the image are strips."""
    with rasterio.open(path) as dataset:
        block, levels_of = dataset.block_shapes[0][1], range(len(dataset.overviews(1)))
    faults = []
    for level in levels_of:
        with rasterio.open(path, overview_level=level) as dataset:
            if dataset.width == block:
                faults.append(f"Overview of index {level} is not tiled")
    return faults


def check_valid(swath: Swath, path: Path, by_their_gdal: bool = False, warnings: bool = False) -> None:
    """Runs three validators; `by_their_gdal` selects GDAL's, which starts a Python of its own."""
    excused = quirks(path)
    run = swath.run("validate", path, "--strict", "--full", "--json")
    run.check_alive()
    document = json.loads(run.stdout)
    left = [error for error in document["errors"] if error not in excused]
    assert not left and not document["warnings"], f"swath: {left} {document['warnings']}"
    assert run.code == (1 if document["errors"] else 0)
    valid, errors, found = cog_validate(path, strict=True, quiet=True)
    left = [error for error in errors if error not in excused]
    assert not left and not found and (valid or errors), f"rio-cogeo: {errors} {found}"
    if by_their_gdal and gdal_validator() is None:
        done = subprocess.run(
            [GDAL_PYTHON, VALIDATOR, "--full-check=yes", str(path)], capture_output=True, text=True, timeout=60
        )
        output = done.stdout + done.stderr
        assert done.returncode == 0 and "is a valid cloud optimized GeoTIFF" in output, f"GDAL: {output}"
        assert warnings or "warning" not in output.lower(), f"GDAL: {output}"


def gdal_cog(source: Path, target: Path, **options: Any) -> Path:
    copy(source, target, driver="COG", **options)
    return target


def levels(path: Path) -> list[tuple[int, int]]:
    with tifffile.TiffFile(path) as tiff:
        return [
            page.shape[:2] if page.planarconfig == 1 else page.shape[-2:] for page in tiff.pages if not page.is_mask
        ]


SIZES = ((1, 1), (511, 511), (512, 512), (513, 513), (1025, 1500), (3000, 60), (5000, 40), (40, 5000), (700, 1100))
CODECS = ("none", "lzw", "deflate", "zstd", "lzma", "lerc", "lerc_deflate", "lerc_zstd", "jpeg", "webp", "packbits")


def cog_cases() -> list[dict[str, Any]]:
    sizes, bands, nodata = deck(SIZES, 1), deck((1, 2, 3, 4), 2), deck((None, 0, 7), 3)
    extras, big = deck(("", "mask", "alpha", ""), 4), deck(("no", "yes"), 5)
    interleave, tiles = deck(("pixel", "pixel", "band"), 6), deck((512, 512, 256, 128), 7)
    out = []
    for codec in CODECS:
        types = ["uint8", "uint16", "int16", "float32", "float64", "int32", "uint32"]
        types += [] if codec.startswith("lerc") else ["uint64", "complex64", "int8", "float16"]
        for dtype in types if codec not in ("jpeg", "webp") else ["uint8"] * 6:
            case: dict[str, Any] = {
                "codec": codec, "dtype": dtype, "size": next(sizes), "bands": next(bands), "nodata": next(nodata),
                "extra": next(extras), "big": next(big), "interleave": next(interleave), "tile": next(tiles),
            }  # fmt: skip
            if codec == "lzma":
                case["size"] = (513, 513) if case["size"][0] != 1 else (1, 1)
            if codec == "webp":
                case.update(bands=3 + case["bands"] % 2, interleave="pixel")
            if dtype == "complex64":
                case["nodata"] = None
            out.append(case)
    return out


COGS = cog_cases()


@pytest.mark.parametrize("case", COGS, ids=["-".join(str(v) for v in c.values()).replace(" ", "") for c in COGS])
def test_valid(swath: Swath, folder: Path, case: dict[str, Any]) -> None:
    width, height = case["size"]
    array = pixels((case["bands"], height, width), case["dtype"], 3, "holes")
    mask = None
    if case["extra"] == "mask":
        case = {**case, "nodata": None}
        mask = np.full((height, width), 255, "u1")
        mask[height // 3 : height // 2 + 1, : width // 2] = 0
    source, target = folder / "s.tif", folder / "t.tif"
    profile = {"nodata": case["nodata"], "crs": "EPSG:32633", "transform": TRANSFORM}
    if case["extra"] == "alpha" and case["bands"] in (2, 4):
        profile.update(alpha="yes", photometric="rgb" if case["bands"] == 4 else "minisblack")
    write(source, array, mask, **profile)
    convert(swath, source, target, "--cog", "--compress", case["codec"], "--bigtiff", case["big"], "--interleave",
            case["interleave"], "--tile", case["tile"])  # fmt: skip
    check_valid(swath, target)
    if case["codec"] not in ("jpeg",):
        equal(swath.dump(target), array, "swath")
        equal(by_gdal(target), array, "GDAL")
    if mask is not None:
        assert same(swath.dump(target, mask=True), mask[None])
        with rasterio.open(target) as dataset:
            assert np.array_equal(dataset.dataset_mask(), mask)
    with rasterio.open(target) as dataset:
        assert dataset.tags(ns="IMAGE_STRUCTURE")["LAYOUT"] == "COG"
    # Sizes of overviews are those of GDAL's driver.
    bare = write(folder / "b.tif", np.zeros((1, height, width), "u1"))
    theirs = gdal_cog(bare, folder / "g.tif", BLOCKSIZE=case["tile"])
    assert levels(target) == levels(theirs)


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("extra", ["", "mask", "alpha"])
@pytest.mark.parametrize("interleave", ["pixel", "band"])
def test_valid_to_gdal(swath: Swath, folder: Path, size: tuple[int, int], extra: str, interleave: str) -> None:
    """GDAL's own validator, with its full check: leaders, trailers, order of blocks, masks."""
    if reason := gdal_validator():
        pytest.skip(reason)
    width, height = size
    bands = {"": 3, "mask": 3, "alpha": 4}[extra]
    array = pixels((bands, height, width), "uint8", 3, "holes")
    mask = None if extra != "mask" else np.where(array[0] > 60, 255, 0).astype("u1")
    source, target = folder / "s.tif", folder / "t.tif"
    write(source, array, mask, photometric="rgb", crs="EPSG:32633", transform=TRANSFORM,
          **({"alpha": "yes"} if extra == "alpha" else {}))  # fmt: skip
    sparse = ["--sparse"] if width == 1025 else []
    convert(swath, source, target, "--cog", "--interleave", interleave, *sparse)
    check_valid(swath, target, by_their_gdal=True)


@pytest.mark.parametrize("codec", ["jpeg", "webp", "zstd", "lerc_zstd", "none"])
@pytest.mark.parametrize("big", ["yes", "no"])
def test_every_codec_is_valid_to_gdal(swath: Swath, folder: Path, codec: str, big: str) -> None:
    if reason := gdal_validator():
        pytest.skip(reason)
    array = pixels((3, 1030, 1200), "uint8", 3)
    mask = np.where(array[0] > 60, 255, 0).astype("u1")
    source = write(folder / "s.tif", array, mask, photometric="rgb")
    target = folder / "t.tif"
    convert(swath, source, target, "--cog", "--compress", codec, "--bigtiff", big, "--tile", 256)
    if codec in ("zstd", "lerc_zstd", "webp"):
        # This GDAL may be built without them; then the other two check the structure.
        formats = subprocess.run(
            [GDAL_PYTHON, "-c", "from osgeo import gdal; print(gdal.GetDriverByName('GTiff').GetMetadata())"],
            capture_output=True, text=True,
        ).stdout  # fmt: skip
        check_valid(swath, target, by_their_gdal=codec.upper() in formats)
    else:
        check_valid(swath, target, by_their_gdal=True)


def test_bare_image_is_valid(swath: Swath, folder: Path) -> None:
    """No georeferencing, no metadata, no statistics: still a COG."""
    source = write_plain(folder / "s.tif", pixels((1, 600, 700), "uint8"))
    for options in ((), ("--statistics", "no"), ("--overviews", 1)):
        convert(swath, source, folder / "t.tif", "--cog", *options)
        check_valid(swath, folder / "t.tif")


def test_big_endian_cog(swath: Swath, folder: Path) -> None:
    """Allowed or refused; if it is written it must be valid and the same pixels."""
    array = pixels((2, 600, 700), "int16")
    source, target = write_plain(folder / "s.tif", array), folder / "t.tif"
    run = swath.run("convert", source, target, "--cog", "--big-endian")
    if run.ok:
        check_valid(swath, target, by_their_gdal=True)
        equal(by_gdal(target), array, "GDAL")
        equal(by_gdal(target, 0), swath.dump(target, overview=0), "overview")
    else:
        run.check_refusal()


@pytest.mark.parametrize("factors", ["2", "2,4,8", "4,16", "3,9", "1"])
def test_overviews_asked_for(swath: Swath, folder: Path, factors: str) -> None:
    """Sizes as `gdaladdo` makes them."""
    array = pixels((1, 601, 703), "uint16")
    source, target = write_plain(folder / "s.tif", array), folder / "t.tif"
    convert(swath, source, target, "--overviews", factors)
    wanted = [int(f) for f in factors.split(",")] if "," in factors else [2**i for i in range(1, int(factors) + 1)]
    gdal = write(folder / "g.tif", array)
    with rasterio.open(gdal, "r+") as dataset:
        dataset.build_overviews(wanted, rasterio.enums.Resampling.average)
    assert levels(target) == levels(gdal)
    for index in range(len(wanted)):
        equal(by_gdal(target, index), by_gdal(gdal, index), f"factor {wanted[index]}")


def test_a_cog_cannot_have_strips(swath: Swath, folder: Path) -> None:
    source = write_plain(folder / "s.tif", pixels((1, 60, 70), "uint8"))
    assert "strips" in refused(swath, source, folder / "t.tif", "--cog", "--strips", 8)


# ----------------------------------------------------------------------------------------------------------- statistics

STATISTICS = ("MINIMUM", "MAXIMUM", "MEAN", "STDDEV")


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64",
                                   "float16", "float32", "float64"])  # fmt: skip
@pytest.mark.parametrize("kind", ["plain", "nodata", "mask", "nan", "offset"])
def test_statistics_equal_numpy(swath: Swath, folder: Path, dtype: str, kind: str) -> None:
    array = pixels((2, 300, 700), dtype, 7, "smooth")
    nodata, mask = None, None
    if kind == "offset":
        # Values far from zero and close together: sums of squares lose every digit here.
        base = {"u": 200, "i": 100, "f": 1000}[array.dtype.kind] if array.itemsize < 4 else 10_000_000
        array = (base + pixels((2, 300, 700), "uint8", 2, "noise").astype("i8") % 3).astype(dtype)
    valid = np.ones(array.shape, bool)
    if kind == "nodata":
        nodata = 5
        array[:, 100:200, 50:300] = 5
        valid = array != 5
    elif kind == "nan":
        if array.dtype.kind != "f":
            pytest.skip("integers have no NaN")
        array[:, 100:200, 50:300] = np.nan
        valid = ~np.isnan(array)
    elif kind == "mask":
        mask = np.full(array.shape[1:], 255, "u1")
        mask[10:90, 300:] = 0
        valid = np.broadcast_to(mask > 0, array.shape)
    source, target = write(folder / "s.tif", array, mask, nodata=nodata), folder / "t.tif"
    convert(swath, source, target, "--cog", "--compress", "zstd")
    with rasterio.open(target) as dataset:
        for band in (1, 2):
            tags = dataset.tags(band)
            values = array[band - 1][valid[band - 1]]
            got = {name: float(tags[f"STATISTICS_{name}"]) for name in STATISTICS}
            assert got["MINIMUM"] == float(values.min()) and got["MAXIMUM"] == float(values.max())
            exact = values.astype("longdouble")
            assert got["MEAN"] == pytest.approx(float(exact.mean()), rel=1e-9)
            assert got["STDDEV"] == pytest.approx(float(exact.std()), rel=1e-9)
            percent = float(tags["STATISTICS_VALID_PERCENT"])
            assert percent == pytest.approx(100 * len(values) / valid[0].size, rel=1e-3)


def test_statistics_only_where_asked(swath: Swath, folder: Path) -> None:
    source = write(folder / "s.tif", pixels((1, 60, 70), "uint8"))
    for options, wanted in (((), False), (("--statistics", "yes"), True), (("--cog",), True),
                            (("--cog", "--statistics", "no"), False)):  # fmt: skip
        convert(swath, source, folder / "t.tif", *options)
        with rasterio.open(folder / "t.tif") as dataset:
            assert ("STATISTICS_MEAN" in dataset.tags(1)) is wanted, options


def test_statistics_of_nothing(swath: Swath, folder: Path) -> None:
    """All nodata: no statistics, no NaN in them, a valid file."""
    source = write(folder / "s.tif", np.full((1, 600, 600), -9999, "float32"), nodata=-9999)
    for options in ((), ("--sparse",)):
        convert(swath, source, folder / "t.tif", "--cog", *options)
        check_valid(swath, folder / "t.tif")
        with rasterio.open(folder / "t.tif") as dataset:
            assert "STATISTICS_MEAN" not in dataset.tags(1)
            assert (dataset.read() == -9999).all()


def test_stale_statistics_are_replaced(swath: Swath, folder: Path) -> None:
    source = write(folder / "s.tif", pixels((1, 60, 70), "uint8"))
    with rasterio.open(source, "r+") as out:
        out.update_tags(1, STATISTICS_MINIMUM="-77", STATISTICS_MEAN="-77", STATISTICS_APPROXIMATE="YES")
    for options in (("--cog",), ("--statistics", "yes")):
        convert(swath, source, folder / "t.tif", *options)
        with rasterio.open(folder / "t.tif") as dataset:
            tags = dataset.tags(1)
            assert float(tags["STATISTICS_MINIMUM"]) == float(dataset.read().min())
            assert "STATISTICS_APPROXIMATE" not in tags


# ----------------------------------------------------------------------------------------------------------------- size


def landscape(dtype: str, bands: int = 1, size: int = 1500) -> np.ndarray:
    """Terrain-like samples: smooth at every scale, with noise in the last digit."""
    rng = np.random.default_rng(5)
    out = np.zeros((bands, size, size))
    y, x = np.mgrid[0:size, 0:size]
    for octave in range(1, 8):
        for band in range(bands):
            a, b, phase = rng.normal(size=3)
            out[band] += np.sin((a * x + b * y) / size * 2**octave * 3 + phase) / octave**1.5
    out = (out - out.min()) / (out.max() - out.min())
    noise = rng.integers(0, 3, out.shape)
    if np.dtype(dtype).kind == "f":
        return (out * 1000 + noise * 0.01).astype(dtype)
    return (out * min(np.iinfo(dtype).max - 3, 10_000) + noise).astype(dtype)


SIZE_CASES: list[tuple[str, str, int, dict[str, Any], tuple[object, ...]]] = [
    ("uint16", "deflate", 1, {"LEVEL": 6, "PREDICTOR": "STANDARD"}, ("--level", 6, "--predictor", 2)),
    ("uint16", "deflate", 1, {"LEVEL": 9, "PREDICTOR": "NO"}, ("--level", 9, "--predictor", 1)),
    ("uint16", "deflate", 1, {"LEVEL": 1, "PREDICTOR": "STANDARD"}, ("--level", 1, "--predictor", 2)),
    ("uint16", "deflate", 1, {"LEVEL": 12, "PREDICTOR": "STANDARD"}, ("--level", 12, "--predictor", 2)),
    ("float32", "deflate", 1, {"LEVEL": 6, "PREDICTOR": "FLOATING_POINT"}, ("--level", 6, "--predictor", 3)),
    ("uint8", "deflate", 3, {"LEVEL": 6, "PREDICTOR": "STANDARD"}, ("--level", 6, "--predictor", 2)),
    ("uint16", "zstd", 1, {"LEVEL": 9, "PREDICTOR": "STANDARD"}, ("--level", 9, "--predictor", 2)),
    ("float32", "zstd", 1, {"LEVEL": 9, "PREDICTOR": "FLOATING_POINT"}, ("--level", 9, "--predictor", 3)),
    ("uint16", "zstd", 1, {"LEVEL": 1, "PREDICTOR": "NO"}, ("--level", 1, "--predictor", 1)),
    ("uint16", "lzw", 1, {"PREDICTOR": "STANDARD"}, ("--predictor", 2)),
    ("uint8", "lzw", 3, {"PREDICTOR": "NO"}, ("--predictor", 1)),
    ("float32", "lerc", 1, {"MAX_Z_ERROR": 0}, ()),
    ("uint16", "lzma", 1, {"LEVEL": 6}, ("--level", 6, "--predictor", 1)),
    ("float32", "lerc", 1, {"MAX_Z_ERROR": 0.01}, ("--max-z-error", 0.01)),
    ("float32", "lerc_zstd", 1, {"MAX_Z_ERROR": 0.1, "LEVEL": 9}, ("--max-z-error", 0.1, "--level", 9)),
    ("float32", "lerc_deflate", 1, {"MAX_Z_ERROR": 0.1, "LEVEL": 6}, ("--max-z-error", 0.1, "--level", 6)),
    ("uint8", "jpeg", 1, {"QUALITY": 75}, ("--quality", 75)),
    ("uint8", "jpeg", 3, {"QUALITY": 75}, ("--quality", 75)),
    ("uint8", "webp", 3, {"QUALITY": 75}, ("--quality", 75)),
    # Lossless in GDAL; its overviews are lossy by default.
    ("uint8", "webp", 3, {"QUALITY": 100, "OVERVIEW_QUALITY": 100}, ()),
    ("uint16", "none", 1, {}, ()),
]


def size_cases() -> list[Any]:
    out = []
    for case in SIZE_CASES:
        name = f"{case[1]}-{case[0]}-{case[2]}-{'-'.join(map(str, case[3].values()))}"
        out.append(pytest.param(*case, id=name))
    return out


@pytest.mark.parametrize(("dtype", "codec", "bands", "theirs", "ours"), size_cases())
def test_no_larger_than_gdal(
    swath: Swath, folder: Path, dtype: str, codec: str, bands: int, theirs: dict[str, Any], ours: tuple[object, ...]
) -> None:
    array = landscape(dtype, bands, 1100 if codec in ("webp", "lzma") else 1500)
    source = write(folder / "s.tif", array, **({"photometric": "rgb"} if bands == 3 else {}))
    gdal = gdal_cog(source, folder / "g.tif", COMPRESS=codec.upper(), OVERVIEW_RESAMPLING="AVERAGE", BIGTIFF="NO",
                    STATISTICS="YES", **theirs)  # fmt: skip
    target = folder / "t.tif"
    convert(swath, source, target, "--cog", "--compress", codec, "--resampling", "average", *ours)
    mine, limit = target.stat().st_size, gdal.stat().st_size * 1.02
    assert mine <= limit, f"{mine:,} bytes, GDAL's {gdal.stat().st_size:,}: {mine / gdal.stat().st_size - 1:+.2%}"
