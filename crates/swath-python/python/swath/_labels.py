"""Finds what an xarray object says of itself, in the words that rioxarray and xrspatial leave on it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ._convert import type_of
from ._errors import UsageError, warn
from ._georef import tag_attributes
from ._grid import found_crs, found_transform, grid_mapping, is_edited, kept_by_rio
from ._metadata import Found, coefficients, control_points, palette_of, per_band

# What dask calls its arrays: a word and a digest.
DASK_NAME = re.compile(r".*-[0-9a-f]{32}")

# Where the value of missing pixels stands, in the order in which rioxarray looks, then xrspatial's.
FILL_NAMES = ("_FillValue", "missing_value", "fill_value", "nodata")

# Attributes that have a place of their own in the file, or describe the array rather than the raster.
NOT_TAGS = frozenset(
    {
        *FILL_NAMES,
        *("nodatavals", "is_tiled", "res", "crs", "crs_wkt", "transform", "grid_mapping", "coordinates"),
        *("scales", "offsets", "scale_factor", "add_offset", "units", "band_tags", "AREA_OR_POINT", "_Unsigned"),
        *("masked_nodata", "nodata_pixels_present", "nodata_dtype_cast", "mask_and_scale_dtype", "rotated_affine"),
        *("raster_type", "georef_status", "extra_tags", "gdal_metadata", "gdal_metadata_xml", "extra_samples"),
        *("x_resolution", "y_resolution", "resolution_unit", "image_description", "colormap", "vrt_holes"),
        *("category_names", "category_colors", "_xrspatial_geotiff_contract", "_xrspatial_no_georef"),
    }
)
# Statistics of the pixels that were read need not hold for those that are written.
STALE = ("STATISTICS_",)


def found_nodata(data: Any) -> Any:
    """The value of missing pixels that an xarray object declares: what was set last, as far as one can tell."""
    if is_edited(data, "nodata"):
        return data.attrs["nodata"]
    encoded, declared = data.encoding.get("_FillValue"), _declared_nodata(data)
    # False where rioxarray was told that there is none, NaN where it stands for what `encoding` has.
    kept = kept_by_rio(data, "_nodata")
    if encoded is not None:
        return encoded if kept in (None, False) or kept != kept else kept
    if kept is None or kept is False:
        return declared if kept is None or "_FillValue" in data.attrs else None
    return declared if declared is not None and kept == declared else kept


def _declared_nodata(data: Any) -> Any:
    """What attributes say. What swath put beside `_FillValue` does not outlive it."""
    for name in FILL_NAMES[:-1] if "as_read" in data.encoding else FILL_NAMES:
        if data.attrs.get(name) is not None:
            return data.attrs[name]
    values = data.attrs.get("nodatavals")
    return values[0] if isinstance(values, (tuple, list)) and values else None


def found_tags(attrs: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Attributes that become tags of the file, and those of GDAL's metadata that xrspatial keeps."""
    own = {
        str(key): str(value)
        for key, value in attrs.items()
        if key not in NOT_TAGS
        and not str(key).startswith(STALE)
        and not (key == "long_name" and not isinstance(value, str))
    }
    kept = attrs.get("gdal_metadata")
    if isinstance(kept, Mapping):
        plain = {key: value for key, value in kept.items() if isinstance(key, str) and not key.startswith(STALE)}
        own = {**{key: str(value) for key, value in plain.items()}, **own}
    return {"": own} if own else {}


def _chosen(data: Any, value: Any, count: int) -> Any:
    """Of a list with an entry for each band of a file, those of the bands that are left; None if that is unknown."""
    if not isinstance(value, (tuple, list, np.ndarray)):
        return value
    values = list(value)
    # `encoding["bands"]` names the bands that were read; without it, lists are of all bands, in order.
    known = [int(band) for band in data.encoding.get("bands", range(1, len(values) + 1))]
    bands = _band_numbers(data, count)
    if bands is not None and len(known) == len(values) and set(bands) <= set(known):
        return [values[known.index(band)] for band in bands]
    return values if len(values) == count else None


def _listed(data: Any, name: str, count: int) -> Any:
    """An attribute with one value, or one for each band."""
    value = data.attrs.get(name)
    chosen = _chosen(data, value, count)
    # Of a raster without bands, such as their mean, the values of bands say nothing.
    if value is not None and chosen is None and data.ndim > 2:
        warn(
            f"{name} has {len(value)} values and the raster {count} bands, and no coordinate 'band' tells which bands "
            f"these are: {name} is left away",
        )
    return chosen


def _band_numbers(data: Any, count: int) -> list[int] | None:
    """Which bands of a file the bands of an array are, counted from 1, where a coordinate tells."""
    if "band" not in data.coords:
        return None
    numbers = np.atleast_1d(data.coords["band"].values)
    return numbers.tolist() if numbers.dtype.kind in "iu" and numbers.shape == (count,) else None


def of_dataarray(data: Any, origin: Any, y_name: str, x_name: str, count: int, words: Mapping[str, Any]) -> Found:
    """What a DataArray says of itself, in rioxarray's and xrspatial's ways; what the caller gives is not looked for.

    `origin` is the DataArray before its axes were put in order, which its accessors belong to. Scales and offsets are
    those of its attributes: samples that are not unpacked yet.
    """
    attrs, mapping = data.attrs, grid_mapping(data)
    names = _listed(data, "long_name", count)
    if names is None or names == "":
        # xarray names a DataArray after the dask array inside it; dask's generated names describe no band.
        names = None if DASK_NAME.fullmatch(str(data.name)) else data.name
    point = {"point": "Point", "area": "Area"}.get(str(attrs.get("raster_type", "")).lower())
    colormap = attrs.get("colormap")
    gcps = control_points(mapping.get("gcps"))
    transform = None
    if words["transform"] is None and not gcps:
        transform = found_transform(data, y_name, x_name, recalc=words["recalc_transform"])
    units = _listed(data, "units", count)
    tags, band_tags = _tags(data, count)
    scales = _listed(data, "scales" if "scales" in attrs else "scale_factor", count)
    offsets = _listed(data, "offsets" if "offsets" in attrs else "add_offset", count)
    return Found(
        crs=found_crs(origin) if words["crs"] is None else None,
        transform=transform,
        nodata=found_nodata(origin),
        area_or_point=attrs.get("AREA_OR_POINT") or point,
        gcps=gcps,
        rpcs=coefficients(mapping.get("rpcs")),
        tags=tags,
        descriptions=per_band("long_name", names if names is None else _texts(names), count),
        units=per_band("units", _texts(units) if units else None, count),
        scales=_numbers("scales", scales, count, 1.0),
        offsets=_numbers("offsets", offsets, count, 0.0),
        band_tags=band_tags,
        colors=_colors(data, count) if words["photometric"] in (None, "auto") else None,
        # The colours are the first band's; selecting another one leaves them in the attributes.
        palette=palette_of(colormap) if (_band_numbers(data, count) or [1])[0] == 1 else None,
    )


def _colors(data: Any, count: int) -> list[str | None] | None:
    """What bands meant as colour in the file that they were read from."""
    read = data.encoding.get("colorinterp")
    return _chosen(data, read, count) if isinstance(read, list) else None


def _texts(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return [None if item is None or item == "" else str(item) for item in value]
    return str(value)


def _numbers(name: str, value: Any, count: int, neutral: float) -> list[float] | None:
    values = per_band(name, value, count)
    if values is None or all(float(item) == neutral for item in values):
        return None
    return [float(item) for item in values]


def _tags(data: Any, count: int) -> tuple[dict[str, dict[str, str]], list[dict[str, dict[str, str]]] | None]:
    """Tags by domain, of the file and of each band: attributes, and what `encoding` keeps beside them."""
    tags = found_tags(data.attrs)
    given = _listed(data, "band_tags", count)
    if isinstance(given, (list, tuple)):
        # A name and a description of a band stand in its description.
        bands = [{"": without_name(found_tags(item).get("", {}))} for item in given]
        return tags, bands if any(band[""] for band in bands) else None
    read, of_bands = data.encoding.get("tags"), data.encoding.get("band_tags")
    if not isinstance(read, Mapping) or not isinstance(of_bands, list):
        return tags, None
    own = tags.setdefault("", {})
    # Attributes show the tags of the file and of the first band, as numbers where they are numbers.
    for key, text in read.get("", {}).items():
        if (name := _unchanged(own, key, text)) is not None:
            own[name] = text
    gone = set()
    for key, text in of_bands[0].get("", {}).items():
        name = _unchanged(own, key, text)
        if name is None and key not in NOT_TAGS:
            gone.add(key)
        elif name is not None and key not in read.get("", {}):
            del own[name]
    bands = [
        {
            domain: {
                key: text
                for key, text in items.items()
                if not key.startswith(STALE) and not (number == 0 and not domain and key in gone)
            }
            for domain, items in band.items()
        }
        for number, band in enumerate(of_bands)
    ]
    others = {domain: dict(items) for domain, items in read.items() if domain}
    chosen = _chosen(data, bands, count)
    return {**others, **tags}, chosen if chosen and any(any(band.values()) for band in chosen) else None


def _unchanged(own: Mapping[str, str], key: str, text: str) -> str | None:
    """The name of the attribute that shows a tag, where it has still the value that was read."""
    shown = tag_attributes({key: text})
    return next((name for name, value in shown.items() if own.get(name) == str(value)), None)


def without_name(tags: Mapping[str, str]) -> dict[str, str]:
    """Tags of a band without its name, which stands in its description."""
    return {key: value for key, value in tags.items() if key != "long_name"}


@dataclass(frozen=True)
class Packing:
    """How samples that were unpacked when they were read are stored."""

    dtype: np.dtype
    # One for each band; None where there is nothing to undo.
    scales: list[float] | None = None
    offsets: list[float] | None = None

    @property
    def scaled(self) -> bool:
        return self.scales is not None or self.offsets is not None


def packing(data: Any, dtype: np.dtype | None, count: int, *, pack: bool) -> Packing:
    """How a DataArray is stored: as rioxarray, what `encoding` says was done on reading is undone."""
    if not pack:
        return Packing(dtype or data.dtype)
    encoding = data.encoding
    found: dict[str, list[float] | None] = {}
    for many, one, neutral in (("scales", "scale_factor", 1.0), ("offsets", "add_offset", 0.0)):
        value = encoding.get(many) if encoding.get(many) is not None else encoding.get(one)
        chosen = _chosen(data, value, count)
        if value is not None and chosen is None:
            raise UsageError(
                f"encoding[{many!r}] has {len(value)} values and the raster {count} bands: keep the coordinate 'band' "
                "that tells which bands these are, or give pack=False"
            )
        found[many] = _numbers(many, chosen, count, neutral)
    # Complex integers are read as complex floats, whatever is asked for.
    read_as = str(encoding.get("rasterio_dtype"))
    pairs = data.dtype.kind == "c" and read_as in ("complex_int16", "complex_int32")
    return Packing(dtype or type_of(encoding.get("dtype") or (read_as if pairs else data.dtype)), **found)
