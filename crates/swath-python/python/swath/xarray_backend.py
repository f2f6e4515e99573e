"""The xarray engine `swath`: `xarray.open_dataset(path, engine="swath")`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from xarray.backends import BackendEntrypoint

from ._checks import check_decode_coords
from .rioxarray import open_rasterio

if TYPE_CHECKING:
    import xarray

_ENDINGS = (".tif", ".tiff", ".btf", ".tf8", ".gtiff", ".geotiff")
# First bytes of TIFF and BigTIFF: byte order and version.
_MAGIC = (b"II\x2a\x00", b"MM\x00\x2a", b"II\x2b\x00", b"MM\x00\x2b")


class SwathBackendEntrypoint(BackendEntrypoint):
    """Opens GeoTIFF and COG files; a dataset has the variable `band_data` over `(band, y, x)`.

    When an engine is first given by name, xarray imports every installed engine, such as rioxarray's with rasterio and
    dask. Where that takes too long, give this class: `xarray.open_dataset(path, engine=SwathBackendEntrypoint)`.

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
        "bbox_crs",
        "band",
        "parse_coordinates",
        "default_name",
        "band_as_variable",
        "variable",
        "group",
        "device",
        "on_gpu_failure",
        "max_pixels",
        "threads",
        "storage_options",
        "lock",
        "open_kwargs",
    )

    def open_dataset(  # type: ignore[override]
        self,
        filename_or_obj: Any,
        *,
        drop_variables: str | Iterable[str] | None = None,
        mask_and_scale: bool | None = True,
        decode_coords: Any = None,
        default_name: str = "band_data",
        band_as_variable: bool = False,
        open_kwargs: Mapping[str, Any] | None = None,
        **keywords: Any,
    ) -> xarray.Dataset:
        """Open lazily, with the keywords of rioxarray's engine and of `swath.open_geotiff`.

        `filename_or_obj` is what `swath.open_geotiff` takes as its source, `drop_variables` names variables to leave
        out, `decode_coords` may not be False, `default_name` is the name of the variable, and `keywords` are further
        ones of `swath.open_geotiff`.

        `mask_and_scale` is on, as everywhere in xarray: nodata and masked pixels become NaN, and the scales and offsets
        of the bands are applied. `band_as_variable` returns a variable `band_1`, `band_2`... for each band.
        `storage_options` are settings for the server or store of an address. `open_kwargs` are keywords of
        `rasterio.open`.
        """
        check_decode_coords(decode_coords)
        # xarray has a cache of its own.
        opened = open_rasterio(
            filename_or_obj,
            cache=False,
            mask_and_scale=mask_and_scale is not False,
            default_name=default_name,
            band_as_variable=band_as_variable,
            **keywords,
            **dict(open_kwargs or {}),
        )
        dataset = opened if band_as_variable else opened.to_dataset(name=default_name)
        for array in dataset.data_vars.values():
            array.encoding["original_shape"] = array.shape
            dataset.encoding["source"] = array.encoding["source"]
        if drop_variables is not None:
            dropped = [drop_variables] if isinstance(drop_variables, str) else list(drop_variables)
            dataset = dataset.drop_vars(dropped, errors="ignore")
        return dataset

    def guess_can_open(self, filename_or_obj: Any) -> bool:
        """Whether the name in `filename_or_obj`, or without one its first bytes, are those of a TIFF."""
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
