#!/usr/bin/env python3
"""Times and counts reads over a network whose every answer takes 50 ms, against GDAL's /vsicurl and async-geotiff.

A server on loopback, in a process of its own, waits before each answer. Every engine opens the file anew and reads the
same window in the same round, in turn, under an address that is new to all. The first round is not timed: its pixels
are compared, and an engine that gives others is dropped. GDAL runs with its defaults (without a listing of the folder),
and with the settings that guides to cloud-optimized files recommend and all cores.

    python bench/remote.py [--quick] [--rounds N] [--latency MS]

writes tables to standard output and bench/out/remote.{md,json}. Goals are reported, never asserted.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import json
import os
import statistics
import subprocess
import sys
import time
import urllib.request
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
DATA, OUT = HERE / "data", HERE / "out"
TESTS = HERE.parent / "tests" / "python"
sys.path.insert(0, str(TESTS))

from remote_readers import READERS, Box  # noqa: E402 - from the folder of the tests

THREADS = os.cpu_count() or 1
GOAL = 2.0

numbers = itertools.count()


@dataclass
class Row:
    """One window, and the figures of each engine for it."""

    name: str
    seconds: dict[str, list[float]] = field(default_factory=dict)
    requests: dict[str, int] = field(default_factory=dict)
    received: dict[str, int] = field(default_factory=dict)
    checks: dict[str, str] = field(default_factory=dict)

    def median(self, name: str) -> float:
        return statistics.median(self.seconds[name])


def make_cog(size: int) -> Path:
    """Reflectance-like u16: smooth ground with noise, which Deflate compresses to about two thirds."""
    path = DATA / "remote" / f"s2-deflate-{size}.tif"
    if path.is_file():
        return path
    import swath

    path.parent.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(4)
    y, x = np.mgrid[0:size, 0:size].astype("f4")
    ground = 2000 + 900 * np.sin(x / 190) * np.cos(y / 230) + rng.normal(0, 60, (size, size)).astype("f4")
    transform = (10.0, 0.0, 4e5, 0.0, -10.0, 52e5)
    words = {"cog": True, "compression": "deflate", "compression_level": 6, "tile_size": 512}
    swath.to_geotiff(ground.astype("u2"), path, crs=32633, transform=transform, **words)
    return path


@contextmanager
def served(folder: Path, latency: float) -> Iterator[str]:
    command = [sys.executable, str(TESTS / "remote.py"), str(folder), "--latency", str(latency)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.stdin.close()
        process.wait(10)


def traffic(url: str) -> dict[str, int]:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"{url}/-/traffic") as answer:
        return json.load(answer)


def measure(name: str, url: str, file: str, box: Box, rounds: int) -> Row:
    row = Row(name)
    wanted: int | None = None
    for turn in range(rounds + 1):
        for engine, reader in READERS.items():
            if row.checks.get(engine, "equal") != "equal":
                continue
            traffic(url)
            # No two reads share an address, so that no cache helps.
            address = f"{url}/{next(numbers)}/{file}"
            started = time.perf_counter()
            pixels = reader.read(address, box)
            seconds = time.perf_counter() - started
            counts = traffic(url)
            if turn:
                row.seconds.setdefault(engine, []).append(seconds)
                continue
            digest = zlib.crc32(np.ascontiguousarray(pixels).tobytes())
            wanted = digest if wanted is None else wanted
            row.checks[engine] = "equal" if digest == wanted else "DIFFERENT"
            row.requests[engine], row.received[engine] = counts["requests"], counts["bytes"]
    medians = ", ".join(f"{engine} {row.median(engine):.3f}" for engine in row.seconds)
    print(f"{name}: {medians}", file=sys.stderr)
    return row


def report(rows: list[Row], verdicts: list[tuple[str, str, bool]], args: argparse.Namespace) -> str:
    from run import cpu

    names = list(READERS)
    lines = [
        "# Benchmark of reads over a network", "",
        f"{datetime.date.today()}, {cpu()}, {THREADS} threads, HTTP on loopback, {args.latency:g} ms before each "
        f"answer, u16 COG with Deflate in tiles of 512, opened and read anew, medians of {args.rounds} rounds.", "",
        ", ".join(f"{name} {number}" for name, number in versions().items()), "",
        "Seconds (requests, MB).", "",
        "| window | " + " | ".join(names) + " | checked |",
        "| --- | " + " | ".join("---:" for _ in names) + " | --- |",
    ]  # fmt: skip
    for row in rows:
        cells = [
            f"{row.median(name):.3f} ({row.requests[name]}, {row.received[name] / 1e6:.2f})"
            if name in row.seconds
            else "-"
            for name in names
        ]
        odd = "; ".join(f"{name} {text}" for name, text in row.checks.items() if text != "equal")
        lines.append(f"| {row.name} | {' | '.join(cells)} | {odd or 'equal'} |")
    lines += ["", "| goal | measured | |", "| --- | --- | --- |"]
    lines += [f"| {text} | {measured} | {'PASS' if met else 'FAIL'} |" for text, measured, met in verdicts]
    return "\n".join(lines) + "\n"


def versions() -> dict[str, str]:
    import rasterio
    import swath

    return {
        "swath": swath.__version__,
        "rasterio": rasterio.__version__,
        "GDAL": rasterio.__gdal_version__,
        "async-geotiff": version("async-geotiff"),
        "obstore": version("obstore"),
    }


def goals(rows: list[Row]) -> list[tuple[str, str, bool]]:
    """Goals for the large windows, against GDAL with its defaults and tuned."""
    found = []
    for row in rows:
        for rival in row.seconds if row.name.startswith("4096") else ():
            if rival.startswith("GDAL"):
                times = row.median(rival) / row.median("swath")
                found.append((f"{row.name}: {GOAL:g} × as fast as {rival}", f"{times:.2f} ×", times >= GOAL))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a smaller file and the small windows only")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--latency", type=float, default=50.0, help="milliseconds")
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    os.environ.update(dict.fromkeys(("no_proxy", "NO_PROXY"), "127.0.0.1,localhost"))
    sys.path.insert(0, str(HERE))
    OUT.mkdir(parents=True, exist_ok=True)
    size = 2048 if args.quick else 8192
    boxes: dict[str, Box] = {"256²": (700, 900, 256, 256), "1024² unaligned": (700, 900, 1024, 1024)}
    if not args.quick:
        boxes["4096² aligned"] = (2048, 2048, 4096, 4096)
        boxes["4096² unaligned"] = (1900, 2100, 4096, 4096)
    cog = make_cog(size)
    with served(cog.parent, args.latency / 1e3) as url:
        rows = [measure(name, url, cog.name, box, args.rounds) for name, box in boxes.items()]
    verdicts = goals(rows)
    text = report(rows, verdicts, args)
    (OUT / "remote.md").write_text(text)
    from run import cpu

    document = {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "cpu": cpu(),
        "threads": THREADS,
        "latency_ms": args.latency,
        "rounds": args.rounds,
        "versions": versions(),
        "rows": [
            {"name": row.name, "seconds": row.seconds, "requests": row.requests, "received": row.received,
             "checks": row.checks}
            for row in rows
        ],
        "goals": [{"goal": text, "measured": measured, "met": met} for text, measured, met in verdicts],
    }  # fmt: skip
    (OUT / "remote.json").write_text(json.dumps(document, indent=1) + "\n")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
