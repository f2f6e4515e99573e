"""The errors of `xrspatial.geotiff` under their own names; each is also one of swath's."""

from __future__ import annotations

from .._errors import DeniedError, FormatError, LimitError, SwathWarning, UnsupportedError, UsageError


class GeoTIFFAmbiguousMetadataError(UsageError):
    """The metadata of a file or of an array is ambiguous or contradictory."""


class InvalidCRSCodeError(GeoTIFFAmbiguousMetadataError):
    """No reference system has this code."""


class UnparseableCRSError(GeoTIFFAmbiguousMetadataError):
    """The text of a reference system cannot be parsed."""


class RotatedTransformError(GeoTIFFAmbiguousMetadataError):
    """The grid is rotated or sheared, and `allow_rotated` is not set."""


class DegeneratePixelSizeError(GeoTIFFAmbiguousMetadataError):
    """The file declares a pixel size of zero, or one that is not finite."""


class NonUniformCoordsError(GeoTIFFAmbiguousMetadataError):
    """The coordinates are not evenly spaced, so no transform describes them."""


class MixedBandMetadataError(GeoTIFFAmbiguousMetadataError):
    """The bands differ in a value that the result can have only once."""


class ConflictingCRSError(GeoTIFFAmbiguousMetadataError):
    """`attrs["crs"]` and `attrs["crs_wkt"]` are different reference systems."""


class ConflictingNodataError(GeoTIFFAmbiguousMetadataError):
    """Attributes state different nodata values."""


class InconsistentGeoKeysError(GeoTIFFAmbiguousMetadataError):
    """The GeoKeys of a file contradict each other."""


class InvalidIntegerNodataError(GeoTIFFAmbiguousMetadataError):
    """The samples are integers, and the nodata value is not."""


class MalformedScaleOffsetError(GeoTIFFAmbiguousMetadataError):
    """The scale or offset of a band is not a usable number."""


class UnknownCRSModelTypeError(GeoTIFFAmbiguousMetadataError):
    """A code is neither that of a geographic nor that of a projected reference system."""


class NonRepresentableEPSGCRSError(GeoTIFFAmbiguousMetadataError):
    """A GeoTIFF cannot store this reference system."""


class VRTUnsupportedError(GeoTIFFAmbiguousMetadataError):
    """The source is a VRT, which swath does not read."""


class VRTStableSourcesOnlyError(GeoTIFFAmbiguousMetadataError):
    """The source is a VRT, and `stable_only` allows local GeoTIFFs only."""


class RemoteStableSourcesOnlyError(GeoTIFFAmbiguousMetadataError):
    """The source is behind an address, and `stable_only` allows local GeoTIFFs only."""


class UnsupportedGeoTIFFFeatureError(UnsupportedError, ValueError):
    """The caller asked for a feature that is not supported."""


class DuplicateIFDTagError(FormatError):
    """A directory of the file has a tag twice."""


class PixelSafetyLimitError(LimitError):
    """A read has more samples than `max_pixels` allows."""


class CloudSizeLimitError(LimitError):
    """An object in a store is larger than `max_cloud_bytes` allows."""


class UnsafeURLError(DeniedError, ValueError):
    """The address is not permitted."""


class NoSuchBandError(UsageError, IndexError):
    """The file has no band with this number."""


class GeoTIFFFallbackWarning(SwathWarning):
    """An argument has no effect here."""


class WrongTypeError(UsageError, TypeError):
    """An argument has the wrong type."""
