"""`to_geotiff` in xarray-spatial's conventions."""

from __future__ import annotations

import os
from fractions import Fraction
from typing import Any
from xml.sax.saxutils import unescape

import numpy as np

from .. import _dataarray_grid, _metadata, _write
from .._checks import truth
from .._engine_options import is_pointer
from .._errors import UsageError, warn
from ._contract import (
    GDAL_METADATA,
    GDAL_NODATA,
    NO_GEOREF,
    NO_ROTATION,
    STATISTICS,
    TYPES,
    UNITS,
    WRITER_TAGS,
    gdal_xml,
    inverted,
    number,
    parsed,
    whole,
    without_statistics,
)
from ._errors import (
    ConflictingCRSError,
    ConflictingNodataError,
    InvalidCRSCodeError,
    NonUniformCoordsError,
    RotatedTransformError,
    UnparseableCRSError,
    WrongTypeError,
)
from ._read import is_whole, kept_encoding

# Codecs that have levels; xarray-spatial accepts a level for other codecs too, without effect.
WITH_LEVELS = ("deflate", "zstd", "lz4", "lzma", "lerc_deflate", "lerc_zstd")
# Tags that the engine writes by itself: ColorMap and ExtraSamples.
ENGINE_TAGS = (320, 338)
# Attributes about georeference and samples; xarray-spatial writes no other attributes.
SQUARE = "assume_square_pixels_for_degenerate_axis"
KEPT_NAMES = frozenset({"transform", "raster_type", "colormap", "band_tags", "category_names", NO_GEOREF, SQUARE})
PACKED_NAMES = KEPT_NAMES | {"mask_and_scale_dtype", "scale_factor", "add_offset"}
BAND_NAMES = ("band", "bands", "channel")
# Items of GDAL's metadata that describe a band: the option of `to_geotiff`, and the value of bands without one.
ROLES = {
    "SCALE": ("scales", 1.0),
    "OFFSET": ("offsets", 0.0),
    "UNITTYPE": ("band_units", None),
    "DESCRIPTION": ("band_descriptions", None),
}
Y_NAMES = ("y", "lat", "latitude", "row")
X_NAMES = ("x", "lon", "longitude", "col")


def to_geotiff(
    data: Any,
    path: Any,
    *,
    crs: int | str | None = None,
    nodata: float | None = None,
    compression: str = "zstd",
    compression_level: int | None = None,
    tiled: bool = True,
    tile_size: int = 256,
    predictor: bool | int = False,
    cog: bool = False,
    overview_levels: list[int] | None = None,
    overview_resampling: str = "mean",
    bigtiff: bool | None = None,
    gpu: bool | None = None,
    streaming_buffer_bytes: int = 256 << 20,
    max_z_error: float = 0.0,
    photometric: str | int = "auto",
    allow_internal_only_jpeg: bool = False,  # noqa: ARG001 - any reader decodes swath's JPEG
    allow_experimental_codecs: bool = False,  # noqa: ARG001 - any reader decodes swath's codecs
    allow_unparseable_crs: bool = False,
    drop_rotation: bool = False,
    pack: bool = False,
    color_ramp: str | bool | None = None,
    color_ramp_range: tuple[float, float] | None = None,
) -> Any:
    """Write a raster as `xrspatial.geotiff.to_geotiff` does.

    Parameters
    ----------
    data : DataArray or array
        Axes are (y, x), (y, x, band) or (band, y, x). Attributes follow xarray-spatial's contract.
    path : str, path or file object
        Where to write.
    crs : int, str or object with to_wkt(), optional
        EPSG code, WKT or PROJ text; by default that of the attributes.
    nodata : float, optional
        Value of missing pixels; by default that of the attributes. A value that no sample can have is written as it is.
    compression, compression_level, max_z_error, photometric, bigtiff, cog, overview_levels, overview_resampling
        As for `swath.to_geotiff`. A level for a codec without levels has no effect, as in xarray-spatial.
    tiled, tile_size
        Whether the image is stored in tiles, and their size: a multiple of 16.
    predictor : bool or int
        False for none, True or 2 for horizontal, 3 for floats.
    gpu : bool, optional
        True encodes on the GPU, False on the CPU; by default where the samples are.
    streaming_buffer_bytes : int
        Bytes of dask chunks held at a time.
    allow_internal_only_jpeg, allow_experimental_codecs : bool
        Without effect: files of swath are standard ones that GDAL reads.
    allow_unparseable_crs : bool
        Whether to write no CRS where its text is not understood, instead of an error.
    drop_rotation : bool
        Whether to write a rotated raster without its place.
    pack : bool
        Whether to undo the scale and offset that `unpack=True` applied.
    color_ramp, color_ramp_range
        Colours for QGIS, as for `swath.to_geotiff`; ignored where they cannot be stored.

    Returns
    -------
    str or file object
        `path`.
    """
    target = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(target, str) and not hasattr(target, "write"):
        raise WrongTypeError(
            f"path must be a str or a binary file-like with a write() method, got {type(path).__name__}"
        )
    for keyword, flag in {"tiled": tiled, "pack": pack, "cog": cog, "drop_rotation": drop_rotation}.items():
        truth(keyword, flag)
    if not isinstance(predictor, (bool, np.bool_, int, np.integer)):
        raise WrongTypeError(f"predictor must be a bool, or one of 1, 2 and 3, got {predictor!r}")
    _check_keywords(gpu, nodata, compression, compression_level, tile_size, tiled or cog)
    options: dict[str, Any] = {"crs": crs, "nodata": nodata}
    if hasattr(data, "dims"):
        _check_axes(data.dims)
        if pack:
            _check_packing(data.attrs)
        data, options = _translated(data, options, drop_rotation=drop_rotation, pack=pack, cog=cog)
    else:
        if pack:
            raise UsageError("pack=True needs a DataArray of open_geotiff(unpack=True), and this is a bare array")
        _check_axes(("y", "x", "band")[: np.ndim(data)] if np.ndim(data) < 4 else (None,) * np.ndim(data))
        if np.ndim(data) == 3:
            options["band_axis"] = 2
    kind = np.dtype(getattr(data, "dtype", "float64"))
    if kind in (np.dtype("float16"), np.dtype("bool")):
        kind = np.dtype("float32" if kind.kind == "f" else "uint8")
        data = data.astype(kind)
    if not isinstance(photometric, (str, int, np.integer)):
        raise WrongTypeError(f"photometric must be a str or an int, got {photometric!r}")
    if photometric == "rgba" and _count(data) < 4:
        raise UsageError(f"photometric='rgba' needs at least 4 bands, and there are {_count(data)}")
    if photometric in ("miniswhite", 0) and not isinstance(photometric, bool) and _count(data) == 1:
        data, options["nodata"] = inverted(data, kind), _inverted_value(options["nodata"], kind)
    elif photometric == "auto" and not getattr(data, "attrs", {}).get("colormap"):
        photometric = "minisblack"
    _keep_outside(options, kind, pack)
    if options["crs"] is not None:
        options["crs"] = _crs(options["crs"], allow_unparseable_crs)
    if tiled:
        options["tile_size"] = tile_size
    # xarray-spatial ignores a colour ramp that cannot be stored.
    categories = getattr(data, "attrs", {}).get("category_names") or options.get("category_names")
    ramped = isinstance(target, str) and _count(data) == 1 and not pack and not categories
    _write.to_geotiff(
        data,
        target,
        compression=compression,
        compression_level=compression_level if compression.lower() in WITH_LEVELS else None,
        tiled=tiled,
        predictor=_predictor(predictor, compression),
        cog=cog,
        overview_levels=overview_levels,
        overview_resampling=overview_resampling,
        bigtiff=bigtiff,
        gpu=None if gpu is None else bool(gpu),
        streaming_buffer_bytes=streaming_buffer_bytes,
        max_z_error=max_z_error,
        photometric=photometric,
        pack=pack,
        color_ramp=color_ramp if ramped else None,
        color_ramp_range=color_ramp_range if ramped else None,
        **options,
    )
    return target


def _predictor(predictor: bool | int, compression: str) -> Any:
    if compression.lower() in ("none", "packbits"):
        return 1
    return 2 if predictor is True else predictor or 1


def _count(data: Any) -> int:
    """Returns the number of bands."""
    if np.ndim(data) < 3:
        return 1
    dims = getattr(data, "dims", ("y", "x", "band"))
    return int(data.shape[0] if dims[0] in BAND_NAMES else data.shape[-1])


def _inverted_value(nodata: Any, kind: np.dtype) -> Any:
    if nodata is None or nodata != nodata:
        return nodata
    if kind.kind == "f":
        return -float(nodata)
    limits = np.iinfo(kind)
    return limits.max - int(nodata) if whole(nodata) and limits.min <= int(nodata) <= limits.max else nodata


def _check_packing(attrs: dict[str, Any]) -> None:
    scale, offset = (attrs.get(name) for name in ("scale_factor", "add_offset"))
    for name, value in (("scale_factor", scale), ("add_offset", offset)):
        if value is not None and (not np.all(np.isfinite(value)) or (name == "scale_factor" and not np.all(value))):
            raise UsageError(f"attrs[{name!r}]={value!r}: pack=True cannot undo it")


def _keep_outside(options: dict[str, Any], kind: np.dtype, pack: bool) -> None:
    """Moves a nodata value that no sample can have to a tag of its own, so that it is still written."""
    nodata = options["nodata"]
    if nodata is None or pack or kind.kind not in "iu":
        return
    limits = np.iinfo(kind)
    if not whole(nodata) or not limits.min <= int(nodata) <= limits.max:
        options["nodata"] = None
        options.setdefault("extra_tags", []).append((GDAL_NODATA, TYPES["ASCII"], str(nodata)))


def _check_keywords(gpu: Any, nodata: Any, compression: Any, level: Any, tile_size: Any, tiled: bool) -> None:
    if gpu is not None and not isinstance(gpu, (bool, np.bool_)):
        raise WrongTypeError(f"gpu must be a bool or None, got {type(gpu).__name__}: {gpu!r}")
    if nodata is not None and (isinstance(nodata, (bool, np.bool_, str, bytes)) or not np.isscalar(nodata)):
        raise WrongTypeError(f"nodata must be numeric, got {nodata!r}")
    if not isinstance(compression, str):
        raise WrongTypeError(f"compression must be a str, got {type(compression).__name__}")
    if level is not None and not is_whole(level):
        raise WrongTypeError(f"compression_level must be an int or None, got {type(level).__name__}: {level!r}")
    if tiled and (not is_whole(tile_size) or tile_size <= 0 or tile_size % 16):
        raise UsageError(f"tile_size must be a positive multiple of 16, got tile_size={tile_size!r}")


def _check_axes(dims: tuple[Any, ...]) -> None:
    if len(dims) not in (2, 3):
        raise UsageError(f"Expected a 2D or 3D array, got {len(dims)}D")
    if len(dims) != 3:
        return
    kinds = tuple("b" if d in BAND_NAMES else "y" if d in Y_NAMES else "x" if d in X_NAMES else "?" for d in dims)
    if kinds in (("b", "y", "x"), ("y", "x", "b")):
        return
    other = [d for d, kind in zip(dims, kinds) if kind == "?"]
    raise UsageError(
        f"ambiguous dims {tuple(dims)!r}: give (band, y, x) or (y, x, band); rename {other!r} to 'band', or select one "
        "entry of it"
    )


def _translated(
    data: Any, options: dict[str, Any], *, drop_rotation: bool, pack: bool, cog: bool
) -> tuple[Any, dict[str, Any]]:
    """Returns a DataArray and options of swath's `to_geotiff` for attributes of xarray-spatial."""
    attrs = dict(data.attrs)
    options = dict(options)
    if options["nodata"] is None:
        options["nodata"] = _nodata(attrs)
    if options["crs"] is None:
        options["crs"] = _crs_of(attrs)
    if attrs.get("masked_nodata") is False:
        options["nan_to_nodata"] = False
    if drop_rotation:
        attrs.pop("rotated_affine", None)
    transform = _metadata.affine(attrs.get("transform"))
    for name, numbers in (("rotated_affine", attrs.get("rotated_affine")), ("transform", transform)):
        if numbers is not None and (abs(numbers[1]) > NO_ROTATION or abs(numbers[3]) > NO_ROTATION):
            raise RotatedTransformError(
                f"attrs[{name!r}] is rotated or sheared: give drop_rotation=True to write the raster without its "
                "georeference, or use swath.open_geotiff and swath.to_geotiff, which keep rotation and CRS"
            )
    if attrs.get("raster_type") == "point" and transform is not None:
        a, b, c, d, e, f = transform
        attrs["transform"] = (a, b, c - a / 2, d, e, f - e / 2)
    options["extra_tags"] = _tags(attrs)
    if pack and attrs.get("masked_nodata") and not isinstance(options["nodata"], np.integer):
        # No attribute says that these floats were integers.
        attrs.setdefault("mask_and_scale_dtype", np.dtype(data.dtype).name)
    if pack or cog:
        # Packing and overviews add metadata items of their own.
        _spread_metadata(attrs, options, _count(data), pack=pack)
    elif (text := _metadata_text(attrs)) is not None:
        # The text is written unchanged, and a file has only one: statistics would need another.
        options["extra_tags"].append((GDAL_METADATA, TYPES["ASCII"], text))
        options["statistics"] = False
    attrs = {name: value for name, value in attrs.items() if name in (PACKED_NAMES if pack else KEPT_NAMES)}
    data = data.copy(deep=False)
    data.attrs = attrs
    # What rioxarray or swath left there repeats the attributes, except for complex integers and the file's mask.
    data.encoding = kept_encoding(data.encoding)
    data = _placed(data, options)
    # In xarray-spatial the name belongs to the array, not to a band.
    data.name = None
    return data, options


def _placed(data: Any, options: dict[str, Any]) -> Any:
    """Returns the array with coordinates and a transform that swath reads as xarray-spatial does."""
    if data.attrs.pop(NO_GEOREF, False) and data.attrs.get("transform") is None:
        return data.drop_vars([name for name in data.dims if name in data.coords])
    y_name, x_name = _dataarray_grid.spatial_dims(data)
    axes = [name for name in (y_name, x_name) if name in data.coords and data.coords[name].ndim == 1]
    counted = [np.array_equal(data.coords[name].values, np.arange(data.sizes[name])) for name in axes]
    if data.attrs.get("transform") is not None and counted and all(counted):
        # Coordinates that count pixels are not a georeference.
        return data.drop_vars(axes)
    if data.attrs.pop(SQUARE, False) is True and data.attrs.get("transform") is None:
        data.attrs["transform"] = _square(data, y_name, x_name)
    try:
        if _dataarray_grid.found_transform(data, y_name, x_name) is None and len(axes) == 2:
            # The coordinates are the identity grid, which is written here as xarray-spatial does.
            options["transform"] = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0)
    except UsageError as error:
        raise NonUniformCoordsError(f"{error}") from error
    return data


def _square(data: Any, y_name: str, x_name: str) -> Any:
    """Returns the transform where one axis has a single coordinate, assuming square pixels."""
    y, x = (data.coords[name].values.astype(float) for name in (y_name, x_name))
    across = float(x[1] - x[0]) if len(x) > 1 else abs(float(y[1] - y[0])) if len(y) > 1 else None
    down = float(y[1] - y[0]) if len(y) > 1 else None if across is None else -abs(across)
    if across is None or down is None:
        return None
    return (across, 0.0, float(x[0]) - across / 2, 0.0, down, float(y[0]) - down / 2)


def _nodata(attrs: dict[str, Any]) -> Any:
    """Returns the nodata value in the attributes; that of xarray-spatial takes precedence."""
    values = attrs.get("nodatavals")
    listed = [] if values is None else list(values) if isinstance(values, (tuple, list, np.ndarray)) else [values]
    numbers = {float(v) for v in listed if isinstance(v, (int, float, np.number)) and v == v}
    if len(numbers) > 1:
        raise ConflictingNodataError(
            f"attrs['nodatavals']={values!r} names distinct per-band values, a file has one: give nodata="
        )
    for name in ("nodata", "_FillValue"):
        value = attrs.get(name)
        if value is not None and not isinstance(value, (int, float, np.number)):
            raise UsageError(f"attrs[{name!r}]={value!r} is not numeric: give nodata=, or drop it")
    nodata = attrs.get("nodata")
    if nodata is not None:
        if numbers and float(nodata) not in numbers:
            raise ConflictingNodataError(
                f"attrs['nodata']={nodata!r} and attrs['nodatavals']={values!r} differ: give nodata=, or drop one"
            )
        return nodata
    if numbers:
        return next(v for v in listed if isinstance(v, (int, float, np.number)) and v == v)
    fill = attrs.get("_FillValue")
    return None if fill is None or fill != fill else fill


def _crs_of(attrs: dict[str, Any]) -> Any:
    crs, wkt = attrs.get("crs"), attrs.get("crs_wkt")
    if crs is not None and isinstance(wkt, str) and wkt:
        _check_same(crs, wkt)
    return wkt if crs is None else crs


def _check_same(crs: Any, wkt: str) -> None:
    try:
        import pyproj
    except ImportError:
        return
    try:
        one, other = pyproj.CRS.from_user_input(crs), pyproj.CRS.from_user_input(wkt)
    except pyproj.exceptions.CRSError:
        return
    if not one.equals(other, ignore_axis_order=True):
        raise ConflictingCRSError(
            f"attrs['crs'] ({one.name}) and attrs['crs_wkt'] ({other.name}) differ: give crs=, or drop one of them"
        )


def _crs(crs: Any, unparseable: bool) -> Any:
    if isinstance(crs, (bool, np.bool_)) or not (is_whole(crs) or isinstance(crs, str) or hasattr(crs, "to_wkt")):
        raise WrongTypeError(f"crs must be an EPSG code, a WKT or PROJ text, or have to_wkt(), got {crs!r}")
    try:
        return _coded(crs) or _metadata.crs_text(int(crs) if is_whole(crs) else crs)
    except UsageError as error:
        if is_whole(crs):
            raise InvalidCRSCodeError(f"crs={crs!r}: no reference system has this EPSG code ({error})") from error
        if unparseable:
            return None
        raise UnparseableCRSError(
            f"crs={crs!r} is not understood: give an EPSG code or WKT, or allow_unparseable_crs=True to write none"
        ) from error


def _coded(crs: Any) -> str | None:
    """Returns the EPSG code of a PROJ text, where it has one."""
    if not isinstance(crs, str) or not crs.lstrip().startswith("+"):
        return None
    try:
        import pyproj

        code = pyproj.CRS.from_user_input(crs).to_epsg()
    except (ImportError, pyproj.exceptions.CRSError):
        return None
    return None if code is None else f"EPSG:{code}"


def _tags(attrs: dict[str, Any]) -> list[tuple[int, int, Any]]:
    """Returns the tags to write in addition to the engine's."""
    found: dict[int, tuple[int, int, Any]] = {}
    for tag in attrs.get("extra_tags") or ():
        number, kind, value = int(tag[0]), int(tag[1]), tag[-1]
        if is_pointer(number, kind):
            warn(
                f"attrs['extra_tags']: tag {number} is left out: its value is the offset of a directory in the file "
                "that it was read from"
            )
            continue
        if number not in WRITER_TAGS and number not in ENGINE_TAGS:
            found[number] = (number, kind, _rationals(value) if kind in (5, 10) else value)
    if attrs.get("image_description") is not None:
        found.setdefault(270, (270, TYPES["ASCII"], str(attrs["image_description"])))
    for number, name in ((282, "x_resolution"), (283, "y_resolution")):
        if attrs.get(name) is not None:
            found[number] = (number, TYPES["RATIONAL"], _rationals(attrs[name]))
    unit = {name: code for code, name in UNITS.items()}.get(str(attrs.get("resolution_unit")))
    if unit is not None:
        found[296] = (296, TYPES["SHORT"], unit)
    return list(found.values())


def _rationals(value: Any) -> bytes:
    values = value if isinstance(value, (tuple, list)) else [value]
    if isinstance(value, tuple) and len(value) == 2 and all(is_whole(part) for part in value):
        pairs = [(int(value[0]), int(value[1]))]
    else:
        pairs = [Fraction(float(each)).limit_denominator(1 << 20).as_integer_ratio() for each in values]
    return b"".join(int(part).to_bytes(4, "little") for pair in pairs for part in pair)


def _metadata_text(attrs: dict[str, Any]) -> str | None:
    """Returns GDAL's metadata as XML, without the statistics of the pixels that were read."""
    if isinstance(attrs.get("gdal_metadata_xml"), str):
        return without_statistics(str(attrs["gdal_metadata_xml"]))
    items = attrs.get("gdal_metadata")
    kept = {key: value for key, value in items.items() if not _is_statistic(key)} if isinstance(items, dict) else {}
    return gdal_xml(kept) if kept else None


def _is_statistic(key: Any) -> bool:
    return str(key[0] if isinstance(key, tuple) else key).startswith(STATISTICS)


def _spread_metadata(attrs: dict[str, Any], options: dict[str, Any], count: int, *, pack: bool) -> None:
    """Turns GDAL's metadata into options: tags of the file and its bands, scales, offsets, units and descriptions."""
    tags: dict[str, Any] = {}
    bands: list[dict[str, str]] = [{} for _ in range(count)]
    of_bands: dict[str, list[Any]] = {}
    for item in parsed(_metadata_text(attrs) or "") or ():
        name, text = item.get("name", ""), unescape(item.text or "")
        sample, role = item.get("sample"), ROLES.get(item.get("name", ""))
        if pack and name in ("SCALE", "OFFSET"):
            # Packing writes its own scales and offsets.
            continue
        if sample is None:
            domain = item.get("domain")
            (tags.setdefault(domain, {}) if domain else tags)[name] = text
        elif 0 <= int(sample) < count:
            if role is None:
                bands[int(sample)][name] = text
            else:
                option, neutral = role
                of_bands.setdefault(option, [neutral] * count)[int(sample)] = (
                    number(text) if neutral is not None else text
                )
    options.update(of_bands)
    if tags:
        options["tags"] = tags
    attrs.pop("band_tags", None)
    if any(bands):
        attrs["band_tags"] = bands
