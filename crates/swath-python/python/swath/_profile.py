"""Turns the words in which people ask for a file (swath's, GDAL's, xrspatial's) into the engine's options."""

from __future__ import annotations

import difflib
import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from . import _device
from ._errors import UsageError
from ._options import check_codec, whole

# Words of GDAL's drivers and of rasterio's profiles, and the keyword of `to_geotiff` each of them stands for.
GDAL_WORDS = {
    "compress": "compression",
    "level": "compression_level",
    "zlevel": "compression_level",
    "zstd_level": "compression_level",
    "lzma_preset": "compression_level",
    "deflate_level": "compression_level",
    "jpeg_quality": "quality",
    "webp_level": "quality",
    "webp_lossless": "lossless",
    "blocksize": "tile_size",
    "num_threads": "threads",
    "sparse_ok": "sparse",
    "overviews": "overview_levels",
    "overview_count": "overview_levels",
    "resampling": "overview_resampling",
}
# Words with a meaning of their own.
OTHER_WORDS = ("driver", "blockxsize", "blockysize", "count", "width", "height", "endianness", "subsampling", "nvcomp")
# Words of rioxarray and xrspatial that ask for what is always so, or allow what needs no leave.
NEEDLESS_WORDS = frozenset(
    {"windowed", "lock", "allow_internal_only_jpeg", "allow_experimental_codecs", "allow_unparseable_crs"}
)

RESAMPLING = {"mean": "average", "near": "nearest", "nearest_neighbour": "nearest", "nearest_neighbor": "nearest"}
COMPRESSION = {
    "": "none",
    "raw": "none",
    "uncompressed": "none",
    "zip": "deflate",
    "adobe_deflate": "deflate",
    "j2k": "jpeg2000",
    "jp2": "jpeg2000",
    "jp2000": "jpeg2000",
}
PHOTOMETRIC = {0: "miniswhite", 1: "minisblack", 2: "rgb", 3: "palette", 5: "cmyk", 6: "ycbcr"}
ALPHA = {
    "yes": "unassociated",
    "true": "unassociated",
    "non-premultiplied": "unassociated",
    "unassociated": "unassociated",
    "premultiplied": "premultiplied",
    "associated": "premultiplied",
    "no": None,
    "false": None,
    "unspecified": None,
}


def merge(words: dict[str, Any], defaults: Mapping[str, Any], profile: Mapping[str, Any]) -> dict[str, Any]:
    """The keywords with a profile's words in their places; words of the profile that have no keyword are added."""
    merged = dict(words)
    said: dict[str, str] = {}
    for given, value in profile.items():
        word = str(given).lower()
        if word in NEEDLESS_WORDS:
            continue
        name = GDAL_WORDS.get(word, word)
        if name not in defaults and name not in OTHER_WORDS:
            known = sorted({*defaults, *GDAL_WORDS, *OTHER_WORDS})
            near = difflib.get_close_matches(word, known, n=3, cutoff=0.6)
            hint = f"; did you mean {' or '.join(near)}?" if near else ""
            raise UsageError(f"to_geotiff knows no {given!r}{hint}")
        if name in said or (name in defaults and not _same(words[name], defaults[name])):
            other = said.get(name, name)
            if not _same(_plain(merged[name]), _plain(value)):
                raise UsageError(f"{other}={merged[name]!r} and {given}={value!r} contradict each other: give one")
        said[name] = str(given)
        merged[name] = value
    return merged


def _same(one: Any, other: Any) -> bool:
    try:
        return bool(one is other or one == other)
    except (TypeError, ValueError):
        return False


def _plain(value: Any) -> Any:
    return value.lower() if isinstance(value, str) else value


def flag(name: str, value: Any) -> bool:
    """Yes or no, in Python's words and in GDAL's."""
    if isinstance(value, str):
        word = value.strip().lower()
        if word in ("yes", "true", "on", "1"):
            return True
        if word in ("no", "false", "off", "0"):
            return False
        raise UsageError(f"{name}={value!r} is neither yes nor no")
    return bool(value)


def number(name: str, value: Any, kind: Callable[[Any], Any] = int) -> Any:
    """A number, also where a profile has it as text."""
    if value is None:
        return None
    try:
        return kind(value)
    except (TypeError, ValueError):
        raise UsageError(f"{name}={value!r} is no number") from None


def is_cog(words: Mapping[str, Any]) -> bool:
    """Whether a COG is asked for."""
    driver = words.get("driver")
    if driver is None:
        return flag("cog", words["cog"])
    name = str(driver).lower()
    if name not in ("gtiff", "cog"):
        raise UsageError(f"driver={driver!r}: to_geotiff writes GTiff and COG")
    if name == "gtiff" and flag("cog", words["cog"]):
        raise UsageError("cog=True and driver='GTiff' contradict each other: give one")
    return name == "cog"


def device_of(words: Mapping[str, Any], *, on_device: bool) -> str:
    """Who encodes: as the caller says, and otherwise whoever has the samples."""
    device, gpu = _device.word(words["device"]), words["gpu"]
    if gpu is not None:
        if not isinstance(gpu, bool):
            raise UsageError(f"gpu={gpu!r}: give True or False, or device=")
        wanted = "cuda" if gpu else "cpu"
        if device not in (None, wanted):
            raise UsageError(f"device={words['device']!r} and gpu={gpu!r} contradict each other: give one")
        device = wanted
    if words["on_gpu_failure"] not in ("raise", "strict", "auto"):
        raise UsageError(f"on_gpu_failure={words['on_gpu_failure']!r}: give 'raise' or 'auto'")
    if device is None:
        device = "cuda" if on_device else "cpu"
    return "auto" if device == "cuda" and words["on_gpu_failure"] == "auto" else device


def engine_options(words: Mapping[str, Any], *, cog: bool, palette: bool, floats: bool, nodata: Any) -> dict[str, Any]:
    """The engine's options for the keywords of `to_geotiff`, as far as they do not depend on how it is run."""
    words = {**words, **{name: number(name, words[name]) for name in ("compression_level", "quality")}}
    compression = _compression(words["compression"])
    check_codec(words, compression)
    options: dict[str, Any] = {
        "cog": cog,
        "compression": compression,
        "level": words["compression_level"],
        "quality": words["quality"],
        "lossless": None if words["lossless"] is None else flag("lossless", words["lossless"]),
        "max_z_error": number("max_z_error", words["max_z_error"], float),
        "predictor": _predictor(words["predictor"]),
        "interleave": str(words["interleave"] or "pixel").lower(),
        "nbits": number("nbits", words["nbits"]),
        "sparse": flag("sparse", words["sparse"]),
        "bigtiff": _bigtiff(words["bigtiff"]),
        "overviews": _overviews(words["overview_levels"]),
        "resampling": _resampling(words["overview_resampling"], palette=palette),
        "statistics": _statistics(words["statistics"]),
        "threads": _threads(words["threads"]),
        "extra_tags": [encode_tag(tag) for tag in words["extra_tags"] or []] or None,
        "nan_to_nodata": bool(words["nan_to_nodata"] and floats and nodata is not None and nodata == nodata),
        "subsampling": words.get("subsampling"),
        "nvcomp": None if words.get("nvcomp") is None else flag("nvcomp", words["nvcomp"]),
    }
    options.update(_blocks(words, cog=cog))
    options.update(_colour(words))
    if words.get("endianness") is not None:
        order = str(words["endianness"]).lower()
        if order not in ("little", "big", "native"):
            raise UsageError(f"endianness={words['endianness']!r}: give 'little' or 'big'")
        options["big_endian"] = (sys.byteorder if order == "native" else order) == "big"
    return {name: value for name, value in options.items() if value is not None}


def _compression(value: Any) -> str:
    word = "none" if value is None or value is False else str(getattr(value, "value", value)).lower()
    return COMPRESSION.get(word, word)


def _predictor(value: Any) -> str:
    if isinstance(value, bool):
        return "auto" if value else "none"
    word = str(value).lower()
    known = {"yes": "auto", "standard": "horizontal", "floating_point": "float", "no": "none", "0": "none"}
    return known.get(word, word)


def _bigtiff(value: Any) -> str:
    if value is None:
        return "auto"
    word = str(value).lower()
    if word in ("auto", "if_needed", "if_safer"):
        return "auto"
    return "yes" if flag("bigtiff", value) else "no"


def _overviews(value: Any) -> Any:
    if value is None or isinstance(value, bool):
        return "none" if value is False else "auto"
    if isinstance(value, str):
        word = value.lower()
        if word in ("auto", "none"):
            return word
        if word == "ignore_existing":
            return "auto"
        return whole("overview_levels", number("overview_levels", value)) or "none"
    if isinstance(value, Sequence) or hasattr(value, "tolist"):
        factors = [number("overview_levels", factor) for factor in value]
        if any(factor < 2 for factor in factors) or factors != sorted(set(factors)):
            raise UsageError(
                f"overview_levels={list(value)}: give factors that grow, such as [2, 4, 8], or how many levels there "
                "shall be"
            )
        return factors or "none"
    return whole("overview_levels", number("overview_levels", value)) or "none"


def _resampling(value: Any, *, palette: bool) -> str | None:
    if value is None:
        return None
    word = str(getattr(value, "name", value)).lower()
    word = RESAMPLING.get(word, word)
    # The mean of two entries of a palette is an entry that has nothing to do with them.
    return "nearest" if palette and word == "average" else word


def _statistics(value: Any) -> bool | None:
    if value is None or (isinstance(value, str) and value.lower() == "auto"):
        return None
    return flag("statistics", value)


def _threads(value: Any) -> int | None:
    if value is None or (isinstance(value, str) and value.lower() == "all_cpus"):
        return None
    return whole("threads", number("threads", value))


def _blocks(words: Mapping[str, Any], *, cog: bool) -> dict[str, Any]:
    columns, rows = (number(name, words.get(name)) for name in ("blockxsize", "blockysize"))
    if not flag("tiled", words["tiled"]):
        if cog:
            raise UsageError("a COG has tiles: leave tiled=False away, or cog=True")
        return {"strips": rows or 0}
    size = words["tile_size"]
    sides = list(size) if isinstance(size, (tuple, list)) else [size, size]
    if len(sides) != 2:
        raise UsageError(f"tile_size={size!r}: give one number, or (rows, columns)")
    height, width = (whole("tile_size", number("tile_size", side), 16) for side in sides)
    return {"tile": (columns or width, rows or height)}


def _colour(words: Mapping[str, Any]) -> dict[str, Any]:
    photometric, alpha = words["photometric"], words["alpha"]
    options: dict[str, Any] = {}
    if isinstance(photometric, int) and not isinstance(photometric, bool):
        if photometric not in PHOTOMETRIC:
            raise UsageError(f"photometric={photometric!r}: give one of {sorted(PHOTOMETRIC)}, or a name")
        photometric = PHOTOMETRIC[photometric]
    word = "auto" if photometric is None else str(photometric).lower()
    if word == "rgba":
        word, alpha = "rgb", alpha or "unassociated"
    if word != "auto":
        options["photometric"] = word
    if alpha is not None:
        kind = "yes" if alpha is True else "no" if alpha is False else str(alpha).lower()
        if kind not in ALPHA:
            raise UsageError(f"alpha={alpha!r}: give 'unassociated', 'premultiplied' or None")
        options["alpha"] = ALPHA[kind]
    return options


# Codes of TIFF's types, as Python's struct packs their values.
TAG_TYPES = {1: "B", 3: "H", 4: "I", 6: "b", 8: "h", 9: "i", 11: "f", 12: "d", 16: "Q", 17: "q"}
TAG_NAMES = {"byte": 1, "ascii": 2, "short": 3, "long": 4, "undefined": 7, "float": 11, "double": 12, "long8": 16}


def encode_tag(tag: Any) -> tuple[int, int, bytes]:
    """A tag as (number, type code, little-endian bytes), of (number, type, value) or (number, type, count, value)."""
    if not isinstance(tag, (tuple, list)) or len(tag) not in (3, 4):
        raise UsageError(f"extra_tags: {tag!r} is not (number, type, value)")
    kind = TAG_NAMES.get(tag[1].lower()) if isinstance(tag[1], str) else int(tag[1])
    value = tag[-1]
    if kind == 2 and isinstance(value, str):
        return int(tag[0]), kind, value.encode() + b"\0"
    if isinstance(value, (bytes, bytearray)) and kind is not None:
        return int(tag[0]), kind, bytes(value)
    if kind not in TAG_TYPES:
        raise UsageError(f"extra_tags: {tag!r}: type {tag[1]!r} takes bytes, or is unknown")
    values = list(value) if isinstance(value, (tuple, list)) or hasattr(value, "tolist") else [value]
    try:
        return int(tag[0]), kind, struct.pack(f"<{len(values)}{TAG_TYPES[kind]}", *values)
    except struct.error as error:
        raise UsageError(f"extra_tags: {tag!r}: {error}") from None
