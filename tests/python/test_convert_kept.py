"""What `swath convert` keeps of its source, and what it refuses to lose: colours, nodata, masks, EXIF, pages."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
import rasterio
import tifffile
from harness import Swath
from rasterio.enums import ColorInterp
from writing import by_gdal, convert, equal

CORPUS = Path(__file__).parents[2] / ".." / "shared" / "corpus"
RGB = (ColorInterp.red, ColorInterp.green, ColorInterp.blue)


def corpus(name: str) -> Path:
    path = CORPUS / name
    if not path.is_file():
        pytest.skip(f"there is no {path}")
    return path


def patch(path: Path, page: int, tags: dict[int, int]) -> None:
    """Sets tags of a little-endian file that no writer here sets so."""
    raw = bytearray(path.read_bytes())
    (start,) = struct.unpack_from("<I", raw, 4)
    for _ in range(page + 1):
        (count,) = struct.unpack_from("<H", raw, start)
        at, (start,) = start + 2, struct.unpack_from("<I", raw, start + 2 + 12 * count)
    for entry in range(at, at + 12 * count, 12):
        (tag,) = struct.unpack_from("<H", raw, entry)
        if tag in tags:
            struct.pack_into("<H", raw, entry + 8, tags[tag])
    path.write_bytes(raw)


# ------------------------------------------------------------------------------------------------------------- palettes


def palette_and(path: Path, second: str) -> None:
    """Indices 10 and 200 with a second sample."""
    rng = np.random.default_rng(5)
    indices = np.where(rng.random((300, 400)) < 0.5, 10, 200).astype("uint8")
    other = np.full_like(indices, 255)
    other[:50] = 0
    colours = np.stack([np.arange(256) * 257, 65535 - np.arange(256) * 257, np.full(256, 257 * 4)]).astype("uint16")
    tifffile.imwrite(
        path,
        np.dstack([indices, other]),
        photometric="minisblack",
        planarconfig="contig",
        extrasamples=[second],
        metadata=None,
        extratags=[(320, 3, 768, colours.ravel().tolist(), True)],
    )
    patch(path, 0, {262: 3})


@pytest.mark.parametrize("second", ["unassalpha", "unspecified"])
@pytest.mark.parametrize(
    "options",
    [("--cog", "--tile", 128), ("--overviews", "2,4"), ("--cog", "--tile", 128, "--interleave", "band")],
    ids=["cog", "tiff", "bands"],
)
def test_palette_with_a_second_sample(swath: Swath, folder: Path, second: str, options: tuple[object, ...]) -> None:
    """Indices keep their colours, and overviews have no index that the image has not."""
    source = folder / "s.tif"
    palette_and(source, second)
    convert(swath, source, folder / "t.tif", *options)
    with rasterio.open(source) as before, rasterio.open(folder / "t.tif") as after:
        assert after.colorinterp == before.colorinterp
        assert after.colormap(1) == before.colormap(1)
        equal(after.read(), before.read(), "pixels")
        assert after.overviews(1)
        for level in range(len(after.overviews(1))):
            indices = by_gdal(folder / "t.tif", level)[0]
            assert set(np.unique(indices)) == {10, 200}
    # One band of it is a palette image too; the other way round, it is none.
    convert(swath, source, folder / "one.tif", "--bands", 1)
    with rasterio.open(folder / "one.tif") as one, rasterio.open(source) as before:
        assert one.colormap(1) == before.colormap(1)
    convert(swath, source, folder / "turned.tif", "--bands", "2,1")
    with rasterio.open(folder / "turned.tif") as turned:
        assert "photometric" not in turned.profile or turned.profile["photometric"] != "palette"
        equal(turned.read(), by_gdal(source)[::-1], "bands")
        assert turned.colorinterp[1] != ColorInterp.alpha


def test_preview_of_a_palette_with_alpha(swath: Swath, folder: Path) -> None:
    palette_and(folder / "s.tif", "unassalpha")
    convert(swath, folder / "s.tif", folder / "t.tif", "--cog", "--tile", 128)
    for name in ("s.tif", "t.tif"):
        run = swath.run("preview", folder / name, folder / "p.png", "--size", 100)
        assert run.ok, run.stderr
        picture = by_gdal(folder / "p.png")
        shown = picture[:3, picture[3] > 0] if len(picture) == 4 else picture[:3].reshape(3, -1)
        assert {tuple(colour) for colour in shown.T.tolist()} == {(10, 245, 4), (200, 55, 4)}, name
