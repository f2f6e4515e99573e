"""Words for where the work is done."""

from __future__ import annotations

import os
import sys
from typing import Any

import numpy as np

from ._errors import UsageError

# Run when the package is imported, where a Path for each folder would be half of the time.
# ruff: noqa: PTH100, PTH112, PTH118


def word(device: Any, gpu: bool | None = None) -> str | None:
    """`cpu`, `cuda`, `auto` or nothing, from what users write: a word, ``gpu=True``, a device of torch or CuPy."""
    if gpu is not None:
        if device is not None:
            raise UsageError("device= and gpu= say the same thing: give one of them")
        return "cuda" if gpu else "cpu"
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
        raise UsageError(f"device: {device!r}: the first GPU is used; choose another with CUDA_VISIBLE_DEVICES")
    return text


def library_folders() -> list[str]:
    """Folders in which NVIDIA's wheels are installed: any of those that packages are imported from may have some."""
    found = (os.path.abspath(folder) for folder in sys.path if os.path.isdir(os.path.join(folder, "nvidia")))
    return list(dict.fromkeys(found))


def is_on_gpu(array: Any) -> bool:
    """Whether an array is in the memory of a GPU."""
    if isinstance(array, np.ndarray):
        return False
    try:
        if array.__cuda_array_interface__ is not None:
            return True
    # An array on the host may have the attribute and refuse it, each library with another exception.
    except Exception:
        pass
    where = getattr(array, "__dlpack_device__", None)
    return where is not None and int(where()[0]) in (2, 13)
