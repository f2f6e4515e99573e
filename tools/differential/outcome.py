"""The outcome of a case, and the differences that are allowed."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FINE = ("equal", "both refuse", "not compared")


@dataclass
class Outcome:
    """One case: `verdict` is one of `FINE`, or names the difference; the rest is for the person who inspects it."""

    kind: str
    index: int
    verdict: str
    facts: dict[str, str] = field(default_factory=dict)
    # The file that shows it.
    content: bytes = field(default=b"", repr=False)


@dataclass
class Allowed:
    """An allowed difference: patterns of the facts, and the reason."""

    number: int
    verdict: str
    patterns: dict[str, re.Pattern[str]]
    reason: str

    def covers(self, outcome: Outcome) -> bool:
        if not re.fullmatch(self.verdict, outcome.verdict):
            return False
        return all(pattern.search(outcome.facts.get(name, "")) for name, pattern in self.patterns.items())


class Table:
    """allowed.toml, and how often each of its entries was needed."""

    def __init__(self, path: Path) -> None:
        self.entries = []
        for number, entry in enumerate(tomllib.loads(path.read_text()).get("allowed", [])):
            known = {"verdict", "reason"}
            patterns = {key: re.compile(value) for key, value in entry.items() if key not in known}
            assert patterns and entry["reason"], f"{path}: entry {number} needs a pattern and a reason"
            self.entries.append(Allowed(number, entry["verdict"], patterns, entry["reason"]))
        self.used: Counter[int] = Counter()

    def allows(self, outcome: Outcome) -> bool:
        for entry in self.entries:
            if entry.covers(outcome):
                self.used[entry.number] += 1
                return True
        return False


def text(answer: dict[str, Any]) -> str:
    """The message of a reader, in one line."""
    for key in ("refused", "panic", "memory"):
        if key in answer:
            return f"{key}: {answer[key]}"
    if "shape" in answer:
        messages = "; ".join(answer.get("warnings") or [])
        return f"{answer['dtype']} {answer['shape']} {messages}".strip()
    return str(answer)
