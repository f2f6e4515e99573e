"""Common first steps with a raster on a GPU, on files from other programs, compared with the same steps on the host.

Each step opens a file to the host and to the GPU, works on it, writes a GeoTIFF and a COG to a path and to bytes, and
reads them back. Pixels, attributes and reference systems must be those of the host's file. `test_py_everyday.py` runs
this on the fake driver with the stand-in for CuPy. `python everyday.py FOLDER FILE...` prints the steps that fail.
"""

from __future__ import annotations

import io
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import cupy
import numpy as np
import swath
import xarray as xr

Samples = xr.DataArray | xr.Dataset
Step = Callable[[Callable[..., xr.DataArray]], Samples]


def arithmetic(opened: Callable[..., xr.DataArray]) -> Samples:
    """Half of each sample, in the type of the file."""
    data = opened()
    return data / 2 if data.dtype.kind in "fc" else data // 2


def filtered(opened: Callable[..., xr.DataArray]) -> Samples:
    """Samples above zero; the rest becomes nodata, or NaN."""
    data = opened(masked=True)
    return data.where(abs(data) > 0)


def by_hand(opened: Callable[..., xr.DataArray]) -> Samples:
    """A DataArray without coordinates."""
    data = opened()
    return xr.DataArray(data.data, dims=data.dims)


def two_variables(opened: Callable[..., xr.DataArray]) -> Samples:
    """A Dataset, each variable of which is a band."""
    data = opened().isel(band=0, drop=True)
    return xr.Dataset({"raw": data, "again": data.copy()})


STEPS: dict[str, Step] = {
    "as opened": lambda opened: opened(),
    "masked": lambda opened: opened(masked=True),
    "in chunks": lambda opened: opened(chunks=64),
    "arithmetic": arithmetic,
    "filtered": filtered,
    "by hand": by_hand,
    "two variables": two_variables,
}


def on_host(data: xr.DataArray) -> np.ndarray:
    """Its samples as a NumPy array."""
    return np.asarray(data.values)


def written(data: Samples, folder: Path) -> dict[tuple[str, str], xr.DataArray]:
    """Writes data to files and reads them back."""
    found = {}
    for kind in ("GeoTIFF", "COG"):
        path, memory = folder / "file.tif", io.BytesIO()
        for target in (path, memory):
            swath.to_geotiff(data, target, cog=kind == "COG")
        found[kind, "path"] = swath.open_geotiff(path)
        found[kind, "bytes"] = swath.open_geotiff(memory.getvalue())
    return found


def is_on_gpu(data: Samples) -> bool:
    """Whether all samples are CuPy arrays, or dask chunks of them."""
    arrays = [data.data] if isinstance(data, xr.DataArray) else [each.data for each in data.values()]
    return all(isinstance(getattr(array, "_meta", array), cupy.ndarray) for array in arrays)


def check(path: Path, step: Step, folder: Path) -> None:
    """Fails where the files from the GPU differ from those of the host."""
    # A part of the raster is enough: the fake driver is slow.
    window = (64, 64, 200, 160)
    host = step(lambda **words: swath.open_geotiff(path, window=window, **words))
    gpu = step(lambda **words: swath.open_geotiff(path, window=window, device="cuda", **words))
    assert is_on_gpu(gpu), "the samples are not on the GPU"
    expected = written(host, folder)
    for key, found in written(gpu, folder).items():
        wanted = expected[key]
        assert found.dtype == wanted.dtype and found.dims == wanted.dims, f"{key}: {found.dtype}, {found.dims}"
        same = np.array_equal(on_host(found), on_host(wanted), equal_nan=wanted.dtype.kind in "fc")
        assert same, f"{key}: other pixels"
        attributes = [{name: str(value) for name, value in each.attrs.items()} for each in (found, wanted)]
        assert attributes[0] == attributes[1], f"{key}: {attributes[0]} where the host's file has {attributes[1]}"
        assert found.spatial_ref.attrs == wanted.spatial_ref.attrs, f"{key}: another reference system"


def main() -> int:
    """Runs all steps; returns those that failed."""
    warnings.simplefilter("error", swath.SwathWarning)
    folder, *paths = map(Path, sys.argv[1:])
    failed = steps = 0
    for path in paths:
        for name, step in STEPS.items():
            steps += 1
            try:
                check(path, step, folder)
            except Exception as error:
                failed += 1
                print(f"{path.name}, {name}: {type(error).__name__}: {error}")
    print(f"{steps} steps, {failed} failed")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
