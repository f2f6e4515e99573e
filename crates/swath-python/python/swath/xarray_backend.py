"""The xarray engine `swath`: `xarray.open_dataset(path, engine="swath")`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from xarray.backends import BackendArray, BackendEntrypoint
from xarray.core import indexing

from . import _georef as georef
from ._errors import UsageError
from ._open import View

if TYPE_CHECKING:
    import numpy as np
    import xarray

    from ._lazy import Reader

_ENDINGS = (".tif", ".tiff", ".btf", ".tf8", ".gtiff", ".geotiff")
# Byte order and version of TIFF and BigTIFF.
_MAGIC = (b"II\x2a\x00", b"MM\x00\x2a", b"II\x2b\x00", b"MM\x00\x2b")


class SwathArray(BackendArray):
    """Samples that are read when they are indexed. Any number of threads may do so at once."""

    __slots__ = ("reader",)

    def __init__(self, reader: Reader) -> None:
        self.reader = reader

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        return self.reader.shape

    @property
    def dtype(self) -> np.dtype:
        return self.reader.dtype

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        return indexing.explicit_indexing_adapter(
            key, self.shape, indexing.IndexingSupport.OUTER_1VECTOR, self.reader.__getitem__
        )

    async def async_getitem(self, key: indexing.ExplicitIndexer) -> Any:
        # Reading releases the GIL, so loads that wait for one another's bytes overlap in threads.
        return await asyncio.to_thread(self.__getitem__, key)

    def __dask_tokenize__(self) -> Any:
        return self.reader.__dask_tokenize__()


class SwathBackendEntrypoint(BackendEntrypoint):
    """Opens GeoTIFF and COG files; a dataset has the variable `band_data` over `(band, y, x)`.

    Examples
    --------
    >>> import swath, numpy, io, xarray
    >>> file = io.BytesIO()
    >>> _ = swath.to_geotiff(numpy.ones((3, 4), "uint8"), file)
    >>> xarray.open_dataset(file, engine="swath").band_data.shape
    (1, 3, 4)
    """

    description = "GeoTIFF and Cloud Optimized GeoTIFF"
    url = "https://github.com/swath-raster/swath"
    supports_groups = False
    open_dataset_parameters = (
        "filename_or_obj",
        "drop_variables",
        "mask_and_scale",
        "masked",
        "decode_coords",
        "decode_times",
        "decode_timedelta",
        "overview_level",
        "ifd",
        "window",
        "bbox",
        "band",
        "parse_coordinates",
        "default_name",
        "band_as_variable",
        "device",
        "on_gpu_failure",
        "max_pixels",
        "threads",
        "storage_options",
        "lock",
    )

    def open_dataset(  # type: ignore[override]
        self,
        filename_or_obj: Any,
        *,
        drop_variables: str | Iterable[str] | None = None,
        mask_and_scale: bool | None = True,
        masked: bool = False,
        decode_coords: Any = None,  # noqa: ARG002 - coordinates always come whole
        decode_times: Any = None,  # noqa: ARG002 - there is no time in a raster
        decode_timedelta: Any = None,  # noqa: ARG002
        overview_level: int | None = None,
        ifd: int | None = None,
        window: Any = None,
        bbox: Any = None,
        band: Any = None,
        parse_coordinates: bool | None = True,
        default_name: str = "band_data",
        band_as_variable: bool = False,
        device: Any = None,
        on_gpu_failure: Any = "raise",
        max_pixels: int | None = None,
        threads: int | None = None,
        storage_options: Mapping[str, Any] | None = None,
        lock: Any = None,  # noqa: ARG002 - reads need none
    ) -> xarray.Dataset:
        """Open lazily; the words are those of `swath.open_geotiff`, and of rioxarray's engine.

        `mask_and_scale` is on, as everywhere in xarray: nodata and masked pixels become NaN, scales and offsets of the
        bands are applied. `band_as_variable` gives a variable `band_1`, `band_2`... for each band. `storage_options`
        say how the server or store of an address is asked.
        """
        if band_as_variable and band is not None:
            raise UsageError("band_as_variable opens every band: give no band")

        def opened(source: Any, band: Any) -> View:
            view = View.open(
                source,
                ifd=ifd,
                window=window,
                bbox=bbox,
                band=band,
                overview_level=overview_level,
                masked=masked,
                scaled=mask_and_scale is not False,
                max_pixels=max_pixels,
                threads=threads,
                storage_options=storage_options,
            )
            return view.on_device(device, on_gpu_failure)

        coordinates = parse_coordinates is not False
        view = opened(filename_or_obj, band)
        if band_as_variable:
            dataset = _by_band(view, coordinates)
        else:
            dataset = _lazily(view, default_name, coordinates).to_dataset(name=default_name)
        dataset.encoding["source"] = view.name
        if drop_variables is not None:
            dropped = [drop_variables] if isinstance(drop_variables, str) else list(drop_variables)
            dataset = dataset.drop_vars(dropped, errors="ignore")
        return dataset

    def guess_can_open(self, filename_or_obj: Any) -> bool:
        """By the name, or by the first bytes of what has no name."""
        if isinstance(filename_or_obj, str | os.PathLike):
            name = os.fspath(filename_or_obj)
            if isinstance(name, bytes):
                name = os.fsdecode(name)
            return name.partition("?")[0].partition("#")[0].lower().endswith(_ENDINGS)
        if isinstance(filename_or_obj, bytes | bytearray | memoryview):
            return bytes(filename_or_obj[:4]) in _MAGIC
        if all(hasattr(filename_or_obj, word) for word in ("read", "seek", "tell")):
            at = filename_or_obj.tell()
            try:
                filename_or_obj.seek(0)
                return filename_or_obj.read(4) in _MAGIC
            finally:
                filename_or_obj.seek(at)
        return False


def _lazily(view: View, name: str | None, coordinates: bool) -> xarray.DataArray:
    data = indexing.LazilyIndexedArray(SwathArray(view.reader))
    array = view.labelled(data, name, coordinates, cut=False)
    array.encoding["original_shape"] = view.reader.shape
    return array


def _by_band(view: View, coordinates: bool) -> xarray.Dataset:
    """One variable a band; what is said of the file stays with the dataset, what of a band with its variable."""
    import xarray

    arrays = {}
    for band in view.reader.bands:
        array = _lazily(view.of_band(band), f"band_{band}", coordinates)
        arrays[f"band_{band}"] = array.drop_vars("band")
    return xarray.Dataset(arrays, attrs=georef.tag_attributes(view.metadata["tags"].get("", {})))
