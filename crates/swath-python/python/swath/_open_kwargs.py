"""What rasterio and GDAL call the ways to open a file, in the words of `open_geotiff`."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

from ._errors import UsageError
from ._gdal import DRIVERS

# These ask for what is always so: any number of threads may read, and reading needs no locks.
_NEEDLESS = ("sharing", "thread_safe", "ignore_cog_layout_break")


def opening_words(open_kwargs: Mapping[str, Any], known: Iterable[str]) -> dict[str, Any]:
    """Keywords of `open_geotiff` for those of `rasterio.open`, which knows GDAL's open options in any case."""
    words: dict[str, Any] = {}
    for given, value in open_kwargs.items():
        word = str(given).lower()
        if word in _NEEDLESS:
            continue
        if word == "mode" and value == "r":
            continue
        if word == "driver":
            drivers = (value,) if isinstance(value, str) else tuple(value or DRIVERS)
            if not any(str(driver).lower() == ours.lower() for driver in drivers for ours in DRIVERS):
                raise UsageError(f"driver={value!r}: swath reads GeoTIFF: leave out driver, or give 'GTiff'")
            continue
        if word == "overview_level":
            words["overview_level"] = None if value is None else _number(given, value)
            continue
        if word == "num_threads":
            words["threads"] = None if str(value).upper() == "ALL_CPUS" else _number(given, value)
            continue
        near = difflib.get_close_matches(word, [*known, "num_threads", "driver"], n=3, cutoff=0.6)
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        raise TypeError(f"open_geotiff() knows no {given!r}{hint}")
    return words


def _number(word: str, value: Any) -> int:
    try:
        return int(value)
    except (TypeError, ValueError):
        raise UsageError(f"{word}={value!r} is no number") from None
