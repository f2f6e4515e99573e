#!/usr/bin/env python3
"""Times swath's writer against GDAL, tifffile, rio-cogeo and odc-geo, side by side in one run, outputs checked equal.

Every engine starts from the same array in memory (bands first) and ends with a file that is closed; swath's is also
synced to the disk and renamed, which the others leave out. Each file is read back by GDAL and compared with the array.
A rival that is faster with a file over 2 % larger than swath's has chosen another trade-off: its time is shown in
brackets and does not count. swath's own size is compared with GDAL's.

    python bench/write.py [--quick] [--full] [--rounds N] [--only TEXT]

writes a table to standard output and bench/out/write.{md,json}, and streams a large raster to a COG to measure its peak
of memory. Goals are reported, never asserted.
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
import time
import warnings
import zlib
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import rasterio
import rasterio.shutil
import tifffile
from rasterio.io import MemoryFile
from rasterio.transform import Affine
from run import DATA, KINDS, OUT, SIZES, THREADS, Worker, cpu, geometric, versions

try:
    from rio_cogeo.cogeo import cog_translate
    from rio_cogeo.profiles import cog_profiles
except ImportError:
    cog_translate = None
try:
    import odc.geo.xr  # noqa: F401 - registers the accessor that makes its arrays
    from odc.geo.cog import write_cog
    from odc.geo.geobox import GeoBox
    from odc.geo.xr import wrap_xr
except ImportError:
    write_cog = None

warnings.filterwarnings("ignore")

CODECS = ("deflate", "zstd", "lzw")
PREDICTOR = {"dem": 3, "s2": 2, "lc": 1, "rgb": 2}
TRANSFORM = Affine(10, 0, 4e5, 0, -10, 52e5)
COG_PREDICTOR = {1: "NO", 2: "STANDARD", 3: "FLOATING_POINT"}


@dataclass
class Case:
    """One array, written one way."""

    kind: str
    codec: str
    cog: bool
    array: np.ndarray
    nodata: float | None

    @property
    def name(self) -> str:
        return f"{self.kind}-{self.codec}-{'cog' if self.cog else 'tiled'}"

    @property
    def predictor(self) -> int:
        return PREDICTOR[self.kind]

    def profile(self) -> dict[str, Any]:
        bands, height, width = self.array.shape
        return {
            "dtype": str(self.array.dtype), "count": bands, "height": height, "width": width, "crs": "EPSG:32633",
            "transform": TRANSFORM, "NUM_THREADS": "ALL_CPUS",
            **({} if self.nodata is None else {"nodata": self.nodata}),
        }  # fmt: skip

    def creation(self) -> dict[str, Any]:
        if self.cog:
            return {
                "driver": "COG", "compress": self.codec, "predictor": COG_PREDICTOR[self.predictor], "blocksize": 512,
                "overview_resampling": "average",
            }  # fmt: skip
        return {
            "driver": "GTiff", "compress": self.codec, "predictor": self.predictor, "tiled": True, "blockxsize": 512,
            "blockysize": 512, "interleave": "pixel",
        }  # fmt: skip


class Declined(Exception):  # noqa: N818 - not a fault: an engine that does not write this
    """The engine does not write this."""


class Swath:
    """swath in its own process, which already has the array."""

    name = "swath"

    def __init__(self, worker: Worker) -> None:
        self.worker = worker

    def write(self, case: Case, path: Path) -> float:
        answer = self.worker.ask(
            op="write", path=path, shape=case.array.shape, dtype=str(case.array.dtype), compress=case.codec,
            predictor=case.predictor, cog=case.cog, nodata=case.nodata,
        )  # fmt: skip
        return answer["ms"]


class Gdal:
    """rasterio with all cores: GTiff and COG drivers at their usual levels (Deflate 6, Zstd 9)."""

    name = "GDAL all"

    def write(self, case: Case, path: Path) -> float:
        started = time.perf_counter()
        with rasterio.open(path, "w", **case.profile(), **case.creation()) as out:
            out.write(case.array)
        return (time.perf_counter() - started) * 1e3


class Tifffile:
    """tifffile with all cores, at GDAL's levels; it makes no COG."""

    name = "tifffile"

    def write(self, case: Case, path: Path) -> float:
        if case.cog:
            raise Declined
        several = len(case.array) > 1
        array = np.moveaxis(case.array, 0, -1) if several else case.array[0]
        level = {"deflate": {"level": 6}, "zstd": {"level": 9}, "lzw": None}[case.codec]
        started = time.perf_counter()
        tifffile.imwrite(
            path,
            array,
            tile=(512, 512),
            compression="zlib" if case.codec == "deflate" else case.codec,
            compressionargs=level,
            predictor=case.predictor != 1,
            maxworkers=THREADS,
            photometric="rgb" if case.kind == "rgb" else "minisblack",
            planarconfig="contig" if several else None,
        )
        return (time.perf_counter() - started) * 1e3


class RioCogeo:
    """rio-cogeo, from a dataset in memory to a COG."""

    name = "rio-cogeo"

    def write(self, case: Case, path: Path) -> float:
        if not case.cog or cog_translate is None:
            raise Declined
        profile = dict(cog_profiles.get(case.codec))
        profile.update(blockxsize=512, blockysize=512, predictor=case.predictor)
        with MemoryFile() as memory:
            with memory.open(driver="GTiff", **case.profile()) as source:
                source.write(case.array)
            with memory.open() as source:
                started = time.perf_counter()
                options = {"config": {"GDAL_NUM_THREADS": "ALL_CPUS"}, "in_memory": False, "quiet": True}
                cog_translate(source, path, profile, overview_resampling="average", **options)
                return (time.perf_counter() - started) * 1e3


class OdcGeo:
    """odc-geo's write_cog."""

    name = "odc-geo"

    def write(self, case: Case, path: Path) -> float:
        if not case.cog or write_cog is None:
            raise Declined
        bands, height, width = case.array.shape
        box = GeoBox((height, width), TRANSFORM, "EPSG:32633")
        # It takes bands last.
        pixels = np.ascontiguousarray(np.moveaxis(case.array, 0, -1)) if bands > 1 else case.array[0]
        image = wrap_xr(pixels, box, nodata=case.nodata)
        started = time.perf_counter()
        write_cog(
            image, path, blocksize=512, compress=case.codec, predictor=case.predictor, overview_resampling="average",
            overwrite=True, NUM_THREADS="ALL_CPUS",
        )  # fmt: skip
        return (time.perf_counter() - started) * 1e3


@dataclass
class Row:
    """One case: every engine's best time, the size of its file, and whether it held the array."""

    case: Case
    best: dict[str, float] = field(default_factory=dict)
    size: dict[str, int] = field(default_factory=dict)
    checks: dict[str, str] = field(default_factory=dict)

    def counts(self, name: str) -> bool:
        """Whether a rival's file is as small as ours, within 2 %, or the rival was slower despite a larger file."""
        larger = self.size[name] > self.size["swath"] * 1.02
        return name != "swath" and not (larger and self.best[name] < self.best["swath"])

    @property
    def fastest(self) -> float:
        return min((ms for name, ms in self.best.items() if self.counts(name)), default=float("nan"))

    @property
    def ratio(self) -> float:
        return self.fastest / self.best["swath"]

    @property
    def against_gdal(self) -> float:
        return self.size["swath"] / self.size["GDAL all"]


def measure(case: Case, engines: list[Any], rounds: int) -> Row:
    row = Row(case)
    wanted = zlib.crc32(case.array.tobytes())
    for turn in range(rounds + 1):
        for engine in engines:
            if row.checks.get(engine.name, "equal") != "equal":
                continue
            path = OUT / f"write-{engine.name.replace(' ', '-')}.tif"
            path.unlink(missing_ok=True)
            try:
                ms = engine.write(case, path)
            except Declined:
                row.checks[engine.name] = "-"
                continue
            if turn == 0:
                row.size[engine.name] = path.stat().st_size
                with rasterio.open(path) as found:
                    same = zlib.crc32(found.read().tobytes()) == wanted
                row.checks[engine.name] = "equal" if same else "DIFFERENT"
            else:
                row.best[engine.name] = min(row.best.get(engine.name, float("inf")), ms)
            path.unlink()
    return row


def stream(worker: Worker, side: int) -> dict[str, Any]:
    """Streams a raster that is never whole in memory to a COG."""
    path = OUT / "write-stream.tif"
    answer = worker.ask(
        op="stream", path=path, shape=[1, side, side], dtype="uint16", compress="zstd", predictor=2, cog=True,
        max_memory=256 << 20,
    )  # fmt: skip
    path.unlink()
    return {"side": side, **answer}


def goals(rows: list[Row], streams: list[dict[str, Any]]) -> list[tuple[str, str, bool]]:
    found = []
    for text, cog, goal in (("tiled writes", False, 1.3), ("COGs", True, 2.0)):
        for codec in (*CODECS, "all"):
            chosen = [r for r in rows if r.case.cog == cog and codec in (r.case.codec, "all") and r.ratio == r.ratio]
            if chosen:
                mean = geometric([row.ratio for row in chosen])
                found.append((f"{text}, {codec}: at least {goal} x the fastest", f"{mean:.2f} x", mean >= goal))
    worst = max(rows, key=lambda row: row.against_gdal)
    largest = f"{(worst.against_gdal - 1) * 100:+.1f} % ({worst.case.name})"
    found.append(("no file over 2 % larger than GDAL's", largest, worst.against_gdal <= 1.02))
    for answer in streams:
        peak = (answer["peak"] or 0) / (1 << 20)
        side = answer["side"]
        found.append((f"{side}² u16 to a COG at 256 MiB: under 512 MiB", f"{peak:.0f} MiB", peak < 512))
    return found


def report(rows: list[Row], streams: list[dict[str, Any]], verdicts: list[tuple[str, str, bool]], args: Any) -> str:
    names = ["swath", "GDAL all", "tifffile", "rio-cogeo", "odc-geo"]
    found = versions()
    for package in ("rio-cogeo", "odc-geo"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "absent"
    lines = [
        "# Benchmark of writing", "",
        f"{datetime.date.today()}, {cpu()}, {THREADS} threads, preset `{args.preset}`, best of {args.rounds} rounds, "
        "milliseconds. In brackets: faster with a file over 2 % larger than swath's, which does not count.", "",
        ", ".join(f"{name} {number}" for name, number in found.items()), "",
        "| row | MB | " + " | ".join(names) + " | × fastest | size, swath / GDAL | checked |",
        "| --- | ---: | " + " | ".join("---:" for _ in names) + " | ---: | ---: | --- |",
    ]  # fmt: skip
    for row in rows:
        cells = []
        for name in names:
            if name not in row.best:
                cells.append("-")
            elif name == "swath" or row.counts(name):
                cells.append(f"{row.best[name]:.0f}")
            else:
                cells.append(f"({row.best[name]:.0f})")
        odd = "; ".join(f"{name} {text}" for name, text in row.checks.items() if text not in ("equal", "-"))
        size = f"{row.case.array.nbytes / 1e6:.0f}"
        lines.append(
            f"| {row.case.name} | {size} | {' | '.join(cells)} | {row.ratio:.2f} | {row.against_gdal:.4f} | "
            f"{odd or 'equal'} |"
        )
    for answer in streams:
        side, seconds = answer["side"], answer["ms"] / 1e3
        rate = side * side * 2 / 1e6 / seconds
        lines += ["", f"Streamed: {side} × {side} u16 (made row by row) to a Zstd COG with 256 MiB: {seconds:.1f} s, "
                      f"{rate:.0f} MB/s, file {answer['size'] / 1e6:.0f} MB, peak of the process "
                      f"{(answer['peak'] or 0) / (1 << 20):.0f} MiB."]  # fmt: skip
    lines += ["", "| goal | measured | |", "| --- | --- | --- |"]
    lines += [f"| {text} | {measured} | {'PASS' if met else 'FAIL'} |" for text, measured, met in verdicts]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", dest="preset", action="store_const", const="quick", default="default")
    parser.add_argument("--full", dest="preset", action="store_const", const="full", help="the sizes of the anchors")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="only rows whose name (kind-codec-way) contains this text")
    parser.add_argument("--rivals", default="", help="only rivals whose name contains this text")
    args = parser.parse_args()

    OUT.mkdir(parents=True, exist_ok=True)
    DATA.mkdir(parents=True, exist_ok=True)
    # Memory is measured in processes of their own: a peak never falls.
    sides = [] if args.only else [8000, 8000 if args.preset == "quick" else 40000]
    streams = [stream(Worker(), side) for side in dict.fromkeys(sides)]
    worker = Worker()
    rivals = [rival for rival in (Gdal(), Tifffile(), RioCogeo(), OdcGeo()) if args.rivals in rival.name]
    engines = [Swath(worker), *rivals]
    rows = []
    for kind, make in KINDS.items():
        cases = [(codec, cog) for codec in CODECS for cog in (False, True)]
        wanted = [(codec, cog) for codec, cog in cases if args.only in f"{kind}-{codec}-{'cog' if cog else 'tiled'}"]
        if not wanted:
            continue
        print(f"making {kind}", file=sys.stderr)
        array = make(SIZES[args.preset][kind])
        raw = OUT / "write-array.raw"
        array.tofile(raw)
        worker.ask(op="load", path=raw)
        raw.unlink()
        for codec, cog in wanted:
            row = measure(Case(kind, codec, cog, array, -9999 if kind == "dem" else None), engines, args.rounds)
            rows.append(row)
            print(f"{row.case.name}: {row.ratio:.2f} x, size {row.against_gdal:.4f}", file=sys.stderr)
    verdicts = goals(rows, streams)
    text = report(rows, streams, verdicts, args)
    (OUT / "write.md").write_text(text)
    document = {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "cpu": cpu(),
        "threads": THREADS,
        "preset": args.preset,
        "rounds": args.rounds,
        "versions": versions(),
        "rows": [
            {"name": row.case.name, "bytes": row.case.array.nbytes, "best_ms": row.best, "size": row.size,
             "checks": row.checks, "times_fastest_rival": row.ratio}
            for row in rows
        ],
        "streams": streams,
        "goals": [{"goal": text, "measured": measured, "met": met} for text, measured, met in verdicts],
    }  # fmt: skip
    (OUT / "write.json").write_text(json.dumps(document, indent=1) + "\n")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
