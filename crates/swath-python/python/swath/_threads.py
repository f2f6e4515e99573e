"""Locks that survive a fork, and thread pools that work where the system starts no more threads."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any


class Lock:
    """Like `threading.Lock`, but free in a forked child even if a thread of the parent held it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        _locks.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


_locks: weakref.WeakSet[Lock] = weakref.WeakSet()


def _free_all() -> None:
    for lock in _locks:
        lock._lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_free_all)


def submit(pool: ThreadPoolExecutor, work: Callable[..., Any], *arguments: Any) -> Future[Any]:
    """Submits work to the pool; where the system starts no thread, does the work before it returns."""
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
    """Runs `work` for every item, in this thread and in as many others as can be started, up to `threads` in all."""
    remaining, lock, failures = iter(items), Lock(), list[BaseException]()

    def run() -> None:
        try:
            while not failures:
                with lock:
                    item = next(remaining, failures)
                if item is failures:
                    return
                work(item)
        except BaseException as error:
            failures.append(error)

    helpers = []
    for number in range(1, threads):
        helper = threading.Thread(target=run, name=f"{name}-{number}")
        try:
            helper.start()
        except RuntimeError:
            break
        helpers.append(helper)
    run()
    for helper in helpers:
        helper.join()
    if failures:
        raise failures[0]
