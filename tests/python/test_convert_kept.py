"""What `swath convert` keeps of its source, and what it refuses to lose: colours, nodata, masks, EXIF, pages."""

from __future__ import annotations

import struct
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
import tifffile
from harness import SHARED_CORPUS, Swath, shared
from rasterio.enums import ColorInterp, MaskFlags
from writing import by_gdal, convert, equal, pixels, refused, write, write_plain

RGB = (ColorInterp.red, ColorInterp.green, ColorInterp.blue)


def corpus(name: str) -> Path:
    return shared(SHARED_CORPUS / name)


def patch(path: Path, page: int, tags: dict[int, int]) -> None:
    """Sets tags of a little-endian file to values that no writer here produces."""
    raw = bytearray(path.read_bytes())
    (start,) = struct.unpack_from("<I", raw, 4)
    for _ in range(page + 1):
        (count,) = struct.unpack_from("<H", raw, start)
        at, (start,) = start + 2, struct.unpack_from("<I", raw, start + 2 + 12 * count)
    for entry in range(at, at + 12 * count, 12):
        (tag,) = struct.unpack_from("<H", raw, entry)
        if tag in tags:
            struct.pack_into("<H", raw, entry + 8, tags[tag])
    path.write_bytes(raw)


# ------------------------------------------------------------------------------------------------------------- palettes


def palette_and(path: Path, second: str) -> None:
    """Indices 10 and 200 with a second sample."""
    rng = np.random.default_rng(5)
    indices = np.where(rng.random((300, 400)) < 0.5, 10, 200).astype("uint8")
    other = np.full_like(indices, 255)
    other[:50] = 0
    colours = np.stack([np.arange(256) * 257, 65535 - np.arange(256) * 257, np.full(256, 257 * 4)]).astype("uint16")
    tifffile.imwrite(
        path,
        np.dstack([indices, other]),
        photometric="minisblack",
        planarconfig="contig",
        extrasamples=[second],
        metadata=None,
        extratags=[(320, 3, 768, colours.ravel().tolist(), True)],
    )
    patch(path, 0, {262: 3})


@pytest.mark.parametrize("second", ["unassalpha", "unspecified"])
@pytest.mark.parametrize(
    "options",
    [("--cog", "--tile", 128), ("--overviews", "2,4"), ("--cog", "--tile", 128, "--interleave", "band")],
    ids=["cog", "tiff", "bands"],
)
def test_palette_with_a_second_sample(swath: Swath, folder: Path, second: str, options: tuple[object, ...]) -> None:
    """Indices keep their colours, and overviews have only indices of the image."""
    source = folder / "s.tif"
    palette_and(source, second)
    convert(swath, source, folder / "t.tif", *options)
    with rasterio.open(source) as before, rasterio.open(folder / "t.tif") as after:
        assert after.colorinterp == before.colorinterp
        assert after.colormap(1) == before.colormap(1)
        equal(after.read(), before.read(), "pixels")
        assert after.overviews(1)
        for level in range(len(after.overviews(1))):
            indices = by_gdal(folder / "t.tif", level)[0]
            assert set(np.unique(indices)) == {10, 200}
    # The first band alone is a palette image too; with the bands in the other order the file is none.
    convert(swath, source, folder / "one.tif", "--bands", 1)
    with rasterio.open(folder / "one.tif") as one, rasterio.open(source) as before:
        assert one.colormap(1) == before.colormap(1)
    run = convert(swath, source, folder / "turned.tif", "--bands", "2,1")
    assert "colours of the palette are left out" in run.stderr
    with rasterio.open(folder / "turned.tif") as turned:
        assert "photometric" not in turned.profile or turned.profile["photometric"] != "palette"
        equal(turned.read(), by_gdal(source)[::-1], "bands")
        assert turned.colorinterp[1] == ColorInterp.undefined
    assert convert(swath, source, folder / "other.tif", "--bands", 2).stderr == ""


def test_palette_of_another_type(swath: Swath, folder: Path) -> None:
    """Floats cannot have a palette: a note says that it is left out, and the band does not count as palette indices."""
    palette_and(folder / "s.tif", "unassalpha")
    run = convert(swath, folder / "s.tif", folder / "t.tif", "--dtype", "float32")
    assert run.stderr.count("note:") == 1 and "colours of the palette are left out" in run.stderr
    with rasterio.open(folder / "t.tif") as got:
        assert got.colorinterp == (ColorInterp.gray, ColorInterp.alpha)
    assert convert(swath, folder / "s.tif", folder / "t.tif", "--dtype", "uint16").stderr == ""


def test_preview_of_a_palette_with_alpha(swath: Swath, folder: Path) -> None:
    palette_and(folder / "s.tif", "unassalpha")
    convert(swath, folder / "s.tif", folder / "t.tif", "--cog", "--tile", 128)
    for name in ("s.tif", "t.tif"):
        run = swath.run("preview", folder / name, folder / "p.png", "--size", 100)
        assert run.ok, run.stderr
        picture = by_gdal(folder / "p.png")
        shown = picture[:3, picture[3] > 0] if len(picture) == 4 else picture[:3].reshape(3, -1)
        assert {tuple(colour) for colour in shown.T.tolist()} == {(10, 245, 4), (200, 55, 4)}, name


# -------------------------------------------------------------------------------------------------------------- colours


@pytest.mark.parametrize("photometric", [("--photometric", "rgb"), ("-co", "PHOTOMETRIC=RGB")], ids=["ours", "gdal's"])
@pytest.mark.parametrize("bands", ["3,2,1", "4,1,2,3"])
@pytest.mark.parametrize("colours", ["minisblack", "rgb"])
def test_bands_as_rgb(swath: Swath, folder: Path, photometric: tuple[str, str], bands: str, colours: str) -> None:
    """The bands become red, green and blue, whatever they were before."""
    source = write(folder / "s.tif", pixels((4, 40, 50), "uint16", 3), photometric=colours)
    convert(swath, source, folder / "t.tif", "--bands", bands, *photometric)
    with rasterio.open(folder / "t.tif") as got:
        assert got.colorinterp[:3] == RGB
        assert set(got.colorinterp[3:]) <= {ColorInterp.undefined}
        equal(got.read(), by_gdal(source)[[int(band) - 1 for band in bands.split(",")]], "bands")


def test_colours_stay_unless_photometric_is_given(swath: Swath, folder: Path) -> None:
    """Blue, green, red keep their order; and GDAL keeps colours beside MINISBLACK."""
    source = write(folder / "s.tif", pixels((3, 40, 50), "uint8", 3), photometric="rgb")
    convert(swath, source, folder / "t.tif", "--bands", "3,2,1")
    with rasterio.open(folder / "t.tif") as got:
        assert got.colorinterp == RGB[::-1]
    convert(swath, source, folder / "t.tif", "--photometric", "minisblack")
    with rasterio.open(folder / "t.tif") as got:
        assert got.colorinterp == RGB


@pytest.mark.parametrize("cog", [(), ("--cog",)], ids=["", "cog"])
@pytest.mark.parametrize(("photometric", "bands"), [("cmyk", 4), ("cielab", 3)])
def test_sparse_inks_are_read_by_gdal(
    swath: Swath, folder: Path, photometric: str, bands: int, cog: tuple[str, ...]
) -> None:
    """libtiff converts such samples to colours for GDAL, and fails where a tile is left out."""
    array = pixels((bands, 600, 600), "uint8", 3)
    array[:, :400] = 0
    source = write(folder / "s.tif", array, photometric=photometric, tiled=True, interleave="pixel")
    run = convert(swath, source, folder / "t.tif", "--sparse", "--tile", 128, *cog)
    equal(by_gdal(folder / "t.tif"), by_gdal(source), "by GDAL")
    assert "no tile is left out" in run.stderr
    with tifffile.TiffFile(folder / "t.tif") as tiff:
        assert 0 not in tiff.pages[0].databytecounts
    # As grey, they may be left out.
    convert(swath, source, folder / "g.tif", "--sparse", "--tile", 128, "--photometric", "minisblack")
    with tifffile.TiffFile(folder / "g.tif") as tiff:
        assert 0 in tiff.pages[0].databytecounts


# --------------------------------------------------------------------------------------------------------------- nodata


@pytest.mark.parametrize(
    ("dtype", "value", "better"),
    [("uint16", -9999, "int32"), ("uint8", -9999, "int16"), ("uint8", 300, "uint16"), ("int16", "nan", "float32")],
)
def test_nodata_that_does_not_fit(swath: Swath, folder: Path, dtype: str, value: object, better: str) -> None:
    """Refused, with what to give instead, which works."""
    source = write(folder / "s.tif", pixels((1, 40, 50), dtype, 3), nodata=7)
    for options in (("--nodata", value), ("-a_nodata", value), ("--nodata", value, "--quiet")):
        message = refused(swath, source, folder / "t.tif", *options)
        assert str(value) in message and dtype in message and f"--dtype {better}" in message and "--nodata" in message
    convert(swath, source, folder / "t.tif", "--nodata", value, "--dtype", better)
    with rasterio.open(folder / "t.tif") as got:
        assert str(got.nodata).startswith(str(value)) and got.dtypes == (better,)


def test_nodata_of_the_source_is_not_dropped(swath: Swath, folder: Path) -> None:
    # A value that no sample has stays as it is, as GDAL copies it.
    write_plain(folder / "s.tif", pixels((1, 40, 50), "uint8", 3), extratags=[(42113, 2, 0, "-9999", True)])
    run = convert(swath, folder / "s.tif", folder / "t.tif")
    assert run.stderr == ""
    with tifffile.TiffFile(folder / "t.tif") as tiff:
        assert tiff.pages[0].tags[42113].value == "-9999"
    # If only the new type lacks the value, the caller must give another.
    source = write(folder / "f.tif", pixels((1, 40, 50), "float32", 3), nodata=-9999)
    message = refused(swath, source, folder / "n.tif", "--dtype", "uint8")
    assert "-9999" in message and "uint8" in message and "--nodata 255" in message and "--nodata none" in message
    for value, want in ((255, 255), ("none", None)):
        convert(swath, source, folder / "t.tif", "--dtype", "uint8", "--nodata", value)
        with rasterio.open(folder / "t.tif") as got:
            assert got.nodata == want


@pytest.mark.parametrize(("dtype", "value"), [("int64", 2**63 - 1), ("uint64", 2**64 - 1), ("int64", -(2**63))])
def test_nodata_of_64_bits(swath: Swath, folder: Path, dtype: str, value: int) -> None:
    array = pixels((1, 40, 50), dtype, 3)
    array[0, :5] = value
    source = write_plain(folder / "s.tif", array)
    convert(swath, source, folder / "t.tif", "--nodata", value)
    with tifffile.TiffFile(folder / "t.tif") as tiff:
        assert tiff.pages[0].tags[42113].value == str(value)
    assert np.array_equal(swath.dump(folder / "t.tif", mask=True)[0] == 0, array[0] == value)
    # And as another type, where the holes stay holes.
    convert(swath, folder / "t.tif", folder / "u.tif", "--dtype", "float64", "--nodata", -1)
    equal(by_gdal(folder / "u.tif"), np.where(array == value, -1, array.astype("float64")), "holes")


def with_nan(folder: Path, nodata: object, mask: np.ndarray | None = None) -> tuple[Path, np.ndarray]:
    array = pixels((2, 40, 50), "float32", 3)
    array[1, 7, 9:20] = np.nan
    return write(folder / "s.tif", array, mask, nodata=nodata), array


@pytest.mark.parametrize("dtype", ["int16", "uint8", "int32", "uint64", "cint16"])
def test_nan_never_becomes_a_valid_integer(swath: Swath, folder: Path, dtype: str) -> None:
    """NaN does not become a valid 0."""
    source, _ = with_nan(folder, None)
    message = refused(swath, source, folder / "t.tif", "--dtype", dtype)
    assert "NaN" in message and "band 2" in message and "column 9, row 7" in message and "--nodata" in message
    message = refused(swath, source, folder / "t.tif", "--dtype", dtype, "--nodata", "none")
    assert "NaN" in message
    # A window without NaN is converted, and floats keep NaN.
    convert(swath, source, folder / "t.tif", "--dtype", dtype, "--window", "0,8,50,32")
    convert(swath, source, folder / "t.tif", "--dtype", "float64")
    assert np.isnan(by_gdal(folder / "t.tif")).sum() == 11


@pytest.mark.parametrize("nodata", [None, -9999, np.nan], ids=str)
@pytest.mark.parametrize("given", [(), ("--nodata", -5)], ids=["kept", "given"])
@pytest.mark.parametrize("scale", [(), ("--scale", "0,1000,0,500")], ids=["", "scaled"])
def test_nan_becomes_nodata(
    swath: Swath, folder: Path, nodata: float | None, given: tuple[object, ...], scale: tuple[object, ...]
) -> None:
    source, array = with_nan(folder, nodata)
    if nodata == -9999 or given:
        convert(swath, source, folder / "t.tif", "--dtype", "int16", *given, *scale)
        with rasterio.open(folder / "t.tif") as got:
            assert got.nodata == (-5 if given else -9999)
            assert np.array_equal(got.read() == got.nodata, np.isnan(array))
    else:
        message = refused(swath, source, folder / "n.tif", "--dtype", "int16", *scale)
        assert "--nodata -32768" in message


def test_nan_under_a_mask(swath: Swath, folder: Path) -> None:
    """NaN under a mask loses no data."""
    source, array = with_nan(folder, None, ~np.isnan(pixels((2, 40, 50), "float32", 3)[0]))
    refused(swath, source, folder / "n.tif", "--dtype", "int16")
    source, array = with_nan(folder, None, ~np.isnan(array[1]))
    convert(swath, source, folder / "t.tif", "--dtype", "int16")
    with rasterio.open(folder / "t.tif") as got:
        assert np.array_equal(got.dataset_mask() == 0, np.isnan(array[1]))


def test_both_zeros_are_nodata(swath: Swath, folder: Path) -> None:
    source = write(folder / "s.tif", np.tile(np.array([0.0, -0.0, 1.0], "float32"), (1, 4, 5)), nodata=0)
    with rasterio.open(source) as dataset:
        want = dataset.dataset_mask()
    assert set(np.unique(want)) == {0, 255}
    equal(swath.dump(source, mask=True).reshape(want.shape)[None], want[None], "the mask")


def test_statistics_of_another_nodata(swath: Swath, folder: Path) -> None:
    """Statistics that include 7 are wrong once 7 is nodata."""
    array = np.full((1, 40, 50), 7, "uint8")
    array[0, 20:] = 100
    write(folder / "s.tif", array)
    with rasterio.open(folder / "s.tif", "r+") as out:
        out.update_tags(1, STATISTICS_MINIMUM=7, STATISTICS_MAXIMUM=100, STATISTICS_MEAN=53.5)
    tags: dict[str, str]
    for options, least in (((), "7"), (("--nodata", 7), None), (("--nodata", 7, "--statistics", "yes"), "100")):
        convert(swath, folder / "s.tif", folder / "t.tif", *options)
        with rasterio.open(folder / "t.tif") as got:
            tags = got.tags(1)
        assert tags.get("STATISTICS_MINIMUM") == least
    # The same value again changes nothing.
    write(folder / "n.tif", array, nodata=7)
    with rasterio.open(folder / "n.tif", "r+") as out:
        out.update_tags(1, STATISTICS_MINIMUM=100)
    convert(swath, folder / "n.tif", folder / "t.tif", "--nodata", 7)
    with rasterio.open(folder / "t.tif") as got:
        assert got.tags(1)["STATISTICS_MINIMUM"] == "100"


# ---------------------------------------------------------------------------------------------------------------- masks


def soft_mask(folder: Path, beside: bool) -> tuple[Path, np.ndarray]:
    """A file with an 8-bit mask: inside, or in a side file."""
    array = pixels((3, 300, 400), "uint8", 3)
    mask = np.tile(np.linspace(0, 255, 400).astype("uint8"), (300, 1))
    source = folder / "s.tif"
    if beside:
        write(source, array)
        with rasterio.Env(GDAL_TIFF_INTERNAL_MASK=False), rasterio.open(source, "r+") as out:
            out.write_mask(mask)
        assert (folder / "s.tif.msk").is_file()
    else:
        with tifffile.TiffWriter(source) as out:
            out.write(np.moveaxis(array, 0, -1), photometric="rgb", metadata=None)
            out.write(mask, photometric="minisblack", subfiletype=1, metadata=None)
        patch(source, 1, {254: 4, 262: 4})
    return source, mask


@pytest.mark.parametrize("beside", [False, True], ids=["inside", "beside"])
@pytest.mark.parametrize("options", [(), ("--cog", "--tile", 128)], ids=["", "cog"])
def test_soft_masks_stay_soft(swath: Swath, folder: Path, beside: bool, options: tuple[object, ...]) -> None:
    source, mask = soft_mask(folder, beside)
    with rasterio.open(source) as before:
        want = before.dataset_mask()
    convert(swath, source, folder / "t.tif", *options)
    with rasterio.open(folder / "t.tif") as got:
        assert got.mask_flag_enums[0] == [MaskFlags.per_dataset]
        equal(got.dataset_mask()[None], want[None], "the mask")
        equal(got.dataset_mask()[None], mask[None], "the mask")
    if options:
        with rasterio.open(folder / "t.tif", overview_level=0) as got:
            assert len(np.unique(got.dataset_mask())) > 50
    equal(swath.dump(folder / "t.tif", mask=True).reshape(mask.shape)[None], mask[None], "our reader")


def test_masks_of_one_bit_stay_so(swath: Swath, folder: Path) -> None:
    mask = np.zeros((300, 400), bool)
    mask[40:200] = True
    source = write(folder / "s.tif", pixels((3, 300, 400), "uint8", 3), mask)
    convert(swath, source, folder / "t.tif", "--cog", "--tile", 128)
    with tifffile.TiffFile(folder / "t.tif") as tiff:
        masks = [page for page in tiff.pages if page.subfiletype & 4]
        assert masks and all(page.bitspersample == 1 for page in masks)


# ----------------------------------------------------------------------------------------------------------------- EXIF

EXIF_FILES = ["color64-lzw-mac.tif", "gray8-zip-pc.tif", "rgb8-zip-mac.tif"]


def exif(path: Path) -> dict[str, Any]:
    with tifffile.TiffFile(path) as tiff:
        tags = tiff.pages[0].tags
        return {str(number): tags[number].value for number in (34665, 34853) if number in tags}


@pytest.mark.parametrize("name", EXIF_FILES)
@pytest.mark.parametrize(
    "options", [(), ("--cog",), ("--bigtiff", "yes", "--big-endian"), ("--big-endian",)], ids=["", "cog", "big", "MM"]
)
def test_exif_of_real_files(swath: Swath, folder: Path, name: str, options: tuple[object, ...]) -> None:
    source = corpus(f"BitMiracle-libtiff.net/TestCase/{name}")
    want = exif(source)
    assert want["34665"]
    convert(swath, source, folder / "t.tif", *options)
    assert exif(folder / "t.tif") == want
    equal(by_gdal(folder / "t.tif"), by_gdal(source), "pixels")


def camera_file(path: Path, orders: str = "<") -> Path:
    """An image with EXIF, GPS and interoperability directories, as cameras write them."""
    order = orders

    def directory(start: int, entries: list[tuple[int, int, int, bytes]]) -> bytes:
        body, tail = struct.pack(order + "H", len(entries)), b""
        after = start + 2 + 12 * len(entries) + 4
        for tag, kind, count, value in entries:
            body += struct.pack(order + "HHI", tag, kind, count)
            if len(value) > 4:
                body += struct.pack(order + "I", after + len(tail))
                tail += value + b"\0" * (len(value) % 2)
            else:
                body += value.ljust(4, b"\0")
        return body + struct.pack(order + "I", 0) + tail

    short = lambda value: struct.pack(order + "H", value)  # noqa: E731
    long = lambda value: struct.pack(order + "I", value)  # noqa: E731
    inner = directory(600, [(1, 2, 4, b"R98\0")])
    seen = directory(
        300,
        [
            (33434, 5, 1, struct.pack(order + "II", 1, 250)),
            (36867, 2, 20, b"2026:11:16 20:00:00\0"),
            (37500, 7, 30, bytes(range(30))),
            (40962, 4, 1, long(40)),
            (40965, 4, 1, long(600)),
            (41986, 3, 1, short(1)),
        ],
    )
    place = directory(700, [(1, 2, 2, b"N\0"), (2, 5, 3, struct.pack(order + "6I", 47, 1, 30, 1, 15, 2))])
    main = directory(
        8,
        [
            (256, 3, 1, short(40)), (257, 3, 1, short(30)), (258, 3, 1, short(8)), (259, 3, 1, short(1)),
            (262, 3, 1, short(1)), (273, 4, 1, long(1000)), (277, 3, 1, short(1)), (278, 3, 1, short(30)),
            (279, 4, 1, long(1200)), (34665, 4, 1, long(300)), (34853, 4, 1, long(700)),
        ],
    )  # fmt: skip
    raw = bytearray(2200)
    raw[:8] = (b"II*\0" if order == "<" else b"MM\0*") + long(8)
    for at, part in ((8, main), (300, seen), (600, inner), (700, place)):
        raw[at : at + len(part)] = part
    raw[1000:] = (np.arange(1200) % 251).astype("uint8").tobytes()
    path.write_bytes(raw)
    return path


@pytest.mark.parametrize("orders", ["<", ">"])
@pytest.mark.parametrize(
    "options", [(), ("--cog",), ("--bigtiff", "yes"), ("--big-endian",)], ids=["", "cog", "big", "MM"]
)
def test_exif_gps_and_interoperability_directories_survive(
    swath: Swath, folder: Path, orders: str, options: tuple[object, ...]
) -> None:
    source = camera_file(folder / "s.tif", orders)
    want = exif(source)
    assert want["34665"]["MakerNote"] == bytes(range(30)) and want["34853"]["GPSLatitudeRef"] == "N"
    run = convert(swath, source, folder / "t.tif", *options)
    assert run.stderr == ""
    got = exif(folder / "t.tif")
    # The pointer differs, because the directory has moved.
    for tags in (want["34665"], got["34665"]):
        assert tags.pop("InteroperabilityTag", None)
    assert got == want
    assert b"R98\0" in (folder / "t.tif").read_bytes()
    equal(by_gdal(folder / "t.tif"), by_gdal(source), "pixels")
    # A part of the image has another size; all other tags still apply.
    convert(swath, source, folder / "t.tif", "--window", "0,0,10,10", "--dtype", "uint16", *options)
    part = exif(folder / "t.tif")["34665"]
    assert "PixelXDimension" not in part and part["DateTimeOriginal"] == "2026:11:16 20:00:00"


def test_damaged_exif_is_named(swath: Swath, folder: Path) -> None:
    """An image whose EXIF points beyond the file is still an image."""
    source = camera_file(folder / "s.tif")
    raw = bytearray(source.read_bytes())
    struct.pack_into("<I", raw, 8 + 2 + 12 * 9 + 8, 1 << 30)
    source.write_bytes(raw)
    run = convert(swath, source, folder / "t.tif")
    assert run.stderr.count("note:") == 1 and "EXIF" in run.stderr
    assert set(exif(folder / "t.tif")) == {"34853"}


# ---------------------------------------------------------------------------------------------------------------- pages


def test_pages_that_are_not_converted(swath: Swath, folder: Path) -> None:
    source = folder / "s.tif"
    with tifffile.TiffWriter(source) as out:
        for seed in range(3):
            out.write(pixels((1, 30, 40), "uint8", seed, "flat")[0], photometric="minisblack", metadata=None)
    run = convert(swath, source, folder / "t.tif")
    assert run.stderr.count("note:") == 1
    assert "2 further images" in run.stderr and "ifd 1, 2" in run.stderr and "swath dump --ifd 1" in run.stderr
    assert convert(swath, source, folder / "t.tif", "--quiet").stderr == ""
    # The command that the note suggests reads the page.
    subprocess.run([swath.binary, "dump", "--ifd", "1", "--out", folder / "p.npy", source], check=True)
    assert np.unique(np.load(folder / "p.npy")).tolist() == [2]
    # Overviews and masks are not pages.
    convert(swath, source, folder / "o.tif", "--overviews", "2", "--quiet")
    assert convert(swath, folder / "o.tif", folder / "t.tif").stderr == ""


def test_largest_error_of_lerc_holds_or_is_refused(swath: Swath, folder: Path) -> None:
    """In a big-endian file LERC sees swapped bytes: an error of 1 there may be one of 256."""
    array = pixels((1, 40, 50), "int16", 3)
    source, target = write(folder / "s.tif", array), folder / "t.tif"
    lossy = ("--compress", "lerc", "--max-z-error", 3)
    assert "little-endian" in refused(swath, source, target, *lossy, "--big-endian")
    convert(swath, source, target, *lossy)
    assert np.abs(by_gdal(target).astype(int) - array).max() <= 3
    convert(swath, source, target, "--compress", "lerc", "--big-endian")
    equal(by_gdal(target), array, "without an error")
