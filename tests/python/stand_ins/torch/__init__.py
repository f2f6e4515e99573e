"""A stand-in for torch on the fake driver's device: the functions that users of swath call, as strict as torch itself.

Tensors have types of torch's own, no `astype`, a method where NumPy has the attribute `size`, no negative steps, and on
the device neither become NumPy's arrays nor say in `__cuda_array_interface__` which stream to wait for.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any

import device_memory
import numpy as np
from device_memory import Block, Span

__version__ = "2.11.0"


class dtype:  # noqa: N801 - torch's name
    """A type of samples."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return f"torch.{self._name}"

    @property
    def is_floating_point(self) -> bool:
        return np.dtype(self._name).kind == "f"


_TYPES = {
    name: dtype(name)
    for name in (
        "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float16", "float32", "float64",
        "complex64", "complex128", "bool",
    )
}  # fmt: skip
globals().update(_TYPES)


def _numpy_type(kind: Any) -> np.dtype:
    return np.dtype(kind._name if isinstance(kind, dtype) else kind)


class device:  # noqa: N801 - torch's name
    """Where a tensor is."""

    def __init__(self, kind: Any, index: int | None = None) -> None:
        name, _, number = str(kind).partition(":")
        self.type, self.index = name, int(number) if number else index

    def __eq__(self, other: object) -> bool:
        return isinstance(other, device) and (self.type, self.index or 0) == (other.type, other.index or 0)

    def __hash__(self) -> int:
        return hash((self.type, self.index or 0))

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __repr__(self) -> str:
        return f"device(type={self.type!r}, index={self.index})"


class Size(tuple):
    """A shape."""

    __slots__ = ()

    def numel(self) -> int:
        return int(np.prod(self, dtype=np.int64))


class Tensor:
    """Samples on the device or on the host."""

    __hash__ = object.__hash__

    def __init__(self, held: Span | np.ndarray) -> None:
        self._held = held

    @property
    def is_cuda(self) -> bool:
        return isinstance(self._held, Span)

    @property
    def device(self) -> device:
        return device("cuda", 0) if self.is_cuda else device("cpu")

    @property
    def dtype(self) -> dtype:
        return _TYPES[self._held.dtype.name]

    @property
    def shape(self) -> Size:
        return Size(self._held.shape)

    @property
    def ndim(self) -> int:
        return len(self._held.shape)

    dim = ndim.fget

    def size(self, axis: int | None = None) -> Any:
        return self.shape if axis is None else self.shape[axis]

    def numel(self) -> int:
        return self.shape.numel()

    def element_size(self) -> int:
        return self._held.dtype.itemsize

    def stride(self) -> tuple[int, ...]:
        return tuple(step // self.element_size() for step in self._held.strides)

    def data_ptr(self) -> int:
        return self._held.address if isinstance(self._held, Span) else self._held.ctypes.data

    def is_contiguous(self) -> bool:
        held = self._held
        return held.is_c_order if isinstance(held, Span) else held.flags.c_contiguous

    # To others ------------------------------------------------------------------------------------------------------

    def _host(self) -> np.ndarray:
        return self._held.get() if isinstance(self._held, Span) else self._held

    def numpy(self) -> np.ndarray:
        if isinstance(self._held, Span):
            raise TypeError(
                "can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host memory "
                "first."
            )
        return self._held

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        found = self.numpy()
        return found if dtype is None else found.astype(dtype, copy=False)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if not isinstance(self._held, Span):
            raise AttributeError(
                "Can't get __cuda_array_interface__ on non-CUDA tensor type: torch.FloatTensor If CUDA data is "
                "required use tensor.cuda() to copy tensor to device memory."
            )
        strides = None if self.is_contiguous() else self._held.strides
        data = (self.data_ptr() if self.numel() else 0, False)
        # Version 2, without a stream.
        return {
            "typestr": self._held.dtype.str,
            "shape": tuple(self.shape),
            "strides": strides,
            "data": data,
            "version": 2,
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        return (device_memory.ON_CUDA if self.is_cuda else device_memory.ON_CPU), 0

    def __dlpack__(
        self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: Any = None
    ) -> Any:
        if copy or dl_device not in (None, self.__dlpack_device__()):
            raise BufferError("this stand-in lends memory where it is, and makes no copies")
        if self.is_cuda and stream != -1:
            device_memory.let_wait(stream or device_memory.LEGACY_STREAM, device_memory.current_stream())
        versioned = max_version is not None and max_version[0] >= 1
        kind, _ = self.__dlpack_device__()
        return device_memory.lend(self, self.data_ptr(), self._held, kind, versioned=versioned)

    def cpu(self) -> Tensor:
        return Tensor(self._host()) if self.is_cuda else self

    def cuda(self) -> Tensor:
        return self if self.is_cuda else Tensor(Span.of_host(np.asarray(self._held)))

    def to(self, *what: Any) -> Tensor:
        made = self
        for each in what:
            if isinstance(each, dtype):
                made = made._with(made._host().astype(_numpy_type(each)))
            else:
                made = made.cuda() if device(each).type == "cuda" else made.cpu()
        return made

    def float(self) -> Tensor:
        return self.to(_TYPES["float32"])

    def double(self) -> Tensor:
        return self.to(_TYPES["float64"])

    def item(self) -> Any:
        return self._host().item()

    def tolist(self) -> Any:
        return self._host().tolist()

    def __bool__(self) -> bool:
        if self.numel() != 1:
            raise RuntimeError("Boolean value of Tensor with more than one value is ambiguous")
        return bool(self.item())

    def __float__(self) -> builtins.float:
        return builtins.float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"tensor({self._host()}, device='{self.device}')"

    # Views ----------------------------------------------------------------------------------------------------------

    def _with(self, values: np.ndarray) -> Tensor:
        """A tensor of these samples on the same device as this one."""
        values = np.asarray(values)
        return Tensor(Span.of_host(values) if self.is_cuda else values)

    def _viewed(self, of_span: Callable[[Span], Span], of_host: Callable[[np.ndarray], np.ndarray]) -> Tensor:
        held = self._held
        return Tensor(of_span(held) if isinstance(held, Span) else of_host(held))

    def __getitem__(self, key: Any) -> Tensor:
        for part in key if isinstance(key, tuple) else (key,):
            if isinstance(part, slice) and part.step is not None and part.step <= 0:
                raise ValueError("step must be greater than zero")
        if device_memory.is_basic(key):
            keys = key if isinstance(key, tuple) else (key,)
            keys = keys if builtins.any(part is Ellipsis for part in keys) else (*keys, Ellipsis)
            return self._viewed(lambda held: held.at(keys), lambda held: held[keys])
        return self._with(self._host()[_plain(key)])

    def __setitem__(self, key: Any, value: Any) -> None:
        found = self._host()
        found[_plain(key)] = _plain(value)
        if isinstance(self._held, Span):
            self._held.put(found)

    def permute(self, *axes: Any) -> Tensor:
        axes = axes[0] if len(axes) == 1 and isinstance(axes[0], (tuple, list)) else axes
        return self._viewed(lambda held: held.permuted(tuple(axes)), lambda held: held.transpose(axes))

    def transpose(self, one: int, other: int) -> Tensor:
        axes = list(range(self.ndim))
        axes[one], axes[other] = axes[other], axes[one]
        return self.permute(*axes)

    def reshape(self, *shape: Any) -> Tensor:
        lengths = tuple(shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape)
        return self._viewed(lambda held: held.reshaped(lengths), lambda held: held.reshape(lengths))

    view = reshape

    def expand(self, *shape: Any) -> Tensor:
        return self._viewed(lambda held: held.broadcast(shape), lambda held: np.broadcast_to(held, shape))

    def flip(self, *axes: Any) -> Tensor:
        # A copy, as torch has no negative steps.
        return self._with(np.flip(self._host(), axes[0] if isinstance(axes[0], (tuple, list)) else axes).copy())

    def contiguous(self) -> Tensor:
        return self if self.is_contiguous() else self.clone()

    def clone(self) -> Tensor:
        return self._with(self._host().copy())

    def detach(self) -> Tensor:
        return self

    # In place -------------------------------------------------------------------------------------------------------

    def copy_(self, other: Tensor) -> Tensor:
        if isinstance(self._held, Span):
            self._held.put(other._host().astype(self._held.dtype))
        else:
            self._held[...] = other._host()
        return self

    def fill_(self, value: Any) -> Tensor:
        if isinstance(self._held, Span):
            self._held.put(value)
        else:
            self._held[...] = value
        return self

    def zero_(self) -> Tensor:
        return self.fill_(0)


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(_plain(each) for each in value)
    return value._host() if isinstance(value, Tensor) else value


def _operators() -> None:
    def binary(function: Any, *, turned: bool = False) -> Callable[[Tensor, Any], Tensor]:
        def work(self: Tensor, other: Any) -> Tensor:
            if isinstance(other, Tensor) and other.is_cuda != self.is_cuda and other.ndim:
                raise RuntimeError("Expected all tensors to be on the same device")
            pair = (_plain(other), self._host()) if turned else (self._host(), _plain(other))
            with np.errstate(all="ignore"):
                return self._with(function(*pair))

        return work

    for word, function in {
        "add": np.add, "sub": np.subtract, "mul": np.multiply, "truediv": np.true_divide, "pow": np.power,
        "and": np.bitwise_and, "or": np.bitwise_or,
    }.items():  # fmt: skip
        setattr(Tensor, f"__{word}__", binary(function))
        setattr(Tensor, f"__r{word}__", binary(function, turned=True))
    for word, function in {
        "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal,
        "ne": np.not_equal,
    }.items():  # fmt: skip
        setattr(Tensor, f"__{word}__", binary(function))
    for name in ("min", "max", "sum", "mean", "any", "all", "round", "isnan"):
        function = getattr(np, name)

        def method(self: Tensor, *arguments: Any, _function: Any = function) -> Tensor:
            return self._with(_function(self._host(), *arguments))

        setattr(Tensor, name, method)
        globals()[name] = method


_operators()


def _placed(values: np.ndarray, where: Any) -> Tensor:
    made = Tensor(values)
    return made if where is None else made.to(where)


def from_numpy(values: np.ndarray) -> Tensor:
    if builtins.any(step < 0 for step in values.strides):
        raise ValueError("At least one stride in the given numpy array is negative, which is not supported")
    return Tensor(values)


def tensor(values: Any, dtype: Any = None, device: Any = None) -> Tensor:
    made = np.array(_plain(values))
    return _placed(made if dtype is None else made.astype(_numpy_type(dtype)), device)


def as_tensor(values: Any, device: Any = None) -> Tensor:
    return _placed(np.asarray(values), device)


def zeros(*shape: Any, dtype: Any = "float32", device: Any = None) -> Tensor:
    lengths = shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape
    return _placed(np.zeros(lengths, _numpy_type(dtype)), device)


empty = zeros


def zeros_like(other: Tensor) -> Tensor:
    return other._with(np.zeros(other.shape, other._held.dtype))


empty_like = zeros_like


def from_dlpack(other: Any) -> Tensor:
    kind, _ = other.__dlpack_device__()
    words = {"stream": device_memory.current_stream() or device_memory.LEGACY_STREAM}
    capsule = other.__dlpack__(**(words if kind == device_memory.ON_CUDA else {}))
    address, owner, shape, strides, found, kind = device_memory.take(capsule)
    if kind != device_memory.ON_CUDA:
        return Tensor(np.from_dlpack(other))
    return Tensor(Span(Block(address, owner), address, shape, found, strides))


class _Cuda:
    """`torch.cuda`."""

    @staticmethod
    def is_available() -> bool:
        try:
            return device_memory.device_count() > 0
        except device_memory.DriverError:
            return False

    @staticmethod
    def synchronize() -> None:
        device_memory.synchronize()


cuda = _Cuda()
