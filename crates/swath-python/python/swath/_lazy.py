"""`Reader`: a window of a file as an array that reads when it is indexed; eager reads, dask and xarray use it."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Hashable
from contextvars import ContextVar
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _swath
from ._checks import check_chunks
from ._errors import DeviceError, DeviceWarning, UsageError, make, warn
from ._source import resolve
from ._threads import each

if TYPE_CHECKING:
    from ._dataset import Dataset

# Type of the samples, number of bands, width and height of the level.
Facts = tuple[str, int, int, int]

# Relative distance within which GDAL takes a float for nodata, also for 64-bit floats.
_NODATA_TOLERANCE = 2 * np.finfo("float32").eps

# The largest integer up to which 64-bit floats hold every integer.
_EXACT_INTEGERS = 2.0**53

# Bytes of samples that a thread converts at a time, at least a row of blocks, and the most threads that convert.
_CONVERT_LEN = 8 << 20
_MAX_WORKERS = 8

_CHANGED = "the file has changed since the array over it was opened: open it again"

# Stops the reads of one `load_async`; the thread that reads for it inherits the context.
STOP: ContextVar[_swath.Cancel | None] = ContextVar("stop", default=None)

NO_CUPY = (
    "arrays on the GPU are CuPy arrays, and CuPy cannot be imported: "
    "`pip install swath[cuda12]` (or `swath[cuda13]`), or CuPy itself"
)


def cupy() -> Any:
    """Returns the CuPy module, or raises an error that says how to install it."""
    try:
        import cupy
    except ImportError as error:
        raise DeviceError(f"{NO_CUPY} ({error})") from error
    return cupy


def device_fault() -> str | None:
    """Returns why this process cannot have arrays on a GPU, or None."""
    try:
        count = cupy().cuda.runtime.getDeviceCount()
    except DeviceError as error:
        return str(error)
    except Exception as error:  # CuPy has exceptions of its own for a missing driver or device
        return f"CuPy finds no GPU: {error}"
    return None if count else "CuPy finds no GPU"


def promoted(dtype: np.dtype) -> np.dtype:
    """Returns the type that holds all values of `dtype` and NaN, by xarray's rule: small integers fit 32-bit floats."""
    if dtype.kind in "iu":
        return np.dtype("float32" if dtype.itemsize <= 2 else "float64")
    return dtype


def limits(dtype: np.dtype) -> tuple[int, int]:
    """Returns the smallest and the largest value of an integer or boolean type."""
    if dtype.kind == "b":
        return 0, 1
    found = np.iinfo(dtype)
    return int(found.min), int(found.max)


def facts_of(handle: Dataset, overview: int | None) -> Facts:
    """Returns the facts that an array over a level of a file relies on; a missing level has size (0, 0)."""
    width, height = handle.width, handle.height
    if overview is not None:
        width, height = next(iter(handle.overview_sizes[overview : overview + 1]), (0, 0))
    return str(handle.dtype), handle.count, width, height


def version_of(handle: Dataset) -> Hashable:
    """Returns what identifies this version of a file among others of the same name."""
    return handle.file_size, handle.version


def is_nodata(samples: Any, nodata: float) -> Any:
    """Returns where samples are nodata, by GDAL's rule: integers exactly, floats nearly, complex by the real part."""
    if samples.dtype.kind in "iu":
        limits = np.iinfo(samples.dtype)
        fits = limits.min <= nodata <= limits.max
        return samples == samples.dtype.type(int(nodata)) if fits else samples != samples
    values = samples.real if samples.dtype.kind == "c" else samples
    if np.isnan(nodata):
        return values != values
    with np.errstate(over="ignore", invalid="ignore"):
        value = values.dtype.type(nodata)
        if not np.isfinite(value):
            return values == value
        near = abs(values - value) < values.dtype.type(_NODATA_TOLERANCE) * abs(values + value)
    return near | (values == value)


def blank_out(values: Any, samples: Any, nodata: float, rows: int) -> None:
    """Sets `values` to NaN where `samples` (rows, columns) are nodata, `rows` at a time."""
    blank = complex("nan+nanj") if values.dtype.kind == "c" else np.nan
    for row in range(0, values.shape[0], rows):
        part = slice(row, row + rows)
        hidden = is_nodata(samples[part], nodata)
        if isinstance(values, np.ndarray):
            # Much faster than a boolean index where many samples are hidden.
            np.copyto(values[part], blank, where=hidden)
        else:
            values[part][hidden] = blank


@dataclass(frozen=True, eq=False)
class Reader:
    """A window of one level of a file as an array: `reader[...]` reads the samples that the index selects.

    It pickles without its handle; another process opens the source once for all its tasks.
    """

    # The resolved source; after unpickling, what `resolve` accepts.
    source: Any
    options: dict[str, Any]
    handle: Dataset | None
    # Counted from 1. With `flat`, one band without its dimension.
    bands: tuple[int, ...]
    flat: bool
    # x, y, width, height in pixels of the level.
    window: tuple[int, int, int, int]
    overview: int | None
    # Facts at the time the array was created: a file that is opened again later may have changed.
    facts: Facts
    dtype: np.dtype
    # Version of a file that is opened by its path or address; None for other sources.
    version: Hashable = None
    threads: int | None = None
    # Samples that become NaN: those equal to the band's nodata, and those that the file's mask hides.
    nodata: tuple[float | None, ...] | None = None
    by_mask: tuple[bool, ...] | None = None
    scales: tuple[float, ...] | None = None
    offsets: tuple[float, ...] | None = None
    on_device: bool = False
    fall_back: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        size = (self.window[3], self.window[2])
        return size if self.flat else (len(self.bands), *size)

    @property
    def ndim(self) -> int:
        return 2 if self.flat else 3

    @property
    def key(self) -> Hashable:
        """Key that is equal for equal bytes; for a file, its path, size and time of change."""
        return resolve(self.source).key

    def __getstate__(self) -> dict[str, Any]:
        state = {field.name: getattr(self, field.name) for field in fields(self)}
        state["source"], state["handle"] = resolve(self.source).pickled, None
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def __dask_tokenize__(self) -> str:
        # All fields are plain values, so their text identifies them; dask's own walk takes longer than opening a file.
        plain = {name: value for name, value in self.__dict__.items() if name not in ("source", "handle", "dtype")}
        return _digest((self.key, self.dtype.str, plain))

    def opened(self) -> Dataset:
        """Returns the open file; raises ChangedError where it is no longer the one that the array was made for."""
        if self.handle is None or self.handle.closed:
            from ._handles import shared

            handle = shared(self.source, **self.options)
            if self.version not in (None, version_of(handle)):
                # The shared handle may be older than this array.
                handle = shared(self.source, anew=True, **self.options)
                if self.version != version_of(handle):
                    raise make("changed", f"{handle.name}: {_CHANGED}", _CHANGED, {"file": handle.name})
            found = facts_of(handle, self.overview)
            if found != self.facts:
                raise _changed(handle.name, self.facts, found)
            # Keep the handle: identifying a source of bytes reads all of them.
            object.__setattr__(self, "handle", handle)
        assert self.handle is not None
        # Another process opens the path again, and must find the same pixels as this one.
        self.handle.check_current()
        return self.handle

    def __getitem__(self, key: Any) -> Any:
        """Takes integers, slices and one-dimensional index arrays, each of which selects along its own dimension."""
        keys = key if isinstance(key, tuple) else (key,)
        if any(part is Ellipsis for part in keys):
            at = next(i for i, part in enumerate(keys) if part is Ellipsis)
            keys = (*keys[:at], *(slice(None),) * (self.ndim - len(keys) + 1), *keys[at + 1 :])
        keys += (slice(None),) * (self.ndim - len(keys))
        if len(keys) != self.ndim:
            raise UsageError(f"{len(keys)} indices for an array of {self.ndim} dimensions")
        spans = [_span(part, size) for part, size in zip(keys, self.shape)]
        bands = [0] if self.flat else _chosen(*spans[0])
        (y0, y1, down), (x0, x1, across) = spans[-2:]
        if not bands or y0 == y1 or x0 == x1:
            module = cupy() if self.on_device else np
            values = module.empty((len(bands), y1 - y0, x1 - x0), self.dtype)
        else:
            values = self.read(bands, (x0, y0, x1 - x0, y1 - y0))
        if self.flat or isinstance(keys[0], int | np.integer):
            values = values[0]
        # One dimension at a time, the last first, so that each index array selects along its own dimension.
        values = values[..., across]
        return values[..., down] if isinstance(keys[-1], int | np.integer) else values[..., down, :]

    def read(self, at: list[int] | None = None, window: tuple[int, int, int, int] | None = None) -> Any:
        """Reads bands (by their position in `bands`) of a window inside this one, always with a band dimension."""
        at = list(range(len(self.bands))) if at is None else at
        x, y, width, height = window or (0, 0, self.window[2], self.window[3])
        place = (self.window[0] + x, self.window[1] + y, width, height)
        if self.nodata is None and self.scales is None:
            return self._fitting(self._samples([self.bands[i] for i in at], place))
        samples = np.dtype(self.opened().dtype)
        # NaN needs a float type; a wider one that the caller requests makes scaling more exact.
        work = promoted(samples)
        work = self.dtype if self.dtype.kind == work.kind and self.dtype.itemsize > work.itemsize else work
        if self.on_device or samples == work:
            found = self._samples([self.bands[i] for i in at], place)
            values = found.astype(work, copy=False)
            self._apply(values, found, at, place)
        else:
            values = self._converted(at, place, work)
        if samples.kind in "iu" and samples.itemsize == 8 and self.scales is None:
            _warn_of_rounding(values, self.opened().name)
        return values.astype(self.dtype, copy=False)

    def _fitting(self, samples: Any) -> Any:
        """Returns samples in the requested type; raises for integers that do not fit, which would wrap silently."""
        if self.dtype.kind in "biu" and not np.can_cast(samples.dtype, self.dtype, "safe"):
            low, high = limits(self.dtype)
            first, last = int(samples.min()), int(samples.max())
            if first < low or last > high:
                raise UsageError(
                    f"{self.opened().name}: samples of {samples.dtype} from {first} to {last} do not fit "
                    f"dtype={self.dtype}, which holds {low} to {high}: give a wider type"
                )
        return samples.astype(self.dtype, copy=False)

    def _converted(self, at: list[int], place: tuple[int, int, int, int], work: np.dtype) -> np.ndarray:
        """Reads and converts samples some rows of blocks at a time, so that memory never holds all of them twice."""
        handle = self.opened()
        x, y, width, height = place
        values = np.empty((len(at), height, width), work)
        block = handle.block_shape[0] if self.overview is None else handle.block_shape_of(self.overview)[0]
        row_len = len(at) * width * np.dtype(handle.dtype).itemsize
        step = block * max(1, _CONVERT_LEN // max(1, row_len * block))
        # Cut at the edges of blocks, so that no block is decoded twice.
        cuts = [y, *range((y // block + 1) * block, y + height, step), y + height]
        row_ranges = [(top, bottom) for top, bottom in zip(cuts, cuts[1:]) if top < bottom]
        cores = self.threads or os.cpu_count() or 1
        workers = min(cores, len(row_ranges), _MAX_WORKERS)
        bands, stop = [self.bands[i] for i in at], STOP.get()

        def convert(row_range: tuple[int, int]) -> None:
            top, bottom = row_range
            part = (x, top, width, bottom - top)
            threads = self.threads if workers == 1 else max(1, cores // workers)
            samples = np.asarray(handle.read_window(part, bands, self.overview, threads=threads, cancel=stop))
            rows = values[:, top - y : bottom - y]
            np.copyto(rows, samples, casting="unsafe")
            self._apply(rows, samples, at, part)

        each(convert, row_ranges, workers, "swath-convert")
        return values

    def _apply(self, values: Any, samples: Any, at: list[int], place: tuple[int, int, int, int]) -> None:
        """Applies masks, scales and offsets in place."""
        if self.nodata is not None and self.by_mask is not None:
            self._blank(values, samples, at, place)
        if self.scales is not None and self.offsets is not None:
            for i, band in enumerate(at):
                if self.scales[band] != 1.0:
                    values[i] *= self.scales[band]
                if self.offsets[band] != 0.0:
                    values[i] += self.offsets[band]

    def _blank(self, values: Any, samples: Any, at: list[int], place: tuple[int, int, int, int]) -> None:
        assert self.nodata is not None and self.by_mask is not None
        # On the CPU, some rows that fit a cache at a time; on the GPU, as many as a bounded size allows.
        rows = max(1, (1 << 26 if self.on_device else 1 << 17) // place[2])
        shown = None
        for i, band in enumerate(at):
            nodata = self.nodata[band]
            if self.by_mask[band]:
                if shown is None:
                    shown = np.asarray(self.opened().read_mask(place, self.overview, threads=self.threads))
                    shown = cupy().asarray(shown) if self.on_device else shown
                blank_out(values[i], shown, 0, rows)
            # Floats whose nodata is NaN need no change.
            elif nodata is not None and not (np.isnan(nodata) and samples.dtype.kind == "f"):
                blank_out(values[i], samples[i], nodata, rows)

    def _samples(self, bands: list[int], place: tuple[int, int, int, int]) -> Any:
        handle = self.opened()
        options: dict[str, Any] = {"threads": self.threads, "cancel": STOP.get()}
        if not self.on_device:
            return np.asarray(handle.read_window(place, bands, self.overview, **options))
        module = cupy()
        if handle.stored_dtype != handle.dtype:
            # CuPy has no type for complex integers and half floats; a read on the host converts them to complex floats.
            return module.asarray(np.asarray(handle.read_window(place, bands, self.overview, **options)))
        try:
            return module.asarray(handle.read_window(place, bands, self.overview, **options, device="cuda"))
        except DeviceError as error:
            if not self.fall_back:
                raise
            warn(f"{handle.name}: decoded on the CPU, not on the GPU: {error}", DeviceWarning)
            return module.asarray(np.asarray(handle.read_window(place, bands, self.overview, **options)))


def _warn_of_rounding(values: Any, name: str) -> None:
    """Warns where masked 64-bit integers became floats that cannot hold every digit."""
    if isinstance(values, np.ndarray):
        low, high = np.fmin.reduce(values, axis=None), np.fmax.reduce(values, axis=None)
    else:
        low, high = float(cupy().nanmin(values)), float(cupy().nanmax(values))
    if low <= -_EXACT_INTEGERS or high >= _EXACT_INTEGERS:
        warn(
            f"{name}: masked=True returns 64-bit floats, which may round integers beyond 2^53: read with masked=False "
            "to keep every digit"
        )


def _changed(name: str, before: Facts, now: Facts) -> Exception:
    was, became = (f"{count} bands of {dtype}, {width} x {height}" for dtype, count, width, height in (before, now))
    reason = f"the file has changed since the array over it was opened (from {was} to {became}): open it again"
    return make("changed", f"{name}: {reason}", reason, {"file": name})


def _digest(plain: Any) -> str:
    return hashlib.blake2b(repr(plain).encode(), digest_size=16).hexdigest()


def _span(part: Any, size: int) -> tuple[int, int, Any]:
    """Returns the pixels that an index touches (first, last + 1), and the index counted from the first."""
    if isinstance(part, slice):
        steps = range(*part.indices(size))
        if not steps:
            return 0, 0, slice(None)
        return min(steps[0], steps[-1]), max(steps[0], steps[-1]) + 1, slice(None, None, steps.step)
    chosen = np.asarray(part)
    if chosen.ndim > 1 or (chosen.size and chosen.dtype.kind not in "iu"):
        raise UsageError(f"an index must be an integer, a slice or a one-dimensional array of integers, not {part!r}")
    if not chosen.size:
        return 0, 0, slice(None)
    chosen = np.where(chosen < 0, chosen + size, chosen)
    first, last = int(chosen.min()), int(chosen.max())
    if first < 0 or last >= size:
        raise IndexError(f"index {part!r} is out of bounds for a dimension of {size}")
    return first, last + 1, chosen - first if chosen.ndim else int(chosen) - first


def _chosen(first: int, stop: int, local: Any) -> list[int]:
    """Returns the bands that an index selects, in its order."""
    return [int(band) for band in np.atleast_1d(np.arange(first, stop)[local])]


def _cut(length: int, step: int, start: int = 0) -> tuple[int, ...]:
    """Cuts a length that begins at `start` into lengths that end at multiples of `step`."""
    first = min(length, step - start % step)
    whole, rest = divmod(length - first, step)
    return (first, *(step,) * whole, *((rest,) if rest else ()))


def block_chunks(chunks: Any, reader: Reader, block: tuple[int, int], together: bool) -> tuple[tuple[int, ...], ...]:
    """Returns chunk sizes in dask's form, for any `chunks` that xarray and rioxarray accept.

    `block` is the size (rows, columns) of the file's blocks; `together` says that a block holds all bands.
    """
    from dask.array.core import normalize_chunks

    check_chunks(chunks)
    x, y, width, height = reader.window
    names = ("y", "x") if reader.flat else ("band", "y", "x")
    stored = (len(reader.bands) if together else 1, *block)[-reader.ndim :]
    by_blocks = chunks is True or (isinstance(chunks, str) and chunks == "auto")
    if isinstance(chunks, dict):
        unknown = [name for name in chunks if name not in names]
        if unknown:
            raise UsageError(f"chunks names {unknown!r}, and the dimensions are {names!r}")
        # As in xarray, an empty dict means the file's blocks, and a missing dimension is not cut.
        if not chunks:
            deep = () if reader.flat else (_cut(len(reader.bands), stored[0]),)
            return (*deep, _cut(height, block[0], y), _cut(width, block[1], x))
        requested: Any = tuple(chunks.get(name, -1) for name in names)
    elif by_blocks:
        requested = (*stored[:-2], "auto", "auto")
    elif isinstance(chunks, tuple | list):
        requested = tuple(chunks) if len(chunks) == len(names) else (stored[0], *chunks)
    else:
        requested = chunks
    try:
        sizes = normalize_chunks(requested, shape=reader.shape, dtype=reader.dtype, previous_chunks=stored)
    except (TypeError, ValueError) as error:
        raise UsageError(f"chunks={chunks!r} does not fit an array of {names!r} = {reader.shape!r}: {error}") from error
    if not by_blocks:
        return sizes
    # dask counts from the first pixel of the window, which may be inside a block.
    down = _cut(height, sizes[-2][0], y % block[0])
    across = _cut(width, sizes[-1][0], x % block[1])
    return (*sizes[:-2], down, across)


def dask_array(reader: Reader, chunks: tuple[tuple[int, ...], ...]) -> Any:
    """Returns a dask array: one key for the reader, one task for each chunk, and a name that identifies the file."""
    import dask.array

    meta = (cupy() if reader.on_device else np).empty((0,) * reader.ndim, reader.dtype)
    name = f"open_geotiff-{reader.__dask_tokenize__()}-{_digest(chunks)}"
    try:
        graph = _graph(reader, name, chunks)
    except ImportError:
        # Another version of dask, with other internals: the same array, created in three times the time.
        return dask.array.from_array(reader, chunks, name=name, fancy=False, asarray=not reader.on_device, meta=meta)
    return dask.array.Array(graph, name, chunks, meta=meta)


def _graph(reader: Reader, name: str, chunks: tuple[tuple[int, ...], ...]) -> Any:
    """Returns the graph that `dask.array.from_array` makes, without its checks of the arguments."""
    from dask._task_spec import TaskRef
    from dask.array.core import getter_nofancy
    from dask.blockwise import blockwise
    from dask.highlevelgraph import HighLevelGraph, MaterializedLayer
    from dask.layers import ArraySliceDep

    axes = tuple(range(reader.ndim))
    # By default the getter converts its result to NumPy.
    as_is = {"asarray": False, "lock": False} if reader.on_device else {}
    stored = f"original-{name}"
    blocks = blockwise(
        getter_nofancy,
        name,
        axes,
        TaskRef(stored),
        None,
        ArraySliceDep(chunks),
        axes,
        numblocks={},
        _data_producer=True,
        **as_is,
    )
    layers = {stored: MaterializedLayer({stored: reader}), name: blocks}
    return HighLevelGraph(layers, {stored: set(), name: {stored}})
