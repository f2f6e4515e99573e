"""Descriptive tags whose values are missing from the file cause a warning, never a refusal."""

from __future__ import annotations

import struct
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
import swath as sw
import tifffile
from harness import Swath

pytestmark = pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")

ARRAY = np.arange(12, dtype="u2").reshape(3, 4)
XML = "<GDALMetadata><Item name='A'>b</Item></GDALMetadata>"
TAGS: list[tuple[Any, ...]] = [
    (42113, "s", 6, "-9999", False), (42112, "s", len(XML) + 1, XML, False), (315, "s", 10, "an artist", False),
    (33432, "s", 12, "a copyright", False), (700, "B", 12, b"<x>xmpxmp</x", False),
    (34675, "B", 12, b"icciccicciic", False), (33550, "d", 3, (1.0, 1.0, 0.0), False),
    (33922, "d", 6, (0.0, 0.0, 0.0, 5.0, 6.0, 0.0), False), (34735, "H", 8, (1, 1, 0, 1, 1024, 0, 1, 2), False),
    (34736, "d", 1, (1.0,), False), (34737, "s", 10, "citation|", False), (50844, "d", 92, [1.0] * 92, False),
]  # fmt: skip
NUMBERS = [270, 305, 306, 282, *(tag[0] for tag in TAGS)]


def lost(path: Path, number: int) -> Path:
    """A file whose tag `number` points beyond its end."""
    tifffile.imwrite(
        path, ARRAY, metadata=None, photometric="minisblack", description="a description", software="my software",
        datetime="2020:01:01 10:00:00", extratags=TAGS,
    )  # fmt: skip
    data = bytearray(path.read_bytes())
    (first,) = struct.unpack_from("<I", data, 4)
    (count,) = struct.unpack_from("<H", data, first)
    places = [first + 2 + 12 * entry for entry in range(count)]
    (place,) = [place for place in places if struct.unpack_from("<H", data, place)[0] == number]
    struct.pack_into("<I", data, place + 8, 1_000_000)
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("number", NUMBERS)
def test_file_is_read_without_it(swath: Swath, folder: Path, number: int) -> None:
    path, target = lost(folder / "a.tif", number), folder / "b.tif"
    assert np.array_equal(swath.dump(path)[0], ARRAY)
    for command in (["stats", path], ["convert", path, target], ["preview", path, folder / "p.png"], ["info", path]):
        run = swath.run(*command)
        run.check_alive()
        assert run.ok, run.stderr
        lines = [line for line in run.stderr.splitlines() if f"(tag {number})" in line]
        assert len(lines) == 1 and "beyond the end of the file" in lines[0], run.stderr
    with rasterio.open(target) as copy:
        assert np.array_equal(copy.read(1), ARRAY)


@pytest.mark.parametrize("number", NUMBERS)
def test_python_warns(folder: Path, number: int) -> None:
    path = lost(folder / "a.tif", number)
    with pytest.warns(sw.SwathWarning, match=rf"a\.tif: .*\(tag {number}\) lies beyond the end"):
        found = sw.open_geotiff(path, masked=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert np.array_equal(found.values[0], ARRAY)
    assert found.encoding.get("_FillValue") is None


def test_python_warns_at_each_read(folder: Path) -> None:
    """`swath.read` keeps the file open, and still warns at each read."""
    path = lost(folder / "a.tif", 42113)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            sw.read(path)
    assert len(caught) == 3 and {warning.filename for warning in caught} == {__file__}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(sw.SwathWarning, match="beyond the end"):
            sw.read(path)


def test_sparse_tiles_are_zero_without_nodata(swath: Swath, folder: Path) -> None:
    path = folder / "s.tif"
    with rasterio.open(path, "w", driver="GTiff", dtype="int16", count=1, height=32, width=32, nodata=-9999, tiled=True,
                       blockxsize=16, blockysize=16, SPARSE_OK=True):  # fmt: skip
        pass
    assert (swath.dump(path) == -9999).all()
    data = bytearray(path.read_bytes())
    (first,) = struct.unpack_from("<I", data, 4)
    (count,) = struct.unpack_from("<H", data, first)
    for place in (first + 2 + 12 * entry for entry in range(count)):
        if struct.unpack_from("<H", data, place)[0] == 42113:
            struct.pack_into("<I", data, place + 8, 1_000_000)
    path.write_bytes(data)
    with rasterio.open(path) as dataset:
        assert np.array_equal(dataset.read(), swath.dump(path))
