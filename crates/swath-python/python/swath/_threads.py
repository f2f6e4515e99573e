"""Threads and locks that survive a fork, and a system that starts no more threads."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any


class Lock:
    """As `threading.Lock`; a forked child finds it open, whatever threads of its parent held it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        _locks.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


_locks: weakref.WeakSet[Lock] = weakref.WeakSet()


def _open_all() -> None:
    for lock in _locks:
        lock._lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_open_all)


def submit(pool: ThreadPoolExecutor, work: Callable[..., Any], *arguments: Any) -> Future[Any]:
    """Work for a thread of the pool; where the system starts none, work that is done when this returns."""
    try:
        return pool.submit(work, *arguments)
    except RuntimeError as error:
        if "start new thread" not in str(error):
            raise
    done: Future[Any] = Future()
    try:
        done.set_result(work(*arguments))
    except Exception as error:
        done.set_exception(error)
    return done


def each(work: Callable[[Any], None], items: Iterable[Any], threads: int, name: str) -> None:
    """Does `work` for every item, by this thread and by as many others as can be started, up to `threads` in all."""
    left, turn, failures = iter(items), Lock(), list[BaseException]()

    def draw() -> None:
        try:
            while not failures:
                with turn:
                    item = next(left, failures)
                if item is failures:
                    return
                work(item)
        except BaseException as error:
            failures.append(error)

    helpers = []
    for number in range(1, threads):
        helper = threading.Thread(target=draw, name=f"{name}-{number}")
        try:
            helper.start()
        except RuntimeError:
            break
        helpers.append(helper)
    draw()
    for helper in helpers:
        helper.join()
    if failures:
        raise failures[0]
