#!/usr/bin/env python3
"""Checks the files that other services read: workflows, issue forms, the citation and the recipe for conda-forge.

Run by `make test`, which installs tools/requirements-packaging.txt into a folder of its own and passes that folder.
Nothing here uses the network.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GITHUB = ROOT / ".github"
# The systems that conda-forge builds for, and the variants of its compilers that the recipe names.
CONDA_PLATFORMS = ("linux-64", "linux-aarch64", "osx-64", "osx-arm64", "win-64")
CONDA_VARIANT = {
    "python": ["3.11.*"],
    "c_compiler": ["gcc"],
    "rust_compiler": ["rust"],
    "c_stdlib": ["sysroot"],
    "c_stdlib_version": ["2.28"],
}


def check_schemas() -> None:
    """Compares each file with the schema of the service that reads it."""
    forms = [path for path in sorted((GITHUB / "ISSUE_TEMPLATE").glob("*.yml")) if path.name != "config.yml"]
    for schema, files in {
        "vendor.github-workflows": sorted((GITHUB / "workflows").glob("*.yml")),
        "custom.github-workflows-require-timeout": [GITHUB / "workflows" / name for name in ("ci.yml", "docs.yml")],
        "vendor.github-issue-forms": forms,
        "vendor.github-issue-config": [GITHUB / "ISSUE_TEMPLATE" / "config.yml"],
        "vendor.citation-file-format": [ROOT / "CITATION.cff"],
    }.items():
        assert files, f"no file for {schema}"
        command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema]
        subprocess.run([*command, *map(str, files)], check=True)


def check_workflows(tools: Path) -> None:
    """Looks for mistakes in workflows that leak credentials or run what strangers write."""
    command = [str(tools / "bin" / "zizmor"), "--offline", "--quiet", "--no-progress", str(ROOT)]
    subprocess.run(command, check=True)


def check_recipe() -> None:
    """Renders the recipe for every system."""
    from rattler_build import PlatformConfig, RenderConfig, Stage0Recipe, VariantConfig

    recipe = Stage0Recipe.from_file(str(ROOT / "packaging" / "conda" / "recipe.yaml"))
    variants = VariantConfig(CONDA_VARIANT)
    for platform in CONDA_PLATFORMS:
        config = RenderConfig(PlatformConfig(target_platform=platform, build_platform="linux-64"))
        outputs = recipe.render(variants, config)
        assert len(outputs) == 1, (platform, outputs)


def check_versions() -> None:
    """Fails where a file names another version than Cargo.toml, another date, or another version of a required tool."""
    version = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text())
    recipe = (ROOT / "packaging" / "conda" / "recipe.yaml").read_text()
    citation = (ROOT / "CITATION.cff").read_text()
    for name, pattern, text in (
        ("CITATION.cff", r"^version: (\S+)$", citation),
        ("recipe.yaml", r'^  version: "(\S+)"$', recipe),
    ):
        found = re.search(pattern, text, re.MULTILINE)
        assert found and found.group(1) == version, f"{name} does not name version {version}"
    heading = re.search(rf"^## {re.escape(version)} - (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert heading, f"CHANGELOG.md has no section for version {version}"
    released = re.search(r"^date-released: (\S+)$", citation, re.MULTILINE)
    date = released.group(1) if released else "unreleased"
    assert heading.group(1) == date, f"CHANGELOG.md says {heading.group(1)} and CITATION.cff {date}"
    [maturin] = pyproject["build-system"]["requires"]
    assert f"- maturin {maturin.removeprefix('maturin')}" in recipe, f"recipe.yaml does not ask for {maturin}"


def main() -> None:
    """Runs every check."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tools", type=Path, help="folder of the packages that the checks need")
    tools = parser.parse_args().tools.resolve()
    sys.path.insert(0, str(tools))
    os.environ["PYTHONPATH"] = str(tools)
    check_schemas()
    check_workflows(tools)
    check_recipe()
    check_versions()
    print("packaging: workflows, issue forms, citation and recipe pass")


if __name__ == "__main__":
    main()
