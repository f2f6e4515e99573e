"""A first open imports only packages that it uses."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import swath

OPEN = """
import sys
import xarray
{ways}
heavy = {{"dask", "rasterio", "rioxarray", "scipy", "jinja2", "distributed"}}
print(sorted(heavy & set(sys.modules)))
"""
WAYS = {
    "engine": "from swath.xarray_backend import SwathBackendEntrypoint as engine\n"
    "found = xarray.open_dataset({path!r}, engine=engine)\n"
    "assert found.band_data.shape == (1, 8, 8) and found.spatial_ref.dtype == 'int64'",
    "open_geotiff": "import swath\nassert swath.open_geotiff({path!r}).shape == (1, 8, 8)",
    "one band": "import swath\nassert swath.open_geotiff({path!r}, band=1).band.dtype == 'int64'",
}


@pytest.mark.parametrize("way", WAYS)
def test_a_first_open_imports_no_dask(tmp_path: Path, way: str) -> None:
    path = str(tmp_path / "a.tif")
    swath.to_geotiff(np.ones((8, 8), "uint8"), path, crs=32633, transform=(1, 0, 0, 0, -1, 0))
    code = OPEN.format(ways=WAYS[way].format(path=path))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"
