"""The exceptions and warnings of the package.

Reads from servers and stores raise:

- `MissingError` where there is no such file,
- `DeniedError` where the credentials do not suffice, or the address is not permitted,
- `LimitError` beyond the bytes or requests that the caller allows,
- `ChangedError` where the file is no longer the one that was opened,
- `TimedOutError` (a `TimeoutError`) where the server does not answer in time,
- `UnavailableError` (a `ConnectionError`) where the server refuses connections, or fails more often than it is retried,
- `SourceError` for an answer that does not fit the request,
- `UsageError` for addresses and settings that cannot be used.

Writes raise `MissingFolderError`, `WriteDeniedError`, `LimitError`, `WriteTimedOutError`, `WriteUnavailableError`,
`WriteError` and `UsageError` for the same causes.
"""

from __future__ import annotations

import errno as codes
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType
from typing import Any


class Error(Exception):
    """Base class of all errors of swath.

    Attributes
    ----------
    file : str or None
        The file, URL or other name of the source.
    ifd : int or None
        Directory of the file, counted from 0.
    tag : int or None
        TIFF tag.
    tile : tuple of int or None
        Column and row of the tile or strip, in tiles.
    offset : int or None
        Byte offset in the file.
    reason : str
        What went wrong, without the location.
    """

    file: str | None = None
    ifd: int | None = None
    tag: int | None = None
    tile: tuple[int, int] | None = None
    offset: int | None = None
    reason: str = ""

    def __str__(self) -> str:
        # OSError would put its errno in front of the message.
        return str(self.args[-1]) if self.args else ""

    def __reduce__(self) -> tuple[Any, ...]:
        location = {name: getattr(self, name) for name in ("file", "ifd", "tag", "tile", "offset", "reason")}
        return _rebuild, (type(self), self.args, location)


def _rebuild(kind: type[Error], args: tuple[Any, ...], location: dict[str, Any]) -> Error:
    """Creates a pickled exception again, with its place in the file."""
    error = kind(*args)
    for name, value in location.items():
        setattr(error, name, value)
    if isinstance(error, OSError):
        error.filename = location["file"]
    return error


class FormatError(Error, ValueError):
    """The file violates its format, or a tile is corrupt."""


class UnsupportedError(Error, NotImplementedError):
    """The file uses a feature that swath does not support."""


class LimitError(Error, ValueError):
    """The request exceeds a limit."""


class UsageError(Error, ValueError):
    """The caller passed an argument that cannot be used."""


class SourceError(Error, OSError):
    """The bytes could not be read."""


class WriteError(Error, OSError):
    """The bytes could not be written."""


class DeviceError(Error, RuntimeError):
    """There is no GPU, it does not support the request, or it failed."""


class AllocationError(Error, MemoryError):
    """There is not enough memory for the result."""


class InternalError(Error, RuntimeError):
    """A rule of swath's own is broken: please report it. Neither the caller nor the file is at fault."""


class CancelledError(Error, RuntimeError):
    """The work was cancelled."""


class MissingError(SourceError, FileNotFoundError):
    """There is no such file."""


class DeniedError(SourceError, PermissionError):
    """There is no permission to read the file."""


class DirectoryError(SourceError, IsADirectoryError):
    """The path is a folder, not a file."""


class MissingFolderError(WriteError, FileNotFoundError):
    """The folder or bucket to write to does not exist."""


class WriteDeniedError(WriteError, PermissionError):
    """There is no permission to write the file."""


class ChangedError(SourceError):
    """The file was written to or replaced after it was opened. Open it again."""


class TimedOutError(SourceError, TimeoutError):
    """A server or store took longer than the caller allowed."""


class UnavailableError(SourceError, ConnectionError):
    """A server or store could not be reached, or failed repeatedly."""


class WriteTimedOutError(WriteError, TimeoutError):
    """A store took longer to receive the bytes than the caller allowed."""


class WriteUnavailableError(WriteError, ConnectionError):
    """A store could not be reached for a write, or failed repeatedly."""


class SwathWarning(UserWarning):
    """Something was done otherwise than requested, or the call could be improved."""


class DeviceWarning(SwathWarning):
    """The CPU did work that the caller requested from a GPU."""


_KINDS: dict[str, type[Error]] = {
    "format": FormatError,
    "unsupported": UnsupportedError,
    "limit": LimitError,
    "usage": UsageError,
    "source": SourceError,
    "write": WriteError,
    "device": DeviceError,
    "memory": AllocationError,
    "internal": InternalError,
    "cancelled": CancelledError,
    "changed": ChangedError,
    "timeout": TimedOutError,
    "unavailable": UnavailableError,
    "write_timeout": WriteTimedOutError,
    "write_unavailable": WriteUnavailableError,
}

# Errors with an errno for which Python has an exception of its own.
_BY_ERRNO: dict[tuple[str, int], type[Error]] = {
    ("source", codes.ENOENT): MissingError,
    ("source", codes.EACCES): DeniedError,
    ("source", codes.EPERM): DeniedError,
    ("source", codes.EISDIR): DirectoryError,
    ("write", codes.ENOENT): MissingFolderError,
    ("write", codes.EACCES): WriteDeniedError,
    ("write", codes.EPERM): WriteDeniedError,
}


def make(kind: str, message: str, reason: str, location: dict[str, Any]) -> Error:
    """Returns the exception for a kind of error; `location` may also hold an errno."""
    number = location.pop("errno", None)
    chosen = _BY_ERRNO.get((kind, number), _KINDS.get(kind, Error))
    error = chosen(number, message) if issubclass(chosen, OSError) and number is not None else chosen(message)
    if isinstance(error, OSError):
        error.filename = location.get("file")
    error.reason = reason
    for name, value in location.items():
        setattr(error, name, value)
    return error


# Packages that call swath on behalf of the user: a warning names the line that called them.
_SKIPPED_PACKAGES = frozenset({"swath", "xarray", "dask", "distributed"})


# The messages of the warnings that `recorded` collects in this thread.
_record: ContextVar[list[str] | None] = ContextVar("record", default=None)


@contextmanager
def recorded() -> Iterator[list[str]]:
    """Collects the messages of warnings, which are issued all the same."""
    messages: list[str] = []
    token = _record.set(messages)
    try:
        yield messages
    finally:
        _record.reset(token)


def warn(message: str, category: type[Warning] = SwathWarning) -> None:
    """Issues a warning for the line of the user's code that called the package."""
    messages = _record.get()
    if messages is not None:
        messages.append(message)
    level = 2
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and str(frame.f_globals.get("__name__")).partition(".")[0] in _SKIPPED_PACKAGES:
        level += 1
        frame = frame.f_back
    warnings.warn(message, category, stacklevel=level)
