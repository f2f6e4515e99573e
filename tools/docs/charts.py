#!/usr/bin/env python3
"""Draws the charts of docs/benchmarks.md and fills the tables of measurements, from the figures in bench/results.

    python tools/docs/charts.py [--check]

writes docs/charts/*.svg and the tables between the comments `charts.py: NAME` and `end`. With `--check` it only says
what is not as this script makes it.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "bench" / "results"
CHARTS = ROOT / "docs" / "charts"

OURS = "#00796b"
RIVALS = ("#90a4ae", "#b0bec5", "#a1887f", "#bcaaa4", "#c5cae9", "#9fa8da")
WIDTH, LEFT, RIGHT, BAR, GAP = 760, 190, 70, 15, 12


# A bar for each engine; none where an engine cannot do it.
Bars = list[tuple[str, float | None]]
# Each group's label, and its bars.
Groups = list[tuple[str, Bars]]


@dataclass
class Chart:
    """Groups of horizontal bars."""

    title: str
    note: str
    groups: Groups
    shown: Callable[[float], str] = lambda value: f"{value:.2f}"

    def svg(self) -> str:
        largest = max(value for _, bars in self.groups for _, value in bars if value is not None)
        names = list(dict.fromkeys(name for _, bars in self.groups for name, _ in bars))
        rivals = [name for name in names if not name.startswith("swath")]
        colours = {name: OURS if name not in rivals else RIVALS[rivals.index(name) % len(RIVALS)] for name in names}
        lines, y = [], 74
        scale = (WIDTH - LEFT - RIGHT) / largest
        for label, bars in self.groups:
            middle = y + len(bars) * BAR / 2 + 4
            lines.append(
                f'<text x="{LEFT - 10}" y="{middle:.1f}" text-anchor="end" class="label">{escape(label)}</text>'
            )
            for name, value in bars:
                if value is None:
                    lines.append(
                        f'<text x="{LEFT + 4}" y="{y + 11}" class="value">{escape(name)}: not supported</text>'
                    )
                else:
                    length = max(1.0, value * scale)
                    lines.append(
                        f'<rect x="{LEFT}" y="{y + 1}" width="{length:.1f}" height="{BAR - 2}" '
                        f'fill="{colours[name]}"><title>{escape(name)}</title></rect>'
                    )
                    lines.append(text(LEFT + length + 5, y + 11, "value", self.shown(value)))
                y += BAR
            y += GAP
        legend, x = [], LEFT
        for name in names:
            legend.append(f'<rect x="{x}" y="46" width="11" height="11" fill="{colours[name]}"/>')
            legend.append(text(x + 15, 56, "value", name))
            x += 15 + 7 * len(name) + 18
        height = y + 24
        style = (
            "text{font-family:system-ui,sans-serif;fill:#263238}.title{font-size:15px;font-weight:600}"
            ".label{font-size:13px}.value{font-size:11px}.note{font-size:11px;fill:#607d8b}"
        )
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
            f'role="img"><title>{escape(self.title)}</title><style>{style}</style>'
            f'<rect width="{WIDTH}" height="{height}" rx="6" fill="#ffffff"/>'
        )
        title, note = text(16, 26, "title", self.title), text(16, height - 12, "note", self.note)
        return "\n".join([head, title, *legend, *lines, note, "</svg>"]) + "\n"


def text(x: float, y: float, kind: str, words: str, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}"{more}>{escape(words)}</text>'


def figures(name: str) -> Any:
    return json.loads((RESULTS / f"{name}.json").read_text())


def machine(found: Any) -> str:
    """Date and machine of a run."""
    return f"{found['date'][:10]}, {found['cpu']}, {found['threads']} cores"


def mean(values: Iterable[float]) -> float:
    """Geometric mean."""
    return math.exp(statistics.fmean(map(math.log, values)))


def ratio(value: float) -> str:
    return f"{value:.2f} ×"


REAL = "2026-11-19-real-2-cores"


def real_ratios(task: str, rival: str) -> list[float]:
    """Times of a rival on real rasters, relative to swath."""
    return [row[task][rival] / row[task]["swath"] for row in figures(REAL)["rows"] if rival in row[task]]


def spread(values: list[float]) -> str:
    return f"{mean(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def summary() -> str:
    """The README's table: geometric means over the real rasters, and the best and worst row."""
    found = figures(REAL)
    rasters = len(found["rows"]) // 2
    sizes = [row["cog_size"]["GDAL"] / row["cog_size"]["swath"] for row in found["rows"]]
    read = " | ".join(spread(real_ratios("read_ms", rival)) for rival in ("rasterio", "tifffile"))
    return (
        "| relative to swath: mean (least to most) | swath | rasterio (GDAL), all cores | tifffile |\n"
        "|---|---|---|---|\n"
        f"| time to read {rasters} real rasters, Deflate and Zstd | 1 | {read} |\n"
        f"| time to write them as COGs | 1 | {spread(real_ratios('cog_ms', 'GDAL'))} | – |\n"
        f"| size of the COGs | 1 | {spread(sizes)} | – |\n"
        "\n"
        f"{machine(found)}, files in the page cache, every array checked equal."
    )


def best_windows(row: Any) -> dict[str, float]:
    """Times of the loop over windows; rasterio's are those with all cores or with one, whichever are less."""
    times = row["windows_ms"]
    return {"swath": times["swath"], "rasterio": min(times["rasterio"], times["rasterio, 1 thread"])}


def real_table() -> str:
    """Every real raster, in milliseconds."""
    lines = [
        "| raster | codec | read: swath | rasterio | tifffile | 200 windows: swath | rasterio | "
        "write a COG: swath | GDAL | size, swath / GDAL |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in figures(REAL)["rows"]:
        read, windows, cog, size = row["read_ms"], best_windows(row), row["cog_ms"], row["cog_size"]
        tiff = f"{read['tifffile']:.0f}" if "tifffile" in read else "–"
        lines.append(
            f"| {row['name']} | {row['codec']} | {read['swath']:.0f} | {read['rasterio']:.0f} | {tiff} | "
            f"{windows['swath']:.0f} | {windows['rasterio']:.0f} | {cog['swath']:.0f} | {cog['GDAL']:.0f} | "
            f"{size['swath'] / size['GDAL']:.3f} |"
        )
    found = figures(REAL)
    note = f"{machine(found)}, files in the page cache, best of several rounds, every array checked equal."
    return "\n".join([*lines, "", note])


TABLES: dict[str, tuple[str, Callable[[], str]]] = {
    "summary": ("README.md", summary),
    "real": ("docs/benchmarks.md", real_table),
}


def filled(name: str) -> tuple[Path, str]:
    """A document with its table as it should be."""
    document, make = TABLES[name]
    whole = (ROOT / document).read_text()
    first, last = f"<!-- charts.py: {name} -->\n\n", "\n\n<!-- end -->"
    before, found, rest = whole.partition(first)
    if not found or last not in rest:
        raise SystemExit(f"{document} lacks the comments of the table {name!r}")
    return ROOT / document, before + first + make() + rest[rest.index(last) :]


def real() -> Chart:
    found = figures(REAL)
    groups: Groups = []
    for label, task, rivals in (
        ("read a file", "read_ms", ("rasterio", "tifffile")),
        ("write a COG", "cog_ms", ("GDAL",)),
    ):
        for codec in ("deflate", "zstd"):
            rows = [row for row in found["rows"] if row["codec"] == codec]
            bars: Bars = [("swath", 1.0)]
            for rival in rivals:
                times = [row[task][rival] / row[task]["swath"] for row in rows if rival in row[task]]
                bars.append(("rasterio (GDAL)" if rival in ("rasterio", "GDAL") else rival, mean(times)))
            groups.append((f"{label}, {codec}", bars))
    note = f"{machine(found)}. Geometric means of {len(found['rows']) // 2} real rasters."
    return Chart("Real rasters: time relative to swath, less is better", note, groups, ratio)


def read_cpu() -> Chart:
    found = figures("2026-11-15-cpu-2-cores")
    names = {
        "rasterio all": "rasterio, all cores",
        "rasterio 1": "rasterio, one",
        "tifffile": "tifffile",
        "async-tiff": "async-tiff",
    }
    groups: Groups = []
    for label, what in (("whole files", "full"), ("windows of 1024²", "window"), ("200 windows of 256²", "windows")):
        rows = [row for row in found["rows"] if row["what"] == what]
        bars: Bars = [("swath", 1.0)]
        for key, name in names.items():
            times = [row["best_ms"][key] / row["best_ms"]["swath"] for row in rows if key in row["best_ms"]]
            bars.append((name, mean(times)))
        groups.append((label, bars))
    note = f"{machine(found)}, files in the page cache. Geometric means of 40 synthetic files."
    return Chart("Reading on a CPU: time relative to swath, less is better", note, groups, ratio)


def write_cpu() -> Chart:
    found = figures("2026-11-15-write-2-cores")
    groups: Groups = []
    for label, kind, rivals in (
        ("tiled GeoTIFF", "tiled", ("GDAL all", "tifffile")),
        ("COG with overviews", "cog", ("GDAL all", "rio-cogeo", "odc-geo")),
    ):
        rows = [row for row in found["rows"] if row["name"].endswith(kind)]
        bars: Bars = [("swath", 1.0)]
        for rival in rivals:
            times = [row["best_ms"][rival] / row["best_ms"]["swath"] for row in rows if rival in row["best_ms"]]
            bars.append(("GDAL, all cores" if rival == "GDAL all" else rival, mean(times)))
        groups.append((label, bars))
    note = f"{machine(found)}. Geometric means of 12 files each: Deflate, Zstd, LZW."
    return Chart("Writing on a CPU: time relative to swath, less is better", note, groups, ratio)


def python_cog() -> Chart:
    found = figures("2026-11-15-python-2-cores")["cog"]
    names = {"swath": "swath", "odc-geo": "odc-geo", "rioxarray COG": "rioxarray", "xrspatial": "xarray-spatial"}
    groups: Groups = []
    for row in found["rows"]:
        bars: Bars = [(name, row["peak"][key] / 2**20) for key, name in names.items()]
        groups.append((f"{row['name'].split()[-1]}, peak of memory", bars))
    note = f"{machine(found)}. A dask array of 512 MB (16384² u16), budget 128 MiB."
    return Chart("A dask array to a COG: MiB of memory, less is better", note, groups, lambda value: f"{value:.0f} MiB")


def python_time() -> Chart:
    found = figures("2026-11-15-python-2-cores")
    groups: Groups = []
    rows = found["chips"]["rows"]
    bars: Bars = [("swath", 1.0)]
    for name, keys in (
        ("rasterio", ("rasterio all", "rasterio 1")),
        ("rioxarray", ("rioxarray all", "rioxarray 1")),
        ("async-geotiff", ("async-geotiff",)),
        ("xarray-spatial", ("xrspatial",)),
    ):
        times = [min(row["best_ms"][key] for key in keys) / row["best_ms"]["swath chips"] for row in rows]
        bars.append((name, mean(times)))
    groups.append(("1000 chips of 256²", bars))
    for row in found["cog"]["rows"]:
        best = row["best_ms"]
        some = (("rioxarray", "rioxarray COG"), ("odc-geo", "odc-geo"), ("xarray-spatial", "xrspatial"))
        groups.append(
            (
                f"dask to a COG, {row['name'].split()[-1]}",
                [("swath", 1.0), *((name, best[key] / best["swath"]) for name, key in some)],
            )
        )
    note = f"{machine(found['cog'])}."
    return Chart("In Python: time relative to swath, less is better", note, groups, ratio)


def remote() -> Chart:
    found = figures("2026-11-16-remote-2-cores")
    names = {"swath": "swath", "GDAL": "rasterio", "GDAL tuned": "rasterio, tuned", "async-geotiff": "async-geotiff"}
    groups: Groups = [
        (row["name"], [(name, statistics.median(row["seconds"][key])) for key, name in names.items()])
        for row in found["rows"]
    ]
    waits = f"{found['latency_ms']:.0f} ms before each answer"
    note = f"{machine(found)}, {waits}. Medians of {found['rounds']} rounds."
    return Chart("A window over HTTP: seconds, less is better", note, groups, lambda value: f"{value:.2f} s")


KINDS = {"dem": "terrain f32", "s2": "reflectance u16", "lc": "classes u8"}
CODECS = {"deflate": "Deflate", "zstd": "Zstd", "lzw": "LZW", "none": "uncompressed"}


def label_of(row: dict[str, Any]) -> str:
    return f"{KINDS[row['kind']]}, {CODECS[row['codec']]}"


def speed(row: dict[str, Any], contender: str) -> float | None:
    found = row["contenders"].get(contender, {})
    return row["pixels_bytes"] / min(found["seconds"]) / 1e9 if found.get("ok") else None


def read_gpu() -> Chart:
    first, later = figures("2026-11-15-gpu-h200"), figures("2026-11-16-gpu-h200-zstd")
    rows = {row["name"]: row for row in [*first["rows"], *later["rows"]] if row["tile"] == 512}
    wanted = (
        "dem-deflate",
        "s2-deflate",
        "lc-deflate",
        "dem-zstd",
        "s2-zstd",
        "lc-zstd",
        "dem-lzw",
        "s2-lzw",
        "dem-none",
    )
    groups: Groups = []
    for name in wanted:
        row = rows[f"{name}-512"]
        bars: Bars = [
            ("swath", speed(row, "swath")),
            # To host memory, or with the copy to the device, whichever was faster.
            ("GDAL, 16 threads", max(speed(row, way) or 0.0 for way in ("gdal", "gdal-gpu")) or None),
        ]
        # nvTIFF was measured in the first run only; it refuses Zstd and the predictor of floats.
        bars.append(("nvTIFF", speed(row, "nvtiff-file")))
        groups.append((label_of(row), bars))
    note = "2026-11-15 and 16, NVIDIA H200, files in memory, 16384² pixels in tiles of 512, best of five calls."
    return Chart("To an array on a GPU: GB/s of pixels, more is better", note, groups, lambda value: f"{value:.1f}")


def write_gpu() -> Chart:
    found = figures("2026-11-15-gpu-h200-write")
    gdal = {row["row"]: row["gbs"] for row in found["gdal_after"]}
    rows = {row["name"]: row for row in found["writes"]["rows"] if row["main"] and row["folder"] == "huge"}
    groups: Groups = []
    for name in ("dem-deflate-512", "s2-deflate-512", "lc-deflate-512", "dem-zstd-512", "s2-zstd-512", "lc-zstd-512",
                 "dem-lzw-512", "dem-none-512", "dem-deflate-512-cog"):  # fmt: skip
        label = label_of(rows[name]) + (", COG" if rows[name]["cog"] else "")
        groups.append((label, [("swath", speed(rows[name], "swath")), ("GDAL, 16 threads", gdal[name])]))
    note = f"{found['date'][:10]}, NVIDIA H200, 16384² pixels, into a tmpfs of huge pages, best of several calls."
    return Chart("From an array on a GPU to a file: GB/s of pixels, more is better", note, groups, lambda v: f"{v:.2f}")


MADE: dict[str, Callable[[], Chart]] = {
    "real": real,
    "read-cpu": read_cpu,
    "write-cpu": write_cpu,
    "python-time": python_time,
    "python-memory": python_cog,
    "remote": remote,
    "read-gpu": read_gpu,
    "write-gpu": write_gpu,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    CHARTS.mkdir(exist_ok=True)
    stale = []
    for name, make in MADE.items():
        path = CHARTS / f"{name}.svg"
        drawn = make().svg()
        if not path.is_file() or path.read_text() != drawn:
            stale.append(path.name)
            if not args.check:
                path.write_text(drawn)
    for name in TABLES:
        path, wanted = filled(name)
        if path.read_text() != wanted:
            stale.append(f"{path.name}, {name}")
            if not args.check:
                path.write_text(wanted)
    stale += [path.name for path in CHARTS.iterdir() if path.stem not in MADE]
    if args.check and stale:
        print(f"not what tools/docs/charts.py makes: {', '.join(stale)}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
