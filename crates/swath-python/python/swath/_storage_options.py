"""Translates `storage_options` to the options of the engine's client for servers and stores."""

from __future__ import annotations

import errno as codes
import hashlib
import math
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from . import _swath
from ._errors import Error, UsageError, make


def _flag(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    raise TypeError("True or False")


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    raise TypeError("text")


def _count(value: Any) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        number = -1
    if isinstance(value, bool) or number < 0:
        raise TypeError("a whole number that is not negative")
    return number


def _seconds(value: Any) -> float:
    number = float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else math.nan
    if not 0 < number < math.inf:
        raise TypeError("a number of seconds")
    return number


def _pairs(value: Any) -> tuple[tuple[str, str], ...]:
    if isinstance(value, Mapping) and all(isinstance(text, str) for pair in value.items() for text in pair):
        return tuple(value.items())
    raise TypeError("a mapping of text to text")


def _texts(value: Any) -> tuple[str, ...]:
    found = tuple(value) if isinstance(value, Iterable) and not isinstance(value, (str, bytes)) else (value,)
    return tuple(_text(each) for each in found)


def _setting(value: Any) -> str:
    """Returns the text of a setting; stores read numbers and booleans from text too."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (str, int)):
        return str(value)
    raise TypeError("text, a whole number, True or False")


# Names that callers use, with the engine's name and the function that checks the value.
_KNOWN: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "anonymous": ("anonymous", _flag),
    "anon": ("anonymous", _flag),
    "no_sign_request": ("anonymous", _flag),
    "endpoint": ("endpoint", _text),
    "endpoint_url": ("endpoint", _text),
    "region": ("region", _text),
    "region_name": ("region", _text),
    "headers": ("headers", _pairs),
    "max_remote_bytes": ("max_bytes", _count),
    "max_remote_requests": ("max_requests", _count),
    "deadline": ("deadline", _seconds),
    "timeout": ("deadline", _seconds),
    "connect_timeout": ("connect_timeout", _seconds),
    "stall_timeout": ("stall_timeout", _seconds),
    "retries": ("retries", _count),
    "redirects": ("redirects", _count),
    "in_flight": ("in_flight", _count),
    "public_only": ("public_only", _flag),
    "allowed_hosts": ("allowed_hosts", _texts),
}

# s3fs' names of settings of the store.
_SETTINGS = {"key": "aws_access_key_id", "secret": "aws_secret_access_key", "token": "aws_session_token"}

# The entries of s3fs' `client_kwargs` that have a meaning here.
_CLIENT_KWARGS = ("endpoint_url", "region_name")


@dataclass(frozen=True)
class Options:
    """Options by the engine's names. They may be secrets: neither repr nor errors show their values."""

    _items: tuple[tuple[str, Any], ...] = field(default=(), repr=False)

    @classmethod
    def of(cls, storage_options: Mapping[str, Any] | None) -> Options:
        """Reads the options that a caller gives."""
        found: dict[str, Any] = {}
        settings: dict[str, str] = {}
        for name, value in _flat(_mapping(storage_options)):
            if value is None:
                continue
            engine_name, read = _KNOWN.get(name, (_SETTINGS.get(name, name), _setting))
            target = found if name in _KNOWN else settings
            if engine_name in target:
                raise UsageError(f"storage_options: {name} repeats another option: give one of them")
            try:
                target[engine_name] = read(value)
            except TypeError as error:
                raise UsageError(f"storage_options: {name} must be {error}, not {type(value).__name__}") from None
        if settings:
            found["settings"] = tuple(sorted(settings.items()))
        return cls(tuple(sorted(found.items())))

    def native(self) -> dict[str, Any]:
        """Returns the options as the engine takes them."""
        return dict(self._items)

    def digest(self) -> str:
        """Returns a text that is equal for equal options and does not reveal them."""
        return hashlib.blake2b(repr(self._items).encode(), digest_size=16).hexdigest()


def _mapping(storage_options: Mapping[str, Any] | None) -> Mapping[str, Any]:
    if storage_options is not None and not isinstance(storage_options, Mapping):
        raise UsageError(f"storage_options: give a mapping, not {type(storage_options).__name__}")
    return storage_options or {}


def _flat(storage_options: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    """Yields names and values, with those inside `client_kwargs`."""
    for name, value in storage_options.items():
        if not isinstance(name, str):
            raise UsageError(f"storage_options: names must be text, not {type(name).__name__}")
        if name != "client_kwargs":
            yield name, value
        elif isinstance(value, Mapping):
            for inner, each in value.items():
                if inner not in _CLIENT_KWARGS:
                    raise UsageError(f"storage_options: client_kwargs may hold {' and '.join(_CLIENT_KWARGS)} only")
                yield inner, each
        elif value is not None:
            raise UsageError(f"storage_options: client_kwargs must be a mapping, not {type(value).__name__}")


@dataclass(frozen=True)
class Address:
    """The address of a file that the engine's own client reads, with its options; another process can open it too."""

    url: str = field(repr=False)
    options: Options = Options()

    @property
    def name(self) -> str:
        """The address without its secrets."""
        return _swath.shown(self.url)


# Options that keep a caller out of private networks; only the engine's own client obeys them.
_GUARDS = ("public_only", "allowed_hosts")


def guard_of(storage_options: Mapping[str, Any] | None) -> str | None:
    """Returns the option that limits which hosts may be contacted, if there is one."""
    given = _mapping(storage_options)
    found = Options.of({name: given[name] for name in _GUARDS if name in given}).native()
    return next((name for name in _GUARDS if found.get(name)), None)


def unguarded(storage_options: Mapping[str, Any] | None) -> dict[str, Any]:
    """Returns the options for fsspec: all but those that only the engine's client obeys."""
    return {name: value for name, value in _mapping(storage_options).items() if name not in _GUARDS}


def refusal(name: str, guard: str, *, written: bool = False) -> Error:
    """Returns the error for a path or address that the engine's client does not open, where the caller set a guard."""
    done = "written to" if written else "opened"
    schemes = "s3://, gs:// or az://" if written else "https://, http://, s3://, gs:// or az://"
    given = "public_only=True" if guard == "public_only" else guard
    reason = (
        f"storage_options hold {given}, so that only addresses of swath's own client are {done}, no local files and "
        f"nothing through fsspec: give an address that begins with {schemes}, or leave {guard} out"
    )
    kind = "write" if written else "source"
    return make(kind, f"{name}: {reason}", reason, {"file": name, "errno": codes.EACCES})


def address_of(path: Any, storage_options: Mapping[str, Any] | None) -> Address | None:
    """Returns the address if a path is one that the engine's client reads, otherwise None."""
    # A path without a scheme may hold bytes that are not Unicode.
    if isinstance(path, str) and "://" in path and _swath.is_remote(path):
        return Address(path, Options.of(storage_options))
    return None
