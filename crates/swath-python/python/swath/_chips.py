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
from ._errors import UsageError
from ._threads import submit
from ._window import Window, to_pixels

if TYPE_CHECKING:
    from ._dataset import Dataset


def _pair(value: int | tuple[int, int], what: str) -> tuple[int, int]:
    rows, columns = (value, value) if isinstance(value, (int, np.integer)) else value
    if rows < 1 or columns < 1:
        raise UsageError(f"{what}: {value} is not a number of pixels")
    return int(rows), int(columns)


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
        prefetch: int,
        drop_last: bool,
        options: dict[str, Any],
    ) -> None:
        if batch < 1 or prefetch < 0:
            raise UsageError("batch must be at least 1 and prefetch at least 0")
        if edge not in ("shift", "drop"):
            raise UsageError(f"edge: {edge!r} is not shift or drop")
        self.dataset = dataset
        self.batch = batch
        self._bands, self._overview, self._options = bands, overview_level, options
        self._prefetch, self._drop_last = prefetch, drop_last
        self._shuffle, self._random = shuffle, np.random.default_rng(seed)
        width, height = dataset._size(overview_level)
        rows, columns = _pair(size, "size")
        if rows > height or columns > width:
            raise UsageError(f"size: chips of {rows} x {columns} are larger than the image of {height} x {width}")
        self.windows: list[Window]
        if windows is not None:
            self.windows = [Window(*to_pixels(window, width, height)) for window in windows]
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
