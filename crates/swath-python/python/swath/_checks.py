"""Checks values that callers give to `open_geotiff` and `to_geotiff`; each error says what to give instead."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from . import _swath
from ._errors import UsageError

# The largest number that crosses into the engine.
MOST = (1 << 63) - 1


@dataclass(frozen=True)
class Codec:
    """Which options a codec has."""

    levels: tuple[int, int] | None
    quality: bool
    lossless: bool
    max_z_error: bool


@lru_cache(maxsize=1)
def codecs() -> dict[str, Codec]:
    """Returns the engine's codecs by name."""
    return {name: Codec(*options) for name, options in _swath.codecs().items()}


def whole(name: str, value: Any, least: int = 0, most: int = MOST) -> int | None:
    """Returns a whole number from `least` to `most`; None stays None."""
    if value is None:
        return None
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)) or int(value) < least:
        raise UsageError(f"{name}={value!r}: give a whole number from {least} on")
    if int(value) > most:
        raise UsageError(f"{name}={value!r}: give a whole number up to {most}")
    return int(value)


def truth(name: str, value: Any) -> bool:
    """Returns True or False; other values may be a misplaced argument."""
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    raise UsageError(f"{name}={value!r}: give True or False")


def truth_or_none(name: str, value: Any) -> bool | None:
    """Returns True or False; None stays None."""
    return None if value is None else truth(name, value)


def one_of(name: str, value: Any, words: Sequence[str]) -> str:
    """Returns a word of a list."""
    if isinstance(value, str) and value in words:
        return value
    listed = f"{', '.join(map(repr, words[:-1]))} or {words[-1]!r}"
    raise UsageError(f"{name}={value!r}: give {listed}")


def text_or_none(name: str, value: Any) -> str | None:
    """Returns text; None stays None."""
    if value is None or isinstance(value, str):
        return value
    raise UsageError(f"{name}={value!r}: give text")


def check_band(band: Any, count: int) -> None:
    """Raises unless `band` is a number or a collection of numbers."""
    numbers = band if isinstance(band, (list, tuple, range, set, np.ndarray)) else (band,)
    if band is None or all(isinstance(one, (int, np.integer)) and not isinstance(one, bool) for one in numbers):
        return
    known = "the only band is 1" if count == 1 else f"bands are 1 to {count}"
    if isinstance(band, slice):
        raise UsageError(f"band={band!r}: give a list of numbers such as band=[1, 2]; {known}")
    raise UsageError(f"band={band!r}: give the number of a band or a list of numbers; {known}")


def check_chunks(chunks: Any) -> None:
    """Raises unless all chunk sizes are at least 1, or -1 for the whole axis."""
    values = list(chunks.values()) if isinstance(chunks, Mapping) else chunks
    values = values if isinstance(values, (list, tuple)) else [values]
    for value in values:
        for size in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(size, (int, np.integer)) and size is not True and (size == 0 or size < -1):
                raise UsageError(
                    f'chunks={chunks!r}: give sizes of 1 or more, -1 for the whole of an axis, or "auto"; without '
                    "chunks= the samples are read at once"
                )


def check_decode_coords(value: Any) -> None:
    """Raises for `decode_coords=False`, which swath cannot honour."""
    if value is False:
        raise UsageError(
            "decode_coords=False: swath always returns the coordinates; parse_coordinates=False leaves out x and y"
        )


def check_codec(compression: str, *, level: Any, quality: Any, lossless: Any, max_z_error: Any) -> None:
    """Raises for options that the codec does not have, and for values outside their range."""
    level, quality = whole("compression_level", level), whole("quality", quality, 1)
    codec = codecs().get(compression)
    if codec is None:
        raise UsageError(f"compression={compression!r}: give one of {', '.join(codecs())}, or None")
    if level is not None:
        if codec.levels is None:
            raise UsageError(f"compression_level={level}: {compression} has no levels; leave compression_level out")
        if not codec.levels[0] <= level <= codec.levels[1]:
            raise UsageError(
                f"compression_level={level}: {compression} has levels from {codec.levels[0]} to {codec.levels[1]}"
            )
    if quality is not None and not codec.quality:
        raise UsageError(
            f"quality={quality}: {compression} has no quality; leave it out, or give compression= one of "
            f"{_having('quality')}"
        )
    if quality is not None and quality > 100:
        raise UsageError(f"quality={quality}: give a number from 1 to 100")
    # JPEG is never lossless, so that False asks for what it does.
    if lossless is False and not codec.lossless and compression != "jpeg":
        raise UsageError(f"lossless=False: {compression} has no such choice; leave lossless out")
    if lossless and compression == "jpeg":
        raise UsageError(
            "lossless=True: jpeg always loses detail; leave lossless out, or give compression= one that keeps every "
            "sample, such as webp, jpeg2000 or zstd"
        )
    if lossless and max_z_error:
        raise UsageError(f"lossless=True and max_z_error={max_z_error!r} contradict each other: give one")
    if max_z_error and not codec.max_z_error:
        raise UsageError(
            f"max_z_error={max_z_error!r}: {compression} keeps every sample as it is; leave it out, or give "
            f"compression= one of {_having('max_z_error')}"
        )


def _having(option: str) -> str:
    """Returns the names of the codecs that have an option."""
    return ", ".join(name for name, codec in codecs().items() if getattr(codec, option))


def check_target(path: Any, driver: Any) -> None:
    """Raises for a file name with the extension of another format, unless the caller names a driver."""
    if isinstance(path, tuple) and len(path) == 2:
        # A store of obstore, and a path in it.
        path = path[1]
    elif hasattr(path, "fs") and hasattr(path, "path") and not hasattr(path, "write"):
        # An OpenFile of fsspec.
        path = path.path
    name = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(name, str) or driver is not None:
        return
    # A path may hold bytes that are not Unicode.
    ending = _swath.other_format(name.encode(errors="replace").decode())
    if ending is not None:
        raise UsageError(
            f"{name}: to_geotiff writes GeoTIFF and COG, not .{ending}: give a name that ends in .tif, or "
            'driver="GTiff" to keep this name'
        )


def check_data(data: Any, path: Any) -> None:
    """Raises for data that are not a raster, with the call that the caller most likely wants."""
    if data is None:
        raise UsageError("data is None: give an array, a DataArray or a Dataset")
    if isinstance(data, (str, bytes, os.PathLike)):
        shown = data if isinstance(data, (str, os.PathLike)) else "bytes"
        if hasattr(path, "shape") or hasattr(path, "data_vars"):
            raise UsageError(f"the arguments are swapped: to_geotiff(data, path) takes {str(shown)!r} second")
        raise UsageError(f"data={str(shown)!r} is not an array: open it first, to_geotiff(open_geotiff(...), path)")
    if hasattr(data, "block_shape") or hasattr(data, "block_shapes"):
        raise UsageError(
            f"data={data!r} is an opened file: use to_geotiff(open_geotiff(...), path), which keeps its metadata"
        )
