"""`open_geotiff` in xarray-spatial's conventions."""

from __future__ import annotations

import os
import warnings
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import _open
from .._checks import truth
from .._dataset import Dataset
from .._errors import DeniedError, LimitError, UnsupportedError, UsageError
from .._file_mask import ENCODING as MASK
from .._gdal_paths import from_gdal
from .._georef import GRID_MAPPING, Transform
from .._sample_conversion import type_of
from .._xrspatial_keywords import Permissions, check_stable
from ._contract import Facts, inverted
from ._errors import (
    GeoTIFFFallbackWarning,
    NoSuchBandError,
    PixelSafetyLimitError,
    UnsafeURLError,
    UnsupportedGeoTIFFFeatureError,
    VRTUnsupportedError,
    WrongTypeError,
)

if TYPE_CHECKING:
    import xarray

# Default of keywords for which None has a meaning.
UNSET: Any = object()
# Environment variable that lets xarray-spatial, and so this module, open addresses of a private network.
PRIVATE_HOSTS = "XRSPATIAL_GEOTIFF_ALLOW_PRIVATE_HOSTS"


def open_geotiff(
    source: Any,
    *,
    dtype: Any = None,
    window: tuple[int, int, int, int] | None = None,
    bbox: tuple[float, float, float, float] | None = None,
    overview_level: int | None = None,
    band: int | None = None,
    default_name: str | None = None,
    name: str | None = UNSET,
    chunks: int | tuple[int, int] | None = None,
    gpu: bool = False,
    max_pixels: int | None = None,
    max_cloud_bytes: int | None = UNSET,
    on_gpu_failure: Any = UNSET,
    missing_sources: str = UNSET,
    allow_rotated: bool = False,
    allow_unparseable_crs: bool = False,
    allow_invalid_nodata: bool = False,
    stable_only: bool = False,
    allow_experimental_codecs: bool = False,
    allow_internal_only_jpeg: bool = False,  # noqa: ARG001 - swath decodes any JPEG
    band_nodata: str | None = None,
    masked: bool = False,
    mask_nodata: bool = UNSET,
    unpack: bool = False,
    mask_and_scale: bool = UNSET,
    parse_coordinates: bool = True,
    lock: Any = None,
    cache: bool = True,
    storage_options: Mapping[str, Any] | None = None,
) -> xarray.DataArray:
    """Open a GeoTIFF or COG as `xrspatial.geotiff.open_geotiff` does.

    Bands count from 0, `overview_level=0` is the full image, dimensions are `(y, x)` or `(y, x, band)`, the name is the
    file's without its extension, and attributes follow xarray-spatial's contract.

    Parameters
    ----------
    source
        As for `swath.open_geotiff`.
    dtype
        Type of the result. Integers that it does not hold raise an error.
    window : (row_start, col_start, row_stop, col_stop), optional
        The part to read, in pixels.
    bbox : (west, south, east, north), optional
        The part to read, in the file's CRS.
    overview_level : int, optional
        0 is the full image, 1 the first overview.
    band : int, optional
        One band, counted from 0.
    default_name, name
        Name of the DataArray; by default that of the file without its ending. `name` is deprecated.
    chunks : int or (int, int), optional
        Rows and columns of the chunks of a dask array.
    gpu : bool
        Whether to return a CuPy array.
    on_gpu_failure : "raise", "strict" or "auto"
        With `gpu=True`: whether to raise an error where the GPU fails, or to go on with the CPU ("auto").
    max_pixels : int, optional
        Largest number of samples of a read.
    max_cloud_bytes : int, optional
        Largest object in a store that may be opened.
    masked, mask_nodata : bool
        Whether nodata becomes NaN; integers become float64. `mask_nodata` is deprecated.
    unpack, mask_and_scale : bool
        `masked`, then the scale and offset, which all bands must share. `mask_and_scale` is deprecated.
    allow_rotated : bool
        Whether to read the pixels of a rotated grid, without their place.
    allow_unparseable_crs : bool
        Whether to keep the text of a CRS that PROJ does not understand.
    allow_invalid_nodata : bool
        Whether to read integers whose nodata value is not an integer, unmasked.
    stable_only : bool
        Whether to open local GeoTIFFs only.
    allow_experimental_codecs, allow_internal_only_jpeg : bool
        Without effect: swath reads every codec. The first one also lifts `stable_only`.
    missing_sources, band_nodata
        For VRT, which swath does not read: an error otherwise.
    parse_coordinates : bool
        False leaves out the coordinates `x` and `y`.
    lock, cache
        Without effect, and with a warning: reads need no lock, and no sample is read twice.
    storage_options : mapping, optional
        Settings for the server or store of an address, as for `swath.Dataset`.
    """
    flags = {"masked": masked, "mask_nodata": mask_nodata, "unpack": unpack, "mask_and_scale": mask_and_scale}
    flags |= {
        "allow_rotated": allow_rotated,
        "allow_unparseable_crs": allow_unparseable_crs,
        "stable_only": stable_only,
    }
    flags |= {"allow_invalid_nodata": allow_invalid_nodata, "parse_coordinates": parse_coordinates}
    for keyword, flag in flags.items():
        if flag is not UNSET:
            truth(keyword, flag)
    for keyword, label in (("default_name", default_name), ("name", name)):
        if not isinstance(label, Hashable):
            raise WrongTypeError(f"{keyword}={label!r}: give text")
    masked = _renamed("masked", masked, "mask_nodata", mask_nodata, default=False)
    unpack = _renamed("unpack", unpack, "mask_and_scale", mask_and_scale, default=False)
    default_name = _renamed("default_name", default_name, "name", name, default=None)
    if lock is not None or cache is not True:
        _warn("lock and cache have no effect: reads need no lock, and no sample is read twice")
    path = os.fspath(source) if isinstance(source, (str, os.PathLike)) else None
    _check_keywords(
        path, gpu, chunks, overview_level, band, on_gpu_failure, missing_sources, band_nodata, max_cloud_bytes
    )
    if stable_only and not allow_experimental_codecs:
        check_stable(source)
    if path is not None and path.lower().endswith(".vrt"):
        raise VRTUnsupportedError(f"{path}: swath does not read VRT: open its sources, or convert it to a GeoTIFF")

    with _own_errors():
        dataset = source if isinstance(source, Dataset) else _opened(source, path, storage_options)
    if band is not None and band >= dataset.count:
        raise NoSuchBandError(f"{dataset.name}: band={band} out of range: bands count from 0 to {dataset.count - 1}")
    if overview_level is not None and overview_level > len(dataset.overview_sizes):
        raise UsageError(
            f"{dataset.name}: overview_level={overview_level} is out of range: levels count from 0, the full image, to "
            f"{len(dataset.overview_sizes)}"
        )
    facts = Facts(dataset)
    limit = None if max_cloud_bytes is UNSET else max_cloud_bytes
    Permissions(allow_rotated, allow_unparseable_crs, allow_invalid_nodata, max_cloud_bytes=limit).check(dataset, facts)
    if facts.orientation != 1 and (window is not None or bbox is not None):
        raise UsageError(
            f"{dataset.name}: the orientation of the image is {facts.orientation}, so a window of it is ambiguous: "
            "read all of it, then select"
        )
    read = Read(facts, masked=masked or unpack, unpack=unpack, band=band, dtype=dtype, lazy=chunks is not None)
    with _own_errors():
        array = _open.open_geotiff(
            dataset,
            chunks=_chunks(chunks),
            window=window,
            bbox=bbox,
            band=None if band is None else band + 1,
            overview_level=overview_level - 1 if overview_level else None,
            masked=read.masks,
            dtype=read.read_as,
            gpu=bool(gpu),
            on_gpu_failure="raise" if on_gpu_failure is UNSET else on_gpu_failure,
            max_pixels=max_pixels,
            default_name=_stem(path) if default_name is None else default_name,
            parse_coordinates=parse_coordinates,
            allow_invalid_nodata=True,
        )
    return read.finished(array, window, parse_coordinates=parse_coordinates)


class Read:
    """What happens to samples after they are read, and the attributes that describe it."""

    def __init__(self, facts: Facts, *, masked: bool, unpack: bool, band: int | None, dtype: Any, lazy: bool) -> None:
        self.facts = facts
        self.masked = masked
        self.unpack = unpack
        self.lazy = lazy
        self.dtype = None if dtype is None else type_of(dtype)
        self.scale, self.offset = facts.scaling(band) if unpack else (1.0, 0.0)
        # Integers stay integers where no sample can have the nodata value.
        self.masks = masked and (facts.dtype.kind in "fc" or facts.maskable)

    @property
    def scaled(self) -> bool:
        return (self.scale, self.offset) != (1.0, 0.0)

    @property
    def read_as(self) -> np.dtype | None:
        """The type to read: masking makes integers float64 here, and scaled samples are cast last."""
        widened: np.dtype | None = None
        if self.facts.dtype.kind in "iu" and (self.masks or self.scaled):
            widened = np.dtype("float64")
        if self.facts.dtype == np.dtype("float16"):
            widened = np.dtype("float32")
        if self.dtype is None or (self.scaled and self.dtype.kind in "fc"):
            return widened
        if widened is not None and self.dtype.kind in "iu":
            raise UsageError(
                f"{widened} would lose its fractions and NaN as dtype={self.dtype}: cannot cast float to int"
            )
        return self.dtype

    def finished(self, array: Any, window: Any, *, parse_coordinates: bool) -> xarray.DataArray:
        """Returns the array as xarray-spatial returns it."""
        facts = self.facts
        if "band" in array.dims:
            one = array.sizes["band"] == 1
            array = array.isel(band=0, drop=True) if one else array.transpose("y", "x", "band")
        own = {"band": np.arange(array.sizes["band"])} if "band" in array.dims else {}
        c, a, b, f, d, e = map(float, array.coords[GRID_MAPPING].attrs["GeoTransform"].split())
        array, transform = self._upright(array, (a, b, c, d, e, f))
        if parse_coordinates and (facts.rotated or facts.metadata["transform"] is None):
            top, left = (0, 0) if window is None else window[:2]
            own |= {
                "y": np.arange(top, top + array.sizes["y"], dtype="int64"),
                "x": np.arange(left, left + array.sizes["x"], dtype="int64"),
            }
        kept = [name for name in array.coords if name in ("y", "x") and name not in own]
        array = array.drop_vars([name for name in array.coords if name not in kept]).assign_coords(own)
        present = None if self.lazy or facts.nodata is None else self._has_nodata(array)
        if facts.white_is_zero:
            array = array.copy(data=inverted(array.data, facts.dtype))
        if self.scaled:
            # Python numbers keep the type of the samples.
            array = array.copy(data=array.data * self.scale + self.offset)
            if self.dtype is not None:
                array = array.astype(self.dtype)
        names = array.attrs.get("category_names")
        array.attrs = self.attributes(transform, present)
        if names is not None:
            array.attrs["category_names"] = names
        # The attributes hold all that a write needs, except for complex integers, which xarray-spatial does not have,
        # and the file's mask, unless the image was turned.
        array.encoding = kept_encoding(array.encoding)
        if facts.orientation != 1:
            array.encoding.pop(MASK, None)
        return array

    def _upright(self, array: Any, transform: Transform) -> tuple[Any, Transform]:
        """Returns the image turned upright, as its orientation says: first row on top, first column on the left."""
        turn = self.facts.orientation
        a, b, c, d, e, f = transform
        if turn in (5, 6, 7, 8):
            if self.facts.metadata["transform"] is not None:
                raise UnsupportedGeoTIFFFeatureError(
                    f"{self.facts.name}: orientation {turn} transposes the image, which its transform does not say: "
                    "read it with swath.open_geotiff, which returns pixels as they are stored"
                )
            array = array.drop_vars(["y", "x"], errors="ignore").rename(y="x", x="y")
            array = array.transpose("y", "x", *(name for name in array.dims if name not in ("y", "x")))
        if turn in (2, 3, 6, 7):
            a, c = -a, c + a * array.sizes["x"]
            array = array.isel(x=slice(None, None, -1))
        if turn in (3, 4, 7, 8):
            e, f = -e, f + e * array.sizes["y"]
            array = array.isel(y=slice(None, None, -1))
        return array, (a, b, c, d, e, f)

    def attributes(self, transform: Transform, present: bool | None) -> dict[str, Any]:
        facts = self.facts
        attributes = facts.attributes(transform)
        if self.scaled:
            attributes.update(scale_factor=self.scale, add_offset=self.offset)
        floats = facts.dtype.kind == "f" or self.masks or self.scaled
        if self.unpack and floats and (facts.dtype.kind != "f" or facts.nodata is not None or self.scaled):
            attributes["mask_and_scale_dtype"] = facts.dtype.name
        if facts.nodata is None:
            return attributes
        attributes["nodata"] = facts.nodata
        attributes["masked_nodata"] = bool(self.masked and floats)
        if present is not None:
            attributes["nodata_pixels_present"] = present
        if self.dtype is not None:
            attributes["nodata_dtype_cast"] = self.dtype.name
        return attributes

    def _has_nodata(self, array: Any) -> bool:
        facts = self.facts
        if not facts.maskable:
            return False
        # NaN is the only value that is not equal to itself.
        if self.masks or facts.nodata != facts.nodata:
            return bool(np.isnan(array.data).any())
        return bool((array.data == array.dtype.type(facts.nodata)).any())


def kept_encoding(encoding: Mapping[Any, Any]) -> dict[Any, Any]:
    """Returns the part of an encoding that no attribute repeats: the type of complex integers, and the file's mask."""
    stored = str(encoding.get("rasterio_dtype"))
    names = [MASK, *(["rasterio_dtype"] if stored.startswith("complex_int") else [])]
    return {name: encoding[name] for name in names if name in encoding}


def _stem(path: str | None) -> str | None:
    return None if path is None else PurePath(path).stem


def _chunks(chunks: int | tuple[int, int] | None) -> dict[str, int] | None:
    if chunks is None:
        return None
    rows, columns = chunks if isinstance(chunks, tuple) else (chunks, chunks)
    return {"y": int(rows), "x": int(columns)}


def _opened(source: Any, path: str | None, storage_options: Mapping[str, Any] | None) -> Dataset:
    if storage_options is not None and not isinstance(storage_options, Mapping):
        raise UsageError(f"storage_options={storage_options!r}: give a mapping")
    options = dict(storage_options or {})
    if path is not None and _is_web_address(path):
        # As in xarray-spatial: a program that opens addresses given by users must not reach servers behind a firewall.
        options.setdefault("public_only", os.environ.get(PRIVATE_HOSTS, "").lower() not in ("1", "true", "yes"))
    return Dataset(source, storage_options=options or None)


def _is_web_address(path: str) -> bool:
    """Whether a path is on a web server, also by GDAL's prefixes and through fsspec's chains."""
    return any(link.lower().startswith(("http://", "https://")) for link in from_gdal(path)[0].split("::"))


@contextmanager
def _own_errors() -> Iterator[None]:
    """Turns swath's errors into those of xarray-spatial."""
    try:
        yield
    except LimitError as error:
        if "max_pixels" in str(error):
            raise PixelSafetyLimitError(str(error)) from error
        raise
    except UnsupportedError as error:
        raise UnsupportedGeoTIFFFeatureError(str(error)) from error
    except DeniedError as error:
        if "not a public address" in str(error) or "public_only" in str(error):
            raise UnsafeURLError(
                f"{error}: set {PRIVATE_HOSTS}=1, or give storage_options={{'public_only': False}}"
            ) from error
        raise


def _renamed(name: str, value: Any, old: str, given: Any, *, default: Any) -> Any:
    """Returns the value of a keyword that also has an older name."""
    if given is UNSET:
        return value
    if value is not default:
        raise WrongTypeError(f"{old} is the older name of {name}: give either {name!r} or {old!r}, not both")
    warnings.warn(f"{old} is deprecated: give {name}", DeprecationWarning, stacklevel=3)
    return given


def _warn(message: str) -> None:
    warnings.warn(message, GeoTIFFFallbackWarning, stacklevel=3)


def is_whole(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, (bool, np.bool_))


def _check_keywords(
    path: str | None,
    gpu: Any,
    chunks: Any,
    overview_level: Any,
    band: Any,
    on_gpu_failure: Any,
    missing_sources: Any,
    band_nodata: Any,
    max_cloud_bytes: Any,
) -> None:
    """Raises for keywords of the wrong type, and for those that would have no effect."""
    if not isinstance(gpu, (bool, np.bool_)):
        raise WrongTypeError(f"gpu must be a bool, got {type(gpu).__name__}: {gpu!r}")
    if overview_level is not None and not is_whole(overview_level):
        raise WrongTypeError(
            f"overview_level must be an int or None, got {type(overview_level).__name__}: {overview_level!r}"
        )
    if band is not None and not is_whole(band):
        raise WrongTypeError(f"band must be a non-negative int or None, got {type(band).__name__}: {band!r}")
    if overview_level is not None and overview_level < 0:
        raise UsageError(f"overview_level={overview_level} must be >= 0: level 0 is the full image")
    if band is not None and band < 0:
        raise NoSuchBandError(f"band={band} out of range: bands count from 0")
    if on_gpu_failure is not UNSET and not gpu:
        raise UsageError("on_gpu_failure only applies when gpu=True: give both, or drop it")
    vrt = path is not None and path.lower().endswith(".vrt")
    for name, given in (
        ("missing_sources", missing_sources is not UNSET),
        ("band_nodata", band_nodata is not None),
    ):
        if given and not vrt:
            raise UsageError(f"{name} only applies to VRT sources: drop it")
    if max_cloud_bytes is not UNSET and (gpu or chunks is not None):
        other = "gpu=True" if gpu else "chunks=..."
        raise UsageError(f"max_cloud_bytes is not supported when {other}: drop one of them")
    sizes = chunks if isinstance(chunks, tuple) else (chunks,)
    if chunks is not None and not all(is_whole(size) and size > 0 for size in sizes):
        raise UsageError(f"chunks must be a positive int or a (row, col) tuple of positive ints, got chunks={chunks!r}")
    if isinstance(chunks, tuple) and len(chunks) != 2:
        raise UsageError(f"chunks: a tuple must have length 2 (row, col), got chunks={chunks!r}")
