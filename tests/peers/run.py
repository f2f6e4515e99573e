"""Run another project's test suite on swath and compare the result with a list of expected failures.

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
    """The folder of a suite, and how many of its tests make a sample."""

    folder: Path
    # One in this many tests: both samples together take at most two minutes on two slow cores.
    one_in: int


SUITES = {
    "rioxarray": Suite(ROOT.parent / "shared" / "peers" / "rioxarray" / "test", 10),
    "xrspatial": Suite(PEERS / "xrspatial" / "geotiff" / "tests", 10),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("suite", choices=sorted(SUITES))
    parser.add_argument("--sample", action="store_true", help="every n-th test only")
    parser.add_argument("--json", type=Path, help="also write what became of each test into this file")
    end = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    given, more = parser.parse_args(sys.argv[1:end]), sys.argv[end + 1 :]
    suite = SUITES[given.suite]
    if not suite.folder.is_dir():
        print(f"{given.suite}: skipped, its tests are not in {suite.folder}")
        return 1 if os.environ.get("CI") == "true" else 0

    one_in = suite.one_in if given.sample else 1
    listed = expected(given.suite)
    tests = [t for t in run(given.suite, suite, more, one_in=one_in) if t["reached"]]
    failed = [t["id"] for t in tests if t["outcome"] == "failed" and not matching(listed, t["id"])]
    # A test that also fails without swath does not count; listed tests passed without swath when they were listed.
    again = run(given.suite, suite, more, only=failed) if failed else []
    without = {t["id"] for t in again if t["outcome"] != "passed"}
    counted = [t for t in tests if t["outcome"] in ("passed", "failed") and t["id"] not in without]
    if given.json:
        given.json.write_text(json.dumps(counted, indent=1))
    whole = not (given.sample or more)
    return report(given.suite, counted, listed, whole=whole)


def run(name: str, suite: Suite, more: list[str], *, one_in: int = 1, only: list[str] | None = None) -> list[dict]:
    """Results of each test of a suite; with `only`, of those tests without swath."""
    with tempfile.TemporaryDirectory(prefix="swath-peers-") as folder:
        out = Path(folder) / "out.json"
        asked = {"suite": name, "one_in": one_in, "only": only, "out": str(out)}
        paths = [str(HERE), str(PEERS), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(paths),
            "PYTHONDONTWRITEBYTECODE": "1",
            "SWATH_PEERS": json.dumps(asked),
        }
        command = [sys.executable, "-m", "pytest", "-c", str(HERE / "pytest.ini"), "-p", "reach"]
        command += [f"--rootdir={suite.folder}", f"--basetemp={folder}/tmp"]
        named = [str(suite.folder / word) for word in more if (suite.folder / word.split("::")[0]).exists()]
        command += [word for word in more if not (suite.folder / word.split("::")[0]).exists()]
        if only is not None:
            named = sorted({str(suite.folder / test.split("::")[0]) for test in only})
        command += named or [str(suite.folder)]
        # Python looks for modules in the working folder, and some folders of a suite have the names of packages.
        done = subprocess.run(command, cwd=folder, env=environment, check=False)
        # 0: all passed, 1: some failed, 5: none was chosen. Everything else is not a result.
        if done.returncode not in (0, 1, 5):
            sys.exit(f"{name}: pytest ended with {done.returncode}")
        return json.loads(out.read_text())


def expected(name: str) -> dict[str, re.Pattern]:
    """Patterns of the ids of tests that fail; `*` stands for anything."""
    table = tomllib.loads((HERE / f"expected_{name}.toml").read_text())
    patterns = [pattern for group in table.get("group", []) for pattern in group["tests"]]
    return {pattern: re.compile(".*".join(map(re.escape, pattern.split("*")))) for pattern in patterns}


def matching(patterns: dict[str, re.Pattern], test: str) -> list[str]:
    return [pattern for pattern, regex in patterns.items() if regex.fullmatch(test)]


def report(name: str, counted: list[dict], patterns: dict[str, re.Pattern], *, whole: bool) -> int:
    """Print the result of the suite; return 1 if it differs from the list."""
    unused, wrong, failures = set(patterns), [], 0
    for test in counted:
        listed = matching(patterns, test["id"])
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
