"""Masks, colour interpretation and tags that `swath.to_geotiff` writes or copies from file to file."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import rasterio
import rasterio.shutil
import swath
import xarray as xr
from rasterio.enums import ColorInterp, MaskFlags

DATA = np.arange(2 * 40 * 50, dtype="uint16").reshape(2, 40, 50)
SHOWN = np.arange(40 * 50).reshape(40, 50) % 7 != 0


@pytest.mark.parametrize("mask", [SHOWN, SHOWN.astype("uint8"), SHOWN[None] * np.uint8(255), xr.DataArray(SHOWN)])
@pytest.mark.parametrize("cog", [False, True])
def test_masks(folder: Path, mask: Any, cog: bool) -> None:
    path = swath.to_geotiff(DATA, folder / "a.tif", mask=mask, cog=cog, tile_size=16, overview_levels=[2])
    with rasterio.open(path) as file:
        assert file.mask_flag_enums == ([MaskFlags.per_dataset],) * 2
        np.testing.assert_array_equal(file.read_masks(1) != 0, SHOWN)
        np.testing.assert_array_equal(file.read(), DATA)
    np.testing.assert_array_equal(np.isnan(swath.open_geotiff(path, masked=True).values[0]), ~SHOWN)
    assert list(folder.iterdir()) == [path]


@pytest.mark.parametrize("words", [{}, {"streaming_buffer_bytes": 2000}])
def test_masks_of_dask_arrays(words: dict[str, Any]) -> None:
    data = xr.DataArray(DATA, dims=("band", "y", "x")).chunk({"y": 16, "x": 16})
    made = swath.to_geotiff(data, None, mask=SHOWN, tile_size=16, **words)
    with rasterio.MemoryFile(made) as memory, memory.open() as file:
        np.testing.assert_array_equal(file.read_masks(1) != 0, SHOWN)
        np.testing.assert_array_equal(file.read(), DATA)


def test_masks_of_another_shape_are_refused() -> None:
    for mask in (SHOWN[1:], SHOWN.astype(float), np.ones((2, 40, 50), bool)):
        with pytest.raises(swath.UsageError, match="40 rows and 50 columns"):
            swath.to_geotiff(DATA, None, mask=mask)


@pytest.mark.parametrize(
    "names",
    [
        ["red", "green", "blue", "nir"],
        ["Gray", "alpha", "undefined", "undefined"],
        [ColorInterp.blue, ColorInterp.green, ColorInterp.red, ColorInterp.alpha],
        ["red", "green", "blue", "alpha"],
    ],
)
def test_colour_interpretation_of_bands(names: list[Any]) -> None:
    data = np.zeros((4, 20, 30), "uint8")
    with rasterio.MemoryFile(swath.to_geotiff(data, None, colorinterp=names)) as memory, memory.open() as file:
        found = [color.name for color in file.colorinterp]
    assert found == [str(getattr(name, "name", name)).lower() for name in names]
    with pytest.raises(swath.UsageError, match="did you mean green"):
        swath.to_geotiff(data, None, colorinterp=["red", "gren", "blue", "alpha"])
    with pytest.raises(swath.UsageError, match="3 values for 4 bands"):
        swath.to_geotiff(data, None, colorinterp=["red", "green", "blue"])


@pytest.fixture
def tagged(folder: Path) -> Path:
    profile = {"driver": "GTiff", "width": 50, "height": 40, "count": 2, "dtype": "uint16"}
    with rasterio.open(folder / "tagged.tif", "w", **profile) as file:
        file.write(DATA)
        file.update_tags(SENSOR="MSI", NUMBER="007", STATISTICS_MEAN="3")
        file.update_tags(ns="PROCESSING", LEVEL="L2A", VERSION="04.00")
        file.update_tags(1, WAVELENGTH="665.0", ONE="1")
        file.update_tags(2, WAVELENGTH="842.0", TWO="2", STATISTICS_MEAN="3")
        file.update_tags(2, ns="CAL", GAIN="0.5")
    return folder / "tagged.tif"


def tags_of(data: Any) -> list[dict[str, str]]:
    with rasterio.MemoryFile(swath.to_geotiff(data, None)) as memory, memory.open() as file:
        found = [file.tags(), file.tags(ns="PROCESSING")]
        for band in file.indexes:
            found += [file.tags(band), file.tags(band, ns="CAL")]
    found[0].pop("AREA_OR_POINT", None)
    return found


@pytest.mark.parametrize("words", [{}, {"masked": True}, {"chunks": 16}])
def test_tags_are_copied_from_file_to_file(tagged: Path, words: dict[str, Any]) -> None:
    file, domain = {"SENSOR": "MSI", "NUMBER": "007"}, {"LEVEL": "L2A", "VERSION": "04.00"}
    one, two, gain = {"WAVELENGTH": "665.0", "ONE": "1"}, {"WAVELENGTH": "842.0", "TWO": "2"}, {"GAIN": "0.5"}
    data = swath.open_geotiff(tagged, **words)
    assert data.attrs["WAVELENGTH"] == 665.0
    assert tags_of(data) == [file, domain, one, {}, two, gain]
    assert tags_of(data.isel(band=[1])) == [file, domain, two, gain]
    assert tags_of(data[::-1]) == [file, domain, two, gain, one, {}]
    assert tags_of(swath.open_geotiff(tagged, band=2, **words)) == [file, domain, two, gain]
    # Users edit attributes.
    data.attrs.update(SENSOR="OLI", WAVELENGTH=670)
    del data.attrs["ONE"], data.attrs["NUMBER"]
    assert tags_of(data) == [{"SENSOR": "OLI", "WAVELENGTH": "670"}, domain, {}, {}, two, gain]


def test_texts_of_tags_stay_as_they_were(folder: Path) -> None:
    texts = {"EDITION": "01", "AXIS": "6356.7590000", "NAME": "a", "LIST": "{1,2}", "LARGE": "1e3"}
    path = swath.to_geotiff(DATA, folder / "a.tif", tags=texts)
    data = swath.open_geotiff(path)
    assert data.attrs["EDITION"] == 1
    assert tags_of(data)[0] == texts
    data.attrs["EDITION"] = 2
    assert tags_of(data)[0] == {**texts, "EDITION": "2"}


def test_tags_of_variables(tagged: Path) -> None:
    dataset = xr.open_dataset(tagged, engine="swath", band_as_variable=True, mask_and_scale=False)
    found = tags_of(dataset)
    assert found[0]["SENSOR"] == "MSI"
    assert found[2]["WAVELENGTH"] == "665.0" and found[4] == {"WAVELENGTH": "842.0", "TWO": "2"}


@pytest.mark.parametrize("words", [{"band_as_variable": True}, {}])
def test_tags_of_other_domains_go_through_a_dataset(tagged: Path, words: dict[str, Any]) -> None:
    domain, gain = {"LEVEL": "L2A", "VERSION": "04.00"}, {"GAIN": "0.5"}
    dataset = xr.open_dataset(tagged, engine="swath", mask_and_scale=False, **words)
    for data in (dataset, dataset.isel(x=slice(0, 3)), dataset.copy(deep=True), dataset.assign_attrs(MORE="1")):
        found = tags_of(data)
        assert found[1] == domain and found[5] == gain
    # One variable, and one that was made of bands.
    array = swath.open_geotiff(tagged)
    assert tags_of(array.to_dataset(name="a"))[1] == domain
    assert tags_of(array.to_dataset(dim="band").rename({1: "one", 2: "two"}))[1] == domain


def test_names_of_classes_of_several_bands(folder: Path) -> None:
    names = [["water", "forest"], ["no", "yes", "perhaps"]]
    data = (np.arange(24, dtype="uint8") % 2).reshape(2, 3, 4)
    swath.to_geotiff(data, folder / "a.tif", category_names=names)
    opened = swath.open_geotiff(folder / "a.tif")
    assert opened.attrs["category_names"] == names
    swath.to_geotiff(opened, folder / "b.tif")
    assert swath.open_geotiff(folder / "b.tif").attrs["category_names"] == names
    # Bands take their names along.
    for data, expected in (
        (opened.isel(band=1), names[1]),
        (opened.isel(band=[1, 0]), names[::-1]),
        (swath.open_geotiff(folder / "a.tif", band=2), names[1]),
        (swath.open_geotiff(folder / "a.tif", band_as_variable=True), names),
    ):
        swath.to_geotiff(data, folder / "c.tif")
        assert swath.open_geotiff(folder / "c.tif").attrs["category_names"] == expected
    # GDAL finds them, and we find those of a band that it writes.
    rasterio.shutil.copy(folder / "b.tif", folder / "b.vrt", driver="VRT")
    assert [each.text for each in ElementTree.parse(folder / "b.vrt").iter("Category")] == [*names[0], *names[1]]
    (folder / "d.tif").write_bytes((folder / "a.tif").read_bytes())
    (folder / "d.tif.aux.xml").write_text(
        '<PAMDataset><PAMRasterBand band="2"><CategoryNames><Category>only</Category></CategoryNames></PAMRasterBand>'
        "</PAMDataset>"
    )
    assert swath.open_geotiff(folder / "d.tif").attrs["category_names"] == [[], ["only"]]
    with pytest.warns(swath.SwathWarning, match="no coordinate 'band' says which"):
        swath.to_geotiff(opened.isel(band=1).drop_vars("band"), folder / "e.tif")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_entities_in_a_side_file_are_not_expanded(folder: Path, encoding: str) -> None:
    swath.to_geotiff(np.zeros((3, 4), "uint8"), folder / "a.tif")
    names = '<PAMRasterBand band="1"><CategoryNames><Category>&e;</Category></CategoryNames></PAMRasterBand>'
    for start, found in (('<!DOCTYPE a [<!ENTITY e "name">]>', None), ("", ["name"])):
        text = f'<?xml version="1.0" encoding="{encoding}"?>{start}<PAMDataset>{names}</PAMDataset>'
        (folder / "a.tif.aux.xml").write_bytes((text if start else text.replace("&e;", "name")).encode(encoding))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", swath.SwathWarning)
            assert swath.open_geotiff(folder / "a.tif").attrs.get("category_names") == found


def test_names_of_classes(folder: Path) -> None:
    names = ["water", "forest & scrub", "città"]
    data = np.arange(12, dtype="uint8").reshape(3, 4) % 3
    swath.to_geotiff(data, folder / "a.tif", category_names=names)
    assert sorted(path.name for path in folder.iterdir()) == ["a.tif", "a.tif.aux.xml"]
    opened = swath.open_geotiff(folder / "a.tif")
    assert opened.attrs["category_names"] == names
    swath.to_geotiff(opened, folder / "b.tif")
    assert swath.open_geotiff(folder / "b.tif").attrs["category_names"] == names
    # GDAL finds them, and we find those that it writes.
    rasterio.shutil.copy(folder / "b.tif", folder / "b.vrt", driver="VRT")
    assert [found.text for found in ElementTree.parse(folder / "b.vrt").iter("Category")] == names
    rasterio.shutil.copy(folder / "b.vrt", folder / "c.tif", driver="GTiff")
    assert swath.open_geotiff(folder / "c.tif", masked=True).attrs["category_names"] == names
    swath.to_geotiff(opened.to_dataset(name="a"), folder / "d.tif")
    assert swath.open_geotiff(folder / "d.tif").attrs["category_names"] == names
    with pytest.raises(swath.UsageError, match="a path on a local disk"):
        swath.to_geotiff(data, None, category_names=names)
    with pytest.warns(swath.SwathWarning, match="category_names"):
        swath.to_geotiff(opened, None)
    with pytest.raises(swath.UsageError, match="a list of texts"):
        swath.to_geotiff(data, folder / "a.tif", category_names="water")
    with pytest.raises(swath.UsageError, match="1 lists of names for 2 bands"):
        swath.to_geotiff(DATA, folder / "a.tif", category_names=names)


@pytest.mark.parametrize(("words", "limits"), [({}, (0.0, 1999.0)), ({"color_ramp_range": (-5, 5)}, (-5.0, 5.0))])
@pytest.mark.parametrize("cog", [False, True])
def test_colours_for_qgis(folder: Path, words: dict[str, Any], limits: tuple[float, float], cog: bool) -> None:
    swath.to_geotiff(DATA[0].astype("float32"), folder / "a.tif", color_ramp="magma", cog=cog, **words)
    renderer = ElementTree.parse(folder / "a.qml").find("pipe/rasterrenderer")
    assert renderer is not None and renderer.get("type") == "singlebandpseudocolor"
    assert (float(renderer.get("classificationMin", "")), float(renderer.get("classificationMax", ""))) == limits
    items = renderer.findall("rastershader/colorrampshader/item")
    assert [item.get("color") for item in items][::4] == ["#000004", "#fcfdbf"]
    assert (float(items[0].get("value", "")), float(items[-1].get("value", ""))) == limits


@pytest.mark.parametrize(
    ("data", "words", "message"),
    [
        (DATA[0], {"color_ramp": "wild"}, "viridis"),
        (DATA, {"color_ramp": True}, "the raster has 2"),
        (DATA[0], {"color_ramp_range": (0, 1)}, "without color_ramp"),
        (DATA[0], {"color_ramp": True, "color_ramp_range": (1, 0)}, "(smallest, largest)"),
    ],
)
def test_impossible_colours_are_refused(folder: Path, data: np.ndarray, words: dict[str, Any], message: str) -> None:
    with pytest.raises(swath.UsageError) as refused:
        swath.to_geotiff(data, folder / "a.tif", **words)
    assert message in str(refused.value)
    assert not list(folder.iterdir())


def test_colours_of_an_empty_raster_cause_a_warning(folder: Path) -> None:
    with pytest.warns(swath.SwathWarning, match="all samples are missing"):
        swath.to_geotiff(np.full((3, 4), np.nan), folder / "a.tif", color_ramp=True)
    assert [path.name for path in folder.iterdir()] == ["a.tif"]


@pytest.mark.parametrize(
    "colors",
    [
        ("gray", "undefined", "undefined", "undefined"),
        ("blue", "green", "red", "undefined"),
        ("red", "green", "blue", "alpha"),
        ("red", "green", "blue", "undefined"),
        ("gray", "alpha"),
        ("alpha",),
    ],
)
def test_colour_interpretation_is_copied_from_file_to_file(folder: Path, colors: tuple[str, ...]) -> None:
    source = folder / "a.tif"
    with rasterio.open(source, "w", "GTiff", 8, 8, len(colors), dtype="uint8", photometric="minisblack") as file:
        file.colorinterp = [ColorInterp[name] for name in colors]
        file.write(np.arange(64 * len(colors), dtype="uint8").reshape(-1, 8, 8))
    for data in (swath.open_geotiff(source), swath.open_geotiff(source, chunks=4)):
        with rasterio.open(swath.to_geotiff(data, folder / "b.tif")) as file:
            assert [band.name for band in file.colorinterp] == list(colors)
    # Bands as variables, a choice of bands, and keywords of the caller.
    apart = swath.to_geotiff(swath.open_geotiff(source, band_as_variable=True), folder / "c.tif")
    last = swath.to_geotiff(swath.open_geotiff(source)[::-1], folder / "d.tif")
    with rasterio.open(apart) as file, rasterio.open(last) as turned:
        assert [band.name for band in file.colorinterp] == list(colors)
        # To GDAL, the first band of a file without colours is gray.
        first = colors[-1].replace("undefined", "gray")
        assert [band.name for band in turned.colorinterp] == [first, *colors[-2::-1]]
    if len(colors) > 2:
        with rasterio.open(swath.to_geotiff(data, folder / "e.tif", photometric="rgb")) as file:
            assert file.colorinterp[:3] == (ColorInterp.red, ColorInterp.green, ColorInterp.blue)
