"""The commands: outputs, exit codes, messages."""

from __future__ import annotations

import json
import re
import shutil
import struct
import subprocess
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
from harness import CORPUS, ROOT, Swath

GOOD = CORPUS / "good"


def decode_png(path: Path) -> np.ndarray:
    """Rows x columns x channels of an 8-bit PNG, after its chunks and checksums were checked."""
    content = path.read_bytes()
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    at, data, header = 8, b"", b""
    while at < len(content):
        (length,) = struct.unpack(">I", content[at : at + 4])
        kind, body = content[at + 4 : at + 8], content[at + 8 : at + 8 + length]
        (crc,) = struct.unpack(">I", content[at + 8 + length : at + 12 + length])
        assert zlib.crc32(kind + body) == crc, f"{kind!r} has a wrong checksum"
        header = body if kind == b"IHDR" else header
        data += body if kind == b"IDAT" else b""
        at += 12 + length
    assert at == len(content)
    with rasterio.open(path) as dataset:
        image = np.moveaxis(dataset.read(), 0, -1)
    width, height = struct.unpack(">II", header[:8])
    assert image.shape[:2] == (height, width)
    zlib.decompress(data)
    return image


@pytest.fixture
def terrain(folder: Path) -> Path:
    """Floats with a hole, georeferenced."""
    path = folder / "terrain.tif"
    y, x = np.mgrid[0:300, 0:400]
    values = (np.sin(x / 40) * np.cos(y / 30) * 500 + 800).astype("float32")
    values[100:150, 200:280] = -9999
    with rasterio.open(
        path, "w", driver="GTiff", dtype="float32", count=1, height=300, width=400, nodata=-9999, crs="EPSG:32633",
        transform=rasterio.Affine(10, 0, 4e5, 0, -10, 52e5), tiled=True, blockxsize=64, blockysize=64,
        compress="deflate",
    ) as out:  # fmt: skip
        out.write(values, 1)
        out.build_overviews([2, 4])
    return path


# ---------------------------------------------------------------------------------------------------------------- info


def test_info_json_has_the_keys_of_rio_info(swath: Swath, terrain: Path) -> None:
    info = swath.info(terrain)
    with rasterio.open(terrain) as dataset:
        assert info["driver"] == "GTiff"
        assert info["dtype"] == "float32"
        assert info["nodata"] == -9999
        assert (info["width"], info["height"], info["count"]) == (400, 300, 1)
        assert info["crs"] == "EPSG:32633"
        assert info["transform"] == [10, 0, 4e5, 0, -10, 52e5, 0, 0, 1]
        assert info["bounds"] == pytest.approx(list(dataset.bounds))
        assert info["res"] == [10, 10]
        assert info["shape"] == [300, 400]
        assert info["indexes"] == [1]
        assert info["tiled"] is True
        assert (info["blockxsize"], info["blockysize"]) == (64, 64)
        assert info["compress"].lower() == "deflate"
        assert info["interleave"].lower() == "band"
        assert info["colorinterp"] == ["gray"]
        assert info["descriptions"] == [None]
        assert info["units"] == [None]
        assert info["scales"] == [1.0]
        assert info["offsets"] == [0.0]


def test_info_lists_every_directory(swath: Swath, terrain: Path) -> None:
    ifds = swath.info(terrain)["ifds"]
    assert [ifd["kind"] for ifd in ifds] == ["image", "overview", "overview"]
    assert [(ifd["width"], ifd["height"]) for ifd in ifds] == [(400, 300), (200, 150), (100, 75)]
    assert [ifd["index"] for ifd in ifds] == [0, 1, 2]
    masks = [ifd["kind"] for ifd in swath.info(GOOD / "mask-internal.tif")["ifds"]]
    assert masks == ["image", "mask"]
    pages = [ifd["kind"] for ifd in swath.info(GOOD / "pages.tif")["ifds"]]
    assert pages == ["image", "page", "page"]


def test_info_recognises_a_cog(swath: Swath) -> None:
    def is_cog(facts: Any) -> bool:
        return bool(facts["is_cog"])

    assert is_cog(swath.info(GOOD / "cog.tif")["cog"])
    assert not is_cog(swath.info(GOOD / "codec-none-uint16.tif")["cog"])


def test_info_keeps_what_it_does_not_understand(swath: Swath, folder: Path) -> None:
    import tifffile

    path = folder / "private.tif"
    tifffile.imwrite(path, np.zeros((4, 4), "u1"), metadata=None, extratags=[(65000, 3, 2, (7, 9), True)])
    assert "65000" in json.dumps(swath.info(path, "--tags")["tags_raw"])


def test_info_prints_a_readable_report(swath: Swath, terrain: Path) -> None:
    run = swath.run("info", terrain)
    assert run.ok, run.stderr
    for word in ("400", "300", "float32", "EPSG:32633", "-9999"):
        assert word in run.stdout, run.stdout


def test_info_lists_codecs(swath: Swath) -> None:
    run = swath.run("info", "--codecs")
    assert run.ok, run.stderr
    for word in ("deflate", "lzw", "zstd", "jpeg", "webp", "lerc", "packbits", "lzma"):
        assert word in run.stdout.lower(), run.stdout


def test_info_reads_band_metadata(swath: Swath) -> None:
    info = swath.info(GOOD / "metadata.tif")
    assert info["descriptions"] == ["B04 <red> & more", "température"]
    assert info["units"] == ["reflectance", "K"]
    assert info["scales"] == [0.0001, 2.0]
    assert info["offsets"] == [-0.1, 273.15]
    assert info["tags"][""]["NOTE"] == "a < b & c > \"d\" 'e'"
    assert "WAVELENGTH" in json.dumps(info)
    assert "CUSTOM" in json.dumps(info)


def test_side_files_are_read(swath: Swath, folder: Path) -> None:
    path = folder / "w.tif"
    with rasterio.open(path, "w", driver="GTiff", dtype="uint8", count=1, height=4, width=5) as out:
        out.write(np.zeros((1, 4, 5), "u1"))
    path.with_suffix(".tfw").write_text("2.0\n0.0\n0.0\n-2.0\n101.0\n199.0\n")
    with rasterio.open(path) as dataset:
        want = list(dataset.transform)
    assert swath.info(path)["transform"] == want


# ---------------------------------------------------------------------------------------------------------------- dump


def test_dump_npy_is_version_1_native_c_order(swath: Swath, terrain: Path, folder: Path) -> None:
    out = folder / "a.npy"
    assert swath.dump_run(terrain, out).ok
    content = out.read_bytes()
    assert content[:8] == b"\x93NUMPY\x01\x00"
    array = np.load(out)
    with rasterio.open(terrain) as dataset:
        assert np.array_equal(array, dataset.read())
    assert array.flags.c_contiguous
    raw = folder / "a.bin"
    assert swath.dump_run(terrain, raw).ok
    assert raw.read_bytes() == array.tobytes()


def test_dump_overview_and_ifd(swath: Swath, terrain: Path) -> None:
    with rasterio.open(terrain, overview_level=0) as dataset:
        want = dataset.read()
    assert np.array_equal(swath.dump(terrain, overview=0), want)
    assert np.array_equal(swath.dump(terrain, ifd=1), want)
    assert np.array_equal(swath.dump(terrain, overview=0, window=(10, 20, 30, 40)), want[:, 20:60, 10:40])


@pytest.mark.parametrize("window", [(390, 0, 20, 10), (0, 300, 1, 1), (400, 0, 1, 1), (0, 0, 0, 5), (0, 0, 1 << 40, 1)])
def test_window_outside_is_refused(swath: Swath, terrain: Path, window: tuple[int, int, int, int]) -> None:
    run = swath.dump_run(terrain, swath.folder / "never.npy", window=window)
    message = run.check_refusal()
    assert "window" in message.lower()
    assert not (swath.folder / "never.npy").exists()


@pytest.mark.parametrize("bands", [[0], [2], [1, 9]])
def test_missing_band_is_refused(swath: Swath, terrain: Path, bands: list[int]) -> None:
    assert "band" in swath.dump_run(terrain, swath.folder / "never.npy", bands=bands).check_refusal().lower()


def test_output_that_cannot_be_written_is_an_error(swath: Swath, terrain: Path, folder: Path) -> None:
    swath.dump_run(terrain, folder / "no" / "such" / "folder" / "a.npy").check_refusal()


# -------------------------------------------------------------------------------------------------------------- errors


def test_missing_file(swath: Swath, folder: Path) -> None:
    for command in (("info",), ("stats",), ("dump", "--out", folder / "a.npy")):
        run = swath.run(command[0], folder / "absent.tif", *command[1:])
        assert "absent.tif" in run.check_refusal()


def test_folder_instead_of_file(swath: Swath, folder: Path) -> None:
    swath.run("info", folder).check_refusal()


@pytest.mark.parametrize("arguments", [(), ("frobnicate",), ("dump",), ("info", "--no-such-option", "x.tif")])
def test_wrong_usage_exits_2(swath: Swath, arguments: tuple[str, ...]) -> None:
    run = swath.run(*arguments)
    run.check_alive()
    assert run.code == 2
    assert run.stderr


def test_help_and_version(swath: Swath) -> None:
    assert "dump" in swath.run("--help").stdout
    assert swath.run("--version").stdout.split()[0] == "swath"


def test_pages_name_options_that_exist(swath: Swath) -> None:
    commands = (
        "info", "preview", "stats", "compare", "validate", "convert", "dump", "bench", "devices", "completions",
    )  # fmt: skip
    helped = "\n".join(swath.run(*command, "--help").stdout for command in ((), *((name,) for name in commands)))
    known = set(re.findall(r"--[a-z][a-z-]*", helped))
    # Options of cargo xtask, which the same pages name.
    others = {"--check"}
    for page in ("SECURITY.md", "PLATFORM.md", "docs/cli-json.md", "docs/cli.md"):
        named = set(re.findall(r"--[a-z][a-z-]*", (ROOT / page).read_text()))
        assert named <= known | others, f"{page}: {sorted(named - known - others)}"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no device that is always full")
def test_messages_that_cannot_be_written_change_nothing(swath: Swath, terrain: Path, folder: Path) -> None:
    """Standard error may be a full disk, or a terminal that was closed."""
    out = folder / "out.tif"
    for arguments, code in (
        (["info", folder / "none.tif"], 2),
        (["info", "http://a/b", "--wrong"], 2),
        (["compare", terrain, folder / "none.tif"], 2),
        (["validate", terrain, "--stats"], None),
        (["convert", terrain, out, "--stats"], 0),
    ):
        argv = [str(swath.binary), *map(str, arguments)]
        expected = code
        if expected is None:
            expected = subprocess.run(argv, capture_output=True, check=False).returncode
        with Path("/dev/full").open("wb") as full:
            done = subprocess.run(argv, stdout=subprocess.DEVNULL, stderr=full, timeout=60, check=False)
        assert done.returncode == expected, argv
    assert out.exists()


def test_error_names_ifd_tile_and_byte(swath: Swath, folder: Path) -> None:
    """A damaged tile is named by its place, in the grid and in the file."""
    import tifffile

    path = folder / "scene.tif"
    with rasterio.open(
        path, "w", driver="GTiff", dtype="uint16", count=1, height=100, width=100, tiled=True, blockxsize=32,
        blockysize=32, compress="deflate",
    ) as out:  # fmt: skip
        out.write((np.arange(10_000).reshape(1, 100, 100) % 997).astype("u2"))
    with tifffile.TiffFile(path) as tiff:
        offset = tiff.pages[0].dataoffsets[6]
    content = bytearray(path.read_bytes())
    content[offset + 2 : offset + 12] = b"\xff" * 10
    path.write_bytes(content)
    message = swath.dump_run(path, swath.folder / "never.npy").check_refusal(path)
    assert "scene.tif" in message
    assert "IFD 0" in message
    # Tile 6 of a row of four: column 2, row 1.
    assert "(2, 1)" in message
    assert str(offset) in message
    # A window that does not touch it is still read.
    assert swath.dump(path, window=(0, 0, 30, 30)).shape == (1, 30, 30)


def test_unsupported_compression_is_named(swath: Swath) -> None:
    path = CORPUS / "bad" / "tags" / "compression-jbig.tif"
    assert "JBIG" in swath.dump_run(path, swath.folder / "never.npy").check_refusal(path)


# ------------------------------------------------------------------------------------------------------------- compare


def test_compare_equal_files(swath: Swath, terrain: Path, folder: Path) -> None:
    copy = folder / "copy.tif"
    with rasterio.open(terrain) as dataset:
        profile = {**dataset.profile, "compress": "lzw", "blockxsize": 128, "blockysize": 128, "BIGTIFF": "YES"}
        with rasterio.open(copy, "w", **profile) as out:
            out.write(dataset.read())
    run = swath.run("compare", terrain, copy)
    assert run.code == 0, run.stdout + run.stderr


def test_compare_reports_where_and_by_how_much(swath: Swath, terrain: Path, folder: Path) -> None:
    other = folder / "other.tif"
    shutil.copy(terrain, other)
    with rasterio.open(other, "r+") as out:
        values = out.read(1)
        values[17, 23] += 2.5
        out.write(values, 1)
    run = swath.run("compare", terrain, other)
    assert run.code == 1, run.stdout + run.stderr
    assert "17" in run.stdout
    assert "23" in run.stdout
    assert "2.5" in run.stdout


def test_compare_of_different_shapes_and_of_a_missing_file(swath: Swath, terrain: Path, folder: Path) -> None:
    assert swath.run("compare", terrain, GOOD / "palette.tif").code == 1
    swath.run("compare", terrain, folder / "absent.tif").check_refusal()


# --------------------------------------------------------------------------------------------------------------- stats


def test_stats_leave_nodata_out(swath: Swath, terrain: Path) -> None:
    run = swath.run("stats", terrain, "--json")
    assert run.ok, run.stderr
    document = json.loads(run.stdout)
    stats = (document["bands"] if isinstance(document, dict) else document)[0]
    with rasterio.open(terrain) as dataset:
        values = dataset.read(1, masked=True)
    assert stats["min"] == pytest.approx(float(values.min()), rel=1e-6)
    assert stats["max"] == pytest.approx(float(values.max()), rel=1e-6)
    assert stats["mean"] == pytest.approx(float(values.astype("f8").mean()), rel=1e-9)
    assert stats["std"] == pytest.approx(float(values.astype("f8").std()), rel=1e-6)
    assert swath.run("stats", terrain).ok


# ------------------------------------------------------------------------------------------------------------- preview


def test_preview_is_a_png_with_transparent_nodata(swath: Swath, terrain: Path, folder: Path) -> None:
    out = folder / "p.png"
    run = swath.run("preview", terrain, out, "--size", 200)
    assert run.ok, run.stderr
    image = decode_png(out)
    assert max(image.shape[:2]) <= 200
    assert image.shape[2] in (2, 4), "no alpha channel"
    alpha = image[..., -1]
    rows, columns = alpha.shape
    assert alpha[int(125 / 300 * rows), int(240 / 400 * columns)] == 0, "the hole is not transparent"
    assert alpha[int(20 / 300 * rows), int(20 / 400 * columns)] == 255
    assert np.ptp(image[..., 0][alpha > 0].astype(int)) > 150, "the stretch does not use the range"


@pytest.mark.parametrize("colormap", ["viridis", "gray"])
@pytest.mark.parametrize("stretch", ["2,98", "minmax", "none"])
def test_preview_options(swath: Swath, terrain: Path, folder: Path, colormap: str, stretch: str) -> None:
    out = folder / "p.png"
    run = swath.run("preview", terrain, out, "--size", 64, "--colormap", colormap, "--stretch", stretch)
    assert run.ok, run.stderr
    image = decode_png(out)
    if colormap == "viridis" and stretch != "none":
        visible = image[image[..., -1] > 0]
        assert np.any(visible[:, 0] != visible[:, 1]), "a colour map without colours"


@pytest.mark.parametrize(
    "name",
    ["mask-internal.tif", "palette.tif", "codec-lzma-complex64.tif", "nbits-1.tif", "cog.tif", "colorinterp.tif"],
)
def test_preview_of_every_kind(swath: Swath, folder: Path, name: str) -> None:
    out = folder / "p.png"
    run = swath.run("preview", GOOD / name, out)
    assert run.ok, run.stderr
    decode_png(out)


def test_preview_bands(swath: Swath, folder: Path) -> None:
    out = folder / "p.png"
    run = swath.run("preview", GOOD / "mask-internal.tif", out, "--bands", "3,2,1", "--stretch", "none")
    assert run.ok, run.stderr
    image = decode_png(out)
    with rasterio.open(GOOD / "mask-internal.tif") as dataset:
        want, mask = dataset.read(), dataset.dataset_mask()
    if image.shape[:2] == want.shape[1:]:
        valid = mask > 0
        for channel, band in enumerate((2, 1, 0)):
            assert np.array_equal(image[..., channel][valid], want[band][valid])
    swath.run("preview", GOOD / "mask-internal.tif", out, "--bands", "7").check_refusal()
