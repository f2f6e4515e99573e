"""The list of `make torture` and the table of differences from GDAL name what exists; figures arrive in the page."""

from __future__ import annotations

import importlib.util
import json
import shlex
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
    for scenario in SCENARIOS:
        assert scenario["what"] and ("needs" in scenario) != bool(scenario.get("run")), scenario
        if "last" in scenario:
            assert "no result" not in RUNNER.last_result(scenario)
        for command in scenario.get("run", []):
            files = [word for word in shlex.split(command) if word.endswith(".py")]
            assert files or command.startswith("cargo "), command
            assert all((ROOT / file).is_file() for file in files), command


def test_figures_go_to_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = tmp_path / "report.jsonl"
    monkeypatch.setenv("SWATH_TORTURE_REPORT", str(report))
    record("W1", "plain", 10, 9, 1)
    record("W1", "plain", 5, 5, 0)
    rows = RUNNER.merged([json.loads(line) for line in report.read_text().splitlines()])
    assert rows == [{"what": "plain", "tries": 15, "survived": 14, "lost": 1}]
    state = {"W1": {"commit": "abc", "date": "2026-01-02", "seconds": 60, "rows": rows, "fault": None}}
    page = RUNNER.page(SCENARIOS, state)
    assert "| plain | 15 | 14 | 1 |" in page and "15 tries, 1 lost" in page and "Run 2026-01-02 at abc" in page
    assert "needs a GPU: `make gpu-bundle`; last result: NVIDIA" in page and "not run yet" in page


def test_tests_are_counted_where_no_figure_is_told() -> None:
    assert RUNNER.counted("3 failed, 20 passed, 1 skipped in 4 s") == (20, 3)
    assert RUNNER.counted("test result: ok. 7 passed; 0 failed; 0 ignored") == (7, 0)


def test_every_allowed_difference_has_a_reason() -> None:
    outcome = loaded(ROOT / "tools" / "differential" / "outcome.py")
    table = outcome.Table(ROOT / "tools" / "differential" / "allowed.toml")
    assert len(table.lines) > 20
    for fault in ("swath: panic", "swath: crash", "swath: hang", "swath: memory"):
        assert not table.allows(outcome.Outcome("damaged", 0, fault, {"swath": "x", "gdal": "x", "source": "jpeg"}))
