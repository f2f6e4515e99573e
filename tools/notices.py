#!/usr/bin/env python3
"""Writes THIRD-PARTY.txt: the licence texts of everything that is compiled into the wheel.

    python tools/notices.py [--check]

A wheel holds the code of many crates, and their licences ask that their texts go with it. `--check` only says whether
the file is as this script makes it; `make test` runs that. The texts come from cargo's copies of the packages.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "THIRD-PARTY.txt"
WHEEL = "swath-python"
NAMED = re.compile(r"(licen[cs]e|copying|notice|patents|unlicense)", re.IGNORECASE)
NO_TEXTS = {".rs", ".py", ".sh", ".c", ".h", ".html", ".json", ".toml", ".yml", ".yaml"}
# Where a choice is offered, swath takes the MIT licence, and never that of GNU.
MIT = "Permission is hereby granted, free of charge"
NOT_TAKEN = re.compile(r"\s*GNU (LESSER )?GENERAL PUBLIC LICENSE")

HEAD = """\
The wheels of swath contain code of the packages below, in compiled form, each under its own licence, and the standard
library of Rust (copyright the Rust project's contributors, MIT OR Apache-2.0). Which of them a wheel contains depends
on its system. Where a package offers a choice of licences with MIT among them, swath uses it under the MIT licence.
tools/notices.py makes this file.
"""


def packages() -> list[dict[str, Any]]:
    """Every package from a registry that the wheel is linked with, on any system."""
    command = [os.environ.get("CARGO", "cargo"), "metadata", "--locked", "--format-version", "1"]
    found = json.loads(subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout)
    known = {package["id"]: package for package in found["packages"]}
    edges = {node["id"]: node["deps"] for node in found["resolve"]["nodes"]}
    reached: set[str] = set()
    left = [package["id"] for package in found["packages"] if package["name"] == WHEEL and package["source"] is None]
    while left:
        one = left.pop()
        # Procedural macros run in the compiler, and so does what they need.
        if one in reached or any("proc-macro" in target["kind"] for target in known[one]["targets"]):
            continue
        reached.add(one)
        left += [edge["pkg"] for edge in edges[one] if any(kind["kind"] is None for kind in edge["dep_kinds"])]
    foreign = [known[one] for one in reached if known[one]["source"]]
    return sorted(foreign, key=lambda package: (package["name"], package["version"]))


def texts(package: dict[str, Any]) -> Iterator[str]:
    """The licence texts in a package, those of C libraries in its folders too."""
    folder = Path(package["manifest_path"]).parent
    kept: list[tuple[bool, str, str]] = []
    for path in sorted(folder.rglob("*")):
        if NAMED.match(path.name) and path.suffix.lower() not in NO_TEXTS and path.is_file():
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
            text = "\n".join(line.rstrip() for line in lines).strip("\n")
            if text and not NOT_TAKEN.match(text):
                kept.append((path.parent == folder, path.name, text))
    choices = re.split(r" OR |/", package["license"] or "")
    may_be_mit = "MIT" in choices and any(own and MIT in text for own, _, text in kept)
    for own, name, text in kept:
        if not may_be_mit or not own or MIT in text or re.match("notice", name, re.IGNORECASE):
            yield text


def made() -> str:
    """The whole file: each text once, below the packages that it belongs to."""
    holders: dict[str, tuple[str, list[str]]] = {}
    without = []
    for package in packages():
        name = f"{package['name']} {package['version']} ({package['license']})"
        found = list(texts(package))
        for text in found:
            names = holders.setdefault(" ".join(text.split()), (text, []))[1]
            if name not in names:
                names.append(name)
        if not found:
            authors = ", ".join(re.sub(r"\s*<[^>]*>", "", author) for author in package["authors"])
            without.append(f"{name}, by {authors or 'its contributors'}: {package['repository'] or 'no address'}")
    parts = [HEAD]
    if without:
        parts.append("These packages hold no text of their licence:\n\n" + "\n".join(without) + "\n")
    for text, names in holders.values():
        parts.append("\n".join(names) + "\n\n" + text + "\n")
    return ("\n" + "-" * 100 + "\n\n").join(parts)


def main() -> int:
    """Writes the file, or compares it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    wanted = made()
    if parser.parse_args().check:
        if not OUT.is_file() or OUT.read_text(encoding="utf-8") != wanted:
            print(f"{OUT.name} is stale: run `python tools/notices.py`", file=sys.stderr)
            return 1
    else:
        OUT.write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
