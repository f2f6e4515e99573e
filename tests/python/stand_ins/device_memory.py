"""Memory of the fake driver's device, for the stand-ins of CuPy and torch.

The stand-ins call the same driver that the engine has loaded (`SWATH_CUDA_DRIVER`), on its primary context, as CuPy and
torch do. The host may not touch device memory there, so any accidental read of it ends the process. Arithmetic copies
to the host, computes with NumPy, and copies back.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

LEGACY_STREAM = 1
ON_CPU, ON_CUDA = 1, 2


class DriverError(RuntimeError):
    """The driver refused a call."""


class _Driver:
    """The calls that the stand-ins need, each with the primary context current."""

    def __init__(self) -> None:
        path = os.environ.get("SWATH_CUDA_DRIVER")
        if not path:
            raise DriverError("cudaErrorNoDevice: no CUDA-capable device is detected")
        try:
            self._library = ctypes.CDLL(path)
        except OSError as error:
            raise DriverError(f"cudaErrorInsufficientDriver: {error}") from error
        self._context = ctypes.c_void_p()
        self._check("cuInit", self._library.cuInit(0))
        self._check("cuDevicePrimaryCtxRetain", self._library.cuDevicePrimaryCtxRetain(ctypes.byref(self._context), 0))

    def _check(self, name: str, code: int) -> None:
        if code:
            raise DriverError(f"{name} answers {code}")

    @contextlib.contextmanager
    def _current(self) -> Iterator[None]:
        self._check("cuCtxPushCurrent", self._library.cuCtxPushCurrent_v2(self._context))
        try:
            yield
        finally:
            self._library.cuCtxPopCurrent_v2(None)

    def call(self, name: str, *arguments: Any) -> None:
        with self._current():
            self._check(name, getattr(self._library, name)(*arguments))

    def allocate(self, size: int) -> int:
        address = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        return int(address.value)

    def free(self, address: int) -> None:
        self.call("cuMemFree_v2", ctypes.c_uint64(address))

    def upload(self, address: int, values: np.ndarray) -> None:
        source, size, stream = ctypes.c_void_p(values.ctypes.data), ctypes.c_size_t(values.nbytes), current_stream()
        self.call("cuMemcpyHtoDAsync_v2", ctypes.c_uint64(address), source, size, ctypes.c_void_p(stream))

    def download(self, values: np.ndarray, address: int) -> None:
        target, size, stream = ctypes.c_void_p(values.ctypes.data), ctypes.c_size_t(values.nbytes), current_stream()
        self.call("cuMemcpyDtoHAsync_v2", target, ctypes.c_uint64(address), size, ctypes.c_void_p(stream))
        self.call("cuStreamSynchronize", ctypes.c_void_p(stream))

    def memory(self) -> tuple[int, int]:
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return int(free.value), int(total.value)

    def count(self, what: str) -> int:
        """A counter of the fake driver."""
        counted = self._library.swath_fake_count
        counted.restype = ctypes.c_uint64
        return int(counted(what.encode()))


_loaded: _Driver | None = None
_lock = threading.Lock()
_local = threading.local()


def driver() -> _Driver:
    """The driver, loaded when it is first needed."""
    global _loaded
    if _loaded is None:
        with _lock:
            _loaded = _loaded or _Driver()
    return _loaded


def device_count() -> int:
    driver()
    return 1


# Streams ------------------------------------------------------------------------------------------------------------


def current_stream() -> int:
    """The handle of this thread's current stream; 0 is the default stream."""
    return getattr(_local, "stream", 0)


def set_current_stream(handle: int) -> None:
    _local.stream = handle


def make_stream(*, non_blocking: bool) -> int:
    handle = ctypes.c_void_p()
    driver().call("cuStreamCreate", ctypes.byref(handle), ctypes.c_uint(1 if non_blocking else 0))
    return int(handle.value or 0)


def drop_stream(handle: int) -> None:
    driver().call("cuStreamDestroy_v2", ctypes.c_void_p(handle))


def wait_for(handle: int) -> None:
    driver().call("cuStreamSynchronize", ctypes.c_void_p(handle))


def synchronize() -> None:
    driver().call("cuCtxSynchronize")


def let_wait(consumer: int, producer: int) -> None:
    """Makes one stream wait for the work that the other has so far."""
    event = ctypes.c_void_p()
    driver().call("cuEventCreate", ctypes.byref(event), ctypes.c_uint(2))
    driver().call("cuEventRecord", event, ctypes.c_void_p(producer))
    driver().call("cuStreamWaitEvent", ctypes.c_void_p(consumer), event, ctypes.c_uint(0))
    driver().call("cuEventDestroy_v2", event)


# Memory -------------------------------------------------------------------------------------------------------------


class Block:
    """Bytes on the device: our own, or those of an object that this one keeps alive."""

    def __init__(self, address: int, owner: Any = None, *, owned: bool = False) -> None:
        self.address, self.owner, self._owned = address, owner, owned

    @classmethod
    def of_size(cls, size: int) -> Block:
        return cls(driver().allocate(max(size, 1)), owned=True)

    def __del__(self) -> None:
        # When the interpreter ends, the driver can no longer be called.
        if self._owned and not sys.is_finalizing():
            # A broken context reports its fault again, but still frees the memory.
            with contextlib.suppress(DriverError):
                driver().free(self.address)


def _c_order(shape: tuple[int, ...], size: int) -> tuple[int, ...]:
    steps = []
    for length in reversed(shape):
        steps.append(size)
        size *= max(length, 1)
    return tuple(reversed(steps))


class Span:
    """An array of any strides on the device."""

    def __init__(
        self,
        block: Block,
        address: int,
        shape: tuple[int, ...],
        dtype: np.dtype,
        strides: tuple[int, ...] | None = None,
    ) -> None:
        self.block, self.address, self.shape, self.dtype = block, address, tuple(shape), np.dtype(dtype)
        self.strides = _c_order(self.shape, self.dtype.itemsize) if strides is None else tuple(strides)

    @classmethod
    def empty(cls, shape: tuple[int, ...], dtype: Any, order: str = "C") -> Span:
        dtype = np.dtype(dtype)
        block = Block.of_size(int(np.prod(shape, dtype=np.int64)) * dtype.itemsize)
        strides = _c_order(tuple(reversed(shape)), dtype.itemsize)[::-1] if order == "F" else None
        return cls(block, block.address, shape, dtype, strides)

    @classmethod
    def of_host(cls, values: np.ndarray) -> Span:
        made = cls.empty(values.shape, values.dtype)
        made.put(values)
        return made

    @classmethod
    def of_interface(cls, owner: Any) -> Span:
        """The memory that `__cuda_array_interface__` names, without a copy."""
        found = owner.__cuda_array_interface__
        if found.get("stream") not in (None, current_stream()):
            let_wait(current_stream(), found["stream"])
        address, _ = found["data"]
        return cls(Block(address, owner), address, found["shape"], np.dtype(found["typestr"]), found.get("strides"))

    @property
    def is_c_order(self) -> bool:
        dense = _c_order(self.shape, self.dtype.itemsize)
        return not self.size or all(a == b or n == 1 for a, b, n in zip(self.strides, dense, self.shape))

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    def _reach(self) -> tuple[int, int]:
        """Bytes that the samples span before the first one, and from it on."""
        steps = [(length - 1) * step for length, step in zip(self.shape, self.strides)]
        return -sum(min(0, step) for step in steps), sum(max(0, step) for step in steps) + self.dtype.itemsize

    def get(self) -> np.ndarray:
        """A copy on the host."""
        if not self.size:
            return np.empty(self.shape, self.dtype)
        before, after = self._reach()
        memory = np.empty(before + after, np.uint8)
        driver().download(memory, self.address - before)
        return np.ndarray(self.shape, self.dtype, memory, before, self.strides).copy()

    def put(self, values: Any) -> None:
        """Copies from the host; bytes between the samples stay as they are."""
        if not self.size:
            return
        values = np.broadcast_to(values, self.shape)
        if self.is_c_order:
            driver().upload(self.address, np.ascontiguousarray(values, dtype=self.dtype))
            return
        before, after = self._reach()
        memory = np.empty(before + after, np.uint8)
        driver().download(memory, self.address - before)
        np.ndarray(self.shape, self.dtype, memory, before, self.strides)[...] = values
        driver().upload(self.address - before, memory)

    def _view(self, change: Callable[[np.ndarray], np.ndarray]) -> Span:
        """Applies `change`, which must not read samples, to a NumPy array of this shape and these strides."""
        like = np.lib.stride_tricks.as_strided(np.empty(1, self.dtype), self.shape, self.strides)
        made = change(like)
        shift = made.__array_interface__["data"][0] - like.__array_interface__["data"][0]
        return Span(self.block, self.address + shift, made.shape, self.dtype, made.strides)

    def at(self, key: Any) -> Span:
        """A view by integers, slices, None and Ellipsis."""
        keys = key if isinstance(key, tuple) else (key,)
        # Without it NumPy would read the single sample that an index of integers selects.
        keys = keys if any(part is Ellipsis for part in keys) else (*keys, Ellipsis)
        return self._view(lambda like: like[keys])

    def permuted(self, axes: tuple[int, ...]) -> Span:
        return self._view(lambda like: like.transpose(axes))

    def broadcast(self, shape: tuple[int, ...]) -> Span:
        return self._view(lambda like: np.broadcast_to(like, shape))

    def reshaped(self, shape: tuple[int, ...]) -> Span:
        dense = self if self.is_c_order else Span.of_host(self.get())
        known = -int(np.prod(shape, dtype=np.int64)) if -1 in shape else 1
        shape = tuple(dense.size // known if length == -1 else length for length in shape)
        if int(np.prod(shape, dtype=np.int64)) != self.size:
            raise ValueError(f"cannot reshape array of size {self.size} into shape {shape}")
        return Span(dense.block, dense.address, shape, self.dtype)


def is_basic(key: Any) -> bool:
    """Whether an index gives a view."""
    keys = key if isinstance(key, tuple) else (key,)
    whole = (int, np.integer, slice, type(None), type(Ellipsis))
    return all(isinstance(part, whole) and not isinstance(part, (bool, np.bool_)) for part in keys)


# DLPack -------------------------------------------------------------------------------------------------------------


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Managed(ctypes.Structure):
    _fields_ = (("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", _Deleter))


class _Versioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", _Deleter),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


_CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}
_KINDS = {code: kind for kind, code in _CODES.items()}
_OLD, _NEW = b"dltensor", b"dltensor_versioned"
# Objects that keep lent tensors alive, by the tensor's address, until the deleter is called.
_lent: dict[int, Any] = {}

_python = ctypes.pythonapi
_Destructor = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_python.PyCapsule_New.restype = ctypes.py_object
_python.PyCapsule_New.argtypes = (ctypes.c_void_p, ctypes.c_char_p, _Destructor)
_python.PyCapsule_IsValid.argtypes = (ctypes.c_void_p, ctypes.c_char_p)
_python.PyCapsule_GetPointer.restype = ctypes.c_void_p
_python.PyCapsule_GetPointer.argtypes = (ctypes.c_void_p, ctypes.c_char_p)
_python.PyCapsule_SetName.argtypes = (ctypes.c_void_p, ctypes.c_char_p)


@_Deleter
def _give_back(address: int) -> None:
    _lent.pop(address, None)


@_Destructor
def _drop(capsule: int) -> None:
    # A capsule whose tensor was taken has another name.
    for name in (_OLD, _NEW):
        if _python.PyCapsule_IsValid(capsule, name):
            _lent.pop(_python.PyCapsule_GetPointer(capsule, name), None)


def lend(owner: Any, address: int, span: Any, device: int, *, versioned: bool) -> Any:
    """A DLPack capsule of an array with shape, strides and dtype, which `owner` keeps alive."""
    managed: Any = _Versioned() if versioned else _Managed()
    shape = (ctypes.c_int64 * max(len(span.shape), 1))(*span.shape)
    steps = [step // span.dtype.itemsize for step in span.strides]
    strides = (ctypes.c_int64 * max(len(steps), 1))(*steps)
    tensor = managed.tensor
    tensor.data, tensor.device_type, tensor.device_id, tensor.ndim = address, device, 0, len(span.shape)
    tensor.code, tensor.bits, tensor.lanes = _CODES[span.dtype.kind], span.dtype.itemsize * 8, 1
    tensor.shape = ctypes.cast(shape, ctypes.POINTER(ctypes.c_int64))
    tensor.strides = ctypes.cast(strides, ctypes.POINTER(ctypes.c_int64))
    managed.deleter = _give_back
    if versioned:
        managed.major, managed.minor = 1, 0
    place = ctypes.addressof(managed)
    _lent[place] = (owner, managed, shape, strides)
    return _python.PyCapsule_New(place, _NEW if versioned else _OLD, _drop)


class _Taken:
    """A tensor of another library; releases it when it is no longer needed."""

    def __init__(self, place: int, deleter: Any) -> None:
        self._place, self._deleter = place, deleter

    def __del__(self) -> None:
        if self._deleter and not sys.is_finalizing():
            self._deleter(self._place)


def take(capsule: Any) -> tuple[int, Any, tuple[int, ...], tuple[int, ...] | None, np.dtype, int]:
    """The contents of a capsule: address, owner, shape, strides in bytes, dtype and kind of device."""
    handle = id(capsule)
    for name, used, kind in ((_OLD, b"used_dltensor", _Managed), (_NEW, b"used_dltensor_versioned", _Versioned)):
        if not _python.PyCapsule_IsValid(handle, name):
            continue
        place = _python.PyCapsule_GetPointer(handle, name)
        managed: Any = kind.from_address(place)
        _python.PyCapsule_SetName(handle, used)
        tensor = managed.tensor
        dtype = np.dtype(f"{_KINDS[tensor.code]}{tensor.bits // 8}" if tensor.code != _CODES["b"] else "?")
        shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
        strides = tuple(tensor.strides[i] * dtype.itemsize for i in range(tensor.ndim)) if tensor.strides else None
        keep = _Taken(place, managed.deleter)
        return (tensor.data or 0) + tensor.byte_offset, keep, shape, strides, dtype, tensor.device_type
    raise ValueError("a DLPack tensor may be consumed at most once")
