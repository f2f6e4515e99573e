"""Shared by the tests of `swath convert`: sources to convert, and readers of the results."""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import rasterio
import tifffile
from harness import Run, Swath, difference

warnings.filterwarnings("ignore", category=rasterio.errors.NotGeoreferencedWarning)

INTEGERS = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64")
FLOATS = ("float16", "float32", "float64")
COMPLEX = ("complex64", "complex128")
DTYPES = (*INTEGERS, *FLOATS, *COMPLEX)


def pixels(shape: tuple[int, int, int], dtype: str, seed: int = 0, kind: str = "smooth") -> np.ndarray:
    """Bands × rows × columns: noise in every bit, smooth values, blocks of zeros (for sparse files), or one value."""
    rng = np.random.default_rng(seed)
    wanted = np.dtype(dtype)
    bands, rows, columns = shape
    if kind == "flat":
        return np.full(shape, seed % 100 + 1, wanted)
    if kind == "noise":
        if wanted.kind in "iu":
            return rng.integers(0, 256, (*shape, wanted.itemsize), "u1").view(wanted)[..., 0]
        values = rng.normal(0, 100.0, shape)
        return (values + 1j * values[::-1]).astype(wanted) if wanted.kind == "c" else values.astype(wanted)
    y, x = np.mgrid[0:rows, 0:columns]
    waves = np.stack([np.sin(x / (25 + b)) + np.cos(y / (37 + b)) + 2 for b in range(bands)]) / 4
    scale = min(float(np.iinfo(wanted).max), 1e6) if wanted.kind in "iu" else 1000.0
    values = waves * scale * 0.95 + rng.integers(0, 3, shape)
    out = (values - 1j * values).astype(wanted) if wanted.kind == "c" else values.astype(wanted)
    if kind == "holes":
        out[:, rows // 3 : rows // 3 + 280, columns // 4 : columns // 4 + 280] = 0
    return out


def write(path: Path, array: np.ndarray, mask: np.ndarray | None = None, **profile: Any) -> Path:
    """A GeoTIFF by GDAL."""
    bands, height, width = array.shape
    merged = {"driver": "GTiff", "dtype": array.dtype, "count": bands, "height": height, "width": width, **profile}
    with rasterio.Env(GDAL_TIFF_INTERNAL_MASK=True), rasterio.open(path, "w", **merged) as out:
        out.write(array)
        if mask is not None:
            out.write_mask(mask)
    return path


def write_plain(path: Path, array: np.ndarray, **options: Any) -> Path:
    """A TIFF by tifffile, nothing but samples: every type, no colours."""
    shaped = array[0] if len(array) == 1 else array
    if len(array) > 1:
        options.setdefault("planarconfig", "separate")
    options.setdefault("photometric", "minisblack")
    tifffile.imwrite(path, shaped, metadata=None, **options)
    return path


def convert(swath: Swath, source: Path | str, target: Path | str, *options: object, timeout: float = 60) -> Run:
    """Converts a file; fails if the tool fails."""
    run = swath.run("convert", source, target, *options, timeout=timeout)
    run.check_alive()
    assert run.ok, f"{' '.join(run.argv)}\n{run.stderr}"
    return run


def refused(swath: Swath, source: Path | str, target: Path, *options: object) -> str:
    """Returns the error line of a refused conversion, which must leave no file behind."""
    before = sorted(target.parent.iterdir()) if target.parent.is_dir() else None
    message = swath.run("convert", source, target, *options).check_refusal()
    after = sorted(target.parent.iterdir()) if target.parent.is_dir() else None
    assert before == after, f"a refusal left files behind: {message}"
    return message


def by_gdal(path: Path | str, overview: int | None = None) -> np.ndarray:
    with rasterio.open(path, **({} if overview is None else {"overview_level": overview})) as dataset:
        return dataset.read()


def by_tifffile(path: Path, shape: tuple[int, int, int]) -> np.ndarray:
    """The first page as bands × rows × columns."""
    with tifffile.TiffFile(path) as tiff:
        page = tiff.pages[0]
        array = page.asarray()
        if page.planarconfig == 1 and shape[0] > 1:
            array = np.moveaxis(array.reshape(shape[1], shape[2], shape[0]), -1, 0)
    return np.ascontiguousarray(array.reshape(shape))


def equal(got: np.ndarray, want: np.ndarray, who: str) -> None:
    """Bit for bit."""
    result = difference(np.ascontiguousarray(got), np.ascontiguousarray(want))
    assert result == "equal", f"{who}: {result}"


def deck(values: Iterable[Any], seed: int) -> Iterator[Any]:
    """Every value once in a shuffled order, again and again."""
    cards = list(values)
    rng = random.Random(seed)
    while True:
        rng.shuffle(cards)
        yield from cards
