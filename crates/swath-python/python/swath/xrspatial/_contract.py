"""The attributes of an opened file that xarray-spatial's contract specifies."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ElementTree
from functools import cached_property, lru_cache
from typing import Any
from xml.sax.saxutils import escape, quoteattr, unescape

import numpy as np

from .._dataset import Dataset
from .._engine_options import is_pointer
from .._georef import Transform, number_of
from .._xrspatial_keywords import Permissions
from ._errors import (
    DegeneratePixelSizeError,
    DuplicateIFDTagError,
    InconsistentGeoKeysError,
    InvalidIntegerNodataError,
    MalformedScaleOffsetError,
    MixedBandMetadataError,
    RotatedTransformError,
    UnparseableCRSError,
    UnsupportedGeoTIFFFeatureError,
)

GEOREF_STATUS_FULL = "full"
"""Value of `attrs["georef_status"]`: the file has a CRS and a transform."""
GEOREF_STATUS_TRANSFORM_ONLY = "transform_only"
"""Value of `attrs["georef_status"]`: the file has a transform and no CRS."""
GEOREF_STATUS_CRS_ONLY = "crs_only"
"""Value of `attrs["georef_status"]`: the file has a CRS and no transform."""
GEOREF_STATUS_NONE = "none"
"""Value of `attrs["georef_status"]`: the file has neither CRS nor transform."""
GEOREF_STATUS_ROTATED_DROPPED = "rotated_dropped"
"""Value of `attrs["georef_status"]`: the grid is rotated, and `allow_rotated=True` left its georeference out."""
GEOREF_STATUS_VALUES = frozenset(
    {
        GEOREF_STATUS_FULL,
        GEOREF_STATUS_TRANSFORM_ONLY,
        GEOREF_STATUS_CRS_ONLY,
        GEOREF_STATUS_NONE,
        GEOREF_STATUS_ROTATED_DROPPED,
    }
)
"""Every value that `attrs["georef_status"]` can have."""

# Version of the contract.
CONTRACT = 5
NO_GEOREF = "_xrspatial_no_georef"
# A smaller rotation counts as a rounding error.
NO_ROTATION = 1e-9

TYPES = dict(
    zip(
        ("BYTE", "ASCII", "SHORT", "LONG", "RATIONAL", "SBYTE", "UNDEFINED", "SSHORT", "SLONG", "SRATIONAL", "FLOAT"),
        range(1, 12),
    ),
    DOUBLE=12,
    IFD=13,
    LONG8=16,
    SLONG8=17,
    IFD8=18,
)
STATISTICS = "STATISTICS_"
ROLES = ("SCALE", "OFFSET", "UNITTYPE", "DESCRIPTION")
UNITS = {1: "none", 2: "inch", 3: "centimeter"}
# Tags that the writer creates; all others are kept in `extra_tags`.
WRITER_TAGS = frozenset(
    {
        *(254, 256, 257, 258, 259, 262, 273, 274, 277, 278, 279, 282, 283, 284, 296, 317, 330),
        *(322, 323, 324, 325, 339, 33550, 33922, 34264, 34735, 34736, 34737, 42112, 42113),
    }
)
DESCRIPTION, COLOR_MAP, EXTRA_SAMPLES = 270, 320, 338
X_RESOLUTION, Y_RESOLUTION, RESOLUTION_UNIT = 282, 283, 296
PIXEL_SCALE, TRANSFORMATION, GDAL_METADATA, GDAL_NODATA = 33550, 34264, 42112, 42113
MODEL_TYPE, RASTER_TYPE, GEOGRAPHIC_TYPE, PROJECTED_TYPE = 1024, 1025, 2048, 3072


class Facts:
    """Metadata of a file."""

    def __init__(self, dataset: Dataset) -> None:
        self.name = dataset.name
        self.metadata = dataset.metadata()
        self.dtype = np.dtype(dataset.dtype)
        self.described = dataset.describe(tags=True)

    @cached_property
    def tags(self) -> dict[int, dict[str, Any]]:
        """Tags of the first image, by number."""
        image = next((ifd["index"] for ifd in self.described["ifds"] if ifd["kind"] == "image"), 0)
        found: dict[int, dict[str, Any]] = {}
        for tag in self.described["tags_raw"]:
            if tag["ifd"] == image:
                if tag["tag"] in found:
                    raise DuplicateIFDTagError(f"{self.name}: directory {image} has tag {tag['tag']} twice")
                found[tag["tag"]] = tag
        return found

    def value(self, tag: int) -> Any:
        return self.tags[tag]["value"] if tag in self.tags else None

    @property
    def rotated(self) -> bool:
        transform = self.metadata["transform"]
        return transform is not None and (abs(transform[1]) > NO_ROTATION or abs(transform[3]) > NO_ROTATION)

    @property
    def point(self) -> bool:
        return bool(self.geokeys.get(RASTER_TYPE) == 2)

    @cached_property
    def geokeys(self) -> dict[int, Any]:
        return {key["id"]: key["value"] for key in self.described["geokeys"]}

    @property
    def orientation(self) -> int:
        return int(self.described["orientation"] or 1)

    @property
    def white_is_zero(self) -> bool:
        """Whether zero is white; xarray-spatial inverts such samples."""
        return self.metadata["photometric"] == "white" and len(self.metadata["bands"]) == 1

    @cached_property
    def nodata(self) -> int | float | None:
        """Nodata value, as the file states it."""
        for band in self.metadata["bands"]:
            if band["nodata"] is not None:
                return band["nodata"]
        return number(self.value(GDAL_NODATA))

    @property
    def maskable(self) -> bool:
        """Whether a sample can have the nodata value."""
        if self.nodata is None:
            return False
        if self.dtype.kind not in "iu":
            return True
        limits = np.iinfo(self.dtype)
        return whole(self.nodata) and limits.min <= int(self.nodata) <= limits.max

    @cached_property
    def gdal_metadata(self) -> dict[Any, str] | None:
        """GDAL's metadata items by name, or by (name, band from 0); None where the file has none."""
        text = self.value(GDAL_METADATA)
        if not isinstance(text, str):
            return None
        found: dict[Any, str] = {}
        for item in parsed(text) or ():
            name, sample = item.get("name", ""), item.get("sample")
            # GDAL escapes text twice.
            found[name if sample is None else (name, int(sample))] = unescape(item.text or "")
        return found

    # ------------------------------------------------------------------------------------------------------ checks

    def check(self, permissions: Permissions) -> None:
        """Raises for what the caller does not permit, and for metadata that contradict themselves."""
        if self.rotated and not permissions.rotated:
            _, b, _, d, _, _ = self.metadata["transform"]
            raise RotatedTransformError(
                f"{self.name}: the grid is rotated or sheared (b={b}, d={d}): give allow_rotated=True to read its "
                "pixels, or use swath.open_geotiff, which keeps the rotation"
            )
        self._check_size()
        self._check_geokeys()
        nodata = self.nodata
        if nodata is not None and self.dtype.kind in "iu" and not whole(nodata) and not permissions.invalid_nodata:
            raise InvalidIntegerNodataError(
                f"{self.name}: GDAL_NODATA is {nodata}, a {'fractional' if math.isfinite(nodata) else 'non-finite'} "
                f"number that no sample of {self.dtype} can be: give allow_invalid_nodata=True to read without masking"
            )
        if not permissions.unparseable_crs:
            self._check_crs()

    def _check_size(self) -> None:
        scale, matrix = self.value(PIXEL_SCALE), self.value(TRANSFORMATION)
        sizes = None
        if isinstance(matrix, list) and len(matrix) == 16 and not (matrix[1] or matrix[4]):
            sizes = (matrix[0], matrix[5])
        elif isinstance(scale, list) and len(scale) >= 2:
            sizes = (scale[0], scale[1])
        for name, size in zip(("width", "height"), sizes or ()):
            size = number(size)
            if size is None or not math.isfinite(size) or size == 0:
                raise DegeneratePixelSizeError(f"{self.name}: pixel {name} is {size}, from which no coordinates follow")

    def _check_geokeys(self) -> None:
        model, geographic, projected = (self.geokeys.get(key) for key in (MODEL_TYPE, GEOGRAPHIC_TYPE, PROJECTED_TYPE))
        if model == 1 and projected is None and geographic is not None:
            raise InconsistentGeoKeysError(
                f"{self.name}: ModelTypeGeoKey says projected, and there is a GeographicTypeGeoKey ({geographic}) and "
                "no ProjectedCSTypeGeoKey"
            )
        if model == 2 and projected not in (None, 0):
            raise InconsistentGeoKeysError(
                f"{self.name}: ModelTypeGeoKey says geographic, and there is a ProjectedCSTypeGeoKey ({projected})"
            )

    def _check_crs(self) -> None:
        crs = self.metadata["crs"]
        if crs and crs["wkt"] and not crs["epsg"]:
            try:
                import pyproj
            except ImportError:
                return
            try:
                pyproj.CRS.from_user_input(crs["wkt"])
            except pyproj.exceptions.CRSError as error:
                raise UnparseableCRSError(
                    f"{self.name}: the CRS {crs['wkt'][:80]!r} is not understood ({error}): give "
                    "allow_unparseable_crs=True to keep its text"
                ) from error

    def scaling(self, band: int | None) -> tuple[float, float]:
        """Returns scale and offset of a band, or of all bands."""
        text = self.value(GDAL_METADATA)
        if isinstance(text, str) and "<!DOCTYPE" not in text and parsed(text) is None:
            raise MalformedScaleOffsetError(
                f"{self.name}: GDAL_METADATA is malformed XML, so unpack=True cannot know the scale and offset"
            )
        scale, offset = (self._scaling(name, band, neutral) for name, neutral in (("SCALE", 1.0), ("OFFSET", 0.0)))
        if scale == 0.0 or not math.isfinite(scale):
            raise MalformedScaleOffsetError(f"{self.name}: SCALE is {scale}: unpack=True cannot honour it")
        if not math.isfinite(offset):
            raise MalformedScaleOffsetError(f"{self.name}: OFFSET is {offset}: unpack=True cannot honour it")
        return scale, offset

    def _scaling(self, name: str, band: int | None, neutral: float) -> float:
        items = self.gdal_metadata or {}
        values = {key[1]: text for key, text in items.items() if isinstance(key, tuple) and key[0] == name}
        if name in items:
            values = {0: items[name]}
        elif band is not None:
            values = {band: values[band]} if band in values else {}
        found = set()
        for text in values.values():
            value = number(text)
            if value is None:
                raise MalformedScaleOffsetError(
                    f"{self.name}: {name} is {text!r}, which is not a number: unpack=True cannot honour it"
                )
            found.add(float(value))
        if len(found) > 1:
            raise MixedBandMetadataError(
                f"{self.name}: unpack=True, and the bands have distinct per-band {name} values {sorted(found)}: select "
                "one with band=, or drop unpack"
            )
        return found.pop() if found else neutral

    # -------------------------------------------------------------------------------------------------- attributes

    def attributes(self, transform: Transform) -> dict[str, Any]:
        """Returns the attributes of a read whose grid has this transform, without those of nodata."""
        metadata = self.metadata
        attributes: dict[str, Any] = {"_xrspatial_geotiff_contract": CONTRACT}
        crs = None if self.rotated else metadata["crs"]
        has_crs = bool(crs and (crs["epsg"] or crs["wkt"]))
        has_transform = metadata["transform"] is not None and not self.rotated
        attributes["georef_status"] = (
            GEOREF_STATUS_ROTATED_DROPPED
            if self.rotated
            else {
                (True, True): GEOREF_STATUS_FULL,
                (True, False): GEOREF_STATUS_TRANSFORM_ONLY,
                (False, True): GEOREF_STATUS_CRS_ONLY,
                (False, False): GEOREF_STATUS_NONE,
            }[has_transform, has_crs]
        )
        if crs and has_crs:
            if crs["epsg"]:
                attributes["crs"] = crs["epsg"]
            attributes["crs_wkt"] = wkt(crs["epsg"], crs["wkt"])
        if self.point:
            attributes["raster_type"] = "point"
        if has_transform:
            attributes["transform"] = self.own_transform(transform)
        else:
            attributes[NO_GEOREF] = True
        if self.rotated:
            attributes["rotated_affine"] = tuple(metadata["transform"])
        attributes.update(self._kept())
        return attributes

    def own_transform(self, transform: Transform) -> Transform:
        """Returns xarray-spatial's transform: where pixels are points, its origin is the centre of the first one."""
        a, b, c, d, e, f = transform
        return (a, b, c + a / 2, d, e, f + e / 2) if self.point else (a, b, c, d, e, f)

    def _kept(self) -> dict[str, Any]:
        """Returns the tags and metadata that a write puts back into the file."""
        attributes: dict[str, Any] = {}
        if self.gdal_metadata is not None:
            attributes["gdal_metadata"] = self.gdal_metadata
            attributes["gdal_metadata_xml"] = self.value(GDAL_METADATA)
        extra = [entry for number, tag in self.tags.items() if number not in WRITER_TAGS and (entry := _entry(tag))]
        if extra:
            attributes["extra_tags"] = extra
        description = self.value(DESCRIPTION)
        if description is not None:
            attributes["image_description"] = str(description).rstrip("\0")
        samples = self.value(EXTRA_SAMPLES)
        if samples is not None:
            attributes["extra_samples"] = tuple(samples) if isinstance(samples, list) else (samples,)
        for name, tag in (("x_resolution", X_RESOLUTION), ("y_resolution", Y_RESOLUTION)):
            if self.value(tag) is not None:
                attributes[name] = self.value(tag)
        unit = self.value(RESOLUTION_UNIT)
        if unit is not None:
            attributes["resolution_unit"] = UNITS.get(unit, str(unit))
        colors = self.value(COLOR_MAP)
        if colors is not None:
            attributes["colormap"] = tuple(colors)
        return attributes


@lru_cache(maxsize=256)
def wkt(epsg: int | None, text: str) -> str:
    """Returns the WKT of a reference system; that of PROJ where it has a code, as in xarray-spatial."""
    try:
        import pyproj
    except ImportError:
        return text
    try:
        return str(pyproj.CRS.from_epsg(epsg).to_wkt()) if epsg else text
    except pyproj.exceptions.CRSError:
        return text


def inverted(samples: Any, dtype: np.dtype) -> Any:
    """Returns the samples of an image in which zero is white, inverted; `dtype` is that of the file."""
    if dtype.kind == "u":
        # Masking may have converted them to floats.
        return samples.dtype.type(np.iinfo(dtype).max) - samples
    if dtype.kind == "f":
        return -samples
    raise UnsupportedGeoTIFFFeatureError(
        f"signed-integer MinIsWhite samples ({dtype}) have no inverse: use swath.open_geotiff and swath.to_geotiff, "
        "which leave samples as they are, or an unsigned type"
    )


def number(text: Any) -> Any:
    """Returns the number in a text, as an int where it is one; None for other text."""
    return number_of(text) if isinstance(text, str) else text


def whole(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) or (math.isfinite(value) and float(value).is_integer())


def parsed(text: str) -> Any:
    """Returns the items of GDAL's metadata; None where the XML is malformed."""
    if "<!DOCTYPE" in text.upper():
        return []
    try:
        return ElementTree.fromstring(text).findall("Item")
    except ElementTree.ParseError:
        return None


def gdal_xml(items: dict[Any, Any]) -> str:
    """Returns GDAL's metadata as XML, from values by name, or by (name, band from 0)."""
    lines = []
    for key, value in items.items():
        name, sample = key if isinstance(key, tuple) else (key, None)
        attributes = "" if sample is None else f' sample="{int(sample)}"'
        if name in ROLES:
            # Without a role, GDAL takes the item for plain text.
            attributes += f' role="{name.lower()}"'
        # GDAL escapes text twice.
        lines.append(f"  <Item name={quoteattr(str(name))}{attributes}>{escape(escape(str(value)))}</Item>\n")
    return f"<GDALMetadata>\n{''.join(lines)}</GDALMetadata>\n"


def without_statistics(text: str) -> str:
    """Returns GDAL's metadata without statistics, which describe the pixels that were read; other text unchanged."""
    if STATISTICS not in text or "<!DOCTYPE" in text.upper():
        return text
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError:
        return text
    stale = [item for item in root.findall("Item") if item.get("name", "").startswith(STATISTICS)]
    for item in stale:
        root.remove(item)
    return ElementTree.tostring(root, encoding="unicode") + "\n" if stale else text


def _entry(tag: dict[str, Any]) -> tuple[int, int, int, Any] | None:
    """Returns a tag as (number, type, count, value); None where its value is not completely known."""
    value, note = tag["value"], tag["note"]
    if note == "bytes in hexadecimal":
        value = bytes.fromhex(value)
    elif note is not None or value is None or tag["type"] not in TYPES:
        return None
    if is_pointer(tag["tag"], TYPES[tag["type"]]):
        return None
    return tag["tag"], TYPES[tag["type"]], tag["count"], tuple(value) if isinstance(value, list) else value
