"""The exceptions and warnings of the package.

What servers and stores do to a read: a file that is not there is a `MissingError`, credentials that do not do and
addresses that may not be asked are a `DeniedError`, more bytes or requests than allowed a `LimitError`, a file that
is no longer the one that was opened a `ChangedError`, silence a `TimedOutError` (a `TimeoutError`), a server that
refuses connections, or whose failures outlast the retries, an `UnavailableError` (a `ConnectionError`), an answer
that does not fit the request a `SourceError`, addresses and settings that cannot be used a `UsageError`. Writes raise
`MissingFolderError`, `WriteDeniedError`, `LimitError`, `WriteTimedOutError`, `WriteUnavailableError`, `WriteError`
and `UsageError`.
"""

from __future__ import annotations

import errno as codes
import sys
import warnings
from types import FrameType
from typing import Any


class Error(Exception):
    """Anything that goes wrong in swath.

    Attributes
    ----------
    file : str or None
        The file, URL or other name of the source.
    ifd : int or None
        Directory of the file, counted from 0.
    tag : int or None
        TIFF tag.
    tile : tuple of int or None
        Column and row of the tile or strip.
    offset : int or None
        Byte of the file.
    reason : str
        What went wrong, without the place.
    """

    file: str | None = None
    ifd: int | None = None
    tag: int | None = None
    tile: tuple[int, int] | None = None
    offset: int | None = None
    reason: str = ""

    def __str__(self) -> str:
        # OSError would put its number in front of a message that says everything.
        return str(self.args[-1]) if self.args else ""

    def __reduce__(self) -> tuple[Any, ...]:
        place = {name: getattr(self, name) for name in ("file", "ifd", "tag", "tile", "offset", "reason")}
        return _rebuild, (type(self), self.args, place)


def _rebuild(kind: type[Error], args: tuple[Any, ...], place: dict[str, Any]) -> Error:
    error = kind(*args)
    for name, value in place.items():
        setattr(error, name, value)
    if isinstance(error, OSError):
        error.filename = place["file"]
    return error


class FormatError(Error, ValueError):
    """The file contradicts its format, or a tile of it is damaged."""


class UnsupportedError(Error, NotImplementedError):
    """The file uses something that is not supported."""


class LimitError(Error, ValueError):
    """More is asked for than the limits allow."""


class UsageError(Error, ValueError):
    """The caller asked for something that there is not."""


class SourceError(Error, OSError):
    """The bytes could not be read."""


class WriteError(Error, OSError):
    """The bytes could not be written."""


class DeviceError(Error, RuntimeError):
    """There is no GPU, it cannot do this, or it failed."""


class CancelledError(Error, RuntimeError):
    """The work was stopped."""


class MissingError(SourceError, FileNotFoundError):
    """There is no such file."""


class DeniedError(SourceError, PermissionError):
    """The file may not be read."""


class DirectoryError(SourceError, IsADirectoryError):
    """A folder stands where a file belongs."""


class MissingFolderError(WriteError, FileNotFoundError):
    """There is no such folder or bucket to write to."""


class WriteDeniedError(WriteError, PermissionError):
    """The file may not be written."""


class ChangedError(SourceError):
    """The file is not the one that was opened: it was written to or replaced. Open it again."""


class TimedOutError(SourceError, TimeoutError):
    """A server or store took longer than the caller allowed."""


class UnavailableError(SourceError, ConnectionError):
    """A server or store could not be reached, or failed again and again."""


class WriteTimedOutError(WriteError, TimeoutError):
    """A store took longer to take the bytes than the caller allowed."""


class WriteUnavailableError(WriteError, ConnectionError):
    """A store could not be reached while it was written to, or failed again and again."""


class SwathWarning(UserWarning):
    """Something was done otherwise than asked, or could be done better."""


class DeviceWarning(SwathWarning):
    """The CPU did what a GPU was asked for."""


_KINDS: dict[str, type[Error]] = {
    "format": FormatError,
    "unsupported": UnsupportedError,
    "limit": LimitError,
    "usage": UsageError,
    "source": SourceError,
    "write": WriteError,
    "device": DeviceError,
    "cancelled": CancelledError,
    "changed": ChangedError,
    "timeout": TimedOutError,
    "unavailable": UnavailableError,
    "write_timeout": WriteTimedOutError,
    "write_unavailable": WriteUnavailableError,
}

# What the operating system said, as Python's own exceptions have it.
_BY_NUMBER: dict[tuple[str, int], type[Error]] = {
    ("source", codes.ENOENT): MissingError,
    ("source", codes.EACCES): DeniedError,
    ("source", codes.EPERM): DeniedError,
    ("source", codes.EISDIR): DirectoryError,
    ("write", codes.ENOENT): MissingFolderError,
    ("write", codes.EACCES): WriteDeniedError,
    ("write", codes.EPERM): WriteDeniedError,
}


def make(kind: str, message: str, reason: str, place: dict[str, Any]) -> Error:
    """The exception for an error of the engine."""
    number = place.pop("errno", None)
    chosen = _BY_NUMBER.get((kind, number), _KINDS.get(kind, Error))
    error = chosen(number, message) if issubclass(chosen, OSError) and number is not None else chosen(message)
    if isinstance(error, OSError):
        error.filename = place.get("file")
    error.reason = reason
    for name, value in place.items():
        setattr(error, name, value)
    return error


# Packages whose calls lead to ours: a warning names the line that called them.
_INSIDE = frozenset({"swath", "xarray", "dask", "distributed"})


def warn(message: str, category: type[Warning] = SwathWarning) -> None:
    """Warns at the line that called the package; whether and how often it is shown is for Python's filters to say."""
    level = 2
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and str(frame.f_globals.get("__name__")).partition(".")[0] in _INSIDE:
        level += 1
        frame = frame.f_back
    warnings.warn(message, category, stacklevel=level)
