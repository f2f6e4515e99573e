"""`Dataset`: an open file and its reads."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, Self

import numpy as np

from . import _array, _device, _repr, _swath
from . import _georef as georef
from ._array import HostArray, check_shape, copy_to_gpu, host_view, put
from ._checks import one_of, truth, truth_or_none, whole
from ._chips import BATCH, Chips
from ._dataset_properties import DatasetProperties
from ._errors import DeviceWarning, UsageError, recorded, warn
from ._masked_reads import read_masked, sample_points
from ._source import resolve
from ._window import Pixels, listed_windows, to_box, to_pixels

Bands = int | Sequence[int] | None


class Dataset(DatasetProperties):
    """An open GeoTIFF, BigTIFF or COG.

    Opening reads a few kilobytes. Any number of threads may read from one handle at once; reads release the GIL. A
    handle can be pickled, and is opened again where it is unpickled. Attributes and methods that rasterio has too
    (`crs`, `transform`, `bounds`, `nodata`, `profile`, `tags()`, `index()`, `sample()`, ...) mean the same.

    A handle reads one version of a file. A file that is replaced (renamed over) stays readable as it was; once a file
    is written to in place, every read raises :class:`ChangedError`. Lazy arrays raise it in both cases.

    Parameters
    ----------
    source
        A path, an address (``https://``, ``s3://``, ``gs://``, ``az://``), bytes, a file-like object, an fsspec file,
        or ``(obstore store, path)``.
    threads : int, optional
        Number of threads that a read may use; all cores by default.
    tile_cache : int, optional
        Bytes of a cache of this file for decoded tiles, 0 for none. By default all files share a cache of a twentieth
        of the machine's memory.
    max_pixels : int, optional
        Largest number of samples (bands x rows x columns) of a read. It replaces swath's own limits: 64 GiB for a read,
        4 GiB for a tile, and above 1 GiB at most 16,384 bytes of samples for each byte of the file.
    device : {"cpu", "cuda", "auto"}, optional
        What decodes where a read does not name a device.
    max_device_memory : int, optional
        Bytes of GPU memory that a read may use.
    trust_input : bool
        Whether NVIDIA's nvCOMP may decode LZ4, which a damaged file can crash.
    ifd : int, optional
        The directory to open as the image, counted from 0; the first by default. `swath.info` lists them.
    storage_options : mapping, optional
        Settings for the server or store of an address: `anonymous`, `endpoint`, `region`, `headers`,
        `max_remote_bytes`, `max_remote_requests`, `deadline`, `connect_timeout`, `stall_timeout`, `retries`,
        `redirects`, `in_flight`, `public_only`, `allowed_hosts`, names of s3fs (`anon`, `key`, `secret`, `token`,
        `client_kwargs`), and settings of the store by their usual names (`aws_profile`, `google_service_account`,
        `azure_storage_account_name`, ...). swath finds credentials as the stores' own tools do. fsspec opens addresses
        of other schemes and gets all of these settings. `public_only=True` refuses private, loopback and link-local
        addresses, also after redirects; `allowed_hosts` (a list of `name` or `name:port`) does the same for all but
        these, and leaves public hosts open. Both forbid fsspec and local paths, since only swath's own client obeys
        them. A file object or store that you opened yourself takes no `storage_options`.

    Examples
    --------
    >>> import numpy as np, swath
    >>> path = swath.to_geotiff(np.arange(12, dtype="uint16").reshape(3, 4), "/tmp/swath-doc-dataset.tif")
    >>> with swath.Dataset(path) as dataset:
    ...     print(dataset.shape, dataset.dtype, dataset.read(1).sum())
    (1, 3, 4) uint16 66
    >>> dataset.closed, dataset.bounds
    (True, BoundingBox(left=0.0, bottom=3.0, right=4.0, top=0.0))
    """

    _source: Any
    _options: dict[str, Any]
    # Messages of the warnings about the file that opening it gave.
    _opening_warnings: list[str]

    def __new__(
        cls,
        source: Any,
        *,
        threads: int | None = None,
        tile_cache: int | None = None,
        max_pixels: int | None = None,
        device: Any = None,
        max_device_memory: int | None = None,
        trust_input: bool = False,
        ifd: int | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> Self:
        resolved = resolve(source, storage_options)
        options: dict[str, Any] = {
            "threads": whole("threads", threads),
            "tile_cache": whole("tile_cache", tile_cache),
            "max_pixels": whole("max_pixels", max_pixels),
            "device": _device.device_name(device),
            "max_device_memory": whole("max_device_memory", max_device_memory),
            "trust_input": truth("trust_input", trust_input),
            "ifd": resolved.page(ifd),
        }
        with recorded() as messages:
            self = super().__new__(cls, resolved.native, remote=resolved.remote, **options)
        self._opening_warnings = messages
        self._source = resolved
        self._options = options
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (type(self), self._source.pickled, self._options)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return _repr.text(self)

    def _repr_html_(self) -> str:
        return _repr.table(self)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError("reading a dataset into an array makes a copy: leave out copy=False")
        return np.asarray(self.read(), dtype)

    def _pixels(self, window: Any, bbox: Any, bbox_crs: Any, overview: int | None, boundless: bool) -> Pixels | None:
        """Returns the window to read of a level: first column, first row, columns, rows; None for all of it."""
        level = self._size(overview)
        if bbox is None and bbox_crs is None:
            return None if window is None else to_pixels(window, *level, boundless=boundless)
        if window is not None:
            raise UsageError("window and bbox both say what to read: give one of them")
        about = self._about()
        transform = about["transform"]
        if transform is not None:
            transform = georef.level_transform(transform, (self.width, self.height), level)
        return georef.window_of_box(transform, *level, to_box(bbox, bbox_crs, about["crs"]), boundless=boundless)

    def _size(self, overview: int | None) -> tuple[int, int]:
        if overview is None:
            return self.width, self.height
        levels = self.overview_sizes
        if not isinstance(overview, int | np.integer) or isinstance(overview, bool):
            raise UsageError(f"overview_level={overview!r}: give a whole number, 0 for the largest overview")
        if not 0 <= overview < len(levels):
            raise UsageError(f"{self.name}: there is no overview {overview}; the file has {len(levels)}")
        return levels[overview]

    def read(
        self,
        bands: Bands = None,
        window: Any = None,
        *,
        bbox: Any = None,
        bbox_crs: Any = None,
        masked: bool = False,
        boundless: bool = False,
        fill_value: Any = None,
        overview_level: int | None = None,
        interleave: Literal["band", "pixel"] = "band",
        device: Any = None,
        out: Any = None,
        ifd: int | None = None,
        threads: int | None = None,
        max_device_memory: int | None = None,
        trust_input: bool | None = None,
        cpu_decode: bool | None = None,
        _cancel: _swath.Cancel | None = None,
    ) -> Any:
        """Reads samples.

        Parameters
        ----------
        bands : int or sequence of int, optional
            Bands, counted from 1; a single number returns an array without the band axis.
        window : optional
            ``swath.Window``, ``(row_start, col_start, row_stop, col_stop)``, a window of rasterio, two ranges or two
            slices. A window that begins or ends inside pixels (`rasterio.windows.from_bounds`) has the shape and the
            first pixel that rasterio gives it: lengths are rounded to the nearest whole number, and samples are never
            repeated or skipped.
        bbox : optional
            Instead of `window`: reads the pixels that a box of coordinates touches. ``(west, south, east, north)``, a
            geometry of shapely, or anything else with `bounds`.
        bbox_crs : optional
            The reference system of `bbox` where it is not the file's; needs pyproj.
        masked : bool
            Whether to return a `numpy.ma.MaskedArray` that hides nodata and the pixels that the file's mask or alpha
            band hides.
        boundless : bool
            Whether the window may extend beyond the image. Samples outside are `fill_value`, or nodata, or 0; with
            `masked` they are hidden.
        fill_value : optional
            Value of samples outside the image, and fill value of the masked array.
        overview_level : int, optional
            Reads an overview instead of the full image, 0 for the largest; `window` is in pixels of the overview.
        interleave : {"band", "pixel"}
            (bands, rows, columns) or (rows, columns, bands).
        device : {"cpu", "cuda", "auto"}, optional
            ``"cuda"`` returns an array in GPU memory or raises; ``"auto"`` returns one in host memory where there is no
            GPU.
        out : array, optional
            NumPy, CuPy or torch array to fill and return.
        ifd : int, optional
            Another directory of the file, counted from 0.
        threads : int, optional
            Number of threads that the read may use; by default that of the dataset.
        max_device_memory : int, optional
            Bytes of GPU memory that the read may use.
        trust_input : bool, optional
            Whether NVIDIA's nvCOMP may decode LZ4, which a damaged file can crash.
        cpu_decode : bool, optional
            Whether the CPU may decode tiles that the GPU cannot, in a read into GPU memory.

        Returns
        -------
        Array
            In host memory a NumPy array; in GPU memory one that CuPy and torch use without a copy: see :class:`Array`.
        """
        single = isinstance(bands, (int, np.integer))
        numbers = self._band_numbers(bands, None if ifd is None else 1 << 16)
        options = reading_options(interleave, device, threads, max_device_memory, trust_input, cpu_decode)
        options |= {"ifd": whole("ifd", ifd), "cancel": _cancel}
        masked, boundless = truth("masked", masked), truth("boundless", boundless)
        pixels: Pixels | None
        if ifd is None:
            pixels = self._pixels(window, bbox, bbox_crs, overview_level, boundless)
        elif bbox is not None or masked or boundless:
            raise UsageError(
                "bbox, masked and boundless work on the image only, not on another ifd: give window= in pixels"
            )
        else:
            pixels = None if window is None else to_unchecked_pixels(window)
        if masked or boundless:
            frame = pixels or (0, 0, *self._size(overview_level))
            settings = {"single": single, "masked": masked, "fill_value": fill_value, "out": out, "options": options}
            return read_masked(self, frame, numbers or self.indexes, overview_level, **settings)
        if fill_value is not None:
            raise UsageError("fill_value needs masked=True or boundless=True: give one of them, or leave it out")
        if out is not None:
            return self._fill(out, pixels, numbers, overview_level, options)
        memory = self.read_window(pixels, numbers, overview_level, **options)
        if options["device"] == "auto":
            warn_of_notices(memory.report)
        if single:
            memory = memory.reshape(memory.shape[1:] if interleave == "band" else memory.shape[:2])
        return _array.of(memory)

    async def aread(self, bands: Bands = None, window: Any = None, **options: Any) -> Any:
        """Reads samples as :meth:`read` does, in a thread of its own, so that the event loop is not blocked.

        `bands`, `window` and the keywords in `options` are those of :meth:`read`.

        Many reads of one dataset may be awaited at once. When the task is cancelled, as by `asyncio.wait_for`, the
        caller continues at once, and the read stops after the tiles that it is decoding; `out` may then be partly
        filled.

        Examples
        --------
        >>> import asyncio, numpy as np, swath
        >>> path = swath.to_geotiff(np.arange(12, dtype="uint16").reshape(3, 4), "/tmp/swath-doc-aread.tif")
        >>> asyncio.run(swath.Dataset(path).aread(1, (0, 0, 1, 4)))
        array([[0, 1, 2, 3]], dtype=uint16)
        """
        stop = _swath.Cancel()
        try:
            return await asyncio.to_thread(self.read, bands, window, **options, _cancel=stop)
        except asyncio.CancelledError:
            stop.cancel()
            raise

    def dataset_mask(
        self, window: Any = None, *, overview_level: int | None = None, threads: int | None = None
    ) -> HostArray:
        """Reads the mask (rows, columns): 255 for valid pixels, 0 for hidden ones, and values between for opacity.

        `window`, `overview_level` and `threads` are as for :meth:`read`.
        """
        pixels = self._pixels(window, None, None, overview_level, False)
        return HostArray.of(self.read_mask(pixels, overview_level, threads=whole("threads", threads)))

    def sample(
        self, xy: Iterable[tuple[float, float]], indexes: int | Sequence[int] | None = None, masked: bool = False
    ) -> Iterator[np.ndarray]:
        """Yields the samples of the pixels that contain the given points.

        Parameters
        ----------
        xy : iterable of (x, y)
            Points in the file's reference system.
        indexes : int or sequence of int, optional
            Bands, counted from 1.
        masked : bool
            Whether to return masked arrays that hide nodata and the pixels that the file's mask hides.

        Yields
        ------
        numpy.ndarray
            One sample of each band. Points outside the image have nodata, or 0; with `masked` they are hidden.
        """
        return sample_points(self, xy, indexes, masked)

    def _fill(
        self,
        out: Any,
        pixels: tuple[int, int, int, int] | None,
        bands: list[int] | None,
        overview: int | None,
        options: dict[str, Any],
    ) -> Any:
        """Reads into the caller's memory and returns it."""
        if _device.is_on_gpu(out):
            if options["device"] is None:
                options["device"] = "cuda"
            array = self.read_window(pixels, bands, overview, **options)
            copy_to_gpu(array, out, 0 if options["interleave"] == "band" else 2)
            return out
        view = host_view(out)
        direct = view.flags.c_contiguous and view.flags.writeable and view.dtype == self.dtype
        if direct and options["ifd"] is None:
            width, height = self._size(overview) if pixels is None else pixels[2:]
            count = len(bands) if bands is not None else self.count
            shape = (count, height, width) if options["interleave"] == "band" else (height, width, count)
            check_shape(view.shape, shape, 0 if options["interleave"] == "band" else 2)
            self.read_window(pixels, bands, overview, out=view, **options)
            return out
        options["device"] = options["device"] if options["device"] != "cuda" else None
        found = np.asarray(self.read_window(pixels, bands, overview, **options))
        check_shape(view.shape, found.shape, 0 if options["interleave"] == "band" else 2)
        found = found.reshape(view.shape)
        put(found, view)
        return out

    def read_windows(
        self,
        windows: Sequence[Any],
        bands: Sequence[int] | None = None,
        *,
        overview_level: int | None = None,
        interleave: Literal["band", "pixel"] = "band",
        device: Any = None,
        out: Any = None,
        threads: int | None = None,
        max_device_memory: int | None = None,
        trust_input: bool | None = None,
        cpu_decode: bool | None = None,
    ) -> Any:
        """Reads many windows of one size at once: on the CPU with all threads, on a GPU in one batch.

        Parameters
        ----------
        windows : sequence
            Windows as for :meth:`read`.
        bands, overview_level, interleave, device, threads, max_device_memory, trust_input, cpu_decode
            As for :meth:`read`.
        out : array, optional
            NumPy array to fill and return; on a GPU, a CuPy or torch array.

        Returns
        -------
        Array
            (windows, bands, rows, columns), or (windows, rows, columns, bands).
        """
        width, height = self._size(overview_level)
        pixels = [to_pixels(window, width, height) for window in listed_windows(windows)]
        numbers = self._band_numbers(bands)
        options = reading_options(interleave, device, threads, max_device_memory, trust_input, cpu_decode)
        if out is not None and not _device.is_on_gpu(out):
            view = host_view(out)
            rows, columns = (pixels[0][3], pixels[0][2]) if pixels else (0, 0)
            count = len(numbers) if numbers is not None else self.count
            shape = (count, rows, columns) if interleave == "band" else (rows, columns, count)
            check_shape(view.shape, (len(pixels), *shape), 1 if interleave == "band" else 3)
            if view.flags.c_contiguous and view.dtype == self.dtype:
                self.read_batch(pixels, numbers, overview_level, out=view, **options)
            else:
                found = np.asarray(self.read_batch(pixels, numbers, overview_level, **options))
                put(found.reshape(view.shape), view)
            return out
        if out is not None:
            options["device"] = options["device"] or "cuda"
        memory = self.read_batch(pixels, numbers, overview_level, **options)
        assert memory is not None
        if options["device"] == "auto":
            warn_of_notices(memory.report)
        if out is not None:
            copy_to_gpu(memory, out, 1 if interleave == "band" else 3)
            return out
        return _array.of(memory)

    def chips(
        self,
        size: int | tuple[int, int],
        stride: int | tuple[int, int] | None = None,
        batch: int = BATCH,
        *,
        bands: Sequence[int] | None = None,
        overview_level: int | None = None,
        windows: Sequence[Any] | None = None,
        edge: Literal["shift", "drop"] = "shift",
        shuffle: bool = False,
        seed: int | None = None,
        interleave: Literal["band", "pixel"] = "band",
        device: Any = None,
        prefetch: int | None = None,
        drop_last: bool = False,
        threads: int | None = None,
        max_device_memory: int | None = None,
        trust_input: bool | None = None,
        cpu_decode: bool | None = None,
    ) -> Chips:
        """Returns batches of windows of one size, read ahead in the background.

        Parameters
        ----------
        size : int or (rows, columns)
            Size of a chip.
        stride : int or (rows, columns), optional
            Distance from chip to chip; the size by default.
        batch : int
            Number of chips in a batch.
        bands, overview_level, interleave
            As for :meth:`read`.
        windows : sequence, optional
            Windows to read instead of a grid; all of them have the size `size`.
        edge : {"shift", "drop"}
            At the right and lower edge, "shift" moves chips inwards, so that every pixel is in one; "drop" leaves out
            chips that do not fit.
        shuffle, seed
            Whether chips come in random order, and the seed of that order.
        device : {"cpu", "cuda", "auto"}, optional
            What decodes; on a GPU, a batch is decoded at once and stays in GPU memory.
        prefetch : int, optional
            Number of batches to read ahead; by default 2, and 4 on a GPU.
        drop_last : bool
            Whether to leave out a last batch that has fewer chips than the others.
        threads, max_device_memory, trust_input, cpu_decode
            As for :meth:`read`.

        Yields
        ------
        (Array, list of Window)
            An array (chips, bands, rows, columns), and the window of each chip.

        Examples
        --------
        >>> import numpy as np, swath
        >>> path = swath.to_geotiff(np.ones((3, 100, 130), "uint8"), "/tmp/swath-doc-chips.tif")
        >>> [chips.shape for chips, windows in swath.Dataset(path).chips(64, batch=4)]
        [(4, 3, 64, 64), (2, 3, 64, 64)]
        """
        options = reading_options(interleave, device, threads, max_device_memory, trust_input, cpu_decode)
        return Chips(
            self,
            size,
            stride,
            batch,
            bands=self._band_numbers(bands),
            overview_level=overview_level,
            windows=windows,
            edge=edge,
            shuffle=shuffle,
            seed=seed,
            prefetch=prefetch,
            drop_last=drop_last,
            options=options,
        )


def reading_options(
    interleave: Any, device: Any, threads: Any, max_device_memory: Any, trust_input: Any, cpu_decode: Any
) -> dict[str, Any]:
    """Returns the options that all reads share, as the engine takes them."""
    return {
        "interleave": one_of("interleave", interleave, ("band", "pixel")),
        "threads": whole("threads", threads),
        "device": _device.device_name(device),
        "max_device_memory": whole("max_device_memory", max_device_memory),
        "trust_input": truth_or_none("trust_input", trust_input),
        "cpu_decode": truth_or_none("cpu_decode", cpu_decode),
    }


def to_unchecked_pixels(window: Any) -> tuple[int, int, int, int]:
    """Returns the pixels of a window, which the engine will compare with the size of the image."""
    return to_pixels(window, (1 << 31) - 1, (1 << 31) - 1)


def _reopen(kind: type[Dataset], source: Any, options: dict[str, Any]) -> Dataset:
    return kind(source, **options)


def warn_of_notices(report: dict[str, Any] | None) -> None:
    """Issues the notices of a report, about work that the GPU did not do, as warnings."""
    for notice in (report or {}).get("notices", ()):
        warn(notice, DeviceWarning)
