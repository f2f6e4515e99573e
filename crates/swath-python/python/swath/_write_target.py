"""Where `to_geotiff` writes: local files, addresses in stores, and files that other libraries upload."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from . import _swath
from ._errors import UsageError
from ._gdal_paths import target_path
from ._storage_options import address_of, guard_of, refusal

URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")


def is_local(path: Any) -> bool:
    """Whether a destination is a local file, which may have side files."""
    return isinstance(path, (str, os.PathLike)) and not URL.match(os.fsdecode(path))


def client_options(path: Any, storage_options: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Returns the client's options for an address in a store; None for every other destination."""
    name = _path_name(path)
    address = address_of(name, storage_options)
    if address is None:
        # The guard does not apply to a file or store that the caller opened.
        if isinstance(name, str) and (guard := guard_of(storage_options)) is not None:
            raise refusal(_swath.shown(name) if "://" in name else name, guard, written=True)
        return None
    if address.url.lower().startswith("http"):
        raise UsageError(
            f"{address.name}: swath writes to stores, not to plain HTTP servers: give s3://, gs:// or az:// "
            "(with `endpoint` in storage_options for a server of your own)"
        )
    return address.options.native()


def _path_name(path: Any) -> Any:
    """Returns a path or an address as text, with GDAL's prefixes translated; any other destination unchanged."""
    return target_path(os.fsdecode(os.fspath(path))) if isinstance(path, (str, os.PathLike)) else path


@contextmanager
def target(path: Any, storage_options: Mapping[str, Any]) -> Iterator[Any]:
    """Yields what the engine writes to: for other stores a temporary file, which is uploaded when it is complete."""
    if path is None or hasattr(path, "write"):
        yield path
        return
    if isinstance(path, tuple) and len(path) == 2:
        import obstore

        store, key = path
        if (local := _path_in_store(store, key)) is not None:
            local.parent.mkdir(parents=True, exist_ok=True)
            yield str(local)
            return
        with _temporary_file() as file:
            yield str(file)
            obstore.put(store, str(key), file)
        return
    system, name = _file_system(path, storage_options)
    if system is None:
        yield name
        return
    with _temporary_file() as file:
        yield str(file)
        system.put_file(str(file), name)


def _path_in_store(store: Any, key: Any) -> Path | None:
    """Returns the local file that a key of obstore's LocalStore names; None for other stores.

    The engine replaces such a file in one step, and removes its stale side files.
    """
    from obstore.store import LocalStore

    if not isinstance(store, LocalStore):
        return None
    # Without a prefix, keys are paths from the root.
    parts = [part for part in str(key).split("/") if part]
    if not parts or any(part in (".", "..") for part in parts):
        return None
    return Path(store.prefix or "/").joinpath(*parts)


def _file_system(path: Any, storage_options: Mapping[str, Any]) -> tuple[Any, str]:
    """Returns the fsspec file system of a destination, or None for a local one, and the name of the file there."""
    if hasattr(path, "fs") and hasattr(path, "path"):
        if getattr(path, "compression", None):
            raise UsageError(f"{path!r} compresses the bytes that it gets: open it with compression=None")
        system, name = path.fs, str(path.path)
    elif isinstance(path, (str, os.PathLike)):
        name = _path_name(path)
        if not URL.match(name) or _swath.is_remote(name):
            return None, name
        import fsspec

        try:
            system, name = fsspec.core.url_to_fs(name, **storage_options)
        except (ImportError, ValueError) as error:
            raise UsageError(
                f"{name}: neither swath nor fsspec can write there ({error}): give a path, s3://, gs:// or az://"
            ) from error
    else:
        raise UsageError(
            f"path={path!r}: give a path, a URL, an object with write(), an OpenFile of fsspec, (obstore store, path), "
            "or None"
        )
    local = "file" in ((system.protocol,) if isinstance(system.protocol, str) else system.protocol)
    return (None, name) if local else (system, name)


@contextmanager
def _temporary_file() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="swath-") as folder:
        yield Path(folder) / "raster.tif"
