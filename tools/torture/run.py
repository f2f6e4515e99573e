"""Runs the reliability scenarios at length and writes their results to docs/reliability.md (`make torture`).

The scenarios are listed in scenarios.toml. A scenario is finished when all its commands have ended; finished ones are
remembered with their commit, so that an interrupted run continues where it stopped. Tests report their figures with
`harness.record`; for a command without figures its tests are counted, and a command without tests counts as one check.
A command that should run tests and runs none is a failure.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shlex
import subprocess
import sys
import time
import tomllib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

from revision import revision  # noqa: E402

TARGET = ROOT / os.environ.get("CARGO_TARGET_DIR", "target")
# Committed, so that a run of hours can be made of several, on several machines.
STATE = ROOT / "tools" / "torture" / "results.json"
REPORT = TARGET / "torture" / "report.jsonl"
PAGE = ROOT / "docs" / "reliability.md"

Row = dict[str, Any]

INTRODUCTION = """\
# What swath survives

`make torture` runs these scenarios at length and writes this page; `make test` runs the short version of those that
have one. A try survives if the result is right, or if an error says what is wrong and the old file is whole. It is
lost if values are wrong, a file is torn or gone, memory or a file leaks, or the process crashes or hangs.
"""


LISTED = tomllib.loads(Path(__file__).with_name("scenarios.toml").read_text())
DEVICE_RESULT = ROOT / "bench" / "results" / LISTED["device_result"]
# Sums over all runs of the fuzzer, with `make fuzz` too.
FUZZ_FIGURES = ROOT / "fuzz" / "figures.json"


def scenarios() -> list[Row]:
    listed: list[Row] = [dict(scenario) for scenario in LISTED["scenario"]]
    for scenario in listed:
        if "tests" in scenario:
            scenario["run"] = [*scenario.get("run", []), *map(pytest_of, scenario["tests"])]
    return listed


def pytest_of(words: str) -> str:
    named = [f"tests/python/{word}" if word.endswith(".py") else shlex.quote(word) for word in shlex.split(words)]
    return f"python -m pytest -c tests/python/pytest.ini {' '.join(named)}"


def machine() -> str:
    """Processor, kernel and file system; nothing that names the machine."""
    model = platform.machine()
    info = Path("/proc/cpuinfo")
    if info.is_file() and (found := re.search(r"model name\s*:\s*(.+)", info.read_text())):
        model = found[1]
    kind, mounts = "unknown file system", Path("/proc/mounts")
    if mounts.is_file():
        table = [line.split()[1:3] for line in mounts.read_text().splitlines()]
        kind = max((len(Path(at).parts), kind) for at, kind in table if ROOT.is_relative_to(at))[1]
    # A build of the kernel could name its owner.
    release = platform.release().split("-")[0]
    return f"{os.cpu_count()} cores of {model}, {platform.system()} {release}, {kind}"


def counted(output: str) -> tuple[int, int]:
    """Passed and failed tests, from the summaries of pytest and cargo."""
    passed = sum(map(int, re.findall(r"\b(\d+) passed", output)))
    failed = sum(map(int, re.findall(r"\b(\d+) (?:failed|error)", output)))
    return passed, failed


def runs_tests(command: str) -> bool:
    """Whether a command exists to run tests, so that a run of none proves nothing."""
    words = shlex.split(command)
    return words[:2] == ["cargo", "test"] or "pytest" in words or words[0] == "tools/other-machines.sh"


def run(scenario: Row, report: Path) -> tuple[list[Row], str | None]:
    """Runs the commands of a scenario; returns its lines, and its failures."""
    environment = {
        **os.environ,
        "SWATH_TORTURE": str(scenario.get("factor", 1)),
        "SWATH_TORTURE_REPORT": str(report),
        "SWATH_TORTURE_SCENARIO": scenario["id"],
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    rows: list[Row] = []
    fault = None
    for command in scenario["run"]:
        report.unlink(missing_ok=True)
        print(f"  {command}", flush=True)
        log = report.with_suffix(".log")
        # A test that skips what the machine lacks would count as passed; the script of tools/ says what it leaves out.
        strict = {"CI": "true"} if runs_tests(command) and not command.startswith("tools/") else {}
        with log.open("w") as out:
            done = subprocess.run(
                shlex.split(command),
                cwd=ROOT,
                env=environment | strict,
                stdout=out,
                stderr=subprocess.STDOUT,
                check=False,
            )
        lines = [json.loads(line) for line in report.read_text().splitlines()] if report.exists() else []
        rows += [line for line in lines if line["scenario"] == scenario["id"]]
        output = log.read_text(errors="replace")
        left_out = re.findall(r"^\S+: left out, .+$", output, re.MULTILINE)
        rows += [{"what": missing, "tries": 0, "survived": 0, "lost": 0} for missing in left_out]
        passed, failed = counted(output)
        if not any(line["scenario"] == scenario["id"] for line in lines):
            if passed + failed:
                rows.append({"what": "tests", "tries": passed + failed, "survived": passed, "lost": failed})
            elif not runs_tests(command) and "fuzzer" not in scenario:
                good = int(done.returncode == 0)
                rows.append({"what": "checks", "tries": 1, "survived": good, "lost": 1 - good})
        wrong = None
        if done.returncode:
            wrong = f"`{command}` ended with {done.returncode}"
        elif runs_tests(command) and not passed + failed and not left_out:
            wrong = f"`{command}` ran no test"
        if wrong:
            fault = wrong
            print(f"  {fault}; see {log}", flush=True)
            log.rename(log.with_name(f"{scenario['id']}-failed.log"))
    return merged(rows), fault


def merged(rows: list[Row]) -> list[Row]:
    """One row for each scenario."""
    sums: dict[str, Row] = {}
    for row in rows:
        entry = sums.setdefault(row["what"], {"what": row["what"], "tries": 0, "survived": 0, "lost": 0})
        for key in ("tries", "survived", "lost"):
            entry[key] += row[key]
    return list(sums.values())


def device_rows(scenario: Row) -> list[Row]:
    """The last result from a GPU for a scenario."""
    content = json.loads(DEVICE_RESULT.read_text()) if DEVICE_RESULT.exists() else {}
    suffix = f"on an {content['tests']['device']}, {content['date'][:10]}" if content else ""
    rows = []
    groups = [
        group for group in content.get("tests", {}).get("groups", []) if group["name"] in scenario.get("device", [])
    ]
    if groups:
        cases, failed = sum(group["cases"] for group in groups), sum(group["failed"] for group in groups)
        rows.append({"what": f"tests {suffix}", "tries": cases, "survived": cases - failed, "lost": failed})
    if scenario["id"] == "G5":
        for name, found in (content.get("corrupted") or {}).get("codecs", {}).items():
            what = f"damaged {name} tiles {suffix}"
            tiles, wrong = found["tiles"], found["wrong"]
            rows.append({"what": what, "tries": tiles, "survived": tiles - wrong, "lost": wrong})
    if scenario["id"] == "G7" and (killed := content.get("killed")):
        lost = killed["lost"] + killed["strays"]
        what = f"writers killed {suffix}"
        rows.append({"what": what, "tries": killed["kills"], "survived": killed["kills"] - lost, "lost": lost})
    return rows


def fuzz_rows(scenario: Row) -> list[Row]:
    """The figures of all runs of the fuzzer so far, for the scenarios that run it."""
    if "fuzzer" not in scenario or not FUZZ_FIGURES.exists():
        return []
    suffix = ", address sanitizer"
    rows = []
    for title, found in json.loads(FUZZ_FIGURES.read_text()).items():
        if title.endswith(suffix) == (scenario["fuzzer"] == "address"):
            what = f"{title.removesuffix(suffix)}, {found['cpu_seconds'] / 60:.0f} minutes of one core"
            tries, lost = found["executions"], found["findings"]
            fixed = "; the findings are fixed, and S3 tries them again" if lost else ""
            rows.append({"what": what + fixed, "tries": tries, "survived": tries - lost, "lost": lost})
    return rows


def lines_of(listed: list[Row], state: dict[str, Row]) -> list[str]:
    out = []
    for scenario in listed:
        head = f"| {scenario['id']} | {scenario['what']}"
        done = state.get(scenario["id"])
        rows = (done["rows"] if done else []) + device_rows(scenario) + fuzz_rows(scenario)
        if done is None and not rows and "needs" not in scenario:
            rows.insert(0, {"what": "not run yet", "tries": "", "survived": "", "lost": ""})
        if not rows:
            missing = f"needs {scenario['needs']}; no result yet" if "needs" in scenario else "no figure"
            rows = [{"what": missing, "tries": "", "survived": "", "lost": ""}]
        for row in rows:
            out.append(f"{head} | {row['what']} | {row['tries']} | {row['survived']} | {row['lost']} |")
            head = "| |"
        if done and done["fault"]:
            out.append(f"| | | **failed: {done['fault']}** | | | |")
    return out


def page(listed: list[Row], state: dict[str, Row]) -> str:
    done = [state[scenario["id"]] for scenario in listed if scenario["id"] in state]
    elsewhere = [
        scenario for scenario in listed if scenario["id"] not in state and (device_rows(scenario) + fuzz_rows(scenario))
    ]
    dates = sorted({entry["date"] for entry in done})
    commits = sorted({entry["commit"] for entry in done})
    when = " to ".join(dict.fromkeys((dates[0], dates[-1]))) if dates else "never"
    seconds = sum(entry["seconds"] for entry in done)
    machines = " and ".join(sorted({entry["machine"] for entry in done})) or "no machine"
    facts = (
        f"Run {when} at {', '.join(commits) or 'no commit'}, {seconds / 60:.0f} minutes in all, on {machines}.\n\n"
        f"{len(done) + len(elsewhere)} of {len(listed)} scenarios were run, {len(elsewhere)} of them by the fuzzer "
        f"or on a GPU alone. The other {len(done)}: "
        f"{sum(row['tries'] for entry in done for row in entry['rows'])} tries, "
        f"{sum(row['lost'] for entry in done for row in entry['rows'])} lost.\n"
    )
    table = ["| # | scenario | what was tried | tries | survived | lost |", "| --- | --- | --- | ---: | ---: | ---: |"]
    parts = [INTRODUCTION, "## What was run\n", facts, "## Scenarios\n", *table, *lines_of(listed, state)]
    return "\n".join(parts) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("only", nargs="*", help="numbers of scenarios, for example W1 R2; all by default")
    parser.add_argument("--again", action="store_true", help="run finished scenarios again")
    parser.add_argument("--factor", type=int, help="how many times as long as in `make test`; as listed by default")
    parser.add_argument("--list", action="store_true", help="show scenarios and commands, and run nothing")
    parser.add_argument("--page", action="store_true", help="write the page of what was run, and run nothing")
    args = parser.parse_args()
    listed = scenarios()
    known = {scenario["id"] for scenario in listed}
    if unknown := set(args.only) - known:
        parser.error(f"{', '.join(sorted(unknown))}: no such scenario; there are {', '.join(sorted(known))}")
    chosen = [scenario for scenario in listed if not args.only or scenario["id"] in args.only]
    if args.list:
        for scenario in chosen:
            print(f"{scenario['id']:4} {scenario['what']}")
            for command in scenario.get("run", [f"needs {scenario.get('needs')}"]):
                print(f"       {command}")
            print(f"       in make test: {scenario.get('short', 'no' if 'needs' in scenario else 'all of it')}")
        return 0
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    state: dict[str, Row] = json.loads(STATE.read_text()) if STATE.exists() else {}
    now = revision()
    for scenario in chosen:
        done = state.get(scenario["id"])
        if (
            args.page
            or "needs" in scenario
            or (done and done["commit"] == now and not done["fault"] and not args.again)
        ):
            continue
        if args.factor:
            scenario["factor"] = args.factor
        print(f"{scenario['id']} {scenario['what']}", flush=True)
        began = time.monotonic()
        rows, fault = run(scenario, REPORT)
        state[scenario["id"]] = {
            "commit": now, "date": f"{datetime.now(UTC):%Y-%m-%d}", "seconds": round(time.monotonic() - began, 1),
            "machine": machine(), "rows": rows, "fault": fault,
        }  # fmt: skip
        draft = STATE.with_suffix(".new")
        draft.write_text(json.dumps(state, indent=1) + "\n")
        draft.rename(STATE)
    print("\n".join(lines_of(chosen, state)))
    PAGE.write_text(page(listed, state))
    bad = [entry for entry in state.values() if entry["fault"] or any(row["lost"] for row in entry["rows"])]
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
