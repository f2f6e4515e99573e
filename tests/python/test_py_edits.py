"""`swath.to_geotiff` writes edits of an xarray object, and warns where they are ambiguous."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rioxarray
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
    """Writes a file and returns its EPSG code, transform and nodata; a warning is a fault."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", swath.SwathWarning)
        metadata = swath.Dataset(swath.to_geotiff(data, None, **words)).metadata()
    crs = metadata["crs"]
    return crs and crs["epsg"], metadata["transform"], metadata["bands"][0]["nodata"]


def test_edits_in_the_accessor_of_rioxarray_are_written(path: Path) -> None:
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
    # For a masked raster the file's value is in the encoding, as in rioxarray.
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
    # A later edit through rioxarray wins again.
    assert written(swath.open_geotiff(path).rio.write_crs(4326))[0] == 4326


def test_attributes_do_not_outlive_a_selection(path: Path) -> None:
    part = swath.open_geotiff(path).isel(x=slice(1, None), y=slice(2, None))
    assert "transform" not in part.attrs
    assert part.swath.transform == (10.0, 0.0, 500010.0, 0.0, -10.0, 4999980.0)
    assert written(part)[1] == (10.0, 0.0, 500010.0, 0.0, -10.0, 4999980.0)
    assert written(part * 2)[1] == (10.0, 0.0, 500010.0, 0.0, -10.0, 4999980.0)
    part = part.rio.write_transform()
    assert written(part)[1] == (10.0, 0.0, 500010.0, 0.0, -10.0, 4999980.0)


def test_selected_pixels_without_coordinates_are_refused(path: Path, folder: Path) -> None:
    bare = swath.open_geotiff(path, parse_coordinates=False)
    assert written(bare)[1] == UTM
    part = bare.isel(x=slice(1, None), y=slice(1, None))
    with pytest.raises(swath.UsageError, match=r"2 x 3 .*3 x 4 .*transform="):
        swath.to_geotiff(part, folder / "b.tif")
    assert not (folder / "b.tif").exists()
    assert written(part, transform=MOVED)[1] == MOVED
    part.attrs["transform"] = MOVED
    assert written(part)[1] == MOVED
    # Dropped coordinates are just as ambiguous.
    with pytest.raises(swath.UsageError, match="give transform="):
        written(swath.open_geotiff(path).isel(x=slice(1, None)).drop_vars(["x", "y"]))


def test_an_edited_transform_of_all_pixels_is_not_that_of_a_part(path: Path) -> None:
    data = swath.open_geotiff(path)
    data.attrs["transform"] = MOVED
    with pytest.warns(swath.SwathWarning, match=r"600000.*is written.*coordinates"):
        swath.to_geotiff(data.isel(x=slice(1, None)), None)


def test_control_points_of_all_pixels_are_not_those_of_a_part(folder: Path) -> None:
    points = [{"row": row, "col": col, "x": 500000 + col, "y": 5000000 - row} for row in (0, 3) for col in (0, 4)]
    path = swath.to_geotiff(np.zeros((3, 4), "uint8"), folder / "g.tif", gcps=points, crs=32633)
    data = swath.open_geotiff(path)
    written(data)
    with pytest.warns(swath.SwathWarning, match="control points.* read the part with window="):
        swath.to_geotiff(data.isel(x=slice(1, None)), None)


def test_edits_after_arithmetic_are_reported(path: Path) -> None:
    """Arithmetic drops the encoding, so it is unknown which of two values was edited."""
    computed = swath.open_geotiff(path) * 2
    assert written(computed) == (32633, UTM, -1)
    computed.attrs["nodata"] = 5
    with pytest.warns(swath.SwathWarning, match=r"nodata.* 5.*_FillValue.* -1: -1 is written"):
        swath.to_geotiff(computed, None)
    assert written(computed, nodata=5)[2] == 5
    del computed.attrs["_FillValue"]
    assert written(computed)[2] == 5
    read = rioxarray.open_rasterio(path, masked=True)
    read.attrs["nodata"] = 5
    with pytest.warns(swath.SwathWarning, match=r"encoding\['_FillValue'\] is -1"):
        swath.to_geotiff(read, None)


LOCAL = (
    'PROJCS["mine",GEOGCS["WGS 84",DATUM["WGS_1984",SPHEROID["WGS 84",6378137,298.257223563]],PRIMEM["Greenwich",0],'
    'UNIT["degree",0.0174532925199433]],PROJECTION["Transverse_Mercator"],PARAMETER["latitude_of_origin",0],'
    'PARAMETER["central_meridian",14],PARAMETER["scale_factor",1],PARAMETER["false_easting",0],'
    'PARAMETER["false_northing",0],UNIT["metre",1]]'
)


def test_reference_systems_without_a_code_are_compared(path: Path) -> None:
    computed = swath.open_geotiff(path) * 2
    computed.attrs["crs"] = LOCAL
    with pytest.warns(swath.SwathWarning, match=r"attrs\['crs'\] is mine, .*UTM zone 33N, which is written"):
        assert swath.Dataset(swath.to_geotiff(computed, None)).metadata()["crs"]["epsg"] == 32633
    # For a file without a code, attribute and coordinate are the same text.
    own = swath.open_geotiff(swath.to_geotiff(computed, None, crs=LOCAL))
    assert written(own * 2) == (None, UTM, -1)
    # The attribute has the code of the horizontal part.
    deep = swath.open_geotiff(swath.to_geotiff(computed, None, crs="EPSG:32633+5773"))
    written(deep * 2)


def test_the_reference_system_of_a_dataset(path: Path) -> None:
    dataset = swath.open_geotiff(path, band=1).to_dataset(name="a")
    dataset.attrs["crs"] = 3857
    with pytest.warns(swath.SwathWarning, match=r"EPSG:3857.*EPSG:32633"):
        swath.to_geotiff(dataset, None)
    assert written(dataset, crs=3857)[0] == 3857
    dataset.attrs["crs"] = "EPSG:32633"
    assert written(dataset)[0] == 32633
    bare = xr.Dataset({"a": (("y", "x"), np.zeros((3, 4)))}, attrs={"crs": 3857})
    assert written(bare)[0] == 3857


def test_attributes_in_the_order_of_gdal_are_refused(path: Path) -> None:
    numbers = (600000, 10, 0, 5000000, 0, -10)
    for data in (
        swath.open_geotiff(path),
        swath.open_geotiff(path) * 2,
        xr.DataArray(np.zeros((3, 4)), dims=("y", "x")),
    ):
        data.attrs["transform"] = numbers
        with pytest.raises(
            swath.UsageError, match=r"attrs\['transform'\]=.*GDAL's order .*give \(10, 0, 600000, 0, -10"
        ):
            swath.to_geotiff(data, None)


def test_contradictions_that_cannot_be_decided_are_reported(path: Path) -> None:
    data = swath.open_geotiff(path).drop_encoding()
    data.attrs["crs"] = 3857
    with pytest.warns(swath.SwathWarning, match=r"attrs\['crs'\] is EPSG:3857, .*UTM zone 33N, which is written"):
        assert swath.Dataset(swath.to_geotiff(data, None)).metadata()["crs"]["epsg"] == 32633
    data.attrs["crs"], data.attrs["transform"] = 32633, MOVED
    with pytest.warns(swath.SwathWarning, match=r"attrs\['transform'\] is .*600000.*which is written"):
        assert swath.Dataset(swath.to_geotiff(data, None)).metadata()["transform"] == UTM


def test_the_mean_of_bands_loses_band_metadata(path: Path) -> None:
    data = swath.open_geotiff(path)
    with xr.set_options(keep_attrs=True):
        mean = data.mean("band")
    assert "long_name" in mean.attrs
    assert written(mean)[0] == 32633


def test_warnings_are_given_at_each_call() -> None:
    data = xr.DataArray(np.array([[np.nan, 1.0]]), dims=("y", "x"))
    data.encoding["dtype"] = "uint8"
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        for _ in range(3):
            swath.to_geotiff(data, None)
            data.swath.to_geotiff(None)
    assert len(warned) == 6
    assert {warning.filename for warning in warned} == {__file__}
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
