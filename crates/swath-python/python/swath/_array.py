"""The arrays that reads return: NumPy arrays in host memory, and GPU arrays for CuPy and torch."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import numpy as np

from . import _swath
from ._errors import DeviceError, UsageError

_NO_LIBRARY = (
    "the array is on a GPU and needs CuPy or torch, and neither can be imported: `pip install "
    "swath[cuda12]` (or `swath[cuda13]`), or call to_host() for a NumPy array"
)


class Array(ABC):
    """Samples that a read returned.

    In host memory it is a :class:`numpy.ndarray`. In GPU memory CuPy and torch use it without a copy
    (``cupy.asarray``, ``torch.from_dlpack``); indexing, arithmetic, comparisons, reductions and NumPy's functions work
    on it as on a CuPy array and return CuPy arrays, or torch tensors where only torch is installed.

    Attributes
    ----------
    device : str
        ``"cpu"`` or ``"cuda:0"``.
    report : dict or None
        What a GPU did for the read; None where the read asked for no GPU. Views, copies and unpickled arrays have
        none.

    Examples
    --------
    >>> import numpy as np, swath
    >>> path = swath.to_geotiff(np.arange(6, dtype="int16").reshape(2, 3), "/tmp/swath-doc-array.tif")
    >>> array = swath.read(path)
    >>> array[0]
    array([[0, 1, 2],
           [3, 4, 5]], dtype=int16)
    >>> (array * 2).max(), isinstance(array, swath.Array), isinstance(array, np.ndarray)
    (np.int16(10), True, True)
    """

    report: dict[str, Any] | None

    @abstractmethod
    def to_host(self) -> HostArray:
        """Returns the samples in host memory: a copy of a GPU array, otherwise the array itself."""


class HostArray(Array, np.ndarray):
    """Samples in host memory: a NumPy array."""

    report: dict[str, Any] | None = None

    @staticmethod
    def of(memory: _swath.Array) -> HostArray:
        """Returns an array over the engine's memory, without a copy."""
        array = np.asarray(memory).view(HostArray)
        if (report := memory.report) is not None:
            array.report = report
        return array

    @property
    def device(self) -> Literal["cpu"]:
        """Where the samples are. NumPy has this attribute since 2.0."""
        return "cpu"

    def to_host(self) -> HostArray:
        return self

    def __array_wrap__(self, array: np.ndarray, context: Any = None, return_scalar: bool = False) -> Any:
        if array is self:  # `array += 1`
            return self
        # Results of computations are plain arrays, and single values are scalars, which NumPy leaves to subclasses.
        plain = np.asarray(array)
        return plain[()] if return_scalar or (context is None and not plain.ndim) else plain

    def __repr__(self) -> str:
        return repr(self.view(np.ndarray))


class DeviceArray(Array):
    """Samples in GPU memory."""

    # Comparisons work element by element, so the array cannot be hashed.
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, memory: _swath.Array) -> None:
        self._memory = memory

    @property
    def report(self) -> dict[str, Any] | None:  # type: ignore[override]
        return self._memory.report

    @property
    def shape(self) -> tuple[int, ...]:
        return self._memory.shape

    @property
    def strides(self) -> tuple[int, ...]:
        return self._memory.strides

    @property
    def dtype(self) -> np.dtype:
        name = self._memory.dtype
        # NumPy has no complex integers.
        part = name.removeprefix("complex_")
        return np.dtype(name) if part == name else np.dtype([("real", part), ("imag", part)])

    @property
    def ndim(self) -> int:
        return self._memory.ndim

    @property
    def size(self) -> int:
        return self._memory.size

    @property
    def itemsize(self) -> int:
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        return self._memory.nbytes

    @property
    def device(self) -> str:
        return self._memory.device

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return self._memory.__cuda_array_interface__

    def __dlpack__(self, **options: Any) -> Any:
        return self._memory.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._memory.__dlpack_device__()

    def to_host(self) -> HostArray:
        return HostArray.of(self._memory.to_host())

    get = to_host  # CuPy's name for it

    def reshape(self, *shape: Any) -> DeviceArray:
        """Returns the same samples with another shape; one length may be -1."""
        lengths = list(shape[0] if len(shape) == 1 and isinstance(shape[0], Sequence) else shape)
        if lengths.count(-1) == 1:
            known = int(np.prod([length for length in lengths if length != -1], dtype=np.int64))
            lengths[lengths.index(-1)] = self.size // known if known else 0
        return DeviceArray(self._memory.reshape([int(length) for length in lengths]))

    def native(self) -> Any:
        """Returns a CuPy array, or a torch tensor where CuPy is not installed, over the same memory."""
        try:
            import cupy

            return cupy.asarray(self)
        except ImportError:
            pass
        try:
            import torch
        except ImportError:
            raise DeviceError(_NO_LIBRARY) from None
        return torch.from_dlpack(self)

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        raise TypeError("the array is on a GPU and is not converted to NumPy implicitly: call to_host()")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        if "out" in options:
            options["out"] = _native(options["out"])
        return getattr(ufunc, method)(*_native(inputs), **options)

    def __array_function__(self, function: Any, _types: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        return function(*_native(args), **{name: _native(value) for name, value in kwargs.items()})

    def __getitem__(self, key: Any) -> Any:
        return self.native()[_native(key)]

    def __setitem__(self, key: Any, value: Any) -> None:
        self.native()[_native(key)] = _native(value)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.native())

    def __len__(self) -> int:
        return len(self._memory)

    def __repr__(self) -> str:
        # Without the samples: showing them would copy the array to the host, whatever its size.
        return repr(self._memory)

    def __reduce__(self) -> Any:
        """Pickles the samples as an array in host memory: the other process may have no GPU."""
        return self.to_host().__reduce__()


def _native(value: Any) -> Any:
    """Returns a value in which each DeviceArray is replaced by a CuPy array or torch tensor."""
    if isinstance(value, DeviceArray):
        return value.native()
    if type(value) in (tuple, list):
        return type(value)(_native(each) for each in value)
    return value


def _unary(apply: Callable[[Any], Any]) -> Any:
    return lambda self: apply(self.native())


def _binary(apply: Callable[[Any, Any], Any]) -> Any:
    return lambda self, other: apply(self.native(), _native(other))


def _reflected(apply: Callable[[Any, Any], Any]) -> Any:
    return lambda self, other: apply(_native(other), self.native())


def _in_place(apply: Callable[[Any, Any], Any]) -> Any:
    def work(self: DeviceArray, other: Any) -> DeviceArray:
        # The library's array is a view of this array's memory, so this works in place.
        apply(self.native(), _native(other))
        return self

    return work


def _method(name: str) -> Any:
    def work(self: DeviceArray, *args: Any, **options: Any) -> Any:
        return getattr(self.native(), name)(*_native(args), **options)

    work.__name__ = name
    return work


_ARITHMETIC = (
    *("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul"),
    *("and_", "or_", "xor", "lshift", "rshift"),
)
_COMPARISONS = ("lt", "le", "eq", "ne", "gt", "ge")
_UNARY: dict[str, Callable[[Any], Any]] = {
    "neg": operator.neg,
    "pos": operator.pos,
    "abs": abs,
    "invert": operator.invert,
    "bool": bool,
    "int": int,
    "float": float,
    "complex": complex,
}
_METHODS = (
    *("sum", "mean", "min", "max", "std", "var", "prod", "any", "all", "argmin", "argmax", "cumsum"),
    *("round", "clip", "astype", "copy", "transpose", "ravel", "flatten", "squeeze", "swapaxes", "item", "tolist"),
)

for _name in _ARITHMETIC:
    _word = _name.rstrip("_")
    setattr(DeviceArray, f"__{_word}__", _binary(getattr(operator, _name)))
    setattr(DeviceArray, f"__r{_word}__", _reflected(getattr(operator, _name)))
    setattr(DeviceArray, f"__i{_word}__", _in_place(getattr(operator, f"i{_word}")))
for _name in _COMPARISONS:
    setattr(DeviceArray, f"__{_name}__", _binary(getattr(operator, _name)))
for _name, _apply in _UNARY.items():
    setattr(DeviceArray, f"__{_name}__", _unary(_apply))
for _name in _METHODS:
    setattr(DeviceArray, _name, _method(_name))
for _name in ("T", "real", "imag"):
    setattr(DeviceArray, _name, property(_unary(operator.attrgetter(_name))))


def of(memory: _swath.Array) -> Array:
    """Returns the array class for memory on the host or on a GPU."""
    return HostArray.of(memory) if memory.device == "cpu" else DeviceArray(memory)


# Memory of the caller -----------------------------------------------------------------------------------------------


def host_view(out: Any) -> np.ndarray:
    """Returns a NumPy array over the caller's memory."""
    if isinstance(out, np.ndarray):
        return out
    # torch tensors do not support the buffer protocol; numpy() shares their memory.
    if hasattr(out, "numpy"):
        return np.asarray(out.numpy())
    try:
        return np.frombuffer(out, dtype=np.uint8) if isinstance(out, bytearray) else np.asarray(memoryview(out))
    except TypeError:
        kind = type(out).__name__
        raise UsageError(f"out: {kind} cannot be filled in place; give a NumPy, CuPy or torch array") from None


def check_shape(out: tuple[int, ...], result: tuple[int, ...], bands: int) -> None:
    """Raises for memory of another shape; the axis `bands` may be missing where there is one band."""
    flat = result[:bands] + result[bands + 1 :]
    if out != result and not (result[bands] == 1 and out == flat):
        raise UsageError(f"out has the shape {out}, the result has {result}")


def put(found: np.ndarray, view: np.ndarray) -> None:
    """Copies samples into memory; raises where its type does not hold all values of the file's type."""
    if not np.can_cast(found.dtype, view.dtype, "safe"):
        raise UsageError(f"out has samples of {view.dtype}, which cannot hold the {found.dtype} of the file")
    np.copyto(view, found)


def copy_to_gpu(array: _swath.Array, out: Any, bands: int) -> None:
    """Copies a GPU array into another one, with the library of the other one."""
    check_shape(tuple(out.shape), array.shape, bands)
    kind = type(out).__module__.partition(".")[0]
    if kind == "torch":
        import torch

        out.copy_(torch.from_dlpack(array).reshape(out.shape))
        return
    try:
        import cupy
    except ImportError:
        raise UsageError(f"out: CuPy is needed to fill an array of {kind} on a GPU, and it is not installed") from None
    target = cupy.asarray(out)
    target[...] = cupy.asarray(array).reshape(target.shape)
