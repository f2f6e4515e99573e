#!/usr/bin/env python3
"""Turns what the tests, the sanitizer and the contenders said into results.md and results.json.

    python3 report.py --dir OUT [--versions VERSIONS.txt]

reads OUT/tests.json, OUT/sanitizer.json and OUT/contenders.json as far as they are there. Exit status 1 if a test
failed, the sanitizer found something, or swath gave wrong pixels or none; slowness is reported, never failed.
"""

from __future__ import annotations

import argparse
import datetime
import json
import statistics
import sys
from pathlib import Path
from typing import Any

# What the bus carries; pixels cannot arrive faster than this times the compression ratio.
BUS = 55e9
COLUMNS = [
    ("swath", "swath"), ("swath-trusted", "swath, trusted"), ("gdal", "GDAL to host"), ("gdal-gpu", "GDAL to device"),
    ("nvtiff-file", "nvTIFF file"), ("nvtiff-pinned", "nvTIFF pinned"), ("nvcomp", "nvCOMP + H2D"),
]  # fmt: skip
# Contenders that do the same work: a file in, an array out.
READERS = ("gdal", "gdal-gpu", "nvtiff-file")
# Those that are given a start (the file in pinned memory) or do less (no predictor, no placing) as well.
ALL = (*READERS, "nvtiff-pinned", "nvcomp")


def load(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return None


def rate(size: int, seconds: list[float] | None) -> dict[str, float] | None:
    """GB/s of decoded pixels: the best and the median call."""
    if not seconds or min(seconds) <= 0:
        return None
    return {"best": size / min(seconds) / 1e9, "median": size / statistics.median(seconds) / 1e9}


def figure(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def short(value: Any) -> str:
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def cell(entry: dict[str, Any] | None) -> str:
    if entry is None:
        return "-"
    if entry.get("gbs"):
        return figure(entry["gbs"]["best"])
    if entry.get("refused"):
        return "n/s"
    if entry.get("absent"):
        return "-"
    error = entry.get("error", "failed")
    return "**" + error.split(":")[0][:24].replace("|", "/") + "**"


def compare(contenders: dict[str, Any]) -> tuple[list[dict[str, Any]], list[str]]:
    """One entry per raster, and the faults of swath."""
    rows, faults = [], []
    for row in contenders["manifest"]["rows"]:
        size = row["pixels_bytes"]
        kept_of_row = {key: value for key, value in row.items() if key != "file"}
        entry: dict[str, Any] = {**kept_of_row, "ratio": size / row["file_bytes"], "contenders": {}}
        for name, answers in contenders["contenders"].items():
            answer = answers.get(row["name"])
            if answer is None:
                continue
            kept = {key: value for key, value in answer.items() if key != "checksum"}
            if answer["ok"]:
                kept["gbs"] = rate(size, answer.get("seconds"))
                kept["kernel_gbs"] = rate(size, answer.get("kernel_seconds"))
            elif name.startswith("swath") and not answer.get("refused") and not answer.get("late"):
                faults.append(f"{name} on {row['name']}: {answer.get('error')}")
            entry["contenders"][name] = kept
        entry["bound_gbs"] = BUS * entry["ratio"] / 1e9

        def best(names: tuple[str, ...], key: str = "gbs", among: dict[str, Any] = entry["contenders"]) -> float | None:
            rates = [among[name][key]["best"] for name in names if among.get(name, {}).get(key)]
            return max(rates) if rates else None

        own = best(("swath",))
        kernel, rival_kernel = best(("swath",), "kernel_gbs"), best(("nvcomp",), "kernel_gbs")
        for key, top, base in (
            ("times_best_reader", own, best(READERS)),
            ("times_best_of_all", own, best(ALL)),
            ("times_nvcomp_kernel", kernel, rival_kernel),
            ("part_of_bound", own, entry["bound_gbs"]),
        ):
            entry[key] = top / base if top and base else None
        entry["kernel_gbs"], entry["nvcomp_kernel_gbs"] = kernel, rival_kernel
        rows.append(entry)
    return rows, faults


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    lines = ["| " + " | ".join(head) + " |", "| --- |" + " ---: |" * (len(head) - 1)]
    return lines + ["| " + " | ".join(row) + " |" for row in rows]


def speed_tables(rows: list[dict[str, Any]]) -> list[str]:
    titles = [title for _, title in COLUMNS]
    head = ["raster", "MB file / pixels", *titles, "× best reader", "× best of all", "bus bound"]
    body = []
    for row in rows:
        sizes = f"{row['file_bytes'] / 1e6:.0f} / {row['pixels_bytes'] / 1e6:.0f}"
        part = row["part_of_bound"]
        bound = figure(row["bound_gbs"]) + (f" ({part:.0%})" if part else "")
        times = [figure(row["times_best_reader"]), figure(row["times_best_of_all"])]
        body.append([row["name"], sizes, *(cell(row["contenders"].get(name)) for name, _ in COLUMNS), *times, bound])
    lines = ["## Reading a whole file", "", "GB/s of decoded pixels, best call; n/s: refuses such files.", ""]
    lines += table(head, body)
    lines += ["", "## Median calls", ""]
    body = []
    for row in rows:
        rates = [(row["contenders"].get(name) or {}).get("gbs") or {} for name, _ in COLUMNS]
        body.append([row["name"], *(figure(each.get("median")) for each in rates)])
    lines += table(["raster", *titles], body)
    lines += ["", "## Kernels alone", "", "GB/s of decoded pixels by the device's clock, tiles on the device.", ""]
    keys = ("kernel_gbs", "nvcomp_kernel_gbs", "times_nvcomp_kernel")
    body = [[row["name"], *(figure(row[key]) for key in keys)] for row in rows]
    return lines + table(["raster", "swath", "nvCOMP", "×"], body)


def remarks(rows: list[dict[str, Any]]) -> list[str]:
    """Counters and notices of swath, and every error, in full."""
    lines = []
    counted = [(row["name"], (row["contenders"].get("swath") or {}).get("counters")) for row in rows]
    if any(counters for _, counters in counted):
        lines += ["", "## Counters of swath", ""]
        lines += [f"- {name}: " + ", ".join(f"{k} {v}" for k, v in c.items()) for name, c in counted if c]
    errors, refusals = [], {}
    for row in rows:
        for name, entry in row["contenders"].items():
            if entry.get("notices"):
                errors.append(f"- {name} on {row['name']} notes: {'; '.join(map(str, entry['notices']))}")
            if entry.get("refused") or entry.get("absent"):
                refusals.setdefault((name, entry["error"]), []).append(row["name"])
            elif not entry["ok"]:
                errors.append(f"- {name} on {row['name']}: {entry.get('error')}")
    for (name, why), which in refusals.items():
        errors.append(f"- {name} leaves out {'all' if len(which) == len(rows) else ', '.join(which)}: {why}")
    return lines + (["", "## Errors and notices", "", *errors] if errors else [])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dir", type=Path, required=True)
    parser.add_argument("--versions", type=Path)
    args = parser.parse_args()
    tests, sanitizer = load(args.dir / "tests.json"), load(args.dir / "sanitizer.json")
    contenders = load(args.dir / "contenders.json")
    versions = args.versions.read_text().strip().splitlines() if args.versions and args.versions.exists() else []
    date = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
    faults: list[str] = []
    lines = ["# GPU results", "", f"{date}", ""]
    machine = (contenders or {}).get("machine", {})
    if machine:
        names = {"gpu": "GPU", "nvcc": "toolkit", "cpu": "CPU", "cpus": "CPU threads"}
        lines += [f"- {names.get(key, key)}: {' '.join(str(value).split())}" for key, value in machine.items() if value]
    lines += [f"- {line}" for line in versions]
    ceiling = ((contenders or {}).get("contenders", {}).get("ceilings") or {}).get("machine") or {}
    if ceiling.get("ok"):
        copies = {"h2d": "pinned H2D", "d2h": "pinned D2H", "device_copy": "device copy (read + write)"}
        lines.append("- ceilings: " + ", ".join(f"{copies[key]} {ceiling[key] / 1e9:.1f} GB/s" for key in copies))
    if contenders:
        made = contenders["manifest"]
        lines.append(
            f"- rasters: {made['size']} x {made['size']}, written by {made['writer']}, files in the page cache"
        )
    lines += ["", "## Tests", ""]
    if tests is None:
        lines.append("Not run, or they left no result.")
    else:
        groups = tests.get("groups", [])
        cases, failed = (sum(group.get(key, 0) for group in groups) for key in ("cases", "failed"))
        lines += [f"{cases} cases, {failed} failed; exit status {tests.get('exit', 0)}.", ""]
        keys = ("name", "cases", "failed", "seconds")
        lines += table(list(keys), [[short(group.get(key, "")) for key in keys] for group in groups])
        told = [(group["name"], fault) for group in groups for fault in group.get("first_failures", [])]
        lines += ["", *(f"- **{name}** {fault}" for name, fault in told)]
        if failed or tests.get("exit") or not tests.get("ok"):
            faults.append(f"tests: {failed} failed, exit status {tests.get('exit', 0)}")
    for tool in sanitizer or []:
        lines.append(f"- compute-sanitizer {tool['tool']}: {tool['said']} ({tool['seconds']} s)")
        if tool["found"]:
            faults.append(f"compute-sanitizer {tool['tool']}: {tool['said']}")
    rows: list[dict[str, Any]] = []
    if contenders:
        rows, wrong = compare(contenders)
        faults += wrong
        lines += ["", *speed_tables(rows), *remarks(rows)]
    result = {
        "date": date, "machine": machine, "versions": versions, "ceilings": ceiling, "tests": tests,
        "sanitizer": sanitizer, "rows": rows, "faults": faults,
    }  # fmt: skip
    if faults:
        lines += ["", "## Faults", "", *(f"- {fault}" for fault in faults)]
    (args.dir / "results.md").write_text("\n".join(lines) + "\n")
    (args.dir / "results.json").write_text(json.dumps(result, indent=1) + "\n")
    print("\n".join(lines))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
