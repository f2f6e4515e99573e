"""`read`: samples of a file in one call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from ._dataset import Bands, Dataset
from ._errors import ChangedError
from ._handles import opened, shared


def read(
    source: Any,
    bands: Bands = None,
    window: Any = None,
    *,
    overview_level: int | None = None,
    interleave: Literal["band", "pixel"] = "band",
    device: Any = None,
    out: Any = None,
    max_pixels: int | None = None,
    storage_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> Any:
    """Reads samples of a file; see :meth:`Dataset.read`. The handle stays open for the next read of the same file.

    A file behind an address is checked for changes every ten seconds: two reads may see two versions of it, each of
    them complete. Reads of one :class:`Dataset` never do.

    Parameters
    ----------
    source
        As for :class:`Dataset`, or a dataset.
    bands, window, overview_level, interleave, device, out
        As for :meth:`Dataset.read`.
    max_pixels, storage_options
        As for :class:`Dataset`.
    **options
        Further keywords of :meth:`Dataset.read`: `bbox`, `masked`, `boundless`, `threads`, ...

    Examples
    --------
    >>> import numpy as np, swath
    >>> path = swath.to_geotiff(np.arange(12, dtype="float32").reshape(3, 4), "/tmp/swath-doc-read.tif")
    >>> swath.read(path, 1, window=swath.Window(1, 0, 2, 2))
    array([[1., 2.],
           [5., 6.]], dtype=float32)
    """
    options |= {"overview_level": overview_level, "interleave": interleave, "device": device, "out": out}
    try:
        return opened(source, storage_options, max_pixels=max_pixels).read(bands, window, **options)
    except ChangedError:
        if isinstance(source, Dataset):
            raise
        # The shared handle is older than the change.
        limit: dict[str, Any] = {} if max_pixels is None else {"max_pixels": max_pixels}
        return shared(source, storage_options, anew=True, **limit).read(bands, window, **options)
