"""`swath validate` against rio-cogeo, sentence by sentence, and against damage done on purpose."""

from __future__ import annotations

import csv
import json
import shutil
import struct
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
from harness import BASE_MEMORY, CORPUS, SHARED_CORPUS, UNDER_CI, Swath
from rasterio.enums import Resampling
from rasterio.shutil import copy
from rio_cogeo.cogeo import cog_validate

warnings.filterwarnings("ignore", category=rasterio.errors.NotGeoreferencedWarning)

Verdict = tuple[bool, list[str], list[str]]

# Files of the shared corpus with different results from the two, and why that is right.
EXPLAINED: dict[str, str] = {
    "BitMiracle-libtiff.net/TestCase/color64-lzw-mac.tif": (
        "its overviews hang off the first image as one chain of SubIFDs: swath follows the chain and sees three, GDAL "
        "takes the first of it only"
    ),
    "OSGeo-gdal/autotest/gcore/data/gtiff/ossfuzz_470691578.tif": (
        "swath does not open it: the lengths of its tiles have no known type"
    ),
    "OSGeo-gdal/autotest/gcore/data/leak-ZIPSetupDecode.tif": "swath does not open it: its predictor does not exist",
    "python-pillow-Pillow/Tests/images/crash-86214e58da443d2b80820cff9677a38a33dcbbca.tif": (
        "swath does not open it: its JPEG tables lie beyond the end of the file"
    ),
    "python-pillow-Pillow/Tests/images/libtiff_segfault.tif": (
        "swath does not open it: 262 bytes that declare a strip of 160 GiB are over its limits"
    ),
}
# rio-cogeo asks GDAL for one block after the other until one has bytes: forever, with millions of empty ones.
MAX_BLOCKS = 100_000


def validate(swath: Swath, path: Path, *options: str) -> dict[str, Any]:
    run = swath.run("validate", path, "--json", *options)
    run.check_alive()
    assert run.peak <= BASE_MEMORY, f"peak memory {run.peak:,}"
    assert run.code in (0, 1), run.stderr
    document = json.loads(run.stdout)
    assert document["valid"] == (run.code == 0)
    return document


def ours(swath: Swath, path: Path) -> Verdict:
    document = validate(swath, path)
    return document["valid"], document["errors"], document["warnings"]


def theirs(path: Path) -> Verdict:
    valid, errors, found = cog_validate(path, quiet=True)
    return valid, errors, found


def pixels(width: int = 1300, height: int = 1100, bands: int = 3, dtype: str = "uint8") -> np.ndarray:
    y, x = np.mgrid[0:height, 0:width]
    return np.stack([((x * (band + 1)) ^ (y + band)) % 251 for band in range(bands)]).astype(dtype)


def write(path: Path, array: np.ndarray, mask: bool = False, **options: Any) -> Path:
    bands, height, width = array.shape
    profile = {"driver": "GTiff", "dtype": array.dtype, "count": bands, "height": height, "width": width, **options}
    with rasterio.Env(GDAL_TIFF_INTERNAL_MASK=True), rasterio.open(path, "w", **profile) as out:
        out.write(array)
        if mask:
            out.write_mask(array[0] > 100)
    return path


def cog(path: Path, array: np.ndarray | None = None, mask: bool = False, **options: Any) -> Path:
    source = write(path.with_suffix(".source.tif"), pixels() if array is None else array, mask=mask)
    copy(source, path, driver="COG", **{"compress": "deflate", "blocksize": 256, **options})
    source.unlink()
    return path


def build(path: Path, *levels: int, external: bool = False) -> Path:
    if external:
        with rasterio.Env(TIFF_USE_OVR=True), rasterio.open(path, "r+") as dataset:
            dataset.build_overviews(list(levels), Resampling.nearest)
    else:
        with rasterio.open(path, "r+") as dataset:
            dataset.build_overviews(list(levels), Resampling.nearest)
    return path


def tiled(path: Path, **options: Any) -> Path:
    return write(path, pixels(), **{"tiled": True, "blockxsize": 256, "blockysize": 256, **options})


def edited(path: Path) -> Path:
    """A COG changed later, which GDAL notes in the ghost area."""
    cog(path)
    with rasterio.Env(IGNORE_COG_LAYOUT_BREAK="YES"), rasterio.open(path, "r+", IGNORE_COG_LAYOUT_BREAK="YES") as out:
        out.write(pixels()[:, ::-1])
        out.update_tags(edited="yes")
    return path


def both(path: Path) -> Path:
    """Overviews inside the file and in a side file."""
    cog(path)
    other = build(tiled(path.with_name("other.tif")), 2, external=True)
    shutil.move(f"{other}.ovr", f"{path}.ovr")
    return path


def sparse(path: Path) -> Path:
    array = pixels(1024, 1024, 1)
    array[:, :700] = 0
    return cog(path, array, sparse_ok="YES")


def itself(path: Path) -> Path:
    """An `.ovr` file by itself."""
    build(tiled(path), 2, 4, external=True)
    return Path(f"{path}.ovr")


# Whether rio-cogeo should find the file valid.
FILES: dict[str, tuple[Callable[[Path], Path], bool]] = {
    "cog": (cog, True),
    "cog-mask": (lambda path: cog(path, mask=True), True),
    "cog-mask-band": (lambda path: cog(path, mask=True, interleave="BAND"), True),
    "cog-band": (lambda path: cog(path, interleave="BAND"), True),
    "cog-tile": (lambda path: cog(path, interleave="TILE"), True),
    "cog-bigtiff": (lambda path: cog(path, bigtiff="YES"), True),
    "cog-bigtiff-mask": (lambda path: cog(path, bigtiff="YES", mask=True), True),
    "cog-lzw": (lambda path: cog(path, compress="lzw", predictor="YES"), True),
    "cog-zstd": (lambda path: cog(path, pixels(dtype="float32"), compress="zstd", predictor="YES"), True),
    "cog-jpeg": (lambda path: cog(path, compress="jpeg"), True),
    "cog-jpeg-mask": (lambda path: cog(path, mask=True, compress="jpeg"), True),
    "cog-webp": (lambda path: cog(path, compress="webp"), True),
    "cog-lerc": (lambda path: cog(path, pixels(dtype="float32"), compress="lerc"), True),
    "cog-none": (lambda path: cog(path, compress="none"), True),
    "cog-512": (lambda path: cog(path, blocksize=512), True),
    "cog-small": (lambda path: cog(path, pixels(100, 80)), True),
    "cog-flat": (lambda path: cog(path, pixels(5000, 3, 1)), True),
    "cog-no-overviews": (lambda path: cog(path, overviews="NONE"), True),
    "cog-sparse": (sparse, True),
    "cog-edited": (edited, False),
    "cog-and-ovr": (both, False),
    "strips": (lambda path: write(path, pixels()), False),
    "strips-small": (lambda path: write(path, pixels(300, 300)), True),
    "strips-overviews": (lambda path: build(write(path, pixels()), 2, 4), False),
    "wide-tiles": (lambda path: tiled(path, blockxsize=1312), True),
    "tile-as-wide": (lambda path: tiled(path, blockxsize=1300 // 16 * 16 + 16), True),
    "as-wide": (lambda path: write(path, pixels(1024), tiled=True, blockxsize=1024, blockysize=256), False),
    "tiles": (tiled, True),
    "tiles-overviews": (lambda path: build(tiled(path), 2, 4, 8), False),
    "tiles-overviews-mask": (lambda path: build(tiled(path, mask=True), 2, 4), False),
    "tiles-overviews-later": (lambda path: build(build(tiled(path), 4), 2), False),
    "tiles-external": (lambda path: build(tiled(path), 2, 4, external=True), False),
    "ovr": (itself, False),
    "bigtiff-overviews": (lambda path: build(tiled(path, bigtiff="YES"), 2), False),
    "planes-overviews": (lambda path: build(tiled(path, interleave="band"), 2), False),
}


@pytest.mark.parametrize("name", FILES)
def test_messages_are_those_of_rio_cogeo(swath: Swath, folder: Path, name: str) -> None:
    make, valid = FILES[name]
    path = make(folder / f"{name}.tif")
    want = theirs(path)
    assert want[0] == valid, f"the test means another file: {want}"
    assert ours(swath, path) == want
    full = validate(swath, path, "--full")
    assert full["valid"] == valid, full["errors"]
    if name.startswith("cog-") and valid:
        assert full["warnings"] == want[2], "a sound COG has nothing that only the full check finds"


def test_edition_is_seen(swath: Swath, folder: Path) -> None:
    document = validate(swath, edited(folder / "edited.tif"))
    assert document["ghost"]["KNOWN_INCOMPATIBLE_EDITION"] == "YES"
    assert any("invalidated by later changes" in error for error in document["errors"])


def corpus() -> list[str]:
    manifest = SHARED_CORPUS / "manifest.csv"
    if not manifest.is_file():
        return []
    with manifest.open(newline="") as file:
        return [row["path"] for row in csv.DictReader(file)]


def test_corpus_is_there() -> None:
    if not corpus():
        assert not UNDER_CI, f"{SHARED_CORPUS} is missing, and under CI it must be there"
        pytest.skip("the shared corpus is not beside the checkout; its walk was skipped")
    assert set(EXPLAINED) <= set(corpus())


def blocks(document: dict[str, Any]) -> int:
    """The number of blocks that rio-cogeo may ask for."""
    count = 0
    for level in document["levels"]:
        # It confuses the block's width and height.
        across = -(-level["width"] // level["blockysize"])
        count += across * -(-level["height"] // level["blockxsize"])
    return count


@pytest.mark.parametrize("name", corpus())
def test_corpus(swath: Swath, name: str) -> None:
    path = SHARED_CORPUS / name
    run = swath.run("validate", path, "--json")
    run.check_alive()
    assert run.peak <= BASE_MEMORY, f"peak memory {run.peak:,}"
    got = None
    if run.code == 2:
        run.check_refusal(path)
    else:
        document = json.loads(run.stdout)
        full = validate(swath, path, "--full")
        found = [error for error in document["errors"] if error not in full["errors"]]
        assert not found, f"the full check leaves out {found}"
        if blocks(document) > MAX_BLOCKS:
            return
        got = document["valid"], document["errors"], document["warnings"]
    try:
        want = theirs(path)
    except Exception:
        # GDAL does not open it, so there is nothing to compare.
        return
    if name in EXPLAINED:
        assert got != want, "no longer different: take it off the list"
        return
    assert got == want


@pytest.mark.parametrize("path", sorted((CORPUS / "bad").rglob("*.tif")), ids=lambda path: path.name)
def test_hostile_file_ends(swath: Swath, path: Path) -> None:
    for options in ([], ["--full"]):
        run = swath.run("validate", path, "--json", *options, timeout=5)
        run.check_alive()
        assert run.peak <= BASE_MEMORY, f"peak memory {run.peak:,}"


def tables(path: Path) -> list[tuple[int, int]]:
    import tifffile

    with tifffile.TiffFile(path) as tiff:
        page = tiff.pages[0]
        return list(zip(page.dataoffsets, page.databytecounts))


def poke(path: Path, at: int, new: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(new)


def test_damaged_leader_and_trailer(swath: Swath, folder: Path) -> None:
    path = cog(folder / "damaged.tif")
    offset, length = tables(path)[7]
    poke(path, offset - 4, struct.pack("<I", length + 1))
    assert ours(swath, path) == theirs(path) == (True, [], [])
    full = validate(swath, path, "--full")
    want = f"Main resolution image: for block (1, 1), size in leader bytes is {length + 1} instead of {length}"
    assert full["errors"] == [want]
    poke(path, offset - 4, struct.pack("<I", length))
    assert validate(swath, path, "--full")["valid"]
    last = path.read_bytes()[offset + length]
    poke(path, offset + length, bytes([last ^ 255]))
    full = validate(swath, path, "--full")
    assert full["errors"] == ["Main resolution image: for block (1, 1), trailer bytes are invalid"]


def test_cut_file(swath: Swath, folder: Path) -> None:
    path = cog(folder / "cut.tif")
    content = path.read_bytes()
    path.write_bytes(content[:-1000])
    assert validate(swath, path)["valid"], "the structure is whole"
    full = validate(swath, path, "--full")
    assert any("the file ends at byte" in error for error in full["errors"])


def test_strict_text_and_exit_codes(swath: Swath, folder: Path) -> None:
    path = tiled(folder / "warned.tif")
    run = swath.run("validate", path)
    assert run.code == 0
    assert f"{path} is a valid cloud optimized GeoTIFF" in run.stdout
    assert "it is recommended to include internal overviews" in run.stdout
    run = swath.run("validate", path, "--strict")
    assert run.code == 1
    assert f"{path} is NOT a valid cloud optimized GeoTIFF" in run.stdout
    run = swath.run("validate", cog(folder / "cog.tif", mask=True), "--full")
    assert run.code == 0
    for word in (
        "BLOCK_LEADER=SIZE_AS_UINT4",
        "MASK_INTERLEAVED_WITH_IMAGERY=YES",
        "overview_0",
        "256x256",
        "1300x1100",
    ):
        assert word in run.stdout
    swath.run("validate", folder / "missing.tif").check_refusal("missing.tif")
    (folder / "text.tif").write_text("not a raster at all")
    swath.run("validate", folder / "text.tif").check_refusal("text.tif")
