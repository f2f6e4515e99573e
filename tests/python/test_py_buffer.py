"""The buffer protocol of the engine's arrays, flag by flag, as a C extension uses it."""

from __future__ import annotations

import ctypes
import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import swath as sw
from swath import _swath

SIMPLE, WRITABLE, FORMAT, ND, STRIDES = 0, 0x1, 0x4, 0x8, 0x10 | 0x8
C, FORTRAN, ANY, INDIRECT = 0x20 | STRIDES, 0x40 | STRIDES, 0x80 | STRIDES, 0x100 | STRIDES
CONTIG, STRIDED = ND | WRITABLE, STRIDES | WRITABLE
RECORDS, FULL = STRIDED | FORMAT, INDIRECT | WRITABLE | FORMAT


class View(ctypes.Structure):
    _fields_ = (
        ("buf", ctypes.c_void_p), ("obj", ctypes.c_void_p), ("len", ctypes.c_ssize_t), ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int), ("ndim", ctypes.c_int), ("format", ctypes.c_char_p),
        ("shape", ctypes.POINTER(ctypes.c_ssize_t)), ("strides", ctypes.POINTER(ctypes.c_ssize_t)),
        ("suboffsets", ctypes.POINTER(ctypes.c_ssize_t)), ("internal", ctypes.c_void_p),
    )  # fmt: skip


get = ctypes.pythonapi.PyObject_GetBuffer
get.argtypes = (ctypes.py_object, ctypes.POINTER(View), ctypes.c_int)
release = ctypes.pythonapi.PyBuffer_Release
release.argtypes = (ctypes.POINTER(View),)


@contextmanager
def viewed(array: object, flags: int) -> Iterator[View]:
    view = View()
    get(array, ctypes.byref(view), flags)
    try:
        yield view
    finally:
        release(ctypes.byref(view))


def array(shape: tuple[int, ...]) -> _swath.Array:
    """The engine's own array, whose memory the NumPy array of `read` uses."""
    out = io.BytesIO()
    sw.to_geotiff(np.arange(np.prod(shape), dtype="uint16").reshape(shape), out)
    found: Any = sw.read(out.getvalue())
    while not isinstance(found, _swath.Array):
        found = found.obj if isinstance(found, memoryview) else found.base
    return found


@pytest.mark.parametrize(
    "flags", [SIMPLE, WRITABLE, FORMAT, ND, STRIDES, C, ANY, INDIRECT, CONTIG, STRIDED, RECORDS, FULL]
)
def test_views_have_the_requested_fields(flags: int) -> None:
    source = array((3, 4, 5))
    with viewed(source, flags) as view:
        assert (view.len, view.itemsize, view.readonly) == (120, 2, 0)
        assert view.format == (b"H" if flags & FORMAT else None)
        assert bool(view.shape) == bool(flags & ND) and bool(view.strides) == (flags & STRIDES == STRIDES)
        assert not view.suboffsets
        if view.shape:
            assert view.ndim == 3 and view.shape[:3] == [3, 4, 5]
        if view.strides:
            assert view.strides[:3] == [40, 10, 2]


@pytest.mark.parametrize("flags", [FORTRAN, FORTRAN | FORMAT, FORTRAN | WRITABLE])
def test_a_memory_order_that_samples_lack_is_refused(flags: int) -> None:
    source = array((3, 4, 5))
    view = View()
    with pytest.raises(BufferError, match="Fortran order"):
        get(source, ctypes.byref(view), flags)
    assert not view.obj


@pytest.mark.parametrize("shape", [(1, 1, 5), (1, 4, 1), (1, 1, 1)])
def test_one_axis_is_in_every_order(shape: tuple[int, ...]) -> None:
    for flags in (C, FORTRAN, ANY):
        with viewed(array(shape), flags) as view:
            assert view.shape[:3] == list(shape)
    assert np.asarray(array(shape)).flags.f_contiguous


def test_readers_of_buffers_agree() -> None:
    source = array((3, 4, 5))
    assert memoryview(source).c_contiguous and not memoryview(source).f_contiguous
    assert bytes(source) == np.arange(60, dtype="uint16").tobytes()
