"""How many requests and bytes a read over the network takes, counted by the server and compared with other readers."""

from __future__ import annotations

import io
import itertools
import warnings
from collections.abc import Iterator
from functools import cache

import numpy as np
import pytest
import rasterio
import rioxarray  # noqa: F401 - gives arrays their `rio`
import swath
import tifffile
from harness import Swath
from rasterio.io import MemoryFile
from rasterio.shutil import copy
from remote import Files, direct
from remote_readers import READERS, RIVALS, Box, equal_pixels

KIB = 1 << 10
# Bytes that opening may take: the first read of a file.
HEAD = 32 * KIB
SIZE, TILE = 3072, 512
GRID = (10.0, 0.0, 500_000.0, 0.0, -10.0, 4_500_000.0)

numbers = itertools.count()


@pytest.fixture
def server() -> Iterator[Files]:
    with direct(), Files() as made:
        yield made


@cache
def noise() -> np.ndarray:
    """Samples whose tiles stay large with every codec: half a megabyte becomes 400 kB."""
    return np.random.default_rng(1).integers(0, 4096, (SIZE, SIZE), "u2")


@cache
def source() -> bytes:
    with MemoryFile() as memory:
        profile = {"dtype": "uint16", "count": 1, "height": SIZE, "width": SIZE, "crs": "EPSG:32633"}
        with memory.open(driver="GTiff", transform=rasterio.Affine(*GRID), **profile) as file:
            file.write(noise(), 1)
        return bytes(memory.read())


def by_swath() -> bytes:
    return swath.to_geotiff(noise(), None, cog=True, crs=32633, transform=GRID, compression="deflate", nodata=0)


def by_gdal() -> bytes:
    with MemoryFile(source()) as memory, memory.open() as dataset, MemoryFile() as made:
        copy(dataset, made.name, driver="COG", COMPRESS="DEFLATE", BLOCKSIZE=TILE, NUM_THREADS="ALL_CPUS", LEVEL=1)
        return bytes(made.read())


def by_cogeo() -> bytes:
    from rio_cogeo.cogeo import cog_translate
    from rio_cogeo.profiles import cog_profiles

    with MemoryFile(source()) as memory, memory.open() as dataset, MemoryFile() as made, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        profile = {**cog_profiles.get("deflate"), "ZLEVEL": 1, "NUM_THREADS": "ALL_CPUS"}
        cog_translate(dataset, made.name, profile, in_memory=True, quiet=True)
        return bytes(made.read())


MAKERS = {"swath": by_swath, "GDAL": by_gdal, "rio-cogeo": by_cogeo}


@cache
def cog(maker: str) -> bytes:
    return MAKERS[maker]()


@cache
def pages(content: bytes) -> list[tuple[tuple[int, ...], tuple[int, ...], tuple[int, int], tuple[int, int]]]:
    """For every directory: offsets and lengths of tiles or strips, their rows and columns, and those of the image."""
    with tifffile.TiffFile(io.BytesIO(content)) as file:
        return [
            (page.dataoffsets, page.databytecounts, (page.chunks[0], page.chunks[1]), (page.shape[0], page.shape[1]))
            for page in file.pages
        ]


def tile_bytes(content: bytes, box: Box | None, page: int = 0) -> int:
    """Bytes of the tiles that a window touches."""
    _, lengths, (rows, columns), (height, width) = pages(content)[page]
    x, y, w, h = box or (0, 0, width, height)
    across = -(-width // columns)
    return sum(
        lengths[row * across + column]
        for row in range(y // rows, -(-(y + h) // rows))
        for column in range(x // columns, -(-(x + w) // columns))
    )


def put(server: Files, content: bytes) -> tuple[str, str]:
    """Serves the content under a new path, so that no cache has it; returns the path and the address."""
    path = f"/{next(numbers)}.tif"
    server.put(path, content)
    server.forget()
    return path, server.url + path


def counted(server: Files) -> tuple[int, int]:
    return len(server.requests), server.bytes_sent()


def pixels_of(box: Box) -> np.ndarray:
    x, y, width, height = box
    return noise()[None, y : y + height, x : x + width]


# ------------------------------------------------------------------------------------------------------------ opening


@pytest.mark.parametrize("maker", MAKERS)
def test_a_cog_is_opened_by_one_request(server: Files, maker: str) -> None:
    _, url = put(server, cog(maker))
    dataset = swath.Dataset(url)
    assert dataset.metadata() and dataset.overview_sizes and dataset.shape == (1, SIZE, SIZE)
    assert counted(server) == (1, HEAD)
    stats = dataset.remote_stats
    assert (stats["requests"], stats["received"], stats["retries"]) == (1, HEAD, 0)


@pytest.mark.parametrize("maker", MAKERS)
def test_a_lazy_array_is_opened_by_one_request(server: Files, maker: str) -> None:
    _, url = put(server, cog(maker))
    array = swath.open_geotiff(url, chunks=512)
    assert array.shape[-2:] == (SIZE, SIZE) and array.rio.crs.to_epsg() == 32633
    assert counted(server) == (1, HEAD)


def test_the_command_opens_by_one_request(server: Files, swath: Swath) -> None:
    _, url = put(server, cog("swath"))
    assert swath.info(url)["width"] == SIZE
    assert counted(server) == (1, HEAD)


def test_a_small_file_is_read_by_the_request_that_opens_it(server: Files) -> None:
    small = swath.to_geotiff(noise()[:96, :96], None, compression="zstd", tile_size=32)
    assert len(small) < HEAD
    _, url = put(server, small)
    equal_pixels(np.asarray(swath.read(url))[0], noise()[:96, :96])
    assert counted(server) == (1, len(small))


@cache
def many_tiles(maker: str) -> bytes:
    """A hundred thousand tiles: their tables are far larger than the first read."""
    array = np.zeros((5056, 5056), "u1")
    array[::16] = 7
    if maker == "swath":
        return swath.to_geotiff(array, None, cog=True, tile_size=16, compression="deflate")
    with MemoryFile() as memory, MemoryFile() as made:
        with memory.open(driver="GTiff", dtype="uint8", count=1, height=5056, width=5056) as file:
            file.write(array, 1)
        with memory.open() as dataset:
            settings = {"COMPRESS": "DEFLATE", "LEVEL": 1, "BLOCKSIZE": 16, "OVERVIEWS": "NONE"}
            copy(dataset, made.name, driver="COG", **settings)
        return bytes(made.read())


@pytest.mark.parametrize("maker", ["swath", "GDAL"])
def test_a_large_header_is_opened_by_three_requests(server: Files, maker: str) -> None:
    content = many_tiles(maker)
    tables = min(min(offsets) for offsets, *_ in pages(content))
    assert tables > 10 * HEAD, "the file is not what this test is about"
    _, url = put(server, content)
    dataset = swath.Dataset(url)
    assert dataset.metadata() and dataset.shape == (1, 5056, 5056)
    requests, received = counted(server)
    assert requests <= 3
    assert received <= tables + 2 * HEAD
    # A small window far inside needs slices of the tables, not all of them again.
    server.forget()
    got = np.asarray(dataset.read(window=swath.Window(4000, 4000, 64, 64)))
    assert got[0, :, 0].tolist() == [7 if row % 16 == 0 else 0 for row in range(4000, 4064)]
    requests, received = counted(server)
    assert requests <= 7
    assert received <= tables + 4 * HEAD


# ------------------------------------------------------------------------------------------------------------ windows

BOXES = {
    "corner": (0, 0, 1024, 1024),
    "aligned": (1024, 1536, 1024, 1024),
    "unaligned": (700, 900, 1024, 1024),
    "a column more": (1023, 512, 1024, 1024),
    "end": (2048, 2048, 1024, 1024),
}


@pytest.mark.parametrize("box", BOXES.values(), ids=BOXES.keys())
@pytest.mark.parametrize("maker", MAKERS)
def test_a_window_takes_three_requests_and_its_tiles(server: Files, maker: str, box: Box) -> None:
    content = cog(maker)
    _, url = put(server, content)
    dataset = swath.Dataset(url)
    server.forget()
    equal_pixels(np.asarray(dataset.read(window=swath.Window(*box))), pixels_of(box))
    requests, received = counted(server)
    assert requests <= 3
    assert received <= 1.15 * tile_bytes(content, box)
    assert dataset.remote_stats["requests"] == requests + 1
    assert dataset.remote_stats["received"] == received + HEAD


def test_read_tiles_are_not_requested_again(server: Files) -> None:
    content = cog("swath")
    _, url = put(server, content)
    dataset = swath.Dataset(url)
    box = BOXES["aligned"]
    dataset.read(window=swath.Window(*box))
    server.forget()
    equal_pixels(np.asarray(dataset.read(window=swath.Window(*box))), pixels_of(box))
    inside = (1100, 1600, 300, 300)
    equal_pixels(np.asarray(dataset.read(window=swath.Window(*inside))), pixels_of(inside))
    assert counted(server) == (0, 0)
    assert dataset.remote_stats["cache_hits"] > 0
    # One column of tiles further: only that column is new.
    moved = (1536, 1536, 1024, 1024)
    equal_pixels(np.asarray(dataset.read(window=swath.Window(*moved))), pixels_of(moved))
    requests, received = counted(server)
    assert requests <= 2
    assert received <= 1.15 * tile_bytes(content, (2048, 1536, 512, 1024))


@pytest.mark.parametrize("maker", MAKERS)
def test_a_whole_read_downloads_no_more_than_the_image(server: Files, maker: str) -> None:
    content = cog(maker)
    _, url = put(server, content)
    equal_pixels(np.asarray(swath.read(url)), noise()[None])
    requests, received = counted(server)
    assert received <= 1.02 * tile_bytes(content, None) + HEAD
    assert received <= 1.02 * len(content)
    assert requests <= 8


def test_an_overview_takes_its_own_bytes(server: Files) -> None:
    content = cog("swath")
    _, url = put(server, content)
    dataset = swath.Dataset(url)
    server.forget()
    got = np.asarray(dataset.read(overview_level=1))
    with MemoryFile(content) as memory, memory.open(overview_level=1) as file:
        equal_pixels(got, file.read())
    requests, received = counted(server)
    assert requests <= 2
    assert received <= 1.02 * tile_bytes(content, None, page=2)


def test_one_band_of_planes_takes_its_own_bytes(server: Files) -> None:
    """GDAL writes plane after plane. swath streams: tiles of all bands at one place are neighbours, so a band takes a
    range for each tile."""
    bands = np.stack([noise()[:1024, :1024], noise()[1024:2048, :1024], noise()[2048:, :1024]])
    ours = swath.to_geotiff(bands, None, compression="deflate", interleave="band", tile_size=256)
    profile = {
        "dtype": "uint16",
        "count": 3,
        "height": 1024,
        "width": 1024,
        "interleave": "band",
        "compress": "deflate",
    }
    with MemoryFile() as memory:
        with memory.open(driver="GTiff", tiled=True, blockxsize=256, blockysize=256, **profile) as file:
            for band in range(3):
                file.write(bands[band], band + 1)
        theirs = bytes(memory.read())
    for content, most in ((theirs, 3), (ours, 17)):
        _, url = put(server, content)
        equal_pixels(np.asarray(swath.read(url, 2)), bands[1])
        requests, received = counted(server)
        assert requests <= most
        assert received <= 0.35 * len(content) + 2 * HEAD


def test_a_window_of_strips_takes_its_rows(server: Files) -> None:
    content = swath.to_geotiff(noise(), None, compression="none", tiled=False)
    _, url = put(server, content)
    dataset = swath.Dataset(url)
    server.forget()
    box = (1000, 1234, 500, 200)
    equal_pixels(np.asarray(dataset.read(window=swath.Window(*box))), pixels_of(box))
    requests, received = counted(server)
    rows = dataset.block_shape[0]
    assert requests <= 2
    assert received <= 1.02 * (200 + 2 * rows) * SIZE * 2


def test_a_lazy_window_takes_its_chunks(server: Files) -> None:
    content = cog("swath")
    _, url = put(server, content)
    array = swath.open_geotiff(url, chunks=512)
    server.forget()
    got = array.isel(y=slice(1024, 2048), x=slice(512, 1024)).values
    equal_pixels(np.ascontiguousarray(got).reshape(1, 1024, 512), pixels_of((512, 1024, 512, 1024)))
    requests, received = counted(server)
    assert requests <= 3
    assert received <= 1.15 * tile_bytes(content, (512, 1024, 512, 1024)) + HEAD


def test_the_command_reads_a_window(server: Files, swath: Swath) -> None:
    content = cog("swath")
    box = BOXES["unaligned"]
    _, url = put(server, content)
    equal_pixels(swath.dump(url, window=box), pixels_of(box))
    requests, received = counted(server)
    assert requests <= 4
    assert received <= 1.15 * tile_bytes(content, box) + HEAD


# ------------------------------------------------------------------------------------------------------------- rivals


@pytest.mark.parametrize("maker", MAKERS)
def test_other_readers_send_more_requests(server: Files, maker: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Same files, same server, nothing cached. A window of several tile rows needs at least one request a row, which
    is what async-geotiff needs too, so there equal is enough. Bytes are those beyond opening, whose first read is
    32 KiB here and 16 KiB in GDAL."""
    content = cog(maker)
    found: dict[str, dict[str, tuple[int, int]]] = {}
    for name, reader in READERS.items():
        rows = found.setdefault(name, {})
        url = put(server, content)[1]
        reader.open(url)
        rows["open"] = counted(server)
        for kind, box in BOXES.items():
            url = put(server, content)[1]
            equal_pixels(np.ascontiguousarray(reader.read(url, box)).reshape(1, 1024, 1024), pixels_of(box))
            rows[kind] = counted(server)
    with capsys.disabled():
        print(f"\nrequests and bytes, COG by {maker}, window of 1024 x 1024 of a file opened for it")
        for kind in ["open", *BOXES]:
            print(f"  {kind:14}" + "".join(f"{n}: {found[n][kind][0]:2} {found[n][kind][1]:8}   " for n in found))
    ours = found["swath"]
    for name in RIVALS:
        theirs = found[name]
        assert ours["open"][0] < theirs["open"][0] or ours["open"][0] == 1, name
        assert ours["open"][1] <= max(theirs["open"][1], HEAD), name
        for kind in BOXES:
            fewer = ours[kind][0] <= theirs[kind][0] if name == "async-geotiff" else ours[kind][0] < theirs[kind][0]
            assert fewer, (name, kind, ours[kind], theirs[kind])
            beyond = [rows[kind][1] - rows["open"][1] for rows in (ours, theirs)]
            # Bytes that GDAL read ahead at opening may be those that it needs later.
            assert beyond[0] <= beyond[1] or ours[kind][1] <= theirs[kind][1], (name, kind, ours, theirs)
