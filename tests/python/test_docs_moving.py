"""The pages about moving to swath: what they say you wrote and what they say you write gives the same.

Each row of a table `you wrote | you write | what differs` is run twice, in a folder and a namespace for each column.
Values and written rasters must be equal, except where the third column begins with "Other result": then they must
differ.
"""

from __future__ import annotations

import ast
import contextlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import xarray
from documented import make_files
from harness import ROOT, Swath

PEERS = Path(sys.prefix, "peers")
HEAD = "| you wrote | you write | what differs |"


class Row(NamedTuple):
    line: int
    wrote: str
    write: str
    differs: str


def rows(page: str) -> list[Row]:
    """The rows of a page's tables about moving."""
    found, inside = [], False
    for number, line in enumerate((ROOT / "docs" / page).read_text().splitlines(), 1):
        if line == HEAD:
            inside = True
        elif not line.startswith("|"):
            inside = False
        elif inside and not line.startswith("|---"):
            cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            assert len(cells) == 3 and all(re.fullmatch(r"`[^`]+`", cell) for cell in cells[:2]), f"{page}:{number}"
            found.append(Row(number, cells[0].strip("`"), cells[1].strip("`"), cells[2]))
    return found


def run(code: str, names: dict[str, Any]) -> Any:
    """Runs code. Returns the assigned value if its last statement is an assignment, otherwise None."""
    exec(compile(code, "moving", "exec"), names)
    last = ast.parse(code).body[-1]
    if not isinstance(last, ast.Assign):
        return None
    return eval(ast.unparse(last.targets[0]), names)


@contextlib.contextmanager
def inside(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def plain(value: Any) -> Any:
    """A value in a form that can be compared, whichever library it comes from."""
    if isinstance(value, xarray.Dataset):
        return {name: plain(value[name]) for name in sorted(map(str, value.data_vars))}
    if isinstance(value, xarray.DataArray):
        edges = {axis: plain(np.asarray(value[axis])) for axis in ("x", "y", "band") if axis in value.coords}
        return {"dims": value.dims, "values": plain(value.values), **edges}
    if isinstance(value, np.ma.MaskedArray):
        return {"values": plain(value.filled(0)), "mask": plain(np.ma.getmaskarray(value))}
    if isinstance(value, np.ndarray):
        return str(value.dtype), value.shape, np.where(value == value, value, 0).tobytes(), (value != value).tobytes()
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, (types.ModuleType, types.FunctionType, type(None))):
        return None
    if hasattr(value, "to_wkt"):
        return value.to_epsg() if hasattr(value, "to_epsg") else value.to_wkt()
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, (tuple, list)):
        return [plain(each) for each in value]
    if hasattr(value, "overviews"):
        return "an open file"
    return value


def rasters(folder: Path) -> dict[str, Any]:
    """Pixels and georeference of every file that a line wrote; the files are removed."""
    import rasterio

    found = {}
    for path in sorted(folder.glob("*.tif")):
        if path.stem not in ("scene", "dem", "B04", "B08"):
            with rasterio.open(path) as raster:
                facts = (raster.crs and raster.crs.to_epsg(), tuple(raster.transform), raster.nodata)
                found[path.name] = (plain(raster.read()), facts)
            path.unlink()
    return found


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("originals")
    make_files(folder)
    return folder


def two_folders(tmp_path: Path, originals: Path) -> tuple[Path, Path]:
    for side in ("wrote", "write"):
        shutil.copytree(originals, tmp_path / side)
    return tmp_path / "wrote", tmp_path / "write"


def check(row: Row, page: str, left: Any, right: Any) -> None:
    where = f"docs/{page}:{row.line}: `{row.wrote}` and `{row.write}`"
    if row.differs.startswith("**Other result**"):
        assert left != right, f"{where} give the same, but the page says otherwise"
    else:
        assert left == right, f"{where} give different results"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("page", ["rioxarray.md", "rasterio.md"])
def test_lines_of_python_give_the_same(page: str, tmp_path: Path, originals: Path) -> None:
    import rasterio.windows
    import swath

    folders = two_folders(tmp_path, originals)
    common = {"np": np, "swath": swath, "rasterio": rasterio}
    names: list[dict[str, Any]] = [dict(common), dict(common)]
    found = rows(page)
    assert len(found) >= 12
    for row in found:
        values = []
        for code, folder, known in zip((row.wrote, row.write), folders, names):
            with inside(folder):
                values.append(plain(run(code, known)))
        check(row, page, *values)
        check(row._replace(differs=""), page, *map(rasters, folders))


XRSPATIAL = """
import json, os, sys
sys.path[:0] = json.loads(sys.argv[1])
import numpy, test_docs_moving as moving
names, out = {}, []
for code in json.loads(sys.stdin.read()):
    out.append(repr(moving.plain(moving.run(code, names))))
print(json.dumps(out))
"""


def test_lines_of_xarray_spatial_give_the_same(tmp_path: Path, originals: Path) -> None:
    """Each column in a process of its own: importing xarray-spatial registers accessors."""
    folders = two_folders(tmp_path, originals)
    page, found = "xarray-spatial.md", rows("xarray-spatial.md")
    assert len(found) >= 6

    def answers(lines: list[str], folder: Path, extra: list[str]) -> list[str]:
        paths = json.dumps([str(ROOT / "tests" / "python"), *extra])
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", XRSPATIAL, paths], input=json.dumps(lines), cwd=folder,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    right = answers([row.write for row in found], folders[1], [])
    if not (PEERS / "xrspatial").is_dir():
        assert sys.version_info < (3, 12), f"{PEERS} lacks xarray-spatial: `make venv-peers` installs it"
        return
    left = answers([row.wrote for row in found], folders[0], [str(PEERS)])
    for row, one, other in zip(found, left, right):
        check(row, page, one, other)
    check(found[-1], page, *map(rasters, folders))


def command(line: str, folder: Path, swath: Swath) -> None:
    path = os.pathsep.join((str(swath.binary.parent), str(Path(sys.executable).parent), os.environ["PATH"]))
    done = subprocess.run(
        shlex.split(line), cwd=folder, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{line}: {done.stdout}{done.stderr}"


def test_commands_give_the_same(tmp_path: Path, originals: Path, swath: Swath) -> None:
    page, found, compared = "gdal.md", rows("gdal.md"), 0
    assert len(found) >= 12
    for number, row in enumerate(found):
        folders = two_folders(tmp_path / str(number), originals)
        command(row.write, folders[1], swath)
        program, _, words = row.wrote.partition(" ")
        written = rasters(folders[1])
        if program == "gdal_translate" and written:
            command(f"swath convert {words}", folders[0], swath)
            check(row, page, rasters(folders[0]), written)
        if shutil.which(program, path=os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))):
            command(row.wrote, folders[0], swath)
            check(row, page, rasters(folders[0]), written)
            compared += 1
        shutil.rmtree(tmp_path / str(number))
    # rio is a part of the tests' environment.
    assert compared >= 3


def test_pages_have_tables() -> None:
    for page in ("rioxarray.md", "rasterio.md", "xarray-spatial.md", "gdal.md"):
        assert rows(page), page
