"""Every byte of small files changed (R2), and files cut everywhere (R3): an error or an array, at once, and no more.

A file that was cut gives the whole file's array or none.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from damaging import changed
from harness import CORPUS, record, torture

GOOD = CORPUS / "good"
# One file of each kind, all short.
CHANGED = (
    "codec-none-uint8", "codec-deflate-float32", "codec-lzw-int16", "codec-zstd-uint16", "codec-packbits-int16",
    "codec-lzma-int32", "predictor2-deflate-uint8", "predictor3-lzw-float32", "lerc-uint8", "lerc_zstd-int16",
    "jpeg-grey", "jpeg-planes", "webp-lossless", "ccittfax4", "jpegxl-uint8", "nbits-12", "palette", "crs-32633",
    "metadata", "gcps",
)  # fmt: skip
CUT = (
    *CHANGED, "overviews", "cog", "cog-sparse", "cog-zstd-mask", "subifds", "pages", "mask-internal", "mask-alpha",
    "rpc", "tags-standard", "sparse", "sparse-nodata", "cmyk", "miniswhite", "nbits-1", "nbits-31", "nbits-f16",
    "orientation-6", "jpeg-ycbcr", "jpeg-rgb-tiled", "webp-rgba", "jpeg2000-uint8", "lerc-lossy", "ccittrle",
    "ccittfax3", "size-1x1", "size-700x1", "tifffile-uint16-1", "tifffile-float64-3", "transform-rotated",
)  # fmt: skip
SECONDS = 5.0


def damaged(folder: Path, how: str, tries: int, names: tuple[str, ...]) -> list[dict[str, Any]]:
    """Results for each file; a file that kills or stops the reader is named."""
    note = folder / "note"
    paths = [str(GOOD / f"{name}.tif") for name in names]
    argv = [sys.executable, str(Path(__file__).with_name("damaging.py")), how, str(tries), *paths]
    environment = {**os.environ, "NOTE": str(note)}
    try:
        done = subprocess.run(
            argv, env=environment, capture_output=True, text=True, timeout=120 + 60 * torture(), check=False
        )
    except subprocess.TimeoutExpired:
        pytest.fail(f"hangs: {note.read_text()}")
    where = note.read_text() if note.exists() else "nothing"
    assert done.returncode == 0, f"the process ends with {done.returncode}: {where}\n{done.stderr[-2000:]}"
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(found) == len(names)
    slow = [each for each in found if each["slowest"] > SECONDS]
    assert not slow, slow
    return found


def test_a_draw_has_all_three_values() -> None:
    for length in (300, 999, 1350, 2700, 5000):
        content = bytes(17 + at % 200 for at in range(length))
        for tries in (150, 300, 10**9):
            made = list(changed(content, tries))
            kinds = {value if value in (0, 255) else "opposite" for _, value, _ in made}
            assert kinds == {0, 255, "opposite"} and len(made) > min(tries, length) // 2, (length, tries, kinds)


def test_every_byte(folder: Path) -> None:
    """A draw of the bytes in `make test`, every one from SWATH_TORTURE=200 on."""
    found = damaged(folder, "bytes", 150 * torture(), CHANGED)
    tries, refused = sum(each["tries"] for each in found), sum(each["refused"] for each in found)
    record("R2", f"bytes changed, of which {refused} are refused", tries, tries, 0)
    assert tries > 1500


def test_cut_everywhere(folder: Path) -> None:
    found = damaged(folder, "cuts", 0, CUT)
    tries, lost = sum(each["tries"] for each in found), sum(len(each["unlike"]) for each in found)
    record("R3", "files cut", tries, tries - lost, lost)
    assert tries > 3000
    assert lost == 0, [(each["name"], each["unlike"][:10]) for each in found if each["unlike"]]
