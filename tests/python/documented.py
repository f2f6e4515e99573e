#!/usr/bin/env python3
"""Runs the Python examples of the documents that use a GPU, unchanged.

    python3 documented.py --out R.json README.md docs/*.md

Of each document it runs the Python blocks that mention CuPy, torch, `device="cuda"` or `gpu=True`, statement by
statement, in one namespace, in a folder that has a `scene.tif`. It reports a statement that fails by its line, and
continues. It leaves out addresses of stores, because there is no network here.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import swath

FENCE = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
ABOUT_GPU = re.compile(r"""device=["']cuda|gpu=True|\bcupy\b|\btorch\b""", re.IGNORECASE)
AWAY = re.compile(r"""["'](s3|gs|az|https?)://""")
# Large enough for the windows and bands of the examples.
SCENE = (4, 1536, 2560)


def blocks(text: str) -> Iterator[tuple[int, str]]:
    """Blocks of Python about the GPU, each with the number of its first line."""
    for found in FENCE.finditer(text):
        if ABOUT_GPU.search(found[1]):
            yield text.count("\n", 0, found.start(1)) + 1, found[1]


def make_scene(folder: Path) -> None:
    """Makes a COG of four bands of uint16 with overviews and holes, under the name that the documents use."""
    count, height, width = SCENE
    y, x = np.indices((height, width), dtype="uint16")
    scene = np.stack([(x // 7 + y // 5 + 11 * band) % 4000 + 1 for band in range(count)]).astype("uint16")
    scene[:, 100:140, 200:300] = 0
    words = {"crs": 32633, "transform": (10, 0, 500_000, 0, -10, 5_000_000), "nodata": 0, "band_axis": 0}
    swath.to_geotiff(scene, str(folder / "scene.tif"), cog=True, device="cpu", **words)


def run(documents: list[Path], folder: Path, say: Callable[[str], None] = print) -> dict[str, Any]:
    """Runs the examples in a folder; returns how many there were, which failed, and which were left out."""
    started = time.perf_counter()
    found: dict[str, Any] = {"cases": 0, "failed": [], "left_out": [], "ran": []}
    texts = [(path.name, path.read_text()) for path in documents]
    before = Path.cwd()
    os.chdir(folder)
    try:
        make_scene(folder)
        for name, text in texts:
            # Names that the documents use without defining them.
            namespace: dict[str, Any] = {"__name__": "document", "np": np, "array": np.empty(SCENE, "uint16")}
            for first, code in blocks(text):
                _run_block(name, first, code, namespace, found, say)
    finally:
        os.chdir(before)
    return {**found, "seconds": round(time.perf_counter() - started, 2)}


def _run_block(
    name: str, first: int, code: str, namespace: dict[str, Any], found: dict[str, Any], say: Callable[[str], None]
) -> None:
    try:
        statements = ast.parse(code).body
    except SyntaxError as error:
        found["failed"].append({"name": f"{name}:{first}", "error": f"SyntaxError: {error}"})
        say(f"FAILED {name}:{first}: {error}")
        return
    for statement in statements:
        source = ast.get_source_segment(code, statement) or ""
        title = f"{name}:{first + statement.lineno - 1}: {source.splitlines()[0]}"
        if AWAY.search(source):
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


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("documents", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="swath-documented-") as folder:
        found = run(args.documents, Path(folder))
    args.out.write_text(json.dumps(found, indent=1) + "\n")
    print(f"{found['cases']} statements, {len(found['failed'])} failed, {found['seconds']} s")
    return 1 if found["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
