"""The package as a whole: its imports, its docstrings, and its examples, which run."""

from __future__ import annotations

import ast
import doctest
import importlib
import importlib.metadata
import inspect
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest
import swath as sw
from harness import ROOT

PACKAGE = Path(sw.__file__).parent
MODULES = sorted(
    module.name for module in pkgutil.iter_modules([str(PACKAGE)], "swath.") if module.name != "swath._swath"
)


def test_the_installed_package_is_tested() -> None:
    assert importlib.metadata.version("swath") == sw.__version__
    assert (PACKAGE / "py.typed").is_file() and (PACKAGE / "_swath.pyi").is_file()


def test_importing_takes_nothing_but_numpy() -> None:
    heavy = [
        "xarray",
        "pandas",
        "dask",
        "distributed",
        "pyproj",
        "rasterio",
        "fsspec",
        "obstore",
        "cupy",
        "torch",
        "tqdm",
    ]
    code = f"import sys, swath; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_dependency_that_is_missing_is_named() -> None:
    code = """
import sys
sys.modules["xarray"] = None
import numpy as np, swath
swath.to_geotiff(np.ones((4, 4), "uint8"), "/tmp/swath-without-xarray.tif")
try:
    swath.open_geotiff("/tmp/swath-without-xarray.tif")
except ImportError as error:
    assert "swath[xarray]" in str(error), error
else:
    raise SystemExit("no error")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_xarray_engine_is_found() -> None:
    [entry] = [entry for entry in importlib.metadata.entry_points(group="xarray.backends") if entry.name == "swath"]
    assert entry.load().__name__ == "SwathBackendEntrypoint"


def test_everything_public_has_a_docstring() -> None:
    for name in sw.__all__:
        if not name.startswith("__"):
            assert inspect.getdoc(getattr(sw, name)), name
    for member in ("read", "chips", "read_windows", "read_mask", "metadata", "device_report"):
        assert getattr(sw.Dataset, member).__doc__, member


@pytest.mark.parametrize("name", ["swath", *MODULES])
def test_examples_in_docstrings_run(name: str) -> None:
    failed, _ = doctest.testmod(
        importlib.import_module(name), optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    )
    assert failed == 0


def test_the_public_functions_have_examples() -> None:
    finder = doctest.DocTestFinder()
    for name in ("open_geotiff", "to_geotiff", "read", "info", "validate", "stats", "devices"):
        assert any(test.examples for test in finder.find(getattr(sw, name), name)), name


def test_the_quick_start_is_what_the_demo_runs() -> None:
    script = (ROOT / "tools" / "quickstart.py").read_text().split('"""\n', 1)[1].strip()
    assert f"```python\n{script}\n```" in (ROOT / "docs" / "quick-start.md").read_text()


def test_no_module_reaches_past_the_engine() -> None:
    """rasterio and GDAL are for the tests: the package itself never imports them."""
    for path in PACKAGE.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            assert not {"rasterio", "osgeo", "rioxarray", "xrspatial"} & {name.partition(".")[0] for name in names}, (
                path
            )
