"""Threads on one handle, and resources of a process after many opens, reads, writes and errors."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import swath
from harness import MIB, record, torture

ROUNDS = 150
THREADS = 64
READS = 40
SIDE = 1000


def test_resources_are_given_back(folder: Path) -> None:
    rounds = ROUNDS * torture()
    script = Path(__file__).with_name("resources.py")
    run = subprocess.run(
        [sys.executable, str(script), str(folder), str(rounds)], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    before, after = (json.loads(line) for line in run.stdout.splitlines())
    leaked = [name for name in ("files", "threads") if after[name] > before[name]]
    # Allocators keep some pages; a leak of one small object each round would be more than this in the long run.
    if after["bytes"] > before["bytes"] + 8 * MIB:
        leaked.append("bytes")
    # Each round opens four files, reads three times, writes once and fails four times.
    record("C3", "opens, reads, writes and errors", rounds * 12, 0 if leaked else rounds * 12, len(leaked))
    assert not leaked, f"{before} became {after}"


@pytest.fixture
def scene(folder: Path) -> tuple[Path, np.ndarray]:
    values = np.random.default_rng(4).integers(0, 500, (2, SIDE, SIDE)).cumsum(axis=2).astype("uint16")
    path = folder / "scene.tif"
    swath.to_geotiff(values, path, compress="deflate", tile_size=128)
    return path, values


@pytest.mark.parametrize("cache", ["tile cache", "no tile cache"])
def test_many_threads_share_a_handle(scene: tuple[Path, np.ndarray], cache: str) -> None:
    path, values = scene
    options = {} if cache == "tile cache" else {"tile_cache": 0}
    reads, wrong, faults = READS * torture(), [], []
    start = threading.Barrier(THREADS)
    with swath.Dataset(path, **options) as dataset:

        def read(seed: int) -> None:
            rng = random.Random(seed)
            try:
                start.wait()
                for _ in range(reads):
                    x, y = rng.randrange(SIDE - 100), rng.randrange(SIDE - 100)
                    width, height = rng.randrange(1, 100), rng.randrange(1, 100)
                    found = dataset.read(window=(y, x, y + height, x + width))
                    if not np.array_equal(found, values[:, y : y + height, x : x + width]):
                        wrong.append((x, y, width, height))
            except BaseException as fault:  # a thread's exception would be lost
                faults.append(fault)

        threads = [threading.Thread(target=read, args=(seed,)) for seed in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=300)
        assert not any(thread.is_alive() for thread in threads), "a thread hangs"
    tries = THREADS * reads
    record("C1", f"windows read by {THREADS} threads of one handle, {cache}", tries, tries - len(wrong), len(wrong))
    assert not faults and not wrong
