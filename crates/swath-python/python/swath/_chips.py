"""`Chips`: batches of windows of one size, read ahead in the background."""

from __future__ import annotations

import math
import os
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ._array import Array
from ._checks import one_of, truth, whole
from ._errors import UsageError
from ._threads import submit
from ._window import Window, listed_windows, to_pixels

if TYPE_CHECKING:
    from ._dataset import Dataset


# Chips in a batch, and batches that are read ahead. A batch of a few dozen chips leaves most of a GPU idle, so more of
# them are decoded at once: an H200 gains a fifth from four, and nothing from more.
BATCH = 32
PREFETCH = 2
DEVICE_PREFETCH = 4


def _pair(value: int | tuple[int, int], name: str) -> tuple[int, int]:
    """Returns rows and columns, from one number for both or a pair."""
    sides = tuple(value) if isinstance(value, (tuple, list, np.ndarray)) else (value, value)
    if len(sides) != 2 or any(side is None for side in sides):
        raise UsageError(f"{name}={value!r}: give one number of pixels, or (rows, columns)")
    rows, columns = (whole(name, side, 1) for side in sides)
    assert rows is not None and columns is not None
    return rows, columns


def _random(seed: Any) -> np.random.Generator:
    try:
        return np.random.default_rng(seed)
    except (TypeError, ValueError) as error:
        raise UsageError(f"seed={seed!r}: give a whole number that is not negative, or None ({error})") from None


def _starts(length: int, size: int, stride: int, edge: str) -> list[int]:
    """Returns the first pixel of each chip along one axis."""
    starts = list(range(0, length - size + 1, stride))
    if edge == "shift" and starts[-1] + size < length:
        starts.append(length - size)
    return starts


class Chips:
    """Batches of windows of one size; each iteration reads them anew."""

    def __init__(
        self,
        dataset: Dataset,
        size: int | tuple[int, int],
        stride: int | tuple[int, int] | None,
        batch: int,
        *,
        bands: list[int] | None,
        overview_level: int | None,
        windows: Sequence[Any] | None,
        edge: Literal["shift", "drop"],
        shuffle: bool,
        seed: int | None,
        prefetch: int | None,
        drop_last: bool,
        options: dict[str, Any],
    ) -> None:
        # None means the default, as for every other option.
        self.dataset = dataset
        self.batch = whole("batch", batch, 1) or BATCH
        self._bands, self._overview, self._options = bands, overview_level, options
        ahead = whole("prefetch", prefetch)
        default = DEVICE_PREFETCH if options["device"] == "cuda" else PREFETCH
        self._prefetch, self._drop_last = default if ahead is None else ahead, truth("drop_last", drop_last)
        self._shuffle, self._random = truth("shuffle", shuffle), _random(seed)
        edge = one_of("edge", edge, ("shift", "drop"))  # type: ignore[assignment]
        width, height = dataset._size(overview_level)
        rows, columns = _pair(size, "size")
        if rows > height or columns > width:
            raise UsageError(f"size: chips of {rows} x {columns} are larger than the image of {height} x {width}")
        self.windows: list[Window]
        if windows is not None:
            self.windows = [Window(*to_pixels(window, width, height)) for window in listed_windows(windows)]
            other = next((window for window in self.windows if (window.height, window.width) != (rows, columns)), None)
            if other is not None:
                raise UsageError(f"windows: {other} does not have {rows} rows and {columns} columns")
        else:
            down, across = _pair(size if stride is None else stride, "stride")
            self.windows = [
                Window(x, y, columns, rows)
                for y in _starts(height, rows, down, edge)
                for x in _starts(width, columns, across, edge)
            ]

    def __len__(self) -> int:
        batches = len(self.windows) / self.batch
        return math.floor(batches) if self._drop_last else math.ceil(batches)

    def _batches(self) -> list[list[Window]]:
        order = np.arange(len(self.windows))
        if self._shuffle:
            self._random.shuffle(order)
        ordered = [self.windows[index] for index in order]
        return [ordered[number * self.batch : (number + 1) * self.batch] for number in range(len(self))]

    def _read(self, windows: list[Window]) -> Array:
        return self.dataset.read_windows(windows, self._bands, overview_level=self._overview, **self._options)

    def __iter__(self) -> Iterator[tuple[Array, list[Window]]]:
        batches = self._batches()
        if self._prefetch == 0:
            for windows in batches:
                yield self._read(windows), windows
            return
        ahead: deque[tuple[Future[Array], list[Window]]] = deque()
        remaining = iter(batches)
        # On the CPU one batch at a time: each uses all threads, and reuses tiles that the batch before it decoded. On a
        # GPU the copies of one batch overlap with the kernels of another.
        workers = self._prefetch if self._options["device"] == "cuda" else 1
        pool = ThreadPoolExecutor(workers, thread_name_prefix="swath-chips")
        process = os.getpid()
        try:
            for windows in remaining:
                ahead.append((submit(pool, self._read, windows), windows))
                if len(ahead) > self._prefetch:
                    future, done = ahead.popleft()
                    yield future.result(), done
                    if os.getpid() != process:
                        break
            while ahead and os.getpid() == process:
                future, done = ahead.popleft()
                yield future.result(), done
            # A process that was forked during the iteration lacks the threads that read ahead, and reads by itself.
            for windows in chain((windows for _, windows in ahead), remaining):
                yield self._read(windows), windows
        finally:
            if os.getpid() == process:
                for future, _ in ahead:
                    future.cancel()
                pool.shutdown(wait=True)
