#!/usr/bin/env python3
"""Forks while threads use the package, and counts children that hang, fail or read wrong pixels.

    python tests/python/forking.py WAY TRIES [THREADS]

prints `{"tries": …, "hung": …, "failed": …}`. The threads of the parent do what the child does, all the time, so that
at the moment of a fork some of them hold every lock there is.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import swath
from swath import _swath

SIZE = 1024
CHIP = 48
PATIENCE = 10.0
Work = Callable[[random.Random], None]


def pixels() -> np.ndarray:
    rows, columns = np.mgrid[0:SIZE, 0:SIZE]
    return ((rows * 7 + columns * 13) % 60_000).astype("u2")


def check(found: object, x: int, y: int) -> None:
    want = pixels_of_file[y : y + CHIP, x : x + CHIP]
    if not np.array_equal(np.asarray(found).reshape(CHIP, CHIP), want):
        raise AssertionError(f"wrong pixels at {x}, {y}")


def place(numbers: random.Random) -> tuple[int, int]:
    return numbers.randrange(SIZE - CHIP), numbers.randrange(SIZE - CHIP)


def windows(source: str) -> Work:
    """Windows of one handle that every thread and every child shares."""
    dataset = swath.Dataset(source)

    def work(numbers: random.Random) -> None:
        places = [place(numbers) for _ in range(4)]
        found = np.asarray(dataset.read_windows([swath.Window(x, y, CHIP, CHIP) for x, y in places]))
        for (x, y), chip in zip(places, found, strict=True):
            check(chip, x, y)
        x, y = places[0]
        check(dataset.read(window=swath.Window(x, y, CHIP, CHIP)), x, y)

    return work


def opens(source: str) -> Work:
    """Files that are opened, inspected, read and closed, and the handle that the package keeps."""

    def work(numbers: random.Random) -> None:
        x, y = place(numbers)
        with swath.Dataset(source) as dataset:
            assert dataset.metadata()["crs"] is not None
            check(dataset.read(window=swath.Window(x, y, CHIP, CHIP)), x, y)
        check(swath.read(source, window=swath.Window(x, y, CHIP, CHIP)), x, y)

    return work


def lazy(source: str) -> Work:
    """Chips of arrays that `open_geotiff` makes."""
    array = swath.open_geotiff(source)

    def work(numbers: random.Random) -> None:
        x, y = place(numbers)
        check(array[..., y : y + CHIP, x : x + CHIP].values, x, y)
        check(swath.open_geotiff(source)[..., y : y + CHIP, x : x + CHIP].values, x, y)

    return work


def files(source: str) -> Work:
    """Windows of a file that Python opened, whose position parent and children share."""
    dataset = swath.Dataset(Path(source).open("rb"))  # noqa: SIM115

    def work(numbers: random.Random) -> None:
        x, y = place(numbers)
        check(dataset.read(window=swath.Window(x, y, CHIP, CHIP)), x, y)

    return work


def writes(folder: str) -> Work:
    """Files that are written and read back."""
    data = np.ascontiguousarray(pixels_of_file[:256, :256])

    def work(numbers: random.Random) -> None:
        path = f"{folder}/{os.getpid()}-{threading.get_ident()}.tif"
        swath.to_geotiff(data, path, tile_size=64, compression="deflate", cog=numbers.random() < 0.5)
        assert np.array_equal(np.asarray(swath.read(path)).reshape(data.shape), data)
        Path(path).unlink(missing_ok=True)

    return work


def held(folder: str) -> Work:
    """Files that other threads are still writing when the child drops its copies of the writers."""
    data = np.ascontiguousarray(pixels_of_file[:256, :256])
    writers: dict[int, _swath.Writer] = {}
    parent = os.getpid()

    def work(_: random.Random) -> None:
        if os.getpid() != parent:
            for writer in list(writers.values()):
                try:
                    writer.push(data[:64], "yx")
                except swath.Error as error:
                    assert "process" in str(error), error
                else:
                    raise AssertionError("a child wrote to the file of its parent")
                writer.abort()
            writers.clear()
            return
        path = f"{folder}/held-{threading.get_ident()}.tif"
        writer = _swath.Writer(path, (1, 256, 256), "uint16", {}, {})
        writers[threading.get_ident()] = writer
        for row in range(0, 256, 64):
            writer.push(data[row : row + 64], "yx")
        writer.finish()
        assert np.array_equal(np.asarray(swath.Dataset(path).read()).reshape(data.shape), data)

    return work


def forked(work: Work, seed: int) -> int | None:
    """Exit status of a child that did the same; `None` if it hung."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work(random.Random(seed))
            _swath.abandon_unfinished()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.001)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def count(work: Work, tries: int, threads: int) -> dict[str, int]:
    stopped = threading.Event()
    broken: list[BaseException] = []

    def loop(seed: int) -> None:
        numbers = random.Random(seed)
        try:
            while not stopped.is_set():
                work(numbers)
        except BaseException as error:
            broken.append(error)

    others = [threading.Thread(target=loop, args=(seed,), daemon=True) for seed in range(threads)]
    for other in others:
        other.start()
    time.sleep(0.2)
    ends = []
    for number in range(tries):
        ends.append(forked(work, number))
        if ends.count(None) * PATIENCE > 120:
            break
    stopped.set()
    for other in others:
        other.join(PATIENCE)
    if broken:
        raise broken[0]
    failed = sum(end not in (0, None) for end in ends)
    return {"tries": len(ends), "hung": ends.count(None), "failed": failed}


def main() -> None:
    way, tries = sys.argv[1], int(sys.argv[2])
    threads = int(sys.argv[3]) if len(sys.argv) > 3 else 6
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/source.tif"
        swath.to_geotiff(pixels_of_file, path, tile_size=64, compression="deflate", crs=32633, cog=True)
        if way in ("writes", "held"):
            work = {"writes": writes, "held": held}[way](folder)
            print(json.dumps(count(work, tries, threads)))
            return
        place, _, what = way.rpartition(" ")
        make = {"windows": windows, "opens": opens, "lazy": lazy, "files": files}[what]
        if not place:
            print(json.dumps(count(make(path), tries, threads)))
            return
        command = [sys.executable, str(Path(__file__).with_name("remote.py")), folder]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            url = server.stdout.readline().strip()
            try:
                print(json.dumps(count(make(f"{url}/source.tif"), tries, threads)))
            finally:
                server.kill()


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    pixels_of_file = pixels()
    main()
