"""Translates GDAL's names of files, and rasterio's datasets, to paths and addresses."""

from __future__ import annotations

import re
import sys
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from ._errors import UsageError

# GDAL's virtual file systems of stores, with the scheme of their addresses.
_STORES = {"vsis3": "s3", "vsigs": "gs", "vsiaz": "az", "vsiadls": "az"}
_CURL = ("vsicurl", "vsicurl_streaming")
# What to give instead of a virtual file system that has no address.
_INSTEAD = {
    "vsizip": 'give "zip://FILE::ARCHIVE", which fsspec opens, or unpack it',
    "vsitar": 'give "tar://FILE::ARCHIVE", which fsspec opens, or unpack it',
    "vsigzip": 'give gzip.open(path, "rb").read(), or unpack it',
    "vsimem": "give an io.BytesIO, or the bytes that MemoryFile.read() gives",
    "vsistdin": "give sys.stdin.buffer.read()",
    "vsisubfile": "give the bytes themselves, or a file that holds nothing else",
}
# GDAL's drivers of the files that swath reads.
DRIVERS = ("GTiff", "COG", "LIBERTIFF")
_FILE_SYSTEM = re.compile(r"/(vsi[a-z0-9_]+)([/?])(.*)", re.DOTALL)
_PAGE = re.compile(r"GTIFF_(?:DIR|RAW):(off:)?(\d+):(.*)", re.DOTALL)


def from_gdal(path: str) -> tuple[str, int | None]:
    """Returns the path or address of GDAL's name, with the directory (from 0) that it names; other paths unchanged."""
    if path.startswith("GTIFF_"):
        return _page(path)
    if path.startswith("file:"):
        return _local(path), None
    found = _FILE_SYSTEM.fullmatch(path)
    return (path if found is None else _address(path, *found.groups())), None


def target_path(path: str) -> str:
    """Returns the path or address of a file to write, from GDAL's name. A page of a file cannot be written."""
    plain, ifd = from_gdal(path)
    if ifd is not None:
        raise UsageError(f"{path}: one page of a file cannot be written: give the path of a file")
    return plain


def _page(path: str) -> tuple[str, int | None]:
    found = _PAGE.fullmatch(path)
    if found is None:
        return path, None
    by_offset, number, rest = found.groups()
    if by_offset or not int(number):
        raise UsageError(f"{path}: give ifd=, the number of the directory counted from 0")
    inner, _ = from_gdal(rest)
    # GDAL counts from 1.
    return inner, int(number) - 1


def _local(url: str) -> str:
    """Returns the path in a `file:` URL; one without slashes is relative."""
    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost"):
        raise UsageError(f"{url}: the host {parts.netloc!r} is not this machine: give file:///PATH, or a path")
    return unquote(parts.path)


def _address(path: str, system: str, mark: str, rest: str) -> str:
    if system in _CURL:
        if mark == "/":
            return rest
        query = dict(parse_qsl(rest))
        others = sorted(set(query) - {"url"})
        if "url" not in query or others:
            raise UsageError(
                f"/{system}?{'&'.join(others) or '...'}: give the address itself, and settings for its server in "
                "storage_options"
            )
        return query["url"]
    store = _STORES.get(system.removesuffix("_streaming"))
    if store is not None and mark == "/" and rest:
        return f"{store}://{rest}"
    instead = _INSTEAD.get(system, "give a path, an address or the bytes themselves")
    raise UsageError(f"{path}: swath cannot read GDAL's file system /{system}/: {instead}")


def rasterio_name(source: Any) -> str | None:
    """Returns the name of the file that a rasterio dataset has open; None for any other object."""
    rasterio = sys.modules.get("rasterio._base")
    if rasterio is None or not isinstance(source, rasterio.DatasetBase):
        return None
    if hasattr(source, "src_dataset"):
        raise UsageError(
            "swath does not warp, as rasterio's WarpedVRT does: give its src_dataset, or write it to a file"
        )
    name = str(source.name)
    if source.mode != "r":
        raise UsageError(f"{name}: the rasterio dataset is open in mode {source.mode!r}: close it and give its path")
    if source.driver not in DRIVERS:
        raise UsageError(f"{name}: rasterio reads this file with the driver {source.driver}; swath reads GeoTIFF")
    level = next((value for name, value in source.options.items() if name.lower() == "overview_level"), None)
    if level is not None:
        raise UsageError(f"{name}: the rasterio dataset is an overview: give its path and overview_level={level}")
    return name
