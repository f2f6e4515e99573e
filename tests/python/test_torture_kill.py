"""Python is killed while it writes (W1): arrays and streams, plain and COG, over an old file and as a new one."""

from __future__ import annotations

import hashlib
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import rasterio
from harness import record, torture

TRIES = 16
LONG = 60.0


def digest(path: Path) -> str:
    return hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest()


def strays(folder: Path) -> list[str]:
    return [entry.name for entry in folder.iterdir() if entry.name.startswith(".swath")]


@contextmanager
def writer(path: Path, way: str, kind: str) -> Iterator[Callable[[float], int]]:
    """Gives a child this many seconds to write, and returns its exit status."""
    script = Path(__file__).with_name("killing.py")
    argv = [sys.executable, str(script), way, str(path), kind]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        assert process.stdout.readline() == "ready\n"

        def write(seconds: float) -> int:
            process.stdin.write(f"{seconds}\n")
            process.stdin.flush()
            return int(process.stdout.readline())

        yield write
        process.stdin.close()


@pytest.mark.parametrize("kind", ["plain", "cog"])
@pytest.mark.parametrize("way", ["array", "streamed"])
def test_python_is_killed(folder: Path, way: str, kind: str) -> None:
    path = folder / "a.tif"
    with writer(path, way, kind) as write:
        began = time.monotonic()
        assert write(LONG) == 0
        seconds = time.monotonic() - began
        new = digest(path)
        with rasterio.open(path) as dataset:
            dataset.read()
        rng = random.Random(f"{way} {kind}")
        tries, killed, lost = TRIES * torture(), 0, 0
        for number in range(tries):
            # In every other round there is no file yet.
            old = b"the old file" if number % 2 else None
            path.unlink(missing_ok=True)
            if old:
                path.write_bytes(old)
            # One moment in each part of the write, and a little beyond its end. A write that ends sooner than the first
            # one did, on a machine that was busy then, moves the moments that follow.
            began = time.monotonic()
            if write(seconds * 1.1 * (number + rng.random()) / tries) == 0:
                seconds = min(seconds, time.monotonic() - began)
            else:
                killed += 1
            held = path.read_bytes() if path.exists() else None
            lost += held != old and (held is None or digest(path) != new)
        # The next write removes the leftovers.
        assert write(LONG) == 0
        assert digest(path) == new and strays(folder) == []
    record("W1", f"Python killed at random, {way}, {kind}", tries, tries - lost, lost)
    assert lost == 0
    assert killed > tries // 3, "nothing was killed early enough"
