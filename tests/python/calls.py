"""Watches the system calls of a process that change files, and makes them fail (calls.c)."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from harness import ROOT


@dataclass(frozen=True)
class Call:
    """One call that succeeded; `path` and `to` are names inside the folder, "" is the folder itself."""

    what: str
    inode: int
    offset: int = 0
    length: int = 0
    data: bytes = field(default=b"", repr=False)
    path: str = ""
    to: str = ""


@dataclass
class Watched:
    """How a watched process ended, and what it did."""

    code: int
    output: str
    calls: list[Call]
    # Calls that could have failed, and those that did: their kind and name.
    count: int
    failed: list[tuple[str, str]]


@contextmanager
def on_disk() -> Iterator[Path]:
    """A folder on a real file system: in memory, swath writes through a mapping, which makes no calls."""
    target = (ROOT / os.environ.get("CARGO_TARGET_DIR", "target")).resolve()
    target.mkdir(exist_ok=True)
    mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    kind = max((len(Path(at).parts), kind) for at, kind in mounts if target.is_relative_to(at))[1]
    if kind in ("tmpfs", "ramfs"):
        pytest.skip(f"{target} lies in memory; CARGO_TARGET_DIR may name a folder on a disk")
    with tempfile.TemporaryDirectory(prefix="torture-", dir=target) as name:
        yield Path(name).resolve()


@contextmanager
def watcher() -> Iterator[Watcher]:
    """The library, compiled; skips where it cannot be."""
    compiler = shutil.which("cc")
    if compiler is None or platform.system() != "Linux" or platform.machine() != "x86_64":
        pytest.skip("calls are watched on Linux on x86-64, with a C compiler")
    with tempfile.TemporaryDirectory(prefix="swath-calls-") as name:
        library = Path(name) / "calls.so"
        source = Path(__file__).with_name("calls.c")
        subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", library, source], check=True)
        watching = Watcher(library, Path(name))
        if watching.run(["true"], Path(name)).code == 97:
            pytest.skip("this system does not let a process watch its own calls")
        yield watching


class Watcher:
    """Runs commands whose calls on files of one folder are recorded, counted, and failed."""

    def __init__(self, library: Path, folder: Path) -> None:
        self.library, self.folder = library, folder

    def run(self, argv: Sequence[object], folder: Path, fail: str = "", log: bool = False) -> Watched:
        count, record = self.folder / "count", self.folder / "log"
        count.unlink(missing_ok=True)
        record.unlink(missing_ok=True)
        watching = {"LD_PRELOAD": str(self.library), "CALLS_FOLDER": str(folder), "CALLS_COUNT": str(count)}
        if log:
            watching["CALLS_LOG"] = str(record)
        if fail:
            watching["CALLS_FAIL"] = fail
        done = subprocess.run(
            list(map(str, argv)),
            env={**os.environ, **watching},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        lines = count.read_text().splitlines() if count.exists() else []
        failed = [(line.split("\t")[1], line.split("\t")[2]) for line in lines if "\t" in line]
        seen = max([int(line.split()[0]) for line in lines if line.endswith(" calls")], default=0)
        return Watched(done.returncode, done.stderr, list(parsed(record, folder)) if log else [], seen, failed)


def parsed(record: Path, folder: Path) -> Iterator[Call]:
    content = record.read_bytes() if record.exists() else b""
    at = 0
    while at < len(content):
        end = content.index(b"\n", at)
        what, inode, offset, length, size, path, to = content[at:end].decode().split("\t")
        data = content[end + 1 : end + 1 + int(size)]
        at = end + 1 + int(size)
        inner = [name.removeprefix(f"{folder}").removeprefix("/").removesuffix(" (deleted)") for name in (path, to)]
        yield Call(what, int(inode), int(offset), int(length), data, *inner)
