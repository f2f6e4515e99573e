#!/usr/bin/env python3
"""Runs the code blocks of the documents, unchanged.

    python3 documented.py --out R.json README.md docs/*.md          # blocks of Python that use a GPU
    python3 documented.py --out R.json --every docs/reading.md      # every block of Python and of the shell

Without `--every` it runs the Python blocks that mention CuPy, torch, `device="cuda"` or `gpu=True`, and leaves out
addresses of stores: a machine with a GPU runs it so. With `--every` it runs every block of Python and of the shell, in
the order of the page, and replaces the address `https://example.com` by that of `SWATH_EXAMPLE_SERVER`.

Blocks of a page share a folder and a namespace. The folder has a `scene.tif`, a `dem.tif`, a `demo/terrain.tif`,
and the bands `B04.tif` and `B08.tif` of a Sentinel-2 scene.
Python runs statement by statement, and a statement that fails is reported by its line.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import swath

FENCE = re.compile(r"^```([^\n`]*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
ABOUT_GPU = re.compile(r"""device=["']cuda|gpu=True|--device cuda|\bcupy\b|\btorch\b""", re.IGNORECASE)
AWAY = re.compile(r"""["'](s3|gs|az|https?)://""")
EXAMPLE_SERVER = "https://example.com"
# Large enough for the windows and bands of the examples.
SCENE = (4, 1536, 2560)
# Commands that build the project: `test_docs_blocks.py` checks what they name, and CI runs them.
BUILDS = re.compile(r"^\s*(make|pip install|cargo|git clone|source|bench/gpu/|target/gpu-bundle/)\b")


class Block(NamedTuple):
    """A fenced block of a page."""

    line: int
    """Number of its first line of code."""
    language: str
    code: str


def blocks(text: str) -> Iterator[Block]:
    """Every fenced block of a page. Rust blocks count as `rust`, with or without attributes such as `no_run`."""
    for found in FENCE.finditer(text):
        language = found[1].split(",")[0].split(" ")[0]
        yield Block(text.count("\n", 0, found.start(2)) + 1, language, found[2])


def make_files(folder: Path) -> None:
    """Makes the rasters that the documents name: a COG of four bands of uint16 with holes, and elevation models."""
    count, height, width = SCENE
    y, x = np.indices((height, width), dtype="uint16")
    scene = np.stack([(x // 7 + y // 5 + 11 * band) % 4000 + 1 for band in range(count)]).astype("uint16")
    scene[:, 100:140, 200:300] = 0
    words = {"crs": 32633, "transform": (10, 0, 500_000, 0, -10, 5_000_000), "device": "cpu"}
    swath.to_geotiff(scene, str(folder / "scene.tif"), cog=True, nodata=0, band_axis=0, **words)
    heights = (800 + 300 * np.sin(x[:768, :1024] / 90) * np.cos(y[:768, :1024] / 70)).round(2).astype("float32")
    heights[300:360, 400:520] = -9999
    swath.to_geotiff(heights, str(folder / "dem.tif"), cog=True, nodata=-9999, **words)
    make_sentinel(folder, words)
    # The raster that `make demo` makes, which the quick start goes on with.
    (folder / "demo").mkdir()
    swath.to_geotiff(heights, str(folder / "demo" / "terrain.tif"), nodata=-9999, compression="deflate", **words)


def make_sentinel(folder: Path, words: dict[str, Any]) -> None:
    """Makes two bands as `gdal_translate` makes them of a Level-2A product in .jp2 files: 0 means no data but is not
    declared as nodata, and 1000 is added to reflectances in parts of ten thousand.
    """
    y, x = np.indices((768, 1024), dtype="uint16")
    outside = x + y < 300
    for name, values in (("B04", 200 + (x // 4 + y // 3) % 900), ("B08", 1500 + (x // 5 + y // 2) % 2500)):
        samples = np.where(outside, 0, values + 1000).astype("uint16")
        swath.to_geotiff(samples, str(folder / f"{name}.tif"), compression="deflate", **words)


def run(documents: list[Path], folder: Path, say: Callable[[str], None] = print, every: bool = False) -> dict[str, Any]:
    """Runs the examples in a folder; returns how many there were, which failed, and which were left out."""
    started = time.perf_counter()
    found: dict[str, Any] = {"cases": 0, "failed": [], "left_out": [], "ran": []}
    texts = [(path.name, path.read_text(encoding="utf-8")) for path in documents]
    before = Path.cwd()
    for name, text in texts:
        if not any(_wanted(block, every) for block in blocks(text)):
            continue
        work = folder / Path(name).stem
        work.mkdir()
        os.chdir(work)
        try:
            make_files(work)
            _run_page(name, text, found, say, every)
        finally:
            os.chdir(before)
            shutil.rmtree(work, ignore_errors=True)
    return {**found, "seconds": round(time.perf_counter() - started, 2)}


def _run_page(name: str, text: str, found: dict[str, Any], say: Callable[[str], None], every: bool) -> None:
    # Names that the documents use without defining them.
    namespace: dict[str, Any] = {"__name__": "document", "np": np, "array": np.empty(SCENE, "uint16")}
    for block in blocks(text):
        if not _wanted(block, every):
            continue
        if block.language == "python":
            _run_python(name, block, namespace, found, say, every)
        else:
            _run_shell(name, block, found, say)


def _wanted(block: Block, every: bool) -> bool:
    if every:
        return block.language in ("python", "sh")
    return block.language == "python" and ABOUT_GPU.search(block.code) is not None


def _run_python(
    name: str,
    block: Block,
    namespace: dict[str, Any],
    found: dict[str, Any],
    say: Callable[[str], None],
    every: bool,
) -> None:
    code = _with_server(block.code) if every else block.code
    try:
        statements = ast.parse(code).body
    except SyntaxError as error:
        found["failed"].append({"name": f"{name}:{block.line}", "error": f"SyntaxError: {error}"})
        say(f"FAILED {name}:{block.line}: {error}")
        return
    for statement in statements:
        source = ast.get_source_segment(code, statement) or ""
        title = f"{name}:{block.line + statement.lineno - 1}: {source.splitlines()[0]}"
        if AWAY.search(source) and not every:
            found["left_out"].append(title)
            continue
        found["cases"] += 1
        found["ran"].append(title)
        try:
            exec(compile(ast.Module([statement], []), name, "exec"), namespace)
        except Exception as error:
            message = f"{type(error).__name__}: {error}"[:600]
            found["failed"].append({"name": title, "error": message})
            say(f"FAILED {title}: {message}")


def _run_shell(name: str, block: Block, found: dict[str, Any], say: Callable[[str], None]) -> None:
    """Runs the lines of a block in one shell, except those that build the project."""
    lines = block.code.splitlines()
    title = f"{name}:{block.line}: {lines[0]}"
    kept = [line for line in lines if not BUILDS.match(line)]
    found["left_out"] += [f"{name}: {line}" for line in lines if BUILDS.match(line)]
    code = _with_server("\n".join(kept))
    if not any(line.strip() and not line.lstrip().startswith("#") for line in kept):
        return
    found["cases"] += 1
    found["ran"] += [f"{name}: {line}" for line in kept]
    command = ["bash", "-eu", "-o", "pipefail", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode:
        message = f"exit status {done.returncode}: {(done.stdout + done.stderr)[-600:]}"
        found["failed"].append({"name": title, "error": message})
        say(f"FAILED {title}: {message}")


def _with_server(code: str) -> str:
    return code.replace(EXAMPLE_SERVER, os.environ.get("SWATH_EXAMPLE_SERVER", EXAMPLE_SERVER))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("documents", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--every", action="store_true", help="run every block of Python and of the shell")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="swath-documented-") as folder:
        found = run(args.documents, Path(folder), every=args.every)
    args.out.write_text(json.dumps(found, indent=1) + "\n")
    print(f"{found['cases']} cases, {len(found['failed'])} failed, {found['seconds']} s")
    return 1 if found["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
