"""Bombs: small files that demand much memory or time (R5 to R8). Each is refused, or read within the limits."""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import swath as sw
from harness import CORPUS, MIB, Run, Swath, record, scratch

# A little more than the memory of a process that reads nothing.
LITTLE = 64 * MIB
# Beyond this, a file of a few bytes is refused for its size alone.
FLOOR = 1 << 30
Tags = Sequence[tuple[int, int, Sequence[int]]]


def tiff(path: Path, tags: Tags, tile: bytes, offsets: Sequence[int] | None = None, then: int = 0) -> Path:
    """A BigTIFF of these tags (number, type, values) with one tile after its directory."""
    size = {3: "H", 4: "I", 16: "Q"}
    tags = sorted([*tags, (324, 16, offsets or [0])])
    start = 16 + 8 + 20 * len(tags) + 8
    values = {tag: struct.pack(f"<{len(given)}{size[kind]}", *given) for tag, kind, given in tags}
    place = start + sum(len(value) for value in values.values() if len(value) > 8)
    if offsets is None:
        values[324] = struct.pack("<Q", place)
    head, rest = struct.pack("<2sHHHQQ", b"II", 43, 8, 0, 16, len(tags)), b""
    for tag, kind, given in tags:
        value = values[tag]
        if len(value) > 8:
            value, rest = struct.pack("<Q", start + len(rest)), rest + value
        head += struct.pack("<HHQ", tag, kind, len(given)) + value.ljust(8, b"\0")
    path.write_bytes(head + struct.pack("<Q", then) + rest + tile)
    return path


def one_tile(path: Path, compression: int, stream: bytes, side: int, samples: int = 1, bits: int = 8) -> Path:
    tags: list[tuple[int, int, Sequence[int]]] = [
        (256, 4, [side]), (257, 4, [side]), (258, 3, [bits] * samples), (259, 3, [compression]),
        (262, 3, [2 if samples >= 3 else 1]), (277, 3, [samples]), (322, 4, [side]), (323, 4, [side]),
        (325, 16, [len(stream)]),
    ]  # fmt: skip
    return tiff(path, tags, stream)


def check(run: Run, path: Path, peak: int = LITTLE, seconds: float = 1.0) -> str:
    """Checks that a file is refused in time. Only CPU time beyond the start counts, since the machine may be busy."""
    message = run.check_refusal(path)
    assert run.peak <= peak, f"{path.name}: peak {run.peak / MIB:.0f} MiB"
    assert run.seconds <= seconds + 4, f"{path.name}: {run.seconds:.1f} s"
    return message


@pytest.fixture(scope="module")
def jpeg2000() -> Iterator[bytes]:
    """A sound code stream of 64 x 64 bytes."""
    with scratch() as name:
        path = Path(name) / "small.tif"
        sw.to_geotiff(np.zeros((64, 64), "uint8"), path, compression="jpeg2000", tile_size=64)
        content = path.read_bytes()
        # SOC and SIZ, up to EOC.
        yield content[content.index(b"\xff\x4f\xff\x51") : content.rindex(b"\xff\xd9") + 2]


def grown(stream: bytes, side: int, tile: int | None = None) -> bytes:
    """The same code stream, of another size: SIZ has the far corner at 8 and 12 and its tile at 24 and 28."""
    changed = bytearray(stream)
    for at, value in ((8, side), (12, side), (24, tile or side), (28, tile or side)):
        changed[at : at + 4] = struct.pack(">I", value)
    return bytes(changed)


def test_jpeg2000_of_a_few_bytes_takes_no_gigabytes(swath: Swath, folder: Path, jpeg2000: bytes) -> None:
    tries = 0
    for side in (10_000, 16_384, 30_000):
        path = one_tile(folder / f"{side}.tif", 34712, grown(jpeg2000, side), side)
        assert path.stat().st_size < 1000
        run = swath.dump_run(path, folder / "never.npy")
        message = check(run, path, peak=LITTLE + side * side)
        assert "JPEG 2000: the tile asks for" in message and "--unlimited" in message, message
        with pytest.raises(sw.LimitError, match=r"JPEG 2000: the tile asks for \d+ bytes.*max_pixels="):
            sw.read(path)
        tries += 2
    # The stream and the directory have to agree.
    path = one_tile(folder / "lie.tif", 34712, grown(jpeg2000, 30_000), 64)
    assert "30000 x 30000" in check(swath.dump_run(path, folder / "never.npy"), path)
    record("R5", "JPEG 2000 streams of a few hundred bytes that declare up to 900 megapixels", tries + 1, tries + 1, 0)


def test_jpeg2000_book_keeping_counts(swath: Swath, folder: Path, jpeg2000: bytes) -> None:
    """Blocks of 4 x 4, 65535 layers, and precincts or tiles of a pixel."""
    cod = jpeg2000.index(b"\xff\x52")
    tries = 0
    for side, layers in ((64, 0xFFFF), (2048, 100), (4096, 0xFFFF)):
        stream = bytearray(grown(jpeg2000, side))
        stream[cod + 6 : cod + 8] = struct.pack(">H", layers)
        stream[cod + 10 : cod + 12] = b"\0\0"
        path = one_tile(folder / "layers.tif", 34712, bytes(stream), side)
        run = swath.dump_run(path, folder / "out.npy")
        run.check_alive()
        assert run.peak <= FLOOR + LITTLE and run.seconds < 20, (side, layers, run.peak, run.seconds)
        tries += 1
    path = one_tile(folder / "tiles.tif", 34712, grown(jpeg2000, 8192, 1), 8192)
    check(swath.dump_run(path, folder / "never.npy"), path, peak=LITTLE + 8192**2)
    record("R5", "JPEG 2000 streams with layers, blocks and tiles without end", tries + 1, tries + 1, 0)


def test_jpegxl_of_a_few_kilobytes_takes_no_gigabytes(swath: Swath, folder: Path) -> None:
    codecs = pytest.importorskip("imagecodecs")
    stream = codecs.jpegxl_encode(np.zeros((8192, 8192), "uint8"), lossless=False, distance=1.0, effort=3)
    assert len(stream) < 10_000
    path = one_tile(folder / "large.tif", 50002, stream, 8192)
    message = check(swath.dump_run(path, folder / "never.npy"), path, peak=LITTLE + 8192**2)
    assert "JPEG XL: the tile asks for" in message and "--unlimited" in message, message
    # A damaged stream gets no more memory than the limit, whatever it declares.
    small = bytearray(codecs.jpegxl_encode(np.zeros((2048, 2048, 3), "uint8"), lossless=False, distance=1.0, effort=3))
    rng = np.random.default_rng(1)
    tries = 30
    for _ in range(tries):
        changed = small.copy()
        for at in rng.integers(2, len(small), 3):
            changed[at] ^= 1 << int(rng.integers(0, 8))
        path = one_tile(folder / "changed.tif", 50002, bytes(changed), 2048, samples=3)
        run = swath.dump_run(path, folder / "out.npy", timeout=60)
        run.check_alive()
        assert run.peak <= FLOOR + LITTLE, run.peak
    record("R5", "JPEG XL streams of a few kilobytes, sound and damaged", tries + 1, tries + 1, 0)


# Streams that hold far more than their tile of 256 x 256: of bytes, or of bits for CCITT.
LONG: dict[str, tuple[int, Callable[[bytes], bytes]]] = {
    "deflate": (8, lambda data: zlib.compress(data, 9)),
    "packbits": (32773, lambda data: b"\x81\0" * (len(data) // 128)),
    "zstd": (50000, lambda data: _codecs().zstd_encode(data)),
    "lzma": (34925, lambda data: _codecs().lzma_encode(data)),
    "lzw": (5, lambda data: _codecs().lzw_encode(data)),
    "lz4 block": (50004, lambda data: _codecs().lz4_encode(data)),
    "lz4 frame": (50004, lambda data: _codecs().lz4f_encode(data)),
    "jpeg": (7, lambda data: _codecs().jpeg8_encode(_square(data))),
    "webp": (50001, lambda data: _codecs().webp_encode(np.dstack([_square(data)] * 3), lossless=True)),
    "lerc": (34887, lambda data: lerc(math.isqrt(len(data)))),
    "lerc, not constant": (34887, lambda data: _codecs().lerc_encode(_square(data) ^ np.eye(8192, dtype="uint8"))),
    # A one is a row like the row above it.
    "ccitt group 4": (4, lambda data: b"\xff" * (len(data) // 8)),
    # A line of ends of line, and of rows without an end.
    "ccitt group 3": (3, lambda data: b"\x00\x10\x01" * (len(data) // 64)),
    "ccitt fill bits": (3, lambda data: bytes(len(data) // 64)),
}


def _square(data: bytes) -> np.ndarray:
    side = math.isqrt(len(data))
    return np.frombuffer(data, "uint8").reshape(side, side)


def lerc(side: int) -> bytes:
    """A LERC 2 blob without a checksum: all pixels are valid, and 7."""
    head = struct.pack("<6i3d", side, side, side**2, 8, 90 - 20, 1, 0.5, 7, 7)
    blob = b"Lerc2 " + struct.pack("<i", 2) + head + struct.pack("<i", 0)
    return blob.replace(head, struct.pack("<6i3d", side, side, side**2, 8, len(blob), 1, 0.5, 7, 7))


def _codecs() -> Any:
    return pytest.importorskip("imagecodecs")


@pytest.mark.parametrize("codec", LONG)
def test_streams_longer_than_their_tile(swath: Swath, folder: Path, codec: str) -> None:
    compression, encode = LONG[codec]
    stream = encode(bytes(64 << 20))
    bits = 1 if codec.startswith("ccitt") else 8
    path = one_tile(folder / "long.tif", compression, stream, 256, samples=3 if codec == "webp" else 1, bits=bits)
    run = swath.dump_run(path, folder / "out.npy")
    run.check_alive()
    assert run.peak <= LITTLE + len(stream) and run.seconds < 5, (run.peak, run.seconds)
    record("R5", f"a stream of 64 MiB ({codec}) in a tile of 64 KiB", 1, 1, 0)


def jpeg(side: int, samples: int, *, progressive: bool = False) -> bytes:
    """A JPEG stream of 16 x 16 pixels whose frame header declares others."""
    stream = bytearray(_codecs().jpeg8_encode(np.zeros((16, 16, samples), "uint8"), subsampling="444"))
    frame = stream.index(b"\xff\xc0")
    stream[frame + 5 : frame + 9] = struct.pack(">HH", side, side)
    if progressive:
        # SOF2, and a scan of the coefficients from 0 to 0.
        stream[frame + 1] = 0xC2
        scan = stream.index(b"\xff\xda")
        stream[scan + 5 + 2 * samples : scan + 8 + 2 * samples] = bytes(3)
    return bytes(stream)


def webp(side: int) -> bytes:
    """A lossless WebP stream of 64 x 64 pixels whose header declares others."""
    stream = bytearray(_codecs().webp_encode(np.full((64, 64, 3), 7, "uint8"), lossless=True))
    at = stream.index(b"/", stream.index(b"VP8L")) + 1
    bits = int.from_bytes(stream[at : at + 4], "little") >> 28 << 28 | (side - 1) << 14 | (side - 1)
    stream[at : at + 4] = bits.to_bytes(4, "little")
    return bytes(stream)


# Streams of less than 4 KB in a tile of the size that they declare: compression, samples, bits, stream, side, and the
# words of the refusal; none where it is sound and within the limits.
DECLARING: dict[str, tuple[int, int, int, Callable[[int], bytes], int, str | None]] = {
    "jpeg": (7, 1, 8, lambda side: jpeg(side, 1), 8000, "entropy-coded data ends early"),
    "jpeg, too large": (7, 1, 8, lambda side: jpeg(side, 1), 65_504, "limited by the size of the file"),
    "jpeg, progressive": (7, 3, 8, lambda side: jpeg(side, 3, progressive=True), 18_000, "JPEG: the tile asks for"),
    "webp": (50001, 3, 8, webp, 16_368, "WebP: the tile asks for"),
    "lerc": (34887, 1, 8, lerc, 30_000, "LERC: the tile asks for"),
    "lerc, within": (34887, 1, 8, lerc, 8000, None),
    "ccitt, within": (4, 1, 1, lambda side: b"\xff" * (side // 8), 16_000, None),
}


@pytest.mark.parametrize("codec", DECLARING)
def test_streams_that_declare_much(swath: Swath, folder: Path, codec: str) -> None:
    compression, samples, bits, make, side, refused = DECLARING[codec]
    stream = make(side)
    assert len(stream) < 4000
    path = one_tile(folder / "much.tif", compression, stream, side, samples=samples, bits=bits)
    run = swath.dump_run(path, folder / "out.npy")
    run.check_alive()
    assert run.ok == (refused is None) and (refused or "") in run.stderr, run.stderr
    # One tile and its image, where the file is allowed to be that large.
    large = refused is None or "ends early" in refused
    assert run.peak <= LITTLE + (2 * side * side * samples if large else 0), run.peak / MIB
    assert run.seconds < 10, run.seconds
    tries = 1
    # The stream and the directory have to agree; a stream of CCITT declares nothing.
    if compression != 4:
        path = one_tile(folder / "lie.tif", compression, stream, 64, samples=samples)
        check(swath.dump_run(path, folder / "never.npy"), path)
        tries += 1
    record("R5", f"a stream of a few bytes ({codec}) that declares {side} x {side}", tries, tries, 0)


# Directories that promise much: each is refused for its numbers alone.
DECLARED = {
    "2^31 by 2^31": [(256, 4, [2**31]), (257, 4, [2**31])],
    "2^32 - 1 by 2^32 - 1": [(256, 4, [2**32 - 1]), (257, 4, [2**32 - 1])],
    "65535 bands": [(256, 4, [60_000]), (257, 4, [60_000]), (277, 3, [65535])],
    "a tile of 2^31 by 2^31": [(256, 4, [64]), (257, 4, [64]), (322, 4, [2**31]), (323, 4, [2**31])],
}


@pytest.mark.parametrize("compression", [1, 5, 7, 8, 32773, 34712, 34887, 34925, 50000, 50001, 50002, 50004])
def test_declared_sizes(swath: Swath, folder: Path, compression: int) -> None:
    for what, tags in DECLARED.items():
        given: dict[int, tuple[int, int, Sequence[int]]] = {
            tag[0]: tag
            for tag in (
                (258, 3, [8]), (259, 3, [compression]), (262, 3, [1]), (277, 3, [1]), (322, 4, [256]), (323, 4, [256]),
                (325, 16, [10]), *tags,
            )
        }  # fmt: skip
        path = tiff(folder / "declared.tif", list(given.values()), bytes(10))
        check(swath.dump_run(path, folder / "never.npy"), path)
        run = swath.run("info", path)
        run.check_alive()
        assert run.peak <= LITTLE, (what, run.peak)
    record("R5", f"declared sizes, compression {compression}", len(DECLARED), len(DECLARED), 0)


def test_byte_counts(swath: Swath, folder: Path) -> None:
    """R6: wrong lengths of tiles."""
    tile = zlib.compress(bytes(256 * 256), 9)
    base = [
        (256, 4, [512]),
        (257, 4, [512]),
        (258, 3, [8]),
        (262, 3, [1]),
        (277, 3, [1]),
        (322, 4, [256]),
        (323, 4, [256]),
    ]
    counts = {
        "nothing, which is a tile of no data": [0] * 4,
        "one byte": [1] * 4,
        "beyond the end": [len(tile) + 1000] * 4,
        "2^32 - 1": [2**32 - 1] * 4,
        "2^64 - 1": [2**64 - 1] * 4,
        "a sum that overflows": [2**63] * 4,
        "too few": [len(tile)],
    }
    tries = 0
    for compression in (1, 8):
        for what, values in counts.items():
            path = folder / "counts.tif"
            tags = [*base, (259, 3, [compression]), (325, 16, values)]
            tiff(path, tags, tile, offsets=[400] * 4)
            run = swath.dump_run(path, folder / "never.npy")
            run.check_alive()
            assert run.peak <= LITTLE and run.seconds < 5, (what, run.peak)
            assert run.code == 2 or values == [0] * 4, f"{what}: {compression}"
            tries += 1
    record("R6", "byte counts of tiles that are not theirs", tries, tries, 0)


def test_a_chain_of_a_million_directories(swath: Swath, folder: Path) -> None:
    """R7: the chain is walked up to the limit, and no further."""
    count = 1_000_000
    entries = [(256, 4, 1, 8), (257, 4, 1, 8), (258, 3, 1, 8), (259, 3, 1, 1), (262, 3, 1, 1), (273, 4, 1, 8),
               (277, 3, 1, 1), (278, 4, 1, 8), (279, 4, 1, 64)]  # fmt: skip
    directory = struct.pack("<H", len(entries)) + b"".join(struct.pack("<HHII", *entry) for entry in entries)
    size = len(directory) + 4
    first = 8 + 64
    starts = first + size * np.arange(1, count + 1, dtype="<u4")
    starts[-1] = 0
    table = np.empty((count, size), "u1")
    table[:, :-4] = np.frombuffer(directory, "u1")
    table[:, -4:] = starts.view("u1").reshape(count, 4)
    path = folder / "chain.tif"
    path.write_bytes(struct.pack("<2sHI", b"II", 42, first) + bytes(64) + table.tobytes())
    for command in (["info", path], ["validate", path], ["dump", path, "--out", folder / "out.npy"]):
        run = swath.run(*command)
        run.check_alive()
        assert run.peak <= 2 * LITTLE and run.seconds < 10, (command[0], run.peak / MIB, run.seconds)
    record("R7", "a chain of a million directories", 3, 3, 0)


@pytest.mark.parametrize("path", sorted((CORPUS / "bad" / "directory").glob("*.tif")), ids=lambda path: path.name)
def test_directories(swath: Swath, path: Path) -> None:
    for command in (["info", path], ["validate", path], ["dump", path, "--out", "/dev/null"]):
        run = swath.run(*command)
        run.check_alive()
        assert run.peak <= LITTLE and run.seconds < 5, (command[0], run.peak, run.seconds)
    record("R7", path.name, 3, 3, 0)


def test_tiles_that_share_their_bytes(swath: Swath, folder: Path) -> None:
    """R8: the size of the file bounds the work, however often its bytes are referenced."""
    tile = zlib.compress(bytes(512 * 512), 9)
    tries = 0
    for across, refused in ((64, False), (512, True)):
        side = across * 512
        tags = [
            (256, 4, [side]), (257, 4, [side]), (258, 3, [8]), (259, 3, [8]), (262, 3, [1]), (277, 3, [1]),
            (322, 4, [512]), (323, 4, [512]), (325, 16, [len(tile)] * across**2),
        ]  # fmt: skip
        path = tiff(folder / "shared.tif", tags, tile, offsets=[16] * across**2)
        content = path.read_bytes()
        place = len(content) - len(tile)
        # All offsets name the one tile.
        path.write_bytes(content.replace(struct.pack("<Q", 16) * across**2, struct.pack("<Q", place) * across**2))
        run = swath.dump_run(path, folder / "out.npy", timeout=120)
        run.check_alive()
        assert run.ok != refused, run.stderr
        assert run.peak <= (LITTLE if refused else LITTLE + side * side), run.peak / MIB
        (folder / "out.npy").unlink(missing_ok=True)
        tries += 1
    record("R8", "tiles that share one extent", tries, tries, 0)
