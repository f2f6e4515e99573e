"""Threads on one handle, and resources of a process after many opens, reads, writes and errors."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import swath
from harness import MIB, ROOT, record, torture
from remote import Files, direct
from remote_faults import cut, status

ROUNDS = 150
THREADS = 64
READS = 40
SIDE = 1000


def sample_files() -> dict[str, bytes]:
    """A sound file, and the same with damaged pixels."""
    whole = bytes(
        swath.to_geotiff(np.arange(40_000, dtype="uint16").reshape(1, 200, 200), None, compress="zstd", tile_size=64)
    )
    middle = len(whole) // 2
    return {"whole": whole, "damaged": whole[:middle] + bytes(64) + whole[middle + 64 :]}


def compare(what: str, tries: int, way: str, place: object, rounds: int, **environment: str) -> None:
    """Runs the rounds in a process of their own, which then holds no more than before them."""
    script = Path(__file__).with_name("resources.py")
    command = [sys.executable, str(script), way, str(place), str(rounds)]
    run = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    before, after = (json.loads(line) for line in run.stdout.splitlines())
    leaked = [name for name in before if name != "bytes" and after[name] > before[name]]
    # Allocators keep some pages; a leak of one small object each round would be more than this in the long run.
    if after["bytes"] > before["bytes"] + 8 * MIB:
        leaked.append("bytes")
    record("C3", what, rounds * tries, 0 if leaked else rounds * tries, len(leaked))
    assert not leaked, f"{before} became {after}"


def test_resources_are_given_back(folder: Path) -> None:
    (folder / "damaged.tif").write_bytes(sample_files()["damaged"])
    compare("opens, reads, writes and errors", 12, "local", folder, ROUNDS * torture())


def test_resources_of_remote_reads_are_given_back() -> None:
    files = {f"/{name}.tif": content for name, content in sample_files().items()}
    faults = {"/failing.tif": status(503), "/ending.tif": cut(0.5, "reset")}
    files |= dict.fromkeys(faults, files["/whole.tif"])
    with direct(), Files(files, script=lambda request: faults.get(request.path)) as server:
        compare("opens, reads and errors over HTTP", 9, "remote", server.url, ROUNDS * torture())


def test_resources_of_the_device_are_given_back(folder: Path) -> None:
    subprocess.run([ROOT / "tools/fake-driver/build.sh"], check=True, capture_output=True)
    driver = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve() / "fake-driver" / "libcuda.so.1"
    (folder / "damaged.tif").write_bytes(sample_files()["damaged"])
    what = "reads, writes and errors of a GPU (fake driver): device and pinned memory, streams, events"
    compare(what, 8, "device", folder, ROUNDS * torture(), SWATH_CUDA_DRIVER=str(driver), SWATH_FAKE_DRIVER="")


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
