"""Reads into masked arrays, reads beyond the edges of the image, and reads of single points."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from ._array import HostArray, check_shape, host_view, put
from ._checks import truth
from ._errors import LimitError, UsageError
from ._lazy import is_nodata
from ._window import Pixels, Window

if TYPE_CHECKING:
    from ._dataset import Dataset

# Number of points read at once.
_POINTS_PER_READ = 1024


def read_masked(
    dataset: Dataset,
    window: Pixels,
    bands: Sequence[int],
    overview: int | None,
    *,
    single: bool,
    masked: bool,
    fill_value: Any,
    out: Any,
    options: dict[str, Any],
) -> Any:
    """Returns the samples of a window that may extend beyond the image, as a masked array where `masked` says so."""
    if options["device"] == "cuda":
        name = "masked" if masked else "boundless"
        raise UsageError(f'{name}=True returns NumPy arrays, device="cuda" returns GPU arrays: leave out one of them')
    if masked and out is not None:
        raise UsageError("masked=True returns a new array: leave out out=")
    options = {**options, "device": None}
    found = _read_with_bands(dataset, window, bands, overview, masked, fill_value, options)
    axis = 0 if options["interleave"] == "band" else 2
    if out is not None:
        view = host_view(out)
        check_shape(view.shape, found.shape, axis)
        put(found.reshape(view.shape), view)
        return out
    found = found.squeeze(axis) if single else found
    return found if masked else found.view(HostArray)


def _read_with_bands(
    dataset: Dataset,
    window: Pixels,
    bands: Sequence[int],
    overview: int | None,
    masked: bool,
    fill_value: Any,
    options: dict[str, Any],
) -> Any:
    """Returns the samples with a band axis. Outside the image they are `fill_value`, or the band's nodata, or 0."""
    x, y, columns, rows = window
    width, height = dataset._size(overview)
    left, top = max(x, 0), max(y, 0)
    inside = (left, top, min(x + columns, width) - left, min(y + rows, height) - top)
    whole, outside = inside == window, inside[2] < 1 or inside[3] < 1
    axis = 0 if options["interleave"] == "band" else 2
    nodata = [dataset._band(band)["nodata"] for band in bands]
    if fill_value is not None:
        fill_value = _sample(fill_value, dataset.dtype)
    # The part of the window that is inside the image.
    at: tuple[slice, ...] = (slice(top - y, top - y + inside[3]), slice(left - x, left - x + inside[2]))
    at = at if axis else (slice(None), *at)
    if whole:
        samples = np.asarray(dataset.read_window(window, bands, overview, **options))
    else:
        limit = dataset._options["max_pixels"]
        if limit is not None and len(bands) * rows * columns > limit:
            raise LimitError(
                f"{dataset.name}: {len(bands)} bands of {columns} x {rows} pixels are more than max_pixels={limit}"
            )
        samples = np.empty((rows, columns, len(bands)) if axis else (len(bands), rows, columns), dataset.dtype)
        for line, missing in zip(np.moveaxis(samples, axis, 0), nodata):
            line[...] = fill_value if fill_value is not None else 0 if missing is None else missing
        if not outside:
            samples[at] = np.asarray(dataset.read_window(inside, bands, overview, **options))
    if not masked:
        return samples
    hidden = None if outside else _hidden(dataset, samples[at], axis, bands, inside, overview, options["threads"])
    mask: Any = np.ma.nomask
    if not whole or hidden is not None:
        mask = np.ones(samples.shape, bool)
    if mask is not np.ma.nomask and not outside:
        mask[at] = False if hidden is None else hidden
    # A masked array has one fill value: the nodata value that all bands share.
    if fill_value is None and len({str(value) for value in nodata}) == 1:
        fill_value = nodata[0]
    return np.ma.MaskedArray(samples, mask=mask, fill_value=fill_value)


def _hidden(
    dataset: Dataset,
    samples: np.ndarray,
    axis: int,
    bands: Sequence[int],
    window: Pixels,
    overview: int | None,
    threads: int | None,
) -> np.ndarray | None:
    """Returns where samples are missing, or None for a file without nodata and mask; `axis` is that of the bands."""
    dataset._warn_of_nodata()
    flags = [dataset._about()["mask_flags"][band - 1] for band in bands]
    by_mask = ["per_dataset" in each for each in flags]
    if not any(by_mask) and not any("nodata" in each for each in flags):
        return None
    hidden = np.zeros(samples.shape, bool)
    lines, values = np.moveaxis(hidden, axis, 0), np.moveaxis(samples, axis, 0)
    masked_out = np.asarray(dataset.read_mask(window, overview, threads=threads)) == 0 if any(by_mask) else None
    for number, band in enumerate(bands):
        if by_mask[number]:
            lines[number] = masked_out
        elif "nodata" in flags[number]:
            lines[number] = is_nodata(values[number], dataset._band(band)["nodata"])
    return hidden


def _sample(value: Any, dtype: np.dtype) -> Any:
    """Returns a fill value as a sample of this type."""
    kind = np.asarray(value).dtype.kind
    fits = np.ndim(value) == 0 and kind in "biufc" and (kind != "c" or dtype.kind == "c")
    if fits and dtype.kind in "iu":
        limits = np.iinfo(dtype)
        fits = limits.min <= value <= limits.max and value == int(value)
    if not fits:
        raise UsageError(f"fill_value={value!r} is not a value of {dtype}: give one that is")
    return dtype.type(value)


def sample_points(dataset: Dataset, xy: Iterable[Any], indexes: Any, masked: bool) -> Iterator[np.ndarray]:
    """Yields a sample of each band for each point (x, y); see `Dataset.sample`."""
    bands = dataset._band_numbers(indexes) or list(dataset.indexes)
    nodata = [dataset._band(band)["nodata"] for band in bands]
    outside = np.array([0 if value is None else value for value in nodata], dataset.dtype)
    try:
        points = iter(xy)
    except TypeError:
        raise UsageError(f"xy={xy!r}: give a list of pairs (x, y) of numbers") from None
    masked = truth("masked", masked)
    while group := list(islice(points, _POINTS_PER_READ)):
        try:
            xs, ys = np.array([(x, y) for x, y in group], float).T
        except (OverflowError, TypeError, ValueError):
            raise UsageError("xy: give a list of pairs (x, y) of numbers") from None
        rows, columns = dataset.index(xs, ys)
        inside = (rows >= 0) & (rows < dataset.height) & (columns >= 0) & (columns < dataset.width)
        windows = [Window(int(x), int(y), 1, 1) for x, y in zip(columns[inside], rows[inside])]
        samples: Iterator[Any] = iter(())
        if masked:
            samples = (dataset.read(bands, window, masked=True)[:, 0, 0] for window in windows)
        elif windows:
            samples = iter(np.asarray(dataset.read_windows(windows, bands))[:, :, 0, 0])
        for hit in inside:
            blank = np.ma.MaskedArray(outside, mask=True) if masked else outside.copy()
            yield next(samples) if hit else blank
