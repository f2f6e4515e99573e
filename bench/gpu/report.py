#!/usr/bin/env python3
"""Turns the results of the tests, the sanitizer and the contenders into results.md and results.json.

    python3 report.py --dir OUT [--versions VERSIONS.txt]

reads tests.json, corrupted.json, killed.json, sanitizer.json, contenders.json, writes.json, real.json, stats.json,
cold.json and python.json of OUT, as far as they are there. Exit status 1 if a test failed, a damaged tile was taken
for a sound one or ended the context, a killed writer lost a file, the sanitizer found something, swath gave wrong
pixels or none, a written file reads back wrongly, depends on the batches or took more memory than allowed, statistics
differ from the CPU's, or machine code and PTX differ in their results; slowness is reported, never failed.
"""

from __future__ import annotations

import argparse
import datetime
import json
import statistics
import sys
from pathlib import Path
from typing import Any

# Speed of the bus; pixels cannot arrive faster than this times the compression ratio.
BUS = 55e9
COLUMNS = [
    ("swath", "swath"), ("gdal", "GDAL to host"), ("gdal-gpu", "GDAL to device"), ("nvtiff-file", "nvTIFF file"),
    ("nvtiff-pinned", "nvTIFF pinned"), ("nvcomp", "nvCOMP + H2D"),
]  # fmt: skip
# Contenders that do the same work: a file in, an array out.
READERS = ("gdal", "gdal-gpu", "nvtiff-file")
# These and contenders with an advantage (the file in pinned memory) or with less work (no predictor, no placing).
ALL = (*READERS, "nvtiff-pinned", "nvcomp")

# Goals of the Zstd decoder: speed relative to nvCOMP's by tile, on few tiles, from file to device in GB/s, and
# temporary memory relative to the output.
ZSTD_GOALS = {256: 1 / 1.5, 512: 1 / 1.5, 1024: 1.0}
ZSTD_FEW_GOAL, ZSTD_READ_GOAL, ZSTD_TEMP_GOAL = 1.0, 25.0, 0.5

# Goals of writing: GB/s of pixels by codec, and for COGs and conversions with any codec.
WRITE_GOALS = {"deflate": 8.0, "zstd": 8.0, "lzw": 5.0, "none": 15.0}
COG_GOAL, CONVERT_GOAL = 5.0, 4.0
# Allowed size relative to GDAL's files: Deflate for terrain and reflectance, any codec for classes.
SIZE_GOALS = {"dem": 1.03, "s2": 1.03, "lc": 1.5}
WRITE_RIVALS = [("gdal", "GDAL"), ("xrspatial", "xrspatial")]


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


# An answer without a figure, for which swath is not to blame: nvCOMP, the other of the pair, failed.
EXCUSES = {"swath": ("refused", "late"), "zstd": ("refused", "absent", "late", "rival")}


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
            elif name in ("swath", "zstd") and not any(answer.get(key) for key in EXCUSES[name]):
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


def zstd_tables(rows: list[dict[str, Any]]) -> list[str]:
    """The Zstd decoder beside nvCOMP's, on all tiles and on few, and from file to device."""
    whole, few, read = [], [], []
    for row in (row for row in rows if row["codec"] == "zstd"):
        among = row["contenders"]
        for each in (among.get("zstd") or {}).get("compared", []):
            own, rival = (rate(each["bytes"], each[f"{name}_seconds"]) for name in ("swath", "nvcomp"))
            if not own or not rival:
                continue
            ratio = own["best"] / rival["best"]
            goal = ZSTD_GOALS.get(row["tile"]) if each["whole"] else ZSTD_FEW_GOAL
            temps = [each[f"{name}_temp_bytes"] / each["bytes"] for name in ("swath", "nvcomp")]
            rates = [f"{figure(side['best'])} [{figure(side['median'])}]" for side in (own, rival)]
            columns = [f"{ratio:.2f}", reached(ratio, goal, False), *(f"{temp:.2f}" for temp in temps)]
            columns.append(reached(temps[0], ZSTD_TEMP_GOAL, True))
            into = whole if each["whole"] else few
            into.append([row["kind"], str(row["tile"]), str(each["tiles"]), *rates, *columns])
        own = (among.get("swath") or {}).get("gbs")
        others = [cell(among.get(name)) for name in ("gdal", "gdal-gpu", "nvtiff-file")]
        rates = [figure(own[key]) if own else cell(among.get("swath")) for key in ("best", "median")]
        goal = reached(own and own["best"], ZSTD_READ_GOAL, False)
        bound = figure(row["bound_gbs"])
        read.append([row["kind"], str(row["tile"]), *rates, goal, *others, figure(row["times_best_reader"]), bound])
    if not read:
        return []
    lines = ["", "## Zstd"]
    head = ["data", "tile", "tiles", "swath", "nvCOMP", "swath / nvCOMP", "goal"]
    head += ["swath's memory × output", "nvCOMP's", "goal"]
    if whole:
        lines += ["", "Decoders alone, GB/s of decoded bytes by the device's clock, best call [median]: the same tiles"]
        lines += ["on the device, the same bytes out. Memory is what decoders take besides streams and output.", ""]
        lines += table(head, whole)
    if few:
        lines += ["", "### Few tiles", "", *table(head, few)]
    lines += ["", "### From file to device", ""]
    lines += ["GB/s of pixels, best call; swath with default options, as for files of strangers.", ""]
    head = ["data", "tile", "swath", "median", "goal", "GDAL to host", "GDAL to device", "nvTIFF file", "× best reader"]
    return lines + table([*head, "bus bound"], read)


def corrupted_lines(found: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Results of the device for damaged tiles of each codec, and the faults."""
    lines = ["", "## Damaged tiles", ""]
    if "codecs" not in found:
        return [*lines, f"**{found.get('error', 'no result')}**"], [f"damaged tiles: {found.get('error', 'no result')}"]
    lines += ["Each tile is also decoded by the CPU; bytes and verdicts are compared.", ""]
    head = [
        "codec",
        "tiles",
        "seconds",
        "CPU decodes",
        "passed to the CPU",
        "refused, CPU decodes",
        "sound tiles between",
    ]
    rows = [
        [name, of["tiles"], f"{of['seconds']:.0f}", of["cpu_decodes"], of["left_to_cpu"], of["stricter_than_cpu"],
         of["intact"], of["wrong"]]
        for name, of in found["codecs"].items()
    ]  # fmt: skip
    lines += table([*head, "wrong"], rows)
    faults = [f"damaged {name} tiles: {fault}" for name, of in found["codecs"].items() for fault in of["faults"]]
    return lines, faults


def killed_lines(found: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Results for files whose writers were killed, and the faults."""
    lines = ["", "## Killed writers", ""]
    if "kills" not in found:
        error = found.get("error", "no result")
        return [*lines, f"**{error}**"], [f"killed writers: {error}"]
    lines += [
        f"{found['kills']} processes that wrote two files in turn from the GPU were killed. The name held the first "
        f"file {found['old']} times, the second {found['new']} times, and neither {found['lost']} times. "
        f"{found['strays']} stray files after the next write. {found['seconds']:.0f} s."
    ]
    return lines, [f"killed writers: {fault}" for fault in found["faults"]]


def details(rows: list[dict[str, Any]]) -> list[str]:
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


def compare_writes(writes: dict[str, Any]) -> tuple[list[dict[str, Any]], list[str]]:
    """One entry per way of writing, and the faults of swath."""
    rows, faults = [], []
    gdal_of = {row["name"]: row["contenders"].get("gdal") or {} for row in writes["rows"]}
    for row in writes["rows"]:
        entry = {**row, "contenders": {name: dict(answer) for name, answer in row["contenders"].items()}}
        among = entry["contenders"]
        for answer in among.values():
            if answer["ok"]:
                answer["gbs"] = rate(row["pixels_bytes"], answer["seconds"])
        own = among.get("swath") or {}
        if own and not own["ok"] and not own.get("late"):
            faults.append(f"swath writing {row['name']}: {own.get('error')}")
        for reader, result in own.get("checks", {}).items():
            if result != "equal" and not result.startswith("not run"):
                faults.append(f"{row['name']}, {reader}: {result}")
        if own.get("within") is False:
            faults.append(f"{row['name']}: more memory than allowed")
        # GDAL converts its own files only; swath's conversion of swath's is compared with that.
        gdal = gdal_of.get(row["name"].replace("-own", "-gdal"), {})
        rates = [rate(row["pixels_bytes"], answer.get("seconds")) for answer in (gdal, among.get("xrspatial") or {})]
        best = max((each["best"] for each in rates if each), default=None)
        entry["times_best_rival"] = own["gbs"]["best"] / best if own.get("gbs") and best else None
        other = gdal.get("file_bytes")
        entry["size_of_gdal"] = own["file_bytes"] / other if own.get("file_bytes") and other else None
        goal = WRITE_GOALS[row["codec"]]
        entry["goal_gbs"] = CONVERT_GOAL if row["task"] == "convert" else COG_GOAL if row["cog"] else goal
        sized = row["codec"] != "none" if row["kind"] == "lc" else row["codec"] == "deflate"
        entry["goal_size"] = SIZE_GOALS[row["kind"]] if sized and row["task"] != "convert" else None
        rows.append(entry)
    for each in writes["identity"]:
        if not each["ok"] and not each.get("late"):
            faults.append(f"{each['name']} is not the same file each time: {each.get('error') or 'the bytes differ'}")
    for each in writes["cogs"]:
        others = {key: value for key, value in each.get("checks", {}).items() if value != "equal"}
        wrong = [f"{key}: {value}" for key, value in others.items() if not value.startswith("not run")]
        faults += [f"{each['name']}: {why}" for why in ([] if each["ok"] else [each.get("error")]) + wrong]
    return rows, faults


def reached(value: float | None, goal: float | None, most: bool) -> str:
    """A goal and whether it was reached; with `most` it is an upper bound."""
    if goal is None:
        return "-"
    sign = f"≤ {goal:.2f}" if most else f"≥ {goal:.3g}"
    if value is None:
        return f"{sign}: ?"
    return f"{sign}: {'yes' if (value <= goal if most else value >= goal) else '**no**'}"


def write_tables(rows: list[dict[str, Any]], writes: dict[str, Any]) -> list[str]:
    places = writes["folders"]
    where = f"Files are in {places['shm']}."
    if "huge" in places:
        where = f"Files are in a {places['huge']}, those of rows named shm in {places['shm']}."
    lines = [
        "## Writing",
        "",
        "GB/s of pixels, best call [median]; the first call is listed apart. Each call writes a new file.",
    ]
    lines += [f"Rasters of {writes['size']} x {writes['size']}. {where}", ""]
    lines += [f"Conversions start from a Deflate GeoTIFF of {writes['converted']}'s."] * ("converted" in writes)
    speed = [row for row in rows if row["task"] != "memory"]
    parts = [
        ("GeoTIFF", [row for row in speed if row["main"] and not row["cog"]]),
        ("COG with all overviews", [row for row in speed if row["main"] and row["cog"] and row["task"] == "write"]),
        ("Conversion from file to file", [row for row in speed if row["task"] == "convert"]),
        ("In plain tmpfs, where new pages are the bound", [row for row in speed if not row["main"]]),
    ]
    head = ["row", "MB pixels / file", "swath", "first", *(title for _, title in WRITE_RIVALS), "× best rival", "goal"]
    head += ["size / GDAL's", "goal"]
    for title, part in parts:
        if not part:
            continue
        body = []
        for row in part:
            own = row["contenders"].get("swath") or {}
            rates = own.get("gbs")
            size = figure(own["file_bytes"] / 1e6) if own.get("file_bytes") else "-"
            swath = f"{figure(rates['best'])} [{figure(rates['median'])}]" if rates else cell(own or None)
            first = figure(row["pixels_bytes"] / own["first"] / 1e9) if own.get("first") else "-"
            others = [cell(row["contenders"].get(name)) for name, _ in WRITE_RIVALS]
            ratio = row["size_of_gdal"]
            body.append([
                row["name"], f"{row['pixels_bytes'] / 1e6:.0f} / {size}", swath, first, *others,
                figure(row["times_best_rival"]), reached(rates and rates["best"], row["goal_gbs"], False),
                f"{ratio:.3f}" if ratio else "-", reached(ratio, row["goal_size"], True),
            ])  # fmt: skip
        lines += ["", f"### {title}", "", *table(head, body)]
    memory = [row for row in rows if row["task"] == "memory"]
    if memory:
        limit, host = (writes[key] >> 20 for key in ("device_limit", "host_limit"))
        lines += ["", "### With little memory", ""]
        lines += [f"COGs with {limit} MiB on the device and under {host} MiB on the host.", ""]
        body = []
        for row in memory:
            own = row["contenders"].get("swath") or {}
            if not own.get("ok"):
                body.append([row["name"], f"{row['pixels_bytes'] / 1e6:.0f}", cell(own or None), "-", "-", "-", "-"])
                continue
            peaks = [f"{size / (1 << 20):.0f}" for size in (own["counters"]["peak_bytes"], own["host_peak_bytes"] or 0)]
            within = "yes" if own["within"] else "**no**"
            gbs = figure(own["gbs"]["best"])
            body.append([row["name"], f"{row['pixels_bytes'] / 1e6:.0f}", gbs, str(own["batches"]), *peaks, within])
        lines += table(["row", "MB pixels", "GB/s", "batches", "device MiB", "host MiB", "within"], body)
    return lines


def write_details(rows: list[dict[str, Any]], writes: dict[str, Any]) -> list[str]:
    """Files read back, files compared between batch sizes, counters, and rows that failed or were not run."""
    lines = ["", "### Read back and compared", ""]
    by_reader: dict[str, list[str]] = {}
    for each in [row["contenders"].get("swath") or {} for row in rows] + writes["cogs"]:
        for reader, result in each.get("checks", {}).items():
            by_reader.setdefault("`swath validate`" if reader == "validate" else reader, []).append(result)
    for reader, results in by_reader.items():
        lines.append(f"- {reader}: {results.count('equal')} of {len(results)} right")
    for each in writes["identity"]:
        how = ", ".join(f"{file['how']} ({file['batches']})" for file in each.get("files", []))
        same = "not run" if each.get("late") else "yes" if each["ok"] else "**no**"
        lines.append(f"- one file of {each['name']} each time: {same}; batches: {how or '-'}")
    packed = [each["name"] for each in writes["cogs"] if each.get("packed")]
    if packed:
        lines.append(f"- brought home for other validators: {', '.join(packed)}")
    keys = ("batches", "device_tiles", "host_tiles")
    counted = ("allocations", "downloads", "synchronisations", "launches")
    body = []
    for row in rows:
        own = row["contenders"].get("swath") or {}
        if own.get("ok"):
            numbers = [own.get(key) for key in keys] + [own["counters"].get(key) for key in counted]
            sizes = [own["counters"]["peak_bytes"], own.get("host_peak_bytes") or 0]
            body.append([row["name"], *map(str, numbers), *(f"{size / (1 << 20):.0f}" for size in sizes)])
    head = ["row", "batches", "tiles on device", "on host", *counted, "device MiB", "host MiB"]
    lines += ["", "### Counters of swath's last call", "", *table(head, body)]
    errors, grouped = [], {}
    for row in rows:
        for name, answer in row["contenders"].items():
            for notice in answer.get("notices") or []:
                grouped.setdefault((name, f"notes: {notice}"), []).append(row["name"])
            if not answer["ok"]:
                grouped.setdefault((name, f"failed or not run: {answer.get('error')}"), []).append(row["name"])
            if answer.get("device_bytes"):
                errors.append(f"- {name} on {row['name']} held {answer['device_bytes'] / 1e9:.1f} GB on the device")
            if answer.get("nvcomp") is False:
                grouped.setdefault((name, "found no nvCOMP"), []).append(row["name"])
    for (name, what), which in grouped.items():
        errors.append(f"- {name} on {', '.join(which)} {what}")
    return lines + (["", "### Errors, notices and what was not run", "", *errors] if errors else [])


def stats_tables(stats: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Times of `swath stats`, and the faults."""
    lines = ["", "## Statistics", "", "Seconds of `swath stats`, best process [median], on a Zstd COG of f32.", ""]
    body = []
    for row in stats["rows"]:
        times = [row["seconds"].get(device) for device in ("cpu", "cuda")]
        cells = [f"{min(each):.2f} [{statistics.median(each):.2f}]" if each else "-" for each in times]
        goal = reached(min(times[1]) if times[1] else None, row.get("goal_s"), True)
        back = str(row.get("bytes_back", "-"))
        body.append([f"{row['width']} x {row['height']}", *cells, figure(row.get("times_cpu")), back, goal])
    lines += table(["raster", "CPU", "GPU", "× CPU", "bytes back", "goal"], body)
    return lines, [
        f"statistics of {row['width']} x {row['height']}: {why}" for row in stats["rows"] for why in row["faults"]
    ]


def cold_tables(cold: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Time of the first call of a process, with machine code and with PTX, and the faults."""
    lines = ["", "## Cold start", ""]
    if "rows" not in cold:
        return [*lines, f"**{cold.get('error', 'no result')}**"], [f"cold start: {cold.get('error', 'no result')}"]
    lines += [f"Seconds in a process of its own with the driver's cache off, {cold['size']} x {cold['size']} u16."]
    lines += ["Best process [median]; the first call comes on top of the context. Writes begin with the raster on the"]
    lines += ["device.", ""]

    def times(values: list[float]) -> str:
        return f"{min(values):.3f} [{statistics.median(values):.3f}]" if values else "-"

    body = []
    for row in cold["rows"]:
        machine, ptx = row["machine"], row["ptx"]
        first = statistics.median(machine["first_s"]) if machine["first_s"] else None
        goal = reached(first, cold["goal_s"], True) if row["case"] != "context" else "-"
        figures = [times(machine[key]) for key in ("open_s", "first_s", "second_s")]
        body.append([row["case"], *figures, goal, times(ptx["first_s"])])
    lines += table(["what", "context", "first call", "second call", "goal", "first call by PTX"], body)
    kernels = sorted(
        {row[form]["kernels"] for row in cold["rows"] for form in ("machine", "ptx") if row[form].get("kernels")}
    )
    notices = sorted(
        {notice for row in cold["rows"] for form in ("machine", "ptx") for notice in row[form].get("notices") or []}
    )
    lines += ["", f"Kernels: {'; '.join(kernels)}.", *(f"- note: {notice}" for notice in notices)]
    return lines, [f"cold start: {fault}" for fault in cold["faults"]]


def real_tables(real: dict[str, Any]) -> tuple[list[str], list[str]]:
    """What was measured with real rasters, and the faults."""
    size = real["size"]
    lines = [
        "", f"## Real rasters, mirrored to {size} x {size}", "",
        "GB/s of pixels, best call; windows of 1024 x 1024 in ms, median; chips of 256 x 256 a second, best. Sizes are",
        "relative to the file that was read, with the same predictor.", "",
    ]  # fmt: skip
    whole = {
        "read, cuda": "read, swath cuda", "read, cpu": "read, swath cpu", "read, GDAL": "read, GDAL",
        "write": "write, swath cuda", "COG": "cog, swath cuda", "COG to /dev/shm": "cog to /dev/shm, swath cuda",
    }  # fmt: skip
    windows = {f"window, {who}": f"window, {how}" for who, how in (
        ("cuda", "swath cuda"), ("cpu", "swath cpu"), ("GDAL", "GDAL"))}  # fmt: skip
    chips = {f"chips, {order}": f"chips {order}, swath cuda" for order in ("random", "grid")}
    body = []
    for row in real["rows"]:
        times = row["times"]
        cells = [f"{row['name']} {row['codec']} p{row['predictor']}"]
        cells += [
            figure(row["pixels_bytes"] / min(times[key]) / 1e9 if key in times else None) for key in whole.values()
        ]
        cells += [figure(statistics.median(times[key]) * 1e3 if key in times else None) for key in windows.values()]
        cells += [f"{row[key.split(',')[0]] / min(times[key]):.0f}" if key in times else "" for key in chips.values()]
        made = row.get("write, swath cuda, bytes")
        body.append([*cells, f"{made / row['file_bytes']:.3f}" if made else ""])
    lines += table(["raster", *whole, *windows, *chips, "size of write"], body)
    for row in real["rows"]:
        times = row["times"]
        if "fill pages" in times:
            filled = row["cog, swath cuda, bytes"] / min(times["fill pages"]) / 1e9
            reached = row["cog, swath cuda, bytes"] / min(times["cog to /dev/shm, swath cuda"]) / 1e9
            lines.append(
                f"- {row['name']} {row['codec']}: COG to /dev/shm {reached:.2f} GB/s, `pwrite` there {filled:.2f}"
            )
        if "stream, swath cuda" in times:
            speed = row["stream bytes"] / min(times["stream, swath cuda"]) / 1e9
            lines.append(
                f"- {row['name']}: {row['stream bytes'] >> 30} GiB from dask of CuPy to a Zstd COG at {speed:.2f} GB/s"
            )
    faults = [f"{row['name']} {row['codec']}: {what} is wrong" for row in real["rows"] for what in row["wrong"]]
    return lines, faults


def python_tables(python: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Checks of the Python package, with figures and faults."""
    checks = python["checks"]
    facts = ", ".join(f"{name} {version}" for name, version in python["facts"].items() if version)
    lines = ["", "## The Python package", "", f"{facts}.", ""]
    body, faults = [], []
    for each in checks:
        state = "yes" if each["ok"] else "**no**"
        state = f"not run: {each['left_out']}" if each.get("left_out") else state
        body.append([each["name"], each["group"], str(each["cases"]), short(each["seconds"]), state])
        if not each["ok"]:
            faults.append(f"Python, {each['group']}: {each['name']}: {each['error']}")
    lines += table(["what holds", "group", "cases", "seconds", "held"], body)
    failed = [case for each in checks for case in each.get("figures", {}).get("failed", [])]
    if failed:
        lines += ["", "### Cases that failed", ""]
        lines += table(["case", "error"], [[case["name"], case["error"].replace("|", "/")] for case in failed])
    figures = {f"{each['group']}: {each['name']}": each["figures"] for each in checks if each.get("figures")}
    peaks = [answer for name, found in figures.items() if name.startswith("memory") for answer in found.values()]
    if peaks:
        lines += ["", "### Device memory of a write of 256 MB from CuPy", ""]
        lines += ["MB above what was taken before the write; an eager write's array is not counted in.", ""]
        body = []
        for answer in peaks:
            if answer.get("error"):
                body.append([answer["name"], f"**{answer['error'][:80].replace('|', '/')}**", "-", "-", "-"])
                continue
            sizes = [answer[key] for key in ("peak_bytes", "peak_from_cold", "report_peak_bytes")]
            columns = [f"{size / 1e6:.0f}" if size is not None else "-" for size in sizes]
            body.append([answer["name"], *columns, short(answer["seconds"])])
        lines += table(["write", "peak", "with kernels loaded in it", "by swath's count", "seconds"], body)
    speed = next((found for name, found in figures.items() if name.startswith("bench")), {})
    for codec, rows in speed.items():
        lines += ["", f"### {codec}, {python['size']} x {python['size']}, u16", ""]
        lines += ["Chips of 256 x 256 a second, in batches of 256, ready on the device; whole rasters in GB/s.", ""]
        known = {name: rates for name, rates in rows.items() if isinstance(rates, dict)}
        body = [[name, *(f"{rates[key]:.5g}" for key in ("best", "median"))] for name, rates in known.items()]
        lines += table(["what", "best", "median"], body)
    return lines, faults


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dir", type=Path, required=True)
    parser.add_argument("--versions", type=Path)
    args = parser.parse_args()
    tests, sanitizer = load(args.dir / "tests.json"), load(args.dir / "sanitizer.json")
    contenders, writes = load(args.dir / "contenders.json"), load(args.dir / "writes.json")
    python, corrupted = load(args.dir / "python.json"), load(args.dir / "corrupted.json")
    killed = load(args.dir / "killed.json")
    cold, stats, real = (load(args.dir / f"{name}.json") for name in ("cold", "stats", "real"))
    versions = args.versions.read_text().strip().splitlines() if args.versions and args.versions.exists() else []
    date = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
    faults: list[str] = []
    lines = ["# GPU results", "", f"{date}", ""]
    machine = (contenders or writes or {}).get("machine", {})
    if machine:
        names = {"gpu": "GPU", "nvcc": "toolkit", "cpu": "CPU", "cpus": "CPU threads"}
        lines += [f"- {names.get(key, key)}: {' '.join(str(value).split())}" for key, value in machine.items() if value]
    elif (args.dir / "devices.txt").exists():
        lines += [f"- {line}" for line in (args.dir / "devices.txt").read_text().strip().splitlines()]
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
        notes = [(group["name"], note) for group in groups for note in group.get("notes", [])]
        lines += ["", *(f"- {name}: {note}" for name, note in notes)] if notes else []
        failures = [(group["name"], fault) for group in groups for fault in group.get("first_failures", [])]
        lines += ["", *(f"- **{name}** {fault}" for name, fault in failures)]
        if failed or tests.get("exit") or not tests.get("ok"):
            faults.append(f"tests: {failed} failed, exit status {tests.get('exit', 0)}")
    for tool in sanitizer or []:
        lines.append(f"- compute-sanitizer {tool['tool']}: {tool['summary']} ({tool['seconds']} s)")
        if tool["found"]:
            faults.append(f"compute-sanitizer {tool['tool']}: {tool['summary']}")
    if corrupted:
        section, wrong = corrupted_lines(corrupted)
        lines += section
        faults += wrong
    if killed:
        section, wrong = killed_lines(killed)
        lines += section
        faults += wrong
    rows: list[dict[str, Any]] = []
    if contenders:
        rows, wrong = compare(contenders)
        faults += wrong
        lines += ["", *speed_tables(rows), *zstd_tables(rows), *details(rows)]
    written: list[dict[str, Any]] = []
    if writes:
        written, wrong = compare_writes(writes)
        faults += wrong
        lines += ["", *write_tables(written, writes), *write_details(written, writes)]
    if real:
        section, wrong = real_tables(real)
        lines += section
        faults += wrong
    if stats:
        section, wrong = stats_tables(stats)
        lines += section
        faults += wrong
    if cold:
        section, wrong = cold_tables(cold)
        lines += section
        faults += wrong
    if python:
        section, wrong = python_tables(python)
        lines += section
        faults += wrong
    result = {
        "date": date, "machine": machine, "versions": versions, "ceilings": ceiling, "tests": tests,
        "sanitizer": sanitizer, "corrupted": corrupted, "killed": killed, "rows": rows, "faults": faults,
        "writes": {**writes, "rows": written} if writes else None, "real": real, "stats": stats,
        "cold": cold, "python": python,
    }  # fmt: skip
    if faults:
        lines += ["", "## Faults", "", *(f"- {fault}" for fault in faults)]
    (args.dir / "results.md").write_text("\n".join(lines) + "\n")
    (args.dir / "results.json").write_text(json.dumps(result, indent=1) + "\n")
    print("\n".join(lines))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
