"""Files on plain HTTP servers: addresses, redirects, which host gets what, and limits."""

from __future__ import annotations

import asyncio
import base64
import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numpy as np
import pytest
import swath
from harness import Swath
from remote import Files, Resource, direct
from remote_faults import PASSING, at, redirect, status, whole
from remote_readers import equal_pixels
from swath import _errors as errors

SECRET = "nobody-may-see-this"


@cache
def pixels() -> np.ndarray:
    return np.random.default_rng(3).integers(0, 60_000, (640, 640), "u2")


@cache
def file() -> bytes:
    """100 tiles of 8 KiB each: opening does not read them all."""
    return swath.to_geotiff(pixels(), None, compression="deflate", tile_size=64, crs=32633)


@pytest.fixture
def server() -> Iterator[Files]:
    with direct(), Files({"/file.tif": file()}) as made:
        yield made


def read(url: str, **options: object) -> None:
    """Opens and reads everything; checks the pixels."""
    equal_pixels(np.asarray(swath.read(url, storage_options=options or None))[0], pixels())


def refused(url: str, kind: type[Exception], **options: object) -> str:
    with pytest.raises(kind) as raised:
        read(url, **options)
    assert isinstance(raised.value, swath.Error)
    return str(raised.value)


# ---------------------------------------------------------------------------------------------------------- addresses


def test_a_signed_address_reaches_the_server_as_it_was_given(server: Files) -> None:
    """A rewritten query would no longer match its signature."""
    target = f"/file.tif?X-Amz-Signature={SECRET}%2F%3D+a%20b&empty=&&x"
    read(server.url + target)
    assert {request.target for request in server.requests} == {target}


def test_a_signature_is_not_repeated_in_an_error(server: Files) -> None:
    message = refused(f"{server.url}/gone.tif?sig={SECRET}", errors.MissingError)
    assert SECRET not in message and "gone.tif" in message


def test_names_with_odd_letters_are_encoded_once(server: Files) -> None:
    for name in ("/ä ö.tif", "/a+b.tif", "/100%25.tif"):
        server.put(name, file())
    read(f"{server.url}/%C3%A4%20%C3%B6.tif")
    read(f"{server.url}/ä ö.tif")
    read(f"{server.url}/a+b.tif")
    read(f"{server.url}/100%2525.tif")


def test_a_user_in_the_address_is_sent_to_that_server_only(server: Files) -> None:
    with Files({"/file.tif": file()}, address="127.0.0.2") as other:
        target = other.url
        server.script = lambda _: redirect(f"{target}/file.tif")
        read(server.url.replace("http://", f"http://user:{SECRET}%40@") + "/file.tif")
        want = "Basic " + base64.b64encode(f"user:{SECRET}@".encode()).decode()
        assert {request.headers.get("authorization") for request in server.requests} == {want}
        assert {request.headers.get("authorization") for request in other.requests} == {None}


def test_headers_are_not_carried_to_another_host(server: Files) -> None:
    with Files({"/file.tif": file()}, address="127.0.0.2") as other:
        target = other.url
        server.script = lambda _: redirect(f"{target}/file.tif")
        read(f"{server.url}/file.tif", headers={"Authorization": f"Bearer {SECRET}", "X-Key": SECRET, "Cookie": SECRET})
        assert server.requests[0].headers["x-key"] == SECRET
        assert other.requests and not any(SECRET in str(request) for request in other.requests)


def test_a_scheme_in_capitals_is_the_same_scheme(server: Files) -> None:
    read(server.url.replace("http", "HTTP") + "/file.tif")


def test_other_ports_are_other_hosts(server: Files) -> None:
    with Files({"/file.tif": file()}) as other:
        target = other.url
        server.script = lambda _: redirect(f"{target}/file.tif")
        read(f"{server.url}/file.tif", headers={"X-Key": SECRET})
        assert other.requests and not any(SECRET in str(request) for request in other.requests)


# ---------------------------------------------------------------------------------------------------------- redirects


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_redirects_are_followed_and_remembered(server: Files, code: int) -> None:
    server.script = lambda request: redirect("/file.tif", code) if request.path == "/moved.tif" else None
    read(f"{server.url}/moved.tif")
    assert len(server.asked("/moved.tif")) == 1
    assert len(server.asked("/file.tif")) >= 2


def test_an_expired_address_is_requested_again(server: Files) -> None:
    """Signed addresses live for minutes; the redirecting server gives a new one."""
    fresh = iter(range(100))

    def script(request: object) -> object:
        path = request.path  # type: ignore[attr-defined]
        if path == "/link.tif":
            return redirect(f"/signed/{next(fresh)}")
        if path == "/signed/0" and len(server.asked("/signed/0")) > 1:
            return status(403)
        return None

    for number in range(5):
        server.put(f"/signed/{number}", file())
    server.script = script  # type: ignore[assignment]
    read(f"{server.url}/link.tif")
    assert server.asked("/signed/1")


def test_a_loop_of_redirects_ends(server: Files) -> None:
    server.script = lambda request: redirect("/b.tif" if request.path == "/a.tif" else "/a.tif")
    refused(f"{server.url}/a.tif", swath.SourceError)
    assert len(server.requests) <= 12


def test_redirects_are_counted(server: Files) -> None:
    def script(request: object) -> object:
        path = request.path  # type: ignore[attr-defined]
        return redirect(f"/{int(path[1:]) - 1}") if path[1:].isdigit() and path != "/0" else None

    server.put("/0", file())
    server.script = script  # type: ignore[assignment]
    read(f"{server.url}/3", redirects=3)
    refused(f"{server.url}/4", swath.SourceError, redirects=3)
    refused(f"{server.url}/1", swath.SourceError, redirects=0)


@pytest.mark.parametrize(
    "target", ["file:///etc/hostname", "ftp://127.0.0.1/a", "gopher://127.0.0.1/", "http://", "http://["]
)
def test_redirects_lead_to_web_addresses_only(server: Files, target: str) -> None:
    server.script = lambda _: redirect(target)
    refused(f"{server.url}/file.tif", swath.SourceError)
    assert len(server.requests) == 1


# -------------------------------------------------------------------------------------------------- answers and limits


@pytest.mark.parametrize(
    ("code", "kind"),
    [(404, errors.MissingError), (410, errors.MissingError), (401, errors.DeniedError), (403, errors.DeniedError)],
)
def test_a_refusal_is_not_retried(server: Files, code: int, kind: type[Exception]) -> None:
    server.script = lambda _: status(code)
    refused(f"{server.url}/file.tif", kind)
    assert len(server.requests) == 1


def test_a_small_file_of_a_server_without_ranges_is_read(server: Files) -> None:
    small = swath.to_geotiff(pixels()[:64, :64], None)
    server.put("/small.tif", small)
    server.script = lambda _: whole
    equal_pixels(np.asarray(swath.read(f"{server.url}/small.tif"))[0], pixels()[:64, :64])
    assert len(server.requests) == 1


@pytest.mark.parametrize("content", [b"", b"II", b"not a tiff" * 20], ids=["empty", "two bytes", "text"])
def test_a_page_that_is_no_tiff_is_reported(server: Files, content: bytes) -> None:
    server.put("/odd.tif", content)
    with pytest.raises((swath.FormatError, swath.UnsupportedError)):
        swath.Dataset(f"{server.url}/odd.tif")


def test_bytes_are_limited(server: Files) -> None:
    message = refused(f"{server.url}/file.tif", swath.LimitError, max_remote_bytes=100_000)
    assert "100000" in message.replace("_", "").replace(" ", "").replace(",", "")
    assert server.bytes_sent() <= 100_000
    server.forget()
    read(f"{server.url}/file.tif", max_remote_bytes=len(file()) + 65_536)


def test_requests_are_limited(server: Files) -> None:
    refused(f"{server.url}/file.tif", swath.LimitError, max_remote_requests=1)
    assert len(server.requests) == 1


def test_requests_in_flight_are_limited(server: Files) -> None:
    now, most, lock = [0], [0], threading.Lock()
    respond = server.respond

    def counting(request: object) -> object:
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        try:
            # Long enough for all allowed requests to arrive.
            threading.Event().wait(0.02)
            return respond(request)  # type: ignore[arg-type]
        finally:
            with lock:
                now[0] -= 1

    server.respond = counting  # type: ignore[assignment,method-assign]
    dataset = swath.Dataset(f"{server.url}/file.tif", storage_options={"in_flight": 3})
    with ThreadPoolExecutor(12) as pool:
        boxes = [swath.Window(0, row, 640, 64) for row in range(0, 640, 64)]
        for box, got in zip(boxes, pool.map(lambda box: np.asarray(dataset.read(window=box)), boxes)):
            equal_pixels(got[0], pixels()[box.y : box.y + 64])
    assert most[0] <= 3


def test_a_file_without_validators_is_read(server: Files) -> None:
    server.put("/bare.tif", Resource(file()))
    read(f"{server.url}/bare.tif")


# ------------------------------------------------------------------------------------------------- threads, processes


def test_threads_share_a_handle(server: Files) -> None:
    server.script = lambda request: PASSING["status 503"] if request.number % 7 == 3 else None
    dataset = swath.Dataset(f"{server.url}/file.tif")

    def one(number: int) -> None:
        x, y = number * 37 % 560, number * 91 % 560
        got = np.asarray(dataset.read(window=swath.Window(x, y, 80, 80)))[0]
        equal_pixels(got, pixels()[y : y + 80, x : x + 80])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(one, range(64)))


def test_reads_inside_an_event_loop(server: Files) -> None:
    async def work() -> None:
        await asyncio.gather(*(asyncio.to_thread(read, f"{server.url}/file.tif") for _ in range(4)))
        read(f"{server.url}/file.tif")

    asyncio.run(work())


def test_a_handle_travels_with_its_options(server: Files) -> None:
    dataset = swath.Dataset(f"{server.url}/file.tif", storage_options={"headers": {"X-Key": SECRET}})
    assert SECRET not in repr(dataset)
    server.forget()
    again = pickle.loads(pickle.dumps(dataset))
    equal_pixels(np.asarray(again.read())[0], pixels())
    assert {request.headers.get("x-key") for request in server.requests} == {SECRET}


def test_a_forked_process_reads_on(server: Files) -> None:
    """Workers of data loaders are forked after the file was opened."""
    code = (
        "import os, sys, warnings, numpy, swath\n"
        "warnings.simplefilter('ignore')\n"
        "dataset = swath.Dataset(sys.argv[1])\n"
        "want = numpy.asarray(dataset.read(window=swath.Window(0, 0, 64, 64))).sum()\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    far = numpy.asarray(dataset.read(window=swath.Window(500, 500, 64, 64))).sum()\n"
        "    near = numpy.asarray(swath.read(sys.argv[1], window=swath.Window(0, 0, 64, 64))).sum()\n"
        "    os._exit(0 if near == want and far > 0 else 1)\n"
        "sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
    )
    command = [sys.executable, "-c", code, f"{server.url}/file.tif"]
    done = subprocess.run(command, timeout=60, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# ------------------------------------------------------------------------------------------------------- command line


def test_the_command_reports_its_traffic(server: Files, swath: Swath) -> None:
    run = swath.run("info", f"{server.url}/file.tif")
    assert run.ok, run.stderr
    assert "1 request" in run.stdout.splitlines()[-1] and "32768" in run.stdout.splitlines()[-1]
    counts = swath.info(f"{server.url}/file.tif")["remote"]
    assert (counts["requests"], counts["received"], counts["retries"]) == (1, 32_768, 0)


def test_the_command_counts_retries(server: Files, swath: Swath) -> None:
    server.script = at({1: PASSING["status 503"]})
    counts = swath.info(f"{server.url}/file.tif")["remote"]
    assert (counts["requests"], counts["retries"]) == (2, 1)


def test_the_command_hides_secrets(server: Files, swath: Swath) -> None:
    address = server.url.replace("http://", f"http://user:{SECRET}@") + f"/gone.tif?sig={SECRET}"
    for verb in (["info"], ["validate"], ["stats", "--stats"]):
        run = swath.run(*verb, address, "--header", f"X-Key: {SECRET}")
        assert run.code == 2 and SECRET not in run.stdout + run.stderr
        assert "gone.tif" in run.stderr


def test_the_command_refuses_private_addresses_on_request(server: Files, swath: Swath) -> None:
    run = swath.run("info", f"{server.url}/file.tif", "--public-only")
    assert run.code == 2 and server.connections == 0
    run = swath.run("info", f"{server.url}/file.tif", "--public-only", "--allow-host", f"127.0.0.1:{server.port}")
    assert run.ok, run.stderr
