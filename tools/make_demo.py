#!/usr/bin/env python3
"""Makes a realistic elevation raster with nothing but the standard library.

Fractal terrain as 32-bit floats rounded to 1 cm, lakes left out as nodata, in 512 x 512 tiles with predictor 3 and
deflate, overviews down to one tile, UTM 33N: like a digital elevation model from a national agency, in the
cloud-optimised layout (directories first, then the tiles of the smallest overview up to those of the full image).
"""

from __future__ import annotations

import argparse
import random
import struct
import sys
import time
import zlib
from array import array
from pathlib import Path

Rows = list[list[float]]

NODATA = -9999.0
TILE = 512
ORIGIN = (399960.0, 5300040.0)
PIXEL = 10.0


def terrain(size: int, seed: int) -> Rows:
    """Doubles a coarse grid until it is big enough, adding noise that shrinks by less than half each time (1/f²)."""
    rng = random.Random(seed)
    # Drawing one random number a pixel would be most of the run time: slices of one table look just as random.
    table = [rng.gauss(0.0, 1.0) for _ in range(1 << 15)]
    side, amplitude = 6, 900.0
    grid: Rows = [[rng.gauss(1200.0, amplitude) for _ in range(side)] for _ in range(side)]
    while side < size:
        amplitude *= 0.47
        side = 2 * side - 2
        # Two points at a quarter and three quarters between each two: slopes change without a crease.
        wide: Rows = []
        for row in grid:
            doubled = [0.0] * side
            doubled[::2] = [a * 0.75 + b * 0.25 for a, b in zip(row, row[1:])]
            doubled[1::2] = [a * 0.25 + b * 0.75 for a, b in zip(row, row[1:])]
            wide.append(doubled)
        grid = []
        for row, next_row in zip(wide, wide[1:]):
            grid.append([a * 0.75 + b * 0.25 for a, b in zip(row, next_row)])
            grid.append([a * 0.25 + b * 0.75 for a, b in zip(row, next_row)])
        for index, row in enumerate(grid):
            start = rng.randrange(len(table) - side) if side < len(table) else 0
            grid[index] = [v + amplitude * n for v, n in zip(row, table[start : start + side])]
    # Rounded to the centimetre, as surveyed heights are; below the lake level there is no ground to measure.
    ground = [[int(v * 100.0) / 100.0 if v > 0.0 else 0.0 for v in row[:size]] for row in grid[:size]]
    lake = sorted(v for row in ground[::16] for v in row[::16])[size * size // 256 // 14]
    return [[v if v > lake else NODATA for v in row] for row in ground]


def halve(rows: Rows) -> Rows:
    """The next overview: means of 2 x 2, over the pixels that are ground."""
    out: Rows = []
    for upper, lower in zip(rows[::2], rows[1::2]):
        line: list[float] = []
        for a, b, c, d in zip(upper[::2], upper[1::2], lower[::2], lower[1::2]):
            if a != NODATA and b != NODATA and c != NODATA and d != NODATA:
                line.append((a + b + c + d) * 0.25)
            else:
                ground = [v for v in (a, b, c, d) if v != NODATA]
                line.append(sum(ground) / len(ground) if ground else NODATA)
        out.append(line)
    return out


def encode_tile(rows: Rows) -> bytes:
    """Predictor 3 (the four bytes of the floats apart, high ones first, then differences), then deflate."""
    out = bytearray()
    for row in rows:
        values = array("f", row)
        if sys.byteorder == "little":
            values.byteswap()
        raw = values.tobytes()
        planes = raw[0::4] + raw[1::4] + raw[2::4] + raw[3::4]
        out.append(planes[0])
        out += bytes([(b - a) & 255 for a, b in zip(planes, planes[1:])])
    return zlib.compress(bytes(out), 6)


def encode_level(rows: Rows) -> list[bytes]:
    size = len(rows)
    tiles: list[bytes] = []
    for y in range(0, size, TILE):
        band = [row + [0.0] * (-len(row) % TILE) for row in rows[y : y + TILE]]
        band += [[0.0] * len(band[0])] * (TILE - len(band))
        tiles += [encode_tile([row[x : x + TILE] for row in band]) for x in range(0, len(band[0]), TILE)]
    return tiles


METADATA = """<GDALMetadata>
  <Item name="TITLE">Fractal terrain, made by the swath demo</Item>
  <Item name="DESCRIPTION" sample="0" role="description">elevation</Item>
  <Item name="UNITTYPE" sample="0" role="unittype">m</Item>
</GDALMetadata>
"""

SHORT, LONG, ASCII, DOUBLE = 3, 4, 2, 12
FORMATS = {SHORT: "H", LONG: "I", DOUBLE: "d"}


def pack(kind: int, values: bytes | list[int] | list[float]) -> tuple[int, bytes]:
    """The count and bytes of a tag's value."""
    if isinstance(values, bytes):
        return len(values) + 1, values + b"\0"
    return len(values), struct.pack(f"<{len(values)}{FORMATS[kind]}", *values)


def tags(level: int, size: int, offsets: list[int], counts: list[int]) -> list[tuple[int, int, bytes | list]]:
    """A directory's tags, in the order that the format demands."""
    found: list[tuple[int, int, bytes | list]] = [
        (254, LONG, [1 if level else 0]),
        (256, LONG, [size]),
        (257, LONG, [size]),
        (258, SHORT, [32]),
        (259, SHORT, [8]),
        (262, SHORT, [1]),
        (277, SHORT, [1]),
        (284, SHORT, [1]),
        (317, SHORT, [3]),
        (322, SHORT, [TILE]),
        (323, SHORT, [TILE]),
        (324, LONG, offsets),
        (325, LONG, counts),
        (339, SHORT, [3]),
    ]
    if level == 0:
        found += [
            (33550, DOUBLE, [PIXEL, PIXEL, 0.0]),
            (33922, DOUBLE, [0.0, 0.0, 0.0, *ORIGIN, 0.0]),
            # Version 1.1.0, three keys: projected, pixel is area, EPSG:32633.
            (34735, SHORT, [1, 1, 0, 3, 1024, 0, 1, 1, 1025, 0, 1, 1, 3072, 0, 1, 32633]),
            (42112, ASCII, METADATA.encode()),
        ]
    return [*found, (42113, ASCII, b"-9999")]


def directories(levels: list[tuple[int, list[int], list[int]]]) -> bytes:
    """Header and all directories, each followed by the values too long for their entries."""
    out = bytearray(struct.pack("<2sHI", b"II", 42, 8))
    for level, (size, offsets, counts) in enumerate(levels):
        entries = tags(level, size, offsets, counts)
        table, apart = bytearray(), bytearray()
        apart_at = len(out) + 2 + 12 * len(entries) + 4
        for tag, kind, values in entries:
            count, payload = pack(kind, values)
            if len(payload) <= 4:
                field = payload.ljust(4, b"\0")
            else:
                field = struct.pack("<I", apart_at + len(apart))
                apart += payload + b"\0" * (len(payload) % 2)
            table += struct.pack("<HHI", tag, kind, count) + field
        following = apart_at + len(apart) if level + 1 < len(levels) else 0
        out += struct.pack("<H", len(entries)) + table + struct.pack("<I", following) + apart
    return bytes(out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--size", type=int, default=2048, help="rows and columns, a power of two (default 2048)")
    parser.add_argument("--seed", type=int, default=33)
    args = parser.parse_args()

    started = time.perf_counter()
    rows = terrain(args.size, args.seed)
    images = [rows]
    while len(images[-1]) > TILE:
        images.append(halve(images[-1]))
    encoded = [encode_level(image) for image in images]

    # The directories' length does not depend on the numbers in them, so a first pass with zeros gives the positions.
    counts = [[len(tile) for tile in tiles] for tiles in encoded]
    blank = [(len(image), [0] * len(c), c) for image, c in zip(images, counts)]
    position = len(directories(blank))
    offsets: list[list[int]] = [[] for _ in images]
    for level in reversed(range(len(images))):
        for tile in encoded[level]:
            offsets[level].append(position)
            position += len(tile)
    head = directories([(len(image), o, c) for image, o, c in zip(images, offsets, counts)])
    args.out.parent.mkdir(parents=True, exist_ok=True)
    with args.out.open("wb") as file:
        file.write(head)
        for tiles in reversed(encoded):
            file.writelines(tiles)
    elapsed = time.perf_counter() - started
    print(f"{args.out}: {args.size} x {args.size}, {len(images) - 1} overviews, {position:,} bytes, {elapsed:.1f} s")


if __name__ == "__main__":
    main()
