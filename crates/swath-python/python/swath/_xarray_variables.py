"""Makes xarray objects of opened files, read now, when they are indexed, or by dask."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from xarray.backends import BackendArray
from xarray.core import indexing

from . import _georef as georef
from . import _swath
from ._errors import UsageError
from ._lazy import STOP, block_chunks, dask_array

if TYPE_CHECKING:
    import numpy as np
    import xarray

    from ._lazy import Reader
    from ._open import View

_NO_DASK = "chunks= returns dask arrays, and dask cannot be imported: `pip install swath[dask]`"


class SwathArray(BackendArray):
    """Samples that are read when they are indexed, by any number of threads at once."""

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
        # Reads release the GIL, so the event loop runs on, and several loads overlap in threads.
        stop = _swath.Cancel()
        token = STOP.set(stop)
        try:
            return await asyncio.to_thread(self.__getitem__, key)
        except asyncio.CancelledError:
            stop.cancel()
            raise
        finally:
            STOP.reset(token)

    def __dask_tokenize__(self) -> Any:
        return self.reader.__dask_tokenize__()


@dataclass(frozen=True)
class Loading:
    """When samples are read: now, by dask where there are `chunks`, or when a `lazy` array is indexed."""

    chunks: Any = None
    lazy: bool = False
    # Whether a lazy array keeps samples once they are read.
    cache: bool = False

    @classmethod
    def of(cls, chunks: Any, lazy: bool | None, cache: bool | None) -> Loading:
        """Reads the keywords of `open_geotiff`; `cache` implies a lazy array, as in rioxarray."""
        if chunks is not None:
            if lazy is False:
                raise UsageError(f"chunks={chunks!r} returns a lazy dask array: leave out lazy=False, or chunks")
            return cls(chunks=chunks)
        if lazy is False and cache is not None:
            raise UsageError(f"lazy=False reads now, and cache={cache!r} is about lazy arrays: leave out one of them")
        return cls(lazy=lazy or cache is not None, cache=cache is not False)

    @property
    def now(self) -> bool:
        return self.chunks is None and not self.lazy

    def array(self, view: View) -> Any:
        """Returns the samples of a view."""
        reader = view.reader
        if self.chunks is not None:
            together = view.metadata["interleave"] == "pixel"
            try:
                return dask_array(reader, block_chunks(self.chunks, reader, view.block, together))
            except ImportError as error:
                raise ImportError(f"{_NO_DASK} ({error})") from error
        if self.lazy:
            # Assigned values stay in memory; the file is not changed.
            lazy: Any = indexing.LazilyIndexedArray(SwathArray(reader))
            data = indexing.CopyOnWriteArray(lazy)
            return indexing.MemoryCachedArray(data) if self.cache else data
        data = reader.read()
        return data[0] if reader.flat else data


def as_one(view: View, loading: Loading, name: str | None, coordinates: bool) -> xarray.DataArray:
    """Returns all bands as one array."""
    return view.labelled(loading.array(view), name, coordinates, loading.chunks is not None)


def by_band(view: View, loading: Loading, coordinates: bool) -> xarray.Dataset:
    """Returns one variable for each band; the dataset gets the attributes of the file, a variable those of its band."""
    import xarray

    # A block may hold all bands: read them together, so that it is decoded once.
    together = loading.array(view) if loading.now else None
    arrays = {}
    for at, band in enumerate(view.reader.bands):
        one = view.of_band(band)
        data = loading.array(one) if together is None else together[at]
        name = f"band_{band}"
        arrays[name] = one.labelled(data, name, coordinates, loading.chunks is not None).drop_vars("band")
    dataset = xarray.Dataset(arrays, attrs=georef.tag_attributes(view.metadata["tags"].get("", {})))
    # Only the default domain becomes attributes; `to_geotiff` writes the others too.
    dataset.encoding["tags"] = {domain: items for domain, items in view.metadata["tags"].items() if domain}
    return dataset
