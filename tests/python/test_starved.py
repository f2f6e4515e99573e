"""Memory that runs out: every codec, in a process with less and less memory, ends with an error and not by a signal.

The size of a buffer follows from the file, so running out of memory for it is an error. These ends are left:

- A process without memory for its own start dies in the loader, in glibc or in the parser of the command line. The
  tests first find the size from which a process starts, and count nothing below it.
- Rust's standard library ends the process where it has no memory for the signal stack of a thread that just started,
  and glibc where it has none for the destructors of a thread.
- Rust ends it where a few bytes cannot be allocated: a path, the text of an error, a buffer of standard output.

Ends but for the first kind are counted as lost, in rows of their own. Any other end by a signal fails the test.
"""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
import swath as sw
from harness import MIB, Swath, record, scratch

SIDE = 768
# The Rust tests called `allocation` fail every larger allocation in turn; only those up to this size may end a process.
TINY = 4095
# A raster for each codec, and its writer: the package where it can, else GDAL.
CODECS = (
    "none", "lzw", "deflate", "zstd", "lzma", "packbits", "lz4", "lerc", "lerc_deflate", "lerc_zstd", "jpeg", "webp",
    "jpeg2000", "ccittfax4", "ycbcr", "jpegxl", "jpegxl_lossy",
)  # fmt: skip


def write(path: Path, codec: str) -> None:
    y, x = np.mgrid[:SIDE, :SIDE]
    plane = ((x // 3 + y // 5) % 251).astype("uint8")
    plane[::7] = np.random.default_rng(1).integers(0, 255, plane[::7].shape)
    colours = np.stack([plane, plane[::-1], plane[:, ::-1]])
    if codec in ("lz4", "jpeg2000"):
        sw.to_geotiff(plane, path, compression=codec, tile_size=SIDE)
        return
    if codec in ("ycbcr", "jpegxl", "jpegxl_lossy"):
        tifffile = pytest.importorskip("tifffile")
        pytest.importorskip("imagecodecs")
        tile: dict[str, Any] = {"tile": (SIDE, SIDE), "photometric": "rgb"}
        if codec == "jpegxl_lossy":
            tile["compressionargs"] = {"lossless": False, "distance": 1.0}
        tifffile.imwrite(path, np.ascontiguousarray(colours.transpose(1, 2, 0)), compression="jpegxl", **tile)
        if codec == "ycbcr":
            packed_ycbcr(path)
        return
    samples = colours if codec in ("jpeg", "webp") else plane
    samples = samples if samples.ndim == 3 else samples[None]
    if codec in ("deflate", "lerc"):
        samples = samples.astype("float32")
    options = {"predictor": 3} if codec == "deflate" else {"predictor": 2} if codec == "lzw" else {}
    options |= {"photometric": "ycbcr", "interleave": "pixel"} if codec == "jpeg" else {}
    options |= {"interleave": "pixel", "WEBP_LOSSLESS": True} if codec == "webp" else {}
    options |= {"nbits": 1} if codec == "ccittfax4" else {}
    if codec == "ccittfax4":
        samples = (samples > 100).astype("uint8")
    shape = {"count": len(samples), "height": SIDE, "width": SIDE, "dtype": samples.dtype}
    tiles = {"tiled": True, "blockxsize": SIDE, "blockysize": SIDE}
    with rasterio.open(path, "w", driver="GTiff", compress=codec, **shape, **tiles, **options) as out:
        out.write(samples)


def packed_ycbcr(path: Path) -> None:
    """Uncompressed YCbCr with a pair of chroma samples for 2 x 2 luma samples."""
    import struct

    stream = bytes(SIDE * SIDE * 3 // 2)
    tags = [(256, SIDE), (257, SIDE), (258, 8), (259, 1), (262, 6), (277, 3), (322, SIDE), (323, SIDE), (324, 0),
            (325, len(stream)), (530, 2 | 2 << 16)]  # fmt: skip
    end = 8 + 2 + 12 * len(tags) + 4
    entries = b""
    for tag, value in tags:
        # Eight bits for each of three samples do not fit into an entry and follow the directory.
        kind, count, value = (3, 3, end) if tag == 258 else (3, 2, value) if tag == 530 else (4, 1, value)
        entries += struct.pack("<HHII", tag, kind, count, end + 6 if tag == 324 else value)
    head = b"II*\0" + struct.pack("<IH", 8, len(tags)) + entries + bytes(4) + struct.pack("<3H", 8, 8, 8)
    path.write_bytes(head + stream)


@pytest.fixture(scope="module")
def files() -> Iterator[dict[str, Path]]:
    with scratch() as name:
        found = {codec: Path(name) / f"{codec}.tif" for codec in CODECS}
        for codec, path in found.items():
            write(path, codec)
        yield found


def limited(size: int) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (size, size))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def cause(stderr: str) -> str:
    """What ended a process by a signal; fails for anything but the three causes that are left."""
    if "stack_overflow.rs" in stderr and "failed to allocate an alternative stack" in stderr:
        return "Rust's standard library had no memory for the signal stack of a thread"
    if "Fatal glibc error: failed to register TLS destructor" in stderr:
        return "glibc had no memory for the destructors of a thread"
    sizes = [int(size) for size in re.findall(r"memory allocation of (\d+) bytes failed", stderr)]
    assert sizes and sizes[0] <= TINY, stderr
    return "Rust could not allocate less than 4 KiB, for a path or the text of an error"


def count(what: str, tries: int, ends: list[str]) -> None:
    record("W5", f"{what} with too little memory", tries - len(ends), tries - len(ends), 0)
    for end in ends:
        record("W5", f"the process ended: {end}", 1, 0, 1)
    assert len(ends) <= 1 + tries // 5, ends


def dump(swath: Swath, path: Path, threads: int, size: int) -> subprocess.CompletedProcess[str]:
    command = [swath.binary, "dump", path, "--out", "/dev/null", "--threads", str(threads), "--device", "cpu"]
    # Without backtraces: the standard library waits for ever where it has no memory in the middle of one.
    return subprocess.run(
        command,
        preexec_fn=lambda: limited(size),
        env={**os.environ, "RUST_BACKTRACE": "0"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture(scope="module")
def least(swath: Swath, files: dict[str, Path]) -> int:
    """Memory with which a process starts, reads its command line and says that a file is missing."""
    missing = files["none"].with_name("missing.tif")
    size = 16 * MIB
    while True:
        done = dump(swath, missing, 1, size)
        if done.returncode == 2 and "missing.tif" in done.stderr:
            return size
        size += MIB // 8
        assert size < 256 * MIB, done.stderr


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("codec", CODECS)
def test_the_tool_ends_with_an_error(
    swath: Swath, files: dict[str, Path], least: int, codec: str, threads: int
) -> None:
    tries = refused = sound = 0
    ends = []
    size = least
    while sound < 3:
        done = dump(swath, files[codec], threads, size)
        tries += 1
        sound = sound + 1 if done.returncode == 0 else 0
        refused += done.returncode == 2
        if done.returncode not in (0, 2):
            assert done.returncode < 0, f"{size / MIB:.1f} MiB: exit {done.returncode}: {done.stderr}"
            ends.append(cause(done.stderr))
        size += MIB // 8 if size < 64 * MIB else size // 16
        assert size < 2048 * MIB, done.stderr
    assert refused, "there was no size at which memory ran out"
    count(f"the tool reads {codec} with {threads} threads", tries, ends)


PROGRAM = """
import json, os, resource, sys
import swath
path, step, most = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
used = int(open("/proc/self/statm").read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
for number in range(most):
    size = used + number * step
    log = os.memfd_create("log")
    if (child := os.fork()) == 0:
        os.dup2(log, 2)
        resource.setrlimit(resource.RLIMIT_AS, (size, size))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        try:
            swath.read(path, device="cpu")
        except (swath.Error, MemoryError):
            os._exit(3)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    said = os.pread(log, 4000, 0).decode(errors="replace")
    print(json.dumps([number * step >> 20, os.waitstatus_to_exitcode(status), said]), flush=True)
    os.close(log)
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
@pytest.mark.parametrize("codec", CODECS)
def test_the_package_raises(files: dict[str, Path], codec: str) -> None:
    argv = [sys.executable, "-c", PROGRAM, str(files[codec]), str(2 * MIB), "24"]
    environment = os.environ | {"RUST_BACKTRACE": "0", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=120, check=True)
    ends = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(ends) == 24 and any(code == 3 for _, code, _ in ends), (ends, done.stderr)
    died = [(room, code, said) for room, code, said in ends if code not in (0, 3)]
    assert all(code < 0 for _, code, _ in died), died
    count(f"the package reads {codec}", len(ends), [cause(said) for _, _, said in died])
