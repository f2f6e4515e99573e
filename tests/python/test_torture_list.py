"""The list of `make torture` and the table of differences from GDAL name existing tests; figures appear in the page."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import TextIO

import pytest
from _pytest.mark.expression import Expression
from harness import ROOT, record


def loaded(path: Path) -> ModuleType:
    specification = importlib.util.spec_from_file_location(f"loaded_{path.stem}", path)
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[specification.name] = module
    specification.loader.exec_module(module)
    return module


RUNNER = loaded(ROOT / "tools" / "torture" / "run.py")
SCENARIOS = RUNNER.scenarios()


def test_scenarios_name_what_exists() -> None:
    assert len({scenario["id"] for scenario in SCENARIOS}) == len(SCENARIOS) > 30
    named = " ".join(command for scenario in SCENARIOS for command in scenario.get("run", []))
    # Every test that reports figures or runs faults at length is in the list.
    telling = [path.name for path in (ROOT / "tests" / "python").glob("test_*.py") if "record(" in path.read_text()]
    # The short form of a run that the list names, and this file.
    others = {"test_torture_differential.py", Path(__file__).name}
    for file in {*telling, *(path.name for path in (ROOT / "tests" / "python").glob("test_torture_*.py"))} - others:
        assert file in named, f"no scenario runs {file}"
    for scenario in SCENARIOS:
        assert scenario["what"] and ("needs" in scenario) != bool(scenario.get("run")), scenario
        if "device" in scenario:
            assert RUNNER.device_rows(scenario), scenario
        for command in scenario.get("run", []):
            files = [word for word in shlex.split(command) if word.endswith((".py", ".sh"))]
            assert files or command.startswith("cargo "), command
            assert all((ROOT / file).is_file() for file in files), command


def test_figures_go_to_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = tmp_path / "report.jsonl"
    monkeypatch.setenv("SWATH_TORTURE_REPORT", str(report))
    record("W1", "plain", 10, 9, 1)
    record("W1", "plain", 5, 5, 0)
    rows = RUNNER.merged([json.loads(line) for line in report.read_text().splitlines()])
    assert rows == [{"what": "plain", "tries": 15, "survived": 14, "lost": 1}]
    state = {"W1": {"commit": "abc", "date": "2026-01-02", "seconds": 60, "machine": "a", "rows": rows, "fault": None}}
    page = RUNNER.page(SCENARIOS, state)
    assert "| plain | 15 | 14 | 1 |" in page and "15 tries, 1 lost" in page and "Run 2026-01-02 at abc" in page
    assert "not run yet" in page and "tests on an NVIDIA" in page


def test_results_belong_to_one_state_of_the_code(tmp_path: Path) -> None:
    """Each commit, and each state of changed files, counts separately: results of one do not apply to the next."""
    tool = sys.modules["revision"]
    tree = tmp_path / "tree"
    tree.mkdir()

    def git(*words: str) -> None:
        person = ("-c", "user.name=a", "-c", "user.email=a@b")
        subprocess.run(["git", *person, *words], cwd=tree, check=True, capture_output=True)

    git("init", "-q")
    (tree / "a.txt").write_text("1")
    (tree / "docs").mkdir()
    page = tree / "docs" / "reliability.md"
    page.write_text("1")
    git("add", ".")
    git("commit", "-q", "-m", "one")
    seen = [tool.revision(root=tree)]
    assert "changes" not in seen[0]
    for text in ("2", "3"):
        (tree / "a.txt").write_text(text)
        seen.append(tool.revision(root=tree))
        assert "with changes" in seen[-1]
    (tree / "new.txt").write_text("1")
    seen.append(tool.revision(root=tree))
    (tree / "a.txt").write_text("1")
    (tree / "new.txt").unlink()
    assert tool.revision(root=tree) == seen[0]
    page.write_text("2")
    assert tool.revision(root=tree) == seen[0], "results do not count"
    git("commit", "-q", "-a", "-m", "two")
    seen.append(tool.revision(root=tree))
    assert len(set(seen)) == len(seen), seen
    state = tmp_path / "state.json"
    assert tool.results_of(state, seen[0]) == {}
    state.write_text(json.dumps({"revision": seen[0], "done": {"damaged": 40000}}))
    assert tool.results_of(state, seen[0])["done"] == {"damaged": 40000}
    assert tool.results_of(state, seen[1]) == {}
    state.write_text(json.dumps({"done": {"damaged": 40000}}))
    assert tool.results_of(state, seen[0]) == {}, "of before revisions were kept"


def test_tests_are_counted_where_no_figure_is_reported() -> None:
    assert RUNNER.counted("3 failed, 20 passed, 1 skipped in 4 s") == (20, 3)
    assert RUNNER.counted("test result: ok. 7 passed; 0 failed; 0 ignored") == (7, 0)


@pytest.mark.parametrize(
    ("command", "output", "rows", "fault"),
    [
        ("cargo test -p a -- gone", "test result: ok. 0 passed; 0 failed", [], "ran no test"),
        ("python -m pytest a.py", "3 skipped in 1 s", [], "ran no test"),
        ("tools/other-machines.sh a", "", [], "ran no test"),
        ("cargo test -p a", "test result: ok. 2 passed; 0 failed", [("tests", 2, 2, 0)], None),
        ("tools/other-machines.sh a", "a: left out, no compiler", [("a: left out, no compiler", 0, 0, 0)], None),
        ("cargo xtask deps", "", [("checks", 1, 1, 0)], None),
    ],
)
def test_a_run_without_tests_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, output: str, rows: list[tuple], fault: str | None
) -> None:
    monkeypatch.delenv("CI", raising=False)

    def pretend(words: list[str], *, stdout: TextIO, env: dict[str, str], **_: object) -> subprocess.CompletedProcess:
        # What a machine lacks is a failure, but for the script that says what it leaves out.
        assert ("CI" in env) == (words[0] in ("cargo", "python") and "xtask" not in words)
        stdout.write(output)
        return subprocess.CompletedProcess([], 0)

    monkeypatch.setattr(RUNNER.subprocess, "run", pretend)
    found, said = RUNNER.run({"id": "X", "run": [command]}, tmp_path / "report.jsonl")
    assert [tuple(row.values()) for row in found] == rows
    assert said is None if fault is None else fault in said


def test_a_failed_check_is_lost(tmp_path: Path) -> None:
    rows, fault = RUNNER.run({"id": "X", "run": ["true", "false", "true"]}, tmp_path / "report.jsonl")
    assert rows == [{"what": "checks", "tries": 3, "survived": 2, "lost": 1}] and fault == "`false` ended with 1"


def rust_tests(package: str, target: str | None) -> list[str]:
    """Paths of a package's tests, as cargo prints them but for modules inside a file; of all targets, or of one."""
    crate = ROOT / "crates" / package
    crate = crate if crate.is_dir() else ROOT / package.removeprefix("swath-")
    sources = [(path, path.relative_to(crate / "src")) for path in crate.glob("src/**/*.rs")] if target is None else []
    for root in sorted((crate / "tests").glob("*")):
        if target in (None, root.stem):
            files = root.glob("**/*.rs") if root.is_dir() else [root]
            sources += [(path, path.relative_to(root) if root.is_dir() else Path("main.rs")) for path in files]
    names = []
    for path, inside in sources:
        module = "::".join(part for part in inside.with_suffix("").parts if part not in ("main", "mod", "lib"))
        marked = re.findall(r"#\[test\]\n(?:\s*(?:#\[|//).*\n)*\s*fn (\w+)", path.read_text())
        names += [f"{module}::{name}" if module else name for name in marked]
    return names


def test_every_filter_of_the_list_finds_a_test() -> None:
    """A renamed test would otherwise leave its scenario without anyone noticing."""
    commands = [shlex.split(command) for scenario in SCENARIOS for command in scenario.get("run", [])]
    filters = 0
    for words in (words for words in commands if words[:2] == ["cargo", "test"]):
        end = words.index("--") if "--" in words else len(words)
        own, names = words[:end], words[end + 1 :]
        target = own[own.index("--test") + 1] if "--test" in own else None
        tests = [test for at, word in enumerate(own) if word == "-p" for test in rust_tests(own[at + 1], target)]
        assert tests, words
        for name in names:
            assert any(name in test for test in tests), f"no test is called {name}: {shlex.join(words)}"
            filters += 1
    chosen = [words for words in commands if "-k" in words]
    files = sorted({word for words in chosen for word in words if word.endswith(".py")})
    listed = subprocess.run(
        [sys.executable, "-m", "pytest", "-c", "tests/python/pytest.ini", "--collect-only", *files],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    tests = [line for line in listed.stdout.splitlines() if "::" in line]
    for words in chosen:
        expression = words[words.index("-k") + 1]
        wanted = Expression.compile(expression)
        for file in (Path(word).name for word in words if word.endswith(".py")):
            here = [test for test in tests if Path(test.split("::")[0]).name == file]
            matching = [test for test in here if wanted.evaluate(lambda word, test=test: word.lower() in test.lower())]
            assert matching, f"no test of {file} matches {expression}"
            # A word that no test has does nothing, in a list of several.
            for word in re.findall(r"\w+", expression):
                assert word in ("or", "not", "and") or any(word.lower() in test.lower() for test in tests), (file, word)
            filters += 1
    assert filters > 40


def test_every_allowed_difference_has_a_reason() -> None:
    outcome = loaded(ROOT / "tools" / "differential" / "outcome.py")
    table = outcome.Table(ROOT / "tools" / "differential" / "allowed.toml")
    assert len(table.entries) > 20
    for fault in ("swath: panic", "swath: crash", "swath: hang", "swath: memory"):
        assert not table.allows(outcome.Outcome("damaged", 0, fault, {"swath": "x", "gdal": "x", "source": "jpeg"}))
