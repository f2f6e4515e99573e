"""GeoTIFF and COG, read and written as fast as the hardware allows.

>>> import numpy as np, swath
>>> path = swath.to_geotiff(np.ones((256, 256), "float32"), "/tmp/swath-doc-init.tif", crs="EPSG:32633", cog=True)
>>> swath.Dataset(path).shape
(1, 256, 256)
"""

from __future__ import annotations

import sys
import warnings

from . import _device, _swath
from ._array import Array
from ._dataset import Dataset
from ._errors import (
    AllocationError,
    CancelledError,
    ChangedError,
    DeniedError,
    DeviceError,
    DeviceWarning,
    DirectoryError,
    Error,
    FormatError,
    InternalError,
    LimitError,
    MissingError,
    MissingFolderError,
    SourceError,
    SwathWarning,
    TimedOutError,
    UnavailableError,
    UnsupportedError,
    UsageError,
    WriteDeniedError,
    WriteError,
    WriteTimedOutError,
    WriteUnavailableError,
)
from ._inspect import devices, info, stats, validate
from ._open import open_geotiff
from ._read import read
from ._swath import __version__
from ._window import Window
from ._write import to_geotiff

if _folders := _device.library_folders():
    _swath.add_library_folders(_folders)

if _swath._debug_build:
    warnings.warn("this is a debug build of swath, many times slower than a release build", SwathWarning, stacklevel=2)

# Registers the accessor `.swath` where xarray is imported already; others do not pay for its import.
if sys.modules.get("xarray") is not None:
    from . import accessor as accessor

__all__ = [
    "AllocationError",
    "Array",
    "CancelledError",
    "ChangedError",
    "Dataset",
    "DeniedError",
    "DeviceError",
    "DeviceWarning",
    "DirectoryError",
    "Error",
    "FormatError",
    "InternalError",
    "LimitError",
    "MissingError",
    "MissingFolderError",
    "SourceError",
    "SwathWarning",
    "TimedOutError",
    "UnavailableError",
    "UnsupportedError",
    "UsageError",
    "Window",
    "WriteDeniedError",
    "WriteError",
    "WriteTimedOutError",
    "WriteUnavailableError",
    "__version__",
    "devices",
    "info",
    "open_geotiff",
    "read",
    "stats",
    "to_geotiff",
    "validate",
]
