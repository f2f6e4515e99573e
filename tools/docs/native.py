"""Gives the classes of the native module their docstrings: they are in the Rust source, and the stubs have none."""

from __future__ import annotations

import inspect
from typing import Any

import griffe


class NativeDocstrings(griffe.Extension):
    """Copies the docstrings of `swath._swath` to the members of its stub."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        if pkg.name != "swath":
            return
        from swath import _swath

        for kind in pkg["_swath"].classes.values():
            native = getattr(_swath, kind.name, None)
            for name, member in kind.members.items():
                text = inspect.getdoc(getattr(native, name, None)) if not name.startswith("_") else None
                if text and member.docstring is None and not member.is_alias:
                    member.docstring = griffe.Docstring(text, parent=member, parser="numpy")
