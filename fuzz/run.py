#!/usr/bin/env python3
"""Fuzzes swath: `python3 fuzz/run.py [--seconds N] [--jobs N] [TARGET...]`, or `make fuzz FUZZ_ARGS=...`.

Builds the targets of `fuzz/src/lib.rs` with coverage counters (stable Rust, libFuzzer), makes their first inputs from
the project's fixtures and, where it lies beside the checkout, from the shared corpus, and fuzzes each target for N
seconds. Inputs that reached something new are kept in target/fuzz/corpus/TARGET, so that the next run goes on there.
Executions, edges and findings of all runs are added up in target/fuzz/figures.json and printed as a table.

A finding (panic, failed assertion, hang, more than 2 GiB) is kept in target/fuzz/findings/TARGET and makes the exit
status 1. Once it is mended, `cargo test -p swath-fuzz` replays it from fuzz/regressions/TARGET.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "target" / "fuzz"
TRIPLE = "x86_64-unknown-linux-gnu"
PROGRAM = FOLDER / TRIPLE / "release" / "swath-fuzz"
SEEDS = FOLDER / TRIPLE / "release" / "swath-fuzz-seeds"
# Coverage for libFuzzer without a nightly compiler; naming the target keeps the flags off build scripts.
FLAGS = (
    "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 "
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table -Ccodegen-units=1"
)
# Bytes of the longest input, seconds that one may take, and MiB that the process may use.
LONGEST, SLOWEST, MEMORY = 64 << 10, 20, 2048


@dataclass
class Figures:
    """What all runs of a target came to."""

    seconds: float = 0
    executions: int = 0
    edges: int = 0
    inputs: int = 0
    findings: int = 0


def build() -> None:
    """The fuzzer and the maker of seeds; debug assertions are on."""
    environment = {**os.environ, "RUSTFLAGS": FLAGS, "CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS": "true"}
    command = ["cargo", "build", "--release", "--target", TRIPLE, "--target-dir", FOLDER]
    subprocess.run([*command, "-p", "swath-fuzz", "--features", "libfuzzer"], cwd=ROOT, env=environment, check=True)
    # The kernels on the host, under the address sanitizer.
    subprocess.run([ROOT / "tools" / "kernel-host" / "build.sh"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)


def targets() -> list[str]:
    """Names of all targets, from the table in the source."""
    source = (ROOT / "fuzz" / "src" / "lib.rs").read_text()
    return re.findall(r'Target \{ name: "(\w+)"', source)


def make_seeds() -> None:
    """First inputs of all targets."""
    folders = [ROOT / "corpus", ROOT / os.environ.get("SHARED_CORPUS", "../shared/corpus")]
    files = [path for folder in folders for path in sorted(folder.rglob("*")) if path.is_file()]
    small = [str(path) for path in files if path.stat().st_size < 4 << 20]
    for start in range(0, len(small), 500):
        subprocess.run([SEEDS, FOLDER / "seeds", *small[start : start + 500]], check=True)


def fuzz(name: str, seconds: int) -> Figures:
    """One run of one target."""
    corpus, seeds, findings = (FOLDER / kind / name for kind in ("corpus", "seeds", "findings"))
    for folder in (corpus, seeds, findings):
        folder.mkdir(parents=True, exist_ok=True)
    command = [
        PROGRAM, f"-max_total_time={seconds}", f"-max_len={LONGEST}", f"-timeout={SLOWEST}", f"-rss_limit_mb={MEMORY}",
        f"-artifact_prefix={findings}/", "-print_final_stats=1", "-verbosity=1", corpus, seeds,
    ]  # fmt: skip
    environment = {**os.environ, "SWATH_FUZZ_TARGET": name}
    before, began = len(list(findings.iterdir())), time.monotonic()
    run = subprocess.run(
        list(map(str, command)), env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    log = run.stdout.decode(errors="replace")
    (FOLDER / f"{name}.log").write_text(log)
    edges = [int(found) for found in re.findall(r" cov: (\d+)", log)]
    executions = re.findall(r"stat::number_of_executed_units:\s+(\d+)|^#(\d+)", log, re.MULTILINE)
    found = len(list(findings.iterdir())) - before
    if run.returncode and not found:
        sys.stderr.write(log[-2000:])
        raise SystemExit(f"{name}: the fuzzer ended with status {run.returncode}, see {FOLDER / name}.log")
    return Figures(
        seconds=round(time.monotonic() - began, 1),
        executions=max((int(one or other) for one, other in executions), default=0),
        edges=max(edges, default=0),
        inputs=len(list(corpus.iterdir())),
        findings=found,
    )


def minimise(name: str) -> None:
    """Keeps of the corpus what its coverage needs."""
    corpus, merged = FOLDER / "corpus" / name, FOLDER / "merged" / name
    merged.mkdir(parents=True, exist_ok=True)
    command = [PROGRAM, "-merge=1", f"-max_len={LONGEST}", f"-rss_limit_mb={MEMORY}", merged, corpus]
    environment = {**os.environ, "SWATH_FUZZ_TARGET": name}
    run = subprocess.run(list(map(str, command)), env=environment, capture_output=True, check=False)
    if run.returncode == 0 and any(merged.iterdir()):
        for path in corpus.iterdir():
            path.unlink()
        for path in merged.iterdir():
            path.rename(corpus / path.name)


def table(figures: dict[str, Figures]) -> str:
    """All runs so far, in Markdown."""
    lines = [
        "| target | seconds | executions | edges | inputs kept | findings |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name, of in figures.items():
        lines.append(
            f"| {name} | {of.seconds:,.0f} | {of.executions:,} | {of.edges:,} | {of.inputs:,} | {of.findings} |"
        )
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", help="targets to fuzz; all without any")
    parser.add_argument("--seconds", type=int, default=900, help="seconds for each target (900)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="targets at once")
    parser.add_argument("--minimise", action="store_true", help="minimise the kept inputs afterwards")
    given = parser.parse_args()
    if unknown := set(given.targets) - set(targets()):
        parser.error(f"no target is called {', '.join(sorted(unknown))}: there are {', '.join(targets())}")
    build()
    if not (FOLDER / "seeds").is_dir():
        make_seeds()
    kept = FOLDER / "figures.json"
    figures = {name: Figures(**found) for name, found in json.loads(kept.read_text()).items()} if kept.exists() else {}
    chosen = given.targets or targets()
    with ThreadPoolExecutor(given.jobs) as pool:
        for name, run in zip(chosen, pool.map(lambda name: fuzz(name, given.seconds), chosen), strict=True):
            all_runs = figures.setdefault(name, Figures())
            all_runs.seconds += run.seconds
            all_runs.executions += run.executions
            all_runs.findings += run.findings
            all_runs.edges, all_runs.inputs = max(run.edges, all_runs.edges), run.inputs
            kept.write_text(json.dumps({name: asdict(of) for name, of in figures.items()}, indent=1) + "\n")
            print(f"{name}: {run.executions:,} executions, {run.edges:,} edges, {run.findings} findings", flush=True)
            if given.minimise:
                minimise(name)
    print("\n" + table(figures))
    return 1 if any(of.findings for of in figures.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
