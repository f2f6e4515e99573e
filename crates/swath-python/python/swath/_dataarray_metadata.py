"""Finds the metadata of an xarray object in the attributes and encoding that rioxarray and xarray-spatial use."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ._dataarray_grid import found_crs, found_transform, grid_mapping, is_cropped, is_edited, kept_by_rio
from ._errors import UsageError, warn
from ._georef import tag_attributes
from ._metadata import Found, coefficients, control_points, palette_of, per_band
from ._sample_conversion import type_name, type_of
from ._write_options import WriteOptions

# Names that dask generates: a word and a digest.
DASK_NAME = re.compile(r".*-[0-9a-f]{32}")

# Attributes that hold the nodata value: those of rioxarray, in its order, then that of xarray-spatial.
FILL_NAMES = ("_FillValue", "missing_value", "fill_value", "nodata")

# Attributes that are not tags: the file stores them elsewhere, or they describe the array rather than the raster.
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
# Tags that describe the pixels that were read, which may not be the pixels that are written.
STALE_PREFIXES = ("STATISTICS_",)


def found_nodata(data: Any) -> Any:
    """Returns the nodata value of an xarray object: the one that was set last, as far as that can be known."""
    if is_edited(data, "nodata"):
        return data.attrs["nodata"]
    encoded, declared = data.encoding.get("_FillValue"), _declared_nodata(data)
    # rioxarray keeps False for "no nodata", and NaN where `encoding` has the value.
    kept = kept_by_rio(data, "_nodata")
    if encoded is not None:
        # NaN is not equal to itself: `kept != kept` is true for NaN only.
        return encoded if kept in (None, False) or kept != kept else kept
    if kept is None or kept is False:
        return declared if kept is None or "_FillValue" in data.attrs else None
    return declared if declared is not None and kept == declared else kept


def _compare_nodata_with_attribute(data: Any, found: Any) -> None:
    """Warns of an `attrs["nodata"]` that contradicts `_FillValue`: one of them was edited, and `_FillValue` is used."""
    stated = data.attrs.get("nodata")
    if stated is None or "as_read" in data.encoding:
        return
    places = [("encoding", data.encoding), ("attrs", data.attrs)]
    fills = [
        (f"{where}[{name!r}]", items[name]) for where, items in places for name in FILL_NAMES[:-1] if name in items
    ]
    where, fill = next(((where, value) for where, value in fills if value is not None), ("", stated))
    if not same_number(stated, fill):
        warn(
            f"attrs['nodata'] is {stated}, and {where} is {fill}: {found} is written; give nodata=, or delete the "
            "attribute that is wrong"
        )


def same_number(one: Any, other: Any) -> bool:
    """Whether two nodata values are the same; NaN is NaN."""
    return bool(one == other or (one is not None and other is not None and one != one and other != other))


def _declared_nodata(data: Any) -> Any:
    """Returns the nodata value in the attributes; the `nodata` that swath adds counts only with its `_FillValue`."""
    for name in FILL_NAMES[:-1] if "as_read" in data.encoding else FILL_NAMES:
        if data.attrs.get(name) is not None:
            return data.attrs[name]
    values = data.attrs.get("nodatavals")
    return values[0] if isinstance(values, (tuple, list)) and values else None


def found_tags(attrs: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Returns the attributes that become tags of the file, and the GDAL metadata that xarray-spatial keeps."""
    own = {
        str(key): str(value)
        for key, value in attrs.items()
        if key not in NOT_TAGS
        and not str(key).startswith(STALE_PREFIXES)
        and not (key == "long_name" and not isinstance(value, str))
    }
    items = attrs.get("gdal_metadata")
    if isinstance(items, Mapping):
        named = {key: str(value) for key, value in items.items() if isinstance(key, str)}
        own = {**{key: value for key, value in named.items() if not key.startswith(STALE_PREFIXES)}, **own}
    return {"": own} if own else {}


def for_bands(data: Any, value: Any, count: int) -> Any:
    """Returns the entries of a per-band list for the bands that the array still has; None if these are unknown."""
    if not isinstance(value, (tuple, list, np.ndarray)):
        return value
    values = list(value)
    # `encoding["bands"]` names the bands that were read; without it, lists have all bands in order.
    known = [int(band) for band in data.encoding.get("bands", range(1, len(values) + 1))]
    bands = _band_numbers(data, count)
    if bands is not None and len(known) == len(values) and set(bands) <= set(known):
        return [values[known.index(band)] for band in bands]
    return values if len(values) == count else None


def _listed(data: Any, name: str, count: int) -> Any:
    """Returns an attribute that has one value, or one for each band."""
    value = data.attrs.get(name)
    chosen = for_bands(data, value, count)
    # A raster without a band axis, such as a mean over bands, has no use for per-band values.
    if value is not None and chosen is None and data.ndim > 2:
        warn(
            f"{name} has {len(value)} values and the raster {count} bands, and no coordinate 'band' says which bands "
            f"these are: {name} is left out",
        )
    return chosen


def _band_numbers(data: Any, count: int) -> list[int] | None:
    """Returns which bands of its file an array has, counted from 1, where the coordinate `band` says so."""
    if "band" not in data.coords:
        return None
    numbers = np.atleast_1d(data.coords["band"].values)
    return numbers.tolist() if numbers.dtype.kind in "iu" and numbers.shape == (count,) else None


def of_dataarray(data: Any, origin: Any, y_name: str, x_name: str, count: int, options: WriteOptions) -> Found:
    """Returns the metadata of a DataArray, without those that the caller gives in `options`.

    `origin` is the DataArray before its axes were put in order; its accessors belong to it. Scales and offsets come
    from the attributes, where they describe samples that are still packed.
    """
    attrs, mapping = data.attrs, grid_mapping(data)
    names = _listed(data, "long_name", count)
    if names is None or names == "":
        # xarray names a DataArray after the dask array inside it, and a name that dask generated describes no band.
        names = None if DASK_NAME.fullmatch(str(data.name)) else data.name
    point = {"point": "Point", "area": "Area"}.get(str(attrs.get("raster_type", "")).lower())
    colormap = attrs.get("colormap")
    gcps = control_points(mapping.get("gcps"))
    transform = None
    if options.transform is None and not gcps:
        transform = found_transform(data, y_name, x_name, recalc=options.recalc_transform)
    units = _listed(data, "units", count)
    tags, band_tags = _tags(data, count)
    nodata = found_nodata(origin)
    if options.nodata is None:
        _compare_nodata_with_attribute(origin, nodata)
    if (gcps or mapping.get("rpcs")) and is_cropped(data, y_name, x_name):
        warn(
            "the control points or RPCs describe all pixels that were read, and the array has only a part of them: "
            "read the part with window= instead"
        )
    scales = _listed(data, "scales" if "scales" in attrs else "scale_factor", count)
    offsets = _listed(data, "offsets" if "offsets" in attrs else "add_offset", count)
    return Found(
        crs=found_crs(origin) if options.crs is None else None,
        transform=transform,
        nodata=nodata,
        area_or_point=attrs.get("AREA_OR_POINT") or point,
        gcps=gcps,
        rpcs=coefficients(mapping.get("rpcs")),
        tags=tags,
        descriptions=per_band("long_name", names if names is None else _texts(names), count),
        units=per_band("units", _texts(units) if units else None, count),
        scales=_numbers("scales", scales, count, 1.0),
        offsets=_numbers("offsets", offsets, count, 0.0),
        band_tags=band_tags,
        colors=_colors(data, count) if str(options.photometric) in ("None", "auto") else None,
        # The palette belongs to the first band, and stays in the attributes when another band is selected.
        palette=palette_of(colormap) if (_band_numbers(data, count) or [1])[0] == 1 else None,
    )


def _colors(data: Any, count: int) -> list[str | None] | None:
    """Returns the colour interpretation of the bands in the file that they were read from."""
    read = data.encoding.get("colorinterp")
    return for_bands(data, read, count) if isinstance(read, list) else None


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
    """Returns the tags by domain, of the file and of each band, from the attributes and from `encoding`."""
    tags = found_tags(data.attrs)
    given = _listed(data, "band_tags", count)
    if isinstance(given, (list, tuple)):
        # The name of a band is stored as its description.
        bands = [{"": without_name(found_tags(item).get("", {}))} for item in given]
        return tags, bands if any(band[""] for band in bands) else None
    read, of_bands = data.encoding.get("tags"), data.encoding.get("band_tags")
    if not isinstance(read, Mapping) or not isinstance(of_bands, list):
        return tags, None
    own = tags.setdefault("", {})
    # The attributes hold the tags of the file and of the first band, with numeric text as numbers.
    for key, text in read.get("", {}).items():
        if (name := _unchanged(own, key, text)) is not None:
            own[name] = text
    deleted = set()
    for key, text in of_bands[0].get("", {}).items():
        name = _unchanged(own, key, text)
        if name is None and key not in NOT_TAGS:
            deleted.add(key)
        elif name is not None and key not in read.get("", {}):
            del own[name]
    bands = [
        {
            domain: {
                key: text
                for key, text in items.items()
                if not key.startswith(STALE_PREFIXES) and not (number == 0 and not domain and key in deleted)
            }
            for domain, items in band.items()
        }
        for number, band in enumerate(of_bands)
    ]
    others = {domain: dict(items) for domain, items in read.items() if domain}
    chosen = for_bands(data, bands, count)
    return {**others, **tags}, chosen if chosen and any(any(band.values()) for band in chosen) else None


def _unchanged(own: Mapping[str, str], key: str, text: str) -> str | None:
    """Returns the name of the attribute that holds a tag, where its value is still the one that was read."""
    shown = tag_attributes({key: text})
    return next((name for name, value in shown.items() if own.get(name) == str(value)), None)


def without_name(tags: Mapping[str, str]) -> dict[str, str]:
    """Returns the tags of a band without its name, which is stored as its description."""
    return {key: value for key, value in tags.items() if key != "long_name"}


@dataclass(frozen=True)
class Packing:
    """How to store samples: their type, and the scales and offsets to undo."""

    dtype: np.dtype
    # One for each band; None where reading applied none.
    scales: list[float] | None = None
    offsets: list[float] | None = None

    @property
    def scaled(self) -> bool:
        return self.scales is not None or self.offsets is not None


def packing(data: Any, dtype: np.dtype | None, count: int, *, pack: bool) -> Packing:
    """Returns how to store a DataArray. As in rioxarray, writing undoes what `encoding` says reading applied."""
    encoding = data.encoding
    # Complex integers are always read as complex floats, and a masked read puts these into `encoding["dtype"]`.
    stored = str(encoding.get("rasterio_dtype"))
    is_pairs = data.dtype.kind == "c" and stored in ("complex_int16", "complex_int32")
    if dtype is None and is_pairs:
        dtype = type_of(stored)
    if not pack:
        return Packing(dtype or data.dtype)
    found: dict[str, list[float] | None] = {}
    for many, one, neutral in (("scales", "scale_factor", 1.0), ("offsets", "add_offset", 0.0)):
        value = encoding.get(many) if encoding.get(many) is not None else encoding.get(one)
        chosen = for_bands(data, value, count)
        if value is not None and chosen is None:
            raise UsageError(
                f"encoding[{many!r}] has {len(value)} values and the raster {count} bands: keep the coordinate 'band' "
                "that says which bands these are, or give pack=False"
            )
        found[many] = _numbers(many, chosen, count, neutral)
    return Packing(dtype or type_of(encoding.get("dtype") or data.dtype), **found)


def is_as_read(data: Any, packing: Packing) -> bool:
    """Whether the encoding says how a file stored the samples that were read from it, not how a caller wants them."""
    stored = str(data.encoding.get("rasterio_dtype", type_name(packing.dtype)))
    return "source" in data.encoding and stored == type_name(packing.dtype)
