"""Run another project's test suite over swath and hold the result against a list of expected failures.

python tests/peers/run.py rioxarray|xrspatial [--sample] [-- PYTEST ARGUMENTS]

A test counts when it reaches swath and passes without swath. An unexpected failure fails the run; so does an expected
failure that passes, so that `expected_SUITE.toml` only shrinks. `--sample` takes every n-th test, chosen by its name.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PEERS = Path(sys.prefix) / "peers"


@dataclass(frozen=True)
class Suite:
    """Where a suite lies, and how many of its tests make a sample."""

    folder: Path
    # One in so many tests: both samples together take at most two minutes on two slow cores.
    one_in: int
    # What the sample leaves out: files whose collection or tests take too long.
    slow: tuple[str, ...] = ()


SUITES = {
    "rioxarray": Suite(ROOT.parent / "shared" / "peers" / "rioxarray" / "test", 10),
    "xrspatial": Suite(PEERS / "xrspatial" / "geotiff" / "tests", 10),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("suite", choices=sorted(SUITES))
    parser.add_argument("--sample", action="store_true", help="every n-th test only")
    parser.add_argument("--json", type=Path, help="also write what became of each test into this file")
    parser.add_argument("pytest", nargs="*", help="arguments for pytest, after --")
    given = parser.parse_args()
    suite = SUITES[given.suite]
    if not suite.folder.is_dir():
        print(f"{given.suite}: skipped, its tests are not in {suite.folder}")
        return 1 if os.environ.get("CI") == "true" else 0

    one_in = suite.one_in if given.sample else 1
    tests = run(given.suite, suite, given.pytest, one_in=one_in)
    failed = [t["id"] for t in tests if t["reached"] and t["outcome"] == "failed"]
    # What fails without swath as well is no business of ours.
    without = {t["id"]: t for t in run(given.suite, suite, given.pytest, only=failed)} if failed else {}
    counted = [
        t
        for t in tests
        if t["reached"]
        and (t["outcome"] == "passed" or (t["outcome"] == "failed" and without[t["id"]]["outcome"] == "passed"))
    ]
    if given.json:
        given.json.write_text(json.dumps(counted, indent=1))
    whole = not (given.sample or given.pytest)
    return report(given.suite, counted, expected(given.suite), whole=whole)


def run(name: str, suite: Suite, more: list[str], *, one_in: int = 1, only: list[str] | None = None) -> list[dict]:
    """What became of each test of a suite; with `only`, of those tests without swath."""
    with tempfile.TemporaryDirectory(prefix="swath-peers-") as folder:
        out = Path(folder) / "out.json"
        asked = {"suite": name, "one_in": one_in, "slow": suite.slow, "only": only, "out": str(out)}
        paths = [str(HERE), str(PEERS), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(paths),
            "PYTHONDONTWRITEBYTECODE": "1",
            "SWATH_PEERS": json.dumps(asked),
        }
        command = [sys.executable, "-m", "pytest", "-c", str(HERE / "pytest.ini"), "-p", "reach"]
        command += [f"--rootdir={suite.folder}", f"--basetemp={folder}/tmp", *more]
        if not any(a for a in more if (suite.folder / a.split("::")[0]).exists()):
            command.append(str(suite.folder))
        done = subprocess.run(command, cwd=suite.folder, env=environment, check=False)
        if not out.exists():
            sys.exit(f"{name}: pytest ended with {done.returncode} and left no result")
        return json.loads(out.read_text())


def expected(name: str) -> dict[str, str]:
    """Patterns of test ids (`*` stands for anything) and why those tests fail."""
    table = tomllib.loads((HERE / f"expected_{name}.toml").read_text())
    return {pattern: group["reason"] for group in table.get("group", []) for pattern in group["tests"]}


def report(name: str, counted: list[dict], patterns: dict[str, str], *, whole: bool) -> int:
    """Print how the suite went; 1 when it did not go as the list says."""
    compiled = {p: re.compile(".*".join(map(re.escape, p.split("*")))) for p in patterns}
    unused, wrong, failures = set(patterns), [], 0
    for test in counted:
        listed = [p for p, regex in compiled.items() if regex.fullmatch(test["id"])]
        unused.difference_update(listed)
        if test["outcome"] == "failed":
            failures += 1
            if not listed:
                wrong.append(f"unexpected failure: {test['id']}\n    {test['error'].splitlines()[0]}")
        elif listed:
            wrong.append(f"passes now: {test['id']}: remove it from the list (expected_{name}.toml, {listed[0]!r})")
    if whole:
        wrong += [f"names no test that counts: {p!r}: remove it from the list (expected_{name}.toml)" for p in unused]
    for line in wrong:
        print(line)
    passed = len(counted) - failures
    print(f"{name}: {passed} of {len(counted)} tests that reach swath pass; {len(wrong)} not as listed")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
