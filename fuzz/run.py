#!/usr/bin/env python3
"""Fuzzes swath: `python3 fuzz/run.py [--seconds N] [--jobs N] [TARGET...]`, or `make fuzz FUZZ_ARGS=...`.

Builds the targets of `fuzz/src/lib.rs` with coverage counters (stable Rust, libFuzzer), makes their first inputs from
the project's fixtures and, where it is beside the checkout, from the shared corpus, and fuzzes each target for N
seconds. Inputs that reached new code are kept in target/fuzz/corpus/TARGET, so that the next run continues there.
`fuzz/figures.json` adds up the executions, edges and findings of all runs, on all machines; it is committed.

With `--sanitizer` a nightly toolchain builds Rust and the C libraries with the address sanitizer (clang where it is
installed, else the system's C compiler).

A finding (panic, failed assertion, hang, more than 2 GiB) is kept in target/fuzz/findings/TARGET and makes the exit
status 1. Once it is fixed, copy it to fuzz/regressions/TARGET, where `cargo test -p swath-fuzz` replays it.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "target" / "fuzz"
FIGURES = ROOT / "fuzz" / "figures.json"
TRIPLE = "x86_64-unknown-linux-gnu"
# Coverage for libFuzzer without a nightly compiler.
FLAGS = (
    "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 "
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table -Ccodegen-units=1"
)
# Bytes of the longest input, seconds that one may take, and MiB that the process may use.
LONGEST, SLOWEST, MEMORY = 64 << 10, 20, 2048


@dataclass
class Figures:
    """Sums over all runs of a target."""

    seconds: float = 0
    cpu_seconds: float = 0
    executions: int = 0
    edges: int = 0
    inputs: int = 0
    findings: int = 0


@dataclass(frozen=True)
class Build:
    """One build of the targets: plain, or with the address sanitizer."""

    sanitizer: bool

    @property
    def folder(self) -> Path:
        return FOLDER.with_name("fuzz-address") if self.sanitizer else FOLDER

    def program(self, name: str) -> Path:
        return self.folder / TRIPLE / "release" / name

    def title(self, target: str) -> str:
        return f"{target}, address sanitizer" if self.sanitizer else target

    def run(self) -> None:
        """Builds the fuzzer and the maker of seeds, with debug assertions and overflow checks in every crate."""
        flags, cargo, extra = FLAGS, ["cargo"], {}
        if self.sanitizer:
            flags, cargo = f"{FLAGS} -Zsanitizer=address", ["cargo", "+nightly"]
            # Naming the target keeps the flags off programs that build scripts compile and run.
            extra = {f"CFLAGS_{TRIPLE.replace('-', '_')}": "-fsanitize=address -fno-omit-frame-pointer"}
            if clang := shutil.which("clang"):
                extra[f"CC_{TRIPLE.replace('-', '_')}"] = clang
        environment = {**os.environ, "RUSTFLAGS": flags, "CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS": "true", **extra}
        command = [*cargo, "build", "--release", "--target", TRIPLE, "--target-dir", self.folder]
        for crate in ("swath-codec", "swath-raster"):  # without checks in the release profile
            command += ["--config", f"profile.release.package.{crate}.overflow-checks=true"]
        subprocess.run([*command, "-p", "swath-fuzz", "--features", "libfuzzer"], cwd=ROOT, env=environment, check=True)
        # The kernels on the host are under the address sanitizer in any case.
        subprocess.run([ROOT / "tools" / "kernel-host" / "build.sh"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)


def targets() -> list[str]:
    """Names of all targets, from the table in the source."""
    source = (ROOT / "fuzz" / "src" / "lib.rs").read_text()
    return re.findall(r'Target \{ name: "(\w+)"', source)


def make_seeds(build: Build) -> None:
    """Makes the first inputs of all targets."""
    folders = [ROOT / "corpus", ROOT / os.environ.get("SHARED_CORPUS", "../shared/corpus")]
    files = [path for folder in folders for path in sorted(folder.rglob("*")) if path.is_file()]
    small = [str(path) for path in files if path.stat().st_size < 4 << 20]
    for start in range(0, len(small), 500):
        subprocess.run([build.program("swath-fuzz-seeds"), FOLDER / "seeds", *small[start : start + 500]], check=True)


def kept_findings(folder: Path) -> list[Path]:
    """Inputs that failed. libFuzzer also keeps slow ones, which say more about the machine: a hang has a limit."""
    return [path for path in folder.iterdir() if not path.name.startswith("slow-unit-")]


def fuzz(build: Build, name: str, seconds: int) -> Figures:
    """Fuzzes one target once."""
    corpus, seeds, findings = (FOLDER / kind / name for kind in ("corpus", "seeds", "findings"))
    for folder in (corpus, seeds, findings):
        folder.mkdir(parents=True, exist_ok=True)
    command = [
        build.program("swath-fuzz"), f"-max_total_time={seconds}", f"-max_len={LONGEST}", f"-timeout={SLOWEST}",
        f"-rss_limit_mb={MEMORY}", f"-artifact_prefix={findings}/", "-print_final_stats=1", "-verbosity=1", corpus,
        seeds,
    ]  # fmt: skip
    environment = {**os.environ, "SWATH_FUZZ_TARGET": name}
    before, began = len(kept_findings(findings)), time.monotonic()
    process = subprocess.Popen(
        list(map(str, command)), env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    assert process.stdout is not None
    # libFuzzer may hang in its own handler of a slow input, which allocates memory.
    watchdog = threading.Timer(2 * seconds + 300, process.kill)
    watchdog.start()
    log = process.stdout.read().decode(errors="replace")
    _, status, used = os.wait4(process.pid, 0)
    watchdog.cancel()
    process.returncode = os.waitstatus_to_exitcode(status)
    (FOLDER / f"{name}.log").write_text(log)
    edges = [int(found) for found in re.findall(r" cov: (\d+)", log)]
    executions = re.findall(r"stat::number_of_executed_units:\s+(\d+)|^#(\d+)", log, re.MULTILINE)
    found = len(kept_findings(findings)) - before
    if process.returncode and not found:
        sys.stderr.write(log[-2000:])
        raise SystemExit(f"{name}: the fuzzer ended with status {process.returncode}, see {FOLDER / name}.log")
    return Figures(
        seconds=round(time.monotonic() - began, 1),
        cpu_seconds=round(used.ru_utime + used.ru_stime, 1),
        executions=max((int(one or other) for one, other in executions), default=0),
        edges=max(edges, default=0),
        inputs=len(list(corpus.iterdir())),
        findings=found,
    )


def minimise(build: Build, name: str) -> None:
    """Keeps those inputs of the corpus that its coverage needs."""
    corpus, merged = FOLDER / "corpus" / name, FOLDER / "merged" / name
    merged.mkdir(parents=True, exist_ok=True)
    command = [
        build.program("swath-fuzz"),
        "-merge=1",
        f"-max_len={LONGEST}",
        f"-rss_limit_mb={MEMORY}",
        merged,
        corpus,
    ]
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
        "| target | seconds of one core | executions | edges | inputs kept | findings |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name, of in figures.items():
        lines.append(
            f"| {name} | {of.cpu_seconds:,.0f} | {of.executions:,} | {of.edges:,} | {of.inputs:,} | {of.findings} |"
        )
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", help="targets to fuzz; all unless given")
    parser.add_argument("--seconds", type=int, default=900, help="seconds for each target (900)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="targets at once")
    parser.add_argument("--sanitizer", action="store_true", help="build with the address sanitizer")
    parser.add_argument("--minimise", action="store_true", help="minimise the kept inputs afterwards")
    given = parser.parse_args()
    if unknown := set(given.targets) - set(targets()):
        parser.error(f"no target is called {', '.join(sorted(unknown))}: there are {', '.join(targets())}")
    build = Build(given.sanitizer)
    build.run()
    if not (FOLDER / "seeds").is_dir():
        make_seeds(build)
    known = json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
    figures = {title: Figures(**found) for title, found in known.items()}
    chosen, findings = given.targets or targets(), 0
    with ThreadPoolExecutor(given.jobs) as pool:
        running = {pool.submit(fuzz, build, name, given.seconds): name for name in chosen}
        for done in as_completed(running):
            name, run = running[done], done.result()
            sums = figures.setdefault(build.title(name), Figures())
            sums.seconds = round(sums.seconds + run.seconds, 1)
            sums.cpu_seconds = round(sums.cpu_seconds + run.cpu_seconds, 1)
            sums.executions += run.executions
            sums.findings += run.findings
            sums.edges, sums.inputs = max(run.edges, sums.edges), max(run.inputs, sums.inputs)
            findings += run.findings
            FIGURES.write_text(json.dumps({title: asdict(of) for title, of in figures.items()}, indent=1) + "\n")
            print(f"{name}: {run.executions:,} executions, {run.edges:,} edges, {run.findings} findings", flush=True)
            if given.minimise:
                minimise(build, name)
    print("\n" + table(figures))
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
