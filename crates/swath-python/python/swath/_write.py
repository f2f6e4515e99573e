"""`to_geotiff`: writes arrays, xarray objects and dask arrays larger than memory as GeoTIFF or COG."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

from . import _metadata, _progress, _side_files, _stream, _swath, _write_input
from ._checks import check_data, check_target, truth, truth_or_none, whole
from ._dataset import Dataset
from ._engine_options import EngineOptions, engine_options, number
from ._errors import DeviceWarning, Error, FormatError, UnsupportedError, UsageError, warn
from ._file_mask import FileMask
from ._handles import forget
from ._metadata import Found
from ._raster import Raster
from ._sample_conversion import type_name
from ._side_files import SideFiles
from ._storage_options import unguarded
from ._write_options import WriteOptions
from ._write_target import client_options, is_local, target
from ._xrspatial_keywords import select_variable

# Default limits: bytes that the engine may hold, and bytes of dask chunks held beside it.
MEMORY = 256 << 20
BUFFER = 256 << 20
# By default dask chunks on a GPU take one part in this many of its memory, and the engine as much; the tasks that
# compute the chunks need memory too.
DEVICE_PARTS = 16
# The engine's share of `max_memory` where dask chunks need memory too: half, or more where half is too little for it.
ENGINE_SHARES = (1 / 2, 3 / 4, 7 / 8)

# At exit the interpreter stops other threads without running their cleanup: their uploads would leave parts in a store.
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

    The file appears under its name when it is complete; a write that fails or is interrupted leaves an existing file
    as it was. Dask arrays are streamed: rows of chunks are computed, written and released, every task of the graph runs
    once, and the file is the same, byte for byte, as if the array had been computed first. Where a `distributed.Client`
    is the scheduler, its workers encode the tiles.

    Parameters
    ----------
    data : DataArray, Dataset, or array
        NumPy, dask, CuPy, torch, or any object with ``__array__``, a buffer, ``__dlpack__`` or
        ``__cuda_array_interface__``. Axes are (y, x), (band, y, x) or (y, x, band). The dimension names of a DataArray
        identify them. A plain array of three axes has its bands first where the first axis is not longer than the last,
        and last where the last axis has at most 4 entries and the others have at least 16; any other shape needs `dims`
        or `band_axis`. Several variables of a Dataset become bands. The data are not changed.
    path : str, path, address, file object, fsspec URL or OpenFile, (obstore store, path), or None
        Where to write. An address in a store (``s3://``, ``gs://``, ``az://``) is uploaded in parts, without a local
        copy, and appears there when it is complete. A BytesIO is emptied first, and holds only the file afterwards;
        other file objects get the bytes at their current position. None returns the file as bytes.
    crs : int, str or object with to_wkt(), optional
        EPSG code, "EPSG:32633", WKT, or a reference system of pyproj or rasterio. By default that of the DataArray.
    nodata : float, optional
        Value of missing pixels. By default that of the DataArray. NaN is written as this value, unless `nan_to_nodata`
        is False.
    transform : Affine or six numbers, optional
        Six numbers are (a, b, c, d, e, f), in Affine's order; numbers that look like GDAL's order raise an error. By
        default the transform follows from the coordinates of the DataArray (pixel centres).
    compression : str
        none, packbits, lzw, deflate, zstd, lzma, lz4, lerc, lerc_deflate, lerc_zstd, jpeg, webp or jpeg2000.
    compression_level : int, optional
        Effort of deflate (1 to 12), zstd (1 to 22) and lzma (0 to 9). Other codecs raise an error.
    quality : int, optional
        Quality of jpeg, webp and jpeg2000 (1 to 100). Other codecs raise an error.
    lossless : bool, optional
        Whether webp and jpeg2000 keep every sample. By default they do unless `quality` is given; with both, `quality`
        sets the effort.
    max_z_error : float
        Largest error that lerc may make. Other codecs raise an error.
    tiled : bool
        True stores the image in tiles, False in strips.
    tile_size : int or (int, int)
        Size of a tile in pixels: one number for both sides, or (rows, columns).
    predictor : "auto", "type", "none", "horizontal", "float", 1, 2, 3 or bool
        How samples are transformed before compression. "auto" compresses excerpts of the first rows that are not
        constant with each predictor and uses the one that makes them clearly smallest; "type" uses the usual one of
        the type of the samples.
    interleave : "pixel" or "band"
        "pixel" stores all bands of a pixel together, "band" stores each band in tiles of its own.
    nbits : int, optional
        Bits of a stored sample, where fewer than those of its type are enough.
    sparse : bool
        Whether to leave out tiles that hold only zeros or only nodata.
    bigtiff : bool or str, optional
        Whether file offsets have 64 bits. By default they do where the file may grow beyond 4 GiB.
    cog : bool
        Whether to write a Cloud Optimized GeoTIFF: all directories first, with overviews and statistics.
    statistics : bool, optional
        Whether to store minimum, maximum, mean and standard deviation of each band. By default in a COG.
    overview_levels : int or list of int, optional
        Number of overviews, or their factors ([2, 4, 8]). By default a COG has overviews until one tile holds the
        image, and other files have none.
    overview_resampling : str
        average (mean), nearest, bilinear, cubic, lanczos, mode, min, max, median or rms.
    photometric : str or int
        "rgb", "minisblack", "miniswhite", "palette", "ycbcr" or "cmyk". By default the one that suits bands and type.
    alpha : str or bool, optional
        Makes the last band "unassociated" or "premultiplied" alpha.
    tags : mapping, optional
        Metadata items by name, or mappings of them by domain.
    band_descriptions, band_units, scales, offsets : sequence, optional
        One entry for each band. By default those of the DataArray.
    colormap : mapping or sequence, optional
        {value: (r, g, b)} of bytes, or rows of 16-bit (r, g, b).
    colorinterp : sequence of str, optional
        Colour interpretation of each band, in GDAL's words ("red", "green", "blue", "alpha", "gray", "nir", ...) or as
        members of rasterio's `ColorInterp`.
    category_names : sequence of str, optional
        Names of the classes, starting with value 0; one list for each band where there are several. By default
        ``attrs["category_names"]``. They are stored beside the raster, in ``NAME.tif.aux.xml``, where GDAL looks.
    color_ramp : str or bool, optional
        Colours in which QGIS shows the band: viridis (True), plasma, magma, inferno, cividis, greys, spectral or
        terrain. They are stored beside the raster, in ``NAME.qml``.
    color_ramp_range : (float, float), optional
        Values of the first and the last colour. By default the smallest and the largest value of the band.
    mask : array of bool or of bytes, or False, optional
        Array of rows and columns in which 0 and False hide a pixel. The file stores it as GDAL does. By default the
        mask of the file that a DataArray was read from, as long as the array has the pixels that it describes; False
        leaves it out.
    gcps : optional
        Ground control points: rasterio's, dictionaries, or GeoJSON.
    rpcs : optional
        Rational polynomial coefficients: rasterio's RPC, a dictionary, or JSON.
    area_or_point : "Area" or "Point", optional
        Whether a pixel stands for its area or for a point.
    extra_tags : sequence of tuples, optional
        Further TIFF tags: (number, type, value), or (number, type, count, value).
    dims : sequence of str, optional
        Names of the axes of a plain array: ("y", "x", "band").
    band_axis : 0 or -1, optional
        Which of three axes holds the bands.
    nan_to_nodata : bool
        Whether NaN is written as `nodata`.
    recalc_transform : bool
        False takes the transform that is stored with the DataArray, even where its coordinates disagree.
    device : "cpu", "cuda" or "auto", optional
        What encodes the tiles. By default the device that holds the samples.
    gpu : bool, optional
        True is ``device="cuda"``, False is ``device="cpu"``.
    on_gpu_failure : "raise" or "auto"
        With "auto" the CPU takes over where the GPU fails.
    threads : int, optional
        Number of threads that encode. By default one for each core.
    max_memory : int, optional
        Bytes of host memory that the write may hold, the working memory of codecs included. By default the engine holds
        256 MiB, or its minimum where that is more, and what the codecs need. With a limit of your own, a raster that
        needs more raises LimitError.
    max_device_memory : int, optional
        Bytes of GPU memory that the write may hold; where a dask array is there, half of it is for the chunks. By
        default the engine takes what it needs of the free memory; beside dask chunks on the GPU it takes a sixteenth of
        the memory, at least 256 MiB, where that is enough.
    streaming_buffer_bytes : int, optional
        Bytes of dask chunks held at a time, in GPU memory where the chunks are there. By default 256 MiB, or what
        `max_memory` leaves; on a GPU a sixteenth of its memory, at least 256 MiB. At least one chunk is held. On a
        cluster, bytes of chunks and encoded tile rows in flight; by default two groups of tile rows for each worker
        thread.
    progress : bool, callable or object with update(), optional
        True shows a progress bar on a terminal; a function is called with (rows done, rows).
    scheduler : str, function or distributed.Client, optional
        What computes dask arrays. By default dask's own choice.
    compute : bool
        False returns a dask Delayed that writes when it is computed.
    dtype : dtype, optional
        Type of the samples in the file, by NumPy's name or "complex_int16". Floats are rounded to integers and NaN
        becomes `nodata`; a sample outside the range of the type raises. By default the type of the samples, or the one
        of the file that a masked DataArray was read from. If its samples have fractions now, they are written as
        floats with NaN for nodata, and a warning; dask arrays, whose samples are not known in advance, raise.
    storage_options : mapping, optional
        Settings of the store behind an address, as for :class:`Dataset`; fsspec gets them for other URLs. With
        `public_only` or `allowed_hosts`, only addresses of stores are written to.
    pack : bool, optional
        Whether to undo the scales and offsets that reading applied. By default where `encoding` has them.
    **profile
        Options of GDAL and rasterio, in any case: driver, compress, blockxsize, zlevel, num_threads, ... Of
        xarray-spatial's, `var` names the variable of a Dataset to write, and `drop_rotation` drops the georeference of
        a rotated grid.

    Returns
    -------
    path, bytes or Delayed
        `path` as given; the file as bytes where `path` is None.

    Examples
    --------
    >>> import numpy as np, swath
    >>> dem = np.arange(12.0, dtype="float32").reshape(3, 4)
    >>> file = swath.to_geotiff(dem, None, crs=32633, transform=(10, 0, 500000, 0, -10, 5000000), nodata=-9999)
    >>> swath.Dataset(file).shape
    (1, 3, 4)
    """
    truth("compute", compute)
    data = select_variable(data, profile)
    options = WriteOptions(
        crs=crs,
        nodata=nodata,
        transform=transform,
        compression=compression,
        compression_level=compression_level,
        tiled=tiled,
        tile_size=tile_size,
        predictor=predictor,
        cog=cog,
        overview_levels=overview_levels,
        overview_resampling=overview_resampling,
        bigtiff=bigtiff,
        device=device,
        gpu=gpu,
        streaming_buffer_bytes=streaming_buffer_bytes,
        max_memory=max_memory,
        max_device_memory=max_device_memory,
        progress=progress,
        compute=compute,
        max_z_error=max_z_error,
        quality=quality,
        lossless=lossless,
        photometric=photometric,
        interleave=interleave,
        alpha=alpha,
        nbits=nbits,
        sparse=sparse,
        statistics=statistics,
        dtype=dtype,
        tags=tags,
        band_descriptions=band_descriptions,
        band_units=band_units,
        scales=scales,
        offsets=offsets,
        colormap=colormap,
        colorinterp=colorinterp,
        category_names=category_names,
        color_ramp=color_ramp,
        color_ramp_range=color_ramp_range,
        mask=mask,
        gcps=gcps,
        rpcs=rpcs,
        area_or_point=area_or_point,
        extra_tags=extra_tags,
        dims=dims,
        band_axis=band_axis,
        pack=pack,
        nan_to_nodata=nan_to_nodata,
        recalc_transform=recalc_transform,
        threads=threads,
        on_gpu_failure=on_gpu_failure,
        scheduler=scheduler,
        storage_options=storage_options,
    )
    write = prepare(data, path, options.with_profile(profile))
    if compute:
        return write.run()
    from dask.delayed import delayed

    # dask does not look inside a bound method: the array is computed chunk by chunk when the write runs, not before it.
    return delayed(write.run, pure=False)()


def prepare(data: Any, path: Any, options: WriteOptions) -> PreparedWrite:
    """Checks everything that can be checked before any sample is read or computed."""
    check_data(data, path)
    truth_or_none("pack", options.pack)
    truth("recalc_transform", options.recalc_transform)
    check_target(path, options.driver)
    raster = _write_input.of(data, options)
    layout = raster.layout
    found = _metadata.merged(raster.found, _given_metadata(options, layout.count))
    metadata = found.native(layout.count, layout.dtype)
    mask = _write_input.mask_of(options.mask, layout) if raster.mask is None else _read_mask(raster.mask)
    side_files = _side_files.requested(options, data, layout.count, local=is_local(path))
    engine = engine_options(
        options,
        count=layout.count,
        palette=bool(found.palette) or raster.indices,
        floats=layout.dtype.kind == "f",
        nodata=metadata["nodata"],
        on_device=raster.on_device,
        mask=mask is not None,
        soft_mask=mask is not None and isinstance(raster.mask, FileMask) and raster.mask.soft,
        statistics=side_files.needs_statistics,
    )
    limits = ("max_memory", "max_device_memory", "streaming_buffer_bytes")
    max_memory, max_device_memory, buffer = (whole(name, number(name, getattr(options, name)), 1) for name in limits)
    if max_device_memory is not None and raster.lazy is not None and raster.on_device:
        # The engine gets half. The chunks, and the tasks that compute them, share the rest.
        max_device_memory //= 2
        buffer = min(buffer or BUFFER, max_device_memory)
    return PreparedWrite(
        raster=raster,
        path=path,
        metadata=metadata,
        options=replace(
            engine,
            max_memory=MEMORY if max_memory is None else max_memory,
            max_device_memory=max_device_memory,
        ),
        max_memory=max_memory,
        buffer=buffer,
        progress=options.progress,
        scheduler=options.scheduler,
        remote=client_options(path, options.storage_options),
        storage_options=unguarded(options.storage_options),
        mask=mask,
        side_files=side_files,
    )


def _read_mask(kept: Any) -> Any:
    """Returns the mask of the file that the samples were read from; None, with a warning, where it is gone."""
    try:
        return kept.read() if isinstance(kept, FileMask) else kept
    except Error as error:
        warn(f"the mask of the file is left out, since it cannot be read any more: {error}; give mask=, or mask=False")
        return None


def _given_metadata(options: WriteOptions, count: int) -> Found:
    """Returns the metadata that the caller gives."""
    tags = _metadata.split_tags(options.tags)
    stated = tags.get("", {}).pop("AREA_OR_POINT", None)
    area = stated if options.area_or_point is None else options.area_or_point
    if area is not None and str(area).lower() not in ("area", "point"):
        raise UsageError(f"area_or_point={area!r}: give 'Area' or 'Point'")
    return Found(
        crs=_metadata.crs_text(options.crs),
        transform=_metadata.given_transform(options.transform),
        nodata=options.nodata,
        area_or_point=None if area is None else str(area).capitalize(),
        gcps=_metadata.control_points(options.gcps),
        rpcs=_metadata.coefficients(options.rpcs),
        tags=tags,
        descriptions=_metadata.texts("band_descriptions", options.band_descriptions, count),
        units=_metadata.texts("band_units", options.band_units, count),
        scales=_metadata.numbers("scales", options.scales, count),
        offsets=_metadata.numbers("offsets", options.offsets, count),
        palette=_metadata.palette_of(options.colormap),
        colors=_metadata.color_names(options.colorinterp, count),
    )


@dataclass
class PreparedWrite:
    """A write that has passed all checks; dask may send it to another process before it runs."""

    raster: Raster
    path: Any
    metadata: dict[str, Any]
    options: EngineOptions
    # Bytes of host memory that the caller allows.
    max_memory: int | None
    # Bytes of dask chunks that may be held at a time.
    buffer: int | None
    progress: Any
    scheduler: Any
    # What fsspec gets.
    storage_options: dict[str, Any] = field(repr=False)
    # One byte for each pixel, 0 for hidden ones; None for a file without a mask.
    mask: Any = field(default=None, repr=False)
    side_files: SideFiles = field(default=SideFiles({}, None, None), repr=False)
    # Options of the engine's own client, where the path is an address.
    remote: dict[str, Any] | None = field(default=None, repr=False)

    def run(self) -> Any:
        """Writes the file; returns its path, or its bytes where there is no path."""
        layout = self.raster.layout
        report, close = _progress.reporter(self.progress, layout.height)
        try:
            described = _side_files.file_behind(self.path)
            with target(self.path, self.storage_options) as native:
                written = self._write(native, report)
            if described is not None:
                _side_files.remove_stale(described)
            if self.remote is not None:
                forget(_swath.shown(native))
            if is_local(native):
                forget(os.fsdecode(native))
                _side_files.remove_own_style(native)
            if self.side_files:
                self.side_files.write(os.fspath(self.path), _value_range)
        finally:
            close()
        for notice in written["notices"]:
            warn(notice, DeviceWarning)
        return written["bytes"] if self.path is None else self.path

    def _write(self, native: Any, report: _progress.Report | None) -> dict[str, Any]:
        layout = self.raster.layout
        get, client = _scheduler(self.raster.lazy, self.scheduler)
        streamed = self.raster.lazy is not None and client is None
        if client is not None and self.mask is not None and self.raster.mask is None:
            raise UsageError('mask= cannot be written by a cluster: give scheduler="threads", or nodata= instead')
        if client is not None and self.mask is not None:
            warn('the mask of the file is left out: a cluster cannot write it; give scheduler="threads" to keep it')
            self.mask, self.options = None, replace(self.options, mask=False, soft_mask=False)
        if client is not None and self.options.device == "auto":
            # All tiles must be encoded the same way, and this process cannot know which workers have a GPU.
            self.options = replace(self.options, device="cuda" if self.raster.on_device else "cpu")
            if not self.raster.on_device:
                warn(
                    'the workers encode on the CPU: on a cluster, device="auto" uses no GPU, and device="cuda" does',
                    DeviceWarning,
                )
        cluster_array = None
        if client is not None:
            from . import _cluster

            cluster_array = _cluster.ClusterArray(client, self.raster.lazy, layout)
            self.options = _cluster.with_chosen_predictor(self.options, self.metadata, self._dtype, cluster_array)
        try:
            begun = self._begin(native, report, streamed=streamed, encoded=client is not None)
        except (FormatError, UnsupportedError) as error:
            # The write has read no file: the caller asked for what the codec cannot do.
            raise UsageError(f"{error}: give another compression=, or dtype= a type that it takes") from None
        writer = begun.writer
        try:
            if cluster_array is not None:
                arguments = _cluster.EncoderArguments(self._shape, self._dtype, self.metadata, self.options)
                _cluster.write(cluster_array, arguments, writer, self.buffer)
            elif streamed:
                _stream.stream(
                    self.raster.lazy, layout, writer, get, begun.buffer, as_blocks=begun.as_blocks, mask=self.mask
                )
            elif begun.as_blocks:
                # Strips are as wide as the image; the writer takes blocks of fewer columns all the same.
                tile = self.options.tile_size or (512, self.options.strips or 16)
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

    def _begin(self, native: Any, report: _progress.Report | None, *, streamed: bool, encoded: bool) -> StartedWriter:
        """Starts the writer: one that takes rows where the memory is enough for it, otherwise one that takes blocks.

        `encoded` starts a writer of tiles that the workers of a cluster encode.
        """
        total = self.options.max_memory or MEMORY
        if encoded:
            return StartedWriter(self._writer(native, report, total, "tile_rows"), 0, as_blocks=False)
        shares = ENGINE_SHARES if streamed and self.max_memory is not None else (1.0,)
        longest = _stream.longest_row(self.raster.lazy, self.raster.layout) if streamed else 0
        for share in shares:
            engine = int(total * share)
            buffer = self._buffer_beside(engine, total)
            if longest <= buffer and self._takes_rows(engine):
                return StartedWriter(self._writer(native, report, engine, "rows"), buffer, as_blocks=False)
        least = _swath.Writer.least_memory(self._shape, self._dtype, self.metadata, self.options.native())
        if self.max_memory is None and least > total:
            warn(
                f"the write needs at least {least} bytes of memory, more than the {MEMORY} that it takes by default. "
                "Give max_memory= to set your own limit",
            )
            total = least
        engine = next((int(total * share) for share in shares if int(total * share) >= least), int(total * shares[-1]))
        buffer = self._buffer_beside(engine, total)
        return StartedWriter(self._writer(native, report, engine, "blocks"), buffer, as_blocks=True)

    @property
    def _dtype(self) -> str:
        return type_name(self.raster.layout.dtype)

    def _takes_rows(self, max_memory: int) -> bool:
        options = self._native_options(max_memory, "rows")
        return _swath.Writer.can_take_rows(self._shape, self._dtype, self.metadata, options)

    def _buffer_beside(self, engine: int, total: int) -> int:
        """Returns the bytes of dask chunks that are held at once, beside what the engine takes of `total`."""
        if self.buffer is not None:
            return self.buffer
        if self.max_memory is not None:
            return max(total - engine, 1)
        return self._device_part if self.raster.on_device else BUFFER

    @cached_property
    def _device_part(self) -> int:
        return max((_swath.device_memory() or 0) // DEVICE_PARTS, MEMORY)

    def _native_options(self, max_memory: int, pushes: str) -> dict[str, Any]:
        options = replace(self.options, max_memory=max_memory)
        on_gpu = self.raster.lazy is not None and self.raster.on_device
        if pushes == "rows" and on_gpu and options.max_device_memory is None:
            # Rows that need more are written as blocks.
            options = replace(options, max_device_memory=self._device_part)
        return options.native()

    def _writer(
        self,
        native: Any,
        report: _progress.Report | None,
        max_memory: int,
        pushes: Literal["rows", "tile_rows", "blocks"],
    ) -> _swath.Writer:
        return _swath.Writer(
            native,
            self._shape,
            self._dtype,
            self.metadata,
            self._native_options(max_memory, pushes),
            progress=report,
            pushes=pushes,
            remote=self.remote,
        )


@dataclass(frozen=True)
class StartedWriter:
    """A writer, and how the samples reach it."""

    writer: _swath.Writer
    # Bytes of dask chunks that may be held at a time.
    buffer: int
    as_blocks: bool


def _value_range(path: str) -> tuple[float, float] | None:
    """Returns the smallest and largest value of the first band, from the statistics in the file."""
    tags = Dataset(path).metadata()["bands"][0]["tags"].get("", {})
    low, high = (tags.get(f"STATISTICS_{word}") for word in ("MINIMUM", "MAXIMUM"))
    return None if low is None or high is None else (float(low), float(high))


def _scheduler(array: Any, scheduler: Any) -> tuple[Any, Any]:
    """Returns dask's function that computes an array, and the client where that function belongs to a cluster."""
    if array is None:
        return None, None
    from dask.base import get_scheduler

    get = get_scheduler(scheduler=scheduler, collections=[array])
    distributed = sys.modules.get("distributed")
    owner = getattr(get, "__self__", None)
    return get, owner if distributed is not None and isinstance(owner, distributed.Client) else None
