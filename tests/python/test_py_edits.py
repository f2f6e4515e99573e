"""What was changed on an xarray object after it was read is what `swath.to_geotiff` writes, and warnings are heard."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rioxarray  # noqa: F401 - gives arrays their `.rio`
import swath
import xarray as xr
from affine import Affine

UTM = (10.0, 0.0, 500000.0, 0.0, -10.0, 5000000.0)
MOVED = (10.0, 0.0, 600000.0, 0.0, -10.0, 5000000.0)


@pytest.fixture
def path(folder: Path) -> Path:
    """Two bands with a reference system, a transform and nodata."""
    data = np.arange(24, dtype="int16").reshape(2, 3, 4)
    names = ["one", "two"]
    return swath.to_geotiff(
        data, folder / "a.tif", crs=32633, transform=UTM, nodata=-1, band_descriptions=names, scales=[1.0, 2.0]
    )


def written(data: Any, **words: Any) -> tuple[int | None, tuple[float, ...] | None, Any]:
    """EPSG code, transform and nodata that a file gets; a warning is a fault."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", swath.SwathWarning)
        metadata = swath.Dataset(swath.to_geotiff(data, None, **words)).metadata()
    crs = metadata["crs"]
    return crs and crs["epsg"], metadata["transform"], metadata["bands"][0]["nodata"]


def test_what_the_accessor_of_rioxarray_keeps_is_written(path: Path) -> None:
    data = swath.open_geotiff(path)
    assert written(data) == (32633, UTM, -1)
    data.rio.crs, data.rio.nodata, data.rio.transform()
    assert written(data) == (32633, UTM, -1)
    with pytest.warns(FutureWarning):
        data.rio.set_crs(3857)
    data.rio.set_nodata(7)
    assert written(data) == (3857, UTM, 7)
    assert written(data.transpose("y", "x", "band")) == (32633, UTM, -1), "a new object has a new accessor"
    with pytest.warns(FutureWarning):
        dataset = swath.open_geotiff(path, band=1).to_dataset(name="a").rio.set_crs(3857)
    assert written(dataset)[0] == 3857


def test_nodata_that_was_removed_stays_removed(path: Path) -> None:
    removed = swath.open_geotiff(path).rio.write_nodata(None)
    assert written(removed)[2] is None
    assert written(removed.isel(y=slice(1, None)))[2] is None
    assert written(swath.open_geotiff(path).rio.write_nodata(7))[2] == 7
    assert written(swath.open_geotiff(path).rio.write_nodata(7).isel(y=slice(1, None)))[2] == 7
    # Of a masked raster the file's value is in the encoding, as rioxarray has it.
    masked = swath.open_geotiff(path, masked=True)
    assert np.isnan(masked.rio.nodata)
    assert written(masked)[2] == -1
    assert written(masked.rio.set_nodata(9))[2] == 9
    assert written(masked.rio.write_nodata(8, encoded=True))[2] in (8, 9)
    assert written(masked.rio.write_nodata(None, encoded=True).fillna(3).astype("int16"))[2] is None


def test_attributes_that_are_edited_by_hand_win(path: Path) -> None:
    data = swath.open_geotiff(path)
    data.attrs["crs"] = 3857
    data.attrs["nodata"] = 5
    data.attrs["transform"] = MOVED
    assert written(data) == (3857, MOVED, 5)
    assert written(data.isel(band=[0])) == (3857, MOVED, 5)
    data.attrs["transform"] = Affine(*UTM)
    assert written(data)[1] == UTM
    data.attrs["crs"] = data.attrs["nodata"] = None
    assert written(data) == (None, UTM, None)
    # What rioxarray writes afterwards counts again.
    assert written(swath.open_geotiff(path).rio.write_crs(4326))[0] == 4326


def test_attributes_do_not_outlive_a_selection(path: Path) -> None:
    part = swath.open_geotiff(path).isel(x=slice(1, None), y=slice(2, None))
    assert part.attrs["transform"] == UTM
    assert written(part)[1] == (10.0, 0.0, 500010.0, 0.0, -10.0, 4999980.0)
    assert written(part * 2)[1] == (10.0, 0.0, 500010.0, 0.0, -10.0, 4999980.0)
    part = part.rio.write_transform()
    assert written(part)[1] == (10.0, 0.0, 500010.0, 0.0, -10.0, 4999980.0)


def test_contradictions_that_cannot_be_decided_are_reported(path: Path) -> None:
    data = swath.open_geotiff(path).drop_encoding()
    data.attrs["crs"] = 3857
    with pytest.warns(swath.SwathWarning, match=r"attrs\['crs'\] is EPSG:3857, .*UTM zone 33N, which is written"):
        assert swath.Dataset(swath.to_geotiff(data, None)).metadata()["crs"]["epsg"] == 32633
    data.attrs["crs"], data.attrs["transform"] = 32633, MOVED
    with pytest.warns(swath.SwathWarning, match=r"attrs\['transform'\] is .*600000.*which is written"):
        assert swath.Dataset(swath.to_geotiff(data, None)).metadata()["transform"] == UTM


def test_the_mean_of_bands_says_nothing_of_bands(path: Path) -> None:
    data = swath.open_geotiff(path)
    with xr.set_options(keep_attrs=True):
        mean = data.mean("band")
    assert "long_name" in mean.attrs
    assert written(mean)[0] == 32633


def test_warnings_are_given_at_each_call() -> None:
    data = xr.DataArray(np.array([[np.nan, 1.0]]), dims=("y", "x"))
    data.encoding["dtype"] = "uint8"
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for _ in range(3):
            swath.to_geotiff(data, None)
            data.swath.to_geotiff(None)
    assert len(told) == 6
    assert {warning.filename for warning in told} == {__file__}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(swath.SwathWarning):
            swath.to_geotiff(data, None)
        warnings.simplefilter("ignore")
        swath.to_geotiff(data, None)


def test_warnings_are_shown_once_for_each_line() -> None:
    script = (
        "import numpy as np, swath, xarray as xr\n"
        "data = xr.DataArray(np.array([[np.nan, 1.0]]), dims=('y', 'x'))\n"
        "data.encoding['dtype'] = 'uint8'\n"
        "for _ in range(3):\n"
        "    swath.to_geotiff(data, None)\n"
        "swath.to_geotiff(data, None)\n"
    )
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stderr
    lines = [line.partition(" SwathWarning")[0] for line in shown.splitlines() if "SwathWarning" in line]
    assert lines == ["<string>:5:", "<string>:6:"]
