"""Where bytes come from: paths, URLs, buffers, file-like objects, fsspec and obstore, all as the engine takes them."""

from __future__ import annotations

import hashlib
import io
import os
import threading
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from urllib.parse import unquote, urlsplit

from ._errors import UsageError

# Paths are text here, as the engine takes them.
# ruff: noqa: PTH100, PTH116

Range = tuple[int, int]

# Ranges with fewer bytes between them are fetched as one.
_GAP = 64 << 10


@dataclass(frozen=True)
class Resolved:
    """A source in the form that the engine opens."""

    native: Any
    name: str
    pickled: Any
    _key: Callable[[], Hashable] = field(repr=False)

    @cached_property
    def key(self) -> Hashable:
        """The same for the same bytes, as far as that can be told without reading them."""
        return self._key()


def resolve(source: Any) -> Resolved:
    """A source in the form that the engine opens."""
    if isinstance(source, Resolved):
        return source
    if isinstance(source, (str, os.PathLike)):
        return _of_path(os.fspath(source))
    if isinstance(source, (bytes, bytearray, memoryview)):
        return Resolved(source, "<bytes>", bytes(source) if not isinstance(source, bytes) else source, _digest(source))
    if isinstance(source, tuple) and len(source) == 2 and _is_store(source[0]):
        return _of_ranges(StoreRanges(*source))
    if hasattr(source, "fs") and hasattr(source, "path"):
        return _of_fsspec(source.fs, source.path)
    if hasattr(source, "read_ranges") and hasattr(source, "size"):
        return _of_ranges(source)
    if hasattr(source, "read") and hasattr(source, "seek"):
        return _of_file(source)
    raise UsageError(
        f"a source is a path, a URL, bytes, a file-like object, an fsspec file or (obstore store, path), "
        f"not {type(source).__name__}"
    )


def _digest(data: Any) -> Callable[[], Hashable]:
    return lambda: ("bytes", hashlib.blake2b(data, digest_size=16).hexdigest())


def _of_ranges(ranges: Any) -> Resolved:
    key = getattr(ranges, "key", None)
    return Resolved(ranges, str(ranges.name), ranges, key if callable(key) else lambda: ("object", id(ranges)))


def _of_path(path: str | bytes) -> Resolved:
    path = os.fsdecode(path)
    scheme, mark, _ = path.partition("://")
    if not mark:
        return _of_local(path)
    scheme = scheme.lower()
    if scheme == "file":
        return _of_local(unquote(urlsplit(path).path))
    if scheme in ("http", "https"):
        return _of_ranges(HttpRanges(path))
    try:
        from fsspec.core import url_to_fs
    except ImportError:
        raise UsageError(
            f"{scheme}:// is read through fsspec, which is not installed; install it with the package for {scheme} "
            "(s3fs, gcsfs, adlfs), or give (obstore store, path)"
        ) from None
    try:
        return _of_fsspec(*url_to_fs(path))
    except (ImportError, ValueError) as error:
        raise UsageError(f"{path.partition('?')[0]}: fsspec cannot read this: {error}") from error


def _of_local(path: str) -> Resolved:
    def key() -> Hashable:
        absolute = os.path.abspath(path)
        try:
            found = os.stat(absolute)
        except OSError:
            return ("file", absolute)
        return ("file", absolute, found.st_mtime_ns, found.st_size)

    return Resolved(path, path, os.path.abspath(path), key)


def _of_fsspec(fs: Any, path: str) -> Resolved:
    protocol = fs.protocol if isinstance(fs.protocol, str) else fs.protocol[0]
    if protocol in ("file", "local"):
        return _of_local(fs._strip_protocol(path))
    return _of_ranges(FsspecRanges(fs, path))


def _of_file(file: Any) -> Resolved:
    name = getattr(file, "name", None)
    # A real file is read by its own descriptor's path, where that still leads to it: many threads can, and it pickles.
    if isinstance(name, str) and isinstance(file, (io.BufferedReader, io.BufferedRandom, io.FileIO)):
        try:
            if os.path.samestat(os.fstat(file.fileno()), os.stat(name)):
                return _of_local(os.path.abspath(name))
        except (OSError, ValueError):
            pass
    if isinstance(file, io.BytesIO):
        data = file.getbuffer()
        return Resolved(data, "<bytes>", _Snapshot(file), _digest(data))
    return _of_ranges(FileRanges(file))


class _Snapshot:
    """Bytes of an object in memory, copied only when they travel."""

    def __init__(self, file: io.BytesIO) -> None:
        self._file = file

    def __reduce__(self) -> tuple[Any, ...]:
        return bytes, (self._file.getvalue(),)


def _is_store(store: Any) -> bool:
    return type(store).__module__.split(".")[0] in ("obstore", "_obstore", "obspec") or hasattr(store, "get_ranges")


class FileRanges:
    """A file-like object, one range after the other."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._lock = threading.Lock()
        self.name = str(getattr(file, "name", None) or f"<{type(file).__name__}>")

    def size(self) -> int:
        with self._lock:
            return int(self._file.seek(0, io.SEEK_END) or self._file.tell())

    def read_ranges(self, ranges: Sequence[Range]) -> list[Any]:
        with self._lock:
            return [self._read(offset, length) for offset, length in ranges]

    def _read(self, offset: int, length: int) -> Any:
        self._file.seek(offset)
        found = self._file.read(length)
        # Raw files may give less than was asked for.
        if found is None or len(found) == length:
            return found or b""
        parts = [bytes(found)]
        missing = length - len(found)
        while missing and (more := self._file.read(missing)):
            parts.append(bytes(more))
            missing -= len(more)
        return b"".join(parts)

    def __reduce__(self) -> tuple[Any, ...]:
        return FileRanges, (self._file,)


class FsspecRanges:
    """A file of an fsspec file system."""

    def __init__(self, fs: Any, path: str) -> None:
        self._fs, self._path = fs, path
        self.name = str(fs.unstrip_protocol(path))

    def size(self) -> int:
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
    """An object of an obstore store."""

    def __init__(self, store: Any, path: str) -> None:
        self._store, self._path = store, path
        self.name = path
        self._facts: Any = None

    def _head(self) -> Any:
        if self._facts is None:
            import obstore

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


class HttpRanges:
    """A file behind HTTP, by range requests over connections that stay open."""

    # Requests in flight at once, and redirects that are followed.
    _FLIGHT = 8
    _HOPS = 5
    _FIRST = 32 << 10

    def __init__(self, url: str) -> None:
        self.name = url.split("?", 1)[0]
        self._url = url
        self._local = threading.local()
        self._size: int | None = None
        self._mark: str | None = None
        self._head = b""

    def size(self) -> int:
        if self._size is None:
            self._head = self._get(0, self._FIRST)
        assert self._size is not None
        return self._size

    def read_ranges(self, ranges: Sequence[Range]) -> list[Any]:
        size = self.size()
        merged: list[list[int]] = []
        for offset, length in sorted(ranges):
            end = min(offset + length, size)
            if merged and offset <= merged[-1][1] + _GAP:
                merged[-1][1] = max(merged[-1][1], end)
            else:
                merged.append([offset, end])
        if len(merged) > 1:
            from concurrent.futures import ThreadPoolExecutor

            with ThreadPoolExecutor(min(len(merged), self._FLIGHT)) as pool:
                pieces = list(pool.map(lambda span: self._piece(*span), merged))
        else:
            pieces = [self._piece(*span) for span in merged]
        found = []
        for offset, length in ranges:
            for (start, end), piece in zip(merged, pieces, strict=True):
                if start <= offset < end:
                    found.append(memoryview(piece)[offset - start : offset - start + length])
                    break
        return found

    def key(self) -> Hashable:
        return ("url", self._url, self.size(), self._mark)

    def _piece(self, start: int, end: int) -> bytes:
        if end <= len(self._head):
            return self._head[start:end]
        return self._get(start, end - start)

    def _connection(self, scheme: str, host: str) -> Any:
        import http.client

        open_ones = self._local.__dict__.setdefault("connections", {})
        if (scheme, host) not in open_ones:
            kind = http.client.HTTPSConnection if scheme == "https" else http.client.HTTPConnection
            open_ones[scheme, host] = kind(host, timeout=60)
        return open_ones[scheme, host]

    def _get(self, offset: int, length: int) -> bytes:
        import http.client
        from urllib.parse import urljoin

        url = self._url
        headers = {"Range": f"bytes={offset}-{offset + length - 1}", "Accept-Encoding": "identity"}
        for _ in range(self._HOPS):
            parts = urlsplit(url)
            if parts.scheme not in ("http", "https"):
                raise OSError(f"{self.name}: led to {parts.scheme}://, which is not followed")
            target = parts.path + (f"?{parts.query}" if parts.query else "") or "/"
            connection = self._connection(parts.scheme, parts.netloc)
            try:
                connection.request("GET", target, headers=headers)
                response = connection.getresponse()
            except (http.client.HTTPException, ConnectionError, TimeoutError):
                # A connection that was kept may have been closed by the other side: once more on a new one.
                connection.close()
                connection.request("GET", target, headers=headers)
                response = connection.getresponse()
            if response.status in (301, 302, 303, 307, 308):
                response.read()
                url = urljoin(url, response.headers.get("Location", ""))
                continue
            return self._body(response, connection, offset, length)
        raise OSError(f"{self.name}: more than {self._HOPS} redirects")

    def _body(self, response: Any, connection: Any, offset: int, length: int) -> bytes:
        if response.status != 206:
            connection.close()
            if response.status == 404:
                raise FileNotFoundError(2, f"{self.name}: the server has no such file")
            if response.status == 200:
                raise OSError(f"{self.name}: the server does not answer range requests; download the file first")
            raise OSError(f"{self.name}: the server answered {response.status} {response.reason}")
        span, _, total = response.headers.get("Content-Range", "").partition(" ")[2].partition("/")
        first = span.partition("-")[0]
        mark = response.headers.get("ETag") or response.headers.get("Last-Modified")
        data = response.read()
        if not total.isdigit() or first != str(offset):
            raise OSError(f"{self.name}: the server sent a range that was not asked for")
        if self._size is None:
            self._size, self._mark = int(total), mark
        if (self._size, self._mark) != (int(total), mark):
            raise OSError(f"{self.name}: the file changed while it was read; open it again")
        if len(data) != min(length, self._size - offset):
            raise OSError(f"{self.name}: {len(data)} bytes came where {length} were asked for")
        return data

    def __reduce__(self) -> tuple[Any, ...]:
        return HttpRanges, (self._url,)
