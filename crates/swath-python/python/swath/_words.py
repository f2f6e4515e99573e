"""What xarray-spatial's users allow and forbid when they open and write files, in both of swath's interfaces."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ._errors import UsageError
from ._remote import address_of

# Words that allow what swath does without leave.
NEEDLESS = ("allow_experimental_codecs", "allow_internal_only_jpeg")
# Words for VRT, and the value of each that asks for nothing.
OF_VRT = {"missing_sources": "raise", "band_nodata": None}


@dataclass(frozen=True)
class Leave:
    """What may be opened. swath opens everything, so that only what is forbidden has an effect."""

    rotated: bool = True
    unparseable_crs: bool = True
    invalid_nodata: bool = True
    max_cloud_bytes: int | None = None

    @classmethod
    def taken(cls, source: Any, words: dict[str, Any]) -> Leave:
        """Takes xarray-spatial's words out of `words`; what remains there is left to others."""
        path = os.fspath(source) if isinstance(source, (str, os.PathLike)) else None
        experimental = bool(words.get("allow_experimental_codecs"))
        for name in NEEDLESS:
            words.pop(name, None)
        for name, plain in OF_VRT.items():
            value = words.pop(name, plain)
            if value != plain:
                raise UsageError(f"{name}={value!r} is for VRT, which swath does not read: leave it out")
        if words.pop("stable_only", False) and not experimental:
            check_stable(path)
        return cls(
            rotated=bool(words.pop("allow_rotated", True)),
            unparseable_crs=bool(words.pop("allow_unparseable_crs", True)),
            invalid_nodata=bool(words.pop("allow_invalid_nodata", True)),
            max_cloud_bytes=words.pop("max_cloud_bytes", None),
        )

    def check(self, dataset: Any, facts: Any = None) -> None:
        """Raises for what the caller forbids of a file; `facts` are what is known of it already."""
        refuses = not (self.rotated and self.unparseable_crs and self.invalid_nodata)
        limit = self.max_cloud_bytes
        if facts is None and not refuses and limit is None:
            return
        # They stand on this module, and only those who use them pay for importing them.
        from .xrspatial._contract import Facts
        from .xrspatial._errors import CloudSizeLimitError

        if limit is not None and in_store(dataset.name) and dataset.file_size > limit:
            raise CloudSizeLimitError(
                f"{dataset.name}: the object has {dataset.file_size} bytes, max_cloud_bytes allows {limit}"
            )
        if facts is not None or refuses:
            (facts or Facts(dataset)).check(self)


def in_store(path: str | None) -> bool:
    """Whether a path leads to an object in a store, which is not a server of plain HTTP."""
    return path is not None and "://" in path and not path.lower().startswith(("http://", "https://", "file://"))


def check_stable(path: str | None) -> None:
    """Raises for everything but local GeoTIFFs."""
    from .xrspatial._errors import RemoteStableSourcesOnlyError, VRTStableSourcesOnlyError

    advice = "drop stable_only, or give allow_experimental_codecs=True"
    if path is not None and path.lower().endswith(".vrt"):
        raise VRTStableSourcesOnlyError(f"{path}: stable_only=True allows local GeoTIFFs, and this is a VRT: {advice}")
    if in_store(path) or address_of(path, None) is not None:
        raise RemoteStableSourcesOnlyError(
            f"{path}: stable_only=True allows local GeoTIFFs, and this is a remote one: {advice}"
        )


def masked_by(words: dict[str, Any], masked: bool) -> bool:
    """`masked`, which once was `mask_nodata`."""
    given = words.pop("mask_nodata", None)
    if given is None:
        return masked
    if masked and not given:
        raise UsageError("mask_nodata is another word for masked: give one of them")
    return bool(given)


def chosen(data: Any, words: dict[str, Any]) -> Any:
    """The variable that `var` names, and without its rotation where `drop_rotation` says so; takes both words out."""
    name = words.pop("var", None)
    if name is not None:
        variables = getattr(data, "data_vars", None)
        if variables is None:
            raise UsageError(f"var={name!r} names a variable of a Dataset, and the data are none: leave it out")
        if name not in variables:
            raise UsageError(f"var={name!r}: the variables are {list(map(str, variables))}")
        data = data[name]
    return without_rotation(data) if words.pop("drop_rotation", False) else data


def without_rotation(data: Any) -> Any:
    """A DataArray without the transform of a rotated grid; others as they are."""
    if not hasattr(data, "coords") or not hasattr(data, "attrs"):
        return data
    data = data.copy(deep=False)
    for name in ("rotated_affine", "transform"):
        if _is_rotated(data.attrs.get(name)):
            del data.attrs[name]
    for name in list(data.coords):
        text = data.coords[name].attrs.get("GeoTransform")
        if isinstance(text, str) and _is_rotated(_affine_of(text)):
            kept = {key: value for key, value in data.coords[name].attrs.items() if key != "GeoTransform"}
            coordinate = data.coords[name].variable.copy(deep=False)
            coordinate.attrs = kept
            data = data.assign_coords({name: coordinate}).drop_vars(["x", "y", "xc", "yc"], errors="ignore")
    return data


def _affine_of(text: str) -> list[float]:
    """GDAL's six numbers in the order of rasterio."""
    c, a, b, f, d, e = map(float, text.split())
    return [a, b, c, d, e, f]


def _is_rotated(transform: Any) -> bool:
    numbers = () if transform is None or isinstance(transform, Mapping) else tuple(transform)
    return len(numbers) >= 6 and bool(numbers[1] or numbers[3])
