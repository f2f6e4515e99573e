"""Rational polynomial coefficients in files beside an image, read as GDAL reads them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import rasterio
import rasterio.rpc
import swath as sw
from harness import SHARED_CORPUS, Swath, shared
from writing import convert

pytestmark = pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")

SETS = ("line_num_coeff", "line_den_coeff", "samp_num_coeff", "samp_den_coeff")
NAMES = {
    "err_bias": "errBias", "err_rand": "errRand", "line_off": "lineOffset", "samp_off": "sampOffset",
    "lat_off": "latOffset", "long_off": "longOffset", "height_off": "heightOffset", "line_scale": "lineScale",
    "samp_scale": "sampScale", "lat_scale": "latScale", "long_scale": "longScale", "height_scale": "heightScale",
    "line_num_coeff": "lineNumCoef", "line_den_coeff": "lineDenCoef", "samp_num_coeff": "sampNumCoef",
    "samp_den_coeff": "sampDenCoef",
}  # fmt: skip


def model(first: float = 6.25) -> rasterio.rpc.RPC:
    rng = np.random.default_rng(3)
    return rasterio.rpc.RPC(
        err_bias=1.5, err_rand=0.5, line_off=first, samp_off=7.75, lat_off=45.1, long_off=10.5, height_off=300.5,
        line_scale=7, samp_scale=8.5, lat_scale=0.05, long_scale=0.07, height_scale=500.25,
        **{name: [round(float(value), 6) for value in rng.normal(size=20)] for name in SETS},
    )  # fmt: skip


def rpb(rpc: rasterio.rpc.RPC) -> str:
    lines = ['satId = "XX01";', 'bandId = "P";', 'SpecId = "RPC00B";', "BEGIN_GROUP = IMAGE"]
    for name, own in NAMES.items():
        value = getattr(rpc, name)
        shown = "(\n\t\t\t" + ",\n\t\t\t".join(f"{term:+.17E}" for term in value) + ")" if name in SETS else repr(value)
        lines.append(f"\t{own} = {shown};")
    return "\n".join([*lines, "END_GROUP = IMAGE", "END;", ""])


def lines(rpc: rasterio.rpc.RPC) -> str:
    out = []
    for name in NAMES:
        value = getattr(rpc, name)
        terms = [(f"{name}_{i}", term) for i, term in enumerate(value, 1)] if name in SETS else [(name, value)]
        out += [f"{key.upper()}: {term!r} {'' if name in SETS else 'pixels'}".rstrip() for key, term in terms]
    return "\r\n".join([*out, ""])


def image(path: Path, rpc: rasterio.rpc.RPC | None = None) -> Path:
    with rasterio.open(path, "w", driver="GTiff", dtype="uint8", count=1, height=12, width=15) as out:
        out.write(np.zeros((1, 12, 15), "uint8"))
        if rpc is not None:
            out.rpcs = rpc
    return path


def by_gdal(path: Path) -> dict | None:
    with rasterio.open(path) as dataset:
        return None if dataset.rpcs is None else dataset.rpcs.to_dict()


def by_swath(path: Path) -> dict | None:
    text = sw.open_geotiff(path).spatial_ref.attrs.get("rpcs")
    return None if text is None else json.loads(text)


@pytest.mark.parametrize(
    ("ending", "shown"),
    [(".rpb", rpb), (".RPB", rpb), ("_rpc.txt", lines), ("_RPC.TXT", lines), ("_RPC.txt", lines), (".rpc", lines)],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_side_file(swath: Swath, tmp_path: Path, ending: str, shown: Callable[[rasterio.rpc.RPC], str]) -> None:
    path, copy = image(tmp_path / "a.tif"), tmp_path / "out" / "b.tif"
    copy.parent.mkdir()
    beside = tmp_path / f"a{ending}"
    beside.write_text(shown(model()))
    assert by_swath(path) == by_gdal(path) == model().to_dict()
    assert swath.info(path)["side_files"] == [str(beside)]
    # The copy holds it itself, for a window too.
    convert(swath, path, copy)
    assert by_gdal(copy) == model().to_dict()
    convert(swath, path, copy, "--window", "3,2,10,8")
    kept = by_gdal(copy)
    assert kept and (kept["samp_off"], kept["line_off"]) == (4.75, 4.25)
    sw.to_geotiff(sw.open_geotiff(path), copy)
    assert by_gdal(copy) == model().to_dict()


@pytest.mark.parametrize("other", [None, "a.jp2"])
def test_model_goes_with_the_image_it_describes(tmp_path: Path, other: str | None) -> None:
    path, beside = image(tmp_path / "a.tif"), tmp_path / "a.RPB"
    beside.write_text(rpb(model()))
    if other:
        (tmp_path / other).touch()
    sw.to_geotiff(np.zeros((4, 5), "uint8"), path)
    assert beside.exists() is (other is not None)


def test_side_files_override_the_tag(tmp_path: Path) -> None:
    path = image(tmp_path / "a.tif", model(1.0))
    assert by_swath(path) == by_gdal(path) == model(1.0).to_dict()
    (tmp_path / "a_rpc.txt").write_text(lines(model(2.0)))
    assert by_swath(path) == by_gdal(path) == model(2.0).to_dict()
    (tmp_path / "a.rpb").write_text(rpb(model(3.0)))
    assert by_swath(path) == by_gdal(path) == model(3.0).to_dict()


@pytest.mark.parametrize("damage", ["junk", "no offset", "one coefficient less", "no group", "empty"])
def test_damaged_side_file_is_ignored(swath: Swath, tmp_path: Path, damage: str) -> None:
    path, text = image(tmp_path / "a.tif", model()), rpb(model(3.0))
    text = {
        "junk": "\0junk",
        "empty": "",
        "no offset": text.replace("lineOffset", "lineOff"),
        "one coefficient less": text.replace("lineNumCoef = (", "lineNumCoef = (0.5,"),
        "no group": text.replace("_GROUP", "_TROUP"),
    }[damage]
    (tmp_path / "a.rpb").write_text(text)
    assert by_swath(path) == model().to_dict()
    assert "camera model" in " ".join(swath.info(path)["problems"])


def test_model_of_gdals_side_file(swath: Swath, tmp_path: Path) -> None:
    path, copy = image(tmp_path / "a.tif"), tmp_path / "b.tif"
    items = {key.upper(): value for key, value in model().to_dict().items()}
    shown = {key: " ".join(map(repr, value)) if isinstance(value, list) else value for key, value in items.items()}
    xml = "".join(f'<MDI key="{key}">{value}</MDI>' for key, value in shown.items())
    aux = tmp_path / "a.tif.aux.xml"
    aux.write_text(f'<PAMDataset><Metadata domain="RPC">{xml}</Metadata></PAMDataset>')
    assert by_swath(path) == by_gdal(path) == model().to_dict()
    convert(swath, path, copy, "--window", "3,2,10,8")
    kept = by_gdal(copy)
    assert kept and (kept["samp_off"], kept["line_off"]) == (4.75, 4.25)


def test_real_side_file(tmp_path: Path) -> None:
    found = shared(SHARED_CORPUS.parent / "peers/rioxarray/test/test_data/input/test_rpcs_ext_file.tif")
    for file in (found, found.with_suffix(".rpb")):
        shutil.copyfile(file, tmp_path / file.name)
    path = tmp_path / found.name
    assert by_swath(path) == by_gdal(path) is not None
