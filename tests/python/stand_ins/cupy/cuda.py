"""Streams and devices of the stand-in for CuPy."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import device_memory


class Stream:
    """A stream of the driver; the default one where it has no handle."""

    def __init__(self, *, null: bool = False, non_blocking: bool = False, handle: int | None = None) -> None:
        self._own = not null and handle is None
        self.ptr = device_memory.make_stream(non_blocking=non_blocking) if self._own else handle or 0
        self._before: list[int] = []

    def __enter__(self) -> Stream:
        self._before.append(device_memory.current_stream())
        device_memory.set_current_stream(self.ptr)
        return self

    def __exit__(self, *_: object) -> None:
        device_memory.set_current_stream(self._before.pop())

    def use(self) -> Stream:
        device_memory.set_current_stream(self.ptr)
        return self

    def synchronize(self) -> None:
        device_memory.wait_for(self.ptr)


Stream.null = Stream(null=True)  # type: ignore[attr-defined]


def get_current_stream() -> Stream:
    return Stream(handle=device_memory.current_stream())


class Device:
    """The only device."""

    def __init__(self, device: Any = 0) -> None:
        self.id = int(device)

    def __enter__(self) -> Device:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to restore."""

    def synchronize(self) -> None:
        device_memory.synchronize()

    def use(self) -> None:
        """The only device is always current."""


runtime = SimpleNamespace(
    getDeviceCount=device_memory.device_count,
    memGetInfo=lambda: device_memory.driver().memory(),
    deviceSynchronize=device_memory.synchronize,
)


def is_available() -> bool:
    try:
        return device_memory.device_count() > 0
    except device_memory.DriverError:
        return False
