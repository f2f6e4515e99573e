"""Uploads to stores that take no bytes fail at the deadline; uploads to slow stores succeed."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest
import swath
from harness import Swath
from remote import direct

TIMEOUT = 1.5
# Time for a process to start, for the abort of an upload, and for a busy machine.
SLACK = 12.0


class Taker:
    """An S3 store that answers everything, and whose way of taking PUT bodies varies."""

    def __init__(self, take: Callable[[Any, int, threading.Event], bytes | None]) -> None:
        self.take = take
        self.stopped = threading.Event()
        self.objects: dict[str, bytes] = {}
        self.puts = 0
        self.socket = socket.socket()
        # Small system buffers, so that few untaken bytes fit into them.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32 << 10)
        self.socket.bind(("127.0.0.1", 0))
        self.socket.listen(64)
        self.url = f"http://127.0.0.1:{self.socket.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self.socket.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError, ValueError), connection, connection.makefile("rb", buffering=0) as incoming:
            while first := incoming.readline():
                method, target, _ = first.decode().split(" ", 2)
                headers = {}
                while (line := incoming.readline().decode().strip()) != "":
                    name, _, value = line.partition(":")
                    headers[name.lower()] = value.strip()
                length = int(headers.get("content-length", 0))
                if method == "PUT":
                    self.puts += 1
                    body = self.take(incoming, length, self.stopped)
                    if body is None:
                        return
                    self.objects[target] = body
                else:
                    incoming.read(length)
                answer = b"<R><UploadId>one</UploadId></R>" if method == "POST" else b""
                connection.sendall(
                    f'HTTP/1.1 200 OK\r\nETag: "a"\r\nContent-Length: {len(answer)}\r\n\r\n'.encode() + answer
                )

    def close(self) -> None:
        self.stopped.set()
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()


def nothing(_: Any, __: int, stopped: threading.Event) -> None:
    stopped.wait(60)


def half(incoming: Any, length: int, stopped: threading.Event) -> None:
    left = length // 2
    while left > 0:
        left -= len(incoming.read(min(left, 1 << 16)))
    stopped.wait(60)


def all_of_it(incoming: Any, length: int, stopped: threading.Event) -> None:
    """Takes the whole body and does not answer."""
    received(incoming, length)
    stopped.wait(60)


def received(incoming: Any, length: int, pause: float = 0.0) -> bytes:
    body = bytearray()
    while len(body) < length:
        body += incoming.read(min(length - len(body), 1 << 17))
        time.sleep(pause)
    return bytes(body)


def slowly(incoming: Any, length: int, _: threading.Event) -> bytes:
    """Takes far longer than the deadline, with a little progress each time."""
    return received(incoming, length, 0.05)


@pytest.fixture
def taker(request: pytest.FixtureRequest) -> Iterator[Taker]:
    made = Taker(request.param)
    with direct():
        yield made
    made.close()


@cache
def noise(rows: int) -> np.ndarray:
    return np.random.default_rng(rows).integers(0, 65536, (rows, 1024), "u2")


def send(taker: Taker, rows: int, **options: Any) -> None:
    place = {"endpoint": taker.url, "region": "here", "aws_access_key_id": "ID", "aws_secret_access_key": "hush"}
    swath.to_geotiff(
        noise(rows), "s3://bucket/a.tif", compression="none", storage_options={**place, "deadline": TIMEOUT, **options}
    )


# An object that the system's buffers may hold, one of the largest that go in one piece, and parts.
@pytest.mark.parametrize("rows", [512, 7168, 16384], ids=["1 MiB", "14 MiB", "32 MiB in parts"])
@pytest.mark.parametrize("taker", [nothing, half, all_of_it], indirect=True)
def test_an_upload_to_a_store_that_takes_no_more_bytes_fails(taker: Taker, rows: int) -> None:
    started = time.monotonic()
    with pytest.raises(swath.WriteTimedOutError, match="deadline"):
        send(taker, rows)
    # Bytes in the system's buffers may still be in flight: a second for each 256 KiB, up to 4 MiB.
    leaving = 16 if taker.take is all_of_it else 0
    assert time.monotonic() - started < TIMEOUT + SLACK + leaving
    assert taker.puts <= 4, "nothing is sent again once the time is up"


@pytest.mark.parametrize("taker", [slowly], indirect=True)
@pytest.mark.parametrize("rows", [512, 4096], ids=["1 MiB", "8 MiB"])
def test_a_slow_store_takes_as_long_as_it_needs(taker: Taker, rows: int) -> None:
    started = time.monotonic()
    send(taker, rows)
    assert rows < 4096 or time.monotonic() - started > 2 * TIMEOUT, "the store was slow indeed"
    (stored,) = taker.objects.values()
    assert stored == swath.to_geotiff(noise(rows), None, compression="none")


@pytest.mark.parametrize("taker", [nothing], indirect=True)
def test_a_stall_is_retried_within_the_deadline(taker: Taker) -> None:
    with pytest.raises(swath.WriteTimedOutError):
        send(taker, 512, deadline=4.0, stall_timeout=0.8)
    assert taker.puts > 1


@pytest.mark.parametrize("taker", [nothing], indirect=True)
def test_the_command_bounds_uploads(taker: Taker, tool: Swath) -> None:
    source = tool.folder / "source.tif"
    source.write_bytes(swath.to_geotiff(noise(16384), None, compression="none"))
    keys = ("--remote-option", "aws_access_key_id=ID", "--remote-option", "aws_secret_access_key=hush")
    place = ("--endpoint", taker.url, "--region", "here", "--compress", "none")
    run = tool.run("convert", source, "s3://bucket/a.tif", *place, *keys, "--remote-timeout", TIMEOUT)
    source.unlink()
    assert run.code == 2 and "deadline" in run.stderr, run.stderr
    assert run.seconds < TIMEOUT + SLACK


@pytest.fixture(name="tool")
def command_line(request: pytest.FixtureRequest) -> Swath:
    """The command-line tool; `swath` is the package here."""
    return request.getfixturevalue("swath")
