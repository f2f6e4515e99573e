"""Sound files with something wrong in them: a few bytes, a tag, a table, the end."""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass
from pathlib import Path

SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4, 16: 8, 17: 8, 18: 8}
OFFSETS, COUNTS = (273, 324), (279, 325)
# Types of whole numbers.
WHOLE = (1, 3, 4, 6, 8, 9, 13, 16, 17, 18)
# Tags whose values decide how the rest is read.
IMPORTANT = (254, 256, 257, 258, 259, 262, 266, 273, 277, 278, 279, 284, 317, 320, 322, 323, 324, 325, 338, 339, 530)
EDGES = (0, 1, 2, 3, 7, 8, 9, 16, 17, 32, 255, 256, 257, 65535, 65536, 2**31 - 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1)


@dataclass(frozen=True)
class Entry:
    """One entry of a directory: its offset, and that of its value."""

    at: int
    tag: int
    kind: int
    count: int
    value_at: int
    value_len: int


class Structure:
    """Header and directories of a sound file, as far as a mutation needs them."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.order = "<" if content[:2] == b"II" else ">"
        self.big = self.number(2, 2) == 43
        self.word, self.entry_len = (8, 20) if self.big else (4, 12)
        self.entries: list[Entry] = []
        self.links = [8 if self.big else 4]
        self.boundaries: set[int] = {self.links[0]}
        at = self.number(self.links[0], self.word)
        while 0 < at < len(content) and len(self.links) < 20:
            head = 8 if self.big else 2
            count = self.number(at, head)
            if count > 4096:
                break
            self.boundaries |= {at, at + head}
            for index in range(count):
                self.add(at + head + index * self.entry_len)
            self.links.append(at + head + count * self.entry_len)
            self.boundaries.add(self.links[-1])
            at = self.number(self.links[-1], self.word)

    def number(self, at: int, size: int) -> int:
        code = {1: "B", 2: "H", 4: "I", 8: "Q"}[size]
        raw = self.content[at : at + size]
        return struct.unpack(self.order + code, raw)[0] if len(raw) == size else 0

    def add(self, at: int) -> None:
        tag, kind, count = self.number(at, 2), self.number(at + 2, 2), self.number(at + 4, self.word)
        length = SIZES.get(kind, 1) * count
        inline = at + 4 + self.word
        value = inline if length <= self.word else self.number(inline, self.word)
        self.entries.append(Entry(at, tag, kind, count, value, length))
        self.boundaries |= {at, value, value + length}

    def offsets(self) -> str:
        """What is special about the offsets of tiles and strips: a `zero` among them, or `two tables` of them."""
        tables = [entry for entry in self.entries if entry.tag in OFFSETS and entry.kind in WHOLE]
        empty = any(
            self.number(entry.value_at + index * SIZES[entry.kind], SIZES[entry.kind]) == 0
            for entry in tables
            for index in range(min(entry.count, 4096))
        )
        double = any(len({entry.tag for entry in self.entries} & set(tags)) == 2 for tags in (OFFSETS, COUNTS))
        return ", ".join(["zero"] * empty + ["two tables"] * double)

    def samples(self) -> str:
        """How the samples of the first image are stored."""
        bits, form = (next((entry for entry in self.entries if entry.tag == tag), None) for tag in (258, 339))
        order = "little" if self.order == "<" else "big"
        return (
            f"{self.number(bits.value_at, 2) if bits else 1} bits, "
            f"format {self.number(form.value_at, 2) if form else 1}, {order}-endian"
        )

    def put(self, out: bytearray, at: int, size: int, value: int) -> None:
        code = {1: "B", 2: "H", 4: "I", 8: "Q"}[size]
        out[at : at + size] = struct.pack(self.order + code, value % (1 << (8 * size)))

    def table(self, tags: tuple[int, ...], rng: random.Random) -> tuple[Entry, list[int]] | None:
        """A table of offsets or byte counts, and the positions of its numbers."""
        found = [entry for entry in self.entries if entry.tag in tags and entry.kind in (3, 4, 16) and entry.count]
        if not found:
            return None
        entry = rng.choice(found)
        size = SIZES[entry.kind]
        return entry, [entry.value_at + index * size for index in range(min(entry.count, 4096))]


def flip_bits(out: bytearray, _: Structure, rng: random.Random) -> None:
    for _number in range(rng.choice((1, 1, 1, 2, 4))):
        out[rng.randrange(len(out))] ^= 1 << rng.randrange(8)


def set_bytes(out: bytearray, _: Structure, rng: random.Random) -> None:
    for _number in range(rng.choice((1, 1, 2, 3))):
        out[rng.randrange(len(out))] = rng.choice((0, 255, rng.randrange(256)))


def head_bytes(out: bytearray, structure: Structure, rng: random.Random) -> None:
    """Bytes of the header and of directories, which random positions in a long file rarely hit."""
    entry = rng.choice(structure.entries)
    out[min(len(out) - 1, entry.at + rng.randrange(structure.entry_len))] = rng.choice((0, 255, rng.randrange(256)))


def cut(out: bytearray, structure: Structure, rng: random.Random) -> None:
    places = [at for at in structure.boundaries if 0 < at < len(out)]
    at = rng.choice(places) + rng.choice((-1, 0, 1)) if places and rng.random() < 0.4 else rng.randrange(len(out))
    del out[max(0, at) :]


def remove(out: bytearray, _: Structure, rng: random.Random) -> None:
    at = rng.randrange(len(out))
    del out[at : at + rng.choice((1, 2, 4, 16, 100))]


def insert(out: bytearray, _: Structure, rng: random.Random) -> None:
    at = rng.randrange(len(out))
    out[at:at] = rng.randbytes(rng.choice((1, 2, 4, 16)))


def blank(out: bytearray, _: Structure, rng: random.Random) -> None:
    at, length = rng.randrange(len(out)), rng.choice((4, 16, 64, 512))
    out[at : at + length] = bytes(len(out[at : at + length]))


def copy_range(out: bytearray, _: Structure, rng: random.Random) -> None:
    length = rng.choice((4, 12, 64, 256))
    source, target = rng.randrange(len(out)), rng.randrange(len(out))
    piece = bytes(out[source : source + length])[: len(out) - target]
    out[target : target + len(piece)] = piece


def tag_value(out: bytearray, structure: Structure, rng: random.Random) -> None:
    wanted = [entry for entry in structure.entries if entry.tag in IMPORTANT and entry.value_len]
    entry = rng.choice(wanted if wanted and rng.random() < 0.8 else structure.entries)
    size = SIZES.get(entry.kind, 1)
    at = entry.value_at + size * rng.randrange(max(1, min(entry.count, 64)))
    if at + size <= len(out):
        now = structure.number(at, size)
        value = rng.choice((*EDGES, now + 1, now - 1, now * 2, now // 2, rng.randrange(1, 40)))
        structure.put(out, at, size, value)


def tag_type(out: bytearray, structure: Structure, rng: random.Random) -> None:
    structure.put(out, rng.choice(structure.entries).at + 2, 2, rng.choice((0, *SIZES, 99)))


def tag_count(out: bytearray, structure: Structure, rng: random.Random) -> None:
    entry = rng.choice(structure.entries)
    value = rng.choice((*EDGES, entry.count + 1, entry.count - 1, entry.count * 2))
    structure.put(out, entry.at + 4, structure.word, value)


def tag_number(out: bytearray, structure: Structure, rng: random.Random) -> None:
    value = rng.choice((*IMPORTANT, 33432, 34665, 34735, 42112, 42113, 50000, 65535))
    structure.put(out, rng.choice(structure.entries).at, 2, value)


def tag_swap(out: bytearray, structure: Structure, rng: random.Random) -> None:
    """Swaps two entries, or repeats one of them."""
    a, b = rng.choice(structure.entries), rng.choice(structure.entries)
    length = structure.entry_len
    left, right = bytes(out[a.at : a.at + length]), bytes(out[b.at : b.at + length])
    if len(left) == len(right) == length:
        out[a.at : a.at + length] = right
        if rng.random() < 0.7:
            out[b.at : b.at + length] = left


def table_value(out: bytearray, structure: Structure, rng: random.Random) -> None:
    """Changes one offset or byte count, or swaps two of them."""
    found = structure.table(rng.choice((OFFSETS, COUNTS)), rng)
    if found is None:
        flip_bits(out, structure, rng)
        return
    entry, places = found
    size = SIZES[entry.kind]
    a, b = rng.choice(places), rng.choice(places)
    now, other = structure.number(a, size), structure.number(b, size)
    if a != b and rng.random() < 0.5:
        structure.put(out, a, size, other)
        structure.put(out, b, size, now)
    else:
        end = len(out)
        structure.put(out, a, size, rng.choice((0, 1, now + 1, now - 1, now * 2, now // 2, end, end - 1, 2**32 - 1)))


def link(out: bytearray, structure: Structure, rng: random.Random) -> None:
    """The offset of the next directory: none, this one again, or any."""
    at = rng.choice(structure.links)
    target = structure.number(rng.choice(structure.links), structure.word)
    structure.put(
        out, at, structure.word, rng.choice((0, 8, 16, target, target + 2, len(out), rng.randrange(len(out))))
    )


KINDS = {
    "bits": flip_bits, "bytes": set_bytes, "head": head_bytes, "cut": cut, "remove": remove, "insert": insert,
    "blank": blank, "copy": copy_range, "tag-value": tag_value, "tag-type": tag_type, "tag-count": tag_count,
    "tag-number": tag_number, "tag-swap": tag_swap, "table": table_value, "link": link,
}  # fmt: skip
WEIGHTS = (14, 10, 10, 8, 3, 3, 4, 4, 14, 5, 6, 4, 4, 14, 3)


def mutated(content: bytes, structure: Structure, rng: random.Random) -> tuple[bytes, str]:
    """The file with one fault, sometimes two, and a description of it."""
    out = bytearray(content)
    done = []
    for kind in rng.choices(list(KINDS), WEIGHTS, k=rng.choice((1, 1, 1, 2))):
        if out:
            KINDS[kind](out, structure, rng)
            done.append(kind)
    return bytes(out), "+".join(done)


def sources(root: Path, shared: list[Path], limit: int = 200_000) -> list[Path]:
    """Files to begin with, in an order that does not change; long ones take too long to read a thousand times."""
    found = [*sorted((root / "corpus" / "good").glob("*.tif"))]
    for folder in shared:
        found += sorted(path for path in folder.rglob("*") if path.suffix.lower() in (".tif", ".tiff"))
    short = [path for path in found if path.is_file() and 8 < path.stat().st_size <= limit]
    return [path for path in short if path.read_bytes()[:2] in (b"II", b"MM")]
