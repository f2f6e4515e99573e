"""Identifies the state of the code, so that results of one state are never used for another."""

from __future__ import annotations

import hashlib
import json
import subprocess
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
# Files that runs write: results, which are not part of the tested code.
RESULTS = ("docs/reliability.md", "fuzz/figures.json", "tools/torture/results.json")


def git(*arguments: str, root: Path = ROOT) -> bytes:
    return subprocess.run(["git", *arguments], cwd=root, capture_output=True, check=True).stdout


def revision(root: Path = ROOT) -> str:
    """The commit, and a digest of changes where files other than results were changed or added."""
    commit = git("rev-parse", "--short=12", "HEAD", root=root).decode().strip()
    paths = [".", *(f":!{name}" for name in RESULTS)]
    changed = git("diff", "--binary", "HEAD", "--", *paths, root=root)
    added = git("ls-files", "--others", "--exclude-standard", "-z", "--", *paths, root=root)
    if not changed and not added:
        return commit
    digest = hashlib.sha256(changed)
    for name in added.decode(errors="surrogateescape").split("\0"):
        path = root / name
        digest.update(name.encode(errors="surrogateescape"))
        digest.update(path.read_bytes() if name and path.is_file() else b"")
    return f"{commit} with changes {digest.hexdigest()[:8]}"


def results_of(path: Path, now: str) -> dict[str, Any]:
    """The contents of a file of results for this revision; empty if it is of another."""
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return found if found.get("revision") == now else {}
