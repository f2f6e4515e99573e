"""Paths in documents exist: a file that is moved or renamed takes the pages that name it along."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path, PurePosixPath

import pytest
from harness import ROOT

PAGES = ("DESIGN.md", "CONTRIBUTING.md", "PLATFORM.md", "SECURITY.md")
SPAN = re.compile(r"`([^`\n]+)`")
# A relative path of plain names, with `{a,b}` for alternatives and `<word>` for a placeholder.
PATH = re.compile(r"[\w.<>{},-]+(/[\w.<>{},-]+)*/?")
SOURCE = (".rs", ".py", ".pyi", ".c", ".cpp", ".hpp", ".cu", ".cuh", ".sh", ".toml", ".md")
# Folders that are not in the repository.
MADE = ("target/", ".venv/", "../")
# Placeholders of the walkthroughs, each with a name that stands for it.
EXAMPLES = {"/foo/": "/lzw/", "<command>": "convert"}
NOT_SEARCHED = {".git", ".venv", "target", "node_modules", "__pycache__"}


@cache
def tree() -> frozenset[str]:
    """Every file and folder of the repository, and every ending of its path that begins at a folder's name."""
    found: set[str] = set()
    for folder, folders, files in os.walk(ROOT):
        folders[:] = [name for name in folders if name not in NOT_SEARCHED]
        for name in (*folders, *files):
            parts = (Path(folder) / name).relative_to(ROOT).parts
            found.update("/".join(parts[first:]) for first in range(len(parts)))
    return frozenset(found)


def alternatives(path: str) -> Iterator[str]:
    """A path for each alternative in braces."""
    found = re.search(r"\{([^{}]*)\}", path)
    if found is None:
        yield path
        return
    for choice in found[1].split(","):
        yield from alternatives(path[: found.start()] + choice + path[found.end() :])


def paths(text: str) -> Iterator[str]:
    """The code spans of a page that are paths of the repository."""
    for span in SPAN.findall(text):
        if not PATH.fullmatch(span) or span.startswith(MADE):
            continue
        if "/" in span or span.endswith(SOURCE):
            for word, example in EXAMPLES.items():
                span = span.replace(word, example)
            yield from (path.rstrip("/") for path in alternatives(span))


@pytest.mark.parametrize("page", PAGES)
def test_no_page_names_a_path_that_is_gone(page: str) -> None:
    named = list(paths((ROOT / page).read_text()))
    assert named, f"{page} names no path at all"
    gone = [path for path in named if path not in tree()]
    assert not gone, f"{page} names paths that do not exist: {gone}"


def test_a_bare_name_in_the_journeys_is_in_the_folder_of_the_path_before_it() -> None:
    """`DESIGN.md` promises this, so that a reader of a journey finds each file without a search."""
    folder, lost = None, []
    for path in paths((ROOT / "DESIGN.md").read_text()):
        if "/" not in path and path.endswith((".rs", ".py")):
            if folder is None or f"{folder}/{path}" not in tree():
                lost.append(f"{path} beside {folder}")
        elif "/" in path:
            folder = str(PurePosixPath(path).parent) if PurePosixPath(path).suffix else path
    assert not lost, lost


def test_a_missing_path_would_be_found() -> None:
    page = "see `crates/swath/src/gone.rs`, `read/{plan,gone}.rs`, `swath::Window` and `s3://bucket/key.rs`"
    assert [path for path in paths(page) if path not in tree()] == ["crates/swath/src/gone.rs", "read/gone.rs"]
