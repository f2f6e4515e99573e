"""`EngineOptions`: what the options of `to_geotiff` mean to the engine, and the only ones that cross into Rust."""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from . import _device
from ._checks import check_codec, one_of, whole
from ._errors import UsageError
from ._write_options import DEFAULTS, WriteOptions

# Names that callers use, and the engine's name for the same.
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
# Largest number of columns or rows that a file can state.
MOST_PIXELS = (1 << 32) - 1
PREDICTOR = {"yes": "type", "standard": "horizontal", "floating_point": "float", "no": "none", "0": "none"}
# Values of TIFF's PhotometricInterpretation.
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


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """How the engine writes a file. `None` leaves the engine's own default.

    `write_options` in `crates/swath-python/src/options.rs` has the same names, and rejects any other.
    """

    cog: bool = False
    """Whether to write a Cloud Optimized GeoTIFF."""
    compression: str = "none"
    """Codec, by the engine's name."""
    compression_level: int | None = None
    """Effort of deflate, zstd and lzma."""
    quality: int | None = None
    """Quality of jpeg, webp and jpeg2000, from 1 to 100."""
    lossless: bool | None = None
    """Whether webp and jpeg2000 keep every sample."""
    max_z_error: float | None = None
    """Largest error that lerc may make."""
    predictor: str = "auto"
    """auto, type, none, horizontal or float."""
    tile_size: tuple[int, int] | None = None
    """Columns and rows of a tile, where the file has tiles."""
    strips: int | None = None
    """Rows of a strip, where the file has strips; 0 lets the engine choose."""
    interleave: str = "pixel"
    """Whether a tile holds all bands of its pixels ("pixel"), or one band ("band")."""
    nbits: int | None = None
    """Bits of a stored sample."""
    photometric: str | None = None
    """Meaning of the samples as colour, by GDAL's name."""
    alpha: str | None = None
    """Kind of alpha in the last band: unassociated or premultiplied."""
    subsampling: str | None = None
    """Chroma subsampling of jpeg: 420, 422 or 444."""
    big_endian: bool | None = None
    """Whether the file is big-endian."""
    bigtiff: str = "auto"
    """Whether file offsets have 64 bits: auto, yes or no."""
    sparse: bool = False
    """Whether to leave out tiles that hold only zeros or only nodata."""
    mask: bool = False
    """Whether the file has a mask."""
    soft_mask: bool = False
    """Whether the mask says how opaque a pixel is, from 0 to 255, rather than only whether it is data."""
    overview_levels: str | int | list[int] = "auto"
    """auto, none, the number of overviews, or their factors."""
    overview_resampling: str | None = None
    """How an overview pixel is computed from the pixels below it."""
    statistics: bool | None = None
    """Whether to store statistics of each band."""
    nan_to_nodata: bool = False
    """Whether NaN is written as nodata."""
    extra_tags: list[tuple[int, int, bytes]] | None = None
    """Further TIFF tags: number, type code, little-endian bytes."""
    device: Literal["cpu", "cuda", "auto"] = "cpu"
    """What encodes the tiles."""
    nvcomp: bool | None = None
    """Whether nvCOMP encodes deflate and zstd on a GPU."""
    threads: int | None = None
    """Number of threads that encode."""
    max_memory: int | None = None
    """Bytes of host memory that the writer may hold."""
    max_device_memory: int | None = None
    """Bytes of GPU memory that the writer may hold."""

    def native(self) -> dict[str, Any]:
        """Returns the options as Rust takes them."""
        return dict(vars(self))


def flag(name: str, value: Any) -> bool:
    """Returns a truth value, which GDAL's profiles write as text such as "YES"; None is the default."""
    if value is None:
        return bool(DEFAULTS.get(name))
    if isinstance(value, str):
        word = value.strip().lower()
        if word in ("yes", "true", "on", "1"):
            return True
        if word in ("no", "false", "off", "0"):
            return False
        raise UsageError(f"{name}={value!r} is neither yes nor no")
    if isinstance(value, (bool, np.bool_)) or (isinstance(value, (int, np.integer)) and value in (0, 1)):
        return bool(value)
    raise UsageError(f"{name}={value!r}: give True or False")


def _flag_or_none(name: str, value: Any) -> bool | None:
    return None if value is None else flag(name, value)


def number(name: str, value: Any, kind: Callable[[Any], Any] = int) -> Any:
    """Returns a number, which profiles may hold as text; None stays None."""
    if value is None:
        return None
    if isinstance(value, (bool, np.bool_)):
        raise UsageError(f"{name}={value!r} is not a number: give one, or leave {name} out")
    try:
        found = kind(value)
    except (OverflowError, TypeError, ValueError):
        raise UsageError(f"{name}={value!r} is not a number") from None
    if kind is int and not isinstance(value, str) and found != value:
        raise UsageError(f"{name}={value!r}: give a whole number")
    return found


def is_cog(options: WriteOptions) -> bool:
    """Whether the caller asks for a COG, by `cog` or by `driver`."""
    if options.driver is None:
        return flag("cog", options.cog)
    name = str(options.driver).lower()
    if name not in ("gtiff", "cog"):
        raise UsageError(f"driver={options.driver!r}: to_geotiff writes GTiff and COG")
    if name == "gtiff" and flag("cog", options.cog):
        raise UsageError("cog=True and driver='GTiff' contradict each other: give one")
    return name == "cog"


def encoding_device(options: WriteOptions, *, on_device: bool) -> Literal["cpu", "cuda", "auto"]:
    """Returns the device that encodes: the caller's choice, or else the one that holds the samples."""
    device, gpu = _device.device_name(options.device), options.gpu
    if gpu is not None:
        if not isinstance(gpu, bool):
            raise UsageError(f"gpu={gpu!r}: give True or False, or device=")
        by_gpu: Literal["cpu", "cuda"] = "cuda" if gpu else "cpu"
        if device not in (None, by_gpu):
            raise UsageError(f"device={options.device!r} and gpu={gpu!r} contradict each other: give one")
        device = by_gpu
    one_of("on_gpu_failure", options.on_gpu_failure, ("raise", "strict", "auto"))
    if device is None:
        device = "cuda" if on_device else "cpu"
    return "auto" if device == "cuda" and options.on_gpu_failure == "auto" else device


def engine_options(
    options: WriteOptions,
    *,
    count: int,
    palette: bool,
    floats: bool,
    nodata: Any,
    on_device: bool,
    mask: bool,
    soft_mask: bool,
    statistics: bool,
) -> EngineOptions:
    """Returns the engine's options for the caller's; memory limits depend on how the write runs and come later.

    Parameters
    ----------
    count, palette, floats, nodata, mask, soft_mask
        The number of bands, whether the raster has a palette, whether its samples are floats, its nodata value,
        whether it has a mask, and whether that is one of opacity.
    on_device
        Whether the samples are in GPU memory.
    statistics
        Whether the write needs statistics of its own, whatever the caller says.
    """
    cog = is_cog(options)
    compression = _compression(options.compression)
    level, quality = number("compression_level", options.compression_level), number("quality", options.quality)
    max_z_error, lossless = (
        number("max_z_error", options.max_z_error, float),
        _flag_or_none("lossless", options.lossless),
    )
    check_codec(compression, level=level, quality=quality, lossless=lossless, max_z_error=max_z_error)
    tile, strips = _blocks(options, cog=cog)
    photometric, alpha = _color(options)
    if photometric == "palette" and not palette:
        raise UsageError(f"photometric={options.photometric!r}: the colours are missing: give colormap=")
    if alpha is not None and count == 1:
        given = 'photometric="rgba"' if options.alpha is None else f"alpha={options.alpha!r}"
        raise UsageError(f"{given}: the only band of the raster cannot be alpha; add a band, or leave it out")
    return EngineOptions(
        cog=cog,
        compression=compression,
        compression_level=level,
        quality=quality,
        lossless=lossless,
        max_z_error=max_z_error,
        predictor=_predictor(options.predictor),
        tile_size=tile,
        strips=strips,
        interleave=_interleave(options.interleave),
        nbits=whole("nbits", number("nbits", options.nbits), 1, 64),
        photometric=photometric,
        alpha=alpha,
        subsampling=_subsampling(options.subsampling, compression),
        big_endian=_big_endian(options.endianness),
        bigtiff=_bigtiff(options.bigtiff),
        sparse=flag("sparse", options.sparse),
        mask=mask,
        soft_mask=soft_mask,
        overview_levels=_overviews(options.overview_levels),
        overview_resampling=_resampling(options.overview_resampling, palette=palette),
        statistics=True if statistics else _statistics(options.statistics),
        nan_to_nodata=bool(
            flag("nan_to_nodata", options.nan_to_nodata) and floats and nodata is not None and nodata == nodata
        ),
        extra_tags=_extra_tags(options.extra_tags),
        device=encoding_device(options, on_device=on_device),
        nvcomp=_flag_or_none("nvcomp", options.nvcomp),
        threads=_threads(options.threads),
    )


def _interleave(value: Any) -> str:
    name = DEFAULTS["interleave"] if value is None else str(value).lower()
    return one_of("interleave", name, ("pixel", "band", "tile"))


def _extra_tags(tags: Any) -> list[tuple[int, int, bytes]] | None:
    if tags is None:
        return None
    if not isinstance(tags, (tuple, list)):
        raise UsageError(f"extra_tags={tags!r}: give a list of (number, type, value)")
    return [encode_tag(tag) for tag in tags] or None


def _compression(value: Any) -> str:
    name = "none" if value is None or value is False else str(getattr(value, "value", value)).lower()
    return COMPRESSION.get(name, name)


def _subsampling(value: Any, compression: str) -> str | None:
    if value is not None and compression != "jpeg":
        raise UsageError(f'subsampling={value!r}: {compression} has none; leave it out, or give compression="jpeg"')
    return None if value is None else str(value)


def _predictor(value: Any) -> str:
    if isinstance(value, bool):
        return "auto" if value else "none"
    name = str(value).lower()
    return PREDICTOR.get(name, name)


def _big_endian(order: Any) -> bool | None:
    if order is None:
        return None
    name = str(order).lower()
    if name not in ("little", "big", "native"):
        raise UsageError(f"endianness={order!r}: give 'little' or 'big'")
    return (sys.byteorder if name == "native" else name) == "big"


def _bigtiff(value: Any) -> str:
    if value is None or str(value).lower() in ("auto", "if_needed", "if_safer"):
        return "auto"
    return "yes" if flag("bigtiff", value) else "no"


def _overviews(value: Any) -> str | int | list[int]:
    if value is None or isinstance(value, bool):
        return "none" if value is False else "auto"
    if isinstance(value, str):
        name = value.lower()
        if name in ("auto", "none"):
            return name
        if name == "ignore_existing":
            return "auto"
    elif isinstance(value, Sequence) or (isinstance(value, np.ndarray) and value.ndim == 1):
        factors = [number("overview_levels", factor) for factor in value]
        if any(factor < 2 for factor in factors) or factors != sorted(set(factors)):
            raise UsageError(
                f"overview_levels={list(value)}: give increasing factors, such as [2, 4, 8], or the number of levels"
            )
        return factors or "none"
    return whole("overview_levels", number("overview_levels", value), 0, 32) or "none"


def _resampling(value: Any, *, palette: bool) -> str | None:
    if value is None:
        return None
    name = str(getattr(value, "name", value)).lower()
    name = RESAMPLING.get(name, name)
    # The mean of two palette indices is the index of an unrelated colour.
    return "nearest" if palette and name == "average" else name


def _statistics(value: Any) -> bool | None:
    if value is None or (isinstance(value, str) and value.lower() == "auto"):
        return None
    return flag("statistics", value)


def _threads(value: Any) -> int | None:
    if value is None or (isinstance(value, str) and value.lower() == "all_cpus"):
        return None
    return whole("threads", number("threads", value))


def _blocks(options: WriteOptions, *, cog: bool) -> tuple[tuple[int, int] | None, int | None]:
    """Returns columns and rows of a tile, or else rows of a strip."""
    columns, rows = (
        whole(name, number(name, getattr(options, name)), 1, MOST_PIXELS) for name in ("blockxsize", "blockysize")
    )
    if flag("tiled", options.tiled):
        for name, pixels in (("blockxsize", columns), ("blockysize", rows)):
            if pixels is not None and pixels % 16:
                raise UsageError(f"{name}={pixels}: the sides of a tile are multiples of 16")
    if not flag("tiled", options.tiled):
        if cog:
            raise UsageError("a COG is tiled: leave out tiled=False, or cog=True")
        if not isinstance(options.tile_size, int) or options.tile_size != DEFAULTS["tile_size"]:
            raise UsageError(
                f"tile_size={options.tile_size!r}: tiled=False stores strips; leave out one of them, or give "
                "blockysize= the rows of a strip"
            )
        return None, rows or 0
    size = options.tile_size
    sides = list(size) if isinstance(size, (tuple, list)) else [size, size]
    if len(sides) != 2:
        raise UsageError(f"tile_size={size!r}: give one number, or (rows, columns)")
    height, width = (whole("tile_size", number("tile_size", side), 16, MOST_PIXELS) for side in sides)
    across, down = columns or width, rows or height
    if across is None or down is None:
        raise UsageError(f"tile_size={size!r}: give one number, or (rows, columns)")
    return (across, down), None


def _color(options: WriteOptions) -> tuple[str | None, str | None]:
    """Returns the photometric interpretation and the kind of alpha; None leaves them to the engine."""
    photometric, alpha = options.photometric, options.alpha
    if isinstance(photometric, (int, np.integer)) and not isinstance(photometric, bool):
        if int(photometric) not in PHOTOMETRIC:
            raise UsageError(f"photometric={photometric!r}: give one of {sorted(PHOTOMETRIC)}, or a name")
        photometric = PHOTOMETRIC[int(photometric)]
    name = "auto" if photometric is None else str(photometric).lower()
    if name == "rgba":
        name, alpha = "rgb", alpha or "unassociated"
    kind = None
    if alpha is not None:
        word = "yes" if alpha is True else "no" if alpha is False else str(alpha).lower()
        if word not in ALPHA:
            raise UsageError(f"alpha={alpha!r}: give 'unassociated', 'premultiplied' or None")
        kind = ALPHA[word]
    return None if name == "auto" else name, kind


# Tags whose value is the offset of another directory: EXIF, GPS, EXIF's interoperability; and the types of offsets. In
# another file there is something else at that offset.
POINTER_TAGS = frozenset({34665, 34853, 40965})
POINTER_TYPES = frozenset({13, 18})


def is_pointer(number: int, kind: int | None) -> bool:
    """Whether the value of a tag is the offset of a directory, which has no meaning in another file."""
    return number in POINTER_TAGS or kind in POINTER_TYPES


# Format characters of Python's `struct` for the type codes of TIFF.
TAG_TYPES = {1: "B", 3: "H", 4: "I", 6: "b", 8: "h", 9: "i", 11: "f", 12: "d", 16: "Q", 17: "q"}
TAG_NAMES = {"byte": 1, "ascii": 2, "short": 3, "long": 4, "undefined": 7, "float": 11, "double": 12, "long8": 16}


def encode_tag(tag: Any) -> tuple[int, int, bytes]:
    """Returns number, type code and little-endian bytes of (number, type, value) or (number, type, count, value)."""
    if not isinstance(tag, (tuple, list)) or len(tag) not in (3, 4):
        raise UsageError(f"extra_tags: {tag!r} is not (number, type, value)")
    name = whole("extra_tags: number", tag[0], 1, 65535)
    kind = TAG_NAMES.get(tag[1].lower()) if isinstance(tag[1], str) else whole("extra_tags: type", tag[1], 1, 65535)
    value = tag[-1]
    if name is None:
        raise UsageError(f"extra_tags: {tag!r} is not (number, type, value)")
    if is_pointer(name, kind):
        raise UsageError(f"extra_tags: {tag!r}: it is an offset in another file: leave it out")
    if kind == 2 and isinstance(value, str):
        return name, kind, value.encode() + b"\0"
    if isinstance(value, (bytes, bytearray)) and kind is not None:
        return name, kind, bytes(value)
    if kind not in TAG_TYPES:
        raise UsageError(f"extra_tags: {tag!r}: type {tag[1]!r} takes bytes, or is unknown")
    values = list(value) if isinstance(value, (tuple, list)) or hasattr(value, "tolist") else [value]
    try:
        return name, kind, struct.pack(f"<{len(values)}{TAG_TYPES[kind]}", *values)
    except struct.error as error:
        raise UsageError(f"extra_tags: {tag!r}: {error}") from None
