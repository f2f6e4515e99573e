"""Writes one file from a dask cluster: workers encode groups of tile rows, this process writes them in order."""

from __future__ import annotations

import functools
import importlib.util
import pickle
import uuid
from collections import deque
from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from . import _swath
from ._engine_options import EngineOptions
from ._errors import Error, UsageError
from ._stream import Assembler, Block, Chunks, Key, Layout, Step, on_device, plan_steps, starts, to_host

# Groups of tile rows in flight for each worker thread: one is encoded while the chunks of the next are computed.
GROUPS_PER_THREAD = 2


@dataclass(frozen=True)
class EncoderArguments:
    """The arguments of `TileRowEncoder`, from which each worker creates the encoder of the file."""

    shape: tuple[int, int, int]
    dtype: str
    metadata: dict[str, Any]
    options: EngineOptions

    def pickled(self) -> bytes:
        """Returns the pickled arguments of the encoder."""
        # A dask task runs in one thread of its worker. The encoded bytes do not depend on the number of threads.
        options = self.options if self.options.threads is not None else replace(self.options, threads=1)
        return pickle.dumps((self.shape, self.dtype, self.metadata, options.native()))

    def planner(self) -> Any:
        """Returns an encoder that only says which rows it needs: this process may have no GPU."""
        options = replace(self.options, device="cpu")
        return _swath.TileRowEncoder(self.shape, self.dtype, self.metadata, options.native())


@functools.lru_cache(maxsize=8)
def encoder(arguments: bytes) -> Any:
    """Returns the encoder of a file, which each process creates once."""
    return _swath.TileRowEncoder(*pickle.loads(arguments))


@dataclass(frozen=True)
class TileRows:
    """A group of tile rows that one task encodes, and the chunks that hold its pixels."""

    # The first tile row, and the one after the last.
    first: int
    last: int
    # The image rows that the encoder needs.
    first_row: int
    rows: int
    # For each chunk: its first row, counted from `first_row` (negative where it begins above), first band and column.
    chunk_starts: tuple[tuple[int, int, int], ...]


def encode(arguments: bytes, layout: Layout, group: TileRows, *chunks: Any) -> bytes:
    """Encodes a group of tile rows on a worker."""
    rows = _gather_rows(layout, group, chunks)
    made = encoder(arguments)
    work = made.encode if isinstance(rows, np.ndarray) else made.encode_device
    encoded: bytes = work(group.first, group.last, group.first_row, rows, layout.axes)
    return encoded


def _gather_rows(layout: Layout, group: TileRows, chunks: Sequence[Any]) -> Any:
    """Returns the image rows of a group, assembled from the chunks that hold them."""
    by_row: dict[int, list[Block]] = {}
    for (top, first_band, column), samples in zip(group.chunk_starts, chunks):
        by_row.setdefault(top, []).append(Block(first_band, column, samples))
    assembler = Assembler(layout)
    if len(by_row) == 1:
        ((top, blocks),) = by_row.items()
        return assembler.rows(blocks, slice(-top, -top + group.rows))
    device = all(map(on_device, chunks))
    if device:
        import cupy

        target = cupy.empty(layout.shape(group.rows), dtype=layout.dtype)
    else:
        target = np.empty(layout.shape(group.rows), dtype=layout.dtype)
    axis = layout.axes.index("y")
    for top, blocks in by_row.items():
        begin, end = max(top, 0), min(top + blocks[0].samples.shape[axis], group.rows)
        part = assembler.rows(blocks, slice(begin - top, end - top))
        target[layout.region(slice(None), slice(begin, end), slice(None))] = part
    return target


class ClusterArray:
    """An array that a cluster writes, and its first chunks, which are computed to choose the predictor."""

    def __init__(self, client: Any, array: Any, layout: Layout) -> None:
        if client.asynchronous:
            raise UsageError("to_geotiff waits for the cluster: give it a client that is not asynchronous")
        _check_transport(client, array)
        self.client = client
        self.layout = layout
        self.chunks = Chunks.of(array, layout.axes)
        # Futures of chunks that are computed, and of results that other chunks need too. They are kept for the write.
        self.computed: dict[Key, Any] = {}

    def rows(self, first: int, last: int) -> np.ndarray:
        """Returns some rows of the array."""
        heights = self.chunks.sizes["y"]
        parts = []
        with _leaving_worker_thread():
            for row, top in enumerate(starts(heights)):
                begin, end = max(first - top, 0), min(last - top, heights[row])
                if begin < end:
                    parts.append(self._part(row, begin, end))
        return np.concatenate(parts, axis=self.layout.axes.index("y"))

    def _part(self, row: int, begin: int, end: int) -> np.ndarray:
        """Returns some rows of a row of chunks."""
        keys = self.chunks.row(row)
        if keys[0][0] not in self.computed:
            self._compute(row)
        region = self.layout.region(slice(None), slice(begin, end), slice(None))
        with _reporting_dead_workers():
            samples = self.client.gather([self.client.submit(_cut, self.computed[key], region) for key, _, _ in keys])
        blocks = [Block(band, column, part) for (_, band, column), part in zip(keys, samples)]
        return np.array(Assembler(self.layout).rows(blocks, slice(0, end - begin)))

    def _compute(self, row: int) -> None:
        """Submits a row of chunks, the first that is not submitted yet, and leaves the rest of the graph."""
        chunks = self.chunks
        later = range(row + 1, len(chunks.sizes["y"]))
        outputs = [[key for each in rows for key, _, _ in chunks.row(each)] for rows in ([row], later)]
        step, _ = plan_steps(chunks.graph, outputs, self.client.futures)
        chunks.graph = {key: task for key, task in chunks.graph.items() if key not in step.tasks}
        self.computed.update(zip([*step.outputs, *step.keeps], _submit(self.client, step)))


def with_chosen_predictor(
    options: EngineOptions, metadata: dict[str, Any], dtype: str, cluster_array: ClusterArray
) -> EngineOptions:
    """Returns the options with the predictor that suits the first rows. A worker sees its own tile rows only."""
    if options.predictor != "auto":
        return options
    layout = cluster_array.layout
    shape = (layout.count, layout.height, layout.width)
    choice: Any = _swath.PredictorChoice(shape, dtype, metadata, options.native())
    row = 0
    while choice.chosen is None and row < layout.height:
        until = min(row + choice.rows_at_once, layout.height)
        rows = np.ascontiguousarray(to_host(cluster_array.rows(row, until)), dtype=layout.dtype)
        choice.push(rows, layout.axes)
        row = until
    return replace(options, predictor=str(choice.chosen))


def _cut(samples: Any, region: tuple[slice, ...]) -> np.ndarray:
    """Returns a part of a chunk on the host."""
    return np.ascontiguousarray(to_host(samples[region]))


def write(cluster_array: ClusterArray, arguments: EncoderArguments, writer: Any, budget: int | None) -> None:
    """Computes and encodes an array on a cluster, with at most `budget` bytes in flight, and pushes the tile rows."""
    client, chunks, layout = cluster_array.client, cluster_array.chunks, cluster_array.layout
    packed = arguments.pickled()
    groups = list(_groups(arguments.planner(), chunks))
    steps, costs = _plan(chunks, layout, packed, groups, client.futures)
    chunks.graph = {}
    if budget is None:
        threads = sum(client.nthreads().values()) or 1
        budget = GROUPS_PER_THREAD * threads * max(cost.encoded + cost.begins for cost in costs)
    with _leaving_worker_thread():
        _run(cluster_array, steps, costs, writer, budget)


def _check_transport(client: Any, array: Any) -> None:
    """Raises where workers would have to send each other GPU memory and cannot: distributed would wait for ever."""
    if not on_device(array._meta) or len(client.nthreads()) < 2:
        return
    if all(importlib.util.find_spec(name) is None for name in ("numba", "rmm")):
        raise UsageError(
            "workers send each other GPU chunks by numba or rmm, and neither is installed: install numba, use a "
            "cluster of one worker, or compute chunks on the host"
        )


@dataclass
class Cost:
    """Bytes that a step has in flight."""

    # Rows of the group that the step encodes.
    encoded: int
    # Chunks that this step computes first, and chunks that no later step needs.
    begins: int = 0
    ends: int = 0


def _groups(planner: Any, chunks: Chunks) -> Iterator[TileRows]:
    """Yields groups of tile rows about as high as the chunks, with the chunks that each of them needs."""
    heights = chunks.sizes["y"]
    tops = starts(heights)
    total = planner.tile_rows
    tile_height = planner.rows_of(0, 1)[1]
    together = max(1, round(max(heights) / tile_height))
    for first in range(0, total, together):
        last = min(first + together, total)
        begin, end = planner.needed(first, last)
        rows = [row for row, top in enumerate(tops) if top < end and top + heights[row] > begin]
        chunk_starts = tuple(
            (tops[row] - begin, first_band, column) for row in rows for _, first_band, column in chunks.row(row)
        )
        yield TileRows(first, last, begin, end - begin, chunk_starts)


def _plan(
    chunks: Chunks, layout: Layout, packed: bytes, groups: Sequence[TileRows], known: Container[Key]
) -> tuple[list[Step], list[Cost]]:
    """Returns the graph with a task that encodes each group of tile rows, cut into one step for each group."""
    from dask._task_spec import Task, TaskRef

    tops = {top: row for row, top in enumerate(starts(chunks.sizes["y"]))}
    # A token of its own keeps two writes of one array apart, even with equal options.
    token = uuid.uuid4().hex
    graph = dict(chunks.graph)
    outputs: list[list[Key]] = []
    for group in groups:
        rows = sorted({tops[top + group.first_row] for top, _, _ in group.chunk_starts})
        refs = [TaskRef(key) for row in rows for key, _, _ in chunks.row(row)]
        key = (f"swath-encode-{token}", group.first)
        graph[key] = Task(key, encode, packed, layout, group, *refs)
        outputs.append([key])
    steps = plan_steps(graph, outputs, known)
    costs = [Cost(group.rows * layout.row_len) for group in groups]
    last_use: dict[int, int] = {}
    for number, group in enumerate(groups):
        for row in {tops[top + group.first_row] for top, _, _ in group.chunk_starts}:
            if row not in last_use:
                costs[number].begins += chunks.sizes["y"][row] * layout.row_len
            last_use[row] = number
    for row, number in last_use.items():
        costs[number].ends += chunks.sizes["y"][row] * layout.row_len
    return steps, costs


def _run(cluster_array: ClusterArray, steps: Sequence[Step], costs: Sequence[Cost], writer: Any, budget: int) -> None:
    """Submits the steps in order and pushes each result, with at most `budget` bytes in flight."""
    client = cluster_array.client
    unused = _last_uses(steps, cluster_array.computed)
    held: dict[Key, Any] = {}
    waiting: deque[tuple[int, Any]] = deque()
    in_flight = 0

    def push_next() -> None:
        nonlocal in_flight
        number, future = waiting.popleft()
        writer.push_encoded(_result(future))
        future.release()
        for key in steps[number].drops:
            held.pop(key).release()
        in_flight -= costs[number].encoded + costs[number].ends

    try:
        for number, step in enumerate(steps):
            cost = costs[number].encoded + costs[number].begins
            while waiting and in_flight + cost > budget:
                push_next()
            in_flight += cost
            futures = _submit(client, step)
            waiting.append((number, futures[0]))
            held.update(zip(step.keeps, futures[1:]))
            for key in unused.pop(number, ()):
                # Tasks that are submitted keep the results that they need.
                del cluster_array.computed[key]
        while waiting:
            push_next()
    except BaseException:
        # Other writes or the caller may use these chunks too: release them, do not cancel them.
        for future in held.values():
            future.release()
        client.cancel([future for _, future in waiting])
        raise


def _last_uses(steps: Sequence[Step], keys: Iterable[Key]) -> dict[int, list[Key]]:
    """Returns the keys by the last step that depends on them."""
    last = dict.fromkeys(keys, 0)
    for number, step in enumerate(steps):
        for task in step.tasks.values():
            last.update(dict.fromkeys(last.keys() & task.dependencies, number))
    uses: dict[int, list[Key]] = {}
    for key, number in last.items():
        uses.setdefault(number, []).append(key)
    return uses


def _submit(client: Any, step: Step) -> list[Any]:
    """Returns futures of a step's output and of the results it keeps; the scheduler knows the results it takes."""
    tasks, step.tasks = step.tasks, {}
    # fifo_timeout=0 gives earlier steps priority over later ones.
    return list(client.get(tasks, [*step.outputs, *step.keeps], sync=False, fifo_timeout=0))


def _result(future: Any) -> bytes:
    with _reporting_dead_workers():
        encoded: bytes = future.result()
        return encoded


@contextmanager
def _reporting_dead_workers() -> Iterator[None]:
    """Says what to do about workers that die again and again."""
    from distributed.scheduler import KilledWorker

    try:
        yield
    except KilledWorker as error:
        raise Error(
            f"workers died repeatedly while they computed {error.task}: the task may need more memory than they have "
            f"(memory_limit), or crash them; see the log of {error.last_worker.address}"
        ) from error


@contextmanager
def _leaving_worker_thread() -> Iterator[None]:
    """Frees the worker thread for the tasks that this write waits for, where the write itself runs as a task."""
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
