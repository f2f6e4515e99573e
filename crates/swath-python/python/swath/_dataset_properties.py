"""`DatasetProperties`: metadata of an open file, under the names that rasterio uses."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from . import _crs, _progress, _swath
from . import _georef as georef
from ._checks import text_or_none, truth, whole
from ._crs import Crs
from ._errors import Error, UsageError, warn

# Offsets (columns, rows) of the points of a pixel that `xy` knows.
_OFFSETS = {"center": (0.5, 0.5), "ul": (0.0, 0.0), "ur": (1.0, 0.0), "ll": (0.0, 1.0), "lr": (1.0, 1.0)}

# Colour spaces that readers convert to RGB, with GDAL's names for them.
_COLOR_SPACES = {"ycbcr": "YCbCr", "cmyk": "CMYK"}


def _is_file(bidx: Any) -> bool:
    """Whether a band number is 0, which stands for the file."""
    return isinstance(bidx, int | np.integer) and not isinstance(bidx, bool | np.bool_) and bidx == 0


class BoundingBox(NamedTuple):
    """Edges of an image, in coordinates of its reference system."""

    left: float
    bottom: float
    right: float
    top: float


class Transform(NamedTuple):
    """x = a * column + b * row + c, y = d * column + e * row + f; used where `affine.Affine` is not installed."""

    a: float
    b: float
    c: float
    d: float
    e: float
    f: float


class DatasetProperties(_swath.Dataset):
    """The part of :class:`Dataset` that reads no samples. It still works after `close`."""

    _cached_metadata: dict[str, Any] | None = None

    def _about(self) -> dict[str, Any]:
        """Returns `metadata()`, which is called once."""
        found = self._cached_metadata
        if found is None:
            found = self._cached_metadata = self.metadata()
        return found

    def close(self) -> None:
        """Closes the file. Reads that run already finish, later ones raise; the metadata stay available.

        For a file behind an address only metadata that were read before stay available: closing sends no request.
        """
        if not self.closed and self.remote_stats is None:
            # Closing a damaged file does not raise.
            with suppress(Error):
                self._about()
        super().close()

    def _warn_of_nodata(self) -> None:
        """Warns of a nodata value that no sample can have."""
        problem = self._about()["nodata_problem"]
        if problem is not None:
            warn(f"{self.name}: {problem}")

    def _affine(self) -> georef.Transform:
        """Returns the six numbers of the transform, the identity where the file has none."""
        return self._about()["transform"] or georef.IDENTITY

    def _band_numbers(self, bands: Any, count: int | None = None) -> list[int] | None:
        """Returns the band numbers that a caller gives: one, several, or None for all of them."""
        if bands is None:
            return None
        listed = [bands] if isinstance(bands, int | np.integer) else bands
        try:
            numbers = [operator.index(band) for band in listed]
        except TypeError:
            numbers = []
        if not numbers or isinstance(bands, str | bytes) or any(isinstance(band, bool | np.bool_) for band in listed):
            raise UsageError(f"{self.name}: bands={bands!r}: give a number from 1 to {self.count}, or a list of them")
        count = count or self.count
        if wrong := [band for band in numbers if not 1 <= band <= count]:
            raise UsageError(f"{self.name}: there is no band {wrong[0]}; the image has bands 1 to {self.count}")
        return numbers

    def _band(self, bidx: int) -> dict[str, Any]:
        if isinstance(bidx, bool | np.bool_) or not isinstance(bidx, int | np.integer):
            raise UsageError(f"{self.name}: bidx={bidx!r}: give a number from 1 to {self.count}")
        if not 1 <= bidx <= self.count:
            raise UsageError(f"{self.name}: there is no band {bidx}; the image has bands 1 to {self.count}")
        return self._about()["bands"][int(bidx) - 1]

    @property
    def crs(self) -> Crs | None:
        """The reference system: a string (code or WKT) with `to_epsg()`, `to_wkt()` and more; None without one."""
        return _crs.of(self._about()["crs"])

    @property
    def transform(self) -> Any:
        """The transform from pixels to coordinates: an `affine.Affine`, or six numbers where affine is not installed.

        The identity where the file has none.
        """
        try:
            from affine import Affine
        except ImportError:
            return Transform(*self._affine())
        return Affine(*self._affine())

    @property
    def bounds(self) -> BoundingBox:
        """Edges of the image: left, bottom, right, top. For a rotated image, the edges of the box around it."""
        a, b, c, d, e, f = self._affine()
        width, height = self.width, self.height
        if not b and not d:
            return BoundingBox(c, f + e * height, c + a * width, f)
        corners = [(x, y) for x in (0, width) for y in (0, height)]
        xs = [a * x + b * y + c for x, y in corners]
        ys = [d * x + e * y + f for x, y in corners]
        return BoundingBox(min(xs), min(ys), max(xs), max(ys))

    @property
    def res(self) -> tuple[float, float]:
        """Width and height of a pixel, in units of the reference system."""
        a, b, _, d, e, _ = self._affine()
        return math.hypot(a, d), math.hypot(b, e)

    @property
    def nodata(self) -> int | float | None:
        """Nodata value of the first band."""
        return self.nodatavals[0]

    @property
    def nodatavals(self) -> tuple[int | float | None, ...]:
        """Nodata value of each band."""
        self._warn_of_nodata()
        return tuple(band["nodata"] for band in self._about()["bands"])

    @property
    def dtypes(self) -> tuple[str, ...]:
        """Name of each band's sample type in the file; `dtype` is the type of the arrays."""
        # The only type name that rasterio has and NumPy lacks.
        stored = self.stored_dtype
        return (stored if stored == "complex_int16" else str(self.dtype),) * self.count

    @property
    def indexes(self) -> tuple[int, ...]:
        """Band numbers, from 1."""
        return tuple(range(1, self.count + 1))

    @property
    def descriptions(self) -> tuple[str | None, ...]:
        """Description of each band."""
        return tuple(band["description"] for band in self._about()["bands"])

    @property
    def units(self) -> tuple[str | None, ...]:
        """Unit of each band."""
        return tuple(band["unit"] for band in self._about()["bands"])

    @property
    def scales(self) -> tuple[float, ...]:
        """Factor of each band from stored samples to physical values."""
        return georef.band_scaling(self._about()["bands"])[0]

    @property
    def offsets(self) -> tuple[float, ...]:
        """Offset of each band, added after the scale."""
        return georef.band_scaling(self._about()["bands"])[1]

    @property
    def profile(self) -> dict[str, Any]:
        """Options with which :func:`to_geotiff` and `rasterio.open(path, "w", ...)` write a file like this one."""
        about = self._about()
        rows, columns = self.block_shape
        found = {
            "driver": "GTiff",
            "dtype": self.dtypes[0],
            "nodata": self.nodata,
            "width": self.width,
            "height": self.height,
            "count": self.count,
            "crs": self.crs,
            "transform": self.transform,
            "blockxsize": columns,
            "blockysize": rows,
            "tiled": self.tiled,
            "interleave": about["interleave"],
        }
        if about["compression"]:
            found["compress"] = about["compression"]
        space = about["photometric"]
        # Only JPEG converts YCbCr. Other codecs return YCbCr samples unconverted, and they must be written as they are.
        if space == "cmyk" or (space, about["compression"], about["interleave"]) == ("ycbcr", "jpeg", "pixel"):
            found["photometric"] = space
        if self.dtype in ("uint8", "uint16") and about["bits"] < 8 * self.dtype.itemsize:
            found["nbits"] = about["bits"]
        return found

    def _structure(self) -> dict[str, str]:
        """Returns GDAL's domain IMAGE_STRUCTURE."""
        about = self._about()
        space = _COLOR_SPACES.get(about["photometric"])
        found = dict(about["image_structure"])
        if compression := about["compression"]:
            found["COMPRESSION"] = "YCbCr JPEG" if (space, compression) == ("YCbCr", "jpeg") else compression.upper()
        if space:
            found["SOURCE_COLOR_SPACE"] = space
        found["INTERLEAVE"] = about["interleave"].upper()
        if about["photometric"] == "white":
            found["MINISWHITE"] = "YES"
        if about["predictor"] > 1:
            found["PREDICTOR"] = str(about["predictor"])
        return found

    def tags(self, bidx: int = 0, ns: str | None = None) -> dict[str, str]:
        """Returns metadata items of the file, or of a band.

        Parameters
        ----------
        bidx : int
            A band, counted from 1; 0 for the file.
        ns : str, optional
            GDAL's domain, such as ``"IMAGE_STRUCTURE"`` or ``"RPC"``; the default domain without it. EXIF, XMP and
            colour profiles have no domain here.
        """
        ns = text_or_none("ns", ns)
        if bidx is not None and not _is_file(bidx):
            return dict(self._band(bidx)["tags"].get(ns or "", {}))
        return self._structure() if ns == "IMAGE_STRUCTURE" else dict(self._about()["tags"].get(ns or "", {}))

    def tag_namespaces(self, bidx: int = 0) -> list[str]:
        """Returns the domains that have items, without the default one; `bidx` is a band, or 0 for the file."""
        of_file = bidx is None or _is_file(bidx)
        named = {**self._about()["tags"], "IMAGE_STRUCTURE": None} if of_file else self._band(bidx)["tags"]
        return [name for name in named if name]

    def colormap(self, bidx: int = 1) -> dict[int, tuple[int, int, int, int]]:
        """Returns the colour table of a band: bytes of red, green, blue and opacity for each value.

        `bidx` is the band, counted from 1. A file without one raises :class:`UsageError`, which is a ValueError.
        """
        band = self._band(bidx)
        if band["color"] != "palette":
            raise UsageError(f"{self.name}: band {bidx} has no colour table")
        about = self._about()
        palette = about["palette"]
        if not palette:
            # Gray levels from black to white, or from white to black where 0 is white.
            last = (1 << about["bits"]) - 1
            shades = [value * 255 // last for value in range(last + 1)]
            shades = shades[::-1] if about["photometric"] == "white" else shades
            return {value: (shade, shade, shade, 255) for value, shade in enumerate(shades)}
        # A TIFF stores 16-bit colours. Most writers multiply bytes by 257, some by 256.
        divisor = 256 if all(part % 256 == 0 for color in palette for part in color) else 257
        return {
            value: (*(part // divisor for part in color), 0 if value == band["nodata"] else 255)  # type: ignore[misc]
            for value, color in enumerate(palette)
        }

    def overviews(self, bidx: int = 1) -> list[int]:
        """Returns the factors by which the overviews are smaller than the image; `overview_sizes` has their sizes.

        `bidx` is a band, counted from 1; all bands have the same overviews.
        """
        self._band(bidx)
        return [round(self.width / width) for width, _ in self.overview_sizes]

    def index(self, x: Any, y: Any, *, op: Callable[[float], Any] | None = None) -> tuple[Any, Any]:
        """Returns row and column of the pixel that contains a point, which may be outside the image.

        Parameters
        ----------
        x, y
            Coordinates in the file's reference system: numbers, or arrays, for which the result is arrays.
        op
            Rounds fractions of pixels; `math.floor` by default.
        """
        a, b, c, d, e, f = self._affine()
        try:
            across, down = np.asarray(x, float) - c, np.asarray(y, float) - f
            finite = bool(np.isfinite(across).all() and np.isfinite(down).all())
        except (OverflowError, TypeError, ValueError):
            finite = False
        if op is not None and not callable(op):
            raise UsageError(f"op={op!r}: give a function of one number, such as math.floor")
        if not finite:
            raise UsageError(f"x={x!r}, y={y!r}: give finite numbers, or arrays of them")
        size = a * e - b * d
        if not size:
            raise UsageError(f"{self.name}: the transform {(a, b, c, d, e, f)} maps all pixels onto a line")
        columns, rows = (e * across - b * down) / size, (a * down - d * across) / size
        if not columns.ndim:
            whole = op or math.floor
            return whole(float(rows)), whole(float(columns))
        if op is None:
            return np.floor(rows).astype(np.int64), np.floor(columns).astype(np.int64)
        return np.vectorize(op)(rows), np.vectorize(op)(columns)

    def xy(self, row: Any, col: Any, offset: str = "center") -> tuple[Any, Any]:
        """Returns the coordinates of pixels.

        Parameters
        ----------
        row, col
            Numbers, or arrays, for which the result is arrays.
        offset : {"center", "ul", "ur", "ll", "lr"}
            Which point of the pixel: its centre, or a corner (upper left, ...).
        """
        if not isinstance(offset, str) or offset not in _OFFSETS:
            raise UsageError(f"offset={offset!r}: give one of {', '.join(_OFFSETS)}")
        right, lower = _OFFSETS[offset]
        a, b, c, d, e, f = self._affine()
        try:
            columns, rows = np.asarray(col, float) + right, np.asarray(row, float) + lower
        except (OverflowError, TypeError, ValueError):
            raise UsageError(f"row={row!r}, col={col!r}: give numbers, or arrays of them") from None
        x, y = a * columns + b * rows + c, d * columns + e * rows + f
        return (x, y) if x.ndim else (float(x), float(y))

    def describe(self, tags: bool = False) -> dict[str, Any]:
        """Describes the file as :func:`info` does; `tags` says whether to list every TIFF tag too."""
        return super().describe(truth("tags", tags))

    def validate(self, full: bool = False, strict: bool = False) -> dict[str, Any]:
        """Checks whether the file is a valid COG, as :func:`validate` does.

        `full` says whether to check every block and the bytes around it, `strict` whether warnings make a file invalid.
        """
        return super().validate(truth("full", full), truth("strict", strict))

    def statistics(self, bands: Any = None, *, threads: int | None = None, progress: Any = None) -> dict[str, Any]:
        """Computes minimum, maximum, mean, standard deviation and counts of each band.

        `bands` and `progress` are as for :func:`stats`, `threads` as for :meth:`read`.
        """
        numbers = self._band_numbers(bands)
        self._warn_of_nodata()
        report, close = _progress.reporter(progress, self.width * self.height * self.count)
        try:
            return super().statistics(numbers, threads=whole("threads", threads), progress=report)
        finally:
            close()
