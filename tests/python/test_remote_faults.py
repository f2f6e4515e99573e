"""A server that misbehaves in every way: pixels are right or there is a clear error, and secrets stay secret."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import swath
from harness import Swath
from remote import Answer, Fault, Files, Request, Resource, Respond, Zeros, direct
from remote_faults import LYING, PASSING, after, always, at, drip, padding, redirect, silent, status, whole
from remote_readers import equal_pixels
from swath import _errors as errors

SECRET = "nobody-may-see-this"
BOX = swath.Window(100, 200, 300, 300)
# A generous time limit for reads that must not hang.
SOON = 20.0


@pytest.fixture(name="tool")
def command_line(request: pytest.FixtureRequest) -> Swath:
    """The command-line tool; `swath` is the package here."""
    return request.getfixturevalue("swath")


def made(seed: int) -> tuple[np.ndarray, bytes]:
    pixels = np.random.default_rng(seed).integers(0, 60_000, (640, 640), "u2")
    return pixels, swath.to_geotiff(pixels, None, compression="deflate", tile_size=64, crs=32633)


@cache
def old() -> tuple[np.ndarray, bytes]:
    return made(5)


@cache
def new() -> tuple[np.ndarray, bytes]:
    """Another version: other pixels under the same head, so that only a comparison shows the change."""
    pixels, content = made(6)
    return pixels, content


@pytest.fixture
def server() -> Iterator[Files]:
    with direct(), Files({"/file.tif": old()[1]}) as made:
        yield made


def window(url: str, **options: Any) -> np.ndarray:
    return np.asarray(swath.Dataset(url, storage_options=options or None).read(window=BOX))[0]


def want(pixels: np.ndarray) -> np.ndarray:
    return pixels[BOX.y : BOX.y + BOX.height, BOX.x : BOX.x + BOX.width]


def right(url: str, **options: Any) -> None:
    equal_pixels(window(url, **options), want(old()[0]))


def wrong(url: str, kind: type[Exception] | tuple[type[Exception], ...], **options: Any) -> str:
    """The text of the error, which must be one of swath's, with file and reason."""
    started = time.monotonic()
    with pytest.raises(kind) as raised:
        window(url, **options)
    assert time.monotonic() - started < SOON
    message = str(raised.value)
    assert isinstance(raised.value, swath.Error), type(raised.value)
    assert len(message.split()) >= 4, message
    assert SECRET not in message + repr(raised.value) + repr(raised.value.args)
    return message


@cache
def requests_of_a_read() -> int:
    with Files({"/file.tif": old()[1]}) as server:
        right(f"{server.url}/file.tif")
        return len(server.requests)


# ------------------------------------------------------------------------------------------------------ passing faults


@pytest.mark.parametrize("name", PASSING)
def test_transient_faults_are_retried(server: Files, name: str) -> None:
    """The fault occurs at each request of the read in turn."""
    count = requests_of_a_read()
    assert count >= 2
    for number in range(1, count + 1):
        server.forget()
        server.script = at({number: PASSING[name]})
        dataset = swath.Dataset(f"{server.url}/file.tif")
        equal_pixels(np.asarray(dataset.read(window=BOX))[0], want(old()[0]))
        assert len(server.requests) == count + 1, number
        assert dataset.remote_stats["retries"] == 1
        assert dataset.remote_stats["requests"] == count + 1


@pytest.mark.parametrize("name", ["status 500", "status 429", "reset at once", "closed in the body"])
def test_permanent_faults_are_reported(server: Files, name: str) -> None:
    server.script = always(PASSING[name])
    wrong(f"{server.url}/file.tif", errors.UnavailableError, retries=2)
    assert len(server.requests) == 3


def test_a_missing_server_is_reported() -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    for scheme in ("http", "https"):
        with direct():
            message = wrong(f"{scheme}://127.0.0.1:{port}/file.tif", errors.UnavailableError)
        assert f"127.0.0.1:{port}" in message and "is the server running" in message


# Notes each connection to a port in a file.
COUNTER = r"""
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>
int connect(int socket, const struct sockaddr *address, socklen_t length) {
  int (*next)(int, const struct sockaddr *, socklen_t) = dlsym(RTLD_NEXT, "connect");
  const struct sockaddr_in *internet = (const struct sockaddr_in *)address;
  if (address->sa_family == AF_INET && ntohs(internet->sin_port) == atoi(getenv("COUNT_PORT"))) {
    int file = open(getenv("COUNT_FILE"), O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (write(file, "x", 1) != 1) abort();
    close(file);
  }
  return next(socket, address, length);
}
"""


def test_a_refused_first_connection_is_not_retried(tool: Swath, tmp_path: Path) -> None:
    compiler = shutil.which("cc")
    assert compiler, "the tests need a C compiler, as the build does"
    (tmp_path / "counter.c").write_text(COUNTER)
    library, count = tmp_path / "counter.so", tmp_path / "count"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, tmp_path / "counter.c", "-ldl"], check=True)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    settings = {"LD_PRELOAD": str(library), "COUNT_PORT": str(port), "COUNT_FILE": str(count), "NO_PROXY": "*"}
    command = [tool.binary, "info", f"http://127.0.0.1:{port}/file.tif"]
    done = subprocess.run(command, env={**os.environ, **settings}, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "is the server running" in done.stderr, done.stderr
    assert count.read_text() == "x"


def test_a_server_that_does_not_speak_tls_is_reported_at_once() -> None:
    asked = []

    def answer(listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with connection:
                    asked.append(connection.recv(4096))
                    connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")

    with direct(), socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer, args=(listener,), daemon=True)
        thread.start()
        message = wrong(f"https://127.0.0.1:{listener.getsockname()[1]}/file.tif", errors.UnavailableError)
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(5)
    assert "no secure connection" in message
    assert len(asked) == 1


def test_a_host_that_does_not_exist_is_reported() -> None:
    with direct():
        wrong("https://there.is.no.such.host.invalid/file.tif", swath.Error)


def test_a_server_that_starts_again_is_waited_for(server: Files) -> None:
    """No server listens for a moment, but one did before."""
    dataset = swath.Dataset(f"{server.url}/file.tif")
    port = server.port
    server.close()
    started: list[Files] = []

    def start() -> None:
        time.sleep(0.5)
        started.append(Files({"/file.tif": old()[1]}, port=port).__enter__())

    thread = threading.Thread(target=start)
    thread.start()
    try:
        equal_pixels(np.asarray(dataset.read(window=BOX))[0], want(old()[0]))
        assert dataset.remote_stats is not None and dataset.remote_stats["retries"] > 0
    finally:
        thread.join()
        for again in started:
            again.close()


def test_the_wait_that_a_server_asks_for_ends_at_the_deadline(server: Files) -> None:
    server.script = always(status(503, Retry_After="3600"))
    wrong(f"{server.url}/file.tif", swath.SourceError, deadline=2.0)
    assert len(server.requests) <= 2


# ------------------------------------------------------------------------------------------------------- lying answers


@pytest.mark.parametrize("name", LYING)
def test_lies_never_become_pixels(server: Files, name: str) -> None:
    """The fault occurs at each request, once or always: right pixels after a retry, an error otherwise."""
    for number in range(1, requests_of_a_read() + 1):
        server.forget()
        server.script = at({number: LYING[name]})
        try:
            right(f"{server.url}/file.tif", retries=2)
        except swath.SourceError as error:
            assert not isinstance(error, errors.ChangedError) or "Content-Range" in name, error
    # A server that always states the same wrong size is consistent, and its bytes are right.
    server.script = always(LYING[name])
    if name == "Content-Range of another file":
        right(f"{server.url}/file.tif")
    else:
        wrong(f"{server.url}/file.tif", swath.SourceError, retries=2)
    server.forget()
    server.script = lambda request: LYING[name] if request.number > 1 else None
    wrong(f"{server.url}/file.tif", swath.SourceError, retries=2)


def test_a_server_without_ranges_costs_next_to_nothing(server: Files) -> None:
    """The server would send all 10 GB."""
    server.put("/huge.tif", Zeros(10 << 30))
    server.script = always(whole)
    message = wrong(f"{server.url}/huge.tif", swath.SourceError)
    assert "range" in message.lower()
    # Bytes sent before the connection was closed: the system's buffers, not the object.
    assert server.bytes_sent() < 64 << 20


def test_a_server_that_stops_knowing_ranges_is_noticed(server: Files) -> None:
    server.script = lambda request: whole if request.number > 1 else None
    wrong(f"{server.url}/file.tif", swath.SourceError)


@pytest.mark.parametrize("size", [1 << 20, 256 << 20])
def test_endless_headers_end(server: Files, size: int) -> None:
    server.script = always(padding(size))
    wrong(f"{server.url}/file.tif", swath.SourceError, retries=1)
    assert server.sent["padding"] < 32 << 20


def test_a_truncated_object_is_reported(server: Files) -> None:
    content = old()[1]
    server.put("/file.tif", content[: len(content) // 2])
    dataset = swath.Dataset(f"{server.url}/file.tif")
    with pytest.raises(swath.Error) as raised:
        dataset.read()
    assert not isinstance(raised.value, errors.ChangedError)
    assert re.search(r"\d", str(raised.value)), "says which byte is missing"


# ------------------------------------------------------------------------------------------------------ changed objects


def versions() -> dict[str, tuple[Resource, Resource, bool]]:
    """Old version, new version, and whether the server honours conditions."""
    first, second = old()[1], new()[1]
    longer = second + bytes(1000)
    stamp = Resource.of(first).modified
    later = Resource.of(second, 2).modified
    return {
        "ETag, conditions kept": (Resource(first, '"a"'), Resource(second, '"b"'), True),
        "ETag, conditions ignored": (Resource(first, '"a"'), Resource(second, '"b"'), False),
        "Last-Modified, conditions kept": (Resource(first, None, stamp), Resource(second, None, later), True),
        "Last-Modified, conditions ignored": (Resource(first, None, stamp), Resource(second, None, later), False),
        "weak ETag": (Resource(first, 'W/"a"', stamp), Resource(second, 'W/"b"', later), False),
        "length only": (Resource(first), Resource(longer), False),
        "ETag appears": (Resource(first), Resource(longer, '"b"'), False),
        "gone shorter": (Resource(first, '"a"'), Resource(second[: len(second) // 3], '"b"'), False),
    }


@pytest.mark.parametrize("name", versions())
def test_a_file_that_changes_is_never_mixed(server: Files, name: str) -> None:
    """The file changes at each request from the second on; the first decides the version."""
    before, then, server.conditions = versions()[name]
    for number in range(2, requests_of_a_read() + 1):
        server.put("/file.tif", before)
        server.forget()

        def script(request: Request, number: int = number) -> None:
            if request.number == number:
                server.put("/file.tif", then)

        server.script = script
        message = wrong(f"{server.url}/file.tif", errors.ChangedError)
        assert "open it again" in message.lower()
    # A new handle sees the new version.
    server.script = None
    if name != "gone shorter":
        equal_pixels(window(f"{server.url}/file.tif"), want(new()[0]))


def test_a_file_that_changes_while_it_is_retried_is_never_mixed(server: Files) -> None:
    def fail_and_change(_: Request, __: Respond) -> Answer:
        server.put("/file.tif", Resource(new()[1], '"b"'))
        return Answer(503)

    server.put("/file.tif", Resource(old()[1], '"a"'))
    server.script = at({2: fail_and_change})
    wrong(f"{server.url}/file.tif", errors.ChangedError)


def test_a_file_that_vanishes_is_reported(server: Files) -> None:
    server.script = lambda request: status(404) if request.number > 1 else None
    wrong(f"{server.url}/file.tif", (errors.ChangedError, errors.MissingError))


# --------------------------------------------------------------------------------------------------------------- stalls


@pytest.mark.parametrize(
    "fault",
    [silent("hang"), after("hang"), drip(1.0), lambda _, respond: half_then_nothing(respond())],
    ids=["no answer", "answer lost", "a byte a second", "stops in the middle"],
)
@pytest.mark.parametrize("number", [1, 2])
def test_stalls_end(server: Files, fault: Fault, number: int) -> None:
    server.script = lambda request: fault if request.number >= number else None
    wrong(f"{server.url}/file.tif", (TimeoutError, ConnectionError), deadline=2.0, stall_timeout=0.5, retries=1)


def half_then_nothing(answer: Answer) -> Answer:
    answer.cut, answer.end = len(answer.body) // 2, "hang"
    return answer


def test_a_stall_is_retried(server: Files) -> None:
    server.script = at({1: silent("hang"), 3: silent("hang")})
    right(f"{server.url}/file.tif", stall_timeout=0.3)


# --------------------------------------------------------------------------------------------------- private addresses


def spellings(port: int) -> list[str]:
    hosts = [
        "127.0.0.1",
        "127.1",
        "127.0.0.2",
        "2130706433",
        "0177.0.0.1",
        "0x7f.0.0.1",
        "0x7f000001",
        "0.0.0.0",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[::127.0.0.1]",
        "localhost",
        "LOCALHOST",
        "localhost.",
        "user:password@127.0.0.1",
        "①②⑦.⓪.⓪.①",
    ]
    return [f"{scheme}://{host}:{port}/file.tif" for host in hosts for scheme in ("http", "HTTP")]


def test_private_addresses_are_not_contacted(server: Files) -> None:
    for address in spellings(server.port):
        with pytest.raises(swath.Error):
            swath.Dataset(address, storage_options={"public_only": True, "deadline": 3.0, "retries": 0})
    assert server.connections == 0
    # Reserved for private networks and metadata services: refused before anything is sent.
    others = ("10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "[fe80::1]", "[fd00::1]")
    for host in others:
        started = time.monotonic()
        with pytest.raises(errors.DeniedError):
            swath.Dataset(f"http://{host}/file.tif", storage_options={"public_only": True})
        assert time.monotonic() - started < SOON


def test_redirects_to_private_addresses_are_not_followed(server: Files) -> None:
    """From an allowed host to a listener that is not allowed."""
    with Files({"/file.tif": old()[1]}) as private:
        for address in spellings(private.port):
            server.script = always(redirect(address))
            options = {"public_only": True, "allowed_hosts": [f"127.0.0.1:{server.port}"], "retries": 0}
            with pytest.raises(swath.Error):
                swath.Dataset(f"{server.url}/file.tif", storage_options=options)
        chain = [redirect(f"/{number}") for number in range(3)]
        chain.append(redirect(f"{private.url}/file.tif"))
        server.forget()
        server.script = lambda request: chain[min(request.number, len(chain)) - 1]
        with pytest.raises(swath.Error):
            swath.Dataset(f"{server.url}/file.tif", storage_options=options)
        assert len(server.requests) == 4
        assert private.connections == 0


def test_allowed_hosts_are_contacted(server: Files) -> None:
    for host in ("127.0.0.1", f"127.0.0.1:{server.port}"):
        right(f"{server.url}/file.tif", public_only=True, allowed_hosts=[host])
    server.forget()
    with pytest.raises(errors.DeniedError):
        swath.Dataset(f"{server.url}/file.tif", storage_options={"public_only": True, "allowed_hosts": ["127.0.0.1:1"]})
    assert server.connections == 0


# -------------------------------------------------------------------------------------------------------------- secrets

ENDS: dict[str, Fault] = {
    "missing": status(404),
    "denied": status(403),
    "server error": status(500),
    "reset": silent("reset"),
    "ignored range": whole,
    "redirect to a file": redirect(f"file:///etc/hosts?signature={SECRET}"),
    "echo": lambda request, _: Answer(400, {"X-Echo": SECRET}, repr(request).encode()),
    "store error": lambda _, __: Answer(
        403,
        {"Content-Type": "application/xml"},
        f"<Error><Code>No</Code><StringToSign>{SECRET}</StringToSign></Error>".encode(),
    ),
}


@pytest.mark.parametrize("name", ENDS)
def test_secrets_stay_out_of_messages(server: Files, name: str) -> None:
    server.put("/file.tif", Zeros(1 << 30))
    server.script = always(ENDS[name])
    address = server.url.replace("http://", f"http://{SECRET}:{SECRET}@") + f"/file.tif?token={SECRET}#{SECRET}"
    message = wrong(address, swath.Error, retries=1, headers={"Authorization": f"Bearer {SECRET}", "X-Key": SECRET})
    assert "file.tif" in message


@pytest.mark.parametrize("scheme", ["s3", "gs", "az"])
def test_secrets_of_stores_stay_out_of_messages(server: Files, scheme: str) -> None:
    settings = {
        "s3": {"aws_access_key_id": SECRET, "aws_secret_access_key": SECRET, "aws_session_token": SECRET},
        "gs": {"google_bearer_token": SECRET},
        "az": {"azure_storage_account_name": "account", "azure_storage_account_key": "bm9ib2R5LW1heS1zZWUtdGhpcw=="},
    }[scheme]
    for fault in ("denied", "server error", "echo", "store error"):
        server.script = always(ENDS[fault])
        message = wrong(f"{scheme}://bucket/file.tif", swath.Error, endpoint=server.url, retries=1, **settings)
        assert "bm9ib2R5" not in message
