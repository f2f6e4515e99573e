"""Translates keywords of `rasterio.open` and open options of GDAL to keywords of `open_geotiff`."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

from ._checks import whole
from ._errors import UsageError
from ._gdal_paths import DRIVERS

# Options for what swath always does: any number of threads may read, and reads need no locks.
_WITHOUT_EFFECT = ("sharing", "thread_safe", "ignore_cog_layout_break")


def from_rasterio(open_kwargs: Mapping[str, Any], known: Iterable[str]) -> dict[str, Any]:
    """Returns keywords of `open_geotiff` for those of `rasterio.open`, which accepts GDAL's options in any case."""
    keywords: dict[str, Any] = {}
    for given, value in open_kwargs.items():
        name = str(given).lower()
        if name in _WITHOUT_EFFECT:
            continue
        if name == "mode" and value == "r":
            continue
        if name == "driver":
            drivers = DRIVERS if value is None else tuple(value) if isinstance(value, (list, tuple)) else (value,)
            if not any(str(driver).lower() == ours.lower() for driver in drivers for ours in DRIVERS):
                raise UsageError(f"driver={value!r}: swath reads GeoTIFF: leave out driver, or give 'GTiff'")
            continue
        if name == "overview_level":
            keywords["overview_level"] = None if value is None else _number(given, value)
            continue
        if name == "num_threads":
            keywords["threads"] = None if str(value).upper() == "ALL_CPUS" else _number(given, value)
            continue
        near = difflib.get_close_matches(name, [*known, "num_threads", "driver"], n=3, cutoff=0.6)
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        raise TypeError(f"open_geotiff() has no option {given!r}{hint}")
    return keywords


def _number(name: str, value: Any) -> int | None:
    """Returns a whole number, which GDAL's options hold as text."""
    if isinstance(value, str):
        try:
            value = int(value)
        except ValueError:
            raise UsageError(f"{name}={value!r} is not a number") from None
    return whole(name, value)
