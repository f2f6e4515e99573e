"""After a power cut during a write (W2), the file is the old one or the new one, complete.

A writer's calls are recorded once. Then the power is cut after every one of them. For each cut the test makes all
states in which a file system may come back, and checks the files under the names in the folder.

Each rule is at least as strict as its file system:

- Pages that were written and not synced are on the disk or not, in any combination; missing pages read as zeros. (ext4
  in ordered mode with delayed allocation, and XFS, show no other file's bytes.) The size is that of any of these
  moments. ext4 usually writes pages before a rename; the test does not rely on that, because it can be switched off.
- ext4: changes of names, sizes and extents (create, rename, unlink, truncate, collapse) go to one journal in their
  order; some first part of it survives. Any sync writes all of the journal so far to the disk, and the pages of the
  synced file.
- XFS: the same, but a sync writes the journal only up to the last entry for that file or folder.
- any: changes of names survive the cut one by one, in any combination, until their folder is synced. No file system in
  use is as careless; the file itself has to be complete even here.
- tmpfs: nothing survives a power cut. After a kill of the process, every call so far counts.
"""

from __future__ import annotations

import itertools
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import rasterio
import tifffile
from calls import Call, Watcher, on_disk, watcher
from harness import Swath, record, torture

PAGE = 4096
RULES = ("ext4", "xfs", "any", "tmpfs")
NAMES = ("create", "rename", "unlink")
SIDES = ("a.tif.aux.xml", "a.tif.ovr")

# An assignment of names, made by one call: to the number of a file, or to none.
Change = dict[str, int | None]


@pytest.fixture(scope="module")
def watch() -> Iterator[Watcher]:
    with watcher() as library:
        yield library


@pytest.fixture
def disk() -> Iterator[Path]:
    with on_disk() as folder:
        yield folder


def apply(content: bytearray, call: Call, pages: random.Random | None = None) -> None:
    """Applies a call to a file's bytes; perhaps only some pages of a write."""
    end = call.offset + len(call.data)
    if call.what == "write":
        content.extend(bytes(max(0, end - len(content))))
        first = call.offset
        while first < end:
            last = min(end, first // PAGE * PAGE + PAGE)
            if pages is None or pages.random() < 0.5:
                content[first:last] = call.data[first - call.offset : last - call.offset]
            first = last
    elif call.what == "truncate":
        content.extend(bytes(max(0, call.offset - len(content))))
        del content[call.offset :]
    elif call.what == "extend":
        content.extend(bytes(max(0, call.offset + call.length - len(content))))
    elif call.what == "collapse":
        del content[call.offset : call.offset + call.length]
    else:
        raise AssertionError(f"no rule for {call}")


class Record:
    """A folder before a write, and the calls of the writer."""

    def __init__(self, folder: Path, calls: list[Call], before: dict[str, tuple[int, bytes]]) -> None:
        unknown = [call for call in calls if call.what == "unknown"]
        assert not unknown, f"calls for which the model has no rule: {unknown}"
        self.calls = calls
        self.names: Change = {name: inode for name, (inode, _) in before.items()}
        self.bytes = dict(before.values())
        self.folder = folder.stat().st_ino
        # Changes of names by the index of their call.
        self.changes: dict[int, Change] = {}
        # Calls on the bytes of each file.
        self.touched: dict[int, list[int]] = {}
        now = dict(self.names)
        for index, call in enumerate(calls):
            if call.what == "create":
                self.bytes[call.inode] = b""
                self.touched[call.inode] = []
                self.changes[index] = {call.path: call.inode} if call.path else {}
            elif call.what == "rename":
                self.changes[index] = {call.to: now.get(call.path), call.path: None}
            elif call.what == "unlink":
                self.changes[index] = {call.path: None}
            elif call.what != "sync":
                self.touched.setdefault(call.inode, []).append(index)
            now.update(self.changes.get(index, {}))
        self.last = now
        self.cache: dict[tuple[int, int, int], list[bytes]] = {}

    def journalled(self, index: int) -> bool:
        return self.calls[index].what not in ("write", "sync")

    def concerns(self, index: int, inode: int) -> bool:
        call = self.calls[index]
        return call.inode == inode or (inode == self.folder and call.what in NAMES) or inode in self.named(index)

    def named(self, index: int) -> list[int | None]:
        return list(self.changes.get(index, {}).values())

    def safe(self, rule: str, cut: int) -> int:
        """The last call up to which the journal is certainly on the disk."""
        safe = 0
        for index in range(cut):
            call = self.calls[index]
            if call.what != "sync":
                continue
            if rule == "ext4":
                safe = index
            else:
                reach = [i for i in range(index) if self.journalled(i) and self.concerns(i, call.inode)]
                safe = max([safe, *(i + 1 for i in reach)])
        return safe

    def folders(self, rule: str, cut: int, rng: random.Random) -> Iterator[Change]:
        """Possible names after the power is cut before call `cut`."""
        if rule == "tmpfs":
            yield self.named_by(range(cut))
        elif rule in ("ext4", "xfs"):
            for end in range(self.safe(rule, cut), cut + 1):
                if end == cut or end in self.changes:
                    yield self.named_by(range(end))
        else:
            synced = [i for i in range(cut) if self.calls[i].what == "sync" and self.calls[i].inode == self.folder]
            sure = [i for i in self.changes if i < max(synced, default=0)]
            loose = [i for i in self.changes if max(synced, default=0) <= i < cut]
            if len(loose) <= 7:
                choices = [c for n in range(len(loose) + 1) for c in itertools.combinations(loose, n)]
            else:
                choices = [tuple(i for i in loose if rng.random() < 0.5) for _ in range(128)]
            for chosen in choices:
                yield self.named_by(sorted({*sure, *chosen}))

    def named_by(self, indices: object) -> Change:
        names = dict(self.names)
        for index in indices:  # type: ignore[attr-defined]
            names.update(self.changes.get(index, {}))
        return names

    def contents(self, inode: int, cut: int, ordered: bool) -> list[bytes]:
        """Possible contents of a file after the power is cut before call `cut`."""
        calls = [i for i in self.touched.get(inode, []) if i < cut]
        synced = [i for i in range(cut) if self.calls[i].what == "sync" and self.calls[i].inode == inode]
        sure = [i for i in calls if i < max(synced, default=0)]
        loose = [i for i in calls if i >= max(synced, default=0)]
        key = (inode, len(sure), len(loose) if not ordered else -len(calls) - 1)
        if key in self.cache:
            return self.cache[key]
        base = bytearray(self.bytes[inode])
        for index in sure:
            apply(base, self.calls[index])
        whole = bytearray(base)
        for index in loose:
            apply(whole, self.calls[index])
        found = {bytes(whole)}
        if not ordered and loose:
            found |= {bytes(base), bytes(len(whole)), bytes(whole[: len(whole) // 2])}
            for seed in range(6):
                rng = random.Random(f"{key} {seed}")
                partly = bytearray(base)
                for index in loose:
                    if seed % 2 == 0 or rng.random() < 0.6:
                        apply(partly, self.calls[index], rng)
                found.add(bytes(partly))
        self.cache[key] = sorted(found)
        return self.cache[key]


@dataclass
class Verdict:
    """The number of states, and the faults of those that lost data."""

    states: int
    faults: list[str]


def judge(log: Record, old: bytes | None, new: bytes, rng: random.Random) -> Verdict:
    """Cuts the power before every call and after the last."""
    verdict = Verdict(0, [])
    end = len(log.calls)
    for rule, cut in itertools.product(RULES, range(end + 1)):
        for names in log.folders(rule, cut, rng):
            inode = names.get("a.tif")
            held = [None] if inode is None else log.contents(inode, cut, rule == "tmpfs")
            for content in held:
                verdict.states += 1
                state = "new" if content == new else "old" if content == old else "lost"
                sides = [name for name in SIDES if names.get(name) is not None]
                there = [name for name in SIDES if name in log.names]
                note = next((i for name, i in names.items() if name.endswith("-beside") and i is not None), None)
                fault = None
                if state == "lost":
                    fault = f"holds {'no file' if content is None else f'{len(content)} other bytes'}"
                elif cut == end and state != "new":
                    fault = "is the old file although the writer has reported success"
                elif rule != "any" and state == "old" and sides != there:
                    fault = f"is the old file without {set(there) - set(sides)}"
                elif rule != "any" and state == "new" and sides and old is not None:
                    whole = note is not None and len(set(log.contents(note, cut, rule == "tmpfs"))) == 1
                    fault = None if whole else f"is the new file with {sides} of the old one and no note of it"
                if fault:
                    verdict.faults.append(f"{rule}, cut before call {cut} of {end}: the name {fault}")
    return verdict


def run(watch: Watcher, disk: Path, argv: list[object], fresh: bool = False) -> tuple[Record, bytes | None, bytes]:
    """Records a writer of `a.tif`, and checks that the record is complete."""
    before = {} if fresh else {path.name: (path.stat().st_ino, path.read_bytes()) for path in disk.iterdir()}
    done = watch.run(argv, disk, log=True)
    assert done.code == 0, done.output
    log = Record(disk, done.calls, before)
    for name, inode in log.last.items():
        path = disk / name
        assert path.exists() == (inode is not None), f"{name} was made or removed unseen"
        if inode is not None:
            assert log.contents(inode, len(done.calls), ordered=True) == [path.read_bytes()], f"{name} changed unseen"
    old = before["a.tif"][1] if "a.tif" in before else None
    new = (disk / "a.tif").read_bytes()
    assert old != new
    return log, old, new


def ground(path: Path, rows: int, columns: int) -> Path:
    y, x = np.mgrid[0:rows, 0:columns]
    noise = np.random.default_rng(5).integers(0, 64, (rows, columns))
    tifffile.imwrite(path, (x * 3 + y * 5 + noise).astype("u2"), tile=(64, 64), photometric="minisblack")
    return path


@pytest.fixture(scope="module")
def source() -> Iterator[Path]:
    with on_disk() as folder:
        yield ground(folder / "source.tif", 300, 420)


@pytest.fixture(scope="module")
def large() -> Iterator[Path]:
    """Large enough that tiles take many writes, and that gaps before the overviews are removed."""
    with on_disk() as folder:
        yield ground(folder / "large.tif", 3500, 3500)


STREAMED = """
import sys, numpy as np, dask.array as da, xarray as xr, swath
data = da.from_array(np.arange(300 * 420, dtype="f4").reshape(300, 420), chunks=(100, 128))
swath.to_geotiff(xr.DataArray(data, dims=("y", "x")), sys.argv[1], cog=sys.argv[2] == "cog", tile_size=64)
"""

WAYS = {
    "plain": ("convert", "--tile", "64", "--compress", "deflate"),
    "plain, none": ("convert", "--tile", "64", "--compress", "none"),
    "plain, strips": ("convert", "--strips", "7", "--compress", "lzw"),
    "COG, zstd": ("convert", "--cog", "--tile", "64", "--compress", "zstd"),
    "COG, none": ("convert", "--cog", "--tile", "64", "--compress", "none"),
    "COG, one thread": ("convert", "--cog", "--tile", "128", "--compress", "packbits", "--threads", "1"),
    "large COG": ("large", "--cog", "--tile", "256", "--compress", "zstd", "--level", "1", "--max-memory", "24M"),
    "COG over its source": ("itself", "--cog", "--tile", "64", "--compress", "lzw"),
    "a new file": ("fresh", "--cog", "--tile", "64"),
    "beside side files": ("sides", "--tile", "64"),
    "COG beside side files": ("sides", "--cog", "--tile", "64"),
    "streamed": ("python", "plain"),
    "streamed COG": ("python", "cog"),
}


def place(swath: Swath, disk: Path, source: Path, kind: str) -> None:
    """The old file and its side files."""
    if kind == "itself":
        (disk / "a.tif").write_bytes(source.read_bytes())
    elif kind != "fresh":
        run_ = swath.run("convert", source, disk / "a.tif", "--window", "0,0,100,90")
        assert run_.ok, run_.stderr
    if kind == "sides":
        with rasterio.Env(TIFF_USE_OVR=True), rasterio.open(disk / "a.tif", "r+") as file:
            file.build_overviews([2])
        (disk / "a.tif.aux.xml").write_text("<PAMDataset/>")


@pytest.mark.parametrize("name", WAYS)
def test_power_cut(swath: Swath, watch: Watcher, disk: Path, source: Path, large: Path, name: str) -> None:
    kind, *options = WAYS[name]
    states, faults = 0, []
    for number in range(torture()):
        for path in disk.iterdir():
            path.unlink()
        place(swath, disk, source, kind)
        path = disk / "a.tif"
        read = {"itself": path, "large": large}.get(kind, source)
        # Later rounds cut other windows, so that calls and their order change.
        window = () if number == 0 else ("--window", f"0,0,{420 - 3 * number % 400},{300 - 7 * number % 280}")
        if kind == "large" and number:
            window = ("--window", f"0,0,{3500 - number % 900},3500")
        argv: list[object] = [swath.binary, "convert", read, path, *options, *window, "-q"]
        if kind == "python":
            argv = [sys.executable, "-c", STREAMED, path, *options]
        log, old, new = run(watch, disk, argv, fresh=kind == "fresh")
        with rasterio.open(path) as dataset:
            dataset.read()
        verdict = judge(log, old, new, random.Random(f"{name} {number}"))
        states += verdict.states
        faults += verdict.faults
        assert kind != "large" or len(log.calls) > 100, len(log.calls)
    record("W2", f"power cut, {name}", states, states - len(faults), len(faults))
    assert states > 20
    assert not faults, f"{len(faults)} of {states}:\n" + "\n".join(faults[:20])


CARELESS = {
    "in place": "open(path, 'r+b').write(new)",
    "in place, synced": "f = open(path, 'r+b'); f.write(new); f.flush(); os.fsync(f.fileno())",
    "renamed without a sync": "open(path + '.x', 'wb').write(new); os.rename(path + '.x', path); sync_folder()",
    "removed, then renamed": "f = open(path + '.x', 'wb'); f.write(new); f.flush(); os.fsync(f.fileno()); "
    "os.unlink(path); sync_folder(); os.rename(path + '.x', path); sync_folder()",
    "renamed, folder not synced": "f = open(path + '.x', 'wb'); f.write(new); f.flush(); os.fsync(f.fileno()); "
    "os.rename(path + '.x', path)",
}
CAREFUL = CARELESS["renamed, folder not synced"] + "; sync_folder()"


@pytest.mark.parametrize("name", [*CARELESS, "careful"])
def test_the_model_detects_careless_writers(watch: Watcher, disk: Path, name: str) -> None:
    """Each of the classical mistakes loses data, and the right way loses nothing."""
    path = disk / "a.tif"
    path.write_bytes(b"old" * 5000)
    script = (
        f"import os; path = {str(path)!r}; new = b'new' * 9000\n"
        "def sync_folder():\n f = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY); os.fsync(f)\n"
        f"{CARELESS.get(name, CAREFUL)}\n"
    )
    log, old, new = run(watch, disk, [sys.executable, "-c", script])
    verdict = judge(log, old, new, random.Random(0))
    assert bool(verdict.faults) == (name != "careful"), verdict
