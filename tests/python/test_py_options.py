"""Meaningless keywords are swath errors that say what to type."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from dataclasses import fields
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
import swath
import swath._errors
import xarray as xr
from obstore.store import MemoryStore
from swath._engine_options import EngineOptions
from swath._write_options import WriteOptions

DATA = np.arange(1200, dtype="uint8").reshape(30, 40)


@pytest.fixture(scope="module")
def file() -> bytes:
    return swath.to_geotiff(DATA, None, overview_levels=1)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"chunks": 0}, "chunks=0: give sizes of 1 or more"),
        ({"chunks": -5}, "-1 for the whole of an axis"),
        ({"chunks": (1, 0, 2)}, "sizes of 1 or more"),
        ({"chunks": {"y": 0}}, "sizes of 1 or more"),
        ({"band": "red"}, "band='red': give the number of a band or a list of numbers; the only band is 1"),
        ({"band": slice(0, 2)}, "band=[1, 2]"),
        ({"band": True}, "band=True"),
        ({"band": [True]}, "band=[True]"),
        ({"band": 1.0}, "band=1.0"),
        ({"overview_level": "1"}, "overview_level='1': give a whole number"),
        ({"overview_level": True}, "overview_level=True"),
        ({"overview_level": -1}, "overview_level=-1"),
        ({"threads": -1}, "threads=-1"),
        ({"max_pixels": -1}, "max_pixels=-1"),
        ({"dtype": "wild"}, "dtype='wild'"),
    ],
)
def test_invalid_arguments_of_open_geotiff_say_what_to_type(file: bytes, words: dict[str, Any], message: str) -> None:
    with pytest.raises(swath.UsageError) as refused:
        swath.open_geotiff(file, **words)
    assert message in str(refused.value)


def test_coordinates_that_are_not_to_be_decoded(folder: Path, file: bytes) -> None:
    (folder / "a.tif").write_bytes(file)
    with pytest.raises(swath.UsageError, match="parse_coordinates=False"):
        xr.open_dataset(folder / "a.tif", engine="swath", decode_coords=False)
    xr.open_dataset(folder / "a.tif", engine="swath", decode_coords="all").close()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"quality": 50}, "quality=50: zstd has no quality"),
        ({"quality": 5, "compression": "lerc"}, "lerc has no quality"),
        ({"quality": 500, "compression": "jpeg"}, "from 1 to 100"),
        ({"jpeg_quality": -1, "compress": "JPEG"}, "quality=-1"),
        ({"max_z_error": 0.1}, "max_z_error=0.1: zstd keeps every sample"),
        ({"lossless": False}, "lossless=False"),
        ({"compression_level": 99, "compression": "lz4"}, "lz4 has no levels"),
        ({"compression_level": 5, "compression": "lzw"}, "lzw has no levels"),
        ({"compression_level": 99}, "zstd has levels from 1 to 22"),
        ({"compression_level": -1}, "compression_level=-1"),
        ({"zlevel": 99, "compress": "deflate"}, "levels from 1 to 12"),
        ({"tile_size": -16}, "tile_size=-16: give a whole number from 16 on"),
        ({"tile_size": (16, 16, 16)}, "(rows, columns)"),
        ({"threads": -1}, "threads=-1"),
        ({"max_memory": -1}, "max_memory=-1"),
        ({"overview_levels": -1}, "overview_levels=-1"),
        ({"lossless": True, "compression": "jpeg"}, "lossless=True: jpeg always loses detail"),
        ({"lossless": "YES", "compress": "JPEG"}, "lossless=True: jpeg always loses detail"),
        ({"lossless": True, "compression": "lerc", "max_z_error": 0.5}, "contradict each other"),
        ({"subsampling": "420"}, "subsampling='420': zstd has none; leave it out, or give compression=\"jpeg\""),
        ({"tile_size": 256, "tiled": False}, "tile_size=256: tiled=False stores strips"),
        ({"alpha": True}, "alpha=True: the only band"),
        ({"photometric": "rgba"}, 'photometric="rgba": the only band'),
        ({"quality": True, "compression": "jpeg"}, "quality=True is not a number"),
        ({"compression_level": True}, "compression_level=True is not a number"),
        ({"compression_level": 3.7}, "compression_level=3.7: give a whole number"),
        ({"tile_size": 256.5}, "tile_size=256.5: give a whole number"),
        ({"threads": float("inf")}, "threads=inf is not a number"),
        ({"endianness": "middle"}, "'little' or 'big'"),
        ({"colormap": {0: "red"}}, "(r, g, b)"),
        ({"colormap": {-1: (1, 2, 3)}}, "(r, g, b)"),
        ({"gcps": "wild"}, "GeoJSON"),
        ({"rpcs": "wild"}, "RPC"),
        ({"scales": ["a"]}, "a number for each band"),
        ({"tags": "wild"}, "a dictionary"),
        ({"dims": 5}, "dims=5"),
    ],
)
def test_invalid_arguments_of_to_geotiff_say_what_to_type(words: dict[str, Any], message: str) -> None:
    with pytest.raises(swath.UsageError) as refused:
        swath.to_geotiff(DATA, None, **words)
    assert message in str(refused.value)


@pytest.mark.parametrize("compression", ["jpeg", "webp", "jpeg2000"])
def test_samples_that_a_codec_does_not_take(compression: str) -> None:
    with pytest.raises(swath.UsageError, match="give another compression="):
        swath.to_geotiff(DATA.astype("float32"), None, compression=compression)


def test_arguments_that_are_no_rasters(folder: Path, file: bytes) -> None:
    path = folder / "a.tif"
    for data, target, message in [
        (str(path), DATA, "swapped"),
        (path, xr.DataArray(DATA, dims=("y", "x")), "swapped"),
        (str(path), None, "open it first"),
        (None, path, "data is None"),
        (swath.Dataset(file), path, "an opened file"),
    ]:
        with pytest.raises(swath.UsageError, match=message):
            swath.to_geotiff(data, target)
    assert not list(folder.iterdir())


@pytest.mark.parametrize("name", ["a.png", "a.VRT", "a.nc", "s3://bucket/a.jpg?version=1"])
def test_names_of_other_formats(folder: Path, name: str) -> None:
    target = name if "://" in name else folder / name
    with pytest.raises(swath.UsageError, match=r"a name that ends in \.tif"):
        swath.to_geotiff(DATA, target)
    if "://" not in name:
        assert swath.Dataset(swath.to_geotiff(DATA, target, driver="GTiff")).count == 1


def test_names_of_other_formats_in_stores(folder: Path) -> None:
    for target in (fsspec.open(str(folder / "z.png"), "wb"), (MemoryStore(), "z.png")):
        with pytest.raises(swath.UsageError, match=r"z\.png: .* a name that ends in \.tif"):
            swath.to_geotiff(DATA, target)
        swath.to_geotiff(DATA, target, driver="GTiff")


def test_numbers_of_profiles() -> None:
    """Text and whole floats are numbers, and strips take the rows that a profile of rasterio names."""
    file = swath.to_geotiff(DATA, None, compress="deflate", zlevel="9", tiled=False, blockxsize=40, blockysize=8.0)
    assert swath.Dataset(file).block_shape == (8, 40)


def test_unknown_schemes_are_refused() -> None:
    with pytest.raises(swath.UsageError, match=r"wild://a/b\.tif: neither swath nor fsspec"):
        swath.to_geotiff(DATA, "wild://a/b.tif")
    with pytest.raises(swath.UsageError, match=r"wild://a/b\.tif"):
        swath.open_geotiff("wild://a/b.tif")


def test_adobe_deflate_is_deflate() -> None:
    file = swath.to_geotiff(DATA, None, compress="ADOBE_DEFLATE")
    assert swath.Dataset(file).metadata()["compression"] == "deflate"


@pytest.mark.parametrize("function", [swath.open_geotiff, swath.to_geotiff])
def test_every_keyword_is_documented(function: Any) -> None:
    listed = re.search(r"Parameters\n-+\n(.*?)\n(?:Returns|Examples)\n-", inspect.getdoc(function) or "", re.DOTALL)
    assert listed is not None
    heads = [line.partition(":")[0] for line in listed[1].splitlines() if line and not line.startswith(" ")]
    documented = {name.strip().lstrip("*") for head in heads for name in head.split(",")}
    assert documented == set(inspect.signature(function).parameters)


def test_the_signature_and_the_dataclass_agree() -> None:
    keywords = {
        name: (keyword.annotation, keyword.default)
        for name, keyword in inspect.signature(swath.to_geotiff).parameters.items()
        if keyword.kind is inspect.Parameter.KEYWORD_ONLY
    }
    options = {field.name: (field.type, field.default) for field in fields(WriteOptions)}
    assert {name: options[name] for name in keywords} == keywords
    # The other fields are set by GDAL's and rasterio's names alone.
    assert all(options[name] == ("Any", None) for name in set(options) - set(keywords))


@pytest.mark.parametrize("options", [WriteOptions, EngineOptions])
def test_every_field_is_documented(options: type) -> None:
    body = ast.parse(textwrap.dedent(inspect.getsource(options))).body[0].body  # type: ignore[attr-defined]
    undocumented = [
        node.target.id
        for node, following in zip(body, [*body[1:], None])
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Name)
        and not (isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant))
    ]
    assert len(fields(options)) > 20 and undocumented == []


@pytest.mark.parametrize(
    ("word", "nearest"),
    [("compresion", "compression"), ("BLOCKXSIZ", "blockxsize"), ("zstdlevel", "zstd_level"), ("no_data", "nodata")],
)
def test_misspelt_keywords_name_the_nearest(word: str, nearest: str) -> None:
    with pytest.raises(swath.UsageError, match=f"to_geotiff has no option '{word}'; did you mean .*{nearest}"):
        swath.to_geotiff(DATA, None, **{word: 1})


def test_the_engine_takes_the_fields_of_the_dataclass_and_no_others() -> None:
    options = EngineOptions().native()
    swath._swath.Writer(None, (1, 4, 4), "uint8", {}, options).abort()
    with pytest.raises(swath.UsageError, match=r"compresion: there is no such option; did you mean compression\?"):
        swath._swath.Writer(None, (1, 4, 4), "uint8", {}, {**options, "compresion": None})
    with pytest.raises(swath.UsageError, match=r"xyz: there is no such option$"):
        swath._swath.Writer(None, (1, 4, 4), "uint8", {}, {**options, "xyz": None})


def test_every_error_is_exported() -> None:
    kinds = [
        kind
        for kind in vars(swath._errors).values()
        if isinstance(kind, type) and issubclass(kind, Exception | Warning)
    ]
    assert len(kinds) > 15
    for kind in kinds:
        assert getattr(swath, kind.__name__) is kind
        assert kind.__name__ in swath.__all__


def test_auto_without_a_gpu_warns_however_the_samples_are_read(tmp_path: Path) -> None:
    path, windows = tmp_path / "a.tif", [(0, 0, 4, 4), (4, 4, 8, 8)]
    swath.to_geotiff(np.arange(64, dtype="uint8").reshape(8, 8), path)
    dataset, out = swath.Dataset(path), np.empty((2, 1, 4, 4), "uint8")
    for read in (
        lambda: dataset.read(device="auto"),
        lambda: dataset.read(device="auto", out=np.empty((1, 8, 8), "uint8")),
        lambda: dataset.read_windows(windows, device="auto"),
        lambda: dataset.read_windows(windows, device="auto", out=out),
        lambda: swath.open_geotiff(path, device="auto"),
    ):
        with pytest.warns(swath.DeviceWarning, match="decoded by the CPU") as caught:
            read()
        assert len(caught) == 1 and caught[0].filename == __file__
