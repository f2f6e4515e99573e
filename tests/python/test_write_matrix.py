"""`swath convert` over types, codecs, predictors, layouts and sizes, read back by GDAL, tifffile and swath.

Every codec is combined with every type it takes; the other axes are drawn from shuffled lists, so that each value
occurs many times, in different combinations.
"""

from __future__ import annotations

import subprocess
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
import tifffile
from harness import Swath, same
from rasterio.enums import ColorInterp
from writing import (
    COMPLEX,
    DTYPES,
    FLOATS,
    INTEGERS,
    by_gdal,
    by_tifffile,
    convert,
    deck,
    equal,
    pixels,
    refused,
    write,
    write_plain,
)  # fmt: skip

BYTEWISE = ("none", "packbits", "lzw", "deflate", "zstd", "lzma", "lz4")
PREDICTED = ("lzw", "deflate", "zstd", "lzma", "lz4")
LERC = ("lerc", "lerc_deflate", "lerc_zstd")
LERC_TYPES = tuple(d for d in (*INTEGERS, "float32", "float64") if d not in ("uint64", "int64"))
J2K_TYPES = ("uint8", "int8", "uint16", "int16")
LEVELS = {"deflate": (1, 6, 9, 12), "zstd": (1, 9, 19), "lzma": (0, 6)}
# LZ4 and JPEG 2000 in TIFF are not read by this GDAL, LZ4 not by tifffile.
NOT_BY_GDAL = ("lz4", "jpeg2000")
NOT_BY_TIFFFILE = ("lz4",)

SIZES = ((1, 1), (33, 17), (513, 300), (700, 1100), (16, 16), (257, 1))
MAX_BYTES = 3 << 20
# For slow codecs and levels.
MAX_SLOW_BYTES = 800 << 10


@dataclass(frozen=True)
class Case:
    """One conversion."""

    codec: str
    dtype: str
    bands: int
    size: tuple[int, int]
    kind: str
    level: int | None
    predictor: str
    blocks: tuple[str, ...]
    interleave: str
    big_endian: bool
    big: bool
    sparse: bool
    source: str

    def options(self) -> list[object]:
        out: list[object] = ["--compress", self.codec, "--predictor", self.predictor, *self.blocks]
        out += ["--interleave", self.interleave, "--bigtiff", "yes" if self.big else "no"]
        if self.level is not None:
            out += ["--level", self.level]
        if self.big_endian:
            out.append("--big-endian")
        if self.sparse:
            out.append("--sparse")
        return out

    def __str__(self) -> str:
        width, height = self.size
        words = [self.codec, self.dtype, f"{self.bands}b", f"{width}x{height}", self.kind, f"p{self.predictor}"]
        words += ["".join(self.blocks).strip("-"), self.interleave]
        words += [f"l{self.level}"] if self.level is not None else []
        words += [name for name in ("big_endian", "big", "sparse") if getattr(self, name)]
        return "-".join([*words, self.source])


BLOCKS = (
    ("--tile", "16"), ("--tile", "32"), ("--tile", "64"), ("--tile", "128"), ("--tile", "256"), ("--tile", "512"),
    ("--tile", "48,16"), ("--tile", "128,64"), ("--strips", "0"), ("--strips", "1"), ("--strips", "7"),
    ("--strips", "64"), ("--strips", "100000"),
)  # fmt: skip


def predictors(codec: str, dtype: str) -> tuple[str, ...]:
    if codec not in PREDICTED or dtype in COMPLEX:
        return ("auto", "1")
    return ("auto", "1", "2", "3") if dtype in FLOATS else ("auto", "1", "2")


def cases() -> list[Case]:
    decks = {
        "bands": deck((1, 2, 3, 4, 5, 1), 1),
        "size": deck(SIZES, 2),
        "kind": deck(("noise", "smooth", "holes", "smooth"), 3),
        "blocks": deck(BLOCKS, 4),
        "interleave": deck(("pixel", "band"), 5),
        "big_endian": deck((False, True), 6),
        "big": deck((False, True), 7),
        "sparse": deck((False, False, True), 8),
        "source": deck(("tifffile", "gdal"), 9),
    }
    levels = {codec: deck(values, 10) for codec, values in LEVELS.items()}
    out = []
    for codec in (*BYTEWISE, *LERC, "jpeg2000"):
        types = J2K_TYPES if codec == "jpeg2000" else LERC_TYPES if codec in LERC else DTYPES
        for dtype in types:
            for predictor in predictors(codec, dtype):
                drawn = {name: next(cards) for name, cards in decks.items()}
                width, height = drawn["size"]
                item = np.dtype(dtype).itemsize
                level = next(levels[codec]) if codec in levels else None
                most = MAX_SLOW_BYTES if codec in ("lzma", "jpeg2000") or (level or 0) > 9 else MAX_BYTES
                if width * height * drawn["bands"] * item > most:
                    drawn["bands"] = max(1, most // (width * height * item))
                if width * height * drawn["bands"] * item > most:
                    drawn["size"] = width, height = (width, max(1, most // (width * item)))
                if drawn["blocks"][0] == "--tile" and int(drawn["blocks"][1].split(",")[0]) < 64:
                    # Thousands of tiles are slow to read one at a time, and test nothing more.
                    drawn["size"] = (min(width, 513), min(height, 150))
                if codec in LERC and dtype in FLOATS:
                    # No library stores these as they are, see test_lerc_floats_big_endian.
                    drawn["big_endian"] = False
                out.append(Case(codec=codec, dtype=dtype, predictor=predictor, level=level, **drawn))
    return out


CASES = cases()


def test_the_sample_covers_every_axis() -> None:
    for axis, wanted in (("bands", {1, 2, 3, 4, 5}), ("size", set(SIZES)), ("interleave", {"pixel", "band"}),
                         ("big_endian", {True, False}), ("big", {True, False}), ("sparse", {True, False}),
                         ("blocks", set(BLOCKS)), ("source", {"tifffile", "gdal"})):  # fmt: skip
        assert wanted <= {getattr(case, axis) for case in CASES}, axis
    pairs = {(case.codec, case.level) for case in CASES}
    assert {(codec, level) for codec, levels in LEVELS.items() for level in levels} <= pairs


def check_layout(swath: Swath, path: Path, case: Case) -> None:
    """Checks that `swath info` and tifffile find what was requested."""
    info = swath.info(path)
    # GDAL's name of JPEG 2000 in TIFF; LZ4 has none anywhere.
    names = {"jpeg2000": "jp2000", "lz4": "50004"}
    assert (info["compress"] or "none").lower() in (case.codec, names.get(case.codec))
    assert info["byte_order"] == ("big" if case.big_endian else "little")
    assert info["bigtiff"] is case.big
    assert info["tiled"] is (case.blocks[0] == "--tile")
    if case.bands > 1:
        assert info["interleave"] == case.interleave
    predictors = {
        "auto": {1, 2, 3} if case.dtype in FLOATS else {1} if case.dtype in COMPLEX else {1, 2},
        "type": {3} if case.dtype in FLOATS else {1} if case.dtype in COMPLEX else {2},
    }.get(case.predictor) or {int(case.predictor)}
    assert info["predictor"] in (predictors if case.codec in PREDICTED else {1})
    if case.blocks[0] == "--tile":
        across, *down = map(int, case.blocks[1].split(","))
        assert (info["blockxsize"], info["blockysize"]) == (across, down[0] if down else across)
    else:
        rows = int(case.blocks[1])
        assert info["blockysize"] == min(rows, case.size[1]) or rows == 0
    assert not info["problems"], info["problems"]
    with tifffile.TiffFile(path) as tiff:
        assert tiff.byteorder == (">" if case.big_endian else "<")
        assert tiff.is_bigtiff is case.big
        assert len(tiff.pages) == 1


@pytest.mark.parametrize("case", CASES, ids=map(str, CASES))
def test_lossless(swath: Swath, folder: Path, case: Case) -> None:
    width, height = case.size
    array = pixels((case.bands, height, width), case.dtype, zlib.crc32(str(case).encode()), case.kind)
    source, target = folder / "source.tif", folder / "target.tif"
    if case.source == "gdal":
        write(source, array, photometric="minisblack", interleave="band", compress="lzw")
    else:
        write_plain(source, array)
    convert(swath, source, target, *case.options())
    equal(swath.dump(target), array, "swath")
    if case.codec not in NOT_BY_GDAL:
        equal(by_gdal(target), array, "GDAL")
    if case.codec not in NOT_BY_TIFFFILE:
        equal(by_tifffile(target, array.shape), array, "tifffile")
    check_layout(swath, target, case)


# ------------------------------------------------------------------------------------------------------- bits and types


def complex_integers(path: Path, kind: str, bands: int = 2) -> Path:
    """Complex integers, which neither rasterio nor tifffile write: GDAL's own tool does."""
    source = write(path.with_suffix(".src.tif"), pixels((bands, 60, 50), "complex64", 3))
    command = ["/usr/bin/gdal_translate", "-q", "-ot", kind, str(source), str(path)]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("there is no gdal_translate to write complex integers with")
    return path


@pytest.mark.parametrize("kind", ["CInt16", "CInt32"])
@pytest.mark.parametrize("codec", BYTEWISE)
@pytest.mark.parametrize("interleave", ["pixel", "band"])
def test_complex_integers(swath: Swath, folder: Path, kind: str, codec: str, interleave: str) -> None:
    source = complex_integers(folder / "c.tif", kind)
    target = folder / "t.tif"
    convert(swath, source, target, "--compress", codec, "--interleave", interleave, "--tile", 32)
    equal(swath.dump(target), swath.dump(source), "swath")
    assert swath.info(target)["dtype"] == f"complex_{kind[1:].lower()}"
    if codec not in NOT_BY_GDAL:
        with rasterio.open(source) as want, rasterio.open(target) as got:
            assert got.dtypes == want.dtypes
            equal(got.read(), want.read(), "GDAL")


BITS = {"uint8": (1, 2, 3, 4, 5, 6, 7), "uint16": (9, 12, 15), "uint32": (17, 20, 31)}


@pytest.mark.parametrize(("dtype", "bits"), [(dtype, bits) for dtype, all_bits in BITS.items() for bits in all_bits])
@pytest.mark.parametrize("codec", [*BYTEWISE])
def test_bits(swath: Swath, folder: Path, dtype: str, bits: int, codec: str) -> None:
    """NBITS as an option and from the source; GDAL and tifffile unpack the samples that swath packed."""
    bands = 1 + (bits * len(codec)) % 3
    array = pixels((bands, 45, 131), dtype, bits, "noise") & np.array((1 << bits) - 1, dtype)
    source = write_plain(folder / "s.tif", array)
    first, second = folder / "a.tif", folder / "b.tif"
    interleave = ("pixel", "band")[bits % 2]
    order = ["--big-endian"] if bits % 3 == 0 else []
    blocks = ["--tile", 32] if bits % 4 < 2 else ["--strips", 8]
    convert(swath, source, first, "--nbits", bits, "--compress", codec, "--interleave", interleave, *blocks, *order)
    convert(swath, first, second, "--compress", "lzw", "--big-endian")
    for path, compress in ((first, codec), (second, "lzw")):
        equal(swath.dump(path), array, f"swath, {path.name}")
        assert swath.info(path)["ifds"][0]["bits"] == bits
        if compress not in NOT_BY_GDAL:
            with rasterio.open(path) as dataset:
                equal(dataset.read(), array, f"GDAL, {path.name}")
                assert int(dataset.tags(1, ns="IMAGE_STRUCTURE").get("NBITS", 0)) == bits
    # tifffile unpacks 1, 2, 4 and whole bytes only in some layouts; one band always works.
    if bands == 1 and bits in (1, 2, 4) and codec not in NOT_BY_TIFFFILE:
        equal(by_tifffile(first, array.shape).astype(dtype), array, "tifffile")


@pytest.mark.parametrize("bits", [4, 12])
def test_values_over_nbits(swath: Swath, folder: Path, bits: int) -> None:
    """GDAL clamps values that do not fit into the bits; wrapped values would be wrong."""
    dtype = "uint8" if bits < 8 else "uint16"
    array = np.arange(0, 1 << (bits + 2), dtype=dtype).reshape(1, -1, 32)
    source = write_plain(folder / "s.tif", array)
    run = swath.run("convert", source, folder / "t.tif", "--nbits", bits)
    run.check_alive()
    if run.ok:
        want = by_gdal(write(folder / "g.tif", array, NBITS=bits))
        equal(swath.dump(folder / "t.tif"), want, "against GDAL")


@pytest.mark.parametrize("codec", ["ccittrle", "ccittfax3", "ccittfax4"])
@pytest.mark.parametrize("white", [False, True], ids=["black", "white"])
@pytest.mark.parametrize("blocks", [("--tile", "64"), ("--strips", "0"), ("--strips", "10"), ("--strips", "1000")],
                         ids=["tile", "strip", "strip10", "whole"])  # fmt: skip
@pytest.mark.parametrize("size", [(1, 1), (33, 17), (513, 300), (2600, 3)], ids=str)
def test_fax(
    swath: Swath, folder: Path, codec: str, white: bool, blocks: tuple[str, str], size: tuple[int, int]
) -> None:
    width, height = size
    y, x = np.mgrid[0:height, 0:width]
    array = (((x // 7 + y // 5) % 2) ^ (pixels((1, height, width), "uint8", 4, "noise")[0] > 250))[None].astype("u1")
    array[0, height // 2 :, :] &= y[height // 2 :, :] % 2 == 0
    source = write(folder / "s.tif", array, NBITS=1, **({"photometric": "miniswhite"} if white else {}))
    target = folder / "t.tif"
    convert(swath, source, target, "--compress", codec, *blocks)
    equal(swath.dump(target), array, "swath")
    equal(by_gdal(target), array, "GDAL")
    assert swath.info(target)["photometric"] == ("white" if white else "black")


# -------------------------------------------------------------------------------------------------------- what is lossy


@pytest.mark.parametrize("codec", LERC)
@pytest.mark.parametrize("dtype", LERC_TYPES)
@pytest.mark.parametrize("error", [0.01, 0.5, 3.0])
def test_lerc_within_its_error(swath: Swath, folder: Path, codec: str, dtype: str, error: float) -> None:
    array = pixels((2, 150, 170), dtype, 5)
    source, target = write_plain(folder / "s.tif", array), folder / "t.tif"
    convert(swath, source, target, "--compress", codec, "--max-z-error", error, "--tile", 64)
    got = swath.dump(target)
    # Floats of 32 bits near 1000 are 6e-5 apart: the library's error is that of the float it rounds to.
    assert np.abs(got.astype("f8") - array.astype("f8")).max() <= error + (1e-4 if dtype == "float32" else 1e-9)
    equal(by_gdal(target), got, "GDAL")
    equal(by_tifffile(target, array.shape), got, "tifffile")
    with rasterio.open(target) as dataset:
        assert dataset.tags(ns="IMAGE_STRUCTURE")["COMPRESSION"] == codec.upper()


@pytest.mark.parametrize("codec", LERC)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_lerc_floats_big_endian(swath: Swath, folder: Path, codec: str, dtype: str) -> None:
    """libtiff encodes swapped bytes, some of which are NaN to LERC and lost: swath refuses, or gets it right."""
    array = pixels((1, 100, 500), dtype, 3)
    source, target = write_plain(folder / "s.tif", array), folder / "t.tif"
    run = swath.run("convert", source, target, "--compress", codec, "--big-endian")
    if run.code == 2:
        run.check_refusal()
        return
    equal(swath.dump(target), array, "swath")
    equal(by_gdal(target), array, "GDAL")


@pytest.mark.parametrize("codec", LERC)
def test_lerc_keeps_nan(swath: Swath, folder: Path, codec: str) -> None:
    array = pixels((2, 90, 70), "float32", 5)
    array[:, 20:50, 10:33] = np.nan
    array[0, 70:80] = np.inf
    for nodata in (None, np.nan):
        for interleave in ("pixel", "band"):
            source, target = write(folder / "s.tif", array, nodata=nodata), folder / "t.tif"
            convert(swath, source, target, "--compress", codec, "--tile", 32, "--interleave", interleave)
            assert np.array_equal(swath.dump(target), array, equal_nan=True), "swath"
            assert np.array_equal(by_gdal(target), array, equal_nan=True), "GDAL"


def jpeg_source(folder: Path, bands: int, size: tuple[int, int] = (333, 257)) -> tuple[Path, np.ndarray]:
    width, height = size
    array = pixels((bands, height, width), "uint8", bands)
    return write_plain(folder / "s.tif", array), array


JPEG_KINDS = {
    "gray": (1, ()), "rgb": (3, ("--photometric", "rgb")), "ycbcr420": (3, ("--photometric", "ycbcr")),
    "ycbcr422": (3, ("--photometric", "ycbcr", "--subsampling", "422")),
    "ycbcr444": (3, ("--photometric", "ycbcr", "--subsampling", "444")),
    "two": (2, ()), "four": (4, ()), "band": (3, ("--interleave", "band")), "five-band": (5, ("--interleave", "band")),
}  # fmt: skip


@pytest.mark.parametrize("kind", JPEG_KINDS)
@pytest.mark.parametrize("quality", [None, 30, 75, 95])
@pytest.mark.parametrize("blocks", [("--tile", "128"), ("--tile", "16"), ("--strips", "0"), ("--strips", "32")],
                         ids=["tile", "tile16", "strip", "strip32"])  # fmt: skip
def test_jpeg(swath: Swath, folder: Path, kind: str, quality: int | None, blocks: tuple[str, str]) -> None:
    """As near to the source as GDAL's own JPEG of the same quality, and decoded by GDAL as by us."""
    bands, options = JPEG_KINDS[kind]
    source, array = jpeg_source(folder, bands)
    target = folder / "t.tif"
    convert(swath, source, target, "--compress", "jpeg", *options, *blocks,
            *(("--quality", quality) if quality else ()))  # fmt: skip
    got, want = swath.dump(target), by_gdal(target)
    gap = np.abs(got.astype(int) - want)
    assert gap.max() <= 4 and gap.mean() <= 0.5, f"GDAL decodes {gap.max()}, {gap.mean():.3f} away from us"
    profile: dict[str, Any] = {"compress": "jpeg", "JPEG_QUALITY": quality or 75, "tiled": True, "blockxsize": 128,
                               "blockysize": 128, "interleave": "band" if "band" in kind else "pixel"}  # fmt: skip
    profile["photometric"] = "ycbcr" if kind.startswith("ycbcr") else "rgb" if kind == "rgb" else "minisblack"
    theirs = by_gdal(write(folder / "g.tif", array, **profile)).astype(int) - array
    mine = want.astype(int) - array
    assert np.sqrt((mine**2).mean()) <= np.sqrt((theirs**2).mean()) * 1.1 + 0.2
    with rasterio.open(target) as dataset:
        structure = dataset.tags(ns="IMAGE_STRUCTURE")
        assert ("YCbCr" in structure["COMPRESSION"]) == kind.startswith("ycbcr")
    if bands in (1, 3) and "band" not in kind:
        close = np.abs(by_tifffile(target, array.shape).astype(int) - got)
        assert close.max() <= 6 and close.mean() <= 0.6, "tifffile"


def test_jpeg_quality_orders_size_and_error(swath: Swath, folder: Path) -> None:
    source, array = jpeg_source(folder, 3)
    sizes, errors = [], []
    for quality in (10, 40, 75, 90, 100):
        target = folder / f"{quality}.tif"
        convert(swath, source, target, "--compress", "jpeg", "--quality", quality)
        sizes.append(target.stat().st_size)
        errors.append(np.abs(by_gdal(target).astype(int) - array).mean())
    assert sizes == sorted(sizes)
    assert errors == sorted(errors, reverse=True)


def test_jpeg_of_12_bits(swath: Swath, folder: Path) -> None:
    array = pixels((1, 130, 140), "uint16", 3, "smooth") >> 4
    source, target = write_plain(folder / "s.tif", array), folder / "t.tif"
    convert(swath, source, target, "--compress", "jpeg", "--nbits", 12, "--quality", 95)
    got = swath.dump(target)
    assert np.abs(got.astype(int) - array).max() <= 100
    # Both readers of these tests have 12 bits; another build of GDAL may not.
    assert np.abs(by_tifffile(target, array.shape).astype(int) - got).max() <= 4
    assert np.abs(by_gdal(target).astype(int) - got).max() <= 4


@pytest.mark.parametrize("bands", [3, 4])
@pytest.mark.parametrize("quality", [None, 20, 75, 100])
@pytest.mark.parametrize("blocks", [("--tile", "64"), ("--strips", "0"), ("--tile", "512")], ids="-".join)
def test_webp(swath: Swath, folder: Path, bands: int, quality: int | None, blocks: tuple[str, str]) -> None:
    source, array = jpeg_source(folder, bands)
    if bands == 4:
        array[3] = 255
        array[3, 40:90, 30:200] = 0
        write_plain(source, array)
    target = folder / "t.tif"
    convert(swath, source, target, "--compress", "webp", *blocks, *(("--quality", quality) if quality else ()))
    got = swath.dump(target)
    equal(by_gdal(target), got, "GDAL")
    equal(by_tifffile(target, array.shape), got, "tifffile")
    if quality is None:
        equal(got, array, "lossless")
    else:
        seen = np.broadcast_to(array[3] > 0, array.shape) if bands == 4 else np.ones(array.shape, bool)
        assert np.abs(got.astype(int) - array)[seen].mean() <= {20: 8, 75: 5, 100: 2}[quality]


@pytest.mark.parametrize("dtype", J2K_TYPES)
@pytest.mark.parametrize("bands", [1, 3, 4])
def test_jpeg2000_lossy(swath: Swath, folder: Path, dtype: str, bands: int) -> None:
    array = pixels((bands, 200, 210), dtype, bands)
    source = write_plain(folder / "s.tif", array)
    sizes = []
    for quality in (25, 90):
        target = folder / f"{quality}.tif"
        convert(swath, source, target, "--compress", "jpeg2000", "--quality", quality, "--tile", 128)
        got = swath.dump(target)
        # Floating-point wavelets: versions of the decoder round a few samples the other way.
        assert np.abs(by_tifffile(target, array.shape).astype(int) - got).max() <= array.itemsize, "tifffile"
        assert np.abs(got.astype(int) - array).mean() <= 2 ** (8 * array.itemsize) / 20
        sizes.append(target.stat().st_size)
    assert sizes[0] < sizes[1] < array.nbytes


# ----------------------------------------------------------------------------------------- palette, alpha, mask, colour


@pytest.mark.parametrize("codec", ["none", "packbits", "lzw", "deflate", "zstd", "lzma", "lerc"])
@pytest.mark.parametrize(("dtype", "bits"), [("uint8", 8), ("uint8", 4), ("uint8", 1), ("uint16", 16)])
@pytest.mark.parametrize("cog", [False, True], ids=["tiff", "cog"])
def test_palette(swath: Swath, folder: Path, codec: str, dtype: str, bits: int, cog: bool) -> None:
    if codec == "lerc" and bits < 8:
        pytest.skip("LERC has whole samples")
    top = 1 << min(bits, 8)
    colors = {i: (i * 7 % 256, i * 13 % 256, 255 - i % 256, 255) for i in range(top)}
    array = (pixels((1, 150, 700), "uint8", 2, "noise").astype("int") % top).astype(dtype)
    source = folder / "s.tif"
    profile = {"NBITS": bits} if bits < 8 else {}
    with rasterio.open(source, "w", driver="GTiff", dtype=dtype, count=1, height=150, width=700,
                       photometric="palette", **profile) as out:  # fmt: skip
        out.write(array)
        out.write_colormap(1, colors)
    target = folder / "t.tif"
    convert(swath, source, target, "--compress", codec, *(["--cog"] if cog else []))
    equal(swath.dump(target), array, "swath")
    equal(by_gdal(target), array, "GDAL")
    with rasterio.open(source) as want, rasterio.open(target) as got:
        assert got.colorinterp == (ColorInterp.palette,)
        assert got.colormap(1) == want.colormap(1)
    if cog:
        with rasterio.open(target, overview_level=0) as got:
            assert got.colorinterp == (ColorInterp.palette,)
            assert set(np.unique(got.read())) <= set(np.unique(array))


@pytest.mark.parametrize("codec", ["none", "deflate", "zstd", "lzw", "lerc", "lerc_zstd", "jpeg", "webp", "jpeg2000"])
@pytest.mark.parametrize("bands", [1, 3])
@pytest.mark.parametrize("interleave", ["pixel", "band"])
@pytest.mark.parametrize("cog", [False, True], ids=["tiff", "cog"])
def test_mask(swath: Swath, folder: Path, codec: str, bands: int, interleave: str, cog: bool) -> None:
    if codec == "webp" and (bands == 1 or interleave == "band"):
        pytest.skip("WebP has three bands together")
    array = pixels((bands, 600, 500), "uint8", 2)
    mask = np.full((600, 500), 255, "u1")
    mask[100:333, 40:77] = 0
    mask[599, 499] = 0
    source = write(folder / "s.tif", array, mask)
    target = folder / "t.tif"
    options = ["--compress", codec, "--interleave", interleave, *(["--cog"] if cog else [])]
    convert(swath, source, target, *options, "--tile", 256)
    assert same(swath.dump(target, mask=True), mask[None])
    if codec not in ("jpeg",):
        equal(swath.dump(target), array, "swath")
    if codec in NOT_BY_GDAL:
        return
    with rasterio.open(target) as dataset:
        assert np.array_equal(dataset.dataset_mask(), mask)
        assert dataset.mask_flag_enums[0] == [rasterio.enums.MaskFlags.per_dataset]
        if codec not in ("jpeg",):
            equal(dataset.read(), array, "GDAL")
        assert len(dataset.overviews(1)) == (2 if cog else 0)


@pytest.mark.parametrize(
    ("bands", "premultiplied"),
    [(2, False), (4, False), (5, False), (2, True), (4, True), (5, True)],
)
@pytest.mark.parametrize("dtype", ["uint8", "uint16", "float32"])
@pytest.mark.parametrize("interleave", ["pixel", "band"])
def test_alpha(swath: Swath, folder: Path, bands: int, dtype: str, interleave: str, premultiplied: bool) -> None:
    array = pixels((bands, 100, 120), dtype, 2)
    source, target = folder / "s.tif", folder / "t.tif"
    colors = [ColorInterp.gray] if bands == 2 else [ColorInterp.red, ColorInterp.green, ColorInterp.blue]
    colors += [ColorInterp.undefined] * (bands - len(colors) - 1) + [ColorInterp.alpha]
    photometric = "minisblack" if bands == 2 else "rgb"
    with rasterio.open(source, "w", driver="GTiff", dtype=dtype, count=bands, height=100, width=120,
                       photometric=photometric, alpha="premultiplied" if premultiplied else "yes") as out:  # fmt: skip
        out.write(array)
        out.colorinterp = colors
    convert(swath, source, target, "--interleave", interleave, "--compress", "zstd")
    with rasterio.open(source) as want, rasterio.open(target) as got:
        assert got.colorinterp == want.colorinterp
        assert got.mask_flag_enums == want.mask_flag_enums
        equal(got.read(), array, "GDAL")
        equal(got.dataset_mask(), want.dataset_mask(), "mask")
        key = "ALPHA"
        assert got.tags(bands, ns="IMAGE_STRUCTURE").get(key) == want.tags(bands, ns="IMAGE_STRUCTURE").get(key)
    # Also in the image's own tags, not only in GDAL's extra item.
    with tifffile.TiffFile(target) as tiff, tifffile.TiffFile(source) as before:
        assert tiff.pages[0].extrasamples == before.pages[0].extrasamples
        assert tiff.pages[0].photometric == before.pages[0].photometric


@pytest.mark.parametrize("dtype", ["uint8", "uint16"])
def test_miniswhite_is_kept_or_made(swath: Swath, folder: Path, dtype: str) -> None:
    array = pixels((1, 40, 50), dtype, 2)
    source = write(folder / "s.tif", array, photometric="miniswhite")
    target = folder / "t.tif"
    convert(swath, source, target)
    assert swath.info(target)["photometric"] == "white"
    with tifffile.TiffFile(target) as tiff:
        assert tiff.pages[0].photometric == 0
    equal(by_gdal(target), by_gdal(source), "GDAL")
    equal(swath.dump(target), swath.dump(source), "swath")
    plain = write_plain(folder / "p.tif", array)
    convert(swath, plain, target, "--photometric", "miniswhite")
    equal(by_gdal(target), array, "GDAL")
    with tifffile.TiffFile(target) as tiff:
        assert tiff.pages[0].photometric == 0


def test_cmyk(swath: Swath, folder: Path) -> None:
    array = pixels((4, 40, 50), "uint8", 2)
    source = write(folder / "s.tif", array, photometric="cmyk", interleave="pixel")
    convert(swath, source, folder / "t.tif", "--compress", "lzw")
    with rasterio.open(source) as want, rasterio.open(folder / "t.tif") as got:
        equal(got.read(), want.read(), "GDAL")
        assert got.colorinterp == want.colorinterp


# --------------------------------------------------------------------------------------------------------------- sparse


@pytest.mark.parametrize("nodata", [None, 0, 7])
@pytest.mark.parametrize("codec", ["none", "deflate", "zstd", "lerc"])
@pytest.mark.parametrize("cog", [False, True], ids=["tiff", "cog"])
def test_sparse_tiles_are_left_out(swath: Swath, folder: Path, nodata: int | None, codec: str, cog: bool) -> None:
    array = pixels((2, 512, 512), "uint16", 1) + 1
    array[:, :256, :256] = nodata or 0
    array[0, 256:, :256] = nodata or 0
    source = write(folder / "s.tif", array, nodata=nodata)
    target = folder / "t.tif"
    options = ["--sparse", "--compress", codec, "--tile", 128, "--interleave", "band", *(["--cog"] if cog else [])]
    convert(swath, source, target, *options)
    equal(swath.dump(target), array, "swath")
    equal(by_gdal(target), array, "GDAL")
    with tifffile.TiffFile(target) as tiff:
        counts = np.array(tiff.pages[0].databytecounts).reshape(2, 4, 4)
        offsets = np.array(tiff.pages[0].dataoffsets).reshape(2, 4, 4)
    empty = np.zeros((2, 4, 4), bool)
    empty[:, :2, :2] = True
    empty[0, 2:, :2] = True
    assert np.array_equal(counts == 0, empty)
    assert np.array_equal(offsets == 0, empty)
    # Without it every tile is there.
    convert(swath, source, target, *options[1:])
    with tifffile.TiffFile(target) as tiff:
        assert min(tiff.pages[0].databytecounts) > 0


# ------------------------------------------------------------------------------------------------------------- refusals

FORBIDDEN: dict[str, tuple[str, int, tuple[object, ...], str]] = {
    "jpeg-int8": ("int8", 1, ("--compress", "jpeg"), "int8"),
    "jpeg-uint16": ("uint16", 1, ("--compress", "jpeg"), "uint16"),
    "jpeg-float32": ("float32", 1, ("--compress", "jpeg"), "float32"),
    "jpeg-5-bands": ("uint8", 5, ("--compress", "jpeg"), "5"),
    "jpeg-strips-of-5": ("uint8", 1, ("--compress", "jpeg", "--strips", 5), "16"),
    "jpeg-predictor": ("uint8", 1, ("--compress", "jpeg", "--predictor", 2), "predictor"),
    "webp-1-band": ("uint8", 1, ("--compress", "webp"), "webp"),
    "webp-5-bands": ("uint8", 5, ("--compress", "webp"), "5"),
    "webp-uint16": ("uint16", 3, ("--compress", "webp"), "uint16"),
    "webp-band": ("uint8", 3, ("--compress", "webp", "--interleave", "band"), "webp"),
    "lerc-int64": ("int64", 1, ("--compress", "lerc"), "int64"),
    "lerc-uint64": ("uint64", 1, ("--compress", "lerc_zstd"), "uint64"),
    "lerc-float16": ("float16", 1, ("--compress", "lerc"), "float16"),
    "lerc-complex64": ("complex64", 1, ("--compress", "lerc_deflate"), "complex64"),
    "lerc-predictor": ("float32", 1, ("--compress", "lerc", "--predictor", 3), "predictor"),
    "lerc-negative-error": ("float32", 1, ("--compress", "lerc", "--max-z-error=-1"), "error"),
    "lerc-nan-error": ("float32", 1, ("--compress", "lerc", "--max-z-error", "nan"), "error"),
    "lerc-nbits": ("uint8", 1, ("--compress", "lerc", "--nbits", 4), "bits"),
    "jpeg2000-float32": ("float32", 1, ("--compress", "jpeg2000"), "float32"),
    "jpeg2000-uint32": ("uint32", 1, ("--compress", "jpeg2000"), "uint32"),
    "jpeg2000-predictor": ("uint8", 1, ("--compress", "jpeg2000", "--predictor", 2), "predictor"),
    "fax4-uint8": ("uint8", 1, ("--compress", "ccittfax4"), "bits"),
    "fax4-2-bands": ("uint8", 2, ("--compress", "ccittfax4", "--nbits", 1), "2"),
    "fax3-float": ("float32", 1, ("--compress", "ccittfax3"), "bits"),
    "none-predictor": ("uint8", 1, ("--compress", "none", "--predictor", 2), "predictor"),
    "packbits-predictor": ("uint8", 1, ("--compress", "packbits", "--predictor", 2), "predictor"),
    "predictor-3-integer": ("int32", 1, ("--predictor", 3), "predictor 3"),
    "predictor-2-complex": ("complex64", 1, ("--predictor", 2), "predictor 2"),
    "predictor-3-complex": ("complex128", 1, ("--predictor", 3), "predictor 3"),
    "predictor-2-nbits": ("uint8", 1, ("--predictor", 2, "--nbits", 4), "bits"),
    "predictor-9": ("uint8", 1, ("--predictor", 9), "predictor"),
    "nbits-0": ("uint8", 1, ("--nbits", 0), "bits"),
    "nbits-9-uint8": ("uint8", 1, ("--nbits", 9), "bits"),
    "nbits-8-uint16": ("uint16", 1, ("--nbits", 8), "bits"),
    "nbits-33": ("uint32", 1, ("--nbits", 33), "bits"),
    "nbits-float": ("float32", 1, ("--nbits", 12), "bits"),
    "nbits-signed": ("int16", 1, ("--nbits", 12), "bits"),
    "tile-0": ("uint8", 1, ("--tile", 0), "16"),
    "tile-17": ("uint8", 1, ("--tile", 17), "16"),
    "tile-16x20": ("uint8", 1, ("--tile", "16,20"), "16"),
    "tile-negative": ("uint8", 1, ("--tile=-16",), "tile"),
    "tile-huge": ("uint8", 1, ("--tile", 1 << 31), "tile"),
    "tile-words": ("uint8", 1, ("--tile", "big"), "tile"),
    "cog-strips": ("uint8", 1, ("--cog", "--strips", 16), "strips"),
    "deflate-level-0": ("uint8", 1, ("--level", 0), "level"),
    "deflate-level-13": ("uint8", 1, ("--level", 13), "level"),
    "zstd-level-23": ("uint8", 1, ("--compress", "zstd", "--level", 23), "level"),
    "lzma-level-10": ("uint8", 1, ("--compress", "lzma", "--level", 10), "level"),
    "jpeg-quality-0": ("uint8", 1, ("--compress", "jpeg", "--quality", 0), "quality"),
    "jpeg-quality-101": ("uint8", 1, ("--compress", "jpeg", "--quality", 101), "quality"),
    "webp-quality-101": ("uint8", 3, ("--compress", "webp", "--quality", 101), "quality"),
    "j2k-quality-0": ("uint8", 1, ("--compress", "jpeg2000", "--quality", 0), "quality"),
    "no-such-codec": ("uint8", 1, ("--compress", "rar"), "rar"),
    "ycbcr-without-jpeg": ("uint8", 3, ("--photometric", "ycbcr"), "ycbcr"),
    "ycbcr-1-band": ("uint8", 1, ("--photometric", "ycbcr", "--compress", "jpeg"), "ycbcr"),
    "rgb-1-band": ("uint8", 1, ("--photometric", "rgb"), "rgb"),
    "palette-without-colours": ("uint8", 1, ("--photometric", "palette"), "palette"),
    "palette-float": ("float32", 1, ("--photometric", "palette"), "palette"),
    "cmyk-3-bands": ("uint8", 3, ("--photometric", "cmyk"), "bands"),
    "no-such-photometric": ("uint8", 1, ("--photometric", "purple"), "purple"),
    "subsampling": ("uint8", 3, ("--compress", "jpeg", "--subsampling", "411"), "411"),
    "interleave": ("uint8", 3, ("--interleave", "line"), "line"),
    "bigtiff": ("uint8", 1, ("--bigtiff", "maybe"), "maybe"),
    "statistics": ("uint8", 1, ("--statistics", "perhaps"), "perhaps"),
    "resampling": ("uint8", 1, ("--cog", "--resampling", "guess"), "guess"),
    "overviews-words": ("uint8", 1, ("--overviews", "some"), "overviews"),
    "overviews-3,5": ("uint8", 1, ("--overviews", "3,5"), "3,5"),
    "overviews-falling": ("uint8", 1, ("--overviews", "4,2"), "4,2"),
    "overviews-1": ("uint8", 1, ("--overviews", "1,2"), "1,2"),
    "memory": ("uint8", 1, ("--max-memory", "lots"), "lots"),
    "threads": ("uint8", 1, ("--threads", "many"), "many"),
}  # fmt: skip


@pytest.mark.parametrize("name", FORBIDDEN)
def test_forbidden(swath: Swath, folder: Path, name: str) -> None:
    dtype, bands, options, word = FORBIDDEN[name]
    source = write_plain(folder / "s.tif", pixels((bands, 40, 50), dtype))
    message = refused(swath, source, folder / "t.tif", *options)
    assert word.lower() in message.lower(), message


@pytest.mark.parametrize("name", ["jpeg-uint16", "tile-17", "predictor-3-integer"])
def test_a_refusal_leaves_what_was_there(swath: Swath, folder: Path, name: str) -> None:
    dtype, bands, options, _ = FORBIDDEN[name]
    source = write_plain(folder / "s.tif", pixels((bands, 40, 50), dtype))
    target = folder / "t.tif"
    target.write_bytes(b"something precious")
    refused(swath, source, target, *options)
    assert target.read_bytes() == b"something precious"
