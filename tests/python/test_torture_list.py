"""The list of `make torture` and the table of differences from GDAL name existing tests; figures appear in the page."""

from __future__ import annotations

import importlib.util
import json
import shlex
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
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


def test_every_allowed_difference_has_a_reason() -> None:
    outcome = loaded(ROOT / "tools" / "differential" / "outcome.py")
    table = outcome.Table(ROOT / "tools" / "differential" / "allowed.toml")
    assert len(table.entries) > 20
    for fault in ("swath: panic", "swath: crash", "swath: hang", "swath: memory"):
        assert not table.allows(outcome.Outcome("damaged", 0, fault, {"swath": "x", "gdal": "x", "source": "jpeg"}))
