"""Conversions of other projects' files keep pixels and metadata, whatever the source."""

from __future__ import annotations

import csv
import json
import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
from harness import SHARED_CORPUS, UNDER_CI, Refused, Swath, difference
from writing import by_gdal

warnings.filterwarnings("ignore", category=rasterio.errors.NotGeoreferencedWarning)

MANIFEST = SHARED_CORPUS / "manifest.csv"
ROWS: list[dict[str, str]] = []
if MANIFEST.is_file():
    with MANIFEST.open(newline="") as file:
        ROWS = list(csv.DictReader(file))

# Takes a regular sample of the larger files; SWATH_EXAMPLES above 1 takes all.
EVERY = 1 if float(os.environ.get("SWATH_EXAMPLES", "1")) > 1 else 2


def chosen() -> list[str]:
    out, large = [], 0
    for row in ROWS:
        path = SHARED_CORPUS / row["path"]
        if not path.is_file() or path.stat().st_size > 20_000_000 or not row["shape"] or not row["crc32"]:
            continue
        sides = [int(n) for n in row["shape"].split("x")]
        if np.prod(sides[-2:]) > 30e6:
            continue
        if np.prod(sides) > 300_000:
            large += 1
            if large % EVERY:
                continue
        out.append(row["path"])
    return out


PATHS = chosen()


def test_corpus_is_there() -> None:
    if MANIFEST.is_file():
        assert len(PATHS) > 100
        return
    assert not UNDER_CI, f"{MANIFEST} is missing, and under CI it must be there"
    pytest.skip("the shared corpus is not beside the checkout; its conversion was skipped")


def same_crs(a: Path, b: Path) -> bool:
    """Whether systems are equal to GDAL, which ignores names."""
    with rasterio.open(a) as left, rasterio.open(b) as right:
        return left.crs == right.crs


def differences(swath: Swath, a: Path, b: Path) -> list[dict[str, Any]]:
    run = swath.run("compare", a, b, "--json")
    run.check_alive()
    assert run.code in (0, 1), run.stderr
    document = json.loads(run.stdout)
    pixels = document["pixels"] or {}
    found = [entry for entry in document["differences"] if entry["what"] != "CRS" or not same_crs(a, b)]
    if pixels.get("differing") or document["mask_differing"]:
        found.append({"what": "pixels", "a": pixels.get("differing"), "b": document["mask_differing"]})
    return found


@pytest.mark.parametrize("name", PATHS)
def test_converted(swath: Swath, folder: Path, name: str) -> None:
    source, target = SHARED_CORPUS / name, folder / "t.tif"
    try:
        want = swath.dump(source)
    except Refused:
        pytest.skip("swath does not read it, and says why")
    # Rows and columns stay as they are stored; CMYK keeps its inks, which `dump` shows as RGBA.
    for options in (("--compress", "zstd"), ("--cog",)):
        run = swath.run("convert", source, target, *options, timeout=60)
        run.check_alive()
        assert run.ok, f"{options}: {run.stderr}"
        got = swath.dump(target)
        result = difference(got, want)
        assert result == "equal", f"{options}: {result}"
        found = differences(swath, source, target)
        assert not found, f"{options}: {found}"
        try:
            before = by_gdal(source)
        except Exception:
            continue
        if (
            before.dtype != got.dtype
            or before.shape != want.shape
            or not np.array_equal(before, want, equal_nan=before.dtype.kind in "fc")
        ):
            # Where GDAL reads other pixels from the source (JPEG, pages as bands, CMYK …) it cannot check the copy.
            continue
        after = by_gdal(target)
        assert after.dtype == before.dtype
        assert np.array_equal(after, before, equal_nan=before.dtype.kind in "fc"), f"{options}: GDAL reads other pixels"
        with rasterio.open(source) as a, rasterio.open(target) as b:
            assert b.crs == a.crs or not a.crs or a.crs.to_wkt() == "", f"{options}: {a.crs} became {b.crs}"
            assert np.allclose(list(b.transform), list(a.transform), rtol=1e-14, atol=1e-14), f"{options}: transform"
            assert b.nodatavals == a.nodatavals or str(b.nodatavals) == str(a.nodatavals), f"{options}: nodata"
            assert b.descriptions == a.descriptions and b.units == a.units and b.scales == a.scales
