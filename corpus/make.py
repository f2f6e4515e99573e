#!/usr/bin/env python3
"""Makes the project's own fixtures: corpus/good, corpus/bad/<cause> and corpus/MANIFEST.json.

Sound files come from rasterio (GDAL) and tifffile, one per feature or combination worth pinning; the values to expect
are those that were written, or, for lossy codecs, those that GDAL reads back. Hostile files are assembled byte by byte,
since no sound writer would make them. Nothing here is random from run to run.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import shutil
import struct
import sys
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
MANIFEST = HERE / "MANIFEST.json"

# The expected outcome of a fixture. "either" is for damage that leaves the first image intact: its values, or an error,
# never other values.
DECODES, CLOSE, REFUSED, EITHER = "decodes", "decodes within tolerance", "refused", "decodes as stated or is refused"

# --------------------------------------------------------------------------------------------------- a low-level writer

BYTE, ASCII, SHORT, LONG, RATIONAL, SBYTE, UNDEFINED, SSHORT, SLONG, SRATIONAL, FLOAT, DOUBLE = range(1, 13)
IFD, LONG8, SLONG8, IFD8 = 13, 16, 17, 18
CODES = {
    BYTE: "B", ASCII: "B", SHORT: "H", LONG: "I", SBYTE: "b", UNDEFINED: "B", SSHORT: "h", SLONG: "i", FLOAT: "f",
    DOUBLE: "d", IFD: "I", LONG8: "Q", SLONG8: "q", IFD8: "Q",
}  # fmt: skip

Entry = tuple[int, int, Any] | tuple[int, int, Any, int]


class Tiff:
    """A TIFF assembled by hand: any tag, any type, any count, true or not."""

    def __init__(self, order: str = "<", big: bool = False) -> None:
        self.order, self.big = order, big
        mark = b"II" if order == "<" else b"MM"
        self.out = bytearray(mark + (self._p("HHHQ", 43, 8, 0, 0) if big else self._p("HI", 42, 0)))
        self.link = 8 if big else 4

    def _p(self, code: str, *values: Any) -> bytes:
        return struct.pack(self.order + code, *values)

    def data(self, payload: bytes) -> int:
        """Appends bytes and returns their offset."""
        if len(self.out) % 2:
            self.out.append(0)
        self.out += payload
        return len(self.out) - len(payload)

    def values(self, kind: int, values: Any) -> tuple[int, bytes]:
        if isinstance(values, bytes):
            return len(values), values
        values = list(values) if isinstance(values, list | tuple) else [values]
        return len(values), self._p(f"{len(values)}{CODES[kind]}", *values)

    def ifd(self, entries: list[Entry], chain: bool = True, sort: bool = True) -> int:
        """Appends a directory and links it to the chain. An entry's fourth item overrides its count."""
        inline, count_code = (8, "Q") if self.big else (4, "I")
        fields = []
        for entry in sorted(entries, key=lambda e: e[0]) if sort else entries:
            tag, kind, values = entry[:3]
            count, payload = self.values(kind, values)
            if len(payload) <= inline:
                field = payload.ljust(inline, b"\0")
            else:
                field = self._p(count_code, self.data(payload))
            fields.append(self._p("HH" + count_code, tag, kind, entry[3] if len(entry) > 3 else count) + field)
        body = self._p("Q" if self.big else "H", len(fields)) + b"".join(fields)
        at = self.data(body + self._p(count_code, 0))
        if chain:
            self.patch(self.link, at)
            self.link = at + len(body)
        return at

    def patch(self, at: int, offset: int) -> None:
        """Overwrites a link with an offset."""
        raw = self._p("Q" if self.big else "I", offset)
        self.out[at : at + len(raw)] = raw

    def bytes(self) -> bytes:
        return bytes(self.out)


def image(width: int, height: int, offset: Any, count: Any, **changed: Any) -> list[Entry]:
    """The tags of a plain 8-bit grey image in strips; `t259=8` changes a value, `t259=None` drops the tag."""
    tags: dict[int, Entry] = {
        256: (256, LONG, width),
        257: (257, LONG, height),
        258: (258, SHORT, 8),
        259: (259, SHORT, 1),
        262: (262, SHORT, 1),
        273: (273, LONG, offset),
        277: (277, SHORT, 1),
        278: (278, LONG, height),
        279: (279, LONG, count),
    }
    for name, value in changed.items():
        tag = int(name[1:])
        if value is None:
            tags.pop(tag, None)
        elif isinstance(value, tuple):
            tags[tag] = (tag, *value)  # type: ignore[assignment]
        else:
            kind = tags[tag][1] if tag in tags else SHORT
            tags[tag] = (tag, kind, value)
    return list(tags.values())


def tiled(width: int, height: int, tile: int, offsets: Any, counts: Any, **changed: Any) -> list[Entry]:
    return image(
        width, height, 0, 0, t273=None, t278=None, t279=None, t322=(LONG, tile), t323=(LONG, tile),
        t324=(LONG, offsets), t325=(LONG, counts), **changed,
    )  # fmt: skip


def ramp(n: int) -> bytes:
    return bytes(i * 7 % 251 for i in range(n))


# ------------------------------------------------------------------------------------------------------- hostile files


class Bad:
    """One hostile file, its cause, and the expected outcome."""

    def __init__(self, name: str, content: bytes, expect: str, words: str = "", pixels: bytes | None = None,
                 shape: tuple[int, int, int] | None = None) -> None:  # fmt: skip
        self.name, self.content, self.expect, self.words = name, content, expect, words
        self.pixels, self.shape = pixels, shape


def bad_files() -> list[Bad]:
    found: list[Bad] = []

    def refuse(name: str, content: bytes, words: str) -> None:
        found.append(Bad(name, content, REFUSED, words))

    def either(name: str, content: bytes, pixels: bytes, shape: tuple[int, int, int]) -> None:
        found.append(Bad(name, content, EITHER, "", pixels, shape))

    # Header.
    refuse("header/empty.tif", b"", "too short|empty|truncated|header|byte")
    refuse("header/four-bytes.tif", b"II*\0", "too short|truncated|header|end")
    refuse(
        "header/text.tif", b"This is not a TIFF file at all, it only has the name.\n", "TIFF|magic|byte order|header"
    )
    refuse("header/magic-44.tif", struct.pack("<2sHIQ", b"II", 44, 8, 0), "magic|version|44|TIFF")
    refuse("header/mixed-order.tif", b"IM*\0\x08\0\0\0" + bytes(32), "order|magic|TIFF|header")
    refuse("header/big-offset-size-4.tif", struct.pack("<2sHHHQ", b"II", 43, 4, 0, 16) + bytes(64), "offset|size|8")
    refuse("header/ifd-at-zero.tif", struct.pack("<2sHI", b"II", 42, 0) + bytes(64), "IFD|directory|image")
    refuse("header/ifd-past-end.tif", struct.pack("<2sHI", b"II", 42, 4096) + bytes(64), "end|IFD|directory|past")
    refuse("header/ifd-at-last-byte.tif", struct.pack("<2sHI", b"II", 42, 71) + bytes(64), "end|IFD|directory|past")
    refuse("header/ifd-no-entries.tif", struct.pack("<2sHI", b"II", 42, 8) + bytes(64), "IFD|empty|entries|tag|width")
    refuse(
        "header/big-ifd-2e63.tif",
        struct.pack("<2sHHHQ", b"II", 43, 8, 0, 1 << 63) + bytes(64),
        "end|IFD|directory|past",
    )
    refuse(
        "header/big-entries-2e60.tif",
        struct.pack("<2sHHHQQ", b"II", 43, 8, 0, 16, 1 << 60) + bytes(64),
        "entries|end|limit|IFD|directory",
    )

    # Directories with bad links. The first image is intact, so its values may be returned.
    pixels, shape = ramp(64), (1, 8, 8)

    def small(**changed: Any) -> tuple[Tiff, int]:
        tiff = Tiff()
        at = tiff.data(pixels)
        return tiff, tiff.ifd(image(8, 8, at, 64, **changed))

    tiff, at = small()
    tiff.patch(tiff.link, at)
    either("directory/self-loop.tif", tiff.bytes(), pixels, shape)
    tiff, first = small()
    for _ in range(3):
        tiff.ifd(image(8, 8, 8, 64))
    tiff.patch(tiff.link, first)
    either("directory/long-loop.tif", tiff.bytes(), pixels, shape)
    tiff, _ = small()
    for _ in range(20_000):
        tiff.ifd([(254, LONG, 1), (256, SHORT, 1), (257, SHORT, 1)])
    either("directory/chain-20000.tif", tiff.bytes(), pixels, shape)
    tiff, _ = small()
    tiff.patch(tiff.link, 1 << 30)
    either("directory/next-past-end.tif", tiff.bytes(), pixels, shape)
    tiff = Tiff()
    data = tiff.data(pixels)
    at = tiff.ifd([*image(8, 8, data, 64), (330, IFD, 0)])
    entry = tiff.out.index(struct.pack("<HHI", 330, IFD, 1), at)
    tiff.patch(entry + 8, at)
    either("directory/subifd-loop.tif", tiff.bytes(), pixels, shape)
    tiff = Tiff()
    data = tiff.data(pixels)
    tiff.ifd([*image(8, 8, data, 64), (330, IFD, [1 << 30] * 1000)])
    either("directory/subifds-past-end.tif", tiff.bytes(), pixels, shape)
    tiff = Tiff()
    data = tiff.data(pixels)
    tiff.ifd([*image(8, 8, data, 64), (330, IFD, data, 0x7FFFFFFF)])
    either("directory/subifd-count-2e31.tif", tiff.bytes(), pixels, shape)

    # Tags.
    tiff = Tiff()
    data = tiff.data(pixels)
    tiff.ifd([*image(8, 8, data, 64), (256, LONG, 4)])
    either("tags/duplicate-width.tif", tiff.bytes(), pixels, shape)
    tiff = Tiff()
    data = tiff.data(pixels)
    tiff.ifd(list(reversed(image(8, 8, data, 64))), sort=False)
    either("tags/unsorted.tif", tiff.bytes(), pixels, shape)
    for name, changed, words in (
        ("width-missing", {"t256": None}, "width|256"),
        ("height-missing", {"t257": None}, "height|length|257"),
        ("offsets-missing", {"t273": None}, "offset|273|324"),
        ("width-zero", {"t256": 0}, "width|zero|0"),
        ("height-zero", {"t257": 0}, "height|length|zero|0"),
        ("width-ascii", {"t256": (ASCII, b"eight\0")}, "width|type|256"),
        ("width-float-nan", {"t256": (FLOAT, math.nan)}, "width|type|256"),
        ("width-negative", {"t256": (SLONG, -8)}, "width|negative|256"),
        ("bits-zero", {"t258": 0}, "bits|258|depth"),
        ("bits-1000", {"t258": 1000}, "bits|258|depth|1000"),
        ("samples-zero", {"t277": 0}, "samples|277|band"),
        ("compression-unknown", {"t259": 31337}, "compression|31337"),
        ("compression-jbig", {"t259": 34661}, "JBIG|compression|34661"),
        ("predictor-77", {"t259": 8, "t317": (SHORT, 77)}, "predictor|77"),
        ("planar-9", {"t284": (SHORT, 9)}, "planar|284|9"),
        ("sample-format-99", {"t339": (SHORT, 99)}, "sample.?format|339|99"),
        ("offsets-past-end", {"t273": 1 << 30}, "end|past|offset"),
        ("offsets-count-2e32", {"t273": (LONG, 8, 0xFFFFFFFF)}, "end|count|limit|past|offset"),
        ("bits-count-2e31", {"t258": (SHORT, 8, 0x7FFFFFFF)}, "end|count|limit|past|bits"),
    ):
        tiff, _ = small(**changed)
        refuse(f"tags/{name}.tif", tiff.bytes(), words)
    # Without compression the sizes alone give the length, and libtiff uses that: its values or a refusal.
    for name, count in (("past-end", 1 << 30), ("ffffffff", 0xFFFFFFFF), ("one", 1)):
        tiff, _ = small(t279=count)
        either(f"tags/counts-{name}.tif", tiff.bytes(), pixels, shape)
    tiff, _ = small(t278=0)
    either("tags/rows-per-strip-zero.tif", tiff.bytes(), pixels, shape)
    tiff, _ = small(t278=0xFFFFFFFF)
    either("tags/rows-per-strip-max.tif", tiff.bytes(), pixels, shape)
    tiff = Tiff()
    data = tiff.data(pixels)
    tiff.ifd(tiled(8, 8, 0, data, 64))
    refuse("tags/tile-size-zero.tif", tiff.bytes(), "tile|zero|0")
    tiff = Tiff()
    data = tiff.data(ramp(256))
    tiff.ifd(tiled(64, 64, 16, [data], [256]))
    # GDAL treats the 15 tiles that the table lacks as sparse.
    first = b"".join(ramp(256)[r * 16 : r * 16 + 16].ljust(64, b"\0") for r in range(16))
    either("tags/tile-table-short.tif", tiff.bytes(), first.ljust(4096, b"\0"), (1, 64, 64))
    tiff = Tiff(big=True)
    data = tiff.data(pixels)
    tiff.ifd(image(8, 8, 0, 0, t273=(LONG8, (1 << 64) - 1), t279=(LONG8, (1 << 64) - 1)))
    refuse("tags/offset-and-count-2e64.tif", tiff.bytes(), "end|past|overflow|offset")
    tiff = Tiff(big=True)
    data = tiff.data(pixels)
    tiff.ifd(image(8, 8, 0, 0, t273=(LONG8, data), t279=(LONG8, (1 << 63) + 1)))
    either("tags/count-2e63.tif", tiff.bytes(), pixels, shape)
    tiff = Tiff()
    data = tiff.data(ramp(64 * 4))
    tiff.ifd(image(8, 8, data, 256, t258=(SHORT, [8, 16, 8, 8]), t277=4))
    refuse("tags/bits-differ.tif", tiff.bytes(), "bits|depth|differ|mixed|unsupported")

    # Sizes that a few bytes declare.
    for name, width, height, extra in (
        ("4-billion-pixels", 65_536, 65_535, {}),
        ("2e31-square", 1 << 31, 1 << 31, {}),
        ("2e32-square", 0xFFFFFFFF, 0xFFFFFFFF, {}),
        ("2e31-f64", (1 << 31) - 1, (1 << 31) - 1, {"t258": 64, "t339": (SHORT, 3)}),
        ("65535-bands", 60_000, 60_000, {"t277": 65_535}),
    ):
        tiff = Tiff()
        data = tiff.data(pixels)
        tiff.ifd(image(width, height, data, 64, **extra))
        refuse(f"size/{name}.tif", tiff.bytes(), "limit|large|end|past|short|overflow|bytes|bits")
    tiff = Tiff()
    data = tiff.data(pixels)
    tiff.ifd(tiled(1 << 31, 1 << 31, 16, [data, data], [64, 64]))
    refuse("size/1e15-tiles.tif", tiff.bytes(), "limit|tile|overflow|entries|count|bytes|large")
    tiff = Tiff()
    data = tiff.data(pixels)
    tiff.ifd(tiled(64, 64, 0xFFFFFFF0, data, 64))
    refuse("size/tile-2e32.tif", tiff.bytes(), "limit|tile|overflow|short|bytes")
    tiff = Tiff()
    data = tiff.data(zlib.compress(bytes(4096)))
    tiff.ifd(tiled(100_000, 100_000, 65_536, [data] * 4, [32] * 4, t259=8, t258=64, t339=(SHORT, 3)))
    refuse("size/80-gb-deflate.tif", tiff.bytes(), "limit|large|bytes|short|end")

    # Streams.
    def stream(name: str, payload: bytes, words: str, width: int = 64, height: int = 64, **changed: Any) -> None:
        tiff = Tiff()
        data = tiff.data(payload)
        tiff.ifd(image(width, height, data, len(payload), **changed))
        refuse(f"stream/{name}.tif", tiff.bytes(), words)

    sound = zlib.compress(ramp(4096), 9)
    stream("deflate-bad-adler", sound[:-1] + bytes([sound[-1] ^ 1]), "deflate|checksum|adler|zlib|corrupt", t259=8)
    stream("deflate-cut", sound[: len(sound) // 2], "deflate|short|zlib|truncated|corrupt|end", t259=8)
    stream("deflate-short", zlib.compress(ramp(4000)), "deflate|short|4096|bytes", t259=8)
    stream("deflate-garbage", ramp(300), "deflate|zlib|corrupt|bad|invalid", t259=8)
    stream("deflate-empty", b"", "deflate|short|empty|byte|zero|sparse", t259=8, t279=1)
    # A stream that expands a thousandfold under a small image: its output must never be held in memory.
    tiff = Tiff()
    packed = zlib.compress(bytes(64 << 20), 9)
    data = tiff.data(packed)
    tiff.ifd(image(64, 64, data, len(packed), t259=8))
    either("stream/deflate-bomb.tif", tiff.bytes(), bytes(4096), (1, 64, 64))
    import imagecodecs

    tiff = Tiff()
    packed = imagecodecs.zstd_encode(bytes(64 << 20), level=3)
    data = tiff.data(packed)
    tiff.ifd(image(64, 64, data, len(packed), t259=50000))
    either("stream/zstd-bomb.tif", tiff.bytes(), bytes(4096), (1, 64, 64))
    stream("lzw-garbage", bytes(range(1, 256)) * 4, "LZW", t259=5)
    stream("lzw-no-clear", b"\x00\x01\x02\x03" * 8, "LZW", t259=5)
    stream("lzw-cut", b"\x80\x00", "LZW|short", t259=5)
    stream("packbits-cut", b"\x7f" + ramp(3), "PackBits|short|end", t259=32773)
    stream("packbits-literal-past-end", b"\x81\x00" * 31 + b"\x40\x00", "PackBits|short|end", t259=32773)
    tiff = Tiff()
    data = tiff.data(ramp(4095))
    tiff.ifd(image(64, 64, data, 4095))
    either("stream/none-short.tif", tiff.bytes(), ramp(4095) + b"\0", (1, 64, 64))
    stream("jpeg-garbage", b"\xff\xd8" + ramp(600), "JPEG", t259=7)
    stream("jpeg-empty-scan", b"\xff\xd8\xff\xd9", "JPEG", t259=7)
    stream("lzma-garbage", b"\xfd7zXZ\0" + ramp(100), "LZMA|xz", t259=34925)
    stream("zstd-garbage", struct.pack("<I", 0xFD2FB528) + ramp(100), "zstd", t259=50000)
    stream("zstd-skippable-only", struct.pack("<II", 0x184D2A50, 8) + bytes(8), "zstd|short", t259=50000)
    stream("webp-garbage", b"RIFF\xff\xff\xff\x7fWEBPVP8L" + ramp(100), "webp", t259=50001)
    stream("lerc-garbage", b"Lerc2 " + ramp(100), "lerc", t259=34887)
    stream("jp2-garbage", b"\xff\x4f\xff\x51" + ramp(100), "JPEG.?2000|JP2|codestream", t259=34712)
    stream("jxl-garbage", b"\xff\x0a" + ramp(100), "JPEG.?XL|jxl", t259=50002)
    stream("g4-garbage", bytes(40), "CCITT|fax|T\\.?6|G4|short", t259=4, t258=1)
    stream("old-jpeg", ramp(100), "JPEG|compression|6", t259=6)

    # Tiles that share their bytes: a stated amount of work, or a refusal; never other values.
    tiff = Tiff()
    data = tiff.data(ramp(256))
    tiff.ifd(tiled(64, 64, 16, [data] * 16, [256] * 16))
    row = b"".join(ramp(256)[r * 16 : r * 16 + 16] * 4 for r in range(16))
    either("overlap/all-tiles-one-extent.tif", tiff.bytes(), row * 4, (1, 64, 64))
    tiff = Tiff()
    # 16,384 tiles of 1 MiB each from one 1 KiB stream: 16 GiB of work declared by 130 KiB.
    packed = zlib.compress(bytes(1 << 20), 9)
    data = tiff.data(packed)
    tiff.ifd(tiled(131_072, 131_072, 1024, [data] * 16_384, [len(packed)] * 16_384, t259=8))
    refuse("overlap/16-gib-from-one-tile.tif", tiff.bytes(), "limit|large|bytes|overlap|share")

    # Texts and geokeys. The image is intact; the text is refused or ignored, and nothing is expanded or fetched.
    bomb = b'<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a "aaaaaaaaaa">' + b"".join(
        f'<!ENTITY {chr(98 + i)} "{f"&{chr(97 + i)};" * 10}">'.encode() for i in range(10)
    )
    texts = {
        "xml-entity-bomb": bomb + b"]><GDALMetadata><Item name='k'>&k;</Item></GDALMetadata>\0",
        "xml-external-entity": b"<!DOCTYPE x [<!ENTITY e SYSTEM 'file:///etc/passwd'>]>"
        b"<GDALMetadata><Item name='k'>&e;</Item></GDALMetadata>\0",
        "xml-deep": b"<GDALMetadata>" + b"<Item>" * 20_000 + b"\0",
        "xml-cut": b"<GDALMetadata><Item name='k\0",
        "xml-huge-attribute": b"<GDALMetadata><Item name='" + b"k" * (4 << 20) + b"'>v</Item></GDALMetadata>\0",
        "xml-not-utf8": b"<GDALMetadata><Item name='k'>\xff\xfe\x80</Item></GDALMetadata>\0",
    }
    for name, text in texts.items():
        tiff, _ = small(t42112=(ASCII, text))
        either(f"text/{name}.tif", tiff.bytes(), pixels, shape)
    for name, keys in {
        "count-past-end": [1, 1, 0, 60_000, 1024, 0, 1, 1],
        "ascii-past-end": [1, 1, 0, 1, 1026, 34737, 60_000, 60_000],
        "refers-to-itself": [1, 1, 0, 2, 1024, 34735, 1, 4, 3072, 34735, 4, 0],
        "refers-to-pixels": [1, 1, 0, 1, 3072, 273, 1, 0],
        "version-9": [9, 9, 9, 1, 1024, 0, 1, 1],
        "code-65535": [1, 1, 0, 2, 1024, 0, 1, 1, 3072, 0, 1, 65_535],
        "odd-length": [1, 1, 0],
        "empty-keys": [1, 1, 0, 0],
    }.items():
        tiff, _ = small(t34735=(SHORT, keys), t34737=(ASCII, b"short|\0"))
        either(f"geokeys/{name}.tif", tiff.bytes(), pixels, shape)
    for name, scale, tie in (
        ("scale-nan", [math.nan] * 3, [0.0] * 6),
        ("scale-zero", [0.0] * 3, [0.0] * 6),
        ("tiepoints-cut", [1.0, 1.0, 0.0], [0.0, 0.0, 0.0]),
        ("tiepoints-inf", [1.0, 1.0, 0.0], [math.inf] * 6),
    ):
        tiff, _ = small(t33550=(DOUBLE, scale), t33922=(DOUBLE, tie))
        either(f"geokeys/{name}.tif", tiff.bytes(), pixels, shape)
    tiff, _ = small(t34737=(ASCII, b"x" * (2 << 20) + b"|\0"), t34735=(SHORT, [1, 1, 0, 1, 1026, 34737, 65_535, 0]))
    either("geokeys/huge-citation.tif", tiff.bytes(), pixels, shape)
    tiff, _ = small(t42113=(ASCII, b"not a number\0"))
    either("text/nodata-words.tif", tiff.bytes(), pixels, shape)
    tiff, _ = small(t42113=(ASCII, b"9" * 5000 + b"\0"))
    either("text/nodata-5000-digits.tif", tiff.bytes(), pixels, shape)

    # Cuts, in structures and in pixels; each lacks a byte that the first image needs.
    tiff = Tiff()
    ifd_first = Tiff()
    ifd_first.ifd(image(8, 8, 200, 64))
    whole = ifd_first.bytes().ljust(200, b"\0") + pixels
    for cut in (3, 7, 9, 20, 60, 130, 199, 200, 201, 263):
        refuse(f"cut/at-{cut:03}.tif", whole[:cut], "end|short|truncated|past|TIFF|IFD|header|byte")
    return found


# --------------------------------------------------------------------------------------------------------- sound files


def noise(shape: tuple[int, int, int], dtype: str, seed: int) -> Any:
    """Values that use the whole range of the type, smooth in part so that predictors and codecs have work to do."""
    import numpy as np

    rng = np.random.default_rng(seed)
    bands, rows, columns = shape
    y, x = np.mgrid[0:rows, 0:columns]
    smooth = np.stack([np.sin(x / (3 + b)) + np.cos(y / (5 + b)) + x * 0.02 for b in range(bands)])
    kind = np.dtype(dtype)
    if kind.kind in "iu":
        info = np.iinfo(kind)
        span = min(int(info.max) - int(info.min), 1 << 52)
        values = ((smooth - smooth.min()) / max(float(np.ptp(smooth)), 1e-9) * span * 0.4).astype("int64")
        out = (values + int(info.min) // 2 + rng.integers(0, 4, shape)).astype(kind)
        out.flat[:: 97 if out.size > 97 else 1] = info.max
        out.flat[-1] = info.min
        return out
    if kind.kind == "c":
        return (smooth + 1j * rng.normal(size=shape)).astype(kind)
    return (smooth * 100 + rng.normal(size=shape)).astype(kind)


class Good:
    """Collects the sound fixtures."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.rows: list[dict[str, Any]] = []

    def note(self, name: str, features: str, array: Any, expect: str = DECODES, **facts: Any) -> None:
        """Adds a file to the manifest; the array is bands x rows x columns, as it must be read."""
        import numpy as np

        native = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("="))
        row: dict[str, Any] = {
            "path": f"good/{name}",
            "features": features,
            "expect": expect,
            "dtype": str(native.dtype),
            "shape": list(native.shape),
            "crc32": f"{zlib.crc32(native.tobytes()):08x}",
        }
        if expect == CLOSE:
            np.save(self.folder / f"{name}.npy", native)
            row["reference"] = f"good/{name}.npy"
        row.update(facts)
        self.rows.append(row)

    def gdal(
        self,
        name: str,
        array: Any,
        features: str,
        expect: str = DECODES,
        after: Callable[[Any], None] | None = None,
        **profile: Any,
    ) -> Path:
        """Writes with rasterio; what GDAL then reports about the file becomes the expected facts."""
        import rasterio

        path = self.folder / name
        bands, rows, columns = array.shape
        options = {"driver": "GTiff", "dtype": str(array.dtype), "count": bands, "height": rows, "width": columns}
        with rasterio.open(path, "w", **{**options, **profile}) as out:
            out.write(array)
            if after:
                after(out)
        self.read_back(name, array, features, expect)
        return path

    def read_back(self, name: str, array: Any, features: str, expect: str = DECODES) -> None:
        import numpy as np
        import rasterio

        with rasterio.open(self.folder / name) as got:
            read = got.read()
            if expect == DECODES:
                # A fixture that GDAL itself does not read back as written would fix a wrong answer.
                same = read.dtype == array.dtype and np.array_equal(read, array, equal_nan=read.dtype.kind in "fc")
                if not same:
                    raise SystemExit(f"{name}: GDAL reads other values than were written")
            self.note(name, features, read, expect, **facts(got))

    def tifffile(self, name: str, array: Any, features: str, expect: str = DECODES, **options: Any) -> Path:
        """Writes with tifffile from bands first; for `planarconfig='contig'` it moves bands last."""
        import numpy as np
        import tifffile

        path = self.folder / name
        bands = array.shape[0]
        shaped = array[0] if bands == 1 else array
        if bands > 1 and options.get("planarconfig") == "contig":
            shaped = np.moveaxis(array, 0, -1)
        options.setdefault("photometric", "minisblack")
        tifffile.imwrite(path, np.ascontiguousarray(shaped), metadata=None, software=False, **options)
        self.note(name, features, array, expect)
        return path


def facts(dataset: Any) -> dict[str, Any]:
    """Facts that `info --json` must match, in plain JSON."""

    def number(value: float | None) -> float | str | None:
        return str(value) if value is not None and not math.isfinite(value) else value

    crs = dataset.crs
    epsg = crs.to_epsg(confidence_threshold=100) if crs else None
    return {
        "epsg": epsg,
        "has_crs": bool(crs),
        "transform": list(dataset.transform)[:6],
        "nodata": number(dataset.nodata),
        "descriptions": list(dataset.descriptions),
        "units": list(dataset.units),
        "scales": list(dataset.scales),
        "offsets": list(dataset.offsets),
        "colorinterp": [c.name for c in dataset.colorinterp],
        "overviews": dataset.overviews(1),
        "tags": dataset.tags(),
        "gcps": len(dataset.gcps[0]),
        "rpcs": dataset.rpcs is not None,
    }


# File layouts, used in turn so that each codec and dtype is combined with many of them without the full product.
LAYOUTS: list[dict[str, Any]] = [
    {"tiled": True, "blockxsize": 16, "blockysize": 16, "interleave": "pixel", "count": 1},
    {"blockysize": 7, "interleave": "pixel", "count": 3},
    {"tiled": True, "blockxsize": 32, "blockysize": 16, "interleave": "band", "count": 2, "BIGTIFF": "YES"},
    {"blockysize": 1, "interleave": "band", "count": 2, "ENDIANNESS": "BIG"},
    {"tiled": True, "blockxsize": 64, "blockysize": 64, "interleave": "pixel", "count": 4, "ENDIANNESS": "BIG"},
    {"blockysize": 50, "interleave": "pixel", "count": 1, "BIGTIFF": "YES", "ENDIANNESS": "BIG"},
]
DTYPES = (
    "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float32", "float64", "complex64",
    "complex128",
)  # fmt: skip
SIZES = ((37, 41), (50, 33), (1, 1), (64, 64), (5, 130), (130, 5))


def good_files(good: Good) -> None:
    import numpy as np
    import rasterio
    from rasterio.control import GroundControlPoint
    from rasterio.crs import CRS
    from rasterio.enums import ColorInterp, Resampling
    from rasterio.rpc import RPC
    from rasterio.transform import Affine

    # Codec x dtype, layouts and sizes in turn.
    turn = 0
    for codec in (None, "deflate", "lzw", "zstd", "packbits", "lzma"):
        for dtype in DTYPES:
            layout = dict(LAYOUTS[turn % len(LAYOUTS)])
            rows, columns = SIZES[(turn // 2) % len(SIZES)]
            count = layout.pop("count")
            good.gdal(
                f"codec-{codec or 'none'}-{dtype}.tif",
                noise((count, rows, columns), dtype, turn),
                f"{codec or 'none'} {dtype}, {count} bands, {layout}",
                **layout,
                **({"compress": codec} if codec else {}),
            )
            turn += 1
    # Predictors at every width they exist for.
    for codec in ("deflate", "lzw", "zstd"):
        for dtype in DTYPES:
            kind = np.dtype(dtype).kind
            if kind == "c":
                continue
            for predictor in (2, 3) if kind == "f" else (2,):
                layout = dict(LAYOUTS[turn % len(LAYOUTS)])
                count = layout.pop("count")
                good.gdal(
                    f"predictor{predictor}-{codec}-{dtype}.tif",
                    noise((count, 53, 47), dtype, turn),
                    f"{codec} predictor {predictor} {dtype}, {count} bands, {layout}",
                    compress=codec,
                    predictor=predictor,
                    **layout,
                )
                turn += 1
    # Other byte orders and layouts as tifffile makes them.
    for dtype in ("uint8", "uint16", "int32", "float16", "float32", "float64"):
        for index, options in enumerate(
            (
                {"compression": "zlib", "predictor": True, "tile": (16, 32), "byteorder": ">"},
                {"compression": "lzw", "rowsperstrip": 5, "byteorder": ">", "bigtiff": True},
                {"compression": "packbits", "rowsperstrip": 64, "byteorder": "<"},
                {"compression": "zstd", "predictor": True, "rowsperstrip": 9, "byteorder": "<", "bigtiff": True},
                {"compression": 32946, "rowsperstrip": 11},
            )
        ):
            planar = "contig" if index % 2 else "separate"
            good.tifffile(
                f"tifffile-{dtype}-{index}.tif",
                noise((3, 45, 39), dtype, index),
                f"tifffile {dtype} {options} {planar}",
                planarconfig=planar,
                **options,
            )
    # Bits below a byte, and widths between.
    for bits in (1, 2, 3, 4, 5, 7):
        values = (np.arange(31 * 45).reshape(1, 31, 45) * 7 % (1 << bits)).astype("uint8")
        good.gdal(f"nbits-{bits}.tif", values, f"{bits}-bit samples", NBITS=bits, compress="deflate")
    for bits in (9, 12, 15):
        values = (np.arange(2 * 31 * 45).reshape(2, 31, 45) * 71 % (1 << bits)).astype("uint16")
        good.gdal(f"nbits-{bits}.tif", values, f"{bits}-bit samples", NBITS=bits, compress="lzw", interleave="pixel")
    for bits in (17, 24, 31):
        values = (np.arange(31 * 45).reshape(1, 31, 45) * 7919 % (1 << bits)).astype("uint32")
        good.gdal(f"nbits-{bits}.tif", values, f"{bits}-bit samples", NBITS=bits, blockysize=4)
    # GDAL reads 16-bit floats as such from 3.11 on and as 32-bit ones before: the file's own type is what to expect.
    half = (np.arange(31 * 45).reshape(1, 31, 45) / 8).astype("float32")
    with rasterio.open(
        good.folder / "nbits-f16.tif", "w", driver="GTiff", dtype="float32", count=1, height=31, width=45, NBITS=16
    ) as out:
        out.write(half)
    good.note("nbits-f16.tif", "16-bit floats", half.astype("float16"))
    bilevel = (np.indices((61, 77)).sum(0) // 5 % 2)[None].astype("uint8")
    for codec in ("ccittrle", "ccittfax3", "ccittfax4"):
        good.gdal(f"{codec}.tif", bilevel, codec, NBITS=1, compress=codec, photometric="miniswhite")
    # Lossy and special codecs.
    y, x = np.mgrid[0:90, 0:110]
    photo = np.stack([128 + 80 * np.sin(x / 17 + i) * np.cos(y / 13) for i in range(3)]).astype("uint8")
    good.gdal(
        "jpeg-ycbcr.tif", photo, "JPEG YCbCr 4:2:0", CLOSE, compress="jpeg", photometric="ycbcr", interleave="pixel"
    )
    good.gdal(
        "jpeg-rgb-tiled.tif", photo, "JPEG RGB tiled", CLOSE, compress="jpeg", photometric="rgb", interleave="pixel",
        tiled=True, blockxsize=32, blockysize=32,
    )  # fmt: skip
    good.gdal(
        "jpeg-planes.tif", photo, "JPEG, planes apart", CLOSE, compress="jpeg", interleave="band", JPEG_QUALITY=90
    )
    good.gdal("jpeg-grey.tif", photo[:1], "JPEG grey", CLOSE, compress="jpeg", blockysize=16)
    rgba = np.concatenate([photo, photo[:1]])
    optional: list[tuple[str, Any, str, str, dict[str, Any]]] = [
        ("webp-lossless.tif", photo, "WebP lossless", DECODES, {"compress": "webp", "WEBP_LOSSLESS": "YES"}),
        ("webp-rgba.tif", rgba, "WebP lossless RGBA", DECODES, {"compress": "webp", "WEBP_LOSSLESS": "YES"}),
        ("webp-lossy.tif", photo, "WebP lossy", CLOSE, {"compress": "webp", "WEBP_LEVEL": 80}),
        ("jxl-lossless.tif", photo, "JPEG XL lossless", DECODES, {"compress": "jxl", "JXL_LOSSLESS": "YES"}),
    ]
    for name, array, text, expect, options in optional:
        with OptionalCodec(name):
            good.gdal(
                name, array, text, expect, interleave="pixel", tiled=True, blockxsize=64, blockysize=64, **options
            )
    for codec in ("lerc", "lerc_deflate", "lerc_zstd"):
        for dtype in ("uint8", "int16", "float32", "float64"):
            with OptionalCodec(codec):
                good.gdal(
                    f"{codec}-{dtype}.tif", noise((2, 40, 50), dtype, 7), f"{codec} {dtype}", compress=codec,
                    MAX_Z_ERROR=0, tiled=True, blockxsize=32, blockysize=32, interleave="pixel",
                )  # fmt: skip
    with OptionalCodec("lerc-lossy.tif"):
        good.gdal(
            "lerc-lossy.tif", noise((1, 64, 64), "float32", 8), "LERC 0.1", CLOSE, compress="lerc", MAX_Z_ERROR=0.1
        )
    for dtype, bands in (("uint8", 3), ("uint16", 1)):
        array = photo if dtype == "uint8" else noise((1, 64, 48), "uint16", 5)
        with OptionalCodec("jpeg2000"):
            good.tifffile(
                f"jpeg2000-{dtype}.tif", array[:bands], f"JPEG 2000 lossless {dtype}", compression="jpeg2000",
                compressionargs={"level": 0, "reversible": True}, planarconfig="contig", tile=(32, 32),
                photometric="rgb" if bands == 3 else "minisblack",
            )  # fmt: skip
        with OptionalCodec("jpegxl"):
            good.tifffile(
                f"jpegxl-{dtype}.tif", array[:bands], f"JPEG XL lossless {dtype}", compression="jpegxl",
                compressionargs={"lossless": True}, planarconfig="contig", tile=(32, 32),
                photometric="rgb" if bands == 3 else "minisblack",
            )  # fmt: skip

    # Sizes at the edges.
    for rows, columns in ((1, 1), (1, 700), (700, 1), (255, 257)):
        good.gdal(f"size-{columns}x{rows}.tif", noise((1, rows, columns), "uint16", 3), "odd size", compress="deflate")
    # Masks, overviews, COGs, sparse tiles.
    base = noise((3, 150, 170), "uint8", 11)
    mask = ((np.indices((150, 170)).sum(0) // 9 % 4) > 0).astype("uint8") * 255
    with rasterio.Env(GDAL_TIFF_INTERNAL_MASK=True):
        good.gdal("mask-internal.tif", base, "mask in the file", after=lambda d: d.write_mask(mask), compress="deflate")
    with rasterio.Env(GDAL_TIFF_INTERNAL_MASK=False):
        good.gdal("mask-external.tif", base, "mask in a .msk file", after=lambda d: d.write_mask(mask))
    alpha = np.concatenate([base, mask[None]])
    good.gdal("mask-alpha.tif", alpha, "alpha band", photometric="rgb", ALPHA="YES", interleave="pixel")
    path = good.gdal(
        "overviews.tif", noise((1, 300, 280), "int16", 12), "overviews in the file", tiled=True, blockxsize=64,
        blockysize=64, compress="deflate",
    )  # fmt: skip
    with rasterio.open(path, "r+") as out:
        out.build_overviews([2, 4, 8], Resampling.average)
    good.rows[-1]["overviews"] = [2, 4, 8]
    path = good.gdal(
        "overviews-external.tif", noise((1, 300, 280), "int16", 13), "overviews in a .ovr file", blockysize=32
    )
    with rasterio.Env(TIFF_USE_OVR=True), rasterio.open(path, "r+") as out:
        out.build_overviews([2, 4], Resampling.nearest)
    good.rows[-1]["overviews"] = [2, 4]
    utm = {"crs": CRS.from_epsg(32633), "transform": Affine(10, 0, 4e5, 0, -10, 52e5)}
    for name, options in (
        ("cog.tif", {"compress": "deflate", "predictor": 2}),
        ("cog-zstd-mask.tif", {"compress": "zstd"}),
        ("cog-sparse.tif", {"compress": "lzw", "SPARSE_OK": "TRUE"}),
    ):
        source = noise((2, 700, 600), "uint16", 14)
        if "sparse" in name:
            source[:, 256:, 256:] = 0

        def touch(out: Any, name: str = name) -> None:
            if "mask" in name:
                with rasterio.Env(GDAL_TIFF_INTERNAL_MASK=True):
                    out.write_mask(np.tile(mask, (5, 4))[:700, :600])

        good.gdal(name, source, f"COG {options}", driver="COG", after=touch, BLOCKSIZE=256, **utm, **options)
    sparse = np.zeros((1, 256, 256), "float32")
    sparse[0, :64, 64:128] = noise((64, 64, 1), "float32", 3)[:, :, 0]
    good.gdal("sparse.tif", sparse, "sparse tiles", tiled=True, blockxsize=64, blockysize=64, SPARSE_OK="TRUE")
    holes = np.where(sparse == 0, np.float32(-9999), sparse)
    good.gdal(
        "sparse-nodata.tif", holes, "sparse tiles that are nodata", tiled=True, blockxsize=64, blockysize=64,
        SPARSE_OK="TRUE", nodata=-9999,
    )  # fmt: skip
    # Colours.
    index = (np.arange(40 * 30).reshape(1, 40, 30) % 16).astype("uint8")

    def paint(out: Any) -> None:
        out.write_colormap(1, {i: (i * 16, 255 - i * 16, i, 255) for i in range(16)})

    good.gdal("palette.tif", index, "palette", after=paint, photometric="palette")
    good.gdal("miniswhite.tif", index, "MinIsWhite", photometric="miniswhite")
    # GDAL converts CMYK to RGBA; the fixture expects the samples as stored.
    good.tifffile(
        "cmyk.tif", noise((4, 20, 30), "uint8", 2), "CMYK, raw", photometric="separated", planarconfig="contig"
    )

    def interpret(out: Any) -> None:
        out.colorinterp = [ColorInterp.blue, ColorInterp.green, ColorInterp.red, ColorInterp.undefined]

    good.gdal("colorinterp.tif", noise((4, 20, 30), "uint16", 2), "colours out of order", after=interpret)

    # Nodata in every spelling, per dtype.
    for dtype, value in (
        ("uint8", 255), ("uint8", 0), ("int8", -128), ("int16", -32768), ("uint16", 65535), ("int32", -2147483648),
        ("uint32", 4294967295), ("float32", math.nan), ("float32", -math.inf), ("float32", -9999),
        ("float32", -3.4028234663852886e38), ("float32", 1e20), ("float64", -1.7976931348623157e308),
        ("float64", 1e-300), ("float64", 0.1),
    ):  # fmt: skip
        array = noise((1, 9, 11), dtype, 4)
        array[0, 2:4, 3:7] = value
        good.gdal(f"nodata-{dtype}-{value}.tif", array, f"nodata {value}", nodata=value)
    for number, (text, value) in enumerate(
        ((b"-9999.0\0", -9999.0), (b" -9999 \0", -9999.0), (b"-9.999e3\0", -9999.0), (b"NaN\0", "nan"),
         (b"nan \0", "nan"), (b"-9999", -9999.0), (b"0\0", 0.0), (b"-1.#IND\0", "nan"))
    ):  # fmt: skip
        tiff = Tiff()
        array = noise((1, 9, 11), "float32", number)
        array[0, :2] = float(value)
        at = tiff.data(array.tobytes())
        tiff.ifd([*image(11, 9, at, 396, t258=32, t339=(SHORT, 3)), (42113, ASCII, text)])
        name = f"nodata-text-{number}.tif"
        (good.folder / name).write_bytes(tiff.bytes())
        with rasterio.open(good.folder / name) as got:
            good.note(name, f"nodata spelt {text!r}", array, **facts(got))

    # Reference systems and transforms.
    grid = noise((1, 12, 14), "int16", 9)
    where = Affine(0.25, 0, 10, 0, -0.25, 50)
    for code in (4326, 4979, 4978, 3857, 32633, 25832, 27700, 2154, 3035, 5514, 2193, 26711, 6340, 3995, 5703, 7415):
        with OptionalCodec(f"EPSG:{code}"):
            good.gdal(f"crs-{code}.tif", grid, f"EPSG:{code}", crs=CRS.from_epsg(code), transform=where)
    for name, text in {
        "lcc": "+proj=lcc +lat_1=30 +lat_2=60 +lat_0=45 +lon_0=10 +x_0=1000 +y_0=2000 +ellps=GRS80 +units=m",
        "laea-sphere": "+proj=laea +lat_0=30 +lon_0=-20 +R=6371007.181 +units=m",
        "sinusoidal": "+proj=sinu +lon_0=0 +R=6371007.181 +units=m",
        "tmerc-feet": "+proj=tmerc +lat_0=10 +lon_0=20 +k=0.9996 +x_0=500000 +ellps=WGS84 +units=us-ft",
        "stere": "+proj=stere +lat_0=90 +lat_ts=70 +lon_0=-45 +ellps=WGS84",
        "longlat-bessel": "+proj=longlat +ellps=bessel",
        "merc": "+proj=merc +lon_0=15 +ellps=WGS84",
        "aea": "+proj=aea +lat_1=29.5 +lat_2=45.5 +lat_0=23 +lon_0=-96 +datum=NAD83",
    }.items():
        good.gdal(f"crs-user-{name}.tif", grid, f"user-defined: {text}", crs=CRS.from_proj4(text), transform=where)
    turned = Affine(*((Affine.translation(4e5, 52e5) @ Affine.rotation(30) @ Affine.scale(10, -10))[:6]))
    good.gdal("transform-rotated.tif", grid, "rotated", crs=CRS.from_epsg(32633), transform=turned)
    good.gdal("transform-sheared.tif", grid, "sheared", transform=Affine(10, 3, 1e5, 2, -9, 2e5))
    good.gdal("transform-south-up.tif", grid, "rows go north", transform=Affine(10, 0, 1e5, 0, 10, 2e5))
    good.gdal("transform-tiny.tif", grid, "many digits", transform=Affine(1 / 3, 0, -180 + 1e-9, 0, -1 / 7, 90 - 1e-9))
    with rasterio.Env(GTIFF_POINT_GEO_IGNORE=False):
        good.gdal(
            "pixel-is-point.tif", grid, "PixelIsPoint", crs=CRS.from_epsg(4326), transform=where,
            after=lambda d: d.update_tags(AREA_OR_POINT="Point"),
        )  # fmt: skip
    points = [GroundControlPoint(r, c, 10 + c / 10 + r / 100, 50 - r / 10, 5.0, str(i))
              for i, (r, c) in enumerate(((0, 0), (0, 14), (12, 0), (12, 14), (6, 7)))]  # fmt: skip
    good.gdal("gcps.tif", grid, "ground control points", gcps=points, crs=CRS.from_epsg(4326))
    rpc = RPC(
        height_off=100.0, height_scale=500.0, lat_off=50.0, lat_scale=0.1, line_off=6.0, line_scale=6.0, long_off=10.0,
        long_scale=0.1, samp_off=7.0, samp_scale=7.0, err_bias=0.5, err_rand=0.25,
        line_num_coeff=[0.01 * i for i in range(20)], line_den_coeff=[1.0] + [0.001 * i for i in range(19)],
        samp_num_coeff=[0.02 * i for i in range(20)], samp_den_coeff=[1.0] + [0.002 * i for i in range(19)],
    )  # fmt: skip
    good.gdal("rpc.tif", grid, "rational polynomial coefficients", rpcs=rpc)

    def describe(out: Any) -> None:
        out.scales, out.offsets = (0.0001, 2.0), (-0.1, 273.15)
        out.units, out.descriptions = ("reflectance", "K"), ("B04 <red> & more", "température")
        out.update_tags(ACQUIRED="2026-03-01", NOTE="a < b & c > \"d\" 'e'")
        out.update_tags(1, WAVELENGTH="665", STATISTICS_MEAN="0.25")
        out.update_tags(ns="CUSTOM", KEY="value")

    good.gdal("metadata.tif", noise((2, 20, 20), "uint16", 6), "band metadata, domains, XML escapes", after=describe)
    good.gdal(
        "tags-standard.tif", grid, "standard tags", after=lambda d: d.update_tags(
            TIFFTAG_SOFTWARE="swath fixtures", TIFFTAG_DATETIME="2026:03:01 12:00:00", TIFFTAG_XRESOLUTION="72"
        ),
    )  # fmt: skip

    # Pages and sub-directories; the first image is what is read.
    import tifffile

    pages = noise((3, 40, 50), "uint16", 21)
    tifffile.imwrite(good.folder / "pages.tif", pages[0], photometric="minisblack", metadata=None, software=False)
    for page in pages[1:]:
        tifffile.imwrite(
            good.folder / "pages.tif", page, photometric="minisblack", metadata=None, software=False, append=True
        )
    good.note("pages.tif", "three pages", pages[:1])
    with tifffile.TiffWriter(good.folder / "subifds.tif", bigtiff=True) as writer:
        writer.write(pages[0], subifds=2, tile=(16, 16), photometric="minisblack", metadata=None, software=False)
        writer.write(pages[0, ::2, ::2].copy(), subfiletype=1, tile=(16, 16), photometric="minisblack", metadata=None)
        writer.write(pages[0, ::4, ::4].copy(), subfiletype=1, tile=(16, 16), photometric="minisblack", metadata=None)
    good.note("subifds.tif", "overviews in sub-directories", pages[:1])
    for orientation in (3, 6, 8):
        name = f"orientation-{orientation}.tif"
        tifffile.imwrite(
            good.folder / name, pages[0], photometric="minisblack", metadata=None, software=False,
            extratags=[(274, SHORT, 1, orientation, True)],
        )  # fmt: skip
        good.note(name, f"orientation {orientation}, not applied", pages[:1])

    # A world file and an .aux.xml beside a file that has no georeferencing of its own.
    good.gdal("worldfile.tif", grid, "world file", TFW="YES", transform=where, PROFILE="BASELINE")
    (good.folder / "worldfile.tif.aux.xml").unlink(missing_ok=True)
    with rasterio.open(good.folder / "worldfile.tif") as got:
        good.rows[-1].update(facts(got))


class OptionalCodec:
    """Leaves a fixture out, with a message, when this build of GDAL or imagecodecs cannot write it."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: object) -> bool:
        if kind is None or not issubclass(kind, Exception):
            return False
        print(f"corpus: {self.name} left out: {str(value).splitlines()[0] if str(value) else kind.__name__}")
        return True


# --------------------------------------------------------------------------------------------------------------- main


def recipe() -> str:
    """A digest of what the fixtures depend on: this file and the writers' versions."""
    from importlib.metadata import version

    digest = hashlib.sha256(Path(__file__).read_bytes())
    for package in ("numpy", "rasterio", "tifffile", "imagecodecs"):
        digest.update(f"{package} {version(package)}".encode())
    return digest.hexdigest()


def is_fresh(wanted: str) -> bool:
    try:
        manifest = json.loads(MANIFEST.read_text())
    except (OSError, ValueError):
        return False
    return manifest.get("recipe") == wanted and all((HERE / row["path"]).exists() for row in manifest["files"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--force", action="store_true", help="make them again even if nothing has changed")
    args = parser.parse_args()
    wanted = recipe()
    if not args.force and is_fresh(wanted):
        print("corpus: fixtures are up to date")
        return 0
    warnings.filterwarnings("ignore")
    MANIFEST.unlink(missing_ok=True)
    for folder in (HERE / "good", HERE / "bad"):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    good = Good(HERE / "good")
    good_files(good)
    rows = good.rows
    for bad in bad_files():
        path = HERE / "bad" / bad.name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bad.content)
        row: dict[str, Any] = {"path": f"bad/{bad.name}", "features": bad.name.split("/")[0], "expect": bad.expect}
        if bad.words:
            row["words"] = bad.words
        if bad.pixels is not None and bad.shape is not None:
            row.update(dtype="uint8", shape=list(bad.shape), crc32=f"{zlib.crc32(bad.pixels):08x}")
        rows.append(row)
    # Last, so that a run cut short leaves no manifest and the next one starts over.
    MANIFEST.write_text(json.dumps({"recipe": wanted, "files": rows}, indent=1) + "\n")
    counts = {kind: sum(row["expect"] == kind for row in rows) for kind in (DECODES, CLOSE, EITHER, REFUSED)}
    print("corpus: " + ", ".join(f"{count} {kind}" for kind, count in counts.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
