"""The errors of `xrspatial.geotiff` under their own names, each of them one of swath's as well."""

from __future__ import annotations

from .._errors import DeniedError, FormatError, LimitError, SwathWarning, UnsupportedError, UsageError


class GeoTIFFAmbiguousMetadataError(UsageError):
    """The metadata of a file or of an array can be understood in two ways, or in none."""


class InvalidCRSCodeError(GeoTIFFAmbiguousMetadataError):
    """No reference system has this code."""


class UnparseableCRSError(GeoTIFFAmbiguousMetadataError):
    """The text of a reference system is neither WKT nor anything else that is understood."""


class RotatedTransformError(GeoTIFFAmbiguousMetadataError):
    """The grid is rotated or sheared, and `allow_rotated` does not allow it."""


class DegeneratePixelSizeError(GeoTIFFAmbiguousMetadataError):
    """The file declares pixels without a size."""


class NonUniformCoordsError(GeoTIFFAmbiguousMetadataError):
    """The coordinates are not evenly spaced, so no transform describes them."""


class MixedBandMetadataError(GeoTIFFAmbiguousMetadataError):
    """The bands differ in something that the result has once only."""


class ConflictingCRSError(GeoTIFFAmbiguousMetadataError):
    """`attrs["crs"]` and `attrs["crs_wkt"]` are different reference systems."""


class ConflictingNodataError(GeoTIFFAmbiguousMetadataError):
    """Attributes name different values of missing samples."""


class InconsistentGeoKeysError(GeoTIFFAmbiguousMetadataError):
    """The GeoKeys of a file contradict each other."""


class InvalidIntegerNodataError(GeoTIFFAmbiguousMetadataError):
    """The samples are integers, and the value of missing ones is none."""


class MalformedScaleOffsetError(GeoTIFFAmbiguousMetadataError):
    """The scale or offset of a band is no usable number."""


class UnknownCRSModelTypeError(GeoTIFFAmbiguousMetadataError):
    """A code is neither that of a geographic nor that of a projected reference system."""


class NonRepresentableEPSGCRSError(GeoTIFFAmbiguousMetadataError):
    """A GeoTIFF has no place for this reference system."""


class VRTUnsupportedError(GeoTIFFAmbiguousMetadataError):
    """The source is a VRT, which swath does not read."""


class VRTStableSourcesOnlyError(GeoTIFFAmbiguousMetadataError):
    """The source is a VRT, and `stable_only` allows local GeoTIFFs only."""


class RemoteStableSourcesOnlyError(GeoTIFFAmbiguousMetadataError):
    """The source is behind an address, and `stable_only` allows local GeoTIFFs only."""


class UnsupportedGeoTIFFFeatureError(UnsupportedError, ValueError):
    """The caller asked for something that is not supported."""


class DuplicateIFDTagError(FormatError):
    """A directory of the file has a tag twice."""


class PixelSafetyLimitError(LimitError):
    """More samples are asked for than `max_pixels` allows."""


class CloudSizeLimitError(LimitError):
    """An object in a store is larger than `max_cloud_bytes` allows."""


class UnsafeURLError(DeniedError, ValueError):
    """An address may not be asked."""


class NoSuchBandError(UsageError, IndexError):
    """The file has no band of this number."""


class GeoTIFFFallbackWarning(SwathWarning):
    """Something asked for has no effect here."""


class WrongTypeError(UsageError, TypeError):
    """A value is not of a type that the word takes."""
