#!/usr/bin/env python3
"""A scripted HTTP server for the tests: serves ranges, counts requests, and misbehaves on demand.

It speaks just enough HTTP/1.1 over plain sockets to be quick and to break every rule on purpose. Before each answer
the server calls a script, which may return a fault (remote_faults.py). A fault answers instead of the server, or
changes or cuts the server's response.

    python tests/python/remote.py FOLDER [--latency SECONDS]

serves a folder from a process of its own, for benchmarks: `GET /-/traffic` returns the counts and resets them.
"""

from __future__ import annotations

import argparse
import contextlib
import email.utils
import json
import os
import socket
import struct
import subprocess
import sys
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock
from urllib.parse import unquote

PIECE = 1 << 16


@dataclass
class Request:
    """One request as received; names of headers are in lower case."""

    number: int
    method: str
    target: str
    headers: dict[str, str]
    body: bytes

    @property
    def path(self) -> str:
        return unquote(self.target.partition("?")[0])

    @property
    def query(self) -> str:
        return self.target.partition("?")[2]

    @property
    def range(self) -> tuple[int, int | None] | None:
        """First byte and the one after the last (none: to the end); a suffix has a negative start."""
        asked = self.headers.get("range", "")
        if not asked.startswith("bytes=") or "," in asked:
            return None
        first, _, last = asked.removeprefix("bytes=").partition("-")
        return (int(first), int(last) + 1 if last else None) if first else (-int(last), None)


@dataclass
class Answer:
    """The response to send, and how sending ends."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: Any = b""
    # Bytes of the body after which the connection ends; none: all of it, and the connection stays.
    cut: int | None = None
    # How it ends there: `close`, `reset`, or `hang`.
    end: str = "close"
    # Sends nothing, not even a status.
    silent: bool = False
    # Seconds between single bytes of the body.
    drip: float = 0.0
    # Bytes of meaningless headers.
    padding: int = 0


Respond = Callable[[], Answer]
Fault = Callable[[Request, Respond], Answer]
Script = Callable[[Request], Fault | None]


@dataclass(frozen=True)
class Resource:
    """One version of the resource at a path. Without validators a client can only compare sizes."""

    content: Any
    etag: str | None = None
    modified: str | None = None

    @staticmethod
    def of(content: Any, version: int = 1) -> Resource:
        """A resource whose validators are computed from content and version."""
        crc = zlib.crc32(content) if isinstance(content, bytes) else len(content)
        return Resource(content, f'"{crc:08x}-{version}"', email.utils.formatdate(1e9 + version, usegmt=True))


class Zeros:
    """Content of any length that takes no memory."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, part: slice) -> bytes | Zeros:
        start, stop, _ = part.indices(self.size)
        return bytes(stop - start) if stop - start <= 1 << 24 else Zeros(stop - start)


class Server:
    """Answers requests, a thread a connection, in this process."""

    def __init__(
        self, script: Script | None = None, latency: float = 0.0, address: str = "127.0.0.1", port: int = 0
    ) -> None:
        self.script, self.latency = script, latency
        self.lock = threading.Lock()
        self.stopped = threading.Event()
        self.forget()
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self.socket = socket.create_server((address, port), family=family, backlog=512)
        self.port = int(self.socket.getsockname()[1])
        self.url = f"http://{f'[{address}]' if ':' in address else address}:{self.port}"
        self.open: set[socket.socket] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    def forget(self) -> None:
        """Resets all counts, and numbers requests from 1 again."""
        with self.lock:
            self.requests: list[Request] = []
            self.connections = 0
            self.sent: Counter[str] = Counter()

    def asked(self, path: str | None = None) -> list[Request]:
        return [request for request in self.requests if path is None or request.path == path]

    def bytes_sent(self, path: str | None = None) -> int:
        """Bytes of bodies that went out."""
        return self.sent.total() if path is None else self.sent[path]

    def respond(self, request: Request) -> Answer:
        """The answer of a server that behaves."""
        raise NotImplementedError

    def close(self) -> None:
        self.stopped.set()
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()
        with self.lock:
            left = list(self.open)
        for connection in left:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _accept(self) -> None:
        while not self.stopped.is_set():
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            with self.lock:
                self.connections += 1
                self.open.add(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with connection.makefile("rb", buffering=PIECE) as incoming:
                while (request := self._receive(incoming)) is not None:
                    if self.latency:
                        time.sleep(self.latency)
                    fault = self.script(request) if self.script else None

                    def respond(request: Request = request) -> Answer:
                        return self.respond(request)

                    answer = fault(request, respond) if fault else respond()
                    if not self._send(connection, request, answer):
                        return
        except (OSError, ValueError):
            return
        finally:
            with self.lock:
                self.open.discard(connection)
            connection.close()

    def _receive(self, incoming: Any) -> Request | None:
        first = incoming.readline(PIECE)
        if not first.strip():
            return None
        method, target, _ = first.decode("latin-1").split(" ", 2)
        headers: dict[str, str] = {}
        while (line := incoming.readline(PIECE)) not in (b"\r\n", b"\n", b""):
            name, _, value = line.decode("latin-1").partition(":")
            headers[name.strip().lower()] = value.strip()
        body = incoming.read(int(headers.get("content-length", 0)))
        with self.lock:
            request = Request(len(self.requests) + 1, method, target, headers, body)
            self.requests.append(request)
        return request

    def _send(self, connection: socket.socket, request: Request, answer: Answer) -> bool:
        """Sends an answer; returns whether the connection stays open."""
        if not answer.silent:
            self._send_head(connection, answer)
            body = b"" if request.method == "HEAD" else answer.body
            self._send_body(connection, request, body, answer)
        if answer.cut is None and not answer.silent:
            return answer.headers.get("Connection") != "close"
        if answer.end == "hang":
            self.stopped.wait(30)
        elif answer.end == "reset":
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        return False

    def _send_head(self, connection: socket.socket, answer: Answer) -> None:
        headers = dict(answer.headers)
        if answer.status >= 200 and answer.status not in (204, 304) and "Transfer-Encoding" not in headers:
            headers.setdefault("Content-Length", str(len(answer.body)))
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        connection.sendall(f"HTTP/1.1 {answer.status} Scripted\r\n".encode())
        junk = b"X-Padding: " + b"x" * 4000 + b"\r\n"
        for _ in range(0, answer.padding, len(junk)):
            self.sent["padding"] += len(junk)
            connection.sendall(junk)
        connection.sendall(f"{lines}\r\n".encode("latin-1"))

    def _send_body(self, connection: socket.socket, request: Request, body: Any, answer: Answer) -> None:
        stop = len(body) if answer.cut is None else min(answer.cut, len(body))
        step = 1 if answer.drip else PIECE
        for start in range(0, stop, step):
            piece = body[start : min(start + step, stop)]
            if answer.drip and self.stopped.wait(answer.drip):
                return
            # Counted before it is sent: a client that has the bytes may check the count at once.
            with self.lock:
                self.sent[request.path] += len(piece)
            connection.sendall(piece)


class Files(Server):
    """Serves ranges of its resources by path, each with its validators."""

    def __init__(self, files: Mapping[str, Any] | None = None, **options: Any) -> None:
        self.files: dict[str, Resource] = {}
        # A server that ignores If-Match and the like still sends its validators.
        self.conditions = True
        for path, content in (files or {}).items():
            self.put(path, content)
        super().__init__(**options)

    def put(self, path: str, content: Any, version: int = 1) -> None:
        self.files[path] = content if isinstance(content, Resource) else Resource.of(content, version)

    def respond(self, request: Request) -> Answer:
        found = self.files.get(request.path)
        if found is None:
            return Answer(404, {"Content-Type": "text/plain"}, b"nothing is here")
        return ranged(request, found, self.conditions)


def ranged(request: Request, found: Resource, conditions: bool = True) -> Answer:
    """A resource, or the requested part of it, or the reason for refusing."""
    size = len(found.content)
    headers = {"Accept-Ranges": "bytes", "Content-Type": "image/tiff"}
    if found.etag:
        headers["ETag"] = found.etag
    if found.modified:
        headers["Last-Modified"] = found.modified
    asked = request.headers
    if conditions:
        if asked.get("if-match", found.etag) not in (found.etag, "*"):
            return Answer(412, headers)
        if asked.get("if-unmodified-since", found.modified) != found.modified:
            return Answer(412, headers)
        if "if-none-match" in asked and asked["if-none-match"] == found.etag:
            return Answer(304, headers)
    wanted = request.range
    if wanted is None or asked.get("if-range", found.etag) not in (found.etag, found.modified):
        return Answer(200, headers, found.content)
    start = max(0, size + wanted[0]) if wanted[0] < 0 else wanted[0]
    if start >= size:
        return Answer(416, {**headers, "Content-Range": f"bytes */{size}"})
    stop = min(size, wanted[1] or size)
    headers["Content-Range"] = f"bytes {start}-{stop - 1}/{size}"
    return Answer(206, headers, found.content[start:stop])


# ---------------------------------------------------------------------------------------------------------- processes


@contextmanager
def direct() -> Iterator[None]:
    """Reaches loopback without a proxy, whatever the environment sets."""
    with mock.patch.dict(os.environ, {"no_proxy": "127.0.0.1,localhost,::1", "NO_PROXY": "127.0.0.1,localhost,::1"}):
        yield


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


@contextmanager
def started(command: list[str], port: int, name: str, **environment: str) -> Iterator[str]:
    """Starts a server program, waits until it listens, and ends it afterwards."""
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env={**os.environ, **environment}, text=True
    )
    try:
        until = time.monotonic() + 60
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            if process.poll() is not None or time.monotonic() > until:
                process.kill()
                stderr = process.communicate()[1]
                raise RuntimeError(f"{name} did not start: {stderr[-2000:]}")
            time.sleep(0.05)
        # A full pipe would block a server that logs.
        threading.Thread(target=process.stderr.read if process.stderr else None, daemon=True).start()
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class _Folder(Files):
    """A folder, served alike under every path (so that no client's cache helps), and its traffic."""

    def respond(self, request: Request) -> Answer:
        if request.path != "/-/traffic":
            found = self.files.get(request.path[request.path.rfind("/") :])
            return ranged(request, found) if found else Answer(404)
        asked = [other for other in self.requests if other.path != "/-/traffic"]
        counts = {"requests": len(asked), "connections": self.connections, "bytes": self.bytes_sent()}
        self.forget()
        return Answer(200, {"Content-Type": "application/json"}, json.dumps(counts).encode())


def main() -> None:
    parser = argparse.ArgumentParser(description="Serves the files of a folder by ranges, on loopback.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--latency", type=float, default=0.0, help="seconds that every answer waits")
    arguments = parser.parse_args()
    files = {f"/{path.name}": path.read_bytes() for path in sorted(arguments.folder.iterdir()) if path.is_file()}
    server = _Folder(files, latency=arguments.latency)
    print(server.url, flush=True)
    # The parent process holds the other end.
    sys.stdin.read()
    server.close()


if __name__ == "__main__":
    main()
