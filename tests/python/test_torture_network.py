"""Scenarios N2 to N9 of the reliability list: servers that lie, change, redirect, stall and flood, at random by a seed.

Every try ends with right pixels or a clear error, within limits on time and memory. `SWATH_TORTURE` multiplies the
number of tries; `SWATH_TORTURE_REPORT` names a file for the figures.
"""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import swath
from harness import MIB, Swath, record, same, torture
from remote import Answer, Fault, Files, Request, Resource, Respond, Zeros, direct
from remote_faults import LYING, always, cut, drip, padding, redirect, silent, status, whole

SIZE, TILE = 512, 64
SECRET = "nobody-may-see-this"
OPTIONS: dict[str, Any] = {"retries": 2, "deadline": 10.0, "stall_timeout": 0.5}


@pytest.fixture(name="tool")
def command_line(request: pytest.FixtureRequest) -> Swath:
    """The command-line tool; `swath` is the package here."""
    return request.getfixturevalue("swath")


@cache
def versions() -> list[tuple[np.ndarray, bytes]]:
    """Two files whose heads are alike, and whose pixels differ everywhere."""
    rng = np.random.default_rng(18)
    pixels = rng.integers(0, 30_000, (SIZE, SIZE), "u2")
    both = [pixels, pixels + 30_000]
    return [(each, swath.to_geotiff(each, None, compression="none", tile_size=TILE)) for each in both]


@pytest.fixture
def server() -> Iterator[Files]:
    with direct(), Files({"/file.tif": versions()[0][1]}) as made:
        yield made


class Tally:
    """Counts of how the tries of one scenario ended."""

    def __init__(self, scenario: str, what: str) -> None:
        self.scenario, self.what = scenario, what
        self.tries = self.survived = 0
        self.lost: list[str] = []

    def read(self, url: str, chance: random.Random, allowed: list[np.ndarray], **options: Any) -> None:
        """Reads one window, which is that of an allowed version, or a swath error."""
        width, height = chance.randrange(1, 300), chance.randrange(1, 300)
        x, y = chance.randrange(SIZE - width), chance.randrange(SIZE - height)
        self.tries += 1
        try:
            dataset = swath.Dataset(url, storage_options={**OPTIONS, **options})
            got = np.asarray(dataset.read(1, swath.Window(x, y, width, height)))
        except (swath.SourceError, swath.FormatError, swath.LimitError):
            self.survived += 1
            return
        wanted = [np.ascontiguousarray(each[y : y + height, x : x + width]) for each in allowed]
        self.check(any(same(got, want) for want in wanted), f"other pixels at {x}, {y}, {width} x {height}")

    def check(self, fine: bool, what: str) -> None:
        self.survived += fine
        if not fine:
            self.lost.append(what)

    def end(self) -> None:
        record(self.scenario, self.what, self.tries, self.survived, len(self.lost))
        assert not self.lost and self.tries == self.survived, self.lost[:10]


# ------------------------------------------------------------------------------------------------------- N1: throttling


@pytest.mark.skipif(torture() == 1, reason="takes most of a minute: SWATH_TORTURE=2 or more runs it")
def test_a_store_that_throttles_for_half_a_minute_is_waited_for(server: Files) -> None:
    """N1, with default options: no Retry-After, and only 503 for longer than most clients wait."""
    tally = Tally("N1", "nothing but 503 for 30 s")
    started = time.monotonic()
    server.script = lambda _: status(503) if time.monotonic() - started < 30 else None
    tally.tries += 1
    got = np.asarray(swath.Dataset(f"{server.url}/file.tif").read(1))
    tally.check(same(got, versions()[0][0]), "other pixels")
    tally.end()


# ------------------------------------------------------------------------------------------------------ N2: other bytes


def bent(chance: random.Random) -> Fault:
    """An answer with a length, a range or a body that is shifted by a little, or a lot."""
    by = chance.choice([-1, 1]) * chance.choice([1, 2, 16, 511, 4096, 1 << 20, 1 << 31, 1 << 62])
    kind = chance.choice(["start", "stop", "total", "length", "short", "long", "cut", "shifted"])

    def bend(_: Request, respond: Respond) -> Answer:
        answer = respond()
        if answer.status not in (200, 206):
            return answer
        body, headers = bytes(answer.body), dict(answer.headers)
        if kind in ("start", "stop", "total") and "Content-Range" in headers:
            span, _, total = headers["Content-Range"].removeprefix("bytes ").partition("/")
            numbers = dict(zip(("start", "stop"), map(int, span.split("-"))), total=int(total))
            numbers[kind] = max(0, numbers[kind] + by)
            headers["Content-Range"] = f"bytes {numbers['start']}-{numbers['stop']}/{numbers['total']}"
        elif kind == "length":
            headers["Content-Length"] = str(max(0, len(body) + by))
            return replace(answer, headers=headers, cut=len(body))
        elif kind == "short":
            body = body[: max(0, len(body) - abs(by))]
        elif kind == "long":
            body += bytes(min(abs(by), 1 << 20))
        elif kind == "cut":
            return replace(answer, cut=min(abs(by), len(body)), end=chance.choice(["close", "reset"]))
        elif kind == "shifted":
            # Every stated length is right, but the body begins elsewhere.
            start = int(headers.get("Content-Range", "bytes 0-").removeprefix("bytes ").partition("-")[0])
            headers["Content-Range"] = f"bytes {start + 1}-{start + len(body)}/{len(versions()[0][1])}"
        return replace(answer, headers=headers, body=body)

    return bend


@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_answers_that_are_bent_never_become_pixels(server: Files, rate: float) -> None:
    """N2."""
    tally = Tally("N2", f"{rate:.0%} of answers have other lengths, ranges or bodies")
    for seed in range(150 * torture()):
        chance = random.Random(f"{rate} {seed}")
        faults = [bent(chance) if chance.random() < rate else None for _ in range(64)]
        lies = [chance.choice(list(LYING.values())) if chance.random() < rate / 4 else None for _ in range(64)]
        server.forget()

        def script(request: Request, faults: list[Any] = faults, lies: list[Any] = lies) -> Fault | None:
            return faults[request.number % 64] or lies[request.number % 64]

        server.script = script
        tally.read(f"{server.url}/file.tif", chance, [versions()[0][0]])
    tally.end()


# ----------------------------------------------------------------------------------------------------------- N3: ranges


def test_servers_that_ignore_ranges_cost_little(server: Files) -> None:
    """N3: from the first request on, or from a later one; with a stated length, or in endless chunks."""
    server.put("/huge.tif", Zeros(10 << 30))
    head = versions()[0][1]

    def endless(request: Request, respond: Respond) -> Answer:
        answer = whole(request, respond)
        chunk = b"10000\r\n" + bytes(0x10000) + b"\r\n"
        return replace(answer, headers={**answer.headers, "Transfer-Encoding": "chunked"}, body=Repeated(chunk))

    tally = Tally("N3", "10 GB instead of a range")
    for path in ("/huge.tif", "/file.tif"):
        for fault in (whole, endless):
            for first in (1, 2, 3):
                if path == "/file.tif":
                    server.put(path, Resource.of(head))
                server.forget()

                def script(request: Request, first: int = first, fault: Fault = fault) -> Fault | None:
                    if request.number >= first:
                        server.put("/file.tif", Resource(Zeros(10 << 30), '"other"'))
                    return fault if request.number >= first else None

                server.script = script
                tally.read(f"{server.url}{path}", random.Random(first), [versions()[0][0]])
                sent = server.bytes_sent()
                tally.tries += 1
                tally.check(sent < 64 * MIB, f"{path} from request {first} on: {sent} bytes")
    tally.end()


class Repeated(Zeros):
    """A piece again and again, ten gigabytes of it."""

    def __init__(self, piece: bytes) -> None:
        super().__init__((10 << 30) // len(piece) * len(piece))
        self.piece = piece

    def __getitem__(self, part: slice) -> bytes:
        start, stop, _ = part.indices(self.size)
        first = start % len(self.piece)
        need = stop - start
        return (self.piece * (need // len(self.piece) + 2))[first : first + need]


# ---------------------------------------------------------------------------------------------------------- N4: changes


def validators(chance: random.Random) -> tuple[Resource, Resource]:
    """The validators of a server, if any."""
    old, new = (Resource.of(content, number) for number, (_, content) in enumerate(versions(), 1))
    return chance.choice(
        [
            (old, new),
            (Resource(old.content, '"a"'), Resource(new.content, '"b"')),
            (Resource(old.content, None, old.modified), Resource(new.content, None, new.modified)),
            (Resource(old.content, 'W/"a"', old.modified), Resource(new.content, 'W/"b"', new.modified)),
            (Resource(old.content), Resource(new.content + bytes(100))),
        ]
    )


def test_a_file_that_changes_at_any_request_is_never_mixed(server: Files) -> None:
    """N4: once, or back and forth, with conditions kept and ignored."""
    tally = Tally("N4", "the object changes at a request")
    for seed in range(200 * torture()):
        chance = random.Random(seed)
        pair = validators(chance)
        server.conditions = chance.random() < 0.5
        at = {chance.randrange(1, 12) for _ in range(chance.choice([1, 1, 2, 5]))}
        server.put("/file.tif", pair[0])
        server.forget()

        def script(request: Request, at: set[int] = at, pair: Any = pair) -> None:
            if request.number in at:
                now = server.files["/file.tif"]
                server.put("/file.tif", pair[1] if now is pair[0] else pair[0])

        server.script = script
        tally.read(
            f"{server.url}/file.tif", chance, [pixels for pixels, _ in versions()], in_flight=chance.choice([1, 16])
        )
    tally.end()


# ------------------------------------------------------------------------------------------------ N5: private addresses

HOSTS = [
    "127.0.0.1",
    "127.1",
    "127.255.0.9",
    "2130706433",
    "0177.0.0.1",
    "017700000001",
    "0x7f.1",
    "0x7f000001",
    "0.0.0.0",
    "0",
    "[::1]",
    "[::]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[0:0:0:0:0:ffff:127.0.0.1]",
    "[::127.0.0.1]",
    "[64:ff9b::127.0.0.1]",
    "[2002:7f00:1::]",
    "localhost",
    "LOCALHOST",
    "localhost.",
    "a.localhost",
    "user:password@127.0.0.1",
    "①②⑦.⓪.⓪.①",
    "%31%32%37.0.0.1",
    "127。0。0。1",
]


def test_no_way_leads_to_a_private_listener(server: Files, tool: Swath) -> None:
    """N5: as an address, by a redirect, at the end of a chain, as an endpoint; in Python and on the command line."""
    tally = Tally("N5", "private addresses in every spelling and by every route")
    front, codes = f"127.0.0.1:{server.port}", random.Random(3)
    guard = {"public_only": True, "allowed_hosts": [front], "retries": 0, "deadline": 3.0}
    with Files({"/file.tif": versions()[0][1]}) as private, Files(address="::1") as sixth:
        for host in HOSTS:
            port = sixth.port if host in ("[::1]", "[::]") else private.port
            for scheme in ("http", "HTTP", "Http"):
                address = f"{scheme}://{host}:{port}/file.tif"
                far = always(redirect(address, codes.choice([301, 302, 303, 307, 308])))
                chain = [redirect("/1"), redirect("2?x=1"), redirect(f"//{front}/3"), redirect(address)]

                def chained(request: Request, chain: list[Fault] = chain) -> Fault:
                    return chain[min(request.number, 4) - 1]

                ways: list[tuple[Any, str, dict[str, Any]]] = [
                    (None, address, guard),
                    (far, f"{server.url}/file.tif", guard),
                    (chained, f"{server.url}/file.tif", guard),
                    (None, f"simplecache::{address}", guard),
                    (None, "s3://latest/file.tif", {**guard, "endpoint": address, "anonymous": True}),
                    (None, "gs://latest/file.tif", {**guard, "endpoint": address, "anonymous": True}),
                ]
                for script, url, options in ways:
                    server.forget()
                    server.script = script
                    tally.tries += 1
                    try:
                        swath.Dataset(url, storage_options=options)
                        tally.check(False, f"{url} opened")
                    except swath.Error:
                        tally.check(private.connections + sixth.connections == 0, f"{url} with {address} reached it")
        for host in random.Random(5).sample(HOSTS, 6):
            tally.tries += 1
            run = tool.run("info", f"http://{host}:{private.port}/file.tif", "--public-only", "--retries", "0")
            tally.check(run.code == 2 and private.connections == 0, f"the command reached {host}")
        server.script = always(redirect(f"file://{tool.binary}"))
        tally.tries += 1
        run = tool.run("info", f"{server.url}/file.tif")
        tally.check(run.code == 2 and "only http and https" in run.stderr, run.stderr)
    tally.end()


# ---------------------------------------------------------------------------------------------------------- N6: secrets


def test_secrets_are_neither_printed_nor_passed_on(server: Files, tool: Swath) -> None:
    """N6: whatever goes wrong, wherever the secret is, and however the server repeats it."""
    tally = Tally("N6", "secrets in addresses, headers and settings, and servers that repeat them")
    with Files({"/file.tif": versions()[0][1]}, address="127.0.0.2") as other:
        for seed in range(60 * torture()):
            chance = random.Random(seed)

            def echo(request: Request, _: Respond, chance: random.Random = chance) -> Answer:
                sent = json.dumps([request.target, request.headers])
                body = f"<Error><Code>{SECRET}</Code><Message>{sent}</Message><Region>{SECRET}</Region></Error>"
                headers = {"x-amz-bucket-region": SECRET, "x-ms-error-code": SECRET, "Content-Type": "text/xml"}
                return Answer(chance.choice([400, 401, 403, 404, 409, 500, 503]), headers, body.encode())

            fault: Fault = chance.choice(
                [
                    echo,
                    status(chance.choice([404, 403, 500]), X_Echo=SECRET),
                    silent("reset"),
                    cut(0.5, "close"),
                    whole,
                    redirect(f"{other.url}/file.tif"),
                    redirect(f"http://{SECRET}:{SECRET}@169.254.169.254/?{SECRET}"),
                    redirect(f"ftp://{SECRET}/"),
                ]
            )
            first = chance.choice([1, 2])
            server.script = lambda request, fault=fault, first=first: fault if request.number >= first else None
            server.forget()
            address = server.url.replace("http://", f"http://{SECRET}:{SECRET}@") + f"/file.tif?sig={SECRET}#{SECRET}"
            flags = ["--header", f"Authorization: Bearer {SECRET}", "--header", f"X-Key: {SECRET}", "--retries", "1"]
            if chance.random() < 0.3:
                address, flags = (
                    "s3://bucket/file.tif",
                    ["--endpoint", server.url, "--region", "here", "--retries", "1"],
                )
                for name in ("aws_access_key_id", "aws_secret_access_key", "aws_session_token"):
                    flags += ["--remote-option", f"{name}={SECRET}"]
            tally.tries += 1
            run = tool.run(chance.choice(["info", "stats", "validate"]), address, *flags, "--stats")
            run.check_alive()
            leaked = SECRET in run.stdout + run.stderr or any(SECRET in str(asked) for asked in other.requests)
            tally.check(not leaked, f"seed {seed}: {run.stderr}")
    tally.end()


# ----------------------------------------------------------------------------------------------------------- N7: stalls

STALLS: dict[str, Fault] = {
    "a byte a second": drip(1.0),
    "no answer": silent("hang"),
    "stops after the headers": cut(0.0, "hang"),
    "stops in the middle": cut(0.5, "hang"),
}


@pytest.mark.parametrize("name", STALLS)
def test_stalls_end_in_the_stated_time(server: Files, tool: Swath, name: str) -> None:
    """N7: at the first request and at later ones."""
    tally = Tally("N7", name)
    for first in range(1, 3 + torture()):
        server.forget()
        server.script = lambda request, first=first: STALLS[name] if request.number >= first else None
        tally.tries += 1
        run = tool.run("stats", f"{server.url}/file.tif", "--remote-timeout", "1.5", timeout=60)
        ended = run.code == 0 if len(server.requests) < first else run.code == 2
        tally.check(ended and run.seconds < 1.5 + 3, f"request {first}: exit {run.code} after {run.seconds:.1f} s")
    tally.end()


WAITING = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
import swath
print("ready", flush=True)
try:
    dataset = swath.Dataset(sys.argv[1])
    print("open", flush=True)
    dataset.read()
except KeyboardInterrupt:
    sys.exit(42)
"""


@pytest.mark.parametrize("first", [1, 2])
def test_an_interrupt_ends_a_stall_within_a_second(server: Files, first: int) -> None:
    """N7: while it is opened, and while it is read."""
    tally = Tally("N7", "interrupted while " + ("it is opened" if first == 1 else "it is read"))
    for _ in range(torture()):
        server.forget()
        server.script = lambda request: silent("hang") if request.number >= first else None
        command = [sys.executable, "-W", "ignore", "-c", WAITING, f"{server.url}/file.tif"]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            until = time.monotonic() + 60
            while len(server.requests) < first and time.monotonic() < until:
                time.sleep(0.01)
            time.sleep(0.2)
            started = time.monotonic()
            child.send_signal(signal.SIGINT)
            child.communicate(timeout=30)
            took = time.monotonic() - started
        finally:
            child.kill()
            child.wait()
        tally.tries += 1
        # The interpreter itself takes a while to end on a busy machine.
        tally.check(child.returncode == 42 and took < 1 + 1, f"exit {child.returncode} after {took:.1f} s")
    tally.end()


# ------------------------------------------------------------------------------------------------------- N8: side files


def test_no_side_file_of_an_address_is_asked_for(server: Files, tool: Swath) -> None:
    """N8: side files of remote files are never read, and a VRT is not read as a raster."""
    tally = Tally("N8", "side files and VRTs behind a network")
    beside = ["/file.tif.ovr", "/file.tif.msk", "/file.tif.aux.xml", "/file.tfw", "/file.tifw", "/file.wld"]
    for path in beside:
        server.put(path, b"<PAMDataset/>")
    vrt = f"<VRTDataset><SourceFilename>{tool.binary}</SourceFilename></VRTDataset>".encode()
    server.put("/file.vrt", vrt.ljust(1000))
    for command in ("info", "stats", "validate"):
        for path in ("/file.tif", "/file.vrt"):
            server.forget()
            tally.tries += 1
            run = tool.run(command, server.url + path)
            asked = {request.path for request in server.requests}
            tally.check(asked == {path} and (run.code == 2) == (path == "/file.vrt"), f"{command} {path}: {asked}")
    tally.end()


# ---------------------------------------------------------------------------------------------------------- N9: headers


def lines(count: int, length: int) -> Fault:
    """Many headers, or few that are long."""

    def add(_: Request, respond: Respond) -> Answer:
        answer = respond()
        return replace(answer, headers={**answer.headers, **{f"X-{n}": "x" * length for n in range(count)}})

    return add


def named(header: str, value: str) -> Fault:
    return lambda _, respond: (lambda answer: replace(answer, headers={**answer.headers, header: value}))(respond())


HEADERS: dict[str, Callable[[], Fault]] = {
    "gzip": lambda: LYING["gzip"],
    "labelled gzip": lambda: named("Content-Encoding", "gzip"),
    "labelled deflate": lambda: named("Content-Encoding", "deflate"),
    "an unknown encoding": lambda: named("Content-Encoding", "br, zstd"),
    "1 GB of headers": lambda: padding(1 << 30),
    "many headers": lambda: lines(5000, 10),
    "one long header": lambda: lines(1, 16 << 20),
    "a length that is not a number": lambda: named("Content-Length", "12abc"),
    "a length beyond all": lambda: named("Content-Length", "9" * 40),
    "a range that is not a number": lambda: named("Content-Range", "bytes 0-99999999999999999999/99999999999999999999"),
    "a range that ends before it starts": lambda: named("Content-Range", "bytes 99-0/100"),
    "an ETag of control characters": lambda: named("ETag", '"\x01\x02"'),
}


@pytest.mark.parametrize("name", HEADERS)
def test_hostile_headers_cost_neither_pixels_nor_memory(server: Files, tool: Swath, name: str) -> None:
    """N9: at the first request, and from the second on."""
    tally = Tally("N9", name)
    want, out = versions()[0][0], tool.folder / "pixels.npy"
    for first in (1, 2):
        server.forget()
        server.script = lambda request, first=first: HEADERS[name]() if request.number >= first else None
        tally.tries += 1
        run = tool.run("dump", f"{server.url}/file.tif", "--out", out, "--retries", "1", "--remote-timeout", "10")
        run.check_alive()
        right = not run.ok or same(np.load(out)[0], want)
        out.unlink(missing_ok=True)
        tally.check(right and run.peak < 128 * MIB and run.seconds < 15, f"{run.peak >> 20} MiB, {run.seconds:.0f} s")
    tally.end()
