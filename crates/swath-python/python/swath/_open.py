"""`open_geotiff`: a GeoTIFF as an xarray.DataArray, in NumPy, dask or CuPy."""

from __future__ import annotations

import inspect
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from . import _device
from . import _georef as georef
from ._checks import check_band, one_of, truth, truth_or_none, whole
from ._dataset import Dataset
from ._errors import DeviceError, DeviceWarning, UsageError, warn
from ._file_mask import ENCODING as MASK
from ._file_mask import FileMask
from ._lazy import Reader, device_fault, facts_of, limits, promoted, version_of
from ._rasterio_keywords import from_rasterio
from ._sample_conversion import type_of
from ._side_files import category_names
from ._source import resolve
from ._window import to_box, to_pixels
from ._xrspatial_keywords import Permissions, pop_masked

if TYPE_CHECKING:
    import pandas
    import xarray

_NO_XARRAY = "open_geotiff returns xarray objects, and xarray cannot be imported: `pip install swath[xarray]`"


def open_geotiff(
    source: Any,
    *,
    chunks: int | tuple[Any, ...] | dict[str, Any] | str | bool | None = None,
    window: Any = None,
    bbox: Any = None,
    bbox_crs: Any = None,
    band: int | Sequence[int] | None = None,
    overview_level: int | None = None,
    masked: bool = False,
    mask_and_scale: bool = False,
    unpack: bool | None = None,
    device: Literal["cpu", "cuda", "gpu", "auto"] | None = None,
    gpu: bool | None = None,
    dtype: Any = None,
    parse_coordinates: bool | None = True,
    default_name: str | None = None,
    name: str | None = None,
    max_pixels: int | None = None,
    on_gpu_failure: Literal["raise", "strict", "auto"] = "raise",
    max_device_memory: int | None = None,
    trust_input: bool = False,
    threads: int | None = None,
    storage_options: Mapping[str, Any] | None = None,
    ifd: int | None = None,
    lazy: bool | None = None,
    cache: bool | None = None,
    band_as_variable: bool = False,
    variable: Any = None,
    group: Any = None,
    lock: Any = None,  # noqa: ARG001 - see the docstring
    decode_times: bool = True,  # noqa: ARG001
    decode_timedelta: bool | None = None,  # noqa: ARG001
    **open_kwargs: Any,
) -> Any:
    """Open a GeoTIFF or COG as a DataArray, as `rioxarray.open_rasterio` does.

    Dimensions are `(band, y, x)`, `x` and `y` are pixel centres, the CRS and the transform are in the coordinate
    `spatial_ref`. In a file with several pages, the first image is opened unless `ifd` names another page.

    Parameters
    ----------
    source
        A path, an address (`https://`, `s3://`, `gs://`, `az://`), bytes, a binary file, an fsspec file, an obstore
        `(store, path)`, a `swath.Dataset`, or a rasterio dataset. GDAL's names (`/vsicurl/`, `/vsis3/`, `/vsigs/`,
        `/vsiaz/`, `GTIFF_DIR:2:a.tif`) work as well.
    chunks
        None reads now, or where the array is `lazy`, when it is used. Anything else returns a dask array: an int, a
        tuple or a dict of sizes; `"auto"` or True for sizes of dask's choice that hold complete blocks of the file;
        `{}` for the file's blocks; -1 for one chunk.
    window
        The part to read, in pixels of the level: a `swath.Window`, rasterio's `Window`, a pair of slices or ranges
        (rows first), or `(row_start, column_start, row_stop, column_stop)`.
    bbox
        The part to read as `(west, south, east, north)` in the file's CRS: the pixels that the box touches. A geometry
        of shapely, or anything else with `bounds`, works as well.
    bbox_crs
        The CRS of `bbox` where it is not the file's; needs pyproj.
    band
        One band returns `(y, x)`, a list of bands `(band, y, x)`. Bands count from 1 as in GDAL, rasterio and the
        `band` coordinate (xrspatial counts from 0).
    overview_level
        0 is the first overview, as in rasterio (in xrspatial 0 is the full image).
    masked
        Whether nodata, and pixels that the file's mask hides, become NaN; integers become floats. The nodata value is
        then only in `encoding["_FillValue"]`: no sample has it any more.
    mask_and_scale, unpack
        `masked`, followed by the scales and offsets of the bands.
    device, gpu
        `"cuda"` (or `"gpu"`, or `gpu=True`) returns CuPy arrays; `"auto"` does so where there is a GPU,
        and warns where there is none.
    dtype
        Type of the result. Integers outside its range raise an error, for a dask array when the block is read. Floats
        are not converted to integers.
    parse_coordinates
        False leaves out the coordinates `x` and `y`.
    default_name, name
        Name of the DataArray.
    max_pixels
        Largest number of samples (bands x rows x columns) of a read; a larger read raises before it allocates memory.
    on_gpu_failure
        `"raise"` (or `"strict"`) raises a `swath.DeviceError`; `"auto"` continues on the CPU, with a warning.
    max_device_memory
        Bytes of GPU memory that a read may use.
    trust_input
        Whether NVIDIA's nvCOMP may decode LZ4 on the GPU, which a damaged file can crash.
    threads
        Number of threads of a read; None means all cores, or one for each chunk of a dask array.
    storage_options
        Settings for the server or store of an address, as for `swath.Dataset`.
    ifd
        The directory (page) to open, counted from 0; the first image by default. `swath.info` lists them.
    lazy
        True reads samples when they are used, without dask, as `rioxarray.open_rasterio` does. `isel` and `sel` select
        without reading, `await array.load_async()` does not block the event loop, and a pickle holds only samples that
        were read already.
    cache
        For a lazy array: True keeps samples once they are read (the default, as in xarray), False reads them anew each
        time. Either value makes the array lazy.
    band_as_variable
        True returns a Dataset with a variable `band_1`, `band_2`... for each band.
    lock, decode_times, decode_timedelta
        Keywords of rioxarray, without effect: reads need no lock, and a raster has no times to decode.
    variable, group
        Keywords of rioxarray for other formats: a GeoTIFF has neither. `ifd` opens another page.
    **open_kwargs
        Keywords of `rasterio.open` and GDAL: `driver`, `sharing`, `OVERVIEW_LEVEL`, `NUM_THREADS`; and of
        xarray-spatial: `allow_rotated`, `allow_unparseable_crs` and `allow_invalid_nodata` (False rejects such files),
        `stable_only`, `max_cloud_bytes`, `mask_nodata` and others, which
        https://swath-raster.github.io/swath/xarray-spatial.html lists.

    Returns
    -------
    xarray.DataArray, or with `band_as_variable` xarray.Dataset

    Examples
    --------
    >>> import swath, numpy, io
    >>> file = io.BytesIO()
    >>> _ = swath.to_geotiff(numpy.arange(12, dtype="int16").reshape(3, 4), file)
    >>> swath.open_geotiff(file).shape
    (1, 3, 4)
    >>> swath.open_geotiff(file, band=1, window=(0, 0, 2, 2)).values.tolist()
    [[0, 1], [4, 5]]
    """
    flags = {"masked": masked, "mask_and_scale": mask_and_scale, "band_as_variable": band_as_variable}
    for keyword, flag in {**flags, "trust_input": trust_input}.items():
        truth(keyword, flag)
    choices = {"unpack": unpack, "gpu": gpu, "lazy": lazy, "cache": cache, "parse_coordinates": parse_coordinates}
    for keyword, choice in choices.items():
        truth_or_none(keyword, choice)
    for keyword, label in (("default_name", default_name), ("name", name)):
        if not isinstance(label, Hashable):
            raise UsageError(f"{keyword}={label!r}: give text")
    permissions = Permissions.pop_from(open_kwargs, source)
    masked = pop_masked(open_kwargs, masked)
    if open_kwargs:
        aliases = from_rasterio(open_kwargs, inspect.signature(open_geotiff).parameters)
        overview_level = _one_of("overview_level", overview_level, "OVERVIEW_LEVEL", aliases.get("overview_level"))
        threads = _one_of("threads", threads, "NUM_THREADS", aliases.get("threads"))
    loading, as_one, by_band = _loading(chunks, lazy, cache)
    if band_as_variable and band is not None:
        raise UsageError("band_as_variable opens every band: leave out band")
    for keyword, value in (("variable", variable), ("group", group)):
        if value is not None:
            raise UsageError(f"{keyword}={value!r}: a GeoTIFF has no variables or groups; ifd= opens another page")
    view = View.open(
        source,
        ifd=ifd,
        window=window,
        bbox=bbox,
        bbox_crs=bbox_crs,
        band=band,
        overview_level=overview_level,
        masked=masked,
        scaled=_one_of("mask_and_scale", mask_and_scale, "unpack", unpack),
        dtype=dtype,
        max_pixels=max_pixels,
        max_device_memory=max_device_memory,
        trust_input=trust_input,
        threads=threads if threads is not None or chunks is None else 1,
        storage_options=storage_options,
    )
    permissions.check(view.reader.opened())
    if view.metadata["nodata_problem"] is not None and not permissions.invalid_nodata_asked:
        warn(f"{view.name}: {view.metadata['nodata_problem']}")
    view = view.on_device(_device_of(device, gpu), on_gpu_failure)
    coordinates = parse_coordinates is not False
    if band_as_variable:
        return by_band(view, loading, coordinates)
    return as_one(view, loading, _one_of("default_name", default_name, "name", name), coordinates)


def _loading(chunks: Any, lazy: bool | None, cache: bool | None) -> tuple[Any, Any, Any]:
    """Returns when samples are read, and the functions that make xarray objects; both need xarray."""
    try:
        import xarray  # noqa: F401

        from . import _xarray_variables
    except ImportError as error:
        raise ImportError(f"{_NO_XARRAY} ({error})") from error
    return _xarray_variables.Loading.of(chunks, lazy, cache), _xarray_variables.as_one, _xarray_variables.by_band


def _one_of(name: str, value: Any, alias: str, other: Any) -> Any:
    """Returns the value of a keyword that has two names; raises where both are given and differ."""
    if other is None:
        return value
    if value is not None and value is not False and value != other:
        raise UsageError(f"{alias} is another name for {name}: give one of them")
    return other


def _device_of(device: Any, gpu: bool | None) -> str | None:
    name = _device.device_name(device)
    if gpu and name not in (None, "cuda"):
        raise UsageError(f'gpu=True means device="cuda", and device is {device!r}: give one of them')
    return "cuda" if gpu else name


def _result_type(dtype: Any, natural: np.dtype, file_dtype: np.dtype, nodata: Sequence[Any]) -> np.dtype:
    """Returns the type that the caller requests, if samples of type `natural` can be converted to it."""
    requested = type_of(dtype)
    if requested.kind not in "biufc":
        raise UsageError(f"dtype={dtype!r}: samples are numbers; give a numeric type")
    if natural.kind in "fc" and requested.kind in "biu":
        raise UsageError(f"{natural} would lose its fractions as {requested}: read it, then use .astype('{requested}')")
    if natural.kind == "c" and requested.kind != "c":
        raise UsageError(f"{natural} would lose its imaginary part as {requested}: read it, then use .real")
    if requested.kind in "biu":
        # A nodata value that no sample of the file can have does not matter.
        (low, high), (first, last) = limits(requested), limits(file_dtype)
        lost = [value for value in nodata if value is not None and first <= value <= last and not low <= value <= high]
        if lost:
            raise UsageError(
                f"dtype={requested} holds {low} to {high}, and nodata is {lost[0]}: give a type that holds it, or read "
                "with masked=True"
            )
    return requested


def _bands(band: int | Sequence[int] | None, count: int, name: str) -> tuple[tuple[int, ...], bool]:
    """Returns the bands, counted from 1, and whether the result has no band dimension."""
    check_band(band, count)
    if band is None:
        return tuple(range(1, count + 1)), False
    flat = isinstance(band, int | np.integer)
    bands = (int(band),) if isinstance(band, int | np.integer) else tuple(int(each) for each in band)
    wrong = [each for each in bands if not 1 <= each <= count]
    if not bands:
        raise UsageError(f"{name}: band={band!r}: give a number from 1 to {count}, or a list of them")
    if wrong:
        raise UsageError(f"{name}: there is no band {wrong[0]}; the image has bands 1 to {count}")
    return bands, flat


def _scalar(value: np.int64, attributes: Mapping[str, Any] | None = None) -> xarray.Variable:
    """Returns a scalar variable. Without the fast path xarray imports dask, to check for a dask array."""
    import xarray

    return xarray.Variable((), np.asarray(value), attributes, fastpath=True)


@dataclass(frozen=True, eq=False)
class View:
    """The part of a file that a caller opens: a reader of its samples, and the metadata to attach to them."""

    reader: Reader
    metadata: dict[str, Any]
    name: str
    block: tuple[int, int]
    # Transform of the level, and its size relative to the image.
    transform: georef.Transform
    scale: tuple[float, float]
    file_dtype: np.dtype
    masked: bool
    scaled: bool

    @classmethod
    def open(
        cls,
        source: Any,
        *,
        ifd: int | None = None,
        window: Any = None,
        bbox: Any = None,
        bbox_crs: Any = None,
        band: int | Sequence[int] | None = None,
        overview_level: int | None = None,
        masked: bool = False,
        scaled: bool = False,
        dtype: Any = None,
        max_pixels: int | None = None,
        max_device_memory: int | None = None,
        trust_input: bool = False,
        threads: int | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> View:
        options: dict[str, Any] = {}
        if max_pixels is not None:
            options["max_pixels"] = whole("max_pixels", max_pixels)
        if max_device_memory is not None:
            options["max_device_memory"] = whole("max_device_memory", max_device_memory)
        if trust_input:
            options["trust_input"] = True
        opened = isinstance(source, Dataset)
        resolved = source._source if opened and not storage_options else resolve(source, storage_options)
        if ifd is not None:
            options["ifd"] = ifd
        overview_level = whole("overview_level", overview_level)
        handle = source if opened and not options else Dataset(resolved, **options)
        if handle._options["ifd"] is not None:
            # A reader that opens the source again must open the same page.
            options["ifd"] = handle._options["ifd"]
        metadata = handle.metadata()
        full = level = (handle.width, handle.height)
        block = handle.block_shape
        if overview_level is not None:
            overviews = handle.overview_sizes
            if not 0 <= overview_level < len(overviews):
                raise UsageError(
                    f"{handle.name}: overview_level={overview_level}: there is no such overview: "
                    + (f"levels count from 0 to {len(overviews) - 1}" if overviews else "the file has none")
                )
            level, block = overviews[overview_level], handle.block_shape_of(overview_level)
        if window is not None and bbox is not None:
            raise UsageError("window and bbox both say what to read: give one of them")
        transform = georef.level_transform(metadata["transform"], full, level)
        box = to_box(bbox, bbox_crs, metadata["crs"])
        if box is not None:
            place = georef.window_of_box(transform if metadata["transform"] else None, *level, box)
        else:
            place = (0, 0, *level) if window is None else to_pixels(window, *level)
        bands, flat = _bands(band, handle.count, handle.name)
        masked = masked or scaled
        file_dtype = np.dtype(handle.dtype)
        natural = promoted(file_dtype) if masked else file_dtype
        chosen = [metadata["bands"][each - 1] for each in bands]
        requested = natural
        if dtype is not None:
            requested = _result_type(dtype, natural, file_dtype, [each["nodata"] for each in chosen])
        flags = [metadata["mask_flags"][each - 1] for each in bands]
        scales, offsets = georef.band_scaling(chosen)
        reader = Reader(
            source=resolved,
            options=options,
            handle=handle,
            bands=bands,
            flat=flat,
            window=place,
            overview=overview_level,
            facts=facts_of(handle, overview_level),
            version=version_of(handle) if isinstance(resolved.native, str) else None,
            dtype=requested,
            threads=whole("threads", threads),
            nodata=tuple(each["nodata"] if "nodata" in flag else None for each, flag in zip(chosen, flags))
            if masked
            else None,
            by_mask=tuple("per_dataset" in flag for flag in flags) if masked else None,
            scales=scales if scaled else None,
            offsets=offsets if scaled else None,
        )
        scale = (level[0] / full[0], level[1] / full[1])
        return cls(reader, metadata, handle.name, block, transform, scale, file_dtype, masked, scaled)

    def on_device(self, device: Any, failure: str) -> View:
        """Returns the view with samples on the GPU if the caller asks for it, or on the CPU if it may fall back."""
        one_of("on_gpu_failure", failure, ("raise", "strict", "auto"))
        device = _device.device_name(device)
        if device in (None, "cpu"):
            return self
        fault = device_fault()
        if fault is None:
            fall_back = failure == "auto" or device == "auto"
            return replace(self, reader=replace(self.reader, on_device=True, fall_back=fall_back))
        if device == "cuda" and failure != "auto":
            raise DeviceError(f"{self.name}: {fault}")
        warn(f"{self.name}: decoded by the CPU, not by the GPU: {fault}", DeviceWarning)
        return self

    def of_band(self, band: int) -> View:
        """Returns a view of one band without its dimension, and with the metadata of that band only."""
        reader = self.reader
        at = reader.bands.index(band)

        def one(values: tuple[Any, ...] | None) -> tuple[Any, ...] | None:
            return None if values is None else (values[at],)

        reader = replace(
            reader,
            bands=(band,),
            flat=True,
            nodata=one(reader.nodata),
            by_mask=one(reader.by_mask),
            scales=one(reader.scales),
            offsets=one(reader.offsets),
        )
        return replace(self, reader=reader, metadata={**self.metadata, "tags": {}})

    def labelled(self, data: Any, name: str | None, parse_coordinates: bool, cut: bool) -> xarray.DataArray:
        """Returns the array with its coordinates, attributes and encoding."""
        import xarray
        from xarray.indexes import PandasIndex

        # Registers `.swath` with xarray.
        from . import accessor  # noqa: F401

        reader, metadata = self.reader, self.metadata
        attributes, encoding = self.attributes()
        encoding["source"] = self.name
        encoding["rasterio_dtype"] = reader.opened().stored_dtype
        if not reader.flat and reader.bands != tuple(range(1, len(reader.bands) + 1)):
            # `to_geotiff` needs to know which bands the per-band lists in the attributes describe.
            encoding["bands"] = reader.bands
        # `to_geotiff` compares these with the array, to find what was edited by hand and whether pixels were selected.
        encoding["as_read"] = {
            "size": (reader.window[3], reader.window[2]),
            **{key: attributes[key] for key in ("crs", "nodata") if key in attributes},
        }
        encoding.update(georef.kept_tags(metadata, reader.bands))
        encoding.update(georef.kept_colors(metadata, reader.bands))
        if metadata["mask_flags"][reader.bands[0] - 1] == ["per_dataset"]:
            encoding[MASK] = FileMask(reader, self.window_transform(), self.masked, metadata["soft_mask"])
        if not cut:
            encoding["preferred_chunks"] = self.preferred_chunks()
        variables: dict[Any, Any] = {}
        indexes: dict[Any, Any] = {}

        def add(axis: str, line: pandas.Index) -> None:
            # A view, since callers may rename theirs; pandas still recognises it as identical.
            indexes[axis] = index = PandasIndex(line.view(), axis, line.dtype, fastpath=True)
            variables.update(index.create_variables())

        if reader.flat:
            variables["band"] = _scalar(np.int64(reader.bands[0]))
        else:
            add("band", _band_line(reader.bands))
        if parse_coordinates and not metadata["gcps"] and not metadata["rpcs"]:
            if georef.is_rectilinear(self.transform):
                # Indexes are cached, but not large ones.
                large = sum(reader.window[2:]) > _LARGEST_CACHED_GRID
                made = _grid_lines.__wrapped__ if large else _grid_lines
                for axis, line in made(self.transform, reader.window).items():
                    add(axis, line)
            else:
                for axis, centres in georef.coordinates(self.transform, reader.window).items():
                    variables[axis] = xarray.Variable(("y", "x"), centres)
        mapping = georef.grid_mapping(metadata, self.window_transform(), self.scale, *reader.window[:2])
        variables[georef.GRID_MAPPING] = _scalar(np.int64(0), mapping)
        dims = ("y", "x") if reader.flat else ("band", "y", "x")
        # The indexes are known to fit: checking them again takes three times as long as the rest of opening.
        variable = xarray.Variable(dims, data, attributes, encoding, fastpath=True)
        return xarray.DataArray(variable, variables, name=name, indexes=indexes, fastpath=True)

    def window_transform(self) -> georef.Transform:
        return georef.window_transform(self.transform, *self.reader.window[:2])

    def preferred_chunks(self) -> dict[str, int]:
        """Returns the file's blocks; one that holds all bands is decoded once only if they are in one chunk."""
        rows, columns = self.block
        chunks = {"y": rows, "x": columns}
        if not self.reader.flat:
            chunks["band"] = len(self.reader.bands) if self.metadata["interleave"] == "pixel" else 1
        return chunks

    def attributes(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Returns attributes and encoding; what reading applied to the samples is in the encoding."""
        metadata, reader = self.metadata, self.reader
        bands = [metadata["bands"][band - 1] for band in reader.bands]
        attributes = georef.tag_attributes({**metadata["tags"].get("", {}), **bands[0]["tags"].get("", {})})
        attributes.update(georef.band_attributes(bands))
        nodata = attributes.get("_FillValue")
        if nodata is not None:
            # Floats do not hold every 64-bit integer, so the value keeps the file's type.
            wide = self.masked and self.file_dtype.kind in "iu" and self.file_dtype.itemsize == 8
            attributes["_FillValue"] = _as_type(nodata, self.file_dtype if wide else reader.dtype)
        encoding: dict[str, Any] = {"grid_mapping": georef.GRID_MAPPING}
        if self.masked:
            encoding["dtype"] = str(self.file_dtype)
        applied = ("scale_factor", "scales", "add_offset", "offsets") if self.scaled else ()
        for key in (*applied, "_FillValue") if self.masked else ():
            if key in attributes:
                encoding[key] = attributes.pop(key)
        attributes.update(georef.grid_attributes(metadata))
        if nodata is not None and not self.masked:
            attributes["nodata"] = nodata
        names = category_names(metadata["side_files"], reader.bands)
        if any(names):
            attributes["category_names"] = names[0] if len(names) == 1 else [each or [] for each in names]
        if bands[0]["color"] == "palette":
            attributes["colormap"] = georef.colormap(metadata["palette"])
        return attributes, encoding


# Number of rows plus columns up to which the index of a grid is cached: 32 indexes take 32 MiB.
_LARGEST_CACHED_GRID = 1 << 17


# Files of a series share a grid: with one index for all of them, xarray compares it by identity.
@lru_cache(maxsize=32)
def _grid_lines(transform: georef.Transform, window: georef.Window) -> dict[str, pandas.Index]:
    return {axis: _line(centres, axis) for axis, centres in georef.coordinates(transform, window).items()}


@lru_cache(maxsize=32)
def _band_line(bands: tuple[int, ...]) -> pandas.Index:
    return _line(np.array(bands, "int64"), "band")


def _line(values: np.ndarray, name: str) -> pandas.Index:
    """Returns an index over read-only values, since later opens share it."""
    import pandas

    values.flags.writeable = False
    return pandas.Index(values, name=name)


def _as_type(value: float, dtype: np.dtype) -> Any:
    """Returns a number as a scalar of a type, or unchanged where the type cannot hold it."""
    if dtype.kind in "iu" and not np.iinfo(dtype).min <= value <= np.iinfo(dtype).max:
        return value
    return dtype.type(value)
