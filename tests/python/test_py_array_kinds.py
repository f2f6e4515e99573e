"""`to_geotiff` of a DataArray writes the array that it holds, in any memory, or a file that is not read yet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import swath
import xarray as xr
from numpy.lib.mixins import NDArrayOperatorsMixin
from swath._raster import Raster, Unread
from swath._write_input import of
from swath._write_options import WriteOptions


class OnDevice(NDArrayOperatorsMixin):
    """An array that claims to be on a GPU and, like CuPy's, does not become a NumPy array implicitly."""

    def __init__(self, held: np.ndarray) -> None:
        self.held = held

    shape = property(lambda self: self.held.shape)
    dtype = property(lambda self: self.held.dtype)
    ndim = property(lambda self: self.held.ndim)
    size = property(lambda self: self.held.size)
    __cuda_array_interface__ = property(lambda self: {**self.held.__array_interface__, "version": 3})

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        raise TypeError("Implicit conversion to a NumPy array is not allowed")

    def __array_function__(self, function: Any, _: Any, args: Any, kwargs: Any) -> Any:
        return OnDevice(function(*_inside(args), **kwargs))

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return OnDevice(getattr(ufunc, method)(*_inside(inputs), **kwargs))

    def __getitem__(self, region: Any) -> OnDevice:
        return OnDevice(self.held[region])

    def astype(self, dtype: Any, **_: Any) -> OnDevice:
        return OnDevice(self.held.astype(dtype))


def _inside(values: Any) -> list[Any]:
    return [value.held if isinstance(value, OnDevice) else value for value in values]


def planned(data: Any, **words: Any) -> Raster:
    return of(data, WriteOptions(**words))


def heights() -> np.ndarray:
    return np.arange(12, dtype="float32").reshape(3, 4)


def test_a_dataarray_on_a_device_is_written_from_there() -> None:
    held = OnDevice(heights())
    raster = planned(xr.DataArray(held, dims=("y", "x")))
    assert raster.on_device
    assert raster.blocks[0].samples is held


def test_arithmetic_on_a_device_is_written_from_there() -> None:
    raster = planned(xr.DataArray(OnDevice(heights()), dims=("y", "x")) * 2 + 1)
    assert raster.on_device
    np.testing.assert_array_equal(raster.blocks[0].samples.held, heights() * 2 + 1)


def test_variables_on_a_device_become_bands_there() -> None:
    data = xr.Dataset({name: (("y", "x"), OnDevice(heights() + place)) for place, name in enumerate("ab")})
    raster = planned(data)
    assert raster.on_device
    assert [block.samples.shape for block in raster.blocks] == [(1, 3, 4)] * 2
    np.testing.assert_array_equal(raster.blocks[1].samples.held[0], heights() + 1)


def test_an_array_in_memory_is_not_copied(tmp_path: Path) -> None:
    held = heights()
    mapped = np.memmap(tmp_path / "raw", "float32", "w+", shape=(3, 4))
    assert planned(xr.DataArray(held, dims=("y", "x"))).blocks[0].samples is held
    assert np.shares_memory(planned(xr.DataArray(mapped, dims=("y", "x"))).blocks[0].samples, mapped)


@pytest.mark.parametrize("cache", [True, False])
def test_a_file_that_was_not_read_stays_unread(tmp_path: Path, cache: bool) -> None:
    swath.to_geotiff(heights(), tmp_path / "a.tif")
    data = xr.open_dataset(tmp_path / "a.tif", engine="swath", cache=cache)
    samples = planned(data).blocks[0].samples
    assert isinstance(samples, Unread) and not samples.on_device
    loaded = planned(data.load()).blocks[0].samples
    assert isinstance(loaded, np.ndarray)


@pytest.mark.parametrize("kind", ["bare", "DataArray"])
def test_a_sparse_array_is_refused_by_name(kind: str) -> None:
    class Coo(OnDevice):
        def todense(self) -> np.ndarray:
            return self.held

    held: Any = Coo(heights())
    with pytest.raises(swath.UsageError, match=r"Coo is sparse: call todense\(\)"):
        planned(xr.DataArray(held, dims=("y", "x")) if kind == "DataArray" else held)


def test_an_array_that_does_not_lend_its_samples_is_refused_by_name() -> None:
    class Closed:
        def __array__(self, *_: Any, **__: Any) -> np.ndarray:
            raise RuntimeError("no")

    with pytest.raises(swath.UsageError, match="Closed does not give its samples"):
        planned(Closed())
