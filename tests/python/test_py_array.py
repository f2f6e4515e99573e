"""`swath.Array`: reads return an array, in host memory and on a GPU."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import swath as sw
from harness import ROOT, scratch
from test_py_matrix import STAND_INS, environment

SAMPLES = np.arange(2 * 45 * 70, dtype="int16").reshape(2, 45, 70)


@pytest.fixture(scope="module")
def path() -> Iterator[Path]:
    with scratch() as name:
        path = Path(name) / "array.tif"
        sw.to_geotiff(SAMPLES, path, tile_size=32)
        yield path


def test_a_read_is_an_array_of_numpy(path: Path) -> None:
    array = sw.read(path)
    assert isinstance(array, np.ndarray) and isinstance(array, sw.Array)
    assert array.dtype == np.int16 and (array.device, array.report) == ("cpu", None)
    assert array.to_host() is array
    assert np.array_equal(array[0], SAMPLES[0]) and array[1, 2, 3] == SAMPLES[1, 2, 3]
    assert np.array_equal(array[:, ::2, 5], SAMPLES[:, ::2, 5]) and np.array_equal(
        array[array > 99], SAMPLES[SAMPLES > 99]
    )
    assert len(array) == 2 and [band.shape for band in array] == [(45, 70)] * 2
    assert np.array_equal(array.transpose(1, 2, 0), SAMPLES.transpose(1, 2, 0))
    for read in (sw.Dataset(path).read_windows([(0, 0, 8, 8)]), sw.Dataset(path).dataset_mask(), sw.read(path, 1)):
        assert isinstance(read, np.ndarray) and isinstance(read, sw.Array)


def test_results_of_arithmetic_are_plain_arrays_and_numbers(path: Path) -> None:
    array = sw.read(path)
    results = {
        "times": (array * 2 + 1, SAMPLES * 2 + 1),
        "from": (10 - array, 10 - SAMPLES),
        "power": (array**2, SAMPLES**2),
        "compared": (array >= 7, SAMPLES >= 7),
        "with its kind": (array + array, SAMPLES + SAMPLES),
        "with NumPy's": (SAMPLES - array, SAMPLES - SAMPLES),
        "root": (np.sqrt(array), np.sqrt(SAMPLES)),
        "negative": (-array, -SAMPLES),
        "sum": (array.sum(), SAMPLES.sum()),
        "mean of bands": (array.mean(axis=0), SAMPLES.mean(axis=0)),
        "largest": (array.max(), SAMPLES.max()),
        "median": (np.median(array), np.median(SAMPLES)),
        "any": (array.any(), SAMPLES.any()),
        "stack": (np.stack([array, array]), np.stack([SAMPLES, SAMPLES])),
        "where": (np.where(array > 3, array, 0), np.where(SAMPLES > 3, SAMPLES, 0)),
    }
    for name, (found, expected) in results.items():
        assert type(found) is type(expected) and np.array_equal(found, expected), name
    array += 1
    array[0, 0, 0] = -7
    assert isinstance(array, sw.Array) and array[0, 0, 0] == -7 and np.array_equal(array[1], SAMPLES[1] + 1)


def test_arrays_are_shown_copied_and_pickled(path: Path) -> None:
    array = sw.read(path, 1, (0, 0, 2, 3))
    assert repr(array) == repr(np.array([[0, 1, 2], [70, 71, 72]], "int16"))
    for other in (pickle.loads(pickle.dumps(array)), copy.copy(array), copy.deepcopy(array)):
        assert np.array_equal(other, array) and not np.shares_memory(other, array)
    assert pickle.loads(pickle.dumps(array)).report is None


def test_other_libraries_accept_the_array_as_numpy(path: Path) -> None:
    import dask.array
    import xarray

    array = sw.read(path)
    labelled = xarray.DataArray(array, dims=("band", "y", "x"))
    assert float((labelled + 1).isel(band=0).max()) == SAMPLES[0].max() + 1
    assert np.array_equal(dask.array.from_array(array, chunks=(1, 20, 20)).sum(axis=0).compute(), SAMPLES.sum(axis=0))
    masked = np.ma.masked_equal(array, 5)
    assert masked.mask.sum() == 1
    assert np.array_equal(sw.read(sw.to_geotiff(array, None)), SAMPLES)


def run(code: str, path: Path, env: dict[str, str]) -> str:
    subprocess.run([ROOT / "tools/fake-driver/build.sh"], check=True, capture_output=True)
    command = [sys.executable, "-c", textwrap.dedent(code), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_on_a_gpu_cupy_computes_the_same(path: Path) -> None:
    code = """
    import pickle, sys, cupy, numpy as np, swath
    samples = np.arange(2 * 45 * 70, dtype="int16").reshape(2, 45, 70)
    array = swath.read(sys.argv[1], device="cuda")
    assert isinstance(array, swath.Array) and not isinstance(array, np.ndarray)
    assert (array.device, array.dtype, array.shape, array.ndim) == ("cuda:0", np.int16, (2, 45, 70), 3)
    assert (array.size, array.nbytes, array.itemsize, len(array)) == (6300, 12600, 2, 2)
    assert repr(array) == "<swath.Array int16 (2, 45, 70) on cuda:0>"
    cases = [
        (array[0], samples[0]), (array[:, ::2, 5], samples[:, ::2, 5]), (array[array > 99], samples[samples > 99]),
        (array * 2 + 1, samples * 2 + 1), (10 - array, 10 - samples), (array + array, samples + samples),
        (array // 3, samples // 3), (array % 7, samples % 7), (array & 3, samples & 3), (array**2, samples**2),
        (-array, -samples), (abs(array), abs(samples)), (~array, ~samples), (array >= 7, samples >= 7),
        (array == 7, samples == 7), (array != 7, samples != 7), (array.astype("f4"), samples.astype("f4")),
        (array.T, samples.T), (array.transpose(1, 2, 0), samples.transpose(1, 2, 0)),
        (array.sum(), samples.sum()), (array.mean(axis=0), samples.mean(axis=0)), (array.max(), samples.max()),
        (np.sqrt(abs(array)), np.sqrt(abs(samples))), (np.stack([array, array]), np.stack([samples, samples])),
        (np.where(array > 3, array, 0), np.where(samples > 3, samples, 0)), (np.sum(array), np.sum(samples)),
    ]
    for number, (found, expected) in enumerate(cases):
        assert isinstance(found, cupy.ndarray), number
        assert np.array_equal(found.get(), expected) and found.get().dtype == expected.dtype, number
    assert [band.shape for band in array] == [(45, 70)] * 2
    assert (int(array[0, 0, 5]), bool((array == array).all()), array[0, 0, :3].tolist()) == (5, True, [0, 1, 2])
    assert array.reshape(2, -1).shape == array.reshape((2, 3150)).shape == (2, 3150)
    before = array.__cuda_array_interface__["data"]
    array += 1
    array[0, 0, 0] = -7
    assert isinstance(array, swath.Array) and array.__cuda_array_interface__["data"] == before
    host = array.to_host()
    assert isinstance(host, np.ndarray) and host[0, 0, 0] == -7 and np.array_equal(host[1], samples[1] + 1)
    again = pickle.loads(pickle.dumps(array))
    assert isinstance(again, np.ndarray) and np.array_equal(again, host)
    assert np.array_equal(swath.read(swath.to_geotiff(array, None)), host)
    windows = swath.Dataset(sys.argv[1]).read_windows([(0, 0, 8, 8), (8, 8, 16, 16)], device="cuda")
    assert np.array_equal(windows[1].get(), samples[:, 8:16, 8:16])
    for wrong in (lambda: np.asarray(array), lambda: array + np.ones(1), lambda: hash(array)):
        try:
            wrong()
        except TypeError:
            continue
        raise SystemExit("no error")
    for words in ({"masked": True}, {"boundless": True}):
        try:
            swath.read(sys.argv[1], device="cuda", **words)
        except swath.UsageError as error:
            assert "NumPy arrays" in str(error)
        else:
            raise SystemExit("no error")
    print("done")
    """
    assert run(code, path, environment()).strip() == "done"


def test_without_cupy_torch_computes_and_without_both_the_error_says_what_to_do(path: Path) -> None:
    code = """
    import sys
    sys.modules["cupy"] = None
    import numpy as np, swath
    array = swath.read(sys.argv[1], device="cuda")
    import torch
    assert isinstance(array[0], torch.Tensor) and array[0].shape == (45, 70)
    sys.modules["torch"] = None
    for work in (lambda: array[0], lambda: array + 1, lambda: array.sum(), lambda: np.sqrt(array)):
        try:
            work()
        except swath.DeviceError as error:
            assert "pip install" in str(error) and "to_host()" in str(error), error
        else:
            raise SystemExit("no error")
    assert array.to_host()[0, 0, 5] == 5
    print("done")
    """
    assert run(code, path, environment()).strip() == "done"
    assert str(STAND_INS) not in os.environ.get("PYTHONPATH", "")
