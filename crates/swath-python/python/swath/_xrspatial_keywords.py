"""Keywords of xarray-spatial that `open_geotiff` and `to_geotiff` accept: permissions, limits and older names."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from . import _swath
from ._checks import truth, whole
from ._errors import UsageError
from ._gdal_paths import from_gdal, rasterio_name
from ._source import StoreRanges
from ._storage_options import address_of

# Permissions for what swath always does.
ALWAYS_PERMITTED = ("allow_experimental_codecs", "allow_internal_only_jpeg")
# Keywords for VRT, each with the value that has no effect.
VRT_KEYWORDS = {"missing_sources": "raise", "band_nodata": None}


@dataclass(frozen=True)
class Permissions:
    """Which files the caller permits to open. swath opens every file, so only a refusal has an effect."""

    rotated: bool = True
    unparseable_crs: bool = True
    invalid_nodata: bool = True
    # Whether the caller says so, and needs no warning.
    invalid_nodata_asked: bool = False
    max_cloud_bytes: int | None = None

    @classmethod
    def pop_from(cls, keywords: dict[str, Any], source: Any) -> Permissions:
        """Removes xarray-spatial's keywords from `keywords` and returns what they permit."""
        experimental = bool(keywords.get("allow_experimental_codecs"))
        for name in ALWAYS_PERMITTED:
            keywords.pop(name, None)
        for name, neutral in VRT_KEYWORDS.items():
            value = keywords.pop(name, neutral)
            if value is not neutral and not (isinstance(value, str) and value == neutral):
                raise UsageError(f"{name}={value!r} is for VRT, which swath does not read: leave it out")
        if truth("stable_only", keywords.pop("stable_only", False)) and not experimental:
            check_stable(source)
        asked = "allow_invalid_nodata" in keywords
        return cls(
            rotated=_permitted(keywords, "allow_rotated"),
            unparseable_crs=_permitted(keywords, "allow_unparseable_crs"),
            invalid_nodata=_permitted(keywords, "allow_invalid_nodata"),
            invalid_nodata_asked=asked,
            max_cloud_bytes=whole("max_cloud_bytes", keywords.pop("max_cloud_bytes", None)),
        )

    def check(self, dataset: Any, facts: Any = None) -> None:
        """Raises where the caller does not permit the file; `facts` describe it where they are known already."""
        refuses = not (self.rotated and self.unparseable_crs and self.invalid_nodata)
        limit = self.max_cloud_bytes
        if facts is None and not refuses and limit is None:
            return
        # Imported here: the package imports this module, and most callers need neither.
        from .xrspatial._contract import Facts
        from .xrspatial._errors import CloudSizeLimitError

        if limit is not None and in_store(dataset.name) and dataset.file_size > limit:
            raise CloudSizeLimitError(
                f"{dataset.name}: the object has {dataset.file_size} bytes, max_cloud_bytes allows {limit}"
            )
        if facts is not None or refuses:
            (facts or Facts(dataset)).check(self)


def _permitted(keywords: dict[str, Any], name: str) -> bool:
    return truth(name, keywords.pop(name, True))


def in_store(path: str | None) -> bool:
    """Whether a path is the address of an object in a store; a plain HTTP server is not a store."""
    local = ("http://", "https://", "file://", "local://")
    return path is not None and "://" in path and not path.lower().startswith(local)


def check_stable(source: Any) -> None:
    """Raises for every source but a local GeoTIFF, bytes, or a file that the caller opened."""
    from .xrspatial._errors import RemoteStableSourcesOnlyError, VRTStableSourcesOnlyError

    path = _name_of(source)
    advice = "drop stable_only, or give allow_experimental_codecs=True"
    if path is not None and path.lower().endswith(".vrt"):
        raise VRTStableSourcesOnlyError(f"{path}: stable_only=True allows local GeoTIFFs, and this is a VRT: {advice}")
    if in_store(path) or address_of(path, None) is not None:
        raise RemoteStableSourcesOnlyError(
            f"{_swath.shown(str(path))}: stable_only=True allows local GeoTIFFs, and this is a remote one: {advice}"
        )


def _name_of(source: Any) -> str | None:
    """Returns the path or address behind a source, without GDAL's prefixes; None for bytes and plain files."""
    if isinstance(source, (str, os.PathLike)):
        return from_gdal(os.fsdecode(os.fspath(source)))[0]
    if (name := rasterio_name(source)) is not None:
        return from_gdal(name)[0]
    if isinstance(source, _swath.Dataset):
        native = source._source.native  # type: ignore[attr-defined]
        return _name_of((native._store, native._path)) if isinstance(native, StoreRanges) else source.name
    if isinstance(source, tuple) and len(source) == 2:
        kind = type(source[0]).__name__
        return None if kind == "LocalStore" else f"{kind.lower()}://{source[1]}"
    if hasattr(source, "fs") and hasattr(source, "path"):
        # fsspec's files, by the name of their file system.
        return str(source.fs.unstrip_protocol(source.path))
    return None


def pop_masked(keywords: dict[str, Any], masked: bool) -> bool:
    """Removes `mask_nodata`, an older name of `masked`, from `keywords` and returns the value of both."""
    mask_nodata = keywords.pop("mask_nodata", None)
    if mask_nodata is None:
        return masked
    if masked and not mask_nodata:
        raise UsageError("mask_nodata is another name for masked: give one of them")
    return truth("mask_nodata", mask_nodata)


def select_variable(data: Any, keywords: dict[str, Any]) -> Any:
    """Removes `var` and `drop_rotation` from `keywords` and returns the variable of the data that they select."""
    name = keywords.pop("var", None)
    if name is not None:
        variables = getattr(data, "data_vars", None)
        if variables is None:
            raise UsageError(f"var={name!r} names a variable of a Dataset, and the data are no Dataset: leave it out")
        if name not in variables:
            raise UsageError(f"var={name!r}: the variables are {list(map(str, variables))}")
        data = data[name]
    return without_rotation(data) if truth("drop_rotation", keywords.pop("drop_rotation", False)) else data


def without_rotation(data: Any) -> Any:
    """Returns a DataArray without the transform of a rotated grid; other data unchanged."""
    if not hasattr(data, "coords") or not hasattr(data, "attrs"):
        return data
    data = data.copy(deep=False)
    for name in ("rotated_affine", "transform"):
        if _is_rotated(data.attrs.get(name)):
            del data.attrs[name]
    for name in list(data.coords):
        text = data.coords[name].attrs.get("GeoTransform")
        if isinstance(text, str) and _is_rotated(_affine_of(text)):
            attributes = {key: value for key, value in data.coords[name].attrs.items() if key != "GeoTransform"}
            coordinate = data.coords[name].variable.copy(deep=False)
            coordinate.attrs = attributes
            data = data.assign_coords({name: coordinate}).drop_vars(["x", "y", "xc", "yc"], errors="ignore")
    return data


def _affine_of(text: str) -> list[float]:
    """Returns the six numbers of a GDAL GeoTransform in Affine's order."""
    c, a, b, f, d, e = map(float, text.split())
    return [a, b, c, d, e, f]


def _is_rotated(transform: Any) -> bool:
    numbers = () if transform is None or isinstance(transform, Mapping) else tuple(transform)
    return len(numbers) >= 6 and bool(numbers[1] or numbers[3])
