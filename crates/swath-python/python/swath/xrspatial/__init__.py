"""`xrspatial.geotiff` on swath's engine: the same functions, keywords, attributes and errors.

Replace ``from xrspatial.geotiff import open_geotiff, to_geotiff`` by ``from swath.xrspatial import ...``. Bands count
from 0, overview level 0 is the full image, arrays are `(y, x)` or `(y, x, band)`, and attributes follow the contract of
xarray-spatial. `docs/xarray-spatial.md` lists the differences.

>>> import numpy as np, xarray as xr
>>> from swath.xrspatial import open_geotiff, to_geotiff
>>> dem = xr.DataArray(np.eye(4, dtype="float32"), dims=("y", "x"), attrs={"crs": 32633, "nodata": -1.0})
>>> path = to_geotiff(dem, "/tmp/swath-doc-xrspatial.tif")
>>> open_geotiff(path).attrs["crs"]
32633
"""

from . import _accessor
from ._contract import (
    GEOREF_STATUS_CRS_ONLY,
    GEOREF_STATUS_FULL,
    GEOREF_STATUS_NONE,
    GEOREF_STATUS_ROTATED_DROPPED,
    GEOREF_STATUS_TRANSFORM_ONLY,
    GEOREF_STATUS_VALUES,
)
from ._errors import (
    CloudSizeLimitError,
    ConflictingCRSError,
    ConflictingNodataError,
    DegeneratePixelSizeError,
    DuplicateIFDTagError,
    GeoTIFFAmbiguousMetadataError,
    GeoTIFFFallbackWarning,
    InconsistentGeoKeysError,
    InvalidCRSCodeError,
    InvalidIntegerNodataError,
    MalformedScaleOffsetError,
    MixedBandMetadataError,
    NonRepresentableEPSGCRSError,
    NonUniformCoordsError,
    PixelSafetyLimitError,
    RemoteStableSourcesOnlyError,
    RotatedTransformError,
    UnknownCRSModelTypeError,
    UnparseableCRSError,
    UnsafeURLError,
    UnsupportedGeoTIFFFeatureError,
    VRTStableSourcesOnlyError,
    VRTUnsupportedError,
)
from ._read import open_geotiff
from ._write import to_geotiff

_accessor.register()

__all__ = [
    "GEOREF_STATUS_CRS_ONLY",
    "GEOREF_STATUS_FULL",
    "GEOREF_STATUS_NONE",
    "GEOREF_STATUS_ROTATED_DROPPED",
    "GEOREF_STATUS_TRANSFORM_ONLY",
    "GEOREF_STATUS_VALUES",
    "CloudSizeLimitError",
    "ConflictingCRSError",
    "ConflictingNodataError",
    "DegeneratePixelSizeError",
    "DuplicateIFDTagError",
    "GeoTIFFAmbiguousMetadataError",
    "GeoTIFFFallbackWarning",
    "InconsistentGeoKeysError",
    "InvalidCRSCodeError",
    "InvalidIntegerNodataError",
    "MalformedScaleOffsetError",
    "MixedBandMetadataError",
    "NonRepresentableEPSGCRSError",
    "NonUniformCoordsError",
    "PixelSafetyLimitError",
    "RemoteStableSourcesOnlyError",
    "RotatedTransformError",
    "UnknownCRSModelTypeError",
    "UnparseableCRSError",
    "UnsafeURLError",
    "UnsupportedGeoTIFFFeatureError",
    "VRTStableSourcesOnlyError",
    "VRTUnsupportedError",
    "open_geotiff",
    "to_geotiff",
]
