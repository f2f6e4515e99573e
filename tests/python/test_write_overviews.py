"""Overviews of `swath convert --cog`, pixel by pixel against those of GDAL's COG driver."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
from harness import Swath
from rasterio.enums import ColorInterp
from rasterio.shutil import copy
from writing import by_gdal, convert, equal, pixels, write

METHODS = ("nearest", "average", "mode", "bilinear", "cubic", "lanczos", "rms")
# With kernels a rounded integer may be off by one at each level; averages and selections are exact.
EXACT = ("nearest", "average", "mode")
TYPES = ("uint8", "int16", "uint16", "int32", "uint32", "float32", "float64")
SIZES = ((700, 600), (701, 603), (1025, 517), (1300, 9), (5, 1111))


def both(
    swath: Swath, folder: Path, source: Path, method: str, *options: object, **theirs: Any
) -> list[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
    """Pixels and masks of each overview: ours, GDAL's."""
    ours, gdal = folder / "ours.tif", folder / "gdal.tif"
    convert(swath, source, ours, "--cog", "--resampling", method, "--tile", 128, "--compress", "zstd", *options)
    copy(source, gdal, driver="COG", BLOCKSIZE=128, OVERVIEW_RESAMPLING=method.upper(), COMPRESS="ZSTD", **theirs)
    with rasterio.open(ours) as a, rasterio.open(gdal) as b:
        # Factors are rounded by rasterio: the sizes are compared below.
        assert len(a.overviews(1)) == len(b.overviews(1))
        levels = range(len(a.overviews(1)))
    assert levels, "there is no overview to compare"
    out = []
    for level in levels:
        with rasterio.open(ours, overview_level=level) as a, rasterio.open(gdal, overview_level=level) as b:
            assert a.shape == b.shape
            out.append((a.read(), b.read(), a.dataset_mask(), b.dataset_mask()))
        equal(swath.dump(ours, overview=level), out[-1][0], "swath reads its overview as GDAL does")
    return out


def tolerance(method: str, dtype: np.dtype, level: int) -> tuple[float, float]:
    """Allowed absolute and relative difference."""
    if dtype.kind == "f":
        # The same sums in another order, at each level once more.
        return 0, (0 if method in ("nearest", "mode") else 1e-6 * (level + 1))
    if method in EXACT:
        return 0, 0
    # Rounded to a whole number at each level; more room for 32 bits.
    return level + 1, (1e-6 * (level + 1) if dtype.itemsize >= 4 else 0)


def check(method: str, levels: list[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]) -> None:
    for level, (got, want, got_mask, want_mask) in enumerate(levels):
        if level and min(got.shape[1:]) == 1:
            # GDAL makes a level from the one before only where that is larger in both directions, else from the image.
            continue
        assert np.array_equal(got_mask, want_mask), f"level {level}: {(got_mask != want_mask).sum()} of the mask differ"
        if got.dtype.kind == "f":
            assert np.array_equal(np.isnan(got), np.isnan(want)), f"level {level}: NaN elsewhere"
        seen = np.broadcast_to(got_mask > 0, got.shape) & ~np.isnan(want.astype("f8"))
        a, b = got[seen].astype("f8"), want[seen].astype("f8")
        absolute, relative = tolerance(method, got.dtype, level)
        # Kernels with negative lobes cancel, so the tolerance depends on the size of the input.
        reach = np.abs(b).max() if b.size and got.dtype.kind == "f" else np.abs(b)
        wrong = np.abs(a - b) > absolute + relative * reach
        assert not wrong.any(), (
            f"{method}, level {level}: {wrong.sum()} of {wrong.size} differ, by up to {np.abs(a - b).max()}, "
            f"first {a[wrong][0]!r} for {b[wrong][0]!r}"
        )


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_plain(swath: Swath, folder: Path, method: str, dtype: str, size: tuple[int, int]) -> None:
    width, height = size
    array = pixels((1, height, width), dtype, 3, "smooth")
    array[0, ::3, ::7] = array.max() // 2
    check(method, both(swath, folder, write(folder / "s.tif", array), method))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("bands", [2, 3, 5])
@pytest.mark.parametrize("interleave", ["pixel", "band"])
def test_bands(swath: Swath, folder: Path, method: str, bands: int, interleave: str) -> None:
    array = pixels((bands, 513, 401), "uint8", 3, "noise")
    source = write(folder / "s.tif", array)
    check(method, both(swath, folder, source, method, "--interleave", interleave))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("dtype", "nodata"),
    [("uint8", 0), ("uint8", 255), ("int16", -9999), ("uint16", 65535), ("float32", -9999.0), ("float32", float("nan")),
     ("float64", 1e20), ("int32", -2147483648)],
)  # fmt: skip
@pytest.mark.parametrize("size", [(700, 600), (701, 333)], ids=str)
def test_holes(swath: Swath, folder: Path, method: str, dtype: str, nodata: float, size: tuple[int, int]) -> None:
    """Nodata takes no part, and a pixel is nodata where GDAL has it so."""
    width, height = size
    array = pixels((2, height, width), dtype, 3, "smooth")
    array[array == np.array(nodata).astype(dtype)] = 17
    rng = np.random.default_rng(1)
    holes = rng.random((height, width)) < 0.2
    holes[100:333, 99:270] = True
    array[0, holes] = nodata
    array[1, 40:180, 201:333] = nodata
    levels = both(swath, folder, write(folder / "s.tif", array, nodata=nodata), method)
    if np.isnan(nodata) and method in ("bilinear", "cubic", "lanczos"):
        # In GDAL NaN spreads as far as the kernel reaches. swath treats NaN like any other nodata value.
        filled = np.where(np.isnan(array), np.float32(-9999), array)
        other = folder / "other.tif"
        write(folder / "f.tif", filled, nodata=-9999)
        convert(swath, folder / "f.tif", other, "--cog", "--resampling", method, "--tile", 128)
        for level, (got, *_) in enumerate(levels):
            want = by_gdal(other, level)
            equal(got, np.where(want == -9999, np.float32(np.nan), want), f"level {level}")
        return
    if method == "mode" and (np.isnan(nodata) or nodata < 0):
        # From nodata alone GDAL 3.12 makes 0 here; with every other method it makes nodata.
        patched = []
        for got, want, mask, _ in levels[:1]:
            hole = (np.isnan(got) if np.isnan(nodata) else got == nodata) & (want == 0)
            blocks = array[:, : got.shape[1] * 2, : got.shape[2] * 2].reshape(2, got.shape[1], 2, got.shape[2], 2)
            empty = np.isnan(blocks) if np.isnan(nodata) else blocks == nodata
            assert not hole.any() or width % 2 or height % 2 or empty.all(axis=(2, 4))[hole].all()
            patched.append((got, np.where(hole, got, want), mask, mask))
        levels = patched
    check(method, levels)


@pytest.mark.parametrize("method", METHODS)
def test_average_that_hits_nodata(swath: Swath, folder: Path, method: str) -> None:
    """An average of valid pixels that happens to be the nodata value: GDAL moves it aside."""
    array = np.full((1, 400, 400), 10, "uint8")
    array[0, ::2, ::2] = 6
    array[0, 1::2, 1::2] = 6
    check(method, both(swath, folder, write(folder / "s.tif", array, nodata=8), method))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("bands", [1, 3])
def test_mask(swath: Swath, folder: Path, method: str, bands: int) -> None:
    array = pixels((bands, 555, 401), "uint8", 3, "noise")
    mask = np.where(np.random.default_rng(2).random((555, 401)) < 0.3, 0, 255).astype("u1")
    mask[100:300, 120:240] = 0
    check(method, both(swath, folder, write(folder / "s.tif", array, mask), method))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("bands", [2, 4])
@pytest.mark.parametrize("kind", ["soft", "hard"])
def test_alpha(swath: Swath, folder: Path, method: str, bands: int, kind: str) -> None:
    array = pixels((bands, 420, 401), "uint8", 3, "smooth")
    array[-1] = 255
    array[-1, 100:260, 120:240] = 0
    if kind == "soft":
        array[-1, 300:] = np.arange(401) % 256
    source = write(folder / "s.tif", array, photometric="rgb" if bands == 4 else "minisblack", alpha="yes")
    check(method, both(swath, folder, source, method))


@pytest.mark.parametrize("method", ["nearest", "mode"])
def test_palette(swath: Swath, folder: Path, method: str) -> None:
    array = pixels((1, 420, 401), "uint8", 3, "noise") % 9
    source = folder / "s.tif"
    with rasterio.open(source, "w", driver="GTiff", dtype="uint8", count=1, height=420, width=401) as out:
        out.write(array)
        out.write_colormap(1, {i: (i * 20, 255 - i * 20, i, 255) for i in range(9)})
    check(method, both(swath, folder, source, method))
    with rasterio.open(folder / "ours.tif", overview_level=0) as dataset:
        assert dataset.colorinterp == (ColorInterp.palette,)


def test_defaults(swath: Swath, folder: Path) -> None:
    """Averages, or the nearest pixel for palettes; and the file states the method."""
    array = pixels((1, 420, 401), "uint8", 3, "noise") % 9
    source = write(folder / "s.tif", array)
    target = folder / "t.tif"
    convert(swath, source, target, "--cog", "--tile", 128)
    want = both(swath, folder, source, "average")[0][1]
    equal(by_gdal(target, 0), want, "average")
    with rasterio.open(target) as dataset:
        assert dataset.tags(ns="IMAGE_STRUCTURE")["OVERVIEW_RESAMPLING"] == "AVERAGE"
    with rasterio.open(source, "r+") as out:
        out.write_colormap(1, {i: (i * 20, 255 - i * 20, i, 255) for i in range(9)})
    convert(swath, source, target, "--cog", "--tile", 128)
    equal(by_gdal(target, 0), both(swath, folder, source, "nearest")[0][1], "nearest")


@pytest.mark.parametrize(("method", "choose"), [("min", np.min), ("max", np.max), ("median", np.median)])
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_min_max_median(swath: Swath, folder: Path, method: str, choose: Any, dtype: str) -> None:
    """Methods that GDAL's driver lacks, against numpy on blocks of 2 × 2."""
    array = pixels((1, 400, 402), dtype, 3, "noise")
    source, target = write(folder / "s.tif", array), folder / "t.tif"
    convert(swath, source, target, "--cog", "--tile", 256, "--resampling", method)
    blocks = array.reshape(1, 200, 2, 201, 2).transpose(0, 1, 3, 2, 4).reshape(1, 200, 201, 4)
    got = by_gdal(target, 0)
    if method == "median":
        # Of four values two are in the middle: either, or one between them, is a median.
        middle = np.sort(blocks, axis=-1)[..., 1:3]
        assert ((got >= middle[..., 0]) & (got <= middle[..., 1])).all()
    else:
        equal(got, choose(blocks, axis=-1).astype(dtype), method)


@pytest.mark.parametrize("bits", [1, 4, 12])
@pytest.mark.parametrize("method", ["nearest", "average", "cubic"])
def test_nbits(swath: Swath, folder: Path, bits: int, method: str) -> None:
    """Kernels overshoot; samples of few bits must stay in their range, as in GDAL."""
    dtype = "uint8" if bits <= 8 else "uint16"
    array = pixels((1, 420, 401), dtype, 3, "noise") & np.array((1 << bits) - 1, dtype)
    source = write(folder / "s.tif", array, NBITS=bits)
    levels = both(swath, folder, source, method, NBITS=bits)
    for got, _, _, _ in levels:
        assert got.max() < 1 << bits
    if bits > 1:
        check(method, levels)


@pytest.mark.parametrize("method", ["nearest", "average"])
def test_complex(swath: Swath, folder: Path, method: str) -> None:
    array = pixels((1, 420, 401), "complex64", 3, "smooth")
    source = write(folder / "s.tif", array)
    for got, want, _, _ in both(swath, folder, source, method):
        assert np.allclose(got, want, rtol=1e-5)


@pytest.mark.parametrize("method", METHODS)
def test_infinities(swath: Swath, folder: Path, method: str) -> None:
    array = pixels((1, 420, 401), "float32", 3, "smooth")
    array[0, 50:80, 60:90] = np.inf
    array[0, 150:180, 60:90] = -np.inf
    levels = both(swath, folder, write(folder / "s.tif", array), method)
    got, want = levels[0][:2]
    finite = np.isfinite(got) & np.isfinite(want)
    assert (np.isfinite(got) == np.isfinite(want)).mean() > 0.99
    assert np.allclose(got[finite], want[finite], rtol=1e-4, atol=1e-3)
