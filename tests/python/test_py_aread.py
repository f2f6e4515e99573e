"""`await dataset.aread(...)`: the event loop keeps running, and a cancelled read stops."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import numpy as np
import pytest
import swath as sw

SAMPLES = np.arange(3 * 90 * 100, dtype="uint16").reshape(3, 90, 100)


class Slow:
    """A source that answers when a test lets it."""

    name = "slow.tif"
    # Opening reads only the head of the file.
    remote = False

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.waits, self.calls = False, 0
        self.asked, self.goes_on = threading.Event(), threading.Event()

    def size(self) -> int:
        return len(self.data)

    def read_ranges(self, ranges: list[tuple[int, int]]) -> list[bytes]:
        self.calls += 1
        if self.waits:
            self.asked.set()
            assert self.goes_on.wait(30)
        return [self.data[offset : offset + length] for offset, length in ranges]


def test_aread_takes_all_keywords_of_read(folder: Path) -> None:
    path = folder / "a.tif"
    sw.to_geotiff(SAMPLES, path, tile_size=32, nodata=7)

    async def work() -> None:
        dataset = sw.Dataset(path)
        assert np.array_equal(await dataset.aread(), SAMPLES)
        assert np.array_equal(await dataset.aread(2, (3, 4, 40, 50)), SAMPLES[1, 3:40, 4:50])
        assert (await dataset.aread(1, masked=True)).mask.sum() == 1
        out = np.zeros((3, 90, 100), "uint16")
        assert await dataset.aread(out=out) is out and np.array_equal(out, SAMPLES)
        parts = await asyncio.gather(*(dataset.aread(1, (row, 0, row + 9, 100)) for row in range(0, 90, 9)))
        assert np.array_equal(np.concatenate(parts), SAMPLES[0])
        with pytest.raises(sw.UsageError, match="no band 9"):
            await dataset.aread(9)

    asyncio.run(work())


def test_the_loop_runs_on_while_samples_are_read() -> None:
    source = Slow(bytes(sw.to_geotiff(SAMPLES, None, tile_size=32)))
    dataset = sw.Dataset(source)
    source.waits = True

    async def work() -> np.ndarray:
        reading = asyncio.create_task(dataset.aread())
        # The read waits until this loop runs.
        while not source.asked.is_set() and not reading.done():
            await asyncio.sleep(0.001)
        assert not reading.done()
        source.goes_on.set()
        return await reading

    assert np.array_equal(asyncio.run(work()), SAMPLES)


@pytest.mark.parametrize("how", ["aread", "load_async", "load_async of masked floats"])
def test_a_cancelled_read_returns_at_once_and_stops(how: str) -> None:
    noise = np.random.default_rng(0).integers(0, 65535, (3, 900, 1000), "uint16")
    source = Slow(bytes(sw.to_geotiff(noise, None, tile_size=32, interleave="band", compression="none")))
    dataset = sw.Dataset(source, threads=1)
    lazy = sw.open_geotiff(source, lazy=True, masked="masked" in how, threads=1)
    source.calls = 0
    assert np.array_equal(dataset.read(), noise)
    whole, source.calls = source.calls, 0
    source.waits = True

    async def work() -> None:
        reading = asyncio.create_task(dataset.aread() if how == "aread" else lazy.load_async())
        while not source.asked.is_set() and not reading.done():
            await asyncio.sleep(0.001)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        # The caller continues before the source has answered.
        assert source.calls == 1
        source.goes_on.set()

    # Ending the loop waits for its threads.
    asyncio.run(work())
    assert whole > 10 and source.calls <= 2, (whole, source.calls)
    source.waits = False
    assert np.array_equal(dataset.read(), noise)
