"""The command line of `swath convert`: every option, GDAL's habits, files and pipes, the same bytes every time."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
import tifffile
from harness import Swath
from rasterio.shutil import copy
from writing import by_gdal, convert, equal, pixels, refused, write, write_plain

TRANSLATE = "/usr/bin/gdal_translate"
NORTH_UP = rasterio.Affine(10, 0, 4e5, 0, -10, 52e5)


def raw(swath: Swath, *arguments: object, **options: Any) -> subprocess.CompletedProcess[bytes]:
    """Runs the tool with pipes instead of files for the three streams."""
    return subprocess.run([swath.binary, *map(str, arguments)], capture_output=True, timeout=60, **options)


def translate(source: Path, target: Path, *options: object) -> np.ndarray:
    """The result of gdal_translate."""
    if not Path(TRANSLATE).is_file():
        pytest.skip(f"there is no {TRANSLATE}")
    subprocess.run([TRANSLATE, "-q", *map(str, options), str(source), str(target)], check=True, capture_output=True)
    return by_gdal(target)


@pytest.fixture
def terrain(folder: Path) -> Path:
    """Two bands of floats, georeferenced."""
    return write(folder / "s.tif", pixels((2, 300, 400), "float32", 3), crs="EPSG:32633", transform=NORTH_UP)


# -------------------------------------------------------------------------------------------------------------- streams


@pytest.mark.parametrize(
    "options",
    [(), ("--cog",), ("--cog", "--overviews", "none"), ("--compress", "none", "--strips", 5)],
    ids=["tiff", "cog", "one", "strips"],
)
def test_standard_output(swath: Swath, folder: Path, terrain: Path, options: tuple[object, ...]) -> None:
    """A pipe gets the same bytes as a file, or an error; no message is mixed in."""
    convert(swath, terrain, folder / "t.tif", *options)
    done = raw(swath, "convert", terrain, "-", *options)
    assert done.returncode == 0, done.stderr
    assert done.stderr == b""
    assert done.stdout == (folder / "t.tif").read_bytes()
    assert not (Path.cwd() / "-").exists()
    # And into a file that the shell opened.
    with (folder / "u.tif").open("wb") as out:
        subprocess.run([swath.binary, "convert", terrain, "-", *map(str, options)], stdout=out, check=True)
    assert (folder / "u.tif").read_bytes() == done.stdout


def test_closed_pipe_is_an_error(swath: Swath, folder: Path) -> None:
    """A closed pipe is an error, not a panic."""
    source = write_plain(folder / "s.tif", pixels((1, 2000, 2000), "uint16", 1, "noise"))
    command = subprocess.Popen([swath.binary, "convert", source, "-"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert command.stdout and command.stderr
    command.stdout.read(100)
    command.stdout.close()
    stderr = command.stderr.read().decode()
    assert command.wait(20) in (2, -signal.SIGPIPE)
    assert "panicked" not in stderr


def test_quiet_in_a_pipe(swath: Swath, folder: Path, terrain: Path) -> None:
    for options in ((), ("--quiet",), ("-q",), ("--cog",)):
        done = raw(swath, "convert", terrain, folder / "t.tif", *options)
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_progress(swath: Swath, folder: Path, terrain: Path) -> None:
    done = raw(swath, "convert", terrain, folder / "t.tif", "--progress")
    assert done.returncode == 0
    assert b"t.tif" in done.stderr and b"bytes" in done.stderr
    assert done.stdout == b""
    refused(swath, terrain, folder / "n.tif", "--progress", "--quiet")


# ---------------------------------------------------------------------------------------------------------------- files


@pytest.mark.parametrize(
    "options", [(), ("--cog", "--compress", "zstd"), ("--compress", "none")], ids=["", "cog", "none"]
)
def test_converting_a_file_onto_itself_keeps_its_pixels(
    swath: Swath, folder: Path, terrain: Path, options: tuple[object, ...]
) -> None:
    """Works, or is refused; either way the pixels are still there."""
    want = by_gdal(terrain)
    same_file = folder / "." / "link.tif"
    same_file.hardlink_to(terrain)
    for target in (terrain, same_file):
        run = swath.run("convert", terrain, target, *options)
        run.check_alive()
        equal(by_gdal(terrain), want, "the source")
        equal(by_gdal(target), want, "the target")
        assert len(list(folder.iterdir())) == 2, "something was left behind"


def test_converting_a_file_onto_a_link_to_itself_keeps_its_pixels(swath: Swath, folder: Path, terrain: Path) -> None:
    want = by_gdal(terrain)
    link = folder / "link.tif"
    link.symlink_to(terrain.name)
    swath.run("convert", terrain, link, "--compress", "zstd").check_alive()
    equal(by_gdal(terrain), want, "the source")
    equal(by_gdal(link), want, "the target")


def test_target_that_is_a_link(swath: Swath, folder: Path, terrain: Path) -> None:
    """A link is followed or replaced; its target is never half a file."""
    other = write(folder / "other.tif", pixels((1, 5, 5), "uint8"))
    link = folder / "link.tif"
    link.symlink_to(other.name)
    convert(swath, terrain, link)
    equal(by_gdal(link), by_gdal(terrain), "through the link")
    by_gdal(other)


def test_missing_folder(swath: Swath, folder: Path, terrain: Path) -> None:
    target = folder / "no" / "such" / "t.tif"
    run = swath.run("convert", terrain, target)
    assert "t.tif" in run.check_refusal()
    assert not target.parent.exists()


def test_folder_as_target(swath: Swath, folder: Path, terrain: Path) -> None:
    target = folder / "somewhere"
    target.mkdir()
    refused(swath, terrain, target)
    assert list(target.iterdir()) == []


def test_folder_and_nothing_as_source(swath: Swath, folder: Path) -> None:
    refused(swath, folder, folder / "t.tif")
    assert "absent.tif" in refused(swath, folder / "absent.tif", folder / "t.tif")
    junk = folder / "junk.tif"
    junk.write_bytes(b"II*\0" + bytes(40))
    assert "junk.tif" in refused(swath, junk, folder / "t.tif")


def test_target_is_replaced_and_keeps_nothing_of_the_old(swath: Swath, folder: Path, terrain: Path) -> None:
    target = folder / "t.tif"
    target.write_bytes(b"x" * 10_000_000)
    convert(swath, terrain, target)
    assert target.stat().st_size < 5_000_000
    equal(by_gdal(target), by_gdal(terrain), "GDAL")
    assert stat.S_IMODE(target.stat().st_mode) & 0o400


def test_mode_follows_umask(swath: Swath, folder: Path, terrain: Path) -> None:
    target = folder / "t.tif"
    subprocess.run(["/bin/sh", "-c", f"umask 022; exec {swath.binary} convert {terrain} {target}"], check=True)
    assert stat.S_IMODE(target.stat().st_mode) == 0o644


def test_unusual_file_names(swath: Swath, folder: Path, terrain: Path) -> None:
    for name in ("with space.tif", "ünï😀.tif", "no-extension", "-dash.tif", "a;b&c.tif", "new\nline.tif"):
        target = folder / name
        convert(swath, terrain, target)
        equal(by_gdal(target), by_gdal(terrain), name)


def test_hostile_names(swath: Swath, folder: Path) -> None:
    """A source with a hostile name that is no TIFF: the error is still one line without terminal escapes."""
    bad = folder / "two\nlines\x1b[31m.tif"
    bad.write_bytes(b"no tiff")
    run = swath.run("convert", bad, folder / "n.tif")
    assert run.code == 2
    assert len(run.stderr.strip().splitlines()) == 1
    assert "\x1b" not in run.stderr


def test_damaged_source_leaves_nothing(swath: Swath, folder: Path) -> None:
    """A tile in the middle is broken: an error that names it, no file, and the old target as it was."""
    source = write(folder / "s.tif", pixels((1, 600, 600), "uint16", 1), compress="deflate", tiled=True, blockxsize=64,
                   blockysize=64)  # fmt: skip
    with tifffile.TiffFile(source) as tiff:
        offset = tiff.pages[0].dataoffsets[55]
    content = bytearray(source.read_bytes())
    content[offset + 2 : offset + 30] = b"\xff" * 28
    source.write_bytes(content)
    for options in ((), ("--cog",), ("--compress", "none", "--strips", 1)):
        message = refused(swath, source, folder / "t.tif", *options)
        assert "s.tif" in message
    # A window that does not touch the broken tile is converted.
    convert(swath, source, folder / "t.tif", "--window", "0,0,64,64")
    keep = (folder / "t.tif").read_bytes()
    refused(swath, source, folder / "t.tif")
    assert (folder / "t.tif").read_bytes() == keep


def test_full_disk_leaves_no_file(swath: Swath, folder: Path) -> None:
    """A full disk is an error and leaves no file."""
    source = write_plain(folder / "s.tif", pixels((1, 1500, 1500), "uint16", 1, "noise"))
    target = folder / "t.tif"
    done = subprocess.run(
        ["/bin/sh", "-c", f"ulimit -f 1000; exec {swath.binary} convert {source} {target}"], capture_output=True
    )
    assert done.returncode != 0
    assert b"panicked" not in done.stderr
    left = [path.name for path in folder.iterdir() if path.name != "s.tif"]
    # A process that the limit's signal kills cannot clean up; one that gets an error must.
    assert not target.exists()
    assert done.returncode < 0 or not left, left
    full = Path("/dev/full")
    if full.exists():
        with full.open("wb") as out:
            done = subprocess.run([swath.binary, "convert", source, "-"], stdout=out, stderr=subprocess.PIPE)
        assert done.returncode == 2
        assert done.stderr.startswith(b"error: ")


def test_interrupt_leaves_nothing(swath: Swath, folder: Path) -> None:
    source = write_plain(folder / "s.tif", pixels((1, 5000, 5000), "uint16", 1, "noise"))
    target = folder / "t.tif"
    target.write_bytes(b"precious")
    command = subprocess.Popen(
        [swath.binary, "convert", source, target, "--compress", "lzma", "--threads", "1"], stderr=subprocess.PIPE
    )
    time.sleep(0.4)
    command.send_signal(signal.SIGINT)
    assert command.wait(20) == 130
    assert target.read_bytes() == b"precious"
    assert sorted(path.name for path in folder.iterdir()) == ["s.tif", "t.tif"]


# ------------------------------------------------------------------------------------------------------- the same bytes


@pytest.mark.parametrize("codec", ["deflate", "zstd", "lzw", "lzma", "lerc_zstd", "jpeg", "webp", "jpeg2000", "none"])
@pytest.mark.parametrize("cog", [True, False], ids=["cog", "tiff"])
def test_same_bytes(swath: Swath, folder: Path, codec: str, cog: bool) -> None:
    """Threads, memory and repetition do not change a file."""
    slow = codec in ("lzma", "webp", "jpeg2000")
    array = pixels((3, 300 if slow else 900, 1100), "uint8", 2, "holes")
    mask = np.where(array[0] > 40, 255, 0).astype("u1")
    source = write(folder / "s.tif", array, mask, photometric="rgb", crs="EPSG:32633", transform=NORTH_UP)
    options = ["--compress", codec, "--tile", 256, *(["--cog"] if cog else [])]
    made = []
    for more in (("--threads", 1), ("--threads", 2), ("--threads", 8), (), ("--max-memory", "64M"),
                 ("--max-memory", "1G"), ("--threads", 3, "--max-memory", "24M")):  # fmt: skip
        target = folder / "t.tif"
        convert(swath, source, target, *options, *more)
        made.append((target.read_bytes(), more))
    for content, more in made[1:]:
        assert content == made[0][0], f"{more} gives other bytes than {made[0][1]}"


def test_memory_limit_holds(swath: Swath, folder: Path) -> None:
    """A hundred megabytes within 48: the limit, plus what any program needs."""
    source = folder / "s.tif"
    array = np.repeat(pixels((1, 700, 7000), "uint16", 2), 10, axis=1)
    write(source, array, compress="zstd", tiled=True, blockxsize=512, blockysize=512)
    for options in (("--cog",), ("--strips", 0)):
        run = convert(
            swath, source, folder / "t.tif", "--max-memory", "48M", "--compress", "zstd", "--level", 1, *options
        )
        assert run.peak <= 110 << 20, f"{options}: peak of {run.peak >> 20} MiB"
    assert "memory" in refused(swath, source, folder / "n.tif", "--max-memory", "1k").lower()
    assert "memory" in refused(swath, source, folder / "n.tif", "--max-memory", "0").lower()


def test_threads_0(swath: Swath, folder: Path, terrain: Path) -> None:
    run = swath.run("convert", terrain, folder / "t.tif", "--threads", 0)
    run.check_alive()
    if run.ok:
        equal(by_gdal(folder / "t.tif"), by_gdal(terrain), "GDAL")


# ------------------------------------------------------------------------------------------------------ types and scale

OT = {"uint8": "Byte", "int16": "Int16", "uint16": "UInt16", "int32": "Int32", "uint32": "UInt32", "float32": "Float32",
      "float64": "Float64"}  # fmt: skip


def awkward(dtype: str, to: str) -> np.ndarray:
    """Halves, ends of ranges, values that no integer has; NaN only for types that have it: others refuse it."""
    if np.dtype(dtype).kind == "f":
        values = [0, -0.0, 0.4, 0.5, 0.6, 1.5, 2.5, -0.4, -0.5, -0.6, -1.5, -2.5, 254.4, 254.5, 255.4, 255.5, 256, 1e10,
                  -1e10, 32767.5, -32768.5, 65535.4, 65535.5, 2147483647.5, -2147483649.0, 4294967295.5, 1e30, -1e30,
                  np.inf, -np.inf, 1e-40, 3.3e38]  # fmt: skip
        values += [] if np.dtype(to).kind in "iu" else [np.nan]
    else:
        info = np.iinfo(dtype)
        values = [info.min, info.min + 1, info.max, info.max - 1, 0, 1, 127]
        edges = (128, 255, 256, 32767, 32768, 65535, 65536, 2**31 - 1, 2**31, -1, -128, -129, -32768, -32769)
        values += [edge for edge in edges if info.min <= edge <= info.max]
    return np.resize(np.array(values, dtype), (1, 6, 12))


@pytest.mark.parametrize("to", OT)
@pytest.mark.parametrize("dtype", ["uint8", "int16", "uint16", "int32", "uint32", "float32", "float64"])
def test_dtype_as_gdal(swath: Swath, folder: Path, dtype: str, to: str) -> None:
    """Rounding and clamping as in gdal_translate -ot."""
    source = write(folder / "s.tif", awkward(dtype, to))
    want = translate(source, folder / "g.tif", "-ot", OT[to])
    for options in (("--dtype", to), ("-ot", OT[to])):
        convert(swath, source, folder / "t.tif", *options)
        got = by_gdal(folder / "t.tif")
        assert got.dtype == want.dtype == to
        differ = ~((got == want) | (np.isnan(got.astype("f8")) & np.isnan(want.astype("f8"))))
        differences = [(a, g, w) for a, g, w in zip(awkward(dtype, to)[differ], got[differ], want[differ])]
        assert not differences, f"(source, ours, GDAL's): {differences[:6]}"


@pytest.mark.parametrize("to", ["int8", "uint64", "int64", "float16", "complex64", "complex128"])
@pytest.mark.parametrize("dtype", ["uint8", "int32", "float32", "uint64", "int64"])
def test_dtype_of_newer_gdal(swath: Swath, folder: Path, dtype: str, to: str) -> None:
    """Types that gdal_translate 3.6 lacks: rasterio's GDAL converts by a windowed read into an array of the type."""
    source = write(folder / "s.tif", awkward(dtype, to))
    convert(swath, source, folder / "t.tif", "--dtype", to)
    with rasterio.open(source) as dataset:
        want = dataset.read(out_dtype=to)
    got = by_gdal(folder / "t.tif")
    assert got.dtype == to
    differ = ~((got == want) | (np.isnan(got) & np.isnan(want)))
    differences = [(a, g, w) for a, g, w in zip(awkward(dtype, to)[differ], got[differ], want[differ])]
    assert not differences, f"(source, ours, GDAL's): {differences[:6]}"


def test_dtype_of_complex(swath: Swath, folder: Path) -> None:
    source = write(folder / "s.tif", pixels((1, 20, 30), "complex64", 3))
    want = translate(source, folder / "g.tif", "-ot", "Float32")
    convert(swath, source, folder / "t.tif", "--dtype", "float32")
    equal(by_gdal(folder / "t.tif"), want, "real part")


def test_dtype_and_nodata(swath: Swath, folder: Path) -> None:
    """Nodata stays nodata where the new type has it."""
    array = pixels((1, 20, 30), "float32", 3) * 0.05
    array[0, 3:9, 4:14] = -9999
    source = write(folder / "s.tif", array, nodata=-9999)
    convert(swath, source, folder / "t.tif", "--dtype", "int16")
    with rasterio.open(folder / "t.tif") as got:
        assert got.nodata == -9999
        assert np.array_equal(got.read_masks()[0] == 0, array[0] == -9999)
    for options in ((), ("--quiet",)):
        assert "nodata" in refused(swath, source, folder / "n.tif", "--dtype", "uint8", *options)
    convert(swath, source, folder / "t.tif", "--dtype", "uint8", "--nodata", 255)
    with rasterio.open(folder / "t.tif") as got:
        assert got.nodata == 255
        assert np.array_equal(got.read_masks()[0] == 0, array[0] == -9999), "the holes are 255 now"


@pytest.mark.parametrize("nodata", [0.1, -3.4e38])
def test_nodata_that_a_sample_rounds(swath: Swath, folder: Path, nodata: float) -> None:
    array = np.arange(20, dtype="float32").reshape(1, 4, 5)
    array[0, 1] = nodata
    source = write(folder / "s.tif", array, nodata=nodata)
    for options in (("float64",), ("uint8", "--nodata", 255)):
        convert(swath, source, folder / "t.tif", "--dtype", *options)
        assert np.array_equal(swath.dump(folder / "t.tif", mask=True)[0], swath.dump(source, mask=True)[0])


SCALES: list[tuple[str, str, tuple[object, ...]]] = [
    ("float32", "uint8", (0, 1000)), ("float32", "uint8", (200, 700)), ("float32", "uint8", (0, 1000, 10, 20)),
    ("uint16", "uint8", (0, 65535)), ("uint16", "uint8", (1000, 2000, 255, 0)), ("uint8", "float32", (0, 255, 0, 1)),
    ("int16", "int16", (-100, 100, -1, 1)), ("float64", "uint16", (0, 950)), ("uint8", "uint8", (10, 240)),
    ("float32", "float32", (0, 1000, -1, 1)), ("uint8", "int16", (0, 255, -1000, 1000)), ("uint16", "uint8", ()),
    ("float32", "uint8", ()),
]  # fmt: skip


@pytest.mark.parametrize(("dtype", "to", "numbers"), SCALES)
def test_scale(swath: Swath, folder: Path, dtype: str, to: str, numbers: tuple[float, ...]) -> None:
    """A line through two points, extended to the limits of the type."""
    array = pixels((1, 80, 90), dtype, 3)
    source = write(folder / "s.tif", array)
    convert(swath, source, folder / "t.tif", "--dtype", to, "--scale", ",".join(map(str, numbers)) or "auto")
    low, high = numbers[:2] or (array.min(), array.max())
    ends = np.iinfo(to) if np.dtype(to).kind in "iu" else None
    to_low, to_high = numbers[2:] or (ends.min, ends.max)
    part = (array.astype("f8") - low) / (float(high) - float(low))
    want = to_low + part * (to_high - to_low)
    want = want if ends is None else np.clip(want, ends.min, ends.max)
    got = by_gdal(folder / "t.tif")
    if ends is None:
        assert np.allclose(got, want, rtol=1e-6, atol=1e-6)
    else:
        assert np.abs(got - want).max() <= 0.5 + 1e-6


# Without numbers GDAL takes its range from a part of the pixels only; ours is of all.
@pytest.mark.parametrize(("dtype", "to", "numbers"), [case for case in SCALES if case[2]])
def test_scale_as_gdal(swath: Swath, folder: Path, dtype: str, to: str, numbers: tuple[float, ...]) -> None:
    source = write(folder / "s.tif", pixels((1, 80, 90), dtype, 3))
    want = translate(source, folder / "g.tif", "-ot", OT[to], "-scale", *numbers)
    convert(swath, source, folder / "t.tif", "-ot", OT[to], "-scale", *numbers)
    got = by_gdal(folder / "t.tif")
    if to.startswith("float"):
        assert np.allclose(got, want, rtol=1e-6, atol=1e-6)
    else:
        gap = np.abs(got.astype("f8") - want)
        assert gap.max() <= 1 and (gap > 0).mean() < 0.001, f"{(gap > 0).sum()} differ, by up to {gap.max()}"


@pytest.mark.parametrize(
    "text",
    [
        "1",
        "1,2,3",
        "1,2,3,4,5",
        "a,b",
        "",
        "nan,1",
        "5,5",
    ],
)
def test_scale_refused(swath: Swath, folder: Path, terrain: Path, text: str) -> None:
    assert "scale" in refused(swath, terrain, folder / "t.tif", f"--scale={text}").lower()


def test_scale_leaves_nodata(swath: Swath, folder: Path) -> None:
    array = pixels((1, 80, 90), "float32", 3)
    array[0, 10:30, 20:40] = -9999
    source = write(folder / "s.tif", array, nodata=-9999)
    convert(swath, source, folder / "t.tif", "--scale", "0,1000,1,255", "--dtype", "uint8", "--nodata", 0)
    with rasterio.open(folder / "t.tif") as got:
        assert np.array_equal(got.read_masks()[0] == 0, array[0] == -9999)
    convert(swath, source, folder / "t.tif", "--scale", "auto", "--dtype", "uint8", "--nodata", 0)
    with rasterio.open(folder / "t.tif") as got:
        assert got.read(1)[array[0] != -9999].max() == 255, "nodata takes no part in the range"


# ------------------------------------------------------------------------------------------------------- GDAL's options


def test_gdal_command_line(swath: Swath, folder: Path) -> None:
    """A command line of gdal_translate gives the same image in swath."""
    array = pixels((4, 300, 400), "uint16", 3)
    source = write(folder / "s.tif", array, crs="EPSG:32633", transform=NORTH_UP)
    commands = [
        ("-srcwin", 10, 20, 300, 200), ("-projwin", 400100, 5199900, 403000, 5198000), ("-b", 3, "-b", 1),
        ("-a_nodata", 7), ("-a_nodata", "-9999", "-ot", "Int32"), ("-a_srs", "EPSG:25833"), ("-co", "COMPRESS=LZW"),
        ("-co", "TILED=YES", "-co", "BLOCKXSIZE=64", "-co", "BLOCKYSIZE=32"), ("-co", "TILED=YES"),
        ("-co", "COMPRESS=DEFLATE", "-co", "PREDICTOR=2", "-co", "ZLEVEL=9", "-co", "NUM_THREADS=2"),
        ("-co", "BIGTIFF=YES"), ("-co", "ENDIANNESS=BIG"), ("-co", "INTERLEAVE=BAND"), ("-co", "INTERLEAVE=PIXEL"),
        ("-b", 1, "-co", "NBITS=12", "-scale", 0, 65535, 0, 4095), ("-of", "GTiff", "-q"),
        ("-co", "PHOTOMETRIC=MINISBLACK"), ("-co", "SPARSE_OK=TRUE"), ("-co", "compress=lzw"),
        ("-co", "NUM_THREADS=ALL_CPUS"),
        ("-b", 1, "-ot", "Byte", "-scale", 0, 65535, 0, 255, "-co", "COMPRESS=PACKBITS"), ("-co", "BIGTIFF=IF_SAFER"),
    ]  # fmt: skip
    for command in commands:
        want = translate(source, folder / "g.tif", *command)
        convert(swath, source, folder / "t.tif", *command)
        if "-scale" in command:
            # Observed: 14 of 120,000 are rounded to the other side of a half. The cause is unknown.
            gap = np.abs(by_gdal(folder / "t.tif").astype(int) - want)
            assert gap.max() <= 1 and (gap > 0).mean() < 0.001, command
        else:
            equal(by_gdal(folder / "t.tif"), want, str(command))
        with rasterio.open(folder / "t.tif") as ours, rasterio.open(folder / "g.tif") as theirs:
            assert ours.crs == theirs.crs, command
            assert np.allclose(list(ours.transform), list(theirs.transform), rtol=1e-14), command
            assert ours.nodata == theirs.nodata, command
            if "COMPRESS" in str(command):
                assert ours.compression == theirs.compression, command
            if "BLOCKXSIZE" in str(command):
                assert ours.block_shapes == theirs.block_shapes, command
            if "NBITS" in str(command):
                assert ours.tags(1, ns="IMAGE_STRUCTURE")["NBITS"] == "12"


def test_gdal_cog_command_line(swath: Swath, folder: Path) -> None:
    source = write(folder / "s.tif", pixels((1, 700, 900), "uint16", 3), crs="EPSG:32633", transform=NORTH_UP)
    commands: list[dict[str, str]] = [
        {"COMPRESS": "ZSTD", "LEVEL": "9", "PREDICTOR": "YES", "BLOCKSIZE": "256", "OVERVIEW_RESAMPLING": "CUBIC"},
        {"COMPRESS": "LERC", "MAX_Z_ERROR": "0"}, {"OVERVIEWS": "NONE"}, {"BIGTIFF": "YES"}, {"OVERVIEW_COUNT": "3"},
        {"RESAMPLING": "NEAREST"}, {"COMPRESS": "NONE", "STATISTICS": "YES"}, {"PREDICTOR": "STANDARD"},
        {"COMPRESS": "DEFLATE", "PREDICTOR": "NO", "NUM_THREADS": "ALL_CPUS", "OVERVIEWS": "IGNORE_EXISTING"},
        {"SPARSE_OK": "YES", "COMPRESS": "LZW"},
    ]  # fmt: skip
    for options in commands:
        copy(source, folder / "g.tif", driver="COG", **options)
        words = [word for key, value in options.items() for word in ("-co", f"{key}={value}")]
        convert(swath, source, folder / "t.tif", "-of", "COG", *words)
        equal(by_gdal(folder / "t.tif"), by_gdal(folder / "g.tif"), str(options))
        with rasterio.open(folder / "t.tif") as ours, rasterio.open(folder / "g.tif") as theirs:
            assert ours.overviews(1) == theirs.overviews(1), options
            if "BLOCKSIZE" in options:
                assert ours.block_shapes == theirs.block_shapes
            if "COMPRESS" in options:
                assert ours.compression == theirs.compression, options
        assert swath.info(folder / "t.tif")["cog"]["is_cog"] or options == {"OVERVIEWS": "NONE"}


@pytest.mark.parametrize("command", [
    ("-of", "PNG"), ("-co", "NOSUCH=1"), ("-co", "COMPRESS"), ("-of",), ("-srcwin", 1, 2, 3), ("-b", "mask"),
    ("-srcwin", 0, 0, 5000, 10), ("-projwin", 0, 0, 1, 1), ("-a_srs", "nonsense"), ("-a_nodata", "x"),
    ("-ot", "String"), ("-outsize", "50%", "50%"), ("-r", "nosuch"), ("-expand", "rgb"), ("-co", "BLOCKSIZE=100"),
], ids=str)  # fmt: skip
def test_gdal_options_refused(swath: Swath, folder: Path, terrain: Path, command: tuple[object, ...]) -> None:
    """An option that swath does not support is an error, never ignored."""
    run = swath.run("convert", terrain, folder / "t.tif", *command)
    run.check_alive()
    assert run.code == 2
    assert run.stderr.startswith("error: ")
    assert not (folder / "t.tif").exists()


def test_a_nodata_none_and_last_option_wins(swath: Swath, folder: Path) -> None:
    source = write(folder / "s.tif", pixels((1, 30, 40), "uint8"), nodata=3)
    convert(swath, source, folder / "t.tif", "-a_nodata", "none")
    with rasterio.open(folder / "t.tif") as got:
        assert got.nodata is None
    convert(swath, source, folder / "t.tif", "--compress", "lzw", "--compress", "zstd")
    assert swath.info(folder / "t.tif")["compress"] == "zstd"


# --------------------------------------------------------------------------------------------------------- and the rest


def test_every_option_is_in_the_help_and_here(swath: Swath) -> None:
    """Every option in the help has a test here, and the other way round."""
    help_text = swath.run("convert", "--help").stdout
    options = {word.split("[")[0].strip(",") for word in help_text.split() if word.startswith("--")}
    here = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    untested = {option for option in options if f'"{option}' not in here and f'{option}"' not in here} - {"--help"}
    assert untested == set()


@pytest.mark.parametrize(
    ("options", "exact"),
    [
        (("--quality", 90), False),
        (("--quality", 90, "--lossless"), True),
        (("-co", "WEBP_LOSSLESS=YES", "-co", "WEBP_LEVEL=90"), True),
        (("-co", "WEBP_LOSSLESS=NO"), False),
        ((), True),
    ],
)
def test_webp_keeps_samples_or_not(swath: Swath, folder: Path, options: tuple[object, ...], exact: bool) -> None:
    array = pixels((3, 90, 120), "uint8", 3)
    source = write(folder / "s.tif", array, photometric="rgb")
    convert(swath, source, folder / "t.tif", "--compress", "webp", *options)
    assert np.array_equal(by_gdal(folder / "t.tif"), array) == exact


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("--compress", "zstd", "--quality", 50), "--quality 50: zstd has no quality"),
        (("--compress", "zstd", "--max-z-error", 0.1), "--max-z-error 0.1"),
        (("--compress", "lz4", "--level", 99), "--level 99: lz4 has no levels"),
        (("--compress", "none", "--level", 9), "--level 9: none has no levels"),
        (("--compress", "lzw", "--level", 9), "--level 9: lzw has no levels"),
        (("--compress", "lerc", "--level", 9), "--level 9: lerc has no levels"),
        (("--compress", "deflate", "--level", 13), "levels from 1 to 12"),
        (("--compress", "jpeg", "--lossless"), "--lossless: jpeg has no such choice"),
        (("--compress", "zstd", "--lossless"), "--lossless: zstd keeps every sample"),
        (("--compress", "jpeg", "--quality", 500), "--quality 500: give a number from 1 to 100"),
        (("--compress", "deflate", "--subsampling", "444"), "--subsampling: deflate has no chroma subsampling"),
        (("-co", "COMPRESS=LZW", "-co", "JPEG_QUALITY=50"), "--quality 50: lzw has no quality"),
    ],
)
def test_options_without_effect_are_refused(
    swath: Swath, folder: Path, options: tuple[object, ...], named: str
) -> None:
    source = write(folder / "s.tif", pixels((3, 64, 64), "uint8", 3))
    run = swath.run("convert", source, folder / "t.tif", *options)
    assert named in run.check_refusal(), run.stderr
    assert not (folder / "t.tif").exists()


@pytest.mark.parametrize("name", ["t.png", "t.vrt", "t.JP2", "t.nc"])
def test_names_of_other_formats_are_refused(swath: Swath, folder: Path, name: str) -> None:
    source = write(folder / "s.tif", pixels((1, 64, 64), "uint8", 3))
    line = swath.run("convert", source, folder / name).check_refusal(folder / name)
    assert f"not {Path(name).suffix.lower()}" in line and ".tif" in line
    assert not (folder / name).exists()


def test_indices_of_a_palette_are_not_averaged(swath: Swath, folder: Path) -> None:
    values = np.where(np.indices((1, 256, 256)).sum(axis=0) % 3 == 0, 10, 200).astype("uint8")
    source = write(folder / "s.tif", values, photometric="palette")
    with rasterio.open(source, "r+") as dataset:
        dataset.write_colormap(1, {10: (255, 0, 0, 255), 200: (0, 0, 255, 255)})
    run = swath.run("convert", source, folder / "t.tif", "--cog", "--tile", 64, "--resampling", "average")
    assert run.ok and "nearest" in run.stderr, run.stderr
    with rasterio.open(folder / "t.tif", overview_level=0) as dataset:
        assert set(np.unique(dataset.read())) <= {10, 200}


def test_unlimited(swath: Swath, folder: Path) -> None:
    """A few bytes that declare a gigabyte of zeros are decoded only with `--unlimited`."""
    source = folder / "s.tif"
    with rasterio.open(source, "w", driver="GTiff", dtype="uint8", count=1, height=20000, width=20000, SPARSE_OK=True,
                       tiled=True, compress="deflate"):  # fmt: skip
        pass
    run = swath.run("convert", source, folder / "t.tif", "--window", "0,0,100,100")
    run.check_alive()
    run = swath.run("convert", source, folder / "t.tif", "--sparse", "--compress", "zstd", "--level", 1)
    run.check_alive()
    if not run.ok:
        assert "s.tif" in run.check_refusal()
    convert(swath, source, folder / "t.tif", "--unlimited", "--window", "0,0,100,100")


def test_sparse_stays_small(swath: Swath, folder: Path) -> None:
    source = folder / "s.tif"
    with rasterio.open(source, "w", driver="GTiff", dtype="uint8", count=1, height=5000, width=5000, SPARSE_OK=True,
                       tiled=True, compress="deflate", nodata=0) as out:  # fmt: skip
        out.write(np.full((1, 256, 256), 9, "u1"), window=rasterio.windows.Window(512, 512, 256, 256))
    for options in ((), ("--cog",)):
        convert(swath, source, folder / "t.tif", "--sparse", "--tile", 256, *options)
        assert (folder / "t.tif").stat().st_size < 20_000
        equal(by_gdal(folder / "t.tif"), by_gdal(source), "GDAL")


def test_copy_of_a_copy(swath: Swath, folder: Path, terrain: Path) -> None:
    """Converting our own file gives the same file again: nothing is added."""
    for options in (("--cog", "--compress", "zstd"), ("--compress", "lzw", "--strips", 9), ("--big-endian",)):
        first, second = folder / "1.tif", folder / "2.tif"
        convert(swath, terrain, first, *options)
        convert(swath, first, second, *options)
        assert first.read_bytes() == second.read_bytes(), options


def test_read_only_source_and_folder(swath: Swath, folder: Path, terrain: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    closed = folder / "closed"
    closed.mkdir()
    shutil.copy(terrain, closed / "s.tif")
    closed.chmod(0o555)
    try:
        swath.run("convert", terrain, closed / "t.tif").check_refusal()
    finally:
        closed.chmod(0o755)
