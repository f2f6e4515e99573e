"""A stand-in for CuPy on the fake driver's device: the functions that users of swath call, as strict as CuPy itself.

Arrays do not become NumPy arrays implicitly, NumPy arrays are not accepted as operands, and samples are in memory that
the host cannot read.
"""

# Parameters are those of CuPy, with names of its own among them, used here or not.
# ruff: noqa: ARG001, ARG002, F811

from __future__ import annotations

import builtins
import functools
import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import device_memory
import numpy
from device_memory import Block, Span
from numpy import (  # noqa: F401 - CuPy has them under its own name, too
    bool_,
    complex64,
    complex128,
    dtype,
    e,
    finfo,
    float16,
    float32,
    float64,
    iinfo,
    inf,
    int8,
    int16,
    int32,
    int64,
    nan,
    newaxis,
    pi,
    uint8,
    uint16,
    uint32,
    uint64,
)

from . import cuda

__version__ = "14.2.0"

_REFUSED = (
    "Implicit conversion to a NumPy array is not allowed. Please use `.get()` to construct a NumPy array explicitly."
)
_SCALARS = (int, float, complex, bool, numpy.generic)


class ndarray:  # noqa: N801 - CuPy's name
    """An array on the device."""

    __array_priority__ = 100
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, shape: Any, dtype: Any = float, order: str = "C", *, span: Span | None = None) -> None:
        shape = (shape,) if isinstance(shape, (int, numpy.integer)) else tuple(shape)
        self._span = Span.empty(shape, dtype, order) if span is None else span

    @staticmethod
    def _of(span: Span) -> ndarray:
        return ndarray((), span=span)

    # Properties -----------------------------------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        return self._span.shape

    @property
    def strides(self) -> tuple[int, ...]:
        return self._span.strides

    @property
    def dtype(self) -> numpy.dtype:
        return self._span.dtype

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return self._span.size

    @property
    def itemsize(self) -> int:
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        return self.size * self.itemsize

    @property
    def data(self) -> Any:
        return SimpleNamespace(ptr=self._span.address, device=cuda.Device(0))

    @property
    def device(self) -> cuda.Device:
        return cuda.Device(0)

    @property
    def flags(self) -> Any:
        turned = self._span.permuted(tuple(reversed(range(self.ndim))))
        found = SimpleNamespace(c_contiguous=self._span.is_c_order, f_contiguous=turned.is_c_order, owndata=True)
        return found

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        strides = None if self._span.is_c_order else self.strides
        address = self._span.address if self.size else 0
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "descr": self.dtype.descr,
            "strides": strides,
            "data": (address, False),
            "stream": device_memory.current_stream() or device_memory.LEGACY_STREAM,
            "version": 3,
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        return device_memory.ON_CUDA, 0

    def __dlpack__(
        self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: Any = None
    ) -> Any:
        if dl_device not in (None, self.__dlpack_device__()) or copy:
            raise BufferError("this stand-in lends memory where it is, and makes no copies")
        if stream != -1:
            device_memory.let_wait(stream or device_memory.LEGACY_STREAM, device_memory.current_stream())
        versioned = max_version is not None and max_version[0] >= 1
        return device_memory.lend(self, self._span.address, self._span, device_memory.ON_CUDA, versioned=versioned)

    toDlpack = __dlpack__  # noqa: N815 - CuPy's name

    def __array__(self, *_: Any, **__: Any) -> numpy.ndarray:
        raise TypeError(_REFUSED)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **words: Any) -> Any:
        if method != "__call__" or ufunc.__name__ not in _UFUNCS:
            return NotImplemented
        if "out" in words:
            if len(words["out"]) != 1:
                raise ValueError("The 'out' parameter must have exactly one array value")
            words["out"] = words["out"][0]
        if not builtins.all(isinstance(each, (ndarray, numpy.ndarray, *_SCALARS)) for each in inputs):
            return NotImplemented
        return getattr(sys.modules[__name__], ufunc.__name__)(*inputs, **words)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        own = getattr(sys.modules[__name__], func.__name__, None) if func.__module__ == "numpy" else None
        if own is None or own is func or not builtins.all(each in (ndarray, numpy.ndarray) for each in types):
            return NotImplemented
        return own(*args, **kwargs)

    # To the host ----------------------------------------------------------------------------------------------------

    def get(self, stream: Any = None, order: str = "C", out: numpy.ndarray | None = None) -> numpy.ndarray:
        found = numpy.asarray(self._span.get(), order="F" if order == "F" else "C")
        if out is None:
            return found
        if out.dtype != self.dtype or out.shape != self.shape:
            raise TypeError(f"{out.dtype} array cannot be obtained from {self.dtype} array")
        out[...] = found
        return out

    def set(self, values: Any, stream: Any = None) -> None:
        if not isinstance(values, numpy.ndarray) or values.dtype != self.dtype or values.shape != self.shape:
            raise TypeError("Only numpy.ndarray can be set to cupy.ndarray")
        self._span.put(values)

    def item(self) -> Any:
        return self.get().item()

    def tolist(self) -> Any:
        return self.get().tolist()

    def tobytes(self, order: str = "C") -> bytes:
        return self.get().tobytes(order)

    def __bool__(self) -> bool:
        return bool(self.get())

    def __int__(self) -> int:
        return int(self.get())

    def __float__(self) -> float:
        return float(self.get())

    def __complex__(self) -> complex:
        return complex(self.get())

    def __index__(self) -> int:
        return self.get().__index__()

    def __repr__(self) -> str:
        return repr(self.get())

    def __format__(self, how: str) -> str:
        return format(self.get(), how)

    def __reduce__(self) -> Any:
        return array, (self.get(),)

    # Shapes ---------------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of unsized object")
        return self.shape[0]

    def __iter__(self) -> Iterator[ndarray]:
        return (self[number] for number in range(len(self)))

    @property
    def T(self) -> ndarray:  # noqa: N802 - CuPy's name
        return self.transpose()

    def transpose(self, *axes: Any) -> ndarray:
        if len(axes) == 1 and (axes[0] is None or isinstance(axes[0], (tuple, list))):
            axes = tuple(axes[0] or ())
        return self._of(self._span.permuted(axes or tuple(reversed(range(self.ndim)))))

    def swapaxes(self, one: int, other: int) -> ndarray:
        axes = list(range(self.ndim))
        axes[one], axes[other] = axes[other], axes[one]
        return self.transpose(*axes)

    def reshape(self, *shape: Any, order: str = "C") -> ndarray:
        if order != "C":
            raise NotImplementedError("this stand-in reshapes in C order")
        lengths = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
        return self._of(self._span.reshaped(tuple(int(length) for length in lengths)))

    def ravel(self, order: str = "C") -> ndarray:
        return self.reshape(-1, order=order)

    def flatten(self, order: str = "C") -> ndarray:
        return self.reshape(-1, order=order).copy()

    def squeeze(self, axis: Any = None) -> ndarray:
        axes = [number for number, length in enumerate(self.shape) if length == 1] if axis is None else axis
        axes = (axes,) if isinstance(axes, int) else axes
        drop = {number % self.ndim for number in axes}
        return self[tuple(0 if number in drop else slice(None) for number in range(self.ndim))]

    def view(self, dtype: Any = None) -> ndarray:
        if dtype is not None and numpy.dtype(dtype) != self.dtype:
            raise NotImplementedError("this stand-in keeps the type of a view")
        return self[...]

    def copy(self, order: str = "C") -> ndarray:
        made = ndarray(self.shape, self.dtype, "F" if order == "F" else "C")
        made._span.put(self.get())
        return made

    def __copy__(self) -> ndarray:
        return self.copy()

    def __deepcopy__(self, _: Any) -> ndarray:
        return self.copy()

    def astype(self, dtype: Any, order: str = "K", casting: str = "unsafe", copy: bool = True) -> ndarray:
        if not copy and numpy.dtype(dtype) == self.dtype:
            return self
        return asarray(self.get().astype(dtype, casting=casting))

    def __getitem__(self, key: Any) -> ndarray:
        if device_memory.is_basic(key):
            return self._of(self._span.at(key))
        return asarray(self.get()[_host_key(key)])

    def __setitem__(self, key: Any, values: Any) -> None:
        values = _host(values)
        if device_memory.is_basic(key):
            self._span.at(key).put(values)
            return
        found = self.get()
        found[_host_key(key)] = values
        self._span.put(found)

    def fill(self, value: Any) -> None:
        self._span.put(_host(value))

    def put(self, indices: Any, values: Any) -> None:
        found = self.get()
        found.put(_host_key(indices), _host(values))
        self._span.put(found)

    @property
    def real(self) -> ndarray:
        return asarray(self.get().real) if self.dtype.kind == "c" else self

    @property
    def imag(self) -> ndarray:
        return asarray(self.get().imag)


def _host(value: Any) -> Any:
    """An operand for NumPy. CuPy takes its own arrays and scalars, never NumPy's arrays."""
    if isinstance(value, ndarray):
        return value.get()
    if hasattr(value, "__cuda_array_interface__"):
        return Span.of_interface(value).get()
    if isinstance(value, numpy.ndarray):
        raise TypeError(f"Unsupported type {type(value)}")
    if isinstance(value, (tuple, list)):
        return type(value)(_host(each) for each in value)
    if value is None or isinstance(value, (str, type, slice, numpy.dtype, *_SCALARS)):
        return value
    raise TypeError(f"Unsupported type {type(value)}")


def _host_key(key: Any) -> Any:
    if isinstance(key, tuple):
        return tuple(_host_key(each) for each in key)
    return key.get() if isinstance(key, ndarray) else key


def _device(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return type(value)(_device(each) for each in value)
    return asarray(value) if isinstance(value, (numpy.ndarray, numpy.generic)) else value


def _by_numpy(function: Any) -> Any:
    """CuPy's function of a name: NumPy computes it on copies, and the result is on the device again."""

    @functools.wraps(function)
    def work(*arguments: Any, out: ndarray | None = None, **words: Any) -> Any:
        with numpy.errstate(all="ignore"):
            made = function(*map(_host, arguments), **{name: _host(value) for name, value in words.items()})
        if out is None:
            return _device(made)
        if not numpy.can_cast(made.dtype, out.dtype, "same_kind"):
            raise TypeError(f"output (typecode {made.dtype.char!r}) could not be coerced to provided output parameter")
        out._span.put(made)
        return out

    return work


_UFUNCS = frozenset(
    name
    for line in (
        "add subtract multiply divide true_divide floor_divide negative positive power float_power remainder mod fmod",
        "divmod absolute fabs rint sign conj conjugate exp exp2 log log2 log10 expm1 log1p sqrt square cbrt reciprocal",
        "sin cos tan arcsin arccos arctan arctan2 hypot sinh cosh tanh arcsinh arccosh arctanh degrees radians deg2rad",
        "rad2deg bitwise_and bitwise_or bitwise_xor invert left_shift right_shift greater greater_equal less",
        "less_equal equal not_equal logical_and logical_or logical_xor logical_not maximum minimum fmax fmin isfinite",
        "isinf isnan signbit copysign nextafter modf ldexp frexp floor ceil trunc gcd lcm clip",
    )
    for name in line.split()
)
_FUNCTIONS = tuple(
    name
    for line in (
        "abs all any amax amin max min sum prod mean std var median percentile nanmean nanmin nanmax nansum nanmedian",
        "ptp cumsum cumprod argmax argmin sort argsort where concatenate stack vstack hstack dstack tile repeat",
        "roll pad rot90 diff gradient unique nonzero flatnonzero count_nonzero isclose allclose array_equal nan_to_num",
        "round around real imag angle dot matmul tensordot einsum outer take choose select digitize histogram bincount",
        "atleast_1d atleast_2d atleast_3d column_stack compress searchsorted interp average quantile",
    )
    for name in line.split()
)

for _name in (*_UFUNCS, *_FUNCTIONS):
    if hasattr(numpy, _name):
        globals()[_name] = _by_numpy(getattr(numpy, _name))


# Functions that make views, or read nothing.


def transpose(a: ndarray, axes: Any = None) -> ndarray:
    return a.transpose(axes)


def moveaxis(a: ndarray, source: int, destination: int) -> ndarray:
    axes = list(range(a.ndim))
    axes.insert(destination % a.ndim, axes.pop(source % a.ndim))
    return a.transpose(*axes)


def swapaxes(a: ndarray, axis1: int, axis2: int) -> ndarray:
    return a.swapaxes(axis1, axis2)


def reshape(a: ndarray, shape: Any, order: str = "C") -> ndarray:
    return a.reshape(shape, order=order)


def ravel(a: ndarray, order: str = "C") -> ndarray:
    return a.ravel(order)


def squeeze(a: ndarray, axis: Any = None) -> ndarray:
    return a.squeeze(axis)


def expand_dims(a: ndarray, axis: int) -> ndarray:
    place = axis % (a.ndim + 1)
    return a[(slice(None),) * place + (None,)]


def broadcast_to(array: ndarray, shape: Any) -> ndarray:
    return ndarray._of(array._span.broadcast(tuple(shape)))


def flip(m: ndarray, axis: Any = None) -> ndarray:
    chosen = range(m.ndim) if axis is None else (axis,) if isinstance(axis, int) else axis
    turned = {number % m.ndim for number in chosen}
    return m[tuple(slice(None, None, -1) if number in turned else slice(None) for number in range(m.ndim))]


def flipud(m: ndarray) -> ndarray:
    return flip(m, 0)


def fliplr(m: ndarray) -> ndarray:
    return flip(m, 1)


def shape(a: ndarray) -> tuple[int, ...]:
    return a.shape


def ndim(a: ndarray) -> int:
    return a.ndim


def size(a: ndarray) -> int:
    return a.size


def result_type(*arrays_and_dtypes: Any) -> numpy.dtype:
    return numpy.result_type(*(each.dtype if isinstance(each, ndarray) else each for each in arrays_and_dtypes))


def iscomplexobj(x: Any) -> bool:
    return numpy.dtype(x.dtype).kind == "c"


def isscalar(element: Any) -> bool:
    return numpy.isscalar(element)


def can_cast(from_: Any, to: Any, casting: str = "safe") -> bool:
    return numpy.can_cast(from_.dtype if isinstance(from_, ndarray) else from_, to, casting)


# Functions that make arrays.


def array(object: Any, dtype: Any = None, copy: bool = True, order: str = "K", ndmin: int = 0) -> ndarray:  # noqa: A002
    if isinstance(object, ndarray):
        made = object if dtype is None else object.astype(dtype, copy=False)
        made = made.copy() if copy and made is object else made
    elif hasattr(object, "__cuda_array_interface__"):
        made = ndarray._of(Span.of_interface(object))
        made = made.astype(made.dtype if dtype is None else dtype, copy=copy)
    else:
        values = object if isinstance(object, numpy.ndarray) else numpy.array(_host(object))
        made = ndarray._of(Span.of_host(values if dtype is None else values.astype(dtype)))
    while made.ndim < ndmin:
        made = made[None]
    return made


def asarray(a: Any, dtype: Any = None, order: str | None = None, **_: Any) -> ndarray:
    return array(a, dtype, copy=False)


asanyarray = asarray


def ascontiguousarray(a: Any, dtype: Any = None) -> ndarray:
    made = asarray(a, dtype)
    return made if made._span.is_c_order else made.copy()


def asfortranarray(a: Any, dtype: Any = None) -> ndarray:
    return asarray(a, dtype).copy(order="F")


def copy(a: ndarray, order: str = "K") -> ndarray:
    return a.copy()


def asnumpy(a: Any, stream: Any = None, order: str = "C", out: Any = None) -> numpy.ndarray:
    if isinstance(a, ndarray):
        return a.get(stream, order, out)
    if hasattr(a, "__cuda_array_interface__"):
        return asarray(a).get(stream, order, out)
    return numpy.asarray(a)


def from_dlpack(x: Any) -> ndarray:
    if x.__dlpack_device__()[0] != device_memory.ON_CUDA:
        raise ValueError("this stand-in takes tensors of the device only")
    capsule = x.__dlpack__(stream=device_memory.current_stream() or device_memory.LEGACY_STREAM)
    address, owner, lengths, strides, kind, _ = device_memory.take(capsule)
    return ndarray._of(Span(Block(address, owner), address, lengths, kind, strides))


def empty(shape: Any, dtype: Any = float, order: str = "C", **_: Any) -> ndarray:
    return ndarray(shape, dtype, order)


def full(shape: Any, fill_value: Any, dtype: Any = None, order: str = "C", **_: Any) -> ndarray:
    made = ndarray(shape, numpy.asarray(_host(fill_value)).dtype if dtype is None else dtype, order)
    made.fill(fill_value)
    return made


def zeros(shape: Any, dtype: Any = float, order: str = "C", **_: Any) -> ndarray:
    return full(shape, 0, dtype, order)


def ones(shape: Any, dtype: Any = float, order: str = "C", **_: Any) -> ndarray:
    return full(shape, 1, dtype, order)


def full_like(a: Any, fill_value: Any, dtype: Any = None, order: str = "K", shape: Any = None, **_: Any) -> ndarray:
    return full(a.shape if shape is None else shape, fill_value, a.dtype if dtype is None else dtype)


def empty_like(a: Any, dtype: Any = None, order: str = "K", shape: Any = None, **_: Any) -> ndarray:
    return empty(a.shape if shape is None else shape, a.dtype if dtype is None else dtype)


def zeros_like(a: Any, dtype: Any = None, order: str = "K", shape: Any = None, **_: Any) -> ndarray:
    return full_like(a, 0, dtype, shape=shape)


def ones_like(a: Any, dtype: Any = None, order: str = "K", shape: Any = None, **_: Any) -> ndarray:
    return full_like(a, 1, dtype, shape=shape)


def arange(*words: Any, **options: Any) -> ndarray:
    return asarray(numpy.arange(*words, **options))


def linspace(*words: Any, **options: Any) -> ndarray:
    return asarray(numpy.linspace(*words, **options))


def get_array_module(*arguments: Any) -> Any:
    return sys.modules[__name__] if builtins.any(isinstance(each, ndarray) for each in arguments) else numpy


class _Pool:
    """CuPy's pool of freed memory; this stand-in keeps none, and counts how often it is asked to free blocks."""

    freed = 0

    def free_all_blocks(self) -> None:
        self.freed += 1

    def total_bytes(self) -> int:
        return 0

    used_bytes = total_bytes


_pool = _Pool()


def get_default_memory_pool() -> _Pool:
    return _pool


get_default_pinned_memory_pool = get_default_memory_pool


# Operators ------------------------------------------------------------------------------------------------------------


def _operators() -> None:
    def forward(function: Any) -> Callable[[ndarray, Any], Any]:
        return lambda self, other: function(self, other)

    def backward(function: Any) -> Callable[[ndarray, Any], Any]:
        return lambda self, other: function(other, self)

    def in_place(function: Any) -> Callable[[ndarray, Any], ndarray]:
        return lambda self, other: function(self, other, out=self)

    named = {
        "add": "add", "sub": "subtract", "mul": "multiply", "truediv": "true_divide", "floordiv": "floor_divide",
        "mod": "remainder", "pow": "power", "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor",
        "lshift": "left_shift", "rshift": "right_shift",
    }  # fmt: skip
    for word, name in named.items():
        function = globals()[name]
        setattr(ndarray, f"__{word}__", forward(function))
        setattr(ndarray, f"__r{word}__", backward(function))
        setattr(ndarray, f"__i{word}__", in_place(function))
    for word, name in {
        "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal", "eq": "equal", "ne": "not_equal",
    }.items():  # fmt: skip
        setattr(ndarray, f"__{word}__", forward(globals()[name]))
    for word, name in {"neg": "negative", "pos": "positive", "abs": "absolute", "invert": "invert"}.items():
        setattr(ndarray, f"__{word}__", (lambda function: lambda self: function(self))(globals()[name]))
    reductions = "min max sum prod mean std var any all argmin argmax cumsum cumprod"
    for name in (*reductions.split(), "round", "clip", "take", "repeat", "dot", "nonzero", "conj", "sort"):

        def method(self: ndarray, *arguments: Any, _name: str = name, **words: Any) -> Any:
            words = {key: value for key, value in words.items() if value is not None}
            return globals()[_name](self, *arguments, **words)

        setattr(ndarray, name, method)


_operators()
