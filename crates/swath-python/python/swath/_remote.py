"""What `storage_options` say of servers and stores, as the engine takes it."""

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
    """Settings are text; stores know numbers and truth values by their text too."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (str, int)):
        return str(value)
    raise TypeError("text, a whole number, True or False")


# Our words and others' for the same: the engine's word, and what its values are.
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

# Words of s3fs for settings of the store.
_SETTINGS = {"key": "aws_access_key_id", "secret": "aws_secret_access_key", "token": "aws_session_token"}

# Of what s3fs hands on to its client, what means something here.
_CLIENT = ("endpoint_url", "region_name")


@dataclass(frozen=True)
class Options:
    """Options in the engine's words. They may be secrets: neither text nor errors show them."""

    _items: tuple[tuple[str, Any], ...] = field(default=(), repr=False)

    @classmethod
    def of(cls, storage_options: Mapping[str, Any] | None) -> Options:
        """From the words that callers use."""
        found: dict[str, Any] = {}
        settings: dict[str, str] = {}
        for word, value in _flat(_mapping(storage_options)):
            if value is None:
                continue
            name, read = _KNOWN.get(word, (_SETTINGS.get(word, word), _setting))
            place = found if word in _KNOWN else settings
            if name in place:
                raise UsageError(f"storage_options: {word} says again what another word says: give one of them")
            try:
                place[name] = read(value)
            except TypeError as error:
                raise UsageError(f"storage_options: {word} must be {error}, not {type(value).__name__}") from None
        if settings:
            found["settings"] = tuple(sorted(settings.items()))
        return cls(tuple(sorted(found.items())))

    def native(self) -> dict[str, Any]:
        """As the engine takes them."""
        return dict(self._items)

    def digest(self) -> str:
        """The same for the same options."""
        return hashlib.blake2b(repr(self._items).encode(), digest_size=16).hexdigest()


def _mapping(storage_options: Mapping[str, Any] | None) -> Mapping[str, Any]:
    if storage_options is not None and not isinstance(storage_options, Mapping):
        raise UsageError(f"storage_options: give a mapping, not {type(storage_options).__name__}")
    return storage_options or {}


def _flat(storage_options: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    for word, value in storage_options.items():
        if not isinstance(word, str):
            raise UsageError(f"storage_options: options have names, and one is of type {type(word).__name__}")
        if word != "client_kwargs":
            yield word, value
        elif isinstance(value, Mapping):
            for inner, each in value.items():
                if inner not in _CLIENT:
                    raise UsageError(f"storage_options: client_kwargs may hold {' and '.join(_CLIENT)} only")
                yield inner, each
        elif value is not None:
            raise UsageError(f"storage_options: client_kwargs must be a mapping, not {type(value).__name__}")


@dataclass(frozen=True)
class Address:
    """A file behind a network that the engine asks for itself, with all that another process needs to do so."""

    url: str = field(repr=False)
    options: Options = Options()

    @property
    def name(self) -> str:
        """The address without what may be secret."""
        return _swath.shown(self.url)


# What keeps callers from being led into a private network; only the engine's own client heeds these words.
_GUARDS = ("public_only", "allowed_hosts")


def guard_of(storage_options: Mapping[str, Any] | None) -> str | None:
    """The word of `storage_options` that limits which hosts may be asked, if there is one."""
    given = _mapping(storage_options)
    found = Options.of({word: given[word] for word in _GUARDS if word in given}).native()
    return next((word for word in _GUARDS if found.get(word)), None)


def unguarded(storage_options: Mapping[str, Any] | None) -> dict[str, Any]:
    """The options that others than the engine understand."""
    return {word: value for word, value in _mapping(storage_options).items() if word not in _GUARDS}


def refusal(name: str, guard: str, *, written: bool = False) -> Error:
    """The error of a path or address that would be opened past the guard which the caller asked for."""
    done = "written to" if written else "opened"
    schemes = "s3://, gs:// or az://" if written else "https://, http://, s3://, gs:// or az://"
    given = "public_only=True" if guard == "public_only" else guard
    reason = (
        f"storage_options hold {given}, and then only addresses that swath asks itself are {done}, no files of this "
        f"machine and nothing through fsspec: give an address that begins with {schemes}, or leave {guard} out"
    )
    kind = "write" if written else "source"
    return make(kind, f"{name}: {reason}", reason, {"file": name, "errno": codes.EACCES})


def address_of(path: Any, storage_options: Mapping[str, Any] | None) -> Address | None:
    """The address that a path is, if it is one that the engine knows."""
    # What has no scheme may hold what is no Unicode.
    if isinstance(path, str) and "://" in path and _swath.is_remote(path):
        return Address(path, Options.of(storage_options))
    return None
