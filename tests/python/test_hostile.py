"""Damage done to sound files: cuts (R3) and changed bytes (R2).

The exhaustive walk over every byte is a Rust test, which needs no process a file; here a fixed draw goes through the
tool itself, with GDAL beside it.
"""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
import rasterio
from harness import BASE_MEMORY, CORPUS, Swath

CUT = (
    "codec-none-uint16.tif", "codec-deflate-float32.tif", "predictor2-lzw-uint16.tif", "predictor3-zstd-float32.tif",
    "codec-packbits-int16.tif", "overviews.tif", "cog.tif", "tifffile-uint16-1.tif", "jpeg-ycbcr.tif",
    "lerc-float32.tif", "webp-lossless.tif", "ccittfax4.tif",
)  # fmt: skip
CHANGED = (
    "codec-none-uint16.tif", "codec-deflate-float32.tif", "predictor2-lzw-uint16.tif", "codec-packbits-int16.tif",
    "crs-32633.tif", "metadata.tif", "palette.tif", "nbits-12.tif",
)  # fmt: skip


def gdal(path: Path) -> np.ndarray | None:
    try:
        with rasterio.open(path) as dataset:
            if dataset.width * dataset.height * dataset.count > 10**8:
                return None
            return dataset.read()
    except Exception:
        return None


def swath_reads(swath: Swath, path: Path) -> np.ndarray | None:
    out = swath.folder / "damaged.npy"
    out.unlink(missing_ok=True)
    run = swath.dump_run(path, out, timeout=10)
    try:
        run.check_alive()
        assert run.peak <= BASE_MEMORY + 6 * (out.stat().st_size if out.exists() else 0), f"peak {run.peak:,}"
        if run.ok:
            return np.load(out)
        run.check_refusal(path)
        assert not out.exists(), "refused, but left an array behind"
        return None
    finally:
        out.unlink(missing_ok=True)


@pytest.mark.parametrize("name", CUT)
def test_cut_at_every_64th(swath: Swath, folder: Path, name: str) -> None:
    """A cut file gives no array, unless every byte of it is there: then it is the array of the whole file."""
    source = CORPUS / "good" / name
    content = source.read_bytes()
    want = gdal(source)
    path = folder / name
    faults = []
    for part in range(64):
        cut = len(content) * part // 64
        path.write_bytes(content[:cut])
        got = swath_reads(swath, path)
        if got is None:
            continue
        if want is None or got.shape != want.shape or got.tobytes() != want.tobytes():
            reference = gdal(path)
            if reference is None or reference.shape != got.shape or reference.tobytes() != got.tobytes():
                faults.append(f"cut at {cut} of {len(content)}: other values than the whole file's")
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize("name", CHANGED)
def test_changed_bytes(swath: Swath, folder: Path, name: str) -> None:
    """No crash, hang or excess memory; and where GDAL reads an array of the same shape and type, it is the same."""
    content = (CORPUS / "good" / name).read_bytes()
    rng = random.Random(name)
    path = folder / name
    faults = []
    for _ in range(60):
        at = rng.randrange(len(content))
        value = rng.choice((0, 255, content[at] ^ 255, content[at] ^ (1 << rng.randrange(8))))
        path.write_bytes(content[:at] + bytes([value]) + content[at + 1 :])
        got = swath_reads(swath, path)
        if got is None:
            continue
        want = gdal(path)
        if want is not None and (got.shape, got.dtype) == (want.shape, want.dtype) and got.tobytes() != want.tobytes():
            faults.append(f"byte {at} set to {value}: other values than GDAL's")
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize("name", ["codec-deflate-float32.tif", "codec-zstd-uint16.tif"])
def test_damaged_payload_is_never_silent_for_deflate(swath: Swath, folder: Path, name: str) -> None:
    """One bit in the compressed pixels: deflate carries a checksum, so it must be refused (R10)."""
    import tifffile

    source = CORPUS / "good" / name
    with tifffile.TiffFile(source) as tiff:
        page = tiff.pages[0]
        spans = list(zip(page.dataoffsets, page.databytecounts))
    content = source.read_bytes()
    want = gdal(source)
    rng = random.Random(5)
    path = folder / name
    silent = 0
    for _ in range(80):
        offset, length = rng.choice(spans)
        at = offset + rng.randrange(length)
        path.write_bytes(content[:at] + bytes([content[at] ^ (1 << rng.randrange(8))]) + content[at + 1 :])
        got = swath_reads(swath, path)
        silent += got is not None and want is not None and got.tobytes() != want.tobytes()
    if "deflate" in name:
        assert silent == 0, f"{silent} of 80 damaged files gave wrong pixels without an error"
