"""The handles that a process keeps open, so that repeated calls for one file open it once."""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Hashable, Mapping
from typing import Any

from ._checks import whole
from ._dataset import Dataset
from ._errors import UsageError, warn
from ._source import resolve
from ._threads import Lock

# Most handles that the process keeps open.
_MAX_HANDLES = 64
# Seconds for which the handle of an address counts as current: checking whether it is takes as long as opening it.
_FRESH_SECONDS = 10.0
# By identity of the source and options of the handle; with the time until which the handle counts as current.
_handles: OrderedDict[tuple[Hashable, tuple[Any, ...]], tuple[Dataset, float]] = OrderedDict()
_handles_lock = Lock()


def opened(
    source: Any, storage_options: Mapping[str, Any] | None, *, anew: bool = False, max_pixels: int | None = None
) -> Dataset:
    """Returns a dataset itself; for any other source the process's shared handle, or with `anew` a new one.

    A shared handle gives the warnings of its opening again.
    """
    if not isinstance(source, Dataset):
        options: dict[str, Any] = {} if max_pixels is None else {"max_pixels": whole("max_pixels", max_pixels)}
        if anew:
            return Dataset(source, storage_options=storage_options, **options)
        return shared(source, storage_options, warn_again=True, **options)
    for name, value in (("storage_options", storage_options), ("max_pixels", max_pixels)):
        if value is not None and value != {}:
            raise UsageError(f"{source.name}: the dataset is open already: give {name} where it is opened")
    return source


def shared(
    source: Any,
    storage_options: Mapping[str, Any] | None = None,
    *,
    anew: bool = False,
    warn_again: bool = False,
    **options: Any,
) -> Dataset:
    """Returns the process's shared handle of a source; opens it at first use, `anew`, and when the file has changed.

    With `warn_again`, a handle that is open already gives the warnings of its opening again. A file behind an address
    is checked for changes every ten seconds, and whenever bytes of it are fetched.
    """
    resolved = resolve(source, storage_options)
    # The caller may change or release memory and open files, so they have no shared handle.
    if not (isinstance(resolved.native, str) or callable(getattr(resolved.native, "key", None))):
        return Dataset(resolved, **options)
    key = (resolved.key, tuple(sorted(options.items())))
    now = time.monotonic()
    with _handles_lock:
        found, until = _handles.get(key, (None, math.inf))
        if anew or now > until:
            _handles.pop(key, None)
            found = None
        elif found is not None:
            _handles.move_to_end(key)
    if found is not None:
        for message in found._opening_warnings if warn_again else ():
            warn(message)
        return found
    made = Dataset(resolved, **options)
    with _handles_lock:
        # A handle of the file that had this name before would keep its bytes on disk.
        for other in [other for other, (dataset, _) in _handles.items() if dataset.name == made.name]:
            if other[1] == key[1] and other != key:
                del _handles[other]
        found, _ = _handles.setdefault(key, (made, math.inf if resolved.remote is None else now + _FRESH_SECONDS))
        while len(_handles) > _MAX_HANDLES:
            _handles.popitem(last=False)
    return found


def forget(name: str) -> None:
    """Drops the shared handles of a file that was overwritten, so that the system can free its bytes."""
    with _handles_lock:
        for key in [key for key, (dataset, _) in _handles.items() if dataset.name == name]:
            del _handles[key]
