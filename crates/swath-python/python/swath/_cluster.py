"""Writes one file from a dask cluster: workers encode bands of it, this process puts them in their places in order."""

from __future__ import annotations

import functools
import importlib.util
import pickle
import uuid
from collections import deque
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import _swath
from ._errors import Error, UsageError
from ._stream import Assembler, Block, Chunks, Key, Layout, Step, on_device, plan_steps, starts

# Bands that are in flight for each thread of a worker: one that is encoded, one whose chunks are computed meanwhile.
AHEAD = 2


@dataclass(frozen=True)
class Recipe:
    """What a worker needs to make the encoder of a file."""

    shape: tuple[int, int, int]
    dtype: str
    metadata: dict[str, Any]
    options: dict[str, Any]

    def packed(self) -> bytes:
        # A task has one thread of its worker; the bytes do not depend on how many there are.
        options = {"threads": 1, **self.options}
        return pickle.dumps((self.shape, self.dtype, self.metadata, options))

    def plan(self) -> Any:
        """An encoder that is asked which rows it needs, by a process that need not have a GPU."""
        return _swath.BandEncoder(self.shape, self.dtype, self.metadata, {**self.options, "device": "cpu"})


@functools.lru_cache(maxsize=8)
def encoder(recipe: bytes) -> Any:
    """The encoder of a file, made once in a process."""
    return _swath.BandEncoder(*pickle.loads(recipe))


@dataclass(frozen=True)
class Band:
    """Rows of tiles that are encoded together, and where their rows lie in the chunks."""

    first: int
    last: int
    first_row: int
    rows: int
    # For each chunk: the row of the band that it begins at (negative where it begins above), its first band and column.
    places: tuple[tuple[int, int, int], ...]


def encode(recipe: bytes, layout: Layout, band: Band, *chunks: Any) -> bytes:
    """Encodes a band on a worker."""
    rows = _gathered(layout, band, chunks)
    made = encoder(recipe)
    work = made.encode if isinstance(rows, np.ndarray) else made.encode_device
    encoded: bytes = work(band.first, band.last, band.first_row, rows, layout.axes)
    return encoded


def _gathered(layout: Layout, band: Band, chunks: Sequence[Any]) -> Any:
    """The rows of a band from the chunks that they are spread over."""
    by_row: dict[int, list[Block]] = {}
    for (top, first_band, column), samples in zip(band.places, chunks):
        by_row.setdefault(top, []).append(Block(first_band, column, samples))
    assembler = Assembler(layout)
    if len(by_row) == 1:
        ((top, blocks),) = by_row.items()
        return assembler.rows(blocks, slice(-top, -top + band.rows))
    device = all(map(on_device, chunks))
    if device:
        import cupy

        target = cupy.empty(layout.shape(band.rows), dtype=layout.dtype)
    else:
        target = np.empty(layout.shape(band.rows), dtype=layout.dtype)
    axis = layout.axes.index("y")
    for top, blocks in by_row.items():
        begin, end = max(top, 0), min(top + blocks[0].samples.shape[axis], band.rows)
        part = assembler.rows(blocks, slice(begin - top, end - top))
        target[layout.region(slice(None), slice(begin, end), slice(None))] = part
    return target


def write(client: Any, array: Any, layout: Layout, recipe: Recipe, writer: Any, budget: int | None) -> None:
    """Computes and encodes an array on a cluster, with at most `budget` bytes of it in flight, and pushes the bands."""
    if client.asynchronous:
        raise UsageError("to_geotiff waits for the cluster: give it a client that is not asynchronous")
    _check_transport(client, array)
    chunks = Chunks.of(array, layout.axes)
    packed = recipe.packed()
    bands = list(_bands(recipe.plan(), chunks))
    steps, costs = _plan(chunks, layout, packed, bands, client.futures)
    del array
    chunks.graph = {}
    if budget is None:
        threads = sum(client.nthreads().values()) or 1
        budget = AHEAD * threads * max(cost.band + cost.begins for cost in costs)
    with _waiting_aside():
        _run(client, steps, costs, writer, budget)


def _check_transport(client: Any, array: Any) -> None:
    """Without either library distributed waits for ever for device memory that one worker sends to another."""
    if not on_device(array._meta) or len(client.nthreads()) < 2:
        return
    if all(importlib.util.find_spec(name) is None for name in ("numba", "rmm")):
        raise UsageError(
            "chunks on a GPU go from worker to worker by numba or rmm, and neither is installed: install numba, use a "
            "cluster of one worker, or compute chunks on the host"
        )


@dataclass
class Cost:
    """Bytes that a step brings into flight, and that are gone after it."""

    band: int
    begins: int = 0
    ends: int = 0


def _bands(made: Any, chunks: Chunks) -> Iterator[Band]:
    """Bands of about the height of the chunks, with the chunks that each of them needs."""
    heights = chunks.sizes["y"]
    tops = starts(heights)
    total = made.tile_rows
    tile_height = made.rows_of(0, 1)[1]
    together = max(1, round(max(heights) / tile_height))
    for first in range(0, total, together):
        last = min(first + together, total)
        begin, end = made.needed(first, last)
        rows = [row for row, top in enumerate(tops) if top < end and top + heights[row] > begin]
        places = tuple(
            (tops[row] - begin, first_band, column) for row in rows for _, first_band, column in chunks.row(row)
        )
        yield Band(first, last, begin, end - begin, places)


def _plan(
    chunks: Chunks, layout: Layout, packed: bytes, bands: Sequence[Band], known: Container[Key]
) -> tuple[list[Step], list[Cost]]:
    """The graph with the encoding of bands in it, cut into one step for each band."""
    from dask._task_spec import Task, TaskRef

    tops = {top: row for row, top in enumerate(starts(chunks.sizes["y"]))}
    # Two writes of one array, with the same words even, have nothing to do with each other.
    token = uuid.uuid4().hex
    graph = dict(chunks.graph)
    outputs: list[list[Key]] = []
    for band in bands:
        rows = sorted({tops[top + band.first_row] for top, _, _ in band.places})
        refs = [TaskRef(key) for row in rows for key, _, _ in chunks.row(row)]
        key = (f"swath-encode-{token}", band.first)
        graph[key] = Task(key, encode, packed, layout, band, *refs)
        outputs.append([key])
    steps = plan_steps(graph, outputs, known)
    costs = [Cost(band.rows * layout.row_len) for band in bands]
    seen: dict[int, int] = {}
    for number, band in enumerate(bands):
        for row in {tops[top + band.first_row] for top, _, _ in band.places}:
            if row not in seen:
                costs[number].begins += chunks.sizes["y"][row] * layout.row_len
            seen[row] = number
    for row, number in seen.items():
        costs[number].ends += chunks.sizes["y"][row] * layout.row_len
    return steps, costs


def _run(client: Any, steps: Sequence[Step], costs: Sequence[Cost], writer: Any, budget: int) -> None:
    held: dict[Key, Any] = {}
    waiting: deque[tuple[int, Any]] = deque()
    flying = 0

    def place() -> None:
        nonlocal flying
        number, future = waiting.popleft()
        writer.push_encoded(_result(future))
        future.release()
        for key in steps[number].drops:
            held.pop(key).release()
        flying -= costs[number].band + costs[number].ends

    try:
        for number, step in enumerate(steps):
            cost = costs[number].band + costs[number].begins
            while waiting and flying + cost > budget:
                place()
            flying += cost
            futures = _submit(client, step)
            waiting.append((number, futures[0]))
            held.update(zip(step.keeps, futures[1:]))
        while waiting:
            place()
    except BaseException:
        # Chunks may be those of other writes, or held by the caller: they are let go of, not cancelled.
        for future in held.values():
            future.release()
        client.cancel([future for _, future in waiting])
        raise


def _submit(client: Any, step: Step) -> list[Any]:
    """Futures of a step's output and of what it keeps. What it takes is held by futures, and known to the scheduler."""
    tasks, step.tasks = step.tasks, {}
    # Without time to be taken as one with those before, earlier steps go first.
    return list(client.get(tasks, [*step.outputs, *step.keeps], sync=False, fifo_timeout=0))


def _result(future: Any) -> bytes:
    from distributed.scheduler import KilledWorker

    try:
        encoded: bytes = future.result()
    except KilledWorker as error:
        raise Error(
            f"workers died again and again while they computed {error.task}: the task may need more memory than they "
            f"have (memory_limit), or crash them; see the log of {error.last_worker.address}"
        ) from error
    return encoded


@contextmanager
def _waiting_aside() -> Iterator[None]:
    """Leaves the thread of a worker to the tasks that are waited for, where this runs as a task itself."""
    from distributed import get_worker, rejoin, secede

    try:
        get_worker()
    except ValueError:
        yield
        return
    secede()
    try:
        yield
    finally:
        rejoin()
