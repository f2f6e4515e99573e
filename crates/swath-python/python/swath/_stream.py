"""Streams dask arrays into a writer: computes, pushes and releases some chunks at a time, as rows or as blocks."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from ._device import is_on_gpu as on_device
from ._errors import UsageError, warn
from ._threads import submit

# A key of a dask graph.
Key = Any
# Converts the rows of a block before they are written.
Convert = Callable[[Any], Any]

# Bytes of the rows that are assembled and pushed at a time: large enough to be worth a call, small against any budget.
PUSH_LEN = 8 << 20


@dataclass(frozen=True)
class Layout:
    """Size, sample type and order of axes ("yx", "byx" or "yxb") of a raster."""

    axes: str
    count: int
    height: int
    width: int
    dtype: np.dtype

    @property
    def row_len(self) -> int:
        return self.count * self.width * self.dtype.itemsize

    def shape(self, rows: int) -> tuple[int, ...]:
        sizes = {"b": self.count, "y": rows, "x": self.width}
        return tuple(sizes[axis] for axis in self.axes)

    def region(self, bands: slice, rows: slice, columns: slice) -> tuple[slice, ...]:
        slices = {"b": bands, "y": rows, "x": columns}
        return tuple(slices[axis] for axis in self.axes)


@dataclass(frozen=True)
class Block:
    """Samples of some bands and columns of a group of rows, from a first band and a first column on."""

    band: int
    column: int
    samples: Any
    # Converts the rows before they are written.
    convert: Convert | None = None

    def rows(self, region: tuple[slice, ...]) -> Any:
        samples = self.samples[region]
        return samples if self.convert is None else self.convert(samples)


def to_host(samples: Any) -> np.ndarray:
    """Returns an array in host memory."""
    if on_device(samples):
        if hasattr(samples, "cpu"):
            # A torch tensor, which needs no CuPy.
            return np.asarray(samples.cpu())
        import cupy

        samples = cupy.asnumpy(cupy.asarray(samples))
    return np.asarray(samples)


class Assembler:
    """Assembles rows from the blocks that hold them, in memory that it reuses."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._host: Any = None
        self._device: Any = None

    def rows(self, blocks: Sequence[Block], rows: slice) -> Any:
        """Returns rows of the blocks, contiguous if on the host. Valid until the next call."""
        layout = self._layout
        region = layout.region(slice(None), rows, slice(None))
        parts = [block.rows(region) for block in blocks]
        device = all(map(on_device, parts))
        if len(parts) == 1:
            return parts[0] if device else np.ascontiguousarray(to_host(parts[0]), dtype=layout.dtype)
        target = self._memory(rows.stop - rows.start, device=device)
        for block, part in zip(blocks, parts):
            bands, columns = self._extent(part)
            region = layout.region(
                slice(block.band, block.band + bands), slice(None), slice(block.column, block.column + columns)
            )
            target[region] = part if device else to_host(part)
        return target

    def whole(self, blocks: Sequence[Block]) -> Any | None:
        """Returns the only block itself, where the writer can take it without a copy; otherwise None."""
        if len(blocks) != 1 or blocks[0].convert is not None:
            return None
        samples = blocks[0].samples
        if isinstance(samples, np.ndarray):
            return samples if samples.flags.c_contiguous and samples.dtype == self._layout.dtype else None
        return samples if on_device(samples) else None

    def _extent(self, part: Any) -> tuple[int, int]:
        axes = self._layout.axes
        return part.shape[axes.index("b")] if "b" in axes else 1, part.shape[axes.index("x")]

    def _memory(self, rows: int, *, device: bool) -> Any:
        shape = self._layout.shape(rows)
        size = int(np.prod(shape))
        if device:
            if self._device is None or self._device.size < size:
                import cupy

                self._device = cupy.empty(size, dtype=self._layout.dtype)
            return self._device[:size].reshape(shape)
        if self._host is None or self._host.size < size:
            self._host = np.empty(size, dtype=self._layout.dtype)
        return self._host[:size].reshape(shape)


class BlockPusher:
    """Pushes a raster into a writer of blocks, with the mask, if there is one."""

    def __init__(self, writer: Any, layout: Layout, mask: np.ndarray | None = None) -> None:
        self._writer = writer
        self._layout = layout
        self._mask = mask

    def push(self, row: int, column: int, height: int, width: int, blocks: Sequence[Block]) -> None:
        """Pushes the block at this row and column. The columns of `blocks` count from the first column of the block."""
        assembler = Assembler(replace(self._layout, height=height, width=width))
        whole = assembler.whole(blocks)
        self._give(assembler.rows(blocks, slice(0, height)) if whole is None else whole, row, column)

    def push_all(self, blocks: Sequence[Block], tile: tuple[int, int], step: int | None) -> None:
        """Pushes a raster in memory, or in a file that is read meanwhile, in blocks that end at the edges of tiles."""
        layout = self._layout
        width, height = tile
        rows = -(-(step or 1) // height) * height
        tile_len = rows * width * layout.count * layout.dtype.itemsize
        columns = max(PUSH_LEN // max(tile_len, 1), 1) * width
        for row in range(0, layout.height, rows):
            height = min(rows, layout.height - row)
            for column in range(0, layout.width, columns):
                width = min(columns, layout.width - column)
                region = layout.region(slice(None), slice(row, row + height), slice(column, column + width))
                parts = [Block(block.band, 0, block.rows(region)) for block in blocks]
                self.push(row, column, height, width, parts)

    def _give(self, samples: Any, row: int, column: int) -> None:
        axes = self._layout.axes
        if self._mask is not None:
            height, width = (samples.shape[axes.index(axis)] for axis in "yx")
            part = np.ascontiguousarray(self._mask[row : row + height, column : column + width])
            self._writer.push_block(to_host(samples), axes, row, column, mask=part)
            return
        push = self._writer.push_block if isinstance(samples, np.ndarray) else self._writer.push_block_device
        push(samples, axes, row, column)


class Pusher:
    """Pushes rows into a writer, some at a time, with the mask, if there is one."""

    def __init__(self, writer: Any, layout: Layout, push_len: int = PUSH_LEN, mask: np.ndarray | None = None) -> None:
        self._writer = writer
        self._mask = mask
        # Number of rows pushed so far.
        self._row = 0
        self._axes = layout.axes
        self._assembler = Assembler(layout)
        self._step = max(1, push_len // max(layout.row_len, 1))

    def push(self, rows: int, blocks: Sequence[Block], step: int | None = None) -> None:
        """Pushes rows, `step` at a time where it is given, because fewer would decode tiles twice."""
        whole = self._assembler.whole(blocks)
        if whole is not None:
            self._give(whole)
            return
        step = step or self._step
        for start in range(0, rows, step):
            self._give(self._assembler.rows(blocks, slice(start, min(start + step, rows))))

    def _give(self, rows: Any) -> None:
        if self._mask is not None:
            after = self._row + rows.shape[self._axes.index("y")]
            self._writer.push(to_host(rows), self._axes, mask=self._mask[self._row : after])
            self._row = after
            return
        push = self._writer.push if isinstance(rows, np.ndarray) else self._writer.push_device
        push(rows, self._axes)


@dataclass
class Step:
    """Tasks of a graph that are computed at once."""

    outputs: list[Key]
    tasks: dict[Key, Any] = field(default_factory=dict)
    # Results of earlier steps that this one needs.
    takes: list[Key] = field(default_factory=list)
    # Results of this step that later ones need.
    keeps: list[Key] = field(default_factory=list)
    # Results that no later step needs.
    drops: list[Key] = field(default_factory=list)


def plan_steps(graph: dict[Key, Any], outputs: Iterable[Sequence[Key]], known: Container[Key] = ()) -> list[Step]:
    """Cuts a graph into steps, one for each group of outputs, so that no task runs in two steps.

    Results in `known`, which the scheduler has already, need not be in the graph.
    """
    steps = [Step(list(keys)) for keys in outputs]
    first: dict[Key, int] = {}
    for number, step in enumerate(steps):
        stack = list(step.outputs)
        while stack:
            key = stack.pop()
            if key in first or (key not in graph and key in known):
                continue
            if key not in graph:
                raise UsageError(
                    f"the array depends on {key!r}, which a cluster holds: give its client as scheduler=, or compute "
                    "the array there"
                )
            first[key] = number
            step.tasks[key] = graph[key]
            stack.extend(graph[key].dependencies)
    last: dict[Key, int] = {}
    for number, step in enumerate(steps):
        used = set(step.outputs)
        for task in step.tasks.values():
            used.update(task.dependencies)
        used &= first.keys()
        last.update(dict.fromkeys(used, number))
        step.takes = [key for key in used if first[key] < number]
    for key, number in last.items():
        if first[key] < number:
            steps[first[key]].keeps.append(key)
            steps[number].drops.append(key)
    return steps


@dataclass
class Chunks:
    """A dask array as an optimised graph, with the sizes of its chunks."""

    graph: dict[Key, Any]
    name: str
    axes: str
    sizes: dict[str, tuple[int, ...]]

    @classmethod
    def of(cls, array: Any, axes: str) -> Chunks:
        import dask
        from dask._task_spec import convert_legacy_graph

        (array,) = dask.optimize(array)
        graph = convert_legacy_graph(dict(array.__dask_graph__()))
        sizes = dict(zip(axes, array.chunks))
        return cls(graph, array.name, axes, {"b": (1,), **sizes})

    def key(self, band: int, row: int, column: int) -> Key:
        index = {"b": band, "y": row, "x": column}
        return (self.name, *(index[axis] for axis in self.axes))

    @cached_property
    def lefts(self) -> list[int]:
        """First column of each chunk of a row."""
        return starts(self.sizes["x"])

    def row(self, row: int, columns: range | None = None) -> list[tuple[Key, int, int]]:
        """Returns the keys of a row of chunks, or of some columns of it, with first band and column of each chunk."""
        indexes = range(len(self.lefts)) if columns is None else columns
        return [
            (self.key(band, row, column), first_band, self.lefts[column])
            for band, first_band in enumerate(starts(self.sizes["b"]))
            for column in indexes
        ]


def starts(sizes: Sequence[int]) -> list[int]:
    """Returns the start of each of some consecutive sizes."""
    return [0, *np.cumsum(sizes[:-1]).tolist()]


@dataclass(frozen=True)
class Group:
    """Chunks that are computed together: some rows of chunks, or some chunks of one row."""

    rows: range
    columns: range
    size: int


def groups_of_rows(chunks: Chunks, layout: Layout, limit: int) -> list[Group]:
    """Returns groups of as many rows of chunks as fit into the limit, and at least one."""
    everywhere = range(len(chunks.sizes["x"]))
    sizes = [height * layout.row_len for height in chunks.sizes["y"]]
    return [Group(rows, everywhere, held) for rows, held in _runs(sizes, limit)]


def groups_of_blocks(chunks: Chunks, layout: Layout, limit: int) -> list[Group]:
    """Returns groups of as many chunks of a row, with all their bands, as fit into the limit, and at least one."""
    pixel = layout.count * layout.dtype.itemsize
    groups: list[Group] = []
    for row, height in enumerate(chunks.sizes["y"]):
        sizes = [height * width * pixel for width in chunks.sizes["x"]]
        groups += [Group(range(row, row + 1), columns, held) for columns, held in _runs(sizes, limit)]
    return groups


def _runs(sizes: Sequence[int], limit: int) -> list[tuple[range, int]]:
    """Cuts a list of sizes into runs of one or more that fit into the limit; returns each run with its sum."""
    runs: list[tuple[range, int]] = []
    begin, held = 0, 0
    for number, size in enumerate(sizes):
        if number > begin and held + size > limit:
            runs.append((range(begin, number), held))
            begin, held = number, 0
        held += size
    runs.append((range(begin, len(sizes)), held))
    return runs


def longest_row(array: Any, layout: Layout) -> int:
    """Returns the bytes of the largest row of chunks."""
    return int(max(array.chunks[layout.axes.index("y")])) * layout.row_len


def stream(
    array: Any,
    layout: Layout,
    writer: Any,
    get: Callable[..., Any],
    budget: int,
    *,
    as_blocks: bool = False,
    mask: np.ndarray | None = None,
) -> None:
    """Computes and pushes a dask array some chunks at a time, holding at most `budget` bytes of it."""
    chunks = Chunks.of(array, layout.axes)
    groups = (groups_of_blocks if as_blocks else groups_of_rows)(chunks, layout, budget // 2)
    largest = max(group.size for group in groups)
    if largest > budget:
        what = "a chunk (with all its bands)" if as_blocks else "a row of chunks"
        warn(
            f"{what} holds {largest} bytes, more than the {budget} bytes of streaming_buffer_bytes: the write exceeds "
            "that limit; give smaller chunks, or a larger streaming_buffer_bytes or max_memory",
        )
    keys = [[key for row in group.rows for key, *_ in chunks.row(row, group.columns)] for group in groups]
    steps = plan_steps(chunks.graph, keys)
    del array
    chunks.graph = {}
    held: dict[Key, Any] = {}
    pusher: Any = BlockPusher(writer, layout, mask)
    if not as_blocks:
        pusher = Pusher(writer, layout, max(min(PUSH_LEN, budget // 8), 1), mask)
    push = (_block_push if as_blocks else _row_push)(pusher, layout, chunks)

    pool = ThreadPoolExecutor(1, thread_name_prefix="swath-stream")
    wait = True
    ahead: deque[Future[dict[Key, Any]]] = deque()
    try:
        for number, group in enumerate(groups):
            if not ahead:
                ahead.append(submit(pool, _compute, steps[number], held, get))
            done = ahead.popleft().result()
            if number + 1 < len(groups) and group.size + groups[number + 1].size <= budget:
                ahead.append(submit(pool, _compute, steps[number + 1], held, get))
            push(group, done)
    except KeyboardInterrupt:
        # Tasks of the caller may take long; a caller who interrupts does not want to wait for them.
        wait = False
        raise
    finally:
        pool.shutdown(wait=wait, cancel_futures=True)


def _row_push(pusher: Pusher, layout: Layout, chunks: Chunks) -> Callable[[Group, dict[Key, Any]], None]:
    def push(group: Group, done: dict[Key, Any]) -> None:
        for row in group.rows:
            blocks = [Block(band, column, done.pop(key)) for key, band, column in chunks.row(row)]
            _check(blocks, row, chunks, layout)
            pusher.push(chunks.sizes["y"][row], blocks)
            _release(blocks)

    return push


def _block_push(pusher: BlockPusher, layout: Layout, chunks: Chunks) -> Callable[[Group, dict[Key, Any]], None]:
    tops = starts(chunks.sizes["y"])

    def push(group: Group, done: dict[Key, Any]) -> None:
        for row in group.rows:
            for column in group.columns:
                found = chunks.row(row, range(column, column + 1))
                blocks = [Block(band, left, done.pop(key)) for key, band, left in found]
                _check(blocks, row, chunks, layout)
                height, width = chunks.sizes["y"][row], chunks.sizes["x"][column]
                blocks = [replace(block, column=0) for block in blocks]
                pusher.push(tops[row], chunks.lefts[column], height, width, blocks)
                _release(blocks)

    return push


def _release(blocks: list[Block]) -> None:
    """Drops blocks that were pushed, and frees the GPU memory that CuPy would keep."""
    device = any(on_device(block.samples) for block in blocks)
    blocks.clear()
    if device:
        _free_device_memory()


def _compute(step: Step, held: dict[Key, Any], get: Callable[..., Any]) -> dict[Key, Any]:
    """Returns the outputs of a step; results that later steps need go to `held`. One step runs at a time."""
    from dask._task_spec import DataNode

    graph = {key: DataNode(key, held[key]) for key in step.takes}
    graph.update(step.tasks)
    keys = list(dict.fromkeys([*(key for key in step.outputs if key in step.tasks), *step.keeps]))
    results = dict(zip(keys, get(graph, keys)))
    step.tasks = {}
    done = {key: results[key] if key in results else held[key] for key in step.outputs}
    held.update((key, results[key]) for key in step.keeps)
    for key in step.drops:
        held.pop(key, None)
    return done


def _check(blocks: Sequence[Block], row: int, chunks: Chunks, layout: Layout) -> None:
    """Raises for chunks whose shape or type is not the one that dask announced."""
    bands = dict(zip(starts(chunks.sizes["b"]), chunks.sizes["b"]))
    columns = dict(zip(starts(chunks.sizes["x"]), chunks.sizes["x"]))
    for block in blocks:
        sizes = {"b": bands[block.band], "y": chunks.sizes["y"][row], "x": columns[block.column]}
        shape = tuple(sizes[axis] for axis in layout.axes)
        found = block.samples.dtype if isinstance(block.samples.dtype, np.dtype) else np.dtype(str(block.samples.dtype))
        if tuple(block.samples.shape) != shape or not np.can_cast(found, layout.dtype, "same_kind"):
            raise UsageError(
                f"chunk row {row}, column {block.column} is {found} {tuple(block.samples.shape)}, and dask "
                f"announced {layout.dtype} {shape}: give map_blocks the right dtype= and chunks="
            )


def _free_device_memory() -> None:
    """Frees the GPU memory in CuPy's pool, which the engine needs."""
    import cupy

    cupy.get_default_memory_pool().free_all_blocks()
