"""Names of devices, and whether an array is on a GPU."""

from __future__ import annotations

import os
import sys
from typing import Any, Literal

import numpy as np

from ._errors import UsageError

# `library_folders` runs at import, where pathlib would take half of the time.
# ruff: noqa: PTH100, PTH112, PTH118


def device_name(device: Any) -> Literal["cpu", "cuda", "auto"] | None:
    """Returns the engine's name of a device that a caller names by a word, or as a device of torch or CuPy."""
    if device is None:
        return None
    if isinstance(device, str):
        text, _, number = device.lower().partition(":")
    else:
        text = str(getattr(device, "type", "cuda" if hasattr(device, "id") else device)).lower()
        number = str(getattr(device, "index", getattr(device, "id", None)) or "")
    if text == "gpu":
        text = "cuda"
    if text not in ("cpu", "cuda", "auto"):
        raise UsageError(f"device: {device!r} is not cpu, cuda (or gpu) or auto")
    if text == "cuda" and number not in ("", "0"):
        raise UsageError(f"device: {device!r}: swath uses the first GPU; choose another with CUDA_VISIBLE_DEVICES")
    return text  # type: ignore[return-value]


def library_folders() -> list[str]:
    """Returns the folders of `sys.path` in which NVIDIA's wheels are installed."""
    found = (os.path.abspath(folder) for folder in sys.path if os.path.isdir(os.path.join(folder, "nvidia")))
    return list(dict.fromkeys(found))


def is_on_gpu(array: Any) -> bool:
    """Whether an array is in GPU memory."""
    if isinstance(array, np.ndarray):
        return False
    try:
        if array.__cuda_array_interface__ is not None:
            return True
    # A host array may have the attribute and raise on access, with an exception that depends on the library.
    except Exception:
        pass
    where = getattr(array, "__dlpack_device__", None)
    # kDLCUDA and kDLCUDAManaged.
    return where is not None and int(where()[0]) in (2, 13)
