"""Resolves sources (paths, addresses, buffers, file objects, fsspec, obstore) to the form that the engine opens."""

from __future__ import annotations

import errno as codes
import hashlib
import io
import os
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from . import _swath
from ._checks import whole
from ._errors import Error, UsageError, make
from ._gdal_paths import from_gdal, rasterio_name
from ._storage_options import Address, address_of, guard_of, refusal, unguarded
from ._threads import Lock

# Paths are strings here, as the engine takes them.
# ruff: noqa: PTH100, PTH116

Range = tuple[int, int]


@dataclass(frozen=True)
class Resolved:
    """A source in the form that the engine opens."""

    # May hold secrets, in an address or in its options.
    native: Any = field(repr=False)
    name: str
    # What another process opens.
    _pickled: Any = field(repr=False)
    _key: Callable[[], Hashable] = field(repr=False)
    # Whether the bytes are the caller's memory, which may change while a handle exists.
    mutable: bool = False
    # Options for the server or store of an address.
    remote: dict[str, Any] | None = field(default=None, repr=False)
    # The directory that the source itself names, as GDAL's `GTIFF_DIR:` does.
    ifd: int | None = None

    def page(self, ifd: int | None) -> int | None:
        """Returns the directory to open: the caller's choice, or the source's."""
        if ifd is None:
            return self.ifd
        try:
            page = whole("ifd", ifd)
        except UsageError:
            raise UsageError(f"ifd={ifd!r}: give the number of a directory, counted from 0") from None
        if self.ifd not in (None, page):
            raise UsageError(f"{self.name}: the source names directory {self.ifd} and ifd={ifd!r}: give one of them")
        return page

    @property
    def pickled(self) -> Any:
        """What another process opens; memory is copied only when it is pickled."""
        if isinstance(self.native, (bytearray, memoryview)):
            return bytes(self.native)
        return self._pickled

    @cached_property
    def key(self) -> Hashable:
        """Key that is equal for equal bytes, as far as that is known without reading them."""
        return self._key() if self.ifd is None else (self._key(), self.ifd)


def resolve(source: Any, storage_options: Mapping[str, Any] | None = None) -> Resolved:
    """Returns a source in the form that the engine opens; of `storage_options`, a local path obeys the guards alone."""
    if isinstance(source, (str, os.PathLike)):
        return _of_path(os.fspath(source), storage_options)
    if (name := rasterio_name(source)) is not None:
        return _of_path(name, storage_options)
    if storage_options is not None and not (isinstance(storage_options, Mapping) and not storage_options):
        raise UsageError(
            f"storage_options are for addresses, and the source is of type {type(source).__name__}: give them where it "
            "is created"
        )
    if isinstance(source, Resolved):
        return source
    if isinstance(source, Address):
        return _of_address(source)
    if isinstance(source, (bytes, bytearray, memoryview)):
        return _of_memory(source)
    if isinstance(source, tuple) and len(source) == 2 and _is_store(source[0]):
        return _of_ranges(StoreRanges(*source))
    if hasattr(source, "fs") and hasattr(source, "path"):
        return _of_fsspec(source.fs, source.path)
    if hasattr(source, "read_ranges") and hasattr(source, "size"):
        return _of_ranges(source)
    if hasattr(source, "read") and hasattr(source, "seek"):
        return _of_file(source)
    raise UsageError(
        "a source is a path, an address, bytes, a file-like object, an fsspec file, (obstore store, path) or a "
        f"rasterio dataset, not {type(source).__name__}"
    )


def _of_memory(data: bytes | bytearray | memoryview) -> Resolved:
    owner = data.obj if isinstance(data, memoryview) else data
    return Resolved(data, "<bytes>", data, _digest(data), mutable=not isinstance(owner, bytes))


def _digest(data: Any) -> Callable[[], Hashable]:
    return lambda: ("bytes", hashlib.blake2b(data, digest_size=16).hexdigest())


def _of_ranges(ranges: Any) -> Resolved:
    key = getattr(ranges, "key", None)
    return Resolved(ranges, str(ranges.name), ranges, key if callable(key) else lambda: ("object", id(ranges)))


def _of_path(path: str | bytes, storage_options: Mapping[str, Any] | None) -> Resolved:
    path, ifd = from_gdal(os.fsdecode(path))
    found = _of_plain_path(path, storage_options)
    return found if ifd is None else replace(found, ifd=ifd)


def _of_plain_path(path: str, storage_options: Mapping[str, Any] | None) -> Resolved:
    address = address_of(path, storage_options)
    if address is not None:
        return _of_address(address)
    name = _swath.shown(path) if "://" in path else path
    if (guard := guard_of(storage_options)) is not None:
        raise refusal(name, guard)
    scheme, mark, _ = path.partition("://")
    if not mark:
        return _of_local(path)
    scheme = scheme.lower()
    try:
        from fsspec.core import url_to_fs
    except ImportError:
        raise UsageError(
            f"{scheme}:// is read through fsspec, which is not installed; install it with the package for {scheme}, "
            "or give (obstore store, path)"
        ) from None
    try:
        with _opening(name):
            try:
                return _of_fsspec(*url_to_fs(path, **unguarded(storage_options)))
            except (ImportError, ValueError) as error:
                raise UsageError(f"{name}: fsspec cannot read this: {error}") from error
    except Error as error:
        if name == path:
            raise
        # Messages of fsspec may repeat a password or signature that the address holds.
        place = {"file": name, "errno": error.errno if isinstance(error, OSError) else None}
        kind = "usage" if isinstance(error, UsageError) else "source"
        reason = "fsspec cannot open this"
        raise make(kind, f"{name}: {reason}", reason, place) from None


def _of_address(address: Address) -> Resolved:
    key = ("address", address.url, address.options.digest())
    return Resolved(address.url, address.name, address, lambda: key, remote=address.options.native())


def _of_local(path: str) -> Resolved:
    def key() -> Hashable:
        absolute = os.path.abspath(path)
        try:
            found = os.stat(absolute)
        except OSError:
            return ("file", absolute)
        return ("file", absolute, found.st_mtime_ns, found.st_size, found.st_ino)

    return Resolved(path, path, os.path.abspath(path), key)


def _of_fsspec(fs: Any, path: str) -> Resolved:
    protocol = fs.protocol if isinstance(fs.protocol, str) else fs.protocol[0]
    if protocol in ("file", "local"):
        return _of_local(fs._strip_protocol(path))
    return _of_ranges(FsspecRanges(fs, path))


def _of_file(file: Any) -> Resolved:
    name = getattr(file, "name", None)
    # A real file is opened again by its path, if that still names it: many threads can read it, and it can be pickled.
    if isinstance(name, str) and isinstance(file, (io.BufferedReader, io.BufferedRandom, io.FileIO)):
        try:
            if os.path.samestat(os.fstat(file.fileno()), os.stat(name)):
                return _of_local(os.path.abspath(name))
        except (OSError, ValueError):
            pass
    if isinstance(file, io.BytesIO):
        return _of_memory(file.getbuffer())
    return _of_ranges(FileRanges(file))


@contextmanager
def _opening(name: str) -> Iterator[None]:
    """Turns errors of files, file systems, stores and servers into errors of swath that name the source."""
    try:
        yield
    except Error:
        raise
    except Exception as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
        place: dict[str, Any] = {"file": name}
        for kind, number in ((FileNotFoundError, codes.ENOENT), (PermissionError, codes.EACCES)):
            if isinstance(error, kind):
                place["errno"] = number
        raise make("source", f"{name}: {reason}", reason, place) from error


def _is_store(store: Any) -> bool:
    return type(store).__module__.split(".")[0] in ("obstore", "_obstore", "obspec") or hasattr(store, "get_ranges")


def _plain(file: Any) -> io.FileIO | None:
    """Returns the raw file behind a Python file, if that can be read at any position."""
    file = getattr(file, "file", file) if type(file).__module__ == "tempfile" else file
    raw = file.raw if type(file) in (io.BufferedReader, io.BufferedRandom) else file
    if type(raw) is not io.FileIO or not hasattr(os, "pread"):
        return None
    return raw if not raw.closed and raw.readable() and raw.seekable() else None


def _read_at(descriptor: int, offset: int, length: int) -> bytes:
    """Reads bytes at an offset, fewer only at the end of the file, without moving its position, which forks share."""
    parts = []
    while length and (found := os.pread(descriptor, length, offset)):
        parts.append(found)
        offset, length = offset + len(found), length - len(found)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _has_descriptor(file: Any) -> bool:
    try:
        return int(file.fileno()) >= 0
    except (AttributeError, OSError, TypeError, ValueError):
        return False


class FileRanges:
    """Reads ranges of a file-like object, one after the other."""

    # Reading many ranges at once is no faster.
    remote = False

    def __init__(self, file: Any) -> None:
        self._file = file
        self._plain = _plain(file)
        self._process = os.getpid()
        self._lock = Lock()
        self.name = str(getattr(file, "name", None) or f"<{type(file).__name__}>")

    def size(self) -> int:
        with _opening(self.name), self._lock:
            return int(self._file.seek(0, io.SEEK_END) or self._file.tell())

    def read_ranges(self, ranges: Sequence[Range]) -> list[Any]:
        if self._plain is not None:
            with self._lock:
                self._file.flush()
                descriptor = self._plain.fileno()
            return [_read_at(descriptor, offset, length) for offset, length in ranges]
        if os.getpid() != self._process and _has_descriptor(self._file):
            raise UsageError(
                f"{self.name}: this process was forked after the file was opened, and both processes share its "
                "position: open the file here, or give its path instead"
            )
        with self._lock:
            return [self._read(offset, length) for offset, length in ranges]

    def _read(self, offset: int, length: int) -> Any:
        self._file.seek(offset)
        found = self._file.read(length)
        # A raw file may return fewer bytes than requested.
        if found is None or len(found) == length:
            return found or b""
        parts = [bytes(found)]
        missing = length - len(found)
        # One that returns more than requested is wrong, and must not be asked again.
        while missing > 0 and (more := self._file.read(missing)):
            parts.append(bytes(more))
            missing -= len(more)
        return b"".join(parts)

    def __reduce__(self) -> tuple[Any, ...]:
        return FileRanges, (self._file,)


class FsspecRanges:
    """Reads ranges of a file in an fsspec file system."""

    def __init__(self, fs: Any, path: str) -> None:
        self._fs, self._path = fs, path
        self.name = str(fs.unstrip_protocol(path))

    def size(self) -> int:
        with _opening(self.name):
            return int(self._fs.size(self._path))

    def read_ranges(self, ranges: Sequence[Range]) -> list[Any]:
        starts = [offset for offset, _ in ranges]
        ends = [offset + length for offset, length in ranges]
        return list(self._fs.cat_ranges([self._path] * len(ranges), starts, ends, on_error="raise"))

    def key(self) -> Hashable:
        return ("fsspec", self.name, str(self._fs.ukey(self._path)))

    def __reduce__(self) -> tuple[Any, ...]:
        return FsspecRanges, (self._fs, self._path)


class StoreRanges:
    """Reads ranges of an object in an obstore store."""

    def __init__(self, store: Any, path: str) -> None:
        self._store, self._path = store, path
        self.name = path
        self._facts: Any = None

    def _head(self) -> Any:
        if self._facts is None:
            import obstore

            with _opening(self.name):
                self._facts = obstore.head(self._store, self._path)
        return self._facts

    def size(self) -> int:
        return int(self._head()["size"])

    def read_ranges(self, ranges: Sequence[Range]) -> list[Any]:
        import obstore

        starts = [offset for offset, _ in ranges]
        return list(
            obstore.get_ranges(self._store, self._path, starts=starts, lengths=[length for _, length in ranges])
        )

    def key(self) -> Hashable:
        facts = self._head()
        return (
            "obstore",
            repr(self._store),
            self._path,
            facts["size"],
            facts.get("e_tag"),
            str(facts["last_modified"]),
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return StoreRanges, (self._store, self._path)
