"""The reference system of a file is read as GDAL reads it, and a conversion keeps it, whatever its keys are."""

from __future__ import annotations

import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
import tifffile
from harness import SHARED_CORPUS, SHARED_RASTERS, Swath, shared
from rasterio.crs import CRS
from writing import convert

warnings.filterwarnings("ignore", category=rasterio.errors.NotGeoreferencedWarning)

USER = 32767
Keys = dict[int, int | float | str]

ERDAS = """IMAGINE GeoTIFF Support
Copyright 1991 - 2001 by ERDAS, Inc. All Rights Reserved
@(#)$RCSfile: egtf.c $ $Revision: 1.9.3.3 $ $Date: 2002/07/01 19:42:26EDT $
Projection Name = State Plane NAD83
Units = {}
GeoTIFF Units = other"""
MOON = (
    "GCS Name = Moon (2015) - Sphere / Ocentric|Datum = Moon (2015) - Sphere|Ellipsoid = Moon (2015) - Sphere|"
    "Primem = Reference Meridian|"
)
ALBERS: Keys = {
    1024: 1, 1025: 1, 1026: "Albers", 3072: USER, 3074: USER, 3075: 11, 3076: 9001, 3078: 29.5, 3079: 45.5,
    3081: 23.0, 3080: -96.0, 3082: 0.0, 3083: 0.0,
}  # fmt: skip
CONIC: Keys = {
    1024: 1, 1025: 1, 3072: USER, 3074: USER, 3075: 8, 2048: 4269, 3078: 46.0, 3079: 44.25, 3084: -120.5, 3085: 43.5,
    3086: 2500000.0, 3087: 0.0,
}  # fmt: skip
UTM: Keys = {1024: 1, 1025: 1, 3072: 26711}
NAD83: Keys = {1024: 2, 1025: 1, 2048: 4269, 2054: 9102}
NAMES = "GCS Name = x|Datum = d|Ellipsoid = e|"
OWN: Keys = {1024: 2, 1025: 1, 2048: USER, 2050: USER, 2056: USER, 2057: 6378249.2, 2059: 293.466, 2054: 9102}

# Keys, and the minor revision: 0 for GeoTIFF 1.0, whose heights GDAL ignores.
CASES: dict[str, tuple[Keys, int]] = {
    "lone vertical unit": ({1024: 1, 1025: 1, 3072: 27563, 4099: 9001}, 0),
    "private vertical unit": ({**UTM, 4096: USER, 4097: "My height", 4098: 5103, 4099: USER}, 1),
    "private vertical unit of 1.0": ({**UTM, 4096: USER, 4097: "My height", 4099: USER}, 0),
    "heights of 1.0 by code": ({**UTM, 4096: 5703, 4099: 9001}, 0),
    "heights of 1.0 by datum": ({**UTM, 4097: "navd88", 4098: 5103, 4099: 9001}, 0),
    "heights of 1.1": ({**UTM, 4096: 5703, 4099: 9001}, 1),
    "heights in feet": ({**UTM, 4098: 5103, 4099: 9002}, 1),
    "other ellipsoid under WGS 84": ({**ALBERS, 2048: 4326, 2057: 6378140.0, 2059: 298.257}, 0),
    "other axis under WGS 84": ({**ALBERS, 2048: 4326, 2057: 6378206.4}, 0),
    "other sphere under WGS 84": ({**ALBERS, 2048: 4326, 2057: 6370000.0, 2059: 0.0}, 0),
    "other minor axis under NAD83": ({**NAD83, 2057: 6378206.4, 2058: 6356583.8}, 0),
    "other ellipsoid by code": ({**NAD83, 2056: 7008}, 0),
    "other flattening alone": ({**NAD83, 2059: 294.9}, 0),
    "WGS 84 settled by its code": ({**NAD83, 2048: 4326, 2057: 6378140.0, 2059: 298.257}, 0),
    "other datum": ({**NAD83, 2050: 6267}, 0),
    "other datum under a projected code": ({1024: 1, 1025: 1, 3072: 32611, 2048: 4326, 2050: 6267}, 0),
    "other ellipsoid under a projected code": ({1024: 1, 1025: 1, 3072: 32611, 2048: 4326, 2057: 6378206.4}, 0),
    "other ellipsoid by code under a projected code": ({1024: 1, 1025: 1, 3072: 32611, 2056: 7008}, 0),
    "other meridian": ({**NAD83, 2051: 8903}, 0),
    "meridian of its own": ({**NAD83, 2051: USER, 2061: 2.5}, 0),
    "other angle": ({**NAD83, 2054: 9105}, 0),
    "Erdas in feet": ({1024: 1, 1025: 1, 1026: ERDAS.format("feet"), 3072: 2838, 3076: 9001}, 0),
    "Erdas in metres": ({1024: 1, 1025: 1, 1026: ERDAS.format("meters"), 3072: 2838}, 0),
    "Erdas without a code": ({**CONIC, 1026: ERDAS.format("us_survey_feet")}, 0),
    "Erdas in another unit than its key": ({**CONIC, 3073: ERDAS.format("international_feet"), 3076: 9003}, 0),
    "unit of a citation": ({**CONIC, 3073: "PCS Name = mine|LUnits = cubits|", 3076: USER, 3077: 0.5}, 0),
    "3D projected": ({1024: 1, 1025: 1, 3072: 32631, 4096: 4979}, 1),
    "3D projected of 1.0": ({1024: 1, 1025: 1, 3072: 32631, 4096: 5030}, 0),
    "3D projected on NAD83(2011)": ({1024: 1, 1025: 1, 3072: 6340, 4096: 6319}, 1),
    "Moon": ({1024: 2, 1025: 1, 2048: USER, 2049: MOON, 2050: USER, 2051: USER, 2056: USER, 2061: 0.0,
              2057: 1737400.0, 2059: 0.0, 2054: 9102}, 1),
    "Moon, projected": ({1024: 1, 1025: 1, 1026: "Moon (2015) - Sphere / Ocentric / Equirectangular, clon = 0",
                         2048: USER, 2049: MOON, 2050: USER, 2051: USER, 2056: USER, 2061: 0.0, 2057: 1737400.0,
                         2058: 1737400.0, 2054: 9102, 3072: USER, 3074: USER, 3075: 17, 3076: 9001, 3078: 0.0,
                         3088: 0.0, 3089: 0.0, 3082: 0.0, 3083: 0.0}, 0),
    "meridian with a name": ({**OWN, 2049: f"{NAMES}Primem = Paris RGS|", 2051: USER, 2061: 2.33720833333333}, 0),
    "Greenwich renamed": ({**OWN, 2049: f"{NAMES}Primem = Reference|", 2051: 8901}, 0),
}  # fmt: skip


def keyed(path: Path, keys: Keys, minor: int) -> Path:
    """A small file with these GeoKeys."""
    entries: list[int] = []
    doubles: list[float] = []
    text = b""
    for key, value in sorted(keys.items()):
        if isinstance(value, int):
            entries += [key, 0, 1, value]
        elif isinstance(value, float):
            entries += [key, 34736, 1, len(doubles)]
            doubles.append(value)
        else:
            entries += [key, 34737, len(value) + 1, len(text)]
            text += value.encode() + b"|"
    directory = [1, 1, minor, len(keys), *entries]
    tags: list[tuple[Any, ...]] = [
        (33550, "d", 3, (1.0, 1.0, 0.0), False),
        (33922, "d", 6, (0.0, 0.0, 0.0, 100.0, 200.0, 0.0), False),
        (34735, "H", len(directory), directory, False),
    ]
    if doubles:
        tags.append((34736, "d", len(doubles), doubles, False))
    if text:
        tags.append((34737, "s", len(text) + 1, text, False))
    tifffile.imwrite(path, np.zeros((4, 5), "u1"), metadata=None, extratags=tags, photometric="minisblack")
    return path


def system(path: Path | str) -> CRS | None:
    """The system as GDAL reads it, or else that of the control points."""
    with rasterio.open(path) as dataset:
        return dataset.crs or dataset.gcps[1]


def text(crs: CRS | None) -> str | None:
    return crs.to_wkt(version="WKT2_2019") if crs else None


def facts(crs: CRS) -> tuple[Any, ...]:
    """Facts that GDAL's equality ignores: the number of axes, the figure of the Earth, the meridian and its name."""
    definition = crs.to_dict(projjson=True)
    floor = next((part for part in definition.get("components", ())), definition)
    base = floor.get("base_crs", floor)
    datum = base.get("datum") or base["datum_ensemble"]
    figure = datum["ellipsoid"]
    long = figure.get("semi_major_axis", figure.get("radius"))
    flattening = figure.get("inverse_flattening")
    short = figure.get("semi_minor_axis", long) if not flattening else long - long / flattening
    meridian = datum.get("prime_meridian", {})
    longitude = meridian.get("longitude", 0.0)
    if isinstance(longitude, dict):
        longitude = math.degrees(longitude["value"] * longitude["unit"]["conversion_factor"])
    return (
        definition["type"],
        len(floor["coordinate_system"]["axis"]),
        pytest.approx(long, abs=1e-4),
        pytest.approx(short, abs=1e-4),
        meridian.get("name", "Greenwich"),
        pytest.approx(longitude, abs=1e-9),
    )


@pytest.mark.parametrize("name", CASES)
def test_read_as_gdal_reads(swath: Swath, folder: Path, name: str) -> None:
    path = keyed(folder / "s.tif", *CASES[name])
    want, got = system(path), swath.info(path)["crs"]
    assert want and got
    said = CRS.from_user_input(got)
    assert said == want, f"got {text(said)}\nwant {text(want)}"
    assert facts(said) == facts(want)
    if want.is_projected:
        assert said.linear_units_factor[1] == pytest.approx(want.linear_units_factor[1], rel=1e-9)


@pytest.mark.parametrize("name", CASES)
def test_keys_survive_a_conversion(swath: Swath, folder: Path, name: str) -> None:
    source, target = keyed(folder / "s.tif", *CASES[name]), folder / "t.tif"
    for options in ((), ("--cog",), ("--window", "1,1,2,2", "--nodata", "7")):
        convert(swath, source, target, *options)
        assert text(system(target)) == text(system(source)), options
        with tifffile.TiffFile(source) as one, tifffile.TiffFile(target) as other:
            for number in (34735, 34736, 34737):
                a, b = (tiff.pages[0].tags.get(number) for tiff in (one, other))
                assert (a and a.value) == (b and b.value), number


@pytest.mark.parametrize("name", CASES)
def test_written_from_python(folder: Path, name: str) -> None:
    """Through xarray only WKT travels."""
    package = pytest.importorskip("swath")
    source, target = keyed(folder / "s.tif", *CASES[name]), folder / "t.tif"
    want = system(source)
    package.to_geotiff(package.open_geotiff(source), target)
    got = system(target)
    assert want and got
    assert got == want, f"got {text(got)}\nwant {text(want)}"
    assert facts(got) == facts(want)


def test_a_new_system_replaces_the_keys(swath: Swath, folder: Path) -> None:
    source, target = keyed(folder / "s.tif", *CASES["Erdas in feet"]), folder / "t.tif"
    convert(swath, source, target, "--crs", "EPSG:32633")
    assert system(target) == CRS.from_epsg(32633)
    # GeoTIFF 1.0 hides its heights; a user who gives the system wants to see it.
    source = keyed(source, *CASES["heights of 1.0 by code"])
    assert system(source) == CRS.from_epsg(26711)
    convert(swath, source, target, "--crs", "EPSG:26711+5703")
    assert system(target) == CRS.from_user_input("EPSG:26711+5703")


def test_a_side_file_replaces_the_keys(swath: Swath, folder: Path) -> None:
    source, target = keyed(folder / "s.tif", *CASES["Erdas in feet"]), folder / "t.tif"
    (folder / "s.tif.aux.xml").write_text("<PAMDataset><SRS>EPSG:32633</SRS></PAMDataset>")
    convert(swath, source, target)
    assert system(target) == system(source) == CRS.from_epsg(32633)


def test_damaged_keys_are_copied_as_they_are(swath: Swath, folder: Path) -> None:
    """Text that is not UTF-8, with NULs, and a key that points to a missing value."""
    source, target = folder / "s.tif", folder / "t.tif"
    citation = "Gauß\0Krüger".encode("latin-1") + b"|"
    entries = [1024, 0, 1, 1, 1025, 0, 1, 1, 1026, 34737, len(citation), 0, 2057, 34736, 1, 9, 3072, 0, 1, 31467]
    directory = [1, 1, 0, len(entries) // 4, *entries]
    tags = [
        (34735, "H", len(directory), directory, False),
        (34736, "d", 1, (6378137.0,), False),
        (34737, "s", len(citation) + 1, citation, False),
    ]
    tifffile.imwrite(source, np.zeros((4, 5), "u1"), metadata=None, extratags=tags, photometric="minisblack")
    convert(swath, source, target)
    with tifffile.TiffFile(source) as one, tifffile.TiffFile(target) as other:
        for number in (34735, 34736, 34737):
            assert one.pages[0].tags[number].value == other.pages[0].tags[number].value
    assert text(system(target)) == text(system(source))


@pytest.mark.parametrize("key", [1, 2, None])
@pytest.mark.parametrize("item", ["Area", "Point"])
def test_a_key_overrides_a_contradicting_item(swath: Swath, folder: Path, key: int | None, item: str) -> None:
    """Whether coordinates are those of a pixel's corner or of its centre."""
    source = folder / "source.tif"
    keys = [1, 1, 0, 1, 1024, 0, 1, 2] if key is None else [1, 1, 0, 2, 1024, 0, 1, 2, 1025, 0, 1, key]
    xml = f'<GDALMetadata><Item name="AREA_OR_POINT">{item}</Item></GDALMetadata>'
    tags: list[tuple[int, str, int, Any, bool]] = [
        (33550, "d", 3, (1.0, 1.0, 0.0), True),
        (33922, "d", 6, (0.0, 0.0, 0.0, 10.0, 20.0, 0.0), True),
        (34735, "H", len(keys), keys, True),
        (42112, "s", 0, xml, True),
    ]
    tifffile.imwrite(source, np.zeros((4, 5), "u1"), metadata=None, extratags=tags)
    with rasterio.open(source) as dataset:
        expected = dataset.tags()["AREA_OR_POINT"]
    assert swath.info(source)["area_or_point"] == expected


def test_corpus(swath: Swath, folder: Path) -> None:
    """Every file of other projects: GDAL reads from the copy, letter for letter, what it reads from the source."""
    shared(SHARED_CORPUS)
    target, seen, faults = folder / "t.tif", 0, []
    for root in (SHARED_CORPUS, SHARED_RASTERS, SHARED_CORPUS.parent / "peers"):
        for path in sorted(root.rglob("*.tif*")):
            try:
                want = system(path)
            except Exception:
                continue
            if not want or path.suffix.lower() not in (".tif", ".tiff"):
                continue
            run = swath.run("convert", path, target, "--window", "0,0,1,1")
            run.check_alive()
            if not run.ok:
                continue
            seen += 1
            read = swath.info(path)["crs"]
            if text(system(target)) != text(want):
                faults.append(f"{path}: converted to {text(system(target))}, was {text(want)}")
            if read and CRS.from_user_input(read) != want:
                faults.append(f"{path}: read as {read}, by GDAL as {text(want)}")
    assert seen > 80
    assert not faults, "\n".join(faults)
