"""Ten thousand windows of a server that fails at random: every one is right or a clear error, and none hangs."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache

import numpy as np
import pytest
import swath
from harness import record, same, torture
from remote import Fault, Files, Request, Resource, direct
from remote_faults import LYING, PASSING, after, at_random, cut, redirect, silent, status, whole

SIZE, TILE = 512, 32
THREADS = 24
# Every fault of a server, with short stalls and short Retry-After waits.
ALL: dict[str, Fault] = {
    **{name: fault for name, fault in PASSING.items() if "Retry-After" not in name},
    **LYING,
    "status 429 with Retry-After": status(429, Retry_After="0"),
    "status 404": status(404),
    "status 403": status(403),
    "no answer": silent("hang"),
    "answer lost": after("hang"),
    "stops in the middle": cut(0.4, "hang"),
    "ignores ranges": whole,
    "redirect to itself": lambda request, respond: redirect(request.target)(request, respond),
}
# Exceptions that may be raised; any other is a bug.
CLEAR = (swath.SourceError, swath.LimitError)


@dataclass
class Case:
    """A file in one or two versions."""

    pixels: list[np.ndarray]
    content: list[bytes]


@cache
def cases() -> dict[str, Case]:
    rng = np.random.default_rng(11)
    made: dict[str, Case] = {}
    settings = {
        "/deflate.tif": {"compression": "deflate", "cog": True},
        "/zstd.tif": {"compression": "zstd", "interleave": "band"},
        "/lzw.tif": {"compression": "lzw"},
        "/none.tif": {"compression": "none"},
        "/changes.tif": {"compression": "none"},
    }
    for path, options in settings.items():
        bands = 2 if "interleave" in options else 1
        versions = [rng.integers(0, 60_000, (bands, SIZE, SIZE), "u2") for _ in range(2 if "changes" in path else 1)]
        content = [swath.to_geotiff(array, None, tile_size=TILE, **options) for array in versions]
        made[path] = Case(versions, content)
    return made


@pytest.fixture
def server() -> Iterator[Files]:
    files = {path: case.content[0] for path, case in cases().items()}
    with direct(), Files(files) as made:
        yield made


@dataclass
class Tally:
    """Counts of how the windows ended."""

    right: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)


def windows(server: Files, paths: list[str], count: int, tally: Tally) -> None:
    """Reads windows of all files in many threads, with a few handles each that are reopened now and then."""
    options = {"retries": 6, "deadline": 20.0, "stall_timeout": 0.4, "connect_timeout": 5.0}
    numbers = iter(range(count))
    turn = threading.Lock()

    def work(seed: int) -> None:
        chance = random.Random(seed)
        handles: dict[str, swath.Dataset] = {}
        while True:
            with turn:
                if next(numbers, None) is None:
                    return
            path = chance.choice(paths)
            x, y = chance.randrange(SIZE - 64), chance.randrange(SIZE - 64)
            width, height = chance.randrange(1, 64), chance.randrange(1, 64)
            try:
                # A handle that stays open has its tiles in memory; a new one has to request them.
                if path not in handles or chance.random() < 0.25:
                    handles[path] = swath.Dataset(server.url + path, storage_options=options)
                got = np.asarray(handles[path].read(window=swath.Window(x, y, width, height), threads=1))
            except CLEAR as error:
                with tally.lock:
                    tally.refused[f"{type(error).__name__} {path}"] += 1
                handles.pop(path, None)
                continue
            except BaseException as error:
                with tally.lock:
                    tally.wrong.append(f"{path}: {type(error).__name__}: {error}")
                handles.pop(path, None)
                continue
            # One version or the other, never both.
            versions = [array[:, y : y + height, x : x + width] for array in cases()[path].pixels]
            fits = any(same(got, np.ascontiguousarray(want)) for want in versions)
            with tally.lock:
                if fits:
                    tally.right += 1
                else:
                    tally.wrong.append(f"{path}: other pixels at {x}, {y}, {width} x {height}")

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(work, range(THREADS)))


def run(server: Files, rate: float, count: int) -> tuple[Tally, Counter[str]]:
    counts: Counter[str] = Counter()
    failing = at_random(rate, 7, ALL, counts)
    case = cases()["/changes.tif"]

    def script(request: Request) -> Fault | None:
        # The versions alternate.
        if request.path == "/changes.tif" and request.number % 40 == 0:
            version = request.number // 40 % 2
            server.put("/changes.tif", Resource.of(case.content[version], version + 1))
        return failing(request)

    server.script = script
    tally = Tally()
    worker = threading.Thread(target=windows, args=(server, list(cases()), count, tally), daemon=True)
    started = time.monotonic()
    worker.start()
    worker.join(240 * torture())
    assert not worker.is_alive(), f"hangs after {tally.right} windows and {tally.refused.total()} refusals"
    print(
        f"\n{count} windows, {rate:.0%} of {len(server.requests)} requests failed in {len(counts)} ways: {tally.right} "
        f"right, refused {dict(tally.refused)}, {time.monotonic() - started:.0f} s"
    )
    what = f"{rate:.0%} of requests fail in {len(counts)} ways"
    record("N1", what, count, tally.right + tally.refused.total(), len(tally.wrong))
    assert not tally.wrong, tally.wrong[:10]
    assert tally.right + tally.refused.total() == count
    return tally, counts


def test_ten_thousand_windows_of_a_server_that_fails_at_random(server: Files) -> None:
    count = 10_000 * torture()
    tally, counts = run(server, 0.1, count)
    assert set(counts) == set(ALL), "every fault came up"
    # Transient faults are overcome; refusals (404, 403), wrong answers and the file that changes remain.
    assert tally.right > 0.8 * count
    assert any("ChangedError" in name for name in tally.refused), "the file that changes was never noticed"


def test_windows_of_a_server_that_fails_every_other_time(server: Files) -> None:
    tally, _ = run(server, 0.5, 300 * torture())
    assert tally.right > 10


def test_faults_that_pass_lose_no_window(server: Files) -> None:
    """With transient failures only, and files that do not change, no window fails."""
    passing = {name: fault for name, fault in PASSING.items() if name != "status 503 with Retry-After"}
    server.script = at_random(0.1, 9, passing)
    tally = Tally()
    count = 1_000 * torture()
    windows(server, [path for path in cases() if "changes" not in path], count, tally)
    record("N1", "10% of requests fail, and pass when sent again", count, tally.right, count - tally.right)
    assert not tally.wrong, tally.wrong[:10]
    assert tally.right == count, tally.refused
