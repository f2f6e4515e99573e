"""Reports progress as the caller asks: by a bar, a function, or an object such as tqdm's."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Set
from typing import Any, TextIO

from ._errors import UsageError

Report = Callable[[int, int], Any]


class Bar:
    """A progress bar on a terminal, with the time left."""

    WIDTH = 30
    # Seconds between updates.
    PAUSE = 0.1

    def __init__(self, stream: TextIO, rows: int) -> None:
        self._stream = stream
        self._rows = rows
        self._started = time.monotonic()
        self._shown = 0.0

    def __call__(self, done: int, rows: int) -> None:
        now = time.monotonic()
        if now - self._shown < self.PAUSE and done < rows:
            return
        self._shown = now
        part = done / max(rows, 1)
        spent = now - self._started
        left = spent / part - spent if part > 0 else 0.0
        filled = "=" * round(part * self.WIDTH)
        clock = f"{int(left) // 60:02}:{int(left) % 60:02}"
        self._stream.write(f"\r\x1b[K[{filled:{self.WIDTH}}] {part:4.0%}  {clock} left")
        self._stream.flush()

    def close(self) -> None:
        if self._shown:
            self._stream.write("\r\x1b[K")
            self._stream.flush()


class Updates:
    """Calls `update` of an object such as tqdm's with the number of new rows."""

    def __init__(self, bar: Any, *, own: bool) -> None:
        self._bar = bar
        self._own = own
        self._done = 0

    def __call__(self, done: int, _rows: int) -> None:
        if done > self._done:
            self._bar.update(done - self._done)
            self._done = done

    def close(self) -> None:
        if self._own:
            self._bar.close()


def reporter(progress: Any, rows: int) -> tuple[Report | None, Callable[[], None]]:
    """Returns the function that the engine calls with (rows done, rows), and the function that ends the display.

    Parameters
    ----------
    progress : None, bool, callable or object with update()
        `True` draws a bar (tqdm's where it is installed) when standard error is a terminal.
    rows : int
        Number of rows in total.
    """
    if progress is None or progress is False:
        return None, _nothing
    if progress is True:
        stream = sys.stderr
        if stream is None or not stream.isatty():
            return None, _nothing
        try:
            from tqdm.auto import tqdm
        except ImportError:
            bar = Bar(stream, rows)
            return bar, bar.close
        shown = Updates(tqdm(total=rows, unit="row", leave=False, file=stream), own=True)
        return shown, shown.close
    # Dictionaries and sets have an update() too, which takes no numbers.
    if hasattr(progress, "update") and not isinstance(progress, (Mapping, Set)):
        given = Updates(progress, own=False)
        return given, given.close
    if callable(progress):
        return progress, _nothing
    raise UsageError(
        f"progress={progress!r}: give True, a function of (rows done, rows), or an object with update() such as tqdm's"
    )


def _nothing() -> None:
    return None
