"""Forks: children of a process whose threads read and write can do the same, and leave the parent's files alone."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
import swath
from harness import ROOT, record, torture
from test_py_matrix import environment

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")

# Before locks were made anew in children, one fork in ten to fifty met a held lock.
TRIES = int(os.environ.get("SWATH_FORKS", 100 * torture()))


@pytest.mark.parametrize(
    "way", ["windows", "opens", "lazy", "files", "writes", "held", "remote windows", "remote opens"]
)
def test_children_of_a_process_at_work(way: str) -> None:
    command = [sys.executable, str(ROOT / "tests/python/forking.py"), way, str(TRIES)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60 + 2 * TRIES)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    lost = found["hung"] + found["failed"]
    record("C2", f"children of a process at work ({way})", found["tries"], found["tries"] - lost, lost)
    assert found == {"tries": TRIES, "hung": 0, "failed": 0}, done.stderr


def run(code: str, *arguments: object, env: dict[str, str] | None = None) -> None:
    """Runs a script that forks; this process must not fork."""
    command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(code), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=env)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def scene(folder: Path) -> Path:
    path = folder / "scene.tif"
    pixels = np.arange(512 * 512, dtype="u4").reshape(512, 512)
    swath.to_geotiff(pixels, path, tile_size=64, compression="deflate")
    return path


def test_a_child_of_a_child_reads_and_writes(scene: Path) -> None:
    code = """
    import os, sys, numpy as np, swath
    dataset = swath.Dataset(sys.argv[1])
    for depth in range(20):
        x = 16 * depth
        found = np.asarray(dataset.read(window=swath.Window(x, 5, 16, 1))).ravel()
        assert (found == np.arange(16) + 5 * 512 + x).all(), depth
        path = f"{sys.argv[1]}-{depth}.tif"
        swath.to_geotiff(np.full((8, 8), depth, "u1"), path)
        assert np.asarray(swath.read(path)).max() == depth
        child = os.fork()
        if child:
            os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
    run(code, scene)


def test_workers_of_multiprocessing_read_a_handle_of_the_parent(scene: Path) -> None:
    code = """
    import multiprocessing, sys, numpy as np, swath
    dataset = swath.Dataset(sys.argv[1])

    def total(row):
        return int(np.asarray(dataset.read(window=swath.Window(0, row, 512, 1))).sum())

    with multiprocessing.get_context("fork").Pool(4) as pool:
        found = pool.map(total, range(512))
    assert found == np.arange(512 * 512).reshape(512, 512).sum(axis=1).tolist()
    """
    run(code, scene)


def test_chips_continue_in_a_child(scene: Path) -> None:
    code = """
    import os, sys, numpy as np, swath
    chips = iter(swath.Dataset(sys.argv[1]).chips(64, batch=4, prefetch=3))
    next(chips)
    child = os.fork()
    left = sum(len(windows) for _, windows in chips)
    assert left == 60, left
    if child == 0:
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    """
    run(code, scene)


def test_a_child_leaves_the_file_of_its_parent(folder: Path) -> None:
    """Whatever the child does, the parent's unfinished file stays, and becomes the file."""
    code = """
    import os, sys, numpy as np, swath
    from pathlib import Path
    folder = Path(sys.argv[1])
    data = np.arange(64 * 64, dtype="u2").reshape(64, 64)
    writer = swath._swath.Writer(str(folder / "forked.tif"), (1, 64, 64), "uint16", {}, {})
    writer.push(data[:32], "yx")
    parts = sorted(folder.iterdir())
    assert len(parts) == 1 and parts[0].name.endswith(".part")
    for way in ("push", "finish", "abort", "drop", "exit"):
        child = os.fork()
        if child == 0:
            if way in ("push", "finish"):
                try:
                    writer.push(data[32:], "yx") if way == "push" else writer.finish()
                except swath.UsageError as error:
                    assert "process" in str(error), error
                else:
                    os._exit(1)
            elif way == "abort":
                writer.abort()
            elif way == "drop":
                del writer
                swath._swath.abandon_unfinished()
            else:
                sys.exit(0)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0, way
        assert sorted(folder.iterdir()) == parts, way
    writer.push(data[32:], "yx")
    writer.finish()
    assert [path.name for path in folder.iterdir()] == ["forked.tif"]
    assert (np.asarray(swath.read(folder / "forked.tif")) == data).all()
    """
    run(code, folder)


def test_a_file_that_both_have_open_keeps_its_position(scene: Path) -> None:
    """Parent and child share the position of a Python file; special files are refused."""
    code = """
    import gzip, os, sys, numpy as np, swath
    path, packed = sys.argv[1:]
    with open(path, "rb") as plain, gzip.open(packed, "rb") as zipped:
        read, unzipped = swath.Dataset(plain), swath.Dataset(zipped)
        place = plain.tell()
        child = os.fork()
        assert np.asarray(read.read(window=swath.Window(9, 9, 2, 1))).ravel().tolist() == [9 * 513, 9 * 513 + 1]
        assert plain.tell() == place
        if child == 0:
            try:
                unzipped.read()
            except swath.Error as error:
                assert "forked" in str(error) and "path" in str(error), error
            else:
                os._exit(1)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert np.asarray(unzipped.read()).max() == 512 * 512 - 1
    """
    packed = scene.with_suffix(".gz")
    packed.write_bytes(gzip.compress(scene.read_bytes()))
    run(code, scene, packed)


def test_a_child_has_no_gpu_of_its_parent(scene: Path) -> None:
    """A child can drop its parent's GPU arrays; using the GPU is an error, and `auto` uses the CPU."""
    code = """
    import os, sys, warnings, numpy as np, swath
    warnings.simplefilter("ignore", DeprecationWarning)
    dataset = swath.Dataset(sys.argv[1])
    held = dataset.read(device="cuda")
    child = os.fork()
    if child == 0:
        del held
        try:
            dataset.read(device="cuda")
        except swath.DeviceError as error:
            assert "forked" in str(error) and "spawn" in str(error), error
        else:
            os._exit(1)
        assert np.asarray(dataset.read(device="auto")).max() == 512 * 512 - 1
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            swath.to_geotiff(np.zeros((64, 64), "u1"), sys.argv[1] + ".child.tif", device="auto")
        assert any("forked" in str(warning.message) for warning in warned), warned
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert np.asarray(dataset.read(device="cuda").to_host()).max() == 512 * 512 - 1
    """
    run(code, scene, env=environment())
