"""Every public function, class, method and property of the package is documented, and so is each of its keywords."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

import pytest
import swath
import swath.accessor
import swath.rioxarray
import swath.xarray_backend
import swath.xrspatial
import swath.xrspatial._accessor

# Not the caller's: what a method belongs to, and what xarray gives to an accessor.
OURS = {"self", "cls", "data"}


def public() -> Iterator[tuple[str, Any]]:
    """Names and objects of the public interface; a class is followed by its members."""
    for module in (swath, swath.xrspatial):
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.isroutine(value) or inspect.isclass(value):
                yield f"{module.__name__}.{name}", value
    for module, names in (
        (swath.rioxarray, ("open_rasterio", "to_raster")),
        (swath.accessor, ("DataArrayAccessor", "DatasetAccessor")),
        (swath.xarray_backend, ("SwathBackendEntrypoint",)),
        (swath.xrspatial._accessor, ("_Accessor",)),
    ):
        for name in names:
            yield f"{module.__name__}.{name}", getattr(module, name)


def members(kind: type) -> Iterator[tuple[str, Any]]:
    for name in dir(kind):
        defined = next((base for base in kind.__mro__ if name in vars(base)), object)
        # What NumPy, xarray and Python themselves define is documented there.
        if name.startswith("_") or defined.__module__.partition(".")[0] != "swath":
            continue
        value = inspect.getattr_static(kind, name)
        if callable(value) or isinstance(value, staticmethod | classmethod) or inspect.isdatadescriptor(value):
            yield name, value


def everything() -> list[tuple[str, Any]]:
    found = []
    for name, value in public():
        found.append((name, value))
        if inspect.isclass(value) and not issubclass(value, BaseException):
            found += [(f"{name}.{member}", each) for member, each in members(value)]
    return found


@pytest.mark.parametrize(("name", "value"), everything(), ids=lambda each: each if isinstance(each, str) else "")
def test_it_says_what_it_is(name: str, value: Any) -> None:
    text = inspect.getdoc(value) or ""
    assert len(text.split()) >= 3, name
    assert text.strip()[0].isupper() or text.startswith("`"), name


def keywords(value: Any) -> list[str]:
    """The keywords that a caller may give; those of a class are the ones of its constructor."""
    owner = value
    if inspect.isclass(value):
        value = vars(value).get("__init__", vars(value).get("__new__"))
        value = getattr(value, "__func__", value)
    if not inspect.isroutine(value):
        return []
    try:
        listed = inspect.signature(value).parameters
    except ValueError:
        return []
    ours = OURS if inspect.isclass(owner) else OURS - {"data"}
    return [name for name in listed if name not in ours and not name.startswith("_")]


def documented(text: str) -> set[str]:
    """Heads of the sections on parameters, and what is in backticks: a short docstring has no sections."""
    heads = re.findall(r"^([*\w][\w, *]*?)(?: :.*)?$", text, re.MULTILINE)
    ticked = re.findall(r"`+([^`]+)`+", text)
    return {word for each in (*heads, *ticked) for word in re.findall(r"\w+", each)}


CALLABLE = [(name, value) for name, value in everything() if keywords(value)]


@pytest.mark.parametrize(("name", "value"), CALLABLE, ids=[name for name, _ in CALLABLE])
def test_every_keyword_is_documented(name: str, value: Any) -> None:
    missing = set(keywords(value)) - documented(inspect.getdoc(value) or "")
    assert not missing, f"{name} does not document {sorted(missing)}"


def test_the_walk_finds_the_interface() -> None:
    names = {name for name, _ in everything()}
    assert {"swath.Dataset.read", "swath.Dataset.crs", "swath.Array", "swath.xrspatial.to_geotiff"} <= names
    assert len(names) > 100 and len(CALLABLE) > 30
