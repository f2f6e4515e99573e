"""Writes rasters as GeoTIFF or COG: arrays of any library, xarray's objects, and dask's larger than memory."""

from __future__ import annotations

import atexit
import inspect
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from . import _beside, _metadata, _profile, _progress, _raster, _stream, _swath
from ._beside import Beside
from ._convert import type_name
from ._dataset import Dataset, forget
from ._errors import DeviceWarning, FormatError, UnsupportedError, UsageError, warn
from ._gdal import target_path
from ._metadata import Found
from ._options import check_data, check_target, whole
from ._raster import Raster
from ._remote import address_of, guard_of, refusal, unguarded
from ._words import chosen

# Bytes that the engine may hold, and bytes of chunks of dask beside it, where the caller says nothing.
MEMORY = 256 << 20
BUFFER = 256 << 20
# What the engine gets of `max_memory` where chunks need some too: half, or more where half is too little for it.
SHARES = (1 / 2, 3 / 4, 7 / 8)
URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")

# Threads that are cut off when the interpreter ends drop nothing: uploads of theirs would leave their parts behind.
atexit.register(_swath.abandon_unfinished)


def to_geotiff(
    data: Any,
    path: Any,
    *,
    crs: Any = None,
    nodata: float | None = None,
    transform: Any = None,
    compression: str | None = "zstd",
    compression_level: int | None = None,
    tiled: bool = True,
    tile_size: int | tuple[int, int] = 512,
    predictor: str | int | bool = "auto",
    cog: bool = False,
    overview_levels: int | Sequence[int] | str | None = None,
    overview_resampling: str | None = "average",
    bigtiff: bool | str | None = None,
    device: Literal["cpu", "cuda", "gpu", "auto"] | None = None,
    gpu: bool | None = None,
    streaming_buffer_bytes: int | None = None,
    max_memory: int | None = None,
    max_device_memory: int | None = None,
    progress: Any = None,
    compute: bool = True,
    max_z_error: float = 0.0,
    quality: int | None = None,
    lossless: bool | None = None,
    photometric: str | int = "auto",
    interleave: str = "pixel",
    alpha: str | bool | None = None,
    nbits: int | None = None,
    sparse: bool = False,
    statistics: bool | None = None,
    dtype: Any = None,
    tags: Mapping[str, Any] | None = None,
    band_descriptions: Sequence[str | None] | None = None,
    band_units: Sequence[str | None] | None = None,
    scales: Sequence[float] | None = None,
    offsets: Sequence[float] | None = None,
    colormap: Any = None,
    colorinterp: Sequence[Any] | None = None,
    category_names: Sequence[Any] | None = None,
    color_ramp: str | bool | None = None,
    color_ramp_range: tuple[float, float] | None = None,
    mask: Any = None,
    gcps: Any = None,
    rpcs: Any = None,
    area_or_point: str | None = None,
    extra_tags: Sequence[tuple[Any, ...]] | None = None,
    dims: Sequence[str] | None = None,
    band_axis: int | None = None,
    pack: bool | None = None,
    nan_to_nodata: bool = True,
    recalc_transform: bool = True,
    threads: int | None = None,
    on_gpu_failure: Literal["raise", "strict", "auto"] = "raise",
    scheduler: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    **profile: Any,
) -> Any:
    """Write a raster as a GeoTIFF or a Cloud Optimized GeoTIFF.

    The file appears under its name when it is whole; a write that fails or is interrupted leaves what was there. Dask
    arrays are streamed: rows of chunks are computed, written and let go, every task of the graph runs once, and the
    file is the same, byte for byte, as if the array had been computed first. Where a `distributed.Client` is the
    scheduler, its workers compress.

    Parameters
    ----------
    data : DataArray, Dataset, or array
        NumPy, dask, CuPy, torch, or whatever has ``__array__``, a buffer, ``__dlpack__`` or
        ``__cuda_array_interface__``. Axes are (y, x), (band, y, x) or (y, x, band). Of a DataArray their names tell.
        A plain array of three axes has its bands first where the first axis is not longer than the last, and last
        where the last axis has at most 4 entries and the others have at least 16; of other shapes, `dims` or
        `band_axis` must tell. Several variables of a Dataset become bands. It is not changed.
    path : str, path, address, file object, fsspec URL or OpenFile, (obstore store, path), or None
        Where to write. An address in a store (``s3://``, ``gs://``, ``az://``) is written in parts, without a local
        copy, and appears there when it is whole. A BytesIO holds nothing but the file afterwards, whatever it held
        before, and stands at its end; other file objects get the bytes where they stand. None gives the file as bytes.
    crs : int, str or object with to_wkt(), optional
        EPSG code, "EPSG:32633", WKT, or a reference system of pyproj or rasterio. By default that of the DataArray.
    nodata : float, optional
        Value of missing pixels. By default that of the DataArray. Floats that are NaN are written as it, unless
        `nan_to_nodata` is False.
    transform : Affine or six numbers, optional
        Six numbers are (a, b, c, d, e, f), in Affine's order; what looks like GDAL's order is refused. By default from
        the coordinates of the DataArray (centres of pixels).
    compression : str
        none, packbits, lzw, deflate, zstd, lzma, lz4, lerc, lerc_deflate, lerc_zstd, jpeg, webp or jpeg2000.
    compression_level, quality, lossless, max_z_error
        Effort of deflate (1 to 12), zstd (1 to 22) and lzma (0 to 9); quality of jpeg, webp and jpeg2000 (1 to 100);
        largest error of lerc. What the codec does not have is an error.
    tiled, tile_size
        Tiles of so many pixels (an int, or rows and columns), or strips.
    predictor : "auto", "none", "horizontal", "float", 1, 2, 3 or bool
        What is done before compression; by default what suits the samples.
    interleave : "pixel" or "band"
        Whether the bands of a pixel lie together, or those of a tile.
    nbits : int, optional
        Bits of a sample, where fewer than those of its type do.
    sparse : bool
        Leave out tiles that are all zero, or all nodata.
    bigtiff : bool or str, optional
        True or False; by default where the file may grow beyond 4 GiB.
    cog : bool
        Directories first, overviews, statistics.
    statistics : bool, optional
        Store least, largest and mean value of each band. By default in a COG.
    overview_levels : int or list of int, optional
        How many overviews, or their factors ([2, 4, 8]). By default a COG has them until one tile holds the image.
    overview_resampling : str
        average (mean), nearest, bilinear, cubic, lanczos, mode, min, max, median or rms.
    photometric, alpha : str, optional
        "rgb", "minisblack", "miniswhite", "palette", "ycbcr" or "cmyk"; by default what suits bands and type. `alpha`
        makes the last band "unassociated" or "premultiplied" alpha.
    tags : mapping, optional
        Texts by name, or such mappings by domain.
    band_descriptions, band_units, scales, offsets : sequence, optional
        One entry for each band. By default those of the DataArray.
    colormap : mapping or sequence, optional
        {value: (r, g, b)} of bytes, or rows of 16-bit (r, g, b).
    colorinterp : sequence of str, optional
        What each band is, in GDAL's words ("red", "green", "blue", "alpha", "gray", "nir", ...) or as members of
        rasterio's `ColorInterp`.
    category_names : sequence of str, optional
        Names of the classes, the first one of value 0; lists of them where there are several bands. By default
        ``attrs["category_names"]``. They are kept in a file beside the raster, ``NAME.tif.aux.xml``, where GDAL looks.
    color_ramp, color_ramp_range : str or bool, (float, float), optional
        Colours in which QGIS shows the band, in a file ``NAME.qml`` beside it: viridis (True), plasma, magma, inferno,
        cividis, greys, spectral or terrain; from the least to the largest value, or over the range that is given.
    mask : array of bool or of bytes, optional
        Which pixels are there, in rows and columns; 0 and False hide a pixel. It is stored in the file, as GDAL does.
    gcps, rpcs : optional
        Ground control points and rational polynomial coefficients, of rasterio, as dictionaries, or as JSON.
    area_or_point : "Area" or "Point", optional
        What a pixel stands for.
    extra_tags : sequence of tuples, optional
        TIFF tags of your own: (number, type, value), or (number, type, count, value).
    dims : sequence of str, optional
        Names of the axes of a plain array: ("y", "x", "band").
    band_axis : 0 or -1, optional
        Which of three axes are the bands.
    nan_to_nodata : bool
        Whether floats that are NaN become `nodata`.
    recalc_transform : bool
        False takes the transform that is stored with the DataArray, whatever its coordinates say.
    device, gpu, on_gpu_failure
        Who compresses, "cpu", "cuda" or "auto"; by default whoever holds the samples. ``gpu=True`` is "cuda". With
        ``on_gpu_failure="auto"`` the CPU goes on where the GPU fails.
    threads : int, optional
        How many threads compress; by default as many as there are cores.
    max_memory : int, optional
        Bytes of host memory that the write may hold. By default the engine holds 256 MiB, or what it needs at least. If
        you give a number, a raster that needs more raises LimitError.
    max_device_memory : int, optional
        The same on the GPU; of a dask array there, half is for the chunks. By default the engine takes what it needs of
        the memory that is free, and beside chunks of dask 256 MiB where that is enough.
    streaming_buffer_bytes : int, optional
        Bytes of dask chunks that are held at a time, on the GPU where they lie there. By default 256 MiB, or what
        `max_memory` leaves. One chunk is held at the least. On a cluster, bytes of the chunks and encoded bands in
        flight; by default two bands for each thread of a worker.
    progress : bool, callable or object with update(), optional
        True shows a bar on a terminal; a function is called with (rows done, rows).
    scheduler : str, function or distributed.Client, optional
        Who computes dask arrays; by default whom dask would ask.
    compute : bool
        False gives a dask Delayed that writes when it is computed.
    dtype : dtype, optional
        Type of the samples in the file, by a name of NumPy or "complex_int16". Floats become the integers next to them
        and NaN becomes `nodata`; a sample that the type does not hold raises. By default that of the samples, or that
        of the file that a masked DataArray was read from. If its samples have fractions now, they are written as
        floats with NaN for nodata and a warning; samples of dask, which are not known before, raise.
    storage_options : mapping, optional
        How the store of an address is asked, as for :class:`Dataset`; of other URLs, what fsspec gets. With
        `public_only` or `allowed_hosts` only addresses of stores are written to.
    pack : bool, optional
        Whether samples that were unpacked on reading are packed again. By default where `encoding` says how.
    **profile
        Words of GDAL and rasterio, in any case: driver, compress, blockxsize, zlevel, num_threads, ... Of xrspatial's,
        `var` names the variable of a Dataset to write, and `drop_rotation` leaves away the place of a rotated grid.

    Returns
    -------
    path, bytes or Delayed
        `path` as it was given; the file where `path` is None.

    Examples
    --------
    >>> import numpy as np, swath
    >>> dem = np.arange(12.0, dtype="float32").reshape(3, 4)
    >>> file = swath.to_geotiff(dem, None, crs=32633, transform=(10, 0, 500000, 0, -10, 5000000), nodata=-9999)
    >>> swath.Dataset(file).shape
    (1, 3, 4)
    """
    data = chosen(data, profile)
    given = dict(locals())
    words = {name: given[name] for name in DEFAULTS}
    words = _profile.merge(words, DEFAULTS, profile)
    job = plan(data, path, words)
    if compute:
        return job.run()
    from dask.delayed import delayed

    # dask does not look into a method: the array is computed band by band when it runs, not before.
    return delayed(job.run, pure=False)()


DEFAULTS: dict[str, Any] = {
    name: parameter.default
    for name, parameter in inspect.signature(to_geotiff).parameters.items()
    if parameter.kind is inspect.Parameter.KEYWORD_ONLY
}


def plan(data: Any, path: Any, words: dict[str, Any]) -> Job:
    """Checks everything that can be checked before samples are touched."""
    check_data(data, path)
    check_target(path, words)
    raster = _raster.of(data, words)
    layout = raster.layout
    found = _metadata.merged(raster.found, _given(words, layout.count))
    metadata = found.native(layout.count, layout.dtype)
    cog = _profile.is_cog(words)
    options = _profile.engine_options(
        words,
        cog=cog,
        palette=bool(found.palette),
        floats=layout.dtype.kind == "f",
        nodata=metadata["nodata"],
    )
    options["device"] = _profile.device_of(words, on_device=raster.on_device)
    mask = _raster.mask_of(words["mask"], layout)
    beside = _beside.asked(words, data, layout.count, local=is_local(path))
    if beside.colors is not None and beside.limits is None:
        options["statistics"] = True
    options["mask"] = mask is not None
    limits = ("max_memory", "max_device_memory", "streaming_buffer_bytes")
    max_memory, max_device_memory, buffer = (whole(name, _profile.number(name, words[name]), 1) for name in limits)
    if max_device_memory is not None and raster.lazy is not None and raster.on_device:
        # Half for the engine; chunks and what tasks need meanwhile share the rest.
        max_device_memory //= 2
        buffer = min(buffer or BUFFER, max_device_memory)
    options["max_memory"] = MEMORY if max_memory is None else max_memory
    if max_device_memory is not None:
        options["max_device_memory"] = max_device_memory
    return Job(
        raster=raster,
        path=path,
        metadata=metadata,
        options=options,
        max_memory=max_memory,
        buffer=buffer,
        progress=words["progress"],
        scheduler=words["scheduler"],
        remote=_store(path, words["storage_options"]),
        storage_options=unguarded(words["storage_options"]),
        mask=mask,
        beside=beside,
    )


def _given(words: Mapping[str, Any], count: int) -> Found:
    """Metadata that the caller gives."""
    tags = _metadata.split_tags(words["tags"])
    area = words["area_or_point"] or tags.get("", {}).pop("AREA_OR_POINT", None)
    if area is not None and str(area).lower() not in ("area", "point"):
        raise UsageError(f"area_or_point={area!r}: give 'Area' or 'Point'")
    return Found(
        crs=_metadata.crs_text(words["crs"]),
        transform=_metadata.given_transform(words["transform"]),
        nodata=words["nodata"],
        area_or_point=None if area is None else str(area).capitalize(),
        gcps=_metadata.control_points(words["gcps"]),
        rpcs=_metadata.coefficients(words["rpcs"]),
        tags=tags,
        descriptions=_metadata.per_band("band_descriptions", words["band_descriptions"], count),
        units=_metadata.per_band("band_units", words["band_units"], count),
        scales=_metadata.numbers("scales", words["scales"], count),
        offsets=_metadata.numbers("offsets", words["offsets"], count),
        palette=_metadata.palette_of(words["colormap"]),
        colors=_metadata.color_names(words["colorinterp"], count),
    )


@dataclass
class Job:
    """A write that is ready to run; it can be sent to another process."""

    raster: Raster
    path: Any
    metadata: dict[str, Any]
    options: dict[str, Any]
    # The caller's own limit, and how many bytes of chunks may be held.
    max_memory: int | None
    buffer: int | None
    progress: Any
    scheduler: Any
    storage_options: dict[str, Any] = field(repr=False)
    # Bytes of which pixels are there, if the file shall say so.
    mask: Any = field(default=None, repr=False)
    beside: Beside = field(default=Beside({}, None, None), repr=False)
    # How the store of an address is asked, if the path is one.
    remote: dict[str, Any] | None = field(default=None, repr=False)

    def run(self) -> Any:
        layout = self.raster.layout
        report, close = _progress.reporter(self.progress, layout.height)
        try:
            with target(self.path, self.storage_options) as native:
                written = self._write(native, report)
            if self.remote is not None:
                forget(_swath.shown(native))
            if not self.beside.nothing:
                self.beside.write(os.fspath(self.path), _limits)
        finally:
            close()
        for notice in written["notices"]:
            warn(notice, DeviceWarning)
        return written["bytes"] if self.path is None else self.path

    def _write(self, native: Any, report: _progress.Report | None) -> dict[str, Any]:
        layout = self.raster.layout
        get, client = _scheduler(self.raster.lazy, self.scheduler)
        streamed = self.raster.lazy is not None and client is None
        if client is not None and self.mask is not None:
            raise UsageError('mask= cannot be written by a cluster: give scheduler="threads", or nodata= instead')
        if client is not None and self.options["device"] == "auto":
            # Every band has to be encoded alike, and nobody here knows which workers have a GPU.
            self.options["device"] = "cuda" if self.raster.on_device else "cpu"
            if not self.raster.on_device:
                told = 'workers encode by the CPU: on a cluster, device="cuda" asks for their GPUs and "auto" does not'
                warn(told, DeviceWarning)
        try:
            begun = self._begin(native, report, streamed=streamed, from_bands=client is not None)
        except (FormatError, UnsupportedError) as error:
            # No file is read here: what the codec cannot do was asked for.
            raise UsageError(f"{error}: give another compression=, or dtype= a type that it takes") from None
        writer = begun.writer
        try:
            if client is not None:
                from . import _cluster

                recipe = _cluster.Recipe(self._shape, self._dtype, self.metadata, self.options)
                _cluster.write(client, self.raster.lazy, layout, recipe, writer, self.buffer)
            elif streamed:
                _stream.stream(
                    self.raster.lazy, layout, writer, get, begun.buffer, as_blocks=begun.as_blocks, mask=self.mask
                )
            elif begun.as_blocks:
                # Strips are as wide as the image: blocks of some columns then do for all.
                tile = self.options.get("tile", (512, self.options.get("strips") or 16))
                _stream.BlockPusher(writer, layout, self.mask).push_all(self.raster.blocks, tile, self.raster.step)
            else:
                _stream.Pusher(writer, layout, mask=self.mask).push(layout.height, self.raster.blocks, self.raster.step)
            return writer.finish()
        except BaseException:
            writer.abort()
            raise

    @property
    def _shape(self) -> tuple[int, int, int]:
        layout = self.raster.layout
        return layout.count, layout.height, layout.width

    def _begin(self, native: Any, report: _progress.Report | None, *, streamed: bool, from_bands: bool) -> Begun:
        """The writer: of rows where memory is enough for them, else of blocks."""
        total = self.options["max_memory"]
        if from_bands:
            return Begun(self._writer(native, report, total, "bands"), 0, as_blocks=False)
        shares = SHARES if streamed and self.max_memory is not None else (1.0,)
        longest = _stream.longest_row(self.raster.lazy, self.raster.layout) if streamed else 0
        for share in shares:
            engine = int(total * share)
            buffer = self.buffer or (BUFFER if self.max_memory is None else total - engine)
            if longest <= buffer and self._takes_rows(engine):
                return Begun(self._writer(native, report, engine, "rows"), buffer, as_blocks=False)
        least = _swath.Writer.least_memory(self._shape, self._dtype, self.metadata, self.options)
        if self.max_memory is None and least > total:
            warn(
                f"the write holds {least} bytes of memory, the least it can do with: more than the {MEMORY} it holds "
                "by default. Give max_memory= to set your own limit",
            )
            total = least
        engine = next((int(total * share) for share in shares if int(total * share) >= least), int(total * shares[-1]))
        buffer = self.buffer or (BUFFER if self.max_memory is None else max(total - engine, 1))
        return Begun(self._writer(native, report, engine, "blocks"), buffer, as_blocks=True)

    @property
    def _dtype(self) -> str:
        return type_name(self.raster.layout.dtype)

    def _takes_rows(self, max_memory: int) -> bool:
        options = self._options(max_memory, "rows")
        return _swath.Writer.can_take_rows(self._shape, self._dtype, self.metadata, options)

    def _options(self, max_memory: int, parts: str) -> dict[str, Any]:
        options = {**self.options, "max_memory": max_memory}
        if parts == "rows" and self.raster.lazy is not None and self.raster.on_device:
            # Chunks and the tasks that make them are on the GPU too. Rows that need more are written as blocks.
            options.setdefault("max_device_memory", MEMORY)
        return options

    def _writer(
        self, native: Any, report: _progress.Report | None, max_memory: int, parts: Literal["rows", "bands", "blocks"]
    ) -> _swath.Writer:
        options = self._options(max_memory, parts)
        return _swath.Writer(
            native, self._shape, self._dtype, self.metadata, options, progress=report, parts=parts, remote=self.remote
        )


def is_local(path: Any) -> bool:
    """Whether a destination is a file that others can lie beside."""
    return isinstance(path, (str, os.PathLike)) and not URL.match(os.fsdecode(path))


def _limits(path: str) -> tuple[float, float] | None:
    """Least and largest value of the first band, from the statistics that were written."""
    tags = Dataset(path).metadata()["bands"][0]["tags"].get("", {})
    low, high = (tags.get(f"STATISTICS_{word}") for word in ("MINIMUM", "MAXIMUM"))
    return None if low is None or high is None else (float(low), float(high))


@dataclass(frozen=True)
class Begun:
    """A writer, and the bytes of chunks that may be held beside it."""

    writer: _swath.Writer
    buffer: int
    as_blocks: bool


def _scheduler(array: Any, scheduler: Any) -> tuple[Any, Any]:
    """What computes a dask array, and the client, if that is a cluster."""
    if array is None:
        return None, None
    from dask.base import get_scheduler

    get = get_scheduler(scheduler=scheduler, collections=[array])
    distributed = sys.modules.get("distributed")
    owner = getattr(get, "__self__", None)
    return get, owner if distributed is not None and isinstance(owner, distributed.Client) else None


def _store(path: Any, storage_options: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """How the store is asked that an address leads to; None for every other destination."""
    named = _named(path)
    address = address_of(named, storage_options)
    if address is None:
        # A file or store that the caller opened is the caller's own choice.
        if isinstance(named, str) and (guard := guard_of(storage_options)) is not None:
            raise refusal(_swath.shown(named) if "://" in named else named, guard, written=True)
        return None
    if address.url.lower().startswith("http"):
        raise UsageError(
            f"{address.name}: files are written to stores, not to plain HTTP servers: give s3://, gs:// or az:// "
            "(with `endpoint` in storage_options for a server of your own)"
        )
    return address.options.native()


def _named(path: Any) -> Any:
    """A path or an address as text, GDAL's names for them in ours; every other destination as it is."""
    return target_path(os.fsdecode(os.fspath(path))) if isinstance(path, (str, os.PathLike)) else path


@contextmanager
def target(path: Any, storage_options: Mapping[str, Any]) -> Iterator[Any]:
    """What the engine writes to; a file that goes elsewhere is made aside and sent when it is whole."""
    if path is None or hasattr(path, "write"):
        yield path
        return
    if isinstance(path, tuple) and len(path) == 2:
        import obstore

        store, key = path
        with _aside() as file:
            yield str(file)
            obstore.put(store, str(key), file)
        return
    system, name = _file_system(path, storage_options)
    if system is None:
        yield name
        return
    with _aside() as file:
        yield str(file)
        system.put_file(str(file), name)


def _file_system(path: Any, storage_options: Mapping[str, Any]) -> tuple[Any, str]:
    """The file system of fsspec that a destination is on, or None for a local one, and the name there."""
    if hasattr(path, "fs") and hasattr(path, "path"):
        if getattr(path, "compression", None):
            raise UsageError(f"{path!r} compresses what is written: open it with compression=None")
        system, name = path.fs, str(path.path)
    elif isinstance(path, (str, os.PathLike)):
        name = _named(path)
        if not URL.match(name) or _swath.is_remote(name):
            return None, name
        import fsspec

        try:
            system, name = fsspec.core.url_to_fs(name, **storage_options)
        except (ImportError, ValueError) as error:
            raise UsageError(
                f"{name}: neither swath nor fsspec writes there ({error}): give a path, s3://, gs:// or az://"
            ) from error
    else:
        raise UsageError(
            f"path={path!r}: give a path, a URL, an object with write(), an OpenFile of fsspec, (obstore store, path), "
            "or None"
        )
    local = "file" in ((system.protocol,) if isinstance(system.protocol, str) else system.protocol)
    return (None, name) if local else (system, name)


@contextmanager
def _aside() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="swath-") as folder:
        yield Path(folder) / "raster.tif"
