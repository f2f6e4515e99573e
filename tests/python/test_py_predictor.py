"""`predictor="auto"`: the predictor that makes a sample smallest, the same for every way to write."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import swath
from distributed import Client, LocalCluster
from harness import Swath

ROWS, COLUMNS = 300, 260
WORDS: dict[str, Any] = {"tile_size": 64, "compression": "zstd"}


def rasters() -> dict[str, tuple[np.ndarray, int]]:
    """Rasters with a clear answer, and the answer."""
    random = np.random.default_rng(5)
    rows, columns = np.mgrid[0:ROWS, 0:COLUMNS]
    noise = (random.integers(0, 16, (ROWS, COLUMNS)) * 4099).astype("uint16")
    late = noise.copy()
    late[:170] = 0
    steps = (1000.3 + columns // 40 * 0.27 + random.integers(0, 3, noise.shape) * 1.17).astype("float32")
    return {
        "noise": (noise, 1),
        "noise below constant rows": (late, 1),
        "ramp": ((columns * 37 + rows * 11).astype("uint16"), 2),
        "steps": (steps, 1),
    }


def predictor_of(file: bytes) -> int:
    found: int = swath.Dataset(file).metadata()["predictor"]
    return found


@pytest.mark.parametrize("cog", [False, True])
@pytest.mark.parametrize("name", rasters())
def test_the_same_file_from_memory_rows_blocks_and_a_cluster(name: str, cog: bool) -> None:
    data, expected = rasters()[name]
    words = {**WORDS, "cog": cog}
    eager = swath.to_geotiff(data, None, **words)
    assert predictor_of(eager) == expected
    assert np.array_equal(swath.Dataset(eager).read().squeeze(), data)
    assert swath.to_geotiff(data, None, **{**words, "predictor": expected}) == eager
    chunked = da.from_array(data, chunks=(50, 90))
    assert swath.to_geotiff(chunked, None, **words) == eager
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".* more than the .* bytes of streaming_buffer_bytes", swath.SwathWarning)
        assert swath.to_geotiff(chunked, None, streaming_buffer_bytes=1, **words) == eager
    with LocalCluster(n_workers=1, processes=False, dashboard_address=":0") as cluster, Client(cluster) as client:
        assert swath.to_geotiff(chunked, None, scheduler=client, **words) == eager


def test_chunks_of_blocks_are_computed_once() -> None:
    data, expected = rasters()["noise below constant rows"]
    computed: list[Any] = []

    def chunk(block_info: Any = None) -> np.ndarray:
        (rows, columns) = block_info[None]["array-location"]
        computed.append((rows, columns))
        return data[slice(*rows), slice(*columns)]

    chunked = da.map_blocks(chunk, chunks=((60,) * 5, (130, 130)), dtype=data.dtype, meta=data[:0, :0])
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".* more than the .* bytes of streaming_buffer_bytes", swath.SwathWarning)
        file = swath.to_geotiff(chunked, None, streaming_buffer_bytes=1, scheduler="sync", **WORDS)
    assert predictor_of(file) == expected
    assert len(computed) == len(set(computed)) == 10


def test_the_rule_by_type() -> None:
    data, _ = rasters()["noise"]
    assert predictor_of(swath.to_geotiff(data, None, predictor="type", **WORDS)) == 2


def test_the_command_shows_its_choice(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    command: Swath = request.getfixturevalue("swath")
    data, _ = rasters()["steps"]
    source, target = tmp_path / "in.tif", tmp_path / "out.tif"
    swath.to_geotiff(data, source, compression=None)
    words = ["--compress", "zstd", "--tile", "64", "--stats"]
    run = command.run("convert", source, target, *words)
    assert run.code == 0, run.stderr
    assert "predictor    none (1), chosen by the samples" in run.stderr
    assert swath.Dataset(target).metadata()["predictor"] == 1
    refused = command.run("convert", source, target, "--predictor", "worst")
    assert refused.code != 0 and "auto, type" in refused.stderr


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(swath.UsageError, match="auto, type"):
        swath.to_geotiff(np.zeros((4, 4), "uint8"), None, predictor="worst")
