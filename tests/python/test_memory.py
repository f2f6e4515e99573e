"""A read holds the output and little else."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from harness import CORPUS, MIB, Swath

TILE = 512


def big_tiff(path: Path, width: int, height: int, tiles: list[bytes] | None, compression: int) -> None:
    """A BigTIFF of 32-bit floats whose tiles follow each other, with real tables.

    With no tiles the pixels are a hole in the file, so that 100 GB take no room on disk.
    """
    across, down = -(-width // TILE), -(-height // TILE)
    count = across * down
    entries = 12
    directory = 16
    tables = directory + 8 + 20 * entries + 8
    data = tables + 16 * count
    sizes = [len(tiles[i % len(tiles)]) for i in range(count)] if tiles else [TILE * TILE * 4] * count
    ends = np.cumsum(np.array(sizes, "u8"))
    offsets = (np.concatenate([[0], ends[:-1]]) + data).astype("<u8")
    tags = [
        (256, 4, 1, width), (257, 4, 1, height), (258, 3, 1, 32), (259, 3, 1, compression), (262, 3, 1, 1),
        (277, 3, 1, 1), (284, 3, 1, 1), (322, 4, 1, TILE), (323, 4, 1, TILE), (324, 16, count, tables),
        (325, 16, count, tables + 8 * count), (339, 3, 1, 3),
    ]  # fmt: skip
    assert len(tags) == entries
    with path.open("wb") as file:
        file.write(struct.pack("<2sHHHQ", b"II", 43, 8, 0, directory))
        file.write(struct.pack("<Q", entries))
        file.write(b"".join(struct.pack("<HHQQ", *tag) for tag in tags) + bytes(8))
        file.write(offsets.tobytes() + np.array(sizes, "<u8").tobytes())
        if tiles:
            for i in range(count):
                file.write(tiles[i % len(tiles)])
        else:
            file.truncate(data + int(ends[-1]))


def deflated() -> list[bytes]:
    rng = np.random.default_rng(1)
    return [zlib.compress((rng.integers(0, 1000, TILE * TILE) / 8).astype("<f4").tobytes(), 1) for _ in range(3)]


@pytest.mark.parametrize("codec", ["none", "deflate"])
def test_whole_read_holds_the_output_and_64_mib(swath: Swath, tmp_path: Path, codec: str) -> None:
    path, out = tmp_path / "big.tif", tmp_path / "raw.bin"
    width, height = 8192, 16384
    big_tiff(path, width, height, deflated() if codec == "deflate" else None, 8 if codec == "deflate" else 1)
    size = width * height * 4
    run = swath.dump_run(path, out, timeout=120)
    run.check_alive()
    assert run.ok, run.stderr
    assert out.stat().st_size == size
    out.unlink()
    assert run.peak <= size + 64 * MIB, f"peak {run.peak / MIB:.0f} MiB for an output of {size / MIB:.0f} MiB"


@pytest.mark.parametrize("codec", ["none", "deflate"])
def test_window_of_100_gb_holds_64_mib(swath: Swath, tmp_path: Path, codec: str) -> None:
    path, out = tmp_path / "huge.tif", tmp_path / "window.npy"
    side = 160_000
    if codec == "deflate":
        big_tiff(path, side, side, [zlib.compress(bytes(TILE * TILE * 4), 9)], 8)
    else:
        big_tiff(path, side, side, None, 1)
        assert path.stat().st_size > 100 * 10**9
    for window in ((0, 0, 1024, 1024), (80_001, 79_003, 1024, 1024), (side - 1024, side - 1024, 1024, 1024)):
        run = swath.dump_run(path, out, window=window)
        run.check_alive()
        assert run.ok, run.stderr
        assert np.load(out).shape == (1, 1024, 1024)
        assert run.peak <= 64 * MIB, f"peak {run.peak / MIB:.1f} MiB"
    info = swath.run("info", path, "--json")
    assert info.ok, info.stderr
    assert info.peak <= 64 * MIB, f"info: peak {info.peak / MIB:.1f} MiB"
    whole = swath.dump_run(path, out)
    whole.check_refusal(path)
    assert whole.seconds < 1
    assert whole.peak <= 64 * MIB


@pytest.mark.parametrize("path", sorted((CORPUS / "bad" / "size").glob("*.tif")), ids=lambda path: path.name)
def test_declared_size_fails_at_once(swath: Swath, path: Path) -> None:
    run = swath.dump_run(path, swath.folder / "never.npy")
    run.check_refusal(path)
    assert run.seconds < 1
    assert run.peak <= 64 * MIB, f"peak {run.peak / MIB:.1f} MiB"
