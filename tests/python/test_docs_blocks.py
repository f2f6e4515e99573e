"""Every code block of README and the site runs: Python and shell here, Rust as doc tests of the crate `swath`."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from documented import ABOUT_GPU, BUILDS, blocks, make_files
from harness import ROOT, Swath, scratch
from remote import Files, direct
from remote_stores import AZURE_ACCOUNT, AZURE_KEY, Store, fetch
from test_py_matrix import environment

pytest_plugins = ("remote_fixtures",)

# The page of the package on PyPI is a README of its own.
ON_PYPI = ROOT / "crates/swath-python/README.md"
PAGES = [ROOT / "README.md", ON_PYPI, *sorted((ROOT / "docs").glob("*.md"))]
# Languages that run, and languages of what programs print.
CODE, SHOWN = {"python", "sh", "rust"}, {"text", "json"}


def languages(path: Path) -> set[str]:
    return {block.language for block in blocks(path.read_text())}


def runs(path: Path) -> bool:
    """Whether a page has more than lines that build the project."""
    for block in blocks(path.read_text()):
        lines = [line for line in block.code.splitlines() if line.strip() and not BUILDS.match(line)]
        if block.language in ("python", "sh") and lines:
            return True
    return False


RUNNING = [path for path in PAGES if runs(path)]


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """An HTTP server with a COG, in the place of https://example.com."""
    with scratch() as folder:
        code = "import documented, pathlib, sys; documented.make_files(pathlib.Path(sys.argv[1]))"
        subprocess.run([sys.executable, "-c", code, folder], cwd=ROOT / "tests" / "python", check=True)
        made = Path(folder, "scene.tif")
        with direct(), Files({"/cog.tif": made.read_bytes(), "/private/cog.tif": made.read_bytes()}) as files:
            yield files.url


@pytest.mark.parametrize("path", RUNNING, ids=lambda path: path.name)
def test_every_block_runs(path: Path, swath: Swath, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    text = path.read_text()
    words = {**(environment() if ABOUT_GPU.search(text) else os.environ)}
    if ABOUT_GPU.search(text):
        subprocess.run([ROOT / "tools/fake-driver/build.sh"], check=True, capture_output=True)
    words["PATH"] = os.pathsep.join((str(swath.binary.parent), str(Path(sys.executable).parent), words["PATH"]))
    if "https://example.com" in text:
        words["SWATH_EXAMPLE_SERVER"] = request.getfixturevalue("server")
    if "s3://" in text:
        store: Store = request.getfixturevalue("s3")
        _, made, _ = fetch("GET", f"{request.getfixturevalue('server')}/cog.tif")
        signed = {"x-amz-acl": "public-read", "Authorization": "AWS tests:tests", "Content-Type": "image/tiff"}
        assert fetch("PUT", store.object_url("public.tif"), made, signed)[0] == 200
        words |= {"AWS_ENDPOINT_URL": store.url, "AWS_REGION": "us-east-1"}
        words |= {"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "secret"}
    if "az://" in text:
        store = request.getfixturevalue("azure")
        words |= {"AZURE_STORAGE_ACCOUNT": AZURE_ACCOUNT, "AZURE_STORAGE_KEY": AZURE_KEY}
        words |= {"AZURE_ENDPOINT": str(store.options["endpoint"])}
    out = tmp_path / "out.json"
    command = [sys.executable, ROOT / "tests/python/documented.py", "--every", path, "--out", out]
    with direct():
        run = subprocess.run(
            list(map(str, command)), env=words, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300
        )
    assert run.returncode == 0, run.stdout + run.stderr
    assert json.loads(out.read_text())["cases"]


def test_the_index_of_a_sentinel_2_scene_is_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The block of the quick start subtracts what the product adds, and leaves out what has no data."""
    import swath

    make_files(tmp_path)
    monkeypatch.chdir(tmp_path)
    quick_start = (ROOT / "docs" / "quick-start.md").read_text()
    code = next(block.code for block in blocks(quick_start) if block.language == "python" and "B04.tif" in block.code)
    exec(compile(code, "quick-start.md", "exec"), {"swath": swath})
    red, nir = (swath.read(f"{name}.tif", 1).astype("float64") for name in ("B04", "B08"))
    expected = np.where(red == 0, np.nan, (nir - red) / (nir + red - 2000))
    found = swath.read("sentinel-ndvi.tif", 1)
    np.testing.assert_allclose(found.reshape(expected.shape), expected, rtol=1e-5)
    assert np.isnan(expected).any() and swath.Dataset("sentinel-ndvi.tif").crs == swath.Dataset("B04.tif").crs
    assert swath.validate("sentinel-ndvi.tif", full=True)["valid"]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_every_block_says_what_it_is(path: Path) -> None:
    text = path.read_text()
    assert languages(path) <= CODE | SHOWN, f"{path.name}: languages are {sorted(CODE | SHOWN)}"
    assert not re.search(r"^[ \t]+```", text, re.MULTILINE), f"{path.name}: an indented block would not be found"
    assert text.count("\n```") % 2 == 0, path.name


def test_rust_blocks_are_doc_tests() -> None:
    """The crate includes every page with Rust, and only GPU examples are compiled without being run."""
    included = (ROOT / "crates/swath/src/lib.rs").read_text()
    for path in PAGES:
        rust = re.findall(r"^```rust(\S*)\n(.*?)^```", path.read_text(), re.M | re.S)
        if rust:
            assert f'include_str!("../../../{path.relative_to(ROOT)}")' in included, path.name
        for options, code in rust:
            assert options in ("", ",no_run"), path.name
            assert not options or "Cuda" in code, f"{path.name}: run this block: it needs no GPU"


def test_the_page_on_pypi_has_whole_addresses() -> None:
    """PyPI finds nothing by a relative link, and the pages that are linked exist."""
    links = re.findall(r"\]\(([^)]+)\)", ON_PYPI.read_text())
    files = "https://github.com/swath-raster/swath/blob/main/"
    assert links and all(link.startswith(files) for link in links)
    assert all((ROOT / link.removeprefix(files)).is_file() for link in links)


def build_lines() -> list[str]:
    """Lines that build the project, which the tests above leave out."""
    found = []
    for path in PAGES:
        for block in blocks(path.read_text()):
            if block.language == "sh":
                found += [line.partition("#")[0].strip() for line in block.code.splitlines() if BUILDS.match(line)]
    return found


def test_what_build_lines_name_exists() -> None:
    """Such lines take minutes, and CI runs most of them; here their targets, paths, packages and extras are checked."""
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    repository = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["repository"]
    lines = build_lines()
    assert {"make demo", "make test", "pip install .", "cargo install --locked --path crates/swath-cli"} <= set(lines)
    for line in lines:
        words = line.split()
        if words[0] == "make":
            assert words[1] in targets, line
        elif words[:2] == ["pip", "install"]:
            named = re.fullmatch(r"pip install '?(?:\.|swath)(?:\[(\w+)\])?'?", line)
            assert named and (named[1] is None or named[1] in extras), line
        elif words[:4] == ["cargo", "install", "--locked", "--path"]:
            assert (ROOT / words[4] / "Cargo.toml").is_file(), line
        elif words[:2] == ["git", "clone"]:
            assert words[2:] == [repository, "&&", "cd", repository.rpartition("/")[2]], line
        elif words[:2] == ["cargo", "add"]:
            assert (ROOT / words[words.index("--path") + 1] / "Cargo.toml").is_file(), line
        elif words[:3] == ["cargo", "doc", "-p"]:
            assert (ROOT / "crates" / words[3] / "Cargo.toml").is_file(), line
        elif words[:2] == ["cargo", "run"]:
            example = words[words.index("--example") + 1]
            assert (ROOT / f"crates/swath/examples/{example}.rs").is_file(), line
        else:
            pytest.fail(f"nothing checks this line: {line}")
