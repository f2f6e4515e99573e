"""Runs the command line tool and reads the files that it wrote."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import tempfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
CORPUS = ROOT / "corpus"
SHARED_CORPUS = ROOT / os.environ.get("SHARED_CORPUS", "../shared/corpus")
SHARED_RASTERS = ROOT / os.environ.get("SHARED_RASTERS", "../shared/real")
UNDER_CI = os.environ.get("CI", "").lower() in ("true", "1")

MIB = 1 << 20


def shared(path: Path) -> Path:
    """A file or folder of `../shared`; if it is missing, the test is skipped, or fails under CI."""
    if not path.exists():
        assert not UNDER_CI, f"{path} is missing, and under CI it must be there"
        pytest.skip(f"{path.name} is not beside the checkout")
    return path


# Memory that the corpus allows any file: 256 MB, and six times the decoded array.
BASE_MEMORY = 256 * 1000 * 1000

Window = tuple[int, int, int, int]


@dataclass
class Run:
    """One finished command."""

    argv: list[str]
    code: int
    stdout: str
    stderr: str
    seconds: float
    peak: int
    timed_out: bool

    @property
    def ok(self) -> bool:
        return self.code == 0

    def check_alive(self) -> None:
        """No file may make the tool panic, hang or die."""
        what = " ".join(self.argv)
        assert not self.timed_out, f"hung: {what}"
        assert "panicked" not in self.stderr, f"panic: {what}\n{self.stderr}"
        assert self.code in (0, 1, 2), f"exit {self.code}: {what}\n{self.stderr}"

    def check_refusal(self, path: Path | str | None = None) -> str:
        """Checks that the error is one line that names the file and the fault; returns that line."""
        self.check_alive()
        assert self.code == 2, f"expected a refusal, got exit {self.code}: {' '.join(self.argv)}\n{self.stderr}"
        errors = [line for line in self.stderr.splitlines() if line.startswith("error: ")]
        assert len(errors) == 1, f"expected one line `error: ...`, got:\n{self.stderr}"
        if path is not None:
            assert Path(path).name in errors[0], f"the error does not name the file: {errors[0]}"
        message = errors[0].removeprefix("error: ").replace(str(path), "") if path else errors[0]
        assert len(message.split()) >= 3, f"the error does not say what is wrong: {errors[0]}"
        return errors[0]


class Refused(Exception):  # noqa: N818 - it is an outcome here, not a fault of the test
    """The tool refused the file."""

    def __init__(self, run: Run) -> None:
        super().__init__(run.stderr.strip())
        self.run = run


class Swath:
    """The command line tool, one process a call."""

    def __init__(self, binary: Path, folder: Path) -> None:
        self.binary, self.folder = binary, folder
        self.numbers = itertools.count()
        launcher = Path(__file__).with_name("launcher.py")
        self.launcher = subprocess.Popen(
            [sys.executable, "-S", "-E", str(launcher)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def close(self) -> None:
        if self.launcher.stdin:
            self.launcher.stdin.close()
        self.launcher.wait()

    def run(self, *arguments: object, timeout: float = 30) -> Run:
        argv = [str(self.binary), *map(str, arguments)]
        stdout, stderr = self.folder / "stdout", self.folder / "stderr"
        request = {"argv": argv, "stdout": str(stdout), "stderr": str(stderr), "timeout": timeout}
        assert self.launcher.stdin is not None
        assert self.launcher.stdout is not None
        self.launcher.stdin.write(json.dumps(request) + "\n")
        self.launcher.stdin.flush()
        answer = json.loads(self.launcher.stdout.readline())
        assert "fault" not in answer, answer
        return Run(
            argv=argv,
            stdout=stdout.read_text(errors="replace"),
            stderr=stderr.read_text(errors="replace"),
            **answer,
        )

    def dump_run(
        self,
        path: Path | str,
        out: Path,
        window: Window | None = None,
        bands: list[int] | None = None,
        overview: int | None = None,
        ifd: int | None = None,
        mask: bool = False,
        stored: bool = False,
        timeout: float = 30,
    ) -> Run:
        arguments: list[object] = ["dump", path, "--out", out]
        if window is not None:
            arguments += ["--window", ",".join(map(str, window))]
        if bands is not None:
            arguments += ["--bands", ",".join(map(str, bands))]
        if overview is not None:
            arguments += ["--overview", overview]
        if ifd is not None:
            arguments += ["--ifd", ifd]
        if stored:
            arguments.append("--stored")
        if mask:
            arguments.append("--mask")
        return self.run(*arguments, timeout=timeout)

    def dump(self, path: Path | str, **options: Any) -> np.ndarray:
        """The array, or `Refused`; a panic, a hang or an array left behind by a refusal fails at once."""
        out = self.folder / f"{next(self.numbers)}.npy"
        try:
            run = self.dump_run(path, out, **options)
            run.check_alive()
            if not run.ok:
                assert not out.exists(), f"refused, but left an array behind: {path}"
                raise Refused(run)
            return np.load(out, allow_pickle=False)
        finally:
            out.unlink(missing_ok=True)

    def info(self, path: Path | str, *options: str) -> dict[str, Any]:
        run = self.run("info", path, "--json", *options)
        run.check_alive()
        if not run.ok:
            raise Refused(run)
        return json.loads(run.stdout)


def scratch() -> tempfile.TemporaryDirectory[str]:
    """A folder in memory where there is one: the tests write and read back tens of thousands of small files."""
    shm = Path("/dev/shm")
    roomy = shm.is_dir() and os.access(shm, os.W_OK)
    if roomy:
        stats = os.statvfs(shm)
        roomy = stats.f_bavail * stats.f_frsize > 2 << 30
    return tempfile.TemporaryDirectory(prefix="swath-test-", dir=shm if roomy else None)


def crc32(array: np.ndarray) -> str:
    return f"{zlib.crc32(np.ascontiguousarray(array).tobytes()):08x}"


def same(a: np.ndarray, b: np.ndarray) -> bool:
    """Bit for bit: a NaN equals the NaN with the same bits, and -0.0 is not 0.0."""
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def difference(got: np.ndarray, want: np.ndarray) -> str:
    """Describes where two arrays differ."""
    if got.dtype != want.dtype or got.shape != want.shape:
        return f"got {got.dtype} {got.shape}, want {want.dtype} {want.shape}"
    size = got.dtype.itemsize
    left = np.frombuffer(got.tobytes(), "u1").reshape(-1, size)
    right = np.frombuffer(want.tobytes(), "u1").reshape(-1, size)
    places = np.flatnonzero((left != right).any(axis=1))
    if not len(places):
        return "equal"
    where = tuple(int(i) for i in np.unravel_index(places[0], got.shape))
    return f"{len(places)} of {got.size} differ, first at {where}: got {got[where]!r}, want {want[where]!r}"


def numbers_equal(got: float | str | None, want: float | str | None, relative: float = 0.0) -> bool:
    """Compares numbers as JSON carries them: `null`, and the words `nan`, `inf`, `-inf` where JSON has no number."""
    if got is None or want is None:
        return got is None and want is None
    a, b = float(got), float(want)
    if np.isnan(a) or np.isnan(b):
        return bool(np.isnan(a) and np.isnan(b))
    return a == b or abs(a - b) <= relative * max(abs(a), abs(b))


IDENTITY = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0)


def transform_of(info: dict[str, Any]) -> tuple[float, ...]:
    """Six numbers a..f; a file without georeferencing has the identity, as in rasterio."""
    transform = info.get("transform")
    return tuple(map(float, transform[:6])) if transform else IDENTITY


def torture() -> int:
    """How many times as long as usual the torture tests run: `SWATH_TORTURE`, 1 in `make test`."""
    return max(1, int(os.environ.get("SWATH_TORTURE", "1")))


def record(scenario: str, what: str, tries: int, survived: int, lost: int) -> None:
    """Adds one line to the report of `make torture`, where `SWATH_TORTURE_REPORT` names a file for it."""
    print(f"{scenario} {what}: {tries} tries, {survived} survived, {lost} lost")
    if path := os.environ.get("SWATH_TORTURE_REPORT"):
        line = {"scenario": scenario, "what": what, "tries": tries, "survived": survived, "lost": lost}
        with Path(path).open("a") as file:
            file.write(json.dumps(line) + "\n")
