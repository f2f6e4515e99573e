"""Checks the shared corpus of other projects' files: each gives what `manifest.csv` states (R1)."""

from __future__ import annotations

import csv
import re
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harness import BASE_MEMORY, SHARED_CORPUS, UNDER_CI, Refused, Swath, crc32, difference, numbers_equal, transform_of

MANIFEST = SHARED_CORPUS / "manifest.csv"
ROWS: list[dict[str, str]] = []
if MANIFEST.is_file():
    with MANIFEST.open(newline="") as file:
        ROWS = list(csv.DictReader(file))

EXCEPTIONS: dict[str, dict[str, Any]] = {
    entry["path"]: entry
    for entry in tomllib.loads(Path(__file__).with_name("manifest_exceptions.toml").read_text())["exception"]
}
NOT_SUPPORTED = re.compile(r"not supported|unsupported|not implemented|built without", re.IGNORECASE)


def test_corpus_is_there() -> None:
    """Without the corpus no test below runs: this one reports it, and fails where the corpus is required."""
    if MANIFEST.is_file():
        assert len(ROWS) > 200
        return
    assert not UNDER_CI, f"{MANIFEST} is missing, and under CI it must be there"
    pytest.skip("the shared corpus is not beside the checkout; its walk was skipped")


def test_exceptions_name_files_and_reasons() -> None:
    known = {row["path"] for row in ROWS}
    for path, entry in EXCEPTIONS.items():
        assert len(entry["reason"].split()) >= 5, f"{path}: the reason is missing"
        assert set(entry["checks"]) <= {"pixels", "crs", "transform", "nodata"}, path
        assert not known or path in known, f"{path}: no such file in the manifest"


def excepted(row: dict[str, str], check: str) -> bool:
    return check in EXCEPTIONS.get(row["path"], {}).get("checks", ())


def decoded_size(row: dict[str, str]) -> int:
    # The huge declarations have a shape and no dtype: they are not expected to be decoded.
    if not row["shape"] or not row["dtype"]:
        return 0
    return int(np.prod([int(n) for n in row["shape"].split("x")])) * np.dtype(row["dtype"]).itemsize


def accept(row: dict[str, str], array: np.ndarray) -> str | None:
    """`None` if the array is what the manifest states, else the difference."""
    shape = "x".join(map(str, array.shape))
    if row["reference"]:
        with np.load(SHARED_CORPUS / row["reference"]) as stored:
            want = stored["array"]
        if want.shape != array.shape:
            return f"shape {array.shape}, want {want.shape}"
        mean = float(np.mean(np.abs(array.astype("float64") - want.astype("float64"))))
        return None if mean <= 2 else f"mean absolute difference {mean:.3f} from the reference"
    got = crc32(array)
    if row["alt_crc32"] and got == row["alt_crc32"]:
        return None
    if (str(array.dtype), shape, got) == (row["dtype"], row["shape"], row["crc32"]):
        return None
    return f"got {array.dtype} {shape} {got}, want {row['dtype']} {row['shape']} {row['crc32']} (mean {row['mean']})"


@pytest.mark.parametrize("row", ROWS, ids=[row["path"] for row in ROWS])
def test_pixels(swath: Swath, row: dict[str, str]) -> None:
    path = SHARED_CORPUS / row["path"]
    if excepted(row, "pixels"):
        pytest.skip(EXCEPTIONS[row["path"]]["reason"])
    out = swath.folder / "manifest.npy"
    out.unlink(missing_ok=True)
    run = swath.dump_run(path, out, timeout=30)
    try:
        run.check_alive()
        expected = row["expected"]
        decoded = out.stat().st_size if out.exists() else decoded_size(row)
        allowed = BASE_MEMORY + 6 * decoded
        assert run.peak <= allowed, f"peak memory {run.peak:,} bytes, allowed {allowed:,}"
        if not run.ok:
            message = run.check_refusal(path)
            assert not out.exists(), "refused, but left an array behind"
            if expected.startswith(("decodes exactly", "decodes within")):
                assert row["tier"] == "legacy" and NOT_SUPPORTED.search(message), f"refused: {message}"
            return
        assert not expected.startswith("must be refused with"), "accepted a file that must be refused"
        if expected.startswith("decodes or is refused"):
            return
        array = np.load(out)
        if expected.startswith("must be refused, or read by window"):
            # The whole image was read, and the memory check above has shown that it fitted.
            return
        fault = accept(row, array)
        assert fault is None, fault
    finally:
        out.unlink(missing_ok=True)


HUGE = [row for row in ROWS if "read by window" in row["expected"]]


@pytest.mark.parametrize("row", HUGE, ids=[row["path"] for row in HUGE])
def test_huge_declarations_by_window(swath: Swath, row: dict[str, str]) -> None:
    """A tiny file that declares a huge array: a small window is read, or refused, within the memory limit."""
    out = swath.folder / "window.npy"
    run = swath.dump_run(SHARED_CORPUS / row["path"], out, window=(0, 0, 1, 1))
    out.unlink(missing_ok=True)
    run.check_alive()
    assert run.peak <= BASE_MEMORY, f"peak memory {run.peak:,}"


GEOREFERENCED = [row for row in ROWS if row["expected"].startswith("decodes exactly")]


@pytest.mark.parametrize("row", GEOREFERENCED, ids=[row["path"] for row in GEOREFERENCED])
def test_georeferencing(swath: Swath, row: dict[str, str]) -> None:
    path = SHARED_CORPUS / row["path"]
    try:
        info = swath.info(path)
    except Refused as refused:
        assert row["tier"] == "legacy", str(refused)
        return
    faults = []
    if not excepted(row, "crs"):
        got = info.get("crs")
        if row["crs"] == "custom":
            if not got:
                faults.append("crs: none, want a user-defined one")
        elif (got or "") != row["crs"]:
            faults.append(f"crs: got {got!r}, want {row['crs']!r}")
    if not excepted(row, "transform"):
        got_transform = transform_of(info)
        want = tuple(map(float, row["transform"].split())) if row["transform"] else (1.0, 0.0, 0.0, 0.0, 1.0, 0.0)
        # The manifest keeps ten digits.
        scale = max(abs(value) for value in want)
        if any(abs(a - b) > 1e-9 * max(abs(b), 1e-3 * scale) for a, b in zip(got_transform, want)):
            faults.append(f"transform: got {got_transform}, want {want}")
    if not excepted(row, "nodata") and not numbers_equal(info.get("nodata"), row["nodata"] or None):
        faults.append(f"nodata: got {info.get('nodata')!r}, want {row['nodata'] or None!r}")
    assert not faults, "; ".join(faults)


def test_difference_names_the_first_place() -> None:
    """The message of a failing comparison must name the first difference."""
    a = np.zeros((1, 2, 3), "u2")
    b = a.copy()
    b[0, 1, 2] = 7
    assert "(0, 1, 2)" in difference(a, b)
