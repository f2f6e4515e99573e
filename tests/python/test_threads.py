"""A system that starts no more threads (`ulimit -u`): swath works with fewer or gives an error; no panic, no hang."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import swath as sw
from harness import ROOT, Swath
from remote import Files, direct

pytest.importorskip("resource", reason="this system has no such limit")

PATIENCE = 60
LIMITED = [sys.executable, str(ROOT / "tests/python/limited.py")]
# Threads that are allowed besides the first.
FEW = (0, 1, 2, 5)


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("threads") / "scene.tif"
    pixels = np.arange(3 * 1024 * 1024, dtype="u4").reshape(3, 1024, 1024)
    sw.to_geotiff(pixels, path, tile_size=256, compression="zstd", cog=True)
    return path


@pytest.fixture
def server(scene: Path) -> Iterator[Files]:
    with direct(), Files({"/scene.tif": scene.read_bytes()}) as files:
        yield files


def limited(threads: int, *command: object) -> subprocess.CompletedProcess[str]:
    line = [*LIMITED, str(threads), *map(str, command)]
    # NumPy's own threads do not count.
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(line, capture_output=True, text=True, timeout=PATIENCE, env=environment)
    assert "panicked" not in done.stderr, done.stderr
    return done


def python(threads: int, code: str, *arguments: object) -> str:
    done = limited(threads, sys.executable, "-W", "ignore", "-c", textwrap.dedent(code), *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("threads", FEW)
def test_local_work_continues_with_few_threads(scene: Path, threads: int, tmp_path: Path) -> None:
    code = """
    import sys, numpy as np, swath
    path, target = sys.argv[1:]
    want = np.arange(3 * 1024 * 1024, dtype="u4").reshape(3, 1024, 1024)
    dataset = swath.Dataset(path)
    assert (np.asarray(dataset.read(threads=16)) == want).all()
    windows = [swath.Window(x, x, 64, 64) for x in range(0, 900, 100)]
    for found, window in zip(np.asarray(dataset.read_windows(windows, threads=16)), windows, strict=True):
        assert (found == want[:, window.y : window.y + 64, window.x : window.x + 64]).all()
    chips = dataset.chips(256, batch=2, prefetch=2)
    assert sum(len(windows) for _, windows in chips) == 16
    assert swath.stats(dataset)["bands"][2]["max"] == want.max()
    lazy = swath.open_geotiff(path, masked=True, threads=16)
    assert lazy.values[2].max() == want.max()
    import dask, dask.array
    dask.config.set(scheduler="synchronous")
    for data in (want, dask.array.from_array(want, chunks=(3, 256, 256))):
        swath.to_geotiff(data, target, tile_size=256, threads=16)
        assert (np.asarray(swath.read(target)) == want).all()
    """
    python(threads, code, scene, tmp_path / "written.tif")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
@pytest.mark.parametrize("threads", FEW)
def test_a_network_without_threads_is_an_error(server: Files, threads: int, host: str) -> None:
    code = """
    import sys, numpy as np, swath
    try:
        found = np.asarray(swath.Dataset(sys.argv[1]).read(3))
    except swath.Error as error:
        print(error)
    else:
        assert found.max() == 3 * 1024 * 1024 - 1
        print("read")
    """
    output = python(threads, code, f"{server.url.replace('127.0.0.1', host)}/scene.tif")
    if threads == 0:
        assert "thread" in output and "ulimit -u" in output and "scene.tif" in output
    else:
        assert output == "read\n" or ("thread" in output and "ulimit -u" in output)
    if threads == FEW[-1]:
        assert output == "read\n"


@pytest.mark.parametrize("threads", FEW)
def test_the_command_continues_with_few_threads(scene: Path, swath: Swath, threads: int, tmp_path: Path) -> None:
    tool, target = swath.binary, tmp_path / "target.tif"
    for arguments in (
        ("info", scene),
        ("stats", scene),
        ("convert", scene, target, "--cog", "--compress", "deflate"),
        ("preview", scene, tmp_path / "target.png"),
        ("validate", target),
        ("compare", scene, target),
    ):
        done = limited(threads, tool, *arguments)
        assert done.returncode == 0, (arguments, done.stderr)
    assert (np.asarray(sw.Dataset(target).read()) == np.asarray(sw.Dataset(scene).read())).all()


@pytest.mark.parametrize("threads", FEW)
def test_the_command_reports_that_the_network_has_no_thread(server: Files, swath: Swath, threads: int) -> None:
    done = limited(threads, swath.binary, "info", f"{server.url}/scene.tif")
    if threads == 0:
        assert done.returncode != 0 and "thread" in done.stderr and "ulimit -u" in done.stderr, done.stderr
    else:
        assert done.returncode == 0, done.stderr
