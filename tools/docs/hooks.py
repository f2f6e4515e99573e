"""Hooks of `make docs`: documents of the repository's root become pages, links out of docs/ are checked, and every
public name of the Python package must be on a page.

Pages link to files outside docs/ by relative paths, as GitHub follows them. On the site, a link to a document of the
root leads to its page, and a link to any other file to the repository.
"""

from __future__ import annotations

import ast
import logging
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

LOG = logging.getLogger("mkdocs.hooks.swath")
ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "crates" / "swath-python" / "python"
# Documents of the root, and their pages.
DOCUMENTS = {
    "DESIGN.md": "design.md",
    "PLATFORM.md": "platform.md",
    "SECURITY.md": "security.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
LINK = re.compile(r"(\]\()([^)\s]+)(\))")
API_PAGE = "python-api.html"
# Modules with public names, and the names where there is no `__all__`.
PUBLIC: dict[str, tuple[str, ...]] = {
    "swath": (),
    "swath.xrspatial": (),
    "swath.rioxarray": ("open_rasterio", "to_raster"),
    "swath.accessor": ("DataArrayAccessor", "DatasetAccessor"),
    "swath.xarray_backend": ("SwathBackendEntrypoint",),
}


def on_files(files: Any, config: Any) -> Any:
    """Adds the documents of the root."""
    for name, page in DOCUMENTS.items():
        text = "".join(_with_languages((ROOT / name).read_text(encoding="utf-8")))
        files.append(File.generated(config, page, content=text))
    return files


def _with_languages(text: str) -> Iterator[str]:
    """Marks fences without a language as text, so that no highlighter guesses."""
    inside = False
    for line in text.splitlines(keepends=True):
        if line.startswith("```"):
            inside = not inside
            if inside and line.strip() == "```":
                line = "```text\n"
        yield line


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Turns links to files outside of docs/ into links that work on the site."""
    source = page.file.src_uri
    document = next((name for name, made in DOCUMENTS.items() if made == source), None)
    folder = "" if document else posixpath.join("docs", posixpath.dirname(source))

    def link_on_site(found: re.Match[str]) -> str:
        target, _, anchor = found[2].partition("#")
        if not target or "://" in target or target.startswith("mailto:"):
            return found[0]
        path = posixpath.normpath(posixpath.join(folder, target))
        if path.startswith("docs/"):
            if not document:
                return found[0]
            target = path.removeprefix("docs/")
        elif path in DOCUMENTS:
            target = DOCUMENTS[path]
        elif (ROOT / path).exists():
            kind = "tree" if (ROOT / path).is_dir() else "blob"
            target = f"{config.repo_url}/{kind}/main/{path}"
        else:
            LOG.warning("%s links to %s, which does not exist", source, found[2])
            return found[0]
        return f"{found[1]}{target}{'#' + anchor if anchor else ''}{found[3]}"

    return LINK.sub(link_on_site, markdown)


def public_names() -> list[str]:
    """Every public name of the package, from its source: nothing has to be built or imported."""
    names = []
    for module, listed in PUBLIC.items():
        path = PACKAGE.joinpath(*module.split("."))
        source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        for node in ast.parse(source.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Assign) and any(getattr(each, "id", "") == "__all__" for each in node.targets):
                listed = tuple(ast.literal_eval(node.value))
        names += [f"{module}.{name}" for name in listed if not name.startswith("__")]
    return names


def on_post_build(config: Any) -> None:
    """Fails where the page of the Python interface lacks a public name or its docstring."""
    html = (Path(config.site_dir) / API_PAGE).read_text(encoding="utf-8")
    missing = [name for name in public_names() if f'id="{name}"' not in html]
    if missing:
        raise PluginError(f"docs/python-api.md lacks {', '.join(missing)}")
    bare = [
        found[1]
        for found in re.finditer(r'<h\d id="(swath\.[\w.]+)"(.*?)(?=<h\d id="|\Z)', html, re.DOTALL)
        if "<p>" not in found[2]
    ]
    if bare:
        raise PluginError(f"these names of the Python package have no docstring: {', '.join(bare)}")
