"""Servers that claim more than they send: the bytes that arrived bound the memory of a read."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

import pytest
from harness import MIB, Swath
from remote import Answer, Files, Request, Respond, direct
from remote_faults import always

# The largest size that a server can claim.
CLAIMED = (1 << 63) - 1
# Longer than the first request, so that the claim is consistent.
LENGTH = 60_000


def tiff(tags: dict[int, list[int]], stream: bytes) -> bytes:
    """A file whose offsets (tag 273 or 324) all point to one stream."""
    head = 8 + 2 + 12 * len(tags) + 4
    long = {tag: values for tag, values in tags.items() if len(values) > 1}
    at = head + sum(4 * len(values) for values in long.values())
    tags = {tag: [at] * len(values) if tag in (273, 324) else values for tag, values in tags.items()}
    entries, tables = struct.pack("<2sHIH", b"II", 42, 8, len(tags)), b""
    for tag, values in sorted(tags.items()):
        value = values[0] if len(values) == 1 else head + len(tables)
        entries += struct.pack("<HHII", tag, 4, len(values), value)
        tables += struct.pack(f"<{len(values)}I", *values) if len(values) > 1 else b""
    return (entries + bytes(4) + tables + stream).ljust(LENGTH, b"\0")


def of_tiles(side: int, tile: int) -> bytes:
    """Zeros, whose tiles all share one stream."""
    stream, count = zlib.compress(bytes(tile * tile), 9), (side // tile) ** 2
    tags = {256: [side], 257: [side], 258: [8], 259: [8], 262: [1], 277: [1], 322: [tile], 323: [tile]}
    return tiff({**tags, 324: [0] * count, 325: [len(stream)] * count}, stream)


def of_one_strip(side: int) -> bytes:
    """A strip of many bytes whose byte count is small."""
    tags = {256: [side], 257: [side], 258: [8], 259: [8], 262: [1], 277: [1], 278: [side]}
    return tiff({**tags, 273: [0], 279: [900]}, zlib.compress(bytes(500_000)))


def claiming(_: Request, respond: Respond) -> Answer:
    answer = respond()
    if "Content-Range" in answer.headers:
        answer.headers["Content-Range"] = f"{answer.headers['Content-Range'].partition('/')[0]}/{CLAIMED}"
    return answer


@pytest.fixture(params=["honest", "claims 8 EiB"])
def server(request: pytest.FixtureRequest) -> Iterator[Files]:
    with direct(), Files(script=always(claiming) if request.param != "honest" else None) as made:
        yield made


def test_a_claimed_size_does_not_lift_the_limit_on_expansion(server: Files, swath: Swath) -> None:
    """4 GiB of zeros out of 60 KB."""
    content = of_tiles(65536, 4096)
    assert len(content) == LENGTH
    server.put("/bomb.tif", content)
    url, array, raster = f"{server.url}/bomb.tif", swath.folder / "bomb.npy", swath.folder / "bomb.tif"
    for command in (["dump", url, "--out", array], ["stats", url], ["convert", url, raster]):
        run = swath.run(*command)
        assert run.code == 2 and "--unlimited" in run.stderr, run.stderr
        assert run.seconds < 5 and run.peak < 128 * MIB, (command, run.seconds, run.peak)
        assert not array.exists() and not raster.exists()
    # A window of it is an ordinary read.
    run = swath.run("dump", url, "--out", array, "--window", "4000,4000,5000,5000")
    array.unlink()
    assert run.ok, run.stderr


def test_one_tile_for_which_little_came_is_refused(server: Files, swath: Swath) -> None:
    server.put("/bomb.tif", of_one_strip(40_000))
    array = swath.folder / "bomb.npy"
    run = swath.run("dump", f"{server.url}/bomb.tif", "--out", array, "--window", "0,39000,16,16")
    assert run.code == 2 and "tile" in run.stderr and not array.exists(), run.stderr
    assert run.seconds < 5 and run.peak < 128 * MIB
