"""Where bytes come from: paths, URLs, buffers, file-like objects, fsspec and obstore, all as the engine takes them."""

from __future__ import annotations

import base64
import errno as codes
import hashlib
import io
import os
import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from urllib.parse import SplitResult, quote, unquote, urljoin, urlsplit

from ._errors import Error, UsageError, make

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
    _elsewhere: Any
    _key: Callable[[], Hashable] = field(repr=False)
    # Whether the bytes are the caller's memory, which may change while a handle over it is kept.
    mutable: bool = False

    @property
    def pickled(self) -> Any:
        """What another process opens; memory is copied when it travels, not before."""
        if isinstance(self.native, (bytearray, memoryview)):
            return bytes(self.native)
        return self._elsewhere

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
        f"a source is a path, a URL, bytes, a file-like object, an fsspec file or (obstore store, path), "
        f"not {type(source).__name__}"
    )


def _of_memory(data: bytes | bytearray | memoryview) -> Resolved:
    owner = data.obj if isinstance(data, memoryview) else data
    return Resolved(data, "<bytes>", data, _digest(data), mutable=not isinstance(owner, bytes))


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
    name = path.partition("?")[0]
    with _opening(name):
        try:
            return _of_fsspec(*url_to_fs(path))
        except (ImportError, ValueError) as error:
            raise UsageError(f"{name}: fsspec cannot read this: {error}") from error


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
        return _of_memory(file.getbuffer())
    return _of_ranges(FileRanges(file))


@contextmanager
def _opening(name: str) -> Iterator[None]:
    """Errors of files, file systems, stores and servers as errors of the package that name the source."""
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


class FileRanges:
    """A file-like object, one range after the other."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._lock = threading.Lock()
        self.name = str(getattr(file, "name", None) or f"<{type(file).__name__}>")

    def size(self) -> int:
        with _opening(self.name), self._lock:
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
    """An object of an obstore store."""

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


class HttpRanges:
    """A file behind HTTP, by range requests over connections that stay open."""

    # Requests in flight at once, and connections that are kept for the next ones; redirects that are followed.
    _FLIGHT = 8
    _HOPS = 5
    _FIRST = 32 << 10

    def __init__(self, url: str) -> None:
        self._url = url
        # Where redirects led.
        self._final = url
        # Passwords and signatures do not belong into messages.
        scheme, _, rest = url.partition("?")[0].partition("#")[0].partition("://")
        host, slash, path = rest.partition("/")
        self.name = f"{scheme}://{host.rpartition('@')[2]}{slash}{path}"
        try:
            parts = urlsplit(url)
            fault = "" if parts.hostname and parts.port != 0 else "there is no host in it"
        except ValueError as error:
            fault = str(error)
        if fault:
            raise UsageError(f"{self.name}: {fault}: give a URL such as https://host/file.tif")
        # By process as well: one that was forked must not use the connections of the other.
        self._free: dict[tuple[int, str, str], list[Any]] = {}
        self._lock = threading.Lock()
        self._size: int | None = None
        self._mark: str | None = None
        self._head = b""

    def size(self) -> int:
        if self._size is None:
            with _opening(self.name):
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

    def _get(self, offset: int, length: int) -> bytes:
        url = self._final
        answer, final = self._follow(url, offset, length)
        if 400 <= answer.status < 500 and url != self._url:
            # Where redirects led may be good for a while only.
            answer, final = self._follow(self._url, offset, length)
        data = self._checked(answer, offset, length)
        self._final = final
        return data

    def _follow(self, url: str, offset: int, length: int) -> tuple[_Answer, str]:
        """The answer to a request for a range, and the address that gave it."""
        for _ in range(self._HOPS + 1):
            parts = urlsplit(url)
            if parts.scheme not in ("http", "https") or not parts.hostname:
                raise OSError(f"the server leads to {parts.scheme}://{parts.hostname or ''}, which is not followed")
            answer = self._ask(parts, f"bytes={offset}-{offset + length - 1}")
            if answer.status not in (301, 302, 303, 307, 308):
                return answer, url
            url = urljoin(url, answer.headers.get("Location", ""))
        raise OSError(f"more than {self._HOPS} redirects")

    def _ask(self, parts: SplitResult, span: str) -> _Answer:
        import http.client
        import urllib.request

        # What stands in an address as it is read may not stand so in a request; what is escaped stays.
        target = quote(parts.path or "/", safe="/%:@!$&'()*+,;=~")
        if parts.query:
            target += "?" + quote(parts.query, safe="/%:@!$&'()*+,;=~?")
        headers = {"Range": span, "Accept-Encoding": "identity", **_credentials("Authorization", parts)}
        own = urlsplit(self._url)
        if (parts.scheme, parts.hostname, parts.port) == (own.scheme, own.hostname, own.port):
            headers |= _credentials("Authorization", own)
        host = parts.netloc.rpartition("@")[2]
        proxy = urllib.request.getproxies().get(parts.scheme)
        through = None
        if proxy and not urllib.request.proxy_bypass(host):
            through = urlsplit(proxy if "://" in proxy else f"//{proxy}")
        if through is not None and parts.scheme == "http":
            target = f"http://{host}{target}"
            headers |= _credentials("Proxy-Authorization", through)
        place = (os.getpid(), parts.scheme, host)
        with self._lock:
            kept = self._free.setdefault(place, [])
            connection = kept.pop() if kept else None
        if connection is None:
            connection = _connection(parts, through)
        try:
            try:
                answer = _exchange(connection, target, headers)
            except (http.client.HTTPException, ConnectionError, TimeoutError):
                # A connection that was kept may have been closed by the other side: once more on a new one.
                connection.close()
                answer = _exchange(connection, target, headers)
        except http.client.HTTPException as error:
            connection.close()
            raise OSError(f"the server broke off: {type(error).__name__} {error}") from error
        except OSError:
            connection.close()
            raise
        with self._lock:
            if len(kept) < self._FLIGHT:
                kept.append(connection)
                return answer
        connection.close()
        return answer

    def _checked(self, answer: _Answer, offset: int, length: int) -> bytes:
        status, data = answer.status, answer.data
        if status in (404, 410):
            raise FileNotFoundError(codes.ENOENT, "the server has no such file")
        if status in (401, 403):
            raise PermissionError(codes.EACCES, f"the server answered {status} {answer.reason}")
        if status == 200:
            raise OSError("the server does not answer range requests; download the file first")
        if status != 206:
            raise OSError(f"the server answered {status} {answer.reason}")
        span, _, total = answer.headers.get("Content-Range", "").partition(" ")[2].partition("/")
        mark = answer.headers.get("ETag") or answer.headers.get("Last-Modified")
        if not total.isdigit() or span.partition("-")[0] != str(offset):
            raise OSError("the server sent a range that was not asked for")
        if self._size is None:
            self._size, self._mark = int(total), mark
        if (self._size, self._mark) != (int(total), mark):
            raise OSError("the file changed while it was read; open it again")
        if len(data) != min(length, self._size - offset):
            raise OSError(f"{len(data)} bytes came where {length} were asked for")
        return data

    def __reduce__(self) -> tuple[Any, ...]:
        return HttpRanges, (self._url,)


@dataclass(frozen=True)
class _Answer:
    """What a server said, read to its end."""

    status: int
    reason: str
    headers: Any
    data: bytes


def _exchange(connection: Any, target: str, headers: dict[str, str]) -> _Answer:
    connection.request("GET", target, headers=headers)
    response = connection.getresponse()
    if response.status == 206:
        data = response.read()
    else:
        # A short text, or the whole of a large file from a server that knows no ranges.
        data = b""
        response.read(_GAP)
        if not response.isclosed():
            connection.close()
    return _Answer(response.status, response.reason, response.headers, data)


def _connection(parts: SplitResult, through: SplitResult | None) -> Any:
    """A connection to the server of an address, or to the proxy that leads to it; it is made when it is used."""
    import http.client

    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    # Always with the port: without one, the end of an IPv6 address is taken for it.
    host, port = parts.hostname or "", parts.port or kind.default_port
    if through is None:
        return kind(host, port, timeout=60)
    connection = kind(through.hostname or "", through.port or http.client.HTTP_PORT, timeout=60)
    if parts.scheme == "https":
        connection.set_tunnel(host, port, _credentials("Proxy-Authorization", through))
    return connection


def _credentials(header: str, parts: SplitResult) -> dict[str, str]:
    """The header for the user and password of an address, if it has them."""
    if parts.username is None:
        return {}
    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return {header: "Basic " + base64.b64encode(pair.encode()).decode("ascii")}
