"""A pytest plugin that runs another project's suite on swath and records which tests reach it.

`run.py` says in the variable SWATH_PEERS what to do: the suite, the sample or the tests to run, and where to write.
`shim_SUITE.py` has a function `install(reached)`, which replaces the other project's names by swath's; each replacement
calls `reached(name)` when a test uses it.
"""

from __future__ import annotations

import importlib
import json
import os
import zlib
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

ASKED = json.loads(os.environ["SWATH_PEERS"])
calls: list[str] = []
tests: dict[str, dict[str, Any]] = {}

# A run of named tests is a run without swath.
if ASKED["only"] is None:
    importlib.import_module(f"shim_{ASKED['suite']}").install(calls.append)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if ASKED["only"] is not None:
        only = set(ASKED["only"])
        kept = [i for i in items if i.nodeid in only]
    else:
        kept = [i for i in items if zlib.crc32(i.nodeid.encode()) % ASKED["one_in"] == 0]
    config.hook.pytest_deselected(items=[i for i in items if i not in set(kept)])
    items[:] = kept


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    calls.clear()
    result = yield
    tests[item.nodeid]["reached"] = bool(calls)
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo) -> Generator[None, Any, Any]:
    report = yield
    test = tests.setdefault(item.nodeid, {"id": item.nodeid, "outcome": "passed", "error": "", "reached": False})
    if hasattr(report, "wasxfail"):
        test["outcome"] = "xfail"
    elif report.outcome != "passed":
        test["outcome"] = report.outcome
        if call.excinfo is not None:
            test["error"] = call.excinfo.exconly()
    return report


def pytest_sessionfinish() -> None:
    Path(ASKED["out"]).write_text(json.dumps(list(tests.values())))
