"""Checks the project's own fixtures: pixels, georeferencing and metadata of sound files, refusal of hostile ones."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest
from harness import BASE_MEMORY, CORPUS, Refused, Swath, crc32, numbers_equal, transform_of

MANIFEST = CORPUS / "MANIFEST.json"
ROWS: list[dict[str, Any]] = json.loads(MANIFEST.read_text())["files"] if MANIFEST.is_file() else []
GOOD = [row for row in ROWS if row["path"].startswith("good/")]
BAD = [row for row in ROWS if row["path"].startswith("bad/")]
# Files that belong to another one.
SIDE = (".npy", ".ovr", ".msk", ".aux.xml", ".tfw")


def names(rows: list[dict[str, Any]]) -> list[str]:
    return [row["path"] for row in rows]


def test_every_file_is_listed() -> None:
    assert ROWS, f"{MANIFEST} is missing: run `make fixtures`"
    found = {str(path.relative_to(CORPUS)) for kind in ("good", "bad") for path in (CORPUS / kind).rglob("*.*")}
    found = {path for path in found if not path.endswith(SIDE)}
    assert found == set(names(ROWS))


def matches(row: dict[str, Any], array: np.ndarray) -> str | None:
    if "reference" in row:
        want = np.load(CORPUS / row["reference"])
        if (array.shape, array.dtype) != (want.shape, want.dtype):
            return f"got {array.dtype} {array.shape}, want {want.dtype} {want.shape}"
        mean = float(np.mean(np.abs(array.astype("float64") - want.astype("float64"))))
        return None if mean <= 2 else f"mean absolute difference {mean:.3f}"
    got = (str(array.dtype), list(array.shape), crc32(array))
    want_all = (row["dtype"], row["shape"], row["crc32"])
    return None if got == want_all else f"got {got}, want {want_all}"


@pytest.mark.parametrize("row", GOOD, ids=names(GOOD))
def test_sound_pixels(swath: Swath, row: dict[str, Any]) -> None:
    # Inks are compared as they are stored; by default they are shown as colours.
    fault = matches(row, swath.dump(CORPUS / row["path"], stored="CMYK" in row["features"]))
    assert fault is None, f"{row['features']}: {fault}"


DESCRIBED = [row for row in GOOD if "transform" in row]


@pytest.mark.parametrize("row", DESCRIBED, ids=names(DESCRIBED))
def test_sound_facts(swath: Swath, row: dict[str, Any]) -> None:
    info = swath.info(CORPUS / row["path"])
    faults = []
    for key in ("dtype", "shape"):
        got = info.get(key)
        want = row[key] if key == "dtype" else row[key][-2:]
        if (list(got) if isinstance(got, list) else got) != want:
            faults.append(f"{key}: got {got!r}, want {want!r}")
    if info.get("count") != row["shape"][0]:
        faults.append(f"count: got {info.get('count')}, want {row['shape'][0]}")
    if row["epsg"] is not None and info.get("crs") != f"EPSG:{row['epsg']}":
        faults.append(f"crs: got {info.get('crs')!r}, want EPSG:{row['epsg']}")
    if bool(info.get("crs")) != row["has_crs"] and not row["gcps"]:
        faults.append(f"crs: got {info.get('crs')!r}, want {'one' if row['has_crs'] else 'none'}")
    if transform_of(info) != tuple(row["transform"]):
        faults.append(f"transform: got {transform_of(info)}, want {tuple(row['transform'])}")
    if not numbers_equal(info.get("nodata"), row["nodata"]):
        faults.append(f"nodata: got {info.get('nodata')!r}, want {row['nodata']!r}")
    for key in ("descriptions", "units", "colorinterp"):
        # rasterio returns None for an absent text; an absent text may also be empty.
        got_texts, want_texts = ([text or None for text in texts or []] for texts in (info.get(key), row[key]))
        if got_texts != want_texts:
            faults.append(f"{key}: got {got_texts!r}, want {want_texts!r}")
    for key in ("scales", "offsets"):
        if list(map(float, info.get(key) or [])) != row[key]:
            faults.append(f"{key}: got {info.get(key)!r}, want {row[key]!r}")
    tags = (info.get("tags") or {}).get("", {})
    missing = {key: value for key, value in row["tags"].items() if tags.get(key) != value}
    if missing:
        faults.append(f"tags: got {info.get('tags')!r}, want at least {missing!r}")
    if len(info.get("gcps") or []) != row["gcps"]:
        faults.append(f"gcps: got {len(info.get('gcps') or [])}, want {row['gcps']}")
    if bool(info.get("rpcs")) != row["rpcs"]:
        faults.append(f"rpcs: got {bool(info.get('rpcs'))}, want {row['rpcs']}")
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize("row", BAD, ids=names(BAD))
def test_hostile(swath: Swath, row: dict[str, Any]) -> None:
    path = CORPUS / row["path"]
    out = swath.folder / "hostile.npy"
    out.unlink(missing_ok=True)
    run = swath.dump_run(path, out, timeout=5)
    array = np.load(out) if out.exists() else None
    out.unlink(missing_ok=True)
    run.check_alive()
    decoded = int(np.prod(row["shape"])) if "shape" in row else 0
    assert run.peak <= BASE_MEMORY + 6 * decoded, f"peak memory {run.peak:,}"
    if run.ok:
        assert row["expect"] != "refused", "accepted a file that must be refused"
        assert array is not None
        fault = matches(row, array)
        assert fault is None, fault
        return
    assert array is None, "refused, but left an array behind"
    message = run.check_refusal(path)
    if "words" in row:
        assert re.search(row["words"], message.replace(str(path), ""), re.IGNORECASE), (
            f"the error names no fault: {message}"
        )


@pytest.mark.parametrize("row", BAD, ids=names(BAD))
def test_info_of_hostile_file_ends(swath: Swath, row: dict[str, Any]) -> None:
    """`info` reads more of a file than a read does: every directory, every text."""
    run = swath.run("info", CORPUS / row["path"], "--json", timeout=5)
    run.check_alive()
    assert run.peak <= BASE_MEMORY, f"peak memory {run.peak:,}"
    if run.ok:
        json.loads(run.stdout)
    assert "root:" not in run.stdout, "an external entity was fetched"


@pytest.mark.parametrize("name", ["overviews.tif", "overviews-external.tif", "cog.tif", "cog-zstd-mask.tif"])
def test_overviews(swath: Swath, name: str) -> None:
    import rasterio

    path = CORPUS / "good" / name
    with rasterio.open(path) as dataset:
        levels = dataset.overviews(1)
    assert levels
    for level in range(len(levels)):
        with rasterio.open(path, overview_level=level) as dataset:
            want = dataset.read()
        # Overviews count from 0, the largest first; the first of them is half the size.
        got = swath.dump(path, overview=level)
        assert got.shape == want.shape
        assert np.array_equal(got, want), f"{name}: overview {level}"
    with pytest.raises(Refused) as refused:
        swath.dump(path, overview=len(levels))
    refused.value.run.check_refusal(path)


@pytest.mark.parametrize("name", ["mask-internal.tif", "mask-external.tif", "mask-alpha.tif", "cog-zstd-mask.tif"])
def test_masks(swath: Swath, name: str) -> None:
    import rasterio

    path = CORPUS / "good" / name
    with rasterio.open(path) as dataset:
        want = dataset.dataset_mask()
    got = swath.dump(path, mask=True)
    assert got.dtype == np.uint8
    assert np.array_equal(got[0], want)
