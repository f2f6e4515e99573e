"""The pages themselves: README's length, charts and tables from committed figures, contents, names and codecs."""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from harness import ROOT, Swath
from test_py_matrix import environment

DOCS = ROOT / "docs"
PAGES = sorted(DOCS.glob("*.md"))
# Words beside code and tables on two screens, about. A page with more needs headings, of which the site makes a table
# of contents.
TWO_SCREENS = 250


def test_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().split()) <= 500


def test_charts_and_tables_are_made_from_the_committed_figures() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "tools/docs/charts.py", "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_every_chart_is_on_the_page() -> None:
    page = (DOCS / "benchmarks.md").read_text()
    charts = sorted((DOCS / "charts").glob("*.svg"))
    assert charts and all(f"(charts/{chart.name})" in page for chart in charts)


def test_the_page_of_benchmarks_agrees_with_the_figures() -> None:
    """The relative times in the tables about the CPU, and the speeds of reads to a GPU, are those of the charts."""
    sys.path.insert(0, str(ROOT / "tools" / "docs"))
    try:
        charts = importlib.import_module("charts")
    finally:
        sys.path.pop(0)
    page = (DOCS / "benchmarks.md").read_text()
    for chart in (charts.read_cpu(), charts.write_cpu()):
        for label, bars in chart.groups:
            for name, value in bars:
                assert re.search(rf"\b{value:.2f}\b", page), f"{label}, {name}: {value:.2f} is not on the page"
    reads = page.partition("\n## To a GPU")[2].partition("\n## ")[0]
    rows = dict(re.findall(r"^\| ([^|]+) \| ([^|]+ \| [^|]+ \| [^|]+) \|", reads, re.MULTILINE))
    for label, bars in charts.read_gpu().groups:
        row = next(cells for title, cells in rows.items() if title.startswith(label))
        shown = " | ".join("refuses it" if value is None else f"{value:.1f}" for _, value in bars)
        assert row == shown, label


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_long_pages_have_contents(path: Path) -> None:
    text = path.read_text()
    prose = re.sub(r"^```.*?^```|^\|.*?$", "", text, flags=re.MULTILINE | re.DOTALL)
    words = len(prose.split())
    assert re.match(r"# \S", text), f"{path.name} begins with its title"
    if words > TWO_SCREENS:
        assert len(re.findall(r"^## ", text, re.MULTILINE)) >= 3, f"{path.name}: {words} words and no contents"
    assert not re.search(r"^hide:", text), path.name


def test_every_page_is_in_the_navigation() -> None:
    listed = re.findall(r":\s*([\w-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert len(listed) == len(set(listed))
    assert {path.name for path in PAGES} <= set(listed)


def test_the_python_page_has_every_public_name() -> None:
    import swath
    import swath.xrspatial

    listed = re.findall(r"^::: (swath\S*)$", (DOCS / "python-api.md").read_text(), re.MULTILINE)
    wanted = {f"swath.{name}" for name in swath.__all__ if not name.startswith("__")}
    wanted |= {f"swath.xrspatial.{name}" for name in swath.xrspatial.__all__}
    others = {"swath.rioxarray.open_rasterio", "swath.rioxarray.to_raster", "swath.accessor.DataArrayAccessor"}
    others |= {"swath.accessor.DatasetAccessor", "swath.xarray_backend.SwathBackendEntrypoint"}
    assert set(listed) == wanted | others and len(listed) == len(set(listed))


# ------------------------------------------------------------------------------------------------------------- codecs

# Names of the table's codecs for `--compress`, and samples that they take.
WRITTEN = {
    "None": ("none", "uint16"),
    "PackBits": ("packbits", "uint8"),
    "LZW": ("lzw", "uint16"),
    "Deflate": ("deflate", "uint16"),
    "Zstd": ("zstd", "uint16"),
    "JPEG": ("jpeg", "uint8"),
    "CCITT RLE, T.4, T.6": ("ccittfax4", "bits"),
    "LZMA": ("lzma", "uint16"),
    "LZ4": ("lz4", "uint16"),
    "LERC": ("lerc", "float32"),
    "WebP": ("webp", "rgb"),
    "JPEG 2000": ("jpeg2000", "uint8"),
}


def codecs_on_the_page() -> dict[str, dict[str, str | None]]:
    """The table of docs/codecs.md; a dash is none."""
    lines = [line for line in (DOCS / "codecs.md").read_text().splitlines() if line.startswith("|")]
    names = [cell.strip() for cell in lines[0].strip("|").split("|")]
    found = {}
    for line in lines[2:]:
        cells = [cell.strip().strip("`") for cell in line.strip("|").split("|")]
        if len(cells) == len(names):
            found[cells[0]] = {name: None if cell == "–" else cell for name, cell in zip(names[1:], cells[1:])}
    return found


def test_the_table_of_codecs_is_the_engines(swath: Swath) -> None:
    listed = json.loads(swath.run("info", "--codecs", "--json").stdout)
    page = codecs_on_the_page()
    assert list(page) == [codec["name"] for codec in listed]
    for codec in listed:
        row = page[codec["name"]]
        assert row["reads"] == "yes" and row["writes"] == ("yes" if codec["encoded_by"] else "no")
        assert row["CPU decodes with"] == codec["decoded_by"] and row["CPU encodes with"] == codec["encoded_by"]
        assert row["feature"] == codec["feature"], codec["name"]
    assert set(WRITTEN) == {name for name, row in page.items() if row["writes"] == "yes"}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory, swath: Swath) -> dict[str, Path]:
    """A file of each codec that can be written."""
    import swath as package

    folder = tmp_path_factory.mktemp("codecs")
    grey = (np.indices((256, 256)).sum(0) // 3 % 200).astype("uint8")
    samples = {"uint8": grey, "uint16": grey.astype("uint16"), "float32": grey.astype("float32")}
    samples |= {"rgb": np.stack([grey, grey, grey]), "bits": (grey > 99).astype("uint8")}
    found = {}
    for name, (codec, kind) in WRITTEN.items():
        plain, found[name] = folder / f"plain-{codec}.tif", folder / f"{codec}.tif"
        package.to_geotiff(samples[kind], str(plain), compression=None, nbits=1 if kind == "bits" else None)
        words = ["--nbits", "1"] if kind == "bits" else []
        done = swath.run("convert", plain, found[name], "--compress", codec, "--tile", "128", *words)
        assert done.ok, done.stderr
    return found


def on_stand_in(swath: Swath, libraries: bool, *words: object) -> subprocess.CompletedProcess[str]:
    """Runs the command on the fake driver, with or without stand-ins for NVIDIA's libraries."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    known = environment("async=1 seed=5")
    known["SWATH_CUDA_LIBRARIES"] = str(target / "fake-driver" / "libraries") if libraries else "/nowhere"
    command = [str(swath.binary), *map(str, words), "--device", "cuda", "--trust-input"]
    return subprocess.run(command, env=known, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def stand_ins() -> None:
    for script in ("build.sh", "libraries.sh"):
        subprocess.run([ROOT / "tools/fake-driver" / script], check=True, capture_output=True)


@pytest.mark.parametrize("libraries", [False, True], ids=["alone", "with libraries"])
@pytest.mark.usefixtures("stand_ins")
def test_the_gpu_decodes_what_the_table_says(swath: Swath, written: dict[str, Path], libraries: bool) -> None:
    page = codecs_on_the_page()
    for name, path in written.items():
        by = page[name]["GPU decodes with"]
        done = on_stand_in(swath, libraries, "dump", path, "--out", path.with_suffix(".npy"))
        assert (done.returncode == 0) == (by == "own" or (by is not None and libraries)), (name, by, done.stderr)


@pytest.mark.parametrize("libraries", [False, True], ids=["alone", "with libraries"])
@pytest.mark.usefixtures("stand_ins")
def test_the_gpu_encodes_what_the_table_says(swath: Swath, written: dict[str, Path], libraries: bool) -> None:
    page = codecs_on_the_page()
    for name, path in written.items():
        by = page[name]["GPU encodes with"] or ""
        codec, kind = WRITTEN[name]
        words = ["--nbits", "1"] if kind == "bits" else []
        plain = path.with_name(f"plain-{codec}.tif")
        done = on_stand_in(swath, libraries, "convert", plain, path.with_name("gpu.tif"), "--compress", codec, *words)
        assert done.returncode == 0, (name, done.stderr)
        by_the_cpu = "CPU" in done.stderr
        assert by_the_cpu != (by.startswith("own") or (bool(by) and libraries)), (name, by, done.stderr)
