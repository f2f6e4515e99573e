"""Finds the tool under test."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import ROOT, Swath, scratch


@pytest.fixture(scope="session")
def swath() -> Iterator[Swath]:
    """The tool: `SWATH_BIN`, or the release build."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", "target"))
    binary = Path(os.environ.get("SWATH_BIN", ROOT / target / "release" / "swath")).resolve()
    if not binary.is_file():
        pytest.exit(f"{binary} is missing: build it with `make build`, or name one in SWATH_BIN", returncode=3)
    with scratch() as folder:
        tool = Swath(binary, Path(folder))
        yield tool
        tool.close()


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[int], tuple[int, int, int, int]]]:
    """Bands and windows that lazy arrays of the package read."""
    from swath._lazy import Reader

    seen: list[tuple[list[int], tuple[int, int, int, int]]] = []
    original = Reader._samples

    def spy(self: Reader, bands: list[int], place: tuple[int, int, int, int]) -> Any:
        seen.append((bands, place))
        return original(self, bands, place)

    monkeypatch.setattr(Reader, "_samples", spy)
    return seen


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder for one test's files, in memory where there is room."""
    with scratch() as name:
        yield Path(name)
