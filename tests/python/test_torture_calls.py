"""Every call of a writer fails once, in every way (W3, W4), and the writer is killed before every call (W1).

The model is "fail the n-th call, for every n": a clean run is counted, then each of its calls that change a file fails
with each error, or writes half of its bytes. The writer reports it or overcomes it; the name holds the old file or the
new one; nothing is left beside it.
"""

from __future__ import annotations

import errno
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import rasterio
from calls import Watched, Watcher, on_disk, watcher
from harness import Swath, record, torture
from test_torture_power import STREAMED, ground

ARRAY = """
import sys, numpy as np, swath
swath.to_geotiff(np.arange(300 * 420, dtype="f4").reshape(1, 300, 420), sys.argv[1], cog=True, tile_size=64)
"""

# Errors of a call, and whether they last: a full disk stays full.
FULL = {
    "ENOSPC": f"{{}} {errno.ENOSPC}",
    "ENOSPC from then on": f"{{}}+ {errno.ENOSPC}",
    "EDQUOT": f"{{}} {errno.EDQUOT}",
}
BROKEN = {
    "EIO": f"{{}} {errno.EIO}",
    "EINTR": f"{{}} {errno.EINTR}",
    "half a write": "{} SHORT",
}
# Errors that must be reported: after them the contents of the disk are unknown.
FINAL = (*FULL, "EIO")

WAYS = {
    "plain": ("convert", "--tile", "64"),
    "COG": ("convert", "--cog", "--tile", "64", "--compress", "zstd"),
    "COG over its source": ("itself", "--cog", "--tile", "64", "--compress", "lzw"),
    "a new file": ("fresh", "--tile", "64", "--compress", "none"),
    "beside side files": ("sides", "--tile", "64"),
    "preview": ("preview",),
    "an array": ("python", ARRAY),
}
LONG_WAYS = {
    "streamed COG": ("python", STREAMED),
    "large COG": ("large", "--cog", "--tile", "256", "--compress", "zstd", "--level", "1", "--max-memory", "24M"),
}
if torture() > 1:
    WAYS |= LONG_WAYS
# Python starts anew for every call, so `make test` tries some of them only.
STEPS = {"an array": 5}


@pytest.fixture(scope="module")
def watch() -> Iterator[Watcher]:
    with watcher() as library:
        yield library


@pytest.fixture(scope="module")
def source() -> Iterator[Path]:
    with on_disk() as folder:
        yield ground(folder / "source.tif", 300, 420)


@pytest.fixture(scope="module")
def large() -> Iterator[Path]:
    with on_disk() as folder:
        yield ground(folder / "large.tif", 3500, 3500)


class Scene:
    """A file, perhaps with others beside it, and a command that replaces it."""

    def __init__(self, swath: Swath, watch: Watcher, disk: Path, source: Path, large: Path, name: str) -> None:
        kind, *options = WAYS[name]
        self.watch, self.disk, self.path = watch, disk, disk / ("a.png" if kind == "preview" else "a.tif")
        read = self.path if kind == "itself" else source
        self.argv: list[object] = [swath.binary, "convert", read, self.path, *options, "-q"]
        if kind == "large":
            self.argv[2] = large
        if kind == "python":
            self.argv = [sys.executable, "-c", *options, self.path, "cog"]
        if kind == "preview":
            self.argv = [swath.binary, "preview", source, self.path, "--size", "200"]
        if kind == "itself":
            self.path.write_bytes(source.read_bytes())
        elif kind == "preview":
            self.path.write_bytes(b"old picture")
        elif kind != "fresh":
            made = swath.run("convert", source, self.path, "--window", "0,0,100,90")
            assert made.ok, made.stderr
        if kind == "sides":
            with rasterio.Env(TIFF_USE_OVR=True), rasterio.open(self.path, "r+") as file:
                file.build_overviews([2])
            (disk / "a.tif.aux.xml").write_text("<PAMDataset/>")
        self.before = {path.name: path.read_bytes() for path in disk.iterdir()}
        clean = watch.run(self.argv, disk)
        assert clean.code == 0 and clean.count > 5, clean
        self.count, self.after = clean.count, self.held()
        assert list(self.after) == [self.path.name]
        if kind != "preview":
            with rasterio.open(self.path) as dataset:
                dataset.read()
        self.reset()

    def held(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in self.disk.iterdir()}

    def reset(self) -> None:
        for path in self.disk.iterdir():
            path.unlink()
        for name, content in self.before.items():
            (self.disk / name).write_bytes(content)

    def state(self) -> str:
        content = self.path.read_bytes() if self.path.exists() else None
        return "new" if content == self.after[self.path.name] else (
            "old" if content == self.before.get(self.path.name) else "lost"
        )  # fmt: skip


def wrong(scene: Scene, fault: str, run: Watched) -> str | None:
    """The fault of a run in which a call failed, if any."""
    state, held = scene.state(), scene.held()
    if run.code not in (0, 1, 2) or "panicked" in run.output:
        return f"exit {run.code}"
    if state == "lost":
        return "the file is lost"
    kind = run.failed[0][0]
    if run.code == 0 and state == "old":
        return "reports success, and nothing happened"
    if run.code == 0 and kind == "sync" and fault in FINAL:
        return "reports success, and the disk did not"
    if run.code and not run.output.strip():
        return "says nothing"
    failing = {Path(name).name for kind, name in run.failed if kind == "unlink"}
    if state == "old" and any(held.get(name) != content for name, content in scene.before.items()):
        return f"the old file stays without what described it: {sorted(held)}"
    strays = [name for name in held if name not in scene.before and name not in scene.after and name not in failing]
    if failing & set(scene.before):
        # The note stays, which tells readers whether the side file counts.
        strays = [name for name in strays if not name.endswith("-beside")]
    if strays and fault != "ENOSPC from then on":
        return f"leaves {strays}"
    return None


@pytest.mark.parametrize("name", WAYS)
@pytest.mark.parametrize("scenario", ["W3", "W4"])
def test_every_call_fails(swath: Swath, watch: Watcher, source: Path, large: Path, scenario: str, name: str) -> None:
    with on_disk() as disk:
        scene = Scene(swath, watch, disk, source, large, name)
        step = STEPS.get(name, 1) if torture() == 1 else 1
        tries, faults = 0, []
        for number, (fault, word) in enumerate((FULL if scenario == "W3" else BROKEN).items()):
            for index in range(number % step, scene.count, step):
                run = watch.run(scene.argv, disk, fail=word.format(index))
                # The number of calls varies by a few from run to run.
                if run.failed:
                    tries += 1
                    if problem := wrong(scene, fault, run):
                        faults.append(f"{fault} at call {index}, {run.failed[0]}: {problem}: {run.output}")
                scene.reset()
        # A clean run removes all leftovers.
        assert watch.run(scene.argv, disk).code == 0
        assert scene.held() == scene.after
        record(scenario, f"call fails, {name}", tries, tries - len(faults), len(faults))
    assert not faults, f"{len(faults)} of {tries}:\n" + "\n".join(faults[:40])


@pytest.mark.parametrize("name", WAYS)
def test_killed_before_every_call(swath: Swath, watch: Watcher, source: Path, large: Path, name: str) -> None:
    """SIGKILL between any two calls; the next run removes the leftovers."""
    with on_disk() as disk:
        scene = Scene(swath, watch, disk, source, large, name)
        step = STEPS.get(name, 1) if torture() == 1 else 1
        tries, faults = 0, []
        for index in range(0, scene.count, step):
            run = watch.run(scene.argv, disk, fail=f"{index} KILL")
            tries += 1
            if scene.state() == "lost":
                faults.append(f"killed before call {index}, {run.failed}: the file is lost")
            elif (again := watch.run(scene.argv, disk)).code != 0 or scene.held() != scene.after:
                faults.append(f"killed before call {index}, {run.failed}: then {sorted(scene.held())}: {again.output}")
            scene.reset()
        record("W1", f"killed before every call, {name}", tries, tries - len(faults), len(faults))
    assert not faults, "\n".join(faults)
