"""What happens to a file when its writer is killed, interrupted, out of space or not alone; and the writer's memory.

Scenarios W1, W3, W6, W7 and W10 of the reliability list, through the tool itself. Failing calls (W4) and every way to
hand rows over are Rust tests.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import re
import resource
import shutil
import signal
import struct
import subprocess
import threading
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
import rasterio
import tifffile
from harness import MIB, Swath, record, scratch, torture
from rasterio.windows import Window

TILE = 512


def digest(path: Path) -> str:
    return hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest()


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def strays(folder: Path) -> list[str]:
    return [name for name in names(folder) if name.startswith(".swath")]


def readable(path: Path) -> None:
    with rasterio.open(path) as dataset:
        dataset.read(1, window=Window(0, 0, 64, 64))


@pytest.fixture(scope="module")
def source() -> Iterator[Path]:
    """25 MB of smooth ground with noise on it: a few hundred milliseconds of work for any codec."""
    with scratch() as name:
        path = Path(name) / "source.tif"
        rng = np.random.default_rng(1)
        y, x = np.mgrid[0:3500, 0:3500]
        ground = (x * 3 + y * 5 + rng.integers(0, 256, (3500, 3500))).astype("u2")
        tifffile.imwrite(path, ground, tile=(TILE, TILE), photometric="minisblack")
        yield path


@pytest.fixture(scope="module")
def small() -> Iterator[Path]:
    """6 MB of noise, whose files are about as long with every codec."""
    with scratch() as name:
        path = Path(name) / "small.tif"
        noise = np.random.default_rng(2).integers(0, 65536, (1800, 1800)).astype("u2")
        tifffile.imwrite(path, noise, tile=(256, 256), photometric="minisblack")
        yield path


def start(swath: Swath, *arguments: object, **options: object) -> subprocess.Popen[str]:
    argv = [str(swath.binary), "convert", *map(str, arguments)]
    return subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, **options)  # type: ignore[call-overload]


def convert(swath: Swath, *arguments: object, timeout: float = 60) -> None:
    run = swath.run("convert", *arguments, timeout=timeout)
    run.check_alive()
    assert run.ok, run.stderr


@dataclass
class Scene:
    """An old file, and the new one that a conversion writes in its place."""

    swath: Swath
    source: Path
    path: Path
    options: tuple[str, ...]
    old: bytes = b""
    seconds: float = 0
    size: int = 0
    states: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.path == self.source:
            self.old = self.path.read_bytes()
        else:
            convert(self.swath, self.source, self.path, "--window", "0,0,700,700")
            self.old = self.path.read_bytes()
        self.states[digest(self.path)] = "old"
        began = time.perf_counter()
        convert(self.swath, self.source, self.path, *self.options)
        self.seconds = time.perf_counter() - began
        self.states[digest(self.path)] = "new"
        self.size = self.path.stat().st_size
        assert len(self.states) == 2
        readable(self.path)
        self.reset()

    def reset(self) -> None:
        # Under a new name, as a careful writer does: the file is never partial.
        aside = self.path.with_name("aside")
        aside.write_bytes(self.old)
        aside.rename(self.path)

    def state(self) -> str:
        """Which file is there; restores `old` for the next try."""
        state = self.states.get(digest(self.path), "lost") if self.path.exists() else "gone"
        if state in ("old", "new"):
            readable(self.path)
        if state != "old":
            self.reset()
        return state

    def start(self, **options: object) -> subprocess.Popen[str]:
        return start(self.swath, self.source, self.path, *self.options, "-q", **options)

    def finish(self) -> None:
        """Checks that the next run succeeds and removes leftovers."""
        convert(self.swath, self.source, self.path, *self.options)
        assert digest(self.path) in self.states
        assert strays(self.path.parent) == []
        self.reset()


KILLED = {
    "plain-none": ("--compress", "none"),
    "plain-deflate": ("--compress", "deflate", "--level", "1"),
    "cog-zstd": ("--cog", "--compress", "zstd", "--level", "1"),
    "cog-lzw": ("--cog", "--compress", "lzw"),
    "cog-none-disk": ("--cog", "--compress", "none"),
    "cog-over-its-source": ("--cog", "--compress", "packbits", "--overviews", "2"),
}


@pytest.mark.parametrize("name", KILLED)
def test_killed_at_any_moment(swath: Swath, folder: Path, tmp_path: Path, source: Path, name: str) -> None:
    """W1: the file is the old one or the new one, and the next run removes the leftovers of the killed one."""
    if name.endswith("disk"):
        # Here the file system removes gaps, and bytes really have to reach a disk.
        folder = tmp_path
    path = folder / "out.tif"
    if name.endswith("source"):
        path = folder / "source.tif"
        shutil.copyfile(source, path)
        source = path
    scene = Scene(swath, source, path, KILLED[name])
    rng = random.Random(name)
    tries, count = 36 * torture(), {"old": 0, "new": 0}
    left = 0
    for number in range(tries):
        # Over the whole run, one moment in each part of it, and a little beyond its end.
        moment = scene.seconds * 1.15 * (number + rng.random()) / tries
        process = scene.start()
        time.sleep(moment)
        process.kill()
        process.communicate()
        left += bool(strays(folder))
        state = scene.state()
        assert state in count, f"killed after {moment:.3f} of {scene.seconds:.3f} s: the file is {state}"
        count[state] += 1
    scene.finish()
    print(f"{name}: {count['old']} old, {count['new']} new; part files left {left}, then 0")
    record("W1", f"killed at random, {name}", tries, tries, 0)
    assert count["old"], "nothing was killed early enough"


@contextlib.contextmanager
def mounted(folder: Path) -> Iterator[None]:
    """A file system of our own in memory; skips where that is not allowed."""
    if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "swath-test", str(folder)], check=False).returncode:
        pytest.skip("file systems cannot be mounted here")
    try:
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def remount(folder: Path, options: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{options}", str(folder)], check=True)


FULL = {"plain": ("--compress", "zstd", "--tile", "256"), "cog": ("--cog", "--compress", "zstd", "--tile", "256")}


@pytest.mark.parametrize("name", FULL)
def test_full_disk(swath: Swath, tmp_path: Path, small: Path, name: str) -> None:
    """W3: wherever space runs out, the old file stays, and the space is freed again."""
    folder = tmp_path / "full"
    folder.mkdir()
    with mounted(folder):
        scene = Scene(swath, small, folder / "out.tif", FULL[name])
        need = scene.size
        stats = os.statvfs(folder)
        used = (stats.f_blocks - stats.f_bfree) * stats.f_frsize
        errors = 0
        parts = 36 if torture() == 1 else 100
        for part in range(parts):
            remount(folder, f"size={(used + need * part // parts + 4095) // 4096 * 4096 or 4096}")
            free = os.statvfs(folder).f_bfree
            run = swath.run("convert", small, scene.path, *scene.options)
            message = run.check_refusal(scene.path)
            assert "No space left" in message, message
            assert digest(scene.path) in scene.states and scene.path.read_bytes() == scene.old
            assert names(folder) == ["out.tif"]
            assert os.statvfs(folder).f_bfree == free, "the room was not given back"
            errors += 1
        remount(folder, f"size={used + 3 * need}")
        # Space for bytes, but for no further file.
        stats = os.statvfs(folder)
        remount(folder, f"nr_inodes={stats.f_files - stats.f_ffree}")
        assert "No space left" in swath.run("convert", small, scene.path, *scene.options).check_refusal(scene.path)
        assert names(folder) == ["out.tif"] and scene.path.read_bytes() == scene.old
        remount(folder, f"nr_inodes={stats.f_files}")
        scene.finish()
        record("W3", f"disk full at every part of the output, {name}", errors, errors, 0)


@pytest.mark.parametrize("name", FULL)
def test_file_size_limit(swath: Swath, folder: Path, small: Path, name: str) -> None:
    """Like a full disk, through the limit of the shell (`ulimit -f`), which needs no root."""
    scene = Scene(swath, small, folder / "out.tif", FULL[name])

    def limited(size: int) -> subprocess.CompletedProcess[str]:
        argv = [str(swath.binary), "convert", str(small), str(scene.path), *scene.options]
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))  # noqa: E731
        return subprocess.run(argv, preexec_fn=limit, capture_output=True, text=True, timeout=30, check=False)

    for part in range(32):
        run = limited(scene.size * part // 32)
        assert run.returncode == 2, run.stderr
        assert run.stderr.startswith("error: ") and "out.tif" in run.stderr and "too large" in run.stderr, run.stderr
        assert scene.state() == "old"
        assert strays(folder) == []


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_interrupted(swath: Swath, folder: Path, source: Path, name: str) -> None:
    """W10: the tool ends within a second, removes its leftovers, and reports the state of the file."""
    scene = Scene(swath, source, folder / "out.tif", ("--cog", "--compress", "zstd", "--level", "3"))
    rng = random.Random(name)
    longest, codes = 0.0, {}
    tries = 20 * torture()
    for number in range(tries):
        process = scene.start()
        time.sleep(scene.seconds * 1.1 * (number + rng.random()) / tries)
        began = time.perf_counter()
        process.send_signal(getattr(signal, name))
        _, stderr = process.communicate(timeout=10)
        longest = max(longest, time.perf_counter() - began)
        code = process.returncode
        codes[code] = codes.get(code, 0) + 1
        assert strays(folder) == [], f"exit {code}: {stderr}"
        state = scene.state()
        # Before the tool handles interrupts, it has begun nothing and may die as any program.
        assert (code, state) in ((130, "old"), (0, "new"), (-getattr(signal, name), "old")), (
            f"{code}, {state}: {stderr}"
        )
        assert code != 130 or stderr.startswith("interrupted: "), stderr
    record("W10", f"{name}, over within {longest * 1000:.0f} ms", tries, tries, 0)
    assert longest < 1
    assert codes.get(130, 0) >= 5, codes


def test_interrupted_in_the_middle_of_a_long_tile(swath: Swath, folder: Path, source: Path) -> None:
    """W10 with the slowest codec: one tile takes lzma many seconds."""
    process = start(swath, source, folder / "out.tif", "--compress", "lzma", "--level", "9", "--tile", "3072", "-q")
    try:
        time.sleep(0.7)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=1)
        assert process.returncode == 130
        assert names(folder) == []
    except subprocess.TimeoutExpired:
        pytest.fail("still at work after a second")
    finally:
        process.kill()
        process.communicate()


def test_two_writers_and_a_reader(swath: Swath, folder: Path, small: Path) -> None:
    """W6: the last writer wins, and readers only ever see a complete file."""
    path = folder / "out.tif"
    ways = [("--compress", "none"), ("--cog", "--compress", "packbits")]
    states = {}
    for way in ways:
        convert(swath, small, path, *way)
        states[digest(path)] = " ".join(way)
    assert len(states) == 2
    seen: dict[str, int] = {}
    faults: list[str] = []
    stop = threading.Event()

    def reader() -> None:
        while not stop.is_set():
            try:
                state = states.get(digest(path), "torn")
                seen[state] = seen.get(state, 0) + 1
                readable(path)
            except Exception as fault:
                faults.append(repr(fault))

    thread = threading.Thread(target=reader)
    thread.start()
    try:
        for _ in range(30 * torture()):
            writers = [start(swath, small, path, *way, "-q") for way in ways]
            for writer in writers:
                _, stderr = writer.communicate(timeout=30)
                assert writer.returncode == 0, stderr
            assert strays(folder) == []
    finally:
        stop.set()
        thread.join()
    reads, torn = sum(seen.values()), seen.get("torn", 0)
    record("W6", f"reads during {60 * torture()} writes by two writers", reads, reads - torn, torn)
    assert faults == []
    assert set(seen) <= set(states.values())
    assert sum(seen.values()) >= 30


# ------------------------------------------------------------------------------------------------------ unusual places


def test_source_is_the_destination(swath: Swath, folder: Path, small: Path) -> None:
    path, link = folder / "a.tif", folder / "link.tif"
    shutil.copyfile(small, path)
    link.symlink_to(path)
    want = tifffile.imread(small)
    for target in (path, link, folder / "." / "a.tif"):
        convert(swath, path, target, "--cog", "--compress", "zstd")
        with rasterio.open(path) as dataset:
            assert (dataset.read(1) == want).all()
            assert dataset.overviews(1)
    # A conversion that fails half way leaves its source.
    before = digest(path)
    run = swath.run("convert", path, path, "--max-memory", "1M")
    run.check_refusal()
    assert digest(path) == before and strays(folder) == []


def test_link_stays_a_link(swath: Swath, folder: Path, small: Path) -> None:
    (folder / "real").mkdir()
    link, real = folder / "link.tif", folder / "real" / "a.tif"
    link.symlink_to(Path("real") / "a.tif")
    for _ in range(2):
        # First to a file that does not exist yet.
        convert(swath, small, link)
        assert link.is_symlink() and real.is_file() and not real.is_symlink()
        readable(link)
        assert strays(folder) == strays(real.parent) == []
    loop = folder / "loop.tif"
    loop.symlink_to(loop.name)
    run = swath.run("convert", small, loop)
    run.check_refusal(loop)
    assert loop.is_symlink()


def test_read_only_folder(swath: Swath, tmp_path: Path, small: Path) -> None:
    folder = tmp_path / "closed"
    folder.mkdir()
    with mounted(folder):
        (folder / "a.tif").write_bytes(b"old")
        remount(folder, "ro")
        for path in (folder / "a.tif", folder / "new.tif"):
            swath.run("convert", small, path).check_refusal(path)
        assert (folder / "a.tif").read_bytes() == b"old" and names(folder) == ["a.tif"]


def test_read_only_file(swath: Swath, folder: Path, small: Path) -> None:
    path = folder / "a.tif"
    path.write_bytes(b"old")
    path.chmod(0o444)
    assert "read-only" in swath.run("convert", small, path).check_refusal(path)
    assert path.read_bytes() == b"old" and strays(folder) == []


def test_unusual_names(swath: Swath, folder: Path, small: Path) -> None:
    for name in ("n" * 255, "é" * 127, "a b'c\"d.tif", "\n.tif", ".tif", "-- x.tif"):
        path = folder / name
        convert(swath, small, path, "--window", "0,0,64,64")
        readable(path)
    assert strays(folder) == []
    for path in (folder / ("n" * 256), folder / "/".join(["d" * 200] * 25) / "a.tif", folder / "no" / "a.tif", folder):
        run = swath.run("convert", small, path)
        run.check_alive()
        assert run.code == 2 and run.stderr.startswith("error: "), run.stderr
    assert strays(folder) == []


def test_streams(swath: Swath, folder: Path, small: Path) -> None:
    """Standard output, pipes and devices get the same bytes in order, or an error; no temporary file is left."""
    spool = folder / "spool"
    spool.mkdir()
    environment = {**os.environ, "TMPDIR": str(spool)}
    argv = [str(swath.binary), "convert", str(small), "-", "--cog"]
    convert(swath, small, folder / "a.tif", "--cog")
    want = (folder / "a.tif").read_bytes()
    run = subprocess.run(argv, capture_output=True, env=environment, timeout=30, check=False)
    assert run.returncode == 0 and run.stdout == want, run.stderr
    pipe = folder / "pipe"
    os.mkfifo(pipe)
    argv[3] = str(pipe)
    writer = subprocess.Popen(argv, env=environment)
    assert pipe.read_bytes() == want
    assert writer.wait(timeout=30) == 0
    convert(swath, small, "/dev/null")
    if Path("/dev/full").exists():
        message = swath.run("convert", small, "/dev/full").check_refusal("/dev/full")
        assert "No space left" in message
    # The reader closes the pipe.
    argv[3] = "-"
    cut = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
    assert cut.stdout is not None and cut.stderr is not None
    cut.stdout.read(10)
    cut.stdout.close()
    stderr = cut.stderr.read().decode()
    assert cut.wait(timeout=30) == 2 and "panicked" not in stderr, stderr
    # Also killed at any moment.
    for part in range(15):
        killed = subprocess.Popen(argv, stdout=subprocess.DEVNULL, env=environment)
        time.sleep(0.01 * part)
        killed.kill()
        killed.wait()
        assert names(spool) == []


# -------------------------------------------------------------------------------------------------------------- memory


def layered(
    path: Path, width: int, height: int, bands: int, dtype: str, mask: bool = False, sparse: bool = False
) -> None:
    """A tiled Deflate BigTIFF that repeats a few tiles: quick to make at any size, yet as long as a real one."""
    across, down = -(-width // TILE), -(-height // TILE)
    count = across * down
    rng = np.random.default_rng(3)
    draw = [rng.integers(0, 1000, TILE * TILE * bands).astype(dtype).tobytes() for _ in range(3)]
    kinds = [[zlib.compress(tile, 1) for tile in draw]]
    if mask:
        bits = [rng.integers(0, 256, TILE * TILE // 8, "u1").tobytes() for _ in range(3)]
        kinds.append([zlib.compress(tile, 1) for tile in bits])
    with path.open("wb") as file:
        file.write(struct.pack("<2sHHHQ", b"II", 43, 8, 0, 16))
        position, data = 16, 0
        entries, sizes = 12, [20 * 12 + 16] * len(kinds)
        tables = 16 + sum(sizes)
        for number, tiles in enumerate(kinds):
            lengths = np.array([0 if sparse else len(tiles[i % 3]) for i in range(count)], "<u8")
            data = tables + 16 * count * (len(kinds) - number) if number == 0 else data
            offsets = np.zeros(count, "<u8") if sparse else data + np.cumsum(lengths) - lengths
            data += int(lengths.sum())
            first = number == 0
            depth = np.dtype(dtype).itemsize * 8 if first else 1
            samples = bands if first else 1
            same = int.from_bytes(struct.pack("<4H", *([depth] * samples + [0] * (4 - samples))), "little")
            tags = [
                (254, 4, 1, 0 if first else 4), (256, 4, 1, width), (257, 4, 1, height), (258, 3, samples, same),
                (259, 3, 1, 8), (262, 3, 1, 1 if first else 4), (277, 3, 1, samples), (284, 3, 1, 1), (322, 4, 1, TILE),
                (323, 4, 1, TILE), (324, 16, count, tables), (325, 16, count, tables + 8 * count),
            ]  # fmt: skip
            if count == 1:
                tags[-2], tags[-1] = (324, 16, 1, int(offsets[0])), (325, 16, 1, int(lengths[0]))
            file.seek(position)
            file.write(struct.pack("<Q", entries) + b"".join(struct.pack("<HHQQ", *tag) for tag in tags))
            position += sizes[number]
            file.write(struct.pack("<Q", position if number + 1 < len(kinds) else 0))
            file.seek(tables)
            file.write(offsets.astype("<u8").tobytes() + lengths.tobytes())
            tables += 16 * count
            if not sparse:
                file.seek(int(offsets[0]))
                for i in range(count):
                    file.write(tiles[i % 3])


HELD = {
    "deflate": ((3000, 12000), 1, "u2", False, ("--compress", "deflate", "--level", "1")),
    "none": ((3000, 12000), 1, "u2", False, ("--compress", "none")),
    "mask": ((3000, 9000), 1, "u2", True, ("--compress", "zstd", "--level", "1")),
    "bands": ((4000, 8000), 4, "u1", False, ("--compress", "packbits")),
    "bands-apart": ((4000, 8000), 4, "u1", False, ("--compress", "zstd", "--level", "1", "--interleave", "band")),
    "cast": ((3000, 6000), 1, "u2", False, ("--compress", "zstd", "--level", "1", "--dtype", "float32")),
}  # fmt: skip


@pytest.mark.parametrize("name", HELD)
def test_memory_does_not_grow_with_the_raster(swath: Swath, folder: Path, name: str) -> None:
    sides, bands, dtype, mask, options = HELD[name]
    peaks = []
    for side in sides:
        path, out = folder / f"{side}.tif", folder / f"{side}-out.tif"
        layered(path, side, side, bands, dtype, mask)
        run = swath.run("convert", path, out, "--cog", "--max-memory", "64M", *options, timeout=120)
        run.check_alive()
        assert run.ok, run.stderr
        peaks.append(run.peak)
        with rasterio.open(path) as a, rasterio.open(out) as b:
            assert b.overviews(1) and a.shape == b.shape
            corner = Window(side - 300, side - 300, 300, 300)
            assert (a.read(window=corner) == b.read(window=corner)).all()
            if mask:
                assert (a.dataset_mask(window=corner) == b.dataset_mask(window=corner)).all()
        path.unlink()
        out.unlink()
    summary = f"{name}: {peaks[0] / MIB:.0f} MiB for {sides[0]}², {peaks[1] / MIB:.0f} MiB for {sides[1]}²"
    print(summary)
    assert max(peaks) <= 128 * MIB, summary
    assert peaks[1] - peaks[0] <= 16 * MIB, summary


def test_memory_of_one_huge_strip(swath: Swath, folder: Path) -> None:
    """Refused with the bytes that it needs, or done within the limit; never done beyond it."""
    path, out = folder / "strip.tif", folder / "out.tif"
    noise = np.random.default_rng(4).integers(0, 1000, (8000, 8000)).astype("u2")
    tifffile.imwrite(
        path, noise, rowsperstrip=8000, compression="zlib", compressionargs={"level": 1}, photometric="minisblack"
    )
    run = swath.run("convert", path, out, "--cog", "--compress", "none", "--max-memory", "64M")
    run.check_alive()
    if not run.ok:
        assert "takes" in run.check_refusal(path)
    assert run.peak <= 128 * MIB, f"{run.peak / MIB:.0f} MiB"


def test_huge_raster_is_refused_or_streamed(swath: Swath, folder: Path) -> None:
    path, out = folder / "huge.tif", folder / "out.tif"
    layered(path, 200_000, 200_000, 1, "u1", sparse=True)
    run = swath.run("convert", path, out, "--cog", "--max-memory", "64M")
    assert "takes" in run.check_refusal(path)
    assert run.seconds < 2 and run.peak <= 64 * MIB and not out.exists()
    # A strip of it, as long as it is wide: 200,000 columns, three levels of pyramids in flight.
    window = ("--window", "0,1000,200000,1200")
    run = swath.run("convert", path, out, *window, "--unlimited", "--tile", "128", "--max-memory", "128M", timeout=60)
    run.check_alive()
    assert run.ok, run.stderr
    assert run.peak <= 192 * MIB, f"{run.peak / MIB:.0f} MiB"


def test_wide_raster_is_refused_with_the_memory_it_needs(swath: Swath, folder: Path) -> None:
    path, out = folder / "wide.tif", folder / "out.tif"
    layered(path, 300_000, 600, 1, "u1")
    memory, refusals = 16 * MIB, []
    for _ in range(6):
        run = swath.run("convert", path, out, "--cog", "--compress", "zstd", "--level", "1", "--max-memory", memory)
        run.check_alive()
        if run.ok:
            break
        error = run.check_refusal(path)
        refusals.append(error)
        assert "or raise --max-memory" in error, error
        assert not out.exists() and strays(folder) == []
        numbers = [int(number) for number in re.findall(r"\b\d{6,}\b", error)]
        memory = max(memory * 2, *numbers)
    assert refusals and run.ok, refusals
    assert any(re.search(r"takes \d+ bytes of memory, \d+ are allowed", error) for error in refusals), refusals
    print(f"wide: {len(refusals)} refusals, done in {memory / MIB:.0f} MiB with a peak of {run.peak / MIB:.0f} MiB")
    assert run.peak <= memory + 64 * MIB
