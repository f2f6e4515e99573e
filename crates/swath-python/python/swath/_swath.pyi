"""The Rust extension. Users reach it through the functions and classes of the package."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, Protocol, Self, final, overload

import numpy as np
from typing_extensions import disjoint_base

__version__: str
_debug_build: bool

__all__ = [
    "Array",
    "Cancel",
    "Dataset",
    "PredictorChoice",
    "TileRowEncoder",
    "Writer",
    "__version__",
    "_debug_build",
    "abandon_unfinished",
    "add_library_folders",
    "codecs",
    "crs_of",
    "describe_devices",
    "device_memory",
    "is_remote",
    "other_format",
    "shown",
]

# x, y, width, height in pixels: column first.
_Window = tuple[int, int, int, int]
_Device = Literal["cpu", "cuda", "auto"]
_Interleave = Literal["band", "pixel"]
_Axes = Literal["yx", "byx", "yxb"]

# `Found.native()` of `_metadata.py`.
_Metadata = dict[str, Any]
# `EngineOptions.native()` of `_engine_options.py`.
_Options = dict[str, Any]
# `Options.native()` of `_storage_options.py`: anonymous, endpoint, region, headers and settings (pairs), max_bytes,
# max_requests, deadline, connect_timeout and stall_timeout (seconds), retries, redirects, in_flight, public_only,
# allowed_hosts.
_Remote = dict[str, Any]

class _Ranged(Protocol):
    """A source of bytes that Python reads for the engine; several threads may call it at once.

    An attribute `remote` that is False says that reading many ranges at once is no faster than one after the other.
    """

    name: str
    def size(self) -> int: ...
    def read_ranges(self, ranges: list[tuple[int, int]]) -> Sequence[Any]: ...

@final
class Array:
    """Samples in host or GPU memory. NumPy, CuPy, torch and others use them without a copy."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def strides(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> str: ...
    @property
    def ndim(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def device(self) -> str: ...
    @property
    def report(self) -> dict[str, Any] | None: ...
    @property
    def __cuda_array_interface__(self) -> dict[str, Any]: ...
    def to_host(self) -> Array: ...
    def reshape(self, shape: Sequence[int]) -> Array: ...
    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any: ...
    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...

@final
class Cancel:
    """Stops a read that runs in another thread."""

    def __new__(cls) -> Self: ...
    def cancel(self) -> None: ...

@disjoint_base
class Dataset:
    def __new__(
        cls,
        source: str | bytes | bytearray | memoryview | _Ranged,
        *,
        threads: int | None = None,
        tile_cache: int | None = None,
        max_pixels: int | None = None,
        device: _Device | None = None,
        max_device_memory: int | None = None,
        trust_input: bool = False,
        ifd: int | None = None,
        remote: _Remote | None = None,
    ) -> Self: ...
    def close(self) -> None: ...
    @property
    def closed(self) -> bool: ...
    @property
    def name(self) -> str: ...
    @property
    def file_size(self) -> int: ...
    @property
    def version(self) -> str | None: ...
    def check_current(self) -> None: ...
    @property
    def width(self) -> int: ...
    @property
    def height(self) -> int: ...
    @property
    def count(self) -> int: ...
    @property
    def shape(self) -> tuple[int, int, int]: ...
    @property
    def dtype(self) -> np.dtype[Any]: ...
    @property
    def stored_dtype(self) -> str: ...
    @property
    def block_shape(self) -> tuple[int, int]: ...
    @property
    def tiled(self) -> bool: ...
    @property
    def overview_sizes(self) -> list[tuple[int, int]]: ...
    def block_shape_of(self, overview: int) -> tuple[int, int]: ...
    def metadata(self) -> dict[str, Any]: ...
    def window_of(self, west: float, south: float, east: float, north: float) -> _Window: ...
    @overload
    def read_window(
        self,
        window: _Window | None = None,
        bands: Sequence[int] | None = None,
        overview: int | None = None,
        *,
        ifd: int | None = None,
        interleave: _Interleave = "band",
        threads: int | None = None,
        device: _Device | None = None,
        max_device_memory: int | None = None,
        trust_input: bool | None = None,
        cpu_decode: bool | None = None,
        out: None = None,
        cancel: Cancel | None = None,
    ) -> Array: ...
    @overload
    def read_window(
        self,
        window: _Window | None = None,
        bands: Sequence[int] | None = None,
        overview: int | None = None,
        *,
        ifd: int | None = None,
        interleave: _Interleave = "band",
        threads: int | None = None,
        device: _Device | None = None,
        max_device_memory: int | None = None,
        trust_input: bool | None = None,
        cpu_decode: bool | None = None,
        out: Any,
        cancel: Cancel | None = None,
    ) -> None: ...
    def read_mask(
        self, window: _Window | None = None, overview: int | None = None, *, threads: int | None = None
    ) -> Array: ...
    def read_batch(
        self,
        windows: Iterable[_Window],
        bands: Sequence[int] | None = None,
        overview: int | None = None,
        *,
        interleave: _Interleave = "band",
        threads: int | None = None,
        device: _Device | None = None,
        max_device_memory: int | None = None,
        trust_input: bool | None = None,
        cpu_decode: bool | None = None,
        out: Any = None,
    ) -> Array | None: ...
    def describe(self, tags: bool = False) -> dict[str, Any]: ...
    def statistics(
        self,
        bands: Sequence[int] | None = None,
        *,
        threads: int | None = None,
        progress: Callable[[int, int], Any] | None = None,
    ) -> dict[str, Any]: ...
    def validate(self, full: bool = False, strict: bool = False) -> dict[str, Any]: ...
    @property
    def remote_stats(self) -> dict[str, int] | None: ...
    def device_report(self) -> dict[str, Any]: ...

@final
class Writer:
    def __new__(
        cls,
        target: str | Any | None,
        shape: tuple[int, int, int],
        dtype: str,
        metadata: _Metadata,
        options: _Options,
        *,
        progress: Callable[[int, int], Any] | None = None,
        pushes: Literal["rows", "tile_rows", "blocks"] = "rows",
        remote: _Remote | None = None,
    ) -> Self: ...
    @staticmethod
    def can_take_rows(shape: tuple[int, int, int], dtype: str, metadata: _Metadata, options: _Options) -> bool: ...
    @staticmethod
    def least_memory(shape: tuple[int, int, int], dtype: str, metadata: _Metadata, options: _Options) -> int: ...
    @property
    def rows(self) -> int: ...
    @property
    def batch_rows(self) -> int: ...
    @property
    def on_device(self) -> bool: ...
    def push(self, rows: Any, axes: _Axes, mask: Any = None) -> None: ...
    def push_device(self, rows: Any, axes: _Axes) -> None: ...
    def push_block(self, samples: Any, axes: _Axes, row: int, column: int, mask: Any = None) -> None: ...
    def push_block_device(self, samples: Any, axes: _Axes, row: int, column: int) -> None: ...
    def push_encoded(self, tile_rows: Any) -> None: ...
    def finish(self) -> dict[str, Any]: ...
    def abort(self) -> None: ...

@final
class TileRowEncoder:
    def __new__(cls, shape: tuple[int, int, int], dtype: str, metadata: _Metadata, options: _Options) -> Self: ...
    @property
    def tile_rows(self) -> int: ...
    def rows_of(self, first: int, last: int) -> tuple[int, int]: ...
    def needed(self, first: int, last: int) -> tuple[int, int]: ...
    def encode(self, first: int, last: int, first_row: int, rows: Any, axes: _Axes) -> bytes: ...
    def encode_device(self, first: int, last: int, first_row: int, rows: Any, axes: _Axes) -> bytes: ...

@final
class PredictorChoice:
    def __new__(cls, shape: tuple[int, int, int], dtype: str, metadata: _Metadata, options: _Options) -> Self: ...
    @property
    def chosen(self) -> int | None: ...
    @property
    def rows_at_once(self) -> int: ...
    def push(self, rows: Any, axes: _Axes, *, mask: Any = None) -> None: ...

# By name: smallest and largest level or None, and whether the codec has quality, lossless and max_z_error.
def codecs() -> dict[str, tuple[tuple[int, int] | None, bool, bool, bool]]: ...
def other_format(name: str) -> str | None: ...
def crs_of(text: str) -> dict[str, Any]: ...
def describe_devices() -> str: ...
def device_memory() -> int | None: ...
def add_library_folders(folders: Sequence[str]) -> None: ...
def abandon_unfinished() -> None: ...
def is_remote(location: str) -> bool: ...
def shown(location: str) -> str: ...
