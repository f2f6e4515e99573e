"""Ctrl-C while `to_geotiff` writes: it ends soon with KeyboardInterrupt, and the old file stays as it was."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import swath
from harness import ROOT
from swath import _swath
from test_py_matrix import environment

# Each write would take minutes, and signals when it has begun.
WRITE = """
import io, os, signal, sys, time
import numpy as np
import swath

way, path = sys.argv[1:]
memory = io.BytesIO()
target = memory if way.endswith("BytesIO") else path
rows = [0, 1]
options = {"tile_size": 64, "progress": lambda done, of: rows.__setitem__(slice(None), (done, of))}


def slow(block):
    print("computes", flush=True)
    time.sleep(0.05)
    return block


def chunked(make, meta):
    import dask.array as da

    options["streaming_buffer_bytes"] = 1 << 16
    return da.zeros((64_000, 64), chunks=(64, 64), dtype="f4").map_blocks(make, dtype="f4", meta=meta)


random = np.random.default_rng(0)
if way == "eager on the CPU":
    data = random.integers(0, 1000, (16_384, 8_192), "u2")
    options |= {"compression": "lzma", "compression_level": 9}
elif way == "little, eager, on the CPU":
    data = random.integers(0, 1000, (5_120, 4_096), "u2")
    options |= {"compression": "lzma", "compression_level": 9, "threads": 1}
elif way == "eager on the GPU":
    import cupy

    data = cupy.asarray(random.integers(0, 1000, (16_384, 8_192), "u2"))
    options |= {"compression": "deflate"}
elif way == "a DataArray on the GPU":
    import cupy, xarray

    held = cupy.asarray(random.integers(0, 1000, (16_384, 8_192), "u2"))
    data = xarray.DataArray(held, dims=("y", "x")).astype("f4")
    options |= {"compression": "deflate", "dtype": "u2", "cog": True}
elif way.startswith("dask of CuPy"):
    import cupy

    data = chunked(lambda block: cupy.asarray(slow(block)), cupy.empty((0, 0), "f4"))
else:
    data = chunked(slow, np.empty((0, 0), "f4"))

signal.signal(signal.SIGINT, signal.default_int_handler)
print("begins", flush=True)
try:
    swath.to_geotiff(data, target, **options)
except KeyboardInterrupt:
    # Not only when all the work is done; threads of dask's may still sleep.
    os._exit(8 if memory.getvalue() else 9 if rows[0] == rows[1] else 7)
"""

WAYS = (
    "eager on the CPU",
    "little, eager, on the CPU",
    "eager on the GPU",
    "a DataArray on the GPU",
    "dask of NumPy",
    "dask of CuPy",
    "dask of NumPy to BytesIO",
    "dask of CuPy to BytesIO",
)


# Interrupted while the engine works, not before it begins.
AMID = ("eager on the CPU", "little, eager, on the CPU", "eager on the GPU", "dask of NumPy", "dask of CuPy")


@pytest.mark.parametrize("way", WAYS)
def test_an_interrupt_ends_the_write_and_leaves_the_old_file(folder: Path, tmp_path: Path, way: str) -> None:
    subprocess.run([ROOT / "tools/fake-driver/build.sh"], check=True, capture_output=True)
    path = folder / "old.tif"
    path.write_bytes(b"old")
    aside = tmp_path / "temporary"
    aside.mkdir()
    command = [sys.executable, "-c", WRITE, way, str(path)]
    settings = {**environment(), "TMPDIR": str(aside)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=settings, text=True) as run:
        assert run.stdout is not None
        # It has begun, and dask computes.
        for _ in range(2 if "dask" in way else 1):
            assert run.stdout.readline(), way
        time.sleep(0.3 * (way in AMID))
        run.send_signal(signal.SIGINT)
        try:
            assert run.wait(30) == 7
        finally:
            run.kill()
    assert [(left.name, left.read_bytes()) for left in folder.iterdir()] == [("old.tif", b"old")]
    assert list(aside.iterdir()) == []


class Interrupting:
    """Raises Ctrl-C when its text is requested, which is when Python checks for signals."""

    def __str__(self) -> str:
        raise KeyboardInterrupt


@pytest.mark.parametrize("place", ["option", "value of an option", "tag", "value of a tag"])
def test_an_interrupt_while_options_are_read_is_raised(place: str) -> None:
    """The interrupt was lost: the file got a tag named `<unprintable str object>`, or such an option was refused."""
    interrupting = Interrupting()
    options: dict[Any, Any] = {"compression": "none"}
    tags: dict[Any, Any] = {"name": "value"}
    if place == "option":
        options[interrupting] = 1
    elif place == "value of an option":
        options["compression"] = interrupting
    elif place == "tag":
        tags[interrupting] = "value"
    else:
        tags["name"] = interrupting
    with pytest.raises(KeyboardInterrupt):
        _swath.Writer(None, (1, 4, 4), "uint8", {"tags": {"": tags}}, options)
    with pytest.raises(swath.UsageError, match="zip9"):
        _swath.Writer(None, (1, 4, 4), "uint8", {}, {"compression": "zip9"})
